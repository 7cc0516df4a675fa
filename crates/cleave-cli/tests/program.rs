//! The program as a user meets it: real processes, real directories.

// The helpers of tests may do what tests may do.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use cleavedb::Db;
use tempfile::TempDir;

fn cleave(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_cleave");
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed; its stdout.
fn run(args: &[&str]) -> String {
    let output = cleave(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail and say why in one line on stderr; that line.
fn fail(args: &[&str]) -> String {
    let output = cleave(args);
    assert_eq!(output.status.code(), Some(1), "{args:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = error.lines().filter(|line| !line.starts_with("created the database ")).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("cleave: ")), "{error}");
    lines[0].to_owned()
}

/// A directory, and the path of a database that does not exist yet.
fn fresh() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").to_str().unwrap().to_owned();
    (dir, db)
}

fn file(dir: &TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

#[test]
fn put_get_and_delete() {
    let (_dir, db) = fresh();
    run(&["put", &db, "colour", "grün", "--sync"]);
    assert_eq!(run(&["get", &db, "colour"]), "grün\n");
    assert_eq!(run(&["get", &db, "636f6c6f7572", "--hex"]), "6772c3bc6e\n");
    assert_eq!(run(&["get", &db, "colour", "--value-format", "base64"]), "Z3LDvG4=\n");
    run(&["delete", &db, "colour"]);
    assert!(fail(&["get", &db, "colour"]).contains("colour"));
}

#[test]
fn a_missing_key_is_exit_code_1_and_wrong_usage_is_2() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    let output = cleave(&["get", &db, "b"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    assert_eq!(cleave(&["get", &db]).status.code(), Some(2));
    assert_eq!(cleave(&["gett", &db, "b"]).status.code(), Some(2));
}

#[test]
fn commands_that_read_never_create_a_database() {
    let (dir, db) = fresh();
    let (_, target) = file(&dir, "out");
    for args in [
        &["get", &db, "a"][..],
        &["scan", &db],
        &["stats", &db],
        &["keyspaces", &db],
        &["keyspaces", &db, "drop", "x"],
        &["export", &db, &target],
        &["delete", &db, "a"],
        &["merge", &db, "a", "1"],
    ] {
        fail(args);
        assert!(!Path::new(&db).exists(), "{args:?} made a database");
        assert!(!Path::new(&target).exists(), "{args:?} made a file");
    }
    std::fs::create_dir(&db).unwrap();
    fail(&["scan", &db]);
    assert_eq!(std::fs::read_dir(&db).unwrap().count(), 0, "scan left something in an empty directory");
}

#[test]
fn a_missing_keyspace_is_not_made_by_reading() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    assert!(fail(&["get", &db, "a", "--keyspace", "other"]).contains("other"));
    fail(&["scan", &db, "-k", "other"]);
    assert_eq!(run(&["keyspaces", &db]), "default\n");
}

#[test]
fn scans_go_both_ways_within_bounds() {
    let (_dir, db) = fresh();
    for key in ["a1", "a2", "b1", "b2", "c1"] {
        run(&["put", &db, key, &format!("value of {key}")]);
    }
    let keys = |flags: &[&str]| {
        let args: Vec<&str> = ["scan", &db, "--keys-only"].iter().chain(flags).copied().collect();
        run(&args).replace('\n', " ")
    };
    assert_eq!(keys(&[]), "a1 a2 b1 b2 c1 ");
    assert_eq!(keys(&["--reverse"]), "c1 b2 b1 a2 a1 ");
    assert_eq!(keys(&["--from", "a2", "--to", "b2"]), "a2 b1 ");
    assert_eq!(keys(&["--from", "a2", "--to", "b2", "--reverse"]), "b1 a2 ");
    assert_eq!(keys(&["--prefix", "b"]), "b1 b2 ");
    assert_eq!(keys(&["--prefix", "b", "--reverse", "--limit", "1"]), "b2 ");
    assert_eq!(keys(&["--limit", "0"]), "");
    assert_eq!(run(&["scan", &db, "--prefix", "c"]), "c1\tvalue of c1\n");
    assert!(fail(&["scan", &db, "--from", "b", "--to", "a"]).contains("--from"));
    assert_eq!(cleave(&["scan", &db, "--from", "a", "--prefix", "b"]).status.code(), Some(2));
}

#[test]
fn scan_lines_stay_lines_whatever_the_bytes() {
    let (_dir, db) = fresh();
    run(&["put", &db, "61090a5cff", "00", "--hex"]);
    assert_eq!(run(&["scan", &db]), "a\\t\\n\\\\\\xff\t\\u{0}\n");
    assert_eq!(run(&["scan", &db, "--hex"]), "61090a5cff\t00\n");
}

#[test]
fn counters_are_merged_without_being_read() {
    let (_dir, db) = fresh();
    run(&["keyspaces", &db, "create", "hits", "--operator", "u64-add"]);
    assert_eq!(run(&["keyspaces", &db]), "default\nhits\n");
    for number in ["40", "2"] {
        run(&["merge", &db, "page", "--u64", number, "-k", "hits"]);
    }
    assert_eq!(run(&["get", &db, "page", "--u64", "-k", "hits"]), "42\n");
    assert_eq!(run(&["scan", &db, "--u64", "-k", "hits"]), "page\t42\n");
    assert_eq!(run(&["get", &db, "page", "--value-format", "hex", "-k", "hits"]), "2a00000000000000\n");
    fail(&["merge", &db, "page", "1"]);
    fail(&["keyspaces", &db, "create", "hits"]);
    run(&["keyspaces", &db, "drop", "hits"]);
    assert_eq!(run(&["keyspaces", &db]), "default\n");
}

#[test]
fn exports_of_both_forms_import_again_whatever_the_bytes() {
    let (dir, db) = fresh();
    run(&["put", &db, "plain", "text with \"quotes\", a \\ and a\nline"]);
    run(&["put", &db, "ff00", "fe", "--hex"]);
    run(&["put", &db, "mixed", "80", "--value-format", "hex"]);
    run(&["put", &db, "empty", ""]);
    let everything = run(&["scan", &db]);
    assert_eq!(everything.lines().count(), 4);
    for form in ["jsonl", "binary"] {
        let (path, target) = file(&dir, form);
        run(&["export", &db, &target, "--format", form]);
        let piped = cleave(&["export", &db, "-", "--format", form]).stdout;
        assert_eq!(std::fs::read(path).unwrap(), piped);

        let (_, again) = file(&dir, &format!("{form}-db"));
        let output = cleave(&["import", &again, &target, "--keyspace", "copy"]);
        assert!(output.status.success());
        assert!(String::from_utf8_lossy(&output.stderr).contains("created the database"));
        assert_eq!(run(&["scan", &again, "-k", "copy"]), everything);
        assert_eq!(run(&["scan", &again]), "");
    }
}

#[test]
fn a_bad_line_is_named_and_the_records_before_it_are_kept() {
    let (dir, db) = fresh();
    let (path, source) = file(&dir, "lines");
    std::fs::write(path, "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"value\":\"2\"}\n{\"key\":\"c\"\n").unwrap();
    let error = fail(&["import", &db, &source]).replace(&source, "FILE");
    assert!(error.contains("FILE: line 3: ") && error.contains("imported: 2"), "{error}");
    assert_eq!(run(&["scan", &db]), "a\t1\nb\t2\n");
}

#[test]
fn a_truncated_binary_file_is_an_error_naming_the_offset() {
    let (dir, db) = fresh();
    run(&["put", &db, "a", "first"]);
    run(&["put", &db, "b", "second"]);
    let (path, target) = file(&dir, "export");
    run(&["export", &db, &target, "--format", "binary"]);
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let (_, again) = file(&dir, "again");
    let error = fail(&["import", &again, &target]);
    assert!(error.contains("offset 31") && error.contains("ends at 36"), "{error}");
    assert_eq!(run(&["scan", &again]), "a\tfirst\n");
}

#[test]
fn a_database_that_is_open_is_refused() {
    let (_dir, path) = fresh();
    let db = Db::open(&path).unwrap();
    db.put("a", "1").unwrap();
    assert!(fail(&["get", &path, "a"]).contains("open elsewhere"));
    assert!(fail(&["put", &path, "a", "2"]).contains("open elsewhere"));
    db.close().unwrap();
    assert_eq!(run(&["get", &path, "a"]), "1\n");
}

#[test]
fn stats_are_a_picture_or_json() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    let picture = run(&["stats", &db]);
    assert!(picture.contains("index table  1 entry") && picture.contains("seqno 1 "), "{picture}");
    let json: serde_json::Value = serde_json::from_str(&run(&["stats", &db, "--json"])).unwrap();
    assert!(json["seqno"].as_u64().unwrap() >= 1, "{json}");
    assert!(json["levels"].is_array() && json["memory"]["front_bytes"].is_u64(), "{json}");
}

#[test]
fn a_reader_that_stops_reading_ends_the_program_quietly() {
    let (dir, db) = fresh();
    let (path, source) = file(&dir, "lines");
    let lines: String = (0..50_000).map(|n| format!("{{\"key\":\"{n:06}\",\"value\":\"{n:0100}\"}}\n")).collect();
    std::fs::write(path, lines).unwrap();
    run(&["import", &db, &source]);
    let mut scan = Command::new(env!("CARGO_BIN_EXE_cleave"));
    let mut child = scan.args(["scan", &db]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn the_tour_runs_and_keeps_its_database_where_it_was_told_to() {
    let (_dir, db) = fresh();
    let text = run(&["tour", &db, "--records", "20000"]);
    assert!(text.contains("34,006 cities"), "{text}");
    assert!(text.contains("every acknowledged one among them"), "{text}");
    assert!(text.contains("Everything held."), "{text}");
    assert!(!text.contains('\x1b'), "no terminal, no escape sequences");
    assert!(run(&["get", &db, "IS/Reykjavík/3413829", "-k", "cities"]).starts_with("64.1355;"));
    assert!(fail(&["tour", &db]).contains("not empty"));
}
