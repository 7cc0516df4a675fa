//! The log of an emulated device: pairs in the order in which they were stored, until they are in a run. Each record is its CRC-32C,
//! the length of the key (`u16`), that of the value (`u32`; all ones for a delete), then both.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::io::{Access, File, Storage, read_exact_at};

const HEADER_BYTES: usize = 10;
/// In place of a length, for a delete.
const DELETED: u32 = u32::MAX;

/// Is passed keys and values, `None` for a delete.
type SeePair<'a> = dyn FnMut(&[u8], Option<&[u8]>) + 'a;

/// The log.
pub(super) struct PairLog {
    pub file: Arc<dyn File>,
    pub end: u64,
}

impl PairLog {
    /// Creates an empty log.
    pub fn create(storage: &dyn Storage, path: PathBuf) -> Result<PairLog> {
        Ok(PairLog { file: storage.create(&path, Access::Buffered)?, end: 0 })
    }

    /// Goes on with the log of an earlier opening, after its last whole record: passes on its pairs, and cuts off what follows them.
    pub fn reopen(storage: &dyn Storage, path: &Path, see: &mut SeePair<'_>) -> Result<PairLog> {
        let file = storage.open(path)?;
        let end = PairLog::replay(&*file, see)?;
        let log = PairLog { file, end };
        if log.file.len()? > end {
            log.cut()?;
        }
        Ok(log)
    }

    /// Removes what lies behind the last record. Durably, because a shorter record may come to lie in front of a part of it.
    fn cut(&self) -> Result<()> {
        self.file.truncate(self.end)?;
        self.file.sync()
    }

    /// Appends a record; returns its length. Nothing is changed if there is no room.
    pub fn append(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<u64> {
        let len = value.map_or(DELETED, |value| value.len() as u32);
        let mut record = vec![0; 4];
        record.extend((key.len() as u16).to_le_bytes());
        record.extend(len.to_le_bytes());
        record.extend(key);
        record.extend(value.unwrap_or_default());
        let crc = crc32c::crc32c(&record[4..]);
        record[..4].copy_from_slice(&crc.to_le_bytes());
        if let Err(error) = self.file.write_at(&record, self.end) {
            if matches!(error, Error::NoSpace { .. }) {
                self.cut().map_err(|error| error.lasting(self.file.path(), "truncate"))?;
            }
            return Err(error);
        }
        self.end += record.len() as u64;
        Ok(record.len() as u64)
    }

    /// Passes on the records of a log, up to the first one that is not whole: nothing after it was durable. Returns where that is.
    fn replay(file: &dyn File, see: &mut SeePair<'_>) -> Result<u64> {
        let mut bytes = vec![0; file.len()? as usize];
        read_exact_at(file, &mut bytes, 0)?;
        let mut rest = &bytes[..];
        while let Some((key, value, after)) = record_of(rest) {
            see(key, value);
            rest = after;
        }
        Ok((bytes.len() - rest.len()) as u64)
    }
}

/// Key, value, and what follows the record.
type Taken<'a> = (&'a [u8], Option<&'a [u8]>, &'a [u8]);

fn record_of(bytes: &[u8]) -> Option<Taken<'_>> {
    let (header, body) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let [c0, c1, c2, c3, k0, k1, v0, v1, v2, v3] = *header;
    let key_len = usize::from(u16::from_le_bytes([k0, k1]));
    let stored = u32::from_le_bytes([v0, v1, v2, v3]);
    let value_len = if stored == DELETED { 0 } else { stored as usize };
    let len = key_len.checked_add(value_len).filter(|len| *len <= body.len() && key_len > 0)?;
    if crc32c::crc32c(&bytes[4..HEADER_BYTES + len]) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return None;
    }
    let (key, rest) = body.split_at(key_len);
    let (value, rest) = rest.split_at(value_len);
    Some((key, (stored != DELETED).then_some(value), rest))
}
