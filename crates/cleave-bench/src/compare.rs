//! `cleave-bench compare`: CleaveDB, one other engine, and CleaveDB with all values in its tables. The sets are the standard
//! workloads, each from rest; phases without rest at several scales (`sustained`); what is left to do after writing; values of
//! all sizes (`mixed`); and readers beside a writer. The ratios of all results follow, those that CleaveDB loses first.

use std::io::{self, Write};

use crate::args::{Compare, CompareSet, Run};
use crate::engine::{INLINE, OURS};
use crate::failure::{Failure, Result};
use crate::label::labels;
use crate::latency::Summary;
use crate::phase::SUSTAINED;
use crate::plan::{Places, Shape};
use crate::result::{EVEN, Outcome};
use crate::size::Lengths;
use crate::workload::MIXED_LENGTHS;
use crate::{engines, report, suite, table};

/// The standard workloads.
const WORKLOADS: [&str; 12] = [
    "fillrandom",
    "overwrite",
    "readrandom",
    "readwhilewriting",
    "seekrandom",
    "mergerandom",
    "ycsb-a",
    "ycsb-b",
    "ycsb-c",
    "ycsb-e",
    "ycsb-f",
    "ycsb-am",
];

/// The size of a memory cgroup, which the page cache counts in.
const CGROUP_MEMORY: u64 = 1 << 30;
/// Seconds of a phase with `--quick`.
const QUICK_PHASE_S: f64 = 3.0;
/// Seconds of the phase `mixed`: enough for all its operations at a tenth of the usual speed.
const MIXED_S: f64 = 150.0;
/// Clients that read beside the writer.
const READERS: u64 = 4;
/// Bytes of the values that they read.
const READ_BYTES: usize = 400;

/// A number of records, and whether their run is in a memory cgroup.
struct Scale {
    records: u64,
    in_cgroup: bool,
}

/// The sizes of all sets.
struct Sizes {
    /// Records of the standard workloads and before the settle, of `mixed`, and of the readers.
    records: [u64; 3],
    memory: u64,
    sustained: Vec<Scale>,
    phase_s: Option<f64>,
    /// The limit of memory cgroups, if not of all runs.
    cgroup_memory: Option<u64>,
}

impl Sizes {
    fn of(args: &Compare) -> Sizes {
        let scale = |records, in_cgroup| Scale { records, in_cgroup };
        let sizes = match args.quick {
            true => Sizes {
                records: [200_000, 50_000, 200_000],
                memory: 32 << 20,
                sustained: vec![scale(50_000, false), scale(200_000, true)],
                phase_s: Some(QUICK_PHASE_S),
                // The quick comparison needs no root.
                cgroup_memory: args.places.cgroup_memory,
            },
            false => Sizes {
                records: [2_000_000, 1_000_000, 1_000_000],
                memory: 256 << 20,
                sustained: vec![scale(500_000, false), scale(2_000_000, true), scale(10_000_000, true)],
                phase_s: None,
                cgroup_memory: args.places.cgroup_memory.or(Some(CGROUP_MEMORY)),
            },
        };
        match args.records {
            Some(records) => Sizes { records: [records; 3], sustained: vec![scale(records, true)], ..sizes },
            None => sizes,
        }
    }
}

/// Runs the sets and prints the table of each and all ratios; writes the JSON and the report if requested.
///
/// # Errors
/// As [`suite::measure`], and if a file cannot be written.
pub fn run(args: &Compare, out: &mut dyn Write) -> Result<()> {
    engines::find(&args.against)?;
    let sizes = Sizes::of(args);
    let mut comparison = Comparison { args, outcomes: Vec::new(), pairs: Vec::new() };
    // Fail now rather than after hours.
    comparison.write()?;
    for set in &args.sets {
        match set {
            CompareSet::Standard => comparison.measure(&sizes.standard(args), out)?,
            CompareSet::Sustained => {
                for scale in &sizes.sustained {
                    comparison.measure(&sizes.sustained(args, scale), out)?;
                }
            }
            CompareSet::Settle => comparison.measure(&sizes.of_list("load,update,settle", args), out)?,
            CompareSet::Mixed => comparison.measure(&sizes.mixed(args), out)?,
            CompareSet::Readers => {
                let run = sizes.readers(args);
                comparison.measure(&run, out)?;
                // Again, with as many writes as the other engine did.
                let background_rate = comparison.background_rate();
                comparison.measure(&Run { shape: Shape { background_rate, ..run.shape.clone() }, ..run }, out)?;
            }
        }
    }
    comparison.ratios(out).map_err(Failure::because("cannot write the ratios"))
}

impl Sizes {
    /// The standard workloads on both engines, one run each.
    fn standard(&self, args: &Compare) -> Run {
        let mut run = self.of_phases(args, args.places.clone());
        run.engine = vec![OURS.to_owned(), args.against.clone()];
        run.workload = WORKLOADS.map(str::to_owned).to_vec();
        run.shape.phase_seconds = None;
        run
    }

