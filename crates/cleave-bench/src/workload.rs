//! The workloads by name: whether records are loaded first, the mix of operations, and the distribution of keys. They are
//! plain data; `client.rs` executes the operations.

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;
use crate::failure::{Failure, Result};
use crate::keys::Order;
use crate::size::{KEY_BYTES_MIN, Lengths};

/// One operation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// Read a record.
    Read,
    /// Write a whole value, whether or not the record exists.
    Update,
    /// Write a new record.
    Insert,
    /// Read records in key order.
    Scan,
    /// Read a record, change one field and write it back.
    Rmw,
    /// Merge one field into a record.
    Merge,
    /// Delete a record.
    Delete,
    /// Wait until the store has no background work left.
    Settle,
}

impl Operation {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Update => "update",
            Operation::Insert => "insert",
            Operation::Scan => "scan",
            Operation::Rmw => "rmw",
            Operation::Merge => "merge",
            Operation::Delete => "delete",
            Operation::Settle => "settle",
        }
    }

    /// Whether `--batch` commits several of them together.
    pub fn is_batched(self) -> bool {
        matches!(self, Operation::Update | Operation::Insert)
    }
}

/// The number of records that a scan reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScanLength {
    /// The value of `--scan-length`.
    Asked,
    /// Always this many.
    Fixed(u64),
    /// From one to this many, all equally likely.
    UpTo(u64),
}

/// The number of operations of a workload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Count {
    /// This fraction of the number of records, unless `--operations` gives another number or `--phase-seconds` ends it.
    About(u64, u64),
    /// The number of records, whatever the options.
    Records,
    /// One.
    Once,
}

/// The origin of the records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// They are generated from their numbers.
    Numbers,
    /// The data set of the tour.
    Cities,
    /// The records of `--input`.
    Input,
    /// The trace of `--input`, which also contains the operations.
    Trace,
}

/// One workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Its name on the command line.
    pub name: String,
    /// The origin of its records.
    pub origin: Origin,
    /// Whether all records are loaded first, in random order (those of a file: in the order of the file).
    pub loaded: bool,
    /// The order of records by key.
    pub order: Order,
    /// Operations and their weights; a trace has its own.
    pub mix: Vec<(Operation, u32)>,
    /// The distribution of keys, unless overridden.
    pub distribution: Distribution,
    /// The operation of an additional background client; it is measured, but not counted.
    pub background: Option<Operation>,
    /// The background client does one operation for each this many of the others, if it can. None: as fast as it can.
    pub background_follows: Option<u64>,
    /// The number of records that a scan reads.
    pub scan: ScanLength,
    /// The number of operations.
    pub operations: Count,
    /// Lengths of keys and values, if the workload defines them.
    pub lengths: Option<(Lengths, Lengths)>,
}

impl Workload {
    /// One operation on the records of this workload.
    pub fn only(&self, operation: Operation, distribution: Distribution) -> Workload {
        let mix = vec![(operation, 1)];
        Workload { mix, distribution, background: None, background_follows: None, ..self.clone() }
    }

    /// The load of its records: each is written once, in the order of their numbers.
    pub fn load(&self) -> Workload {
        let load = self.only(Operation::Insert, Distribution::Uniform);
        Workload { loaded: false, operations: Count::Records, ..load }
    }

    /// Whether a client of it may perform `operation`.
    pub fn has(&self, operation: Operation) -> bool {
        self.mix.iter().any(|&(other, weight)| other == operation && weight > 0)
    }

    /// Whether `--batch` makes commits of some of its operations while it executes others one by one.
    pub fn is_partly_batched(&self) -> bool {
        let has = |is_batched| self.mix.iter().any(|&(other, weight)| other.is_batched() == is_batched && weight > 0);
        has(true) && has(false)
    }
}

/// Lengths of the keys and values of `mixed`: values of all sizes from 8 B to 64 KiB, as many small as large ones.
pub const MIXED_LENGTHS: (Lengths, Lengths) = (Lengths::Fixed(24), Lengths::LogUniform { low: 8, high: 64 << 10 });

