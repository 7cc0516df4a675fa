//! Hash keyspaces beside ordered ones: logs that hold records of both, and what writes to hash keyspaces alone leave untouched.

use std::collections::BTreeSet;
use std::time::Duration;

use cleavedb::testing::{IndexedRecord, SimDisk, Tuning, indexed_records, random, sleep};
use cleavedb::{Db, Keyspace, LogBackend, ValuePlacement};

use crate::deltas::options;
use crate::support::{
    files_of_kind, hashed, in_world, log_numbers, lose_power, one_of_each_sync, open_with, taken, value, with_each_log,
};

const KEYS: usize = 300;
/// One key of the hash keyspace in this many stays as it was first written.
const STAYS: usize = 10;

fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min, tuning.hash_slack_logs) = (64 << 10, 64 << 10, 0);
    tuning
}

fn open(disk: &SimDisk, backend: LogBackend, tuning: Tuning) -> Db {
    open_with(disk, options().log_backend(backend).separation(Some(192)), tuning).unwrap()
}

fn key(number: usize) -> String {
    format!("{number:04}")
}

/// A value that says when it was written, and for which key.
fn of(round: usize, number: usize, len: usize) -> Vec<u8> {
    value(&format!("{round} {number} "), len)
}

/// The round of a value, which must be one of this key.
fn round_of(value: &[u8], number: usize, len: usize) -> usize {
    let round = String::from_utf8_lossy(value).split(' ').next().unwrap().parse().unwrap();
    assert_eq!(value, of(round, number, len), "{number}");
    round
}

const ORDERED_BYTES: usize = 800;
const HASHED_BYTES: usize = 100;

/// Every key has a value in both keyspaces; returns their rounds.
fn rounds(db: &Db) -> Vec<(usize, usize)> {
    let keyspace = hashed(db);
    let of_key = |number| {
        let (ordered, hashed) = (db.get(key(number)).unwrap().unwrap(), keyspace.get(key(number)).unwrap().unwrap());
        (round_of(&ordered, number, ORDERED_BYTES), round_of(&hashed, number, HASHED_BYTES))
    };
    (0..KEYS).map(of_key).collect()
}

/// Puts a value into both keyspaces for each key, in an order that is none.
fn write_both(db: &Db, keyspace: &Keyspace, round: usize) {
    for number in (0..KEYS).map(|step| step * 7 % KEYS) {
        db.put(key(number), of(round, number, ORDERED_BYTES)).unwrap();
        keyspace.put(key(number), of(round, number, HASHED_BYTES)).unwrap();
    }
}

/// The places of the records of keys that stay in these logs.
fn places_in(keyspace: &Keyspace, logs: &BTreeSet<u64>) -> Vec<IndexedRecord> {
    let records = indexed_records(keyspace);
    let staying = (0..KEYS).step_by(STAYS).map(|number| records[key(number).as_bytes()][0]);
    staying.filter(|record| logs.contains(&record.file)).collect()
}

#[test]
fn logs_with_records_of_both_kinds_are_judged_by_both_and_stay_until_value_gc_has_emptied_them() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = tuning();
        // What hash keyspaces leave behind in the logs is not worth value GC.
        tuning.garbage_bytes = 128 << 10;
        let db = open(&disk, backend, tuning.clone());
        let keyspace = hashed(&db);
        write_both(&db, &keyspace, 0);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let mut both: BTreeSet<u64> = indexed_records(&keyspace).values().map(|records| records[0].file).collect();
        // What follows goes on in the last one.
        both.pop_last();
        assert!(both.len() > 2 && both.is_subset(&log_numbers(&disk)), "{both:?}");
        let before = places_in(&keyspace, &both);
        assert!(before.len() > KEYS / STAYS / 2);
        // In the hash keyspace nearly all is overwritten, in the ordered one nothing. So tables have most of each of these logs.
        let overwrite = |round: usize| {
            for _ in 0..KEYS {
                let number = random(KEYS as u64) as usize;
                if !number.is_multiple_of(STAYS) {
                    keyspace.put(key(number), of(round, number, HASHED_BYTES)).unwrap();
                }
            }
        };
        (1..60).for_each(overwrite);
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(stats.hash.records_moved > 0 && stats.hash.logs_freed > 5, "{:?}", stats.hash);
        assert_eq!(places_in(&keyspace, &both), before, "logs full of what tables reference are not emptied");
        assert_eq!((stats.value_files, stats.value_gcs), (0, 0), "value GC leaves them alone");
        // Once nothing of the hash keyspace is left in them, they are value files like others.
        let images = lose_power(&disk);
        (0..KEYS).step_by(STAYS).for_each(|number| keyspace.put(key(number), of(60, number, HASHED_BYTES)).unwrap());
        (61..70).for_each(overwrite);
        db.wait_for_background().unwrap();
        assert!(both.is_subset(&log_numbers(&disk)) && db.stats().value_files >= both.len(), "{:?}", db.stats());
        assert!(rounds(&db).iter().all(|(ordered, _)| *ordered == 0));
        for number in (0..KEYS).filter(|number| !number.is_multiple_of(STAYS)) {
            db.put(key(number), of(1, number, ORDERED_BYTES)).unwrap();
        }
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        assert!(db.stats().value_gcs > 0 && both.is_disjoint(&log_numbers(&disk)), "{both:?} {:?}", db.stats());
        let now = rounds(&db);
        db.close().unwrap();
        let images = taken(&disk, &images);
        for image in one_of_each_sync(&images).step_by(11) {
            for ((ordered, hashed), (ordered_now, hashed_now)) in
                rounds(&open(image, backend, tuning.clone())).iter().zip(&now)
            {
                assert!(ordered <= ordered_now && hashed <= hashed_now);
            }
        }
        assert_eq!(rounds(&open(&disk, backend, tuning)), now);
    });
}

