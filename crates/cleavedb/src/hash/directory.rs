//! One segment of the directory: which bucket has the keys whose hashes begin with given bits. A segment is an extendible
//! hashing directory of at most [`SLOTS_BITS_MAX`] bits. It doubles when a bucket needs one bit more, and splits into two
//! segments when it cannot double, so no step takes longer because there are more keys.
//!
//! Invariants: a bucket of depth `d` has all slots of its `d` bits, and no others; buckets cover all slots. Called by a shard.

use super::bucket::{ALLOCATION_BYTES, Bucket};
use crate::base::verify;

/// A segment has at most two to the power of this many slots.
pub const SLOTS_BITS_MAX: u8 = 9;
/// No bucket is deeper. What shares more bits stays together.
pub const DEPTH_MAX: u8 = 56;

/// Buckets whose hashes share their first bits.
#[derive(Debug)]
pub struct Segment {
    /// How many bits of their hashes all keys share.
    base: u8,
    /// The next this many bits choose the slot.
    bits: u8,
    /// For each slot the index of its bucket.
    slots: Vec<u16>,
    buckets: Vec<Bucket>,
    /// Memory of the entries of all buckets.
    entry_bytes: usize,
}

/// What a split needs first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// The bucket was split.
    Done,
    /// The segment has to be split first.
    SegmentIsFull,
}

impl Segment {
    /// One empty bucket for all hashes with the same first `base` bits.
    pub fn new(base: u8) -> Segment {
        Segment { base, bits: 0, slots: vec![0], buckets: vec![Bucket::new(base)], entry_bytes: 0 }
    }

    /// A segment of these buckets, in the order of their hashes, which cover all hashes with the same first `base` bits. None
    /// is deeper than `base + bits`.
    pub fn of(base: u8, bits: u8, buckets: Vec<Bucket>) -> Segment {
        let mut slots = Vec::with_capacity(1 << bits);
        for (index, bucket) in buckets.iter().enumerate() {
            slots.resize(slots.len() + (1 << (base + bits - bucket.depth)), index as u16);
        }
        let segment = Segment { base, bits, slots, entry_bytes: entry_bytes(&buckets), buckets };
        verify!(segment.is_consistent(), "each bucket of a segment has the slots of its bits");
        segment
    }

    /// The bucket of a hash.
    pub fn bucket(&self, hash: u64) -> &Bucket {
        &self.buckets[self.index(hash)]
    }

    /// Changes the entries of the bucket of a hash.
    pub fn change_bucket<R>(&mut self, hash: u64, change: impl FnOnce(&mut Bucket) -> R) -> R {
        let index = self.index(hash);
        let bucket = &mut self.buckets[index];
        let before = bucket.memory_bytes();
        let result = change(bucket);
        self.entry_bytes = self.entry_bytes + bucket.memory_bytes() - before;
        result
    }

    /// How many first bits of their hashes all keys share.
    pub fn base(&self) -> u8 {
        self.base
    }

    /// The memory that the segment has allocated. O(1).
    pub fn memory_bytes(&self) -> usize {
        self.slots_bytes() + self.entry_bytes
    }

    /// As [`memory_bytes`](Segment::memory_bytes), counted anew.
    #[cfg(test)]
    pub fn count_memory(&self) -> usize {
        self.slots_bytes() + entry_bytes(&self.buckets)
    }

    /// Address and length of the slots, and of the list of buckets.
    #[cfg(test)]
    pub fn allocations(&self) -> [(usize, usize); 2] {
        let slots = (self.slots.as_ptr() as usize, self.slots.capacity() * size_of::<u16>());
        [slots, (self.buckets.as_ptr() as usize, self.buckets.capacity() * size_of::<Bucket>())]
    }

    /// Address and length of the entries of each bucket.
    #[cfg(test)]
    pub fn entry_allocations(&self) -> impl Iterator<Item = (usize, usize)> {
        self.buckets.iter().map(Bucket::allocation)
    }

    fn slots_bytes(&self) -> usize {
        let slots = self.slots.capacity() * size_of::<u16>();
        slots + self.buckets.capacity() * size_of::<Bucket>() + 2 * ALLOCATION_BYTES
    }

    /// Splits the bucket of `hash` by its next bit.
    pub fn split_bucket(&mut self, hash: u64, hash_of: &dyn Fn(&[u8]) -> u64) -> Split {
        let index = self.index(hash);
        let depth = self.buckets[index].depth;
        if depth == self.base + self.bits {
            if self.bits == SLOTS_BITS_MAX {
                return Split::SegmentIsFull;
            }
            self.slots = self.slots.iter().flat_map(|slot| [*slot, *slot]).collect();
            self.bits += 1;
        }
        let before = self.buckets[index].memory_bytes();
        let upper = self.buckets[index].split(|key| bit(hash_of(key), depth));
        self.entry_bytes = self.entry_bytes + self.buckets[index].memory_bytes() + upper.memory_bytes() - before;
        let (start, width) = self.slots_of(hash, depth);
        if self.buckets.len() == self.buckets.capacity() {
            self.buckets.reserve_exact(2 + self.buckets.len() / 8);
        }
        self.slots[start + width / 2..start + width].fill(self.buckets.len() as u16);
        self.buckets.push(upper);
        verify!(self.is_consistent(), "each bucket of a segment has the slots of its bits");
        Split::Done
    }

