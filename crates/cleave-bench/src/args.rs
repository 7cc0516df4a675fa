//! The commands and flags of `cleave-bench`: the one definition behind parser and help.

use std::path::PathBuf;

use clap::{Args as ClapArgs, Parser, Subcommand};

use crate::plan::{Places, Shape};

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
    /// Make one page of HTML out of results: charts, settings, how to reproduce
    Report(Report),
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
    #[arg(long, value_name = "N", default_value_t = 1)]
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
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub repeat: u64,
    /// Write all results, one object for each engine and workload
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// `cleave-bench report`.
#[derive(Debug, ClapArgs)]
pub struct Report {
    /// Files that `run --json` or `compare --json` wrote
    #[arg(value_name = "JSON", required = true)]
    pub results: Vec<PathBuf>,
    /// The page
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
}
