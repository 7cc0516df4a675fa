//! Which directories a database has at an open: those that the caller declares, and those in which it still has files from
//! an earlier declaration. Files move to where they belong in the background (`jobs/move_files.rs`).
//!
//! A directory is known by its number, which its [`OWNER`] has too, so that it may have been renamed or mounted elsewhere
//! since. One that the manifest does not know is taken if no file in it has a name that databases use. Called by `open.rs`
//! and the check.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::base::{DirId, Error, Result};
use crate::device::is_device_path;
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::file_names::{
    CURRENT, CURRENT_NEW, OWNER, OWNER_NEW, RESERVE, RING, RING_NEW, STATS, parse,
};
use crate::engine::manifest::files::{DeclaredDirs, Dirs};
use crate::engine::recovery::owner::{OwnerFile, another_owner};
use crate::engine::recovery::ownership::check_free;
use crate::format::edit::{Directory, Edit, Opening, Openings};
use crate::io::Storage;

/// The directories of a database at an open.
pub(crate) struct FoundDirs {
    pub dirs: Dirs,
    /// For each directory but that of the manifest, the opening in its [`OWNER`]; `None` if it has none yet.
    pub owners: BTreeMap<DirId, Option<Opening>>,
}

/// Finds the directories. To change them, an open must be for writing.
///
/// # Errors
/// [`Error::InvalidInput`] if the slow directory is not named although the database has one, if a directory with files of the
/// database is not there, belongs to another database, or was used by a copy of this one.
pub(crate) fn find_directories(
    storage: &dyn Storage,
    state: &ManifestState,
    declared: &DeclaredDirs,
    is_writing: bool,
) -> Result<FoundDirs> {
    let mut found = Finder { storage, state, paths: BTreeMap::new(), owners: BTreeMap::new() };
    let slow = match declared.are_apart() {
        true => found.slow(declared, is_writing)?,
        false if state.slow_dir != DirId::HOME && !declared.names_slow => {
            return Err(Error::input(format!(
                "the tables of the database in {} lie in a directory of their own, which the option slow_dir must name",
                declared.fast.display()
            )));
        }
        false => DirId::HOME,
    };
    let device = match &declared.device {
        Some(path) => found.device(path, is_writing)?,
        None => None,
    };
    for (dir, Directory { path, .. }) in state.dirs.iter().filter(|(dir, _)| **dir != slow && Some(**dir) != device) {
        match state.files_in(*dir).next() {
            Some(_) => found.former(*dir, Path::new(path))?,
            None => found.empty(*dir, Path::new(path))?,
        }
    }
    let Finder { paths, owners, .. } = found;
    Ok(FoundDirs { dirs: Dirs::new(declared.fast.clone(), slow, paths).with_device(device), owners })
}

/// The directories as the manifest has them, with that of the slow tier at the declared place: to look for damage.
pub(crate) fn directories_as_stored(state: &ManifestState, declared: &DeclaredDirs) -> Dirs {
    let mut others: BTreeMap<_, _> = state.dirs.iter().map(|(dir, of)| (*dir, PathBuf::from(&of.path))).collect();
    if declared.are_apart() && state.slow_dir != DirId::HOME {
        others.insert(state.slow_dir, declared.slow.clone());
    }
    Dirs::new(declared.fast.clone(), state.slow_dir, others)
}

struct Finder<'a> {
    storage: &'a dyn Storage,
    state: &'a ManifestState,
    paths: BTreeMap<DirId, PathBuf>,
    owners: BTreeMap<DirId, Option<Opening>>,
}

