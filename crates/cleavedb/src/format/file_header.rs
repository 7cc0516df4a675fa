//! The header of files that are immutable or append-only: `magic 8 | version u32 | file number u64 | CRC32C u32`.
//! Manifests and segments start with it.

use std::path::Path;

use super::checksum::agrees;
use crate::base::{Error, FileId, Result};

/// Length of the header.
pub const FILE_HEADER_BYTES: usize = 24;

/// The format of one kind of file.
#[derive(Debug, Clone, Copy)]
pub struct FileFormat {
    /// The first bytes of the file.
    pub magic: [u8; 8],
    /// The version that this code writes.
    pub version: u32,
    /// The oldest version that this code reads.
    pub oldest: u32,
    /// The name of the format in messages.
    pub name: &'static str,
}

impl FileFormat {
    /// The header of file `id`.
    pub fn encode(&self, id: FileId) -> [u8; FILE_HEADER_BYTES] {
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&self.magic);
        header[8..12].copy_from_slice(&self.version.to_le_bytes());
        header[12..20].copy_from_slice(&id.0.to_le_bytes());
        let crc = crc32c::crc32c(&header[..20]);
        header[20..].copy_from_slice(&crc.to_le_bytes());
        header
    }

    /// Checks that `bytes`, the first bytes of the file at `path`, are the header of file `id`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if they are not a header, or that of another file; [`Error::Unsupported`] for another
    /// version.
    pub fn check(&self, path: &Path, id: FileId, bytes: &[u8]) -> Result<()> {
        let damaged = |offset, message: String| Error::corruption(path, offset, message);
        let Some(header) = bytes.first_chunk::<FILE_HEADER_BYTES>() else {
            return Err(damaged(0, "the file is cut short".to_owned()));
        };
        let stored = u32::from_le_bytes([header[20], header[21], header[22], header[23]]);
        if header[..8] != self.magic || !agrees(stored, crc32c::crc32c(&header[..20])) {
            return Err(damaged(0, format!("{} header is damaged", self.name)));
        }
        let version = u32::from_le_bytes([header[8], header[9], header[10], header[11]]);
        if !(self.oldest..=self.version).contains(&version) {
            let message = format!(
                "{} format version {version} is not one of the supported versions {} to {}",
                self.name, self.oldest, self.version
            );
            return Err(Error::Unsupported { path: path.to_owned(), message });
        }
        match header[12..20] == self.encode(id)[12..20] {
            true => Ok(()),
            false => Err(damaged(12, format!("the header is that of another {}", self.name))),
        }
    }
}
