//! `cleave-bench bounded`: the overhead of a large CleaveDB. A store is filled up to a given number of live bytes and then
//! overwritten so that value GC runs, while its files, open descriptors and memory are measured. All but the first bytes of
//! a value are zeros, which take no disk space ([`Incomplete`]), so the run needs about a tenth of the disk.
//!
//! The engine is unaware of this: it writes, checks, moves and reads every byte.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cleavedb::{Db, Options, testing};
use rand::{Rng as _, RngExt, SeedableRng};
use serde::Serialize;

use crate::args::Bounded;
use crate::counters;
use crate::failure::{Failure, Result};
use crate::plan::Places;
use crate::rng::{Rng, stream};
use crate::scratch::{self, Scratch};
use crate::size;
use crate::storage::Incomplete;

/// Bytes of a large value that are not zeros.
const HEAD_BYTES: usize = 64;
/// Bytes of a small value, which is stored with its key.
const SMALL_BYTES: usize = 100;
/// Small records per large one.
const SMALL_PER_LARGE: u64 = 4;
/// Rows of the table for the load, and as many for the overwrites.
const STEPS: u64 = 10;
/// How often descriptors and memory are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Large values that are read back at the end.
const READ_BACK: u64 = 10_000;

/// One line of the table. The names of the fields are those in the JSON.
#[derive(Debug, Clone, Serialize)]
struct Row {
    /// `load`, `overwrite`, `settled` or `opened again`.
    phase: &'static str,
    /// Bytes of values in the store.
    value_bytes_live: u64,
    /// Seconds since the previous row.
    seconds: f64,
    /// Records written per second since then.
    records_per_second: f64,
    /// Files by kind.
    files: Files,
    /// Maximum of open descriptors since the previous row.
    descriptors_max: u64,
    /// Maximum of resident memory since the previous row.
    resident_bytes_max: u64,
    /// Memory that the engine accounts to its budget.
    memory_bytes: u64,
    /// Of that, memory of the value file list.
    value_list_bytes: u64,
    /// Bytes of records in logs and value extents, including garbage.
    value_bytes: u64,
    /// Logs and extents that hold values.
    value_files: u64,
    /// Groups of values.
    value_groups: u64,
    /// Files with redirect tables that stale addresses may still need.
    moved_files: u64,
    /// Value GC jobs so far.
    value_gcs: u64,
    /// Seconds that writers were stalled or paced since the previous row.
    waited_s: f64,
    /// Bytes of all files, including holes.
    file_bytes: u64,
    /// Disk space of all files, in bytes.
    disk_bytes: u64,
}

/// Number and size of files.
#[derive(Debug, Clone, Default, Serialize)]
struct Files {
    all: u64,
    logs: u64,
    segments: u64,
    redirects: u64,
    tables: u64,
    manifest_bytes: u64,
    bytes: u64,
}

/// Maxima since they were last read.
#[derive(Default)]
struct Peaks {
    descriptors: AtomicU64,
    resident_bytes: AtomicU64,
    stop: AtomicBool,
}

/// Fills a store, prints its overhead, and removes it.
///
/// # Errors
/// If an option is invalid, the store fails, or a value is wrong.
pub fn run(args: &Bounded, out: &mut dyn Write) -> Result<()> {
    if args.value_size <= HEAD_BYTES as u64 || args.bytes < args.value_size {
        return Err(Failure::new(format!(
            "--value-size must be more than {HEAD_BYTES}, and --bytes at least one value"
        )));
    }
    let places = Places { dir: args.dir.clone(), ..Places::default() };
    scratch::handle_interruption()?;
    scratch::prepare(&places)?;
    let scratch = Scratch::new(&places)?;
    let peaks = Peaks::default();
    let rows = thread::scope(|scope| {
        let sampler = scope.spawn(|| peaks.sample());
        let rows = Filling::new(args, &scratch.dirs().main, &peaks).and_then(|filling| filling.run(out));
        peaks.stop.store(true, Ordering::Relaxed);
        sampler.join().map_err(|_| Failure::new("the sampling thread panicked"))??;
        rows
    })?;
    let Some(path) = &args.json else { return Ok(()) };
    let json = serde_json::to_string_pretty(&rows).map_err(Failure::because("cannot make JSON"))?;
    fs::write(path, json + "\n").map_err(Failure::because(format!("cannot write {}", path.display())))
}

/// A store that is being filled.
struct Filling<'a> {
    args: &'a Bounded,
    dir: &'a Path,
    peaks: &'a Peaks,
    db: Db,
    /// Large values.
    count: u64,
    value: Vec<u8>,
    rows: Vec<Row>,
    since: Instant,
    waited: Duration,
}