impl Finder<'_> {
    /// The directory declared for the slow tier.
    fn slow(&mut self, declared: &DeclaredDirs, is_writing: bool) -> Result<DirId> {
        let path = &*declared.slow;
        if let Some(dir) = self.declared(path, is_writing)? {
            return Ok(dir);
        }
        // All files are beside the manifest, and none will be made.
        if self.state.dirs.is_empty() && !declared.names_slow {
            return Ok(DirId::HOME);
        }
        if self.storage.exists(path)? {
            check_free(self.storage, path)?;
        }
        Err(Error::input(format!(
            "{} has no files of this database: the option slow_dir must be as it was when it was last open for writing",
            path.display()
        )))
    }

    /// The declared KV device. `None` if nothing of the database is there, and nothing will be made.
    fn device(&mut self, path: &Path, is_writing: bool) -> Result<Option<DirId>> {
        self.declared(path, is_writing)
    }

    /// A declared directory; `None` if it has no files of this database, and the open is not for writing.
    fn declared(&mut self, path: &Path, is_writing: bool) -> Result<Option<DirId>> {
        let dir = match OwnerFile::read(self.storage, path) {
            // This database has never taken a directory, so the damaged file is not its own.
            Err(_) if self.state.dirs.is_empty() => return Err(another_owner(path)),
            Err(error) => return Err(error),
            Ok(Some(owner)) if !self.was_left(path, &owner)? => {
                self.check_owner(path, &owner)?;
                self.owners.insert(owner.dir, Some(owner.opening));
                owner.dir
            }
            Ok(left) => {
                let known = self.state.dirs.iter().find(|(_, known)| Path::new(&known.path) == path);
                let dir = match known {
                    Some((dir, known)) => {
                        self.check_never_taken(*dir, known)?;
                        *dir
                    }
                    None if is_writing => {
                        let newest = self.state.dirs.keys().chain(self.paths.keys()).max();
                        DirId(newest.unwrap_or(&DirId::HOME).0 + 1)
                    }
                    None => return Ok(None),
                };
                if left.is_none() {
                    check_free(self.storage, path)?;
                }
                self.owners.insert(dir, None);
                dir
            }
        };
        self.paths.insert(dir, path.to_owned());
        Ok(Some(dir))
    }

    /// A directory that this database has left: only the file `OWNER` is there, or it is a device that was given up unseen, and
    /// that nothing has been opened with since.
    fn was_left(&self, path: &Path, owner: &OwnerFile) -> Result<bool> {
        if owner.database != self.state.database {
            return Ok(false);
        }
        // If the number was given out again, a crash came before the new owner was written.
        let known = self.state.dirs.get(&owner.dir);
        let is_stale = known.is_none_or(|known| known.since > owner.opening.epoch);
        if is_stale && self.is_as_left(path, owner) {
            return Ok(true);
        }
        Ok(is_stale && self.storage.list(path)?.iter().all(|entry| parse(&entry.name).is_none()))
    }

    /// The owner of a device is the one that it had when the database gave it up: its files are garbage of ours, because the
    /// manifest had none there. An opening of a copy would have written another owner before its first file.
    fn is_as_left(&self, path: &Path, owner: &OwnerFile) -> bool {
        let left = path.to_str().and_then(|path| self.state.devices_left.get(path));
        left.is_some_and(|openings| [openings.present, openings.previous].contains(&owner.opening))
    }

    /// A directory with files of the database that is not declared any more.
    fn former(&mut self, dir: DirId, path: &Path) -> Result<()> {
        let owner = match self.storage.exists(path)? {
            true => OwnerFile::read(self.storage, path)?,
            false => None,
        };
        match owner {
            Some(owner) if owner.dir == dir || owner.database != self.state.database => {
                self.check_owner(path, &owner)?;
                self.owners.insert(dir, Some(owner.opening));
                self.paths.insert(dir, path.to_owned());
                Ok(())
            }
            _ => Err(self.not_there(dir, path)),
        }
    }

    /// The error for a directory that files of the database lie in, and that is elsewhere or not mounted.
    fn not_there(&self, dir: DirId, path: &Path) -> Error {
        let files = self.state.files_in(dir).count();
        if is_device_path(path) {
            return Error::input(format!(
                "{files} files of this database lie on the KV device {}, which the option kv_device must declare",
                path.display()
            ));
        }
        Error::input(format!(
            "{files} files of this database lie in {}, which is not there or does not have its file {OWNER}: mount it, or name \
             it by the option slow_dir if it has moved",
            path.display()
        ))
    }

    /// True if there are files with names that databases use for what they store: the place is no bare mount point.
    fn has_numbered_files(&self, path: &Path) -> Result<bool> {
        let entries = if self.storage.exists(path)? { self.storage.list(path)? } else { Vec::new() };
        Ok(entries.iter().any(|entry| entry.is_file && parse(&entry.name).is_some()))
    }

    /// A directory that files have moved out of. It is kept until those that a crash left there have been removed.
    fn empty(&mut self, dir: DirId, path: &Path) -> Result<()> {
        if !is_owned(self.storage, self.state, dir, path) {
            return Ok(());
        }
        if self.storage.list(path)?.iter().any(|entry| entry.is_file && parse(&entry.name).is_some()) {
            self.former(dir, path)?;
        }
        Ok(())
    }

    /// Checks that a directory belongs to this database, and that no copy of it has used the directory since.
    fn check_owner(&self, path: &Path, owner: &OwnerFile) -> Result<()> {
        if owner.database != self.state.database {
            return Err(another_owner(path));
        }
        let Openings { present, previous } = self.state.openings;
        let is_known = self.state.dirs.contains_key(&owner.dir);
        if is_known && (owner.opening == present || owner.opening == previous) {
            return Ok(());
        }
        Err(Error::input(format!(
            "another copy of this database has used {} since this one was open: {} names opening {}, and this copy knows of \
             {} as the last. Of several copies only one can have a slow directory; a checkpoint makes a copy with all its \
             files",
            path.display(),
            path.join(OWNER).display(),
            owner.opening.epoch,
            present.epoch
        )))
    }

    /// Checks that a directory without an owner never had one.
    fn check_never_taken(&self, dir: DirId, known: &Directory) -> Result<()> {
        let path = Path::new(&known.path).join(OWNER);
        if self.state.files_in(dir).next().is_some() {
            if !self.has_numbered_files(Path::new(&known.path))? {
                return Err(self.not_there(dir, Path::new(&known.path)));
            }
            return Err(Error::corruption(&path, 0, "the file that names the owner of this directory is missing"));
        }
        // An opening comes before another only once it was durable in `OWNER`.
        if self.state.openings.previous.epoch >= known.since {
            return Err(Error::input(format!(
                "{} is missing, and this database has used a slow directory before: the option slow_dir must be as it was, \
                 and the directory mounted",
                path.display()
            )));
        }
        Ok(())
    }
}

