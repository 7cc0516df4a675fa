//! Counters of the block devices of a run's directories, from /proc/diskstats: busy time and bytes, of all processes. Read
//! by the meter in `counters.rs`.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use crate::failure::{Failure, Result};

/// The unit of /proc/diskstats, independent of the device's sector size.
const SECTOR_BYTES: u64 = 512;

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
}

/// Totals of one device.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskCounters {
    /// Bytes read.
    pub bytes_read: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Time with at least one request in flight.
    pub busy: Duration,
}

impl Disks {
    /// The devices of `dirs`, directories with their names; none if any of them is unknown.
    pub fn of<'a>(dirs: impl Iterator<Item = (&'static str, &'a Path)>) -> Disks {
        let read = |path| fs::read_to_string(path).unwrap_or_default();
        let (stats, mounts) = (read("/proc/diskstats"), read("/proc/self/mountinfo"));
        let number = |dir: &Path| {
            let device = fs::metadata(dir).ok()?.dev();
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
                None => disks.push(Disk { number, name: name(&stats, number), directories: vec![directory] }),
            }
        }
        Disks(disks)
    }

    /// Each of them, in the order of [`Disks::now`].
    pub fn iter(&self) -> impl Iterator<Item = &Disk> {
        self.0.iter()
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
        assert_eq!(vda.busy, Duration::from_millis(2500));
        assert_eq!(counters(STATS, (7, 0)), Some(DiskCounters::default()));
        assert_eq!(counters(STATS, (254, 1)), None);
        assert_eq!([name(STATS, (254, 0)), name(STATS, (7, 0))], ["vda", "loop0"]);
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
