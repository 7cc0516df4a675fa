//! The schedule of an open loop: when a client has to start each operation, whether or not the previous one has ended.
//! Latency is measured from that moment, which corrects for coordinated omission.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// The schedule of one client.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    /// None: operations are due at the times of the trace.
    interval_s: Option<f64>,
    burst: u64,
}

impl Pace {
    /// The schedule of a trace: its own times, or `rate` operations per second if given.
    pub fn of_trace(start: Instant, rate: Option<f64>, burst: u64) -> Pace {
        Pace { start, interval_s: rate.map(f64::recip), burst: burst.max(1) }
    }

    /// The schedule of client `client` of `clients`, which do `rate` operations per second together, in bursts of `burst`.
    pub fn new(start: Instant, rate: f64, burst: u64, client: u64, clients: u64) -> Pace {
        let offset = Duration::from_secs_f64(client as f64 / rate);
        Pace { start: start + offset, interval_s: Some(clients as f64 / rate), burst: burst.max(1) }
    }

    /// When operation `number` is due.
    pub fn due(&self, number: u64) -> Instant {
        self.due_of(number, Duration::ZERO)
    }

    /// When operation `number`, which a trace has `at` this time, is due.
    pub fn due_of(&self, number: u64, at: Duration) -> Instant {
        let first_of_burst = number - number % self.burst;
        let after = self.interval_s.map_or(at, |interval| Duration::from_secs_f64(first_of_burst as f64 * interval));
        self.start + after
    }

    /// Sets the timer slack of this thread to a minimum; by default the kernel wakes it up to 50 us late.
    pub fn settle(&self) {
        // If the kernel refuses, late starts count as latency.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Sleeps until `due` and returns it.
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
    fn clients_share_the_rate_and_bursts_preserve_it() {
        let start = Instant::now();
        let seconds = |pace: Pace, number| (pace.due(number) - start).as_secs_f64();
        let second_of_two = Pace::new(start, 100.0, 1, 1, 2);
        assert!((seconds(second_of_two, 0) - 0.01).abs() < 1e-6);
        assert!((seconds(second_of_two, 50) - 1.01).abs() < 1e-6);
        let bursts = Pace::new(start, 100.0, 10, 0, 1);
        assert!(seconds(bursts, 9) < 1e-6 && (seconds(bursts, 10) - 0.1).abs() < 1e-6);
    }

    #[test]
    fn a_trace_follows_its_own_times_or_a_rate() {
        let (start, at) = (Instant::now(), Duration::from_millis(70));
        assert_eq!(Pace::of_trace(start, None, 1).due_of(5, at) - start, at);
        assert_eq!(Pace::of_trace(start, Some(100.0), 1).due_of(5, at) - start, Duration::from_millis(50));
    }
}
