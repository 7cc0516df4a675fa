//! How much lies where: bytes of a range of keys, and what a keyspace holds. Estimates, made of what indexes in memory and
//! on storage say, without reading data.

use std::sync::Arc;

use crate::base::key_bounds::Between;
use crate::base::ranges::{KeyRange, Mark};
use crate::base::{KeyBounds, Result};
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::bounds::Bounds;
use crate::levels::table::Table;

/// What a keyspace holds, about.
///
/// *Entries* are versions: a key that was written twice counts twice until a flush or a compaction has dropped the older
/// one, and a delete counts as one. Where a table holds several keyspaces, its entries are shared out by bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Versions, in tables and in the front.
    pub entries: u64,
    /// Bytes of table files: keys and values after compression, without index blocks and filters where a table is shared.
    pub table_bytes: u64,
    /// Bytes of records that lie apart from their keys and that tables lead to. Shared out as entries are.
    pub bytes_separated: u64,
    /// Bytes in the front: index tables and runs in memory, and the values in logs that they lead to.
    pub front_bytes: u64,
}

impl Core {
    /// Bytes of a range: of table files and the values that they lead to, and in the front.
    pub fn approximate_size(&self, keyspace: &KeyspaceState, range: Between<'_>) -> Result<u64> {
        let sizes = self.sizes(keyspace, Bounds::of_range(keyspace.record.id, range))?;
        Ok(sizes.table_bytes + sizes.bytes_separated + sizes.front_bytes)
    }

    /// What a keyspace holds.
    pub fn keyspace_stats(&self, keyspace: &KeyspaceState) -> Result<KeyspaceStats> {
        self.sizes(keyspace, Bounds::of_range(keyspace.record.id, (..).key_bounds()))
    }

    fn sizes(&self, keyspace: &KeyspaceState, bounds: Bounds) -> Result<KeyspaceStats> {
        let view = self.published.view();
        self.check_open()?;
        keyspace.check(self.database)?;
        let mut sizes = KeyspaceStats::default();
        if bounds.is_empty() {
            return Ok(sizes);
        }
        let range = KeyRange { from: Some(bounds.lower), to: bounds.upper };
        for table in view.version.levels().iter().flat_map(|level| level.tables().iter()) {
            if !range.overlaps(&table.meta().smallest, &table.meta().end) {
                continue;
            }
            let bytes = bytes_within(table, &range)?;
            sizes.table_bytes += bytes;
            sizes.bytes_separated += share(table.meta().bytes_separated, bytes, table.meta().size);
            sizes.entries += share(table.meta().entries, bytes, table.meta().size);
        }
        for table in std::iter::once(&view.active).chain(&view.sealed) {
            let (bytes, values) = (table.bytes() as u64, table.value_bytes());
            sizes.add_front(&range, table.marks(), bytes, values, table.len() as u64);
        }
        for run in &view.runs {
            sizes.add_front(&range, run.marks(), run.bytes() as u64, run.value_bytes(), run.entries());
        }
        Ok(sizes)
    }
}

impl KeyspaceStats {
    /// A part of the front of which only some bytes, as the marks say, lie within the range.
    fn add_front(
        &mut self,
        range: &KeyRange,
        marks: impl IntoIterator<Item = Mark>,
        bytes: u64,
        value_bytes: u64,
        entries: u64,
    ) {
        let (mut within, mut all) = (0, 0);
        for mark in marks {
            all += mark.bytes;
            within += if range.holds(&mark.key) { mark.bytes } else { 0 };
        }
        self.front_bytes += share(bytes + value_bytes, within, all);
        self.entries += share(entries, within, all);
    }
}

/// The part of `whole` that `part` is of `all`.
fn share(whole: u64, part: u64, all: u64) -> u64 {
    (whole as u128 * part.min(all) as u128 / all.max(1) as u128) as u64
}

/// Bytes of the table's file that belong to the range: all of it, or the data between two places in its index.
fn bytes_within(table: &Arc<Table>, range: &KeyRange) -> Result<u64> {
    let meta = table.meta();
    let before = match &range.from {
        Some(from) if *from > meta.smallest => Some(table.cursor(true).offset_of(from)?),
        _ => None,
    };
    let after = match &range.to {
        Some(to) if *to < meta.end => Some(table.cursor(true).offset_of(to)?),
        _ => None,
    };
    let end = after.unwrap_or(meta.size);
    Ok(end.saturating_sub(before.unwrap_or_default()))
}
