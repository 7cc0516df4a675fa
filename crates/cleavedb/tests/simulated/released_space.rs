//! The space of unreferenced extents is released eventually, whatever happens in between.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Storage, Tuning};
use cleavedb::{Db, Options, Stats, ValuePlacement};

use crate::support::{in_world, open_with, value};

const KEYS: usize = 600;

fn open(disk: &SimDisk) -> Db {
    let mut tuning = Tuning::tiny();
    tuning.placement = ValuePlacement::Range;
    (tuning.log_bytes, tuning.group_bytes) = (32 << 10, 32 << 10);
    open_with(disk, Options::new().separation(Some(192)), tuning).unwrap()
}

fn value_of_round(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in round {round}; "), 300 + number % 500)
}

fn wait_until_idle(db: &Db) -> Stats {
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    testing::sleep(Duration::from_millis(10));
    db.stats()
}

/// A store with values in key order, in segments of several extents.
fn filled(disk: &SimDisk) -> Db {
    let db = open(disk);
    for number in 0..KEYS {
        db.put(format!("{:04}", number * 7 % KEYS), value_of_round(number * 7 % KEYS, 0)).unwrap();
    }
    wait_until_idle(&db);
    db
}

/// Overwrites some keys until their extents are dead, in segments that also hold live extents.
fn overwrite(db: &Db, keys: std::ops::Range<usize>) -> Stats {
    for round in 1..4 {
        for number in keys.clone() {
            db.put(format!("{number:04}"), value_of_round(number, round)).unwrap();
        }
        wait_until_idle(db);
    }
    db.stats()
}

fn check(db: &Db, changed: std::ops::Range<usize>) {
    for (number, item) in db.iter().unwrap().enumerate() {
        let (key, found) = item.unwrap();
        assert_eq!(key, format!("{number:04}").as_bytes());
        let round = if changed.contains(&number) { 3 } else { 0 };
        assert!(*found == *value_of_round(number, round), "{number}");
    }
}

fn remove_copy(disk: &SimDisk) {
    for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/copy")) {
        disk.remove(&path).unwrap();
    }
}

/// Bytes that segments occupy on disk.
fn segments(disk: &SimDisk) -> u64 {
    let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "segment");
    let files = disk.files().into_iter().filter(|(path, _)| path.starts_with("/db") && is_segment(path));
    let held = |(path, len): (std::path::PathBuf, u64)| {
        let blocks = (0..len.div_ceil(4096))
            .filter(|block| disk.first_data(&path, block * 4096, (block + 1) * 4096).unwrap().is_some());
        blocks.count() as u64 * 4096
    };
    files.map(held).sum()
}

#[test]
fn dead_extents_in_a_segment_linked_by_a_checkpoint_are_released_once_it_is_gone() {
    for reopens in [false, true] {
        in_world(21, move || {
            let disk = SimDisk::new();
            let mut db = filled(&disk);
            assert_eq!(db.stats().value_bytes_pending, 0);
            db.checkpoint("/copy").unwrap();
            // Which files are collected first depends on the seed.
            let all_stats = (0..10).map(|_| overwrite(&db, 300..KEYS));
            let mut pending = all_stats.map(|stats| stats.value_bytes_pending);
            assert!(pending.any(|pending| pending > 0), "a dead extent lies beside live ones");
            if reopens {
                db.close().unwrap();
                db = open(&disk);
                testing::sleep(Duration::from_secs(5));
                // Segments that were emptied meanwhile are gone with what was dead in them.
                assert!(db.stats().value_bytes_pending > 0, "{:?}", db.stats());
            }
            // Nothing in the checkpoint was changed.
            let copy =
                testing::open(Arc::new(disk.clone()), Path::new("/copy"), Options::new(), Tuning::tiny()).unwrap();
            check(&copy, 0..0);
            copy.close().unwrap();
            remove_copy(&disk);
            let before = segments(&disk);
            testing::sleep(Duration::from_secs(70));
            let stats = db.stats();
            assert_eq!(stats.value_bytes_pending, 0);
            // A collection in idle time may have moved some of what lives.
            assert!(segments(&disk) < before, "{} B, {before} before", segments(&disk));
            // Each extent has a header and ends within a block; each segment has a header of one block.
            let most = stats.value_bytes + 2 * 4096 * stats.value_files as u64;
            assert!(segments(&disk) <= most, "{} B, {stats:?}", segments(&disk));
            check(&db, 300..KEYS);
        });
    }
}

#[test]
fn an_open_releases_all_space_between_and_after_extents() {
    in_world(25, || {
        let disk = SimDisk::new();
        // As if the process crashed after each edit, before space was released: also after the last extents of
        // segments.
        disk.set_punching(false);
        let db = filled(&disk);
        let pending = overwrite(&db, 300..KEYS).value_bytes_pending;
        assert!(pending > 0);
        let disk = disk.process_crash();
        disk.set_punching(true);
        let before = segments(&disk);
        let db = open(&disk);
        // Counted until it is released, which may have happened by now.
        assert!(db.stats().value_bytes_pending <= pending);
        testing::sleep(Duration::from_millis(500));
        assert_eq!((db.stats().value_bytes_pending, before - segments(&disk)), (0, pending));
        check(&db, 300..KEYS);
    });
}

#[test]
fn on_a_file_system_without_holes_dead_extents_are_counted_and_writes_continue() {
    in_world(23, || {
        let disk = SimDisk::new();
        disk.set_punching(false);
        let db = filled(&disk);
        let pending = overwrite(&db, 0..150).value_bytes_pending;
        assert!(pending > 0);
        testing::sleep(Duration::from_secs(600));
        assert_eq!(db.stats().value_bytes_pending, pending);
        // They are removed with their segments.
        overwrite(&db, 0..KEYS);
        assert!(db.stats().value_bytes_pending <= 2 * db.stats().value_bytes, "{:?}", db.stats());
        check(&db, 0..KEYS);
    });
}
