//! Hidden garbage. A version in an upper level covers older versions below it, but only a compaction that merges the
//! two finds that the older values are dead; until then the ledger counts them as live. This module computes an upper
//! bound on the bytes of values hidden in this way, and chooses the compaction that reveals the most of them per byte
//! read.
//!
//! A version covers at most one value of each older version that it is merged with; a value that a snapshot can still
//! see does not die and counts as live. Each choice moves versions one level down, or leaves its table with nothing
//! hidden, so the choices terminate however inaccurate the bound is. Part of the picker, and pure like the rest of it.

use super::picker::{Choice, Figures};
use super::table_figures::TableFigures;
use crate::base::Seqno;

/// Bytes of records that tables reference, and how many of them may be dead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hidden {
    /// All referenced bytes.
    pub referenced: u64,
    /// Upper bound on the bytes hidden by newer versions that lie in other tables, or that were kept for a snapshot
    /// released since.
    pub hidden: u64,
    /// The likely part of this bound, of tables with an estimate of how many versions they cover.
    pub likely: u64,
    /// The bound of tables without one.
    pub unknown: u64,
    /// The largest record.
    pub record_max: u64,
}

/// Bytes of values that the versions of a table hide.
#[derive(Default)]
struct HiddenBy {
    bound: u64,
    /// `None` without an estimate.
    likely: Option<u64>,
}

impl<'a> Figures<'a> {
    /// How many of the bytes counted as live may be dead. O(tables log tables), or more where tables overlap many
    /// others.
    pub fn hidden(&self) -> Hidden {
        let mut all = Hidden::default();
        for (level, tables) in self.levels.iter().enumerate() {
            for (index, table) in tables.iter().enumerate() {
                let HiddenBy { bound, likely } = self.hidden_by(level, index);
                all.referenced += table.bytes_separated;
                all.hidden += bound;
                all.likely += likely.unwrap_or_default();
                all.unknown += if likely.is_none() { bound } else { 0 };
                all.record_max = all.record_max.max(table.record_bytes_max);
            }
        }
        let at_most = |bytes: u64| bytes.min(all.referenced);
        Hidden { hidden: at_most(all.hidden), likely: at_most(all.likely), unknown: at_most(all.unknown), ..all }
    }

