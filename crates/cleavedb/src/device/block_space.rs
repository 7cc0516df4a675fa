//! The space of a block side: which files take how much of it, and that all of them together take no more than there is.
//!
//! Each file has a [`Claim`]: the blocks up to its end, without those that were punched. Space is claimed before it is written. All
//! names and open handles of a file share its claim, and the space is free again once the last of them is gone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Result;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::io::{FileSpace, Storage};
use crate::sched::sync::{Mutex, MutexGuard};

/// The unit in which files take space.
const BLOCK_BYTES: u64 = BLOCK_IO_BYTES as u64;

/// The bytes that there are, and those that are claimed.
struct Room {
    capacity_bytes: u64,
    used: AtomicU64,
}

impl Room {
    /// False, and nothing is claimed, if there are not as many.
    fn take(&self, bytes: u64) -> bool {
        let after = |used: u64| used.checked_add(bytes).filter(|after| bytes == 0 || *after <= self.capacity_bytes);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, after).is_ok()
    }
}

/// The space of a block side.
pub(super) struct BlockSpace {
    room: Arc<Room>,
    names: Mutex<Names>,
    /// Each open file has a clone.
    open: Arc<()>,
}

/// The files that have a name.
type Names = BTreeMap<PathBuf, Arc<Claim>>;

impl BlockSpace {
    pub fn new(capacity_bytes: u64) -> BlockSpace {
        let room = Arc::new(Room { capacity_bytes, used: AtomicU64::new(0) });
        BlockSpace { room, names: Mutex::default(), open: Arc::default() }
    }

    pub fn capacity_bytes(&self) -> u64 {
        self.room.capacity_bytes
    }

    /// Bytes that no file has claimed; 0 if there were more than fit at the last count.
    pub fn free_bytes(&self) -> u64 {
        self.room.capacity_bytes.saturating_sub(self.room.used.load(Ordering::Acquire))
    }

    /// Counts what lies in the directory, unless files there are open: then it has been counted, and nobody else uses it.
    pub fn count(&self, storage: &dyn Storage, dir: &Path) -> Result<()> {
        let mut names = self.names.lock();
        if Arc::strong_count(&self.open) > 1 {
            return Ok(());
        }
        names.clear();
        let mut by_number: BTreeMap<u64, Arc<Claim>> = BTreeMap::new();
        for path in files_below(storage, dir)? {
            let Some((len, space)) = measure(storage, &path)? else { continue };
            let new = || Arc::new(Claim::of(self.room.clone(), len, space.as_ref()));
            let claim = match &space {
                Some(space) => by_number.entry(space.number).or_insert_with(new).clone(),
                None => new(),
            };
            names.insert(path, claim);
        }
        Ok(())
    }

    /// The names, for an operation that changes them. No other such operation begins before it is dropped.
    pub fn names(&self) -> NamesGuard<'_> {
        NamesGuard { space: self, names: self.names.lock() }
    }
}

/// The files that have a name, while no other operation changes them.
pub(super) struct NamesGuard<'a> {
    space: &'a BlockSpace,
    names: MutexGuard<'a, Names>,
}

impl NamesGuard<'_> {
    /// The claim of a new and empty file.
    pub fn create(&mut self, path: &Path) -> Arc<Claim> {
        let claim = Arc::new(Claim::of(self.space.room.clone(), 0, None));
        self.names.insert(path.to_owned(), claim.clone());
        claim
    }

    /// The claim of a file, which is measured if it is not known; `None` if there is no such file.
    pub fn find(&mut self, storage: &dyn Storage, path: &Path) -> Result<Option<Arc<Claim>>> {
        if let Some(claim) = self.names.get(path) {
            return Ok(Some(claim.clone()));
        }
        let Some((len, space)) = measure(storage, path)? else { return Ok(None) };
        let claim = Arc::new(Claim::of(self.space.room.clone(), len, space.as_ref()));
        self.names.insert(path.to_owned(), claim.clone());
        Ok(Some(claim))
    }

    /// Gives a claim another name.
    pub fn link(&mut self, claim: Arc<Claim>, path: &Path) {
        self.names.insert(path.to_owned(), claim);
    }

    pub fn rename(&mut self, from: &Path, to: &Path) {
        match self.names.remove(from) {
            Some(claim) => drop(self.names.insert(to.to_owned(), claim)),
            None => self.remove(to),
        }
    }

    /// The name is gone, or what it leads to must be measured anew.
    pub fn remove(&mut self, path: &Path) {
        self.names.remove(path);
    }

    /// What an open file holds beside its claim.
    pub fn open_mark(&self) -> Arc<()> {
        self.space.open.clone()
    }
}

/// The space that one file takes.
pub(super) struct Claim {
    room: Arc<Room>,
    extent: Mutex<Extent>,
}

/// Whole blocks.
#[derive(Clone, Copy)]
struct Extent {
    /// Where the file ends, or will end after writes that are in flight.
    end: u64,
    /// Bytes up to there that were not punched.
    bytes: u64,
}

impl Claim {
    /// That of a file that exists, whether there is room for it or not.
    fn of(room: Arc<Room>, len: u64, space: Option<&FileSpace>) -> Claim {
        let end = in_blocks(len);
        let bytes = space.map_or(end, |space| in_blocks(space.bytes).min(end));
        room.used.fetch_add(bytes, Ordering::AcqRel);
        Claim { room, extent: Mutex::new(Extent { end, bytes }) }
    }

