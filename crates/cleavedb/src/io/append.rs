//! Appending to a part of a file in large writes, through the page cache or past it. Direct writes are of whole blocks, so
//! the bytes of an incomplete block wait for the next ones, and the last block is padded with zeros.

use std::collections::VecDeque;
use std::sync::Arc;

use super::aligned::AlignedBuffer;
use super::storage::{Access, File};
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result};
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::{JoinHandle, try_spawn};

/// Direct writes of one file under construction. A thread writes them one after the other while the caller goes on; through
/// the page cache the system does the same.
pub struct WriteBuffer {
    file: Arc<dyn File>,
    /// `None` if writes go through the page cache.
    behind: Option<Arc<WriteBehind>>,
    /// Bytes of one write.
    piece_bytes: usize,
    /// What the next write begins with: whole blocks, how many bytes, and their offset.
    filling: Option<(AlignedBuffer, usize, u64)>,
    /// Started by the first write that does not wait.
    thread: Option<JoinHandle>,
}

/// How many buffers are filled or written at once.
pub const BUFFERS: usize = 3;

struct WriteBehind {
    file: Arc<dyn File>,
    queue: Mutex<WriteQueue>,
    changed: Condvar,
}

#[derive(Default)]
struct WriteQueue {
    free: Vec<AlignedBuffer>,
    /// How many buffers there are.
    buffers: usize,
    /// Buffers to write, the bytes in each, and its offset.
    waiting: VecDeque<(AlignedBuffer, usize, u64)>,
    is_writing: bool,
    /// The first failure, which all later calls return.
    failed: Option<Error>,
    stop: bool,
}

impl WriteBehind {
    /// A free buffer; waits while all are in use.
    fn buffer(&self, bytes: usize) -> Result<AlignedBuffer> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(error) = &queue.failed {
                return Err(error.clone());
            }
            if let Some(buffer) = queue.free.pop() {
                return Ok(buffer);
            }
            if queue.buffers < BUFFERS {
                queue.buffers += 1;
                return Ok(AlignedBuffer::new(bytes));
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Waits until all is written.
    fn finish(&self) -> Result<()> {
        let mut queue = self.queue.lock();
        while queue.failed.is_none() && (queue.is_writing || !queue.waiting.is_empty()) {
            self.changed.wait(&mut queue);
        }
        queue.failed.clone().map_or(Ok(()), Err)
    }

    /// Writes what is queued until `stop` is set.
    fn run(&self) {
        let mut queue = self.queue.lock();
        while !queue.stop {
            let Some((buffer, len, offset)) = queue.waiting.pop_front() else {
                self.changed.wait(&mut queue);
                continue;
            };
            queue.is_writing = true;
            drop(queue);
            let write = || self.file.write_at(&buffer[..len], offset);
            let written = std::panic::catch_unwind(std::panic::AssertUnwindSafe(write)).unwrap_or_else(|_| {
                Err(Error::Poisoned { cause: format!("writing {} panicked", self.file.path().display()) })
            });
            queue = self.queue.lock();
            queue.is_writing = false;
            queue.free.push(buffer);
            if let Err(error) = written {
                queue.failed.get_or_insert(error);
            }
            self.changed.notify_all();
        }
    }
}

impl WriteBuffer {
    /// For writes of up to `piece_bytes` each to a file that was created with this access.
    pub fn new(file: Arc<dyn File>, access: Access, piece_bytes: usize) -> WriteBuffer {
        let behind = (access == Access::Direct).then(|| {
            let (queue, changed) = (Mutex::default(), Condvar::new());
            Arc::new(WriteBehind { file: file.clone(), queue, changed })
        });
        WriteBuffer { file, behind, piece_bytes, filling: None, thread: None }
    }

    /// Writes bytes that begin at a block, padded with zeros if the writes are direct. These are made later, together with what
    /// follows them, and may fail then: the error is that of a later call.
    pub fn write(&mut self, bytes: &[u8], mut offset: u64) -> Result<()> {
        let Some(behind) = self.behind.clone() else {
            self.file.write_at(bytes, offset)?;
            self.file.write_back(offset, bytes.len() as u64);
            return Ok(());
        };
        if self.filling.as_ref().is_some_and(|(_, len, start)| start + *len as u64 != offset) {
            self.submit()?;
        }
        let piece_bytes = self.piece_bytes.next_multiple_of(BLOCK_IO_BYTES);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (mut buffer, filled, start) = match self.filling.take() {
                Some(filling) => filling,
                None => (behind.buffer(piece_bytes)?, 0, offset),
            };
            let (part, later) = rest.split_at(rest.len().min(piece_bytes - filled));
            let end = filled + part.len().next_multiple_of(BLOCK_IO_BYTES);
            buffer[filled..filled + part.len()].copy_from_slice(part);
            buffer[filled + part.len()..end].fill(0);
            self.filling = Some((buffer, end, start));
            (rest, offset) = (later, offset + part.len() as u64);
            if end == piece_bytes {
                self.submit()?;
            }
        }
        Ok(())
    }

