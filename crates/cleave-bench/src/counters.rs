//! What the kernel counts for this process, and the space of its files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::failure::{Failure, Result};

/// Totals since the process began.
#[derive(Debug, Clone, Copy, Default)]
pub struct Counters {
    /// Seconds of CPU in user mode.
    pub cpu_user_s: f64,
    /// Seconds of CPU in the kernel.
    pub cpu_sys_s: f64,
    /// Bytes read from the device.
    pub device_bytes_read: u64,
    /// Bytes that went, or will go, to the device.
    pub device_bytes_written: u64,
}

impl Counters {
    /// The totals now.
    ///
    /// # Errors
    /// If /proc does not tell.
    pub fn now() -> Result<Counters> {
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
            })
        };
        counters().ok_or_else(|| Failure::new("/proc/self/io or /proc/self/stat has no such counters"))
    }

    /// What was added since `earlier`.
    pub fn since(&self, earlier: &Counters) -> Counters {
        Counters {
            cpu_user_s: self.cpu_user_s - earlier.cpu_user_s,
            cpu_sys_s: self.cpu_sys_s - earlier.cpu_sys_s,
            device_bytes_read: self.device_bytes_read - earlier.device_bytes_read,
            device_bytes_written: self.device_bytes_written - earlier.device_bytes_written,
        }
    }
}

/// The most memory that the process ever had resident, in bytes.
///
/// # Errors
/// If /proc does not tell.
pub fn rss_peak_bytes() -> Result<u64> {
    let status = read("/proc/self/status")?;
    let kib = field(&status, "VmHWM:").ok_or_else(|| Failure::new("/proc/self/status has no VmHWM"))?;
    Ok(kib << 10)
}

/// The space that the files below `dir` take on storage, in bytes. Files that go away meanwhile do not count.
///
/// # Errors
/// If a directory cannot be read.
pub fn space_bytes(dir: &Path) -> Result<u64> {
    walk(dir).map_err(Failure::because(format!("cannot read {}", dir.display())))
}

fn walk(dir: &Path) -> io::Result<u64> {
    let gone = |error: io::Error| if error.kind() == io::ErrorKind::NotFound { Ok(0) } else { Err(error) };
    let mut bytes = 0;
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) => return gone(error),
    };
    for entry in entries {
        let entry = entry?;
        bytes += match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => walk(&entry.path())?,
            Ok(metadata) => metadata.blocks() * 512,
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
        assert!(space_bytes(dir.path()).unwrap() >= 100_000);
        assert_eq!(space_bytes(&dir.path().join("nothing")).unwrap(), 0);
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
}
