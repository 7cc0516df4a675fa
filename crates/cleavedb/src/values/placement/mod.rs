//! Placement: which values lie together, and which files give their space back next. One for a database, at each open; what
//! another one left is emptied as the new one chooses.
//!
//! Everything here is a pure function of the ledger and of what a job has read.

pub mod hash;
pub mod log;

use std::collections::BTreeSet;

use crate::base::FileId;
use crate::format::group::Group;
use crate::format::values::Warmth;

/// A file of values as the choice sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Candidate {
    /// Its number: the lower, the older.
    pub file: FileId,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Of these, bytes of records that something leads to.
    pub live: u64,
    /// Which keys an extent holds, and how often they change; `None` for a log.
    pub part: Option<(Group, Warmth)>,
}

/// Garbage that may lie around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowance {
    /// In hundredths of what is live (DESIGN section 4: 30).
    pub percent: u64,
    /// And so much more, in bytes.
    pub bytes: u64,
}

impl Allowance {
    /// In bytes, for so many that are live.
    pub fn of(self, live: u64) -> u64 {
        live / 100 * self.percent + self.bytes
    }
}

/// Emptying begins at this share of what is allowed, in hundredths, so that it is done before writers must wait.
const BEGIN_PERCENT: u64 = 60;

/// Which unit of files is emptied first (HashKV section 3.3 and experiment 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VictimPolicy {
    /// The one with the most garbage for its size.
    #[default]
    Greedy,
    /// The one with the most garbage, times its age, for what it costs to read it and to write what is live (LFS).
    CostBenefit,
    /// One by chance of so many with the most garbage: of 1 the greedy choice, of very many any.
    GreedyRandom(u32),
}

/// How it is found out which records of a file are live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// Of versions that no snapshot tells apart the newest lives. If the ledger says that this leaves much that is dead, the
    /// rest is looked up.
    NewestWins,
    /// Each record is looked up in the tables, many together in the order of their keys.
    LookUp,
    /// Each is looked up by itself as it comes (WiscKey section 3.3.2).
    LookUpEach,
}

/// A record that lives on, as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor {
    /// What it is grouped by.
    pub hash: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What a job knows beside its own records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The groups of extents that stay.
    pub groups: BTreeSet<Group>,
    /// Live bytes in these.
    pub in_groups: u64,
    /// Live bytes in logs, which groups will have to take some day.
    pub in_logs: u64,
}

/// Decides which values lie together.
pub trait Placement: Send + Sync {
    /// The files to empty together next, once there is too much garbage; whatever else, of which there is enough for a
    /// segment.
    fn victims(&self, candidates: &[Candidate], allowance: Allowance) -> Vec<FileId>;

    /// How the live records of victims are found.
    fn liveness(&self) -> Liveness;

    /// The groups of records, which come in the order of their hashes, one after the other.
    fn groups(&self, survivors: &[Survivor], around: &Surroundings) -> Vec<Group>;

    /// Records that have not changed since they were last moved lie apart.
    fn parts_cold(&self) -> bool;
}

/// There is enough garbage in all files together.
fn is_due(candidates: &[Candidate], allowance: Allowance) -> bool {
    let live: u64 = candidates.iter().map(|candidate| candidate.live.min(candidate.bytes)).sum();
    let garbage: u64 = candidates.iter().map(Candidate::garbage).sum();
    garbage > allowance.of(live) / 100 * BEGIN_PERCENT
}

impl Candidate {
    fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }
}
