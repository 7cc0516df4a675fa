//! What the engine knows of files: the traits [`Storage`], [`File`], [`Mapping`] and [`Lock`], and reads that must be
//! complete. Each implementation lies in a file of its own beside this one.
//!
//! All calls may block; none of them retries. The engine passes absolute paths only ([`Storage::absolute`]), because the
//! working directory of a process may change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, Result};

/// How a file is read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Ordinary reads and writes through the page cache.
    Buffered,
    /// Writes bypass the page cache where the file system supports it. Offsets, lengths and memory of writes must be
    /// multiples of [`BLOCK_IO_BYTES`](crate::base::limits::BLOCK_IO_BYTES) (use an `AlignedBuffer`); reads need no
    /// alignment.
    Direct,
}

/// The outcome of a request to punch a hole into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punched {
    /// The range takes no space any more.
    Done,
    /// Nothing was done: the file has another hard link, for example in a checkpoint.
    Linked,
    /// Nothing was done: the file system does not support holes.
    Unsupported,
}

/// Time of all processors together, in the kernel's ticks since its start. Only ratios of differences of times mean anything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In use.
    pub busy: u64,
    /// In use or not.
    pub all: u64,
    /// Number of processors.
    pub count: u64,
}

/// What a device has done since the system was started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DeviceUsage {
    /// Tells devices apart.
    pub number: u64,
    /// Reads and writes, after the kernel has joined neighbouring ones.
    pub requests: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// The time that these requests took, from their submission on, added up.
    pub request_time: Duration,
    /// The time in which at least one of them was under way.
    pub busy_time: Duration,
}

/// The space that a file takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSpace {
    /// Tells the files of one file system apart: all names of a file have the same.
    pub number: u64,
    /// Bytes in all, without holes.
    pub bytes: u64,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// True for a regular file; false for a directory, a symbolic link or a device.
    pub is_file: bool,
}

/// Files and directories.
pub trait Storage: Send + Sync {
    /// Creates an empty file for reading and writing; fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing (recovery repairs logs, so not read-only).
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Opens an existing file for reading only. With `Access::Direct` reads bypass the page cache; they may have any
    /// offset and length. Fails with `InvalidInput` where the file system does not support direct I/O.
    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// The length of a file, in bytes, without opening it; `None` if there is no such file.
    fn file_len(&self, path: &Path) -> Result<Option<u64>>;
    /// The space that a file takes, which must exist; `None` if it is unknown.
    fn file_space(&self, _path: &Path) -> Result<Option<FileSpace>> {
        Ok(None)
    }
    /// The size of the file system that holds a directory, in bytes, used or not; `u64::MAX` if it is unknown.
    fn file_system_bytes(&self, _dir: &Path) -> u64 {
        u64::MAX
    }
    /// The bytes that may still be written to the file system that holds a directory; `u64::MAX` if it is unknown.
    fn free_bytes(&self, _dir: &Path) -> u64 {
        u64::MAX
    }
    /// How many bytes of memory the system can still give to this process, cached pages of files included; `u64::MAX` if
    /// it is unknown or does not matter for this storage.
    fn available_memory(&self) -> u64 {
        u64::MAX
    }
    /// The time that the processors of the machine were in use, and all of their time; `None` if it is unknown or does not
    /// matter for this storage.
    fn processor_time(&self) -> Option<ProcessorTime> {
        None
    }
    /// What the device that holds a directory has done; `None` as above.
    fn device_usage(&self, _dir: &Path) -> Option<DeviceUsage> {
        None
    }
    /// How many files the process may have open at once.
    fn open_files_limit(&self) -> usize;
    /// True if there is a file or directory at this path.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Creates a directory and its parents, durably; no error if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Lists a directory, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;
    /// Renames a file within its directory atomically; a file that has the new name is replaced.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Makes a hard link `to`; the name must be free. Returns false, and does nothing, if the two paths lie on different
    /// devices or the file system does not support hard links.
    fn link(&self, from: &Path, to: &Path) -> Result<bool>;
    /// Number of names of a file, in whatever directories: more than one if a checkpoint links it.
    fn links(&self, path: &Path) -> Result<u64>;
    /// Punches a hole: frees the space of a range of a file, which reads as zeros from then on; the length and all other
    /// bytes stay. Does nothing if the file has another hard link. Both numbers are multiples of
    /// [`BLOCK_IO_BYTES`](crate::base::limits::BLOCK_IO_BYTES).
    fn punch(&self, _path: &Path, _offset: u64, _len: u64) -> Result<Punched> {
        Ok(Punched::Unsupported)
    }
    /// The first range between two offsets that takes space on storage, as start and end; `None` if all of it is a hole.
    /// Returns the whole range where the file system cannot report holes.
    fn first_data(&self, _path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        Ok(Some((from, to)))
    }
    /// The path from the root on, so that it stays valid after a change of the working directory. Symbolic links and `..`
    /// stay in it, and nothing needs to exist. An empty path is an error.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|error| Error::io(path, "make absolute", error))
    }
    /// The path without symbolic links and dots, as far as its components exist; for comparing places.
    fn real_path(&self, path: &Path) -> Result<PathBuf>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Takes the exclusive lock on a file (created if missing), held until the guard is dropped or the process ends.
    /// Fails with [`Error::Locked`](crate::Error::Locked) at once if another handle or process holds the lock.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// As [`lock`](Storage::lock), but shared between readers. The file must exist and is not changed.
    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// A number, not zero, that this storage gave to no other database.
    fn unique_number(&self) -> Result<u64>;
    /// Maps a file of exactly `len` bytes and locks its pages in memory, so that no later access can fault. The file is
    /// created and preallocated if it is missing or has another size. `Ok(None)` if mapping, locking or preallocation is
    /// not available here.
    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>>;
    /// Removes a file that [`map`](Storage::map) has made or would reuse, if there is one; any other file of that name
    /// stays. Existing mappings of it stay valid as memory.
    fn remove_mapped(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
}

