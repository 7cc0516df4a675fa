//! `ingest`: a sorted file, atomically.

use std::io::Write;

use crate::support::{fail, file, fill, fresh, lines, run, start};

#[test]
fn sorted_records_are_written_directly_to_tables() {
    let (dir, db) = fresh();
    fill(&dir, &db, 3000);
    run(&["put", &db, "00000007", "older"]);
    let everything = run(&["scan", &db]);
    for form in ["jsonl", "binary"] {
        let (_, source) = file(&dir, form);
        let (_, again) = file(&dir, &format!("{form}-db"));
        run(&["export", &db, &source, "--format", form]);
        run(&["put", &again, "00000007", "oldest", "-k", "copy"]);
        run(&["ingest", &again, &source, "--keyspace", "copy"]);
        assert_eq!(run(&["scan", &again, "-k", "copy"]), everything);
        let stats: serde_json::Value = serde_json::from_str(&run(&["stats", &again, "--json"])).unwrap();
        let tables = stats["levels"].as_array().unwrap().iter().map(|level| level["entries"].as_u64().unwrap());
        assert!(tables.sum::<u64>() >= 3000, "{stats}");
        assert!(run(&["check", &again]).ends_with("sound\n"));
    }
}

#[test]
fn standard_input_is_ingested_and_the_database_created() {
    let (_dir, db) = fresh();
    let mut child = start(&["ingest", &db, "-"]);
    child.stdin.take().unwrap().write_all(lines(10).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && said.contains("created the database"), "{said}");
    assert!(said.contains("ingested 10 records into keyspace \"default\""), "{said}");
    assert_eq!(run(&["scan", &db, "--keys-only"]).lines().count(), 10);
}

#[test]
fn unsorted_records_are_an_error_that_names_the_line_and_sort_accepts_them() {
    let (dir, db) = fresh();
    let (path, source) = file(&dir, "lines");
    let record = |key: &str, value: &str| format!("{{\"key\":\"{key}\",\"value\":\"{value}\"}}\n");
    let cases = [
        (record("a", "1") + &record("c", "2") + "\n" + &record("b", "3"), "line 4: key \"b\" follows \"c\""),
        (record("b", "1") + &record("b", "2"), "line 2: key \"b\" is a duplicate"),
    ];
    for (text, expected) in &cases {
        std::fs::write(&path, text).unwrap();
        let error = fail(&["ingest", &db, &source]);
        assert!(error.contains(expected) && error.contains("--sort") && error.contains("nothing was"), "{error}");
        assert_eq!(run(&["scan", &db]), "");
    }
    run(&["ingest", &db, &source, "--sort"]);
    assert_eq!(run(&["scan", &db]), "b\t2\n");
    std::fs::write(&path, &cases[0].0).unwrap();
    run(&["ingest", &db, &source, "--sort", "-k", "other"]);
    assert_eq!(run(&["scan", &db, "-k", "other"]), "a\t1\nb\t3\nc\t2\n");
    assert!(run(&["check", &db]).ends_with("sound\n"));
}

#[test]
fn an_invalid_record_cancels_the_whole_ingest() {
    let (dir, db) = fresh();
    let (path, source) = file(&dir, "lines");
    std::fs::write(&path, lines(2000) + "{\"key\":\"c\"\n").unwrap();
    for flags in [&[][..], &["--sort"]] {
        let error = fail(&[&["ingest", &db, &source], flags].concat());
        assert!(error.contains("line 2001: ") && error.contains("nothing was ingested"), "{error}");
        assert_eq!(run(&["scan", &db]), "");
    }
    let whole = dir.path().join("whole");
    let whole = whole.to_str().unwrap();
    fill(&dir, whole, 100);
    run(&["export", whole, &source, "--format", "binary"]);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
    assert!(fail(&["ingest", &db, &source]).contains("offset "));
    assert_eq!(run(&["scan", &db]), "");
}
