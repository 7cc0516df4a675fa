//! One run, in the process started for it: open a store, loaded before if the first phase needs that, execute the phases one
//! right after the other, and collect the counters of each.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::client::{Bench, Client, Share, Tally};
use crate::counters::{Counters, Meter, forget_rss_peak, rss_bytes, rss_peak_bytes, space_bytes};
use crate::dataset::Dataset;
use crate::distribution::Distribution;
use crate::engine::{Engine, HostLink, Kind};
use crate::failure::{Failure, Result};
use crate::latency::{Latencies, Summary};
use crate::pace::Pace;
use crate::phase::Phase;
use crate::plan::{Plan, Shape};
use crate::redirects::Redirects;
use crate::result::{BACKGROUND, Outcome};
use crate::rng;
use crate::series::{self, Clock, Series, Spread};
use crate::usage::{Band, DeviceUse, DirectoryUse};
use crate::waiting::Waiting;
use crate::workload::{Operation, Workload};
use crate::{device, engines, machine, recovery, usage};

/// Random streams of the load, the clients, the background client, and the updates that age the store.
const STREAMS: [u64; 4] = [0x10AD << 32, 0xC11E << 32, 0xBACC << 32, 0xA6E5 << 32];
/// Random streams of one phase.
const STREAMS_PER_PHASE: u64 = 1 << 16;

/// The work that clients are given.
struct Job {
    /// Operations of all clients together.
    operations: u64,
    /// The time after which they stop in any case.
    limit: Option<Duration>,
    /// The random streams: an offset to those of the background client, and the first one of the clients.
    streams: (u64, u64),
    /// The text beside the progress bar.
    title: String,
}

/// The work that clients did, in total and over time.
#[derive(Default)]
struct Work {
    tally: Tally,
    background: Latencies,
    series: Series,
    operations: u64,
    elapsed: Duration,
}

/// The distributions of the latencies of one phase. A histogram takes 270 KB, so none outlives its phase: the memory of a long
/// run would grow with the number of its phases.
struct Distributions {
    all: Summary,
    by_operation: BTreeMap<String, Summary>,
    background: BTreeMap<String, Summary>,
}

impl Work {
    /// Takes the latencies out.
    fn take_distributions(&mut self) -> Distributions {
        let latencies = std::mem::take(&mut self.tally.latencies);
        Distributions {
            all: latencies.all(),
            by_operation: latencies.by_operation(""),
            background: std::mem::take(&mut self.background).by_operation(BACKGROUND),
        }
    }
}

/// Measurements of one phase.
struct Measured {
    work: Work,
    latencies: Distributions,
    elapsed_with_flush_s: f64,
    used: Counters,
    /// In the order of the directories.
    space_bytes: Vec<u64>,
    live_bytes: u64,
    rss_bytes: u64,
    rss_peak_bytes: u64,
    index_bytes_saved: u64,
}

/// An open store, and what all work on it shares.
struct Bed<'a> {
    plan: &'a Plan,
    engine: &'a dyn Engine,
    dataset: &'a Dataset,
    meter: &'a Meter,
}

/// Executes `plan` and writes the outcomes of its phases to `out`. With `--recover` it then keeps writing until the parent
/// kills it.
///
/// # Errors
/// If the engine fails, or loses or confuses a record.
pub fn run(plan: &Plan, out: &mut dyn Write) -> Result<()> {
    let kind = engines::find(&plan.engine)?;
    let schedule = plan.schedule()?;
    let dataset = Dataset::new(&plan.shape, &schedule)?;
    let meter = Meter::new(&plan.dirs, plan.places.own_device)?;
    let loaded = schedule.is_loaded_before().then_some(&schedule.data);
    let (engine, open_s, loaded_bytes) = open(&kind, plan, loaded, &dataset, &meter)?;
    let bed = Bed { plan, engine: &*engine, dataset: &dataset, meter: &meter };
    // Outcomes are made of the measurements afterwards, because nothing comes between two phases.
    let measured = (0..).zip(&schedule.phases).map(|(number, phase)| bed.measure(number, phase, schedule.is_flushed));
    let measured: Vec<Measured> = measured.collect::<Result<_>>()?;
    let value_space = engine.value_space()?;
    if plan.shape.verify {
        verify(&*engine, &dataset)?;
    }
    let device = engine.kv_device();
    let user_bytes: u64 = measured.iter().map(|measured| measured.work.tally.user_bytes_written).sum();
    let kept = match plan.is_to_be_killed(user_bytes) {
        true => Some(engine),
        false => {
            engine.close()?;
            None
        }
    };
    let mut outcomes = Vec::new();
    for (phase, measured) in schedule.phases.iter().zip(&measured) {
        let workload = phase.name.clone();
        outcomes.push(Outcome {
            workload,
            open_s,
            ..outcome(plan, &kind, &dataset, &meter, &phase.workload, measured)?
        });
    }
    if let Some(last) = outcomes.last_mut() {
        last.value_space = value_space;
        last.host_link = device.map(|device| HostLink::of(&*device, loaded_bytes + user_bytes));
    }
    let outcomes = serde_json::to_string(&outcomes).map_err(Failure::because("cannot make JSON"))?;
    writeln!(out, "{outcomes}").and_then(|()| out.flush()).map_err(Failure::because("cannot write the outcomes"))?;
    kept.map_or(Ok(()), |engine| recovery::write_until_killed(&*engine, plan))
}

