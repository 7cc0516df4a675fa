//! Placement: which values lie together, and which files are collected next. A database has one placement, chosen at
//! each open; extents of another placement are collected as the new one chooses.
//!
//! Everything here is a pure function of the ledger and of what a job has read.

pub mod hash;
pub mod range;
pub mod log;
pub mod choice;

use std::collections::BTreeMap;

use crate::base::FileId;
use crate::format::group::{Group, HashGroup, group_hash};
use crate::format::reorder_credit::ReorderCredit;
use crate::values::candidate::Candidate;

/// Which unit of files is collected first (HashKV section 3.3 and experiment 9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VictimPolicy {
    /// The one with the largest share of garbage.
    #[default]
    Greedy,
    /// The one with the most garbage, times its age, per byte read and written to collect it (LFS).
    CostBenefit,
    /// One drawn at random among this many with the largest shares: 1 is greedy, a very large number is random.
    GreedyRandom(u32),
}

/// A live record, as placement sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Survivor<'a> {
    /// The [sort key](Placement::order) of its key.
    pub order: u64,
    /// Its key, with the keyspace.
    pub key: &'a [u8],
    /// Its length in bytes.
    pub bytes: u64,
}

/// What a job knows beyond its own records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PlacementContext {
    /// The groups of the extents that are not collected, and the live bytes in each.
    pub groups: BTreeMap<Group, u64>,
    /// Live bytes in logs, which will later be moved into the groups.
    pub in_logs: u64,
    /// Estimated percentage of the records at hand that arrived in random key order: as many bytes of other logs are
    /// expected to fall among the same keys.
    pub random_percent: u64,
}

/// Decides which values lie together.
pub trait Placement: Send + Sync {
    /// The files to collect together next, if any has garbage; enough of them to fill a segment.
    fn victims(&self, candidates: &[Candidate]) -> Vec<FileId>;

    /// The files to collect together next to restore key order. Each such job should improve the order; that reordering
    /// terminates does not depend on it, see [`to_reorder`]. `places` are keys, sorted, near which scans found values
    /// scattered: the ranges with most of them go first.
    fn reorder_candidates(&self, _candidates: &[Candidate], _places: &[Vec<u8>]) -> Vec<FileId> {
        Vec::new()
    }

    /// Whether each record is looked up by itself, in place of a survey (WiscKey section 3.3.2).
    fn looks_up_each(&self) -> bool {
        false
    }

    /// The sort key of records before they are judged; records with the same one are sorted by key.
    fn order(&self, full_key: &[u8]) -> u64 {
        group_hash(full_key)
    }

    /// Whether the order is that of keys, and extents are written in it.
    fn keeps_key_order(&self) -> bool {
        false
    }

    /// The bounds, ascending, that an extent of records in key order should not cross; `None` if extents have no key ranges.
    fn borders(&self, _candidates: &[Candidate]) -> Option<Vec<Vec<u8>>> {
        None
    }

    /// Whether two collections at once may choose groups without knowing of each other's: they choose among those that are there.
    fn has_groups(&self, _candidates: &[Candidate]) -> bool {
        true
    }

    /// The groups of the sorted records: each group, and how many of the next records it takes. A group may occur more
    /// than once.
    fn groups(&self, survivors: &[Survivor<'_>], context: &PlacementContext) -> Vec<(Group, usize)>;

    /// Whether records that have not changed since they were last moved are separated from the others.
    fn separates_cold(&self) -> bool;
}

/// The extents of each group: first the groups by hash, then the clusters of ranges; in order.
pub fn groups(candidates: &[Candidate]) -> Vec<Vec<&Candidate>> {
    let mut by_hash = BTreeMap::<HashGroup, Vec<&Candidate>>::new();
    for (extent, group) in candidates.iter().filter_map(|file| Some((file, file.hash_group()?))) {
        by_hash.entry(group).or_default().push(extent);
    }
    by_hash.into_values().chain(range::extents_of_clusters(candidates)).collect()
}

/// The files to reorder next and their live bytes, if the credit suffices to move these. Each job writes something, at
/// least a redirect table, and is charged for it; so reordering terminates whatever the placement chooses (decision 034).
pub fn to_reorder(
    placement: &dyn Placement,
    candidates: &[Candidate],
    places: &[Vec<u8>],
    credit: ReorderCredit,
) -> Option<(Vec<FileId>, u64)> {
    let files = placement.reorder_candidates(candidates, places);
    let chosen = candidates.iter().filter(|candidate| files.contains(&candidate.file));
    let live = chosen.map(Candidate::live_bytes).sum();
    (!files.is_empty() && credit.affords(live)).then_some((files, live))
}

impl PlacementContext {
    /// Live bytes in extents that are not collected.
    fn bytes_in_groups(&self) -> u64 {
        self.groups.values().sum()
    }
}
