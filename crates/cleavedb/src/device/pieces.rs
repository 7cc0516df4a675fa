//! How files lie on a key-value device: the keys of their pieces and of the table of names, and the map from a file's bytes to its
//! pieces. The format is in `docs/formats/device.md`; do not renumber.
//!
//! A piece is stored under a key of its own and never again, so nothing is overwritten (rule 4). Bytes that are written again, as
//! recovery does with frames that may not be durable, lie in a newer piece, which covers the older one.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Bytes of every key.
pub const KEY_BYTES: usize = 16;
/// The longest piece. A read retrieves whole pieces.
pub const PIECE_BYTES_MAX: usize = 16 << 10;
/// The longest file.
pub const FILE_BYTES_MAX: u64 = (1 << 40) - 1;
/// The last generation.
pub const GENERATION_MAX: u64 = (1 << 40) - 1;

/// A key.
pub type Key = [u8; KEY_BYTES];

/// The key of the pair that says whose pairs these are.
pub const HEADER_KEY: Key = [0; KEY_BYTES];
/// Its value.
pub const HEADER: &[u8] = b"cleavedb device 1";

const _: () = assert!(PIECE_BYTES_MAX <= 1 << 16, "the length of a piece has two bytes");

/// A part of a file, as its key describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Piece {
    /// The number of the file on the device, from 1 on.
    pub file: u32,
    pub offset: u64,
    /// Of two pieces with the same bytes of a file, the one with the higher generation has them.
    pub generation: u64,
    pub len: u32,
}

impl Piece {
    /// Where it ends in its file.
    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.len)
    }

    /// Its key.
    pub fn key(&self) -> Key {
        assert!(
            self.file > 0 && self.offset <= FILE_BYTES_MAX && self.generation <= GENERATION_MAX,
            "a piece has a key"
        );
        assert!((1..=PIECE_BYTES_MAX).contains(&(self.len as usize)), "a piece has a byte, and not too many");
        let mut key = [0; KEY_BYTES];
        key[..4].copy_from_slice(&self.file.to_be_bytes());
        key[4..9].copy_from_slice(&self.offset.to_be_bytes()[3..]);
        key[9..14].copy_from_slice(&self.generation.to_be_bytes()[3..]);
        key[14..].copy_from_slice(&((self.len - 1) as u16).to_be_bytes());
        key
    }
}

/// What a key means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    Header,
    /// The name and the length of a file.
    Name(u32),
    Piece(Piece),
}

/// What a key means; `None` if it is none of ours.
pub fn meaning_of(key: &[u8]) -> Option<Meaning> {
    let key: &Key = key.try_into().ok()?;
    let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
    let (file, second) = (number(&key[..4]) as u32, number(&key[4..8]) as u32);
    if file > 0 {
        let (offset, generation, len) = (number(&key[4..9]), number(&key[9..14]), number(&key[14..]) as u32 + 1);
        return (len as usize <= PIECE_BYTES_MAX).then_some(Meaning::Piece(Piece { file, offset, generation, len }));
    }
    match key[8..].iter().all(|byte| *byte == 0) {
        true if second == 0 => Some(Meaning::Header),
        true => Some(Meaning::Name(second)),
        false => None,
    }
}

/// The key of a file's name.
pub fn name_key(file: u32) -> Key {
    let mut key = [0; KEY_BYTES];
    key[4..8].copy_from_slice(&file.to_be_bytes());
    key
}

/// The value under [`name_key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameRecord {
    /// The length that the file has at least.
    pub len: u64,
    /// Of two files of one name, the one with the higher generation has it.
    pub generation: u64,
    pub name: String,
}

impl NameRecord {
    /// Length, generation and name, and a checksum.
    pub fn encode(&self) -> Vec<u8> {
        let mut value = [self.len.to_le_bytes(), self.generation.to_le_bytes()].concat();
        value.extend(self.name.as_bytes());
        value.extend(crc32c::crc32c(&value).to_le_bytes());
        value
    }

    /// `None` if the value is damaged.
    pub fn decode(value: &[u8]) -> Option<NameRecord> {
        let (rest, crc) = value.split_last_chunk::<4>()?;
        let (len, tail) = rest.split_first_chunk::<8>()?;
        let (generation, name) = tail.split_first_chunk::<8>()?;
        let [len, generation] = [len, generation].map(|number| u64::from_le_bytes(*number));
        let is_whole = crc32c::crc32c(rest) == u32::from_le_bytes(*crc);
        let name = std::str::from_utf8(name).ok()?.to_owned();
        let is_sound = is_whole && len <= FILE_BYTES_MAX && generation <= GENERATION_MAX;
        is_sound.then_some(NameRecord { len, generation, name })
    }
}

/// The pieces of a file, and which of them has each byte.
#[derive(Debug, Default)]
pub struct Pieces {
    all: BTreeSet<Piece>,
    /// By where they begin: bytes of the file, and the piece that has them. Disjoint.
    extents: BTreeMap<u64, (u64, Piece)>,
    bytes: u64,
    end: u64,
}

