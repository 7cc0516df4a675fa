//! Records as JSON lines: `{"key":"...","value":"..."}`, with `key_base64` or `value_base64` for bytes that are not UTF-8
//! (docs/formats/export.md). Used by import, ingest, export and the tour.

use std::fmt;
use std::io::{self, BufRead, Read, Write};

use cleavedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_LIMIT};
use data_encoding::BASE64;
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde_json::{Map, Value};

use super::record::{Record, check_limits};

/// Bytes of at least this length are written in the shorter encoding; shorter ones as text if they are UTF-8.
const LARGE_BYTES: usize = 1 << 20;
/// Length of the longest line that export writes, which bounds the memory for a line: a key with six characters per byte,
/// the largest value in base64, and the JSON around them.
const LINE_BYTES_MAX: u64 = 6 * KEY_BYTES_MAX as u64 + 4 * VALUE_BYTES_LIMIT.div_ceil(3) as u64 + 64;

/// Reads records line by line. Empty lines are skipped.
pub struct Reader<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
    line_bytes_max: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `source`.
    pub fn new(source: R) -> Reader<R> {
        Reader { source, line: Vec::new(), number: 0, line_bytes_max: LINE_BYTES_MAX }
    }

    /// The next record, `None` at the end.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.source.by_ref().take(self.line_bytes_max + 1).read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| format!("line {}: cannot read: {error}", self.number))?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 > self.line_bytes_max {
                let (number, max) = (self.number, self.line_bytes_max);
                return Err(format!("line {number}: longer than {max} bytes, more than any record needs in base64"));
            }
            let line = self.line.trim_ascii();
            if !line.is_empty() {
                return parse(line).map(Some).map_err(|error| format!("line {}: {error}", self.number));
            }
        }
    }

    /// The position of the last record.
    pub fn place(&self) -> String {
        format!("line {}", self.number)
    }
}

/// The fields of an object; duplicates are errors.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Fields, D::Error> {
        deserializer.deserialize_map(FieldsVisitor)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a key and a value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
        let mut fields = Map::new();
        while let Some(name) = map.next_key::<String>()? {
            let value = map.next_value()?;
            if fields.contains_key(&name) {
                return Err(A::Error::custom(format_args!("duplicate field {name:?}")));
            }
            fields.insert(name, value);
        }
        Ok(Fields(fields))
    }
}

/// Parses the record of one line.
///
/// # Errors
/// A sentence that says what is wrong with the line.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let Fields(mut fields) = serde_json::from_slice(line).map_err(|error| {
        // The parser sees only this line, so its own line number would be wrong.
        let (sentence, column) = (error.to_string(), error.column());
        let sentence = sentence.split(" at line").next().unwrap_or_default();
        format!("not a record in JSON: {sentence} (column {column})")
    })?;
    let (key, value) = (take(&mut fields, "key")?, take(&mut fields, "value")?);
    if let Some(name) = fields.keys().next() {
        return Err(format!("unknown field {name:?}"));
    }
    check_limits(key.len(), value.len())?;
    Ok((key, value))
}

fn take(fields: &mut Map<String, Value>, name: &str) -> Result<Vec<u8>, String> {
    let name_base64 = format!("{name}_base64");
    match (fields.remove(name), fields.remove(&name_base64)) {
        (Some(Value::String(text)), None) => Ok(text.into_bytes()),
        (None, Some(Value::String(text))) => {
            BASE64.decode(text.as_bytes()).map_err(|error| format!("{name_base64} is not base64: {error}"))
        }
        (None, None) => Err(format!("neither {name} nor {name_base64} is present")),
        (Some(_), Some(_)) => Err(format!("both {name} and {name_base64} are present")),
        _ => Err(format!("{name} is not a string")),
    }
}

/// Writes one record and the end of its line.
pub fn write(out: &mut dyn Write, key: &[u8], value: &[u8]) -> io::Result<()> {
    out.write_all(b"{")?;
    write_field(out, "key", key)?;
    out.write_all(b",")?;
    write_field(out, "value", value)?;
    out.write_all(b"}\n")
}

