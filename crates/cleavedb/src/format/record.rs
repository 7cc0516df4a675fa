//! One record as logs and segments store it. It has its own CRC, so that it can be read by address without the frame
//! around it. In a segment its value may be compressed: the kind byte has the algorithm, and the checksum covers the
//! stored bytes. Diagram: `docs/formats/log.md`.
//!
//! Written by the commit path and by value GC; read by recovery, flush and `get`.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;

use super::checksum::agrees;
use super::compression::{self, Compression};
use crate::base::{Address, Bytes, Error, Gauge, KeyspaceId, Kind, Seqno, Slice, limits, split_key};

/// Length of the header, which precedes the key.
pub const HEADER_BYTES: usize = 23;
/// The byte behind the checksum has the kind in its lower four bits and the compression in its upper four.
const KIND_BITS: u32 = 4;

const _: () = assert!((Kind::DeleteRange as u8) < 1 << KIND_BITS && (Compression::Zstd as u8) < 1 << (8 - KIND_BITS));

/// One operation before it is written to the log: what the user passed, without a sequence number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<'a> {
    /// Delete, Put, Delta or DeleteRange: a record never contains an address.
    pub kind: Kind,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The user key. For a range, its first key; empty if the range starts at the first key of the keyspace.
    pub key: &'a [u8],
    /// The value or operand; empty for a delete. For a range, the first key after it; empty if the range ends with the
    /// keyspace.
    pub value: &'a [u8],
}

impl Operation<'_> {
    /// Length of the record.
    pub fn record_bytes(&self) -> usize {
        HEADER_BYTES + self.key.len() + self.value.len()
    }

    /// The checksum of the record: over everything behind the checksum field.
    pub fn crc(&self, seqno: Seqno) -> u32 {
        let crc = crc32c::crc32c(&self.header(seqno, 0)[4..]);
        let crc = crc32c::crc32c_append(crc, self.key);
        crc32c::crc32c_append(crc, self.value)
    }

    /// The header, with the checksum that [`crc`](Operation::crc) returned.
    pub fn header(&self, seqno: Seqno, crc: u32) -> [u8; HEADER_BYTES] {
        debug_assert!(!self.kind.is_address());
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&crc.to_le_bytes());
        header[4] = self.kind as u8;
        header[5..13].copy_from_slice(&seqno.0.to_le_bytes());
        header[13..17].copy_from_slice(&self.keyspace.0.to_le_bytes());
        header[17..19].copy_from_slice(&(self.key.len() as u16).to_le_bytes());
        header[19..23].copy_from_slice(&(self.value.len() as u32).to_le_bytes());
        header
    }
}

/// What the header of a record says. The checksum covers it, and takes the whole record to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordHead {
    /// The sequence number.
    pub seqno: Seqno,
    /// What the record does.
    pub kind: Kind,
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// Length of the key, which follows the header, in bytes.
    pub key_len: usize,
    /// Length of the whole record, in bytes.
    pub record_bytes: usize,
}

impl RecordHead {
    /// Reads the header that `bytes` begin with; `None` if they are none.
    pub fn parse(bytes: &[u8]) -> Option<RecordHead> {
        let seqno = u64::from_le_bytes(*bytes.get(5..13)?.first_chunk()?);
        let keyspace = u32::from_le_bytes(*bytes.get(13..17)?.first_chunk()?);
        let key_len = u16::from_le_bytes(*bytes.get(17..19)?.first_chunk()?).into();
        let value_len = u32::from_le_bytes(*bytes.get(19..HEADER_BYTES)?.first_chunk()?);
        let kind = Kind::from_u8(bytes[4] & ((1 << KIND_BITS) - 1)).filter(|kind| !kind.is_address())?;
        let record_bytes = HEADER_BYTES + key_len + value_len as usize;
        Some(RecordHead { seqno: Seqno(seqno), kind, keyspace: KeyspaceId(keyspace), key_len, record_bytes })
    }
}

/// The value of the record in `bytes`, which must be version `seqno` of `full_key`, or any version of it. Its memory is
/// counted in `gauge`: all of `bytes`, or the decompressed value.
pub fn value_of(
    bytes: Vec<u8>,
    address: Address,
    full_key: &[u8],
    seqno: Option<Seqno>,
    gauge: &Arc<Gauge>,
) -> Result<Slice, ValueError> {
    let record = record_of(&bytes, address, full_key, seqno)?;
    let len = address.value_len as usize;
    let (bytes, start) = match record.value(len)? {
        Cow::Borrowed(value) => {
            let start = bytes.len() - value.len();
            (bytes, start)
        }
        Cow::Owned(value) if value.len() == len => (value, 0),
        Cow::Owned(_) => return Err("another record lies at the address".into()),
    };
    Ok(Slice::shared(Bytes::counted(bytes, gauge.clone()), start, len))
}

