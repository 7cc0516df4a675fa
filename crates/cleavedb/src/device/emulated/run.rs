//! A sorted run of an emulated device: an immutable file of values in the order of their keys, then the keys, which are in memory
//! while the device is open.
//!
//! The keys: for each its length (`u16`), the key, length of the value (`u32`; all ones for a delete) and CRC-32C of the value; then
//! the footer: length of the keys (`u64`), their count (`u64`), their CRC-32C, and `"ssd run1"`.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::timing::Timing;
use crate::base::{Error, Result};
use crate::device::block_side::Medium;
use crate::io::{Access, File, Storage, read_exact_at};

const MAGIC: &[u8; 8] = b"ssd run1";
const FOOTER_BYTES: usize = 28;
const DELETED: u32 = u32::MAX;
/// Values are written in parts of about this size.
const WRITE_BYTES: usize = 512 << 10;

/// A key, and where its value lies.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: Box<[u8]>,
    /// `None` for a delete.
    pub value: Option<ValueRange>,
}

/// Where a value lies.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueRange {
    offset: u64,
    pub len: u32,
    crc: u32,
}

/// A run.
pub(super) struct Run {
    pub number: u64,
    file: Arc<dyn File>,
    /// Sorted by key.
    pub entries: Vec<Entry>,
    /// Bytes of its file.
    pub bytes: u64,
    /// What no newer run covers; the tree keeps it up to date.
    pub live: Live,
}

/// Values, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Live {
    pub values: usize,
    pub bytes: u64,
}

impl Live {
    /// The values among these entries.
    pub fn of<'a>(entries: impl Iterator<Item = &'a Entry>) -> Live {
        let values = entries.filter_map(|entry| entry.value);
        values.fold(Live::default(), |live, value| Live {
            values: live.values + 1,
            bytes: live.bytes + u64::from(value.len),
        })
    }

    /// One of the values was covered.
    pub fn remove(&mut self, value: ValueRange) {
        self.values -= 1;
        self.bytes -= u64::from(value.len);
    }
}

impl Run {
    /// Writes pairs, which come in the order of their keys, into a new file, durably.
    pub fn write(
        storage: &dyn Storage,
        path: &Path,
        number: u64,
        timing: &Timing,
        pairs: impl Iterator<Item = Result<(Box<[u8]>, Option<Arc<[u8]>>)>>,
    ) -> Result<Run> {
        let file = storage.create(path, Access::Buffered)?;
        let (mut entries, mut pending, mut written) = (Vec::new(), Vec::new(), 0);
        for pair in pairs {
            let (key, value) = pair?;
            let value = value.map(|value| {
                let offset = written + pending.len() as u64;
                pending.extend_from_slice(&value);
                ValueRange { offset, len: value.len() as u32, crc: crc32c::crc32c(&value) }
            });
            entries.push(Entry { key, value });
            if pending.len() >= WRITE_BYTES {
                file.write_at(&pending, written)?;
                timing.write(pending.len() as u64);
                written += pending.len() as u64;
                pending.clear();
            }
        }
        let keys_start = pending.len();
        for Entry { key, value } in &entries {
            pending.extend((key.len() as u16).to_le_bytes());
            pending.extend_from_slice(key);
            pending.extend(value.map_or(DELETED, |value| value.len).to_le_bytes());
            pending.extend(value.map_or(0, |value| value.crc).to_le_bytes());
        }
        let crc = crc32c::crc32c(&pending[keys_start..]);
        let keys_len = (pending.len() - keys_start) as u64;
        pending.extend(keys_len.to_le_bytes());
        pending.extend((entries.len() as u64).to_le_bytes());
        pending.extend(crc.to_le_bytes());
        pending.extend(MAGIC);
        file.write_at(&pending, written)?;
        timing.write(pending.len() as u64);
        file.sync()?;
        let bytes = written + pending.len() as u64;
        let live = Live::of(entries.iter());
        Ok(Run { number, file, entries, bytes, live })
    }

    /// Opens a run.
    pub fn open(storage: &dyn Storage, path: &Path, number: u64) -> Result<Run> {
        let file = storage.open_read(path, Access::Buffered)?;
        let bytes = file.len()?;
        let damaged = |offset| Error::corruption(path, offset, "a run of an emulated device is damaged");
        let footer_start = bytes.checked_sub(FOOTER_BYTES as u64).ok_or_else(|| damaged(0))?;
        let mut footer = [0; FOOTER_BYTES];
        read_exact_at(&*file, &mut footer, footer_start)?;
        let number_at =
            |range: Range<usize>| footer[range].iter().rev().fold(0, |sum: u64, byte| sum << 8 | u64::from(*byte));
        let (keys_len, count, crc) = (number_at(0..8), number_at(8..16), number_at(16..20));
        let keys_start = footer_start.checked_sub(keys_len).ok_or_else(|| damaged(footer_start))?;
        if footer[20..] != MAGIC[..] {
            return Err(damaged(footer_start));
        }
        let mut keys = vec![0; keys_len as usize];
        read_exact_at(&*file, &mut keys, keys_start)?;
        if u64::from(crc32c::crc32c(&keys)) != crc {
            return Err(damaged(keys_start));
        }
        let (mut entries, mut rest, mut offset) = (Vec::new(), &keys[..], 0);
        while let Some((entry, after)) = entry_of(rest, offset) {
            offset += entry.value.map_or(0, |value| u64::from(value.len));
            entries.push(entry);
            rest = after;
        }
        match rest.is_empty() && entries.len() as u64 == count && offset == keys_start {
            true => {
                let live = Live::of(entries.iter());
                Ok(Run { number, file, entries, bytes, live })
            }
            false => Err(damaged(keys_start)),
        }
    }

    /// The entry of a key.
    pub fn find(&self, key: &[u8]) -> Option<&Entry> {
        let (first, last) = (self.entries.first()?, self.entries.last()?);
        if !(&*first.key..=&*last.key).contains(&key) {
            return None;
        }
        let at = self.entries.binary_search_by(|entry| (*entry.key).cmp(key)).ok()?;
        Some(&self.entries[at])
    }

    /// The entries of a range of keys.
    pub fn within(&self, from: &[u8], to: &[u8]) -> &[Entry] {
        let start = self.entries.partition_point(|entry| *entry.key < *from);
        let end = self.entries.partition_point(|entry| *entry.key < *to);
        &self.entries[start..end.max(start)]
    }

    /// Reads a value. The caller accounts for the time that the medium takes.
    pub fn read(&self, value: ValueRange) -> Result<Vec<u8>> {
        let mut bytes = vec![0; value.len as usize];
        read_exact_at(&*self.file, &mut bytes, value.offset)?;
        match crc32c::crc32c(&bytes) == value.crc {
            true => Ok(bytes),
            false => Err(Error::corruption(self.file.path(), value.offset, "a value on an emulated device is damaged")),
        }
    }
}

fn entry_of(bytes: &[u8], offset: u64) -> Option<(Entry, &[u8])> {
    let (key_len, rest) = bytes.split_first_chunk::<2>()?;
    let (key, rest) = rest.split_at_checked(usize::from(u16::from_le_bytes(*key_len)))?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (crc, rest) = rest.split_first_chunk::<4>()?;
    let [len, crc] = [len, crc].map(|number| u32::from_le_bytes(*number));
    let value = (len != DELETED).then_some(ValueRange { offset, len, crc });
    Some((Entry { key: key.into(), value }, rest))
}
