//! HashKV: values in groups by hash, with garbage collection without look-ups; compared with a value log (vLog) as in
//! WiscKey.
//!
//! The paper's phases are a load (P0) and three rounds of zipfian updates (P1 to P3). Most of its figures are of P3: here a
//! round of updates in a store that was aged by two rounds. As in the paper, hot and cold values are stored together and
//! values of all sizes are separated, except in the experiments about these choices.
//!
//! Omitted: LevelDB, HyperLevelDB and PebblesDB are not engines of this program (parts of experiments 1, 4 and 11; all of
//! 13; in 5 RocksDB replaces LevelDB). Experiment 3 needs a RAID. Experiment 8 is the setting of 12 without reads. In 15
//! CleaveDB has no log segments; groups replace main segments, and its memory the write cache.
//!
//! In 10 both runs are crash-consistent, but one of them does not sync: this measures the cost of waiting, not of the writes,
//! which CleaveDB never omits. 14 counts pairs after the load, when CleaveDB has no groups yet: here it is live bytes after
//! the last phase, and groups are split and merged, so they are not meant to be equal.

use super::experiment::{Experiment, How, Metric, Over, Paper, Spec, Variant};
use crate::distribution::Distribution;
use crate::size::Lengths;

/// 40 GiB in the paper, with a write cache of 64 MiB.
pub const PAPER: Paper = Paper {
    name: "hashkv",
    title: "HashKV (ATC'18, ToS'19): hash-grouped values with lookup-free garbage collection. Here: values of all sizes separated",
    data: 160 << 20,
    key_size: 24,
    data_per_memory: 640,
    fast_percent: None,
    seconds: None,
    engines: Some(&["cleave", "rocksdb", "blobdb"]),
    experiments: EXPERIMENTS,
};

/// CleaveDB's options: values of all sizes separated, and a garbage limit in proportion to the data only.
macro_rules! options {
    ($options:literal) => {
        concat!("separation=1,spare-bytes=0,", $options)
    };
}

/// CleaveDB with `options`, called `name`, without other engines.
const fn alone(name: &'static str, options: &'static str) -> Option<Variant> {
    Some(Variant::alone(name, options))
}

/// The paper's design, which is compared with RocksDB and BlobDB.
const HASH: Option<Variant> = Some(Variant {
    name: "hash",
    options: options!("placement=hash,victims=greedy,hot-cold=off,spare=30"),
    alone: false,
    slow_only: false,
});
const VLOG: Option<Variant> = alone("vLog", options!("placement=log-look-ups,hot-cold=off,spare=30"));
/// The same with values reordered by key when they are moved.
const RANGE: Option<Variant> = alone("range", options!("placement=range,victims=greedy,spare=30"));
/// CleaveDB's defaults.
const OWN: Option<Variant> = alone("own choices", "separation=192");

/// A value log with CleaveDB's look-ups: in key order, many at a time.
const SORTED: Option<Variant> = alone("log, sorted look-ups", options!("placement=log,hot-cold=off,spare=30"));

const HASH_10: Option<Variant> = alone("hash, 10%", options!("placement=hash,victims=greedy,hot-cold=off,spare=10"));
const VLOG_10: Option<Variant> = alone("vLog, 10%", options!("placement=log-look-ups,hot-cold=off,spare=10"));
const HASH_50: Option<Variant> = alone("hash, 50%", options!("placement=hash,victims=greedy,hot-cold=off,spare=50"));
const VLOG_50: Option<Variant> = alone("vLog, 50%", options!("placement=log-look-ups,hot-cold=off,spare=50"));
const HASH_90: Option<Variant> = alone("hash, 90%", options!("placement=hash,victims=greedy,hot-cold=off,spare=90"));
const VLOG_90: Option<Variant> = alone("vLog, 90%", options!("placement=log-look-ups,hot-cold=off,spare=90"));

const HASH_20: Option<Variant> = alone("hash, 20%", options!("placement=hash,victims=greedy,hot-cold=off,spare=20"));
const HOT_SEPARATED: Option<Variant> =
    alone("hot and cold separated, 20%", options!("placement=hash,victims=greedy,hot-cold=on,spare=20"));

const LARGE: Option<Variant> =
    alone("large separated, 20%", "separation=192,spare-bytes=0,placement=hash,victims=greedy,hot-cold=off,spare=20");
