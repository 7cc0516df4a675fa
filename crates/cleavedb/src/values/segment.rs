//! A segment: a file of records moved by garbage collection. It consists of *extents*, one for each group of keys, so
//! that each extent can be collected, and its space released, by itself. Diagram: `docs/formats/values.md`.
//!
//! A segment is written once, synced, and never changed except for the holes left by collected extents. A record has
//! the same bytes as in its log, unless its value was compressed when it was moved: then a hole follows the extent,
//! which was allotted its uncompressed size.

use std::path::Path;
use std::sync::Arc;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, FileId, Result};
use crate::format::checksum::agrees;
use crate::format::file_header::{FILE_HEADER_BYTES, FileFormat};
use crate::format::record::Record;
use crate::format::values::EXTENT_ALIGN;
use crate::io::append::{Appender, WriteBuffer};
use crate::io::{Access, File, Storage, read_exact_at};

/// The first bytes of a segment.
pub const MAGIC: [u8; 8] = *b"clvSEGMT";
const HEADER: FileFormat = FileFormat { magic: MAGIC, version: 3, oldest: 2, name: "segment" };
/// The first bytes of an extent, before its number, its length and a checksum of all these.
const EXTENT_MAGIC: [u8; 8] = *b"clvEXTNT";
/// Length of an extent's header, which precedes the first record.
pub const EXTENT_HEADER_BYTES: usize = 28;
/// Extents are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;
/// An extent whose length is not known when it begins has at most this many bytes of records.
const OPEN_EXTENT_BYTES_MAX: u64 = 1 << 40;
/// Bytes prefetched while a reader works on a piece.
const AHEAD_BYTES: u64 = 2 << 20;

/// A segment being written. The maximum length of each extent is given when it begins; records are added to the extents
/// in any order.
pub struct SegmentBuilder {
    id: FileId,
    file: Arc<dyn File>,
    buffer: WriteBuffer,
    extents: Vec<GrowingExtent>,
    /// An extent's pending bytes are written once there are this many, or the extent is complete.
    pending_bytes: usize,
    /// Offset of the next extent, before alignment.
    end: u64,
}

/// An extent being written.
struct GrowingExtent {
    id: FileId,
    start: u64,
    appender: Appender,
    /// The first block, once it was written: it is written again if its header must change.
    first: Vec<u8>,
    /// Bytes of records still to come, by their announced lengths.
    left: u64,
    is_whole: bool,
}

/// The location of an extent.
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
    /// Creates the file of segment `id` at `path`, which must not exist, for writes with `access`. Each extent buffers
    /// `pending_bytes`; extents that follow one another are written in pieces of `piece_bytes`.
    pub fn create(
        storage: &dyn Storage,
        path: &Path,
        id: FileId,
        access: Access,
        (pending_bytes, piece_bytes): (usize, usize),
    ) -> Result<SegmentBuilder> {
        let file = storage.create(path, access)?;
        let mut buffer = WriteBuffer::new(file.clone(), access, piece_bytes);
        let header = HEADER.encode(id);
        buffer.write(&header, 0)?;
        Ok(SegmentBuilder { id, file, buffer, extents: Vec::new(), pending_bytes, end: header.len() as u64 })
    }

    /// Begins extent `id`, whose records have `records_bytes` bytes, or fewer once compressed. Extents are numbered in
    /// the order in which they begin.
    pub fn begin_extent(&mut self, id: FileId, records_bytes: u64) {
        let start = self.end.next_multiple_of(EXTENT_ALIGN);
        self.end = start + EXTENT_HEADER_BYTES as u64 + records_bytes;
        // Written again if compression makes the extent shorter.
        let mut appender = Appender::new(start);
        appender.pending = extent_header(id, EXTENT_HEADER_BYTES as u64 + records_bytes).to_vec();
        let (left, first) = (records_bytes, Vec::new());
        self.extents.push(GrowingExtent { id, start, appender, first, left, is_whole: false });
    }

    /// Begins extent `id` of unknown length. It must be [ended](SegmentBuilder::end_extent) before another one begins.
    pub fn begin_open_extent(&mut self, id: FileId) {
        self.begin_extent(id, OPEN_EXTENT_BYTES_MAX);
    }

    /// Ends the last extent; the next one follows it.
    pub fn end_extent(&mut self) -> Result<()> {
        let growing = self.extents.last_mut().expect("only an extent that began ends");
        if !growing.is_whole {
            growing.finish(&mut self.buffer)?;
        }
        self.end = growing.end();
        Ok(())
    }

    /// Appends records of `announced` bytes, or fewer after compression, to an extent; returns their offset.
    pub fn add(&mut self, extent: usize, records: &[u8], announced: u64) -> Result<u64> {
        let growing = &mut self.extents[extent];
        assert!(
            records.len() as u64 <= announced && announced <= growing.left,
            "records fit into the space announced for their extent"
        );
        let at = growing.end();
        growing.appender.pending.extend_from_slice(records);
        growing.left -= announced;
        if growing.left == 0 {
            growing.finish(&mut self.buffer)?;
        } else if growing.appender.pending.len() >= self.pending_bytes {
            growing.write(&mut self.buffer)?;
        }
        Ok(at)
    }

    /// Length of an extent so far, in bytes.
    pub fn extent_bytes(&self, extent: usize) -> u64 {
        self.extents[extent].end() - self.extents[extent].start
    }

    /// Syncs the file and returns the locations of the extents; the caller syncs the directory.
    pub fn finish(mut self) -> Result<Vec<ExtentPlace>> {
        for growing in self.extents.iter_mut().filter(|growing| !growing.is_whole) {
            growing.finish(&mut self.buffer)?;
        }
        self.buffer.finish()?;
        self.file.sync()?;
        let place =
            |growing: &GrowingExtent| ExtentPlace { segment: self.id, start: growing.start, end: growing.end() };
        Ok(self.extents.iter().map(place).collect())
    }
}

