//! Storage on the operating system: Linux, and with the cargo feature `portable`, which leaves out fallocate, mapping and
//! direct I/O, other Unix systems.
//!
//! A file opened for direct writes has two descriptors: a direct one for writes, and an ordinary one for reads, so that
//! reads may have any shape and can be cached. The kernel drops cached pages under a direct write, so the two agree.
//! Where the file system knows no direct I/O, such a file is written through the page cache instead.
//!
//! Called by `db/` when it opens a database; everything else sees [`Storage`].

use std::collections::BTreeMap;
use std::fs;
use std::io;
#[cfg(not(feature = "portable"))]
use std::num::NonZeroU64;
#[cfg(not(feature = "portable"))]
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FlockOperation;
#[cfg(not(feature = "portable"))]
use rustix::fs::{Advice, FallocateFlags, OFlags};
use rustix::io::{Errno, retry_on_intr};

#[cfg(not(feature = "portable"))]
use super::Punched;
#[cfg(not(feature = "portable"))]
use super::aligned::AlignedBuffer;
use super::aligned::assert_aligned;
use super::mapped;
use super::{Access, DirEntry, File, Lock, Mapping, Storage};
#[cfg(not(feature = "portable"))]
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result};
#[cfg(not(feature = "portable"))]
use crate::io::busy_poll;

/// A direct read is made in pieces of at most this size, which bounds the memory it needs.
#[cfg(not(feature = "portable"))]
const DIRECT_READ_BYTES_MAX: usize = 1 << 20;

/// The files of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct OsStorage {
    /// Who waits for a file sleeps.
    sleeps: bool,
}

impl OsStorage {
    /// All paths that the process can reach.
    pub const fn new() -> OsStorage {
        OsStorage { sleeps: false }
    }

    /// A thread that waits for a short read sleeps, instead of keeping its processor awake.
    pub const fn sleeping(self, sleeps: bool) -> OsStorage {
        OsStorage { sleeps }
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
            // An empty file would be in the way of the next try.
            Access::Direct => open_direct(path).inspect_err(|_| drop(fs::remove_file(path)))?,
        };
        Ok(Arc::new(OsFile { path: path.to_owned(), file, access, direct, sleeps: self.sleeps }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        open_buffered(path, fs::OpenOptions::new().read(true).write(true), self.sleeps)
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        match access {
            Access::Buffered => open_for_reading(path, self.sleeps),
            Access::Direct => open_direct_read(path),
        }
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        match fs::metadata(path) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(path, "measure", error)),
        }
    }

    fn space_of(&self, dir: &Path) -> u64 {
        let found = rustix::fs::statvfs(dir);
        found.map_or(u64::MAX, |system| system.f_blocks.saturating_mul(system.f_frsize))
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
            // Describes a link itself and not what it points to.
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
                // Another device; too many names; not known here, or not allowed.
                Some(Errno::XDEV | Errno::MLINK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => Ok(false),
                _ => Err(Error::io(to, "link", error)),
            },
        }
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
            // Nothing but a hole up to the end.
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
        let mut there = path.as_path();
        loop {
            match there.canonicalize() {
                Ok(mut real) => {
                    real.extend(missing.iter().rev());
                    return Ok(real);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    missing.extend(there.file_name());
                    there = there.parent().ok_or_else(|| failed(error))?;
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
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        Ok(Box::new(OsLock::take(path, &options, FlockOperation::NonBlockingLockExclusive)?))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut options = fs::OpenOptions::new();
        options.read(true);
        Ok(Box::new(OsLock::take(path, &options, FlockOperation::NonBlockingLockShared)?))
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
        let is_ours = mapped::is_mapped_file(path).map_err(|error| Error::io(path, "look at", error))?;
        if is_ours { self.remove(path) } else { Ok(()) }
    }
}

/// The kernel gives eight bytes whole or not at all.
#[cfg(not(feature = "portable"))]
fn random_bytes(bytes: &mut [u8; 8]) -> io::Result<()> {
    retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty()))?;
    Ok(())
}

#[cfg(feature = "portable")]
fn random_bytes(bytes: &mut [u8; 8]) -> io::Result<()> {
    io::Read::read_exact(&mut fs::File::open("/dev/urandom")?, bytes)
}

/// The directory that holds a name.
fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(path)
}

fn open_buffered(path: &Path, options: &fs::OpenOptions, sleeps: bool) -> Result<Arc<dyn File>> {
    let file = options.open(path).map_err(|error| Error::io(path, "open", error))?;
    Ok(Arc::new(OsFile { path: path.to_owned(), file, access: Access::Buffered, direct: None, sleeps }))
}

/// Whoever reads on reads ahead by itself; what the system would read beside single blocks is mostly never asked for.
fn open_for_reading(path: &Path, sleeps: bool) -> Result<Arc<dyn File>> {
    let file = fs::OpenOptions::new().read(true).open(path).map_err(|error| Error::io(path, "open", error))?;
    #[cfg(not(feature = "portable"))]
    {
        // Only advice: where it is not taken, reading works all the same.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
    }
    Ok(Arc::new(OsFile { path: path.to_owned(), file, access: Access::Buffered, direct: None, sleeps }))
}

