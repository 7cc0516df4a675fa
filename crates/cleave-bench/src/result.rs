//! The result of one run, or of one phase of a run. The names of the fields are a stable public format, because they are the names in the JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{Durability, HostLink, Memory, ValueSpace};
use crate::jobs::JobUse;
use crate::latency::Summary;
use crate::pace::Bursts;
use crate::redirects::Redirects;
use crate::series::Spread;
use crate::tuning::Tuning;
use crate::usage::{Band, DeviceUse, DirectoryUse};
use crate::waiting::Waiting;

/// Ratios of results this close to 1 are no difference, because repeats of a run vary by as much.
pub const EVEN: f64 = 1.05;
/// The suffix of the operations of a background client.
pub const BACKGROUND: &str = "-background";

/// The result of one engine with one workload or phase.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The engine's name.
    pub engine: String,
    /// The engine's version.
    pub version: String,
    /// The workload's name, or that of the phase: `sustained/update`, and `sustained/2/update` when it is repeated.
    pub workload: String,
    /// Number of records.
    pub records: u64,
    /// Operations completed, without those of a background client.
    pub operations: u64,
    /// Mean bytes of a key.
    pub key_size: usize,
    /// Mean bytes of a value.
    pub value_size: usize,
    /// Client threads.
    pub threads: u64,
    /// `buffered` or `sync`.
    pub durability: Durability,
    /// Bytes of memory given to the engine.
    pub memory_budget: u64,
    /// Operations per second, up to the end of the last one.
    pub ops_per_s: f64,
    /// The throughput of each repeat, if there were several; all other fields are those of the median run.
    pub ops_per_s_of_repeats: Vec<f64>,
    /// Operations per second of the background client; none if there is none.
    #[serde(default)]
    pub background_ops_per_s: Option<f64>,
    /// Seconds until the last operation ended.
    pub elapsed_s: f64,
    /// Seconds until the final flush and sync ended; in a run of several phases there are none.
    pub elapsed_with_flush_s: f64,
    /// Seconds to open the loaded store, or to create an empty one.
    pub open_s: f64,
    /// Seconds to open the store and answer one read after its process was killed while it was writing; none without
    /// `--recover`, or if the workload wrote nothing.
    #[serde(default)]
    pub recover_s: Option<f64>,
    /// Latency of all operations except those of a background client; in an open loop since the operation was due. With
    /// `--batch` that of commits; none if other operations than commits are measured too.
    #[serde(default)]
    pub latency_us: Option<Summary>,
    /// Latency by kind of operation; those of a background client have the suffix `-background`.
    pub latency_by_op: BTreeMap<String, Summary>,
    /// Operations completed in each second; the last second is usually incomplete.
    pub per_second: Vec<u64>,
    /// CPU seconds of all threads in each second.
    pub cpu_per_second: Vec<f64>,
    /// Bytes written to the device in each second.
    pub device_bytes_written_per_second: Vec<u64>,
    /// Bytes read from the device in each second.
    pub device_bytes_read_per_second: Vec<u64>,
    /// The fraction of each second in which the busiest device of the run's directories was busy, whatever the process;
    /// empty if the device is unknown.
    #[serde(default)]
    pub disk_utilisation_per_second: Vec<f64>,
    /// Its spread over complete seconds; none if there are none.
    #[serde(default)]
    pub disk_utilisation: Option<Spread>,
    /// Each device below the directories; empty if one is unknown.
    #[serde(default)]
    pub devices: Vec<DeviceUse>,
    /// The busier resource of each second: the larger of the fraction of all processors that the process used and the
    /// fraction in which the busiest device was busy; empty if a device is unknown.
    #[serde(default)]
    pub busier_per_second: Vec<f64>,
    /// The same over complete seconds; none if there are none.
    #[serde(default)]
    pub busier: Option<Band>,
    /// The settings of the store's scheduler; none if it does not report them.
    #[serde(default)]
    pub tuning: Option<Tuning>,
    /// What the store's background jobs used, by kind; empty if it does not report it.
    #[serde(default)]
    pub jobs: Vec<JobUse>,
    /// How long writers waited for background work, and how much of the slow device was used meanwhile; none if the store does not
    /// report it, or the device is unknown.
    #[serde(default)]
    pub waiting: Option<Waiting>,
    /// What went over the link to a key-value device and over the slow device while writers went around background work; none if they
    /// never did.
    #[serde(default)]
    pub redirects: Option<Redirects>,
    /// What went over the host's link to a key-value device, in all phases; of the last phase alone, and none without a device.
    #[serde(default)]
    pub host_link: Option<HostLink>,
    /// The spread of the fraction of all processors that the process used, over complete seconds; none if there are none.
    #[serde(default)]
    pub cpu_utilisation: Option<Spread>,
    /// The same fraction, as a mean and a band; none if there are no complete seconds.
    #[serde(default)]
    pub cpu_utilisation_band: Option<Band>,
    /// Whose counters give the device bytes: those of the `process`, or of the `device` (`--own-device`).
    #[serde(default = "by_process")]
    pub counted_by: String,
    /// Complete seconds with less than a tenth of the mean throughput; with `--bursts` both are those of the time that is ON.
    pub stall_seconds: u64,
    /// The longest time without a completed operation, to 10 ms.
    pub longest_stall_s: f64,
    /// Operations in the slowest complete second; all operations if it took less than a second.
    pub lowest_second: u64,
    /// CPU seconds in user mode, including the final flush.
    pub cpu_user_s: f64,
    /// CPU seconds in the kernel, including the final flush.
    pub cpu_sys_s: f64,
    /// CPU seconds per million operations.
    pub cpu_s_per_million: f64,
    /// Bytes written to the device, including the final flush and sync.
    pub device_bytes_written: u64,
    /// Bytes read from the device.
    pub device_bytes_read: u64,
    /// Bytes of files in which the store saved the index of all its keys, which are among those written.
    #[serde(default)]
    pub index_bytes_saved: u64,
    /// Bytes of keys, values and operands that clients wrote.
    pub user_bytes_written: u64,
    /// Device bytes written per user byte; none if clients wrote nothing.
    pub write_amplification: Option<f64>,
    /// Bytes of the keys and values that clients read.
    #[serde(default)]
    pub user_bytes_read: u64,
    /// Device bytes read per user byte read (page cache hits are not device bytes); none if clients read nothing.
    #[serde(default)]
    pub read_amplification: Option<f64>,
    /// Values read and verified.
    pub values_read: u64,
    /// Reads of records that did not exist and need not.
    pub reads_missing: u64,
    /// Disk space at the end of the run or phase, in bytes.
    pub space_bytes: u64,
    /// Disk space at the end of each second, in bytes.
    pub space_per_second: Vec<u64>,
    /// The space in each directory.
    #[serde(default)]
    pub directories: Vec<DirectoryUse>,
    /// Maximum disk space at the end of a second of the run, in bytes.
    pub space_peak_bytes: u64,
    /// The most bytes in the directory of the fast tier; none without tiers.
    #[serde(default)]
    pub fast_peak_bytes: Option<u64>,
    /// Bytes of keys and values of the records that exist at the end.
    pub live_bytes: u64,
    /// The space of separated values at the end of the run, in a store that keeps them in groups.
    #[serde(default)]
    pub value_space: Option<ValueSpace>,
    /// Peak resident memory of the process, including a load before the run; of a phase after the first: since its start.
    pub rss_peak_bytes: u64,
    /// The most memory of the store for each purpose at the end of a second; none if it does not report it.
    #[serde(default)]
    pub memory_peak: Option<Memory>,
    /// Resident memory of the process at the end.
    #[serde(default)]
    pub rss_bytes: u64,
    /// The same at the end of each second, in bytes.
    #[serde(default)]
    pub rss_per_second: Vec<u64>,
    /// All options of the run, and notes about the engine.
    pub settings: serde_json::Value,
}

