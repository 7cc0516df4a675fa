//! Everything that can be said of a log by itself: every frame and record up to its end has its checksum and its turn, and
//! padding is empty. What damaged frames hide is looked for at the block borders behind them.
//!
//! Called by the check of a database; whether the logs together are one history is for recovery to say.

use super::log_reader::{LogReader, Opened};
use crate::base::{FileId, KeyspaceId, Result};
use crate::format::frame::{FrameKind, LOG_HEADER_BYTES};
use crate::format::record::Record;
use crate::io::File;

/// What is known of a log.
pub struct LogPlace<'a> {
    /// Its number.
    pub id: FileId,
    /// Where it ends, if that is settled.
    pub settled_end: Option<u64>,
    /// What was the ring, if it is not settled.
    pub ring: Option<&'a [u8]>,
}

/// What a log holds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct LogCounts {
    /// Bytes up to its end.
    pub bytes: u64,
    /// Records in whole frames.
    pub records: u64,
}

/// Reads a whole log and tells `problem` where something is wrong, and what. An error means that it could not be read.
pub fn check_log(
    file: &dyn File,
    place: &LogPlace<'_>,
    knows: &dyn Fn(KeyspaceId) -> bool,
    problem: &mut dyn FnMut(u64, String),
) -> Result<LogCounts> {
    let mut counts = LogCounts::default();
    let Opened::Log(mut reader) = LogReader::open(file, place.id, place.ring)? else {
        problem(0, "the log has no header".to_owned());
        return Ok(counts);
    };
    let end = place.settled_end;
    counts.bytes = LOG_HEADER_BYTES as u64;
    while end.is_none_or(|end| reader.offset() < end) {
        let Some(frame) = reader.next_frame()? else {
            let Some(end) = end else { break };
            let (offset, why) = reader.explain()?;
            problem(offset, format!("{why}, and the log is whole up to {end}"));
            if reader.skip_damage(end)? { continue } else { return Ok(counts) }
        };
        match frame.header.kind {
            FrameKind::Padding if frame.body.iter().any(|&byte| byte != 0) => {
                problem(frame.offset, "padding holds something".to_owned());
            }
            FrameKind::Padding => {}
            FrameKind::Records => {
                let mut body = frame.body;
                while let Ok(record) = Record::take(&mut body) {
                    counts.records += 1;
                    let keyspace = record.operation.keyspace;
                    if !knows(keyspace) {
                        let message =
                            format!("record {} is in keyspace {}, which never was", record.seqno.0, keyspace.0);
                        problem(frame.offset, message);
                    }
                }
            }
        }
        counts.bytes = frame.offset + frame.header.frame_bytes();
    }
    if let Some(end) = end.filter(|&end| reader.offset() > end) {
        problem(end, format!("a frame reaches over the end of the log, to {}", reader.offset()));
    }
    Ok(counts)
}
