//! `cleave-bench report`: results as one page of HTML that needs nothing else: no network, no scripts, light and dark.

mod chart;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use self::chart::{Bar, Line, bars, escape, lines};
use crate::args::Report;
use crate::failure::{Failure, Result};
use crate::result::Outcome;
use crate::table;

/// Reads the results and writes the page.
///
/// # Errors
/// If a file cannot be read or is no result of `run`, or the page cannot be written.
pub fn run(args: &Report) -> Result<()> {
    let mut outcomes: Vec<Outcome> = Vec::new();
    for path in &args.results {
        outcomes.extend(read(path)?);
    }
    if outcomes.is_empty() {
        return Err(Failure::new("there is no result in these files"));
    }
    fs::write(&args.out, page(&outcomes)).map_err(Failure::because(format!("cannot write {}", args.out.display())))
}

fn read(path: &Path) -> Result<Vec<Outcome>> {
    let text = fs::read(path).map_err(Failure::because(format!("cannot read {}", path.display())))?;
    serde_json::from_slice(&text).map_err(Failure::because(format!("{} has no results of `run`", path.display())))
}

fn page(outcomes: &[Outcome]) -> String {
    let mut engines: Vec<&str> = Vec::new();
    let mut workloads: Vec<&str> = Vec::new();
    for outcome in outcomes {
        if !engines.contains(&&*outcome.engine) {
            engines.push(&outcome.engine);
        }
        if !workloads.contains(&&*outcome.workload) {
            workloads.push(&outcome.workload);
        }
    }
    let mut html = String::from("<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n");
    html += "<meta name=\"viewport\" content=\"width=device-width\">\n<title>cleave-bench</title>\n";
    html += &format!("<style>\n{}</style>\n<main>\n<h1>cleave-bench</h1>\n", include_str!("page.css"));
    html += &format!("<p>{}</p>\n<p class=\"legend\">", machines(outcomes));
    for (color, engine) in engines.iter().enumerate() {
        html += &format!("<span class=\"c{}\"><i></i>{}</span>", color % chart::COLORS, escape(engine));
    }
    html += "</p>\n";
    html += &summary(outcomes);
    for workload in workloads {
        let of_workload: Vec<(usize, &Outcome)> = outcomes
            .iter()
            .filter(|outcome| outcome.workload == workload)
            .filter_map(|outcome| Some((engines.iter().position(|engine| *engine == outcome.engine)?, outcome)))
            .collect();
        html += &section(workload, &of_workload);
    }
    html += &reproduce(outcomes);
    html + "</main>\n</html>\n"
}

