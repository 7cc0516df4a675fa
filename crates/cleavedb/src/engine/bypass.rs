//! The state of the bypass: whether writers go around the work that is behind, and what came of it. `write/redirect.rs` feeds and
//! applies it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::bypass::detector::Detector;
use crate::io::DeviceUsage;
use crate::sched::sync::Mutex;

/// The bypass of an open database.
#[derive(Default)]
pub(crate) struct BypassState {
    /// As in the detector; read by each review of the pace, each new log, and the choice of jobs.
    redirects: AtomicBool,
    pub state: Mutex<Redirects>,
    /// What the devices had done when the last log was born.
    pub devices: Mutex<Option<DevicesThen>>,
    /// Logs that were born on the slow tier although the fast one had room.
    pub logs_born_slow: AtomicU64,
    /// Logs that were born on the KV device.
    pub logs_born_on_device: AtomicU64,
    /// Bytes of logs that have left it for a tier.
    pub rolled_back_bytes: AtomicU64,
    /// When a rollback failed last.
    rollback_failed_at: Mutex<Option<Duration>>,
}

/// A rollback that has failed is not tried again for this long: it would write the same copy over and over.
const ROLLBACK_RETRY: Duration = Duration::from_secs(1);

/// What the devices of the fast and the slow directory had done up to a moment.
pub(crate) struct DevicesThen {
    pub at: Duration,
    pub usage: [Option<DeviceUsage>; 2],
}

/// The detector, and what redirects have brought since the open.
#[derive(Default)]
pub(crate) struct Redirects {
    pub detector: Detector,
    /// How often a redirect began.
    pub count: u64,
    /// Bytes of records that were written during redirects.
    pub bytes: u64,
    /// What writers would have waited in all without them, by the pace that they would have had.
    pub waiting_prevented: Duration,
    /// When this was last brought up to date, and the bytes of users' records at that time.
    pub counted: (Duration, u64),
    /// When the redirect began that goes on, and the bytes at that time.
    pub begun: Option<(Duration, u64)>,
}

impl BypassState {
    /// Writers go around.
    pub fn redirects(&self) -> bool {
        self.redirects.load(Ordering::Relaxed)
    }

    pub fn set_redirects(&self, redirects: bool) {
        self.redirects.store(redirects, Ordering::Relaxed);
    }

    /// A rollback has failed.
    pub fn note_rollback_failed(&self, at: Duration) {
        *self.rollback_failed_at.lock() = Some(at);
    }

    /// The next rollback may be tried at once.
    pub fn may_roll_back(&self) {
        *self.rollback_failed_at.lock() = None;
    }

    /// One has failed a short time before.
    pub fn rollback_waits(&self, at: Duration) -> bool {
        self.rollback_failed_at.lock().is_some_and(|failed| at < failed + ROLLBACK_RETRY)
    }
}

impl Redirects {
    /// Counts the bytes written since the last call as written during a redirect, and what their writers would have waited at
    /// `rate` bytes a second (0: until now; `None`: not at all).
    pub fn count_since(&mut self, at: Duration, user_bytes: u64, rate: Option<u64>) {
        let (then, before) = std::mem::replace(&mut self.counted, (at, user_bytes));
        let (elapsed, bytes) = (at.saturating_sub(then), user_bytes.saturating_sub(before));
        self.bytes += bytes;
        self.waiting_prevented += match rate {
            None => Duration::ZERO,
            Some(_) if bytes == 0 => Duration::ZERO,
            Some(0) => elapsed,
            Some(rate) => Duration::from_secs_f64(bytes as f64 / rate as f64).saturating_sub(elapsed),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollback_that_has_failed_waits_unless_it_is_asked_for() {
        let (state, s) = (BypassState::default(), Duration::from_secs);
        assert!(!state.rollback_waits(s(5)));
        state.note_rollback_failed(s(5));
        assert!(state.rollback_waits(s(5)) && !state.rollback_waits(s(6)));
        state.may_roll_back();
        assert!(!state.rollback_waits(s(5)));
    }

    #[test]
    fn prevented_waiting_is_what_the_pace_without_a_redirect_would_have_cost() {
        let s = Duration::from_secs;
        let cases = [
            // The pace, bytes in a second, prevented seconds.
            (None, 100, 0),
            (Some(0), 100, 1),
            (Some(0), 0, 0),
            (Some(10), 100, 9),
            (Some(100), 100, 0),
            (Some(1000), 100, 0),
        ];
        for (rate, bytes, prevented) in cases {
            let mut redirects = Redirects { counted: (s(5), 7), ..Redirects::default() };
            redirects.count_since(s(6), 7 + bytes, rate);
            assert_eq!((redirects.bytes, redirects.waiting_prevented), (bytes, s(prevented)), "{rate:?} {bytes}");
            assert_eq!(redirects.counted, (s(6), 7 + bytes));
        }
    }
}
