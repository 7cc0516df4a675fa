//! What the allocator keeps to itself. Each thread frees into a pool that others take little from, so memory that jobs are
//! done with is held beside what readers take anew, and the process grows beyond all that is in use (decision record 032).
//!
//! Called by background threads after jobs.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// It takes some milliseconds of a background thread, and a pool is locked meanwhile.
const MILLIS_BETWEEN: u64 = 1000;

/// Gives the system the pages that hold nothing, at most once a second in a process. The allocator of glibc is asked for
/// that; others do it by themselves, or not at all.
pub fn give_back() {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    static DONE_AT: AtomicU64 = AtomicU64::new(0);
    // Time as it passes, not as a simulation has it: this is about the process.
    let now = BEGUN.elapsed().as_millis() as u64 + MILLIS_BETWEEN;
    let done_at = DONE_AT.load(Ordering::Relaxed);
    if now >= done_at + MILLIS_BETWEEN
        && DONE_AT.compare_exchange(done_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        trim();
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri), not(feature = "portable")))]
fn trim() {
    // SAFETY: the function is glibc's, with this signature; it may be called at any time, by any thread.
    unsafe extern "C" {
        safe fn malloc_trim(pad: usize) -> std::ffi::c_int;
    }
    malloc_trim(0);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu", not(miri), not(feature = "portable"))))]
fn trim() {}

#[cfg(test)]
#[cfg(all(target_os = "linux", target_env = "gnu", not(miri), not(feature = "portable")))]
mod tests {
    use super::*;
    use std::time::Duration;

    /// Memory of the process that no file stands behind, in KiB.
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn what_a_thread_has_freed_goes_back_although_something_lies_behind_it() {
        const BLOCKS: u64 = 16 << 10;
        let kept = std::thread::spawn(|| {
            let mut blocks: Vec<Box<[u8; 4096]>> = (0..BLOCKS).map(|_| Box::new([7; 4096])).collect();
            (blocks.pop(), resident_kib())
        });
        let (last, before) = kept.join().unwrap();
        // Other tests come and go, and may have just asked for the same.
        let gone = (0..100).any(|_| {
            give_back();
            std::thread::sleep(Duration::from_millis(50));
            resident_kib() + BLOCKS * 4 / 2 < before
        });
        assert!(gone && last.unwrap()[0] == 7, "{before} KiB before, {} KiB since", resident_kib());
    }
}
