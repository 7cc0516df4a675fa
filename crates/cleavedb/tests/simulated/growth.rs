//! Logs, the ring and the reserve grow with the data, and are removed by a clean close; a crash at any moment of this
//! loses nothing.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Compression, Db, Error, LogBackend, Options};

use crate::support::{in_world, open_with, value};

/// Everything starts small, and a few hundred records cause several steps of growth.
fn growing() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (512 << 10, 16 << 10);
    (tuning.ring_bytes, tuning.ring_bytes_min) = (128 << 10, 16 << 10);
    tuning.chunk_bytes = 16 << 10;
    // All of it may stay in the front.
    (tuning.logs_bytes_max, tuning.replay_bytes_max, tuning.front_bytes_max) = (8 << 20, 8 << 20, 8 << 20);
    tuning
}

fn len_of(disk: &SimDisk, name: &str) -> u64 {
    let path = Path::new("/db").join(name);
    disk.files().into_iter().find(|(found, _)| *found == path).map_or(0, |(_, len)| len)
}

#[test]
fn a_crash_while_logs_and_ring_grow_or_are_removed_loses_nothing() {
    for seed in 0..3 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let options = || Options::new().log_backend(LogBackend::Ring).compression(Compression::None);
            let db = open_with(&disk, options(), growing()).unwrap();
            let (written, images) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Vec::new())));
            let (count, into) = (written.clone(), images.clone());
            disk.on_sync(move |disk, _| {
                into.lock().unwrap().push((disk.process_crash(), *count.lock().unwrap()));
            });
            let mut rings = Vec::new();
            for number in 0..3000 {
                db.put(format!("{number:06}"), value("v", 900)).unwrap();
                *written.lock().unwrap() = number + 1;
                // The process may crash at any time, and the ring has just changed.
                if rings.last() != Some(&len_of(&disk, "ring")) || number % 400 == 0 {
                    rings.push(len_of(&disk, "ring"));
                    images.lock().unwrap().push((disk.process_crash(), number + 1));
                }
            }
            rings.dedup();
            assert!(rings.len() > 2 && rings.first() < rings.last(), "the ring did not grow: {rings:?}");
            db.close().unwrap();
            disk.clear_on_sync();
            let names = ["ring", "ring.new", "RESERVE"];
            assert!(names.iter().all(|name| len_of(&disk, name) == 0), "{:?}", disk.files());
            let mut images = std::mem::take(&mut *images.lock().unwrap());
            let step = images.len().div_ceil(80);
            let last = images.len() - 20;
            let mut index = 0;
            // A sample of all images, and every image of the close.
            images.retain(|_| {
                index += 1;
                index > last || index % step == 0
            });
            for (image, count) in images {
                image.clear_on_sync();
                let db = open_with(&image, options(), growing()).unwrap();
                let found = db.iter().unwrap().count();
                assert!(found >= count, "{found} of {count} records are present");
                db.close().unwrap();
                assert!(names.iter().all(|name| len_of(&image, name) == 0), "{:?}", image.files());
            }
        });
    }
}

fn open_growing(disk: &SimDisk) -> Db {
    open_with(disk, Options::new().log_backend(LogBackend::Ring).compression(Compression::None), growing()).unwrap()
}

fn put(db: &Db, number: usize) -> cleavedb::Result<()> {
    db.put(format!("{number:06}"), value("v", 900))
}

/// The process crashes now: recovery must find the first `count` records.
fn assert_survives_a_crash(disk: &SimDisk, count: usize) {
    let db = open_growing(&disk.process_crash());
    let found = db.iter().unwrap().count();
    assert!(found >= count, "{found} of {count} records are present");
    db.close().unwrap();
}

/// Puts until a larger ring waits for the first log that was made for it; returns the number of records.
fn put_until_the_ring_grows(disk: &SimDisk, db: &Db) -> usize {
    let grown = (0..3000).find(|number| {
        put(db, *number).unwrap();
        len_of(disk, "ring.new") > 0
    });
    grown.expect("the ring grows") + 1
}

