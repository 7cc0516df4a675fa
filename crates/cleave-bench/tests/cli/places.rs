//! The directories of stores: tiers, direct I/O, the counters of bytes, and that nothing is left behind however a run ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{bench, every_engine, number, run};

/// Starts a run that continues long after its store is loaded.
fn start(arguments: &[&str]) -> Child {
    let long =
        ["run", "--workload", "readrandom", "--records", "200", "--at-rest", "--rate", "20", "--operations", "2000"];
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave-bench"));
    command.args(long).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        match look() {
            Some(found) => return found,
            None if start.elapsed() > Duration::from_secs(60) => panic!("no {what} after a minute"),
            None => thread::sleep(Duration::from_millis(5)),
        }
    }
}

fn signal(name: &str, process: u32) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// The directory `name` of the store that a run created in `place`, once it has a file with this suffix.
fn store_with(place: &Path, name: &str, ending: &str) -> PathBuf {
    wait_for(ending, || {
        let home = fs::read_dir(place).ok()?.flatten().next()?.path().join(name);
        let mut files = fs::read_dir(&home).ok()?.flatten();
        files.any(|file| file.file_name().to_str().unwrap().ends_with(ending)).then_some(home)
    })
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn notes(outcome: &Value) -> String {
    outcome["settings"]["notes"].to_string()
}

/// Checks the space in each directory, the use of each device, and the settings of CleaveDB's scheduler.
fn check_usage(outcome: &Value) {
    let directories = outcome["directories"].as_array().unwrap();
    let names: Vec<&Value> = directories.iter().map(|one| &one["directory"]).collect();
    assert_eq!(names, ["main", "fast", "slow"]);
    let sum: u64 = directories.iter().map(|one| number(one, "bytes")).sum();
    assert_eq!(sum, number(outcome, "space_bytes"));
    assert!(directories.iter().all(|one| number(one, "bytes_peak") >= number(one, "bytes")), "{outcome}");
    assert!(number(&directories[1], "bytes_peak") >= number(outcome, "fast_peak_bytes"));
    let seconds = outcome["per_second"].as_array().unwrap().len();
    // The directories are on one device, which is unknown if the file system is in memory.
    for device in outcome["devices"].as_array().unwrap() {
        assert_eq!(device["directories"], "main+fast+slow");
        let fields = ["busy_per_second", "bytes_read_per_second", "bytes_written_per_second"];
        assert!(fields.iter().all(|field| device[field].as_array().unwrap().len() == seconds), "{device}");
        assert_eq!(outcome["busier_per_second"].as_array().unwrap().len(), seconds);
    }
    let is_ours = outcome["engine"].as_str().unwrap().starts_with("cleave");
    assert_eq!(outcome["tuning"].is_object(), is_ours, "{outcome}");
    if is_ours {
        // Nothing of a hash keyspace is flushed.
        let is_flushed = outcome["engine"] != "cleave-hash";
        assert_eq!(number(&outcome["memory_peak"], "unflushed_bytes") > 0, is_flushed, "{outcome}");
        assert_eq!(outcome["tuning"]["per_second"].as_array().unwrap().len(), seconds);
        assert!(number(&outcome["tuning"]["first"], "merge_runs") >= 2, "{outcome}");
    }
}

#[test]
fn the_detail_has_operations_directories_and_settings() {
    let dir = tempfile::tempdir().unwrap();
    let work = ["run", "--workload", "ycsb-a", "--records", "300", "--dir", dir.path().to_str().unwrap()];
    let plain = text(&bench(&work).stdout);
    let detail = text(&bench(&[&work[..], &["--detail"]].concat()).stdout);
    for words in ["Latency by kind of operation", "Steadiness", "longest wait ms", "Space by directory", "IMTN", "DFTS"]
    {
        assert!(detail.contains(words) && !plain.contains(words), "{words}: {detail}");
    }
    let has_row = |words: [&str; 3]| {
        let mut rows = detail.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.any(|row| row.starts_with(&words))
    };
    assert!(has_row(["ycsb-a", "cleave", "read"]) && has_row(["ycsb-a", "cleave", "update"]), "{detail}");
    assert!(has_row(["ycsb-a", "cleave", "main"]), "{detail}");
}

#[test]
fn every_engine_runs_on_two_tiers_and_leaves_both_empty() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (dir.path().join("fast"), dir.path().join("slow"));
    let tiers = ["--fast", fast.to_str().unwrap(), "--slow", slow.to_str().unwrap(), "--fast-bytes", "64M"];
    let work = ["--workload", "ycsb-a", "--records", "400", "--memory", "16M", "--verify"];
    for outcome in run(&[&work[..], &tiers, &["--engine", &every_engine().join(",")]].concat()) {
        let said = match outcome["engine"].as_str().unwrap() {
            "cleave" | "cleave-inline" | "cleave-buckets" | "cleave-hash" => None,
            "rocksdb" | "rocksdb-no-slowdown" | "rocksdb-held" | "blobdb" => Some("the log on the fast tier"),
            _ => Some("the whole store is in the slow directory"),
        };
        assert!(said.is_none_or(|said| notes(&outcome).contains(said)), "{outcome}");
        assert_eq!(number(&outcome["settings"]["options"], "fast_bytes"), 64 << 20);
        // Both tiers are counted.
        assert!(outcome["fast_peak_bytes"].is_u64(), "{outcome}");
        assert!(number(&outcome, "space_bytes") >= number(&outcome, "live_bytes"));
        check_usage(&outcome);
    }
    for tier in [fast, slow] {
        assert_eq!(fs::read_dir(tier).unwrap().count(), 0);
    }
}

