//! Which files change their directory: pure functions from what lies where to a choice. The decisions are explained in
//! decision record 046; `jobs/move_files.rs` carries them out.

use crate::base::{DirId, FileKey, FileKind};

/// The fast tier begins to be emptied at this part of its budget, in percent...
const BEGIN_PERCENT: u64 = 70;
/// ...down to this part.
const GOAL_PERCENT: u64 = 60;
/// From this part on, logs that were not flushed are demoted too.
const HURRY_PERCENT: u64 = 85;
/// Redirect tables, and values that readers were asking for, may take this part of the fast tier, in percent: what they save is a
/// read of the slow one now and then, and logs save a copy of each record that dies in them.
const KEPT_PERCENT: u64 = 20;
/// New ones are made up to this part; then the oldest leave.
const KEPT_MOST_PERCENT: u64 = 25;
/// None are made where the tier is filled beyond this part: logs come first.
const MADE_PERCENT: u64 = 75;
/// Tables of all levels lie on the fast tier while they take up to this part of it together, in percent: with separated values they are
/// some percent of the data, and each look-up reads one of their blocks besides the value.
const TABLES_PERCENT: u64 = 40;
/// They leave beyond this part.
const TABLES_MOST_PERCENT: u64 = 45;
/// A log is copied as a whole if at least this part of it is live, in percent; value GC empties the others.
const MOSTLY_LIVE_PERCENT: u64 = 75;
/// One job moves at most about this many bytes, so that each soon makes room.
const JOB_BYTES: u64 = 64 << 20;

/// A manifest takes twice this part of the budget before it is written anew more often.
const MANIFEST_PART: u64 = 16;

/// How full the fast tier is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastFill {
    /// Its budget, in bytes.
    pub budget: u64,
    /// Bytes in use.
    pub bytes: u64,
}

impl FastFill {
    fn exceeds(self, percent: u64) -> bool {
        u128::from(self.bytes) * 100 > u128::from(self.budget) * u128::from(percent)
    }

    /// Room is to be made.
    pub fn wants_room(self) -> bool {
        self.exceeds(BEGIN_PERCENT)
    }

    /// There is room for `bytes` of tables of HL0, which are read by most look-ups and replaced soon.
    pub fn has_room_for_hl0(self, bytes: u64) -> bool {
        !FastFill { bytes: self.bytes.saturating_add(bytes), ..self }.exceeds(GOAL_PERCENT)
    }

    /// Bytes of tables that may be made there, where all tables have `tables` bytes.
    pub fn room_for_tables(self, tables: u64) -> u64 {
        match tables <= self.part(TABLES_PERCENT) {
            true => self.part(GOAL_PERCENT).saturating_sub(self.bytes),
            false => 0,
        }
    }

    /// There is room for a table of `bytes` of a level below HL0, where all tables have `tables` bytes.
    pub fn has_room_for_table(self, tables: u64, bytes: u64) -> bool {
        bytes <= self.room_for_tables(tables)
    }

    /// A table of a level below HL0 stays where it is, on the fast tier.
    pub fn keeps_tables(self, tables: u64) -> bool {
        tables <= self.part(TABLES_MOST_PERCENT) && !self.exceeds(HURRY_PERCENT)
    }

    /// Bytes of redirect tables that may be moved there, if there are `kept` bytes of them.
    pub fn room_to_raise(self, kept: u64) -> u64 {
        let of_share = self.part(KEPT_PERCENT).saturating_sub(kept);
        of_share.min(self.part(GOAL_PERCENT).saturating_sub(self.bytes))
    }

    /// Bytes of redirect tables, or of values that are read, that may be made, if there are `kept` bytes: for redirect tables only
    /// of those, since values leave before them.
    pub fn room_for_kept(self, kept: u64) -> u64 {
        let of_share = self.part(KEPT_MOST_PERCENT).saturating_sub(kept);
        of_share.min(self.part(MADE_PERCENT).saturating_sub(self.bytes))
    }

    /// A part of the budget, in bytes.
    fn part(self, percent: u64) -> u64 {
        (u128::from(self.budget) * u128::from(percent) / 100) as u64
    }

