//! The merging cursor: a k-way merge of cursors, forward and backward.
//!
//! The valid sources form a binary heap whose top is the current version. While moving forward, every other source is
//! at its first version after the current one; while moving backward, at its last version before it. A change of
//! direction seeks all other sources again. Equal versions should not occur (each has its own sequence number); if they
//! do, the source with the lower number comes first. The heap stores the leading bytes of the keys, which decide most
//! comparisons without calls to the sources.
//!
//! Called by reads, scans, index merges and compactions.

use std::cmp::Ordering;

use super::cursor::{Cursor, compare, leading_bytes};
use super::error::Result;
use super::kind::Stamp;
use super::slice::Slice;

/// A merge of cursors, itself a [`Cursor`]. Sources are numbered by their place in the vector, newest first.
pub struct Merging<C> {
    sources: Vec<C>,
    /// The valid sources, as a heap ordered by [`comes_first`](Merging::comes_first).
    heap: Vec<Head>,
    backward: bool,
    /// A copy of the current key, used while the direction changes.
    pivot: Vec<u8>,
}

/// A valid source.
#[derive(Clone, Copy)]
struct Head {
    /// The leading bytes of the current key of the source.
    leading: u128,
    source: usize,
}

impl<C: Cursor> Merging<C> {
    /// A merge of `sources`, not positioned.
    pub fn new(sources: Vec<C>) -> Merging<C> {
        let heap = Vec::with_capacity(sources.len());
        Merging { sources, heap, backward: false, pivot: Vec::new() }
    }

    /// True if source `left` comes before `right` in the current direction.
    #[inline]
    fn comes_first(&self, left: Head, right: Head) -> bool {
        let order = left.leading.cmp(&right.leading).then_with(|| {
            let (a, b) = (&self.sources[left.source], &self.sources[right.source]);
            compare(a.key(), a.stamp(), b.key(), b.stamp()).then(left.source.cmp(&right.source))
        });
        order == if self.backward { Ordering::Greater } else { Ordering::Less }
    }

    fn head(&self, source: usize) -> Head {
        Head { leading: leading_bytes(self.sources[source].key()), source }
    }

    fn sift_down(&mut self, mut parent: usize) {
        loop {
            let mut child = 2 * parent + 1;
            if child >= self.heap.len() {
                return;
            }
            if child + 1 < self.heap.len() && self.comes_first(self.heap[child + 1], self.heap[child]) {
                child += 1;
            }
            if !self.comes_first(self.heap[child], self.heap[parent]) {
                return;
            }
            self.heap.swap(parent, child);
            parent = child;
        }
    }

    /// Moves every source with `position` and rebuilds the heap. After an error the merge is not positioned.
    fn reposition(&mut self, backward: bool, mut position: impl FnMut(usize, &mut C) -> Result<()>) -> Result<()> {
        self.heap.clear();
        self.backward = backward;
        for (index, source) in self.sources.iter_mut().enumerate() {
            position(index, source)?;
        }
        let mut heap = std::mem::take(&mut self.heap);
        heap.extend((0..self.sources.len()).filter(|&index| self.sources[index].valid()).map(|index| self.head(index)));
        self.heap = heap;
        for parent in (0..self.heap.len() / 2).rev() {
            self.sift_down(parent);
        }
        Ok(())
    }

    /// Changes the direction: every other source moves to its version next to the current one on the other side.
    fn change_direction(&mut self, backward: bool) -> Result<()> {
        let current = self.heap[0].source;
        let stamp = self.sources[current].stamp();
        // The position directly after the current version.
        let just_after = Stamp(stamp.0.saturating_sub(1));
        let mut pivot = std::mem::take(&mut self.pivot);
        pivot.clear();
        pivot.extend_from_slice(self.sources[current].key());
        let moved = self.reposition(backward, |index, source| match index.cmp(&current) {
            Ordering::Equal => Ok(()),
            Ordering::Less if backward => source.seek_before(&pivot, just_after),
            Ordering::Greater if backward => source.seek_before(&pivot, stamp),
            Ordering::Less => source.seek(&pivot, just_after),
            Ordering::Greater => source.seek(&pivot, stamp),
        });
        self.pivot = pivot;
        moved
    }

    /// Moves the current source by one version in the current direction.
    fn advance(&mut self) -> Result<()> {
        let index = self.heap[0].source;
        let source = &mut self.sources[index];
        let moved = if self.backward { source.prev() } else { source.next() };
        if moved.is_err() {
            self.heap.clear();
            return moved;
        }
        match source.valid() {
            true => self.heap[0].leading = leading_bytes(source.key()),
            false => drop(self.heap.swap_remove(0)),
        }
        self.sift_down(0);
        Ok(())
    }

