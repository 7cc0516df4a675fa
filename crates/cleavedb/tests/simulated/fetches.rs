//! Prefetches of separated values: how many reads they take, and that results do not depend on them.

use std::collections::BTreeMap;

use cleavedb::testing::{Random, SimDisk, Tuning};
use cleavedb::{Compression, Db, Error, Iter, KeyspaceOptions, LogBackend, Options, ValuePlacement};

use crate::support::{in_world, open_with, value, with_each_log};

fn open(disk: &SimDisk, backend: LogBackend, tuning: Tuning) -> Db {
    // Values of at least 192 B are separated.
    open_with(disk, Options::new().separation(Some(192)).log_backend(backend), tuning).unwrap()
}

fn key(number: usize) -> String {
    format!("{number:05}")
}

fn value_of_round(number: usize, round: usize) -> Vec<u8> {
    value(&format!("{number} in round {round}; "), 250 + number % 40)
}

/// Keys in random order, in tables, with all values in value files.
fn fill(db: &Db, keys: usize) {
    (0..keys).for_each(|turn| db.put(key(turn * 37 % keys), value_of_round(turn * 37 % keys, 0)).unwrap());
    db.flush().unwrap();
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
}

/// Brings the tables into the cache.
fn fill_caches(db: &Db) {
    assert!(db.iter().unwrap().keys().rev().all(|key| key.is_ok()));
    assert!(db.iter().unwrap().keys().all(|key| key.is_ok()));
}

#[test]
fn a_scan_prefetches_further_the_further_its_caller_has_gone() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.cache_bytes = 1 << 20;
        fill(&open(&disk, backend, tuning.clone()), 400);
        let db = open(&disk, backend, tuning);
        fill_caches(&db);
        let reads = |pull: &mut dyn FnMut()| {
            let before = disk.reads();
            pull();
            disk.reads() - before
        };
        assert_eq!(reads(&mut || assert_eq!(db.iter().unwrap().keys().count(), 400)), 0);
        for backward in [false, true] {
            let mut iter = db.iter().unwrap();
            let mut next = || if backward { iter.next_back() } else { iter.next() }.unwrap().unwrap();
            assert_eq!(reads(&mut || drop(next())), 1);
            // Adjacent values are read together.
            assert!((1..=2).contains(&reads(&mut || drop(next()))));
            assert_eq!(reads(&mut || drop(next())), 0);
            assert!((1..=4).contains(&reads(&mut || drop(next()))));
            assert_eq!(reads(&mut || (0..2).for_each(|_| drop(next()))), 0);
            assert!(db.stats().memory.pinned_bytes < 16 << 10);
            drop(iter);
            assert_eq!(db.stats().memory.pinned_bytes, 0);
            let mut iter = db.iter().unwrap();
            let all = reads(&mut || assert_eq!((&mut iter).count(), 400));
            assert!(all < 100, "{all} reads for 400 values");
        }
        let keys: Vec<String> = (0..400).step_by(4).map(key).collect();
        let many = reads(&mut || assert!(db.multi_get(&keys).into_iter().all(|found| found.unwrap().is_some())));
        assert!(many < 30, "{many} reads for 100 values");
        db.close().unwrap();
    });
}

#[test]
fn the_first_fetch_of_a_scan_is_as_long_as_scans_usually_are() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, Tuning::tiny());
        fill(&db, 400);
        let other = db.create_keyspace("other", KeyspaceOptions::new()).unwrap();
        (0..400).for_each(|number| other.put(key(number), value_of_round(number, 1)).unwrap());
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        let pinned_after_one = |mut iter: Iter| {
            assert!(iter.next().unwrap().is_ok());
            db.stats().memory.pinned_bytes
        };
        assert!(pinned_after_one(db.iter().unwrap()) < 4 << 10);
        for turn in 0..300 {
            let first = turn * 7 % 370;
            let scan = db.range(key(first)..).unwrap().take(30);
            let numbers = scan.map(|item| item.unwrap()).enumerate().map(|(at, (found, bytes))| {
                assert_eq!((&found[..], &bytes[..]), (key(first + at).as_bytes(), &value_of_round(first + at, 0)[..]));
            });
            assert_eq!(numbers.count(), 30);
        }
        // Some 30 values of 250 to 289 B, and their keys.
        let pinned = pinned_after_one(db.iter().unwrap());
        assert!((6 << 10..16 << 10).contains(&pinned), "{pinned} B");
        assert!(pinned_after_one(other.iter().unwrap()) < 4 << 10);
        // Scans of one key are soon known for what they are.
        (0..40).for_each(|number| drop(db.range(key(number)..).unwrap().next().unwrap().unwrap()));
        assert!(pinned_after_one(db.iter().unwrap()) < 4 << 10);
        db.close().unwrap();
    });
}