    /// The standard phases at one scale.
    fn sustained(&self, args: &Compare, scale: &Scale) -> Run {
        let cgroup_memory = self.cgroup_memory.filter(|_| scale.in_cgroup);
        let mut run = self.of_phases(args, Places { cgroup_memory, ..args.places.clone() });
        run.shape.records = scale.records;
        run
    }

    /// Values of all sizes.
    fn mixed(&self, args: &Compare) -> Run {
        let mut run = self.of_list("load,mixed", args);
        run.shape.records = self.records[1];
        run.shape.value_size = MIXED_LENGTHS.1;
        run.shape.phase_seconds = Some(MIXED_S);
        run
    }

    /// Readers beside a writer at full speed.
    fn readers(&self, args: &Compare) -> Run {
        let mut run = self.of_list("load,readwhilewriting", args);
        run.shape.records = self.records[2];
        run.shape.value_size = Lengths::Fixed(READ_BYTES);
        run.shape.threads = READERS;
        run
    }

    /// One round of the phases `list`.
    fn of_list(&self, list: &str, args: &Compare) -> Run {
        let places = Places { cgroup_memory: self.cgroup_memory, ..args.places.clone() };
        let run = self.of_phases(args, places);
        Run { shape: Shape { phases: Some(list.to_owned()), rounds: Some(1), ..run.shape }, ..run }
    }

    /// The phases of `sustained` on all engines.
    fn of_phases(&self, args: &Compare, places: Places) -> Run {
        let shape = Shape { phase_seconds: self.phase_s, memory: self.memory, ..Shape::new(self.records[0]) };
        Run {
            engine: vec![OURS.to_owned(), args.against.clone(), INLINE.to_owned()],
            workload: vec![SUSTAINED.to_owned()],
            shape,
            rate_of: None,
            places,
            repeat: args.repeat,
            json: None,
            detail: false,
        }
    }
}

/// The results so far.
struct Comparison<'a> {
    args: &'a Compare,
    outcomes: Vec<Outcome>,
    /// Positions of an outcome of CleaveDB and of another engine for the same work.
    pairs: Vec<(usize, usize)>,
}

impl Comparison<'_> {
    /// Does the runs of one set and prints their table.
    fn measure(&mut self, run: &Run, out: &mut dyn Write) -> Result<()> {
        let measured = suite::measure(run)?;
        let print = |out: &mut dyn Write| {
            table::print(&measured, out)?;
            writeln!(out)?;
            out.flush()
        };
        print(out).map_err(Failure::because("cannot write the table"))?;
        let engines = run.engine.len();
        for ours in (self.outcomes.len()..self.outcomes.len() + measured.len()).step_by(engines) {
            self.pairs.extend((1..engines).map(|rival| (ours, ours + rival)));
        }
        self.outcomes.extend(measured);
        // Earlier results are kept if a later run fails.
        self.write()
    }

    /// Writes per second of the other engine in the last set.
    fn background_rate(&self) -> Option<f64> {
        let theirs = self.outcomes.iter().rev().filter(|outcome| outcome.engine == self.args.against);
        theirs.filter_map(|outcome| outcome.background_ops_per_s).next().map(|rate| rate.round().max(1.0))
    }

    fn write(&self) -> Result<()> {
        if let Some(path) = &self.args.json {
            suite::write_json(&self.outcomes, path)?;
        }
        match &self.args.report {
            Some(path) => report::of_outcomes(&self.outcomes, path),
            None => Ok(()),
        }
    }

    /// Prints a table of ratios for each rival.
    fn ratios(&self, out: &mut dyn Write) -> io::Result<()> {
        let labels = labels(&self.outcomes);
        let mut rivals: Vec<&str> = Vec::new();
        for &(_, theirs) in &self.pairs {
            let rival = &*self.outcomes[theirs].engine;
            if !rivals.contains(&rival) {
                rivals.push(rival);
            }
        }
        for rival in rivals {
            let of_rival = self.pairs.iter().filter(|(_, theirs)| self.outcomes[*theirs].engine == rival);
            let rows =
                of_rival.map(|&(ours, theirs)| Row::of(&labels[ours], &self.outcomes[ours], &self.outcomes[theirs]));
            print(rival, rows.collect(), out)?;
        }
        Ok(())
    }
}

/// A figure that is compared, and whether more of it is better.
struct Figure {
    title: &'static str,
    is_gain: bool,
    of: fn(&Outcome) -> Option<f64>,
}

const FIGURES: [Figure; 10] = [
    Figure { title: "throughput", is_gain: true, of: |outcome| Some(outcome.ops_per_s) },
    Figure { title: "background", is_gain: true, of: |outcome| outcome.background_ops_per_s },
    Figure { title: "p50", is_gain: false, of: |outcome| latency(outcome, |latency| latency.p50) },
    Figure { title: "p99", is_gain: false, of: |outcome| latency(outcome, |latency| latency.p99) },
    Figure { title: "p99.9", is_gain: false, of: |outcome| latency(outcome, |latency| latency.p999) },
    Figure { title: "max", is_gain: false, of: |outcome| latency(outcome, |latency| latency.max) },
    Figure { title: "cpu", is_gain: false, of: |outcome| Some(outcome.cpu_s_per_million) },
    Figure { title: "write amp", is_gain: false, of: |outcome| outcome.write_amplification },
    Figure { title: "read amp", is_gain: false, of: |outcome| outcome.read_amplification },
    Figure { title: "space", is_gain: false, of: |outcome| Some(outcome.space_bytes as f64) },
];