impl Pieces {
    /// Adds a piece, which covers older ones.
    pub fn add(&mut self, piece: Piece) {
        if self.all.insert(piece) {
            self.bytes += u64::from(piece.len);
        }
        self.end = self.end.max(piece.end());
        self.cut(piece.offset..piece.end());
        self.extents.insert(piece.offset, (piece.end(), piece));
    }

    /// Nothing is found in these bytes any more.
    fn cut(&mut self, hole: Range<u64>) {
        let before = self.extents.range(..hole.start).next_back().map(|(start, extent)| (*start, *extent));
        if let Some((start, (end, piece))) = before.filter(|(_, (end, _))| *end > hole.start) {
            self.extents.insert(start, (hole.start, piece));
            if end > hole.end {
                self.extents.insert(hole.end, (end, piece));
            }
        }
        let within: Vec<_> = self.extents.range(hole.clone()).map(|(start, extent)| (*start, *extent)).collect();
        for (start, (end, piece)) in within {
            self.extents.remove(&start);
            if end > hole.end {
                self.extents.insert(hole.end, (end, piece));
            }
        }
    }

    /// Leaves out a piece that is on the device no more.
    pub fn remove(&mut self, piece: &Piece) {
        if self.all.remove(piece) {
            self.bytes -= u64::from(piece.len);
        }
        self.end = self.all.iter().map(Piece::end).max().unwrap_or_default();
        self.extents.retain(|_, (_, of)| of != piece);
    }

    /// The parts of the range that pieces have, in order.
    pub fn within(&self, range: Range<u64>) -> Vec<(Range<u64>, Piece)> {
        let first = self.extents.range(..=range.start).next_back().map_or(range.start, |(start, _)| *start);
        let extents = self.extents.range(first..range.end);
        let part = |(start, (end, piece)): (&u64, &(u64, Piece))| {
            let part = (*start).max(range.start)..(*end).min(range.end);
            (!part.is_empty()).then_some((part, *piece))
        };
        extents.filter_map(part).collect()
    }

    /// All pieces, in the order of their keys.
    pub fn all(&self) -> impl DoubleEndedIterator<Item = &Piece> {
        self.all.iter()
    }

    /// Where the last piece ends.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of all pieces, those that are covered included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, len: u32, generation: u64) -> Piece {
        Piece { file: 7, offset, generation, len }
    }

    #[test]
    fn a_key_says_what_it_is_for_and_keys_of_a_file_are_in_the_order_of_its_bytes() {
        let pieces = [piece(0, 1, 9), piece(0, PIECE_BYTES_MAX as u32, 10), piece(5, 3, 1), piece(1 << 33, 4, 2)];
        for piece in pieces {
            assert_eq!(meaning_of(&piece.key()), Some(Meaning::Piece(piece)));
        }
        assert!(pieces.is_sorted_by_key(Piece::key));
        assert_eq!(meaning_of(&name_key(3)), Some(Meaning::Name(3)));
        assert_eq!(meaning_of(&HEADER_KEY), Some(Meaning::Header));
        let mut foreign = name_key(3);
        foreign[15] = 1;
        let too_long = {
            let mut key = piece(0, 1, 1).key();
            key[14] = 0xff;
            key
        };
        assert_eq!([&foreign[..], &too_long, b"key"].map(meaning_of), [None; 3]);
    }

    #[test]
    fn a_name_reads_back_and_damage_to_it_is_found() {
        let record = NameRecord { len: 4096, generation: 9, name: "00000007.log".to_owned() };
        let value = record.encode();
        assert_eq!(NameRecord::decode(&value), Some(record));
        for at in 0..value.len() {
            let mut damaged = value.clone();
            damaged[at] ^= 1;
            assert_eq!((NameRecord::decode(&damaged), NameRecord::decode(&value[..at])), (None, None), "{at}");
        }
    }

    /// Against a model: each byte of a file has the generation of the newest piece that was added there.
    #[test]
    fn a_newer_piece_covers_older_ones_however_they_overlap() {
        let adds = [(0, 10), (10, 10), (30, 5), (5, 10), (8, 2), (0, 3), (2, 40), (41, 1), (20, 3), (20, 3)];
        let (mut pieces, mut model) = (Pieces::default(), [0; 60]);
        for (generation, (offset, len)) in adds.into_iter().enumerate() {
            let generation = generation as u64 + 1;
            pieces.add(piece(offset, len, generation));
            model[offset as usize..][..len as usize].fill(generation);
            for (start, end) in [(0, 60), (3, 21), (25, 26), (42, 43), (50, 60)] {
                let mut found = [0; 60];
                for (part, piece) in pieces.within(start..end) {
                    found[part.start as usize..part.end as usize].fill(piece.generation);
                }
                let mut wanted = [0; 60];
                wanted[start as usize..end as usize].copy_from_slice(&model[start as usize..end as usize]);
                assert_eq!(found, wanted, "{start}..{end} after {generation}");
            }
        }
        assert_eq!(
            (pieces.end(), pieces.bytes(), pieces.all().count()),
            (42, 10 + 10 + 5 + 10 + 2 + 3 + 40 + 1 + 6, 10)
        );
        pieces.remove(&piece(2, 40, 7));
        assert!(pieces.within(3..20).is_empty(), "what a piece covers does not come back");
    }
}
