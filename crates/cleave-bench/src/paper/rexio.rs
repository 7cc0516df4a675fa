//! REXIO: an in-memory hash index of addresses, with records written about once.

use super::experiment::{Experiment, How, Paper};

const WAITS: How = How::Waits("hash keyspaces");

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: WAITS }
}

/// None of its experiments can be measured: CleaveDB has no hash keyspaces.
pub const PAPER: Paper = Paper {
    name: "rexio",
    title: "REXIO: in-memory extendible hashing, write amplification near 1",
    data: 600 << 20,
    data_per_memory: 64,
    fast_percent: None,
    seconds: None,
    engines: None,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    waits("write amplification, writes", "1.04 falling to 0.98 (WipDB 3.25, SifrDB 5.7, RocksDB 12.6, LevelDB 15.0)"),
    waits("write amplification over value sizes and key ranges", "flat"),
    waits("writes of 2 KiB values", "124 Kops/s (WipDB 27, SifrDB 3.6, LevelDB 7.0, RocksDB 6.4)"),
    waits("mixed 5:5", "3.4x SifrDB"),
    waits("mixed 1:9 to 9:1", "keeps 40-80% of the throughput of writes only"),
];
