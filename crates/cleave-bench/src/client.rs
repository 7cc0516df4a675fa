//! A client: draws operations (or takes them from a trace), does them one after the other, checks what it reads and times
//! what it does. All clients of a run share one `Bench`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use rand::RngExt;
use rand::distr::Distribution as _;
use rand::distr::weighted::WeightedIndex;

use crate::distribution::Chooser;
use crate::engine::Engine;
use crate::failure::{Failure, Result};
use crate::ground::Ground;
use crate::latency::Latencies;
use crate::pace::{Pace, wait_until};
use crate::rng::Rng;
use crate::trace::Trace;
use crate::workload::{Operation, ScanLength, Workload};

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
    /// Bytes of their keys and of themselves.
    pub user_bytes_read: u64,
    /// Reads of records that were not there, and need not be.
    pub reads_missing: u64,
}

impl Tally {
    /// Adds what another client did.
    pub fn add(&mut self, other: &Tally) {
        self.latencies.add(&other.latencies);
        self.user_bytes_written += other.user_bytes_written;
        self.values_read += other.values_read;
        self.user_bytes_read += other.user_bytes_read;
        self.reads_missing += other.reads_missing;
    }
}

/// A client's part of the operations.
#[derive(Clone, Copy)]
pub struct Share {
    /// Which client it is.
    pub client: u64,
    /// Of how many.
    pub clients: u64,
    /// What they do between them.
    pub operations: u64,
    /// When each operation is due; none: when the one before has ended.
    pub pace: Option<Pace>,
}

/// What to do next.
struct Errand {
    operation: Operation,
    record: u64,
    /// Bytes of a value that is written, records of a scan; none: as usual.
    length: Option<usize>,
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

