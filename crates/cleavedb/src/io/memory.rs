//! Files in memory, for databases that need not outlive their handles ([`Db::in_memory`](crate::Db::in_memory)). Nothing is
//! durable and nothing fails; a file's memory is freed with its last name and its last handle.
//!
//! Two kinds of locks, never held together: one for names, and one for the content of each file, which readers share.
//! Called by `Db::in_memory`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::storage::{Access, DirEntry, File, Lock, Mapping, Punched, Storage};
use crate::base::{Error, Result};
use crate::sched::sync::{Mutex, RwLock};

/// MemoryContent is allocated in chunks of this size, when they are first written.
const CHUNK_BYTES: usize = 16 << 10;

/// Files and directories in memory.
#[derive(Default)]
pub struct MemoryStorage {
    names: Mutex<FileNames>,
    /// The last number given to a database.
    numbers: AtomicU64,
}

#[derive(Default)]
struct FileNames {
    files: BTreeMap<PathBuf, Arc<RwLock<MemoryContent>>>,
    directories: BTreeSet<PathBuf>,
    /// Holders of the lock on each path.
    locks: BTreeMap<PathBuf, Held>,
}

/// A lock lives as long as its guards do.
enum Held {
    Exclusive(Weak<()>),
    Shared(Weak<()>),
}

impl FileNames {
    fn find(&self, path: &Path, operation: &'static str) -> Result<&Arc<RwLock<MemoryContent>>> {
        self.files.get(path).ok_or_else(|| Error::io(path, operation, io::ErrorKind::NotFound.into()))
    }

    /// The number of names of a file.
    fn links(&self, content: &Arc<RwLock<MemoryContent>>) -> u64 {
        self.files.values().filter(|other| Arc::ptr_eq(other, content)).count() as u64
    }

    fn create(&mut self, path: &Path) -> Result<Arc<RwLock<MemoryContent>>> {
        let failed = |kind: io::ErrorKind| Error::io(path, "create", kind.into());
        if self.files.contains_key(path) || self.directories.contains(path) {
            return Err(failed(io::ErrorKind::AlreadyExists));
        }
        if !path.parent().is_some_and(|parent| self.directories.contains(parent)) {
            return Err(failed(io::ErrorKind::NotFound));
        }
        Ok(self.files.entry(path.to_owned()).or_default().clone())
    }

    /// The entries of a directory, sorted by name.
    fn list(&self, dir: &Path) -> Vec<DirEntry> {
        let inside = |path: &Path| {
            let name = path.file_name().filter(|_| path.parent() == Some(dir))?;
            Some(name.to_string_lossy().into_owned())
        };
        let files = self.files.keys().filter_map(|path| Some(DirEntry { name: inside(path)?, is_file: true }));
        let below = self.directories.iter().filter_map(|path| Some(DirEntry { name: inside(path)?, is_file: false }));
        let mut entries: Vec<DirEntry> = files.chain(below).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        entries
    }
}

impl MemoryStorage {
    /// A storage without files.
    pub fn new() -> MemoryStorage {
        MemoryStorage::default()
    }

    /// Memory of all files that have a name, in bytes.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.names.lock().files.values().map(|content| content.read().bytes()).sum()
    }

    fn take_lock(&self, path: &Path, hold: fn(Weak<()>) -> Held) -> Result<Box<dyn Lock>> {
        let mut names = self.names.lock();
        let guard = match (names.locks.get(path), hold(Weak::new())) {
            (Some(Held::Shared(holders)), Held::Shared(_)) => holders.upgrade().unwrap_or_default(),
            (Some(Held::Exclusive(holder) | Held::Shared(holder)), _) if holder.strong_count() > 0 => {
                return Err(Error::Locked { path: path.to_owned() });
            }
            _ => Arc::default(),
        };
        names.locks.insert(path.to_owned(), hold(Arc::downgrade(&guard)));
        Ok(Box::new(MemoryLock { _guard: guard }))
    }
}

struct MemoryLock {
    _guard: Arc<()>,
}

