//! `cleave-bench tiers`: sets of runs on a fast and a slow directory. `phases` are those of sustained work, `open` are open
//! loops at a share of RocksDB's peak, `settings` compares the tuner with static settings, and
//! `waiting` looks at the slow device while writers wait. Every figure is the median of
//! its repeats, and what CleaveDB loses comes first.

pub mod places;
mod figures;
mod tuner;
mod waiting;

use std::io::Write;

use self::figures::{LATENCY_P99, Repeats, THROUGHPUT};
use self::places::{Throttle, Tiers};
use crate::args::{self, Run, TierSet};
use crate::engine::OURS;
use crate::failure::{Failure, Result};
use crate::peak::PeakShare;
use crate::phase::SUSTAINED;
use crate::plan::{Places, Shape};
use crate::result::Outcome;
use crate::{engines, machine, scratch, suite};

/// The percentage of the data that the fast tier may hold.
const FAST_PERCENT: u64 = 10;
/// Client threads, and threads for background work.
const THREADS: (u64, usize) = (2, 4);
/// The longest phase in seconds, and with `--quick`.
const PHASE_S: [f64; 2] = [15.0, 3.0];
/// The memory budget, and with `--quick`, where it is also much smaller than the data.
const MEMORY: [u64; 2] = [256 << 20, 32 << 20];
/// The rate of open loops.
const OPEN_PERCENT: f64 = 70.0;

/// The sizes of all sets.
struct Sizes {
    /// Records of `phases` and `open`, and of `settings`.
    records: [u64; 2],
    memory: u64,
    phase_s: f64,
    limit_updates: bool,
    repeat: u64,
}

impl Sizes {
    fn of(args: &args::Tiers) -> Sizes {
        let (records, phase_s, repeat) = match args.quick {
            true => ([200_000; 2], PHASE_S[1], 1),
            false => ([4_000_000, 1_000_000], PHASE_S[0], 3),
        };
        Sizes {
            records: args.records.map_or(records, |records| [records; 2]),
            memory: args.memory.unwrap_or(MEMORY[usize::from(args.quick)]),
            phase_s: args.phase_seconds.unwrap_or(phase_s),
            limit_updates: args.limit_updates || args.quick,
            repeat: args.repeat.unwrap_or(repeat),
        }
    }

    /// What all runs have in common.
    fn shape(&self, records: u64) -> Shape {
        let (threads, background_threads) = THREADS;
        Shape {
            threads,
            background_threads,
            memory: self.memory,
            phase_seconds: Some(self.phase_s),
            limit_updates: self.limit_updates,
            ..Shape::new(records)
        }
    }

    /// The phases on all engines.
    fn phases(&self, args: &args::Tiers, places: &Places) -> Run {
        let shape = Shape { phases: Some(args.phases.clone()), rounds: Some(1), ..self.shape(self.records[0]) };
        of(args.engine.clone(), &[SUSTAINED], shape, places)
    }

    /// Open loops on all engines.
    fn open(&self, args: &args::Tiers, places: &Places) -> Run {
        let shape = self.shape(self.records[0]);
        let phase_seconds = shape.phase_seconds.filter(|_| self.limit_updates);
        let shape = Shape { phase_seconds, ..shape };
        let rate_of = Some(PeakShare::of_rocksdb(OPEN_PERCENT, &args.engine));
        Run { rate_of, ..of(args.engine.clone(), &["fillrandom", "overwrite"], shape, places) }
    }
}

fn of(engine: Vec<String>, workloads: &[&str], shape: Shape, places: &Places) -> Run {
    let workload = workloads.iter().map(|&name| name.to_owned()).collect();
    Run { engine, workload, shape, rate_of: None, places: places.clone(), repeat: 1, json: None, detail: false }
}

