//! Subtasks: a job over sorted sources is split into key ranges, which the available threads process. The thread whose
//! subtask ends last commits the job. A job too small to split has one subtask and takes the same path.
//!
//! Subtasks are assigned under a lock of the job, which is held for nothing else. If a subtask fails, no further one
//! begins, the others stop at their next yield point, and all output is removed. The first thread serves the front at
//! each yield point of its subtask, so that a long subtask never delays a flush.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::panics::guard_panic;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Error, Result};
use crate::engine::core::Core;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::work::Worker;
use crate::sched::sync::Mutex;

/// A subtask has a yield point each time it has written this share of an index table: a few milliseconds.
const YIELD_POINTS_PER_INDEX_TABLE: usize = 32;

/// Why a subtask has no output.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It was stopped because another subtask failed. No caller sees this: the job ends with the error of the failed
    /// subtask.
    Stopped,
    /// It has failed.
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Failed(error)
    }
}

/// The work of a job that is split into subtasks.
pub(crate) trait SubtaskWork: Send + Sync {
    /// The output of one subtask.
    type Output: Send;
    /// The number of subtasks; at least one.
    fn count(&self) -> usize;
    /// Runs one subtask. If it is interrupted, it removes its own output.
    fn subtask(&self, core: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<Self::Output, Interrupt>;
    /// Joins the outputs of all subtasks.
    fn join(&self, core: &Core, outputs: Vec<Self::Output>) -> Result<Outcome<'_>>;
    /// Discards the outputs, because another subtask failed.
    fn discard(&self, core: &Core, outputs: Vec<Self::Output>);
}

/// The result of an attempt to run a subtask.
pub(crate) enum Done {
    /// No subtask was left to begin.
    Nothing,
    /// A subtask ended, and others are still running or not begun.
    Subtask,
    /// The last subtask ended: the result of the whole job.
    Job(Result<()>),
}

/// A job that several threads may work on.
pub(crate) trait Subtasks: Send + Sync {
    /// The number of subtasks.
    fn count(&self) -> usize;
    /// True if a subtask is left that no thread has begun.
    fn has_more(&self) -> bool;
    /// Runs one subtask, and ends the job if it was the last.
    fn do_one(&self, core: &Arc<Core>, worker: Worker) -> Done;
}

/// The only implementation of [`Subtasks`].
pub(crate) struct SubtaskJob<W: SubtaskWork> {
    work: W,
    progress: Mutex<SubtaskProgress<W::Output>>,
}

struct SubtaskProgress<T> {
    /// The next subtask to begin.
    next: usize,
    running: usize,
    outputs: Vec<Option<T>>,
    failure: Option<Error>,
}

impl<W: SubtaskWork> SubtaskJob<W> {
    pub fn new(work: W) -> SubtaskJob<W> {
        let outputs = (0..work.count()).map(|_| None).collect();
        SubtaskJob { work, progress: Mutex::new(SubtaskProgress { next: 0, running: 0, outputs, failure: None }) }
    }

    fn begin(&self) -> Option<usize> {
        let mut progress = self.progress.lock();
        let index = progress.next;
        if index == progress.outputs.len() || progress.failure.is_some() {
            return None;
        }
        progress.next += 1;
        progress.running += 1;
        Some(index)
    }

    /// Records the result of a subtask (`None`: it was stopped). After the last one, returns all outputs and the
    /// failure, if any.
    fn end(&self, index: usize, result: Result<Option<W::Output>>) -> Option<(Vec<W::Output>, Option<Error>)> {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        match result {
            Ok(output) => progress.outputs[index] = output,
            Err(error) => {
                progress.next = progress.outputs.len();
                // Of several failures, a transient one is the least informative.
                let known = progress.failure.take().filter(|known| !known.is_transient() || error.is_transient());
                progress.failure = Some(known.unwrap_or(error));
            }
        }
        if progress.next < progress.outputs.len() || progress.running > 0 {
            return None;
        }
        let outputs = progress.outputs.iter_mut().filter_map(Option::take).collect();
        Some((outputs, progress.failure.take()))
    }
}

impl<W: SubtaskWork> Subtasks for SubtaskJob<W> {
    fn count(&self) -> usize {
        self.work.count()
    }

    fn has_more(&self) -> bool {
        let progress = self.progress.lock();
        progress.next < progress.outputs.len()
    }

    fn do_one(&self, core: &Arc<Core>, worker: Worker) -> Done {
        let Some(index) = self.begin() else {
            return Done::Nothing;
        };
        let failed = || self.progress.lock().failure.is_some();
        let yield_points = YieldPoints::new(core, worker, &failed);
        let result = match guard_panic("a background job", || Ok(self.work.subtask(core, index, &yield_points))) {
            Ok(Ok(output)) => Ok(Some(output)),
            Ok(Err(Interrupt::Stopped)) => Ok(None),
            Ok(Err(Interrupt::Failed(error))) | Err(error) => Err(error),
        };
        let Some((outputs, failure)) = self.end(index, result) else {
            return Done::Subtask;
        };
        Done::Job(match failure {
            None => guard_panic("the end of a background job", || core.conclude(self.work.join(core, outputs)?)),
            Some(error) => {
                self.work.discard(core, outputs);
                Err(error)
            }
        })
    }
}

/// The points at which a subtask yields to other work.
pub(crate) struct YieldPoints<'a> {
    core: &'a Arc<Core>,
    worker: Worker,
    /// True once another subtask of the job has failed.
    failed: &'a dyn Fn() -> bool,
    /// Bytes until the next yield point.
    left: Cell<usize>,
}

impl<'a> YieldPoints<'a> {
    fn new(core: &'a Arc<Core>, worker: Worker, failed: &'a dyn Fn() -> bool) -> YieldPoints<'a> {
        YieldPoints { core, worker, failed, left: Cell::new(0) }
    }

    fn pass(&self, bytes: usize) -> Result<(), Interrupt> {
        match self.left.get().checked_sub(bytes) {
            Some(left) => self.left.set(left),
            None => {
                self.left.set(self.core.settings.tuning.index_table_bytes / YIELD_POINTS_PER_INDEX_TABLE);
                self.stop_if_needless()?;
                if self.worker == Worker::First {
                    self.core.serve_front();
                }
            }
        }
        Ok(())
    }

    fn stop_if_needless(&self) -> Result<(), Interrupt> {
        if (self.failed)() { Err(Interrupt::Stopped) } else { Ok(()) }
    }
}

/// A stream of versions with yield points.
pub(crate) struct WithYieldPoints<'a, S> {
    /// The versions.
    pub source: S,
    /// Its yield points.
    pub yield_points: &'a YieldPoints<'a>,
}

impl<S: VersionSource<Error = Error>> VersionSource for WithYieldPoints<'_, S> {
    type Error = Interrupt;

    fn advance(&mut self) -> Result<bool, Interrupt> {
        let more = self.source.advance()?;
        if more {
            let (key, _, value) = self.source.current();
            self.yield_points.pass(key.len() + value.len())?;
        }
        Ok(more)
    }

    fn current(&self) -> VersionRef<'_> {
        self.source.current()
    }
}

#[cfg(test)]
#[path = "subtasks_test.rs"]
mod tests;
