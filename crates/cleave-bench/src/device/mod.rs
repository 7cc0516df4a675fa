//! `cleave-bench device`: a slow tier for hybrid runs. An image file is attached to a loop device with ext4, and a blkio
//! cgroup (version 1) limits the I/O of its processes on that device.
//!
//! A state file beside the mount point is written before anything is created, and `down` removes whatever exists of its
//! content. So after a failed step, a kill or a reboot, `down` can remove everything. Runs find the state file and enter the
//! cgroup (`main.rs` calls `cgroup_of`), and compare what they used with the limits (`limits_of`).

mod throttle;
mod volume;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::throttle::Limits;
use self::volume::Volume;
use crate::args::{Device, DeviceUp};
use crate::failure::{Failure, Result};
use crate::size;

/// The advice that `up` prints.
const SENTENCE: &str =
    "The throttle limits direct I/O only (cgroup v1): use --direct, so that every engine is limited.";

/// Prefix of the name of a state file.
const NOTE: &str = ".cleave-bench-device-";

/// A slow tier, as stored in the state file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    volume: Volume,
    limits: Limits,
    cgroup: PathBuf,
}

/// Executes `up` or `down`.
///
/// # Errors
/// Without root or support of the system, or if a step fails, after which everything is undone.
pub fn run(args: &Device, out: &mut dyn Write) -> Result<()> {
    let sentence = match args {
        Device::Up(args) => format!("{}\n{SENTENCE}", create(args)?),
        Device::Down { dir } => down(dir)?,
    };
    writeln!(out, "{sentence}").map_err(Failure::because("cannot write the output"))
}

/// Creates a device and returns a sentence about it.
///
/// # Errors
/// Without root or support of the system, or if a step fails, after which everything is undone.
pub fn create(args: &DeviceUp) -> Result<String> {
    let limits = Limits::of(args);
    let cgroup = throttle::cgroup()?;
    volume::check()?;
    let mountpoint = volume::absolute(&args.dir)?;
    let note = note(&mountpoint)?;
    if note.exists() {
        return Err(Failure::new(format!(
            "{} already has a device; remove it with `down` first",
            mountpoint.display()
        )));
    }
    let image = match &args.image {
        Some(image) => volume::absolute(image)?,
        None => beside(&mountpoint, "", ".img")?,
    };
    if image.exists() {
        return Err(Failure::new(format!("{} exists already; it is not overwritten", image.display())));
    }
    if fs::read_dir(&mountpoint).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::new(format!("{} is not empty; a mount would hide its files", mountpoint.display())));
    }
    let state = State { volume: Volume::new(mountpoint, image), limits, cgroup };
    write(&note, &state)?;
    match make(&state, args.bytes) {
        Ok(device) => {
            let (size, place) = (size::human(args.bytes), state.volume.mountpoint.display());
            Ok(format!("{place} is an ext4 file system of {size} on {device}: {}.", state.limits.describe()))
        }
        Err(failure) => match remove(&state, &note) {
            Ok(()) => Err(failure),
            Err(second) => Err(Failure::new(format!("{failure}; then, while undoing it: {second}"))),
        },
    }
}

/// Creates everything. Returns the name of the device.
fn make(state: &State, bytes: u64) -> Result<String> {
    let State { volume, limits, cgroup } = state;
    volume.format(bytes)?;
    volume.attach()?;
    volume.mount()?;
    let (Some(device), Some(number)) = (volume.device(), volume.number()?) else {
        return Err(Failure::new("the loop device has disappeared"));
    };
    throttle::set(cgroup, &number, limits)?;
    Ok(device)
}

fn down(dir: &Path) -> Result<String> {
    let mountpoint = volume::absolute(dir)?;
    let note = note(&mountpoint)?;
    let state = read(&note)?
        .ok_or_else(|| Failure::new(format!("{} is not a device of `cleave-bench device up`", mountpoint.display())))?;
    remove(&state, &note)?;
    Ok(format!("removed {} and its image.", mountpoint.display()))
}

