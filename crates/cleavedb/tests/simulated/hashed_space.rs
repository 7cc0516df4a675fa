//! Hash keyspaces: what their logs take and what their collection costs, beside ordered traffic, under snapshots, with damaged
//! files and without merge operators.

use cleavedb::testing::{SimDisk, Tuning, random, spawn};
use cleavedb::{Db, Keyspace, KeyspaceOptions, Options};

use crate::deltas::options;
use crate::support::{in_world, open_with, value, with_each_log};

const LOG_BYTES: u64 = 64 << 10;

/// Small logs, and an index table that a little ordered traffic does not fill.
fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (LOG_BYTES, LOG_BYTES);
    tuning.index_table_bytes = 1 << 20;
    (tuning.front_bytes_max, tuning.logs_bytes_max) = (4 << 20, 4 << 20);
    (tuning.replay_bytes_max, tuning.unflushed_bytes_min) = (4 << 20, 512 << 10);
    tuning.close_flush_bytes = 1 << 20;
    tuning
}

fn hashed(db: &Db) -> Keyspace {
    let new = || db.create_keyspace("hashed", KeyspaceOptions::hash().merge_operator("chain")).unwrap();
    db.open_keyspace("hashed").unwrap_or_else(|_| new())
}

/// Bytes of all logs.
fn logs(disk: &SimDisk) -> u64 {
    let files = disk.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|end| end == "log"));
    files.map(|(path, _)| disk.read_file(&path).map_or(0, |bytes| bytes.len() as u64)).sum()
}

fn of(round: usize, number: usize) -> Vec<u8> {
    value(&format!("{round}-{number} "), 1000)
}

/// Overwrites 200 keys of 1000 B.
fn overwrite(keyspace: &Keyspace, round: usize) {
    (0..200).for_each(|number| keyspace.put(format!("{number:04}"), of(round, number)).unwrap());
}

/// Overwrites 200 keys drawn at random, so that logs die slowly.
fn overwrite_some(keyspace: &Keyspace, round: usize) {
    for _ in 0..200 {
        let number = random(200) as usize;
        keyspace.put(format!("{number:04}"), of(round, number)).unwrap();
    }
}

/// 200 KB live, 3/7 of it and three logs garbage; 512 KiB that wait for a flush, with the log that completes them; the active and
/// the spare log, and two that are full.
const LOGS_MAX: u64 = 300_000 + (512 << 10) + 8 * LOG_BYTES;

#[test]
fn a_few_ordered_writes_keep_no_logs_of_a_hash_keyspace() {
    with_each_log(|backend| {
        for is_reopened in [false, true] {
            let disk = SimDisk::new();
            let mut db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
            db.put("one", "put").unwrap();
            if is_reopened {
                db.close().unwrap();
                db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
            }
            let keyspace = hashed(&db);
            (0..40).for_each(|round| overwrite(&keyspace, round));
            db.wait_for_background().unwrap();
            assert!(logs(&disk) < LOGS_MAX, "{} B in logs: {:?}", logs(&disk), db.stats().hash);
            // Recovery reads what has not left the front, and the logs behind the saved indexes.
            let in_front: u64 = db.stats().logs.iter().map(|log| log.bytes).sum();
            assert!(in_front < (512 << 10) + 4 * LOG_BYTES, "{in_front} B are not flushed");
            let db = open_with(&disk.process_crash(), options().log_backend(backend), tuning()).unwrap();
            assert_eq!(db.get("one").unwrap().unwrap(), "put");
            (0..200).for_each(|number| {
                assert_eq!(hashed(&db).get(format!("{number:04}")).unwrap().unwrap(), of(39, number));
            });
        }
    });
}