impl<'a> Filling<'a> {
    fn new(args: &'a Bounded, dir: &'a Path, peaks: &'a Peaks) -> Result<Filling<'a>> {
        let value_size = usize::try_from(args.value_size).map_err(Failure::because("--value-size"))?;
        let count = args.bytes.div_ceil(args.value_size + SMALL_PER_LARGE * SMALL_BYTES as u64);
        Ok(Filling {
            args,
            dir,
            peaks,
            db: open(args, dir)?,
            count,
            value: vec![0; value_size],
            rows: Vec::new(),
            since: Instant::now(),
            waited: Duration::ZERO,
        })
    }

    fn run(mut self, out: &mut dyn Write) -> Result<Vec<Row>> {
        self.title(out)?;
        let count = self.count;
        for step in 0..STEPS {
            let range = count * step / STEPS..count * (step + 1) / STEPS;
            let written = (range.end - range.start) * (1 + SMALL_PER_LARGE);
            range.clone().try_for_each(|number| self.put(number, 0))?;
            self.row("load", range.end, written, out)?;
        }
        let mut rng = Rng::seed_from_u64(1);
        let overwrites = count * self.args.overwrites / 100;
        for step in 0..STEPS {
            let range = overwrites * step / STEPS..overwrites * (step + 1) / STEPS;
            let written = (range.end - range.start) * (1 + SMALL_PER_LARGE);
            range.into_iter().try_for_each(|_| self.put(rng.random_range(0..count), 1 + step))?;
            self.row("overwrite", count, written, out)?;
        }
        self.db.flush().and_then(|()| self.db.wait_for_background()).map_err(failed)?;
        self.row("settled", count, 0, out)?;
        self.read_back(&mut rng)?;
        self.db.close().map_err(failed)?;
        self.since = Instant::now();
        self.db = open(self.args, self.dir)?;
        self.waited = Duration::ZERO;
        self.row("opened again", count, 0, out)?;
        self.read_back(&mut rng)?;
        self.db.close().map_err(failed)?;
        Ok(self.rows)
    }

    /// Writes a large value and its small ones.
    fn put(&mut self, number: u64, round: u64) -> Result<()> {
        let head = stream(number, round);
        self.value[..HEAD_BYTES].copy_from_slice(&head_of(number, head));
        self.db.put(key(number, 0), &self.value).map_err(failed)?;
        (1..=SMALL_PER_LARGE)
            .try_for_each(|small| self.db.put(key(number, small), &self.value[..SMALL_BYTES]).map_err(failed))
    }

    /// Checks a sample of large values and their small ones.
    fn read_back(&mut self, rng: &mut Rng) -> Result<()> {
        for _ in 0..READ_BACK.min(self.count) {
            let number = rng.random_range(0..self.count);
            let value = self.db.get(key(number, 0)).map_err(failed)?;
            let small = self.db.get(key(number, SMALL_PER_LARGE)).map_err(failed)?;
            let (Some(value), Some(small)) = (value, small) else {
                return Err(Failure::new(format!("record {number} is missing")));
            };
            let is_right = value.len() == self.value.len()
                && value[..8] == number.to_le_bytes()
                && value[HEAD_BYTES..].iter().all(|byte| *byte == 0)
                && value[..SMALL_BYTES] == small[..];
            if !is_right {
                return Err(Failure::new(format!("record {number} has a wrong value")));
            }
        }
        Ok(())
    }

    fn row(&mut self, phase: &'static str, large: u64, written: u64, out: &mut dyn Write) -> Result<()> {
        let seconds = self.since.elapsed().as_secs_f64();
        let stats = self.db.stats();
        let files = count_files(self.dir)?;
        self.peaks.take_now()?;
        let waited = stats.stall_time + stats.paced_time;
        let row = Row {
            phase,
            value_bytes_live: large * (self.value.len() as u64 + SMALL_PER_LARGE * SMALL_BYTES as u64),
            seconds,
            records_per_second: written as f64 / seconds,
            descriptors_max: self.peaks.descriptors.swap(0, Ordering::Relaxed),
            resident_bytes_max: self.peaks.resident_bytes.swap(0, Ordering::Relaxed),
            memory_bytes: stats.memory.total() as u64,
            value_list_bytes: stats.memory.value_list_bytes as u64,
            value_bytes: stats.value_bytes,
            value_files: stats.value_files as u64,
            value_groups: stats.value_groups as u64,
            moved_files: stats.moved_files as u64,
            value_gcs: stats.value_gcs,
            waited_s: waited.saturating_sub(self.waited).as_secs_f64(),
            file_bytes: files.bytes,
            disk_bytes: counters::space_of(self.dir, &|_| true)?,
            files,
        };
        self.waited = waited;
        writeln!(out, "{}", row.cells().join(" | ")).and_then(|()| out.flush()).map_err(write_failed())?;
        self.rows.push(row);
        self.since = Instant::now();
        Ok(())
    }

    fn title(&self, out: &mut dyn Write) -> Result<()> {
        let (values, small) = (size::human(self.args.value_size), self.count * SMALL_PER_LARGE);
        let memory = size::human(self.args.memory);
        writeln!(out, "{} values of {values}, {small} of {SMALL_BYTES} B; {memory} of memory", self.count)
            .and_then(|()| writeln!(out, "{}", TITLES.join(" | ")))
            .map_err(write_failed())
    }
}

#[rustfmt::skip]
const TITLES: [&str; 19] = [
    "phase", "live", "with garbage", "seconds", "records/s", "waited s", "files", "logs", "segments", "redirects", "tables", "descriptors",
    "resident", "engine memory", "file list", "logs and extents", "groups", "manifest", "file bytes (on disk)",
];

impl Row {
    fn cells(&self) -> [String; TITLES.len()] {
        let files = &self.files;
        [
            self.phase.to_owned(),
            size::human(self.value_bytes_live),
            size::human(self.value_bytes),
            format!("{:.1}", self.seconds),
            format!("{:.0}", self.records_per_second),
            format!("{:.1}", self.waited_s),
            files.all.to_string(),
            files.logs.to_string(),
            files.segments.to_string(),
            files.redirects.to_string(),
            files.tables.to_string(),
            self.descriptors_max.to_string(),
            size::human(self.resident_bytes_max),
            size::human(self.memory_bytes),
            size::human(self.value_list_bytes),
            self.value_files.to_string(),
            self.value_groups.to_string(),
            size::human(files.manifest_bytes),
            format!("{} ({})", size::human(self.file_bytes), size::human(self.disk_bytes)),
        ]
    }
}

impl Peaks {
    fn sample(&self) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            self.take_now()?;
            thread::sleep(SAMPLE_INTERVAL);
        }
        Ok(())
    }

    fn take_now(&self) -> Result<()> {
        let open = fs::read_dir("/proc/self/fd").map_err(Failure::because("cannot read /proc/self/fd"))?.count();
        self.descriptors.fetch_max(open as u64, Ordering::Relaxed);
        self.resident_bytes.fetch_max(counters::rss_bytes()?, Ordering::Relaxed);
        Ok(())
    }
}

