//! How the block cache and the value cache share their memory: by what a little more of it would save each. Both remember
//! what they have let go lately ([`Ghosts`](crate::io::ghosts::Ghosts)); a look-up for that is a read which more memory would
//! have saved, and a read costs about the same whether it is of a block or of a value. So the boundary moves, a small step at
//! a time, towards the cache that has lost more such look-ups for each byte, unless the two are much alike.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::core::Core;
use crate::io::ghosts::Demand;

/// The memory of both caches is shared out in so many parts.
const PARTS: u32 = 64;
/// What values have at first.
const VALUES_AT_FIRST: u32 = 8;
/// Neither cache gives up everything: the block cache has the indices and filters, and a cache of nothing could not tell
/// that it is wanted.
const VALUES_MIN: u32 = 2;
const VALUES_MAX: u32 = 48;
/// How far the boundary moves at once.
const STEP: u32 = 2;
/// With fewer look-ups together nothing is decided.
const HITS_MIN: u64 = 64;
/// The demand of one must be so much larger than that of the other, in hundredths.
const LEAD_PERCENT: u128 = 125;
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
}

/// The parts for values from now on; `None` if too little is known to say.
fn next_parts(values_now: u32, blocks: Demand, values: Demand) -> Option<u32> {
    if blocks.hits + values.hits < HITS_MIN {
        return None;
    }
    // Hits for each byte, compared without a division.
    let rate = |of: Demand, other: Demand| u128::from(of.hits) * u128::from(other.bytes.max(1));
    let (for_blocks, for_values) = (rate(blocks, values), rate(values, blocks));
    let next = match () {
        () if for_values * 100 > for_blocks * LEAD_PERCENT => values_now + STEP,
        () if for_blocks * 100 > for_values * LEAD_PERCENT => values_now.saturating_sub(STEP),
        () => values_now,
    };
    Some(next.clamp(VALUES_MIN, VALUES_MAX))
}

impl Core {
    /// Moves the boundary between block cache and value cache a step, if that would save reads.
    pub fn balance_caches(&self) {
        let (blocks, values) = (self.readers.cache.ghosts(), self.memory.value_cache.ghosts());
        let balance = &self.memory.balance;
        let now = balance.values.load(Ordering::Relaxed);
        let Some(next) = next_parts(now, blocks.demand(), values.demand()) else { return };
        blocks.start_over();
        values.start_over();
        if next != now {
            balance.values.store(next, Ordering::Relaxed);
            self.fit_cache();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_where_a_byte_saves_more_reads() {
        let cases = [
            // Parts now, hits and bytes of blocks, the same of values, parts then.
            (8, (0, 0), (0, 0), None),
            (8, (31, 4000), (32, 4000), None),
            (8, (500, 4000), (500, 4000), Some(8)),
            // Not by a little.
            (8, (500, 4000), (600, 4000), Some(8)),
            (8, (500, 4000), (700, 4000), Some(10)),
            (8, (700, 4000), (500, 4000), Some(6)),
            // As many hits in fewer bytes are worth more.
            (8, (500, 4000), (500, 1000), Some(10)),
            (8, (500, 4000), (100, 1000), Some(8)),
            (8, (500, 4000), (90, 1000), Some(6)),
            // Whoever loses nothing gives.
            (8, (0, 0), (100, 1000), Some(10)),
            (8, (100, 4000), (0, 0), Some(6)),
            // Floors on both sides.
            (VALUES_MAX, (0, 0), (100, 1000), Some(VALUES_MAX)),
            (VALUES_MIN, (100, 4000), (0, 0), Some(VALUES_MIN)),
            (8, (1 << 40, 1 << 50), (1, 1 << 50), Some(6)),
        ];
        for (now, blocks, values, then) in cases {
            let demand = |(hits, bytes)| Demand { hits, bytes };
            assert_eq!(next_parts(now, demand(blocks), demand(values)), then, "{now}, {blocks:?}, {values:?}");
        }
    }
}
