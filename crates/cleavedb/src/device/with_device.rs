//! A storage that has the directory of a device beside its own. The path of that directory has a first component that no absolute
//! path has, and that names the device, so that an error about a file there says which device it is on.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::block_storage::BlockStorage;
use super::directory::KvDirectory;
use super::kv_device::KvDevice;
use crate::base::{Error, Result};
use crate::io::{Access, DeviceUsage, DirEntry, File, FileSpace, Lock, Mapping, ProcessorTime, Punched, Storage};

/// What the path of a device begins with.
const PREFIX: &str = "kv-device:";

/// The path of the directory of a device.
pub fn device_path(device: &dyn KvDevice) -> PathBuf {
    PathBuf::from(format!("{PREFIX}{:016x}", device.identity()))
}

/// True for the path of a device, and of what is on it.
pub fn is_device_path(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.starts_with(PREFIX))
}

/// A storage, and a device.
pub struct WithDevice {
    storage: Arc<dyn Storage>,
    directory: Arc<KvDirectory>,
}

impl WithDevice {
    /// Adds a device to a storage, with its block side, if it has one.
    ///
    /// # Errors
    /// [`Error::Io`] if what lies on the block side cannot be counted.
    pub fn new(storage: Arc<dyn Storage>, device: Arc<dyn KvDevice>) -> Result<WithDevice> {
        let storage = match device.block_side() {
            Some(side) => Arc::new(BlockStorage::new(storage, side)?),
            None => storage,
        };
        let path = device_path(&*device);
        Ok(WithDevice { storage, directory: KvDirectory::new(device, path) })
    }

    fn is_there(&self, path: &Path) -> bool {
        path.starts_with(self.directory.path())
    }
}

fn unsupported<T>(path: &Path, operation: &'static str) -> Result<T> {
    Err(Error::io(path, operation, std::io::ErrorKind::Unsupported.into()))
}

impl Storage for WithDevice {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        if self.is_there(path) { self.directory.create(path) } else { self.storage.create(path, access) }
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        if self.is_there(path) { self.directory.open(path) } else { self.storage.open(path) }
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        if self.is_there(path) { self.directory.open(path) } else { self.storage.open_read(path, access) }
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        if self.is_there(path) { self.directory.file_len(path) } else { self.storage.file_len(path) }
    }

    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        if self.is_there(path) { Ok(None) } else { self.storage.file_space(path) }
    }

    fn file_system_bytes(&self, dir: &Path) -> u64 {
        if self.is_there(dir) { self.directory.capacity_bytes() } else { self.storage.file_system_bytes(dir) }
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        if self.is_there(dir) { self.directory.free_bytes() } else { self.storage.free_bytes(dir) }
    }

    fn available_memory(&self) -> u64 {
        self.storage.available_memory()
    }

    fn processor_time(&self) -> Option<ProcessorTime> {
        self.storage.processor_time()
    }

    fn device_usage(&self, dir: &Path) -> Option<DeviceUsage> {
        if self.is_there(dir) { None } else { self.storage.device_usage(dir) }
    }

    fn open_files_limit(&self) -> usize {
        self.storage.open_files_limit()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        if self.is_there(path) { self.directory.exists(path) } else { self.storage.exists(path) }
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        if self.is_there(path) { Ok(()) } else { self.storage.create_dir_all(path) }
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        if self.is_there(path) { self.directory.list() } else { self.storage.list(path) }
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        match [from, to].map(|path| self.is_there(path)) {
            [true, true] => self.directory.rename(from, to),
            [false, false] => self.storage.rename(from, to),
            _ => unsupported(from, "rename"),
        }
    }

    fn remove(&self, path: &Path) -> Result<()> {
        if self.is_there(path) { self.directory.remove(path) } else { self.storage.remove(path) }
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        if self.is_there(path) { unsupported(path, "remove directory") } else { self.storage.remove_dir(path) }
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        let is_on_device = [from, to].iter().any(|path| self.is_there(path));
        if is_on_device { Ok(false) } else { self.storage.link(from, to) }
    }

    fn links(&self, path: &Path) -> Result<u64> {
        if self.is_there(path) { Ok(1) } else { self.storage.links(path) }
    }

    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        if self.is_there(path) { Ok(Punched::Unsupported) } else { self.storage.punch(path, offset, len) }
    }

    fn first_data(&self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        if self.is_there(path) { Ok(Some((from, to))) } else { self.storage.first_data(path, from, to) }
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if self.is_there(path) { Ok(path.to_owned()) } else { self.storage.absolute(path) }
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        if self.is_there(path) { Ok(path.to_owned()) } else { self.storage.real_path(path) }
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if self.is_there(path) { self.directory.sync(path) } else { self.storage.sync_dir(path) }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        if self.is_there(path) { self.directory.lock(path, false) } else { self.storage.lock(path) }
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        if self.is_there(path) { self.directory.lock(path, true) } else { self.storage.lock_shared(path) }
    }

    fn unique_number(&self) -> Result<u64> {
        self.storage.unique_number()
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        if self.is_there(path) { Ok(None) } else { self.storage.map(path, len) }
    }

    fn remove_mapped(&self, path: &Path) -> Result<()> {
        if self.is_there(path) { Ok(()) } else { self.storage.remove_mapped(path) }
    }
}
