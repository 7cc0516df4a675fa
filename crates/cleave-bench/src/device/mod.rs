//! `cleave-bench device`: a slow tier for hybrid runs. A file becomes a loop device with ext4 on it, and a blkio cgroup
//! (version 1) limits what the processes in it may do to that device.
//!
//! What is to exist is written down in a small file beside the mount point before anything is made, and `down` undoes
//! whatever of it is there. So a step that fails half-way, a kill, or a machine that starts anew leaves nothing that
//! `down` cannot take away. Runs find that file and join the cgroup by themselves (`experiment.rs` asks `cgroup_of`).

mod throttle;
mod volume;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use self::throttle::Limits;
use self::volume::Volume;
use crate::args::{Device, DeviceUp};
use crate::failure::{Failure, Result};
use crate::size;

/// What users must know of the throttle.
const SENTENCE: &str =
    "The throttle acts on direct I/O only (cgroup v1): give runs --direct, so that every engine uses it.";

/// A slow tier, as written down beside its mount point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct State {
    volume: Volume,
    limits: Limits,
    cgroup: PathBuf,
}

/// Does `up` or `down`.
///
/// # Errors
/// Where not root or not supported, or if a step fails; then everything is undone.
pub fn run(args: &Device, out: &mut dyn Write) -> Result<()> {
    let sentence = match args {
        Device::Up(args) => up(args)?,
        Device::Down { dir } => down(dir)?,
    };
    writeln!(out, "{sentence}").map_err(Failure::because("cannot write the output"))
}

fn up(args: &DeviceUp) -> Result<String> {
    let limits = Limits::of(args);
    let cgroup = throttle::cgroup()?;
    volume::check()?;
    let mountpoint = volume::absolute(&args.dir)?;
    let note = note(&mountpoint)?;
    if note.exists() {
        return Err(Failure::new(format!("{} has a device already; take it `down` first", mountpoint.display())));
    }
    let image = match &args.image {
        Some(image) => volume::absolute(image)?,
        None => beside(&mountpoint, "", ".img")?,
    };
    if image.exists() {
        return Err(Failure::new(format!("{} exists already; it is not overwritten", image.display())));
    }
    if fs::read_dir(&mountpoint).is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Failure::new(format!("{} is not empty; a mount would hide what is in it", mountpoint.display())));
    }
    let state = State { volume: Volume::new(mountpoint, image), limits, cgroup };
    write(&note, &state)?;
    match make(&state, args.bytes) {
        Ok(device) => {
            let (size, place) = (size::human(args.bytes), state.volume.mountpoint.display());
            Ok(format!("{place} is an ext4 of {size} on {device}: {}.\n{SENTENCE}", state.limits.describe()))
        }
        Err(failure) => match remove(&state, &note) {
            Ok(()) => Err(failure),
            Err(second) => Err(Failure::new(format!("{failure}; then, undoing it: {second}"))),
        },
    }
}

/// The name of the device.
fn make(state: &State, bytes: u64) -> Result<String> {
    let State { volume, limits, cgroup } = state;
    volume.format(bytes)?;
    volume.attach()?;
    volume.mount()?;
    let (Some(device), Some(number)) = (volume.device(), volume.number()?) else {
        return Err(Failure::new("the loop device is gone"));
    };
    throttle::set(cgroup, &number, limits)?;
    Ok(device)
}

fn down(dir: &Path) -> Result<String> {
    let mountpoint = volume::absolute(dir)?;
    let note = note(&mountpoint)?;
    let state = read(&note)?
        .ok_or_else(|| Failure::new(format!("{} is no device of `cleave-bench device up`", mountpoint.display())))?;
    remove(&state, &note)?;
    Ok(format!("{} is gone, with its image.", mountpoint.display()))
}

/// Takes away whatever of `state` is there, and its note last.
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

/// The cgroup that a process must be in for the throttle of the device on which `place` lies, if it lies on one.
///
/// # Errors
/// If the file beside the mount point cannot be read.
pub fn cgroup_of(place: &Path) -> Result<Option<PathBuf>> {
    let place = volume::absolute(place)?;
    for above in place.ancestors().filter(|above| above.file_name().is_some()) {
        if let Some(state) = read(&note(above)?)? {
            return Ok(Some(state.cgroup));
        }
    }
    Ok(None)
}

/// Where the device mounted at `mountpoint` is written down.
fn note(mountpoint: &Path) -> Result<PathBuf> {
    beside(mountpoint, ".cleave-bench-device-", ".json")
}

/// The mount point's name with more of it, in the same directory.
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
        let state = State { volume, limits: Limits::default(), cgroup: "/cgroup/of/it".into() };
        write(&note(&slow).unwrap(), &state).unwrap();
        assert_eq!(cgroup_of(&slow.join("run/store")).unwrap(), Some(state.cgroup.clone()));
        assert_eq!(cgroup_of(&slow).unwrap(), Some(state.cgroup));
        assert_eq!(cgroup_of(dir.path()).unwrap(), None);

        fs::write(note(&slow).unwrap(), "{").unwrap();
        assert!(cgroup_of(&slow).is_err());
    }
}
