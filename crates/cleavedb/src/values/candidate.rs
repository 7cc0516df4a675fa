//! What the choice of victims knows of each file of values, and how much garbage may lie around. Made by `values/files.rs`
//! from the ledger, judged by `values/placement`.

use crate::base::FileId;
use crate::format::group::{Group, HashGroup};
use crate::format::interval::Interval;
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
    /// In hundredths of what is live (DESIGN section 4: 30).
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

impl Candidate {
    pub(super) fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }

    /// The group of an extent, if it is one by hash.
    pub(super) fn hash_group(&self) -> Option<HashGroup> {
        self.part.as_ref()?.0.as_hash()
    }

    /// The range of an extent that has one.
    pub(super) fn range(&self) -> Option<&Interval> {
        self.part.as_ref()?.0.as_range()
    }

    /// Live bytes, which are counted from above, as far as they can be true.
    pub(super) fn live(&self) -> u64 {
        self.live.min(self.bytes)
    }
}
