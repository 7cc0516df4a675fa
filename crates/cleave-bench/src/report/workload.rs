//! The section of one workload with its charts: throughput, latency, stalls, CPU, device, space, memory.

use std::collections::BTreeSet;
use std::time::Duration;

use super::bars::{Bar, bars};
use super::html::escape;
use super::lines::{Line, named, seconds};
use super::number::{short, time, times};
use super::runs::{Entry, Group};
use crate::result::Outcome;
use crate::series::{Spread, stalls};
use crate::size;
use crate::tuning::Setting;
use crate::usage::DirectoryUse;

const MIB: f64 = 1024.0 * 1024.0;

/// The section of `group`; `number` is its position on the page.
pub fn section(number: usize, group: &Group<'_>) -> String {
    let entries = &group.entries;
    let mut html = format!("<h2 id=\"w{number}\">{}</h2>\n<div class=\"charts\">\n", escape(&group.label));
    html += &throughput(entries);
    html += &latency(entries);
    html += &over_time(entries);
    html += &utilisation(entries);
    html += &tuning(entries);
    html += &amplification(entries);
    html += &space(entries);
    html += &memory(entries);
    let open = each(entries, |outcome| Some(outcome.open_s * 1e3));
    html += &bars("Milliseconds to open", "the store after its load, or a new store", &open, short);
    html += &bars("Seconds to recover after a kill", "", &each(entries, |outcome| outcome.recover_s), short);
    html + "</div>\n"
}

