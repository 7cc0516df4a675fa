//! How the block cache and the value cache share their memory: by what a little more of it would save each. Both remember
//! what they have let go lately ([`Ghosts`](crate::cache::ghosts::Ghosts)); a look-up for that is a read which more memory would
//! have saved, and a read costs about the same whether it is of a block or of a value. So the boundary moves, a small step at
//! a time, towards the cache that has lost more such look-ups for each byte, unless the two are much alike.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cache::ghosts::{Demand, next_parts};

/// The memory of both caches is shared out in so many parts.
const PARTS: u32 = 64;
/// What values have at first.
const VALUES_AT_FIRST: u32 = 8;
/// Neither cache gives up everything: the block cache has the indices and filters, and a cache of nothing could not tell
/// that it is wanted.
const VALUES_PARTS: std::ops::RangeInclusive<u32> = 2..=48;
/// Values that were not found between two looks at the demand.
const MISSES_BETWEEN: u64 = 1024;

/// Where the boundary is.
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
    /// What values have of the memory of both caches.
    pub fn for_values(&self, bytes: u64) -> u64 {
        bytes / u64::from(PARTS) * u64::from(self.values.load(Ordering::Relaxed))
    }

    /// A value was not found; true if it is time to look at the demand.
    pub fn note_missed(&self) -> bool {
        self.misses.fetch_add(1, Ordering::Relaxed) % MISSES_BETWEEN == MISSES_BETWEEN - 1
    }

    /// Enough is known of the demand to move the boundary, or to leave it.
    pub fn is_due(&self, blocks: Demand, values: Demand) -> bool {
        next_parts(self.values.load(Ordering::Relaxed), blocks, values, VALUES_PARTS).is_some()
    }

    /// Moves the boundary a step if the demand of the two caches differs enough. `None`: it is too early to say; else whether
    /// the boundary has moved.
    pub fn step(&self, blocks: Demand, values: Demand) -> Option<bool> {
        let now = self.values.load(Ordering::Relaxed);
        let next = next_parts(now, blocks, values, VALUES_PARTS)?;
        self.values.store(next, Ordering::Relaxed);
        Some(next != now)
    }
}
