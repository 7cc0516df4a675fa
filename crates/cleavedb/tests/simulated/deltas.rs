//! Merge operands in buckets: they count where and only where the levels say so, whatever jobs do to them meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning, sleep, spawn};
use cleavedb::{Db, DeltaPlacement, Keyspace, KeyspaceOptions, MergeOperator, Options, Result};

use crate::support::{in_world, open_with};

/// Joins operands with `+`, in their order, and never combines them without a base.
pub struct Chain;

impl MergeOperator for Chain {
    fn name(&self) -> &str {
        "chain"
    }

    fn full_merge(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        Ok(base.into_iter().chain(operands.iter().copied()).collect::<Vec<_>>().join(&b'+'))
    }

    fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

pub fn options() -> Options {
    Options::new().merge_operator(Arc::new(Chain)).background_threads(2)
}

/// Sizes with which no bucket is due for upkeep.
pub fn calm() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.bucket_bytes, tuning.bucket_extents_max) = (1 << 20, 100);
    tuning
}

pub fn in_buckets(db: &Db, operator: &str) -> Keyspace {
    let options = KeyspaceOptions::new().merge_operator(operator).deltas(DeltaPlacement::Buckets);
    db.create_keyspace("lists", options).unwrap()
}

pub fn text(keyspace: &Keyspace, key: &str) -> Option<String> {
    keyspace.get(key).unwrap().map(|value| String::from_utf8_lossy(&value).into_owned())
}

/// Flushes after each of these steps.
pub fn flushed(db: &Db, steps: &[&dyn Fn()]) {
    for step in steps {
        step();
        db.flush().unwrap();
    }
}

#[test]
fn operands_of_many_flushes_are_read_in_their_order_in_every_way() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), calm()).unwrap();
        let lists = in_buckets(&db, "chain");
        let keys: Vec<String> = (0..60).map(|number| format!("key {number:02}")).collect();
        (0..60).step_by(2).for_each(|number| lists.put(&keys[number], "base").unwrap());
        db.flush().unwrap();
        assert_eq!(db.stats().deltas.buckets, 0, "a store without operands has no buckets");
        let mut snapshots = Vec::new();
        for round in 0..4 {
            keys.iter().for_each(|key| lists.merge(key, round.to_string()).unwrap());
            db.flush().unwrap();
            snapshots.push(db.snapshot());
        }
        let stats = db.stats().deltas;
        assert!(stats.buckets > 0 && stats.segments == 4 && stats.operands >= 3 * 60, "{stats:?}");
        let value = |number: usize, rounds: usize| {
            let base = number.is_multiple_of(2).then(|| "base".to_owned());
            base.into_iter().chain((0..rounds).map(|round| round.to_string())).collect::<Vec<_>>().join("+")
        };
        for (number, key) in keys.iter().enumerate() {
            assert_eq!(text(&lists, key), Some(value(number, 4)));
            for (round, snapshot) in snapshots.iter().enumerate() {
                assert_eq!(snapshot.get(&lists, key).unwrap().unwrap(), value(number, round + 1).as_bytes());
            }
        }
        for (number, found) in lists.multi_get(&keys).into_iter().enumerate() {
            assert_eq!(found.unwrap().unwrap(), value(number, 4).as_bytes());
        }
        let forward: Vec<_> = lists.iter().unwrap().map(|item| item.unwrap()).collect();
        let mut backward: Vec<_> = lists.iter().unwrap().rev().map(|item| item.unwrap()).collect();
        backward.reverse();
        assert!(forward == backward && forward.len() == 60);
        assert!(forward.iter().enumerate().all(|(number, (_, found))| *found == value(number, 4).as_bytes()));
        drop(snapshots);
        db.close().unwrap();
        assert!(testing::check(Arc::new(disk.clone()), Path::new("/db"), &options()).unwrap().is_sound());
        let db = open_with(&disk, options(), calm()).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        assert!(lists.deltas() == DeltaPlacement::Buckets && db.stats().deltas.segments == 4);
        assert!(keys.iter().enumerate().all(|(number, key)| text(&lists, key) == Some(value(number, 4))));
    });
}

