//! A table on disk, open for reading. Resident are only its description and where its top index lies; every block (top
//! index, index partitions, filters, data) is read through the block cache, so memory grows little with tables. Its file
//! is open only while it is among those read lately.
//!
//! Called by versions, scans and compactions; shared between threads behind an `Arc`.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::readers::Readers;
use super::table_cursor::TableCursor;
use crate::base::memory::Counted;
use crate::base::{Buffer, Cursor, Error, Gauge, Result, Seqno, Stamp};
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::compression::{Compression, decompress};
use crate::format::meta::TableMeta;
use crate::format::table::{
    BLOCK_BYTES_MAX, BlockHandle, FOOTER_BYTES, Footer, Properties, TRAILER_BYTES, check_block,
};
use crate::io::File;
use crate::io::handles::Handle;
use crate::io::trash::FileGuard;

/// Read from the end of a table when it is used first: the footer, and the properties unless their keys are long.
const TAIL_BYTES: u64 = 4096;
/// About what the manifest, the version and the allocator need for a table beside what is in it here.
const RESIDENT_OVERHEAD_BYTES: usize = 256;

/// A table.
pub struct Table {
    meta: TableMeta,
    guard: FileGuard,
    handle: Handle,
    /// Read and checked when it is first needed.
    footer: OnceLock<Footer>,
    readers: Arc<Readers>,
    _resident: Counted,
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
        let keys = 2 * (meta.smallest.capacity() + meta.largest.capacity());
        let resident = size_of::<Table>() + size_of::<TableMeta>() + keys + path.as_os_str().len();
        let resident = readers.resident.hold(resident + RESIDENT_OVERHEAD_BYTES);
        let handle = readers.handles.handle(path);
        let footer = OnceLock::new();
        Ok(Arc::new(Table { meta, guard, handle, footer, readers: readers.clone(), _resident: resident }))
    }

    /// As [`new`](Table::new), and checks at once that it is that file: its number, its keys and its counts. One small
    /// read.
    pub fn open(readers: &Arc<Readers>, guard: FileGuard, meta: TableMeta) -> Result<Arc<Table>> {
        let table = Table::new(readers, guard, meta)?;
        table.footer()?;
        Ok(table)
    }

    /// The footer, read and compared with what the manifest says of the table when it is first asked for.
    fn footer(&self) -> Result<&Footer> {
        match self.footer.get() {
            Some(footer) => Ok(footer),
            // Two readers may both come here; they read the same.
            None => self.read_footer().map(|footer| self.footer.get_or_init(|| footer)),
        }
    }

    fn read_footer(&self) -> Result<Footer> {
        let len = self.meta.size;
        let tail_offset = len.saturating_sub(TAIL_BYTES);
        let tail = read_exactly(&*self.handle.file()?, tail_offset, (len - tail_offset) as usize)?;
        let footer_bytes = tail.last_chunk().expect("the tail was read from at least a footer's length");
        let footer = Footer::decode(footer_bytes, self.meta.id, self.path(), len - FOOTER_BYTES as u64)?;
        let properties = match self.within(&tail, tail_offset, footer.properties) {
            Some(sealed) => self.properties_from(&footer, sealed)?,
            None => self.properties_from(&footer, &self.read_sealed(footer.properties)?)?,
        };
        if TableMeta::new(self.meta.id, len, &properties) != self.meta {
            return Err(self.damaged(footer.properties.offset, "the table holds other versions than the manifest says"));
        }
        Ok(footer)
    }

    /// What the manifest says of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The manifest no longer names the table: its file goes when the last holder lets go.
    pub fn doom(&self) {
        self.guard.doom();
    }

    /// What it holds, read from the file.
    #[cfg(test)]
    pub fn properties(&self) -> Result<Properties> {
        let footer = self.footer()?;
        self.properties_from(footer, &self.read_sealed(footer.properties)?)
    }

    /// A cursor on the newest version of `key` at or below `snapshot`; moving on gives the older ones. The filter is
    /// asked first, so most keys that are absent cost no read of data.
    pub fn find(self: &Arc<Self>, key: &[u8], snapshot: Seqno) -> Result<Option<TableCursor>> {
        if snapshot < self.meta.seqno_min || !self.meta.overlaps(key, key) {
            return Ok(None);
        }
        let mut cursor = self.cursor(true);
        cursor.seek_filtered(key, Stamp::at(snapshot))?;
        Ok((cursor.valid() && cursor.key() == key).then_some(cursor))
    }

    /// A cursor over all versions. With `fill_cache` unset (flush, compaction) it leaves the cache as it is and reads
    /// ahead when it moves forward.
    pub fn cursor(self: &Arc<Self>, fill_cache: bool) -> TableCursor {
        TableCursor::new(self.clone(), fill_cache)
    }

    pub(super) fn top_index(&self) -> Result<BlockHandle> {
        self.footer().map(|footer| footer.top_index)
    }

    pub(super) fn readers(&self) -> &Readers {
        &self.readers
    }

    fn path(&self) -> &Arc<Path> {
        self.handle.path()
    }

    /// Where the blocks end; no handle may point past it.
    pub(super) fn blocks_end(&self) -> u64 {
        self.meta.size - FOOTER_BYTES as u64
    }

    pub(super) fn block_cursor(&self, handle: BlockHandle, block: Arc<Buffer>) -> Result<BlockCursor> {
        BlockCursor::new(block, BlockOrigin { path: self.path().clone(), offset: handle.offset })
    }

    /// The block, from the cache if it is there.
    pub(super) fn cached_block(&self, handle: BlockHandle) -> Option<Arc<Buffer>> {
        self.readers.cache.get(self.meta.id, handle.offset)
    }

    /// The block, through the cache.
    pub(super) fn block(&self, handle: BlockHandle, fill_cache: bool) -> Result<Arc<Buffer>> {
        if let Some(block) = self.cached_block(handle) {
            return Ok(block);
        }
        let sealed = self.read_sealed(handle)?;
        let gauge = if fill_cache { self.readers.cache.gauge() } else { &self.readers.jobs };
        let block = self.unseal(handle, sealed, gauge)?;
        if fill_cache {
            self.readers.cache.insert(self.meta.id, handle.offset, block.clone());
        }
        Ok(block)
    }

    /// Fills `buffer` with blocks from `offset` on.
    pub(super) fn read_into(&self, buffer: &mut [u8], offset: u64) -> Result<()> {
        read_into(&*self.handle.file()?, buffer, offset)
    }

    /// Checks and decompresses a block as it was read, with its trailer, for a job.
    pub(super) fn unseal_part(&self, handle: BlockHandle, sealed: &[u8]) -> Result<Arc<Buffer>> {
        let (compression, payload_len) = self.check(handle, sealed)?;
        let bytes = match compression {
            Compression::None => sealed[..payload_len].to_vec(),
            _ => self.decompress(handle, compression, &sealed[..payload_len])?,
        };
        Ok(self.counted(bytes, &self.readers.jobs))
    }

    /// The same for bytes that are the block's own.
    fn unseal(&self, handle: BlockHandle, mut sealed: Vec<u8>, gauge: &Arc<Gauge>) -> Result<Arc<Buffer>> {
        let (compression, payload_len) = self.check(handle, &sealed)?;
        sealed.truncate(payload_len);
        let bytes = match compression {
            Compression::None => sealed,
            _ => self.decompress(handle, compression, &sealed)?,
        };
        Ok(self.counted(bytes, gauge))
    }

    fn check(&self, handle: BlockHandle, sealed: &[u8]) -> Result<(Compression, usize)> {
        check_block(sealed, self.meta.id, handle.offset).map_err(|message| self.damaged(handle.offset, message))
    }

    fn decompress(&self, handle: BlockHandle, compression: Compression, payload: &[u8]) -> Result<Vec<u8>> {
        compression.check_available(self.path())?;
        decompress(compression, payload, BLOCK_BYTES_MAX).map_err(|message| self.damaged(handle.offset, message))
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
        Error::corruption(self.path(), offset, message)
    }

    fn read_sealed(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        match handle.end() {
            Some(end) if end <= self.blocks_end() => {
                read_exactly(&*self.handle.file()?, handle.offset, handle.len as usize + TRAILER_BYTES)
            }
            _ => Err(self.damaged(handle.offset, "a block is said to lie outside the table")),
        }
    }

    fn properties_from(&self, footer: &Footer, sealed: &[u8]) -> Result<Properties> {
        let offset = footer.properties.offset;
        check_block(sealed, self.meta.id, offset)
            .and_then(|(_, payload_len)| Properties::decode(&sealed[..payload_len]))
            .map_err(|message| self.damaged(offset, message))
    }
}

/// Reads `len` bytes; the caller has bounded `len` by the file's length.
fn read_exactly(file: &dyn File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    read_into(file, &mut bytes, offset)?;
    Ok(bytes)
}

/// Fills `buffer`; a file that ends before is damaged.
fn read_into(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let read = file.read_at(buffer, offset)?;
    if read < buffer.len() {
        return Err(Error::corruption(file.path(), offset + read as u64, "the table ends too early"));
    }
    Ok(())
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
