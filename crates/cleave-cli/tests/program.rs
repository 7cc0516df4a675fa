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
    for args in [&["get", &path, "a"][..], &["put", &path, "a", "2"], &["check", &path], &["compact", &path]] {
        let output = cleave(args);
        assert_eq!(output.status.code(), Some(3), "{args:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("open elsewhere"), "{output:?}");
    }
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

#[test]
fn an_open_database_is_shown_by_the_page_that_its_owner_keeps() {
    let (_dir, path) = fresh();
    let output = cleave(&["stats", &path, "--watch"]);
    assert_eq!(output.status.code(), Some(1));
    let db = Db::open(&path).unwrap();
    for number in 0..500_u32 {
        db.put(number.to_be_bytes(), "value").unwrap();
    }
    let own = std::process::id().to_string();
    let began = std::time::Instant::now();
    while !run_or_fail(&["stats", &path]).contains("seqno 500 ") {
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

fn run_or_fail(args: &[&str]) -> String {
    String::from_utf8(cleave(args).stdout).unwrap()
}

/// The files of a database with this ending.
fn files(db: &str, ending: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(db).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

#[test]
fn a_check_tells_file_and_offset_and_its_exit_code_says_whether_all_is_sound() {
    let (_dir, db) = fresh();
    for key in ["a", "b"] {
        run(&["put", &db, key, "some value"]);
    }
    assert!(run(&["check", &db]).ends_with("sound\n"));
    run(&["compact", &db]);
    assert!(run(&["check", &db]).contains("tables 1 with versions 2"));
    let table = files(&db, ".table").remove(0);
    let mut bytes = std::fs::read(&table).unwrap();
    bytes[3] ^= 1;
    std::fs::write(&table, bytes).unwrap();
    let output = cleave(&["check", &db]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.contains(&format!("{}: offset 0: ", table.display())), "{said}");
    let output = cleave(&["check", &db, "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((json["sound"].as_bool(), json["problems"][0]["offset"].as_u64()), (Some(false), Some(0)));
    assert_eq!(cleave(&["check"]).status.code(), Some(2));
    assert!(fail(&["check", &format!("{db}/nowhere")]).contains("not found"));
}

#[test]
fn dumps_show_logs_tables_and_manifests_as_far_as_they_go() {
    let (_dir, db) = fresh();
    run(&["put", &db, "first key", "a value"]);
    run(&["put", &db, "61ff", "00", "--hex"]);
    let show = |path: &Path, flags: &[&str]| {
        let args: Vec<&str> = ["dump", path.to_str().unwrap()].iter().chain(flags).copied().collect();
        run(&args)
    };
    let logs: String = files(&db, ".log").iter().map(|log| show(log, &["--values"])).collect();
    assert!(logs.contains("put seqno 1 keyspace 1 key \"first key\" (9 B) value 7 B \"a value\""), "{logs}");
    assert!(logs.contains("key \"a\\xff\""), "{logs}");
    run(&["compact", &db]);
    let table = files(&db, ".table").remove(0);
    let whole = show(&table, &[]);
    assert!(whole.contains("filter") && whole.contains("2 versions") && whole.contains("key \"first key\""), "{whole}");
    assert!(!whole.contains("a value"));
    let limited = show(&table, &["--limit", "1"]);
    assert_eq!(limited.lines().filter(|line| line.contains("  version  ")).count(), 1, "{limited}");
    let manifest = show(&files(&db, ".manifest")[0], &[]);
    assert!(manifest.contains("table added") && manifest.contains("1 \"default\""), "{manifest}");
    assert!(show(&Path::new(&db).join("CURRENT"), &[]).contains("manifest "));
    let mut bytes = std::fs::read(&files(&db, ".manifest")[0]).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let copy = Path::new(&db).join("copy");
    std::fs::write(&copy, bytes).unwrap();
    let output = cleave(&["dump", copy.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(1));
    let (said, error) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(said.contains("keyspace added") && error.contains("offset "), "{said}{error}");
    assert!(fail(&["dump", "/dev/null"]).contains("/dev/null"));
}

#[test]
fn compaction_takes_what_was_deleted_away() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    run(&["put", &db, "b", "2"]);
    run(&["delete", &db, "a"]);
    run(&["compact", &db, "-k", "default"]);
    assert!(run(&["check", &db]).contains("with versions 1"));
    assert_eq!(run(&["scan", &db]), "b\t2\n");
    assert!(fail(&["compact", &db, "-k", "other"]).contains("other"));
}

#[test]
fn completions_and_manual_pages_know_every_command() {
    let (dir, _) = fresh();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        assert!(run(&["completions", shell]).contains("keyspaces"), "{shell}");
    }
    assert_eq!(cleave(&["completions", "csh"]).status.code(), Some(2));
    assert!(run(&["man"]).contains("cleave\\-check") || run(&["man"]).contains("cleave-check"));
    let pages = dir.path().join("man");
    run(&["man", pages.to_str().unwrap()]);
    let page = std::fs::read_to_string(pages.join("cleave-dump.1")).unwrap();
    assert!(page.contains("values") && page.contains("limit"), "{page}");
}

#[test]
fn a_signal_during_an_import_leaves_a_sound_database() {
    use std::io::Write;
    let (_dir, db) = fresh();
    let mut imported = 0;
    for (round, signal) in
        [rustix::process::Signal::INT, rustix::process::Signal::KILL].iter().cycle().take(6).enumerate()
    {
        let mut import = Command::new(env!("CARGO_BIN_EXE_cleave"));
        let mut child = import.args(["import", &db, "-"]).stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
        let writer = std::thread::spawn(move || {
            for number in 0.. {
                let line = format!("{{\"key\":\"{round} {number:08}\",\"value\":\"{number:0200}\"}}\n");
                if input.write_all(line.as_bytes()).is_err() {
                    return;
                }
            }
        });
        std::thread::sleep(std::time::Duration::from_millis(150 + 70 * round as u64));
        rustix::process::kill_process(pid, *signal).unwrap();
        assert!(!child.wait().unwrap().success());
        writer.join().unwrap();
        if !Path::new(&db).join("CURRENT").exists() {
            continue;
        }
        assert!(run(&["check", &db]).ends_with("sound\n"));
        // What is there of each round is a beginning of it.
        let keys = run(&["scan", &db, "--keys-only"]);
        let of_round = keys.lines().filter(|key| key.starts_with(&format!("{round} "))).enumerate();
        of_round.for_each(|(number, key)| assert_eq!(key, format!("{round} {number:08}")));
        assert!(keys.lines().count() >= imported, "what was there stays there");
        imported = keys.lines().count();
    }
    assert!(imported > 1000, "the imports got somewhere: {imported}");
}
