//! DecouKV: the effect on writes, and the cost for reads, of decoupling keys from data in the front, on a fast and a slow
//! tier.
//!
//! The paper's fast tier is persistent memory, or an NVMe SSD where it says so; here it is a directory on a disk in all runs
//! (`--fast`), so that the rows with an NVMe SSD are the insert and YCSB A of the others, beside what the paper has for it.
//! Its 500 GB are five times the data of the other runs, in the same memory.
//! The ablation compares CleaveDB with itself. The paper's "decoupling only" has the averages of the automatic settings,
//! here the defaults: IMTN 2, and DFTS an eighth of the memory. ADOC is its scheduler within CleaveDB.

use super::experiment::{Experiment, How, Metric, Over, Paper, Spec, Variant};
use crate::distribution::Distribution;
use crate::pace::Bursts;
use crate::size::Lengths;

const BASE: Spec = Spec::of("", 1000);
/// The load of the database.
pub const INSERT: Spec = Spec { workload: "fillrandom", ..BASE };
const UPDATE: Spec = Spec { workload: "overwrite", distribution: Some(Distribution::Uniform), ..BASE };
/// The same in an open loop, for latencies: operations are due at 70% of what RocksDB completes at most.
const INSERT_OPEN: Spec = Spec { open_percent: Some(70), ..INSERT };
/// Half as much again as RocksDB completes at most for two seconds, and then nothing for four.
const INSERT_BURSTS: Spec = Spec { open_percent: Some(150), bursts: Some(Bursts::new(2.0, 4.0)), ..INSERT };
const UPDATE_OPEN: Spec = Spec { open_percent: Some(70), ..UPDATE };
const RECOVERY: Spec = Spec { recover: true, ..INSERT };
const READ: Spec = Spec { workload: "readrandom", records_per_operation: Some(2), ..BASE };
// A scan reads 100 records.
const SCAN: Spec = Spec { workload: "seekrandom", records_per_operation: Some(40), ..BASE };

/// Decoupling only.
const STATIC: Option<Variant> = Some(Variant::alone("static", "scheduling=static"));
/// Decoupling and scheduling; CleaveDB's default also has elastic levels.
const FIXED_LEVELS: Option<Variant> = Some(Variant::alone("fixed levels", "scheduling=auto-fixed-levels"));
const ADOC: Option<Variant> = Some(Variant::alone("ADOC", "scheduling=adoc"));
const SLOW_ONLY: Option<Variant> =
    Some(Variant { slow_only: true, ..Variant::alone("slow tier only", "scheduling=auto") });

const fn with(variant: Option<Variant>, spec: Spec) -> Spec {
    Spec { variant, ..spec }
}

const fn uniform(workload: &'static str, records_per_operation: Option<u64>) -> Spec {
    Spec { workload, distribution: Some(Distribution::Uniform), records_per_operation, ..BASE }
}

const fn zipfian(workload: &'static str, records_per_operation: Option<u64>) -> Spec {
    Spec { workload, records_per_operation, ..BASE }
}

const fn against_rocksdb(
    name: &'static str,
    claim: &'static str,
    claimed: Option<(f64, f64)>,
    spec: Spec,
    metric: Metric,
) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, Over::RocksDb) }
}

/// The throughput of `spec`, divided by CleaveDB's own with `other`.
const fn over(name: &'static str, claim: &'static str, spec: Spec, other: Option<Variant>) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Measured(spec, Metric::Throughput, Over::Ours(other)) }
}

/// The figure of `spec` itself.
const fn itself(
    name: &'static str,
    claim: &'static str,
    claimed: Option<(f64, f64)>,
    spec: Spec,
    metric: Metric,
) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, Over::Nothing) }
}

/// As many threads for background work as clients.
const fn threads(name: &'static str, threads: u64) -> Experiment {
    let claim = "gain grows with cores until I/O-bound";
    let spec = Spec { threads, background_threads: threads as usize, ..INSERT };
    against_rocksdb(name, claim, None, spec, Metric::Throughput)
}

/// Five times the data in the same memory, and as many operations as in other runs.
const fn large(name: &'static str, claim: &'static str, claimed: f64, spec: Spec) -> Experiment {
    against_rocksdb(name, claim, Some((claimed, claimed)), Spec { larger: 5, ..spec }, Metric::Throughput)
}

const fn waits(name: &'static str, claim: &'static str, what: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Waits(what) }
}

const fn load(name: &'static str, claim: &'static str, value_size: usize) -> Experiment {
    let spec = Spec { value_size: Lengths::Fixed(value_size), ..INSERT };
    against_rocksdb(name, claim, None, spec, Metric::Throughput)
}

