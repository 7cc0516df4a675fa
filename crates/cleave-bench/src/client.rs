//! A client: draws operations, or takes them from a trace, executes them sequentially, verifies what it reads and measures
//! latencies. All clients of a run share one `Bench`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rand::RngExt;
use rand::distr::Distribution as _;
use rand::distr::weighted::WeightedIndex;

use crate::dataset::Dataset;
use crate::distribution::Chooser;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::latency::Latencies;
use crate::pace::{Pace, wait_until};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::{Operation, ScanLength, Workload};

/// A client that follows the others looks at this interval how far they are.
const FOLLOW_EVERY: Duration = Duration::from_micros(50);

/// The state that the clients of a run share.
pub struct Bench<'a> {
    /// The store.
    pub engine: &'a dyn Engine,
    /// The workload.
    pub workload: &'a Workload,
    /// The records.
    pub dataset: &'a Dataset,
    /// Writes per commit.
    batch: usize,
    /// Operations completed.
    pub done: AtomicU64,
    /// Set to stop clients without a quota, and after a failure.
    pub stop: AtomicBool,
}

impl<'a> Bench<'a> {
    /// A run without completed operations, with `batch` writes per commit.
    pub fn new(engine: &'a dyn Engine, workload: &'a Workload, dataset: &'a Dataset, batch: u64) -> Bench<'a> {
        Bench {
            engine,
            workload,
            dataset,
            batch: batch as usize,
            done: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }
}

/// Totals of one client.
#[derive(Default)]
pub struct Tally {
    /// Latencies of operations.
    pub latencies: Latencies,
    /// Bytes of keys, values and operands written.
    pub user_bytes_written: u64,
    /// Values read and verified.
    pub values_read: u64,
    /// Bytes of these values and their keys.
    pub user_bytes_read: u64,
    /// Reads of records that did not exist and need not.
    pub reads_missing: u64,
}

impl Tally {
    /// Adds the totals of another client.
    pub fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies);
        self.user_bytes_written += other.user_bytes_written;
        self.values_read += other.values_read;
        self.user_bytes_read += other.user_bytes_read;
        self.reads_missing += other.reads_missing;
    }
}

/// A client's share of the operations.
#[derive(Clone, Copy)]
pub struct Share {
    /// The number of the client.
    pub client: u64,
    /// Number of clients.
    pub clients: u64,
    /// Operations of all clients together.
    pub operations: u64,
    /// The schedule of operations; none: each starts when the previous one has ended.
    pub pace: Option<Pace>,
}

/// The next operation.
struct Request {
    operation: Operation,
    record: u64,
    /// Bytes of the value to write, or records of a scan; none: the workload's default.
    length: Option<usize>,
}

/// The writes that a client has collected for a commit.
#[derive(Default)]
struct Batch {
    /// Keys and values; those after the first `records.len()` are buffers to reuse.
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The operation and the record of each write.
    records: Vec<(Operation, u64)>,
    /// When the first write was due; none without a schedule, where a write is due when it is committed.
    due: Option<Instant>,
}

/// One client.
pub struct Client<'a> {
    bench: &'a Bench<'a>,
    rng: Rng,
    chooser: Chooser,
    key: Vec<u8>,
    value: Vec<u8>,
    last_key: Vec<u8>,
    batch: Batch,
    /// In a workload with deletes, the client's number and the number of clients n: it accesses only every n-th record,
    /// from its number on. Otherwise nobody knows whether a record exists that another client writes and deletes.
    own: Option<(u64, u64)>,
    tally: Tally,
}