impl Lock for MemoryLock {}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        let content = self.names.lock().create(path)?;
        Ok(Arc::new(MemoryFile { path: path.to_owned(), content }))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let content = self.names.lock().find(path, "open")?.clone();
        Ok(Arc::new(MemoryFile { path: path.to_owned(), content }))
    }

    fn open_read(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        self.open(path)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        let content = self.names.lock().files.get(path).cloned();
        Ok(content.map(|content| content.read().len))
    }

    fn open_files_limit(&self) -> usize {
        usize::MAX
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        let names = self.names.lock();
        Ok(names.files.contains_key(path) || names.directories.contains(path))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        let mut names = self.names.lock();
        if let Some(file) = path.ancestors().find(|ancestor| names.files.contains_key(*ancestor)) {
            return Err(Error::io(file, "create directory", io::ErrorKind::NotADirectory.into()));
        }
        names.directories.extend(path.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let names = self.names.lock();
        if !names.directories.contains(path) {
            return Err(Error::io(path, "list", io::ErrorKind::NotFound.into()));
        }
        Ok(names.list(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let mut names = self.names.lock();
        let content = names.find(from, "rename")?.clone();
        if names.directories.contains(to) {
            return Err(Error::io(to, "rename", io::ErrorKind::IsADirectory.into()));
        }
        names.files.remove(from);
        names.files.insert(to.to_owned(), content);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        let removed = self.names.lock().files.remove(path);
        removed.map(drop).ok_or_else(|| Error::io(path, "remove", io::ErrorKind::NotFound.into()))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        let mut names = self.names.lock();
        let failed = |kind: io::ErrorKind| Error::io(path, "remove directory", kind.into());
        if !names.list(path).is_empty() {
            return Err(failed(io::ErrorKind::DirectoryNotEmpty));
        }
        if !names.directories.remove(path) {
            return Err(failed(io::ErrorKind::NotFound));
        }
        Ok(())
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        let mut names = self.names.lock();
        let content = names.find(from, "link")?.clone();
        if names.files.contains_key(to) || names.directories.contains(to) {
            return Err(Error::io(to, "link", io::ErrorKind::AlreadyExists.into()));
        }
        names.files.insert(to.to_owned(), content);
        Ok(true)
    }

    fn links(&self, path: &Path) -> Result<u64> {
        let names = self.names.lock();
        Ok(names.links(names.find(path, "count the links of")?))
    }

    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        let names = self.names.lock();
        let content = names.find(path, "punch")?.clone();
        if names.links(&content) > 1 {
            return Ok(Punched::Linked);
        }
        drop(names);
        content.write().punch(offset, len);
        Ok(Punched::Done)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        let mut names = self.names.lock();
        if !names.files.contains_key(path) {
            names.create(path)?;
        }
        drop(names);
        self.take_lock(path, Held::Exclusive)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.names.lock().find(path, "lock")?;
        self.take_lock(path, Held::Shared)
    }

    fn unique_number(&self) -> Result<u64> {
        Ok(self.numbers.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Bytes that survive the process are of no use here, so logs are written without a ring.
    fn map(&self, _path: &Path, _len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }
}

/// An open file.
struct MemoryFile {
    path: PathBuf,
    content: Arc<RwLock<MemoryContent>>,
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        Ok(self.content.read().read(buffer, offset))
    }

    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.content.read().read(buffer, offset) == buffer.len()
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.content.write().write(bytes, offset);
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.read().len)
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        let mut content = self.content.write();
        content.len = content.len.max(len);
        Ok(true)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.content.write().truncate(len);
        Ok(())
    }
}

/// The bytes of a file. Bytes that were never written are zeros and take no memory; nor do chunks that lie in a hole.
#[derive(Default)]
struct MemoryContent {
    len: u64,
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl MemoryContent {
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.chunks.len() * CHUNK_BYTES
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = self.len.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for (number, start, range) in chunks_of(offset, count as u64) {
            let part = &mut buffer[range.clone()];
            match self.chunks.get(&number) {
                Some(chunk) => part.copy_from_slice(&chunk[start..start + part.len()]),
                None => part.fill(0),
            }
        }
        count
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        for (number, start, range) in chunks_of(offset, bytes.len() as u64) {
            let part = &bytes[range];
            let chunk = self.chunks.entry(number).or_insert_with(|| vec![0; CHUNK_BYTES].into());
            chunk[start..start + part.len()].copy_from_slice(part);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    /// Zeros the range and frees the chunks that are then all zeros: those within it, and at its ends those of which
    /// earlier holes cover the rest.
    fn punch(&mut self, offset: u64, len: u64) {
        for (number, start, range) in chunks_of(offset, len.min(self.len.saturating_sub(offset))) {
            if range.len() == CHUNK_BYTES {
                self.chunks.remove(&number);
            } else if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk[start..start + range.len()].fill(0);
                if chunk.iter().all(|byte| *byte == 0) {
                    self.chunks.remove(&number);
                }
            }
        }
    }

    fn truncate(&mut self, len: u64) {
        self.punch(len, self.len.saturating_sub(len));
        drop(self.chunks.split_off(&len.div_ceil(CHUNK_BYTES as u64)));
        self.len = len;
    }
}

/// The chunks that hold `len` bytes at `offset`: the number of each chunk, the offset in it, and the range of those bytes.
fn chunks_of(offset: u64, len: u64) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let start = (at % CHUNK_BYTES as u64) as usize;
        let count = (len - done).min((CHUNK_BYTES - start) as u64);
        let range = done as usize..(done + count) as usize;
        done += count;
        (count > 0).then_some((at / CHUNK_BYTES as u64, start, range))
    })
}

#[cfg(test)]
#[path = "memory_test.rs"]
mod tests;
