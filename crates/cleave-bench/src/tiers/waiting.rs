//! The set `waiting`: how much of the slow device is unused while writers wait (issue 21). Each engine, with each number of
//! background threads, first writes in a closed loop, which is the rate that it sustains, and then in bursts at three times that rate.

use std::io::{self, Write};

use serde_json::json;

use super::{Results, Sizes, of};
use crate::args::{self, Run};
use crate::engine::{NO_SLOWDOWN, OURS};
use crate::failure::{Failure, Result};
use crate::label::VARIANT;
use crate::pace::Bursts;
use crate::peak::{PEAK, Peak, PeakShare, ROCKSDB};
use crate::plan::{Places, Shape};
use crate::result::Outcome;
use crate::size::Lengths;
use crate::{engines, suite, table};

/// KVAccel's writes.
const WORKLOAD: &str = "kvaccel-a";
/// Bytes of a key and of a value, as in the paper.
const RECORD: [usize; 2] = [4, 4096];
/// Records, and with `--quick`.
const RECORDS: [u64; 2] = [500_000, 20_000];
/// The bursts in seconds, and with `--quick`.
const BURSTS: [&str; 2] = ["20,40", "2,1"];
/// A run has this many of them.
const BURSTS_OF_A_RUN: u32 = 3;
/// The rate in a burst, in percent of the rate that is sustained.
const PERCENT: f64 = 300.0;

/// What all runs have in common.
pub fn shape(args: &args::Tiers, sizes: &Sizes) -> Shape {
    let quick = usize::from(args.quick);
    let usual: Bursts = BURSTS[quick].parse().expect("the bursts in this file are valid");
    let bursts = args.bursts.unwrap_or(usual);
    let seconds = args.phase_seconds.unwrap_or((bursts.period() * BURSTS_OF_A_RUN).as_secs_f64());
    let records = args.records.unwrap_or(RECORDS[quick]);
    Shape {
        // The time ends the run.
        operations: Some(u64::from(u32::MAX)),
        key_size: Lengths::Fixed(RECORD[0]),
        value_size: Lengths::Fixed(RECORD[1]),
        bursts: Some(bursts),
        phase_seconds: Some(seconds),
        threads: 1,
        ..sizes.shape(records)
    }
}

/// The engines that were asked for, RocksDB also without slowdown.
fn engines_of(asked: &[String]) -> Vec<String> {
    let mut engines: Vec<String> = Vec::new();
    for engine in asked {
        let without = (engine == ROCKSDB).then(|| NO_SLOWDOWN.to_owned());
        for name in std::iter::once(engine.clone()).chain(without) {
            if !engines.contains(&name) {
                engines.push(name);
            }
        }
    }
    engines
}

/// Runs all engines with all numbers of threads, and prints the table. Returns the median runs.
pub fn bursts(shape: &Shape, places: &Places, results: &Results<'_>, out: &mut dyn Write) -> Result<Vec<Outcome>> {
    let engines = engines_of(&results.args.engine);
    engines.iter().try_for_each(|engine| engines::find(engine).map(drop))?;
    let mut outcomes: Vec<Outcome> = Vec::new();
    for &background_threads in &results.args.background_threads {
        for engine in &engines {
            let run = cell(engine, Shape { background_threads, ..shape.clone() }, places);
            run.shape.check()?;
            let mut repeats = Vec::new();
            for _ in 0..results.args.repeat.unwrap_or(1) {
                repeats.extend(suite::measure(&run)?);
            }
            let variant = format!("background threads {background_threads}");
            outcomes.extend(suite::median(repeats));
            if let Some(outcome) = outcomes.last_mut() {
                outcome.settings[VARIANT] = json!(variant);
            }
            results.write(&outcomes)?;
        }
    }
    print(&outcomes, out).map_err(Failure::because("cannot write the table"))?;
    Ok(outcomes)
}

/// One engine with one number of threads.
fn cell(engine: &str, shape: Shape, places: &Places) -> Run {
    let rate_of = Some(PeakShare { percent: PERCENT, engine: engine.to_owned() });
    Run { rate_of, ..of(vec![engine.to_owned()], &[WORKLOAD], shape, places) }
}

