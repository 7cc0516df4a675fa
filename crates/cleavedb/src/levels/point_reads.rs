//! Reads of single keys from tables: one key at a time ([`OneKey`], for `get`; [`OneKeyCached`] where its blocks are read
//! together), or many keys from cached blocks ([`ManyKeys`], for `multi_get`).
//!
//! A lookup of many keys uses only cached blocks; if a block is missing, it fails and names the block
//! ([`Unanswered::NotCached`]). The caller collects the missing blocks of many keys, reads them together
//! ([`read_missing`]), and retries those keys.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::table::{BAD_INDEX, BAD_TOP_INDEX, Table};
use crate::base::key_versions::{KeyVersion, KeyVersions, inline};
use crate::base::{Bytes, Cursor, Error, FileId, Result, Seqno, Stamp};
use crate::cache::block_cache::PriorityPool;
use crate::cache::operand_cache::{OperandCache, OperandList};
use crate::cache::value_cache::{ValueCache, ValueEntry};
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::filter::may_contain;
use crate::format::table::{BlockHandle, PartitionHandles};
use crate::io::File;
use crate::io::coalesced_reads::{Coalescing, ReadRange, ReadRequest, read_coalesced};

/// Which blocks are read together.
pub const COALESCING: Coalescing = Coalescing { gap_bytes: 8 << 10, read_bytes_max: 256 << 10 };
/// Tables that keep their blocks for the next key, three each.
const TABLES_MAX: usize = 32;

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

    /// The cache of operand lists, if the reader uses it.
    fn operands(&self) -> Option<&OperandCache> {
        None
    }

    /// Takes the operands of the key as they were read from its bucket, if they may be cached.
    fn note_operands(&mut self, _list: OperandList) {}
}

/// Looks up one key, reading what the block cache does not have.
#[derive(Default)]
pub struct OneKey<'a> {
    values: Option<&'a ValueCache>,
    cached: Option<Option<ValueEntry>>,
    operands: Option<&'a OperandCache>,
    list: Option<OperandList>,
}

impl<'a> OneKey<'a> {
    /// A lookup that asks the value cache first when it reaches a table with separated values: if the cached value is
    /// the newest of the table, no block is read.
    pub fn with_values(values: &'a ValueCache) -> OneKey<'a> {
        OneKey { values: Some(values), ..OneKey::default() }
    }

    /// Also asks the operand cache before it reads segments.
    pub fn with_operands(self, operands: &'a OperandCache) -> OneKey<'a> {
        OneKey { operands: Some(operands), ..self }
    }

    /// The operands that were read from segments, to be cached.
    pub fn take_operands(&mut self) -> Option<OperandList> {
        self.list.take()
    }

    /// The answer of the value cache for the key, if it was asked.
    pub fn into_cached(self) -> Option<Option<ValueEntry>> {
        self.cached
    }
}

impl TableLookUp for OneKey<'_> {
    type Error = Error;

    fn look_up(&mut self, table: &Arc<Table>, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> Result<()> {
        if !may_hold(table, key, snapshot, versions)? || self.find_value(table, key, snapshot, versions) {
            return Ok(());
        }
        let block = |handle, pool| table.block(handle, pool, true);
        OpenBlocks::default().look_up(table, block, key, snapshot, versions)
    }

    fn operands(&self) -> Option<&OperandCache> {
        self.operands
    }

    fn note_operands(&mut self, list: OperandList) {
        self.list = Some(list);
    }
}

impl OneKey<'_> {
    /// Takes the value from the value cache, if that knows it to be the newest version in the table.
    #[inline]
    fn find_value(&mut self, table: &Table, key: &[u8], snapshot: Seqno, versions: &mut KeyVersions) -> bool {
        if let Some(values) = self.values.filter(|_| table.meta().addresses > 0)
            && let Some(cached) = self.cached.get_or_insert_with(|| values.find(key, Stamp::NEWEST))
            && cached.table == Some(table.meta().id)
            && cached.stamp.seqno() <= snapshot
        {
            versions.push_older(inline(cached.stamp), cached.value.clone());
            return true;
        }
        false
    }
}

/// As [`OneKey`], but reads nothing: a lookup fails at the first block that the cache lacks.
pub struct OneKeyCached<'a>(pub OneKey<'a>);

