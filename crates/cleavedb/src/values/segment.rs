//! A segment: records that were moved here. It is made of *extents*, one for each group of keys, so that each can be emptied,
//! and give its space back, by itself. Diagram: `docs/formats/values.md`.
//!
//! Written once, synced, and never changed but for the holes that extents leave behind. A record is the same bytes as in the
//! log it was born in, unless its value was compressed on the way: then there is a hole behind its extent, which has as much
//! room as if nothing were.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, FileId, Result};
use crate::format::checksum::agrees;
use crate::format::file_header::{FILE_HEADER_BYTES, FileFormat};
use crate::format::record::Record;
use crate::format::values::EXTENT_ALIGN;
use crate::io::{Access, File, Storage, read_exact_at};

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"clvSEGMT";
const HEADER: FileFormat = FileFormat { magic: MAGIC, version: 3, oldest: 2, name: "segment" };
/// The first bytes of an extent, before its number, its length and a checksum of all these.
const EXTENT_MAGIC: [u8; 8] = *b"clvEXTNT";
/// Before the first record of an extent.
pub const EXTENT_HEADER_BYTES: usize = 28;
/// Read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// While a reader works on a piece, so much more of the file is fetched.
const AHEAD_BYTES: u64 = 2 << 20;

/// A segment being written: extents of which it is known when they begin how long they are at most, in turn as records come.
pub struct SegmentBuilder {
    id: FileId,
    file: Arc<dyn File>,
    extents: Vec<Growing>,
    /// An extent is written once so many bytes of it are there, or all.
    pending_bytes: usize,
    /// Where the next extent may begin.
    end: u64,
}

/// An extent being written.
struct Growing {
    id: FileId,
    start: u64,
    pending: Vec<u8>,
    /// Where the first pending byte goes.
    offset: u64,
    /// So many bytes of records are to come, by the lengths that they were announced with.
    left: u64,
    is_whole: bool,
}

/// Where an extent is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentPlace {
    /// The number of the segment.
    pub segment: FileId,
    /// Where the extent begins, in bytes.
    pub start: u64,
    /// Where it ends, in bytes.
    pub end: u64,
}

impl SegmentBuilder {
    /// Creates the file of segment `id` at `path`, which must not exist. Of each extent so many bytes are held until they are
    /// written together.
    pub fn create(storage: &dyn Storage, path: &Path, id: FileId, pending_bytes: usize) -> Result<SegmentBuilder> {
        let file = storage.create(path, Access::Buffered)?;
        let header = HEADER.encode(id);
        file.write_at(&header, 0)?;
        Ok(SegmentBuilder { id, file, extents: Vec::new(), pending_bytes, end: header.len() as u64 })
    }

    /// Begins extent `id`, whose records have so many bytes or, once they are compressed, fewer. Extents are known by the
    /// order in which they were begun.
    pub fn begin_extent(&mut self, id: FileId, records_bytes: u64) {
        let start = self.end.next_multiple_of(EXTENT_ALIGN);
        self.end = start + EXTENT_HEADER_BYTES as u64 + records_bytes;
        // The header comes when it is known how long the extent is.
        let pending = vec![0; EXTENT_HEADER_BYTES];
        self.extents.push(Growing { id, start, pending, offset: start, left: records_bytes, is_whole: false });
    }

    /// Appends bytes of records, which were announced with as many bytes or more, to an extent; returns where they lie.
    pub fn add(&mut self, extent: usize, records: &[u8], announced: u64) -> Result<u64> {
        let growing = &mut self.extents[extent];
        assert!(
            records.len() as u64 <= announced && announced <= growing.left,
            "an extent has room for what comes to it"
        );
        let at = growing.end();
        growing.pending.extend_from_slice(records);
        growing.left -= announced;
        if growing.left == 0 {
            growing.finish(&*self.file)?;
        } else if growing.pending.len() >= self.pending_bytes {
            growing.write(&*self.file)?;
        }
        Ok(at)
    }

    /// How long an extent is so far, in bytes.
    pub fn extent_bytes(&self, extent: usize) -> u64 {
        self.extents[extent].end() - self.extents[extent].start
    }

