//! Writes a table: takes versions and range tombstones in order and produces a file. The layout is in
//! `docs/formats/table.md`.
//!
//! Memory is bounded by the write buffer, one data block, one index partition and the key hashes of that partition;
//! only the top index (about one key per 8 KiB of index) and the range tombstones grow with the table. Nothing is
//! durable before [`finish`](TableBuilder::finish) has synced the file; the caller syncs the directory, and removes the
//! file of a builder that is dropped unfinished. Called by flush and compaction.

use std::path::Path;
use std::sync::Arc;

use crate::base::limits::{BLOCK_IO_BYTES, KEYSPACE_PREFIX_BYTES};
use crate::base::tombstones::Fragment;
use crate::base::{FileId, Kind, Result, Stamp, verify};
use crate::format::block_builder::BlockBuilder;
use crate::format::compression::{Compression, Compressor};
use crate::format::filter::FilterBuilder;
use crate::format::meta::TableMeta;
use crate::format::properties::CoveredRange;
use crate::format::properties::Properties;
use crate::format::range_block::RangeBlockBuilder;
use crate::format::table::{BLOCK_BYTES_MAX, BlockHandle, Footer, PartitionHandles, seal_block, separator};
use crate::io::append::{Appender, WriteBuffer};
use crate::io::{Access, File, Storage};

/// An index partition is written once it is this large.
const INDEX_PARTITION_BYTES: usize = 8 << 10;
/// An index partition is written once its filter covers this many keys, which bounds the number of hashes held.
const PARTITION_KEYS_MAX: usize = 1 << 16;
/// Index blocks have more restart points than data blocks, since each lookup searches two of them.
const INDEX_RESTART_ENTRIES: usize = 4;
/// Size, in quarters of a full block, at which a block that will be packed is cut before packing: together with its
/// packed copy it needs no more memory than a block that is compressed.
const UNPACKED_QUARTERS_MAX: usize = 7;
/// Upper bound on the header and stamp of an entry.
const ENTRY_OVERHEAD_BYTES: usize = 16;

/// How a table is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableOptions {
    /// Data blocks are cut at about this size before compression, in bytes.
    pub block_size: usize,
    /// Bits per key of the filters; 0 writes no filters.
    pub filter_bits: u32,
    /// Compression of data blocks until [`TableBuilder::set_compression`] changes it.
    pub compression: Compression,
    /// Bytes written to the file at once: a multiple of the block size of direct I/O.
    pub write_bytes: usize,
    /// How the file is written.
    pub access: Access,
}

impl TableOptions {
    /// Upper bound on the memory of a builder, as long as no entry is larger than a block: the write buffer, a block
    /// before, during and after compression, and the key hashes and filter of a partition.
    pub const fn builder_bytes(block_size: usize, filter_bits: u32, write_bytes: usize) -> usize {
        let filter = PARTITION_KEYS_MAX * (8 + filter_bits as usize / 8);
        2 * write_bytes + 4 * block_size + filter + 4 * INDEX_PARTITION_BYTES
    }
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            block_size: 4096,
            filter_bits: 10,
            compression: Compression::Lz4,
            write_bytes: 1 << 20,
            access: Access::Buffered,
        }
    }
}

/// A table being written.
pub struct TableBuilder {
    file: Arc<dyn File>,
    id: FileId,
    options: TableOptions,
    compression: Compression,
    compressor: Compressor,
    appender: Appender,
    buffer: WriteBuffer,
    data: BlockBuilder,
    /// The data block finished last; indexed when the next key is known.
    finished_block: Option<BlockHandle>,
    index: BlockBuilder,
    filter: FilterBuilder,
    top_index: BlockBuilder,
    last_key: Vec<u8>,
    last_stamp: Stamp,
    /// A base of the last key has been added.
    has_base: bool,
    ranges: Vec<Fragment>,
    range_bytes: usize,
    properties: Properties,
}

