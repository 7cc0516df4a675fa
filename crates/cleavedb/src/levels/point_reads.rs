//! How tables are asked for the versions of single keys: each key by itself ([`OneKey`], for `get`), or many keys from
//! cached blocks ([`ManyKeys`], for `multi_get`).
//!
//! A look-up of many keys takes what the block cache has; if a block is missing, it fails and says which. Its caller
//! collects the missing blocks of many keys, has them read together ([`read_missing`]), and tries those keys again.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::table::Table;
use super::table_cursor::TableCursor;
use crate::base::key_versions::{KeyVersions, inline};
use crate::base::{Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::cache::value_cache::{Kept, ValueCache};
use crate::format::table::BlockHandle;
use crate::io::together::{ReadPlace, span, stretches};

/// Blocks with less than this between them are read together.
const GAP_BYTES: u64 = 8 << 10;
/// Tables that keep their cursor for the next key; each cursor holds three blocks.
const CURSORS_MAX: usize = 32;

/// A way to look up a key in one table.
pub trait TableLookUp {
    /// Adds what the table holds of `key` at or below `snapshot`: the covering range tombstone, then the versions, newest
    /// first, until no older one is needed.
    fn look_up(&mut self, table: &Arc<Table>, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<()>;
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
        cursor.seek_filtered(key, Stamp::at(snapshot))?;
        take_versions(table, &mut cursor, key, snapshot, versions)
    }
}

/// Looks up keys one after the other from cached blocks. Best in key order: neighbours find the blocks of the key before
/// still open.
#[derive(Default)]
pub struct ManyKeys {
    cursors: BTreeMap<FileId, TableCursor>,
    missing: Option<MissingBlock>,
}

impl ManyKeys {
    /// The block that the last look-up failed for, if that is why it failed.
    pub fn take_missing(&mut self) -> Option<MissingBlock> {
        self.missing.take()
    }
}

impl TableLookUp for ManyKeys {
    fn look_up(&mut self, table: &Arc<Table>, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<()> {
        if !may_hold(table, key, snapshot, versions)? {
            return Ok(());
        }
        let id = table.meta().id;
        if self.cursors.len() >= CURSORS_MAX && !self.cursors.contains_key(&id) {
            self.cursors.clear();
        }
        let cursor = self.cursors.entry(id).or_insert_with(|| table.cursor(true));
        if let Some((handle, pool)) = cursor.seek_in_cache(key, Stamp::at(snapshot))? {
            self.missing = Some(MissingBlock { table: table.clone(), handle, pool });
            return Err(Error::WouldStall);
        }
        take_versions(table, cursor, key, snapshot, versions)
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

impl MissingBlock {
    /// Which block of which file.
    pub fn place(&self) -> (FileId, u64) {
        (self.table.meta().id, self.handle.offset)
    }

    fn bytes(&self) -> ReadPlace {
        let (file, start) = self.place();
        ReadPlace { file, start, end: self.handle.end().unwrap_or(u64::MAX) }
    }
}

/// Reads blocks into the cache. One that cannot be read stays missing: the look-up that needs it reports the error.
pub fn read_missing(mut missing: Vec<MissingBlock>) {
    missing.sort_unstable_by_key(MissingBlock::place);
    missing.dedup_by_key(|missing| missing.place());
    let stretches = stretches(&missing, GAP_BYTES, MissingBlock::bytes);
    let reads: Vec<&[MissingBlock]> = stretches.into_iter().map(|stretch| &missing[stretch]).collect();
    let told = reads.len() > 1;
    if told {
        for stretch in &reads {
            let (start, end) = span(stretch, MissingBlock::bytes);
            stretch[0].table.will_need(start, end.saturating_sub(start));
        }
    }
    for stretch in reads {
        let blocks: Vec<_> = stretch.iter().map(|missing| (missing.handle, missing.pool)).collect();
        // Tried again, and then reported, by the look-up that needs it.
        let _ = stretch[0].table.fill_cache(&blocks, span(stretch, MissingBlock::bytes), told);
    }
}