    /// Syncs the file and says where the extents are; the caller syncs the directory.
    pub fn finish(mut self) -> Result<Vec<ExtentPlace>> {
        for growing in self.extents.iter_mut().filter(|growing| !growing.is_whole) {
            growing.finish(&*self.file)?;
        }
        self.file.sync()?;
        let place = |growing: &Growing| ExtentPlace { segment: self.id, start: growing.start, end: growing.end() };
        Ok(self.extents.iter().map(place).collect())
    }
}

impl Growing {
    fn end(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }

    fn write(&mut self, file: &dyn File) -> Result<()> {
        file.write_at(&self.pending, self.offset)?;
        file.write_back(self.offset, self.pending.len() as u64);
        self.offset += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// All records are there.
    fn finish(&mut self, file: &dyn File) -> Result<()> {
        let header = extent_header(self.id, self.end() - self.start);
        match self.offset == self.start {
            true => self.pending[..EXTENT_HEADER_BYTES].copy_from_slice(&header),
            false => file.write_at(&header, self.start)?,
        }
        self.write(file)?;
        self.pending = Vec::new();
        self.is_whole = true;
        Ok(())
    }
}

impl ExtentPlace {
    /// The space that it takes.
    pub fn space(&self) -> u64 {
        self.end.next_multiple_of(EXTENT_ALIGN) - self.start
    }
}

fn extent_header(id: FileId, len: u64) -> [u8; EXTENT_HEADER_BYTES] {
    let mut header = [0; EXTENT_HEADER_BYTES];
    header[..8].copy_from_slice(&EXTENT_MAGIC);
    header[8..16].copy_from_slice(&id.0.to_le_bytes());
    header[16..24].copy_from_slice(&len.to_le_bytes());
    let crc = crc32c::crc32c(&header[..24]);
    header[24..].copy_from_slice(&crc.to_le_bytes());
    header
}

/// An extent as it says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Its number.
    pub id: FileId,
    /// Where it begins, in bytes.
    pub start: u64,
    /// Where it ends, in bytes.
    pub end: u64,
}

impl Extent {
    /// What begins at `start` in a file of `len` bytes; `None` if the space there was given back.
    ///
    /// # Errors
    /// [`Error::Corruption`] if it is damaged.
    pub fn read(file: &dyn File, start: u64, len: u64) -> Result<Option<Extent>> {
        let damaged = |reason: &str| Error::corruption(file.path(), start, reason);
        let mut header = [0; EXTENT_HEADER_BYTES];
        read_exact_at(file, &mut header, start)?;
        if header == [0; EXTENT_HEADER_BYTES] {
            return Ok(None);
        }
        let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let stored = u32::from_le_bytes([header[24], header[25], header[26], header[27]]);
        if header[..8] != EXTENT_MAGIC || !agrees(stored, crc32c::crc32c(&header[..24])) {
            return Err(damaged("the header of an extent is damaged"));
        }
        let (id, extent_len) = (FileId(number(8)), number(16));
        match start.checked_add(extent_len) {
            Some(end) if end <= len && extent_len >= EXTENT_HEADER_BYTES as u64 => Ok(Some(Extent { id, start, end })),
            _ => Err(damaged("an extent is longer than its segment")),
        }
    }

