//! Counters of the block devices of a run's directories, from /proc/diskstats: busy time, bytes and operations, of all processes. Read
//! by the meter in `counters.rs`.
//!
//! The kernel counts a request to a loop device again for the device that carries its image. If both are devices of the
//! run, the bytes of the loop device are subtracted from those of its carrier, and totals count the carrier only.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Failure, Result};

/// The unit of /proc/diskstats, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

/// The most loop devices on top of each other that are resolved.
const LOOPS_MAX: usize = 8;

/// The block devices below directories; empty if one of them is unknown.
#[derive(Debug, Clone, Default)]
pub struct Disks(Vec<Disk>);

/// One block device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Its major and minor number.
    number: (u32, u32),
    /// The kernel's name.
    pub name: String,
    /// The names of the directories on it.
    pub directories: Vec<&'static str>,
    /// The names of the directories on loop devices whose images are on it.
    pub carries: Vec<&'static str>,
    /// The position of the device with its image, if that is a device of the run.
    carrier: Option<usize>,
}

/// Totals of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Reads completed, after the kernel has merged neighbouring ones.
    pub reads: u64,
    /// Writes completed, likewise.
    pub writes: u64,
    /// Time with at least one request in flight.
    pub busy: Duration,
}

impl Disks {
    /// The devices of `dirs`, directories with their names; none if any of them is unknown.
    pub fn of<'a>(dirs: impl Iterator<Item = (&'static str, &'a Path)>) -> Disks {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (stats, mounts) = (read("/proc/diskstats"), read("/proc/self/mountinfo"));
        let number = |path: &Path| {
            let device = fs::metadata(path).ok()?.dev();
            let own = (rustix::fs::major(device), rustix::fs::minor(device));
            // The number of a file system on several devices, or on top of another one, is not that of a block device.
            let number = counters(&stats, own).map(|_| own).or_else(|| source(&mounts, own))?;
            counters(&stats, number).map(|_| number)
        };
        let mut disks: Vec<Disk> = Vec::new();
        for (directory, dir) in dirs {
            let Some(number) = number(dir) else { return Disks::default() };
            match disks.iter_mut().find(|disk| disk.number == number) {
                Some(disk) => disk.directories.push(directory),
                None => disks.push(Disk {
                    number,
                    name: name(&stats, number),
                    directories: vec![directory],
                    carries: Vec::new(),
                    carrier: None,
                }),
            }
        }
        let below = |(major, minor): (u32, u32)| {
            let device = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
            // A partition of a loop device is a directory in that of the device.
            number(&image(&device).or_else(|| image(&device.join("..")))?)
        };
        Disks(with_carriers(disks, below))
    }

    /// Each of them, in the order of [`Disks::now`].
    pub fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.0.iter()
    }

    /// The sums of the bytes read and written in `counters`, each request counted once.
    pub fn bytes(&self, counters: &[DiskCounters]) -> (u64, u64) {
        let lowest = self.0.iter().zip(counters).filter(|(disk, _)| disk.carrier.is_none());
        lowest.fold((0, 0), |(read, written), (_, one)| (read + one.bytes_read, written + one.bytes_written))
    }

    /// What each device did between two readings: its busy time, and its bytes and operations without those of the
    /// loop devices that it carries. The difference is exact if a loop device has direct I/O; otherwise the page cache delays its writes.
    pub fn between(&self, before: &[DiskCounters], after: &[DiskCounters]) -> Vec<DiskCounters> {
        let all: Vec<DiskCounters> = before.iter().zip(after).map(|(before, after)| after.since(before)).collect();
        let mut own = all.clone();
        for (disk, used) in self.0.iter().zip(&all) {
            if let Some(carrier) = disk.carrier {
                own[carrier].bytes_read = own[carrier].bytes_read.saturating_sub(used.bytes_read);
                own[carrier].bytes_written = own[carrier].bytes_written.saturating_sub(used.bytes_written);
                own[carrier].reads = own[carrier].reads.saturating_sub(used.reads);
                own[carrier].writes = own[carrier].writes.saturating_sub(used.writes);
            }
        }
        own
    }

    /// Whether they are known.
    pub fn are_known(&self) -> bool {
        !self.0.is_empty()
    }

    /// Their current totals.
    ///
    /// # Errors
    /// If one of them has disappeared.
    pub fn now(&self) -> Result<Vec<DiskCounters>> {
        if self.0.is_empty() {
            return Ok(Vec::new());
        }
        let stats = fs::read_to_string("/proc/diskstats").map_err(Failure::because("cannot read /proc/diskstats"))?;
        let gone =
            |&(major, minor): &(u32, u32)| Failure::new(format!("/proc/diskstats no longer has {major}:{minor}"));
        let totals = |Disk { number, .. }: &Disk| counters(&stats, *number).ok_or_else(|| gone(number));
        self.0.iter().map(totals).collect()
    }
}

