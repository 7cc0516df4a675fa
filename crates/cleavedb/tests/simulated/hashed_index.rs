//! The indexes of hash keyspaces: iteration while buckets split and join, what is made anew from logs beside what was saved, and
//! deleted keys that are forgotten.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cleavedb::testing::{
    self, Canary, IndexedRecord, SimDisk, Spread, Storage, Tuning, indexed_records, random, spawn,
};
use cleavedb::{Db, Durability, Error, HashStats, Keyspace, LogBackend, Slice, WriteBatch};

use crate::deltas::options;
use crate::support::{
    files_of_kind, hashed, in_world, log_numbers, lose_power, one_of_each_sync, open_with, taken, value,
    without_saved_indexes,
};

/// Small logs and indexes that are saved often; keys share bits of their hashes, so that few of them split and join buckets.
fn tuning(spread: Spread) -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.log_bytes_min) = (32 << 10, 32 << 10);
    (tuning.index_save_bytes, tuning.index_save_part, tuning.hash_slack_logs) = (16 << 10, 0, 0);
    tuning.close_flush_bytes = 1 << 10;
    tuning.hash_spread = spread;
    tuning
}

fn open(disk: &SimDisk, backend: LogBackend, spread: Spread) -> Db {
    open_with(disk, options().log_backend(backend), tuning(spread)).unwrap()
}

fn draw(bound: usize) -> usize {
    random(bound as u64) as usize
}

#[test]
fn iteration_gives_each_key_once_while_writers_split_and_join_buckets() {
    for (seed, spread) in (0..).zip([Spread::OneShard, Spread::Deep, Spread::Few]) {
        in_world(seed, move || {
            const STABLE: usize = 150;
            let disk = SimDisk::new();
            let mut tuning = tuning(spread);
            // An iteration stops several times in a bucket.
            tuning.read_ahead_bytes = 2 << 10;
            let db = open_with(&disk, options().log_backend(LogBackend::Ring), tuning).unwrap();
            let keyspace = hashed(&db);
            (0..STABLE).for_each(|number| keyspace.put(format!("stable{number}"), "old").unwrap());
            let is_done = Arc::new(AtomicBool::new(false));
            let writers: Vec<_> = (0..2)
                .map(|writer| {
                    let (keyspace, is_done) = (keyspace.clone(), is_done.clone());
                    spawn("writer", move || {
                        let mut round = 0;
                        while !is_done.load(Ordering::Acquire) {
                            // Many keys come, and then go again.
                            let key = format!("w{writer}-{}", draw(300));
                            match round / 1000 % 2 {
                                0 => keyspace.put(&key, value(&key, 300)).unwrap(),
                                _ => keyspace.delete(&key).unwrap(),
                            }
                            keyspace.put(format!("stable{}", draw(STABLE)), "new").unwrap();
                            round += 1;
                        }
                    })
                })
                .collect();
            let mut rounds = 0;
            // Only small buckets are soon joined.
            let joins_min = u64::from(spread == Spread::Deep);
            let is_enough = |stats: HashStats| stats.logs_freed >= 4 && stats.bucket_joins >= joins_min;
            while rounds < 25 || !is_enough(db.stats().hash) {
                rounds += 1;
                assert!(rounds < 1000, "{:?}", db.stats().hash);
                let mut seen = BTreeSet::new();
                for item in keyspace.iter_unordered().unwrap() {
                    let (key, found) = item.unwrap();
                    match key.starts_with(b"stable") {
                        true => assert!(&*found == b"old" || &*found == b"new"),
                        false => assert_eq!(&found[..], value(&String::from_utf8_lossy(&key), 300)),
                    }
                    assert!(seen.insert(key.to_vec()), "a key came twice");
                }
                let stable = seen.iter().filter(|key| key.starts_with(b"stable")).count();
                assert_eq!(stable, STABLE, "a key that is there all the time was left out");
            }
            is_done.store(true, Ordering::Release);
            writers.into_iter().for_each(|writer| writer.join().unwrap());
            assert!(db.stats().hash.bucket_splits > 0 || spread == Spread::Few, "keys that are close stay together");
        });
    }
}

