//! `put`, `get`, `delete`, `merge` and `scan`: one record, or records in key order.

use std::io::Write;
use std::ops::Bound;

use cleavedb::{Durability, Iter, Result as EngineResult, Slice};

use crate::args::{Delete, Get, Merge, Put, Scan};
use crate::failure::{Failure, Result};
use crate::form::{Form, escaped};
use crate::open;

fn parse(form: Form, text: &str) -> Result<Vec<u8>> {
    form.parse(text).map_err(Failure::Message)
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

/// `cleave put`.
pub fn put(args: &Put) -> Result<()> {
    let key = parse(args.forms.key(), &args.key)?;
    let value = parse(args.forms.value(), &args.value)?;
    let db = open::existing_or_new(&args.place.db)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    keyspace.put_with(key, value, durability(args.sync))?;
    Ok(db.close()?)
}

/// `cleave get`.
pub fn get(args: &Get, out: &mut dyn Write) -> Result<()> {
    let key = parse(args.forms.key(), &args.key)?;
    let db = open::existing(&args.place.db)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    let Some(value) = keyspace.get(&key)? else {
        let place = &args.place;
        return Err(Failure::new(format!("no key \"{}\" in keyspace {:?}", escaped(&key), place.keyspace)));
    };
    out.write_all(&args.forms.value().whole(&value).map_err(Failure::Message)?)?;
    Ok(writeln!(out)?)
}

/// `cleave delete`.
pub fn delete(args: &Delete) -> Result<()> {
    let key = parse(args.forms.key(), &args.key)?;
    let db = open::existing(&args.place.db)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    keyspace.delete_with(key, durability(args.sync))?;
    Ok(db.close()?)
}

/// `cleave merge`. A keyspace made on the way would have no operator, so nothing is created here.
pub fn merge(args: &Merge) -> Result<()> {
    let key = parse(args.forms.key(), &args.key)?;
    let operand = parse(args.forms.value(), &args.operand)?;
    let db = open::existing(&args.place.db)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    keyspace.merge_with(key, operand, durability(args.sync))?;
    Ok(db.close()?)
}

/// `cleave scan`.
pub fn scan(args: &Scan, out: &mut dyn Write) -> Result<()> {
    let key = |text: &Option<String>| text.as_ref().map(|text| parse(args.forms.key(), text)).transpose();
    let (from, to, prefix) = (key(&args.from)?, key(&args.to)?, key(&args.prefix)?);
    if let (Some(from), Some(to)) = (&from, &to)
        && from > to
    {
        return Err(Failure::new("--from lies after --to; --reverse turns the order, not the bounds"));
    }
    let db = open::existing(&args.place.db)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    let records: Iter = match prefix {
        Some(prefix) => keyspace.prefix(prefix)?,
        None => keyspace
            .range((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))?,
    };
    let limit = args.limit.unwrap_or(usize::MAX);
    if args.reverse { print(args, records.rev().take(limit), out) } else { print(args, records.take(limit), out) }
}

fn print(args: &Scan, records: impl Iterator<Item = EngineResult<(Slice, Slice)>>, out: &mut dyn Write) -> Result<()> {
    for record in records {
        let (key, value) = record?;
        let key = args.forms.key().field(&key).map_err(Failure::Message)?;
        if args.keys_only {
            writeln!(out, "{key}")?;
        } else {
            let value = args.forms.value().field(&value).map_err(Failure::Message)?;
            writeln!(out, "{key}\t{value}")?;
        }
    }
    Ok(())
}
