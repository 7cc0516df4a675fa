//! An emulated SSD with two interfaces, durable in files: a block side, and a key-value side with a small LSM tree of its own. For
//! machines without such a device, for tests, and for measurements: it takes the time that a device would take.
//!
//! What it promises is what a device promises ([`KvDevice`]): a pair is there as a whole or not, survives the process once it is
//! stored, and loss of power once it is synced. A failure to write or sync its files makes it fail for good, until it is opened again;
//! a full file system under it is a full device.

mod parameters;
mod timing;
mod pair_log;
mod run;
mod lsm;
mod merging;
mod files;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use self::lsm::Lsm;
use self::timing::Timing;
use super::block_side::BlockSide;
use super::kv_device::{KvDevice, KvPair, KvTraffic, KvUsage};
use crate::base::{Error, Result};
use crate::io::{Lock, OsStorage, Storage};
use crate::sched::sync::{Mutex, MutexGuard};

pub use self::parameters::SsdParameters;

/// The directory of the block side, within that of the device.
const BLOCK_DIR: &str = "block";
/// The longest value.
const VALUE_BYTES_MAX: usize = 1 << 20;
/// The longest key.
const KEY_BYTES_MAX: usize = 255;

/// The emulated device.
pub struct EmulatedSsd {
    parameters: SsdParameters,
    identity: u64,
    block_side: BlockSide,
    timing: Arc<Timing>,
    lsm: Mutex<Lsm>,
    /// Bytes of all values, to be read while a command is carried out.
    used: AtomicU64,
    /// The first failure. The device does nothing after it.
    failed: Mutex<Option<Error>>,
    commands: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
    _lock: Box<dyn Lock>,
}

impl EmulatedSsd {
    /// Opens the device whose files lie in a directory, or makes one there.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is open elsewhere, [`Error::Corruption`] if its files are damaged, [`Error::Io`].
    pub fn open(dir: impl AsRef<Path>, parameters: SsdParameters) -> Result<Arc<EmulatedSsd>> {
        EmulatedSsd::open_on(Arc::new(OsStorage::new()), dir.as_ref(), parameters)
    }

    /// As [`open`](EmulatedSsd::open), on any storage.
    pub(crate) fn open_on(
        storage: Arc<dyn Storage>,
        dir: &Path,
        parameters: SsdParameters,
    ) -> Result<Arc<EmulatedSsd>> {
        parameters.check()?;
        let dir = storage.absolute(dir)?;
        storage.create_dir_all(&dir)?;
        let lock = storage.lock(&dir.join(files::LOCK))?;
        let timing = Arc::new(Timing::new(parameters.clone()));
        let block_bytes = parameters.capacity_bytes - parameters.kv_bytes();
        let block_side = BlockSide::new(dir.join(BLOCK_DIR), timing.clone(), block_bytes);
        let lsm = Lsm::open(storage, dir, timing.clone(), parameters.memtable_bytes)?;
        Ok(Arc::new(EmulatedSsd {
            identity: lsm.identity(),
            parameters,
            block_side,
            timing,
            used: AtomicU64::new(lsm.used_bytes()),
            lsm: Mutex::new(lsm),
            failed: Mutex::default(),
            commands: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            _lock: lock,
        }))
    }

    /// Begins a command that brings these bytes.
    fn begin(&self, sent: usize) -> io::Result<MutexGuard<'_, Lsm>> {
        self.commands.fetch_add(1, Ordering::Relaxed);
        self.sent.fetch_add(sent as u64, Ordering::Relaxed);
        self.timing.process(sent);
        Ok(self.lsm.lock())
    }

    /// Begins a command that changes something. After one has failed there are no others until the device is opened again, but
    /// what it holds is read.
    fn begin_change(&self, sent: usize) -> io::Result<MutexGuard<'_, Lsm>> {
        let lsm = self.begin(sent)?;
        match &*self.failed.lock() {
            Some(error) => Err(io::Error::other(format!("the device has failed before: {error}"))),
            None => Ok(lsm),
        }
    }

    /// The result of a command that only reads. It may succeed when it is tried again.
    fn answer<T>(&self, result: Result<T>, received: impl FnOnce(&T) -> usize) -> io::Result<T> {
        let value = result.map_err(|error| io::Error::other(error.to_string()))?;
        let bytes = received(&value);
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.timing.process_bytes(bytes);
        Ok(value)
    }

    /// The result of a command that changes something. Where its file system has no room, nothing was done, and it is as if the
    /// device itself were full.
    fn end(&self, result: Result<()>) -> io::Result<()> {
        result.map_err(|error| match error {
            Error::NoSpace { .. } => io::ErrorKind::StorageFull.into(),
            error => {
                self.failed.lock().get_or_insert_with(|| error.clone());
                io::Error::other(error.to_string())
            }
        })
    }
}

