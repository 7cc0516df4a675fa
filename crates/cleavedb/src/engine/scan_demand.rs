//! What scans ask of the order of values. A scan that reads values from many places has just paid for it; it notes how
//! many bytes lay elsewhere than a better order would have them, and where. Value reordering spends these bytes: a job
//! begins once scans have read a 32nd of the bytes that it moves from scattered places, so a store without scans rewrites
//! nothing for order (decisions 037 and 060).
//!
//! Notes are hints: they are lost at a close, and a wrong one costs a move within the reorder credit, never an answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::base::FileId;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;

/// One scattered byte that was read pays for moving this many bytes. A job reads and writes in one sweep, at the speed of the
/// device; a scattered value costs an I/O of its own, in which the device moves this much more.
const MOVED_PER_READ: u64 = 32;
/// A scattered value counts at most as many bytes as this: a place costs a read whatever is there, while it costs more to
/// move a larger value.
const SCATTERED_BYTES_MAX: u64 = 1 << 10;
/// A scan may read one place for this many values, and [`PLACES_FREE`] places in any case, without counting as
/// scattered: it reads them side by side, and merging a few sorted runs into one would spare little.
const VALUES_PER_PLACE: u64 = 16;
const PLACES_FREE: u64 = 3;
/// A scan remembers its position in this many files.
const FILES_MAX: usize = 256;
/// Bytes written for order per byte of values that was there at open or has arrived since.
const WRITTEN_PER_BYTE: u64 = 3;
/// Scans that asked for order less than this time ago still go on.
const GO_ON_FOR: Duration = Duration::from_secs(1);
/// Keys of the last scattered fetches that are kept.
const PLACES_MAX: usize = 64;
/// As much of each key is kept, in bytes.
const PLACE_BYTES_MAX: usize = 256;

/// The places at which one scan has read values.
#[derive(Debug, Default)]
pub(crate) struct ScanPlaces {
    values: u64,
    places: u64,
    bytes: u64,
    /// Scattered bytes that were noted as demand.
    noted: u64,
    /// Where the last value in each file began.
    last: HashMap<FileId, u64, FixedState>,
}

/// The demand for order since the store was opened.
pub(crate) struct ScanDemand {
    /// Bytes of values that were there at open.
    bytes_at_open: u64,
    /// Bytes written for order since then.
    written: AtomicU64,
    /// Bytes that scans have asked to move.
    bytes: AtomicU64,
    /// When they last did, in microseconds of the clock.
    asked_at: AtomicU64,
    /// The first key of the last scattered fetches.
    places: Mutex<VecDeque<Vec<u8>>>,
}

impl ScanPlaces {
    /// Counts the next value, in the order of keys. If it begins within `near_bytes` of the one that the scan last read
    /// in its file, it is at the same place.
    pub fn visit(&mut self, file: FileId, start: u64, bytes: u64, near_bytes: u64) {
        self.values += 1;
        self.bytes += bytes;
        if self.last.len() == FILES_MAX {
            self.last.clear();
        }
        let before = self.last.insert(file, start);
        let is_near = before.is_some_and(|before| before.abs_diff(start) <= near_bytes);
        self.places += u64::from(!is_near);
    }

    /// How many values were read.
    pub fn values(&self) -> u64 {
        self.values
    }

    /// Bytes of values that were read from more places than a good order needs, at most [`SCATTERED_BYTES_MAX`] of each,
    /// without those taken before.
    pub fn take_scattered(&mut self) -> u64 {
        let needed = PLACES_FREE.max(self.values / VALUES_PER_PLACE);
        let each = (self.bytes / self.values.max(1)).min(SCATTERED_BYTES_MAX);
        let scattered = each * self.places.saturating_sub(needed);
        let more = scattered.saturating_sub(self.noted);
        self.noted += more;
        more
    }
}

impl ScanDemand {
    /// No demand, in a store that holds this many bytes of values.
    pub fn new(bytes_at_open: u64) -> ScanDemand {
        let (written, bytes, asked_at) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        ScanDemand { bytes_at_open, written, bytes, asked_at, places: Mutex::default() }
    }

    /// True if `bytes` more may be written for order, after `arrived` bytes were written to logs since the open. So all
    /// bytes written for order are at most [`WRITTEN_PER_BYTE`] times those that were there and those that arrived.
    pub fn affords(&self, bytes: u64, arrived: u64) -> bool {
        let most = self.bytes_at_open.saturating_add(arrived).saturating_mul(WRITTEN_PER_BYTE);
        self.written.load(Ordering::Relaxed).saturating_add(bytes) <= most
    }

    /// Notes that a scan read `scattered` bytes from many places, from `key` on; true if the demand has reached another
    /// multiple of `step`, or scans begin to ask.
    pub fn note(&self, key: &[u8], scattered: u64, step: u64) -> bool {
        self.note_at(now(), key, scattered, step)
    }

