//! A run: the versions of a sealed index table, or of several merged runs, as an immutable sorted array in memory:
//! prefix-compressed blocks, the first key of each block, and a filter. Range
//! tombstones are in a block of their own.
//!
//! Built by seal and merge jobs; read by gets, scans and flushes.

use std::path::Path;
use std::sync::Arc;

use crate::base::cursor::compare;
use crate::base::ranges::Mark;
use crate::base::tombstones::{Fragment, RangeTombstones, TombstoneSpan};
use crate::base::versions::VersionSource;
use crate::base::{Address, Bytes, Cursor, Gauge, Kind, Result, Seqno, Slice, Stamp, verify};
use crate::format::block::{BlockCursor, BlockOrigin};
use crate::format::block_builder::BlockBuilder;
use crate::format::filter::{Filter, FilterBuilder};
use crate::format::range_block::{RangeBlock, RangeBlockBuilder};

const BLOCK_BYTES: usize = 8 << 10;
const FILTER_BITS: u32 = 10;
/// Number of blocks per mark: jobs are cut at multiples of this.
const BLOCKS_PER_MARK: usize = 8;

/// An immutable sorted array of versions.
pub struct Run {
    blocks: Vec<RunBlock>,
    filter: Filter,
    ranges: Option<RangeBlock>,
    entries: u64,
    range_count: u64,
    bytes: usize,
    block_bytes: usize,
    value_bytes: u64,
    fetch_bytes: u64,
    kept_bytes: u64,
    seqno_min: Seqno,
    seqno_max: Seqno,
}

struct RunBlock {
    first_key: Box<[u8]>,
    first_stamp: Stamp,
    block: Bytes,
}

/// A key range of a run that is being built, the output of one subtask.
pub struct RunPart {
    blocks: Vec<RunBlock>,
    filter: FilterBuilder,
    entries: u64,
    value_bytes: u64,
    fetch_bytes: u64,
}

impl RunPart {
    /// Builds a part from a sorted stream. The blocks are counted in `gauge`. Given a key, a kind and an address,
    /// `stays` says whether the value at the address stays in its log when the run is flushed.
    pub fn build<S: VersionSource>(
        source: &mut S,
        stays: &mut dyn FnMut(&[u8], Kind, Address) -> bool,
        gauge: &Arc<Gauge>,
    ) -> Result<RunPart, S::Error> {
        let mut builder = RunBuilder { block: BlockBuilder::new(), first: None, blocks: Vec::new(), gauge };
        let mut filter = FilterBuilder::new(FILTER_BITS);
        let (mut entries, mut value_bytes, mut fetch_bytes) = (0, 0, 0);
        while source.advance()? {
            let (key, stamp, payload) = source.current();
            filter.add(key);
            entries += 1;
            if let Some(kind) = stamp.kind().filter(|kind| kind.is_address())
                && let Some(address) = Address::decode(payload)
            {
                value_bytes += address.value_len as u64;
                fetch_bytes += if stays(key, kind, address) { 0 } else { address.value_len as u64 };
            }
            builder.add(key, stamp, payload);
        }
        builder.cut();
        Ok(RunPart { blocks: builder.blocks, filter, entries, value_bytes, fetch_bytes })
    }
}

impl Run {
    /// Joins parts, given in key order, and adds the range tombstones `ranges`. `seqnos` are the lowest and highest
    /// sequence number of the sources, including versions that were dropped; `kept_bytes` are the bytes of records that
    /// stay in their logs, also including dropped versions.
    pub fn join(
        parts: Vec<RunPart>,
        ranges: &[Fragment],
        seqnos: (Seqno, Seqno),
        kept_bytes: u64,
        gauge: &Arc<Gauge>,
    ) -> Run {
        let versions: u64 = parts.iter().map(|part| part.entries).sum();
        let range_count = ranges.len() as u64;
        let entries = versions + range_count;
        let value_bytes = parts.iter().map(|part| part.value_bytes).sum();
        let fetch_bytes = parts.iter().map(|part| part.fetch_bytes).sum();
        let (mut blocks, mut filter) = (Vec::new(), FilterBuilder::new(FILTER_BITS));
        for part in parts {
            blocks.extend(part.blocks);
            filter.append(part.filter);
        }
        let in_order = |pair: &[RunBlock]| {
            compare(&pair[0].first_key, pair[0].first_stamp, &pair[1].first_key, pair[1].first_stamp).is_lt()
        };
        verify!(blocks.windows(2).all(in_order), "the blocks of a run are in order");
        let filter = filter.finish_filter();
        let (ranges, range_bytes) = range_block(ranges, gauge);
        let block_bytes = range_bytes + blocks.iter().map(|block| block.block.len()).sum::<usize>();
        let index_bytes: usize = blocks.iter().map(|block| block.first_key.len() + size_of::<RunBlock>()).sum();
        let bytes = block_bytes + index_bytes + filter.len();
        let (seqno_min, seqno_max) = seqnos;
        Run {
            blocks,
            filter,
            ranges,
            entries,
            range_count,
            bytes,
            block_bytes,
            value_bytes,
            fetch_bytes,
            kept_bytes,
            seqno_min,
            seqno_max,
        }
    }

