//! Threads. A thread spawned by a simulated thread belongs to the same simulation; any other is a plain thread.

use std::time::Duration;

use super::world::{self, Member, Wait};

/// A started thread. Dropping it leaves the thread running on its own.
#[derive(Debug)]
pub struct JoinHandle {
    inner: std::thread::JoinHandle<()>,
    simulated: Option<Member>,
}

impl JoinHandle {
    /// The thread that asks is the one that was started.
    pub fn is_current(&self) -> bool {
        self.inner.thread().id() == std::thread::current().id()
    }

    /// Waits for the thread to end; `Err` holds what it panicked with. Inside a simulation the panic then counts as
    /// seen, and is not reported as a failure of the run.
    pub fn join(self) -> std::thread::Result<()> {
        if let Some(member) = &self.simulated {
            member.wait_for_end();
        }
        self.inner.join()
    }
}

/// Starts a thread with this name.
///
/// # Panics
/// If the operating system cannot start another thread, as [`std::thread::spawn`] does.
pub fn spawn(name: &str, f: impl FnOnce() + Send + 'static) -> JoinHandle {
    let simulated = world::current().map(|here| here.add_thread(name));
    let builder = std::thread::Builder::new().name(name.to_owned());
    let started = match simulated.clone() {
        Some(member) => builder.spawn(move || member.run(f)),
        None => builder.spawn(f),
    };
    match started {
        Ok(inner) => JoinHandle { inner, simulated },
        Err(error) => {
            if let Some(member) = simulated {
                member.cancel();
            }
            panic!("cannot start thread {name}: {error}")
        }
    }
}

/// Waits for this long (virtual time in a simulation).
pub fn sleep(duration: Duration) {
    match world::current() {
        Some(here) => {
            here.wait(Wait::Sleep, Some(duration));
        }
        None => std::thread::sleep(duration),
    }
}
