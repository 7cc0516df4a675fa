//! Whether a thread that busy-polls takes a processor that nobody else wants. Asked before each polled read
//! ([`busy_poll`](super::busy_poll)), answered from two measurements that are renewed as long as there are reads:
//!
//! - the threads of the whole machine that run or wait for a processor, the poller among them, against the processors that
//!   are online. The kernel counts them in `/proc/loadavg`, other processes included;
//! - polls that lost the processor. Where a container has fewer processors than the machine, or a quota of their time, or
//!   a hypervisor takes them away, only this shows it.

use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The number of runnable threads is read again after this time: 1 to 2 us of every millisecond.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(1);
/// An average this old says nothing about the present.
const AVERAGE_AGE_MAX: Duration = Duration::from_millis(20);
/// A sample counts for an eighth of the average: one number is chance, and eight milliseconds are soon enough.
const SAMPLES_AVERAGED: u64 = 8;
/// The average is kept in these parts of a thread.
const PARTS: u64 = 256;
/// Short work of the kernel, like that of interrupts, takes no processor from anybody.
const TOLERATED_PARTS: u64 = PARTS / 4;
/// No poll begins for this long after one that lost the processor: the thread that took it may keep it for some
/// milliseconds.
const PAUSE: Duration = Duration::from_millis(100);

/// What was measured so far. Races between readers lose a sample at most.
struct Load {
    /// Threads that are runnable, on average, in [`PARTS`].
    runnable: AtomicU64,
    /// When that was measured, in nanoseconds since [`START`]; zero if never.
    sampled_at: AtomicU64,
    /// The answer is yes until then, in nanoseconds since [`START`].
    allowed_until: AtomicU64,
    /// No poll begins before, in nanoseconds since [`START`].
    paused_until: AtomicU64,
}

static LOAD: Load = Load::new();
static START: LazyLock<Instant> = LazyLock::new(Instant::now);
/// `None` if it cannot be opened. The number of runnable threads is then taken to be one.
static LOAD_AVERAGES: LazyLock<Option<fs::File>> = LazyLock::new(|| fs::File::open("/proc/loadavg").ok());
/// Processors of the machine, also of those that this process may not use: the number of threads is the machine's, too.
static PROCESSORS: LazyLock<u64> = LazyLock::new(|| {
    let online = fs::read_to_string("/sys/devices/system/cpu/online").ok().and_then(|list| processors_in(&list));
    let own = std::thread::available_parallelism().map_or(1, |count| count.get() as u64);
    online.unwrap_or(own)
});

/// True if the calling thread may keep its processor while it waits: as far as is known, no other thread waits for one.
pub(super) fn leaves_a_processor_idle() -> bool {
    LOAD.allowed_until.load(Ordering::Relaxed) > now() || LOAD.allows(now(), *PROCESSORS, runnable_threads)
}

/// Notes that a thread lost its processor while it polled.
pub(super) fn note_lost_processor() {
    LOAD.paused_until.store(now() + nanos(PAUSE), Ordering::Relaxed);
    LOAD.allowed_until.store(0, Ordering::Relaxed);
}

impl Load {
    const fn new() -> Load {
        let [runnable, sampled_at, allowed_until, paused_until] = [const { AtomicU64::new(0) }; 4];
        Load { runnable, sampled_at, allowed_until, paused_until }
    }

    /// Answers, and notes how long a yes is good for.
    fn allows(&self, now: u64, processors: u64, runnable_threads: impl FnOnce() -> Option<u64>) -> bool {
        if now < self.paused_until.load(Ordering::Relaxed) {
            return false;
        }
        let age = now.saturating_sub(self.sampled_at.load(Ordering::Relaxed));
        let mut average = self.runnable.load(Ordering::Relaxed);
        if average == 0 || age >= nanos(SAMPLE_INTERVAL) {
            // At least the caller.
            let sample = PARTS * runnable_threads().unwrap_or(1).max(1);
            let is_stale = average == 0 || age >= nanos(AVERAGE_AGE_MAX);
            average = if is_stale { sample } else { average - average / SAMPLES_AVERAGED + sample / SAMPLES_AVERAGED };
            self.runnable.store(average, Ordering::Relaxed);
            self.sampled_at.store(now, Ordering::Relaxed);
        }
        let allowed = average <= PARTS * processors + TOLERATED_PARTS;
        if allowed {
            self.allowed_until.store(now + nanos(SAMPLE_INTERVAL), Ordering::Relaxed);
        }
        allowed
    }
}