/// The table of the terminal.
fn summary(outcomes: &[Outcome]) -> String {
    let mut html = String::from("<div class=\"wide\"><table>\n<tr>");
    for title in table::TITLES {
        html += &format!("<th>{title}</th>");
    }
    html += "</tr>\n";
    for outcome in outcomes {
        html += "<tr>";
        for cell in table::row(outcome) {
            html += &format!("<td>{}</td>", escape(&cell));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

fn section(workload: &str, outcomes: &[(usize, &Outcome)]) -> String {
    let mut html = format!("<h2>{}</h2>\n<div class=\"charts\">\n", escape(workload));
    let bar = |value: fn(&Outcome) -> Option<f64>| -> Vec<Bar<'_>> {
        let known = outcomes.iter().filter_map(|(color, outcome)| Some((*color, &*outcome.engine, value(outcome)?)));
        known.map(|(color, label, value)| Bar { color, label, value }).collect()
    };
    let line = |values: &dyn Fn(&Outcome) -> Vec<f64>| -> Vec<Line> {
        outcomes.iter().map(|&(color, outcome)| Line { color, values: values(outcome), marks: Vec::new() }).collect()
    };
    let mebibytes = |bytes: &[u64]| bytes.iter().map(|&bytes| bytes as f64 / f64::from(1 << 20)).collect();

    html += &bars("Throughput, operations per second", &bar(|outcome| Some(outcome.ops_per_s)));
    let percentiles = |outcome: &Outcome| {
        let latency = &outcome.latency_us;
        vec![latency.p50, latency.p90, latency.p99, latency.p999, latency.p9999, latency.max]
    };
    let names = ["P50", "P90", "P99", "P99.9", "P99.99", "max"].map(str::to_owned);
    html += &lines("Latency, microseconds (logarithmic)", &line(&percentiles), &names, true);
    let mut throughput = line(&|outcome| whole(&outcome.per_second).iter().map(|&count| count as f64).collect());
    for (line, (_, outcome)) in throughput.iter_mut().zip(outcomes) {
        let stalls = line.values.iter().enumerate().filter(|(_, count)| **count < outcome.ops_per_s / 10.0);
        line.marks = stalls.map(|(second, _)| second).collect();
    }
    html += &lines("Operations in each second (dots: stalls)", &throughput, &[], false);
    html += &lines("CPU in each second, cores", &line(&|outcome| whole(&outcome.cpu_per_second).to_vec()), &[], false);
    let written = line(&|outcome| mebibytes(whole(&outcome.device_bytes_written_per_second)));
    html += &lines("Written to the device, MiB in each second", &written, &[], false);
    let read = line(&|outcome| mebibytes(whole(&outcome.device_bytes_read_per_second)));
    html += &lines("Read from the device, MiB in each second", &read, &[], false);
    html += &lines("Space, MiB", &line(&|outcome| mebibytes(whole(&outcome.space_per_second))), &[], false);
    html += &bars("Write amplification, device bytes for each user byte", &bar(|outcome| outcome.write_amplification));
    let space =
        |outcome: &Outcome| (outcome.live_bytes > 0).then(|| outcome.space_bytes as f64 / outcome.live_bytes as f64);
    html += &bars("Space amplification, bytes on storage for each live byte", &bar(space));
    html += &bars("CPU seconds for a million operations", &bar(|outcome| Some(outcome.cpu_s_per_million)));
    let memory = |outcome: &Outcome| Some(outcome.rss_peak_bytes as f64 / outcome.memory_budget as f64);
    html += &bars("Peak of resident memory, of the budget", &bar(memory));
    html + "</div>\n"
}

/// Without the last second, which is not a whole one, if there is another.
fn whole<T>(seconds: &[T]) -> &[T] {
    match seconds {
        [whole @ .., _] if !whole.is_empty() => whole,
        all => all,
    }
}

fn machines(outcomes: &[Outcome]) -> String {
    let mut machines: Vec<&str> = outcomes.iter().filter_map(|outcome| outcome.settings["machine"].as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    escape(&machines.join("; "))
}

/// Versions, what must be known about engines, and the commands that do all this again.
fn reproduce(outcomes: &[Outcome]) -> String {
    let mut notes: Vec<String> = Vec::new();
    let mut commands: BTreeMap<String, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for outcome in outcomes {
        let engine = format!("{} {}", outcome.engine, outcome.version);
        let of_engine: Vec<String> = table::notes(outcome).iter().map(|note| format!("{engine}: {note}")).collect();
        for note in std::iter::once(engine).chain(of_engine) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
        let (engines, workloads) = commands.entry(options(outcome)).or_default();
        for (list, name) in [(engines, &outcome.engine), (workloads, &outcome.workload)] {
            if !list.contains(&&**name) {
                list.push(name);
            }
        }
    }
    let mut html = String::from("<h2>Versions, settings, how to reproduce</h2>\n<ul>\n");
    for note in notes {
        html += &format!("<li>{}</li>\n", escape(&note));
    }
    html += "</ul>\n";
    for (options, (engines, workloads)) in commands {
        let (engines, workloads) = (engines.join(","), workloads.join(","));
        let command = format!("cleave-bench run --engine {engines} --workload {workloads}{options}");
        html += &format!("<pre>{}</pre>\n", escape(&command));
    }
    html
}

/// The options of a run as they are written on the command line.
fn options(outcome: &Outcome) -> String {
    let mut line = String::new();
    for (name, value) in outcome.settings["options"].as_object().into_iter().flatten() {
        let name = name.replace('_', "-");
        match value {
            Value::Null | Value::Bool(false) => {}
            Value::Number(number) if name == "burst" && number.as_u64() == Some(1) => {}
            Value::Bool(true) => line += &format!(" --{name}"),
            Value::String(text) => line += &format!(" --{name} {text}"),
            other => line += &format!(" --{name} {other}"),
        }
    }
    if let Some(bytes) = outcome.settings["cgroup_memory"].as_u64() {
        line += &format!(" --cgroup-memory {bytes}");
    }
    match outcome.ops_per_s_of_repeats.len() {
        0 => line,
        repeats => format!("{line} --repeat {repeats}"),
    }
}
