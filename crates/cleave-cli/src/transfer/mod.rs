//! `import`, `ingest` and `export`: whole keyspaces from and to files, in the forms of docs/formats/export.md.

mod record;
pub mod jsonl;
pub mod binary;
mod ingest;

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::time::Instant;

use clap::ValueEnum;
use cleavedb::{Db, Iter, Keyspace, KeyspaceKind, WriteBatch};
use indicatif::{HumanCount, ProgressBar};

use crate::args::{Export, Import, Separation, Source};
use crate::failure::{Failure, LeftOut, Result};
use crate::{open, progress};

pub use ingest::ingest;
pub use record::{Record, check_limits};

/// The form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileForm {
    /// One JSON object a line, base64 where bytes are not UTF-8
    Jsonl,
    /// Lengths and bytes
    Binary,
}

/// Collects records and writes them in batches: one log append for many records, but no batch of unbounded size.
pub struct Batches<'a> {
    db: &'a Db,
    keyspace: &'a Keyspace,
    batch: WriteBatch,
    bytes: usize,
}

impl<'a> Batches<'a> {
    const RECORDS_MAX: usize = 1000;
    const BYTES_MAX: usize = 1 << 20;

    /// Writes to `keyspace` of `db`.
    pub fn new(db: &'a Db, keyspace: &'a Keyspace) -> Batches<'a> {
        Batches { db, keyspace, batch: WriteBatch::new(), bytes: 0 }
    }

    /// Adds a put, and writes the batch if it is large enough.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.put(self.keyspace, key, value);
        self.bytes += key.len() + value.len();
        if self.batch.len() >= Self::RECORDS_MAX || self.bytes >= Self::BYTES_MAX { self.write() } else { Ok(()) }
    }

    /// Writes what is left.
    pub fn write(&mut self) -> Result<()> {
        self.bytes = 0;
        Ok(self.db.write(std::mem::replace(&mut self.batch, WriteBatch::new()))?)
    }
}

/// The records of a file in either form.
enum Records<R> {
    Jsonl(jsonl::Reader<R>),
    Binary(binary::Reader<R>),
}

impl<R: BufRead> Records<R> {
    /// Reads `source`, looking at its first byte if the form is not given.
    fn new(mut source: R, form: Option<FileForm>) -> Result<Records<R>, String> {
        let form = match form {
            Some(form) => form,
            None => match source.fill_buf().map_err(|error| format!("cannot read: {error}"))?.first() {
                Some(&first) if first == binary::MAGIC[0] => FileForm::Binary,
                _ => FileForm::Jsonl,
            },
        };
        match form {
            FileForm::Jsonl => Ok(Records::Jsonl(jsonl::Reader::new(source))),
            FileForm::Binary => Ok(Records::Binary(binary::Reader::new(source)?)),
        }
    }

    fn next(&mut self) -> Result<Option<Record>, String> {
        match self {
            Records::Jsonl(reader) => reader.next(),
            Records::Binary(reader) => reader.next(),
        }
    }

    fn place(&self) -> String {
        match self {
            Records::Jsonl(reader) => reader.place(),
            Records::Binary(reader) => reader.place(),
        }
    }
}

/// A file of records, or standard input, and a bar that shows how far it is read.
struct Input {
    name: String,
    bar: ProgressBar,
    records: Records<BufReader<Box<dyn Read>>>,
}

impl Input {
    fn open(args: &Source, what: &'static str) -> Result<Input> {
        let (name, source, len): (String, Box<dyn Read>, Option<u64>) = if args.file == Path::new("-") {
            ("standard input".into(), Box::new(io::stdin().lock()), None)
        } else {
            let file = File::open(&args.file).map_err(|error| Failure::file(&args.file, "open", &error))?;
            let len = file.metadata().ok().filter(|metadata| metadata.is_file()).map(|metadata| metadata.len());
            (args.file.display().to_string(), Box::new(file), len)
        };
        let bar = progress::bytes(what, len);
        let source: Box<dyn Read> = Box::new(bar.wrap_read(source));
        let records = Records::new(BufReader::with_capacity(1 << 20, source), args.format);
        let records = records.map_err(|error| Failure::new(format!("{name}: {error}")))?;
        Ok(Input { name, bar, records })
    }

    /// The next record. A failure names the file and the place in it.
    fn next(&mut self) -> Result<Option<Record>> {
        self.records.next().map_err(|error| Failure::new(format!("{}: {error}", self.name)))
    }