#[test]
fn an_operand_below_a_tombstone_stays_dead_when_the_levels_have_nothing_else() {
    for (by_range, with_snapshot) in [(false, false), (false, true), (true, false), (true, true)] {
        in_world(1, move || {
            let db = open_with(&SimDisk::new(), options(), calm()).unwrap();
            let lists = in_buckets(&db, "chain");
            // Below a base in the levels, so that the operand is not folded by its flush.
            lists.put("key", "base").unwrap();
            let delete = || match by_range {
                true => lists.delete_range("a".."z").unwrap(),
                false => lists.delete("key").unwrap(),
            };
            flushed(&db, &[&|| (), &|| lists.merge("key", "dead").unwrap()]);
            // For as long as the snapshot needs the operand, the tombstone stays too.
            let snapshot = with_snapshot.then(|| db.snapshot());
            flushed(&db, &[&delete]);
            db.compact_range(&lists, ..).unwrap();
            assert_eq!(db.stats().deltas.operands, u64::from(with_snapshot), "{:?}", db.stats().deltas);
            assert_eq!(text(&lists, "key"), None);
            if let Some(snapshot) = &snapshot {
                assert_eq!(snapshot.get(&lists, "key").unwrap().unwrap(), "base+dead");
            }
            drop(snapshot);
            db.compact_range(&lists, "a".."b").unwrap();
            assert_eq!(text(&lists, "key"), None);
            assert_eq!(lists.iter().unwrap().count(), 0);
            flushed(&db, &[&|| lists.merge("key", "live").unwrap()]);
            db.compact_range(&lists, ..).unwrap();
            assert_eq!(text(&lists, "key").as_deref(), Some("live"));
            db.wait_for_background().unwrap();
            assert_eq!(text(&lists, "key").as_deref(), Some("live"));
        });
    }
}

/// Versions and range tombstones in tables, without those in segments.
pub fn entries_in_levels(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.entries + level.range_tombstones).sum()
}

#[test]
fn operands_that_tombstones_cover_leave_with_them_in_idle_time_or_when_their_range_is_compacted() {
    for (by_range, is_asked) in [(false, false), (false, true), (true, false), (true, true)] {
        in_world(1, move || {
            let mut tuning = calm();
            (tuning.bucket_bytes, tuning.buckets_max) = (16 << 10, 64);
            let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            let key = |number: usize| format!("{number:04}");
            let each = |change: &dyn Fn(String)| (0..2000).for_each(|number| change(key(number)));
            let put = || each(&|key| lists.put(key, "base").unwrap());
            let merge = || each(&|key| lists.merge(key, "operand").unwrap());
            let delete = || match by_range {
                true => lists.delete_range(..).unwrap(),
                false => each(&|key| lists.delete(key).unwrap()),
            };
            flushed(&db, &[&put, &merge]);
            let stats = db.stats().deltas;
            assert!(stats.operands == 2000 && stats.buckets > 1, "{stats:?}");
            lists.put("~", "stays").unwrap();
            flushed(&db, &[&delete]);
            if is_asked {
                db.compact_range(&lists, ..).unwrap();
            }
            db.wait_for_background().unwrap();
            let stats = db.stats().deltas;
            assert_eq!((stats.operands, stats.buckets, stats.segments), (0, 0, 0), "{by_range} {is_asked} {stats:?}");
            assert_eq!(lists.iter().unwrap().count(), usize::from(!by_range));
            // Idle compactions are bounded by what they would free.
            let left = if is_asked { u64::from(!by_range) } else { u64::MAX };
            assert!(entries_in_levels(&db) <= left, "{by_range} {is_asked}: {}", entries_in_levels(&db));
        });
    }
}

