//! The bytes of an index file: a checkpoint of the indexes of all hash keyspaces. Diagram: `docs/formats/index.md`.
//!
//! Written by the job that saves indexes; read at open, so that only newer logs have to be read.

use super::checksum::agrees;
use super::file_header::FileFormat;
use crate::base::varint::{put, put_bytes, take, take_bytes};
use crate::base::{FileId, KeyspaceId, limits};

/// The first bytes of an index file.
pub const MAGIC: [u8; 8] = *b"cleavehi";

/// The header.
pub const FORMAT: FileFormat = FileFormat { magic: MAGIC, version: 1, oldest: 1, name: "index file" };

/// Length and checksum before the content of a block.
pub const BLOCK_HEADER_BYTES: usize = 8;
/// A block ends with the entry with which it reaches this many bytes.
pub const BLOCK_BYTES: usize = 64 << 10;
/// No block is longer: one entry can be a long key with many places.
pub const BLOCK_BYTES_MAX: usize = 1 << 20;
/// An entry has at most this many places; older ones of its key are in blocks of their own before it.
pub const PLACES_MAX: usize = 1 << 14;
/// Kind, file number, offset and length, as varints.
const PLACE_BYTES_MAX: usize = 1 + 8 + 10 + 5;
const _: () = assert!(BLOCK_BYTES + limits::KEY_BYTES_MAX + 32 + PLACES_MAX * PLACE_BYTES_MAX <= BLOCK_BYTES_MAX);

// Do not renumber.
const ENTRIES: u64 = 1;
const END: u64 = 2;
const OLDER: u64 = 3;

/// Where a record is, and its kind by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SavedPlace {
    /// 0 for a put, 1 for a delete, 2 for an operand.
    pub kind: u8,
    /// The log.
    pub file: FileId,
    /// Offset of the record, in bytes.
    pub offset: u64,
    /// Length of the record; of a delete, the log that it was first written to.
    pub len: u32,
}

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedKey<'a> {
    /// Its keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: &'a [u8],
    /// What the newest record is merged with, oldest first.
    pub older: Vec<SavedPlace>,
    /// The newest record.
    pub newest: SavedPlace,
}

/// A decoded block.
#[derive(Debug, PartialEq, Eq)]
pub enum Block<'a> {
    /// Entries, which [`take_key`] takes one by one.
    Entries(&'a [u8]),
    /// Places of the first key of the next entries, before those that it has there; [`take_place`] takes them one by one.
    Older(&'a [u8]),
    /// Nothing follows; so many keys came before.
    End(u64),
}

/// Collects the entries of a block.
#[derive(Debug, Default)]
pub struct BlockWriter {
    content: Vec<u8>,
}

impl BlockWriter {
    /// Adds a key with its places, oldest first. Appends blocks that are large enough to `out`.
    pub fn add(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        mut places: impl ExactSizeIterator<Item = SavedPlace>,
        out: &mut Vec<u8>,
    ) {
        if places.len() > PLACES_MAX {
            self.finish(out);
        }
        while places.len() > PLACES_MAX {
            put(&mut self.content, OLDER);
            places.by_ref().take(PLACES_MAX).for_each(|place| put_place(&mut self.content, place));
            self.finish(out);
        }
        if self.content.is_empty() {
            put(&mut self.content, ENTRIES);
        }
        put(&mut self.content, keyspace.0.into());
        put_bytes(&mut self.content, key);
        put(&mut self.content, places.len() as u64);
        places.for_each(|place| put_place(&mut self.content, place));
        if self.content.len() >= BLOCK_BYTES {
            self.finish(out);
        }
    }

    /// Appends the block to `out`, if it has entries.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.content.is_empty() {
            append_block(&self.content, out);
            self.content.clear();
        }
    }
}

/// Appends the block that ends a file of `keys` keys.
pub fn append_end(keys: u64, out: &mut Vec<u8>) {
    let mut content = Vec::new();
    put(&mut content, END);
    put(&mut content, keys);
    append_block(&content, out);
}

fn put_place(content: &mut Vec<u8>, place: SavedPlace) {
    let SavedPlace { kind, file, offset, len } = place;
    [kind.into(), file.0, offset, len.into()].into_iter().for_each(|number| put(content, number));
}

fn append_block(content: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(content.len() as u32).to_le_bytes());
    out.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
    out.extend_from_slice(content);
}

/// The length of the content behind a block's header; `None` if no block has it.
pub fn content_len(header: [u8; BLOCK_HEADER_BYTES]) -> Option<usize> {
    let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
    (1..=BLOCK_BYTES_MAX).contains(&len).then_some(len)
}

