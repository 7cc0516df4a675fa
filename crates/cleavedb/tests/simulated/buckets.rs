//! Merge operands in buckets: what their reads take, what limits and crashes leave, and how writers wait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning, sleep};
use cleavedb::{Db, DeltaPlacement, Error, Keyspace, KeyspaceOptions, MergeOperator, Options, Result};

use crate::deltas::{Chain, calm, entries_in_levels, flushed, in_buckets, options, text};
use crate::support::{in_world, lose_power_by_turn, open_with, taken_with_notes};

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

/// Look-ups of blocks while the operands of four flushes are rewritten, whose bases are in a table; with `newer_puts`, another table
/// has newer ones of the first and the last key.
fn looked_up_by_a_rewrite(newer_puts: bool) -> u64 {
    let mut tuning = calm();
    tuning.bucket_extents_max = 4;
    let db = open_with(&SimDisk::new(), options(), tuning).unwrap();
    let lists = in_buckets(&db, "chain");
    let key = |number: usize| format!("{number:03}");
    (0..200).for_each(|number| lists.put(key(number), "base").unwrap());
    db.flush().unwrap();
    let before = db.stats();
    for round in 0..4 {
        (0..200).for_each(|number| lists.merge(key(number), "1").unwrap());
        if newer_puts && round == 2 {
            [0, 199].iter().for_each(|number| lists.put(key(*number), "new").unwrap());
        }
        db.flush().unwrap();
    }
    db.wait_for_background().unwrap();
    let after = db.stats();
    assert!(after.deltas.rewrites > before.deltas.rewrites);
    for number in 0..200 {
        let expected = if newer_puts && number % 199 == 0 { "new+1" } else { "base+1+1+1+1" };
        assert_eq!(text(&lists, &key(number)).as_deref(), Some(expected));
    }
    let blocks = |stats: &cleavedb::Stats| stats.block_cache_hits + stats.block_cache_misses;
    blocks(&after) - blocks(&before)
}

