//! Writes chunks of logs with large direct writes, several in flight, on threads of its own. Writes complete in any
//! order; the written offset of a log only advances in order. Chunks that wait because the disk is busy are written together,
//! since many disks take large writes far faster than small ones.
//!
//! Called by the log writer (submit), by `sync` (wait), and by writers that are faster than the disk (which wait for
//! buffers or ring space).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::log::LogFile;
use crate::base::{Error, Result};
use crate::io::aligned::AlignedBuffer;
use crate::sched::clock::now;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::thread::{JoinHandle, try_spawn};

/// Chunks are written together up to this many bytes.
const TOGETHER_BYTES: usize = 1 << 20;

/// A part of a log that is to be written to the file.
pub struct Chunk {
    /// The log.
    pub log: Arc<LogFile>,
    /// Offset in the log: a multiple of the block size.
    pub offset: u64,
    /// The bytes.
    pub buffer: AlignedBuffer,
    /// Number of bytes to write: a multiple of the block size.
    pub len: usize,
    /// Once the chunk is written, the ring may be overwritten below this stream position.
    pub ring_tail: u64,
}

/// Identifies a submitted chunk; later chunks have higher tickets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Ticket(u64);

/// The writer threads and their queue.
pub struct ChunkWriter {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle>>,
}

struct Shared {
    state: Mutex<ChunkState>,
    work: Condvar,
    done: Condvar,
}

#[derive(Default)]
struct ChunkState {
    queue: VecDeque<(Ticket, Chunk)>,
    buffers: Vec<AlignedBuffer>,
    last_ticket: Ticket,
    /// All chunks up to this one are written.
    written: Ticket,
    /// Chunks that were written before some earlier ones, and what to publish once those are written too.
    ahead: BTreeMap<Ticket, Publication>,
    ring_tail: u64,
    /// The first failure. All that wait get it, and no further chunk counts as written.
    failed: Option<Error>,
    stop: bool,
}

struct Publication {
    log: Arc<LogFile>,
    end: u64,
    ring_tail: u64,
}

impl ChunkWriter {
    /// Starts `threads` threads that share `buffers` buffers of `chunk_bytes`. If one cannot be started, none is left
    /// running.
    pub fn start(threads: usize, buffers: usize, chunk_bytes: usize) -> Result<ChunkWriter> {
        let state = ChunkState {
            buffers: (0..buffers).map(|_| AlignedBuffer::new(chunk_bytes)).collect(),
            ..ChunkState::default()
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), work: Condvar::new(), done: Condvar::new() });
        let writer = ChunkWriter { shared, threads: Mutex::default() };
        for index in 0..threads {
            let shared = writer.shared.clone();
            let thread = try_spawn(&format!("cleave-log-{index}"), move || shared.run())?;
            writer.threads.lock().push(thread);
        }
        Ok(writer)
    }

    /// Returns a buffer to fill; waits while all are in flight.
    pub fn buffer(&self) -> Result<AlignedBuffer> {
        let mut state = self.wait_until(|state| !state.buffers.is_empty())?;
        Ok(state.buffers.pop().expect("the wait ended because there is a buffer"))
    }

    /// Waits until a buffer is free, or until `deadline`; false if none is free by then.
    pub fn wait_for_buffer(&self, deadline: Duration) -> Result<bool> {
        let mut state = self.shared.state.lock();
        while state.buffers.is_empty() && state.failed.is_none() {
            let rest = deadline.saturating_sub(now());
            if rest.is_zero() {
                return Ok(false);
            }
            self.shared.done.wait_for(&mut state, rest);
        }
        state.check_failed().map(|()| true)
    }

    /// Returns a buffer that was not used.
    pub fn return_buffer(&self, buffer: AlignedBuffer) {
        self.shared.state.lock().buffers.push(buffer);
        self.shared.done.notify_all();
    }

    /// Queues a chunk.
    pub fn submit(&self, chunk: Chunk) -> Ticket {
        let mut state = self.shared.state.lock();
        state.last_ticket.0 += 1;
        let ticket = state.last_ticket;
        state.queue.push_back((ticket, chunk));
        drop(state);
        self.shared.work.notify_one();
        ticket
    }

    /// Waits until the chunk and all earlier ones are written (not synced).
    pub fn wait(&self, ticket: Ticket) -> Result<()> {
        self.wait_until(|state| state.written >= ticket).map(drop)
    }

    /// Waits until the ring may be overwritten below stream position `tail`.
    pub fn wait_ring_tail(&self, tail: u64) -> Result<()> {
        self.wait_until(|state| state.ring_tail >= tail).map(drop)
    }

    fn wait_until(&self, ready: impl Fn(&ChunkState) -> bool) -> Result<MutexGuard<'_, ChunkState>> {
        let mut state = self.shared.state.lock();
        loop {
            state.check_failed()?;
            if ready(&state) {
                return Ok(state);
            }
            self.shared.done.wait(&mut state);
        }
    }

    /// Writes all queued chunks and stops the threads.
    pub fn stop(&self) {
        self.shared.state.lock().stop = true;
        self.shared.work.notify_all();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            // A failed write is recorded in the state, and no caller is left.
            let _ = thread.join();
        }
    }
}