#[test]
fn memory_of_prefetched_values_is_bounded_however_large_they_are() {
    with_each_log(|backend| {
        for len in [3000, 40_000] {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            tuning.log_bytes = 256 << 10;
            let db = open(&disk, backend, tuning);
            (0..60).for_each(|number| db.put(key(number), value(&key(number), len)).unwrap());
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            let mut iters: Vec<Iter> = (0..10).map(|_| db.iter().unwrap()).collect();
            for number in 0..60 {
                for iter in &mut iters {
                    assert_eq!(iter.next().unwrap().unwrap().1, value(&key(number), len));
                }
                // At most what the pool holds, and one block for each scan.
                let pinned = db.stats().memory.pinned_bytes;
                assert!(pinned <= (64 << 10) + 10 * (8 << 10), "{pinned} B at {number} of {len} B");
            }
            drop(iters);
            assert_eq!(db.stats().memory.pinned_bytes, 0);
            db.close().unwrap();
        }
    });
}

#[test]
fn a_scan_returns_an_error_at_its_key_however_far_it_has_prefetched() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, Tuning::tiny());
        let sums = db.create_keyspace("sums", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
        for number in 0..40 {
            sums.put(key(number), value_of_round(number, 0)).unwrap();
            if number % 10 == 7 {
                // Not a number, so the merge fails.
                sums.merge(key(number), 1_u64.to_le_bytes()).unwrap();
            }
        }
        fill(&db, 200);
        let failed: Vec<_> = sums.iter().unwrap().enumerate().filter(|(_, item)| item.is_err()).collect();
        assert_eq!(failed.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [7, 17, 27, 37]);
        assert!(failed.iter().all(|(_, item)| matches!(item, Err(Error::MergeFailed { .. }))));
        assert_eq!(sums.iter().unwrap().rev().count(), 40);
        drop(sums);
        db.close().unwrap();

        let needle = value_of_round(100, 0);
        let mut damaged = 0;
        for (path, _) in disk.files() {
            let file = disk.read_file(&path).unwrap();
            let at = file.windows(needle.len()).position(|part| part == needle);
            at.iter().for_each(|&at| disk.flip_bit(&path, at as u64 + 50, 3));
            damaged += usize::from(at.is_some());
        }
        assert!(damaged > 0, "the value is in some file");
        let db = open(&disk, backend, Tuning::tiny());
        let mut iter = db.iter().unwrap();
        for _ in 0..2 {
            let before: Vec<_> = iter.by_ref().take_while(Result::is_ok).map(Result::unwrap).collect();
            assert_eq!(
                before.last().map(|(key, _)| key.to_vec()).unwrap_or_else(|| key(99).into()),
                key(99).into_bytes()
            );
            assert!(iter.next().is_none() && iter.next_back().is_none());
            iter.refresh().unwrap();
        }
        assert_eq!(iter.by_ref().rev().map_while(Result::ok).count(), 99);
        assert!(matches!(db.get(key(100)), Err(Error::Corruption { .. })));
        let many = db.multi_get((90..110).map(key));
        assert!(many.iter().enumerate().all(|(at, found)| found.is_err() == (at == 10)));
    });
}

