//! Ghost entries: hashes of recently evicted entries. A lookup that misses but finds a ghost would have been a hit in a
//! somewhat larger cache, and is counted. The caches that share memory are balanced by these counts
//! (`cache/balance.rs`).
//!
//! There is a fixed number of slots, one hash each; a newer hash overwrites an older one, so about as many evictions
//! are remembered as there are slots.

use std::hash::{BuildHasher, Hash};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{Lifecycle, Weighter};

use crate::cache::weight::{BytesHeld, Hashing};
use crate::sched::clock::now;

const SLOTS: usize = 4096;
/// How far a boundary moves at once, in parts.
const STEP: u32 = 2;
/// No decision is made with fewer ghost hits in total.
const HITS_MIN: u64 = 64;
/// The demand of one must be at least this percentage of the other's for the boundary to move.
const LEAD_PERCENT: u128 = 125;

/// Time of a read before one was measured, in nanoseconds.
const READ_NANOS_AT_FIRST: u64 = 100_000;
/// A new measurement counts for this part of the mean.
const READ_PART: u64 = 64;

/// The hashes of recently evicted entries.
pub struct Ghosts {
    slots: Box<[AtomicU64]>,
    evicted: AtomicU64,
    evicted_bytes: AtomicU64,
    hits: AtomicU64,
    /// Mean time of the reads after misses.
    read_nanos: AtomicU64,
}

/// How much a cache would benefit from more memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Lookups that this much more memory would have answered.
    pub hits: u64,
    /// Bytes of the remembered evictions.
    pub bytes: u64,
    /// Time of a read after a miss, in nanoseconds.
    pub read_nanos: u64,
}

impl Demand {
    /// Time that this much more memory would have saved, in nanoseconds.
    fn nanos(self) -> u64 {
        self.hits.saturating_mul(self.read_nanos)
    }

    /// The sum of both.
    pub fn plus(self, other: Demand) -> Demand {
        let hits = self.hits + other.hits;
        let nanos = self.nanos().saturating_add(other.nanos());
        Demand { hits, bytes: self.bytes + other.bytes, read_nanos: nanos / hits.max(1) }
    }
}

/// The parts that the first of two sharers gets from now on: the boundary moves a small step towards the one that would save
/// more time per byte. `None` if there are too few hits to decide.
pub fn next_parts(now: u32, others: Demand, own: Demand, allowed: RangeInclusive<u32>) -> Option<u32> {
    if others.hits + own.hits < HITS_MIN {
        return None;
    }
    // Time per byte, compared without a division.
    let rate = |of: Demand, other: Demand| u128::from(of.nanos()) * u128::from(other.bytes.max(1));
    let (for_others, for_own) = (rate(others, own), rate(own, others));
    let next = match () {
        () if for_own * 100 > for_others * LEAD_PERCENT => now + STEP,
        () if for_others * 100 > for_own * LEAD_PERCENT => now.saturating_sub(STEP),
        () => now,
    };
    Some(next.clamp(*allowed.start(), *allowed.end()))
}

impl Default for Ghosts {
    fn default() -> Ghosts {
        let slots = (0..SLOTS).map(|_| AtomicU64::new(0)).collect();
        let read_nanos = AtomicU64::new(READ_NANOS_AT_FIRST);
        Ghosts {
            slots,
            evicted: AtomicU64::new(0),
            evicted_bytes: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            read_nanos,
        }
    }
}