impl Drop for ChunkWriter {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        loop {
            let taken = state.take_adjacent();
            match taken.first() {
                Some((_, first)) => {
                    drop(state);
                    let write = || {
                        let file = first.log.file();
                        let parts: Vec<&[u8]> = taken.iter().map(|(_, chunk)| &chunk.buffer[..chunk.len]).collect();
                        file.write_parts(&parts, first.offset)?;
                        file.write_back(first.offset, parts.iter().map(|part| part.len() as u64).sum());
                        Ok(())
                    };
                    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_or_else(|_| {
                        let cause = format!("writing {} panicked", first.log.path().display());
                        Err(Error::Poisoned { cause })
                    });
                    state = self.state.lock();
                    for (ticket, chunk) in taken {
                        state.finish(ticket, chunk, result.clone());
                    }
                    self.done.notify_all();
                }
                None if state.stop => return,
                None => self.work.wait(&mut state),
            }
        }
    }
}

impl ChunkState {
    /// Takes the first chunk of the queue, and those behind it that follow it in its log.
    fn take_adjacent(&mut self) -> Vec<(Ticket, Chunk)> {
        let (mut end, mut bytes) = (None, 0);
        let adjacent = self.queue.iter().take_while(|(_, chunk)| {
            let follows = end.is_none_or(|(log, offset)| (log, offset) == (chunk.log.id(), chunk.offset));
            end = Some((chunk.log.id(), chunk.offset + chunk.len as u64));
            bytes += chunk.len;
            follows && (bytes <= TOGETHER_BYTES || bytes == chunk.len)
        });
        let count = adjacent.count();
        self.queue.drain(..count).collect()
    }

    fn check_failed(&self) -> Result<()> {
        match &self.failed {
            Some(error) => Err(error.clone()),
            None => Ok(()),
        }
    }

    fn finish(&mut self, ticket: Ticket, chunk: Chunk, result: Result<()>) {
        self.buffers.push(chunk.buffer);
        if let Err(error) = result {
            // Space was reserved when the log was created, so a failure here means that the storage is unreliable.
            self.failed.get_or_insert_with(|| error.lasting(chunk.log.path(), "write"));
            return;
        }
        let end = chunk.offset + chunk.len as u64;
        self.ahead.insert(ticket, Publication { log: chunk.log, end, ring_tail: chunk.ring_tail });
        while let Some(next) = self.ahead.remove(&Ticket(self.written.0 + 1)) {
            self.written.0 += 1;
            self.ring_tail = self.ring_tail.max(next.ring_tail);
            next.log.set_written(next.end);
        }
    }
}