    /// Does its share of the workload's mix, or of the trace.
    ///
    /// # Errors
    /// The first operation that the store failed or answered wrongly; the other clients stop too.
    pub fn run(mut self, share: Share) -> Result<Tally> {
        share.pace.iter().for_each(Pace::settle);
        match self.bench.ground.source.trace() {
            Some(trace) => self.replay(trace, share)?,
            None => self.draw(share)?,
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
            let errand = self.choose(operation);
            self.step(&errand, pace.map(|pace| pace.due(number)))?;
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(self.tally)
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
            let errand = self.choose(operation);
            self.step(&errand, share.pace.map(|pace| pace.due(number)))?;
            self.bench.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn replay(&mut self, trace: &Trace, share: Share) -> Result<()> {
        for (position, event) in trace.of_client(share.client, share.clients) {
            if self.bench.stop.load(Ordering::Relaxed) {
                break;
            }
            let length = Some(event.length).filter(|&length| event.operation != Operation::Scan || length > 0);
            let errand = Errand { operation: event.operation, record: event.record, length };
            self.step(&errand, share.pace.map(|pace| pace.due_of(position, event.at)))?;
            self.bench.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn step(&mut self, errand: &Errand, due: Option<Instant>) -> Result<()> {
        self.prepare(errand);
        let start = due.map_or_else(Instant::now, wait_until);
        let outcome = self.perform(errand);
        self.tally.latencies.record(errand.operation, start.elapsed());
        if outcome.is_err() {
            self.bench.stop.store(true, Ordering::Relaxed);
        }
        outcome
    }

    /// Chooses the record that `operation` falls on.
    fn choose(&mut self, operation: Operation) -> Errand {
        let ground = self.bench.ground;
        let record = match operation {
            Operation::Insert => ground.next_new.fetch_add(1, Ordering::Relaxed),
            _ => {
                let records = ground.records.max(ground.acknowledged.load(Ordering::Relaxed));
                self.chooser.choose(records, &mut self.rng)
            }
        };
        Errand { operation, record, length: None }
    }

    /// Makes the key, and what is to be written.
    fn prepare(&mut self, errand: &Errand) {
        let Client { bench, rng, key, value, .. } = self;
        let (source, record) = (&bench.ground.source, errand.record);
        source.key(record, key);
        let length = |key: &[u8]| errand.length.unwrap_or_else(|| source.length(record, key));
        match errand.operation {
            Operation::Update | Operation::Insert => source.value(record, key, length(key), rng, value),
            Operation::Merge => {
                let is_there = bench.ground.presence.has(record);
                source.operand(key, length(key), is_there, rng, value);
            }
            Operation::Read | Operation::Scan | Operation::Rmw | Operation::Delete => {}
        }
    }

    fn perform(&mut self, errand: &Errand) -> Result<()> {
        let (bench, record) = (self.bench, errand.record);
        match errand.operation {
            Operation::Read => self.read(record, false),
            Operation::Update => self.put(record),
            Operation::Insert => {
                self.put(record)?;
                bench.ground.acknowledge();
                Ok(())
            }
            Operation::Scan => {
                let length = match (errand.length, bench.workload.scan) {
                    (Some(length), _) => length as u64,
                    (None, ScanLength::Asked) => bench.ground.scan_length,
                    (None, ScanLength::Fixed(length)) => length,
                    (None, ScanLength::UpTo(most)) => self.rng.random_range(1..=most),
                };
                self.scan(record, length)
            }
            Operation::Rmw => {
                self.value.clear();
                self.read(record, true)?;
                let (source, key, value) = (&bench.ground.source, &self.key, &mut self.value);
                match value.is_empty() {
                    true => source.value(record, key, source.length(record, key), &mut self.rng, value),
                    false => source.change(key, &mut self.rng, value),
                }
                self.put(record)
            }
            Operation::Merge => {
                self.tally.user_bytes_written += (self.key.len() + self.value.len()) as u64;
                bench.engine.merge(&self.key, &self.value)?;
                bench.ground.presence.set(record);
                Ok(())
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
        let (mut right, mut bytes) = (true, 0);
        let found = bench.engine.get(key, &mut |value| {
            right = bench.ground.source.check(key, value);
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
            (false, _) if !must_be_there => self.tally.reads_missing += 1,
            (true, false) => return Err(Failure::new(format!("the value read for record {record} is not its own"))),
            (false, _) => return Err(Failure::new(format!("record {record} was written and is not found"))),
        }
        Ok(())
    }

    fn scan(&mut self, record: u64, length: u64) -> Result<()> {
        let (bench, from, last) = (self.bench, &self.key, &mut self.last_key);
        let must_start_here = bench.ground.presence.has(record);
        let (mut right, mut seen, mut bytes) = (true, 0, 0);
        last.clear();
        let found = bench.engine.scan(from, length, &mut |key, value| {
            let in_order = match seen {
                0 => key >= &from[..] && (!must_start_here || key == &from[..]),
                _ => key > &last[..],
            };
            right &= in_order && bench.ground.source.check(key, value);
            seen += 1;
            bytes += key.len() + value.len();
            last.clear();
            last.extend_from_slice(key);
        })?;
        if !right || found != seen || found > length || (must_start_here && length > 0 && found == 0) {
            return Err(Failure::new(format!("the scan from record {record} gave wrong or unordered records")));
        }
        self.tally.values_read += found;
        self.tally.user_bytes_read += bytes as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Mutex, PoisonError};

    use clap::Parser;
    use rand::SeedableRng;

    use super::*;
    use crate::args::{Args, Command};
    use crate::workload;

    /// What is wrong with the store.
    #[derive(Clone, Copy, PartialEq)]
    enum Fault {
        Nothing,
        LosesWrites,
        MixesUpValues,
        TearsValues,
        ScansBackwards,
        FailsReads,
        FailsWrites,
    }

    /// A store in memory, with a fault that shows now and then.
    struct Faulty {
        records: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
        fault: Fault,
        calls: AtomicU64,
    }

    impl Faulty {
        fn is_now(&self, fault: Fault) -> bool {
            self.fault == fault && self.calls.fetch_add(1, Ordering::Relaxed) % 10 == 9
        }
    }

    impl Engine for Faulty {
        fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool> {
            if self.is_now(Fault::FailsReads) {
                return Err(Failure::new("the store cannot read"));
            }
            let records = self.records.lock().unwrap_or_else(PoisonError::into_inner);
            let other = records.iter().find(|(other, _)| *other != key).filter(|_| self.is_now(Fault::MixesUpValues));
            let value = other.map(|(_, value)| value).or_else(|| records.get(key));
            let torn = value.filter(|_| self.is_now(Fault::TearsValues)).map(|value| &value[..value.len() - 1]);
            torn.or(value.map(|value| &value[..])).into_iter().for_each(read);
            Ok(value.is_some())
        }

        fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
            if self.is_now(Fault::FailsWrites) {
                return Err(Failure::new("the store cannot write"));
            }
            if !self.is_now(Fault::LosesWrites) {
                self.records.lock().unwrap().insert(key.to_vec(), value.to_vec());
            }
            Ok(())
        }

        fn delete(&self, key: &[u8]) -> Result<()> {
            self.records.lock().unwrap().remove(key);
            Ok(())
        }

        fn merge(&self, _: &[u8], _: &[u8]) -> Result<()> {
            Err(Failure::new("the store has no merge"))
        }

        fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
            let records = self.records.lock().unwrap();
            let mut found: Vec<_> = records.range(from.to_vec()..).take(count as usize).collect();
            if self.is_now(Fault::ScansBackwards) {
                found.reverse();
            }
            found.iter().for_each(|(key, value)| read(key, value));
            Ok(found.len() as u64)
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    /// Loads and reads, updates and scans a store with `fault`.
    fn outcome(fault: Fault) -> Result<Tally> {
        let args = Args::parse_from(["cleave-bench", "run", "--workload", "mixed:50", "--records", "200"]);
        let Command::Run(args) = args.command else { panic!("the command is `run`") };
        let mut mixed = workload::find("mixed:50").unwrap();
        mixed.mix.push((Operation::Scan, 50));
        let load = workload::find("fillseq").unwrap();
        let load = Workload { order: mixed.order, ..load };
        let ground = Ground::new(&args.shape, &mixed).unwrap();
        let engine = Faulty { records: Mutex::default(), fault, calls: AtomicU64::new(0) };
        let share = Share { client: 0, clients: 1, operations: 200, pace: None };
        Client::new(&Bench::new(&engine, &load, &ground), Rng::seed_from_u64(1)).run(share)?;
        Client::new(&Bench::new(&engine, &mixed, &ground), Rng::seed_from_u64(2)).run(share)
    }

    #[test]
    fn a_store_that_loses_fails_or_mixes_up_an_operation_fails_the_run() {
        let tally = outcome(Fault::Nothing).unwrap();
        assert!(tally.values_read > 0 && tally.reads_missing == 0);
        assert!(tally.user_bytes_read >= tally.values_read * 1024);
        for (fault, sentence) in [
            (Fault::LosesWrites, "was written and is not found"),
            (Fault::MixesUpValues, "is not its own"),
            (Fault::TearsValues, "is not its own"),
            (Fault::ScansBackwards, "wrong or unordered records"),
            (Fault::FailsReads, "the store cannot read"),
            (Fault::FailsWrites, "the store cannot write"),
        ] {
            let failure = outcome(fault).err().map(|failure| failure.to_string()).unwrap_or_default();
            assert!(failure.contains(sentence), "{sentence}: {failure:?}");
        }
    }
}
