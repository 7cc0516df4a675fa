//! Records as JSON lines: `{"key":"...","value":"..."}`, with `key_base64` or `value_base64` for bytes that are not UTF-8.
//! The form is described in docs/formats/export.md. Used by import, export and the tour.

use std::io::{self, BufRead, Read, Write};

use cleavedb::limits::{KEY_BYTES_MAX, VALUE_BYTES_LIMIT};
use data_encoding::BASE64;
use serde_json::{Map, Value};

use super::{Record, check_limits};

/// The longest line that a record within the limits can need: JSON writes a byte as six characters at worst.
const LINE_BYTES_MAX: u64 = 6 * (KEY_BYTES_MAX + VALUE_BYTES_LIMIT) as u64 + 64;

/// Reads records line by line. Empty lines are passed over.
pub struct Reader<R> {
    source: R,
    line: Vec<u8>,
    number: u64,
}

impl<R: BufRead> Reader<R> {
    /// Reads from `source`.
    pub fn new(source: R) -> Reader<R> {
        Reader { source, line: Vec::new(), number: 0 }
    }

    /// The next record, `None` at the end.
    ///
    /// # Errors
    /// A sentence that names the line.
    pub fn next(&mut self) -> Result<Option<Record>, String> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = self.source.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut self.line);
            let read = read.map_err(|error| format!("line {}: cannot read: {error}", self.number))?;
            if read == 0 {
                return Ok(None);
            }
            let line = self.line.trim_ascii();
            if !line.is_empty() {
                return parse(line).map(Some).map_err(|error| format!("line {}: {error}", self.number));
            }
        }
    }
}

/// The record that one line says.
///
/// # Errors
/// A sentence that says what is wrong with the line.
pub fn parse(line: &[u8]) -> Result<Record, String> {
    let mut fields: Map<String, Value> = serde_json::from_slice(line).map_err(|error| {
        // The parser always sees one line, so its own line number would only confuse.
        let (sentence, column) = (error.to_string(), error.column());
        let sentence = sentence.split(" at line").next().unwrap_or_default();
        format!("not a JSON object: {sentence} (column {column})")
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
        (None, None) => Err(format!("neither {name} nor {name_base64} is there")),
        (Some(_), Some(_)) => Err(format!("both {name} and {name_base64} are there")),
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
        Ok(text) => {
            write!(out, "\"{name}\":")?;
            Ok(serde_json::to_writer(out, text)?)
        }
        Err(_) => write!(out, "\"{name}_base64\":\"{}\"", BASE64.encode(bytes)),
    }
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
        assert_eq!(reader.next().unwrap_err(), "line 3: neither value nor value_base64 is there");
    }

    #[test]
    fn every_other_shape_is_refused_with_its_reason() {
        assert!(error("nonsense").starts_with("not a JSON object"));
        assert!(error("[1]").starts_with("not a JSON object"));
        assert!(error("{\"key\":\"a\",\"value\":\"b\"").starts_with("not a JSON object"));
        assert_eq!(error("{\"key\":1,\"value\":\"b\"}"), "key is not a string");
        assert_eq!(error("{\"key\":\"a\",\"value\":\"b\",\"x\":1}"), "unknown field \"x\"");
        assert!(error("{\"key\":\"a\",\"key_base64\":\"YQ==\",\"value\":\"b\"}").starts_with("both key"));
        assert!(error("{\"key\":\"\",\"value\":\"b\"}").starts_with("a key of 0 bytes"));
        assert!(error("{\"key_base64\":\"YQ\",\"value\":\"b\"}").starts_with("key_base64 is not base64"));
    }
}
