//! The options of an open database in the form that the engine uses, and the public types of those that it takes
//! unchanged. `api/options.rs` creates [`Settings`] at open.

use std::time::Duration;

use crate::base::{Error, Result};
use crate::bypass::rollback::Rollback;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::tuning::tuner::{Limits, MERGE_RUNS_MAX, MERGE_RUNS_MIN, Policy};
use crate::format::compression::Compression;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process. The fastest, and the default.
    #[default]
    Buffered,
    /// Loss of power: the write returns once it, and all writes before it, are on stable storage.
    Sync,
    /// Loss of power, once this time has passed since the write returned.
    Interval(Duration),
}

/// Options of one write, which override those of the database. A [`Durability`] converts to these options.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
    pub(crate) stall_max: Option<Duration>,
}

impl WriteOptions {
    /// The options of the database.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// Sets what the write survives once it has returned.
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = Some(durability);
        self
    }

    /// Sets how long the write may wait for background work; zero means that it never waits. If the write would have to
    /// wait longer, it is not done and returns [`Error::WouldStall`]. The limit does not cover the sync that
    /// [`Durability::Sync`] requires.
    pub fn stall_max(mut self, limit: Duration) -> WriteOptions {
        self.stall_max = Some(limit);
        self
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> WriteOptions {
        WriteOptions::new().durability(durability)
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBackend {
    /// `Ring` if the system allows it, else `Plain`.
    #[default]
    Auto,
    /// A mapped ring and large direct writes; an error at open if the system does not allow it.
    Ring,
    /// Writes through the page cache.
    Plain,
}

/// Rejects a compression that this build does not include.
pub(crate) fn check_compression(compression: Compression) -> Result<()> {
    match compression.is_available() {
        true => Ok(()),
        false => Err(Error::input(format!("compression {compression:?} needs the cargo feature `zstd` of cleavedb"))),
    }
}

/// Rejects a sync interval shorter than a millisecond.
pub(crate) fn check_interval(interval: Duration) -> Result<()> {
    match interval >= Duration::from_millis(1) {
        true => Ok(()),
        false => Err(Error::input("a sync interval is at least one millisecond; use Sync for less")),
    }
}

/// The options as the engine uses them, with the sizes derived from them.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub memory_budget: usize,
    pub durability: Durability,
    pub compression: Compression,
    pub compression_by_level: Vec<Compression>,
    pub block_size: usize,
    pub filter_bits: u32,
    pub background_threads: usize,
    pub scheduling: Scheduling,
    /// Bytes per second.
    pub background_io_limit: Option<u64>,
    pub bypass: Bypass,
    pub read_only: bool,
    pub tuning: Tuning,
}

impl Settings {
    /// The compression of a level, for keyspaces without an option of their own.
    pub fn compression_at(&self, level: usize) -> Compression {
        let levels = &self.compression_by_level;
        levels.get(level).or(levels.last()).copied().unwrap_or(self.compression)
    }
}

/// How the scheduler of background work is tuned while the database runs (decision record 047). Takes effect at each open.
///
/// It has four settings: how many runs of similar size are merged at once in memory (DecouKV's IMTN), how many bytes of runs
/// a flush writes (DFTS), the capacity of the first level below HL0, and how many threads may compact.
/// [`Stats::scheduling`](crate::Stats::scheduling) shows them, and the last changes with their reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// By what holds background work up: the processors, the devices, both, or neither. The default.
    #[default]
    Auto,
    /// The same, but the capacities of levels stay as they are.
    AutoFixedLevels,
    /// Not at all. For measurements, and for those who know their load.
    Static {
        /// Runs of a merge, from 2 to 16; `None`: 2.
        merge_runs: Option<usize>,
        /// Bytes of runs in a flush. `None`: an eighth of the memory budget, from 2 to 32 MiB. The next possible number is taken: at
        /// least the bytes of an index table, at most twice the default and 3/16 of the budget.
        flush_bytes: Option<u64>,
    },
    /// By overflow, with larger flushes and more threads (ADOC, FAST'23). For comparison.
    Adoc,
}

impl Scheduling {
    /// Rejects settings that a scheduler cannot work with.
    pub(crate) fn check(self) -> Result<()> {
        let runs = MERGE_RUNS_MIN..=MERGE_RUNS_MAX;
        match self {
            Scheduling::Static { merge_runs: Some(chosen), .. } if !runs.contains(&chosen) => {
                Err(Error::input(format!("a merge takes from {MERGE_RUNS_MIN} to {MERGE_RUNS_MAX} runs, not {chosen}")))
            }
            Scheduling::Static { flush_bytes: Some(0), .. } => Err(Error::input("a flush of 0 bytes writes nothing")),
            _ => Ok(()),
        }
    }

