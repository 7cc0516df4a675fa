//! The records of a run: their keys and values, and which of them the store must contain. All clients share it.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::failure::{Failure, Result};
use crate::phase::Schedule;
use crate::plan::Shape;
use crate::presence::Presence;
use crate::source::Source;
use crate::workload::{Count, Operation, Workload};

/// The records of a run.
pub struct Dataset {
    /// Their keys and values.
    pub source: Source,
    /// The records that the store must contain.
    pub presence: Presence,
    /// Number of records at the start, without those inserted during the run.
    pub records: u64,
    /// The number of the next record to insert.
    pub next_new: AtomicU64,
    /// Every inserted record below this number was acknowledged, so operations may access it.
    pub acknowledged: AtomicU64,
    /// Records per scan, unless the workload defines it.
    pub scan_length: u64,
    /// The value of `--operations`.
    operations: Option<u64>,
    /// Bytes of keys and values of the present records.
    live_bytes: AtomicU64,
}

impl Dataset {
    /// The records of `schedule`, none of them present yet.
    ///
    /// # Errors
    /// If their file is missing or invalid, or their keys are too short to be distinct.
    pub fn new(shape: &Shape, schedule: &Schedule) -> Result<Dataset> {
        let source = Source::new(shape, &schedule.data)?;
        let records = source.records().unwrap_or(shape.records);
        let mut dataset = Dataset {
            presence: Presence::new(0),
            source,
            records,
            next_new: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
            scan_length: shape.scan_length,
            operations: shape.operations,
            live_bytes: AtomicU64::new(0),
        };
        // Every operation of a phase with inserts may insert a record.
        let inserting = schedule.phases.iter().filter(|phase| phase.workload.has(Operation::Insert));
        let inserted: u64 = inserting.map(|phase| dataset.operations(&phase.workload)).sum();
        let (records, most) = (records + inserted, dataset.source.first_unused());
        if records > most {
            return Err(Failure::new(format!(
                "{records} records need longer keys; with this --key-size there are {most}"
            )));
        }
        dataset.presence = Presence::new(records);
        Ok(dataset)
    }

    /// Operations of all clients of `workload` together.
    pub fn operations(&self, workload: &Workload) -> u64 {
        let drawn = match workload.operations {
            Count::About(numerator, denominator) => {
                self.operations.unwrap_or_else(|| (self.records * numerator / denominator).max(1))
            }
            Count::Records => self.records,
            Count::Once => 1,
        };
        self.source.trace().map_or(drawn, |trace| trace.events.len() as u64)
    }

    /// Notes an acknowledged write of `record`, whose key is `key`.
    pub fn written(&self, record: u64, key: &[u8]) {
        if self.presence.set(record) {
            self.live_bytes.fetch_add(self.bytes_of(record, key), Ordering::Relaxed);
        }
    }

    /// Notes that `record`, whose key is `key`, is about to be deleted.
    pub fn deleting(&self, record: u64, key: &[u8]) {
        if self.presence.clear(record) {
            self.live_bytes.fetch_sub(self.bytes_of(record, key), Ordering::Relaxed);
        }
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
        self.live_bytes.load(Ordering::Relaxed)
    }

    fn bytes_of(&self, record: u64, key: &[u8]) -> u64 {
        (key.len() + self.source.length(record, key)) as u64
    }
}
