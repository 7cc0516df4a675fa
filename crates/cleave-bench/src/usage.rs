//! What a run used of its machine over time: each device below its directories, the busier of processors and devices, and
//! the space in each directory. `series.rs` samples it once a second, and results hold it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::disk::{Disk, DiskCounters};

/// The use of one device, by all processes. The names of the fields are a stable public format.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// The kernel's name.
    pub device: String,
    /// The directories of the run on it: `main`, `fast` and `slow`, joined with `+`.
    pub directories: String,
    /// The directories of the run on loop devices whose images are on it, joined with `+`; empty if there are none.
    #[serde(default)]
    pub carries: String,
    /// The fraction of each second in which it was busy, also for the loop devices that it carries.
    pub busy_per_second: Vec<f64>,
    /// Bytes read in each second, without those for the loop devices that it carries.
    pub bytes_read_per_second: Vec<u64>,
    /// Bytes written in each second, without those for the loop devices that it carries.
    pub bytes_written_per_second: Vec<u64>,
    /// Reads completed in each second, likewise.
    #[serde(default)]
    pub reads_per_second: Vec<u64>,
    /// Writes completed in each second, likewise.
    #[serde(default)]
    pub writes_per_second: Vec<u64>,
    /// `busy_per_second` over complete seconds; none if there are none.
    pub busy: Option<Band>,
}

/// The mean of a per-second figure over complete seconds, and the band that nine of ten seconds are in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Band {
    /// The mean.
    pub mean: f64,
    /// The 5th percentile.
    pub p5: f64,
    /// The 95th percentile.
    pub p95: f64,
}

/// The space in one directory of a run. The names of the fields are a stable public format.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryUse {
    /// `main`, `fast` or `slow`.
    pub directory: String,
    /// Bytes at the end of the run or phase.
    pub bytes: u64,
    /// The most bytes at the end of a second; of `fast`, the most that was found every 50 ms.
    pub bytes_peak: u64,
    /// Bytes at the end of each second.
    pub bytes_per_second: Vec<u64>,
}

impl DeviceUse {
    /// The use of `disk` before the first second.
    pub fn of(disk: &Disk) -> DeviceUse {
        let [directories, carries] = [&disk.directories, &disk.carries].map(|names| names.join("+"));
        DeviceUse { device: disk.name.clone(), directories, carries, ..DeviceUse::default() }
    }

    /// Appends a second that took `elapsed`, in which it was used this much.
    pub fn push(&mut self, used: &DiskCounters, elapsed: Duration) {
        let busy = used.busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        self.busy_per_second.push(busy.min(1.0));
        self.bytes_read_per_second.push(used.bytes_read);
        self.bytes_written_per_second.push(used.bytes_written);
        self.reads_per_second.push(used.reads);
        self.writes_per_second.push(used.writes);
    }

    /// Its name in tables: `slow (loop0)`, or `fast (vda, busy with slow too)`.
    pub fn name(&self) -> String {
        match self.carries.is_empty() {
            true => format!("{} ({})", self.directories, self.device),
            false => format!("{} ({}, busy with {} too)", self.directories, self.device, self.carries),
        }
    }

    /// Whether it is the device of `directory`.
    pub fn has(&self, directory: &str) -> bool {
        self.directories.split('+').any(|name| name == directory)
    }
}

impl Band {
    /// The band of a per-second figure without its last, incomplete second; none if no second is complete.
    pub fn of(per_second: &[f64]) -> Option<Band> {
        let mut sorted = per_second.split_last()?.1.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |part: f64| sorted[(last as f64 * part).round() as usize];
        Some(Band { mean: sorted.iter().sum::<f64>() / sorted.len() as f64, p5: at(0.05), p95: at(0.95) })
    }

    /// From the 5th to the 95th percentile.
    pub fn width(self) -> f64 {
        self.p95 - self.p5
    }
}

impl DirectoryUse {
    /// An empty directory.
    pub fn of(name: &str) -> DirectoryUse {
        DirectoryUse { directory: name.to_owned(), ..DirectoryUse::default() }
    }

    /// Appends a second at the end of which it held `bytes`.
    pub fn push(&mut self, bytes: u64) {
        self.bytes_per_second.push(bytes);
        self.end_with(bytes);
    }

    /// Notes that it holds `bytes` now.
    pub fn end_with(&mut self, bytes: u64) {
        self.bytes = bytes;
        self.bytes_peak = self.bytes_peak.max(bytes);
    }
}

