//! The two checksums: CRC32C for frames of logs (cheap to extend and to combine as bytes arrive), XXH3 for blocks of
//! tables and for filters. Both are part of the formats on disk.

use crate::base::FileId;

/// CRC32C of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    ::crc32c::crc32c(bytes)
}

/// CRC32C of the bytes that gave `crc`, followed by `bytes`.
pub fn crc32c_append(crc: u32, bytes: &[u8]) -> u32 {
    ::crc32c::crc32c_append(crc, bytes)
}

/// CRC32C of two byte strings joined, from the CRC32C of each and the length of the second.
pub fn crc32c_combine(first: u32, second: u32, second_len: usize) -> u32 {
    ::crc32c::crc32c_combine(first, second, second_len)
}

/// XXH3 of `bytes`, 64 bits, seed 0.
pub fn xxh3_64(bytes: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(bytes)
}

/// XXH3 of `bytes`, salted with the place they belong to: right bytes in the wrong place have the wrong checksum.
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
    fn checksums_have_their_published_values() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
    }

    #[test]
    fn crc32c_can_be_extended_and_combined() {
        let whole = crc32c(b"hello world");
        assert_eq!(crc32c_append(crc32c(b"hello "), b"world"), whole);
        assert_eq!(crc32c_combine(crc32c(b"hello "), crc32c(b"world"), 5), whole);
    }

    #[test]
    fn the_same_bytes_in_another_place_have_another_checksum() {
        let here = placed_checksum(b"block", FileId(1), 4096);
        assert_ne!(here, placed_checksum(b"block", FileId(2), 4096));
        assert_ne!(here, placed_checksum(b"block", FileId(1), 8192));
        assert_ne!(here, placed_checksum(b"clock", FileId(1), 4096));
    }
}
