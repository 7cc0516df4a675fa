//! Folds of buckets that race with writes.

use std::path::Path;
use std::time::Duration;

use cleavedb::testing::{SimDisk, sleep};
use cleavedb::{Compression, DeltaPlacement};

use crate::deltas::{calm, flushed, in_buckets, options, text};
use crate::support::{in_world, open_with};

/// Merges into a key while its bucket is folded, so that the fold is refused, some times in a row. Returns the operands of
/// the store after each.
fn refused_folds(rounds: usize) -> Vec<u64> {
    let disk = SimDisk::new();
    let mut tuning = calm();
    (tuning.bucket_bytes, tuning.buckets_max, tuning.bucket_extents_max) = (1 << 10, 1, 2);
    (tuning.cache_bytes, tuning.compacts_when_idle) = (0, false);
    let db = open_with(&disk, options(), tuning).unwrap();
    let lists = in_buckets(&db, "chain");
    lists.put("hot", "base").unwrap();
    let mut expected = "base".to_owned();
    let mut merge = |operand: String| {
        lists.merge("hot", &operand).unwrap();
        expected += &format!("+{operand}");
        expected.clone()
    };
    flushed(&db, &[&|| ()]);
    merge("x".repeat(1000));
    flushed(&db, &[&|| ()]);
    let mut operands = Vec::new();
    for round in 0..rounds {
        let before = db.stats().deltas.rewrites;
        merge(format!("{round}{}", "y".repeat(600)));
        disk.set_latency(Path::new("/db"), Duration::from_millis(30));
        db.flush().unwrap();
        let mut number = 0;
        let value = loop {
            sleep(Duration::from_millis(25));
            let value = merge(format!("{round}.{number}"));
            number += 1;
            if db.stats().deltas.rewrites > before {
                break value;
            }
        };
        disk.set_latency(Path::new("/db"), Duration::ZERO);
        assert!(text(&lists, "hot") == Some(value), "round {round}");
        operands.push(db.stats().deltas.operands);
    }
    let stats = db.stats().deltas;
    assert_eq!((stats.folds, stats.folds_refused), (0, rounds as u64), "{stats:?}, {operands:?}");
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    let value = text(&lists, "hot").unwrap();
    db.close().unwrap();
    let db = open_with(&disk, options(), calm()).unwrap();
    assert!(text(&db.open_keyspace("lists").unwrap(), "hot") == Some(value));
    operands
}

#[test]
fn a_fold_racing_a_write_is_refused_and_after_two_refusals_the_key_is_folded_in_its_bucket() {
    in_world(1, || {
        let operands = refused_folds(3);
        // The second refusal comes just before the bucket is rewritten.
        assert_eq!(operands, [2, 1, 1]);
    });
}

#[test]
fn a_fold_racing_a_put_or_an_ingest_loses_against_it() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        (tuning.bucket_bytes, tuning.buckets_max, tuning.bucket_extents_max) = (1 << 10, 1, 2);
        tuning.cache_bytes = 0;
        let db = open_with(&disk, options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        let change: [&dyn Fn(&str); 4] = [
            &|key| assert_eq!(lists.ingest([(key, "ingested")]).unwrap(), 1),
            &|key| lists.put(key, "put").unwrap(),
            &|key| lists.delete(key).unwrap(),
            &|key| lists.delete_range(key..=key).unwrap(),
        ];
        let keys = ["a", "b", "c", "d", "e"];
        keys.iter().for_each(|key| lists.put(key, "base").unwrap());
        let merge = || keys.iter().for_each(|key| lists.merge(key, "x".repeat(200)).unwrap());
        flushed(&db, &[&|| (), &merge, &|| ()]);
        disk.set_latency(Path::new("/db"), Duration::from_millis(30));
        flushed(&db, &[&merge]);
        // The fold has read the values by then, and is not committed yet.
        sleep(Duration::from_millis(40));
        disk.set_latency(Path::new("/db"), Duration::ZERO);
        keys.iter().zip(change).for_each(|(key, change)| change(key));
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert_eq!((stats.folds, stats.folds_refused), (1, 4), "{stats:?}");
        let folded = ["base", &"x".repeat(200), &"x".repeat(200)].join("+");
        let expected = [Some("ingested".to_owned()), Some("put".to_owned()), None, None, Some(folded)];
        for _ in 0..2 {
            assert_eq!(keys.map(|key| text(&lists, key)), expected);
            db.compact_range(&lists, ..).unwrap();
        }
    });
}

