//! Very many appends to one key: background work consolidates them, in the front, in the levels and in buckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleavedb::operators::Append;
use cleavedb::testing::{SimDisk, Tuning, sleep};
use cleavedb::{DeltaPlacement, KeyspaceOptions, MergeOperator, Options, Result, WriteBatch};

use crate::deltas::Chain;
use crate::support::{in_world, open_with};

/// Counts the operands that values are made of.
#[derive(Default)]
pub struct Counting {
    pub counted: Arc<AtomicUsize>,
    /// Any two operands can be combined.
    pub combines: bool,
}

impl MergeOperator for Counting {
    fn name(&self) -> &str {
        "counting"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.counted.fetch_add(operands.len(), Ordering::Relaxed);
        Chain.full_merge(key, base, operands)
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.combines.then(|| [older, newer].join(&b'+'))
    }
}

/// A key gets this many operands, and is read after each such part of them.
const APPENDS: usize = 50_000;
const APPENDS_BETWEEN_READS: usize = 12_500;
/// A read of a key in a bucket applies at most this many operands, however many came and however few flushes they were in...
const READ_IN_BUCKETS_MAX: usize = 1500;
/// ...and one of a key in the levels at most those of the few flushes that HL0 keeps.
const READ_IN_LEVELS_MAX: usize = 3000;

/// How a key is appended to.
#[derive(Debug, Clone, Copy)]
struct Case {
    deltas: DeltaPlacement,
    flush_bytes: usize,
    bucket_bytes: u64,
    combines: bool,
    /// The caller flushes before it reads.
    is_flushed: bool,
}

/// Appends to a key whose base lies below other keys in the levels, and reads it after background work. What nobody flushes only a
/// read can bring to the notice of the engine.
fn append_and_read(case: Case) {
    let Case { deltas, flush_bytes, bucket_bytes, combines, is_flushed } = case;
    let counted = Arc::new(AtomicUsize::new(0));
    let counting = Counting { counted: counted.clone(), combines };
    let mut tuning = Tuning::tiny();
    (tuning.index_table_bytes, tuning.flush_bytes, tuning.front_bytes_max) =
        (flush_bytes, flush_bytes as u64, 16 << 20);
    (tuning.logs_bytes_max, tuning.replay_bytes_max, tuning.unflushed_bytes_min) = (64 << 20, 64 << 20, 64 << 20);
    (tuning.log_bytes, tuning.garbage_bytes) = (16 << 20, 64 << 20);
    (tuning.bucket_bytes, tuning.bucket_extents_max) = (bucket_bytes, 8);
    // Work in the background is to do it, not folds that reads have cached.
    tuning.folded_from = usize::MAX;
    let options = Options::new().merge_operator(Arc::new(counting)).background_threads(2);
    let db = open_with(&SimDisk::new(), options, tuning).unwrap();
    let of = KeyspaceOptions::new().merge_operator("counting").deltas(deltas);
    let lists = db.create_keyspace("lists", of).unwrap();
    lists.put("hot", "base").unwrap();
    (0..400).for_each(|number| lists.put(format!("{number:03}"), "x".repeat(150)).unwrap());
    db.flush().unwrap();
    db.compact_range(&lists, ..).unwrap();
    let flushes = db.stats().flushes;
    for appended in (0..APPENDS).step_by(APPENDS_BETWEEN_READS) {
        let length = 4 + 2 * (appended + APPENDS_BETWEEN_READS);
        (0..APPENDS_BETWEEN_READS).for_each(|_| lists.merge("hot", "x").unwrap());
        if is_flushed {
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        // A read asks for a seal, and another one for a flush if that was not enough.
        for _ in 0..if is_flushed { 0 } else { 2 } {
            assert_eq!(lists.get("hot").unwrap().unwrap().len(), length);
            db.wait_for_background().unwrap();
        }
        counted.store(0, Ordering::Relaxed);
        let value = lists.get("hot").unwrap().unwrap();
        assert_eq!(value.len(), length);
        let read = counted.load(Ordering::Relaxed);
        let read_max = if deltas == DeltaPlacement::Levels { READ_IN_LEVELS_MAX } else { READ_IN_BUCKETS_MAX };
        assert!(read <= read_max, "{case:?}: {read} operands after {appended} and more");
        // Once in a second.
        sleep(Duration::from_secs(1));
    }
    let flushes = db.stats().flushes - flushes;
    let in_one_table = flush_bytes > 1 << 20 && !is_flushed;
    assert!(!in_one_table || flushes <= (APPENDS / APPENDS_BETWEEN_READS) as u64, "{case:?}: {flushes} flushes");
}

#[test]
fn reading_a_key_takes_no_time_in_proportion_to_its_history() {
    let levels = Case {
        deltas: DeltaPlacement::Levels,
        flush_bytes: 16 << 10,
        bucket_bytes: 2 << 10,
        combines: false,
        is_flushed: true,
    };
    let buckets = Case { deltas: DeltaPlacement::Buckets, flush_bytes: 128 << 10, ..levels };
    let in_one_table = Case { flush_bytes: 4 << 20, bucket_bytes: 256 << 10, is_flushed: false, ..buckets };
    let cases = [
        levels,
        // A bucket that is full at once, one that is never full, and one that gets most of the history in one flush.
        buckets,
        Case { bucket_bytes: 256 << 10, ..buckets },
        Case { is_flushed: true, ..in_one_table },
        // Nobody flushes, and no index table becomes full.
        in_one_table,
        Case { combines: true, ..in_one_table },
        Case { deltas: DeltaPlacement::Levels, combines: true, ..in_one_table },
        // In the levels, those that cannot be combined are folded by compactions.
        Case { is_flushed: false, ..levels },
    ];
    for case in cases {
        in_world(1, move || append_and_read(case));
    }
}

/// The built-in `append`, which counts the bytes that combining its operands has made.
#[derive(Default)]
struct CountingAppend(Append, Arc<AtomicUsize>);

impl MergeOperator for CountingAppend {
    fn name(&self) -> &str {
        "counting append"
    }

    fn full_merge(&self, key: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        self.0.full_merge(key, base, operands)
    }

    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        let joined = self.0.partial_merge(key, older, newer)?;
        self.1.fetch_add(joined.len(), Ordering::Relaxed);
        Some(joined)
    }
}

