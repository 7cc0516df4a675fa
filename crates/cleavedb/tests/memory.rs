//! The memory budget: a process that loads, reads, scans and reopens in many shapes never uses more than its budget and
//! 64 MiB, by the kernel's count (`VmHWM`). If no value is larger than a block, it stays much closer.
//!
//! Each test starts its own binary again as the loader, selected by an environment variable. `CLEAVE_MEMORY_TIMES`
//! multiplies the length of the loads (1 by default).

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use cleavedb::testing::Random;
use cleavedb::{Db, Error, KeyspaceOptions, Options, WriteBatch, WriteOptions};

const LOADER: &str = "CLEAVE_MEMORY_LOADER";
const KEYS_LOADER: &str = "CLEAVE_MEMORY_KEYS_LOADER";
const MIB: usize = 1 << 20;
/// Maximum memory of a process beyond the budget.
const SLACK: usize = 64 * MIB;
/// The same if no value is large: the program itself, and what the allocator loses.
const SLACK_OF_SMALL_VALUES: usize = 14 * MIB;
/// The same with hash indexes, whose buckets split while they are filled.
const SLACK_OF_INDEXES: usize = 18 * MIB;

/// The workload of a loader.
#[derive(Clone, Copy)]
struct Shape {
    name: &'static str,
    value_bytes: usize,
    records: u64,
    keyspaces: u64,
    block_size: usize,
    /// Flush after this many records, so that tables are small.
    flush_every: u64,
    /// Number of distinct keys.
    keys: u64,
    /// Values are separated from their keys.
    separated: bool,
    /// First a hash keyspace takes keys until its index is full.
    hashed: bool,
}

const SMALL: Shape = Shape {
    name: "small",
    value_bytes: 100,
    records: 40_000,
    keyspaces: 1,
    block_size: 4096,
    flush_every: u64::MAX,
    keys: 40_000,
    separated: false,
    hashed: false,
};

const SHAPES: [Shape; 11] = [
    SMALL,
    // Much more than any cache holds.
    Shape { name: "cached", value_bytes: 600, ..SMALL },
    Shape { name: "overwrites", keys: 1000, ..SMALL },
    Shape { name: "keyspaces", keyspaces: 2000, records: 30_000, ..SMALL },
    Shape { name: "tables", value_bytes: 300, records: 10_000, flush_every: 50, ..SMALL },
    Shape { name: "values", value_bytes: MIB, records: 80, ..SMALL },
    Shape { name: "separated", value_bytes: 1000, separated: true, ..SMALL },
    Shape { name: "large-separated", value_bytes: MIB, records: 80, separated: true, ..SMALL },
    Shape { name: "blocks", value_bytes: 1000, records: 30_000, block_size: MIB, ..SMALL },
    Shape { name: "hashed", hashed: true, ..SMALL },
    Shape { name: "hashed-separated", value_bytes: 1000, separated: true, hashed: true, ..SMALL },
];

fn open(path: &str, budget: usize, shape: &Shape) -> Db {
    let separation = shape.separated.then_some(192);
    let options = Options::new().memory_budget(budget).block_size(shape.block_size).separation(separation);
    options.open(Path::new(path)).unwrap()
}

