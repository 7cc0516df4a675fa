//! Disks that vanish while they are in use, and come back: a cable that is pulled, a network volume that is detached. Until then
//! every operation in the directory fails with an I/O error. What was not synced may be lost, as at a loss of power, and files that
//! were open stay lost for their holders.
//!
//! In an image that is made meanwhile, the directory is not there, as when nothing is mounted at the place. Mappings keep their
//! memory; what is written there never reaches the disk.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::SimDisk;
use super::directory::{Directory, InodeNumber, Names, Vanished};
use super::inode::Inode;
use super::state::{State, io_error};
use crate::base::Result;

impl SimDisk {
    /// Takes the disk of a directory away. `seed` decides what of the unsynced changes is on it.
    pub fn vanish(&self, directory: &Path, seed: u64) {
        self.state().vanish(directory, seed);
    }

    /// The directories whose disks are gone.
    pub fn vanished(&self) -> Vec<PathBuf> {
        self.state().vanished.keys().cloned().collect()
    }

    /// The disks that are gone never come back; what is at their paths by now stays.
    pub fn forget_vanished(&self) {
        self.state().vanished.clear();
    }

    /// Brings the disk of a directory back, in place of whatever is at its path by now; false if it is not gone.
    pub fn come_back(&self, directory: &Path) -> bool {
        self.state().come_back(directory)
    }
}

impl State {
    fn vanish(&mut self, directory: &Path, seed: u64) {
        let image = self.after_power_loss(seed, &|lost| lost == directory);
        let Some(kept) = image.directories.get(directory) else { return };
        let content = |number: &InodeNumber| image.inode(*number).content().clone();
        let files = kept.names().iter().map(|(name, number)| (name.clone(), content(number))).collect();
        self.vanished.insert(directory.to_owned(), Vanished { files, is_mounted: true });
        // What has a name elsewhere is on the other disk, too.
        let elsewhere = self.directories.iter().filter(|(path, _)| *path != directory);
        let elsewhere: BTreeSet<_> = elsewhere.flat_map(|(_, of)| of.names().values().copied()).collect();
        for number in self.directories[directory].names().values().filter(|number| !elsewhere.contains(number)) {
            if let Some(inode) = self.inodes.get_mut(number) {
                inode.is_lost = true;
            }
        }
    }

    fn come_back(&mut self, directory: &Path) -> bool {
        let Some(Vanished { files, .. }) = self.vanished.remove(directory) else { return false };
        self.locks.retain(|path, _| path.parent() != Some(directory));
        let mut names = Names::new();
        for (name, content) in files {
            self.inodes.insert(self.next_inode, Inode::settled(content));
            names.insert(name, self.next_inode);
            self.next_inode += 1;
        }
        for ancestor in directory.ancestors() {
            self.directories.entry(ancestor.to_owned()).or_default();
        }
        self.directories.insert(directory.to_owned(), Directory::settled(names));
        self.forget_unreachable();
        true
    }

    /// The directories that are gone are not there for the next process.
    pub(super) fn unmount_vanished(&mut self) {
        for (directory, vanished) in &mut self.vanished {
            if std::mem::take(&mut vanished.is_mounted) {
                self.directories.remove(directory);
            }
        }
    }

    /// Fails if the disk of a path is gone.
    pub(super) fn check_presence(&self, path: &Path, operation: &'static str) -> Result<()> {
        let is_gone = |directory: &Path| self.vanished.get(directory).is_some_and(|vanished| vanished.is_mounted);
        match is_gone(path) || path.parent().is_some_and(is_gone) {
            true => Err(io_error(path, operation)),
            false => Ok(()),
        }
    }

    /// Fails if an open file was lost with its disk.
    pub(super) fn check_medium(&self, number: InodeNumber, path: &Path, operation: &'static str) -> Result<()> {
        if self.inode(number).is_lost { Err(io_error(path, operation)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::storage::{Access, File, Storage};

    /// A disk with the file `a`, partly synced, in each of two directories, and handles to them.
    fn two_disks() -> (SimDisk, [std::sync::Arc<dyn File>; 2]) {
        let disk = SimDisk::new();
        let files = ["/here", "/other"].map(|directory| {
            disk.create_dir_all(Path::new(directory)).unwrap();
            let file = disk.create(&Path::new(directory).join("a"), Access::Buffered).unwrap();
            file.write_at(b"synced", 0).unwrap();
            file.sync().unwrap();
            disk.sync_dir(Path::new(directory)).unwrap();
            file.write_at(b"more", 6).unwrap();
            file
        });
        (disk, files)
    }

    #[test]
    fn every_operation_on_a_disk_that_is_gone_fails_and_the_other_works() {
        let (disk, [here, other]) = two_disks();
        disk.vanish(Path::new("/other"), 1);
        let (of_here, of_other) = (Path::new("/here/a"), Path::new("/other/a"));
        assert!(here.write_at(b"x", 0).is_ok() && here.sync().is_ok() && disk.open(of_here).is_ok());
        let fails = [
            other.read_at(&mut [0; 1], 0).is_err(),
            other.write_at(b"x", 0).is_err(),
            other.sync().is_err(),
            other.len().is_err(),
            disk.open(of_other).is_err(),
            disk.exists(of_other).is_err(),
            disk.remove(of_other).is_err(),
            disk.list(Path::new("/other")).is_err(),
            disk.sync_dir(Path::new("/other")).is_err(),
            disk.create(Path::new("/other/b"), Access::Buffered).is_err(),
            disk.link(of_other, Path::new("/here/b")).is_err(),
            disk.link(of_here, Path::new("/other/b")).is_err(),
        ];
        assert_eq!(fails, [true; 12]);
    }

    #[test]
    fn a_disk_that_comes_back_has_what_was_synced_and_old_handles_stay_lost() {
        let lengths = (0..40).map(|seed| {
            let (disk, [_, other]) = two_disks();
            disk.vanish(Path::new("/other"), seed);
            assert!(disk.come_back(Path::new("/other")) && !disk.come_back(Path::new("/other")));
            assert!(other.write_at(b"x", 0).is_err() && other.sync().is_err());
            let found = disk.read_file(Path::new("/other/a")).unwrap();
            assert!(found.starts_with(b"synced"));
            disk.open(Path::new("/other/a")).unwrap().write_at(b"new", 0).unwrap();
            assert_eq!(disk.read_file(Path::new("/here/a")).unwrap(), b"syncedmore");
            found.len()
        });
        assert_eq!(lengths.collect::<std::collections::BTreeSet<_>>().len(), 2, "with and without what was not synced");
    }

    #[test]
    fn in_an_image_the_directory_is_missing_until_it_comes_back() {
        let (disk, _files) = two_disks();
        disk.vanish(Path::new("/other"), 0);
        for image in [disk.process_crash(), disk.power_loss(3), disk.process_crash().process_crash()] {
            assert!(!image.exists(Path::new("/other")).unwrap() && image.exists(Path::new("/here/a")).unwrap());
            image.write_file(Path::new("/other/b"), b"below the mount point");
            assert!(image.come_back(Path::new("/other")));
            assert!(!image.exists(Path::new("/other/b")).unwrap());
            assert!(image.read_file(Path::new("/other/a")).unwrap().starts_with(b"synced"));
        }
    }
}
