//! Files in memory, for the tests of this store.

use std::collections::BTreeMap;
use std::io::{Error as IoError, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::base::{Error, Result};
use crate::io::{Access, DirEntry, File, Lock, Mapping, Storage};

type Bytes = Arc<Mutex<Vec<u8>>>;

/// A storage that never loses anything, and fails writes when told to.
pub(super) struct MemoryStorage {
    files: Mutex<BTreeMap<PathBuf, Bytes>>,
    writes_left: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

struct MemoryFile {
    path: PathBuf,
    bytes: Bytes,
    writes_left: Arc<AtomicUsize>,
    reads: Arc<AtomicUsize>,
}

impl MemoryStorage {
    pub(super) fn new() -> MemoryStorage {
        MemoryStorage {
            files: Mutex::default(),
            writes_left: Arc::new(AtomicUsize::new(usize::MAX)),
            reads: Arc::default(),
        }
    }

    /// Lets `count` more writes succeed.
    pub(super) fn fail_after_writes(&self, count: usize) {
        self.writes_left.store(count, Ordering::Relaxed);
    }

    /// Calls of `read_at` so far.
    pub(super) fn reads(&self) -> usize {
        self.reads.load(Ordering::Relaxed)
    }

    pub(super) fn bytes(&self, path: &Path) -> Vec<u8> {
        self.files.lock()[path].lock().clone()
    }

    pub(super) fn put(&self, path: &Path, bytes: Vec<u8>) {
        self.files.lock().insert(path.to_owned(), Arc::new(Mutex::new(bytes)));
    }

    pub(super) fn names(&self) -> Vec<PathBuf> {
        self.files.lock().keys().cloned().collect()
    }
}

impl Storage for MemoryStorage {
    fn create(&self, path: &Path, _access: Access) -> Result<Arc<dyn File>> {
        if self.exists(path)? {
            return Err(Error::io(path, "create", IoError::from(ErrorKind::AlreadyExists)));
        }
        self.put(path, Vec::new());
        self.open(path)
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        let missing = || Error::io(path, "open", IoError::from(ErrorKind::NotFound));
        let bytes = self.files.lock().get(path).ok_or_else(missing)?.clone();
        let (writes_left, reads) = (self.writes_left.clone(), self.reads.clone());
        Ok(Arc::new(MemoryFile {
            path: path.to_owned(),
            bytes,
            writes_left,
            reads,
        }))
    }
    fn open_read(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.open(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        Ok(self.files.lock().contains_key(path))
    }
    fn create_dir_all(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn list(&self, _path: &Path) -> Result<Vec<DirEntry>> {
        unreachable!("tables are never listed by this store")
    }
    fn rename(&self, _from: &Path, _to: &Path) -> Result<()> {
        unreachable!("tables are never renamed")
    }
    fn remove(&self, path: &Path) -> Result<()> {
        let missing = || Error::io(path, "remove", IoError::from(ErrorKind::NotFound));
        self.files.lock().remove(path).map(drop).ok_or_else(missing)
    }
    fn sync_dir(&self, _path: &Path) -> Result<()> {
        Ok(())
    }
    fn lock(&self, _path: &Path) -> Result<Box<dyn Lock>> {
        unreachable!("this store takes no locks")
    }
    fn map(&self, _path: &Path, _len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }
}

impl File for MemoryFile {
    fn path(&self) -> &Path {
        &self.path
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let bytes = self.bytes.lock();
        let rest = bytes.get(offset as usize..).unwrap_or_default();
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let allowed = self
            .writes_left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if allowed.is_err() {
            return Err(Error::io(&self.path, "write", IoError::other("injected")));
        }
        let mut file = self.bytes.lock();
        let end = offset as usize + bytes.len();
        let grown = file.len().max(end);
        file.resize(grown, 0);
        file[offset as usize..end].copy_from_slice(bytes);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn len(&self) -> Result<u64> {
        Ok(self.bytes.lock().len() as u64)
    }
    fn allocate(&self, len: u64) -> Result<()> {
        self.bytes.lock().resize(len as usize, 0);
        Ok(())
    }
    fn truncate(&self, len: u64) -> Result<()> {
        self.bytes.lock().truncate(len as usize);
        Ok(())
    }
}
