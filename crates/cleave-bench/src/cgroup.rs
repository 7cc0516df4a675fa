//! Cgroups of version 1: a memory cgroup per run, whose limit includes the page cache, and entering any other cgroup.

use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::thread;
use std::time::Duration;

use rustix::fs::{Access, access};

use crate::failure::{Failure, Result};
use crate::scratch::remove_on_interruption;

/// Prefix of the name of a memory cgroup; the process id of its creator follows.
const PREFIX: &str = "cleave-bench-";

/// A cgroup that is removed with this handle, when no process is in it.
pub struct MemoryCgroup(PathBuf);

impl MemoryCgroup {
    /// Creates a cgroup limited to `bytes`.
    ///
    /// # Errors
    /// If the system has no memory controller of version 1, or the process may not use it.
    pub fn new(bytes: u64) -> Result<MemoryCgroup> {
        let mounts = fs::read_to_string("/proc/mounts").map_err(Failure::because("cannot read /proc/mounts"))?;
        let root = controller(&mounts, "memory").ok_or_else(|| {
            Failure::new("--cgroup-memory needs the memory controller of cgroup v1, which is not mounted here")
        })?;
        remove_leftovers(&root);
        let dir = root.join(format!("{PREFIX}{}", process::id()));
        fs::create_dir(&dir)
            .map_err(Failure::because(format!("--cgroup-memory cannot create {} (root is needed)", dir.display())))?;
        remove_on_interruption(&dir);
        let cgroup = MemoryCgroup(dir);
        let limit = cgroup.0.join("memory.limit_in_bytes");
        fs::write(&limit, bytes.to_string())
            .map_err(Failure::because(format!("--cgroup-memory cannot write {}", limit.display())))?;
        Ok(cgroup)
    }

    /// Whether this process may create one.
    pub fn is_possible() -> bool {
        let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
        controller(&mounts, "memory").is_some_and(|root| access(root, Access::WRITE_OK).is_ok())
    }

    /// Its directory.
    pub fn dir(&self) -> &Path {
        &self.0
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // The kernel may notice the exit of the last process late. A cgroup that stays is empty and harmless.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Removes the cgroups below `root` that were left by killed runs.
fn remove_leftovers(root: &Path) {
    for dir in fs::read_dir(root).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let maker = dir.file_name().and_then(|name| name.to_str()?.strip_prefix(PREFIX)?.parse::<u32>().ok());
        if maker.is_some_and(|maker| !Path::new(&format!("/proc/{maker}")).exists()) {
            // The kernel refuses this while a process is in the cgroup.
            let _ = fs::remove_dir(dir);
        }
    }
}

/// Moves this process into the cgroup `dir`.
///
/// # Errors
/// If the kernel refuses.
pub fn enter(dir: &Path) -> Result<()> {
    fs::write(dir.join("cgroup.procs"), process::id().to_string())
        .map_err(Failure::because(format!("cannot enter the cgroup {}", dir.display())))
}

/// The mount point of the cgroup v1 controller `name`, in the text of /proc/mounts.
pub fn controller(mounts: &str, name: &str) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (place, kind, options) = (fields.next()?, fields.next()?, fields.next()?);
        (kind == "cgroup" && options.split(',').any(|option| option == name)).then(|| PathBuf::from(place))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_exited_processes_are_removed_and_others_are_kept() {
        let root = tempfile::tempdir().unwrap();
        let make = |name: String| {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            dir
        };
        // The first process id is larger than any real one.
        let (dead, living, foreign) =
            (make(format!("{PREFIX}4294967295")), make(format!("{PREFIX}{}", process::id())), make("mine".to_owned()));
        remove_leftovers(root.path());
        assert!(!dead.exists() && living.exists() && foreign.exists());
    }

    #[test]
    fn controllers_are_found_among_mounts() {
        let mounts =
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\ncgroup /a/cpu cgroup rw,cpu 0 0\ncgroup /a/m cgroup rw,memory 0 0\n";
        assert_eq!(controller(mounts, "memory"), Some(PathBuf::from("/a/m")));
        assert_eq!(controller(mounts, "blkio"), None);
        assert_eq!(controller("cgroup2 /sys/fs/cgroup cgroup2 rw,memory_recursiveprot 0 0", "memory"), None);
    }
}
