//! Reads the keys of the records that may live, in the order of their offsets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result, full_key};
use crate::engine::core::Core;
use crate::engine::jobs::collection::state::Collection;
use crate::format::record::{HEADER_BYTES, Record, RecordHead};
use crate::io::read_exact_at;
use crate::values::files::{Layout, ValueFile};
use crate::values::live_records::LiveRecords;
use crate::values::newest::{Fate, SeenRecord};
use crate::values::segment::{EXTENT_HEADER_BYTES, Extent};
use crate::values::survey::KnownLive;

/// This much of a record is read for its key; more only if the key is longer.
const HEAD_BYTES: u64 = 1 << 10;
/// A gap up to this size is read along, which costs less than another read.
const GAP_BYTES: u64 = 16 << 10;
/// Heads within this distance are read together,
const PIECE_BYTES: u64 = 1 << 20;
/// and within this one while users read, whose reads wait behind such a read and the one that is announced.
const PIECE_BYTES_BESIDE_READS: u64 = 128 << 10;
/// Values up to about this size are announced with their heads if they stay in the page cache: they will be copied next.
const ANNOUNCED_BYTES: u64 = 256 << 10;

/// What is called for each record; false ends the visit.
pub(super) type VisitHead<'a> = dyn FnMut(&ReadRecord<'_>) -> Result<bool> + 'a;

/// A record that may live, as far as it was read.
pub(super) struct ReadRecord<'a> {
    pub(super) offset: u64,
    pub(super) head: &'a RecordHead,
    /// Its key with the keyspace.
    pub(super) key: &'a [u8],
    /// All its bytes, verified; `None` if it was not read as a whole.
    pub(super) whole: Option<&'a [u8]>,
}

impl Collection<'_> {
    /// Reads the files and moves their live records, as many together as there is memory for.
    pub(super) fn move_read(&mut self, files: &[Arc<ValueFile>], known: &[KnownLive]) -> Result<()> {
        for (index, (file, known)) in (0..).zip(files.iter().zip(known)) {
            let read = for_each_live(self.core, file, known, file.start(), &mut |record| {
                self.throttle.pause();
                self.note(index, file, record)?;
                if self.batch.bytes() >= self.batch_bytes_max {
                    self.settle()?;
                }
                Ok(true)
            })?;
            self.core.counters.bytes_read.fetch_add(read, Ordering::Relaxed);
        }
        self.settle()
    }

    /// Notes a record that something refers to.
    pub(super) fn note(&mut self, index: u32, file: &ValueFile, record: &ReadRecord<'_>) -> Result<()> {
        let ReadRecord { offset, head, key, whole } = *record;
        let (seqno, kind, fate) = (head.seqno, head.kind, Fate::Kept);
        if !self.referrers.iter().any(|referrer| referrer.refers_to(kind)) {
            return Err(damaged(file, offset, "nothing can refer to a record of this kind"));
        }
        let (order, len) = (self.core.placement.order(key), head.record_bytes as u32);
        let staged = whole.and_then(|bytes| self.staged.add(bytes));
        self.batch.add(key, SeenRecord { order, seqno, kind, key: 0..0, file: index, offset, len, fate, staged });
        Ok(())
    }
}

/// Visits the records of a file that may live, at or after offset `from`, in order; returns how many bytes it has read.
pub(super) fn for_each_live(
    core: &Core,
    file: &ValueFile,
    known: &KnownLive,
    from: u64,
    see: &mut VisitHead<'_>,
) -> Result<u64> {
    match (known, file.layout()) {
        (KnownLive::Listed(live), _) => for_each_listed(core, file, live, from, see),
        (KnownLive::All, Layout::Extent { start, .. }) => {
            let start = from.saturating_sub(EXTENT_HEADER_BYTES as u64).max(*start);
            let extent = Extent { id: file.id(), start, end: file.end() };
            extent.for_records_while(&*file.stored().file_in_order()?, &mut |offset, record, bytes| {
                let head = &RecordHead::parse(bytes).expect("the bytes are a record");
                let key = &full_key(head.keyspace, record.operation.key);
                see(&ReadRecord { offset, head, key, whole: Some(bytes) })
            })
        }
        (KnownLive::All, Layout::Log) => Err(damaged(file, 0, "it is not known which records of a log live")),
    }
}

/// Records whose heads are read together.
struct Stretch {
    offsets: Vec<u64>,
    end: u64,
}

