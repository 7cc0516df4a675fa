//! The space-amplification limit of separated values: whatever was written and deleted in whatever order, once
//! background work is idle the value files take no more than the tuning allows for the live bytes. No test flushes or
//! compacts explicitly.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, Random, SimConfig, SimDisk, Tuning};
use cleavedb::{Db, Keyspace, KeyspaceOptions, LogBackend, Options, Stats, ValuePlacement};
use proptest::prelude::*;

use crate::support::{BACKENDS, in_world, open_with, value};

const KEYS: usize = 300;
const SEPARATION: usize = 192;

fn key(number: usize) -> String {
    format!("{number:05}")
}

#[derive(Debug, Clone)]
enum Phase {
    /// Puts with random keys: the smallest of this many random numbers; one is uniform, more are skewed.
    Skewed {
        puts: usize,
        draws: usize,
        sizes: Sizes,
    },
    /// Puts of keys in sequence.
    Sequential {
        puts: usize,
        sizes: Sizes,
    },
    /// Deletes of every n-th key.
    Delete {
        step: usize,
    },
    DeleteRange {
        from: usize,
        to: usize,
    },
    /// Drops the second keyspace and creates it anew.
    Drop,
    DeleteEverything,
}

#[derive(Debug, Clone, Copy)]
enum Sizes {
    Large,
    /// Some stored with their keys, and a few very large ones.
    Mixed,
}

impl Sizes {
    fn draw(self, random: &mut Random) -> usize {
        match (self, random.below(20)) {
            (Sizes::Mixed, 0) => 12_000,
            (Sizes::Mixed, 1..10) => random.below(SEPARATION as u64) as usize,
            _ => SEPARATION + random.below(800) as usize,
        }
    }
}

fn phase() -> impl Strategy<Value = Phase> {
    let sizes = || prop_oneof![Just(Sizes::Large), Just(Sizes::Mixed)];
    prop_oneof![
        4 => (100..900usize, 1..6usize, sizes()).prop_map(|(puts, draws, sizes)| Phase::Skewed { puts, draws, sizes }),
        2 => (100..900usize, sizes()).prop_map(|(puts, sizes)| Phase::Sequential { puts, sizes }),
        2 => (1..5usize).prop_map(|step| Phase::Delete { step }),
        1 => (0..KEYS, 0..KEYS).prop_map(|(from, to)| Phase::DeleteRange { from: from.min(to), to: from.max(to) + 1 }),
        1 => Just(Phase::Drop),
        1 => Just(Phase::DeleteEverything),
    ]
}

/// Two keyspaces, and the length of the record of each key with a separated value.
struct Model {
    db: Db,
    spaces: [Keyspace; 2],
    live: [BTreeMap<usize, u64>; 2],
    random: Random,
    next: usize,
}

impl Model {
    fn put(&mut self, number: usize, sizes: Sizes) {
        let len = sizes.draw(&mut self.random);
        let space = number % 2;
        self.spaces[space].put(key(number), value(&key(number), len)).unwrap();
        let record = 23 + key(number).len() + len;
        self.live[space].insert(number, if len >= SEPARATION { record as u64 } else { 0 });
    }

    fn run(&mut self, phase: &Phase) {
        match *phase {
            Phase::Skewed { puts, draws, sizes } => {
                for _ in 0..puts {
                    let number = (0..draws).map(|_| self.random.below(KEYS as u64)).min().unwrap() as usize;
                    self.put(number, sizes);
                }
            }
            Phase::Sequential { puts, sizes } => {
                for _ in 0..puts {
                    self.next = (self.next + 1) % KEYS;
                    self.put(self.next, sizes);
                }
            }
            Phase::Delete { step } => {
                for number in (0..KEYS).step_by(step) {
                    self.spaces[number % 2].delete(key(number)).unwrap();
                    self.live[number % 2].remove(&number);
                }
            }
            Phase::DeleteRange { from, to } => {
                for (space, live) in self.spaces.iter().zip(&mut self.live) {
                    space.delete_range(key(from).into_bytes()..key(to).into_bytes()).unwrap();
                    live.retain(|number, _| !(from..to).contains(number));
                }
            }
            Phase::Drop => {
                self.db.drop_keyspace("second").unwrap();
                self.spaces[1] = self.db.create_keyspace("second", KeyspaceOptions::new()).unwrap();
                self.live[1].clear();
            }
            Phase::DeleteEverything => {
                for number in 0..KEYS {
                    self.spaces[number % 2].delete(key(number)).unwrap();
                }
                self.live.iter_mut().for_each(BTreeMap::clear);
            }
        }
    }

