//! A file that one reader reads from front to back, past the page cache. What the reader announces with
//! [`File::read_ahead`] is fetched into a second buffer by a thread, as the system does for reads through the page cache, so
//! that the device works while the reader does.
//!
//! Only what is announced is fetched, in the order of the announcements. A read takes what is there of its range and
//! makes the rest itself, so hints never change results; a failed fetch is repeated by the reader, which meets the error.
//! Buffers are memory of a pool of [`ReadAhead`](super::read_ahead::ReadAhead): without memory nothing is fetched.
//!
//! Called by jobs, recovery and checkpoints, through `levels/readers.rs`. Each reader has its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use super::ahead_threads::{AheadThreads, Piece};
use super::storage::File;
use crate::base::Result;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::sched::sync::Mutex;

const BLOCK: u64 = BLOCK_IO_BYTES as u64;
/// At most this much is fetched and not yet read: a read of the largest size that jobs use, and as much behind it.
const AHEAD_BYTES_MAX: u64 = 2 << 20;
/// The most pieces that are fetched and not yet read: readers that pick out records announce short ones.
const PIECES_MAX: usize = 32;
/// While there is memory only for less, nothing is fetched, unless less was announced or the pool is small.
const PIECE_BYTES_MIN: u64 = 128 << 10;
/// The same, as a part of the pool.
const PIECE_PART_MIN: usize = 8;

/// A file, as one reader sees it.
pub struct OrderedFile {
    file: Arc<dyn File>,
    threads: Arc<AheadThreads>,
    ahead: Mutex<Ahead>,
}

/// What was announced, in ascending order.
#[derive(Default)]
struct Ahead {
    /// Fetched, or being fetched.
    pieces: VecDeque<Arc<Piece>>,
    /// Not begun.
    wanted: VecDeque<Range<u64>>,
    /// Where the last announcement began, and where all of them end.
    last: u64,
    end: u64,
}

impl Ahead {
    fn clear(&mut self) {
        self.pieces.drain(..).for_each(|piece| piece.take_back());
        self.wanted.clear();
        (self.last, self.end) = (0, 0);
    }

    fn announce(&mut self, offset: u64, len: u64) {
        if len == 0 {
            return;
        }
        if offset < self.last {
            // The reader has gone back.
            self.clear();
        }
        self.last = offset;
        let start = (offset / BLOCK * BLOCK).max(self.end);
        let end = offset.saturating_add(len).div_ceil(BLOCK).saturating_mul(BLOCK);
        if start < end {
            self.wanted.push_back(start..end);
            self.end = end;
        }
    }

    /// Gives up what lies before an offset.
    fn pass(&mut self, offset: u64) {
        while self.pieces.front().is_some_and(|piece| piece.end <= offset) {
            self.pieces.pop_front().into_iter().for_each(|piece| piece.take_back());
        }
        while let Some(next) = self.wanted.front_mut() {
            next.start = next.start.max(offset / BLOCK * BLOCK);
            if next.start < next.end {
                break;
            }
            self.wanted.pop_front();
        }
    }

    /// Takes as much of what is wanted as may be fetched now, in pieces, if the reader is at an offset.
    fn begin(&mut self, offset: u64, file: &Arc<dyn File>, threads: &AheadThreads) {
        while let Some(next) = self.wanted.front_mut() {
            let unread: u64 = self.pieces.iter().map(|piece| piece.end - piece.start.max(offset.min(piece.end))).sum();
            let wanted = (next.end - next.start).min(AHEAD_BYTES_MAX.saturating_sub(unread)) / BLOCK * BLOCK;
            if wanted == 0 || self.pieces.len() >= PIECES_MAX {
                return;
            }
            let room = threads.pool.reserve_second((wanted as usize).next_power_of_two());
            let len = wanted.min(room.bytes() as u64);
            let least = PIECE_BYTES_MIN.min((threads.pool.bytes_max() / PIECE_PART_MIN) as u64);
            if len == 0 || len < (next.end - next.start).min(least) {
                return;
            }
            let piece = Piece::new(file.clone(), next.start, len as usize, room);
            next.start += len;
            if next.start == next.end {
                self.wanted.pop_front();
            }
            self.pieces.push_back(piece.clone());
            threads.read(piece);
        }
    }
}

impl OrderedFile {
    /// `file`, for one reader.
    pub fn new(file: Arc<dyn File>, threads: Arc<AheadThreads>) -> OrderedFile {
        OrderedFile { file, threads, ahead: Mutex::default() }
    }

    /// What was fetched for a read at an offset, and up to where the reader must read itself if it was not.
    fn piece_at(&self, offset: u64) -> (Option<Arc<Piece>>, u64) {
        let mut ahead = self.ahead.lock();
        ahead.pass(offset);
        ahead.begin(offset, &self.file, &self.threads);
        match ahead.pieces.front() {
            None => (None, u64::MAX),
            Some(piece) if piece.start <= offset => (Some(piece.clone()), piece.end),
            Some(piece) => (None, piece.start),
        }
    }
}

impl File for OrderedFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            let (at, rest) = (offset + filled as u64, &mut buffer[filled..]);
            let (piece, until) = self.piece_at(at);
            let rest_len = usize::try_from(until - at).unwrap_or(usize::MAX).min(rest.len());
            let (wanted, found) = match piece.and_then(|piece| piece.copy_to(rest, at)) {
                Some(found) => (1, found),
                None => (rest_len, self.file.read_at(&mut rest[..rest_len], at)?),
            };
            filled += found;
            if found < wanted {
                // The end of the file.
                break;
            }
        }
        let mut ahead = self.ahead.lock();
        ahead.pass(offset + filled as u64);
        ahead.begin(offset + filled as u64, &self.file, &self.threads);
        Ok(filled)
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        let mut ahead = self.ahead.lock();
        ahead.announce(offset, len);
        ahead.begin(offset, &self.file, &self.threads);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_at(bytes, offset)
    }

    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.file.write_parts(parts, offset)
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        self.file.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }
}

impl Drop for OrderedFile {
    fn drop(&mut self) {
        self.ahead.lock().clear();
    }
}

#[cfg(test)]
#[path = "ordered_file_test.rs"]
mod tests;
