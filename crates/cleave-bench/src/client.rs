//! A client: draws operations, does them one after the other, checks what it reads and times what it does. All clients
//! of a run share one `Bench`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use cleave_sim::rng::Rng;

use crate::distribution::Chooser;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::keys::Keys;
use crate::latency::Latencies;
use crate::pace::Pace;
use crate::presence::Presence;
use crate::values::Values;
use crate::workload::{Operation, ScanLength, Workload};

/// The records of a run: what they look like, and which of them there are.
pub struct Ground {
    /// The keys of records.
    pub keys: Keys,
    /// The values of records.
    pub values: Values,
    /// Records that the store must have.
    pub presence: Presence,
    /// Records that operations fall on, without the ones inserted during the run.
    pub records: u64,
    /// The number of the next record to insert.
    pub next_new: AtomicU64,
    /// Every inserted record below this number was acknowledged; operations may fall on it.
    pub acknowledged: AtomicU64,
    /// How many records a scan reads if the workload does not say.
    pub scan_length: u64,
}

impl Ground {
    /// Counts on over the inserted records that are there, up to the first that another client has yet to write.
    fn acknowledge(&self) {
        let mut next = self.acknowledged.load(Ordering::SeqCst);
        while next < self.next_new.load(Ordering::SeqCst) && self.presence.has(next) {
            match self.acknowledged.compare_exchange(next, next + 1, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => next += 1,
                Err(moved) => next = moved,
            }
        }
    }
}

/// What the clients of a run share.
pub struct Bench<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// What to do.
    pub workload: &'a Workload,
    /// The records.
    pub ground: &'a Ground,
    /// Operations completed.
    pub done: AtomicU64,
    /// Set when clients without a quota are to stop, and after a failure.
    pub stop: AtomicBool,
}

impl<'a> Bench<'a> {
    /// Nothing done yet.
    pub fn new(engine: &'a dyn Engine, workload: &'a Workload, ground: &'a Ground) -> Bench<'a> {
        Bench { engine, workload, ground, done: AtomicU64::new(0), stop: AtomicBool::new(false) }
    }
}

/// What one client did.
#[derive(Default)]
pub struct Tally {
    /// How long operations took.
    pub latencies: Latencies,
    /// Bytes of keys, values and operands written.
    pub user_bytes_written: u64,
    /// Values that were read and checked.
    pub values_read: u64,
    /// Reads of records that were not there, and need not be.
    pub reads_missing: u64,
}

impl Tally {
    /// Adds what another client did.
    pub fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies);
        self.user_bytes_written += other.user_bytes_written;
        self.values_read += other.values_read;
        self.reads_missing += other.reads_missing;
    }
}

/// One client.
pub struct Client<'a> {
    bench: &'a Bench<'a>,
    rng: Rng,
    chooser: Chooser,
    key: Vec<u8>,
    value: Vec<u8>,
    last_key: Vec<u8>,
    tally: Tally,
}

