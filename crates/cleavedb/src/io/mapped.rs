//! Files mapped into memory. The kernel owns the pages, so the bytes written there survive the process.
//!
//! One block is unsafe, because mapping is: the compiler cannot know whether other code changes the pages. (The crate
//! `memmap2` manages their lifetime.) The rules that make it sound: the pages are accessed only through [`OsMapping`], by
//! copying; a lock excludes readers while a thread writes; the database's lock file excludes other processes. An access must
//! never fault, because a fault is a signal and not an error: so every block of the file is allocated and written before it
//! is mapped, and all pages are locked in memory; otherwise there is no mapping. A foreign program that truncates the file
//! while it is mapped breaks this; the directory belongs to the database alone.
//!
//! Miri does not support file mappings: there a vector stands for the pages, and is not written back.
//! Called by [`OsStorage`](super::os::OsStorage) only.

use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::{fs, io};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::storage::Mapping;
use super::system_calls::preallocate;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result};
use crate::sched::sync::RwLock;

/// Zeros are written and compared in chunks of this size.
const ZERO_CHUNK_BYTES: usize = 64 << 10;

/// Maps a file of exactly `len` bytes; see [`Storage::map`](super::Storage::map).
pub(super) fn map_file(path: &Path, len: usize) -> Result<Option<OsMapping>> {
    let file = prepare(path, len as u64).map_err(|error| Error::io(path, "prepare for mapping", error))?;
    let pages = file.and_then(|file| Pages::map(&file, len));
    Ok(pages.map(|pages| OsMapping { len, pages: RwLock::new(pages) }))
}

/// True if there is a file at this path that [`map_file`] would reuse.
pub(super) fn is_mapped_file(path: &Path) -> io::Result<bool> {
    let mut options = fs::OpenOptions::new();
    let opened = options.read(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()).open(path);
    match opened {
        Ok(file) => is_reusable(&file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::NXIO)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Opens the file and makes sure that it has `len` bytes, all of them allocated. None if the existing file is not a ring of
/// ours, or where the file system cannot preallocate: then the logs behind the ring cannot be preallocated either.
fn prepare(path: &Path, len: u64) -> io::Result<Option<fs::File>> {
    let mut options = fs::OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    // Symbolic links are not followed, and the open does not wait for the writer of a pipe.
    let opened = options.custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed()).open(path);
    let file = match opened {
        Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::LOOP | Errno::ISDIR | Errno::NXIO)) => {
            return Ok(None);
        }
        opened => opened?,
    };
    if !is_reusable(&file)? {
        return Ok(None);
    }
    let fits = file.metadata()?.len() == len;
    if !fits {
        file.set_len(0)?;
    }
    // A file of the right size may have holes too, for example after it was copied.
    if !preallocate(&file, len)? {
        return Ok(None);
    }
    if !fits {
        let zeros = vec![0; ZERO_CHUNK_BYTES];
        let mut offset = 0;
        while offset < len {
            let count = (len - offset).min(ZERO_CHUNK_BYTES as u64);
            file.write_all_at(&zeros[..count as usize], offset)?;
            offset += count;
        }
    }
    Ok(Some(file))
}

/// A mapped file has no header. It is a regular file with one hard link whose size is a power of two; or it holds only
/// zeros, because a crash interrupted its creation.
fn is_reusable(file: &fs::File) -> io::Result<bool> {
    let metadata = file.metadata()?;
    let len = metadata.len();
    if !metadata.is_file() || metadata.nlink() != 1 {
        return Ok(false);
    }
    Ok(len == 0 || len.is_power_of_two() && len >= BLOCK_IO_BYTES as u64 || is_zeros(file, len)?)
}

fn is_zeros(file: &fs::File, len: u64) -> io::Result<bool> {
    let mut bytes = vec![0; ZERO_CHUNK_BYTES];
    let mut offset = 0;
    while offset < len {
        let count = (len - offset).min(ZERO_CHUNK_BYTES as u64) as usize;
        file.read_exact_at(&mut bytes[..count], offset)?;
        if bytes[..count].iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
        offset += count as u64;
    }
    Ok(true)
}

/// A mapped file.
pub(super) struct OsMapping {
    len: usize,
    pages: RwLock<Pages>,
}

impl OsMapping {
    fn check(&self, offset: usize, count: usize) {
        let end = offset.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= self.len),
            "{count} bytes at {offset} do not fit a mapping of {} bytes",
            self.len
        );
    }
}

impl Mapping for OsMapping {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        self.pages.write().copy_in(offset, bytes);
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        self.pages.read().copy_out(offset, buffer);
    }
}

#[cfg(not(miri))]
use kernel::Pages;
#[cfg(miri)]
use vector::Pages;

#[cfg(not(miri))]
mod kernel {
    use std::fs;

    use memmap2::{Advice, MmapMut, MmapOptions};
    use rustix::io::Errno;

    /// Pages of a file, resident and locked. Callers check bounds.
    pub(super) struct Pages(MmapMut);

