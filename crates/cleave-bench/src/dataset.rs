//! The records of a run: their keys and values, and which of them the store must contain. All clients share it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Result;
use crate::plan::Shape;
use crate::presence::Presence;
use crate::source::Source;
use crate::workload::Workload;

/// The records of a run.
pub struct Dataset {
    /// Their keys and values.
    pub source: Source,
    /// The records that the store must contain.
    pub presence: Presence,
    /// Number of records at the start, without those inserted during the run.
    pub records: u64,
    /// Operations of all clients together.
    pub operations: u64,
    /// The number of the next record to insert.
    pub next_new: AtomicU64,
    /// Every inserted record below this number was acknowledged, so operations may access it.
    pub acknowledged: AtomicU64,
    /// Records per scan, unless the workload defines it.
    pub scan_length: u64,
}

impl Dataset {
    /// The records of `workload`, none of them present yet. Every operation may insert one.
    ///
    /// # Errors
    /// If their file is missing or invalid.
    pub fn new(shape: &Shape, workload: &Workload) -> Result<Dataset> {
        let source = Source::new(shape, workload)?;
        let records = source.records().unwrap_or(shape.records);
        let (numerator, denominator) = workload.operations;
        let drawn = shape.operations.unwrap_or_else(|| (records * numerator / denominator).max(1));
        let operations = source.trace().map_or(drawn, |trace| trace.events.len() as u64);
        Ok(Dataset {
            presence: Presence::new(records + operations),
            source,
            records,
            operations,
            next_new: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            scan_length: shape.scan_length,
        })
    }

    /// Advances `acknowledged` to the first inserted record that is not yet acknowledged.
    pub fn acknowledge(&self) {
        let mut next = self.acknowledged.load(Ordering::SeqCst);
        while next < self.next_new.load(Ordering::SeqCst) && self.presence.has(next) {
            match self.acknowledged.compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => next += 1,
                Err(moved) => next = moved,
            }
        }
    }

    /// Bytes of keys and values of the present records.
    pub fn live_bytes(&self) -> u64 {
        let mut key = Vec::new();
        let bytes = |record| {
            self.source.key(record, &mut key);
            (key.len() + self.source.length(record, &key)) as u64
        };
        self.presence.iter().map(bytes).sum()
    }
}
