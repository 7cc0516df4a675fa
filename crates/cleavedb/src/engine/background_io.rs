//! The optional limit on background I/O: reads and writes of compactions, collections and moves. Flushes count and never wait,
//! because writers would. How much of the limit is left to background work follows what users take of the devices, and is all
//! of it while writers wait for background work (decision record 047). Jobs call [`Core::limit_io`] as they go.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::job_usage::note_bytes;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;

/// Background work keeps at least this part of the limit.
const LEAST_PART: u64 = 8;
/// Shorter waits are left to the next one.
const WAIT_MIN: Duration = Duration::from_millis(2);
/// A waiting job looks this often whether it still has to.
const LOOK_EACH: Duration = Duration::from_millis(10);
/// Bytes that may be used at once after a rest, in time at the current rate.
const BURST: Duration = Duration::from_millis(50);

/// The limit, and how much of it was used.
pub(crate) struct BackgroundIo {
    /// Bytes per second; `None` without a limit.
    limit: Option<u64>,
    /// What is left of the limit to background work now.
    rate: AtomicU64,
    /// Bytes used since the open.
    used: AtomicU64,
    bucket: Mutex<Bucket>,
}

/// What is to be waited for.
#[derive(Debug, Default)]
struct Bucket {
    /// Bytes used that were not waited for; negative after a rest.
    debt: f64,
    at: Duration,
}

impl Bucket {
    /// Takes bytes; how long it takes to pay for all that was taken.
    fn take(&mut self, bytes: u64, now: Duration, rate: u64) -> Duration {
        let rate = rate.max(1) as f64;
        let paid = now.saturating_sub(self.at).as_secs_f64() * rate;
        self.debt = (self.debt - paid).max(-rate * BURST.as_secs_f64()) + bytes as f64;
        // Threads may come in another order than they looked at the clock.
        self.at = self.at.max(now);
        Duration::from_secs_f64((self.debt / rate).max(0.0))
    }

    /// Takes bytes, of which no more is owed than a burst.
    fn note(&mut self, bytes: u64, now: Duration, rate: u64) {
        self.take(0, now, rate);
        let most = self.debt.max(rate as f64 * BURST.as_secs_f64());
        self.debt = (self.debt + bytes as f64).min(most);
    }
}

/// What is left of a limit if users take `foreground` bytes per second of the devices.
fn left_of(limit: u64, foreground: f64, writers_wait: bool) -> u64 {
    match writers_wait {
        true => limit,
        false => limit.saturating_sub(foreground as u64).max(limit / LEAST_PART),
    }
}

impl BackgroundIo {
    /// At most this many bytes per second.
    pub fn new(limit: Option<u64>) -> BackgroundIo {
        let rate = AtomicU64::new(limit.unwrap_or(u64::MAX));
        BackgroundIo { limit, rate, used: AtomicU64::new(0), bucket: Mutex::default() }
    }

    /// Bytes used since the open.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes per second that background work may use now; `None` without a limit.
    pub fn rate(&self) -> Option<u64> {
        self.limit.map(|_| self.rate.load(Ordering::Relaxed))
    }

    /// Determines the rate anew, if users take `foreground` bytes per second of the devices.
    pub fn review(&self, foreground: f64, writers_wait: bool) {
        if let Some(limit) = self.limit {
            self.rate.store(left_of(limit, foreground, writers_wait), Ordering::Relaxed);
        }
    }

    /// Counts bytes that are not waited for. They delay what comes after them a little.
    pub fn note(&self, bytes: u64) {
        note_bytes(bytes);
        self.used.fetch_add(bytes, Ordering::Relaxed);
        if let Some(rate) = self.rate() {
            self.bucket.lock().note(bytes, now(), rate);
        }
    }

    /// What was taken is not paid for.
    fn forgive(&self) {
        let mut bucket = self.bucket.lock();
        bucket.debt = bucket.debt.min(0.0);
    }

    fn take(&self, bytes: u64) -> Duration {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        match self.rate() {
            Some(rate) => self.bucket.lock().take(bytes, now(), rate),
            None => Duration::ZERO,
        }
    }
}

impl Core {
    /// Counts bytes that a job has read or written, and waits as the limit on background I/O requires; how long. Nothing is
    /// waited for while somebody waits for all work or an end of it, or writers for room. Must be called without locks.
    pub fn limit_io(&self, bytes: u64) -> Duration {
        note_bytes(bytes);
        if self.background_io.take(bytes) < WAIT_MIN {
            return Duration::ZERO;
        }
        let began = now();
        let mut state = self.work.lock();
        loop {
            let left = self.background_io.take(0);
            if left.is_zero() {
                break;
            }
            if state.hurries() || self.reserve.is_lent() || self.pacer.is_limited.load(Ordering::Relaxed) {
                self.background_io.forgive();
                break;
            }
            self.work.wait_for_change(&mut state, Some(left.min(LOOK_EACH)));
        }
        now().saturating_sub(began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_beyond_the_rate_are_waited_for() {
        let ms = Duration::from_millis;
        let mut bucket = Bucket::default();
        // 1000 bytes a second, of which 50 may be used at once after a rest.
        assert_eq!(bucket.take(50, ms(1000), 1000), ms(0));
        assert_eq!(bucket.take(10, ms(1000), 1000), ms(10));
        assert_eq!(bucket.take(10, ms(1005), 1000), ms(15));
        assert_eq!(bucket.take(985, ms(1005), 1000), ms(1000));
        assert_eq!(bucket.take(0, ms(2000), 1000), ms(5));
        assert_eq!(bucket.take(0, ms(2004), 500), ms(6));
        assert_eq!(bucket.take(0, ms(9000), 1000), ms(0));
        assert_eq!(bucket.take(53, ms(9000), 1000), ms(3));
        // What nobody waits for is owed up to a burst.
        bucket.note(20, ms(9000), 1000);
        assert_eq!(bucket.take(0, ms(9000), 1000), ms(23));
        bucket.note(1 << 40, ms(9000), 1000);
        assert_eq!(bucket.take(50, ms(9000), 1000), ms(100));
        bucket.note(1, ms(9000), 1000);
        assert_eq!(bucket.take(0, ms(9000), 1000), ms(100));
    }

    #[test]
    fn users_come_first_unless_writers_wait() {
        assert_eq!([0.0, 30.0, 79.9, 1e9].map(|used| left_of(80, used, false)), [80, 50, 10, 10]);
        assert_eq!(left_of(80, 1e9, true), 80);
        let io = BackgroundIo::new(Some(80));
        io.review(30.0, false);
        assert_eq!(io.rate(), Some(50));
        let unlimited = BackgroundIo::new(None);
        unlimited.review(1e9, false);
        unlimited.note(7);
        assert_eq!((unlimited.rate(), unlimited.used(), unlimited.take(1 << 40)), (None, 7, Duration::ZERO));
    }
}
