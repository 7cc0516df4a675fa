//! The value cache: separated values that point reads have found. It complements the block cache, and the two share
//! their memory (`cache/balance.rs`).
//!
//! A value is found by its key; the stamp of its record identifies the version. For each key the cache holds at most
//! one base, the newest that was read, and any of its deltas. It does not depend on the location of the record, so an
//! entry survives value GC and compactions. The table in which the version was found is stored as well: a reader that
//! reaches this table need not search it. Records and tables never change, so an entry is never stale.
//!
//! Beside that it may hold the fold of a key that has many operands: its value at the newest operand that a reader has met. The next
//! reader stops there. What lies below a sequence number never changes, so a fold is never stale either.

use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{Equivalent, OptionsBuilder, Weighter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::base::{Bytes, FileId, Gauge, Kind, Seqno, Slice, Stamp};
use crate::cache::ghosts::{GhostRecorder, Ghosts};
use crate::cache::weight::{BytesHeld, Hashing, shards};
use crate::io::Cells;

/// Memory per value beyond its cell: the cache's own entry (measured: 122 B).
const OVERHEAD_BYTES: u64 = 144;
/// Typical memory per value.
const VALUE_BYTES_TYPICAL: usize = 2 << 10;
/// A value larger than this fraction of the cache is not cached, since it would evict too many other_versions.
const PARTS_MIN: u64 = 64;

/// In place of the stamp of a delta: the fold of the key.
const FOLD: u64 = u64::MAX;

/// A lookup key: the base of a key, its fold, or the delta with this stamp.
struct LookupKey<'a> {
    key: &'a [u8],
    /// Stamp of the delta; 0 for the base, [`FOLD`] for the fold.
    delta: u64,
    hash: u64,
}

impl LookupKey<'_> {
    fn new(key: &[u8], stamp: Stamp) -> LookupKey<'_> {
        LookupKey::of(key, if stamp.kind() == Some(Kind::DeltaAt) { stamp.0 } else { 0 })
    }

    fn of(key: &[u8], delta: u64) -> LookupKey<'_> {
        LookupKey { key, delta, hash: xxh3_64_with_seed(key, delta) }
    }
}

impl Hash for LookupKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// The owned form of a lookup key.
#[derive(Clone)]
struct EntryKey {
    key: Slice,
    delta: u64,
    hash: u64,
}

impl PartialEq for EntryKey {
    fn eq(&self, other: &EntryKey) -> bool {
        self.hash == other.hash && self.delta == other.delta && *self.key == *other.key
    }
}

impl Eq for EntryKey {}

impl Hash for EntryKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<EntryKey> for LookupKey<'_> {
    fn equivalent(&self, entry_key: &EntryKey) -> bool {
        self.hash == entry_key.hash && self.delta == entry_key.delta && *self.key == *entry_key.key
    }
}

/// A cached value.
#[derive(Clone)]
pub struct ValueEntry {
    /// The stamp of its version.
    pub stamp: Stamp,
    /// A table in which this version is the newest of its key, if a reader has found one.
    pub table: Option<FileId>,
    /// The value.
    pub value: Slice,
}

/// A bounded, concurrent map from records to their values.
pub struct ValueCache {
    values: Cache<EntryKey, ValueEntry, BytesHeld, Hashing, GhostRecorder<EntryKey, ValueEntry>>,
    ghosts: Arc<Ghosts>,
    /// Maximum memory of the values; 0 disables the cache.
    capacity: AtomicU64,
    cells: Cells,
    /// Bytes of cells, and of keys beside values that did not fit into one.
    gauge: Arc<Gauge>,
    /// Number of lookups that found another version, or a fold.
    other_versions: AtomicU64,
    misses: AtomicU64,
    /// A fold was ever inserted.
    has_folds: AtomicBool,
}

