//! The state of a simulated disk, behind the single lock of [`SimDisk`](super::SimDisk): files, directories, locks, capacity
//! and the plan of faults. No call here blocks or yields, so the lock is never held across a switch of threads.
//!
//! Directories themselves are durable at once, as [`Storage::create_dir_all`](crate::io::Storage::create_dir_all)
//! promises; the names in them are not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::content::{Content, PAGE};
use super::device::Device;
use super::directory::{Directory, InodeNumber, Vanished};
use super::fault::{FaultState, Faults};
use super::inode::{Inode, SECTOR};
use crate::base::{Error, Result};
use crate::io::storage::{DeviceUsage, DirEntry, Punched};
use crate::sched::random::Random;

/// The disk.
#[derive(Clone)]
pub(super) struct State {
    pub(super) inodes: BTreeMap<InodeNumber, Inode>,
    pub(super) directories: BTreeMap<PathBuf, Directory>,
    /// Locked files: the number of holders of a shared lock, or 0 for an exclusive one.
    pub(super) locks: BTreeMap<PathBuf, usize>,
    pub(super) next_inode: InodeNumber,
    /// Position of the last change in the order of all changes of the disk.
    pub(super) order: u64,
    random: Random,
    pub(super) faults: FaultState,
    pub(super) capacity: Option<u64>,
    pub(super) directory_capacities: BTreeMap<PathBuf, u64>,
    /// The devices of directories on which operations take time.
    pub(super) devices: BTreeMap<PathBuf, Device>,
    /// The devices say how busy they are.
    pub(super) knows_usage: bool,
    /// Directories whose disks are gone.
    pub(super) vanished: BTreeMap<PathBuf, Vanished>,
    pub(super) available_memory: u64,
    pub(super) can_map: bool,
    pub(super) can_link: bool,
    pub(super) can_punch: bool,
    /// Directories on devices of their own.
    pub(super) own_devices: BTreeSet<PathBuf>,
    pub(super) halted: bool,
    /// Number of reads so far.
    pub(super) reads: u64,
    pub(super) direct_writes: u64,
    /// Paths of files of which bytes were read or written through the page cache.
    pub(super) buffered: BTreeSet<PathBuf>,
}

impl State {
    pub(super) fn new() -> State {
        State {
            inodes: BTreeMap::new(),
            directories: BTreeMap::from([(PathBuf::new(), Directory::default()), ("/".into(), Directory::default())]),
            locks: BTreeMap::new(),
            next_inode: 0,
            order: 0,
            random: Random::new(0),
            faults: FaultState::new(Faults::default()),
            capacity: None,
            directory_capacities: BTreeMap::new(),
            devices: BTreeMap::new(),
            knows_usage: false,
            vanished: BTreeMap::new(),
            available_memory: 0,
            can_map: true,
            can_link: true,
            can_punch: true,
            own_devices: BTreeSet::new(),
            halted: false,
            reads: 0,
            direct_writes: 0,
            buffered: BTreeSet::new(),
        }
    }

    /// Derived from the inode numbers, which never repeat.
    pub(super) fn unique_number(&mut self) -> u64 {
        self.next_inode += 1;
        Random::new(self.next_inode).draw().max(1)
    }

    /// The device of a directory, or of a file in it.
    fn device_of(&mut self, path: &Path) -> Option<&mut Device> {
        let directory = if self.devices.contains_key(path) { path } else { path.parent()? };
        self.devices.get_mut(directory)
    }

    /// Begins an operation on a path; returns how long it takes.
    pub(super) fn begin_operation(&mut self, path: &Path, now: Duration) -> Duration {
        self.device_of(path).map_or(Duration::ZERO, |device| device.begin(now))
    }

    /// What the device of a directory has done; `None` if it does not say.
    pub(super) fn device_usage(&self, directory: &Path, now: Duration) -> Option<DeviceUsage> {
        let at = self.devices.keys().position(|of| of == directory).filter(|_| self.knows_usage)?;
        Some(self.devices[directory].usage(at as u64, now))
    }

