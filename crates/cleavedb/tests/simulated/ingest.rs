//! Ingests of sorted records: visible at once, durable, and correctly ordered with concurrent writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning, spawn};
use cleavedb::{Error, KeyspaceOptions, LogBackend, Options};

use crate::support::{in_world, open, open_with, text, value, with_each_log};

fn pairs(range: std::ops::Range<usize>, name: &str) -> impl Iterator<Item = (String, Vec<u8>)> {
    let name = name.to_owned();
    range.map(move |number| (format!("{number:06}"), value(&name, 100)))
}

#[test]
fn an_ingest_is_visible_at_once_and_survives_loss_of_power() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put("000003", "before").unwrap();
        db.put("other", "before").unwrap();
        let snapshot = db.snapshot();
        assert_eq!(db.ingest(pairs(0..1000, "load")).unwrap(), 1000);
        assert_eq!(snapshot.get(&db.default_keyspace(), "000003").unwrap().unwrap(), "before");
        assert_eq!(snapshot.iter(&db.default_keyspace()).unwrap().count(), 2);
        assert_eq!(db.get("000003").unwrap().unwrap(), value("load", 100));
        db.put("000003", "after").unwrap();
        db.delete("000004").unwrap();
        db.sync().unwrap();
        for seed in 0..5 {
            let db = open(&disk.power_loss(seed), backend).unwrap();
            assert_eq!(text(&db, "000003").unwrap(), "after");
            assert_eq!(text(&db, "other").unwrap(), "before");
            assert_eq!(db.iter().unwrap().count(), 1000);
            db.close().unwrap();
        }
        // Compaction keeps the versions of the older snapshot.
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        assert_eq!(snapshot.iter(&db.default_keyspace()).unwrap().count(), 2);
        assert_eq!(db.iter().unwrap().count(), 1000);
        drop(snapshot);
        db.close().unwrap();
        let db = open(&disk, backend).unwrap();
        assert_eq!(db.iter().unwrap().rev().count(), 1000);
    });
}

#[test]
fn an_ingest_into_an_empty_range_goes_below_hl0() {
    with_each_log(|backend| {
        let mut tuning = Tuning::tiny();
        tuning.compacts_when_idle = false;
        let db = open_with(&SimDisk::new(), Options::new().log_backend(backend), tuning).unwrap();
        let loaded = db.create_keyspace("loaded", KeyspaceOptions::new()).unwrap();
        let around = db.create_keyspace("around", KeyspaceOptions::new()).unwrap();
        // Tables that span the keyspace but hold none of its keys.
        for number in 0..50 {
            db.put(format!("{number}"), "v").unwrap();
            around.put(format!("{number}"), "v").unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let before = db.stats().levels[0].tables;
        loaded.ingest(pairs(0..2000, "load")).unwrap();
        let levels: Vec<usize> = db.stats().levels.iter().map(|level| level.tables).collect();
        assert!(levels[0] <= before && levels[1..].iter().sum::<usize>() > 0, "{before} {levels:?}");
        // Overlapping records go above.
        loaded.ingest(pairs(500..600, "again")).unwrap();
        assert_eq!(loaded.get("000550").unwrap().unwrap(), value("again", 100));
        assert_eq!(loaded.get("000650").unwrap().unwrap(), value("load", 100));
        assert_eq!(loaded.iter().unwrap().count(), 2000);
        assert_eq!(loaded.ingest(pairs(0..0, "")).unwrap(), 0);
    });
}

#[test]
fn keys_that_do_not_ascend_are_refused_and_leave_no_files() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put("kept", "v").unwrap();
        for bad in [vec!["a", "c", "b"], vec!["a", "b", "b"], vec!["a", ""]] {
            let load = pairs(0..500, "x").map(|(key, value)| (key.into_bytes(), value));
            let bad = bad.into_iter().map(|key| (key.as_bytes().to_vec(), b"v".to_vec()));
            let Err(Error::InvalidInput { message }) = db.ingest(load.chain(bad)) else {
                panic!("the ingest was not refused");
            };
            assert!(message.contains('"') || message.contains("a key has from 1 to"), "{message}");
        }
        assert_eq!(db.iter().unwrap().count(), 1);
        db.put("later", "v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
        let tables = disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "table")).count();
        assert_eq!(tables, 1);
    });
}

