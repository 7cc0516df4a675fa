//! What a job is: the trait that each kind of job implements in a file of its own, and the list entry by which the scheduler
//! asks the kind for its next job (`kinds.rs`).
//!
//! A job declares itself in its [`Profile`]: what it claims, what it is bound by, whether it is mandatory or for idle time,
//! which share of memory it takes, and which need of storage it meets. It is carried out as its [`Plan`] says, and ends with
//! an [`Outcome`]: an edit, a new view, or nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, FileId, Result};
use crate::engine::core::Core;
use crate::engine::jobs::outcome::Outcome;
use crate::engine::jobs::subtasks::Subtasks;
use crate::engine::view::View;
use crate::engine::work::{Profile, SharedJob, WorkState};

/// A piece of background work.
pub(crate) trait Job: Send + Sync {
    /// What the scheduler has to know of it. The same each time it is asked.
    fn profile(&self) -> Profile;

    /// How it is carried out. Called outside of all locks, when the job has begun.
    fn plan<'a>(&'a self, core: &Core) -> Result<Plan<'a>>;

    /// The inputs that are to be left alone from now on if the job failed because it could not read `path`; none if that is
    /// no input of the job, so that writes must stop.
    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        Vec::new()
    }
}

/// How a job is carried out.
pub(crate) enum Plan<'a> {
    /// By the thread that began it.
    Whole(WholeJob<'a>),
    /// The same. Where space is missing it is tried once more with the reserve given up.
    WithReserve(WholeJob<'a>),
    /// By all threads that have time, each a subtask at a time. At the yield points of a subtask the first thread serves
    /// the front.
    Subtasks(Box<dyn Subtasks>),
}

/// What one thread does of a job, from its beginning to its outcome.
pub(crate) type WholeJob<'a> = Box<dyn Fn(&Core) -> Result<Outcome<'a>> + 'a>;

/// Which jobs a thread may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// To have the next log ready, to remove files, and what takes no time: it mostly waits for the file system, and none of
    /// it may wait for a flush, because a writer without a next log makes it itself.
    Logs,
    /// To empty value files: it mostly waits for storage, and goes on beside compactions, which show what is dead.
    Values,
    /// The front's jobs alone: at a yield point of a compaction.
    Front,
    /// The front's jobs, and subtasks of others' compactions.
    FrontAndSubtasks,
    /// All but those of the threads for logs and for values.
    All,
}

/// What all kinds are asked with when a thread looks for a job.
pub(crate) struct Look {
    pub duty: Duty,
    pub view: Arc<View>,
    pub now: Duration,
    /// Storage refuses space or file descriptors.
    pub is_short: bool,
}

/// What a kind of job offers to a thread.
pub(crate) enum Offer {
    Begin(Arc<dyn Job>),
    /// The job with this number is running in another thread.
    Help(u64, Arc<dyn SharedJob>),
}

/// A kind of job.
pub(crate) struct Kind {
    /// The threads that do such jobs.
    pub duties: &'static [Duty],
    /// The next one, if one is due. Asked under the work lock. The scheduler drops an offer whose claims conflict with those
    /// of a running job.
    pub next: fn(&Core, &WorkState, &Look) -> Option<Offer>,
}

impl Kind {
    /// For kinds that are to be begun.
    pub fn begin<J: Job + 'static>(job: J) -> Option<Offer> {
        Some(Offer::Begin(Arc::new(job)))
    }
}

/// The file that could not be read, if that is what an error says.
pub(crate) fn unreadable(error: &Error) -> Option<&Path> {
    match error {
        Error::Corruption { path, .. } | Error::Unsupported { path, .. } => Some(path),
        Error::Io { path, operation: "read" | "open" | "measure", .. } if !error.is_too_many_files() => Some(path),
        _ => None,
    }
}
