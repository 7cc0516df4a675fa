//! One entry of a sorted block: where its key suffix, stamp and value are. Entries of packed blocks have the same
//! parts; only the stamp is stored differently.
//!
//! Called by the sorted block (`block.rs`) and by its packed form (`packed.rs`).

use crate::base::limits::FULL_KEY_BYTES_MAX;
use crate::base::{Stamp, varint};

/// Length of the stamp of an entry that is not packed.
pub(super) const STAMP_BYTES: usize = 8;

/// Offsets of the parts of an entry within its block.
pub(super) struct BlockEntry {
    /// Bytes of the key that the previous entry has too.
    pub shared: usize,
    pub suffix_start: usize,
    /// Where the key suffix ends and the stamp starts; in a packed block, the row.
    pub stamp_start: usize,
    /// Equal to `end` if the row contains an address instead of a value.
    pub value_start: usize,
    pub end: usize,
}

impl BlockEntry {
    /// Parses the entry at `offset` of a block that is not packed. The caller compares `shared` with the previous key.
    #[inline]
    pub fn parse(entries: &[u8], offset: usize) -> Option<BlockEntry> {
        let mut rest = entries.get(offset..)?;
        let shared = usize::try_from(varint::take(&mut rest)?).ok()?;
        let suffix_len = usize::try_from(varint::take(&mut rest)?).ok()?;
        let value_len = usize::try_from(varint::take(&mut rest)?).ok()?;
        let needed = suffix_len.checked_add(STAMP_BYTES)?.checked_add(value_len)?;
        let key_fits = shared <= FULL_KEY_BYTES_MAX && suffix_len <= FULL_KEY_BYTES_MAX - shared;
        let suffix_start = entries.len() - rest.len();
        let stamp_start = suffix_start + suffix_len;
        let value_start = stamp_start + STAMP_BYTES;
        let entry = BlockEntry { shared, suffix_start, stamp_start, value_start, end: value_start + value_len };
        (key_fits && needed <= rest.len()).then_some(entry)
    }

    /// The stamp, in a block that is not packed.
    #[inline]
    pub fn stamp(&self, entries: &[u8]) -> Stamp {
        let bytes = entries[self.stamp_start..].first_chunk().expect("a parsed entry lies within the block");
        Stamp(u64::from_le_bytes(*bytes))
    }

    /// Length of the key suffix.
    pub fn suffix_len(&self) -> usize {
        self.stamp_start - self.suffix_start
    }
}
