//! Records and operations from files: the cities, a user's records, a trace.

use std::fs;

use serde_json::Value;

use crate::common::{engines, number, refuse, run};

const TRACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace.csv");

fn operations(outcome: &Value, name: &str) -> u64 {
    outcome["latency_by_op"].get(name).map_or(0, |summary| number(summary, "operations"))
}

#[test]
fn the_cities_are_loaded_read_and_updated_by_every_engine() {
    let engines = engines();
    let outcomes = run(&["--workload", "cities", "--operations", "300", "--engine", &engines.join(","), "--verify"]);
    assert_eq!(outcomes.len(), engines.len());
    for outcome in outcomes {
        assert_eq!((number(&outcome, "records"), number(&outcome, "operations")), (34_006, 300));
        assert_eq!(operations(&outcome, "read") + operations(&outcome, "update"), 300);
        assert!(number(&outcome, "values_read") > 0 && number(&outcome, "user_bytes_written") > 0);
        assert!(number(&outcome, "key_size") > 10 && number(&outcome, "value_size") > 20);
    }
}

#[test]
fn records_of_every_file_format_are_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("records");
    let value = |n: usize| "v".repeat(n * 7);
    let lines = |line: &dyn Fn(usize) -> String| (1..=50).map(line).collect::<String>().into_bytes();
    let mut binary = b"\x89CLEAVE\x01".to_vec();
    for n in 1..=50 {
        let (key, value) = (format!("key {n:02}"), value(n));
        binary.extend_from_slice(&(key.len() as u32).to_le_bytes());
        binary.extend_from_slice(&(value.len() as u32).to_le_bytes());
        binary.extend_from_slice(format!("{key}{value}").as_bytes());
    }
    let forms = [
        lines(&|n| format!("{{\"key\":\"key {n:02}\",\"value\":\"{}\"}}\n", value(n))),
        lines(&|n| format!("key {n:02},\"{}\"\n", value(n))),
        binary,
    ];
    for form in forms {
        fs::write(&path, form).unwrap();
        let outcomes = run(&["--workload", "input", "--input", path.to_str().unwrap(), "--threads", "3", "--verify"]);
        assert_eq!((number(&outcomes[0], "records"), number(&outcomes[0], "operations")), (50, 50));
        assert_eq!(number(&outcomes[0], "live_bytes"), (1..=50).map(|n| 6 + 7 * n).sum::<u64>());
    }
}

#[test]
fn a_trace_is_replayed_by_every_engine_with_its_order_for_each_key() {
    let engines = engines();
    for threads in ["1", "3"] {
        let arguments = ["--workload", "trace", "--input", TRACE, "--threads", threads, "--verify"];
        for outcome in run(&[&arguments[..], &["--engine", &engines.join(",")]].concat()) {
            assert_eq!((number(&outcome, "records"), number(&outcome, "operations")), (4, 13));
            let names = ["read", "update", "merge", "delete", "scan"];
            assert_eq!(names.map(|name| operations(&outcome, name)), [5, 4, 2, 1, 1]);
            // eve before its merge, and bob after its delete.
            assert_eq!(number(&outcome, "reads_missing"), 2);
            // ada has 300 bytes, eve 80, zoe none; each key has eight.
            assert_eq!(number(&outcome, "live_bytes"), 300 + 80 + 3 * 8);
        }
    }
}

#[test]
fn a_trace_follows_its_own_times_on_request_or_ends_early() {
    let trace = ["--workload", "trace", "--input", TRACE];
    let outcomes = run(&[&trace[..], &["--rate-from-trace", "--threads", "2"]].concat());
    let elapsed = outcomes[0]["elapsed_s"].as_f64().unwrap();
    assert!(elapsed >= 0.4, "0.4 seconds of trace took {elapsed} s");
    let outcomes = run(&[&trace[..], &["--rate", "10", "--operations", "4", "--verify"]].concat());
    let elapsed = outcomes[0]["elapsed_s"].as_f64().unwrap();
    assert!(elapsed >= 0.3, "4 operations at 10 a second took {elapsed} s");
    assert_eq!(number(&outcomes[0], "live_bytes"), 120 + 900 + 2 * 8);
}

#[test]
fn errors_in_a_file_are_reported_with_its_name_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let (path, stores) = (dir.path().join("bad.csv"), dir.path().join("stores"));
    let (path, stores) = (path.to_str().unwrap(), stores.to_str().unwrap());
    fs::write(path, "0,put,a,10\n1,jump,a,\n").unwrap();
    let run = |workload| ["run", "--workload", workload, "--input", path, "--dir", stores];
    refuse(&run("trace"), "bad.csv: line 2: op \"jump\"");
    refuse(&run("input"), "bad.csv: line 1: 4 fields");
    fs::write(path, "{\"key\":\"a\",\"value\":\"b\"}\n{\"key\":\"a\"}\n").unwrap();
    refuse(&run("input"), "bad.csv: line 2: either value");
    refuse(&["run", "--workload", "input"], "need --input");
    refuse(&run("fillseq"), "--input is only for");
    refuse(&[&run("input")[..], &["--rate-from-trace"]].concat(), "--rate-from-trace is only for");
    refuse(&["run", "--workload", "input", "--input", "missing.csv", "--dir", stores], "missing.csv: cannot open");
    assert_eq!(fs::read_dir(stores).unwrap().count(), 0);
}
