//! The tables below the main one, printed by `paper` and with `--detail`: latencies of each kind of operation, processors
//! and devices, what was unused while writers waited, space in each directory, memory, and the settings of CleaveDB's scheduler and what its jobs used.

use std::io::{self, Write};

use crate::jobs::{self, JobUse};
use crate::label::labels;
use crate::latency::Summary;
use crate::result::Outcome;
use crate::size;
use crate::table::grid;
use crate::tuning::Setting;
use crate::usage::Band;

/// One table: its title, its columns after workload and engine, and the rows of a run; a run may have none.
struct Table {
    title: &'static str,
    columns: &'static [&'static str],
    rows: fn(&Outcome) -> Vec<Vec<String>>,
}

const TABLES: [Table; 11] = [
    Table {
        title: "Latency by kind of operation",
        columns: &["operation", "count", "mean us", "p50 us", "p90 us", "p99 us", "p99.9 us", "max us"],
        rows: latencies,
    },
    Table {
        title: "Steadiness; lowest: the slowest complete second divided by the mean, slow: bytes that the slow device wrote for \
                each byte of the user; the last: operations of each second",
        columns: &["stall s", "longest wait ms", "lowest", "slow B/B", "over time"],
        rows: steadiness,
    },
    Table {
        title: "Utilisation over complete seconds; busier: per second the larger of processors and busiest device",
        columns: &["resource", "mean %", "p5 %", "p95 %", "read", "written", "over time"],
        rows: resources,
    },
    Table {
        title: "While writers waited for background work; waiting: seconds in which they did, in percent of those with load; used: the \
                mean share of the device's capacity in these seconds, and below: the share of these seconds that used less",
        columns: &[
            "device",
            "capacity",
            "waiting s",
            "waiting %",
            "used %",
            "busy %",
            "a second",
            "below 50%",
            "below 10%",
        ],
        rows: waiting,
    },
    Table {
        title: "While writers went around background work: complete seconds, and what went over the host's link of the key-value device \
                and over the slow device in these; the last: bytes that went around in each second",
        columns: &["seconds", "link", "slow device", "over time"],
        rows: redirects,
    },
    Table {
        title: "Host link of the key-value device, from the open to the close; B/B: both directions for each byte of the user",
        columns: &["sent", "received", "B/B"],
        rows: host_link,
    },
    Table { title: "Space by directory", columns: &["directory", "at the end", "peak"], rows: directories },
    Table {
        title: "Memory, the most at the end of a second; unflushed: index tables and runs, or memtables",
        columns: &["part", "bytes", "over time"],
        rows: memory,
    },
    Table {
        title: "Scheduling; IMTN: runs of a merge, DFTS: bytes of a flush",
        columns: &["setting", "first", "min", "median", "max", "last", "changes", "over time"],
        rows: settings,
    },
    Table {
        title: "Background jobs by kind; bytes: read and written, as far as the store counts them",
        columns: &["jobs", "count", "cpu s", "bytes", "records moved"],
        rows: jobs,
    },
    Table {
        title: "Processor time of moving values, as whole logs to the slow tier (demotion) and record by record (emptying)",
        columns: &["moved", "records", "us a record", "ns a byte"],
        rows: moved,
    },
];

/// Prints each table that has rows.
pub fn print(outcomes: &[Outcome], out: &mut dyn Write) -> io::Result<()> {
    let labels = labels(outcomes);
    for Table { title, columns, rows } in TABLES {
        let titles = [&["workload", "engine"], columns].concat();
        let mut cells: Vec<Vec<String>> = vec![titles.into_iter().map(str::to_owned).collect()];
        for (outcome, label) in outcomes.iter().zip(&labels) {
            let of_run = [label.clone(), outcome.engine.clone()];
            cells.extend(rows(outcome).into_iter().map(|row| [&of_run[..], &row].concat()));
        }
        if cells.len() > 1 {
            writeln!(out, "\n{title}:")?;
            grid(&cells, 3, out)?;
        }
    }
    Ok(())
}

fn latencies(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |(name, latency): (&String, &Summary)| {
        let Summary { operations, mean, p50, p90, p99, p999, max, .. } = latency;
        let mut row = vec![name.clone(), operations.to_string()];
        row.extend([mean, p50, p90, p99, p999].map(|us| format!("{us:.1}")));
        row.push(format!("{max:.0}"));
        row
    };
    outcome.latency_by_op.iter().map(row).collect()
}

fn steadiness(outcome: &Outcome) -> Vec<Vec<String>> {
    let ratio = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let wait = format!("{:.1}", outcome.longest_wait_s() * 1e3);
    let ratios = [outcome.lowest_over_mean(), outcome.slow_bytes_per_user_byte()].map(ratio);
    vec![[&[outcome.stall_seconds.to_string(), wait], &ratios[..], &[curve(&outcome.per_second)]].concat()]
}

fn resources(outcome: &Outcome) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    let mut add = |name: String, band: Option<[f64; 3]>, bytes: [String; 2], per_second: &[f64]| {
        if let Some(band) = band {
            let percent = band.map(|part| format!("{:.1}", part * 100.0));
            let permille: Vec<u64> = per_second.iter().map(|part| (part * 1000.0) as u64).collect();
            rows.push([&[name], &percent[..], &bytes, &[curve(&permille)]].concat());
        }
    };
    let none = || ["-", "-"].map(str::to_owned);
    let of = |band: Option<Band>| band.map(|Band { mean, p5, p95 }| [mean, p5, p95]);
    add("processors".to_owned(), of(outcome.cpu_utilisation_band), none(), &outcome.cpu_per_second);
    for device in &outcome.devices {
        let total = |per_second: &[u64]| size::human(per_second.iter().sum());
        let bytes = [total(&device.bytes_read_per_second), total(&device.bytes_written_per_second)];
        add(device.name(), of(device.busy), bytes, &device.busy_per_second);
    }
    add("busier".to_owned(), of(outcome.busier), none(), &outcome.busier_per_second);
    rows
}

