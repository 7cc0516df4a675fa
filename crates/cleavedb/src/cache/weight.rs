//! Shared by the caches: weight and hash of entries, and the number of shards.

/// Minimum size of a shard, so that ordinary blocks fit even into a small cache.
const SHARD_BYTES_MIN: usize = 4 << 20;
const SHARDS_MAX: usize = 16;

/// The hasher of all caches. Its seed is fixed, so that a simulated run is repeatable.
pub(super) type Hashing = foldhash::fast::FixedState;

/// Weighs cache entries by the memory they take.
#[derive(Clone)]
pub(super) struct BytesHeld;

/// Number of shards, each with its own lock, of a cache of this capacity.
pub(super) fn shards(capacity_bytes: usize) -> usize {
    (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX)
}
