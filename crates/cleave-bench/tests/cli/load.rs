//! How load arrives: bursts with pauses between them, batches of writes, and short keys, on every engine of the build.

use crate::common::{engines, number, refuse, run, succeed};

#[test]
fn bursts_follow_their_schedule_in_each_phase() {
    let phases = ["--workload", "sustained", "--phases", "load,ycsb-a", "--rounds", "1", "--records", "100"];
    let load = ["--rate", "400", "--bursts", "0.1,0.3", "--phase-seconds", "1", "--operations", "100000"];
    let outcomes = run(&[&phases[..], &load, &["--threads", "2"]].concat());
    assert_eq!(outcomes[0]["settings"]["options"]["bursts"], "0.1,0.3");
    for outcome in &outcomes[..2] {
        let elapsed = outcome["elapsed_s"].as_f64().unwrap();
        let periods = (elapsed / 0.4).floor();
        let on = periods * 0.1 + (elapsed - periods * 0.4).min(0.1);
        let operations = number(outcome, "operations");
        assert!(operations as f64 <= on * 400.0 + 2.0, "{operations} operations in {elapsed} s");
    }
    assert_eq!(number(&outcomes[0], "operations"), 100);
    // The last of 100 writes is due in the third burst.
    assert!(outcomes[0]["elapsed_s"].as_f64().unwrap() > 0.8, "{}", outcomes[0]["elapsed_s"]);
    refuse(&["run", "--workload", "fillseq", "--bursts", "1,1"], "--rate");
    refuse(&["run", "--workload", "fillseq", "--rate", "9", "--bursts", "1"], "ON,OFF");
}

#[test]
fn batches_write_the_same_records_in_fewer_commits() {
    let work = ["--workload", "fillrandom,fillseq,ycsb-a,ycsb-d,mixed", "--records", "400", "--value-size", "100"];
    let how = ["--batch", "16", "--threads", "3", "--memory", "16M", "--verify", "--engine", &engines().join(",")];
    for outcome in run(&[&work[..], &how].concat()) {
        assert_eq!(number(&outcome, "operations"), 400, "{outcome}");
        let commits = |name: &str| outcome["latency_by_op"][name]["operations"].as_u64().unwrap_or(0);
        // Samples of commits and of reads are not mixed.
        let has_reads = !outcome["workload"].as_str().unwrap().starts_with("fill");
        assert_eq!(outcome["latency_us"].is_null(), has_reads, "{outcome}");
        assert_eq!(outcome["latency_by_op"]["read"]["p99"].is_number(), has_reads, "{outcome}");
        match outcome["workload"].as_str().unwrap() {
            // Three clients with 134, 133 and 133 writes.
            "fillrandom" => assert_eq!(commits("update"), 27),
            "fillseq" => assert_eq!(commits("insert"), 27),
            "ycsb-a" => assert!((12..=16).contains(&commits("update")), "{outcome}"),
            _ => assert!(commits("insert") + commits("update") <= 12, "{outcome}"),
        }
    }
    let table = succeed(&["run", "--workload", "ycsb-a", "--records", "200", "--batch", "8"]);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[4..9], ["-"; 5], "{table}");
    refuse(&["run", "--workload", "fillseq", "--batch", "0"], "--batch");
    let trace = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/trace.csv");
    refuse(&["run", "--workload", "trace", "--input", trace, "--batch", "2"], "--batch");
}

#[test]
fn keys_of_four_bytes_work_where_the_records_fit() {
    let work = ["--workload", "fillseq,kvaccel-b,ycsb-d,kvaccel-d", "--records", "3000", "--value-size", "50"];
    let how = ["--key-size", "4", "--memory", "16M", "--verify", "--recover", "--engine", &engines().join(",")];
    for outcome in run(&[&work[..], &how].concat()) {
        assert_eq!((number(&outcome, "key_size"), number(&outcome, "reads_missing")), (4, 0));
        let inserted =
            outcome["latency_by_op"]["insert"]["operations"].as_u64().filter(|_| outcome["workload"] == "ycsb-d");
        assert_eq!(number(&outcome, "live_bytes"), (3000 + inserted.unwrap_or(0)) * 54, "{outcome}");
    }
    let many = (1_u64 << 31).to_string();
    let most = ["run", "--workload", "fillseq", "--key-size", "4", "--operations", "1", "--records"];
    refuse(&[&most[..], &[&format!("{many}1")]].concat(), "need longer keys");
}

#[test]
fn a_rate_may_be_a_share_of_the_peak_of_an_engine() {
    let work = ["--workload", "fillrandom,overwrite", "--records", "2000", "--memory", "16M"];
    let outcomes = run(&[&work[..], &["--rate-of", "50%:cleave", "--engine", "cleave,cleave-inline"]].concat());
    assert_eq!(outcomes.len(), 4);
    for outcome in outcomes {
        let (peak, rate) = (&outcome["settings"]["peak"], outcome["settings"]["options"]["rate"].as_f64().unwrap());
        assert_eq!((&peak["engine"], &peak["percent"]), (&"cleave".into(), &50.0.into()));
        assert!((peak["ops_per_s"].as_f64().unwrap() / 2.0 - rate).abs() <= 1.0, "{outcome}");
        assert!(outcome["ops_per_s"].as_f64().unwrap() < rate * 1.1, "{outcome}");
    }
    let fill = ["run", "--workload", "fillseq", "--records", "10"];
    refuse(&[&fill[..], &["--rate-of", "70"]].concat(), "70%:rocksdb");
    refuse(&[&fill[..], &["--rate-of", "70%:nothing"]].concat(), "there is no engine");
    refuse(&[&fill[..], &["--rate-of", "70%:cleave", "--rate", "9"]].concat(), "cannot be used with");
    refuse(&["run", "--workload", "sustained", "--rate-of", "70%:cleave"], "not for sustained");
}
