//! Appends frames to the log, with one of two back ends.
//!
//! *Ring*: a frame is copied to the mapped ring, where it survives a crash of the process, and to an aligned chunk,
//! which is written to the preallocated log with large direct writes. The ring is not overwritten before its bytes are
//! in the log. *Plain*: a frame is written to the log through the page cache.
//!
//! Owned by the commit path, which holds the commit lock during every call. A synced block is never written again:
//! before a sync, a padding frame fills the rest of the block.

use std::io;
use std::sync::Arc;

use super::chunk_writer::{Chunk, ChunkWriter, Ticket};
use super::log::{LogFile, write_ring};
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result, Seqno, verify};
use crate::format::frame::{FrameHeader, FrameKind, HEADER_BYTES, padding_bytes};
use crate::io::Mapping;
use crate::io::aligned::AlignedBuffer;

/// Largest single write of the plain back end, in bytes.
const PLAIN_WRITE_BYTES: usize = 1 << 20;

/// How frames are written to logs.
pub enum BackEnd {
    /// Mapped ring and direct writes.
    Ring {
        /// The ring.
        ring: Arc<dyn Mapping>,
        /// The threads that write chunks.
        chunks: Arc<ChunkWriter>,
        /// Size of a chunk in bytes; at most a quarter of the ring.
        chunk_bytes: usize,
    },
    /// The page cache.
    Plain,
}

/// Appends frames to the active log.
pub struct LogWriter {
    back_end: BackEnd,
    active: Option<Active>,
    last_ticket: Ticket,
    /// The ring tail of the last submitted chunk.
    submitted_tail: u64,
}

struct Active {
    log: Arc<LogFile>,
    /// Offset of the next byte.
    end: u64,
    /// Offset of the frame that is being appended.
    frame_start: u64,
    /// Stream position of offset 0. Stream positions continue across logs, and the ring is used in their order.
    stream_base: u64,
    /// A sync had no space for its padding, so the last block is incomplete and nothing may be appended.
    is_ended: bool,
    /// The frame is too large for the ring, so it is written to the file before it is acknowledged.
    bypasses_ring: bool,
    /// Ring: the bytes from `pending_offset` that are not submitted yet. Plain: those that are not written yet.
    pending: Pending,
    pending_offset: u64,
}

enum Pending {
    /// The buffer is allocated with the first byte.
    Chunk {
        buffer: Option<AlignedBuffer>,
        len: usize,
    },
    Plain(Vec<u8>),
}

/// What a sync has to wait for and to sync, captured under the commit lock.
pub struct LogSyncPoint {
    ticket: Ticket,
    chunks: Option<Arc<ChunkWriter>>,
    /// The log that is being written.
    pub log: Option<Arc<LogFile>>,
}

impl LogSyncPoint {
    /// Waits until all submitted bytes are in their files. Called without the commit lock.
    pub fn wait(&self) -> Result<()> {
        self.chunks.as_ref().map_or(Ok(()), |chunks| chunks.wait(self.ticket))
    }
}

impl LogWriter {
    /// A writer without a log.
    pub fn new(back_end: BackEnd) -> LogWriter {
        if let BackEnd::Ring { ring, chunk_bytes, .. } = &back_end {
            assert!(chunk_bytes * 4 <= ring.len(), "a chunk is at most a quarter of the ring");
        }
        LogWriter { back_end, active: None, last_ticket: Ticket::default(), submitted_tail: 0 }
    }

    /// The log that is being written.
    pub fn active(&self) -> Option<&Arc<LogFile>> {
        self.active.as_ref().map(|active| &active.log)
    }

    /// True if a frame of `bytes` fits in the active log, whose capacity must not exceed `capacity_max`: a log created
    /// for one oversized frame accepts no other frames.
    pub fn has_room(&self, bytes: u64, capacity_max: u64) -> bool {
        self.active
            .as_ref()
            .filter(|active| !active.is_ended)
            .is_some_and(|active| active.end + bytes <= active.log.capacity() && active.log.capacity() <= capacity_max)
    }

    /// True if the log was made for the ring of this writer.
    pub fn fits(&self, log: &LogFile) -> bool {
        match (&self.back_end, log.ring()) {
            (BackEnd::Ring { ring, .. }, Some(other)) => std::ptr::addr_eq(Arc::as_ptr(ring), Arc::as_ptr(other)),
            (BackEnd::Plain, None) => true,
            _ => false,
        }
    }

    /// Brings everything into the active log's file (not synced), so that the ring is not needed any more, and gives up
    /// that log.
    pub fn end(&mut self) -> Result<Option<Arc<LogFile>>> {
        self.submit_pending();
        self.sync_point().wait()?;
        Ok(self.active.take().map(|active| active.log))
    }

