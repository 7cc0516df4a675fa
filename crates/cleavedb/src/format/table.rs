//! What is in a table file besides sorted blocks: block trailers, handles, separators, properties and the footer.
//! `docs/formats/table.md` has the diagram of the whole file.
//!
//! Called by the table builder and reader in `levels/`.

use std::path::Path;

use super::checksum::{agrees, placed_checksum, xxh3_64};
use super::compression::Compression;
use super::meta::Cleared;
use super::values::References;
use crate::base::limits::{KEY_BYTES_MAX, KEYSPACE_PREFIX_BYTES, VALUE_BYTES_LIMIT};
use crate::base::tombstones::Fragment;
use crate::base::{Address, Error, FileId, Kind, Result, Seqno, Stamp, varint};

/// The version this code writes.
pub const FORMAT_VERSION: u32 = 4;
/// The oldest version that it reads: one without packed blocks.
const FORMAT_VERSION_MIN: u32 = 3;
/// After each block: how it is compressed, and its checksum.
pub const TRAILER_BYTES: usize = 9;
/// The last bytes of every table.
pub const FOOTER_BYTES: usize = 64;
/// No block is larger than this before compression: one entry of the largest size, with room for its overhead.
pub const BLOCK_BYTES_MAX: usize = VALUE_BYTES_LIMIT + KEYSPACE_PREFIX_BYTES + KEY_BYTES_MAX + 64;

/// The first bytes of the footer.
pub const MAGIC: &[u8; 8] = b"clvTABLE";
const FOOTER_CHECKED_BYTES: usize = FOOTER_BYTES - 8;
const PROPERTIES_VERSION: u64 = 2;

/// Where a block lies: the offset and length of its payload; the trailer follows it.
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

    /// Where the trailer ends; `None` if that is no offset.
    pub fn end(self) -> Option<u64> {
        self.offset.checked_add(self.len)?.checked_add(TRAILER_BYTES as u64)
    }
}

/// What the top index says of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionHandles {
    /// The index of the partition's data blocks.
    pub index: BlockHandle,
    /// The filter over the keys in them; a length of 0 means that there is none.
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

/// Appends the trailer to the block whose payload is `out[start..]` and which will lie at `offset` of `file`.
pub fn seal_block(out: &mut Vec<u8>, start: usize, compression: Compression, file: FileId, offset: u64) {
    out.push(compression as u8);
    let checksum = placed_checksum(&out[start..], file, offset);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// Checks a block as it was read, with its trailer; returns its compression and the length of its payload.
///
/// # Errors
/// What is wrong; the caller knows the path.
pub fn check_block(sealed: &[u8], file: FileId, offset: u64) -> Result<(Compression, usize), &'static str> {
    let (checked, checksum) = sealed.split_last_chunk::<8>().ok_or("a block is shorter than its trailer")?;
    if !agrees(u64::from_le_bytes(*checksum), placed_checksum(checked, file, offset)) {
        return Err("the checksum of a block does not match");
    }
    let (&compression, payload) = checked.split_last().ok_or("a block is shorter than its trailer")?;
    let compression = Compression::from_u8(compression).ok_or("a block is compressed in an unknown way")?;
    Ok((compression, payload.len()))
}

/// A short (key, stamp) at or after the last version of one block and before the first of the next.
///
/// If both blocks hold versions of one key, only the last version itself will do.
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
        // One byte more than the last key's, if that stays below the next key.
        (Some(&last), Some(&next)) if last + 1 < next || next_key.len() > shared + 1 => shortened(shared),
        // Otherwise behind the byte that differs, where anything above the last key's byte will do.
        (Some(_), Some(_)) => match last_key[shared + 1..].iter().position(|&byte| byte != 0xff) {
            Some(at) => shortened(shared + 1 + at),
            None => last_key.to_vec(),
        },
        _ => last_key.to_vec(),
    };
    (key, Stamp::OLDEST)
}

