//! Locks within this process, on what has no file: a KV device that two databases were given.

use std::collections::BTreeMap;
use std::path::Path;

use super::storage::Lock;
use crate::base::{Error, Result};

/// What is locked, by its address: the number of holders of a shared lock, or 0 for an exclusive one.
static LOCKED: parking_lot::Mutex<BTreeMap<usize, usize>> = parking_lot::Mutex::new(BTreeMap::new());

/// The lock on what lies at an address.
pub struct ProcessLock(usize);

impl ProcessLock {
    /// Takes it; `path` is for the error.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is held, unless all holders share it.
    pub fn take(address: usize, shared: bool, path: &Path) -> Result<ProcessLock> {
        let mut locked = LOCKED.lock();
        let holders = locked.get(&address).copied();
        if holders.is_some_and(|holders| !shared || holders == 0) {
            return Err(Error::Locked { path: path.to_owned() });
        }
        locked.insert(address, if shared { holders.unwrap_or_default() + 1 } else { 0 });
        Ok(ProcessLock(address))
    }
}

impl Lock for ProcessLock {}

impl Drop for ProcessLock {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock();
        match locked.get_mut(&self.0) {
            Some(holders) if *holders > 1 => *holders -= 1,
            _ => drop(locked.remove(&self.0)),
        }
    }
}