/// A write that a fold races with may have been sealed meanwhile, and be in a run by the time the fold is to be committed.
#[test]
fn a_fold_loses_against_writes_in_sealed_index_tables_and_in_runs() {
    for (threads, waits_for_run) in [(1, false), (2, true)] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let mut tuning = calm();
            (tuning.bucket_bytes, tuning.buckets_max, tuning.bucket_extents_max) = (1 << 10, 1, 2);
            tuning.cache_bytes = 0;
            let db = open_with(&disk, options().background_threads(threads), tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            let keys = ["a", "b", "c"];
            keys.iter().for_each(|key| lists.put(key, "base").unwrap());
            let merge = || keys.iter().for_each(|key| lists.merge(key, "x".repeat(400)).unwrap());
            flushed(&db, &[&|| (), &merge, &|| ()]);
            disk.set_latency(Path::new("/db"), Duration::from_millis(30));
            flushed(&db, &[&merge]);
            // The fold has begun, and reads.
            sleep(Duration::from_millis(40));
            lists.put("a", "put").unwrap();
            lists.merge("b", "1").unwrap();
            (0..40).for_each(|number| db.put(format!("{number}"), "v".repeat(100)).unwrap());
            while waits_for_run && db.stats().runs.is_empty() {
                sleep(Duration::from_millis(1));
            }
            let stats = db.stats();
            assert_eq!((stats.sealed > 0, stats.runs.is_empty()), (!waits_for_run, !waits_for_run), "{stats:?}");
            assert_eq!((stats.deltas.folds, stats.deltas.folds_refused), (0, 0), "the fold is not over");
            disk.set_latency(Path::new("/db"), Duration::ZERO);
            db.wait_for_background().unwrap();
            let stats = db.stats().deltas;
            assert_eq!((stats.folds, stats.folds_refused), (1, 2), "{stats:?}");
            let folded = ["base", &"x".repeat(400), &"x".repeat(400)].join("+");
            let expected = [Some("put".to_owned()), Some(format!("{folded}+1")), Some(folded)];
            for _ in 0..2 {
                assert_eq!(keys.map(|key| text(&lists, key)), expected);
                db.compact_range(&lists, ..).unwrap();
            }
        });
    }
}

#[test]
fn values_folded_in_a_bucket_are_separated_once_they_leave_it() {
    const KEYS: usize = 64;
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        tuning.bucket_extents_max = 2;
        let db = open_with(&disk, options().separation(Some(192)).compression(Compression::None), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:02}");
        let base = "base".repeat(250);
        (0..KEYS).for_each(|number| lists.put(key(number), &base).unwrap());
        db.flush().unwrap();
        // More than a bucket keeps of operands that cannot be combined.
        for _ in 0..40 {
            (0..KEYS).for_each(|number| lists.merge(key(number), "x").unwrap());
        }
        flushed(&db, &[&|| (), &|| (0..KEYS).for_each(|number| lists.merge(key(number), "y").unwrap())]);
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert!(stats.operands == KEYS as u64 && stats.bytes > (KEYS * base.len()) as u64, "bases only: {stats:?}");
        lists.set_deltas(DeltaPlacement::Levels).unwrap();
        db.wait_for_background().unwrap();
        db.compact_range(&lists, ..).unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        let tables: u64 = stats.levels.iter().map(|level| level.bytes).sum();
        assert_eq!(stats.deltas.operands, 0);
        assert!(tables < (KEYS * base.len() / 4) as u64, "{tables} B in tables: {:?}", stats.levels);
        let value = [base.as_str(), &vec!["x"; 40].join("+"), "y"].join("+");
        assert!((0..KEYS).all(|number| text(&lists, &key(number)).as_ref() == Some(&value)));
    });
}
