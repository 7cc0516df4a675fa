//! A cursor over one table: three nested block cursors, over the top index, an index partition and a data block.
//!
//! While the cursor is valid, each of the upper two is positioned on the entry from which the lower one was opened.
//! Index entries carry separators: a key at or after the last key of their block and before the first key of the next.

use std::sync::Arc;

use super::table::{BAD_INDEX, BAD_TOP_INDEX, Places, Table};
use crate::base::file_set::FileSet;
use crate::base::ranges::Mark;
use crate::base::{Bytes, Cursor, Kind, Result, Seqno, Slice, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::table::{BlockHandle, PartitionHandles};
use crate::io::read_ahead::Reservation;
use crate::io::{File, read_exact_at};

/// Bytes read ahead when a job begins to move forward; doubled each time they are used up.
const READ_AHEAD_BYTES_FIRST: usize = 256 << 10;
/// Upper bound of the above.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;
/// A job announces this much beyond what it has read. The operating system fetches it into the page cache, in few large
/// reads, while the job works; past the page cache a second buffer gets as much of it as there is memory for.
const ANNOUNCED_BYTES: u64 = 2 << 20;
/// A user's scan reads ahead after this many steps from one block to the next.
const SCAN_STEPS: u32 = 2;
/// A scan may end soon, so it starts with less.
const SCAN_AHEAD_BYTES_FIRST: usize = 16 << 10;
/// Upper bound of the above.
const SCAN_AHEAD_BYTES_MAX: usize = 256 << 10;

/// A cursor over all versions of a table.
pub struct TableCursor {
    table: Arc<Table>,
    fill_cache: bool,
    top: Option<BlockCursor>,
    /// The partition opened last, kept across seeks.
    partition: Option<(BlockHandle, BlockCursor)>,
    data: Option<BlockCursor>,
    /// Offset of the block of `data`.
    data_offset: u64,
    /// The block from before the last seek, in case the seek leads into it again.
    before: Option<BlockCursor>,
    ahead: Ahead,
    /// The sequence number common to all versions, in a table written before it was assigned.
    global_seqno: Option<Seqno>,
    /// Blocks opened one after the other since the last seek.
    steps: u32,
}

/// Bytes of the file that were read ahead.
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    room: Option<Reservation>,
    /// Bytes to ask for next.
    wanted: usize,
    /// The file, from the first read of a job on, and up to where reads of it were announced.
    file: Option<Arc<dyn File>>,
    announced_to: u64,
}

impl Ahead {
    /// Fills the buffer from an offset on, for a job, and announces what follows.
    fn read_in_order(&mut self, table: &Table, offset: u64) -> Result<()> {
        let file = match self.file.take() {
            Some(file) => file,
            None => table.file_in_order()?,
        };
        read_exact_at(&*file, &mut self.bytes, offset)?;
        let (from, bytes) = self.next_announcement(offset + self.bytes.len() as u64, table.blocks_end());
        if bytes > 0 {
            file.read_ahead(from, bytes);
        }
        self.file = Some(file);
        Ok(())
    }

    /// The next announcement, once bytes up to `end` were read, of a file that ends at `file_end`: offset and length.
    fn next_announcement(&mut self, end: u64, file_end: u64) -> (u64, u64) {
        // Those made before a seek do not count.
        let announced_to =
            if (end..=end + ANNOUNCED_BYTES).contains(&self.announced_to) { self.announced_to } else { end };
        if announced_to > end + ANNOUNCED_BYTES / 2 {
            return (announced_to, 0);
        }
        self.announced_to = (end + ANNOUNCED_BYTES).min(file_end);
        (announced_to, self.announced_to - announced_to)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum StepDirection {
    Forward,
    Backward,
}

impl StepDirection {
    /// Moves to the entry of the block that comes first in this direction.
    fn enter(self, cursor: &mut BlockCursor) -> Result<()> {
        match self {
            StepDirection::Forward => cursor.seek_first(),
            StepDirection::Backward => cursor.seek_last(),
        }
    }

    fn step(self, cursor: &mut BlockCursor) -> Result<()> {
        match self {
            StepDirection::Forward => cursor.next(),
            StepDirection::Backward => cursor.prev(),
        }
    }
}

impl Table {
    /// A cursor over all versions. With `fill_cache` unset (flush, compaction) it leaves the cache unchanged and reads
    /// ahead as it moves forward.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        let wanted = if fill_cache { SCAN_AHEAD_BYTES_FIRST } else { READ_AHEAD_BYTES_FIRST };
        let ahead = Ahead { start: 0, bytes: Vec::new(), room: None, wanted, file: None, announced_to: 0 };
        TableCursor {
            table: self.clone(),
            fill_cache,
            top: None,
            partition: None,
            data: None,
            data_offset: 0,
            before: None,
            ahead,
            global_seqno: None,
            steps: 0,
        }
    }
}

impl TableCursor {
    /// Moves to the first version at or after (`key`, `stamp`); past the last one the cursor is not valid.
    fn seek_to(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let Some((handles, stamp)) = self.seek_top(key, stamp)? else {
            return Ok(());
        };
        self.open_partition(handles.index)?.seek(key, stamp)?;
        if let Some(data) = self.open_data(StepDirection::Forward, false)? {
            data.seek(key, stamp)?;
            self.skip_exhausted(StepDirection::Forward)?;
        }
        Ok(())
    }