impl Ghosts {
    /// Records the eviction of an entry of `bytes`.
    fn note_eviction<K: Hash>(&self, key: &K, bytes: u64) {
        let (slot, hash) = self.slot(key);
        slot.store(hash, Ordering::Relaxed);
        self.evicted.fetch_add(1, Ordering::Relaxed);
        self.evicted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that a lookup found nothing.
    pub fn note_miss<K: Hash>(&self, key: &K) {
        let (slot, hash) = self.slot(key);
        // The entry is about to be cached again, so it counts once.
        if slot.load(Ordering::Relaxed) == hash && slot.swap(0, Ordering::Relaxed) == hash {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Reads what a lookup has missed, and measures it.
    pub fn timed<T>(&self, read: impl FnOnce() -> T) -> T {
        let begun = now();
        let done = read();
        let nanos = u64::try_from((now() - begun).as_nanos()).unwrap_or(u64::MAX);
        let mean = self.read_nanos.load(Ordering::Relaxed);
        // Measurements that get lost between threads do not matter.
        self.read_nanos.store(mean - mean / READ_PART + nanos / READ_PART, Ordering::Relaxed);
        done
    }

    /// The demand since [`reset_demand`](Ghosts::reset_demand).
    pub fn demand(&self) -> Demand {
        let evicted = self.evicted.load(Ordering::Relaxed);
        let typical = self.evicted_bytes.load(Ordering::Relaxed) / evicted.max(1);
        let read_nanos = self.read_nanos.load(Ordering::Relaxed);
        Demand { hits: self.hits.load(Ordering::Relaxed), bytes: evicted.min(SLOTS as u64) * typical, read_nanos }
    }

    /// Resets the counts; the remembered evictions are kept.
    pub fn reset_demand(&self) {
        self.hits.store(0, Ordering::Relaxed);
    }

    fn slot<K: Hash>(&self, key: &K) -> (&AtomicU64, u64) {
        let hash = Hashing::default().hash_one(key);
        // 0 marks an empty slot.
        (&self.slots[(hash >> 32) as usize % SLOTS], hash | 1)
    }
}

/// Records the evictions of a cache.
pub(super) struct GhostRecorder<K, V> {
    ghosts: Arc<Ghosts>,
    dropping: DefaultLifecycle<K, V>,
}

impl<K, V> GhostRecorder<K, V> {
    pub(super) fn new(ghosts: Arc<Ghosts>) -> GhostRecorder<K, V> {
        GhostRecorder { ghosts, dropping: DefaultLifecycle::default() }
    }
}

// A derived `Clone` would require keys and values to be `Clone`.
impl<K, V> Clone for GhostRecorder<K, V> {
    fn clone(&self) -> GhostRecorder<K, V> {
        GhostRecorder::new(self.ghosts.clone())
    }
}

impl<K: Hash, V> Lifecycle<K, V> for GhostRecorder<K, V>
where
    BytesHeld: Weighter<K, V>,
{
    type RequestState = <DefaultLifecycle<K, V> as Lifecycle<K, V>>::RequestState;

    /// Not called for a value that another one of the same key replaces, which is no eviction.
    fn before_evict(&self, _: &mut Self::RequestState, key: &K, value: &mut V) {
        self.ghosts.note_eviction(key, BytesHeld.weight(key, value));
    }

    fn on_evict(&self, state: &mut Self::RequestState, key: K, value: V) {
        self.dropping.on_evict(state, key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recently_evicted_entry_counts_once_and_one_evicted_long_ago_does_not() {
        let ghosts = Ghosts::default();
        let of = |hits, bytes| Demand { hits, bytes, read_nanos: READ_NANOS_AT_FIRST };
        assert_eq!(ghosts.demand(), of(0, 0));
        (0..100_u64).for_each(|key| ghosts.note_eviction(&key, 1000));
        for _ in 0..2 {
            (50..150_u64).for_each(|key| ghosts.note_miss(&key));
        }
        let Demand { hits, bytes, .. } = ghosts.demand();
        // Some hashes have overwritten others.
        assert!((45..=50).contains(&hits) && bytes == 100_000, "{hits} hits, {bytes} B");
        ghosts.reset_demand();
        (1000..100_000_u64).for_each(|key| ghosts.note_eviction(&key, 1000));
        (0..50_u64).for_each(|key| ghosts.note_miss(&key));
        assert_eq!(ghosts.demand(), of(0, SLOTS as u64 * 1000));
    }

    #[test]
    fn memory_moves_to_the_cache_whose_reads_take_longer() {
        let demand = |read_nanos| Demand { hits: 500, bytes: 4000, read_nanos };
        let next = |others, own| next_parts(8, demand(others), demand(own), 2..=48);
        assert_eq!([next(10_000, 100_000), next(100_000, 10_000), next(5, 5)], [Some(10), Some(6), Some(8)]);
        // Both together take as long as each of their hits.
        let both = Demand { hits: 100, bytes: 1, read_nanos: 10 }.plus(Demand { hits: 300, bytes: 2, read_nanos: 30 });
        assert_eq!(both, Demand { hits: 400, bytes: 3, read_nanos: 25 });
        // The mean follows the reads.
        let ghosts = Ghosts::default();
        (0..1000).for_each(|_| ghosts.timed(|| ()));
        assert!(ghosts.demand().read_nanos < READ_NANOS_AT_FIRST / 10);
    }

    #[test]
    fn memory_moves_to_the_cache_that_saves_more_reads_per_byte() {
        const VALUES_MIN: u32 = 2;
        const VALUES_MAX: u32 = 48;
        let cases = [
            // Present parts, hits and bytes of blocks, hits and bytes of values, new parts.
            (8, (0, 0), (0, 0), None),
            (8, (31, 4000), (32, 4000), None),
            (8, (500, 4000), (500, 4000), Some(8)),
            // The difference is too small.
            (8, (500, 4000), (600, 4000), Some(8)),
            (8, (500, 4000), (700, 4000), Some(10)),
            (8, (700, 4000), (500, 4000), Some(6)),
            // As many hits in fewer bytes are worth more.
            (8, (500, 4000), (500, 1000), Some(10)),
            (8, (500, 4000), (100, 1000), Some(8)),
            (8, (500, 4000), (90, 1000), Some(6)),
            // A cache without ghost hits shrinks.
            (8, (0, 0), (100, 1000), Some(10)),
            (8, (100, 4000), (0, 0), Some(6)),
            // Lower bounds on both sides.
            (VALUES_MAX, (0, 0), (100, 1000), Some(VALUES_MAX)),
            (VALUES_MIN, (100, 4000), (0, 0), Some(VALUES_MIN)),
            (8, (1 << 40, 1 << 50), (1, 1 << 50), Some(6)),
        ];
        for (now, blocks, values, then) in cases {
            let demand = |(hits, bytes)| Demand { hits, bytes, read_nanos: 1 };
            assert_eq!(
                next_parts(now, demand(blocks), demand(values), VALUES_MIN..=VALUES_MAX),
                then,
                "{now}, {blocks:?}, {values:?}"
            );
        }
    }
}