#[test]
fn idle_upkeep_of_buckets_under_tombstones_ends() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), calm()).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:03}");
        (0..300).for_each(|number| lists.put(key(number), "base").unwrap());
        db.flush().unwrap();
        (0..300).for_each(|number| lists.merge(key(number), "1").unwrap());
        db.flush().unwrap();
        let snapshot = db.snapshot();
        // Tombstones cover every other key, and a snapshot still needs what they cover.
        (0..300).step_by(2).for_each(|number| lists.delete(key(number)).unwrap());
        db.flush().unwrap();
        let settled = || {
            db.wait_for_background().unwrap();
            let before = db.stats().deltas;
            sleep(Duration::from_secs(60));
            db.wait_for_background().unwrap();
            let after = db.stats().deltas;
            assert_eq!(before.rewrites, after.rewrites, "{before:?} {after:?}");
            after
        };
        let held = settled();
        assert_eq!(held.operands, 300, "{held:?}");
        assert!((0..300).all(|number| snapshot.get(&lists, key(number)).unwrap().unwrap() == *b"base+1"));
        drop(snapshot);
        // Anything that is written makes the engine look again.
        flushed(&db, &[&|| lists.delete(key(2)).unwrap()]);
        let left = settled();
        assert_eq!(left.operands, 150, "{left:?}");
        for number in 0..300 {
            assert_eq!(text(&lists, &key(number)).as_deref(), (number % 2 == 1).then_some("base+1"));
        }
        assert!(left.rewrites <= 3 * left.buckets as u64, "{left:?}");
    });
}

#[test]
fn operands_around_a_put_of_the_same_flush_belong_to_different_snapshots() {
    for upkeep in [false, true] {
        in_world(1, move || {
            let tuning = if upkeep { Tuning::tiny() } else { calm() };
            let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            lists.put("key", "base").unwrap();
            db.flush().unwrap();
            let pause = db.pause_background().unwrap();
            lists.merge("key", "1").unwrap();
            let snapshot = db.snapshot();
            lists.put("key", "new").unwrap();
            lists.merge("key", "2").unwrap();
            drop(pause);
            db.flush().unwrap();
            for _ in 0..5 {
                assert_eq!(text(&lists, "key").as_deref(), Some("new+2"));
                assert_eq!(snapshot.get(&lists, "key").unwrap().unwrap(), "base+1");
                flushed(&db, &[&|| lists.merge("other", "x").unwrap()]);
                db.compact_range(&lists, ..).unwrap();
                db.wait_for_background().unwrap();
            }
        });
    }
}

#[test]
fn a_scan_passes_a_range_delete_without_losing_newer_operands_in_buckets() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), calm()).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:03}");
        let all = || (0..100).for_each(|number| lists.put(key(number), "base").unwrap());
        let merge = |operand: &str| (0..100).step_by(3).for_each(|at| lists.merge(key(at), operand).unwrap());
        let delete = || lists.delete_range(key(10)..key(90)).unwrap();
        flushed(&db, &[&all, &|| merge("old"), &delete, &|| merge("new")]);
        let expected: Vec<(String, &str)> = (0..100)
            .filter_map(|number| match (number % 3 == 0, (10..90).contains(&number)) {
                (true, true) => Some((key(number), "new")),
                (true, false) => Some((key(number), "base+old+new")),
                (false, true) => None,
                (false, false) => Some((key(number), "base")),
            })
            .collect();
        let same = |found: Vec<(cleavedb::Slice, cleavedb::Slice)>| {
            assert_eq!(found.len(), expected.len());
            for ((key, value), (expected_key, expected)) in found.iter().zip(&expected) {
                assert_eq!((&key[..], &value[..]), (expected_key.as_bytes(), expected.as_bytes()));
            }
        };
        same(lists.iter().unwrap().map(|item| item.unwrap()).collect());
        let mut backward: Vec<_> = lists.iter().unwrap().rev().map(|item| item.unwrap()).collect();
        backward.reverse();
        same(backward);
        db.compact_range(&lists, ..).unwrap();
        same(lists.iter().unwrap().map(|item| item.unwrap()).collect());
    });
}

