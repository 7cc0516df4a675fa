//! `stats` of a closed database.

use crate::support::{fresh, run};

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
fn counters_in_json_have_the_names_of_the_statistics() {
    let (_dir, db) = fresh();
    run(&["put", &db, "a", "1"]);
    let json: serde_json::Value = serde_json::from_str(&run(&["stats", &db, "--json"])).unwrap();
    for name in ["value_gcs", "value_gc_bytes_written", "value_reorders", "compaction_subtasks", "run_subtasks"] {
        assert!(json[name].is_u64(), "{name} in {json}");
    }
}