/// Decodes `bytes`, which must be version `seqno` of `full_key`, or any version.
fn record_of<'a>(
    bytes: &'a [u8],
    address: Address,
    full_key: &[u8],
    seqno: Option<Seqno>,
) -> Result<Record<'a>, &'static str> {
    let mut rest = bytes;
    let record = Record::take_stored(&mut rest)?;
    let same_key = split_key(full_key) == Some((record.operation.keyspace, record.operation.key));
    let same_len =
        record.compression != Compression::None || record.operation.value.len() == address.value_len as usize;
    if !rest.is_empty() || !same_key || !same_len {
        return Err("another record lies at the address");
    }
    if seqno.is_some_and(|seqno| record.seqno != seqno) {
        return Err("another version lies at the address");
    }
    Ok(record)
}

/// Checks that `bytes` are a record of a log, and version `seqno` of `full_key`.
pub fn check_record(bytes: &[u8], address: Address, full_key: &[u8], seqno: Seqno) -> Result<(), &'static str> {
    match record_of(bytes, address, full_key, Some(seqno))?.compression {
        Compression::None => Ok(()),
        _ => Err("a record of a log is compressed"),
    }
}

/// A decoded record whose checksum matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// The sequence number.
    pub seqno: Seqno,
    /// The operation; its value is as stored, possibly compressed.
    pub operation: Operation<'a>,
    /// The compression of the value.
    pub compression: Compression,
    /// The checksum, which the body checksum of the frame covers.
    pub crc: u32,
}

impl<'a> Record<'a> {
    /// Takes one record of a log off the front of `bytes`; the error describes the damage. Records of logs are not
    /// compressed.
    pub fn take(bytes: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        let mut rest = *bytes;
        let record = Record::take_stored(&mut rest)?;
        if record.compression != Compression::None {
            return Err("a record of a log is compressed");
        }
        *bytes = rest;
        Ok(record)
    }

    /// Takes one record of a log or a segment off the front of `bytes`; the error describes the damage.
    pub fn take_stored(bytes: &mut &'a [u8]) -> Result<Record<'a>, &'static str> {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>().ok_or("record header is cut short")?;
        let key_len = u16::from_le_bytes([header[17], header[18]]) as usize;
        let value_len = u32::from_le_bytes([header[19], header[20], header[21], header[22]]) as usize;
        if rest.len() < key_len + value_len {
            return Err("record body is cut short");
        }
        let crc = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let body = &bytes[4..HEADER_BYTES + key_len + value_len];
        if !agrees(crc, crc32c::crc32c(body)) {
            return Err("record checksum does not match");
        }
        let kind = Kind::from_u8(header[4] & ((1 << KIND_BITS) - 1)).filter(|kind| !kind.is_address());
        let kind = kind.ok_or("record kind is unknown")?;
        let compression = Compression::from_u8(header[4] >> KIND_BITS)
            .filter(|compression| *compression == Compression::None || kind == Kind::Put)
            .ok_or("record compression is unknown")?;
        let fits = match kind {
            Kind::DeleteRange => value_len <= limits::KEY_BYTES_MAX,
            _ => key_len >= limits::KEY_BYTES_MIN && value_len < limits::VALUE_BYTES_LIMIT,
        };
        if !fits {
            return Err("record exceeds the size limits");
        }
        let seqno = u64::from_le_bytes([
            header[5], header[6], header[7], header[8], header[9], header[10], header[11], header[12],
        ]);
        if seqno > limits::SEQNO_MAX {
            return Err("record sequence number is out of range");
        }
        let keyspace = KeyspaceId(u32::from_le_bytes([header[13], header[14], header[15], header[16]]));
        let (key, value) = rest[..key_len + value_len].split_at(key_len);
        if kind == Kind::DeleteRange && !value.is_empty() && key >= value {
            return Err("record deletes an empty range");
        }
        *bytes = &rest[key_len + value_len..];
        Ok(Record { seqno: Seqno(seqno), operation: Operation { kind, keyspace, key, value }, compression, crc })
    }

    /// Replaces `out` by the same record with a compressed value, which `compress` appends; false if `compress` returns
    /// false.
    pub fn compressed(
        &self,
        compression: Compression,
        out: &mut Vec<u8>,
        compress: impl FnOnce(&[u8], &mut Vec<u8>) -> bool,
    ) -> bool {
        let operation = &self.operation;
        out.clear();
        out.extend_from_slice(&operation.header(self.seqno, 0));
        out.extend_from_slice(operation.key);
        if !compress(operation.value, out) {
            return false;
        }
        let value_len = out.len() - HEADER_BYTES - operation.key.len();
        out[4] |= (compression as u8) << KIND_BITS;
        out[19..HEADER_BYTES].copy_from_slice(&(value_len as u32).to_le_bytes());
        let crc = crc32c::crc32c(&out[4..]);
        out[..4].copy_from_slice(&crc.to_le_bytes());
        true
    }

