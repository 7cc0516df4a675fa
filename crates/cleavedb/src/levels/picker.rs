//! Chooses the next compaction: a pure function from figures to a choice (STYLE 11). It looks at no clock and no file,
//! and the same figures always give the same choice.
//!
//! In order: tables that lie wholly in dropped keyspaces go; the level most over its target is relieved; tables that
//! partly lie in dropped keyspaces are rewritten; tables dense with tombstones are pushed down; tombstones with nothing
//! beneath them are removed once no snapshot needs them. A choice never takes a table that a running job has, and never
//! writes into a key range of a level that a running job writes into.

use crate::base::{FileId, KeyspaceId, Seqno};
use crate::format::meta::TableMeta;

/// What the picker knows of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFigures<'a> {
    /// The file.
    pub id: FileId,
    /// Its length, in bytes.
    pub size: u64,
    /// The first full key.
    pub smallest: &'a [u8],
    /// The last full key.
    pub largest: &'a [u8],
    /// The newest version.
    pub seqno_max: Seqno,
    /// Versions in it.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
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
            largest: &meta.largest,
            seqno_max: meta.seqno_max,
            entries: meta.entries,
            deletes: meta.deletes,
            busy,
        }
    }

    fn mostly_deletes(&self) -> bool {
        self.deletes * 2 > self.entries
    }

    /// Deletes are at least one in `part` of its versions.
    fn deletes_are_one_in(&self, part: u64) -> bool {
        self.deletes > 0 && self.deletes.saturating_mul(part) >= self.entries
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
pub struct Running {
    /// The level.
    pub to: usize,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The last full key.
    pub largest: Vec<u8>,
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
    pub running: &'a [Running],
    /// The oldest sequence number that a reader may still ask for.
    pub oldest_snapshot: Seqno,
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
    /// The first full key of all inputs: with `largest`, the range that the job writes into `to`.
    pub smallest: Vec<u8>,
    /// The last full key of all inputs.
    pub largest: Vec<u8>,
}

impl Compact {
    /// What other choices must keep clear of while this one runs.
    pub fn running(&self) -> Running {
        Running { to: self.to, smallest: self.smallest.clone(), largest: self.largest.clone() }
    }
}

/// The most urgent thing to do.
pub fn choose(figures: &Figures<'_>) -> Choice {
    figures
        .drop_tables()
        .or_else(|| figures.relieve_pressure())
        .or_else(|| figures.rewrite_dropped())
        .or_else(|| figures.push_deletes_down())
        .or_else(|| figures.remove_needless_deletes())
        .unwrap_or(Choice::Nothing)
}

/// The oldest snapshot from which on there will be tombstones to remove that snapshots hold now.
pub fn awaited_snapshot(figures: &Figures<'_>) -> Option<Seqno> {
    let held = figures.needless_deletes().filter(|(_, table)| table.seqno_max > figures.oldest_snapshot);
    held.map(|(_, table)| table.seqno_max).min()
}

/// The merge of all tables of `from` that overlap a key range into `to` (the same level or the next). Of HL0, all tables
/// are taken if one overlaps. `Some(Nothing)`: no table overlaps; `None`: a running job is in the way, try again.
pub fn choose_range(figures: &Figures<'_>, from: usize, to: usize, smallest: &[u8], largest: &[u8]) -> Option<Choice> {
    assert!(to == from + 1 || to == from && from > 0, "a compaction goes one level down, or stays below HL0");
    let tables: &[TableFigures<'_>] = &figures.levels[from];
    let overlaps = |table: &TableFigures<'_>| table.smallest <= largest && smallest <= table.largest;
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
        let doomed = |table: &&TableFigures<'_>| {
            let within = |keyspace: &KeyspaceId| {
                table.smallest.starts_with(&keyspace.prefix()) && table.largest.starts_with(&keyspace.prefix())
            };
            !table.busy && self.dropped.iter().any(within)
        };
        self.levels.iter().enumerate().find_map(|(level, tables)| {
            let tables: Vec<FileId> = tables.iter().filter(doomed).map(|table| table.id).collect();
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
        let largest = self.levels[0].iter().map(|table| table.largest).max();
        smallest.zip(largest).is_some_and(|(smallest, largest)| overlap(table, smallest, largest))
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
            let below: u64 = self.overlapping(level + 1, table.smallest, table.largest).map(|table| table.size).sum();
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
                table.largest >= &prefix[..] && (table.smallest <= &prefix[..] || table.smallest.starts_with(&prefix))
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

    fn compact_whole_hl0(&self) -> Option<Choice> {
        self.compact(0, 1, &self.levels[0].iter().collect::<Vec<_>>()).map(Choice::Compact)
    }

    /// Tombstones that make up much of their table, and have something beneath them, are on their way to kill it.
    fn push_deletes_down(&self) -> Option<Choice> {
        let levels = self.levels.iter().enumerate().skip(1);
        levels.take(self.levels.len().saturating_sub(2)).find_map(|(level, tables)| {
            let hiding = |table: &&TableFigures<'_>| {
                table.deletes_are_one_in(DENSE_ONE_IN) && self.is_worth_it(table) && self.lies_above(level, table)
            };
            let mut candidates = tables.iter().filter(hiding);
            candidates.find_map(|table| self.compact(level, level + 1, &[table]).map(Choice::Compact))
        })
    }

    /// Tombstones with nothing beneath them were kept for a snapshot, or came down when their table moved. Once all of the
    /// table is older than every snapshot, rewriting it leaves none, so it is not chosen again.
    fn remove_needless_deletes(&self) -> Option<Choice> {
        let mut free = self.needless_deletes().filter(|(_, table)| table.seqno_max <= self.oldest_snapshot);
        free.find_map(|(level, table)| self.compact(level, level, &[table]).map(Choice::Compact))
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
    fn lies_above(&self, level: usize, table: &TableFigures<'_>) -> bool {
        self.levels[level + 1..].iter().flatten().any(|lower| overlap(table, lower.smallest, lower.largest))
    }

    /// A move, if nothing below overlaps the table; one that is mostly tombstones is rewritten instead, to lose them.
    fn move_down(&self, from: usize, table: &TableFigures<'_>) -> Option<Choice> {
        let to = from + 1;
        let free = !table.busy
            && !table.mostly_deletes()
            && self.overlapping(to, table.smallest, table.largest).next().is_none()
            && !self.written_by_another(to, table.smallest, table.largest);
        free.then_some(Choice::Move { from, to, table: table.id })
    }

    /// The merge of `inputs` with what they overlap in `to`; `None` if a running job is in the way.
    fn compact(&self, from: usize, to: usize, inputs: &[&TableFigures<'a>]) -> Option<Compact> {
        let smallest = inputs.iter().map(|table| table.smallest).min()?;
        let largest = inputs.iter().map(|table| table.largest).max()?;
        let below: Vec<&TableFigures<'a>> = match from == to {
            true => Vec::new(),
            false => self.overlapping(to, smallest, largest).collect(),
        };
        let all = || inputs.iter().chain(&below);
        let smallest = all().map(|table| table.smallest).min()?;
        let largest = all().map(|table| table.largest).max()?;
        // Rewriting in place must also mind a table that another job is moving in from above: it is busy up there.
        let arriving = from == to && self.overlapping(to - 1, smallest, largest).any(|table| table.busy);
        if arriving || all().any(|table| table.busy) || self.written_by_another(to, smallest, largest) {
            return None;
        }
        let ids = |tables: &[&TableFigures<'_>]| tables.iter().map(|table| table.id).collect();
        let (smallest, largest) = (smallest.to_vec(), largest.to_vec());
        Some(Compact { from, to, inputs: ids(inputs), inputs_below: ids(&below), smallest, largest })
    }

    fn overlapping(&self, level: usize, smallest: &[u8], largest: &[u8]) -> impl Iterator<Item = &TableFigures<'a>> {
        self.levels[level].iter().filter(move |table| overlap(table, smallest, largest))
    }

    fn written_by_another(&self, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
        let mut running = self.running.iter().filter(|running| running.to == level);
        running.any(|running| &running.smallest[..] <= largest && smallest <= &running.largest[..])
    }
}

fn overlap(table: &TableFigures<'_>, smallest: &[u8], largest: &[u8]) -> bool {
    table.smallest <= largest && smallest <= table.largest
}

#[cfg(test)]
#[path = "picker_test.rs"]
mod tests;
