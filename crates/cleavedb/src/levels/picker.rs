//! Chooses the next compaction: a pure function from figures to a choice (STYLE 11). It looks at no clock and no file,
//! and the same figures always give the same choice.
//!
//! In order: tables that lie wholly in dropped keyspaces go, and so do those of which a range tombstone covers every
//! version, and those that hold range tombstones only with nothing beneath them; the level most over its target is
//! relieved; what hides dead values of which the space is wanted is merged with them (`hidden.rs`); tables that partly
//! lie in dropped keyspaces are rewritten; tables dense with tombstones, or whose range
//! tombstones hide much, are pushed down; tombstones with nothing beneath them are removed once no snapshot needs them;
//! tables whose addresses are out of date are written anew.
//! A choice never takes a table that a running job has, and never
//! writes into a key range of a level that a running job writes into.

use std::collections::BTreeSet;

use crate::base::cursor::leading_bytes;
use crate::base::key::prefix_end;
use crate::base::{FileId, KeyspaceId, Seqno};
use crate::format::meta::TableMeta;
use crate::format::properties::CoveredRange;

/// What the picker knows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFigures<'a> {
    /// The file.
    pub id: FileId,
    /// Its length, in bytes.
    pub size: u64,
    /// The first full key.
    pub smallest: &'a [u8],
    /// The first full key after it.
    pub end: &'a [u8],
    /// The oldest version.
    pub seqno_min: Seqno,
    /// The newest version.
    pub seqno_max: Seqno,
    /// Versions in it.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Bytes of the records that versions lead to.
    pub bytes_separated: u64,
    /// Of these, bytes of records that a newer base in the table hides.
    pub bytes_hidden: u64,
    /// Bytes of the largest of these records.
    pub record_bytes_max: u64,
    /// Fragments of range tombstones in it.
    pub range_deletes: u64,
    /// What these cover.
    pub covered_ranges: &'a [CoveredRange],
    /// A running job has it.
    pub busy: bool,
}

impl<'a> TableFigures<'a> {
    /// The figures of a table.
    pub fn new(meta: &'a TableMeta, busy: bool) -> TableFigures<'a> {
        TableFigures {
            id: meta.id,
            size: meta.size,
            smallest: &meta.smallest,
            end: &meta.end,
            seqno_min: meta.seqno_min,
            seqno_max: meta.seqno_max,
            entries: meta.entries,
            deletes: meta.deletes,
            deltas: meta.deltas,
            bytes_separated: meta.bytes_separated,
            bytes_hidden: meta.bytes_hidden,
            record_bytes_max: meta.record_bytes_max,
            range_deletes: meta.range_deletes,
            covered_ranges: &meta.covered_ranges,
            busy,
        }
    }

    fn mostly_deletes(&self) -> bool {
        self.deletes * 2 > self.entries
    }

    /// Deletes are at least one in `part` of its versions, or of what it holds with range tombstones counted, too.
    fn deletes_are_one_in(&self, part: u64) -> bool {
        let all = self.deletes + self.range_deletes;
        all > 0 && all.saturating_mul(part) >= self.entries + self.range_deletes
    }

    /// One of its range tombstones kills every version of `other`, which is older.
    fn covers(&self, other: &TableFigures<'_>) -> bool {
        let hides = |range: &CoveredRange| {
            range.start.as_slice() <= other.smallest
                && other.end <= range.end.as_slice()
                && other.seqno_max < range.seqno
        };
        self.id != other.id && self.covered_ranges.iter().any(hides)
    }

    /// One of its range tombstones may kill a version of `other`, which is older.
    pub(super) fn may_cover_some_of(&self, other: &TableFigures<'_>) -> bool {
        let meets = |range: &CoveredRange| overlap(other, &range.start, &range.end);
        self.range_deletes > self.covered_ranges.len() as u64 || self.covered_ranges.iter().any(meets)
    }

    /// About how many bytes of `other` its range tombstones cover, if keys are spread evenly.
    fn covered_bytes(&self, other: &TableFigures<'_>) -> u64 {
        let shared = other.smallest.iter().zip(other.end).take_while(|(left, right)| left == right).count();
        let place = |key: &[u8]| leading_bytes(&key[shared..]) >> 16;
        let width = place(other.end).saturating_sub(place(other.smallest)).max(1);
        let covered = |range: &CoveredRange| {
            let (start, end) = (other.smallest.max(&range.start), other.end.min(&range.end));
            if start < end { place(end).saturating_sub(place(start)) } else { 0 }
        };
        let thousandths = self.covered_ranges.iter().map(covered).sum::<u128>().min(width) * 1000 / width;
        (other.size as u128 * thousandths / 1000) as u64
    }

    /// Its size as a reason to compact it: a delete counts three times, for it removes what is older, and in the end
    /// itself.
    fn urgency_bytes(&self) -> u64 {
        let entries = self.entries.max(1) as u128;
        let counted = entries + 2 * self.deletes as u128;
        (self.size as u128 * counted / entries).min(u64::MAX as u128) as u64
    }
}

/// Tables are pushed down for their deletes when these are one in so many versions.
const DENSE_ONE_IN: u64 = 3;
/// At rest HL0 is merged with what lies below it, if that is no more than so many times as much.
const IDLE_BELOW_MAX: u64 = 4;
/// Tables of which nothing lies beneath are rewritten for their deletes when these are one in so many versions.
const NEEDLESS_ONE_IN: u64 = 8;
/// No table is compacted for its deletes alone unless it has this part of the target of HL1.
const DELETES_WORTH_PART: u64 = 64;

/// How large the levels may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelTargets {
    /// HL0 is compacted when it has this many tables.
    pub hl0_trigger: usize,
    /// The target of HL1, in bytes.
    pub base_bytes: u64,
    /// The target of each further level, as a multiple of the one above.
    pub multiplier: u64,
}