fn each<'a>(entries: &'a [Entry<'_>], value: impl Fn(&Outcome) -> Option<f64>) -> Vec<Bar<'a>> {
    let bar = |entry: &'a Entry<'_>| {
        Some(Bar { color: entry.color, label: &entry.name, value: value(entry.outcome)?, mark: None })
    };
    entries.iter().filter_map(bar).collect()
}

fn line(entry: &Entry<'_>, values: Vec<f64>) -> Line {
    Line { color: entry.color, values, ..Line::default() }
}

/// One note for each engine that has one.
fn notes(entries: &[Entry<'_>], note: impl Fn(&Outcome) -> Option<String>) -> String {
    let notes = entries.iter().filter_map(|entry| Some(format!("{}: {}", entry.name, note(entry.outcome)?)));
    notes.collect::<Vec<_>>().join("\n")
}

fn throughput(entries: &[Entry<'_>]) -> String {
    let html = bars("Throughput, operations per second", "", &each(entries, |outcome| Some(outcome.ops_per_s)), short);
    let background = each(entries, |outcome| outcome.background_ops_per_s);
    html + &bars("Throughput of the background client", "operations per second", &background, short)
}

fn latency(entries: &[Entry<'_>]) -> String {
    let percentiles = |entry: &Entry<'_>| {
        let latency = entry.outcome.latency_us.as_ref()?;
        Some(line(entry, vec![latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max]))
    };
    let lines: Vec<Line> = entries.iter().filter_map(percentiles).collect();
    let names = ["P50", "P90", "P99", "P99.9", "P99.99", "max"];
    named("Latency, logarithmic scale", "", &lines, &names, time)
}

/// Operations in each second, with stalled seconds marked.
fn over_time(entries: &[Entry<'_>]) -> String {
    let marked = |entry: &Entry<'_>| {
        let values: Vec<f64> = whole(&entry.outcome.per_second).iter().map(|&count| count as f64).collect();
        let bursts = entry.outcome.bursts();
        let elapsed = Duration::try_from_secs_f64(entry.outcome.elapsed_s).unwrap_or_default();
        let marks = stalls(&entry.outcome.per_second, elapsed, bursts);
        Line { marks, ..line(entry, values) }
    };
    let lines: Vec<Line> = entries.iter().map(marked).collect();
    let words = |outcome: &Outcome| {
        let longest = time(outcome.longest_stall_s * 1e6);
        let lowest = short(outcome.lowest_second as f64);
        Some(match outcome.stall_seconds {
            0 => format!("no stall, longest pause {longest}, lowest second {lowest}"),
            count => format!("{count} s stalled (marked), longest pause {longest}, lowest second {lowest}"),
        })
    };
    let note = notes(entries, words)
        + "\nstall: a second with less than a tenth of the mean; with bursts, of the time that is on";
    seconds("Operations in each second", &note, &lines)
}

/// CPU and device in each second; the band spans P10 to P90, and the dashed line is the mean.
fn utilisation(entries: &[Entry<'_>]) -> String {
    let band = |entry: &Entry<'_>, per_second: Vec<f64>| match Spread::of(&per_second) {
        Some(spread) => {
            let (band, level) = (Some((spread.p10, spread.p90)), Some(spread.mean));
            Line { band, level, ..line(entry, whole(&per_second).to_vec()) }
        }
        None => line(entry, whole(&per_second).to_vec()),
    };
    let chart = |title: &str, unit: &str, per_second: &dyn Fn(&Outcome) -> Vec<f64>| {
        let lines: Vec<Line> = entries.iter().map(|entry| band(entry, per_second(entry.outcome))).collect();
        let words = |outcome: &Outcome| {
            let Spread { mean, p10, p90, .. } = Spread::of(&per_second(outcome))?;
            Some(format!("mean {}, P10-P90 {} to {}{unit}", short(mean), short(p10), short(p90)))
        };
        seconds(title, &notes(entries, words), &lines)
    };
    let mebibytes = |bytes: &[u64]| bytes.iter().map(|&bytes| bytes as f64 / MIB).collect::<Vec<_>>();
    let mut html = chart("CPU in each second, cores", " cores", &|outcome| outcome.cpu_per_second.clone());
    let percent = |parts: &[f64]| parts.iter().map(|part| part * 100.0).collect::<Vec<_>>();
    html += &chart("Busiest device in each second, %", "%", &|outcome| percent(&outcome.disk_utilisation_per_second));
    for directories in several_devices(entries) {
        let title = format!("Device of {directories} busy in each second, %");
        html += &chart(&title, "%", &|outcome| {
            let device = outcome.devices.iter().find(|device| device.directories == directories);
            device.map_or_else(Vec::new, |device| percent(&device.busy_per_second))
        });
    }
    html += &chart("Busier of CPU and devices in each second, %", "%", &|outcome| percent(&outcome.busier_per_second));
    html += &chart("Written to the device in each second, MiB", " MiB", &|outcome| {
        mebibytes(&outcome.device_bytes_written_per_second)
    });
    html + &chart("Read from the device in each second, MiB", " MiB", &|outcome| {
        mebibytes(&outcome.device_bytes_read_per_second)
    })
}

/// The directories of each device with a utilisation of its own, if a run has more than one device.
fn several_devices<'a>(entries: &'a [Entry<'_>]) -> BTreeSet<&'a str> {
    let several = entries.iter().filter(|entry| entry.outcome.devices.len() > 1);
    let own = several.flat_map(|entry| &entry.outcome.devices).filter(|device| device.carries.is_empty());
    own.map(|device| &*device.directories).collect()
}

/// The settings of CleaveDB's scheduler at the end of each second.
fn tuning(entries: &[Entry<'_>]) -> String {
    let chart = |title: &str, value: fn(Setting) -> f64, changes: fn(Setting) -> u64| {
        let tuned = entries.iter().filter_map(|entry| Some((entry, entry.outcome.tuning.as_ref()?)));
        let lines = tuned.map(|(entry, tuning)| line(entry, tuning.per_second.iter().copied().map(value).collect()));
        let words = |outcome: &Outcome| {
            let tuning = outcome.tuning.as_ref()?;
            let [first, max, last] = [tuning.first, tuning.max, tuning.last].map(|setting| short(value(setting)));
            let changes = tuning.changes_of(changes);
            Some(format!("first {first}, highest {max}, last {last}, {changes} changes"))
        };
        seconds(title, &notes(entries, words), &lines.collect::<Vec<Line>>())
    };
    let mut html = chart("IMTN: runs of a merge", |setting| setting.merge_runs as f64, |setting| setting.merge_runs);
    html += &chart("DFTS: MiB of a flush", |setting| setting.flush_bytes as f64 / MIB, |setting| setting.flush_bytes);
    html
}

fn amplification(entries: &[Entry<'_>]) -> String {
    let write = each(entries, |outcome| outcome.write_amplification);
    let mut html = bars("Write amplification: device bytes per user byte", "", &write, times);
    let read = each(entries, |outcome| outcome.read_amplification);
    html +=
        &bars("Read amplification: device bytes per user byte", "page cache hits are not device bytes", &read, times);
    let cpu = each(entries, |outcome| Some(outcome.cpu_s_per_million));
    html + &bars("CPU seconds per million operations", "", &cpu, short)
}

/// Disk space at the end of each second, with the live bytes at the end as a dashed line.
fn space(entries: &[Entry<'_>]) -> String {
    let used = |entry: &Entry<'_>| {
        let values = whole(&entry.outcome.space_per_second).iter().map(|&bytes| bytes as f64 / MIB).collect();
        Line { level: Some(entry.outcome.live_bytes as f64 / MIB), ..line(entry, values) }
    };
    let lines: Vec<Line> = entries.iter().map(used).collect();
    let live = entries.iter().map(|entry| entry.outcome.live_bytes).max().unwrap_or(0);
    let peaks = notes(entries, |outcome| {
        let (peak, end) = (size::human(outcome.space_peak_bytes), size::human(outcome.space_bytes));
        let of_directory = |one: &DirectoryUse| format!("{} at most {}", one.directory, size::human(one.bytes_peak));
        let tiers = outcome.directories.iter().filter(|_| outcome.directories.len() > 1).map(of_directory);
        Some([format!("peak {peak}, end {end}")].into_iter().chain(tiers).collect::<Vec<_>>().join(", "))
    });
    let note = format!("{peaks}\ndashed: live bytes at the end, {}", size::human(live));
    let mut html = seconds("Disk space, MiB", &note, &lines);
    let factor =
        |outcome: &Outcome| (outcome.live_bytes > 0).then(|| outcome.space_bytes as f64 / outcome.live_bytes as f64);
    html += &bars("Disk space at the end per live byte", "", &each(entries, factor), times);
    html
}

/// Peak resident memory, with the budget marked.
fn memory(entries: &[Entry<'_>]) -> String {
    let mut peaks = each(entries, |outcome| Some(outcome.rss_peak_bytes as f64 / MIB));
    for (bar, entry) in peaks.iter_mut().zip(entries) {
        bar.mark = Some(entry.outcome.memory_budget as f64 / MIB);
    }
    let budget = entries.iter().map(|entry| entry.outcome.memory_budget).max().unwrap_or(0);
    let note = format!(
        "mark: the budget, {}; the peak includes the benchmark itself, and a load before the run",
        size::human(budget)
    );
    bars("Peak resident memory, MiB", &note, &peaks, short)
}

/// Without the last, incomplete second, if there is another.
fn whole<T>(seconds: &[T]) -> &[T] {
    match seconds {
        [whole @ .., _] if !whole.is_empty() => whole,
        all => all,
    }
}
