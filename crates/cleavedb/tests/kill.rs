//! A process is repeatedly killed with SIGKILL at a random moment while it writes to the same directory: everything it
//! acknowledged must be present, its batches whole, and nothing it did not write may appear.
//!
//! In every second round writers go around background work onto an emulated KV device, which lies in files beside the database and
//! whose block side is a slow tier that cannot follow them. The kill then comes once a log was born on the device, and the database is
//! reopened with the bypass, or with the device alone.
//!
//! The test starts its own binary again as the loader, selected by an environment variable. `CLEAVE_KILL_ROUNDS` sets
//! the number of rounds (10 by default).

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cleave_sim::material::Value;
use cleave_sim::rng::Rng;
use cleavedb::{
    Bypass, Db, Durability, EmulatedSsd, KvDevice, LogBackend, Options, Result, Rollback, SsdParameters, WriteBatch,
};

const LOADER: &str = "CLEAVE_KILL_LOADER";
/// Maximum number of writers in a round; each has its own keys.
const WRITERS: u64 = 4;
/// Keys that every batch of a writer overwrites.
const PARTS: u64 = 12;
/// Number of a writer's last batches that each keep a key of their own.
const TRAIL: u64 = 500;
/// A loader that is not killed ends after this time.
const LOADER_SECONDS_MAX: u64 = 60;

/// Bytes a second of the device in a loader: flushes and compactions take most of them.
const DEVICE_BYTES_PER_SECOND: u64 = 8 << 20;
/// A loader prints this line once a log was born on the device.
const BORN_ON_DEVICE: &str = "born on the device";

/// What a loader does: without the device, or around background work onto it.
const BYPASSES: [Option<Bypass>; 3] =
    [None, Some(Bypass::Device(Rollback::Eager)), Some(Bypass::Device(Rollback::Lazy))];

/// The instructions for a loader.
#[derive(Debug, Clone)]
struct Order {
    /// Where the database and the device lie.
    directory: PathBuf,
    backend: LogBackend,
    bypass: Option<Bypass>,
    /// The number of the first batch of each writer; its length is the number of writers.
    first: Vec<u64>,
}

impl Order {
    fn to_text(&self) -> String {
        let first: Vec<String> = self.first.iter().map(u64::to_string).collect();
        let bypass = BYPASSES.iter().position(|bypass| *bypass == self.bypass).unwrap();
        let is_ring = self.backend == LogBackend::Ring;
        format!("{}\n{is_ring}\n{bypass}\n{}", self.directory.display(), first.join(","))
    }

    fn from_text(text: &str) -> Order {
        let mut lines = text.lines();
        let mut line = || lines.next().unwrap_or_default();
        Order {
            directory: line().into(),
            backend: if line() == "true" { LogBackend::Ring } else { LogBackend::Plain },
            bypass: BYPASSES[line().parse::<usize>().unwrap()],
            first: line().split(',').map(|number| number.parse().unwrap()).collect(),
        }
    }
}

/// The emulated device beside the database.
fn device(directory: &Path, bytes_per_second: u64) -> Arc<EmulatedSsd> {
    let parameters = SsdParameters { media_bytes_per_second: bytes_per_second, ..SsdParameters::unthrottled() };
    EmulatedSsd::open(directory.join("device"), parameters.with_capacity(1 << 30)).unwrap()
}

/// Opens the database. With a device, tables go to the block side of it, and otherwise they come back.
fn open(directory: &Path, backend: LogBackend, device: Option<(Arc<EmulatedSsd>, Bypass)>) -> Result<Db> {
    let home = directory.join("db");
    let options = Options::new().memory_budget(16 << 20).log_backend(backend);
    let options = match device {
        Some((device, bypass)) => {
            let side = device.block_side().unwrap();
            options.slow_dir(side.dir()).background_threads(1).bypass(bypass).kv_device(device)
        }
        None => options.slow_dir(&home),
    };
    options.open(home)
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

/// Begins with a line break: the test harness may have written something before it.
fn print_line(line: &str) {
    std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes()).unwrap();
}

