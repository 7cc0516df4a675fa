//! The result of one run. The names of the fields are a stable public format: they are the names in the JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::engine::{Durability, ValueSpace};
use crate::latency::Summary;
use crate::series::Spread;

/// What one engine did with one workload.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Outcome {
    /// The engine's name.
    pub engine: String,
    /// The engine's version.
    pub version: String,
    /// The workload's name.
    pub workload: String,
    /// Records loaded, or drawn from.
    pub records: u64,
    /// Operations completed, without those of a background client.
    pub operations: u64,
    /// Bytes of a key (the mean, if the workload has its own).
    pub key_size: usize,
    /// Bytes of a value (the mean, if the workload has its own).
    pub value_size: usize,
    /// Client threads.
    pub threads: u64,
    /// `buffered` or `sync`.
    pub durability: Durability,
    /// Bytes of memory given to the engine.
    pub memory_budget: u64,
    /// Operations per second, up to the last one's end.
    pub ops_per_s: f64,
    /// The throughput of each repeat, if there were several; everything else is the median run's.
    pub ops_per_s_of_repeats: Vec<f64>,
    /// Seconds until the last operation ended.
    pub elapsed_s: f64,
    /// Seconds until the final flush and sync had ended too.
    pub elapsed_with_flush_s: f64,
    /// Seconds to open the loaded store (or to make an empty one).
    pub open_s: f64,
    /// Seconds to open the store, and to answer a first read, after its process was killed in the middle of writes; none
    /// if that was not asked for, or the workload wrote nothing.
    #[serde(default)]
    pub recover_s: Option<f64>,
    /// Latency of all operations but a background client's; in an open loop from the moment the operation was due.
    pub latency_us: Summary,
    /// Latency by kind of operation; a background client's have `-background` behind.
    pub latency_by_op: BTreeMap<String, Summary>,
    /// Operations completed in each second; the last second is usually not a whole one.
    pub per_second: Vec<u64>,
    /// Seconds of CPU (of all threads) in each second.
    pub cpu_per_second: Vec<f64>,
    /// Bytes written to the device in each second.
    pub device_bytes_written_per_second: Vec<u64>,
    /// Bytes read from the device in each second.
    pub device_bytes_read_per_second: Vec<u64>,
    /// The part of each second in which the busiest device of the run's directories was busy, whoever kept it so; empty
    /// if the device is not known.
    #[serde(default)]
    pub disk_utilisation_per_second: Vec<f64>,
    /// How that spreads over whole seconds; none if there is none.
    #[serde(default)]
    pub disk_utilisation: Option<Spread>,
    /// How the part of all processors that the process used spreads over whole seconds; none if there is none.
    #[serde(default)]
    pub cpu_utilisation: Option<Spread>,
    /// Who counted the bytes at the device: the `process`, or the `device` itself (`--own-device`).
    #[serde(default = "by_process")]
    pub counted_by: String,
    /// Whole seconds with less than a tenth of the mean throughput.
    pub stall_seconds: u64,
    /// The longest time without a completed operation, to 10 ms.
    pub longest_stall_s: f64,
    /// Operations in the slowest whole second; in a run of less than a second, all.
    pub lowest_second: u64,
    /// Seconds of CPU in user mode, with the final flush.
    pub cpu_user_s: f64,
    /// Seconds of CPU in the kernel, with the final flush.
    pub cpu_sys_s: f64,
    /// CPU seconds per million operations.
    pub cpu_s_per_million: f64,
    /// Bytes written to the device, with the final flush and sync.
    pub device_bytes_written: u64,
    /// Bytes read from the device.
    pub device_bytes_read: u64,
    /// Bytes of keys, values and operands that clients wrote.
    pub user_bytes_written: u64,
    /// Device bytes written for each user byte; none if users wrote nothing.
    pub write_amplification: Option<f64>,
    /// Bytes of the keys and values that clients read.
    #[serde(default)]
    pub user_bytes_read: u64,
    /// Device bytes read for each user byte read (what the page cache has is not read from the device); none if users
    /// read nothing.
    #[serde(default)]
    pub read_amplification: Option<f64>,
    /// Values that were read and checked.
    pub values_read: u64,
    /// Reads of records that were not there and need not be.
    pub reads_missing: u64,
    /// Bytes on storage at the end.
    pub space_bytes: u64,
    /// Bytes on storage at the end of each second.
    pub space_per_second: Vec<u64>,
    /// The most bytes on storage at the end of a second of the run.
    pub space_peak_bytes: u64,
    /// Bytes of keys and values of the records that are there at the end.
    pub live_bytes: u64,
    /// How values that lie apart from their keys fill their space, in a store that keeps them in groups.
    #[serde(default)]
    pub value_space: Option<ValueSpace>,
    /// Peak of resident memory of the process, with the load.
    pub rss_peak_bytes: u64,
    /// All options of the run and what a reader must know about the engine.
    pub settings: serde_json::Value,
}

/// Results of earlier versions do not say.
fn by_process() -> String {
    "process".to_owned()
}