/// What a table holds, counted while it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Properties {
    /// Versions.
    pub entries: u64,
    /// Versions that are deletes.
    pub deletes: u64,
    /// Versions that are deltas.
    pub deltas: u64,
    /// Versions whose payload is an address.
    pub addresses: u64,
    /// Bytes of all full keys.
    pub key_bytes: u64,
    /// Bytes of all payloads.
    pub value_bytes: u64,
    /// The first full key.
    pub smallest: Vec<u8>,
    /// The first full key after all that it holds.
    pub end: Vec<u8>,
    /// The oldest version.
    pub seqno_min: Seqno,
    /// The newest version.
    pub seqno_max: Seqno,
    /// How data blocks were to be compressed at the end of the table.
    pub compression: Compression,
    /// The size at which data blocks were cut, in bytes.
    pub block_size: u64,
    /// Fragments of range tombstones.
    pub range_deletes: u64,
    /// The block that holds them, if there are any.
    pub range_block: Option<BlockHandle>,
    /// The widest ranges without a gap that they cover.
    pub cleared: Vec<Cleared>,
    /// What its addresses name.
    pub names: References,
    /// Bytes of the records that versions lead to of which the table holds a newer base: only snapshots keep them.
    pub bytes_hidden: u64,
    /// Bytes of the largest record that a version leads to.
    pub record_bytes_max: u64,
}

impl Properties {
    /// Those of a table without versions.
    pub fn new(compression: Compression, block_size: usize) -> Properties {
        Properties {
            entries: 0,
            deletes: 0,
            deltas: 0,
            addresses: 0,
            key_bytes: 0,
            value_bytes: 0,
            smallest: Vec::new(),
            end: Vec::new(),
            seqno_min: Seqno::MAX,
            seqno_max: Seqno::ZERO,
            compression,
            block_size: block_size as u64,
            range_deletes: 0,
            range_block: None,
            cleared: Vec::new(),
            names: References::default(),
            bytes_hidden: 0,
            record_bytes_max: 0,
        }
    }

    /// Counts one version, which a newer base of its key may hide; the keys are set apart from this.
    pub fn count(&mut self, key: &[u8], stamp: Stamp, value: &[u8], is_hidden: bool) {
        self.entries += 1;
        self.deletes += (stamp.kind() == Some(Kind::Delete)) as u64;
        self.deltas += stamp.kind().is_some_and(|kind| !kind.is_base()) as u64;
        if stamp.kind().is_some_and(Kind::is_address) {
            self.addresses += 1;
            // A damaged one names nothing; who reads it will say so.
            if let Some(address) = Address::decode(value) {
                let bytes = u64::from(address.len);
                self.names.count(address);
                self.bytes_hidden += if is_hidden { bytes } else { 0 };
                self.record_bytes_max = self.record_bytes_max.max(bytes);
            }
        }
        self.key_bytes += key.len() as u64;
        self.value_bytes += value.len() as u64;
        self.seqno_min = self.seqno_min.min(stamp.seqno());
        self.seqno_max = self.seqno_max.max(stamp.seqno());
    }

    /// Counts one fragment of range tombstones; the keys are set apart from this.
    pub fn count_range(&mut self, fragment: &Fragment) {
        self.range_deletes += 1;
        for seqno in &fragment.seqnos {
            self.seqno_min = self.seqno_min.min(*seqno);
            self.seqno_max = self.seqno_max.max(*seqno);
        }
    }

    /// From where to where the table reaches, once `smallest` is that of its versions: up to its last key, and over its
    /// range tombstones.
    pub fn set_ends(&mut self, last_key: Vec<u8>, ranges: &[Fragment]) {
        if self.entries > 0 {
            self.end = last_key;
            self.end.push(0);
        }
        if let (Some(first), Some(last)) = (ranges.first(), ranges.last()) {
            if self.entries == 0 || first.start < self.smallest {
                self.smallest.clone_from(&first.start);
            }
            if self.end < last.end {
                self.end.clone_from(&last.end);
            }
        }
    }

