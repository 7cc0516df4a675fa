//! The block cache: decompressed blocks of tables, found by (file, offset) and bounded in bytes. It has three priority
//! pools: index, filter and range-tombstone blocks may take up to three quarters of the memory; then come blocks of
//! keys with separated values, then blocks that hold values. A byte of the first pool saves the most reads, a byte of
//! the last the fewest, so no block is evicted by one of a later pool.
//!
//! File numbers are never reused, so blocks of a removed file need no invalidation: they are evicted in time. Only its
//! index and filter blocks are removed with the file, since hardly anything evicts them. Called by table readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use crate::base::{Bytes, FileId, Gauge};
use crate::cache::ghosts::{Demand, GhostRecorder, Ghosts, next_parts};
use crate::cache::weight::{BytesHeld, Hashing, shards};
use crate::io::Cells;
use crate::sched::sync::Mutex;

/// Typical size of a block: data blocks are 4 KiB by default, index and filter blocks somewhat larger.
const BLOCK_BYTES_TYPICAL: usize = 4 << 10;

/// The memory not taken by the metadata pool is divided into this many parts.
const PARTS: u32 = 64;
/// Bounds of the share of the key pool in these parts: almost all at first, until the value pool is shown to save more
/// reads.
const KEYS_PARTS: std::ops::RangeInclusive<u32> = 8..=62;
/// A pool grows in steps of this fraction of the capacity.
const STEPS: u64 = 64;
/// The metadata pool leaves at least this fraction of the capacity to the other pools.
const REST_PART: u64 = 4;
/// Data blocks inserted between two evaluations of the demand of the pools.
const INSERTS_BETWEEN: u64 = 1024;

/// Memory per block beyond its cell: the cache's own entry (measured: 66 B).
const OVERHEAD_BYTES: u64 = 80;

type BlockPlace = (FileId, u64);

/// The pool of a block. Blocks of earlier pools are not evicted by those of later ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityPool {
    /// Index, filter and range-tombstone blocks.
    Metadata,
    /// Data blocks whose values are mostly separated.
    Keys,
    /// Data blocks with values.
    Values,
}

type CachedBlocks = Cache<BlockPlace, Bytes, BytesHeld, Hashing, GhostRecorder<BlockPlace, Bytes>>;

/// A bounded, concurrent map from a block's file and offset to its bytes.
pub struct BlockCache {
    /// By pool.
    blocks: [CachedBlocks; 3],
    /// The evictions of each pool; the metadata pool does not compete for memory.
    ghosts: [Arc<Ghosts>; 3],
    shares: Mutex<Shares>,
    capacity: AtomicU64,
    /// Memory reserved for the first two pools: at least what they take; later pools cannot use it.
    reserved: [AtomicU64; 2],
    inserts: AtomicU64,
    gauge: Arc<Gauge>,
    cells: Cells,
}

