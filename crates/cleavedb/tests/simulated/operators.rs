//! Merge operators: a failing operator affects only the keys it is used for.

use std::sync::Arc;

use cleavedb::testing::{SimDisk, Tuning};
use cleavedb::{Error, KeyspaceOptions, LogBackend, MergeOperator, Options};

use crate::support::{open_with, with_each_log};

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
