//! The reserve: a file [`RESERVE`] that only takes up space, so that there is some when the disk is full (rule 9).
//! A flush, the emptying of files of values and the edits of the manifest that end or drop something give it up and are
//! tried again at once; all of them make room in the end. Logs and what compactions write do not get it.
//!
//! Its size follows what is stored, since no job writes more than that: it grows with the data up to what the tuning says,
//! and goes at a clean close.
//!
//! Nothing depends on its content, and nothing of it is synced but its removal: one that a crash takes is made again, one
//! that a crash brings back is given up again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::base::{Error, Result};
use crate::engine::manifest::file_names::RESERVE;
use crate::engine::tuning::sizes::Tuning;
use crate::io::{Access, Storage};
use crate::sched::sync::Mutex;

/// Of a small file system no more than one part in so many is set apart: logs need room as well.
const SPACE_PARTS: u64 = 16;

/// So much is set apart however little is stored: enough for edits.
const BYTES_MIN: u64 = 256 << 10;

/// What is set apart in each directory.
pub(crate) struct Reserve {
    storage: Arc<dyn Storage>,
    /// Directories, and how many bytes there at most.
    places: Vec<(PathBuf, u64)>,
    /// How many bytes are to be set apart in each, as far as they may.
    wanted: AtomicU64,
    /// Held while any of it is made or given up, and while a log gets its space.
    changing: Mutex<()>,
    /// All of it is there, or never will be.
    settled: AtomicBool,
    /// How many are at work with what was given up.
    lent: AtomicUsize,
}

impl Reserve {
    /// The reserve of a database; it touches nothing until it is needed or made.
    pub fn new(storage: Arc<dyn Storage>, fast: &Path, slow: &Path, tuning: &Tuning) -> Reserve {
        let mut places = vec![(slow.to_owned(), tuning.reserve_bytes)];
        if slow != fast {
            places.push((fast.to_owned(), tuning.manifest_bytes.min(tuning.reserve_bytes)));
        }
        for (dir, bytes) in &mut places {
            *bytes = (*bytes).min(storage.file_system_bytes(dir) / SPACE_PARTS);
        }
        places.retain(|(_, bytes)| *bytes > 0);
        let settled = AtomicBool::new(places.is_empty());
        let (changing, wanted, lent) = (Mutex::default(), AtomicU64::new(BYTES_MIN), AtomicUsize::new(0));
        Reserve { storage, places, wanted, changing, settled, lent }
    }

    /// So many bytes are stored, or soon will be: there is to be enough for a job that writes all of them.
    pub fn grow(&self, stored: u64) {
        let needed = BYTES_MIN.saturating_add(stored);
        let wanted = self.wanted.load(Ordering::Acquire);
        if needed <= wanted {
            return;
        }
        self.wanted.store(needed, Ordering::Release);
        if self.places.iter().any(|(_, most)| *most > wanted) {
            self.settled.store(false, Ordering::Release);
        }
    }

    /// Gives all of it up, after a clean close.
    pub fn remove(&self) {
        let _changing = self.changing.lock();
        self.settled.store(true, Ordering::Release);
        for (dir, _) in &self.places {
            if matches!(self.is_file(dir), Ok(Some(true))) {
                // If it stays, the next open takes it over.
                let _ = self.storage.remove(&dir.join(RESERVE));
            }
        }
    }

    /// Does some work; if there is no space for it, once more with what is set apart. What is left of that is set apart
    /// again before writers can have it.
    pub fn with<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(Error::NoSpace { path }) if self.lend(&path)? => {
                let result = work();
                self.take_back();
                result
            }
            result => result,
        }
    }

    /// Takes space for what has no right to any of it: there is none while somebody is at work with it.
    pub fn beside<T>(&self, path: &Path, take: impl FnOnce() -> Result<T>) -> Result<T> {
        let _changing = self.changing.lock();
        if self.is_lent() { Err(Error::NoSpace { path: path.to_owned() }) } else { take() }
    }

    /// Somebody is at work with it.
    fn is_lent(&self) -> bool {
        self.lent.load(Ordering::Acquire) > 0
    }

    /// True if it is not whole and can be made.
    pub fn is_wanted(&self) -> bool {
        !self.settled.load(Ordering::Acquire) && !self.is_lent()
    }

    /// Sets apart as much as there is room for.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if that is not all, for whatever reason: nothing depends on it, and it can be tried again.
    pub fn make(&self) -> Result<()> {
        let _changing = self.changing.lock();
        if self.is_wanted() { self.make_all() } else { Ok(()) }
    }

    fn make_all(&self) -> Result<()> {
        let mut result = Ok(());
        for (dir, most) in &self.places {
            let path = dir.join(RESERVE);
            let bytes = self.wanted.load(Ordering::Acquire).min(*most);
            if !self.make_one(dir, &path, bytes, *most).unwrap_or(false) {
                result = Err(Error::NoSpace { path });
            }
        }
        self.settled.store(result.is_ok(), Ordering::Release);
        result
    }

    /// True if it is whole, or cannot be had here at all.
    fn make_one(&self, dir: &Path, path: &Path, bytes: u64, most: u64) -> Result<bool> {
        let file = match self.is_file(dir)? {
            Some(false) => return Ok(true),
            Some(true) => self.storage.open(path)?,
            None => self.storage.create(path, Access::Buffered)?,
        };
        // At worst a sixteenth of the most: enough for an edit or two. What is less than that is left to writers.
        let least = (most / 16).min(BYTES_MIN);
        for size in (0..5).map(|halvings| bytes >> halvings).take_while(|size| *size >= least) {
            match file.allocate(size) {
                // Where space cannot be reserved there is no reserve.
                Ok(false) => return self.storage.remove(path).map(|()| true),
                Ok(true) => return Ok(size == bytes),
                Err(Error::NoSpace { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(false)
    }

    /// Whether what has the name, if anything has, is an ordinary file; else it is someone else's.
    fn is_file(&self, dir: &Path) -> Result<Option<bool>> {
        let entries = self.storage.list(dir)?;
        Ok(entries.into_iter().find(|entry| entry.name == RESERVE).map(|entry| entry.is_file))
    }

    /// Gives up what is set apart where `full` found no space; false if there is nothing.
    fn lend(&self, full: &Path) -> Result<bool> {
        let _changing = self.changing.lock();
        let Some((dir, _)) = self.places.iter().find(|(dir, _)| full.parent() == Some(dir)) else { return Ok(false) };
        // Beside somebody who is at work with it, what is left is worth a try.
        if !self.is_lent() {
            let path = dir.join(RESERVE);
            let is_worth = || -> Result<bool> {
                Ok(self.is_file(dir)? == Some(true) && self.storage.file_len(&path)?.is_some_and(|len| len > 0))
            };
            // The first error, that there is no space, is the one to report.
            if !is_worth().unwrap_or(false) || self.storage.remove(&path).is_err() {
                return Ok(false);
            }
            self.settled.store(false, Ordering::Release);
            // Some file systems free the space of a removed file no earlier than the removal is durable.
            match self.storage.sync_dir(dir) {
                Err(error) if !error.is_transient() => return Err(error),
                _ => {}
            }
        }
        self.lent.fetch_add(1, Ordering::AcqRel);
        Ok(true)
    }

    /// The work is done or has failed. What is not to be had now is made later.
    fn take_back(&self) {
        let _changing = self.changing.lock();
        if self.lent.load(Ordering::Acquire) == 1 {
            let _ = self.make_all();
        }
        self.lent.fetch_sub(1, Ordering::AcqRel);
    }
}