/// The names of the workloads; R stands for a percentage of reads, or of scans.
#[rustfmt::skip]
pub const NAMES: &[&str] = &[
    "fillseq", "fillrandom", "overwrite", "readrandom", "readwhilewriting", "seekrandom", "deleterandom",
    "mergerandom", "readwhilemerging", "ycsb-a", "ycsb-b", "ycsb-c", "ycsb-d", "ycsb-e", "ycsb-f", "ycsb-am",
    "ycsb-bm", "ycsb-fm", "merge:R", "rmw:R", "up2x", "production", "hashkv-updates", "mixed:R", "scanning:R", "kvaccel-a", "kvaccel-b",
    "kvaccel-c", "kvaccel-d", "kdsep-w3", "mixed", "settle", "cities", "input", "trace",
];

/// The workload called `name`.
///
/// # Errors
/// If there is none.
pub fn find(name: &str) -> Result<Workload> {
    use Distribution::{Latest, Uniform};
    use Operation::{Delete, Insert, Merge, Read, Rmw, Scan, Settle, Update};

    const ZIPFIAN: Distribution = Distribution::YCSB;
    let base = Workload {
        name: name.to_owned(),
        origin: Origin::Numbers,
        loaded: true,
        order: Order::Hashed,
        mix: Vec::new(),
        distribution: Uniform,
        background: None,
        background_follows: None,
        scan: ScanLength::Asked,
        operations: Count::About(1, 1),
        lengths: None,
    };
    let mixed = |distribution, mix: &[(Operation, u32)]| Workload { distribution, mix: mix.to_vec(), ..base.clone() };
    let up2x = (
        Lengths::Normal { mean: 10.45, deviation: 1.4, min: KEY_BYTES_MIN },
        Lengths::Normal { mean: 46.8, deviation: 11.6, min: 1 },
    );
    let (stem, percent) = match name.split_once(':') {
        Some((stem, percent)) => (stem, Some(reads(name, percent)?)),
        None => (name, None),
    };
    Ok(match (stem, percent) {
        ("fillseq", None) => Workload { loaded: false, order: Order::Sequential, ..mixed(Uniform, &[(Insert, 1)]) },
        ("fillrandom" | "kvaccel-a", None) => Workload { loaded: false, ..mixed(Uniform, &[(Update, 1)]) },
        ("overwrite", None) => mixed(ZIPFIAN, &[(Update, 1)]),
        ("readrandom", None) => mixed(Uniform, &[(Read, 1)]),
        ("readwhilewriting", None) => Workload { background: Some(Update), ..mixed(Uniform, &[(Read, 1)]) },
        ("seekrandom", None) => mixed(Uniform, &[(Scan, 1)]),
        ("deleterandom", None) => mixed(Uniform, &[(Delete, 1)]),
        ("mergerandom", None) => mixed(Uniform, &[(Merge, 1)]),
        ("readwhilemerging", None) => Workload { background: Some(Merge), ..mixed(Uniform, &[(Read, 1)]) },
        ("ycsb-a", None) => mixed(ZIPFIAN, &[(Read, 50), (Update, 50)]),
        ("ycsb-b", None) => mixed(ZIPFIAN, &[(Read, 95), (Update, 5)]),
        ("ycsb-c", None) => mixed(ZIPFIAN, &[(Read, 1)]),
        ("ycsb-d", None) => mixed(Latest, &[(Read, 95), (Insert, 5)]),
        ("ycsb-e", None) => Workload { scan: ScanLength::UpTo(100), ..mixed(ZIPFIAN, &[(Scan, 95), (Insert, 5)]) },
        ("ycsb-f", None) => mixed(ZIPFIAN, &[(Read, 50), (Rmw, 50)]),
        ("ycsb-am" | "ycsb-fm", None) => mixed(ZIPFIAN, &[(Read, 50), (Merge, 50)]),
        ("ycsb-bm", None) => mixed(ZIPFIAN, &[(Read, 95), (Merge, 5)]),
        ("merge", Some(reads)) => mixed(ZIPFIAN, &[(Read, reads), (Merge, 100 - reads)]),
        ("rmw", Some(reads)) => mixed(ZIPFIAN, &[(Read, reads), (Rmw, 100 - reads)]),
        ("mixed", Some(reads)) => mixed(ZIPFIAN, &[(Read, reads), (Update, 100 - reads)]),
        ("scanning", Some(scans)) => {
            let mix = [(Scan, scans), (Update, 100 - scans)];
            Workload { scan: ScanLength::Fixed(50), ..mixed(ZIPFIAN, &mix) }
        }
        ("up2x", None) => {
            Workload { lengths: Some(up2x), ..mixed(ZIPFIAN, &[(Merge, 9253), (Read, 746), (Update, 1)]) }
        }
        ("kdsep-w3", None) => mixed(ZIPFIAN, &[(Update, 50), (Merge, 50)]),
        ("mixed", None) => {
            let scan = ScanLength::Fixed(50);
            let mix = [(Read, 70), (Update, 20), (Delete, 5), (Scan, 5)];
            Workload { scan, lengths: Some(MIXED_LENGTHS), ..mixed(ZIPFIAN, &mix) }
        }
        ("settle", None) => Workload { operations: Count::Once, ..mixed(Uniform, &[(Settle, 1)]) },
        ("production", None) => mixed(ZIPFIAN, &[(Update, 57), (Read, 41), (Scan, 2)]),
        ("hashkv-updates", None) => Workload { operations: Count::About(3, 1), ..mixed(ZIPFIAN, &[(Update, 1)]) },
        ("kvaccel-b" | "kvaccel-c", None) => {
            let writes = if stem == "kvaccel-b" { 9 } else { 4 };
            let writer = mixed(Uniform, &[(Update, 1)]);
            Workload { background: Some(Read), background_follows: Some(writes), ..writer }
        }
        ("kvaccel-d", None) => {
            let scan = ScanLength::Fixed(1024);
            Workload { scan, operations: Count::About(1, 100), ..mixed(Uniform, &[(Scan, 1)]) }
        }
        ("cities", None) => Workload { origin: Origin::Cities, ..mixed(ZIPFIAN, &[(Read, 50), (Update, 50)]) },
        ("input", None) => Workload { origin: Origin::Input, ..mixed(ZIPFIAN, &[(Read, 50), (Update, 50)]) },
        ("trace", None) => Workload { origin: Origin::Trace, loaded: false, ..base.clone() },
        _ => return Err(Failure::new(format!("there is no workload {name:?}; there are: {}", NAMES.join(" ")))),
    })
}

