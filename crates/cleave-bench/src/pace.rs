//! When a client of an open loop has to start each operation, whether or not the one before has ended. Latency counts
//! from that moment, which is what corrects for coordinated omission.

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

/// The schedule of one client.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    interval_s: f64,
    burst: u64,
}

impl Pace {
    /// Client `client` of `clients` that do `rate` operations per second together, `burst` at a time.
    pub fn new(start: Instant, rate: f64, burst: u64, client: u64, clients: u64) -> Pace {
        let offset = Duration::from_secs_f64(client as f64 / rate);
        Pace { start: start + offset, interval_s: clients as f64 / rate, burst: burst.max(1) }
    }

    /// When operation `number` starts.
    pub fn due(&self, number: u64) -> Instant {
        let first_of_burst = number - number % self.burst;
        self.start + Duration::from_secs_f64(first_of_burst as f64 * self.interval_s)
    }

    /// Lets this thread wake up when it asked to, and not up to 50 us later, as is usual to save power.
    pub fn settle(&self) {
        // A kernel that refuses leaves the thread as it was: late starts then count as latency.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }

    /// Sleeps until operation `number` is due; that moment.
    pub fn wait(&self, number: u64) -> Instant {
        let due = self.due(number);
        loop {
            let left = due.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return due;
            }
            thread::sleep(left);
        }
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
}
