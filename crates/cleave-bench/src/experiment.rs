//! One run, in the process started for it: load, close, reopen, run the clients, flush, sync, collect the counters.

use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Bench, Client, Share, Tally};
use crate::counters::{Counters, Meter, rss_peak_bytes, space_bytes};
use crate::dataset::Dataset;
use crate::distribution::Distribution;
use crate::engine::{Engine, Kind, ValueSpace};
use crate::failure::{Failure, Result};
use crate::latency::Latencies;
use crate::pace::Pace;
use crate::plan::{Plan, Shape};
use crate::result::Outcome;
use crate::rng;
use crate::series::{self, Series, Spread};
use crate::workload::{self, Operation, Workload};
use crate::{engines, machine, recovery};

/// Random streams of the load, the clients, the background client, and the updates that age the store.
const STREAMS: [u64; 4] = [0x10AD << 32, 0xC11E << 32, 0xBACC << 32, 0xA6E5 << 32];

/// The work of all clients, in total and over time.
#[derive(Default)]
struct Phase {
    tally: Tally,
    background: Latencies,
    series: Series,
    operations: u64,
    elapsed: Duration,
}

/// Measurements of the whole run.
struct Whole {
    open_s: f64,
    elapsed_with_flush_s: f64,
    used: Counters,
    counted_by: &'static str,
    space_bytes: u64,
    value_space: Option<ValueSpace>,
    rss_peak_bytes: u64,
}

/// Executes `plan` and writes the outcome to `out`. With `--recover` it then keeps writing until the parent kills it.
///
/// # Errors
/// If the engine fails, or loses or confuses a record.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    let shape = &plan.shape;
    let kind = engines::find(&plan.engine)?;
    let mut workload = workload::find(&plan.workload)?;
    workload.distribution = shape.distribution.unwrap_or(workload.distribution);
    let dataset = Dataset::new(shape, &workload)?;
    let meter = Meter::new(&plan.dirs, plan.places.own_device)?;

    if workload.loaded {
        load(&kind, plan, &workload, &dataset, &meter)?;
    }
    let opening = Instant::now();
    let engine = (kind.open)(&plan.settings()?)?;
    let open_s = opening.elapsed().as_secs_f64();

    meter.settle(&plan.dirs)?;
    let before = meter.now()?;
    let start = Instant::now();
    let title = format!("{} {}", plan.engine, plan.workload);
    let phase = work(&Bench::new(&*engine, &workload, &dataset), plan, &meter, dataset.operations, STREAMS[1], title)?;
    engine.flush()?;
    engine.sync()?;
    let elapsed_with_flush_s = start.elapsed().as_secs_f64();
    meter.settle(&plan.dirs)?;
    let used = meter.now()?.since(&before);

    let (space_bytes, value_space) = (space_bytes(&plan.dirs)?, engine.value_space()?);
    if shape.verify {
        verify(&*engine, &dataset)?;
    }
    let kept = match plan.is_to_be_killed(phase.tally.user_bytes_written) {
        true => Some(engine),
        false => {
            engine.close()?;
            None
        }
    };
    let counted_by = meter.counted_by();
    let whole = Whole {
        open_s,
        elapsed_with_flush_s,
        used,
        counted_by,
        space_bytes,
        value_space,
        rss_peak_bytes: rss_peak_bytes()?,
    };
    let outcome = serde_json::to_string(&outcome(plan, &kind, &dataset, &phase, &whole)?);
    let outcome = outcome.map_err(Failure::because("cannot make JSON"))?;
    writeln!(out, "{outcome}").and_then(|()| out.flush()).map_err(Failure::because("cannot write the outcome"))?;
    kept.map_or(Ok(()), |engine| recovery::write_until_killed(&*engine, plan))
}

/// Writes all records once with the clients of the run, ages the store if requested, and closes it. Unless `--right-away`
/// is given, it waits for pending compactions first: they are not part of the run, and RocksDB keeps the inputs of a
/// compaction on disk for a long time.
fn load(kind: &Kind, plan: &Plan, workload: &Workload, dataset: &Dataset, meter: &Meter) -> Result<()> {
    let only = |operation, distribution| {
        let mix = vec![(operation, 1)];
        Workload { mix, distribution, background: None, ..workload.clone() }
    };
    let load = only(Operation::Insert, Distribution::Uniform);
    let shape = Shape { rate: None, ..plan.shape.clone() };
    let plan = Plan { shape, ..plan.clone() };
    let engine = (kind.open)(&plan.settings()?)?;
    let title = format!("{} load", plan.engine);
    work(&Bench::new(&*engine, &load, dataset), &plan, meter, dataset.records, STREAMS[0], title)?;
    if plan.shape.age > 0 {
        let updates = only(Operation::Update, plan.shape.distribution.unwrap_or(Distribution::YCSB));
        let (count, title) = (dataset.records.saturating_mul(plan.shape.age), format!("{} aging", plan.engine));
        work(&Bench::new(&*engine, &updates, dataset), &plan, meter, count, STREAMS[3], title)?;
    }
    engine.flush()?;
    if !plan.shape.right_away {
        engine.settle()?;
    }
    engine.sync()?;
    engine.close()
}

