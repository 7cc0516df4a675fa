//! How busy the processors and a device are, as the Linux kernel counts it for the whole machine. Asked a few times a second
//! by the scheduler, through [`Storage::processor_time`](super::Storage::processor_time) and
//! [`Storage::device_usage`](super::Storage::device_usage).

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::storage::{DeviceUsage, ProcessorTime};

/// The kernel's unit of length in its statistics, whatever the device has.
const SECTOR_BYTES: u64 = 512;

/// `None` if the system does not say.
pub(super) fn processor_time() -> Option<ProcessorTime> {
    processors_in(&fs::read_to_string("/proc/stat").ok()?)
}

/// The device that holds a directory; `None` if the system does not say.
pub(super) fn device_usage(dir: &Path) -> Option<DeviceUsage> {
    let device = fs::metadata(dir).ok()?.dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let usage = device_in(&fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?)?;
    Some(DeviceUsage { number: device, ..usage })
}

/// The first line: `cpu user nice system idle iowait irq softirq steal guest guest_nice`. The guests' time is in the first
/// two already. A processor that waits for storage is not in use.
fn processors_in(stat: &str) -> Option<ProcessorTime> {
    let times = stat.lines().next()?.strip_prefix("cpu ")?.split_ascii_whitespace();
    let times: Vec<u64> = times.map(|time| time.parse().ok()).collect::<Option<_>>()?;
    let is_processor = |line: &&str| line.strip_prefix("cpu").is_some_and(|name| !name.starts_with(' '));
    let count = stat.lines().filter(is_processor).count() as u64;
    let all = times.iter().take(8).sum();
    let unused: u64 = times.get(3..5)?.iter().sum();
    Some(ProcessorTime { busy: all - unused, all, count })
}

/// Reads, joined, sectors, milliseconds; the same of writes; requests under way; milliseconds in which there were some.
fn device_in(stat: &str) -> Option<DeviceUsage> {
    let figures: Vec<u64> = stat.split_ascii_whitespace().map(|figure| figure.parse().ok()).collect::<Option<_>>()?;
    let [reads, _, read_sectors, read_ms, writes, _, written_sectors, write_ms, _, busy_ms] = *figures.first_chunk()?;
    Some(DeviceUsage {
        number: 0,
        requests: reads + writes,
        read_bytes: read_sectors * SECTOR_BYTES,
        written_bytes: written_sectors * SECTOR_BYTES,
        request_time: Duration::from_millis(read_ms + write_ms),
        busy_time: Duration::from_millis(busy_ms),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_figures_are_understood_and_others_are_not() {
        let stat = "cpu  100 20 30 4000 500 6 7 8 90 0\ncpu0 1 2 3 4 5 6 7 8 9 0\ncpu1 1 2 3 4 5 6 7 8 9 0\nintr 7\n";
        assert_eq!(processors_in(stat), Some(ProcessorTime { busy: 171, all: 4671, count: 2 }));
        let wrong = ["", "cpu0 1 2 3 4 5", "cpu  1 2 3", "cpu  1 x 3 4 5 6 7 8"];
        assert!(wrong.iter().all(|stat| processors_in(stat).is_none()));
        let device = device_in("   10  1  16  30   20  2  800  50   3   70  80 0 0 0 0 0 0\n").unwrap();
        assert_eq!((device.requests, device.read_bytes, device.written_bytes), (30, 8192, 409_600));
        assert_eq!((device.request_time, device.busy_time), (Duration::from_millis(80), Duration::from_millis(70)));
        assert!(["", "1 2 3", "a b c d e f g h i j"].iter().all(|stat| device_in(stat).is_none()));
    }

    #[test]
    fn a_directory_without_a_device_has_no_usage() {
        assert_eq!(device_usage(Path::new("/no/such/directory")), None);
        // Where the system has figures, they grow.
        if let (Some(before), Some(after)) = (processor_time(), processor_time()) {
            assert!(before.busy <= after.busy && before.all <= after.all && after.busy <= after.all);
        }
    }
}
