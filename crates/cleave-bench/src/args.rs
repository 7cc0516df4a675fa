//! The commands and flags of `cleave-bench`: the one definition behind parser and help.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand, value_parser};

use crate::paper::Name;
use crate::plan::{Places, Shape};
use crate::size;

/// Measures CleaveDB and, beside it, the engines that this program was built with.
#[derive(Debug, Parser)]
#[command(name = "cleave-bench", version, arg_required_else_help = true)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run workloads on engines in turn; print a table, and write JSON
    Run(Box<Run>),
    /// Run the standard set on CleaveDB and a rival; print the table, then the ratios
    Compare(Compare),
    /// Run the experiments of a paper on the engines of this build; print its claims beside what was measured
    Paper(Paper),
    /// Fill a large CleaveDB, with values of zeros that take no space, and count its files, descriptors and memory
    Bounded(Bounded),
    /// Make one page of HTML out of results: charts, claims, settings, how to reproduce
    Report(Report),
    /// Make a slow tier for hybrid runs, or take it away (needs root, loop devices and cgroup v1)
    #[command(subcommand)]
    Device(Device),
    /// List the engines of this build and the workloads
    List,
    /// The process of one run; its plan is on stdin
    #[command(hide = true)]
    Child,
}

/// `cleave-bench run`.
#[derive(Debug, ClapArgs)]
pub struct Run {
    /// Engines, with commas between; see `cleave-bench list`
    #[arg(long, value_name = "E", value_delimiter = ',', default_value = "cleave")]
    pub engine: Vec<String>,
    /// Workloads, with commas between; see `cleave-bench list`
    #[arg(long, value_name = "W", value_delimiter = ',', required = true)]
    pub workload: Vec<String>,
    /// The other options.
    #[command(flatten)]
    pub shape: Shape,
    /// Where stores lie.
    #[command(flatten)]
    pub places: Places,
    /// Run everything so many times; the run with the median throughput counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results, one object for each engine and workload
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `cleave-bench compare`.
#[derive(Debug, ClapArgs)]
pub struct Compare {
    /// A few minutes: 200,000 records of 1 KB and 32 MiB of memory, instead of 2,000,000 and 256 MiB
    #[arg(long)]
    pub quick: bool,
    /// The engine to compare with
    #[arg(long, value_name = "E", default_value = "rocksdb")]
    pub against: String,
    /// Records, instead of what is said above
    #[arg(long, value_name = "N")]
    pub records: Option<u64>,
    /// Where stores lie.
    #[command(flatten)]
    pub places: Places,
    /// Run everything so many times; the run with the median throughput counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results, one object for each engine and workload
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write the page of `report` too
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// `cleave-bench paper`.
#[derive(Debug, ClapArgs)]
pub struct Paper {
    /// The paper
    pub paper: Name,
    /// How many times the records of scale 1, which is about a quarter of an hour of a small machine
    #[arg(long, value_name = "S", default_value_t = 1.0)]
    pub scale: f64,
    /// Engines, with commas between. Default: all of this build; for hashkv cleave, rocksdb and blobdb
    #[arg(long, value_name = "E", value_delimiter = ',')]
    pub engine: Vec<String>,
    /// Where stores lie.
    #[command(flatten)]
    pub places: Places,
    /// Run everything so many times; the run with the median throughput counts
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u64).range(1..))]
    pub repeat: u64,
    /// Write all results and the claims
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `cleave-bench bounded`.
#[derive(Debug, ClapArgs)]
pub struct Bounded {
    /// Bytes of live values
    #[arg(long, value_name = "BYTES", default_value = "100G", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes of a large value; four records of 100 B go with each
    #[arg(long, value_name = "BYTES", default_value = "64K", value_parser = size::parse)]
    pub value_size: u64,
    /// Values to overwrite then, in hundredths of those that there are; values move from about 30 on
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    pub overwrites: u64,
    /// Memory of the engine
    #[arg(long, value_name = "BYTES", default_value = "256M", value_parser = size::parse)]
    pub memory: u64,
    /// Where the store is made and deleted again. Default: the system's directory for temporary files
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Write all lines
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `cleave-bench device`.
#[derive(Debug, Subcommand)]
pub enum Device {
    /// Make an image, attach it to a loop device with ext4 on it, mount it and limit it
    Up(DeviceUp),
    /// Unmount it, detach it, and remove its limits and its image
    Down {
        /// The mount point
        #[arg(long)]
        dir: PathBuf,
    },
}

/// `cleave-bench device up`. The limits hold for runs whose files lie on the device, and for direct I/O only.
#[derive(Debug, ClapArgs)]
pub struct DeviceUp {
    /// The mount point; made if it is not there
    #[arg(long)]
    pub dir: PathBuf,
    /// The file that holds everything on the device. Default: the mount point's name with .img behind
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Its size; it takes space as it is written
    #[arg(long, value_name = "N", value_parser = size::parse)]
    pub bytes: u64,
    /// Bytes read in a second. Default: no limit
    #[arg(long, value_name = "B", value_parser = size::parse)]
    pub read_bandwidth: Option<u64>,
    /// Bytes written in a second. Default: no limit
    #[arg(long, value_name = "B", value_parser = size::parse)]
    pub write_bandwidth: Option<u64>,
    /// Reads in a second. Default: no limit
    #[arg(long, value_name = "N")]
    pub read_iops: Option<u64>,
    /// Writes in a second. Default: no limit
    #[arg(long, value_name = "N")]
    pub write_iops: Option<u64>,
}

/// `cleave-bench report`.
#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Files that `run --json`, `compare --json` or `paper --json` wrote
    #[arg(value_name = "JSON", required = true)]
    pub results: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}
