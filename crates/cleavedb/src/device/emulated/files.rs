//! The names of an emulated device's files, and the file that says which of them are in force.
//!
//! `CURRENT`: `"cleavedb ssd 1"`, identity, next number, number of the log, count of runs and their numbers, oldest first (all `u64`,
//! little-endian), CRC-32C of all that. It is replaced by renaming. `docs/formats/device.md`.

use std::path::{Path, PathBuf};

use crate::base::{Error, Result};
use crate::io::{Access, Storage, read_whole};

/// Locked while the device is open.
pub(super) const LOCK: &str = "LOCK";
/// Says which files are in force.
const CURRENT: &str = "CURRENT";
/// Becomes [`CURRENT`] by renaming.
const CURRENT_NEW: &str = "CURRENT.new";
const MAGIC: &[u8; 14] = b"cleavedb ssd 1";

/// Which files are in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Current {
    pub identity: u64,
    pub next_number: u64,
    pub log: u64,
    /// Oldest first.
    pub runs: Vec<u64>,
}

/// The path of a log.
pub(super) fn log_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.pairs"))
}

/// The path of a run.
pub(super) fn run_path(dir: &Path, number: u64) -> PathBuf {
    dir.join(format!("{number:08}.run"))
}

impl Current {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.identity, self.next_number, self.log, self.runs.len() as u64].iter().chain(&self.runs) {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(crc32c::crc32c(&bytes).to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Current> {
        let (rest, crc) = bytes.split_last_chunk::<4>()?;
        let (magic, numbers) = rest.split_first_chunk::<14>()?;
        if magic != MAGIC || crc32c::crc32c(rest) != u32::from_le_bytes(*crc) {
            return None;
        }
        let mut numbers = numbers.chunks_exact(8).map(|number| number.try_into().map_or(0, u64::from_le_bytes));
        let mut next = || numbers.next();
        let (identity, next_number, log, count) = (next()?, next()?, next()?, next()?);
        let runs: Vec<u64> = numbers.collect();
        (runs.len() as u64 == count).then_some(Current { identity, next_number, log, runs })
    }

    /// Reads it; `None` where there is none.
    pub fn read(storage: &dyn Storage, dir: &Path) -> Result<Option<Current>> {
        let path = dir.join(CURRENT);
        if !storage.exists(&path)? {
            return Ok(None);
        }
        let damaged = || Error::corruption(&path, 0, "the file that names the files of this device is damaged");
        Current::decode(&read_whole(storage, &path)?).ok_or_else(damaged).map(Some)
    }

    /// Puts it in force, durably.
    pub fn write(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let temporary = dir.join(CURRENT_NEW);
        if storage.exists(&temporary)? {
            storage.remove(&temporary)?;
        }
        let file = storage.create(&temporary, Access::Buffered)?;
        file.write_at(&self.encode(), 0)?;
        file.sync()?;
        drop(file);
        storage.rename(&temporary, &dir.join(CURRENT))?;
        storage.sync_dir(dir)
    }

    /// Removes logs and runs that are not in force: a crash left them.
    pub fn remove_others(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let runs = self.runs.iter().map(|run| run_path(dir, *run));
        let known: Vec<PathBuf> = runs.chain([log_path(dir, self.log)]).collect();
        for entry in storage.list(dir)? {
            let path = dir.join(&entry.name);
            if (entry.name.ends_with(".pairs") || entry.name.ends_with(".run")) && !known.contains(&path) {
                storage.remove(&path)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_back_and_damage_to_it_is_found() {
        let current = Current { identity: 0xabc, next_number: 9, log: 8, runs: vec![3, 5] };
        let bytes = current.encode();
        assert_eq!(Current::decode(&bytes), Some(current));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1;
            assert_eq!((Current::decode(&damaged), Current::decode(&bytes[..at])), (None, None), "{at}");
        }
    }
}
