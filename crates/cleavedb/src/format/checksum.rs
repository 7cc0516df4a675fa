//! The checksum of tables: XXH3, for blocks, footers and filters. It is part of the on-disk formats. (Log frames have a
//! CRC32C, see `format/frame.rs`.)

use crate::base::FileId;

/// True if the stored checksum is the computed one. Always true in fuzz builds (`cfg(fuzzing)`): a fuzzer would hardly
/// ever get past a checksum.
#[inline]
pub fn agrees<T: PartialEq>(stored: T, computed: T) -> bool {
    cfg!(fuzzing) || stored == computed
}

/// XXH3 of `bytes`, 64 bits, seed 0.
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// XXH3 of `bytes`, salted with their file and offset, so that a block at the wrong place has a wrong checksum.
pub fn placed_checksum(bytes: &[u8], file: FileId, offset: u64) -> u64 {
    let mut place = [0u8; 16];
    place[..8].copy_from_slice(&file.0.to_le_bytes());
    place[8..].copy_from_slice(&offset.to_le_bytes());
    xxh3_64(bytes) ^ xxh3_64(&place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh3_has_its_published_value() {
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn the_same_bytes_in_another_place_have_another_checksum() {
        let here = placed_checksum(b"block", FileId(1), 4096);
        assert_ne!(here, placed_checksum(b"block", FileId(2), 4096));
        assert_ne!(here, placed_checksum(b"block", FileId(1), 8192));
        assert_ne!(here, placed_checksum(b"clock", FileId(1), 4096));
    }
}
