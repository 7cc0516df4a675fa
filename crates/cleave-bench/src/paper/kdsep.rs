//! KDSep: merge operands (deltas) separated from values, in buckets by key range.
//!
//! The paper adds KDSep to RocksDB, BlobDB and vLogDB, a store with a value log, and compares each with itself. Here CleaveDB
//! with operands in buckets is compared with RocksDB and BlobDB, whose claims are those of KDSep on them, and with itself with
//! operands in the levels, in place of vLogDB. A phase ends after two operations per record, as in the paper, or after ten
//! seconds; I/O is therefore that of an operation.
//!
//! Differences: RMW of AM, FM and BM is a merge, so AM and FM are one workload, measured twice. The memory budget stands for the
//! sizes of write buffer and caches, which CleaveDB derives from it. The write buffer of 11 is the size of a flush, which is at
//! most 3/16 of the budget, so both runs of 11 have six times the memory. The cache of 12 is that of operands, in percent of the
//! budget: an eighth, as in the paper. The field size of 6 is that of operands; the number of buckets follows from the memory,
//! not from the field. In 7 buckets are never split, and full ones are folded, since nothing else frees them. In 9 both runs have
//! log and manifest, and one of them does not sync. In 10 the process is killed while it puts new records, after the workload.
//! UP2X has a fraction of the paper's operations per record, as many as the time allows.

use super::experiment::{Experiment, How, Metric, Over, Paper, Spec, Variant};
use crate::distribution::Distribution;
use crate::size::Lengths;

/// 100 GiB in the paper, with 4 GiB of memory.
pub const PAPER: Paper = Paper {
    name: "kdsep",
    title: "KDSep (ICDE'24): delta buckets for read-modify-write",
    data: 400 << 20,
    key_size: 24,
    data_per_memory: 25,
    fast_percent: None,
    seconds: Some(10.0),
    engines: Some(&["cleave", "rocksdb", "blobdb"]),
    experiments: EXPERIMENTS,
};

/// Operands in buckets, with RocksDB and BlobDB beside it.
const BESIDE: Option<Variant> = Some(Variant { alone: false, ..Variant::alone("buckets", "deltas=buckets") });
const BUCKETS: Option<Variant> = Some(Variant::alone("buckets", "deltas=buckets"));
const LEVELS: Option<Variant> = Some(Variant::alone("levels", "deltas=levels"));
const REWRITE_ONLY: Option<Variant> = Some(Variant::alone("rewrite only", "deltas=buckets,bucket-split=never"));
const SPLIT_10: Option<Variant> = Some(Variant::alone("split above 10%", "deltas=buckets,bucket-split=10"));
const SPLIT_50: Option<Variant> = Some(Variant::alone("split above 50%", "deltas=buckets,bucket-split=50"));
const SPLIT_90: Option<Variant> = Some(Variant::alone("split above 90%", "deltas=buckets,bucket-split=90"));
const NO_SYNCS: Option<Variant> = Some(Variant::alone("buckets, no syncs", "deltas=buckets,syncs=off"));
const BUFFER_1: Option<Variant> =
    Some(Variant::alone("write buffer of 1 MiB", "deltas=buckets,scheduling=static:2:1M"));
const BUFFER_16: Option<Variant> =
    Some(Variant::alone("write buffer of 16 MiB", "deltas=buckets,scheduling=static:2:16M"));

const NO_CACHE: Option<Variant> = Some(Variant::alone("no operand cache", "deltas=buckets,operand-cache=0"));
const CACHE: Option<Variant> =
    Some(Variant::alone("operand cache of an eighth of the memory", "deltas=buckets,operand-cache=12"));

const BASE: Spec = Spec { operations_per_record: Some(2), variant: BUCKETS, ..Spec::of("merge:10", 1000) };
/// The workload of most experiments: 10% reads, 90% merges.
const RMW: Spec = Spec { variant: BESIDE, ..BASE };
/// Keys and values of the workload's own sizes; the size here determines the number of records.
const UP2X: Spec = Spec { workload: "up2x", value_size: Lengths::Fixed(47), ..RMW };
const AM: Spec = Spec { workload: "ycsb-am", ..RMW };
const FM: Spec = Spec { workload: "ycsb-fm", ..RMW };
const BM: Spec = Spec { workload: "ycsb-bm", ..RMW };

const fn workload(workload: &'static str) -> Spec {
    Spec { workload, ..BASE }
}

const fn killed(workload: &'static str) -> Spec {
    Spec { workload, recover: true, at_rest: true, ..BASE }
}

const fn skewed(exponent: f64) -> Spec {
    Spec { distribution: Some(Distribution::Zipfian(exponent)), ..BASE }
}

/// Values of this size, with fields of `field` bytes.
const fn sized(value: usize, field: u64) -> Spec {
    Spec { value_size: Lengths::Fixed(value), field_size: Some(field), ..BASE }
}

