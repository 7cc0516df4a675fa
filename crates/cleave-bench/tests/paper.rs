//! `cleave-bench paper` as a user runs it, at a tiny scale: measured claims, claims that need a missing feature, the JSON.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::collections::BTreeSet;
use std::process::{Command, Output};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cleave-bench")).args(arguments).output().unwrap()
}

/// Runs `paper`; returns its output and its JSON.
fn paper(arguments: &[&str]) -> (String, Value) {
    let dir = tempfile::tempdir().unwrap();
    let (stores, json) = (dir.path().join("stores"), dir.path().join("out.json"));
    let places = ["--dir", stores.to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = bench(&[&["paper"], arguments, &places].concat());
    assert!(output.status.success(), "{arguments:?}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(std::fs::read_dir(stores).map_or(0, |stores| stores.count()) == 0, "a store was left behind");
    (String::from_utf8(output.stdout).unwrap(), serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap())
}

fn claims(results: &Value) -> &Vec<Value> {
    results["claims"].as_array().unwrap()
}

#[test]
fn decoupling_is_measured_on_two_tiers_and_what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let [fast, slow] = ["fast", "slow"].map(|name| dir.path().join(name));
    let tiers = ["--fast", fast.to_str().unwrap(), "--slow", slow.to_str().unwrap()];
    let (out, results) = paper(&[&["decoukv", "--scale", "0.00001"], &tiers[..]].concat());
    assert!([fast, slow].iter().all(|tier| std::fs::read_dir(tier).unwrap().count() == 0));
    let with_rocksdb = cfg!(feature = "rocksdb");
    let runs = results["runs"].as_array().unwrap();
    let ours = runs.iter().filter(|run| run["engine"] == "cleave").count();
    assert!(ours >= 30 && runs.iter().all(|run| run["ops_per_s"].as_f64().unwrap() > 0.0), "{ours} runs");
    assert!(with_rocksdb || runs.len() == ours);
    for claim in claims(&results) {
        let reason = claim["waits_for"].as_str();
        let (measured, figures) = (claim["measured"].as_f64(), claim["figures"].as_array().unwrap());
        assert!(measured.is_some() != reason.is_some(), "{claim}");
        if reason.is_some_and(|reason| reason.starts_with("waits for")) {
            assert!(figures.is_empty() && claim["workload"].is_null(), "{claim}");
        } else if claim["unit"] == "ops/s" && !claim["experiment"].as_str().unwrap().contains("lowest second") {
            let is_of = |figure: &Value| figure["engine"].as_str().unwrap().starts_with("cleave");
            assert!(figures.iter().any(is_of), "{claim}");
            assert_eq!(measured.is_some(), with_rocksdb || claim["over"] != "rocksdb", "{claim}");
        }
    }
    let count = |is_wanted: &dyn Fn(&Value) -> bool| runs.iter().filter(|run| is_wanted(run)).count();
    let options = |run: &Value, name: &str| run["settings"]["options"][name].clone();
    // All but those on the slow tier only.
    assert_eq!(count(&|run| options(run, "slow").is_null()), 3);
    assert_eq!(count(&|run| run["settings"]["variant"] == "slow tier only" && !options(run, "slow").is_null()), 0);
    assert!(runs.iter().all(|run| options(run, "slow").is_null() || options(run, "fast_bytes") == 64 << 20));
    assert_eq!(count(&|run| run["engine"] == "cleave" && options(run, "threads") == 4), 1);
    assert_eq!(count(&|run| run["engine"] == "cleave" && options(run, "rate").is_number()), 3);
    assert_eq!(count(&|run| run["engine"] == "cleave" && options(run, "bursts") == "2,4"), 1);
    assert_eq!(count(&|run| run["engine"] == "cleave" && options(run, "background_threads") == 8), 1);
    assert_eq!(count(&|run| run["engine"] == "cleave" && run["workload"] == "ycsb-d"), 3);
    for words in [
        "machine: ",
        "slow tier: a plain directory, not throttled",
        "fast tier: at most 64.00 MiB",
        "ablation, load: + elastic levels",
        "two tiers against the slow one: load: cleave",
        "load: highest IMTN: cleave 2.00 runs",
        "waits for a machine of 16 cores",
        "NVMe as the fast tier: load: cleave",
        "insert in bursts, P99: cleave",
        "five times the data: load: cleave",
        "ADOC's scheduler: insert",
        "over time",
        "measured",
        "ratio",
        "insert: cleave",
        "insert, longest wait: cleave",
        "insert, open loop, P99: cleave",
        "operations/s, 70% of the peak of",
        "insert, lowest second of the mean",
        "Latency by kind of operation",
        "Space by directory",
        "IMTN",
    ] {
        assert!(out.contains(words), "{words} is missing in\n{out}");
    }
    assert!(!out.contains("tier scheduler") && !out.contains("elastic capacity"), "{out}");
    assert_eq!(out.contains("needs --features rocksdb"), !with_rocksdb);
}

#[test]
fn sets_of_options_are_compared_and_rivals_run_once() {
    let (out, results) = paper(&["hashkv", "--scale", "0.00001"]);
    let with_rocksdb = cfg!(feature = "rocksdb");
    for claim in claims(&results) {
        let figures = claim["figures"].as_array().unwrap();
        let value = |engine: &Value| figures.iter().find(|figure| figure["engine"] == *engine)?["value"].as_f64();
        let over = &claim["over"];
        if claim["workload"].is_null() {
            assert!(claim["waits_for"].as_str().unwrap().starts_with("waits for"), "{claim}");
        } else if over == "rocksdb" {
            assert_eq!(claim["measured"].is_number(), with_rocksdb, "{claim}");
        } else if over == "nothing" {
            // Few values may need only one group.
            let is_there = !figures.is_empty();
            assert_eq!(claim["measured"].as_f64(), is_there.then(|| figures[0]["value"].as_f64().unwrap()), "{claim}");
            assert!(is_there || claim["waits_for"].as_str().unwrap().contains("a larger --scale"), "{claim}");
        } else {
            assert_eq!(figures.len(), 2, "{claim}");
            let (ours, other) = (figures[0]["value"].as_f64().unwrap(), value(over).unwrap());
            assert!((claim["measured"].as_f64().unwrap() / (ours / other) - 1.0).abs() < 1e-9, "{claim}");
        }
    }
    let mut runs: Vec<String> = Vec::new();
    for run in results["runs"].as_array().unwrap() {
        let options = run["settings"]["options"].as_object().unwrap();
        // Only CleaveDB uses its own options.
        let options = options.iter().filter(|(name, _)| run["engine"] == "cleave" || *name != "cleave");
        runs.push(format!("{} {} {:?}", run["engine"], run["workload"], options.collect::<Vec<_>>()));
    }
    let count = runs.len();
    runs.sort();
    runs.dedup();
    assert_eq!(runs.len(), count, "a run was done twice");
    assert!(out.contains(", memory 16.00 MiB, large separated, 20%"), "{out}");
    let unsynced =
        results["runs"].as_array().unwrap().iter().find(|run| run["settings"]["variant"] == "hash, no syncs");
    let notes = &unsynced.unwrap()["settings"]["notes"];
    assert!(notes[0].as_str().unwrap().contains("syncs were disabled"), "{notes}");
    assert!(out.contains("10: syncs, written") && out.contains("14: space in use"), "{out}");
    assert!(out.contains("cleave (vLog)") && out.contains("7: 40 B : 1 KiB = 1:1"), "{out}");
}

#[test]
fn operands_in_buckets_are_compared_with_other_engines_and_with_the_levels() {
    const OWN: &str = "busy-poll=off,bucket-split=60,operand-cache=20";
    let (out, results) =
        paper(&["kdsep", "--scale", "0.00001", "--memory", "20M", "--field-size", "50", "--cleave", OWN]);
    let with_rocksdb = cfg!(feature = "rocksdb");
    let runs = results["runs"].as_array().unwrap();
    for run in runs {
        let (options, rival) = (&run["settings"]["options"], run["engine"] != "cleave");
        assert!(rival || with_rocksdb || run["engine"] == "cleave", "{options}");
        // Only a store that is to be killed is at rest after its load.
        assert_eq!(options["at_rest"], options["recover"], "{options}");
        let cleave = options["cleave"].as_str().unwrap();
        // A large write buffer needs more memory.
        let memory = if cleave.contains("scheduling=") { 6 * (20 << 20) } else { 20 << 20 };
        assert_eq!(options["memory"], memory, "{options}");
        assert!(cleave.starts_with(&format!("{OWN},deltas=")), "{cleave}");
        assert!(options["field_size"].as_u64().is_some_and(|bytes| [25, 50, 100, 800].contains(&bytes)));
    }
    for claim in claims(&results) {
        let over = claim["over"].as_str().unwrap();
        assert!(claim["workload"].is_string(), "{claim}");
        if ["rocksdb", "blobdb"].contains(&over) {
            assert!(claim["measured"].is_number() || !with_rocksdb || claim["unit"] != "ops/s", "{claim}");
            assert!(with_rocksdb || claim["waits_for"] == "needs --features rocksdb", "{claim}");
        } else if claim["unit"] == "ops/s" {
            assert!(over.starts_with("cleave (") && claim["measured"].is_number(), "{claim}");
        }
    }
    let number_of = |claim: &Value| claim["experiment"].as_str().unwrap().split(':').next().unwrap().parse().unwrap();
    let numbers: BTreeSet<usize> = claims(&results).iter().map(number_of).collect();
    assert!(numbers.iter().copied().eq(1..=12), "{numbers:?}");
    for words in [
        "1: P99 of merges",
        "cleave (buckets)",
        "cleave (rewrite only)",
        "cleave (write buffer of 1 MiB)",
        "cleave (no operand cache)",
        "3: YCSB FM",
        "10: open after a kill, 10:90, from rest: cleave",
    ] {
        assert!(out.contains(words), "{words} is missing in\n{out}");
    }
    let command = results["command"].as_str().unwrap();
    assert!(command.contains(&format!("--cleave {OWN} --field-size 50 --memory 20971520")), "{command}");
}

#[test]
fn kvaccel_measures_the_bypass_against_pacing_and_the_traffic_of_the_device() {
    let (out, results) = paper(&["kvaccel", "--engine", "cleave", "--scale", "0.002"]);
    let claims = claims(&results);
    let of = |name: &str| claims.iter().find(|claim| claim["experiment"] == name).unwrap();
    assert!(of("A, throughput against our own pacing")["measured"].as_f64().is_some(), "{out}");
    assert!(of("B, emulated device, eager against lazy rollback")["measured"].as_f64().is_some(), "{out}");
    assert!(of("A, efficiency against ADOC's scheduler")["measured"].as_f64().unwrap() > 0.0, "{out}");
    // B has a reader of its own, for each nine writes.
    let is_b = |run: &&Value| run["workload"] == "kvaccel-b";
    for run in results["runs"].as_array().unwrap().iter().filter(is_b) {
        let reads = run["latency_by_op"]["read-background"]["operations"].as_u64().unwrap();
        let writes = run["operations"].as_u64().unwrap();
        assert!(reads > 0 && reads * 9 <= writes, "{reads} reads beside {writes} writes");
    }
    let link = of("A, emulated device, host link for each byte of the user, eager against lazy");
    assert_eq!((&link["unit"], link["figures"].as_array().unwrap().len()), (&"B/B".into(), 2), "{link}");
    // Without RocksDB there is nothing to compare with; our own figure is there if writers waited.
    let idle = of("idle bandwidth in a stall");
    assert!(idle["measured"].is_null() && idle["waits_for"].is_string() && idle["workload"] == "kvaccel-a", "{idle}");
    assert!(out.contains("Host link of the key-value device"), "{out}");
    assert!(out.contains("operations of each second"), "{out}");
}

#[test]
fn rexio_measures_hash_keyspaces_against_what_was_written() {
    let (out, results) = paper(&["rexio", "--engine", "cleave", "--scale", "0.0005"]);
    let claims = claims(&results);
    let of = |name: &str| claims.iter().find(|claim| claim["experiment"] == name).unwrap();
    assert!(of("amplification, load")["measured"].as_f64().unwrap() > 0.9, "{out}");
    let measured = |name: &str| of(name)["measured"].as_f64().unwrap();
    let (all, apart) = (measured("amplification, load"), measured("amplification, load, apart from saved indexes"));
    assert!(apart > 0.9 && apart <= all, "{apart} of {all}");
    // A group of a fifth of so little data would have no room for an engine.
    let in_groups =
        results["runs"].as_array().unwrap().iter().filter(|run| !run["settings"]["cgroup_memory"].is_null());
    in_groups.for_each(|run| assert_eq!(run["settings"]["cgroup_memory"], 64 << 20));
    let retention = &of("retention, 5:5")["figures"];
    assert_eq!(retention[0]["engine"], "cleave (hash), mixed:50");
    assert_eq!(retention[1]["engine"], "cleave (hash), mixed:0");
    assert!(of("5:5, ordered keyspace")["measured"].as_f64().is_some(), "{out}");
}

#[test]
fn wrong_options_are_refused_in_a_sentence() {
    for (arguments, sentence) in [
        (&["paper", "wisckey"][..], "invalid value"),
        (&["paper", "decoukv", "--scale", "0"], "--scale"),
        (&["paper", "kdsep", "--field-size", "0"], "--field-size must be"),
        (&["paper", "decoukv", "--engine", "nothing"], "there is no engine"),
    ] {
        let output = bench(arguments);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && error.contains(sentence), "{arguments:?}: {error}");
    }
}
