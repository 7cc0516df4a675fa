//! One simulated directory: the names that the process sees, the durable names, and the operations between them. The
//! operations become durable in order, as in a journaling file system: a power loss leaves a prefix of them.

use std::collections::BTreeMap;

use super::content::Content;
use super::inode::Survival;
use crate::sched::random::Random;

/// A file, independent of its names.
pub(super) type InodeNumber = u64;

/// The files of a directory by name.
pub(super) type Names = BTreeMap<String, InodeNumber>;

/// A directory whose disk is gone (`vanish.rs`).
#[derive(Clone)]
pub(super) struct Vanished {
    /// What is on the disk.
    pub files: BTreeMap<String, Content>,
    /// The machine has not noticed yet: operations fail. Otherwise the directory is not there.
    pub is_mounted: bool,
}

#[derive(Debug, Clone)]
enum DirectoryOperation {
    Link(String, InodeNumber),
    Unlink(String),
    Rename { from: String, to: String },
}

/// A simulated directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Directory {
    current: Names,
    durable: Names,
    pending: Vec<(u64, DirectoryOperation)>,
}

impl Directory {
    /// A directory whose names are durable.
    pub(super) fn settled(names: Names) -> Directory {
        Directory { current: names.clone(), durable: names, pending: Vec::new() }
    }

    pub(super) fn names(&self) -> &Names {
        &self.current
    }

    pub(super) fn link(&mut self, name: &str, inode: InodeNumber, order: u64) {
        self.change(order, DirectoryOperation::Link(name.to_owned(), inode));
    }

    pub(super) fn unlink(&mut self, name: &str, order: u64) {
        self.change(order, DirectoryOperation::Unlink(name.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str, order: u64) {
        self.change(order, DirectoryOperation::Rename { from: from.to_owned(), to: to.to_owned() });
    }

    /// Adds a name that is durable at once.
    pub(super) fn put(&mut self, name: &str, inode: InodeNumber) {
        self.current.insert(name.to_owned(), inode);
        self.durable.insert(name.to_owned(), inode);
    }

    fn change(&mut self, order: u64, operation: DirectoryOperation) {
        apply(&mut self.current, &operation);
        self.pending.push((order, operation));
    }

    /// Makes all names durable.
    pub(super) fn sync(&mut self) {
        self.durable = self.current.clone();
        self.pending.clear();
    }

    /// The positions of its pending operations in the order of all changes of the disk.
    pub(super) fn pending_orders(&self) -> impl Iterator<Item = u64> {
        self.pending.iter().map(|(order, _)| *order)
    }

    /// The files that it contains, or may contain after a power loss.
    pub(super) fn reachable(&self) -> impl Iterator<Item = InodeNumber> {
        let pending = self.pending.iter().filter_map(|(_, operation)| match operation {
            DirectoryOperation::Link(_, inode) => Some(*inode),
            _ => None,
        });
        self.current.values().chain(self.durable.values()).copied().chain(pending)
    }

    /// The names after a power loss now.
    pub(super) fn after_power_loss(&self, survival: Survival, random: &mut Random) -> Names {
        let kept = match survival {
            Survival::Nothing => 0,
            Survival::Until(last) => self.pending.iter().take_while(|(order, _)| *order <= last).count(),
            Survival::Some => random.below(self.pending.len() as u64 + 1) as usize,
        };
        let mut names = self.durable.clone();
        for (_, operation) in &self.pending[..kept] {
            apply(&mut names, operation);
        }
        names
    }
}

fn apply(names: &mut Names, operation: &DirectoryOperation) {
    match operation {
        DirectoryOperation::Link(name, inode) => {
            names.insert(name.clone(), *inode);
        }
        DirectoryOperation::Unlink(name) => {
            names.remove(name);
        }
        DirectoryOperation::Rename { from, to } => {
            if let Some(inode) = names.remove(from) {
                names.insert(to.clone(), inode);
            }
        }
    }
}