/// With concurrent writers: each snapshot has all of an ingest or nothing of it, and the last write wins.
fn ingest_among_writers(seed: u64, backend: LogBackend) {
    let db = open(&SimDisk::new(), backend).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let writer = {
        let (db, stop) = (db.clone(), stop.clone());
        spawn("writer", move || {
            for turn in 0.. {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                db.put(format!("{:06}", turn * 7 % 400), value("writer", 300)).unwrap();
                testing::yield_point();
            }
        })
    };
    let reader = {
        let (db, stop) = (db.clone(), stop.clone());
        spawn("reader", move || {
            while !stop.load(Ordering::SeqCst) {
                let snapshot = db.snapshot();
                for load in 1..5_usize {
                    // Keys that the writer does not touch.
                    let range =
                        format!("{:06}", load * 1000).into_bytes()..format!("{:06}", load * 1000 + 1000).into_bytes();
                    let count = snapshot.range(&db.default_keyspace(), range).unwrap().count();
                    assert!(count == 0 || count == 200, "{count} keys of load {load}");
                }
                testing::yield_point();
            }
        })
    };
    for load in 1..5 {
        let low = (0..400).map(|number| format!("{number:06}"));
        let own = (load * 1000..load * 1000 + 200).map(|number| format!("{number:06}"));
        let before = db.stats().seqno;
        db.ingest(low.chain(own).map(|key| (key, value(&format!("load {load}"), 120)))).unwrap();
        assert!(db.stats().seqno > before);
        let found = db.get("000001").unwrap().unwrap();
        assert!(found == value(&format!("load {load}"), 120) || found == value("writer", 300), "seed {seed}");
    }
    stop.store(true, Ordering::SeqCst);
    writer.join().unwrap();
    reader.join().unwrap();
    db.put("000001", "last").unwrap();
    db.ingest([("000002", "last")]).unwrap();
    for _ in 0..2 {
        assert_eq!(text(&db, "000001").unwrap(), "last");
        assert_eq!(text(&db, "000002").unwrap(), "last");
        assert_eq!(db.iter().unwrap().count(), 400 + 4 * 200);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
    }
    db.close().unwrap();
}

#[test]
fn ingests_among_writers_appear_atomically() {
    for seed in 0..6 {
        let backend = crate::support::BACKENDS[seed as usize % 2];
        in_world(seed, move || ingest_among_writers(seed, backend));
    }
}

fn table_files(disk: &SimDisk) -> usize {
    disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "table")).count()
}

/// A close during an ingest waits until it stops, which is soon; after that the directory is unlocked.
#[test]
fn a_close_stops_a_running_ingest_and_waits_for_it() {
    for seed in 0..10 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, crate::support::BACKENDS[seed as usize % 2]).unwrap();
            let (other, taken) = (db.clone(), Arc::new(AtomicUsize::new(0)));
            let counted = taken.clone();
            let loading = spawn("loading", move || {
                let pairs = pairs(0..1_000_000, "load").inspect(|_| {
                    // Time enough for a close that does not wait.
                    if counted.fetch_add(1, Ordering::SeqCst) == 500 {
                        testing::sleep(Duration::from_secs(5));
                    }
                });
                assert!(matches!(other.ingest(pairs), Err(Error::Closed)));
            });
            while taken.load(Ordering::SeqCst) <= 500 {
                testing::yield_point();
            }
            db.close().unwrap();
            let at_close = taken.load(Ordering::SeqCst);
            assert_eq!(table_files(&disk), 0, "all files of the ingest were removed before the directory was unlocked");
            loading.join().unwrap();
            assert!(taken.load(Ordering::SeqCst) <= at_close + 1);
        });
    }
}

