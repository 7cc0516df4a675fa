//! Runs of several phases on one open store, on every engine of the build at a tiny size.

use serde_json::Value;

use crate::common::{engines, number, refuse, run, succeed};

const RECORDS: u64 = 300;

/// Runs `sustained` with the standard sizes and these options.
fn sustained(options: &[&str]) -> Vec<Value> {
    let records = RECORDS.to_string();
    let size = ["--workload", "sustained", "--records", &records, "--value-size", "250", "--memory", "16M"];
    run(&[&size[..], &["--verify"], options].concat())
}

fn names(outcomes: &[Value]) -> Vec<&str> {
    outcomes.iter().map(|outcome| outcome["workload"].as_str().unwrap()).collect()
}

#[test]
fn the_standard_phases_are_measured_one_by_one_in_two_rounds() {
    let engines = engines();
    let outcomes = sustained(&["--engine", &engines.join(","), "--threads", "2"]);
    let round = ["update", "ycsb-a", "ycsb-b", "ycsb-e", "scans", "gets-zipfian", "gets-uniform"];
    let first = ["load"].iter().chain(&round).map(|name| format!("sustained/{name}"));
    let second = round.iter().map(|name| format!("sustained/2/{name}"));
    let expected: Vec<String> = first.chain(second).chain(["sustained/settle".to_owned()]).collect();
    assert_eq!(outcomes.len(), expected.len() * engines.len());
    for (position, outcome) in outcomes.iter().enumerate() {
        let name = &expected[position / engines.len()];
        assert_eq!(
            (&outcome["workload"], &outcome["engine"]),
            (&name.as_str().into(), &engines[position % engines.len()].as_str().into())
        );
        let (operations, operation) = match name.rsplit_once('/').unwrap().1 {
            "settle" => (1, "settle"),
            "load" => (RECORDS, "insert"),
            "update" => (RECORDS, "update"),
            "ycsb-e" | "scans" => (RECORDS, "scan"),
            _ => (RECORDS, "read"),
        };
        assert_eq!(number(outcome, "operations"), operations, "{name}");
        assert!(number(&outcome["latency_by_op"][operation], "operations") > operations / 3, "{name}");
        assert_eq!(number(outcome, "reads_missing"), 0);
        let live = number(outcome, "live_bytes");
        let loaded = RECORDS * (24 + 250);
        assert!(live == loaded || (position / engines.len() > 3 && live > loaded), "{name}: {live}");
        // The settle is a part of the run, and other phases do not wait.
        assert_eq!(outcome["elapsed_s"], outcome["elapsed_with_flush_s"]);
        let is_last = position / engines.len() + 1 == expected.len();
        assert!(is_last || outcome["value_space"].is_null());
    }
}

#[test]
fn a_phase_ends_after_its_seconds_and_the_load_and_the_updates_do_not() {
    let phases = ["--phases", "load,update,gets-uniform,readwhilewriting", "--rounds", "1"];
    let outcomes = sustained(&[&phases[..], &["--phase-seconds", "0.05", "--operations", "1000000000"]].concat());
    let expected = ["load", "update", "gets-uniform", "readwhilewriting", "settle"];
    assert_eq!(names(&outcomes), expected.map(|name| format!("sustained/{name}")));
    let operations: Vec<u64> = outcomes.iter().map(|outcome| number(outcome, "operations")).collect();
    assert_eq!((operations[0], operations[1], operations[4]), (RECORDS, RECORDS, 1));
    for outcome in &outcomes[2..4] {
        assert!(outcome["elapsed_s"].as_f64().unwrap() >= 0.05);
        let done = number(outcome, "operations");
        assert!((1..1_000_000_000).contains(&done));
        let rate = outcome["ops_per_s"].as_f64().unwrap() * outcome["elapsed_s"].as_f64().unwrap();
        assert!((rate / done as f64 - 1.0).abs() < 1e-6);
    }
    assert!(outcomes[2]["background_ops_per_s"].is_null());
    assert!(outcomes[3]["background_ops_per_s"].as_f64().unwrap() > 0.0);
    // The cap is an option of all workloads.
    let one =
        run(&["--workload", "readrandom", "--records", "100", "--operations", "1000000000", "--phase-seconds", "0.05"]);
    assert!(number(&one[0], "operations") < 1_000_000_000);
}

