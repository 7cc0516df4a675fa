//! The parts of a table file around its sorted blocks: block trailers, handles, separators and the footer.
//! Diagram of the whole file: `docs/formats/table.md`.
//!
//! Called by the table builder and reader in `levels/`.

use std::path::Path;

use super::checksum::{agrees, placed_checksum, xxh3_64};
use super::compression::Compression;
use crate::base::limits::{FULL_KEY_BYTES_MAX, VALUE_BYTES_LIMIT};
use crate::base::{Error, FileId, Result, Stamp, varint};

/// The version this code writes.
pub const FORMAT_VERSION: u32 = 4;
/// The oldest version this code reads: it has no packed blocks.
const FORMAT_VERSION_MIN: u32 = 3;
/// Length of the trailer behind each block: its compression and checksum.
pub const TRAILER_BYTES: usize = 9;
/// Length of the footer, the last bytes of every table.
pub const FOOTER_BYTES: usize = 64;
/// Largest block before compression: one entry of the largest size, and room for its overhead.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_LIMIT + FULL_KEY_BYTES_MAX + 64;

/// The first bytes of the footer.
pub const MAGIC: &[u8; 8] = b"clvTABLE";
const FOOTER_CHECKED_BYTES: usize = FOOTER_BYTES - 8;

/// Where a block is: the offset and length of its payload. The trailer follows the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHandle {
    /// In bytes from the start of the file.
    pub offset: u64,
    /// In bytes, without the trailer.
    pub len: u64,
}

impl BlockHandle {
    /// Appends the encoding: two varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        varint::put(out, self.offset);
        varint::put(out, self.len);
    }

    /// Takes a handle off the front of `bytes`.
    pub fn take(bytes: &mut &[u8]) -> Option<BlockHandle> {
        Some(BlockHandle { offset: varint::take(bytes)?, len: varint::take(bytes)? })
    }

    /// Decodes a handle that fills `bytes` exactly.
    pub fn decode(mut bytes: &[u8]) -> Option<BlockHandle> {
        let handle = BlockHandle::take(&mut bytes)?;
        bytes.is_empty().then_some(handle)
    }

    /// Where the trailer ends; `None` if that overflows.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)?.checked_add(TRAILER_BYTES as u64)
    }
}

/// The entry of one partition in the top index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHandles {
    /// The index of the partition's data blocks.
    pub index: BlockHandle,
    /// The filter over the keys in those blocks; stored with a length of 0 if there is none.
    pub filter: Option<BlockHandle>,
}

impl PartitionHandles {
    /// Appends the encoding: four varints.
    pub fn encode(self, out: &mut Vec<u8>) {
        self.index.encode(out);
        self.filter.unwrap_or(BlockHandle { offset: 0, len: 0 }).encode(out);
    }

    /// Decodes handles that fill `bytes` exactly.
    pub fn decode(mut bytes: &[u8]) -> Option<PartitionHandles> {
        let index = BlockHandle::take(&mut bytes)?;
        let filter = BlockHandle::decode(bytes)?;
        Some(PartitionHandles { index, filter: (filter.len > 0).then_some(filter) })
    }
}

/// Appends the trailer to the block whose payload is `out[start..]`, for a block at `offset` of `file`.
pub fn seal_block(out: &mut Vec<u8>, start: usize, compression: Compression, file: FileId, offset: u64) {
    out.push(compression as u8);
    let checksum = placed_checksum(&out[start..], file, offset);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Checks a block with its trailer, as read from storage; returns its compression and the length of its payload.
///
/// # Errors
/// A description of the damage; the caller adds the path.
pub fn check_block(sealed: &[u8], file: FileId, offset: u64) -> Result<(Compression, usize), &'static str> {
    let (checked, checksum) = sealed.split_last_chunk::<8>().ok_or("a block is shorter than its trailer")?;
    if !agrees(u64::from_le_bytes(*checksum), placed_checksum(checked, file, offset)) {
        return Err("the checksum of a block does not match");
    }
    let (&compression, payload) = checked.split_last().ok_or("a block is shorter than its trailer")?;
    let compression = Compression::from_u8(compression).ok_or("a block has an unknown compression")?;
    Ok((compression, payload.len()))
}

