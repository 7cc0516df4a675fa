//! What goes where while writers go around background work: bytes over the host's link to a key-value device and bytes of the slow
//! device, in the seconds in which writers would have waited without that. The engine reports what it redirected, `series.rs`
//! samples that and the devices once a second, and results hold the rest.

use serde::{Deserialize, Serialize};

use crate::size;
use crate::usage::DeviceUse;

/// What a store reports of its bypass; totals since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bypassed {
    /// Bytes that went around.
    pub redirected_bytes: u64,
    /// Bytes over the host's link to its key-value device, both directions; none without a device.
    pub link_bytes: Option<u64>,
}

/// The bypass over time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BypassSeries {
    redirected: Vec<u64>,
    link: Vec<u64>,
    last: Bypassed,
}

impl BypassSeries {
    /// A series that begins when this much was bypassed.
    pub fn start(bypassed: Bypassed) -> BypassSeries {
        BypassSeries { last: bypassed, ..BypassSeries::default() }
    }

    /// Appends a second.
    pub fn push(&mut self, now: Bypassed) {
        let Bypassed { redirected_bytes, link_bytes } = self.last;
        self.redirected.push(now.redirected_bytes.saturating_sub(redirected_bytes));
        if let Some((link, before)) = now.link_bytes.zip(link_bytes) {
            self.link.push(link.saturating_sub(before));
        }
        self.last = now;
    }
}

/// Seconds in which writers went around background work, and the traffic in these. Figures are of complete seconds. The names of the
/// fields are a stable public format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Redirects {
    /// Bytes that went around in each second.
    pub redirected_bytes_per_second: Vec<u64>,
    /// Bytes over the host's link to the key-value device in each second, both directions; empty without a device.
    pub link_bytes_per_second: Vec<u64>,
    /// The number of complete seconds in which bytes went around.
    pub seconds: u64,
    /// Bytes per second over the host's link, the mean of these seconds; none without a device.
    pub link_bytes_a_second: Option<f64>,
    /// Bytes per second that the device of the slow tier, or of the only directory, read and wrote, likewise; none if it is unknown.
    pub device_bytes_a_second: Option<f64>,
}

impl Redirects {
    /// The redirects of `series`, with the device of the slow tier among `devices`, or of the only directory. None if nothing went
    /// around in a complete second.
    pub fn of(series: &BypassSeries, devices: &[DeviceUse]) -> Option<Redirects> {
        let complete = series.redirected.len().saturating_sub(1);
        let around: Vec<usize> = (0..complete).filter(|second| series.redirected[*second] > 0).collect();
        let mean = |bytes: &dyn Fn(usize) -> u64| {
            let sum: u64 = around.iter().map(|second| bytes(*second)).sum();
            sum as f64 / around.len() as f64
        };
        let device = ["slow", "main"].into_iter().find_map(|name| devices.iter().find(|device| device.has(name)));
        let of_device = |device: &DeviceUse| {
            mean(&|second| device.bytes_read_per_second[second] + device.bytes_written_per_second[second])
        };
        let has_link = series.link.len() == series.redirected.len();
        (!around.is_empty()).then(|| Redirects {
            redirected_bytes_per_second: series.redirected.clone(),
            link_bytes_per_second: series.link.clone(),
            seconds: around.len() as u64,
            link_bytes_a_second: has_link.then(|| mean(&|second| series.link[second])),
            device_bytes_a_second: device.map(of_device),
        })
    }

    /// The figures as text: seconds, and bytes per second over the link and of the device.
    pub fn cells(&self) -> [String; 3] {
        let bytes =
            |bytes: Option<f64>| bytes.map_or("-".to_owned(), |bytes| format!("{}/s", size::human(bytes as u64)));
        [self.seconds.to_string(), bytes(self.link_bytes_a_second), bytes(self.device_bytes_a_second)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(samples: &[(u64, Option<u64>)]) -> BypassSeries {
        let sample = |(redirected_bytes, link_bytes): &(u64, Option<u64>)| Bypassed {
            redirected_bytes: *redirected_bytes,
            link_bytes: *link_bytes,
        };
        let mut series = BypassSeries::start(sample(&samples[0]));
        samples[1..].iter().for_each(|one| series.push(sample(one)));
        series
    }

    fn device(name: &str, written: &[u64]) -> DeviceUse {
        DeviceUse {
            directories: name.to_owned(),
            bytes_read_per_second: vec![1; written.len()],
            bytes_written_per_second: written.to_vec(),
            ..DeviceUse::default()
        }
    }

    #[test]
    fn traffic_is_that_of_complete_seconds_in_which_bytes_went_around() {
        let samples =
            [(7, Some(100)), (7, Some(100)), (17, Some(130)), (27, Some(180)), (27, Some(900)), (99, Some(999))];
        let devices = [device("fast", &[5000; 5]), device("slow", &[900, 9, 19, 900, 900])];
        let redirects = Redirects::of(&series(&samples), &devices).unwrap();
        assert_eq!(redirects.redirected_bytes_per_second, [0, 10, 10, 0, 72]);
        assert_eq!(redirects.link_bytes_per_second, [0, 30, 50, 720, 99]);
        let means = (redirects.link_bytes_a_second, redirects.device_bytes_a_second);
        assert_eq!((redirects.seconds, means), (2, (Some(40.0), Some(15.0))));
    }

    #[test]
    fn without_a_device_there_is_no_link_and_without_redirects_there_is_nothing() {
        let spilled = Redirects::of(&series(&[(0, None), (5, None), (9, None)]), &[]).unwrap();
        assert!(spilled.link_bytes_per_second.is_empty());
        assert_eq!(spilled.cells(), ["1", "-", "-"].map(str::to_owned));
        // The last second is not complete.
        assert_eq!(Redirects::of(&series(&[(0, None), (0, None), (9, None)]), &[]), None);
        assert_eq!(Redirects::of(&series(&[(0, None)]), &[]), None);
    }
}
