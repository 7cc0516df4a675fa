//! A [`KvDevice`] as a directory of append-only files: what logs, and the file that names the directory's owner, need of
//! [`Storage`](crate::io::Storage). Nothing but whole pairs is written, so a file is as it was at some moment after each crash, apart
//! from what was not synced.
//!
//! The device is read when the directory is locked, which one database at a time can do. Space is claimed when a file allocates it
//! ([`File::allocate`](crate::io::File::allocate)): pieces below the length that was allocated always have room.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::kv_device::KvDevice;
use super::kv_file::{KvFile, LockFile};
use super::pieces::{HEADER, HEADER_KEY, Meaning, NameRecord, Piece, Pieces, meaning_of, name_key};
use crate::base::{Error, Result};
use crate::io::{DirEntry, File, Lock, ProcessLock};
use crate::sched::sync::{Mutex, MutexGuard};

/// Space that no allocation gets: for the small files that allocate none.
const SMALL_FILES_BYTES: u64 = 64 << 10;

/// The files of a device.
pub struct KvDirectory {
    pub(super) device: Arc<dyn KvDevice>,
    path: PathBuf,
    mounted: Mutex<Option<Mounted>>,
    /// The next one, of pieces and names together.
    generation: AtomicU64,
}

#[derive(Default)]
struct Mounted {
    files: BTreeMap<String, Arc<Inode>>,
    next_number: u32,
    /// Removed files of which the device may still have pieces: they count until it has none.
    leaving: Vec<Arc<Inode>>,
    /// Names under which locks were taken. These files exist for the process alone.
    locks: Vec<String>,
}

/// A file on the device.
pub(super) struct Inode {
    pub number: u32,
    pub state: Mutex<InodeState>,
}

pub(super) struct InodeState {
    pub name: NameRecord,
    pub pieces: Pieces,
    /// It has no name any more. Its pieces go when nobody has it open, as on every file system.
    pub is_removed: bool,
    /// How often it is open.
    pub handles: usize,
}

impl InodeState {
    /// The length of the file.
    pub fn len(&self) -> u64 {
        self.name.len.max(self.pieces.end())
    }

    /// Bytes of the device that it takes, or may take without asking.
    pub fn claimed(&self) -> u64 {
        self.name.len.max(self.pieces.bytes())
    }
}

impl KvDirectory {
    /// The directory at `path`, a place that nothing else has. Reads nothing yet.
    pub fn new(device: Arc<dyn KvDevice>, path: PathBuf) -> Arc<KvDirectory> {
        Arc::new(KvDirectory { device, path, mounted: Mutex::default(), generation: AtomicU64::new(1) })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Locks the device, and reads which files it has.
    ///
    /// # Errors
    /// [`Error::Locked`] if another database has it, [`Error::Unsupported`] if it holds pairs of another program.
    pub fn lock(&self, path: &Path, shared: bool) -> Result<Box<dyn Lock>> {
        // Devices that other processes can reach have locks of their own.
        let address = Arc::as_ptr(&self.device).cast::<()>().addr();
        let taken = ProcessLock::take(address, shared, path)?;
        let mut mounted = self.mount(!shared)?;
        mounted.locks.push(name_of(path)?);
        *self.mounted.lock() = Some(mounted);
        Ok(Box::new(taken))
    }

    /// Reads the names and the keys of all pieces. With `repairs`, what no name leads to is removed: it was left by a crash.
    fn mount(&self, repairs: bool) -> Result<Mounted> {
        let failed = |operation| move |error| Error::io(&self.path, operation, error);
        let foreign = |what: String| {
            let message = format!("the device holds {what}: it is not one that a database has used");
            Error::Unsupported { path: self.path.clone(), message }
        };
        let (mut has_header, mut names, mut pieces, mut unknown) = (false, Vec::new(), BTreeMap::new(), None);
        let mut see = |key: &[u8]| match meaning_of(key) {
            Some(Meaning::Header) => has_header = true,
            Some(Meaning::Name(number)) => names.push(number),
            Some(Meaning::Piece(piece)) => pieces.entry(piece.file).or_insert_with(Vec::new).push(piece),
            None => unknown = Some(format!("a pair with the key {key:02x?}")),
        };
        self.device.list(&mut see).map_err(failed("list"))?;
        if let Some(unknown) = unknown {
            return Err(foreign(unknown));
        }
        if has_header {
            let header = self.device.retrieve(&HEADER_KEY).map_err(failed("retrieve"))?;
            if header.as_deref() != Some(HEADER) {
                return Err(foreign("no header of a known version".to_owned()));
            }
        } else if !names.is_empty() || !pieces.is_empty() {
            return Err(foreign("pairs without a header".to_owned()));
        } else if repairs {
            self.device.store(&HEADER_KEY, HEADER).map_err(failed("store"))?;
            self.device.sync().map_err(|error| Error::sync(&self.path, error))?;
        }
        let last = names.iter().chain(pieces.keys()).max().copied().unwrap_or_default();
        let mut mounted = Mounted { next_number: last + 1, ..Mounted::default() };
        let (mut generation, mut losers) = (0, Vec::new());
        for number in names {
            let value = self.device.retrieve(&name_key(number)).map_err(failed("retrieve"))?;
            let damaged = || Error::corruption(&self.path, u64::from(number), "the name of this file is damaged");
            let name = value.as_deref().and_then(NameRecord::decode).ok_or_else(damaged)?;
            let mut of = pieces.remove(&number).unwrap_or_default();
            of.sort_by_key(|piece| piece.generation);
            generation = of.last().map_or(0, |piece| piece.generation).max(name.generation).max(generation);
            let mut state = InodeState { name, pieces: Pieces::default(), is_removed: false, handles: 0 };
            of.into_iter().for_each(|piece| state.pieces.add(piece));
            let (name, since) = (state.name.name.clone(), state.name.generation);
            let inode = Arc::new(Inode { number, state: Mutex::new(state) });
            // A crash came between the two steps of a rename.
            let other = mounted.files.get(&name).map(|other| other.state.lock().name.generation);
            match other {
                Some(other) if other > since => losers.push(inode),
                _ => losers.extend(mounted.files.insert(name, inode)),
            }
        }
        let orphans = pieces.into_values().flatten().collect::<Vec<Piece>>();
        generation = orphans.iter().map(|piece| piece.generation).max().unwrap_or_default().max(generation);
        self.generation.store(generation + 1, Ordering::Relaxed);
        if repairs {
            losers.iter().try_for_each(|loser| self.discard(loser)).map_err(failed("delete"))?;
            orphans
                .iter()
                .try_for_each(|piece| self.device.delete(&piece.key()).map(drop))
                .map_err(failed("delete"))?;
        }
        Ok(mounted)
    }

    fn mounted(&self) -> Result<MountedGuard<'_>> {
        let guard = self.mounted.lock();
        match *guard {
            Some(_) => Ok(MountedGuard(guard)),
            None => Err(Error::io(&self.path, "use", io::Error::other("the device is not locked"))),
        }
    }

