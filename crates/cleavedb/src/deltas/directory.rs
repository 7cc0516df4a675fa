//! The directory of buckets: an immutable ordered map by lower bound, replaced as a whole when an edit commits. Readers hold
//! it with their view and find the bucket of a key by binary search.
//!
//! A bucket lies within one keyspace. The first bucket of a keyspace begins with the keyspace, and each bucket ends where
//! the next one begins, so the buckets of a keyspace cover all its keys.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::base::key::prefix_end;
use crate::base::limits::KEYSPACE_PREFIX_BYTES;
use crate::base::{FileId, Seqno, verify};
use crate::format::buckets::{Extent, keyspace_of};

/// Memory of a bucket without its bounds and extents, with the headers of its allocations.
const BUCKET_BYTES: usize = size_of::<Bucket>() + 80;

/// One key range of the delta store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bucket {
    /// The first full key.
    pub lower: Vec<u8>,
    /// The first full key after it; `None` at the end of the last keyspace.
    pub upper: Option<Vec<u8>>,
    /// The parts of delta segments that hold its operands, newest first.
    pub extents: Vec<Extent>,
}

impl Bucket {
    /// The key lies before the end of the bucket.
    pub fn ends_after(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_none_or(|upper| key < &upper[..])
    }

    /// Bytes of keys and operands.
    pub fn bytes(&self) -> u64 {
        self.extents.iter().map(|extent| extent.bytes).sum()
    }

    /// Bytes that came since the bucket was last rewritten.
    pub fn bytes_newer(&self) -> u64 {
        self.extents.iter().rev().skip(1).map(|extent| extent.bytes).sum()
    }

    /// Versions.
    pub fn entries(&self) -> u64 {
        self.extents.iter().map(|extent| extent.entries).sum()
    }
}

/// The lower bounds of all buckets one behind the other, which a search by key looks at a dozen of: a bucket and its bound lie in
/// places of their own.
#[derive(Debug, Clone, Default)]
struct Bounds {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Bounds {
    fn of(buckets: &[Arc<Bucket>]) -> Bounds {
        let bytes = buckets.iter().flat_map(|bucket| &bucket.lower).copied().collect();
        let ends = buckets.iter().scan(0, |end, bucket| {
            *end += bucket.lower.len();
            Some(*end)
        });
        Bounds { bytes, ends: ends.collect() }
    }

    /// How many bounds are not above a key. O(log bounds).
    fn up_to(&self, key: &[u8]) -> usize {
        let (mut first, mut last) = (0, self.ends.len());
        while first < last {
            let middle = first + (last - first) / 2;
            let start = middle.checked_sub(1).map_or(0, |before| self.ends[before]);
            match &self.bytes[start..self.ends[middle]] <= key {
                true => first = middle + 1,
                false => last = middle,
            }
        }
        first
    }

    fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

/// All buckets.
#[derive(Debug, Clone, Default)]
pub struct Directory {
    buckets: Vec<Arc<Bucket>>,
    bounds: Bounds,
    seqno_min: Option<Seqno>,
    seqno_max: Seqno,
    extents_most: usize,
    bytes_newer_most: u64,
    memory_bytes: usize,
}

/// A change of some buckets, as an edit has it.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Lower bounds of buckets that are merged into the one before them, or that leave with their keyspace.
    pub removed: Vec<Vec<u8>>,
    /// Lower bounds, and all extents from now on.
    pub set: Vec<(Vec<u8>, Vec<Extent>)>,
}

impl Directory {
    /// The buckets with these lower bounds, ascending, and extents.
    pub fn new(buckets: impl IntoIterator<Item = (Vec<u8>, Vec<Extent>)>) -> Directory {
        let mut all: Vec<Bucket> = Vec::new();
        for (lower, extents) in buckets {
            let keyspace_end = lower.first_chunk::<KEYSPACE_PREFIX_BYTES>().and_then(|prefix| prefix_end(prefix));
            if let Some(before) = all.last_mut()
                && before.upper.as_ref().is_none_or(|upper| lower < *upper)
            {
                before.upper = Some(lower.clone());
            }
            all.push(Bucket { lower, upper: keyspace_end, extents });
        }
        verify!(all.is_sorted_by(|left, right| left.lower < right.lower), "buckets are in the order of their keys");
        Directory::of(all.into_iter().map(Arc::new).collect())
    }

