//! KVAccel: writes go around the tree while it is behind, and what they leave is brought back later.
//!
//! Its device has a key-value side beside the block side. Here, writers go around into longer logs (`bypass=spill`), on an ordinary
//! disk, or onto an emulated device whose files lie beside those of the database (`bypass=device`): it takes their bandwidth from the
//! same disk, and has a bandwidth of its own only in the model. Values stay inline, as in the paper's store: separated ones leave
//! little to be brought back at all. Run it with `--dir` on a slow device, or nothing is behind.

use super::experiment::{Experiment, How, Metric, Over, Paper, Spec, Variant};
use crate::engine::{NO_SLOWDOWN, OURS};

/// Keys and values as RocksDB has them, and the bypass.
const SPILL: Option<Variant> = Some(Variant::alone("spill", "separation=never,bypass=spill"));
/// Onto an emulated device, with a rollback as soon as pressure is low, and when writers rest.
const EAGER: Option<Variant> = Some(Variant::alone("device, eager", "separation=never,bypass=device:kv"));
const LAZY: Option<Variant> = Some(Variant::alone("device, lazy", "separation=never,bypass=device-lazy:kv"));
/// The same, without a bypass: writers are paced.
const PACED: Option<Variant> = Some(Variant::alone("paced", "separation=never"));
/// The scheduler of ADOC in place of ours.
const ADOC: Option<Variant> = Some(Variant::alone("ADOC", "separation=never,scheduling=adoc"));

/// Time ends the runs, not the number of operations.
const BASE: Spec = Spec { background_threads: 2, operations_per_record: Some(1000), ..Spec::of("", 4096) };
/// The paper's A: one writer.
const A: Spec = Spec { variant: SPILL, workload: "kvaccel-a", ..BASE };
/// B and C, right after a load: a writer, and a reader of its own.
const B: Spec = Spec { workload: "kvaccel-b", ..A };
const C: Spec = Spec { workload: "kvaccel-c", ..A };
/// D: scans right after a load.
const D: Spec = Spec { workload: "kvaccel-d", operations_per_record: None, ..A };

const fn threads(name: &'static str, background_threads: usize) -> Experiment {
    against_rocksdb(
        name,
        "gain at 1, 2 and 4 threads for compactions",
        None,
        Spec { background_threads, ..A },
        Metric::Throughput,
    )
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

const fn against_no_slowdown(name: &'static str, claim: &'static str, metric: Metric) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Measured(A, metric, Over::RocksDbNoSlowdown) }
}

const fn against(name: &'static str, claim: &'static str, metric: Metric, other: Option<Variant>) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Measured(A, metric, Over::Ours(other)) }
}

/// The device with an eager rollback against another variant.
const fn eager(name: &'static str, claim: &'static str, workload: &'static str, other: Option<Variant>) -> Experiment {
    let spec = Spec { variant: EAGER, workload, ..BASE };
    Experiment { name, claim, claimed: None, how: How::Measured(spec, Metric::Throughput, Over::Ours(other)) }
}

/// Our own pacing against RocksDB, while writers wait.
const fn while_waiting(name: &'static str, claim: &'static str, metric: Metric) -> Experiment {
    against_rocksdb(name, claim, None, Spec { variant: PACED, ..A }, metric)
}

/// Traffic over the device's host link: eager against lazy rollback.
const fn link(name: &'static str, claim: &'static str, workload: &'static str) -> Experiment {
    let spec = Spec { variant: EAGER, workload, ..BASE };
    Experiment { name, claim, claimed: None, how: How::Measured(spec, Metric::LinkAmplification, Over::Ours(LAZY)) }
}

/// The paper writes for 600 s with memtables of 128 MiB; here the data is 32 times the memory, and each run takes 120 s.
pub const PAPER: Paper = Paper {
    name: "kvaccel",
    title: "KVAccel (IPDPS'25): redirection of writes during stalls",
    data: 1200 << 20,
    key_size: 4,
    data_per_memory: 32,
    fast_percent: None,
    seconds: Some(120.0),
    engines: Some(&[OURS, "rocksdb", NO_SLOWDOWN]),
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    against_rocksdb("A, throughput against RocksDB", "up to +37%", Some((1.0, 1.37)), A, Metric::Throughput),
    against_rocksdb("A, P99 against RocksDB", "-30%", Some((0.7, 1.0)), A, Metric::P99),
    against_rocksdb("A, longest wait against RocksDB", "no number in the paper", None, A, Metric::LongestWait),
    against_rocksdb("A, lowest second against RocksDB", "no slowdown, no second of zero", None, A, Metric::LowestSecond),
    against_rocksdb("A, efficiency against RocksDB", "best of all", None, A, Metric::Efficiency),
    against_no_slowdown("A, throughput against RocksDB without slowdown", "no number in the paper", Metric::Throughput),
    against_no_slowdown("A, P99 against RocksDB without slowdown", "no number in the paper", Metric::P99),
    against_no_slowdown("A, lowest second against RocksDB without slowdown", "it stops for seconds", Metric::LowestSecond),
    against_no_slowdown("A, efficiency against RocksDB without slowdown", "best of all", Metric::Efficiency),
    threads("A, one background thread", 1),
    threads("A, four background threads", 4),
    against("A, throughput against our own pacing", "the bar that the bypass must beat", Metric::Throughput, PACED),
    against("A, P99 against our own pacing", "the bar that the bypass must beat", Metric::P99, PACED),
    against("A, lowest second against our own pacing", "the bar that the bypass must beat", Metric::LowestSecond, PACED),
    against("A, throughput against ADOC's scheduler", "up to +17%", Metric::Throughput, ADOC),
    against("A, P99 against ADOC's scheduler", "-20%", Metric::P99, ADOC),
    against("A, efficiency against ADOC's scheduler", "best of all", Metric::Efficiency, ADOC),
    against_rocksdb("B, throughput against RocksDB", "no number in the paper", None, B, Metric::Throughput),
    against_rocksdb("C, throughput against RocksDB", "no number in the paper", None, C, Metric::Throughput),
    against_rocksdb("D, throughput against RocksDB", "no number in the paper", None, D, Metric::Throughput),
    eager("A, emulated device against longer logs", "what a device beside the tiers adds", "kvaccel-a", SPILL),
    eager("A, emulated device, eager against lazy rollback", "lazy is better for writers alone", "kvaccel-a", LAZY),
    eager("B, emulated device, eager against lazy rollback", "eager rollback wins as reads grow", "kvaccel-b", LAZY),
    eager("C, emulated device, eager against lazy rollback", "eager rollback wins as reads grow", "kvaccel-c", LAZY),
    link("A, emulated device, host link for each byte of the user, eager against lazy", "no number in the paper", "kvaccel-a"),
    link("B, emulated device, host link for each byte of the user, eager against lazy", "no number in the paper", "kvaccel-b"),
    link("C, emulated device, host link for each byte of the user, eager against lazy", "no number in the paper", "kvaccel-c"),
    while_waiting("seconds in which writers wait", "no number in the paper", Metric::Waiting),
    while_waiting("idle bandwidth in a stall", "RocksDB leaves up to 90% unused", Metric::UnusedWhileWaiting),
    while_waiting("idle bandwidth in a stall, seconds with half unused", "RocksDB: about half of the time", Metric::HalfUnusedWhileWaiting),
];
