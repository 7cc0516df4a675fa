//! `cleave-bench device`: if the machine supports it, a device is created, slows runs down and is removed completely;
//! otherwise a sentence gives the reason and nothing is left behind.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_cleave-bench")).args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Root with the capability of mounting (number 21), loop devices, the blkio controller of cgroup v1, and the programs.
fn is_possible() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap().trim();
    let may_mount = u64::from_str_radix(capabilities, 16).unwrap() & (1 << 21) != 0;
    let blkio = fs::read_to_string("/proc/mounts").unwrap().lines().any(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        fields[2] == "cgroup" && fields[3].split(',').any(|option| option == "blkio")
    });
    let free_loop = Command::new("losetup").arg("--find").output().is_ok_and(|output| output.status.success());
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t0\t"));
    is_root && may_mount && blkio && free_loop && Command::new("mkfs.ext4").arg("-V").output().is_ok()
}

fn entries(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn loops_of(dir: &Path) -> String {
    let list = Command::new("losetup").args(["--list", "--noheadings", "--output", "BACK-FILE"]).output();
    let list = list.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    list.lines().filter(|line| line.contains(dir.to_str().unwrap())).collect()
}

#[test]
fn a_device_slows_runs_down_and_is_removed_completely() {
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("slow");
    let place = slow.to_str().unwrap();
    let up = ["device", "up", "--dir", place, "--bytes", "64M", "--write-bandwidth", "1M", "--read-iops", "500"];
    let output = bench(&up);
    if !is_possible() {
        let error = error(&output);
        let reasons =
            ["needs root", "needs loop devices", "needs the blkio controller", "needs the program", "failed ("];
        assert!(!output.status.success() && reasons.iter().any(|reason| error.contains(reason)), "{error}");
        assert_eq!(entries(dir.path()), Vec::<String>::new());
        return;
    }
    assert!(output.status.success(), "{}", error(&output));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("1.00 MiB/s") && said.contains("500 operations/s") && said.contains("direct I/O only"));
    let again = bench(&up);
    assert!(!again.status.success() && error(&again).contains("already"), "{}", error(&again));

    // 3 MB of records through a log that is written with direct I/O. This tests the limit, not the speed of the engine.
    let stores = slow.join("stores");
    let run = ["run", "--workload", "fillrandom", "--records", "3000", "--dir", stores.to_str().unwrap()];
    let start = Instant::now();
    let output = bench(&run);
    let elapsed = start.elapsed();
    assert!(output.status.success(), "{}", error(&output));

    let output = bench(&["device", "down", "--dir", place]);
    assert!(output.status.success(), "{}", error(&output));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
    assert_eq!(loops_of(dir.path()), "");
    assert!(elapsed.as_secs_f64() > 1.5, "3 MB at 1 MiB/s took {elapsed:?}");
    let again = bench(&["device", "down", "--dir", place]);
    assert!(!again.status.success() && error(&again).contains("is not a device"), "{}", error(&again));
}

#[test]
fn the_device_of_a_paper_is_removed_by_an_interruption() {
    let dir = tempfile::tempdir().unwrap();
    let paper = ["paper", "decoukv", "--engine", "cleave", "--dir", dir.path().to_str().unwrap(), "--scale"];
    if !is_possible() {
        let output = bench(&[&paper[..], &["0.00001"]].concat());
        assert!(String::from_utf8_lossy(&output.stdout).contains("no throttled device: "), "{}", error(&output));
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave-bench"));
    let child = command.args(paper).arg("0.1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let mounted = || fs::read_to_string("/proc/mounts").unwrap().contains(dir.path().to_str().unwrap());
    // A directory in the mounted one is that of the first run.
    let is_running = || {
        let homes = entries(dir.path()).into_iter().map(|home| dir.path().join(home).join("slow"));
        mounted() && homes.filter(|slow| slow.exists()).any(|slow| entries(&slow).len() > 1)
    };
    while !is_running() {
        assert!(start.elapsed() < Duration::from_secs(60), "no run after a minute");
        thread::sleep(Duration::from_millis(20));
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", error(&output));
    assert_eq!(entries(dir.path()), Vec::<String>::new(), "{}", error(&output));
    assert!(!mounted() && loops_of(dir.path()).is_empty());
}

#[test]
fn a_device_on_the_disk_of_the_fast_tier_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let [slow, fast, json] =
        ["slow", "fast", "out.json"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    if !is_possible() || !bench(&["device", "up", "--dir", &slow, "--bytes", "256M"]).status.success() {
        return;
    }
    let sizes = ["run", "--workload", "fillrandom", "--records", "3000", "--rate", "2000", "--json", &json];
    let places = ["--dir", &fast, "--fast", &fast, "--slow", &slow, "--fast-bytes", "64M", "--own-device"];
    let output = bench(&[&sizes[..], &places].concat());
    let down = bench(&["device", "down", "--dir", &slow]);
    assert!(down.status.success(), "{}", error(&down));
    if error(&output).contains("--own-device: the block device") {
        return; // The fast tier is in memory.
    }
    assert!(output.status.success(), "{}", error(&output));
    let outcomes: Vec<Value> = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    let devices = outcomes[0]["devices"].as_array().unwrap();
    let names: Vec<[&str; 2]> =
        devices.iter().map(|device| ["directories", "carries"].map(|field| device[field].as_str().unwrap())).collect();
    assert_eq!(names, [["main+fast", "slow"], ["slow", ""]]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(table.contains("slow %") && !table.contains("fast %"), "{table}");
}

#[test]
fn a_step_that_fails_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let slow = dir.path().join("slow");
    // mkfs.ext4 fails in 4 KiB.
    let output = bench(&["device", "up", "--dir", slow.to_str().unwrap(), "--bytes", "4K"]);
    assert!(!output.status.success());
    assert!(!is_possible() || error(&output).contains("mkfs.ext4 failed"), "{}", error(&output));
    assert_eq!(entries(dir.path()), Vec::<String>::new());
    assert_eq!(loops_of(dir.path()), "");
}

#[test]
fn existing_files_are_not_overwritten_or_hidden() {
    let dir = tempfile::tempdir().unwrap();
    let (slow, image) = (dir.path().join("slow"), dir.path().join("slow.img"));
    fs::write(&image, "mine").unwrap();
    let up = ["device", "up", "--dir", slow.to_str().unwrap(), "--bytes", "64M"];
    let output = bench(&up);
    assert!(!output.status.success());
    assert!(!is_possible() || error(&output).contains("not overwritten"), "{}", error(&output));
    assert_eq!(fs::read_to_string(&image).unwrap(), "mine");

    fs::remove_file(image).unwrap();
    fs::create_dir(&slow).unwrap();
    fs::write(slow.join("file"), "mine").unwrap();
    let output = bench(&up);
    assert!(!output.status.success());
    assert!(!is_possible() || error(&output).contains("not empty"), "{}", error(&output));
    assert_eq!(entries(dir.path()), ["slow"]);
}
