//! One shard of the index: the segments of the directory, by the lowest hash of each, and the policy by which buckets split and
//! join. A shard has one writer at a time or many readers; its owner has the lock.

use std::collections::BTreeMap;

use super::bucket::Bucket;
use super::bulk::Bulk;
use super::directory::{DEPTH_MAX, Segment, Split};
use super::place::Place;
use crate::base::verify;

/// A bucket with more keys is split. Two neighbours that together have at most half as many are joined.
pub const BUCKET_KEYS_MAX: usize = 48;
/// A bucket is not split if its keys share more than this many further bits: slots would be doubled for little.
pub const REACH_BITS: u8 = 8;

/// What a segment takes in the map, whose nodes are at least half full.
const IN_MAP_BYTES: usize = 2 * (size_of::<u64>() + size_of::<Segment>());

/// The hash of a key.
pub type HashOf<'a> = &'a dyn Fn(&[u8]) -> u64;

/// The keys whose hashes begin with the bits of the shard.
#[derive(Debug)]
pub struct Shard {
    segments: BTreeMap<u64, Segment>,
    keys: usize,
    memory_bytes: usize,
    /// [`BUCKET_KEYS_MAX`], but in tests.
    bucket_keys_max: usize,
    changes: BucketChanges,
}

/// How often buckets were split, and joined.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BucketChanges {
    /// Splits.
    pub splits: u64,
    /// Joins.
    pub joins: u64,
}

impl Shard {
    /// An empty shard: `first` is its lowest hash, of which it has `bits` bits.
    pub fn new(first: u64, bits: u8, bucket_keys_max: usize) -> Shard {
        let segment = Segment::new(bits);
        let memory_bytes = IN_MAP_BYTES + segment.memory_bytes();
        let segments = BTreeMap::from([(first, segment)]);
        Shard { segments, keys: 0, memory_bytes, bucket_keys_max, changes: BucketChanges::default() }
    }

    /// Puts keys, which are sorted, into an empty shard: those of [`new`](Shard::new) with the same arguments.
    pub fn fill(&mut self, first: u64, bits: u8, keys: &Bulk) {
        verify!(self.keys == 0, "only an empty shard is filled");
        let mut segments = BTreeMap::new();
        keys.segments(first, bits, self.bucket_keys_max, &mut |first, segment| {
            segments.insert(first, segment);
        });
        self.memory_bytes = segments.values().map(|segment| IN_MAP_BYTES + segment.memory_bytes()).sum();
        self.keys = keys.len();
        self.segments = segments;
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys
    }

    /// How often its buckets were split and joined.
    pub fn changes(&self) -> BucketChanges {
        self.changes
    }

    /// The memory of the shard.
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The place of a key.
    pub fn get(&self, hash: u64, key: &[u8]) -> Option<Place> {
        self.segment(hash).bucket(hash).get(tag_of(hash), key)
    }

    /// Sets the place of a key; returns the one before.
    pub fn insert(&mut self, hash: u64, key: &[u8], place: Place, hash_of: HashOf<'_>) -> Option<Place> {
        let before =
            self.change(hash, |segment| segment.change_bucket(hash, |bucket| bucket.put(tag_of(hash), key, place)));
        if before.is_none() {
            self.keys += 1;
            // A bucket that cannot be split is looked at again after as many more keys.
            if self.segment(hash).bucket(hash).len().is_multiple_of(self.bucket_keys_max + 1) {
                self.split_bucket(hash, hash_of);
            }
        }
        before
    }

    /// Removes a key; returns its place.
    pub fn remove(&mut self, hash: u64, key: &[u8]) -> Option<Place> {
        let before =
            self.change(hash, |segment| segment.change_bucket(hash, |bucket| bucket.remove(tag_of(hash), key)))?;
        self.keys -= 1;
        let joined_keys_max = self.bucket_keys_max / 2;
        while self.change(hash, |segment| segment.join_bucket(hash, joined_keys_max)) {
            self.changes.joins += 1;
        }
        Some(before)
    }

