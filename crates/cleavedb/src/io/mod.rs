//! Floor 1: storage. Everything the engine knows of files goes through [`Storage`], so that the same straight-line code
//! runs on the operating system ([`os`]), in plain memory ([`memory`]), and, in tests, on a simulated disk that loses power,
//! tears writes and fails on demand (`sim`).
//!
//! The engine passes absolute paths only ([`Storage::absolute`]): a working directory may change. All calls may block; none of them retries.

pub mod os;
#[cfg(not(feature = "portable"))]
mod mapped;
#[cfg(not(feature = "portable"))]
mod busy_poll;
mod image;
pub mod aligned;
pub mod handles;
pub mod read_ahead;
pub mod coalesced_reads;
pub mod pending_deletions;
pub mod untouched;
pub mod memory;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
#[cfg(any(test, feature = "testing"))]
pub mod fault;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};

pub use aligned::AlignedBuffer;
#[cfg(any(test, feature = "testing"))]
pub use fault::Faults;
pub use image::MappingImage;
pub use memory::MemoryStorage;
pub use os::OsStorage;
#[cfg(any(test, feature = "testing"))]
pub use sim::SimDisk;

/// What kind of bytes a new file will hold; decides how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Ordinary reads and writes through the page cache.
    Buffered,
    /// Writes bypass the page cache where the file system allows it. Offsets, lengths and memory of writes must be
    /// multiples of [`BLOCK_IO_BYTES`](crate::base::limits::BLOCK_IO_BYTES) (use an `AlignedBuffer`); reads are free.
    Direct,
}

/// What came of a request to give the space of a part of a file back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Punched {
    /// The part takes no space any more.
    Done,
    /// Nothing was done: the file has another link, a checkpoint's for one.
    Linked,
    /// Nothing was done: the file system knows no holes.
    Unsupported,
}

/// What a directory holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// The name within the directory.
    pub name: String,
    /// It is a regular file (not a directory, link or device).
    pub is_file: bool,
}

/// Files and directories.
pub trait Storage: Send + Sync {
    /// Creates an empty file for reading and writing; fails with `AlreadyExists` if the name is taken.
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// Opens an existing file for reading and writing (recovery repairs logs, so not read-only).
    fn open(&self, path: &Path) -> Result<Arc<dyn File>>;
    /// Opens an existing file for reading only. With `Access::Direct` reads bypass the page cache; they may have any
    /// shape. `InvalidInput` where the file system knows no direct I/O.
    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>>;
    /// The length of a file, in bytes, without opening it; `None` if there is no such file.
    fn file_len(&self, path: &Path) -> Result<Option<u64>>;
    /// The size of the file system that a directory lies in, in bytes, used or not; the largest number if that is not known.
    fn space_of(&self, _dir: &Path) -> u64 {
        u64::MAX
    }
    /// How many files the process may have open at once.
    fn open_files_limit(&self) -> usize;
    /// True if the path names a file or directory.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Creates a directory and its parents, durably; no error if it exists.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Lists a directory, sorted by name.
    fn list(&self, path: &Path) -> Result<Vec<DirEntry>>;
    /// Renames a file within its directory, over whatever has the new name, atomically.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Gives a file one more name, `to`, which must be free. False, and nothing done, where the two lie on different
    /// devices or the file system knows no such names.
    fn link(&self, from: &Path, to: &Path) -> Result<bool>;
    /// Gives the space of a part of a file back, which reads as zeros then; length and the rest stay. Does nothing where the file
    /// has another link. Both numbers are multiples of [`BLOCK_IO_BYTES`](crate::base::limits::BLOCK_IO_BYTES).
    fn punch(&self, _path: &Path, _offset: u64, _len: u64) -> Result<Punched> {
        Ok(Punched::Unsupported)
    }
    /// The first bytes between two offsets that take space on storage: where they begin and end. All of them where the file
    /// system cannot tell.
    fn first_data(&self, _path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        Ok(Some((from, to)))
    }
    /// The path from the root on, so that it means the same place after a change of the working directory. Links and `..`
    /// stay, and nothing needs to exist. An empty path is an error.
    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        std::path::absolute(path).map_err(|error| Error::io(path, "make absolute", error))
    }
    /// The path without links and dots, as far as what it names exists; for comparing places.
    fn real_path(&self, path: &Path) -> Result<PathBuf>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Takes the exclusive lock on a file (created if missing), held until the guard is dropped or the process ends.
    /// Fails with [`Error::Locked`](crate::Error::Locked) at once if someone else holds it.
    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// As [`lock`](Storage::lock), shared with others that only read. The file must exist and is not changed.
    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>>;
    /// A number, not zero, that no other database on this storage was given.
    fn unique_number(&self) -> Result<u64>;
    /// Maps a file of exactly `len` bytes, made and preallocated if it is missing or of another size, and keeps its
    /// pages in memory so that no later access can fault. `Ok(None)` if mapping, locking or reserving space is not to be
    /// had here.
    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>>;
    /// Removes a file that [`map`](Storage::map) has made or would take for its own, if there is one; anything else of that
    /// name stays. Mappings of it go on as memory.
    fn remove_mapped(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
}

