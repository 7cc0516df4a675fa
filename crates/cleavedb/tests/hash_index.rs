//! All interleavings of a writer that makes a bucket of the hash index split, or buckets join, with a reader that looks keys up
//! and with one that scans. The tested files are the engine's own; only their locks are loom's.

#![allow(dead_code, reason = "the model does not use every call of the files under test")]

use std::collections::BTreeMap;

use loom::sync::Arc;
use loom::thread;
use xxhash_rust::xxh3::xxh3_64_with_seed;

mod base {
    /// As in the engine.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct FileId(pub u64);

    macro_rules! verify {
        ($condition:expr, $($message:tt)+) => { assert!($condition, $($message)+) };
    }
    pub(crate) use verify;
}

mod sched {
    pub mod sync {
        /// loom's lock with the interface of the engine's lock.
        #[derive(Debug)]
        pub struct RwLock<T>(loom::sync::RwLock<T>);

        impl<T> RwLock<T> {
            pub fn new(value: T) -> RwLock<T> {
                RwLock(loom::sync::RwLock::new(value))
            }
            pub fn read(&self) -> loom::sync::RwLockReadGuard<'_, T> {
                self.0.read().expect("no thread of the model panics")
            }
            pub fn write(&self) -> loom::sync::RwLockWriteGuard<'_, T> {
                self.0.write().expect("no thread of the model panics")
            }
        }
    }
}

#[path = "../src/hash"]
mod hash {
    pub mod bucket;
    pub mod bulk;
    pub mod directory;
    pub mod index;
    pub mod place;
    pub mod shard;
}

use base::FileId;
use hash::index::HashIndex;
use hash::place::{Place, PlaceKind};

/// The lowest hash of the last shard, where all keys are.
const LAST_SHARD: u64 = u64::MAX << 58;
/// Keys that are there from beginning to end: one more than these splits the bucket.
const KEYS: u64 = 48;

fn hasher(key: &[u8], seed: u64) -> u64 {
    LAST_SHARD | xxh3_64_with_seed(key, seed) >> 6
}

fn place(number: u64) -> Place {
    Place { file: FileId(7), offset: number * 100, len: 100, kind: PlaceKind::Value }
}

/// An index with keys, and with further ones up to `until`.
fn index(until: u64) -> Arc<HashIndex> {
    let index = HashIndex::with_hasher(1, hasher);
    (0..until).for_each(|key| _ = index.insert(&key.to_be_bytes(), place(key)));
    Arc::new(index)
}

fn scan(index: &HashIndex) -> BTreeMap<Vec<u8>, u32> {
    let (mut seen, mut from) = (BTreeMap::new(), Some(LAST_SHARD));
    while let Some(hash) = from {
        from = index.scan(hash, &mut |key, _| *seen.entry(key.to_vec()).or_default() += 1);
    }
    seen
}

/// How many buckets the keys are in.
fn buckets(index: &HashIndex) -> usize {
    std::iter::successors(Some(LAST_SHARD), |hash| index.scan(*hash, &mut |_, _| ())).count()
}

fn assert_has_all_once(seen: &BTreeMap<Vec<u8>, u32>) {
    assert!((0..KEYS).all(|key| seen.get(&key.to_be_bytes()[..]) == Some(&1)), "{seen:?}");
    assert!(seen.values().all(|count| *count == 1), "a key is seen twice: {seen:?}");
}

#[test]
fn keys_are_found_and_scanned_once_while_their_bucket_splits() {
    loom::model(|| {
        let index = index(KEYS);
        assert_eq!(buckets(&index), 1);
        let writer = {
            let index = index.clone();
            thread::spawn(move || {
                assert_eq!(index.insert(&KEYS.to_be_bytes(), place(KEYS)), None);
                assert_eq!(index.insert(&3_u64.to_be_bytes(), place(500)), Some(place(3)));
            })
        };
        let reader = {
            let index = index.clone();
            thread::spawn(move || {
                let new = index.get(&KEYS.to_be_bytes());
                let updated = index.get(&3_u64.to_be_bytes());
                assert!(new.is_none_or(|new| new == place(KEYS)));
                assert!(updated == Some(place(500)) || updated == Some(place(3)));
                assert_eq!(index.get(&9_u64.to_be_bytes()), Some(place(9)));
            })
        };
        assert_has_all_once(&scan(&index));
        writer.join().expect("the writer does not panic");
        reader.join().expect("the reader does not panic");
        assert_eq!(scan(&index).len() as u64, KEYS + 1);
        assert_eq!(buckets(&index), 2);
    });
}

#[test]
fn keys_are_found_and_scanned_once_while_buckets_join() {
    loom::model(|| {
        // Two buckets that together have one key too many to be joined.
        let index = index(KEYS + 1);
        let left = KEYS / 2;
        (left + 1..=KEYS).for_each(|key| _ = index.remove(&key.to_be_bytes()));
        assert_eq!(buckets(&index), 2);
        let writer = {
            let index = index.clone();
            thread::spawn(move || assert_eq!(index.remove(&left.to_be_bytes()), Some(place(left))))
        };
        let seen = scan(&index);
        assert!((0..left).all(|key| seen.get(&key.to_be_bytes()[..]) == Some(&1)), "{seen:?}");
        assert_eq!(index.get(&9_u64.to_be_bytes()), Some(place(9)));
        writer.join().expect("the writer does not panic");
        assert_eq!(scan(&index).len() as u64, left);
        assert_eq!(buckets(&index), 1);
    });
}