impl DiskCounters {
    /// The difference to `earlier`.
    fn since(&self, earlier: &DiskCounters) -> DiskCounters {
        DiskCounters {
            bytes_read: self.bytes_read.saturating_sub(earlier.bytes_read),
            bytes_written: self.bytes_written.saturating_sub(earlier.bytes_written),
            reads: self.reads.saturating_sub(earlier.reads),
            writes: self.writes.saturating_sub(earlier.writes),
            busy: self.busy.saturating_sub(earlier.busy),
        }
    }
}

/// Finds the carrier of each of `disks`: the first of them among the devices below it, where the device with the image of
/// a loop device is `below` that.
fn with_carriers(mut disks: Vec<Disk>, below: impl Fn((u32, u32)) -> Option<(u32, u32)>) -> Vec<Disk> {
    for position in 0..disks.len() {
        let mut chain = std::iter::successors(below(disks[position].number), |number| below(*number)).take(LOOPS_MAX);
        let carrier = chain.find_map(|number| disks.iter().position(|disk| disk.number == number));
        disks[position].carrier = carrier;
    }
    for position in 0..disks.len() {
        let directories = disks[position].directories.clone();
        let mut above = position;
        while let Some(carrier) = disks[above].carrier {
            disks[carrier].carries.extend(&directories);
            above = carrier;
        }
    }
    disks
}

/// The image of the loop device with this directory in /sys; none if it is another device, or detached.
pub fn image(device: &Path) -> Option<PathBuf> {
    let file = fs::read_to_string(device.join("loop/backing_file")).ok()?;
    Some(file.trim_end().trim_end_matches(" (deleted)").into())
}

/// The fields of the line of device `number` in the text of /proc/diskstats.
fn fields(stats: &str, number: (u32, u32)) -> Option<Vec<&str>> {
    let mut lines = stats.lines().map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
    lines.find(|fields| fields.len() >= 13 && fields[0].parse() == Ok(number.0) && fields[1].parse() == Ok(number.1))
}

/// The kernel's name of device `number`.
fn name(stats: &str, number: (u32, u32)) -> String {
    fields(stats, number).map_or_else(String::new, |fields| fields[2].to_owned())
}

/// The totals of device `number` in the text of /proc/diskstats.
fn counters(stats: &str, number: (u32, u32)) -> Option<DiskCounters> {
    let fields = fields(stats, number)?;
    let field = |position: usize| fields[position].parse::<u64>().ok();
    Some(DiskCounters {
        bytes_read: field(5)? * SECTOR_BYTES,
        bytes_written: field(9)? * SECTOR_BYTES,
        reads: field(3)?,
        writes: field(7)?,
        busy: Duration::from_millis(field(12)?),
    })
}

