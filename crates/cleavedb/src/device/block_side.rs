//! The block side of a device: a directory of ordinary files, whose reads and writes take their time from the same medium as the pairs
//! of the key-value side, and which take no more space than there is. It can be the directory of the slow tier.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::block_space::{BlockSpace, Claim};
use crate::base::{Error, Result};
use crate::io::File;

/// What takes time: a read or a write returns once the device would have done it.
pub(crate) trait Medium: Send + Sync {
    fn read(&self, bytes: u64);
    fn write(&self, bytes: u64);
}

/// Bytes of files that have crossed the link between host and device.
#[derive(Default)]
struct Link {
    sent: AtomicU64,
    received: AtomicU64,
}

/// The block side of a device.
#[derive(Clone)]
pub struct BlockSide {
    dir: PathBuf,
    medium: Arc<dyn Medium>,
    link: Arc<Link>,
    space: Arc<BlockSpace>,
}

impl BlockSide {
    /// One per device: its clones share the space.
    pub(crate) fn new(dir: PathBuf, medium: Arc<dyn Medium>, capacity_bytes: u64) -> BlockSide {
        BlockSide { dir, medium, link: Arc::default(), space: Arc::new(BlockSpace::new(capacity_bytes)) }
    }

    /// The directory: an open of a database with this device waits for the device where it reads and writes files there.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Bytes that the files of its directory may take, in whole blocks of 4 KiB. A database with this device finds storage full beyond
    /// that. A file with several names counts once.
    pub fn capacity_bytes(&self) -> u64 {
        self.space.capacity_bytes()
    }

    /// Bytes that were written to files of the directory, and read from them, by databases with this device.
    pub(super) fn link_bytes(&self) -> (u64, u64) {
        (self.link.sent.load(Ordering::Relaxed), self.link.received.load(Ordering::Relaxed))
    }

    pub(crate) fn holds(&self, path: &Path) -> bool {
        path.starts_with(&self.dir)
    }

    pub(super) fn space(&self) -> &BlockSpace {
        &self.space
    }
}

/// A file on the block side.
pub(super) struct BlockFile {
    file: Arc<dyn File>,
    medium: Arc<dyn Medium>,
    link: Arc<Link>,
    claim: Arc<Claim>,
    _open: Arc<()>,
}

impl BlockFile {
    /// `file` with the time that the device takes, and its claim to space; `open` says that it is open.
    pub fn new(side: &BlockSide, file: Arc<dyn File>, claim: Arc<Claim>, open: Arc<()>) -> BlockFile {
        BlockFile { file, medium: side.medium.clone(), link: side.link.clone(), claim, _open: open }
    }

    /// Claims the space up to `len`; the end of the file's space before.
    fn claim(&self, len: u64) -> Result<u64> {
        self.claim.extend(len).ok_or_else(|| Error::no_space(self.path()))
    }

    fn read(&self, count: Result<usize>) -> Result<usize> {
        count.inspect(|count| self.receive(*count))
    }

    fn receive(&self, bytes: usize) {
        self.link.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.medium.read(bytes as u64);
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
            self.receive(buffer.len());
        }
        is_read
    }

    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read(self.file.read_prefetched(buffer, offset))
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.file.read_ahead(offset, len);
    }

    /// What a failed write has claimed stays so until the file is cut or removed: other writes may be in flight.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.claim(offset.saturating_add(bytes.len() as u64))?;
        self.file.write_at(bytes, offset)?;
        self.link.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
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
        let before = self.claim(len)?;
        self.file.allocate(len).inspect_err(|_| self.claim.cut(before))
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.claim(len)?;
        self.file.truncate(len)?;
        self.claim.cut(len);
        Ok(())
    }
}