fn write_field(out: &mut dyn Write, name: &str, bytes: &[u8]) -> io::Result<()> {
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.len() < LARGE_BYTES || escaped_len(bytes) <= BASE64.encode_len(bytes.len()) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        _ => write!(out, "\"{name}_base64\":\"{}\"", BASE64.encode(bytes)),
    }
}

/// Length of a text as a JSON string without its quotes.
fn escaped_len(text: &[u8]) -> usize {
    let escaped = |&byte: &u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    };
    text.iter().map(escaped).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(line: &str) -> String {
        parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn lines_round_trip_whatever_the_bytes() {
        let records: Vec<Record> = vec![
            (b"plain".to_vec(), b"a \"quoted\"\nline\0".to_vec()),
            (vec![0xff, 0], "größe".into()),
            (b"k".into(), vec![]),
        ];
        let mut text = Vec::new();
        for (key, value) in &records {
            write(&mut text, key, value).unwrap();
        }
        assert_eq!(text.iter().filter(|&&byte| byte == b'\n').count(), 3);
        let mut reader = Reader::new(&text[..]);
        for record in records {
            assert_eq!(reader.next().unwrap(), Some(record));
        }
        assert_eq!(reader.next().unwrap(), None);
    }

    #[test]
    fn a_bad_line_is_named_by_number_counting_empty_ones() {
        let mut reader = Reader::new(&b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key\":\"b\"}\n"[..]);
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.next().unwrap_err(), "line 3: neither value nor value_base64 is present");
    }

    #[test]
    fn every_other_shape_is_refused_with_its_reason() {
        assert!(error("nonsense").starts_with("not a record in JSON"));
        assert!(error("[1]").starts_with("not a record in JSON"));
        assert!(error("{\"key\":\"a\",\"value\":\"b\"").starts_with("not a record in JSON"));
        let twice = error("{\"key\":\"a\",\"value\":\"b\",\"key\":\"a\"}");
        assert!(twice.contains("duplicate field \"key\""), "{twice}");
        assert_eq!(error("{\"key\":1,\"value\":\"b\"}"), "key is not a string");
        assert_eq!(error("{\"key\":\"a\",\"value\":\"b\",\"x\":1}"), "unknown field \"x\"");
        assert!(error("{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"b\"}").starts_with("both key"));
        assert!(error("{\"key\":\"\",\"value\":\"b\"}").starts_with("a key of 0 bytes"));
        assert!(error("{\"key_base64\":\"YQ\",\"value\":\"b\"}").starts_with("key_base64 is not base64"));
    }

    #[test]
    fn a_line_that_is_too_long_is_refused_before_all_of_it_is_read() {
        let line = |len: usize| format!("{{\"key\":\"a\",\"value\":\"{}\"}}\n", "v".repeat(len - 23));
        let text = line(100) + &line(101) + &line(100);
        let mut reader = Reader::new(text.as_bytes());
        reader.line_bytes_max = 100;
        assert!(reader.next().unwrap().is_some());
        assert_eq!(reader.next().unwrap_err(), "line 2: longer than 100 bytes, more than any record needs in base64");
        assert_eq!(reader.line.len(), 101);
    }

    #[test]
    fn large_text_that_is_mostly_escapes_is_written_in_base64_and_no_line_is_longer_than_is_read() {
        let mut text = Vec::new();
        let values = [vec![0; LARGE_BYTES], vec![b'"'; LARGE_BYTES], vec![b'a'; LARGE_BYTES], vec![0; LARGE_BYTES - 1]];
        for value in &values {
            write(&mut text, &[1; KEY_BYTES_MAX], value).unwrap();
            let longest = 6 * KEY_BYTES_MAX + 64 + BASE64.encode_len(value.len());
            let line = text.split(|&byte| byte == b'\n').rfind(|line| !line.is_empty()).unwrap();
            assert!(line.len() <= longest || value.len() < LARGE_BYTES);
        }
        let mut reader = Reader::new(&text[..]);
        for value in values {
            assert_eq!(reader.next().unwrap(), Some((vec![1; KEY_BYTES_MAX], value)));
        }
        assert!(6 * LARGE_BYTES < LINE_BYTES_MAX as usize / 2);
        assert_eq!(LINE_BYTES_MAX, 1_432_049_042, "docs/formats/export.md says so");
    }
}
