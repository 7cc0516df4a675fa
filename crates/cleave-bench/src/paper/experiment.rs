//! The definition of a paper and its experiments as data: a claim, the run that tests it, what it is compared with, and the
//! figure that it is about. Each paper's file fills these in.

use crate::distribution::Distribution;
use crate::engine::{NO_SLOWDOWN, ValueGroup};
use crate::pace::Bursts;
use crate::result::Outcome;
use crate::series::Spread;
use crate::size::Lengths;
use crate::usage::{DeviceUse, busy_band, busy_percent};

/// One paper.
pub struct Paper {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its title and publication.
    pub title: &'static str,
    /// Bytes of keys and values at scale 1.
    pub data: u64,
    /// Bytes of a key.
    pub key_size: usize,
    /// Bytes of data for each byte of memory, as in the paper.
    pub data_per_memory: u64,
    /// On two tiers, the percentage of the data that the fast one may hold.
    pub fast_percent: Option<u64>,
    /// The longest phase at scale 1, in seconds; at other scales in proportion, but at least one. None: no limit.
    pub seconds: Option<f64>,
    /// The engines to run, if not all of the build.
    pub engines: Option<&'static [&'static str]>,
    /// Its experiments.
    pub experiments: &'static [Experiment],
}

/// One claim of a paper.
pub struct Experiment {
    /// Its name in the table.
    pub name: &'static str,
    /// The claim in words.
    pub claim: &'static str,
    /// The claimed ratio of figures, lowest and highest. None if the paper gives no number.
    pub claimed: Option<(f64, f64)>,
    /// How it is measured here.
    pub how: How,
}

/// How a claim is measured.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::large_enum_variant, reason = "constants, of which a paper has fewer than a hundred")]
pub enum How {
    /// By this figure of this run, divided by the other's.
    Measured(Spec, Metric, Over),
    /// Not measurable: it needs this, which does not exist.
    Waits(&'static str),
}

/// What CleaveDB's figure is compared with.
#[derive(Debug, Clone, Copy)]
pub enum Over {
    /// RocksDB's figure in the same run, or in the one with the defaults of CleaveDB if RocksDB did not do this one.
    RocksDb,
    /// The same of RocksDB with its slowdown off.
    RocksDbNoSlowdown,
    /// BlobDB's figure, likewise.
    BlobDb,
    /// CleaveDB's own figure in the same run with these options, and the paper's memory.
    Ours(Option<Variant>),
    /// CleaveDB's own figure in the same run with these options, in the same memory.
    OursAlike(Option<Variant>),
    /// CleaveDB's own figure in this workload instead.
    OursIn(&'static str),
    /// Nothing: the claim is about the figure itself.
    Nothing,
}

impl Over {
    /// The other engine, if it is one.
    pub fn rival(self) -> Option<&'static str> {
        match self {
            Over::RocksDb => Some("rocksdb"),
            Over::RocksDbNoSlowdown => Some(NO_SLOWDOWN),
            Over::BlobDb => Some("blobdb"),
            Over::Ours(_) | Over::OursAlike(_) | Over::OursIn(_) | Over::Nothing => None,
        }
    }
}

/// A named set of CleaveDB's options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Variant {
    /// Its name in figures.
    pub name: &'static str,
    /// The options, as `--cleave` takes them.
    pub options: &'static str,
    /// Whether only CleaveDB runs with it, without the other engines.
    pub alone: bool,
    /// Whether all of the store is in the slow directory, in a paper on two tiers.
    pub slow_only: bool,
}

impl Variant {
    /// CleaveDB with `options`, called `name`, without other engines.
    pub const fn alone(name: &'static str, options: &'static str) -> Variant {
        Variant { name, options, alone: true, slow_only: false }
    }
}

/// How large a memory control group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryLimit {
    /// The data divided by this.
    DataOver(u64),
    /// An index in memory of all keys, which takes a key and 16 B for each, and this percentage more.
    IndexAnd(u64),
}

impl MemoryLimit {
    /// Smaller groups have no room for an engine.
    const BYTES_MIN: u64 = 64 << 20;

    /// Its bytes for records with keys of `key_size` bytes.
    pub fn bytes(self, data: u64, records: u64, key_size: u64) -> u64 {
        let bytes = match self {
            MemoryLimit::DataOver(part) => data / part,
            MemoryLimit::IndexAnd(percent) => index_bytes(records, key_size) * (100 + percent) / 100,
        };
        bytes.max(MemoryLimit::BYTES_MIN)
    }

