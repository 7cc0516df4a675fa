//! The commands and flags of `cleave-bench`: the single definition behind the parser and the help. Each command's module
//! takes its own struct; options of a run are in `plan.rs`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum, value_parser};

use crate::cleave_options::CleaveOptions;
use crate::pace::Bursts;
use crate::peak::PeakShare;
use crate::plan::{Places, Shape};
use crate::size;

/// Benchmarks CleaveDB and the other engines of this build.
#[derive(Debug, Parser)]
#[command(name = "cleave-bench", version, arg_required_else_help = true)]
pub struct Args {
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run workloads on engines, one run at a time; print a table and write JSON
    Run(Box<Run>),
    /// Run sets of workloads on CleaveDB and one other engine; print tables and ratios
    Compare(Compare),
    /// Run sets of phases on a fast and a slow directory; print medians and ratios, those that CleaveDB loses first
    Tiers(Tiers),
    /// Run the experiments of a paper on the engines of this build; print its claims beside the measurements
    Paper(Paper),
    /// Fill a large CleaveDB with values of zeros, which take no disk space, and measure its files, descriptors and memory
    Bounded(Bounded),
    /// Write an HTML page of results: charts, claims, settings, commands to reproduce them
    Report(Report),
    /// Create or remove a slow tier for hybrid runs (needs root, loop devices and cgroup v1)
    #[command(subcommand)]
    Device(Device),
    /// List the engines of this build and the workloads
    List,
    /// The process of one run; reads its plan from stdin
    #[command(hide = true)]
    Child,
}

/// `cleave-bench run`.
#[derive(Debug, Clone, ClapArgs)]
pub struct Run {
    /// Engines, separated by commas; see `cleave-bench list`
    #[arg(long, value_name = "E", value_delimiter = ',', default_value = "cleave")]
    pub engine: Vec<String>,
    /// Workloads, separated by commas, or `sustained`; see `cleave-bench list`
    #[arg(long, value_name = "W", value_delimiter = ',', required = true)]
    pub workload: Vec<String>,
    /// The other options.
    #[command(flatten)]
    pub shape: Shape,
    /// As --rate, in percent of the operations per second of an engine in a closed loop, which is measured before each
    /// workload (not for `sustained`). A load before the workload is never in an open loop
    #[arg(long, value_name = "PERCENT%:ENGINE", conflicts_with_all = ["rate", "rate_from_trace"])]
    pub rate_of: Option<PeakShare>,
    /// Directories and devices of the stores.
    #[command(flatten)]
    pub places: Places,
    /// Number of repeats; the run with the median throughput is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results as JSON, one object per engine and workload
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also print latencies of each kind of operation, utilisation of processors and devices, space and its peak in each
    /// directory, memory, and the settings of CleaveDB's scheduler
    #[arg(long)]
    pub detail: bool,
}

/// `cleave-bench compare`.
#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// Run small sizes for about ten minutes, with 32 MiB of memory instead of 256 MiB; the full sets take hours
    #[arg(long)]
    pub quick: bool,
    /// The engine to compare with
    #[arg(long, value_name = "E", default_value = "rocksdb")]
    pub against: String,
    /// The sets of runs, separated by commas
    #[arg(
        long,
        value_name = "S",
        value_enum,
        value_delimiter = ',',
        default_value = "standard,sustained,settle,mixed,readers"
    )]
    pub sets: Vec<CompareSet>,
    /// Number of records of all sets; `sustained` then has one scale
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Directories and devices of the stores.
    #[command(flatten)]
    pub places: Places,
    /// Number of repeats; the run with the median throughput is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results as JSON, one object per engine and workload or phase
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Also write the page of `report`
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// The sets of runs of `compare`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum CompareSet {
    /// Twelve workloads, each right after its load: 2,000,000 records of 1000 B (quick: 200,000)
    Standard,
    /// The phases of `sustained`: 500,000 records without a memory cgroup, 2,000,000 and 10,000,000 in one of 1 GiB, or of
    /// --cgroup-memory (quick: 50,000; 200,000 in a cgroup only with --cgroup-memory)
    Sustained,
    /// `load,update,settle`: what is left to do after writing, with 2,000,000 records (quick: 200,000)
    Settle,
    /// `load,mixed`: 1,000,000 records of 8 B to 64 KiB (quick: 50,000)
    Mixed,
    /// `load,readwhilewriting`: 4 readers and 1,000,000 records of 400 B (quick: 200,000), with the writer at full speed,
    /// and then held to the writes per second of the other engine
    Readers,
}

