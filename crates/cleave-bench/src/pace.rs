//! When a client of an open loop has to start each operation, whether or not the one before has ended. Latency counts
//! from that moment, which is what corrects for coordinated omission.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// The schedule of one client.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    /// None: at the times of the trace.
    interval_s: Option<f64>,
    burst: u64,
}

impl Pace {
    /// Every operation of a trace when the trace says, or, if a `rate` is given, so many of them a second.
    pub fn of_trace(start: Instant, rate: Option<f64>, burst: u64) -> Pace {
        Pace { start, interval_s: rate.map(f64::recip), burst: burst.max(1) }
    }

    /// Client `client` of `clients` that do `rate` operations per second together, `burst` at a time.
    pub fn new(start: Instant, rate: f64, burst: u64, client: u64, clients: u64) -> Pace {
        let offset = Duration::from_secs_f64(client as f64 / rate);
        Pace { start: start + offset, interval_s: Some(clients as f64 / rate), burst: burst.max(1) }
    }

    /// When operation `number` starts.
    pub fn due(&self, number: u64) -> Instant {
        self.due_of(number, Duration::ZERO)
    }

    /// When operation `number` starts, which a trace has `at` this time.
    pub fn due_of(&self, number: u64, at: Duration) -> Instant {
        let first_of_burst = number - number % self.burst;
        let after = self.interval_s.map_or(at, |interval| Duration::from_secs_f64(first_of_burst as f64 * interval));
        self.start + after
    }

    /// Lets this thread wake up when it asked to, and not up to 50 us later, as is usual to save power.
    pub fn settle(&self) {
        // A kernel that refuses leaves the thread as it was: late starts then count as latency.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Sleeps until `due`; that moment.
pub fn wait_until(due: Instant) -> Instant {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return due;
        }
        thread::sleep(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_share_the_rate_and_bursts_keep_it() {
        let start = Instant::now();
        let seconds = |pace: Pace, number| (pace.due(number) - start).as_secs_f64();
        let second_of_two = Pace::new(start, 100.0, 1, 1, 2);
        assert!((seconds(second_of_two, 0) - 0.01).abs() < 1e-6);
        assert!((seconds(second_of_two, 50) - 1.01).abs() < 1e-6);
        let bursts = Pace::new(start, 100.0, 10, 0, 1);
        assert!(seconds(bursts, 9) < 1e-6 && (seconds(bursts, 10) - 0.1).abs() < 1e-6);
    }

    #[test]
    fn a_trace_goes_by_its_own_times_or_by_a_rate() {
        let (start, at) = (Instant::now(), Duration::from_millis(70));
        assert_eq!(Pace::of_trace(start, None, 1).due_of(5, at) - start, at);
        assert_eq!(Pace::of_trace(start, Some(100.0), 1).due_of(5, at) - start, Duration::from_millis(50));
    }
}
