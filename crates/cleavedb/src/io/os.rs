//! Storage on the operating system: Linux, and with the cargo feature `portable`, which leaves out preallocation, mapping
//! and direct I/O, other Unix systems.
//!
//! Created by `api/` when it opens a database; all other code sees [`Storage`].

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

#[cfg(not(feature = "portable"))]
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
#[cfg(not(feature = "portable"))]
use rustix::io::retry_on_intr;

#[cfg(not(feature = "portable"))]
use super::available_memory::available_memory;
use super::direct_reader::{open_direct_reader, open_direct_writer};
use super::file_lock::OsLock;
#[cfg(not(feature = "portable"))]
use super::mapped;
use super::os_file::OsFile;
use super::storage::{Access, DirEntry, File, FileSpace, Lock, Mapping, Storage};
#[cfg(not(feature = "portable"))]
use super::storage::{DeviceUsage, ProcessorTime, Punched};
use super::system_calls::random_bytes;
#[cfg(not(feature = "portable"))]
use super::usage;
use crate::base::{Error, Result};

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsStorage {
    /// Short reads do not busy-poll.
    polling_off: bool,
}

impl OsStorage {
    /// All paths that the process can reach, with busy-polling of short reads.
    pub const fn new() -> OsStorage {
        OsStorage { polling_off: false }
    }

    /// Decides whether short reads are busy-polled; otherwise a reading thread sleeps until its bytes are there.
    pub const fn busy_polling(self, on: bool) -> OsStorage {
        OsStorage { polling_off: !on }
    }
}