    /// Waits for background work, and returns by how many bytes value files exceed their limit.
    fn excess(&self) -> (u64, Stats) {
        self.db.wait_for_background().unwrap();
        let stats = self.db.stats();
        let live: u64 = self.live.iter().flat_map(|live| live.values()).sum();
        let tuning = tuning();
        // Logs and reserve take the other half.
        let allowed = live + (live * tuning.garbage_percent / 100 + tuning.garbage_bytes) / 2;
        // The front is not flushed if it hides less than one flush would write.
        (stats.value_bytes.saturating_sub(allowed + 2 * tuning.flush_bytes), stats)
    }
}

fn tuning() -> Tuning {
    Tuning::tiny()
}

/// Runs the phases, with a snapshot held if requested; without one, the space is checked after each phase.
fn run(phases: &[Phase], seed: u64, backend: LogBackend, holds: bool, range: bool) -> Result<(), String> {
    let disk = SimDisk::new();
    let mut tuning = tuning();
    tuning.placement = if range { ValuePlacement::Range } else { ValuePlacement::Hash };
    let options = Options::new().separation(Some(SEPARATION as u32)).log_backend(backend);
    let db = open_with(&disk, options, tuning).unwrap();
    let second = db.create_keyspace("second", KeyspaceOptions::new()).unwrap();
    let spaces = [db.default_keyspace(), second];
    let mut model = Model { db, spaces, live: Default::default(), random: Random::new(seed), next: 0 };
    let mut snapshots = Vec::new();
    for (number, phase) in phases.iter().enumerate() {
        if holds {
            snapshots.push(model.db.snapshot());
        }
        model.run(phase);
        match (model.excess(), holds) {
            ((0, _), _) | (_, true) => {}
            ((excess, stats), _) => return Err(format!("{excess} B above the limit after phase {number}: {stats:?}")),
        }
    }
    drop(snapshots);
    match model.excess() {
        (0, _) => {}
        (excess, stats) => return Err(format!("{excess} B above the limit at the end: {stats:?}")),
    }
    for (space, live) in model.spaces.iter().zip(&model.live) {
        let found: Vec<_> = space.iter().unwrap().map(|item| item.unwrap().0.to_vec()).collect();
        let expected: Vec<_> = live.keys().map(|&number| key(number).into_bytes()).collect();
        if found != expected {
            return Err("keys were lost or reappeared".to_owned());
        }
    }
    model.db.close().unwrap();
    let report = testing::check(Arc::new(disk), Path::new("/db"), &Options::new()).unwrap();
    if report.is_sound() { Ok(()) } else { Err(format!("{:?}", report.problems)) }
}

fn open(disk: &SimDisk) -> Db {
    let mut tuning = tuning();
    // There is no other reason to compact, or to wait.
    (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 200);
    (tuning.logs_bytes_max, tuning.replay_bytes_max) = (8 << 20, 8 << 20);
    open_with(disk, Options::new().separation(Some(SEPARATION as u32)), tuning).unwrap()
}

/// Runs a test with a database of 200 values of 1000 B.
fn in_filled(seed: u64, test: impl FnOnce(Db) + Send + 'static) {
    in_world(seed, || {
        let db = open(&SimDisk::new());
        put_each(&db, 1);
        test(db);
    });
}

/// Writes every n-th of 200 values of 1000 B.
fn put_each(db: &Db, step: usize) {
    (0..200).step_by(step).for_each(|number| db.put(key(number), value(&key(number), 1000)).unwrap());
    db.flush().unwrap();
}

