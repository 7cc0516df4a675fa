//! A table file, open for reading. Only its description and, once used, a small top index are resident; all other
//! blocks (index partitions, filters, data) are read through the block cache, so memory hardly grows with the number of
//! tables. The file is open only while it is among the most recently read.
//!
//! Called by versions, scans and compactions; shared between threads behind an `Arc`.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use super::blocks::Blocks;
use super::readers::Readers;
use crate::base::memory::Counted;
use crate::base::tombstones::{Fragment, RangeTombstones, TombstoneSpan};
use crate::base::{Bytes, Error, FileKey, Gauge, Result, Seqno};
use crate::cache::block_cache::PriorityPool;
use crate::format::block::BlockOrigin;
use crate::format::meta::TableMeta;
use crate::format::properties::Properties;
use crate::format::range_block::RangeBlock;
use crate::format::references::References;
use crate::format::table::{BlockHandle, FOOTER_BYTES, Footer};
use crate::io::file_guard::FileGuard;
use crate::io::handles::Handle;
use crate::io::{File, read_exact_at};

/// Bytes read from the end of a table at its first use: the footer, and usually the properties.
const TAIL_BYTES: u64 = 4096;
/// A top index up to this size is kept with its table.
const TOP_INDEX_BYTES_MAX: u64 = 4096;
/// Approximate memory per table in the manifest, the version and the allocator, beyond what is counted here.
const RESIDENT_OVERHEAD_BYTES: usize = 256;

/// What is wrong with a malformed entry of a top index.
pub(super) const BAD_TOP_INDEX: &str = "the top index holds an invalid block handle";
/// What is wrong with a malformed entry of the index of a partition.
pub(super) const BAD_INDEX: &str = "an index block holds an invalid block handle";

/// A table.
pub struct Table {
    meta: TableMeta,
    guard: FileGuard,
    handle: Handle,
    /// Read and checked at first use.
    places: OnceLock<Places>,
    /// The top index, unless it is large.
    top_index: OnceLock<Bytes>,
    readers: Arc<Readers>,
    /// How many of its versions have an older version in other tables, by estimate; [`u64::MAX`] if that is not known.
    covering: AtomicU64,
    _resident: Counted,
}

/// Handles of the blocks that lead to all others.
#[derive(Clone, Copy)]
pub(super) struct Places {
    pub top_index: BlockHandle,
    properties: BlockHandle,
    /// The range tombstones, if there are any.
    ranges: Option<BlockHandle>,
    /// The sequence number of all versions in a table that was written before it was assigned: the file says 0.
    pub global_seqno: Option<Seqno>,
}

impl Table {
    /// The table described by `meta`. Nothing is read: existence and length of the file are checked here, its content
    /// at first use.
    pub fn new(readers: &Arc<Readers>, guard: FileGuard, meta: TableMeta) -> Result<Arc<Table>> {
        let path = guard.path().clone();
        let Some(len) = readers.storage.file_len(&path)? else {
            return Err(Error::corruption(&path, 0, "the manifest names this table, but it is missing"));
        };
        if len != meta.size || len < FOOTER_BYTES as u64 {
            let message = format!("the table is {len} B long, not {} B", meta.size);
            return Err(Error::corruption(&path, len.min(meta.size), message));
        }
        // The manifest holds a second copy of the keys.
        let covered: usize =
            meta.covered_ranges.iter().map(|range| range.start.capacity() + range.end.capacity() + 64).sum();
        let keys = 2 * (meta.smallest.capacity() + meta.end.capacity() + covered);
        let resident = size_of::<Table>() + size_of::<TableMeta>() + keys + path.as_os_str().len();
        let resident = readers.resident.hold(resident + RESIDENT_OVERHEAD_BYTES);
        let handle = readers.handle(&guard);
        let (places, top_index) = (OnceLock::new(), OnceLock::new());
        let covering = AtomicU64::new(u64::MAX);
        let readers = readers.clone();
        Ok(Arc::new(Table { meta, guard, handle, places, top_index, readers, covering, _resident: resident }))
    }

    /// As [`new`](Table::new), and checks the content at once: number, keys and counts. One small read.
    pub fn open(readers: &Arc<Readers>, guard: FileGuard, meta: TableMeta) -> Result<Arc<Table>> {
        let table = Table::new(readers, guard, meta)?;
        table.places()?;
        Ok(table)
    }

    /// The footer, read and compared with the manifest's description at first use.
    pub(super) fn places(&self) -> Result<&Places> {
        match self.places.get() {
            Some(places) => Ok(places),
            // Two readers may both get here; they read the same.
            None => self.read_places().map(|places| self.places.get_or_init(|| places)),
        }
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
        let global_seqno = (found.seqno_max == Seqno::ZERO && self.meta.seqno_min == self.meta.seqno_max)
            .then_some(self.meta.seqno_max);
        let found = global_seqno.map_or(found.clone(), |seqno| found.placed_at(seqno));
        if found != self.meta {
            return Err(self.damaged(footer.properties.offset, "the table's properties differ from the manifest"));
        }
        if properties.range_block.is_some() != (properties.range_deletes > 0) {
            return Err(self.damaged(
                footer.properties.offset,
                "the table's range block and its count of range tombstones disagree",
            ));
        }
        Ok(Places {
            top_index: footer.top_index,
            properties: footer.properties,
            ranges: properties.range_block,
            global_seqno,
        })
    }

    /// The same file as a table whose versions all have this sequence number; it must have been written without one.
    pub fn place_at(&self, readers: &Arc<Readers>, guard: FileGuard, seqno: Seqno) -> Result<Arc<Table>> {
        Table::new(readers, guard, self.meta.clone().placed_at(seqno))
    }