    /// Claims the space up to `len`; returns the end before. `None`, and nothing is claimed, if there is no room.
    pub fn extend(&self, len: u64) -> Option<u64> {
        let mut extent = self.extent.lock();
        let Extent { end, bytes } = *extent;
        let more = in_blocks(len).saturating_sub(end);
        self.room.take(more).then(|| *extent = Extent { end: end + more, bytes: bytes + more })?;
        Some(end)
    }

    /// Gives back what lies beyond `len`. Blocks that were punched are taken to lie there.
    pub fn cut(&self, len: u64) {
        let mut extent = self.extent.lock();
        let end = extent.end.min(in_blocks(len));
        let bytes = extent.bytes.min(end);
        self.room.used.fetch_sub(extent.bytes - bytes, Ordering::AcqRel);
        *extent = Extent { end, bytes };
    }

    /// Gives back bytes that were punched.
    pub fn punch(&self, bytes: u64) {
        let mut extent = self.extent.lock();
        let bytes = extent.bytes.min(bytes);
        self.room.used.fetch_sub(bytes, Ordering::AcqRel);
        extent.bytes -= bytes;
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let Extent { bytes, .. } = *self.extent.lock();
        self.room.used.fetch_sub(bytes, Ordering::AcqRel);
    }
}

/// The bytes of the blocks that `len` bytes take.
fn in_blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// The length of a file, and the space that it takes if the storage says that; `None` if there is no file.
fn measure(storage: &dyn Storage, path: &Path) -> Result<Option<(u64, Option<FileSpace>)>> {
    match storage.file_len(path)? {
        Some(len) => Ok(Some((len, storage.file_space(path)?))),
        None => Ok(None),
    }
}

/// All files in a directory and in those below it, without symbolic links. None if it is missing.
fn files_below(storage: &dyn Storage, dir: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut dirs) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(dir) = dirs.pop() {
        if !storage.exists(&dir)? {
            continue;
        }
        let real = storage.real_path(&dir)?;
        for entry in storage.list(&dir)? {
            let path = dir.join(&entry.name);
            if entry.is_file {
                files.push(path);
            } else if storage.real_path(&path)? == real.join(&entry.name) && storage.list(&path).is_ok() {
                dirs.push(path);
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(space: &BlockSpace, len: u64) -> Claim {
        Claim::of(space.room.clone(), len, None)
    }

    #[test]
    fn claims_are_in_whole_blocks_and_never_more_than_the_capacity() {
        let space = BlockSpace::new(10 * BLOCK_BYTES + 100);
        let (first, second) = (claim(&space, 0), claim(&space, 1));
        assert_eq!(space.free_bytes(), 9 * BLOCK_BYTES + 100);
        assert_eq!(first.extend(4 * BLOCK_BYTES + 1), Some(0));
        assert_eq!(first.extend(BLOCK_BYTES), Some(5 * BLOCK_BYTES), "below its end a file takes no more");
        assert_eq!(second.extend(5 * BLOCK_BYTES + 1), None, "there is not a whole block for the last byte");
        assert_eq!(second.extend(u64::MAX), None);
        assert_eq!(second.extend(5 * BLOCK_BYTES), Some(BLOCK_BYTES));
        assert_eq!(space.free_bytes(), 100);
        first.cut(BLOCK_BYTES + 1);
        assert_eq!(space.free_bytes(), 3 * BLOCK_BYTES + 100);
        first.cut(8 * BLOCK_BYTES);
        assert_eq!(space.free_bytes(), 3 * BLOCK_BYTES + 100, "a cut beyond the end gives nothing back");
        drop(second);
        drop(first);
        assert_eq!(space.free_bytes(), 10 * BLOCK_BYTES + 100);
    }

    #[test]
    fn punched_blocks_are_given_back_once() {
        let space = BlockSpace::new(10 * BLOCK_BYTES);
        let file = claim(&space, 8 * BLOCK_BYTES);
        file.punch(3 * BLOCK_BYTES);
        assert_eq!(space.free_bytes(), 5 * BLOCK_BYTES);
        file.cut(6 * BLOCK_BYTES);
        assert_eq!(space.free_bytes(), 5 * BLOCK_BYTES, "the holes may lie in what was cut");
        file.cut(2 * BLOCK_BYTES);
        assert_eq!(space.free_bytes(), 8 * BLOCK_BYTES);
        drop(file);
        assert_eq!(space.free_bytes(), 10 * BLOCK_BYTES);
    }

    #[test]
    fn what_does_not_fit_at_a_count_stays_and_takes_no_more() {
        let space = BlockSpace::new(2 * BLOCK_BYTES);
        let file = claim(&space, 3 * BLOCK_BYTES);
        assert_eq!((space.free_bytes(), file.extend(4 * BLOCK_BYTES)), (0, None));
        assert_eq!(file.extend(1), Some(3 * BLOCK_BYTES), "what it has may be written");
        file.cut(BLOCK_BYTES);
        assert_eq!(space.free_bytes(), BLOCK_BYTES);
    }
}