impl TableBuilder {
    /// Creates the file of table `id` at `path`, which must not exist.
    pub fn create(storage: &dyn Storage, path: &Path, id: FileId, options: TableOptions) -> Result<TableBuilder> {
        assert!((1..=BLOCK_BYTES_MAX).contains(&options.block_size), "the block size was checked with the options");
        assert!(options.write_bytes >= BLOCK_IO_BYTES, "a table is written in whole blocks at least");
        let file = storage.create(path, options.access)?;
        Ok(TableBuilder {
            buffer: WriteBuffer::new(file.clone(), options.access, options.write_bytes / 4),
            file,
            id,
            options,
            compression: options.compression,
            compressor: Compressor::default(),
            appender: Appender::new(0),
            data: BlockBuilder::new().packing(),
            finished_block: None,
            index: BlockBuilder::with_restart_every(INDEX_RESTART_ENTRIES),
            filter: FilterBuilder::new(options.filter_bits),
            top_index: BlockBuilder::with_restart_every(INDEX_RESTART_ENTRIES),
            last_key: Vec::new(),
            last_stamp: Stamp::NEWEST,
            has_base: false,
            ranges: Vec::new(),
            range_bytes: 0,
            properties: Properties::new(options.compression, options.block_size),
        })
    }

    /// Changes the compression from the next version on; a block never mixes two.
    pub fn set_compression(&mut self, compression: Compression) -> Result<()> {
        if compression != self.compression {
            self.finish_data_block()?;
            self.compression = compression;
            self.properties.compression = compression;
        }
        Ok(())
    }

