//! What a cache has let go lately, known by hashes: a look-up that would have been a hit in a somewhat larger cache is
//! counted. Two caches that share memory are weighed against each other by it (`cache/balance.rs`).
//!
//! A fixed number of slots, each for one hash; a newer one takes the place of an older one, so on average as many are
//! remembered as there are slots.

use std::hash::{BuildHasher, Hash};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{Lifecycle, Weighter};

use crate::cache::block_cache::{BytesHeld, Hashing};

const SLOTS: usize = 4096;
/// How far a boundary moves at once.
const STEP: u32 = 2;
/// With fewer look-ups together nothing is decided.
const HITS_MIN: u64 = 64;
/// The demand of one must be so much larger than that of the other, in hundredths.
const LEAD_PERCENT: u128 = 125;

/// The hashes of what was let go.
pub struct Ghosts {
    slots: Box<[AtomicU64]>,
    gone: AtomicU64,
    gone_bytes: AtomicU64,
    hits: AtomicU64,
}

/// What more memory would have saved a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Demand {
    /// Look-ups that the memory below would have answered.
    pub hits: u64,
    /// So many bytes what is remembered took.
    pub bytes: u64,
}

impl Demand {
    /// That of both together.
    pub fn and(self, other: Demand) -> Demand {
        Demand { hits: self.hits + other.hits, bytes: self.bytes + other.bytes }
    }
}

/// Where two share memory: the parts that the first has from now on, which move by a small step towards the one that has
/// lost more look-ups for each byte; `None` if too little is known to say.
pub fn next_parts(now: u32, others: Demand, own: Demand, allowed: RangeInclusive<u32>) -> Option<u32> {
    if others.hits + own.hits < HITS_MIN {
        return None;
    }
    // Hits for each byte, compared without a division.
    let rate = |of: Demand, other: Demand| u128::from(of.hits) * u128::from(other.bytes.max(1));
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
        Ghosts { slots, gone: AtomicU64::new(0), gone_bytes: AtomicU64::new(0), hits: AtomicU64::new(0) }
    }
}

impl Ghosts {
    /// Something of so many bytes had to go.
    fn note_gone<K: Hash>(&self, key: &K, bytes: u64) {
        let (slot, hash) = self.slot(key);
        slot.store(hash, Ordering::Relaxed);
        self.gone.fetch_add(1, Ordering::Relaxed);
        self.gone_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Something was looked for in vain.
    pub fn note_missed<K: Hash>(&self, key: &K) {
        let (slot, hash) = self.slot(key);
        // It comes back now, and counts once.
        if slot.load(Ordering::Relaxed) == hash && slot.swap(0, Ordering::Relaxed) == hash {
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What more memory would have saved since [`start_over`](Ghosts::start_over).
    pub fn demand(&self) -> Demand {
        let gone = self.gone.load(Ordering::Relaxed);
        let typical = self.gone_bytes.load(Ordering::Relaxed) / gone.max(1);
        Demand { hits: self.hits.load(Ordering::Relaxed), bytes: gone.min(SLOTS as u64) * typical }
    }

    /// Counts anew; what was let go stays known.
    pub fn start_over(&self) {
        self.hits.store(0, Ordering::Relaxed);
    }

    fn slot<K: Hash>(&self, key: &K) -> (&AtomicU64, u64) {
        let hash = Hashing::default().hash_one(key);
        // 0 is for no hash.
        (&self.slots[(hash >> 32) as usize % SLOTS], hash | 1)
    }
}

/// Remembers what a cache lets go.
pub(super) struct Remember<K, V> {
    ghosts: Arc<Ghosts>,
    dropping: DefaultLifecycle<K, V>,
}

impl<K, V> Remember<K, V> {
    pub(super) fn new(ghosts: Arc<Ghosts>) -> Remember<K, V> {
        Remember { ghosts, dropping: DefaultLifecycle::default() }
    }
}

// Of a derived one, keys and values would have to be `Clone`.
impl<K, V> Clone for Remember<K, V> {
    fn clone(&self) -> Remember<K, V> {
        Remember::new(self.ghosts.clone())
    }
}

impl<K: Hash, V> Lifecycle<K, V> for Remember<K, V>
where
    BytesHeld: Weighter<K, V>,
{
    type RequestState = <DefaultLifecycle<K, V> as Lifecycle<K, V>>::RequestState;

    fn on_evict(&self, state: &mut Self::RequestState, key: K, value: V) {
        self.ghosts.note_gone(&key, BytesHeld.weight(&key, &value));
        self.dropping.on_evict(state, key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_soon_counts_once_and_what_went_long_ago_does_not() {
        let ghosts = Ghosts::default();
        assert_eq!(ghosts.demand(), Demand::default());
        (0..100_u64).for_each(|key| ghosts.note_gone(&key, 1000));
        for _ in 0..2 {
            (50..150_u64).for_each(|key| ghosts.note_missed(&key));
        }
        let Demand { hits, bytes } = ghosts.demand();
        // Some have taken the slots of others.
        assert!((45..=50).contains(&hits) && bytes == 100_000, "{hits} hits, {bytes} B");
        ghosts.start_over();
        (1000..100_000_u64).for_each(|key| ghosts.note_gone(&key, 1000));
        (0..50_u64).for_each(|key| ghosts.note_missed(&key));
        assert_eq!(ghosts.demand(), Demand { hits: 0, bytes: SLOTS as u64 * 1000 });
    }

    #[test]
    fn memory_goes_where_a_byte_saves_more_reads() {
        const VALUES_MIN: u32 = 2;
        const VALUES_MAX: u32 = 48;
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
            assert_eq!(
                next_parts(now, demand(blocks), demand(values), VALUES_MIN..=VALUES_MAX),
                then,
                "{now}, {blocks:?}, {values:?}"
            );
        }
    }
}