/// A short (key, stamp) at or after the last version of one block and before the first of the next.
///
/// If both blocks contain versions of the same key, this is the last version itself.
pub fn separator(last_key: &[u8], last_stamp: Stamp, next_key: &[u8]) -> (Vec<u8>, Stamp) {
    if last_key == next_key {
        return (last_key.to_vec(), last_stamp);
    }
    let shared = last_key.iter().zip(next_key).take_while(|(left, right)| left == right).count();
    let shortened = |at: usize| {
        let mut key = last_key[..=at].to_vec();
        key[at] += 1;
        key
    };
    let key = match (last_key.get(shared), next_key.get(shared)) {
        // Increment the first byte that differs, if the result stays below the next key.
        (Some(&last), Some(&next)) if last + 1 < next || next_key.len() > shared + 1 => shortened(shared),
        // Otherwise increment a later byte of the last key, which cannot reach the next key.
        (Some(_), Some(_)) => match last_key[shared + 1..].iter().position(|&byte| byte != 0xff) {
            Some(at) => shortened(shared + 1 + at),
            None => last_key.to_vec(),
        },
        _ => last_key.to_vec(),
    };
    (key, Stamp::OLDEST)
}

/// The fixed-size end of a table. Readers start here and find everything else through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The file's own number, so that a file with the name of another one is detected.
    pub file: FileId,
    /// The top index block.
    pub top_index: BlockHandle,
    /// The properties block.
    pub properties: BlockHandle,
}

