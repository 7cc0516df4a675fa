//! The phases of a run: what clients do once the store is open, one phase right after the other on one open store, without
//! a pause, a flush or a sync between them. A run of a workload has one phase; `sustained` has as many as `--phases` lists.
//! They are plain data; `experiment.rs` executes them.

use std::time::Duration;

use crate::distribution::Distribution;
use crate::failure::{Failure, Result};
use crate::plan::Shape;
use crate::workload::{self, Count, Operation, Origin, ScanLength, Workload};

/// The run of several phases.
pub const SUSTAINED: &str = "sustained";
/// Its phases, unless overridden.
const PHASES: &str = "load,update,ycsb-a,ycsb-b,ycsb-e,scans,gets-zipfian,gets-uniform";
/// How often they are repeated, unless overridden.
const ROUNDS: u64 = 2;
/// The longest duration of a phase of `sustained`, unless overridden.
const PHASE: Duration = Duration::from_secs(15);
/// Records of a scan in the phase `scans`.
const SCAN_LENGTH: u64 = 100;

/// One phase.
#[derive(Debug)]
pub struct Phase {
    /// Its name in results.
    pub name: String,
    /// What clients do.
    pub workload: Workload,
    /// The phase ends after this time, even if operations are left.
    pub limit: Option<Duration>,
}

/// What a run does.
#[derive(Debug)]
pub struct Schedule {
    /// The phases, at least one.
    pub phases: Vec<Phase>,
    /// A workload with the origin, order and sizes of all records.
    pub data: Workload,
    /// Whether the store is flushed and synced at the end, as a part of the last phase.
    pub is_flushed: bool,
}

impl Schedule {
    /// The schedule of the run called `name`: a workload or `sustained`.
    ///
    /// # Errors
    /// If there is no such run, or the options do not fit it.
    pub fn of(name: &str, shape: &Shape) -> Result<Schedule> {
        match (name, &shape.phases, shape.rounds) {
            (SUSTAINED, phases, rounds) => sustained(phases.as_deref().unwrap_or(PHASES), rounds, shape),
            (_, None, None) => {
                let workload = drawn(workload::find(name)?, shape);
                let data = workload.clone();
                let phase = Phase { name: name.to_owned(), workload, limit: limit(shape.phase_seconds) };
                Ok(Schedule { phases: vec![phase], data, is_flushed: true })
            }
            (..) => Err(Failure::new("--phases and --rounds are only for the workload sustained")),
        }
    }

    /// Whether all records are loaded before the first phase, by an open of their own.
    pub fn is_loaded_before(&self) -> bool {
        self.phases[0].workload.loaded
    }
}

/// The phases of `list`, again without the load in each further round, and at the end a settle.
fn sustained(list: &str, rounds: Option<u64>, shape: &Shape) -> Result<Schedule> {
    let mut names: Vec<&str> = list.split(',').collect();
    let again: Vec<&str> = names.iter().copied().filter(|name| *name != "load").collect();
    (1..rounds.unwrap_or(ROUNDS)).for_each(|_| names.extend(&again));
    if names.last() != Some(&"settle") {
        names.push("settle");
    }
    let seconds = shape.phase_seconds.unwrap_or(PHASE.as_secs_f64());
    let mut phases: Vec<Phase> = Vec::new();
    for (position, name) in names.iter().enumerate() {
        let workload = drawn(workload_of(name)?, shape);
        let earlier = names[..position].iter().filter(|other| *other == name).count();
        let is_cut = match workload.operations {
            Count::About(..) => true,
            Count::Records => shape.limit_updates && workload.loaded,
            Count::Once => false,
        };
        let limit = limit(Some(seconds)).filter(|_| is_cut);
        let name = match earlier {
            0 => format!("{SUSTAINED}/{name}"),
            _ => format!("{SUSTAINED}/{}/{name}", earlier + 1),
        };
        phases.push(Phase { name, workload, limit });
    }
    let data = data(&phases)?;
    Ok(Schedule { phases, data, is_flushed: false })
}

/// The workload of the phase called `name`.
fn workload_of(name: &str) -> Result<Workload> {
    let find = |workload: &str| workload::find(workload).map(|found| Workload { name: name.to_owned(), ..found });
    Ok(match name {
        "load" => find("fillrandom")?.load(),
        "update" => Workload { operations: Count::Records, ..find("overwrite")? },
        "update-uniform" => {
            Workload { operations: Count::Records, distribution: Distribution::Uniform, ..find("overwrite")? }
        }
        "scans" => Workload { scan: ScanLength::Fixed(SCAN_LENGTH), ..find("seekrandom")? },
        "gets-zipfian" => find("ycsb-c")?,
        "gets-uniform" => find("readrandom")?,
        _ => find(name)?,
    })
}

/// `workload` with the distribution and the order of keys that the user chose.
fn drawn(workload: Workload, shape: &Shape) -> Workload {
    let distribution = shape.distribution.unwrap_or(workload.distribution);
    Workload { distribution, order: shape.key_order.unwrap_or(workload.order), ..workload }
}

fn limit(seconds: Option<f64>) -> Option<Duration> {
    seconds.map(Duration::from_secs_f64)
}

