//! All interleavings of a writer that inserts, publishes and seals, with readers that take view and sequence number
//! together; and of a move of a file to another directory, with readers of the file and the removal of the old one. The tested
//! files are the engine's own; only their locks, atomics and counted pointers are loom's.

// `Seqno`, `FileKey` and `PendingDeletions` stand for the engine's types of the same names.
#![allow(dead_code, reason = "the model does not use every call of the files under test")]

use std::path::Path;

use loom::sync::{Arc, Mutex};
use loom::thread;

mod handover {
    pub use loom::sync::Arc;
    pub use loom::sync::atomic::AtomicU64;

    /// As in the engine.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    pub struct Seqno(pub u64);

    /// loom's lock with the interface of the engine's lock.
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        pub fn new(value: T) -> RwLock<T> {
            RwLock(loom::sync::RwLock::new(value))
        }
        pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
            self.0.read().expect("no thread of the model panics")
        }
        pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
            self.0.write().expect("no thread of the model panics")
        }
    }
}

mod guarding {
    pub use loom::sync::atomic::AtomicBool;
    use std::path::Path;
    use std::sync::Arc;

    #[derive(Debug, Clone, Copy)]
    pub struct FileKey;

    pub struct FileRange {
        pub path: Arc<Path>,
        pub offset: u64,
        pub len: u64,
    }

    pub enum Obsolete {
        File(Arc<Path>),
        Range(FileRange),
    }

    /// Of the engine's, the list: what waits and what is taken.
    #[derive(Default)]
    pub struct PendingDeletions(loom::sync::Mutex<Vec<Obsolete>>);

    impl PendingDeletions {
        pub fn add(&self, obsolete: Obsolete) {
            self.0.lock().expect("no thread of the model panics").push(obsolete);
        }
        pub fn take(&self) -> Option<Obsolete> {
            self.0.lock().expect("no thread of the model panics").pop()
        }
    }
}

#[path = "../src/io/file_guard.rs"]
mod file_guard;
#[path = "../src/engine/published.rs"]
mod published;

use file_guard::FileGuard;
use guarding::{FileKey, Obsolete, PendingDeletions};
use handover::Seqno;
use published::Published;

type Table = Arc<Mutex<Vec<u64>>>;

/// The index table that takes writes, and the sealed ones.
#[derive(Clone)]
struct View {
    active: Table,
    sealed: Vec<Table>,
}

impl View {
    fn holds(&self, seqno: u64) -> bool {
        let tables = self.sealed.iter().chain([&self.active]);
        tables.into_iter().any(|table| table.lock().expect("no thread of the model panics").contains(&seqno))
    }
}

fn insert(published: &Published<View>, seqno: u64) {
    published.view().active.lock().expect("no thread of the model panics").push(seqno);
    published.publish(Seqno(seqno));
}

fn seal(published: &Published<View>) {
    published.update(|view| {
        let mut sealed = view.sealed.clone();
        sealed.push(view.active.clone());
        View { active: Table::default(), sealed }
    });
}

#[test]
fn a_reader_finds_everything_up_to_its_sequence_number_in_its_view() {
    loom::model(|| {
        let view = View { active: Table::default(), sealed: Vec::new() };
        let published = Arc::new(Published::new(view, Seqno(0)));
        let writer = {
            let published = published.clone();
            thread::spawn(move || {
                insert(&published, 1);
                seal(&published);
                insert(&published, 2);
            })
        };
        let (view, seqno) = published.read();
        for expected in 1..=seqno.0 {
            assert!(view.holds(expected), "a reader at {} misses {expected}", seqno.0);
        }
        writer.join().expect("the writer does not panic");
        assert_eq!(published.read().1, Seqno(2));
    });
}

/// The files that exist.
type Disk = Mutex<Vec<std::sync::Arc<Path>>>;

fn has(disk: &Disk, path: &Path) -> bool {
    disk.lock().expect("no thread of the model panics").iter().any(|file| **file == *path)
}

/// Removes what nobody holds; each such file exists.
fn remove_pending(disk: &Disk, pending: &PendingDeletions) {
    while let Some(Obsolete::File(path)) = pending.take() {
        assert!(has(disk, &path), "{} is removed twice", path.display());
        disk.lock().expect("no thread of the model panics").retain(|file| *file != path);
    }
}

#[test]
fn a_file_that_moves_is_there_for_its_readers_and_the_old_one_goes_once() {
    loom::model(|| {
        let pending = std::sync::Arc::new(PendingDeletions::default());
        let disk = Arc::new(Disk::new(vec![Path::new("fast/1").into()]));
        let guard = |path: &str| Arc::new(FileGuard::new(FileKey, Path::new(path), pending.clone()));
        let published = Arc::new(Published::new(guard("fast/1"), Seqno(0)));
        let copy = guard("slow/1");
        let mover = {
            let (published, disk, pending) = (published.clone(), disk.clone(), pending.clone());
            thread::spawn(move || {
                disk.lock().expect("no thread of the model panics").push(copy.path().clone());
                published.update(|before| {
                    before.mark_obsolete();
                    copy.clone()
                });
                remove_pending(&disk, &pending);
            })
        };
        let reader = {
            let (published, disk) = (published.clone(), disk.clone());
            thread::spawn(move || {
                let view = published.view();
                assert!(has(&disk, view.path()), "{} is gone", view.path().display());
                assert!(has(&disk, view.path()), "{} went while it was held", view.path().display());
            })
        };
        reader.join().expect("the reader does not panic");
        mover.join().expect("the mover does not panic");
        // The reader may have been the last that held it.
        remove_pending(&disk, &pending);
        assert!(!has(&disk, Path::new("fast/1")) && has(&disk, Path::new("slow/1")));
    });
}