    /// The decompressed value, of at most `len_max` bytes.
    pub fn value(&self, len_max: usize) -> Result<Cow<'a, [u8]>, ValueError> {
        match self.compression {
            Compression::None => Ok(Cow::Borrowed(self.operation.value)),
            compression if !compression.is_available() => Err(ValueError::Unavailable),
            compression => Ok(Cow::Owned(compression::decompress(compression, self.operation.value, len_max)?)),
        }
    }
}

/// Why the value of a record cannot be returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueError {
    /// The bytes are damaged, or are another record.
    Damaged(&'static str),
    /// This build lacks the compression of the value.
    Unavailable,
}

impl From<&'static str> for ValueError {
    fn from(reason: &'static str) -> ValueError {
        ValueError::Damaged(reason)
    }
}

impl ValueError {
    /// The error for a record at `offset` of `path`.
    #[cold]
    pub fn at(self, path: &Path, offset: u64) -> Error {
        match self {
            ValueError::Damaged(reason) => Error::corruption(path, offset, reason),
            ValueError::Unavailable => compression::unavailable(path),
        }
    }
}

/// Computes the checksum of a record that is read in pieces.
#[derive(Default)]
pub struct RecordChecksum {
    stored: Vec<u8>,
    crc: u32,
}

impl RecordChecksum {
    /// Adds the next piece.
    pub fn add(&mut self, bytes: &[u8]) {
        let missing = size_of::<u32>().saturating_sub(self.stored.len()).min(bytes.len());
        let (stored, body) = bytes.split_at(missing);
        self.stored.extend_from_slice(stored);
        self.crc = crc32c::crc32c_append(self.crc, body);
    }