#[test]
fn a_panic_in_the_iterator_of_an_ingest_leaves_no_files() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let load = pairs(0..2000, "load").inspect(|(key, _)| assert!(key != "001500", "a test that panics"));
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| db.ingest(load)));
        assert!(panic.is_err());
        assert_eq!(table_files(&disk), 0);
        db.put("later", "v").unwrap();
        db.flush().unwrap();
        assert_eq!(db.iter().unwrap().count(), 1);
        db.close().unwrap();
    });
}

#[test]
fn ingests_wait_while_hl0_is_full() {
    with_each_log(|backend| {
        let mut tuning = Tuning::tiny();
        (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 2);
        let db = open_with(&SimDisk::new(), Options::new().log_backend(backend), tuning).unwrap();
        for round in 0..2 {
            db.put("0", "v").unwrap();
            db.put(format!("{round}"), "v").unwrap();
            db.flush().unwrap();
        }
        let loading = {
            let db = db.clone();
            spawn("loading", move || db.ingest([("0", "load"), ("1", "load")]).map(drop).unwrap())
        };
        testing::sleep(Duration::from_millis(50));
        assert_eq!(text(&db, "0").unwrap(), "v", "the ingest waits");
        assert_eq!(db.stats().levels[0].tables, 2);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        loading.join().unwrap();
        assert_eq!(text(&db, "0").unwrap(), "load");
        db.close().unwrap();
    });
}

/// A compaction merges two tables into one that spans the gap between them, while an ingest chooses a level for that
/// gap.
fn ingest_beside_a_compaction(seed: u64) {
    let disk = SimDisk::new();
    let db = open(&disk, LogBackend::Plain).unwrap();
    let space = db.default_keyspace();
    for round in 0..8 {
        for side in ["a", "z"] {
            (0..20).for_each(|number| db.put(format!("{round}{side}{number:02}"), value("v", 30)).unwrap());
            db.flush().unwrap();
        }
        let loader = {
            let db = db.clone();
            spawn("loader", move || {
                assert_eq!(db.ingest((0..20).map(|number| (format!("{round}m{number:02}"), "load"))).unwrap(), 20);
            })
        };
        let range = format!("{round}").into_bytes()..format!("{}", round + 1).into_bytes();
        // The ingest may be at any step.
        (0..(7 * round + 13 * seed) % 97).for_each(|_| testing::yield_point());
        db.compact_range(&space, range.clone()).unwrap();
        loader.join().unwrap();
        assert_eq!(space.range(range).unwrap().count(), 60, "seed {seed}");
    }
    db.close().unwrap();
    let report = testing::check(Arc::new(disk), "/db".as_ref(), &Options::new()).unwrap();
    assert!(report.is_sound(), "seed {seed}: {:?}", report.problems);
}

#[test]
fn an_ingest_and_a_compaction_never_write_the_same_range_of_a_level() {
    for seed in 0..30 {
        in_world(seed, move || ingest_beside_a_compaction(seed));
    }
}

#[test]
fn an_ingest_is_not_covered_by_an_earlier_range_tombstone() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        (50..90).for_each(|number| db.put(format!("m{number}"), value("v", 300)).unwrap());
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        // It covers little of the tables below, so its table stays above them; none of its keys is in the range of the
        // ingest.
        db.delete_range(b"m00".to_vec()..b"m51".to_vec()).unwrap();
        db.put("a", "v").unwrap();
        db.put("z", "v").unwrap();
        db.flush().unwrap();
        assert!(db.stats().levels[0].range_tombstones > 0);
        db.ingest((0..30).map(|number| (format!("m{number:02}"), "load"))).unwrap();
        assert_eq!(text(&db, "m07").as_deref(), Some("load"));
        assert_eq!(db.iter().unwrap().count(), 2 + 30 + 39);
    });
}
