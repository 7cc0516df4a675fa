//! `cleave-bench compare`: the standard set of workloads on CleaveDB and one other engine, with the ratios of their results.

use std::io::{self, Write};

use crate::args::{Compare, Run};
use crate::engine::Durability;
use crate::failure::{Failure, Result};
use crate::plan::Shape;
use crate::result::Outcome;
use crate::size::Lengths;
use crate::{report, suite};

/// The standard set.
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

/// Runs the set and prints the table and the ratios; writes the report if requested.
///
/// # Errors
/// As [`suite::run`], and if the report cannot be written.
pub fn run(args: &Compare, out: &mut dyn Write) -> Result<()> {
    let (records, memory) = match args.quick {
        true => (200_000, 32 << 20),
        false => (2_000_000, 256 << 20),
    };
    let shape = Shape {
        records: args.records.unwrap_or(records),
        operations: None,
        key_size: Lengths::Fixed(24),
        value_size: Lengths::Fixed(1000),
        compressibility: 0.0,
        distribution: None,
        phases: None,
        rounds: None,
        phase_seconds: None,
        age: 0,
        right_away: false,
        scan_length: 10,
        input: None,
        rate_from_trace: false,
        threads: 1,
        rate: None,
        burst: 1,
        background_rate: None,
        memory,
        background_threads: 2,
        durability: Durability::Buffered,
        compression: None,
        cleave: None,
        seed: 1,
        verify: false,
        recover: false,
    };
    let run = Run {
        engine: vec!["cleave".to_owned(), args.against.clone()],
        workload: WORKLOADS.map(str::to_owned).to_vec(),
        shape,
        places: args.places.clone(),
        repeat: args.repeat,
        json: args.json.clone(),
    };
    if let Some(path) = &args.report {
        // Fail now rather than after hours.
        report::of_outcomes(&[], path)?;
    }
    let outcomes = suite::run(&run, out)?;
    ratios(&outcomes, &args.against, out).map_err(Failure::because("cannot write the ratios"))?;
    match &args.report {
        Some(path) => report::of_outcomes(&outcomes, path),
        None => Ok(()),
    }
}

/// Prints one row per workload; its two outcomes are adjacent.
fn ratios(outcomes: &[Outcome], against: &str, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\ncleave / {against} (throughput: higher is better; the others: lower is better)")?;
    writeln!(out, "{:<18}{:>11}{:>9}{:>9}{:>9}{:>11}", "workload", "throughput", "p50", "p99", "cpu", "write amp")?;
    for pair in outcomes.chunks_exact(2) {
        let [ours, theirs] = pair else { continue };
        let latency = |outcome: &Outcome| (outcome.latency_us.p50, outcome.latency_us.p99);
        let (ours_latency, theirs_latency) = (latency(ours), latency(theirs));
        let amplification = match (ours.write_amplification, theirs.write_amplification) {
            (Some(ours), Some(theirs)) => ratio(ours, theirs),
            _ => "-".to_owned(),
        };
        writeln!(
            out,
            "{:<18}{:>11}{:>9}{:>9}{:>9}{:>11}",
            ours.workload,
            ratio(ours.ops_per_s, theirs.ops_per_s),
            ratio(ours_latency.0, theirs_latency.0),
            ratio(ours_latency.1, theirs_latency.1),
            ratio(ours.cpu_s_per_million, theirs.cpu_s_per_million),
            amplification,
        )?;
    }
    Ok(())
}

fn ratio(ours: f64, theirs: f64) -> String {
    match theirs > 0.0 {
        true => format!("{:.2}", ours / theirs),
        false => "-".to_owned(),
    }
}