/// The records of each key that mean something: tombstones at the beginning cover what is not there any more.
fn meaning(records: &[IndexedRecord]) -> Vec<IndexedRecord> {
    let is_old = |record: &&IndexedRecord| record.is_tombstone;
    let all: Vec<_> = records.iter().collect();
    let covered = all.iter().take_while(|record| is_old(record)).count();
    all[covered..].iter().map(|record| **record).collect()
}

/// Opens the image without changing anything, and returns what the index has.
fn look(image: &SimDisk, spread: Spread) -> Option<(Db, Keyspace)> {
    let db =
        testing::open(Arc::new(image.clone()), Path::new("/db"), options().read_only(true), tuning(spread)).unwrap();
    let keyspace = db.open_keyspace("hashed").ok()?;
    Some((db, keyspace))
}

#[test]
fn after_any_crash_an_index_made_from_all_logs_agrees_with_the_saved_one() {
    for (seed, spread) in (0..).zip([Spread::Deep, Spread::Even, Spread::OneShard]) {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let backend = if seed == 1 { LogBackend::Plain } else { LogBackend::Ring };
            let db = open(&disk, backend, spread);
            let keyspace = hashed(&db);
            let images = lose_power(&disk);
            for _ in 0..400 {
                let mut batch = WriteBatch::new();
                for _ in 0..1 + draw(3) {
                    let key = format!("{:03}", draw(140));
                    match draw(8) {
                        0..=1 => batch.delete(&keyspace, &key),
                        2..=3 => batch.merge(&keyspace, &key, draw(1000).to_string()),
                        _ => batch.put(&keyspace, &key, value("put", 1 + draw(900))),
                    }
                }
                db.write(batch).unwrap();
            }
            db.wait_for_background().unwrap();
            let stats = db.stats().hash;
            assert!(stats.saves > 2 && stats.logs_freed > 2, "{stats:?}");
            // Files are written in whole blocks, one for each time that they were saved.
            assert!(stats.saved_bytes >= stats.saves * 4096, "{stats:?}");
            let images = taken(&disk, &images);
            let mut compared = 0;
            for image in one_of_each_sync(&images).chain([&disk.process_crash()]) {
                let Some(damaged) = without_saved_indexes(image) else { continue };
                let (Some(by_file), Some(by_logs)) = (look(image, spread), look(&damaged, spread)) else { continue };
                let (saved, made) = (indexed_records(&by_file.1), indexed_records(&by_logs.1));
                for (key, records) in &saved {
                    let made = made.get(key).map_or(&[][..], |made| made);
                    let (found, wanted) = (meaning(made), meaning(records));
                    assert_eq!(found, wanted, "{}", key.escape_ascii());
                    // A tombstone that is there in both lies at the same place. The log in which the delete was first may differ: one that
                    // had it may be gone, or one that had a value between two deletes.
                    if let ([made], [saved]) = (made, &records[..])
                        && made.is_tombstone
                    {
                        assert_eq!((made.file, made.offset), (saved.file, saved.offset));
                    }
                    compared += records.len();
                }
                let unknown =
                    made.iter().filter(|(key, records)| !saved.contains_key(*key) && !meaning(records).is_empty());
                assert_eq!(unknown.count(), 0);
            }
            assert!(compared > 1000, "{compared}");
        });
    }
}