    /// Approximate offset in the file of the first version at or after `key`. Reads at most two index blocks.
    pub fn offset_of(mut self, key: &[u8]) -> Result<u64> {
        let Some((handles, _)) = self.seek_top(key, Stamp::NEWEST)? else {
            return Ok(self.table.blocks_end());
        };
        let partition = self.open_partition(handles.index)?;
        partition.seek(key, Stamp::NEWEST)?;
        let data = partition.valid().then(|| BlockHandle::decode(partition.value())).flatten();
        Ok(data.map_or(handles.index.offset, |data| data.offset))
    }

    /// How the bytes of the table are distributed over the keys: the start of each partition. Reads the top index.
    pub fn marks(mut self) -> Result<Vec<Mark>> {
        let mut begins = self.table.meta().smallest.clone();
        let mut offset = 0;
        let mut marks = Vec::new();
        self.open_top()?.seek_first()?;
        while let Some(handles) = self.partition_handles()? {
            let top = self.open_top()?;
            // A partition's index follows its data; the top index holds its last key or a later one.
            marks.push(Mark { key: begins, bytes: handles.index.offset.saturating_sub(offset) });
            (begins, offset) = (top.key().to_vec(), handles.index.offset);
            top.next()?;
        }
        Ok(marks)
    }

    /// Finds the partition for (`key`, `stamp`), and the stamp to seek in it; the cursor is not valid until one of the
    /// partition's data blocks is opened.
    fn seek_top(&mut self, key: &[u8], stamp: Stamp) -> Result<Option<(PartitionHandles, Stamp)>> {
        self.steps = 0;
        self.before = self.data.take().or(self.before.take());
        // If all versions share a sequence number that the file does not hold, the file has 0 in its place, and each
        // key occurs once.
        let stamp = match self.table.places()?.global_seqno {
            None => stamp,
            Some(seqno) if stamp >= Stamp::new(seqno, Kind::Put) => Stamp::NEWEST,
            Some(_) => Stamp::OLDEST,
        };
        self.open_top()?.seek(key, stamp)?;
        Ok(self.partition_handles()?.map(|handles| (handles, stamp)))
    }

    fn seek_end(&mut self, direction: StepDirection) -> Result<()> {
        self.data = None;
        direction.enter(self.open_top()?)?;
        let Some(handles) = self.partition_handles()? else {
            return Ok(());
        };
        direction.enter(self.open_partition(handles.index)?)?;
        if let Some(data) = self.open_data(direction, true)? {
            direction.enter(data)?;
        }
        self.skip_exhausted(direction)
    }

    /// While the data block is exhausted in `direction`, opens the next block.
    fn skip_exhausted(&mut self, direction: StepDirection) -> Result<()> {
        while self.data.as_ref().is_some_and(|data| !data.valid()) {
            let (_, partition) = self.partition.as_mut().expect("an open data block was found in a partition");
            direction.step(partition)?;
            if let Some(data) = self.open_data(direction, true)? {
                direction.enter(data)?;
            }
        }
        Ok(())
    }

    /// The handles at the position of the top index; `None` past its ends.
    fn partition_handles(&self) -> Result<Option<PartitionHandles>> {
        let Some(top) = self.top.as_ref().filter(|top| top.valid()) else {
            return Ok(None);
        };
        let offset = self.table.places()?.top_index.offset;
        let bad = || self.table.damaged(offset, BAD_TOP_INDEX);
        PartitionHandles::decode(top.value()).map(Some).ok_or_else(bad)
    }

