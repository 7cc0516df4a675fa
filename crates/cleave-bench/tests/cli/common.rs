//! Helpers of the tests: running the program and reading its results.

use std::process::{Command, Output};

use serde_json::Value;

/// Runs the program.
pub fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cleave-bench")).args(arguments).output().unwrap()
}

/// Runs the program, which must succeed; returns its stdout.
pub fn succeed(arguments: &[&str]) -> String {
    let output = bench(arguments);
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{arguments:?}\n{out}\n{error}");
    out.into_owned()
}

/// Runs the program, which must fail with a message that contains `because`.
pub fn refuse(arguments: &[&str], because: &str) {
    let output = bench(arguments);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(because), "{arguments:?}: {error}");
}

/// Runs with `--json` and its own directory, which must be empty afterwards.
pub fn run(arguments: &[&str]) -> Vec<Value> {
    let dir = tempfile::tempdir().unwrap();
    let (stores, json) = (dir.path().join("stores"), dir.path().join("out.json"));
    let places = ["--dir", stores.to_str().unwrap(), "--json", json.to_str().unwrap()];
    succeed(&[&["run"], arguments, &places].concat());
    assert_eq!(std::fs::read_dir(stores).unwrap().count(), 0, "a store was left behind");
    serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap()
}

/// The engines of this build that have scans.
pub fn engines() -> Vec<String> {
    every_engine().into_iter().filter(|name| name != "cleave-hash").collect()
}

/// The engines of this build.
pub fn every_engine() -> Vec<String> {
    let list = succeed(&["list"]);
    let (engines, _) = list.split_once("Runs of").unwrap();
    let names = engines.lines().filter_map(|line| line.strip_prefix("   ")?.split(' ').next());
    names.filter(|name| name.starts_with(|first: char| first.is_ascii_lowercase())).map(str::to_owned).collect()
}

/// An integer field.
pub fn number(outcome: &Value, field: &str) -> u64 {
    outcome[field].as_u64().unwrap_or_else(|| panic!("{field} of {outcome}"))
}
