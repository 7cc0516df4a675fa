//! The budget of the fast tier is never exceeded, whatever grows beyond what was expected of it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{
    Compression, Db, DeltaPlacement, Durability, Keyspace, KeyspaceOptions, LogBackend, MergeOperator, Options, Result,
    ValueOptions,
};

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

/// The smallest budget.
const SMALLEST: u64 = 64 << 20;
const VALUE_BYTES: usize = 16 << 10;
const KEYS: u32 = 2_000;

fn is_written(number: u32, round: u32) -> bool {
    round == 0 || !(number + round).is_multiple_of(3)
}

/// The same in the hash keyspace: not in all rounds, because logs with such records are not collected with the others.
fn is_hashed(number: u32, round: u32) -> bool {
    number.is_multiple_of(4) && round % 4 < 2 && is_written(number, round)
}

fn of(number: u32, round: u32) -> Vec<u8> {
    value(&format!("{number} in {round} "), VALUE_BYTES)
}

/// Two disks of the speeds that two tiers may have.
fn two_disks() -> SimDisk {
    let disk = SimDisk::new();
    disk.set_latency(Path::new("/db"), Duration::from_micros(20));
    disk.set_latency(Path::new("/slow"), Duration::from_micros(200));
    disk
}

fn options(budget: u64) -> Options {
    let options = Options::new().slow_dir("/slow").fast_bytes(budget).memory_budget(16 << 20);
    options.merge_operator(Arc::new(Chain)).values(ValueOptions::new().garbage(10, 8 << 20))
}

/// Opens with the sizes of production.
fn open_usual(disk: &SimDisk, options: &Options) -> Db {
    testing::open_on(Arc::new(disk.clone()), Path::new("/db"), options.clone()).unwrap()
}

/// Rounds of overwrites in all kinds of keyspaces.
struct Rounds {
    db: Db,
    hashed: Keyspace,
    lists: Keyspace,
}

impl Rounds {
    fn new(db: &Db) -> Rounds {
        let lists = KeyspaceOptions::new().merge_operator("chain").deltas(DeltaPlacement::Buckets);
        let keyspace = |name, options| db.open_keyspace(name).or_else(|_| db.create_keyspace(name, options)).unwrap();
        Rounds { db: db.clone(), hashed: keyspace("hashed", KeyspaceOptions::hash()), lists: keyspace("lists", lists) }
    }

    /// Each round overwrites two keys in three, so that most logs have records of both kinds for a while.
    fn write(&self, round: u32) {
        for number in (0..KEYS).map(|number| number * 7919 % KEYS).filter(|number| is_written(*number, round)) {
            self.db.put(number.to_be_bytes(), of(number, round)).unwrap();
            self.db.put(format!("inline {number}"), round.to_string()).unwrap();
            if is_hashed(number, round) {
                self.hashed.put(number.to_be_bytes(), of(number, round)).unwrap();
            }
            if number % 4 == 0 {
                self.lists.merge((number % 100).to_be_bytes(), vec![b'x'; 200]).unwrap();
            }
        }
    }

    /// The content after this many rounds.
    fn check(&self, rounds: u32) {
        for number in 0..KEYS {
            let last = |is_written: fn(u32, u32) -> bool| (0..rounds).rev().find(|round| is_written(number, *round));
            let wanted = last(is_written).map(|round| of(number, round));
            assert_eq!(self.db.get(number.to_be_bytes()).unwrap().as_deref(), wanted.as_deref(), "{number}");
            let wanted = last(is_hashed).map(|round| of(number, round));
            assert_eq!(self.hashed.get(number.to_be_bytes()).unwrap().as_deref(), wanted.as_deref(), "{number}");
        }
        let merged = |list: u32| {
            let numbers = (0..KEYS).filter(|number| number % 4 == 0 && number % 100 == list);
            numbers.map(|number| (0..rounds).filter(|round| is_written(number, *round)).count()).sum::<usize>()
        };
        for list in (0..100_u32).step_by(4) {
            let found = self.lists.get(list.to_be_bytes()).unwrap().unwrap();
            assert_eq!(found.len(), 201 * merged(list) - 1, "{list}");
        }
    }
}

/// How many jobs of a kind have ended.
fn jobs(db: &Db, kind: &str) -> u64 {
    db.stats().scheduling.jobs.iter().filter(|job| job.kind == kind).map(|job| job.count).sum()
}