impl Default for LevelTargets {
    fn default() -> LevelTargets {
        LevelTargets { hl0_trigger: 4, base_bytes: 256 << 20, multiplier: 10 }
    }
}

impl LevelTargets {
    /// The target of a level below HL0, in bytes.
    pub fn bytes(&self, level: usize) -> u64 {
        let power = level.saturating_sub(1) as u32;
        self.base_bytes.saturating_mul(self.multiplier.saturating_pow(power)).max(1)
    }
}

/// The range of keys that a running job writes into a level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunningCompaction {
    /// The level.
    pub to: usize,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The first full key after it.
    pub end: Vec<u8>,
}

/// Everything the choice depends on.
pub struct Figures<'a> {
    /// The tables of each level: newest first in HL0, by key below.
    pub levels: Vec<Vec<TableFigures<'a>>>,
    /// The sizes to keep to.
    pub targets: LevelTargets,
    /// Keyspaces whose versions all may die.
    pub dropped: &'a [KeyspaceId],
    /// What jobs are writing.
    pub running: &'a [RunningCompaction],
    /// The oldest sequence number that a reader may still ask for.
    pub oldest_snapshot: Seqno,
    /// Tables to write anew because their addresses are out of date.
    pub stale: &'a BTreeSet<FileId>,
    /// The same at rest, and more of them.
    pub stale_when_idle: &'a BTreeSet<FileId>,
    /// Values apart from their keys take too much space for what may be live of them: what is dead is to be found.
    pub uncovers: bool,
    /// Nothing else is to be done, and nothing was for a while.
    pub when_idle: bool,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Nothing (or nothing before a running job is done).
    Nothing,
    /// Remove tables of which no version may be seen any more.
    Drop {
        /// Their level.
        level: usize,
        /// The tables.
        tables: Vec<FileId>,
    },
    /// Hang a table, as it is, one level lower, where nothing overlaps it.
    Move {
        /// Its level.
        from: usize,
        /// Its new level.
        to: usize,
        /// The table.
        table: FileId,
    },
    /// Merge tables into `to`.
    Compact(Compact),
}

/// A merge of tables. `from` and `to` are equal if tables are rewritten where they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// The level of `inputs`.
    pub from: usize,
    /// The level of `inputs_below` and of what is written.
    pub to: usize,
    /// Tables of the upper level, in its order.
    pub inputs: Vec<FileId>,
    /// The tables of the lower level that overlap them.
    pub inputs_below: Vec<FileId>,
    /// The first full key of all inputs: with `end`, the range that the job writes into `to`.
    pub smallest: Vec<u8>,
    /// The first full key after all inputs.
    pub end: Vec<u8>,
    /// Nobody needs it: it makes look-ups faster. A full disk is no reason to complain then.
    pub is_idle_compaction: bool,
}

