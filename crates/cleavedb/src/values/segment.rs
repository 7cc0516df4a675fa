//! A segment: records that were moved here, one behind the other, behind a header. Diagram: `docs/formats/values.md`.
//!
//! Written once by an evacuation, synced, and never changed. A record is the same bytes as in the log it was born in.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, FileId, Result};
use crate::format::file_header::{FILE_HEADER_BYTES, Kind};
use crate::format::record::Record;
use crate::io::{Access, File, Storage, read_exact_at};

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"clvSEGMT";
const HEADER: Kind = Kind { magic: MAGIC, version: 1, name: "segment" };
/// Before the first record.
pub const HEADER_BYTES: usize = FILE_HEADER_BYTES;
/// Written, and read, in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// While a reader works on a piece, so much more of the file is fetched.
const AHEAD_BYTES: u64 = 2 << 20;

/// A segment being written.
pub struct SegmentBuilder {
    file: Arc<dyn File>,
    pending: Vec<u8>,
    /// Where the first pending byte goes.
    offset: u64,
}

impl SegmentBuilder {
    /// Creates the file of segment `id` at `path`, which must not exist.
    pub fn create(storage: &dyn Storage, path: &Path, id: FileId) -> Result<SegmentBuilder> {
        let file = storage.create(path, Access::Buffered)?;
        Ok(SegmentBuilder { file, pending: HEADER.encode(id).to_vec(), offset: 0 })
    }

    /// Appends the bytes of a record; returns where they lie.
    pub fn add(&mut self, record: &[u8]) -> Result<u64> {
        let at = self.offset + self.pending.len() as u64;
        self.pending.extend_from_slice(record);
        if self.pending.len() >= PIECE_BYTES {
            self.write()?;
            self.pending.shrink_to(2 * PIECE_BYTES);
        }
        Ok(at)
    }

    fn write(&mut self) -> Result<()> {
        self.file.write_at(&self.pending, self.offset)?;
        self.file.write_back(self.offset, self.pending.len() as u64);
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Syncs the file and says how long it is; the caller syncs the directory.
    pub fn finish(mut self) -> Result<u64> {
        self.write()?;
        self.file.sync()?;
        Ok(self.offset)
    }
}

/// Hears of a record: where it lies, what it is, and its bytes.
pub type See<'a> = dyn FnMut(u64, &Record<'_>, &[u8]) -> Result<()> + 'a;

/// Goes through all records of segment `id`, `end` bytes long: where each lies, what it is, and its bytes.
///
/// # Errors
/// [`Error::Corruption`] where no whole record lies; what `see` returns.
pub fn for_each_record(file: &dyn File, id: FileId, end: u64, see: &mut See<'_>) -> Result<()> {
    let mut found = [0; HEADER_BYTES];
    read_exact_at(file, &mut found, 0)?;
    HEADER.check(file.path(), id, &found)?;
    let mut window: Vec<u8> = Vec::new();
    let (mut offset, mut read_to) = (HEADER_BYTES as u64, HEADER_BYTES as u64);
    while offset < end {
        // What is whole in the window comes first; then more is read, and what was cut is looked at again.
        let mut rest = &window[..];
        let mut why = "the segment ends within a record";
        loop {
            let before = rest;
            match Record::take(&mut rest) {
                Ok(record) => {
                    let bytes = &before[..before.len() - rest.len()];
                    see(offset, &record, bytes)?;
                    offset += bytes.len() as u64;
                }
                Err(reason) => {
                    why = if reason.ends_with("is cut short") { why } else { reason };
                    break;
                }
            }
        }
        let left = rest.len();
        let more = usize::try_from(end - read_to).unwrap_or(usize::MAX).min(PIECE_BYTES.max(left));
        if offset < end && more == 0 {
            return Err(Error::corruption(file.path(), offset, why));
        }
        window.drain(..window.len() - left);
        window.resize(left + more, 0);
        read_exact_at(file, &mut window[left..], read_to)?;
        read_to += more as u64;
        file.will_go_on(read_to, AHEAD_BYTES.min(end - read_to));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyspaceId, Kind, Seqno};
    use crate::format::record::Operation;
    use crate::io::SimDisk;

    fn record(number: u64, value_len: usize) -> Vec<u8> {
        let (key, value) = (number.to_be_bytes(), vec![number as u8; value_len]);
        let operation = Operation { kind: Kind::Put, keyspace: KeyspaceId(1), key: &key, value: &value };
        let seqno = Seqno(number);
        [&operation.header(seqno, operation.crc(seqno)), &key[..], &value[..]].concat()
    }

    fn segment(disk: &SimDisk, id: FileId, values: &[usize]) -> (Vec<u64>, u64) {
        let mut builder = SegmentBuilder::create(disk, Path::new("s"), id).unwrap();
        let mut places = Vec::new();
        for (number, len) in values.iter().enumerate() {
            places.push(builder.add(&record(number as u64, *len)).unwrap());
        }
        (places, builder.finish().unwrap())
    }

    #[test]
    fn records_come_back_in_order_with_their_places_across_pieces() {
        let disk = SimDisk::new();
        let values = [300, 700_000, 0, 900_000, 3_000_000, 17, 1_500_000];
        let (places, end) = segment(&disk, FileId(4), &values);
        let file = disk.open_read(Path::new("s"), Access::Buffered).unwrap();
        let mut seen = Vec::new();
        for_each_record(&*file, FileId(4), end, &mut |at, found, bytes| {
            assert_eq!(bytes, record(found.seqno.0, values[found.seqno.0 as usize]));
            seen.push(at);
            Ok(())
        })
        .unwrap();
        assert_eq!(seen, places);
    }

    #[test]
    fn damage_anywhere_is_an_error_that_names_a_place() {
        let disk = SimDisk::new();
        let (_, end) = segment(&disk, FileId(4), &[30, 40]);
        let good = disk.read_file(Path::new("s")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            disk.write_file(Path::new("s"), &bad);
            let file = disk.open_read(Path::new("s"), Access::Buffered).unwrap();
            let result = for_each_record(&*file, FileId(4), end, &mut |_, _, _| Ok(()));
            assert!(matches!(result, Err(Error::Corruption { .. } | Error::Unsupported { .. })), "byte {at}");
        }
        disk.write_file(Path::new("s"), &good);
        let file = disk.open_read(Path::new("s"), Access::Buffered).unwrap();
        assert!(for_each_record(&*file, FileId(5), end, &mut |_, _, _| Ok(())).is_err());
        assert!(for_each_record(&*file, FileId(4), end - 1, &mut |_, _, _| Ok(())).is_err());
    }
}