/// Mean utilisation of the device of `directory`, in percent. None if it is unknown, or includes the requests to a loop
/// device of the run.
pub fn busy_percent(devices: &[DeviceUse], directory: &str) -> Option<f64> {
    busy(devices, directory).map(|band| band.mean * 100.0)
}

/// The band of the utilisation of the device of `directory`, from the 5th to the 95th percentile, in percent; none likewise.
pub fn busy_band(devices: &[DeviceUse], directory: &str) -> Option<f64> {
    busy(devices, directory).map(|band| band.width() * 100.0)
}

fn busy(devices: &[DeviceUse], directory: &str) -> Option<Band> {
    let device = devices.iter().find(|device| device.has(directory))?;
    device.busy.filter(|_| device.carries.is_empty())
}

/// The fraction of each second in which the busiest device was busy; empty without devices.
pub fn busiest_device(devices: &[DeviceUse]) -> Vec<f64> {
    let seconds = devices.iter().map(|device| device.busy_per_second.len()).max().unwrap_or(0);
    let busiest = |second: usize| devices.iter().map(|device| device.busy_per_second[second]).fold(0.0, f64::max);
    (0..seconds).map(busiest).collect()
}

/// The busier resource of each second: the larger of the share of all processors that the process used and the fraction
/// of the second in which the busiest device was busy. Empty without devices.
pub fn busier(processors: &[f64], devices: &[DeviceUse]) -> Vec<f64> {
    processors.iter().zip(busiest_device(devices)).map(|(processors, device)| processors.max(device)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(busy: &[f64]) -> DeviceUse {
        DeviceUse { busy_per_second: busy.to_vec(), ..DeviceUse::default() }
    }

    #[test]
    fn a_device_is_busy_for_at_most_all_of_a_second() {
        let used = |ms, bytes| DiskCounters {
            busy: Duration::from_millis(ms),
            bytes_read: bytes,
            bytes_written: 2 * bytes,
            reads: 1,
            writes: 3,
        };
        let mut device = DeviceUse::default();
        device.push(&used(250, 4), Duration::from_secs(1));
        device.push(&used(1500, 0), Duration::from_secs(1));
        assert_eq!(device.busy_per_second, [0.25, 1.0]);
        assert_eq!((device.bytes_read_per_second, device.bytes_written_per_second), (vec![4, 0], vec![8, 0]));
        assert_eq!((device.reads_per_second, device.writes_per_second), (vec![1, 1], vec![3, 3]));
    }

    #[test]
    fn a_device_with_the_image_of_another_has_no_utilisation_of_its_own() {
        let device = |directories: &str, carries: &str| DeviceUse {
            device: "vda".to_owned(),
            directories: directories.to_owned(),
            carries: carries.to_owned(),
            busy: Some(Band { mean: 0.5, p5: 0.0, p95: 1.0 }),
            ..DeviceUse::default()
        };
        let devices = [device("main+fast", "slow"), device("slow", "")];
        assert_eq!(["fast", "slow", "other"].map(|name| busy_percent(&devices, name)), [None, Some(50.0), None]);
        assert_eq!(busy_percent(&[device("main+fast", "")], "fast"), Some(50.0));
        assert_eq!(["fast", "slow"].map(|name| busy_band(&devices, name)), [None, Some(100.0)]);
        assert_eq!(devices.each_ref().map(DeviceUse::name), ["main+fast (vda, busy with slow too)", "slow (vda)"]);
    }

    #[test]
    fn the_busier_resource_is_chosen_in_each_second() {
        let devices = [device(&[0.2, 0.9, 0.1]), device(&[0.5, 0.3, 0.0])];
        assert_eq!(busiest_device(&devices), [0.5, 0.9, 0.1]);
        assert_eq!(busier(&[0.4, 0.4, 0.4], &devices), [0.5, 0.9, 0.4]);
        assert!(busier(&[0.4], &[]).is_empty());
    }

    #[test]
    fn a_band_is_of_complete_seconds_and_leaves_out_outliers() {
        let per_second: Vec<f64> = (0..=20).map(f64::from).chain([99.0]).collect();
        assert_eq!(Band::of(&per_second), Some(Band { mean: 10.0, p5: 1.0, p95: 19.0 }));
        assert_eq!((Band::of(&[7.0]), Band::of(&[])), (None, None));
    }

    #[test]
    fn a_directory_has_a_peak_besides_its_end() {
        let mut fast = DirectoryUse::of("fast");
        [5, 9, 3].into_iter().for_each(|bytes| fast.push(bytes));
        fast.end_with(4);
        assert_eq!((fast.bytes, fast.bytes_peak, fast.bytes_per_second), (4, 9, vec![5, 9, 3]));
    }
}
