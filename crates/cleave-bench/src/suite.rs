//! `cleave-bench run`: each workload on each engine, one run at a time and each in its own process, with medians of the
//! repeats. `compare` and `paper` use it too.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use serde::de::DeserializeOwned;
use serde_json::json;

use crate::args::Run;
use crate::bounds::bounded;
use crate::cgroup::MemoryCgroup;
use crate::failure::{Failure, Result};
use crate::peak::{PEAK, Peak, PeakShare};
use crate::phase::{SUSTAINED, Schedule};
use crate::plan::{Plan, Shape, Task};
use crate::recovery::{self, Recovery};
use crate::result::Outcome;
use crate::scratch::{self, Running, Scratch};
use crate::workload::Origin;
use crate::{detail, engines, table};

/// Does all runs, prints the table and writes the JSON. Returns the outcomes in the order of workloads and their phases, with
/// those of all engines side by side.
///
/// # Errors
/// If an option is invalid, or a run fails.
pub fn run(args: &Run, out: &mut dyn Write) -> Result<Vec<Outcome>> {
    args.shape.check()?;
    for engine in &args.engine {
        engines::find(engine)?;
    }
    let mut origins = Vec::new();
    for name in &args.workload {
        let schedule = Schedule::of(name, &args.shape)?;
        if args.shape.age > 0 && !schedule.is_loaded_before() {
            let sentence = "--age is only for workloads that load their store first, which";
            return Err(Failure::new(format!("{sentence} {name} does not")));
        }
        origins.push(schedule.data.origin);
    }
    check_input(&args.shape, &origins)?;
    if let Some(share) = &args.rate_of {
        engines::find(&share.engine)?;
        if args.workload.iter().any(|name| name == SUSTAINED) {
            return Err(Failure::new(format!(
                "--rate-of is not for {SUSTAINED}, whose phases have peaks of their own"
            )));
        }
    }
    if let Some(path) = &args.json {
        // Fail now rather than after hours.
        write_json(&[], path)?;
    }
    let outcomes = measure(args)?;
    table::print(&outcomes, out).map_err(Failure::because("cannot write the table"))?;
    if args.detail {
        detail::print(&outcomes, out).map_err(Failure::because("cannot write the tables"))?;
    }
    if let Some(path) = &args.json {
        write_json(&outcomes, path)?;
    }
    Ok(outcomes)
}

/// Does all runs. The engines alternate within each repeat, so that changes of the machine affect all of them.
///
/// # Errors
/// If a run fails.
pub fn measure(args: &Run) -> Result<Vec<Outcome>> {
    measure_unless(args, &mut |_, failure| Err(failure))
}

/// The same, but `failed` decides about each run that fails, given its engine: with an error all ends, else the rest goes on without
/// that run.
///
/// # Errors
/// Those of `failed`, and if a run cannot be prepared.
pub fn measure_unless(args: &Run, failed: &mut dyn FnMut(&str, Failure) -> Result<()>) -> Result<Vec<Outcome>> {
    scratch::handle_interruption()?;
    scratch::prepare(&args.places)?;
    let places = bounded(&args.places, args.shape.memory, &args.engine)?;
    let args = &Run { places, ..args.clone() };
    let mut outcomes = Vec::new();
    for name in &args.workload {
        let peak = match args.rate_of.as_ref().map(|share| (share, measure_peak(args, name, share))) {
            Some((share, Err(failure))) => {
                // Without it there is no rate for the others.
                failed(&share.engine, failure)?;
                continue;
            }
            Some((_, Ok(peak))) => Some(peak),
            None => None,
        };
        let args = &paced(args, peak.as_ref());
        // For each phase and each engine, the outcomes of all repeats.
        let mut phases: Vec<Vec<Vec<Outcome>>> = Vec::new();
        for _ in 0..args.repeat {
            for (number, engine) in args.engine.iter().enumerate() {
                let run = match run_in_process(args, engine, name) {
                    Ok(run) => run,
                    Err(failure) => {
                        failed(engine, failure)?;
                        continue;
                    }
                };
                phases.resize_with(run.len(), || vec![Vec::new(); args.engine.len()]);
                phases.iter_mut().zip(run).for_each(|(repeats, outcome)| repeats[number].push(outcome));
            }
        }
        let mut medians: Vec<Outcome> = phases.into_iter().flatten().filter_map(median).collect();
        if let Some(peak) = &peak {
            medians.iter_mut().for_each(|outcome| outcome.settings[PEAK] = json!(peak));
        }
        outcomes.extend(medians);
    }
    Ok(outcomes)
}

/// Measures the operations per second of the engine of `share` in a closed loop of `workload`.
fn measure_peak(args: &Run, workload: &str, share: &PeakShare) -> Result<Peak> {
    let (engine, workload) = (vec![share.engine.clone()], vec![workload.to_owned()]);
    let closed = measure(&Run { engine, workload, rate_of: None, ..args.clone() })?;
    let outcome = closed.first().ok_or_else(|| Failure::new("a run has an outcome"))?;
    Ok(share.of(outcome.ops_per_s))
}

/// `args` in an open loop, if its rate is a share of `peak`.
fn paced(args: &Run, peak: Option<&Peak>) -> Run {
    let rate = peak.map(Peak::rate).or(args.shape.rate);
    Run { shape: Shape { rate, ..args.shape.clone() }, ..args.clone() }
}

