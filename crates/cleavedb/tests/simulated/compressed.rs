//! Values compressed as they are moved: they take less space, and are read correctly whatever the option is later.

use std::path::Path;
use std::sync::Arc;

use cleave_sim::material::Value;
use cleavedb::testing::{self, SimDisk, Storage, Tuning};
use cleavedb::{Compression, Db, Error, LogBackend, Options, Stats, ValuePlacement};

use crate::support::{BACKENDS, in_world, open_with, value, with_each_log};

const KEYS: usize = 300;

const PLACEMENTS: [ValuePlacement; 3] =
    [ValuePlacement::Hash, ValuePlacement::Range, ValuePlacement::Log { look_up_each: false }];

fn tuning(compression: Compression) -> Tuning {
    let mut tuning = Tuning::tiny();
    tuning.value_compression = compression;
    tuning
}

fn open(disk: &SimDisk, backend: LogBackend, tuning: Tuning) -> Db {
    open_with(disk, Options::new().separation(Some(192)).log_backend(backend), tuning).unwrap()
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

/// Values that compress to less than half, and contain the round.
fn value_of_round(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in round {round}; "), 300 + number % 50)
}

/// Waits until background work is idle and all addresses are fresh.
fn refresh_and_wait(db: &Db) -> Stats {
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
    db.stats()
}

/// The round in which [`write_and_move`] wrote a key last.
fn last_round(number: usize) -> usize {
    if number.is_multiple_of(2) { 0 } else { 3 }
}

/// Writes all keys once, and every other one more often, so that the files with the rest are collected.
fn write_and_move(db: &Db, of: &dyn Fn(usize, usize) -> Vec<u8>) -> Stats {
    for round in 0..=3 {
        // Not in key order.
        for number in (0..KEYS).map(|at| at * 7 % KEYS).filter(|number| round <= last_round(*number)) {
            db.put(key(number), of(number, round)).unwrap();
        }
        refresh_and_wait(db);
    }
    let stats = db.stats();
    assert!(stats.value_gcs > 0, "{stats:?}");
    stats
}

fn assert_all(db: &Db, of: &dyn Fn(usize, usize) -> Vec<u8>) {
    let wanted = |number| of(number, last_round(number));
    for number in 0..KEYS {
        assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], wanted(number), "{number}");
    }
    let many: Vec<_> = db.multi_get((0..KEYS).map(key)).into_iter().map(|value| value.unwrap().unwrap()).collect();
    assert!(many.iter().enumerate().all(|(number, value)| **value == wanted(number)));
    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap().1).collect();
    assert_eq!(found.len(), KEYS);
    assert!(found.iter().enumerate().all(|(number, value)| **value == wanted(number)));
    let back: Vec<_> = db.iter().unwrap().rev().map(|item| item.unwrap().1).collect();
    assert!(back.iter().rev().enumerate().all(|(number, value)| **value == wanted(number)));
}

fn problems(disk: &SimDisk) -> Vec<String> {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    report.problems.iter().map(|problem| problem.to_string()).collect()
}

#[test]
fn compressed_values_take_less_space_and_are_found_by_every_kind_of_read() {
    for (index, placement) in PLACEMENTS.into_iter().enumerate() {
        in_world(1, move || {
            let is_zstd = index == 2 && Compression::Zstd.is_available();
            let wanted = if is_zstd { Compression::Zstd } else { Compression::Lz4 };
            let taken = [Compression::None, wanted].map(|compression| {
                let disk = SimDisk::new();
                let mut tuning = tuning(compression);
                (tuning.placement, tuning.surveyed_records_max) = (placement, if index == 1 { 0 } else { 1000 });
                let db = open(&disk, BACKENDS[index % 2], tuning.clone());
                let snapshot = db.snapshot();
                let stats = write_and_move(&db, &value_of_round);
                assert_all(&db, &value_of_round);
                drop(snapshot);
                let is_compressed = compression != Compression::None;
                assert_eq!(stats.values_compressed_to > 0, is_compressed, "{placement:?}: {stats:?}");
                assert!(stats.values_compressed_to <= stats.values_compressed_from / 2, "{stats:?}");
                db.checkpoint(Path::new("/copy")).unwrap();
                db.close().unwrap();
                assert_eq!(problems(&disk), [""; 0]);
                let copy = testing::open(Arc::new(disk.clone()), Path::new("/copy"), Options::new(), tuning).unwrap();
                assert_all(&copy, &value_of_round);
                copy.close().unwrap();
                disk.files()
                    .iter()
                    .filter(|(path, _)| path.starts_with("/copy"))
                    .for_each(|(path, _)| disk.remove(path).unwrap());
                (stats.value_bytes_live, stats.value_bytes, disk.used())
            });
            let [(live, bytes, used), (live_less, bytes_less, used_less)] = taken;
            assert!(live_less < live * 3 / 4 && bytes_less < bytes * 3 / 4, "{placement:?}: {taken:?}");
            assert!(used_less + (bytes - bytes_less) / 2 < used, "{placement:?}: {taken:?}");
        });
    }
}