/// What a table has can cover an operand, or lie between two, only if it is newer than the oldest of them.
#[test]
fn a_rewrite_looks_for_bases_only_in_tables_that_have_something_newer() {
    in_world(1, || {
        let [older, newer] = [false, true].map(looked_up_by_a_rewrite);
        assert!(4 * older < newer, "{older} look-ups where all bases are older, {newer} else");
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

/// What a read took: its value, how many reads of the disk it made, and how long.
fn measured<T>(disk: &SimDisk, read: impl FnOnce() -> T) -> (T, u64, Duration) {
    disk.set_latency(Path::new("/db"), LATENCY);
    let (reads, began) = (disk.reads(), testing::now());
    let found = read();
    let (reads, took) = (disk.reads() - reads, testing::now() - began);
    disk.set_latency(Path::new("/db"), Duration::ZERO);
    (found, reads, took)
}

const LATENCY: Duration = Duration::from_millis(10);

#[test]
fn a_get_reads_value_and_operands_in_one_round_and_finds_damage_in_either() {
    const KEYS: usize = 600;
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        (tuning.cache_bytes, tuning.memory_bytes, tuning.open_files_max) = (2 << 20, 4 << 20, 100);
        // A page of a segment has the operands of one or two keys.
        let (base, operand) = ("b".repeat(3000), |round: usize| format!("{round}{}", "o".repeat(1500)));
        let expected = [base.clone(), operand(0), operand(1), operand(2)].join("+");
        {
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            let lists = in_buckets(&db, "chain");
            (0..KEYS).for_each(|number| lists.put(format!("{number:03}"), &base).unwrap());
            db.flush().unwrap();
            for round in 0..3 {
                (0..KEYS).for_each(|number| lists.merge(format!("{number:03}"), operand(round)).unwrap());
                db.flush().unwrap();
            }
            db.close().unwrap();
        }
        let db = open_with(&disk, options().operand_cache_percent(10), tuning).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        for number in (0..KEYS).step_by(7) {
            assert_eq!(text(&lists, &format!("{number:03}")).as_ref(), Some(&expected));
        }
        db.wait_for_background().unwrap();
        // The indexes and the pages with addresses are cached; values and operands of other keys are not.
        disk.set_faults(cleavedb::testing::Faults { fail_read_one_in: Some(1), ..Default::default() });
        assert!(lists.get("003").is_err());
        disk.clear_faults();
        let warm = || ["000", "006"].iter().for_each(|key| assert_eq!(text(&lists, key).as_ref(), Some(&expected)));
        warm();
        let (found, reads, took) = measured(&disk, || text(&lists, "003"));
        assert_eq!(found.as_ref(), Some(&expected));
        assert!(reads >= 4 && took < 2 * LATENCY, "{reads} reads in {took:?}");
        let (found, reads, _) = measured(&disk, || text(&lists, "003"));
        assert_eq!(found.as_ref(), Some(&expected));
        assert_eq!(reads, 0, "value and operands are cached");
        // A list that older snapshots cannot use: a newer put covers what they need.
        let snapshot = db.snapshot();
        flushed(&db, &[&|| lists.put("003", "new").unwrap(), &|| lists.merge("003", "1").unwrap()]);
        assert_eq!(text(&lists, "003").as_deref(), Some("new+1"));
        // Reads of others take the place of its pages, but not of the list.
        for number in 0..KEYS {
            lists.get(format!("{number:03}")).unwrap();
            assert_eq!(text(&lists, "003").as_deref(), Some("new+1"));
        }
        let (hits, _) = cache_figures(&db);
        assert_eq!(text(&lists, "003").as_deref(), Some("new+1"));
        assert_eq!(cache_figures(&db).0, hits + 1, "the list is still cached");
        warm();
        let (found, reads, took) = measured(&disk, || snapshot.get(&lists, "003").unwrap().unwrap());
        assert_eq!(found, expected.as_bytes());
        assert!(reads >= 4 && took < 2 * LATENCY, "{reads} reads in {took:?}");
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
        // One flush brings all of it.
        (tuning.index_table_bytes, tuning.flush_bytes) = (64 << 10, 64 << 10);
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
        // The thread for it may still be at the end of the flush.
        let began = testing::now();
        while !db.stats().jobs.iter().any(|job| job.kind == "rewrite buckets") {
            sleep(Duration::from_millis(1));
            assert!(testing::now() - began < Duration::from_secs(2), "{:?}", db.stats().jobs);
        }
        db.put("other", "value").unwrap();
        lists.put("hot", "put").unwrap();
        lists.merge("hot", "1").unwrap();
        assert_eq!(db.stats().paced, 1, "{:?} {:?}", db.stats().deltas, db.stats().jobs);
        disk.set_latency(Path::new("/db"), Duration::ZERO);
        db.wait_for_background().unwrap();
        lists.merge("hot", "2").unwrap();
        assert_eq!((db.stats().paced, text(&lists, "hot").as_deref()), (1, Some("put+1+2")));
    });
}

#[test]
fn upkeep_is_not_starved_by_flushes_that_are_always_due() {
    for threads in [1, 2] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.bucket_bytes, tuning.bucket_extents_max) = (1 << 20, 4);
            let db = open_with(&disk, options().background_threads(threads), tuning).unwrap();
            let lists = in_buckets(&db, "chain");
            (0..50).for_each(|number| lists.put(format!("{number:02}"), "base").unwrap());
            db.flush().unwrap();
            // Writers fill the front faster than flushes empty it.
            disk.set_latency(Path::new("/db"), Duration::from_millis(2));
            let (mut most, mut flushes) = (0, 0);
            for number in 0..6000 {
                lists.merge(format!("{:02}", number % 50), "x".repeat(200)).unwrap();
                let stats = db.stats();
                most = most.max(stats.deltas.extents / stats.deltas.buckets.max(1));
                flushes = stats.flushes;
            }
            let stats = db.stats().deltas;
            assert!(flushes > 30, "{flushes} flushes, {stats:?}");
            // Four times what makes a rewrite due, and what flushes add until the running one ends.
            assert!(most <= 4 * 4 + 2, "{threads} threads: {most} extents of a bucket, {flushes} flushes");
        });
    }
}

