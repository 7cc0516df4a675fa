//! Groups: which keys the records of an extent have. The keys of a *hash group* have hashes with a common prefix of
//! bits (extendible hashing, HashKV section 3.1); a longer prefix is a subset of a shorter one. The keys of a *range*
//! lie between two bounds. Groups are stored with their extents, so the hash is part of the format.
//!
//! Chosen by the placement policies in `values/`; stored in the manifest.

use std::sync::Arc;

use super::checksum::xxh3_64;
use super::interval::Interval;
use crate::base::varint::{put, take};

/// Which keys the records of an extent have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Keys whose hashes have a common prefix.
    Hash(HashGroup),
    /// Keys of a range. The records of such an extent are sorted by key.
    Range(Arc<Interval>),
}

/// Stored: do not renumber.
mod tag {
    pub const HASH: u64 = 0;
    pub const RANGE: u64 = 1;
}

impl Group {
    /// All keys, in no particular order.
    pub const ALL: Group = Group::Hash(HashGroup::ALL);

    /// The hash group; `None` for a range.
    pub fn as_hash(&self) -> Option<HashGroup> {
        match self {
            Group::Hash(group) => Some(*group),
            Group::Range(_) => None,
        }
    }

    /// The range; `None` for a hash group.
    pub fn as_range(&self) -> Option<&Interval> {
        match self {
            Group::Hash(_) => None,
            Group::Range(interval) => Some(interval),
        }
    }

    /// Appends the encoding: the tag, then the hash group or the range.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Group::Hash(group) => {
                put(out, tag::HASH);
                group.encode(out);
            }
            Group::Range(interval) => {
                put(out, tag::RANGE);
                interval.encode(out);
            }
        }
    }

    /// Takes a group off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<Group> {
        match take(bytes)? {
            tag::HASH => HashGroup::take(bytes).map(Group::Hash),
            tag::RANGE => Interval::take(bytes).map(|interval| Group::Range(Arc::new(interval))),
            _ => None,
        }
    }
}

/// Longest hash prefix, in bits.
pub const DEPTH_MAX: u8 = 32;

/// The keys whose hashes start with a certain prefix of `depth` bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HashGroup {
    /// The prefix, in the highest bits; the others are zero.
    bits: u64,
    depth: u8,
}

/// The hash that selects the group of a full key.
pub fn group_hash(full_key: &[u8]) -> u64 {
    xxh3_64(full_key)
}

impl HashGroup {
    /// All keys.
    pub const ALL: HashGroup = HashGroup { bits: 0, depth: 0 };

    /// The group with a prefix of `depth` bits that contains `hash`.
    pub fn of(hash: u64, depth: u8) -> HashGroup {
        let depth = depth.min(DEPTH_MAX);
        HashGroup { bits: if depth == 0 { 0 } else { hash >> (64 - depth) << (64 - depth) }, depth }
    }

    /// Length of the prefix, in bits.
    pub fn depth(self) -> u8 {
        self.depth
    }

    /// True if the group contains `hash`.
    pub fn holds(self, hash: u64) -> bool {
        HashGroup::of(hash, self.depth) == self
    }

    /// True if the group contains all of `other`.
    pub fn covers(self, other: HashGroup) -> bool {
        other.depth >= self.depth && self.holds(other.bits)
    }

    /// The two groups with one more bit; `None` at [`DEPTH_MAX`].
    pub fn halves(self) -> Option<[HashGroup; 2]> {
        let depth = self.depth + 1;
        let upper = self.bits | 1 << (64 - depth);
        (depth <= DEPTH_MAX).then_some([HashGroup { depth, ..self }, HashGroup { depth, bits: upper }])
    }

    /// The group that differs in the last bit of the prefix; `None` for all keys.
    pub fn sibling(self) -> Option<HashGroup> {
        (self.depth > 0).then(|| HashGroup { bits: self.bits ^ 1 << (64 - self.depth), ..self })
    }

    /// The lowest hash; groups that do not overlap are ordered by it.
    pub fn first_hash(self) -> u64 {
        self.bits
    }

    /// Appends the encoding: the length of the prefix, then the prefix.
    pub fn encode(self, out: &mut Vec<u8>) {
        put(out, self.depth.into());
        put(out, if self.depth == 0 { 0 } else { self.bits >> (64 - self.depth) });
    }

    /// Takes a group off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<HashGroup> {
        let depth = u8::try_from(take(bytes)?).ok().filter(|depth| *depth <= DEPTH_MAX)?;
        let bits = take(bytes)?;
        match depth {
            0 => (bits == 0).then_some(HashGroup::ALL),
            _ => (bits >> depth == 0).then(|| HashGroup { bits: bits << (64 - depth), depth }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_cover_a_group_and_do_not_overlap() {
        let mut group = HashGroup::ALL;
        for turn in 0..DEPTH_MAX {
            let halves = group.halves().unwrap();
            for hash in [0, 1, u64::MAX, 0x1234_5678_9abc_def0, 0x8000_0000_0000_0000] {
                let held = halves.map(|half| half.holds(hash));
                assert_eq!(held[0] ^ held[1], group.holds(hash));
            }
            assert_eq!(halves.map(|half| half.sibling()), [Some(halves[1]), Some(halves[0])]);
            assert!(halves.iter().all(|half| group.covers(*half) && !half.covers(group)));
            assert!(halves[0].first_hash() < halves[1].first_hash());
            group = halves[usize::from(turn % 2)];
        }
        assert_eq!((group.halves(), HashGroup::ALL.sibling()), (None, None));
    }

    #[test]
    fn groups_round_trip_and_malformed_ones_are_rejected() {
        for depth in 0..=DEPTH_MAX {
            let group = HashGroup::of(group_hash(b"key"), depth);
            let mut bytes = Vec::new();
            group.encode(&mut bytes);
            let rest = &mut &bytes[..];
            assert_eq!((HashGroup::take(rest), rest.len()), (Some(group), 0));
        }
        for bad in [&[33, 0][..], &[0, 1], &[1, 2], &[3], &[]] {
            assert_eq!(HashGroup::take(&mut &bad[..]), None, "{bad:?}");
        }
    }
}
