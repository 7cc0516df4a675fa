//! The index of one keyspace: the place of the newest record of each key. The first bits of a key's hash choose a shard, which
//! has a lock of its own; within it everything is ordered by hash, so a scan can go on where it was although buckets split.
//!
//! No operation takes longer because there are more keys, but for the depth of one map for each shard. Which places a reader
//! may see is decided outside: the index has the newest only.

use std::hint::black_box;
use std::sync::atomic::{AtomicUsize, Ordering};

use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::bucket::Bucket;
use super::bulk::Bulk;
use super::directory::Segment;
use super::place::Place;
use super::shard::{BUCKET_KEYS_MAX, BucketChanges, Shard, tag_of};
use crate::base::verify;
use crate::sched::sync::RwLock;

/// There are two to the power of this many shards.
const SHARD_BITS: u8 = 6;
/// The number of shards.
pub const SHARDS: usize = 1 << SHARD_BITS;

/// Hashes a key with a seed.
pub type Hasher = fn(&[u8], u64) -> u64;

/// What the hashes of keys share. Anything but the default is for tests: few keys then split and join buckets as many would.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Spread {
    /// Nothing, but by chance.
    #[default]
    Even,
    /// The bits that choose the shard.
    #[cfg(any(test, feature = "testing"))]
    OneShard,
    /// Some more bits, so that buckets, which are small, split several times before keys are apart.
    #[cfg(any(test, feature = "testing"))]
    Deep,
    /// Nearly all: there are eight hashes, too close for a split.
    #[cfg(any(test, feature = "testing"))]
    Few,
}

impl Spread {
    fn hasher(self) -> Hasher {
        match self {
            Spread::Even => xxh3_64_with_seed,
            #[cfg(any(test, feature = "testing"))]
            Spread::OneShard => |key, seed| xxh3_64_with_seed(key, seed) >> SHARD_BITS,
            #[cfg(any(test, feature = "testing"))]
            Spread::Deep => |key, seed| xxh3_64_with_seed(key, seed) >> (SHARD_BITS + 6),
            #[cfg(any(test, feature = "testing"))]
            Spread::Few => |key, seed| xxh3_64_with_seed(key, seed) & 7 << 40,
        }
    }

    fn bucket_keys_max(self) -> usize {
        match self {
            #[cfg(any(test, feature = "testing"))]
            Spread::Deep => 8,
            _ => BUCKET_KEYS_MAX,
        }
    }
}

/// A place for each key.
#[derive(Debug)]
pub struct HashIndex {
    shards: Vec<RwLock<Shard>>,
    /// Memory of all shards, asked for at each write.
    shard_bytes: AtomicUsize,
    hasher: Hasher,
    seed: u64,
}

impl HashIndex {
    /// An empty index. The seed keeps others from choosing keys with equal hashes.
    pub fn new(seed: u64, spread: Spread) -> HashIndex {
        HashIndex::with_buckets(seed, spread.hasher(), spread.bucket_keys_max())
    }

    /// An empty index with a hash function of the caller, for tests in which keys share bits.
    #[cfg(test)]
    pub fn with_hasher(seed: u64, hasher: Hasher) -> HashIndex {
        HashIndex::with_buckets(seed, hasher, BUCKET_KEYS_MAX)
    }

    fn with_buckets(seed: u64, hasher: Hasher, bucket_keys_max: usize) -> HashIndex {
        let shards = (0..1 << SHARD_BITS).map(|number| Shard::new(first_of(number), SHARD_BITS, bucket_keys_max));
        let shards: Vec<Shard> = shards.collect();
        let shard_bytes = AtomicUsize::new(shards.iter().map(Shard::memory_bytes).sum());
        HashIndex { shards: shards.into_iter().map(RwLock::new).collect(), shard_bytes, hasher, seed }
    }

    /// The place of a key.
    pub fn get(&self, key: &[u8]) -> Option<Place> {
        let hash = self.hash(key);
        self.shard(hash).read().get(hash, key)
    }