#[test]
fn both_ends_of_an_iterator_match_a_map_while_values_move() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, Tuning::tiny());
        let mut random = Random::new(7);
        let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        let mut iters: Vec<(Iter, BTreeMap<String, Vec<u8>>)> = Vec::new();
        for round in 0..1500 {
            let number = random.below(150) as usize;
            match random.below(12) {
                0 => drop((db.delete(key(number)).unwrap(), model.remove(&key(number)))),
                // Some values are small, and stay with their keys.
                1 => drop((db.put(key(number), "small").unwrap(), model.insert(key(number), b"small".to_vec()))),
                2 => {
                    // Continued later, or dropped half-way.
                    let at = random.below(4) as usize;
                    match random.below(2) {
                        0 if at < iters.len() => drop(iters.remove(at)),
                        _ => iters.push((db.iter().unwrap(), model.clone())),
                    }
                }
                3 if round % 8 == 0 => {
                    db.compact_range(&db.default_keyspace(), ..).unwrap();
                    db.wait_for_background().unwrap();
                }
                4..8 => {
                    for _ in 0..random.below(20) {
                        let at = random.below(iters.len().max(1) as u64) as usize;
                        let Some((iter, left)) = iters.get_mut(at) else { break };
                        let (found, expected) = match random.below(3) {
                            0 => (iter.next_back(), left.pop_last()),
                            _ => (iter.next(), left.pop_first()),
                        };
                        let found = found.map(|item| item.unwrap()).map(|(key, value)| (key.to_vec(), value.to_vec()));
                        assert_eq!(found, expected.map(|(key, value)| (key.into_bytes(), value)), "round {round}");
                    }
                }
                _ => {
                    db.put(key(number), value_of_round(number, round)).unwrap();
                    model.insert(key(number), value_of_round(number, round));
                }
            }
            if iters.len() > 6 {
                iters.remove(0);
            }
        }
        assert!(db.stats().value_gcs > 0, "values have moved");
        for (iter, left) in iters {
            let found: Vec<_> = iter.map(|item| item.unwrap().1.to_vec()).collect();
            assert_eq!(found, left.into_values().collect::<Vec<_>>());
        }
        assert_eq!(db.stats().memory.pinned_bytes, 0);
    });
}

/// Room for both caches; all other sizes are tiny.
fn with_caches() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.memory_bytes, tuning.cache_bytes) = (16 << 20, 8 << 20);
    tuning
}

#[test]
fn a_get_reads_at_most_one_block_and_one_value_and_nothing_the_second_time() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        fill(&open(&disk, backend, with_caches()), 2000);
        let db = open(&disk, backend, with_caches());
        // Background work after the reopen reads as well.
        db.wait_for_background().unwrap();
        let reads = |pull: &mut dyn FnMut()| {
            let before = disk.reads();
            pull();
            disk.reads() - before
        };
        let get = |number: usize| assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        // Footers, indices and filters are read once, by the first reader.
        let tables = db.stats().levels.iter().map(|level| level.tables).sum::<usize>();
        (0..2000).step_by((2000 / (32 * tables)).max(7)).for_each(get);
        for number in (3..2000).step_by(101) {
            assert!(reads(&mut || get(number)) <= 2, "{number}");
            assert_eq!(reads(&mut || get(number)), 0, "{number}");
        }
        let keys: Vec<String> = (0..2000).step_by(9).map(key).collect();
        let get_many = || assert!(db.multi_get(&keys).into_iter().all(|found| found.unwrap().is_some()));
        assert!(reads(&mut || get_many()) > 0);
        assert_eq!(reads(&mut || get_many()), 0);
    });
}

