//! What one run is to do: the options that the user gave, with one engine and one workload. The parent process hands it
//! to the child that does the run.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::engine::Durability;
use crate::failure::{Failure, Result};
use crate::keys::KEY_BYTES_MIN;
use crate::size;

/// The options of a run, apart from engine and workload.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Shape {
    /// Records to load, or to draw from
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: u64,
    /// Operations of all clients together. Default: the number of records, or what the workload says
    #[arg(long, value_name = "N")]
    pub operations: Option<u64>,
    /// Bytes of a key: 8 or more
    #[arg(long, value_name = "BYTES", default_value_t = 24)]
    pub key_size: usize,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 1000)]
    pub value_size: usize,
    /// How much of each value compresses away, from 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub compressibility: f64,
    /// Which records operations fall on. Default: what the workload says
    #[arg(long)]
    pub distribution: Option<Distribution>,
    /// Records that a scan reads, unless the workload says
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub scan_length: u64,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u64,
    /// Operations per second that are due, whether or not earlier ones have ended (an open loop). Default: each client
    /// starts its next operation when the last one has ended
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// With --rate: so many operations of a client are due at once, then none until the rate is right again
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rate")]
    pub burst: u64,
    /// Operations per second of the background client of readwhilewriting and readwhilemerging. Default: full speed
    #[arg(long, value_name = "N")]
    pub background_rate: Option<f64>,
    /// Memory of the engine: write buffers, caches and the like together
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size::parse)]
    pub memory: u64,
    /// Threads of the engine for background work
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub background_threads: usize,
    /// What an acknowledged write survives: a crash of the process, or loss of power
    #[arg(long, default_value = "buffered")]
    pub durability: Durability,
    /// The same seed gives each client the same operations again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// After each run, read the whole store and check that it has every record it must have, and no other
    #[arg(long)]
    pub verify: bool,
}

impl Shape {
    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// The first option that is wrong.
    pub fn check(&self) -> Result<()> {
        let positive = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        let rules = [
            (self.records > 0, "--records must be 1 or more"),
            (self.operations != Some(0), "--operations must be 1 or more"),
            (self.key_size >= KEY_BYTES_MIN, "--key-size must be 8 or more"),
            (self.key_size <= 65_535, "--key-size must be 65535 or less"),
            (self.value_size > 0, "--value-size must be 1 or more"),
            (self.value_size < 1 << 30, "--value-size must be less than 1 GiB"),
            ((0.0..=1.0).contains(&self.compressibility), "--compressibility is from 0 to 1"),
            (self.threads > 0, "--threads must be 1 or more"),
            (self.background_threads > 0, "--background-threads must be 1 or more"),
            (self.burst > 0, "--burst must be 1 or more"),
            (positive(self.rate), "--rate must be more than 0"),
            (positive(self.background_rate), "--background-rate must be more than 0"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(Failure::new(*sentence)),
            None => Ok(()),
        }
    }
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The engine's name.
    pub engine: String,
    /// The workload's name.
    pub workload: String,
    /// An empty directory for the store.
    pub dir: PathBuf,
    /// The directory of the memory cgroup that the run goes into.
    pub cgroup: Option<PathBuf>,
    /// Its limit.
    pub cgroup_memory: Option<u64>,
    /// Everything else.
    pub shape: Shape,
}