/// The portable build knows no direct I/O.
#[cfg(feature = "portable")]
fn open_direct(_: &Path) -> Result<Option<fs::File>> {
    Ok(None)
}

#[cfg(feature = "portable")]
fn open_direct_read(path: &Path) -> Result<Arc<dyn File>> {
    Err(Error::input(format!("direct I/O is not to be had in this build (feature `portable`) for {}", path.display())))
}

/// The descriptor for direct writes; None where the file system has no direct I/O.
#[cfg(not(feature = "portable"))]
fn open_direct(path: &Path) -> Result<Option<fs::File>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    match fs::OpenOptions::new().write(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(None),
        Err(error) => Err(Error::io(path, "open for direct writes", error)),
    }
}

/// A file for direct reads of any shape.
#[cfg(not(feature = "portable"))]
fn open_direct_read(path: &Path) -> Result<Arc<dyn File>> {
    let flags = OFlags::DIRECT.bits().cast_signed();
    match fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => Ok(Arc::new(DirectReader { path: path.to_owned(), file, needed: parking_lot::Mutex::default() })),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
            Err(Error::input(format!("direct I/O is not to be had in the file system of {}", path.display())))
        }
        Err(error) => Err(Error::io(path, "open", error)),
    }
}

/// Reserves space for `len` bytes and makes the file at least that long. Without the call in the file system only the
/// length is set, and the answer is false.
#[cfg(feature = "portable")]
pub(super) fn reserve(file: &fs::File, len: u64) -> io::Result<bool> {
    set_least_len(file, len)
}

/// Reserves space for `len` bytes and makes the file at least that long. Without the call in the file system only the
/// length is set, and the answer is false.
#[cfg(not(feature = "portable"))]
pub(super) fn reserve(file: &fs::File, len: u64) -> io::Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    match retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => set_least_len(file, len),
        other => other.map(|()| true).map_err(io::Error::from),
    }
}

/// Without space behind it: false.
fn set_least_len(file: &fs::File, len: u64) -> io::Result<bool> {
    if file.metadata()?.len() < len {
        file.set_len(len)?;
    }
    Ok(false)
}

