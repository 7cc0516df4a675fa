//! Returns free memory of the allocator to the system. Each thread frees into a pool of its own that other threads rarely
//! allocate from, so memory freed by jobs stays allocated to the process while readers allocate more, and the process grows
//! beyond the memory in use (decision record 032).
//!
//! Called by background threads, after jobs and before a collection takes its memory.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A call takes several milliseconds, during which a pool is locked.
const MILLIS_BETWEEN: u64 = 1000;

/// Returns unused pages to the system, at most once a second in a process. Only glibc's allocator needs the request; with
/// other allocators this does nothing.
pub fn release_free_memory() {
    static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);
    static LAST_AT: AtomicU64 = AtomicU64::new(0);
    // Real time also in a simulation: the limit is about the process.
    let now = STARTED.elapsed().as_millis() as u64 + MILLIS_BETWEEN;
    let last_at = LAST_AT.load(Ordering::Relaxed);
    if now >= last_at + MILLIS_BETWEEN
        && LAST_AT.compare_exchange(last_at, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
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

    /// Resident anonymous memory of the process, in KiB.
    fn resident_kib() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    #[test]
    fn memory_freed_by_a_thread_is_released_although_a_later_block_is_in_use() {
        const BLOCKS: u64 = 16 << 10;
        let kept = std::thread::spawn(|| {
            let mut blocks: Vec<Box<[u8; 4096]>> = (0..BLOCKS).map(|_| Box::new([7; 4096])).collect();
            (blocks.pop(), resident_kib())
        });
        let (last, before) = kept.join().unwrap();
        // Other tests run in this process, and one may have made the call of this second.
        let released = (0..100).any(|_| {
            release_free_memory();
            std::thread::sleep(Duration::from_millis(50));
            resident_kib() + BLOCKS * 4 / 2 < before
        });
        assert!(released && last.unwrap()[0] == 7, "{before} KiB before, {} KiB after", resident_kib());
    }
}