    /// True if the pieces are a record with the right checksum.
    pub fn agrees(&self) -> bool {
        let stored = self.stored.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
        stored.is_some_and(|stored| agrees(stored, self.crc))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{FileId, full_key};

    fn encoded() -> Vec<u8> {
        let operation = Operation { kind: Kind::Put, keyspace: KeyspaceId(3), key: b"key", value: b"value" };
        let mut bytes = operation.header(Seqno(42), operation.crc(Seqno(42))).to_vec();
        bytes.extend_from_slice(b"keyvalue");
        assert_eq!(bytes.len(), operation.record_bytes());
        bytes
    }

    #[test]
    fn a_record_can_be_checked_in_pieces_of_any_size() {
        let mut bytes = encoded();
        let check = |bytes: &[u8], size| {
            let mut check = RecordChecksum::default();
            bytes.chunks(size).for_each(|piece| check.add(piece));
            check.agrees()
        };
        assert!((1..40).all(|size| check(&bytes, size)));
        bytes[9] ^= 1;
        assert!((1..40).all(|size| !check(&bytes, size)));
        assert!(!check(&[], 1) && !check(&bytes[..3], 1));
    }

    #[test]
    fn a_record_round_trips() {
        let bytes = encoded();
        let mut rest = &bytes[..];
        let record = Record::take(&mut rest).unwrap();
        assert!(rest.is_empty());
        assert_eq!(record.seqno, Seqno(42));
        assert_eq!((record.operation.key, record.operation.value), (&b"key"[..], &b"value"[..]));
    }

    #[test]
    fn the_value_of_another_key_or_keyspace_is_never_returned() {
        let bytes = encoded();
        let address = Address { file: FileId(1), offset: 0, len: bytes.len() as u32, value_len: 5 };
        let read = |keyspace, key: &[u8]| {
            value_of(bytes.clone(), address, &full_key(KeyspaceId(keyspace), key), None, &Arc::default())
        };
        assert_eq!(&read(3, b"key").unwrap()[..], b"value");
        for (keyspace, key) in [(3, &b"kez"[..]), (3, b"ke"), (4, b"key")] {
            assert_eq!(read(keyspace, key).unwrap_err(), ValueError::Damaged("another record lies at the address"));
        }
    }

    #[test]
    fn the_head_of_a_record_is_what_the_record_says() {
        let (bytes, record) = (encoded(), Record::take(&mut &encoded()[..]).map(|record| record.seqno));
        let head = RecordHead::parse(&bytes).unwrap();
        assert_eq!((Ok(head.seqno), head.kind, head.keyspace), (record, Kind::Put, KeyspaceId(3)));
        assert_eq!((head.key_len, head.record_bytes), (3, bytes.len()));
        assert!((0..HEADER_BYTES).all(|cut| RecordHead::parse(&bytes[..cut]).is_none()));
        for kind in [Kind::PutAt as u8, 0x0f] {
            let mut bad = bytes.clone();
            bad[4] = kind;
            assert_eq!(RecordHead::parse(&bad), None);
        }
    }

    #[test]
    fn a_range_may_be_open_at_either_end_but_not_empty() {
        let read_back = |key: &[u8], value: &[u8]| {
            let operation = Operation { kind: Kind::DeleteRange, keyspace: KeyspaceId(3), key, value };
            let mut bytes = operation.header(Seqno(42), operation.crc(Seqno(42))).to_vec();
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            Record::take(&mut &bytes[..]).is_ok_and(|record| record.operation == operation)
        };
        assert!(read_back(b"", b"") && read_back(b"a", b"") && read_back(b"", b"b") && read_back(b"a", b"b"));
        assert!(!read_back(b"b", b"b") && !read_back(b"c", b"b"));
        let longest = vec![1; limits::KEY_BYTES_MAX + 1];
        assert!(read_back(b"", &longest[1..]) && !read_back(b"", &longest));
    }

    /// The record of [`encoded`] with the compressed value `stored`, and its address if the decompressed value has
    /// `value_len` bytes.
    fn compressed(compression: Compression, stored: &[u8], value_len: u32) -> (Vec<u8>, Address) {
        let (bytes, mut out) = (encoded(), Vec::new());
        let record = Record::take(&mut &bytes[..]).unwrap();
        assert!(record.compressed(compression, &mut out, |_, out| {
            out.extend_from_slice(stored);
            true
        }));
        let address = Address { file: FileId(1), offset: 0, len: out.len() as u32, value_len };
        (out, address)
    }

    fn read(bytes: &[u8], address: Address) -> Result<Slice, ValueError> {
        value_of(bytes.to_vec(), address, &full_key(KeyspaceId(3), b"key"), Some(Seqno(42)), &Arc::default())
    }

    /// A thousand sevens compressed with LZ4: a literal, a match of length 994, five literals.
    const LZ4_OF_SEVENS: [u8; 15] = [0xe8, 0x07, 0x1f, 7, 1, 0, 255, 255, 255, 210, 0x50, 7, 7, 7, 7];

    #[test]
    fn a_compressed_value_round_trips_and_any_flipped_bit_is_detected() {
        let stored = [&LZ4_OF_SEVENS[..], &[7]].concat();
        let (bytes, address) = compressed(Compression::Lz4, &stored, 1000);
        assert_eq!(&read(&bytes, address).unwrap()[..], [7; 1000]);
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(read(&bad, address), Err(ValueError::Damaged(_))), "bit {bit}");
        }
    }

    #[test]
    fn malformed_compressed_values_are_rejected_even_if_their_checksums_match() {
        let damaged = |stored: &[u8], value_len| {
            let (bytes, address) = compressed(Compression::Lz4, stored, value_len);
            matches!(read(&bytes, address), Err(ValueError::Damaged(_)))
        };
        // Another length than in the address; a size beyond the highest ratio; no size; invalid LZ4.
        let stored = [&LZ4_OF_SEVENS[..], &[7]].concat();
        assert!(!damaged(&stored, 1000) && damaged(&stored, 999) && damaged(&stored, 1001));
        let mut huge = Vec::new();
        crate::base::varint::put(&mut huge, (1 << 30) - 1);
        huge.extend_from_slice(&stored[2..]);
        assert!(damaged(&huge, (1 << 30) - 1));
        assert!(damaged(&[], 0) && damaged(&[0xff; 3], 1000));
        assert!(damaged(&[&[0xe8, 0x07][..], &[0x1f; 100]].concat(), 1000));
        // A kind that is never compressed, and an unknown algorithm.
        for kind in [0x11, 0x14, 0x32, 0xf2] {
            let (mut bytes, address) = compressed(Compression::Lz4, &stored, 1000);
            bytes[4] = kind;
            let crc = crc32c::crc32c(&bytes[4..]);
            bytes[..4].copy_from_slice(&crc.to_le_bytes());
            assert!(matches!(read(&bytes, address), Err(ValueError::Damaged(_))), "{kind:x}");
        }
    }

    #[cfg(not(feature = "zstd"))]
    #[test]
    fn a_value_that_this_build_cannot_decompress_is_unsupported_and_not_damaged() {
        let (bytes, address) = compressed(Compression::Zstd, b"\x05whatever", 5);
        let error = read(&bytes, address).unwrap_err().at(Path::new("7.segment"), 28);
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }

    #[test]
    fn any_flipped_bit_or_truncation_is_detected() {
        let bytes = encoded();
        for index in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[index / 8] ^= 1 << (index % 8);
            assert!(Record::take(&mut &bad[..]).is_err(), "bit {index}");
        }
        for cut in 0..bytes.len() {
            assert!(Record::take(&mut &bytes[..cut]).is_err());
        }
    }
}
