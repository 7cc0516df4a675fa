//! Values are put in order where scans find them scattered, within a bound on the bytes written, and nowhere else.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, Random, SimDisk, Tuning};
use cleavedb::{Db, Options, Stats, ValuePlacement, ValueReordering};

use crate::support::{in_world, open_with, value};

const RECORDS: u64 = 2000;

fn open(disk: &SimDisk, placement: ValuePlacement, reordering: ValueReordering) -> Db {
    let mut tuning = Tuning::tiny();
    (tuning.placement, tuning.reordering) = (placement, reordering);
    (tuning.log_bytes, tuning.group_bytes) = (32 << 10, 32 << 10);
    open_with(disk, Options::new().separation(Some(192)), tuning).unwrap()
}

fn key(number: u64) -> String {
    format!("{number:06}")
}

/// Writes records of this round in random order.
fn put(db: &Db, random: &mut Random, round: u64, count: u64) {
    for step in 0..count {
        let number = if round == 0 { step * 769 % RECORDS } else { random.below(RECORDS) };
        db.put(key(number), value(&key(number), 300 + (number % 400) as usize)).unwrap();
    }
}

fn wait(db: &Db) -> Stats {
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    db.stats()
}

/// Scans 50 records from a random key on, as often as asked.
fn scan(db: &Db, random: &mut Random, scans: u64) {
    for _ in 0..scans {
        let from = random.below(RECORDS - 50);
        let found = db.range(key(from)..).unwrap().take(50).map(|item| item.unwrap());
        for (number, (found_key, found)) in (from..).zip(found) {
            assert_eq!(found_key, key(number).as_bytes());
            assert!(*found == *value(&key(number), 300 + (number % 400) as usize));
        }
    }
}

fn check(disk: &SimDisk) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn scans_put_in_order_what_they_read_and_an_idle_store_writes_nothing() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, ValuePlacement::Range, ValueReordering::WhenScanned);
        let mut random = Random::new(5);
        put(&db, &mut random, 0, RECORDS);
        let unscanned = wait(&db);
        testing::sleep(Duration::from_secs(60));
        assert_eq!(db.stats().value_reorder_bytes_written, 0, "nobody has scanned");
        assert!(unscanned.value_files > 3 * unscanned.value_groups, "{unscanned:?}");
        scan(&db, &mut random, 400);
        let ordered = wait(&db);
        assert!(
            ordered.value_reorders > 0 && ordered.value_bytes_live >= unscanned.value_bytes_live / 2,
            "{ordered:?}"
        );
        // More scans of what is in order ask for nothing.
        (0..3).for_each(|_| scan(&db, &mut random, 400));
        testing::sleep(Duration::from_secs(60));
        let stats = wait(&db);
        scan(&db, &mut random, 400);
        testing::sleep(Duration::from_secs(60));
        assert_eq!(db.stats().value_reorder_bytes_written, stats.value_reorder_bytes_written);
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn on_a_full_disk_the_demand_ends_and_scans_ask_again_later() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open(&disk, ValuePlacement::Range, ValueReordering::WhenScanned);
        let mut random = Random::new(7);
        put(&db, &mut random, 0, RECORDS);
        let stats = wait(&db);
        assert_eq!(stats.value_reorders, 0);
        disk.set_capacity(Some(disk.used() + (8 << 10)));
        scan(&db, &mut random, 400);
        db.wait_for_background().unwrap();
        // A job that found no space is not tried again and again.
        testing::sleep(Duration::from_secs(60));
        assert_eq!(db.stats().value_reorders, 0);
        disk.set_capacity(None);
        scan(&db, &mut random, 400);
        assert!(wait(&db).value_reorders > 0);
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn never_and_other_placements_write_nothing_for_order() {
    for (placement, reordering) in
        [(ValuePlacement::Range, ValueReordering::Never), (ValuePlacement::Hash, ValueReordering::WhenScanned)]
    {
        in_world(2, move || {
            let db = open(&SimDisk::new(), placement, reordering);
            let mut random = Random::new(6);
            put(&db, &mut random, 0, RECORDS);
            scan(&db, &mut random, 400);
            assert_eq!(wait(&db).value_reorder_bytes_written, 0);
            db.close().unwrap();
        });
    }
}

#[test]
fn bytes_written_for_order_are_at_most_three_times_those_that_were_there_and_arrived() {
    for seed in 0..3 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, ValuePlacement::Range, ValueReordering::WhenScanned);
            let mut random = Random::new(seed);
            for round in 0..6 {
                put(&db, &mut random, round, if round == 0 { RECORDS } else { 300 });
                scan(&db, &mut random, 300);
            }
            let stats = wait(&db);
            assert!(stats.value_reorders > 0, "{stats:?}");
            // One job may exceed what is left by the headers that it writes.
            let limit = 3 * stats.log_bytes_written + (256 << 10);
            assert!(stats.value_reorder_bytes_written <= limit, "{stats:?}");
            db.close().unwrap();
            check(&disk);
        });
    }
}

/// Scans and updates go on at the same time, so that there is always something to put in order and always garbage.
#[test]
fn a_store_that_is_scanned_and_updated_all_the_time_stays_within_its_space() {
    in_world(8, || {
        let disk = SimDisk::new();
        let db = open(&disk, ValuePlacement::Range, ValueReordering::WhenScanned);
        let mut random = Random::new(8);
        put(&db, &mut random, 0, RECORDS);
        let loaded = wait(&db);
        let mut peak = 0.0_f64;
        for round in 1..25 {
            put(&db, &mut random, round, 200);
            scan(&db, &mut random, 40);
            let stats = db.stats();
            peak = peak.max(stats.value_bytes as f64 / loaded.value_bytes_live as f64);
        }
        let stats = db.stats();
        assert!(stats.value_reorders > 5 && stats.value_gcs > 5, "{stats:?}");
        assert!(peak < 1.6, "{peak}: {stats:?}");
        db.close().unwrap();
        check(&disk);
    });
}

/// What scans have asked for is not made beside others once the scans have ended: they would only pay for it.
#[test]
fn gets_after_scans_hold_back_order_until_they_end() {
    in_world(9, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.placement, tuning.reordering) = (ValuePlacement::Range, ValueReordering::WhenScanned);
        (tuning.log_bytes, tuning.group_bytes) = (32 << 10, 32 << 10);
        // A thread that wakes up by itself notices that users rest.
        tuning.stats_interval = Some(Duration::from_secs(1));
        let db = open_with(&disk, Options::new().separation(Some(192)), tuning).unwrap();
        let mut random = Random::new(9);
        put(&db, &mut random, 0, RECORDS);
        let before = wait(&db);
        let pause = db.pause_background().unwrap();
        scan(&db, &mut random, 10);
        testing::sleep(Duration::from_secs(2));
        drop(pause);
        for _ in 0..3000 {
            db.get(key(random.below(RECORDS))).unwrap().unwrap();
            testing::sleep(Duration::from_millis(10));
        }
        assert_eq!(db.stats().value_reorders, before.value_reorders, "nothing begins beside gets");
        testing::sleep(Duration::from_secs(60));
        assert!(db.stats().value_reorders > before.value_reorders, "what scans have asked for is made at rest");
        db.close().unwrap();
        check(&disk);
    });
}
