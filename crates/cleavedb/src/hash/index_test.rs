//! Tests of the index: against a map, with keys of all lengths and with hashes that share bits; its memory; scans under splits.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bulk::Bulk;
use super::index::{HashIndex, Hasher, SHARDS, Spread, shard_of};
use super::place::Place;
use crate::base::FileId;
use crate::base::limits::KEY_BYTES_MAX;
use crate::hash::bucket::INLINE_KEY_BYTES_MAX;
use crate::hash::place::PlaceKind;
use crate::sched::sim::simulate;
use crate::sched::thread::try_spawn;

fn place(number: u64) -> Place {
    let kind = [PlaceKind::Value, PlaceKind::Tombstone, PlaceKind::Operand][(number % 3) as usize];
    Place { file: FileId(number >> 20), offset: number * 171, len: (number % 90_000) as u32 + 24, kind }
}

/// What the keys of an index share.
fn hashers() -> [Hasher; 4] {
    [
        xxh3_64_with_seed,
        |_, _| 0x0123_4567_89ab_cdef,
        // Equal but for the last bits, and equal but for some in the middle.
        |key, seed| u64::MAX << 12 | xxh3_64_with_seed(key, seed) >> 52,
        |key, seed| xxh3_64_with_seed(key, seed) & 0x3ff0_0000,
    ]
}

fn scanned(index: &HashIndex) -> Vec<(Vec<u8>, Place)> {
    let (mut all, mut from) = (Vec::new(), Some(0));
    while let Some(hash) = from {
        from = index.scan(hash, &mut |key, place| all.push((key.to_vec(), place)));
    }
    all
}

fn assert_counted(index: &HashIndex) {
    assert!(index.count_shards().iter().all(|(kept, counted, _)| kept == counted));
    let beside_shards =
        |index: &HashIndex| index.memory_bytes() - index.count_shards().iter().map(|(kept, ..)| kept).sum::<usize>();
    assert_eq!(beside_shards(index), beside_shards(&HashIndex::new(0, Spread::Even)));
}

/// Compares all of an index with a map.
fn assert_equal(index: &HashIndex, model: &HashMap<Vec<u8>, Place>) {
    assert_eq!(index.len(), model.len());
    let found = scanned(index);
    assert_eq!(found.len(), model.len(), "each key once");
    assert_eq!(found.into_iter().collect::<HashMap<_, _>>(), *model);
    assert!(model.iter().all(|(key, place)| index.get(key) == Some(*place)));
    // Together, with keys that are not there among them.
    let unknown: Vec<Vec<u8>> = model.keys().take(20).map(|key| [&key[..], b"?"].concat()).collect();
    let keys: Vec<&[u8]> = unknown.iter().chain(model.keys()).map(|key| &key[..]).collect();
    for keys in keys.chunks(9) {
        let one_by_one: Vec<Option<Place>> = keys.iter().map(|key| index.get(key)).collect();
        assert_eq!(index.get_many(keys), one_by_one);
    }
    assert_counted(index);
}

#[derive(Debug, Clone)]
enum Step {
    Insert(Vec<u8>, u64),
    Remove(Vec<u8>),
    InsertMany(u16, u16),
    RemoveMany(u16, u16),
}

