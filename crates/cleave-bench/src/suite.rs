//! `cleave-bench run`: each engine with each workload, in turn, every run in a process of its own; medians over repeats.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::args::Run;
use crate::cgroup::MemoryCgroup;
use crate::failure::{Failure, Result};
use crate::plan::Plan;
use crate::result::Outcome;
use crate::{engines, table, workload};

/// Does all runs, prints the table and writes the JSON; what the runs came to, in the order of workloads.
///
/// # Errors
/// If an option is wrong, or the first run that fails.
pub fn run(args: &Run, out: &mut dyn Write) -> Result<Vec<Outcome>> {
    args.shape.check()?;
    for engine in &args.engine {
        engines::find(engine)?;
    }
    for name in &args.workload {
        workload::find(name)?;
    }
    if let Some(path) = &args.json {
        // Better now than after hours.
        write(path, "[]\n")?;
    }
    let outcomes = measure(args)?;
    table::print(&outcomes, out).map_err(Failure::because("cannot write the table"))?;
    if let Some(path) = &args.json {
        let json = serde_json::to_string_pretty(&outcomes).map_err(Failure::because("cannot make JSON"))?;
        write(path, &(json + "\n"))?;
    }
    Ok(outcomes)
}

/// Engines in turn within each repeat, so that what changes on the machine meanwhile falls on all of them.
///
/// # Errors
/// The first run that fails.
pub fn measure(args: &Run) -> Result<Vec<Outcome>> {
    let parent = args.dir.clone().unwrap_or_else(std::env::temp_dir);
    fs::create_dir_all(&parent).map_err(Failure::because(format!("cannot create {}", parent.display())))?;
    let mut outcomes = Vec::new();
    for name in &args.workload {
        let mut repeats = vec![Vec::new(); args.engine.len()];
        for _ in 0..args.repeat.max(1) {
            for (engine, outcomes) in args.engine.iter().zip(&mut repeats) {
                outcomes.push(run_in_child(args, engine, name, &parent)?);
            }
        }
        outcomes.extend(repeats.into_iter().filter_map(median));
    }
    Ok(outcomes)
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Failure::because(format!("cannot write {}", path.display())))
}

fn run_in_child(args: &Run, engine: &str, workload: &str, parent: &Path) -> Result<Outcome> {
    let what = format!("{engine} {workload}");
    let dir = tempfile::Builder::new()
        .prefix("cleave-bench-")
        .tempdir_in(parent)
        .map_err(Failure::because(format!("cannot make a directory in {}", parent.display())))?;
    let cgroup = args.cgroup_memory.map(MemoryCgroup::new).transpose()?;
    let plan = Plan {
        engine: engine.to_owned(),
        workload: workload.to_owned(),
        dir: dir.path().join("store"),
        cgroup: cgroup.as_ref().map(|cgroup| cgroup.dir().to_owned()),
        cgroup_memory: args.cgroup_memory,
        shape: args.shape.clone(),
    };
    let program = std::env::current_exe().map_err(Failure::because("cannot find this program"))?;
    let plan = serde_json::to_vec(&plan).map_err(Failure::because("cannot hand over the plan"))?;
    let mut child = Command::new(program)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Failure::because("cannot start a process for the run"))?;
    // A child that does not read its plan says why on stderr, and fails.
    let handed_over = child.stdin.take().is_some_and(|mut stdin| stdin.write_all(&plan).is_ok());
    let output = child.wait_with_output().map_err(Failure::because(&what))?;
    if !output.status.success() || !handed_over {
        return Err(Failure::new(format!("{what}: the run failed ({})", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(Failure::because(what))
}

/// The run with the median throughput (the lower one of two), with the throughput of all.
fn median(mut repeats: Vec<Outcome>) -> Option<Outcome> {
    let all: Vec<f64> = repeats.iter().map(|outcome| outcome.ops_per_s).collect();
    repeats.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    let middle = repeats.len().checked_sub(1)? / 2;
    let mut outcome = repeats.swap_remove(middle);
    if all.len() > 1 {
        outcome.ops_per_s_of_repeats = all;
    }
    Some(outcome)
}