impl Compact {
    /// What other choices must keep clear of while this one runs.
    pub fn running(&self) -> RunningCompaction {
        RunningCompaction { to: self.to, smallest: self.smallest.clone(), end: self.end.clone() }
    }
}

/// The most urgent thing to do.
pub fn choose(figures: &Figures<'_>) -> Choice {
    figures
        .drop_tables()
        .or_else(|| figures.drop_covered())
        .or_else(|| figures.drop_needless_ranges())
        .or_else(|| figures.relieve_pressure())
        .or_else(|| figures.uncover())
        .or_else(|| figures.rewrite_dropped())
        .or_else(|| figures.push_deletes_down())
        .or_else(|| figures.remove_needless_deletes())
        .or_else(|| figures.refresh())
        .or_else(|| figures.idle_compaction())
        .unwrap_or(Choice::Nothing)
}

/// The oldest snapshot from which on there will be tombstones to remove, or values to uncover, that snapshots hold now.
pub fn wanted_snapshot(figures: &Figures<'_>) -> Option<Seqno> {
    let is_held = |table: &&TableFigures<'_>| table.seqno_max > figures.oldest_snapshot;
    let needless = figures.needless_deletes().map(|(_, table)| table).filter(is_held);
    let covering = figures.covering().filter(|(_, table)| is_held(table));
    let covering = covering.filter(|(level, table)| figures.covered(*level, table).next().is_some());
    let tombstones = needless.chain(covering.map(|(_, table)| table)).map(|table| table.seqno_max);
    tombstones.chain(figures.held_names()).min()
}

/// The merge of all tables of `from` that overlap a key range into `to` (the same level or the next). Of HL0, all tables
/// are taken if one overlaps. `Some(Nothing)`: no table overlaps; `None`: a running job is in the way, try again.
pub fn choose_range(figures: &Figures<'_>, from: usize, to: usize, start: &[u8], end: &[u8]) -> Option<Choice> {
    assert!(to == from + 1 || to == from && from > 0, "a compaction goes one level down, or stays below HL0");
    let tables: &[TableFigures<'_>] = &figures.levels[from];
    let overlaps = |table: &TableFigures<'_>| overlap(table, start, end);
    let inputs: Vec<&TableFigures<'_>> = match from {
        0 if tables.iter().any(overlaps) => tables.iter().collect(),
        _ => tables.iter().filter(|table| overlaps(table)).collect(),
    };
    match inputs.is_empty() {
        true => Some(Choice::Nothing),
        false => figures.compact(from, to, &inputs).map(Choice::Compact),
    }
}