    /// Goes through all records: where each lies, what it is, and its bytes.
    ///
    /// # Errors
    /// [`Error::Corruption`] where no whole record lies; what `see` returns.
    pub fn for_each_record(&self, file: &dyn File, see: &mut VisitRecord<'_>) -> Result<()> {
        let mut window: Vec<u8> = Vec::new();
        let mut offset = self.start + EXTENT_HEADER_BYTES as u64;
        let mut read_to = offset;
        while offset < self.end {
            // What is whole in the window comes first; then more is read, and what was cut is looked at again.
            let mut rest = &window[..];
            let mut why = "the extent ends within a record";
            loop {
                let before = rest;
                match Record::take_stored(&mut rest) {
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
            let more = usize::try_from(self.end - read_to).unwrap_or(usize::MAX).min(PIECE_BYTES.max(left));
            if offset < self.end && more == 0 {
                return Err(Error::corruption(file.path(), offset, why));
            }
            window.drain(..window.len() - left);
            window.resize(left + more, 0);
            read_exact_at(file, &mut window[left..], read_to)?;
            read_to += more as u64;
            file.will_go_on(read_to, AHEAD_BYTES.min(self.end - read_to));
        }
        Ok(())
    }
}

/// Checks that there are zeros from `offset` to the next multiple of [`EXTENT_ALIGN`] or the end of the file: what no checksum
/// covers.
///
/// # Errors
/// [`Error::Corruption`] if there is something else.
pub fn check_padding(file: &dyn File, offset: u64) -> Result<()> {
    let mut padding = vec![0; (offset.next_multiple_of(EXTENT_ALIGN) - offset) as usize];
    let read = file.read_at(&mut padding, offset)?;
    match padding[..read].iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => Err(Error::corruption(file.path(), offset + at as u64, "the space between extents is not empty")),
    }
}

/// Hears of a record: where it lies, what it is, and its bytes.
pub type VisitRecord<'a> = dyn FnMut(u64, &Record<'_>, &[u8]) -> Result<()> + 'a;

/// Checks the header of segment `id`.
///
/// # Errors
/// [`Error::Corruption`] if it is damaged or another's, [`Error::Unsupported`] for another version.
pub fn check_header(file: &dyn File, id: FileId) -> Result<()> {
    let mut found = [0; FILE_HEADER_BYTES];
    read_exact_at(file, &mut found, 0)?;
    HEADER.check(file.path(), id, &found)?;
    check_padding(file, FILE_HEADER_BYTES as u64)
}