/// Versions of keys that were deleted and then merged again: the tombstones cover nothing, although buckets have their keys.
#[test]
fn tombstones_below_newer_operands_leave_and_upkeep_ends() {
    for by_range in [false, true] {
        in_world(1, move || {
            let db = open_with(&SimDisk::new(), options(), calm()).unwrap();
            let lists = in_buckets(&db, "chain");
            let key = |number: usize| format!("{number:03}");
            let each = |change: &dyn Fn(String)| (0..300).for_each(|number| change(key(number)));
            let delete = || match by_range {
                true => each(&|key| lists.delete_range(key.clone()..key + "~").unwrap()),
                false => each(&|key| lists.delete(key).unwrap()),
            };
            let put = || each(&|key| lists.put(key, "base").unwrap());
            let merge = || each(&|key| lists.merge(key, "new").unwrap());
            flushed(&db, &[&put, &delete, &merge]);
            db.compact_range(&lists, ..).unwrap();
            db.wait_for_background().unwrap();
            let before = db.stats();
            sleep(Duration::from_secs(60));
            db.wait_for_background().unwrap();
            assert_eq!(db.stats().compactions, before.compactions);
            each(&|key| assert_eq!(text(&lists, &key).as_deref(), Some("new")));
            assert_eq!(lists.iter().unwrap().count(), 300);
        });
    }
}

/// Only tables are compacted here, and no bucket is rewritten, so that a tombstone is all that covers the operand.
#[test]
fn compactions_keep_a_tombstone_above_an_older_operand_in_a_bucket() {
    for by_range in [false, true] {
        in_world(1, move || {
            let mut tuning = calm();
            tuning.hl0_compact_tables = 2;
            let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            let put = || lists.put("key", "base").unwrap();
            let merge = || lists.merge("key", "dead").unwrap();
            let delete = || match by_range {
                true => lists.delete_range("a".."z").unwrap(),
                false => lists.delete("key").unwrap(),
            };
            flushed(&db, &[&put, &merge, &delete]);
            let compactions = db.stats().compactions;
            for round in 0..40 {
                // Around the key, so that its table is merged with others.
                let put = || ["a", "z"].iter().for_each(|key| lists.put(key, round.to_string()).unwrap());
                flushed(&db, &[&put]);
            }
            let stats = db.stats();
            assert!(stats.compactions > compactions + 3 && stats.deltas.operands == 1, "{stats:?}");
            assert_eq!(text(&lists, "key"), None);
            flushed(&db, &[&|| lists.merge("key", "live").unwrap()]);
            assert_eq!(text(&lists, "key").as_deref(), Some("live"));
        });
    }
}

/// What a flush counts is known to its process only.
#[test]
fn a_read_after_an_open_notices_many_operands_that_an_earlier_process_left() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        (tuning.index_table_bytes, tuning.front_bytes_max, tuning.flush_bytes) = (4 << 20, 8 << 20, 8 << 20);
        (tuning.logs_bytes_max, tuning.replay_bytes_max, tuning.unflushed_bytes_min) = (8 << 20, 8 << 20, 8 << 20);
        let open = |disk: &SimDisk, options: Options| open_with(disk, options, tuning.clone()).unwrap();
        let db = open(&disk, options());
        let lists = in_buckets(&db, "chain");
        lists.put("hot", "0").unwrap();
        db.flush().unwrap();
        (1..3000).for_each(|number| lists.merge("hot", number.to_string()).unwrap());
        let disk = disk.process_crash();
        // Without the operator nothing can be folded.
        let db = open(&disk, Options::new());
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&disk, options());
        let lists = db.open_keyspace("lists").unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().deltas.operands, 2999, "{:?}", db.stats().deltas);
        let all = (0..3000).map(|number| number.to_string()).collect::<Vec<_>>().join("+");
        assert!(text(&lists, "hot") == Some(all.clone()));
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert!(stats.rewrites > 0 && stats.operands < 1500, "{stats:?}");
        assert!(text(&lists, "hot") == Some(all));
        db.close().unwrap();
    });
}

