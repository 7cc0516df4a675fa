//! `cleave-bench paper`: runs the experiments of a paper on the engines of this build, and prints its claims beside the
//! measurements. The experiments are data, one file per paper; those that need a missing feature name it.

mod experiment;
pub mod claim;
mod decoukv;
mod kdsep;
mod hashkv;
mod rexio;
mod kvaccel;

use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use self::claim::Claim;
use self::experiment::{Experiment, How, MemoryLimit, Paper, Spec, Variant};
use crate::args::{self, PaperName};
use crate::bounds::{has_direct_io, is_throttled};
use crate::cgroup::MemoryCgroup;
use crate::cleave_options::CleaveOptions;
use crate::engine::{BUCKETS, HASHED, HELD, INLINE, NO_SLOWDOWN, OURS};
use crate::failure::{Failure, Result};
use crate::flags::flags;
use crate::label::VARIANT;
use crate::peak::PeakShare;
use crate::plan::{Places, Shape};
use crate::result::Outcome;
use crate::size::Lengths;
use crate::tiers::places::{Throttle, Tiers, fast_bytes};
use crate::{detail, engines, machine, scratch, suite, table};

/// The definition of a paper.
fn definition(name: PaperName) -> &'static Paper {
    match name {
        PaperName::Decoukv => &decoukv::PAPER,
        PaperName::Kdsep => &kdsep::PAPER,
        PaperName::Hashkv => &hashkv::PAPER,
        PaperName::Rexio => &rexio::PAPER,
        PaperName::Kvaccel => &kvaccel::PAPER,
    }
}

/// The file that `paper --json` writes and `report` reads.
#[derive(Debug, Serialize, Deserialize)]
pub struct Results {
    /// The paper's name.
    pub paper: String,
    /// The paper's title.
    pub title: String,
    /// The scale.
    pub scale: f64,
    /// The command that reproduces these results.
    pub command: String,
    /// The machine and the tiers, and how they differ from the paper's.
    #[serde(default)]
    pub notes: Vec<String>,
    /// All runs, as the objects of `run --json`.
    pub runs: Vec<Outcome>,
    /// All claims, in the paper's order.
    pub claims: Vec<Claim>,
}

/// Runs the experiments that are possible and prints claims and figures.
///
/// # Errors
/// If an option is invalid, or a run fails.
pub fn run(args: &args::Paper, out: &mut dyn Write) -> Result<()> {
    if !(args.scale.is_finite() && args.scale > 0.0) {
        return Err(Failure::new("--scale must be more than 0"));
    }
    let paper = definition(args.paper);
    let mut engines = args.engine.clone();
    if engines.is_empty() {
        engines = engines::all().iter().filter(|kind| paper.runs(kind.name)).map(|kind| kind.name.to_owned()).collect();
    }
    engines.iter().try_for_each(|engine| engines::find(engine).map(drop))?;

    scratch::handle_interruption()?;
    let chosen = paper.chosen(&args.experiments)?;
    let specs = specs_of(&chosen);
    let tiers = paper.fast_percent.filter(|_| !specs.is_empty());
    let tiers = tiers
        .map(|percent| Tiers::new(&args.places, paper.data_at(args.scale), percent, Throttle::SATA))
        .transpose()?;
    let places = tiers.as_ref().map_or(&args.places, |tiers| &tiers.places);
    let mut notes = vec![format!("machine: {}", machine::describe())];
    notes.extend(tiers.iter().flat_map(|tiers| tiers.notes.iter().cloned()));
    if args.engine.is_empty() && is_throttled(places)? {
        let (kept, without): (Vec<String>, _) = engines.into_iter().partition(|engine| has_direct_io(engine));
        notes.extend((!without.is_empty()).then(|| format!("left out, without direct I/O: {}", without.join(", "))));
        engines = kept;
    }

    let mut measured: Vec<(Spec, Vec<Outcome>)> = Vec::new();
    let mut results = paper.results(args, &chosen, &engines, &notes, &measured);
    write(args.json.as_deref(), &results)?;
    for spec in specs {
        let run = paper.arguments(&spec, args, places, &engines);
        run.shape.check()?;
        let mut outcomes = suite::measure_unless(&run, &mut |engine, failure| go_on(&mut notes, engine, failure))?;
        if let Some(variant) = spec.variant {
            outcomes.iter_mut().for_each(|outcome| outcome.settings[VARIANT] = json!(variant.name));
        }
        measured.push((spec, outcomes));
        // Earlier results are kept if a later run fails.
        results = paper.results(args, &chosen, &engines, &notes, &measured);
        write(args.json.as_deref(), &results)?;
    }
    print(paper, &results, out).map_err(Failure::because("cannot write the table"))
}

