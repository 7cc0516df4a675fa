//! The reserve: a file [`RESERVE`] that only takes up space, to be released when the disk is full (rule 9). Flushes,
//! value GC, and manifest edits that remove something release it and are tried again at once; all of them free space in
//! the end. Logs and compactions do not get this space.
//!
//! The reserve suffices for a flush of the front and for the copy of one value file, so it grows with the data, up to
//! the size in the tuning. A clean close removes it.
//!
//! The content of the file is never read, and only its removal is synced. A reserve lost in a crash is created again;
//! one that reappears after a crash is released again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::base::{Error, Result};
use crate::engine::manifest::file_names::RESERVE;
use crate::engine::tuning::sizes::Tuning;
use crate::io::{Access, Storage};
use crate::sched::sync::Mutex;

/// The reserve takes at most 1 in this many bytes of the file system: logs need space as well.
const SPACE_PARTS: u64 = 16;

/// The least size of the reserve: enough for edits.
const BYTES_MIN: u64 = 256 << 10;

/// The reserve of a database, with a file in each directory.
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    /// The directories in which it has a file.
    places: Vec<Place>,
    /// The wanted size of each file, before its limit.
    wanted: AtomicU64,
    /// Held while the reserve is created or released, and while a log allocates its space.
    changing: Mutex<()>,
}

/// A directory with a file of the reserve.
struct Place {
    dir: PathBuf,
    /// The largest size of the file.
    most: u64,
    /// The wanted size for which the file has its full size, or cannot be created; 0 if it does not have it. Changed by
    /// holders of `changing`.
    made: AtomicU64,
    /// Number of calls that use its released space now.
    lent: AtomicUsize,
}

impl Place {
    fn new(dir: &Path, most: u64) -> Place {
        Place { dir: dir.to_owned(), most, made: AtomicU64::new(0), lent: AtomicUsize::new(0) }
    }

    fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire) > 0
    }

    /// True if the file does not have its full size and can be created now.
    fn is_wanted(&self, wanted: u64) -> bool {
        self.made.load(Ordering::Acquire) < wanted.min(self.most) && !self.is_lent()
    }
}

impl Reserve {
    /// The reserve of a database. Does not create or change a file.
    pub fn new(storage: Arc<dyn Storage>, fast: &Path, slow: &Path, tuning: &Tuning) -> Reserve {
        let mut places = vec![Place::new(slow, tuning.reserve_bytes)];
        if slow != fast {
            places.push(Place::new(fast, tuning.manifest_bytes.min(tuning.reserve_bytes)));
        }
        for place in &mut places {
            place.most = place.most.min(storage.file_system_bytes(&place.dir) / SPACE_PARTS);
        }
        places.retain(|place| place.most > 0);
        Reserve { storage, places, wanted: AtomicU64::new(BYTES_MIN), changing: Mutex::default() }
    }

    /// Notes that a job may write this many bytes, for which the reserve must suffice. Does not wait for a call that creates the reserve; that of a smaller size is then not the last one.
    pub fn grow(&self, bytes: u64) {
        self.wanted.fetch_max(BYTES_MIN.saturating_add(bytes), Ordering::AcqRel);
    }

    /// The wanted size of all files, within their limits.
    pub fn bytes(&self) -> u64 {
        let wanted = self.wanted.load(Ordering::Relaxed);
        self.places.iter().map(|place| wanted.min(place.most)).sum()
    }

    /// Removes the reserve, after a clean close.
    pub fn remove(&self) {
        let _changing = self.changing.lock();
        for place in &self.places {
            place.made.store(u64::MAX, Ordering::Release);
            if matches!(self.is_file(&place.dir), Ok(Some(true))) {
                // If the removal fails, the next open takes over the file.
                let _ = self.storage.remove(&place.dir.join(RESERVE));
            }
        }
    }

