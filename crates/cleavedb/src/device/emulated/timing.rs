//! How long an emulated device takes: one bandwidth and one rate of operations for all that reaches its medium, and a processor that
//! does one command of the key-value side after the other. Also counts what reaches the medium.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::parameters::SsdParameters;
use crate::device::block_side::Medium;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;
use crate::sched::thread::sleep;

/// Shorter waits are put off, until several make one that a thread can sleep for.
const SLEEP_MIN: Duration = Duration::from_micros(200);

/// The time of a device.
pub(super) struct Timing {
    parameters: SsdParameters,
    /// Until when the medium and the processor have something to do.
    media_until: Mutex<Duration>,
    processor_until: Mutex<Duration>,
    /// Until when the operations begun so far use up the rate of operations.
    operations_until: Mutex<Duration>,
    /// Latencies of reads, and of writes, that nobody has waited for yet, because each is too short to sleep for.
    read_latency_owed: Mutex<Duration>,
    write_latency_owed: Mutex<Duration>,
    written: AtomicU64,
    read: AtomicU64,
}

impl Timing {
    pub fn new(parameters: SsdParameters) -> Timing {
        Timing {
            parameters,
            media_until: Mutex::default(),
            processor_until: Mutex::default(),
            operations_until: Mutex::default(),
            read_latency_owed: Mutex::default(),
            write_latency_owed: Mutex::default(),
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
        }
    }

    /// A command with its bytes goes through the processor.
    pub fn process(&self, bytes: usize) {
        let time = time_of(bytes as u64, self.parameters.processor_bytes_per_second);
        wait(occupy(&self.processor_until, self.parameters.command_time + time));
    }

    /// More bytes of a command that has begun.
    pub fn process_bytes(&self, bytes: usize) {
        let time = time_of(bytes as u64, self.parameters.processor_bytes_per_second);
        wait(occupy(&self.processor_until, time));
    }

    /// Bytes written to the medium, and read from it.
    pub fn media_bytes(&self) -> (u64, u64) {
        (self.written.load(Ordering::Relaxed), self.read.load(Ordering::Relaxed))
    }

    /// One operation of the medium. Short latencies add up in `owed`.
    fn operate(&self, bytes: u64, latency: Duration, owed: &Mutex<Duration>) {
        let transfer = time_of(bytes, self.parameters.media_bytes_per_second);
        let turn = time_of(1, self.parameters.media_iops);
        let left = occupy(&self.media_until, transfer).max(occupy(&self.operations_until, turn));
        let mut owed = owed.lock();
        *owed += latency;
        if left + *owed >= SLEEP_MIN {
            let latency = std::mem::take(&mut *owed);
            drop(owed);
            sleep(left + latency);
        }
    }
}

impl Medium for Timing {
    fn write(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
        self.operate(bytes, self.parameters.media_write_latency, &self.write_latency_owed);
    }

    fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
        self.operate(bytes, self.parameters.media_latency, &self.read_latency_owed);
    }
}

fn time_of(bytes: u64, per_second: u64) -> Duration {
    match per_second {
        0 => Duration::ZERO,
        rate => Duration::from_nanos((u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64),
    }
}

/// Keeps something busy for a time after what it has to do already; how long that takes from now on.
fn occupy(until: &Mutex<Duration>, time: Duration) -> Duration {
    if time == Duration::ZERO {
        return Duration::ZERO;
    }
    let at = now();
    let mut until = until.lock();
    *until = (*until).max(at) + time;
    *until - at
}

/// Waits, unless that is too short; what is busy stays so, and a later wait is longer.
fn wait(time: Duration) {
    if time >= SLEEP_MIN {
        sleep(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::sim::simulate;

    #[test]
    fn two_threads_share_the_bandwidth_and_a_command_waits_for_the_processor() {
        let (took, commands) = simulate(1, || {
            let parameters = SsdParameters {
                media_bytes_per_second: 1_000_000,
                processor_bytes_per_second: 0,
                command_time: Duration::from_millis(2),
                ..SsdParameters::unthrottled()
            };
            let timing = std::sync::Arc::new(Timing::new(parameters));
            let began = now();
            let threads: Vec<_> = (0..2)
                .map(|_| {
                    let timing = timing.clone();
                    crate::sched::thread::spawn("writer", move || timing.write(500_000))
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
            let took = now() - began;
            let began = now();
            (0..10).for_each(|_| timing.process(100));
            assert_eq!(timing.media_bytes(), (1_000_000, 0));
            (took, now() - began)
        })
        .unwrap();
        let about = |time: Duration, wanted: f64| (time.as_secs_f64() / wanted - 1.0).abs() < 0.05;
        assert!(about(took, 1.0) && about(commands, 0.02), "{took:?} {commands:?}");
    }

    #[test]
    fn each_read_takes_the_latency_of_the_medium_however_short_that_is() {
        let took = simulate(1, || {
            let parameters = SsdParameters { media_latency: Duration::from_micros(30), ..SsdParameters::unthrottled() };
            let timing = Timing::new(parameters);
            let began = now();
            (0..1000).for_each(|_| timing.read(100));
            now() - began
        })
        .unwrap();
        assert!((0.0297..0.0303).contains(&took.as_secs_f64()), "{took:?}");
    }
}
