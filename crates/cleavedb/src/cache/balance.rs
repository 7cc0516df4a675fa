//! Divides memory between the caches by the marginal benefit of each: the operand cache gets a share of all, and the value
//! cache one of what is left for it and the block cache. All remember their
//! recent evictions ([`Ghosts`](crate::cache::ghosts::Ghosts)); a lookup of an evicted entry is a read that more memory
//! would have saved, and the reads of each cache are timed. So a boundary moves in small steps
//! towards the side that would save more time per byte, unless the two are similar.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::cache::ghosts::{Demand, next_parts};

/// The memory on both sides of a boundary is divided into this many parts.
const PARTS: u32 = 64;
/// Initial share of the value cache.
const VALUES_AT_FIRST: u32 = 8;
/// Bounds of its share. Neither cache gives up everything: the block cache holds indices and filters, and an empty
/// value cache could not measure its demand.
const VALUES_PARTS: RangeInclusive<u32> = 2..=48;
/// Initial share of the operand cache (KDSep: 512 MiB of 4 GiB).
const OPERANDS_AT_FIRST: u32 = 8;
/// Bounds of its share.
const OPERANDS_PARTS: RangeInclusive<u32> = 2..=32;
/// Misses between two evaluations of the demand.
const MISSES_BETWEEN: u64 = 1024;

/// A boundary between a cache and others.
pub(crate) struct Balance {
    /// The share of the cache.
    own: AtomicU32,
    allowed: RangeInclusive<u32>,
    misses: AtomicU64,
}

impl Balance {
    /// The boundary between value cache and block cache.
    pub fn of_values() -> Balance {
        Balance { own: AtomicU32::new(VALUES_AT_FIRST), allowed: VALUES_PARTS, misses: AtomicU64::new(0) }
    }

    /// The boundary between the operand cache and the others.
    pub fn of_operands() -> Balance {
        Balance { own: AtomicU32::new(OPERANDS_AT_FIRST), allowed: OPERANDS_PARTS, misses: AtomicU64::new(0) }
    }

    /// The share of the cache, of `bytes` on both sides.
    pub fn share_of(&self, bytes: u64) -> u64 {
        bytes / u64::from(PARTS) * u64::from(self.own.load(Ordering::Relaxed))
    }

    /// Counts a miss of the cache; true if it is time to evaluate the demand.
    pub fn note_miss(&self) -> bool {
        self.misses.fetch_add(1, Ordering::Relaxed) % MISSES_BETWEEN == MISSES_BETWEEN - 1
    }

    /// Whether the demand of the two sides is known well enough to decide.
    pub fn is_due(&self, others: Demand, own: Demand) -> bool {
        next_parts(self.own.load(Ordering::Relaxed), others, own, self.allowed.clone()).is_some()
    }

    /// Moves the boundary a step if the demand of the two sides differs enough. `None`: too few lookups to decide;
    /// else whether the boundary moved.
    pub fn step(&self, others: Demand, own: Demand) -> Option<bool> {
        let now = self.own.load(Ordering::Relaxed);
        let next = next_parts(now, others, own, self.allowed.clone())?;
        self.own.store(next, Ordering::Relaxed);
        Some(next != now)
    }
}
