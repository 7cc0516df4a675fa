//! Merges in hash keyspaces: the chain of operands of a key is bounded, by folds of its writers and by collection.

use std::sync::Arc;

use cleavedb::testing::{SimDisk, Tuning, indexed_records};
use cleavedb::{Error, Keyspace, Options, WriteBatch};

use crate::deltas::options;
use crate::hashed_space::Failing;
use crate::support::{hashed, in_world, open_with, value, with_each_log};

/// The operand that finds this many records of its key has them folded first.
const CHAIN_MAX: usize = 32;
/// A key whose operands cannot be folded gets no more than this many.
const CHAIN_LIMIT: usize = 1024;

fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min, tuning.hash_slack_logs) = (64 << 10, 64 << 10, 0);
    tuning
}

/// How many records make the value of a key.
fn records(keyspace: &Keyspace, key: &str) -> usize {
    indexed_records(keyspace).get(key.as_bytes()).map_or(0, Vec::len)
}

/// The numbers below `count`, as merged one after the other.
fn joined(count: usize) -> String {
    (0..count).map(|number| number.to_string()).collect::<Vec<_>>().join("+")
}

#[test]
fn merges_one_by_one_keep_a_bounded_chain() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
        let keyspace = hashed(&db);
        let mut most = 0;
        for number in 0..100 {
            keyspace.merge("key", number.to_string()).unwrap();
            most = most.max(records(&keyspace, "key"));
            assert_eq!(keyspace.get("key").unwrap().unwrap(), joined(number + 1));
        }
        assert_eq!(most, CHAIN_MAX, "it is used, and not exceeded");
        let db = open_with(&disk.process_crash(), options().log_backend(backend), tuning()).unwrap();
        assert_eq!(hashed(&db).get("key").unwrap().unwrap(), joined(100));
        assert!(records(&hashed(&db), "key") <= CHAIN_MAX);
    });
}

#[test]
fn collection_folds_the_operands_of_a_key_into_one_record() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, options().log_backend(backend), tuning()).unwrap();
        let keyspace = hashed(&db);
        // With a base, and without.
        keyspace.put("based", "base").unwrap();
        for number in 0..5 {
            keyspace.merge("based", number.to_string()).unwrap();
            keyspace.merge("key", number.to_string()).unwrap();
        }
        assert_eq!((records(&keyspace, "based"), records(&keyspace, "key")), (6, 5));
        for round in 0..20 {
            (0..16).for_each(|number| keyspace.put(format!("{number}"), value(&round.to_string(), 900)).unwrap());
        }
        db.wait_for_background().unwrap();
        assert!(db.stats().hash.records_moved >= 2, "{:?}", db.stats().hash);
        assert_eq!((records(&keyspace, "based"), records(&keyspace, "key")), (1, 1));
        for db in [&db, &open_with(&disk.process_crash(), options().log_backend(backend), tuning()).unwrap()] {
            assert_eq!(hashed(db).get("based").unwrap().unwrap(), format!("base+{}", joined(5)));
            assert_eq!(hashed(db).get("key").unwrap().unwrap(), joined(5));
        }
    });
}

#[test]
fn a_key_that_cannot_be_folded_gets_operands_up_to_a_limit_and_other_writes_go_on() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().merge_operator(Arc::new(Failing)), tuning()).unwrap();
        let keyspace = hashed(&db);
        let mut batch = WriteBatch::new();
        (0..CHAIN_LIMIT - 5).for_each(|number| batch.merge(&keyspace, "key", number.to_string()));
        db.write(batch).unwrap();
        (CHAIN_LIMIT - 5..CHAIN_LIMIT).for_each(|number| keyspace.merge("key", number.to_string()).unwrap());
        let seqno = db.stats().seqno;
        for _ in 0..2 {
            let refused = keyspace.merge("key", "too much");
            assert!(matches!(refused, Err(Error::MergeFailed { .. })), "{refused:?}");
            let mut batch = WriteBatch::new();
            batch.put(&keyspace, "other", "with it");
            batch.merge(&keyspace, "key", "too much");
            assert!(matches!(db.write(batch), Err(Error::MergeFailed { .. })));
        }
        assert_eq!((db.stats().seqno, records(&keyspace, "key")), (seqno, CHAIN_LIMIT));
        assert_eq!(keyspace.get("other").unwrap().as_deref(), None);
        keyspace.put("other", "alone").unwrap();
        keyspace.merge("another", "1").unwrap();
        // A new value ends the chain.
        let image = disk.process_crash();
        keyspace.put("key", "new").unwrap();
        keyspace.merge("key", "0").unwrap();
        assert_eq!(records(&keyspace, "key"), 2);
        // So does an operator that works.
        let db = open_with(&image, options(), tuning()).unwrap();
        let keyspace = hashed(&db);
        assert_eq!(records(&keyspace, "key"), CHAIN_LIMIT);
        keyspace.merge("key", CHAIN_LIMIT.to_string()).unwrap();
        assert_eq!(records(&keyspace, "key"), 2);
        assert_eq!(keyspace.get("key").unwrap().unwrap(), joined(CHAIN_LIMIT + 1));
        assert_eq!(keyspace.get("other").unwrap().unwrap(), "alone");
    });
}