#[test]
fn compressed_values_stay_compressed_and_are_read_whatever_the_option_is_later() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut sums = Vec::new();
        for (turn, compression) in [Compression::Lz4, Compression::None, Compression::Lz4].into_iter().enumerate() {
            let db = open(&disk, backend, tuning(compression));
            if turn > 0 {
                assert_all(&db, &value_of_round);
            }
            let stats = write_and_move(&db, &value_of_round);
            assert_all(&db, &value_of_round);
            sums.push((stats.values_compressed_from, stats.value_bytes_live));
            db.close().unwrap();
            assert_eq!(problems(&disk), [""; 0]);
        }
        assert!(sums[0].0 > 0 && sums[1].0 == 0 && sums[2].0 > 0, "{sums:?}");
        assert!(sums[0].1 < sums[1].1 && sums[2].1 < sums[1].1, "{sums:?}");
    });
}

#[test]
fn compressed_values_are_moved_again_without_change() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, tuning(Compression::Lz4));
        write_and_move(&db, &value_of_round);
        db.close().unwrap();
        // Most of each group dies, so that the rest is moved.
        let db = open(&disk, backend, tuning(Compression::None));
        (0..KEYS).filter(|number| number % 5 > 0).for_each(|number| db.delete(key(number)).unwrap());
        let stats = refresh_and_wait(&db);
        assert!(stats.value_gcs > 0 && stats.values_compressed_from == 0, "{stats:?}");
        // Half of them had moved; uncompressed, they would take more than 300 B each.
        assert!(stats.value_bytes_live < (KEYS / 5) as u64 * 200, "{stats:?}");
        for number in (0..KEYS).step_by(5) {
            assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, last_round(number)));
        }
        db.close().unwrap();
        assert_eq!(problems(&disk), [""; 0]);
    });
}

#[test]
fn live_bytes_are_counted_as_stored_before_addresses_are_refreshed() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = tuning(Compression::Lz4);
        // Tables are not rewritten to refresh addresses, and are so small that most lie beyond the range compacted below.
        (tuning.table_bytes, tuning.stale_percent, tuning.compacts_when_idle) = (512, 100, false);
        // What the deletes make garbage is not collected.
        tuning.garbage_bytes = 70 << 10;
        let db = open(&disk, backend, tuning);
        let before = write_and_move(&db, &value_of_round);
        assert!(before.moved_files > 0, "{before:?}");
        let lies = |stats: &Stats| -> (u64, u64) {
            let groups = stats.value_group_list.iter();
            groups.fold((0, 0), |sum, group| (sum.0 + group.bytes, sum.1 + group.bytes_live))
        };
        (0..KEYS / 2).for_each(|number| db.delete(key(number)).unwrap());
        db.compact_range(&db.default_keyspace(), ..key(KEYS / 2).into_bytes()).unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(stats.moved_files > 0 && stats.value_gcs == before.value_gcs, "{stats:?}");
        let ((bytes, _), (_, live)) = (lies(&before), lies(&stats));
        assert!((bytes * 9..bytes * 11).contains(&(live * 20)), "{live} of {bytes} B live: {stats:?}");
    });
}

#[test]
fn values_that_do_not_compress_are_moved_uncompressed() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, tuning(Compression::Lz4));
        let noise = |number: usize, round: usize| {
            Value { seed: (2 * (round * KEYS + number) + 1) as u32, len: 300 + number as u32 % 50 }.bytes()
        };
        let stats = write_and_move(&db, &noise);
        assert_eq!((stats.values_compressed_from, stats.values_compressed_to), (0, 0));
        assert_all(&db, &noise);
        db.close().unwrap();
        assert_eq!(problems(&disk), [""; 0]);
    });
}

#[test]
fn a_flipped_byte_in_a_compressed_value_is_reported_by_reads_and_by_the_check() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, tuning(Compression::Lz4));
        // A compressed value keeps its first bytes: they occur nowhere before it.
        let marked = |number: usize, round: usize| {
            let mark = Value { seed: (2 * (round * KEYS + number) + 1) as u32, len: 40 }.bytes();
            [&mark[..], &[7; 300]].concat()
        };
        assert!(write_and_move(&db, &marked).values_compressed_to > 0);
        db.close().unwrap();
        let (mut noticed, segments) = (0, disk.files().into_iter().map(|(path, _)| path));
        let segments: Vec<_> = segments.filter(|path| path.extension().is_some_and(|end| end == "segment")).collect();
        for number in (0..KEYS).step_by(20) {
            let mark = &marked(number, 0)[..40];
            for path in &segments {
                let bytes = disk.read_file(path).unwrap();
                let Some(at) = bytes.windows(mark.len()).position(|part| part == mark) else { continue };
                let damaged = disk.process_crash();
                // After the mark: in the compressed part.
                damaged.flip_bit(path, (at + mark.len() + 1) as u64, 2);
                let db = open(&damaged, backend, tuning(Compression::None));
                match db.get(key(number)) {
                    Err(Error::Corruption { path: named, .. }) => assert_eq!(named, *path),
                    other => panic!("{number} was read as {other:?}"),
                }
                assert!(db.iter().unwrap().any(|item| matches!(item, Err(Error::Corruption { .. }))));
                db.close().unwrap();
                assert!(
                    problems(&damaged).iter().any(|problem| problem.contains("record")),
                    "{:?}",
                    problems(&damaged)
                );
                noticed += 1;
            }
        }
        assert!(noticed > 5, "{noticed}");
    });
}