#[test]
fn a_little_ordered_traffic_is_flushed_seldom_and_paces_no_writer_of_a_hash_keyspace() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
        let keyspace = hashed(&db);
        let mut most = 0;
        for round in 0..60 {
            overwrite(&keyspace, round);
            most = most.max(logs(&disk));
            (0..8).for_each(|number| db.put(format!("{round}-{number}"), value("ordered", 100)).unwrap());
        }
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(most < LOGS_MAX && stats.stalls == 0, "{most} B in logs, {} stalls: {:?}", stats.stalls, stats.hash);
        assert!((4..40).contains(&stats.flushes), "{} flushes of 12 MB", stats.flushes);
        assert_eq!(db.iter().unwrap().count(), 480);
        let db = open_with(&disk.process_crash(), options().log_backend(backend), tuning()).unwrap();
        assert_eq!(db.iter().unwrap().count(), 480);
    });
}

#[test]
fn without_their_operator_operands_are_moved_unchanged_and_nothing_is_poisoned() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), tuning()).unwrap();
        let keyspace = hashed(&db);
        keyspace.put("key", "base").unwrap();
        (0..5).for_each(|number| keyspace.merge("key", number.to_string()).unwrap());
        keyspace.merge("no base", "7").unwrap();
        overwrite(&keyspace, 0);
        db.close().unwrap();
        let db = open_with(&disk, Options::new(), tuning()).unwrap();
        let keyspace = hashed(&db);
        (1..30).for_each(|round| overwrite_some(&keyspace, round));
        db.wait_for_background().unwrap();
        assert!(db.stats().hash.logs_freed > 10, "{:?}", db.stats().hash);
        assert!(keyspace.get("key").is_err() && keyspace.merge("key", "9").is_err());
        db.close().unwrap();
        let db = open_with(&disk, options(), tuning()).unwrap();
        assert_eq!(hashed(&db).get("key").unwrap().unwrap(), "base+0+1+2+3+4");
        assert_eq!(hashed(&db).get("no base").unwrap().unwrap(), "7");
    });
}

#[test]
fn a_held_snapshot_costs_what_it_sees_and_no_more() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
        let keyspace = hashed(&db);
        (0..4).for_each(|round| overwrite(&keyspace, round));
        let snapshot = db.snapshot();
        let before = db.stats().hash;
        for round in 4..60 {
            overwrite(&keyspace, round);
            // Others come and go.
            let other = db.snapshot();
            overwrite(&keyspace, round + 100);
            assert_eq!(other.get(&keyspace, "0007").unwrap().unwrap(), of(round, 7));
        }
        db.wait_for_background().unwrap();
        let stats = db.stats().hash;
        assert!(logs(&disk) < LOGS_MAX + 600_000, "{} B in logs: {stats:?}", logs(&disk));
        assert!(stats.bytes_moved < 10 << 20, "{stats:?}");
        assert!(stats.index_bytes < before.index_bytes + 200 * 300, "{stats:?}");
        for number in 0..200 {
            assert_eq!(snapshot.get(&keyspace, format!("{number:04}")).unwrap().unwrap(), of(3, number));
        }
        drop(snapshot);
        db.wait_for_background().unwrap();
        assert!(logs(&disk) < LOGS_MAX, "{} B in logs: {:?}", logs(&disk), db.stats().hash);
    });
}

#[test]
fn what_is_kept_for_a_multi_get_goes_with_it() {
    for seed in 0..8 {
        in_world(seed, || {
            let db = open_with(&SimDisk::new(), options(), tuning()).unwrap();
            let keyspace = hashed(&db);
            let keys: Vec<String> = (0..40).map(|number| format!("{number:04}")).collect();
            let write = |keyspace: &Keyspace| keys.iter().for_each(|key| keyspace.put(key, "value").unwrap());
            write(&keyspace);
            let before = db.stats().hash.index_bytes;
            let (writes, of_writer) = (keys.clone(), keyspace.clone());
            let writer = spawn("writer", move || {
                (0..10).for_each(|_| writes.iter().for_each(|key| of_writer.put(key, "value").unwrap()));
            });
            (0..10).for_each(|_| assert!(keyspace.multi_get(&keys).into_iter().all(|value| value.unwrap().is_some())));
            writer.join().unwrap();
            db.wait_for_background().unwrap();
            let after = db.stats().hash.index_bytes;
            assert!(after < before + 100, "{before} B before, {after} B after");
        });
    }
}
