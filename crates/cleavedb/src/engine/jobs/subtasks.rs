//! Subtasks: a job over sorted sources is cut into ranges of keys, done by as many threads as have time, and made true at
//! once by the thread whose subtask ends last. A job that is not worth cutting has one subtask and goes the same way.
//!
//! Subtasks are handed out under a lock of the job's own, in which nothing else happens. If a subtask fails, no further one
//! begins, the others stop at their next yield point, and what was written is removed. While the first thread does a
//! subtask, it serves the front at each yield point, so that a subtask, however long, never delays a flush.

use std::cell::Cell;
use std::sync::Arc;

use crate::base::panics::guard_panic;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Error, Result};
use crate::engine::core::Core;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::work::Worker;
use crate::sched::sync::Mutex;

/// A subtask has a yield point whenever it has written this part of an index table: some milliseconds.
const YIELD_POINTS_PER_INDEX_TABLE: usize = 32;

/// Why a subtask has no output.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It was stopped, because another subtask has failed. No caller sees this: the job ends with the failure of the other.
    Stopped,
    /// It has failed.
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Failed(error)
    }
}

/// What a job that is cut into subtasks does.
pub(crate) trait SubtaskWork: Send + Sync {
    /// What a subtask leaves for the end of the job.
    type Output: Send;
    /// How many subtasks there are; at least one.
    fn count(&self) -> usize;
    /// Does one subtask. After an interrupt nothing is left behind that the subtask wrote.
    fn subtask(&self, core: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<Self::Output, Interrupt>;
    /// Joins the outputs of all subtasks.
    fn join(&self, core: &Core, outputs: Vec<Self::Output>) -> Result<Outcome<'_>>;
    /// Another subtask has failed: the outputs are of no use.
    fn discard(&self, core: &Core, outputs: Vec<Self::Output>);
}

/// What became of an attempt to do a subtask.
pub(crate) enum Done {
    /// There was none left to begin.
    Nothing,
    /// A subtask is done, and others are not.
    Subtask,
    /// It was the last one: the whole job has ended like this.
    Job(Result<()>),
}

/// A job that several threads may work on.
pub(crate) trait Subtasks: Send + Sync {
    /// How many subtasks there are.
    fn count(&self) -> usize;
    /// A subtask is left that no thread has begun.
    fn has_more(&self) -> bool;
    /// Does one subtask, and ends the job if it was the last.
    fn do_one(&self, core: &Arc<Core>, worker: Worker) -> Done;
}

/// The one [`Subtasks`] there is.
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

    /// Notes how a subtask ended (`None`: it was stopped); if it was the last, what all left, and what failed.
    fn end(&self, index: usize, result: Result<Option<W::Output>>) -> Option<(Vec<W::Output>, Option<Error>)> {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        match result {
            Ok(output) => progress.outputs[index] = output,
            Err(error) => {
                progress.next = progress.outputs.len();
                // Of several failures one that passes says least.
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

/// The moments at which a subtask looks up from its work.
pub(crate) struct YieldPoints<'a> {
    core: &'a Arc<Core>,
    worker: Worker,
    /// Another subtask of the job has failed.
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

/// A stream of versions with yield points in between.
pub(crate) struct WithYieldPoints<'a, S> {
    /// The versions.
    pub source: S,
    /// When to look up.
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
