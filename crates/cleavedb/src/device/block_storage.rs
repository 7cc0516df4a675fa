//! A storage of which one directory is the block side of a device: files there take the device's time, and its space.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block_side::{BlockFile, BlockSide};
use super::block_space::Claim;
use crate::base::{Error, Result};
use crate::io::{Access, DeviceUsage, DirEntry, File, FileSpace, Lock, Mapping, ProcessorTime, Punched, Storage};

/// A storage, and the block side of a device in it.
pub(super) struct BlockStorage {
    storage: Arc<dyn Storage>,
    side: BlockSide,
}

impl BlockStorage {
    /// Counts what lies on the block side.
    pub fn new(storage: Arc<dyn Storage>, side: BlockSide) -> Result<BlockStorage> {
        side.space().count(&*storage, side.dir())?;
        Ok(BlockStorage { storage, side })
    }

    /// Opens a file of the block side, where `open` opens it in the storage below.
    fn open_there(&self, path: &Path, open: impl FnOnce() -> Result<Arc<dyn File>>) -> Result<Arc<dyn File>> {
        let mut names = self.side.space().names();
        let file = open()?;
        match names.find(&*self.storage, path)? {
            Some(claim) => Ok(Arc::new(BlockFile::new(&self.side, file, claim, names.open_mark()))),
            None => Err(Error::io(path, "open", std::io::ErrorKind::NotFound.into())),
        }
    }

    /// True if one of the paths lies on the block side and the other one does not: to files these are two devices.
    fn is_border(&self, from: &Path, to: &Path) -> bool {
        self.side.holds(from) != self.side.holds(to)
    }

    fn bytes_of(&self, path: &Path) -> Result<u64> {
        Ok(self.storage.file_space(path)?.map_or(0, |space| space.bytes))
    }
}

impl Storage for BlockStorage {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        if !self.side.holds(path) {
            return self.storage.create(path, access);
        }
        let mut names = self.side.space().names();
        let file = self.storage.create(path, access)?;
        let claim = names.create(path);
        Ok(Arc::new(BlockFile::new(&self.side, file, claim, names.open_mark())))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        if !self.side.holds(path) {
            return self.storage.open(path);
        }
        self.open_there(path, || self.storage.open(path))
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        if !self.side.holds(path) {
            return self.storage.open_read(path, access);
        }
        self.open_there(path, || self.storage.open_read(path, access))
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        self.storage.file_len(path)
    }

    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        self.storage.file_space(path)
    }

    fn file_system_bytes(&self, dir: &Path) -> u64 {
        let most = if self.side.holds(dir) { self.side.capacity_bytes() } else { u64::MAX };
        self.storage.file_system_bytes(dir).min(most)
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        let most = if self.side.holds(dir) { self.side.space().free_bytes() } else { u64::MAX };
        self.storage.free_bytes(dir).min(most)
    }

    fn available_memory(&self) -> u64 {
        self.storage.available_memory()
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        self.storage.processor_time()
    }

    fn device_usage(&self, dir: &Path) -> Option<DeviceUsage> {
        self.storage.device_usage(dir)
    }

    fn open_files_limit(&self) -> usize {
        self.storage.open_files_limit()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.storage.exists(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.storage.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.storage.list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        if self.is_border(from, to) {
            return Err(Error::io(from, "rename", std::io::ErrorKind::CrossesDevices.into()));
        }
        if !self.side.holds(from) {
            return self.storage.rename(from, to);
        }
        let mut names = self.side.space().names();
        self.storage.rename(from, to)?;
        names.rename(from, to);
        Ok(())
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if !self.side.holds(path) {
            return self.storage.remove(path);
        }
        let mut names = self.side.space().names();
        self.storage.remove(path)?;
        names.remove(path);
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.storage.remove_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        if self.is_border(from, to) {
            return Ok(false);
        }
        if !self.side.holds(from) {
            return self.storage.link(from, to);
        }
        let mut names = self.side.space().names();
        let claim = names.find(&*self.storage, from)?;
        let is_linked = self.storage.link(from, to)?;
        if let Some(claim) = claim.filter(|_| is_linked) {
            names.link(claim, to);
        }
        Ok(is_linked)
    }

    fn links(&self, path: &Path) -> Result<u64> {
        self.storage.links(path)
    }

    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        if !self.side.holds(path) {
            return self.storage.punch(path, offset, len);
        }
        let mut names = self.side.space().names();
        let claim = names.find(&*self.storage, path)?;
        let before = self.bytes_of(path)?;
        let punched = self.storage.punch(path, offset, len)?;
        if let Some(claim) = claim {
            claim.punch(before.saturating_sub(self.bytes_of(path)?));
        }
        Ok(punched)
    }

    fn first_data(&self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        self.storage.first_data(path, from, to)
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        self.storage.absolute(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        self.storage.real_path(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.storage.sync_dir(path)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.storage.lock(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.storage.lock_shared(path)
    }

    fn unique_number(&self) -> Result<u64> {
        self.storage.unique_number()
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        if !self.side.holds(path) {
            return self.storage.map(path, len);
        }
        let mut names = self.side.space().names();
        let claim = match names.find(&*self.storage, path)? {
            Some(claim) => claim,
            None => names.create(path),
        };
        let mapping = match claim.extend(len as u64) {
            Some(_) => self.storage.map(path, len),
            None => Err(Error::no_space(path)),
        };
        if let Ok(Some(mapping)) = mapping {
            claim.cut(len as u64);
            return Ok(Some(Arc::new(BlockMapping { mapping, _claim: claim, _open: names.open_mark() })));
        }
        // Whatever there is now is measured anew.
        names.remove(path);
        names.find(&*self.storage, path)?;
        mapping
    }

    fn remove_mapped(&self, path: &Path) -> Result<()> {
        if !self.side.holds(path) {
            return self.storage.remove_mapped(path);
        }
        let mut names = self.side.space().names();
        self.storage.remove_mapped(path)?;
        if !self.storage.exists(path)? {
            names.remove(path);
        }
        Ok(())
    }
}

/// A mapped file, whose space stays its own as long as it is mapped.
struct BlockMapping {
    mapping: Arc<dyn Mapping>,
    _claim: Arc<Claim>,
    _open: Arc<()>,
}

impl Mapping for BlockMapping {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.mapping.write(offset, bytes);
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.mapping.read(offset, buffer);
    }
}

#[cfg(test)]
#[path = "block_storage_test.rs"]
mod tests;