/// Removes the devices that are mounted in `dir`.
///
/// # Errors
/// If a step fails.
pub fn remove_in(dir: &Path) -> Result<()> {
    for note in fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_note = note.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(NOTE));
        if let Some(state) = is_note.then(|| read(&note)).transpose()?.flatten() {
            remove(&state, &note)?;
        }
    }
    Ok(())
}

/// Removes whatever exists of `state`, and the state file last.
fn remove(state: &State, note: &Path) -> Result<()> {
    state.volume.unmount()?;
    if let Some(number) = state.volume.number()? {
        throttle::lift(&state.cgroup, &number)?;
        throttle::remove_unused(&state.cgroup);
    }
    state.volume.detach()?;
    state.volume.delete()?;
    fs::remove_file(note).map_err(Failure::because(format!("cannot remove {}", note.display())))
}

/// The cgroup that throttles the device of `place`, if it is on such a device.
///
/// # Errors
/// If the state file cannot be read.
pub fn cgroup_of(place: &Path) -> Result<Option<PathBuf>> {
    Ok(state_of(place)?.map(|state| state.cgroup))
}

/// The limits of the device of `place`, if it is on such a device.
///
/// # Errors
/// If the state file cannot be read.
pub fn limits_of(place: &Path) -> Result<Option<Limits>> {
    Ok(state_of(place)?.map(|state| state.limits))
}

/// The state file of the device that `place` is on.
fn state_of(place: &Path) -> Result<Option<State>> {
    let place = volume::absolute(place)?;
    for above in place.ancestors().filter(|above| above.file_name().is_some()) {
        if let Some(state) = read(&note(above)?)? {
            return Ok(Some(state));
        }
    }
    Ok(None)
}

/// The state file of the device mounted at `mountpoint`.
fn note(mountpoint: &Path) -> Result<PathBuf> {
    beside(mountpoint, NOTE, ".json")
}

/// A sibling of the mount point, with a prefix and a suffix.
fn beside(mountpoint: &Path, before: &str, after: &str) -> Result<PathBuf> {
    let name = mountpoint.file_name().ok_or_else(|| Failure::new("--dir must not be the root directory"))?;
    Ok(mountpoint.with_file_name(format!("{before}{}{after}", name.to_string_lossy())))
}

fn read(note: &Path) -> Result<Option<State>> {
    match fs::read(note) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(Failure::because(format!("{}", note.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Failure::because(format!("cannot read {}", note.display()))(error)),
    }
}

fn write(note: &Path, state: &State) -> Result<()> {
    let json = serde_json::to_string_pretty(state).map_err(Failure::because("cannot make JSON"))?;
    fs::write(note, json + "\n").map_err(Failure::because(format!("cannot write {}", note.display())))
}

/// Writes the state file of a device at `mountpoint` that does not exist.
#[cfg(test)]
pub fn pretend(mountpoint: &Path) -> Result<()> {
    let mountpoint = volume::absolute(mountpoint)?;
    let volume = Volume::new(mountpoint.clone(), mountpoint.with_extension("img"));
    write(&note(&mountpoint)?, &State { volume, limits: Limits::default(), cgroup: "/cgroup/of/it".into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_below_a_device_is_recognised_and_others_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let slow = dir.path().join("slow");
        fs::create_dir_all(slow.join("run/store")).unwrap();
        assert_eq!(cgroup_of(&slow.join("run/store")).unwrap(), None);

        let volume = Volume::new(slow.clone(), slow.with_extension("img"));
        let limits = Limits { read_iops: Some(20), ..Limits::default() };
        let state = State { volume, limits, cgroup: "/cgroup/of/it".into() };
        write(&note(&slow).unwrap(), &state).unwrap();
        assert_eq!(cgroup_of(&slow.join("run/store")).unwrap(), Some(state.cgroup.clone()));
        assert_eq!(cgroup_of(&slow).unwrap(), Some(state.cgroup));
        assert_eq!(limits_of(&slow.join("run/store")).unwrap(), Some(state.limits));
        assert_eq!(cgroup_of(dir.path()).unwrap(), None);

        fs::write(note(&slow).unwrap(), "{").unwrap();
        assert!(cgroup_of(&slow).is_err());
    }
}
