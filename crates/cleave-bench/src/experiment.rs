//! One run, in the process that was started for it: load, close, open again, let the clients work, flush, sync, count.

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cleave_sim::rng::Rng;
use serde_json::json;

use crate::client::{Bench, Client, Ground, Tally};
use crate::counters::{Counters, rss_peak_bytes, space_bytes};
use crate::distribution::Distribution;
use crate::engine::{Engine, Kind, Settings};
use crate::failure::{Failure, Result};
use crate::keys::Keys;
use crate::latency::Latencies;
use crate::pace::Pace;
use crate::plan::{Plan, Shape};
use crate::presence::Presence;
use crate::result::Outcome;
use crate::series::{self, Series};
use crate::size::Lengths;
use crate::values::Values;
use crate::workload::{self, Operation, Workload};
use crate::{cgroup, device, engines, machine};

/// Streams of random numbers: the load's, the clients', the background client's.
const STREAMS: [u64; 3] = [0x10AD << 32, 0xC11E << 32, 0xBACC << 32];

/// What clients did, together and over time.
#[derive(Default)]
struct Phase {
    tally: Tally,
    background: Latencies,
    series: Series,
    operations: u64,
    elapsed: Duration,
}

/// What is known of the run as a whole.
struct Whole {
    open_s: f64,
    elapsed_with_flush_s: f64,
    used: Counters,
    space_bytes: u64,
    rss_peak_bytes: u64,
}

/// Does what `plan` says.
///
/// # Errors
/// If the engine fails, or loses or mixes up a record.
pub fn run(plan: &Plan) -> Result<Outcome> {
    if let Some(dir) = &plan.cgroup {
        cgroup::enter(dir)?;
    }
    if let Some(dir) = device::cgroup_of(&plan.dir)? {
        cgroup::enter(&dir)?;
    }
    let shape = &plan.shape;
    let kind = engines::find(&plan.engine)?;
    let mut workload = workload::find(&plan.workload)?;
    workload.distribution = shape.distribution.unwrap_or(workload.distribution);
    let operations = shape.operations.unwrap_or_else(|| {
        let (numerator, denominator) = workload.operations;
        (shape.records * numerator / denominator).max(1)
    });
    let ground = ground(shape, &workload, operations);

    fs::create_dir_all(&plan.dir).map_err(Failure::because(format!("cannot create {}", plan.dir.display())))?;
    if workload.loaded {
        load(&kind, plan, &workload, &ground)?;
    }
    let opening = Instant::now();
    let engine = open(&kind, plan)?;
    let open_s = opening.elapsed().as_secs_f64();

    let before = Counters::now()?;
    let start = Instant::now();
    let title = format!("{} {}", plan.engine, plan.workload);
    let phase = work(&Bench::new(&*engine, &workload, &ground), plan, operations, STREAMS[1], title)?;
    engine.flush()?;
    engine.sync()?;
    let elapsed_with_flush_s = start.elapsed().as_secs_f64();
    let used = Counters::now()?.since(&before);

    let space_end = space_bytes(&plan.dir)?;
    if shape.verify {
        verify(&*engine, &ground)?;
    }
    engine.close()?;
    let whole = Whole { open_s, elapsed_with_flush_s, used, space_bytes: space_end, rss_peak_bytes: rss_peak_bytes()? };
    Ok(outcome(plan, &kind, &ground, &phase, &whole))
}

/// The records that `workload` works on. Every operation may insert one.
fn ground(shape: &Shape, workload: &Workload, operations: u64) -> Ground {
    let fixed = (Lengths::Fixed(shape.key_size), Lengths::Fixed(shape.value_size));
    let (key_lengths, value_lengths) = workload.lengths.unwrap_or(fixed);
    Ground {
        keys: Keys { order: workload.order, lengths: key_lengths },
        values: Values { lengths: value_lengths, compressibility: shape.compressibility },
        presence: Presence::new(shape.records + operations),
        records: shape.records,
        next_new: AtomicU64::new(0),
        acknowledged: AtomicU64::new(0),
        scan_length: shape.scan_length,
    }
}

/// Writes all records once, with as many clients as the run will have, and closes the store.
fn load(kind: &Kind, plan: &Plan, workload: &Workload, ground: &Ground) -> Result<()> {
    let mix = vec![(Operation::Insert, 1)];
    let load = Workload { mix, distribution: Distribution::Uniform, background: None, ..workload.clone() };
    let shape = Shape { rate: None, ..plan.shape.clone() };
    let plan = Plan { shape, ..plan.clone() };
    let engine = open(kind, &plan)?;
    let title = format!("{} loads", plan.engine);
    work(&Bench::new(&*engine, &load, ground), &plan, ground.records, STREAMS[0], title)?;
    engine.flush()?;
    engine.sync()?;
    engine.close()
}