/// Opens the store, with the records of `loaded` in it, and returns the seconds that the last open took, and the bytes that were loaded since. Between the load and
/// the run the store rests with `--at-rest`: it is flushed, settled and opened again.
fn open(
    kind: &Kind,
    plan: &Plan,
    loaded: Option<&Workload>,
    dataset: &Dataset,
    meter: &Meter,
) -> Result<(Box<dyn Engine>, f64, u64)> {
    let timed = || {
        let opening = Instant::now();
        let engine = (kind.open)(&plan.settings()?)?;
        Ok::<_, Failure>((engine, opening.elapsed().as_secs_f64()))
    };
    let (mut engine, mut open_s) = timed()?;
    if let Some(data) = loaded {
        let bytes = load(&*engine, plan, data, dataset, meter)?;
        if !plan.shape.at_rest {
            return Ok((engine, open_s, bytes));
        }
        rest(engine)?;
        (engine, open_s) = timed()?;
    }
    meter.settle(&plan.dirs)?;
    Ok((engine, open_s, 0))
}

/// Writes all records once with the clients of the run, and ages the store if requested. Returns the bytes written.
fn load(engine: &dyn Engine, plan: &Plan, data: &Workload, dataset: &Dataset, meter: &Meter) -> Result<u64> {
    let shape = Shape { rate: None, ..plan.shape.clone() };
    let plan = &Plan { shape, ..plan.clone() };
    let bed = Bed { plan, engine, dataset, meter };
    let job = |operations, stream, what| Job {
        operations,
        limit: None,
        streams: (0, stream),
        title: format!("{} {what}", plan.engine),
    };
    let mut bytes = bed.work(&data.load(), job(dataset.records, STREAMS[0], "load"))?.tally.user_bytes_written;
    if plan.shape.age > 0 {
        let updates = data.only(Operation::Update, plan.shape.distribution.unwrap_or(Distribution::YCSB));
        let aging = job(dataset.records.saturating_mul(plan.shape.age), STREAMS[3], "aging");
        bytes += bed.work(&updates, aging)?.tally.user_bytes_written;
    }
    Ok(bytes)
}

/// Flushes, settles and closes a store between its load and the run. It waits for pending compactions: they are not part of
/// the run, and RocksDB keeps the inputs of a compaction on disk for a long time.
fn rest(engine: Box<dyn Engine>) -> Result<()> {
    engine.flush()?;
    engine.settle()?;
    engine.sync()?;
    engine.close()
}