impl<'a> Figures<'a> {
    /// Tables of the first level that has some wholly within one dropped keyspace.
    fn drop_tables(&self) -> Option<Choice> {
        let obsolete = |table: &&TableFigures<'_>| {
            let within = |keyspace: &KeyspaceId| {
                let keyspace_end = prefix_end(&keyspace.prefix());
                table.smallest.starts_with(&keyspace.prefix()) && keyspace_end.is_none_or(|end| table.end <= &end[..])
            };
            !table.busy && self.dropped.iter().any(within)
        };
        self.levels.iter().enumerate().find_map(|(level, tables)| {
            let tables: Vec<FileId> = tables.iter().filter(obsolete).map(|table| table.id).collect();
            (!tables.is_empty()).then_some(Choice::Drop { level, tables })
        })
    }

    /// Tables of the first level that has some in which a newer table's range tombstones leave nothing that a reader can
    /// see. What these tables' own tombstones hide is older still, and lies in the same ranges.
    fn drop_covered(&self) -> Option<Choice> {
        let (mut found_at, mut tables) = (self.levels.len(), Vec::new());
        for (level, table) in self.covering().filter(|(_, table)| table.seqno_max <= self.oldest_snapshot) {
            for (at, covered) in self.covered(level, table).filter(|(_, covered)| !covered.busy) {
                if at < found_at {
                    (found_at, tables) = (at, Vec::new());
                }
                if at == found_at && !tables.contains(&covered.id) {
                    tables.push(covered.id);
                }
            }
        }
        (!tables.is_empty()).then_some(Choice::Drop { level: found_at, tables })
    }

    /// Tables with range tombstones, with their levels.
    fn covering(&self) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let tables = self.levels.iter().enumerate();
        let tables = tables.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        tables.filter(|(_, table)| !table.covered_ranges.is_empty())
    }

    /// Tables of the level of `table` and below that its range tombstones cover, with their levels.
    fn covered(&self, level: usize, table: &TableFigures<'a>) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let ranges =
            table.covered_ranges.iter().flat_map(move |range| (level..self.levels.len()).map(move |at| (range, at)));
        let others = ranges
            .flat_map(move |(range, at)| self.overlapping(at, &range.start, &range.end).map(move |other| (at, other)));
        others.filter(move |(_, other)| table.covers(other))
    }

    /// Tables below HL0 that hold nothing but range tombstones with nothing beneath them.
    fn drop_needless_ranges(&self) -> Option<Choice> {
        self.levels.iter().enumerate().skip(1).find_map(|(level, tables)| {
            let needless = |table: &&TableFigures<'_>| {
                table.entries == 0 && table.range_deletes > 0 && !table.busy && !self.lies_above(level, table)
            };
            let tables: Vec<FileId> = tables.iter().filter(needless).map(|table| table.id).collect();
            (!tables.is_empty()).then_some(Choice::Drop { level, tables })
        })
    }

    /// The first possible job of the levels that are over their targets, worst first.
    fn relieve_pressure(&self) -> Option<Choice> {
        let mut scores: Vec<(u64, usize)> =
            (0..self.levels.len() - 1).map(|level| (self.score(level), level)).collect();
        // Of equal scores the upper level first: relieving it makes reads cheaper.
        scores.sort_by_key(|&(score, level)| (std::cmp::Reverse(score), level));
        let mut hl0_waits = false;
        for (_, level) in scores.into_iter().filter(|&(score, _)| score >= 1000) {
            let chosen = match level {
                0 => self.compact_hl0(),
                // If HL0 waits for a job below to end, no other one may get in its way.
                1 if hl0_waits => self.compact_least_overlap(1, |table| !self.lies_under_hl0(table)),
                _ => self.compact_least_overlap(level, |_| true),
            };
            if chosen.is_some() {
                return chosen;
            }
            hl0_waits |= level == 0;
        }
        None
    }

    /// The table lies within the range of keys that HL0 spans.
    fn lies_under_hl0(&self, table: &TableFigures<'_>) -> bool {
        let smallest = self.levels[0].iter().map(|table| table.smallest).min();
        let end = self.levels[0].iter().map(|table| table.end).max();
        smallest.zip(end).is_some_and(|(smallest, end)| overlap(table, smallest, end))
    }

    /// How full a level is, in thousandths of its target; tables that are on their way out do not count.
    fn score(&self, level: usize) -> u64 {
        let staying = self.levels[level].iter().filter(|table| !table.busy);
        let (is, target) = match level {
            0 => (staying.count() as u64, self.targets.hl0_trigger.max(1) as u64),
            _ => (staying.map(|table| table.size).sum(), self.targets.bytes(level)),
        };
        (is as u128 * 1000 / target as u128).min(u64::MAX as u128) as u64
    }

    /// HL0 goes as a whole, so that only neighbours in age are joined; its oldest table alone if nothing below overlaps.
    fn compact_hl0(&self) -> Option<Choice> {
        let tables: Vec<&TableFigures<'_>> = self.levels[0].iter().collect();
        if tables.iter().any(|table| table.busy) {
            return None;
        }
        let oldest = tables.last()?;
        self.move_down(0, oldest).or_else(|| self.compact(0, 1, &tables).map(Choice::Compact))
    }

    /// The table whose merge rewrites the fewest bytes below for each byte that it brings down or makes needless there.
    fn compact_least_overlap(&self, level: usize, eligible: impl Fn(&TableFigures<'_>) -> bool) -> Option<Choice> {
        let mut candidates: Vec<(u128, &TableFigures<'_>)> = Vec::new();
        for table in self.levels[level].iter().filter(|table| !table.busy && eligible(table)) {
            let below: u64 = self.overlapping(level + 1, table.smallest, table.end).map(|table| table.size).sum();
            candidates.push((below as u128 * 1000 / table.urgency_bytes().max(1) as u128, table));
        }
        // The sort is stable: of equals, the one with the smallest key.
        candidates.sort_by_key(|(cost, _)| *cost);
        candidates.into_iter().find_map(|(_, table)| {
            self.move_down(level, table).or_else(|| self.compact(level, level + 1, &[table]).map(Choice::Compact))
        })
    }

    /// A table whose key range includes a dropped keyspace is written anew without it. The writer cuts tables around
    /// dropped keyspaces, so what it writes is not chosen again.
    fn rewrite_dropped(&self) -> Option<Choice> {
        let spans = |table: &TableFigures<'_>| {
            let reaches = |keyspace: &KeyspaceId| {
                let prefix = keyspace.prefix();
                table.end > &prefix[..] && (table.smallest <= &prefix[..] || table.smallest.starts_with(&prefix))
            };
            !table.busy && self.dropped.iter().any(reaches)
        };
        self.levels.iter().enumerate().find_map(|(level, tables)| {
            let mut chosen = tables.iter().filter(|table| spans(table));
            match level {
                // A table of HL0 is not rewritten where it is: all of HL0 goes down.
                0 => chosen.next().and_then(|_| self.compact_whole_hl0()),
                _ => chosen.find_map(|table| self.compact(level, level, &[table]).map(Choice::Compact)),
            }
        })
    }

    pub(super) fn compact_whole_hl0(&self) -> Option<Choice> {
        self.compact(0, 1, &self.levels[0].iter().collect::<Vec<_>>()).map(Choice::Compact)
    }

    /// Tombstones that make up much of their table, and have something beneath them, are on their way to kill it.
    fn push_deletes_down(&self) -> Option<Choice> {
        let mut levels = self.levels.iter().enumerate().take(self.levels.len() - 1);
        levels.find_map(|(level, tables)| {
            let is_dense = |table: &TableFigures<'_>| {
                let dense = table.deletes_are_one_in(DENSE_ONE_IN) && self.is_worth_it(table);
                level > 0 && dense && self.lies_above(level, table)
            };
            let mut candidates = tables.iter().filter(|table| is_dense(table) || self.hides_much(level, table));
            match level {
                0 => candidates.next().and_then(|_| self.compact_whole_hl0()),
                _ => candidates.find_map(|table| self.compact(level, level + 1, &[table]).map(Choice::Compact)),
            }
        })
    }

    /// The table's range tombstones kill a good part of what a merge into the next level would read, and no snapshot
    /// keeps that alive.
    fn hides_much(&self, level: usize, table: &TableFigures<'_>) -> bool {
        if table.covered_ranges.is_empty() || table.seqno_max > self.oldest_snapshot {
            return false;
        }
        let (mut read, mut hidden) = (table.size, 0);
        for below in self.overlapping(level + 1, table.smallest, table.end) {
            read += below.size;
            hidden += table.covered_bytes(below);
        }
        let worth = self.targets.base_bytes / DELETES_WORTH_PART;
        hidden >= worth.max(1) && hidden.saturating_mul(DENSE_ONE_IN) >= read
    }

    /// Tombstones with nothing beneath them were kept for a snapshot, or came down when their table moved. Once all of the
    /// table is older than every snapshot, rewriting it leaves none, so it is not chosen again.
    fn remove_needless_deletes(&self) -> Option<Choice> {
        let mut free = self.needless_deletes().filter(|(_, table)| table.seqno_max <= self.oldest_snapshot);
        free.find_map(|(level, table)| self.compact(level, level, &[table]).map(Choice::Compact))
    }

    /// Tables below HL0 whose addresses are out of date are written anew where they are.
    fn refresh(&self) -> Option<Choice> {
        self.refresh_these(self.stale).map(Choice::Compact)
    }

    fn refresh_these(&self, stale: &BTreeSet<FileId>) -> Option<Compact> {
        let levels = self.levels.iter().enumerate().skip(1).filter(|_| !stale.is_empty());
        let mut tables = levels.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        tables.find_map(|(level, table)| match stale.contains(&table.id) {
            true => self.compact(level, level, &[table]),
            false => None,
        })
    }

    /// What makes look-ups faster, at rest.
    fn idle_compaction(&self) -> Option<Choice> {
        let found = self
            .when_idle
            .then(|| self.idle_hl0_compaction().or_else(|| self.refresh_these(self.stale_when_idle)))??;
        Some(Choice::Compact(Compact { is_idle_compaction: true, ..found }))
    }

    /// All of HL0 goes down, if look-ups ask several tables there or addresses in it are out of date, and what it is merged
    /// with is not so much more.
    fn idle_hl0_compaction(&self) -> Option<Compact> {
        let upper = self.levels.first()?;
        if upper.len() < 2 && !upper.iter().any(|table| self.stale_when_idle.contains(&table.id)) {
            return None;
        }
        let inputs: Vec<&TableFigures<'_>> = upper.iter().collect();
        let compact = self.compact(0, 1, &inputs)?;
        let below: u64 = self.overlapping(1, &compact.smallest, &compact.end).map(|table| table.size).sum();
        let above: u64 = upper.iter().map(|table| table.size).sum();
        (below <= IDLE_BELOW_MAX * above).then_some(compact)
    }

    /// Tables below HL0, with their levels, that would be smaller without their tombstones and have nothing beneath them.
    fn needless_deletes(&self) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let levels = self.levels.iter().enumerate().skip(1);
        let tables = levels.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        tables.filter(|(level, table)| {
            table.deletes_are_one_in(NEEDLESS_ONE_IN) && self.is_worth_it(table) && !self.lies_above(*level, table)
        })
    }

    fn is_worth_it(&self, table: &TableFigures<'_>) -> bool {
        table.size >= self.targets.base_bytes / DELETES_WORTH_PART
    }

    /// A level below has a table that may hold what this table's tombstones delete.
    pub(super) fn lies_above(&self, level: usize, table: &TableFigures<'_>) -> bool {
        (level + 1..self.levels.len()).any(|below| self.overlapping(below, table.smallest, table.end).next().is_some())
    }

    /// A move, if nothing below overlaps the table; one that is mostly tombstones is rewritten instead, to lose them.
    pub(super) fn move_down(&self, from: usize, table: &TableFigures<'_>) -> Option<Choice> {
        let to = from + 1;
        let free = !table.busy
            && !table.mostly_deletes()
            && self.overlapping(to, table.smallest, table.end).next().is_none()
            && !self.written_by_another(to, table.smallest, table.end);
        free.then_some(Choice::Move { from, to, table: table.id })
    }

    /// The merge of `inputs` with what they overlap in `to`; `None` if a running job is in the way.
    pub(super) fn compact(&self, from: usize, to: usize, inputs: &[&TableFigures<'a>]) -> Option<Compact> {
        let smallest = inputs.iter().map(|table| table.smallest).min()?;
        let end = inputs.iter().map(|table| table.end).max()?;
        let below: Vec<&TableFigures<'a>> = match from == to {
            true => Vec::new(),
            false => self.overlapping(to, smallest, end).collect(),
        };
        let all = || inputs.iter().chain(&below);
        let smallest = all().map(|table| table.smallest).min()?;
        let end = all().map(|table| table.end).max()?;
        // Rewriting in place must also mind a table that another job is moving in from above: it is busy up there.
        let arriving = from == to && self.overlapping(to - 1, smallest, end).any(|table| table.busy);
        if arriving || all().any(|table| table.busy) || self.written_by_another(to, smallest, end) {
            return None;
        }
        let ids = |tables: &[&TableFigures<'_>]| tables.iter().map(|table| table.id).collect();
        let (smallest, end) = (smallest.to_vec(), end.to_vec());
        Some(Compact {
            from,
            to,
            inputs: ids(inputs),
            inputs_below: ids(&below),
            smallest,
            end,
            is_idle_compaction: false,
        })
    }

    pub(super) fn overlapping(
        &self,
        level: usize,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = &TableFigures<'a>> {
        let tables = &self.levels[level];
        // Below HL0 they are in order, so that a search finds the first.
        let first = if level == 0 { 0 } else { tables.partition_point(|table| table.end <= start) };
        let near = tables[first..].iter().take_while(move |table| level == 0 || table.smallest < end);
        near.filter(move |table| overlap(table, start, end))
    }

    fn written_by_another(&self, level: usize, start: &[u8], end: &[u8]) -> bool {
        let mut running = self.running.iter().filter(|running| running.to == level);
        running.any(|running| &running.smallest[..] < end && start < &running.end[..])
    }
}

fn overlap(table: &TableFigures<'_>, start: &[u8], end: &[u8]) -> bool {
    table.smallest < end && start < table.end
}

#[cfg(test)]
#[path = "picker_test.rs"]
mod tests;