    fn open_top(&mut self) -> Result<&mut BlockCursor> {
        let top = match self.top.take() {
            Some(top) => top,
            None => {
                let Places { top_index: handle, global_seqno, .. } = *self.table.places()?;
                self.global_seqno = global_seqno;
                let block = match self.table.kept_top_index() {
                    Some(kept) => kept.clone(),
                    None => {
                        let block = self.table.block(handle, PriorityPool::Metadata, self.fill_cache)?;
                        self.table.keep_top_index(&block);
                        block
                    }
                };
                self.block_cursor(handle, block)?
            }
        };
        Ok(self.top.insert(top))
    }

    fn open_partition(&mut self, handle: BlockHandle) -> Result<&mut BlockCursor> {
        let open = match self.partition.take() {
            Some(open) if open.0 == handle => open,
            _ => {
                let block = self.table.block(handle, PriorityPool::Metadata, self.fill_cache)?;
                (handle, self.block_cursor(handle, block)?)
            }
        };
        Ok(&mut self.partition.insert(open).1)
    }

    /// Opens the data block at the position of the index cursors, moving to the next partition in `direction` if the
    /// present one is exhausted; `None` at the end of the table. `sequential` says that the following blocks will be
    /// read, too.
    fn open_data(&mut self, direction: StepDirection, sequential: bool) -> Result<Option<&mut BlockCursor>> {
        let handle = loop {
            if let Some((index, partition)) = self.partition.as_ref().filter(|(_, partition)| partition.valid()) {
                let bad = || self.table.damaged(index.offset, BAD_INDEX);
                break BlockHandle::decode(partition.value()).ok_or_else(bad)?;
            }
            if let Some(top) = self.top.as_mut().filter(|top| top.valid()) {
                direction.step(top)?;
            }
            let Some(handles) = self.partition_handles()? else {
                self.data = None;
                return Ok(None);
            };
            direction.enter(self.open_partition(handles.index)?)?;
        };
        if self.data.is_none()
            && self.data_offset == handle.offset
            && let Some(before) = self.before.take()
        {
            return Ok(Some(self.data.insert(before)));
        }
        let forward = sequential && direction == StepDirection::Forward;
        self.steps = if forward { self.steps.saturating_add(1) } else { 0 };
        let block = match forward && (!self.fill_cache || self.steps > SCAN_STEPS) {
            true => self.block_ahead(handle)?,
            false => self.table.block(handle, self.table.pool(), self.fill_cache)?,
        };
        let data = match self.data.take().or(self.before.take()) {
            Some(mut data) => {
                data.open(block, handle.offset)?;
                data
            }
            None => self.block_cursor(handle, block)?,
        };
        self.data_offset = handle.offset;
        Ok(Some(self.data.insert(data)))
    }

    fn block_cursor(&self, handle: BlockHandle, block: Bytes) -> Result<BlockCursor> {
        BlockCursor::new(block, BlockOrigin::new(self.table.path().clone(), handle.offset))
    }

    /// A block from the bytes read ahead, or else from a new read-ahead that starts at the block.
    fn block_ahead(&mut self, handle: BlockHandle) -> Result<Bytes> {
        let (table, ahead) = (&self.table, &mut self.ahead);
        if let Some(sealed) = table.within(&ahead.bytes, ahead.start, handle) {
            return table.unseal_part(handle, sealed, self.fill_cache);
        }
        ahead.bytes.clear();
        if let Some(block) = table.cached_block(handle, table.pool()) {
            return Ok(block);
        }
        let end = handle.end().filter(|&end| end <= table.blocks_end());
        let Some(block_bytes) = end.map(|end| end - handle.offset) else {
            return table.block(handle, table.pool(), self.fill_cache);
        };
        let rest = usize::try_from(table.blocks_end() - handle.offset).unwrap_or(usize::MAX);
        // Other readers may be waiting for the memory given back here.
        ahead.room = None;
        let readers = table.readers();
        let pool = if self.fill_cache { &readers.scan_ahead } else { &readers.ahead };
        let room = pool.reserve(ahead.wanted.min(rest.next_power_of_two()));
        let len = room.bytes().min(rest);
        if block_bytes > len as u64 {
            ahead.bytes = Vec::new();
            return table.block(handle, table.pool(), self.fill_cache);
        }
        if ahead.bytes.capacity() > room.bytes() {
            ahead.bytes = Vec::new();
        }
        ahead.room = Some(room);
        let most = if self.fill_cache { SCAN_AHEAD_BYTES_MAX } else { READ_AHEAD_BYTES_MAX };
        ahead.wanted = (2 * ahead.wanted).min(most);
        ahead.bytes.reserve_exact(len);
        ahead.bytes.resize(len, 0);
        ahead.start = handle.offset;
        let read = match self.fill_cache {
            true => table.read_into(&mut ahead.bytes, handle.offset),
            false => ahead.read_in_order(table, handle.offset),
        };
        read.inspect_err(|_| ahead.bytes.clear())?;
        let sealed = table.within(&ahead.bytes, ahead.start, handle);
        let sealed = sealed.expect("a block that fits is within the bytes read for it");
        table.unseal_part(handle, sealed, self.fill_cache)
    }

