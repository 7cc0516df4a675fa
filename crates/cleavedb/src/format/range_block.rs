//! The block of range tombstones: a sorted block of fragments, in tables and in runs. Key and stamp of an entry are the
//! first key of the fragment and its newest number; the value holds the first key after it and the older numbers. So a
//! key is looked up by one search in the block, without decoding the rest of it.
//!
//! Diagram: `docs/formats/table.md`. Written by the table builder and by runs.

use std::sync::Arc;

use super::block::{BlockBuilder, BlockCursor, BlockOrigin};
use crate::base::tombstones::{Fragment, Stretch};
use crate::base::{Buffer, Cursor, Error, Kind, Result, Seqno, Stamp, varint};

/// Every search reads this many fragments at most.
const RESTART_ENTRIES: usize = 4;

/// Collects fragments, in order, into a block.
pub struct RangeBlockBuilder {
    block: BlockBuilder,
    value: Vec<u8>,
}

impl Default for RangeBlockBuilder {
    fn default() -> RangeBlockBuilder {
        RangeBlockBuilder { block: BlockBuilder::with_restart_every(RESTART_ENTRIES), value: Vec::new() }
    }
}

impl RangeBlockBuilder {
    /// Appends a fragment; it must lie behind the one before.
    pub fn add(&mut self, fragment: &Fragment) {
        self.value.clear();
        varint::put_bytes(&mut self.value, &fragment.end);
        for pair in fragment.seqnos.windows(2) {
            varint::put(&mut self.value, pair[0].0 - pair[1].0);
        }
        let newest = fragment.seqnos.first().expect("a fragment has at least one sequence number");
        self.block.add(&fragment.start, Stamp::new(*newest, Kind::DeleteRange), &self.value);
    }

    /// The block; the builder is empty again.
    pub fn finish(&mut self) -> Vec<u8> {
        self.block.finish()
    }
}

/// A block of fragments, open for reading.
pub struct RangeBlock {
    block: Arc<Buffer>,
    origin: BlockOrigin,
}

/// The value of an entry.
struct FragmentEntry<'a> {
    end: &'a [u8],
    /// The newest number, and what leads to the older ones.
    newest: Seqno,
    older: &'a [u8],
}

impl<'a> FragmentEntry<'a> {
    fn decode(stamp: Stamp, mut value: &'a [u8]) -> Option<FragmentEntry<'a>> {
        let end = varint::take_bytes(&mut value)?;
        (stamp.kind() == Some(Kind::DeleteRange)).then_some(FragmentEntry { end, newest: stamp.seqno(), older: value })
    }

    /// Its numbers, newest first; `None` for one that does not go down.
    fn seqnos(&self) -> impl Iterator<Item = Option<Seqno>> {
        let mut older = self.older;
        let mut last = Some(self.newest);
        std::iter::once(last).chain(std::iter::from_fn(move || {
            if older.is_empty() {
                return None;
            }
            let step = varint::take(&mut older).filter(|&step| step > 0);
            last = step.and_then(|step| Some(Seqno(last?.0.checked_sub(step)?)));
            if last.is_none() {
                older = &[];
            }
            Some(last)
        }))
    }
}

impl RangeBlock {
    /// Reads `block`, which came from `origin`.
    pub fn new(block: Arc<Buffer>, origin: BlockOrigin) -> RangeBlock {
        RangeBlock { block, origin }
    }

    fn cursor(&self) -> Result<BlockCursor> {
        BlockCursor::new(self.block.clone(), self.origin.clone())
    }

