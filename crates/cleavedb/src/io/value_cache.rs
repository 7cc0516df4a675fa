//! The value cache: whole values that lie apart from their keys, as point reads have found them. It stands beside the block
//! cache, and the two share their memory (`db/balance.rs`).
//!
//! A value is found by which record it is of, and not by where that lies, so it stays when its record is moved, and when
//! tables name it anew. Records never change, so nothing here is ever out of date.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};
use xxhash_rust::xxh3::xxh3_64;

use super::cache::{BytesHeld, Hashing, shards};
use super::ghosts::{Ghosts, Remember};
use crate::base::{Slice, Stamp};

/// What a value costs beside its record's bytes: two headers, the allocator's, and the cache's own entry.
const OVERHEAD_BYTES: u64 = 208;
/// About what one takes.
const VALUE_BYTES_TYPICAL: usize = 2 << 10;
/// What takes more than this part of the cache would push out too many others.
const PARTS_MIN: u64 = 64;

/// Which record: its sequence number and kind, and a hash of its full key, lest a damaged table pass one off as another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RecordName(u64, u64);

impl RecordName {
    /// The record of `stamp` and `full_key`.
    pub fn new(full_key: &[u8], stamp: Stamp) -> RecordName {
        RecordName(stamp.0, xxh3_64(full_key))
    }
}

/// A bounded, concurrent map from records to their values.
pub struct ValueCache {
    values: Cache<RecordName, Slice, BytesHeld, Hashing, Remember<RecordName, Slice>>,
    ghosts: Arc<Ghosts>,
    /// The most that the values may take; at 0 it is off.
    capacity: AtomicU64,
}

impl ValueCache {
    /// A cache that will have at most about `capacity_bytes_max`, and has none at first.
    pub fn new(capacity_bytes_max: usize) -> ValueCache {
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes_max as u64)
            .estimated_items_capacity((capacity_bytes_max / VALUE_BYTES_TYPICAL).max(1))
            .shards(shards(capacity_bytes_max))
            .build()
            .expect("both capacities of the cache are given");
        let ghosts = Arc::<Ghosts>::default();
        let remember = Remember::new(ghosts.clone());
        let values = Cache::with_options(options, BytesHeld, Hashing::default(), remember);
        ValueCache { values, ghosts, capacity: AtomicU64::new(0) }
    }

    /// The value of a record, if it is here.
    #[inline]
    pub fn get(&self, name: RecordName) -> Option<Slice> {
        if self.capacity() == 0 {
            return None;
        }
        let found = self.values.get(&name);
        if found.is_none() {
            self.ghosts.note_missed(&name);
        }
        found
    }

    /// The same without a trace: for readers who pass many values by.
    #[inline]
    pub fn peek(&self, name: RecordName) -> Option<Slice> {
        if self.capacity() == 0 { None } else { self.values.peek(&name) }
    }

    /// Keeps a value, as far as there is room, unless it is a large part of the cache.
    pub fn insert(&self, name: RecordName, value: &Slice) {
        if BytesHeld.weight(&name, value) <= self.capacity() / PARTS_MIN {
            self.values.insert(name, value.clone());
        }
    }

    /// Memory of the values in the cache.
    pub fn weight(&self) -> u64 {
        self.values.weight()
    }

    /// Bytes of the records in the cache, as a gauge counts them.
    pub fn record_bytes(&self) -> usize {
        self.values.weight().saturating_sub(self.values.len() as u64 * OVERHEAD_BYTES) as usize
    }

    /// The most that [`weight`](ValueCache::weight) may be.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity; values that no longer fit go at once.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
        match bytes {
            // With no capacity at all it would forget its proportions.
            0 => self.values.clear(),
            bytes => self.values.set_capacity(bytes),
        }
    }

    /// How often a value was found.
    pub fn hits(&self) -> u64 {
        self.values.hits()
    }

    /// How often not.
    pub fn misses(&self) -> u64 {
        self.values.misses()
    }

    /// What it has let go lately.
    pub fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }
}

impl Weighter<RecordName, Slice> for BytesHeld {
    fn weight(&self, _name: &RecordName, value: &Slice) -> u64 {
        value.held_bytes() as u64 + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Buffer, Gauge, Kind, Seqno};

    fn name(number: u64) -> RecordName {
        RecordName::new(b"key", Stamp::new(Seqno(number), Kind::PutAt))
    }

    fn value(bytes: usize, gauge: &Arc<Gauge>) -> Slice {
        Slice::shared(Arc::new(Buffer::counted(vec![7; bytes], gauge.clone())), 30, bytes - 30)
    }

    #[test]
    fn values_that_are_wanted_again_outlast_a_flood_and_large_ones_are_not_taken() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        cache.insert(name(1), &value(100, &gauge));
        assert!(cache.get(name(1)).is_none() && (cache.capacity(), cache.weight()) == (0, 0), "it is off");
        cache.set_capacity(1 << 20);
        (0..100).for_each(|number| cache.insert(name(number), &value(1030, &gauge)));
        for _ in 0..3 {
            assert!((0..100).all(|number| cache.get(name(number)).is_some_and(|found| found.len() == 1000)));
        }
        (1000..20_000).for_each(|number| cache.insert(name(number), &value(1030, &gauge)));
        let kept = (0..100).filter(|&number| cache.peek(name(number)).is_some()).count();
        assert!(kept > 90, "{kept} of 100 are left");
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 900 << 10);
        assert_eq!(cache.record_bytes(), gauge.get());
        cache.insert(name(1 << 40), &value(17 << 10, &gauge));
        assert!(cache.peek(name(1 << 40)).is_none());
        assert!(cache.get(RecordName::new(b"other key", Stamp::new(Seqno(1), Kind::PutAt))).is_none());
        assert_eq!((cache.hits(), cache.misses()), (300, 1));
        cache.set_capacity(0);
        assert_eq!((cache.weight(), gauge.get(), cache.capacity()), (0, 0, 0));
        assert!(cache.peek(name(1)).is_none());
    }
}
