//! REXIO: an in-memory hash index of addresses, with records written about once.
//!
//! CleaveDB with a hash keyspace is compared with RocksDB and BlobDB, which stand for the paper's four LSM trees: SifrDB, WipDB
//! and LevelDB are not engines of this program. Amplification is bytes of the device over bytes of the user (with
//! `--own-device` those that the device counts), of a load, and of uniform updates after 0 to 3 rounds of them, which stands
//! for the paper's amplification over time: garbage is collected from the second round on. The paper's 0.98 is less than
//! one byte for each because it counts blocks of its own, and frees no space; a record here carries its key, so
//! that it can be verified and found after a crash.
//!
//! The files in which CleaveDB saves its index from time to time are among the bytes of the device; a row more gives amplification
//! apart from them. Each run is in a memory control group: a fifth of the data, or for values of 128 B the index and 25 % more.
//! Engines get half of the group as their memory; with `--memory`, or where there is no such group, they get a part of the data. The
//! key range is narrowed by records, with as many updates in all. Writes are in batches of 16, which stands for the paper's write
//! buffer, mixes of reads and writes one by one.

use super::experiment::{Experiment, How, MemoryLimit, Metric, Over, Paper, Spec, Variant};
use crate::distribution::Distribution;
use crate::size::Lengths;

/// 268 GB in the paper, with 256 GB of memory.
pub const PAPER: Paper = Paper {
    name: "rexio",
    title: "REXIO: in-memory extendible hashing, write amplification near 1",
    data: 600 << 20,
    key_size: 16,
    data_per_memory: 5,
    fast_percent: None,
    seconds: None,
    engines: Some(&["cleave", "rocksdb", "blobdb"]),
    experiments: EXPERIMENTS,
};

/// A hash keyspace, with the other engines beside it.
const HASH: Option<Variant> = Some(Variant { alone: false, ..Variant::alone("hash", "keyspace=hash") });
/// An ordered keyspace.
const ORDERED: Option<Variant> = Some(Variant::alone("ordered", "keyspace=ordered"));

const BASE: Spec =
    Spec { variant: HASH, batch: 16, cgroup: Some(MemoryLimit::DataOver(5)), ..Spec::of("fillrandom", 2048) };
/// The load.
const LOAD: Spec = BASE;
/// As many uniform updates as records.
const UPDATES: Spec = Spec { workload: "overwrite", distribution: Some(Distribution::Uniform), ..BASE };
/// Gets from memory, of which there is twice as much as data.
const GETS: Spec =
    Spec { workload: "readrandom", batch: 1, cgroup: None, data_per_memory: Some(1), memory: 2, ..sized(128, BASE) };
/// Reads and writes one by one, by 16 clients.
const MIXED: Spec = Spec { batch: 1, threads: 16, ..BASE };

const fn aged(age: u64, spec: Spec) -> Spec {
    Spec { age, ..spec }
}

const fn sized(value_size: usize, spec: Spec) -> Spec {
    Spec { value_size: Lengths::Fixed(value_size), ..spec }
}

/// Values of 128 B, whose index takes a larger part of the data.
const fn small(spec: Spec) -> Spec {
    Spec { data_per_memory: Some(2), cgroup: Some(MemoryLimit::IndexAnd(25)), ..sized(128, spec) }
}

/// As many updates of fewer keys.
const fn range(fewer: u64) -> Spec {
    Spec { fewer, operations_per_record: Some(fewer), ..UPDATES }
}

