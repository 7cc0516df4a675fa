//! The records of a file, in memory: the output of `cleave export` (docs/formats/export.md; JSON lines or binary), or CSV
//! with a key and a value per row. The first byte of the file gives the format. Of a duplicate key the last value is kept.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::ops::Range;
use std::path::Path;

use cleavedb::limits::{KEY_BYTES_MAX, KEY_BYTES_MIN, VALUE_BYTES_LIMIT};
use data_encoding::BASE64;
use serde::Deserialize;
use xxhash_rust::xxh3::xxh3_128;

use crate::failure::{Failure, Result};

/// The magic number of an export in binary format.
const MAGIC: [u8; 8] = *b"\x89CLEAVE\x01";

/// Records in order of the first occurrence of their keys.
#[derive(Default)]
pub struct Records {
    bytes: Vec<u8>,
    places: Vec<Place>,
    by_key: HashMap<u128, usize>,
}

/// The position of a record in the bytes.
struct Place {
    key: Range<usize>,
    value: Range<usize>,
}

/// A line of an export.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    key: Option<String>,
    key_base64: Option<String>,
    value: Option<String>,
    value_base64: Option<String>,
}

impl Records {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// A sentence with the file, the line or offset, and the error.
    pub fn read(path: &Path) -> Result<Records> {
        let named = |error: String| Failure::new(format!("{}: {error}", path.display()));
        let file = File::open(path).map_err(|error| named(format!("cannot open: {error}")))?;
        Records::parse(BufReader::with_capacity(1 << 20, file)).map_err(named)
    }

    /// Reads records in any of the formats.
    ///
    /// # Errors
    /// A sentence with the line or offset and the error.
    pub fn parse(mut source: impl BufRead) -> Result<Records, String> {
        let mut records = Records::default();
        match source.fill_buf().map_err(|error| format!("cannot read: {error}"))?.first() {
            Some(&first) if first == MAGIC[0] => records.read_binary(source)?,
            Some(b'{') => records.read_lines(source)?,
            _ => records.read_csv(source)?,
        }
        match records.places.is_empty() {
            true => Err("it contains no record".to_owned()),
            false => Ok(records),
        }
    }

    /// Number of records.
    pub fn count(&self) -> u64 {
        self.places.len() as u64
    }

    /// The key of record `number`.
    pub fn key(&self, number: u64) -> &[u8] {
        &self.bytes[self.places[number as usize].key.clone()]
    }

    /// The value of record `number`.
    pub fn value(&self, number: u64) -> &[u8] {
        &self.bytes[self.places[number as usize].value.clone()]
    }

