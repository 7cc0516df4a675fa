//! The value cache: whole values that lie apart from their keys, as point reads have found them. It stands beside the block
//! cache, and the two share their memory (`cache/balance.rs`).
//!
//! A value is found by its key, and its record's stamp says of which version it is. Of each key it has one base, the newest that
//! was asked for, and any of its deltas. Not the place where a value lies, so it stays when its record is moved and when tables
//! name it anew; but the table that led there is known as well: while that is where a reader comes to, it need not look into it.
//! Records and tables never change, so nothing here is ever out of date.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::{Buffer, FileId, Gauge, Kind, Slice, Stamp};
use crate::cache::block_cache::{BytesHeld, Hashing, shards};
use crate::cache::ghosts::{Ghosts, Remember};

/// What a value costs beside its record's bytes and its key: headers, the allocator's, and the cache's own entry.
const OVERHEAD_BYTES: u64 = 272;
/// About what one takes.
const VALUE_BYTES_TYPICAL: usize = 2 << 10;
/// What takes more than this part of the cache would push out too many others.
const PARTS_MIN: u64 = 64;

/// Which record: the base of a key, or the delta of this stamp.
struct Asked<'a> {
    key: &'a [u8],
    /// 0 for the base.
    delta: u64,
    hash: u64,
}

impl Asked<'_> {
    fn new(key: &[u8], stamp: Stamp) -> Asked<'_> {
        let delta = if stamp.kind() == Some(Kind::DeltaAt) { stamp.0 } else { 0 };
        Asked { key, delta, hash: xxh3_64_with_seed(key, delta) }
    }
}

impl Hash for Asked<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The same, kept.
struct Name {
    key: Buffer,
    delta: u64,
    hash: u64,
}

impl PartialEq for Name {
    fn eq(&self, other: &Name) -> bool {
        self.hash == other.hash && self.delta == other.delta && *self.key == *other.key
    }
}

impl Eq for Name {}

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<Name> for Asked<'_> {
    fn equivalent(&self, name: &Name) -> bool {
        self.hash == name.hash && self.delta == name.delta && *self.key == *name.key
    }
}

/// A value in the cache.
#[derive(Clone)]
pub struct Kept {
    /// Which version it is.
    pub stamp: Stamp,
    /// A table in which this version is the key's newest, if a reader has seen that.
    pub table: Option<FileId>,
    /// The value.
    pub value: Slice,
}

/// A bounded, concurrent map from records to their values.
pub struct ValueCache {
    values: Cache<Name, Kept, BytesHeld, Hashing, Remember<Name, Kept>>,
    ghosts: Arc<Ghosts>,
    /// The most that the values may take; at 0 it is off.
    capacity: AtomicU64,
    /// Bytes of the keys.
    keys: Arc<Gauge>,
    /// How often the value of another version was found.
    others: AtomicU64,
    misses: AtomicU64,
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
        let keys = Arc::new(Gauge::default());
        let values = Cache::with_options(options, BytesHeld, Hashing::default(), remember);
        ValueCache {
            values,
            ghosts,
            capacity: AtomicU64::new(0),
            keys,
            others: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    /// The value of a record, if it is here.
    #[inline]
    pub fn get(&self, full_key: &[u8], stamp: Stamp) -> Option<Slice> {
        self.find_asked(&Asked::new(full_key, stamp)).filter(|kept| self.is_of(kept, stamp)).map(|kept| kept.value)
    }

    /// The base of a key that is here, whatever version it is.
    #[inline]
    pub fn find(&self, full_key: &[u8]) -> Option<Kept> {
        self.find_asked(&Asked::new(full_key, Stamp::NEWEST))
    }

    fn find_asked(&self, asked: &Asked<'_>) -> Option<Kept> {
        if self.capacity() == 0 {
            return None;
        }
        let found = self.values.get(asked);
        if found.is_none() {
            self.ghosts.note_missed(asked);
        }
        found
    }

    /// A value that lies apart is not here, and will be read.
    pub fn note_missed(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// What was found is of the version that is wanted.
    pub fn is_of(&self, kept: &Kept, stamp: Stamp) -> bool {
        if kept.stamp != stamp {
            self.others.fetch_add(1, Ordering::Relaxed);
        }
        kept.stamp == stamp
    }

    /// The value of a record without a trace: for readers who pass many values by.
    #[inline]
    pub fn peek(&self, full_key: &[u8], stamp: Stamp) -> Option<Slice> {
        if self.capacity() == 0 {
            return None;
        }
        self.values.peek(&Asked::new(full_key, stamp)).filter(|kept| kept.stamp == stamp).map(|kept| kept.value)
    }

    /// Keeps a value, as far as there is room, unless it is a large part of the cache, or that of a newer version is here.
    /// `table` is one in which this version is the newest of its key.
    pub fn insert(&self, full_key: &[u8], stamp: Stamp, table: Option<FileId>, value: &Slice) {
        let asked = Asked::new(full_key, stamp);
        let kept = Kept { stamp, table, value: value.clone() };
        let name =
            Name { key: Buffer::counted(full_key.to_vec(), self.keys.clone()), delta: asked.delta, hash: asked.hash };
        if BytesHeld.weight(&name, &kept) <= self.capacity() / PARTS_MIN
            && self.values.peek(&asked).is_none_or(|before| before.stamp.seqno() <= stamp.seqno())
        {
            self.values.insert(name, kept);
        }
    }

    /// Memory of the values in the cache.
    pub fn weight(&self) -> u64 {
        self.values.weight()
    }

    /// Bytes of the records in the cache, as a gauge counts them.
    pub fn record_bytes(&self) -> usize {
        let beside = self.values.len() as u64 * OVERHEAD_BYTES + self.keys.get() as u64;
        self.values.weight().saturating_sub(beside) as usize
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
        self.values.hits().saturating_sub(self.others.load(Ordering::Relaxed))
    }

    /// How often not, where one was wanted that lies apart.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// What it has let go lately.
    pub fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }
}

impl Weighter<Name, Kept> for BytesHeld {
    fn weight(&self, name: &Name, kept: &Kept) -> u64 {
        (kept.value.held_bytes() + name.key.len()) as u64 + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Buffer, Gauge, Kind, Seqno};