impl Stretch {
    /// The next one, from heads within `piece_bytes`.
    fn take(
        offsets: &mut std::iter::Peekable<impl Iterator<Item = u64>>,
        piece_bytes: u64,
        file_end: u64,
    ) -> Option<Stretch> {
        let start = *offsets.peek()?;
        let mut stretch = Stretch { offsets: Vec::new(), end: start };
        while let Some(offset) = offsets.next_if(|next| *next <= stretch.end + GAP_BYTES && *next < start + piece_bytes)
        {
            stretch.offsets.push(offset);
            // A block is read as a whole anyway.
            stretch.end = (offset + HEAD_BYTES).next_multiple_of(BLOCK_IO_BYTES as u64);
        }
        stretch.end = stretch.end.min(file_end);
        Some(stretch)
    }

    fn start(&self) -> u64 {
        self.offsets[0]
    }
}

/// Visits the listed records of a file at or after offset `from`.
fn for_each_listed(
    core: &Core,
    file: &ValueFile,
    live: &LiveRecords,
    from: u64,
    see: &mut VisitHead<'_>,
) -> Result<u64> {
    let source = file.stored().file_in_order()?;
    if let Some(first) = live.iter().next().filter(|first| *first < file.start()) {
        return Err(damaged(file, first, OUTSIDE));
    }
    let mut offsets = live.iter().skip_while(|offset| *offset < from).peekable();
    let (mut window, mut read) = (Vec::new(), 0);
    let mut next_stretch = || {
        Stretch::take(&mut offsets, if core.users_read() { PIECE_BYTES_BESIDE_READS } else { PIECE_BYTES }, file.end())
    };
    let mut coming = next_stretch();
    while let Some(stretch) = coming.take() {
        let start = stretch.start();
        let len = stretch.end.checked_sub(start).ok_or_else(|| damaged(file, start, OUTSIDE))?;
        coming = next_stretch();
        if let Some(next) = &coming {
            // What lies between has been announced already if the heads are near each other.
            let values_bytes = if file.stored().is_cached() { ANNOUNCED_BYTES } else { 0 };
            let behind = stretch.end.max(next.start().saturating_sub(values_bytes));
            source.read_ahead(behind, next.end.saturating_sub(behind));
        }
        window.resize(len as usize, 0);
        read_exact_at(&*source, &mut window, start)?;
        read += len;
        for offset in &stretch.offsets {
            let bytes = window.get((*offset - start) as usize..).ok_or_else(|| damaged(file, *offset, OUTSIDE))?;
            let head = RecordHead::parse(bytes).ok_or_else(|| damaged(file, *offset, "this is not a record"))?;
            if *offset + head.record_bytes as u64 > file.end() {
                return Err(damaged(file, *offset, OUTSIDE));
            }
            let whole = bytes.get(..head.record_bytes);
            if let Some(mut whole) = whole {
                // What is judged dead is not read again. Records that are cut off here are verified as they are copied.
                Record::take_stored(&mut whole).map_err(|reason| damaged(file, *offset, reason))?;
            }
            let key = match bytes.get(HEADER_BYTES..HEADER_BYTES + head.key_len) {
                Some(key) => full_key(head.keyspace, key),
                None => {
                    let mut key = vec![0; head.key_len];
                    read_exact_at(&*source, &mut key, *offset + HEADER_BYTES as u64)?;
                    full_key(head.keyspace, &key)
                }
            };
            if !see(&ReadRecord { offset: *offset, head: &head, key: &key, whole })? {
                return Ok(read);
            }
        }
    }
    Ok(read)
}

const OUTSIDE: &str = "a live record lies outside the file";

fn damaged(file: &ValueFile, offset: u64, reason: &str) -> Error {
    Error::corruption(file.stored().path(), offset, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_near_each_other_are_read_together_in_pieces() {
        let stretches = |piece_bytes| {
            // A thousand small records, and some far behind them.
            let mut offsets = (0..1_000).map(|index| index * 1_100).chain([5 << 20, (5 << 20) + 8_000]).peekable();
            std::iter::from_fn(|| Stretch::take(&mut offsets, piece_bytes, u64::MAX)).collect::<Vec<_>>()
        };
        for piece_bytes in [PIECE_BYTES, PIECE_BYTES_BESIDE_READS] {
            let all = stretches(piece_bytes);
            let offsets: Vec<u64> = all.iter().flat_map(|stretch| stretch.offsets.clone()).collect();
            assert!(offsets.len() == 1_002 && offsets.is_sorted());
            let block = BLOCK_IO_BYTES as u64;
            assert!(all.iter().all(|stretch| stretch.end - stretch.start() <= piece_bytes + HEAD_BYTES + block));
            assert_eq!(all.len() as u64, 1_100_000_u64.div_ceil(piece_bytes) + 1);
        }
    }
}
