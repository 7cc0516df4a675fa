//! Tests of the log writer over slow and full disks.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::base::{DirId, FileId, FileKey, FileKind};
use crate::format::frame::LOG_HEADER_BYTES;
use crate::front::chunk_writer::Chunk;
use crate::io::aligned::AlignedBuffer;
use crate::io::file_guard::FileGuard;
use crate::io::{Access, File, SimDisk, Storage};
use crate::sched::sim::simulate;
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::{sleep, spawn};

const CHUNK: usize = 8 << 10;
const RING: usize = 64 << 10;

/// A file whose writes that reach behind `slow_from` wait until the gate opens.
struct SlowFile {
    file: Arc<dyn File>,
    slow_from: u64,
    gate: Arc<(Mutex<bool>, Condvar)>,
    /// How often something was written.
    writes: AtomicUsize,
}

impl File for SlowFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        let mut open = self.gate.0.lock();
        while offset + bytes.len() as u64 > self.slow_from && !*open {
            self.gate.1.wait(&mut open);
        }
        drop(open);
        self.writes.fetch_add(1, Ordering::SeqCst);
        self.file.write_at(bytes, offset)
    }
    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        let mut together = AlignedBuffer::new(parts.iter().map(|part| part.len()).sum());
        together.copy_from_slice(&parts.concat());
        self.write_at(&together, offset)
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

/// A frame of two chunks that ends at a chunk border leaves nothing to submit; both chunks release the ring only up to
/// the start of the frame. The next log starts at the next multiple of the ring size, over the second chunk.
#[test]
fn the_ring_is_not_overwritten_before_its_bytes_are_in_the_log() {
    let ended = simulate(1, || {
        let disk = SimDisk::new();
        let ring = disk.map(Path::new("/ring"), RING).unwrap().unwrap();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let log = |id: u64, slow_from: u64| {
            let path = format!("/{id}.log");
            let file = disk.create(Path::new(&path), Access::Direct).unwrap();
            file.allocate(RING as u64).unwrap();
            let file = Arc::new(SlowFile { file, slow_from, gate: gate.clone(), writes: AtomicUsize::new(0) });
            let guard = FileGuard::new(key(id), Path::new(&path), Arc::default());
            let header = LOG_HEADER_BYTES as u64;
            Arc::new(LogFile::new(FileId(id), guard, file, Some(ring.clone()), RING as u64, header, Seqno::ZERO))
        };
        let chunks = Arc::new(ChunkWriter::start(1, 4, CHUNK).unwrap());
        let mut writer = LogWriter::new(BackEnd::Ring { ring: ring.clone(), chunks, chunk_bytes: CHUNK });
        let second_chunk = CHUNK as u64;
        let frame = vec![1; 2 * CHUNK - LOG_HEADER_BYTES];
        let append = |writer: &mut LogWriter, byte: u8| {
            writer.begin(frame.len() as u64).unwrap();
            writer.push(&vec![byte; frame.len()]).unwrap();
            writer.finish(Seqno(1)).unwrap();
        };
        writer.rotate(log(1, second_chunk));
        append(&mut writer, 1);
        writer.rotate(log(2, u64::MAX));
        let releasing = {
            let (gate, ring, disk) = (gate.clone(), ring.clone(), disk.clone());
            spawn("releasing", move || {
                sleep(Duration::from_secs(1));
                let mut kept = vec![0; CHUNK];
                ring.read(CHUNK, &mut kept);
                let mut file = vec![0; CHUNK];
                let whole = disk.read_file(Path::new("/1.log")).unwrap();
                file.copy_from_slice(&whole[CHUNK..2 * CHUNK]);
                assert_eq!(file, vec![0; CHUNK], "the chunk is not in the file yet");
                assert_eq!(kept, vec![1; CHUNK], "the chunk is not in the file yet, so it must be in the ring");
                *gate.0.lock() = true;
                gate.1.notify_all();
            })
        };
        append(&mut writer, 2);
        releasing.join().unwrap();
    });
    ended.unwrap();
}