/// Fills `buffer` from `offset`; the end of the file before that is corruption, because the caller knows from durable
/// bytes that the file is longer.
pub fn read_exact_at(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let count = file.read_at(buffer, offset)?;
    check_whole(file, count, buffer.len(), offset)
}

/// As [`read_exact_at`], by [`File::read_polled`].
pub fn read_exact_polled(file: &dyn File, buffer: &mut [u8], offset: u64) -> Result<()> {
    let count = file.read_polled(buffer, offset)?;
    check_whole(file, count, buffer.len(), offset)
}

fn check_whole(file: &dyn File, count: usize, wanted: usize, offset: u64) -> Result<()> {
    if count == wanted {
        return Ok(());
    }
    let message = format!("the file ends after {count} of {wanted} bytes");
    Err(Error::corruption(file.path(), offset, message))
}

/// The whole content of a file: for the small ones.
pub fn read_whole(storage: &dyn Storage, path: &Path) -> Result<Vec<u8>> {
    let file = storage.open_read(path, Access::Buffered)?;
    let mut content = vec![0; file.len()? as usize];
    read_exact_at(&*file, &mut content, 0)?;
    Ok(content)
}

/// An open file. Positional, so it can be shared; several writes may be in flight at once.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait File: Send + Sync {
    /// The path it was opened by, for messages.
    fn path(&self) -> &Path;
    /// Fills `buffer` from `offset`; returns how many bytes there were before the end of the file.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// As [`read_at`](File::read_at), for a few bytes that a caller of the database waits for.
    fn read_polled(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }
    /// Says that these bytes will be read soon, once, by [`read_needed`](File::read_needed), so that the system may fetch
    /// them meanwhile. A hint: nothing depends on it.
    fn will_need(&self, _offset: u64, _len: u64) {}
    /// As [`read_at`](File::read_at), for exactly the bytes that [`will_need`](File::will_need) told of.
    fn read_needed(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read_at(buffer, offset)
    }
    /// Says that a reader is about to go on through these bytes with plain reads, so that the system may fetch them while
    /// the reader works on what it has. A hint, without effect where reads bypass the page cache.
    fn will_go_on(&self, _offset: u64, _len: u64) {}
    /// Writes all of `bytes` at `offset`, growing the file if needed.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()>;
    /// Says that these bytes, just written, will not change, so that the system may begin to bring them to storage instead
    /// of leaving all of it to the sync. A hint.
    fn write_back(&self, _offset: u64, _len: u64) {}
    /// Makes all that was written (and the length) durable.
    fn sync(&self) -> Result<()>;
    /// The length in bytes.
    fn len(&self) -> Result<u64>;
    /// Reserves space and sets the length to `len`; what was not written reads as zeros. Growing a file this way makes
    /// later writes below `len` unable to fail for lack of space, where the file system can promise that; false where it
    /// cannot, and only the length is set. Never shortens the file; if it fails the length is as before. Not to be called
    /// while writes past the end are in flight.
    fn allocate(&self, len: u64) -> Result<bool>;
    /// Cuts the file to `len` bytes.
    fn truncate(&self, len: u64) -> Result<()>;
}

/// A mapped file: plain memory that survives the process. Durable only when the system happens to write it back.
#[expect(clippy::len_without_is_empty, reason = "none is empty")]
pub trait Mapping: Send + Sync {
    /// Its size in bytes.
    fn len(&self) -> usize;
    /// Copies `bytes` in at `offset`.
    fn write(&self, offset: usize, bytes: &[u8]);
    /// Copies out from `offset`.
    fn read(&self, offset: usize, buffer: &mut [u8]);
}

/// Holds a lock until dropped.
pub trait Lock: Send + Sync {}