impl Bed<'_> {
    /// Executes phase `number`, and flushes and syncs the store as a part of it if `is_flushed`.
    fn measure(&self, number: u64, phase: &Phase, is_flushed: bool) -> Result<Measured> {
        let Bed { plan, engine, dataset, meter } = *self;
        if number > 0 {
            forget_rss_peak();
        }
        let stream = number * STREAMS_PER_PHASE;
        let job = Job {
            operations: dataset.operations(&phase.workload),
            limit: phase.limit,
            streams: (stream, STREAMS[1] + stream),
            title: format!("{} {}", plan.engine, phase.name),
        };
        let before = meter.now()?;
        let saved_before = engine.index_bytes_saved();
        let start = Instant::now();
        let mut work = self.work(&phase.workload, job)?;
        let mut elapsed_with_flush_s = work.elapsed.as_secs_f64();
        if is_flushed {
            engine.flush()?;
            engine.sync()?;
            elapsed_with_flush_s = start.elapsed().as_secs_f64();
            meter.settle(&plan.dirs)?;
        }
        Ok(Measured {
            latencies: work.take_distributions(),
            work,
            elapsed_with_flush_s,
            used: meter.now()?.since(&before),
            space_bytes: space_bytes(&plan.dirs)?,
            live_bytes: dataset.live_bytes(),
            rss_bytes: rss_bytes()?,
            rss_peak_bytes: rss_peak_bytes()?,
            index_bytes_saved: engine.index_bytes_saved() - saved_before,
        })
    }

    /// Runs the clients of `workload`, which share the operations of `job`.
    fn work(&self, workload: &Workload, job: Job) -> Result<Work> {
        let Bed { plan, engine, dataset, meter } = *self;
        let shape = &plan.shape;
        let bench = &Bench::new(engine, workload, dataset, shape.batch);
        let bar = series::bar(job.title, job.operations);
        let start = Instant::now();
        let rng = |purpose| rng::stream(shape.seed, purpose);
        let bursts = shape.bursts.filter(|_| shape.rate.is_some());
        thread::scope(|scope| {
            let foreground = |client: u64| {
                let paced = match dataset.source.trace() {
                    Some(_) => (shape.rate_from_trace || shape.rate.is_some())
                        .then(|| Pace::of_trace(start, shape.rate, shape.burst)),
                    None => shape.rate.map(|rate| Pace::new(start, rate, shape.burst, client, shape.threads)),
                };
                let pace = paced.map(|pace| pace.only_in(bursts));
                let share = Share { client, clients: shape.threads, operations: job.operations, pace };
                let rng = rng(job.streams.1 + client);
                scope.spawn(move || (Client::new(bench, rng).run(share), start.elapsed()))
            };
            let clients: Vec<_> = (0..shape.threads).map(foreground).collect();
            let background = workload.background.map(|operation| {
                let pace = shape.background_rate.map(|rate| Pace::new(start, rate, 1, 0, 1));
                let rng = rng(STREAMS[2] + job.streams.0);
                scope.spawn(move || Client::new(bench, rng).run_in_background(operation, pace))
            });

            let done = || bench.done.load(Ordering::Relaxed);
            let is_late = || job.limit.is_some_and(|limit| start.elapsed() >= limit);
            let is_finished = || {
                if is_late() {
                    bench.stop.store(true, Ordering::Relaxed);
                }
                clients.iter().all(|client| client.is_finished())
            };
            let background_writes = workload.background.is_some_and(|operation| operation != Operation::Read);
            let writers = shape.threads + u64::from(background_writes);
            let clock = Clock { start, bursts, writers };
            let series = Series::watch(clock, &plan.dirs, meter, engine, &bar, done, is_finished);
            bench.stop.store(true, Ordering::Relaxed);
            bar.finish_and_clear();
            let panicked = |_| Failure::new("a client panicked");
            let mut work = Work { operations: done(), series: series?, ..Work::default() };
            if let Some(background) = background {
                let tally = background.join().map_err(panicked)??;
                work.tally.user_bytes_written += tally.user_bytes_written;
                work.background = tally.latencies;
            }
            for client in clients {
                let (outcome, ended) = client.join().map_err(panicked)?;
                work.tally.add(&outcome?);
                work.elapsed = work.elapsed.max(ended);
            }
            match work.operations == job.operations || is_late() {
                true => Ok(work),
                false => {
                    Err(Failure::new(format!("{} of {} operations were completed", work.operations, job.operations)))
                }
            }
        })
    }
}