#[test]
fn operands_that_cannot_be_combined_are_consolidated_in_the_background() {
    in_world(1, || {
        let mut tuning = Tuning::tiny();
        (tuning.bucket_bytes, tuning.bucket_extents_max) = (64 << 10, 4);
        let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        lists.put("hot", "0").unwrap();
        db.flush().unwrap();
        for number in 1..3000 {
            lists.merge("hot", number.to_string()).unwrap();
            if number % 500 == 0 {
                db.flush().unwrap();
            }
        }
        flushed(&db, &[&|| ()]);
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert!(stats.rewrites > 0 && stats.operands < 1500, "{stats:?}");
        let all = (0..3000).map(|number| number.to_string()).collect::<Vec<_>>().join("+");
        assert!(text(&lists, "hot") == Some(all));
    });
}

#[test]
fn operands_folded_in_their_bucket_keep_those_that_older_snapshots_separate() {
    in_world(1, || {
        let mut tuning = calm();
        tuning.bucket_extents_max = 4;
        let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        lists.put("key", "base").unwrap();
        let (mut expected, mut snapshots) = ("base".to_owned(), Vec::new());
        for round in 0..6 {
            for number in 0..40 {
                lists.merge("key", format!("{round}.{number}")).unwrap();
                expected += &format!("+{round}.{number}");
            }
            snapshots.push((db.snapshot(), expected.clone()));
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            assert_eq!(text(&lists, "key").as_ref(), Some(&expected), "round {round}");
            for (snapshot, then) in &snapshots {
                assert_eq!(snapshot.get(&lists, "key").unwrap().unwrap(), then.as_bytes());
            }
        }
        assert!(db.stats().deltas.rewrites > 0, "{:?}", db.stats().deltas);
    });
}

#[test]
fn buckets_of_long_keys_are_not_rewritten_for_what_their_keys_take_in_indexes() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), calm()).unwrap();
        let lists = in_buckets(&db, "chain");
        let keys = [vec![b'k'; 3000], vec![b'l'; 3000]];
        keys.iter().for_each(|key| lists.put(key, "base").unwrap());
        db.flush().unwrap();
        keys.iter().for_each(|key| lists.merge(key, "1").unwrap());
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().deltas.rewrites, 0, "{:?}", db.stats().deltas);
        assert!(keys.iter().all(|key| lists.get(key).unwrap().unwrap() == *b"base+1"));
    });
}