impl<'a> Client<'a> {
    /// A client that draws from `rng`.
    pub fn new(bench: &'a Bench<'a>, rng: Rng) -> Client<'a> {
        let chooser = Chooser::new(bench.workload.distribution, bench.dataset.records);
        let (key, value, last_key) = (Vec::new(), Vec::new(), Vec::new());
        Client {
            bench,
            rng,
            chooser,
            key,
            value,
            last_key,
            batch: Batch::default(),
            own: None,
            tally: Tally::default(),
        }
    }

    /// Executes its share of the workload's mix, or of the trace.
    ///
    /// # Errors
    /// The first operation that failed or returned a wrong answer; the other clients then stop too.
    pub fn run(mut self, share: Share) -> Result<Tally> {
        share.pace.iter().for_each(Pace::settle);
        self.own = self.bench.workload.has(Operation::Delete).then_some((share.client, share.clients));
        match self.bench.dataset.source.trace() {
            Some(trace) => self.replay(trace, share)?,
            None => self.draw(share)?,
        }
        let rest = self.commit()?;
        self.bench.done.fetch_add(rest, Ordering::Relaxed);
        Ok(self.tally)
    }

    /// Repeats `operation` until the run stops it; at least once, unless the workload has it follow the other clients.
    ///
    /// # Errors
    /// As [`Client::run`].
    pub fn run_in_background(mut self, operation: Operation, pace: Option<Pace>) -> Result<Tally> {
        pace.iter().for_each(Pace::settle);
        for number in 0.. {
            if !self.follow(number) {
                break;
            }
            let request = self.choose(operation);
            self.step(&request, pace.map(|pace| pace.due(number)))?;
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        self.commit()?;
        Ok(self.tally)
    }

    /// Waits until the other clients have done enough for the next operation of the one in the background; false if the run
    /// stops before.
    fn follow(&self, number: u64) -> bool {
        let Some(each) = self.bench.workload.background_follows else { return true };
        while self.bench.done.load(Ordering::Relaxed) < (number + 1) * each {
            if self.bench.stop.load(Ordering::Relaxed) {
                return false;
            }
            thread::sleep(FOLLOW_EVERY);
        }
        true
    }

    fn draw(&mut self, share: Share) -> Result<()> {
        let weights = self.bench.workload.mix.iter().map(|(_, weight)| *weight);
        let mix = WeightedIndex::new(weights).map_err(Failure::because("a workload has operations"))?;
        let quota = share.operations / share.clients + u64::from(share.client < share.operations % share.clients);
        for number in 0..quota {
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
            let operation = self.bench.workload.mix[mix.sample(&mut self.rng)].0;
            let request = self.choose(operation);
            let done = self.step(&request, share.pace.map(|pace| pace.due(number)))?;
            self.bench.done.fetch_add(done, Ordering::Relaxed);
        }
        Ok(())
    }

    fn replay(&mut self, trace: &Trace, share: Share) -> Result<()> {
        for (position, event) in trace.of_client(share.client, share.clients) {
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
            let length = Some(event.length).filter(|&length| event.operation != Operation::Scan || length > 0);
            let request = Request { operation: event.operation, record: event.record, length };
            let done = self.step(&request, share.pace.map(|pace| pace.due_of(position, event.at)))?;
            self.bench.done.fetch_add(done, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Does one operation as soon as it is due, or collects it for a commit. Returns the number of operations that it
    /// completed; none if the phase ended before.
    fn step(&mut self, request: &Request, due: Option<Instant>) -> Result<u64> {
        self.prepare(request);
        let start = match due {
            Some(due) => wait_until(due, &self.bench.stop),
            None => Some(Instant::now()),
        };
        let Some(start) = start else { return Ok(0) };
        if self.bench.batch > 1 && request.operation.is_batched() {
            self.collect(request, due);
            return match self.batch.records.len() < self.bench.batch {
                true => Ok(0),
                false => self.commit(),
            };
        }
        let outcome = self.perform(request);
        self.tally.latencies.record(request.operation, start.elapsed());
        self.stop_after(outcome).map(|()| 1)
    }

    /// Stops all clients if `outcome` is a failure.
    fn stop_after<T>(&self, outcome: Result<T>) -> Result<T> {
        outcome.inspect_err(|_| self.bench.stop.store(true, Ordering::Relaxed))
    }

    /// Moves the prepared write to the batch.
    fn collect(&mut self, request: &Request, due: Option<Instant>) {
        let Batch { pairs, records, due: due_first } = &mut self.batch;
        if records.is_empty() {
            *due_first = due;
        }
        if pairs.len() == records.len() {
            pairs.push(Default::default());
        }
        let (key, value) = &mut pairs[records.len()];
        std::mem::swap(key, &mut self.key);
        std::mem::swap(value, &mut self.value);
        records.push((request.operation, request.record));
    }

    /// Commits the collected writes, and records the time since the first of them was due. Returns their number.
    fn commit(&mut self) -> Result<u64> {
        let Some(&(operation, _)) = self.batch.records.first() else { return Ok(0) };
        let start = self.batch.due.unwrap_or_else(Instant::now);
        let outcome = self.bench.engine.put_all(&self.batch.pairs[..self.batch.records.len()]);
        self.stop_after(outcome)?;
        self.tally.latencies.record(operation, start.elapsed());
        let (Batch { pairs, records, .. }, dataset) = (&mut self.batch, self.bench.dataset);
        for ((key, value), (operation, record)) in pairs.iter().zip(&*records) {
            self.tally.user_bytes_written += (key.len() + value.len()) as u64;
            dataset.written(*record, key);
            if *operation == Operation::Insert {
                dataset.acknowledge();
            }
        }
        let count = records.len() as u64;
        records.clear();
        Ok(count)
    }

    /// Chooses the record of `operation`.
    fn choose(&mut self, operation: Operation) -> Request {
        let dataset = self.bench.dataset;
        let record = match operation {
            Operation::Insert => dataset.next_new.fetch_add(1, Ordering::Relaxed),
            _ => {
                let records = dataset.records.max(dataset.acknowledged.load(Ordering::Relaxed));
                let record = self.chooser.choose(records, &mut self.rng);
                self.own.map_or(record, |own| nearest_own(record, own, records))
            }
        };
        Request { operation, record, length: None }
    }

    /// Generates the key, and the value or operand to write.
    fn prepare(&mut self, request: &Request) {
        let Client { bench, rng, key, value, .. } = self;
        let (source, record) = (&bench.dataset.source, request.record);
        source.key(record, key);
        let length = |key: &[u8]| request.length.unwrap_or_else(|| source.length(record, key));
        match request.operation {
            Operation::Update | Operation::Insert => source.value(record, key, length(key), rng, value),
            Operation::Merge => {
                let exists = bench.dataset.presence.has(record);
                source.operand(key, length(key), exists, rng, value);
            }
            Operation::Read | Operation::Scan | Operation::Rmw | Operation::Delete | Operation::Settle => {}
        }
    }

    fn perform(&mut self, request: &Request) -> Result<()> {
        let (bench, record) = (self.bench, request.record);
        match request.operation {
            Operation::Read => self.read(record, false),
            Operation::Update => self.put(record),
            Operation::Insert => {
                self.put(record)?;
                bench.dataset.acknowledge();
                Ok(())
            }
            Operation::Scan => {
                let length = match (request.length, bench.workload.scan) {
                    (Some(length), _) => length as u64,
                    (None, ScanLength::Asked) => bench.dataset.scan_length,
                    (None, ScanLength::Fixed(length)) => length,
                    (None, ScanLength::UpTo(most)) => self.rng.random_range(1..=most),
                };
                self.scan(record, length)
            }
            Operation::Rmw => {
                self.value.clear();
                self.read(record, true)?;
                let (source, key, value) = (&bench.dataset.source, &self.key, &mut self.value);
                match value.is_empty() {
                    true => source.value(record, key, source.length(record, key), &mut self.rng, value),
                    false => source.change(key, &mut self.rng, value),
                }
                self.put(record)
            }
            Operation::Merge => {
                self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
                bench.engine.merge(&self.key, &self.value)?;
                bench.dataset.written(record, &self.key);
                Ok(())
            }
            Operation::Delete => {
                bench.dataset.deleting(record, &self.key);
                self.tally.user_bytes_written += self.key.len() as u64;
                bench.engine.delete(&self.key)
            }
            Operation::Settle => bench.engine.settle(),
        }
    }

    fn put(&mut self, record: u64) -> Result<()> {
        self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
        self.bench.engine.put(&self.key, &self.value)?;
        self.bench.dataset.written(record, &self.key);
        Ok(())
    }

    fn read(&mut self, record: u64, keep: bool) -> Result<()> {
        let (bench, key, kept) = (self.bench, &self.key, &mut self.value);
        let must_exist = bench.dataset.presence.has(record);
        let (mut right, mut bytes) = (true, 0);
        let found = bench.engine.get(key, &mut |value| {
            right = bench.dataset.source.check(key, value);
            bytes = key.len() + value.len();
            if keep {
                kept.extend_from_slice(value);
            }
        })?;
        match (found, right) {
            (true, true) => {
                self.tally.values_read += 1;
                self.tally.user_bytes_read += bytes as u64;
            }
            (false, _) if !must_exist => self.tally.reads_missing += 1,
            (true, false) => {
                return Err(Failure::new(format!(
                    "the value read for record {record} belongs to another key or is damaged"
                )));
            }
            (false, _) => return Err(Failure::new(format!("record {record} was written but is not found"))),
        }
        Ok(())
    }

    fn scan(&mut self, record: u64, length: u64) -> Result<()> {
        let (bench, from, last) = (self.bench, &self.key, &mut self.last_key);
        let must_start_here = bench.dataset.presence.has(record);
        let (mut right, mut seen, mut bytes) = (true, 0, 0);
        last.clear();
        let found = bench.engine.scan(from, length, &mut |key, value| {
            let in_order = match seen {
                0 => key >= &from[..] && (!must_start_here || key == &from[..]),
                _ => key > &last[..],
            };
            right &= in_order && bench.dataset.source.check(key, value);
            seen += 1;
            bytes += key.len() + value.len();
            last.clear();
            last.extend_from_slice(key);
        })?;
        if !right || found != seen || found > length || (must_start_here && length > 0 && found == 0) {
            return Err(Failure::new(format!("the scan from record {record} returned wrong or unordered records")));
        }
        self.tally.values_read += found;
        self.tally.user_bytes_read += bytes as u64;
        Ok(())
    }
}

/// The record near `record` that belongs to a client, which is `own.0` of `own.1`. There are at least as many records as
/// clients.
fn nearest_own(record: u64, own: (u64, u64), records: u64) -> u64 {
    let (client, clients) = own;
    let near = record - record % clients + client;
    if near < records { near } else { near - clients }
}

#[cfg(test)]
#[path = "client_test.rs"]
mod tests;