    /// Fails if the machine is off, or the disk of the path is gone.
    pub(super) fn check_machine_is_on(&self, path: &Path, operation: &'static str) -> Result<()> {
        match self.halted {
            true => Err(Error::io(path, operation, io::Error::other("the machine is off"))),
            false => self.check_presence(path, operation),
        }
    }

    /// Turns the machine off: all later calls fail, and locks are released.
    pub(super) fn halt(&mut self) {
        self.halted = true;
        self.locks.clear();
    }

    fn next_order(&mut self) -> u64 {
        self.order += 1;
        self.order
    }

    // Names.

    /// The directory of a path and the name in it.
    fn split(path: &Path) -> Option<(&Path, &str)> {
        Some((path.parent()?, path.file_name()?.to_str()?))
    }

    fn directory_mut(&mut self, path: &Path, operation: &'static str) -> Result<(&mut Directory, String)> {
        let missing = || Error::io(path, operation, io::ErrorKind::NotFound.into());
        let (parent, name) = Self::split(path).ok_or_else(missing)?;
        let directory = self.directories.get_mut(parent).ok_or_else(missing)?;
        Ok((directory, name.to_owned()))
    }

    pub(super) fn find(&self, path: &Path) -> Option<InodeNumber> {
        let (parent, name) = Self::split(path)?;
        self.directories.get(parent)?.names().get(name).copied()
    }

    pub(super) fn find_or_fail(&self, path: &Path, operation: &'static str) -> Result<InodeNumber> {
        self.find(path).ok_or_else(|| Error::io(path, operation, io::ErrorKind::NotFound.into()))
    }

    pub(super) fn exists(&self, path: &Path) -> bool {
        self.find(path).is_some() || self.directories.contains_key(path)
    }

    pub(super) fn create(&mut self, path: &Path) -> Result<InodeNumber> {
        if self.exists(path) {
            return Err(Error::io(path, "create", io::ErrorKind::AlreadyExists.into()));
        }
        self.check_descriptor(path, "create")?;
        self.check_directory(path, "create")?;
        self.link_new(path, Inode::default())
    }

    fn link_new(&mut self, path: &Path, inode: Inode) -> Result<InodeNumber> {
        let (order, number) = (self.next_order(), self.next_inode);
        let (directory, name) = self.directory_mut(path, "create")?;
        directory.link(&name, number, order);
        self.inodes.insert(number, inode);
        self.next_inode += 1;
        Ok(number)
    }

    pub(super) fn create_dir_all(&mut self, path: &Path) -> Result<()> {
        self.check_directory(path, "create directory")?;
        for ancestor in path.ancestors() {
            if self.find(ancestor).is_some() {
                return Err(Error::io(ancestor, "create directory", io::ErrorKind::NotADirectory.into()));
            }
            self.directories.entry(ancestor.to_owned()).or_default();
        }
        Ok(())
    }

