//! Writers when background work falls behind: how long they wait, and the limits they may set.

use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, Error, Options, WriteBatch, WriteOptions};

use crate::support::{in_world, open_with, text, value, with_each_log};

/// Two tables in HL0 stop writers, and nothing is compacted automatically.
fn stopped_by_hl0() -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.hl0_stop_tables = 2;
    tuning.hl0_compact_tables = 100;
    tuning.compacts_when_idle = false;
    tuning
}

fn stop(db: &Db) {
    for round in 0..2 {
        db.put(format!("key {round}"), "value").unwrap();
        db.flush().unwrap();
    }
    // The job that has just ended may not have updated the pace yet.
    db.wait_for_background().unwrap();
    assert_eq!(db.stats().pace_bytes_per_second, Some(0));
}

fn batch(db: &Db) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&db.default_keyspace(), "late", "1");
    batch
}

#[test]
fn a_refused_non_blocking_write_keeps_its_batch_for_a_retry() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), stopped_by_hl0()).unwrap();
        let mut batch = batch(&db);
        db.try_write(&mut batch.clone()).unwrap();
        db.delete("late").unwrap();
        stop(&db);
        let before = testing::now();
        assert!(matches!(db.try_write(&mut batch), Err(Error::WouldStall)));
        assert!(testing::now() - before < Duration::from_millis(1), "it waited");
        assert_eq!((batch.len(), text(&db, "late")), (1, None));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.try_write(&mut batch).unwrap();
        assert_eq!((batch.len(), text(&db, "late")), (0, Some("1".into())));
    });
}

#[test]
fn a_write_with_a_wait_limit_waits_that_long_and_is_then_refused() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new(), stopped_by_hl0()).unwrap();
        stop(&db);
        let limit = Duration::from_millis(30);
        let before = testing::now();
        let outcome = db.write_with(batch(&db), WriteOptions::new().stall_max(limit));
        assert!(matches!(outcome, Err(Error::WouldStall)), "{outcome:?}");
        let waited = testing::now() - before;
        assert!((limit..limit + Duration::from_millis(10)).contains(&waited), "{waited:?}");
        let stats = db.stats();
        assert!(stats.stalls == 1 && stats.stall_time >= limit / 2, "{} {:?}", stats.stalls, stats.stall_time);
        // The refused write is not stored, also after the next open.
        drop(db);
        let db = open_with(&disk, Options::new(), stopped_by_hl0()).unwrap();
        assert_eq!(text(&db, "late"), None);
    });
}

#[test]
fn a_write_that_may_wait_continues_when_there_is_room() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new(), stopped_by_hl0()).unwrap();
        stop(&db);
        let other = db.clone();
        let waiting = testing::spawn("writer", move || other.put("late", "1").unwrap());
        testing::sleep(Duration::from_millis(20));
        assert_eq!(text(&db, "late"), None);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        waiting.join().unwrap();
        assert_eq!(text(&db, "late"), Some("1".into()));
    });
}

#[test]
fn writers_are_slowed_down_before_they_stall() {
    in_world(5, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 10);
        tuning.front_bytes_max = 64 << 20;
        tuning.logs_bytes_max = 64 << 20;
        tuning.flush_bytes = 64 << 20;
        let db = open_with(&disk, Options::new(), tuning).unwrap();
        for round in 0..8 {
            db.put(format!("key {round}"), "value").unwrap();
            db.flush().unwrap();
        }
        let pace = db.stats().pace_bytes_per_second.unwrap();
        let before = testing::now();
        for number in 0..20 {
            db.put(format!("{number:06}"), value("v", 100_000)).unwrap();
        }
        let (took, fair) = (testing::now() - before, Duration::from_secs_f64(2e6 / pace as f64));
        let stats = db.stats();
        assert!(stats.paced >= 4 && stats.stalls == 0, "{} {}", stats.paced, stats.stalls);
        assert!(took > fair / 2 && took < 2 * fair, "{took:?} for 2 MB at {pace} B/s");
        assert!(stats.paced_time < Duration::from_millis(10) * stats.paced as u32, "{:?}", stats.paced_time);
    });
}

