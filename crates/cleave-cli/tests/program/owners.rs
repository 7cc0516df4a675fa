//! Commands on a database that another process has open.

use std::path::Path;
use std::time::{Duration, SystemTime};

use cleavedb::{Db, Options};

use crate::support::{cleave, fail, fresh, run};

#[test]
fn a_database_that_is_open_is_refused() {
    let (_dir, path) = fresh();
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    let copy = format!("{path} copy");
    for args in [
        &["get", &path, "a"][..],
        &["put", &path, "a", "2"],
        &["delete", &path, "a"],
        &["merge", &path, "a", "2"],
        &["scan", &path],
        &["keyspaces", &path],
        &["keyspaces", &path, "drop", "x"],
        &["export", &path, "-"],
        &["import", &path, "/dev/null"],
        &["ingest", &path, "/dev/null"],
        &["check", &path],
        &["compact", &path],
        &["checkpoint", &path, &copy],
    ] {
        let output = cleave(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("open elsewhere"), "{output:?}");
    }
    db.close().unwrap();
    assert_eq!(run(&["get", &path, "a"]), "1\n");
}

#[test]
fn stats_of_an_open_database_come_from_the_page_of_its_owner() {
    let (_dir, path) = fresh();
    let output = cleave(&["stats", &path, "--watch"]);
    assert_eq!(output.status.code(), Some(1));
    let db = Db::open(&path).unwrap();
    for number in 0..500_u32 {
        db.put(number.to_be_bytes(), "value").unwrap();
    }
    let own = std::process::id().to_string();
    let began = std::time::Instant::now();
    while !String::from_utf8_lossy(&cleave(&["stats", &path]).stdout).contains("seqno 500 ") {
        assert!(began.elapsed().as_secs() < 20, "the page is not written");
    }
    assert!(run(&["stats", &path]).contains(&format!("open in process {own}")));
    let refused = String::from_utf8(cleave(&["get", &path, "a"]).stderr).unwrap();
    assert!(refused.contains(&format!("in process {own}")), "{refused}");
    let lines = run(&["stats", &path, "--watch", "--count", "3", "--interval", "0.05"]);
    assert_eq!(lines.lines().filter(|line| line.starts_with("seqno 500 ")).count(), 3, "{lines}");
    assert!(!lines.contains('\x1b'), "no terminal, no escape sequences");
    let lines = run(&["stats", &path, "--watch", "--json", "--count", "2", "--interval", "0.05"]);
    let values: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((values.len(), values[1]["seqno"].as_u64()), (2, Some(500)));
    assert!(values[1]["writes_per_second"].is_number() && values[1]["memory"]["front_bytes"].is_u64());
    db.close().unwrap();
    assert!(run(&["stats", &path]).contains("seqno 500 "));
}

#[test]
fn a_watched_line_shows_both_tiers_the_budget_and_the_queues() {
    let (dir, path) = fresh();
    let slow = dir.path().join("slow");
    let db = Options::new().slow_dir(&slow).fast_bytes(100 << 20).open(&path).unwrap();
    db.put("a", "1").unwrap();
    let line = || run(&["stats", &path, "--watch", "--count", "1"]);
    let began = std::time::Instant::now();
    while !cleave(&["stats", &path, "--watch", "--count", "1"]).status.success() || !line().contains("seqno 1 ") {
        assert!(began.elapsed().as_secs() < 20, "the page is not written");
    }
    let line = line();
    for part in
        [" fast ", " slow 0 ", " used ", " budget 104857600 ", " merge-queue 0 score 0.0 flush-queue ", " flush-bytes "]
    {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(line.lines().count(), 1);
    db.close().unwrap();
}

#[test]
fn a_page_left_by_a_crash_is_ignored_even_if_its_process_id_is_reused() {
    let (_dir, path) = fresh();
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    let page = Path::new(&path).join("STATS");
    let began = std::time::Instant::now();
    while !page.exists() {
        assert!(began.elapsed().as_secs() < 20, "the page is not written");
        std::thread::sleep(Duration::from_millis(20));
    }
    let grow_old = || {
        let file = std::fs::OpenOptions::new().write(true).open(&page).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60)).unwrap();
    };
    // The page of an idle owner is old too.
    grow_old();
    assert!(run(&["stats", &path, "--watch", "--count", "1"]).contains("seqno "));
    let bytes = std::fs::read(&page).unwrap();
    db.close().unwrap();
    std::fs::write(&page, bytes).unwrap();
    grow_old();
    // The page has the id of this process, which is alive.
    assert!(fail(&["stats", &path, "--watch", "--count", "1"]).contains("not open in any process"));
    assert_eq!(run(&["get", &path, "a"]), "1\n");
}