    impl Pages {
        /// None if the system cannot map the file or cannot lock its pages in memory.
        pub(super) fn map(file: &fs::File, len: usize) -> Option<Pages> {
            // SAFETY: no other code changes the file while it is mapped: the database's lock excludes other processes from
            // its directory, and this process accesses the file through this mapping alone. The file has all of its blocks
            // (`prepare`), so no access ends in a signal.
            let pages = unsafe { MmapOptions::new().len(len).map_mut(file) }.ok()?;
            match pages.advise(Advice::PopulateWrite) {
                Ok(()) => {}
                // Kernels before 5.14 do not know the advice; locking reads the pages in as well.
                Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOSYS | Errno::INVAL)) => {}
                Err(_) => return None,
            }
            pages.lock().ok()?;
            Some(Pages(pages))
        }

        pub(super) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        }

        pub(super) fn copy_out(&self, offset: usize, buffer: &mut [u8]) {
            buffer.copy_from_slice(&self.0[offset..offset + buffer.len()]);
        }
    }
}

#[cfg(miri)]
mod vector {
    use std::fs;

    /// Stands for the pages of a file.
    pub(super) struct Pages(Vec<u8>);

    impl Pages {
        #[expect(clippy::unnecessary_wraps, reason = "mapping with the kernel can fail")]
        pub(super) fn map(_file: &fs::File, len: usize) -> Option<Pages> {
            Some(Pages::zeroed(len))
        }

        pub(super) fn zeroed(len: usize) -> Pages {
            Pages(vec![0; len])
        }

        pub(super) fn copy_in(&mut self, offset: usize, bytes: &[u8]) {
            self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
        }

        pub(super) fn copy_out(&self, offset: usize, buffer: &mut [u8]) {
            buffer.copy_from_slice(&self.0[offset..offset + buffer.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    #[cfg(not(miri))]
    fn content_survives_unmapping_and_a_different_size_starts_from_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        let mapping = map_file(&path, 65_536).unwrap().expect("this machine can map and lock small files");
        mapping.write(60_000, b"kept");
        let mut buffer = [1; 6];
        mapping.read(59_999, &mut buffer);
        assert_eq!(&buffer, b"\0kept\0");
        drop(mapping);
        assert_eq!(&fs::read(&path).unwrap()[60_000..60_004], b"kept");
        let again = map_file(&path, 65_536).unwrap().unwrap();
        again.read(60_000, &mut buffer);
        assert_eq!(&buffer, b"kept\0\0");
        drop(again);
        let larger = map_file(&path, 131_072).unwrap().unwrap();
        assert_eq!(larger.len(), 131_072);
        larger.read(60_000, &mut buffer);
        assert_eq!(buffer, [0; 6]);
        larger.write(0, b"old");
        drop(larger);
        let smaller = map_file(&path, 4096).unwrap().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 4096);
        smaller.read(0, &mut buffer);
        assert_eq!(buffer, [0; 6]);
    }

    #[test]
    #[cfg(not(miri))]
    fn every_block_of_the_file_is_allocated() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        // A file of the right size that is one hole.
        fs::File::create(&path).unwrap().set_len(65_536).unwrap();
        assert!(prepare(&path, 65_536).unwrap().is_some());
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 65_536);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_ring_left_half_created_by_a_crash_is_reused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ring");
        for (content, reusable) in
            [(vec![0; 3 * 65_536 + 7], true), (vec![0; 4096], true), (b"\0\0ours?".to_vec(), false)]
        {
            fs::write(&path, &content).unwrap();
            assert_eq!(map_file(&path, 65_536).unwrap().is_some(), reusable);
            assert_eq!(fs::read(&path).unwrap().len(), if reusable { 65_536 } else { content.len() });
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn the_error_for_a_path_that_cannot_be_opened_names_it() {
        let error = map_file(Path::new("/nowhere/ring"), 4096).err().unwrap();
        assert!(error.to_string().contains("/nowhere/ring"), "{error}");
    }

    #[cfg(not(miri))]
    fn small() -> OsMapping {
        let file = tempfile::tempfile().unwrap();
        file.set_len(8192).unwrap();
        OsMapping { len: 8192, pages: RwLock::new(Pages::map(&file, 8192).unwrap()) }
    }

    #[cfg(miri)]
    fn small() -> OsMapping {
        OsMapping { len: 8192, pages: RwLock::new(Pages::zeroed(8192)) }
    }

    #[test]
    fn threads_never_see_a_torn_write() {
        let mapping = Arc::new(small());
        let writer = {
            let mapping = Arc::clone(&mapping);
            std::thread::spawn(move || {
                for round in 0..50 {
                    mapping.write(1000, &[round; 200]);
                }
            })
        };
        for _ in 0..50 {
            let mut buffer = [0; 200];
            mapping.read(1000, &mut buffer);
            assert!(buffer.iter().all(|&byte| byte == buffer[0]));
        }
        writer.join().unwrap();
    }

    #[test]
    #[should_panic(expected = "do not fit a mapping")]
    fn a_write_past_the_end_panics() {
        small().write(8190, &[0; 3]);
    }

    #[test]
    #[should_panic(expected = "do not fit a mapping")]
    fn a_read_whose_end_overflows_panics() {
        small().read(usize::MAX, &mut [0; 2]);
    }
}
