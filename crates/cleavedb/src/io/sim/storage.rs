//! The simulated disk as [`Storage`]: each call is a yield point of the simulation, checks that the machine is on, and
//! then changes the state under its lock.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::directory::InodeNumber;
use super::state::State;
use super::{Phase, SimDisk, SyncPoint};
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result};
use crate::io::aligned::assert_aligned;
use crate::io::storage::{Access, DeviceUsage, DirEntry, File, FileSpace, Lock, Mapping, Punched, Storage};
use crate::sched::clock::now;
use crate::sched::sim::yield_point;
use crate::sched::thread::sleep;

/// How a file was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    ReadOnly(Access),
    Buffered,
    Direct,
}

/// Lets other threads run, for this time.
fn wait(time: Duration) {
    if time.is_zero() { yield_point() } else { sleep(time) }
}

impl SimDisk {
    /// Lets other threads run, for as long as an operation on this path takes.
    fn take_time(&self, path: &Path) {
        let latency = self.begin_operation(path);
        wait(latency);
    }

    /// An operation on this path begins; returns the time that it takes.
    fn begin_operation(&self, path: &Path) -> Duration {
        let begun = now();
        self.state().begin_operation(path, begun)
    }

    /// Runs one operation on the state.
    fn run_operation<T>(
        &self,
        path: &Path,
        operation: &'static str,
        f: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let latency = self.begin_operation(path);
        self.run_operation_in(latency, path, operation, f)
    }

    /// As `run_operation`, of which this time is left.
    fn run_operation_in<T>(
        &self,
        time: Duration,
        path: &Path,
        operation: &'static str,
        f: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        wait(time);
        let mut state = self.state();
        state.check_machine_is_on(path, operation)?;
        f(&mut state)
    }

    /// Runs a sync between two calls of the hook. The second yield lets other threads run before the call returns.
    fn sync_with_hook(&self, path: &Path, is_dir: bool, sync: impl FnOnce(&mut State) -> Result<()>) -> Result<()> {
        self.take_time(path);
        self.state().check_machine_is_on(path, "sync")?;
        self.call_hook(&SyncPoint { path, is_dir, phase: Phase::Before });
        {
            let mut state = self.state();
            state.check_machine_is_on(path, "sync")?;
            sync(&mut state)?;
        }
        self.call_hook(&SyncPoint { path, is_dir, phase: Phase::After });
        yield_point();
        Ok(())
    }

    fn handle(&self, state: &mut State, path: &Path, inode: InodeNumber, mode: Mode) -> Arc<dyn File> {
        state.add_handle(inode);
        let in_flight = Mutex::default();
        Arc::new(SimFile { disk: self.clone(), path: path.to_owned(), inode, mode, in_flight })
    }
}

