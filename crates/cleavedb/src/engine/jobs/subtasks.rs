//! A job in parts: work over sorted sources that is cut into ranges of keys, done by as many threads as have time, and
//! made true at once by the one that finishes last. A job that is not worth cutting has one part and goes the same way.
//!
//! SubtaskWork are handed out under a lock of the job's own, in which nothing else happens. If a part fails, no further one is
//! begun, the others stop at their next break, and what was written goes. While the first thread does a part, it looks
//! after the front at each break, so that a part, however long, never delays a flush.

use std::cell::Cell;

use crate::base::panics::guard_panic;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Error, Result};
use crate::engine::core::Core;
use crate::sched::sync::Mutex;

/// A part has a break whenever it has written this part of an index table: some milliseconds.
const YIELD_POINTS_PER_INDEX_TABLE: usize = 32;

/// Why a part has no output.
#[derive(Debug)]
pub(crate) enum Interrupt {
    /// It was stopped, because another part has failed. No user gets this: the job ends with the other part's failure.
    Stopped,
    /// It has failed.
    Failed(Error),
}

impl From<Error> for Interrupt {
    fn from(error: Error) -> Interrupt {
        Interrupt::Failed(error)
    }
}

/// What a job in parts does.
pub(crate) trait SubtaskWork: Send + Sync {
    /// What a part leaves for the end of the job.
    type Output: Send;
    /// How many parts there are; at least one.
    fn parts(&self) -> usize;
    /// Does one part. After an interrupt nothing is left behind that the part wrote.
    fn part(&self, core: &Core, index: usize, yield_points: &YieldPoints<'_>) -> Result<Self::Output, Interrupt>;
    /// Makes the outputs of all parts true together.
    fn join(&self, core: &Core, outputs: Vec<Self::Output>) -> Result<()>;
    /// Another part has failed: the outputs are of no use.
    fn discard(&self, core: &Core, outputs: Vec<Self::Output>);
}

/// Who does a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// The thread that looks after the front.
    First,
    /// Any other.
    Other,
}

/// What became of an attempt to do a part.
pub(crate) enum Done {
    /// There was none left to begin.
    Nothing,
    /// A part is done, and others are not.
    Part,
    /// It was the last one: the whole job has ended like this.
    Job(Result<()>),
}

/// A job that several threads may work on.
pub(crate) trait Subtasks: Send + Sync {
    /// How many parts there are.
    fn parts(&self) -> usize;
    /// A part is left that nobody has begun.
    fn has_more(&self) -> bool;
    /// Does one part, and ends the job if it was the last.
    fn do_one(&self, core: &Core, worker: Worker) -> Done;
}

/// The one [`Subtasks`] there is.
pub(crate) struct SubtaskJob<W: SubtaskWork> {
    work: W,
    progress: Mutex<SubtaskProgress<W::Output>>,
}

struct SubtaskProgress<T> {
    /// The next part to begin.
    next: usize,
    running: usize,
    outputs: Vec<Option<T>>,
    failure: Option<Error>,
}

impl<W: SubtaskWork> SubtaskJob<W> {
    pub fn new(work: W) -> SubtaskJob<W> {
        let outputs = (0..work.parts()).map(|_| None).collect();
        SubtaskJob { work, progress: Mutex::new(SubtaskProgress { next: 0, running: 0, outputs, failure: None }) }
    }

    fn begin(&self) -> Option<usize> {
        let mut progress = self.progress.lock();
        let part = progress.next;
        if part == progress.outputs.len() || progress.failure.is_some() {
            return None;
        }
        progress.next += 1;
        progress.running += 1;
        Some(part)
    }

    /// Notes how a part ended (`None`: it was stopped); if it was the last, what all left, and what failed.
    fn end(&self, part: usize, result: Result<Option<W::Output>>) -> Option<(Vec<W::Output>, Option<Error>)> {
        let mut progress = self.progress.lock();
        progress.running -= 1;
        match result {
            Ok(output) => progress.outputs[part] = output,
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
    fn parts(&self) -> usize {
        self.work.parts()
    }

    fn has_more(&self) -> bool {
        let progress = self.progress.lock();
        progress.next < progress.outputs.len()
    }

    fn do_one(&self, core: &Core, worker: Worker) -> Done {
        let Some(part) = self.begin() else {
            return Done::Nothing;
        };
        let failed = || self.progress.lock().failure.is_some();
        let yield_points = YieldPoints::new(core, worker, &failed);
        let result = match guard_panic("a background job", || Ok(self.work.part(core, part, &yield_points))) {
            Ok(Ok(output)) => Ok(Some(output)),
            Ok(Err(Interrupt::Stopped)) => Ok(None),
            Ok(Err(Interrupt::Failed(error))) | Err(error) => Err(error),
        };
        let Some((outputs, failure)) = self.end(part, result) else {
            return Done::Part;
        };
        Done::Job(match failure {
            None => guard_panic("the end of a background job", || self.work.join(core, outputs)),
            Some(error) => {
                self.work.discard(core, outputs);
                Err(error)
            }
        })
    }
}

/// The moments at which a part looks up from its work.
pub(crate) struct YieldPoints<'a> {
    core: &'a Core,
    worker: Worker,
    /// Another part of the job has failed.
    failed: &'a dyn Fn() -> bool,
    /// Bytes until the next break.
    left: Cell<usize>,
}

impl<'a> YieldPoints<'a> {
    fn new(core: &'a Core, worker: Worker, failed: &'a dyn Fn() -> bool) -> YieldPoints<'a> {
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
