//! Frames: a commit group appends one frame to the log. The checksum of a frame header is checked before its length is
//! used, and is salted with the log's id and the frame's offset, so that stale bytes of another log, of another offset
//! or of an earlier pass over the ring are never taken for a frame. Diagram: `docs/formats/log.md`.
//!
//! Written by the log writer, read by the log reader.

use super::checksum::agrees;
use crate::base::{FileId, Seqno, limits};

/// Length of a frame header.
pub const HEADER_BYTES: usize = 36;
/// Length of the log header, which fills one block; the first frame follows it.
pub const LOG_HEADER_BYTES: usize = limits::BLOCK_IO_BYTES;
/// Version of the log format.
pub const LOG_VERSION: u32 = 2;

/// The first bytes of a log.
pub const LOG_MAGIC: [u8; 8] = *b"CleaveLg";

/// The content of a frame. Do not renumber.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Records, back to back.
    Records = 1,
    /// Zeros that fill up the last block before a sync, so that a synced block is never written again.
    Padding = 2,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// What the body contains.
    pub kind: FrameKind,
    /// Length of the body, in bytes.
    pub body_len: u32,
    /// Number of records in the body.
    pub count: u32,
    /// Sequence number of the first record; those of the others follow without a gap.
    pub first_seqno: Seqno,
    /// All records up to this one were durable when the frame was written.
    pub sync_point: Seqno,
    /// CRC32C over the checksums of the records, in order ([`BodyChecksum`]).
    pub body_crc: u32,
}

impl FrameHeader {
    /// The encoding, for a frame at `offset` of log `file`.
    pub fn encode(&self, file: FileId, offset: u64) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[4..8].copy_from_slice(&self.body_len.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.first_seqno.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sync_point.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.count.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.body_crc.to_le_bytes());
        bytes[32] = self.kind as u8;
        let crc = salted_crc(&bytes, file, offset);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Decodes a header; `None` if the bytes are not the header of a frame at `offset` of log `file`.
    pub fn decode(bytes: &[u8], file: FileId, offset: u64) -> Option<FrameHeader> {
        let bytes = bytes.first_chunk::<HEADER_BYTES>()?;
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let long = |at: usize| word(at) as u64 | (word(at + 4) as u64) << 32;
        if !agrees(word(0), salted_crc(bytes, file, offset)) {
            return None;
        }
        let kind = match bytes[32] {
            1 => FrameKind::Records,
            2 => FrameKind::Padding,
            _ => return None,
        };
        let (first, sync) = (long(8), long(16));
        let in_range = first <= limits::SEQNO_MAX && sync <= limits::SEQNO_MAX && bytes[33..] == [0; 3];
        in_range.then_some(FrameHeader {
            kind,
            body_len: word(4),
            count: word(24),
            first_seqno: Seqno(first),
            sync_point: Seqno(sync),
            body_crc: word(28),
        })
    }

    /// Length of the frame, header included.
    pub fn frame_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.body_len as u64
    }
}

fn salted_crc(header: &[u8; HEADER_BYTES], file: FileId, offset: u64) -> u32 {
    let crc = crc32c::crc32c(&header[4..]);
    let crc = crc32c::crc32c_append(crc, &file.0.to_le_bytes());
    crc32c::crc32c_append(crc, &offset.to_le_bytes())
}

/// The combined checksum of the records of a frame. It ties exactly these records to the header, and costs four bytes
/// per record instead of a second pass over the values.
#[derive(Debug, Default, Clone, Copy)]
pub struct BodyChecksum(u32);

impl BodyChecksum {
    /// Adds the checksum of the next record.
    pub fn add(&mut self, record_crc: u32) {
        self.0 = crc32c::crc32c_append(self.0, &record_crc.to_le_bytes());
    }

    /// The combined checksum.
    pub fn get(self) -> u32 {
        self.0
    }
}

