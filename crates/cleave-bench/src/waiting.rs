//! How much of the slow device was left unused while writers waited for background work: what a bypass could gain. The engine
//! reports how long writers have waited, `series.rs` samples that and the devices once a second, and results hold the rest.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::device::Limits;
use crate::pace::Bursts;
use crate::size;
use crate::usage::DeviceUse;

/// Writers waited in a second if all of them together waited for at least this part of it.
const WAITED_MIN: f64 = 0.01;
/// Waiting seconds with a smaller part of the capacity used are counted.
const LOW: f64 = 0.5;
/// The same for the figure of KVAccel's paper, 90% of the bandwidth unused.
const LOWEST: f64 = 0.1;

/// What a store reports of its writers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WriterWaits {
    /// How long they have waited since it was opened, slowed down or stopped, all together. A wait counts once it has ended.
    pub waited: Duration,
    /// Bytes per second that they may write now: 0 if they are stopped, none if they are not limited.
    pub limit: Option<u64>,
}

/// The waits of writers over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WaitSeries {
    /// How long each sampled second was.
    elapsed_s: Vec<f64>,
    /// Seconds of waits in each.
    waited_s: Vec<f64>,
    /// The limit at the end of each.
    limits: Vec<Option<u64>>,
    last: WriterWaits,
}

impl WaitSeries {
    /// A series that begins when writers have waited this much.
    pub fn start(waits: WriterWaits) -> WaitSeries {
        WaitSeries { last: waits, ..WaitSeries::default() }
    }

    /// Appends a second that took `elapsed`, with `writers` that may wait. A wait that is longer than the second has begun before.
    pub fn push(&mut self, waits: WriterWaits, elapsed: Duration, writers: u64) {
        self.elapsed_s.push(elapsed.as_secs_f64().max(1e-9));
        self.waited_s.push(0.0);
        self.limits.push(waits.limit);
        let mut left = waits.waited.saturating_sub(self.last.waited).as_secs_f64();
        for (waited, elapsed) in self.waited_s.iter_mut().zip(&self.elapsed_s).rev() {
            let part = left.min(elapsed * writers as f64 - *waited).max(0.0);
            *waited += part;
            left -= part;
        }
        self.last = waits;
    }
}

/// What the capacity of a device is taken from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityOf {
    /// Its throttle: a second uses the largest of the shares of the limits, of bytes and of operations in each direction.
    Throttle,
    /// The complete second with the most bytes read and written.
    HighestSecond,
}

impl CapacityOf {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            CapacityOf::Throttle => "throttle",
            CapacityOf::HighestSecond => "highest second",
        }
    }
}

/// Waits of writers, and the use of the slow device meanwhile. Shares are fractions of 1, and of complete seconds. The names of the
/// fields are a stable public format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    /// The device of the slow tier, or of the only directory: the kernel's name.
    pub device: String,
    /// What its capacity is taken from.
    pub capacity_of: CapacityOf,
    /// The most bytes that it read and wrote in a complete second.
    pub highest_bytes_per_second: f64,
    /// Seconds that writers waited in each second, all together.
    pub waited_s_per_second: Vec<f64>,
    /// The limit on writes at the end of each second, in bytes per second: 0 if they were stopped, none if they were not limited.
    pub limit_per_second: Vec<Option<u64>>,
    /// The share of the capacity that each second used.
    pub used_per_second: Vec<f64>,
    /// Complete seconds in which the load was on or writers waited.
    pub seconds: u64,
    /// Those in which writers waited.
    pub waiting_seconds: u64,
    /// The same as a share of them; none if there are none.
    pub waiting_share: Option<f64>,
    /// The mean share of the capacity that waiting seconds used; none if there are none, as for the following.
    pub used: Option<f64>,
    /// The mean share of the time of waiting seconds in which the device was busy.
    pub busy: Option<f64>,
    /// Bytes that the device read and wrote per second, the mean of waiting seconds.
    pub bytes_per_second: Option<f64>,
    /// The share of waiting seconds that used less than half of the capacity.
    pub under_half: Option<f64>,
    /// The share of waiting seconds that used less than a tenth of it.
    pub under_tenth: Option<f64>,
}

