//! What one run is to do: the options that the user gave, with one engine and one workload. The parent process hands it
//! to the child that does the run.

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::engine::{Compression, Dirs, Durability};
use crate::engines::CleaveOptions;
use crate::failure::{Failure, Result};
use crate::keys::KEY_BYTES_MIN;
use crate::size::{self, Lengths};

/// Where stores lie, and how their devices are used.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct Places {
    /// Where stores are made and deleted again. Default: the system's directory for temporary files
    #[arg(long)]
    #[serde(skip)]
    pub dir: Option<PathBuf>,
    /// Where stores with tiers keep what is to be fast, logs first of all. Default: --dir
    #[arg(long, value_name = "DIR", requires = "slow")]
    pub fast: Option<PathBuf>,
    /// What may lie on the fast tier
    #[arg(long, value_name = "BYTES", requires = "fast", value_parser = size::parse)]
    pub fast_bytes: Option<u64>,
    /// Where stores with tiers keep the bulk of their data; stores without tiers lie here altogether
    #[arg(long, value_name = "DIR")]
    pub slow: Option<PathBuf>,
    /// Direct I/O, past the page cache, for engines that have it
    #[arg(long)]
    pub direct: bool,
    /// Nothing else uses the devices of these directories: bytes read and written are those that the devices count
    #[arg(long)]
    pub own_device: bool,
    /// Put each run into a memory cgroup of this size, so that its page cache counts too (needs root and cgroup v1)
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    #[serde(skip)] // Results have it by itself.
    pub cgroup_memory: Option<u64>,
}

/// The options of a run, apart from engine and workload.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Shape {
    /// Records to load, or to draw from
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: u64,
    /// Operations of all clients together. Default: the number of records, or what the workload says
    #[arg(long, value_name = "N")]
    pub operations: Option<u64>,
    /// Bytes of a key, 8 or more; written as for --value-size
    #[arg(long, value_name = "BYTES", default_value = "24", value_parser = size::parse_key_lengths)]
    pub key_size: Lengths,
    /// Bytes of a value: N, LOW-HIGH (all as likely), `normal:MEAN:DEVIATION[:MIN]`, `zipfian:LOW-HIGH` (short ones are
    /// likely) or `N*WEIGHT+N*WEIGHT` (one of two)
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub value_size: Lengths,
    /// How much of each value compresses away, from 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub compressibility: f64,
    /// Which records operations fall on: uniform, zipfian (the exponent is 0.99), zipfian:EXPONENT or latest. Default: what
    /// the workload says
    #[arg(long, value_name = "D")]
    pub distribution: Option<Distribution>,
    /// After the load, and before anything is measured, update as many records as there are so many times (zipfian,
    /// or as --distribution says): stores differ in what updates leave behind
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    pub age: u64,
    /// Begin as soon as the load is written, while the store still does the work that it left: default is at rest
    #[arg(long)]
    pub right_away: bool,
    /// Records that a scan reads, unless the workload says
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub scan_length: u64,
    /// For the workload `input`: records, as `cleave export` writes them or in CSV (key,value). For the workload `trace`:
    /// operations in CSV (time in seconds,op,key,value_size)
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// With the workload `trace`: each operation is due when the trace says (an open loop)
    #[arg(long, requires = "input", conflicts_with = "rate")]
    pub rate_from_trace: bool,
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
    /// How data is compressed, by engines that can. Default: as each engine is set up here, mostly LZ4
    #[arg(long)]
    pub compression: Option<Compression>,
    /// Options of CleaveDB alone, KEY=VALUE with commas between; a wrong KEY lists those that there are
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub cleave: Option<CleaveOptions>,
    /// The same seed gives each client the same operations again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// After each run, read the whole store and check that it has every record it must have, and no other
    #[arg(long)]
    pub verify: bool,
    /// After each run that wrote, kill the store in the middle of more writes, and measure how long it takes to open it
    #[arg(long)]
    pub recover: bool,
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
            (self.key_size.shortest() >= KEY_BYTES_MIN, "--key-size must be 8 or more"),
            (self.key_size.longest() <= 65_535, "--key-size must be 65535 or less"),
            (self.value_size.shortest() > 0, "--value-size must be 1 or more"),
            (self.value_size.longest() < 1 << 30, "--value-size must be less than 1 GiB"),
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

/// What a child process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Load, work, and measure.
    Run,
    /// Open the store of a child that was killed, which must have the first so many records of each of its writers.
    Recover(Vec<u64>),
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// What of it to do.
    pub task: Task,
    /// The engine's name.
    pub engine: String,
    /// The workload's name.
    pub workload: String,
    /// Empty directories for the store.
    pub dirs: Dirs,
    /// Where the directories are, as the user said.
    pub places: Places,
    /// The directory of the memory cgroup that the run goes into.
    pub cgroup: Option<PathBuf>,
    /// Its limit.
    pub cgroup_memory: Option<u64>,
    /// Everything else.
    pub shape: Shape,
}

impl Plan {
    /// Whether the store is to be killed after a run in which clients wrote `user_bytes`.
    pub fn is_to_be_killed(&self, user_bytes: u64) -> bool {
        self.shape.recover && user_bytes > 0
    }
}
