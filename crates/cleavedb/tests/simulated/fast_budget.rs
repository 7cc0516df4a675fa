//! The budget of the fast tier is never exceeded, whatever grows beyond what was expected of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Compression, DeltaPlacement, KeyspaceOptions, MergeOperator, Options, Result, ValueOptions};

use crate::deltas::Chain;
use crate::support::{BACKENDS, in_world, value};
use crate::tiers::{check_rounds, open_at, small_logs, write_round};

fn tables(disk: &SimDisk, directory: &str) -> usize {
    let is_there =
        |path: &Path| path.parent() == Some(Path::new(directory)) && path.extension().is_some_and(|end| end == "table");
    disk.files().iter().filter(|(path, _)| is_there(path)).count()
}

/// Makes far more of its operands than they are.
struct Grow;

impl MergeOperator for Grow {
    fn name(&self) -> &str {
        "grow"
    }

    fn full_merge(&self, key: &[u8], _base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        Ok(key.iter().cycle().take(operands.len() * 40_000).copied().collect())
    }

    fn partial_merge(&self, _key: &[u8], _older: &[u8], _newer: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[test]
fn a_flush_that_grows_beyond_the_fast_tier_is_written_to_the_slow_one() {
    const BUDGET: u64 = 2 << 20;
    let run = |seed| {
        in_world(seed, || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.log_bytes, tuning.flush_bytes, tuning.separation_bytes) = (64 << 10, 256 << 10, usize::MAX);
            (tuning.front_bytes_max, tuning.hl0_compact_tables, tuning.index_merge_runs) = (1 << 20, 100, 1000);
            let options = Options::new().slow_dir("/slow").fast_bytes(BUDGET).compression(Compression::None);
            let db = open_at(&disk, options.merge_operator(Arc::new(Grow)), tuning).unwrap();
            // More than that fails: it is as large as the file system.
            disk.set_directory_capacity(Path::new("/db"), Some(BUDGET));
            let grown = db.create_keyspace("grown", KeyspaceOptions::new().merge_operator("grow")).unwrap();
            grown.put("small", "base").unwrap();
            grown.merge("small", "operand").unwrap();
            db.flush().unwrap();
            assert_eq!((tables(&disk, "/db"), tables(&disk, "/slow")), (1, 0), "there is room for it");
            // Base and operand meet in the flush.
            (0..80).for_each(|number| grown.put(format!("{number:02}"), vec![b'b'; 100]).unwrap());
            (0..80).for_each(|number| grown.merge(format!("{number:02}"), "operand").unwrap());
            db.flush().unwrap();
            // Unless a part of the front was flushed before.
            let is_whole = db.stats().flushes == 2;
            // The small one may be on its way there, because the flush had claimed the whole tier.
            assert!(!is_whole || tables(&disk, "/slow") > 0, "{:?}", disk.files());
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_max <= BUDGET && disk.used_in(Path::new("/db")) <= BUDGET, "{tiers:?}");
            for number in 0..80 {
                let key = format!("{number:02}");
                assert_eq!(&*grown.get(&key).unwrap().unwrap(), &value(&key, 40_000)[..]);
            }
            drop(grown);
            db.close().unwrap();
            is_whole
        })
    };
    let whole = (0..6).filter(|seed| run(*seed)).count();
    assert!(whole > 0, "no flush grew beyond the room");
}

/// Its state alone would have taken all of the budget, with the file that replaces it.
#[test]
fn a_manifest_that_outgrows_its_share_is_written_anew_in_time() {
    const BUDGET: u64 = 400 << 10;
    const KEYSPACES: usize = 450;
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.log_bytes, tuning.log_bytes_min, tuning.ring_bytes) = (16 << 10, 16 << 10, 16 << 10);
            (tuning.ring_bytes_min, tuning.chunk_bytes) = (16 << 10, 4 << 10);
            let options = || Options::new().log_backend(backend).slow_dir("/slow").fast_bytes(BUDGET);
            let db = open_at(&disk, options(), tuning.clone()).unwrap();
            // More than that fails: it is as large as the file system.
            disk.set_directory_capacity(Path::new("/db"), Some(BUDGET));
            for number in 0..KEYSPACES {
                drop(db.create_keyspace(&format!("{number:0100}"), KeyspaceOptions::new()).unwrap());
                db.put(format!("{number:04}"), value("v", 2000)).unwrap();
            }
            db.flush().unwrap();
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_max <= BUDGET && disk.used_in(Path::new("/db")) <= BUDGET, "{tiers:?}");
            db.close().unwrap();
            let db = open_at(&disk, options(), tuning).unwrap();
            assert_eq!(db.keyspaces().len(), KEYSPACES + 1);
            db.put("after", "the open").unwrap();
            db.wait_for_background().unwrap();
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_max <= BUDGET, "{tiers:?}");
            assert_eq!(db.iter().unwrap().count(), KEYSPACES + 1);
            db.close().unwrap();
        });
    }
}

