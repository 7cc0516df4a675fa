//! Copies records from files to their extents, in file order, and verifies them again.

use crate::base::limits::COMPRESSED_RECORD_BYTES_MAX;
use crate::base::{Address, Error, FileId, Result};
use crate::engine::jobs::collection::outputs::Outputs;
use crate::engine::jobs::collection::state::{Collection, Going, Victim};
use crate::format::record::{Record, RecordChecksum};
use crate::format::values::Moved;
use crate::io::coalesced_reads::{CoalescedRead, Coalescing, ReadRange, coalesce};
use crate::io::{File, read_exact_at};
use crate::values::newest::SeenRecord;
use crate::values::record_compressor::RecordCompressor;
use crate::values::record_notes::RecordNotes;
use crate::values::redirect::RedirectBuilder;

/// Limits for reading several records in one read.
const COALESCING: Coalescing = Coalescing { gap_bytes: 16 << 10, read_bytes_max: PIECE_BYTES as u64 };
/// Bytes of a large record that are announced ahead of the reads.
const AHEAD_BYTES: u64 = 2 << 20;
/// Bytes of one read; a larger record is not compressed and is copied in pieces of this size.
const PIECE_BYTES: usize = COMPRESSED_RECORD_BYTES_MAX;

impl Collection<'_> {
    /// Copies records, given in the order of files and offsets, to extents already begun.
    pub(crate) fn copy(&mut self, records: &[Going<'_>]) -> Result<()> {
        let extents: Vec<FileId> = self.extents.iter().map(|extent| extent.id).collect();
        let mut buffer = Vec::new();
        for of_file in records.chunk_by(|(one, _), (next, _)| one.file == next.file) {
            let victim = &mut self.victims[of_file[0].0.file as usize];
            let source = victim.file.stored().file_in_order()?;
            let own = vec![None; extents.len()];
            let (redirects, copies) = (&mut self.redirects, &mut self.copies);
            let mut arrived = Arrived { victim, redirects, copies, extents: &extents, own };
            let mut stretches = coalesce(of_file, COALESCING, place).peekable();
            while let Some(stretch) = stretches.next() {
                self.throttle.pause();
                // Read and written.
                self.throttle.note_waited(self.core.limit_io(2 * (stretch.end - stretch.start)));
                if let Some(next) = stretches.peek()
                    && stretch.bytes() <= PIECE_BYTES as u64
                {
                    source.read_ahead(next.start, next.bytes().min(AHEAD_BYTES));
                }
                copy_stretch(&*source, &stretch, &mut self.outputs, &mut self.compressor, &mut buffer, &mut arrived)?;
            }
        }
        Ok(())
    }
}

/// Builds the redirect table of a file.
struct Arrived<'a> {
    victim: &'a mut Victim,
    redirects: &'a mut RedirectBuilder,
    copies: &'a mut RecordNotes,
    extents: &'a [FileId],
    /// For each extent: its index among the targets of the file's records.
    own: Vec<Option<usize>>,
}

impl Arrived<'_> {
    fn note(&mut self, seen: &SeenRecord, extent: usize, copy: CopiedRecord) {
        let to = &mut self.victim.to;
        let index = *self.own[extent].get_or_insert_with(|| {
            to.push((self.extents[extent], Moved::default()));
            to.len() - 1
        });
        self.victim.note(seen, index, copy, self.redirects);
        self.copies.note(copy.address_in(self.extents[extent]));
    }
}

impl Victim {
    /// Adds a record that was copied to the extent with this index among the targets of its file.
    pub(crate) fn note(
        &mut self,
        seen: &SeenRecord,
        index: usize,
        copy: CopiedRecord,
        redirects: &mut RedirectBuilder,
    ) {
        let moved = &mut self.to[index].1;
        moved.records += 1;
        moved.bytes += u64::from(copy.len);
        self.saved += u64::from(seen.len - copy.len);
        redirects.add(seen.file, seen.offset, (index, copy.place), copy.len);
    }
}