    /// Where the record that came last stands.
    fn place(&self) -> String {
        format!("{}: {}", self.name, self.records.place())
    }
}

/// `cleave import`. Records before a bad one are kept, and the error says how many they are.
pub fn import(args: &Import) -> Result<()> {
    let start = Instant::now();
    let mut input = Input::open(&args.source, "importing")?;
    let db = open::existing_or_new(&args.place.database)?;
    let keyspace = db.keyspace(&args.place.keyspace)?;
    if let Some(Separation(bytes)) = args.separation {
        keyspace.set_separation(bytes)?;
    }
    let mut batches = Batches::new(&db, &keyspace);
    let mut count = 0u64;
    let outcome = loop {
        match input.next() {
            Ok(Some((key, value))) => batches.put(&key, &value)?,
            Ok(None) => break Ok(()),
            Err(failure) => break Err(failure),
        }
        count += 1;
    };
    batches.write()?;
    db.close()?;
    input.bar.finish_and_clear();
    outcome
        .map_err(|failure| Failure::new(format!("{failure} (records before it, imported: {})", HumanCount(count))))?;
    progress::note(&moved("imported", count, "into", &keyspace, start));
    Ok(())
}

/// "imported 5 records into keyspace \"default\" in 0.01 s"
fn moved(did: &str, count: u64, whither: &str, keyspace: &Keyspace, start: Instant) -> String {
    let (count, name, seconds) = (HumanCount(count), keyspace.name(), start.elapsed().as_secs_f64());
    format!("{did} {count} records {whither} keyspace {name:?} in {seconds:.2} s")
}

/// `cleave export`: what a snapshot taken now sees.
pub fn export(args: &Export, stdout: &mut dyn Write) -> Result<()> {
    let start = Instant::now();
    let db = open::to_read(&args.place.database)?;
    let keyspace = db.open_keyspace(&args.place.keyspace)?;
    let records = match keyspace.kind() {
        KeyspaceKind::Ordered => db.snapshot().iter(&keyspace)?,
    };
    let mut left_out = LeftOut::default();
    let written = if args.file == Path::new("-") {
        write_records(records, args.format, &mut left_out, stdout)
    } else {
        let file = File::create(&args.file).map_err(|error| Failure::file(&args.file, "create", &error))?;
        let mut out = BufWriter::with_capacity(1 << 20, file);
        let written = write_records(records, args.format, &mut left_out, &mut out);
        written.map_err(|failure| match failure {
            Failure::Output(error) => Failure::file(&args.file, "write", &error),
            other => Failure::new(format!("{other} ({} is incomplete)", args.file.display())),
        })
    };
    if let Ok(count) = written {
        progress::note(&moved("exported", count, "of", &keyspace, start));
    }
    left_out.end(written).map(drop)
}

fn write_records(records: Iter, form: FileForm, left_out: &mut LeftOut, out: &mut dyn Write) -> Result<u64> {
    let bar = progress::records_unbounded("exporting");
    if form == FileForm::Binary {
        out.write_all(&binary::MAGIC)?;
    }
    let mut count = 0;
    for record in records {
        let Some((key, value)) = left_out.sift(record)? else { continue };
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads whatever is there; says how many records that were.
    fn read_all(bytes: &[u8], form: Option<FileForm>) -> usize {
        let Ok(mut records) = Records::new(bytes, form) else { return 0 };
        let mut count = 0;
        while let Ok(Some(_)) = records.next() {
            count += 1;
        }
        count
    }

    #[test]
    fn damaged_exports_are_errors_and_nothing_worse() {
        let mut binary_file = binary::MAGIC.to_vec();
        let mut jsonl_file = Vec::new();
        for number in 0..20_u8 {
            binary::write(&mut binary_file, &[number; 5], &vec![number; number as usize]).unwrap();
            jsonl::write(&mut jsonl_file, &[b'a' + number, number * 13], b"value").unwrap();
        }
        for file in [binary_file, jsonl_file] {
            assert_eq!(read_all(&file, None), 20);
            // A seed of our own: the sequence of Knuth's MMIX.
            let mut state = 1_u64;
            let mut draw = |below: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % below
            };
            for _ in 0..3000 {
                let mut bytes = file.clone();
                for _ in 0..=draw(3) {
                    let at = draw(bytes.len());
                    bytes[at] = draw(256) as u8;
                }
                bytes.truncate(1 + draw(file.len()));
                for form in [None, Some(FileForm::Jsonl), Some(FileForm::Binary)] {
                    assert!(read_all(&bytes, form) <= 40);
                }
            }
        }
    }
}