fn print(outcomes: &[Outcome], out: &mut dyn Write) -> io::Result<()> {
    writeln!(
        out,
        "\nBursts at three times the rate that each engine sustains; on: seconds with load or waits; waiting: those in which writers \
         waited for at least 10 ms; used: the mean share of the slow device's capacity in waiting seconds, and below: the share of them that \
         used less"
    )?;
    #[rustfmt::skip]
    let titles = [
        "engine", "values", "capacity", "threads", "rate/s", "ops/s", "p99.9 ms", "lowest s", "on", "waiting", "waiting %", "used %", "busy %",
        "a second", "below 50%", "below 10%",
    ];
    let mut cells = vec![titles.map(str::to_owned).to_vec()];
    cells.extend(outcomes.iter().map(row));
    table::grid(&cells, 3, out)?;
    writeln!(out)?;
    table::footer(outcomes, out)?;
    out.flush()
}

fn row(outcome: &Outcome) -> Vec<String> {
    let values = if [OURS, "blobdb"].contains(&&*outcome.engine) { "apart" } else { "inline" };
    let peak: Option<Peak> = serde_json::from_value(outcome.settings[PEAK].clone()).ok();
    let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |value| format!("{value:.digits$}"));
    let threads = outcome.settings["options"]["background_threads"].to_string();
    let waiting = outcome.waiting.as_ref();
    let seconds = waiting.map_or(["-".to_owned(), "-".to_owned()], |waiting| {
        [waiting.seconds, waiting.waiting_seconds].map(|seconds| seconds.to_string())
    });
    let figures = waiting.map_or_else(|| std::array::from_fn(|_| "-".to_owned()), |waiting| waiting.cells());
    let start = [
        outcome.engine.clone(),
        values.to_owned(),
        waiting.map_or("-", |waiting| waiting.capacity_of.words()).to_owned(),
        threads,
        number(peak.map(|peak| peak.rate()), 0),
        number(Some(outcome.ops_per_s), 0),
        number(outcome.latency_us.as_ref().map(|latency| latency.p999 / 1e3), 1),
        outcome.lowest_second.to_string(),
    ];
    start.into_iter().chain(seconds).chain(figures).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::phase::Schedule;

    fn tiers(options: &[&str]) -> args::Tiers {
        match Args::parse_from([&["cleave-bench", "tiers", "--sets", "waiting"], options].concat()).command {
            Command::Tiers(args) => args,
            _ => panic!("the command is `tiers`"),
        }
    }

    #[test]
    fn a_run_is_three_bursts_at_three_times_the_rate_of_the_same_engine() {
        for (options, bursts, seconds) in [
            (&[][..], "20,40", 180.0),
            (&["--bursts", "5,10"], "5,10", 45.0),
            (&["--bursts", "5,10", "--phase-seconds", "20"], "5,10", 20.0),
            (&["--quick"], "2,1", 9.0),
        ] {
            let args = tiers(options);
            let shape = shape(&args, &Sizes::of(&args));
            shape.check().unwrap();
            let words = shape.bursts.map(|bursts| bursts.to_string());
            assert_eq!((words.as_deref(), shape.phase_seconds), (Some(bursts), Some(seconds)));
            let run = cell("cleave-inline", shape, &Places::default());
            assert!(Schedule::of(WORKLOAD, &run.shape).unwrap().phases[0].limit.is_some());
            assert_eq!(run.rate_of.unwrap().to_string(), "300%:cleave-inline");
        }
    }

    #[test]
    fn rocksdb_runs_with_and_without_slowdown() {
        let args = tiers(&[]);
        assert_eq!(args.background_threads, [1, 2, 4]);
        let all = ["cleave", "cleave-inline", "rocksdb", "rocksdb-no-slowdown", "rocksdb-held"];
        assert_eq!(engines_of(&args.engine), all);
        assert_eq!(
            engines_of(&["rocksdb-no-slowdown".to_owned(), "rocksdb".to_owned()]),
            ["rocksdb-no-slowdown", "rocksdb"]
        );
    }
}