#[test]
fn many_appends_to_one_key_are_combined_without_being_copied_each_time() {
    const OPERAND: usize = 100;
    for deltas in [DeltaPlacement::Levels, DeltaPlacement::Buckets] {
        in_world(1, move || {
            let append = CountingAppend::default();
            let copied = append.1.clone();
            let mut tuning = Tuning::tiny();
            // All of them in one index table.
            (tuning.index_table_bytes, tuning.flush_bytes, tuning.front_bytes_max) = (32 << 20, 32 << 20, 64 << 20);
            (tuning.cache_bytes, tuning.memory_bytes) = (16 << 20, 128 << 20);
            let options = Options::new().merge_operator(Arc::new(append)).background_threads(2);
            let db = open_with(&SimDisk::new(), options, tuning).unwrap();
            let of = KeyspaceOptions::new().merge_operator("counting append").deltas(deltas);
            let lists = db.create_keyspace("lists", of).unwrap();
            lists.put("hot", "base").unwrap();
            db.flush().unwrap();
            let mut length = 4;
            for round in 0..2 {
                for first in (0..APPENDS).step_by(500) {
                    let mut batch = WriteBatch::new();
                    (first..first + 500).for_each(|at| batch.merge(&lists, "hot", format!("{at:0OPERAND$}")));
                    db.write(batch).unwrap();
                }
                length += APPENDS * (OPERAND + 1);
                db.flush().unwrap();
                db.wait_for_background().unwrap();
                let value = lists.get("hot").unwrap().unwrap();
                assert!(value.len() == length && value.ends_with(format!("{:0OPERAND$}", APPENDS - 1).as_bytes()));
                // A byte for each doubling of what was combined: in the seal, and once more in each later job.
                let copied = copied.load(Ordering::Relaxed);
                assert!(copied < 40 * length, "{deltas:?}, round {round}: {copied} bytes for {length}");
            }
        });
    }
}