    /// Adds a version; it must sort after the one before.
    pub fn add(&mut self, key: &[u8], stamp: Stamp, value: &[u8]) -> Result<()> {
        let first = self.properties.entries == 0;
        let holds = |kind| kind != Kind::DeleteRange;
        verify!(stamp.kind().is_some_and(holds), "data blocks hold only known kinds of versions of single keys");
        let order = self.last_key[..].cmp(key);
        let in_order = first || order.is_lt() || order.is_eq() && stamp < self.last_stamp;
        assert!(in_order, "versions are added to a table in order");
        let size_after = self.data.size_estimate() + key.len() + value.len() + ENTRY_OVERHEAD_BYTES;
        if size_after > self.options.block_size || keyspace_of(key) != keyspace_of(&self.last_key) {
            self.finish_data_block()?;
        }
        self.index_finished_block(Some(key))?;

        if first {
            self.properties.smallest = key.to_vec();
        }
        let new_key = first || order.is_lt();
        if self.options.filter_bits > 0 && (new_key || self.filter.keys() == 0) {
            self.filter.add(key);
        }
        if new_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key);
        }
        self.last_stamp = stamp;
        let is_hidden = self.has_base && !new_key;
        self.has_base = is_hidden || stamp.kind().is_some_and(Kind::is_base);
        self.properties.count(key, stamp, value, is_hidden);
        self.data.add(key, stamp, value);
        let unpacked_bytes_max = self.options.block_size.div_ceil(4) * UNPACKED_QUARTERS_MAX;
        if self.data.size_estimate() >= self.options.block_size || self.data.unpacked_bytes() >= unpacked_bytes_max {
            self.finish_data_block()?;
        }
        Ok(())
    }

    /// Adds range tombstones; the fragment must lie after the previous one. Its position among the versions does not
    /// matter.
    pub fn add_range(&mut self, fragment: Fragment) {
        let in_order = self.ranges.last().is_none_or(|last| last.end <= fragment.start);
        assert!(in_order && fragment.start < fragment.end, "range tombstones are added to a table in order");
        self.properties.count_range(&fragment);
        self.range_bytes += fragment.start.len() + fragment.end.len() + ENTRY_OVERHEAD_BYTES;
        self.ranges.push(fragment);
    }

    /// Approximate length of the file if it were finished now, in bytes (data not yet compressed counts in full).
    pub fn estimated_size(&self) -> u64 {
        let filter_bytes = self.filter.size_estimate();
        let in_memory =
            self.data.size_estimate() + self.index.size_estimate() + self.top_index.size_estimate() + filter_bytes;
        self.offset() + (in_memory + self.range_bytes) as u64
    }

    /// Writes the rest, syncs the file and returns its description.
    ///
    /// # Panics
    /// If nothing was added: a table holds at least one version or range tombstone.
    pub fn finish(mut self) -> Result<TableMeta> {
        let holds_any = self.properties.entries > 0 || !self.ranges.is_empty();
        assert!(holds_any, "a table holds at least one version or range tombstone");
        self.finish_data_block()?;
        self.index_finished_block(None)?;
        self.finish_partition()?;
        self.properties.end_count(std::mem::take(&mut self.last_key), &self.ranges);
        self.write_ranges()?;
        let top_index = self.top_index.finish();
        let top_index = self.write_block(&top_index, Compression::None)?;
        let properties = self.properties.encode();
        let properties = self.write_block(&properties, Compression::None)?;
        self.appender.pending.extend_from_slice(&Footer { file: self.id, top_index, properties }.encode());
        let size = self.offset();
        self.appender.finish(&mut self.buffer)?;
        self.buffer.finish()?;
        if self.options.access == Access::Direct && !size.is_multiple_of(BLOCK_IO_BYTES as u64) {
            self.file.truncate(size)?;
        }
        self.file.sync()?;
        Ok(TableMeta::new(self.id, size, &self.properties))
    }

    fn write_ranges(&mut self) -> Result<()> {
        if self.ranges.is_empty() {
            return Ok(());
        }
        let mut block = RangeBlockBuilder::default();
        self.ranges.iter().for_each(|fragment| block.add(fragment));
        self.properties.covered_ranges = CoveredRange::of(&self.ranges);
        self.properties.range_block = Some(self.write_block(&block.finish(), Compression::None)?);
        Ok(())
    }

    /// Offset of the next block.
    fn offset(&self) -> u64 {
        self.appender.end()
    }

    fn finish_data_block(&mut self) -> Result<()> {
        if !self.data.is_empty() {
            let block = self.data.finish();
            self.finished_block = Some(self.write_block(&block, self.compression)?);
        }
        Ok(())
    }

    /// Adds the block finished last to the index, now that the key after it (`None`: the end) is known.
    fn index_finished_block(&mut self, next_key: Option<&[u8]>) -> Result<()> {
        let Some(handle) = self.finished_block.take() else {
            return Ok(());
        };
        let (key, stamp) = match next_key {
            Some(next_key) => separator(&self.last_key, self.last_stamp, next_key),
            None => (self.last_key.clone(), Stamp::OLDEST),
        };
        let mut value = Vec::new();
        handle.encode(&mut value);
        self.index.add(&key, stamp, &value);
        if self.index.size_estimate() >= INDEX_PARTITION_BYTES || self.filter.keys() >= PARTITION_KEYS_MAX {
            self.finish_partition()?;
        }
        Ok(())
    }

    fn finish_partition(&mut self) -> Result<()> {
        if self.index.is_empty() {
            return Ok(());
        }
        let (last_key, last_stamp) = (self.index.last_key().to_vec(), self.index.last_stamp());
        let filter = match self.filter.keys() {
            0 => None,
            _ => {
                let filter = self.filter.finish();
                Some(self.write_block(&filter, Compression::None)?)
            }
        };
        let index = self.index.finish();
        let index = self.write_block(&index, Compression::None)?;
        let mut value = Vec::new();
        PartitionHandles { index, filter }.encode(&mut value);
        self.top_index.add(&last_key, last_stamp, &value);
        Ok(())
    }

    fn write_block(&mut self, block: &[u8], compression: Compression) -> Result<BlockHandle> {
        let offset = self.offset();
        let pending = &mut self.appender.pending;
        let start = pending.len();
        let compression = self.compressor.append(compression, block, pending);
        let len = (pending.len() - start) as u64;
        seal_block(pending, start, compression, self.id, offset);
        if pending.len() >= self.options.write_bytes {
            self.appender.write(&mut self.buffer)?;
            self.appender.pending.shrink_to(2 * self.options.write_bytes);
        }
        Ok(BlockHandle { offset, len })
    }
}

/// The keyspace prefix of a full key; blocks are cut where it changes.
fn keyspace_of(full_key: &[u8]) -> &[u8] {
    &full_key[..full_key.len().min(KEYSPACE_PREFIX_BYTES)]
}