const LARGE_30: Option<Variant> =
    alone("large separated, 30%", "separation=192,spare-bytes=0,placement=hash,victims=greedy,hot-cold=off,spare=30");
const ALL_30: Option<Variant> =
    alone("all separated, 30%", options!("placement=hash,victims=greedy,hot-cold=off,spare=30"));

const COST: Option<Variant> =
    alone("cost-benefit", options!("placement=hash,hot-cold=off,spare=30,victims=cost-benefit"));
const ONE_OF_FIVE: Option<Variant> =
    alone("one of the best 5", options!("placement=hash,hot-cold=off,spare=30,victims=random:5"));
const RANDOM: Option<Variant> =
    alone("random", options!("placement=hash,hot-cold=off,spare=30,victims=random:1000000"));

const NO_SYNCS: Option<Variant> =
    alone("hash, no syncs", options!("placement=hash,victims=greedy,hot-cold=off,spare=30,syncs=off"));

const HASH_MEMORY: Option<Variant> =
    alone("hash, 20%, memory x4", options!("placement=hash,victims=greedy,hot-cold=off,spare=20"));

// A factor of sixteen, as between segments of 16 and 256 MiB; CleaveDB makes at most about 64 groups.
const SMALL_GROUPS_20: Option<Variant> =
    alone("groups of 3 MiB, 20%", options!("placement=hash,victims=greedy,hot-cold=off,spare=20,group-size=3M"));
const LARGE_GROUPS_20: Option<Variant> =
    alone("groups of 48 MiB, 20%", options!("placement=hash,victims=greedy,hot-cold=off,spare=20,group-size=48M"));
const SMALL_GROUPS_50: Option<Variant> =
    alone("groups of 3 MiB, 50%", options!("placement=hash,victims=greedy,hot-cold=off,spare=50,group-size=3M"));
const LARGE_GROUPS_50: Option<Variant> =
    alone("groups of 48 MiB, 50%", options!("placement=hash,victims=greedy,hot-cold=off,spare=50,group-size=48M"));

/// Phase P0.
const LOAD: Spec = Spec { variant: HASH, ..Spec::of("fillrandom", 1000) };
/// Phases P1 to P3.
const ROUNDS: Spec = Spec { variant: HASH, ..Spec::of("hashkv-updates", 1000) };
/// Phase P3.
const LAST: Spec = Spec { variant: HASH, age: 2, ..Spec::of("overwrite", 1000) };

const fn with(variant: Option<Variant>, spec: Spec) -> Spec {
    Spec { variant, ..spec }
}

const fn sized(value_size: usize, spec: Spec) -> Spec {
    Spec { value_size: Lengths::Fixed(value_size), ..spec }
}

/// The last phase with a skew of 0.9 instead of 0.99.
const fn flatter(spec: Spec) -> Spec {
    Spec { distribution: Some(Distribution::Zipfian(0.9)), ..spec }
}

/// Small pairs of 40 B and large ones, with the given weights.
const fn two(small: u32, large_bytes: usize, large: u32, spec: Spec) -> Spec {
    Spec { value_size: Lengths::Two([(16, small), (large_bytes, large)]), ..spec }
}

/// Scans of 1 MiB that start at zipfian keys, after the load; as many as read the amount of all data once.
const fn scans(value_size: usize, variant: Option<Variant>) -> Spec {
    Spec {
        variant,
        distribution: Some(Distribution::Zipfian(0.99)),
        scan_bytes: Some(1 << 20),
        records_per_operation: Some((1 << 20) / (24 + value_size as u64)),
        ..Spec::of("seekrandom", value_size)
    }
}

/// A YCSB mix in a store aged by phases P0 to P2.
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

/// `spec` with its own options, compared with the same run with `other`.
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

/// The figure of `spec` itself.
const fn itself(name: &'static str, claim: &'static str, claimed: Claimed, spec: Spec, metric: Metric) -> Experiment {
    Experiment { name, claim, claimed, how: How::Measured(spec, metric, Over::Nothing) }
}

const fn waits(name: &'static str, claim: &'static str, what: &'static str) -> Experiment {
    Experiment { name, claim, claimed: None, how: How::Waits(what) }
}

