//! Reads of many keys at once: the same answers as single reads at one moment, each with its own error.

use cleavedb::testing::{Faults, SimDisk, Tuning};
use cleavedb::{Error, KeyspaceOptions, Options};

use crate::support::{open, open_with, value, with_each_log};

#[test]
fn multi_get_returns_the_answers_of_single_gets_in_the_order_requested() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        // A cache of hardly one block: a block read for a key may be evicted before its turn.
        tuning.cache_bytes = 4 << 10;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        let lists = db.create_keyspace("lists", KeyspaceOptions::new().merge_operator("append")).unwrap();
        for round in 0..5 {
            for number in (round..300).step_by(round + 1) {
                db.put(format!("{number:04}"), value(&format!("{round} "), number)).unwrap();
                lists.merge(format!("{number:04}"), format!("{round}")).unwrap();
            }
            db.flush().unwrap();
        }
        let snapshot = db.snapshot();
        for number in (0..300).step_by(7) {
            db.delete(format!("{number:04}")).unwrap();
            lists.put(format!("{number:04}"), "fresh").unwrap();
        }
        let keys: Vec<String> = (0..700).map(|turn| format!("{:04}", turn * 37 % 320)).collect();
        for keyspace in [db.default_keyspace(), lists] {
            let (now, then) = (keyspace.multi_get(&keys), snapshot.multi_get(&keyspace, &keys));
            assert_eq!((now.len(), then.len()), (700, 700));
            for ((key, now), then) in keys.iter().zip(now).zip(then) {
                assert_eq!(now.unwrap(), keyspace.get(key).unwrap(), "{key}");
                assert_eq!(then.unwrap(), snapshot.get(&keyspace, key).unwrap(), "{key}");
            }
        }
        assert!(db.multi_get::<&str>([]).is_empty());
    });
}

#[test]
fn an_error_affects_only_its_key() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.cache_bytes = 0;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        for number in 0..3000 {
            db.put(format!("{number:04}"), value("v", 200)).unwrap();
        }
        db.flush().unwrap();
        // A compaction that cannot read what it has just written would poison writes.
        db.wait_for_background().unwrap();
        let long = "k".repeat(70_000);
        let answers = db.multi_get(["0001", "", &long, "0002", "9999"]);
        let invalid = |index: usize| matches!(answers[index], Err(Error::InvalidInput { .. }));
        assert!(invalid(1) && invalid(2) && matches!(answers[4], Ok(None)));
        assert_eq!(answers[3].as_ref().unwrap().as_ref().unwrap(), &value("v", 200));

        disk.set_faults(Faults { fail_read_one_in: Some(3), seed: 9, ..Faults::default() });
        let keys: Vec<String> = (0..3000).map(|number| format!("{number:04}")).collect();
        let answers = db.multi_get(&keys);
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        assert!((1..3000).contains(&failed), "{failed} of 3000 failed");
        assert!(answers.iter().flatten().all(|found| found.as_ref().is_some_and(|found| *found == value("v", 200))));
        disk.clear_faults();
        let other = open(&SimDisk::new(), backend).unwrap();
        let foreign = other.snapshot().multi_get(&db.default_keyspace(), ["0001"]);
        assert!(matches!(foreign[..], [Err(Error::InvalidInput { .. })]));
        db.clone().close().unwrap();
        assert!(matches!(db.default_keyspace().multi_get(["0001"])[..], [Err(Error::Closed)]));
    });
}

/// Each key needs uncached blocks, and for some the read fails: the error is that of the read.
#[test]
fn with_a_cold_cache_and_a_failing_disk_the_error_is_that_of_the_read() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut failed = 0;
        for cache_bytes in [0, 4 << 10, 1 << 20] {
            let mut tuning = Tuning::tiny();
            tuning.cache_bytes = cache_bytes;
            let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
            for number in 0..1000 {
                db.put(format!("{number:04}"), value("v", 100)).unwrap();
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            for seed in 0..8 {
                disk.set_faults(Faults { fail_read_one_in: Some(2), seed, ..Faults::default() });
                for answer in db.multi_get((0..1000).map(|number| format!("{number:04}"))) {
                    match answer {
                        Ok(found) => assert_eq!(found.unwrap(), value("v", 100)),
                        Err(Error::Io { operation: "read" | "open", path, .. }) => {
                            assert!(path.starts_with("/db"), "{path:?}");
                            failed += 1;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
                disk.clear_faults();
            }
            db.close().unwrap();
        }
        assert!(failed > 0);
    });
}