    pub(crate) fn policy(self) -> Policy {
        match self {
            Scheduling::Auto => Policy::Auto { elastic: true },
            Scheduling::AutoFixedLevels => Policy::Auto { elastic: false },
            Scheduling::Static { .. } => Policy::Static,
            Scheduling::Adoc => Policy::Adoc,
        }
    }

    /// What may be chosen, and where it begins.
    pub(crate) fn limits(self, tuning: &Tuning) -> Limits {
        let mut limits = tuning.limits(tuning.setting());
        if let Scheduling::Static { merge_runs, flush_bytes } = self {
            limits.rest.merge_runs = merge_runs.unwrap_or(limits.rest.merge_runs);
            limits.rest.flush_bytes = limits.clamp(flush_bytes.unwrap_or(limits.rest.flush_bytes));
        }
        limits
    }
}

/// What writers do while background work cannot follow them (KVAccel, IPDPS 2025; decision record 055).
///
/// In either case they wait at the limits of memory, and where storage is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Bypass {
    /// They are slowed, smoothly, to what background work can follow. The default.
    #[default]
    Off,
    /// They go on at their own speed in bursts: once a detector predicts that they would be slowed, unflushed logs may hold sixteen
    /// times as much as otherwise (4 GiB more with a `memory_budget` of 256 MiB), on whichever tier has bandwidth to spare, and
    /// at most an eighth of the free space. An open after a crash has to read these logs. Values that are kept inline
    /// profit most; the front's memory for keys and small values stays limited by `memory_budget`.
    Spill,
    /// As `Spill`, but these logs are written to a device with a key-value interface ([`Options::kv_device`](crate::Options::kv_device)),
    /// as long as it has room, and move to the tiers later. Writers then use bandwidth that the tiers do not have.
    Device(Rollback),
}

/// When a bucket of merge operands is split in two ([`DeltaPlacement::Buckets`](crate::DeltaPlacement::Buckets)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BucketSplits {
    /// If this percentage of its size, from 10 to 100, is still full after it was rewritten.
    Above(u32),
    /// Never, and buckets are not joined either: a full one is folded into new values. For measurements (KDSep's "rewrite only").
    Never,
}

impl BucketSplits {
    /// Rejects percentages that make buckets too small, or larger than they may be.
    pub(crate) fn check(self) -> Result<()> {
        match self {
            BucketSplits::Above(percent) if !(10..=100).contains(&percent) => {
                Err(Error::input(format!("a bucket is split above 10 to 100 percent of its size, not {percent}")))
            }
            _ => Ok(()),
        }
    }

    /// The percentage; none if buckets are never split.
    pub(crate) fn percent(self) -> Option<u32> {
        match self {
            BucketSplits::Above(percent) => Some(percent),
            BucketSplits::Never => None,
        }
    }
}

/// When values are reordered, with [`ValuePlacement::Range`]: moved so that they lie in the order of their keys, next to
/// each other. The bytes written for it are bounded by those that users write (decision record 034).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValueReordering {
    /// Where scans read scattered values, the most scanned ranges first: while such scans go on, also in a busy store, and what
    /// is left of it once nobody reads or writes. A store that is not scanned rewrites nothing for order. The default (decision
    /// records 037 and 060).
    #[default]
    WhenScanned,
    /// Whenever the store is idle, whether it is scanned or not.
    WhenIdle,
    /// Never. Value GC still writes what it moves in the order of keys.
    Never,
}

/// How separated values are grouped in files when they are moved. The placement applies to the whole database and may
/// change at each open: values that another placement wrote stay readable, and are regrouped when they are moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValuePlacement {
    /// By hash of the key, in groups that are split as they grow and merged as they shrink (HashKV). Value GC finds
    /// most dead records of a group without looking them up in tables. Values are moved only to reclaim space.
    Hash,
    /// By range of keys, in key order, so that a scan reads adjacent records. Ranges are split as they grow and merged
    /// as they shrink. Value reordering ([`ValueReordering`]) also moves values that are not in key order;
    /// [`Stats::value_reorder_bytes_written`](crate::Stats) counts these bytes. The default (decision
    /// record 031).
    #[default]
    Range,
    /// In the order of arrival; space is reclaimed from the oldest end (WiscKey). For comparison.
    Log {
        /// Value GC looks up each record in the tables by itself, as in the paper, and not many together in key order.
        look_up_each: bool,
    },
}
