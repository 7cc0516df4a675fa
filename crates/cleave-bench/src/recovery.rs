//! Measures how long a store takes to open after its process was killed. After a run the process keeps writing new records
//! and stores the number of acknowledged ones in a file beside the store. The parent kills it meanwhile, and a new process
//! opens the store and checks that every acknowledged record is present.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::engine::{Dirs, Durability, Engine};
use crate::engines;
use crate::failure::{Failure, Result};
use crate::plan::{Plan, Shape};
use crate::rng::stream;
use crate::scratch::Running;
use crate::source::Source;

/// Random stream of the first writer.
const STREAM: u64 = 0xDEAD << 32;
/// The process is killed after a quarter of the run's records, but at least this many, or after this time.
const RECORDS_MIN: u64 = 100;
const WRITING: Duration = Duration::from_secs(10);

/// The result of a recovery.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recovery {
    /// Seconds until the store was open and had answered one read.
    pub recover_s: f64,
}

/// One of the writing threads. With N threads it writes every Nth record, starting at its own number.
struct Writer<'a> {
    plan: &'a Plan,
    source: Source,
    number: u64,
}

impl<'a> Writer<'a> {
    fn new(plan: &'a Plan, number: u64) -> Result<Writer<'a>> {
        Ok(Writer { plan, source: Source::of_numbers(&plan.shape, &plan.schedule()?.data), number })
    }

    /// The key of its record `count`.
    fn key(&self, count: u64, key: &mut Vec<u8>) {
        self.source.key(self.source.first_unused() + count * self.plan.shape.threads + self.number, key);
    }

    fn write_on(&self, engine: &dyn Engine, acknowledged: &File) -> Result<()> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut rng = stream(self.plan.shape.seed, STREAM + self.number);
        for count in 0.. {
            self.key(count, &mut key);
            self.source.value(0, &key, self.source.length(0, &key), &mut rng, &mut value);
            engine.put(&key, &value)?;
            acknowledged
                .write_all_at(&(count + 1).to_le_bytes(), self.number * 8)
                .map_err(Failure::because("cannot store the number of acknowledged writes"))?;
        }
        Ok(())
    }
}

/// In the process of a run: writes until it is killed, so it returns only with a failure.
///
/// # Errors
/// The first write that failed.
pub fn write_until_killed(engine: &dyn Engine, plan: &Plan) -> Result<()> {
    let path = acknowledged(&plan.dirs);
    let file = File::create(&path).map_err(Failure::because(format!("cannot create {}", path.display())))?;
    let writers: Vec<Writer<'_>> = (0..plan.shape.threads).map(|n| Writer::new(plan, n)).collect::<Result<_>>()?;
    thread::scope(|scope| {
        let threads: Vec<_> = writers.iter().map(|writer| scope.spawn(|| writer.write_on(engine, &file))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| Failure::new("a writer panicked"))?)
    })
}

/// In the parent: kills the process once it has written enough. Returns the acknowledged records of each writer.
///
/// # Errors
/// If the process exits before it is killed.
pub fn kill_in_mid_write(running: &mut Running, dirs: &Dirs, shape: &Shape) -> Result<Vec<u64>> {
    let enough = (shape.records / 4).max(RECORDS_MIN);
    let start = Instant::now();
    loop {
        let written: u64 = counts(dirs).iter().sum();
        if written >= enough || (written > 0 && start.elapsed() > WRITING) {
            break;
        }
        if let Some(status) = running.0.try_wait().map_err(Failure::because("the run's process"))? {
            return Err(Failure::new(format!("the store failed before it was killed ({status})")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    running.0.kill().map_err(Failure::because("cannot kill the run's process"))?;
    running.0.wait().map_err(Failure::because("the run's process"))?;
    Ok(counts(dirs))
}

/// In a new process: opens the store and checks that it contains the acknowledged records of each writer.
///
/// # Errors
/// If the store cannot be opened, or has lost a write that its durability must preserve.
pub fn recover(plan: &Plan, acknowledged: &[u64], out: &mut dyn Write) -> Result<()> {
    let kind = engines::find(&plan.engine)?;
    let must_have = kind.buffered_survives_kill || plan.shape.durability == Durability::Sync;
    let start = Instant::now();
    let engine = (kind.open)(&plan.settings()?)?;
    let mut recover_s = None;
    for (number, &count) in (0..).zip(acknowledged) {
        let (writer, mut key) = (Writer::new(plan, number)?, Vec::new());
        for count in 0..count {
            writer.key(count, &mut key);
            let mut right = true;
            let found = engine.get(&key, &mut |value| right = writer.source.check(&key, value))?;
            recover_s.get_or_insert_with(|| start.elapsed().as_secs_f64());
            if must_have && !found {
                return Err(Failure::new(format!("write {count} of client {number} was acknowledged and is lost")));
            }
            if !right {
                return Err(Failure::new("after the kill a value belongs to another key or is damaged"));
            }
        }
    }
    engine.close()?;
    let recover_s = recover_s.ok_or_else(|| Failure::new("nothing was acknowledged before the process was killed"))?;
    serde_json::to_writer(out, &Recovery { recover_s }).map_err(Failure::because("cannot write the outcome"))
}

/// The file of the counts, eight bytes per writer.
fn acknowledged(dirs: &Dirs) -> PathBuf {
    dirs.main.with_file_name("acknowledged")
}

/// The counts; empty if the file does not exist yet.
fn counts(dirs: &Dirs) -> Vec<u64> {
    let bytes = fs::read(acknowledged(dirs)).unwrap_or_default();
    let count = |bytes: &[u8]| bytes.iter().rev().fold(0, |count, &byte| count << 8 | u64::from(byte));
    bytes.chunks(8).map(count).collect()
}
