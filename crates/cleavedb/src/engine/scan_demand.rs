//! What scans ask of the order of values. A scan that reads values from many places has just paid for it; it notes how
//! many bytes a better order would have spared, and where. Value reordering spends these bytes: it moves a value only
//! after scans have read as many scattered ones, so ranges that nobody scans stay as they are, and a store without scans
//! rewrites nothing for order (decision 038).
//!
//! Notes are hints: they are lost at a close, and a wrong one costs a move within the reorder credit, never an answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sched::sync::Mutex;

/// One scattered byte that was read pays for moving this many bytes: the read took at least as much longer.
const MOVED_PER_READ: u64 = 4;
/// A scan may read one place for this many values, and [`PLACES_FREE`] places in any case, without counting as
/// scattered: it reads them side by side, and merging a few sorted runs into one would spare little.
const VALUES_PER_PLACE: u64 = 8;
const PLACES_FREE: u64 = 8;
/// Keys of the last scattered fetches that are kept.
const PLACES_MAX: usize = 64;

/// The values that a scan fetched.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Fetched {
    /// Number of values.
    pub values: u64,
    /// Reads that it took.
    pub reads: u64,
    /// Bytes of their records.
    pub bytes: u64,
}

/// The demand for order since the store was opened.
#[derive(Default)]
pub(crate) struct ScanDemand {
    /// Bytes that may be moved for order.
    bytes: AtomicU64,
    /// The first key of the last scattered fetches.
    places: Mutex<VecDeque<Vec<u8>>>,
}

impl Fetched {
    /// Counts the values of another fetch; returns how many more bytes are scattered.
    pub fn add(&mut self, more: Fetched) -> u64 {
        let before = self.scattered_bytes();
        self.values += more.values;
        self.reads += more.reads;
        self.bytes += more.bytes;
        self.scattered_bytes().saturating_sub(before)
    }

    /// Bytes that were read from more places than a good order needs.
    fn scattered_bytes(self) -> u64 {
        let places = PLACES_FREE.max(self.values / VALUES_PER_PLACE);
        self.bytes / self.reads.max(1) * self.reads.saturating_sub(places)
    }
}

impl ScanDemand {
    /// Notes that a scan read `scattered` bytes from many places, from `key` on; true if the demand has reached another
    /// multiple of `step`.
    pub fn note(&self, key: &[u8], scattered: u64, step: u64) -> bool {
        let bytes = scattered.saturating_mul(MOVED_PER_READ);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut places = self.places.lock();
        if places.len() == PLACES_MAX {
            places.pop_front();
        }
        places.push_back(key.to_vec());
        before / step.max(1) < before.saturating_add(bytes) / step.max(1)
    }

    /// True if scans have asked for a move of `bytes`.
    pub fn covers(&self, bytes: u64) -> bool {
        self.bytes.load(Ordering::Relaxed) >= bytes.max(1)
    }

    /// Keys near which values were scattered, as often as they were; in order.
    pub fn places(&self) -> Vec<Vec<u8>> {
        let mut places: Vec<Vec<u8>> = self.places.lock().iter().cloned().collect();
        places.sort_unstable();
        places
    }

    /// Takes what a job has moved, or drops the demand if nothing can be moved for it.
    pub fn spend(&self, bytes: u64) {
        let rest = |demand: u64| Some(demand.saturating_sub(bytes));
        // The closure always returns a value.
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_values_from_many_places_are_scattered_and_each_counts_once() {
        let fetched = |values, reads| Fetched { values, reads, bytes: values * 1000 };
        for in_order in [fetched(0, 0), fetched(1, 1), fetched(8, 8), fetched(100, 12)] {
            assert_eq!(Fetched::default().add(in_order), 0, "{in_order:?}");
        }
        // 100 values by 100 reads, 12 of which an order by key might need as well.
        assert_eq!(Fetched::default().add(fetched(100, 100)), 88_000);
        let mut scan = Fetched::default();
        assert_eq!([1, 2, 3, 5, 8, 81].map(|values| scan.add(fetched(values, values))), [0, 0, 0, 3000, 8000, 77_000]);
    }

    #[test]
    fn the_demand_is_spent_once() {
        let demand = ScanDemand::default();
        assert!(!demand.covers(0) && demand.places().is_empty());
        assert!(demand.note(b"k", 87_000, 348_000));
        assert!(demand.covers(348_000) && !demand.covers(348_001));
        demand.spend(300_000);
        assert!(demand.covers(48_000) && !demand.covers(48_001));
        assert!(!demand.note(b"k", 7_000, 100_000) && demand.covers(76_000));
        demand.spend(u64::MAX);
        assert!(!demand.covers(0));
    }

    #[test]
    fn the_last_places_are_kept() {
        let demand = ScanDemand::default();
        for place in 0..3 * PLACES_MAX as u64 {
            assert!(demand.note(&place.to_be_bytes(), 1, 1));
        }
        let last = (2 * PLACES_MAX as u64..).take(PLACES_MAX).map(|place| place.to_be_bytes().to_vec());
        assert!(demand.places().into_iter().eq(last));
    }
}