/// Puts numbered keys without a sync while indexes are saved, and loses power at every sync. Returns in how many images an open
/// or a read fails, or a later key is there without an earlier one; and how many there are.
fn images_with_gaps(backend: LogBackend, canary: Option<Canary>) -> (usize, usize) {
    in_world(3, move || {
        let disk = SimDisk::new();
        let mut tuning = tuning(Spread::Even);
        (tuning.index_save_bytes, tuning.canary) = (2 << 10, canary);
        let open = |disk: &SimDisk| open_with(disk, options().log_backend(backend), tuning.clone());
        let db = open(&disk).unwrap();
        let keyspace = hashed(&db);
        db.flush().unwrap();
        let images = lose_power(&disk);
        for number in 0..200 {
            keyspace.put(format!("{number:03}"), value("v", 300)).unwrap();
        }
        db.wait_for_background().unwrap();
        assert!(db.stats().hash.saves > 3, "{:?}", db.stats().hash);
        let images = taken(&disk, &images);
        let is_whole = |image: &&SimDisk| {
            let read = || {
                let keyspace = open(image)?.open_keyspace("hashed")?;
                keyspace.iter_unordered()?.map(|item| Ok(item?.0.to_vec())).collect::<Result<BTreeSet<_>, Error>>()
            };
            let in_order =
                |keys: BTreeSet<Vec<u8>>| (0..).zip(keys).all(|(at, key)| key == format!("{at:03}").as_bytes());
            read().is_ok_and(in_order)
        };
        (images.iter().filter(|image| !is_whole(image)).count(), images.len())
    })
}

#[test]
fn a_saved_index_has_only_what_is_durable() {
    for backend in [LogBackend::Ring, LogBackend::Plain] {
        let (gaps, all) = images_with_gaps(backend, None);
        assert!(gaps == 0 && all > 10, "{gaps} of {all} with {backend:?}");
    }
}

#[test]
fn the_planted_bug_of_an_index_saved_before_its_records_is_caught() {
    for backend in [LogBackend::Ring, LogBackend::Plain] {
        let (gaps, all) = images_with_gaps(backend, Some(Canary::IndexSavedBeforeSync));
        assert!(gaps > 0, "none of {all} with {backend:?}");
    }
}

#[test]
fn a_deleted_key_that_was_forgotten_does_not_come_back_after_a_crash_whatever_is_left_of_the_saved_index() {
    for seed in 0..3 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Ring, Spread::Deep);
            let keyspace = hashed(&db);
            let fill = |count: usize| {
                for _ in 0..count {
                    keyspace.put(format!("changes{}", draw(12)), value("changes", 900)).unwrap();
                }
            };
            let stays = |from: usize| {
                (from..from + 12).for_each(|number| {
                    keyspace.put(format!("stays{number}"), value("stays", 900)).unwrap();
                });
            };
            let keys: Vec<String> = (0..10).map(|number| format!("key{number}")).collect();
            let records = || {
                let all = indexed_records(&keyspace);
                keys.iter().map(|key| all[key.as_bytes()][0]).collect::<Vec<IndexedRecord>>()
            };
            for (number, key) in keys.iter().enumerate() {
                keyspace.put(key, "old").unwrap();
                stays(12 * number);
            }
            db.wait_for_background().unwrap();
            let of_copies: BTreeSet<u64> = records().iter().map(|record| record.file).collect();
            // So that no delete is in a log with a copy.
            fill(40);
            for key in &keys {
                keyspace.delete(key).unwrap();
                fill(6);
            }
            keyspace.put_with("durable", "all deletes", Durability::Sync).unwrap();
            let of_deletes: BTreeSet<u64> = records().iter().map(|delete| delete.len.into()).collect();
            assert!(of_copies.last() < of_deletes.first(), "{of_copies:?} {of_deletes:?}");
            let images = lose_power(&disk);
            (0..20).for_each(|_| fill(12));
            db.wait_for_background().unwrap();
            let (logs, stats) = (log_numbers(&disk), db.stats().hash);
            let copies_are_left = !of_copies.is_disjoint(&logs) && !of_deletes.is_subset(&logs);
            assert!(copies_are_left, "{of_copies:?} and {of_deletes:?} of {logs:?}");
            assert!(stats.tombstones == 10 && stats.tombstones_moved > 0, "{stats:?}");
            // Now the logs with the copies die, too.
            (0..120).for_each(|number| keyspace.put(format!("stays{number}"), "short").unwrap());
            for _ in 0..40 {
                fill(12);
                if db.stats().hash.tombstones == 0 {
                    break;
                }
            }
            db.wait_for_background().unwrap();
            assert_eq!(db.stats().hash.tombstones, 0, "{:?}", db.stats().hash);
            // They are forgotten; what follows has crashes of its own.
            fill(40);
            db.flush().unwrap();
            let images = taken(&disk, &images);
            // More would take too long.
            for image in one_of_each_sync(&images).skip(seed as usize).step_by(5).chain([&disk.process_crash()]) {
                let damaged = without_saved_indexes(image).unwrap_or_else(|| image.process_crash());
                for image in [image, &damaged] {
                    let db = open(image, LogBackend::Ring, Spread::Deep);
                    let keyspace = hashed(&db);
                    assert!(keyspace.get("durable").unwrap().is_some());
                    for key in &keys {
                        assert_eq!(keyspace.get(key).unwrap().as_deref(), None, "{key} came back");
                    }
                    // Nor when the logs of today have gone.
                    (0..60)
                        .for_each(|number| keyspace.put(format!("changes{}", number % 12), value("c", 900)).unwrap());
                    db.wait_for_background().unwrap();
                    assert!(keys.iter().all(|key| keyspace.get(key).unwrap().is_none()));
                }
            }
        });
    }
}

