//! A process is repeatedly killed with SIGKILL at a random moment while it writes to the same directory: everything it
//! acknowledged must be present, its batches whole, and nothing it did not write may appear.
//!
//! The test starts its own binary again as the loader, selected by an environment variable. `CLEAVE_KILL_ROUNDS` sets
//! the number of rounds (10 by default).

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cleave_sim::material::Value;
use cleave_sim::rng::Rng;
use cleavedb::{Db, Durability, LogBackend, Options, Result, WriteBatch};

const LOADER: &str = "CLEAVE_KILL_LOADER";
/// Maximum number of writers in a round; each has its own keys.
const WRITERS: u64 = 4;
/// Keys that every batch of a writer overwrites.
const PARTS: u64 = 12;
/// Number of a writer's last batches that each keep a key of their own.
const TRAIL: u64 = 500;
/// A loader that is not killed ends after this time.
const LOADER_SECONDS_MAX: u64 = 60;

/// The instructions for a loader.
#[derive(Debug, Clone)]
struct Order {
    directory: String,
    backend: LogBackend,
    /// The number of the first batch of each writer; its length is the number of writers.
    first: Vec<u64>,
}

impl Order {
    fn to_text(&self) -> String {
        let first: Vec<String> = self.first.iter().map(u64::to_string).collect();
        format!("{}\n{}\n{}", self.directory, self.backend == LogBackend::Ring, first.join(","))
    }

    fn from_text(text: &str) -> Order {
        let mut lines = text.lines();
        let mut line = || lines.next().unwrap_or_default();
        Order {
            directory: line().to_owned(),
            backend: if line() == "true" { LogBackend::Ring } else { LogBackend::Plain },
            first: line().split(',').map(|number| number.parse().unwrap()).collect(),
        }
    }
}

fn open(directory: &str, backend: LogBackend) -> Result<Db> {
    Options::new().memory_budget(16 << 20).log_backend(backend).open(Path::new(directory))
}

/// The value that batch `number` of `writer` puts into `part`. Most are small, some large.
fn value(writer: u64, number: u64, part: u64) -> Vec<u8> {
    let mut rng = Rng::of(writer << 48 | number << 8 | part, 0x6b69_6c6c);
    let mut value = number.to_le_bytes().to_vec();
    let mut rest = Value::draw(&mut rng);
    rest.len %= 40_000;
    value.extend(rest.bytes());
    value
}

fn part_key(writer: u64, part: u64) -> String {
    format!("writer {writer} part {part:02}")
}

fn trail_key(writer: u64, number: u64) -> String {
    format!("trail {writer} {number:012}")
}

fn write_one(db: &Db, writer: u64, number: u64) -> Result<()> {
    let (default, other) = (db.default_keyspace(), db.open_keyspace("other")?);
    let mut batch = WriteBatch::new();
    for part in 0..PARTS {
        let keyspace = if part % 3 == 0 { &other } else { &default };
        batch.put(keyspace, part_key(writer, part), value(writer, number, part));
    }
    batch.put(&default, trail_key(writer, number), "");
    if number >= TRAIL {
        batch.delete(&default, trail_key(writer, number - TRAIL));
    }
    let durability = if number.is_multiple_of(50) { Durability::Sync } else { Durability::Buffered };
    db.write_with(batch, durability)
}

/// Not a test by itself: this is the process that is killed.
#[test]
fn loader() {
    let Ok(order) = std::env::var(LOADER) else { return };
    let order = Order::from_text(&order);
    let db = open(&order.directory, order.backend).unwrap();
    db.keyspace("other").unwrap();
    let began = Instant::now();
    let written = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for (writer, &first) in order.first.iter().enumerate() {
            let (db, written) = (&db, &written);
            scope.spawn(move || {
                for number in first.. {
                    write_one(db, writer as u64, number).unwrap();
                    let line = format!("\nack {writer} {number}\n");
                    std::io::stdout().lock().write_all(line.as_bytes()).unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    if began.elapsed() > Duration::from_secs(LOADER_SECONDS_MAX) {
                        return;
                    }
                }
            });
        }
    });
}

