//! Recorded operations to replay, in CSV with one operation per row: `time,op,key,value_size`.
//!
//! `time` is in seconds, with decimals, and never decreases. `op` is get (or read), put (set, update, insert, write), delete
//! (del), merge or scan. `value_size` is the length of the value that a put writes, or that a merge creates if the key has
//! none (otherwise a merge patches one field); for a scan it is the number of records and optional. Traces contain no
//! values; these are generated from the keys. A first row with these four names is skipped.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use cleavedb::limits::VALUE_BYTES_LIMIT;
use csv::ByteRecord;

use crate::failure::{Failure, Result};
use crate::records::check_key;
use crate::workload::Operation;

/// The optional header row.
const TITLES: [&[u8]; 4] = [b"time", b"op", b"key", b"value_size"];

/// One operation of a trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Event {
    /// Time since the first operation.
    pub at: Duration,
    /// The operation.
    pub operation: Operation,
    /// The number of its key, in order of first occurrence.
    pub record: u64,
    /// Length of the key's value after it (for a scan: records to read, 0 if not given).
    pub length: usize,
}

/// Operations in the order of the file.
#[derive(Debug)]
pub struct Trace {
    /// The operations.
    pub events: Vec<Event>,
    keys: Vec<Box<[u8]>>,
}

impl Trace {
    /// Reads the file `path`.
    ///
    /// # Errors
    /// A sentence with the file, the line and the error.
    pub fn read(path: &Path) -> Result<Trace> {
        let named = |error: String| Failure::new(format!("{}: {error}", path.display()));
        Trace::parse(File::open(path).map_err(|error| named(format!("cannot open: {error}")))?).map_err(named)
    }

    /// Reads a trace.
    ///
    /// # Errors
    /// A sentence with the line and the error.
    pub fn parse(source: impl Read) -> Result<Trace, String> {
        let mut rows = csv::ReaderBuilder::new().has_headers(false).flexible(true).from_reader(source);
        let (mut row, mut parser, mut first_row) = (ByteRecord::new(), Parser::default(), true);
        while rows.read_byte_record(&mut row).map_err(|error| error.to_string())? {
            let line = row.position().map_or(0, csv::Position::line);
            if !std::mem::take(&mut first_row) || !row.iter().eq(TITLES) {
                parser.event(&row).map_err(|error| format!("line {line}: {error}"))?;
            }
        }
        let Parser { events, keys, .. } = parser;
        match events.is_empty() {
            true => Err("it contains no operation".to_owned()),
            false => Ok(Trace { events, keys }),
        }
    }

    /// Number of keys.
    pub fn keys(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Key `record`.
    pub fn key(&self, record: u64) -> &[u8] {
        &self.keys[record as usize]
    }

    /// The operations of one of `clients`, with their positions in the trace. All operations on a key belong to one
    /// client, so that they keep their order.
    pub fn of_client(&self, client: u64, clients: u64) -> impl Iterator<Item = (u64, &Event)> {
        let events = self.events.iter().enumerate().filter(move |(_, event)| event.record % clients == client);
        events.map(|(position, event)| (position as u64, event))
    }

    /// The final length of each key's value.
    pub fn lengths(&self) -> Vec<usize> {
        let mut lengths = vec![0; self.keys.len()];
        for event in &self.events {
            if let Operation::Update | Operation::Merge = event.operation {
                lengths[event.record as usize] = event.length;
            }
        }
        lengths
    }
}

/// The state of the parser.
#[derive(Default)]
struct Parser {
    events: Vec<Event>,
    keys: Vec<Box<[u8]>>,
    records: HashMap<Box<[u8]>, u64>,
    /// The length of each key's value; none if the key has no value.
    lengths: Vec<Option<usize>>,
    first: Option<f64>,
    last: f64,
}

impl Parser {
    fn event(&mut self, row: &ByteRecord) -> Result<(), String> {
        let fields: Vec<&[u8]> = row.iter().map(<[u8]>::trim_ascii).collect();
        let (time, op, key, size) = match fields[..] {
            [time, op, key] => (time, op, key, &b""[..]),
            [time, op, key, size] => (time, op, key, size),
            _ => return Err(format!("{} fields, expected time,op,key,value_size", fields.len())),
        };
        let at = self.time(time)?;
        let operation = operation(op)?;
        let size = match size {
            b"" => None,
            text => Some(number::<usize>(text).ok_or_else(|| format!("value_size {:?} is not a number", lossy(text)))?),
        };
        let record = self.record(key)?;
        let length = self.length(operation, record, size)?;
        self.events.push(Event { at, operation, record, length });
        Ok(())
    }