impl Storage for OsStorage {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|error| Error::io(path, "create", error))?;
        let direct = match access {
            Access::Buffered => None,
            // The next attempt would fail on the empty file.
            Access::Direct => open_direct_writer(path).inspect_err(|_| drop(fs::remove_file(path)))?,
        };
        Ok(Arc::new(OsFile { path: path.to_owned(), file, access, direct, busy_polls: !self.polling_off }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        OsFile::open(path, !self.polling_off)
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        match access {
            Access::Buffered => OsFile::open_read(path, !self.polling_off),
            Access::Direct => open_direct_reader(path),
        }
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path, "measure", error)),
        }
    }

    #[cfg(unix)]
    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(path).map_err(|error| Error::io(path, "measure", error))?;
        // Blocks have 512 bytes here, whatever the file system has.
        Ok(Some(FileSpace { number: found.ino(), bytes: found.blocks() * 512 }))
    }

    fn file_system_bytes(&self, dir: &Path) -> u64 {
        let found = rustix::fs::statvfs(dir);
        found.map_or(u64::MAX, |system| system.f_blocks.saturating_mul(system.f_frsize))
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        let found = rustix::fs::statvfs(dir);
        found.map_or(u64::MAX, |system| system.f_bavail.saturating_mul(system.f_frsize))
    }

    #[cfg(not(feature = "portable"))]
    fn available_memory(&self) -> u64 {
        available_memory().unwrap_or(u64::MAX)
    }

    #[cfg(not(feature = "portable"))]
    fn processor_time(&self) -> Option<ProcessorTime> {
        usage::processor_time()
    }

    #[cfg(not(feature = "portable"))]
    fn device_usage(&self, dir: &Path) -> Option<DeviceUsage> {
        usage::device_usage(dir)
    }

    fn open_files_limit(&self) -> usize {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        limit.map_or(usize::MAX, |files| files as usize)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        path.try_exists().map_err(|error| Error::io(path, "look for", error))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut missing = Vec::new();
        for ancestor in path.ancestors().filter(|ancestor| !ancestor.as_os_str().is_empty()) {
            if self.exists(ancestor)? {
                break;
            }
            missing.push(ancestor);
        }
        fs::create_dir_all(path).map_err(|error| Error::io(path, "create directory", error))?;
        for made in missing.iter().rev() {
            self.sync_dir(parent_of(made))?;
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let failed = |error| Error::io(path, "list", error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(path).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            // This is the type of a symbolic link itself, not of its target.
            let is_file = entry.file_type().map_err(failed)?.is_file();
            entries.push(DirEntry { name: entry.file_name().to_string_lossy().into_owned(), is_file });
        }
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|error| Error::io(from, "rename", error))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|error| Error::io(path, "remove", error))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        fs::remove_dir(path).map_err(|error| Error::io(path, "remove directory", error))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        match fs::hard_link(from, to) {
            Ok(()) => Ok(true),
            Err(error) => match Errno::from_io_error(&error) {
                // Another device; too many links; not supported, or not allowed.
                Some(Errno::XDEV | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(false),
                _ => Err(Error::io(to, "link", error)),
            },
        }
    }

    #[cfg(unix)]
    fn links(&self, path: &Path) -> Result<u64> {
        use std::os::unix::fs::MetadataExt;
        let found = fs::metadata(path).map_err(|error| Error::io(path, "count the links of", error))?;
        Ok(found.nlink())
    }

    #[cfg(not(feature = "portable"))]
    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        use std::os::unix::fs::MetadataExt;
        let failed = |error| Error::io(path, "punch", error);
        let file = fs::File::options().write(true).open(path).map_err(failed)?;
        if file.metadata().map_err(failed)?.nlink() > 1 {
            return Ok(Punched::Linked);
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(&file, flags, offset, len)) {
            Ok(()) => Ok(Punched::Done),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(Punched::Unsupported),
            Err(error) => Err(failed(error.into())),
        }
    }

    #[cfg(not(feature = "portable"))]
    fn first_data(&self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        use rustix::fs::{SeekFrom, seek};
        let failed = |error: Errno| Error::io(path, "look for holes", error.into());
        let file = fs::File::open(path).map_err(|error| Error::io(path, "open", error))?;
        let begin = match retry_on_intr(|| seek(&file, SeekFrom::Data(from))) {
            Ok(begin) if begin < to => begin,
            Ok(_) => return Ok(None),
            // There is only a hole up to the end.
            Err(Errno::NXIO) => return Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(Some((from, to))),
            Err(error) => return Err(failed(error)),
        };
        let end = retry_on_intr(|| seek(&file, SeekFrom::Hole(begin))).map_err(failed)?;
        Ok(Some((begin, end.min(to))))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        let failed = |error| Error::io(path, "resolve", error);
        let path = std::path::absolute(path).map_err(failed)?;
        let mut missing = Vec::new();
        let mut existing = path.as_path();
        loop {
            match existing.canonicalize() {
                Ok(mut real) => {
                    for component in missing.iter().rev() {
                        match component {
                            Component::ParentDir => drop(real.pop()),
                            component => real.push(component),
                        }
                    }
                    // Behind `..` there may be components that exist.
                    return if missing.contains(&Component::ParentDir) { self.real_path(&real) } else { Ok(real) };
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.extend(existing.components().next_back());
                    existing = existing.parent().ok_or_else(|| failed(error))?;
                }
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let directory = fs::File::open(path).map_err(|error| Error::io(path, "open", error))?;
        directory.sync_all().map_err(|error| Error::sync(path, error))
    }

    fn unique_number(&self) -> Result<u64> {
        let mut bytes = [0; 8];
        random_bytes(&mut bytes).map_err(|error| Error::io(Path::new("/dev/urandom"), "read", error))?;
        Ok(u64::from_le_bytes(bytes).max(1))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(OsLock::exclusive(path)?))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        Ok(Box::new(OsLock::shared(path)?))
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        #[cfg(feature = "portable")]
        {
            let _ = (path, len);
            Ok(None)
        }
        #[cfg(not(feature = "portable"))]
        {
            let mapping = mapped::map_file(path, len)?;
            Ok(mapping.map(|mapping| Arc::new(mapping) as Arc<dyn Mapping>))
        }
    }

    #[cfg(not(feature = "portable"))]
    fn remove_mapped(&self, path: &Path) -> Result<()> {
        let is_reusable = mapped::is_mapped_file(path).map_err(|error| Error::io(path, "look at", error))?;
        if is_reusable { self.remove(path) } else { Ok(()) }
    }
}

/// The directory that holds a name.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

/// Bytes of memory that the portable build assumes.
#[cfg(feature = "portable")]
pub fn memory_bytes() -> usize {
    4 << 30
}

/// Bytes of main memory of this machine.
#[cfg(not(feature = "portable"))]
pub fn memory_bytes() -> usize {
    let info = rustix::system::sysinfo();
    usize::try_from(info.totalram as u64 * info.mem_unit as u64).unwrap_or(usize::MAX)
}

#[cfg(all(test, not(miri)))]
#[path = "os_test.rs"]
mod tests;
