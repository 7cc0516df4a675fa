//! Busy-polled reads: short reads that a caller waits for ([`File::read_polled`](super::File::read_polled)). A read that
//! takes only cached pages (`RWF_NOWAIT`) starts the fetch of missing pages; it is repeated until the pages are there, so
//! the processor does not fall asleep. Waking it up takes up to half as long as a read from a fast device, and longer in a
//! virtual machine (decision record 029).
//!
//! At most one thread of the process polls at a time, only for as long as reads from the device usually take, and only while
//! its processor would otherwise be idle ([`machine_load`](super::machine_load)). If several threads read, the processor
//! has other work and does not fall asleep; if the device is slow, sleeping is cheaper.

use std::fs;
use std::io::{self, IoSliceMut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::ReadWriteFlags;

use super::machine_load;
use super::system_calls::read_fully;

/// Longer reads are never polled: the time to wake up matters less for them.
const READ_BYTES_MAX: usize = 64 << 10;
/// A read is polled for at most this time.
const POLL_TIME_MAX: Duration = Duration::from_micros(200);
/// If reads take longer than this on average, only one in [`POLLED_ONE_IN_IF_SLOW`] is polled.
const AVERAGE_TIME_MAX: Duration = Duration::from_micros(100);
const POLLED_ONE_IN_IF_SLOW: usize = 64;
/// If this time passes between two attempts, the thread did not have its processor. Interrupts are shorter.
const LOST_TIME_MIN: Duration = Duration::from_micros(100);
/// Spin-loop hints between two attempts, about a microsecond.
const SPINS_PER_ATTEMPT: usize = 20;

/// True if polling leaves a processor for other threads.
static SEVERAL_PROCESSORS: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));
/// Threads inside [`read`].
static ACTIVE_READS: AtomicUsize = AtomicUsize::new(0);
/// Moving average of the time that a polled read took, in nanoseconds.
static AVERAGE_NANOS: AtomicUsize = AtomicUsize::new(0);
/// Reads that could have been polled while the average was above [`AVERAGE_TIME_MAX`].
static READS_WHILE_SLOW: AtomicUsize = AtomicUsize::new(0);

/// Fills `buffer` from `offset`, or up to the end of the file; returns the number of bytes read.
pub(super) fn read(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if buffer.len() > READ_BYTES_MAX || !*SEVERAL_PROCESSORS {
        return read_fully(file, buffer, offset);
    }
    let active = ActiveRead::begin();
    if active.is_alone()
        && machine_load::leaves_a_processor_idle()
        && (read_cached(file, buffer, offset) == Ok(buffer.len())
            || should_poll() && poll_until_cached(file, buffer, offset, &active))
    {
        return Ok(buffer.len());
    }
    read_fully(file, buffer, offset)
}

/// Counts a thread that reads.
struct ActiveRead;

impl ActiveRead {
    fn begin() -> ActiveRead {
        ACTIVE_READS.fetch_add(1, Ordering::Relaxed);
        ActiveRead
    }

    fn is_alone(&self) -> bool {
        ACTIVE_READS.load(Ordering::Relaxed) == 1
    }
}

impl Drop for ActiveRead {
    fn drop(&mut self) {
        ACTIVE_READS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads from the page cache only; returns the number of bytes read. If it is smaller than the buffer, or there is no byte
/// (`AGAIN`), the kernel has started to fetch missing pages.
pub(super) fn read_cached(file: &fs::File, buffer: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT)
}

fn should_poll() -> bool {
    let is_fast = AVERAGE_NANOS.load(Ordering::Relaxed) <= AVERAGE_TIME_MAX.as_nanos() as usize;
    is_fast || READS_WHILE_SLOW.fetch_add(1, Ordering::Relaxed).is_multiple_of(POLLED_ONE_IN_IF_SLOW)
}

/// Returns false if the bytes did not arrive in time, or if another thread has started to read.
fn poll_until_cached(file: &fs::File, buffer: &mut [u8], offset: u64, active: &ActiveRead) -> bool {
    let begun = Instant::now();
    let mut before = Duration::ZERO;
    loop {
        for _ in 0..SPINS_PER_ATTEMPT {
            std::hint::spin_loop();
        }
        let is_read = read_cached(file, buffer, offset) == Ok(buffer.len());
        let elapsed = begun.elapsed();
        if elapsed - before > LOST_TIME_MIN {
            machine_load::note_lost_processor();
        }
        before = elapsed;
        if is_read || elapsed > POLL_TIME_MAX {
            let average = AVERAGE_NANOS.load(Ordering::Relaxed);
            AVERAGE_NANOS.store(average - average / 8 + elapsed.as_nanos() as usize / 8, Ordering::Relaxed);
        }
        if is_read || elapsed > POLL_TIME_MAX || !active.is_alone() {
            return is_read;
        }
    }
}
