//! The range tombstones of an index table, in order of age, with a search that skips most of them.
//!
//! Each group of eight consecutive tombstones has a *union*: the keys that at least one of them covers, as spans that
//! do not touch. Eight groups form a group of the next level, and so on. The search for the newest tombstone that
//! covers a key skips a group if its union does not contain the key. Older tombstones are never dropped here, because a
//! reader may use any sequence number. An insertion costs O(log² n) on average, however many tombstones overlap.
//!
//! Owned by the index table.

use crate::base::Seqno;
use crate::base::tombstones::{RangeTombstone, TombstoneSpan};

/// Members of a group.
const FAN: usize = 8;
/// Number of levels: the largest group has 4096 tombstones, so that no insertion computes a larger union.
const LEVELS_MAX: u32 = 4;
/// Memory of a tombstone in addition to its keys: the tombstone itself, and its spans in unions.
const OVERHEAD_BYTES: usize =
    std::mem::size_of::<RangeTombstone>() + LEVELS_MAX as usize * std::mem::size_of::<UnionSpan>();

/// The keys from the start of one tombstone to the end of another, by their positions.
#[derive(Clone, Copy)]
struct UnionSpan {
    start_of: u32,
    end_of: u32,
}

/// Tombstones in order of age.
#[derive(Default)]
pub struct TombstoneIndex {
    tombstones: Vec<RangeTombstone>,
    /// `unions[l][i]` is the union of the `i`-th group of `FAN` to the power of `l + 1` tombstones, sorted by key.
    unions: Vec<Vec<Vec<UnionSpan>>>,
}

/// A [`TombstoneSpan`] with borrowed bounds.
#[derive(Default)]
struct BorrowedSpan<'a> {
    from: Option<&'a [u8]>,
    to: Option<&'a [u8]>,
    seqno: Seqno,
}

impl<'a> BorrowedSpan<'a> {
    fn narrow(&mut self, from: Option<&'a [u8]>, to: Option<&'a [u8]>) {
        self.from = self.from.max(from);
        self.to = match (self.to, to) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
    }
}

impl TombstoneIndex {
    /// Adds a tombstone, which must be newer than all others; returns the memory that it uses, in bytes.
    pub fn push(&mut self, start: Vec<u8>, end: Vec<u8>, seqno: Seqno) -> usize {
        let bytes = OVERHEAD_BYTES + start.len() + end.len();
        self.tombstones.push(RangeTombstone { start, end, seqno });
        for level in 0..LEVELS_MAX {
            let size = FAN.pow(level + 1);
            if !self.tombstones.len().is_multiple_of(size) {
                break;
            }
            let union = self.union_of(level as usize, self.tombstones.len() - size);
            if self.unions.len() == level as usize {
                self.unions.push(Vec::new());
            }
            self.unions[level as usize].push(union);
        }
        bytes
    }

    /// The union of the group of `level` that starts with tombstone `first`, computed from the unions of its members.
    fn union_of(&self, level: usize, first: usize) -> Vec<UnionSpan> {
        let mut spans: Vec<UnionSpan> = match level.checked_sub(1) {
            None => (first..first + FAN)
                .map(|number| UnionSpan { start_of: number as u32, end_of: number as u32 })
                .collect(),
            Some(below) => {
                let member = first / FAN.pow(level as u32);
                self.unions[below][member..member + FAN].concat()
            }
        };
        // The stable sort is fast on runs that are sorted already.
        spans.sort_by_key(|span| self.start(span));
        let mut union: Vec<UnionSpan> = Vec::with_capacity(spans.len());
        for span in spans {
            match union.last_mut().filter(|last| self.start(&span) <= self.end(last)) {
                Some(last) if self.end(last) < self.end(&span) => last.end_of = span.end_of,
                Some(_) => {}
                None => union.push(span),
            }
        }
        union
    }

    fn start(&self, span: &UnionSpan) -> &[u8] {
        &self.tombstones[span.start_of as usize].start
    }

    fn end(&self, span: &UnionSpan) -> &[u8] {
        &self.tombstones[span.end_of as usize].end
    }

    /// All tombstones, oldest first.
    pub fn tombstones(&self) -> &[RangeTombstone] {
        &self.tombstones
    }

    /// The newest tombstone that covers `key` for a reader at `snapshot`; 0 if there is none. O(log² n).
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Seqno {
        self.find(key, snapshot).seqno
    }

