//! Chooses the next compaction: a pure function from figures to a choice (STYLE 11). It reads no clock and no file, and
//! the same figures always give the same choice.
//!
//! In order of priority: drop tables that lie wholly in dropped keyspaces, tables in which a range tombstone covers
//! every version, and tables that hold only range tombstones with nothing beneath them; compact the level most over its
//! target; uncover hidden garbage when value space is short (`hidden.rs`); rewrite tables that partly lie in dropped
//! keyspaces; push down tables dense with tombstones or whose range tombstones cover much; remove tombstones with
//! nothing beneath them once no snapshot needs them; rewrite tables with stale addresses.
//!
//! A choice never takes a table that a running job uses, and never writes into a key range of a level that a running
//! job writes into.

use std::collections::BTreeSet;

use super::table_figures::{TableFigures, overlap};
use crate::base::key::prefix_end;
use crate::base::{FileId, KeyspaceId, Seqno};

/// A table is pushed down for its deletes when at least 1 in this many versions is a delete.
const DENSE_ONE_IN: u64 = 3;
/// While idle, HL0 is merged with the tables below it if those are no more than this many times its size.
const IDLE_BELOW_MAX: u64 = 4;
/// A table with nothing beneath it is rewritten for its deletes when at least 1 in this many versions is a delete.
const NEEDLESS_ONE_IN: u64 = 8;
/// A table is compacted for its deletes alone only if it is at least this fraction of the target of HL1.
const DELETES_WORTH_PART: u64 = 64;
/// How full HL0 is counts this many halves of how full another level is.
const HL0_WEIGHT_HALVES: u64 = 3;
/// A level is far behind from this many times its target on.
const FAR_BEHIND: u64 = 2;
/// The tables of HL0 are small if they hold less than this fraction of the bytes of HL1.
const HL0_SMALL_PART: u64 = 6;

/// Target sizes of the levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelTargets {
    /// HL0 is compacted once it has this many tables...
    pub hl0_trigger: usize,
    /// ...or this many as long as they are small against HL1, all of which is rewritten with them.
    pub hl0_trigger_if_small: usize,
    /// The target of HL1, in bytes.
    pub base_bytes: u64,
    /// The target of each further level, as a multiple of the one above.
    pub multiplier: u64,
}

impl Default for LevelTargets {
    fn default() -> LevelTargets {
        LevelTargets { hl0_trigger: 4, hl0_trigger_if_small: 6, base_bytes: 256 << 20, multiplier: 10 }
    }
}

impl LevelTargets {
    /// The number of tables at which HL0 is compacted if it holds `upper` bytes, and HL1 `below`.
    pub fn hl0_trigger(&self, upper: u64, below: u64) -> usize {
        match upper < below / HL0_SMALL_PART {
            true => self.hl0_trigger.max(self.hl0_trigger_if_small),
            false => self.hl0_trigger,
        }
    }

    /// The target of a level below HL0, in bytes.
    pub fn bytes(&self, level: usize) -> u64 {
        let power = level.saturating_sub(1) as u32;
        self.base_bytes.saturating_mul(self.multiplier.saturating_pow(power)).max(1)
    }
}

/// The key range that a running job writes into a level.
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
    /// The target sizes.
    pub targets: LevelTargets,
    /// Keyspaces whose versions may all be dropped.
    pub dropped: &'a [KeyspaceId],
    /// The key ranges that running jobs write into.
    pub running: &'a [RunningCompaction],
    /// The oldest sequence number that a reader may still use.
    pub oldest_snapshot: Seqno,
    /// Tables to rewrite because their addresses are stale.
    pub stale: &'a BTreeSet<FileId>,
    /// Tables to rewrite for the same reason while idle: a superset.
    pub stale_when_idle: &'a BTreeSet<FileId>,
    /// Separated values exceed the space-amplification limit given an upper bound on dead bytes, so hidden garbage is
    /// to be uncovered.
    pub uncovers: bool,
    /// Nothing else is due, and nothing was for a while.
    pub when_idle: bool,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Choice {
    /// Nothing (or nothing until a running job ends).
    Nothing,
    /// Remove tables of which no version is visible to any reader.
    Drop {
        /// Their level.
        level: usize,
        /// The tables.
        tables: Vec<FileId>,
    },
    /// Move a table, unchanged, one level down, where nothing overlaps it.
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

/// A merge of tables. `from` equals `to` if tables are rewritten in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compact {
    /// The level of `inputs`.
    pub from: usize,
    /// The level of `inputs_below` and of the output.
    pub to: usize,
    /// Tables of the upper level, in its order.
    pub inputs: Vec<FileId>,
    /// The tables of the lower level that overlap them.
    pub inputs_below: Vec<FileId>,
    /// The first full key of all inputs: with `end`, the range that the job writes into `to`.
    pub smallest: Vec<u8>,
    /// The first full key after all inputs.
    pub end: Vec<u8>,
    /// Optional: it only makes lookups faster, so a full disk is not reported for it.
    pub is_idle_compaction: bool,
}

