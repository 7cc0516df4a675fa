//! Copies a file in large pieces, on two threads that take turns: while one waits for a read, the other's write is in
//! flight, so that neither device idles.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use super::aligned::AlignedBuffer;
use super::storage::{Access, File, read_exact_at};
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, Result};
use crate::sched::clock::thread_cpu_time;
use crate::sched::sync::Mutex;
use crate::sched::thread::try_spawn;

/// A copy, shared by its threads.
struct Copy {
    source: Arc<dyn File>,
    target: Arc<dyn File>,
    access: Access,
    pieces: Vec<Range<u64>>,
    piece_bytes: usize,
    /// The next piece that no thread has begun.
    next: AtomicUsize,
    /// Bytes that all threads have copied.
    copied: AtomicU64,
    /// Nanoseconds of processor time of the second thread.
    helper_cpu_ns: AtomicU64,
    /// The first failure.
    failed: Mutex<Option<Error>>,
}

/// Copies parts of a file, which begin at blocks, to the same offsets of one created with `access`, `piece_bytes` at a time
/// (whole blocks). The copy ends where the last part ends; it is not synced. `done` is called with the bytes
/// that were copied since the last call. With `alone`, this thread copies everything, so that `done` may hold it up. Uses memory for two pieces.
/// Returns the processor time of the second thread, if there was one.
///
/// # Errors
/// As reading and writing. The copy is incomplete then.
pub fn copy_file(
    source: Arc<dyn File>,
    (target, access): (Arc<dyn File>, Access),
    parts: &[Range<u64>],
    (piece_bytes, alone): (usize, bool),
    mut done: impl FnMut(u64),
) -> Result<Duration> {
    assert!(piece_bytes.is_multiple_of(BLOCK_IO_BYTES) && piece_bytes > 0, "pieces are whole blocks");
    let pieces_of = |part: &Range<u64>| {
        let end = part.end;
        part.clone().step_by(piece_bytes).map(move |start| start..end.min(start + piece_bytes as u64))
    };
    let pieces: Vec<Range<u64>> = parts.iter().flat_map(pieces_of).collect();
    let end = parts.iter().map(|part| part.end).max().unwrap_or_default();
    let (next, [copied, helper_cpu_ns]) = (AtomicUsize::new(0), [0, 0].map(AtomicU64::new));
    let failed = Mutex::default();
    let copy = Arc::new(Copy { source, target, access, pieces, piece_bytes, next, copied, helper_cpu_ns, failed });
    let helper = match copy.pieces.len() > 1 && !alone {
        true => {
            let copy = copy.clone();
            // Without the thread, this one copies everything.
            try_spawn("cleave-copy", move || {
                copy.pieces(&mut || {});
                copy.helper_cpu_ns.store(thread_cpu_time().as_nanos() as u64, Ordering::Relaxed);
            })
            .ok()
        }
        false => None,
    };
    let mut told = 0;
    let mut tell = || {
        let copied = copy.copied.load(Ordering::Relaxed);
        done(copied - std::mem::replace(&mut told, copied));
    };
    copy.pieces(&mut tell);
    if helper.is_some_and(|helper| helper.join().is_err()) {
        return Err(Error::Poisoned { cause: format!("copying {} panicked", copy.source.path().display()) });
    }
    tell();
    if let Some(error) = copy.failed.lock().take() {
        return Err(error);
    }
    if access == Access::Direct && !end.is_multiple_of(BLOCK_IO_BYTES as u64) {
        copy.target.truncate(end)?;
    }
    Ok(Duration::from_nanos(copy.helper_cpu_ns.load(Ordering::Relaxed)))
}

