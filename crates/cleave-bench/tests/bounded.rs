//! `cleave-bench bounded` as a user runs it, at a tiny size.

#![allow(clippy::unwrap_used)] // A failed step is a failed test.

use std::process::Command;

use serde_json::Value;

#[test]
fn a_store_of_zeros_takes_a_fraction_of_its_bytes_and_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let (stores, json) = (dir.path().join("stores"), dir.path().join("out.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave-bench"));
    command.args(["bounded", "--bytes", "40M", "--value-size", "64K", "--memory", "16M"]);
    let output = command.arg("--dir").arg(&stores).arg("--json").arg(&json).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(std::fs::read_dir(stores).unwrap().count(), 0, "the store was left behind");

    let rows: Vec<Value> = serde_json::from_slice(&std::fs::read(json).unwrap()).unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!((rows.len(), table.lines().count()), (22, 24), "{table}");
    let number = |row: &Value, name: &str| row[name].as_u64().unwrap();
    let loaded = &rows[9];
    assert!(number(loaded, "value_bytes_live") >= 40 << 20, "{loaded}");
    assert!(number(loaded, "file_bytes") >= 40 << 20, "{loaded}");
    assert!(number(loaded, "disk_bytes") < number(loaded, "file_bytes") / 2, "{loaded}");
    for row in &rows {
        let files = &row["files"];
        let kinds = ["logs", "segments", "redirects", "tables"].map(|kind| number(files, kind));
        assert!(kinds.iter().sum::<u64>() <= number(files, "all") && number(files, "manifest_bytes") > 0, "{row}");
        assert!(number(row, "descriptors_max") > 3 && number(row, "resident_bytes_max") > 1 << 20, "{row}");
        assert!(number(row, "memory_bytes") <= 16 << 20, "{row}");
    }
}
