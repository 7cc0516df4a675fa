//! Size estimates: the bytes of a range of keys, and the contents of a keyspace. They are computed from indexes in
//! memory and on storage, without reading data. Called by the keyspace handles of `api/`.

use crate::base::key_bounds::Between;
use crate::base::ranges::KeyRange;
use crate::base::{KeyBounds, Result};
use crate::engine::core::Core;
use crate::engine::keyspaces::{KeyspaceState, unsupported};
use crate::engine::read::bounds::Bounds;

/// Estimated contents of a keyspace.
///
/// *Entries* are versions: a key that was written twice counts twice until a flush or a compaction has dropped the
/// older one, and a delete counts as one. If a table holds several keyspaces, its entries are attributed in proportion
/// to bytes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyspaceStats {
    /// Versions, in tables and in the front.
    pub entries: u64,
    /// Bytes of table files: keys and values after compression. For a table that several keyspaces share, index blocks
    /// and filters are left out.
    pub table_bytes: u64,
    /// Bytes of separated values that tables reference. Attributed as entries are.
    pub bytes_separated: u64,
    /// Bytes in the front: index tables and runs in memory, and the values in logs that they reference.
    pub front_bytes: u64,
    /// Bytes of the live records of a hash keyspace, in logs.
    pub log_bytes: u64,
}

impl Core {
    /// Estimated bytes of a range: in table files, in the values that they reference, and in the front.
    pub fn approximate_size(&self, keyspace: &KeyspaceState, range: Between<'_>) -> Result<u64> {
        let sizes = self.sizes(keyspace, Bounds::of_range(keyspace.record.id, range))?;
        Ok(sizes.table_bytes + sizes.bytes_separated + sizes.front_bytes + sizes.log_bytes)
    }

    /// Estimated contents of a keyspace.
    pub fn keyspace_stats(&self, keyspace: &KeyspaceState) -> Result<KeyspaceStats> {
        self.sizes(keyspace, Bounds::of_range(keyspace.record.id, (..).key_bounds()))
    }

    fn sizes(&self, keyspace: &KeyspaceState, bounds: Bounds) -> Result<KeyspaceStats> {
        let view = self.published.view();
        self.check_open()?;
        keyspace.check(self.database)?;
        let mut sizes = KeyspaceStats::default();
        if let Some(index) = &keyspace.hash {
            let all = Bounds::of_range(keyspace.record.id, (..).key_bounds());
            if (&bounds.lower, &bounds.upper) != (&all.lower, &all.upper) {
                return Err(unsupported("the size of a range", keyspace));
            }
            (sizes.entries, sizes.log_bytes) = (index.keys() as u64, index.live_bytes());
            return Ok(sizes);
        }
        if bounds.is_empty() {
            return Ok(sizes);
        }
        let range = KeyRange { from: Some(bounds.lower), to: bounds.upper };
        for layer in view.layers_of(keyspace.record.kind) {
            let size = layer.size_within(&range)?;
            sizes.entries += size.entries;
            sizes.table_bytes += size.table_bytes;
            sizes.bytes_separated += size.bytes_separated;
            sizes.front_bytes += size.front_bytes;
        }
        Ok(sizes)
    }
}
