//! If a commit group, a sync or a close fails, all callers that wait for it get the same error.

use std::path::Path;

use super::*;
use crate::engine::tuning::sizes::Tuning;
use crate::io::{Faults, SimDisk};
use crate::sched::sim::simulate;
use crate::sched::sync::Mutex;
use crate::sched::thread::spawn;
use crate::{Db, KeyspaceOptions, LogBackend, Options, WriteBatch};

fn in_world<T: Send + 'static>(seed: u64, test: impl FnOnce() -> T + Send + 'static) -> T {
    simulate(seed, test).unwrap_or_else(|failure| panic!("{failure}"))
}

/// A database with one unsynced record, and with its spare log ready.
fn open(disk: &SimDisk, backend: LogBackend) -> Db {
    let options = Options::new().log_backend(backend);
    let db = crate::api::db::open(Arc::new(disk.clone()), Path::new("/db"), options, Some(Tuning::tiny())).unwrap();
    db.put("first", "v").unwrap();
    db.wait_for_background().unwrap();
    db
}

fn batch(db: &Db, key: &str, len: usize) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&db.default_keyspace(), key, vec![b'v'; len]);
    batch
}

fn waiting(batch: WriteBatch) -> WaitingWriter {
    WaitingWriter { ticket: 0, batch: batch.0, wakes: Arc::default() }
}

/// Runs `call` on two threads at once; returns both results.
fn both<T: Send + 'static>(db: &Db, call: fn(Db) -> T) -> [T; 2] {
    let answer = Arc::new(Mutex::new(None));
    let (other, sink) = (db.clone(), answer.clone());
    let thread = spawn("other", move || *sink.lock() = Some(call(other)));
    let own = call(db.clone());
    thread.join().unwrap();
    let other = answer.lock().take().expect("the thread has ended");
    [own, other]
}

#[test]
fn all_writers_of_a_failed_group_get_the_same_error() {
    let cases = [
        (Faults { fail_write_after: Some(0), ..Faults::default() }, 1, "Io"),
        // The group does not fit into the rest of the log, and there is no space for a new one.
        (Faults { no_space_after_bytes: Some(0), ..Faults::default() }, 500_000, "NoSpace"),
    ];
    for (faults, len, kind) in cases {
        in_world(1, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Plain);
            let group = ["a", "b", "c"].map(|key| waiting(batch(&db, key, len)));
            disk.set_faults(faults);
            let results = db.inner.core.commit_group(&group);
            disk.clear_faults();
            let said: Vec<String> = results.into_iter().map(|result| format!("{:?}", result.unwrap_err())).collect();
            assert!(said[0].starts_with(kind) && said[0].contains(".log"), "{said:?}");
            assert!(said.iter().all(|other| *other == said[0]), "{said:?}");
        });
    }
}

#[test]
fn of_a_group_only_the_batches_for_which_an_index_has_no_memory_are_refused() {
    in_world(1, || {
        let mut tuning = Tuning::tiny();
        tuning.memory_bytes = 384 << 10;
        let disk = Arc::new(SimDisk::new());
        let db = crate::api::db::open(disk, Path::new("/db"), Options::new(), Some(tuning)).unwrap();
        let keyspace = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
        let free = || {
            let hash = db.stats().hash;
            hash.index_bytes_max.saturating_sub(hash.index_bytes)
        };
        let mut keys = 0;
        while free() > 2000 {
            keyspace.put(format!("{keys}"), "value").unwrap();
            keys += 1;
        }
        // One such key has room, and no second one.
        let len = free() * 3 / 4;
        assert!(len > 500, "{len} B");
        let write = |key: &str, len: usize| {
            let mut batch = WriteBatch::new();
            batch.put(&keyspace, format!("{key:x>len$}"), "new");
            batch.put(&db.default_keyspace(), key, "ordered");
            waiting(batch)
        };
        let group = [write("a", len), write("7", 1), write("b", len), write("8", 1)];
        let before = db.stats().seqno;
        let results = db.inner.core.commit_group(&group);
        let wanted = [Some(2), Some(4), None, Some(6)].map(|count| count.map(|count| Seqno(before + count)));
        assert!(matches!(results[2], Err(Error::IndexFull { .. })), "{results:?}");
        assert_eq!(results.into_iter().map(Result::ok).collect::<Vec<_>>(), wanted);
        assert_eq!(db.stats().seqno, before + 6, "what was refused has used no sequence numbers");
        for (key, len, is_there) in [("a", len, true), ("7", 1, true), ("b", len, false), ("8", 1, true)] {
            let found = keyspace.get(format!("{key:x>len$}")).unwrap();
            assert_eq!(found.as_deref(), is_there.then_some(&b"new"[..]), "{key}");
            assert_eq!(db.get(key).unwrap().as_deref(), is_there.then_some(&b"ordered"[..]), "{key}");
        }
        assert_eq!(keyspace.stats().unwrap().entries, keys + 1);
    });
}

#[test]
fn all_callers_of_a_failed_sync_get_the_same_error() {
    let mut shared = 0;
    for seed in 0..30 {
        shared += in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Plain);
            disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
            let said = both(&db, |db| format!("{:?}", db.sync().unwrap_err()));
            assert!(said.iter().any(|said| said.starts_with("Io")), "{said:?}");
            // A call that begins after the failure finds the database poisoned.
            assert!(said.iter().all(|said| said.starts_with("Io") || said.starts_with("Poisoned")), "{said:?}");
            assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
            usize::from(said[0] == said[1])
        });
    }
    assert!(shared > 0, "no caller waited for the sync of the other");
}

#[test]
fn all_callers_of_a_failed_close_get_the_same_error() {
    for seed in 0..10 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Plain);
            disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
            let said = both(&db, |db| format!("{:?}", db.close().unwrap_err()));
            assert!(said[0].starts_with("Io") && said[0] == said[1], "{said:?}");
        });
    }
}

#[test]
fn a_failed_chunk_write_is_reported_with_its_operation_and_file() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        disk.set_faults(Faults { fail_write_after: Some(0), ..Faults::default() });
        let failed = db.sync();
        assert!(
            matches!(&failed, Err(Error::Io { operation: "write", path, .. }) if path.ends_with("00000002.log") || path.ends_with("00000003.log")),
            "{failed:?}"
        );
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
    });
}