/// The sizes of production for the smallest budget: overwrites of several times as much, in all kinds of keyspaces.
#[test]
fn the_smallest_budget_carries_overwrites_of_several_times_as_much_in_all_kinds_of_files() {
    const BUDGET: u64 = 64 << 20;
    const VALUE_BYTES: usize = 16 << 10;
    const KEYS: u32 = 2_000;
    const ROUNDS: u32 = 10;
    in_world(3, || {
        let disk = SimDisk::new();
        disk.set_latency(Path::new("/db"), Duration::from_micros(20));
        disk.set_latency(Path::new("/slow"), Duration::from_micros(200));
        let options = Options::new().slow_dir("/slow").fast_bytes(BUDGET).memory_budget(16 << 20);
        let options = options.merge_operator(Arc::new(Chain)).values(ValueOptions::new().garbage(10, 8 << 20));
        let db = testing::open_on(Arc::new(disk.clone()), Path::new("/db"), options.clone()).unwrap();
        // More than that fails: it is as large as the file system.
        disk.set_directory_capacity(Path::new("/db"), Some(BUDGET));
        let hashed = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
        let lists = KeyspaceOptions::new().merge_operator("chain").deltas(DeltaPlacement::Buckets);
        let lists = db.create_keyspace("lists", lists).unwrap();
        let is_written = |number: u32, round: u32| round == 0 || !(number + round).is_multiple_of(3);
        let last_of = |number: u32| (0..ROUNDS).rev().find(|round| is_written(number, *round)).unwrap();
        let of = |number: u32, round: u32| value(&format!("{number} in {round} "), VALUE_BYTES);
        let mut had_buckets = false;
        for round in 0..ROUNDS {
            // Each round overwrites two keys in three, so that most logs have records of both kinds for a while.
            for number in (0..KEYS).map(|number| number * 7919 % KEYS).filter(|number| is_written(*number, round)) {
                db.put(number.to_be_bytes(), of(number, round)).unwrap();
                db.put(format!("inline {number}"), round.to_string()).unwrap();
                if number % 4 == 0 {
                    hashed.put(number.to_be_bytes(), of(number, round)).unwrap();
                    lists.merge((number % 100).to_be_bytes(), vec![b'x'; 200]).unwrap();
                }
            }
            assert!(disk.used_in(Path::new("/db")) <= BUDGET);
            had_buckets |= db.stats().deltas.operands > 0;
        }
        assert!(had_buckets, "operands reached their buckets");
        let stats = db.stats();
        assert!(stats.tiers.fast_bytes_max <= BUDGET && stats.user_bytes_written > 4 * BUDGET, "{stats:?}");
        assert!(stats.tiers.bytes_moved > 0 && stats.value_gcs > 0 && stats.flushes > 0, "{stats:?}");
        // Whatever a writer waited for came.
        assert!(stats.stall_time < Duration::from_secs(1), "{stats:?}");
        db.wait_for_background().unwrap();
        for number in 0..KEYS {
            assert_eq!(&*db.get(number.to_be_bytes()).unwrap().unwrap(), &of(number, last_of(number))[..]);
            if number % 4 == 0 {
                assert_eq!(&*hashed.get(number.to_be_bytes()).unwrap().unwrap(), &of(number, last_of(number))[..]);
            }
        }
        let merged = |list: u32| {
            let numbers = (0..KEYS).filter(|number| number % 4 == 0 && number % 100 == list);
            numbers.map(|number| (0..ROUNDS).filter(|round| is_written(number, *round)).count()).sum::<usize>()
        };
        for list in (0..100_u32).step_by(4) {
            assert_eq!(lists.get(list.to_be_bytes()).unwrap().unwrap().len(), 201 * merged(list) - 1, "{list}");
        }
        drop((hashed, lists));
        db.close().unwrap();
    });
}

#[test]
fn what_only_an_open_iterator_holds_on_the_fast_tier_is_counted_apart_and_goes_with_it() {
    in_world(11, || {
        let disk = SimDisk::new();
        let (tuning, budget) = small_logs(Tuning::tiny());
        let db = open_at(&disk, Options::new().slow_dir("/slow").fast_bytes(budget), tuning).unwrap();
        write_round(&db, 0);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().tiers.fast_bytes_pinned, 0);
        let mut held = db.iter().unwrap();
        (1..6).for_each(|round| write_round(&db, round));
        db.wait_for_background().unwrap();
        let tiers = db.stats().tiers;
        assert!(tiers.fast_bytes_pinned > 0 && tiers.fast_bytes_pinned < tiers.fast_bytes, "{tiers:?}");
        assert!(tiers.fast_bytes_max <= budget, "{tiers:?}");
        let (key, found) = held.next().unwrap().unwrap();
        assert_eq!((&*key, &*found), (&b"00000"[..], &value("0 in 0 ", 40)[..]));
        drop(held);
        db.wait_for_background().unwrap();
        let after = db.stats().tiers;
        assert_eq!(after.fast_bytes_pinned, 0, "{after:?}");
        assert!(after.fast_bytes < tiers.fast_bytes, "{after:?}");
        check_rounds(&db, 6);
        db.close().unwrap();
    });
}
