//! The directories of one run: new ones in every directory that the user gave, which are removed however the run ends. A
//! normal end removes them here. An interruption (Ctrl-C, SIGTERM) first kills the run's process. After a SIGKILL, which
//! cannot be handled, the next run removes those whose owner no longer holds its lock.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::device;
use crate::engine::Dirs;
use crate::failure::{Failure, Result};
use crate::plan::Places;

const PREFIX: &str = "cleave-bench-";
/// A file in each directory with the id of the process that created it, which holds a lock on the file.
const OWNER: &str = "owner";
/// The exit code of a program that was ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// What an interruption has to clean up.
struct Live {
    dirs: Vec<Owned>,
    child: Option<Pid>,
}

/// A directory, and its locked file if it is a [`Home`].
struct Owned {
    dir: PathBuf,
    owner: Option<File>,
}

static LIVE: Mutex<Live> = Mutex::new(Live { dirs: Vec::new(), child: None });

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the handler that cleans up after an interruption.
///
/// # Errors
/// If the handler cannot be installed.
pub fn handle_interruption() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| outcome = ctrlc::set_handler(clean_up));
    outcome.map_err(Failure::because("cannot handle signals"))
}

/// Registers `dir` for removal by an interruption.
pub fn remove_on_interruption(dir: &Path) {
    live().dirs.push(Owned { dir: dir.to_owned(), owner: None });
}

fn clean_up() {
    // Held until the exit: the thread that waits for the child must not continue before the directories are removed.
    let mut live = live();
    if let Some(child) = live.child {
        let _ = rustix::process::kill_process(child, Signal::KILL);
    }
    // A device with an open file cannot be unmounted.
    live.dirs.iter_mut().for_each(|owned| owned.owner = None);
    for Owned { dir, .. } in &live.dirs {
        // The killed process may release its files late.
        let mut removed = remove(dir);
        for _ in 0..100 {
            if removed.is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
            removed = remove(dir);
        }
        if let Err(failure) = removed {
            let _ = writeln!(io::stderr(), "cleave-bench: {}: {failure}", dir.display());
        }
    }
    let _ = writeln!(io::stderr(), "cleave-bench: interrupted; its stores were removed");
    process::exit(INTERRUPTED);
}

/// Removes `dir`, its content and the devices that are mounted in it.
fn remove(dir: &Path) -> Result<()> {
    device::remove_in(dir)?;
    // A cgroup is removed as a directory, not file by file.
    match fs::remove_dir(dir).or_else(|_| fs::remove_dir_all(dir)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Failure::because("cannot remove it")(error)),
        _ => Ok(()),
    }
}

/// The process of a run, which is killed when this is dropped.
pub struct Running(pub Child);

impl Running {
    /// Starts `command` as the only process that uses the directories of this run.
    ///
    /// # Errors
    /// If the process cannot be started.
    pub fn start(command: &mut Command) -> io::Result<Running> {
        // The lock keeps the interruption handler from running between spawn and registration.
        let mut live = live();
        let child = command.spawn()?;
        live.child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        Ok(Running(child))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        live().child = None;
    }
}

/// Directories that are removed with this handle.
pub struct Scratch {
    _homes: Vec<Home>,
    dirs: Dirs,
}

/// A directory with all that is in it, devices included, which is removed with this handle.
pub struct Home {
    path: PathBuf,
    dir: Option<TempDir>,
}

impl Drop for Home {
    fn drop(&mut self) {
        if let Err(failure) = device::remove_in(&self.path) {
            let _ = writeln!(io::stderr(), "cleave-bench: {failure}");
            // Without its state file nobody could remove the device.
            self.dir.take().map(TempDir::keep);
        }
        drop(self.dir.take());
        live().dirs.retain(|owned| owned.dir != self.path);
    }
}