fn reads(name: &str, percent: &str) -> Result<u32> {
    percent
        .parse()
        .ok()
        .filter(|percent| (0..=100).contains(percent))
        .ok_or_else(|| Failure::new(format!("workload {name:?}: a percentage of reads must follow the colon")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workload_is_partly_batched_if_it_also_does_other_operations() {
        let is_partly = |name| find(name).unwrap().is_partly_batched();
        assert!(["ycsb-a", "ycsb-d", "ycsb-e", "mixed", "mixed:50"].into_iter().all(is_partly));
        assert!(
            !["fillseq", "overwrite", "mixed:0", "mixed:100", "ycsb-f", "readwhilewriting"].into_iter().any(is_partly)
        );
    }

    #[test]
    fn every_name_is_a_workload_and_other_names_are_not() {
        for name in NAMES {
            let name = name.replace('R', "30");
            let workload = find(&name).unwrap();
            assert_eq!(workload.name, name);
            assert!(workload.origin == Origin::Trace || workload.mix.iter().any(|(_, weight)| *weight > 0));
        }
        for name in ["", "ycsb", "ycsb-g", "merge", "rmw", "rmw:", "rmw:101", "mixed:-1", "scanning", "ycsb-a:50"] {
            assert!(find(name).is_err(), "{name:?}");
        }
    }
}
