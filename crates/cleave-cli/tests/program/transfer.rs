//! `import` and `export`.

use crate::support::{cleave, fail, file, fresh, run, with_a_broken_sum};

#[test]
fn exports_in_both_formats_import_again_whatever_the_bytes() {
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
    assert!(error.contains("FILE: line 3: ") && error.contains("imported before it: 2"), "{error}");
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
fn an_export_skips_and_reports_keys_whose_merge_fails() {
    let (dir, db) = fresh();
    with_a_broken_sum(&db);
    let (path, target) = file(&dir, "export");
    for form in ["jsonl", "binary"] {
        let output = cleave(&["export", &db, &target, "-k", "sums", "--format", form]);
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(error.contains("broken") && error.contains("skipped keys"), "{error}");
        let (_, again) = file(&dir, &format!("{form}-db"));
        run(&["import", &again, &target]);
        assert_eq!(run(&["scan", &again, "--u64"]), "a\t1\nz\t1\n");
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_object_with_a_duplicate_field_is_refused() {
    let (dir, db) = fresh();
    let (path, source) = file(&dir, "lines");
    std::fs::write(path, "{\"key\":\"a\",\"value\":\"1\",\"value\":\"2\"}\n").unwrap();
    let error = fail(&["import", &db, &source]);
    assert!(error.contains("line 1: ") && error.contains("duplicate field \"value\""), "{error}");
}
