//! Figures on each value file for the choice of victims, and the limit on garbage. Made by `values/files.rs` from the
//! ledger, evaluated by `values/placement`.

use crate::base::FileId;
use crate::format::group::{Group, HashGroup};
use crate::format::interval::Interval;
use crate::format::values::Temperature;

/// A value file that may be chosen as a victim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its number; lower numbers are older.
    pub file: FileId,
    /// Its length, in bytes.
    pub bytes: u64,
    /// Of these, bytes of referenced records: an upper bound on the live bytes.
    pub live: u64,
    /// The group and temperature of an extent; `None` for a log.
    pub part: Option<(Group, Temperature)>,
}

/// How much garbage is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GarbageLimit {
    /// In percent of the live bytes.
    pub percent: u64,
    /// In addition, in bytes.
    pub bytes: u64,
}

impl GarbageLimit {
    /// The limit in bytes for `live` live bytes.
    pub fn of(self, live: u64) -> u64 {
        (live / 100).saturating_mul(self.percent).saturating_add(self.bytes)
    }

    /// The bytes of value files with `live` live bytes at the limit.
    pub fn file_bytes(self, live: u64) -> u64 {
        live.saturating_add(self.of(live))
    }
}

impl Candidate {
    pub(super) fn garbage(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }

    /// The group of an extent placed by hash.
    pub(super) fn hash_group(&self) -> Option<HashGroup> {
        self.part.as_ref()?.0.as_hash()
    }

    /// The range of an extent placed by range.
    pub(super) fn range(&self) -> Option<&Interval> {
        self.part.as_ref()?.0.as_range()
    }

    /// Live bytes: the upper bound from the ledger, at most the length of the file.
    pub(super) fn live(&self) -> u64 {
        self.live.min(self.bytes)
    }
}