impl Compact {
    /// The key range that other choices must avoid while this one runs.
    pub fn running(&self) -> RunningCompaction {
        RunningCompaction { to: self.to, smallest: self.smallest.clone(), end: self.end.clone() }
    }
}

/// The most urgent action.
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

/// The oldest snapshot whose release allows tombstones to be removed or values to be uncovered.
pub fn wanted_snapshot(figures: &Figures<'_>) -> Option<Seqno> {
    let is_held = |table: &&TableFigures<'_>| table.seqno_max > figures.oldest_snapshot;
    let needless = figures.needless_deletes().map(|(_, table)| table).filter(is_held);
    let covering = figures.covering().filter(|(_, table)| is_held(table));
    let covering = covering.filter(|(level, table)| figures.covered(*level, table).next().is_some());
    let tombstones = needless.chain(covering.map(|(_, table)| table)).map(|table| table.seqno_max);
    tombstones.chain(figures.seqnos_held_by_snapshots()).min()
}

/// The merge of all tables of `from` that overlap a key range into `to` (the same level or the next). Of HL0, all
/// tables are taken if one overlaps. `Some(Nothing)`: no table overlaps; `None`: a running job is in the way, so retry
/// later.
pub fn choose_range(figures: &Figures<'_>, from: usize, to: usize, start: &[u8], end: &[u8]) -> Option<Choice> {
    assert!(
        to == from + 1 || to == from && from > 0,
        "a compaction goes one level down, or rewrites a level below HL0 in place"
    );
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
    /// Tables wholly within one dropped keyspace, from the first level that has any.
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

    /// Tables of which the range tombstones of a newer table leave nothing visible to a reader, from the first level
    /// that has any. Whatever the range tombstones of these tables cover is older still, and lies in the same ranges.
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

    /// Tables with range tombstones, and their levels.
    fn covering(&self) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let tables = self.levels.iter().enumerate();
        let tables = tables.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        tables.filter(|(_, table)| !table.covered_ranges.is_empty())
    }

    /// Tables of the level of `table` and below that its range tombstones cover, and their levels.
    fn covered(&self, level: usize, table: &TableFigures<'a>) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let ranges =
            table.covered_ranges.iter().flat_map(move |range| (level..self.levels.len()).map(move |at| (range, at)));
        let others = ranges
            .flat_map(move |(range, at)| self.overlapping(at, &range.start, &range.end).map(move |other| (at, other)));
        others.filter(move |(_, other)| table.covers(other))
    }

    /// Tables below HL0 that hold only range tombstones, with nothing beneath them.
    fn drop_needless_ranges(&self) -> Option<Choice> {
        self.levels.iter().enumerate().skip(1).find_map(|(level, tables)| {
            let needless = |table: &&TableFigures<'_>| {
                table.entries == 0 && table.range_deletes > 0 && !table.busy && !self.covers_any(level, table)
            };
            let tables: Vec<FileId> = tables.iter().filter(needless).map(|table| table.id).collect();
            (!tables.is_empty()).then_some(Choice::Drop { level, tables })
        })
    }

    /// True if a level holds so much more than its target that what is merged into it pays for it.
    pub fn is_far_behind(&self, level: usize) -> bool {
        self.score(level) >= FAR_BEHIND * 1000
    }

    /// The first possible job for the levels over their targets, worst first; HL0 counts more, since writers wait for it, but not
    /// so much that the level below it grows without an end.
    fn relieve_pressure(&self) -> Option<Choice> {
        let scores = (0..self.levels.len() - 1).map(|level| (self.score(level), level));
        let weighted = |(score, level): (u64, usize)| match level {
            0 => (score.saturating_mul(HL0_WEIGHT_HALVES) / 2, level),
            _ => (score, level),
        };
        let mut scores: Vec<(u64, usize)> = scores.filter(|&(score, _)| score >= 1000).map(weighted).collect();
        // On a tie the upper level goes first: relieving it makes reads cheaper.
        scores.sort_by_key(|&(score, level)| (std::cmp::Reverse(score), level));
        let mut hl0_waits = false;
        for (_, level) in scores {
            let chosen = match level {
                0 => self.compact_hl0(),
                // If HL0 waits for a job below it, no other job may start in its way.
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

    /// Whether the table lies within the key range of HL0.
    fn lies_under_hl0(&self, table: &TableFigures<'_>) -> bool {
        let smallest = self.levels[0].iter().map(|table| table.smallest).min();
        let end = self.levels[0].iter().map(|table| table.end).max();
        smallest.zip(end).is_some_and(|(smallest, end)| overlap(table, smallest, end))
    }

    /// Fill level in thousandths of the target; tables that running jobs are about to remove do not count.
    fn score(&self, level: usize) -> u64 {
        let staying = self.levels[level].iter().filter(|table| !table.busy);
        let (is, target) = match level {
            0 => (staying.count() as u64, self.hl0_trigger().max(1) as u64),
            _ => (staying.map(|table| table.size).sum(), self.targets.bytes(level)),
        };
        (is as u128 * 1000 / target as u128).min(u64::MAX as u128) as u64
    }

    /// The number of tables at which HL0 is compacted.
    fn hl0_trigger(&self) -> usize {
        let bytes = |level: usize| self.levels.get(level).map_or(0, |of| of.iter().map(|table| table.size).sum());
        match self.when_idle {
            // Look-ups ask each table.
            true => self.targets.hl0_trigger,
            false => self.targets.hl0_trigger(bytes(0), bytes(1)),
        }
    }

    /// HL0 is compacted as a whole, so that only neighbours in age are merged; only its oldest table if nothing below
    /// overlaps it.
    fn compact_hl0(&self) -> Option<Choice> {
        let tables: Vec<&TableFigures<'_>> = self.levels[0].iter().collect();
        if tables.iter().any(|table| table.busy) {
            return None;
        }
        let oldest = tables.last()?;
        self.move_down(0, oldest).or_else(|| self.compact(0, 1, &tables).map(Choice::Compact))
    }

    /// The table whose merge rewrites the fewest bytes below per byte that it moves down or makes obsolete there.
    fn compact_least_overlap(&self, level: usize, eligible: impl Fn(&TableFigures<'_>) -> bool) -> Option<Choice> {
        let mut candidates: Vec<(u128, &TableFigures<'_>)> = Vec::new();
        for table in self.levels[level].iter().filter(|table| !table.busy && eligible(table)) {
            let below: u64 = self.overlapping(level + 1, table.smallest, table.end).map(|table| table.size).sum();
            candidates.push((below as u128 * 1000 / table.urgency_bytes().max(1) as u128, table));
        }
        // The sort is stable: on a tie, the table with the smallest key goes first.
        candidates.sort_by_key(|(cost, _)| *cost);
        candidates.into_iter().find_map(|(_, table)| {
            self.move_down(level, table).or_else(|| self.compact(level, level + 1, &[table]).map(Choice::Compact))
        })
    }

    /// Rewrites a table whose key range includes a dropped keyspace without that keyspace. The writer cuts tables
    /// around dropped keyspaces, so its output is not chosen again.
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
                // A table of HL0 is not rewritten in place; all of HL0 is compacted.
                0 => chosen.next().and_then(|_| self.compact_whole_hl0()),
                _ => chosen.find_map(|table| self.compact(level, level, &[table]).map(Choice::Compact)),
            }
        })
    }

    pub(super) fn compact_whole_hl0(&self) -> Option<Choice> {
        self.compact(0, 1, &self.levels[0].iter().collect::<Vec<_>>()).map(Choice::Compact)
    }

    /// Pushes down a table that consists largely of tombstones with something beneath them.
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

    /// Whether the table's range tombstones cover much of what a merge into the next level would read, and no snapshot
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

    /// Tombstones with nothing beneath them were kept for a snapshot, or came down when their table moved. Once all of
    /// the table is older than every snapshot, rewriting it removes them all, so it is not chosen again.
    fn remove_needless_deletes(&self) -> Option<Choice> {
        let mut free = self.needless_deletes().filter(|(_, table)| table.seqno_max <= self.oldest_snapshot);
        free.find_map(|(level, table)| self.compact(level, level, &[table]).map(Choice::Compact))
    }

    /// Rewrites tables below HL0 with stale addresses in place.
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

    /// Compactions that make lookups faster, while idle.
    fn idle_compaction(&self) -> Option<Choice> {
        let found = self
            .when_idle
            .then(|| self.idle_hl0_compaction().or_else(|| self.refresh_these(self.stale_when_idle)))??;
        Some(Choice::Compact(Compact { is_idle_compaction: true, ..found }))
    }

    /// Compacts all of HL0 if lookups visit several tables there or addresses in it are stale, and the tables it is
    /// merged with are not much larger.
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

    /// Tables below HL0, with their levels, that would be smaller without their tombstones and have nothing beneath
    /// them.
    fn needless_deletes(&self) -> impl Iterator<Item = (usize, &TableFigures<'a>)> {
        let levels = self.levels.iter().enumerate().skip(1);
        let tables = levels.flat_map(|(level, tables)| tables.iter().map(move |table| (level, table)));
        tables.filter(|(level, table)| {
            table.deletes_are_one_in(NEEDLESS_ONE_IN) && self.is_worth_it(table) && !self.covers_any(*level, table)
        })
    }

    fn is_worth_it(&self, table: &TableFigures<'_>) -> bool {
        table.size >= self.targets.base_bytes / DELETES_WORTH_PART
    }

    /// Whether a level below has a table that may hold versions that this table's tombstones delete.
    pub(super) fn lies_above(&self, level: usize, table: &TableFigures<'_>) -> bool {
        (level + 1..self.levels.len()).any(|below| self.overlapping(below, table.smallest, table.end).next().is_some())
    }

    /// As [`lies_above`](Self::lies_above), or a bucket may hold such versions.
    fn covers_any(&self, level: usize, table: &TableFigures<'_>) -> bool {
        table.covers_buckets || self.lies_above(level, table)
    }

    /// A move, if nothing below overlaps the table; a table of mostly tombstones is rewritten instead, to drop them.
    pub(super) fn move_down(&self, from: usize, table: &TableFigures<'_>) -> Option<Choice> {
        let to = from + 1;
        let free = !table.busy
            && !table.mostly_deletes()
            && self.overlapping(to, table.smallest, table.end).next().is_none()
            && !self.written_by_another(to, table.smallest, table.end);
        free.then_some(Choice::Move { from, to, table: table.id })
    }

    /// The merge of `inputs` with the tables they overlap in `to`; `None` if a running job is in the way.
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
        // A rewrite in place must also avoid a table that another job is moving in from above: it is busy in the upper
        // level.
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
        // Below HL0 tables are sorted by key, so binary search finds the first.
        let first = if level == 0 { 0 } else { tables.partition_point(|table| table.end <= start) };
        let near = tables[first..].iter().take_while(move |table| level == 0 || table.smallest < end);
        near.filter(move |table| overlap(table, start, end))
    }

    fn written_by_another(&self, level: usize, start: &[u8], end: &[u8]) -> bool {
        let mut running = self.running.iter().filter(|running| running.to == level);
        running.any(|running| &running.smallest[..] < end && start < &running.end[..])
    }
}

#[cfg(test)]
#[path = "picker_test.rs"]
mod tests;
