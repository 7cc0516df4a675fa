//! A table on disk, open for reading. Resident are only its description and, once it is used, its top index, if that is
//! small; every other block (index partitions, filters, data) is read through the block cache, so memory grows little with
//! tables. Its file is open only while it is among those read lately.
//!
//! Called by versions, scans and compactions; shared between threads behind an `Arc`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::blocks::Blocks;
use super::readers::Readers;
use super::table_cursor::{CacheAndFile, TableCursor};
use crate::base::memory::Counted;
use crate::base::tombstones::{Fragment, RangeTombstones, TombstoneSpan};
use crate::base::{Buffer, Cursor, Error, FileKey, Gauge, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::meta::TableMeta;
use crate::format::properties::Properties;
use crate::format::range_block::RangeBlock;
use crate::format::references::References;
use crate::format::table::{BlockHandle, FOOTER_BYTES, Footer};
use crate::io::handles::Handle;
use crate::io::pending_deletions::FileGuard;
use crate::io::read_exact_at;

/// Read from the end of a table when it is used first: the footer, and the properties unless their keys are long.
const TAIL_BYTES: u64 = 4096;
/// A top index up to this size stays with its table.
const TOP_INDEX_BYTES_MAX: u64 = 4096;
/// About what the manifest, the version and the allocator need for a table beside what is in it here.
const RESIDENT_OVERHEAD_BYTES: usize = 256;

/// A table.
pub struct Table {
    meta: TableMeta,
    guard: FileGuard,
    handle: Handle,
    /// Read and checked when it is first needed.
    places: OnceLock<Places>,
    /// The top index, unless it is large.
    top_index: OnceLock<Arc<Buffer>>,
    readers: Arc<Readers>,
    _resident: Counted,
}

/// Where the blocks are that lead to all others.
#[derive(Clone, Copy)]
struct Places {
    top_index: BlockHandle,
    properties: BlockHandle,
    /// The range tombstones, if there are any.
    ranges: Option<BlockHandle>,
    /// The one sequence number of all versions, which the manifest knows and the file does not.
    placed: Option<Seqno>,
}

impl Table {
    /// The table that `meta` describes. Nothing is read: that the file exists and is as long as it must be is checked
    /// here, and that it is that very file when it is first used.
    pub fn new(readers: &Arc<Readers>, guard: FileGuard, meta: TableMeta) -> Result<Arc<Table>> {
        let path = guard.path().clone();
        let Some(len) = readers.storage.file_len(&path)? else {
            return Err(Error::corruption(&path, 0, "the manifest names this table, but it is missing"));
        };
        if len != meta.size || len < FOOTER_BYTES as u64 {
            let message = format!("the table is {len} B long, not {} B", meta.size);
            return Err(Error::corruption(&path, len.min(meta.size), message));
        }
        // The manifest holds the keys once more.
        let cleared: usize =
            meta.covered_ranges.iter().map(|range| range.start.capacity() + range.end.capacity() + 64).sum();
        let keys = 2 * (meta.smallest.capacity() + meta.end.capacity() + cleared);
        let resident = size_of::<Table>() + size_of::<TableMeta>() + keys + path.as_os_str().len();
        let resident = readers.resident.hold(resident + RESIDENT_OVERHEAD_BYTES);
        let handle = readers.handles.handle(path);
        let (places, top_index) = (OnceLock::new(), OnceLock::new());
        Ok(Arc::new(Table { meta, guard, handle, places, top_index, readers: readers.clone(), _resident: resident }))
    }

    /// As [`new`](Table::new), and checks at once that it is that file: its number, its keys and its counts. One small
    /// read.
    pub fn open(readers: &Arc<Readers>, guard: FileGuard, meta: TableMeta) -> Result<Arc<Table>> {
        let table = Table::new(readers, guard, meta)?;
        table.places()?;
        Ok(table)
    }

    /// The footer, read and compared with what the manifest says of the table when it is first asked for.
    fn places(&self) -> Result<&Places> {
        match self.places.get() {
            Some(places) => Ok(places),
            // Two readers may both come here; they read the same.
            None => self.read_places().map(|places| self.places.get_or_init(|| places)),
        }
    }

    /// The sequence number of all versions of a table that was written before it was known: the file says 0.
    pub(super) fn placed(&self) -> Result<Option<Seqno>> {
        self.places().map(|places| places.placed)
    }

    fn read_places(&self) -> Result<Places> {
        let len = self.meta.size;
        let tail_offset = len.saturating_sub(TAIL_BYTES);
        let mut tail = vec![0; (len - tail_offset) as usize];
        self.read_into(&mut tail, tail_offset)?;
        let footer_bytes = tail.last_chunk().expect("the tail was read from at least a footer's length");
        let footer = Footer::decode(footer_bytes, self.meta.id, self.path(), len - FOOTER_BYTES as u64)?;
        let properties = match self.within(&tail, tail_offset, footer.properties) {
            Some(sealed) => self.properties_from(footer.properties, sealed)?,
            None => self.properties_from(footer.properties, &self.read_sealed(footer.properties)?)?,
        };
        let found = TableMeta::new(self.meta.id, len, &properties);
        let placed = (found.seqno_max == Seqno::ZERO && self.meta.seqno_min == self.meta.seqno_max)
            .then_some(self.meta.seqno_max);
        let found = placed.map_or(found.clone(), |seqno| found.placed_at(seqno));
        if found != self.meta {
            return Err(self.damaged(footer.properties.offset, "the table holds other versions than the manifest says"));
        }
        if properties.range_block.is_some() != (properties.range_deletes > 0) {
            return Err(self.damaged(footer.properties.offset, "the table's range tombstones are not where it says"));
        }
        Ok(Places {
            top_index: footer.top_index,
            properties: footer.properties,
            ranges: properties.range_block,
            placed,
        })
    }

    /// The same file as a table of which all versions have this sequence number; it must have been written with none.
    pub fn place_at(&self, readers: &Arc<Readers>, guard: FileGuard, seqno: Seqno) -> Result<Arc<Table>> {
        Table::new(readers, guard, self.meta.clone().placed_at(seqno))
    }

    /// What the manifest says of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The manifest no longer names the table: its file goes when the last holder lets go.
    pub fn mark_obsolete(&self) {
        self.guard.mark_obsolete();
    }

    /// What its addresses name. One small read, if there are any.
    pub fn names(&self) -> Result<References> {
        match self.meta.addresses {
            0 => Ok(References::default()),
            _ => self.properties().map(|properties| properties.references),
        }
    }

    /// What it holds, read from the file.
    pub fn properties(&self) -> Result<Properties> {
        let handle = self.places()?.properties;
        self.properties_from(handle, &self.read_sealed(handle)?)
    }

    /// A cursor on the newest version of `key` at or below `snapshot`; moving on gives the older ones. The filter is
    /// asked first, so most keys that are absent cost no read of data.
    pub fn find(self: &Arc<Self>, key: &[u8], snapshot: Seqno) -> Result<Option<TableCursor>> {
        if !self.may_hold(key, snapshot) {
            return Ok(None);
        }
        let mut cursor = self.cursor(true);
        cursor.seek_filtered::<CacheAndFile>(key, Stamp::at(snapshot))?;
        Ok((cursor.valid() && cursor.key() == key).then_some(cursor))
    }

    /// What is known without reading does not rule out a version of `key` at or below `snapshot`.
    pub fn may_hold(&self, key: &[u8], snapshot: Seqno) -> bool {
        snapshot >= self.meta.seqno_min && self.meta.entries > 0 && self.meta.spans(key)
    }

    /// Some range tombstones are in it.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        self.meta.range_deletes > 0
    }

    /// The newest range tombstone that covers a key for a reader at `snapshot`; 0 if there is none.
    #[inline]
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Result<Seqno> {
        match self.has_ranges() && snapshot >= self.meta.seqno_min {
            true => self.ranges(true)?.map_or(Ok(Seqno::ZERO), |ranges| ranges.cover(key, snapshot)),
            false => Ok(Seqno::ZERO),
        }
    }

    /// All fragments of range tombstones, for a job.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        match self.has_ranges() {
            true => self.ranges(false)?.map_or(Ok(Vec::new()), |ranges| ranges.fragments()),
            false => Ok(Vec::new()),
        }
    }

    fn ranges(&self, fill_cache: bool) -> Result<Option<RangeBlock>> {
        let Some(handle) = self.places()?.ranges else {
            return Ok(None);
        };
        let block = self.block(handle, PriorityPool::Paths, fill_cache)?;
        Ok(Some(RangeBlock::new(block, BlockOrigin::new(self.path().clone(), handle.offset))))
    }

    /// A cursor over all versions. With `fill_cache` unset (flush, compaction) it leaves the cache as it is and reads
    /// ahead when it moves forward.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor::new(self.clone(), fill_cache)
    }

    pub(super) fn top_index(&self) -> Result<BlockHandle> {
        self.places().map(|places| places.top_index)
    }

    /// The top index, if it has been kept since it was read first.
    pub(super) fn kept_top_index(&self) -> Option<&Arc<Buffer>> {
        self.top_index.get()
    }

    /// Keeps the top index, if it is small.
    pub(super) fn keep_top_index(&self, block: &Arc<Buffer>) {
        if block.len() as u64 <= TOP_INDEX_BYTES_MAX {
            // A copy, so that it is counted with the table.
            self.top_index.get_or_init(|| self.counted(block.to_vec(), &self.readers.resident));
        }
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Its file.
    pub fn key(&self) -> FileKey {
        self.guard.key()
    }

    /// Where its file lies.
    pub fn path(&self) -> &Arc<Path> {
        self.handle.path()
    }

    /// Where the blocks end; no handle may point past it.
    pub(super) fn blocks_end(&self) -> u64 {
        self.meta.size - FOOTER_BYTES as u64
    }

    pub(super) fn block_cursor(&self, handle: BlockHandle, block: Arc<Buffer>) -> Result<BlockCursor> {
        BlockCursor::new(block, BlockOrigin { path: self.path().clone(), offset: handle.offset })
    }

    /// How blocks of its entries are kept.
    pub(super) fn pool(&self) -> PriorityPool {
        if 2 * self.meta.addresses > self.meta.entries { PriorityPool::Keys } else { PriorityPool::Values }
    }

    /// The block, from the cache if it is there.
    pub(super) fn cached_block(&self, handle: BlockHandle, pool: PriorityPool) -> Option<Arc<Buffer>> {
        self.readers.cache.get_from(pool, self.meta.id, handle.offset)
    }

    /// The block, through the cache.
    pub(super) fn block(&self, handle: BlockHandle, pool: PriorityPool, fill_cache: bool) -> Result<Arc<Buffer>> {
        if let Some(block) = self.cached_block(handle, pool) {
            return Ok(block);
        }
        let sealed = self.read_sealed(handle)?;
        let block = self.unseal(handle, sealed, self.gauge(fill_cache))?;
        if fill_cache {
            self.keep(handle, pool, &block);
        }
        Ok(block)
    }

    /// Where the blocks of a cursor count: in the cache, or with the jobs.
    fn gauge(&self, fill_cache: bool) -> &Arc<Gauge> {
        if fill_cache { self.readers.cache.gauge() } else { &self.readers.jobs }
    }

    fn keep(&self, handle: BlockHandle, pool: PriorityPool, block: &Arc<Buffer>) {
        self.readers.cache.insert_into(pool, self.meta.id, handle.offset, block.clone());
    }

    /// These bytes of the file will be read soon.
    pub(super) fn will_need(&self, offset: u64, len: u64) {
        if let Ok(file) = self.handle.file() {
            file.will_need(offset, len);
        }
    }

    /// Reads blocks that lie within `span` into the cache, all at once. `told` says that
    /// [`will_need`](Table::will_need) was called for that.
    pub(super) fn fill_cache(
        &self,
        blocks: &[(BlockHandle, PriorityPool)],
        span: (u64, u64),
        told: bool,
    ) -> Result<()> {
        if span.1 > self.blocks_end() {
            return Err(self.damaged(span.0, "a block is said to lie outside the table"));
        }
        let file = self.handle.file()?;
        let mut bytes = vec![0; (span.1 - span.0) as usize];
        let read = if told { file.read_needed(&mut bytes, span.0)? } else { file.read_at(&mut bytes, span.0)? };
        bytes.truncate(read);
        for &(handle, pool) in blocks {
            let sealed = self.within(&bytes, span.0, handle).unwrap_or_default();
            let block = self.unseal(handle, sealed.to_vec(), self.readers.cache.gauge())?;
            self.keep(handle, pool, &block);
        }
        Ok(())
    }

    /// Fills `buffer` with blocks from `offset` on.
    pub(super) fn read_into(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&*self.handle.file()?, buffer, offset)
    }

    /// A job is about to read these bytes of the file.
    pub(super) fn will_go_on(&self, offset: u64, len: u64) {
        if len > 0
            && let Ok(file) = self.handle.file()
        {
            file.will_go_on(offset, len);
        }
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { id: self.meta.id, path: self.path(), end: self.blocks_end() }
    }

    /// Checks and decompresses a block of entries out of bytes that were read ahead, with its trailer, and keeps it if asked to.
    pub(super) fn unseal_part(&self, handle: BlockHandle, sealed: &[u8], fill_cache: bool) -> Result<Arc<Buffer>> {
        let block = self.counted(self.blocks().open_part(handle, sealed)?, self.gauge(fill_cache));
        if fill_cache {
            self.keep(handle, self.pool(), &block);
        }
        Ok(block)
    }

    /// The same for bytes that are the block's own.
    fn unseal(&self, handle: BlockHandle, sealed: Vec<u8>, gauge: &Arc<Gauge>) -> Result<Arc<Buffer>> {
        Ok(self.counted(self.blocks().open(handle, sealed)?.1, gauge))
    }

    fn counted(&self, mut bytes: Vec<u8>, gauge: &Arc<Gauge>) -> Arc<Buffer> {
        bytes.shrink_to_fit();
        Arc::new(Buffer::counted(bytes, gauge.clone()))
    }

    /// The part of `bytes`, which were read from `start` on, that is the block with its trailer; `None` if it is not
    /// all there.
    pub(super) fn within<'a>(&self, bytes: &'a [u8], start: u64, handle: BlockHandle) -> Option<&'a [u8]> {
        let from = usize::try_from(handle.offset.checked_sub(start)?).ok()?;
        let to = usize::try_from(handle.end()?.checked_sub(start)?).ok()?;
        bytes.get(from..to)
    }

    #[cold]
    pub(super) fn damaged(&self, offset: u64, message: &str) -> Error {
        self.blocks().damaged(offset, message)
    }

    fn read_sealed(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        self.blocks().read(&*self.handle.file()?, handle)
    }

    fn properties_from(&self, handle: BlockHandle, sealed: &[u8]) -> Result<Properties> {
        let (_, payload_len) = self.blocks().check(handle, sealed)?;
        Properties::decode(&sealed[..payload_len]).map_err(|message| self.damaged(handle.offset, message))
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if self.guard.is_obsolete() {
            self.readers.cache.forget(self.meta.id);
        }
    }
}

impl RangeTombstones for Table {
    fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        self.ranges(true)?.map_or(Ok(TombstoneSpan::default()), |ranges| ranges.span_at(key, snapshot))
    }
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
