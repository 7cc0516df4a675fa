//! All interleavings of a writer that inserts, publishes and seals, with readers that take view and sequence number
//! together. The tested file is the engine's own; only its lock and its atomic are loom's.

// `Seqno` stands for the engine's type of the same name.
#![allow(dead_code, reason = "the model does not use every call of the file under test")]

use loom::sync::{Arc, Mutex};
use loom::thread;

mod handover {
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

#[path = "../src/engine/published.rs"]
mod published;

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
