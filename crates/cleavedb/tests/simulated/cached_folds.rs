//! A read of a key with many operands goes on from the fold that an earlier read has cached, and finds what it would find without.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cleavedb::testing::{Random, SimDisk, Tuning};
use cleavedb::{Db, DeltaPlacement, Keyspace, KeyspaceOptions, Options, Snapshot};

use crate::appends::Counting;
use crate::deltas::text;
use crate::support::{in_world, open_with};

const PLACEMENTS: [DeltaPlacement; 2] = [DeltaPlacement::Levels, DeltaPlacement::Buckets];

fn lists(db: &Db, deltas: DeltaPlacement) -> Keyspace {
    db.create_keyspace("lists", KeyspaceOptions::new().merge_operator("counting").deltas(deltas)).unwrap()
}

/// All in one index table, and no background work unless a test flushes.
fn calm() -> Tuning {
    let mut tuning = crate::deltas::calm();
    (tuning.index_table_bytes, tuning.front_bytes_max, tuning.flush_bytes) = (1 << 20, 4 << 20, 4 << 20);
    (tuning.logs_bytes_max, tuning.replay_bytes_max, tuning.unflushed_bytes_min) = (8 << 20, 8 << 20, 8 << 20);
    (tuning.memory_bytes, tuning.cache_bytes) = (32 << 20, 16 << 20);
    tuning.compacts_when_idle = false;
    tuning
}

#[test]
fn a_read_applies_only_the_operands_that_came_since_the_last_one() {
    for placement in PLACEMENTS {
        in_world(1, move || {
            let operator = Counting::default();
            let applied = operator.counted.clone();
            let applied = || applied.swap(0, Ordering::Relaxed);
            let db = open_with(&SimDisk::new(), Options::new().merge_operator(Arc::new(operator)), calm()).unwrap();
            let lists = lists(&db, placement);
            // The values are inline: the value cache gets memory once a fold was to be cached.
            let merge = |numbers: std::ops::Range<usize>| {
                numbers.for_each(|number| lists.merge("key", number.to_string()).unwrap());
            };
            let joined = |numbers: std::ops::Range<usize>| {
                Some(numbers.map(|number| number.to_string()).collect::<Vec<_>>().join("+"))
            };
            merge(0..100);
            assert_eq!((text(&lists, "key"), applied()), (joined(0..100), 100));
            lists.put("other", "value").unwrap();
            db.flush().unwrap();
            applied();
            merge(100..200);
            assert_eq!(text(&lists, "key"), joined(0..200));
            assert!(applied() >= 100);
            let snapshot = db.snapshot();
            merge(200..203);
            assert_eq!((text(&lists, "key"), applied()), (joined(0..203), 3));
            assert_eq!((text(&lists, "key"), applied()), (joined(0..203), 0));
            merge(203..204);
            let many = lists.multi_get(["key", "other"]);
            assert_eq!(many[0].as_ref().unwrap().as_deref(), joined(0..204).as_deref().map(str::as_bytes));
            assert_eq!(applied(), 1);
            // An older snapshot does not meet the operand at which the fold was made.
            assert_eq!(snapshot.get(&lists, "key").unwrap().as_deref(), joined(0..200).as_deref().map(str::as_bytes));
            assert!(applied() >= 100);
            lists.delete("key").unwrap();
            assert_eq!(text(&lists, "key"), None);
            merge(7..10);
            assert_eq!((text(&lists, "key"), applied()), (joined(7..10), 3));
            merge(10..12);
            lists.delete_range("k".."l").unwrap();
            assert_eq!((text(&lists, "key"), applied()), (None, 0));
            merge(3..5);
            assert_eq!((text(&lists, "key"), applied()), (joined(3..5), 2));
            db.close().unwrap();
        });
    }
}

/// What a history has made of a key.
type Expected = [Option<String>; KEYS];

const KEYS: usize = 3;

fn check(lists: &Keyspace, snapshots: &[(Snapshot, Expected)], expected: &Expected, random: &mut Random) {
    let key = random.below(KEYS as u64) as usize;
    match random.below(4) {
        0 => {
            let keys: Vec<String> = (0..KEYS).map(|key| key.to_string()).collect();
            for (found, expected) in lists.multi_get(&keys).into_iter().zip(expected) {
                assert_eq!(found.unwrap().as_deref(), expected.as_deref().map(str::as_bytes));
            }
        }
        1 if !snapshots.is_empty() => {
            let (snapshot, then) = &snapshots[random.below(snapshots.len() as u64) as usize];
            let found = snapshot.get(lists, key.to_string()).unwrap();
            assert_eq!(found.as_deref(), then[key].as_deref().map(str::as_bytes));
        }
        _ => assert_eq!(text(lists, &key.to_string()), expected[key]),
    }
}

/// A random history, all reads of which are compared with a model. Returns how many operands the operator was given.
fn random_history(seed: u64, folded_from: usize) -> usize {
    let operator = Counting { combines: seed.is_multiple_of(2), ..Counting::default() };
    let applied = operator.counted.clone();
    in_world(seed, move || {
        let mut random = Random::new(seed);
        let options = Options::new().merge_operator(Arc::new(operator)).separation(Some(48)).background_threads(2);
        let mut tuning = Tuning::tiny();
        tuning.folded_from = folded_from;
        let db = open_with(&SimDisk::new(), options, tuning).unwrap();
        let lists = lists(&db, PLACEMENTS[seed as usize / 2 % 2]);
        let (mut expected, mut snapshots): (Expected, Vec<(Snapshot, Expected)>) = Default::default();
        for step in 0..1500_usize {
            let key = random.below(KEYS as u64) as usize;
            let (name, operand) = (key.to_string(), step.to_string());
            match random.below(1000) {
                0..550 => {
                    lists.merge(&name, &operand).unwrap();
                    let before = expected[key].take().map(|before| before + "+");
                    expected[key] = Some(before.unwrap_or_default() + &operand);
                }
                550..565 => {
                    lists.put(&name, &operand).unwrap();
                    expected[key] = Some(operand);
                }
                565..570 => {
                    lists.delete(&name).unwrap();
                    expected[key] = None;
                }
                570..573 => {
                    lists.delete_range(&*name..).unwrap();
                    expected[key..].fill(None);
                }
                573..580 => db.flush().unwrap(),
                580..583 => db.compact_range(&lists, ..).unwrap(),
                583..590 => snapshots.push((db.snapshot(), expected.clone())),
                590..595 => drop(snapshots.pop()),
                _ => check(&lists, &snapshots, &expected, &mut random),
            }
        }
        drop(snapshots);
        db.close().unwrap();
    });
    applied.load(Ordering::Relaxed)
}

#[test]
fn reads_find_the_same_with_folds_of_any_age_whatever_is_written_and_moved_between_them() {
    let [with, without] = [2, usize::MAX].map(|from| (0..24).map(|seed| random_history(seed, from)).sum::<usize>());
    assert!(with < without / 4 * 3, "{with} operands were applied, {without} without folds");
}