impl Copy {
    /// Copies pieces until none is left, or another thread has failed.
    fn pieces(&self, done: &mut dyn FnMut()) {
        let mut buffer = AlignedBuffer::new(self.piece_bytes);
        while self.failed.lock().is_none() {
            let Some(piece) = self.pieces.get(self.next.fetch_add(1, Ordering::AcqRel)) else { break };
            let bytes = piece.end - piece.start;
            match self.piece(&mut buffer, bytes as usize, piece.start) {
                Ok(()) => {
                    self.copied.fetch_add(bytes, Ordering::Relaxed);
                    done();
                }
                Err(error) => drop(self.failed.lock().get_or_insert(error)),
            }
        }
    }

    fn piece(&self, buffer: &mut AlignedBuffer, part: usize, offset: u64) -> Result<()> {
        read_exact_at(&*self.source, &mut buffer[..part], offset)?;
        let padded = if self.access == Access::Direct { part.next_multiple_of(BLOCK_IO_BYTES) } else { part };
        buffer[part..padded].fill(0);
        self.target.write_at(&buffer[..padded], offset)?;
        self.target.write_back(offset, padded as u64);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::io::{Faults, SimDisk, Storage};
    use crate::sched::sim::simulate;

    fn whole(len: u64) -> Vec<Range<u64>> {
        std::iter::once(0..len).collect()
    }

    #[test]
    fn a_copy_has_the_bytes_and_the_length_of_the_original_and_is_durable() {
        for (seed, len) in [0, 1, 4095, 4096, 8193, 70_000].into_iter().enumerate() {
            for access in [Access::Buffered, Access::Direct] {
                let copied = simulate(seed as u64, move || {
                    let disk = SimDisk::new();
                    disk.create_dir_all(Path::new("/d")).unwrap();
                    let bytes: Vec<u8> = (0..len).map(|at: u32| (at % 251) as u8).collect();
                    disk.write_file(Path::new("/d/from"), &[&bytes[..], b"more"].concat());
                    let source = disk.open_read(Path::new("/d/from"), access).unwrap();
                    let target = disk.create(Path::new("/d/to"), access).unwrap();
                    copy_file(source, (target.clone(), access), &whole(len.into()), (8192, len == 8193), |_| {})
                        .unwrap();
                    target.sync().unwrap();
                    disk.sync_dir(Path::new("/d")).unwrap();
                    (disk.power_loss(1).read_file(Path::new("/d/to")).unwrap(), bytes)
                });
                let (found, wanted) = copied.unwrap();
                assert_eq!(found, wanted, "{len} {access:?}");
            }
        }
    }

    #[test]
    fn what_is_not_copied_stays_a_hole() {
        let copied = simulate(3, || {
            let disk = SimDisk::new();
            disk.write_file(Path::new("/from"), &[7; 40_000]);
            let source = disk.open_read(Path::new("/from"), Access::Buffered).unwrap();
            let target = disk.create(Path::new("/to"), Access::Direct).unwrap();
            let parts = [0..4096, 8192..12_000, 36_864..40_000];
            copy_file(source, (target, Access::Direct), &parts, (8192, false), |_| {}).unwrap();
            disk.read_file(Path::new("/to")).unwrap()
        });
        let copied = copied.unwrap();
        let is_copied = |at: usize| at < 4096 || (8192..12_000).contains(&at) || at >= 36_864;
        assert_eq!(copied.len(), 40_000);
        assert!(copied.iter().enumerate().all(|(at, byte)| (*byte == 7) == is_copied(at)));
    }

    #[test]
    fn a_failure_of_either_thread_fails_the_copy() {
        for after in 0..6 {
            let result = simulate(after, move || {
                let disk = SimDisk::new();
                disk.write_file(Path::new("/from"), &[7; 50_000]);
                let source = disk.open_read(Path::new("/from"), Access::Buffered).unwrap();
                let target = disk.create(Path::new("/to"), Access::Buffered).unwrap();
                disk.set_faults(Faults { fail_write_after: Some(after), ..Faults::default() });
                copy_file(source, (target, Access::Buffered), &whole(50_000), (8192, false), |_| {}).is_err()
            });
            assert!(result.unwrap(), "{after}");
        }
    }
}
