//! Single records, and records in key order: `put`, `get`, `delete`, `merge`, `scan`, `keyspaces`.

use std::path::Path;

use crate::support::{cleave, fail, fail_with, file, files, fill, fresh, run, start, with_a_broken_sum};

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
    for (args, error) in [
        (&["get", &db, "zz", "--hex"][..], "\"zz\" is not hexadecimal"),
        (&["get", &db, "a=", "--key-format", "base64"], "\"a=\" is not base64"),
        (&["get", &db, ""], "a key of 0 bytes"),
        (&["put", &db, "k", "x", "--u64"], "\"x\" is not a 64-bit number"),
        (&["merge", &db, "k", "x", "--u64"], "\"x\" is not a 64-bit number"),
        (&["scan", &db, "--prefix", "z", "--hex"], "\"z\" is not hexadecimal"),
    ] {
        let line = fail_with(2, args);
        assert!(line.contains(error), "{args:?}: {line}");
    }
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
        assert!(!Path::new(&db).exists(), "{args:?} created a database");
        assert!(!Path::new(&target).exists(), "{args:?} created a file");
    }
    std::fs::create_dir(&db).unwrap();
    fail(&["scan", &db]);
    assert_eq!(std::fs::read_dir(&db).unwrap().count(), 0, "scan left something in an empty directory");
}

#[test]
fn a_missing_keyspace_is_not_created_by_reads() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    assert!(fail(&["get", &db, "a", "--keyspace", "other"]).contains("other"));
    fail(&["scan", &db, "-k", "other"]);
    assert_eq!(run(&["keyspaces", &db]), "default\n");
}

#[test]
fn scans_work_in_both_directions_within_bounds() {
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
    assert!(fail_with(2, &["scan", &db, "--from", "b", "--to", "a"]).contains("--from"));
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
fn counters_are_merged_without_a_read() {
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
fn operands_are_kept_in_buckets_where_a_keyspace_wants_that() {
    let (_dir, db) = fresh();
    run(&["keyspaces", &db, "create", "hits", "--operator", "u64-add", "--deltas", "buckets"]);
    run(&["keyspaces", &db, "create", "views", "--operator", "u64-add", "--deltas", "levels"]);
    assert_eq!(run(&["keyspaces", &db]), "default\nhits\tdeltas=buckets\nviews\n");
    let wrong = cleave(&["keyspaces", &db, "create", "more", "--deltas", "tables"]);
    assert_eq!(wrong.status.code(), Some(2));
    for keyspace in ["hits", "views"] {
        run(&["put", &db, "page", "40", "--u64", "-k", keyspace]);
    }
    run(&["compact", &db]);
    for keyspace in ["hits", "views"] {
        run(&["merge", &db, "page", "--u64", "2", "-k", keyspace]);
    }
    run(&["compact", &db]);
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", &db, "--json"])).unwrap();
    assert!(stats["deltas"]["buckets"] == 1 && stats["deltas"]["operands"] == 1, "{}", stats["deltas"]);
    for keyspace in ["hits", "views"] {
        assert_eq!(run(&["get", &db, "page", "--u64", "-k", keyspace]), "42\n");
    }
    run(&["check", &db]);
}

#[test]
fn values_are_separated_from_the_threshold_of_their_keyspace_on() {
    let (dir, db) = fresh();
    let near = dir.path().join("near.jsonl");
    std::fs::write(&near, "").unwrap();
    run(&["import", &db, near.to_str().unwrap(), "--separation", "never"]);
    let wrong = cleave(&["import", &db, near.to_str().unwrap(), "--separation", "seldom"]);
    assert_eq!(wrong.status.code(), Some(2));
    run(&["keyspaces", &db, "create", "docs", "--separation", "200"]);
    let text = "a document ".repeat(40);
    for round in ["one", "two"] {
        for number in 0..5 {
            run(&["put", &db, &format!("{number}"), &format!("{text}{round}"), "-k", "docs"]);
            run(&["put", &db, &format!("{number}"), &format!("{text}{round}")]);
        }
    }
    run(&["compact", &db, "-k", "docs"]);
    run(&["compact", &db]);
    let stats: serde_json::Value = serde_json::from_str(&run(&["stats", &db, "--json"])).unwrap();
    let live = stats["values"]["bytes_live"].as_u64().unwrap();
    assert!((5 * text.len() as u64..5 * text.len() as u64 * 2).contains(&live), "{stats}");
    assert!(run(&["stats", &db]).contains(" live"));
    for number in 0..5 {
        assert_eq!(run(&["get", &db, &format!("{number}"), "-k", "docs"]), format!("{text}two\n"));
    }
    run(&["check", &db]);
    for log in files(&db, "log") {
        assert!(run(&["dump", log.to_str().unwrap()]).contains("record"));
    }
}

#[test]
fn a_closed_stdout_ends_the_program_without_an_error() {
    let (dir, db) = fresh();
    fill(&dir, &db, 50_000);
    let mut child = start(&["scan", &db]);
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn keys_whose_merge_fails_are_reported_and_skipped_by_scans() {
    let (_dir, db) = fresh();
    with_a_broken_sum(&db);
    for (flags, lines) in [(&[][..], "a\t1\nz\t1\n"), (&["--reverse"], "z\t1\na\t1\n")] {
        let output = cleave(&[&["scan", &db, "--u64", "-k", "sums"], flags].concat());
        assert_eq!(String::from_utf8(output.stdout).unwrap(), lines);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("broken") && error.contains("skipped keys") && error.lines().count() == 2, "{error}");
    }
    assert_eq!(run(&["scan", &db, "-k", "sums", "--keys-only"]), "a\nbroken\nz\n");
    assert_eq!(run(&["scan", &db, "-k", "sums", "--keys-only", "--reverse"]), "z\nbroken\na\n");
    // With stdout closed the exit code still reports them.
    let mut child = start(&["scan", &db, "-k", "sums", "--hex"]);
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(1));
}

#[test]
fn a_write_over_a_limit_creates_no_database() {
    let (_dir, db) = fresh();
    let long = "k".repeat(65_536);
    for key in ["", &long] {
        for args in [&["put", &db, key, "value"][..], &["get", &db, key], &["delete", &db, key]] {
            let error = fail_with(2, args);
            assert!(error.contains(&format!("a key of {} bytes, but 1 to 65535 are allowed", key.len())), "{error}");
        }
    }
    for name in ["", &"n".repeat(256)] {
        let output = cleave(&["put", &db, "key", "value", "-k", name]);
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&output.stderr).contains("from 1 to 255 bytes"));
    }
    assert_eq!(cleave(&["keyspaces", &db, "create", "x", "--operator", "nope"]).status.code(), Some(2));
    assert!(!Path::new(&db).exists());
    run(&["put", &db, &long[1..], "value"]);
    assert_eq!(run(&["get", &db, &long[1..]]), "value\n");
}

