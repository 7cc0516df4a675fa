//! KVAccel: writes go around the tree while it is behind, and what they leave is brought back later.
//!
//! Its device has a key-value side beside the block side. Here, writers go around into longer logs (`bypass=spill`), on an ordinary
//! disk; what the paper says of bringing records back has nothing to be measured by. Values stay inline, as in the paper's
//! store: separated ones leave little to be brought back at all. Run it with `--dir` on a slow device, or nothing is behind.

use super::experiment::{Experiment, How, Metric, Over, Paper, Spec, Variant};

/// Keys and values as RocksDB has them, and the bypass.
const SPILL: Option<Variant> = Some(Variant::alone("spill", "separation=never,bypass=spill"));
/// The same, without a bypass: writers are paced.
const PACED: Option<Variant> = Some(Variant::alone("paced", "separation=never"));
/// The scheduler of ADOC in place of ours.
const ADOC: Option<Variant> = Some(Variant::alone("ADOC", "separation=never,scheduling=adoc"));

const BASE: Spec = Spec { background_threads: 2, ..Spec::of("", 4096) };
/// The paper's A.
const A: Spec = Spec { variant: SPILL, workload: "kvaccel-a", ..BASE };

/// One of the others, right after a load.
const fn of(workload: &'static str) -> Spec {
    Spec { workload, ..A }
}

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

const fn against(name: &'static str, claim: &'static str, metric: Metric, other: Option<Variant>) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Measured(A, metric, Over::Ours(other)) }
}

const fn waits(name: &'static str, claim: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Waits("a key-value device for redirected writes") }
}

/// The paper writes for 600 s with memtables of 128 MiB; here the data is 32 times the memory.
pub const PAPER: Paper = Paper {
    name: "kvaccel",
    title: "KVAccel (IPDPS'25): redirection of writes during stalls",
    data: 1200 << 20,
    key_size: 4,
    data_per_memory: 32,
    fast_percent: None,
    seconds: None,
    engines: None,
    experiments: EXPERIMENTS,
};

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    against_rocksdb("A, throughput against RocksDB", "up to +37%", Some((1.0, 1.37)), A, Metric::Throughput),
    against_rocksdb("A, P99 against RocksDB", "-30%", Some((0.7, 1.0)), A, Metric::P99),
    against_rocksdb("A, longest wait against RocksDB", "no number in the paper", None, A, Metric::LongestWait),
    against_rocksdb("A, lowest second against RocksDB", "no slowdown, no second of zero", None, A, Metric::LowestSecond),
    against_rocksdb("A, cores used against RocksDB (efficiency is throughput by this)", "MB/s per CPU %: best of all", None, A, Metric::Cpu),
    threads("A, one background thread", 1),
    threads("A, four background threads", 4),
    against("A, throughput against our own pacing", "the bar that the bypass must beat", Metric::Throughput, PACED),
    against("A, P99 against our own pacing", "the bar that the bypass must beat", Metric::P99, PACED),
    against("A, lowest second against our own pacing", "the bar that the bypass must beat", Metric::LowestSecond, PACED),
    against("A, throughput against ADOC's scheduler", "up to +17%", Metric::Throughput, ADOC),
    against("A, P99 against ADOC's scheduler", "-20%", Metric::P99, ADOC),
    against_rocksdb("B, throughput against RocksDB", "no number in the paper", None, of("kvaccel-b"), Metric::Throughput),
    against_rocksdb("C, throughput against RocksDB", "no number in the paper", None, of("kvaccel-c"), Metric::Throughput),
    against_rocksdb("D, throughput against RocksDB", "no number in the paper", None, of("kvaccel-d"), Metric::Throughput),
    waits("B and C, eager and lazy rollback", "eager rollback wins as reads grow"),
    waits("idle bandwidth in a stall", "RocksDB leaves up to 90% unused about half of the time"),
];
