//! Where the newest record of a key is, and its packed form in a bucket: one byte with the widths of the numbers, then file,
//! offset and length. The length of the value is not stored, since the record has it.

use crate::base::FileId;

/// Longest packed place, in bytes.
pub const PACKED_BYTES_MAX: usize = 1 + 7 + 8 + 4;

/// Bytes of a file number, an offset and a length, by the two bits that say so.
const FILE_WIDTHS: [usize; 4] = [2, 3, 4, 7];
const OFFSET_WIDTHS: [usize; 4] = [3, 4, 5, 8];
const LEN_WIDTHS: [usize; 4] = [1, 2, 3, 4];
const OFFSET_SHIFT: u32 = 2;
const LEN_SHIFT: u32 = 4;
const KIND_SHIFT: u32 = 6;

/// What the newest record of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceKind {
    /// A put.
    Value,
    /// A delete that still covers an older record.
    Tombstone,
    /// A merge operand; the places of what it is merged with are kept beside the index.
    Operand,
}

/// The place of one record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The log, or the file that a log or an extent became.
    pub file: FileId,
    /// Offset of the record, in bytes.
    pub offset: u64,
    /// Length of the whole record as stored, in bytes.
    pub len: u32,
    /// What the record does to the key.
    pub kind: PlaceKind,
}

/// A place as buckets store it.
#[derive(Debug, Clone, Copy)]
pub struct PackedPlace {
    bytes: [u8; PACKED_BYTES_MAX],
    len: u8,
}

impl PackedPlace {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// In how many bytes the numbers of a place are packed: two bits each for file, offset and length.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Widths(u8);

impl Widths {
    const MASK: u8 = (1 << KIND_SHIFT) - 1;

    /// Those of the packed place that begins with the byte `first`.
    pub fn of(first: u8) -> Widths {
        Widths(first & Widths::MASK)
    }

    /// For each number the larger of both.
    pub fn max(self, other: Widths) -> Widths {
        let larger = |shift: u32| (self.0 & 3 << shift).max(other.0 & 3 << shift);
        Widths(larger(0) | larger(OFFSET_SHIFT) | larger(LEN_SHIFT))
    }

    /// Length of a place packed in them, in bytes.
    pub fn packed_len(self) -> usize {
        1 + self.bytes().into_iter().sum::<usize>()
    }

    /// Bytes of file, offset and length.
    fn bytes(self) -> [usize; 3] {
        let bits = |shift: u32| usize::from(self.0 >> shift) & 3;
        [FILE_WIDTHS[bits(0)], OFFSET_WIDTHS[bits(OFFSET_SHIFT)], LEN_WIDTHS[bits(LEN_SHIFT)]]
    }
}

impl Place {
    /// The least widths that its numbers need. A file number has 56 bits at most.
    pub fn widths(self) -> Widths {
        let file = width_of(self.file.0, &FILE_WIDTHS);
        let offset = width_of(self.offset, &OFFSET_WIDTHS);
        let len = width_of(u64::from(self.len), &LEN_WIDTHS);
        Widths((file | offset << OFFSET_SHIFT | len << LEN_SHIFT) as u8)
    }

    /// Packs the numbers, in these widths or in larger ones if they need them.
    pub fn pack(self, widths: Widths) -> PackedPlace {
        let widths = widths.max(self.widths());
        let kind = match self.kind {
            PlaceKind::Value => 0,
            PlaceKind::Tombstone => 1,
            PlaceKind::Operand => 2,
        };
        let mut packed = PackedPlace { bytes: [0; PACKED_BYTES_MAX], len: 1 };
        packed.bytes[0] = widths.0 | kind << KIND_SHIFT;
        for (number, width) in [self.file.0, self.offset, u64::from(self.len)].into_iter().zip(widths.bytes()) {
            let at = usize::from(packed.len);
            packed.bytes[at..at + width].copy_from_slice(&number.to_le_bytes()[..width]);
            packed.len += width as u8;
        }
        packed
    }

    /// The place at the front of `bytes`, which [`pack`](Place::pack) made.
    pub fn unpack(bytes: &[u8]) -> Place {
        let [file, offset, len] = Widths::of(bytes[0]).bytes();
        let kind = match bytes[0] >> KIND_SHIFT {
            0 => PlaceKind::Value,
            1 => PlaceKind::Tombstone,
            _ => PlaceKind::Operand,
        };
        let number = |start: usize, width: usize| {
            let mut number = [0; 8];
            number[..width].copy_from_slice(&bytes[start..start + width]);
            u64::from_le_bytes(number)
        };
        Place {
            file: FileId(number(1, file)),
            offset: number(1 + file, offset),
            len: number(1 + file + offset, len) as u32,
            kind,
        }
    }
}

/// The index of the least width that holds `number`.
fn width_of(number: u64, widths: &[usize; 4]) -> usize {
    let bytes = (64 - number.leading_zeros() as usize).div_ceil(8);
    widths.iter().position(|width| bytes <= *width).expect("a file number has 56 bits at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_survive_packing_at_the_limits_of_each_width() {
        let edges = |bits: &[u32]| -> Vec<u64> {
            let each = bits.iter().flat_map(|bits| [(1_u64 << bits) - 1, 1 << bits]);
            each.chain([0, 1]).collect()
        };
        for file in edges(&[16, 24, 32, 55]) {
            for offset in edges(&[8, 24, 32, 40, 63]) {
                for len in edges(&[8, 16, 24, 31]) {
                    for kind in [PlaceKind::Value, PlaceKind::Tombstone, PlaceKind::Operand] {
                        let place = Place { file: FileId(file), offset, len: len as u32, kind };
                        for widths in [Widths::default(), place.widths(), Widths(0b10_01_01), Widths(0b01_10_11)] {
                            let packed = place.pack(widths);
                            let packed_len = Widths::of(packed.as_bytes()[0]).packed_len();
                            assert_eq!(packed.as_bytes().len(), packed_len);
                            assert!(packed_len >= widths.packed_len());
                            assert_eq!(Place::unpack(packed.as_bytes()), place);
                        }
                    }
                }
            }
        }
    }
}