/// Writes `outcomes` as JSON.
///
/// # Errors
/// If the file cannot be written.
pub fn write_json(outcomes: &[Outcome], path: &Path) -> Result<()> {
    let json = serde_json::to_string_pretty(outcomes).map_err(Failure::because("cannot make JSON"))?;
    fs::write(path, json + "\n").map_err(Failure::because(format!("cannot write {}", path.display())))
}

/// Refuses an input that no workload reads, and a workload whose input is missing.
fn check_input(shape: &Shape, origins: &[Origin]) -> Result<()> {
    let any = |wanted: &[Origin]| origins.iter().any(|origin| wanted.contains(origin));
    let reads = any(&[Origin::Input, Origin::Trace]);
    match (&shape.input, reads) {
        (None, true) => Err(Failure::new("the workloads input and trace need --input FILE")),
        (Some(_), false) => Err(Failure::new("--input is only for the workloads input and trace")),
        _ if shape.batch > 1 && any(&[Origin::Trace]) => {
            Err(Failure::new("--batch is not for the workload trace, whose reads follow its writes"))
        }
        _ if shape.rate_from_trace && !any(&[Origin::Trace]) => {
            Err(Failure::new("--rate-from-trace is only for the workload trace"))
        }
        _ => Ok(()),
    }
}

/// Does one run in its own process, and its recovery in another one. Returns the outcomes of its phases.
fn run_in_process(args: &Run, engine: &str, workload: &str) -> Result<Vec<Outcome>> {
    let what = format!("{engine} {workload}");
    let scratch = Scratch::new(&args.places)?;
    let cgroup = args.places.cgroup_memory.map(MemoryCgroup::new).transpose()?;
    let plan = Plan {
        task: Task::Run,
        engine: engine.to_owned(),
        workload: workload.to_owned(),
        dirs: scratch.dirs().clone(),
        places: args.places.clone(),
        cgroup: cgroup.as_ref().map(|cgroup| cgroup.dir().to_owned()),
        cgroup_memory: args.places.cgroup_memory,
        shape: args.shape.clone(),
    };
    let mut acknowledged = None;
    let mut outcomes: Vec<Outcome> = in_child(&plan, &what, |outcomes: &Vec<Outcome>, child| {
        if plan.is_to_be_killed(outcomes.iter().map(|outcome| outcome.user_bytes_written).sum()) {
            acknowledged = Some(recovery::kill_in_mid_write(child, &plan.dirs, &plan.shape)?);
        }
        Ok(acknowledged.is_some())
    })?;
    if let Some(acknowledged) = acknowledged {
        let plan = Plan { task: Task::Recover(acknowledged), ..plan };
        let recovery: Recovery = in_child(&plan, &format!("{what} after a kill"), |_, _| Ok(false))?;
        if let Some(last) = outcomes.last_mut() {
            last.recover_s = Some(recovery.recover_s);
        }
    }
    Ok(outcomes)
}

/// Executes `plan` in a child, whose answer is one line. `then` may kill the child, and returns whether it did.
fn in_child<T: DeserializeOwned>(
    plan: &Plan,
    what: &str,
    then: impl FnOnce(&T, &mut Running) -> Result<bool>,
) -> Result<T> {
    let program = std::env::current_exe().map_err(Failure::because("cannot find this program"))?;
    let json = serde_json::to_vec(plan).map_err(Failure::because("cannot serialize the plan"))?;
    // Its own process group keeps an interruption from the terminal away from it; the parent handles that.
    let mut command = Command::new(program);
    command.arg("child").stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut child = Running::start(&mut command).map_err(Failure::because("cannot start a process for the run"))?;
    // A child that does not read its plan fails and reports why on stderr.
    let handed_over = child.0.stdin.take().is_some_and(|mut stdin| stdin.write_all(&json).is_ok());
    let mut out = child.0.stdout.take().map(BufReader::new);
    let mut line = String::new();
    let answered = out.as_mut().is_some_and(|out| out.read_line(&mut line).is_ok());
    let answer = serde_json::from_str(&line);
    let was_killed = match &answer {
        Ok(answer) => then(answer, &mut child).map_err(Failure::because(what))?,
        Err(_) => false,
    };
    drop(out);
    let status = child.0.wait().map_err(Failure::because(what))?;
    drop(child);
    let did_it = was_killed || (status.success() && handed_over && answered);
    if !did_it {
        return Err(Failure::new(format!("{what}: the run failed ({status})")));
    }
    answer.map_err(Failure::because(what))
}

/// The run with the median throughput (the lower of two middle ones), with the throughput of all.
pub fn median(mut repeats: Vec<Outcome>) -> Option<Outcome> {
    let all: Vec<f64> = repeats.iter().map(|outcome| outcome.ops_per_s).collect();
    repeats.sort_by(|a, b| a.ops_per_s.total_cmp(&b.ops_per_s));
    let middle = repeats.len().checked_sub(1)? / 2;
    let mut outcome = repeats.swap_remove(middle);
    if all.len() > 1 {
        outcome.ops_per_s_of_repeats = all;
    }
    Some(outcome)
}
