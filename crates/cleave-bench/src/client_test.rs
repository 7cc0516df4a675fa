use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use clap::Parser;
use rand::SeedableRng;

use super::*;
use crate::args::{Args, Command};
use crate::distribution::Distribution;
use crate::phase::Schedule;
use crate::workload;

/// The fault of the store.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Nothing,
    LosesWrites,
    ConfusesValues,
    TearsValues,
    ScansBackwards,
    FailsReads,
    FailsWrites,
}

/// A store in memory, with a fault in one of ten calls.
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
        let other = records.iter().find(|(other, _)| *other != key).filter(|_| self.is_now(Fault::ConfusesValues));
        let value = other.map(|(_, value)| value).or_else(|| records.get(key));
        let torn = value.filter(|_| self.is_now(Fault::TearsValues)).map(|value| &value[..value.len() - 1]);
        torn.or(value.map(|value| &value[..])).into_iter().for_each(read);
        Ok(value.is_some())
    }

    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        pairs.iter().try_for_each(|(key, value)| self.put(key, value))
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

/// Loads a store with `fault`, then reads, updates and scans it, with `batch` updates per commit.
fn outcome(fault: Fault, batch: u64) -> Result<Tally> {
    let args = Args::parse_from(["cleave-bench", "run", "--workload", "mixed:50", "--records", "200"]);
    let Command::Run(args) = args.command else { panic!("the command is `run`") };
    let mut mixed = workload::find("mixed:50").unwrap();
    // Only here, because a scan may find a fault before a read does, and reports it in other words.
    if matches!(fault, Fault::Nothing | Fault::ScansBackwards) {
        mixed.mix.push((Operation::Scan, 50));
    }
    let load = mixed.load();
    let schedule = Schedule::of("mixed:50", &args.shape).unwrap();
    let dataset = Dataset::new(&args.shape, &schedule).unwrap();
    let engine = Faulty { records: Mutex::default(), fault, calls: AtomicU64::new(0) };
    let share = Share { client: 0, clients: 1, operations: 200, pace: None };
    Client::new(&Bench::new(&engine, &load, &dataset, 1), Rng::seed_from_u64(1)).run(share)?;
    Client::new(&Bench::new(&engine, &mixed, &dataset, batch), Rng::seed_from_u64(2)).run(share)
}

/// `operations` updates, 4 per commit, of a store with `fault`, with the schedule of `rate`; and whether others stop.
fn in_batches(fault: Fault, operations: u64, rate: Option<f64>) -> (Result<Tally>, bool) {
    let args = Args::parse_from(["cleave-bench", "run", "--workload", "overwrite", "--records", "200"]);
    let Command::Run(args) = args.command else { panic!("the command is `run`") };
    let schedule = Schedule::of("overwrite", &args.shape).unwrap();
    let dataset = Dataset::new(&args.shape, &schedule).unwrap();
    let engine = Faulty { records: Mutex::default(), fault, calls: AtomicU64::new(0) };
    let bench = Bench::new(&engine, &schedule.data, &dataset, 4);
    let pace = rate.map(|rate| Pace::new(Instant::now(), rate, 1, 0, 1));
    let share = Share { client: 0, clients: 1, operations, pace };
    let outcome = Client::new(&bench, Rng::seed_from_u64(1)).run(share);
    (outcome, bench.stop.load(Ordering::Relaxed))
}

#[test]
fn a_commit_is_timed_from_when_its_first_write_was_due() {
    // An operation is due every 20 ms: 4 of a commit take 60 ms, and the 2 of the last commit 20 ms.
    let commits = in_batches(Fault::Nothing, 6, Some(50.0)).0.unwrap().latencies.all();
    assert!(commits.operations == 2 && commits.max >= 59_900.0 && commits.p50 >= 19_900.0, "{commits:?}");
}

#[test]
fn a_failing_commit_stops_all_clients_and_so_does_the_last_one() {
    for (operations, fails) in [(8, false), (9, false), (10, true), (12, true)] {
        let (outcome, stops) = in_batches(Fault::FailsWrites, operations, None);
        assert_eq!((outcome.is_err(), stops), (fails, fails), "{operations} operations");
    }
}

#[test]
fn live_bytes_are_those_of_the_records_in_the_store() {
    let arguments = ["cleave-bench", "run", "--workload", "mixed", "--records", "300", "--value-size", "9-90"];
    let Command::Run(args) = Args::parse_from(arguments).command else { panic!("the command is `run`") };
    let schedule = Schedule::of("mixed", &args.shape).unwrap();
    let dataset = Dataset::new(&args.shape, &schedule).unwrap();
    let engine = Faulty { records: Mutex::default(), fault: Fault::Nothing, calls: AtomicU64::new(0) };
    let work = |workload: &Workload, clients: u64, operations| {
        for client in 0..clients {
            let share = Share { client, clients, operations, pace: None };
            Client::new(&Bench::new(&engine, workload, &dataset, 1), Rng::seed_from_u64(client)).run(share).unwrap();
        }
        let records = engine.records.lock().unwrap();
        let bytes = records.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>() as u64;
        assert_eq!(dataset.live_bytes(), bytes);
        bytes
    };
    let loaded = work(&schedule.data.load(), 1, 300);
    assert_ne!(work(&schedule.data, 3, 2000), loaded);
    let deleted = work(&schedule.data.only(Operation::Delete, Distribution::Uniform), 2, 2000);
    assert!(deleted < loaded / 2, "{deleted} of {loaded}");
}

#[test]
fn the_records_of_clients_are_all_records_and_no_two_share_one() {
    for (records, clients) in [(100, 1), (100, 3), (3, 3), (101, 7)] {
        let mut owners = vec![None; records as usize];
        for client in 0..clients {
            for record in 0..records {
                let own = nearest_own(record, (client, clients), records);
                assert!(own.abs_diff(record) < clients, "{own} for {record}");
                assert_eq!(*owners[own as usize].get_or_insert(client), client);
            }
        }
        assert!(owners.iter().all(Option::is_some));
    }
}

#[test]
fn a_store_that_loses_fails_or_confuses_an_operation_fails_the_run() {
    let tally = outcome(Fault::Nothing, 1).unwrap();
    assert!(tally.values_read > 0 && tally.reads_missing == 0);
    assert!(tally.user_bytes_read >= tally.values_read * 1024);
    let batched = outcome(Fault::Nothing, 7).unwrap();
    assert_eq!(batched.user_bytes_written, tally.user_bytes_written);
    let commits = |tally: &Tally| tally.latencies.by_operation("")["update"].operations;
    assert_eq!(commits(&batched), commits(&tally).div_ceil(7));
    for (fault, sentence) in [
        (Fault::LosesWrites, "was written but is not found"),
        (Fault::ConfusesValues, "belongs to another key or is damaged"),
        (Fault::TearsValues, "belongs to another key or is damaged"),
        (Fault::ScansBackwards, "wrong or unordered records"),
        (Fault::FailsReads, "the store cannot read"),
        (Fault::FailsWrites, "the store cannot write"),
    ] {
        for batch in [1, 7] {
            let failure = outcome(fault, batch).err().map(|failure| failure.to_string()).unwrap_or_default();
            assert!(failure.contains(sentence), "{sentence}: {failure:?}");
        }
    }
}
