//! The set of tables, level by level: immutable, and replaced as a whole when an edit commits. Readers hold a version
//! and with it every table in it.
//!
//! HL0 lists tables newest first; they may overlap in keys, and where they do, each covers its own interval of sequence
//! numbers (rule 1 of `docs/ARCHITECTURE.md`). Every lower level is sorted by key, its tables do not overlap, and all
//! its versions of a key are older than those in the levels above.

use std::sync::Arc;

use super::level_cursor::LevelCursor;
use super::table::Table;
use super::table_figures::TableFigures;
use crate::base::tombstones::{RangeTombstones, TombstoneSpan};
use crate::base::{FileId, Result, Seqno, verify};
use crate::format::buckets::SEGMENT_LEVEL;

/// Number of levels, HL0 included.
pub const LEVELS_MAX: usize = 7;

/// The tables of one level.
pub struct Level {
    tables: Arc<[Arc<Table>]>,
    /// Those that hold range tombstones, in the same order.
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

    /// The one table whose key range covers `key`, in a level below HL0. O(log tables).
    pub fn table_for(&self, key: &[u8]) -> Option<&Arc<Table>> {
        let index = self.tables.partition_point(|table| &table.meta().end[..] <= key);
        self.tables.get(index).filter(|table| &table.meta().smallest[..] <= key)
    }

    /// A cursor over all versions of a level below HL0.
    pub fn cursor(&self, fill_cache: bool) -> LevelCursor {
        LevelCursor::new(self.tables.clone(), fill_cache)
    }

    /// The range tombstones of a level below HL0, if a table that overlaps the keys from `lower` up to, not including,
    /// `upper` has some.
    pub fn ranges(&self, lower: &[u8], upper: Option<&[u8]>) -> Option<LevelRanges> {
        let any = self.ranged.iter().any(|table| table.meta().reaches_into(lower, upper));
        any.then(|| LevelRanges(self.ranged.clone()))
    }