    /// Visits the keys of the bucket of `hash`; returns the first hash after it, which wraps to 0 behind the last.
    pub fn for_bucket(&self, hash: u64, see: &mut dyn FnMut(&[u8], Place)) -> u64 {
        let bucket = self.segment(hash).bucket(hash);
        bucket.for_each(see);
        let width = 1 << (64 - bucket.depth);
        (hash & !(width - 1)).wrapping_add(width)
    }

    /// As [`memory_bytes`](Shard::memory_bytes), counted anew.
    #[cfg(test)]
    pub fn count_memory(&self) -> usize {
        self.segments.values().map(|segment| IN_MAP_BYTES + segment.count_memory()).sum()
    }

    /// The number of segments.
    #[cfg(test)]
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The hashes of the segment of a hash.
    #[cfg(test)]
    pub fn segment_range(&self, hash: u64) -> std::ops::RangeInclusive<u64> {
        let after = |from: u64| self.segments.range(from..).next().map_or(u64::MAX, |(first, _)| first - 1);
        let first = self.segments.range(..=hash).next_back().map_or(0, |(first, _)| *first);
        first..=hash.checked_add(1).map_or(u64::MAX, after)
    }

    /// Address and length of what all segments have allocated, and of the entries of those that begin with these hashes.
    #[cfg(test)]
    pub fn allocations(&self, hashes: std::ops::RangeInclusive<u64>) -> Vec<(usize, usize)> {
        let entries = self.segments.range(hashes).flat_map(|(_, segment)| segment.entry_allocations());
        self.segments.values().flat_map(Segment::allocations).chain(entries).collect()
    }

    /// The segment of a hash.
    pub fn segment(&self, hash: u64) -> &Segment {
        let (_, segment) = self.segments.range(..=hash).next_back().expect("segments cover all hashes of a shard");
        segment
    }

    /// Splits the bucket of `hash` until its keys are apart, unless they share too many bits.
    fn split_bucket(&mut self, hash: u64, hash_of: HashOf<'_>) {
        let (depth, shared) = shared_bits(self.segment(hash).bucket(hash), hash, hash_of);
        if shared > depth + REACH_BITS || shared >= DEPTH_MAX {
            return;
        }
        while self.segment(hash).bucket(hash).depth <= shared {
            match self.change(hash, |segment| segment.split_bucket(hash, hash_of)) {
                Split::Done => self.changes.splits += 1,
                Split::SegmentIsFull => self.split_segment(hash),
            }
        }
    }

    fn split_segment(&mut self, hash: u64) {
        let (first, segment) =
            self.segments.range_mut(..=hash).next_back().expect("segments cover all hashes of a shard");
        let before = segment.memory_bytes();
        let upper = segment.split();
        let upper_first = first | 1 << (64 - upper.base());
        self.memory_bytes = self.memory_bytes + IN_MAP_BYTES + segment.memory_bytes() + upper.memory_bytes() - before;
        self.segments.insert(upper_first, upper);
    }

    /// Changes the segment of a hash and counts its memory.
    fn change<R>(&mut self, hash: u64, change: impl FnOnce(&mut Segment) -> R) -> R {
        let (_, segment) = self.segments.range_mut(..=hash).next_back().expect("segments cover all hashes of a shard");
        let before = segment.memory_bytes();
        let result = change(segment);
        self.memory_bytes = self.memory_bytes + segment.memory_bytes() - before;
        result
    }
}

/// The byte of a hash by which buckets tell most keys apart.
pub fn tag_of(hash: u64) -> u8 {
    hash as u8
}

/// The depth of a bucket, and how many first bits the hashes of all its keys share with `hash`.
fn shared_bits(bucket: &Bucket, hash: u64, hash_of: HashOf<'_>) -> (u8, u8) {
    let mut different = 0;
    bucket.for_each(|key, _| different |= hash_of(key) ^ hash);
    (bucket.depth, different.leading_zeros() as u8)
}