    /// Skips the keys from `from` (inclusive) to `to` (exclusive) in the sources numbered `first` and higher, in the
    /// current direction. One seek per source that is positioned there. The merge must be positioned.
    pub fn skip_range(&mut self, first: usize, from: &[u8], to: &[u8]) -> Result<()> {
        let backward = self.backward;
        self.reposition(backward, |index, source| match source.valid() && index >= first {
            true if backward && source.key() >= from => source.seek_before(from, Stamp::NEWEST),
            true if !backward && source.key() < to => source.seek(to, Stamp::NEWEST),
            _ => Ok(()),
        })
    }

    /// Skips versions of `key`, the current key, in the current direction: forward to the first version at or after
    /// `stamp`, backward to the last one before it. One seek per source that is positioned on the key; the others,
    /// which may have skipped a range, do not move.
    pub fn skip(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let backward = self.backward;
        self.reposition(backward, |_, source| match source.valid() && source.key() == key {
            true if backward && source.stamp() <= stamp => source.seek_before(key, stamp),
            true if !backward && source.stamp() > stamp => source.seek(key, stamp),
            _ => Ok(()),
        })
    }

    fn current(&self) -> &C {
        &self.sources[self.heap[0].source]
    }
}

impl<C: Cursor> Cursor for Merging<C> {
    fn valid(&self) -> bool {
        !self.heap.is_empty()
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn stamp(&self) -> Stamp {
        self.current().stamp()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.reposition(false, |_, source| source.seek(key, stamp))
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.reposition(true, |_, source| source.seek_before(key, stamp))
    }

    fn seek_first(&mut self) -> Result<()> {
        self.reposition(false, |_, source| source.seek_first())
    }

    fn seek_last(&mut self) -> Result<()> {
        self.reposition(true, |_, source| source.seek_last())
    }

    fn next(&mut self) -> Result<()> {
        if self.backward {
            self.change_direction(false)?;
        }
        self.advance()
    }

    fn prev(&mut self) -> Result<()> {
        if !self.backward {
            self.change_direction(true)?;
        }
        self.advance()
    }
}

#[cfg(test)]
mod tests {
    use super::super::cursor::model::{Step, VecCursor, Version, assert_same_walk, sort};
    use super::super::error::Error;
    use super::super::kind::{Kind, Seqno};
    use super::*;
    use proptest::prelude::*;

    fn version(key: &[u8], seqno: u64, value: &str) -> Version {
        (key.to_vec(), Stamp::new(Seqno(seqno), Kind::Put), value.as_bytes().to_vec())
    }

    fn values(cursor: &mut impl Cursor) -> Vec<String> {
        let mut values = Vec::new();
        while cursor.valid() {
            values.push(String::from_utf8(cursor.value().to_vec()).unwrap());
            cursor.next().unwrap();
        }
        values
    }

    #[test]
    fn a_merge_without_versions_is_never_valid() {
        let mut merging = Merging::<VecCursor>::new(Vec::new());
        merging.seek_first().unwrap();
        assert!(!merging.valid());
        let mut merging = Merging::new(vec![VecCursor::new(Vec::new()), VecCursor::new(Vec::new())]);
        merging.seek_last().unwrap();
        assert!(!merging.valid());
    }

    #[test]
    fn of_equal_versions_the_lower_source_comes_first_in_both_directions() {
        let source = |name: &str| VecCursor::new(vec![version(b"a", 1, "low"), version(b"k", 5, name)]);
        let mut merging = Merging::new(vec![source("newer"), source("older")]);
        merging.seek(b"k", Stamp::NEWEST).unwrap();
        assert_eq!(values(&mut merging), ["newer", "older"]);
        merging.seek_last().unwrap();
        assert_eq!(merging.value(), b"older");
        merging.prev().unwrap();
        assert_eq!(merging.value(), b"newer");
        merging.next().unwrap();
        assert_eq!(merging.value(), b"older");
        merging.prev().unwrap();
        assert_eq!(merging.value(), b"newer");
        merging.prev().unwrap();
        assert_eq!(merging.value(), b"low");
    }

    /// A cursor whose moves fail.
    struct Failing(VecCursor);