    /// The number of the next piece or name.
    pub(super) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Ordering::Relaxed)
    }

    /// Stores the name of a file, or its new length.
    fn store_name(&self, inode: &Inode, name: NameRecord) -> Result<()> {
        let stored = self.device.store(&name_key(inode.number), &name.encode());
        stored.map_err(|error| Error::io(&self.path.join(&name.name), "store", error))?;
        inode.state.lock().name = name;
        Ok(())
    }

    /// Removes the name of a file; true if nobody has it open.
    fn discard_name(&self, inode: &Inode) -> io::Result<bool> {
        self.device.delete(&name_key(inode.number))?;
        let mut state = inode.state.lock();
        state.is_removed = true;
        Ok(state.handles == 0)
    }

    fn discard_pieces(&self, inode: &Inode) -> io::Result<()> {
        let pieces: Vec<Piece> = inode.state.lock().pieces.all().copied().collect();
        pieces.iter().try_for_each(|piece| self.device.delete(&piece.key()).map(drop))
    }

    /// Removes the name of a file that nobody has open, then its pieces: a crash between the two leaves pieces without a name.
    fn discard(&self, inode: &Inode) -> io::Result<()> {
        self.discard_name(inode)?;
        self.discard_pieces(inode)
    }

    /// Removes the name of a file that is leaving, and its pieces unless it is open.
    fn leave(&self, inode: &Inode, path: &Path) -> Result<()> {
        match self.discard_name(inode).map_err(|error| Error::io(path, "delete", error))? {
            true => self.let_go(inode, path),
            false => Ok(()),
        }
    }

    /// Removes the pieces of a file that is leaving; then it no longer counts.
    pub(super) fn let_go(&self, inode: &Inode, path: &Path) -> Result<()> {
        self.discard_pieces(inode).map_err(|error| Error::io(path, "delete", error))?;
        self.mounted()?.get().leaving.retain(|other| other.number != inode.number);
        Ok(())
    }

    /// Creates an empty file.
    pub fn create(self: &Arc<Self>, path: &Path) -> Result<Arc<dyn File>> {
        let name = name_of(path)?;
        let inode = {
            let mut mounted = self.mounted()?;
            if mounted.get().files.contains_key(&name) {
                return Err(Error::io(path, "create", io::ErrorKind::AlreadyExists.into()));
            }
            let number = mounted.get().next_number;
            mounted.get().next_number += 1;
            let record = NameRecord { len: 0, generation: self.next_generation(), name };
            let state = InodeState { name: record, pieces: Pieces::default(), is_removed: false, handles: 0 };
            Arc::new(Inode { number, state: Mutex::new(state) })
        };
        let record = inode.state.lock().name.clone();
        self.store_name(&inode, record.clone())?;
        self.mounted()?.get().files.insert(record.name, inode.clone());
        Ok(Arc::new(KvFile::new(self.clone(), inode, path)))
    }

    /// Opens a file.
    pub fn open(self: &Arc<Self>, path: &Path) -> Result<Arc<dyn File>> {
        let name = name_of(path)?;
        let mut mounted = self.mounted()?;
        if mounted.get().locks.contains(&name) {
            return Ok(Arc::new(LockFile(path.to_owned())));
        }
        match mounted.get().files.get(&name) {
            Some(inode) => Ok(Arc::new(KvFile::new(self.clone(), inode.clone(), path))),
            None => Err(Error::io(path, "open", io::ErrorKind::NotFound.into())),
        }
    }

    /// The length of a file.
    pub fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        let name = name_of(path)?;
        let mut mounted = self.mounted()?;
        Ok(mounted.get().files.get(&name).map(|inode| inode.state.lock().len()))
    }

    /// True if there is a file of this name.
    pub fn exists(&self, path: &Path) -> Result<bool> {
        if path == self.path {
            return Ok(true);
        }
        let name = name_of(path)?;
        let mut mounted = self.mounted()?;
        Ok(mounted.get().files.contains_key(&name) || mounted.get().locks.contains(&name))
    }

    /// All files, sorted by name.
    pub fn list(&self) -> Result<Vec<DirEntry>> {
        let mut mounted = self.mounted()?;
        Ok(mounted.get().files.keys().map(|name| DirEntry { name: name.clone(), is_file: true }).collect())
    }

    /// Renames a file; one that has the new name is replaced.
    pub fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (old, new) = (name_of(from)?, name_of(to)?);
        let inode = self.mounted()?.get().files.get(&old).cloned();
        let Some(inode) = inode else { return Err(Error::io(from, "rename", io::ErrorKind::NotFound.into())) };
        let len = inode.state.lock().name.len;
        self.store_name(&inode, NameRecord { len, generation: self.next_generation(), name: new.clone() })?;
        let replaced = {
            let mut mounted = self.mounted()?;
            mounted.get().files.remove(&old);
            let replaced = mounted.get().files.insert(new, inode);
            mounted.get().leaving.extend(replaced.clone());
            replaced
        };
        if let Some(replaced) = replaced {
            // Loss of power must not leave neither of the two.
            self.sync(to)?;
            // What is left of it is removed when the device is locked the next time.
            let _ = self.leave(&replaced, to);
        }
        Ok(())
    }

    /// Removes a file.
    pub fn remove(&self, path: &Path) -> Result<()> {
        let name = name_of(path)?;
        let removed = {
            let mut mounted = self.mounted()?;
            let removed = mounted.get().files.remove(&name);
            mounted.get().leaving.extend(removed.clone());
            removed
        };
        match removed {
            Some(inode) => self.leave(&inode, path),
            None => Err(Error::io(path, "remove", io::ErrorKind::NotFound.into())),
        }
    }

    /// Makes everything durable.
    pub fn sync(&self, path: &Path) -> Result<()> {
        self.device.sync().map_err(|error| Error::sync(path, error))
    }

    /// Gives a file the space up to `len`.
    pub(super) fn allocate(&self, inode: &Inode, path: &Path, len: u64) -> Result<()> {
        // Held, so that no other file gets the same space.
        let mut mounted = self.mounted()?;
        let (name, claimed) = {
            let state = inode.state.lock();
            (state.name.clone(), state.claimed())
        };
        if len <= name.len {
            return Ok(());
        }
        let free = self.free_bytes_of(mounted.get()).saturating_sub(SMALL_FILES_BYTES);
        if len.saturating_sub(claimed) > free {
            return Err(Error::no_space(path));
        }
        self.store_name(inode, NameRecord { len, ..name })
    }

    /// Stores the length of a file that is cut.
    pub(super) fn set_len(&self, inode: &Inode, len: u64) -> Result<()> {
        let name = inode.state.lock().name.clone();
        self.store_name(inode, NameRecord { len, ..name })
    }

    /// Bytes that no file has claimed.
    pub fn free_bytes(&self) -> u64 {
        let free = self.mounted().map_or(0, |mut mounted| self.free_bytes_of(mounted.get()));
        free.saturating_sub(SMALL_FILES_BYTES)
    }

    fn free_bytes_of(&self, mounted: &Mounted) -> u64 {
        let files = mounted.files.values().chain(&mounted.leaving);
        let claimed: u64 = files.map(|inode| inode.state.lock().claimed()).sum();
        self.device.usage().capacity_bytes.saturating_sub(claimed)
    }

    /// Bytes that it can hold.
    pub fn capacity_bytes(&self) -> u64 {
        self.device.usage().capacity_bytes
    }
}

/// The state of a directory that is locked.
struct MountedGuard<'a>(MutexGuard<'a, Option<Mounted>>);

impl MountedGuard<'_> {
    fn get(&mut self) -> &mut Mounted {
        self.0.as_mut().expect("a guard is made of a directory that is locked")
    }
}

/// The name within the directory.
fn name_of(path: &Path) -> Result<String> {
    let name = path.file_name().and_then(|name| name.to_str());
    name.map(str::to_owned).ok_or_else(|| Error::input(format!("{} names no file of a device", path.display())))
}

#[cfg(test)]
#[path = "directory_test.rs"]
mod tests;
