//! Deterministic simulation: [`simulate`] runs a closure, and every thread it starts through `sched/`, in a world
//! where one thread runs at a time and a seed decides which. The same seed and the same code give the same run, down
//! to the last switch; the digest of a run proves it.
//!
//! Threads switch at [`yield_point`]s (every call of the simulated disk is one, locks are now and then), at waits and
//! at ends. Worlds are independent: many can run at once on different OS threads.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::random::Random;
use super::world::{self, Running, World};

/// What a run may do.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Decides every switch of threads and everything drawn with [`random`].
    pub seed: u64,
    /// The run fails after so many scheduling decisions: it has lost its way.
    pub max_steps: u64,
}

impl SimConfig {
    /// This seed, and a step limit that only a run without end reaches.
    pub fn new(seed: u64) -> SimConfig {
        SimConfig { seed, max_steps: 20_000_000 }
    }
}

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimFailure {
    /// The seed that shows it again.
    pub seed: u64,
    /// How many scheduling decisions had been made.
    pub steps: u64,
    /// Threads that panicked and whose end nobody looked at.
    pub panics: Vec<ThreadPanic>,
    /// What stopped the world before all its threads had ended.
    pub stop: Option<Stop>,
}

/// A panic of a simulated thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPanic {
    /// The thread's name ("main" for the closure itself).
    pub thread: String,
    /// What it panicked with.
    pub message: String,
}

/// What stopped a world.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// All threads wait, none of them for time to pass.
    Deadlock {
        /// Their names and what they wait for.
        waiting: Vec<String>,
    },
    /// The step limit was reached.
    StepLimit {
        /// The limit.
        steps: u64,
    },
}

/// How a run went.
#[derive(Debug)]
pub struct SimReport<T> {
    /// What the closure returned, or what went wrong.
    pub result: Result<T, SimFailure>,
    /// A hash over which thread was chosen at each decision. Equal runs have equal digests.
    pub digest: u64,
    /// How many decisions there were.
    pub steps: u64,
    /// How much virtual time passed.
    pub elapsed: Duration,
}

/// Runs `f` as the first thread ("main") of a world of its own, until all of the world's threads have ended.
///
/// # Errors
/// A panic of any thread that nobody joined, a deadlock (also of threads that `f` left behind), or a run without end.
/// The threads of a stopped world, and what they hold, are leaked.
pub fn simulate<T: Send + 'static>(seed: u64, f: impl FnOnce() -> T + Send + 'static) -> Result<T, SimFailure> {
    simulate_with(SimConfig::new(seed), f).result
}

/// Like [`simulate`], with more to choose and more to see.
pub fn simulate_with<T: Send + 'static>(config: SimConfig, f: impl FnOnce() -> T + Send + 'static) -> SimReport<T> {
    let _running = Running::start();
    let world = World::new(config.seed, config.max_steps);
    let answer = Arc::new(Mutex::new(None));
    let main = world.add_thread("main");
    let into = Arc::clone(&answer);
    let body = move || {
        main.run(move || {
            let value = f();
            *into.lock() = Some(value);
        });
    };
    let thread = match std::thread::Builder::new().name("main".to_owned()).spawn(body) {
        Ok(thread) => thread,
        Err(error) => panic!("cannot start a simulated thread: {error}"),
    };
    let ending = world.run_to_end();
    if ending.stop.is_none() {
        // Ended, so this does not wait; its panic is in the ending already.
        let _ = thread.join();
    }
    let result = match answer.lock().take() {
        Some(value) if ending.stop.is_none() && ending.panics.is_empty() => Ok(value),
        value => {
            // The value may hold locks or threads of the stopped world; dropping it could wait for them.
            std::mem::forget(value);
            Err(SimFailure { seed: config.seed, steps: ending.steps, panics: ending.panics, stop: ending.stop })
        }
    };
    SimReport { result, digest: ending.digest, steps: ending.steps, elapsed: ending.elapsed }
}

/// A place where another thread may go on. Does nothing outside a simulation.
#[inline]
pub fn yield_point() {
    if let Some(here) = world::current() {
        here.yield_now();
    }
}

/// A number below `bound` (zero if that is zero) from the randomness of the current world. Outside a simulation, from a
/// sequence that is the same for every thread of every run.
pub fn random(bound: u64) -> u64 {
    thread_local! {
        static OUTSIDE: RefCell<Random> = RefCell::new(Random::new(0));
    }
    match world::current() {
        Some(here) => here.random(bound),
        None => OUTSIDE.with_borrow_mut(|random| random.below(bound)),
    }
}

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "simulation with seed {} failed after {} steps", self.seed, self.steps)?;
        for panic in &self.panics {
            write!(f, "; thread '{}' panicked: {}", panic.thread, panic.message)?;
        }
        match &self.stop {
            Some(Stop::Deadlock { waiting }) => write!(f, "; deadlock: {}", waiting.join(", ")),
            Some(Stop::StepLimit { steps }) => write!(f, "; no end within {steps} steps"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for SimFailure {}

#[cfg(test)]
#[path = "sim_test.rs"]
mod tests;
