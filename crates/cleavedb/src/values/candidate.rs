//! Figures on each value file for the choice of victims, and the limit on garbage. Made by `values/files.rs` from the
//! ledger, evaluated by `values/placement`.

use crate::base::FileId;
use crate::base::limits::GARBAGE_PERCENT_DEFAULT;
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

/// Files to collect together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// The files.
    pub files: Vec<FileId>,
    /// Bytes that are copied in vain because there is no walk before; `None` if there is to be one.
    pub excess: Option<u64>,
    /// The number of walks before the choice.
    pub walks: u64,
    /// Bytes that are copied, as far as is known.
    pub copied: u64,
    /// Bytes that become free.
    pub freed: u64,
}

/// A collection frees little if that is less than this part of the bytes that it copies.
const LITTLE_PART: u64 = 2;

impl Choice {
    /// It frees little for what it copies.
    pub fn frees_little(&self) -> bool {
        self.freed.saturating_mul(LITTLE_PART) < self.copied
    }
}

/// Value GC begins at this percentage of the garbage limit, so that it finishes before writers must wait.
pub(crate) const BEGIN_PERCENT: u64 = 70;

/// At rest, this percentage of the share of live bytes is allowed.
const REST_PERCENT: u64 = 62;

/// This much space, and the default percentage, is allowed whatever room the file system has.
const ROOM_BYTES_MIN: u64 = 8 << 20;

/// How much space may be taken beyond the live bytes, and how much of it by garbage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GarbageLimit {
    /// In percent of the live bytes.
    pub percent: u64,
    /// In addition, in bytes.
    pub bytes: u64,
    /// Of this, bytes taken by what is neither a value nor garbage: index tables, logs in advance, the reserve. Garbage has
    /// at least half, whatever they take.
    pub overhead: u64,
    /// Room for garbage in the file system, in bytes. Half of it is left for logs, tables, and the copies that value GC
    /// makes before it frees anything; but the default percentage is allowed for all that, or a nearly full file
    /// system would have every value moved for little.
    pub room: u64,
}

impl GarbageLimit {
    /// The limit of garbage in bytes for `live` live bytes.
    pub fn of(self, live: u64) -> u64 {
        let share = |percent, bytes| (live / 100).saturating_mul(percent).saturating_add(bytes);
        let least = share(GARBAGE_PERCENT_DEFAULT.into(), ROOM_BYTES_MIN);
        let all = share(self.percent, self.bytes).min(least.max(self.room / 2));
        all.saturating_sub(self.overhead).max(all / 2)
    }

    /// Value GC is due with more known garbage than this.
    pub fn begins_at(self, live: u64) -> u64 {
        self.of(live) / 100 * BEGIN_PERCENT
    }

    /// While the store is idle, value GC goes on down to this, so that garbage and overhead are within a smaller share of the
    /// live bytes and a quarter of the additional bytes; but not below a quarter of the limit.
    pub fn rests_at(self, live: u64) -> u64 {
        let all = (live / 100).saturating_mul(self.percent) / 100 * REST_PERCENT + self.bytes / 4;
        all.saturating_sub(self.overhead).max(self.of(live) / 4).min(self.begins_at(live))
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

    /// It is an extent of values that are read, on the fast tier.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.part, Some((_, Temperature::Read)))
    }

    /// Live bytes: the upper bound from the ledger, at most the length of the file.
    pub fn live_bytes(&self) -> u64 {
        self.live.min(self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_share_of_live_bytes_and_some_bytes_and_no_more_than_there_is_room_for() {
        let limit = GarbageLimit { percent: 30, bytes: 1000, overhead: 0, room: u64::MAX };
        assert_eq!((limit.of(10_000), limit.file_bytes(10_000)), (4_000, 14_000));
        assert!(limit.begins_at(10_000) == 2_800);
        let none = GarbageLimit { percent: 1000, bytes: u64::MAX, overhead: 0, room: u64::MAX };
        assert_eq!((none.of(9_000), none.file_bytes(u64::MAX)), (u64::MAX / 2, u64::MAX));
        let short = GarbageLimit { room: 1 << 30, ..none };
        assert_eq!(short.of(9_000), 1 << 29);
        let full = GarbageLimit { room: 0, ..none };
        let share = (100_u64 << 20) / 100 * u64::from(GARBAGE_PERCENT_DEFAULT);
        assert_eq!(full.of(100 << 20), share + ROOM_BYTES_MIN);
        assert_eq!(GarbageLimit { room: 0, ..limit }.of(10_000), limit.of(10_000));
    }

    #[test]
    fn overhead_leaves_garbage_half_of_the_limit_and_a_quarter_of_that_at_rest() {
        let with = |overhead| GarbageLimit { percent: 30, bytes: 1000, overhead, room: u64::MAX };
        assert_eq!([0, 1_000, 3_000, u64::MAX].map(|overhead| with(overhead).of(10_000)), [4_000, 3_000, 2_000, 2_000]);
        let rests_at = [0, 1_000, 2_000, u64::MAX].map(|overhead| with(overhead).rests_at(10_000));
        assert_eq!(rests_at, [2_110, 1_110, 500, 500]);
    }
}
