//! Hash keyspaces: what their logs take and what their collection costs, beside ordered traffic, under snapshots, with damaged
//! files and without merge operators.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Spread, Tuning, random, spawn};
use cleavedb::{Db, Event, Keyspace, KeyspaceOptions, Listener, LogBackend, MergeOperator, Options, WriteBatch};

use crate::deltas::options;
use crate::support::{hashed, in_world, open_with, value, with_each_log};

const LOG_BYTES: u64 = 64 << 10;

/// Small logs, and an index table that a little ordered traffic does not fill.
fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (LOG_BYTES, LOG_BYTES);
    (tuning.index_table_bytes, tuning.memory_bytes) = (1 << 20, 8 << 20);
    (tuning.front_bytes_max, tuning.logs_bytes_max) = (4 << 20, 4 << 20);
    (tuning.replay_bytes_max, tuning.unflushed_bytes_min) = (4 << 20, 512 << 10);
    tuning.close_flush_bytes = 1 << 20;
    tuning
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
fn deleted_keys_that_cannot_be_forgotten_yet_have_no_logs_rewritten() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), tuning()).unwrap();
        let keyspace = hashed(&db);
        (0..3000).for_each(|number| keyspace.put(format!("deleted {number}"), "value").unwrap());
        overwrite(&keyspace, 0);
        overwrite(&keyspace, 1);
        let snapshot = db.snapshot();
        (0..3000).for_each(|number| keyspace.delete(format!("deleted {number}")).unwrap());
        db.wait_for_background().unwrap();
        let stats = db.stats().hash;
        assert!(stats.tombstones == 3000 && stats.bytes_moved < 1 << 20, "{stats:?}");
        assert_eq!(snapshot.get(&keyspace, "deleted 7").unwrap().unwrap(), "value");
        drop(snapshot);
        db.wait_for_background().unwrap();
        let stats = db.stats().hash;
        assert!(stats.tombstones <= 1024 && stats.bytes_moved < 3 << 20, "{stats:?}");
    });
}

#[test]
fn collection_that_is_always_due_and_the_saving_of_indexes_do_not_keep_each_other_waiting() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = tuning();
        tuning.hash_slack_logs = 0;
        let db = open_with(&disk, options(), tuning).unwrap();
        let keyspace = hashed(&db);
        overwrite(&keyspace, 0);
        // Writers leave collection no rest.
        disk.set_latency(Path::new("/db"), Duration::from_millis(2));
        let (mut most, mut both) = (0, 0);
        for round in 1..40 {
            overwrite_some(&keyspace, round);
            let stats = db.stats();
            most = most.max(stats.hash.unsaved_bytes);
            let is_running = |name: &str| stats.jobs.iter().any(|job| job.kind == name);
            both += usize::from(is_running("save indexes") && is_running("collect logs"));
        }
        assert!(both > 0, "one waits for the other");
        let stats = db.stats().hash;
        assert!(stats.records_moved > 1000 && stats.saves > 3, "{stats:?}");
        assert!(most < 30 * LOG_BYTES, "{most} B would be read after a crash: {stats:?}");
    });
}

#[test]
fn waiting_for_background_work_waits_for_deleted_keys_although_no_log_became_full_since() {
    for seed in 0..4 {
        in_world(seed, || {
            let db = open_with(&SimDisk::new(), options(), tuning()).unwrap();
            let keyspace = hashed(&db);
            (0..3000).for_each(|number| keyspace.put(format!("deleted {number}"), "value").unwrap());
            overwrite(&keyspace, 0);
            db.wait_for_background().unwrap();
            let mut batch = WriteBatch::new();
            (0..1500).for_each(|number| batch.delete(&keyspace, format!("deleted {number}")));
            db.write(batch).unwrap();
            assert_eq!(db.stats().hash.tombstones, 1500);
            db.wait_for_background().unwrap();
            let stats = db.stats().hash;
            assert!(stats.tombstones <= 1024, "{stats:?}");
        });
    }
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

/// Counts the files that jobs could not read.
#[derive(Default)]
struct Unreadable(AtomicUsize);

impl Listener for Unreadable {
    fn event(&self, event: &Event) {
        self.0.fetch_add(usize::from(matches!(event, Event::TableQuarantined { .. })), Ordering::Relaxed);
    }
}

#[test]
fn a_key_with_a_damaged_record_elsewhere_does_not_have_its_log_collected_for_ever() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), tuning()).unwrap();
        let keyspace = hashed(&db);
        // A log full of live records has the base, and a later one the operand.
        keyspace.put("key", "the base of the chain").unwrap();
        (0..100).for_each(|number| keyspace.put(format!("stays {number}"), of(0, number)).unwrap());
        overwrite(&keyspace, 0);
        keyspace.merge("key", "1").unwrap();
        overwrite_some(&keyspace, 1);
        db.close().unwrap();
        let is_log = |path: &std::path::PathBuf| path.extension().is_some_and(|end| end == "log");
        let mut damaged = 0;
        for (path, _) in disk.files().into_iter().filter(|(path, _)| is_log(path)) {
            let bytes = disk.read_file(&path).unwrap();
            let text = b"the base of the chain";
            for at in (0..bytes.len() - text.len()).filter(|at| bytes[*at..].starts_with(text)) {
                disk.flip_bit(&path, at as u64, 0);
                damaged += 1;
            }
        }
        assert_eq!(damaged, 1);
        let unreadable = Arc::new(Unreadable::default());
        let db = open_with(&disk, options().listener(unreadable.clone()), tuning()).unwrap();
        let keyspace = hashed(&db);
        assert!(keyspace.get("key").is_err());
        (2..30).for_each(|round| overwrite_some(&keyspace, round));
        db.wait_for_background().unwrap();
        assert!(keyspace.get("key").is_err());
        let stats = db.stats().hash;
        assert!(stats.logs_freed > 10 && stats.bytes_moved < 2 << 20, "{stats:?}");
        assert!(logs(&disk) < LOGS_MAX + 200_000, "{} B in logs: {stats:?}", logs(&disk));
        let reported = unreadable.0.load(Ordering::Relaxed);
        assert!((1..4).contains(&reported), "reported {reported} times");
        // A new value makes it whole.
        keyspace.put("key", "new").unwrap();
        assert_eq!(keyspace.get("key").unwrap().unwrap(), "new");
    });
}

