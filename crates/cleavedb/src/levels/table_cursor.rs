//! A cursor over one table: three nested block cursors, over the top index, an index partition and a data block.
//!
//! While the cursor is valid, each of the upper two stands on the entry that the one below was opened from. Index
//! entries carry separators: a key at or after the last of their block and before the first of the next.

use std::sync::Arc;

use super::table::Table;
use crate::base::ranges::Mark;
use crate::base::{Buffer, Cursor, Error, Kind, Result, Seqno, Slice, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::format::block::BlockCursor;
use crate::format::filter::may_contain;
use crate::format::table::{BlockHandle, PartitionHandles};
use crate::io::read_ahead::Reservation;

/// Read at once when a job begins to move forward; each time the bytes are used up, twice as much is asked for.
const READ_AHEAD_BYTES_FIRST: usize = 256 << 10;
/// And never more than this.
const READ_AHEAD_BYTES_MAX: usize = 1 << 20;
/// The system is told of so much beyond what a job has read, so that it comes while the job works. It lies in the page
/// cache, and costs the job no memory; the system fetches it in few large reads.
const TOLD_BYTES: u64 = 2 << 20;
/// A user's scan reads ahead once it has gone on from one block to the next so often.
const SCAN_STEPS: u32 = 2;
/// It may end soon, so it begins with less.
const SCAN_AHEAD_BYTES_FIRST: usize = 16 << 10;
/// And never more than this.
const SCAN_AHEAD_BYTES_MAX: usize = 256 << 10;

/// A cursor over all versions of a table.
pub struct TableCursor {
    table: Arc<Table>,
    fill_cache: bool,
    top: Option<BlockCursor>,
    /// The partition opened last, kept over seeks.
    partition: Option<(BlockHandle, BlockCursor)>,
    data: Option<BlockCursor>,
    /// Where the block of `data` lies.
    data_offset: u64,
    /// The block before the last seek, in case that leads into it again.
    before: Option<BlockCursor>,
    ahead: Ahead,
    /// The one sequence number of all versions, in a table that was written before it was known.
    placed: Option<Seqno>,
    /// Blocks that were opened one after the other since the last seek.
    steps: u32,
}

/// Where a cursor that seeks takes its blocks from.
pub(super) trait BlockSource {
    /// Why a block cannot be had.
    type Error: From<Error>;

    /// The block. `fill_cache`: what is read goes into the cache.
    fn block(
        table: &Arc<Table>,
        handle: BlockHandle,
        pool: PriorityPool,
        fill_cache: bool,
    ) -> Result<Arc<Buffer>, Self::Error>;
}

/// The cache, and the file for what is not in the cache.
pub(super) enum CacheAndFile {}

impl BlockSource for CacheAndFile {
    type Error = Error;

    fn block(table: &Arc<Table>, handle: BlockHandle, pool: PriorityPool, fill_cache: bool) -> Result<Arc<Buffer>> {
        table.block(handle, pool, fill_cache)
    }
}

/// Bytes of the file that were read before they were asked for.
struct Ahead {
    start: u64,
    bytes: Vec<u8>,
    room: Option<Reservation>,
    /// How much to ask for next.
    wanted: usize,
    /// The system was told that the file will be read up to here.
    told_to: u64,
}

impl Ahead {
    /// What the system should be told now that bytes up to `end` were read, out of `file_end`: from where, how much.
    fn next_to_tell(&mut self, end: u64, file_end: u64) -> (u64, u64) {
        // What was told of before a seek says nothing.
        let told_to = if (end..=end + TOLD_BYTES).contains(&self.told_to) { self.told_to } else { end };
        if told_to > end + TOLD_BYTES / 2 {
            return (told_to, 0);
        }
        self.told_to = (end + TOLD_BYTES).min(file_end);
        (told_to, self.told_to - told_to)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Direction {
    Forward,
    Backward,
}

impl Direction {
    /// Moves to the end of the block that lies first in this direction.
    fn enter(self, cursor: &mut BlockCursor) -> Result<()> {
        match self {
            Direction::Forward => cursor.seek_first(),
            Direction::Backward => cursor.seek_last(),
        }
    }

    fn step(self, cursor: &mut BlockCursor) -> Result<()> {
        match self {
            Direction::Forward => cursor.next(),
            Direction::Backward => cursor.prev(),
        }
    }
}

impl TableCursor {
    pub(super) fn new(table: Arc<Table>, fill_cache: bool) -> TableCursor {
        let wanted = if fill_cache { SCAN_AHEAD_BYTES_FIRST } else { READ_AHEAD_BYTES_FIRST };
        let ahead = Ahead { start: 0, bytes: Vec::new(), room: None, wanted, told_to: 0 };
        TableCursor {
            table,
            fill_cache,
            top: None,
            partition: None,
            data: None,
            data_offset: 0,
            before: None,
            ahead,
            placed: None,
            steps: 0,
        }
    }

    /// As [`seek`](Cursor::seek), for callers who want versions of this very key only: if a filter denies the key, the
    /// cursor is not valid afterwards.
    pub(super) fn seek_filtered<B: BlockSource>(&mut self, key: &[u8], stamp: Stamp) -> Result<(), B::Error> {
        let Some(handles) = self.seek_top::<B>(key, stamp)? else {
            return Ok(());
        };
        if let Some(handle) = handles.filter {
            let block = self.block::<B>(handle, PriorityPool::Paths)?;
            match may_contain(&block, key) {
                Some(true) => {}
                Some(false) => return Ok(()),
                None => return Err(self.table.damaged(handle.offset, "a filter is malformed").into()),
            }
        }
        self.seek_within::<B>(handles, key, stamp)
    }

    /// About where in the file the versions of `key`, or those after it, begin. Reads two index blocks at most.
    pub fn offset_of(mut self, key: &[u8]) -> Result<u64> {
        let Some(handles) = self.seek_top::<CacheAndFile>(key, Stamp::NEWEST)? else {
            return Ok(self.table.blocks_end());
        };
        let partition = self.open_partition::<CacheAndFile>(handles.index)?;
        partition.seek(key, Stamp::NEWEST)?;
        let data = partition.valid().then(|| BlockHandle::decode(partition.value())).flatten();
        Ok(data.map_or(handles.index.offset, |data| data.offset))
    }

    fn block<B: BlockSource>(&self, handle: BlockHandle, pool: PriorityPool) -> Result<Arc<Buffer>, B::Error> {
        B::block(&self.table, handle, pool, self.fill_cache)
    }

    /// How the bytes of the table lie along the keys: where each partition begins. Reads the top index.
    pub fn marks(mut self) -> Result<Vec<Mark>> {
        let mut begins = self.table.meta().smallest.clone();
        let mut offset = 0;
        let mut marks = Vec::new();
        self.open_top::<CacheAndFile>()?.seek_first()?;
        while let Some(handles) = self.partition_handles()? {
            let top = self.open_top::<CacheAndFile>()?;
            // A partition's index lies behind its data; its last key or a later one is in the top index.
            marks.push(Mark { key: begins, bytes: handles.index.offset.saturating_sub(offset) });
            (begins, offset) = (top.key().to_vec(), handles.index.offset);
            top.next()?;
        }
        Ok(marks)
    }

    /// Finds the partition for (`key`, `stamp`); the cursor is not valid until one of its blocks is opened.
    fn seek_top<B: BlockSource>(&mut self, key: &[u8], stamp: Stamp) -> Result<Option<PartitionHandles>, B::Error> {
        self.steps = 0;
        self.before = self.data.take().or(self.before.take());
        self.open_top::<B>()?;
        let stamp = self.in_file(stamp);
        self.open_top::<B>()?.seek(key, stamp)?;
        Ok(self.partition_handles()?)
    }

    /// What stands in the file for a stamp to be sought. Where all versions share one sequence number, the file has 0 in
    /// its place, and each key is there once.
    fn in_file(&self, stamp: Stamp) -> Stamp {
        match self.placed {
            None => stamp,
            Some(seqno) if stamp >= Stamp::new(seqno, Kind::Put) => Stamp::NEWEST,
            Some(_) => Stamp::OLDEST,
        }
    }

    fn seek_within<B: BlockSource>(
        &mut self,
        handles: PartitionHandles,
        key: &[u8],
        stamp: Stamp,
    ) -> Result<(), B::Error> {
        let stamp = self.in_file(stamp);
        self.open_partition::<B>(handles.index)?.seek(key, stamp)?;
        if let Some(data) = self.open_data::<B>(Direction::Forward, false)? {
            data.seek(key, stamp)?;
            self.skip_exhausted::<B>(Direction::Forward)?;
        }
        Ok(())
    }

    fn seek_end(&mut self, direction: Direction) -> Result<()> {
        self.data = None;
        direction.enter(self.open_top::<CacheAndFile>()?)?;
        let Some(handles) = self.partition_handles()? else {
            return Ok(());
        };
        direction.enter(self.open_partition::<CacheAndFile>(handles.index)?)?;
        if let Some(data) = self.open_data::<CacheAndFile>(direction, true)? {
            direction.enter(data)?;
        }
        self.skip_exhausted::<CacheAndFile>(direction)
    }

    /// While the data block has nothing more in `direction`, goes on to the next block there.
    fn skip_exhausted<B: BlockSource>(&mut self, direction: Direction) -> Result<(), B::Error> {
        while self.data.as_ref().is_some_and(|data| !data.valid()) {
            let (_, partition) = self.partition.as_mut().expect("an open data block was found in a partition");
            direction.step(partition)?;
            if let Some(data) = self.open_data::<B>(direction, true)? {
                direction.enter(data)?;
            }
        }
        Ok(())
    }

    /// The handles that the top index stands on; `None` past its ends.
    fn partition_handles(&self) -> Result<Option<PartitionHandles>> {
        let Some(top) = self.top.as_ref().filter(|top| top.valid()) else {
            return Ok(None);
        };
        let handles = PartitionHandles::decode(top.value());
        let offset = self.table.top_index()?.offset;
        handles.map(Some).ok_or_else(|| self.table.damaged(offset, "the top index holds a bad handle"))
    }

    fn open_top<B: BlockSource>(&mut self) -> Result<&mut BlockCursor, B::Error> {
        let top = match self.top.take() {
            Some(top) => top,
            None => {
                let handle = self.table.top_index()?;
                self.placed = self.table.placed()?;
                let block = match self.table.kept_top_index() {
                    Some(kept) => kept.clone(),
                    None => {
                        let block = self.block::<B>(handle, PriorityPool::Paths)?;
                        self.table.keep_top_index(&block);
                        block
                    }
                };
                self.table.block_cursor(handle, block)?
            }
        };
        Ok(self.top.insert(top))
    }

    fn open_partition<B: BlockSource>(&mut self, handle: BlockHandle) -> Result<&mut BlockCursor, B::Error> {
        let open = match self.partition.take() {
            Some(open) if open.0 == handle => open,
            _ => {
                let block = self.block::<B>(handle, PriorityPool::Paths)?;
                (handle, self.table.block_cursor(handle, block)?)
            }
        };
        Ok(&mut self.partition.insert(open).1)
    }

    /// Opens the data block that the indices stand on, going on to the next partition in `direction` if the present one
    /// is exhausted; `None` at the end of the table. `sequential` says that the blocks after it will be wanted, too.
    fn open_data<B: BlockSource>(
        &mut self,
        direction: Direction,
        sequential: bool,
    ) -> Result<Option<&mut BlockCursor>, B::Error> {
        loop {
            if let Some((index, partition)) = self.partition.as_ref().filter(|(_, partition)| partition.valid()) {
                let handle = BlockHandle::decode(partition.value());
                let bad = || self.table.damaged(index.offset, "an index block holds a bad handle");
                return Ok(Some(self.open_data_block::<B>(handle.ok_or_else(bad)?, direction, sequential)?));
            }
            if let Some(top) = self.top.as_mut().filter(|top| top.valid()) {
                direction.step(top)?;
            }
            let Some(handles) = self.partition_handles()? else {
                self.data = None;
                return Ok(None);
            };
            direction.enter(self.open_partition::<B>(handles.index)?)?;
        }
    }

    fn open_data_block<B: BlockSource>(
        &mut self,
        handle: BlockHandle,
        direction: Direction,
        sequential: bool,
    ) -> Result<&mut BlockCursor, B::Error> {
        if self.data.is_none()
            && self.data_offset == handle.offset
            && let Some(before) = self.before.take()
        {
            return Ok(self.data.insert(before));
        }
        let forward = sequential && direction == Direction::Forward;
        self.steps = if forward { self.steps.saturating_add(1) } else { 0 };
        let block = match forward && (!self.fill_cache || self.steps > SCAN_STEPS) {
            true => self.block_ahead(handle)?,
            false => self.block::<B>(handle, self.table.pool())?,
        };
        let data = match self.data.take().or(self.before.take()) {
            Some(mut data) => {
                data.open(block, handle.offset)?;
                data
            }
            None => self.table.block_cursor(handle, block)?,
        };
        self.data_offset = handle.offset;
        Ok(self.data.insert(data))
    }

    /// A block out of the bytes read ahead, which are read anew from here if it is not among them.
    fn block_ahead(&mut self, handle: BlockHandle) -> Result<Arc<Buffer>> {
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
        // The room that is given back may be what others are short of.
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
        table.read_into(&mut ahead.bytes, handle.offset).inspect_err(|_| ahead.bytes.clear())?;
        if !self.fill_cache {
            let (from, bytes) = ahead.next_to_tell(handle.offset + len as u64, table.blocks_end());
            table.will_go_on(from, bytes);
        }
        let sealed = table.within(&ahead.bytes, ahead.start, handle);
        let sealed = sealed.expect("a block that fits lies within what was read for it");
        table.unseal_part(handle, sealed, self.fill_cache)
    }

    /// Leaves the cursor not valid if a move failed.
    fn settle(&mut self, moved: Result<()>) -> Result<()> {
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
        match self.placed {
            None => stamp,
            // The kind stays.
            Some(seqno) => Stamp(seqno.0 << 8 | stamp.0 & 0xff),
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
        let moved = match self.seek_top::<CacheAndFile>(key, stamp) {
            Ok(Some(handles)) => self.seek_within::<CacheAndFile>(handles, key, stamp),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.settle(moved)
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.seek(key, stamp)?;
        if self.valid() { self.prev() } else { self.seek_last() }
    }

    fn seek_first(&mut self) -> Result<()> {
        let moved = self.seek_end(Direction::Forward);
        self.settle(moved)
    }

    fn seek_last(&mut self) -> Result<()> {
        let moved = self.seek_end(Direction::Backward);
        self.settle(moved)
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        let data = self.data.as_mut().expect("only a valid cursor moves");
        data.next()?;
        if data.valid() {
            return Ok(());
        }
        let moved = self.skip_exhausted::<CacheAndFile>(Direction::Forward);
        self.settle(moved)
    }

    fn prev(&mut self) -> Result<()> {
        let data = self.data.as_mut().expect("only a valid cursor moves");
        data.prev()?;
        if data.valid() {
            return Ok(());
        }
        let moved = self.skip_exhausted::<CacheAndFile>(Direction::Backward);
        self.settle(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_of_every_byte_once_and_well_before_it_is_read() {
        let mut ahead = Ahead { start: 0, bytes: Vec::new(), room: None, wanted: 0, told_to: 0 };
        let (file_end, step) = (10 * TOLD_BYTES + 5, 256 << 10);
        let mut told: Vec<(u64, u64)> = Vec::new();
        for end in (step..file_end).step_by(step as usize).chain([file_end]) {
            let (from, bytes) = ahead.next_to_tell(end, file_end);
            if bytes > 0 {
                assert!(bytes >= TOLD_BYTES / 2 || from + bytes == file_end, "in few pieces: {bytes} at {end}");
                assert!(from == told.last().map_or(end, |(from, bytes)| from + bytes), "{from} at {end}");
                told.push((from, bytes));
            }
            assert!(ahead.told_to > end + TOLD_BYTES / 2 || ahead.told_to == file_end, "{} at {end}", ahead.told_to);
        }
        assert_eq!(told.iter().map(|(_, bytes)| bytes).sum::<u64>(), file_end - step);
        // After a seek, back or far on, what was told of before counts for nothing.
        for end in [step, 5 * TOLD_BYTES] {
            assert_eq!(ahead.next_to_tell(end, file_end), (end, TOLD_BYTES));
        }
        assert_eq!(ahead.next_to_tell(file_end, file_end), (file_end, 0));
    }
}