impl Waiting {
    /// The waits of `series`, with the use of the device of the slow tier among `devices`, or of the only directory, which has
    /// `limits`. None if the device is unknown.
    pub fn of(
        series: &WaitSeries,
        devices: &[DeviceUse],
        limits: Option<&Limits>,
        bursts: Option<Bursts>,
    ) -> Option<Waiting> {
        let device = ["slow", "main"].into_iter().find_map(|name| devices.iter().find(|device| device.has(name)))?;
        let complete = series.elapsed_s.len().saturating_sub(1);
        let bytes: Vec<f64> = (0..series.elapsed_s.len()).map(|second| bytes_in(device, series, second)).collect();
        let highest = bytes[..complete].iter().copied().fold(0.0, f64::max);
        let of_limits = |second: usize| share_of(limits?, device, second, series.elapsed_s[second]);
        let capacity_of = match limits.is_some_and(|limits| *limits != Limits::default()) {
            true => CapacityOf::Throttle,
            false => CapacityOf::HighestSecond,
        };
        let used = |second: usize| match capacity_of {
            CapacityOf::Throttle => of_limits(second).unwrap_or_default().min(1.0),
            CapacityOf::HighestSecond if highest > 0.0 => (bytes[second] / highest).min(1.0),
            CapacityOf::HighestSecond => 0.0,
        };
        let used: Vec<f64> = (0..bytes.len()).map(used).collect();
        let waits = |second: &usize| series.waited_s[*second] >= WAITED_MIN * series.elapsed_s[*second];
        let is_on = |second: &usize| bursts.is_none_or(|bursts| bursts.is_on_in(*second));
        let seconds = (0..complete).filter(|second| is_on(second) || waits(second)).count();
        let waiting: Vec<usize> = (0..complete).filter(waits).collect();
        let mean = |of: &dyn Fn(usize) -> f64| {
            let sum: f64 = waiting.iter().map(|second| of(*second)).sum();
            (!waiting.is_empty()).then(|| sum / waiting.len() as f64)
        };
        let below = |part: f64| mean(&|second| f64::from(u8::from(used[second] < part)));
        Some(Waiting {
            device: device.device.clone(),
            capacity_of,
            highest_bytes_per_second: highest,
            waiting_share: (seconds > 0).then(|| waiting.len() as f64 / seconds as f64),
            used: mean(&|second| used[second]),
            busy: mean(&|second| device.busy_per_second[second]),
            bytes_per_second: mean(&|second| bytes[second]),
            under_half: below(LOW),
            under_tenth: below(LOWEST),
            seconds: seconds as u64,
            waiting_seconds: waiting.len() as u64,
            waited_s_per_second: series.waited_s.clone(),
            limit_per_second: series.limits.clone(),
            used_per_second: used,
        })
    }
}

impl Waiting {
    /// The figures as text: waiting seconds, what they used and how busy the device was in percent, bytes per second, and the seconds
    /// that used less than half and than a tenth in percent.
    pub fn cells(&self) -> [String; 6] {
        let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0}", share * 100.0));
        let bytes = self.bytes_per_second.map_or("-".to_owned(), |bytes| format!("{}/s", size::human(bytes as u64)));
        let [share, used, busy, half, tenth] =
            [self.waiting_share, self.used, self.busy, self.under_half, self.under_tenth].map(percent);
        [share, used, busy, bytes, half, tenth]
    }
}

/// Bytes that a device read and wrote per second.
fn bytes_in(device: &DeviceUse, series: &WaitSeries, second: usize) -> f64 {
    (device.bytes_read_per_second[second] + device.bytes_written_per_second[second]) as f64 / series.elapsed_s[second]
}

