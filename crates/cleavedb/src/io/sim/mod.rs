//! A disk in memory with a model of power loss: unsynced bytes may be present, missing, torn or reordered; names become
//! durable only when their directory is synced; a failed sync loses the bytes it should have written.
//!
//! [`SimDisk::process_crash`] and [`SimDisk::power_loss`] make images at any moment, also from a hook at each sync. An image
//! is a disk of its own that a test opens the engine on. Everything is deterministic: a disk used by one thread at a time,
//! as in a simulation, behaves the same in every run.

mod storage;
mod state;
mod images;
mod vanish;
mod directory;
mod inode;
mod content;
mod fault;
mod device;

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use self::fault::FaultState;
use self::state::State;

pub use self::fault::Faults;

/// A simulated disk. Clones are handles to the same disk.
#[derive(Clone)]
pub struct SimDisk {
    inner: Arc<SharedState>,
}

struct SharedState {
    /// Never held across a yield point, so a lock outside the simulation is enough.
    state: Mutex<State>,
    hook: Mutex<Option<Hook>>,
}

type Hook = Arc<dyn Fn(&SimDisk, &SyncPoint<'_>) + Send + Sync>;

/// A moment at which something becomes durable.
#[derive(Debug, Clone, Copy)]
pub struct SyncPoint<'a> {
    /// The file or directory.
    pub path: &'a Path,
    /// True for a directory.
    pub is_dir: bool,
    /// Before or after the sync.
    pub phase: Phase,
}

/// The two sides of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is durable yet.
    Before,
    /// The sync succeeded, but has not returned to its caller.
    After,
}

impl SimDisk {
    /// An empty disk without limits or faults.
    pub fn new() -> SimDisk {
        SimDisk::with_state(State::new())
    }