/// HL0 that is half full is not filled further while the front can take what is written: writers would wait for its compaction.
#[test]
fn flushes_wait_for_hl0_while_the_front_has_room() {
    in_world(6, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 20);
        (tuning.compacts_when_idle, tuning.unflushed_bytes_min) = (false, 8 << 20);
        (tuning.logs_bytes_max, tuning.replay_bytes_max) = (512 << 10, 512 << 10);
        let flush_bytes = tuning.flush_bytes as usize;
        let db = open_with(&disk, Options::new(), tuning).unwrap();
        let mut written = 0;
        let mut write = |bytes: usize| {
            for _ in 0..bytes / 100 {
                db.put(format!("{written:06}"), value("v", 100)).unwrap();
                written += 1;
            }
            testing::sleep(Duration::from_secs(1));
        };
        let tables = || db.stats().levels[0].tables;
        for half in 1..=10 {
            write(200);
            db.flush().unwrap();
            assert_eq!(tables(), half);
        }
        write(3 * flush_bytes);
        assert_eq!((tables(), db.stats().stalls), (10, 0));
        // A caller waits for this one.
        db.flush().unwrap();
        let asked = tables();
        assert!(asked > 10, "{asked}");
        // Writers would be slowed down.
        let flushed = (0..15).any(|_| {
            write(flush_bytes);
            tables() > asked
        });
        assert!(flushed && tables() < 20, "{asked} {}", tables());
    });
}

#[test]
fn after_wait_for_background_no_work_is_left() {
    for seed in 0..5 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open_with(&disk, Options::new(), Tuning::tiny()).unwrap();
            for number in 0..1500 {
                db.put(format!("{:06}", number * 7919 % 1000), value("v", 100)).unwrap();
            }
            db.wait_for_background().unwrap();
            let before = db.stats();
            assert!(before.levels[0].tables < Tuning::tiny().hl0_compact_tables && before.sealed == 0);
            testing::sleep(Duration::from_secs(5));
            let after = db.stats();
            let jobs = |stats: &cleavedb::Stats| (stats.seals, stats.index_merges, stats.flushes, stats.compactions);
            assert_eq!(jobs(&before), jobs(&after));
            // When idle it returns at once.
            db.wait_for_background().unwrap();
        });
    }
}

#[test]
fn a_batch_is_empty_after_every_error_except_a_stall() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), Tuning::tiny()).unwrap();
        let other = Db::in_memory().unwrap();
        let mut foreign = batch(&other);
        assert!(matches!(db.try_write(&mut foreign), Err(Error::InvalidInput { .. })));
        assert!(foreign.is_empty());
        disk.set_capacity(Some(disk.used()));
        let mut refused = batch(&db);
        refused.put(&db.default_keyspace(), "large", value("v", 100_000));
        let full = db.try_write(&mut refused);
        assert!(matches!(full, Err(Error::NoSpace { .. })), "{full:?}");
        assert!(refused.is_empty());
        disk.set_capacity(None);
        let late = batch(&db);
        db.clone().close().unwrap();
        let mut late = late;
        assert!(matches!(db.try_write(&mut late), Err(Error::Closed)));
        assert!(late.is_empty());
    });
}

#[test]
fn idle_work_begins_no_sooner_than_a_second_after_an_open() {
    in_world(6, || {
        let disk = SimDisk::new();
        let mut tuning = stopped_by_hl0();
        tuning.hl0_stop_tables = 100;
        let db = open_with(&disk, Options::new(), tuning.clone()).unwrap();
        for number in 0..3 {
            db.put(format!("{number}"), "v").unwrap();
            db.flush().unwrap();
        }
        db.close().unwrap();
        // The process is not new.
        testing::sleep(Duration::from_secs(5));
        tuning.compacts_when_idle = true;
        let db = open_with(&disk, Options::new(), tuning).unwrap();
        testing::sleep(Duration::from_millis(900));
        assert_eq!(db.stats().compactions, 0);
        testing::sleep(Duration::from_secs(1));
        assert!(db.stats().compactions > 0, "{:?}", db.stats());
    });
}
