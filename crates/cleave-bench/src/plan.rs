//! The plan of one run: the user's options, with one engine and one workload. The parent process passes it as JSON to the
//! child that executes the run.

use std::path::PathBuf;

use clap::{Args, value_parser};
use serde::{Deserialize, Serialize};

use crate::cleave_options::CleaveOptions;
use crate::distribution::Distribution;
use crate::engine::{Compression, Dirs, Durability, Settings};
use crate::failure::{Failure, Result};
use crate::keys::Order;
use crate::pace::Bursts;
use crate::phase::Schedule;
use crate::size::{self, KEY_BYTES_SHORTEST, Lengths};

/// The most writes of a commit.
const BATCH_MAX: u64 = 1_000_000;

/// The directories of stores, and how their devices are used.
#[derive(Debug, Clone, Default, Args, Serialize, Deserialize)]
pub struct Places {
    /// Directory in which stores are created and removed. Default: the system's temporary directory
    #[arg(long)]
    #[serde(skip)]
    pub dir: Option<PathBuf>,
    /// Fast tier of stores with tiers, mainly for logs. Default: --dir
    #[arg(long, value_name = "DIR", requires = "slow")]
    pub fast: Option<PathBuf>,
    /// Maximum bytes on the fast tier
    #[arg(long, value_name = "BYTES", requires = "fast", value_parser = size::parse)]
    pub fast_bytes: Option<u64>,
    /// Slow tier, for the bulk of the data; stores without tiers are entirely on it
    #[arg(long, value_name = "DIR")]
    pub slow: Option<PathBuf>,
    /// Use direct I/O, bypassing the page cache, in engines that support it. Always used on a throttled device, whose limits
    /// apply to it only
    #[arg(long)]
    pub direct: bool,
    /// Take the bytes read and written from the counters of the devices, which nothing else may use
    #[arg(long)]
    pub own_device: bool,
    /// Run in a memory cgroup of this size, which also limits the page cache (needs root and cgroup v1). Default on two
    /// tiers and on a throttled device, where possible: four times --memory, at least 256 MiB
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    #[serde(skip)] // Results have it as a separate field.
    pub cgroup_memory: Option<u64>,
}