/// Reads until the buffer is full or the file ends.
pub(super) fn read_fully(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

struct OsFile {
    path: PathBuf,
    /// Reads, and writes unless there is a direct descriptor.
    file: fs::File,
    access: Access,
    direct: Option<fs::File>,
    #[cfg_attr(feature = "portable", expect(dead_code, reason = "there all sleep"))]
    sleeps: bool,
}

impl OsFile {
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
        let read = if self.sleeps { read_fully } else { busy_poll::read };
        self.wrap("read", read(&self.file, buffer, offset))
    }

    #[cfg(not(feature = "portable"))]
    fn will_need(&self, offset: u64, len: u64) {
        let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn will_go_on(&self, offset: u64, len: u64) {
        self.will_need(offset, len);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.access == Access::Direct {
            assert_aligned(bytes, offset);
        }
        let file = self.direct.as_ref().unwrap_or(&self.file);
        self.wrap("write", file.write_all_at(bytes, offset))
    }

    /// The advice starts the write-back of what is dirty, and drops only pages that are clean: these stay, because they are
    /// being written.
    #[cfg(not(feature = "portable"))]
    fn write_back(&self, offset: u64, len: u64) {
        if self.direct.is_none() {
            let _ = rustix::fs::fadvise(&self.file, offset, NonZeroU64::new(len), Advice::DontNeed);
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
        let result = reserve(&self.file, len);
        if result.is_err() && before < len {
            // A file system that ran out of space half-way keeps what it got. The first error is the one to report.
            let _ = self.file.set_len(before);
        }
        self.wrap("allocate", result)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.wrap("truncate", self.file.set_len(len))
    }
}

#[cfg(not(feature = "portable"))]
use direct::DirectReader;

#[cfg(not(feature = "portable"))]
mod direct {
    use super::*;

    /// Reads past the page cache. Each read goes into an aligned buffer that covers it, and from there to the caller.
    ///
    /// Reads that were told of before are to be in flight together. The system does that for the page cache: it is told to
    /// fetch them, they are read from there and dropped again at once (decision record 016).
    pub(super) struct DirectReader {
        pub path: PathBuf,
        pub file: fs::File,
        pub needed: parking_lot::Mutex<Needed>,
    }

    /// Reads that were told of and have not come yet, and the ordinary descriptor for them.
    #[derive(Default)]
    pub(super) struct Needed {
        cached: Option<Arc<fs::File>>,
        reads: usize,
    }

    impl DirectReader {
        fn refuse<T>(&self, operation: &'static str) -> Result<T> {
            Err(Error::io(&self.path, operation, Errno::BADF.into()))
        }
    }

    impl File for DirectReader {
        fn path(&self) -> &Path {
            &self.path
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let mut filled = 0;
            while filled < buffer.len() {
                let at = offset + filled as u64;
                let lead = (at % BLOCK_IO_BYTES as u64) as usize;
                let wanted = (buffer.len() - filled).min(DIRECT_READ_BYTES_MAX - lead);
                let mut bounce = AlignedBuffer::new(lead + wanted);
                let read = match self.file.read_at(&mut bounce, at - lead as u64) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    result => result.map_err(|error| Error::io(&self.path, "read", error))?,
                };
                let part = read.saturating_sub(lead).min(wanted);
                buffer[filled..filled + part].copy_from_slice(&bounce[lead..lead + part]);
                filled += part;
                // A direct read ends within a block only at the end of the file.
                if part == 0 || !read.is_multiple_of(BLOCK_IO_BYTES) {
                    break;
                }
            }
            Ok(filled)
        }

        fn will_need(&self, offset: u64, len: u64) {
            let mut needed = self.needed.lock();
            needed.reads += 1;
            if needed.cached.is_none() {
                needed.cached = fs::File::open(&self.path).ok().map(Arc::new);
            }
            if let Some(cached) = &needed.cached {
                let _ = rustix::fs::fadvise(&**cached, offset, NonZeroU64::new(len), Advice::WillNeed);
            }
        }

        fn read_needed(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
            let cached = {
                let mut needed = self.needed.lock();
                needed.reads = needed.reads.saturating_sub(1);
                // The last read closes the descriptor.
                if needed.reads == 0 { needed.cached.take() } else { needed.cached.clone() }
            };
            let Some(cached) = cached else {
                return self.read_at(buffer, offset);
            };
            let read = read_fully(&cached, buffer, offset).map_err(|error| Error::io(&self.path, "read", error));
            let start = offset / BLOCK_IO_BYTES as u64 * BLOCK_IO_BYTES as u64;
            let end = (offset + buffer.len() as u64).next_multiple_of(BLOCK_IO_BYTES as u64);
            let _ = rustix::fs::fadvise(&*cached, start, NonZeroU64::new(end - start), Advice::DontNeed);
            read
        }

        fn write_at(&self, _bytes: &[u8], _offset: u64) -> Result<()> {
            self.refuse("write")
        }

        fn sync(&self) -> Result<()> {
            self.file.sync_data().map_err(|error| Error::sync(&self.path, error))
        }

        fn len(&self) -> Result<u64> {
            self.file.metadata().map(|metadata| metadata.len()).map_err(|error| Error::io(&self.path, "measure", error))
        }

        fn allocate(&self, _len: u64) -> Result<bool> {
            self.refuse("allocate")
        }

        fn truncate(&self, _len: u64) -> Result<()> {
            self.refuse("truncate")
        }
    }
}

/// Files that this process has locked, by device and inode: by how many that share the lock, or by one that does not (0).
/// The kernel's lock belongs to an open file, so it refuses a second opener in this process too; but network file systems
/// may turn it into one that belongs to the process.
static LOCKED_HERE: parking_lot::Mutex<BTreeMap<(u64, u64), usize>> = parking_lot::Mutex::new(BTreeMap::new());

struct OsLock {
    file: fs::File,
    identity: (u64, u64),
}

impl OsLock {
    fn take(path: &Path, options: &fs::OpenOptions, operation: FlockOperation) -> Result<OsLock> {
        let failed = |error| Error::io(path, "lock", error);
        let file = options.open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        let shared = operation == FlockOperation::NonBlockingLockShared;
        let mut locked_here = LOCKED_HERE.lock();
        let holders = locked_here.get(&identity).copied();
        if holders.is_some_and(|holders| !shared || holders == 0) {
            return Err(Error::Locked { path: path.to_owned() });
        }
        match retry_on_intr(|| rustix::fs::flock(&file, operation)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Locked { path: path.to_owned() }),
            Err(error) => return Err(failed(error.into())),
        }
        locked_here.insert(identity, if shared { holders.unwrap_or_default() + 1 } else { 0 });
        Ok(OsLock { file, identity })
    }
}

impl Lock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        let mut locked_here = LOCKED_HERE.lock();
        // If this fails, closing the file releases the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        match locked_here.get_mut(&self.identity) {
            Some(holders) if *holders > 1 => *holders -= 1,
            _ => drop(locked_here.remove(&self.identity)),
        }
    }
}

#[cfg(all(test, not(miri)))]
#[path = "os_test.rs"]
mod tests;

/// Bytes of memory that the portable build takes for granted.
#[cfg(feature = "portable")]
pub fn memory_bytes() -> usize {
    4 << 30
}

/// Bytes of memory that the machine has.
#[cfg(not(feature = "portable"))]
pub fn memory_bytes() -> usize {
    let info = rustix::system::sysinfo();
    usize::try_from(info.totalram as u64 * info.mem_unit as u64).unwrap_or(usize::MAX)
}