/// Notes that a run of another engine failed: the claims that need it are not measured. A run of ours that fails ends all.
fn go_on(notes: &mut Vec<String>, engine: &str, failure: Failure) -> Result<()> {
    if engine.starts_with(OURS) {
        return Err(failure);
    }
    notes.push(format!("left out: {failure}"));
    Ok(())
}

/// The runs of experiments, without duplicates.
fn specs_of(experiments: &[&Experiment]) -> Vec<Spec> {
    let mut specs = Vec::new();
    for experiment in experiments {
        let needed = match experiment.how {
            How::Measured(spec, _, over) => [Some(spec), spec.other(over)],
            How::Waits(_) => [None, None],
        };
        for spec in needed.into_iter().flatten() {
            if !specs.contains(&spec) {
                specs.push(spec);
            }
        }
    }
    specs
}

impl Paper {
    /// The experiments whose names contain one of these texts, or all.
    ///
    /// # Errors
    /// If a text is in no name.
    fn chosen(&self, texts: &[String]) -> Result<Vec<&'static Experiment>> {
        let has = |experiment: &Experiment, text: &String| experiment.name.contains(&**text);
        if let Some(text) = texts.iter().find(|text| !self.experiments.iter().any(|experiment| has(experiment, text))) {
            let names: Vec<&str> = self.experiments.iter().map(|experiment| experiment.name).collect();
            return Err(Failure::new(format!("no experiment has {text:?} in its name: {}", names.join("; "))));
        }
        let is_chosen = |it: &&Experiment| texts.is_empty() || texts.iter().any(|text| has(it, text));
        Ok(self.experiments.iter().filter(is_chosen).collect())
    }

    /// Whether an engine runs if none is asked for. The experiments choose CleaveDB's options, and compare with RocksDB as it is; on
    /// two tiers also with the one that keeps to the budget of the fast tier.
    fn runs(&self, engine: &str) -> bool {
        let is_usual = match engine {
            INLINE | BUCKETS | HASHED | NO_SLOWDOWN => false,
            HELD => self.fast_percent.is_some(),
            _ => true,
        };
        self.engines.map_or(is_usual, |engines| engines.contains(&engine))
    }

    /// Bytes of keys and values.
    fn data_at(&self, scale: f64) -> u64 {
        (self.data as f64 * scale) as u64
    }

    /// The arguments of `run` for `spec` in `places`.
    fn arguments(&self, spec: &Spec, args: &args::Paper, places: &Places, engines: &[String]) -> args::Run {
        let data = self.data_at(args.scale);
        let is_slow_only = spec.variant.is_some_and(|variant| variant.slow_only);
        let places = if is_slow_only { Tiers::slow_only(places) } else { places.clone() };
        let places = match (self.fast_percent, spec.larger, args.places.fast_bytes) {
            (Some(percent), 2.., None) if places.fast.is_some() => {
                Places { fast_bytes: Some(fast_bytes(data * spec.larger, percent)), ..places }
            }
            _ => places,
        };
        let record_bytes = (self.key_size + spec.value_size.mean()) as u64;
        let records = (data * spec.larger / record_bytes / spec.fewer).max(100);
        let data_per_memory = spec.data_per_memory.unwrap_or(self.data_per_memory);
        let key_size = self.key_size as u64;
        let limit = spec.cgroup.filter(|_| args.memory.is_none() && places.cgroup_memory.is_none());
        let cgroup = limit
            .filter(|_| MemoryCgroup::is_possible())
            .map(|limit| limit.bytes(data * spec.larger / spec.fewer, records, key_size));
        let memory = match cgroup {
            Some(bytes) => bytes / 2,
            None => args.memory.unwrap_or((data / spec.fewer / data_per_memory).max(MEMORY_MIN)) * spec.memory,
        };
        let places = Places { cgroup_memory: places.cgroup_memory.or(cgroup), ..places };
        let of_cleave = cgroup.and_then(|_| MemoryLimit::of_cleave(memory, records, key_size));
        let is_alone = |engine: &str| engine == OURS || spec.variant.is_none_or(|variant| !variant.alone);
        let scan_length = spec.scan_bytes.map_or(100, |bytes| (bytes / record_bytes).clamp(1, records));
        let shape = Shape {
            operations: match spec.records_per_operation {
                Some(part) => Some((records / part).max(1)),
                None => spec.operations_per_record.map(|rounds| records.saturating_mul(rounds)),
            },
            key_size: Lengths::Fixed(self.key_size),
            value_size: spec.value_size,
            distribution: spec.distribution,
            phase_seconds: self.seconds.map(|seconds| (seconds * args.scale).max(1.0)),
            age: spec.age,
            at_rest: spec.at_rest,
            scan_length,
            threads: spec.threads,
            batch: spec.batch,
            memory,
            background_threads: spec.background_threads,
            cleave: options(args.cleave.as_ref(), spec.variant, of_cleave),
            recover: spec.recover,
            bursts: spec.bursts,
            field_size: spec.field_size.or(args.field_size),
            ..Shape::new(records)
        };
        args::Run {
            engine: engines.iter().filter(|engine| is_alone(engine)).cloned().collect(),
            workload: vec![spec.workload.to_owned()],
            shape,
            rate_of: spec.open_percent.map(|percent| PeakShare::of_rocksdb(f64::from(percent), engines)),
            places,
            repeat: args.repeat,
            json: None,
            detail: false,
        }
    }

    fn results(
        &self,
        args: &args::Paper,
        chosen: &[&Experiment],
        engines: &[String],
        notes: &[String],
        measured: &[(Spec, Vec<Outcome>)],
    ) -> Results {
        let mut command = format!("cleave-bench paper {} --scale {}", self.name, args.scale);
        if !args.experiments.is_empty() {
            command += &format!(" --experiments {:?}", args.experiments.join(","));
        }
        command += &format!(" --engine {}", engines.join(","));
        command += &json!(args.places).as_object().map_or_else(String::new, flags);
        if let Some(bytes) = args.places.cgroup_memory {
            command += &format!(" --cgroup-memory {bytes}");
        }
        if args.repeat > 1 {
            command += &format!(" --repeat {}", args.repeat);
        }
        let knobs = json!({"memory": args.memory, "field_size": args.field_size, "cleave": args.cleave});
        command += &knobs.as_object().map_or_else(String::new, flags);
        Results {
            paper: self.name.to_owned(),
            title: self.title.to_owned(),
            scale: args.scale,
            command,
            notes: notes.to_vec(),
            runs: measured.iter().flat_map(|(_, outcomes)| outcomes.iter().cloned()).collect(),
            claims: chosen.iter().map(|experiment| Claim::of(self.name, experiment, measured)).collect(),
        }
    }
}

