//! The advisory lock on a file, between processes and within this one.
//!
//! The kernel's lock belongs to an open file, so it already excludes a second opener in this process. Network file systems
//! may turn it into a lock that belongs to the process, so a table of this process's locks is kept beside it.
//!
//! Called by [`OsStorage`](super::os::OsStorage).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::{Errno, retry_on_intr};

use super::storage::Lock;
use crate::base::{Error, Result};

/// Files that this process has locked, by device and inode: the number of holders of a shared lock, or 0 for an exclusive
/// one.
static LOCKED_HERE: parking_lot::Mutex<BTreeMap<(u64, u64), usize>> = parking_lot::Mutex::new(BTreeMap::new());

pub(super) struct OsLock {
    file: fs::File,
    identity: (u64, u64),
}

impl OsLock {
    /// Takes the exclusive lock; the file is created if it is missing.
    pub(super) fn exclusive(path: &Path) -> Result<OsLock> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        OsLock::take(path, &options, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the shared lock on an existing file.
    pub(super) fn shared(path: &Path) -> Result<OsLock> {
        OsLock::take(path, fs::OpenOptions::new().read(true), FlockOperation::NonBlockingLockShared)
    }

    fn take(path: &Path, options: &fs::OpenOptions, operation: FlockOperation) -> Result<OsLock> {
        let failed = |error| Error::io(path, "lock", error);
        let file = options.open(path).map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let identity = (metadata.dev(), metadata.ino());
        let shared = operation == FlockOperation::NonBlockingLockShared;
        let mut locked_here = LOCKED_HERE.lock();
        let holders = locked_here.get(&identity).copied();
        if holders.is_some_and(|holders| !shared || holders == 0) {
            return Err(Error::Locked { path: path.to_owned() });
        }
        match retry_on_intr(|| rustix::fs::flock(&file, operation)) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Err(Error::Locked { path: path.to_owned() }),
            Err(error) => return Err(failed(error.into())),
        }
        locked_here.insert(identity, if shared { holders.unwrap_or_default() + 1 } else { 0 });
        Ok(OsLock { file, identity })
    }
}

impl Lock for OsLock {}

impl Drop for OsLock {
    fn drop(&mut self) {
        let mut locked_here = LOCKED_HERE.lock();
        // If this fails, closing the file releases the lock.
        let _ = rustix::fs::flock(&self.file, FlockOperation::Unlock);
        match locked_here.get_mut(&self.identity) {
            Some(holders) if *holders > 1 => *holders -= 1,
            _ => drop(locked_here.remove(&self.identity)),
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_lock_alone_excludes_a_second_open_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let first = OsLock::exclusive(&path).unwrap();
        let stranger = fs::File::open(&path).unwrap();
        let answer = rustix::fs::flock(&stranger, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(answer, Err(Errno::WOULDBLOCK));
        drop(first);
        rustix::fs::flock(&stranger, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(matches!(OsLock::exclusive(&path), Err(Error::Locked { .. })));
    }

    #[test]
    fn the_table_of_this_process_alone_excludes_a_second_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("LOCK");
        let metadata = fs::File::create(&path).unwrap().metadata().unwrap();
        let identity = (metadata.dev(), metadata.ino());
        LOCKED_HERE.lock().insert(identity, 0);
        assert!(matches!(OsLock::exclusive(&path), Err(Error::Locked { .. })));
        LOCKED_HERE.lock().remove(&identity);
        OsLock::exclusive(&path).unwrap();
    }
}