impl<'a> Client<'a> {
    /// The client whose draws `rng` decides.
    pub fn new(bench: &'a Bench<'a>, rng: Rng) -> Client<'a> {
        let chooser = Chooser::new(bench.workload.distribution, bench.ground.records);
        let (key, value, last_key) = (Vec::new(), Vec::new(), Vec::new());
        Client { bench, rng, chooser, key, value, last_key, tally: Tally::default() }
    }

    /// Does `quota` operations of the workload's mix.
    ///
    /// # Errors
    /// The first operation that the store failed or answered wrongly; the other clients stop too.
    pub fn run(mut self, quota: u64, pace: Option<Pace>) -> Result<Tally> {
        pace.iter().for_each(Pace::settle);
        let weights: Vec<u32> = self.bench.workload.mix.iter().map(|(_, weight)| *weight).collect();
        for number in 0..quota {
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
            let operation = self.bench.workload.mix[self.rng.weighted(&weights)].0;
            self.step(operation, number, pace)?;
            self.bench.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(self.tally)
    }

    /// Does `operation` again and again, once at least, until it is told to stop.
    ///
    /// # Errors
    /// As [`Client::run`].
    pub fn run_in_background(mut self, operation: Operation, pace: Option<Pace>) -> Result<Tally> {
        pace.iter().for_each(Pace::settle);
        for number in 0.. {
            self.step(operation, number, pace)?;
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(self.tally)
    }

    fn step(&mut self, operation: Operation, number: u64, pace: Option<Pace>) -> Result<()> {
        let record = self.prepare(operation);
        let start = pace.map_or_else(Instant::now, |pace| pace.wait(number));
        let outcome = self.perform(operation, record);
        self.tally.latencies.record(operation, start.elapsed());
        if outcome.is_err() {
            self.bench.stop.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Chooses the record, and makes its key and what is to be written.
    fn prepare(&mut self, operation: Operation) -> u64 {
        let bench = self.bench;
        let record = match operation {
            Operation::Insert => bench.ground.next_new.fetch_add(1, Ordering::Relaxed),
            _ => {
                let records = bench.ground.records.max(bench.ground.acknowledged.load(Ordering::Relaxed));
                self.chooser.choose(records, &mut self.rng)
            }
        };
        bench.ground.keys.write(record, &mut self.key);
        match operation {
            Operation::Update | Operation::Insert => {
                bench.ground.values.write(&self.key, &mut self.rng, &mut self.value)
            }
            Operation::Merge => bench.ground.values.operand(&self.key, &mut self.rng, &mut self.value),
            Operation::Read | Operation::Scan | Operation::Rmw | Operation::Delete => {}
        }
        record
    }

    fn perform(&mut self, operation: Operation, record: u64) -> Result<()> {
        let bench = self.bench;
        match operation {
            Operation::Read => self.read(record, false),
            Operation::Update => self.put(record),
            Operation::Insert => {
                self.put(record)?;
                bench.ground.acknowledge();
                Ok(())
            }
            Operation::Scan => {
                let length = match bench.workload.scan {
                    ScanLength::Asked => bench.ground.scan_length,
                    ScanLength::Fixed(length) => length,
                    ScanLength::UpTo(most) => self.rng.between(1, most + 1),
                };
                self.scan(record, length)
            }
            Operation::Rmw => {
                self.value.clear();
                self.read(record, true)?;
                match self.value.is_empty() {
                    true => bench.ground.values.write(&self.key, &mut self.rng, &mut self.value),
                    false => bench.ground.values.change(&self.key, &mut self.rng, &mut self.value),
                }
                self.put(record)
            }
            Operation::Merge => {
                self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
                bench.engine.merge(&self.key, &self.value)
            }
            Operation::Delete => {
                bench.ground.presence.clear(record);
                self.tally.user_bytes_written += self.key.len() as u64;
                bench.engine.delete(&self.key)
            }
        }
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
        self.bench.engine.put(&self.key, &self.value)?;
        self.bench.ground.presence.set(record);
        Ok(())
    }

    fn read(&mut self, record: u64, keep: bool) -> Result<()> {
        let (bench, key, kept) = (self.bench, &self.key, &mut self.value);
        let must_be_there = bench.ground.presence.has(record);
        let mut right = true;
        let found = bench.engine.get(key, &mut |value| {
            right = bench.ground.values.check(key, value);
            if keep {
                kept.extend_from_slice(value);
            }
        })?;
        match (found, right) {
            (true, true) => self.tally.values_read += 1,
            (false, _) if !must_be_there => self.tally.reads_missing += 1,
            (true, false) => return Err(Failure::new(format!("the value read for record {record} is not its own"))),
            (false, _) => return Err(Failure::new(format!("record {record} was written and is not found"))),
        }
        Ok(())
    }

    fn scan(&mut self, record: u64, length: u64) -> Result<()> {
        let (bench, from, last) = (self.bench, &self.key, &mut self.last_key);
        let must_start_here = bench.ground.presence.has(record);
        let (mut right, mut seen) = (true, 0);
        last.clear();
        let found = bench.engine.scan(from, length, &mut |key, value| {
            let in_order = match seen {
                0 => key >= &from[..] && (!must_start_here || key == &from[..]),
                _ => key > &last[..],
            };
            right &= in_order && bench.ground.values.check(key, value);
            seen += 1;
            last.clear();
            last.extend_from_slice(key);
        })?;
        if !right || found != seen || found > length || (must_start_here && length > 0 && found == 0) {
            return Err(Failure::new(format!("the scan from record {record} gave wrong or unordered records")));
        }
        self.tally.values_read += found;
        Ok(())
    }
}