/// The outcome of one phase; its name, the time to open the store and the space of values are left out.
fn outcome(
    plan: &Plan,
    kind: &Kind,
    dataset: &Dataset,
    meter: &Meter,
    workload: &Workload,
    measured: &Measured,
) -> Result<Outcome> {
    let (shape, used, work) = (&plan.shape, &measured.used, &measured.work);
    let (tally, series) = (&work.tally, &work.series);
    let elapsed_s = work.elapsed.as_secs_f64();
    let Distributions { all: latency, by_operation, background } = &measured.latencies;
    let background_operations: u64 = background.values().map(|summary| summary.operations).sum();
    let mut latency_by_op = by_operation.clone();
    latency_by_op.extend(background.clone());
    // One sample of a commit stands for many operations, and one of a read for one.
    let has_mixed_samples = shape.batch > 1 && workload.is_partly_batched();
    let amplification = |device: u64, user: u64| (user > 0).then(|| device as f64 / user as f64);
    let (key_size, value_size) = dataset.source.mean_lengths();
    let of_device = |device: &DeviceUse| DeviceUse { busy: Band::of(&device.busy_per_second), ..device.clone() };
    let devices: Vec<DeviceUse> = series.devices.iter().map(of_device).collect();
    let disk_utilisation = usage::busiest_device(&devices);
    let busier = usage::busier(&series.cpu_utilisation, &devices);
    let (space_bytes, space_per_second) = (measured.space_bytes.iter().sum(), series.space_bytes());
    let directories = directories(series, &measured.space_bytes);
    let limits = device::limits_of(plan.dirs.slow.as_ref().unwrap_or(&plan.dirs.main))?;
    Ok(Outcome {
        engine: plan.engine.clone(),
        version: kind.version.to_owned(),
        workload: String::new(),
        records: dataset.records,
        operations: work.operations,
        key_size,
        value_size,
        threads: shape.threads,
        durability: shape.durability,
        memory_budget: shape.memory,
        ops_per_s: work.operations as f64 / elapsed_s,
        ops_per_s_of_repeats: Vec::new(),
        background_ops_per_s: (background_operations > 0).then(|| background_operations as f64 / elapsed_s),
        elapsed_s,
        elapsed_with_flush_s: measured.elapsed_with_flush_s,
        open_s: 0.0,
        recover_s: None,
        latency_us: (!has_mixed_samples).then(|| latency.clone()),
        latency_by_op,
        per_second: series.operations.clone(),
        cpu_per_second: series.counters.iter().map(|second| second.cpu_user_s + second.cpu_sys_s).collect(),
        device_bytes_written_per_second: series.counters.iter().map(|second| second.device_bytes_written).collect(),
        device_bytes_read_per_second: series.counters.iter().map(|second| second.device_bytes_read).collect(),
        disk_utilisation: Spread::of(&disk_utilisation),
        disk_utilisation_per_second: disk_utilisation,
        devices,
        busier: Band::of(&busier),
        busier_per_second: busier,
        tuning: series.tuning.clone(),
        jobs: series.jobs.clone(),
        waiting: series
            .waits
            .as_ref()
            .and_then(|waits| Waiting::of(waits, &series.devices, limits.as_ref(), series.bursts)),
        redirects: series.bypass.as_ref().and_then(|bypass| Redirects::of(bypass, &series.devices)),
        host_link: None,
        cpu_utilisation: Spread::of(&series.cpu_utilisation),
        cpu_utilisation_band: Band::of(&series.cpu_utilisation),
        counted_by: meter.counted_by().to_owned(),
        stall_seconds: series.stall_seconds(work.elapsed),
        longest_stall_s: series.longest_stall.as_secs_f64(),
        lowest_second: series.lowest_second(),
        cpu_user_s: used.cpu_user_s,
        cpu_sys_s: used.cpu_sys_s,
        cpu_s_per_million: (used.cpu_user_s + used.cpu_sys_s) * 1e6 / work.operations as f64,
        device_bytes_written: used.device_bytes_written,
        device_bytes_read: used.device_bytes_read,
        index_bytes_saved: measured.index_bytes_saved,
        user_bytes_written: tally.user_bytes_written,
        write_amplification: amplification(used.device_bytes_written, tally.user_bytes_written),
        user_bytes_read: tally.user_bytes_read,
        read_amplification: amplification(used.device_bytes_read, tally.user_bytes_read),
        values_read: tally.values_read,
        reads_missing: tally.reads_missing,
        space_bytes,
        space_peak_bytes: space_per_second.iter().copied().fold(space_bytes, u64::max),
        space_per_second,
        directories,
        fast_peak_bytes: series.fast_bytes_max,
        live_bytes: measured.live_bytes,
        value_space: None,
        rss_peak_bytes: measured.rss_peak_bytes,
        memory_peak: series.memory_max,
        rss_bytes: measured.rss_bytes,
        rss_per_second: series.rss.clone(),
        settings: settings_json(plan, kind)?,
    })
}

/// The space in each directory, which ends with `bytes`.
fn directories(series: &Series, bytes: &[u64]) -> Vec<DirectoryUse> {
    let mut directories = series.directories.clone();
    for (directory, &bytes) in directories.iter_mut().zip(bytes) {
        directory.end_with(bytes);
        if directory.directory == "fast" {
            directory.bytes_peak = directory.bytes_peak.max(series.fast_bytes_max.unwrap_or(0));
        }
    }
    directories
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
        "commit": machine::COMMIT,
    }))
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
    static OPENS: AtomicU64 = AtomicU64::new(0);

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

        fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
            PUTS.fetch_add(pairs.len() as u64, Ordering::Relaxed);
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
            direct_io: false,
            buffered_survives_kill: true,
            open: |_| {
                OPENS.fetch_add(1, Ordering::Relaxed);
                Ok(Box::new(Counting))
            },
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
            let schedule = plan.schedule().unwrap();
            let dataset = Dataset::new(&plan.shape, &schedule).unwrap();
            let done = || [&PUTS, &SETTLES, &OPENS].map(|count| count.load(Ordering::Relaxed));
            let before = done();
            let meter = Meter::new(&plan.dirs, false).unwrap();
            open(&kind, &plan, Some(&schedule.data), &dataset, &meter).unwrap();
            let after = done();
            [0, 1, 2].map(|count| after[count] - before[count])
        };
        assert_eq!([done_by(&[]), done_by(&["--right-away"])], [[70, 0, 1]; 2]);
        let aged = ["--at-rest", "--age", "3", "--batch", "32"];
        assert_eq!([done_by(&["--at-rest"]), done_by(&aged)], [[70, 1, 2], [280, 1, 2]]);
    }
}