#[test]
fn the_value_cache_serves_point_reads_and_keeps_values_that_move() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend, with_caches());
        let stats = db.stats();
        assert_eq!(stats.memory.value_cache_bytes_max, 0, "no value is separated");
        let for_blocks = stats.memory.cache_bytes_max;
        fill(&db, 400);
        let memory = db.stats().memory;
        assert!(memory.value_cache_bytes_max > 0, "{memory:?}");
        assert!(memory.value_cache_bytes_max + memory.cache_bytes_max <= for_blocks + (1 << 20));
        fill_caches(&db);
        assert_eq!(db.iter().unwrap().count() + db.iter().unwrap().rev().count(), 800);
        let stats = db.stats();
        assert_eq!((stats.memory.value_cache_bytes, stats.value_cache_hits + stats.value_cache_misses), (0, 0));
        let kept: Vec<String> = (0..400).step_by(10).map(key).collect();
        let get_kept = || assert!(kept.iter().all(|key| db.get(key).unwrap().is_some()));
        get_kept();
        let stats = db.stats();
        assert_eq!((stats.value_cache_hits, stats.value_cache_misses), (0, 40));
        assert!((40 * 250..40 * 600).contains(&stats.memory.value_cache_bytes), "{:?}", stats.memory);
        assert_eq!(stats.memory.pinned_bytes, 0);
        let held = db.get(&kept[0]).unwrap();
        assert_eq!(db.stats().memory.pinned_bytes, 0, "the cache owns the memory");
        for round in 1..6 {
            let others = (0..400).filter(|number| number % 10 != 0);
            others.for_each(|number| db.put(key(number), value_of_round(number, round)).unwrap());
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
        }
        let before = db.stats();
        assert!(before.value_gcs > 0, "{before:?}");
        get_kept();
        let after = db.stats();
        assert_eq!((after.value_cache_hits, after.value_cache_misses), (before.value_cache_hits + 40, 40));
        assert!(kept.iter().step_by(3).all(|key| db.get(key).unwrap() == db.multi_get([key]).remove(0).unwrap()));
        // Replaced and deleted values: cached versions that are not read any more.
        db.put(&kept[0], value_of_round(0, 9)).unwrap();
        db.delete(&kept[1]).unwrap();
        assert_eq!(&db.get(&kept[0]).unwrap().unwrap()[..], value_of_round(0, 9));
        assert!(db.get(&kept[1]).unwrap().is_none() && held.unwrap() == value_of_round(0, 0)[..]);
        let memory = db.stats().memory;
        assert!(memory.total() <= 16 << 20, "{memory:?}");
    });
}

#[test]
fn a_cached_value_is_found_without_its_table_until_a_newer_version_exists() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        fill(&open(&disk, backend, with_caches()), 300);
        let db = open(&disk, backend, with_caches());
        db.wait_for_background().unwrap();
        let space = db.default_keyspace();
        let looked_up = || {
            let stats = db.stats();
            (stats.block_cache_hits + stats.block_cache_misses, stats.value_cache_hits)
        };
        let mut expected: Vec<Option<Vec<u8>>> = (0..300).map(|number| Some(value_of_round(number, 0))).collect();
        let check = |expected: &[Option<Vec<u8>>]| {
            for (number, value) in expected.iter().enumerate() {
                assert!(db.get(key(number)).unwrap().as_deref() == value.as_deref(), "{number}");
            }
        };
        check(&expected);
        let before = looked_up();
        check(&expected);
        assert_eq!(looked_up(), (before.0, before.1 + 300));
        let (old, snapshot) = (expected.clone(), db.snapshot());
        let check_old = || {
            for (number, value) in old.iter().enumerate() {
                assert!(snapshot.get(&space, key(number)).unwrap().as_deref() == value.as_deref(), "{number}");
            }
        };
        let settle = || {
            db.flush().unwrap();
            db.compact_range(&space, ..).unwrap();
            db.wait_for_background().unwrap();
        };
        // The newer version is first in memory, then in an upper table, then merged into the table of the older one.
        for (round, moves) in [(1, 0), (2, 1), (3, 2)] {
            for number in (0..300).step_by(4) {
                db.put(key(number), value_of_round(number, round)).unwrap();
                expected[number] = Some(value_of_round(number, round));
            }
            (1..300).step_by(12 * round).for_each(|number| {
                db.delete(key(number)).unwrap();
                expected[number] = None;
            });
            let gone = 40 * round..40 * round + 9;
            space.delete_range(key(gone.start).into_bytes()..key(gone.end).into_bytes()).unwrap();
            expected[gone].fill(None);
            match moves {
                0 => {}
                1 => db.flush().unwrap(),
                _ => settle(),
            }
            for _ in 0..2 {
                check(&expected);
                check_old();
            }
        }
        drop(snapshot);
        settle();
        // Tombstones and the versions they covered are gone together.
        for _ in 0..2 {
            check(&expected);
        }
    });
}