/// The block device that is the source of the mount with the number `mounted`, in the text of mountinfo.
fn source(mounts: &str, mounted: (u32, u32)) -> Option<(u32, u32)> {
    let wanted = format!("{}:{}", mounted.0, mounted.1);
    let line = mounts.lines().find(|line| line.split(' ').nth(2) == Some(&wanted))?;
    let source = line.split_once(" - ")?.1.split(' ').nth(1)?;
    let device = fs::metadata(source).ok()?.rdev();
    Some((rustix::fs::major(device), rustix::fs::minor(device)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "   7       0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
 254       0 vda 1126 44 3000 18 823 208 5000 133 0 2500 328 2 1 3 4 5 6
";

    #[test]
    fn counters_are_those_of_the_requested_device() {
        let vda = counters(STATS, (254, 0)).unwrap();
        assert_eq!((vda.bytes_read, vda.bytes_written), (3000 * 512, 5000 * 512));
        assert_eq!((vda.reads, vda.writes), (1126, 823));
        assert_eq!(vda.busy, Duration::from_millis(2500));
        assert_eq!(counters(STATS, (7, 0)), Some(DiskCounters::default()));
        assert_eq!(counters(STATS, (254, 1)), None);
        assert_eq!([name(STATS, (254, 0)), name(STATS, (7, 0))], ["vda", "loop0"]);
    }

    fn disk(minor: u32, directory: &'static str) -> Disk {
        let directories = vec![directory];
        Disk { number: (7, minor), name: format!("loop{minor}"), directories, carries: Vec::new(), carrier: None }
    }

    fn counted(bytes_read: u64, bytes_written: u64, ms: u64) -> DiskCounters {
        DiskCounters { bytes_read, bytes_written, busy: Duration::from_millis(ms), ..DiskCounters::default() }
    }

    #[test]
    fn a_loop_device_is_on_the_next_device_of_the_run_below_its_image() {
        // The image of loop 3 is on loop 2, whose image is on loop 1, and so on; the last one is not a loop device.
        let below = |(major, minor): (u32, u32)| minor.checked_sub(1).map(|minor| (major, minor));
        let disks = with_carriers(vec![disk(3, "slow"), disk(0, "main"), disk(1, "fast")], below);
        assert_eq!(disks.iter().map(|disk| disk.carrier).collect::<Vec<_>>(), [Some(2), None, Some(1)]);
        let carried: Vec<&[&str]> = disks.iter().map(|disk| &disk.carries[..]).collect();
        assert_eq!(carried, [&[][..], &["slow", "fast"], &["slow"]]);
        let elsewhere = with_carriers(vec![disk(3, "slow"), disk(5, "fast")], |_| Some((254, 0)));
        assert!(elsewhere.iter().all(|disk| disk.carrier.is_none() && disk.carries.is_empty()));
    }

    #[test]
    fn bytes_of_a_loop_device_are_not_those_of_its_carrier_and_count_once() {
        let below = |number| (number == (7, 1)).then_some((7, 0));
        let disks = Disks(with_carriers(vec![disk(0, "fast"), disk(1, "slow"), disk(9, "main")], below));
        let before = [counted(100, 200, 10), counted(30, 20, 5), counted(1, 2, 0)];
        let after = [counted(180, 300, 90), counted(80, 95, 65), counted(4, 6, 1)];
        let own = disks.between(&before, &after);
        assert_eq!(own, [counted(30, 25, 80), counted(50, 75, 60), counted(3, 4, 1)]);
        assert_eq!(disks.bytes(&after), (184, 306));
        // The page cache has not written it back yet.
        let delayed = disks.between(&before, &[before[0], after[1], before[2]]);
        assert_eq!(delayed[0], counted(0, 0, 0));
    }

    #[test]
    fn the_image_of_a_loop_device_is_its_backing_file() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(image(dir.path()), None);
        fs::create_dir(dir.path().join("loop")).unwrap();
        for line in ["/tmp/a b.img\n", "/tmp/a b.img (deleted)\n"] {
            fs::write(dir.path().join("loop/backing_file"), line).unwrap();
            assert_eq!(image(dir.path()), Some("/tmp/a b.img".into()));
        }
    }

    #[test]
    fn directories_on_one_device_share_it() {
        let dir = tempfile::tempdir().unwrap();
        let disks = Disks::of([("fast", dir.path()), ("slow", dir.path())].into_iter());
        // A file system in memory has no device.
        assert!(disks.iter().all(|disk| disk.directories == ["fast", "slow"]) && disks.0.len() <= 1, "{disks:?}");
        assert_eq!(disks.now().unwrap().len(), disks.0.len());
    }

    #[test]
    fn a_source_that_is_not_a_device_is_unknown() {
        let mounts = "26 24 0:24 / /dev/pts rw,relatime - devpts devpts rw\n";
        assert_eq!(source(mounts, (0, 24)), None);
        assert!(!Disks::of([("main", Path::new("/proc"))].into_iter()).are_known());
    }
}
