//! `cleave-bench tiers` as a user runs it, at a tiny size: the tables of each set, and the JSON.

use std::fs;

use serde_json::Value;

use crate::common::{bench, engines, refuse, succeed};

/// Runs `tiers` on plain directories; returns its output and its JSON.
fn tiers(arguments: &[&str]) -> (String, Vec<Value>) {
    let dir = tempfile::tempdir().unwrap();
    let [main, fast, slow] = ["main", "fast", "slow"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    let json = dir.path().join("out.json");
    let places = ["--dir", &main, "--fast", &fast, "--slow", &slow, "--json", json.to_str().unwrap()];
    let out = succeed(&[&["tiers", "--records", "300", "--memory", "16M"], &places[..], arguments].concat());
    assert!(
        [main, fast, slow].iter().all(|place| fs::read_dir(place).unwrap().count() == 0),
        "a store was left behind"
    );
    (out, serde_json::from_slice(&fs::read(json).unwrap()).unwrap())
}

fn compared() -> Vec<String> {
    let wanted = ["cleave", "cleave-inline", "rocksdb", "rocksdb-held"];
    engines().into_iter().filter(|name| wanted.contains(&&**name)).collect()
}

#[test]
fn phases_and_open_loops_are_compared_with_all_figures() {
    let engines = compared();
    let sets = ["--sets", "phases,open", "--repeat", "2", "--phase-seconds", "0.3", "--engine", &engines.join(",")];
    let (out, outcomes) = tiers(&sets);
    // Ten phases and a settle, and two workloads.
    assert_eq!(outcomes.len(), engines.len() * (11 + 2));
    for title in ["cpu us/op", "p99 us", "longest ms", "lowest s", "stall s", "busier %", "band %", "slow B/B", "ratio"]
    {
        assert!(out.contains(title), "{title} is missing in\n{out}");
    }
    for name in ["sustained/load", "sustained/update-uniform", "sustained/ycsb-f", "sustained/ycsb-d", "overwrite"] {
        let rows = out.lines().filter(|line| line.split_whitespace().next() == Some(name)).count();
        assert_eq!(rows, engines.len(), "{name}: {out}");
    }
    assert!(out.contains("sustained/settle, cleave: ") && out.contains("70% of the peak of "), "{out}");
    for outcome in &outcomes {
        let repeats = &outcome["settings"]["figures_of_repeats"];
        assert_eq!(repeats["ops/s"].as_array().unwrap().len(), 2, "{outcome}");
        assert_eq!(repeats["longest ms"].as_array().unwrap().len(), 2, "{outcome}");
        assert!(outcome["settings"]["commit"].is_string());
        assert_eq!(outcome["settings"]["options"]["fast_bytes"], 64 << 20);
    }
}

#[test]
fn the_tuner_is_compared_with_static_settings() {
    let (out, outcomes) = tiers(&["--sets", "settings", "--repeat", "1"]);
    assert_eq!(outcomes.len(), 3 * 18 * 2);
    assert_eq!(out.matches("best static / auto ").count(), 3, "{out}");
    for case in ["two tiers: ", "one tier, values in tables: ", "one tier, values of 100 B: "] {
        assert!(out.contains(case), "{case}: {out}");
    }
    let inline = outcomes.iter().filter(|outcome| outcome["engine"] == "cleave-inline");
    assert_eq!(inline.filter(|outcome| outcome["settings"]["options"]["slow"].is_null()).count(), 18 * 2);
}

#[test]
fn bursts_show_what_is_unused_while_writers_wait() {
    let mut wanted = compared();
    let bursts = ["--sets", "waiting", "--bursts", "1,0.5", "--phase-seconds", "2.5", "--background-threads", "1,2"];
    let (out, outcomes) = tiers(&[&bursts[..], &["--engine", &wanted.join(",")]].concat());
    if wanted.iter().any(|name| name == "rocksdb") {
        wanted.push("rocksdb-no-slowdown".to_owned());
    }
    assert_eq!(outcomes.len(), wanted.len() * 2);
    for title in ["values", "capacity", "waiting %", "used %", "below 50%", "below 10%"] {
        assert!(out.contains(title), "{title} is missing in\n{out}");
    }
    for outcome in &outcomes {
        assert_eq!(outcome["settings"]["peak"]["percent"], 300.0, "{outcome}");
        // A file system in memory has no device.
        if !outcome["devices"].as_array().unwrap().is_empty() {
            let waiting = &outcome["waiting"];
            let seconds = outcome["per_second"].as_array().unwrap().len();
            assert_eq!(waiting["waited_s_per_second"].as_array().unwrap().len(), seconds, "{outcome}");
            assert_eq!(waiting["used_per_second"].as_array().unwrap().len(), seconds, "{outcome}");
            assert_eq!(waiting["capacity_of"], "highest-second");
        }
    }
}

#[test]
fn wrong_options_are_refused_in_a_sentence() {
    refuse(&["tiers", "--sets", "nothing"], "invalid value");
    refuse(&["tiers", "--slow", "slow", "--bandwidth", "1M"], "cannot be used with");
    refuse(&["tiers", "--phase-seconds", "0"], "--phase-seconds");
    let output = bench(&["tiers", "--engine", "nothing", "--records", "10"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("there is no engine"));
}
