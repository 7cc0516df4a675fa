//! The limits of a device: rules of one blkio cgroup (version 1), which has the rules of all devices of `cleave-bench
//! device`, so that a process on two of them needs to enter only one cgroup.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::args::DeviceUp;
use crate::cgroup;
use crate::failure::{Failure, Result};
use crate::size;

/// The cgroup's name.
const NAME: &str = "cleave-bench";

/// The kernel's files, in the order of the fields of `Limits`.
const FILES: [&str; 4] = ["read_bps_device", "write_bps_device", "read_iops_device", "write_iops_device"];

/// Limits per second, in bytes and in operations. None: unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes read.
    pub read_bandwidth: Option<u64>,
    /// Bytes written.
    pub write_bandwidth: Option<u64>,
    /// Reads.
    pub read_iops: Option<u64>,
    /// Writes.
    pub write_iops: Option<u64>,
}

impl Limits {
    /// The limits of the command line.
    pub fn of(args: &DeviceUp) -> Limits {
        let DeviceUp { read_bandwidth, write_bandwidth, read_iops, write_iops, .. } = *args;
        Limits { read_bandwidth, write_bandwidth, read_iops, write_iops }
    }

    fn in_order(&self) -> [Option<u64>; 4] {
        [self.read_bandwidth, self.write_bandwidth, self.read_iops, self.write_iops]
    }

    /// The limits in words.
    pub fn describe(&self) -> String {
        let bytes = |limit: Option<u64>| limit.map(|limit| format!("{}/s", size::human(limit)));
        let operations = |limit: Option<u64>| limit.map(|limit| format!("{limit} operations/s"));
        let words = |what: &str, limits: [Option<String>; 2]| match limits.into_iter().flatten().collect::<Vec<_>>() {
            limits if limits.is_empty() => format!("{what} unlimited"),
            limits => format!("{what} at most {}", limits.join(" and ")),
        };
        let reads = words("reads", [bytes(self.read_bandwidth), operations(self.read_iops)]);
        let writes = words("writes", [bytes(self.write_bandwidth), operations(self.write_iops)]);
        format!("{reads}, {writes}")
    }
}

/// The directory of the cgroup, whether or not it exists.
///
/// # Errors
/// If the system has no blkio controller of version 1.
pub fn cgroup() -> Result<PathBuf> {
    let mounts = fs::read_to_string("/proc/mounts").map_err(Failure::because("cannot read /proc/mounts"))?;
    let root = cgroup::controller(&mounts, "blkio")
        .ok_or_else(|| Failure::new("`device` needs the blkio controller of cgroup v1, which is not mounted here"))?;
    match root.join(format!("blkio.throttle.{}", FILES[0])).exists() {
        true => Ok(root.join(NAME)),
        false => Err(Failure::new(format!("{} has no throttle: the kernel was built without it", root.display()))),
    }
}

/// Limits the I/O of processes in `cgroup` on the device `number`. Creates the cgroup if missing.
///
/// # Errors
/// If the kernel refuses.
pub fn set(cgroup: &Path, number: &str, limits: &Limits) -> Result<()> {
    fs::create_dir_all(cgroup).map_err(Failure::because(format!("cannot create {}", cgroup.display())))?;
    for (file, limit) in FILES.iter().zip(limits.in_order()) {
        if let Some(limit) = limit {
            rule(cgroup, file, number, limit)?;
        }
    }
    Ok(())
}

/// Removes the limits of the device `number`; the cgroup stays.
///
/// # Errors
/// If the kernel refuses.
pub fn lift(cgroup: &Path, number: &str) -> Result<()> {
    match cgroup.exists() {
        // Writing 0 removes a limit.
        true => FILES.iter().try_for_each(|file| rule(cgroup, file, number, 0)),
        false => Ok(()),
    }
}

/// Removes `cgroup` if no device has rules in it. If a process is in it, it stays but limits nothing.
pub fn remove_unused(cgroup: &Path) {
    let empty = |file: &str| {
        let rules = fs::read_to_string(cgroup.join(format!("blkio.throttle.{file}")));
        rules.is_ok_and(|rules| rules.trim().is_empty())
    };
    if FILES.iter().all(|file| empty(file)) {
        let _ = fs::remove_dir(cgroup);
    }
}

fn rule(cgroup: &Path, file: &str, number: &str, limit: u64) -> Result<()> {
    let path = cgroup.join(format!("blkio.throttle.{file}"));
    fs::write(&path, format!("{number} {limit}")).map_err(Failure::because(format!("cannot write {}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_described_in_words() {
        let limits = Limits { read_bandwidth: Some(400 << 20), write_iops: Some(5000), ..Limits::default() };
        assert_eq!(limits.describe(), "reads at most 400.00 MiB/s, writes at most 5000 operations/s");
        assert_eq!(Limits::default().describe(), "reads unlimited, writes unlimited");
    }
}
