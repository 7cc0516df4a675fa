//! Deterministic simulation: [`simulate`] runs a closure, and every thread that it starts through `sched/`, in a world
//! where one thread runs at a time and a seed decides which. The same seed and the same code give the same run, including
//! every switch of threads; the digest of a run proves it.
//!
//! Threads switch at [`yield_point`]s (every call of the simulated disk is one, and one in four lock operations), when they
//! wait and when they end. Worlds are independent: several can run at once on different OS threads.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::failure::SimFailure;
use super::random::Random;
use super::world::{self, ActiveWorld, World};

/// The seed and the limit of a run.
#[derive(Debug, Clone)]
pub struct SimConfig {
    /// Determines every switch of threads and every number from [`random`].
    pub seed: u64,
    /// The run fails after this number of scheduling decisions.
    pub max_steps: u64,
}

impl SimConfig {
    /// This seed, and a step limit that is only reached by a run without end.
    pub fn new(seed: u64) -> SimConfig {
        SimConfig { seed, max_steps: 20_000_000 }
    }
}

/// The outcome of a run.
#[derive(Debug)]
pub struct SimReport<T> {
    /// The value of the closure, or the failure.
    pub result: Result<T, SimFailure>,
    /// A hash of the thread chosen at each decision. Equal runs have equal digests.
    pub digest: u64,
    /// Number of scheduling decisions.
    pub steps: u64,
    /// Virtual time that passed.
    pub elapsed: Duration,
}

/// Runs `f` as the first thread ("main") of a world of its own, until all of the world's threads have ended.
///
/// # Errors
/// A panic of a thread that was not joined, a deadlock (also of threads that outlive `f`), or a run without end.
/// The threads of a stopped world, and the values they own, are leaked.
pub fn simulate<T: Send + 'static>(seed: u64, f: impl FnOnce() -> T + Send + 'static) -> Result<T, SimFailure> {
    simulate_with(SimConfig::new(seed), f).result
}

/// As [`simulate`], with a step limit and a report.
pub fn simulate_with<T: Send + 'static>(config: SimConfig, f: impl FnOnce() -> T + Send + 'static) -> SimReport<T> {
    let _active = ActiveWorld::start();
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
        // The thread has ended, so this does not wait; `ending` already holds its panic.
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

/// Lets the scheduler switch to another thread. Does nothing outside a simulation.
#[inline]
pub fn yield_point() {
    if let Some(member) = world::current() {
        member.yield_now();
    }
}

/// A number below `bound` (zero if that is zero) from the random sequence of the current world. Outside a simulation, from
/// a sequence that is the same for every thread of every run.
pub fn random(bound: u64) -> u64 {
    thread_local! {
        static OUTSIDE: RefCell<Random> = RefCell::new(Random::new(0));
    }
    match world::current() {
        Some(member) => member.random(bound),
        None => OUTSIDE.with_borrow_mut(|random| random.below(bound)),
    }
}

#[cfg(test)]
#[path = "sim_test.rs"]
mod tests;