#[test]
fn an_ingest_is_a_sequence_of_atomic_batches_and_its_keys_ascend() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring, Spread::Even);
        let keyspace = hashed(&db);
        let count = || keyspace.iter_unordered().unwrap().count();
        for keys in [vec!["a", "c", "b"], vec!["a", "a"], vec!["a", ""]] {
            let refused = keyspace.ingest(keys.into_iter().map(|key| (key, "value")));
            assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{refused:?}");
            assert_eq!(count(), 0, "nothing of the batch was written");
        }
        // Each batch of 1 MiB has 7 pairs. The last of 24 is wrong: what came in its batch is not written.
        let of = |number: usize| (format!("{:02}", if number == 23 { 0 } else { number }), value("v", 150 << 10));
        let images = lose_power(&disk);
        assert!(matches!(keyspace.ingest((0..24).map(of)), Err(Error::InvalidInput { .. })));
        assert_eq!(count(), 21);
        assert_eq!(keyspace.ingest((0..23).map(of)).unwrap(), 23);
        let images = taken(&disk, &images);
        for image in one_of_each_sync(&images) {
            let db = open(image, LogBackend::Ring, Spread::Even);
            let keyspace = hashed(&db);
            let keys: BTreeSet<_> = keyspace.iter_unordered().unwrap().map(|item| item.unwrap().0.to_vec()).collect();
            assert!(keys.len().is_multiple_of(7) || keys.len() == 23, "{}", keys.len());
            assert!(keys.iter().enumerate().all(|(at, key)| *key == of(at).0.into_bytes()), "a prefix of the ingest");
        }
        let db = open(&disk.power_loss(1), LogBackend::Ring, Spread::Even);
        assert_eq!(hashed(&db).iter_unordered().unwrap().count(), 23, "all is durable");
    });
}

#[test]
fn a_check_finds_saved_indexes_that_are_whole_but_do_not_agree_with_the_logs() {
    const HEADER_BYTES: usize = 24;
    in_world(1, || {
        let disk = SimDisk::new();
        let problems =
            |disk: &SimDisk| testing::check(Arc::new(disk.clone()), Path::new("/db"), &options()).unwrap().problems;
        let write = |round: usize| {
            let db = open(&disk, LogBackend::Plain, Spread::Deep);
            let keyspace = hashed(&db);
            for number in 0..100 {
                keyspace.put(format!("{number}"), value(&format!("{round}"), 300)).unwrap();
            }
            keyspace.delete(format!("{round}")).unwrap();
            (0..3).for_each(|number| keyspace.merge("merged", format!("{number}")).unwrap());
            db.wait_for_background().unwrap();
            db.close().unwrap();
            assert_eq!(problems(&disk), []);
            let path = files_of_kind(&disk, "index").remove(0);
            (path.clone(), disk.read_file(&path).unwrap())
        };
        let (_, before) = write(1);
        let (path, now) = write(2);
        // What was saved the first time, under the number of the second.
        let mixed = [&now[..HEADER_BYTES], &before[HEADER_BYTES..]].concat();
        let file = disk.open(&path).unwrap();
        file.truncate(0).unwrap();
        file.write_at(&mixed, 0).unwrap();
        let found = problems(&disk);
        assert!(!found.is_empty() && found.iter().all(|problem| problem.path == path), "{found:?}");
    });
}

