//! The sorted block: the common layout of sorted versions, in table files (data and index blocks) and in memory (runs).
//!
//! ```text
//! entry*    shared: varint | unshared: varint | value_len: varint | key suffix | stamp: u64 LE | value
//! restarts  u32 LE each: offsets of the entries with shared = 0 at which a search may start, ascending
//! count     u32 LE: how many restarts
//! ```
//!
//! A block with addresses may be packed instead (`packed.rs`): then the highest bit of `count` is set.
//!
//! Entries are ordered by [`compare`](crate::base::cursor::compare); `shared` counts the leading bytes that
//! the key has in common with the previous one. The reader checks every field, so malformed bytes give
//! [`Error::Corruption`], never a panic or an endless loop.

use std::path::Path;
use std::sync::Arc;

use super::packed::PackedLayout;
use crate::base::file_set::FileSet;
use crate::base::limits::FULL_KEY_BYTES_MAX;
use crate::base::{Address, Bytes, Cursor, Error, Kind, Result, Slice, Stamp, varint};

/// Length of a restart point, and of their count.
pub(super) const OFFSET_BYTES: usize = 4;
/// Flag in the count of restart points: the block is packed.
pub(super) const PACKED: u32 = 1 << 31;
/// Length of the stamp of an entry that is not packed.
pub(super) const STAMP_BYTES: usize = 8;

/// Where a block was read from, for error messages.
#[derive(Debug, Clone)]
pub struct BlockOrigin {
    /// The file, or a description of a block in memory.
    pub path: Arc<Path>,
    /// Offset of the block in the file, in bytes.
    pub offset: u64,
}

impl BlockOrigin {
    /// The block at `offset` of `path`.
    pub fn new(path: Arc<Path>, offset: u64) -> BlockOrigin {
        BlockOrigin { path, offset }
    }
}

/// A cursor over one block.
pub struct BlockCursor {
    block: Bytes,
    origin: BlockOrigin,
    /// Where the entries end and the restart points begin.
    entries_end: usize,
    restart_count: usize,
    /// Where the current entry starts; `entries_end` if the cursor is not valid.
    offset: usize,
    /// Where the next entry starts.
    next_offset: usize,
    key: Vec<u8>,
    stamp: Stamp,
    stamp_start: usize,
    value_start: usize,
    packed: Option<PackedLayout>,
    /// The encoded address of the current entry, if the block is packed.
    address: [u8; Address::ENCODED_BYTES_MAX],
    /// Length of `address`; 0 if the value is in the block.
    address_len: usize,
}

impl BlockCursor {
    /// A cursor over `block`, not positioned.
    pub fn new(block: Bytes, origin: BlockOrigin) -> Result<BlockCursor> {
        let (entries_end, restart_count, packed) = Self::parse_ends(&block, &origin)?;
        Ok(BlockCursor {
            block,
            origin,
            entries_end,
            restart_count,
            offset: entries_end,
            next_offset: entries_end,
            key: Vec::new(),
            stamp: Stamp::OLDEST,
            stamp_start: 0,
            value_start: 0,
            packed,
            address: [0; Address::ENCODED_BYTES_MAX],
            address_len: 0,
        })
    }

    /// Replaces the block by another one of the same file, at `offset`; the cursor is then not positioned.
    pub fn open(&mut self, block: Bytes, offset: u64) -> Result<()> {
        self.origin.offset = offset;
        (self.entries_end, self.restart_count, self.packed) = Self::parse_ends(&block, &self.origin)?;
        self.block = block;
        self.address_len = 0;
        self.invalidate();
        Ok(())
    }

    /// True if the block has no entry.
    pub fn is_empty(&self) -> bool {
        self.entries_end == 0
    }

