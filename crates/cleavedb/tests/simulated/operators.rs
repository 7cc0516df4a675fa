//! Merge operators: a failing operator affects only the keys it is used for.

use std::sync::Arc;

use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{DeltaPlacement, Error, Keyspace, KeyspaceOptions, LogBackend, MergeOperator, Options};

use crate::deltas::{calm, flushed, in_buckets, options, text};
use crate::support::{in_world, open_with, with_each_log};

/// Joins operands with `+`; panics on `panic!`, fails on `fail!`.
struct Plus;

impl MergeOperator for Plus {
    fn name(&self) -> &str {
        "plus"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        assert!(!operands.contains(&&b"panic!"[..]), "as asked");
        match operands.contains(&&b"fail!"[..]) {
            true => Err("as asked".into()),
            false => Ok(base.into_iter().chain(operands.iter().copied()).collect::<Vec<_>>().join(&b'+')),
        }
    }

    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.full_merge(key, None, &[older, newer]).ok()
    }
}

fn with_plus(backend: LogBackend) -> Options {
    Options::new().log_backend(backend).merge_operator(Arc::new(Plus))
}

#[test]
fn a_missing_merge_operator_fails_only_reads_of_its_keys() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, with_plus(backend), Tuning::tiny()).unwrap();
        let sums = db.create_keyspace("sums", KeyspaceOptions::new().merge_operator("plus")).unwrap();
        sums.put("plain", "value").unwrap();
        for operand in ["1", "2", "3"] {
            sums.merge("sum", operand).unwrap();
        }
        sums.merge("settled", "1").unwrap();
        sums.put("settled", "value").unwrap();
        db.put("other", "value").unwrap();
        db.close().unwrap();

        for _ in 0..2 {
            let db = open_with(&disk, Options::new().log_backend(backend), Tuning::tiny()).unwrap();
            let sums = db.open_keyspace("sums").unwrap();
            assert!(matches!(sums.get("sum"), Err(Error::MergeFailed { .. })));
            for key in ["plain", "settled"] {
                assert_eq!(sums.get(key).unwrap().unwrap(), "value");
            }
            assert_eq!(db.get("other").unwrap().unwrap(), "value");
            let items: Vec<_> = sums.iter().unwrap().take(3).collect();
            assert_eq!(items.iter().filter(|item| item.is_err()).count(), 1, "{items:?}");
            // Flush and compaction leave the operands unchanged.
            db.flush().unwrap();
            db.compact_range(&sums, ..).unwrap();
            assert!(matches!(sums.get("sum"), Err(Error::MergeFailed { .. })));
            db.close().unwrap();
        }
        let db = open_with(&disk, with_plus(backend), Tuning::tiny()).unwrap();
        assert_eq!(db.open_keyspace("sums").unwrap().get("sum").unwrap().unwrap(), "1+2+3");
    });
}

#[test]
fn a_panicking_or_failing_operator_fails_only_reads_of_its_keys() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, with_plus(backend), Tuning::tiny()).unwrap();
        let sums = db.create_keyspace("sums", KeyspaceOptions::new().merge_operator("plus")).unwrap();
        for (key, trouble) in [("bad", "panic!"), ("worse", "fail!")] {
            sums.put(key, "base").unwrap();
            sums.merge(key, "1").unwrap();
            sums.merge(key, trouble).unwrap();
            sums.merge(key, "2").unwrap();
        }
        sums.put("good", "1").unwrap();
        sums.merge("good", "2").unwrap();
        for round in 0..3 {
            for key in ["bad", "worse"] {
                assert!(matches!(sums.get(key), Err(Error::MergeFailed { .. })), "round {round}");
            }
            assert_eq!(sums.get("good").unwrap().unwrap(), "1+2");
            db.flush().unwrap();
            db.compact_range(&sums, ..).unwrap();
        }
        // A new base makes the key readable again.
        sums.put("bad", "new").unwrap();
        assert_eq!(sums.get("bad").unwrap().unwrap(), "new");
        db.flush().unwrap();
        assert_eq!(sums.get("bad").unwrap().unwrap(), "new");
    });
}