impl Footer {
    /// The encoding.
    pub fn encode(&self) -> [u8; FOOTER_BYTES] {
        let mut out = Vec::with_capacity(FOOTER_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&FORMAT_VERSION.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        let handles = [self.top_index.offset, self.top_index.len, self.properties.offset, self.properties.len];
        for number in [self.file.0].into_iter().chain(handles) {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let checksum = xxh3_64(&out);
        out.extend_from_slice(&checksum.to_le_bytes());
        out.try_into().expect("the fields of a footer fill it")
    }

    /// The file number in a footer that has not been checked.
    pub fn file_of(bytes: &[u8; FOOTER_BYTES]) -> FileId {
        FileId(u64::from_le_bytes(*bytes[16..].first_chunk().expect("the fields of a footer lie within it")))
    }

    /// Decodes the footer of table `file`, read from `offset` of `path`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is damaged or that of another file; [`Error::Unsupported`] for another format
    /// version.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], file: FileId, path: &Path, offset: u64) -> Result<Footer> {
        let number =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("the fields of a footer lie within it"));
        if !bytes.starts_with(MAGIC) {
            return Err(Error::corruption(path, offset, "the footer has no table magic"));
        }
        let version = number(8) as u32;
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            let supported = format!("this build reads versions {FORMAT_VERSION_MIN} to {FORMAT_VERSION}");
            let message = format!("it has table format version {version}, and {supported}");
            return Err(Error::Unsupported { path: path.to_owned(), message });
        }
        if !agrees(number(FOOTER_CHECKED_BYTES), xxh3_64(&bytes[..FOOTER_CHECKED_BYTES])) {
            return Err(Error::corruption(path, offset, "the checksum of the footer does not match"));
        }
        let footer = Footer {
            file: FileId(number(16)),
            top_index: BlockHandle { offset: number(24), len: number(32) },
            properties: BlockHandle { offset: number(40), len: number(48) },
        };
        if footer.file != file {
            let message = format!("the footer is that of file {}, not of file {}", footer.file.0, file.0);
            return Err(Error::corruption(path, offset, message));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::cursor::compare;
    use crate::base::{Kind, Seqno};
    use proptest::prelude::*;

    fn footer() -> Footer {
        Footer {
            file: FileId(7),
            top_index: BlockHandle { offset: 1000, len: 30 },
            properties: BlockHandle { offset: 1039, len: 50 },
        }
    }

    #[test]
    fn a_footer_with_any_flipped_byte_is_rejected() {
        let bytes = footer().encode();
        let decode = |bytes: &[u8; FOOTER_BYTES]| Footer::decode(bytes, FileId(7), Path::new("t"), 0);
        assert_eq!(decode(&bytes).unwrap(), footer());
        for at in 0..FOOTER_BYTES {
            let mut flipped = bytes;
            flipped[at] ^= 0x10;
            assert!(decode(&flipped).is_err(), "byte {at}");
        }
    }

    #[test]
    fn the_footer_of_another_table_is_corrupt_and_an_unknown_version_unsupported() {
        let mut bytes = footer().encode();
        let decode = |bytes: &[u8; FOOTER_BYTES], file| Footer::decode(bytes, FileId(file), Path::new("t"), 0);
        assert!(matches!(decode(&bytes, 8), Err(Error::Corruption { .. })));
        for version in [2, 5] {
            bytes[8] = version;
            assert!(matches!(decode(&bytes, 7), Err(Error::Unsupported { .. })));
        }
    }

    #[test]
    fn the_footer_of_the_previous_format_version_is_accepted() {
        let mut bytes = footer().encode();
        bytes[8] = 3;
        let checksum = xxh3_64(&bytes[..FOOTER_CHECKED_BYTES]);
        bytes[FOOTER_CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Footer::decode(&bytes, FileId(7), Path::new("t"), 0).unwrap(), footer());
    }

    #[test]
    fn a_sealed_block_is_valid_only_at_its_own_file_and_offset() {
        let mut out = b"other".to_vec();
        out.extend_from_slice(b"payload");
        seal_block(&mut out, 5, Compression::None, FileId(3), 77);
        assert_eq!(check_block(&out[5..], FileId(3), 77), Ok((Compression::None, 7)));
        assert!(check_block(&out[5..], FileId(3), 78).is_err());
        assert!(check_block(&out[5..], FileId(4), 77).is_err());
        assert!(check_block(&out[6..], FileId(3), 77).is_err());
        assert!(check_block(&[], FileId(3), 77).is_err());
        for at in 5..out.len() {
            out[at] ^= 1;
            assert!(check_block(&out[5..], FileId(3), 77).is_err());
            out[at] ^= 1;
        }
    }

    #[test]
    fn handles_round_trip() {
        let index = BlockHandle { offset: 1 << 40, len: 9000 };
        for filter in [None, Some(BlockHandle { offset: 5, len: 6 })] {
            let mut bytes = Vec::new();
            PartitionHandles { index, filter }.encode(&mut bytes);
            assert_eq!(PartitionHandles::decode(&bytes), Some(PartitionHandles { index, filter }));
            bytes.push(0);
            assert_eq!(PartitionHandles::decode(&bytes), None);
        }
        assert_eq!(BlockHandle { offset: u64::MAX, len: 1 }.end(), None);
    }

    #[test]
    fn separators_are_short() {
        let separate = |last: &[u8], next: &[u8]| separator(last, Stamp(9), next).0;
        assert_eq!(separate(b"abcdefgh", b"abzzz"), b"abd");
        assert_eq!(separate(b"abcdefgh", b"abd"), b"abce");
        assert_eq!(separate(b"abcdefgh", b"abdx"), b"abd");
        assert_eq!(separate(b"ab", b"abc"), b"ab");
        assert_eq!(separate(b"ab\xff\xff", b"ac"), b"ab\xff\xff");
        assert_eq!(separator(b"k", Stamp(9), b"k"), (b"k".to_vec(), Stamp(9)));
    }

    fn keys() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![0u8..3, 254u8..=255], 0..6)
    }

    proptest! {
        #[test]
        fn a_separator_lies_between_its_neighbours(
            left in keys(), right in keys(), left_seqno in 1u64..9, right_seqno in 1u64..9,
        ) {
            let mut ends = [
                (left, Stamp::new(Seqno(left_seqno), Kind::Put)),
                (right, Stamp::new(Seqno(right_seqno), Kind::Put)),
            ];
            ends.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
            let [(last, last_stamp), (next, next_stamp)] = ends;
            prop_assume!((&last, last_stamp) != (&next, next_stamp));
            let (key, stamp) = separator(&last, last_stamp, &next);
            prop_assert!(compare(&last, last_stamp, &key, stamp).is_le());
            prop_assert!(compare(&key, stamp, &next, next_stamp).is_lt());
            prop_assert!(key.len() <= last.len().max(1));
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let _ = PartitionHandles::decode(&bytes);
            let _ = check_block(&bytes, FileId(1), 0);
        }
    }
}