    /// Returns where the entries end, the number of restart points, and the layout if the block is packed.
    fn parse_ends(block: &[u8], origin: &BlockOrigin) -> Result<(usize, usize, Option<PackedLayout>)> {
        let corrupt = |message: &str| {
            let message = format!("a block of {} B {message}", block.len());
            Error::corruption(&origin.path, origin.offset, message)
        };
        let parsed = block.split_last_chunk::<OFFSET_BYTES>().and_then(|(rest, count)| {
            let stored = u32::from_le_bytes(*count);
            let count = (stored & !PACKED) as usize;
            let entries_end = rest.len().checked_sub(count.checked_mul(OFFSET_BYTES)?)?;
            // A block has entries exactly if it has restart points.
            ((entries_end == 0) == (count == 0)).then_some((entries_end, count, stored & PACKED != 0))
        });
        let Some((entries_end, count, is_packed)) = parsed else {
            return Err(corrupt("is too small for its restart points"));
        };
        if !is_packed {
            return Ok((entries_end, count, None));
        }
        let layout =
            PackedLayout::take(&mut &block[..entries_end]).ok_or_else(|| corrupt("has an unknown packed layout"))?;
        Ok((entries_end, count, Some(layout)))
    }

    #[cold]
    fn damaged(&self, at: usize) -> Error {
        let message = format!("a sorted block (starting at {}) has a malformed entry", self.origin.offset);
        Error::corruption(&self.origin.path, self.origin.offset.saturating_add(at as u64), message)
    }

    fn invalidate(&mut self) {
        self.offset = self.entries_end;
        self.next_offset = self.entries_end;
    }
}