fn outcome(plan: &Plan, kind: &Kind, dataset: &Dataset, phase: &Phase, whole: &Whole) -> Result<Outcome> {
    let (shape, used, tally, series) = (&plan.shape, &whole.used, &phase.tally, &phase.series);
    let elapsed_s = phase.elapsed.as_secs_f64();
    let mut latency_by_op = tally.latencies.by_operation("");
    latency_by_op.extend(phase.background.by_operation("-background"));
    let amplification = |device: u64, user: u64| (user > 0).then(|| device as f64 / user as f64);
    let (key_size, value_size) = dataset.source.mean_lengths();
    Ok(Outcome {
        engine: plan.engine.clone(),
        version: kind.version.to_owned(),
        workload: plan.workload.clone(),
        records: dataset.records,
        operations: phase.operations,
        key_size,
        value_size,
        threads: shape.threads,
        durability: shape.durability,
        memory_budget: shape.memory,
        ops_per_s: phase.operations as f64 / elapsed_s,
        ops_per_s_of_repeats: Vec::new(),
        elapsed_s,
        elapsed_with_flush_s: whole.elapsed_with_flush_s,
        open_s: whole.open_s,
        recover_s: None,
        latency_us: tally.latencies.all(),
        latency_by_op,
        per_second: series.operations.clone(),
        cpu_per_second: series.counters.iter().map(|second| second.cpu_user_s + second.cpu_sys_s).collect(),
        device_bytes_written_per_second: series.counters.iter().map(|second| second.device_bytes_written).collect(),
        device_bytes_read_per_second: series.counters.iter().map(|second| second.device_bytes_read).collect(),
        disk_utilisation_per_second: series.disk_utilisation.clone(),
        disk_utilisation: Spread::of(&series.disk_utilisation),
        cpu_utilisation: Spread::of(&series.cpu_utilisation),
        counted_by: whole.counted_by.to_owned(),
        stall_seconds: series.stall_seconds(phase.elapsed),
        longest_stall_s: series.longest_stall.as_secs_f64(),
        lowest_second: series.lowest_second(),
        cpu_user_s: used.cpu_user_s,
        cpu_sys_s: used.cpu_sys_s,
        cpu_s_per_million: (used.cpu_user_s + used.cpu_sys_s) * 1e6 / phase.operations as f64,
        device_bytes_written: used.device_bytes_written,
        device_bytes_read: used.device_bytes_read,
        user_bytes_written: tally.user_bytes_written,
        write_amplification: amplification(used.device_bytes_written, tally.user_bytes_written),
        user_bytes_read: tally.user_bytes_read,
        read_amplification: amplification(used.device_bytes_read, tally.user_bytes_read),
        values_read: tally.values_read,
        reads_missing: tally.reads_missing,
        space_bytes: whole.space_bytes,
        space_per_second: series.space_bytes.clone(),
        space_peak_bytes: series.space_bytes.iter().copied().fold(whole.space_bytes, u64::max),
        live_bytes: dataset.live_bytes(),
        value_space: whole.value_space.clone(),
        rss_peak_bytes: whole.rss_peak_bytes,
        settings: settings_json(plan, kind)?,
    })
}

/// All options of the run, and notes for readers.
fn settings_json(plan: &Plan, kind: &Kind) -> Result<Value> {
    let mut options = json!(plan.shape);
    if let (Value::Object(options), Value::Object(places)) = (&mut options, json!(plan.places)) {
        options.extend(places);
    }
    let notes_of = (kind.notes_of)(&plan.settings()?);
    let notes: Vec<&str> = kind.notes.iter().copied().chain(notes_of).collect();
    Ok(json!({
        "options": options,
        "cgroup_memory": plan.cgroup_memory,
        "merges": kind.merges,
        "notes": notes,
        "machine": machine::describe(),
    }))
}