#[test]
fn values_in_logs_with_records_of_hash_keyspaces_are_not_reordered() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = tuning();
        (tuning.placement, tuning.group_bytes) = (ValuePlacement::Range, 32 << 10);
        let db = open(&disk, backend, tuning.clone());
        let keyspace = hashed(&db);
        write_both(&db, &keyspace, 0);
        let places = indexed_records(&keyspace);
        // Later logs have no records of the hash keyspace.
        for number in (0..1000).map(|step| step * 769 % 1000) {
            db.put(format!("more {number:04}"), of(0, number, ORDERED_BYTES)).unwrap();
        }
        db.flush().unwrap();
        (0..20).for_each(|_| assert_eq!(db.iter().unwrap().count(), KEYS + 1000));
        // Idle for long.
        sleep(Duration::from_secs(60));
        let stats = db.stats();
        assert!(stats.value_reorders > 0 && stats.hash.records_moved == 0, "{stats:?}");
        assert_eq!(indexed_records(&keyspace), places);
        let is_as_written = |db: &Db| {
            assert_eq!(rounds(db), [(0, 0); KEYS]);
            for (number, item) in db.prefix("more").unwrap().enumerate() {
                assert_eq!(item.unwrap().1, of(0, number, ORDERED_BYTES));
            }
        };
        is_as_written(&db);
        let image = disk.process_crash();
        db.close().unwrap();
        [&disk, &image].into_iter().for_each(|disk| is_as_written(&open(disk, backend, tuning.clone())));
    });
}

#[test]
fn writes_to_hash_keyspaces_alone_touch_no_index_table_no_run_and_no_level() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut db = open(&disk, backend, tuning());
        for is_reopened in [false, true] {
            if is_reopened {
                db.close().unwrap();
                db = open(&disk, backend, tuning());
            }
            let (keyspace, before) = (hashed(&db), db.stats());
            for round in 0..20 {
                (0..KEYS).for_each(|number| keyspace.put(key(number), of(round, number, HASHED_BYTES)).unwrap());
                (0..KEYS).step_by(STAYS).for_each(|number| keyspace.delete(key(number)).unwrap());
                let stats = db.stats();
                assert_eq!((stats.index_table_entries, stats.sealed, stats.runs.len()), (0, 0, 0));
            }
            db.wait_for_background().unwrap();
            db.flush().unwrap();
            let stats = db.stats();
            assert!(stats.hash.logs_freed > 3, "{:?}", stats.hash);
            assert_eq!((stats.flushes, stats.seals, stats.index_merges, stats.compactions), (0, 0, 0, 0));
            assert_eq!((stats.table_bytes_written, stats.index_table_bytes), (0, before.index_table_bytes));
            assert!(stats.levels.iter().all(|level| level.tables == 0), "{:?}", stats.levels);
            for keyspace in [&keyspace, &db.default_keyspace()] {
                let sizes = keyspace.stats().unwrap();
                assert_eq!((sizes.front_bytes, sizes.table_bytes, sizes.bytes_separated), (0, 0, 0));
            }
            assert!(files_of_kind(&disk, "table").is_empty());
        }
    });
}

/// Bytes of the header of a record in the log.
const RECORD_HEADER_BYTES: usize = 23;

#[test]
fn the_size_of_a_hash_keyspace_is_that_of_its_live_records() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = tuning();
        tuning.memory_bytes = 8 << 20;
        let mut db = open(&disk, LogBackend::Ring, tuning.clone());
        let size = |keys: usize, value: usize| keys * (RECORD_HEADER_BYTES + 4 + value);
        let mut wanted = 0;
        for is_reopened in [false, true] {
            if is_reopened {
                db.close().unwrap();
                db = open(&disk, LogBackend::Ring, tuning.clone());
                assert_eq!(hashed(&db).approximate_size(..).unwrap(), wanted);
            }
            let keyspace = hashed(&db);
            for round in 0..3 {
                (0..4000).for_each(|number| keyspace.put(key(number), of(round, number, HASHED_BYTES)).unwrap());
            }
            assert_eq!(keyspace.approximate_size(..).unwrap(), size(4000, HASHED_BYTES) as u64);
            (0..4000).step_by(4).for_each(|number| keyspace.delete(key(number)).unwrap());
            (1..4000).step_by(4).for_each(|number| keyspace.put(key(number), "short").unwrap());
            db.wait_for_background().unwrap();
            let stats = db.stats().hash;
            // Deletes are live as long as they are needed.
            wanted = (size(2000, HASHED_BYTES) + size(1000, 5) + size(stats.tombstones as usize, 0)) as u64;
            assert_eq!((keyspace.approximate_size(..).unwrap(), stats.live_bytes), (wanted, wanted), "{stats:?}");
            assert_eq!((keyspace.stats().unwrap().log_bytes, keyspace.stats().unwrap().entries), (wanted, 3000));
            // A place and a slot for each, beside its key.
            let each = stats.index_bytes_a_key_percent;
            assert_eq!(each, stats.index_bytes as u64 * 100 / (stats.keys + stats.tombstones));
            assert!((1200..3000).contains(&each), "{each} hundredths of a byte for keys of 4 B");
        }
    });
}