    /// The sequence numbers of all versions, first and last; `None` if there are no tables.
    pub fn seqnos(&self) -> Option<(Seqno, Seqno)> {
        let metas = || self.tables.iter().map(|table| table.meta());
        Some((metas().map(|meta| meta.seqno_min).min()?, metas().map(|meta| meta.seqno_max).max()?))
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Number of versions in all tables.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Number of fragments of range tombstones in all tables.
    pub fn range_deletes(&self) -> u64 {
        self.range_deletes
    }
}

/// All levels at one moment.
#[derive(Clone)]
pub struct Version {
    levels: Vec<Arc<Level>>,
    /// The delta segments, by number: tables that are in no level, of which the buckets of the delta store use parts.
    segments: Arc<[Arc<Table>]>,
}

impl Default for Version {
    fn default() -> Version {
        let levels = (0..LEVELS_MAX).map(|_| Arc::new(Level::new(Vec::new()))).collect();
        Version { levels, segments: Vec::new().into() }
    }
}

impl Version {
    /// The next version: tables are added to levels (below [`LEVELS_MAX`]), or as delta segments (in place of a level
    /// [`SEGMENT_LEVEL`]), and others removed. A table in both lists moves.
    pub fn apply(&self, added: &[(usize, Arc<Table>)], removed: &[FileId]) -> Version {
        let exists = |level: usize| level < LEVELS_MAX || level == usize::from(SEGMENT_LEVEL);
        assert!(added.iter().all(|(level, _)| exists(*level)), "tables are added to levels that exist");
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
            Arc::new(Level::new(tables))
        });
        let version = Version { levels: levels.collect(), segments: self.segments_after(added, removed) };
        verify!(
            version.keeps_one_order(),
            "overlapping tables cover disjoint sequence-number intervals, ordered by age"
        );
        version
    }

    fn segments_after(&self, added: &[(usize, Arc<Table>)], removed: &[FileId]) -> Arc<[Arc<Table>]> {
        let new = || added.iter().filter(|(to, _)| *to == usize::from(SEGMENT_LEVEL)).map(|(_, table)| table);
        if new().next().is_none() && !removed.iter().any(|id| self.segment(*id).is_some()) {
            return self.segments.clone();
        }
        let kept = self.segments.iter().filter(|table| !removed.contains(&table.meta().id));
        let mut segments: Vec<Arc<Table>> = kept.chain(new()).cloned().collect();
        segments.sort_by_key(|table| table.meta().id);
        segments.into()
    }

    /// The delta segments, by number.
    pub fn segments(&self) -> &Arc<[Arc<Table>]> {
        &self.segments
    }

    /// The delta segment with this number. O(log segments).
    pub fn segment(&self, id: FileId) -> Option<&Arc<Table>> {
        let index = self.segments.binary_search_by_key(&id, |table| table.meta().id).ok()?;
        self.segments.get(index)
    }

    /// The tables of all levels, and the delta segments.
    pub fn all_tables(&self) -> impl Iterator<Item = &Arc<Table>> {
        self.levels.iter().flat_map(|level| level.tables.iter()).chain(self.segments.iter())
    }

    /// Rule 1 within each level. (The picker ensures that a level is older than the one above it; sequence numbers of
    /// different keys cannot show it.)
    fn keeps_one_order(&self) -> bool {
        let hl0 = self.levels[0].tables();
        let hl0_ordered = hl0.iter().enumerate().all(|(index, newer)| {
            hl0[index + 1..].iter().map(|older| older.meta()).all(|older| {
                let newer = newer.meta();
                !newer.overlaps(&older.smallest, &older.end) || older.seqno_max < newer.seqno_min
            })
        });
        let sorted =
            |level: &Arc<Level>| level.tables.windows(2).all(|pair| pair[0].meta().end <= pair[1].meta().smallest);
        hl0_ordered && self.levels[1..].iter().all(sorted)
    }

    /// All levels, HL0 first; always [`LEVELS_MAX`] of them.
    pub fn levels(&self) -> &[Arc<Level>] {
        &self.levels
    }

    /// The tables of all levels in which addresses stand in place of most values: bytes of these, and whether they hold most of
    /// all versions. O(tables).
    pub fn tables_of_addresses(&self) -> (u64, bool) {
        let metas = self.levels.iter().flat_map(|level| level.tables.iter()).map(|table| table.meta());
        let (mut bytes, mut entries, mut others) = (0, 0, 0);
        for meta in metas {
            match meta.holds_addresses() {
                true => (bytes, entries) = (bytes + meta.size, entries + meta.entries),
                false => others += meta.entries,
            }
        }
        (bytes, entries > others)
    }

    /// The tables whose key range covers `key`, those with newer versions first. O(HL0 + levels * log tables).
    pub fn tables_for_key<'a>(&'a self, key: &'a [u8]) -> impl Iterator<Item = &'a Arc<Table>> {
        let hl0 = self.levels[0].tables.iter().filter(move |table| table.meta().spans(key));
        hl0.chain(self.levels[1..].iter().filter_map(move |level| level.table_for(key)))
    }

    /// The tables of a level that may hold keys from `start` up to, not including, `end`, in the level's order.
    pub fn overlapping(&self, level: usize, start: &[u8], end: &[u8]) -> Vec<Arc<Table>> {
        let tables = self.levels[level].tables.iter();
        tables.filter(|table| table.meta().overlaps(start, end)).cloned().collect()
    }

    /// Whether a level below `level` has a table whose key range covers `key`. If not, a compaction into `level` writes
    /// all that the levels hold of the key, and may drop its tombstones if the other stores agree.
    pub fn may_hold_below(&self, level: usize, key: &[u8]) -> bool {
        self.levels[level + 1..].iter().any(|level| level.table_for(key).is_some())
    }

    /// As [`may_hold_below`](Version::may_hold_below), for any key from `start` up to, not including, `end`, in all
    /// levels from `level` on.
    pub fn may_hold_range_from(&self, level: usize, start: &[u8], end: &[u8]) -> bool {
        self.levels[level..].iter().flat_map(|level| level.tables.iter()).any(|table| table.meta().overlaps(start, end))
    }

    /// The table with this number, and its level; of a delta segment [`SEGMENT_LEVEL`].
    pub fn find(&self, id: FileId) -> Option<(usize, &Arc<Table>)> {
        let mut levels = self.levels.iter().enumerate();
        let found =
            levels.find_map(|(index, level)| Some((index, level.tables.iter().find(|table| table.meta().id == id)?)));
        found.or_else(|| Some((SEGMENT_LEVEL.into(), self.segment(id)?)))
    }

    /// What the picker needs to know; `busy` says whether a running job has a table.
    pub fn figures(&self, busy: &dyn Fn(FileId) -> bool) -> Vec<Vec<TableFigures<'_>>> {
        let mut figures = Vec::with_capacity(LEVELS_MAX);
        for level in &self.levels {
            let tables = level.tables.iter().map(|table| TableFigures {
                covering: table.covering(),
                ..TableFigures::new(table.meta(), busy(table.meta().id))
            });
            figures.push(tables.collect());
        }
        figures
    }
}

/// The range tombstones of a level below HL0: those of one table after the other.
pub struct LevelRanges(Arc<[Arc<Table>]>);

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

#[cfg(test)]
#[path = "version_test.rs"]
mod tests;
