//! A cursor over the tables of a level below HL0: sorted by key, not overlapping, one open at a time.
//!
//! No key has versions in two tables of such a level, so the tables follow each other like the blocks of a table.

use std::sync::Arc;

use super::table::Table;
use super::table_cursor::TableCursor;
use crate::base::file_set::FileSet;
use crate::base::{Cursor, Result, Slice, Stamp};

/// A cursor over tables that follow each other in key order.
pub struct LevelCursor {
    tables: Arc<[Arc<Table>]>,
    fill_cache: bool,
    /// The open table, by its position in the level.
    open: Option<(usize, TableCursor)>,
}

impl LevelCursor {
    /// A cursor over `tables`, sorted by key; not positioned.
    pub fn new(tables: Arc<[Arc<Table>]>, fill_cache: bool) -> LevelCursor {
        LevelCursor { tables, fill_cache, open: None }
    }

    /// Opens the table at `index`; `None` (and the cursor not valid) past the ends of the level.
    fn open_table(&mut self, index: Option<usize>) -> Option<&mut TableCursor> {
        let index = index.filter(|&index| index < self.tables.len());
        let open = match (self.open.take(), index) {
            (_, None) => return None,
            (Some(open), Some(index)) if open.0 == index => open,
            (_, Some(index)) => (index, self.tables[index].cursor(self.fill_cache)),
        };
        Some(&mut self.open.insert(open).1)
    }

    /// While the open table is exhausted, moves to the first version of the next one. (A table may hold range
    /// tombstones only.)
    fn skip_forward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.open
            && !cursor.valid()
        {
            let next = index + 1;
            self.open_table(Some(next)).map_or(Ok(()), TableCursor::seek_first)?;
        }
        Ok(())
    }

    /// While the open table is exhausted, moves to the last version of the previous one.
    fn skip_backward(&mut self) -> Result<()> {
        while let Some((index, cursor)) = &self.open
            && !cursor.valid()
        {
            let before = index.checked_sub(1);
            self.open_table(before).map_or(Ok(()), TableCursor::seek_last)?;
        }
        Ok(())
    }

    /// As [`next`](Cursor::next), past all versions but those whose payload is an address in one of `files`.
    pub(super) fn next_in(&mut self, files: &FileSet) -> Result<()> {
        while let Some((index, cursor)) = &mut self.open {
            cursor.next_in(files)?;
            if cursor.valid() {
                break;
            }
            let next = *index + 1;
            if let Some(cursor) = self.open_table(Some(next)) {
                cursor.seek_first()?;
                if cursor.valid() && cursor.is_in(files) {
                    break;
                }
            }
        }
        Ok(())
    }

    fn current(&self) -> &TableCursor {
        &self.open.as_ref().expect("only a valid cursor is read").1
    }

    fn current_mut(&mut self) -> &mut TableCursor {
        &mut self.open.as_mut().expect("only a valid cursor moves").1
    }
}

impl Cursor for LevelCursor {
    #[inline]
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|(_, cursor)| cursor.valid())
    }

    #[inline]
    fn key(&self) -> &[u8] {
        self.current().key()
    }

    #[inline]
    fn stamp(&self) -> Stamp {
        self.current().stamp()
    }

    #[inline]
    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let index = self.tables.partition_point(|table| &table.meta().end[..] <= key);
        self.open_table(Some(index)).map_or(Ok(()), |cursor| cursor.seek(key, stamp))?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let index = self.tables.partition_point(|table| &table.meta().smallest[..] <= key);
        self.open_table(index.checked_sub(1)).map_or(Ok(()), |cursor| cursor.seek_before(key, stamp))?;
        self.skip_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.open_table(Some(0)).map_or(Ok(()), TableCursor::seek_first)?;
        self.skip_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.open_table(self.tables.len().checked_sub(1)).map_or(Ok(()), TableCursor::seek_last)?;
        self.skip_backward()
    }

    #[inline]
    fn next(&mut self) -> Result<()> {
        self.current_mut().next()?;
        self.skip_forward()
    }

    #[inline]
    fn prev(&mut self) -> Result<()> {
        self.current_mut().prev()?;
        self.skip_backward()
    }
}
