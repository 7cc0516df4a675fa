//! Which tables there are, level by level: immutable, replaced as a whole when an edit commits. Readers hold a version
//! and with it every table it lists.
//!
//! HL0 lists tables newest first; they may overlap in keys, and where they do, each covers an interval of sequence numbers
//! of its own (DESIGN rule 1). Every lower level is sorted by key, no two of its tables overlap, and all it holds of a key
//! is older than what the levels above hold of it.

use std::sync::Arc;

use super::level_cursor::LevelCursor;
use super::picker::TableFigures;
use super::table::Table;
use crate::base::tombstones::{RangeTombstones, TombstoneSpan};
use crate::base::{Cursor, FileId, Result, Seqno, verify};

/// Levels there can be, HL0 included.
pub const LEVELS_MAX: usize = 7;

/// The tables of one level.
#[derive(Clone)]
pub struct Level {
    tables: Arc<[Arc<Table>]>,
    /// Those with range tombstones, in the same order.
    ranged: Arc<[Arc<Table>]>,
    bytes: u64,
    entries: u64,
    range_deletes: u64,
}

impl Level {
    fn new(tables: Vec<Arc<Table>>) -> Level {
        let bytes = tables.iter().map(|table| table.meta().size).sum();
        let entries = tables.iter().map(|table| table.meta().entries).sum();
        let range_deletes = tables.iter().map(|table| table.meta().range_deletes).sum();
        let ranged = tables.iter().filter(|table| table.has_ranges()).cloned().collect();
        Level { tables: tables.into(), ranged, bytes, entries, range_deletes }
    }

    /// The tables: newest first in HL0, by key below.
    pub fn tables(&self) -> &Arc<[Arc<Table>]> {
        &self.tables
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Versions in all tables.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Fragments of range tombstones in all tables.
    pub fn range_deletes(&self) -> u64 {
        self.range_deletes
    }
}

/// All levels at one moment.
#[derive(Clone)]
pub struct Version {
    levels: Vec<Level>,
}

impl Default for Version {
    fn default() -> Version {
        Version { levels: vec![Level::new(Vec::new()); LEVELS_MAX] }
    }
}

impl Version {
    /// The version after this one: with tables added to levels (below [`LEVELS_MAX`]) and others removed. A table that is
    /// in both moves.
    pub fn apply(&self, added: &[(usize, Arc<Table>)], removed: &[FileId]) -> Version {
        assert!(added.iter().all(|(level, _)| *level < LEVELS_MAX), "tables are added to levels that exist");
        let touched = |index: usize, level: &Level| {
            added.iter().any(|(to, _)| *to == index)
                || level.tables.iter().any(|table| removed.contains(&table.meta().id))
        };
        let levels = self.levels.iter().enumerate().map(|(index, level)| {
            if !touched(index, level) {
                return level.clone();
            }
            let kept = level.tables.iter().filter(|table| !removed.contains(&table.meta().id));
            let new = added.iter().filter(|(to, _)| *to == index).map(|(_, table)| table);
            let mut tables: Vec<Arc<Table>> = kept.chain(new).cloned().collect();
            match index {
                0 => tables.sort_by_key(|table| std::cmp::Reverse((table.meta().seqno_max, table.meta().id))),
                _ => tables.sort_by(|left, right| left.meta().smallest.cmp(&right.meta().smallest)),
            }
            Level::new(tables)
        });
        let version = Version { levels: levels.collect() };
        verify!(version.keeps_one_order(), "tables that overlap in keys cover intervals of their own, ordered by age");
        version
    }

    /// Rule 1 within each level. (That a level is older than the one above is up to who picks compactions: sequence
    /// numbers of different keys say nothing about it.)
    fn keeps_one_order(&self) -> bool {
        let hl0 = self.levels[0].tables();
        let hl0_ordered = hl0.iter().enumerate().all(|(index, newer)| {
            hl0[index + 1..].iter().map(|older| older.meta()).all(|older| {
                let newer = newer.meta();
                !newer.overlaps(&older.smallest, &older.end) || older.seqno_max < newer.seqno_min
            })
        });
        let sorted = |level: &Level| level.tables.windows(2).all(|pair| pair[0].meta().end <= pair[1].meta().smallest);
        hl0_ordered && self.levels[1..].iter().all(sorted)
    }

    /// All levels, HL0 first; always [`LEVELS_MAX`] of them.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The tables whose key range covers `key`, those with newer versions first. O(HL0 + levels * log tables).
    pub fn tables_for_key<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<Table>> {
        let hl0 = self.levels[0].tables.iter().filter(move |table| table.meta().spans(key));
        hl0.chain(self.levels[1..].iter().filter_map(move |level| table_covering(level, key)))
    }