#[test]
fn a_saved_index_that_swaps_the_places_of_keys_gives_errors_and_no_wrong_values() {
    const HEADER_BYTES: usize = 24;
    let of = |key: &str| value(&format!("of {key} "), 300);
    // The same records in two orders, so that each index is right for one of the disks.
    let disks = [["one", "two"], ["two", "one"]].map(|keys| {
        in_world(1, move || {
            let disk = SimDisk::new();
            let db = open(&disk, LogBackend::Plain, Spread::Even);
            let keyspace = hashed(&db);
            keys.iter().for_each(|key| keyspace.put(key, of(key)).unwrap());
            (0..150).for_each(|number| keyspace.put(format!("{number}"), of(&number.to_string())).unwrap());
            db.wait_for_background().unwrap();
            db.close().unwrap();
            disk
        })
    });
    let [saved, other] = [&disks[0], &disks[1]].map(|disk| files_of_kind(disk, "index").remove(0));
    let bytes = [disks[0].read_file(&saved).unwrap(), disks[1].read_file(&other).unwrap()];
    disks[0].write_file(&saved, &[&bytes[0][..HEADER_BYTES], &bytes[1][HEADER_BYTES..]].concat());
    in_world(1, move || {
        let db = open(&disks[0], LogBackend::Plain, Spread::Even);
        let keyspace = hashed(&db);
        let is_refused = |found: Result<Option<Slice>, Error>| {
            assert!(matches!(found, Err(Error::Corruption { .. })), "{found:?}");
        };
        for key in ["one", "two"] {
            is_refused(keyspace.get(key));
            keyspace.multi_get([key, "7", key]).into_iter().step_by(2).for_each(is_refused);
        }
        assert_eq!(keyspace.get("7").unwrap().unwrap(), of("7"));
        let found: Vec<_> = keyspace.iter_unordered().unwrap().collect();
        assert_eq!((found.len(), found.iter().filter(|item| item.is_err()).count()), (152, 2));
    });
}

/// The index says which bytes of which log are the record, so no other file is asked. Values that were read are cached by their place.
#[test]
fn a_hit_is_one_read_and_a_miss_is_none() {
    for backend in [LogBackend::Ring, LogBackend::Plain] {
        let disk = SimDisk::new();
        let db = open(&disk, backend, Spread::Even);
        let keyspace = hashed(&db);
        let key = |number: usize| format!("key{number:04}");
        // Some are replaced, so that collection moves others.
        for number in (0..300).chain(100..200).chain(100..200) {
            keyspace.put(key(number), value(&key(number), 400)).unwrap();
        }
        (250..300).for_each(|number| keyspace.delete(key(number)).unwrap());
        db.wait_for_background().unwrap();
        drop(keyspace);
        db.close().unwrap();
        let db = open(&disk, backend, Spread::Even);
        let keyspace = hashed(&db);
        let reads = |number| {
            let before = disk.reads();
            let found = keyspace.get(key(number)).unwrap();
            assert_eq!(found.is_some(), number < 250);
            (found.map(|found| assert_eq!(&*found, value(&key(number), 400))), disk.reads() - before).1
        };
        // The newest log is in memory until it is written, also after an open.
        let first: Vec<u64> = (0..250).map(reads).collect();
        assert!(first.iter().all(|reads| *reads <= 1) && first.iter().sum::<u64>() > 150, "{first:?}");
        assert!((250..350).all(|number| reads(number) == 0));
        reads(7);
        assert_eq!(reads(7), 0, "it is cached");
    }
}