fn open(args: &Bounded, dir: &Path) -> Result<Db> {
    let memory = usize::try_from(args.memory).map_err(Failure::because("--memory"))?;
    let storage = Arc::new(Incomplete { syncs: true, sparse: true });
    testing::open_on(storage, dir, Options::new().memory_budget(memory)).map_err(failed)
}

/// The key of a record: keys are written in random order, and the keys of one number are not adjacent.
fn key(number: u64, small: u64) -> String {
    let mixed = (number * (1 + SMALL_PER_LARGE) + small).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    format!("record/{mixed:016x}")
}

/// The number, followed by random bytes.
fn head_of(number: u64, mut rng: Rng) -> [u8; HEAD_BYTES] {
    let mut head = [0; HEAD_BYTES];
    for bytes in head.chunks_exact_mut(8) {
        bytes.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    head[..8].copy_from_slice(&number.to_le_bytes());
    head
}

fn count_files(dir: &Path) -> Result<Files> {
    let failed = || Failure::because(format!("cannot read {}", dir.display()));
    let mut files = Files::default();
    for entry in fs::read_dir(dir).map_err(failed())? {
        let entry = entry.map_err(failed())?;
        // Files may be removed at any moment.
        let Ok(metadata) = entry.metadata() else { continue };
        files.all += 1;
        files.bytes += metadata.len();
        match entry.path().extension().and_then(|extension| extension.to_str()) {
            Some("log") => files.logs += 1,
            Some("segment") => files.segments += 1,
            Some("redirect") => files.redirects += 1,
            Some("table") => files.tables += 1,
            Some("manifest") => files.manifest_bytes += metadata.len(),
            _ => {}
        }
    }
    Ok(files)
}

fn failed(error: cleavedb::Error) -> Failure {
    Failure::new(format!("cleave: {error}"))
}

fn write_failed<E: std::fmt::Display>() -> impl FnOnce(E) -> Failure {
    Failure::because("cannot write the table")
}