impl TableLookUp for OneKeyCached<'_> {
    type Error = Unanswered;

    fn look_up(
        &mut self,
        table: &Arc<Table>,
        key: &[u8],
        snapshot: Seqno,
        versions: &mut KeyVersions,
    ) -> Result<(), Unanswered> {
        if !may_hold(table, key, snapshot, versions)? || self.0.find_value(table, key, snapshot, versions) {
            return Ok(());
        }
        OpenBlocks::default().look_up(table, cached_blocks(table), key, snapshot, versions)
    }

    fn operands(&self) -> Option<&OperandCache> {
        self.0.operands
    }

    fn note_operands(&mut self, list: OperandList) {
        self.0.list = Some(list);
    }
}

/// Blocks from the cache only.
fn cached_blocks(table: &Arc<Table>) -> impl Fn(BlockHandle, PriorityPool) -> Result<Bytes, Unanswered> {
    move |handle, pool| {
        let missing = || Unanswered::NotCached(MissingBlock { table: table.clone(), handle, pool });
        table.cached_block(handle, pool).ok_or_else(missing)
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
    if table.has_ranges() {
        versions.cover(table.cover(key, snapshot)?);
    }
    Ok(meta.entries > 0)
}

/// The blocks of a table that lead to a key. Those that lead to the next key as well are used again.
#[derive(Default)]
struct OpenBlocks {
    top: Option<OpenBlock>,
    index: Option<OpenBlock>,
    data: Option<OpenBlock>,
}

type OpenBlock = (BlockHandle, BlockCursor);

impl OpenBlocks {
    /// Takes the versions of `key` at or below `snapshot`, newest first, until no older one is needed: the top index leads
    /// to a partition, the filter of the partition excludes most absent keys, and its index leads to a data block.
    /// Versions may go on in the blocks that follow. The table must have passed [`may_hold`].
    #[inline]
    fn look_up<E: From<Error>>(
        &mut self,
        table: &Table,
        block: impl Fn(BlockHandle, PriorityPool) -> Result<Bytes, E>,
        key: &[u8],
        snapshot: Seqno,
        versions: &mut KeyVersions,
    ) -> Result<(), E> {
        let places = table.places()?;
        // If the table has one sequence number that its file does not hold, all its versions are visible here.
        let from = if places.global_seqno.is_some() { Stamp::NEWEST } else { Stamp::at(snapshot) };
        let mut is_newest = snapshot >= table.meta().seqno_max;
        let damaged = |handle: BlockHandle, message| table.damaged(handle.offset, message);
        let top = open(&mut self.top, table, places.top_index, || match table.kept_top_index() {
            Some(kept) => Ok(kept.clone()),
            None => block(places.top_index, PriorityPool::Metadata).inspect(|block| table.keep_top_index(block)),
        })?;
        top.seek(key, from)?;
        while top.valid() {
            let handles = PartitionHandles::decode(top.value());
            let handles = handles.ok_or_else(|| damaged(places.top_index, BAD_TOP_INDEX))?;
            if let Some(handle) = handles.filter {
                let filter = block(handle, PriorityPool::Metadata)?;
                if !may_contain(&filter, key).ok_or_else(|| damaged(handle, "a filter is malformed"))? {
                    return Ok(());
                }
            }
            let index = open(&mut self.index, table, handles.index, || block(handles.index, PriorityPool::Metadata))?;
            index.seek(key, from)?;
            while index.valid() {
                let handle = BlockHandle::decode(index.value());
                let handle = handle.ok_or_else(|| damaged(handles.index, BAD_INDEX))?;
                let data = open(&mut self.data, table, handle, || block(handle, table.pool()))?;
                data.seek(key, from)?;
                while data.valid() {
                    if data.key() != key {
                        return Ok(());
                    }
                    let stamp = places.global_seqno.map_or(data.stamp(), |seqno| data.stamp().with_seqno(seqno));
                    let is_last = !versions.push_older(stamp, data.value_slice());
                    if std::mem::take(&mut is_newest) {
                        versions.note_newest_in(table.meta().id, stamp);
                    }
                    if is_last {
                        return Ok(());
                    }
                    data.next()?;
                }
                index.next()?;
            }
            top.next()?;
        }
        Ok(())
    }
}

/// The newest version of `key` at or below `snapshot` in one table, no matter which range tombstone covers it.
pub fn newest_in(table: &Table, key: &[u8], snapshot: Seqno) -> Result<Option<KeyVersion>> {
    let (meta, mut versions) = (table.meta(), KeyVersions::default());
    if snapshot >= meta.seqno_min && meta.spans(key) && meta.entries > 0 {
        let block = |handle, pool| table.block(handle, pool, true);
        OpenBlocks::default().look_up(table, block, key, snapshot, &mut versions)?;
    }
    Ok(versions.deltas().first().or(versions.base()).cloned())
}

/// A cursor on the block at `handle`: the one that is open, or a new one over what `block` returns.
#[inline]
fn open<'a, E: From<Error>>(
    open: &'a mut Option<OpenBlock>,
    table: &Table,
    handle: BlockHandle,
    block: impl FnOnce() -> Result<Bytes, E>,
) -> Result<&'a mut BlockCursor, E> {
    let at_handle = match open.take() {
        Some(at_handle) if at_handle.0 == handle => at_handle,
        Some((_, mut cursor)) => {
            cursor.open(block()?, handle.offset)?;
            (handle, cursor)
        }
        None => (handle, BlockCursor::new(block()?, BlockOrigin::new(table.path().clone(), handle.offset))?),
    };
    Ok(&mut open.insert(at_handle).1)
}

