//! The program as a user runs it: every workload on every engine of the build at a tiny size, and invalid options.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::common::{engines, number, refuse, run, succeed};

const RECORDS: u64 = 400;

/// The workloads, and for each the operations it must report, with their share of all operations in percent.
const WORKLOADS: &[(&str, &[(&str, f64)])] = &[
    ("fillseq", &[("insert", 100.0)]),
    ("fillrandom", &[("update", 100.0)]),
    ("overwrite", &[("update", 100.0)]),
    ("readrandom", &[("read", 100.0)]),
    ("readwhilewriting", &[("read", 100.0), ("update-background", 0.0)]),
    ("seekrandom", &[("scan", 100.0)]),
    ("deleterandom", &[("delete", 100.0)]),
    ("mergerandom", &[("merge", 100.0)]),
    ("readwhilemerging", &[("read", 100.0), ("merge-background", 0.0)]),
    ("ycsb-a", &[("read", 50.0), ("update", 50.0)]),
    ("ycsb-b", &[("read", 95.0), ("update", 5.0)]),
    ("ycsb-c", &[("read", 100.0)]),
    ("ycsb-d", &[("read", 95.0), ("insert", 5.0)]),
    ("ycsb-e", &[("scan", 95.0), ("insert", 5.0)]),
    ("ycsb-f", &[("read", 50.0), ("rmw", 50.0)]),
    ("ycsb-am", &[("read", 50.0), ("merge", 50.0)]),
    ("ycsb-bm", &[("read", 95.0), ("merge", 5.0)]),
    ("ycsb-fm", &[("read", 50.0), ("merge", 50.0)]),
    ("merge:90", &[("read", 90.0), ("merge", 10.0)]),
    ("rmw:10", &[("read", 10.0), ("rmw", 90.0)]),
    ("up2x", &[("merge", 92.5), ("read", 7.5)]),
    ("production", &[("update", 57.0), ("read", 41.0), ("scan", 2.0)]),
    ("hashkv-updates", &[("update", 100.0)]),
    ("mixed:70", &[("read", 70.0), ("update", 30.0)]),
    ("scanning:40", &[("scan", 40.0), ("update", 60.0)]),
    ("kvaccel-a", &[("update", 100.0)]),
    ("kvaccel-b", &[("update", 100.0), ("read-background", 11.1)]),
    ("kvaccel-c", &[("update", 100.0), ("read-background", 25.0)]),
    ("kvaccel-d", &[("scan", 100.0)]),
    ("kdsep-w3", &[("update", 50.0), ("merge", 50.0)]),
    ("mixed", &[("read", 70.0), ("update", 20.0), ("delete", 5.0), ("scan", 5.0)]),
    ("settle", &[("settle", 100.0)]),
];

/// The stable public names of fields.
const FIELDS: &[&str] = &[
    "engine",
    "version",
    "workload",
    "records",
    "operations",
    "key_size",
    "value_size",
    "threads",
    "durability",
    "memory_budget",
    "ops_per_s",
    "latency_us",
    "latency_by_op",
    "per_second",
    "stall_seconds",
    "longest_stall_s",
    "lowest_second",
    "cpu_user_s",
    "cpu_sys_s",
    "device_bytes_written",
    "device_bytes_read",
    "user_bytes_written",
    "write_amplification",
    "user_bytes_read",
    "read_amplification",
    "space_bytes",
    "space_peak_bytes",
    "open_s",
    "live_bytes",
    "rss_peak_bytes",
    "rss_bytes",
    "settings",
    "recover_s",
    "disk_utilisation_per_second",
    "disk_utilisation",
    "cpu_utilisation",
    "counted_by",
];

/// Workloads whose records come from a file; tests/input.rs has them.
const FROM_FILES: [&str; 3] = ["cities", "input", "trace"];