    /// The newest tombstone that a reader at `snapshot` sees at `key`, and the span of keys for which it is the same.
    pub fn span_at(&self, key: &[u8], snapshot: Seqno) -> TombstoneSpan {
        let found = self.find(key, snapshot);
        TombstoneSpan { from: found.from.map(<[u8]>::to_vec), to: found.to.map(<[u8]>::to_vec), seqno: found.seqno }
    }

    fn find(&self, key: &[u8], snapshot: Seqno) -> BorrowedSpan<'_> {
        let mut found = BorrowedSpan::default();
        let mut at = self.tombstones.partition_point(|tombstone| tombstone.seqno <= snapshot);
        while at > 0 {
            if let Some(size) = self.group_without(key, at, &mut found) {
                at -= size;
                continue;
            }
            let RangeTombstone { start, end, seqno } = &self.tombstones[at - 1];
            if key < start.as_slice() {
                found.narrow(None, Some(start));
            } else if key >= end.as_slice() {
                found.narrow(Some(end), None);
            } else {
                found.narrow(Some(start), Some(end));
                found.seqno = *seqno;
                break;
            }
            at -= 1;
        }
        found
    }

    /// The size of the largest group that ends before tombstone `at` and does not cover `key`, if there is one.
    fn group_without<'a>(&'a self, key: &[u8], at: usize, found: &mut BorrowedSpan<'a>) -> Option<usize> {
        for (level, unions) in self.unions.iter().enumerate().rev() {
            let size = FAN.pow(level as u32 + 1);
            if !at.is_multiple_of(size) {
                continue;
            }
            let union = &unions[at / size - 1];
            let after = union.partition_point(|span| self.start(span) <= key);
            let before = after.checked_sub(1).map(|before| self.end(&union[before]));
            if before.is_none_or(|end| end <= key) {
                found.narrow(before, union.get(after).map(|span| self.start(span)));
                return Some(size);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn index_of(ranges: &[(Vec<u8>, Vec<u8>)]) -> TombstoneIndex {
        let mut index = TombstoneIndex::default();
        for (number, (start, end)) in ranges.iter().enumerate() {
            index.push(start.clone(), end.clone(), Seqno(number as u64 * 2 + 2));
        }
        index
    }

    fn naive(ranges: &[(Vec<u8>, Vec<u8>)], key: &[u8], snapshot: u64) -> Seqno {
        let covers = |&(number, (start, end)): &(usize, &(Vec<u8>, Vec<u8>))| {
            number as u64 * 2 + 2 <= snapshot && start.as_slice() <= key && key < end.as_slice()
        };
        let newest = ranges.iter().enumerate().filter(covers).map(|(number, _)| number as u64 * 2 + 2).max();
        Seqno(newest.unwrap_or(0))
    }

    #[test]
    fn thousands_of_overlapping_tombstones_share_small_unions() {
        let ranges: Vec<_> = (0..5000u32).map(|number| (b"a".to_vec(), format!("b{number:05}").into_bytes())).collect();
        let index = index_of(&ranges);
        assert_eq!(index.unions.iter().map(Vec::len).collect::<Vec<_>>(), [625, 78, 9, 1]);
        assert!(index.unions.iter().flatten().all(|union| union.len() == 1));
        assert_eq!(index.cover(b"b04998x", Seqno::MAX), Seqno(10_000));
        assert_eq!(index.cover(b"b05000", Seqno::MAX), Seqno::ZERO);
        assert_eq!(index.cover(b"aa", Seqno(11)), Seqno(10));
    }

    proptest! {
        #[test]
        fn the_newest_tombstone_is_found_and_is_the_same_for_each_key_of_its_span(
            ranges in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..3), proptest::collection::vec(0u8..4, 1..4)), 0..90),
            key in proptest::collection::vec(0u8..4, 0..4),
            others in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..4), 0..20),
            snapshot in 0u64..200,
        ) {
            let ranges: Vec<_> = ranges.into_iter().filter(|(start, end)| start < end).collect();
            let index = index_of(&ranges);
            let span = index.span_at(&key, Seqno(snapshot));
            prop_assert_eq!(span.seqno, naive(&ranges, &key, snapshot));
            prop_assert_eq!(index.cover(&key, Seqno(snapshot)), span.seqno);
            prop_assert!(span.holds(&key));
            for other in others.iter().filter(|other| span.holds(other)) {
                prop_assert_eq!(naive(&ranges, other, snapshot), span.seqno);
            }
        }
    }
}
