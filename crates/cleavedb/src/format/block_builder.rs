//! Builds sorted blocks (`block.rs`). Called by the builders of tables, runs and range blocks.

use std::cmp::Ordering;

use super::block::{OFFSET_BYTES, PACKED, STAMP_BYTES, shared_bytes};
use super::packed::{PackedLayout, Packer};
use crate::base::cursor::compare;
use crate::base::limits::FULL_KEY_BYTES_MAX;
use crate::base::{Stamp, varint, verify};

/// Entries between two restart points, by default.
pub const RESTART_ENTRIES_DEFAULT: usize = 16;

/// Memory that a builder keeps from one block to the next, at most.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Collects versions, in order, into a block.
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    restart_entries: usize,
    entries_since_restart: usize,
    entries: usize,
    last_key: Vec<u8>,
    last_stamp: Stamp,
    /// Set if blocks that become smaller by packing are to be packed.
    packer: Option<Packer>,
}

impl Default for BlockBuilder {
    fn default() -> BlockBuilder {
        BlockBuilder::new()
    }
}

impl BlockBuilder {
    /// An empty block with a restart point every `RESTART_ENTRIES_DEFAULT` entries.
    pub fn new() -> BlockBuilder {
        BlockBuilder::with_restart_every(RESTART_ENTRIES_DEFAULT)
    }

    /// An empty block with a restart point every `entries` entries: fewer make searches faster and blocks larger.
    pub fn with_restart_every(entries: usize) -> BlockBuilder {
        assert!(entries > 0, "a restart interval has at least one entry");
        BlockBuilder {
            bytes: Vec::new(),
            restarts: Vec::new(),
            restart_entries: entries,
            entries_since_restart: 0,
            entries: 0,
            last_key: Vec::new(),
            last_stamp: Stamp::NEWEST,
            packer: None,
        }
    }

    /// Packs each block that becomes smaller by packing; only blocks with addresses do.
    pub fn packing(mut self) -> BlockBuilder {
        self.packer = Some(Packer::default());
        self
    }

    /// Appends a version; it must sort after the previous one.
    ///
    /// # Panics
    /// If the block already has 4 GiB of entries; callers finish blocks long before that.
    pub fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) {
        verify!(key.len() <= FULL_KEY_BYTES_MAX, "a key in a block is no longer than the limit");
        verify!(
            self.entries == 0 || compare(&self.last_key, self.last_stamp, key, stamp) == Ordering::Less,
            "versions are added to a block in order"
        );
        let shared = if self.entries == 0 || self.entries_since_restart == self.restart_entries {
            let offset = u32::try_from(self.bytes.len()).expect("a block stays below 4 GiB");
            self.restarts.push(offset);
            self.entries_since_restart = 0;
            0
        } else {
            shared_bytes(&self.last_key, key)
        };
        self.bytes.reserve(3 * varint::BYTES_MAX + key.len() - shared + STAMP_BYTES + value.len());
        varint::put(&mut self.bytes, shared as u64);
        varint::put(&mut self.bytes, (key.len() - shared) as u64);
        varint::put(&mut self.bytes, value.len() as u64);
        self.bytes.extend_from_slice(&key[shared..]);
        self.bytes.extend_from_slice(&stamp.0.to_le_bytes());
        self.bytes.extend_from_slice(value);
        if let Some(packer) = &mut self.packer {
            packer.add(shared, key.len(), stamp, value);
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(&key[shared..]);
        self.last_stamp = stamp;
        self.entries_since_restart += 1;
        self.entries += 1;
    }

    /// The size in bytes of the block that [`finish`](BlockBuilder::finish) would return now.
    pub fn size_estimate(&self) -> usize {
        let entries = self.layout().map_or(self.bytes.len(), |(_, bytes)| bytes);
        entries + (self.restarts.len() + 1) * OFFSET_BYTES
    }

    /// The memory used by the entries, in bytes: more than the estimate if the block will be packed.
    pub fn unpacked_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The packed layout and the bytes of the entries in it; `None` if packing does not make the block smaller.
    fn layout(&self) -> Option<(&PackedLayout, usize)> {
        self.packer.as_ref().and_then(Packer::layout).filter(|(_, bytes)| *bytes < self.bytes.len())
    }

    /// True if nothing was added since the last [`finish`](BlockBuilder::finish).
    pub fn is_empty(&self) -> bool {
        self.entries == 0
    }

    /// The last key added; empty if there is none.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// The last stamp added.
    pub fn last_stamp(&self) -> Stamp {
        self.last_stamp
    }

    /// Returns the block and empties the builder.
    pub fn finish(&mut self) -> Vec<u8> {
        let size = self.size_estimate();
        let (mut block, flag) = match self.layout() {
            Some((layout, _)) => {
                let layout = *layout;
                (layout.pack(&self.bytes, &mut self.restarts, size), PACKED)
            }
            None => {
                // A copy, so that the builder keeps its buffer for the next block.
                let mut block = Vec::with_capacity(size);
                block.extend_from_slice(&self.bytes);
                (block, 0)
            }
        };
        for restart in &self.restarts {
            block.extend_from_slice(&restart.to_le_bytes());
        }
        block.extend_from_slice(&(self.restarts.len() as u32 | flag).to_le_bytes());
        if let Some(packer) = &mut self.packer {
            *packer = Packer::default();
        }
        self.bytes.clear();
        // Do not keep the memory that one large value needed.
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.restarts.clear();
        self.entries_since_restart = 0;
        self.entries = 0;
        self.last_key.clear();
        self.last_stamp = Stamp::NEWEST;
        block
    }
}