/// Puts new keys into a hash keyspace until its index has no memory for more.
fn fill_index(db: &Db) {
    let hashed = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
    for first in (0_u64..).step_by(100) {
        let mut batch = WriteBatch::new();
        for number in first..first + 100 {
            batch.put(&hashed, format!("{:016x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15)), b"value");
        }
        match db.write(batch) {
            Ok(()) => {}
            Err(Error::IndexFull { .. }) => return,
            Err(error) => panic!("{error}"),
        }
    }
}

fn load(db: &Db, shape: &Shape) {
    if shape.hashed {
        fill_index(db);
    }
    let mut rng = Random::new(7);
    let keyspaces: Vec<_> =
        (0..shape.keyspaces).map(|number| db.keyspace(&format!("keyspace {number:06}")).unwrap()).collect();
    let mut value = vec![0; shape.value_bytes];
    for record in 0..shape.records {
        let key = rng.below(shape.keys);
        for part in value.chunks_mut(8).step_by(2) {
            let bytes = rng.draw().to_le_bytes();
            part.copy_from_slice(&bytes[..part.len()]);
        }
        let mut batch = WriteBatch::new();
        batch.put(&keyspaces[(key % shape.keyspaces) as usize], format!("key {key:020}"), &value);
        db.write(batch).unwrap();
        if record % shape.flush_every == shape.flush_every - 1 {
            db.flush().unwrap();
        }
    }
}

/// Returns the most memory that its scans held.
fn read(db: &Db, shape: &Shape) -> usize {
    let mut pinned = 0;
    let mut rng = Random::new(8);
    let reads = shape.records.min(20_000);
    for keyspace in 0..shape.keyspaces.min(20) {
        let keyspace = db.keyspace(&format!("keyspace {keyspace:06}")).unwrap();
        for _ in 0..reads / 20 {
            keyspace.get(format!("key {:020}", rng.below(shape.keys))).unwrap();
        }
        let mut scanned = 0;
        for (number, item) in keyspace.iter().unwrap().take(50_000).enumerate() {
            scanned += item.unwrap().1.len();
            if shape.value_bytes >= MIB || shape.separated && number % 100 == 0 {
                pinned = pinned.max(db.stats().memory.pinned_bytes);
            }
        }
        assert!(scanned > 0);
    }
    pinned
}

fn memory_peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Not a test by itself: this is the process that is measured.
#[test]
fn loader() {
    let Ok(order) = std::env::var(LOADER) else { return };
    let words: Vec<&str> = order.splitn(4, ' ').collect();
    let (budget, turn, path) = (words[0].parse().unwrap(), words[2], words[3]);
    let times = std::env::var("CLEAVE_MEMORY_TIMES").map_or(1, |times| times.parse().unwrap());
    let mut shape = *SHAPES.iter().find(|shape| shape.name == words[1]).unwrap();
    shape.records *= times;
    shape.keys *= if shape.keys < SMALL.keys { 1 } else { times };
    let shape = &shape;
    let db = open(path, budget, shape);
    if turn == "load" {
        load(&db, shape);
    }
    let pinned = read(&db, shape);
    let stats = db.stats();
    // A compaction holds one block of each table, and a block is at least as large as the value in it.
    let blocks_larger = 24 * shape.value_bytes.saturating_sub(shape.block_size);
    assert!(stats.memory.total() <= budget + blocks_larger, "{:?}", stats.memory);
    // Memory held by callers does not count.
    // A scan prefetches at most one mebibyte of separated values, or one value.
    assert!(!shape.separated || pinned <= 4 * MIB, "{pinned} B are pinned");
    println!("\npeak {} without {pinned} of {:?}", memory_peak().saturating_sub(pinned), stats.memory);
    match turn {
        // The state after a crash, with the whole front in logs.
        "load" => std::process::exit(0),
        _ => db.close().unwrap(),
    }
}

fn run(path: &Path, budget: usize, shape: &Shape, turn: &str) {
    let began = std::time::Instant::now();
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loader", "--nocapture", "--test-threads=1"])
        .env(LOADER, format!("{budget} {} {turn} {}", shape.name, path.display()))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let peak_line = text.lines().find_map(|line| line.strip_prefix("peak ")).unwrap();
    let peak: usize = peak_line.split(' ').next().unwrap().parse().unwrap();
    let seconds = began.elapsed().as_secs_f64();
    println!("{turn} {}, {} MiB, {seconds:.1} s: peak {} MiB, {peak_line}", shape.name, budget / MIB, peak / MIB);
    let slack = match shape {
        Shape { hashed: true, .. } => SLACK_OF_INDEXES,
        Shape { value_bytes: ..MIB, .. } => SLACK_OF_SMALL_VALUES,
        _ => SLACK,
    };
    assert!(peak <= budget + slack, "{turn} {}: {} MiB with {} MiB", shape.name, peak / MIB, budget / MIB);
}

fn check(budget: usize, names: &[&str]) {
    if std::env::var(LOADER).is_ok() {
        return;
    }
    for shape in SHAPES.iter().filter(|shape| names.contains(&shape.name)) {
        let directory = tempfile::tempdir().unwrap();
        run(&directory.path().join("db"), budget, shape, "load");
        run(&directory.path().join("db"), budget, shape, "again");
    }
}

#[test]
fn the_smallest_budget_is_kept_in_every_shape() {
    check(16 * MIB, &["small", "cached", "overwrites", "tables", "separated"]);
}

#[test]
fn the_smallest_budget_is_kept_with_a_full_hash_index() {
    check(16 * MIB, &["hashed", "hashed-separated"]);
}

#[test]
fn the_smallest_budget_is_kept_with_many_keyspaces_and_large_values() {
    check(16 * MIB, &["keyspaces", "values", "large-separated"]);
}

#[test]
fn a_larger_budget_is_kept_in_every_shape() {
    check(64 * MIB, &["small", "values", "blocks", "separated", "large-separated", "hashed-separated"]);
}

/// A front at its usual limit would exceed the budget together with a full index and the memory of jobs.
#[test]
fn a_full_hash_index_leaves_the_front_less_room() {
    if std::env::var(LOADER).is_ok() {
        return;
    }
    let front_when_writers_stop = |is_full: bool| {
        let directory = tempfile::tempdir().unwrap();
        let db = Options::new().memory_budget(16 * MIB).open(directory.path().join("db")).unwrap();
        if is_full {
            fill_index(&db);
        }
        let (keyspace, _pause) = (db.default_keyspace(), db.pause_background().unwrap());
        let at_once = WriteOptions::new().stall_max(Duration::from_millis(50));
        let refused =
            (0_u64..).find_map(|number| keyspace.put_with(format!("{number:020}"), b"value", at_once).err()).unwrap();
        assert!(matches!(refused, Error::WouldStall), "{refused}");
        db.stats().memory.front_bytes
    };
    let [alone, beside] = [false, true].map(front_when_writers_stop);
    println!("{alone} B without an index, {beside} B beside a full one");
    assert!(beside > 0 && beside <= alone / 2, "{alone} B without an index, {beside} B beside a full one");
}

const KEYS: usize = 1_000_000;
/// For each key of 16 B in a hash keyspace, whatever else the store takes for it.
const KEY_BYTES_MAX: f64 = 16.0 + 16.0;

/// Resident memory of the process that is no part of a file.
fn resident_bytes() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Resident memory once jobs have ended and the memory that they freed has been returned, which the store does after a second.
fn resident_bytes_idle(db: &Db) -> usize {
    db.wait_for_background().unwrap();
    let after_a_while = |_| {
        std::thread::sleep(std::time::Duration::from_millis(500));
        resident_bytes()
    };
    (0..5).map(after_a_while).min().unwrap()
}

/// Not a test by itself: the process whose resident memory is measured.
#[test]
fn loader_of_keys() {
    let Ok(order) = std::env::var(KEYS_LOADER) else { return };
    let (turn, path) = order.split_once(' ').unwrap();
    let db = Options::new().memory_budget(256 * MIB).open(Path::new(path)).unwrap();
    let is_there = db.keyspaces().iter().any(|name| name == "hashed");
    let keyspace = match is_there {
        true => db.open_keyspace("hashed"),
        false => db.create_keyspace("hashed", KeyspaceOptions::hash()),
    };
    let keyspace = keyspace.unwrap();
    let empty = resident_bytes_idle(&db);
    let mut rng = Random::new(5);
    let value: Vec<u8> = (0..16).flat_map(|_| rng.draw().to_le_bytes()).collect();
    for number in (0..if turn == "load" { KEYS } else { 0 }).step_by(500) {
        let mut batch = WriteBatch::new();
        for number in number..number + 500 {
            // No two are alike, and they come in no order.
            let key = (number as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            batch.put(&keyspace, format!("{key:016x}"), &value);
        }
        db.write(batch).unwrap();
    }
    let loaded = resident_bytes_idle(&db);
    println!("\nresident {empty} {loaded} with {:?} and {:?}", db.stats().hash, db.stats().memory);
    db.close().unwrap();
}

#[test]
fn a_million_keys_of_a_hash_keyspace_take_their_bytes_and_sixteen_each_of_resident_memory() {
    if std::env::var(KEYS_LOADER).is_ok() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let measure = |turn: &str| -> (usize, usize) {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "loader_of_keys", "--nocapture", "--test-threads=1"])
            .env(KEYS_LOADER, format!("{turn} {}", directory.path().join("db").display()))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        println!("{turn}: {text}");
        let line = text.lines().find_map(|line| line.strip_prefix("resident ")).unwrap();
        let mut figures = line.split(' ').map_while(|figure| figure.parse().ok());
        (figures.next().unwrap(), figures.next().unwrap())
    };
    let (empty, loaded) = measure("load");
    let (_, opened) = measure("open");
    for (resident, when) in [(loaded, "after the load"), (opened, "after an open")] {
        let each = resident.saturating_sub(empty) as f64 / KEYS as f64;
        println!("{when}: {each:.2} B a key");
        assert!(each <= KEY_BYTES_MAX, "{each:.2} B a key {when}");
    }
}