    /// The tables of a level that may hold keys from `start` up to, not including, `end`, in the level's order.
    pub fn overlapping(&self, level: usize, start: &[u8], end: &[u8]) -> Vec<Arc<Table>> {
        let tables = self.levels[level].tables.iter();
        tables.filter(|table| table.meta().overlaps(start, end)).cloned().collect()
    }

    /// A level below `level` has a table whose key range covers `key`. If not, what a compaction into `level` holds of
    /// the key is all there is beneath, and its tombstones may go (as far as other stores agree).
    pub fn may_hold_below(&self, level: usize, key: &[u8]) -> bool {
        self.levels[level + 1..].iter().any(|level| table_covering(level, key).is_some())
    }

    /// As [`may_hold_below`](Version::may_hold_below), of any key from `start` up to, not including, `end`; of all levels
    /// from `level` on.
    pub fn may_hold_range_from(&self, level: usize, start: &[u8], end: &[u8]) -> bool {
        self.levels[level..].iter().flat_map(|level| level.tables.iter()).any(|table| table.meta().overlaps(start, end))
    }

    /// The table with this number, and its level.
    pub fn find(&self, id: FileId) -> Option<(usize, &Arc<Table>)> {
        let mut levels = self.levels.iter().enumerate();
        levels.find_map(|(index, level)| Some((index, level.tables.iter().find(|table| table.meta().id == id)?)))
    }

    /// Cursors that together show every version of the keys from `lower` up to (not including) `upper`, and may show
    /// more: one for each table of HL0 that reaches into the range, newest first, and one for each level below that is
    /// not empty.
    /// With each comes the source of its range tombstones, if it has some.
    pub fn cursors(&self, lower: &[u8], upper: Option<&[u8]>, fill_cache: bool) -> Vec<TableSource> {
        let mut sources: Vec<TableSource> = Vec::new();
        let within = |table: &&Arc<Table>| {
            let meta = table.meta();
            &meta.end[..] > lower && upper.is_none_or(|upper| &meta.smallest[..] < upper)
        };
        for table in self.levels[0].tables.iter().filter(within) {
            let ranges = table.has_ranges().then(|| table.clone() as _);
            sources.push((Box::new(table.cursor(fill_cache)), ranges));
        }
        for level in self.levels[1..].iter().filter(|level| !level.tables.is_empty()) {
            let ranges = level.ranged.iter().any(|table| within(&table)).then(|| LevelRanges(level.ranged.clone()));
            let ranges = ranges.map(|ranges| Arc::new(ranges) as _);
            sources.push((Box::new(LevelCursor::new(level.tables.clone(), fill_cache)), ranges));
        }
        sources
    }

    /// What the picker needs to know; `busy` says whether a running job has a table.
    pub fn figures(&self, busy: &dyn Fn(FileId) -> bool) -> Vec<Vec<TableFigures<'_>>> {
        let mut figures = Vec::with_capacity(LEVELS_MAX);
        for level in &self.levels {
            let tables = level.tables.iter().map(|table| table.meta());
            figures.push(tables.map(|meta| TableFigures::new(meta, busy(meta.id))).collect());
        }
        figures
    }
}

/// A cursor, and the range tombstones that come with what it shows.
pub type TableSource = (Box<dyn Cursor + Send>, Option<Arc<dyn RangeTombstones>>);

/// The range tombstones of a level below HL0: those of one table after the other.
struct LevelRanges(Arc<[Arc<Table>]>);

impl RangeTombstones for LevelRanges {
    fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        let index = self.0.partition_point(|table| &table.meta().end[..] <= key);
        let meta = |index: usize| self.0.get(index).map(|table| table.meta());
        let from = index.checked_sub(1).and_then(meta).map(|before| before.end.clone());
        let gap = |to: Option<Vec<u8>>| TombstoneSpan { from, to, seqno: Seqno::ZERO };
        match self.0.get(index) {
            Some(table) if table.meta().spans(key) => {
                let (from, to) = (Some(table.meta().smallest.clone()), Some(table.meta().end.clone()));
                let mut span = TombstoneSpan { from, to, seqno: Seqno::ZERO };
                span.narrow(table.span_at(key, snapshot)?);
                Ok(span)
            }
            next => Ok(gap(next.map(|table| table.meta().smallest.clone()))),
        }
    }
}

/// The one table of a sorted level whose key range covers `key`.
fn table_covering<'a>(level: &'a Level, key: &[u8]) -> Option<&'a Arc<Table>> {
    let index = level.tables.partition_point(|table| &table.meta().end[..] <= key);
    level.tables.get(index).filter(|table| &table.meta().smallest[..] <= key)
}

#[cfg(test)]
#[path = "version_test.rs"]
mod tests;