impl Cursor for BlockCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.offset < self.entries_end
    }

    #[inline]
    fn key(&self) -> &[u8] {
        &self.key
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        self.stamp
    }

    #[inline]
    fn value(&self) -> &[u8] {
        match self.address_len {
            0 => &self.block[self.value_start..self.next_offset],
            len => &self.address[..len],
        }
    }

    fn value_slice(&self) -> Slice {
        if self.address_len > 0 {
            return Slice::copy_from(self.value());
        }
        Slice::shared(self.block.clone(), self.value_start, self.next_offset - self.value_start)
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.invalidate();
        // Among the restart points: the last one before (`key`, `stamp`).
        let (mut low, mut high) = (0, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = self.restart_offset(middle)?;
            let entry = self.entry_at(offset)?;
            if entry.shared != 0 {
                return Err(self.damaged(offset));
            }
            // The stamp is only read if the keys are equal.
            let by_key = self.block[entry.suffix_start..entry.stamp_start].cmp(key);
            match by_key.then_with(|| stamp.cmp(&self.stamp_of(&entry))).is_lt() {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        // From there on: the first entry at or after (`key`, `stamp`). An entry that shares more bytes with its predecessor
        // than the predecessor shares with `key` sorts before `key` too, so few suffixes are compared.
        let mut offset = if self.restart_count > 0 { self.restart_offset(low.saturating_sub(1))? } else { 0 };
        let (mut len_before, mut common) = (0, 0);
        while offset < self.entries_end {
            let entry = self.entry_at(offset)?;
            if entry.shared > len_before {
                return Err(self.damaged(offset));
            }
            if entry.shared <= common {
                let (suffix, rest) = (&self.block[entry.suffix_start..entry.stamp_start], &key[entry.shared..]);
                let same = shared_bytes(suffix, rest);
                let by_key = suffix.get(same).cmp(&rest.get(same));
                if by_key.then_with(|| stamp.cmp(&self.stamp_of(&entry))).is_ge() {
                    self.key.clear();
                    self.key.extend_from_slice(&key[..entry.shared]);
                    self.set_current(offset, &entry);
                    break;
                }
                common = entry.shared + same;
            }
            len_before = entry.shared + entry.suffix_len();
            offset = entry.end;
        }
        self.finish_move(Ok(()))
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.seek(key, stamp)?;
        if self.valid() { self.prev() } else { self.seek_last() }
    }

    fn seek_first(&mut self) -> Result<()> {
        self.invalidate();
        if self.restart_count == 0 {
            return Ok(());
        }
        let moved = self.go_to_restart(0).and_then(|()| self.step());
        self.finish_move(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        self.invalidate();
        let moved = self.find_ending_at(self.entries_end);
        self.finish_move(moved)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let moved = self.step();
        self.finish_move(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let moved = self.find_ending_at(self.offset);
        self.finish_move(moved)
    }
}

/// What the moves consist of.
impl BlockCursor {
    fn restart_offset(&self, index: usize) -> Result<usize> {
        let start = self.entries_end + index * OFFSET_BYTES;
        let bytes = self.block[start..].first_chunk().expect("opening the block checked the number of restart points");
        let offset = u32::from_le_bytes(*bytes) as usize;
        if offset < self.entries_end { Ok(offset) } else { Err(self.damaged(start)) }
    }

    /// Parses and checks the entry at `offset`; the caller compares `shared` with the previous key.
    #[inline]
    fn entry_at(&self, offset: usize) -> Result<BlockEntry> {
        let entry = match &self.packed {
            None => BlockEntry::parse(&self.block[..self.entries_end], offset),
            Some(layout) => layout.entry(&self.block, self.entries_end, offset),
        };
        entry.ok_or_else(|| self.damaged(offset))
    }

    #[inline]
    fn stamp_of(&self, entry: &BlockEntry) -> Stamp {
        match &self.packed {
            None => entry.stamp(&self.block),
            Some(layout) => layout.stamp(&self.block, entry.stamp_start),
        }
    }

    /// Makes the entry at `offset` the current one; `key` already contains the bytes it shares with the previous key.
    #[inline]
    fn set_current(&mut self, offset: usize, entry: &BlockEntry) {
        self.key.extend_from_slice(&self.block[entry.suffix_start..entry.stamp_start]);
        self.stamp = self.stamp_of(entry);
        (self.stamp_start, self.value_start) = (entry.stamp_start, entry.value_start);
        self.offset = offset;
        self.next_offset = entry.end;
    }

    /// Ends a move: encodes the address in a packed row as unpacked blocks store it, or invalidates the cursor if the move
    /// failed, so that no half-read entry is visible.
    #[inline]
    fn finish_move(&mut self, mut moved: Result<()>) -> Result<()> {
        if let Some(layout) = &self.packed
            && moved.is_ok()
        {
            self.address_len = 0;
            if self.valid() && self.stamp.kind().is_some_and(Kind::is_address) {
                match layout.address(&self.block, self.stamp_start, self.key.len()) {
                    Some(address) => self.address_len = address.write(&mut self.address),
                    None => moved = Err(self.damaged(self.stamp_start)),
                }
            }
        }
        if moved.is_err() {
            self.invalidate();
        }
        moved
    }

    /// Moves to the entry at `next_offset`; past the last entry the cursor becomes invalid. After an error
    /// [`finish_move`](BlockCursor::finish_move) invalidates it.
    #[inline]
    fn step(&mut self) -> Result<()> {
        let offset = self.next_offset;
        if offset == self.entries_end {
            self.invalidate();
            return Ok(());
        }
        let entry = self.entry_at(offset)?;
        if entry.shared > self.key.len() {
            return Err(self.damaged(offset));
        }
        self.key.truncate(entry.shared);
        self.set_current(offset, &entry);
        Ok(())
    }

    /// Moves before the first entry of a restart interval, so that `step` reads it.
    fn go_to_restart(&mut self, index: usize) -> Result<()> {
        let offset = self.restart_offset(index)?;
        self.key.clear();
        self.next_offset = offset;
        Ok(())
    }

    /// Moves to the entry that ends at offset `end`.
    fn find_ending_at(&mut self, end: usize) -> Result<()> {
        let (mut low, mut high) = (0, self.restart_count);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.restart_offset(middle)? < end {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if low == 0 {
            self.invalidate();
            return Ok(());
        }
        self.go_to_restart(low - 1)?;
        while self.next_offset < end {
            self.step()?;
        }
        if self.next_offset == end { Ok(()) } else { Err(self.damaged(end)) }
    }

    /// As [`next`](Cursor::next), past all entries but those whose value is an address in one of `files`. Addresses of
    /// packed rows are not decoded for it.
    pub fn next_in(&mut self, files: &FileSet) -> Result<()> {
        if self.packed.as_ref().is_some_and(|layout| !layout.may_lead_to(files)) {
            self.invalidate();
            return Ok(());
        }
        loop {
            if let Err(error) = self.step() {
                return self.finish_move(Err(error));
            }
            if !self.valid() || self.is_in(files) {
                return self.finish_move(Ok(()));
            }
        }
    }

    /// True if the value of the current entry is an address in one of `files`.
    pub fn is_in(&self, files: &FileSet) -> bool {
        if !self.stamp.kind().is_some_and(Kind::is_address) {
            return false;
        }
        match &self.packed {
            Some(layout) => files.contains(layout.file(&self.block, self.stamp_start)),
            None => {
                let address = Address::decode(&self.block[self.value_start..self.next_offset]);
                address.is_some_and(|address| files.contains(address.file))
            }
        }
    }
}

/// Length of the common prefix of two keys.
#[inline]
pub(super) fn shared_bytes(left: &[u8], right: &[u8]) -> usize {
    let len = left.len().min(right.len());
    let mut at = 0;
    while let (Some(a), Some(b)) = (left[at..].first_chunk::<8>(), right[at..].first_chunk::<8>()) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return at + differing.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + left[at..len].iter().zip(&right[at..len]).take_while(|(left, right)| left == right).count()
}

/// Where key suffix, stamp and value of an entry are, as offsets within its block. Entries of packed blocks have the same
/// parts; only the stamp is stored differently.
pub(super) struct BlockEntry {
    /// Bytes of the key that the previous entry has too.
    pub shared: usize,
    pub suffix_start: usize,
    /// Where the key suffix ends and the stamp starts; in a packed block, the row.
    pub stamp_start: usize,
    /// Equal to `end` if the row contains an address instead of a value.
    pub value_start: usize,
    pub end: usize,
}

impl BlockEntry {
    /// Parses the entry at `offset` of a block that is not packed. The caller compares `shared` with the previous key.
    #[inline]
    pub fn parse(entries: &[u8], offset: usize) -> Option<BlockEntry> {
        let mut rest = entries.get(offset..)?;
        let shared = usize::try_from(varint::take(&mut rest)?).ok()?;
        let suffix_len = usize::try_from(varint::take(&mut rest)?).ok()?;
        let value_len = usize::try_from(varint::take(&mut rest)?).ok()?;
        let needed = suffix_len.checked_add(STAMP_BYTES)?.checked_add(value_len)?;
        let key_fits = shared <= FULL_KEY_BYTES_MAX && suffix_len <= FULL_KEY_BYTES_MAX - shared;
        let suffix_start = entries.len() - rest.len();
        let stamp_start = suffix_start + suffix_len;
        let value_start = stamp_start + STAMP_BYTES;
        let entry = BlockEntry { shared, suffix_start, stamp_start, value_start, end: value_start + value_len };
        (key_fits && needed <= rest.len()).then_some(entry)
    }

    /// The stamp, in a block that is not packed.
    #[inline]
    pub fn stamp(&self, entries: &[u8]) -> Stamp {
        let bytes = entries[self.stamp_start..].first_chunk().expect("a parsed entry lies within the block");
        Stamp(u64::from_le_bytes(*bytes))
    }

    /// Length of the key suffix.
    pub fn suffix_len(&self) -> usize {
        self.stamp_start - self.suffix_start
    }
}

#[cfg(test)]
#[path = "block_test.rs"]
mod tests;