fn outcome(plan: &Plan, kind: &Kind, ground: &Ground, phase: &Phase, whole: &Whole) -> Outcome {
    let (shape, used, tally, series) = (&plan.shape, &whole.used, &phase.tally, &phase.series);
    let elapsed_s = phase.elapsed.as_secs_f64();
    let mut latency_by_op = tally.latencies.by_operation("");
    latency_by_op.extend(phase.background.by_operation("-background"));
    let amplification = used.device_bytes_written as f64 / tally.user_bytes_written as f64;
    Outcome {
        engine: plan.engine.clone(),
        version: kind.version.to_owned(),
        workload: plan.workload.clone(),
        records: shape.records,
        operations: phase.operations,
        key_size: ground.keys.lengths.mean(),
        value_size: ground.values.lengths.mean(),
        threads: shape.threads,
        durability: shape.durability,
        memory_budget: shape.memory,
        ops_per_s: phase.operations as f64 / elapsed_s,
        ops_per_s_of_repeats: Vec::new(),
        elapsed_s,
        elapsed_with_flush_s: whole.elapsed_with_flush_s,
        open_s: whole.open_s,
        latency_us: tally.latencies.all(),
        latency_by_op,
        per_second: series.operations.clone(),
        cpu_per_second: series.counters.iter().map(|second| second.cpu_user_s + second.cpu_sys_s).collect(),
        device_bytes_written_per_second: series.counters.iter().map(|second| second.device_bytes_written).collect(),
        device_bytes_read_per_second: series.counters.iter().map(|second| second.device_bytes_read).collect(),
        stall_seconds: series.stall_seconds(phase.elapsed),
        longest_stall_s: series.longest_stall.as_secs_f64(),
        lowest_second: series.lowest_second(),
        cpu_user_s: used.cpu_user_s,
        cpu_sys_s: used.cpu_sys_s,
        cpu_s_per_million: (used.cpu_user_s + used.cpu_sys_s) * 1e6 / phase.operations as f64,
        device_bytes_written: used.device_bytes_written,
        device_bytes_read: used.device_bytes_read,
        user_bytes_written: tally.user_bytes_written,
        write_amplification: (tally.user_bytes_written > 0).then_some(amplification),
        values_read: tally.values_read,
        reads_missing: tally.reads_missing,
        space_bytes: whole.space_bytes,
        space_per_second: series.space_bytes.clone(),
        space_peak_bytes: series.space_bytes.iter().copied().fold(whole.space_bytes, u64::max),
        live_bytes: live_bytes(ground),
        rss_peak_bytes: whole.rss_peak_bytes,
        settings: json!({
            "options": shape,
            "cgroup_memory": plan.cgroup_memory,
            "merges": kind.merges,
            "notes": kind.notes,
            "machine": machine::describe(),
        }),
    }
}

fn open(kind: &Kind, plan: &Plan) -> Result<Box<dyn Engine>> {
    let settings = Settings {
        dir: plan.dir.clone(),
        memory: usize::try_from(plan.shape.memory).map_err(Failure::because("--memory"))?,
        background_threads: plan.shape.background_threads,
        durability: plan.shape.durability,
    };
    (kind.open)(&settings)
}

/// Lets the clients do `operations` between them.
fn work(bench: &Bench<'_>, plan: &Plan, operations: u64, stream: u64, title: String) -> Result<Phase> {
    let shape = &plan.shape;
    let bar = series::bar(title, operations);
    let start = Instant::now();
    let rng = |stream| Rng::of(shape.seed, stream);
    thread::scope(|scope| {
        let foreground = |client: u64| {
            let quota = operations / shape.threads + u64::from(client < operations % shape.threads);
            let pace = shape.rate.map(|rate| Pace::new(start, rate, shape.burst, client, shape.threads));
            let rng = rng(stream + client);
            scope.spawn(move || (Client::new(bench, rng).run(quota, pace), start.elapsed()))
        };
        let clients: Vec<_> = (0..shape.threads).map(foreground).collect();
        let background = bench.workload.background.map(|operation| {
            let pace = shape.background_rate.map(|rate| Pace::new(start, rate, 1, 0, 1));
            let rng = rng(STREAMS[2]);
            scope.spawn(move || Client::new(bench, rng).run_in_background(operation, pace))
        });

        let done = || bench.done.load(Ordering::Relaxed);
        let series = Series::watch(start, &plan.dir, &bar, done, || clients.iter().all(|client| client.is_finished()));
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

/// Reads everything: the store must have the records that were written and not deleted, and no other.
fn verify(engine: &dyn Engine, ground: &Ground) -> Result<()> {
    let Ground { keys, values, presence, .. } = ground;
    let mut right = true;
    let found = engine.scan(&[], u64::MAX, &mut |key, value| right &= values.check(key, value))?;
    let (mut key, mut expected) = (Vec::new(), 0);
    for record in presence.iter() {
        keys.write(record, &mut key);
        if !engine.get(&key, &mut |value| right &= values.check(&key, value))? {
            return Err(Failure::new(format!("record {record} was written and is not in the store")));
        }
        expected += 1;
    }
    match right && found == expected {
        true => Ok(()),
        false if right => Err(Failure::new(format!("the store has {found} records and must have {expected}"))),
        false => Err(Failure::new("a value in the store is not its key's")),
    }
}

fn live_bytes(ground: &Ground) -> u64 {
    let Ground { keys, values, presence, .. } = ground;
    if let (Lengths::Fixed(key), Lengths::Fixed(value)) = (keys.lengths, values.lengths) {
        return presence.iter().count() as u64 * (key + value) as u64;
    }
    let mut key = Vec::new();
    let mut bytes = 0;
    for record in presence.iter() {
        keys.write(record, &mut key);
        bytes += (key.len() + values.length(&key)) as u64;
    }
    bytes
}
