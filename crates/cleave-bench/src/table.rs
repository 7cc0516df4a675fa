//! The table of results that `run`, `compare` and `paper` print; the report shows its rows too.

use std::io::{self, Write};

use crate::engine::Merges;
use crate::label::labels;
use crate::latency::Summary;
use crate::peak::{PEAK, Peak};
use crate::result::Outcome;
use crate::size;
use crate::usage::busy_percent;
use crate::workload::Operation;

/// Column titles; the first two columns are text and left-aligned.
#[rustfmt::skip]
pub const TITLES: [&str; 15] = [
    "workload", "engine", "ops/s", "lowest s", "mean us", "p50 us", "p99 us", "p99.9 us", "max us", "stall s", "cpu us/op",
    "write amp", "read amp", "space amp", "rss peak",
];

/// A column that is printed if a run has a value for it: its title, its number of decimals, and the value.
type Extra = (&'static str, usize, fn(&Outcome) -> Option<f64>);

const EXTRA: [Extra; 6] = [
    ("background/s", 0, |outcome| outcome.background_ops_per_s),
    ("recover s", 3, |outcome| outcome.recover_s),
    ("fast MiB", 1, |outcome| outcome.fast_peak_bytes.map(|bytes| bytes as f64 / f64::from(1 << 20))),
    ("fast %", 0, |outcome| busy(outcome, "fast")),
    ("slow %", 0, |outcome| busy(outcome, "slow")),
    ("busier %", 0, |outcome| outcome.busier.filter(|_| has_tiers(outcome)).map(|band| band.mean * 100.0)),
];

/// Mean utilisation of the device of `directory`, in percent; none without tiers.
fn busy(outcome: &Outcome, directory: &str) -> Option<f64> {
    busy_percent(&outcome.devices, directory).filter(|_| has_tiers(outcome))
}

fn has_tiers(outcome: &Outcome) -> bool {
    outcome.directories.iter().any(|one| one.directory == "slow")
}

/// Prints one row per run, what it took to settle, and the notes of the engines.
pub fn print(outcomes: &[Outcome], out: &mut dyn Write) -> io::Result<()> {
    let mut rows: Vec<Vec<String>> = vec![TITLES.iter().map(|&title| title.to_owned()).collect()];
    rows.extend(outcomes.iter().zip(labels(outcomes)).map(|(outcome, label)| row(outcome, &label)));
    for (title, digits, value) in EXTRA {
        if outcomes.iter().any(|outcome| value(outcome).is_some()) {
            let cell = |outcome| value(outcome).map_or("-".to_owned(), |value| format!("{value:.digits$}"));
            let column = std::iter::once(title.to_owned()).chain(outcomes.iter().map(cell));
            rows.iter_mut().zip(column).for_each(|(row, cell)| row.push(cell));
        }
    }
    grid(&rows, 2, out)?;
    writeln!(out)?;
    settles(outcomes, out)?;
    footer(outcomes, out)
}

/// Prints what it took to settle.
pub fn settles(outcomes: &[Outcome], out: &mut dyn Write) -> io::Result<()> {
    for outcome in outcomes.iter().filter(|outcome| is_settle(outcome)) {
        let cpu_s = outcome.cpu_user_s + outcome.cpu_sys_s;
        let (written, read) = (size::human(outcome.device_bytes_written), size::human(outcome.device_bytes_read));
        let (name, engine, seconds) = (&outcome.workload, &outcome.engine, outcome.elapsed_s);
        writeln!(out, "{name}, {engine}: {seconds:.1} s, {cpu_s:.1} s of CPU, {written} written, {read} read")?;
    }
    Ok(())
}

/// Prints what the runs have in common, the peaks of open loops, and the notes of the engines.
pub fn footer(outcomes: &[Outcome], out: &mut dyn Write) -> io::Result<()> {
    let Some(first) = outcomes.first() else { return Ok(()) };
    let (records, threads, budget) = (first.records, first.threads, size::human(first.memory_budget));
    let durability = first.durability.name();
    let bounds = bounds(first);
    writeln!(out, "{records} records, {threads} client threads, {budget} of memory, {durability} durability{bounds}")?;
    let mut said = Vec::new();
    for outcome in outcomes {
        let peak: Option<Peak> = serde_json::from_value(outcome.settings[PEAK].clone()).ok();
        let line = peak.map(|peak| format!("{}: {}", outcome.workload, peak.words()));
        if let Some(line) = line.filter(|line| !said.contains(line)) {
            writeln!(out, "{line}")?;
            said.push(line);
        }
    }
    for outcome in outcomes {
        for note in notes(outcome) {
            let line = format!("{} {}: {note}", outcome.engine, outcome.version);
            if !said.contains(&line) {
                writeln!(out, "{line}")?;
                said.push(line);
            }
        }
    }
    Ok(())
}

/// What bounds a run, as the end of a sentence: direct I/O, the memory cgroup; on two tiers also that there is none.
fn bounds(outcome: &Outcome) -> String {
    let direct = outcome.settings["options"]["direct"] == true;
    let cgroup = match outcome.settings["cgroup_memory"].as_u64() {
        Some(bytes) => Some(format!("a memory cgroup of {}", size::human(bytes))),
        None => has_tiers(outcome).then(|| "no memory cgroup".to_owned()),
    };
    direct.then(|| "direct I/O".to_owned()).into_iter().chain(cgroup).map(|bound| format!(", {bound}")).collect()
}

/// Whether the page cache was used beyond the memory budget without a limit.
pub fn is_unbounded(outcome: &Outcome) -> bool {
    outcome.settings["options"]["direct"] != true && outcome.settings["cgroup_memory"].is_null()
}

/// Whether it is the phase that waits for background work.
pub fn is_settle(outcome: &Outcome) -> bool {
    outcome.latency_by_op.contains_key(Operation::Settle.name())
}

/// Prints rows of equal length, the first `texts` columns left-aligned.
pub fn grid(rows: &[Vec<String>], texts: usize, out: &mut dyn Write) -> io::Result<()> {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..rows[0].len()).map(width).collect();
    for row in rows {
        let mut line = String::new();
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            line += &match column < texts {
                true => format!("{cell:<width$}  "),
                false => format!("{cell:>width$}  "),
            };
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// The cells of one row, for the run called `label`.
pub fn row(outcome: &Outcome, label: &str) -> Vec<String> {
    let latency = |of: fn(&Summary) -> f64, digits: usize| {
        outcome.latency_us.as_ref().map_or("-".to_owned(), |latency| format!("{:.digits$}", of(latency)))
    };
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let space = (outcome.live_bytes > 0).then(|| outcome.space_bytes as f64 / outcome.live_bytes as f64);
    let engine = match get_put(outcome) {
        true => format!("{} (get-put)", outcome.engine),
        false => outcome.engine.clone(),
    };
    vec![
        label.to_owned(),
        engine,
        format!("{:.0}", outcome.ops_per_s),
        outcome.lowest_second.to_string(),
        latency(|latency| latency.mean, 1),
        latency(|latency| latency.p50, 1),
        latency(|latency| latency.p99, 1),
        latency(|latency| latency.p999, 1),
        latency(|latency| latency.max, 0),
        outcome.stall_seconds.to_string(),
        format!("{:.2}", outcome.cpu_us_per_operation()),
        ratio(outcome.write_amplification),
        ratio(outcome.read_amplification),
        ratio(space),
        size::human(outcome.rss_peak_bytes),
    ]
}

/// Whether merges were implemented by reading and writing whole values.
fn get_put(outcome: &Outcome) -> bool {
    outcome.latency_by_op.keys().any(|operation| operation.starts_with(Operation::Merge.name()))
        && serde_json::from_value(outcome.settings["merges"].clone())
            .is_ok_and(|merges: Merges| merges == Merges::GetPut)
}

/// The notes about the engine of an outcome.
pub fn notes(outcome: &Outcome) -> Vec<String> {
    serde_json::from_value(outcome.settings["notes"].clone()).unwrap_or_default()
}