/// `cleave-bench tiers`.
#[derive(Debug, ClapArgs)]
pub struct Tiers {
    /// The sets of runs, separated by commas
    #[arg(long, value_name = "S", value_enum, value_delimiter = ',', default_value = "phases")]
    pub sets: Vec<TierSet>,
    /// Run small sizes, once: 200,000 records, 32 MiB of memory, phases of at most 3 s
    #[arg(long)]
    pub quick: bool,
    /// The engines of the sets `phases`, `open` and `waiting`, separated by commas; `waiting` adds rocksdb-no-slowdown to rocksdb
    #[arg(long, value_name = "E", value_delimiter = ',', default_value = "cleave,cleave-inline,rocksdb,rocksdb-held")]
    pub engine: Vec<String>,
    /// Number of records. Default: 4,000,000 of 24 + 1000 B; for the set `settings` 1,000,000, and for `waiting` 500,000 of 4 + 4096 B
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub records: Option<u64>,
    /// The phases of the set `phases`, as in `run`
    #[arg(
        long,
        value_name = "P,..",
        default_value = "load,update,update-uniform,ycsb-a,ycsb-f,ycsb-b,ycsb-c,ycsb-d,ycsb-e,gets-uniform"
    )]
    pub phases: String,
    /// End a phase after this time, even if operations are left; the load and the updates are always complete. Default: 15; for
    /// the set `waiting` three bursts
    #[arg(long, value_name = "S")]
    pub phase_seconds: Option<f64>,
    /// The bursts of the set `waiting`, ON,OFF in seconds. Default: 20,40
    #[arg(long, value_name = "ON,OFF")]
    pub bursts: Option<Bursts>,
    /// The numbers of background threads of the set `waiting`, separated by commas
    #[arg(long, value_name = "N,..", value_delimiter = ',', default_value = "1,2,4")]
    pub background_threads: Vec<usize>,
    /// End the updates after --phase-seconds, too, and in the set `open` also the load
    #[arg(long)]
    pub limit_updates: bool,
    /// Memory budget of each engine for write buffers and caches together. Default: 256 MiB
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// Without --slow: bytes per second, in each direction, of the device that is created for the slow tier
    #[arg(long, value_name = "B", default_value = "400M", value_parser = size::parse, conflicts_with = "slow")]
    pub bandwidth: u64,
    /// Without --slow: operations per second of that device, in each direction
    #[arg(long, value_name = "N", default_value_t = 20_000, conflicts_with = "slow")]
    pub iops: u64,
    /// Directories and devices of the stores; the fast tier holds a tenth of the data unless --fast-bytes is given.
    #[command(flatten)]
    pub places: Places,
    /// Number of repeats; medians are printed. Default: 3; for the set `waiting` 1
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub repeat: Option<u64>,
    /// Write all results as JSON, one object per engine and phase or workload, with the figures of each repeat
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// The sets of runs of `tiers`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TierSet {
    /// The phases, one right after the other on one open store
    Phases,
    /// Inserts (`fillrandom`) and zipfian updates (`overwrite`) in an open loop at 70% of RocksDB's own peak
    Open,
    /// Loads and updates of CleaveDB with scheduling `auto`, with the static default, and with 16 static settings (IMTN and
    /// DFTS): on two tiers, on the slow one with values in tables, and on the slow one with values of 100 B
    Settings,
    /// Bursts of writes (`kvaccel-a`) at three times the rate that each engine sustains in a closed loop of the same length, with each
    /// number of background threads: how much of the slow device is unused while writers wait
    Waiting,
}

