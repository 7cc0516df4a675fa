//! `cleave-bench`, the benchmarks of CleaveDB. `run` lets engines do workloads, each run in a process of its own, and
//! tells what it cost; `compare` does the standard set on us and a rival; `paper` does a paper's experiments and sets its
//! claims beside them; `bounded` counts what a large store needs besides its bytes; `report` makes a page of results; `device` makes a slow tier; `list` says which engines and
//! workloads there are.
//!
//! Exit codes: 0 done, 1 failed (one line on stderr), 2 wrong usage.

mod args;
mod suite;
mod compare;
mod paper;
mod bounded;
mod plan;
mod scratch;
mod experiment;
mod recovery;
mod workload;
mod ground;
mod client;
mod engine;
mod engines;
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
mod presence;
mod latency;
mod series;
mod counters;
mod disk;
mod cgroup;
mod device;
mod result;
mod machine;
mod label;
mod flags;
mod table;
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
            // Nobody is left to be told if stderr is closed too.
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
    if kinds.len() == 1 {
        writeln!(out, "   (others to compare with are cargo features: rocksdb, fjall, redb, lmdb)")?;
    }
    writeln!(out, "Workloads (R: percent of reads; input and trace: of --input):\n   {}", workload::NAMES.join(" "))
}

fn child(out: &mut dyn Write) -> Result<()> {
    // Who killed the parent wants this to end too.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(Failure::because("prctl"))?;
    let plan: Plan = serde_json::from_reader(io::stdin().lock()).map_err(Failure::because("the plan on stdin"))?;
    if let Some(dir) = &plan.cgroup {
        cgroup::enter(dir)?;
    }
    // One cgroup has the limits of all devices.
    if let Some(dir) = plan.dirs.all().find_map(|dir| device::cgroup_of(dir).transpose()) {
        cgroup::enter(&dir?)?;
    }
    match &plan.task {
        Task::Run => experiment::run(&plan, out),
        Task::Recover(acknowledged) => recovery::recover(&plan, acknowledged, out),
    }
}