/// Fills `buffer` from `offset`. A file that ends before that is corrupt, because the caller knows from durable bytes that
/// it is longer.
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let count = file.read_at(buffer, offset)?;
    check_complete(file, count, buffer.len(), offset)
}

/// As [`read_exact_at`], by [`File::read_polled`].
pub fn read_exact_polled(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let count = file.read_polled(buffer, offset)?;
    check_complete(file, count, buffer.len(), offset)
}

fn check_complete(file: &dyn File, count: usize, wanted: usize, offset: u64) -> Result<()> {
    if count == wanted {
        return Ok(());
    }
    let message = format!("the file ends after {count} of {wanted} bytes");
    Err(Error::corruption(file.path(), offset, message))
}

/// Reads a whole small file.
pub fn read_whole(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open_read(path, Access::Buffered)?;
    let mut content = vec![0; file.len()? as usize];
    read_exact_at(&*file, &mut content, 0)?;
    Ok(content)
}

/// An open file. All calls are positional, so it can be shared; several writes may be in flight at once.
#[allow(clippy::len_without_is_empty, reason = "no caller asks whether a file is empty")]
pub trait File: Send + Sync {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Fills `buffer` from `offset`; returns how many bytes there were before the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// As [`read_at`](File::read_at), for a short read that a caller of the database waits for. It may be busy-polled.
    fn read_polled(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }
    /// Asks the system to fetch these bytes, which [`read_prefetched`](File::read_prefetched) will read soon and once. A
    /// hint without effect on results.
    fn prefetch(&self, _offset: u64, _len: u64) {}
    /// Fills `buffer` from `offset` and returns true if that needs no wait. Otherwise asks the system to fetch the bytes,
    /// like [`prefetch`](File::prefetch), and returns false; `buffer` may have been written to. One call for both, because
    /// a call costs as much as the copy of a short value.
    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.prefetch(offset, buffer.len() as u64);
        false
    }
    /// As [`read_at`](File::read_at), for exactly the bytes of an earlier [`prefetch`](File::prefetch), or of a
    /// [`read_or_prefetch`](File::read_or_prefetch) that returned false.
    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }
    /// Asks the system to fetch these bytes, which a sequential reader will reach with plain reads, while the reader
    /// processes the bytes before them. A hint, without effect where reads bypass the page cache.
    fn read_ahead(&self, _offset: u64, _len: u64) {}
    /// Writes all of `bytes` at `offset`, growing the file if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Writes parts one behind the other from `offset` on, by one request where the system can do that.
    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let mut at = offset;
        for part in parts {
            self.write_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }
    /// Says that these bytes, just written, will not change, so that the system starts to write them to storage instead of
    /// leaving all of them to the sync. They stay in the page cache. A hint.
    fn write_back(&self, _offset: u64, _len: u64) {}
    /// Makes all written bytes and the length durable.
    fn sync(&self) -> Result<()>;
    /// The length in bytes.
    fn len(&self) -> Result<u64>;
    /// Preallocates space and sets the length to `len`; bytes that were never written read as zeros. Returns true if the
    /// file system promises that later writes below `len` cannot fail for lack of space; false if it cannot promise that,
    /// and only the length was set. Never shortens the file; after an error the length is as before. Must not be called
    /// while writes past the end are in flight.
    fn allocate(&self, len: u64) -> Result<bool>;
    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> Result<()>;
}

/// A mapped file: plain memory that survives the process. It becomes durable only when the system writes it back.
#[allow(clippy::len_without_is_empty, reason = "no mapping is empty")]
pub trait Mapping: Send + Sync {
    /// Its size in bytes.
    fn len(&self) -> usize;
    /// Copies `bytes` into the mapping at `offset`.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Fills `buffer` from the mapping at `offset`.
    fn read(&self, offset: usize, buffer: &mut [u8]);
}

/// Holds a lock until dropped.
pub trait Lock: Send + Sync {}
