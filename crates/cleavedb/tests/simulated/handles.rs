//! Opening, cloning, closing.

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Db, Error, Iter, Keyspace, Options, Slice, Snapshot, WriteBatch};

use crate::support::{in_world, open, open_with, with_each_log};

#[test]
fn handles_can_be_sent_and_shared_between_threads() {
    fn shared<T: Send + Sync + Clone + 'static>() {}
    fn moved<T: Send + 'static>() {}
    shared::<Db>();
    shared::<Keyspace>();
    shared::<Snapshot>();
    shared::<Slice>();
    shared::<WriteBatch>();
    moved::<Iter>();
    moved::<Error>();
}

#[test]
fn a_second_open_is_refused_until_the_first_is_closed() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        assert!(matches!(open(&disk, backend), Err(Error::Locked { .. })));
        db.close().unwrap();
        let db = open(&disk, backend).unwrap();
        let keyspace = db.default_keyspace();
        drop(db);
        assert!(matches!(open(&disk, backend), Err(Error::Locked { .. })), "a keyspace is a handle too");
        drop(keyspace);
        open(&disk, backend).unwrap();
    });
}

#[test]
fn dropping_the_last_handle_closes_cleanly() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put("key", "value").unwrap();
        let snapshot = db.snapshot();
        drop(db);
        drop(snapshot);
        for seed in 0..5 {
            let db = open(&disk.power_loss(seed), backend).unwrap();
            assert_eq!(db.get("key").unwrap().unwrap(), "value");
        }
    });
}

#[test]
fn after_a_close_other_handles_get_an_error() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        db.put("key", "value").unwrap();
        let (other, keyspace, snapshot) = (db.clone(), db.default_keyspace(), db.snapshot());
        db.close().unwrap();
        assert!(matches!(other.put("key", "value"), Err(Error::Closed)));
        assert!(matches!(other.get("key"), Err(Error::Closed)));
        assert!(matches!(other.sync(), Err(Error::Closed)));
        assert!(matches!(other.flush(), Err(Error::Closed)));
        assert!(matches!(other.keyspace("new"), Err(Error::Closed)));
        assert!(matches!(keyspace.put("key", "value"), Err(Error::Closed)));
        assert!(matches!(keyspace.iter(), Err(Error::Closed)));
        assert!(matches!(snapshot.get(&keyspace, "key"), Err(Error::Closed)));
        assert!(matches!(other.close(), Ok(()) | Err(Error::Closed)));
    });
}

#[test]
fn a_database_in_memory_works_and_leaves_no_files() {
    let db = Db::in_memory().unwrap();
    for number in 0..1000_u32 {
        db.put(number.to_be_bytes(), vec![7; 300]).unwrap();
    }
    db.flush().unwrap();
    assert_eq!(db.iter().unwrap().count(), 1000);
    assert_eq!(db.range(5_u32.to_be_bytes().to_vec()..=7_u32.to_be_bytes().to_vec()).unwrap().count(), 3);
    db.close().unwrap();
    assert_eq!(Db::in_memory().unwrap().iter().unwrap().count(), 0);
}

#[test]
fn a_database_is_created_only_if_the_options_allow_it() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().log_backend(backend).create_if_missing(false);
        assert!(matches!(open_with(&disk, options(), Tuning::tiny()), Err(Error::NotFound { .. })));
        drop(open(&disk, backend).unwrap());
        open_with(&disk, options(), Tuning::tiny()).unwrap();
    });
}

#[test]
fn many_threads_may_write_and_read_at_once() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let db = db.clone();
                testing::spawn("writer", move || {
                    for number in 0..50 {
                        let key = format!("{thread} {number}");
                        db.put(&key, vec![b'v'; number * 7]).unwrap();
                        assert_eq!(db.get(&key).unwrap().unwrap().len(), number * 7);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(db.iter().unwrap().count(), 200);
        assert_eq!(db.stats().seqno, 200);
    });
}

#[test]
fn a_second_close_waits_for_the_first_and_returns_its_result() {
    for seed in 0..10 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let backend = crate::support::BACKENDS[seed as usize % 2];
            let db = open(&disk, backend).unwrap();
            for number in 0..100 {
                db.put(format!("{number}"), vec![b'v'; 400]).unwrap();
            }
            let first = db.clone();
            let closing = testing::spawn("closing", move || first.close().unwrap());
            while db.put("x", "v").is_ok() {
                testing::yield_point();
            }
            db.close().unwrap();
            // The directory is not locked any more.
            open(&disk, backend).unwrap().close().unwrap();
            closing.join().unwrap();
        });
    }
}

#[test]
fn concurrent_closes_return_the_same_failure() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put("k", "v").unwrap();
        let other = db.clone();
        disk.set_faults(Faults { fail_sync_after: Some(0), lasting: true, ..Faults::default() });
        assert!(db.close().is_err());
        assert!(other.close().is_err());
    });
}