/// Runs the sets, and prints the tables of each and the JSON of all.
///
/// # Errors
/// As [`suite::measure`], and if a file cannot be written.
pub fn run(args: &args::Tiers, out: &mut dyn Write) -> Result<()> {
    let sizes = Sizes::of(args);
    let mut results = Results { args, earlier: Vec::new() };
    // Fail now rather than after hours.
    results.write(&[])?;
    scratch::handle_interruption()?;
    let because = || Failure::because("cannot write the table");
    writeln!(out, "machine: {}; commit {}", machine::describe(), machine::COMMIT).map_err(because())?;
    for set in &args.sets {
        let records = sizes.records[usize::from(*set == TierSet::Settings)];
        let shape = match set {
            TierSet::Waiting => waiting::shape(args, &sizes),
            _ => sizes.shape(records),
        };
        shape.check()?;
        let data = shape.records * (shape.key_size.mean() + shape.value_size.mean()) as u64;
        let throttle = Throttle { bandwidth: args.bandwidth, iops: args.iops };
        let tiers = Tiers::new(&args.places, data, FAST_PERCENT, throttle)?;
        tiers.notes.iter().try_for_each(|note| writeln!(out, "{note}")).map_err(because())?;
        out.flush().map_err(because())?;
        let outcomes = match set {
            TierSet::Phases => results.repeat(&sizes, &sizes.phases(args, &tiers.places), THROUGHPUT, out)?,
            TierSet::Open => results.repeat(&sizes, &sizes.open(args, &tiers.places), LATENCY_P99, out)?,
            TierSet::Settings => tuner::sweep(&sizes, &tiers.places, &results, out)?,
            TierSet::Waiting => waiting::bursts(&shape, &tiers.places, &results, out)?,
        };
        results.earlier.extend(outcomes);
    }
    Ok(())
}

/// The results of the sets so far.
struct Results<'a> {
    args: &'a args::Tiers,
    earlier: Vec<Outcome>,
}

impl Results<'_> {
    /// Repeats `run`, and prints medians, compared by the figure `by` with those of the first engine that is not ours. Returns
    /// the median runs.
    fn repeat(&self, sizes: &Sizes, run: &Run, by: usize, out: &mut dyn Write) -> Result<Vec<Outcome>> {
        run.engine.iter().try_for_each(|engine| engines::find(engine).map(drop))?;
        let mut repeats = Repeats::default();
        for _ in 0..sizes.repeat {
            repeats.add(suite::measure(run)?);
            // Earlier repeats are kept if a later one fails.
            self.write(&repeats.medians())?;
        }
        let rival = run.engine.iter().find(|engine| *engine != OURS).map_or(OURS, |rival| rival);
        repeats.print(by, rival, out).map_err(Failure::because("cannot write the table"))?;
        Ok(repeats.medians())
    }

    fn write(&self, more: &[Outcome]) -> Result<()> {
        let all = || [&self.earlier[..], more].concat();
        self.args.json.as_ref().map_or(Ok(()), |path| suite::write_json(&all(), path))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::phase::Schedule;

    #[test]
    fn every_set_fits_its_schedule() {
        for (options, limited) in [(&[][..], 0), (&["--quick"], 2), (&["--limit-updates"], 2)] {
            let Command::Tiers(args) = Args::parse_from([&["cleave-bench", "tiers"], options].concat()).command else {
                panic!("the command is `tiers`")
            };
            let sizes = Sizes::of(&args);
            let phases = sizes.phases(&args, &Places::default());
            phases.shape.check().unwrap();
            let schedule = Schedule::of(SUSTAINED, &phases.shape).unwrap();
            assert_eq!(schedule.phases.len(), 11);
            assert_eq!(schedule.phases.iter().filter(|phase| phase.limit.is_some()).count(), 7 + limited);
            let open = sizes.open(&args, &Places::default());
            assert!(open.workload.iter().all(|name| Schedule::of(name, &open.shape).is_ok()) && !open.shape.at_rest);
            assert_eq!(open.rate_of.unwrap().to_string(), "70%:rocksdb");
        }
    }
}