/// Runs a loader for a while, kills it, and returns the last batch that each writer acknowledged.
fn load_and_kill(order: &Order, after: Duration) -> BTreeMap<u64, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "loader", "--nocapture", "--test-threads=1"])
        .env(LOADER, order.to_text())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = BTreeMap::new();
    let mut note = |line: String| {
        // The kill may cut a line in half; each line ends with a line break, so a line that was cut is ignored.
        if let Some((writer, number)) = line.strip_prefix("ack ").and_then(|rest| rest.split_once(' ')) {
            acknowledged.insert(writer.parse().unwrap(), number.parse().unwrap());
            return true;
        }
        false
    };
    // Counts from the first acknowledgement, so that something is written even after a slow start.
    let first = lines.by_ref().map_while(std::result::Result::ok).any(&mut note);
    assert!(first, "the loader ended before it wrote a batch: {:?}", child.wait());
    let reader = std::thread::spawn(move || lines.map_while(std::result::Result::ok).collect::<Vec<_>>());
    std::thread::sleep(after);
    child.kill().unwrap();
    child.wait().unwrap();
    let mut rest = reader.join().unwrap();
    // A last line that was cut would read like a smaller number.
    if rest.last().is_some_and(|line| line.starts_with("ack")) {
        rest.pop();
    }
    rest.into_iter().for_each(|line| _ = note(line));
    acknowledged
}

/// Checks one writer's keys; returns its last batch, if it has written one.
fn check_writer(db: &Db, writer: u64, acknowledged: Option<u64>, before: Option<u64>) -> Option<u64> {
    let other = db.keyspace("other").unwrap();
    let at = |part: u64| {
        let key = part_key(writer, part);
        let found = if part.is_multiple_of(3) { other.get(&key) } else { db.get(&key) };
        found.unwrap().map(Vec::from)
    };
    let number_of = |value: Option<Vec<u8>>| value.map(|value| u64::from_le_bytes(value[..8].try_into().unwrap()));
    let last = number_of(at(0));
    let least = acknowledged.max(before);
    assert!(last >= least, "writer {writer}: batch {least:?} was acknowledged, but the last one found is {last:?}");
    // One batch may have been written but not acknowledged, or its acknowledgement was cut off, in each of two rounds.
    let most = least.map_or(1, |least| least + 2);
    assert!(last <= Some(most), "writer {writer}: {least:?} was acknowledged last, but {last:?} was found");
    let last_number = last?;
    for part in 0..PARTS {
        let found = at(part);
        assert!(
            found == Some(value(writer, last_number, part)),
            "writer {writer}: part {part} of batch {last_number} is of batch {:?}, or its value is wrong",
            number_of(found)
        );
    }
    let trail: Vec<_> = db.prefix(format!("trail {writer} ")).unwrap().map(|item| item.unwrap().0).collect();
    let expected: Vec<_> =
        ((last_number + 1).saturating_sub(TRAIL)..=last_number).map(|it| trail_key(writer, it)).collect();
    assert!(
        trail.iter().map(|key| &**key).eq(expected.iter().map(|key| key.as_bytes())),
        "writer {writer}: the trail has {} keys, from {:?} to {:?}, but the last batch is {last_number}",
        trail.len(),
        trail.first(),
        trail.last()
    );
    last
}

#[test]
fn a_process_killed_at_random_keeps_every_acknowledged_write() {
    if std::env::var(LOADER).is_ok() {
        return;
    }
    let rounds = std::env::var("CLEAVE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10_u64);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db").display().to_string();
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut last = vec![None; WRITERS as usize];
    for round in 0..rounds {
        let backend = if round % 2 == 0 { LogBackend::Ring } else { LogBackend::Plain };
        let writers = if round % 3 == 0 { 1 } else { rng.between(2, WRITERS + 1) };
        let first = last[..writers as usize].iter().map(|last: &Option<u64>| last.map_or(0, |last| last + 1)).collect();
        let order = Order { directory: path.clone(), backend, first };
        let acknowledged = load_and_kill(&order, Duration::from_millis(rng.between(5, 500)));
        let db = open(&path, if rng.one_in(2) { backend } else { LogBackend::Auto }).unwrap();
        for writer in 0..WRITERS {
            let before = last[writer as usize];
            last[writer as usize] = check_writer(&db, writer, acknowledged.get(&writer).copied(), before);
        }
        match rng.below(3) {
            0 => db.close().unwrap(),
            1 => drop(db),
            _ => db.flush().unwrap(),
        }
    }
    assert!(last.iter().any(|last| *last > Some(10)), "the loaders wrote too little: {last:?}");
}
