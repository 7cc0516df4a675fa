//! Merge operands in buckets: what their reads take.

use cleavedb::Db;
use cleavedb::testing::{SimDisk, Tuning};

use crate::deltas::{calm, in_buckets, options, text};
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