    fn entry<'a>(&self, cursor: &'a BlockCursor) -> Result<FragmentEntry<'a>> {
        FragmentEntry::decode(cursor.stamp(), cursor.value()).ok_or_else(|| self.damaged())
    }

    #[cold]
    fn damaged(&self) -> Error {
        Error::corruption(&self.origin.path, self.origin.offset, "a block of range tombstones holds a bad entry")
    }

    /// The newest number that a reader at `snapshot` sees in a fragment; 0 if there is none.
    fn visible(&self, entry: &FragmentEntry<'_>, snapshot: Seqno) -> Result<Seqno> {
        for seqno in entry.seqnos() {
            let seqno = seqno.ok_or_else(|| self.damaged())?;
            if seqno <= snapshot {
                return Ok(seqno);
            }
        }
        Ok(Seqno::ZERO)
    }

    /// The newest tombstone that covers `key` for a reader at `snapshot`; 0 if there is none. O(log n).
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Result<Seqno> {
        let mut cursor = self.cursor()?;
        cursor.seek_before(key, Stamp::OLDEST)?;
        if !cursor.valid() {
            return Ok(Seqno::ZERO);
        }
        let entry = self.entry(&cursor)?;
        if key < entry.end { self.visible(&entry, snapshot) } else { Ok(Seqno::ZERO) }
    }

    /// What a reader at `snapshot` sees around `key`, which the stretch holds. O(log n).
    pub fn stretch(&self, key: &[u8], snapshot: Seqno) -> Result<Stretch> {
        let stretch = self.stretch_as_stored(key, snapshot)?;
        if stretch.holds(key) { Ok(stretch) } else { Err(self.damaged()) }
    }

    fn stretch_as_stored(&self, key: &[u8], snapshot: Seqno) -> Result<Stretch> {
        let mut cursor = self.cursor()?;
        cursor.seek_before(key, Stamp::OLDEST)?;
        let mut stretch = Stretch::default();
        if cursor.valid() {
            let entry = self.entry(&cursor)?;
            if key < entry.end {
                let (from, to) = (Some(cursor.key().to_vec()), Some(entry.end.to_vec()));
                return Ok(Stretch { from, to, seqno: self.visible(&entry, snapshot)? });
            }
            stretch.from = Some(entry.end.to_vec());
            cursor.next()?;
        } else {
            cursor.seek_first()?;
        }
        if cursor.valid() {
            self.entry(&cursor)?;
            stretch.to = Some(cursor.key().to_vec());
        }
        Ok(stretch)
    }

    /// All fragments, in order.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        let mut cursor = self.cursor()?;
        let mut fragments: Vec<Fragment> = Vec::new();
        cursor.seek_first()?;
        while cursor.valid() {
            let entry = self.entry(&cursor)?;
            let seqnos: Option<Vec<Seqno>> = entry.seqnos().collect();
            let (start, end) = (cursor.key().to_vec(), entry.end.to_vec());
            let in_order = start < end && fragments.last().is_none_or(|last| last.end <= start);
            let seqnos = seqnos.filter(|_| in_order).ok_or_else(|| self.damaged())?;
            fragments.push(Fragment { start, end, seqnos });
            cursor.next()?;
        }
        Ok(fragments)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Gauge;
    use crate::base::tombstones::{RangeTombstone, fragment};
    use proptest::prelude::*;
    use std::path::Path;

    fn open(bytes: Vec<u8>) -> RangeBlock {
        let block = Arc::new(Buffer::counted(bytes, Arc::<Gauge>::default()));
        RangeBlock::new(block, BlockOrigin::new(Arc::from(Path::new("block")), 7))
    }

    fn block_of(fragments: &[Fragment]) -> Vec<u8> {
        let mut builder = RangeBlockBuilder::default();
        fragments.iter().for_each(|fragment| builder.add(fragment));
        builder.finish()
    }

    fn fragments() -> impl Strategy<Value = Vec<Fragment>> {
        let key = || proptest::collection::vec(0u8..4, 0..4);
        let all = proptest::collection::vec((key(), key()), 0..40);
        (all, proptest::collection::vec(0u64..50, 0..4)).prop_map(|(all, mut snapshots)| {
            snapshots.push(60);
            snapshots.sort_unstable();
            let numbered = all.into_iter().enumerate();
            let all: Vec<_> = numbered
                .map(|(number, (start, end))| RangeTombstone { start, end, seqno: Seqno(number as u64 + 1) })
                .collect();
            fragment(&all, &snapshots.into_iter().map(Seqno).collect::<Vec<_>>())
        })
    }

    proptest! {
        #[test]
        fn a_block_answers_as_its_fragments_do(
            fragments in fragments(),
            key in proptest::collection::vec(0u8..4, 0..5),
            snapshot in 0u64..60,
        ) {
            let block = open(block_of(&fragments));
            prop_assert_eq!(&block.fragments().unwrap(), &fragments);
            let holder = fragments.iter().find(|fragment| fragment.start <= key && key < fragment.end);
            let seqnos = holder.map_or(&[][..], |fragment| &fragment.seqnos);
            let seqno = seqnos.iter().copied().find(|seqno| seqno.0 <= snapshot).unwrap_or_default();
            prop_assert_eq!(block.cover(&key, Seqno(snapshot)).unwrap(), seqno);
            let stretch = block.stretch(&key, Seqno(snapshot)).unwrap();
            prop_assert_eq!(stretch.seqno, seqno);
            prop_assert!(stretch.holds(&key));
            // The stretch ends exactly where a fragment begins or ends.
            let before = fragments.iter().flat_map(|fragment| [&fragment.start, &fragment.end]).filter(|at| **at <= key);
            let after = fragments.iter().flat_map(|fragment| [&fragment.start, &fragment.end]).filter(|at| **at > key);
            prop_assert_eq!(stretch.from.as_ref(), before.max());
            prop_assert_eq!(stretch.to.as_ref(), after.min());
        }

        #[test]
        fn hostile_bytes_never_panic(
            fragments in fragments(),
            flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = block_of(&fragments);
            for (at, byte) in flips {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            let block = open(bytes);
            let _ = block.fragments();
            for key in [&b""[..], b"\0\x01", b"\x02", b"\x03\x03\x03\x03\x03"] {
                let _ = block.cover(key, Seqno(30));
                // A reader that is told of a stretch elsewhere would ask again for ever.
                prop_assert!(block.stretch(key, Seqno(30)).map_or(true, |stretch| stretch.holds(key)));
            }
        }
    }

    #[test]
    fn a_neighbour_that_is_no_fragment_is_an_error() {
        let mut builder = BlockBuilder::with_restart_every(RESTART_ENTRIES);
        let value = |end: &[u8]| {
            let mut value = Vec::new();
            varint::put_bytes(&mut value, end);
            value
        };
        builder.add(b"a", Stamp::new(Seqno(5), Kind::DeleteRange), &value(b"b"));
        // Sorts behind every search for its key.
        builder.add(b"c", Stamp::OLDEST, &value(b"d"));
        let block = open(builder.finish());
        assert!(block.stretch(b"a", Seqno(9)).is_ok());
        for key in [b"b", b"c"] {
            assert!(matches!(block.stretch(key, Seqno(9)), Err(Error::Corruption { .. })), "{key:?}");
        }
    }
}