/// All extents of segment `id` that still have their space, in order.
///
/// # Errors
/// As [`check_header`] and [`Extent::read`].
pub fn extents(file: &dyn File, id: FileId, see: &mut dyn FnMut(Extent) -> Result<()>) -> Result<()> {
    check_header(file, id)?;
    let len = file.len()?;
    let mut start = EXTENT_ALIGN;
    while start.saturating_add(EXTENT_HEADER_BYTES as u64) <= len {
        start = match Extent::read(file, start, len)? {
            Some(extent) => {
                check_padding(file, extent.end)?;
                see(extent)?;
                extent.end.next_multiple_of(EXTENT_ALIGN)
            }
            None => start + EXTENT_ALIGN,
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{KeyspaceId, Kind, Seqno};
    use crate::format::record::Operation;
    use crate::io::{Punched, SimDisk};

    fn record(number: u64, value_len: usize) -> Vec<u8> {
        let (key, value) = (number.to_be_bytes(), vec![number as u8; value_len]);
        let operation = Operation { kind: Kind::Put, keyspace: KeyspaceId(1), key: &key, value: &value };
        let seqno = Seqno(number);
        [&operation.header(seqno, operation.crc(seqno)), &key[..], &value[..]].concat()
    }

    /// Segment 4 with extents 5, 6, .. of records with values of these lengths; where the records lie.
    fn segment(disk: &SimDisk, extents: &[&[usize]]) -> Vec<u64> {
        let mut builder = SegmentBuilder::create(disk, Path::new("s"), FileId(4), 4096).unwrap();
        let (mut places, mut number) = (Vec::new(), 0);
        for (index, values) in extents.iter().enumerate() {
            let records: Vec<Vec<u8>> = values.iter().map(|len| (number += 1, record(number, *len)).1).collect();
            let bytes = records.iter().map(|record| record.len() as u64).sum();
            builder.begin_extent(FileId(5 + index as u64), bytes);
            places.extend(records.iter().map(|record| builder.add(index, record, record.len() as u64).unwrap()));
        }
        let extents = builder.finish().unwrap();
        assert!(extents.iter().all(|place| place.segment == FileId(4) && place.start.is_multiple_of(EXTENT_ALIGN)));
        places
    }

    /// The places of all records, and the extents.
    fn read(disk: &SimDisk) -> Result<(Vec<u64>, Vec<Extent>)> {
        let file = disk.open_read(Path::new("s"), Access::Buffered)?;
        let (mut places, mut found) = (Vec::new(), Vec::new());
        extents(&*file, FileId(4), &mut |extent| {
            found.push(extent);
            extent.for_each_record(&*file, &mut |at, seen, bytes| {
                assert_eq!(bytes, record(seen.seqno.0, seen.operation.value.len()));
                places.push(at);
                Ok(())
            })
        })?;
        Ok((places, found))
    }

    #[test]
    fn records_come_back_in_order_with_their_places_across_pieces_and_extents() {
        let disk = SimDisk::new();
        let places = segment(&disk, &[&[300, 700_000, 0], &[], &[900_000, 3_000_000, 17, 1_500_000]]);
        let (found, extents) = read(&disk).unwrap();
        assert_eq!(found, places);
        assert_eq!(extents.iter().map(|extent| extent.id.0).collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn a_segment_of_before_is_read_and_one_of_after_is_unsupported() {
        let disk = SimDisk::new();
        let places = segment(&disk, &[&[300, 20], &[9]]);
        let with_version = |version| {
            let mut bytes = disk.read_file(Path::new("s")).unwrap();
            bytes[..FILE_HEADER_BYTES].copy_from_slice(&FileFormat { version, ..HEADER }.encode(FileId(4)));
            disk.write_file(Path::new("s"), &bytes);
            read(&disk)
        };
        assert_eq!(with_version(2).unwrap().0, places);
        assert!([1, 4].into_iter().all(|version| matches!(with_version(version), Err(Error::Unsupported { .. }))));
    }

    #[test]
    fn extents_that_become_shorter_than_announced_leave_holes_behind_them() {
        let disk = SimDisk::new();
        let mut builder = SegmentBuilder::create(&disk, Path::new("s"), FileId(4), 4096).unwrap();
        (0..3).for_each(|index| builder.begin_extent(FileId(5 + index), 100 * 2000));
        // In turn, as groups by hash are written.
        for number in 0..300 {
            builder.add(number % 3, &record(number as u64, 500), 2000).unwrap();
        }
        let places = builder.finish().unwrap();
        let (found, extents) = read(&disk).unwrap();
        assert_eq!(found.len(), 300);
        let said = places.iter().map(|place| (place.start, place.end));
        assert!(said.eq(extents.iter().map(|extent| (extent.start, extent.end))));
        assert!(places.iter().all(|place| place.space() <= 100 * (500 + 31) + 2 * EXTENT_ALIGN));
        assert!(disk.used() <= 4 * (100 * (500 + 31) + 2 * EXTENT_ALIGN), "{} B", disk.used());
    }

    #[test]
    fn an_extent_that_gave_its_space_back_is_passed_over() {
        let disk = SimDisk::new();
        let places = segment(&disk, &[&[30, 9000], &[5000], &[77]]);
        let second = read(&disk).unwrap().1[1];
        let len = second.end.next_multiple_of(EXTENT_ALIGN) - second.start;
        assert_eq!(disk.punch(Path::new("s"), second.start, len).unwrap(), Punched::Done);
        assert_eq!(read(&disk).unwrap().0, [places[0], places[1], places[3]]);
    }

    #[test]
    fn damage_anywhere_is_an_error_that_names_a_place() {
        let disk = SimDisk::new();
        segment(&disk, &[&[30, 40], &[50]]);
        let good = disk.read_file(Path::new("s")).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 4;
            disk.write_file(Path::new("s"), &bad);
            assert!(matches!(read(&disk), Err(Error::Corruption { .. } | Error::Unsupported { .. })), "byte {at}");
        }
        disk.write_file(Path::new("s"), &good);
        let file = disk.open_read(Path::new("s"), Access::Buffered).unwrap();
        assert!(check_header(&*file, FileId(5)).is_err());
        let mut cut = read(&disk).unwrap().1[1];
        cut.end -= 1;
        assert!(cut.for_each_record(&*file, &mut |_, _, _| Ok(())).is_err());
    }
}
