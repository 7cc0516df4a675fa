//! Reads that bypass the page cache, with any offset and length, and the descriptor for direct writes.
//!
//! The portable build does not support direct I/O. Called by [`OsStorage`](super::os::OsStorage).

#[cfg(not(feature = "portable"))]
pub(super) use supported::{open_direct_reader, open_direct_writer};
#[cfg(feature = "portable")]
pub(super) use unsupported::{open_direct_reader, open_direct_writer};

#[cfg(feature = "portable")]
mod unsupported {
    use std::fs;
    use std::path::Path;
    use std::sync::Arc;

    use crate::base::{Error, Result};
    use crate::io::storage::File;

    /// None: such files are written through the page cache.
    #[expect(clippy::unnecessary_wraps, reason = "the same signature as with direct I/O")]
    pub(in crate::io) fn open_direct_writer(_: &Path) -> Result<Option<fs::File>> {
        Ok(None)
    }

    /// Always fails.
    pub(in crate::io) fn open_direct_reader(path: &Path) -> Result<Arc<dyn File>> {
        let path = path.display();
        Err(Error::input(format!("direct I/O for {path} is not available in this build (feature `portable`)")))
    }
}

#[cfg(not(feature = "portable"))]
mod supported {
    use std::fs;
    use std::io;
    use std::num::NonZeroU64;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    use rustix::fs::{Advice, OFlags, fadvise};
    use rustix::io::Errno;

    use crate::base::limits::BLOCK_IO_BYTES;
    use crate::base::{Error, Result};
    use crate::io::aligned::AlignedBuffer;
    use crate::io::storage::File;
    use crate::io::system_calls::read_fully;

    /// A direct read is split into reads of at most this size, which bounds the memory it needs.
    const DIRECT_READ_BYTES_MAX: usize = 1 << 20;

    /// The descriptor for direct writes; None where the file system does not support direct I/O.
    pub(in crate::io) fn open_direct_writer(path: &Path) -> Result<Option<fs::File>> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        match fs::OpenOptions::new().write(true).custom_flags(flags).open(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(None),
            Err(error) => Err(Error::io(path, "open for direct writes", error)),
        }
    }

    /// A file for direct reads of any offset and length.
    pub(in crate::io) fn open_direct_reader(path: &Path) -> Result<Arc<dyn File>> {
        let flags = OFlags::DIRECT.bits().cast_signed();
        match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Ok(file) => {
                let prefetched = parking_lot::Mutex::default();
                Ok(Arc::new(DirectReader { path: path.to_owned(), file, prefetched }))
            }
            Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                let path = path.display();
                Err(Error::input(format!("direct I/O for {path} is not supported by its file system")))
            }
            Err(error) => Err(Error::io(path, "open", error)),
        }
    }

    /// Reads past the page cache. Each read goes into an aligned buffer that covers it, and is copied from there.
    ///
    /// PrefetchedBytes reads should be in flight together, which only the page cache can do: their pages are fetched into it,
    /// read from it through an ordinary descriptor, and dropped from it at once (decision record 016).
    struct DirectReader {
        path: PathBuf,
        file: fs::File,
        prefetched: parking_lot::Mutex<PrefetchedBytes>,
    }

    /// PrefetchedBytes reads that have not been read yet, and the ordinary descriptor for them.
    #[derive(Default)]
    struct PrefetchedBytes {
        cached: Option<Arc<fs::File>>,
        reads: usize,
    }

    impl DirectReader {
        /// Fills `buffer` as far as it needs no other memory: if it is aligned, its whole blocks.
        fn read_aligned(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let is_aligned =
                offset.is_multiple_of(BLOCK_IO_BYTES as u64) && buffer.as_ptr().addr().is_multiple_of(BLOCK_IO_BYTES);
            let blocks = if is_aligned { buffer.len() / BLOCK_IO_BYTES * BLOCK_IO_BYTES } else { 0 };
            let mut filled = 0;
            while filled < blocks {
                let part = filled..blocks.min(filled + DIRECT_READ_BYTES_MAX);
                match self.file.read_at(&mut buffer[part], offset + filled as u64) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::io(&self.path, "read", error)),
                    // The end of the file, which the caller finds again.
                    Ok(read) if !read.is_multiple_of(BLOCK_IO_BYTES) || read == 0 => break,
                    Ok(read) => filled += read,
                }
            }
            Ok(filled)
        }

        fn read_only<T>(&self, operation: &'static str) -> Result<T> {
            Err(Error::io(&self.path, operation, Errno::BADF.into()))
        }
    }

    impl File for DirectReader {
        fn path(&self) -> &Path {
            &self.path
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let mut filled = self.read_aligned(buffer, offset)?;
            while filled < buffer.len() {
                let at = offset + filled as u64;
                let lead = (at % BLOCK_IO_BYTES as u64) as usize;
                let wanted = (buffer.len() - filled).min(DIRECT_READ_BYTES_MAX - lead);
                let mut bounce = AlignedBuffer::new(lead + wanted);
                let read = match self.file.read_at(&mut bounce, at - lead as u64) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => result.map_err(|error| Error::io(&self.path, "read", error))?,
                };
                let copied = read.saturating_sub(lead).min(wanted);
                buffer[filled..filled + copied].copy_from_slice(&bounce[lead..lead + copied]);
                filled += copied;
                // A direct read ends within a block only at the end of the file.
                if copied == 0 || !read.is_multiple_of(BLOCK_IO_BYTES) {
                    break;
                }
            }
            Ok(filled)
        }

        fn prefetch(&self, offset: u64, len: u64) {
            let mut prefetched = self.prefetched.lock();
            prefetched.reads += 1;
            if prefetched.cached.is_none() {
                prefetched.cached = fs::File::open(&self.path).ok().map(Arc::new);
            }
            if let Some(cached) = &prefetched.cached {
                let _ = fadvise(&**cached, offset, NonZeroU64::new(len), Advice::WillNeed);
            }
        }

        fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let cached = {
                let mut prefetched = self.prefetched.lock();
                prefetched.reads = prefetched.reads.saturating_sub(1);
                // The last read closes the descriptor.
                if prefetched.reads == 0 { prefetched.cached.take() } else { prefetched.cached.clone() }
            };
            let Some(cached) = cached else {
                return self.read_at(buffer, offset);
            };
            let read = read_fully(&cached, buffer, offset).map_err(|error| Error::io(&self.path, "read", error));
            let start = offset / BLOCK_IO_BYTES as u64 * BLOCK_IO_BYTES as u64;
            let end = (offset + buffer.len() as u64).next_multiple_of(BLOCK_IO_BYTES as u64);
            let _ = fadvise(&*cached, start, NonZeroU64::new(end - start), Advice::DontNeed);
            read
        }

        fn write_at(&self, _bytes: &[u8], _offset: u64) -> Result<()> {
            self.read_only("write")
        }

        fn sync(&self) -> Result<()> {
            self.file.sync_data().map_err(|error| Error::sync(&self.path, error))
        }

        fn len(&self) -> Result<u64> {
            self.file.metadata().map(|metadata| metadata.len()).map_err(|error| Error::io(&self.path, "measure", error))
        }

        fn allocate(&self, _len: u64) -> Result<bool> {
            self.read_only("allocate")
        }

        fn truncate(&self, _len: u64) -> Result<()> {
            self.read_only("truncate")
        }
    }
}