#[test]
fn buckets_split_when_they_are_full_and_are_folded_when_they_cannot_split() {
    in_world(1, || {
        let mut tuning = Tuning::tiny();
        (tuning.bucket_bytes, tuning.bucket_extents_max, tuning.buckets_max) = (4 << 10, 4, 12);
        let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
        let lists = in_buckets(&db, "chain");
        let key = |number: usize| format!("{number:05}");
        (0..2000).for_each(|number| lists.put(key(number), "base").unwrap());
        flushed(&db, &[&|| (0..20).for_each(|number| lists.merge(key(number * 100), "first").unwrap())]);
        let first = db.stats().deltas.buckets;
        for round in 0..10 {
            (0..2000).for_each(|number| lists.merge(key(number), round.to_string()).unwrap());
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert!(first < stats.buckets && stats.buckets <= 12 && stats.folds > 0, "{first} then {stats:?}");
        for number in 0..2000 {
            let first = if number % 100 == 0 { "+first" } else { "" };
            assert_eq!(text(&lists, &key(number)), Some(format!("base{first}+0+1+2+3+4+5+6+7+8+9")));
        }
    });
}

#[test]
fn keyspaces_that_leave_their_buckets_are_folded_until_none_is_left() {
    for seed in 0..12 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
            let lists = in_buckets(&db, "chain");
            let key = |number: usize| format!("{number:02}");
            (0..40).for_each(|number| lists.put(key(number), "base").unwrap());
            db.flush().unwrap();
            let merge = |operand: &str| (0..40).for_each(|number| lists.merge(key(number), operand).unwrap());
            flushed(&db, &[&|| merge("1"), &|| merge("2")]);
            let snapshot = db.snapshot();
            assert!(db.stats().deltas.operands > 0);
            lists.set_deltas(DeltaPlacement::Levels).unwrap();
            // Writes race with the folds.
            let writer = {
                let lists = lists.clone();
                spawn("writer", move || {
                    for number in 0..40 {
                        match number % 3 {
                            0 => lists.put(key(number), "put").unwrap(),
                            1 => lists.merge(key(number), "3").unwrap(),
                            _ => lists.delete(key(number)).unwrap(),
                        }
                    }
                })
            };
            db.wait_for_background().unwrap();
            writer.join().unwrap();
            let expected = |number: usize| ["put", "base+1+2+3", ""][number % 3];
            let check = |db: &Db| {
                let lists = db.open_keyspace("lists").unwrap();
                for number in 0..40 {
                    assert_eq!(text(&lists, &key(number)).unwrap_or_default(), expected(number), "{number}");
                }
            };
            check(&db);
            for number in 0..40 {
                assert_eq!(snapshot.get(&lists, key(number)).unwrap().unwrap(), "base+1+2");
            }
            drop(snapshot);
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            check(&db);
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let stats = db.stats().deltas;
            assert_eq!((stats.buckets, stats.segments, stats.operands), (0, 0, 0), "{stats:?}");
            check(&db);
            db.close().unwrap();
            check(&open_with(&disk, options(), Tuning::tiny()).unwrap());
        });
    }
}

#[test]
fn a_dropped_keyspace_leaves_no_bucket_behind() {
    in_world(1, || {
        let db = open_with(&SimDisk::new(), options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        let stays = KeyspaceOptions::new().merge_operator("append").deltas(DeltaPlacement::Buckets);
        let stays = db.create_keyspace("stays", stays).unwrap();
        for keyspace in [&lists, &stays] {
            keyspace.put("key", "base").unwrap();
        }
        db.flush().unwrap();
        flushed(&db, &[&|| lists.merge("key", "x").unwrap(), &|| stays.merge("key", "y").unwrap()]);
        assert_eq!(db.stats().deltas.buckets, 2);
        db.drop_keyspace("lists").unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats().deltas;
        assert_eq!((stats.buckets, stats.segments, stats.operands), (1, 1, 1), "{stats:?}");
        assert_eq!(text(&stays, "key").as_deref(), Some("base,y"));
    });
}

#[test]
fn a_checkpoint_has_the_operands_in_buckets_and_keeps_them() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), Tuning::tiny()).unwrap();
        let lists = in_buckets(&db, "chain");
        lists.put("key", "base").unwrap();
        db.flush().unwrap();
        flushed(&db, &[&|| lists.merge("key", "1").unwrap()]);
        db.checkpoint("/copy").unwrap();
        for number in 2..12 {
            flushed(&db, &[&|| lists.merge("key", number.to_string()).unwrap()]);
        }
        db.wait_for_background().unwrap();
        db.close().unwrap();
        let storage: Arc<SimDisk> = Arc::new(disk.clone());
        assert!(testing::check(storage.clone(), Path::new("/copy"), &options()).unwrap().is_sound());
        let copy = testing::open(storage, Path::new("/copy"), options(), Tuning::tiny()).unwrap();
        let lists = copy.open_keyspace("lists").unwrap();
        assert_eq!(text(&lists, "key").as_deref(), Some("base+1"));
    });
}