    /// Switches to `log`, an empty log, and submits the pending bytes of the previous log; returns that log.
    pub fn rotate(&mut self, log: Arc<LogFile>) -> Option<Arc<LogFile>> {
        self.submit_pending();
        let pending = match &self.back_end {
            BackEnd::Ring { .. } => Pending::Chunk { buffer: None, len: 0 },
            BackEnd::Plain => Pending::Plain(Vec::new()),
        };
        let end = log.end();
        let before = self.active.take();
        let stream_base = match (&self.back_end, &before) {
            (BackEnd::Ring { ring, .. }, Some(before)) => {
                (before.stream_base + before.end).next_multiple_of(ring.len() as u64)
            }
            _ => 0,
        };
        self.active = Some(Active {
            log,
            end,
            frame_start: end,
            stream_base,
            is_ended: false,
            bypasses_ring: false,
            pending,
            pending_offset: end,
        });
        before.map(|before| before.log)
    }

    /// Starts a frame of `bytes` (header included), for which there must be room; returns its offset. Waits for space
    /// in the ring.
    pub fn begin(&mut self, bytes: u64) -> Result<u64> {
        let active = self.active.as_mut().expect("a frame starts in an active log");
        assert!(active.end + bytes <= active.log.capacity(), "a frame only starts where it fits");
        active.frame_start = active.end;
        active.bypasses_ring = false;
        if let BackEnd::Ring { ring, chunks, .. } = &self.back_end {
            let ring_bytes = ring.len() as u64;
            if bytes > ring_bytes / 4 {
                active.bypasses_ring = true;
            } else {
                // Bytes that are not submitted yet span less than half of the ring, so they are never overwritten.
                let tail = (active.stream_base + active.end + bytes).saturating_sub(ring_bytes);
                if tail > self.submitted_tail {
                    // No chunk releases the ring up to there: the last chunk of a long frame releases it up to the
                    // start of the frame, and a new log starts at the next multiple of the ring size.
                    chunks.wait(self.last_ticket)?;
                }
                chunks.wait_ring_tail(tail.min(self.submitted_tail))?;
            }
        }
        Ok(active.frame_start)
    }