const fn mix(workload: &'static str) -> Spec {
    Spec { workload, ..MIXED }
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

/// Amplification of a run.
const fn written(name: &'static str, claim: &'static str, claimed: Range, spec: Spec) -> Experiment {
    over(name, claim, claimed, spec, Metric::Amplification, Over::Nothing)
}

/// Amplification of a run apart from saved indexes.
const fn apart(name: &'static str, claim: &'static str, spec: Spec) -> Experiment {
    over(name, claim, ONCE, spec, Metric::AmplificationApart, Over::Nothing)
}

const fn rocks(name: &'static str, claim: &'static str, claimed: Range, spec: Spec) -> Experiment {
    over(name, claim, claimed, spec, Metric::Throughput, Over::RocksDb)
}

/// Part of the throughput of writes alone.
const fn kept(name: &'static str, claim: &'static str, claimed: Range, workload: &'static str) -> Experiment {
    over(name, claim, claimed, mix(workload), Metric::Throughput, Over::OursIn("mixed:0"))
}

const ONCE: Range = Some((0.98, 1.04));
const FLAT: &str = "1.04 falling to 0.98, flat";
const KEEPS: Range = Some((0.4, 0.8));
const KEEPS_WORDS: &str = "keeps 40-80% of the throughput of writes only";

#[rustfmt::skip]
const EXPERIMENTS: &[Experiment] = &[
    written("amplification, load", "1.04 falling to 0.98", ONCE, LOAD),
    apart("amplification, load, apart from saved indexes", "1.04 falling to 0.98", LOAD),
    over("amplification, load, RocksDB", "0.98 against 12.6 of RocksDB", Some((0.078, 0.083)), LOAD, Metric::Amplification, Over::RocksDb),
    written("amplification, first updates", "1.04 falling to 0.98", ONCE, UPDATES),
    apart("amplification, first updates, apart from saved indexes", "1.04 falling to 0.98", UPDATES),
    written("amplification, after one round", "1.04 falling to 0.98", ONCE, aged(1, UPDATES)),
    apart("amplification, after one round, apart from saved indexes", "1.04 falling to 0.98", aged(1, UPDATES)),
    written("amplification, after three rounds", "1.04 falling to 0.98", ONCE, aged(3, UPDATES)),
    apart("amplification, after three rounds, apart from saved indexes", "1.04 falling to 0.98", aged(3, UPDATES)),
    over("amplification, after three rounds, RocksDB", "0.98 against 12.6 of RocksDB", Some((0.078, 0.083)), aged(3, UPDATES), Metric::Amplification, Over::RocksDb),
    over("amplification, after three rounds, BlobDB", "no claim", None, aged(3, UPDATES), Metric::Amplification, Over::BlobDb),
    written("amplification, load, 128 B", FLAT, ONCE, small(LOAD)),
    apart("amplification, load, 128 B, apart from saved indexes", FLAT, small(LOAD)),
    written("amplification, load, 512 B", FLAT, ONCE, sized(512, LOAD)),
    apart("amplification, load, 512 B, apart from saved indexes", FLAT, sized(512, LOAD)),
    written("amplification, load, 4 KiB", FLAT, ONCE, sized(4096, LOAD)),
    apart("amplification, load, 4 KiB, apart from saved indexes", FLAT, sized(4096, LOAD)),
    written("amplification, after three rounds, 128 B", FLAT, ONCE, small(aged(3, UPDATES))),
    apart("amplification, after three rounds, 128 B, apart from saved indexes", FLAT, small(aged(3, UPDATES))),
    written("amplification, after three rounds, 512 B", FLAT, ONCE, sized(512, aged(3, UPDATES))),
    apart("amplification, after three rounds, 512 B, apart from saved indexes", FLAT, sized(512, aged(3, UPDATES))),
    written("amplification, half of the key range", FLAT, ONCE, range(2)),
    apart("amplification, half of the key range, apart from saved indexes", FLAT, range(2)),
    written("amplification, a quarter of the key range", FLAT, ONCE, range(4)),
    apart("amplification, a quarter of the key range, apart from saved indexes", FLAT, range(4)),
    written("amplification, an eighth of the key range", FLAT, ONCE, range(8)),
    apart("amplification, an eighth of the key range, apart from saved indexes", FLAT, range(8)),
    rocks("writes of 2 KiB", "124 Kops/s against 6.44 of RocksDB", Some((19.2, 19.2)), LOAD),
    rocks("updates of 2 KiB, after three rounds", "no claim", None, aged(3, UPDATES)),
    over("updates of 2 KiB, after three rounds, BlobDB", "no claim", None, aged(3, UPDATES), Metric::Throughput, Over::BlobDb),
    rocks("writes of 512 B", "no claim", None, sized(512, LOAD)),
    rocks("updates of 512 B, after three rounds", "no claim", None, sized(512, aged(3, UPDATES))),
    rocks("writes of 128 B", "no claim", None, small(LOAD)),
    rocks("updates of 128 B, after three rounds", "no claim", None, small(aged(3, UPDATES))),
    rocks("gets of 128 B from memory", "no claim", None, GETS),
    rocks("reads and writes 1:9", "81 Kops/s", None, mix("mixed:10")),
    rocks("reads and writes 3:7", "no number", None, mix("mixed:30")),
    rocks("reads and writes 5:5", "3.4x SifrDB", None, mix("mixed:50")),
    rocks("reads and writes 7:3", "no number", None, mix("mixed:70")),
    rocks("reads and writes 9:1", "80 Kops/s", None, mix("mixed:90")),
    kept("retention, 1:9", KEEPS_WORDS, KEEPS, "mixed:10"),
    kept("retention, 3:7", KEEPS_WORDS, KEEPS, "mixed:30"),
    kept("retention, 5:5", KEEPS_WORDS, KEEPS, "mixed:50"),
    kept("retention, 7:3", KEEPS_WORDS, KEEPS, "mixed:70"),
    kept("retention, 9:1", KEEPS_WORDS, KEEPS, "mixed:90"),
    over("5:5, ordered keyspace", "no claim: gain of the index in memory", None, mix("mixed:50"), Metric::Throughput, Over::Ours(ORDERED)),
    over("bytes of a delete", "a small sequential entry", None, Spec { workload: "deleterandom", batch: 1, ..BASE }, Metric::WrittenPerOperation, Over::Nothing),
];
