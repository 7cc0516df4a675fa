//! The cache of operand lists (KDSep, section IV: KD cache): for a key, all merge operands that its bucket holds, so that a
//! read of the key reads no block of a delta segment. It shares the memory of the caches (`cache/balance.rs`).
//!
//! Which list belongs to a view is decided by the extents of its bucket. Segments never change, and what lies below an extent
//! in the list of a bucket is the same for as long as the bucket has that extent. So a list that was read from
//! an extent `at` and all older ones is right for every view whose bucket has that extent, but for what newer extents
//! add. An empty list stays right when the bucket is rewritten, too. Flushes add that to the lists in the cache before their segment is published. A list that was inserted
//! while a flush ran, which may have passed its key, is right only while no extent is newer than `at`.
//!
//! A list also has the interval of sequence numbers that it covers: operands at or below `from` are missing, since a newer base
//! covered them. Called by readers, by flushes, and by the job that rewrites buckets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::operator::{Joinable, join_neighbours};
use crate::base::{FileId, Kind, MergeOperator, Seqno, Slice, Stamp};
use crate::cache::ghosts::{Demand, GhostRecorder, Ghosts};
use crate::cache::weight::{BytesHeld, Hashing, shards};
use crate::sched::sync::RwLock;

/// Memory per list beyond its key and its versions: headers of both and the allocator, and the cache's own entry.
const OVERHEAD_BYTES: u64 = 240;
/// Memory per version beyond its payload, with the header of an allocation.
const VERSION_BYTES: usize = size_of::<ListVersion>() + 32;
/// Typical memory per list.
const LIST_BYTES_TYPICAL: usize = 1 << 10;
/// A list larger than this fraction of the cache is not cached, since it would evict too many others.
const PARTS_MIN: u64 = 32;
/// A list with more versions than this is merged when a flush adds to it.
const VERSIONS_MAX: usize = 4;

/// A version of a list.
#[derive(Debug, Clone)]
struct ListVersion {
    stamp: Stamp,
    /// The oldest of the operands that were merged into it.
    oldest: Seqno,
    payload: Slice,
}

impl ListVersion {
    /// Copies a version, so that it keeps no block in memory.
    fn copy_of((stamp, payload): &KeyVersion) -> ListVersion {
        ListVersion { stamp: *stamp, oldest: stamp.seqno(), payload: Slice::copy_from(payload) }
    }
}

impl Joinable for ListVersion {
    fn operand(&self) -> Option<&[u8]> {
        (self.stamp.kind() == Some(Kind::Delta)).then_some(&self.payload)
    }

    fn joined(older: &Self, newer: &Self, operand: Vec<u8>) -> Self {
        ListVersion { stamp: newer.stamp, oldest: older.oldest, payload: Slice::copy_from(&operand) }
    }
}

/// The versions that the bucket of a key holds of it.
#[derive(Debug, Clone)]
pub struct OperandList {
    /// The newest segment of the bucket when the list was read or written.
    at: FileId,
    /// Versions at or below this number may be missing, since a base with this number covered them.
    from: Seqno,
    /// What the last flush added, with its segment; newest first.
    newer: Option<(FileId, Box<[ListVersion]>)>,
    /// What lies in `at` and all older extents, newest first.
    versions: Box<[ListVersion]>,
    /// Flushes have added all that is newer.
    is_followed: bool,
}

impl OperandList {
    /// A list of all versions above `from` in a bucket whose newest segment is `at`, newest first.
    pub fn new(at: FileId, from: Seqno, versions: &[KeyVersion]) -> OperandList {
        let versions = versions.iter().map(ListVersion::copy_of).collect();
        OperandList { at, from, newer: None, versions, is_followed: true }
    }

    /// The newest segment of the bucket when the list was read or written.
    pub fn at(&self) -> FileId {
        self.at
    }