/// Looks up keys one after the other from cached blocks, preferably in key order: neighbouring keys reuse the blocks
/// that are already open.
#[derive(Default)]
pub struct ManyKeys<'a> {
    tables: BTreeMap<FileId, OpenBlocks>,
    operands: Option<&'a OperandCache>,
    list: Option<OperandList>,
}

impl<'a> ManyKeys<'a> {
    /// Look-ups that also ask the operand cache before they need segments.
    pub fn with_operands(operands: &'a OperandCache) -> ManyKeys<'a> {
        ManyKeys { operands: Some(operands), ..ManyKeys::default() }
    }

    /// The operands of the last key that were read from segments, to be cached.
    pub fn take_operands(&mut self) -> Option<OperandList> {
        self.list.take()
    }
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

impl TableLookUp for ManyKeys<'_> {
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
        if self.tables.len() >= TABLES_MAX && !self.tables.contains_key(&id) {
            self.tables.clear();
        }
        self.tables.entry(id).or_default().look_up(table, cached_blocks(table), key, snapshot, versions)
    }

    fn operands(&self) -> Option<&OperandCache> {
        self.operands
    }

    fn note_operands(&mut self, list: OperandList) {
        self.list = Some(list);
    }
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

    /// The bytes to read; `None` if they lie outside of the file.
    pub fn range(&self) -> Option<ReadRange> {
        let end = self.handle.end().filter(|end| *end <= self.table.blocks_end())?;
        let (file, start) = self.place();
        Some(ReadRange { file, start, end })
    }

    /// The open file.
    pub fn file(&self) -> Option<Arc<dyn File>> {
        self.table.file().ok()
    }

    /// Caches the block, whose bytes were read. If they are damaged, the lookup that needs the block retries the read and
    /// reports the error.
    pub fn insert(&self, sealed: Vec<u8>) {
        let _ = self.table.insert_block(self.handle, self.pool, sealed);
    }
}

/// Reads blocks into the cache. A block that cannot be read stays missing: the next lookup that needs it returns the
/// error.
pub fn read_missing(mut missing: Vec<MissingBlock>) {
    missing.sort_unstable_by_key(MissingBlock::place);
    missing.dedup_by_key(|missing| missing.place());
    let wanted = missing.into_iter().filter_map(|block| Some(ReadRequest { range: block.range()?, context: block }));
    read_coalesced(wanted.collect(), COALESCING, MissingBlock::file, |block, sealed| block.insert(sealed));
}
