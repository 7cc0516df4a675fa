//! Reads collected files and notes their records, if that is cheaper than finding the live ones in the tables.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{Error, Kind, Result, full_key};
use crate::engine::jobs::collection::state::Collection;
use crate::format::frame::{FrameKind, HEADER_BYTES};
use crate::format::record::Record;
use crate::format::references::References;
use crate::front::log_reader::{LogReader, Opened};
use crate::io::File;
use crate::values::files::{Layout, ValueFile};
use crate::values::newest::{Fate, SeenRecord};
use crate::values::segment::{EXTENT_HEADER_BYTES, Extent};

impl Collection<'_> {
    /// Reads the files and moves their live records.
    pub(super) fn move_read(&mut self, files: &[Arc<ValueFile>], reach: &References) -> Result<()> {
        for (index, file) in (0..).zip(files) {
            self.read(index, file, reach.of(file.id()).bytes)?;
            self.core.counters.bytes_read.fetch_add(file.end() - file.start(), Ordering::Relaxed);
        }
        self.settle()
    }

    /// Notes the records in a file; the ledger gives the upper bound on its live bytes.
    fn read(&mut self, index: u32, file: &ValueFile, live: u64) -> Result<()> {
        let mut read_to = file.start();
        let size = (file.end() - file.start()).max(1);
        let mut see = |offset: u64, record: &Record<'_>| {
            self.throttle.pause();
            self.note(index, offset, record);
            if self.batch.bytes() < self.batch_bytes_max {
                return Ok(());
            }
            let end = offset + record.operation.record_bytes() as u64;
            self.count_known(live, end - read_to, size);
            read_to = end;
            self.settle()
        };
        for_each_record(file, file.start(), &mut see)?;
        self.count_known(live, file.end() - read_to, size);
        Ok(())
    }

    /// Counts `read` bytes of a file of `size` bytes, of which the ledger knows `live` bytes to be live.
    fn count_known(&mut self, live: u64, read: u64, size: u64) {
        let live = (u128::from(live.min(size)) * u128::from(read) / u128::from(size)) as u64;
        self.known_live += live;
        self.known_garbage += read - live;
    }

    pub(super) fn note(&mut self, file: u32, offset: u64, record: &Record<'_>) {
        let kind = record.operation.kind;
        let fate = match self.referrers.iter().any(|referrer| referrer.refers_to(kind)) {
            true => Fate::Kept,
            // A tombstone of one key; range tombstones are not considered.
            false if kind == Kind::Delete => Fate::Covering,
            false => return,
        };
        let full = full_key(record.operation.keyspace, record.operation.key);
        let len = record.operation.record_bytes() as u32;
        let order = self.core.placement.order(&full);
        self.batch.add(&full, SeenRecord { order, seqno: record.seqno, kind, key: 0..0, file, offset, len, fate });
    }
}

/// Visits the records of a file at or after offset `from`, and possibly some before it.
pub(super) fn for_each_record(
    file: &ValueFile,
    from: u64,
    see: &mut dyn FnMut(u64, &Record<'_>) -> Result<()>,
) -> Result<()> {
    let source = file.stored().file()?;
    match file.layout() {
        Layout::Extent { start, .. } => {
            let start = from.saturating_sub(EXTENT_HEADER_BYTES as u64).max(*start);
            let extent = Extent { id: file.id(), start, end: file.end() };
            extent.for_each_record(&*source, &mut |offset, record, _| see(offset, record))
        }
        Layout::Log => for_each_record_of_log(file, &*source, see),
    }
}

/// Visits all records of a log that has left the front.
fn for_each_record_of_log(
    log: &ValueFile,
    source: &dyn File,
    see: &mut dyn FnMut(u64, &Record<'_>) -> Result<()>,
) -> Result<()> {
    let path = log.stored().path();
    let Opened::Log(mut reader) = LogReader::open(source, log.id(), None)? else {
        return Err(Error::corruption(path, 0, "the log has no header"));
    };
    while reader.offset() < log.end() {
        let Some(frame) = reader.next_frame()? else {
            let (offset, why) = reader.explain()?;
            return Err(Error::corruption(path, offset, why));
        };
        let mut offset = frame.offset + HEADER_BYTES as u64;
        let mut rest = if frame.header.kind == FrameKind::Records { frame.body } else { &[] };
        while !rest.is_empty() {
            let before = rest.len();
            let record = Record::take(&mut rest).map_err(|reason| Error::corruption(path, offset, reason))?;
            see(offset, &record)?;
            offset += (before - rest.len()) as u64;
        }
    }
    Ok(())
}