fn key() -> impl Strategy<Value = Vec<u8>> {
    let number = 0_u16..200;
    prop_oneof![
        8 => number.clone().prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (0_u8..5).prop_map(|number| vec![number]),
        2 => (0_usize..5, 0_u8..4).prop_map(|(more, byte)| vec![byte; INLINE_KEY_BYTES_MAX - 2 + more]),
        1 => (0_usize..2, 0_u8..2).prop_map(|(less, byte)| vec![byte; KEY_BYTES_MAX - less]),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let number = prop_oneof![0_u64..100, 0..1_u64 << 44];
    prop_oneof![
        6 => (key(), number).prop_map(|(key, number)| Step::Insert(key, number)),
        3 => key().prop_map(Step::Remove),
        1 => (0_u16..3000, 0_u16..1500).prop_map(|(from, count)| Step::InsertMany(from, count)),
        1 => (0_u16..3000, 0_u16..1500).prop_map(|(from, count)| Step::RemoveMany(from, count)),
    ]
}

fn apply(index: &HashIndex, model: &mut HashMap<Vec<u8>, Place>, step: Step) {
    let many = |from: u16, count: u16| (from..from + count).map(|number| number.to_be_bytes().to_vec());
    match step {
        Step::Insert(key, number) => {
            assert_eq!(index.insert(&key, place(number)), model.insert(key, place(number)));
        }
        Step::Remove(key) => assert_eq!(index.remove(&key), model.remove(&key)),
        Step::InsertMany(from, count) => many(from, count).for_each(|key| {
            let number = u64::from(u16::from_be_bytes([key[0], key[1]]));
            assert_eq!(index.insert(&key, place(number)), model.insert(key, place(number)));
        }),
        Step::RemoveMany(from, count) => many(from, count).for_each(|key| {
            assert_eq!(index.remove(&key), model.remove(&key));
        }),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn an_index_is_a_map(steps in proptest::collection::vec(step(), 1..60), hasher in 0_usize..4) {
        let index = HashIndex::with_hasher(7, hashers()[hasher]);
        let mut model = HashMap::new();
        for step in steps {
            apply(&index, &mut model, step);
        }
        assert_equal(&index, &model);
    }

    #[test]
    fn an_index_that_is_filled_at_once_is_one_that_grew(
        before in proptest::collection::vec(step(), 1..20),
        after in proptest::collection::vec(step(), 1..20),
        hasher in 0_usize..4,
    ) {
        let grown = HashIndex::with_hasher(7, hashers()[hasher]);
        let mut model = HashMap::new();
        before.into_iter().for_each(|step| apply(&grown, &mut model, step));
        let index = filled(hashers()[hasher], &model);
        assert_equal(&index, &model);
        after.into_iter().for_each(|step| apply(&index, &mut model, step));
        assert_equal(&index, &model);
    }
}

/// Puts all keys into an empty index at once.
fn filled(hasher: Hasher, model: &HashMap<Vec<u8>, Place>) -> HashIndex {
    let index = HashIndex::with_hasher(7, hasher);
    let mut shards: BTreeMap<usize, Bulk> = BTreeMap::new();
    for (key, place) in model {
        let hash = index.hash(key);
        shards.entry(shard_of(hash)).or_default().push(hash, key, *place);
    }
    for keys in shards.values_mut() {
        assert!(keys.sort());
        index.fill(keys);
    }
    index
}

#[test]
fn a_key_that_is_there_twice_is_noticed_when_keys_are_sorted() {
    let mut keys = Bulk::default();
    [(3, b"b"), (1, b"a"), (3, b"a")].into_iter().for_each(|(hash, key)| keys.push(hash, key, place(hash)));
    assert!(keys.sort());
    assert_eq!(
        keys.iter().map(|(hash, key, _)| (hash, key)).collect::<Vec<_>>(),
        [(1, &b"a"[..]), (3, b"a"), (3, b"b")]
    );
    keys.push(1, b"a", place(9));
    assert!(!keys.sort());
}

#[test]
fn a_million_keys_take_sixteen_bytes_each_beside_their_bytes() {
    const KEYS: u64 = 1_000_000;
    let index = HashIndex::new(1, Spread::Even);
    let mut most = 0.0_f64;
    for number in 0..KEYS {
        // Numbers of files and offsets as in a store of 2 KiB values.
        let at = Place { file: FileId(number / 100_000 + 70), offset: number % 100_000 * 2100, ..place(number * 3) };
        index.insert(format!("user{number:012}").as_bytes(), Place { len: 2080, ..at });
        if number >= KEYS / 4 && number.is_multiple_of(50_000) {
            most = most.max(index.memory_bytes() as f64 / index.len() as f64);
        }
    }
    let each = index.memory_bytes() as f64 / KEYS as f64;
    assert!(each <= 32.0, "{each:.2} B for keys of 16 B");
    assert!(most <= 33.0, "{most:.2} B on the way");
    assert_counted(&index);
    let at_once = filled(xxh3_64_with_seed, &scanned(&index).into_iter().collect());
    assert_counted(&at_once);
    assert!(
        at_once.memory_bytes() <= index.memory_bytes(),
        "{} B for keys that are put at once",
        at_once.memory_bytes()
    );
    for number in 0..KEYS {
        assert!(index.remove(format!("user{number:012}").as_bytes()).is_some());
    }
    assert_eq!(index.len(), 0);
    assert_counted(&index);
    assert!(index.memory_bytes() < 64 << 10, "{} B for no key", index.memory_bytes());
}

#[test]
fn what_one_insert_moves_does_not_grow_with_the_number_of_keys() {
    const FEW: u64 = 10_000;
    const MOVED_MAX: usize = 48 << 10;
    // All in one shard, so that it has many segments.
    let index = HashIndex::new(1, Spread::OneShard);
    let (mut by_few, mut by_many) = (0, 0);
    for number in 0..100 * FEW {
        let key = number.to_be_bytes();
        let most = if number < FEW { &mut by_few } else { &mut by_many };
        // Splits are looked at, and some inserts that split nothing.
        match number.is_multiple_of(1009) || index.is_next_split(&key) {
            true => *most = index.bytes_moved_by_insert(&key, place(number)).max(*most),
            false => _ = index.insert(&key, place(number)),
        }
    }
    let segments: usize = index.count_shards().iter().map(|(.., segments)| segments).sum();
    assert!(segments > SHARDS + 30, "{segments} segments");
    assert!(by_few > 1000 && by_many > 1000, "{by_few} B, {by_many} B: buckets have split");
    assert!(by_few <= MOVED_MAX && by_many <= MOVED_MAX, "{by_few} B, then {by_many} B by one insert");
}

#[test]
fn updates_of_all_keys_do_not_make_the_index_larger() {
    let index = HashIndex::new(1, Spread::Even);
    let insert = |round: u64| {
        (0..100_000_u64).for_each(|number| {
            let at = Place { file: FileId(70 + round), offset: number * 2100, len: 2080, kind: PlaceKind::Value };
            index.insert(&number.to_be_bytes(), at);
        });
    };
    insert(0);
    let before = index.memory_bytes();
    (1..5).for_each(insert);
    assert_eq!(index.memory_bytes(), before);
}

#[test]
fn long_keys_lie_beside_their_bucket() {
    let index = HashIndex::new(1, Spread::Even);
    let mut model = HashMap::new();
    for number in 0..3000_u64 {
        let len = if number.is_multiple_of(10) { 1 + (number as usize * 20) % KEY_BYTES_MAX } else { 16 };
        let mut key = number.to_be_bytes().to_vec();
        key.resize(len.max(8), 0);
        index.insert(&key, place(number));
        model.insert(key, place(number));
    }
    assert_equal(&index, &model);
    let keys: usize = model.keys().map(Vec::len).sum();
    let each = (index.memory_bytes() - keys) / model.len();
    assert!(each < 32, "{each} B beside the keys");
}

#[test]
fn keys_that_share_all_bits_stay_in_one_bucket() {
    let index = HashIndex::with_hasher(1, |_, _| u64::MAX);
    let keys = (0..2000_u64).map(|number| (number.to_be_bytes().to_vec(), place(number)));
    let model: HashMap<_, _> = keys.collect();
    model.iter().for_each(|(key, place)| assert_eq!(index.insert(key, *place), None));
    assert_equal(&index, &model);
    assert!(index.count_shards().iter().all(|(.., segments)| *segments == 1));
}

#[test]
fn keys_that_share_many_bits_split_segments_and_not_the_whole_directory() {
    // Each few keys share a few bits more, so that the buckets get deeper and deeper.
    let index = HashIndex::with_hasher(1, |key, seed| {
        let shared = u32::from(key[0]) * 2;
        (u64::MAX << 1).wrapping_shl(63 - shared) | (xxh3_64_with_seed(key, seed) >> (shared + 2))
    });
    let mut model = HashMap::new();
    for first in 0..24_u8 {
        for number in 0..600_u64 {
            let key = [&[first][..], &number.to_be_bytes()].concat();
            index.insert(&key, place(number));
            model.insert(key, place(number));
        }
    }
    assert_equal(&index, &model);
    assert!(index.count_shards().iter().any(|(.., segments)| *segments > 2));
    let each = index.memory_bytes() / index.len();
    assert!(each < 60, "{each} B for a key");
}

#[test]
fn a_scan_visits_each_key_once_while_others_come_and_go() {
    for seed in 0..4 {
        simulate(seed, || {
            let (index, key) = (Arc::new(HashIndex::new(1, Spread::Even)), |number: u64| number.to_be_bytes());
            for number in 0..4000 {
                index.insert(&key(number), place(number));
            }
            let is_over = Arc::new(AtomicBool::new(false));
            let (written, stop) = (index.clone(), is_over.clone());
            // Buckets split and join while they are scanned.
            let writer = try_spawn("writer", move || {
                for round in 0.. {
                    for number in 4000..10_000 {
                        written.insert(&key(number), place(number + round));
                    }
                    (4000..10_000).for_each(|number| assert!(written.remove(&key(number)).is_some()));
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            for _ in 0..3 {
                let mut seen = BTreeMap::<Vec<u8>, u32>::new();
                scanned(&index).into_iter().for_each(|(key, _)| *seen.entry(key).or_default() += 1);
                assert!((0..4000).all(|number| seen.get(&key(number)[..]) == Some(&1)));
                assert_eq!(index.get(&key(7)), Some(place(7)));
            }
            is_over.store(true, Ordering::Relaxed);
            writer.unwrap().join().unwrap();
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    }
}