impl Outcome {
    /// The load that comes and goes, if it does.
    pub fn bursts(&self) -> Option<Bursts> {
        serde_json::from_value(self.settings["options"]["bursts"].clone()).ok().flatten()
    }

    /// Seconds of the slowest operation of a counted client, in an open loop since it was due.
    pub fn longest_wait_s(&self) -> f64 {
        let counted = self.latency_by_op.iter().filter(|(name, _)| !name.ends_with(BACKGROUND));
        counted.map(|(_, latency)| latency.max).fold(0.0, f64::max) / 1e6
    }

    /// Operations in the slowest complete second divided by the mean of the time in which the load was on; none if no second
    /// is complete.
    pub fn lowest_over_mean(&self) -> Option<f64> {
        let elapsed = Duration::try_from_secs_f64(self.elapsed_s).ok()?;
        let on = self.bursts().map_or(elapsed, |bursts| bursts.on_in(elapsed));
        let mean = self.operations as f64 / on.as_secs_f64();
        (self.per_second.len() > 1 && mean > 0.0).then(|| self.lowest_second as f64 / mean)
    }

    /// Bytes that the device of the slow tier wrote, for each byte that clients wrote; none if another tier is on that device.
    pub fn slow_bytes_per_user_byte(&self) -> Option<f64> {
        let slow = self.devices.iter().find(|device| device.directories == "slow")?;
        let written: u64 = slow.bytes_written_per_second.iter().sum();
        (self.user_bytes_written > 0).then(|| written as f64 / self.user_bytes_written as f64)
    }