    fn time(&mut self, text: &[u8]) -> Result<Duration, String> {
        let seconds = number::<f64>(text).filter(|seconds| seconds.is_finite());
        let seconds = seconds.ok_or_else(|| format!("time {:?} is not a number of seconds", lossy(text)))?;
        let first = *self.first.get_or_insert(seconds);
        if self.events.is_empty() {
            self.last = first;
        }
        if seconds < self.last {
            return Err(format!("time decreases from {} to {seconds}", self.last));
        }
        self.last = seconds;
        Duration::try_from_secs_f64(seconds - first).map_err(|error| format!("time {seconds}: {error}"))
    }

    fn record(&mut self, key: &[u8]) -> Result<u64, String> {
        check_key(key)?;
        if let Some(&record) = self.records.get(key) {
            return Ok(record);
        }
        let record = self.keys.len() as u64;
        self.records.insert(key.into(), record);
        self.keys.push(key.into());
        self.lengths.push(None);
        Ok(record)
    }

    /// Tracks the length of the key's value.
    fn length(&mut self, operation: Operation, record: u64, size: Option<usize>) -> Result<usize, String> {
        let length = &mut self.lengths[record as usize];
        match operation {
            Operation::Merge if length.is_some() => {}
            Operation::Update | Operation::Merge => {
                let size = size.filter(|&size| size < VALUE_BYTES_LIMIT);
                *length = Some(size.ok_or_else(|| format!("a value_size below {VALUE_BYTES_LIMIT} is missing"))?);
            }
            Operation::Delete => *length = None,
            Operation::Scan => return Ok(size.unwrap_or(0)),
            _ => {}
        }
        Ok(length.unwrap_or(0))
    }
}

fn operation(op: &[u8]) -> Result<Operation, String> {
    Ok(match op.to_ascii_lowercase().as_slice() {
        b"get" | b"read" => Operation::Read,
        b"put" | b"set" | b"update" | b"insert" | b"write" => Operation::Update,
        b"delete" | b"del" => Operation::Delete,
        b"merge" => Operation::Merge,
        b"scan" => Operation::Scan,
        _ => return Err(format!("op {:?} is not one of get, put, delete, merge, scan", lossy(op))),
    })
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"time,op,key,value_size
10.5,get,a,
10.5,SET,a,100
10.75,merge,a,7
11,del,a
11,merge,a,7
12,scan,b,20
12,put,b,0
";

    #[test]
    fn operations_keep_order_time_and_the_length_of_their_value() {
        let trace = Trace::parse(TEXT).unwrap();
        let seen: Vec<_> =
            trace.events.iter().map(|event| (event.operation.name(), event.record, event.length)).collect();
        assert_eq!(
            seen,
            [
                ("read", 0, 0),
                ("update", 0, 100),
                ("merge", 0, 100),
                ("delete", 0, 0),
                ("merge", 0, 7),
                ("scan", 1, 20),
                ("update", 1, 0)
            ]
        );
        assert_eq!(trace.events[2].at, Duration::from_millis(250));
        assert_eq!((trace.keys(), trace.key(1), trace.lengths()), (2, &b"b"[..], vec![7, 0]));
        assert_eq!(trace.of_client(1, 2).map(|(position, _)| position).collect::<Vec<_>>(), [5, 6]);
    }

    #[test]
    fn a_bad_row_is_named_by_its_line() {
        let error = |text: &str| Trace::parse(text.as_bytes()).unwrap_err();
        assert_eq!(error("0,get,a\n1,fetch,a\n"), "line 2: op \"fetch\" is not one of get, put, delete, merge, scan");
        assert_eq!(error("1,get,a\n0.5,get,a\n"), "line 2: time decreases from 1 to 0.5");
        assert!(error("time,op,key,value_size\nx,get,a\n").starts_with("line 2: time \"x\""));
        assert!(error("0,put,a\n").starts_with("line 1: a value_size"));
        assert!(error("0,put,a,-1\n").starts_with("line 1: value_size \"-1\""));
        assert!(error("0,put,,1\n").starts_with("line 1: a key of 0 bytes"));
        assert!(error("0,put\n").starts_with("line 1: 2 fields"));
        assert!(error("time,op,key,value_size\n").contains("no operation"));
    }
}