    /// The value of `key`.
    pub fn find(&self, key: &[u8]) -> Option<&[u8]> {
        self.by_key.get(&xxh3_128(key)).map(|&number| self.value(number as u64))
    }

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<(), String> {
        check_key(key)?;
        if value.len() >= VALUE_BYTES_LIMIT {
            return Err(format!("a value of {} bytes, but it must be shorter than {VALUE_BYTES_LIMIT}", value.len()));
        }
        let number = *self.by_key.entry(xxh3_128(key)).or_insert(self.places.len());
        if number == self.places.len() {
            let key = self.append(key);
            self.places.push(Place { key, value: 0..0 });
        }
        self.places[number].value = self.append(value);
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn read_lines(&mut self, source: impl BufRead) -> Result<(), String> {
        for (number, line) in source.split(b'\n').enumerate() {
            let at = |error: String| format!("line {}: {error}", number + 1);
            let line = line.map_err(|error| at(format!("cannot read: {error}")))?;
            if !line.trim_ascii().is_empty() {
                let Line { key, key_base64, value, value_base64 } =
                    serde_json::from_slice(&line).map_err(|error| at(format!("not a record: {error}")))?;
                let (key, value) = (bytes("key", key, key_base64), bytes("value", value, value_base64));
                self.add(&key.map_err(at)?, &value.map_err(at)?).map_err(at)?;
            }
        }
        Ok(())
    }

    fn read_binary(&mut self, mut source: impl BufRead) -> Result<(), String> {
        let mut offset = 0;
        if take(&mut source, &mut offset, 8)? != MAGIC {
            return Err("offset 0: an export of an unknown version".to_owned());
        }
        while !source.fill_buf().map_err(|error| format!("offset {offset}: cannot read: {error}"))?.is_empty() {
            let start = offset;
            let lengths = take(&mut source, &mut offset, 8)?;
            let length = |at: usize| lengths[at..at + 4].iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
            let (key, value) = (take(&mut source, &mut offset, length(0))?, take(&mut source, &mut offset, length(4))?);
            self.add(&key, &value).map_err(|error| format!("offset {start}: {error}"))?;
        }
        Ok(())
    }

    fn read_csv(&mut self, source: impl BufRead) -> Result<(), String> {
        let mut rows = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(source);
        let mut row = csv::ByteRecord::new();
        while rows.read_byte_record(&mut row).map_err(|error| error.to_string())? {
            let line = row.position().map_or(0, csv::Position::line);
            let fields: Vec<&[u8]> = row.iter().collect();
            match fields[..] {
                [b"key", b"value"] if self.places.is_empty() => {}
                [key, value] => self.add(key, value).map_err(|error| format!("line {line}: {error}"))?,
                _ => return Err(format!("line {line}: {} fields, expected a key and a value", fields.len())),
            }
        }
        Ok(())
    }
}

/// Checks the length of a key.
pub fn check_key(key: &[u8]) -> Result<(), String> {
    match (KEY_BYTES_MIN..=KEY_BYTES_MAX).contains(&key.len()) {
        true => Ok(()),
        false => Err(format!("a key of {} bytes, but {KEY_BYTES_MIN} to {KEY_BYTES_MAX} are allowed", key.len())),
    }
}

/// The bytes of the field `what` of a line, given as text or in base64.
fn bytes(what: &str, text: Option<String>, base64: Option<String>) -> Result<Vec<u8>, String> {
    match (text, base64) {
        (Some(text), None) => Ok(text.into_bytes()),
        (None, Some(text)) => {
            BASE64.decode(text.as_bytes()).map_err(|error| format!("{what}_base64 is not base64: {error}"))
        }
        _ => Err(format!("either {what} or {what}_base64 must be present")),
    }
}

/// Reads `length` bytes. Memory grows with the bytes present in the file, not with a damaged length.
fn take(source: &mut impl BufRead, offset: &mut u64, length: u64) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = source.take(length).read_to_end(&mut bytes);
    match read.map_err(|error| format!("offset {offset}: cannot read: {error}"))? as u64 == length {
        true => *offset += length,
        false => return Err(format!("offset {offset}: the file ends in the middle of a record")),
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

    fn parse(text: &[u8]) -> Result<Pairs, String> {
        let records = Records::parse(text)?;
        let pair = |number| (records.key(number).to_vec(), records.value(number).to_vec());
        (0..records.count())
            .for_each(|number| assert_eq!(records.find(records.key(number)), Some(records.value(number))));
        Ok((0..records.count()).map(pair).collect())
    }

    fn pairs(pairs: &[(&[u8], &[u8])]) -> Pairs {
        pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }

    #[test]
    fn every_format_is_detected_by_its_first_byte() {
        let lines = b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key_base64\":\"/wA=\",\"value_base64\":\"\"}\n";
        assert_eq!(parse(lines), Ok(pairs(&[(b"a", b"1"), (b"\xff\0", b"")])));
        let binary = b"\x89CLEAVE\x01\x01\0\0\0\x02\0\0\0kv1\x02\0\0\0\0\0\0\0kk";
        assert_eq!(parse(binary), Ok(pairs(&[(b"k", b"v1"), (b"kk", b"")])));
        assert_eq!(parse(b"key,value\na,1\n\"b,\"\"\",\"2\n3\"\n"), Ok(pairs(&[(b"a", b"1"), (b"b,\"", b"2\n3")])));
        assert_eq!(parse(b"a,1\n"), Ok(pairs(&[(b"a", b"1")])));
    }

    #[test]
    fn the_last_value_of_a_duplicate_key_is_kept() {
        assert_eq!(parse(b"a,1\nb,2\na,3\n"), Ok(pairs(&[(b"a", b"3"), (b"b", b"2")])));
    }

    #[test]
    fn errors_name_the_line_or_offset() {
        let error = |text: &[u8]| parse(text).unwrap_err();
        assert!(error(b"a,1\nb\n").starts_with("line 2: 1 fields"));
        assert!(error(b"a,1\n,2\n").starts_with("line 2: a key of 0 bytes"));
        assert!(error(b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\"}\n").starts_with("line 3: either value"));
        assert!(error(b"{\"key\":\"a\",\"value\":\"1\",\"x\":1}").starts_with("line 1: not a record"));
        assert!(error(b"\x89CLEAVE\x02").starts_with("offset 0"));
        assert!(error(b"\x89CLEAVE\x01\x01\0\0\0\x02\0\0\0kv").starts_with("offset 17"));
        assert!(error(b"").contains("no record"));
    }
}
