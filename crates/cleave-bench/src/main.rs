//! `cleave-bench`, the benchmarks of CleaveDB. `run` measures workloads on engines, each run in its own process; `compare`
//! runs sets of workloads on CleaveDB and one other engine; `tiers` runs sets on a fast and a slow directory; `paper` runs the experiments of a paper and prints its claims
//! beside the measurements; `bounded` measures the overhead of a large store; `report` writes results as an HTML page;
//! `device` creates a slow tier; `list` prints the engines and workloads.
//!
//! Exit codes: 0 success, 1 failure (one line on stderr), 2 wrong usage.

mod args;
mod suite;
mod compare;
mod paper;
mod tiers;
mod bounded;
mod bounds;
mod plan;
mod phase;
mod scratch;
mod experiment;
mod recovery;
mod workload;
mod dataset;
mod client;
mod engines;
mod engine;
mod cleave_options;
mod storage;
mod source;
mod rng;
mod keys;
mod values;
mod records;
mod trace;
mod distribution;
mod size;
mod pace;
mod peak;
mod presence;
mod latency;
mod series;
mod usage;
mod redirects;
mod waiting;
mod tuning;
mod jobs;
mod counters;
mod disk;
mod cgroup;
mod device;
mod result;
mod machine;
mod label;
mod flags;
mod table;
mod detail;
mod report;
mod failure;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Parser;
use rustix::process::Signal;

use crate::args::{Args, Command};
use crate::failure::{Failure, Result};
use crate::plan::{Plan, Task};

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // There is no way to report that stderr is closed.
            let _ = writeln!(io::stderr(), "cleave-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match command {
        Command::Run(args) => drop(suite::run(args, &mut out)?),
        Command::Compare(args) => compare::run(args, &mut out)?,
        Command::Tiers(args) => tiers::run(args, &mut out)?,
        Command::Paper(args) => paper::run(args, &mut out)?,
        Command::Bounded(args) => bounded::run(args, &mut out)?,
        Command::Report(args) => report::run(args)?,
        Command::Device(args) => device::run(args, &mut out)?,
        Command::List => list(&mut out).map_err(Failure::because("cannot write the output"))?,
        Command::Child => child(&mut out)?,
    }
    out.flush().map_err(Failure::because("cannot write the output"))
}

fn list(out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "Engines of this build:")?;
    let kinds = engines::all();
    for kind in &kinds {
        writeln!(out, "   {} {}", kind.name, kind.version)?;
        for note in kind.notes {
            writeln!(out, "      {note}")?;
        }
    }
    if kinds.iter().all(|kind| engines::feature(kind.name).is_none()) {
        writeln!(out, "   (other engines are cargo features: rocksdb, fjall, redb, lmdb)")?;
    }
    writeln!(out, "Runs of several phases on one open store:\n   {}", phase::SUSTAINED)?;
    writeln!(
        out,
        "Workloads (R: percentage of reads or scans; input and trace need --input):\n   {}",
        workload::NAMES.join(" ")
    )
}

fn child(out: &mut dyn Write) -> Result<()> {
    // The child must not outlive a killed parent.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::because("prctl"))?;
    let plan: Plan = serde_json::from_reader(io::stdin().lock()).map_err(Failure::because("the plan on stdin"))?;
    if let Some(dir) = &plan.cgroup {
        cgroup::enter(dir)?;
    }
    // A single cgroup holds the limits of all devices.
    if let Some(dir) = plan.dirs.all().find_map(|dir| device::cgroup_of(dir).transpose()) {
        cgroup::enter(&dir?)?;
    }
    match &plan.task {
        Task::Run => experiment::run(&plan, out),
        Task::Recover(acknowledged) => recovery::recover(&plan, acknowledged, out),
    }
}