#[test]
fn a_scan_prefetches_adjacent_values_in_one_read() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = with_caches();
        (tuning.placement, tuning.group_bytes) = (ValuePlacement::Range, 64 << 10);
        let db = open(&disk, LogBackend::Ring, tuning);
        // In key order, so that the last log holds the last keys.
        (0..400).for_each(|number| db.put(key(number), value_of_round(number, 0)).unwrap());
        db.flush().unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        fill_caches(&db);
        let reads_of = |pull: &mut dyn FnMut()| {
            let before = disk.reads();
            pull();
            disk.reads() - before
        };
        for backward in [false, true] {
            let mut iter = db.range(..key(100).into_bytes()).unwrap();
            let mut next = || drop(if backward { iter.next_back() } else { iter.next() }.unwrap().unwrap());
            assert_eq!(reads_of(&mut next), 1);
            assert_eq!(reads_of(&mut || (1..16).for_each(|_| next())), 0);
            assert_eq!(reads_of(&mut next), 1);
            assert_eq!(reads_of(&mut || (1..16).for_each(|_| next())), 0);
        }
        let mut iter = db.iter().unwrap();
        drop((iter.next(), iter.next_back()));
        let mut keys = iter.keys();
        let mut both = || while keys.next().is_some() && keys.next_back().is_some() {};
        assert_eq!(reads_of(&mut both), 0);
        // Both ends meet, with values prefetched beyond the meeting point.
        let mut iter = db.iter().unwrap();
        for turn in 0..200 {
            let (front, back) = (iter.next().unwrap().unwrap(), iter.next_back().unwrap().unwrap());
            assert_eq!((&front.0[..], &back.0[..]), (key(turn).as_bytes(), key(399 - turn).as_bytes()));
            assert!(front.1[..] == value_of_round(turn, 0) && back.1[..] == value_of_round(399 - turn, 0));
        }
        assert!(iter.next().is_none() && iter.next_back().is_none());
    });
}

#[test]
fn logs_use_the_page_cache_once_values_are_read_from_them() {
    let disk = SimDisk::new();
    let db = open(&disk, LogBackend::Ring, with_caches());
    let write = |round: usize, reads: bool| {
        let before = (disk.direct_writes(), db.stats().value_cache_misses);
        for number in 0..2000 {
            db.put(key(number), value_of_round(number, round)).unwrap();
            if reads {
                assert!(db.get(key((number + 1000) % 2000)).unwrap().is_some());
            }
        }
        db.flush().unwrap();
        let stats = db.stats();
        assert!(stats.logs.iter().all(|log| log.bytes < 2000 * 250 / 4), "{:?}", stats.logs);
        (disk.direct_writes() - before.0, stats.value_cache_misses - before.1)
    };
    let (direct, missed) = write(0, false);
    assert!(direct > 4 && missed == 0, "{direct} direct writes, {missed} values read");
    // The log in use when the first value is read was created before, and so was the next one.
    write(1, true);
    let (direct, missed) = write(2, true);
    assert!(direct == 0 && missed > 0, "{direct} direct writes, {missed} values read");
    write(3, false);
    assert!(write(4, false).0 > 4);
}

#[test]
fn logs_use_the_page_cache_while_all_that_is_stored_fits_into_memory() {
    let disk = SimDisk::new();
    disk.set_available_memory(400 << 10);
    let db = open(&disk, LogBackend::Ring, with_caches());
    let direct_writes_of = |rounds: std::ops::Range<usize>| {
        let before = disk.direct_writes();
        for round in rounds {
            (0..300).for_each(|number| db.put(key(round * 300 + number), value_of_round(number, round)).unwrap());
        }
        disk.direct_writes() - before
    };
    assert_eq!(direct_writes_of(0..1), 0);
    // The log in use when the store became too large was made before.
    direct_writes_of(1..9);
    assert!(direct_writes_of(9..12) > 4);
    disk.set_available_memory(u64::MAX);
    direct_writes_of(12..14);
    assert_eq!(direct_writes_of(14..16), 0);
}

#[test]
fn memory_moves_to_the_cache_with_more_misses() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = with_caches();
        (tuning.memory_bytes, tuning.cache_bytes) = (2 << 20, 1 << 20);
        let db = open(&disk, backend, tuning);
        fill(&db, 3000);
        let at_first = db.stats().memory;
        let mut random = Random::new(3);
        // More values than fit at first, all of them read repeatedly; their few blocks fit easily.
        for _ in 0..40_000 {
            let number = random.below(1200) as usize;
            assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
        }
        let then = db.stats().memory;
        assert!(then.value_cache_bytes_max > 2 * at_first.value_cache_bytes_max, "{at_first:?}, then {then:?}");
        assert!(then.value_cache_bytes > at_first.value_cache_bytes_max, "{then:?}");
        assert!(then.total() <= 2 << 20, "{then:?}");
    });
}

