//! HashKV: values apart from their keys, in groups by hash, collected without look-ups.
//!
//! The paper's phases are a load (P0) and three rounds of zipfian updates (P1 to P3). Most of its figures are of P3: here
//! a round of updates in a store that two rounds have aged.
//!
//! What is absent, and why: LevelDB, HyperLevelDB and PebblesDB are no engines of this program (parts of experiments 1, 4
//! and 11; all of 5 and 13). Experiment 3 needs a RAID. Experiment 8 is the setting of 12 without reads. Experiment 10
//! switches crash consistency off, which CleaveDB cannot do. Of 15 the sizes of segments are no options of CleaveDB; its
//! memory stands for the write cache.

use super::Paper;
use super::experiment::{Experiment, How, Metric, Over, Spec, Variant};
use crate::size::Lengths;

/// 40 GiB in the paper, with a write cache of 64 MiB.
pub const PAPER: Paper = Paper {
    name: "hashkv",
    title: "HashKV (ATC'18, ToS'19): hash-grouped values with lookup-free garbage collection. Here: values apart, no groups",
    data: 160 << 20,
    data_per_memory: 640,
    engines: Some(&["cleave", "rocksdb", "blobdb"]),
    experiments: EXPERIMENTS,
};

/// CleaveDB called `name`, with `options` and nothing beside it.
const fn alone(name: &'static str, options: &'static str) -> Option<Variant> {
    Some(Variant { name, options, alone: true })
}

/// Values of all sizes apart, as in the paper: what RocksDB and BlobDB are set beside.
const APART: Option<Variant> = Some(Variant { name: "all apart", options: "separation=1", alone: false });
const ALL: Option<Variant> = alone("all apart", "separation=1");
const LARGE: Option<Variant> = alone("large apart", "separation=192");
const MEMORY: Option<Variant> = alone("all apart, memory x4", "separation=1");

/// Phase P0.
const LOAD: Spec = Spec { variant: APART, ..Spec::of("fillrandom", 1000) };
/// Phases P1 to P3.
const ROUNDS: Spec = Spec { variant: APART, ..Spec::of("hashkv-updates", 1000) };
/// Phase P3.
const LAST: Spec = Spec { variant: APART, age: 2, ..Spec::of("overwrite", 1000) };

const fn with(variant: Option<Variant>, spec: Spec) -> Spec {
    Spec { variant, ..spec }
}

const fn sized(value_size: usize, spec: Spec) -> Spec {
    Spec { value_size: Lengths::Fixed(value_size), ..spec }
}

/// Small pairs of 40 B and large ones, so many of each.
const fn two(small: u32, large_bytes: usize, large: u32, spec: Spec) -> Spec {
    Spec { value_size: Lengths::Two([(16, small), (large_bytes, large)]), ..spec }
}

/// A YCSB mix in a store that three phases have aged, P0 to P2.
const fn aged(workload: &'static str) -> Spec {
    Spec { workload, ..LAST }
}

/// The same with pairs of 40 B to 8 KiB.
const fn mixed(workload: &'static str, variant: Option<Variant>) -> Spec {
    Spec { workload, variant, value_size: Lengths::Zipfian { low: 16, high: 8168 }, ..LAST }
}

type Claimed = Option<(f64, f64)>;

const fn rocks(name: &'static str, claim: &'static str, claimed: Claimed, spec: Spec, metric: Metric) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, Over::RocksDb) }
}

/// `spec` with its own options over the same with `other`.
const fn over(
    name: &'static str,
    claim: &'static str,
    claimed: Claimed,
    spec: Spec,
    other: Option<Variant>,
    metric: Metric,
) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, Over::Ours(other)) }
}

const fn waits(name: &'static str, claim: &'static str, what: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Waits(what) }
}

