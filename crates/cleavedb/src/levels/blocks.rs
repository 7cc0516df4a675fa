//! Reads the blocks of a table file: a handle in, checked and decompressed bytes out. Called by all readers of tables:
//! lookups and cursors (`table.rs`), and the walk of check and dump (`table_file.rs`).

use std::path::Path;

use crate::base::{Error, FileId, Result};
use crate::format::compression::{Compression, decompress};
use crate::format::table::{BLOCK_BYTES_MAX, BlockHandle, TRAILER_BYTES, check_block};
use crate::io::{File, read_exact_polled};

/// The table file that the blocks are in.
pub(super) struct Blocks<'a> {
    /// The number of the file, which is part of every checksum.
    pub id: FileId,
    /// For error messages.
    pub path: &'a Path,
    /// End of the blocks; no handle may point past it.
    pub end: u64,
}

impl Blocks<'_> {
    /// Reads a block with its trailer, unchecked.
    pub fn read(&self, file: &dyn File, handle: BlockHandle) -> Result<Vec<u8>> {
        if handle.end().is_none_or(|end| end > self.end) {
            return Err(self.damaged(handle.offset, "a block handle points outside the table"));
        }
        let mut sealed = vec![0; handle.len as usize + TRAILER_BYTES];
        read_exact_polled(file, &mut sealed, handle.offset)?;
        Ok(sealed)
    }

    /// Checks a block against its checksum; returns its compression and the length of its payload.
    pub fn check(&self, handle: BlockHandle, sealed: &[u8]) -> Result<(Compression, usize)> {
        check_block(sealed, self.id, handle.offset).map_err(|message| self.damaged(handle.offset, message))
    }

    /// The content of a block, from a buffer that also holds other blocks.
    pub fn open_part(&self, handle: BlockHandle, sealed: &[u8]) -> Result<Vec<u8>> {
        let (compression, len) = self.check(handle, sealed)?;
        match compression {
            Compression::None => Ok(sealed[..len].to_vec()),
            _ => self.decompress(handle, compression, &sealed[..len]),
        }
    }

    /// The compression and content of a block, from a buffer of its own.
    pub fn open(&self, handle: BlockHandle, mut sealed: Vec<u8>) -> Result<(Compression, Vec<u8>)> {
        let (compression, len) = self.check(handle, &sealed)?;
        sealed.truncate(len);
        let bytes = match compression {
            Compression::None => sealed,
            _ => self.decompress(handle, compression, &sealed)?,
        };
        Ok((compression, bytes))
    }

    fn decompress(&self, handle: BlockHandle, compression: Compression, payload: &[u8]) -> Result<Vec<u8>> {
        compression.check_available(self.path)?;
        decompress(compression, payload, BLOCK_BYTES_MAX).map_err(|message| self.damaged(handle.offset, message))
    }

    /// A corruption error at an offset of the file.
    #[cold]
    pub fn damaged(&self, offset: u64, message: &str) -> Error {
        Error::corruption(self.path, offset, message)
    }
}
