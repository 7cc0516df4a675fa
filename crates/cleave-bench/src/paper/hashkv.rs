//! HashKV: values in groups by hash, collected without lookups.

use super::Paper;
use super::experiment::{Experiment, How};

const WAITS: How = How::Waits("values in groups with their garbage collection");

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: WAITS }
}

/// Nothing of it can be measured yet.
pub const PAPER: Paper = Paper {
    name: "hashkv",
    title: "HashKV (ATC'18, ToS'19): hash-grouped values with lookup-free garbage collection",
    data: 600 << 20,
    data_per_memory: 640,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    waits("update rounds against vLog / LevelDB / RocksDB", "3.7-4.6x / 6.3-7.9x / 1.3-1.4x throughput"),
    waits("update rounds, bytes written", "-50 / -72 / -67%, in equal space"),
    waits("load against LevelDB / RocksDB / vLog", "17.1x / 3.0x / 0.92x throughput"),
    waits("reserved space 10-90%", "3.1-4.7x vLog"),
    waits("pairs of 256 B-64 KiB", "2.2-5.1x vLog up to 4 KiB"),
    waits("scans of 1 MiB against LevelDB", "-70% at 256 B, -36% at 1 KiB, +94% at 4 KiB"),
    waits("hotness awareness, 20% reserve", "+113-121% throughput, -43% writes"),
    waits("selective separation", "+23-118% throughput, best threshold 128-256 B"),
    waits("greedy against greedy-random / random", "+32% / +61% throughput"),
    waits("crash consistency", "-6.5% throughput, +4.2% writes"),
    waits("YCSB A, F against LevelDB / vLog", "2.8-2.9x / 1.1-1.4x"),
    waits("balance of partitions", "within 2.5%, 99.4% utilised"),
    waits("main segment 16-256 MiB", "+52% at 20% reserve"),
];