    fn of(buckets: Vec<Arc<Bucket>>) -> Directory {
        let extents = || buckets.iter().flat_map(|bucket| &bucket.extents);
        let seqno_min = extents().map(|extent| extent.seqno_min).min();
        let seqno_max = extents().map(|extent| extent.seqno_max).max().unwrap_or_default();
        let bytes = |bucket: &Arc<Bucket>| {
            let bounds = bucket.lower.len() + bucket.upper.as_ref().map_or(0, Vec::len);
            BUCKET_BYTES + bounds + bucket.extents.len() * size_of::<Extent>()
        };
        let bounds = Bounds::of(&buckets);
        let memory_bytes = 2 * buckets.iter().map(bytes).sum::<usize>() + bounds.memory_bytes();
        let extents_most = buckets.iter().map(|bucket| bucket.extents.len()).max().unwrap_or_default();
        let bytes_newer_most = buckets.iter().map(|bucket| bucket.bytes_newer()).max().unwrap_or_default();
        Directory { seqno_min, seqno_max, extents_most, bytes_newer_most, memory_bytes, bounds, buckets }
    }

    /// The directory after a change. O(buckets).
    pub fn apply(&self, change: &Change) -> Directory {
        let mut all: std::collections::BTreeMap<&[u8], &[Extent]> =
            self.buckets.iter().map(|bucket| (&bucket.lower[..], &bucket.extents[..])).collect();
        for lower in &change.removed {
            all.remove(&lower[..]);
        }
        all.extend(change.set.iter().map(|(lower, extents)| (&lower[..], &extents[..])));
        Directory::new(all.into_iter().map(|(lower, extents)| (lower.to_vec(), extents.to_vec())))
    }

    /// A change of this directory that also removes buckets it leaves without extents: they join the bucket before them. The
    /// first of a keyspace goes only with the last. A bucket with extents takes in an empty one only if all of them are in
    /// `written`, the segment of the job: in others there may be versions of the empty bucket that were dropped, because
    /// a base covered them that may be gone.
    pub fn without_empty(&self, mut change: Change, written: Option<FileId>) -> Change {
        let after = self.apply(&change);
        let may_grow = |bucket: &Bucket| bucket.extents.iter().all(|extent| Some(extent.segment) == written);
        for of_keyspace in after.buckets.chunk_by(|left, right| keyspace_of(&left.lower) == keyspace_of(&right.lower)) {
            let all_empty = of_keyspace.iter().all(|bucket| bucket.extents.is_empty());
            let mut before: Option<&Bucket> = None;
            for bucket in of_keyspace {
                let is_taken_in = bucket.extents.is_empty() && before.is_some_and(may_grow);
                if !all_empty && !is_taken_in {
                    before = Some(bucket);
                    continue;
                }
                change.set.retain(|(lower, _)| *lower != bucket.lower);
                if self.find(&bucket.lower).is_some_and(|before| before.lower == bucket.lower)
                    && !change.removed.contains(&bucket.lower)
                {
                    change.removed.push(bucket.lower.clone());
                }
            }
        }
        change
    }

    /// All buckets, by key.
    pub fn buckets(&self) -> &[Arc<Bucket>] {
        &self.buckets
    }

    /// The lowest and highest sequence numbers of all extents, if there are any.
    pub fn seqnos(&self) -> Option<(Seqno, Seqno)> {
        self.seqno_min.map(|min| (min, self.seqno_max))
    }

    /// The bucket of a full key, if its keyspace has buckets. O(log buckets).
    pub fn find(&self, key: &[u8]) -> Option<&Arc<Bucket>> {
        let index = self.bounds.up_to(key).checked_sub(1)?;
        Some(&self.buckets[index]).filter(|bucket| bucket.ends_after(key))
    }

    /// The most extents of a bucket, and the most bytes that came to one since it was last rewritten. O(1).
    pub fn most(&self) -> (usize, u64) {
        (self.extents_most, self.bytes_newer_most)
    }

    /// Memory of the buckets and their lists of extents, here and in the manifest. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.memory_bytes
    }

    /// The buckets that overlap the keys from `start` up to, not including, `end`, as a range of [`Directory::buckets`].
    pub fn overlapping(&self, start: &[u8], end: Option<&[u8]>) -> Range<usize> {
        let first = self.buckets.partition_point(|bucket| !bucket.ends_after(start));
        let last = match end {
            Some(end) => self.buckets.partition_point(|bucket| &bucket.lower[..] < end),
            None => self.buckets.len(),
        };
        first..last.max(first)
    }

    /// A bucket that overlaps the keys from `start` up to, not including, `end` has a version that is not newer than `newest`.
    pub fn may_hold(&self, start: &[u8], end: &[u8], newest: Seqno) -> bool {
        let extents = |bucket: &Arc<Bucket>| bucket.extents.iter().any(|extent| extent.seqno_min <= newest);
        !self.buckets.is_empty() && self.buckets[self.overlapping(start, Some(end))].iter().any(extents)
    }

