//! Divides memory between the block cache and the value cache by the marginal benefit of each. Both remember their
//! recent evictions ([`Ghosts`](crate::cache::ghosts::Ghosts)); a lookup of an evicted entry is a read that more memory
//! would have saved, and a read costs about the same for a block as for a value. So the boundary moves in small steps
//! towards the cache with more such lookups per byte, unless the two are similar.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cache::ghosts::{Demand, next_parts};

/// The memory of both caches is divided into this many parts.
const PARTS: u32 = 64;
/// Initial share of the value cache.
const VALUES_AT_FIRST: u32 = 8;
/// Bounds of its share. Neither cache gives up everything: the block cache holds indices and filters, and an empty
/// value cache could not measure its demand.
const VALUES_PARTS: std::ops::RangeInclusive<u32> = 2..=48;
/// Misses of the value cache between two evaluations of the demand.
const MISSES_BETWEEN: u64 = 1024;

/// The boundary between the two caches.
pub(crate) struct Balance {
    values: AtomicU32,
    misses: AtomicU64,
}

impl Default for Balance {
    fn default() -> Balance {
        Balance { values: AtomicU32::new(VALUES_AT_FIRST), misses: AtomicU64::new(0) }
    }
}

impl Balance {
    /// The share of the value cache, of `bytes` for both caches.
    pub fn for_values(&self, bytes: u64) -> u64 {
        bytes / u64::from(PARTS) * u64::from(self.values.load(Ordering::Relaxed))
    }

    /// Counts a miss of the value cache; true if it is time to evaluate the demand.
    pub fn note_miss(&self) -> bool {
        self.misses.fetch_add(1, Ordering::Relaxed) % MISSES_BETWEEN == MISSES_BETWEEN - 1
    }

    /// Whether the demand of the two caches is known well enough to decide.
    pub fn is_due(&self, blocks: Demand, values: Demand) -> bool {
        next_parts(self.values.load(Ordering::Relaxed), blocks, values, VALUES_PARTS).is_some()
    }

    /// Moves the boundary a step if the demand of the two caches differs enough. `None`: too few lookups to decide;
    /// else whether the boundary moved.
    pub fn step(&self, blocks: Demand, values: Demand) -> Option<bool> {
        let now = self.values.load(Ordering::Relaxed);
        let next = next_parts(now, blocks, values, VALUES_PARTS)?;
        self.values.store(next, Ordering::Relaxed);
        Some(next != now)
    }
}