#[test]
fn writers_are_slowed_down_and_not_stalled_at_the_space_limit() {
    in_filled(1, |db| {
        let (mut paces, mut most) = (Vec::new(), 0);
        for _ in 0..30 {
            put_each(&db, 1);
            let stats = db.stats();
            paces.extend(stats.pace_bytes_per_second);
            most = most.max(stats.value_bytes);
        }
        assert!(!paces.is_empty() && paces.iter().all(|&pace| pace > 0), "{paces:?}");
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(stats.value_gcs > 0 && stats.stalls == 0 && stats.pace_bytes_per_second.is_none(), "{stats:?}");
        assert!(most < 700_000, "{most} B");
    });
}

#[test]
fn what_newer_versions_hide_is_estimated_before_compactions_find_it() {
    in_filled(5, |db| {
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let live = db.stats().value_bytes_live;
        let mut most = 0;
        for _ in 0..10 {
            put_each(&db, 2);
            most = most.max(db.stats().value_bytes_hidden);
        }
        // Versions of more than one round may wait for a compaction.
        assert!((live / 3..2 * live).contains(&most), "{most} B are hidden of {live} B, half of which were replaced");
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!(db.stats().value_bytes_hidden, 0);
    });
}

#[test]
fn the_space_of_a_deleted_range_and_of_a_dropped_keyspace_is_free_within_five_seconds() {
    in_filled(7, |db| {
        let other = db.create_keyspace("other", KeyspaceOptions::new()).unwrap();
        (0..200).for_each(|number| other.put(key(number), value(&key(number), 1000)).unwrap());
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let free_within_five_seconds = |bytes: u64| {
            testing::sleep(Duration::from_secs(5));
            let stats = db.stats();
            assert!(stats.value_bytes < bytes, "{stats:?}");
        };
        db.delete_range(key(20).into_bytes()..).unwrap();
        free_within_five_seconds(330_000);
        db.drop_keyspace("other").unwrap();
        free_within_five_seconds(100_000);
        assert_eq!(db.iter().unwrap().count(), 20);
    });
}

#[test]
fn new_keys_hide_nothing() {
    in_filled(6, |db| {
        for round in 0..20 {
            (0..100).for_each(|number| db.put(format!("{round} {number}"), value("new", 1000)).unwrap());
            db.flush().unwrap();
            // Half of what is flushed first is taken to be there already, until flushes have looked.
            let hidden = db.stats().value_bytes_hidden;
            assert!(round < 3 || hidden == 0, "round {round}: {hidden} B");
        }
    });
}

#[test]
fn writers_continue_while_snapshots_keep_everything_alive() {
    in_world(2, || {
        let disk = SimDisk::new();
        let db = open(&disk);
        let mut snapshots = Vec::new();
        for _ in 0..5 {
            put_each(&db, 1);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            snapshots.push(db.snapshot());
        }
        let stats = db.stats();
        assert!(stats.value_bytes > 800_000 && stats.pace_bytes_per_second.is_none(), "{stats:?}");
        drop(snapshots);
        db.wait_for_background().unwrap();
        assert!(db.stats().value_bytes < 400_000, "{:?}", db.stats());
    });
}

#[test]
fn writers_continue_if_value_files_with_garbage_cannot_be_read() {
    (0..12).for_each(|seed| {
        in_world(seed, || {
            let disk = SimDisk::new();
            let db = open(&disk);
            put_each(&db, 1);
            let is_log = |path: &Path| path.extension().is_some_and(|it| it == "log");
            for (path, len) in disk.files().into_iter().filter(|(path, _)| is_log(path)) {
                (1..len / 4096).for_each(|page| disk.flip_bit(&path, page * 4096 + 2048, 1));
            }
            put_each(&db, 2);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            let stats = db.stats();
            let garbage = stats.value_bytes - stats.value_bytes_live;
            assert!(garbage > stats.value_bytes_live * 3 / 10 + (32 << 10) && stats.value_gcs == 0, "{stats:?}");
            put_each(&db, 100);
            assert_eq!(db.stats().pace_bytes_per_second, None);
        })
    });
}

