//! Helpers of these tests: running the program, directories for databases, files of records.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Runs a command to its end.
pub fn cleave(args: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_cleave");
    Command::new(program).args(args).stdin(Stdio::null()).output().unwrap()
}

/// Runs a command that must succeed; returns its stdout.
pub fn run(args: &[&str]) -> String {
    let output = cleave(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must fail with exit code 1 and one line on stderr; returns that line.
pub fn fail(args: &[&str]) -> String {
    fail_with(1, args)
}

/// Runs a command that must fail with this exit code and one line on stderr; returns that line.
pub fn fail_with(code: i32, args: &[&str]) -> String {
    let output = cleave(args);
    assert_eq!(output.status.code(), Some(code), "{args:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    let lines: Vec<&str> = error.lines().filter(|line| !line.starts_with("created the database ")).collect();
    assert!(matches!(lines[..], [line] if line.starts_with("cleave: ")), "{error}");
    lines[0].to_owned()
}

/// A directory, and the path of a database that does not exist yet.
pub fn fresh() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").to_str().unwrap().to_owned();
    (dir, db)
}

/// A path in a directory, as a path and as an argument.
pub fn file(dir: &TempDir, name: &str) -> (PathBuf, String) {
    let path = dir.path().join(name);
    let text = path.to_str().unwrap().to_owned();
    (path, text)
}

/// The files of a database with this suffix.
pub fn files(db: &str, ending: &str) -> Vec<PathBuf> {
    let paths = std::fs::read_dir(db).unwrap().map(|entry| entry.unwrap().path());
    paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect()
}

/// Starts a command whose stdin, stdout and stderr are pipes.
pub fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Records in JSON lines whose keys ascend.
pub fn lines(count: usize) -> String {
    (0..count).map(|number| format!("{{\"key\":\"{number:08}\",\"value\":\"{number:0100}\"}}\n")).collect()
}

/// Creates a database whose default keyspace has these keys, each with a value of 100 bytes.
pub fn fill(dir: &TempDir, db: &str, count: usize) {
    let (path, source) = file(dir, "lines of a filled database");
    std::fs::write(path, lines(count)).unwrap();
    run(&["import", db, &source]);
}

/// Creates a keyspace "sums" in which the merge of key "broken" fails, and those of "a" and "z" succeed.
pub fn with_a_broken_sum(db: &str) {
    run(&["keyspaces", db, "create", "sums", "--operator", "u64-add"]);
    for key in ["a", "z"] {
        run(&["merge", db, key, "1", "--u64", "-k", "sums"]);
    }
    run(&["put", db, "broken", "no number", "-k", "sums"]);
    run(&["merge", db, "broken", "1", "--u64", "-k", "sums"]);
}

/// The files of a directory and their content.
pub fn content(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut content: Vec<_> = paths.map(|path| (path.clone(), std::fs::read(path).unwrap())).collect();
    content.sort();
    content
}
