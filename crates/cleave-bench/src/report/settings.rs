//! The opening of the page, and its sections with all figures, versions, settings and the commands to reproduce the runs.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::html::escape;
use super::runs::Group;
use crate::engine::OURS;
use crate::flags::flags;
use crate::paper::Results;
use crate::result::Outcome;
use crate::{engines, size, table};

/// The title, the machine, the common settings of the runs, and links to the workloads.
pub fn opening(outcomes: &[Outcome], groups: &[Group<'_>], engines: &[&str]) -> String {
    let title = match engines.split_first() {
        Some((first, rivals)) if *first == OURS && !rivals.is_empty() => {
            format!("CleaveDB and {}", rivals.join(", "))
        }
        Some((first, [])) if *first == OURS => "CleaveDB".to_owned(),
        _ => "Results".to_owned(),
    };
    let mut html = format!("<h1>{}</h1>\n", escape(&title));
    if outcomes.is_empty() {
        return html;
    }
    let range = |value: fn(&Outcome) -> u64, words: fn(u64) -> String| {
        let (least, most) = (outcomes.iter().map(value).min(), outcomes.iter().map(value).max());
        let (least, most) = (least.map_or_else(String::new, words), most.map_or_else(String::new, words));
        if least == most { most } else { format!("{least} to {most}") }
    };
    let records = range(|outcome| outcome.records, |records| indicatif::HumanCount(records).to_string());
    let keys = range(|outcome| outcome.key_size as u64, |bytes| bytes.to_string());
    let values = range(|outcome| outcome.value_size as u64, |bytes| bytes.to_string());
    let memory = range(|outcome| outcome.memory_budget, size::human);
    let threads = range(|outcome| outcome.threads, |threads| threads.to_string());
    let durability = distinct(outcomes.iter().map(|outcome| outcome.durability.name()));
    let texts = |field: &str| distinct(outcomes.iter().filter_map(|outcome| outcome.settings[field].as_str()));
    let (mut machines, commits) = (texts("machine"), texts("commit"));
    let commits = (!commits.is_empty()).then(|| format!("commit {}", commits.join(", ")));
    machines.extend(commits.as_deref());
    html += &format!(
        "<p>{records} records; keys of {keys} B, values of {values} B; {memory} of memory; {threads} client thread{}; {} \
         durability</p>\n<p>{}</p>\n",
        if threads == "1" { "" } else { "s" },
        durability.join(" and "),
        escape(&machines.join("; ")),
    );
    if groups.len() > 1 {
        html += "<nav>";
        for (number, group) in groups.iter().enumerate() {
            html += &format!("<a href=\"#w{number}\">{}</a> ", escape(&group.label));
        }
        html += "</nav>\n";
    }
    html
}

fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    texts.collect::<BTreeSet<_>>().into_iter().collect()
}