    /// CPU microseconds of an operation.
    pub fn cpu_us_per_operation(&self) -> f64 {
        (self.cpu_user_s + self.cpu_sys_s) * 1e6 / self.operations as f64
    }
}

/// The value for results of earlier versions, which lack the field.
fn by_process() -> String {
    "process".to_owned()
}

#[cfg(test)]
pub mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::usage::DeviceUse;

    /// A run of ten operations in each of these seconds, and in a last one that is incomplete.
    pub fn outcome(engine: &str, workload: &str, per_second: &[u64]) -> Outcome {
        let operations: u64 = per_second.iter().sum();
        let elapsed_s = (per_second.len() - 1) as f64;
        let fields = json!({
            "engine": engine, "version": "1", "workload": workload, "records": 100, "operations": operations, "key_size": 8,
            "value_size": 8, "threads": 1, "durability": "buffered", "memory_budget": 1, "elapsed_s": elapsed_s,
            "ops_per_s": operations as f64 / elapsed_s, "ops_per_s_of_repeats": [], "elapsed_with_flush_s": elapsed_s,
            "open_s": 0.0, "latency_by_op": {}, "per_second": per_second, "cpu_per_second": [],
            "device_bytes_written_per_second": [], "device_bytes_read_per_second": [], "stall_seconds": 0,
            "longest_stall_s": 0.0, "lowest_second": per_second[..per_second.len() - 1].iter().min(), "cpu_user_s": 1.0,
            "cpu_sys_s": 0.5, "cpu_s_per_million": 1.0, "device_bytes_written": 0, "device_bytes_read": 0,
            "user_bytes_written": 1000, "write_amplification": 1.0, "values_read": 0, "reads_missing": 0, "space_bytes": 0,
            "space_per_second": [], "space_peak_bytes": 0, "live_bytes": 0, "rss_peak_bytes": 0, "settings": {},
        });
        serde_json::from_value(fields).unwrap()
    }

    #[test]
    fn the_lowest_second_is_compared_with_the_mean_of_the_time_that_is_on() {
        let mut run = outcome("cleave", "fillrandom", &[100, 50, 150, 0]);
        assert_eq!(run.lowest_over_mean(), Some(0.5));
        run.settings = json!({"options": {"bursts": "1,2"}});
        run.per_second = vec![300, 0, 0, 0];
        run.lowest_second = 300;
        assert_eq!(run.lowest_over_mean(), Some(1.0));
        assert_eq!(outcome("cleave", "fillrandom", &[7, 0]).lowest_over_mean(), Some(1.0));
        assert!(run.cpu_us_per_operation() > 4999.0);
    }

    #[test]
    fn the_longest_wait_is_that_of_counted_clients() {
        let mut run = outcome("cleave", "readwhilewriting", &[10, 0]);
        assert_eq!(run.longest_wait_s(), 0.0);
        let latency = |max: f64| {
            serde_json::from_value(
                json!({"operations": 1, "mean": 1.0, "p50": 1.0, "p90": 1.0, "p99": 1.0, "p999": 1.0,
                "p9999": 1.0, "max": max}),
            )
            .unwrap()
        };
        let of = [("read", 2e6), ("scan", 5e5), ("update-background", 9e6)];
        run.latency_by_op = BTreeMap::from(of.map(|(name, max)| (name.to_owned(), latency(max))));
        assert_eq!(run.longest_wait_s(), 2.0);
    }

    #[test]
    fn bytes_of_the_slow_device_are_known_if_no_other_tier_is_on_it() {
        let mut run = outcome("cleave", "fillrandom", &[10, 0]);
        let device = |directories: &str, written: &[u64]| DeviceUse {
            directories: directories.to_owned(),
            bytes_written_per_second: written.to_vec(),
            ..DeviceUse::default()
        };
        run.devices = vec![device("main+fast", &[7]), device("slow", &[900, 200])];
        assert_eq!(run.slow_bytes_per_user_byte(), Some(1.1));
        run.devices = vec![device("main+fast+slow", &[900])];
        assert_eq!(run.slow_bytes_per_user_byte(), None);
    }
}