/// Decodes a block: its header, and the content behind it.
pub fn decode_block(header: [u8; BLOCK_HEADER_BYTES], content: &[u8]) -> Result<Block<'_>, &'static str> {
    let crc = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    if !agrees(crc, crc32c::crc32c(content)) {
        return Err("a block does not match its checksum");
    }
    let mut rest = content;
    match take(&mut rest) {
        Some(ENTRIES) => Ok(Block::Entries(rest)),
        Some(OLDER) => Ok(Block::Older(rest)),
        Some(END) => take(&mut rest).filter(|_| rest.is_empty()).map(Block::End).ok_or("the last block is malformed"),
        _ => Err("a block is of an unknown kind"),
    }
}

/// Takes a key off the front of the entries of a block; `None` if they are malformed.
pub fn take_key<'a>(entries: &mut &'a [u8]) -> Option<SavedKey<'a>> {
    let keyspace = KeyspaceId(u32::try_from(take(entries)?).ok()?);
    let key = take_bytes(entries)?;
    limits::check_key(key.len()).ok()?;
    let count = take(entries)?;
    let mut older = Vec::new();
    for _ in 1..count {
        older.push(take_place(entries)?);
    }
    Some(SavedKey { keyspace, key, older, newest: take_place(entries)? })
}

/// Takes a place off the front of a block; `None` if it is malformed.
pub fn take_place(entries: &mut &[u8]) -> Option<SavedPlace> {
    let kind = u8::try_from(take(entries)?).ok().filter(|kind| *kind <= 2)?;
    let file = FileId(take(entries)?);
    let offset = take(entries)?;
    let len = u32::try_from(take(entries)?).ok()?;
    (file.0 <= limits::FILE_ID_MAX).then_some(SavedPlace { kind, file, offset, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(number: u64) -> SavedPlace {
        SavedPlace { kind: (number % 3) as u8, file: FileId(number), offset: number << 33, len: number as u32 * 7 }
    }

    #[test]
    fn keys_survive_a_block() {
        let (mut writer, mut out) = (BlockWriter::default(), Vec::new());
        writer.finish(&mut out);
        assert!(out.is_empty());
        let keys: Vec<(Vec<u8>, u64)> = (1..40).map(|number| (vec![number as u8; number * 3], number as u64)).collect();
        for (key, number) in &keys {
            let places: Vec<SavedPlace> = (0..number % 4 + 1).map(|more| place(number + more)).collect();
            writer.add(KeyspaceId(9), key, places.into_iter(), &mut out);
        }
        assert!(out.is_empty());
        writer.finish(&mut out);
        let (header, content) = out.split_first_chunk().unwrap();
        assert_eq!(content_len(*header), Some(content.len()));
        let Ok(Block::Entries(mut entries)) = decode_block(*header, content) else { panic!("no entries") };
        for (key, number) in &keys {
            let found = take_key(&mut entries).unwrap();
            assert_eq!((found.keyspace, found.key, found.older.len() as u64), (KeyspaceId(9), &key[..], number % 4));
            assert_eq!(found.newest, place(number + number % 4));
        }
        assert!(entries.is_empty());
    }

    #[test]
    fn no_block_is_too_long_for_a_reader_however_many_places_a_key_has() {
        let (mut writer, mut out) = (BlockWriter::default(), Vec::new());
        let place = SavedPlace { kind: 2, file: FileId(limits::FILE_ID_MAX), offset: u64::MAX, len: u32::MAX };
        let key = vec![7; limits::KEY_BYTES_MAX];
        let places = |count: usize| std::iter::repeat_n(place, count);
        // Nearly a full block before it.
        writer.add(KeyspaceId(1), &key[..BLOCK_BYTES - 100], places(1), &mut out);
        writer.add(KeyspaceId(u32::MAX), &key, places(PLACES_MAX), &mut out);
        writer.add(KeyspaceId(2), &key, places(3 * PLACES_MAX + 5), &mut out);
        writer.finish(&mut out);
        let (mut rest, mut counts) = (&out[..], Vec::new());
        while let Some((header, behind)) = rest.split_first_chunk() {
            let (content, behind) = behind.split_at(content_len(*header).unwrap());
            match decode_block(*header, content).unwrap() {
                Block::Entries(mut entries) => {
                    while !entries.is_empty() {
                        counts.push(take_key(&mut entries).unwrap().older.len() + 1);
                    }
                }
                Block::Older(mut older) => counts.push(std::iter::from_fn(|| take_place(&mut older)).count()),
                Block::End(_) => panic!("no end was written"),
            }
            rest = behind;
        }
        assert_eq!(counts, [1, PLACES_MAX, PLACES_MAX, PLACES_MAX, PLACES_MAX, 5]);
    }

    #[test]
    fn a_damaged_block_and_the_end_are_told_from_entries() {
        let mut out = Vec::new();
        append_end(12, &mut out);
        let (header, content) = out.split_first_chunk().unwrap();
        assert_eq!(decode_block(*header, content), Ok(Block::End(12)));
        for bit in 0..content.len() * 8 {
            let mut damaged = content.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_block(*header, &damaged).is_err());
        }
        assert_eq!(content_len([0; 8]), None);
        assert_eq!(content_len([255; 8]), None);
    }
}
