//! KDSep: deltas separated from values, in buckets by key range.

use super::experiment::{Experiment, How, Paper};

const WAITS: How = How::Waits("the delta store");

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: WAITS }
}

/// None of its experiments can be measured: CleaveDB has no delta store.
pub const PAPER: Paper = Paper {
    name: "kdsep",
    title: "KDSep (ICDE'24): delta buckets for read-modify-write",
    data: 600 << 20,
    data_per_memory: 25,
    fast_percent: None,
    engines: None,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    waits("read:RMW 10:90", "+80.5 / 67.0 / 68.2% throughput on RocksDB / BlobDB / vLogDB"),
    waits("read:RMW 10:90, read latency", "-50 / 42 / 46%"),
    waits("read:RMW 10:90, I/O", "-27 / 41 / 37%"),
    waits("99th percentile of reads", "-48 / 43 / 37%"),
    waits("99th percentile of RMW", "-62 / 24 / 50%"),
    waits("UP2X mix", "+51 / 30 / 34% throughput"),
    waits("YCSB A-F without merge", "within 2.4% of the store without KDSep"),
    waits("YCSB AM, FM", "+80 / 20 / 65% throughput"),
    waits("YCSB BM", "+5 / 10 / 12% throughput"),
    waits("read:RMW 10:90 to 90:10", "+68% to +19% throughput"),
    waits("skew 0.8-1.2", "+51-67% throughput"),
    waits("values of 100 B-8 KB", "+21-68% throughput"),
    waits("fields of 25-800 B", "+13-81% throughput"),
    waits("split and merge against rewrite only", "+55 / 29 / 19% throughput"),
    waits("support for recovery after a crash", "costs 2.5-6.9%"),
    waits("recovery after a crash", "+4-5 s"),
    waits("KD cache 0 to 512 MiB", "0.80x to 1.68x of the store without KDSep"),
];
