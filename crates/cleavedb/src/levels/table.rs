//! A table on disk, open for reading. Resident are only its description and where its top index lies; every block (top
//! index, index partitions, filters, data) is read through the block cache, so memory does not grow with tables.
//!
//! Called by versions, scans and compactions; shared between threads behind an `Arc`.

use std::path::Path;
use std::sync::Arc;

use super::table_cursor::TableCursor;
use crate::base::{Buffer, Cursor, Error, Result, Seqno, Stamp};
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::compression::{Compression, decompress};
use crate::format::meta::TableMeta;
use crate::format::table::{
    BLOCK_BYTES_MAX, BlockHandle, FOOTER_BYTES, Footer, Properties, TRAILER_BYTES, check_block,
};
use crate::io::cache::BlockCache;
use crate::io::trash::FileGuard;
use crate::io::{File, Storage};

/// Read from the end of a table when it is opened: the footer, and the properties unless their keys are long.
const TAIL_BYTES: u64 = 4096;

/// An open table.
pub struct Table {
    meta: TableMeta,
    guard: FileGuard,
    /// The guard's path, as blocks name it in errors.
    path: Arc<Path>,
    file: Arc<dyn File>,
    footer: Footer,
    cache: Arc<BlockCache>,
}

impl Table {
    /// Opens the file that `meta` describes and checks that it is that file: its length, its number, its keys and its
    /// counts. One small read.
    pub fn open(
        storage: &dyn Storage,
        guard: FileGuard,
        meta: TableMeta,
        cache: Arc<BlockCache>,
    ) -> Result<Arc<Table>> {
        let path: Arc<Path> = guard.path().into();
        let file = storage.open_read(&path)?;
        let len = file.len()?;
        if len != meta.size || len < FOOTER_BYTES as u64 {
            let message = format!("the table is {len} B long, not {} B", meta.size);
            return Err(Error::corruption(&path, len.min(meta.size), message));
        }
        let tail_offset = len.saturating_sub(TAIL_BYTES);
        let tail = read_exactly(&*file, tail_offset, (len - tail_offset) as usize)?;
        let footer_bytes = tail.last_chunk().expect("the tail was read from at least a footer's length");
        let footer = Footer::decode(footer_bytes, meta.id, &path, len - FOOTER_BYTES as u64)?;
        let table = Table { meta, guard, path, file, footer, cache };
        let properties = match table.within(&tail, tail_offset, footer.properties) {
            Some(sealed) => table.properties_from(sealed)?,
            None => table.properties()?,
        };
        if TableMeta::new(table.meta.id, len, &properties) != table.meta {
            return Err(
                table.damaged(footer.properties.offset, "the table holds other versions than the manifest says")
            );
        }
        Ok(Arc::new(table))
    }

    /// What the manifest says of it.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Memory it keeps outside the cache, in bytes.
    pub fn resident_bytes(&self) -> usize {
        std::mem::size_of::<Table>() + self.meta.smallest.len() + self.meta.largest.len() + self.path.as_os_str().len()
    }

    /// The manifest no longer names the table: its file goes when the last holder lets go.
    pub fn doom(&self) {
        self.guard.doom();
    }

    /// What it holds, read from the file.
    pub fn properties(&self) -> Result<Properties> {
        let sealed = self.read_sealed(self.footer.properties)?;
        self.properties_from(&sealed)
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

    pub(super) fn top_index(&self) -> BlockHandle {
        self.footer.top_index
    }

    /// Where the blocks end; no handle may point past it.
    pub(super) fn blocks_end(&self) -> u64 {
        self.meta.size - FOOTER_BYTES as u64
    }

    pub(super) fn block_cursor(&self, handle: BlockHandle, block: Arc<Buffer>) -> Result<BlockCursor> {
        BlockCursor::new(block, BlockOrigin { path: self.path.clone(), offset: handle.offset })
    }

    /// The block, from the cache if it is there.
    pub(super) fn cached_block(&self, handle: BlockHandle) -> Option<Arc<Buffer>> {
        self.cache.get(self.meta.id, handle.offset)
    }

    /// The block, through the cache.
    pub(super) fn block(&self, handle: BlockHandle, fill_cache: bool) -> Result<Arc<Buffer>> {
        if let Some(block) = self.cached_block(handle) {
            return Ok(block);
        }
        let sealed = self.read_sealed(handle)?;
        let block = self.unseal(handle, sealed)?;
        if fill_cache {
            self.cache.insert(self.meta.id, handle.offset, block.clone());
        }
        Ok(block)
    }

    /// Reads `len` bytes of blocks from `offset`, counted as the cache's blocks are.
    pub(super) fn read_ahead(&self, offset: u64, len: usize) -> Result<Buffer> {
        Ok(Buffer::counted(read_exactly(&*self.file, offset, len)?, self.cache.gauge().clone()))
    }

    /// Checks and decompresses a block as it was read, with its trailer.
    pub(super) fn unseal(&self, handle: BlockHandle, mut sealed: Vec<u8>) -> Result<Arc<Buffer>> {
        let checked = check_block(&sealed, self.meta.id, handle.offset);
        let (compression, payload_len) = checked.map_err(|message| self.damaged(handle.offset, message))?;
        sealed.truncate(payload_len);
        let mut bytes = match compression {
            Compression::None => sealed,
            _ => decompress(compression, &sealed, BLOCK_BYTES_MAX)
                .map_err(|message| self.damaged(handle.offset, message))?,
        };
        bytes.shrink_to_fit();
        Ok(Arc::new(Buffer::counted(bytes, self.cache.gauge().clone())))
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
        Error::corruption(&self.path, offset, message)
    }

    fn read_sealed(&self, handle: BlockHandle) -> Result<Vec<u8>> {
        match handle.end() {
            Some(end) if end <= self.blocks_end() => {
                read_exactly(&*self.file, handle.offset, handle.len as usize + TRAILER_BYTES)
            }
            _ => Err(self.damaged(handle.offset, "a block is said to lie outside the table")),
        }
    }

    fn properties_from(&self, sealed: &[u8]) -> Result<Properties> {
        let offset = self.footer.properties.offset;
        check_block(sealed, self.meta.id, offset)
            .and_then(|(_, payload_len)| Properties::decode(&sealed[..payload_len]))
            .map_err(|message| self.damaged(offset, message))
    }
}

/// Reads `len` bytes; a file that ends before them is damaged. The caller has bounded `len` by the file's length.
fn read_exactly(file: &dyn File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, offset)?;
    if read < len {
        return Err(Error::corruption(file.path(), offset + read as u64, "the table ends too early"));
    }
    Ok(bytes)
}

#[cfg(test)]
#[path = "table_test.rs"]
mod tests;
