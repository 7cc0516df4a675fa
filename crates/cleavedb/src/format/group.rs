//! Groups: which keys an extent holds. Those of *hash groups* have hashes that begin with the same bits (extendible hashing,
//! HashKV section 3.1); a group with more bits holds a part of one with fewer. Those of *ranges* lie between two bounds.
//! Stored with the extents of a group, so the hash is part of the format.

use std::sync::Arc;

use super::checksum::xxh3_64;
use super::interval::Interval;
use crate::base::varint::{put, take};

/// Which keys an extent holds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Those whose hashes begin with the same bits.
    Hash(HashGroup),
    /// Those of a range. The records of such an extent lie in the order of their keys.
    Range(Arc<Interval>),
}

/// Stored: do not renumber.
mod tag {
    pub const HASH: u64 = 0;
    pub const RANGE: u64 = 1;
}

impl Group {
    /// All keys, in no order.
    pub const ALL: Group = Group::Hash(HashGroup::ALL);

    /// The bits, of a group by hash.
    pub fn as_hash(&self) -> Option<HashGroup> {
        match self {
            Group::Hash(group) => Some(*group),
            Group::Range(_) => None,
        }
    }

    /// The range, of a group by keys.
    pub fn as_range(&self) -> Option<&Interval> {
        match self {
            Group::Hash(_) => None,
            Group::Range(interval) => Some(interval),
        }
    }

    /// Appends the encoding: the tag, and what belongs to it.
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

/// No group has more bits than this.
pub const DEPTH_MAX: u8 = 32;

/// The keys whose hashes begin with `depth` certain bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HashGroup {
    /// The bits, at the upper end; zeros below them.
    bits: u64,
    depth: u8,
}

/// What a key, with its keyspace, is grouped by.
pub fn group_hash(full_key: &[u8]) -> u64 {
    xxh3_64(full_key)
}

impl HashGroup {
    /// All keys.
    pub const ALL: HashGroup = HashGroup { bits: 0, depth: 0 };

    /// The group of so many bits that holds a hash.
    pub fn of(hash: u64, depth: u8) -> HashGroup {
        let depth = depth.min(DEPTH_MAX);
        HashGroup { bits: if depth == 0 { 0 } else { hash >> (64 - depth) << (64 - depth) }, depth }
    }

    /// How many bits its keys share.
    pub fn depth(self) -> u8 {
        self.depth
    }

    /// True if it holds the hash.
    pub fn holds(self, hash: u64) -> bool {
        HashGroup::of(hash, self.depth) == self
    }

    /// True if it holds all that the other holds.
    pub fn covers(self, other: HashGroup) -> bool {
        other.depth >= self.depth && self.holds(other.bits)
    }

    /// Its two halves; `None` if it cannot be halved.
    pub fn halves(self) -> Option<[HashGroup; 2]> {
        let depth = self.depth + 1;
        let upper = self.bits | 1 << (64 - depth);
        (depth <= DEPTH_MAX).then_some([HashGroup { depth, ..self }, HashGroup { depth, bits: upper }])
    }

    /// The other half of what it is a half of; `None` for all keys.
    pub fn sibling(self) -> Option<HashGroup> {
        (self.depth > 0).then(|| HashGroup { bits: self.bits ^ 1 << (64 - self.depth), ..self })
    }

    /// Its first hash; groups that do not overlap lie in the order of these.
    pub fn first_hash(self) -> u64 {
        self.bits
    }

    /// Appends the encoding: how many bits, and the bits.
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
    fn groups_round_trip_and_others_are_refused() {
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
