//! Why a simulated run failed: a panic, a deadlock, or a run without end. Returned by
//! [`simulate`](super::sim::simulate).

use std::fmt;

/// Why a run failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SimFailure {
    /// The seed that reproduces it.
    pub seed: u64,
    /// Number of scheduling decisions made before it.
    pub steps: u64,
    /// Panics of threads that no thread has joined.
    pub panics: Vec<ThreadPanic>,
    /// What stopped the world before all of its threads ended; `None` if they ended.
    pub stop: Option<Stop>,
}

/// A panic of a simulated thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPanic {
    /// The thread's name ("main" for the closure itself).
    pub thread: String,
    /// The message of the panic.
    pub message: String,
}

/// The reason why a world stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// All threads wait, and none of the waits has a deadline.
    Deadlock {
        /// The names of the threads, each with what it waits for.
        waiting: Vec<String>,
    },
    /// The step limit was reached.
    StepLimit {
        /// The limit.
        steps: u64,
    },
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