const THROUGHPUT: Metric = Metric::Throughput;
const WRITTEN: Metric = Metric::Written;
const SPACE: Metric = Metric::Space;
const ROUNDS_ROCKS: Claimed = Some((1.3, 1.4));
const RESERVED: Claimed = Some((3.1, 4.7));
const RESERVED_WRITTEN: Claimed = Some((0.427, 0.699));
const PAIRS: Claimed = Some((2.2, 5.1));
const PAIRS_WRITTEN: Claimed = Some((0.265, 0.662));
const LARGE_1: Claimed = Some((1.232, 2.18));
const LARGE_4: Claimed = Some((1.192, 1.521));
const YCSB_VLOG: Claimed = Some((1.1, 1.4));
const YCSB_ROCKS: Claimed = Some((0.861, 0.875));
const THRESHOLD: Claimed = Some((1.265, 1.483));
const OTHERS: &str = "LevelDB, HyperLevelDB and PebblesDB, which are not engines of this program";
const SEGMENTS: &str = "log segments of a group, which CleaveDB does not have: all groups share its logs";

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    rocks("1: load", "3.0x the throughput of RocksDB", Some((3.0, 3.0)), LOAD, THROUGHPUT),
    over("1: load, vLog", "0.92x the throughput of vLog", Some((0.921, 0.921)), LOAD, VLOG, THROUGHPUT),
    rocks("1: updates", "1.3-1.4x the throughput of RocksDB", ROUNDS_ROCKS, ROUNDS, THROUGHPUT),
    over("1: updates, vLog", "3.7-4.6x the throughput of vLog", Some((3.7, 4.6)), ROUNDS, VLOG, THROUGHPUT),
    rocks("1: written", "-66.7% against RocksDB, load included", Some((0.333, 0.333)), ROUNDS, WRITTEN),
    over("1: written, vLog", "-49.6% against vLog, load included", Some((0.504, 0.504)), ROUNDS, VLOG, WRITTEN),
    rocks("1: space", "very similar to RocksDB", None, ROUNDS, SPACE),
    over("1: space, vLog", "very similar to vLog", None, ROUNDS, VLOG, SPACE),
    over("1: own choices, updates", "no claim: gain of the defaults", None, with(OWN, ROUNDS), HASH, THROUGHPUT),
    over("1: own choices, written", "no claim: savings of the defaults", None, with(OWN, ROUNDS), HASH, WRITTEN),
    waits("1: load, updates, others", "17.1x, 6.3-7.9x LevelDB; 0.5x the other two", OTHERS),
    over("1: sorted look-ups, updates", "no claim: gain of sorted look-ups", None, with(SORTED, ROUNDS), VLOG, THROUGHPUT),
    over("2: 10% reserved", "3.1-4.7x the throughput of vLog", RESERVED, with(HASH_10, LAST), VLOG_10, THROUGHPUT),
    over("2: 30% reserved", "3.1-4.7x the throughput of vLog", RESERVED, LAST, VLOG, THROUGHPUT),
    over("2: 50% reserved", "3.1-4.7x the throughput of vLog", RESERVED, with(HASH_50, LAST), VLOG_50, THROUGHPUT),
    over("2: 90% reserved", "3.1-4.7x the throughput of vLog", RESERVED, with(HASH_90, LAST), VLOG_90, THROUGHPUT),
    over("2: 10%, written", "-30.1-57.3% against vLog", RESERVED_WRITTEN, with(HASH_10, LAST), VLOG_10, WRITTEN),
    over("2: 30%, written", "-30.1-57.3% against vLog", RESERVED_WRITTEN, LAST, VLOG, WRITTEN),
    over("2: 50%, written", "-30.1-57.3% against vLog", RESERVED_WRITTEN, with(HASH_50, LAST), VLOG_50, WRITTEN),
    over("2: 90%, written", "-30.1-57.3% against vLog", RESERVED_WRITTEN, with(HASH_90, LAST), VLOG_90, WRITTEN),
    over("4: pairs of 256 B", "2.2-5.1x the throughput of vLog", PAIRS, sized(232, LAST), VLOG, THROUGHPUT),
    over("4: pairs of 4 KiB", "2.2-5.1x the throughput of vLog", PAIRS, sized(4072, LAST), VLOG, THROUGHPUT),
    over("4: pairs of 64 KiB", "-10.7% against vLog", Some((0.893, 0.893)), sized(65512, LAST), VLOG, THROUGHPUT),
    rocks("4: 256 B, RocksDB", "less than RocksDB", None, sized(232, LAST), THROUGHPUT),
    rocks("4: 1 KiB, RocksDB", "more than RocksDB", None, LAST, THROUGHPUT),
    rocks("4: 4 KiB, RocksDB", "2.8x the throughput of RocksDB", Some((2.8, 2.8)), sized(4072, LAST), THROUGHPUT),
    rocks("4: 256 B, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, sized(232, LAST), WRITTEN),
    rocks("4: 1 KiB, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, LAST, WRITTEN),
    rocks("4: 4 KiB, written", "-33.8-73.5% against RocksDB", PAIRS_WRITTEN, sized(4072, LAST), WRITTEN),
    rocks("5: 256 B", "-70.0% against LevelDB", Some((0.3, 0.3)), scans(232, HASH), THROUGHPUT),
    rocks("5: 1 KiB", "-36.3% against LevelDB", Some((0.637, 0.637)), scans(1000, HASH), THROUGHPUT),
    rocks("5: 4 KiB", "+94.2% against LevelDB", Some((1.942, 1.942)), scans(4072, HASH), THROUGHPUT),
    over("5: 256 B, vLog", "similar to vLog", None, scans(232, HASH), VLOG, THROUGHPUT),
    over("5: 1 KiB, vLog", "similar to vLog", None, scans(1000, HASH), VLOG, THROUGHPUT),
    over("5: 4 KiB, vLog", "similar to vLog", None, scans(4072, HASH), VLOG, THROUGHPUT),
    over("5: 256 B, groups by range", "no claim: effect of reordering", None, scans(232, RANGE), HASH, THROUGHPUT),
    over("5: 1 KiB, groups by range", "no claim: effect of reordering", None, scans(1000, RANGE), HASH, THROUGHPUT),
    over("5: 4 KiB, groups by range", "no claim: effect of reordering", None, scans(4072, RANGE), HASH, THROUGHPUT),
    over("6: hot separated, skew 0.9", "+113.1% throughput", Some((2.131, 2.131)), flatter(with(HOT_SEPARATED, LAST)), HASH_20, THROUGHPUT),
    over("6: hot separated, skew 0.99", "+121.3% throughput", Some((2.213, 2.213)), with(HOT_SEPARATED, LAST), HASH_20, THROUGHPUT),
    over("6: skew 0.9, written", "-42.8%", Some((0.572, 0.572)), flatter(with(HOT_SEPARATED, LAST)), HASH_20, WRITTEN),
    over("6: skew 0.99, written", "-42.5%", Some((0.575, 0.575)), with(HOT_SEPARATED, LAST), HASH_20, WRITTEN),
    over("7: 40 B : 1 KiB = 1:2", "+23.2-118% throughput", LARGE_1, two(1, 1000, 2, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 40 B : 1 KiB = 1:1", "+23.2-118% throughput", LARGE_1, two(1, 1000, 1, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 40 B : 1 KiB = 2:1", "+23.2-118% throughput", LARGE_1, two(2, 1000, 1, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 40 B : 4 KiB = 1:2", "+19.2-52.1% throughput", LARGE_4, two(1, 4072, 2, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 40 B : 4 KiB = 1:1", "+19.2-52.1% throughput", LARGE_4, two(1, 4072, 1, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 40 B : 4 KiB = 2:1", "+19.2-52.1% throughput", LARGE_4, two(2, 4072, 1, with(LARGE, LAST)), HASH_20, THROUGHPUT),
    over("7: 1 KiB, 1:1, written", "-14.1-39.6%", Some((0.604, 0.859)), two(1, 1000, 1, with(LARGE, LAST)), HASH_20, WRITTEN),
    over("7: 4 KiB, 1:1, written", "-4.1-10.7%", Some((0.893, 0.959)), two(1, 4072, 1, with(LARGE, LAST)), HASH_20, WRITTEN),
    over("9: greedy, cost-benefit", "similar throughput", None, LAST, COST, THROUGHPUT),
    over("9: greedy, greedy-random", "+31.5-32.1% throughput", Some((1.315, 1.321)), LAST, ONE_OF_FIVE, THROUGHPUT),
    over("9: greedy, random", "+61.3-62.2% throughput", Some((1.613, 1.622)), LAST, RANDOM, THROUGHPUT),
    over("9: the same, skew 0.9", "+61.3-62.2% throughput", Some((1.613, 1.622)), flatter(LAST), RANDOM, THROUGHPUT),
    over("9: greedy-random, written", "-17.5-18.4%", Some((0.816, 0.825)), LAST, ONE_OF_FIVE, WRITTEN),
    over("9: random, written", "-30.1-32.0%", Some((0.68, 0.699)), LAST, RANDOM, WRITTEN),
    over("10: syncs", "crash consistency costs 6.5% throughput", Some((0.935, 0.935)), LAST, NO_SYNCS, THROUGHPUT),
    over("10: syncs, written", "crash consistency costs +4.2%", Some((1.042, 1.042)), LAST, NO_SYNCS, WRITTEN),
    over("11: YCSB A", "1.1-1.4x the throughput of vLog", YCSB_VLOG, aged("ycsb-a"), VLOG, THROUGHPUT),
    over("11: YCSB F", "1.1-1.4x the throughput of vLog", YCSB_VLOG, aged("ycsb-f"), VLOG, THROUGHPUT),
    over("11: YCSB B", "similar to vLog", None, aged("ycsb-b"), VLOG, THROUGHPUT),
    over("11: YCSB C", "similar to vLog", None, aged("ycsb-c"), VLOG, THROUGHPUT),
    over("11: YCSB D", "similar to vLog", None, aged("ycsb-d"), VLOG, THROUGHPUT),
    rocks("11: A, RocksDB", "-12.5-13.9% against RocksDB", YCSB_ROCKS, aged("ycsb-a"), THROUGHPUT),
    rocks("11: F, RocksDB", "-12.5-13.9% against RocksDB", YCSB_ROCKS, aged("ycsb-f"), THROUGHPUT),
    rocks("11: B, RocksDB", "similar to RocksDB", None, aged("ycsb-b"), THROUGHPUT),
    rocks("11: C, RocksDB", "similar to RocksDB", None, aged("ycsb-c"), THROUGHPUT),
    rocks("11: D, RocksDB", "similar to RocksDB", None, aged("ycsb-d"), THROUGHPUT),
    waits("11: others", "2.8-2.9x LevelDB in A and F, 2.3-4.8x in B, C, D", OTHERS),
    over("12: 192 B, YCSB A", "+26.5-48.3% over all separated", THRESHOLD, mixed("ycsb-a", LARGE_30), ALL_30, THROUGHPUT),
    over("12: 192 B, YCSB B", "+26.5-48.3% over all separated", THRESHOLD, mixed("ycsb-b", LARGE_30), ALL_30, THROUGHPUT),
    over("12: 192 B, YCSB C", "+26.5-48.3% over all separated", THRESHOLD, mixed("ycsb-c", LARGE_30), ALL_30, THROUGHPUT),
    over("12: 192 B, YCSB D", "+26.5-48.3% over all separated", THRESHOLD, mixed("ycsb-d", LARGE_30), ALL_30, THROUGHPUT),
    over("12: 192 B, YCSB F", "+26.5-48.3% over all separated", THRESHOLD, mixed("ycsb-f", LARGE_30), ALL_30, THROUGHPUT),
    itself("14: balance of groups", "pairs of a group within 2.5%", Some((2.5, 2.5)), LAST, Metric::Balance),
    itself("14: space in use", "99.4% of the space", Some((99.4, 99.4)), LAST, Metric::SpaceInUse),
    over("15: write cache", "+29.1% from 4 to 64 MiB", Some((1.291, 1.291)), Spec { memory: 4, ..with(HASH_MEMORY, LAST) }, HASH_20, THROUGHPUT),
    over("15: write cache, written", "-16.3% from 4 to 64 MiB", Some((0.837, 0.837)), Spec { memory: 4, ..with(HASH_MEMORY, LAST) }, HASH_20, WRITTEN),
    over("15: groups, 20% reserved", "+52.5% from 16 to 256 MiB", Some((1.525, 1.525)), with(LARGE_GROUPS_20, LAST), SMALL_GROUPS_20, THROUGHPUT),
    over("15: groups, 50% reserved", "+28.3% from 16 to 256 MiB", Some((1.283, 1.283)), with(LARGE_GROUPS_50, LAST), SMALL_GROUPS_50, THROUGHPUT),
    waits("15: log segment", "-16.1% from 256 KiB to 4 MiB at 20%", SEGMENTS),
];
