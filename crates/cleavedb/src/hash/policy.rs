//! Which log of hash keyspaces is emptied next. Garbage is known exactly, so collection begins late: the later, the more of a log
//! is dead by itself (REXIO; decision 053).

use crate::base::FileId;

/// Live records take at least this part of their logs, in percent.
const LIVE_PERCENT: u64 = 70;
/// Collection begins at this part of what may be garbage, in percent.
const BEGIN_PERCENT: u64 = 95;
/// A log with more live bytes than this part, in percent, is not worth its copy.
const WORTH_PERCENT: u64 = 95;
/// More deleted keys than one for so many others are worth a copy of the oldest log, so that memory can forget them.
const KEYS_A_TOMBSTONE: u64 = 4;
/// So few are never worth it.
const TOMBSTONES_MIN: u64 = 1024;

/// A log that has left the front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogSpace {
    /// Its number; lower numbers are older.
    pub file: FileId,
    /// Its length, in bytes, without what every log has.
    pub bytes: u64,
    /// Bytes of records that indexes or tables reference.
    pub live: u64,
    /// A snapshot sees records of it, so that it could not go, or it cannot be read or emptied.
    pub is_pinned: bool,
}

/// All that the choice depends on.
#[derive(Debug, Clone, Copy)]
pub struct Demand<'a> {
    /// The logs that may be emptied.
    pub logs: &'a [LogSpace],
    /// Bytes of other logs with records of hash keyspaces, and how much of these is live.
    pub front_bytes: u64,
    /// Live bytes in other logs.
    pub front_live: u64,
    /// Garbage of this many bytes is always allowed.
    pub slack: u64,
    /// Keys with a value.
    pub keys: u64,
    /// Deleted keys that are still in memory.
    pub tombstones: u64,
}

impl Demand<'_> {
    fn free(&self) -> impl Iterator<Item = &LogSpace> {
        self.logs.iter().filter(|log| !log.is_pinned)
    }

    /// Bytes of garbage, and how much of it is allowed. Logs that cannot go count as neither garbage nor live: to empty others
    /// instead would only write more.
    pub fn garbage(&self) -> (u64, u64) {
        let live = self.front_live + self.free().map(|log| log.live.min(log.bytes)).sum::<u64>();
        let bytes = self.front_bytes + self.free().map(|log| log.bytes).sum::<u64>();
        let allowed = live / LIVE_PERCENT * (100 - LIVE_PERCENT) + self.slack;
        (bytes.saturating_sub(live), allowed)
    }

    /// How far garbage has grown, of 1 at the limit.
    pub fn fill(&self) -> f64 {
        let (garbage, allowed) = self.garbage();
        garbage as f64 / allowed.max(1) as f64
    }

    /// The log to empty next, if that is due: the one with the smallest live part, or the oldest if it keeps too many deleted
    /// keys in memory. While the oldest cannot go, none of these can be forgotten.
    pub fn victim(&self) -> Option<FileId> {
        let (garbage, allowed) = self.garbage();
        if garbage >= allowed / 100 * BEGIN_PERCENT {
            let part = |log: &&LogSpace| log.live as u128 * 1_000_000 / u128::from(log.bytes.max(1));
            let least = self.free().min_by_key(part)?;
            return (least.live < least.bytes / 100 * WORTH_PERCENT).then_some(least.file);
        }
        let keeps_too_many = self.tombstones > TOMBSTONES_MIN.max(self.keys / KEYS_A_TOMBSTONE);
        let oldest = self.logs.iter().min_by_key(|log| log.file).filter(|log| !log.is_pinned);
        oldest.filter(|_| keeps_too_many).map(|log| log.file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(file: u64, bytes: u64, live: u64) -> LogSpace {
        LogSpace { file: FileId(file), bytes, live, is_pinned: false }
    }

    fn demand(logs: &[LogSpace]) -> Demand<'_> {
        Demand { logs, front_bytes: 0, front_live: 0, slack: 0, keys: 1 << 20, tombstones: 0 }
    }

    #[test]
    fn the_log_with_the_smallest_live_part_is_emptied_once_garbage_is_near_its_limit() {
        let few = [log(1, 1000, 900), log(2, 1000, 720)];
        assert_eq!(demand(&few).victim(), None, "380 of 694 B");
        let many = [log(1, 1000, 700), log(2, 4000, 2700), log(3, 1000, 700)];
        assert_eq!(demand(&many).victim(), Some(FileId(2)));
        let pinned = many.map(|log| LogSpace { is_pinned: log.file == FileId(2), ..log });
        assert_eq!(demand(&pinned).victim(), Some(FileId(1)));
        assert_eq!(Demand { slack: 1 << 20, ..demand(&many) }.victim(), None);
    }

    #[test]
    fn a_small_log_with_few_live_bytes_is_not_preferred_to_one_that_gives_more_for_each_byte_copied() {
        let logs = [log(1, 1000, 900), log(2, 64_000, 6400)];
        assert_eq!(demand(&logs).victim(), Some(FileId(2)));
    }

    #[test]
    fn what_cannot_go_has_no_other_logs_emptied() {
        let pinned = LogSpace { is_pinned: true, ..log(1, 9000, 100) };
        let logs = [pinned, log(2, 1000, 900), log(3, 1000, 900)];
        assert_eq!(demand(&logs).victim(), None);
        assert_eq!(demand(&logs).garbage().0, 200);
    }

    #[test]
    fn a_log_that_is_live_but_for_little_is_never_copied() {
        let live = [log(1, 1000, 960), log(2, 1000, 990)];
        assert_eq!(Demand { front_bytes: 9000, ..demand(&live) }.victim(), None);
    }

    #[test]
    fn the_oldest_log_is_emptied_if_memory_keeps_many_deleted_keys() {
        let logs = [log(3, 1000, 800), log(2, 1000, 1000)];
        let few = Demand { tombstones: 1000, keys: 0, ..demand(&logs) };
        assert_eq!(few.victim(), None);
        assert_eq!(Demand { tombstones: 1025, ..few }.victim(), Some(FileId(2)));
        assert_eq!(Demand { tombstones: 1025, keys: 5000, ..few }.victim(), None);
        // While the oldest log stays, no tombstone can go.
        let pinned = logs.map(|log| LogSpace { is_pinned: log.file == FileId(2), ..log });
        assert_eq!(Demand { tombstones: 1025, logs: &pinned, ..few }.victim(), None);
    }
}
