//! Jobs: the trait that each kind implements in its own file, and the list entry through which the scheduler asks a
//! kind for its next job (`kinds.rs`).
//!
//! A job describes itself in its [`Profile`]: its claims, the resources that bound it, whether it is mandatory or idle
//! work, its share of memory, and the storage need it meets. It runs as its [`Plan`] says, and ends with an
//! [`Outcome`]: an edit, a new view, both, or neither.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, FileId, Result};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::subtasks::Subtasks;
use crate::engine::view::View;
use crate::engine::work::{Profile, SharedJob, WorkState};

/// A piece of background work.
pub(crate) trait Job: Send + Sync {
    /// The job's properties for the scheduler. Constant for the life of the job, except what it binds, which depends on where
    /// files lie and on room: that is as it is now.
    fn profile(&self, core: &Core) -> Profile;

    /// How it runs. Called without locks, after the job has begun.
    fn plan<'a>(&'a self, core: &Core) -> Result<Plan<'a>>;

    /// Its priority, if that differs from the best one of its kind.
    fn priority(&self) -> Option<Priority> {
        None
    }

    /// The inputs to quarantine if the job failed because it could not read `path`; empty if `path` is not an input of
    /// the job, in which case writes must stop.
    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        Vec::new()
    }
}

/// How a job runs.
pub(crate) enum Plan<'a> {
    /// In the thread that began it.
    Whole(WholeJob<'a>),
    /// As above; if space is missing, the job is retried once after releasing the reserve.
    WithReserve(WholeJob<'a>),
    /// In all available threads, one subtask at a time each. At the yield points of a subtask the first thread serves
    /// the front.
    Subtasks(Box<dyn Subtasks>),
}

/// A whole job, run by one thread.
pub(crate) type WholeJob<'a> = Box<dyn Fn(&Core) -> Result<Outcome<'a>> + 'a>;

/// Which jobs a thread may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// Prepares the next log, removes files, and does jobs that take no time. This thread mostly waits for the file
    /// system, and none of its jobs may wait for a flush, because a writer without a spare log creates one itself.
    Logs,
    /// Collects value files: mostly waits for storage, and runs beside compactions, which make garbage known.
    Values,
    /// Empties logs that leave the fast tier, collects more value files while writers wait for garbage to go, and saves indexes.
    MoreValues,
    /// Moves files between directories: only waits for storage.
    Moves,
    /// Only jobs of the front: at a yield point of a compaction.
    Front,
    /// Jobs of the front, and subtasks of compactions begun by other threads.
    FrontAndSubtasks,
    /// All jobs except those of the threads for logs and for values.
    All,
}

/// The input of all kinds when a thread looks for a job.
pub(crate) struct Look {
    pub duty: Duty,
    pub view: Arc<View>,
    pub now: Duration,
}

/// The offer of a kind of job to a thread.
pub(crate) enum Offer {
    Begin(Arc<dyn Job>),
    /// Help with the job of this number, which is running in another thread.
    Help(u64, Arc<dyn SharedJob>),
}

/// A kind of job.
pub(crate) struct JobKind {
    /// The highest priority that its offers may have.
    pub priority: Priority,
    /// The threads that run such jobs.
    pub duties: &'static [Duty],
    /// The next job, if one is due. Called under the work lock. The scheduler drops an offer whose claims conflict with
    /// those of a running job.
    pub next: fn(&Core, &WorkState, &Look) -> Option<Offer>,
}

impl Duty {
    /// The threads of the pool choose by priorities and resources; each of the others begins the first job that is offered.
    pub fn is_of_pool(self) -> bool {
        matches!(self, Duty::Front | Duty::FrontAndSubtasks | Duty::All)
    }
}

impl JobKind {
    /// For kinds whose jobs are begun, not helped with.
    pub fn begin<J: Job + 'static>(job: J) -> Option<Offer> {
        Some(Offer::Begin(Arc::new(job)))
    }
}

/// The file that could not be read, if that is the cause of an error.
pub(crate) fn unreadable(error: &Error) -> Option<&Path> {
    match error {
        Error::Corruption { path, .. } | Error::Unsupported { path, .. } => Some(path),
        Error::Io { path, operation: "read" | "open" | "measure", .. } if !error.is_too_many_files() => Some(path),
        _ => None,
    }
}