/// How the pools share the memory.
struct Shares {
    /// The share of the key pool, in parts of the memory not taken by the metadata pool.
    keys_parts: u32,
    /// Ghost hits of the key pool and the value pool at the last decision.
    hits_before: [u64; 2],
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` (0 caches nothing).
    pub fn new(capacity_bytes: usize) -> BlockCache {
        let ghosts: [Arc<Ghosts>; 3] = Default::default();
        let blocks = |pool: usize| {
            let options = OptionsBuilder::new()
                .weight_capacity(capacity_bytes as u64)
                .estimated_items_capacity((capacity_bytes / BLOCK_BYTES_TYPICAL).max(1))
                .shards(shards(capacity_bytes))
                .build()
                .expect("both capacities of the cache are given");
            let recorder = GhostRecorder::new(ghosts[pool].clone());
            Cache::with_options(options, BytesHeld, Hashing::default(), recorder)
        };
        let gauge = Arc::<Gauge>::default();
        let cache = BlockCache {
            blocks: [0, 1, 2].map(blocks),
            shares: Mutex::new(Shares { keys_parts: *KEYS_PARTS.end(), hits_before: [0; 2] }),
            ghosts,
            capacity: AtomicU64::new(0),
            reserved: Default::default(),
            inserts: AtomicU64::new(0),
            cells: Cells::new(capacity_bytes, gauge.clone()),
            gauge,
        };
        cache.set_capacity(capacity_bytes as u64);
        cache
    }

    /// The block of `file` at `offset`, if it is in this pool.
    #[inline]
    pub fn get_from(&self, pool: PriorityPool, file: FileId, offset: u64) -> Option<Bytes> {
        let found = self.blocks[pool as usize].get(&(file, offset));
        if found.is_none() {
            self.ghosts[pool as usize].note_miss(&(file, offset));
        }
        found
    }

    /// Caches a copy of a block in a pool, if there is room; a large block itself.
    pub fn insert_into(&self, pool: PriorityPool, file: FileId, offset: u64, block: Bytes) {
        let kept = self.copy_of(&block).unwrap_or(block);
        if pool != PriorityPool::Values {
            self.make_room(pool, kept.held_bytes() as u64 + OVERHEAD_BYTES);
        }
        self.blocks[pool as usize].insert((file, offset), kept);
        if pool != PriorityPool::Metadata
            && self.inserts.fetch_add(1, Ordering::Relaxed) % INSERTS_BETWEEN == INSERTS_BETWEEN - 1
        {
            self.balance();
        }
    }

    /// The block in a cell of its own, if it fits into one.
    fn copy_of(&self, block: &[u8]) -> Option<Bytes> {
        self.cells.copy_of(&[block]).map(Bytes::from)
    }

    /// Gives memory back to the system that is hardly used since blocks were evicted, by moving what is left there.
    pub fn pack(&self) {
        if let Some(packing) = self.cells.packing() {
            for blocks in &self.blocks {
                for (place, block) in blocks.iter().filter(|(_, block)| packing.moves(block)) {
                    if let Some(copy) = self.copy_of(&block) {
                        // Fails if it has been evicted meanwhile.
                        let _ = blocks.replace(place, copy, true);
                    }
                }
            }
        }
        self.cells.release_empty();
    }

    /// The block of `file` at `offset`, if it is in the key pool.
    #[inline]
    pub fn get(&self, file: FileId, offset: u64) -> Option<Bytes> {
        self.get_from(PriorityPool::Keys, file, offset)
    }

    /// Caches a block in the key pool, if there is room.
    pub fn insert(&self, file: FileId, offset: u64, block: Bytes) {
        self.insert_into(PriorityPool::Keys, file, offset, block);
    }

    /// Removes the index and filter blocks of a file that no reader will use any more.
    pub fn forget(&self, file: FileId) {
        let metadata = &self.blocks[PriorityPool::Metadata as usize];
        let before = metadata.len();
        metadata.retain(|place, _| place.0 != file);
        if metadata.len() != before {
            self.set_pool_capacities(&self.shares.lock(), [0, self.reserved[1].load(Ordering::Relaxed)]);
        }
    }

    /// Makes room for a block of `bytes` in a pool, by shrinking later pools if necessary.
    fn make_room(&self, pool: PriorityPool, bytes: u64) {
        let rank = pool as usize;
        let wanted = self.blocks[rank].weight() + bytes;
        if wanted > self.reserved[rank].load(Ordering::Relaxed) {
            let shares = self.shares.lock();
            let mut wants = [0, 1].map(|rank| self.reserved[rank].load(Ordering::Relaxed));
            wants[rank] = wants[rank].max(wanted);
            self.set_pool_capacities(&shares, wants);
        }
    }

    /// Reserves memory for the first two pools, as far as they take or want it, and gives the rest to the third.
    fn set_pool_capacities(&self, shares: &Shares, wants: [u64; 2]) {
        let capacity = self.capacity();
        let step = capacity / STEPS;
        // Rounded up to whole steps, so that capacities change seldom.
        let rounded = |rank: usize| (self.blocks[rank].weight().max(wants[rank])).next_multiple_of(step.max(1));
        let metadata_max = capacity - capacity / REST_PART;
        let metadata = rounded(0).min(metadata_max);
        let keys_max = (capacity - metadata) / u64::from(PARTS) * u64::from(shares.keys_parts);
        let keys = rounded(1).min(keys_max);
        // Shrink before growing.
        for (rank, bytes) in [(2, capacity - metadata - keys), (1, keys_max), (0, metadata_max)] {
            if self.blocks[rank].capacity() != bytes {
                self.blocks[rank].set_capacity(bytes);
            }
        }
        self.reserved[0].store(metadata, Ordering::Relaxed);
        self.reserved[1].store(keys, Ordering::Relaxed);
    }

    /// Moves the boundary between the key pool and the value pool a step, if that would save reads.
    fn balance(&self) {
        let mut shares = self.shares.lock();
        let now = [1, 2].map(|pool: usize| self.ghosts[pool].demand());
        // Another caller may have reset the counts.
        let since = |which: usize| match now[which].hits.checked_sub(shares.hits_before[which]) {
            Some(hits) => Demand { hits, ..now[which] },
            None => now[which],
        };
        let Some(next) = next_parts(shares.keys_parts, since(1), since(0), KEYS_PARTS) else { return };
        shares.hits_before = now.map(|demand| demand.hits);
        if next != shares.keys_parts {
            shares.keys_parts = next;
            self.set_pool_capacities(&shares, [0, 0]);
        }
    }

    /// Memory of the blocks in the cache.
    pub fn weight(&self) -> u64 {
        self.blocks.iter().map(CachedBlocks::weight).sum()
    }

    /// Memory of the blocks in a pool.
    pub fn weight_of(&self, pool: PriorityPool) -> u64 {
        self.blocks[pool as usize].weight()
    }

    /// The most that [`weight`](BlockCache::weight) may be.
    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity; blocks that no longer fit go at once.
    pub fn set_capacity(&self, bytes: u64) {
        let shares = self.shares.lock();
        self.capacity.store(bytes, Ordering::Relaxed);
        self.set_pool_capacities(&shares, [0, 0]);
    }

    /// Number of lookups that found a block.
    pub fn hits(&self) -> u64 {
        self.blocks.iter().map(CachedBlocks::hits).sum()
    }

    /// Number of lookups that found none.
    pub fn misses(&self) -> u64 {
        self.blocks.iter().map(CachedBlocks::misses).sum()
    }

    /// Reads a block that is not cached, and measures it.
    pub fn timed<T>(&self, pool: PriorityPool, read: impl FnOnce() -> T) -> T {
        self.ghosts[pool as usize].timed(read)
    }

    /// The demand for more memory.
    pub fn demand(&self) -> Demand {
        self.ghosts.iter().map(|ghosts| ghosts.demand()).fold(Demand::default(), Demand::plus)
    }

    /// Resets the counts of [`demand`](BlockCache::demand).
    pub fn reset_demand(&self) {
        self.ghosts.iter().for_each(|ghosts| ghosts.reset_demand());
    }

    /// Bytes of blocks that readers hold and the cache does not.
    pub fn pinned_bytes(&self) -> usize {
        let overhead = self.blocks.iter().map(|blocks| blocks.len() as u64).sum::<u64>() * OVERHEAD_BYTES;
        self.gauge.get().saturating_sub(self.weight().saturating_sub(overhead) as usize)
    }

    /// Counts the bytes of all blocks in memory, whether cached or held by readers only. Blocks are made with
    /// [`Bytes::counted`] on this gauge, and the copies that are kept in cells count as well.
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }
}

impl Weighter<BlockPlace, Bytes> for BytesHeld {
    fn weight(&self, _place: &BlockPlace, block: &Bytes) -> u64 {
        block.held_bytes() as u64 + OVERHEAD_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    fn block(cache: &BlockCache, bytes: usize) -> Bytes {
        Bytes::counted(vec![7; bytes], cache.gauge().clone())
    }

    #[test]
    fn the_cache_stays_within_its_capacity_and_counts_blocks_held_by_readers() {
        let cache = BlockCache::new(1 << 20);
        for offset in 0..1000u64 {
            cache.insert(FileId(1), offset * 4096, block(&cache, 4096));
        }
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 900 << 10);
        assert_eq!(cache.pinned_bytes(), 0);
        let held: Vec<_> = (0..1000u64).filter_map(|offset| cache.get(FileId(1), offset * 4096)).collect();
        let weight = |block: &Bytes| block.held_bytes() as u64 + OVERHEAD_BYTES;
        assert_eq!(held.iter().map(weight).sum::<u64>(), cache.weight());
        for offset in 0..1000u64 {
            cache.insert(FileId(2), offset * 4096, block(&cache, 4096));
        }
        assert!(cache.pinned_bytes() > 0);
        drop(held);
        assert_eq!(cache.pinned_bytes(), 0);
    }

    #[test]
    fn a_reduced_capacity_takes_effect_at_once() {
        let cache = BlockCache::new(8 << 20);
        (0..2000u64).for_each(|offset| cache.insert(FileId(1), offset, block(&cache, 4096)));
        assert!(cache.weight() > 7 << 20);
        cache.set_capacity(1 << 20);
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 512 << 10);
        cache.set_capacity(4 << 20);
        (0..2000u64).for_each(|offset| cache.insert(FileId(2), offset, block(&cache, 4096)));
        assert!(cache.weight() > 3 << 20);
    }

    #[test]
    fn a_tiny_cache_works_and_a_cache_of_capacity_zero_stays_empty() {
        let cache = BlockCache::new(16 << 10);
        cache.insert(FileId(1), 0, block(&cache, 10 << 10));
        assert!(cache.get(FileId(1), 0).is_some());
        let cache = BlockCache::new(0);
        cache.insert(FileId(1), 0, block(&cache, 100));
        assert!(cache.get(FileId(1), 0).is_none());
        assert_eq!((cache.weight(), cache.gauge().get()), (0, 0));
    }

    fn found(cache: &BlockCache, pool: PriorityPool, file: u64, count: u64) -> u64 {
        (0..count).filter(|&offset| cache.get_from(pool, FileId(file), offset).is_some()).count() as u64
    }

    #[test]
    fn no_block_is_evicted_by_one_of_a_later_pool() {
        let cache = BlockCache::new(1 << 20);
        let fill = |pool, file, count| {
            (0..count).for_each(|offset| cache.insert_into(pool, FileId(file), offset, block(&cache, 4096)));
            assert!(cache.weight() <= 1 << 20, "{}", cache.weight());
        };
        fill(PriorityPool::Values, 1, 1000);
        assert!(cache.weight() > 900 << 10, "a single pool gets almost all memory");
        fill(PriorityPool::Keys, 2, 100);
        fill(PriorityPool::Metadata, 3, 50);
        for (pool, file) in [(PriorityPool::Values, 4), (PriorityPool::Keys, 5), (PriorityPool::Values, 6)] {
            fill(pool, file, 1000);
            assert_eq!(found(&cache, PriorityPool::Metadata, 3, 50), 50);
            assert!(pool == PriorityPool::Keys || file == 6 || found(&cache, PriorityPool::Keys, 2, 100) == 100);
        }
        assert!(cache.weight_of(PriorityPool::Keys) > 700 << 10);
        // The metadata pool does not take everything.
        fill(PriorityPool::Metadata, 7, 1000);
        assert!((700 << 10..=768 << 10).contains(&cache.weight_of(PriorityPool::Metadata)));
        fill(PriorityPool::Keys, 8, 1000);
        assert!(cache.weight_of(PriorityPool::Keys) > 200 << 10);
        assert_eq!(cache.pinned_bytes(), 0);
    }

    #[test]
    fn metadata_blocks_of_a_file_are_removed_with_it() {
        let cache = BlockCache::new(1 << 20);
        for file in 0..100 {
            (0..10).for_each(|offset| {
                cache.insert_into(PriorityPool::Metadata, FileId(file), offset, block(&cache, 4096))
            });
            cache.forget(FileId(file));
            (0..20)
                .for_each(|offset| cache.insert_into(PriorityPool::Values, FileId(file), offset, block(&cache, 4096)));
        }
        assert_eq!(cache.weight_of(PriorityPool::Metadata), 0);
        assert!(cache.weight() > 800 << 10, "{}", cache.weight());
    }

    #[test]
    fn memory_moves_to_the_value_pool_if_it_saves_more_reads() {
        let cache = BlockCache::new(1 << 20);
        let ask = |pool, file, offset| {
            if cache.get_from(pool, FileId(file), offset).is_none() {
                cache.insert_into(pool, FileId(file), offset, block(&cache, 4096));
            }
        };
        (0..1000).for_each(|offset| ask(PriorityPool::Keys, 1, offset));
        let at_first = cache.weight_of(PriorityPool::Keys);
        assert!(at_first > 900 << 10);
        (0..40_000).for_each(|number| ask(PriorityPool::Values, 2, number * 7919 % 200));
        let then = (cache.weight_of(PriorityPool::Keys), cache.weight_of(PriorityPool::Values));
        assert!(then.0 < at_first / 2 && then.1 > 400 << 10, "{at_first} at first, then {then:?}");
        assert!(cache.weight() <= 1 << 20);
    }

    #[test]
    fn neighbouring_blocks_have_well_spread_hashes() {
        let hasher = Hashing::default();
        let mut hashes: Vec<u64> = Vec::new();
        for file in 0..50 {
            hashes.extend((0..200u64).map(|block| hasher.hash_one((FileId(file), block * 4096))));
        }
        let mut per_bucket = [0; 64];
        hashes.iter().for_each(|hash| per_bucket[(hash >> 58) as usize] += 1);
        assert!(per_bucket.iter().all(|&count| (100..220).contains(&count)), "{per_bucket:?}");
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 10_000);
    }
}