/// Runs the clients, which share `operations`.
fn work(bench: &Bench<'_>, plan: &Plan, meter: &Meter, operations: u64, stream: u64, title: String) -> Result<Phase> {
    let shape = &plan.shape;
    let bar = series::bar(title, operations);
    let start = Instant::now();
    let rng = |purpose| rng::stream(shape.seed, purpose);
    thread::scope(|scope| {
        let foreground = |client: u64| {
            let pace = match bench.dataset.source.trace() {
                Some(_) => (shape.rate_from_trace || shape.rate.is_some())
                    .then(|| Pace::of_trace(start, shape.rate, shape.burst)),
                None => shape.rate.map(|rate| Pace::new(start, rate, shape.burst, client, shape.threads)),
            };
            let (rng, share) = (rng(stream + client), Share { client, clients: shape.threads, operations, pace });
            scope.spawn(move || (Client::new(bench, rng).run(share), start.elapsed()))
        };
        let clients: Vec<_> = (0..shape.threads).map(foreground).collect();
        let background = bench.workload.background.map(|operation| {
            let pace = shape.background_rate.map(|rate| Pace::new(start, rate, 1, 0, 1));
            let rng = rng(STREAMS[2]);
            scope.spawn(move || Client::new(bench, rng).run_in_background(operation, pace))
        });

        let done = || bench.done.load(Ordering::Relaxed);
        let series =
            Series::watch(start, &plan.dirs, meter, &bar, done, || clients.iter().all(|client| client.is_finished()));
        bench.stop.store(true, Ordering::Relaxed);
        bar.finish_and_clear();
        let panicked = |_| Failure::new("a client panicked");
        let mut phase = Phase { operations, series: series?, ..Phase::default() };
        if let Some(background) = background {
            let tally = background.join().map_err(panicked)??;
            phase.tally.user_bytes_written += tally.user_bytes_written;
            phase.background = tally.latencies;
        }
        for client in clients {
            let (outcome, ended) = client.join().map_err(panicked)?;
            phase.tally.add(&outcome?);
            phase.elapsed = phase.elapsed.max(ended);
        }
        match done() == operations {
            true => Ok(phase),
            false => Err(Failure::new(format!("{} of {operations} operations were completed", done()))),
        }
    })
}

/// Reads the whole store and checks that it contains exactly the records that were written and not deleted.
fn verify(engine: &dyn Engine, dataset: &Dataset) -> Result<()> {
    let Dataset { source, presence, .. } = dataset;
    let mut right = true;
    let found = engine.scan(&[], u64::MAX, &mut |key, value| right &= source.check(key, value))?;
    let (mut key, mut expected) = (Vec::new(), 0);
    for record in presence.iter() {
        source.key(record, &mut key);
        if !engine.get(&key, &mut |value| right &= source.check(&key, value))? {
            return Err(Failure::new(format!("record {record} was written but is not in the store")));
        }
        expected += 1;
    }
    match right && found == expected {
        true => Ok(()),
        false if right => Err(Failure::new(format!("the store has {found} records, expected {expected}"))),
        false => Err(Failure::new("a value in the store belongs to another key or is damaged")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::engine::{Dirs, Merges};
    use crate::plan::Task;

    static PUTS: AtomicU64 = AtomicU64::new(0);
    static SETTLES: AtomicU64 = AtomicU64::new(0);

    /// A store that only counts writes.
    struct Counting;

    impl Engine for Counting {
        fn get(&self, _: &[u8], _: &mut dyn FnMut(&[u8])) -> Result<bool> {
            Ok(false)
        }

        fn put(&self, _: &[u8], _: &[u8]) -> Result<()> {
            PUTS.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn delete(&self, _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn merge(&self, _: &[u8], _: &[u8]) -> Result<()> {
            Ok(())
        }

        fn scan(&self, _: &[u8], _: u64, _: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
            Ok(0)
        }

        fn sync(&self) -> Result<()> {
            Ok(())
        }

        fn flush(&self) -> Result<()> {
            Ok(())
        }

        fn settle(&self) -> Result<()> {
            SETTLES.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn close(self: Box<Self>) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_load_writes_every_record_once_and_ages_the_store_by_whole_rounds() {
        let kind = Kind {
            name: "counting",
            version: "",
            merges: Merges::Native,
            notes: &[],
            notes_of: |_| Vec::new(),
            buffered_survives_kill: true,
            open: |_| Ok(Box::new(Counting)),
        };
        let dir = tempfile::tempdir().unwrap();
        let done_by = |more: &[&str]| {
            let args = ["cleave-bench", "run", "--workload", "readrandom", "--records", "70", "--threads", "2"];
            let Command::Run(args) = Args::parse_from(args.iter().chain(more)).command else {
                panic!("the command is `run`")
            };
            let plan = Plan {
                task: Task::Run,
                engine: kind.name.to_owned(),
                workload: "readrandom".to_owned(),
                dirs: Dirs { main: dir.path().to_owned(), fast: None, fast_bytes: None, slow: None },
                places: args.places,
                cgroup: None,
                cgroup_memory: None,
                shape: args.shape,
            };
            let workload = workload::find(&plan.workload).unwrap();
            let dataset = Dataset::new(&plan.shape, &workload).unwrap();
            let done = || (PUTS.load(Ordering::Relaxed), SETTLES.load(Ordering::Relaxed));
            let before = done();
            load(&kind, &plan, &workload, &dataset, &Meter::new(&plan.dirs, false).unwrap()).unwrap();
            (done().0 - before.0, done().1 - before.1)
        };
        assert_eq!([done_by(&[]), done_by(&["--age", "3"]), done_by(&["--right-away"])], [(70, 1), (280, 1), (70, 0)]);
    }
}