const THROUGHPUT: Metric = Metric::Throughput;
const WRITTEN: Metric = Metric::Written;
const SPACE: Metric = Metric::Space;
const ROUNDS_ROCKS: Claimed = Some((1.3, 1.4));
const PAIRS_WRITTEN: Claimed = Some((0.265, 0.662));
const LARGE_1: Claimed = Some((1.232, 2.18));
const LARGE_4: Claimed = Some((1.192, 1.521));
const YCSB_ROCKS: Claimed = Some((0.861, 0.875));
const THRESHOLD: Claimed = Some((1.265, 1.483));
const OTHERS: &str = "LevelDB, HyperLevelDB and PebblesDB, which are no engines of this program";
const SEGMENTS: &str = "options for the sizes of segments";
const GROUPS: &str = "values in groups with their garbage collection";

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    rocks("1: load", "3.0x the throughput of RocksDB", Some((3.0, 3.0)), LOAD, THROUGHPUT),
    waits("1: load, vLog", "0.92x the throughput of vLog", GROUPS),
    rocks("1: updates", "1.3-1.4x the throughput of RocksDB", ROUNDS_ROCKS, ROUNDS, THROUGHPUT),
    waits("1: updates, vLog", "3.7-4.6x the throughput of vLog", GROUPS),
    rocks("1: written", "-66.7% against RocksDB, load included", Some((0.333, 0.333)), ROUNDS, WRITTEN),
    waits("1: written, vLog", "-49.6% against vLog, load included", GROUPS),
    rocks("1: space", "very similar to RocksDB", None, ROUNDS, SPACE),
    waits("1: space, vLog", "very similar to vLog", GROUPS),
    waits("1: own choices, updates", "no claim: what our other choices add", GROUPS),
    waits("1: own choices, written", "no claim: what our other choices save", GROUPS),
    waits("1: load, updates, others", "17.1x, 6.3-7.9x LevelDB; 0.5x the other two", OTHERS),
    waits("2: 10% reserved", "3.1-4.7x the throughput of vLog", GROUPS),
    waits("2: 30% reserved", "3.1-4.7x the throughput of vLog", GROUPS),
    waits("2: 50% reserved", "3.1-4.7x the throughput of vLog", GROUPS),
    waits("2: 90% reserved", "3.1-4.7x the throughput of vLog", GROUPS),
    waits("2: 10%, written", "-30.1-57.3% against vLog", GROUPS),
    waits("2: 30%, written", "-30.1-57.3% against vLog", GROUPS),
    waits("2: 50%, written", "-30.1-57.3% against vLog", GROUPS),
    waits("2: 90%, written", "-30.1-57.3% against vLog", GROUPS),
    waits("4: pairs of 256 B", "2.2-5.1x the throughput of vLog", GROUPS),
    waits("4: pairs of 4 KiB", "2.2-5.1x the throughput of vLog", GROUPS),
    waits("4: pairs of 64 KiB", "-10.7% against vLog", GROUPS),
    rocks("4: 256 B, RocksDB", "less than RocksDB", None, sized(232, LAST), THROUGHPUT),
    rocks("4: 1 KiB, RocksDB", "more than RocksDB", None, LAST, THROUGHPUT),
    rocks("4: 4 KiB, RocksDB", "2.8x the throughput of RocksDB", Some((2.8, 2.8)), sized(4072, LAST), THROUGHPUT),
    rocks("4: 256 B, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, sized(232, LAST), WRITTEN),
    rocks("4: 1 KiB, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, LAST, WRITTEN),
    rocks("4: 4 KiB, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, sized(4072, LAST), WRITTEN),
    waits("6: hot apart, skew 0.9", "+113.1% throughput", GROUPS),
    waits("6: hot apart, skew 0.99", "+121.3% throughput", GROUPS),
    waits("6: skew 0.9, written", "-42.8%", GROUPS),
    waits("6: skew 0.99, written", "-42.5%", GROUPS),
    over("7: 40 B : 1 KiB = 1:2", "+23.2-118% throughput", LARGE_1, two(1, 1000, 2, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 40 B : 1 KiB = 1:1", "+23.2-118% throughput", LARGE_1, two(1, 1000, 1, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 40 B : 1 KiB = 2:1", "+23.2-118% throughput", LARGE_1, two(2, 1000, 1, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 40 B : 4 KiB = 1:2", "+19.2-52.1% throughput", LARGE_4, two(1, 4072, 2, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 40 B : 4 KiB = 1:1", "+19.2-52.1% throughput", LARGE_4, two(1, 4072, 1, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 40 B : 4 KiB = 2:1", "+19.2-52.1% throughput", LARGE_4, two(2, 4072, 1, with(LARGE, LAST)), ALL, THROUGHPUT),
    over("7: 1 KiB, 1:1, written", "-14.1-39.6%", Some((0.604, 0.859)), two(1, 1000, 1, with(LARGE, LAST)), ALL, WRITTEN),
    over("7: 4 KiB, 1:1, written", "-4.1-10.7%", Some((0.893, 0.959)), two(1, 4072, 1, with(LARGE, LAST)), ALL, WRITTEN),
    waits("9: greedy, cost-benefit", "similar throughput", GROUPS),
    waits("9: greedy, greedy-random", "+31.5-32.1% throughput", GROUPS),
    waits("9: greedy, random", "+61.3-62.2% throughput", GROUPS),
    waits("9: the same, skew 0.9", "+61.3-62.2% throughput", GROUPS),
    waits("9: greedy-random, written", "-17.5-18.4%", GROUPS),
    waits("9: random, written", "-30.1-32.0%", GROUPS),
    waits("10: crash consistency", "costs 6.5% throughput, +4.2% written", "a way to switch crash consistency off, which there will not be"),
    waits("11: YCSB A", "1.1-1.4x the throughput of vLog", GROUPS),
    waits("11: YCSB F", "1.1-1.4x the throughput of vLog", GROUPS),
    waits("11: YCSB B", "similar to vLog", GROUPS),
    waits("11: YCSB C", "similar to vLog", GROUPS),
    waits("11: YCSB D", "similar to vLog", GROUPS),
    rocks("11: A, RocksDB", "-12.5-13.9% against RocksDB", YCSB_ROCKS, aged("ycsb-a"), THROUGHPUT),
    rocks("11: F, RocksDB", "-12.5-13.9% against RocksDB", YCSB_ROCKS, aged("ycsb-f"), THROUGHPUT),
    rocks("11: B, RocksDB", "similar to RocksDB", None, aged("ycsb-b"), THROUGHPUT),
    rocks("11: C, RocksDB", "similar to RocksDB", None, aged("ycsb-c"), THROUGHPUT),
    rocks("11: D, RocksDB", "similar to RocksDB", None, aged("ycsb-d"), THROUGHPUT),
    waits("11: others", "2.8-2.9x LevelDB in A and F, 2.3-4.8x in B, C, D", OTHERS),
    over("12: 192 B, YCSB A", "+26.5-48.3% over all apart", THRESHOLD, mixed("ycsb-a", LARGE), ALL, THROUGHPUT),
    over("12: 192 B, YCSB B", "+26.5-48.3% over all apart", THRESHOLD, mixed("ycsb-b", LARGE), ALL, THROUGHPUT),
    over("12: 192 B, YCSB C", "+26.5-48.3% over all apart", THRESHOLD, mixed("ycsb-c", LARGE), ALL, THROUGHPUT),
    over("12: 192 B, YCSB D", "+26.5-48.3% over all apart", THRESHOLD, mixed("ycsb-d", LARGE), ALL, THROUGHPUT),
    over("12: 192 B, YCSB F", "+26.5-48.3% over all apart", THRESHOLD, mixed("ycsb-f", LARGE), ALL, THROUGHPUT),
    waits("14: balance of groups", "pairs of a group within 2.5%; 99.4% of the space in use", GROUPS),
    over("15: write cache", "+29.1% from 4 to 64 MiB", Some((1.291, 1.291)), Spec { memory: 4, ..with(MEMORY, LAST) }, APART, THROUGHPUT),
    over("15: write cache, written", "-16.3% from 4 to 64 MiB", Some((0.837, 0.837)), Spec { memory: 4, ..with(MEMORY, LAST) }, APART, WRITTEN),
    waits("15: main segment", "+52.5% from 16 to 256 MiB at 20%", SEGMENTS),
    waits("15: log segment", "-16.1% from 256 KiB to 4 MiB at 20%", SEGMENTS),
];