    /// The distribution of bytes over keys.
    pub fn marks(&self) -> impl Iterator<Item = Mark> {
        self.blocks.chunks(BLOCKS_PER_MARK).map(|blocks| {
            let bytes: usize = blocks.iter().map(|block| block.block.len()).sum();
            Mark::new(&*blocks[0].first_key, bytes as u64)
        })
    }

    /// Number of versions and fragments of range tombstones.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Memory used, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of the separated values, which are in logs.
    pub fn value_bytes(&self) -> u64 {
        self.value_bytes
    }

    /// The part of the memory that is counted in the gauge, in bytes.
    pub fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// What a flush of the run has to write, in bytes: the run itself and the values that it reads from logs. Values
    /// that stay in their logs count with their addresses only.
    pub fn weight(&self) -> u64 {
        self.bytes as u64 + self.fetch_bytes
    }

    /// Bytes of the records of the run that stay in their logs when it is flushed, including records whose version was
    /// dropped by merges.
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes
    }

    /// The lowest and the highest sequence number that the run covers.
    pub fn seqnos(&self) -> (Seqno, Seqno) {
        (self.seqno_min, self.seqno_max)
    }

    /// Passes the versions of `key` at or below `snapshot` to `visit`, newest first, until it returns false.
    /// O(log blocks + log block).
    pub fn visit(&self, key: &[u8], snapshot: Seqno, visit: &mut dyn FnMut(Stamp, Slice) -> bool) -> Result<()> {
        if !self.filter.may_contain(key) {
            return Ok(());
        }
        let mut cursor = RunCursor::over(self);
        cursor.seek(key, Stamp::at(snapshot))?;
        while cursor.valid() && cursor.key() == key && visit(cursor.stamp(), cursor.value_slice()) {
            cursor.next()?;
        }
        Ok(())
    }

    /// True if the run has range tombstones.
    pub fn has_ranges(&self) -> bool {
        self.ranges.is_some()
    }

    /// Number of fragments of range tombstones.
    pub fn range_count(&self) -> u64 {
        self.range_count
    }

    /// The newest range tombstone that covers `key` for a reader at `snapshot`; 0 if there is none.
    #[inline]
    pub fn cover(&self, key: &[u8], snapshot: Seqno) -> Result<Seqno> {
        self.ranges.as_ref().map_or(Ok(Seqno::ZERO), |ranges| ranges.cover(key, snapshot))
    }

    /// All fragments of range tombstones.
    pub fn fragments(&self) -> Result<Vec<Fragment>> {
        self.ranges.as_ref().map_or(Ok(Vec::new()), RangeBlock::fragments)
    }

    /// A cursor that keeps the run alive.
    pub fn cursor(self: &Arc<Run>) -> RunCursor<Arc<Run>> {
        RunCursor::over(self.clone())
    }

    /// The last block whose first version is not after (`key`, `stamp`); 0 if there is none.
    fn block_for(&self, key: &[u8], stamp: Stamp) -> usize {
        let after = |block: &RunBlock| compare(&block.first_key, block.first_stamp, key, stamp).is_le();
        self.blocks.partition_point(after).saturating_sub(1)
    }
}

impl RangeTombstones for Run {
    fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan> {
        self.ranges.as_ref().map_or(Ok(TombstoneSpan::default()), |ranges| ranges.span_at(key, snapshot))
    }
}