/// All figures, versions and settings, and the commands to reproduce the runs.
pub fn section(outcomes: &[Outcome], groups: &[Group<'_>], plain: &[Outcome], papers: &[Results]) -> String {
    let mut html = String::new();
    if !outcomes.is_empty() {
        html += "<h2>All figures</h2>\n";
        html += &figures(groups);
        html += "<h2>Versions and settings</h2>\n";
        html += &versions(outcomes);
    }
    html += "<h2>How to reproduce</h2>\n";
    html += &build(outcomes);
    for paper in papers {
        html += &format!("<pre>{}</pre>\n", escape(&paper.command));
    }
    html + &commands(plain)
}

/// The table of results, as printed on the terminal.
fn figures(groups: &[Group<'_>]) -> String {
    let mut html = String::from("<div class=\"wide\"><table class=\"runs\">\n<tr>");
    for title in table::TITLES {
        html += &format!("<th>{title}</th>");
    }
    html += "</tr>\n";
    for group in groups {
        for entry in &group.entries {
            html += "<tr>";
            for cell in table::row(entry.outcome, &group.label) {
                html += &format!("<td>{}</td>", escape(&cell));
            }
            html += "</tr>\n";
        }
    }
    html + "</table></div>\n"
}

fn versions(outcomes: &[Outcome]) -> String {
    let mut notes: Vec<String> = Vec::new();
    for outcome in outcomes {
        let engine = format!("{} {}", outcome.engine, outcome.version);
        let of_engine: Vec<String> = table::notes(outcome).iter().map(|note| format!("{engine}: {note}")).collect();
        for note in std::iter::once(engine).chain(of_engine) {
            if !notes.contains(&note) {
                notes.push(note);
            }
        }
    }
    let mut html = String::from("<ul>\n");
    for note in notes {
        html += &format!("<li>{}</li>\n", escape(&note));
    }
    html += "</ul>\n<div class=\"wide\"><table class=\"words\">\n<tr><th>option</th><th>value</th></tr>\n";
    let mut values: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for outcome in outcomes {
        for (name, value) in outcome.settings["options"].as_object().into_iter().flatten() {
            let value = match value {
                Value::Null => "default".to_owned(),
                Value::String(text) => text.clone(),
                Value::Bool(is) => if *is { "yes" } else { "no" }.to_owned(),
                other => other.to_string(),
            };
            let known = values.entry(name).or_default();
            if !known.contains(&value) {
                known.push(value);
            }
        }
    }
    for (name, values) in values {
        html += &format!("<tr><td>--{}</td><td>{}</td></tr>\n", name.replace('_', "-"), escape(&values.join(", ")));
    }
    html + "</table></div>\n"
}

/// The commands that build a `cleave-bench` with the engines of these runs.
fn build(outcomes: &[Outcome]) -> String {
    let features = distinct(outcomes.iter().filter_map(|outcome| engines::feature(&outcome.engine)));
    let fetch = if features.contains(&"rocksdb") { "scripts/get-rocksdb\n" } else { "" };
    let features = match features.is_empty() {
        true => String::new(),
        false => format!(" --features {}", features.join(",")),
    };
    format!("<pre>{fetch}cargo build --release -p cleave-bench{features}\nPATH=$PWD/target/release:$PATH</pre>\n")
}

/// The commands that reproduce these runs.
fn commands(outcomes: &[Outcome]) -> String {
    let mut commands: BTreeMap<String, (Vec<&str>, Vec<&str>)> = BTreeMap::new();
    for outcome in outcomes {
        let (engines, workloads) = commands.entry(options(outcome)).or_default();
        // A phase is named after its run.
        let workload = outcome.workload.split_once('/').map_or(&*outcome.workload, |(run, _)| run);
        for (list, name) in [(engines, &*outcome.engine), (workloads, workload)] {
            if !list.contains(&name) {
                list.push(name);
            }
        }
    }
    let mut html = String::new();
    for (options, (engines, workloads)) in commands {
        let (engines, workloads) = (engines.join(","), workloads.join(","));
        let command = format!("cleave-bench run --engine {engines} --workload {workloads}{options}");
        html += &format!("<pre>{}</pre>\n", escape(&command));
    }
    html
}

/// The options of a run as they are written on the command line.
fn options(outcome: &Outcome) -> String {
    let mut line = outcome.settings["options"].as_object().map_or_else(String::new, flags);
    if let Some(bytes) = outcome.settings["cgroup_memory"].as_u64() {
        line += &format!(" --cgroup-memory {bytes}");
    }
    match outcome.ops_per_s_of_repeats.len() {
        0 => line,
        repeats => format!("{line} --repeat {repeats}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_has_the_engines_of_the_runs() {
        let json = include_str!("../../../../docs/benchmarks/compare-quick.json");
        let mut outcomes: Vec<Outcome> = serde_json::from_str(json).unwrap();
        let with_rocksdb = "scripts/get-rocksdb\ncargo build --release -p cleave-bench --features rocksdb\n";
        assert!(build(&outcomes).contains(with_rocksdb), "{}", build(&outcomes));
        outcomes[0].engine = "fjall-kv".to_owned();
        assert!(build(&outcomes).contains("--features fjall,rocksdb\n"));
        outcomes.retain(|outcome| outcome.engine == OURS);
        assert!(build(&outcomes).contains(">cargo build --release -p cleave-bench\n"), "{}", build(&outcomes));
    }
}