    /// Takes what a reader at `snapshot` needs of the versions above `base`, for a bucket with these segments, newest first.
    /// `None` if the list is not one of this bucket, or does not cover what the reader needs.
    pub fn versions_in(
        &self,
        segments: impl Iterator<Item = FileId> + Clone,
        snapshot: Seqno,
        base: Seqno,
    ) -> Option<KeyVersions> {
        if !self.is_of(segments.clone()) {
            return None;
        }
        let newer = self.newer.iter().filter(|(segment, _)| segments.clone().any(|of_bucket| of_bucket == *segment));
        let mut found = KeyVersions::default();
        found.cover(base);
        for version in newer.flat_map(|(_, versions)| versions).chain(&self.versions) {
            let newest = version.stamp.seqno();
            if version.oldest > snapshot {
                continue;
            }
            if newest <= base {
                break;
            }
            // A base, or the snapshot, lies between operands that were merged.
            if newest > snapshot || version.oldest <= base {
                return None;
            }
            if !found.push_older(version.stamp, version.payload.clone()) {
                break;
            }
        }
        (base >= self.from || found.base().is_some()).then_some(found)
    }

    /// The list is one of a bucket with these segments, and neither the snapshot nor the base that it sees lies among what is missing
    /// or was merged.
    fn may_serve(&self, segments: impl Iterator<Item = FileId> + Clone, snapshot: Seqno) -> bool {
        let newer = self.newer.iter().flat_map(|(_, versions)| versions);
        let is_parted = |version: &ListVersion| version.oldest <= snapshot && snapshot < version.stamp.seqno();
        self.is_of(segments) && snapshot >= self.from && !newer.chain(&self.versions).any(is_parted)
    }

    /// The list is one of a bucket with these segments, newest first.
    fn is_of(&self, mut segments: impl Iterator<Item = FileId>) -> bool {
        let Some(newest) = segments.next() else { return false };
        // What is empty stays so when the bucket is rewritten; segments have ascending numbers.
        let stays_empty = self.versions.is_empty() && self.newer.is_none() && newest > self.at;
        newest == self.at || self.is_followed && (stays_empty || segments.any(|segment| segment == self.at))
    }

    /// The list after a flush. `segments` are those of the bucket before it.
    fn after(
        &self,
        segments: &[FileId],
        added: &Added<'_>,
        operator: Option<&dyn MergeOperator>,
    ) -> Option<OperandList> {
        let newest = *segments.first()?;
        if !self.is_of(segments.iter().copied()) {
            return None;
        }
        let above = |version: &&ListVersion| version.stamp.seqno() > added.base;
        let before = self.newer.iter().filter(|(segment, _)| segments.contains(segment));
        let before = before.flat_map(|(_, versions)| versions).chain(&self.versions).filter(above).cloned();
        let mut versions: Vec<ListVersion> = before.collect();
        if let Some(operator) = operator.filter(|_| versions.len() > VERSIONS_MAX) {
            versions = join_neighbours(operator, added.user_key, versions.into_iter().rev());
            versions.reverse();
        }
        let newer: Box<[ListVersion]> =
            added.versions.iter().map(ListVersion::copy_of).filter(|version| above(&version)).collect();
        Some(OperandList {
            at: newest,
            from: self.from.max(added.base),
            newer: (!newer.is_empty()).then_some((added.segment, newer)),
            versions: versions.into(),
            is_followed: true,
        })
    }

    fn bytes(&self) -> usize {
        let newer = self.newer.iter().flat_map(|(_, versions)| versions);
        newer.chain(&self.versions).map(|version| version.payload.held_bytes() + VERSION_BYTES).sum()
    }
}

/// What a flush adds to the bucket of a key.
pub struct Added<'a> {
    /// The key in its keyspace.
    pub user_key: &'a [u8],
    /// The segment of the flush.
    pub segment: FileId,
    /// The operands that go to the bucket, newest first.
    pub versions: &'a [KeyVersion],
    /// The newest base of the key in the flush: older operands are covered. 0 if there is none.
    pub base: Seqno,
}

type Lists = Cache<Box<[u8]>, Arc<OperandList>, BytesHeld, Hashing, GhostRecorder<Box<[u8]>, Arc<OperandList>>>;

/// A bounded, concurrent map from full keys to their lists. It takes memory once it holds the first list.
pub struct OperandCache {
    lists: OnceLock<Lists>,
    capacity_max: usize,
    /// Maximum memory of the lists; 0 disables the cache.
    capacity: AtomicU64,
    ghosts: Arc<Ghosts>,
    /// A flush runs: lists that are inserted now are not followed.
    is_flushing: RwLock<bool>,
    /// Look-ups that found a list of another state of the bucket.
    unfit: AtomicU64,
    misses: AtomicU64,
}

