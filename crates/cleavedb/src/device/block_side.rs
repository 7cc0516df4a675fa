//! The block side of a device: a directory of ordinary files, whose reads and writes take their time from the same medium as the pairs
//! of the key-value side. It can be the directory of the slow tier.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::Result;
use crate::io::File;

/// What takes time: a read or a write returns once the device would have done it.
pub(crate) trait Medium: Send + Sync {
    fn read(&self, bytes: u64);
    fn write(&self, bytes: u64);
}

/// The block side of a device.
#[derive(Clone)]
pub struct BlockSide {
    dir: PathBuf,
    medium: Arc<dyn Medium>,
    capacity_bytes: u64,
}

impl BlockSide {
    pub(crate) fn new(dir: PathBuf, medium: Arc<dyn Medium>, capacity_bytes: u64) -> BlockSide {
        BlockSide { dir, medium, capacity_bytes }
    }

    /// The directory: an open of a database with this device waits for the device where it reads and writes files there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes of the block side; nothing keeps files from taking more.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.dir)
    }

    /// The file, with the time that the device takes.
    pub(crate) fn timed(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(BlockFile { file, medium: self.medium.clone() })
    }
}

/// A file on the block side.
struct BlockFile {
    file: Arc<dyn File>,
    medium: Arc<dyn Medium>,
}

impl BlockFile {
    fn read(&self, count: Result<usize>) -> Result<usize> {
        count.inspect(|count| self.medium.read(*count as u64))
    }
}

impl File for BlockFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(self.file.read_at(buffer, offset))
    }

    fn read_polled(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(self.file.read_polled(buffer, offset))
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.file.prefetch(offset, len);
    }

    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        let is_read = self.file.read_or_prefetch(buffer, offset);
        if is_read {
            self.medium.read(buffer.len() as u64);
        }
        is_read
    }

    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(self.file.read_prefetched(buffer, offset))
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.file.read_ahead(offset, len);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(bytes, offset)?;
        self.medium.write(bytes.len() as u64);
        Ok(())
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.file.write_back(offset, len);
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        self.file.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }
}