impl ValueCache {
    /// A cache of at most about `capacity_bytes_max`; its capacity is 0 at first.
    pub fn new(capacity_bytes_max: usize) -> ValueCache {
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes_max as u64)
            .estimated_items_capacity((capacity_bytes_max / VALUE_BYTES_TYPICAL).max(1))
            .shards(shards(capacity_bytes_max))
            .build()
            .expect("both capacities of the cache are given");
        let ghosts = Arc::<Ghosts>::default();
        let recorder = GhostRecorder::new(ghosts.clone());
        let values = Cache::with_options(options, BytesHeld, Hashing::default(), recorder);
        let gauge = Arc::<Gauge>::default();
        ValueCache {
            values,
            ghosts,
            capacity: AtomicU64::new(0),
            cells: Cells::new(capacity_bytes_max, gauge.clone()),
            gauge,
            other_versions: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            has_folds: AtomicBool::new(false),
        }
    }

    /// The value of a record, if it is cached.
    #[inline]
    pub fn get(&self, full_key: &[u8], stamp: Stamp) -> Option<Slice> {
        self.find(full_key, stamp).filter(|kept| self.is_version(kept, stamp)).map(|kept| kept.value)
    }

    /// The cached base of a key, or the cached delta with this stamp. The base may be of another version.
    #[inline]
    pub fn find(&self, full_key: &[u8], stamp: Stamp) -> Option<ValueEntry> {
        if self.capacity() == 0 {
            return None;
        }
        let wanted = LookupKey::new(full_key, stamp);
        let found = self.values.get(&wanted);
        if found.is_none() {
            self.ghosts.note_miss(&wanted);
        }
        found
    }

    /// Counts a miss: a separated value is not cached and will be read.
    pub fn note_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether a cached value is of the wanted version; counts it if it is not.
    pub fn is_version(&self, kept: &ValueEntry, stamp: Stamp) -> bool {
        if kept.stamp != stamp {
            self.other_versions.fetch_add(1, Ordering::Relaxed);
        }
        kept.stamp == stamp
    }

    /// The value of a record, without recording the access: for readers that pass over many values.
    #[inline]
    pub fn peek(&self, full_key: &[u8], stamp: Stamp) -> Option<Slice> {
        if self.capacity() == 0 {
            return None;
        }
        self.values.peek(&LookupKey::new(full_key, stamp)).filter(|kept| kept.stamp == stamp).map(|kept| kept.value)
    }

    /// Whether a value of the key is cached, whatever its version; the access is not recorded.
    pub fn holds(&self, full_key: &[u8]) -> bool {
        self.capacity() > 0 && self.values.peek(&LookupKey::new(full_key, Stamp::NEWEST)).is_some()
    }

    /// Caches a copy of a value if there is room, unless it is too large or a newer version is cached; a large value itself.
    /// `table` is a table in which this version is the newest of its key.
    pub fn insert(&self, full_key: &[u8], stamp: Stamp, table: Option<FileId>, value: &Slice) {
        self.insert_as(LookupKey::new(full_key, stamp), stamp, table, value);
    }

    /// The fold of a key, with the number of the newest operand in it. The access is not recorded: the reader may meet a newer base,
    /// or that operand combined with others.
    #[inline]
    pub fn find_fold(&self, full_key: &[u8]) -> Option<(Seqno, Slice)> {
        if !self.has_folds() || self.capacity() == 0 {
            return None;
        }
        self.values.peek(&LookupKey::of(full_key, FOLD)).map(|kept| (kept.stamp.seqno(), kept.value))
    }

    /// Records that a reader has used the fold of a key.
    pub fn note_fold_used(&self, full_key: &[u8]) {
        if self.values.get(&LookupKey::of(full_key, FOLD)).is_some() {
            self.other_versions.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A fold was ever to be cached.
    pub fn has_folds(&self) -> bool {
        self.has_folds.load(Ordering::Relaxed)
    }

    /// Caches a copy of the value of a key at its operand `seqno`, as [`insert`](ValueCache::insert) caches values.
    pub fn insert_fold(&self, full_key: &[u8], seqno: Seqno, value: &Slice) {
        if !self.has_folds() {
            self.has_folds.store(true, Ordering::Relaxed);
        }
        self.insert_as(LookupKey::of(full_key, FOLD), Stamp::new(seqno, Kind::Put), None, value);
    }

    fn insert_as(&self, wanted: LookupKey<'_>, stamp: Stamp, table: Option<FileId>, value: &Slice) {
        let full_key = wanted.key;
        if (value.len() + full_key.len()) as u64 + OVERHEAD_BYTES > self.capacity() / PARTS_MIN
            || self.values.peek(&wanted).is_some_and(|before| before.stamp.seqno() > stamp.seqno())
        {
            return;
        }
        let (key, value) = match self.in_cell(full_key, value) {
            Some(both) => both,
            // It may share the memory of others.
            None if value.held_bytes() as u64 > self.capacity() / PARTS_MIN => return,
            None => {
                let key = Bytes::counted(full_key.to_vec(), self.gauge.clone());
                let value = match wanted.delta {
                    FOLD => Slice::shared(Bytes::counted(value.to_vec(), self.gauge.clone()), 0, value.len()),
                    _ => value.clone(),
                };
                (Slice::shared(key, 0, full_key.len()), value)
            }
        };
        let entry_key = EntryKey { key, delta: wanted.delta, hash: wanted.hash };
        self.values.insert(entry_key, ValueEntry { stamp, table, value });
    }

    /// A key and its value, in a cell of their own if they fit into one.
    fn in_cell(&self, key: &[u8], value: &[u8]) -> Option<(Slice, Slice)> {
        let cell = self.cells.copy_of(&[key, value])?;
        let owner = Bytes::from(cell);
        Some((Slice::shared(owner.clone(), 0, key.len()), Slice::shared(owner, key.len(), value.len())))
    }

    /// Gives memory back to the system that is hardly used since values were evicted, by moving what is left there.
    pub fn pack(&self) {
        if let Some(packing) = self.cells.packing() {
            for (entry_key, entry) in self.values.iter().filter(|(_, entry)| packing.moves(&entry.value)) {
                if let Some((key, value)) = self.in_cell(&entry_key.key, &entry.value) {
                    // Fails if it has been evicted meanwhile. A newer version that came meanwhile is replaced, and read again.
                    let _ = self.values.replace(EntryKey { key, ..entry_key }, ValueEntry { value, ..entry }, true);
                }
            }
        }
        self.cells.release_empty();
    }

    /// Memory of the values in the cache.
    pub fn weight(&self) -> u64 {
        self.values.weight()
    }

    /// Bytes that readers hold and the cache does not, of values that were cached and of `read_bytes` outside of cells.
    pub fn pinned_bytes(&self, read_bytes: usize) -> usize {
        let held = self.weight().saturating_sub(self.values.len() as u64 * OVERHEAD_BYTES);
        (read_bytes + self.gauge.get()).saturating_sub(held as usize)
    }

    /// The most that [`weight`](ValueCache::weight) may be.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity; values that no longer fit go at once.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
        match bytes {
            // With capacity 0 the inner cache would lose its proportions.
            0 => self.values.clear(),
            bytes => self.values.set_capacity(bytes),
        }
    }

    /// Number of lookups that found the value.
    pub fn hits(&self) -> u64 {
        self.values.hits().saturating_sub(self.other_versions.load(Ordering::Relaxed))
    }

    /// Number of lookups of separated values that did not.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// The recent evictions.
    pub fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }
}