    /// The memory that CleaveDB needs if `memory`, which all engines have, is too little for its index.
    pub fn of_cleave(memory: u64, records: u64, key_size: u64) -> Option<u64> {
        // An index close to its limit, which is half of the memory, is refused new keys.
        Some(index_bytes(records, key_size) * 9 / 4).filter(|bytes| *bytes > memory)
    }
}

fn index_bytes(records: u64, key_size: u64) -> u64 {
    records * (key_size + 16)
}

/// A run, without the sizes of the paper.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spec {
    /// CleaveDB's options, if not the defaults.
    pub variant: Option<Variant>,
    /// The workload's name.
    pub workload: &'static str,
    /// The distribution of operations, if not that of the workload.
    pub distribution: Option<Distribution>,
    /// Bytes of a value; the number of records keeps the total size of the data.
    pub value_size: Lengths,
    /// Rounds of updates between the load and the measurement.
    pub age: u64,
    /// Multiple of the paper's memory.
    pub memory: u64,
    /// Records per operation. None: the default of the workload.
    pub records_per_operation: Option<u64>,
    /// Operations per record, if `records_per_operation` is none. None: the default of the workload.
    pub operations_per_record: Option<u64>,
    /// Bytes of a field. None: the default of values of this size.
    pub field_size: Option<u64>,
    /// Bytes that a scan reads, in records of the mean size. None: a hundred records.
    pub scan_bytes: Option<u64>,
    /// Client threads.
    pub threads: u64,
    /// Threads for background work.
    pub background_threads: usize,
    /// Writes of a commit.
    pub batch: u64,
    /// Only this part of the paper's records.
    pub fewer: u64,
    /// Multiple of the paper's data, in the same memory.
    pub larger: u64,
    /// Bytes of data for each byte of memory, if not those of the paper.
    pub data_per_memory: Option<u64>,
    /// The memory control group that the run is in, if the machine can have one. Engines then get half of it as their memory; an
    /// index may take half of what CleaveDB is given, which is more if needed, although the group does not have as much.
    pub cgroup: Option<MemoryLimit>,
    /// Whether the store is killed and reopened afterwards.
    pub recover: bool,
    /// Operations are started in an open loop, at this percentage of what RocksDB completes in a closed one. None: each client
    /// starts an operation when its previous one has ended.
    pub open_percent: Option<u32>,
    /// With `open_percent`: when operations are due. None: always.
    pub bursts: Option<Bursts>,
    /// Whether the store is at rest before the measurement: flushed, settled and opened again after the load. Otherwise the
    /// measurement begins with the background work that the load left: figures are those of sustained work.
    pub at_rest: bool,
}

impl Spec {
    /// A run of `workload` with values of `value_size` bytes, and defaults otherwise.
    pub const fn of(workload: &'static str, value_size: usize) -> Spec {
        Spec {
            variant: None,
            workload,
            distribution: None,
            value_size: Lengths::Fixed(value_size),
            age: 0,
            memory: 1,
            records_per_operation: None,
            operations_per_record: None,
            field_size: None,
            scan_bytes: None,
            threads: 1,
            background_threads: 4,
            batch: 1,
            fewer: 1,
            larger: 1,
            data_per_memory: None,
            cgroup: None,
            recover: false,
            open_percent: None,
            bursts: None,
            at_rest: false,
        }
    }