#[test]
fn names_and_keys_may_contain_any_bytes() {
    let (_dir, db) = fresh();
    for name in ["a/b c", "ü 🦀", "-dash", "two\nlines"] {
        run(&["put", &db, "--", "-k", "--"]);
        run(&["put", &db, &format!("--keyspace={name}"), "--", "größe", name]);
        assert_eq!(run(&["get", &db, "größe", &format!("--keyspace={name}")]), format!("{name}\n"));
    }
    assert_eq!(run(&["get", &db, "--", "-k"]), "--\n");
    assert_eq!(run(&["keyspaces", &db]), "-dash\na/b c\ndefault\ntwo\\nlines\nü 🦀\n");
    for operator in ["u64-add", "append", "max", "min", "field-patch", "patches"] {
        run(&["keyspaces", &db, "create", operator, "--operator", operator]);
    }
}

#[test]
fn a_value_that_its_format_cannot_represent_ends_the_scan_after_complete_lines() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "7", "--u64"]);
    run(&["put", &db, "b", "no number"]);
    assert!(fail(&["scan", &db, "--u64"]).contains("value of key \"b\": "));
    assert_eq!(String::from_utf8(cleave(&["scan", &db, "--u64"]).stdout).unwrap(), "a\t7\n");
    assert_eq!(run(&["scan", &db, "--u64", "--keys-only"]), "a\nb\n");
}

#[test]
fn a_hash_keyspace_is_read_written_exported_and_refuses_ordered_scans() {
    let (dir, db) = fresh();
    run(&["keyspaces", &db, "create", "sessions", "--kind", "hash", "--operator", "u64-add"]);
    assert_eq!(run(&["keyspaces", &db]), "default\nsessions\tkind=hash\n");
    run(&["put", &db, "one", "1", "-k", "sessions"]);
    run(&["put", &db, "two", "2", "-k", "sessions"]);
    run(&["delete", &db, "one", "-k", "sessions"]);
    assert_eq!(run(&["scan", &db, "-k", "sessions"]), "two\t2\n");
    assert_eq!(run(&["scan", &db, "-k", "sessions", "--keys-only"]), "two\n");
    let refused = cleave(&["scan", &db, "-k", "sessions", "--prefix", "t"]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("needs an ordered keyspace"));
    run(&["compact", &db]);
    run(&["check", &db]);
    let stats = run(&["stats", &db]);
    assert!(stats.contains("hash keyspaces: 1 key") && stats.contains(" B a key"), "{stats}");
    let file = dir.path().join("records.jsonl").display().to_string();
    run(&["export", &db, &file, "-k", "sessions"]);
    run(&["keyspaces", &db, "create", "copy", "--kind", "hash"]);
    run(&["import", &db, &file, "-k", "copy"]);
    assert_eq!(run(&["get", &db, "two", "-k", "copy"]), "2\n");
    // So much is written that the indexes are saved when the database is closed.
    let long = dir.path().join("long.jsonl").display().to_string();
    let line = |key| format!("{{\"key\":\"{key}\",\"value\":\"{}\"}}\n", "x".repeat(2 << 20));
    std::fs::write(&long, ["three", "four", "five"].map(line).concat()).unwrap();
    run(&["import", &db, &long, "-k", "sessions"]);
    let index = files(&db, ".index").remove(0).display().to_string();
    let keys = |flags: &[&str]| run(&[&["dump", &index], flags].concat()).matches("  key  ").count();
    assert_eq!((keys(&[]), keys(&["--limit", "3"])), (5, 3));
    let wrong = cleave(&["keyspaces", &db, "create", "more", "--kind", "hash", "--deltas", "buckets"]);
    assert_eq!(wrong.status.code(), Some(2));
}