fn check(outcome: &Value, shares: &[(&str, f64)]) {
    let operations = number(outcome, "operations");
    for field in FIELDS {
        assert!(outcome.get(field).is_some(), "{field} is missing");
    }
    let per_second: u64 = outcome["per_second"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum();
    assert_eq!(per_second, operations);
    assert_eq!(number(&outcome["latency_us"], "operations"), operations);
    let mut by_operation: BTreeMap<String, Value> = serde_json::from_value(outcome["latency_by_op"].clone()).unwrap();
    // One operation in ten thousand of up2x is an update.
    by_operation.retain(|name, _| name != "update" || shares.iter().any(|(share, _)| share == name));
    for (name, percent) in shares {
        let done = by_operation.remove(*name).map_or(0, |summary| number(&summary, "operations"));
        let expected = operations as f64 * percent / 100.0;
        let background = name.ends_with("-background");
        // Four standard deviations of a draw.
        let slack = 4.0 * (expected * (1.0 - percent / 100.0)).max(0.0).sqrt() + 1.0;
        assert!(background || (done as f64 - expected).abs() <= slack, "{done} {name}, expected {expected}");
    }
    assert!(by_operation.is_empty(), "unexpected operations: {by_operation:?}");
    let writes = shares.iter().any(|(name, _)| !matches!(*name, "read" | "scan" | "settle" | "read-background"));
    assert!(!writes || number(outcome, "user_bytes_written") > 0);
    let reads = shares.iter().any(|(name, _)| matches!(*name, "read" | "scan" | "rmw"));
    assert_eq!(reads, number(outcome, "values_read") > 0);
    assert_eq!(reads, number(outcome, "user_bytes_read") > 0);
    assert_eq!(reads, outcome["read_amplification"].is_number());
    assert!(number(outcome, "user_bytes_read") >= number(outcome, "values_read") * number(outcome, "key_size") / 2);
    let deletes = shares.iter().any(|(name, _)| *name == "delete");
    assert!(deletes || number(outcome, "reads_missing") == 0);
    let background = shares.iter().any(|(name, _)| name.ends_with("-background"));
    assert_eq!(outcome["background_ops_per_s"].as_f64().is_some_and(|rate| rate > 0.0), background);
    assert!(number(outcome, "rss_bytes") <= number(outcome, "rss_peak_bytes"));
    assert!(number(outcome, "live_bytes") > 0 && number(outcome, "space_bytes") > 0);
}

#[test]
fn every_workload_runs_on_every_engine_with_its_mix() {
    let names: Vec<&str> = WORKLOADS.iter().map(|(name, _)| *name).collect();
    let (names, engines) = (names.join(","), engines());
    assert!(engines.contains(&"cleave".to_owned()), "{engines:?}");
    let records = RECORDS.to_string();
    let outcomes = run(&[
        "--engine",
        &engines.join(","),
        "--workload",
        &names,
        "--records",
        &records,
        "--value-size",
        "250",
        "--threads",
        "2",
        "--memory",
        "16M",
        "--verify",
    ]);
    assert_eq!(outcomes.len(), engines.len() * WORKLOADS.len());
    for (position, outcome) in outcomes.iter().enumerate() {
        let (workload, shares) = WORKLOADS[position / engines.len()];
        assert_eq!(outcome["workload"], workload);
        assert_eq!(outcome["engine"], engines[position % engines.len()]);
        let operations = match workload {
            "hashkv-updates" => 3 * RECORDS,
            "kvaccel-d" => RECORDS / 100,
            "settle" => 1,
            _ => RECORDS,
        };
        assert_eq!((number(outcome, "records"), number(outcome, "operations")), (RECORDS, operations));
        check(outcome, shares);
    }
}

#[test]
fn the_test_covers_every_workload_of_the_list() {
    let list = succeed(&["list"]);
    let names = list.lines().last().unwrap().split_whitespace();
    let stem = |name: &str| name.split(':').next().unwrap().to_owned();
    let covered = WORKLOADS.iter().map(|(name, _)| *name).chain(FROM_FILES);
    let covered: Vec<String> = covered.map(stem).collect();
    assert_eq!(names.map(stem).collect::<Vec<_>>(), covered);
}

#[test]
fn values_of_any_size_and_durable_writes_are_read_back() {
    for value_size in ["1", "15", "5000"] {
        let outcomes = run(&[
            "--workload",
            "ycsb-am",
            "--records",
            "60",
            "--value-size",
            value_size,
            "--durability",
            "sync",
            "--verify",
        ]);
        assert_eq!(outcomes[0]["durability"], "sync");
        assert_eq!(outcomes[0]["value_size"].to_string(), value_size);
        assert_eq!(number(&outcomes[0], "live_bytes"), 60 * (24 + value_size.parse::<u64>().unwrap()));
    }
}

#[test]
fn an_open_loop_keeps_its_rate() {
    let outcomes =
        run(&["--workload", "ycsb-a", "--records", "200", "--operations", "150", "--rate", "100", "--burst", "10"]);
    let elapsed = outcomes[0]["elapsed_s"].as_f64().unwrap();
    assert!(elapsed >= 1.4, "150 operations at 100 a second took {elapsed} s");
    let seconds = outcomes[0]["per_second"].as_array().unwrap().len();
    assert!(seconds >= 2);
    let disk = outcomes[0]["disk_utilisation_per_second"].as_array().unwrap();
    assert!(disk.is_empty() || disk.len() == seconds, "{disk:?}");
    assert_eq!(disk.is_empty(), outcomes[0]["disk_utilisation"].is_null());
    for spread in ["cpu_utilisation", "disk_utilisation"].map(|field| &outcomes[0][field]) {
        let part = |name: &str| spread[name].as_f64().unwrap();
        assert!(spread.is_null() || (0.0 <= part("min") && part("min") <= part("mean") && part("mean") <= part("max")));
    }
    assert!(outcomes[0]["cpu_utilisation"].is_object());
}

#[test]
fn keys_and_values_have_the_requested_lengths() {
    let arguments = ["--workload", "ycsb-am", "--records", "500", "--verify"];
    let outcomes = run(&[&arguments[..], &["--key-size", "16-32", "--value-size", "normal:100:20"]].concat());
    assert_eq!((number(&outcomes[0], "key_size"), number(&outcomes[0], "value_size")), (24, 100));
    // Five standard deviations of the sum of 500 keys and values.
    let live = number(&outcomes[0], "live_bytes") as f64;
    assert!((live - 500.0 * 124.0).abs() < 5.0 * (500.0_f64 * (24.0 + 400.0)).sqrt(), "{live}");
    assert_eq!(outcomes[0]["settings"]["options"]["value_size"], "normal:100:20:1");
}

#[test]
fn a_store_is_aged_by_updates_that_are_not_measured() {
    let engines = engines().join(",");
    let arguments =
        ["--workload", "readrandom,ycsb-f", "--records", "300", "--memory", "16M", "--verify", "--threads", "2"];
    let sizes = ["--value-size", "16*1+1000*2", "--distribution", "zipfian:0.9", "--age", "2", "--engine", &engines];
    for outcome in run(&[&arguments[..], &sizes].concat()) {
        assert_eq!((number(&outcome, "operations"), number(&outcome["settings"]["options"], "age")), (300, 2));
        assert_eq!(outcome["settings"]["options"]["distribution"], "zipfian:0.9");
        assert!(outcome["workload"] != "readrandom" || number(&outcome, "user_bytes_written") == 0);
        assert_eq!(number(&outcome, "reads_missing"), 0);
    }
    refuse(&["run", "--workload", "fillrandom", "--age", "1"], "--age is only for workloads that load");
}

#[test]
fn a_killed_store_reopens_with_all_acknowledged_writes() {
    let engines = engines().join(",");
    let arguments = ["--workload", "fillrandom,readrandom", "--records", "300", "--memory", "16M", "--recover"];
    for outcome in run(&[&arguments[..], &["--engine", &engines, "--threads", "2"]].concat()) {
        match outcome["workload"].as_str() {
            Some("fillrandom") => assert!(outcome["recover_s"].as_f64().unwrap() > 0.0, "{outcome}"),
            _ => assert!(outcome["recover_s"].is_null(), "{outcome}"),
        }
    }
}

#[test]
fn options_of_cleave_are_applied_recorded_and_refused_by_name() {
    let arguments = ["--workload", "ycsb-a", "--records", "200", "--compression", "none", "--verify"];
    let own = "log-backend=plain,block-size=512,filter-bits=0";
    let outcomes = run(&[&arguments[..], &["--cleave", own]].concat());
    assert_eq!(outcomes[0]["settings"]["options"]["cleave"], own);
    assert_eq!(outcomes[0]["settings"]["options"]["compression"], "none");
    let fill = ["run", "--workload", "fillseq", "--cleave"];
    refuse(&[&fill[..], &["speed=high"]].concat(), "it has log-backend, compression, compression-by-level, block-size");
    refuse(&[&fill[..], &["block-size=1"]].concat(), "block_size");
}

#[test]
fn groups_of_values_are_reported_once_values_have_moved() {
    let load = ["--workload", "overwrite", "--records", "20000", "--age", "1", "--memory", "16M", "--verify"];
    let own = ["--cleave", "spare=10,spare-bytes=0,group-size=1M,syncs=off"];
    let outcomes = run(&[&load[..], &own].concat());
    let space = &outcomes[0]["value_space"];
    let groups = space["groups"].as_array().unwrap();
    let bytes: u64 = groups.iter().map(|group| number(group, "bytes")).sum();
    assert!(!groups.is_empty() && bytes > 0 && number(space, "space_bytes") > 0, "{space}");
    assert!(groups.iter().all(|group| number(group, "bytes_live") <= number(group, "bytes")), "{space}");
    let kept = run(&["--workload", "overwrite", "--records", "200", "--cleave", "separation=never"]);
    assert_eq!(kept[0]["value_space"]["groups"].as_array().unwrap().len(), 0);
}

#[test]
fn repeats_give_one_result_with_the_throughput_of_each() {
    let outcomes = run(&["--workload", "fillrandom", "--records", "100", "--repeat", "3"]);
    assert_eq!(outcomes.len(), 1);
    let mut repeats: Vec<f64> = serde_json::from_value(outcomes[0]["ops_per_s_of_repeats"].clone()).unwrap();
    repeats.sort_by(f64::total_cmp);
    assert_eq!(outcomes[0]["ops_per_s"].as_f64(), Some(repeats[1]));
}

#[test]
fn a_report_is_one_self_contained_page_with_every_workload() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (path("out.json"), path("report.html"));
    let runs = ["run", "--workload", "fillseq,mixed:50", "--records", "300", "--value-size", "250", "--repeat", "2"];
    succeed(&[&runs[..], &["--dir", &path("stores"), "--json", &json]].concat());
    succeed(&["report", &json, "--out", &page]);
    let html = std::fs::read_to_string(page).unwrap();
    for part in [
        ">fillseq</h2>",
        ">mixed:50</h2>",
        "Throughput",
        "P99.9",
        "--value-size 250",
        "--repeat 2",
        "cargo build --release",
    ] {
        assert!(html.contains(part), "{part} is missing");
    }
    for foreign in ["http", "src=", "<script", "<link", "NaN", "inf,"] {
        assert!(!html.contains(foreign), "{foreign} is in the page");
    }
    for tag in ["svg", "figure", "g", "table", "tr", "div", "ul", "pre", "main", "html"] {
        let opened = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(opened, html.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
    refuse(&["report", &path("missing.json"), "--out", &path("other.html")], "cannot read");
}

#[test]
fn compare_prints_the_ratios_of_all_sets_and_keeps_all_results() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().to_str().unwrap();
    let (page, json) = (format!("{dir}/page.html"), format!("{dir}/out.json"));
    let size = ["compare", "--quick", "--records", "200", "--against", "cleave"];
    let out = succeed(&[&size[..], &["--dir", dir, "--report", &page, "--json", &json]].concat());
    // The standard set; 16 phases; load, update, settle; load, mixed, settle; and twice load, readwhilewriting, settle.
    let (phases, standard) = (16 + 3 + 3 + 2 * 3, 12);
    for (rival, rows) in [("cleave", standard + phases), ("cleave-inline", phases)] {
        let (_, ratios) = out.split_once(&format!("\ncleave / {rival} (")).unwrap();
        let ratios: Vec<&str> = ratios.lines().skip(2).take_while(|line| !line.is_empty()).collect();
        assert_eq!(ratios.len(), rows, "{out}");
        let throughput = |line: &&str| {
            let ratio =
                line.split_whitespace().find_map(|word| word.parse::<f64>().ok().filter(|_| word.contains('.')));
            ratio.unwrap()
        };
        assert!(ratios.iter().map(throughput).is_sorted(), "{ratios:#?}");
    }
    let outcomes: Vec<Value> = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    assert_eq!(outcomes.len(), 2 * standard + 3 * phases);
    let held: Vec<&Value> =
        outcomes.iter().filter(|outcome| outcome["settings"]["options"]["background_rate"].is_number()).collect();
    assert_eq!(held.len(), 3 * 3);
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains(">ycsb-am</h2>") && html.contains(">sustained/mixed</h2>"));
    refuse(&["compare", "--against", "nothing"], "there is no engine");
    refuse(&["compare", "--sets", "nothing"], "--sets");
}

#[test]
fn wrong_options_are_refused_in_a_sentence() {
    refuse(&["run", "--workload", "nothing"], "there is no workload");
    refuse(&["run", "--workload", "fillseq", "--engine", "nothing"], "there is no engine");
    refuse(&["run", "--workload", "fillseq", "--key-size", "3"], "--key-size");
    refuse(&["run", "--workload", "fillseq", "--records", "0"], "--records");
    refuse(&["run", "--workload", "fillseq", "--operations", "0"], "--operations");
    refuse(&["run", "--workload", "rmw:200"], "percentage");
    refuse(&["run", "--workload", "fillseq", "--key-size", "3-16"], "--key-size");
    refuse(&["run", "--workload", "fillseq", "--value-size", "16-4"], "the second length is less");
    refuse(&["run", "--workload", "fillseq", "--value-size", "normal:10"], "normal:MEAN:DEVIATION");
    refuse(&["run", "--workload", "fillseq", "--fast", "fast"], "--slow");
    refuse(&["run", "--workload", "fillseq", "--slow", "slow", "--fast-bytes", "1M"], "--fast");
    refuse(&["run", "--workload", "fillseq", "--repeat", "0"], "--repeat");
    refuse(&["run"], "--workload");
}