impl Scratch {
    /// Creates new directories in all `places`.
    ///
    /// # Errors
    /// If one cannot be created.
    pub fn new(places: &Places) -> Result<Scratch> {
        let mut homes = Vec::new();
        let mut fresh = |parent: &Path, name| {
            let home = Home::new(parent)?;
            let dir = home.path.join(name);
            fs::create_dir(&dir).map_err(Failure::because(format!("cannot create {}", dir.display())))?;
            homes.push(home);
            Ok(dir)
        };
        let main = fresh(&main(places), "store")?;
        let fast = places.fast.as_deref().map(|parent| fresh(parent, "fast")).transpose()?;
        let slow = places.slow.as_deref().map(|parent| fresh(parent, "slow")).transpose()?;
        Ok(Scratch { _homes: homes, dirs: Dirs { main, fast, fast_bytes: places.fast_bytes, slow } })
    }

    /// The directories of the store.
    pub fn dirs(&self) -> &Dirs {
        &self.dirs
    }
}

impl Home {
    /// Creates an empty one in `parent`.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn new(parent: &Path) -> Result<Home> {
        let failed = || format!("cannot create a directory in {}", parent.display());
        let mut live = live();
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(Failure::because(failed()))?;
        live.dirs.push(Owned { dir: dir.path().to_owned(), owner: None });
        let own = || {
            // The file gets its name once it is locked, so an unlocked file means that the owner has exited.
            let unlocked = dir.path().join("new-owner");
            let mut owner = File::create(&unlocked)?;
            flock(&owner, FlockOperation::LockExclusive)?;
            writeln!(owner, "{}", process::id())?;
            fs::rename(unlocked, dir.path().join(OWNER))?;
            Ok::<File, io::Error>(owner)
        };
        let owner = own().map_err(Failure::because(failed()))?;
        if let Some(owned) = live.dirs.last_mut() {
            owned.owner = Some(owner);
        }
        Ok(Home { path: dir.path().to_owned(), dir: Some(dir) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates the places and removes directories left by killed runs, which is reported on stderr.
///
/// # Errors
/// If a place cannot be created or read.
pub fn prepare(places: &Places) -> Result<()> {
    for place in [Some(main(places)), places.fast.clone(), places.slow.clone()].into_iter().flatten() {
        fs::create_dir_all(&place).map_err(Failure::because(format!("cannot create {}", place.display())))?;
        let entries = fs::read_dir(&place).map_err(Failure::because(format!("cannot read {}", place.display())))?;
        for dir in entries.flatten().map(|entry| entry.path()).filter(|path| is_leftover(path)) {
            let _ = match remove(&dir) {
                Ok(()) => {
                    writeln!(io::stderr(), "cleave-bench: removed {}, left by a killed run", dir.display())
                }
                Err(error) => writeln!(io::stderr(), "cleave-bench: cannot remove {}: {error}", dir.display()),
            };
        }
    }
    Ok(())
}

/// The directory of `--dir`, or its default.
pub fn main(places: &Places) -> PathBuf {
    places.dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// Whether the process that created the directory `path` has exited.
fn is_leftover(path: &Path) -> bool {
    let named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    named
        && File::open(path.join(OWNER))
            .is_ok_and(|owner| flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_exited_processes_are_removed_and_others_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let places = Places { dir: Some(place.path().to_owned()), ..Places::default() };
        let living = Scratch::new(&places).unwrap();
        let dead = place.path().join("cleave-bench-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(OWNER), "1").unwrap();
        let foreign = place.path().join("cleave-bench-notes");
        fs::create_dir(&foreign).unwrap();
        prepare(&places).unwrap();
        assert!(living.dirs().main.exists() && foreign.exists() && !dead.exists());
        let home = living.dirs().main.parent().unwrap().to_owned();
        drop(living);
        assert!(!home.exists());
    }

    #[test]
    fn every_tier_has_its_own_directory() {
        let place = tempfile::tempdir().unwrap();
        let place = Some(place.path().to_owned());
        let scratch =
            Scratch::new(&Places { dir: place.clone(), fast: place.clone(), slow: place, ..Places::default() });
        let scratch = scratch.unwrap();
        let mut dirs: Vec<&Path> = scratch.dirs().all().map(|dir| dir.parent().unwrap()).collect();
        dirs.sort();
        dirs.dedup();
        assert_eq!(dirs.len(), 3);
    }
}
