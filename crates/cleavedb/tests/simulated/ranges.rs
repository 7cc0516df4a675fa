//! Placement by key range: once the engine is idle, separated values lie in key order, whatever the order of writes and
//! whatever placement was used before.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, Random, SimDisk, Tuning};
use cleavedb::{Db, LogBackend, Options, Stats, ValuePlacement};

use crate::support::{BACKENDS, in_world, open_with, value};

fn tuning(placement: ValuePlacement) -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.placement = placement;
    (tuning.log_bytes, tuning.group_bytes) = (32 << 10, 32 << 10);
    // The list of extents may be long.
    tuning.memory_bytes = 8 << 20;
    tuning
}

fn open_with_placement(disk: &SimDisk, backend: LogBackend, placement: ValuePlacement) -> Db {
    let options = Options::new().separation(Some(192)).log_backend(backend);
    open_with(disk, options, tuning(placement)).unwrap()
}

fn open(disk: &SimDisk, backend: LogBackend) -> Db {
    open_with_placement(disk, backend, ValuePlacement::Range)
}

fn check(disk: &SimDisk) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

fn key(number: usize) -> String {
    format!("{number:06}")
}

fn value_of_round(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in round {round}; "), 300 + number % 500)
}

fn put(db: &Db, number: usize, round: usize) {
    db.put(key(number), value_of_round(number, round)).unwrap();
}

/// Flushes the front and waits until background work is idle.
fn flush_and_wait(db: &Db) -> Stats {
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    db.stats()
}

/// Beside the extents that hold each key in order there may be a few small ones. Without reordering there would be many
/// more: the extents of a group, and logs that have left the front.
fn assert_ordered(stats: &Stats) {
    assert!(stats.value_files <= 6 * stats.value_groups, "{stats:?}");
}

/// Asserts that no key is in more than one extent, and none in a log that has left the front.
fn assert_strictly_ordered(stats: &Stats) {
    assert_eq!(stats.value_files, stats.value_groups, "{stats:?}");
}

/// Asserts that each key has the value of its round, and that there are no others.
fn assert_rounds(db: &Db, rounds: &[usize]) {
    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap()).collect();
    assert_eq!(found.len(), rounds.len());
    for (number, ((found_key, found), &round)) in found.iter().zip(rounds).enumerate() {
        assert_eq!(found_key, key(number).as_bytes());
        assert!(**found == value_of_round(number, round), "{number}, round {round}");
    }
}

#[test]
fn an_idle_engine_reorders_values_by_key_and_then_stops() {
    for backend in BACKENDS {
        in_world(1, move || {
            let disk = SimDisk::new();
            let db = open(&disk, backend);
            let (mut random, mut rounds) = (Random::new(3), vec![0; 600]);
            (0..600).for_each(|number| put(&db, (number * 7) % 600, 0));
            for round in 1..4 {
                for _ in 0..400 {
                    // Skewed: the smallest of three random numbers.
                    let number = (0..3).map(|_| random.below(600)).min().unwrap() as usize;
                    put(&db, number, round);
                    rounds[number] = round;
                }
            }
            let stats = flush_and_wait(&db);
            assert_ordered(&stats);
            assert!(
                stats.value_groups > 4 && stats.value_reorders > 0 && stats.value_reorder_bytes_written > 0,
                "{stats:?}"
            );
            testing::sleep(Duration::from_secs(60));
            let after = db.stats();
            let of = |stats: &Stats| (stats.value_reorder_bytes_written, stats.value_gcs, stats.compactions);
            assert_eq!(of(&after), of(&stats), "background work is idle");
            assert_rounds(&db, &rounds);
            db.close().unwrap();
            check(&disk);
            let db = open(&disk, backend);
            let stats = flush_and_wait(&db);
            assert_ordered(&stats);
            assert_rounds(&db, &rounds);
        });
    }
}

#[test]
fn callers_of_wait_for_background_are_not_delayed_by_reordering() {
    in_world(2, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        (0..400).for_each(|number| put(&db, (number * 7) % 400, 0));
        db.flush().unwrap();
        let value_reorders = db.stats().value_reorders;
        testing::sleep(Duration::from_secs(20));
        let stats = db.stats();
        assert!(stats.value_reorders > value_reorders, "{stats:?}");
        assert_ordered(&stats);
        // Tables hold the present addresses, and a lookup visits one table.
        assert_eq!((stats.levels[0].tables, stats.moved_files), (0, 0), "{stats:?}");
    });
}