#[test]
fn mixed_sizes_are_those_of_production_and_live_bytes_follow_deletes() {
    let engines = engines().join(",");
    let phases = ["--phases", "load,mixed,deleterandom,settle", "--rounds", "1"];
    let outcomes =
        sustained(&[&phases[..], &["--engine", &engines, "--threads", "3", "--operations", "2000"]].concat());
    for engine in engines.split(',') {
        let of_engine: Vec<&Value> = outcomes.iter().filter(|outcome| outcome["engine"] == engine).collect();
        let live: Vec<u64> = of_engine.iter().map(|outcome| number(outcome, "live_bytes")).collect();
        let mean = number(of_engine[0], "value_size");
        assert!((7_000..7_500).contains(&mean), "{mean}");
        // Half of the values have less than a kilobyte.
        assert!((mean / 2 * RECORDS..mean * 2 * RECORDS).contains(&live[0]), "{live:?}");
        assert!(live[1] < live[0] && live[2] < live[1] / 4 && live[3] == live[2], "{live:?}");
        assert!(number(of_engine[1], "reads_missing") > 0);
        // redb keeps unsynced commits in memory.
        let has_space = |outcome: &&Value| number(outcome, "space_bytes") >= number(outcome, "live_bytes") / 2;
        assert!(engine == "redb" || of_engine.iter().all(has_space));
    }
}

#[test]
fn phases_without_a_load_begin_with_a_loaded_store() {
    let outcomes = sustained(&["--phases", "update,settle,update", "--rounds", "1", "--age", "1"]);
    assert_eq!(names(&outcomes), ["update", "settle", "2/update", "2/settle"].map(|name| format!("sustained/{name}")));
    assert!(number(&outcomes[0], "live_bytes") == RECORDS * (24 + 250));
}

#[test]
fn repeats_are_medians_of_each_phase_and_the_store_recovers_after_the_last_one() {
    let phases = ["--phases", "load,gets-uniform", "--rounds", "2", "--repeat", "3", "--recover"];
    let outcomes = sustained(&phases);
    assert_eq!(outcomes.len(), 4);
    for outcome in &outcomes {
        let mut repeats: Vec<f64> = serde_json::from_value(outcome["ops_per_s_of_repeats"].clone()).unwrap();
        repeats.sort_by(f64::total_cmp);
        assert_eq!((repeats.len(), outcome["ops_per_s"].as_f64()), (3, Some(repeats[1])));
    }
    assert!(outcomes[3]["recover_s"].as_f64().unwrap() > 0.0 && outcomes[0]["recover_s"].is_null());
}

#[test]
fn the_table_and_the_report_have_the_phases_and_the_command() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (json, page) = (path("out.json"), path("report.html"));
    let runs =
        ["run", "--workload", "sustained", "--phases", "load,readwhilewriting", "--rounds", "1", "--records", "300"];
    let out = succeed(&[&runs[..], &["--dir", &path("stores"), "--json", &json]].concat());
    for part in
        ["lowest s", "background/s", "sustained/load", "sustained/settle, cleave: ", " s of CPU, ", " written, "]
    {
        assert!(out.contains(part), "{part} is missing in\n{out}");
    }
    succeed(&["report", &json, "--out", &page]);
    let html = std::fs::read_to_string(page).unwrap();
    let command = "--workload sustained --age 0";
    for part in
        [">sustained/readwhilewriting</h2>", "Throughput of the background client", "--phases load,readwhilewriting"]
    {
        assert!(html.contains(part), "{part} is missing");
    }
    assert!(html.contains(command) && html.matches("cleave-bench run").count() == 1, "{command}");
}

#[test]
fn phases_that_do_not_fit_are_refused_in_a_sentence() {
    let phases = |list| ["run", "--workload", "sustained", "--phases", list];
    refuse(&phases("load,nothing"), "there is no workload \"nothing\"");
    refuse(&phases("update,load"), "the phase load must be the first");
    refuse(&phases("load,trace"), "its records come from a file");
    refuse(&phases("load,mixed,up2x"), "records of other sizes");
    refuse(&[&phases("load")[..], &["--age", "1"]].concat(), "--age is only for");
    refuse(&["run", "--workload", "ycsb-a", "--phases", "load"], "only for the workload sustained");
    refuse(&["run", "--workload", "ycsb-a", "--rounds", "2"], "only for the workload sustained");
    refuse(&["run", "--workload", "sustained", "--rounds", "0"], "--rounds");
    refuse(&["run", "--workload", "sustained", "--phase-seconds", "0"], "--phase-seconds must be more than 0");
    refuse(&["run", "--workload", "fillseq", "--records", "2", "--threads", "3"], "--threads must not be more");
}
