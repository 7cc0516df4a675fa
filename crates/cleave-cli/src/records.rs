//! `put`, `get`, `delete`, `merge` and `scan`: single records, and records in key order.

use std::io::Write;
use std::ops::Bound;

use cleavedb::{Durability, Iter, KeyspaceKind, Result as EngineResult, Slice};

use crate::args::{Delete, Get, Merge, Put, Scan};
use crate::failure::{Failure, Result, SkippedKeys};
use crate::form::{Form, escaped};
use crate::open;
use crate::transfer::record::check_limits;

fn parse(form: Form, text: &str) -> Result<Vec<u8>> {
    form.parse(text).map_err(Failure::Usage)
}

/// Parses a key and checks its limits before a database is opened or created.
fn parse_key(form: Form, text: &str) -> Result<Vec<u8>> {
    let key = parse(form, text)?;
    check_limits(key.len(), 0).map_err(Failure::Usage)?;
    Ok(key)
}

fn durability(sync: bool) -> Durability {
    if sync { Durability::Sync } else { Durability::Buffered }
}

/// `cleave put`.
pub fn put(args: &Put) -> Result<()> {
    let key = parse_key(args.forms.key(), &args.key)?;
    let value = parse(args.forms.value(), &args.value)?;
    let db = open::existing_or_new(&args.place.database)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    keyspace.put_with(key, value, durability(args.sync))?;
    Ok(db.close()?)
}

/// `cleave get`.
pub fn get(args: &Get, out: &mut dyn Write) -> Result<()> {
    let key = parse_key(args.forms.key(), &args.key)?;
    let db = open::to_read(&args.place.database)?;
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
    let key = parse_key(args.forms.key(), &args.key)?;
    let db = open::to_write(&args.place.database)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    keyspace.delete_with(key, durability(args.sync))?;
    Ok(db.close()?)
}

/// `cleave merge`. It never creates a keyspace, because a new one would have no merge operator.
pub fn merge(args: &Merge) -> Result<()> {
    let key = parse_key(args.forms.key(), &args.key)?;
    let operand = parse(args.forms.value(), &args.operand)?;
    let db = open::to_write(&args.place.database)?;
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
        let message = "--from is after --to; --reverse changes the order, not the bounds";
        return Err(Failure::Usage(message.to_owned()));
    }
    let db = open::to_read(&args.place.database)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    let is_whole = prefix.is_none() && from.is_none() && to.is_none() && !args.reverse;
    if keyspace.kind() == KeyspaceKind::Hash && is_whole {
        let lines = keyspace
            .iter_unordered()?
            .map(|record| record.map(|(key, value)| (key, (!args.keys_only).then_some(value))));
        let mut skipped = SkippedKeys::default();
        let printed = print(args, lines.take(args.limit.unwrap_or(usize::MAX)), &mut skipped, out);
        return skipped.end(printed);
    }
    let records: Iter = match prefix {
        Some(prefix) => keyspace.prefix(prefix)?,
        None => keyspace
            .range((from.map_or(Bound::Unbounded, Bound::Included), to.map_or(Bound::Unbounded, Bound::Excluded)))?,
    };
    let lines: Lines = if args.keys_only {
        directed(records.keys().map(|key| key.map(|key| (key, None))), args.reverse)
    } else {
        directed(records.map(|record| record.map(|(key, value)| (key, Some(value)))), args.reverse)
    };
    let mut skipped = SkippedKeys::default();
    let printed = print(args, lines.take(args.limit.unwrap_or(usize::MAX)), &mut skipped, out);
    skipped.end(printed)
}

/// The output of a scan: keys, with values unless --keys-only is given.
type Lines = Box<dyn Iterator<Item = EngineResult<(Slice, Option<Slice>)>>>;

fn directed<I>(items: I, reverse: bool) -> Box<dyn Iterator<Item = I::Item>>
where
    I: DoubleEndedIterator + 'static,
{
    if reverse { Box::new(items.rev()) } else { Box::new(items) }
}

fn print(
    args: &Scan,
    lines: impl Iterator<Item = EngineResult<(Slice, Option<Slice>)>>,
    skipped: &mut SkippedKeys,
    out: &mut dyn Write,
) -> Result<()> {
    for line in lines {
        let Some((key, value)) = skipped.check(line)? else { continue };
        // Both are encoded before either is printed, so that an error never leaves a partial line.
        let name = args.forms.key().field(&key).map_err(Failure::Message)?;
        let value = value.map(|value| args.forms.value().field(&value)).transpose();
        match value.map_err(|error| Failure::new(format!("value of key \"{}\": {error}", escaped(&key))))? {
            Some(value) => writeln!(out, "{name}\t{value}")?,
            None => writeln!(out, "{name}")?,
        }
    }
    Ok(out.flush()?)
}
