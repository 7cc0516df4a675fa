//! The schedule of an open loop: when a client has to start each operation, whether or not the previous one has ended.
//! Latency is measured from that moment, which corrects for coordinated omission.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// A client that waits looks for the end of its phase after at most this time.
const SLICE: Duration = Duration::from_millis(20);

/// The schedule of one client.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    start: Instant,
    /// None: operations are due at the times of the trace.
    interval_s: Option<f64>,
    burst: u64,
    bursts: Option<Bursts>,
}

/// Load that comes and goes, on the command line `ON,OFF`: operations are due in the first `ON` seconds of every
/// `ON` + `OFF`, and none in the rest.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Bursts {
    on_s: f64,
    off_s: f64,
}

impl Bursts {
    /// Operations are due for `on_s` seconds, and none in the `off_s` seconds after that.
    pub const fn new(on_s: f64, off_s: f64) -> Bursts {
        Bursts { on_s, off_s }
    }

    /// The time since the start at which the load has been on for `on`.
    pub fn at(self, on: Duration) -> Duration {
        let pauses = (on.as_secs_f64() / self.on_s).floor();
        on + Duration::from_secs_f64(pauses * self.off_s)
    }

    /// For how much of the first `elapsed` the load was on.
    pub fn on_in(self, elapsed: Duration) -> Duration {
        let (elapsed_s, period_s) = (elapsed.as_secs_f64(), self.on_s + self.off_s);
        let periods = (elapsed_s / period_s).floor();
        Duration::from_secs_f64(periods * self.on_s + (elapsed_s - periods * period_s).min(self.on_s))
    }

    /// The length of one burst with its pause.
    pub fn period(self) -> Duration {
        Duration::from_secs_f64(self.on_s + self.off_s)
    }

    /// Whether the load is on in all of the second that follows the first `second` ones.
    pub fn is_on_in(self, second: usize) -> bool {
        let at = |seconds: usize| self.on_in(Duration::from_secs(seconds as u64)).as_secs_f64();
        at(second + 1) - at(second) > 1.0 - 1e-6
    }
}

impl FromStr for Bursts {
    type Err = String;

    fn from_str(text: &str) -> Result<Bursts, String> {
        let seconds = |text: &str| text.parse().ok().filter(|seconds| (1e-3..=1e6).contains(seconds));
        let both = text.split_once(',').and_then(|(on, off)| Some((seconds(on)?, seconds(off)?)));
        let (on_s, off_s) = both.ok_or_else(|| format!("{text:?} is not ON,OFF in seconds, each 0.001 to 1000000"))?;
        Ok(Bursts { on_s, off_s })
    }
}

impl fmt::Display for Bursts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.on_s, self.off_s)
    }
}

impl TryFrom<String> for Bursts {
    type Error = String;

    fn try_from(text: String) -> Result<Bursts, String> {
        text.parse()
    }
}

impl From<Bursts> for String {
    fn from(bursts: Bursts) -> String {
        bursts.to_string()
    }
}

impl Pace {
    /// The schedule of a trace: its own times, or `rate` operations per second if given.
    pub fn of_trace(start: Instant, rate: Option<f64>, burst: u64) -> Pace {
        Pace { start, interval_s: rate.map(f64::recip), burst: burst.max(1), bursts: None }
    }

    /// The schedule of client `client` of `clients`, which do `rate` operations per second together, in bursts of `burst`.
    pub fn new(start: Instant, rate: f64, burst: u64, client: u64, clients: u64) -> Pace {
        let offset = Duration::from_secs_f64(client as f64 / rate);
        Pace { start: start + offset, interval_s: Some(clients as f64 / rate), burst: burst.max(1), bursts: None }
    }

    /// The same operations, due only while the load of `bursts` is on.
    pub fn only_in(self, bursts: Option<Bursts>) -> Pace {
        Pace { bursts, ..self }
    }

    /// When operation `number` is due.
    pub fn due(&self, number: u64) -> Instant {
        self.due_of(number, Duration::ZERO)
    }

    /// When operation `number`, which a trace has `at` this time, is due.
    pub fn due_of(&self, number: u64, at: Duration) -> Instant {
        let first_of_burst = number - number % self.burst;
        let after = self.interval_s.map_or(at, |interval| Duration::from_secs_f64(first_of_burst as f64 * interval));
        self.start + self.bursts.map_or(after, |bursts| bursts.at(after))
    }

    /// Sets the timer slack of this thread to a minimum; by default the kernel wakes it up to 50 us late.
    pub fn settle(&self) {
        // If the kernel refuses, late starts count as latency.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    }
}

/// Sleeps until `due` and returns it; none once `stop` is set.
pub fn wait_until(due: Instant, stop: &AtomicBool) -> Option<Instant> {
    loop {
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Some(due);
        }
        if stop.load(Ordering::Relaxed) {
            return None;
        }
        thread::sleep(left.min(SLICE));
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
    fn load_that_comes_and_goes_keeps_its_rate_while_it_is_on() {
        let (start, bursts) = (Instant::now(), "2,3".parse::<Bursts>().unwrap());
        let pace = Pace::new(start, 10.0, 1, 0, 1).only_in(Some(bursts));
        let due = |number| (pace.due(number) - start).as_secs_f64();
        assert!((due(19) - 1.9).abs() < 1e-6 && (due(20) - 5.0).abs() < 1e-6 && (due(41) - 10.1).abs() < 1e-6);
        assert_eq!(bursts.period(), Duration::from_secs(5));
        let on = |seconds| bursts.on_in(Duration::from_secs_f64(seconds)).as_secs_f64();
        let expected = [(1.5, 1.5), (4.9, 2.0), (5.5, 2.5), (10.0, 4.0)];
        assert!(expected.iter().all(|(elapsed, expected)| (on(*elapsed) - expected).abs() < 1e-6));
        let seconds: Vec<usize> = (0..10).filter(|second| bursts.is_on_in(*second)).collect();
        assert_eq!(seconds, [0, 1, 5, 6]);
    }

    #[test]
    fn bursts_are_two_numbers_of_seconds() {
        assert_eq!("1.5,20".parse::<Bursts>().unwrap().to_string(), "1.5,20");
        assert!(
            ["", "5", "0,1", "1,0", "1,-1", "1,x", "1,2,3", "NaN,1"].iter().all(|text| text.parse::<Bursts>().is_err())
        );
    }

    #[test]
    fn a_wait_ends_with_its_phase() {
        let (start, stop) = (Instant::now(), AtomicBool::new(true));
        assert_eq!(wait_until(start + Duration::from_secs(3600), &stop), None);
        assert_eq!(wait_until(start, &stop), Some(start));
    }

    #[test]
    fn a_trace_follows_its_own_times_or_a_rate() {
        let (start, at) = (Instant::now(), Duration::from_millis(70));
        assert_eq!(Pace::of_trace(start, None, 1).due_of(5, at) - start, at);
        assert_eq!(Pace::of_trace(start, Some(100.0), 1).due_of(5, at) - start, Duration::from_millis(50));
    }
}
