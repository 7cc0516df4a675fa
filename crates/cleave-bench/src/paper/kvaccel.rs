//! KVAccel: writes are redirected while the tree stalls, and rolled back afterwards.

use super::experiment::{Experiment, How, Paper};

const WAITS: How = How::Waits("the bypass (pacing does not redirect writes)");

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: WAITS }
}

/// None of its experiments can be measured: CleaveDB has no bypass.
pub const PAPER: Paper = Paper {
    name: "kvaccel",
    title: "KVAccel (IPDPS'25): redirection of writes during stalls",
    data: 600 << 20,
    key_size: 24,
    data_per_memory: 64,
    fast_percent: None,
    seconds: None,
    engines: None,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    waits("A, throughput against RocksDB / ADOC", "up to +37% / +17%"),
    waits("A, P99 against RocksDB / ADOC", "-30% / -20%"),
    waits("efficiency, MB/s per CPU %", "best of all"),
    waits("lowest second", "no slowdown, no second of zero"),
    waits("B and C, read-heavier mixes", "eager rollback wins as reads grow"),
    waits("idle bandwidth in a stall", "RocksDB leaves up to 90% unused about half of the time"),
];