fn now() -> u64 {
    nanos(START.elapsed())
}

fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

/// The threads of the machine that run or wait for a processor.
fn runnable_threads() -> Option<u64> {
    let mut text = [0; 64];
    let len = LOAD_AVERAGES.as_ref()?.read_at(&mut text, 0).ok()?;
    runnable_in(std::str::from_utf8(&text[..len]).ok()?)
}

/// The fourth field of `/proc/loadavg`, up to the slash: `0.20 0.18 0.12 1/80 11206`.
fn runnable_in(load_averages: &str) -> Option<u64> {
    let (runnable, _) = load_averages.split_ascii_whitespace().nth(3)?.split_once('/')?;
    runnable.parse().ok()
}

/// How many processors a list like `0-3,8` has.
fn processors_in(list: &str) -> Option<u64> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(last.parse::<u64>().ok()?.checked_sub(first.parse().ok()?)? + 1)
    };
    list.trim().split(',').map(count).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: u64 = 1_000_000;

    #[test]
    fn polling_is_allowed_while_no_thread_waits_for_a_processor() {
        // Runnable threads, the poller among them; processors.
        for (runnable, processors, allowed) in
            [(Some(1), 2, true), (Some(2), 2, true), (Some(3), 2, false), (Some(9), 8, false), (None, 2, true)]
        {
            assert_eq!(Load::new().allows(MILLI, processors, || runnable), allowed, "{runnable:?} on {processors}");
        }
    }

    #[test]
    fn the_load_is_measured_again_each_millisecond_and_a_moment_does_not_decide() {
        let load = Load::new();
        assert!(load.allows(MILLI, 2, || Some(1)));
        assert!(load.allows(MILLI * 3 / 2, 2, || panic!("half a millisecond later")));
        let changes_at = |times: std::ops::Range<u64>, runnable: u64, expected: bool| {
            let mut answers = times.map(|ms| (ms, load.allows(ms * MILLI, 2, || Some(runnable))));
            let at = answers.find(|(_, allowed)| *allowed == expected).unwrap().0;
            assert!(answers.all(|(_, allowed)| allowed == expected));
            at
        };
        // Three jobs begin beside the reader; they end.
        assert!((3..10).contains(&changes_at(2..50, 4, false)));
        assert!((53..65).contains(&changes_at(50..100, 1, true)));
        // After a pause of the reader, one measurement is enough.
        assert!(!load.allows(1000 * MILLI, 2, || Some(4)));
        assert!(load.allows(1100 * MILLI, 2, || Some(2)));
    }

    #[test]
    fn a_lost_processor_pauses_polling() {
        let load = Load::new();
        load.paused_until.store(100 * MILLI, Ordering::Relaxed);
        assert!(!load.allows(99 * MILLI, 2, || Some(1)));
        assert!(load.allows(100 * MILLI, 2, || Some(1)));
    }

    #[test]
    fn the_texts_of_the_kernel_are_understood() {
        assert_eq!(runnable_in("0.20 0.18 0.12 13/80 11206\n"), Some(13));
        assert_eq!(runnable_in("0.20 0.18 0.12"), None);
        assert_eq!(processors_in("0-3,8\n"), Some(5));
        assert_eq!(processors_in("0\n"), Some(1));
        assert_eq!(processors_in("3-1"), None);
        assert_eq!(processors_in(""), None);
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn threads_that_compute_on_all_processors_end_polling() {
        use std::sync::atomic::AtomicBool;
        if runnable_threads().is_none_or(|count| count == 0) {
            return;
        }
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 * *PROCESSORS {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            let begun = Instant::now();
            while leaves_a_processor_idle() && begun.elapsed() < Duration::from_secs(10) {
                std::hint::spin_loop();
            }
            let still_polls = leaves_a_processor_idle();
            over.store(true, Ordering::Relaxed);
            assert!(!still_polls);
        });
    }
}