/// The options of a run, apart from engine and workload.
#[derive(Debug, Clone, Args, Serialize, Deserialize)]
pub struct Shape {
    /// Number of records
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    pub records: u64,
    /// Operations of all clients together. Default: the number of records, unless the workload defines it
    #[arg(long, value_name = "N")]
    pub operations: Option<u64>,
    /// Bytes of a key, at least 4 (with keys of N bytes, fewer than 8, there are at most 2^(8N-1) records); the syntax is
    /// that of --value-size
    #[arg(long, value_name = "BYTES", default_value = "24", value_parser = size::parse_key_lengths)]
    pub key_size: Lengths,
    /// Bytes of a value: N, LOW-HIGH (uniform), `normal:MEAN:DEVIATION[:MIN]`, `zipfian:LOW-HIGH` (shorter ones are more
    /// likely), `log-uniform:LOW-HIGH` (as many small as large ones) or `N*WEIGHT+N*WEIGHT` (one of two)
    #[arg(long, value_name = "BYTES", default_value = "1000")]
    pub value_size: Lengths,
    /// Compressible fraction of each value, from 0 to 1
    #[arg(long, value_name = "PART", default_value_t = 0.0)]
    pub compressibility: f64,
    /// Distribution of the accessed records: uniform, zipfian (with exponent 0.99), zipfian:EXPONENT or latest. Default:
    /// that of the workload
    #[arg(long, value_name = "D")]
    pub distribution: Option<Distribution>,
    /// Order of the records by key: with sequential keys and the distribution latest, popular records are neighbours. Default: that
    /// of the workload
    #[arg(long, value_name = "ORDER")]
    #[serde(default)]
    pub key_order: Option<Order>,
    /// Workload `sustained`: its phases, separated by commas, one right after the other on one open store: load, update,
    /// update-uniform, scans, gets-zipfian, gets-uniform, settle, and any workload whose records are not in a file. Default:
    /// load,update,ycsb-a,ycsb-b,ycsb-e,scans,gets-zipfian,gets-uniform; a settle follows the last round
    #[arg(long, value_name = "P,..")]
    pub phases: Option<String>,
    /// Workload `sustained`: how often to execute the phases; only the first round has the load. Default: 2
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub rounds: Option<u64>,
    /// End a phase after this time, even if operations are left; load, update and settle are always complete. Default: 15
    /// for `sustained`, no limit for other workloads
    #[arg(long, value_name = "S")]
    pub phase_seconds: Option<f64>,
    /// Workload `sustained`: end the phases update and update-uniform after --phase-seconds, too
    #[arg(long)]
    #[serde(default)]
    pub limit_updates: bool,
    /// Age the store after the load, before the measurement: do as many updates as there are records, this many times
    /// (zipfian, or with --distribution)
    #[arg(long, value_name = "ROUNDS", default_value_t = 0)]
    pub age: u64,
    /// Rest between the load and the workload: flush, wait until the store is idle, and open it again. Default: go on at once,
    /// on the store as the load leaves it
    #[arg(long)]
    #[serde(default)]
    pub at_rest: bool,
    /// The default, which earlier versions had to be told
    #[arg(long, hide = true, conflicts_with = "at_rest")]
    #[serde(skip)]
    pub right_away: bool,
    /// Records per scan, unless the workload defines it
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub scan_length: u64,
    /// Input file: for the workload `input` records, as written by `cleave export` or in CSV (key,value); for the workload
    /// `trace` operations in CSV (time in seconds,op,key,value_size)
    #[arg(long, value_name = "FILE")]
    pub input: Option<PathBuf>,
    /// Workload `trace`: start each operation at the time in the trace (open loop)
    #[arg(long, requires = "input", conflicts_with = "rate")]
    pub rate_from_trace: bool,
    /// Client threads
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub threads: u64,
    /// Operations per second to start, whether or not earlier ones have ended (open loop). Default: each client starts an
    /// operation when its previous one has ended
    #[arg(long, value_name = "N")]
    pub rate: Option<f64>,
    /// With --rate: start operations of a client in bursts of this size, at the same average rate
    #[arg(long, value_name = "N", default_value_t = 1, requires = "rate")]
    pub burst: u64,
    /// With --rate: start operations only in the first ON seconds of every ON + OFF seconds, at that rate. Phases begin
    /// with ON; stalls and the lowest second are those of the time that is ON
    #[arg(long, value_name = "ON,OFF", requires = "rate")]
    pub bursts: Option<Bursts>,
    /// Writes per commit: a client collects this many updates and inserts and commits them together. Latency is then
    /// that of a commit; an operation is still one write
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub batch: u64,
    /// Operations per second of the background client of readwhilewriting and readwhilemerging. Default: full speed
    #[arg(long, value_name = "N")]
    pub background_rate: Option<f64>,
    /// Memory budget of the engine for write buffers and caches together
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size::parse)]
    pub memory: u64,
    /// Background threads of the engine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub background_threads: usize,
    /// What an acknowledged write survives: a process crash, or a power loss
    #[arg(long, default_value = "buffered")]
    pub durability: Durability,
    /// Compression, in engines that support it. Default: that of the engine, mostly LZ4
    #[arg(long)]
    pub compression: Option<Compression>,
    /// Options of CleaveDB only, KEY=VALUE separated by commas; an unknown KEY lists all options
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub cleave: Option<CleaveOptions>,
    /// Random seed; the same seed gives each client the same operations
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// After each run, read the whole store and verify that it contains exactly the expected records
    #[arg(long)]
    pub verify: bool,
    /// After each run with writes, kill the store while it writes more, and measure how long it takes to open
    #[arg(long)]
    pub recover: bool,
    /// Bytes of a field, the part of a value that a merge or an rmw changes. Default: a tenth of the value, or all of it if it
    /// has less than 200 bytes
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub field_size: Option<u64>,
}