impl Weighter<EntryKey, ValueEntry> for BytesHeld {
    fn weight(&self, entry_key: &EntryKey, kept: &ValueEntry) -> u64 {
        (entry_key.key.held_bytes() + kept.value.held_bytes_beside(&entry_key.key)) as u64 + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{Bytes, Gauge, Kind, Seqno};

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
        Slice::shared(Bytes::counted(vec![7; bytes], gauge.clone()), 30, bytes - 30)
    }

    #[test]
    fn reused_values_survive_a_scan_of_others_and_large_values_are_not_cached() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        insert(&cache, 1, &value(100, &gauge));
        assert!(get(&cache, 1).is_none() && (cache.capacity(), cache.weight()) == (0, 0), "the cache is disabled");
        cache.set_capacity(1 << 20);
        (0..100).for_each(|number| insert(&cache, number, &value(1030, &gauge)));
        for _ in 0..3 {
            assert!((0..100).all(|number| get(&cache, number).is_some_and(|found| found.len() == 1000)));
        }
        (1000..20_000).for_each(|number| insert(&cache, number, &value(1030, &gauge)));
        let kept = (0..100).filter(|&number| cache.peek(&key(number), stamp(number)).is_some()).count();
        assert!(kept > 90, "{kept} of 100 are left");
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 900 << 10);
        assert_eq!(cache.pinned_bytes(gauge.get()), 0);
        let held = cache.peek(&key(0), stamp(0)).or_else(|| cache.peek(&key(1), stamp(1))).unwrap();
        insert(&cache, 1 << 40, &value(17 << 10, &gauge));
        assert!(cache.peek(&key(1 << 40), stamp(1 << 40)).is_none());
        assert!(cache.get(b"other key", stamp(1)).is_none());
        assert_eq!(cache.hits(), 300);
        cache.set_capacity(0);
        assert_eq!((cache.weight(), cache.capacity()), (0, 0));
        assert!(cache.peek(&key(1), stamp(1)).is_none());
        assert!(cache.pinned_bytes(gauge.get()) >= held.len());
        drop(held);
        assert_eq!((cache.pinned_bytes(0), gauge.get()), (0, 0));
    }

    #[test]
    fn a_fold_lies_beside_the_base_of_its_key_and_only_a_newer_one_replaces_it() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        cache.insert_fold(&key(1), Seqno(9), &value(130, &gauge));
        assert!(cache.has_folds() && cache.find_fold(&key(1)).is_none(), "the cache is disabled");
        cache.set_capacity(1 << 20);
        insert(&cache, 1, &value(1030, &gauge));
        for (seqno, bytes) in [(9, 130), (8, 230), (12, 330)] {
            cache.insert_fold(&key(1), Seqno(seqno), &value(bytes, &gauge));
        }
        let (seqno, fold) = cache.find_fold(&key(1)).unwrap();
        assert_eq!((seqno, fold.len(), cache.find_fold(&key(2))), (Seqno(12), 300, None));
        cache.note_fold_used(&key(1));
        cache.note_fold_used(&key(2));
        assert_eq!((get(&cache, 1).unwrap().len(), cache.hits()), (1000, 1), "folds do not count");
        cache.set_capacity(0);
        assert!(cache.find_fold(&key(1)).is_none());
    }

    #[test]
    fn values_larger_than_a_cell_are_cached_as_they_are() {
        let (cache, gauge) = (ValueCache::new(8 << 20), Arc::<Gauge>::default());
        cache.set_capacity(8 << 20);
        insert(&cache, 1, &value(100 << 10, &gauge));
        assert_eq!(get(&cache, 1).unwrap().len(), (100 << 10) - 30);
        assert_eq!((gauge.get(), cache.weight()), (100 << 10, (100 << 10) + 8 + OVERHEAD_BYTES));
        assert_eq!((cache.pinned_bytes(gauge.get()), cache.cells.resident_bytes()), (0, 0));
        // Of values that share much memory only copies are kept.
        let owner = Bytes::counted(vec![7; 1 << 20], gauge.clone());
        insert(&cache, 2, &Slice::shared(owner.clone(), 0, 100));
        insert(&cache, 3, &Slice::shared(owner, 0, 100 << 10));
        // Without cells none is.
        assert_eq!(get(&cache, 2).is_some(), !cfg!(any(miri, feature = "portable")));
        assert!(get(&cache, 3).is_none());
        assert_eq!(gauge.get(), 100 << 10);
    }

    #[cfg(not(any(miri, feature = "portable")))]
    #[test]
    fn a_cache_that_has_shrunk_takes_hardly_more_memory_than_its_values_once_it_is_packed() {
        let (cache, gauge) = (ValueCache::new(8 << 20), Arc::<Gauge>::default());
        cache.set_capacity(8 << 20);
        for number in 0..6_000 {
            insert(&cache, number, &value(1030 + number as usize % 8, &gauge));
        }
        // What stays lies everywhere.
        (0..6_000).step_by(5).for_each(|number| drop((0..3).map(|_| get(&cache, number)).collect::<Vec<_>>()));
        cache.set_capacity(2 << 20);
        let (before, held) = (cache.cells.resident_bytes(), cache.peek(&key(0), stamp(0)));
        cache.pack();
        let now = cache.cells.resident_bytes();
        assert!(before > 5 << 20 && now < 9 << 18, "{before} B before, {now} B now");
        assert!(cache.weight() <= 2 << 20 && cache.weight() > 3 << 19, "{}", cache.weight());
        for number in 0..6_000 {
            assert!(get(&cache, number).is_none_or(|found| found.len() == 1000 + number as usize % 8));
        }
        assert!(cache.pinned_bytes(0) <= held.map_or(0, |held| held.len() + 200));
    }

    #[test]
    fn the_newest_base_and_each_delta_of_a_key_are_cached() {
        let (cache, gauge) = (ValueCache::new(1 << 20), Arc::<Gauge>::default());
        cache.set_capacity(1 << 20);
        let delta = |number| Stamp::new(Seqno(number), Kind::DeltaAt);
        let values: Vec<Slice> = (0..5).map(|len| value(100 + len, &gauge)).collect();
        cache.insert(b"key", stamp(7), Some(FileId(1)), &values[0]);
        cache.insert(b"key", stamp(5), Some(FileId(2)), &values[1]);
        cache.insert(b"key", delta(8), None, &values[2]);
        cache.insert(b"key", delta(9), None, &values[3]);
        let found = |stamp| cache.get(b"key", stamp).map(|found| found.len());
        let kept = || cache.find(b"key", Stamp::NEWEST).map(|kept| (kept.stamp, kept.table, kept.value.len()));
        assert_eq!([stamp(7), delta(8), delta(9)].map(found), [Some(70), Some(72), Some(73)]);
        assert_eq!((found(stamp(5)), kept()), (None, Some((stamp(7), Some(FileId(1)), 70))));
        assert_eq!(cache.hits(), 4, "a value of another version is not a hit");
        cache.insert(b"key", stamp(7), Some(FileId(3)), &values[0]);
        assert_eq!(kept(), Some((stamp(7), Some(FileId(3)), 70)));
        cache.insert(b"key", stamp(9), None, &values[4]);
        assert_eq!((found(stamp(7)), kept()), (None, Some((stamp(9), None, 74))));
        assert!(cache.holds(b"key") && !cache.holds(b"ke"));
        assert!(cache.find(b"ke", Stamp::NEWEST).is_none() && cache.peek(b"key", stamp(9)).is_some());
    }
}
