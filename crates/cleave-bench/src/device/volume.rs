//! A file as a disk: image, loop device, file system, mount. Each step has an inverse, which does nothing if there is
//! nothing to undo.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::disk;
use crate::failure::{Failure, Result};

/// A mount point and the image below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The directory that is the file system's root.
    pub mountpoint: PathBuf,
    /// Whether that directory was created for it.
    created_mountpoint: bool,
    /// The file that holds everything.
    image: PathBuf,
}

/// Checks that this machine supports volumes.
///
/// # Errors
/// The missing requirement.
pub fn check() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("`device` needs root: it attaches a loop device and mounts it"));
    }
    match Path::new("/dev/loop-control").exists() {
        true => Ok(()),
        false => Err(Failure::new("`device` needs loop devices, and this system has none (no /dev/loop-control)")),
    }
}

/// The absolute form of `path`, with links resolved in its existing part.
///
/// # Errors
/// If the current directory does not exist.
pub fn absolute(path: &Path) -> Result<PathBuf> {
    let path = std::path::absolute(path).map_err(Failure::because(format!("{}", path.display())))?;
    let existing = path.ancestors().find_map(|above| Some((above, fs::canonicalize(above).ok()?)));
    Ok(match existing {
        Some((above, real)) => match path.strip_prefix(above) {
            Ok(rest) if rest.as_os_str().is_empty() => real,
            Ok(rest) => real.join(rest),
            Err(_) => path,
        },
        None => path,
    })
}

impl Volume {
    /// A volume that does not exist yet; its mount point may.
    pub fn new(mountpoint: PathBuf, image: PathBuf) -> Volume {
        let created_mountpoint = !mountpoint.exists();
        Volume { mountpoint, created_mountpoint, image }
    }

    /// Creates a sparse image of `bytes` with a file system.
    ///
    /// # Errors
    /// If there is no space, or no mkfs.ext4.
    pub fn format(&self, bytes: u64) -> Result<()> {
        let because = || Failure::because(format!("cannot create {}", self.image.display()));
        fs::File::create_new(&self.image).and_then(|file| file.set_len(bytes)).map_err(because())?;
        program("mkfs.ext4", [OsStr::new("-q"), OsStr::new("-F"), self.image.as_os_str()]).map(drop)
    }

    /// Attaches the image to a free loop device, with direct I/O if the underlying file system supports it.
    ///
    /// # Errors
    /// If no device is free.
    pub fn attach(&self) -> Result<()> {
        let attach = |direct: &str| {
            let image = self.image.as_os_str();
            program("losetup", [OsStr::new("--find"), OsStr::new("--show"), OsStr::new(direct), image])
        };
        attach("--direct-io=on").or_else(|_| attach("--direct-io=off")).map(drop)
    }

    /// Mounts it.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn mount(&self) -> Result<()> {
        let place = self.mountpoint.display();
        fs::create_dir_all(&self.mountpoint).map_err(Failure::because(format!("cannot create {place}")))?;
        let device = self.device().ok_or_else(|| Failure::new("the loop device has disappeared"))?;
        let device = Path::new("/dev").join(device);
        program("mount", [OsStr::new("-t"), OsStr::new("ext4"), device.as_os_str(), self.mountpoint.as_os_str()])
            .map(drop)
    }

    /// The name of the loop device of the image, if attached: `loop0`. The kernel is queried each time, since devices may
    /// change.
    pub fn device(&self) -> Option<String> {
        let devices = fs::read_dir("/sys/block").ok()?;
        devices.flatten().find_map(|device| {
            let is_it = disk::image(&device.path())? == self.image;
            is_it.then(|| device.file_name().to_string_lossy().into_owned())
        })
    }

    /// The device's number, as the kernel writes it: `7:0`. None if the image is not attached.
    ///
    /// # Errors
    /// If the kernel does not have it.
    pub fn number(&self) -> Result<Option<String>> {
        let Some(device) = self.device() else { return Ok(None) };
        let path = Path::new("/sys/block").join(device).join("dev");
        let number = fs::read_to_string(&path).map_err(Failure::because(format!("cannot read {}", path.display())))?;
        Ok(Some(number.trim().to_owned()))
    }

    /// The inverse of [`Volume::mount`].
    ///
    /// # Errors
    /// If a process uses it.
    pub fn unmount(&self) -> Result<()> {
        let mounts = fs::read_to_string("/proc/mounts").map_err(Failure::because("cannot read /proc/mounts"))?;
        let mut mounted = mounts.lines().filter_map(|line| line.split_whitespace().next()?.strip_prefix("/dev/"));
        match self.device().is_some_and(|device| mounted.any(|name| name == device)) {
            true => program("umount", [self.mountpoint.as_os_str()]).map(drop),
            false => Ok(()),
        }
    }

    /// The inverse of [`Volume::attach`].
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn detach(&self) -> Result<()> {
        match self.device() {
            Some(device) => program("losetup", ["--detach".to_owned(), format!("/dev/{device}")]).map(drop),
            None => Ok(()),
        }
    }

    /// Deletes the image, and the mount point if it was created for it.
    ///
    /// # Errors
    /// If it cannot be deleted.
    pub fn delete(&self) -> Result<()> {
        let gone = |outcome: io::Result<()>| match outcome {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
        gone(fs::remove_file(&self.image))
            .map_err(Failure::because(format!("cannot remove {}", self.image.display())))?;
        match self.created_mountpoint {
            true => gone(fs::remove_dir(&self.mountpoint))
                .map_err(Failure::because(format!("cannot remove {}", self.mountpoint.display()))),
            false => Ok(()),
        }
    }
}

/// Runs a program of the system and returns its output.
fn program<S: AsRef<OsStr>>(name: &str, arguments: impl IntoIterator<Item = S>) -> Result<String> {
    let output = Command::new(name).args(arguments).output();
    let output = output.map_err(Failure::because(format!("`device` needs the program {name}")))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(Failure::new(format!("{name} failed ({}): {}", output.status, said.trim())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn undoing_a_volume_that_does_not_exist_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let volume = Volume::new(dir.path().join("slow"), dir.path().join("slow.img"));
        assert_eq!((volume.device(), volume.number().unwrap()), (None, None));
        volume.unmount().unwrap();
        volume.detach().unwrap();
        volume.delete().unwrap();
    }

    #[test]
    fn a_program_that_fails_or_is_missing_is_named() {
        let none: [&str; 0] = [];
        assert!(program("no-such-program", none).unwrap_err().to_string().contains("no-such-program"));
        let failure = program("ls", ["/no/such/file"]).unwrap_err().to_string();
        assert!(failure.contains("ls failed") && failure.contains("/no/such/file"), "{failure}");
    }
}