    /// As [`next`](Cursor::next), past all versions but those whose payload is an address in one of `files`.
    pub(super) fn next_in(&mut self, files: &FileSet) -> Result<()> {
        while let Some(data) = &mut self.data
            && data.valid()
        {
            data.next_in(files)?;
            if data.valid() {
                break;
            }
            let moved = self.skip_exhausted(StepDirection::Forward);
            self.invalidate_on_error(moved)?;
            if self.valid() && self.is_in(files) {
                break;
            }
        }
        Ok(())
    }

    /// True if the payload of the version is an address in one of `files`. The cursor must be valid.
    pub(super) fn is_in(&self, files: &FileSet) -> bool {
        self.current().is_in(files)
    }

    /// Invalidates the cursor if a move failed.
    fn invalidate_on_error(&mut self, moved: Result<()>) -> Result<()> {
        if moved.is_err() {
            (self.data, self.before) = (None, None);
        }
        moved
    }

    fn current(&self) -> &BlockCursor {
        self.data.as_ref().expect("only a valid cursor is read")
    }
}

impl Cursor for TableCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.data.as_ref().is_some_and(BlockCursor::valid)
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        let stamp = self.current().stamp();
        match self.global_seqno {
            None => stamp,
            Some(seqno) => stamp.with_seqno(seqno),
        }
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let moved = self.seek_to(key, stamp);
        self.invalidate_on_error(moved)
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.seek(key, stamp)?;
        if self.valid() { self.prev() } else { self.seek_last() }
    }

    fn seek_first(&mut self) -> Result<()> {
        let moved = self.seek_end(StepDirection::Forward);
        self.invalidate_on_error(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.seek_end(StepDirection::Backward);
        self.invalidate_on_error(moved)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let data = self.data.as_mut().expect("only a valid cursor moves");
        data.next()?;
        if data.valid() {
            return Ok(());
        }
        let moved = self.skip_exhausted(StepDirection::Forward);
        self.invalidate_on_error(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let data = self.data.as_mut().expect("only a valid cursor moves");
        data.prev()?;
        if data.valid() {
            return Ok(());
        }
        let moved = self.skip_exhausted(StepDirection::Backward);
        self.invalidate_on_error(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_announced_once_and_well_before_it_is_read() {
        let mut ahead = Ahead { start: 0, bytes: Vec::new(), room: None, wanted: 0, file: None, announced_to: 0 };
        let (file_end, step) = (10 * ANNOUNCED_BYTES + 5, 256 << 10);
        let mut hints: Vec<(u64, u64)> = Vec::new();
        for end in (step..file_end).step_by(step as usize).chain([file_end]) {
            let (from, bytes) = ahead.next_announcement(end, file_end);
            if bytes > 0 {
                assert!(bytes >= ANNOUNCED_BYTES / 2 || from + bytes == file_end, "in few hints: {bytes} at {end}");
                assert!(from == hints.last().map_or(end, |(from, bytes)| from + bytes), "{from} at {end}");
                hints.push((from, bytes));
            }
            assert!(
                ahead.announced_to > end + ANNOUNCED_BYTES / 2 || ahead.announced_to == file_end,
                "{} at {end}",
                ahead.announced_to
            );
        }
        assert_eq!(hints.iter().map(|(_, bytes)| bytes).sum::<u64>(), file_end - step);
        // After a seek, backward or far forward, earlier hints do not count.
        for end in [step, 5 * ANNOUNCED_BYTES] {
            assert_eq!(ahead.next_announcement(end, file_end), (end, ANNOUNCED_BYTES));
        }
        assert_eq!(ahead.next_announcement(file_end, file_end), (file_end, 0));
    }
}
