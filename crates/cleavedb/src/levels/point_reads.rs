//! How tables are asked for the versions of single keys: each key by itself ([`OneKey`], for `get`), or many keys from
//! cached blocks ([`ManyKeys`], for `multi_get`).
//!
//! A look-up of many keys takes what the block cache has; if a block is missing, it fails and names the block
//! ([`Unanswered::NotCached`]). Its caller collects the missing blocks of many keys, has them read together
//! ([`read_missing`]), and tries those keys again.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::table::Table;
use super::table_cursor::{BlockSource, CacheAndFile, TableCursor};
use crate::base::key_versions::{KeyVersions, inline};
use crate::base::{Buffer, Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::cache::value_cache::{Kept, ValueCache};
use crate::format::table::BlockHandle;
use crate::io::coalesced_reads::{Coalescing, ReadRange, ReadRequest, read_coalesced};

/// Which blocks are read together.
const COALESCING: Coalescing = Coalescing { gap_bytes: 8 << 10, read_bytes_max: 256 << 10 };
/// Tables that keep their cursor for the next key; each cursor holds three blocks.
const CURSORS_MAX: usize = 32;

/// A way to look up a key in one table.
pub trait TableLookUp {
    /// Why a look-up has no answer.
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
    cached: Option<Option<Kept>>,
}

impl<'a> OneKey<'a> {
    /// A look-up that asks the value cache first, when it comes to a table with separated values: if the cached value is
    /// the newest of the table, no block is read.
    pub fn with_values(values: &'a ValueCache) -> OneKey<'a> {
        OneKey { values: Some(values), cached: None }
    }

    /// What the value cache holds of the key, if it was asked.
    pub fn into_cached(self) -> Option<Option<Kept>> {
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
        cursor.seek_filtered::<CacheAndFile>(key, Stamp::at(snapshot))?;
        take_versions(table, &mut cursor, key, snapshot, versions)
    }
}

/// Looks up keys one after the other from cached blocks. Best in key order: neighbours find the blocks of the key before
/// still open.
#[derive(Default)]
pub struct ManyKeys {
    cursors: BTreeMap<FileId, TableCursor>,
}

/// Why a look-up of many keys has no answer for one of them. Internal: what is not cached is read, and no user hears of it.
#[derive(Debug)]
pub enum Unanswered {
    /// It needs a block that the cache does not have.
    NotCached(MissingBlock),
    /// It has failed.
    Failed(Error),
}

impl From<Error> for Unanswered {
    fn from(error: Error) -> Unanswered {
        Unanswered::Failed(error)
    }
}

/// The block cache alone.
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
        cursor.seek_filtered::<CacheOnly>(key, Stamp::at(snapshot))?;
        Ok(take_versions(table, cursor, key, snapshot, versions)?)
    }
}

/// Takes the range tombstone of the table that covers the key. False if what is known of the table rules out a version of
/// the key at or below `snapshot`.
#[inline]
fn may_hold(table: &Table, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<bool> {
    let meta = table.meta();
    if snapshot < meta.seqno_min || !meta.spans(key) {
        return Ok(false);
    }
    versions.cover(table.cover(key, snapshot)?);
    Ok(meta.entries > 0)
}

/// Takes the versions of `key` from where the cursor stands.
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

/// A block that a look-up needed and the cache did not have.
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
    /// Which block of which file.
    pub fn place(&self) -> (FileId, u64) {
        (self.table.meta().id, self.handle.offset)
    }
}

/// Reads blocks into the cache. One that cannot be read stays missing: the look-up that needs it reports the error.
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
        // A damaged block is read again, and reported, by the look-up that needs it.
        let _ = block.table.insert_block(block.handle, block.pool, sealed);
    });
}
