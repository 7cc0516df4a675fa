//! A read-only view of another storage: reads pass through, writes to open files are discarded, and all other changes fail.
//! So recovery, which repairs logs while it reads them, can run without effect.
//!
//! Called by the check of a database, which runs recovery to read the logs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::storage::{Access, DirEntry, File, FileSpace, Lock, Mapping, Punched, Storage};
use crate::base::{Error, Result};

/// A read-only view of a storage.
pub struct ReadOnlyStorage<'a> {
    storage: &'a dyn Storage,
}

impl<'a> ReadOnlyStorage<'a> {
    /// A view of `storage`.
    pub fn new(storage: &'a dyn Storage) -> ReadOnlyStorage<'a> {
        ReadOnlyStorage { storage }
    }
}

fn read_only<T>(path: &Path, operation: &'static str) -> Result<T> {
    Err(Error::io(path, operation, std::io::ErrorKind::ReadOnlyFilesystem.into()))
}

impl Storage for ReadOnlyStorage<'_> {
    fn create(&self, path: &Path, _: Access) -> Result<Arc<dyn File>> {
        read_only(path, "create")
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        Ok(Arc::new(DiscardingFile { file: self.storage.open_read(path, Access::Buffered)? }))
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.storage.open_read(path, access)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        self.storage.file_len(path)
    }

    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        self.storage.file_space(path)
    }

    fn open_files_limit(&self) -> usize {
        self.storage.open_files_limit()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.storage.exists(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        read_only(path, "create directory")
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.storage.list(path)
    }

    fn rename(&self, from: &Path, _: &Path) -> Result<()> {
        read_only(from, "rename")
    }

    fn remove(&self, path: &Path) -> Result<()> {
        read_only(path, "remove")
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        read_only(path, "remove directory")
    }

    fn link(&self, from: &Path, _: &Path) -> Result<bool> {
        read_only(from, "link")
    }

    fn links(&self, path: &Path) -> Result<u64> {
        self.storage.links(path)
    }

    fn punch(&self, path: &Path, _: u64, _: u64) -> Result<Punched> {
        read_only(path, "punch")
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.storage.absolute(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        self.storage.real_path(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        read_only(path, "sync directory")
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        read_only(path, "lock")
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.storage.lock_shared(path)
    }

    fn unique_number(&self) -> Result<u64> {
        self.storage.unique_number()
    }

    fn map(&self, _: &Path, _: usize) -> Result<Option<Arc<dyn Mapping>>> {
        Ok(None)
    }
}

/// Discards all writes.
struct DiscardingFile {
    file: Arc<dyn File>,
}

impl File for DiscardingFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, _: &[u8], _: u64) -> Result<()> {
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn allocate(&self, _: u64) -> Result<bool> {
        Ok(false)
    }

    fn truncate(&self, _: u64) -> Result<()> {
        Ok(())
    }
}
