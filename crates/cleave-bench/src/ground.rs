//! The records of a run: what they look like, and which of them the store must have by now. All clients share it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::Result;
use crate::plan::Shape;
use crate::presence::Presence;
use crate::source::Source;
use crate::workload::Workload;

/// The records of a run.
pub struct Ground {
    /// Their keys and values.
    pub source: Source,
    /// Records that the store must have.
    pub presence: Presence,
    /// Records that operations fall on, without the ones inserted during the run.
    pub records: u64,
    /// How many operations clients do between them.
    pub operations: u64,
    /// The number of the next record to insert.
    pub next_new: AtomicU64,
    /// Every inserted record below this number was acknowledged; operations may fall on it.
    pub acknowledged: AtomicU64,
    /// How many records a scan reads if the workload does not say.
    pub scan_length: u64,
}

impl Ground {
    /// The records that `workload` works on; none of them is there yet. Every operation may insert one.
    ///
    /// # Errors
    /// If the file that they come from is missing or wrong.
    pub fn new(shape: &Shape, workload: &Workload) -> Result<Ground> {
        let source = Source::new(shape, workload)?;
        let records = source.records().unwrap_or(shape.records);
        let (numerator, denominator) = workload.operations;
        let drawn = shape.operations.unwrap_or_else(|| (records * numerator / denominator).max(1));
        let operations = source.trace().map_or(drawn, |trace| trace.events.len() as u64);
        Ok(Ground {
            presence: Presence::new(records + operations),
            source,
            records,
            operations,
            next_new: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            scan_length: shape.scan_length,
        })
    }

    /// Counts on over the inserted records that are there, up to the first that another client has yet to write.
    pub fn acknowledge(&self) {
        let mut next = self.acknowledged.load(Ordering::SeqCst);
        while next < self.next_new.load(Ordering::SeqCst) && self.presence.has(next) {
            match self.acknowledged.compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => next += 1,
                Err(moved) => next = moved,
            }
        }
    }

    /// Bytes of keys and values of the records that are there.
    pub fn live_bytes(&self) -> u64 {
        let mut key = Vec::new();
        let bytes = |record| {
            self.source.key(record, &mut key);
            (key.len() + self.source.length(record, &key)) as u64
        };
        self.presence.iter().map(bytes).sum()
    }
}
