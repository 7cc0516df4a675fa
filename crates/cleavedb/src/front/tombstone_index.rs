//! The range tombstones of an index table, in the order in which they came, with a search that does not look at all of
//! them.
//!
//! Eight tombstones in a row share a *union*: the keys that at least one of them covers, as spans that do not touch. So
//! do eight such groups, and so on. Who looks for the newest tombstone that covers a key passes by a whole group if its
//! union does not hold the key. Older tombstones are never forgotten here, because a reader may be at any sequence number,
//! and a new one costs O(log² n) on average, however many others it overlaps.

use crate::base::Seqno;
use crate::base::tombstones::{RangeTombstone, Stretch};

/// Members of a group.
const FAN: usize = 8;
/// Groups of groups end here (4096 tombstones), so that no writer waits for a larger union.
const LEVELS_MAX: u32 = 4;
/// What a tombstone costs beside its keys: itself, and its places in unions.
const OVERHEAD_BYTES: usize = std::mem::size_of::<RangeTombstone>() + LEVELS_MAX as usize * std::mem::size_of::<Span>();

/// From where one tombstone starts to where another ends.
#[derive(Clone, Copy)]
struct Span {
    start_of: u32,
    end_of: u32,
}

/// Tombstones in order of age.
#[derive(Default)]
pub struct TombstoneIndex {
    tombstones: Vec<RangeTombstone>,
    /// `unions[l][i]` belongs to the `i`-th group of `FAN` to the power of `l + 1` tombstones, by key.
    unions: Vec<Vec<Vec<Span>>>,
}

/// A stretch whose ends are not copied yet.
#[derive(Default)]
struct Found<'a> {
    from: Option<&'a [u8]>,
    to: Option<&'a [u8]>,
    seqno: Seqno,
}

impl<'a> Found<'a> {
    fn narrow(&mut self, from: Option<&'a [u8]>, to: Option<&'a [u8]>) {
        self.from = self.from.max(from);
        self.to = match (self.to, to) {
            (Some(left), Some(right)) => Some(left.min(right)),
            (left, right) => left.or(right),
        };
    }
}

impl TombstoneIndex {
    /// Adds a tombstone, newer than all before; returns the memory that it takes, in bytes.
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

    /// The union of the group of `level` that begins with tombstone `first`, from those of its members.
    fn union_of(&self, level: usize, first: usize) -> Vec<Span> {
        let mut spans: Vec<Span> = match level.checked_sub(1) {
            None => {
                (first..first + FAN).map(|number| Span { start_of: number as u32, end_of: number as u32 }).collect()
            }
            Some(below) => {
                let member = first / FAN.pow(level as u32);
                self.unions[below][member..member + FAN].concat()
            }
        };
        // Stable, because it is quick where stretches are in order already.
        spans.sort_by_key(|span| self.start(span));
        let mut union: Vec<Span> = Vec::with_capacity(spans.len());
        for span in spans {
            match union.last_mut().filter(|last| self.start(&span) <= self.end(last)) {
                Some(last) if self.end(last) < self.end(&span) => last.end_of = span.end_of,
                Some(_) => {}
                None => union.push(span),
            }
        }
        union
    }

    fn start(&self, span: &Span) -> &[u8] {
        &self.tombstones[span.start_of as usize].start
    }

    fn end(&self, span: &Span) -> &[u8] {
        &self.tombstones[span.end_of as usize].end
    }

    /// All of them, oldest first.
    pub fn tombstones(&self) -> &[RangeTombstone] {
        &self.tombstones
    }

    /// The newest that covers `key` for a reader at `snapshot`; 0 if there is none. O(log² n).
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Seqno {
        self.find(key, snapshot).seqno
    }

    /// What a reader at `snapshot` sees around `key`.
    pub fn stretch(&self, key: &[u8], snapshot: Seqno) -> Stretch {
        let found = self.find(key, snapshot);
        Stretch { from: found.from.map(<[u8]>::to_vec), to: found.to.map(<[u8]>::to_vec), seqno: found.seqno }
    }

    fn find(&self, key: &[u8], snapshot: Seqno) -> Found<'_> {
        let mut found = Found::default();
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

    /// The size of the largest group ending before tombstone `at` that does not cover `key`, if there is one.
    fn group_without<'a>(&'a self, key: &[u8], at: usize, found: &mut Found<'a>) -> Option<usize> {
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
        fn the_newest_tombstone_is_found_and_its_stretch_is_true_for_each_key_in_it(
            ranges in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..3), proptest::collection::vec(0u8..4, 1..4)), 0..90),
            key in proptest::collection::vec(0u8..4, 0..4),
            others in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..4), 0..20),
            snapshot in 0u64..200,
        ) {
            let ranges: Vec<_> = ranges.into_iter().filter(|(start, end)| start < end).collect();
            let index = index_of(&ranges);
            let stretch = index.stretch(&key, Seqno(snapshot));
            prop_assert_eq!(stretch.seqno, naive(&ranges, &key, snapshot));
            prop_assert_eq!(index.cover(&key, Seqno(snapshot)), stretch.seqno);
            prop_assert!(stretch.holds(&key));
            for other in others.iter().filter(|other| stretch.holds(other)) {
                prop_assert_eq!(naive(&ranges, other, snapshot), stretch.seqno);
            }
        }
    }
}
