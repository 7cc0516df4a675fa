//! Checks one log: the checksum and sequence number of every frame and record up to its end, and that padding is zero.
//! Behind a damaged frame the check continues at the next frame that starts at a block border.
//!
//! Called by the check of a database. Whether all logs together form one history is checked by recovery.

use super::log_reader::{LogReader, Opened};
use crate::base::{FileId, KeyspaceId, Result};
use crate::format::frame::{FrameKind, LOG_HEADER_BYTES};
use crate::format::record::Record;
use crate::io::File;

/// A log to check.
pub struct LogPlace<'a> {
    /// The file number of the log.
    pub id: FileId,
    /// Where the log ends, if the manifest has recorded that.
    pub settled_end: Option<u64>,
    /// The content of the ring, if the manifest has not.
    pub ring: Option<&'a [u8]>,
}

/// What a log contains.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LogCounts {
    /// Bytes up to the end of the log.
    pub bytes: u64,
    /// Number of records in intact frames.
    pub records: u64,
}

/// Reads a whole log and reports each problem, with its offset, to `report`.
///
/// # Errors
/// If the log cannot be read.
pub fn check_log(
    file: &dyn File,
    place: &LogPlace<'_>,
    knows: &dyn Fn(KeyspaceId) -> bool,
    report: &mut dyn FnMut(u64, String),
) -> Result<LogCounts> {
    let mut counts = LogCounts::default();
    let Opened::Log(mut reader) = LogReader::open(file, place.id, place.ring)? else {
        report(0, "the log has no header".to_owned());
        return Ok(counts);
    };
    let end = place.settled_end;
    counts.bytes = LOG_HEADER_BYTES as u64;
    while end.is_none_or(|end| reader.offset() < end) {
        let Some(frame) = reader.next_frame()? else {
            let Some(end) = end else { break };
            let (offset, why) = reader.explain()?;
            report(offset, format!("{why}, but the log should be intact up to {end}"));
            if reader.skip_damage(end)? { continue } else { return Ok(counts) }
        };
        match frame.header.kind {
            FrameKind::Padding if frame.body.iter().any(|&byte| byte != 0) => {
                report(frame.offset, "padding is not zero".to_owned());
            }
            FrameKind::Padding => {}
            FrameKind::Records => {
                let mut body = frame.body;
                while let Ok(record) = Record::take(&mut body) {
                    counts.records += 1;
                    let keyspace = record.operation.keyspace;
                    if !knows(keyspace) {
                        let message =
                            format!("record {} is in keyspace {}, which never existed", record.seqno.0, keyspace.0);
                        report(frame.offset, message);
                    }
                }
            }
        }
        counts.bytes = frame.offset + frame.header.frame_bytes();
    }
    if let Some(end) = end.filter(|&end| reader.offset() > end) {
        report(end, format!("a frame extends beyond the end of the log, to offset {}", reader.offset()));
    }
    Ok(counts)
}