/// CleaveDB's options of a run: those of the user, then those of the experiment, of which the last of each key counts.
fn options(asked: Option<&CleaveOptions>, variant: Option<Variant>, memory: Option<u64>) -> Option<CleaveOptions> {
    let (asked, memory) = (asked.map(CleaveOptions::to_string), memory.map(|bytes| format!("memory={bytes}")));
    let of_experiment = variant.map(|variant| variant.options);
    let all: Vec<&str> = memory.as_deref().into_iter().chain(asked.as_deref()).chain(of_experiment).collect();
    (!all.is_empty())
        .then(|| all.join(",").parse().expect("the parts were parsed before: by the parser, and by a test"))
}

/// The note if nothing limits the page cache.
const PAGE_CACHE: &str = "The page cache was used in addition to the memory budget; --direct (as in the papers) or --cgroup-memory limits it.";
/// The smallest memory budget of CleaveDB.
const MEMORY_MIN: u64 = 16 << 20;

fn write(path: Option<&Path>, results: &Results) -> Result<()> {
    let Some(path) = path else { return Ok(()) };
    let json = serde_json::to_string_pretty(results).map_err(Failure::because("cannot make JSON"))?;
    std::fs::write(path, json + "\n").map_err(Failure::because(format!("cannot write {}", path.display())))
}