/// Not a test by itself: this is the process that is killed.
#[test]
fn loader() {
    let Ok(order) = std::env::var(LOADER) else { return };
    let order = Order::from_text(&order);
    let device = order.bypass.map(|bypass| (device(&order.directory, DEVICE_BYTES_PER_SECOND), bypass));
    let db = open(&order.directory, order.backend, device).unwrap();
    db.keyspace("other").unwrap();
    let began = Instant::now();
    let is_over = &|| began.elapsed() > Duration::from_secs(LOADER_SECONDS_MAX);
    std::thread::scope(|scope| {
        let is_born = || db.stats().bypass.logs_born_on_device > 0;
        scope.spawn(move || {
            while order.bypass.is_some() && !is_over() {
                if is_born() {
                    return print_line(BORN_ON_DEVICE);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        for (writer, &first) in order.first.iter().enumerate() {
            let db = &db;
            scope.spawn(move || {
                for number in (first..).take_while(|_| !is_over()) {
                    write_one(db, writer as u64, number).unwrap();
                    print_line(&format!("ack {writer} {number}"));
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
    // Counts from the first acknowledgement, so that something is written even after a slow start, or from the first log on the device.
    let from_device = order.bypass.is_some();
    let begins = |line: String| line == BORN_ON_DEVICE || note(line) && !from_device;
    let began = lines.by_ref().map_while(std::result::Result::ok).any(begins);
    assert!(began, "the loader ended too early: {:?}", child.wait());
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

/// How many pieces of files the device has, apart from that of its owner.
fn pieces_of_logs(device: &EmulatedSsd) -> usize {
    let mut pieces = 0;
    device.list(&mut |key| pieces += usize::from(key[..4] != [0; 4])).unwrap();
    pieces.saturating_sub(1)
}

#[test]
fn a_process_killed_at_random_keeps_every_acknowledged_write() {
    if std::env::var(LOADER).is_ok() {
        return;
    }
    let rounds = std::env::var("CLEAVE_KILL_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(10_u64);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let mut rng = Rng::new(u64::from(std::process::id()));
    let mut last = vec![None; WRITERS as usize];
    // With the bypass on at the reopening, and with it off: rounds with a device, and those of them in which logs were there.
    let mut device_rounds = [(0, 0); 2];
    for round in 0..rounds {
        let backend = if round / 2 % 2 == 0 { LogBackend::Ring } else { LogBackend::Plain };
        let writers = if round % 3 == 0 { 1 } else { rng.between(2, WRITERS + 1) };
        let first = last[..writers as usize].iter().map(|last: &Option<u64>| last.map_or(0, |last| last + 1)).collect();
        // After a clean close nothing is left on the device, so the next round does without it.
        let bypass = if round % 2 == 0 { None } else { BYPASSES[1 + rng.below(2) as usize] };
        let order = Order { directory: path.to_owned(), backend, bypass, first };
        let acknowledged = load_and_kill(&order, Duration::from_millis(rng.between(5, 500)));
        let declared = bypass.map(|bypass| {
            let device = device(path, 0);
            let is_off = round / 4 % 2 == 1;
            let (rounds, with_logs) = &mut device_rounds[usize::from(is_off)];
            (*rounds, *with_logs) = (*rounds + 1, *with_logs + usize::from(pieces_of_logs(&device) > 0));
            (device, if is_off { Bypass::Off } else { bypass })
        });
        let db = open(path, if rng.one_in(2) { backend } else { LogBackend::Auto }, declared).unwrap();
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
    for (rounds, with_logs) in device_rounds {
        assert!(rounds == 0 || with_logs > 0, "no kill has left logs on the device: {device_rounds:?}");
    }
    assert!(last.iter().any(|last| *last > Some(10)), "the loaders wrote too little: {last:?}");
}