impl GrowingExtent {
    fn end(&self) -> u64 {
        self.appender.end()
    }

    fn write(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        if self.appender.written_to() == self.start {
            let len = self.appender.pending.len().min(BLOCK_IO_BYTES);
            self.first = self.appender.pending[..len].to_vec();
        }
        self.appender.write(buffer)
    }

    /// Writes the rest and the header, once all records were added.
    fn finish(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        let header = extent_header(self.id, self.end() - self.start);
        let has_begun = self.appender.written_to() > self.start;
        if !has_begun {
            self.appender.pending[..EXTENT_HEADER_BYTES].copy_from_slice(&header);
        }
        self.appender.finish(buffer)?;
        if has_begun && self.first[..EXTENT_HEADER_BYTES] != header {
            self.first[..EXTENT_HEADER_BYTES].copy_from_slice(&header);
            buffer.write(&self.first, self.start)?;
        }
        self.first = Vec::new();
        self.is_whole = true;
        Ok(())
    }
}

impl ExtentPlace {
    /// Space occupied on storage, in bytes.
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

/// An extent, as described by its header.
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
    /// The extent that begins at `start` in a file of `len` bytes; `None` if its space was released.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the header is damaged.
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

    /// Visits all records: offset, content, and bytes of each.
    ///
    /// # Errors
    /// [`Error::Corruption`] where no complete record is found; any error from `see`.
    pub fn for_each_record(&self, file: &dyn File, see: &mut VisitRecord<'_>) -> Result<()> {
        self.for_records_while(file, &mut |offset, record, bytes| see(offset, record, bytes).map(|()| true)).map(drop)
    }

    /// Visits records in order as long as `see` returns true; returns how many bytes were read.
    ///
    /// # Errors
    /// As [`for_each_record`](Extent::for_each_record).
    pub fn for_records_while(&self, file: &dyn File, see: &mut VisitWhile<'_>) -> Result<u64> {
        let mut window: Vec<u8> = Vec::new();
        let mut offset = self.start + EXTENT_HEADER_BYTES as u64;
        let mut read_to = offset;
        while offset < self.end {
            // Complete records in the window come first; then more is read, and the record that was cut off is decoded
            // again.
            let mut rest = &window[..];
            let mut why = "the extent ends within a record";
            loop {
                let before = rest;
                match Record::take_stored(&mut rest) {
                    Ok(record) => {
                        let bytes = &before[..before.len() - rest.len()];
                        if !see(offset, &record, bytes)? {
                            return Ok(read_to - self.start);
                        }
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
            file.read_ahead(read_to, AHEAD_BYTES.min(self.end - read_to));
        }
        Ok(self.end - self.start)
    }
}

/// Checks that the bytes from `offset` to the next multiple of [`EXTENT_ALIGN`] or the end of the file are zero; no
/// checksum covers them.
///
/// # Errors
/// [`Error::Corruption`] if they are not.
pub fn check_padding(file: &dyn File, offset: u64) -> Result<()> {
    let mut padding = vec![0; (offset.next_multiple_of(EXTENT_ALIGN) - offset) as usize];
    let read = file.read_at(&mut padding, offset)?;
    match padding[..read].iter().position(|byte| *byte != 0) {
        None => Ok(()),
        Some(at) => Err(Error::corruption(file.path(), offset + at as u64, "the space between extents is not empty")),
    }
}

/// Receives a record: its offset, content, and bytes.
pub type VisitRecord<'a> = dyn FnMut(u64, &Record<'_>, &[u8]) -> Result<()> + 'a;

/// The same; false ends the visit.
pub type VisitWhile<'a> = dyn FnMut(u64, &Record<'_>, &[u8]) -> Result<bool> + 'a;

/// Checks the header of segment `id`.
///
/// # Errors
/// [`Error::Corruption`] if it is damaged or belongs to another segment, [`Error::Unsupported`] for another version.
pub fn check_header(file: &dyn File, id: FileId) -> Result<()> {
    let mut found = [0; FILE_HEADER_BYTES];
    read_exact_at(file, &mut found, 0)?;
    HEADER.check(file.path(), id, &found)?;
    check_padding(file, FILE_HEADER_BYTES as u64)
}

/// All extents of segment `id` whose space was not released, in order.
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

