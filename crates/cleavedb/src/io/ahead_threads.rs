//! Threads that read ahead: each takes the next piece of a file from a queue and reads it into a buffer, while the reader
//! works on what comes before. They are started when there is something to read, up to a limit; all jobs of a database
//! share them.
//!
//! No reader waits for the queue: one that reaches a piece which no thread has begun takes it back and reads by itself. So
//! everything works without threads, only slower. Called by [`OrderedFile`](super::ordered_file::OrderedFile).

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::aligned::AlignedBuffer;
use super::read_ahead::{ReadAhead, Reservation};
use super::storage::File;
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::{JoinHandle, try_spawn};

/// As many reads are in flight besides those of the readers themselves.
const THREADS_MAX: usize = 4;

/// A part of a file, of whole blocks, that is read ahead.
pub(super) struct Piece {
    file: Arc<dyn File>,
    pub(super) start: u64,
    pub(super) end: u64,
    content: Mutex<Content>,
    arrived: Condvar,
    /// The memory of the buffer.
    _room: Reservation,
}

enum Content {
    /// No thread has begun to read it.
    Queued(AlignedBuffer),
    Coming,
    /// Read, with the number of its bytes that lie before the end of the file.
    Here(AlignedBuffer, usize),
    /// Taken back, or the read failed: the reader makes the read, and meets the error.
    Missing,
}

impl Piece {
    /// `len` bytes of `file` from `start` on, to be read into memory that is reserved by `room`.
    pub(super) fn new(file: Arc<dyn File>, start: u64, len: usize, room: Reservation) -> Arc<Piece> {
        assert!(len <= room.bytes(), "the memory of a piece is reserved");
        let content = Mutex::new(Content::Queued(AlignedBuffer::new(len)));
        Arc::new(Piece { file, start, end: start + len as u64, content, arrived: Condvar::new(), _room: room })
    }

    /// Reads it, unless it was taken back.
    fn read(&self) {
        let taken = {
            let mut content = self.content.lock();
            match &*content {
                Content::Queued(_) => std::mem::replace(&mut *content, Content::Coming),
                Content::Coming | Content::Here(..) | Content::Missing => return,
            }
        };
        let Content::Queued(mut buffer) = taken else { return };
        let len = (self.end - self.start) as usize;
        let read = catch_unwind(AssertUnwindSafe(|| self.file.read_at(&mut buffer[..len], self.start)));
        *self.content.lock() = match read {
            Ok(Ok(count)) => Content::Here(buffer, count),
            Ok(Err(_)) | Err(_) => Content::Missing,
        };
        self.arrived.notify_all();
    }

    /// Gives it up if no thread has begun to read it.
    pub(super) fn take_back(&self) {
        let mut content = self.content.lock();
        if matches!(*content, Content::Queued(_)) {
            *content = Content::Missing;
        }
    }

    /// Copies its bytes from offset `at` on, which lies in it, as soon as they are here: how many. `None` if the reader
    /// must read them.
    pub(super) fn copy_to(&self, buffer: &mut [u8], at: u64) -> Option<usize> {
        let mut content = self.content.lock();
        loop {
            match &*content {
                Content::Coming => self.arrived.wait(&mut content),
                Content::Queued(_) => *content = Content::Missing,
                Content::Missing => return None,
                Content::Here(bytes, count) => {
                    let begin = (at - self.start) as usize;
                    let len = count.saturating_sub(begin).min(buffer.len());
                    buffer[..len].copy_from_slice(&bytes[begin..begin + len]);
                    return Some(len);
                }
            }
        }
    }
}

/// The threads, and the memory that they may fill.
pub struct AheadThreads {
    shared: Arc<Shared>,
    /// The memory for pieces.
    pub(super) pool: Arc<ReadAhead>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    pieces: VecDeque<Arc<Piece>>,
    threads: Vec<JoinHandle>,
    /// Threads that wait for a piece.
    idle: usize,
    stopped: bool,
}

impl Shared {
    fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.stopped {
            if let Some(piece) = queue.pieces.pop_front() {
                drop(queue);
                piece.read();
                // Before the lock: it may be the last holder, and frees the memory.
                drop(piece);
                queue = self.queue.lock();
                continue;
            }
            queue.idle += 1;
            self.changed.wait(&mut queue);
            queue.idle -= 1;
        }
    }
}

impl AheadThreads {
    /// No threads yet. What they read is in memory of `pool`.
    pub fn new(pool: Arc<ReadAhead>) -> Arc<AheadThreads> {
        Arc::new(AheadThreads { shared: Arc::default(), pool })
    }

    /// Lets a thread read a piece. It stays in the queue, to be taken back, if there is none.
    pub(super) fn read(&self, piece: Arc<Piece>) {
        let mut queue = self.shared.queue.lock();
        if queue.stopped {
            drop(queue);
            return piece.take_back();
        }
        queue.pieces.push_back(piece);
        if queue.pieces.len() > queue.idle && queue.threads.len() < THREADS_MAX {
            let shared = self.shared.clone();
            // Without it, the others read, or the reader itself.
            queue.threads.extend(try_spawn("cleave-ahead", move || shared.run()).ok());
        }
        if queue.threads.is_empty() {
            queue.pieces.clear();
        }
        drop(queue);
        self.shared.changed.notify_one();
    }

    /// Ends the threads. Nothing is read ahead any more.
    pub fn stop(&self) {
        let threads = {
            let mut queue = self.shared.queue.lock();
            queue.stopped = true;
            queue.pieces.clear();
            std::mem::take(&mut queue.threads)
        };
        self.shared.changed.notify_all();
        for thread in threads {
            // A panic while reading was caught, and made the reader read by itself.
            let _ = thread.join();
        }
    }
}

impl Drop for AheadThreads {
    fn drop(&mut self) {
        self.stop();
    }
}