    /// Joins the bucket of `hash` with its neighbour, if both together have at most `keys_max` keys.
    pub fn join_bucket(&mut self, hash: u64, keys_max: usize) -> bool {
        let index = self.index(hash);
        let depth = self.buckets[index].depth;
        if depth == self.base {
            return false;
        }
        let other = self.index(hash ^ 1 << (64 - depth));
        let is_small = self.buckets[index].len() + self.buckets[other].len() <= keys_max;
        if self.buckets[other].depth != depth || !is_small {
            return false;
        }
        let (start, width) = self.slots_of(hash, depth - 1);
        self.slots[start..start + width].fill(index as u16);
        let absorbed = std::mem::take(&mut self.buckets[other]);
        let before = self.buckets[index].memory_bytes() + absorbed.memory_bytes();
        self.buckets[index].absorb(absorbed);
        self.entry_bytes = self.entry_bytes + self.buckets[index].memory_bytes() - before;
        let last = self.buckets.len() - 1;
        self.buckets.swap_remove(other);
        for slot in self.slots.iter_mut().filter(|slot| usize::from(**slot) == last) {
            *slot = other as u16;
        }
        self.fit();
        verify!(self.is_consistent(), "each bucket of a segment has the slots of its bits");
        true
    }

    /// Splits a full segment by its first bit; returns the upper half.
    pub fn split(&mut self) -> Segment {
        let half = self.slots.len() / 2;
        let base = self.base + 1;
        let bits = self.bits - 1;
        let slots = self.slots.split_off(half);
        let mut upper = Segment { base, bits, slots, buckets: Vec::new(), entry_bytes: 0 };
        let slots = std::mem::take(&mut self.slots);
        let mut lower = Segment { base, bits, slots, buckets: Vec::new(), entry_bytes: 0 };
        let mut is_upper = vec![false; self.buckets.len()];
        upper.slots.iter().for_each(|slot| is_upper[usize::from(*slot)] = true);
        let mut renumbered = vec![0_u16; self.buckets.len()];
        for (index, bucket) in std::mem::take(&mut self.buckets).into_iter().enumerate() {
            let to = if is_upper[index] { &mut upper } else { &mut lower };
            renumbered[index] = to.buckets.len() as u16;
            to.buckets.push(bucket);
        }
        for half in [&mut upper, &mut lower] {
            half.slots.iter_mut().for_each(|slot| *slot = renumbered[usize::from(*slot)]);
            half.slots.shrink_to_fit();
            half.buckets.shrink_to_fit();
            half.entry_bytes = entry_bytes(&half.buckets);
            half.fit();
            verify!(half.is_consistent(), "each bucket of a segment has the slots of its bits");
        }
        *self = lower;
        upper
    }

    /// Halves the slots as long as no bucket needs the last bit, and gives unused memory back.
    fn fit(&mut self) {
        let deepest = self.buckets.iter().map(|bucket| bucket.depth).max().unwrap_or(self.base);
        while self.base + self.bits > deepest {
            self.slots = self.slots.iter().step_by(2).copied().collect();
            self.bits -= 1;
        }
        if self.buckets.capacity() > 4 + self.buckets.len() + self.buckets.len() / 4 {
            self.buckets.shrink_to_fit();
        }
    }

    fn index(&self, hash: u64) -> usize {
        usize::from(self.slots[self.slot(hash)])
    }

    fn slot(&self, hash: u64) -> usize {
        if self.bits == 0 { 0 } else { ((hash << self.base) >> (64 - self.bits)) as usize }
    }

    /// The first slot, and the number of slots, of hashes that share the first `depth` bits of `hash`.
    fn slots_of(&self, hash: u64, depth: u8) -> (usize, usize) {
        let width = 1_usize << (self.base + self.bits - depth);
        (self.slot(hash) & !(width - 1), width)
    }

    /// Each bucket has as many neighbouring slots as its depth leaves bits.
    fn is_consistent(&self) -> bool {
        let mut slots = vec![(0_usize, usize::MAX, 0_usize); self.buckets.len()];
        for (at, slot) in self.slots.iter().enumerate() {
            let (count, first, last) = &mut slots[usize::from(*slot)];
            (*count, *first, *last) = (*count + 1, at.min(*first), at);
        }
        slots.iter().zip(&self.buckets).all(|((count, first, last), bucket)| {
            let width = 1 << (self.base + self.bits - bucket.depth);
            *count == width && last - first + 1 == width && first % width == 0
        })
    }
}

fn entry_bytes(buckets: &[Bucket]) -> usize {
    buckets.iter().map(Bucket::memory_bytes).sum()
}

/// The bit at `depth`, counted from the highest.
fn bit(hash: u64, depth: u8) -> bool {
    hash >> (63 - depth) & 1 == 1
}