    /// The places of keys. A look-up reads from memory some five times, each time where the read before says, and waits for it
    /// when there are many keys. Here all keys do each of these steps before the next one, so that their reads are in flight at
    /// the same time. For some dozens of keys: their shards are locked together.
    pub fn get_many(&self, keys: &[&[u8]]) -> Vec<Option<Place>> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.hash(key)).collect();
        let mut locked = [None; SHARDS];
        hashes.iter().for_each(|hash| locked[shard_of(*hash)] = Some(0));
        // In their order, so that nobody waits in a circle, and none twice, because a writer may wait between two readers.
        let mut shards = Vec::new();
        for (shard, at) in self.shards.iter().zip(&mut locked) {
            if let Some(at) = at {
                *at = shards.len();
                shards.push(shard.read());
            }
        }
        let shard = |hash: &u64| &shards[locked[shard_of(*hash)].unwrap_or_default()];
        let segments: Vec<&Segment> = hashes.iter().map(|hash| shard(hash).segment(*hash)).collect();
        let buckets: Vec<&Bucket> = segments.iter().zip(&hashes).map(|(segment, hash)| segment.bucket(*hash)).collect();
        black_box(buckets.iter().fold(0, |sum, bucket| sum ^ bucket.touch_slots()));
        let each = || hashes.iter().zip(keys).zip(&buckets);
        black_box(each().fold(0, |sum, ((hash, key), bucket)| sum ^ bucket.touch_entry(tag_of(*hash), key)));
        each().map(|((hash, key), bucket)| bucket.get(tag_of(*hash), key)).collect()
    }

    /// Sets the place of a key; returns the one before.
    pub fn insert(&self, key: &[u8], place: Place) -> Option<Place> {
        let hash = self.hash(key);
        self.change(hash, |shard| shard.insert(hash, key, place, &|key| self.hash(key)))
    }

    /// Puts different keys, which are sorted and all of the same shard, into that; at once if the shard is empty.
    pub fn fill(&self, keys: &Bulk) {
        let Some((hash, ..)) = keys.iter().next() else { return };
        verify!(keys.iter().all(|(other, ..)| shard_of(other) == shard_of(hash)), "the keys are those of one shard");
        self.change(hash, |shard| match shard.len() {
            0 => shard.fill(first_of(shard_of(hash)), SHARD_BITS, keys),
            _ => keys.iter().for_each(|(hash, key, place)| {
                shard.insert(hash, key, place, &|key| self.hash(key));
            }),
        });
    }

    /// Removes a key; returns its place.
    pub fn remove(&self, key: &[u8]) -> Option<Place> {
        let hash = self.hash(key);
        self.change(hash, |shard| shard.remove(hash, key))
    }

    /// Visits the keys of one bucket, those with hash `from` or a higher one; returns the hash to go on from, or none at
    /// the end. A scan that begins with 0 visits each key once that is there from its beginning to its end, whatever splits
    /// meanwhile. The shard is locked for reading, so `see` must not use the index.
    pub fn scan(&self, from: u64, see: &mut dyn FnMut(&[u8], Place)) -> Option<u64> {
        let next = self.shard(from).read().for_bucket(from, &mut |key, place| {
            if self.hash(key) >= from {
                see(key, place);
            }
        });
        (next != 0).then_some(next)
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// How often buckets were split and joined.
    pub fn changes(&self) -> BucketChanges {
        self.shards.iter().fold(BucketChanges::default(), |sum, shard| {
            let BucketChanges { splits, joins } = shard.read().changes();
            BucketChanges { splits: sum.splits + splits, joins: sum.joins + joins }
        })
    }

    /// The memory of the index, with what the allocator adds.
    pub fn memory_bytes(&self) -> usize {
        let shards = self.shards.capacity() * size_of::<RwLock<Shard>>();
        shards + self.shard_bytes.load(Ordering::Relaxed)
    }

    /// The memory of each shard, as it is kept and counted anew, and its number of segments.
    #[cfg(test)]
    pub fn count_shards(&self) -> Vec<(usize, usize, usize)> {
        let count = |shard: &Shard| (shard.memory_bytes(), shard.count_memory(), shard.segments());
        self.shards.iter().map(|shard| count(&shard.read())).collect()
    }

    /// Inserts a key; returns the bytes of the allocations that the shard has not had before.
    #[cfg(test)]
    pub fn bytes_moved_by_insert(&self, key: &[u8], place: Place) -> usize {
        let hash = self.hash(key);
        let (hashes, before) = {
            let shard = self.shard(hash).read();
            let hashes = shard.segment_range(hash);
            (hashes.clone(), shard.allocations(hashes).into_iter().collect::<std::collections::BTreeSet<_>>())
        };
        self.insert(key, place);
        let after = self.shard(hash).read().allocations(hashes);
        after.iter().filter(|allocation| !before.contains(allocation)).map(|(_, bytes)| bytes).sum()
    }

    /// The next key of this hash makes its bucket larger than buckets should be.
    #[cfg(test)]
    pub fn is_next_split(&self, key: &[u8]) -> bool {
        let hash = self.hash(key);
        (self.shard(hash).read().segment(hash).bucket(hash).len() + 1).is_multiple_of(BUCKET_KEYS_MAX + 1)
    }

    /// Changes the shard of a hash, and counts its memory.
    fn change<R>(&self, hash: u64, change: impl FnOnce(&mut Shard) -> R) -> R {
        let mut shard = self.shard(hash).write();
        let before = shard.memory_bytes();
        let result = change(&mut shard);
        let after = shard.memory_bytes();
        if after != before {
            self.shard_bytes.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        }
        result
    }

    /// The hash of a key.
    pub fn hash(&self, key: &[u8]) -> u64 {
        (self.hasher)(key, self.seed)
    }

    fn shard(&self, hash: u64) -> &RwLock<Shard> {
        &self.shards[shard_of(hash)]
    }
}

/// The number of the shard of a hash.
pub fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

/// The lowest hash of a shard.
fn first_of(shard: usize) -> u64 {
    (shard as u64) << (64 - SHARD_BITS)
}
