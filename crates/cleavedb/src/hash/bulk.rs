//! Keys that are put into an empty part of the index all at once: each bucket is made once, at its final depth and of its final
//! size, which is several times as fast as one key after the other. Used at open.

use std::ops::Range;

use super::bucket::{Bucket, NewEntry};
use super::directory::{DEPTH_MAX, SLOTS_BITS_MAX, Segment};
use super::place::Place;
use super::shard::REACH_BITS;

/// A key of an index.
#[derive(Debug)]
struct Key {
    hash: u64,
    bytes: Range<usize>,
    place: Place,
}

/// Keys, and their places, in no order.
#[derive(Debug, Default)]
pub struct Bulk {
    keys: Vec<Key>,
    bytes: Vec<u8>,
}

impl Bulk {
    /// Adds a key.
    pub fn push(&mut self, hash: u64, key: &[u8], place: Place) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.keys.push(Key { hash, bytes: start..self.bytes.len(), place });
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// All keys and places.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &[u8], Place)> {
        self.keys.iter().map(|key| (key.hash, &self.bytes[key.bytes.clone()], key.place))
    }

    /// Orders the keys by hash; false if one is there twice.
    pub fn sort(&mut self) -> bool {
        let Bulk { keys, bytes } = self;
        keys.sort_unstable_by_key(|key| key.hash);
        let mut equal = keys.chunk_by_mut(|one, other| one.hash == other.hash).filter(|keys| keys.len() > 1);
        equal.all(|keys| {
            let bytes_of = |key: &Key| &bytes[key.bytes.clone()];
            keys.sort_unstable_by(|one, other| bytes_of(one).cmp(bytes_of(other)));
            keys.windows(2).all(|pair| bytes_of(&pair[0]) != bytes_of(&pair[1]))
        })
    }

    /// Makes segments of all keys, which are sorted: with the lowest hash of each, `first` for the lowest of all, whose hashes
    /// share `base` bits. A bucket has at most `keys_max` keys, unless it cannot be split.
    pub fn segments(&self, first: u64, base: u8, keys_max: usize, add: &mut dyn FnMut(u64, Segment)) {
        self.segments_of(&self.keys, first, base, keys_max, add);
    }

    fn segments_of(&self, keys: &[Key], first: u64, base: u8, keys_max: usize, add: &mut dyn FnMut(u64, Segment)) {
        let mut cuts = Vec::new();
        let is_too_large = keys.len() > keys_max << SLOTS_BITS_MAX && base < DEPTH_MAX;
        if !is_too_large {
            cut(keys, first, base, keys_max, &mut cuts);
        }
        let deepest = cuts.iter().map(|(depth, _)| *depth).max().unwrap_or(base);
        if is_too_large || deepest - base > SLOTS_BITS_MAX {
            let upper = first | 1 << (63 - base);
            let (low, high) = keys.split_at(keys.partition_point(|key| key.hash < upper));
            self.segments_of(low, first, base + 1, keys_max, add);
            return self.segments_of(high, upper, base + 1, keys_max, add);
        }
        let entry = |key: &Key| NewEntry { tag: key.hash as u8, key: &self.bytes[key.bytes.clone()], place: key.place };
        let bucket = |(depth, keys): (u8, &[Key])| Bucket::of(depth, keys.iter().map(entry));
        add(first, Segment::of(base, deepest - base, cuts.into_iter().map(bucket).collect()));
    }
}

/// Divides keys with hashes from `first` on, which share `depth` bits, into those of buckets, by the same rule as a bucket that
/// grows is split.
fn cut<'a>(keys: &'a [Key], first: u64, depth: u8, keys_max: usize, buckets: &mut Vec<(u8, &'a [Key])>) {
    let shared = match keys {
        [low, .., high] if keys.len() > keys_max => (low.hash ^ high.hash).leading_zeros() as u8,
        _ => u8::MAX,
    };
    if shared > depth + REACH_BITS || shared >= DEPTH_MAX {
        return buckets.push((depth, keys));
    }
    let upper = first | 1 << (63 - depth);
    let (low, high) = keys.split_at(keys.partition_point(|key| key.hash < upper));
    cut(low, first, depth + 1, keys_max, buckets);
    cut(high, upper, depth + 1, keys_max, buckets);
}
