//! Liveness as in WiscKey (section 3.3.2): each record is looked up by itself, as a read would. The baseline that the paper
//! experiments compare with; everything after it is as in other collections.

use std::sync::Arc;

use crate::base::{Error, KeyspaceId, Kind, Result, Seqno, full_key};
use crate::engine::jobs::collection::state::Collection;
use crate::format::frame::{FrameKind, HEADER_BYTES};
use crate::format::record::Record;
use crate::front::log_reader::{LogReader, Opened};
use crate::io::File;
use crate::values::files::{Layout, Located, ValueFile};
use crate::values::live_records::LiveRecords;
use crate::values::segment::Extent;
use crate::values::survey::KnownLive;

/// A record and its offset.
type VisitRecord<'a> = dyn FnMut(u64, &Record<'_>) -> Result<()> + 'a;

impl Collection<'_> {
    /// Looks every record of the files up.
    pub(super) fn look_up_each(&mut self) -> Result<Vec<KnownLive>> {
        let files: Vec<Arc<ValueFile>> = self.victims.iter().map(|victim| victim.file.clone()).collect();
        let mut known = Vec::new();
        for file in files {
            let mut live = Vec::new();
            for_each_record(&file, &mut |offset, record| {
                self.throttle.pause();
                let operation = &record.operation;
                if self.is_referenced(
                    &file,
                    offset,
                    (operation.keyspace, operation.key),
                    record.seqno,
                    operation.kind,
                )? {
                    live.push(offset);
                }
                Ok(())
            })?;
            known.push(KnownLive::Listed(Arc::new(LiveRecords::of(live))));
        }
        self.is_proven = true;
        Ok(known)
    }

    /// True if a version holds the address of a record, or one that leads to it. That there is the version does not suffice:
    /// a record that recovery wrote again (decision 004) is in two logs, and tables reference only one of them.
    fn is_referenced(
        &self,
        file: &ValueFile,
        offset: u64,
        (keyspace, key): (KeyspaceId, &[u8]),
        seqno: Seqno,
        kind: Kind,
    ) -> Result<bool> {
        let key = full_key(keyspace, key);
        let leads = |address| match self.horizon.view.values.locate(address) {
            Ok(Located::At(found, now)) => (found.id(), now.offset) == (file.id(), offset),
            Ok(Located::Dead | Located::Unknown) => false,
            // Undecidable: the record is kept.
            Err(_) => true,
        };
        for referrer in self.referrers.iter().filter(|referrer| referrer.refers_to(kind)) {
            if referrer.look_up(&key, seqno, &leads)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Visits all records of a file.
fn for_each_record(file: &ValueFile, see: &mut VisitRecord<'_>) -> Result<()> {
    let source = file.stored().file_in_order()?;
    match file.layout() {
        Layout::Extent { start, .. } => {
            let extent = Extent { id: file.id(), start: *start, end: file.end() };
            extent.for_each_record(&*source, &mut |offset, record, _| see(offset, record))
        }
        Layout::Log => for_each_record_of_log(file, &*source, see),
    }
}

/// Visits all records of a log that has left the front.
fn for_each_record_of_log(log: &ValueFile, source: &dyn File, see: &mut VisitRecord<'_>) -> Result<()> {
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
