//! Copies records from files to the extents of a segment, in the order in which they lie in the files, and checks them once
//! more.

use crate::base::limits::COMPRESSED_RECORD_BYTES_MAX;
use crate::base::{Error, FileId, Result};
use crate::engine::jobs::collect_garbage::{Collection, Victim};
use crate::format::record::{Record, RecordChecksum};
use crate::format::values::Moved;
use crate::io::{File, read_exact_at};
use crate::values::newest::SeenRecord;
use crate::values::record_compressor::RecordCompressor;
use crate::values::redirect::RedirectBuilder;
use crate::values::segment::SegmentBuilder;

/// Records closer than this are copied with what lies between them in one read.
const GAP_BYTES: u64 = 16 << 10;
/// The system is told of so much before it is read.
const AHEAD_BYTES: u64 = 4 << 20;
/// One read, and what of a large record, which is not compressed, is held at once.
const PIECE_BYTES: usize = COMPRESSED_RECORD_BYTES_MAX;

/// A record, and the index of the extent that it goes to.
pub(crate) type Going<'s> = (&'s SeenRecord, usize);

impl Collection<'_> {
    /// Copies records, which come in the order of files and offsets, to extents that were begun.
    pub(crate) fn copy(&mut self, records: &[Going<'_>]) -> Result<()> {
        let extents: Vec<FileId> = self.extents.iter().map(|extent| extent.id).collect();
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let mut buffer = Vec::new();
        for of_file in records.chunk_by(|(one, _), (next, _)| one.file == next.file) {
            let victim = &mut self.victims[of_file[0].0.file as usize];
            let source = victim.file.stored().file()?;
            let own = vec![None; extents.len()];
            let mut arrived = Arrived { victim, redirects: &mut self.redirects, extents: &extents, own };
            let (mut rest, mut told_to) = (of_file, 0);
            let end = of_file.last().map_or(0, |(last, _)| last.offset + u64::from(last.len));
            while let Some((first, _)) = rest.first() {
                if told_to < end.min(first.offset + AHEAD_BYTES / 2) {
                    let (from, to) = (first.offset.max(told_to), end.min(first.offset + AHEAD_BYTES));
                    source.will_go_on(from, to - from);
                    told_to = to;
                }
                let (run, others) = rest.split_at(near(rest, GAP_BYTES, PIECE_BYTES as u64));
                copy_run(&*source, run, segment, &mut self.compressor, &mut buffer, &mut arrived)?;
                rest = others;
            }
        }
        Ok(())
    }
}

/// Takes down where records of a file have gone.
struct Arrived<'a> {
    victim: &'a mut Victim,
    redirects: &'a mut RedirectBuilder,
    extents: &'a [FileId],
    /// For each extent its index among those that the file's records went to.
    own: Vec<Option<usize>>,
}

impl Arrived<'_> {
    fn note(&mut self, seen: &SeenRecord, extent: usize, copy: Copied) {
        let to = &mut self.victim.to;
        let index = *self.own[extent].get_or_insert_with(|| {
            to.push((self.extents[extent], Moved::default()));
            to.len() - 1
        });
        self.victim.note(seen, index, copy, self.redirects);
    }
}

impl Victim {
    /// A record went to the extent of this index among those that its file's records go to.
    pub(crate) fn note(&mut self, seen: &SeenRecord, index: usize, copy: Copied, redirects: &mut RedirectBuilder) {
        let moved = &mut self.to[index].1;
        moved.records += 1;
        moved.bytes += u64::from(copy.len);
        self.saved += u64::from(seen.len - copy.len);
        redirects.add(seen.file, seen.offset, (index, copy.place), copy.len);
    }
}

/// A record where it went.
#[derive(Clone, Copy)]
pub(crate) struct Copied {
    place: u64,
    pub(crate) len: u32,
}

/// Writes a record, which was read and checked, into an extent, compressed if that is asked for and helps.
pub(crate) fn write(
    segment: &mut SegmentBuilder,
    compressor: &mut RecordCompressor,
    extent: usize,
    bytes: &[u8],
) -> Result<Copied> {
    let stored = compressor.compress(bytes).unwrap_or(bytes);
    let place = segment.add(extent, stored, bytes.len() as u64)?;
    Ok(Copied { place, len: stored.len() as u32 })
}

/// Of records of one file, how many lie so close together, and in so few bytes; one at least.
pub(crate) fn near(records: &[(&SeenRecord, usize)], gap_bytes: u64, bytes_max: u64) -> usize {
    let end = |seen: &SeenRecord| seen.offset + u64::from(seen.len);
    let near = records.windows(2).take_while(|pair| {
        let (one, next) = (pair[0].0, pair[1].0);
        next.offset <= end(one) + gap_bytes && end(next) - records[0].0.offset <= bytes_max
    });
    near.count() + 1
}

/// What is wrong with a record in a file.
pub(crate) fn damaged(source: &dyn File, seen: &SeenRecord, reason: &str) -> Error {
    Error::corruption(source.path(), seen.offset, reason)
}

/// Copies records that lie close together, or one.
fn copy_run(
    source: &dyn File,
    run: &[Going<'_>],
    segment: &mut SegmentBuilder,
    compressor: &mut RecordCompressor,
    buffer: &mut Vec<u8>,
    arrived: &mut Arrived<'_>,
) -> Result<()> {
    let (Some((first, extent)), Some((last, _))) = (run.first(), run.last()) else { return Ok(()) };
    if run.len() == 1 && first.len as usize > PIECE_BYTES {
        let copy = copy_large(source, first, *extent, segment, buffer)?;
        arrived.note(first, *extent, copy);
        return Ok(());
    }
    buffer.resize((last.offset - first.offset) as usize + last.len as usize, 0);
    read_exact_at(source, buffer, first.offset)?;
    for (seen, extent) in run {
        let start = (seen.offset - first.offset) as usize;
        let bytes = &buffer[start..start + seen.len as usize];
        let record = Record::take_stored(&mut &bytes[..]).map_err(|reason| damaged(source, seen, reason))?;
        if record.seqno != seen.seqno {
            return Err(damaged(source, seen, "another record lies here than a moment ago"));
        }
        let copy = write(segment, compressor, *extent, bytes)?;
        arrived.note(seen, *extent, copy);
    }
    Ok(())
}

/// Piece by piece, so that a record of any size takes no more memory than others.
pub(crate) fn copy_large(
    source: &dyn File,
    seen: &SeenRecord,
    extent: usize,
    segment: &mut SegmentBuilder,
    buffer: &mut Vec<u8>,
) -> Result<Copied> {
    let mut check = RecordChecksum::default();
    let (mut place, mut offset, end) = (None, seen.offset, seen.offset + u64::from(seen.len));
    while offset < end {
        buffer.resize((end - offset).min(PIECE_BYTES as u64) as usize, 0);
        read_exact_at(source, buffer, offset)?;
        check.add(buffer);
        let at = segment.add(extent, buffer, buffer.len() as u64)?;
        place.get_or_insert(at);
        offset += buffer.len() as u64;
    }
    match place.filter(|_| check.agrees()) {
        Some(place) => Ok(Copied { place, len: seen.len }),
        None => Err(damaged(source, seen, "record checksum does not match")),
    }
}