#[test]
fn a_few_random_writes_do_not_move_all_values() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        (0..2000).for_each(|number| put(&db, (number * 7) % 2000, 0));
        let before = flush_and_wait(&db);
        let mut rounds = vec![0; 2000];
        for round in 1..11 {
            for number in (round..2000).step_by(40) {
                put(&db, number, round);
                rounds[number] = round;
            }
            assert_ordered(&flush_and_wait(&db));
        }
        // If each round moved all ranges, this would be ten times the live bytes.
        let (after, all) = (db.stats(), before.value_bytes_live);
        let written = after.value_reorder_bytes_written - before.value_reorder_bytes_written;
        assert!(written < 6 * all, "{written} B of {all} B");
        assert_rounds(&db, &rounds);
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn sequential_inserts_are_moved_once() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        for number in 0..2000 {
            put(&db, number, 0);
            if number % 500 == 499 {
                assert_strictly_ordered(&flush_and_wait(&db));
            }
        }
        let stats = flush_and_wait(&db);
        let live = stats.value_bytes_live;
        assert!(stats.value_groups as u64 >= live / (64 << 10), "{stats:?}");
        assert!(stats.value_records_moved <= 2000, "{stats:?}");
        assert_rounds(&db, &[0; 2000]);
    });
}

#[test]
fn ranges_that_have_become_small_are_merged() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring);
        (0..1000).for_each(|number| put(&db, number, 0));
        let before = flush_and_wait(&db);
        (0..1000).filter(|number| number % 50 != 0).for_each(|number| db.delete(key(number)).unwrap());
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let after = flush_and_wait(&db);
        assert!(after.value_groups * 4 < before.value_groups, "{} of {}", after.value_groups, before.value_groups);
        assert_strictly_ordered(&after);
        assert_eq!(db.iter().unwrap().count(), 20);
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn a_crash_while_values_move_loses_none_of_them() {
    for seed in 0..12 {
        in_world(seed, move || {
            let backend = BACKENDS[seed as usize % 2];
            let disk = SimDisk::new();
            let db = open(&disk, backend);
            let (mut random, mut rounds) = (Random::new(seed), vec![0; 300]);
            (0..300).for_each(|number| put(&db, number, 0));
            for round in 1..6 {
                for _ in 0..200 {
                    let number = match seed % 3 {
                        0 => random.below(300) as usize,
                        1 => (0..4).map(|_| random.below(300)).max().unwrap() as usize,
                        _ => (round * 37 + random.below(60) as usize) % 300,
                    };
                    put(&db, number, round);
                    rounds[number] = round;
                }
                db.sync().unwrap();
                match round {
                    // During the sort of the values, or when idle.
                    2 | 4 => drop(flush_and_wait(&db)),
                    _ => testing::sleep(Duration::from_micros(1_000_000 + random.below(200_000))),
                }
                let lost = disk.power_loss(seed * 10 + round as u64);
                let after = open(&lost, backend);
                assert_rounds(&after, &rounds);
                after.wait_for_background().unwrap();
                assert_rounds(&after, &rounds);
                after.close().unwrap();
                check(&lost);
            }
        });
    }
}

#[test]
fn a_new_placement_takes_over_the_files_of_the_old_one() {
    use ValuePlacement::{Hash, Range};
    let log = ValuePlacement::Log { look_up_each: false };
    for (index, placements) in
        [[Hash, Range, Hash, Range], [Range, log, Range, Hash], [log, Hash, Range, log]].iter().enumerate()
    {
        let placements = *placements;
        in_world(index as u64, move || {
            let disk = SimDisk::new();
            let (mut random, mut rounds) = (Random::new(7), vec![0; 400]);
            for (turn, placement) in placements.into_iter().enumerate() {
                let db = open_with_placement(&disk, BACKENDS[index % 2], placement);
                (0..400).filter(|_| turn == 0).for_each(|number| put(&db, number, 0));
                for round in [3 * turn + 1, 3 * turn + 2] {
                    for _ in 0..400 {
                        let number = random.below(400) as usize;
                        put(&db, number, round);
                        rounds[number] = round;
                    }
                    flush_and_wait(&db);
                }
                db.compact_range(&db.default_keyspace(), ..).unwrap();
                let stats = flush_and_wait(&db);
                assert!(stats.value_gcs + stats.value_reorders > 0, "{stats:?}");
                if placement == Range {
                    assert_ordered(&stats);
                }
                assert_rounds(&db, &rounds);
                db.close().unwrap();
                check(&disk);
            }
        });
    }
}

