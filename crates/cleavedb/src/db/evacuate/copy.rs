//! Copies records from files to the extents of a segment, in the order in which they lie in the files, and checks them once
//! more.

use super::Evacuation;
use crate::base::{Error, FileId, Result};
use crate::format::record::{Check, Record};
use crate::format::values::Moved;
use crate::io::{File, read_exact_at};
use crate::values::newest::Seen;
use crate::values::redirect::RedirectBuilder;
use crate::values::segment::SegmentBuilder;

/// Records closer than this are copied with what lies between them in one read.
const GAP_BYTES: u64 = 16 << 10;
/// The system is told of so much before it is read.
const AHEAD_BYTES: u64 = 4 << 20;
/// One read, and what of a large record is held at once.
const PIECE_BYTES: usize = 1 << 20;

/// A record, and the index of the extent that it goes to.
pub(super) type Going<'s> = (&'s Seen, usize);

impl Evacuation<'_> {
    /// Copies records, which come in the order of files and offsets, to extents that were begun.
    pub(super) fn copy(&mut self, records: &[Going<'_>]) -> Result<()> {
        let extents: Vec<FileId> = self.extents.iter().map(|(id, _)| *id).collect();
        let Some(segment) = &mut self.segment else { return Ok(()) };
        let mut buffer = Vec::new();
        for of_file in records.chunk_by(|(one, _), (next, _)| one.file == next.file) {
            let victim = &mut self.victims[of_file[0].0.file as usize];
            let source = victim.file.stored().file()?;
            let own = vec![None; extents.len()];
            let mut arrived = Arrived { to: &mut victim.to, redirects: &mut self.redirects, extents: &extents, own };
            let (mut rest, mut told_to) = (of_file, 0);
            let end = of_file.last().map_or(0, |(last, _)| last.offset + u64::from(last.len));
            while let Some((first, _)) = rest.first() {
                if told_to < end.min(first.offset + AHEAD_BYTES / 2) {
                    let (from, to) = (first.offset.max(told_to), end.min(first.offset + AHEAD_BYTES));
                    source.will_go_on(from, to - from);
                    told_to = to;
                }
                let near = rest.iter().zip(rest.iter().skip(1)).take_while(|((one, _), (next, _))| {
                    let end = next.offset + u64::from(next.len);
                    next.offset <= one.offset + u64::from(one.len) + GAP_BYTES
                        && end - first.offset <= PIECE_BYTES as u64
                });
                let (run, others) = rest.split_at(near.count() + 1);
                copy_run(&*source, run, segment, &mut buffer, &mut arrived)?;
                rest = others;
            }
        }
        Ok(())
    }
}

/// Takes down where records of a file have gone.
struct Arrived<'a> {
    to: &'a mut Vec<(FileId, Moved)>,
    redirects: &'a mut RedirectBuilder,
    extents: &'a [FileId],
    /// For each extent its index among those that the file's records went to.
    own: Vec<Option<usize>>,
}

impl Arrived<'_> {
    fn note(&mut self, seen: &Seen, extent: usize, place: u64) {
        let index = *self.own[extent].get_or_insert_with(|| {
            self.to.push((self.extents[extent], Moved::default()));
            self.to.len() - 1
        });
        self.to[index].1.records += 1;
        self.to[index].1.bytes += u64::from(seen.len);
        self.redirects.add(seen.file, seen.offset, (index, place));
    }
}

/// Copies records that lie close together, or one.
fn copy_run(
    source: &dyn File,
    run: &[Going<'_>],
    segment: &mut SegmentBuilder,
    buffer: &mut Vec<u8>,
    arrived: &mut Arrived<'_>,
) -> Result<()> {
    let damaged = |seen: &Seen, reason: &str| Error::corruption(source.path(), seen.offset, reason);
    let (Some((first, extent)), Some((last, _))) = (run.first(), run.last()) else { return Ok(()) };
    if run.len() == 1 && first.len as usize > PIECE_BYTES {
        let place = copy_large(source, first, *extent, segment, buffer)?;
        arrived.note(first, *extent, place);
        return Ok(());
    }
    buffer.resize((last.offset - first.offset) as usize + last.len as usize, 0);
    read_exact_at(source, buffer, first.offset)?;
    for (seen, extent) in run {
        let start = (seen.offset - first.offset) as usize;
        let bytes = &buffer[start..start + seen.len as usize];
        let record = Record::take(&mut &bytes[..]).map_err(|reason| damaged(seen, reason))?;
        if record.seqno != seen.seqno {
            return Err(damaged(seen, "another record lies here than a moment ago"));
        }
        let place = segment.add(*extent, bytes)?;
        arrived.note(seen, *extent, place);
    }
    Ok(())
}

/// Piece by piece, so that a record of any size takes no more memory than others.
fn copy_large(
    source: &dyn File,
    seen: &Seen,
    extent: usize,
    segment: &mut SegmentBuilder,
    buffer: &mut Vec<u8>,
) -> Result<u64> {
    let mut check = Check::default();
    let (mut place, mut offset, end) = (None, seen.offset, seen.offset + u64::from(seen.len));
    while offset < end {
        buffer.resize((end - offset).min(PIECE_BYTES as u64) as usize, 0);
        read_exact_at(source, buffer, offset)?;
        check.add(buffer);
        let at = segment.add(extent, buffer)?;
        place.get_or_insert(at);
        offset += buffer.len() as u64;
    }
    match place.filter(|_| check.agrees()) {
        Some(place) => Ok(place),
        None => Err(Error::corruption(source.path(), seen.offset, "record checksum does not match")),
    }
}