    impl Cursor for Failing {
        fn valid(&self) -> bool {
            self.0.valid()
        }
        fn key(&self) -> &[u8] {
            self.0.key()
        }
        fn stamp(&self) -> Stamp {
            self.0.stamp()
        }
        fn value(&self) -> &[u8] {
            self.0.value()
        }
        fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
            self.0.seek(key, stamp)
        }
        fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
            self.0.seek_before(key, stamp)
        }
        fn seek_first(&mut self) -> Result<()> {
            self.0.seek_first()
        }
        fn seek_last(&mut self) -> Result<()> {
            Err(Error::Closed)
        }
        fn next(&mut self) -> Result<()> {
            Err(Error::Closed)
        }
        fn prev(&mut self) -> Result<()> {
            Err(Error::Closed)
        }
    }

    #[test]
    fn a_failing_source_leaves_the_merge_not_positioned() {
        let failing = Failing(VecCursor::new(vec![version(b"a", 1, "x"), version(b"b", 2, "y")]));
        let mut merging = Merging::new(vec![failing]);
        merging.seek_first().unwrap();
        assert!(merging.valid());
        assert!(merging.next().is_err() && !merging.valid());
        merging.seek_first().unwrap();
        assert!(merging.seek_last().is_err() && !merging.valid());
    }

    #[test]
    fn older_sources_skip_the_versions_that_a_newer_source_covers_in_both_directions() {
        let put = |key: &[u8], seqno| version(key, seqno, &format!("{}{seqno}", key[0] as char));
        let newer = VecCursor::new(vec![put(b"a", 9), put(b"c", 9), put(b"z", 9)]);
        let older = VecCursor::new(vec![put(b"a", 1), put(b"b", 1), put(b"c", 1), put(b"d", 1), put(b"e", 1)]);
        let mut merging = Merging::new(vec![newer, older]);
        merging.seek_first().unwrap();
        merging.skip_range(1, b"a", b"d").unwrap();
        assert_eq!(values(&mut merging), ["a9", "c9", "d1", "e1", "z9"]);
        merging.seek_last().unwrap();
        merging.skip_range(1, b"c", b"f").unwrap();
        let mut found = Vec::new();
        while merging.valid() {
            found.push(String::from_utf8(merging.value().to_vec()).unwrap());
            merging.prev().unwrap();
        }
        assert_eq!(found, ["z9", "c9", "b1", "a1", "a9"]);
    }

    #[test]
    fn skipping_versions_of_a_key_does_not_undo_an_earlier_skip_of_a_range() {
        let newer = VecCursor::new(vec![version(b"b", 9, "b9"), version(b"b", 7, "b7"), version(b"b", 5, "b5")]);
        let older = ["a", "b", "c", "d"].map(|key| version(key.as_bytes(), 1, &format!("{key}1")));
        let mut merging = Merging::new(vec![newer, VecCursor::new(older.to_vec())]);
        merging.seek_first().unwrap();
        merging.skip_range(1, b"a", b"d").unwrap();
        merging.skip(b"b", Stamp::at(Seqno(7))).unwrap();
        assert_eq!(merging.value(), b"b7");
        merging.skip(b"b", Stamp::OLDEST).unwrap();
        assert_eq!(values(&mut merging), ["d1"]);
        merging.seek_last().unwrap();
        merging.skip_range(1, b"b", b"e").unwrap();
        assert_eq!(merging.value(), b"b5");
        merging.skip(b"b", Stamp::NEWEST).unwrap();
        assert_eq!(merging.value(), b"a1");
        merging.prev().unwrap();
        assert!(!merging.valid());
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(0u8..3, 0..4)
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let stamp = (0u64..70).prop_map(|seqno| Stamp::at(Seqno(seqno)));
        let step = prop_oneof![
            1 => (keys(), stamp.clone()).prop_map(|(key, stamp)| Step::Seek(key, stamp)),
            1 => (keys(), stamp).prop_map(|(key, stamp)| Step::SeekBefore(key, stamp)),
            1 => Just(Step::SeekFirst),
            1 => Just(Step::SeekLast),
            6 => Just(Step::Next),
            6 => Just(Step::Prev),
        ];
        proptest::collection::vec(step, 1..60)
    }

    proptest! {
        #[test]
        fn any_walk_over_a_merge_equals_the_walk_over_one_sorted_vector(
            keys in proptest::collection::vec((keys(), 0usize..5), 0..60),
            source_count in 1usize..6,
            steps in steps(),
        ) {
            let mut all = Vec::new();
            let mut parts = vec![Vec::new(); source_count];
            for (index, (key, part)) in keys.iter().enumerate() {
                let version = version(key, index as u64 + 1, &format!("value {index}"));
                all.push(version.clone());
                parts[part % source_count].push(version);
            }
            sort(&mut all);
            parts.iter_mut().for_each(|part| sort(part));
            let mut merging = Merging::new(parts.into_iter().map(VecCursor::new).collect());
            assert_same_walk(&mut merging, &mut VecCursor::new(all), &steps);
        }
    }
}