    /// The manifest's description of the table.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// How many of its versions have an older version in other tables, by estimate; `None` if it was written before the
    /// database was opened.
    pub fn covering(&self) -> Option<u64> {
        Some(self.covering.load(Ordering::Relaxed)).filter(|count| *count < u64::MAX)
    }

    /// Notes an estimate for [`Table::covering`].
    pub fn note_covering(&self, count: u64) {
        self.covering.store(count.min(self.meta.entries), Ordering::Relaxed);
    }

    /// The manifest no longer references the table: its file is removed with the last holder.
    pub fn mark_obsolete(&self) {
        self.guard.mark_obsolete();
    }

    /// The records that its addresses reference, by file. One small read, if there are any.
    pub fn references(&self) -> Result<References> {
        match self.meta.addresses {
            0 => Ok(References::default()),
            _ => self.properties().map(|properties| properties.references),
        }
    }

    /// The table's properties, read from the file.
    pub fn properties(&self) -> Result<Properties> {
        let handle = self.places()?.properties;
        self.properties_from(handle, &self.read_sealed(handle)?)
    }

    /// Whether it holds range tombstones.
    #[inline]
    pub fn has_ranges(&self) -> bool {
        self.meta.range_deletes > 0
    }

    /// The newest range tombstone that covers a key for a reader at `snapshot`; 0 if there is none.
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Result<Seqno> {
        self.ranges(true)?.map_or(Ok(Seqno::ZERO), |ranges| ranges.cover(key, snapshot))
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
        let block = self.block(handle, PriorityPool::Metadata, fill_cache)?;
        Ok(Some(RangeBlock::new(block, BlockOrigin::new(self.path().clone(), handle.offset))))
    }

    /// The top index, if it is kept in memory.
    pub(super) fn kept_top_index(&self) -> Option<&Bytes> {
        self.top_index.get()
    }

    /// Keeps the top index, if it is small.
    pub(super) fn keep_top_index(&self, block: &Bytes) {
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

    /// End of the blocks; no handle may point past it.
    pub(super) fn blocks_end(&self) -> u64 {
        self.meta.size - FOOTER_BYTES as u64
    }

    /// The priority pool of its data blocks.
    pub(super) fn pool(&self) -> PriorityPool {
        if self.meta.holds_addresses() { PriorityPool::Keys } else { PriorityPool::Values }
    }

    /// The block, if it is cached.
    pub(super) fn cached_block(&self, handle: BlockHandle, pool: PriorityPool) -> Option<Bytes> {
        self.readers.cache.get_from(pool, self.meta.id, handle.offset)
    }

    /// The block, through the cache.
    pub(super) fn block(&self, handle: BlockHandle, pool: PriorityPool, fill_cache: bool) -> Result<Bytes> {
        if let Some(block) = self.readers.cache.get_from(pool, self.meta.id, handle.offset) {
            return Ok(block);
        }
        let sealed = match fill_cache {
            true => self.readers.cache.timed(pool, || self.read_sealed(handle))?,
            false => self.read_sealed(handle)?,
        };
        let block = self.unseal(handle, sealed, self.gauge(fill_cache))?;
        if fill_cache {
            self.keep(handle, pool, &block);
        }
        Ok(block)
    }

    /// The gauge that counts the blocks of a cursor: the cache's, or that of the jobs.
    fn gauge(&self, fill_cache: bool) -> &Arc<Gauge> {
        if fill_cache { self.readers.cache.gauge() } else { &self.readers.jobs }
    }

    fn keep(&self, handle: BlockHandle, pool: PriorityPool, block: &Bytes) {
        self.readers.cache.insert_into(pool, self.meta.id, handle.offset, block.clone());
    }

    /// The open file.
    pub(super) fn file(&self) -> Result<Arc<dyn File>> {
        self.handle.file()
    }

    /// Puts a block into the cache, out of its bytes in the file.
    pub(super) fn insert_block(&self, handle: BlockHandle, pool: PriorityPool, sealed: Vec<u8>) -> Result<()> {
        let block = self.unseal(handle, sealed, self.readers.cache.gauge())?;
        self.keep(handle, pool, &block);
        Ok(())
    }

    /// Fills `buffer` from `offset` on.
    pub(super) fn read_into(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        read_exact_at(&*self.handle.file()?, buffer, offset)
    }

    /// The open file, for a cursor of a job, which announces what it will read.
    pub(super) fn file_in_order(&self) -> Result<Arc<dyn File>> {
        Ok(self.readers.in_order(self.handle.file()?, self.guard.key().dir))
    }

    fn blocks(&self) -> Blocks<'_> {
        Blocks { id: self.meta.id, path: self.path(), end: self.blocks_end() }
    }

    /// Checks and decompresses a data block with its trailer from bytes that were read ahead, and caches it if asked
    /// to.
    pub(super) fn unseal_part(&self, handle: BlockHandle, sealed: &[u8], fill_cache: bool) -> Result<Bytes> {
        let block = self.counted(self.blocks().open_part(handle, sealed)?, self.gauge(fill_cache));
        if fill_cache {
            self.keep(handle, self.pool(), &block);
        }
        Ok(block)
    }

    /// The same for bytes that hold only this block.
    fn unseal(&self, handle: BlockHandle, sealed: Vec<u8>, gauge: &Arc<Gauge>) -> Result<Bytes> {
        Ok(self.counted(self.blocks().open(handle, sealed)?.1, gauge))
    }

    fn counted(&self, mut bytes: Vec<u8>, gauge: &Arc<Gauge>) -> Bytes {
        bytes.shrink_to_fit();
        Bytes::counted(bytes, gauge.clone())
    }

    /// The block with its trailer within `bytes`, which were read from `start` on; `None` if it is not complete.
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
