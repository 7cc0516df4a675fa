//! Latencies by kind of operation, in histograms with three significant digits. Clients record them; results summarize
//! them.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::workload::Operation;

/// Larger latencies are recorded as this.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// The latencies of one or more clients, by operation.
#[derive(Default)]
pub struct Latencies(BTreeMap<Operation, Histogram<u64>>);

/// A distribution of latencies in microseconds.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Number of operations.
    pub operations: u64,
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The 99.99th percentile.
    pub p9999: f64,
    /// The maximum.
    pub max: f64,
}

impl Latencies {
    /// Records one operation.
    pub fn record(&mut self, operation: Operation, latency: Duration) {
        let nanoseconds = latency.min(LATENCY_MAX).as_nanos() as u64;
        self.0.entry(operation).or_insert_with(histogram).saturating_record(nanoseconds.max(1));
    }

    /// Adds the latencies of another client.
    pub fn add(&mut self, other: &Latencies) {
        for (&operation, histogram_other) in &other.0 {
            let histogram = self.0.entry(operation).or_insert_with(histogram);
            histogram.add(histogram_other).expect("all histograms have the same bounds");
        }
    }

    /// The summary of all operations.
    pub fn all(&self) -> Summary {
        let mut all = histogram();
        for histogram in self.0.values() {
            all.add(histogram).expect("all histograms have the same bounds");
        }
        summary(&all)
    }

    /// The summary of each kind of operation.
    pub fn by_operation(&self, suffix: &str) -> BTreeMap<String, Summary> {
        let named = |(operation, histogram): (&Operation, &Histogram<u64>)| {
            (format!("{}{suffix}", operation.name()), summary(histogram))
        };
        self.0.iter().map(named).collect()
    }
}

fn histogram() -> Histogram<u64> {
    let max = LATENCY_MAX.as_nanos() as u64;
    Histogram::new_with_bounds(1, max, 3).expect("the bounds in this file are valid")
}

fn summary(histogram: &Histogram<u64>) -> Summary {
    let at = |quantile| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    Summary {
        operations: histogram.len(),
        mean: histogram.mean() / 1000.0,
        p50: at(0.5),
        p90: at(0.9),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: histogram.max() as f64 / 1000.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_add_up_and_percentiles_are_those_of_the_whole() {
        let (mut one, mut two) = (Latencies::default(), Latencies::default());
        (1..=500).for_each(|us| one.record(Operation::Read, Duration::from_micros(us)));
        (501..=1000).for_each(|us| two.record(Operation::Read, Duration::from_micros(us)));
        two.record(Operation::Scan, Duration::from_secs(2));
        one.add(&two);
        let all = one.all();
        assert_eq!(all.operations, 1001);
        assert!((all.p50 - 501.0).abs() < 2.0 && (all.p99 - 991.0).abs() < 2.0, "{all:?}");
        assert!((all.max / 2e6 - 1.0).abs() < 0.01);
        assert_eq!(one.by_operation("")["read"].operations, 1000);
    }
}