/// `cleave-bench paper`.
#[derive(Debug, ClapArgs)]
pub struct Paper {
    /// The paper
    pub paper: PaperName,
    /// Number of records relative to scale 1, which takes about 15 minutes on a small machine
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub scale: f64,
    /// Only the experiments whose names contain one of these texts, separated by commas. Default: all
    #[arg(long, value_name = "TEXT,..", value_delimiter = ',')]
    pub experiments: Vec<String>,
    /// Engines, separated by commas. Default: all of this build; for hashkv and kdsep: cleave, rocksdb and blobdb
    #[arg(long, value_name = "E", value_delimiter = ',')]
    pub engine: Vec<String>,
    /// Directories and devices of the stores.
    #[command(flatten)]
    pub places: Places,
    /// Number of repeats; the run with the median throughput is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results and the claims as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Memory budget of each engine, for write buffers and caches together. Default: in proportion to the data, as in the paper
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub memory: Option<u64>,
    /// Bytes of a field in experiments that do not choose it, as in `run`
    #[arg(long, value_name = "BYTES", value_parser = size::parse)]
    pub field_size: Option<u64>,
    /// Options of CleaveDB in all its runs, as in `run`; those of an experiment take precedence
    #[arg(long, value_name = "KEY=VALUE,..")]
    pub cleave: Option<CleaveOptions>,
}

/// The papers, in the order of the help.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PaperName {
    /// Operation decoupling on fast and slow storage: on --fast and --slow, or on new directories below --dir, the slow one
    /// on a throttled device if possible (root, loop devices, cgroup v1)
    Decoukv,
    /// Delta buckets for read-modify-write
    Kdsep,
    /// Hash-grouped values with lookup-free garbage collection
    Hashkv,
    /// In-memory hashing, write amplification near 1
    Rexio,
    /// Redirection of writes during stalls
    Kvaccel,
}

/// `cleave-bench bounded`.
#[derive(Debug, ClapArgs)]
pub struct Bounded {
    /// Bytes of live values
    #[arg(long, value_name = "BYTES", default_value = "100G", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes of a large value; each is accompanied by four records of 100 B
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = size::parse)]
    pub value_size: u64,
    /// Values to overwrite after the load, in percent of all; value GC starts at about 30
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub overwrites: u64,
    /// Memory budget of the engine
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size::parse)]
    pub memory: u64,
    /// Directory in which the store is created and removed. Default: the system's temporary directory
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Write all rows as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `cleave-bench device`.
#[derive(Debug, Subcommand)]
pub enum Device {
    /// Create an image with ext4, attach it to a loop device, mount it and limit its throughput
    Up(DeviceUp),
    /// Unmount and detach it, and remove its limits and its image
    Down {
        /// The mount point
        #[arg(long)]
        dir: PathBuf,
    },
}

/// `cleave-bench device up`. The limits apply to runs whose files are on the device, and to direct I/O only.
#[derive(Debug, ClapArgs)]
pub struct DeviceUp {
    /// The mount point; created if missing
    #[arg(long)]
    pub dir: PathBuf,
    /// The image file. Default: the path of the mount point with .img appended
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Size of the device; the image takes space only as it is written
    #[arg(long, value_name = "N", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes read per second. Default: no limit
    #[arg(long, value_name = "B", value_parser = size::parse)]
    pub read_bandwidth: Option<u64>,
    /// Bytes written per second. Default: no limit
    #[arg(long, value_name = "B", value_parser = size::parse)]
    pub write_bandwidth: Option<u64>,
    /// Reads per second. Default: no limit
    #[arg(long, value_name = "N")]
    pub read_iops: Option<u64>,
    /// Writes per second. Default: no limit
    #[arg(long, value_name = "N")]
    pub write_iops: Option<u64>,
}

/// `cleave-bench report`.
#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Result files of `run --json`, `compare --json` or `paper --json`
    #[arg(value_name = "JSON", required = true)]
    pub results: Vec<PathBuf>,
    /// The page to write
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}
