//! Small reads that a caller waits for ([`File::read_polled`](crate::io::File::read_polled)). The page cache is asked for the bytes
//! without waiting, which has the system fetch those that are not there; and it is asked again and again until they are,
//! instead of letting the processor fall asleep: waking that up takes as long as half of a read from a fast device, the
//! longer the more of a virtual machine it is (decision record 029).
//!
//! Only one thread of the process does so at a time, and only for as long as such reads usually take: where several wait
//! there is work for the processor, and slow devices are slept for.

use std::fs;
use std::io::{self, IoSliceMut};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::io::ReadWriteFlags;

use crate::io::os::read_fully;

/// Longer reads are slept for: what waking up takes matters less for them.
const READ_BYTES_MAX: usize = 64 << 10;
/// The device is asked again for so long at most.
const WAIT_MAX: Duration = Duration::from_micros(200);
/// Where reads take longer on average, only one of so many is tried in this way.
const USUAL_MAX: Duration = Duration::from_micros(100);
const TRIED_WHERE_SLOW: usize = 64;
/// Turns between two questions, about a microsecond.
const TURNS: usize = 20;

/// A processor is left for others.
static SEVERAL_PROCESSORS: LazyLock<bool> =
    LazyLock::new(|| std::thread::available_parallelism().is_ok_and(|count| count.get() > 1));
/// Threads that read.
static WAITING: AtomicUsize = AtomicUsize::new(0);
/// What a read took lately, in nanoseconds.
static USUAL_NANOS: AtomicUsize = AtomicUsize::new(0);
/// Reads that were not tried in this way since the last one that was, where reads take long.
static SKIPPED: AtomicUsize = AtomicUsize::new(0);

/// Fills `buffer` from `offset`, or up to the end of the file; says how many bytes there were.
pub fn read(file: &fs::File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    if buffer.len() > READ_BYTES_MAX || !*SEVERAL_PROCESSORS {
        return read_fully(file, buffer, offset);
    }
    let waiting = Waiting::begin();
    if waiting.is_alone()
        && (is_at_hand(file, buffer, offset) || is_worth_trying() && ask_until_there(file, buffer, offset, &waiting))
    {
        return Ok(buffer.len());
    }
    read_fully(file, buffer, offset)
}

/// Counts a thread that reads.
struct Waiting;

impl Waiting {
    fn begin() -> Waiting {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Waiting
    }

    fn is_alone(&self) -> bool {
        WAITING.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Copies what the page cache has, if that is all; otherwise it is on its way.
fn is_at_hand(file: &fs::File, buffer: &mut [u8], offset: u64) -> bool {
    let len = buffer.len();
    let read = rustix::io::preadv2(file, &mut [IoSliceMut::new(buffer)], offset, ReadWriteFlags::NOWAIT);
    read.is_ok_and(|count| count == len)
}

fn is_worth_trying() -> bool {
    let is_fast = USUAL_NANOS.load(Ordering::Relaxed) <= USUAL_MAX.as_nanos() as usize;
    is_fast || SKIPPED.fetch_add(1, Ordering::Relaxed).is_multiple_of(TRIED_WHERE_SLOW)
}

/// False if the bytes did not come in time, or others read by now.
fn ask_until_there(file: &fs::File, buffer: &mut [u8], offset: u64, waiting: &Waiting) -> bool {
    let begun = Instant::now();
    loop {
        for _ in 0..TURNS {
            std::hint::spin_loop();
        }
        let is_there = is_at_hand(file, buffer, offset);
        let taken = begun.elapsed();
        if is_there || taken > WAIT_MAX {
            let usual = USUAL_NANOS.load(Ordering::Relaxed);
            USUAL_NANOS.store(usual - usual / 8 + taken.as_nanos() as usize / 8, Ordering::Relaxed);
        }
        if is_there || taken > WAIT_MAX || !waiting.is_alone() {
            return is_there;
        }
    }
}
