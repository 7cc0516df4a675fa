//! The directories of one run: fresh ones, in every place that the user named, which go away with the run however it
//! ends. A normal end removes them here. An interruption (Ctrl-C, SIGTERM) first kills the run's process. After a
//! SIGKILL, which nobody can answer, the next run in the same place finds that nobody holds the lock in them.

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

use crate::engine::Dirs;
use crate::failure::{Failure, Result};
use crate::plan::Places;

const PREFIX: &str = "cleave-bench-";
/// In each directory: the process that made it, which has it locked.
const OWNER: &str = "owner";
/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: i32 = 130;

/// What an interruption has to clear away.
struct Live {
    dirs: Vec<PathBuf>,
    child: Option<Pid>,
}

static LIVE: Mutex<Live> = Mutex::new(Live { dirs: Vec::new(), child: None });

fn live() -> MutexGuard<'static, Live> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// From now on an interruption leaves nothing behind.
///
/// # Errors
/// If the system does not let us handle signals.
pub fn watch_for_interruption() -> Result<()> {
    static ONCE: Once = Once::new();
    let mut outcome = Ok(());
    ONCE.call_once(|| outcome = ctrlc::set_handler(clear_away));
    outcome.map_err(Failure::because("cannot watch for signals"))
}

/// Leaves `dir` to be removed too, if it is there when an interruption comes.
pub fn clear_away_too(dir: &Path) {
    live().dirs.push(dir.to_owned());
}

fn clear_away() {
    // Held to the end: whoever waits for the child must not go on before the directories are gone.
    let live = live();
    if let Some(child) = live.child {
        let _ = rustix::process::kill_process(child, Signal::KILL);
    }
    for dir in &live.dirs {
        // The killed process may take a moment to let go.
        for _ in 0..100 {
            // A cgroup goes in one piece, and not file by file.
            match fs::remove_dir(dir).or_else(|_| fs::remove_dir_all(dir)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => thread::sleep(Duration::from_millis(50)),
                _ => break,
            }
        }
    }
    let _ = writeln!(io::stderr(), "cleave-bench: interrupted; its stores are removed");
    process::exit(INTERRUPTED);
}

/// The process of a run; killed if it is still there when this goes away.
pub struct Running(pub Child);

impl Running {
    /// Starts `command` as the one process that works in our directories.
    ///
    /// # Errors
    /// If the system cannot.
    pub fn start(command: &mut Command) -> io::Result<Running> {
        // Not to be interrupted between the two.
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

/// Directories that go away with this handle.
pub struct Scratch {
    homes: Vec<Home>,
    dirs: Dirs,
}

struct Home {
    dir: TempDir,
    _owner: File,
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for home in self.homes.drain(..) {
            let path = home.dir.path().to_owned();
            drop(home);
            live().dirs.retain(|dir| *dir != path);
        }
    }
}

impl Scratch {
    /// Fresh directories in all `places`.
    ///
    /// # Errors
    /// If one cannot be made.
    pub fn new(places: &Places) -> Result<Scratch> {
        let mut homes = Vec::new();
        let mut fresh = |parent: &Path, name| {
            let home = Home::new(parent)?;
            let dir = home.dir.path().join(name);
            fs::create_dir(&dir).map_err(Failure::because(format!("cannot create {}", dir.display())))?;
            homes.push(home);
            Ok(dir)
        };
        let main = fresh(&main(places), "store")?;
        let fast = places.fast.as_deref().map(|parent| fresh(parent, "fast")).transpose()?;
        let slow = places.slow.as_deref().map(|parent| fresh(parent, "slow")).transpose()?;
        Ok(Scratch { homes, dirs: Dirs { main, fast, fast_bytes: places.fast_bytes, slow } })
    }

    /// Where the store lies.
    pub fn dirs(&self) -> &Dirs {
        &self.dirs
    }
}

impl Home {
    fn new(parent: &Path) -> Result<Home> {
        let failed = || format!("cannot make a directory in {}", parent.display());
        let mut live = live();
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent).map_err(Failure::because(failed()))?;
        live.dirs.push(dir.path().to_owned());
        let own = || {
            // It gets its name when it is locked: a name without a lock means that the owner is gone.
            let unlocked = dir.path().join("new-owner");
            let mut owner = File::create(&unlocked)?;
            flock(&owner, FlockOperation::LockExclusive)?;
            writeln!(owner, "{}", process::id())?;
            fs::rename(unlocked, dir.path().join(OWNER))?;
            Ok::<File, io::Error>(owner)
        };
        Ok(Home { _owner: own().map_err(Failure::because(failed()))?, dir })
    }
}

/// Makes the places, and removes what a run that was killed left behind in them. Tells of it on stderr.
///
/// # Errors
/// If a place cannot be made or read.
pub fn prepare(places: &Places) -> Result<()> {
    for place in [Some(main(places)), places.fast.clone(), places.slow.clone()].into_iter().flatten() {
        fs::create_dir_all(&place).map_err(Failure::because(format!("cannot create {}", place.display())))?;
        let entries = fs::read_dir(&place).map_err(Failure::because(format!("cannot read {}", place.display())))?;
        for dir in entries.flatten().map(|entry| entry.path()).filter(|path| is_left_behind(path)) {
            let _ = match fs::remove_dir_all(&dir) {
                Ok(()) => {
                    writeln!(io::stderr(), "cleave-bench: removed {}, left behind by a killed run", dir.display())
                }
                Err(error) => writeln!(io::stderr(), "cleave-bench: cannot remove {}: {error}", dir.display()),
            };
        }
    }
    Ok(())
}

fn main(places: &Places) -> PathBuf {
    places.dir.clone().unwrap_or_else(std::env::temp_dir)
}

/// Whether the process that made the directory `path` is gone.
fn is_left_behind(path: &Path) -> bool {
    let named = path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(PREFIX));
    named
        && File::open(path.join(OWNER))
            .is_ok_and(|owner| flock(&owner, FlockOperation::NonBlockingLockExclusive).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_the_living_are_left_alone_and_those_of_the_dead_are_removed() {
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
    fn every_tier_has_a_directory_of_its_own() {
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