const fn with(variant: Option<Variant>) -> Spec {
    Spec { variant, ..BASE }
}

type Range = Option<(f64, f64)>;

const fn over(
    name: &'static str,
    claim: &'static str,
    claimed: Range,
    spec: Spec,
    metric: Metric,
    over: Over,
) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, over) }
}

/// Compared with CleaveDB's operands in the levels.
const fn own(name: &'static str, claim: &'static str, claimed: Range, spec: Spec, metric: Metric) -> Experiment {
    over(name, claim, claimed, spec, metric, Over::Ours(LEVELS))
}

const fn rocks(name: &'static str, claim: &'static str, claimed: Range, spec: Spec, metric: Metric) -> Experiment {
    over(name, claim, claimed, spec, metric, Over::RocksDb)
}

const fn blob(name: &'static str, claim: &'static str, claimed: Range, spec: Spec, metric: Metric) -> Experiment {
    over(name, claim, claimed, spec, metric, Over::BlobDb)
}

/// The paper's number as a range.
const fn just(claimed: f64) -> Range {
    Some((claimed, claimed))
}

const THROUGHPUT: Metric = Metric::Throughput;
const READ: Metric = Metric::MeanOf("read");
const IO: Metric = Metric::TrafficPerOperation;
const READ_P99: Metric = Metric::P99Of("read");
const MERGE_P99: Metric = Metric::P99Of("merge");
const WITHIN: Range = Some((0.976, 1.024));
const NO_MERGE: &str = "within 2.4% of vLogDB";
const SKEWS: Range = Some((1.508, 1.672));
const VALUES: Range = Some((1.205, 1.682));
const SPLITS: Range = Some((0.95, 1.05));
const RECOVERABLE: Range = Some((0.931, 0.975));

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    own("1: 10:90", "+68.2% on vLogDB", just(1.682), RMW, THROUGHPUT),
    rocks("1: 10:90, RocksDB", "+80.5% on RocksDB", just(1.805), RMW, THROUGHPUT),
    blob("1: 10:90, BlobDB", "+67.0% on BlobDB", just(1.67), RMW, THROUGHPUT),
    own("1: mean of reads", "-46.3% on vLogDB", just(0.537), RMW, READ),
    rocks("1: mean of reads, RocksDB", "-49.9% on RocksDB", just(0.501), RMW, READ),
    blob("1: mean of reads, BlobDB", "-41.9% on BlobDB", just(0.581), RMW, READ),
    own("1: P99 of reads", "-36.5% on vLogDB", just(0.635), RMW, READ_P99),
    rocks("1: P99 of reads, RocksDB", "-48.2% on RocksDB", just(0.518), RMW, READ_P99),
    blob("1: P99 of reads, BlobDB", "-42.7% on BlobDB", just(0.573), RMW, READ_P99),
    own("1: P99 of merges", "-49.9% on vLogDB", just(0.501), RMW, MERGE_P99),
    rocks("1: P99 of merges, RocksDB", "-62.4% on RocksDB", just(0.376), RMW, MERGE_P99),
    blob("1: P99 of merges, BlobDB", "-23.6% on BlobDB", just(0.764), RMW, MERGE_P99),
    own("1: I/O", "-36.9% on vLogDB", just(0.631), RMW, IO),
    rocks("1: I/O, RocksDB", "-27.4% on RocksDB", just(0.726), RMW, IO),
    blob("1: I/O, BlobDB", "-41.1% on BlobDB", just(0.589), RMW, IO),
    own("2: UP2X", "+34.2% on vLogDB", just(1.342), UP2X, THROUGHPUT),
    rocks("2: UP2X, RocksDB", "+51.3% on RocksDB", just(1.513), UP2X, THROUGHPUT),
    blob("2: UP2X, BlobDB", "+30.3% on BlobDB", just(1.303), UP2X, THROUGHPUT),
    own("3: YCSB A", NO_MERGE, WITHIN, workload("ycsb-a"), THROUGHPUT),
    own("3: YCSB B", NO_MERGE, WITHIN, workload("ycsb-b"), THROUGHPUT),
    own("3: YCSB C", NO_MERGE, WITHIN, workload("ycsb-c"), THROUGHPUT),
    own("3: YCSB D", NO_MERGE, WITHIN, workload("ycsb-d"), THROUGHPUT),
    own("3: YCSB E", NO_MERGE, WITHIN, workload("ycsb-e"), THROUGHPUT),
    own("3: YCSB F", NO_MERGE, WITHIN, workload("ycsb-f"), THROUGHPUT),
    own("3: YCSB AM", "+64.7-65.4% on vLogDB", Some((1.647, 1.654)), AM, THROUGHPUT),
    rocks("3: YCSB AM, RocksDB", "+79.6-80.1% on RocksDB", Some((1.796, 1.801)), AM, THROUGHPUT),
    blob("3: YCSB AM, BlobDB", "+19.5-20.5% on BlobDB", Some((1.195, 1.205)), AM, THROUGHPUT),
    own("3: YCSB FM", "+64.7-65.4% on vLogDB", Some((1.647, 1.654)), FM, THROUGHPUT),
    rocks("3: YCSB FM, RocksDB", "+79.6-80.1% on RocksDB", Some((1.796, 1.801)), FM, THROUGHPUT),
    blob("3: YCSB FM, BlobDB", "+19.5-20.5% on BlobDB", Some((1.195, 1.205)), FM, THROUGHPUT),
    own("3: YCSB BM", "+12.4% on vLogDB", just(1.124), BM, THROUGHPUT),
    rocks("3: YCSB BM, RocksDB", "+5.3% on RocksDB", just(1.053), BM, THROUGHPUT),
    blob("3: YCSB BM, BlobDB", "+9.7% on BlobDB", just(1.097), BM, THROUGHPUT),
    own("4: 30:70", "+68.4% on vLogDB", just(1.684), workload("merge:30"), THROUGHPUT),
    own("4: 50:50", "+66.0% on vLogDB", just(1.66), workload("merge:50"), THROUGHPUT),
    own("4: 70:30", "+35.1% on vLogDB", just(1.351), workload("merge:70"), THROUGHPUT),
    own("4: 90:10", "+18.6% on vLogDB", just(1.186), workload("merge:90"), THROUGHPUT),
    own("5: skew of 0.8", "+50.8-67.2% on vLogDB", SKEWS, skewed(0.8), THROUGHPUT),
    own("5: skew of 1.2", "+50.8-67.2% on vLogDB", SKEWS, skewed(1.2), THROUGHPUT),
    own("6: values of 100 B", "+20.5-68.2% on vLogDB", VALUES, sized(100, 100), THROUGHPUT),
    own("6: values of 2000 B", "+20.5-68.2% on vLogDB", VALUES, sized(2000, 100), THROUGHPUT),
    own("6: values of 8000 B", "+20.5-68.2% on vLogDB", VALUES, sized(8000, 100), THROUGHPUT),
    own("6: fields of 25 B of 8000 B", "+13.3% on vLogDB", just(1.133), sized(8000, 25), THROUGHPUT),
    own("6: fields of 800 B of 8000 B", "+80.6% on vLogDB", just(1.806), sized(8000, 800), THROUGHPUT),
    over("7: split and merge", "+19.3-55.1% over rewrite only", Some((1.193, 1.551)), RMW, THROUGHPUT, Over::Ours(REWRITE_ONLY)),
    over("8: split above 10%", "insensitive", SPLITS, with(SPLIT_10), THROUGHPUT, Over::Ours(BESIDE)),
    over("8: split above 50%", "insensitive", SPLITS, with(SPLIT_50), THROUGHPUT, Over::Ours(BESIDE)),
    over("8: split above 90%", "insensitive", SPLITS, with(SPLIT_90), THROUGHPUT, Over::Ours(BESIDE)),
    over("9: syncs, 10:90", "-2.5-6.9% for crash recovery", RECOVERABLE, killed("merge:10"), THROUGHPUT, Over::Ours(NO_SYNCS)),
    over("9: syncs, merges only", "-2.5-6.9% for crash recovery", RECOVERABLE, killed("merge:0"), THROUGHPUT, Over::Ours(NO_SYNCS)),
    over("9: syncs, puts and merges", "-2.5-6.9% for crash recovery", RECOVERABLE, killed("kdsep-w3"), THROUGHPUT, Over::Ours(NO_SYNCS)),
    over("9: syncs, puts only", "-0.6% for crash recovery", just(0.994), killed("mixed:0"), THROUGHPUT, Over::Ours(NO_SYNCS)),
    own("10: open after a kill, 10:90", "+4.08-5.02 s on 1.07-1.82 s", None, killed("merge:10"), Metric::Recovery),
    own("10: open after a kill, merges only", "+4.08-5.02 s on 1.07-1.82 s", None, killed("merge:0"), Metric::Recovery),
    own("10: open after a kill, puts and merges", "+4.08-5.02 s on 1.07-1.82 s", None, killed("kdsep-w3"), Metric::Recovery),
    own("10: open after a kill, puts only", "1.69 s against 1.65 s", just(1.024), killed("mixed:0"), Metric::Recovery),
    over("11: write buffer", "within 2.1% from 1 to 16 MiB", Some((0.979, 1.021)), Spec { memory: 6, ..with(BUFFER_16) }, THROUGHPUT, Over::OursAlike(BUFFER_1)),
    own("12: no KD cache", "0.80x of vLogDB", just(0.8), with(NO_CACHE), THROUGHPUT),
    own("12: KD cache of an eighth of the memory", "1.68x of vLogDB", just(1.68), with(CACHE), THROUGHPUT),
];