    /// Appends a part of the frame.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        let active = self.active.as_mut().expect("a frame is pushed into an active log");
        match &self.back_end {
            BackEnd::Ring { ring, chunks, chunk_bytes } => {
                if !active.bypasses_ring {
                    write_ring(&**ring, active.end, bytes);
                }
                while !bytes.is_empty() {
                    let Pending::Chunk { buffer, len } = &mut active.pending else {
                        unreachable!("the ring back end fills chunks")
                    };
                    // Chunks end at multiples of their size, so that direct writes stay aligned after a sync.
                    let room = chunk_bytes - (active.pending_offset % *chunk_bytes as u64) as usize - *len;
                    let part = room.min(bytes.len());
                    let buffer = match buffer {
                        Some(buffer) => buffer,
                        none => none.insert(chunks.buffer()?),
                    };
                    buffer[*len..*len + part].copy_from_slice(&bytes[..part]);
                    *len += part;
                    active.end += part as u64;
                    bytes = &bytes[part..];
                    if part == room {
                        (self.last_ticket, self.submitted_tail) = active.submit(chunks);
                    }
                }
            }
            BackEnd::Plain => {
                let Pending::Plain(pending) = &mut active.pending else {
                    unreachable!("the plain back end buffers bytes")
                };
                // Large values are written in parts, so that they are not buffered as a whole.
                let room = PLAIN_WRITE_BYTES - pending.len();
                let (part, rest) = bytes.split_at(room.min(bytes.len()));
                pending.extend_from_slice(part);
                active.end += part.len() as u64;
                if part.len() == room {
                    active.write_pending()?;
                }
                if !rest.is_empty() {
                    return self.push(rest);
                }
            }
        }
        Ok(())
    }

    /// Ends the frame: from now on it survives a crash of the process.
    pub fn finish(&mut self, last_seqno: Seqno) -> Result<()> {
        let active = self.active.as_mut().expect("a frame is finished in an active log");
        if matches!(self.back_end, BackEnd::Plain) {
            active.write_pending()?;
        }
        active.log.set_last_seqno(last_seqno);
        active.log.set_end(active.end);
        if active.bypasses_ring {
            self.pad(last_seqno, Seqno::ZERO)?;
            self.submit_pending();
            self.sync_point().wait()?;
        }
        Ok(())
    }

    /// Abandons the frame after [`Error::NoSpace`]: truncates the log to its last complete frame.
    pub fn abandon(&mut self) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        if let Pending::Plain(pending) = &mut active.pending {
            pending.clear();
            active.end = active.frame_start;
            active.pending_offset = active.frame_start;
            return active.log.file().truncate(active.frame_start);
        }
        Err(Error::Poisoned { cause: format!("a frame in {} is incomplete", active.log.path().display()) })
    }

    /// Pads to a block border and submits all pending bytes, in preparation of a sync.
    /// `last_seqno` is the newest record, `sync_point` the newest durable one.
    pub fn prepare_sync(&mut self, last_seqno: Seqno, sync_point: Seqno) -> Result<LogSyncPoint> {
        self.pad(last_seqno, sync_point)?;
        self.submit_pending();
        Ok(self.sync_point())
    }

    fn sync_point(&self) -> LogSyncPoint {
        let chunks = match &self.back_end {
            BackEnd::Ring { chunks, .. } => Some(chunks.clone()),
            BackEnd::Plain => None,
        };
        LogSyncPoint { ticket: self.last_ticket, chunks, log: self.active().cloned() }
    }

    fn pad(&mut self, last_seqno: Seqno, sync_point: Seqno) -> Result<()> {
        let Some(active) = &mut self.active else { return Ok(()) };
        let padding = padding_bytes(active.end);
        if padding == 0 || active.is_ended || active.end + padding > active.log.capacity() {
            // At the end of a log there may be no room for a padding frame; nothing will follow anyway.
            return Ok(());
        }
        let header = FrameHeader {
            kind: FrameKind::Padding,
            body_len: (padding - HEADER_BYTES as u64) as u32,
            count: 0,
            first_seqno: last_seqno.next(),
            sync_point,
            body_crc: 0,
        };
        let offset = self.begin(padding)?;
        let log = self.active().expect("padding does not change the active log").id();
        let mut frame = header.encode(log, offset).to_vec();
        frame.resize(padding as usize, 0);
        self.push(&frame)?;
        let plain = matches!(self.back_end, BackEnd::Plain);
        let active = self.active.as_mut().expect("padding does not change the active log");
        if plain && let Err(error) = active.write_pending() {
            // The log permanently ends before the padding. Its frames are published and can be synced, as after any
            // abandoned frame.
            let path = active.log.path().to_owned();
            // Not an error that is poisoned already: its tier is named where writes are stopped for it.
            let both = |second| Error::io(&path, "write", io::Error::other(format!("{error}; then {second}")));
            self.abandon().map_err(both)?;
            let active = self.active.as_mut().expect("padding does not change the active log");
            active.is_ended = true;
            return if error.is_transient() { Ok(()) } else { Err(error) };
        }
        active.frame_start = active.end;
        active.log.set_end(active.end);
        Ok(())
    }

    fn submit_pending(&mut self) {
        let (Some(active), BackEnd::Ring { chunks, .. }) = (&mut self.active, &self.back_end) else {
            return;
        };
        active.frame_start = active.end;
        if matches!(active.pending, Pending::Chunk { len, .. } if len > 0) {
            (self.last_ticket, self.submitted_tail) = active.submit(chunks);
        }
    }
}

impl Active {
    /// Queues the pending chunk, zero-filled to a block border.
    fn submit(&mut self, chunks: &ChunkWriter) -> (Ticket, u64) {
        let Pending::Chunk { buffer, len } = &mut self.pending else {
            unreachable!("only the ring back end submits chunks")
        };
        let mut buffer = buffer.take().expect("a submitted chunk has a buffer");
        let used = std::mem::replace(len, 0);
        let whole = used.next_multiple_of(BLOCK_IO_BYTES);
        buffer[used..whole].fill(0);
        verify!(self.pending_offset + used as u64 <= self.end, "a chunk ends within the log");
        let ring_tail = self.stream_base + self.frame_start;
        let (log, offset) = (self.log.clone(), self.pending_offset);
        self.pending_offset += whole as u64;
        (chunks.submit(Chunk { log, offset, buffer, len: whole, ring_tail }), ring_tail)
    }

    fn write_pending(&mut self) -> Result<()> {
        let Pending::Plain(pending) = &mut self.pending else {
            unreachable!("only the plain back end writes through the page cache")
        };
        if !pending.is_empty() {
            self.log.file().write_at(pending, self.pending_offset)?;
            self.pending_offset += pending.len() as u64;
            pending.clear();
            self.log.set_written(self.pending_offset);
        }
        Ok(())
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        if let (
            BackEnd::Ring { chunks, .. },
            Some(Active { pending: Pending::Chunk { buffer: Some(buffer), .. }, .. }),
        ) = (&self.back_end, self.active.take())
        {
            chunks.return_buffer(buffer);
        }
    }
}

#[cfg(test)]
#[path = "log_writer_test.rs"]
mod tests;