/// Cannot merge anything.
pub struct Failing;

impl MergeOperator for Failing {
    fn name(&self) -> &str {
        "chain"
    }

    fn full_merge(&self, _: &[u8], _: Option<&[u8]>, _: &[&[u8]]) -> Result<Vec<u8>, String> {
        Err("fails".to_owned())
    }

    fn partial_merge(&self, _: &[u8], _: &[u8], _: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn a_batch_with_very_many_operands_of_one_key_is_folded_or_saved_with_all_of_them() {
    const OPERANDS: usize = 250_000;
    for folds in [true, false] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let mut tuning = tuning();
            (tuning.log_bytes, tuning.memory_bytes) = (16 << 20, 256 << 20);
            let open =
                |options: Options| open_with(&disk, options.log_backend(LogBackend::Plain), tuning.clone()).unwrap();
            let db = match folds {
                true => open(options()),
                false => open(Options::new().merge_operator(Arc::new(Failing))),
            };
            let keyspace = hashed(&db);
            let mut batch = WriteBatch::new();
            (0..OPERANDS).for_each(|_| batch.merge(&keyspace, "key", "1"));
            db.write(batch).unwrap();
            let index_bytes = db.stats().hash.index_bytes;
            assert_eq!(index_bytes < 1 << 20, folds, "{index_bytes} B");
            keyspace.put("other", "value").unwrap();
            db.close().unwrap();
            let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options()).unwrap();
            assert!(report.is_sound(), "{:?}", report.problems);
            let db = open(options());
            assert_eq!(hashed(&db).get("key").unwrap().unwrap().len(), 2 * OPERANDS - 1);
            assert_eq!(hashed(&db).get("other").unwrap().unwrap(), "value");
        });
    }
}

/// All keys lie in one bucket.
#[test]
fn an_iteration_holds_few_large_values_at_a_time() {
    in_world(1, || {
        const VALUES: u64 = 40;
        let disk = SimDisk::new();
        let mut tuning = tuning();
        (tuning.hash_spread, tuning.cache_bytes) = (Spread::Few, 0);
        let open = || open_with(&disk, Options::new().log_backend(LogBackend::Plain), tuning.clone()).unwrap();
        let new = |db: &Db| db.create_keyspace("large", KeyspaceOptions::hash()).unwrap();
        let db = open();
        let keyspace = new(&db);
        for number in 0..VALUES {
            keyspace.put(number.to_string(), value(&format!("{number} "), 200_000)).unwrap();
        }
        db.close().unwrap();
        let db = open();
        let keyspace = db.open_keyspace("large").unwrap();
        let before = disk.reads();
        let mut iteration = keyspace.iter_unordered().unwrap();
        let mut found = BTreeSet::new();
        for visited in 1..=VALUES {
            let (key, read) = iteration.next().unwrap().unwrap();
            let number = String::from_utf8(key.to_vec()).unwrap();
            assert!(read == value(&format!("{number} "), 200_000), "the value of {number}");
            found.insert(number);
            assert!(disk.reads() - before <= visited + 1, "values are read when they are asked for");
        }
        assert!(iteration.next().is_none());
        assert_eq!(found.len() as u64, VALUES);
    });
}