    /// Runs `work`; if it finds no space, releases the reserve and runs it once more. Remaining space returns to the
    /// reserve before writers can take it.
    pub fn with<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::NoSpace { path, tier }) => match self.lend(&path)? {
                Some(place) => {
                    let result = work();
                    self.take_back(place);
                    result
                }
                None => Err(Error::NoSpace { path, tier }),
            },
            result => result,
        }
    }

    /// Runs `take`, which allocates space for `path` but must not get that of the reserve: it fails while released space of
    /// this directory is in use.
    pub fn beside<T>(&self, path: &Path, take: impl FnOnce() -> Result<T>) -> Result<T> {
        let _changing = self.changing.lock();
        match self.place_of(path).is_some_and(Place::is_lent) {
            true => Err(Error::no_space(path)),
            false => take(),
        }
    }

    /// The place in the directory of a file.
    fn place_of(&self, path: &Path) -> Option<&Place> {
        self.places.iter().find(|place| path.parent() == Some(&*place.dir))
    }

    /// True if a call uses released space now, in any directory.
    pub fn is_lent(&self) -> bool {
        self.places.iter().any(Place::is_lent)
    }

    /// True if the reserve does not have its full size and can be created now.
    pub fn is_wanted(&self) -> bool {
        let wanted = self.wanted.load(Ordering::Acquire);
        self.places.iter().any(|place| place.is_wanted(wanted))
    }

    /// Creates the reserve, or as much of it as there is space for.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if the reserve does not have its full size afterwards, for whatever reason. The call can be
    /// repeated later.
    pub fn make(&self) -> Result<()> {
        let _changing = self.changing.lock();
        let wanted = self.wanted.load(Ordering::Acquire);
        let mut result = Ok(());
        for place in self.places.iter().filter(|place| place.is_wanted(wanted)) {
            result = result.and(self.make_one(place, wanted));
        }
        result
    }

    /// As [`make`](Reserve::make), in one directory.
    fn make_one(&self, place: &Place, wanted: u64) -> Result<()> {
        let path = place.dir.join(RESERVE);
        let is_made = self.make_file(place, &path, wanted.min(place.most)).unwrap_or(false);
        place.made.store(if is_made { wanted } else { 0 }, Ordering::Release);
        if is_made { Ok(()) } else { Err(Error::no_space(&path)) }
    }

    /// True if the file has its full size, or cannot be created in this directory at all.
    fn make_file(&self, place: &Place, path: &Path, bytes: u64) -> Result<bool> {
        let file = match self.is_file(&place.dir)? {
            Some(false) => return Ok(true),
            Some(true) => self.storage.open(path)?,
            None => self.storage.create(path, Access::Buffered)?,
        };
        // At least 1/16 of the largest size: enough for one or two edits. Less space than that is left to writers.
        let least = (place.most / 16).min(BYTES_MIN);
        for size in (0..5).map(|halvings| bytes >> halvings).take_while(|size| *size >= least) {
            match file.allocate(size) {
                // A file system without preallocation has no reserve.
                Ok(false) => return self.storage.remove(path).map(|()| true),
                Ok(true) => return Ok(size == bytes),
                Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// `None` if the directory has no entry of that name; else whether it is an ordinary file. Other entries are
    /// foreign.
    fn is_file(&self, dir: &Path) -> Result<Option<bool>> {
        let entries = self.storage.list(dir)?;
        Ok(entries.into_iter().find(|entry| entry.name == RESERVE).map(|entry| entry.is_file))
    }

    /// Releases the reserve in the directory of `full`, which found no space; `None` if there is none.
    fn lend(&self, full: &Path) -> Result<Option<&Place>> {
        let _changing = self.changing.lock();
        let Some(place) = self.place_of(full) else { return Ok(None) };
        let dir = &place.dir;
        // If another call uses released space already, the rest of it is worth a try.
        if !place.is_lent() {
            let path = dir.join(RESERVE);
            let is_worth = || -> Result<bool> {
                Ok(self.is_file(dir)? == Some(true) && self.storage.file_len(&path)?.is_some_and(|len| len > 0))
            };
            // The caller reports the first error, that there is no space.
            if !is_worth().unwrap_or(false) || self.storage.remove(&path).is_err() {
                return Ok(None);
            }
            place.made.store(0, Ordering::Release);
            // Some file systems free the space of a removed file only once the removal is durable.
            match self.storage.sync_dir(dir) {
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        place.lent.fetch_add(1, Ordering::AcqRel);
        Ok(Some(place))
    }

    /// Ends the use of released space and creates the reserve again. What does not fit now is created later.
    fn take_back(&self, place: &Place) {
        let _changing = self.changing.lock();
        if place.lent.load(Ordering::Acquire) == 1 {
            let _ = self.make_one(place, self.wanted.load(Ordering::Acquire));
        }
        place.lent.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimDisk;
    use crate::sched::sim::simulate;
    use crate::sched::thread::spawn;

    #[test]
    fn released_space_of_one_directory_is_kept_from_logs_there_alone() {
        let (disk, fast, slow) = (SimDisk::new(), Path::new("/fast"), Path::new("/slow"));
        [fast, slow].into_iter().for_each(|dir| disk.create_dir_all(dir).unwrap());
        let reserve = Reserve::new(Arc::new(disk.clone()), fast, slow, &Tuning::tiny());
        reserve.make().unwrap();
        let mut tries = 0;
        let used = reserve.with(|| {
            tries += 1;
            if tries == 1 {
                return Err(Error::no_space(&slow.join("1.table")));
            }
            assert!(reserve.beside(&fast.join("2.log"), || Ok(())).is_ok() && reserve.is_lent());
            let refused = reserve.beside(&slow.join("2.log"), || Ok(()));
            assert!(matches!(&refused, Err(Error::NoSpace { path, .. }) if path.starts_with(slow)), "{refused:?}");
            assert_eq!(disk.file_len(&slow.join(RESERVE)).unwrap(), None);
            assert!(disk.file_len(&fast.join(RESERVE)).unwrap().is_some(), "it has nothing to give here");
            Ok(())
        });
        assert!(used.is_ok() && tries == 2 && !reserve.is_lent() && !reserve.is_wanted());
        assert!(disk.file_len(&slow.join(RESERVE)).unwrap().is_some());
    }

    #[test]
    fn a_reserve_that_must_grow_while_it_is_made_gets_the_larger_size() {
        for seed in 0..50 {
            let made = simulate(seed, || {
                let (disk, dir) = (SimDisk::new(), Path::new("/db"));
                disk.create_dir_all(dir).unwrap();
                let tuning = Tuning { reserve_bytes: 8 << 20, ..Tuning::tiny() };
                let reserve = Arc::new(Reserve::new(Arc::new(disk.clone()), dir, dir, &tuning));
                let growing = reserve.clone();
                let thread = spawn("growing", move || {
                    (1..8).for_each(|stored| {
                        growing.grow(stored << 16);
                        crate::sched::sim::yield_point();
                    });
                });
                while reserve.is_wanted() {
                    reserve.make().unwrap();
                }
                thread.join().unwrap();
                while reserve.is_wanted() {
                    reserve.make().unwrap();
                }
                disk.file_len(&dir.join(RESERVE)).unwrap()
            });
            assert_eq!(made.unwrap(), Some(BYTES_MIN + (7 << 16)), "seed {seed}");
        }
    }
}
