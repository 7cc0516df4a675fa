//! Operations that work on a full disk, because space is reserved for them.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Storage, Tuning};
use cleavedb::{Compression, Db, Error, KeyspaceOptions, LogBackend, Options, Result};

use crate::support::{in_world, open, open_with, value, with_each_log};

/// The reserve for [`front_of_one_flush`].
const RESERVE_BYTES: u64 = 192 << 10;
const KEYSPACES: usize = 150;

fn reserve(disk: &SimDisk) -> Option<u64> {
    disk.files().into_iter().find(|(path, _)| path == Path::new("/db/RESERVE")).map(|(_, len)| len)
}

/// Nothing is flushed unless requested.
fn front_of_one_flush() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.flush_bytes, tuning.reserve_bytes) = (128 << 10, RESERVE_BYTES);
    (tuning.separation_bytes, tuning.close_flush_bytes) = (usize::MAX, 1 << 30);
    tuning
}

fn open_front(disk: &SimDisk, backend: LogBackend) -> Result<Db> {
    open_with(disk, Options::new().log_backend(backend).compression(Compression::None), front_of_one_flush())
}

/// A database with a front worth a flush, some keyspaces, its reserve, and no other free space.
fn full(disk: &SimDisk, backend: LogBackend) -> (Db, usize) {
    let db = open_front(disk, backend).unwrap();
    (0..KEYSPACES).for_each(|number| drop(db.create_keyspace(&number.to_string(), KeyspaceOptions::new()).unwrap()));
    for number in 0..120 {
        db.put(format!("{number:06}"), value("v", 300)).unwrap();
    }
    db.sync().unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(reserve(disk), Some(RESERVE_BYTES));
    disk.set_capacity(Some(disk.used()));
    // Writers fill the rest of the log.
    let count = (120..).find(|number| match db.put(format!("{number:06}"), value("v", 300)) {
        Ok(()) => false,
        Err(Error::NoSpace { .. }) => true,
        Err(error) => panic!("{error}"),
    });
    (db, count.unwrap())
}

fn assert_holds(db: &Db, least: usize, most: usize) {
    let keys: Vec<_> = db.iter().unwrap().map(|item| item.unwrap().0).collect();
    assert!((least..=most).contains(&keys.len()), "{} keys, {least} to {most} expected", keys.len());
    assert!(keys.iter().enumerate().all(|(number, key)| *key == format!("{number:06}").as_bytes()[..]));
}

#[test]
fn on_a_full_disk_the_front_is_flushed() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let (db, count) = full(&disk, backend);
        db.flush().unwrap();
        assert!(db.stats().flushes > 0);
        assert_holds(&db, count, count);
        // The space that the flush leaves goes back into the reserve, that of the logs once they are removed.
        db.wait_for_background().unwrap();
        assert!(reserve(&disk).is_some_and(|len| (RESERVE_BYTES / 4..RESERVE_BYTES).contains(&len)), "{disk:?}");
        db.close().unwrap();
        let db = open_front(&disk, backend).unwrap();
        assert_holds(&db, count, count);
        db.close().unwrap();
    });
}

/// During a flush that uses the reserve, and when it ends, in many thread schedules.
#[test]
fn writers_cannot_use_the_reserve() {
    for seed in 0..20 {
        in_world(seed, || {
            let disk = SimDisk::new();
            let (db, count) = full(&disk, LogBackend::Plain);
            let flushed = Arc::new(AtomicBool::new(false));
            let writer = {
                let (db, flushed) = (db.clone(), flushed.clone());
                testing::spawn("writer", move || {
                    while !flushed.load(Ordering::SeqCst) {
                        // The log that the flush frees is smaller.
                        let refused = db.put("x", value("v", 90_000));
                        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
                    }
                })
            };
            db.flush().unwrap();
            flushed.store(true, Ordering::SeqCst);
            writer.join().unwrap();
            assert_holds(&db, count, count);
            db.close().unwrap();
        });
    }
}

#[test]
fn on_a_full_disk_keyspaces_are_dropped_and_a_close_is_clean() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let (db, count) = full(&disk, backend);
        for number in 0..KEYSPACES {
            db.drop_keyspace(&number.to_string()).unwrap();
        }
        assert!(matches!(db.put("x", value("v", 70_000)), Err(Error::NoSpace { .. })));
        db.close().unwrap();
        let db = open_front(&disk, backend).unwrap();
        assert_eq!(db.keyspaces().len(), 1);
        assert_holds(&db, count, count);
        db.close().unwrap();
        let report = testing::check(Arc::new(disk), Path::new("/db"), &Options::new()).unwrap();
        assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
    });
}

