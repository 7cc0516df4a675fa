//! How much memory the system can still give to this process, page cache included: the smallest of what the machine and
//! each of the process's control groups (version 1 or 2) have left. Cached pages of files count as available, because
//! the kernel reclaims them when it needs memory.
//!
//! Called when a log is created, through [`Storage::available_memory`](super::Storage::available_memory).

use std::fs;
use std::path::{Path, PathBuf};

/// Available bytes; `None` if the system does not say.
pub(super) fn available_memory() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| of_machine(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").map(|text| groups_of(&text)).unwrap_or_default();
    let limited = groups.iter().flat_map(|group| group.ancestors().filter_map(of_group));
    machine.into_iter().chain(limited).min()
}

fn of_machine(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib.saturating_mul(1024))
}

/// The names of the files of one version of control groups.
struct Version {
    limit: &'static str,
    used: &'static str,
    /// The lines of `memory.stat` that count cached pages of files.
    cached: [&'static str; 2],
}

const VERSIONS: [Version; 2] = [
    Version {
        limit: "memory.limit_in_bytes",
        used: "memory.usage_in_bytes",
        cached: ["total_inactive_file", "total_active_file"],
    },
    Version { limit: "memory.max", used: "memory.current", cached: ["inactive_file", "active_file"] },
];

/// The control groups for memory that the process belongs to, as directories. In a container the path may be relative to
/// a directory that is not visible; then only the ancestors that exist count.
fn groups_of(cgroup: &str) -> Vec<PathBuf> {
    let group = |line: &str| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let root = match controllers {
            "" => Path::new("/sys/fs/cgroup"),
            _ if controllers.split(',').any(|controller| controller == "memory") => Path::new("/sys/fs/cgroup/memory"),
            _ => return None,
        };
        Some(root.join(path.trim_start_matches('/')))
    };
    cgroup.lines().filter_map(group).collect()
}

/// What a control group has left; `None` if it has no limit or is not there.
fn of_group(dir: &Path) -> Option<u64> {
    let number = |name| fs::read_to_string(dir.join(name)).ok()?.trim().parse::<u64>().ok();
    VERSIONS.iter().find_map(|version| {
        let (limit, used) = (number(version.limit)?, number(version.used)?);
        let stat = fs::read_to_string(dir.join("memory.stat")).ok()?;
        Some(left(limit, used, cached(&stat, version)))
    })
}

fn cached(stat: &str, version: &Version) -> u64 {
    let value = |line: &str| {
        let (name, value) = line.split_once(' ')?;
        version.cached.contains(&name).then(|| value.trim().parse::<u64>().ok())?
    };
    stat.lines().filter_map(value).sum()
}

fn left(limit: u64, used: u64, cached: u64) -> u64 {
    limit.saturating_sub(used.saturating_sub(cached))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_says_what_is_available() {
        assert_eq!(of_machine("MemTotal: 24 kB\nMemFree: 3 kB\nMemAvailable:    16 kB\n"), Some(16 << 10));
        assert_eq!(of_machine("MemTotal: 24 kB\n"), None);
    }

    #[test]
    fn cached_pages_of_a_group_are_available() {
        let stat = "cache 900\ntotal_inactive_file 300\ntotal_active_file 20\ninactive_file 4\nactive_file 1\n";
        assert_eq!([cached(stat, &VERSIONS[0]), cached(stat, &VERSIONS[1])], [320, 5]);
        assert_eq!(left(1000, 700, 320), 620);
        assert_eq!(left(1000, 1200, 100), 0);
    }

    #[test]
    fn groups_of_both_versions_are_found_by_their_directories() {
        let lines = "9:name=systemd:/a\n4:cpu,memory:/one/two\n3:cpuset:/x\n0::/unified\n";
        let found: Vec<_> = groups_of(lines).into_iter().map(|dir| dir.display().to_string()).collect();
        assert_eq!(found, ["/sys/fs/cgroup/memory/one/two", "/sys/fs/cgroup/unified"]);
    }

    #[test]
    fn a_group_counts_by_its_files() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(of_group(dir.path()), None);
        for (name, text) in
            [("memory.max", "4096\n"), ("memory.current", "3000\n"), ("memory.stat", "active_file 1000\n")]
        {
            fs::write(dir.path().join(name), text).unwrap();
        }
        assert_eq!(of_group(dir.path()), Some(2096));
        fs::write(dir.path().join("memory.max"), "max\n").unwrap();
        assert_eq!(of_group(dir.path()), None);
    }
}