#[test]
fn operands_of_one_byte_and_of_a_mebibyte_are_read_as_they_were_written() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = calm();
        (tuning.bucket_bytes, tuning.bucket_extents_max, tuning.front_bytes_max) = (1 << 20, 3, 16 << 20);
        (tuning.cache_bytes, tuning.memory_bytes) = (8 << 20, 64 << 20);
        let db = open_with(&disk, options(), tuning.clone()).unwrap();
        let lists = in_buckets(&db, "chain");
        let mut expected = vec![String::new(); 6];
        let (mut snapshot, mut then) = (None, Vec::new());
        for round in 0..7 {
            for (number, expected) in expected.iter_mut().enumerate() {
                let letter = char::from(b'a' + (round + number) as u8).to_string();
                let operand = if (round + number) % 3 == 0 { letter.repeat(1 << 20) } else { letter };
                match expected.is_empty() {
                    true => lists.put(number.to_string(), &operand).unwrap(),
                    false => lists.merge(number.to_string(), &operand).unwrap(),
                }
                *expected = if expected.is_empty() { operand } else { format!("{expected}+{operand}") };
            }
            db.flush().unwrap();
            if round == 3 {
                (snapshot, then) = (Some(db.snapshot()), expected.clone());
            }
            db.wait_for_background().unwrap();
            for (number, expected) in expected.iter().enumerate() {
                assert!(text(&lists, &number.to_string()).as_ref() == Some(expected), "round {round}, key {number}");
            }
            for (number, then) in then.iter().enumerate() {
                let found = snapshot.as_ref().unwrap().get(&lists, number.to_string()).unwrap().unwrap();
                assert!(found == then.as_bytes(), "round {round}, key {number}");
            }
        }
        assert!(db.stats().deltas.rewrites > 0);
        drop(snapshot);
        db.close().unwrap();
        let db = open_with(&disk, options(), tuning).unwrap();
        let lists = db.open_keyspace("lists").unwrap();
        let found: Vec<_> = lists.iter().unwrap().map(|item| item.unwrap().1).collect();
        assert!(found.iter().zip(&expected).all(|(found, expected)| *found == expected.as_bytes()));
    });
}

#[test]
fn an_open_reads_no_operand_of_its_segments() {
    in_world(1, || {
        let reads_of_open = |rounds: usize| {
            let disk = SimDisk::new();
            {
                let db = open_with(&disk, options(), calm()).unwrap();
                let lists = in_buckets(&db, "chain");
                (0..200).for_each(|number| lists.put(format!("{number:03}"), "base").unwrap());
                flushed(&db, &[&|| ()]);
                for _ in 0..rounds {
                    (0..200).for_each(|number| lists.merge(format!("{number:03}"), "x".repeat(100)).unwrap());
                    db.flush().unwrap();
                }
                db.close().unwrap();
            }
            let before = disk.reads();
            let db = open_with(&disk, options(), calm()).unwrap();
            (disk.reads() - before, db.stats().deltas)
        };
        let ((few, of_few), (many, of_many)) = (reads_of_open(1), reads_of_open(8));
        assert!(of_many.segments >= of_few.segments + 7 && of_many.bytes > 7 * of_few.bytes, "{of_few:?} {of_many:?}");
        // At most the footer of each segment.
        assert!(many <= few + (of_many.segments - of_few.segments) as u64, "{few}, then {many}");
    });
}

/// Three keys, each in a bucket of its own: what a user did to one of them, one after the other.
struct History {
    states: Vec<[Option<String>; 3]>,
    /// The last state that was flushed.
    flushed: Arc<AtomicUsize>,
}

const KEYS: [&str; 3] = ["a", "k", "m"];

impl History {
    fn change(&mut self, lists: &Keyspace, key: usize, to: Option<String>) {
        let before = self.states.last().unwrap()[key].clone();
        let mut after = self.states.last().unwrap().clone();
        after[key] = to.clone();
        self.states.push(after);
        match (before, to) {
            (Some(before), Some(to)) if to.starts_with(&before) => {
                lists.merge(KEYS[key], &to[before.len() + 1..]).unwrap();
            }
            (None, Some(to)) => lists.merge(KEYS[key], to).unwrap(),
            (_, None) => lists.delete(KEYS[key]).unwrap(),
            (Some(_), Some(to)) => lists.put(KEYS[key], to).unwrap(),
        }
    }

    fn merge(&mut self, lists: &Keyspace, key: usize, operand: &str) {
        let before = self.states.last().unwrap()[key].clone();
        let after = before.map_or_else(|| operand.to_owned(), |before| format!("{before}+{operand}"));
        self.change(lists, key, Some(after));
    }
}

fn all_of(lists: &Keyspace) -> [Option<String>; 3] {
    KEYS.map(|key| text(lists, key))
}

