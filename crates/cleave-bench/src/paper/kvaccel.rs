//! KVAccel: writes go elsewhere while the tree stalls, and come back after.

use super::Paper;
use super::experiment::{Experiment, How};

const WAITS: How = How::Waits("the bypass (pacing alone is not it)");

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: WAITS }
}

/// Nothing of it can be measured yet.
pub const PAPER: Paper = Paper {
    name: "kvaccel",
    title: "KVAccel (IPDPS'25): redirection of writes during stalls",
    data: 600 << 20,
    data_per_memory: 64,
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