fn print(paper: &Paper, results: &Results, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}\n", paper.title)?;
    if !results.runs.is_empty() {
        results.notes.iter().try_for_each(|note| writeln!(out, "{note}"))?;
        writeln!(out)?;
    }
    claim::print(&results.claims, out)?;
    if results.runs.is_empty() {
        return writeln!(
            out,
            "\nNothing was measured: CleaveDB does not have the features that these experiments need."
        );
    }
    writeln!(out)?;
    table::print(&results.runs, out)?;
    detail::print(&results.runs, out)?;
    match results.runs.iter().any(table::is_unbounded) {
        true => writeln!(out, "{PAGE_CACHE}"),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::cleave_options::CleaveOptions;

    #[test]
    fn every_paper_has_claims_and_every_run_is_a_workload() {
        for name in PaperName::value_variants() {
            let paper = definition(*name);
            assert_eq!(name.to_possible_value().unwrap().get_name(), paper.name);
            assert!(!paper.experiments.is_empty());
            for spec in specs_of(&paper.chosen(&[]).unwrap()) {
                let workload = crate::workload::find(spec.workload).unwrap();
                assert!(workload.loaded || spec.age == 0, "{} is not loaded", spec.workload);
                let options = spec.variant.map_or("separation=never", |variant| variant.options);
                assert_eq!(options.parse::<CleaveOptions>().map(|_| ()), Ok(()));
            }
            for experiment in paper.experiments {
                if let How::Measured(spec, _, over) = experiment.how
                    && let Some(other) = spec.other(over)
                {
                    let names = [spec, other].map(|spec| claim::name_of(&spec, over));
                    assert_ne!(names[0], names[1], "{}: figures cannot be distinguished", experiment.name);
                }
                assert!(experiment.claimed.is_none_or(|(low, high)| 0.0 < low && low <= high), "{}", experiment.name);
            }
        }
    }

    #[test]
    fn a_rival_whose_run_fails_is_left_out_and_ours_is_not() {
        let mut notes = Vec::new();
        let failure = || Failure::new("the run failed");
        assert!(go_on(&mut notes, "rocksdb", failure()).is_ok());
        assert!(
            go_on(&mut notes, "cleave", failure()).is_err() && go_on(&mut notes, "cleave-inline", failure()).is_err()
        );
        assert_eq!(notes, ["left out: the run failed"]);
    }

    #[test]
    fn a_paper_on_two_tiers_has_a_rocksdb_that_keeps_to_the_budget_as_a_further_rival() {
        let [two_tiers, one_directory] = [&decoukv::PAPER, &kvaccel::PAPER];
        assert!(["rocksdb", HELD, OURS].iter().all(|engine| two_tiers.runs(engine)));
        assert!(![HELD, INLINE].iter().any(|engine| one_directory.runs(engine)));
        assert!(![NO_SLOWDOWN, HASHED].iter().any(|engine| two_tiers.runs(engine)));
    }

    #[test]
    fn experiments_are_chosen_by_parts_of_their_names() {
        let chosen = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
            decoukv::PAPER.chosen(&texts)
        };
        let all = decoukv::PAPER.experiments.len();
        let some = chosen(&["YCSB A", "recovery"]).unwrap();
        assert!(!some.is_empty() && some.len() < all);
        assert!(
            some.iter().all(|experiment| experiment.name.contains("YCSB A") || experiment.name.contains("recovery"))
        );
        assert_eq!(chosen(&[]).unwrap().len(), all);
        let failure = chosen(&["YCSB A", "nothing of that name"]).err().map(|failure| failure.to_string());
        assert!(failure.is_some_and(|message| message.contains("nothing of that name")));
    }

    #[test]
    fn a_run_of_several_claims_is_done_once() {
        let specs = specs_of(&decoukv::PAPER.chosen(&[]).unwrap());
        let inserts = specs.iter().filter(|spec| **spec == decoukv::INSERT).count();
        let claims = decoukv::PAPER.experiments.iter();
        let needed = claims.filter(|claim| matches!(claim.how, How::Measured(spec, ..) if spec == decoukv::INSERT));
        assert!(inserts == 1 && needed.count() > 1);
    }
}
