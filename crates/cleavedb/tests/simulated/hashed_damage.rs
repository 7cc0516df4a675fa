//! Damage to records of hash keyspaces that were durable is reported, wherever it is, and never cut off as if it were the end of
//! what was written.

use std::path::PathBuf;

use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{Db, Durability, Error, Keyspace, KeyspaceOptions, LogBackend, Options};

use crate::support::{in_world, open_with, value, with_each_log};

fn open(disk: &SimDisk, backend: LogBackend, log_bytes: u64) -> cleavedb::Result<Db> {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (log_bytes, log_bytes);
    open_with(disk, Options::new().log_backend(backend), tuning)
}

fn hashed(db: &Db) -> Keyspace {
    db.open_keyspace("hashed").or_else(|_| db.create_keyspace("hashed", KeyspaceOptions::hash())).unwrap()
}

/// Where in which log these bytes are.
fn find(disk: &SimDisk, bytes: &[u8]) -> (PathBuf, u64) {
    let logs =
        disk.files().into_iter().map(|(path, _)| path).filter(|path| path.extension().is_some_and(|end| end == "log"));
    let mut found = logs.filter_map(|path| {
        let log = disk.read_file(&path)?;
        let at = log.windows(bytes.len()).position(|window| window == bytes)?;
        Some((path, at as u64))
    });
    found.next_back().unwrap()
}

/// Opens the disk with each of these values damaged; each time the damage is reported, and still is at the next open.
fn check_damage(disk: &SimDisk, backend: LogBackend, log_bytes: u64, values: &[&[u8]]) {
    for value in values {
        let image = disk.process_crash();
        let (log, at) = find(&image, value);
        image.flip_bit(&log, at, 3);
        for _ in 0..2 {
            match open(&image, backend, log_bytes) {
                // Or at a later mark that says that it was durable.
                Err(Error::Corruption { path, .. }) => assert!(path >= log, "{path:?} {log:?}"),
                Err(error) => panic!("{error}"),
                Ok(db) => {
                    // The ring may have had the frame, too.
                    let found = hashed(&db).iter_unordered().unwrap().any(|item| item.unwrap().1 == *value);
                    assert!(found && backend == LogBackend::Ring, "the damage at {at} was cut off");
                    break;
                }
            }
        }
    }
}

#[test]
fn damage_to_durable_records_in_the_active_log_is_reported() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, 1 << 20).unwrap();
        let keyspace = hashed(&db);
        keyspace.put("k1", "the first value").unwrap();
        keyspace.put("k2", "the second value").unwrap();
        db.put("ordered", "small").unwrap();
        db.flush().unwrap();
        check_damage(&disk, backend, 1 << 20, &[b"the first value", b"the second value"]);
        // The same if the last write to be durable was one to a hash keyspace, and others came later.
        keyspace.put_with("k3", "the third value", Durability::Buffered).unwrap();
        db.flush().unwrap();
        keyspace.put_with("k4", "the fourth value", Durability::Buffered).unwrap();
        check_damage(&disk, backend, 1 << 20, &[b"the first value", b"the third value"]);
        let image = disk.process_crash();
        let db = open(&image, backend, 1 << 20).unwrap();
        assert_eq!(hashed(&db).get("k3").unwrap().unwrap(), "the third value");
    });
}

#[test]
fn a_hole_in_the_middle_of_the_history_of_hash_keyspaces_is_reported() {
    with_each_log(|backend| {
        const LOG_BYTES: u64 = 16 << 10;
        let disk = SimDisk::new();
        let db = open(&disk, backend, LOG_BYTES).unwrap();
        let keyspace = hashed(&db);
        let of = |number: usize| value(&format!("<{number}>"), 900);
        let put = |number| keyspace.put_with(format!("{number}"), of(number), Durability::Buffered).unwrap();
        // Logs stay in the front; what is ordered is in tables, so the watermark is behind the last record.
        let pause = db.pause_background().unwrap();
        (0..60).for_each(put);
        drop(pause);
        db.default_keyspace().ingest([("ordered", "ingested")]).unwrap();
        (60..64).for_each(put);
        db.flush().unwrap();
        put(64);
        check_damage(&disk, backend, LOG_BYTES, &[&of(61)[..], &of(63)[..]]);
        let image = disk.process_crash();
        for number in [3, 20, 40, 58] {
            let image = image.process_crash();
            let (log, at) = find(&image, &of(number));
            image.flip_bit(&log, at, 3);
            match open(&image, backend, LOG_BYTES) {
                // Or at a later mark that says that it was durable.
                Err(Error::Corruption { path, .. }) => assert!(path >= log, "{path:?} {log:?}"),
                Err(error) => panic!("{error}"),
                Ok(db) => {
                    let found = hashed(&db).get(format!("{number}")).unwrap();
                    let is_healed = found.as_deref() == Some(&of(number)[..]) && backend == LogBackend::Ring;
                    assert!(is_healed, "the hole at {number} was passed over");
                }
            }
        }
    });
}

#[test]
fn logs_that_no_hash_keyspace_needs_may_be_damaged() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Plain, 1 << 20).unwrap();
        let keyspace = hashed(&db);
        keyspace.put("k1", "the first value").unwrap();
        db.put("ordered", "small").unwrap();
        db.flush().unwrap();
        db.drop_keyspace("hashed").unwrap();
        let image = disk.process_crash();
        let (log, at) = find(&image, b"the first value");
        image.flip_bit(&log, at, 3);
        let db = open(&image, LogBackend::Plain, 1 << 20).unwrap();
        assert_eq!(db.get("ordered").unwrap().unwrap(), "small");
    });
}
