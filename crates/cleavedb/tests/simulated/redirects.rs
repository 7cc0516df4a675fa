//! What begins a redirect: each stage of background work that is behind, on its own, while no other one is.

use std::path::Path;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Bypass, Compression, Db, Options, Rollback, Stats};

use crate::device::{device, little_room, options as with_device, slow_disk};
use crate::support::{in_world, open_with, value};

/// Values that go through the levels, and a front so large that it is never behind.
fn large_front() -> Tuning {
    let mut tuning = little_room();
    (tuning.logs_bytes_max, tuning.replay_bytes_max) = (64 << 20, 64 << 20);
    (tuning.index_table_bytes, tuning.front_bytes_max, tuning.flush_bytes) = (1 << 20, 4 << 20, 4 << 20);
    tuning
}

fn spill() -> Options {
    Options::new().background_threads(1).bypass(Bypass::Spill).compression(Compression::None)
}

/// The front and the levels below HL0 are empty, or nearly so.
fn assert_idle_beside_hl0(stats: &Stats) {
    assert!(stats.sealed == 0 && stats.runs.is_empty(), "{stats:?}");
    assert!(stats.memory.front_bytes < 64 << 10, "{stats:?}");
    assert!(stats.levels[1..].iter().all(|level| level.tables == 0), "{stats:?}");
}

#[test]
fn tables_of_hl0_alone_begin_a_redirect() {
    in_world(1, || {
        let mut tuning = large_front();
        tuning.hl0_compact_tables = 100;
        let stop = tuning.hl0_stop_tables;
        let db = open_with(&SimDisk::new(), spill(), tuning).unwrap();
        let mut before = 0;
        for number in 0.. {
            db.put(format!("{number:05}"), value("hl0 ", 300)).unwrap();
            db.flush().unwrap();
            testing::sleep(Duration::from_millis(200));
            let stats = db.stats();
            assert_idle_beside_hl0(&stats);
            if stats.bypass.redirects {
                break;
            }
            before = stats.levels[0].tables;
            assert!(before < stop - 1, "HL0 is full: {:?}", stats.bypass);
        }
        assert!(before > stop / 4, "after {before} tables of {stop}");
        db.close().unwrap();
    });
}

#[test]
fn levels_beyond_their_targets_alone_begin_a_redirect() {
    for (seed, level_base_bytes, redirects) in [(1, 1 << 20, 0), (2, 8 << 10, 1)] {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let mut tuning = large_front();
            tuning.level_base_bytes = 1 << 20;
            let db = open_with(&disk, spill(), tuning.clone()).unwrap();
            (0..500).for_each(|number| db.put(format!("{number:05}"), value("level ", 300)).unwrap());
            db.flush().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            let levels = db.stats().levels;
            assert!(levels[0].tables == 0 && levels[1].bytes > 100 << 10, "{levels:?}");
            db.close().unwrap();
            // The same levels, and perhaps smaller targets.
            tuning.level_base_bytes = level_base_bytes;
            let db = open_with(&disk, spill(), tuning).unwrap();
            let stats = db.stats();
            assert!(stats.levels[0].tables == 0 && stats.memory.front_bytes < 4096, "{stats:?}");
            assert_eq!(stats.bypass.redirects_begun, redirects, "{:?}", stats.bypass);
            db.close().unwrap();
        });
    }
}

#[test]
fn the_fast_tier_alone_begins_a_redirect() {
    in_world(3, || {
        const BUDGET: u64 = 2 << 20;
        let disk = SimDisk::new();
        let options = spill().slow_dir("/slow").fast_bytes(BUDGET);
        let db = open_with(&disk, options, large_front()).unwrap();
        // Nothing leaves it.
        let pause = db.pause_background().unwrap();
        for number in 0.. {
            db.put(format!("{number:05}"), value("fast ", 4000)).unwrap();
            testing::sleep(Duration::from_millis(1));
            let stats = db.stats();
            assert_idle_beside_hl0(&stats);
            assert!(stats.levels[0].tables == 0, "{stats:?}");
            if stats.bypass.redirects {
                assert!(stats.tiers.fast_bytes > BUDGET / 2, "{:?}", stats.tiers);
                break;
            }
            let is_slow_log =
                |path: &Path| path.starts_with("/slow") && path.extension().is_some_and(|end| end == "log");
            let is_full = disk.files().iter().any(|(path, _)| is_slow_log(path));
            assert!(!is_full, "the fast tier is full: {:?}", stats.tiers);
        }
        drop(pause);
        db.close().unwrap();
    });
}

/// The keys of what lies on the device are in memory: once that is nearly full, writers go no faster with the device than without.
#[test]
fn a_device_gets_no_logs_while_memory_for_their_keys_is_nearly_full() {
    in_world(4, || {
        let disk = slow_disk();
        let mut tuning = large_front();
        (tuning.index_table_bytes, tuning.front_bytes_max) = (32 << 10, 160 << 10);
        let memory = (tuning.index_table_bytes + tuning.front_bytes_max) as f64;
        let db = open_with(&disk, with_device(&disk, Rollback::Lazy), tuning).unwrap();
        let pause = db.pause_background().unwrap();
        let newest = |db: &Db| db.stats().logs.last().map(|log| log.id);
        // How full memory was when logs were born during the redirect.
        let (mut on_device, mut elsewhere) = (Vec::new(), Vec::new());
        for number in 0.. {
            let (before, log) = (db.stats(), newest(&db));
            let fill = before.memory.front_bytes as f64 / memory;
            if fill > 0.92 {
                break;
            }
            db.put(format!("{number:06}"), value(&format!("{number} "), 300)).unwrap();
            testing::sleep(Duration::from_micros(300));
            let born = db.stats().bypass.logs_born_on_device - before.bypass.logs_born_on_device;
            match born {
                0 if before.bypass.redirects && newest(&db) != log => elsewhere.push(fill),
                0 => {}
                _ => on_device.push(fill),
            }
        }
        assert!(db.stats().bypass.redirects && device(&db).capacity_bytes > 4 * device(&db).log_bytes);
        assert!(!on_device.is_empty() && on_device.iter().all(|fill| *fill < 0.76), "{on_device:?}");
        assert!(!elsewhere.is_empty() && elsewhere.iter().all(|fill| *fill > 0.74), "{elsewhere:?}");
        drop(pause);
        db.close().unwrap();
    });
}
