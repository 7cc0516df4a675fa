//! What an experiment is: a claim, the run that tests it, what it is compared with, and the figure that it is about.

use crate::distribution::Distribution;
use crate::engine::ValueGroup;
use crate::result::Outcome;
use crate::series::Spread;
use crate::size::Lengths;

/// One claim of a paper.
pub struct Experiment {
    /// What was measured.
    pub name: &'static str,
    /// What the paper says, in words.
    pub claim: &'static str,
    /// The paper's figure over that of what it compares with: the least and the most of what it gives. None if it gives
    /// no number.
    pub claimed: Option<(f64, f64)>,
    /// How it is measured here.
    pub how: How,
}

/// How a claim is measured.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// By this figure of this run, ours over the other's.
    Measured(Spec, Metric, Over),
    /// Not yet: it needs this.
    Waits(&'static str),
}

/// What our figure is compared with.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// RocksDB's in the same run.
    RocksDb,
    /// Our own in the same run with these options, and the paper's memory.
    Ours(Option<Variant>),
    /// Nothing: the claim is about the figure itself.
    Nothing,
}

/// CleaveDB with options of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// What its figures are called.
    pub name: &'static str,
    /// The options, as `--cleave` takes them.
    pub options: &'static str,
    /// Whether other engines have nothing to do with it.
    pub alone: bool,
}

/// A run, apart from the paper's own sizes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    /// CleaveDB's options, if not those that it has by itself.
    pub variant: Option<Variant>,
    /// The workload's name.
    pub workload: &'static str,
    /// Where operations fall, if not where the workload says.
    pub distribution: Option<Distribution>,
    /// Bytes of a value; there are as many records as make the same data.
    pub value_size: Lengths,
    /// Rounds of updates between the load and what is measured.
    pub age: u64,
    /// How many times the paper's part of memory.
    pub memory: u64,
    /// One operation for so many records. None: what the workload says.
    pub records_per_operation: Option<u64>,
    /// Bytes that a scan reads, in records of the mean size. None: a hundred records.
    pub scan_bytes: Option<u64>,
    /// Whether the store is killed after it, and opened again.
    pub recover: bool,
}

impl Spec {
    /// A run of `workload` with values of `value_size` bytes, and nothing special.
    pub const fn of(workload: &'static str, value_size: usize) -> Spec {
        Spec {
            variant: None,
            workload,
            distribution: None,
            value_size: Lengths::Fixed(value_size),
            age: 0,
            memory: 1,
            records_per_operation: None,
            scan_bytes: None,
            recover: false,
        }
    }

    /// The run that this one is compared with, if it is not RocksDB in this one.
    pub fn other(self, over: Over) -> Option<Spec> {
        match over {
            Over::RocksDb | Over::Nothing => None,
            Over::Ours(variant) => Some(Spec { variant, memory: 1, ..self }),
        }
    }
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
    /// Bytes written to the device.
    Written,
    /// Bytes on storage at the end.
    Space,
    /// Seconds to open after a kill in the middle of writes.
    Recovery,
    /// By how much, in hundredths of the mean, live bytes of the group of values that is furthest from the mean differ.
    Balance,
    /// Bytes of values apart, live or not, in hundredths of the space of their files.
    SpaceInUse,
}

impl Metric {
    /// This figure of `outcome`; none if the run was too short for it.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = || Spread::of(&outcome.cpu_per_second);
        let mebibytes = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
        match self {
            Metric::Throughput => Some(outcome.ops_per_s),
            Metric::Mean => Some(outcome.latency_us.mean),
            Metric::P90 => Some(outcome.latency_us.p90),
            Metric::P99 => Some(outcome.latency_us.p99),
            Metric::Cpu => seconds().map(|spread| spread.mean),
            Metric::CpuBand => seconds().map(|spread| spread.p90 - spread.p10),
            Metric::Disk => outcome.disk_utilisation.map(|spread| spread.mean * 100.0),
            Metric::Recovery => outcome.recover_s,
            Metric::Memory => mebibytes(outcome.rss_peak_bytes),
            Metric::Written => mebibytes(outcome.device_bytes_written),
            Metric::Space => mebibytes(outcome.space_bytes),
            Metric::Balance => balance(&outcome.value_space.as_ref()?.groups),
            Metric::SpaceInUse => {
                let space = outcome.value_space.as_ref().filter(|space| space.space_bytes > 0)?;
                let bytes: u64 = space.groups.iter().map(|group| group.bytes).sum();
                Some(bytes as f64 * 100.0 / space.space_bytes as f64)
            }
        }
    }

    /// What one of it is.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "ops/s",
            Metric::Mean | Metric::P90 | Metric::P99 => "us",
            Metric::Cpu | Metric::CpuBand => "cores",
            Metric::Disk | Metric::Balance | Metric::SpaceInUse => "%",
            Metric::Memory | Metric::Written | Metric::Space => "MiB",
            Metric::Recovery => "s",
        }
    }

    /// Whether less of it is better. Papers want more of CPU and device to be used.
    pub fn less_is_better(self) -> bool {
        !matches!(self, Metric::Throughput | Metric::Cpu | Metric::Disk | Metric::SpaceInUse)
    }
}

/// How far the group furthest from the mean is from it; none of less than two groups.
fn balance(groups: &[ValueGroup]) -> Option<f64> {
    let mean = groups.iter().map(|group| group.bytes_live as f64).sum::<f64>() / groups.len() as f64;
    let furthest = groups.iter().map(|group| (group.bytes_live as f64 - mean).abs()).fold(0.0, f64::max);
    (groups.len() > 1 && mean > 0.0).then(|| furthest * 100.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_balance_of_groups_is_that_of_the_worst_one() {
        let group = |bytes_live| ValueGroup { bytes: 1000, bytes_live };
        assert_eq!(balance(&[group(90), group(100), group(125), group(85)]), Some(25.0));
        assert_eq!(balance(&[group(100)]), None);
        assert_eq!(balance(&[group(0), group(0)]), None);
    }
}