impl Storage for SimDisk {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        let mode = match access {
            Access::Buffered => Mode::Buffered,
            Access::Direct => Mode::Direct,
        };
        self.run_operation(path, "create", |state| {
            let inode = state.create(path)?;
            Ok(self.handle(state, path, inode, mode))
        })
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        self.run_operation(path, "open", |state| {
            let inode = state.find_or_fail(path, "open")?;
            Ok(self.handle(state, path, inode, Mode::Buffered))
        })
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.run_operation(path, "open", |state| {
            state.check_open(path)?;
            let inode = state.find_or_fail(path, "open")?;
            Ok(self.handle(state, path, inode, Mode::ReadOnly(access)))
        })
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        self.run_operation(path, "measure", |state| Ok(state.find(path).map(|inode| state.inode(inode).len())))
    }

    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        self.run_operation(path, "measure", |state| {
            let number = state.find_or_fail(path, "measure")?;
            Ok(Some(FileSpace { number, bytes: state.used_by(number) }))
        })
    }

    fn free_bytes(&self, directory: &Path) -> u64 {
        self.state().free_in(directory)
    }

    fn available_memory(&self) -> u64 {
        self.state().available_memory
    }

    fn device_usage(&self, dir: &Path) -> Option<DeviceUsage> {
        let at = now();
        self.state().device_usage(dir, at)
    }

    fn open_files_limit(&self) -> usize {
        1 << 20
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.run_operation(path, "look for", |state| Ok(state.exists(path)))
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.run_operation(path, "create directory", |state| state.create_dir_all(path))
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        self.run_operation(path, "list", |state| state.list(path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.run_operation(from, "rename", |state| state.rename(from, to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.run_operation(path, "remove", |state| state.remove(path))
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.run_operation(path, "remove directory", |state| state.remove_dir(path))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        self.run_operation(to, "link", |state| state.link(from, to))
    }

    fn links(&self, path: &Path) -> Result<u64> {
        self.run_operation(path, "count the links of", |state| state.links(path))
    }

    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        self.run_operation(path, "punch", |state| state.punch(path, offset, len))
    }

    fn first_data(&self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        self.run_operation(path, "look for holes", |state| state.first_data(path, from, to))
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        Ok(Path::new("/").join(path))
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.sync_with_hook(path, true, |state| state.sync_dir(path))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.run_operation(path, "lock", |state| state.lock(path))?;
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        self.run_operation(path, "lock", |state| state.lock_shared(path))?;
        Ok(Box::new(SimLock { disk: self.clone(), path: path.to_owned() }))
    }

    fn unique_number(&self) -> Result<u64> {
        self.run_operation(Path::new("/"), "draw a number", |state| Ok(state.unique_number()))
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        self.run_operation(path, "map", |state| {
            let Some(inode) = state.map(path, len)? else {
                return Ok(None);
            };
            state.add_handle(inode);
            let mapping: Arc<dyn Mapping> = Arc::new(SimMapping { disk: self.clone(), inode, len });
            Ok(Some(mapping))
        })
    }

    fn remove_mapped(&self, path: &Path) -> Result<()> {
        self.run_operation(path, "remove", |state| if state.find(path).is_some() { state.remove(path) } else { Ok(()) })
    }
}

struct SimFile {
    disk: SimDisk,
    path: PathBuf,
    inode: InodeNumber,
    mode: Mode,
    /// When the prefetches of these offsets end.
    in_flight: Mutex<BTreeMap<u64, Duration>>,
}

impl SimFile {
    /// Reads of a file that was created for direct writes go through the page cache.
    fn note_access(&self, state: &mut State) {
        let is_direct = |mode| matches!(mode, Mode::ReadOnly(Access::Direct) | Mode::Direct);
        if !is_direct(self.mode) && !state.buffered.contains(&self.path) {
            state.buffered.insert(self.path.clone());
        }
    }

    /// A read of which this time is left.
    fn read_in(&self, time: Duration, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.disk.run_operation_in(time, &self.path, "read", |state| {
            self.note_access(state);
            state.read(self.inode, &self.path, buffer, offset)
        })
    }

    fn writable(&self, operation: &'static str) -> Result<()> {
        match self.mode {
            Mode::ReadOnly(_) => Err(Error::io(&self.path, operation, io::Error::from(rustix::io::Errno::BADF))),
            Mode::Buffered | Mode::Direct => Ok(()),
        }
    }
}

impl File for SimFile {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let latency = self.disk.begin_operation(&self.path);
        self.read_in(latency, buffer, offset)
    }

    fn prefetch(&self, offset: u64, _len: u64) {
        let ends = now() + self.disk.begin_operation(&self.path);
        self.in_flight.lock().insert(offset, ends);
    }

    /// Every other page is cached, so that callers meet both.
    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        let is_cached = (offset / BLOCK_IO_BYTES as u64).is_multiple_of(2);
        if !is_cached {
            self.prefetch(offset, buffer.len() as u64);
            return false;
        }
        self.read_in(Duration::ZERO, buffer, offset).is_ok_and(|count| count == buffer.len())
    }

    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let prefetched = self.in_flight.lock().remove(&offset);
        let ends = prefetched.unwrap_or_else(|| now() + self.disk.begin_operation(&self.path));
        self.read_in(ends.saturating_sub(now()), buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if self.mode == Mode::Direct {
            assert_aligned(bytes, offset);
        }
        self.writable("write")?;
        self.disk.run_operation(&self.path, "write", |state| {
            self.note_access(state);
            state.direct_writes += u64::from(self.mode == Mode::Direct);
            state.write(self.inode, &self.path, bytes, offset)
        })
    }

    fn sync(&self) -> Result<()> {
        self.disk.sync_with_hook(&self.path, false, |state| state.sync(self.inode, &self.path))
    }

    fn len(&self) -> Result<u64> {
        self.disk.run_operation(&self.path, "measure", |state| Ok(state.inode(self.inode).len()))
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        self.writable("allocate")?;
        self.disk.run_operation(&self.path, "allocate", |state| state.allocate(self.inode, &self.path, len))?;
        Ok(true)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.writable("truncate")?;
        self.disk.run_operation(&self.path, "truncate", |state| state.truncate(self.inode, &self.path, len))
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        self.disk.state().drop_handle(self.inode);
    }
}

struct SimMapping {
    disk: SimDisk,
    inode: InodeNumber,
    len: usize,
}

impl SimMapping {
    fn check(&self, offset: usize, count: usize) {
        let end = offset.checked_add(count);
        let len = self.len;
        assert!(end.is_some_and(|end| end <= len), "{count} bytes at {offset} do not fit a mapping of {len} bytes");
    }
}

impl Mapping for SimMapping {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        yield_point();
        let mut state = self.disk.state();
        // A machine that is off has lost its memory.
        if !state.halted {
            state.write_mapped(self.inode, bytes, offset as u64);
        }
    }

    fn read(&self, offset: usize, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        yield_point();
        self.disk.state().inode(self.inode).content().read(buffer, offset as u64);
    }
}

impl Drop for SimMapping {
    fn drop(&mut self) {
        self.disk.state().drop_handle(self.inode);
    }
}

struct SimLock {
    disk: SimDisk,
    path: PathBuf,
}

impl Lock for SimLock {}

impl Drop for SimLock {
    fn drop(&mut self) {
        self.disk.state().unlock(&self.path);
    }
}