    fn stamp(number: u64) -> Stamp {
        Stamp::new(Seqno(number), Kind::PutAt)
    }

    fn key(number: u64) -> [u8; 8] {
        number.to_be_bytes()
    }

    fn get(cache: &ValueCache, number: u64) -> Option<Slice> {
        cache.get(&key(number), stamp(number))
    }

    fn insert(cache: &ValueCache, number: u64, value: &Slice) {
        cache.insert(&key(number), stamp(number), None, value);
    }

    fn value(bytes: usize, gauge: &Arc<Gauge>) -> Slice {
        Slice::shared(Arc::new(Buffer::counted(vec![7; bytes], gauge.clone())), 30, bytes - 30)
    }

    #[test]
    fn values_that_are_wanted_again_outlast_a_flood_and_large_ones_are_not_taken() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        insert(&cache, 1, &value(100, &gauge));
        assert!(get(&cache, 1).is_none() && (cache.capacity(), cache.weight()) == (0, 0), "it is off");
        cache.set_capacity(1 << 20);
        (0..100).for_each(|number| insert(&cache, number, &value(1030, &gauge)));
        for _ in 0..3 {
            assert!((0..100).all(|number| get(&cache, number).is_some_and(|found| found.len() == 1000)));
        }
        (1000..20_000).for_each(|number| insert(&cache, number, &value(1030, &gauge)));
        let kept = (0..100).filter(|&number| cache.peek(&key(number), stamp(number)).is_some()).count();
        assert!(kept > 90, "{kept} of 100 are left");
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 900 << 10);
        assert_eq!(cache.record_bytes(), gauge.get());
        insert(&cache, 1 << 40, &value(17 << 10, &gauge));
        assert!(cache.peek(&key(1 << 40), stamp(1 << 40)).is_none());
        assert!(cache.get(b"other key", stamp(1)).is_none());
        assert_eq!(cache.hits(), 300);
        cache.set_capacity(0);
        assert_eq!((cache.weight(), gauge.get(), cache.capacity()), (0, 0, 0));
        assert!(cache.peek(&key(1), stamp(1)).is_none());
    }
    #[test]
    fn of_a_key_there_is_the_newest_base_and_each_delta() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        cache.set_capacity(1 << 20);
        let delta = |number| Stamp::new(Seqno(number), Kind::DeltaAt);
        let values: Vec<Slice> = (0..5).map(|len| value(100 + len, &gauge)).collect();
        cache.insert(b"key", stamp(7), Some(FileId(1)), &values[0]);
        cache.insert(b"key", stamp(5), Some(FileId(2)), &values[1]);
        cache.insert(b"key", delta(8), None, &values[2]);
        cache.insert(b"key", delta(9), None, &values[3]);
        let found = |stamp| cache.get(b"key", stamp).map(|found| found.len());
        let kept = || cache.find(b"key").map(|kept| (kept.stamp, kept.table, kept.value.len()));
        assert_eq!([stamp(7), delta(8), delta(9)].map(found), [Some(70), Some(72), Some(73)]);
        assert_eq!((found(stamp(5)), kept()), (None, Some((stamp(7), Some(FileId(1)), 70))));
        assert_eq!(cache.hits(), 4, "one of another version is none");
        cache.insert(b"key", stamp(7), Some(FileId(3)), &values[0]);
        assert_eq!(kept(), Some((stamp(7), Some(FileId(3)), 70)));
        cache.insert(b"key", stamp(9), None, &values[4]);
        assert_eq!((found(stamp(7)), kept()), (None, Some((stamp(9), None, 74))));
        assert!(cache.find(b"ke").is_none() && cache.peek(b"key", stamp(9)).is_some());
    }
}
