//! The block of range tombstones: a sorted block of fragments, in tables and in runs. The key and stamp of an entry are
//! the first key of a fragment and its highest sequence number; the value has the first key after the fragment and the
//! lower sequence numbers. One search in the block therefore finds the fragment of a key, without decoding the others.
//!
//! Diagram: `docs/formats/table.md`. Written by the table builder and by runs.

use super::block::{BlockCursor, BlockOrigin};
use super::block_builder::BlockBuilder;
use crate::base::tombstones::{Fragment, TombstoneSpan};
use crate::base::{Bytes, Cursor, Error, Kind, Result, Seqno, Stamp, varint};

/// Fragments that a search reads after its binary search, at most.
const RESTART_ENTRIES: usize = 4;

/// Builds a block from fragments, which are added in order.
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
    /// Appends a fragment; it must not start before the previous one ends.
    pub fn add(&mut self, fragment: &Fragment) {
        self.value.clear();
        varint::put_bytes(&mut self.value, &fragment.end);
        for pair in fragment.seqnos.windows(2) {
            varint::put(&mut self.value, pair[0].0 - pair[1].0);
        }
        let newest = fragment.seqnos.first().expect("a fragment has at least one sequence number");
        self.block.add(&fragment.start, Stamp::new(*newest, Kind::DeleteRange), &self.value);
    }

    /// Returns the block and empties the builder.
    pub fn finish(&mut self) -> Vec<u8> {
        self.block.finish()
    }
}

/// A reader of a block of fragments.
pub struct RangeBlock {
    block: Bytes,
    origin: BlockOrigin,
}

/// A partly decoded entry.
struct FragmentEntry<'a> {
    end: &'a [u8],
    /// The highest sequence number, and the encoded differences to the lower ones.
    newest: Seqno,
    older: &'a [u8],
}

impl<'a> FragmentEntry<'a> {
    fn decode(stamp: Stamp, mut value: &'a [u8]) -> Option<FragmentEntry<'a>> {
        let end = varint::take_bytes(&mut value)?;
        (stamp.kind() == Some(Kind::DeleteRange)).then_some(FragmentEntry { end, newest: stamp.seqno(), older: value })
    }

    /// The sequence numbers, newest first; the last one is `None` if the encoding is malformed.
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
    /// A reader of `block`, which was read from `origin`.
    pub fn new(block: Bytes, origin: BlockOrigin) -> RangeBlock {
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
        Error::corruption(&self.origin.path, self.origin.offset, "a block of range tombstones has a malformed entry")
    }

    /// The highest sequence number of a fragment that a reader at `snapshot` sees; 0 if there is none.
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

    /// The newest tombstone that a reader at `snapshot` sees at `key`, with the span of keys around `key` for which it
    /// is the same. O(log n).
    pub fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        let span = self.stored_span_at(key, snapshot)?;
        if span.holds(key) { Ok(span) } else { Err(self.damaged()) }
    }

    fn stored_span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        let mut cursor = self.cursor()?;
        cursor.seek_before(key, Stamp::OLDEST)?;
        let mut span = TombstoneSpan::default();
        if cursor.valid() {
            let entry = self.entry(&cursor)?;
            if key < entry.end {
                let (from, to) = (Some(cursor.key().to_vec()), Some(entry.end.to_vec()));
                return Ok(TombstoneSpan { from, to, seqno: self.visible(&entry, snapshot)? });
            }
            span.from = Some(entry.end.to_vec());
            cursor.next()?;
        } else {
            cursor.seek_first()?;
        }
        if cursor.valid() {
            self.entry(&cursor)?;
            span.to = Some(cursor.key().to_vec());
        }
        Ok(span)
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
    use std::sync::Arc;

    use super::*;
    use crate::base::Gauge;
    use crate::base::tombstones::{RangeTombstone, fragment};
    use proptest::prelude::*;
    use std::path::Path;

    fn open(bytes: Vec<u8>) -> RangeBlock {
        let block = Bytes::counted(bytes, Arc::<Gauge>::default());
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
        fn lookups_in_a_block_agree_with_its_fragments(
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
            let span = block.span_at(&key, Seqno(snapshot)).unwrap();
            prop_assert_eq!(span.seqno, seqno);
            prop_assert!(span.holds(&key));
            // The span ends exactly where a fragment starts or ends.
            let before = fragments.iter().flat_map(|fragment| [&fragment.start, &fragment.end]).filter(|at| **at <= key);
            let after = fragments.iter().flat_map(|fragment| [&fragment.start, &fragment.end]).filter(|at| **at > key);
            prop_assert_eq!(span.from.as_ref(), before.max());
            prop_assert_eq!(span.to.as_ref(), after.min());
        }

        #[test]
        fn malformed_bytes_never_panic(
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
                // A reader would loop forever if the span did not contain its key.
                prop_assert!(block.span_at(key, Seqno(30)).map_or(true, |span| span.holds(key)));
            }
        }
    }

    #[test]
    fn a_neighbouring_entry_that_is_malformed_is_an_error() {
        let mut builder = BlockBuilder::with_restart_every(RESTART_ENTRIES);
        let value = |end: &[u8]| {
            let mut value = Vec::new();
            varint::put_bytes(&mut value, end);
            value
        };
        builder.add(b"a", Stamp::new(Seqno(5), Kind::DeleteRange), &value(b"b"));
        // This entry sorts behind every search for its key.
        builder.add(b"c", Stamp::OLDEST, &value(b"d"));
        let block = open(builder.finish());
        assert!(block.span_at(b"a", Seqno(9)).is_ok());
        for key in [b"b", b"c"] {
            assert!(matches!(block.span_at(key, Seqno(9)), Err(Error::Corruption { .. })), "{key:?}");
        }
    }
}