impl OperandCache {
    /// A cache of at most about `capacity_bytes_max`; its capacity is 0 at first.
    pub fn new(capacity_bytes_max: usize) -> OperandCache {
        OperandCache {
            lists: OnceLock::new(),
            capacity_max: capacity_bytes_max,
            capacity: AtomicU64::new(0),
            ghosts: Arc::default(),
            is_flushing: RwLock::new(false),
            unfit: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    fn open(&self) -> &Lists {
        self.lists.get_or_init(|| {
            let options = OptionsBuilder::new()
                .weight_capacity(self.capacity_max as u64)
                .estimated_items_capacity((self.capacity_max / LIST_BYTES_TYPICAL).max(1))
                .shards(shards(self.capacity_max))
                .build()
                .expect("both capacities of the cache are given");
            let recorder = GhostRecorder::new(self.ghosts.clone());
            let lists = Cache::with_options(options, BytesHeld, Hashing::default(), recorder);
            lists.set_capacity(self.capacity().max(1));
            lists
        })
    }

    /// The versions of a key that a reader needs, as [`OperandList::versions_in`], if they are cached.
    pub fn find(
        &self,
        full_key: &[u8],
        segments: impl Iterator<Item = FileId> + Clone,
        snapshot: Seqno,
        base: Seqno,
    ) -> Option<KeyVersions> {
        let lists = self.lists.get().filter(|_| self.capacity() > 0)?;
        let Some(list) = lists.get(full_key) else {
            self.note_absent(full_key);
            return None;
        };
        let found = list.versions_in(segments, snapshot, base);
        if found.is_none() {
            self.unfit.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// Counts a key without a list towards the [`demand`](OperandCache::demand), if it had one a short time before.
    pub fn note_absent(&self, full_key: &[u8]) {
        self.ghosts.note_miss(&full_key);
    }

    /// Counts a miss: the operands of a key were read from segments.
    pub fn note_miss(&self) {
        self.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Caches a list that was read from segments, if there is room. `is_newest` finds out whether the bucket is still as it was;
    /// called only while no flush runs.
    pub fn insert_read(&self, full_key: &[u8], mut list: OperandList, is_newest: impl FnOnce() -> bool) {
        if self.capacity() == 0 {
            return;
        }
        // A flush that begins after this sees the list.
        let is_flushing = self.is_flushing.read();
        list.is_followed = !*is_flushing && is_newest();
        self.insert(full_key, list);
    }

    /// A list of these versions is small enough to be cached, before any is copied.
    pub fn admits(&self, versions: &[KeyVersion]) -> bool {
        let bytes: usize = versions.iter().map(|(_, payload)| self.bytes_of(payload)).sum();
        bytes <= self.list_bytes_max()
    }

    /// Memory of a version in a list.
    pub fn bytes_of(&self, payload: &[u8]) -> usize {
        payload.len() + VERSION_BYTES
    }

    /// A larger list is not cached.
    pub fn list_bytes_max(&self) -> usize {
        (self.capacity() / PARTS_MIN) as usize
    }

    fn insert(&self, full_key: &[u8], list: OperandList) {
        let (key, list) = (Box::<[u8]>::from(full_key), Arc::new(list));
        match BytesHeld.weight(&key, &list) <= self.capacity() / PARTS_MIN {
            true => self.open().insert(key, list),
            false => self.remove(full_key),
        }
    }

    /// Puts a list in the place of another one of the key, if there still is one. This is neither an access nor an eviction.
    fn update(&self, full_key: &[u8], list: OperandList) {
        let Some(lists) = self.lists.get() else { return };
        let (key, list) = (Box::<[u8]>::from(full_key), Arc::new(list));
        match BytesHeld.weight(&key, &list) <= self.capacity() / PARTS_MIN {
            true => drop(lists.replace(key, list, true)),
            false => self.remove(full_key),
        }
    }

    /// Forgets a list.
    pub fn remove(&self, full_key: &[u8]) {
        if let Some(lists) = self.lists.get() {
            lists.remove(full_key);
        }
    }

    /// A list of the key is cached; the access is not recorded.
    pub fn holds(&self, full_key: &[u8]) -> bool {
        self.lists.get().is_some_and(|lists| lists.contains_key(full_key))
    }

    /// A list of the key is cached which has, as far as can be said before its base is known, what a reader at `snapshot` needs of
    /// a bucket with these segments, newest first. The access is not recorded.
    pub fn may_serve(&self, full_key: &[u8], segments: impl Iterator<Item = FileId> + Clone, snapshot: Seqno) -> bool {
        let list = self.lists.get().and_then(|lists| lists.peek(full_key));
        list.is_some_and(|list| list.may_serve(segments, snapshot))
    }

    /// No list is cached.
    pub fn is_empty(&self) -> bool {
        self.lists.get().is_none_or(|lists| lists.is_empty())
    }

    /// Adds to a list, if there is one, what a flush adds to the bucket. `segments` are those of the bucket before the
    /// flush, newest first.
    pub fn add(&self, full_key: &[u8], segments: &[FileId], added: &Added<'_>, operator: Option<&dyn MergeOperator>) {
        let Some(list) = self.lists.get().and_then(|lists| lists.peek(full_key)) else { return };
        match list.after(segments, added, operator) {
            Some(after) => self.update(full_key, after),
            None => self.remove(full_key),
        }
    }

    /// Replaces a list, if there is one, by what the job that rewrites buckets has left. The segment of the job must be
    /// published.
    pub fn replace(&self, full_key: &[u8], list: OperandList) {
        self.update(full_key, list);
    }

    /// Begins a flush. Until the returned guard is dropped, lists that readers insert are not followed.
    pub fn begin_flush(self: &Arc<Self>) -> Flushing {
        *self.is_flushing.write() = true;
        Flushing { cache: self.clone(), is_published: false }
    }

    /// Memory of the lists in the cache.
    pub fn weight(&self) -> u64 {
        self.lists.get().map_or(0, |lists| lists.weight())
    }

    /// The most that [`weight`](OperandCache::weight) may be.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity; lists that no longer fit go at once.
    pub fn set_capacity(&self, bytes: u64) {
        self.capacity.store(bytes, Ordering::Relaxed);
        let Some(lists) = self.lists.get() else { return };
        match bytes {
            // With capacity 0 the inner cache would lose its proportions.
            0 => lists.clear(),
            bytes => lists.set_capacity(bytes),
        }
    }

    /// Number of look-ups that found the operands.
    pub fn hits(&self) -> u64 {
        self.lists.get().map_or(0, |lists| lists.hits()).saturating_sub(self.unfit.load(Ordering::Relaxed))
    }

    /// Number of look-ups after which they were read from segments into lists that the cache may hold.
    pub fn misses(&self) -> u64 {
        self.misses.load(Ordering::Relaxed)
    }

    /// How much the cache would benefit from more memory.
    pub fn demand(&self) -> Demand {
        self.ghosts.demand()
    }

    /// Resets the counts of [`demand`](OperandCache::demand).
    pub fn reset_demand(&self) {
        self.ghosts.reset_demand();
    }
}

/// A flush that adds to lists. If it ends without its segment being published, the cache forgets all lists.
pub struct Flushing {
    cache: Arc<OperandCache>,
    is_published: bool,
}

impl Flushing {
    /// The segment of the flush is published.
    pub fn end(mut self) {
        self.is_published = true;
    }
}

impl Drop for Flushing {
    fn drop(&mut self) {
        if !self.is_published
            && let Some(lists) = self.cache.lists.get()
        {
            lists.clear();
        }
        *self.cache.is_flushing.write() = false;
    }
}

impl Weighter<Box<[u8]>, Arc<OperandList>> for BytesHeld {
    fn weight(&self, key: &Box<[u8]>, list: &Arc<OperandList>) -> u64 {
        (key.len() + list.bytes()) as u64 + OVERHEAD_BYTES
    }
}

#[cfg(test)]
#[path = "operand_cache_test.rs"]
mod tests;