    /// Segment 4 with extents 5, 6, .. of records with values of these lengths; returns the offsets of the records.
    fn segment(disk: &SimDisk, extents: &[&[usize]]) -> Vec<u64> {
        let mut builder =
            SegmentBuilder::create(disk, Path::new("s"), FileId(4), Access::Buffered, (4096, 4096)).unwrap();
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

    /// The offsets of all records, and the extents.
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
    fn records_are_read_in_order_with_their_offsets_across_pieces_and_extents() {
        let disk = SimDisk::new();
        let places = segment(&disk, &[&[300, 700_000, 0], &[], &[900_000, 3_000_000, 17, 1_500_000]]);
        let (found, extents) = read(&disk).unwrap();
        assert_eq!(found, places);
        assert_eq!(extents.iter().map(|extent| extent.id.0).collect::<Vec<_>>(), [5, 6, 7]);
    }

    #[test]
    fn an_older_segment_version_is_read_and_a_newer_one_is_unsupported() {
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
    fn extents_shorter_than_announced_are_followed_by_holes() {
        let disk = SimDisk::new();
        let mut builder =
            SegmentBuilder::create(&disk, Path::new("s"), FileId(4), Access::Buffered, (4096, 4096)).unwrap();
        (0..3).for_each(|index| builder.begin_extent(FileId(5 + index), 100 * 2000));
        // Round robin, as groups by hash are written.
        for number in 0..300 {
            builder.add(number % 3, &record(number as u64, 500), 2000).unwrap();
        }
        let places = builder.finish().unwrap();
        let (found, extents) = read(&disk).unwrap();
        assert_eq!(found.len(), 300);
        let returned = places.iter().map(|place| (place.start, place.end));
        assert!(returned.eq(extents.iter().map(|extent| (extent.start, extent.end))));
        assert!(places.iter().all(|place| place.space() <= 100 * (500 + 31) + 2 * EXTENT_ALIGN));
        assert!(disk.used() <= 4 * (100 * (500 + 31) + 2 * EXTENT_ALIGN), "{} B", disk.used());
    }

    #[test]
    fn extents_that_follow_one_another_are_written_in_large_pieces_and_their_headers_once() {
        let (disk, piece_bytes) = (SimDisk::new(), 64 << 10);
        let buffers = (4096, piece_bytes);
        let mut builder = SegmentBuilder::create(&disk, Path::new("s"), FileId(4), Access::Direct, buffers).unwrap();
        for extent in 0..20 {
            let records: Vec<Vec<u8>> = (0..16).map(|number| record(16 * extent + number, 1000)).collect();
            let bytes: usize = records.iter().map(Vec::len).sum();
            builder.begin_extent(FileId(5 + extent), bytes as u64);
            for record in records {
                builder.add(extent as usize, &record, record.len() as u64).unwrap();
            }
        }
        let places = builder.finish().unwrap();
        let bytes = EXTENT_ALIGN + places.iter().map(ExtentPlace::space).sum::<u64>();
        assert_eq!(disk.direct_writes(), bytes.div_ceil(piece_bytes as u64));
        assert_eq!(read(&disk).unwrap().0.len(), 320);
    }

    #[test]
    fn an_extent_of_unknown_length_is_followed_by_the_next_one() {
        for access in [Access::Buffered, Access::Direct] {
            let disk = SimDisk::new();
            let mut builder = SegmentBuilder::create(&disk, Path::new("s"), FileId(4), access, (4096, 12288)).unwrap();
            let (mut offsets, lengths) = (Vec::new(), [&[300, 20][..], &[70_000], &[5]]);
            let mut number = 0;
            for (index, values) in lengths.iter().enumerate() {
                builder.begin_open_extent(FileId(5 + index as u64));
                for len in *values {
                    number += 1;
                    let record = record(number, *len);
                    offsets.push(builder.add(index, &record, record.len() as u64).unwrap());
                }
                // The last one ends with the segment.
                if index + 1 < lengths.len() {
                    builder.end_extent().unwrap();
                }
            }
            let places = builder.finish().unwrap();
            let (found, extents) = read(&disk).unwrap();
            assert_eq!(found, offsets);
            assert!(
                places.iter().map(|place| (place.start, place.end)).eq(extents.iter().map(|it| (it.start, it.end)))
            );
            assert!(disk.used() < 90_000, "{} B", disk.used());
        }
    }

    #[test]
    fn an_extent_whose_space_was_released_is_skipped() {
        let disk = SimDisk::new();
        let places = segment(&disk, &[&[30, 9000], &[5000], &[77]]);
        let second = read(&disk).unwrap().1[1];
        let len = second.end.next_multiple_of(EXTENT_ALIGN) - second.start;
        assert_eq!(disk.punch(Path::new("s"), second.start, len).unwrap(), Punched::Done);
        assert_eq!(read(&disk).unwrap().0, [places[0], places[1], places[3]]);
    }

    #[test]
    fn damage_to_any_byte_is_an_error() {
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