fn invalid(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

impl KvDevice for EmulatedSsd {
    fn identity(&self) -> u64 {
        self.identity
    }

    fn value_bytes_max(&self) -> usize {
        VALUE_BYTES_MAX
    }

    fn store(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) || value.len() > VALUE_BYTES_MAX {
            return Err(invalid(format!("a key of {} bytes with a value of {}", key.len(), value.len())));
        }
        let mut lsm = self.begin_change(key.len() + value.len())?;
        let replaced = lsm.value_bytes_of(key).unwrap_or_default();
        if lsm.used_bytes() - replaced + value.len() as u64 > self.parameters.kv_bytes() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let stored = lsm.put(key, Some(value));
        self.used.store(lsm.used_bytes(), Ordering::Relaxed);
        self.end(stored)
    }

    fn retrieve(&self, key: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let lsm = self.begin(key.len())?;
        let found = lsm.get(key);
        self.answer(found, |value| value.as_ref().map_or(0, Vec::len))
    }

    fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let mut lsm = self.begin_change(key.len())?;
        if lsm.value_bytes_of(key).is_none() {
            return Ok(false);
        }
        let deleted = lsm.put(key, None);
        self.used.store(lsm.used_bytes(), Ordering::Relaxed);
        self.end(deleted).map(|()| true)
    }

    fn exist(&self, key: &[u8]) -> io::Result<bool> {
        Ok(self.begin(key.len())?.value_bytes_of(key).is_some())
    }

    fn list(&self, see: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let lsm = self.begin(0)?;
        let mut bytes = 0;
        lsm.keys(&mut |key| {
            bytes += key.len();
            see(key);
        });
        self.answer(Ok(()), |()| bytes)
    }

    fn scan(&self, from: &[u8], to: &[u8], chunk_bytes: usize) -> io::Result<Option<Vec<KvPair>>> {
        let lsm = self.begin(from.len() + to.len())?;
        let chunk = chunk_bytes.min(self.parameters.dma_bytes);
        let pairs = lsm.scan(from, to, chunk);
        self.answer(pairs, |pairs| pairs.iter().map(|(key, value)| key.len() + value.len()).sum()).map(Some)
    }

    fn sync(&self) -> io::Result<()> {
        let log = self.begin_change(0)?.log_file();
        // Other commands go on. Whatever leaves this log meanwhile is durable elsewhere first.
        let synced = log.sync();
        self.end(synced)
    }

    fn reset(&self) -> io::Result<()> {
        let mut lsm = self.begin_change(0)?;
        let cleared = lsm.reset();
        self.used.store(lsm.used_bytes(), Ordering::Relaxed);
        self.end(cleared)
    }

    fn usage(&self) -> KvUsage {
        KvUsage { capacity_bytes: self.parameters.kv_bytes(), used_bytes: self.used.load(Ordering::Relaxed) }
    }

    fn block_side(&self) -> Option<BlockSide> {
        Some(self.block_side.clone())
    }

    fn traffic(&self) -> KvTraffic {
        let (media_bytes_written, media_bytes_read) = self.timing.media_bytes();
        let (block_bytes_sent, block_bytes_received) = self.block_side.link_bytes();
        KvTraffic {
            commands: self.commands.load(Ordering::Relaxed),
            host_bytes_sent: self.sent.load(Ordering::Relaxed) + block_bytes_sent,
            host_bytes_received: self.received.load(Ordering::Relaxed) + block_bytes_received,
            block_bytes_sent,
            block_bytes_received,
            media_bytes_written,
            media_bytes_read,
        }
    }
}

#[cfg(test)]
#[path = "emulated_test.rs"]
mod tests;