/// The sizes of production for the smallest budget: overwrites of several times as much, in all kinds of keyspaces.
#[test]
fn the_smallest_budget_carries_overwrites_of_several_times_as_much_in_all_kinds_of_files() {
    const ROUNDS: u32 = 9;
    // Each log back end, durability and size of memory with each of the others.
    let (ring, plain) = (LogBackend::Ring, LogBackend::Plain);
    let cases = [
        (ring, Durability::Buffered, 16),
        (plain, Durability::Sync, 16),
        (ring, Durability::Sync, 256),
        (plain, Durability::Buffered, 256),
    ];
    let mut emptied = 0;
    for (seed, (backend, durability, memory)) in (3..).zip(cases) {
        emptied += in_world(seed, move || {
            let disk = two_disks();
            let options = options(SMALLEST).log_backend(backend).durability(durability).memory_budget(memory << 20);
            let db = open_usual(&disk, &options);
            // More than that fails: it is as large as the file system.
            disk.set_directory_capacity(Path::new("/db"), Some(SMALLEST));
            let rounds = Rounds::new(&db);
            for round in 0..ROUNDS {
                rounds.write(round);
                assert!(disk.used_in(Path::new("/db")) <= SMALLEST);
            }
            let stats = db.stats();
            assert!(
                stats.tiers.fast_bytes_max <= SMALLEST && stats.user_bytes_written > 3 * SMALLEST,
                "{} {}",
                stats.tiers.fast_bytes_max,
                stats.user_bytes_written
            );
            assert!(
                stats.tiers.bytes_moved > 0 && stats.value_gcs > 0 && stats.flushes > 0,
                "{} {} {}",
                stats.tiers.bytes_moved,
                stats.value_gcs,
                stats.flushes
            );
            assert!(jobs(&db, "demote logs") > 0, "{:?}", stats.scheduling.jobs);
            // Whatever a writer waited for came.
            assert!(stats.stall_time < Duration::from_secs(1), "{:?}", stats.stall_time);
            db.wait_for_background().unwrap();
            rounds.check(ROUNDS);
            drop(rounds);
            let emptied = jobs(&db, "empty logs");
            db.close().unwrap();
            emptied
        });
    }
    // With the smallest memory none are while values are collected.
    assert!(emptied > 0, "no log was emptied for the fast tier");
}

/// What lies on the fast tier is several times as much as the budget of the next open, which recovers it from a crash.
#[test]
fn a_budget_that_shrinks_after_a_crash_is_reached_while_an_iterator_holds_files_and_writes_go_on() {
    in_world(5, || {
        let disk = two_disks();
        // Garbage stays until the fast tier needs room.
        let options = |budget| options(budget).values(ValueOptions::new().garbage(300, 1 << 30));
        let large = options(4 * SMALLEST);
        let db = open_usual(&disk, &large);
        let rounds = Rounds::new(&db);
        (0..6).for_each(|round| rounds.write(round));
        let image = disk.process_crash();
        drop(rounds);
        db.close().unwrap();
        let small = options(SMALLEST);
        assert!(image.used_in(Path::new("/db")) > 2 * SMALLEST, "{}", image.used_in(Path::new("/db")));
        let db = open_usual(&image, &small);
        let rounds = Rounds::new(&db);
        let mut held = db.iter().unwrap();
        (6..12).for_each(|round| rounds.write(round));
        let stats = db.stats();
        assert!(stats.tiers.bytes_moved > 0 && stats.tiers.fast_bytes_pinned > 0, "{:?}", stats.tiers);
        assert!(stats.stall_time < Duration::from_secs(1), "{:?}", stats.stall_time);
        let (key, found) = held.next().unwrap().unwrap();
        let last = (0..6).rev().find(|round| is_written(0, *round)).unwrap();
        assert_eq!((&*key, &*found), (&0_u32.to_be_bytes()[..], &of(0, last)[..]));
        drop(held);
        db.wait_for_background().unwrap();
        let tiers = db.stats().tiers;
        assert!(tiers.fast_bytes <= SMALLEST && image.used_in(Path::new("/db")) <= SMALLEST, "{tiers:?}");
        assert!(jobs(&db, "empty logs") > 0, "{:?}", stats.scheduling.jobs);
        // From here on it is kept.
        image.set_directory_capacity(Path::new("/db"), Some(SMALLEST));
        (12..15).for_each(|round| rounds.write(round));
        assert!(db.stats().tiers.fast_bytes <= SMALLEST);
        rounds.check(15);
        drop(rounds);
        db.close().unwrap();
    });
}

#[test]
fn what_only_an_open_iterator_holds_on_the_fast_tier_is_counted_apart_and_goes_with_it() {
    // With some of these a log is moved while the list of logs to sync has it, with some all of them have left the tier before.
    let with = |pinned: Arc<AtomicU32>| {
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
        pinned.fetch_add(u32::from(tiers.fast_bytes_pinned > 0), Ordering::Relaxed);
        assert!(tiers.fast_bytes_pinned < tiers.fast_bytes, "{tiers:?}");
        assert!(tiers.fast_bytes_max <= budget, "{tiers:?}");
        let (key, found) = held.next().unwrap().unwrap();
        assert_eq!((&*key, &*found), (&b"00000"[..], &value("0 in 0 ", 40)[..]));
        drop(held);
        db.wait_for_background().unwrap();
        let after = db.stats().tiers;
        assert_eq!(after.fast_bytes_pinned, 0, "{after:?}");
        check_rounds(&db, 6);
        db.close().unwrap();
    };
    let pinned = Arc::new(AtomicU32::new(0));
    for seed in 1..13 {
        let pinned = pinned.clone();
        in_world(seed, move || with(pinned));
    }
    let pinned = pinned.load(Ordering::Relaxed);
    assert!(pinned >= 9, "{pinned}");
}
