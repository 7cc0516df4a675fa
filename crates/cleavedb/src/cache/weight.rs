//! What the block cache and the value cache have in common: how entries are weighed and hashed, and into how many shards a
//! cache is divided.

/// A shard holds at least this much, so that blocks of ordinary size fit even into a small cache.
const SHARD_BYTES_MIN: usize = 4 << 20;
const SHARDS_MAX: usize = 16;

/// How caches hash.
pub(super) type Hashing = foldhash::fast::FixedState;

/// What something in a cache weighs: the memory that it takes.
#[derive(Clone)]
pub(super) struct BytesHeld;

/// So many parts a cache has that are locked by themselves.
pub(super) fn shards(capacity_bytes: usize) -> usize {
    (capacity_bytes / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX)
}