/// Several tables, and this many bytes for both caches, with nothing lent to them.
fn with_small_cache(cache_bytes: usize) -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.table_bytes, tuning.level_base_bytes, tuning.open_files_max) = (64 << 10, 256 << 10, 100);
    (tuning.memory_bytes, tuning.cache_bytes, tuning.cache_bytes_min) = (64 << 10, cache_bytes, cache_bytes);
    tuning
}

#[test]
fn with_a_cache_too_small_for_most_blocks_a_cold_get_reads_at_most_one_block_and_one_value() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().separation(Some(192)).compression(Compression::None).log_backend(backend);
        fill(&open_with(&disk, options(), with_small_cache(96 << 10)).unwrap(), 20_000);
        let db = open_with(&disk, options(), with_small_cache(96 << 10)).unwrap();
        let mut random = Random::new(4);
        let mut get = || {
            let (number, before) = (random.below(20_000) as usize, disk.reads());
            assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
            disk.reads() - before
        };
        (0..1000).for_each(|_| _ = get());
        let reads: Vec<u64> = (0..1000).map(|_| get()).collect();
        let stats = db.stats();
        let (memory, tables) = (stats.memory, stats.levels.iter().map(|level| level.bytes).sum::<u64>());
        assert!(memory.cache_bytes_max < tables as usize / 2, "{tables} B of tables, {memory:?}");
        assert!(memory.cache_index_bytes > 20_000 && memory.cache_bytes <= memory.cache_bytes_max, "{memory:?}");
        assert!(reads.iter().all(|&reads| reads <= 2), "{reads:?}");
        let total: u64 = reads.iter().sum();
        assert!((1200..=1900).contains(&total), "{total} reads for 1000 values");
    });
}

#[test]
fn blocks_with_values_do_not_evict_blocks_of_keys() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().separation(Some(192)).compression(Compression::None).log_backend(backend);
        let small = |number: usize| value(&format!("{number} is small; "), 100);
        let db = open_with(&disk, options(), with_small_cache(128 << 10)).unwrap();
        let beside = db.create_keyspace("beside", KeyspaceOptions::new()).unwrap();
        (0..5000).for_each(|number| beside.put(key(number), small(number)).unwrap());
        db.compact_range(&beside, ..).unwrap();
        // No table has keys of both kinds.
        fill(&db, 4000);
        let get_all = || {
            let before = disk.reads();
            (0..4000).for_each(|number| assert!(db.get(key(number)).unwrap().is_some()));
            disk.reads() - before
        };
        get_all();
        let alone = get_all();
        (0..5000).for_each(|number| assert_eq!(&beside.get(key(number)).unwrap().unwrap()[..], small(number)));
        let after = get_all();
        assert_eq!(after, alone, "one value per key, and no block");
    });
}

#[test]
fn caches_smaller_than_all_index_blocks_work_and_keep_to_their_size() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().separation(Some(192)).log_backend(backend);
        for cache_bytes in [4 << 10, 20 << 10] {
            let db = open_with(&disk, options(), with_small_cache(cache_bytes)).unwrap();
            fill(&db, 20_000);
            db.wait_for_background().unwrap();
            let mut random = Random::new(5);
            for turn in 0..2000 {
                let number = random.below(20_000) as usize;
                assert_eq!(&db.get(key(number)).unwrap().unwrap()[..], value_of_round(number, 0));
                let memory = db.stats().memory;
                assert!(memory.cache_bytes <= memory.cache_bytes_max, "{memory:?}");
                assert!(memory.cache_bytes_max <= cache_bytes && memory.pinned_bytes == 0, "{memory:?}");
                if turn % 500 == 0 {
                    (0..20_000).step_by(53).for_each(|number| db.put(key(number), value_of_round(number, 0)).unwrap());
                    // Jobs pin blocks, too.
                    db.wait_for_background().unwrap();
                }
            }
        }
    });
}