    /// The encoding: a version, then fields of tag, length and bytes. Tags are stored: do not renumber.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        varint::put(&mut out, PROPERTIES_VERSION);
        let numbers = [
            (1, self.entries),
            (2, self.deletes),
            (3, self.deltas),
            (4, self.addresses),
            (5, self.key_bytes),
            (6, self.value_bytes),
            (9, self.seqno_min.0),
            (10, self.seqno_max.0),
            (11, self.compression as u64),
            (12, self.block_size),
            (13, self.range_deletes),
            (18, self.bytes_hidden),
            (19, self.record_bytes_max),
        ];
        for (tag, number) in numbers {
            let mut field = Vec::new();
            varint::put(&mut field, number);
            varint::put(&mut out, tag);
            varint::put_bytes(&mut out, &field);
        }
        let mut range_block = Vec::new();
        self.range_block.iter().for_each(|handle| handle.encode(&mut range_block));
        let mut cleared = Vec::new();
        Cleared::encode_all(&self.cleared, &mut cleared);
        let mut names = Vec::new();
        self.names.encode(&mut names);
        for (tag, bytes) in [(7, &self.smallest), (14, &self.end), (15, &range_block), (16, &cleared), (17, &names)] {
            varint::put(&mut out, tag);
            varint::put_bytes(&mut out, bytes);
        }
        out
    }

    /// Decodes properties that fill `bytes` exactly; unknown tags are skipped.
    ///
    /// # Errors
    /// What is wrong; the caller knows the path.
    pub fn decode(mut bytes: &[u8]) -> Result<Properties, &'static str> {
        const CUT: &str = "the properties are cut short";
        if varint::take(&mut bytes).ok_or(CUT)? != PROPERTIES_VERSION {
            return Err("the properties have an unknown version");
        }
        let mut properties = Properties::new(Compression::None, 0);
        while !bytes.is_empty() {
            let tag = varint::take(&mut bytes).ok_or(CUT)?;
            let field = varint::take_bytes(&mut bytes).ok_or(CUT)?;
            let number = || varint::take(&mut &field[..]).ok_or(CUT);
            match tag {
                1 => properties.entries = number()?,
                2 => properties.deletes = number()?,
                3 => properties.deltas = number()?,
                4 => properties.addresses = number()?,
                5 => properties.key_bytes = number()?,
                6 => properties.value_bytes = number()?,
                7 => properties.smallest = field.to_vec(),
                9 => properties.seqno_min = Seqno(number()?),
                10 => properties.seqno_max = Seqno(number()?),
                11 => {
                    let stored = u8::try_from(number()?).ok().and_then(Compression::from_u8);
                    properties.compression = stored.ok_or("the properties name an unknown compression")?;
                }
                12 => properties.block_size = number()?,
                13 => properties.range_deletes = number()?,
                14 => properties.end = field.to_vec(),
                15 if field.is_empty() => properties.range_block = None,
                15 => properties.range_block = Some(BlockHandle::decode(field).ok_or(CUT)?),
                17 => properties.names = References::take(&mut &field[..]).ok_or(CUT)?,
                18 => properties.bytes_hidden = number()?,
                19 => properties.record_bytes_max = number()?,
                16 => properties.cleared = Cleared::take_all(&mut &field[..]).ok_or(CUT)?,
                _ => {}
            }
        }
        Ok(properties)
    }
}