/// A record at its new place.
#[derive(Clone, Copy)]
pub(crate) struct CopiedRecord {
    place: u64,
    pub(crate) len: u32,
}

impl CopiedRecord {
    /// Its address if it is in this extent.
    pub(crate) fn address_in(self, extent: FileId) -> Address {
        Address { file: extent, offset: self.place, len: self.len, value_len: 0 }
    }
}

/// Writes a verified record into an extent, compressed if the options ask for it and it saves space.
pub(crate) fn write(
    outputs: &mut Outputs<'_>,
    compressor: &mut RecordCompressor,
    extent: usize,
    bytes: &[u8],
) -> Result<CopiedRecord> {
    let stored = compressor.compress(bytes).unwrap_or(bytes);
    let place = outputs.add(extent, stored, bytes.len() as u64)?;
    Ok(CopiedRecord { place, len: stored.len() as u32 })
}

/// The place of a record: the index of its file, and the offset.
pub(crate) fn place((seen, _): &Going<'_>) -> ReadRange {
    ReadRange { file: FileId(seen.file.into()), start: seen.offset, end: seen.offset + u64::from(seen.len) }
}

/// The error for a damaged record in a file.
pub(crate) fn damaged(source: &dyn File, seen: &SeenRecord, reason: &str) -> Error {
    Error::corruption(source.path(), seen.offset, reason)
}

/// Copies the records of one contiguous range.
fn copy_stretch(
    source: &dyn File,
    stretch: &CoalescedRead<'_, Going<'_>>,
    outputs: &mut Outputs<'_>,
    compressor: &mut RecordCompressor,
    buffer: &mut Vec<u8>,
    arrived: &mut Arrived<'_>,
) -> Result<()> {
    if let [(large, extent)] = stretch.pieces
        && large.len as usize > PIECE_BYTES
    {
        let copy = copy_large(source, large, *extent, outputs, buffer)?;
        arrived.note(large, *extent, copy);
        return Ok(());
    }
    stretch.read(source, buffer)?;
    for going in stretch.pieces {
        let (seen, extent) = going;
        let bytes = &buffer[stretch.within(place(going))];
        check_seen(source, seen, bytes)?;
        let copy = write(outputs, compressor, *extent, bytes)?;
        arrived.note(seen, *extent, copy);
    }
    Ok(())
}

/// Verifies that bytes are the record noted in a file.
pub(crate) fn check_seen(source: &dyn File, seen: &SeenRecord, bytes: &[u8]) -> Result<()> {
    let record = Record::take_stored(&mut &bytes[..]).map_err(|reason| damaged(source, seen, reason))?;
    match record.seqno == seen.seqno {
        true => Ok(()),
        false => Err(damaged(source, seen, "the record here differs from the one read before")),
    }
}

/// Copies in pieces, so that memory use does not depend on the record's size.
pub(crate) fn copy_large(
    source: &dyn File,
    seen: &SeenRecord,
    extent: usize,
    outputs: &mut Outputs<'_>,
    buffer: &mut Vec<u8>,
) -> Result<CopiedRecord> {
    let mut check = RecordChecksum::default();
    let (mut place, mut offset, end) = (None, seen.offset, seen.offset + u64::from(seen.len));
    while offset < end {
        buffer.resize((end - offset).min(PIECE_BYTES as u64) as usize, 0);
        read_exact_at(source, buffer, offset)?;
        offset += buffer.len() as u64;
        source.read_ahead(offset, (end - offset).min(AHEAD_BYTES));
        check.add(buffer);
        let at = outputs.add(extent, buffer, buffer.len() as u64)?;
        place.get_or_insert(at);
    }
    match place.filter(|_| check.agrees()) {
        Some(place) => Ok(CopiedRecord { place, len: seen.len }),
        None => Err(damaged(source, seen, "record checksum does not match")),
    }
}