    /// Has the thread write what was gathered.
    fn submit(&mut self) -> Result<()> {
        let (Some(behind), Some((buffer, len, offset))) = (&self.behind, self.filling.take()) else { return Ok(()) };
        if self.thread.is_none() {
            let behind = behind.clone();
            self.thread = try_spawn("cleave-write", move || behind.run()).ok();
        }
        if self.thread.is_none() {
            // The system has no thread to spare.
            let written = self.file.write_at(&buffer[..len], offset);
            behind.queue.lock().free.push(buffer);
            return written;
        }
        behind.queue.lock().waiting.push_back((buffer, len, offset));
        behind.changed.notify_all();
        Ok(())
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// The first failure of a write.
    pub fn finish(&mut self) -> Result<()> {
        self.submit()?;
        self.behind.as_ref().map_or(Ok(()), |behind| behind.finish())
    }

    fn is_direct(&self) -> bool {
        self.behind.is_some()
    }
}

impl Drop for WriteBuffer {
    fn drop(&mut self) {
        if let (Some(behind), Some(thread)) = (&self.behind, self.thread.take()) {
            behind.queue.lock().stop = true;
            behind.changed.notify_all();
            // It has nothing to say: a file that is dropped before its end is given up.
            let _ = thread.join();
        }
    }
}

/// Appends from an offset on, which is a multiple of [`BLOCK_IO_BYTES`].
pub struct Appender {
    /// Bytes to be written. Callers may add to them, and change those that are left.
    pub pending: Vec<u8>,
    offset: u64,
}

impl Appender {
    /// Begins at `offset`.
    pub fn new(offset: u64) -> Appender {
        Appender { pending: Vec::new(), offset }
    }

    /// Offset of the first pending byte.
    pub fn written_to(&self) -> u64 {
        self.offset
    }

    /// Offset behind the last byte.
    pub fn end(&self) -> u64 {
        self.offset + self.pending.len() as u64
    }

    /// Writes the pending bytes, as far as they fill blocks if the writes are direct.
    pub fn write(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        let len = self.pending.len();
        let ready = if buffer.is_direct() { len / BLOCK_IO_BYTES * BLOCK_IO_BYTES } else { len };
        buffer.write(&self.pending[..ready], self.offset)?;
        self.offset += ready as u64;
        self.pending.drain(..ready);
        Ok(())
    }

    /// Writes all pending bytes. Padding may follow them.
    pub fn finish(&mut self, buffer: &mut WriteBuffer) -> Result<()> {
        buffer.write(&self.pending, self.offset)?;
        self.offset = self.end();
        self.pending = Vec::new();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::{Faults, SimDisk, Storage, read_whole};
    use crate::sched::sim::simulate;

    #[test]
    fn a_write_that_fails_behind_is_reported_by_a_later_call() {
        let failed = simulate(1, || {
            let disk = SimDisk::new();
            let file = disk.create(Path::new("/f"), Access::Direct).unwrap();
            let mut buffer = WriteBuffer::new(file, Access::Direct, 4096);
            disk.set_faults(Faults { fail_write_after: Some(2), ..Faults::default() });
            let written = (0..10).try_for_each(|block| buffer.write(&[1; 4096], block * 4096));
            written.and_then(|()| buffer.finish()).is_err() && buffer.finish().is_err()
        });
        assert!(failed.unwrap());
    }

    #[test]
    fn writes_that_follow_one_another_are_made_together() {
        let writes = simulate(2, || {
            let disk = SimDisk::new();
            let file = disk.create(Path::new("/f"), Access::Direct).unwrap();
            let mut buffer = WriteBuffer::new(file, Access::Direct, 4 * BLOCK_IO_BYTES);
            let block = |number: u64| number * BLOCK_IO_BYTES as u64;
            // Seven blocks in two writes, each of one byte; then the first again, and one after it that is not its neighbour.
            for number in [0, 1, 2, 3, 4, 5, 6, 0, 8] {
                buffer.write(&[number as u8 + 1], block(number)).unwrap();
            }
            buffer.finish().unwrap();
            let found = read_whole(&disk, Path::new("/f")).unwrap();
            let first: Vec<u8> = (0..9).map(|number| found[block(number) as usize]).collect();
            assert_eq!(first, [1, 2, 3, 4, 5, 6, 7, 0, 9]);
            disk.direct_writes()
        });
        assert_eq!(writes.unwrap(), 4);
    }

    #[test]
    fn appended_bytes_are_in_the_file_in_order_and_followed_by_zeros_only() {
        for access in [Access::Buffered, Access::Direct] {
            let (disk, path) = (SimDisk::new(), Path::new("/f"));
            let file = disk.create(path, access).unwrap();
            let mut buffer = WriteBuffer::new(file, access, 8192);
            let (mut appender, mut wanted) = (Appender::new(4096), vec![0; 4096]);
            for step in 0..40_u8 {
                let bytes = vec![step + 1; 100 + 997 * usize::from(step % 7)];
                appender.pending.extend_from_slice(&bytes);
                wanted.extend_from_slice(&bytes);
                if step % 3 == 0 {
                    appender.write(&mut buffer).unwrap();
                }
                assert_eq!(appender.end(), wanted.len() as u64);
            }
            appender.finish(&mut buffer).unwrap();
            buffer.finish().unwrap();
            assert_eq!(appender.end(), wanted.len() as u64);
            let found = read_whole(&disk, path).unwrap();
            assert_eq!(found[..wanted.len()], wanted);
            assert!(found[wanted.len()..].iter().all(|byte| *byte == 0) && found.len() < wanted.len() + BLOCK_IO_BYTES);
        }
    }
}
