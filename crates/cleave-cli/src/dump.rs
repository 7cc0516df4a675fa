//! `cleave dump`: prints the content of a database file as text, one line per entry.

use std::io::{self, Write};

use cleavedb::DumpEntry;

use crate::args;
use crate::failure::{Failure, Result};
use crate::form::escaped;

/// `cleave dump`. A damaged file is printed up to the damage; the error then gives its offset.
pub fn run(args: &args::Dump, out: &mut dyn Write) -> Result<()> {
    if args.file.is_dir() {
        return Err(Failure::new(format!("{} is a directory; give one of its files", args.file.display())));
    }
    let mut left = args.limit.unwrap_or(u64::MAX);
    let mut written = Ok(());
    let dumped = cleavedb::dump(&args.file, &mut |entry| {
        if entry.version.is_some() || matches!(entry.what, "key" | "moved") {
            if left == 0 {
                return false;
            }
            left -= 1;
        }
        written = print(entry, args.values, out);
        written.is_ok()
    });
    written?;
    out.flush()?;
    dumped.map_err(Failure::Engine)
}

fn print(entry: &DumpEntry<'_>, values: bool, out: &mut dyn Write) -> io::Result<()> {
    write!(out, "{:>10}  {:<10}", entry.offset, entry.what)?;
    if !entry.text.is_empty() {
        write!(out, "  {}", entry.text)?;
    }
    if let Some(version) = &entry.version {
        let (kind, seqno, keyspace) = (version.kind, version.seqno, version.keyspace);
        let (key, value_len) = (escaped(version.key), version.value.len());
        write!(out, "  {kind} seqno {seqno} keyspace {keyspace} key \"{key}\" ({} B)", version.key.len())?;
        write!(out, " value {value_len} B")?;
        if values {
            write!(out, " \"{}\"", escaped(version.value))?;
        }
    }
    writeln!(out)
}
