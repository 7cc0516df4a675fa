//! What an experiment is: a claim, the run that tests it, and the figure of the run that it is about.

use crate::distribution::Distribution;
use crate::result::Outcome;

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
    /// Resident memory at its peak.
    Memory,
}

impl Metric {
    /// This figure of `outcome`; none if the run was too short for it.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = || range(&outcome.cpu_per_second);
        match self {
            Metric::Throughput => Some(outcome.ops_per_s),
            Metric::Mean => Some(outcome.latency_us.mean),
            Metric::P90 => Some(outcome.latency_us.p90),
            Metric::P99 => Some(outcome.latency_us.p99),
            Metric::Cpu => seconds().map(|(mean, _, _)| mean),
            Metric::CpuBand => seconds().map(|(_, low, high)| high - low),
            Metric::Memory => Some(outcome.rss_peak_bytes as f64 / f64::from(1 << 20)),
        }
    }

    /// What one of it is.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput => "ops/s",
            Metric::Mean | Metric::P90 | Metric::P99 => "us",
            Metric::Cpu | Metric::CpuBand => "cores",
            Metric::Memory => "MiB",
        }
    }

    /// Whether less of it is better. Papers want more of the CPU to be used.
    pub fn less_is_better(self) -> bool {
        !matches!(self, Metric::Throughput | Metric::Cpu)
    }
}

/// The mean of whole seconds, and their tenth and ninetieth percentiles; none if there are fewer than two.
pub fn range(per_second: &[f64]) -> Option<(f64, f64, f64)> {
    let (_, whole) = per_second.split_last().filter(|(_, whole)| whole.len() > 1)?;
    let mut sorted = whole.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |part: f64| sorted[((sorted.len() - 1) as f64 * part).round() as usize];
    Some((sorted.iter().sum::<f64>() / sorted.len() as f64, at(0.1), at(0.9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_of_whole_seconds() {
        let seconds: Vec<f64> = (0..=10).map(f64::from).chain([900.0]).collect();
        assert_eq!(range(&seconds), Some((5.0, 1.0, 9.0)));
        assert_eq!(range(&[1.0, 2.0]), None);
        assert_eq!(range(&[]), None);
    }
}
