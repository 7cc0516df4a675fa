//! Look-ups of many keys that do without the disk as long as they can, and reads for many of them together.
//!
//! A look-up takes what the block cache has; where a block is missing it says which and gives up. Its caller collects what
//! many look-ups miss and has it read together: blocks that lie side by side in one read, and the system is told of all
//! reads before the first, so that it has them in flight at once. Then the look-ups are tried again. Called by `multi_get`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::table::Table;
use super::table_cursor::{BlockSource, TableCursor};
use crate::base::{Buffer, Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::format::table::BlockHandle;
use crate::io::coalesced::{ReadRange, coalesce, span};

/// Blocks that lie closer than this are read together.
const GAP_BYTES: u64 = 8 << 10;
/// So many tables keep their cursor for the next key; each holds three blocks.
const CURSORS_MAX: usize = 32;

/// Looks up keys one after the other, best in order: neighbours find the blocks of the one before still open.
#[derive(Default)]
pub struct Lookups {
    cursors: BTreeMap<FileId, TableCursor>,
}

/// Why a look-up in the cache has no answer. Internal: what is not cached is read, and no user hears of it.
#[derive(Debug)]
pub enum Unanswered {
    /// It needs a block that the cache does not have.
    NotCached(Missing),
    /// It has failed.
    Failed(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Failed(error)
    }
}

/// The cache alone.
enum CacheOnly {}

impl BlockSource for CacheOnly {
    type Error = Unanswered;

    fn block(table: &Arc<Table>, handle: BlockHandle, pool: PriorityPool, _: bool) -> Result<Arc<Buffer>, Unanswered> {
        let missing = || Unanswered::NotCached(Missing { table: table.clone(), handle, pool });
        table.cached_block(handle, pool).ok_or_else(missing)
    }
}

/// A block that a look-up wanted and the cache did not have.
pub struct Missing {
    table: Arc<Table>,
    handle: BlockHandle,
    pool: PriorityPool,
}

impl fmt::Debug for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Missing").field(&self.place()).finish()
    }
}

impl Missing {
    /// Which block of which file.
    pub fn place(&self) -> (FileId, u64) {
        (self.table.meta().id, self.handle.offset)
    }

    fn bytes(&self) -> ReadRange {
        let (file, start) = self.place();
        ReadRange { file, start, end: self.handle.end().unwrap_or(u64::MAX) }
    }
}

impl Lookups {
    /// As [`Table::find`], from the block cache alone. Moving the cursor on reads what it needs.
    pub fn find(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        snapshot: Seqno,
    ) -> Result<Option<&mut TableCursor>, Unanswered> {
        if !table.may_hold(key, snapshot) {
            return Ok(None);
        }
        let id = table.meta().id;
        if self.cursors.len() >= CURSORS_MAX && !self.cursors.contains_key(&id) {
            self.cursors.clear();
        }
        let cursor = self.cursors.entry(id).or_insert_with(|| table.cursor(true));
        cursor.seek_filtered::<CacheOnly>(key, Stamp::at(snapshot))?;
        let found = cursor.valid() && cursor.key() == key;
        Ok(found.then_some(cursor))
    }
}

/// Reads blocks into the cache. One that cannot be read stays missing: whoever needs it meets the error.
pub fn read_together(mut missing: Vec<Missing>) {
    missing.sort_unstable_by_key(Missing::place);
    missing.dedup_by_key(|missing| missing.place());
    let groups = coalesce(&missing, GAP_BYTES, Missing::bytes);
    let reads: Vec<&[Missing]> = groups.into_iter().map(|group| &missing[group]).collect();
    let told = reads.len() > 1;
    if told {
        for stretch in &reads {
            let (start, end) = span(stretch, Missing::bytes);
            stretch[0].table.will_need(start, end.saturating_sub(start));
        }
    }
    for stretch in reads {
        let blocks: Vec<_> = stretch.iter().map(|missing| (missing.handle, missing.pool)).collect();
        // Tried again, and then reported, by the look-up that needs it.
        let _ = stretch[0].table.fill_cache(&blocks, span(stretch, Missing::bytes), told);
    }
}