    /// How many jobs it would take to demote what is there beyond the goal; 0 while no room is wanted.
    pub fn jobs_to_demote(self) -> f64 {
        if self.wants_room() { self.to_free() as f64 / JOB_BYTES as f64 } else { 0.0 }
    }

    fn to_free(self) -> u64 {
        self.bytes.saturating_sub(self.budget / 100 * GOAL_PERCENT)
    }
}

/// A closed log on the fast tier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FastLog {
    pub key: FileKey,
    pub bytes: u64,
    /// Live bytes; `None` if the log was not flushed, so that nothing is known of them.
    pub live: Option<u64>,
}

impl FastLog {
    /// Value GC should empty the log: copying it would mostly move garbage.
    pub fn is_mostly_dead(&self) -> bool {
        self.live.is_some_and(|live| live.saturating_mul(100) < self.bytes * MOSTLY_LIVE_PERCENT)
    }
}

/// The logs to demote now, oldest first; `logs` are in order of age. Those that were flushed come first: of the others, much
/// may be dead by the time of their flush. The mostly dead ones are left to value GC, unless the tier is nearly full.
pub(crate) fn to_demote(fill: FastFill, logs: &[FastLog]) -> Vec<FastLog> {
    if !fill.wants_room() {
        return Vec::new();
    }
    let hurries = fill.exceeds(HURRY_PERCENT);
    let flushed = logs.iter().filter(|log| log.live.is_some() && !log.is_mostly_dead());
    let others = logs.iter().filter(|log| hurries && (log.live.is_none() || log.is_mostly_dead()));
    let mut freed = 0;
    let goal = fill.to_free().min(JOB_BYTES);
    let taken = flushed.chain(others).take_while(|log| {
        let takes = freed < goal;
        freed += log.bytes;
        takes
    });
    taken.copied().collect()
}

/// The logs that value GC empties now, oldest first.
pub(crate) fn to_empty(fill: FastFill, logs: &[FastLog]) -> Vec<FastLog> {
    if !fill.wants_room() {
        return Vec::new();
    }
    let mut freed = 0;
    let taken = logs.iter().filter(|log| log.is_mostly_dead()).take_while(|log| {
        let takes = freed < fill.to_free().min(JOB_BYTES);
        freed += log.bytes;
        takes
    });
    taken.copied().collect()
}

/// Of the files of redirect tables and values that are read, in the order of what they are worth, how many stay on the fast tier: the
/// last ones leave until the others are within their share, but for the last one that was made within it, and as long as the tier is too full.
pub(crate) fn kept_on_fast(fill: FastFill, sizes: &[u64]) -> usize {
    let mut kept = sizes.iter().fold(0, |sum: u64, size| sum.saturating_add(*size));
    let mut surplus = fill.bytes.saturating_sub(fill.part(HURRY_PERCENT));
    let mut count = sizes.len();
    while let Some(oldest) = sizes[..count].last() {
        let share = fill.part(if count == 1 { KEPT_MOST_PERCENT } else { KEPT_PERCENT });
        if kept <= share && surplus == 0 {
            break;
        }
        (kept, surplus, count) = (kept.saturating_sub(*oldest), surplus.saturating_sub(*oldest), count - 1);
    }
    count
}

/// The length at which the manifest is written anew: a few times its state, so that little is written for that; less if that
/// would take more than its part of the budget.
pub(crate) fn manifest_len_max(budget: u64, bytes: u64, state: u64) -> u64 {
    bytes.max((4 * state).min((2 * state).max(budget / MANIFEST_PART)))
}

/// The space of a manifest of up to `len` bytes, and of the one that replaces it.
pub(crate) fn manifest_space(len: u64) -> u64 {
    len.saturating_mul(2)
}

