//! Commands ended by a signal: the database stays sound and keeps its earlier records.

use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{cleave, fail, file, files, fill, fresh, run};

/// Starts a command that handles SIGINT by default; the test runner may ignore that signal, which children inherit.
fn start(args: &[&str]) -> Child {
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_cleave")]).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Sends a signal after a delay. Returns whether it ended the process before its work was done.
fn interrupt(child: &mut Child, signal: Signal, after: Duration) -> bool {
    sleep(after);
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, signal).unwrap();
    child.wait().unwrap().code().is_none()
}

/// Feeds ascending records to a process until it exits.
fn feed(child: &mut Child, prefix: String) -> JoinHandle<()> {
    let mut input = child.stdin.take().unwrap();
    std::thread::spawn(move || {
        for number in 0.. {
            let line = format!("{{\"key\":\"{prefix} {number:08}\",\"value\":\"{number:0200}\"}}\n");
            if input.write_all(line.as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn is_database(path: &str) -> bool {
    Path::new(path).join("CURRENT").exists()
}

#[test]
fn a_signal_during_an_import_leaves_a_sound_database() {
    let (_dir, db) = fresh();
    let mut imported = 0;
    for (round, signal) in [Signal::INT, Signal::KILL].into_iter().cycle().take(6).enumerate() {
        let mut child = start(&["import", &db, "-"]);
        let writer = feed(&mut child, round.to_string());
        assert!(interrupt(&mut child, signal, Duration::from_millis(150 + 70 * round as u64)));
        writer.join().unwrap();
        if !is_database(&db) {
            continue;
        }
        assert!(run(&["check", &db]).ends_with("sound\n"));
        // The records of each round are a prefix of its input.
        let keys = run(&["scan", &db, "--keys-only"]);
        let of_round = keys.lines().filter(|key| key.starts_with(&format!("{round} "))).enumerate();
        of_round.for_each(|(number, key)| assert_eq!(key, format!("{round} {number:08}")));
        assert!(keys.lines().count() >= imported, "earlier records are kept");
        imported = keys.lines().count();
    }
    assert!(imported > 1000, "the imports made progress: {imported}");
}

#[test]
fn a_signal_during_an_ingest_leaves_nothing_of_it() {
    let (dir, db) = fresh();
    fill(&dir, &db, 100);
    for round in 0..4_u64 {
        let mut child = start(&["ingest", &db, "-"]);
        let writer = feed(&mut child, "new".into());
        // Wait until it writes tables; the open removes those of the previous round.
        let (began, before) = (Instant::now(), files(&db, ".table"));
        while files(&db, ".table").iter().all(|table| before.contains(table)) {
            assert!(began.elapsed().as_secs() < 20, "no table is written");
            sleep(Duration::from_millis(2));
        }
        assert!(interrupt(&mut child, Signal::INT, Duration::from_millis(20 * round)));
        writer.join().unwrap();
        assert!(run(&["check", &db]).ends_with("sound\n"));
        assert_eq!(run(&["scan", &db, "--keys-only"]).lines().count(), 100);
    }
    run(&["put", &db, "a", "1"]);
    assert_eq!(files(&db, ".table").len(), 0, "the next open removes leftover tables");
}

#[test]
fn a_signal_during_a_compaction_changes_no_record() {
    let (dir, db) = fresh();
    fill(&dir, &db, 40_000);
    let mut ended = 0;
    for round in 0..12_u64 {
        run(&["delete", &db, &format!("{round:08}")]);
        let mut child = start(&["compact", &db]);
        ended += interrupt(&mut child, Signal::INT, Duration::from_millis(20 + 25 * round)) as u32;
        assert!(run(&["check", &db]).ends_with("sound\n"));
        let keys = run(&["scan", &db, "--keys-only"]);
        assert_eq!(keys.lines().count(), 40_000 - 1 - round as usize);
    }
    assert!(ended > 0, "no signal came in time");
}

#[test]
fn a_checkpoint_ended_by_a_signal_is_complete_or_cannot_be_opened() {
    let (dir, db) = fresh();
    fill(&dir, &db, 40_000);
    let everything = run(&["scan", &db]);
    let mut ended = 0;
    for round in 0..16_u64 {
        let (target, copy) = file(&dir, &format!("copy {round}"));
        let mut child = start(&["checkpoint", &db, &copy]);
        if round % 2 == 0 {
            // Interrupt as soon as the directory has files.
            let began = Instant::now();
            while std::fs::read_dir(&target).map_or(0, Iterator::count) < 2 && began.elapsed().as_secs() < 20 {
                std::thread::yield_now();
            }
            ended += interrupt(&mut child, Signal::INT, Duration::ZERO) as u32;
        } else {
            ended += interrupt(&mut child, Signal::INT, Duration::from_millis(5 + 5 * round)) as u32;
        }
        assert!(run(&["check", &db]).ends_with("sound\n"));
        if is_database(&copy) {
            assert!(run(&["check", &copy]).ends_with("sound\n"));
            assert!(run(&["scan", &copy]) == everything);
        } else {
            assert_eq!(cleave(&["check", &copy]).status.code(), Some(1));
            fail(&["scan", &copy]);
        }
    }
    assert!(ended > 0, "no signal came in time");
    assert!(run(&["scan", &db]) == everything);
}

#[test]
fn a_signal_during_the_tour_leaves_a_sound_database() {
    for round in 0..6_u64 {
        let (_dir, db) = fresh();
        let mut child = start(&["tour", &db, "--records", "100000"]);
        let ended = interrupt(&mut child, Signal::INT, Duration::from_millis(50 + 400 * round));
        if !is_database(&db) {
            continue;
        }
        // The loader of the tour exits when its pipe is closed.
        let began = Instant::now();
        let checked = loop {
            let checked = cleave(&["check", &db]);
            if checked.status.code() != Some(3) {
                break checked;
            }
            assert!(began.elapsed().as_secs() < 20, "another process still has the database open");
            sleep(Duration::from_millis(20));
        };
        assert!(checked.status.success(), "ended {ended}: {}", String::from_utf8_lossy(&checked.stdout));
        run(&["put", &db, "a", "1"]);
    }
}