    fn with_state(state: State) -> SimDisk {
        SimDisk { inner: Arc::new(SharedState { state: Mutex::new(state), hook: Mutex::new(None) }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock()
    }

    /// The disk as the next process finds it if this one dies now: all written bytes, synced or not; unsynced ones stay
    /// unsynced. The image has none of this disk's locks, faults and hook.
    pub fn process_crash(&self) -> SimDisk {
        SimDisk::with_state(self.state().after_process_crash())
    }

    /// The disk as it may be after a power loss now. A third of the seeds lose everything that was not synced, a third
    /// keep all but the newest changes (the first lost one may be torn), a third keep some changes and not others. Of
    /// the unsynced operations on the names in a directory, a prefix remains.
    pub fn power_loss(&self, seed: u64) -> SimDisk {
        SimDisk::with_state(self.state().after_power_loss(seed, &|_| true))
    }

    /// The disk after a loss of power of those directories alone that `lose` accepts, as if they lay on disks of their own:
    /// these as after [`power_loss`](SimDisk::power_loss), the others with all that was written.
    pub fn power_loss_of(&self, seed: u64, lose: impl Fn(&Path) -> bool) -> SimDisk {
        SimDisk::with_state(self.state().after_power_loss(seed, &lose))
    }

    /// Turns the machine off: every later call on this disk fails, writes to mappings are discarded, and locks are
    /// released. So the threads of an engine that a test has crashed cannot change anything any more.
    pub fn halt(&self) {
        self.state().halt();
    }

    /// Calls `hook` before and after each sync of a file or directory. It may make images of the disk.
    pub fn on_sync(&self, hook: impl Fn(&SimDisk, &SyncPoint<'_>) + Send + Sync + 'static) {
        *self.inner.hook.lock() = Some(Arc::new(hook));
    }

    /// Removes the hook.
    pub fn clear_on_sync(&self) {
        *self.inner.hook.lock() = None;
    }

    fn call_hook(&self, point: &SyncPoint<'_>) {
        let hook = self.inner.hook.lock().clone();
        if let Some(hook) = hook {
            hook(self, point);
        }
    }

    /// Limits the bytes of all files together, in whole pages; a write beyond the limit fails with `NoSpace`.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.state().capacity = bytes;
    }

    /// Limits the bytes of all files in a directory, as if it were a file system of its own.
    pub fn set_directory_capacity(&self, directory: &Path, bytes: Option<u64>) {
        let capacities = &mut self.state().directory_capacities;
        match bytes {
            Some(bytes) => capacities.insert(directory.to_owned(), bytes),
            None => capacities.remove(directory),
        };
    }

    /// How long each operation on a directory and its files takes, in virtual time; not at all by default.
    pub fn set_latency(&self, directory: &Path, latency: Duration) {
        self.state().devices.entry(directory.to_owned()).or_default().latency = latency;
    }

    /// Decides whether each directory with a latency is on a device that says how busy it is (by default none says so).
    pub fn set_device_usage(&self, is_known: bool) {
        self.state().knows_usage = is_known;
    }

    /// Sets the memory that the system can give to the process; none at first, so that logs bypass the page cache.
    pub fn set_available_memory(&self, bytes: u64) {
        self.state().available_memory = bytes;
    }

    /// Bytes that all files take, in whole pages.
    pub fn used(&self) -> u64 {
        self.state().used()
    }

    /// As [`used`](SimDisk::used), of the files in a directory.
    pub fn used_in(&self, directory: &Path) -> u64 {
        self.state().used_in(directory)
    }

    /// Decides whether files can be mapped (by default they can).
    pub fn set_mapping(&self, can_map: bool) {
        self.state().can_map = can_map;
    }

    /// Decides whether holes can be punched into files (by default they can).
    pub fn set_punching(&self, can_punch: bool) {
        self.state().can_punch = can_punch;
    }

    /// Decides whether a file can have several hard links (by default it can). If not, the disk behaves as if every
    /// directory lay on a device of its own.
    pub fn set_linking(&self, can_link: bool) {
        self.state().can_link = can_link;
    }

    /// Puts a directory on a device of its own: no hard links lead there or from there.
    pub fn set_own_device(&self, directory: &Path) {
        self.state().own_devices.insert(directory.to_owned());
    }

    /// Starts a plan of faults, in place of the previous one.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = FaultState::new(faults);
    }

    /// Ends all faults.
    pub fn clear_faults(&self) {
        self.set_faults(Faults::default());
    }

    /// Number of reads so far.
    pub fn reads(&self) -> u64 {
        self.state().reads
    }

    /// Paths of the files of which bytes were read or written through the page cache so far.
    pub fn buffered(&self) -> BTreeSet<PathBuf> {
        self.state().buffered.clone()
    }

    /// Number of direct writes so far.
    pub fn direct_writes(&self) -> u64 {
        self.state().direct_writes
    }

    /// All files with their lengths, sorted by path.
    pub fn files(&self) -> Vec<(PathBuf, u64)> {
        self.state().files()
    }

    /// The content of a file, without faults; None if it does not exist.
    pub fn read_file(&self, path: &Path) -> Option<Vec<u8>> {
        let state = self.state();
        let inode = state.find(path)?;
        Some(state.inode(inode).content().to_vec())
    }

    /// Puts a file on the disk, replacing an existing one. Its content, name and directories are durable at once.
    pub fn write_file(&self, path: &Path, bytes: &[u8]) {
        self.state().put_file(path, bytes);
    }

    /// Flips one bit of a file (`bit` 0 is the lowest), on the disk and in the page cache, as bit rot does.
    ///
    /// # Panics
    /// If there is no such file or byte.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) {
        let mut state = self.state();
        let Some(inode) = state.find(path) else { panic!("there is no file {} to damage", path.display()) };
        state.flip_bit(inode, offset, bit);
    }
}

impl Default for SimDisk {
    fn default() -> SimDisk {
        SimDisk::new()
    }
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk").field("files", &self.files()).finish()
    }
}

#[cfg(test)]
#[path = "sim_test.rs"]
mod tests;
#[cfg(test)]
#[path = "times_test.rs"]
mod times_test;
