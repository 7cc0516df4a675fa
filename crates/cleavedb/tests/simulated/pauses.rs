//! Pausing background work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimConfig, SimDisk, Tuning};
use cleavedb::{Db, Error, LogBackend, Options, WriteOptions};

use crate::support::{in_world, open, open_with, value, with_each_log};

#[test]
fn no_background_work_runs_during_a_pause_and_writers_wait_for_its_end() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), Tuning::tiny()).unwrap();
        let keyspace = db.default_keyspace();
        let (first, second) = (db.pause_background().unwrap(), db.pause_background().unwrap());
        let at_once = WriteOptions::new().stall_max(Duration::from_millis(50));
        let mut taken = 0;
        while keyspace.put_with(format!("{taken:05}"), value("v", 300), at_once).is_ok() {
            taken += 1;
        }
        let stats = db.stats();
        assert!(taken > 50 && stats.sealed > 0 && stats.seals == 0 && stats.flushes == 0, "{taken} puts: {stats:?}");
        assert!(matches!(keyspace.put_with("k", "v", at_once), Err(Error::WouldStall)));
        assert!(matches!(db.flush(), Err(Error::InvalidInput { .. })));
        assert!(matches!(db.compact_range(&keyspace, ..), Err(Error::InvalidInput { .. })));
        assert!(matches!(db.ingest([("k", "v")]), Err(Error::InvalidInput { .. })));
        assert_eq!(db.iter().unwrap().count(), taken);
        first.resume();
        assert!(matches!(db.flush(), Err(Error::InvalidInput { .. })));
        let waiting = {
            let db = db.clone();
            testing::spawn("waiting", move || db.put("waited", "v").unwrap())
        };
        testing::sleep(Duration::from_millis(20));
        assert!(db.get("waited").unwrap().is_none());
        drop(second);
        waiting.join().unwrap();
        db.flush().unwrap();
        assert!(db.stats().flushes > 0);
        assert_eq!(db.iter().unwrap().count(), taken + 1);
    });
}

#[test]
fn a_close_ends_a_pause() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.close_flush_bytes = 0;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning.clone()).unwrap();
        let pause = db.pause_background().unwrap();
        for number in 0..30 {
            db.put(number.to_string(), value("v", 300)).unwrap();
        }
        db.clone().close().unwrap();
        assert!(matches!(db.pause_background(), Err(Error::Closed)));
        drop((pause, db));
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        assert_eq!(db.iter().unwrap().count(), 30);
    });
}

/// An ingest that blocks writers must not wait for the end of a pause that one of these writers will end.
#[test]
fn an_ingest_does_not_block_writers_during_a_pause() {
    for seed in 0..60 {
        in_world(seed, move || {
            let db = open(&SimDisk::new(), crate::support::BACKENDS[seed as usize % 2]).unwrap();
            let stop = Arc::new(AtomicBool::new(false));
            let (other, stopped) = (db.clone(), stop.clone());
            let writing = testing::spawn("writing", move || {
                for number in 0.. {
                    if stopped.load(Ordering::SeqCst) {
                        break;
                    }
                    other.put(format!("{:06}", number % 100), value("v", 30)).unwrap();
                    testing::yield_point();
                }
            });
            let other = db.clone();
            let loading = testing::spawn("loading", move || {
                for load in 0..6 {
                    let loaded = other.ingest((0..20).map(|number| (format!("{load} {number:03}"), "v")));
                    assert!(matches!(loaded, Ok(20) | Err(Error::InvalidInput { .. })), "{loaded:?}");
                }
            });
            for round in 0..20 {
                let pause = db.pause_background().unwrap();
                for number in 0..3 {
                    db.put(format!("paused {round} {number}"), "v").unwrap();
                }
                pause.resume();
                testing::yield_point();
            }
            loading.join().unwrap();
            stop.store(true, Ordering::SeqCst);
            writing.join().unwrap();
            db.close().unwrap();
        });
    }
}