/// The fixed end of a table, from which everything else is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Footer {
    /// The file's own number: a file under another's name is noticed.
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

    /// The number that these bytes give as the file's own, whatever else they say.
    pub fn file_of(bytes: &[u8; FOOTER_BYTES]) -> FileId {
        FileId(u64::from_le_bytes(*bytes[16..].first_chunk().expect("the fields of a footer lie within it")))
    }

    /// Decodes the footer of table `file`, which lies at `offset` of `path`.
    pub fn decode(bytes: &[u8; FOOTER_BYTES], file: FileId, path: &Path, offset: u64) -> Result<Footer> {
        let number =
            |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("the fields of a footer lie within it"));
        if !bytes.starts_with(MAGIC) {
            return Err(Error::corruption(path, offset, "this is not the end of a table"));
        }
        let version = number(8) as u32;
        if !(FORMAT_VERSION_MIN..=FORMAT_VERSION).contains(&version) {
            let reads = format!("this version reads formats {FORMAT_VERSION_MIN} to {FORMAT_VERSION}");
            let message = format!("it is a table of format {version}, {reads}");
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
            let message = format!("file {} was expected here, this is file {}", file.0, footer.file.0);
            return Err(Error::corruption(path, offset, message));
        }
        Ok(footer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::cursor::compare;
    use proptest::prelude::*;

    fn footer() -> Footer {
        Footer {
            file: FileId(7),
            top_index: BlockHandle { offset: 1000, len: 30 },
            properties: BlockHandle { offset: 1039, len: 50 },
        }
    }

    #[test]
    fn a_footer_with_any_flipped_byte_is_refused() {
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
    fn another_tables_footer_and_a_newer_format_are_told_apart() {
        let mut bytes = footer().encode();
        let decode = |bytes: &[u8; FOOTER_BYTES], file| Footer::decode(bytes, FileId(file), Path::new("t"), 0);
        assert!(matches!(decode(&bytes, 8), Err(Error::Corruption { .. })));
        for version in [2, 5] {
            bytes[8] = version;
            assert!(matches!(decode(&bytes, 7), Err(Error::Unsupported { .. })));
        }
    }

    #[test]
    fn tables_without_packed_blocks_are_still_read() {
        let mut bytes = footer().encode();
        bytes[8] = 3;
        let checksum = xxh3_64(&bytes[..FOOTER_CHECKED_BYTES]);
        bytes[FOOTER_CHECKED_BYTES..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Footer::decode(&bytes, FileId(7), Path::new("t"), 0).unwrap(), footer());
    }

    #[test]
    fn properties_round_trip_and_skip_unknown_tags() {
        let mut properties = Properties::new(Compression::Lz4, 4096);
        properties.count(b"0000a", Stamp::new(Seqno(5), Kind::Delete), b"", false);
        properties.count(b"0000b", Stamp::new(Seqno(9), Kind::DeltaAt), b"12345", false);
        (properties.bytes_hidden, properties.record_bytes_max) = (70, 40);
        properties.smallest = b"0000a".to_vec();
        properties.end = b"0000c".to_vec();
        let seqnos = vec![Seqno(12), Seqno(4)];
        properties.count_range(&Fragment { start: b"0000a".to_vec(), end: b"0000c".to_vec(), seqnos });
        properties.range_block = Some(BlockHandle { offset: 300, len: 40 });
        properties.cleared = vec![Cleared { start: b"0000a".to_vec(), end: b"0000c".to_vec(), seqno: Seqno(12) }];
        assert_eq!((properties.entries, properties.deletes, properties.deltas, properties.addresses), (2, 1, 1, 1));
        assert_eq!((properties.seqno_min, properties.seqno_max), (Seqno(4), Seqno(12)));
        let mut bytes = properties.encode();
        bytes.extend_from_slice(&[99, 2, 0, 0]);
        assert_eq!(Properties::decode(&bytes).unwrap(), properties);
        for cut in 0..bytes.len() {
            let _ = Properties::decode(&bytes[..cut]);
        }
        bytes[0] = 3;
        assert!(Properties::decode(&bytes).is_err());
    }

    #[test]
    fn a_sealed_block_is_bound_to_its_place() {
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
            let _ = Properties::decode(&bytes);
            let _ = PartitionHandles::decode(&bytes);
            let _ = check_block(&bytes, FileId(1), 0);
        }
    }
}