/// A latency of `outcome`; none if it has none, or only one operation, whose throughput says the same.
fn latency(outcome: &Outcome, of: fn(&Summary) -> f64) -> Option<f64> {
    outcome.latency_us.as_ref().filter(|_| outcome.operations > 1).map(of)
}

/// The ratios of CleaveDB's figures to those of a rival, for the same work.
struct Row<'a> {
    label: &'a str,
    ratios: [Option<f64>; FIGURES.len()],
}

impl<'a> Row<'a> {
    fn of(label: &'a str, ours: &Outcome, theirs: &Outcome) -> Row<'a> {
        let ratio = |figure: &Figure| {
            let (ours, theirs) = ((figure.of)(ours)?, (figure.of)(theirs)?);
            (theirs > 0.0).then(|| ours / theirs)
        };
        Row { label, ratios: FIGURES.each_ref().map(ratio) }
    }

    fn throughput(&self) -> f64 {
        self.ratios[0].unwrap_or(f64::NAN)
    }
}

/// Prints the rows of one rival, the lowest throughput first, with the figures in which CleaveDB is worse.
fn print(rival: &str, mut rows: Vec<Row<'_>>, out: &mut dyn Write) -> io::Result<()> {
    rows.sort_by(|one, other| one.throughput().total_cmp(&other.throughput()));
    let width = rows.iter().map(|row| row.label.len()).max().unwrap_or(0).max(18);
    writeln!(out, "{OURS} / {rival} (throughput, background: higher is better; the others: lower is better)")?;
    let titles: String = FIGURES.iter().map(|figure| format!("{:>12}", figure.title)).collect();
    writeln!(out, "{:<width$}{titles}  worse in", "workload")?;
    for row in &rows {
        let mut line = format!("{:<width$}", row.label);
        let mut worse = Vec::new();
        for (figure, ratio) in FIGURES.iter().zip(row.ratios) {
            line += &ratio.map_or_else(|| format!("{:>12}", "-"), |ratio| format!("{ratio:>12.2}"));
            let gain = ratio.map(|ratio| if figure.is_gain { ratio } else { 1.0 / ratio });
            worse.extend(gain.filter(|gain| *gain < 1.0 / EVEN).map(|_| figure.title));
        }
        writeln!(out, "{}", format!("{line}  {}", worse.join(", ")).trim_end())?;
    }
    writeln!(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_rows_come_first_and_name_what_is_worse() {
        let row = |label, throughput, p99| {
            let mut ratios = [None; FIGURES.len()];
            (ratios[0], ratios[3]) = (Some(throughput), Some(p99));
            Row { label, ratios }
        };
        let mut out = Vec::new();
        print("rocksdb", vec![row("won", 2.0, 3.0), row("even", 0.97, 1.02), row("lost", 0.5, 0.5)], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        let starts = ["lost", "even", "won", ""];
        assert!(lines.len() == 4 && lines.iter().zip(starts).all(|(line, start)| line.starts_with(start)), "{text}");
        assert!(lines[0].ends_with("  throughput") && lines[1].ends_with('-') && lines[2].ends_with("  p99"), "{text}");
    }

    #[test]
    fn every_set_fits_its_schedule() {
        use clap::{Parser, ValueEnum};

        use crate::args::{Args, Command};
        use crate::phase::Schedule;

        let phases = |run: &Run| {
            run.shape.check().unwrap();
            let schedules = run.workload.iter().map(|name| Schedule::of(name, &run.shape).unwrap());
            schedules.map(|schedule| schedule.phases.len()).sum::<usize>()
        };
        for (options, cgroups) in [(&[][..], [None, Some(CGROUP_MEMORY)]), (&["--quick"], [None, None])] {
            let Command::Compare(args) = Args::parse_from([&["cleave-bench", "compare"], options].concat()).command
            else {
                panic!("the command is `compare`")
            };
            let sizes = Sizes::of(&args);
            let standard = sizes.standard(&args);
            assert_eq!((phases(&standard), standard.shape.phase_seconds), (WORKLOADS.len(), None));
            let sustained: Vec<Run> = sizes.sustained.iter().map(|scale| sizes.sustained(&args, scale)).collect();
            assert!(sustained.len() > 1 && sustained.iter().all(|run| phases(run) == 16));
            let limits = [&sustained[0], &sustained[1]].map(|run| run.places.cgroup_memory);
            assert_eq!(limits, cgroups);
            assert_eq!([phases(&sizes.mixed(&args)), phases(&sizes.readers(&args))], [3, 3]);
            assert_eq!(args.sets, CompareSet::value_variants());
        }
    }
}