/// Builds the block of `fragments`, counted in `gauge`; returns its size too.
fn range_block(fragments: &[Fragment], gauge: &Arc<Gauge>) -> (Option<RangeBlock>, usize) {
    if fragments.is_empty() {
        return (None, 0);
    }
    let mut builder = RangeBlockBuilder::default();
    fragments.iter().for_each(|fragment| builder.add(fragment));
    let bytes = builder.finish();
    let len = bytes.len();
    let block = Bytes::counted(bytes, gauge.clone());
    (Some(RangeBlock::new(block, BlockOrigin::new(memory_path(), 0))), len)
}

struct RunBuilder<'a> {
    block: BlockBuilder,
    first: Option<(Box<[u8]>, Stamp)>,
    blocks: Vec<RunBlock>,
    gauge: &'a Arc<Gauge>,
}

impl RunBuilder<'_> {
    fn add(&mut self, key: &[u8], stamp: Stamp, payload: &[u8]) {
        if self.block.size_estimate() >= BLOCK_BYTES {
            self.cut();
        }
        if self.first.is_none() {
            self.first = Some((key.into(), stamp));
        }
        self.block.add(key, stamp, payload);
    }

    fn cut(&mut self) {
        if let Some((first_key, first_stamp)) = self.first.take() {
            let mut bytes = self.block.finish();
            bytes.shrink_to_fit();
            let block = Bytes::counted(bytes, self.gauge.clone());
            self.blocks.push(RunBlock { first_key, first_stamp, block });
        }
    }
}

/// A cursor over a run, borrowed or shared.
pub struct RunCursor<R> {
    run: R,
    index: usize,
    block: Option<BlockCursor>,
}

impl<R: std::ops::Deref<Target = Run>> RunCursor<R> {
    fn over(run: R) -> RunCursor<R> {
        RunCursor { run, index: 0, block: None }
    }

    fn enter(&mut self, index: usize) -> Result<&mut BlockCursor> {
        let origin = BlockOrigin::new(memory_path(), index as u64);
        let cursor = BlockCursor::new(self.run.blocks[index].block.clone(), origin)?;
        self.index = index;
        Ok(self.block.insert(cursor))
    }

    fn current(&self) -> &BlockCursor {
        self.block.as_ref().expect("a cursor is only read while it is valid")
    }

    /// If the block is exhausted, moves to the first version of the next one, if there is one.
    fn forward(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|block| !block.valid()) {
            if self.index + 1 == self.run.blocks.len() {
                self.block = None;
                return Ok(());
            }
            self.enter(self.index + 1)?.seek_first()?;
        }
        Ok(())
    }

    fn backward(&mut self) -> Result<()> {
        while self.block.as_ref().is_some_and(|block| !block.valid()) {
            if self.index == 0 {
                self.block = None;
                return Ok(());
            }
            self.enter(self.index - 1)?.seek_last()?;
        }
        Ok(())
    }
}

/// The path of a block in memory, for error messages.
fn memory_path() -> Arc<Path> {
    static PATH: std::sync::OnceLock<Arc<Path>> = std::sync::OnceLock::new();
    PATH.get_or_init(|| Arc::from(Path::new("run in memory"))).clone()
}

impl<R: std::ops::Deref<Target = Run>> Cursor for RunCursor<R> {
    fn valid(&self) -> bool {
        self.block.as_ref().is_some_and(|block| block.valid())
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn stamp(&self) -> Stamp {
        self.current().stamp()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        if self.run.blocks.is_empty() {
            return Ok(());
        }
        let index = self.run.block_for(key, stamp);
        self.enter(index)?.seek(key, stamp)?;
        self.forward()
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        if self.run.blocks.is_empty() {
            return Ok(());
        }
        let index = self.run.block_for(key, stamp);
        self.enter(index)?.seek_before(key, stamp)?;
        self.backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        if self.run.blocks.is_empty() {
            return Ok(());
        }
        self.enter(0)?.seek_first()?;
        self.forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        if self.run.blocks.is_empty() {
            return Ok(());
        }
        self.enter(self.run.blocks.len() - 1)?.seek_last()?;
        self.backward()
    }

    fn next(&mut self) -> Result<()> {
        self.block.as_mut().expect("next is only called while valid").next()?;
        self.forward()
    }

    fn prev(&mut self) -> Result<()> {
        self.block.as_mut().expect("prev is only called while valid").prev()?;
        self.backward()
    }
}
