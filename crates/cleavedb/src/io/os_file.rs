//! An open file of the operating system, read through the page cache.
//!
//! A file opened for direct writes has two descriptors: a direct one for writes, and an ordinary one for reads, so that
//! reads may have any offset and length and can be cached. The kernel drops cached pages under a direct write, so the two
//! agree. Where the file system does not support direct I/O, such a file is written through the page cache.
//!
//! Called by [`OsStorage`](super::os::OsStorage); all other code sees [`File`].

use std::fs;
use std::io;
#[cfg(not(feature = "portable"))]
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[cfg(not(feature = "portable"))]
use rustix::fs::{Advice, fadvise};
#[cfg(not(feature = "portable"))]
use rustix::io::Errno;

use super::aligned::assert_aligned;
#[cfg(not(feature = "portable"))]
use super::busy_poll::{self, read_cached};
use super::storage::{Access, File};
use super::system_calls::{preallocate, read_fully};
#[cfg(not(feature = "portable"))]
use super::system_calls::{start_write_back, write_parts};
use crate::base::{Error, Result};

/// An open file.
pub(super) struct OsFile {
    pub(super) path: PathBuf,
    /// Reads, and writes unless there is a direct descriptor.
    pub(super) file: fs::File,
    pub(super) access: Access,
    pub(super) direct: Option<fs::File>,
    #[cfg_attr(feature = "portable", expect(dead_code, reason = "the portable build never busy-polls"))]
    pub(super) busy_polls: bool,
}

impl OsFile {
    /// Opens an existing file for buffered reads and writes.
    pub(super) fn open(path: &Path, busy_polls: bool) -> Result<Arc<dyn File>> {
        let opened = fs::OpenOptions::new().read(true).write(true).open(path);
        let file = opened.map_err(|error| Error::io(path, "open", error))?;
        Ok(Arc::new(OsFile { path: path.to_owned(), file, access: Access::Buffered, direct: None, busy_polls }))
    }

    /// Opens an existing file for buffered reads. The kernel's own read-ahead is turned off: cursors read ahead
    /// themselves, and the pages around single blocks are rarely needed.
    pub(super) fn open_read(path: &Path, busy_polls: bool) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new().read(true).open(path).map_err(|error| Error::io(path, "open", error))?;
        #[cfg(not(feature = "portable"))]
        {
            // Only advice: a file system may ignore it.
            let _ = fadvise(&file, 0, None, Advice::Random);
        }
        Ok(Arc::new(OsFile { path: path.to_owned(), file, access: Access::Buffered, direct: None, busy_polls }))
    }

    fn wrap<T>(&self, operation: &'static str, result: io::Result<T>) -> Result<T> {
        result.map_err(|error| Error::io(&self.path, operation, error))
    }
}

impl File for OsFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.wrap("read", read_fully(&self.file, buffer, offset))
    }

    #[cfg(not(feature = "portable"))]
    fn read_polled(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = if self.busy_polls { busy_poll::read } else { read_fully };
        self.wrap("read", read(&self.file, buffer, offset))
    }

    #[cfg(not(feature = "portable"))]
    fn prefetch(&self, offset: u64, len: u64) {
        let _ = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    #[cfg(not(feature = "portable"))]
    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        match read_cached(&self.file, buffer, offset) {
            Ok(count) => count == buffer.len(),
            Err(Errno::AGAIN) => false,
            // Not on this file system.
            Err(_) => {
                self.prefetch(offset, buffer.len() as u64);
                false
            }
        }
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        // To the system, no length means all up to the end of the file.
        if len > 0 {
            self.prefetch(offset, len);
        }
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.access == Access::Direct {
            assert_aligned(bytes, offset);
        }
        let file = self.direct.as_ref().unwrap_or(&self.file);
        self.wrap("write", file.write_all_at(bytes, offset))
    }

    #[cfg(not(feature = "portable"))]
    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        if self.access == Access::Direct {
            let mut at = offset;
            for part in parts {
                assert_aligned(part, at);
                at += part.len() as u64;
            }
        }
        let file = self.direct.as_ref().unwrap_or(&self.file);
        self.wrap("write", write_parts(file, parts, offset))
    }

    #[cfg(not(feature = "portable"))]
    fn write_back(&self, offset: u64, len: u64) {
        if self.direct.is_none() {
            start_write_back(&self.file, offset, len);
        }
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|error| Error::sync(&self.path, error))
    }

    fn len(&self) -> Result<u64> {
        self.wrap("measure", self.file.metadata().map(|metadata| metadata.len()))
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        let before = self.len()?;
        let result = preallocate(&self.file, len);
        if result.is_err() && before < len {
            // A file system that runs out of space keeps the part that it allocated. The first error is reported.
            let _ = self.file.set_len(before);
        }
        self.wrap("allocate", result)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.wrap("truncate", self.file.set_len(len))
    }
}