/// Encodes the first block of a log: magic, version, id, checksum.
pub fn encode_log_header(file: FileId) -> [u8; LOG_HEADER_BYTES] {
    let mut block = [0; LOG_HEADER_BYTES];
    block[..8].copy_from_slice(&LOG_MAGIC);
    block[8..12].copy_from_slice(&LOG_VERSION.to_le_bytes());
    block[12..20].copy_from_slice(&file.0.to_le_bytes());
    let crc = crc32c::crc32c(&block[..20]);
    block[20..24].copy_from_slice(&crc.to_le_bytes());
    block
}

/// The decoded first block of a file that should be a log.
#[derive(Debug, PartialEq, Eq)]
pub enum LogHeader {
    /// A log of this version with this id.
    Log(FileId),
    /// A log of another version.
    OtherVersion(u32),
    /// Not a log, or a damaged one.
    Invalid,
}

/// Decodes the first block of a log.
pub fn decode_log_header(block: &[u8]) -> LogHeader {
    let Some(block) = block.first_chunk::<LOG_HEADER_BYTES>() else {
        return LogHeader::Invalid;
    };
    let crc = crc32c::crc32c(&block[..20]);
    let rest_is_zero = block[24..].iter().all(|&byte| byte == 0);
    if block[..8] != LOG_MAGIC || !agrees(&block[20..24], &crc.to_le_bytes()) || !rest_is_zero {
        return LogHeader::Invalid;
    }
    let version = u32::from_le_bytes([block[8], block[9], block[10], block[11]]);
    if version != LOG_VERSION {
        return LogHeader::OtherVersion(version);
    }
    let mut id = [0; 8];
    id.copy_from_slice(&block[12..20]);
    LogHeader::Log(FileId(u64::from_le_bytes(id)))
}

/// Length of the padding frame (header included) from `offset` to a block border; 0 if `offset` is at one.
pub fn padding_bytes(offset: u64) -> u64 {
    let block = limits::BLOCK_IO_BYTES as u64;
    match offset % block {
        0 => 0,
        used if block - used >= HEADER_BYTES as u64 => block - used,
        used => 2 * block - used,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> FrameHeader {
        FrameHeader {
            kind: FrameKind::Records,
            body_len: 1000,
            count: 3,
            first_seqno: Seqno(77),
            sync_point: Seqno(70),
            body_crc: 0xdead_beef,
        }
    }

    #[test]
    fn a_frame_header_decodes_only_at_its_own_log_and_offset() {
        let bytes = header().encode(FileId(9), 4096);
        assert_eq!(FrameHeader::decode(&bytes, FileId(9), 4096), Some(header()));
        assert_eq!(FrameHeader::decode(&bytes, FileId(10), 4096), None);
        assert_eq!(FrameHeader::decode(&bytes, FileId(9), 8192), None);
        assert_eq!(FrameHeader::decode(&[0; HEADER_BYTES], FileId(0), 0), None);
        for bit in 0..HEADER_BYTES * 8 {
            let mut bad = bytes;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(FrameHeader::decode(&bad, FileId(9), 4096), None, "bit {bit}");
        }
    }

    #[test]
    fn padding_ends_at_a_block_border_and_has_room_for_a_header() {
        for offset in 1..3 * 4096u64 {
            let padding = padding_bytes(offset);
            assert_eq!((offset + padding) % 4096, 0);
            assert!(padding == 0 || padding >= HEADER_BYTES as u64);
        }
    }

    #[test]
    fn a_log_header_round_trips_and_damage_is_detected() {
        let block = encode_log_header(FileId(5));
        assert_eq!(decode_log_header(&block), LogHeader::Log(FileId(5)));
        assert_eq!(decode_log_header(&block[..100]), LogHeader::Invalid);
        let mut damaged = block;
        damaged[4000] = 1;
        assert_eq!(decode_log_header(&damaged), LogHeader::Invalid);
    }
}