    pub(super) fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        let Some(directory) = self.directories.get(path) else {
            return Err(Error::io(path, "list", io::ErrorKind::NotFound.into()));
        };
        let files = directory.names().keys().map(|name| DirEntry { name: name.clone(), is_file: true });
        let below = self.directories.keys().filter(|other| other.parent() == Some(path));
        let below = below.filter_map(|other| other.file_name()?.to_str());
        let mut entries: Vec<DirEntry> =
            files.chain(below.map(|name| DirEntry { name: name.to_owned(), is_file: false })).collect();
        entries.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(entries)
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path) -> Result<()> {
        self.find_or_fail(from, "rename")?;
        if from.parent() != to.parent() {
            return Err(Error::io(from, "rename", io::ErrorKind::CrossesDevices.into()));
        }
        if self.directories.contains_key(to) {
            return Err(Error::io(to, "rename", io::ErrorKind::IsADirectory.into()));
        }
        self.check_directory(from, "rename")?;
        if self.faults.reach(from) && self.faults.rename_lacks_space() {
            return Err(Error::no_space(from));
        }
        let order = self.next_order();
        let (_, to) = self.directory_mut(to, "rename")?;
        let (directory, from) = self.directory_mut(from, "rename")?;
        directory.rename(&from, &to, order);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        self.find_or_fail(path, "remove")?;
        self.check_directory(path, "remove")?;
        let order = self.next_order();
        let (directory, name) = self.directory_mut(path, "remove")?;
        directory.unlink(&name, order);
        Ok(())
    }

    /// Adds a hard link to a file; false if hard links are turned off.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<bool> {
        self.check_presence(from, "link")?;
        let number = self.find_or_fail(from, "link")?;
        if self.exists(to) {
            return Err(Error::io(to, "link", io::ErrorKind::AlreadyExists.into()));
        }
        let own_device = |path: &Path| self.own_devices.get(path.parent()?).cloned();
        if !self.can_link || own_device(from) != own_device(to) {
            return Ok(false);
        }
        self.check_directory(to, "link")?;
        let order = self.next_order();
        let (directory, name) = self.directory_mut(to, "link")?;
        directory.link(&name, number, order);
        Ok(true)
    }

    pub(super) fn links(&self, path: &Path) -> Result<u64> {
        let number = self.find_or_fail(path, "count the links of")?;
        let names = self.directories.values().flat_map(|directory| directory.names().values());
        Ok(names.filter(|inode| **inode == number).count() as u64)
    }

    pub(super) fn punch(&mut self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        let number = self.find_or_fail(path, "punch")?;
        if self.links(path)? > 1 {
            return Ok(Punched::Linked);
        }
        if !self.can_punch {
            return Ok(Punched::Unsupported);
        }
        let order = self.next_order();
        self.inode_mut(number).punch(offset, len, order);
        Ok(Punched::Done)
    }

    pub(super) fn first_data(&mut self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        let number = self.find_or_fail(path, "look for holes")?;
        Ok(self.inode_mut(number).first_data(from, to))
    }

    /// Removes an empty directory, durably at once.
    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(Error::io(path, "remove directory", io::ErrorKind::DirectoryNotEmpty.into()));
        }
        self.check_directory(path, "remove directory")?;
        self.directories.remove(path);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        self.check_descriptor(path, "open")?;
        if self.faults.reach(path) && self.faults.sync_fails() {
            return Err(io_error(path, "sync directory"));
        }
        let Some(directory) = self.directories.get_mut(path) else {
            return Err(Error::io(path, "sync directory", io::ErrorKind::NotFound.into()));
        };
        directory.sync();
        self.forget_unreachable();
        Ok(())
    }

    fn check_directory(&mut self, path: &Path, operation: &'static str) -> Result<()> {
        if self.faults.reach(path) && self.faults.directory_fails() { Err(io_error(path, operation)) } else { Ok(()) }
    }

    pub(super) fn lock(&mut self, path: &Path) -> Result<()> {
        if self.find(path).is_none() {
            self.create(path)?;
        }
        if self.locks.contains_key(path) {
            return Err(Error::Locked { path: path.to_owned() });
        }
        self.locks.insert(path.to_owned(), 0);
        Ok(())
    }

    pub(super) fn lock_shared(&mut self, path: &Path) -> Result<()> {
        self.find_or_fail(path, "lock")?;
        match self.locks.get_mut(path) {
            Some(0) => return Err(Error::Locked { path: path.to_owned() }),
            Some(holders) => *holders += 1,
            None => drop(self.locks.insert(path.to_owned(), 1)),
        }
        Ok(())
    }

    pub(super) fn unlock(&mut self, path: &Path) {
        match self.locks.get_mut(path) {
            Some(holders) if *holders > 1 => *holders -= 1,
            _ => drop(self.locks.remove(path)),
        }
    }

    // Files.

    pub(super) fn inode(&self, number: InodeNumber) -> &Inode {
        self.inodes.get(&number).expect("a file stays in the table while it has a name or a handle")
    }

    fn inode_mut(&mut self, number: InodeNumber) -> &mut Inode {
        self.inodes.get_mut(&number).expect("a file stays in the table while it has a name or a handle")
    }

    pub(super) fn add_handle(&mut self, number: InodeNumber) {
        self.inode_mut(number).handles += 1;
    }

    pub(super) fn drop_handle(&mut self, number: InodeNumber) {
        self.inode_mut(number).handles -= 1;
        if self.inode(number).handles == 0 && !self.directories.values().any(|d| d.reachable().any(|n| n == number)) {
            self.inodes.remove(&number);
        }
    }

    /// Fails an open for reading like a read.
    pub(super) fn check_open(&mut self, path: &Path) -> Result<()> {
        self.check_descriptor(path, "open")?;
        if self.faults.reach(path) && self.faults.read_fails() { Err(io_error(path, "open")) } else { Ok(()) }
    }

    fn check_descriptor(&mut self, path: &Path, operation: &'static str) -> Result<()> {
        match self.faults.descriptor_fails() {
            true => Err(Error::io(path, operation, rustix::io::Errno::MFILE.into())),
            false => Ok(()),
        }
    }

    pub(super) fn read(&mut self, number: InodeNumber, path: &Path, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads += 1;
        self.check_medium(number, path, "read")?;
        if self.faults.reach(path) && self.faults.read_fails() {
            return Err(io_error(path, "read"));
        }
        let count = self.inode(number).content().read(buffer, offset);
        self.device_of(path).into_iter().for_each(|device| device.read_bytes += count as u64);
        Ok(count)
    }

    /// A write that fails or runs out of space may have written some of its sectors.
    pub(super) fn write(&mut self, number: InodeNumber, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
        self.check_medium(number, path, "write")?;
        let space = self.room_for(number).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (reached, result) = if self.faults.reach(path) && self.faults.write_fails() {
            let reached = self.faults.random().below(space as u64 + 1) as usize;
            (reached, Err(io_error(path, "write")))
        } else if space < bytes.len() {
            (space, Err(Error::no_space(path)))
        } else {
            (space, Ok(()))
        };
        let done = if result.is_ok() { reached } else { reached / SECTOR * SECTOR };
        let grows = (offset + done as u64).saturating_sub(self.inode(number).len());
        self.faults.use_space(if done > 0 { grows } else { 0 });
        self.device_of(path).into_iter().for_each(|device| device.written_bytes += done as u64);
        let order = self.next_order();
        self.inode_mut(number).write(&bytes[..done], offset, order);
        result
    }

    pub(super) fn allocate(&mut self, number: InodeNumber, path: &Path, len: u64) -> Result<()> {
        self.check_medium(number, path, "allocate")?;
        if self.faults.reach(path) && self.faults.write_fails() {
            return Err(io_error(path, "allocate"));
        }
        let grows = len.saturating_sub(self.inode(number).len());
        if grows == 0 {
            return Ok(());
        }
        if self.room_for(number) < len {
            return Err(Error::no_space(path));
        }
        self.faults.use_space(grows);
        let order = self.next_order();
        self.inode_mut(number).set_len(len, order);
        Ok(())
    }

    pub(super) fn truncate(&mut self, number: InodeNumber, path: &Path, len: u64) -> Result<()> {
        self.check_medium(number, path, "truncate")?;
        if self.faults.reach(path) && self.faults.write_fails() {
            return Err(io_error(path, "truncate"));
        }
        let order = self.next_order();
        self.inode_mut(number).set_len(len, order);
        Ok(())
    }

    pub(super) fn sync(&mut self, number: InodeNumber, path: &Path) -> Result<()> {
        self.check_medium(number, path, "sync")?;
        let inode = self.inodes.get_mut(&number).expect("a file stays in the table while it has a name or a handle");
        if self.faults.reach(path) && self.faults.sync_fails() {
            inode.sync_failed(self.faults.random());
            return Err(io_error(path, "sync"));
        }
        inode.sync();
        Ok(())
    }

    /// Prepares a file for mapping; None if mapping is turned off.
    pub(super) fn map(&mut self, path: &Path, len: usize) -> Result<Option<InodeNumber>> {
        if !self.can_map {
            return Ok(None);
        }
        let number = match self.find(path) {
            Some(number) => number,
            None => self.create(path)?,
        };
        if self.inode(number).len() != len as u64 {
            self.truncate(number, path, 0)?;
            self.allocate(number, path, len as u64)?;
        }
        Ok(Some(number))
    }

    pub(super) fn write_mapped(&mut self, number: InodeNumber, bytes: &[u8], offset: u64) {
        let inode = self.inodes.get_mut(&number).expect("a file stays in the table while it has a name or a handle");
        inode.write_mapped(bytes, offset, &mut self.random);
    }

    // Space.

    /// Bytes taken by files that have a name or a handle, in whole pages.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<InodeNumber> =
            self.directories.values().flat_map(|directory| directory.names().values().copied()).collect();
        let present = self.inodes.iter().filter(|(number, inode)| inode.handles > 0 || named.contains(number));
        present.map(|(number, _)| self.used_by(*number)).sum()
    }

    /// Bytes taken by a file, in whole pages.
    pub(super) fn used_by(&self, number: InodeNumber) -> u64 {
        let inode = self.inode(number);
        in_pages(inode.len()) - inode.hole_pages() * PAGE as u64
    }

    /// Bytes taken by the files in a directory, in whole pages.
    pub(super) fn used_in(&self, directory: &Path) -> u64 {
        let Some(directory) = self.directories.get(directory) else { return 0 };
        directory.names().values().map(|number| self.used_by(*number)).sum()
    }

    /// Bytes that may still be written in a directory.
    pub(super) fn free_in(&self, directory: &Path) -> u64 {
        let whole = self.capacity.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()));
        let own = self.directory_capacities.get(directory);
        whole.min(own.map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used_in(directory))))
    }

    /// The length to which the file can grow.
    fn room_for(&self, number: InodeNumber) -> u64 {
        let len = self.inode(number).len();
        let by_faults = len.saturating_add(self.faults.space_left());
        if self.capacity.is_none() && self.directory_capacities.is_empty() {
            return by_faults;
        }
        let holds = |directory: &&PathBuf| self.directories[*directory].names().values().any(|other| *other == number);
        let directory = self.directories.keys().find(holds);
        let free = self.free_in(directory.map_or(Path::new(""), |directory| directory));
        by_faults.min(in_pages(len).saturating_add(free / PAGE as u64 * PAGE as u64))
    }

    /// Drops files without a handle that no directory contains or may contain after a power loss.
    pub(super) fn forget_unreachable(&mut self) {
        let reachable: BTreeSet<InodeNumber> = self.directories.values().flat_map(Directory::reachable).collect();
        self.inodes.retain(|number, inode| inode.handles > 0 || reachable.contains(number));
    }

    // For tests: durable at once, without faults.

    pub(super) fn files(&self) -> Vec<(PathBuf, u64)> {
        let mut files = Vec::new();
        for (path, directory) in &self.directories {
            files.extend(directory.names().iter().map(|(name, number)| (path.join(name), self.inode(*number).len())));
        }
        files.sort();
        files
    }

    pub(super) fn put_file(&mut self, path: &Path, bytes: &[u8]) {
        let mut content = Content::default();
        content.write(bytes, 0);
        for ancestor in path.ancestors().skip(1) {
            self.directories.entry(ancestor.to_owned()).or_default();
        }
        let number = self.find(path).unwrap_or(self.next_inode);
        self.next_inode = self.next_inode.max(number + 1);
        self.inodes.entry(number).or_default().replace(content);
        let (directory, name) =
            self.directory_mut(path, "write").expect("the directories of the path were created above");
        directory.put(&name, number);
    }

    pub(super) fn flip_bit(&mut self, number: InodeNumber, offset: u64, bit: u8) {
        let inode = self.inode_mut(number);
        assert!(offset < inode.len(), "offset {offset} lies outside the file of {} bytes", inode.len());
        inode.flip_bit(offset, bit);
    }
}

fn in_pages(len: u64) -> u64 {
    len.next_multiple_of(PAGE as u64)
}

pub(super) fn io_error(path: &Path, operation: &'static str) -> Error {
    Error::io(path, operation, rustix::io::Errno::IO.into())
}