impl Shape {
    /// The defaults of the command line, with `records`.
    pub fn new(records: u64) -> Shape {
        Shape {
            records,
            operations: None,
            key_size: Lengths::Fixed(24),
            value_size: Lengths::Fixed(1000),
            compressibility: 0.0,
            distribution: None,
            key_order: None,
            phases: None,
            rounds: None,
            phase_seconds: None,
            limit_updates: false,
            age: 0,
            at_rest: false,
            right_away: false,
            scan_length: 10,
            input: None,
            rate_from_trace: false,
            threads: 1,
            rate: None,
            burst: 1,
            bursts: None,
            batch: 1,
            background_rate: None,
            memory: 256 << 20,
            background_threads: 2,
            durability: Durability::Buffered,
            compression: None,
            cleave: None,
            seed: 1,
            verify: false,
            recover: false,
            field_size: None,
        }
    }

    /// Checks the options.
    ///
    /// # Errors
    /// The first invalid option.
    pub fn check(&self) -> Result<()> {
        let positive = |rate: Option<f64>| rate.is_none_or(|rate| rate.is_finite() && rate > 0.0);
        let rules = [
            (self.records > 0, "--records must be 1 or more"),
            (self.operations != Some(0), "--operations must be 1 or more"),
            (self.key_size.shortest() >= KEY_BYTES_SHORTEST, "--key-size must be 4 or more"),
            (self.key_size.longest() <= 65_535, "--key-size must be 65535 or less"),
            (self.value_size.shortest() > 0, "--value-size must be 1 or more"),
            (self.value_size.longest() < 1 << 30, "--value-size must be less than 1 GiB"),
            (
                self.field_size.is_none_or(|bytes| (1..1 << 30).contains(&bytes)),
                "--field-size must be from 1 byte to 1 GiB",
            ),
            ((0.0..=1.0).contains(&self.compressibility), "--compressibility must be from 0 to 1"),
            (self.threads > 0, "--threads must be 1 or more"),
            (self.threads <= self.records, "--threads must not be more than --records"),
            (self.background_threads > 0, "--background-threads must be 1 or more"),
            (self.burst > 0, "--burst must be 1 or more"),
            ((1..=BATCH_MAX).contains(&self.batch), "--batch must be 1 to 1000000"),
            (positive(self.rate), "--rate must be more than 0"),
            (positive(self.background_rate), "--background-rate must be more than 0"),
            (positive(self.phase_seconds), "--phase-seconds must be more than 0"),
            (self.phase_seconds.is_none_or(|seconds| seconds <= 1e6), "--phase-seconds must be 1000000 or less"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, sentence)) => Err(Failure::new(*sentence)),
            None => Ok(()),
        }
    }
}

/// The task of a child process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Load, run the clients, and measure.
    Run,
    /// Open the store of a killed child, which must contain the given number of records of each of its writers.
    Recover(Vec<u64>),
}

/// One run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The task.
    pub task: Task,
    /// The engine's name.
    pub engine: String,
    /// The name of the workload, or `sustained`.
    pub workload: String,
    /// Empty directories for the store.
    pub dirs: Dirs,
    /// The user's options for directories and devices.
    pub places: Places,
    /// The directory of the memory cgroup of the run.
    pub cgroup: Option<PathBuf>,
    /// Its limit.
    pub cgroup_memory: Option<u64>,
    /// All other options.
    pub shape: Shape,
}

impl Plan {
    /// What the run does.
    ///
    /// # Errors
    /// As [`Schedule::of`].
    pub fn schedule(&self) -> Result<Schedule> {
        Schedule::of(&self.workload, &self.shape)
    }

    /// Whether to kill the store after a run in which clients wrote `user_bytes`.
    pub fn is_to_be_killed(&self, user_bytes: u64) -> bool {
        self.shape.recover && user_bytes > 0
    }

    /// The settings to open the store with.
    ///
    /// # Errors
    /// If this machine cannot address that much memory.
    pub fn settings(&self) -> Result<Settings> {
        let shape = &self.shape;
        Ok(Settings {
            dirs: self.dirs.clone(),
            direct: self.places.direct,
            compression: shape.compression,
            cleave: shape.cleave.clone(),
            memory: usize::try_from(shape.memory).map_err(Failure::because("--memory"))?,
            background_threads: shape.background_threads,
            durability: shape.durability,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use serde_json::json;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn a_new_shape_has_the_defaults_of_the_command_line() {
        let Command::Run(run) = Args::parse_from(["cleave-bench", "run", "--workload", "fillseq"]).command else {
            panic!("the command is `run`")
        };
        assert_eq!(json!(run.shape), json!(Shape::new(1_000_000)));
    }
}
