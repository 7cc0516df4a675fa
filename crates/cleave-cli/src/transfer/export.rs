//! `cleave export`: the records of a keyspace, as a snapshot sees them, into a file.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use cleavedb::{KeyspaceKind, Result as EngineResult, Slice};

use super::{binary, jsonl};
use crate::args::Export;
use crate::failure::{Failure, Result, SkippedKeys};
use crate::form::FileForm;
use crate::{open, progress};

/// `cleave export`.
pub fn export(args: &Export, stdout: &mut dyn Write) -> Result<()> {
    let start = Instant::now();
    let db = open::to_read(&args.place.database)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    let records: Records = match keyspace.kind() {
        KeyspaceKind::Ordered => Box::new(db.snapshot().iter(&keyspace)?),
        KeyspaceKind::Hash => Box::new(db.snapshot().iter_unordered(&keyspace)?),
    };
    let mut skipped = SkippedKeys::default();
    let written = if args.file == Path::new("-") {
        write_records(records, args.format, &mut skipped, stdout)
    } else {
        let file = File::create(&args.file).map_err(|error| Failure::file(&args.file, "create", &error))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = write_records(records, args.format, &mut skipped, &mut out);
        written.map_err(|failure| match failure {
            Failure::Output(error) => Failure::file(&args.file, "write", &error),
            other => Failure::new(format!("{other} ({} is incomplete)", args.file.display())),
        })
    };
    if let Ok(count) = written {
        progress::note(&progress::moved("exported", count, "of", keyspace.name(), start));
    }
    skipped.end(written).map(drop)
}

/// All records of a keyspace.
type Records = Box<dyn Iterator<Item = EngineResult<(Slice, Slice)>>>;

fn write_records(records: Records, form: FileForm, skipped: &mut SkippedKeys, out: &mut dyn Write) -> Result<u64> {
    let bar = progress::records_unbounded("exporting");
    if form == FileForm::Binary {
        out.write_all(&binary::MAGIC)?;
    }
    let mut count = 0;
    for record in records {
        let Some((key, value)) = skipped.check(record)? else { continue };
        match form {
            FileForm::Jsonl => jsonl::write(out, &key, &value)?,
            FileForm::Binary => binary::write(out, &key, &value)?,
        }
        count += 1;
        bar.inc(1);
    }
    out.flush()?;
    bar.finish_and_clear();
    Ok(count)
}
