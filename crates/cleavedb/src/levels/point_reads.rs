//! Reads of single keys from tables: one key at a time ([`OneKey`], for `get`), or many keys from cached blocks
//! ([`ManyKeys`], for `multi_get`).
//!
//! A lookup of many keys uses only cached blocks; if a block is missing, it fails and names the block
//! ([`Unanswered::NotCached`]). The caller collects the missing blocks of many keys, reads them together
//! ([`read_missing`]), and retries those keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::table::Table;
use super::table_cursor::{BlockSource, CacheAndFile, TableCursor};
use crate::base::key_versions::{KeyVersions, inline};
use crate::base::{Buffer, Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::cache::value_cache::{ValueCache, ValueEntry};
use crate::format::table::BlockHandle;
use crate::io::coalesced_reads::{Coalescing, ReadRange, ReadRequest, read_coalesced};

/// Which blocks are read together.
const COALESCING: Coalescing = Coalescing { gap_bytes: 8 << 10, read_bytes_max: 256 << 10 };
/// Tables that keep their cursor for the next key; each cursor holds three blocks.
const CURSORS_MAX: usize = 32;

/// A way to look up a key in one table.
pub trait TableLookUp {
    /// Why a lookup has no answer.
    type Error: From<Error>;

    /// Adds what the table holds of `key` at or below `snapshot`: the covering range tombstone, then the versions, newest
    /// first, until no older one is needed.
    fn look_up(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        snapshot: Seqno,
        versions: &mut KeyVersions,
    ) -> Result<(), Self::Error>;
}

/// Looks up one key, reading what the block cache does not have.
#[derive(Default)]
pub struct OneKey<'a> {
    values: Option<&'a ValueCache>,
    cached: Option<Option<ValueEntry>>,
}

impl<'a> OneKey<'a> {
    /// A lookup that asks the value cache first when it reaches a table with separated values: if the cached value is
    /// the newest of the table, no block is read.
    pub fn with_values(values: &'a ValueCache) -> OneKey<'a> {
        OneKey { values: Some(values), cached: None }
    }

    /// The answer of the value cache for the key, if it was asked.
    pub fn into_cached(self) -> Option<Option<ValueEntry>> {
        self.cached
    }
}

impl TableLookUp for OneKey<'_> {
    type Error = Error;

    fn look_up(&mut self, table: &Arc<Table>, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<()> {
        if !may_hold(table, key, snapshot, versions)? {
            return Ok(());
        }
        if let Some(values) = self.values.filter(|_| table.meta().addresses > 0)
            && let Some(cached) = self.cached.get_or_insert_with(|| values.find(key))
            && cached.table == Some(table.meta().id)
            && cached.stamp.seqno() <= snapshot
        {
            versions.push_older(inline(cached.stamp), cached.value.clone());
            return Ok(());
        }
        let mut cursor = table.cursor(true);
        cursor.seek_in::<CacheAndFile>(key, Stamp::at(snapshot), true)?;
        take_versions(table, &mut cursor, key, snapshot, versions)
    }
}

/// Looks up keys one after the other from cached blocks, preferably in key order: neighbouring keys reuse the blocks
/// that are already open.
#[derive(Default)]
pub struct ManyKeys {
    cursors: BTreeMap<FileId, TableCursor>,
}

/// Why one of many lookups has no answer. Internal: missing blocks are read and the lookup retried, so users never see
/// it.
#[derive(Debug)]
pub enum Unanswered {
    /// It needs a block that the cache does not have.
    NotCached(MissingBlock),
    /// The lookup failed.
    Failed(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Failed(error)
    }
}

/// The block cache only, without the file.
enum CacheOnly {}

impl BlockSource for CacheOnly {
    type Error = Unanswered;

    fn block(table: &Arc<Table>, handle: BlockHandle, pool: PriorityPool, _: bool) -> Result<Arc<Buffer>, Unanswered> {
        let missing = || Unanswered::NotCached(MissingBlock { table: table.clone(), handle, pool });
        table.cached_block(handle, pool).ok_or_else(missing)
    }
}

impl TableLookUp for ManyKeys {
    type Error = Unanswered;

    fn look_up(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        snapshot: Seqno,
        versions: &mut KeyVersions,
    ) -> Result<(), Unanswered> {
        if !may_hold(table, key, snapshot, versions)? {
            return Ok(());
        }
        let id = table.meta().id;
        if self.cursors.len() >= CURSORS_MAX && !self.cursors.contains_key(&id) {
            self.cursors.clear();
        }
        let cursor = self.cursors.entry(id).or_insert_with(|| table.cursor(true));
        cursor.seek_in::<CacheOnly>(key, Stamp::at(snapshot), true)?;
        Ok(take_versions(table, cursor, key, snapshot, versions)?)
    }
}

/// Takes the range tombstone of the table that covers the key. False if the table's metadata excludes a version of the
/// key at or below `snapshot`.
#[inline]
fn may_hold(table: &Table, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<bool> {
    let meta = table.meta();
    if snapshot < meta.seqno_min || !meta.spans(key) {
        return Ok(false);
    }
    versions.cover(table.cover(key, snapshot)?);
    Ok(meta.entries > 0)
}

/// Takes the versions of `key` from the cursor's position on.
fn take_versions(
    table: &Table,
    cursor: &mut TableCursor,
    key: &[u8],
    snapshot: Seqno,
    versions: &mut KeyVersions,
) -> Result<()> {
    let mut newest = None;
    while cursor.valid() && cursor.key() == key {
        let stamp = cursor.stamp();
        newest.get_or_insert(stamp);
        if !versions.push_older(stamp, cursor.value_slice()) {
            break;
        }
        cursor.next()?;
    }
    if let Some(newest) = newest.filter(|_| snapshot >= table.meta().seqno_max) {
        versions.note_newest_in(table.meta().id, newest);
    }
    Ok(())
}

/// A block that a lookup needs and the cache does not have.
pub struct MissingBlock {
    table: Arc<Table>,
    handle: BlockHandle,
    pool: PriorityPool,
}

impl fmt::Debug for MissingBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MissingBlock").field(&self.place()).finish()
    }
}

impl MissingBlock {
    /// The file, and the offset of the block in it.
    pub fn place(&self) -> (FileId, u64) {
        (self.table.meta().id, self.handle.offset)
    }
}

/// Reads blocks into the cache. A block that cannot be read stays missing: the next lookup that needs it returns the
/// error.
pub fn read_missing(mut missing: Vec<MissingBlock>) {
    missing.sort_unstable_by_key(MissingBlock::place);
    missing.dedup_by_key(|missing| missing.place());
    let wanted = missing.into_iter().filter_map(|block| {
        let end = block.handle.end().filter(|end| *end <= block.table.blocks_end())?;
        let (file, start) = block.place();
        Some(ReadRequest { range: ReadRange { file, start, end }, context: block })
    });
    let open = |block: &MissingBlock| block.table.file().ok();
    read_coalesced(wanted.collect(), COALESCING, open, |block, sealed| {
        // The lookup that needs the block retries the read and reports the error.
        let _ = block.table.insert_block(block.handle, block.pool, sealed);
    });
}