/// The directory that a file belongs to, apart from what the fast tier has room for.
pub(crate) fn home_of(file: FileKey, slow: DirId) -> DirId {
    match file.kind {
        // Whatever the fast tier had no room for, and what lies in a former directory of either tier: it is old.
        FileKind::Log if file.dir != DirId::HOME => slow,
        FileKind::Log | FileKind::Manifest => DirId::HOME,
        FileKind::Table | FileKind::Segment | FileKind::Redirect | FileKind::Index => slow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::FileId;

    fn log(id: u64, live: Option<u64>) -> FastLog {
        FastLog { key: FileKey { kind: FileKind::Log, id: FileId(id), dir: DirId::HOME }, bytes: 10, live }
    }

    #[test]
    fn flushed_logs_that_are_mostly_live_are_demoted_first_and_oldest_first() {
        let logs = [log(1, Some(7)), log(2, Some(8)), log(3, None), log(4, Some(10)), log(5, None)];
        let demoted = |bytes| {
            let fill = FastFill { budget: 100, bytes };
            to_demote(fill, &logs).iter().map(|log| log.key.id.0).collect::<Vec<_>>()
        };
        let cases: [(u64, &[u64]); 6] = [
            (0, &[]),
            (70, &[]),
            (71, &[2, 4]),
            (80, &[2, 4]),
            // Nearly full: whatever makes room.
            (86, &[2, 4, 1]),
            (100, &[2, 4, 1, 3]),
        ];
        for (bytes, wanted) in cases {
            assert_eq!(demoted(bytes), wanted, "{bytes}");
        }
        assert!(FastFill { budget: 100, bytes: 40 }.has_room_for_hl0(20));
        assert!(!FastFill { budget: 100, bytes: 41 }.has_room_for_hl0(20));
        let emptied = |bytes| to_empty(FastFill { budget: 100, bytes }, &logs).len();
        assert_eq!([70, 71, 100].map(emptied), [0, 1, 1]);
    }

    #[test]
    fn a_budget_below_what_lies_there_is_reached_in_jobs_of_bounded_size() {
        let logs: Vec<_> = (0..100).map(|id| FastLog { bytes: 4 << 20, ..log(id, None) }).collect();
        let chosen = to_demote(FastFill { budget: 64 << 20, bytes: 400 << 20 }, &logs);
        assert_eq!(chosen.len(), 16);
        assert!(to_demote(FastFill { budget: u64::MAX, bytes: 400 << 20 }, &logs).is_empty());
    }

    #[test]
    fn a_large_manifest_is_written_anew_more_often() {
        let cases = [(0, 100), (20, 100), (50, 200), (300, 1000), (500, 1000), (600, 1200)];
        for (state, wanted) in cases {
            assert_eq!(manifest_len_max(16_000, 100, state), wanted, "{state}");
        }
        assert_eq!(manifest_len_max(u64::MAX, 100, 600), 2400);
    }

    #[test]
    fn tables_lie_on_the_fast_tier_while_all_of_them_are_a_part_of_it() {
        let fill = |bytes| FastFill { budget: 1000, bytes };
        // What lies there, all tables, whether one more of 10 bytes has room, and whether those that are there stay.
        let cases = [
            (0, 0, true, true),
            (590, 400, true, true),
            (591, 400, false, true),
            (0, 401, false, true),
            (0, 450, false, true),
            (0, 451, false, false),
            (850, 100, false, true),
            (851, 100, false, false),
        ];
        for (bytes, tables, has_room, stays) in cases {
            let fill = fill(bytes);
            assert_eq!(
                (fill.has_room_for_table(tables, 10), fill.keeps_tables(tables)),
                (has_room, stays),
                "{fill:?} {tables}"
            );
        }
    }

    #[test]
    fn redirects_and_read_values_have_a_part_of_the_tier_and_the_oldest_leave_it() {
        let fill = |bytes| FastFill { budget: 100, bytes };
        let rooms = [(0, 0, 25), (60, 20, 5), (60, 25, 0), (60, 30, 0), (70, 0, 5), (75, 0, 0), (90, 0, 0)];
        for (bytes, kept, wanted) in rooms {
            assert_eq!(fill(bytes).room_for_kept(kept), wanted, "{bytes} {kept}");
        }
        let raised = [(0, 0, 20), (30, 10, 10), (55, 10, 5), (60, 0, 0), (10, 20, 0), (10, 21, 0)];
        for (bytes, kept, wanted) in raised {
            assert_eq!(fill(bytes).room_to_raise(kept), wanted, "{bytes} {kept}");
        }
        let kept = |bytes| kept_on_fast(fill(bytes), &[5, 5, 10, 1, 1]);
        // Beyond 85 % the oldest leave, but no more of them than make the tier less full.
        assert_eq!([0, 85, 87, 88, 98, 105].map(kept), [3, 3, 3, 2, 1, 0]);
        // One that was made within its share stays, though it takes more than the others may together.
        assert_eq!([&[24][..], &[24, 1], &[26], &[]].map(|sizes| kept_on_fast(fill(0), sizes)), [1, 1, 0, 0]);
        assert_eq!(kept_on_fast(FastFill { budget: u64::MAX, bytes: 0 }, &[u64::MAX / 10, 1]), 2);
    }

    /// An open may declare a budget below what lies there, or even none.
    #[test]
    fn a_tier_above_its_budget_is_emptied_and_nothing_is_made_there() {
        // The budget, what lies there, and how many of two files for readers stay, the older of which is large.
        for (budget, bytes, stay) in [(100, 101, 1), (100, 1000, 1), (1, 1000, 0), (0, 1, 0)] {
            let fill = FastFill { budget, bytes };
            assert!(fill.wants_room() && fill.jobs_to_demote() > 0.0, "{fill:?}");
            assert!(!fill.has_room_for_hl0(0) && fill.room_for_kept(0) == 0, "{fill:?}");
            assert_eq!(kept_on_fast(fill, &[1, 1000]), stay, "{fill:?}");
            let logs = [log(1, Some(0)), log(2, None), log(3, Some(10))];
            // The mostly dead one too, if nothing else makes enough room; value GC may come first.
            assert_eq!(to_demote(fill, &logs)[0].key.id, FileId(3), "{fill:?}");
            assert_eq!(to_empty(fill, &logs).len(), 1, "{fill:?}");
        }
        // An empty tier, whatever its budget is, and one that only its file system limits.
        for fill in [FastFill { budget: 0, bytes: 0 }, FastFill { budget: u64::MAX, bytes: u64::MAX / 2 }] {
            assert!(!fill.wants_room() && fill.jobs_to_demote() == 0.0, "{fill:?}");
            assert!(to_demote(fill, &[log(1, None)]).is_empty() && to_empty(fill, &[log(1, Some(0))]).is_empty());
        }
        assert!(to_demote(FastFill { budget: 1, bytes: 9 }, &[]).is_empty(), "nothing can be moved");
    }

    #[test]
    fn every_kind_of_file_has_a_home_with_two_tiers_and_with_one() {
        let (home, slow, former) = (DirId::HOME, DirId(3), DirId(2));
        // The kind, and where a file belongs that lies on the fast tier, on the slow one, and in a former directory.
        let cases = [
            (FileKind::Log, [home, slow, slow]),
            (FileKind::Manifest, [home, home, home]),
            (FileKind::Table, [slow, slow, slow]),
            (FileKind::Segment, [slow, slow, slow]),
            (FileKind::Redirect, [slow, slow, slow]),
            (FileKind::Index, [slow, slow, slow]),
        ];
        for (kind, wanted) in cases {
            for (dir, wanted) in [home, slow, former].into_iter().zip(wanted) {
                let file = FileKey { kind, id: FileId(1), dir };
                assert_eq!(home_of(file, slow), wanted, "one directory to two, or to others: {file:?}");
                assert_eq!(home_of(file, home), home, "two directories to one: {file:?}");
            }
        }
    }

    #[test]
    fn files_belong_to_the_slow_tier_except_logs_on_the_fast_one() {
        let (slow, former) = (DirId(3), DirId(2));
        let file = |kind, dir| FileKey { kind, id: FileId(1), dir };
        let cases = [
            (file(FileKind::Log, DirId::HOME), DirId::HOME),
            (file(FileKind::Log, slow), slow),
            (file(FileKind::Log, former), slow),
            (file(FileKind::Table, former), slow),
            (file(FileKind::Segment, DirId::HOME), slow),
            (file(FileKind::Redirect, slow), slow),
            (file(FileKind::Index, DirId::HOME), slow),
            (file(FileKind::Index, former), slow),
        ];
        for (file, wanted) in cases {
            assert_eq!(home_of(file, slow), wanted, "{file:?}");
            assert_eq!(home_of(file, DirId::HOME), DirId::HOME, "one directory");
        }
    }
}
