//! Logs, the ring and the reserve grow with the data, and are removed by a clean close; a crash at any moment of this
//! loses nothing.

use std::path::Path;
use std::sync::{Arc, Mutex};

use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{Compression, LogBackend, Options};

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