    /// The other run that this one is compared with, if any.
    pub fn other(self, over: Over) -> Option<Spec> {
        match over {
            Over::RocksDb | Over::RocksDbNoSlowdown | Over::BlobDb => {
                let alone = self.variant.filter(|variant| variant.alone);
                alone.map(|_| Spec { variant: None, memory: 1, ..self })
            }
            Over::Nothing => None,
            Over::Ours(variant) => Some(Spec { variant, memory: 1, ..self }),
            Over::OursAlike(variant) => Some(Spec { variant, ..self }),
            Over::OursIn(workload) => Some(Spec { workload, ..self }),
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
    /// The mean of this kind of operation.
    MeanOf(&'static str),
    /// The 90th percentile of all operations.
    P90,
    /// The 99th percentile of all operations.
    P99,
    /// The median of this kind of operation.
    P50Of(&'static str),
    /// The 99th percentile of this kind of operation.
    P99Of(&'static str),
    /// Operations in the slowest complete second.
    LowestSecond,
    /// The same, divided by the mean of all seconds.
    LowestOverMean,
    /// Complete seconds with less than a tenth of the mean throughput.
    StallSeconds,
    /// Milliseconds of the slowest operation.
    LongestWait,
    /// Cores used, the mean over seconds.
    Cpu,
    /// Cores used, from the tenth to the ninetieth percentile of seconds.
    CpuBand,
    /// Bytes that clients wrote in a second, in MB, for each percent of a processor (KVAccel, section VI).
    Efficiency,
    /// The fraction of time in which the device was busy, the mean over seconds.
    Disk,
    /// The fraction of time in which the device of this directory was busy, the mean over seconds.
    Device(&'static str),
    /// The same, from the 5th to the 95th percentile of seconds.
    DeviceBand(&'static str),
    /// Per second the larger of the share of all processors and the fraction in which a device was busy; the mean.
    Busier,
    /// The same, from the 5th to the 95th percentile of seconds.
    BusierBand,
    /// The most bytes in the fast directory, in percent of the live bytes at the end.
    FastShare,
    /// The most bytes in this directory.
    SpacePeakOf(&'static str),
    /// Bytes that the slow device wrote for each byte that clients wrote.
    SlowAmplification,
    /// Seconds in which writers waited for background work, in percent of those with load.
    Waiting,
    /// The unused part of the slow device's capacity in seconds in which writers waited, in percent.
    UnusedWhileWaiting,
    /// The seconds in which writers waited and over half of that capacity was unused, in percent of those in which they waited.
    HalfUnusedWhileWaiting,
    /// Bytes over the host's link to the key-value device, both directions, for each byte that clients wrote.
    LinkAmplification,
    /// IMTN: the most runs of a merge.
    MergeRuns,
    /// DFTS: the most bytes of a flush divided by those at the start.
    FlushGrowth,
    /// How often the scheduler changed a setting.
    SettingChanges,
    /// Peak resident memory.
    Memory,
    /// Memory of what is not flushed yet: index tables and runs, or memtables.
    UnflushedMemory,
    /// Memory of caches.
    CacheMemory,
    /// Bytes written to the device.
    Written,
    /// Bytes written to the device for each byte that clients wrote.
    Amplification,
    /// The same without the files in which CleaveDB saves the index of a hash keyspace.
    AmplificationApart,
    /// Bytes written to the device, per operation.
    WrittenPerOperation,
    /// Bytes read from and written to the device, per operation.
    TrafficPerOperation,
    /// Disk space at the end.
    Space,
    /// Seconds to open after a kill during writes.
    Recovery,
    /// The largest deviation of a value group's live bytes from the mean of all groups, in percent of the mean.
    Balance,
    /// Bytes of separated values, live or not, in percent of the space of their files.
    SpaceInUse,
}

impl Metric {
    /// This figure of `outcome`; none if the run was too short for it.
    pub fn of(self, outcome: &Outcome) -> Option<f64> {
        let seconds = || Spread::of(&outcome.cpu_per_second);
        let mebibytes = |bytes: u64| Some(bytes as f64 / f64::from(1 << 20));
        match self {
            Metric::Throughput => Some(outcome.ops_per_s),
            Metric::Mean => outcome.latency_us.as_ref().map(|latency| latency.mean),
            Metric::MeanOf(name) => outcome.latency_by_op.get(name).map(|latency| latency.mean),
            Metric::P90 => outcome.latency_us.as_ref().map(|latency| latency.p90),
            Metric::P99 => outcome.latency_us.as_ref().map(|latency| latency.p99),
            Metric::P50Of(name) => outcome.latency_by_op.get(name).map(|latency| latency.p50),
            Metric::P99Of(name) => outcome.latency_by_op.get(name).map(|latency| latency.p99),
            Metric::LowestSecond => (outcome.per_second.len() > 1).then_some(outcome.lowest_second as f64),
            Metric::LowestOverMean => outcome.lowest_over_mean().map(|part| part * 100.0),
            Metric::StallSeconds => (outcome.per_second.len() > 1).then_some(outcome.stall_seconds as f64),
            Metric::LongestWait => Some(outcome.longest_wait_s() * 1e3),
            Metric::Cpu => seconds().map(|spread| spread.mean),
            Metric::CpuBand => seconds().map(|spread| spread.p90 - spread.p10),
            Metric::Efficiency => {
                // Bytes a microsecond are MB a second; the rate is on both sides of the quotient.
                let (bytes, us) = (outcome.user_bytes_written as f64, outcome.cpu_us_per_operation());
                (us > 0.0).then(|| bytes / outcome.operations.max(1) as f64 / us / 100.0)
            }
            Metric::Disk => outcome.disk_utilisation.map(|spread| spread.mean * 100.0),
            Metric::Device(directory) => busy_percent(&outcome.devices, directory),
            Metric::DeviceBand(directory) => busy_band(&outcome.devices, directory),
            Metric::SpacePeakOf(name) => {
                let directory = outcome.directories.iter().find(|one| one.directory == name)?;
                mebibytes(directory.bytes_peak)
            }
            Metric::SlowAmplification => outcome.slow_bytes_per_user_byte(),
            Metric::Waiting => outcome.waiting.as_ref()?.waiting_share.map(|share| share * 100.0),
            Metric::UnusedWhileWaiting => outcome.waiting.as_ref()?.used.map(|used| (1.0 - used) * 100.0),
            Metric::HalfUnusedWhileWaiting => outcome.waiting.as_ref()?.under_half.map(|share| share * 100.0),
            Metric::LinkAmplification => outcome.host_link?.per_user_byte(),
            Metric::Busier => outcome.busier.map(|band| band.mean * 100.0),
            Metric::BusierBand => outcome.busier.map(|band| band.width() * 100.0),
            Metric::FastShare => {
                let live = Some(outcome.live_bytes).filter(|bytes| *bytes > 0)?;
                Some(outcome.fast_peak_bytes? as f64 * 100.0 / live as f64)
            }
            Metric::MergeRuns => Some(outcome.tuning.as_ref()?.max.merge_runs as f64),
            Metric::FlushGrowth => {
                let tuning = outcome.tuning.as_ref().filter(|tuning| tuning.first.flush_bytes > 0)?;
                Some(tuning.max.flush_bytes as f64 / tuning.first.flush_bytes as f64)
            }
            Metric::SettingChanges => Some(outcome.tuning.as_ref()?.changes.len() as f64),
            Metric::Recovery => outcome.recover_s,
            Metric::Memory => mebibytes(outcome.rss_peak_bytes),
            Metric::UnflushedMemory => mebibytes(outcome.memory_peak?.unflushed_bytes),
            Metric::CacheMemory => mebibytes(outcome.memory_peak?.cache_bytes),
            Metric::Written => mebibytes(outcome.device_bytes_written),
            Metric::Amplification => outcome.write_amplification,
            Metric::AmplificationApart => {
                let bytes = outcome.device_bytes_written.saturating_sub(outcome.index_bytes_saved);
                (outcome.user_bytes_written > 0).then(|| bytes as f64 / outcome.user_bytes_written as f64)
            }
            Metric::WrittenPerOperation => {
                (outcome.operations > 0).then(|| outcome.device_bytes_written as f64 / outcome.operations as f64)
            }
            Metric::TrafficPerOperation => {
                let bytes = outcome.device_bytes_written + outcome.device_bytes_read;
                (outcome.operations > 0).then(|| bytes as f64 / outcome.operations as f64)
            }
            Metric::Space => mebibytes(outcome.space_bytes),
            Metric::Balance => balance(&outcome.value_space.as_ref()?.groups),
            Metric::SpaceInUse => {
                let space = outcome.value_space.as_ref().filter(|space| space.space_bytes > 0)?;
                let bytes: u64 = space.groups.iter().map(|group| group.bytes).sum();
                Some(bytes as f64 * 100.0 / space.space_bytes as f64)
            }
        }
    }

    /// Why `outcome` cannot have this figure even if it is a long run.
    pub fn missing_in(self, outcome: &Outcome) -> Option<&'static str> {
        let is_shared = |directory: &str| {
            let is_it = |device: &DeviceUse| device.has(directory) && !device.carries.is_empty();
            outcome.devices.iter().any(is_it)
        };
        match self {
            Metric::Device(directory) | Metric::DeviceBand(directory) if is_shared(directory) => {
                Some("needs tiers on two devices")
            }
            Metric::SlowAmplification if !outcome.devices.iter().any(|device| device.directories == "slow") => {
                Some("needs the slow tier on a device of its own")
            }
            Metric::Waiting | Metric::UnusedWhileWaiting | Metric::HalfUnusedWhileWaiting
                if outcome.devices.is_empty() =>
            {
                Some("needs a device whose counters the kernel has")
            }
            Metric::UnusedWhileWaiting | Metric::HalfUnusedWhileWaiting
                if outcome.waiting.as_ref().is_some_and(|waiting| waiting.waiting_seconds == 0) =>
            {
                Some("needs a slower device: writers did not wait in one of the runs")
            }
            _ => None,
        }
    }

    /// Its unit.
    pub fn unit(self) -> &'static str {
        match self {
            Metric::Throughput | Metric::LowestSecond => "ops/s",
            Metric::Mean | Metric::P90 | Metric::P99 => "us",
            Metric::MeanOf(_) | Metric::P50Of(_) | Metric::P99Of(_) => "us",
            Metric::Cpu | Metric::CpuBand => "cores",
            Metric::Efficiency => "MB/s per CPU %",
            Metric::Waiting => "% of the seconds",
            Metric::UnusedWhileWaiting => "% unused",
            Metric::HalfUnusedWhileWaiting => "% of the waiting seconds",
            Metric::LinkAmplification => "B/B",
            Metric::Disk | Metric::Device(_) | Metric::DeviceBand(_) | Metric::Busier | Metric::BusierBand => "%",
            Metric::LowestOverMean => "% of the mean",
            Metric::StallSeconds => "s",
            Metric::LongestWait => "ms",
            Metric::FastShare => "% of the data",
            Metric::MergeRuns => "runs",
            Metric::FlushGrowth => "times the first",
            Metric::SettingChanges => "changes",
            Metric::Balance | Metric::SpaceInUse => "%",
            Metric::Memory | Metric::UnflushedMemory | Metric::CacheMemory => "MiB",
            Metric::Written | Metric::Space | Metric::SpacePeakOf(_) => "MiB",
            Metric::Amplification | Metric::AmplificationApart | Metric::SlowAmplification => "B/B",
            Metric::WrittenPerOperation | Metric::TrafficPerOperation => "B/operation",
            Metric::Recovery => "s",
        }
    }

    /// Whether a lower figure is better. The papers claim higher utilisation of CPU and device.
    pub fn less_is_better(self) -> bool {
        !matches!(
            self,
            Metric::Throughput
                | Metric::LowestSecond
                | Metric::LowestOverMean
                | Metric::Cpu
                | Metric::Efficiency
                | Metric::Disk
                | Metric::Device(_)
                | Metric::Busier
                | Metric::SpaceInUse
        )
    }
}

/// The largest deviation of a group from the mean, in percent; none for fewer than two groups.
fn balance(groups: &[ValueGroup]) -> Option<f64> {
    let mean = groups.iter().map(|group| group.bytes_live as f64).sum::<f64>() / groups.len() as f64;
    let furthest = groups.iter().map(|group| (group.bytes_live as f64 - mean).abs()).fold(0.0, f64::max);
    (groups.len() > 1 && mean > 0.0).then(|| furthest * 100.0 / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_memory_group_is_a_part_of_the_data_or_the_index_and_some_more() {
        const MIB: u64 = 1 << 20;
        let (fifth, index) = (MemoryLimit::DataOver(5), MemoryLimit::IndexAnd(25));
        assert_eq!(fifth.bytes(1000 * MIB, 500_000, 16), 200 * MIB);
        assert_eq!(index.bytes(1000 * MIB, 4 * MIB, 16), 160 * MIB);
        // An index of 128 MiB may take half of the memory.
        assert_eq!(MemoryLimit::of_cleave(80 * MIB, 4 * MIB, 16), Some(288 * MIB));
        assert_eq!(MemoryLimit::of_cleave(288 * MIB, 4 * MIB, 16), None);
        assert_eq!((fifth.bytes(MIB, 500, 16), index.bytes(MIB, 500, 16)), (64 * MIB, 64 * MIB));
    }

    #[test]
    fn the_balance_of_groups_is_that_of_the_worst_one() {
        let group = |bytes_live| ValueGroup { bytes: 1000, bytes_live };
        assert_eq!(balance(&[group(90), group(100), group(125), group(85)]), Some(25.0));
        assert_eq!(balance(&[group(100)]), None);
        assert_eq!(balance(&[group(0), group(0)]), None);
    }
}
