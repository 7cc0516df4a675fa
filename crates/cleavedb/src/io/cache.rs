//! The block cache: blocks of tables as they are after decompression, found by (file, offset) and bounded in bytes.
//! File numbers are never reused, so the blocks of a removed file need no care: they grow cold and go.
//!
//! Hashing is fixed, not random, so that a simulated run is the same every time. Called by table readers.

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

use quick_cache::sync::Cache;
use quick_cache::{OptionsBuilder, Weighter};

use super::ghosts::{Ghosts, Remember};
use crate::base::{Buffer, FileId, Gauge};

/// A shard holds at least this much, so that blocks of ordinary size fit even into a small cache.
const SHARD_BYTES_MIN: usize = 4 << 20;
const SHARDS_MAX: usize = 16;
/// About what one block takes: data blocks are 4 KiB by default, index and filter blocks somewhat more.
const BLOCK_BYTES_TYPICAL: usize = 4 << 10;

/// What a block costs beside its bytes: its header, the allocator's, and the cache's own entry.
const OVERHEAD_BYTES: u64 = 160;

/// How caches hash.
pub(super) type Hashing = BuildHasherDefault<PlaceHasher>;
type BlockPlace = (FileId, u64);

/// So many parts a cache has that are locked by themselves.
pub(super) fn shards(capacity_bytes: usize) -> usize {
    (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX)
}

/// A bounded, concurrent map from a block's place to its bytes.
pub struct BlockCache {
    blocks: Cache<BlockPlace, Arc<Buffer>, BytesHeld, Hashing, Remember<BlockPlace, Arc<Buffer>>>,
    ghosts: Arc<Ghosts>,
    gauge: Arc<Gauge>,
}

impl BlockCache {
    /// A cache of at most `capacity_bytes` (0 keeps nothing).
    pub fn new(capacity_bytes: usize) -> BlockCache {
        let options = OptionsBuilder::new()
            .weight_capacity(capacity_bytes as u64)
            .estimated_items_capacity((capacity_bytes / BLOCK_BYTES_TYPICAL).max(1))
            .shards(shards(capacity_bytes))
            .build()
            .expect("both capacities of the cache are given");
        let ghosts = Arc::<Ghosts>::default();
        let remember = Remember::new(ghosts.clone());
        let blocks = Cache::with_options(options, BytesHeld, Hashing::default(), remember);
        BlockCache { blocks, ghosts, gauge: Arc::new(Gauge::default()) }
    }

    /// The block of `file` at `offset`, if it is here.
    #[inline]
    pub fn get(&self, file: FileId, offset: u64) -> Option<Arc<Buffer>> {
        let found = self.blocks.get(&(file, offset));
        if found.is_none() {
            self.ghosts.note_missed(&(file, offset));
        }
        found
    }

    /// Keeps a block, as far as there is room.
    pub fn insert(&self, file: FileId, offset: u64, block: Arc<Buffer>) {
        self.blocks.insert((file, offset), block);
    }

    /// Memory of the blocks in the cache.
    pub fn weight(&self) -> u64 {
        self.blocks.weight()
    }

    /// The most that [`weight`](BlockCache::weight) may be.
    pub fn capacity(&self) -> u64 {
        self.blocks.capacity()
    }

    /// Changes the capacity; blocks that no longer fit go at once.
    pub fn set_capacity(&self, bytes: u64) {
        self.blocks.set_capacity(bytes);
    }

    /// How often a block was found.
    pub fn hits(&self) -> u64 {
        self.blocks.hits()
    }

    /// How often not.
    pub fn misses(&self) -> u64 {
        self.blocks.misses()
    }

    /// What it has let go lately.
    pub fn ghosts(&self) -> &Ghosts {
        &self.ghosts
    }

    /// Bytes of blocks that readers hold and the cache does not.
    pub fn pinned_bytes(&self) -> usize {
        let cached = self.blocks.weight().saturating_sub(self.blocks.len() as u64 * OVERHEAD_BYTES);
        self.gauge.get().saturating_sub(cached as usize)
    }

    /// Counts the bytes of all live blocks, whether in the cache or only held by readers. Blocks are made with
    /// [`Buffer::counted`] on this.
    pub fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }
}

/// What something in a cache weighs: the memory that it takes.
#[derive(Clone)]
pub(super) struct BytesHeld;

impl Weighter<BlockPlace, Arc<Buffer>> for BytesHeld {
    fn weight(&self, _place: &BlockPlace, block: &Arc<Buffer>) -> u64 {
        block.len() as u64 + OVERHEAD_BYTES
    }
}

/// A fixed hash of two numbers: each is folded in by a multiplication whose high half comes back down.
#[derive(Default, Clone)]
pub(super) struct PlaceHasher(u64);

impl Hasher for PlaceHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte as u64);
        }
    }

    fn write_u64(&mut self, number: u64) {
        let product = (self.0 ^ number).wrapping_add(0x9e37_79b9_7f4a_7c15) as u128 * 0xd6e8_feb8_6659_fd93;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    fn block(cache: &BlockCache, bytes: usize) -> Arc<Buffer> {
        Arc::new(Buffer::counted(vec![7; bytes], cache.gauge().clone()))
    }

    #[test]
    fn the_cache_stays_within_its_capacity_and_counts_what_readers_hold() {
        let cache = BlockCache::new(1 << 20);
        for offset in 0..1000u64 {
            cache.insert(FileId(1), offset * 4096, block(&cache, 4096));
        }
        assert!(cache.weight() <= 1 << 20 && cache.weight() > 900 << 10);
        assert_eq!(cache.pinned_bytes(), 0);
        let held: Vec<_> = (0..1000u64).filter_map(|offset| cache.get(FileId(1), offset * 4096)).collect();
        assert_eq!(held.len() as u64 * (4096 + OVERHEAD_BYTES), cache.weight());
        for offset in 0..1000u64 {
            cache.insert(FileId(2), offset * 4096, block(&cache, 4096));
        }
        assert!(cache.pinned_bytes() > 0);
        drop(held);
        assert_eq!(cache.pinned_bytes(), 0);
    }

    #[test]
    fn a_capacity_that_falls_takes_effect_at_once() {
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
    fn a_tiny_cache_works_and_one_of_nothing_keeps_nothing() {
        let cache = BlockCache::new(16 << 10);
        cache.insert(FileId(1), 0, block(&cache, 10 << 10));
        assert!(cache.get(FileId(1), 0).is_some());
        let cache = BlockCache::new(0);
        cache.insert(FileId(1), 0, block(&cache, 100));
        assert!(cache.get(FileId(1), 0).is_none());
        assert_eq!((cache.weight(), cache.gauge().get()), (0, 0));
    }

    #[test]
    fn neighbouring_places_hash_apart() {
        let hasher = BuildHasherDefault::<PlaceHasher>::default();
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