/// Empties the bucket of `k` while that before it keeps its extent in the segment that both were flushed to, has the base of `k`
/// leave the levels, and then has the bucket taken in. Checks that the operands of `k` that were dropped stay dead.
fn absorb_an_emptied_bucket(db: &Db, by_range: bool, history: &mut History) {
    let lists = db.open_keyspace("lists").unwrap();
    let buckets = || db.stats().deltas.buckets;
    let settle = |expected: &History| {
        db.flush().unwrap();
        expected.flushed.store(expected.states.len() - 1, Ordering::Relaxed);
        db.wait_for_background().unwrap();
        assert_eq!(all_of(&lists), *expected.states.last().unwrap());
    };
    // One segment, in which each key has a bucket: the first operand of each fills a new bucket.
    (0..3).for_each(|key| history.merge(&lists, key, &KEYS[key].repeat(1200)));
    settle(history);
    assert_eq!((buckets(), db.stats().deltas.segments), (3, 1));
    // No bucket can be split, so the full one is folded, which empties it.
    for number in 0..25 {
        history.merge(&lists, 1, &format!("{number}{}", "x".repeat(1000)));
    }
    settle(history);
    let stats = db.stats().deltas;
    assert_eq!((stats.folds, stats.operands, stats.segments), (1, 2, 1), "{stats:?}");
    assert_eq!(buckets(), 3, "the bucket before it selects from the segment that has the dropped operand");
    // Nothing is left of the key: its tombstone covers nothing that a bucket holds, so it leaves the levels.
    match by_range {
        true => {
            history.states.push(history.states.last().unwrap().clone());
            history.states.last_mut().unwrap()[1] = None;
            lists.delete_range("b".."l").unwrap();
        }
        false => history.change(&lists, 1, None),
    }
    settle(history);
    // Its bucket alone: what the others hold is left as it is.
    db.compact_range(&lists, "k"..="k").unwrap();
    settle(history);
    assert_eq!(entries_in_levels(db), 2);
    // The bucket after it is rewritten into a segment of its own: nothing may be taken in yet.
    for number in 0..4 {
        history.merge(&lists, 2, &format!("{number}{}", "m".repeat(900)));
        settle(history);
    }
    let stats = db.stats().deltas;
    assert_eq!((stats.rewrites, stats.segments, buckets()), (2, 2, 3), "{stats:?}");
    // Once the bucket before it is rewritten, it takes in the empty one.
    for number in 0..4 {
        history.merge(&lists, 0, &format!("{number}{}", "a".repeat(100)));
        settle(history);
    }
    assert_eq!(buckets(), 2, "{:?}", db.stats().deltas);
    // An operand of the key meets no older one.
    history.merge(&lists, 1, "new");
    settle(history);
    assert_eq!(text(&lists, "k").as_deref(), Some("new"));
}

#[test]
fn an_emptied_bucket_taken_in_by_its_neighbour_brings_no_dropped_operand_back() {
    for by_range in [false, true] {
        in_world(1, move || {
            let disk = SimDisk::new();
            let mut tuning = calm();
            (tuning.bucket_bytes, tuning.buckets_max, tuning.bucket_extents_max) = (20 << 10, 3, 5);
            // Idle upkeep would give each bucket a segment of its own.
            tuning.compacts_when_idle = false;
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            let lists = in_buckets(&db, "chain");
            KEYS.iter().for_each(|key| lists.put(key, "base").unwrap());
            db.flush().unwrap();
            db.compact_range(&lists, ..).unwrap();
            let states = vec![KEYS.map(|_| Some("base".to_owned()))];
            let mut history = History { states, flushed: Arc::default() };
            let images = lose_power_by_turn(&disk, &history.flushed);
            absorb_an_emptied_bucket(&db, by_range, &mut history);
            let images = taken_with_notes(&disk, &images);
            assert!(images.len() > 20, "{}", images.len());
            for (image, durable) in &images {
                let db = open_with(image, options(), tuning.clone()).unwrap();
                let lists = db.open_keyspace("lists").unwrap();
                let found = all_of(&lists);
                assert!(history.states[*durable..].contains(&found), "{found:?}, {durable}");
                // The work that the crash interrupted is done, and everything that can leave the levels does.
                db.wait_for_background().unwrap();
                db.compact_range(&lists, ..).unwrap();
                assert_eq!(all_of(&lists), found);
                (0..6).for_each(|_| flushed(&db, &[&|| lists.merge("a", "1").unwrap(), &|| ()]));
                lists.merge("k", "again").unwrap();
                flushed(&db, &[&|| ()]);
                db.wait_for_background().unwrap();
                db.compact_range(&lists, ..).unwrap();
                let before = found[1].iter().map(|value| format!("{value}+")).collect::<String>();
                assert_eq!(text(&lists, "k").unwrap(), before + "again");
                db.close().unwrap();
                assert!(testing::check(Arc::new(image.clone()), Path::new("/db"), &options()).unwrap().is_sound());
            }
        });
    }
}