#[test]
fn a_requested_compaction_stops_during_a_pause() {
    let mut stood_still = 0;
    for seed in 0..12 {
        stood_still += in_world(seed, move || {
            let mut tuning = Tuning::tiny();
            (tuning.level_base_bytes, tuning.table_bytes) = (4 << 10, 4 << 10);
            let db = open_with(&SimDisk::new(), Options::new(), tuning).unwrap();
            for number in 0..1000 {
                db.put(format!("{:06}", number * 7 % 1000), value("v", 300)).unwrap();
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let (other, before) = (db.clone(), db.stats());
            let compacting = testing::spawn("compacting", move || {
                let done = other.compact_range(&other.default_keyspace(), ..);
                assert!(matches!(done, Ok(()) | Err(Error::InvalidInput { .. })), "{done:?}");
            });
            while db.stats().table_bytes_written == before.table_bytes_written {
                testing::yield_point();
            }
            let pause = db.pause_background().unwrap();
            let at_pause = db.stats();
            testing::sleep(Duration::from_millis(100));
            let later = db.stats();
            assert_eq!(at_pause.table_bytes_written, later.table_bytes_written);
            assert_eq!(at_pause.compactions, later.compactions);
            drop(pause);
            compacting.join().unwrap();
            usize::from(db.stats().compactions > later.compactions)
        });
    }
    assert!(stood_still > 0, "no pause began between two levels");
}

/// HL0 has as many tables as allowed, and no job is due that would make it smaller.
fn with_full_hl0(backend: LogBackend) -> Db {
    let mut tuning = Tuning::tiny();
    (tuning.hl0_stop_tables, tuning.compacts_when_idle) = (2, false);
    let db = open_with(&SimDisk::new(), Options::new().log_backend(backend), tuning).unwrap();
    for number in 0..2 {
        db.put("k", number.to_string()).unwrap();
        db.flush().unwrap();
    }
    assert_eq!(db.stats().levels[0].tables, 2);
    db
}

#[test]
fn with_hl0_full_an_ingest_during_a_pause_is_refused_at_once() {
    with_each_log(|backend| {
        let db = with_full_hl0(backend);
        let pause = db.pause_background().unwrap();
        let refused = db.ingest([("a", "v")]);
        assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{refused:?}");
        assert!(db.get("a").unwrap().is_none());
        drop(pause);
        db.close().unwrap();
    });
}

#[test]
fn a_pause_ends_an_ingest_that_waits_for_hl0() {
    with_each_log(|backend| {
        let db = with_full_hl0(backend);
        let other = db.clone();
        let loading = testing::spawn("loading", move || {
            let refused = other.ingest([("a", "v")]);
            assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{refused:?}");
        });
        testing::sleep(Duration::from_millis(20));
        let pause = db.pause_background().unwrap();
        // The holder of the pause may wait for the ingest.
        loading.join().unwrap();
        assert!(db.get("a").unwrap().is_none());
        drop(pause);
        db.close().unwrap();
    });
}

#[test]
fn a_pause_ends_an_ingest_that_waits_for_a_flush() {
    let mut refusals = 0;
    for seed in 0..60 {
        refusals += in_world(seed, move || {
            let db = open(&SimDisk::new(), crate::support::BACKENDS[seed as usize % 2]).unwrap();
            db.put("k", value("v", 300)).unwrap();
            let refused = Arc::new(AtomicBool::new(false));
            let (other, sink) = (db.clone(), refused.clone());
            let loading = testing::spawn("loading", move || {
                let loaded = other.ingest([("a", "v")]);
                assert!(matches!(loaded, Ok(1) | Err(Error::InvalidInput { .. })), "{loaded:?}");
                sink.store(loaded.is_err(), Ordering::SeqCst);
            });
            (0..seed * 2).for_each(|_| testing::yield_point());
            let pause = db.pause_background().unwrap();
            loading.join().unwrap();
            drop(pause);
            let refused = refused.load(Ordering::SeqCst);
            assert_eq!(db.get("a").unwrap().is_some(), !refused);
            db.close().unwrap();
            usize::from(refused)
        });
    }
    assert!((1..60).contains(&refusals), "{refusals}");
}

/// Steps of the simulation that a second without work takes at most.
const STEPS_MAX: u64 = 200_000;

#[test]
fn threads_sleep_while_a_pending_deletion_cannot_begin() {
    for is_poisoned in [false, true] {
        let config = SimConfig { max_steps: STEPS_MAX, ..SimConfig::new(1) };
        let report = testing::simulate_with(config, move || {
            let disk = SimDisk::new();
            let options = Options::new().background_threads(3);
            let db = open_with(&disk, options, Tuning::tiny()).unwrap();
            for number in 0..2 {
                db.put(format!("{number}"), "v").unwrap();
                db.flush().unwrap();
            }
            let iter = db.iter().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            let (pause, other) = (db.pause_background().unwrap(), db.pause_background().unwrap());
            // The iterator held the obsolete tables.
            drop(iter);
            if is_poisoned {
                disk.set_faults(Faults { fail_sync_after: Some(0), ..Faults::default() });
                db.put("k", "v").unwrap();
                assert!(db.sync().is_err());
                pause.resume();
            }
            // Wakes up all threads.
            drop(other);
            testing::sleep(Duration::from_secs(1));
            if !is_poisoned {
                db.close().unwrap();
            }
        });
        report.result.unwrap();
    }
}
