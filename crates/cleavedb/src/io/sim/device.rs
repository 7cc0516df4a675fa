//! The device of a directory of the simulated disk: how long an operation takes there, and what was done so far, counted as a
//! system counts it. Operations of several threads are under way together. Used by [`State`](super::state::State).

use std::time::Duration;

use crate::io::storage::DeviceUsage;

/// A device.
#[derive(Debug, Clone, Default)]
pub(super) struct Device {
    /// How long each operation takes.
    pub(super) latency: Duration,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    requests: u64,
    request_time: Duration,
    /// The time up to `busy_until` in which operations are under way.
    busy_time: Duration,
    busy_until: Duration,
}

impl Device {
    /// Begins an operation; returns how long it takes.
    pub(super) fn begin(&mut self, now: Duration) -> Duration {
        let until = now + self.latency;
        self.busy_time += until.saturating_sub(now.max(self.busy_until));
        self.busy_until = self.busy_until.max(until);
        self.requests += 1;
        self.request_time += self.latency;
        self.latency
    }

    /// What was done up to now.
    pub(super) fn usage(&self, number: u64, now: Duration) -> DeviceUsage {
        DeviceUsage {
            number,
            requests: self.requests,
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            request_time: self.request_time,
            busy_time: self.busy_time.saturating_sub(self.busy_until.saturating_sub(now)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_busy_while_at_least_one_operation_is_under_way() {
        let ms = Duration::from_millis;
        let mut device = Device { latency: ms(10), ..Device::default() };
        let mut busy = |begin: Option<u64>, at: u64| {
            begin.into_iter().for_each(|begin| assert_eq!(device.begin(ms(begin)), ms(10)));
            device.usage(1, ms(at)).busy_time
        };
        assert_eq!(busy(None, 5), ms(0));
        assert_eq!([busy(Some(100), 104), busy(None, 200)], [ms(4), ms(10)]);
        // Two together, and then a pause.
        assert_eq!([busy(Some(200), 204), busy(Some(204), 212), busy(None, 300)], [ms(14), ms(22), ms(24)]);
        let usage = device.usage(1, ms(300));
        assert_eq!((usage.number, usage.requests, usage.request_time), (1, 3, ms(30)));
    }
}
