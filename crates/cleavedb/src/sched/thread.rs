//! Threads. A thread spawned by a simulated thread belongs to the same simulation; any other is a plain thread.

use std::time::Duration;

use super::world::{self, Member, Wait};
use crate::base::{Error, Result};

/// Limits how many more threads can be started in the current simulation; `None` removes the limit.
///
/// # Panics
/// Outside of a simulation.
#[cfg(any(test, feature = "testing"))]
pub fn limit_threads(more: Option<usize>) {
    world::current().expect("threads are limited only inside a simulation").limit_threads(more);
}

/// A started thread. Dropping the handle detaches the thread.
#[derive(Debug)]
pub struct JoinHandle {
    inner: std::thread::JoinHandle<()>,
    simulated: Option<Member>,
}

impl JoinHandle {
    /// True if this is the calling thread.
    pub fn is_current(&self) -> bool {
        self.inner.thread().id() == std::thread::current().id()
    }

    /// Waits for the thread to end; `Err` holds the payload of its panic. Inside a simulation, a panic returned here does
    /// not fail the run.
    pub fn join(self) -> std::thread::Result<()> {
        if let Some(member) = &self.simulated {
            member.wait_for_end();
        }
        self.inner.join()
    }
}

/// As `try_spawn`, for tests.
///
/// # Panics
/// If the operating system cannot start another thread, as [`std::thread::spawn`] does.
#[cfg(any(test, feature = "testing"))]
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
    match try_spawn(name, f) {
        Ok(thread) => thread,
        Err(error) => panic!("{error}"),
    }
}

/// Starts a thread with this name.
///
/// # Errors
/// [`Error::Io`] if the operating system cannot start another thread.
pub fn try_spawn(name: &str, f: impl FnOnce() + Send + 'static) -> Result<JoinHandle> {
    let failed = |source: std::io::Error| Error::Io {
        path: name.into(),
        operation: "start thread",
        source: source.into(),
        tier: None,
    };
    let member = world::current();
    if member.as_ref().is_some_and(|member| !member.may_add_thread()) {
        return Err(failed(std::io::ErrorKind::WouldBlock.into()));
    }
    let simulated = member.map(|member| member.add_thread(name));
    let builder = std::thread::Builder::new().name(name.to_owned());
    let started = match simulated.clone() {
        Some(member) => builder.spawn(move || member.run(f)),
        None => builder.spawn(f),
    };
    match started {
        Ok(inner) => Ok(JoinHandle { inner, simulated }),
        Err(error) => {
            if let Some(member) = simulated {
                member.cancel();
            }
            Err(failed(error))
        }
    }
}

/// Sleeps for this time (virtual time in a simulation).
pub fn sleep(duration: Duration) {
    match world::current() {
        Some(member) => {
            member.wait(Wait::Sleep, Some(duration));
        }
        None => std::thread::sleep(duration),
    }
}