#[test]
fn the_largest_limit_is_no_limit() {
    in_world(4, || {
        let mut tuning = tuning();
        (tuning.garbage_percent, tuning.garbage_bytes, tuning.group_bytes) = (1000, u64::MAX, u64::MAX);
        let db = open_with(&SimDisk::new(), Options::new().separation(Some(SEPARATION as u32)), tuning).unwrap();
        // Half of the records in the first logs are dead then.
        (1..3).for_each(|step| put_each(&db, step));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        let stats = db.stats();
        assert!(stats.value_bytes > stats.value_bytes_live + 80_000 && stats.value_gcs == 0, "{stats:?}");
        assert_eq!(stats.pace_bytes_per_second, None);
        db.close().unwrap();
    });
}

#[test]
fn the_front_is_not_sealed_again_while_it_is_flushed() {
    for seed in 0..4 {
        // Threads that never sleep would let no time pass, and end the run here.
        let config = SimConfig { max_steps: 1_000_000, ..SimConfig::new(seed) };
        let report = testing::simulate_with(config, || {
            let disk = SimDisk::new();
            let db = open(&disk);
            put_each(&db, 1);
            // Flushes take their time.
            disk.on_sync(|_, point| {
                if point.phase == testing::Phase::Before
                    && point.path.extension().is_some_and(|extension| extension == "table")
                {
                    testing::sleep(Duration::from_millis(50));
                }
            });
            for round in 0..10 {
                for number in (0..200).map(|number| (number * 37 + round) % 200) {
                    db.put(key(number), value(&key(number), 1000)).unwrap();
                    testing::sleep(Duration::from_micros(200));
                }
            }
            let Stats { flushes, seals, value_gcs, .. } = db.stats();
            assert!(flushes > 3 && value_gcs > 0, "{flushes} flushes, {value_gcs} collections");
            assert!(seals < 200, "{seals} seals of an index table, {flushes} flushes");
        });
        report.result.unwrap();
    }
}

/// Compactions note what died while collections copy it, in whatever order the two commit.
#[test]
fn space_of_values_that_died_while_they_were_copied_is_reclaimed() {
    let phases = [
        Phase::Skewed { puts: 110, draws: 2, sizes: Sizes::Mixed },
        Phase::Skewed { puts: 135, draws: 3, sizes: Sizes::Large },
        Phase::Delete { step: 2 },
        Phase::Sequential { puts: 795, sizes: Sizes::Large },
        Phase::DeleteEverything,
    ];
    for seed in 0..24 {
        let phases = phases.to_vec();
        in_world(seed, move || run(&phases, seed, BACKENDS[1], false, true)).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn space_is_reclaimed_whatever_was_written(
        phases in prop::collection::vec(phase(), 1..8),
        seed in 0..1000u64,
        backend in 0..2usize,
        holds in any::<bool>(),
        range in any::<bool>(),
    ) {
        let result = in_world(seed, move || run(&phases, seed, BACKENDS[backend], holds, range));
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

/// Live data of 4 MB is overwritten ten times on a file system with room for twice that and 32 MiB.
#[test]
fn writers_are_never_refused_where_there_is_room_for_twice_what_is_live_and_32_mib() {
    in_world(31, || {
        let disk = SimDisk::new();
        const RECORDS: usize = 4000;
        disk.set_capacity(Some(2 * RECORDS as u64 * 1008 + (32 << 20)));
        let db = open_with(&disk, Options::new(), Tuning::for_budget(16 << 20)).unwrap();
        let mut random = Random::new(5);
        for write in 0..11 * RECORDS {
            let number = if write < RECORDS { write } else { random.below(RECORDS as u64) as usize };
            let result = db.put(key(number), value(&key(number), 1000));
            assert!(result.is_ok(), "write {write}: {result:?}, {} B on disk: {:?}", disk.used(), db.stats());
        }
        assert_eq!(db.iter().unwrap().count(), RECORDS);
        db.close().unwrap();
    });
}