    /// The segments that have extents.
    pub fn segments(&self) -> BTreeSet<FileId> {
        self.buckets.iter().flat_map(|bucket| &bucket.extents).map(|extent| extent.segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(segment: u64, seqnos: (u64, u64)) -> Extent {
        let (seqno_min, seqno_max) = (Seqno(seqnos.0), Seqno(seqnos.1));
        Extent { segment: FileId(segment), entries: 1, bytes: 10, seqno_min, seqno_max }
    }

    fn key(keyspace: u8, user: &str) -> Vec<u8> {
        [&[0, 0, 0, keyspace], user.as_bytes()].concat()
    }

    fn directory() -> Directory {
        Directory::new([
            (key(1, ""), vec![extent(4, (5, 6))]),
            (key(1, "k"), Vec::new()),
            (key(3, ""), vec![extent(4, (7, 8)), extent(2, (1, 2))]),
        ])
    }

    #[test]
    fn a_key_is_found_in_the_bucket_of_its_keyspace_or_in_none() {
        let directory = directory();
        let found = |keyspace, user| directory.find(&key(keyspace, user)).map(|bucket| bucket.lower.clone());
        assert_eq!(found(1, "a"), Some(key(1, "")));
        assert_eq!(found(1, "k"), Some(key(1, "k")));
        assert_eq!(found(1, "zz"), Some(key(1, "k")));
        assert_eq!(found(2, "a"), None);
        assert_eq!(found(3, "a"), Some(key(3, "")));
        assert_eq!(found(4, "a"), None);
        assert_eq!(found(0, "a"), None);
        assert_eq!(directory.seqnos(), Some((Seqno(1), Seqno(8))));
        assert_eq!(directory.segments(), BTreeSet::from([FileId(2), FileId(4)]));
        assert!(Directory::default().memory_bytes() == 0 && directory.memory_bytes() > 6 * size_of::<Bucket>());
    }

    #[test]
    fn a_search_by_bounds_finds_what_a_look_at_every_bucket_finds() {
        for count in 0..20u8 {
            let buckets = (0..count).map(|number| (key(1 + number / 7, &"b".repeat((number % 7).into())), Vec::new()));
            let directory = Directory::new(buckets);
            for keyspace in 0..5 {
                for user in ["", "a", "b", "ba", "bb", "bbc", "bbbbbb", "c"] {
                    let key = key(keyspace, user);
                    let holds = |bucket: &&Arc<Bucket>| bucket.lower <= key && bucket.ends_after(&key);
                    assert_eq!(directory.find(&key), directory.buckets().iter().find(holds), "{count} {key:?}");
                }
            }
        }
    }

    #[test]
    fn buckets_that_overlap_a_range_are_listed() {
        let directory = directory();
        let over = |start: &[u8], end: Option<&[u8]>| directory.overlapping(start, end);
        assert_eq!(over(&key(1, "a"), Some(&key(1, "k"))), 0..1);
        assert_eq!(over(&key(1, "j"), Some(&key(1, "l"))), 0..2);
        assert_eq!(over(&key(2, ""), Some(&key(3, ""))), 2..2);
        assert_eq!(over(&key(2, ""), None), 2..3);
        assert_eq!(over(&key(4, ""), None), 3..3);
    }

    #[test]
    fn a_change_replaces_splits_and_removes_buckets() {
        let emptied = Change { removed: Vec::new(), set: vec![(key(1, ""), Vec::new()), (key(3, ""), Vec::new())] };
        let emptied = directory().without_empty(emptied, None);
        assert_eq!(emptied.removed, [key(1, ""), key(1, "k"), key(3, "")]);
        assert!(emptied.set.is_empty());
        // A bucket takes in an empty one only if nothing of that can be in its segments.
        let none = Change { removed: Vec::new(), set: Vec::new() };
        assert!(directory().without_empty(none.clone(), None).removed.is_empty());
        assert!(directory().without_empty(none.clone(), Some(FileId(2))).removed.is_empty());
        assert_eq!(directory().without_empty(none, Some(FileId(4))).removed, [key(1, "k")]);
        let change = Change {
            removed: vec![key(1, "k"), key(3, "")],
            set: vec![(key(1, ""), vec![extent(9, (5, 6))]), (key(1, "c"), vec![extent(9, (5, 6))])],
        };
        let after = directory().apply(&change);
        let bounds: Vec<_> =
            after.buckets().iter().map(|bucket| (bucket.lower.clone(), bucket.upper.clone())).collect();
        assert_eq!(bounds, [(key(1, ""), Some(key(1, "c"))), (key(1, "c"), Some(key(2, "")))]);
        assert_eq!(after.segments(), BTreeSet::from([FileId(9)]));
    }
}