    fn note_at(&self, now: Duration, key: &[u8], scattered: u64, step: u64) -> bool {
        let began = !self.goes_on(now);
        self.asked_at.store(now.as_micros() as u64, Ordering::Relaxed);
        let bytes = scattered.saturating_mul(MOVED_PER_READ);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut places = self.places.lock();
        if places.len() == PLACES_MAX {
            places.pop_front();
        }
        places.push_back(key[..key.len().min(PLACE_BYTES_MAX)].to_vec());
        began || before / step.max(1) < before.saturating_add(bytes) / step.max(1)
    }

    /// True if scans asked for order within the last second.
    pub fn goes_on(&self, now: Duration) -> bool {
        let asked_at = Duration::from_micros(self.asked_at.load(Ordering::Relaxed));
        asked_at > Duration::ZERO && now.saturating_sub(asked_at) < GO_ON_FOR
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

    /// Counts what a job has written for order.
    pub fn note_written(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Drops the demand: nothing can be moved for it.
    pub fn forget(&self) {
        self.spend(u64::MAX);
    }

    /// Takes up to `bytes` of the demand, for a job that begins. If it fails, scans must ask again.
    pub fn spend(&self, bytes: u64) {
        let rest = |demand: u64| Some(demand.saturating_sub(bytes));
        // The closure always returns a value.
        let _ = self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scattered bytes of a scan of `values` values of 1000 B that alternate between `places` places.
    fn scattered(values: u64, places: u64) -> u64 {
        let mut scan = ScanPlaces::default();
        (0..values).for_each(|value| scan.visit(FileId(value % places), value / places * 1000, 1000, 4096));
        scan.take_scattered()
    }

    #[test]
    fn only_values_from_many_places_are_scattered() {
        assert_eq!(
            [(0, 1), (1, 1), (8, 3), (100, 1), (100, 6)].map(|(values, places)| scattered(values, places)),
            [0; 5]
        );
        // Of 100 places an order by key might need 6.
        assert_eq!(scattered(100, 100), 94_000);
        assert_eq!(scattered(10, 10), 7000);
    }

    #[test]
    fn large_values_ask_for_no_more_moves_than_small_ones() {
        let mut scan = ScanPlaces::default();
        (0..20).for_each(|value| scan.visit(FileId(value), 0, 64 << 10, 4096));
        assert_eq!(scan.take_scattered(), 17 << 10);
    }

    #[test]
    fn scattered_values_of_one_scan_count_once_in_both_directions() {
        let mut scan = ScanPlaces::default();
        let mut visit = |from: u64, step: u64| {
            (0..20).rev().for_each(|value| scan.visit(FileId(7), from + value * step, 1000, 4096));
            scan.take_scattered()
        };
        assert_eq!(visit(0, 1000), 0);
        assert_eq!(visit(1 << 30, 1 << 20), 18_000);
        assert_eq!(visit(0, 1 << 20), 20_000);
        assert_eq!(visit(0, 1000), 0);
    }

    #[test]
    fn the_demand_is_spent_once() {
        let demand = ScanDemand::new(1000);
        assert!(!demand.covers(0) && demand.places().is_empty());
        let at = Duration::from_secs;
        assert!(!demand.goes_on(at(5)) && demand.note_at(at(5), b"k", 10_000, 320_000));
        assert!(demand.covers(320_000) && !demand.covers(320_001));
        demand.spend(300_000);
        assert!(demand.covers(20_000) && !demand.covers(20_001));
        assert!(!demand.note_at(at(5), b"k", 2_000, 100_000) && demand.covers(84_000));
        assert!(demand.goes_on(Duration::from_millis(5_999)) && !demand.goes_on(at(6)));
        assert!(demand.note_at(at(6), b"k", 1, 100_000), "scans begin to ask again");
        demand.forget();
        assert!(!demand.covers(0));
    }

    #[test]
    fn bytes_written_for_order_are_bounded_by_those_that_are_there_and_arrive() {
        let demand = ScanDemand::new(1000);
        assert!(demand.affords(3000, 0) && !demand.affords(3001, 0));
        demand.note_written(1500);
        assert!(demand.affords(1500, 0) && !demand.affords(1501, 0));
        assert!(demand.affords(1800, 100) && !demand.affords(1801, 100));
        assert!(demand.affords(u64::MAX, u64::MAX));
    }

    #[test]
    fn the_last_places_are_kept() {
        let demand = ScanDemand::new(1000);
        for place in 0..3 * PLACES_MAX as u64 {
            assert!(demand.note_at(Duration::from_secs(1), &place.to_be_bytes(), 1, 1));
        }
        let last = (2 * PLACES_MAX as u64..).take(PLACES_MAX).map(|place| place.to_be_bytes().to_vec());
        assert!(demand.places().into_iter().eq(last));
    }
}
