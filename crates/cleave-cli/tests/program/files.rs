//! Commands on the files of a database: `check`, `dump`, `compact`.

use std::path::Path;

use crate::support::{cleave, fail, files, fresh, run, start};

#[test]
fn a_check_reports_file_and_offset_of_damage_and_fails() {
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
fn dumps_print_logs_tables_and_manifests_up_to_the_first_damage() {
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
fn compaction_removes_deleted_records() {
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
fn a_check_with_stdout_closed_still_fails_on_damage() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    let exit_code = |flags: &[&str]| {
        let mut child = start(&[&["check", &db], flags].concat());
        drop(child.stdout.take());
        child.wait().unwrap().code()
    };
    assert_eq!(exit_code(&[]), Some(0));
    let log = files(&db, ".log").remove(0);
    std::fs::remove_file(log).unwrap();
    assert_eq!((exit_code(&[]), exit_code(&["--json"])), (Some(1), Some(1)));
}
