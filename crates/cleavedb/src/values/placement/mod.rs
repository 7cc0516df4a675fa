//! Placement: which values lie together, and which files give their space back next. One for a database, at each open; what
//! another one left is emptied as the new one chooses.
//!
//! Everything here is a pure function of the ledger and of what a job has read.

pub mod hash;
pub mod range;
pub mod log;

use std::collections::BTreeMap;

use crate::base::FileId;
use crate::format::group::{Group, HashGroup, group_hash};
use crate::format::interval::Interval;
use crate::format::reorder_credit::ReorderCredit;
use crate::format::values::Temperature;

/// A file of values as the choice sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its number: the lower, the older.
    pub file: FileId,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Of these, bytes of records that something leads to.
    pub live: u64,
    /// Which keys an extent holds, and how often they change; `None` for a log.
    pub part: Option<(Group, Temperature)>,
}

/// Garbage that may lie around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GarbageLimit {
    /// Percentage of live bytes that may be garbage (default 30, decision record 021).
    pub percent: u64,
    /// And so much more, in bytes.
    pub bytes: u64,
}

impl GarbageLimit {
    /// In bytes, for so many that are live.
    pub fn of(self, live: u64) -> u64 {
        live / 100 * self.percent + self.bytes
    }
}

/// Emptying begins at this share of what is allowed, in hundredths, so that it is done before writers must wait.
const BEGIN_PERCENT: u64 = 65;

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
pub struct Survivor<'a> {
    /// The [order](Placement::order) of its key.
    pub order: u64,
    /// Its key, with the keyspace.
    pub key: &'a [u8],
    /// Its bytes.
    pub bytes: u64,
}

/// What a job knows beside its own records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementContext {
    /// The groups of extents that stay, and the live bytes in each.
    pub groups: BTreeMap<Group, u64>,
    /// Live bytes in logs, which groups will have to take some day.
    pub in_logs: u64,
    /// Of the records at hand that came from logs, so many in a hundred seem to have come in an order of chance: as many
    /// bytes of other logs are expected to lie among the same keys.
    pub chance_percent: u64,
}

/// Decides which values lie together.
pub trait Placement: Send + Sync {
    /// The files to empty together next, once there is too much garbage; whatever else, of which there is enough for a
    /// segment.
    fn victims(&self, candidates: &[Candidate], garbage_limit: GarbageLimit) -> Vec<FileId>;

    /// The files to empty together next for the sake of order, when nothing else is to be done. Each such job should leave more
    /// order; that reordering ends does not depend on it, see [`to_reorder`].
    fn reorder_candidates(&self, _candidates: &[Candidate]) -> Vec<FileId> {
        Vec::new()
    }

    /// How the live records of victims are found.
    fn liveness(&self) -> Liveness;

    /// By this records are sorted, and by their keys where it is the same.
    fn order(&self, full_key: &[u8]) -> u64 {
        group_hash(full_key)
    }

    /// The order is that of keys, and extents are written in it.
    fn sorts(&self) -> bool {
        false
    }

    /// The groups of records, which come in their order: how many of them are in the first, in the one behind it, and on. A
    /// group may come more than once.
    fn groups(&self, survivors: &[Survivor<'_>], around: &PlacementContext) -> Vec<(Group, usize)>;

    /// Records that have not changed since they were last moved lie apart.
    fn parts_cold(&self) -> bool;
}

/// The extents of each group: by hash, then those of each cluster of ranges; in order.
pub fn groups(candidates: &[Candidate]) -> Vec<Vec<&Candidate>> {
    let mut by_hash = BTreeMap::<HashGroup, Vec<&Candidate>>::new();
    for (extent, group) in candidates.iter().filter_map(|file| Some((file, file.hash_group()?))) {
        by_hash.entry(group).or_default().push(extent);
    }
    by_hash.into_values().chain(range::extents_of_clusters(candidates)).collect()
}

/// The files to reorder next, if the credit affords to move what is live in them. Each job writes something, a redirect table at
/// least, and what it writes is charged; so reordering ends whatever the placement chooses (decision 034).
pub fn to_reorder(placement: &dyn Placement, candidates: &[Candidate], credit: ReorderCredit) -> Option<Vec<FileId>> {
    let files = placement.reorder_candidates(candidates);
    let chosen = candidates.iter().filter(|candidate| files.contains(&candidate.file));
    let live = chosen.map(Candidate::live).sum();
    (!files.is_empty() && credit.affords(live)).then_some(files)
}

/// There is enough garbage in all files together.
fn is_due(candidates: &[Candidate], garbage_limit: GarbageLimit) -> bool {
    let live: u64 = candidates.iter().map(|candidate| candidate.live.min(candidate.bytes)).sum();
    let garbage: u64 = candidates.iter().map(Candidate::garbage).sum();
    garbage > garbage_limit.of(live) / 100 * BEGIN_PERCENT
}

impl PlacementContext {
    /// Live bytes in extents that stay.
    fn in_groups(&self) -> u64 {
        self.groups.values().sum()
    }
}

impl Candidate {
    fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }

    /// The group of an extent, if it is one by hash.
    fn hash_group(&self) -> Option<HashGroup> {
        self.part.as_ref()?.0.as_hash()
    }

    /// The range of an extent that has one.
    fn range(&self) -> Option<&Interval> {
        self.part.as_ref()?.0.as_range()
    }

    /// Live bytes, which are counted from above, as far as they can be true.
    fn live(&self) -> u64 {
        self.live.min(self.bytes)
    }
}