const WRITES: Option<(f64, f64)> = Some((2.3, 4.9));
const READS_UNIFORM: Option<(f64, f64)> = Some((1.2, 2.3));
const READS_ZIPFIAN: Option<(f64, f64)> = Some((1.2, 1.9));
/// YCSB calls the distribution of D latest; the paper has it uniform and zipfian like the others.
const D_ZIPFIAN: Spec = Spec { distribution: Some(Distribution::YCSB), ..zipfian("ycsb-d", Some(2)) };
const A: Spec = uniform("ycsb-a", None);
const MIX: Spec = uniform("production", None);
const NO_NUMBER: &str = "no number in the paper";
const MATRIXKV: &str = "MatrixKV, whose code is not available to this program";
const ADOC_ITSELF: &str =
    "ADOC's RocksDB, whose code is not available to this program (its scheduler is in CleaveDB: see above)";
/// Of the systems that the paper compares itself with.
const NVME: Option<(f64, f64)> = Some((1.4, 2.4));

/// 100 GB of 1 KB in the paper, with 3 GB of memory.
pub const PAPER: Paper = Paper {
    name: "decoukv",
    title: "DecouKV (USENIX ATC'25): operation decoupling on fast and slow storage",
    data: 600 << 20,
    key_size: 24,
    data_per_memory: 33,
    fast_percent: Some(10),
    seconds: None,
    engines: None,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    against_rocksdb("insert", "4.3x the throughput of RocksDB", Some((4.3, 4.3)), INSERT, Metric::Throughput),
    against_rocksdb("update", "4.6x the throughput of RocksDB", Some((4.6, 4.6)), UPDATE, Metric::Throughput),
    against_rocksdb("read", "1.2x the throughput of RocksDB", Some((1.2, 1.2)), READ, Metric::Throughput),
    against_rocksdb("scan", "1.5x the throughput of RocksDB", Some((1.5, 1.5)), SCAN, Metric::Throughput),
    against_rocksdb("insert, mean latency", "-76.0% against RocksDB (0.24x)", Some((0.24, 0.24)), INSERT, Metric::Mean),
    against_rocksdb("update, mean latency", "-77.9% against RocksDB (0.22x)", Some((0.221, 0.221)), UPDATE, Metric::Mean),
    against_rocksdb("insert, open loop, P90", "1.58 ms against RocksDB's 9.45 (0.17x)", Some((0.167, 0.167)), INSERT_OPEN, Metric::P90),
    against_rocksdb("insert, open loop, P99", "3.23 ms against RocksDB's 37.6 (0.086x)", Some((0.086, 0.086)), INSERT_OPEN, Metric::P99),
    against_rocksdb("insert, open loop, longest wait", NO_NUMBER, None, INSERT_OPEN, Metric::LongestWait),
    against_rocksdb("update, open loop, P99", NO_NUMBER, None, UPDATE_OPEN, Metric::P99),
    against_rocksdb("update, open loop, longest wait", NO_NUMBER, None, UPDATE_OPEN, Metric::LongestWait),
    against_rocksdb("insert, closed loop, P99", NO_NUMBER, None, INSERT, Metric::P99),
    against_rocksdb("insert, P50 of a write", NO_NUMBER, None, INSERT, Metric::P50Of("update")),
    against_rocksdb("YCSB A, P99 of a read", NO_NUMBER, None, A, Metric::P99Of("read")),
    against_rocksdb("YCSB A, P99 of an update", NO_NUMBER, None, A, Metric::P99Of("update")),
    against_rocksdb("insert, lowest second", NO_NUMBER, None, INSERT, Metric::LowestSecond),
    against_rocksdb("update, lowest second", NO_NUMBER, None, UPDATE, Metric::LowestSecond),
    against_rocksdb("insert, lowest second of the mean", NO_NUMBER, None, INSERT, Metric::LowestOverMean),
    against_rocksdb("update, lowest second of the mean", NO_NUMBER, None, UPDATE, Metric::LowestOverMean),
    itself("insert, stall seconds", NO_NUMBER, None, INSERT, Metric::StallSeconds),
    itself("update, stall seconds", NO_NUMBER, None, UPDATE, Metric::StallSeconds),
    against_rocksdb("insert, longest wait", NO_NUMBER, None, INSERT, Metric::LongestWait),
    against_rocksdb("update, longest wait", NO_NUMBER, None, UPDATE, Metric::LongestWait),
    against_rocksdb("insert, CPU utilisation", "+32% against RocksDB (1.32x)", Some((1.323, 1.323)), INSERT, Metric::Cpu),
    against_rocksdb("insert, CPU band", "P10 to P90 of seconds much narrower", None, INSERT, Metric::CpuBand),
    against_rocksdb("insert, disk utilisation", "+18-32% against the others", Some((1.176, 1.316)), INSERT, Metric::Disk),
    against_rocksdb("update, disk utilisation", "+8-20% against the others", Some((1.08, 1.199)), UPDATE, Metric::Disk),
    against_rocksdb("update, CPU utilisation", "+48% against RocksDB (1.48x)", Some((1.479, 1.479)), UPDATE, Metric::Cpu),
    against_rocksdb("insert, fast device", "+18-32% for the disks", None, INSERT, Metric::Device("fast")),
    against_rocksdb("insert, slow device", "+18-32% for the disks", None, INSERT, Metric::Device("slow")),
    against_rocksdb("insert, band of the fast device", "P5 to P95 of seconds much narrower", None, INSERT, Metric::DeviceBand("fast")),
    against_rocksdb("insert, band of the slow device", "P5 to P95 of seconds much narrower", None, INSERT, Metric::DeviceBand("slow")),
    against_rocksdb("insert, written to the slow device", NO_NUMBER, None, INSERT, Metric::SlowAmplification),
    against_rocksdb("update, written to the slow device", NO_NUMBER, None, UPDATE, Metric::SlowAmplification),
    against_rocksdb("insert, busier of CPU and devices", "nearer to 100%", None, INSERT, Metric::Busier),
    against_rocksdb("insert, band of the busier", "P5 to P95 of seconds much narrower", None, INSERT, Metric::BusierBand),
    against_rocksdb("update, busier of CPU and devices", "nearer to 100%", None, UPDATE, Metric::Busier),
    against_rocksdb("update, band of the busier", "P5 to P95 of seconds much narrower", None, UPDATE, Metric::BusierBand),
    itself("insert, peak of the fast tier", "10% of the data", Some((10.0, 10.0)), INSERT, Metric::FastShare),
    itself("update, peak of the fast tier", "10% of the data", Some((10.0, 10.0)), UPDATE, Metric::FastShare),
    against_rocksdb("insert, peak of the fast directory", NO_NUMBER, None, INSERT, Metric::SpacePeakOf("fast")),
    against_rocksdb("insert, peak of the slow directory", NO_NUMBER, None, INSERT, Metric::SpacePeakOf("slow")),
    against_rocksdb("update, peak of the slow directory", NO_NUMBER, None, UPDATE, Metric::SpacePeakOf("slow")),
    against_rocksdb("YCSB load", "2.3-4.9x RocksDB", WRITES, INSERT, Metric::Throughput),
    against_rocksdb("YCSB A, uniform", "2.3-4.9x RocksDB", WRITES, A, Metric::Throughput),
    against_rocksdb("YCSB A, zipfian", "2.3-4.9x RocksDB", WRITES, zipfian("ycsb-a", None), Metric::Throughput),
    against_rocksdb("YCSB F, uniform", "2.3-4.9x RocksDB", WRITES, uniform("ycsb-f", None), Metric::Throughput),
    against_rocksdb("YCSB F, zipfian", "2.3-4.9x RocksDB", WRITES, zipfian("ycsb-f", None), Metric::Throughput),
    against_rocksdb("YCSB B, uniform", "1.2-2.3x RocksDB", READS_UNIFORM, uniform("ycsb-b", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB B, zipfian", "1.2-1.9x RocksDB", READS_ZIPFIAN, zipfian("ycsb-b", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB C, uniform", "1.2-2.3x RocksDB", READS_UNIFORM, uniform("ycsb-c", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB C, zipfian", "1.2-1.9x RocksDB", READS_ZIPFIAN, zipfian("ycsb-c", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB D, uniform", "1.2-2.3x RocksDB", READS_UNIFORM, uniform("ycsb-d", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB D, zipfian", "1.2-1.9x RocksDB", READS_ZIPFIAN, D_ZIPFIAN, Metric::Throughput),
    against_rocksdb("YCSB D, latest", NO_NUMBER, None, zipfian("ycsb-d", Some(2)), Metric::Throughput),
    against_rocksdb("YCSB E, uniform", "1.2-2.3x RocksDB", READS_UNIFORM, uniform("ycsb-e", Some(20)), Metric::Throughput),
    against_rocksdb("YCSB E, zipfian", "1.2-1.9x RocksDB", READS_ZIPFIAN, zipfian("ycsb-e", Some(20)), Metric::Throughput),
    against_rocksdb("production mix", "1.3-2.0x the others", Some((1.3, 2.0)), MIX, Metric::Throughput),
    against_rocksdb("production mix, P99 of an update", NO_NUMBER, None, MIX, Metric::P99Of("update")),
    against_rocksdb("production mix, P99 of a scan", NO_NUMBER, None, MIX, Metric::P99Of("scan")),
    load("load, values of 256 B", "less gain than at 1-4 KiB", 256),
    load("load, values of 1000 B", "most gain at 1-4 KiB", 1000),
    load("load, values of 4 KiB", "most gain at 1-4 KiB", 4096),
    load("load, values of 16 KiB", "less gain than at 1-4 KiB", 16384),
    against_rocksdb("recovery", "8.8 s for 10 GB against RocksDB's 8.1 (1.08x)", Some((1.079, 1.079)), RECOVERY, Metric::Recovery),
    against_rocksdb("memory in YCSB A", "3.0 GiB in all, slightly more than RocksDB", None, A, Metric::Memory),
    against_rocksdb("memory of the index", "0.7 GiB against 0.3 of memtables (2.3x)", Some((2.33, 2.33)), A, Metric::UnflushedMemory),
    against_rocksdb("memory of caches", "1.4 GiB against 1.56 (0.90x)", Some((0.897, 0.897)), A, Metric::CacheMemory),
    against_rocksdb("memory in loads", "3.0 GiB in all, slightly more than RocksDB", None, INSERT, Metric::Memory),
    over("two tiers against the slow one: load", NO_NUMBER, INSERT, SLOW_ONLY),
    over("two tiers against the slow one: update", NO_NUMBER, UPDATE, SLOW_ONLY),
    over("two tiers against the slow one: read", NO_NUMBER, READ, SLOW_ONLY),
    threads("load, 1 client and 1 background thread", 1),
    threads("load, 2 clients and 2 background threads", 2),
    threads("load, 4 clients and 4 background threads", 4),
    threads("load, 8 clients and 8 background threads", 8),
    large("five times the data: load", "500 GB: 5.2x the throughput of RocksDB", 5.2, INSERT),
    large("five times the data: A", "500 GB: 2.8x the throughput of RocksDB", 2.8, uniform("ycsb-a", Some(5))),
    large("five times the data: F", "500 GB: 2.4x the throughput of RocksDB", 2.4, uniform("ycsb-f", Some(5))),
    against_rocksdb("ablation, load: decoupling", "more than RocksDB", None, with(STATIC, INSERT), Metric::Throughput),
    over("ablation, load: + scheduling", "more than decoupling; the larger gain", with(FIXED_LEVELS, INSERT), STATIC),
    over("ablation, load: + elastic levels", "more than scheduling; the larger gain", INSERT, FIXED_LEVELS),
    against_rocksdb("ablation, update: decoupling", "more than RocksDB", None, with(STATIC, UPDATE), Metric::Throughput),
    over("ablation, update: + scheduling", "more than decoupling", with(FIXED_LEVELS, UPDATE), STATIC),
    over("ablation, update: + elastic levels", "more than scheduling", UPDATE, FIXED_LEVELS),
    against_rocksdb("ablation, A: decoupling", "more than RocksDB", None, with(STATIC, A), Metric::Throughput),
    over("ablation, A: + scheduling", "little more than decoupling", with(FIXED_LEVELS, A), STATIC),
    over("ablation, A: + elastic levels", "little more than scheduling", A, FIXED_LEVELS),
    against_rocksdb("ADOC's scheduler: insert", NO_NUMBER, None, with(ADOC, INSERT), Metric::Throughput),
    against_rocksdb("ADOC's scheduler: update", NO_NUMBER, None, with(ADOC, UPDATE), Metric::Throughput),
    over("insert against ADOC's scheduler", "2.2x ADOC, which is a RocksDB", INSERT, ADOC),
    over("update against ADOC's scheduler", "2.1x ADOC, which is a RocksDB", UPDATE, ADOC),
    itself("load: highest IMTN", "at most 4", Some((2.0, 4.0)), INSERT, Metric::MergeRuns),
    itself("load: highest DFTS over first", "increased significantly", None, INSERT, Metric::FlushGrowth),
    itself("load: changes of settings", NO_NUMBER, None, INSERT, Metric::SettingChanges),
    itself("A: highest IMTN", "not adjusted significantly", Some((2.0, 4.0)), A, Metric::MergeRuns),
    itself("A: highest DFTS over first", "not adjusted significantly", None, A, Metric::FlushGrowth),
    itself("A: changes of settings", NO_NUMBER, None, A, Metric::SettingChanges),
    waits("insert, update against MatrixKV", "1.6x, 2.2x the throughput", MATRIXKV),
    waits("insert, update against ADOC", "2.2x, 2.1x the throughput", ADOC_ITSELF),
    against_rocksdb("NVMe as the fast tier: load", "1.4-2.4x the others", NVME, INSERT, Metric::Throughput),
    against_rocksdb("NVMe as the fast tier: A", "1.4-2.4x the others", NVME, A, Metric::Throughput),
    against_rocksdb("insert in bursts, P99", NO_NUMBER, None, INSERT_BURSTS, Metric::P99),
    against_rocksdb("insert in bursts, longest wait", NO_NUMBER, None, INSERT_BURSTS, Metric::LongestWait),
    waits("2-16 cores", "gain grows with cores until I/O-bound", "a machine of 16 cores"),
];
