//! Merge operands in buckets: what their reads take, what limits and crashes leave, and how writers wait.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{SimDisk, Tuning, sleep};
use cleavedb::{Db, DeltaPlacement, Error, KeyspaceOptions, MergeOperator, Options, Result};

use crate::deltas::{Chain, calm, flushed, in_buckets, options, text};
use crate::support::{in_world, open_with};

/// Point reads that found the operands of their key in the cache, and that did not.
fn cache_figures(db: &Db) -> (u64, u64) {
    let stats = db.stats().deltas;
    (stats.cache_hits, stats.cache_misses)
}

#[test]
fn a_read_of_cached_operands_reads_no_segment_whatever_jobs_have_done() {
    in_world(1, || {
        let mut tuning = calm();
        (tuning.bucket_extents_max, tuning.job_bytes) = (6, 4 << 20);
        (tuning.cache_bytes, tuning.memory_bytes) = (8 << 20, 16 << 20);
        let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:02}");
        (0..40).for_each(|number| lists.put(key(number), "base").unwrap());
        db.flush().unwrap();
        let mut expected = vec!["base".to_owned(); 40];
        let mut snapshots = Vec::new();
        for round in 0..20 {
            for number in (0..40).filter(|number| number % 4 != 0 || round == 0) {
                match (number + round) % 11 {
                    5 => {
                        lists.put(key(number), "new").unwrap();
                        expected[number] = "new".to_owned();
                    }
                    _ => {
                        lists.merge(key(number), round.to_string()).unwrap();
                        expected[number] += &format!("+{round}");
                    }
                }
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let before = cache_figures(&db);
            for (number, expected) in expected.iter().enumerate() {
                assert_eq!(text(&lists, &key(number)).as_ref(), Some(expected), "round {round}");
            }
            let keys: Vec<String> = (0..40).map(key).collect();
            for (found, expected) in lists.multi_get(&keys).into_iter().zip(&expected) {
                assert_eq!(found.unwrap().unwrap(), expected.as_bytes());
            }
            let after = cache_figures(&db);
            if round > 0 {
                assert!(after.1 == before.1 && after.0 > before.0 + 40, "round {round}: {before:?}, then {after:?}");
            }
            if round % 5 == 0 {
                snapshots.push((db.snapshot(), expected.clone()));
            }
            for (snapshot, then) in &snapshots {
                for (number, then) in then.iter().enumerate() {
                    assert_eq!(snapshot.get(&lists, key(number)).unwrap().unwrap(), then.as_bytes());
                }
            }
        }
        assert!(db.stats().deltas.rewrites > 0 && db.stats().memory.operand_cache_bytes > 0);
    });
}

#[test]
fn a_store_without_merges_has_no_operand_cache() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), Tuning::tiny()).unwrap();
        (0..500).for_each(|number| db.put(format!("{number:03}"), "value").unwrap());
        db.flush().unwrap();
        (0..500).for_each(|number| assert!(db.get(format!("{number:03}")).unwrap().is_some()));
        let memory = db.stats().memory;
        assert_eq!((memory.operand_cache_bytes, memory.operand_cache_bytes_max, cache_figures(&db)), (0, 0, (0, 0)));
    });
}

#[test]
fn a_get_reads_value_and_operands_in_one_round_and_finds_damage_in_either() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        (tuning.cache_bytes, tuning.memory_bytes) = (1 << 20, 4 << 20);
        let base = "b".repeat(600);
        {
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            let lists = in_buckets(&db, "chain");
            (0..200).for_each(|number| lists.put(format!("{number:03}"), &base).unwrap());
            db.flush().unwrap();
            for round in 0..3 {
                (0..200).for_each(|number| lists.merge(format!("{number:03}"), round.to_string()).unwrap());
                db.flush().unwrap();
            }
            db.close().unwrap();
        }
        let db = open_with(&disk, options(), tuning).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        let expected = format!("{base}+0+1+2");
        for number in (0..200).step_by(7) {
            assert_eq!(text(&lists, &format!("{number:03}")).as_ref(), Some(&expected));
        }
        // The blocks are cached now, the operands of other keys are not, nor their values.
        disk.set_faults(cleavedb::testing::Faults { fail_read_one_in: Some(1), ..Default::default() });
        assert!(lists.get("001").is_err());
        disk.clear_faults();
        let before = disk.reads();
        assert_eq!(text(&lists, "001").as_ref(), Some(&expected));
        assert!(disk.reads() > before);
        let before = disk.reads();
        assert_eq!(text(&lists, "001").as_ref(), Some(&expected));
        assert_eq!(disk.reads(), before, "value and operands are cached");
    });
}

/// Joins operands; with `!` among them the value is one that no database takes.
struct TooLarge;

impl MergeOperator for TooLarge {
    fn name(&self) -> &str {
        "too large"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        if operands.contains(&&b"!"[..]) { Ok(vec![0; 1 << 30]) } else { Chain.full_merge(key, base, operands) }
    }

    fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn a_result_above_the_value_limit_fails_its_read_and_the_operands_stay() {
    for deltas in [DeltaPlacement::Levels, DeltaPlacement::Buckets] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let options = Options::new().merge_operator(Arc::new(TooLarge));
            let db = open_with(&disk, options, Tuning::tiny()).unwrap();
            let of = KeyspaceOptions::new().merge_operator("too large").deltas(deltas);
            let large = db.create_keyspace("large", of).unwrap();
            large.put("key", "base").unwrap();
            flushed(&db, &[&|| (), &|| large.merge("key", "1").unwrap()]);
            let snapshot = db.snapshot();
            for _ in 0..4 {
                flushed(&db, &[&|| large.merge("key", "!").unwrap()]);
                db.compact_range(&large, ..).unwrap();
                db.wait_for_background().unwrap();
                let Err(Error::MergeFailed { message }) = large.get("key") else { panic!("the value is too large") };
                assert!(message.contains("limit"), "{message}");
                assert!(large.multi_get(["key"])[0].is_err() && large.get("other").unwrap().is_none());
                assert_eq!(snapshot.get(&large, "key").unwrap().unwrap(), "base+1");
            }
            large.put("key", "small").unwrap();
            assert_eq!(text(&large, "key").as_deref(), Some("small"));
        });
    }
}

/// Counts the operands that values are made of.
#[derive(Default)]
struct Counting(Arc<std::sync::atomic::AtomicUsize>);

impl MergeOperator for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.0.fetch_add(operands.len(), std::sync::atomic::Ordering::Relaxed);
        Chain.full_merge(key, base, operands)
    }

    fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn reading_a_key_takes_no_time_in_proportion_to_its_history() {
    const APPENDS: usize = 50_000;
    for deltas in [DeltaPlacement::Levels, DeltaPlacement::Buckets] {
        in_world(1, move || {
            let counting = Counting::default();
            let counted = counting.0.clone();
            let mut tuning = Tuning::tiny();
            (tuning.index_table_bytes, tuning.flush_bytes) = (128 << 10, 128 << 10);
            let options = Options::new().merge_operator(Arc::new(counting)).background_threads(2);
            let db = open_with(&SimDisk::new(), options, tuning).unwrap();
            let of = KeyspaceOptions::new().merge_operator("counting").deltas(deltas);
            let lists = db.create_keyspace("lists", of).unwrap();
            lists.put("hot", "base").unwrap();
            (0..APPENDS).for_each(|_| lists.merge("hot", "x").unwrap());
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            counted.store(0, std::sync::atomic::Ordering::Relaxed);
            let value = lists.get("hot").unwrap().unwrap();
            assert_eq!(value.len(), 4 + 2 * APPENDS);
            let read = counted.load(std::sync::atomic::Ordering::Relaxed);
            assert!(read < APPENDS / 4, "{deltas:?}: {read} operands");
        });
    }
}

#[test]
fn operands_without_any_base_become_one_in_their_flush() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        flushed(&db, &[&|| ["1", "2", "3"].iter().for_each(|operand| lists.merge("key", operand).unwrap())]);
        assert_eq!(db.stats().deltas.operands, 0, "nothing is below them, so their flush makes a put of them");
        assert_eq!(text(&lists, "key").as_deref(), Some("1+2+3"));
        flushed(&db, &[&|| lists.merge("key", "4").unwrap()]);
        assert_eq!(db.stats().deltas.operands, 1);
        assert_eq!(text(&lists, "key").as_deref(), Some("1+2+3+4"));
    });
}

#[test]
fn a_bucket_that_outgrows_its_size_delays_only_those_who_merge_into_it() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        (tuning.bucket_bytes, tuning.bucket_extents_max) = (2 << 10, 100);
        let db = open_with(&disk, options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        lists.put("hot", "base").unwrap();
        flushed(&db, &[&|| (), &|| lists.merge("hot", "1").unwrap()]);
        db.wait_for_background().unwrap();
        (0..20).for_each(|_| lists.merge("hot", "x".repeat(1000)).unwrap());
        assert_eq!(db.stats().paced, 0);
        // The upkeep of the bucket takes long.
        disk.set_latency(Path::new("/db"), Duration::from_millis(100));
        db.flush().unwrap();
        sleep(Duration::from_millis(1));
        db.put("other", "value").unwrap();
        lists.put("hot", "put").unwrap();
        lists.merge("hot", "1").unwrap();
        assert_eq!(db.stats().paced, 1, "{:?}", db.stats().deltas);
        disk.set_latency(Path::new("/db"), Duration::ZERO);
        db.wait_for_background().unwrap();
        lists.merge("hot", "2").unwrap();
        assert_eq!((db.stats().paced, text(&lists, "hot").as_deref()), (1, Some("put+1+2")));
    });
}