/// True if a directory has this number in this database, as far as can be read.
fn is_owned(storage: &dyn Storage, state: &ManifestState, dir: DirId, path: &Path) -> bool {
    let owner = OwnerFile::read(storage, path);
    matches!(owner, Ok(Some(owner)) if owner.database == state.database && owner.dir == dir)
}

/// A directory without files that the database gives up.
pub(crate) struct LeftDirectory(PathBuf);

impl LeftDirectory {
    /// Removes what is left there. If that fails, it does no harm: the database may take the directory again.
    pub fn clear(&self, storage: &dyn Storage) {
        for name in [RESERVE, OWNER_NEW, OWNER] {
            let _ = storage.remove(&self.0.join(name));
        }
    }
}

/// Removes what a manifest leaves that has moved to another directory since, and an owner of the present one from before.
pub(crate) fn remove_former_home(storage: &dyn Storage, dirs: &Dirs, database: u64) {
    for (_, path) in dirs.others() {
        for name in [CURRENT, CURRENT_NEW, STATS] {
            let _ = storage.remove(&path.join(name));
        }
        for name in [RING, RING_NEW] {
            let _ = storage.remove_mapped(&path.join(name));
        }
        let _ = storage.sync_dir(path);
    }
    let owner = OwnerFile::read(storage, dirs.fast());
    if matches!(owner, Ok(Some(owner)) if owner.database == database) {
        let _ = storage.remove(&dirs.fast().join(OWNER));
    }
}

impl FoundDirs {
    /// The directories to give up: those of the manifest that were not found. That nothing lies there is durable.
    pub fn left(&self, storage: &dyn Storage, state: &ManifestState) -> Result<Vec<LeftDirectory>> {
        let mut left = Vec::new();
        for (dir, Directory { path, .. }) in state.dirs.iter().filter(|(dir, _)| !self.owners.contains_key(dir)) {
            let path = PathBuf::from(path);
            if is_owned(storage, state, *dir, &path) {
                storage.sync_dir(&path)?;
                left.push(LeftDirectory(path));
            }
        }
        Ok(left)
    }

    /// Adds what an opening changes of the directories to its edit.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a path cannot be stored.
    pub fn add_to(&self, edit: &mut Edit, state: &ManifestState) -> Result<()> {
        let opening = edit.openings.map_or(0, |openings| openings.present.epoch);
        for (dir, path) in self.dirs.others() {
            let Some(text) = path.to_str() else {
                return Err(Error::input(format!("option slow_dir is {}, which is not UTF-8", path.display())));
            };
            let since = match (state.dirs.get(&dir), self.owners.get(&dir)) {
                (Some(known), Some(Some(_))) => known.since,
                _ => opening,
            };
            let directory = Directory { path: text.to_owned(), since };
            if state.dirs.get(&dir) != Some(&directory) {
                edit.dirs_added.push((dir, directory));
            }
        }
        let slow = self.dirs.slow_id();
        edit.slow_dir = (slow != state.slow_dir).then_some(slow);
        let gone = || state.dirs.iter().filter(|(dir, _)| !self.owners.contains_key(dir));
        edit.dirs_removed = gone().map(|(dir, _)| *dir).collect();
        // What lies there cannot be seen without the device: a deletion may not have happened.
        let devices = gone().filter(|(_, directory)| is_device_path(Path::new(&directory.path)));
        edit.devices_left = devices.map(|(_, directory)| (directory.path.clone(), state.openings)).collect();
        Ok(())
    }

    /// The opening in all files [`OWNER`], if there is one with any.
    pub fn opening(&self) -> Option<Opening> {
        self.owners.values().flatten().next().copied()
    }
}