#[test]
fn a_used_reserve_is_restored_once_there_is_space() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let (db, count) = full(&disk, backend);
        db.flush().unwrap();
        disk.set_capacity(None);
        testing::sleep(Duration::from_secs(7));
        assert_eq!(reserve(&disk), Some(RESERVE_BYTES));
        db.put(format!("{count:06}"), "v").unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(reserve(&disk), Some(RESERVE_BYTES));
        db.close().unwrap();
        // An open database has a reserve; a closed one does not need it.
        assert_eq!(reserve(&disk), None);
        assert_holds(&open_front(&disk, backend).unwrap(), count + 1, count + 1);
    });
}

#[test]
fn after_a_crash_while_the_reserve_is_released_the_database_opens_on_the_full_disk() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let (db, count) = full(&disk, backend);
        let capacity = disk.used();
        let images = Arc::new(Mutex::new(Vec::new()));
        let into = images.clone();
        disk.on_sync(move |disk, _| {
            let mut images = into.lock().unwrap();
            let seed = images.len() as u64;
            images.extend([(disk.process_crash(), count), (disk.power_loss(seed), 120)]);
        });
        db.flush().unwrap();
        for number in 0..5 {
            db.drop_keyspace(&number.to_string()).unwrap();
        }
        disk.clear_on_sync();
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.iter().any(|(image, _)| reserve(image).is_none()) && images.len() > 10);
        for (image, least) in images {
            image.clear_on_sync();
            image.set_capacity(Some(capacity.max(image.used())));
            let db = open_front(&image, backend).unwrap();
            assert_holds(&db, least, count);
            db.close().unwrap();
        }
    });
}

#[test]
fn recovery_on_a_full_disk_flushes_the_logs_with_the_reserve() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let (db, count) = full(&disk, backend);
        let crashed = disk.process_crash();
        disk.halt();
        drop(db);
        crashed.set_capacity(Some(crashed.used()));
        // A read-only open needs no space, and leaves the reserve alone.
        let reader = open_with(&crashed, Options::new().read_only(true), front_of_one_flush()).unwrap();
        assert_holds(&reader, count, count);
        reader.close().unwrap();
        assert_eq!(reserve(&crashed), Some(RESERVE_BYTES));
        let db = open_front(&crashed, backend).unwrap();
        assert_holds(&db, count, count);
        db.flush().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn without_space_for_a_reserve_an_open_succeeds_without_one() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        disk.set_capacity(Some(160 << 10));
        let mut tuning = front_of_one_flush();
        tuning.reserve_bytes = 4 << 20;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        testing::sleep(Duration::from_secs(10));
        db.wait_for_background().unwrap();
        assert_eq!(reserve(&disk).unwrap_or_default(), 0);
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        db.close().unwrap();
    });
}

#[test]
fn each_directory_has_a_reserve_and_a_checkpoint_has_none() {
    in_world(3, || {
        let disk = SimDisk::new();
        let options = Options::new().slow_dir("/slow");
        let db = open_with(&disk, options, Tuning::tiny()).unwrap();
        testing::sleep(Duration::from_millis(10));
        db.put("k", "v").unwrap();
        db.checkpoint("/copy").unwrap();
        let reserves = disk.files().into_iter().filter(|(path, _)| path.ends_with("RESERVE"));
        let found: Vec<_> = reserves.map(|(path, len)| (path.to_string_lossy().into_owned(), len)).collect();
        let tuning = Tuning::tiny();
        let expected = [("/db/RESERVE", tuning.manifest_bytes), ("/slow/RESERVE", tuning.reserve_bytes)];
        assert_eq!(found, expected.map(|(path, len)| (path.to_owned(), len)));
        db.close().unwrap();
    });
}

#[test]
fn a_foreign_file_with_the_name_of_the_reserve_is_kept() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        open(&disk, backend).unwrap().close().unwrap();
        if reserve(&disk).is_some() {
            disk.remove(Path::new("/db/RESERVE")).unwrap();
        }
        disk.write_file(Path::new("/db/RESERVE/file"), b"mine");
        let db = open(&disk, backend).unwrap();
        for number in 0..50 {
            db.put(format!("{number:06}"), value("v", 300)).unwrap();
        }
        db.wait_for_background().unwrap();
        disk.set_capacity(Some(disk.used()));
        let _ = db.flush();
        disk.set_capacity(None);
        db.close().unwrap();
        assert_eq!(disk.read_file(Path::new("/db/RESERVE/file")).unwrap(), b"mine");
    });
}