/// Half as much again as the fast tier may hold.
#[test]
fn engines_that_keep_to_the_fast_budget_hold_no_more_of_a_larger_store() {
    let dir = tempfile::tempdir().unwrap();
    let (fast, slow) = (dir.path().join("fast"), dir.path().join("slow"));
    let tiers = ["--fast", fast.to_str().unwrap(), "--slow", slow.to_str().unwrap(), "--fast-bytes", "64M"];
    let work = ["--workload", "fillrandom", "--records", "1500", "--value-size", "64K", "--memory", "16M"];
    let keep = ["cleave", "rocksdb-held"];
    let engines: Vec<String> = every_engine().into_iter().filter(|name| keep.contains(&&**name)).collect();
    for outcome in run(&[&work[..], &tiers, &["--engine", &engines.join(",")]].concat()) {
        let peak = number(&outcome, "fast_peak_bytes");
        assert!(peak > 0 && peak <= 64 << 20 && number(&outcome, "space_bytes") > 90 << 20, "{outcome}");
    }
}

#[test]
fn a_run_uses_both_tiers_and_an_interruption_removes_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let places = ["stores", "fast", "slow"].map(|name| dir.path().join(name));
    let [stores, fast, slow] = [0, 1, 2].map(|n| places[n].to_str().unwrap());
    for stop in ["-INT", "-TERM"] {
        let child = start(&["--dir", stores, "--fast", fast, "--slow", slow]);
        store_with(&places[2], "slow", "OWNER");
        // The first tables are on the fast tier, and the ring file stays on the fast tier; the logs were removed after the load.
        store_with(&places[1], "fast", ".table");
        store_with(&places[1], "fast", "ring");
        signal(stop, child.id());
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(130), "{}", text(&stderr));
        assert!(text(&stderr).contains("interrupted") && !text(&stderr).contains("failed"), "{}", text(&stderr));
        assert!(places.iter().all(|place| fs::read_dir(place).unwrap().count() == 0));
    }
}

#[test]
fn leftovers_of_a_killed_run_are_removed_by_the_next_one() {
    let dir = tempfile::tempdir().unwrap();
    let stores = dir.path().to_str().unwrap();
    let mut killed = start(&["--dir", stores]);
    let left = store_with(dir.path(), "store", ".table");
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", killed.id())).unwrap();
    let child: u32 = children.trim().parse().unwrap();
    // A concurrent run keeps it.
    let beside = ["run", "--workload", "fillseq", "--records", "10", "--dir", stores];
    assert!(!text(&bench(&beside).stderr).contains("left by") && left.exists());
    killed.kill().unwrap();
    killed.wait().unwrap();
    wait_for("end of the child", || {
        let state = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        state.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z')).then_some(())
    });
    assert!(left.exists());
    let next = bench(&beside);
    assert!(next.status.success() && text(&next.stderr).contains("left by a killed run"), "{}", text(&next.stderr));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn engines_without_direct_io_report_that_if_it_is_requested() {
    let work = ["--workload", "ycsb-b", "--records", "300", "--memory", "16M", "--verify"];
    for outcome in run(&[&work[..], &["--engine", &every_engine().join(","), "--direct"]].concat()) {
        let engine = outcome["engine"].as_str().unwrap();
        let has_it = ["cleave", "rocksdb", "blobdb"].iter().any(|name| engine.starts_with(name));
        assert_ne!(has_it, notes(&outcome).contains("direct"), "{outcome}");
        assert_eq!(outcome["settings"]["options"]["direct"], true);
    }
    assert!(!notes(&run(&work)[0]).contains("direct"));
}

#[test]
fn bytes_are_counted_by_the_process_or_by_its_own_device() {
    let work = ["--workload", "fillrandom", "--records", "300"];
    assert_eq!(run(&work)[0]["counted_by"], "process");
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("out.json");
    let own = ["--own-device", "--dir", dir.path().to_str().unwrap(), "--json", json.to_str().unwrap()];
    let output = bench(&[&["run"], &work[..], &own].concat());
    // A file system in memory has no device.
    if !output.status.success() {
        assert!(text(&output.stderr).contains("--own-device: the block device"), "{}", text(&output.stderr));
        return;
    }
    let outcomes: Vec<Value> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(outcomes[0]["counted_by"], "device");
    assert!(number(&outcomes[0], "device_bytes_written") >= number(&outcomes[0], "user_bytes_written"));
}