#[test]
fn more_records_than_fit_in_memory_are_reordered_range_by_range() {
    in_world(6, || {
        let disk = SimDisk::new();
        let mut tuning = tuning(ValuePlacement::Range);
        // A few dozen records are judged at once; values are the smallest that can be separated, and one is larger than
        // a buffer.
        tuning.job_bytes = 16 << 10;
        let db = open_with(&disk, Options::new().separation(Some(1)), tuning).unwrap();
        let of = |number: usize| value(&key(number), if number == 77 { 5 << 20 } else { 1 + number % 40 });
        for turn in 0..3 {
            for number in 0..800 {
                let number = (number * 271 + turn) % 800;
                if number != 77 || turn == 0 {
                    db.put(key(number), of(number)).unwrap();
                }
            }
            flush_and_wait(&db);
        }
        let stats = flush_and_wait(&db);
        assert_ordered(&stats);
        let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap().1).collect();
        assert!(found.len() == 800 && found.iter().enumerate().all(|(number, value)| **value == of(number)));
        db.close().unwrap();
        check(&disk);
    });
}

#[test]
fn urgent_work_stops_reordering() {
    let given_up = |seed| {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Ring);
            let mut random = Random::new(seed);
            for turn in 0..10 {
                (0..300).for_each(|number| put(&db, (number * 7) % 300, turn));
                db.flush().unwrap();
                // `wait_for_background` starts reordering at once.
                let waiting = db.clone();
                let waiting = testing::spawn("waiting", move || drop(waiting.wait_for_background()));
                for _ in 0..random.below(60) {
                    testing::sleep(Duration::from_micros(1));
                }
                if turn % 2 == 0 {
                    let pause = db.pause_background().unwrap();
                    pause.resume();
                } else {
                    db.compact_range(&db.default_keyspace(), ..).unwrap();
                }
                waiting.join().unwrap();
            }
            let given_up = db.stats().value_reorders_given_up;
            db.close().unwrap();
            check(&disk);
            let db = open(&disk, LogBackend::Plain);
            assert_ordered(&flush_and_wait(&db));
            assert_rounds(&db, &[9; 300]);
            given_up
        })
    };
    assert!((0..8).map(given_up).sum::<u64>() > 0);
}

#[test]
fn a_full_disk_stops_reordering_without_an_error() {
    in_world(9, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Plain);
        (0..600).for_each(|number| put(&db, (number * 7) % 600, 0));
        db.flush().unwrap();
        let before = db.stats();
        assert!(before.value_files > before.value_groups, "{before:?}");
        disk.set_capacity(Some(disk.used() + (8 << 10)));
        db.wait_for_background().unwrap();
        // The little that found room, if files were removed meanwhile, hardly changed the order.
        let after = db.stats();
        assert!(
            after.value_reorders <= before.value_reorders + 2 && after.value_files > after.value_groups,
            "{after:?}"
        );
        disk.set_capacity(None);
        put(&db, 0, 0);
        assert_ordered(&flush_and_wait(&db));
        assert_rounds(&db, &[0; 600]);
        db.close().unwrap();
        check(&disk);
    });
}

/// Lets reordering run until it has been idle for a while; asserts that it writes at most `limit` bytes.
fn reorder_within(db: &Db, limit: u64) -> Stats {
    let (mut before, mut idle_seconds) = (u64::MAX, 0);
    while idle_seconds < 5 {
        testing::sleep(Duration::from_secs(1));
        let written = db.stats().value_reorder_bytes_written;
        assert!(written <= limit, "{written} B written by reordering, but the limit is {limit} B");
        idle_seconds = if written == before { idle_seconds + 1 } else { 0 };
        before = written;
    }
    db.stats()
}

#[test]
fn reordering_of_keys_with_a_long_common_prefix_terminates() {
    for prefix in [70, 1100, 5000] {
        in_world(11, move || {
            let disk = SimDisk::new();
            let mut tuning = tuning(ValuePlacement::Range);
            tuning.job_bytes = 64 << 10;
            let open = || open_with(&disk, Options::new().separation(Some(192)), tuning.clone()).unwrap();
            let db = open();
            let key = |number: usize| format!("{}{number:012}", "p".repeat(prefix));
            for number in 0..800 {
                db.put(key(number * 271 % 800), value_of_round(number, 0)).unwrap();
            }
            db.flush().unwrap();
            let stats = reorder_within(&db, 8 * db.stats().user_bytes_written);
            assert!(stats.value_reorders > 0, "{stats:?}");
            if prefix < 1000 {
                assert_ordered(&stats);
            }
            assert_eq!(db.iter().unwrap().count(), 800);
            db.close().unwrap();
            check(&disk);
            // A reopen grants no credit.
            let db = open();
            reorder_within(&db, db.stats().value_bytes / 4);
        });
    }
}