/// The largest share of a limit that a second has used; none without limits.
fn share_of(limits: &Limits, device: &DeviceUse, second: usize, elapsed_s: f64) -> Option<f64> {
    let used = [
        (limits.read_bandwidth, &device.bytes_read_per_second),
        (limits.write_bandwidth, &device.bytes_written_per_second),
        (limits.read_iops, &device.reads_per_second),
        (limits.write_iops, &device.writes_per_second),
    ];
    let shares = used.into_iter().filter_map(|(limit, done)| {
        let limit = limit.filter(|limit| *limit > 0)?;
        Some(done[second] as f64 / elapsed_s / limit as f64)
    });
    shares.reduce(f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Waits that ended in each second, of one writer.
    fn series(waited_ms: &[u64]) -> WaitSeries {
        let mut series = WaitSeries::start(WriterWaits { waited: SECOND, limit: None });
        let mut total = SECOND;
        for ms in waited_ms {
            total += Duration::from_millis(*ms);
            series.push(WriterWaits { waited: total, limit: (*ms > 0).then_some(0) }, SECOND, 1);
        }
        series
    }

    fn device(written: &[u64]) -> DeviceUse {
        DeviceUse {
            device: "loop0".to_owned(),
            directories: "slow".to_owned(),
            busy_per_second: written.iter().map(|_| 0.25).collect(),
            bytes_read_per_second: vec![0; written.len()],
            bytes_written_per_second: written.to_vec(),
            reads_per_second: vec![0; written.len()],
            writes_per_second: vec![1; written.len()],
            ..DeviceUse::default()
        }
    }

    #[test]
    fn a_long_wait_counts_in_the_seconds_in_which_it_was() {
        assert_eq!(series(&[0, 0, 0, 2500, 100]).waited_s, [0.0, 0.5, 1.0, 1.0, 0.1]);
        // What began before the start is not part of it.
        assert_eq!(series(&[2500]).waited_s, [1.0]);
        let mut two = WaitSeries::start(WriterWaits::default());
        two.push(WriterWaits { waited: SECOND * 2, limit: None }, SECOND, 2);
        assert_eq!(two.waited_s, [2.0]);
    }

    #[test]
    fn waiting_seconds_are_compared_with_the_highest_second() {
        let devices = [device(&[100, 4, 30, 80, 20, 999])];
        let waiting = Waiting::of(&series(&[0, 500, 500, 500, 9, 500]), &devices, None, None).unwrap();
        assert_eq!((waiting.capacity_of, waiting.highest_bytes_per_second), (CapacityOf::HighestSecond, 100.0));
        assert_eq!((waiting.seconds, waiting.waiting_seconds, waiting.waiting_share), (5, 3, Some(0.6)));
        assert!((waiting.used.unwrap() - 0.38).abs() < 1e-9, "{waiting:?}");
        assert_eq!((waiting.under_half, waiting.under_tenth), (Some(2.0 / 3.0), Some(1.0 / 3.0)));
        assert_eq!((waiting.busy, waiting.bytes_per_second), (Some(0.25), Some(38.0)));
        assert_eq!(waiting.limit_per_second[..2], [None, Some(0)]);
        assert_eq!(Waiting::of(&series(&[0, 0]), &[], None, None), None);
        let never = Waiting::of(&series(&[0, 0]), &devices, None, None).unwrap();
        assert_eq!((never.waiting_share, never.used, never.under_half), (Some(0.0), None, None));
    }

    #[test]
    fn a_known_throttle_is_the_capacity_in_bytes_and_in_operations() {
        let limits = Limits { write_bandwidth: Some(200), write_iops: Some(4), ..Limits::default() };
        let devices = [device(&[100, 10, 300, 0])];
        let waiting = Waiting::of(&series(&[900, 900, 900, 0]), &devices, Some(&limits), None).unwrap();
        assert_eq!(waiting.capacity_of, CapacityOf::Throttle);
        // One write of four is a quarter, even if it has few bytes; no second uses more than all.
        assert_eq!(waiting.used_per_second[..3], [0.5, 0.25, 1.0]);
        assert_eq!(waiting.under_half, Some(1.0 / 3.0));
        let none = Waiting::of(&series(&[900, 0]), &devices, Some(&Limits::default()), None).unwrap();
        assert_eq!(none.capacity_of, CapacityOf::HighestSecond);
    }

    #[test]
    fn seconds_without_load_count_only_if_writers_wait() {
        let bursts = "2,2".parse().ok();
        let devices = [device(&[9, 9, 9, 9, 9, 9])];
        let waiting = Waiting::of(&series(&[0, 900, 900, 0, 0, 0]), &devices, None, bursts).unwrap();
        assert_eq!((waiting.seconds, waiting.waiting_seconds), (4, 2));
    }
}
