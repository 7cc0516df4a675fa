//! What an experiment is: a claim, the run that tests it, and the figure of the run that it is about.

use crate::distribution::Distribution;
use crate::result::Outcome;
use crate::series::Spread;

/// One claim of a paper.
pub struct Experiment {
    /// What was measured.
    pub name: &'static str,
    /// What the paper says, in words.
    pub claim: &'static str,
    /// The paper's figure over RocksDB's: the least and the most of what it gives. None if it gives no number.
    pub claimed: Option<(f64, f64)>,
    /// How it is measured here.
    pub how: How,
}

/// How a claim is measured.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// By this figure of this run, ours over RocksDB's.
    Measured(Spec, Metric),
    /// Not yet: it needs this.
    Waits(&'static str),
}

/// A run, apart from the paper's own sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    /// The workload's name.
    pub workload: &'static str,
    /// Where operations fall, if not where the workload says.
    pub distribution: Option<Distribution>,
    /// Bytes of a value; there are as many records as make the same data.
    pub value_size: usize,
    /// One operation for so many records. None: what the workload says.
    pub records_per_operation: Option<u64>,
    /// Whether the store is killed after it, and opened again.
    pub recover: bool,
}

/// A figure of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Operations per second.
    Throughput,
    /// Latency in microseconds, the mean of all operations.
    Mean,
    /// The 90th percentile of all operations.
    P90,
    /// The 99th percentile of all operations.
    P99,
    /// Cores used, the mean over seconds.
    Cpu,
    /// Cores used, from the tenth to the ninetieth percentile of seconds.
    CpuBand,
    /// The part of the time in which the device was busy, the mean over seconds.
    Disk,
    /// Resident memory at its peak.
    Memory,
    /// Seconds to open after a kill in the middle of writes.
    Recovery,
}

impl Metric {
    /// This figure of `outcome`; none if the run was too short for it.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = || Spread::of(&outcome.cpu_per_second);
        match self {
            Metric::Throughput => Some(outcome.ops_per_s),
            Metric::Mean => Some(outcome.latency_us.mean),
            Metric::P90 => Some(outcome.latency_us.p90),
            Metric::P99 => Some(outcome.latency_us.p99),
            Metric::Cpu => seconds().map(|spread| spread.mean),
            Metric::CpuBand => seconds().map(|spread| spread.p90 - spread.p10),
            Metric::Disk => outcome.disk_utilisation.map(|spread| spread.mean * 100.0),
            Metric::Recovery => outcome.recover_s,
            Metric::Memory => Some(outcome.rss_peak_bytes as f64 / f64::from(1 << 20)),
        }
    }

    /// What one of it is.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "ops/s",
            Metric::Mean | Metric::P90 | Metric::P99 => "us",
            Metric::Cpu | Metric::CpuBand => "cores",
            Metric::Disk => "%",
            Metric::Memory => "MiB",
            Metric::Recovery => "s",
        }
    }

    /// Whether less of it is better. Papers want more of CPU and device to be used.
    pub fn less_is_better(self) -> bool {
        !matches!(self, Metric::Throughput | Metric::Cpu | Metric::Disk)
    }
}
