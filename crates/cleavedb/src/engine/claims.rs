//! The claims of a job: inputs and outputs that no other job may use while it runs. One function decides whether the
//! claims of two jobs conflict; the scheduler begins no job that conflicts with a running one.

use crate::base::{FileId, Seqno};
use crate::levels::picker::RunningCompaction;

/// A resource that exists once, and that one job at a time may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sole {
    /// The queue of sealed index tables: they become runs in order of age.
    SealedTables,
    /// The flush of runs out of the front, in order of age.
    FrontExit,
    /// The memory for a run that is merged from other runs.
    MergedRun,
    /// The active index table, to be sealed so that it can be flushed.
    FrontSeal,
    /// The memory in which value GC, or a reordering of values, decides which records are live.
    ValueCollection,
    /// The same of a second collection, while writers wait for garbage to go.
    SecondCollection,
    /// The same of the job that empties logs to make room on the fast tier.
    EmptiedLogs,
    /// The list of tables with stale addresses.
    StaleTables,
    /// Idle time: at most one idle job at a time.
    IdleTime,
    /// The boundary between the block cache and the value cache.
    CacheBoundary,
    /// The spare log.
    SpareLog,
    /// The list of pending deletions.
    PendingDeletions,
    /// The reserve for a full disk.
    Reserve,
    /// Moves of files between directories.
    Moves,
    /// The directory of buckets.
    Buckets,
    /// The logs that hash indexes reference.
    HashedLogs,
    /// The file of saved indexes.
    SavedIndexes,
}

/// One claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The runs with sequence numbers from the first to the second, inclusive.
    Runs(Seqno, Seqno),
    /// A table that the job replaces.
    Table(FileId),
    /// A range of keys of a level that the job writes.
    LevelRange(RunningCompaction),
    /// A value file that value GC collects.
    ValueFile(FileId),
    /// A resource that exists once.
    Only(Sole),
}

impl Claim {
    /// True if two jobs with these claims must not run at the same time.
    fn conflicts_with(&self, other: &Claim) -> bool {
        match (self, other) {
            (Claim::Runs(first, last), Claim::Runs(other_first, other_last)) => {
                first <= other_last && other_first <= last
            }
            (Claim::LevelRange(one), Claim::LevelRange(other)) => {
                one.to == other.to && one.smallest < other.end && other.smallest < one.end
            }
            (Claim::Table(one), Claim::Table(other)) | (Claim::ValueFile(one), Claim::ValueFile(other)) => one == other,
            (Claim::Only(one), Claim::Only(other)) => one == other,
            _ => false,
        }
    }
}

/// All claims of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Claims(pub Vec<Claim>);

impl Claims {
    /// A single claim, of a resource that exists once.
    pub fn sole(sole: Sole) -> Claims {
        Claims(vec![Claim::Only(sole)])
    }

    /// The same claims and one more.
    pub fn and(mut self, claim: Claim) -> Claims {
        self.0.push(claim);
        self
    }

    /// True if two jobs with these claims must not run at the same time.
    pub fn conflict_with(&self, other: &Claims) -> bool {
        self.0.iter().any(|one| other.0.iter().any(|other| one.conflicts_with(other)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(first: u64, last: u64) -> Claim {
        Claim::Runs(Seqno(first), Seqno(last))
    }

    fn range(to: usize, smallest: &str, end: &str) -> Claim {
        Claim::LevelRange(RunningCompaction { to, smallest: smallest.into(), end: end.into() })
    }

    #[test]
    fn claims_conflict_if_they_share_an_input_or_an_output() {
        let cases = [
            (runs(1, 5), runs(6, 9), false),
            (runs(1, 6), runs(6, 9), true),
            (runs(2, 3), runs(1, 9), true),
            (Claim::Table(FileId(1)), Claim::Table(FileId(1)), true),
            (Claim::Table(FileId(1)), Claim::Table(FileId(2)), false),
            (Claim::Table(FileId(1)), Claim::ValueFile(FileId(1)), false),
            (Claim::ValueFile(FileId(1)), Claim::ValueFile(FileId(1)), true),
            (Claim::ValueFile(FileId(1)), Claim::ValueFile(FileId(2)), false),
            // The end of a range is exclusive.
            (range(1, "a", "c"), range(1, "c", "d"), false),
            (range(1, "a", "c"), range(1, "b", "d"), true),
            (range(1, "a", "c"), range(2, "a", "c"), false),
            (Claim::Only(Sole::SpareLog), Claim::Only(Sole::SpareLog), true),
            (Claim::Only(Sole::SpareLog), Claim::Only(Sole::Reserve), false),
        ];
        for (one, other, conflict) in cases {
            let with_more = Claims::sole(Sole::FrontExit).and(other.clone());
            assert_eq!(Claims(vec![one.clone()]).conflict_with(&with_more), conflict, "{one:?} and {other:?}");
            assert_eq!(with_more.conflict_with(&Claims(vec![one.clone()])), conflict, "{other:?} and {one:?}");
        }
        assert!(!Claims::default().conflict_with(&Claims::default()));
    }
}