#[test]
fn a_ring_that_cannot_be_renamed_for_lack_of_space_loses_no_write() {
    let mut refused = 0;
    for seed in 0..4 {
        refused += in_world(seed, || {
            let disk = SimDisk::new();
            let db = open_growing(&disk);
            let mut refused = 0;
            for number in 0..2000 {
                // While a larger ring waits for its name, the next rename fails; it may also be one of the manifest.
                let no_space_rename_after = (len_of(&disk, "ring.new") > 0).then_some(0);
                disk.set_faults(Faults { no_space_rename_after, ..Faults::default() });
                if let Err(error) = put(&db, number) {
                    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
                    refused += usize::from(error.to_string().contains("ring.new"));
                    disk.clear_faults();
                    assert_survives_a_crash(&disk, number);
                    put(&db, number).unwrap();
                    assert_survives_a_crash(&disk, number + 1);
                }
            }
            disk.clear_faults();
            assert_survives_a_crash(&disk, 2000);
            db.close().unwrap();
            refused
        });
    }
    assert!(refused > 0, "no rename of the ring has failed");
}

#[test]
fn a_ring_that_grew_before_the_first_write_is_found_by_recovery() {
    let mut grown = 0;
    for seed in 0..20 {
        grown += in_world(seed, || {
            let disk = SimDisk::new();
            let db = open_growing(&disk);
            // In some schedules the first log is not made before the ingest; its ring is a larger one then.
            disk.set_faults(Faults { no_space_after_bytes: Some(0), ..Faults::default() });
            testing::sleep(Duration::from_millis(10));
            disk.clear_faults();
            db.ingest((0..2000).map(|number| (format!("{number:06}"), value("v", 900)))).unwrap();
            testing::sleep(Duration::from_secs(1));
            let has_grown = len_of(&disk, "ring.new") > 0;
            put(&db, 2000).unwrap();
            assert_survives_a_crash(&disk, 2001);
            assert_eq!(len_of(&disk, "ring.new"), 0);
            db.close().unwrap();
            usize::from(has_grown)
        });
    }
    assert!(grown > 0, "the ring never grew before the first write");
}

#[test]
fn writes_that_cannot_change_to_a_larger_ring_keep_no_further_log() {
    in_world(5, || {
        let disk = SimDisk::new();
        let db = open_growing(&disk);
        let mut count = put_until_the_ring_grows(&disk, &db);
        // The larger ring needs threads of its own.
        testing::limit_threads(Some(0));
        while put(&db, count).is_ok() {
            count += 1;
        }
        testing::sleep(Duration::from_secs(2));
        let used = disk.used();
        for _ in 0..10 {
            let refused = put(&db, count);
            assert!(matches!(refused, Err(Error::Io { operation: "start thread", .. })), "{refused:?}");
            testing::sleep(Duration::from_secs(1));
            assert_eq!(disk.used(), used);
        }
        testing::limit_threads(None);
        put(&db, count).unwrap();
        assert_survives_a_crash(&disk, count + 1);
        db.close().unwrap();
    });
}

#[test]
fn a_close_after_recovery_leaves_no_space_beyond_the_records() {
    for backend in [LogBackend::Ring, LogBackend::Plain] {
        in_world(4, move || {
            let disk = SimDisk::new();
            let mut tuning = growing();
            (tuning.log_bytes_min, tuning.close_flush_bytes) = (256 << 10, 1 << 30);
            let db = open_with(&disk, Options::new().log_backend(backend), tuning.clone()).unwrap();
            (0..10).for_each(|number| db.put(format!("{number}"), value("v", 100)).unwrap());
            db.sync().unwrap();
            let crashed = disk.process_crash();
            disk.halt();
            drop(db);
            assert!(crashed.used() > 200 << 10);
            for _ in 0..2 {
                let db = open_with(&crashed, Options::new().log_backend(backend), tuning.clone()).unwrap();
                assert_eq!(db.iter().unwrap().count(), 10);
                db.close().unwrap();
                assert!(crashed.used() < 64 << 10, "{:?}", crashed.files());
            }
        });
    }
}

/// The largest size of a log is a part of the memory budget, which may be any number.
#[test]
fn logs_of_the_largest_size_are_filled_whatever_it_is() {
    for odd in [0, 1, 4095, 20_000] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let mut tuning = growing();
            tuning.log_bytes = (64 << 10) + odd;
            tuning.log_bytes_min = tuning.log_bytes;
            let db = open_with(&disk, Options::new().log_backend(LogBackend::Ring), tuning).unwrap();
            for number in 0..400 {
                put(&db, number).unwrap();
            }
            let stats = db.stats();
            let full = stats.log_bytes_written / (64 << 10);
            assert!(stats.logs.len() as u64 <= full + 2, "{} logs, {full} full ones", stats.logs.len());
            db.close().unwrap();
        });
    }
}