    /// The next compaction that reveals dead values. While one runs, its result is awaited first.
    pub(super) fn uncover(&self) -> Option<Choice> {
        if !self.uncovers || !self.running.is_empty() {
            return None;
        }
        let (mut hiding, mut of_hl0) = (Vec::new(), 0);
        for (level, tables) in self.levels.iter().enumerate() {
            for (index, table) in tables.iter().enumerate() {
                let HiddenBy { bound, likely } = self.hidden_by(level, index);
                let hides = likely.map_or(bound, |likely| likely.max(1));
                match level {
                    _ if bound == 0 => {}
                    0 => of_hl0 += hides,
                    _ => hiding.push((level, table, hides)),
                }
            }
        }
        let mut choices: Vec<(u128, usize, Option<&TableFigures<'a>>)> = Vec::new();
        let worth = |hides: u64, read: u64| hides as u128 * 1000 / read.max(1) as u128;
        if of_hl0 > 0 {
            choices.push((worth(of_hl0, self.bytes_read_by_hl0()), 0, None));
        }
        for (level, table, hides) in hiding {
            choices.push((worth(hides, table.size + self.bytes_below(level, table)), level, Some(table)));
        }
        // On a tie the upper level goes first: the tables it writes are included in later choices.
        choices.sort_by_key(|(worth, level, _)| (std::cmp::Reverse(*worth), *level));
        choices.into_iter().find_map(|(_, level, table)| match table {
            None => self.compact_whole_hl0(),
            Some(table) => self.compact_down(level, table),
        })
    }

    /// Sequence numbers from which on more values may die, once no older snapshot is held.
    pub(super) fn seqnos_held_by_snapshots(&self) -> impl Iterator<Item = Seqno> {
        let tables = || self.levels.iter().flat_map(|tables| tables.iter());
        let any = tables().any(|table| table.bytes_separated > 0);
        let held = tables().filter(move |table| any && table.seqno_max > self.oldest_snapshot);
        held.filter_map(|table| match table.seqno_min > self.oldest_snapshot {
            true => Some(table.seqno_min),
            false => (table.bytes_hidden > 0 || table.range_deletes > 0).then_some(table.seqno_max),
        })
    }

    /// Bytes of values that the versions of a table hide: in the table itself, in older tables of HL0, and below.
    fn hidden_by(&self, level: usize, index: usize) -> HiddenBy {
        let table = &self.levels[level][index];
        let covering = table.entries - table.deltas.min(table.entries);
        let (mut met, mut met_max, mut met_entries, mut covered, mut likely_covered) = (0, 0, 0, 0, 0);
        let mut count = |older: &TableFigures<'a>| {
            // A snapshot that sees nothing newer keeps all of it.
            let is_held = older.seqno_max <= self.oldest_snapshot && self.oldest_snapshot < table.seqno_min;
            match is_held {
                true => {}
                false if table.may_cover_some_of(older) => {
                    covered += older.bytes_separated;
                    let share = u128::from(table.covered_bytes(older)) * u128::from(older.bytes_separated);
                    likely_covered += (share / u128::from(older.size.max(1))) as u64;
                }
                false => {
                    (met, met_max) = (met + older.bytes_separated, older.record_bytes_max.max(met_max));
                    met_entries += older.entries;
                }
            }
        };
        if level == 0 {
            let older = self.levels[0][index + 1..].iter();
            older.filter(|older| older.smallest < table.end && table.smallest < older.end).for_each(&mut count);
        }
        for below in level + 1..self.levels.len() {
            self.overlapping(below, table.smallest, table.end).for_each(&mut count);
        }
        // A value hidden by several versions is counted for the oldest of them.
        let bound = self.hidden_within(table) + covered + met.min(covering.saturating_mul(met_max));
        let of_mean = |count: u64| (u128::from(met) * u128::from(count) / u128::from(met_entries.max(1))) as u64;
        let within = if table.seqno_max <= self.oldest_snapshot { table.bytes_hidden } else { 0 };
        let likely = |count: u64| (within + likely_covered + of_mean(count)).min(bound);
        HiddenBy { bound, likely: table.covering.map(likely) }
    }

    /// Bytes of values that newer versions in the same table hide, and that no snapshot keeps alive any more.
    fn hidden_within(&self, table: &TableFigures<'_>) -> u64 {
        match (table.seqno_max <= self.oldest_snapshot, table.range_deletes) {
            (false, _) => 0,
            (true, 0) => table.bytes_hidden,
            // Values under its own range tombstones are not counted.
            (true, _) => table.bytes_separated,
        }
    }

    /// Moves the table one level down, or rewrites it in place if nothing lies below.
    fn compact_down(&self, level: usize, table: &TableFigures<'a>) -> Option<Choice> {
        if !self.lies_above(level, table) {
            return self.compact(level, level, &[table]).map(Choice::Compact);
        }
        self.move_down(level, table).or_else(|| self.compact(level, level + 1, &[table]).map(Choice::Compact))
    }

    fn bytes_below(&self, level: usize, table: &TableFigures<'_>) -> u64 {
        match level + 1 < self.levels.len() {
            true => self.overlapping(level + 1, table.smallest, table.end).map(|below| below.size).sum(),
            false => 0,
        }
    }

    fn bytes_read_by_hl0(&self) -> u64 {
        let tables = &self.levels[0];
        let smallest = tables.iter().map(|table| table.smallest).min().unwrap_or_default();
        let end = tables.iter().map(|table| table.end).max().unwrap_or_default();
        let below: u64 = self.overlapping(1, smallest, end).map(|table| table.size).sum();
        below + tables.iter().map(|table| table.size).sum::<u64>()
    }
}

#[cfg(test)]
#[path = "hidden_test.rs"]
mod tests;