fn waiting(outcome: &Outcome) -> Vec<Vec<String>> {
    let Some(waiting) = &outcome.waiting else { return Vec::new() };
    let names = [waiting.device.clone(), waiting.capacity_of.words().to_owned(), waiting.waiting_seconds.to_string()];
    let [share, used, busy, bytes, half, tenth] = waiting.cells();
    vec![names.into_iter().chain([share, used, busy, bytes, half, tenth]).collect()]
}

fn redirects(outcome: &Outcome) -> Vec<Vec<String>> {
    let Some(redirects) = &outcome.redirects else { return Vec::new() };
    vec![redirects.cells().into_iter().chain([curve(&redirects.redirected_bytes_per_second)]).collect()]
}

fn host_link(outcome: &Outcome) -> Vec<Vec<String>> {
    let Some(link) = outcome.host_link else { return Vec::new() };
    let ratio = link.per_user_byte().map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    vec![vec![size::human(link.bytes_sent), size::human(link.bytes_received), ratio]]
}

fn directories(outcome: &Outcome) -> Vec<Vec<String>> {
    let directories = outcome.directories.iter();
    directories.map(|one| vec![one.directory.clone(), size::human(one.bytes), size::human(one.bytes_peak)]).collect()
}

fn memory(outcome: &Outcome) -> Vec<Vec<String>> {
    let resident = outcome.rss_per_second.iter().max().map(|max| ("resident", *max, curve(&outcome.rss_per_second)));
    let parts =
        outcome.memory_peak.map(|memory| [("unflushed", memory.unflushed_bytes), ("caches", memory.cache_bytes)]);
    let parts = parts.into_iter().flatten().map(|(name, bytes)| (name, bytes, String::new()));
    let row = |(name, bytes, over_time): (&str, u64, String)| vec![name.to_owned(), size::human(bytes), over_time];
    resident.into_iter().chain(parts).map(row).collect()
}

fn settings(outcome: &Outcome) -> Vec<Vec<String>> {
    let Some(tuning) = &outcome.tuning else { return Vec::new() };
    let row = |name: &str, value: fn(Setting) -> u64, is_bytes: bool| {
        let text = |number| if is_bytes { size::human(number) } else { number.to_string() };
        let changes = tuning.changes_of(value).to_string();
        let per_second: Vec<u64> = tuning.per_second.iter().copied().map(value).collect();
        let mut sorted = per_second.clone();
        sorted.push(value(tuning.first));
        sorted.sort_unstable();
        let (min, median) = (sorted[0], sorted[sorted.len() / 2]);
        let figures = [value(tuning.first), min, median, value(tuning.max), value(tuning.last)].map(text);
        [&[name.to_owned()], &figures[..], &[changes, curve(&per_second)]].concat()
    };
    vec![
        row("IMTN", |setting| setting.merge_runs, false),
        row("DFTS", |setting| setting.flush_bytes, true),
        row("HL0 trigger", |setting| setting.hl0_trigger, false),
        row("level 1", |setting| setting.level_base_bytes, true),
        row("compactions", |setting| setting.compactions, false),
    ]
}

fn jobs(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |job: &JobUse| {
        let JobUse { kind, count, cpu_s, bytes, records } = job;
        vec![kind.clone(), count.to_string(), format!("{cpu_s:.3}"), size::human(*bytes), records.to_string()]
    };
    outcome.jobs.iter().map(row).collect()
}

fn moved(outcome: &Outcome) -> Vec<Vec<String>> {
    let row = |(words, job): (&str, &JobUse)| {
        let a_record = job.cpu_us_a_record().map_or_else(|| "-".to_owned(), |us| format!("{us:.2}"));
        // Each byte is read and written.
        let bytes = job.bytes / 2;
        let a_byte = if bytes > 0 { format!("{:.3}", job.cpu_s * 1e9 / bytes as f64) } else { "-".to_owned() };
        vec![words.to_owned(), job.records.to_string(), a_record, a_byte]
    };
    jobs::moving(&outcome.jobs).map(row).collect()
}

/// The heights of a curve, lowest first.
const HEIGHTS: [char; 8] =
    ['\u{2581}', '\u{2582}', '\u{2583}', '\u{2584}', '\u{2585}', '\u{2586}', '\u{2587}', '\u{2588}'];
/// The most characters of a curve.
const CURVE: usize = 40;

/// `values` over time, from 0 to their maximum; each character is the highest of as many of them as fit.
fn curve(values: &[u64]) -> String {
    let max = values.iter().copied().max().unwrap_or(0).max(1);
    let highest = |part: &[u64]| part.iter().copied().max().unwrap_or(0);
    let height =
        |value: u64| HEIGHTS[((value * HEIGHTS.len() as u64).div_ceil(max) as usize).clamp(1, HEIGHTS.len()) - 1];
    values.chunks(values.len().div_ceil(CURVE).max(1)).map(|part| height(highest(part))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_fits_its_line_and_has_the_height_of_its_values() {
        assert_eq!(curve(&[2, 2, 4, 16, 8]), "\u{2581}\u{2581}\u{2582}\u{2588}\u{2584}");
        assert_eq!(curve(&[]), "");
        assert_eq!(curve(&[0, 0]), "\u{2581}\u{2581}");
        let long: Vec<u64> = (1..=100).collect();
        assert!(curve(&long).chars().count() <= CURVE && curve(&long).ends_with('\u{2588}'));
    }
}
