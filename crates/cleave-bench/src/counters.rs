//! Counters of the kernel for this process and, if requested, for its block devices; and the disk space of its files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::disk::{DiskCounters, Disks};
use crate::engine::Dirs;
use crate::failure::{Failure, Result};

/// Reads the counters of a run.
pub struct Meter {
    disks: Disks,
    by_device: bool,
}

impl Meter {
    /// The meter of a run in `dirs`. With `own_device` the bytes are those that the devices count.
    ///
    /// # Errors
    /// With `own_device`, if the devices of the directories are unknown.
    pub fn new(dirs: &Dirs, own_device: bool) -> Result<Meter> {
        let disks = Disks::of(dirs.named());
        match own_device && !disks.are_known() {
            true => Err(Failure::new("--own-device: the block device of the directories is unknown")),
            false => Ok(Meter { disks, by_device: own_device }),
        }
    }

    /// The current totals.
    ///
    /// # Errors
    /// If /proc lacks a counter.
    pub fn now(&self) -> Result<Counters> {
        let mut counters = Counters::now()?;
        counters.disks = self.disks.now()?;
        if self.by_device {
            (counters.device_bytes_read, counters.device_bytes_written) = self.disks.bytes(&counters.disks);
        }
        Ok(counters)
    }

    /// The devices, in the order of [`Counters::disks`].
    pub fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Writes back dirty pages if the devices count the bytes, because otherwise they would be counted later.
    ///
    /// # Errors
    /// If the file system fails to sync.
    pub fn settle(&self, dirs: &Dirs) -> Result<()> {
        let sync = |dir: &Path| rustix::fs::syncfs(fs::File::open(dir)?).map_err(io::Error::from);
        // A sync of a loop device writes to the file system with its image, which is then synced again.
        let rounds = if self.disks.iter().any(|disk| !disk.carries.is_empty()) { 2 } else { 1 };
        let mut dirs = (0..rounds).flat_map(|_| dirs.all()).filter(|_| self.by_device);
        dirs.try_for_each(|dir| sync(dir).map_err(Failure::because(format!("cannot sync {}", dir.display()))))
    }

    /// What counts the bytes: `device` or `process`.
    pub fn counted_by(&self) -> &'static str {
        match self.by_device {
            true => "device",
            false => "process",
        }
    }
}

/// Totals since the process started.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// CPU seconds in user mode.
    pub cpu_user_s: f64,
    /// CPU seconds in the kernel.
    pub cpu_sys_s: f64,
    /// Bytes read from the device.
    pub device_bytes_read: u64,
    /// Bytes written to the device, including dirty pages that will be.
    pub device_bytes_written: u64,
    /// The devices, if known.
    pub disks: Vec<DiskCounters>,
}

impl Counters {
    /// The current totals of the process.
    fn now() -> Result<Counters> {
        let io = read("/proc/self/io")?;
        let stat = read("/proc/self/stat")?;
        // After the command in parentheses, from field 3 on; 14 and 15 are the times.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let seconds = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<f64>().ok()).map(|n| n / ticks);
        let counters = || {
            Some(Counters {
                cpu_user_s: seconds(14)?,
                cpu_sys_s: seconds(15)?,
                device_bytes_read: field(&io, "read_bytes:")?,
                device_bytes_written: field(&io, "write_bytes:")?,
                disks: Vec::new(),
            })
        };
        counters().ok_or_else(|| Failure::new("/proc/self/io or /proc/self/stat has no such counters"))
    }

    /// The difference to `earlier`; devices keep their totals.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            cpu_user_s: self.cpu_user_s - earlier.cpu_user_s,
            cpu_sys_s: self.cpu_sys_s - earlier.cpu_sys_s,
            device_bytes_read: self.device_bytes_read - earlier.device_bytes_read,
            device_bytes_written: self.device_bytes_written - earlier.device_bytes_written,
            disks: self.disks.clone(),
        }
    }
}

/// Peak resident memory of the process since its start or the last [`forget_rss_peak`], in bytes.
///
/// # Errors
/// If /proc lacks the counter.
pub fn rss_peak_bytes() -> Result<u64> {
    kibibytes_of_status("VmHWM:")
}

/// Makes the peak of resident memory begin at what is resident now.
pub fn forget_rss_peak() {
    // A kernel without this keeps the peak of the whole process, as documented.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Current resident memory of the process, in bytes.
///
/// # Errors
/// If /proc lacks the counter.
pub fn rss_bytes() -> Result<u64> {
    kibibytes_of_status("VmRSS:")
}

/// A line of the process's status, in bytes.
fn kibibytes_of_status(name: &str) -> Result<u64> {
    let status = read("/proc/self/status")?;
    let kib = field(&status, name).ok_or_else(|| Failure::new(format!("/proc/self/status has no {name}")))?;
    Ok(kib << 10)
}

/// Disk space of the files below each of `dirs`, in their order, in bytes. Files removed meanwhile are not counted.
///
/// # Errors
/// If a directory cannot be read.
pub fn space_bytes(dirs: &Dirs) -> Result<Vec<u64>> {
    dirs.all().map(|dir| space_of(dir, &|_| true)).collect()
}

/// Disk space of the files in `dir` whose names are wanted, in bytes.
///
/// # Errors
/// If the directory cannot be read.
pub fn space_of(dir: &Path, is_wanted: &dyn Fn(&str) -> bool) -> Result<u64> {
    walk(dir, is_wanted).map_err(Failure::because(format!("cannot read {}", dir.display())))
}

fn walk(dir: &Path, is_wanted: &dyn Fn(&str) -> bool) -> io::Result<u64> {
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(0) } else { Err(error) };
    let mut bytes = 0;
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return gone(error),
    };
    for entry in entries {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&entry.path(), is_wanted)?,
            Ok(metadata) if is_wanted(&entry.file_name().to_string_lossy()) => metadata.blocks() * 512,
            Ok(_) => 0,
            Err(error) => gone(error)?,
        };
    }
    Ok(bytes)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).map_err(Failure::because(format!("cannot read {path}")))
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_files_take_space() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("below")).unwrap();
        fs::write(dir.path().join("below/file"), vec![1; 100_000]).unwrap();
        let dirs = |main, slow| Dirs { main, fast: None, fast_bytes: None, slow };
        let (full, missing) = (dir.path().join("below"), dir.path().join("nothing"));
        assert!(space_bytes(&dirs(full.clone(), None)).unwrap()[0] >= 100_000);
        let of_both = space_bytes(&dirs(missing.clone(), Some(full))).unwrap();
        assert!(of_both[0] == 0 && of_both[1] >= 100_000, "{of_both:?}");
        assert_eq!(space_bytes(&dirs(missing, None)).unwrap(), [0]);
    }

    #[test]
    fn counters_grow_with_work() {
        let before = Counters::now().unwrap();
        let mut sum = 0u64;
        while Counters::now().unwrap().since(&before).cpu_user_s <= 0.0 {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(rss_peak_bytes().unwrap() > 1 << 20);
    }

    #[test]
    fn a_peak_of_memory_is_forgotten() {
        let bytes = std::hint::black_box(vec![1u8; 256 << 20]);
        let peak = rss_peak_bytes().unwrap();
        drop(bytes);
        forget_rss_peak();
        assert!(rss_peak_bytes().unwrap() + (128 << 20) < peak);
    }
}
