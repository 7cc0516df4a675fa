//! The pieces of an index table: the versions in arrival order, [`PIECE_ENTRIES`] to a piece, and how their numbers are
//! sorted into cursor order. A version is identified by its number: piece index times [`PIECE_ENTRIES`] plus slot.
//!
//! Called by the index table and its cursors.

use std::ops::Range;
use std::sync::Arc;

use crate::base::cursor::{compare, leading_bytes};
use crate::base::kind::Stamp;
use crate::base::ranges::KeyRange;

/// Versions in one piece; a scan copies at most this many.
pub(super) const PIECE_ENTRIES: usize = 512;
/// Length of the header of an entry, which precedes its key.
pub(super) const ENTRY_HEADER_BYTES: usize = 16;

/// Up to [`PIECE_ENTRIES`] versions, in arrival order.
#[derive(Default, Clone)]
pub(super) struct Piece {
    /// The encoded versions, back to back.
    pub bytes: Vec<u8>,
    pub entries: Vec<IndexEntry>,
}

/// The entry of one version.
#[derive(Clone, Copy)]
pub(super) struct IndexEntry {
    /// Offset of the version in the bytes of the piece.
    pub start: u32,
    /// A part of the hash of the full key.
    pub hash: u32,
    /// The number of the next older version of the key, plus one; 0 if the table has none.
    pub older: u32,
}

/// One version; a piece stores it as `payload_len u32 | key_len u32 | stamp u64 | key | payload`.
pub(super) struct IndexVersion<'a> {
    pub key: &'a [u8],
    pub stamp: Stamp,
    pub payload: &'a [u8],
}

impl Piece {
    /// The version in `slot`.
    pub fn version(&self, slot: usize) -> IndexVersion<'_> {
        let bytes = &self.bytes[self.entries[slot].start as usize..];
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let (payload_len, key_len) = (word(0) as usize, word(4) as usize);
        let stamp = Stamp(word(8) as u64 | (word(12) as u64) << 32);
        let (key, rest) = bytes[ENTRY_HEADER_BYTES..].split_at(key_len);
        IndexVersion { key, stamp, payload: &rest[..payload_len] }
    }

    /// Where the version in `slot` is, for a cursor over `piece`.
    pub fn place(&self, piece: usize, slot: usize) -> PayloadPlace {
        let version = self.version(slot);
        let key_start = self.entries[slot].start as usize + ENTRY_HEADER_BYTES;
        let key = key_start..key_start + version.key.len();
        PayloadPlace { piece, payload_end: key.end + version.payload.len(), key, stamp: version.stamp }
    }

    /// Appends a version; its full key is `prefix` followed by `key`.
    pub fn push(&mut self, hash: u32, older: u32, prefix: &[u8], key: &[u8], stamp: Stamp, payload: &[u8]) {
        let start = u32::try_from(self.bytes.len()).expect("a piece has small payloads and stays below 4 GiB");
        self.entries.push(IndexEntry { start, hash, older });
        self.bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(&((prefix.len() + key.len()) as u32).to_le_bytes());
        self.bytes.extend_from_slice(&stamp.0.to_le_bytes());
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(payload);
    }
}

/// Where the current version of a cursor is.
#[derive(Default)]
pub(super) struct PayloadPlace {
    pub piece: usize,
    pub key: Range<usize>,
    pub payload_end: usize,
    pub stamp: Stamp,
}

/// The numbers of the versions in a range of full pieces.
pub(super) fn numbers(pieces: Range<usize>) -> Range<usize> {
    pieces.start * PIECE_ENTRIES..pieces.end * PIECE_ENTRIES
}

/// Selects the versions among `numbers` whose keys are within `keys`; returns their numbers in cursor order.
pub(super) fn sort_within(pieces: &[Arc<Piece>], numbers: Range<usize>, keys: &KeyRange) -> Vec<u32> {
    let mut keyed: Vec<(u128, u32)> = Vec::new();
    for number in numbers {
        let number = number as u32;
        let key = version_at(pieces, number).key;
        if keys.holds(key) {
            keyed.push((leading_bytes(key), number));
        }
    }
    // The leading bytes of the keys decide most comparisons without an access to the pieces.
    keyed.sort_unstable_by(|left, right| left.0.cmp(&right.0).then_with(|| compare_at(pieces, left.1, right.1)));
    keyed.into_iter().map(|(_, number)| number).collect()
}

/// The version with this number.
pub(super) fn version_at(pieces: &[Arc<Piece>], number: u32) -> IndexVersion<'_> {
    pieces[number as usize / PIECE_ENTRIES].version(number as usize % PIECE_ENTRIES)
}

fn compare_at(pieces: &[Arc<Piece>], left: u32, right: u32) -> std::cmp::Ordering {
    let (left, right) = (version_at(pieces, left), version_at(pieces, right));
    compare(left.key, left.stamp, right.key, right.stamp)
}

/// Merges two lists of numbers, each in cursor order.
pub(super) fn merge_orders(pieces: &[Arc<Piece>], left: &[u32], right: &[u32]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(left.len() + right.len());
    let (mut l, mut r) = (0, 0);
    while l < left.len() && r < right.len() {
        if compare_at(pieces, left[l], right[r]).is_lt() {
            merged.push(left[l]);
            l += 1;
        } else {
            merged.push(right[r]);
            r += 1;
        }
    }
    merged.extend_from_slice(&left[l..]);
    merged.extend_from_slice(&right[r..]);
    merged
}