#[test]
fn a_merge_without_an_operator_is_refused() {
    with_each_log(|backend| {
        let db = open_with(&SimDisk::new(), Options::new().log_backend(backend), Tuning::tiny()).unwrap();
        assert!(matches!(db.merge("k", "operand"), Err(Error::InvalidInput { .. })));
        let unknown = db.create_keyspace("unknown", KeyspaceOptions::new().merge_operator("no such operator"));
        assert!(unknown.is_err());
        assert_eq!(db.get("k").unwrap(), None);
    });
}

/// Reads a keyspace in all ways. Keys that lead to text have it, and reads of all others fail, because their operands cannot be merged;
/// neither hides the others.
fn check_all_reads(lists: &Keyspace, expected: &[(String, Option<&str>)]) {
    let is_as = |found: &cleavedb::Result<cleavedb::Slice>, value: Option<&str>| match value {
        Some(value) => matches!(found, Ok(found) if *found == value.as_bytes()),
        None => matches!(found, Err(Error::MergeFailed { .. })),
    };
    for (key, value) in expected {
        let found = lists.get(key).map(|found| found.unwrap());
        assert!(is_as(&found, *value), "{key}: {found:?}");
    }
    for (found, (key, value)) in lists.multi_get(expected.iter().map(|(key, _)| key)).into_iter().zip(expected) {
        let found = found.map(|found| found.unwrap());
        assert!(is_as(&found, *value), "{key}: {found:?}");
    }
    let forward: Vec<_> = lists.iter().unwrap().collect();
    let mut backward: Vec<_> = lists.iter().unwrap().rev().collect();
    backward.reverse();
    for found in [forward, backward] {
        assert_eq!(found.len(), expected.len());
        for (found, (key, value)) in found.into_iter().zip(expected) {
            assert!(!found.as_ref().is_ok_and(|(found, _)| *found != key.as_bytes()), "{key}: {found:?}");
            let found = found.map(|(_, found)| found);
            assert!(is_as(&found, *value), "{key}: {found:?}");
        }
    }
}

#[test]
fn without_the_operator_operands_in_buckets_stay_as_they_are() {
    in_world(1, || {
        let disk = SimDisk::new();
        let key = |number: usize| format!("{number:02}");
        let db = open_with(&disk, options(), calm()).unwrap();
        let lists = in_buckets(&db, "chain");
        (0..30).for_each(|number| lists.put(key(number), "base").unwrap());
        db.flush().unwrap();
        for round in 0..3 {
            let merge = || (0..30).filter(|number| number % 10 > 0).map(key);
            flushed(&db, &[&|| merge().for_each(|key| lists.merge(key, round.to_string()).unwrap())]);
        }
        assert_eq!(db.stats().deltas.operands, 3 * 27);
        drop(lists);
        db.close().unwrap();
        let mut expected: Vec<(String, Option<&str>)> =
            (0..30).map(|number| (key(number), (number % 10 == 0).then_some("base"))).collect();
        let bare = || Options::new().background_threads(2);
        let db = open_with(&disk, bare().read_only(true), Tuning::tiny()).unwrap();
        check_all_reads(&db.open_keyspace("lists").unwrap(), &expected);
        db.close().unwrap();
        let db = open_with(&disk, bare(), Tuning::tiny()).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        check_all_reads(&lists, &expected);
        lists.set_deltas(DeltaPlacement::Levels).unwrap();
        lists.put("08", "new").unwrap();
        flushed(&db, &[&|| lists.put("09", "new").unwrap()]);
        db.compact_range(&lists, ..).unwrap();
        db.wait_for_background().unwrap();
        (8..10).for_each(|number| expected[number].1 = Some("new"));
        check_all_reads(&lists, &expected);
        drop(lists);
        db.close().unwrap();
        for read_only in [true, false] {
            let db = open_with(&disk, options().read_only(read_only), Tuning::tiny()).unwrap();
            let lists = db.open_keyspace("lists").unwrap();
            expected.iter_mut().for_each(|(_, value)| *value = Some(value.unwrap_or("base+0+1+2")));
            check_all_reads(&lists, &expected);
            // With the operator, the keyspace can leave its buckets at last.
            if !read_only {
                db.wait_for_background().unwrap();
                assert_eq!(db.stats().deltas.buckets, 0, "{:?}", db.stats().deltas);
                check_all_reads(&lists, &expected);
            }
        }
        let db = open_with(&disk, bare(), Tuning::tiny()).unwrap();
        assert_eq!(text(&db.open_keyspace("lists").unwrap(), "07").as_deref(), Some("base+0+1+2"));
    });
}