#[test]
fn chunks_that_wait_for_a_busy_disk_are_written_together() {
    let ended = simulate(1, || {
        let disk = SimDisk::new();
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let file = disk.create(Path::new("/1.log"), Access::Direct).unwrap();
        file.allocate(1 << 20).unwrap();
        let file = Arc::new(SlowFile { file, slow_from: 0, gate: gate.clone(), writes: AtomicUsize::new(0) });
        let guard = FileGuard::new(key(1), Path::new("/1.log"), Arc::default());
        let log = Arc::new(LogFile::new(FileId(1), guard, file.clone(), None, 1 << 20, 0, Seqno::ZERO));
        let chunks = ChunkWriter::start(1, 8, CHUNK).unwrap();
        // Six that follow one another, and two behind a gap.
        let offsets = [0, 1, 2, 3, 4, 5, 8, 9].map(|chunk| chunk * CHUNK as u64);
        let submit = |offset: u64| {
            let mut buffer = chunks.buffer().unwrap();
            buffer.fill(1 + (offset / CHUNK as u64) as u8);
            chunks.submit(Chunk { log: log.clone(), offset, buffer, len: CHUNK, ring_tail: 0 })
        };
        let first = submit(offsets[0]);
        sleep(Duration::from_secs(1));
        let last = *offsets[1..].iter().map(|offset| submit(*offset)).collect::<Vec<_>>().last().unwrap();
        *gate.0.lock() = true;
        gate.1.notify_all();
        chunks.wait(last).unwrap();
        assert!(first < last);
        assert_eq!(file.writes.load(Ordering::SeqCst), 3, "the first, those behind it, and those behind the gap");
        let written = disk.read_file(Path::new("/1.log")).unwrap();
        for (chunk, bytes) in written.chunks(CHUNK).take(10).enumerate() {
            let expected = if offsets.contains(&(chunk as u64 * CHUNK as u64)) { chunk as u8 + 1 } else { 0 };
            assert!(bytes.iter().all(|byte| *byte == expected), "{chunk}");
        }
    });
    ended.unwrap();
}

/// A file on a disk that is full while `is_full`.
struct FullFile {
    file: Arc<dyn File>,
    is_full: AtomicBool,
}

impl File for FullFile {
    fn path(&self) -> &Path {
        self.file.path()
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        match self.is_full.load(Ordering::SeqCst) {
            true => Err(Error::no_space(self.path())),
            false => self.file.write_at(bytes, offset),
        }
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

/// On a file system that cannot reserve space, there may be none for the padding before a sync.
#[test]
fn published_records_can_be_synced_without_space_for_padding() {
    let disk = SimDisk::new();
    let file = disk.create(Path::new("/1.log"), Access::Buffered).unwrap();
    let file = Arc::new(FullFile { file, is_full: AtomicBool::new(false) });
    let guard = FileGuard::new(key(1), Path::new("/1.log"), Arc::default());
    let header = LOG_HEADER_BYTES as u64;
    let log = Arc::new(LogFile::new(FileId(1), guard, file.clone(), None, 1 << 20, header, Seqno::ZERO));
    let mut writer = LogWriter::new(BackEnd::Plain);
    writer.rotate(log.clone());
    writer.begin(100).unwrap();
    writer.push(&[1; 100]).unwrap();
    writer.finish(Seqno(1)).unwrap();
    assert!(writer.has_room(100, 1 << 20));
    file.is_full.store(true, Ordering::SeqCst);
    writer.prepare_sync(Seqno(1), Seqno::ZERO).unwrap().wait().unwrap();
    assert_eq!((log.end(), file.len().unwrap()), (header + 100, header + 100));
    file.is_full.store(false, Ordering::SeqCst);
    assert!(!writer.has_room(100, 1 << 20), "a synced block is not written again");
    writer.prepare_sync(Seqno(1), Seqno::ZERO).unwrap().wait().unwrap();
    assert_eq!(log.end(), header + 100);
}

fn key(id: u64) -> FileKey {
    FileKey { kind: FileKind::Log, id: FileId(id), dir: DirId::HOME }
}
