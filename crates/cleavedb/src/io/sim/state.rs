//! All that a simulated disk holds, behind the one lock of [`SimDisk`](super::SimDisk): files, directories, locks,
//! capacity and the plan of faults. No call here blocks or yields, so the lock is never held across a switch.
//!
//! Directories themselves are durable at once, as [`Storage::create_dir_all`](crate::io::Storage::create_dir_all)
//! promises; what they name is not.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use super::content::{Content, PAGE};
use super::directory::{Directory, InodeNumber};
use super::inode::{Inode, SECTOR, Survival};
use crate::base::{Error, Result};
use crate::io::fault::{FaultState, Faults};
use crate::io::{DirEntry, Punched};
use crate::sched::random::Random;

/// The disk.
#[derive(Clone)]
pub(super) struct State {
    inodes: BTreeMap<InodeNumber, Inode>,
    directories: BTreeMap<PathBuf, Directory>,
    /// Locked files: by how many that share the lock, or by one that does not (0).
    locks: BTreeMap<PathBuf, usize>,
    next_inode: InodeNumber,
    order: u64,
    random: Random,
    pub(super) faults: FaultState,
    pub(super) capacity: Option<u64>,
    pub(super) can_map: bool,
    pub(super) can_link: bool,
    pub(super) can_punch: bool,
    pub(super) halted: bool,
    /// How often a file was read.
    pub(super) reads: u64,
    pub(super) direct_writes: u64,
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
            can_map: true,
            can_link: true,
            can_punch: true,
            halted: false,
            reads: 0,
            direct_writes: 0,
        }
    }

    /// Drawn from the numbers of files, which never come twice.
    pub(super) fn unique_number(&mut self) -> u64 {
        self.next_inode += 1;
        Random::new(self.next_inode).draw().max(1)
    }

    /// Fails if the machine is off.
    pub(super) fn alive(&self, path: &Path, operation: &'static str) -> Result<()> {
        if self.halted { Err(Error::io(path, operation, io::Error::other("the machine is off"))) } else { Ok(()) }
    }

    /// From now on nothing works, and locks are free.
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
        self.descriptor_is_left(path, "create")?;
        self.directory_works(path, "create")?;
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
        self.directory_works(path, "create directory")?;
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
        self.directory_works(from, "rename")?;
        let order = self.next_order();
        let (_, to) = self.directory_mut(to, "rename")?;
        let (directory, from) = self.directory_mut(from, "rename")?;
        directory.rename(&from, &to, order);
        Ok(())
    }

    pub(super) fn remove(&mut self, path: &Path) -> Result<()> {
        self.find_or_fail(path, "remove")?;
        self.directory_works(path, "remove")?;
        let order = self.next_order();
        let (directory, name) = self.directory_mut(path, "remove")?;
        directory.unlink(&name, order);
        Ok(())
    }

    /// One more name for a file; false if the disk plays two devices.
    pub(super) fn link(&mut self, from: &Path, to: &Path) -> Result<bool> {
        let number = self.find_or_fail(from, "link")?;
        if self.exists(to) {
            return Err(Error::io(to, "link", io::ErrorKind::AlreadyExists.into()));
        }
        if !self.can_link {
            return Ok(false);
        }
        self.directory_works(to, "link")?;
        let order = self.next_order();
        let (directory, name) = self.directory_mut(to, "link")?;
        directory.link(&name, number, order);
        Ok(true)
    }

    pub(super) fn punch(&mut self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        let number = self.find_or_fail(path, "punch")?;
        let names = self.directories.values().flat_map(|directory| directory.names().values());
        if names.filter(|inode| **inode == number).count() > 1 {
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

    /// Removes a directory, durably at once; it must be empty.
    pub(super) fn remove_dir(&mut self, path: &Path) -> Result<()> {
        if !self.list(path)?.is_empty() {
            return Err(Error::io(path, "remove directory", io::ErrorKind::DirectoryNotEmpty.into()));
        }
        self.directory_works(path, "remove directory")?;
        self.directories.remove(path);
        Ok(())
    }

    pub(super) fn sync_dir(&mut self, path: &Path) -> Result<()> {
        self.descriptor_is_left(path, "open")?;
        if self.faults.sync_fails() {
            return Err(broken(path, "sync directory"));
        }
        let Some(directory) = self.directories.get_mut(path) else {
            return Err(Error::io(path, "sync directory", io::ErrorKind::NotFound.into()));
        };
        directory.sync();
        self.forget_unreachable();
        Ok(())
    }

    fn directory_works(&mut self, path: &Path, operation: &'static str) -> Result<()> {
        if self.faults.directory_fails() { Err(broken(path, operation)) } else { Ok(()) }
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
        self.inodes.get(&number).expect("a file with a name or a handle is kept")
    }

    fn inode_mut(&mut self, number: InodeNumber) -> &mut Inode {
        self.inodes.get_mut(&number).expect("a file with a name or a handle is kept")
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

    /// An opening for reading fails like a read.
    pub(super) fn opening_works(&mut self, path: &Path) -> Result<()> {
        self.descriptor_is_left(path, "open")?;
        if self.faults.read_fails() { Err(broken(path, "open")) } else { Ok(()) }
    }

    fn descriptor_is_left(&mut self, path: &Path, operation: &'static str) -> Result<()> {
        match self.faults.descriptor_fails() {
            true => Err(Error::io(path, operation, rustix::io::Errno::MFILE.into())),
            false => Ok(()),
        }
    }

    pub(super) fn read(&mut self, number: InodeNumber, path: &Path, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads += 1;
        if self.faults.read_fails() {
            return Err(broken(path, "read"));
        }
        Ok(self.inode(number).content().read(buffer, offset))
    }

    /// A write that fails, or runs out of space, may leave a part of it behind, as in life.
    pub(super) fn write(&mut self, number: InodeNumber, path: &Path, bytes: &[u8], offset: u64) -> Result<()> {
        let space = self.room_for(number).saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (reached, result) = if self.faults.write_fails() {
            let reached = self.faults.random().below(space as u64 + 1) as usize;
            (reached, Err(broken(path, "write")))
        } else if space < bytes.len() {
            (space, Err(Error::NoSpace { path: path.to_owned() }))
        } else {
            (space, Ok(()))
        };
        let done = if result.is_ok() { reached } else { reached / SECTOR * SECTOR };
        let grows = (offset + done as u64).saturating_sub(self.inode(number).len());
        self.faults.use_space(if done > 0 { grows } else { 0 });
        let order = self.next_order();
        self.inode_mut(number).write(&bytes[..done], offset, order);
        result
    }

    pub(super) fn allocate(&mut self, number: InodeNumber, path: &Path, len: u64) -> Result<()> {
        if self.faults.write_fails() {
            return Err(broken(path, "allocate"));
        }
        let grows = len.saturating_sub(self.inode(number).len());
        if grows == 0 {
            return Ok(());
        }
        if self.room_for(number) < len {
            return Err(Error::NoSpace { path: path.to_owned() });
        }
        self.faults.use_space(grows);
        let order = self.next_order();
        self.inode_mut(number).set_len(len, order);
        Ok(())
    }

    pub(super) fn truncate(&mut self, number: InodeNumber, path: &Path, len: u64) -> Result<()> {
        if self.faults.write_fails() {
            return Err(broken(path, "truncate"));
        }
        let order = self.next_order();
        self.inode_mut(number).set_len(len, order);
        Ok(())
    }

    pub(super) fn sync(&mut self, number: InodeNumber, path: &Path) -> Result<()> {
        let inode = self.inodes.get_mut(&number).expect("a file with a name or a handle is kept");
        if self.faults.sync_fails() {
            inode.sync_failed(self.faults.random());
            return Err(broken(path, "sync"));
        }
        inode.sync();
        Ok(())
    }

    /// Makes the file ready to be mapped; None if the disk does not map.
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
        let inode = self.inodes.get_mut(&number).expect("a file with a name or a handle is kept");
        inode.write_mapped(bytes, offset, &mut self.random);
    }

    // Space.

    /// Bytes taken by files that have a name or a handle, in whole pages.
    pub(super) fn used(&self) -> u64 {
        let named: BTreeSet<InodeNumber> =
            self.directories.values().flat_map(|directory| directory.names().values().copied()).collect();
        let present = self.inodes.iter().filter(|(number, inode)| inode.handles > 0 || named.contains(number));
        present.map(|(_, inode)| in_pages(inode.len()) - inode.hole_pages() * PAGE as u64).sum()
    }

    /// The length up to which a file can be written.
    fn room_for(&self, number: InodeNumber) -> u64 {
        let len = self.inode(number).len();
        let by_faults = len.saturating_add(self.faults.space_left());
        let Some(capacity) = self.capacity else {
            return by_faults;
        };
        by_faults.min(in_pages(len) + capacity.saturating_sub(self.used()) / PAGE as u64 * PAGE as u64)
    }

    // Images.

    /// What the kernel holds: all names and all bytes, synced or not.
    pub(super) fn after_process_crash(&self) -> State {
        let mut image = self.clone();
        image.reset_machine();
        image
    }

    /// What the disk holds.
    pub(super) fn after_power_loss(&self, seed: u64) -> State {
        let mut random = Random::new(seed);
        let survival = match random.below(3) {
            0 => Survival::Nothing,
            1 => self.survival_of_all_but_a_tail(&mut random),
            _ => Survival::Some,
        };
        let mut image = self.clone();
        image.reset_machine();
        for directory in image.directories.values_mut() {
            *directory = Directory::settled(directory.after_power_loss(survival, &mut random));
        }
        image.forget_unreachable();
        for inode in image.inodes.values_mut() {
            *inode = Inode::settled(inode.after_power_loss(survival, &mut random));
        }
        image
    }

    fn survival_of_all_but_a_tail(&self, random: &mut Random) -> Survival {
        let changes = self.inodes.values().flat_map(Inode::unsynced_orders);
        let names = self.directories.values().flat_map(Directory::pending_orders);
        let mut orders: Vec<u64> = changes.chain(names).collect();
        orders.sort_unstable();
        let longest = if random.one_in(2) { orders.len() } else { orders.len().min(8) };
        let tail = random.below(longest as u64 + 1) as usize;
        // Just before the first change of the tail, so that this is the one that can be torn.
        Survival::Until(orders.get(orders.len() - tail).map_or(self.order, |first| first - 1))
    }

    /// The next process, or the machine after a restart, finds no locks, handles or faults.
    fn reset_machine(&mut self) {
        self.locks.clear();
        self.halted = false;
        self.faults = FaultState::new(Faults::default());
        for inode in self.inodes.values_mut() {
            inode.handles = 0;
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let reachable: BTreeSet<InodeNumber> = self.directories.values().flat_map(Directory::reachable).collect();
        self.inodes.retain(|number, inode| inode.handles > 0 || reachable.contains(number));
    }

    // Tools of tests: durable at once, without faults.

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
        let (directory, name) = self.directory_mut(path, "write").expect("its directories were made just now");
        directory.put(&name, number);
    }

    pub(super) fn flip_bit(&mut self, number: InodeNumber, offset: u64, bit: u8) {
        let inode = self.inode_mut(number);
        assert!(offset < inode.len(), "no byte {offset} to damage in a file of {}", inode.len());
        inode.flip_bit(offset, bit);
    }
}

fn in_pages(len: u64) -> u64 {
    len.next_multiple_of(PAGE as u64)
}

fn broken(path: &Path, operation: &'static str) -> Error {
    Error::io(path, operation, rustix::io::Errno::IO.into())
}
