//! Batched lookups: each runs in the block cache only, and the blocks that several of them miss are read together.
//!
//! A lookup that finds a block missing reports it and gives up. The caller collects the missing blocks of many lookups
//! and reads them at once: adjacent blocks in one read, with read-ahead hints for all reads issued before the first, so
//! that the device has them all in flight. Then the lookups are retried. Called by `multi_get`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::table::Table;
use super::table_cursor::{BlockSource, TableCursor};
use crate::base::{Buffer, Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::format::table::BlockHandle;
use crate::io::together::{ReadPlace, span, stretches};

/// Blocks with a gap of no more than this between them are read together.
const GAP_BYTES: u64 = 8 << 10;
/// Number of tables whose cursors are kept for the next key; each cursor holds up to three blocks.
const CURSORS_MAX: usize = 32;

/// Looks up keys one after the other, preferably in order: neighbouring keys reuse the blocks that are already open.
#[derive(Default)]
pub struct Lookups {
    cursors: BTreeMap<FileId, TableCursor>,
}

/// Why a lookup in the cache has no answer. Internal: missing blocks are read and the lookup retried, so users never see it.
#[derive(Debug)]
pub enum Unanswered {
    /// It needs a block that the cache does not have.
    NotCached(Missing),
    /// The lookup failed.
    Failed(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Failed(error)
    }
}

/// The cache only, without the file.
enum CacheOnly {}

impl BlockSource for CacheOnly {
    type Error = Unanswered;

    fn block(table: &Arc<Table>, handle: BlockHandle, pool: PriorityPool, _: bool) -> Result<Arc<Buffer>, Unanswered> {
        let missing = || Unanswered::NotCached(Missing { table: table.clone(), handle, pool });
        table.cached_block(handle, pool).ok_or_else(missing)
    }
}

/// A block that a lookup needs and the cache does not have.
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
    /// The file, and the offset of the block in it.
    pub fn place(&self) -> (FileId, u64) {
        (self.table.meta().id, self.handle.offset)
    }

    fn bytes(&self) -> ReadPlace {
        let (file, start) = self.place();
        ReadPlace { file, start, end: self.handle.end().unwrap_or(u64::MAX) }
    }
}

impl Lookups {
    /// As [`Table::find`], from the block cache only. Advancing the cursor reads blocks as usual.
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

/// Reads blocks into the cache. A block that cannot be read stays missing: the next lookup that needs it returns the error.
pub fn read_together(mut missing: Vec<Missing>) {
    missing.sort_unstable_by_key(Missing::place);
    missing.dedup_by_key(|missing| missing.place());
    let stretches = stretches(&missing, GAP_BYTES, Missing::bytes);
    let reads: Vec<&[Missing]> = stretches.into_iter().map(|stretch| &missing[stretch]).collect();
    let hinted = reads.len() > 1;
    if hinted {
        for stretch in &reads {
            let (start, end) = span(stretch, Missing::bytes);
            stretch[0].table.will_need(start, end.saturating_sub(start));
        }
    }
    for stretch in reads {
        let blocks: Vec<_> = stretch.iter().map(|missing| (missing.handle, missing.pool)).collect();
        // The lookup that needs the block retries the read and reports the error.
        let _ = stretch[0].table.fill_cache(&blocks, span(stretch, Missing::bytes), hinted);
    }
}