/// A workload with the records that all phases share: in the order of the first one, with the sizes that any of them
/// defines.
fn data(phases: &[Phase]) -> Result<Workload> {
    let mut data = phases[0].workload.clone();
    for (position, Phase { workload, .. }) in phases.iter().enumerate() {
        let name = &workload.name;
        if workload.origin != Origin::Numbers {
            return Err(Failure::new(format!("{name} cannot be a phase: its records come from a file")));
        }
        let fills = !workload.loaded && workload.has(Operation::Insert);
        if position > 0 && fills {
            return Err(Failure::new(format!("the phase {name} must be the first, because it writes all records")));
        }
        match (data.lengths, workload.lengths) {
            (Some(one), Some(other)) if one != other => {
                return Err(Failure::new(format!(
                    "the phase {name} needs records of other sizes than an earlier phase"
                )));
            }
            (known, own) => data.lengths = known.or(own),
        }
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};
    use crate::keys::Order;

    fn schedule(workload: &str, options: &[&str]) -> Result<Schedule> {
        let arguments = [&["cleave-bench", "run", "--workload", workload], options].concat();
        let Command::Run(args) = Args::parse_from(arguments).command else { panic!("the command is `run`") };
        Schedule::of(workload, &args.shape)
    }

    fn names(schedule: &Schedule) -> Vec<&str> {
        schedule.phases.iter().map(|phase| &*phase.name).collect()
    }

    #[test]
    fn a_workload_is_one_phase_and_sustained_has_two_rounds_and_a_settle() {
        let one = schedule("ycsb-a", &[]).unwrap();
        assert_eq!((names(&one), one.is_flushed, one.is_loaded_before()), (vec!["ycsb-a"], true, true));
        assert_eq!(one.phases[0].limit, None);
        let all = schedule("sustained", &[]).unwrap();
        assert_eq!((all.phases.len(), all.is_flushed, all.is_loaded_before()), (8 + 7 + 1, false, false));
        assert_eq!(names(&all)[..3], ["sustained/load", "sustained/update", "sustained/ycsb-a"]);
        assert_eq!(names(&all)[8], "sustained/2/update");
        assert_eq!(names(&all)[14..], ["sustained/2/gets-uniform", "sustained/settle"]);
    }

    #[test]
    fn the_load_and_the_updates_are_complete_and_other_phases_end_after_their_seconds() {
        let phases = ["--phases", "load,update,scans,mixed,settle", "--rounds", "1"];
        let limits = |options: &[&str]| {
            let schedule = schedule("sustained", &[&phases, options].concat()).unwrap();
            schedule.phases.iter().map(|phase| phase.limit.map(|limit| limit.as_secs_f64())).collect::<Vec<_>>()
        };
        assert_eq!(limits(&[]), [None, None, Some(15.0), Some(15.0), None]);
        assert_eq!(limits(&["--phase-seconds", "0.5"]), [None, None, Some(0.5), Some(0.5), None]);
        let updates = ["--phases", "load,update,update-uniform", "--rounds", "1", "--limit-updates"];
        let updates = schedule("sustained", &updates).unwrap();
        let limited: Vec<bool> = updates.phases.iter().map(|phase| phase.limit.is_some()).collect();
        assert_eq!(limited, [false, true, true, false]);
        let one = schedule("seekrandom", &["--phase-seconds", "2"]).unwrap();
        assert_eq!(one.phases[0].limit, Some(Duration::from_secs(2)));
    }

    #[test]
    fn updates_are_zipfian_or_uniform() {
        let phases = schedule("sustained", &["--phases", "load,update,update-uniform"]).unwrap().phases;
        let distributions: Vec<Distribution> = phases[1..3].iter().map(|phase| phase.workload.distribution).collect();
        assert_eq!(distributions, [Distribution::YCSB, Distribution::Uniform]);
    }

    #[test]
    fn all_phases_have_the_order_of_keys_that_was_chosen() {
        for (options, order) in [(&[][..], Order::Hashed), (&["--key-order", "sequential"], Order::Sequential)] {
            let Schedule { phases, data, .. } = schedule("sustained", options).unwrap();
            assert_eq!(data.order, order);
            assert!(phases.iter().all(|phase| phase.workload.order == order), "{order:?}");
        }
    }

    #[test]
    fn repeated_phases_are_numbered_and_only_one_settle_is_added() {
        let phases = ["--phases", "update,settle,update", "--rounds", "2"];
        let schedule = schedule("sustained", &phases).unwrap();
        let expected = ["update", "settle", "2/update", "3/update", "2/settle", "4/update", "3/settle"];
        assert_eq!(names(&schedule), expected.map(|name| format!("sustained/{name}")));
        assert!(schedule.is_loaded_before());
    }

    #[test]
    fn phases_share_their_records() {
        let lengths = |phases: &str| {
            let schedule = schedule("sustained", &["--phases", phases, "--rounds", "1"]);
            schedule.map(|schedule| schedule.data.lengths).map_err(|failure| failure.to_string())
        };
        assert_eq!(lengths("load,update"), Ok(None));
        assert_eq!(lengths("load,mixed"), Ok(workload::find("mixed").unwrap().lengths));
        for (phases, sentence) in [
            ("load,up2x,mixed", "mixed needs records of other sizes"),
            ("update,load", "the phase load must be the first"),
            ("load,cities", "its records come from a file"),
            ("load,nothing", "there is no workload \"nothing\""),
            ("", "there is no workload \"\""),
        ] {
            let failure = lengths(phases).unwrap_err();
            assert!(failure.contains(sentence), "{phases}: {failure}");
        }
        let failure = schedule("ycsb-a", &["--rounds", "2"]).unwrap_err().to_string();
        assert!(failure.contains("only for the workload sustained"), "{failure}");
    }
}
