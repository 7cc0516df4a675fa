//! The source of the records of a run: generated from their numbers, read from a file, or listed by a trace. It gives clients
//! and the loader keys and values, and verifies the values that they read.

use xxhash_rust::xxh3::xxh3_64;

use crate::failure::{Failure, Result};
use crate::keys::{Keys, keys_max};
use crate::plan::Shape;
use crate::records::Records;
use crate::rng::Rng;
use crate::size::Lengths;
use crate::trace::Trace;
use crate::values::Values;
use crate::workload::{Operation, Origin, Workload};

/// The data set of the tour: 34,006 cities.
const CITIES: &str = include_str!("../../../data/cities.jsonl");

/// A record number above those of every workload, so no workload writes it.
const UNUSED_RECORDS: u64 = 1 << 40;

/// Keys and values by record number.
pub struct Source {
    values: Values,
    from: From,
}

enum From {
    /// Any number of records.
    Numbers { keys: Keys, lengths: Lengths },
    /// Updates write the record's value again, which preserves the sizes and the compressibility of the file.
    File(Records),
    /// Each write has its own value length; `lengths` are the final ones.
    Trace { trace: Trace, lengths: Vec<usize> },
}

impl Source {
    /// The records of `workload`.
    ///
    /// # Errors
    /// If its file is missing or invalid.
    pub fn new(shape: &Shape, workload: &Workload) -> Result<Source> {
        let input = || {
            let missing = || Failure::new(format!("workload {} needs --input FILE", workload.name));
            shape.input.as_deref().ok_or_else(missing)
        };
        let from = match workload.origin {
            Origin::Numbers => return Ok(Source::of_numbers(shape, workload)),
            Origin::Cities => From::File(Records::parse(CITIES.as_bytes()).map_err(Failure::new)?),
            Origin::Input => From::File(Records::read(input()?)?),
            Origin::Trace => {
                let mut trace = Trace::read(input()?)?;
                trace.events.truncate(shape.operations.map_or(usize::MAX, |most| most as usize));
                let lengths = trace.lengths();
                From::Trace { trace, lengths }
            }
        };
        Ok(Source { values: Values::of(shape), from })
    }

    /// Records generated from their numbers, with the sizes of `workload` or of the options.
    pub fn of_numbers(shape: &Shape, workload: &Workload) -> Source {
        let (key_lengths, lengths) = workload.lengths.unwrap_or((shape.key_size, shape.value_size));
        let keys = Keys { order: workload.order, lengths: key_lengths };
        Source { values: Values::of(shape), from: From::Numbers { keys, lengths } }
    }

    /// The number of the first record that no run has: beyond all others, and with a key of its own.
    pub fn first_unused(&self) -> u64 {
        let keys = match &self.from {
            From::Numbers { keys, .. } => keys_max(keys.lengths.shortest()),
            From::File(_) | From::Trace { .. } => None,
        };
        keys.map_or(UNUSED_RECORDS, |keys| UNUSED_RECORDS.min(keys / 2))
    }

    /// Number of records; none if unlimited.
    pub fn records(&self) -> Option<u64> {
        match &self.from {
            From::Numbers { .. } => None,
            From::File(records) => Some(records.count()),
            From::Trace { trace, .. } => Some(trace.keys()),
        }
    }

    /// The trace, if it is one.
    pub fn trace(&self) -> Option<&Trace> {
        match &self.from {
            From::Trace { trace, .. } => Some(trace),
            From::Numbers { .. } | From::File(_) => None,
        }
    }

    /// Replaces the content of `key` with the key of `record`.
    pub fn key(&self, record: u64, key: &mut Vec<u8>) {
        let given = match &self.from {
            From::Numbers { keys, .. } => return keys.write(record, key),
            From::File(records) => records.key(record),
            From::Trace { trace, .. } => trace.key(record),
        };
        key.clear();
        key.extend_from_slice(given);
    }

    /// The default length of the value of `record`, whose key is `key`.
    pub fn length(&self, record: u64, key: &[u8]) -> usize {
        match &self.from {
            From::Numbers { lengths, .. } => length_of(lengths, key),
            From::File(records) => records.value(record).len(),
            From::Trace { lengths, .. } => lengths[record as usize],
        }
    }

    /// Replaces the content of `value` with a new value for `record` of `length` bytes.
    pub fn value(&self, record: u64, key: &[u8], length: usize, rng: &mut Rng, value: &mut Vec<u8>) {
        match &self.from {
            From::File(records) => {
                value.clear();
                value.extend_from_slice(records.value(record));
            }
            From::Numbers { .. } | From::Trace { .. } => self.values.write(key, length, rng, value),
        }
    }

    /// Changes one field of `value`, which is a value of `key`.
    pub fn change(&self, key: &[u8], rng: &mut Rng, value: &mut [u8]) {
        match &self.from {
            From::File(_) => {}
            From::Numbers { .. } | From::Trace { .. } => self.values.change(key, rng, value),
        }
    }

    /// Writes an operand that patches a value of `length` bytes or, unless `exists`, creates it.
    pub fn operand(&self, key: &[u8], length: usize, exists: bool, rng: &mut Rng, operand: &mut Vec<u8>) {
        match exists {
            true => self.values.operand(key, length, rng, operand),
            false => self.values.first_operand(key, length, rng, operand),
        }
    }

    /// Whether `value` is valid for `key`.
    pub fn check(&self, key: &[u8], value: &[u8]) -> bool {
        match &self.from {
            From::Numbers { lengths, .. } => length_of(lengths, key) == value.len() && self.values.check(key, value),
            From::File(records) => records.find(key) == Some(value),
            From::Trace { .. } => self.values.check(key, value),
        }
    }

    /// The mean lengths of keys and of values.
    pub fn mean_lengths(&self) -> (usize, usize) {
        let mean = |sum: usize, count: usize| sum.checked_div(count).unwrap_or(0);
        match &self.from {
            From::Numbers { keys, lengths } => (keys.lengths.mean(), lengths.mean()),
            From::File(records) => {
                let sum = |length: &dyn Fn(u64) -> usize| (0..records.count()).map(length).sum();
                let count = records.count() as usize;
                (mean(sum(&|n| records.key(n).len()), count), mean(sum(&|n| records.value(n).len()), count))
            }
            From::Trace { trace, .. } => {
                let keys = trace.events.iter().map(|event| trace.key(event.record).len()).sum();
                let writes = trace.events.iter().filter(|event| event.operation == Operation::Update);
                (mean(keys, trace.events.len()), mean(writes.clone().map(|event| event.length).sum(), writes.count()))
            }
        }
    }
}

/// The length of a key's values, which never changes.
fn length_of(lengths: &Lengths, key: &[u8]) -> usize {
    match lengths {
        Lengths::Fixed(length) => *length,
        _ => lengths.of(xxh3_64(key)),
    }
}
