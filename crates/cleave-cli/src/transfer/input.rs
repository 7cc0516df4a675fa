//! A file of records in either format, read one by one, with a progress bar. Used by import and ingest.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use indicatif::ProgressBar;

use super::record::Record;
use super::{binary, jsonl};
use crate::args::Source;
use crate::failure::{Failure, Result};
use crate::form::FileForm;
use crate::progress;

/// The records of a file in either format.
enum Records<R> {
    Jsonl(jsonl::Reader<R>),
    Binary(binary::Reader<R>),
}

impl<R: BufRead> Records<R> {
    /// Reads `source`; the first byte gives the format if `form` is `None`.
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

/// A file of records, or standard input, with a progress bar.
pub struct Input {
    name: String,
    /// The progress bar.
    pub bar: ProgressBar,
    records: Records<BufReader<Box<dyn Read>>>,
}

impl Input {
    /// Opens the file; `what` is the title of the bar.
    pub fn open(args: &Source, what: &'static str) -> Result<Input> {
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

    /// The next record. A failure names the file and the position in it.
    pub fn next(&mut self) -> Result<Option<Record>> {
        self.records.next().map_err(|error| Failure::new(format!("{}: {error}", self.name)))
    }

    /// The file and the position of the last record.
    pub fn place(&self) -> String {
        format!("{}: {}", self.name, self.records.place())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads up to the first error; returns the number of records.
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
            // The linear congruential generator of Knuth's MMIX.
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
