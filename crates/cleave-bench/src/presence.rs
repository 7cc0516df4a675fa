//! The records that the store must contain: one bit per record, set after a write is acknowledged and cleared before a
//! delete is requested. A read must find every record whose bit was set before the read.

use std::sync::atomic::{AtomicU64, Ordering};

/// One bit for each record.
pub struct Presence(Vec<AtomicU64>);

impl Presence {
    /// No record of `records` is present.
    pub fn new(records: u64) -> Presence {
        Presence((0..records.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Records that `record` was written. Returns whether it was not present before.
    pub fn set(&self, record: u64) -> bool {
        let (word, bit) = self.place(record);
        word.load(Ordering::SeqCst) & bit == 0 && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
    }

    /// Records that `record` is about to be deleted. Returns whether it was present before.
    pub fn clear(&self, record: u64) -> bool {
        let (word, bit) = self.place(record);
        word.fetch_and(!bit, Ordering::SeqCst) & bit != 0
    }

    /// Whether `record` must be present.
    pub fn has(&self, record: u64) -> bool {
        let (word, bit) = self.place(record);
        word.load(Ordering::SeqCst) & bit != 0
    }

    /// The records that must be present.
    pub fn iter(&self) -> impl Iterator<Item = u64> {
        (0..self.0.len() as u64 * 64).filter(|&record| self.has(record))
    }

    fn place(&self, record: u64) -> (&AtomicU64, u64) {
        (&self.0[(record / 64) as usize], 1 << (record % 64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_present_from_set_to_clear() {
        let presence = Presence::new(130);
        assert!([0, 63, 64, 129].iter().all(|&record| presence.set(record)));
        assert!(!presence.set(64));
        assert_eq!([presence.clear(63), presence.clear(63)], [true, false]);
        assert_eq!(presence.iter().collect::<Vec<_>>(), [0, 64, 129]);
    }
}
