//! The cache of open files, bounded by a limit on their number: a [`Handle`] opens its file on the first read, may lose it
//! to other files, and opens it again on the next read.
//!
//! Eviction is CLOCK with a second chance: a file that was read since the hand last passed stays. A read of an open file
//! takes only the lock of its own handle, for the duration of a clone. A read in progress keeps its file open, so more
//! files than the limit can be open for a moment: one for each reader.
//!
//! A file is opened by its path, so the owner of a handle must keep the file from being removed
//! ([`FileGuard`](crate::io::file_guard::FileGuard)). Called by table readers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::storage::{Access, File, Storage};
use crate::base::Result;
use crate::sched::sync::Mutex;

/// The open files of one database.
pub struct Handles {
    storage: Arc<dyn Storage>,
    open_max: usize,
    clock: Mutex<Clock>,
    opened: AtomicU64,
}

/// The handles whose file is open, in the order in which the hand passes them.
#[derive(Default)]
struct Clock {
    slots: Vec<Weak<Slot>>,
    hand: usize,
}

#[derive(Default)]
struct Slot {
    file: Mutex<Option<Arc<dyn File>>>,
    /// Read since the hand last passed.
    used: AtomicBool,
}

/// One file, open or not.
pub struct Handle {
    path: Arc<Path>,
    access: Access,
    handles: Arc<Handles>,
    slot: Arc<Slot>,
}

impl Handles {
    /// Opens files of `storage` for reading, at most `open_max` at once (at least one).
    pub fn new(storage: Arc<dyn Storage>, open_max: usize) -> Handles {
        let open_max = open_max.max(1);
        Handles { storage, open_max, clock: Mutex::default(), opened: AtomicU64::new(0) }
    }

    /// A handle to the file at `path`, which is opened with `access` by the first read.
    pub fn handle(self: &Arc<Self>, path: Arc<Path>, access: Access) -> Handle {
        Handle { path, access, handles: self.clone(), slot: Arc::default() }
    }

    /// Number of files that are open now.
    pub fn open_count(&self) -> usize {
        self.clock.lock().slots.iter().filter(|slot| slot.strong_count() > 0).count()
    }

    /// Number of opens so far.
    pub fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }

    /// Opens a file; if the process has too many open files, first closes all idle files of this database.
    fn open(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        self.opened.fetch_add(1, Ordering::Relaxed);
        match self.storage.open_read(path, access) {
            Err(error) if error.is_too_many_files() => {
                self.close_idle();
                self.storage.open_read(path, access)
            }
            result => result,
        }
    }

    fn note_open(&self, slot: &Arc<Slot>) {
        let mut clock = self.clock.lock();
        clock.slots.push(Arc::downgrade(slot));
        let evicted = clock.evict_down_to(self.open_max);
        drop(clock);
        drop(evicted);
    }

    /// Closes all files that no thread is reading.
    pub fn close_idle(&self) {
        let evicted = self.clock.lock().evict_down_to(0);
        drop(evicted);
    }
}

impl Clock {
    /// Evicts files; what is returned is dropped after the lock is released, since that may close files.
    fn evict_down_to(&mut self, open_max: usize) -> (Vec<Arc<dyn File>>, Vec<Arc<Slot>>) {
        let (mut evicted, mut seen) = (Vec::new(), Vec::new());
        while self.slots.len() > open_max {
            self.hand %= self.slots.len();
            match self.slots[self.hand].upgrade() {
                Some(slot) if slot.used.swap(false, Ordering::Relaxed) => {
                    self.hand += 1;
                    seen.push(slot);
                }
                slot => {
                    // A slot in this list is open, and its lock is held only to clone the file.
                    evicted.extend(slot.as_ref().and_then(|slot| slot.file.lock().take()));
                    seen.extend(slot);
                    self.slots.swap_remove(self.hand);
                }
            }
        }
        (evicted, seen)
    }
}

impl Handle {
    /// The file's path.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The file, opened if it is not open.
    pub fn file(&self) -> Result<Arc<dyn File>> {
        let mut file = self.slot.file.lock();
        if let Some(file) = &*file {
            // Not written each time: readers on many cores share the cache line.
            if !self.slot.used.load(Ordering::Relaxed) {
                self.slot.used.store(true, Ordering::Relaxed);
            }
            return Ok(file.clone());
        }
        let opened = self.handles.open(&self.path, self.access)?;
        *file = Some(opened.clone());
        drop(file);
        self.handles.note_open(&self.slot);
        Ok(opened)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Error;
    use crate::io::{Faults, SimDisk};

    fn disk_with(files: usize) -> (SimDisk, Vec<Arc<Path>>) {
        let disk = SimDisk::new();
        let paths: Vec<Arc<Path>> = (0..files).map(|number| Path::new(&format!("/{number}")).into()).collect();
        for path in &paths {
            disk.write_file(path, path.as_os_str().as_encoded_bytes());
        }
        (disk, paths)
    }

    fn read(handle: &Handle) -> Result<Vec<u8>> {
        let mut bytes = vec![0; 10];
        let count = handle.file()?.read_at(&mut bytes, 0)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    #[test]
    fn all_files_can_be_read_while_the_limit_on_open_files_holds() {
        let (disk, paths) = disk_with(50);
        let handles = Arc::new(Handles::new(Arc::new(disk), 7));
        let all: Vec<Handle> = paths.iter().map(|path| handles.handle(path.clone(), Access::Buffered)).collect();
        assert_eq!(handles.open_count(), 0);
        for _ in 0..3 {
            for handle in &all {
                assert_eq!(read(handle).unwrap(), handle.path().as_os_str().as_encoded_bytes());
                assert!(handles.open_count() <= 7);
            }
        }
        assert!((100..=150).contains(&handles.opened()));
        drop(all);
        assert_eq!(handles.open_count(), 0);
    }

    #[test]
    fn a_file_that_is_read_often_stays_open() {
        let (disk, paths) = disk_with(50);
        let handles = Arc::new(Handles::new(Arc::new(disk), 4));
        let all: Vec<Handle> = paths.iter().map(|path| handles.handle(path.clone(), Access::Buffered)).collect();
        for handle in &all[1..] {
            read(&all[0]).unwrap();
            read(&all[0]).unwrap();
            read(handle).unwrap();
        }
        assert_eq!(handles.opened(), 50);
    }

    #[test]
    fn a_reader_keeps_its_file_after_eviction() {
        let (disk, paths) = disk_with(20);
        let handles = Arc::new(Handles::new(Arc::new(disk), 1));
        let all: Vec<Handle> = paths.iter().map(|path| handles.handle(path.clone(), Access::Buffered)).collect();
        let held = all[3].file().unwrap();
        all.iter().for_each(|handle| drop(read(handle).unwrap()));
        let mut bytes = [0; 2];
        assert_eq!(held.read_at(&mut bytes, 0).unwrap(), 2);
        assert_eq!(&bytes, b"/3");
    }

    #[test]
    fn a_failed_open_is_reported_and_tried_again_by_the_next_read() {
        let (disk, paths) = disk_with(1);
        let handles = Arc::new(Handles::new(Arc::new(disk.clone()), 1));
        let handle = handles.handle(paths[0].clone(), Access::Buffered);
        disk.set_faults(Faults { fail_read_one_in: Some(1), ..Faults::default() });
        assert!(matches!(read(&handle), Err(Error::Io { operation: "open", .. })));
        disk.clear_faults();
        assert_eq!(read(&handle).unwrap(), b"/0");
        assert_eq!(handles.open_count(), 1);
    }
}
