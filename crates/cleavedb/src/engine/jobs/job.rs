//! The jobs of the background, and how they are run: the simple ones as they are, those in parts by all threads that have
//! time. Which is next is decided in `background.rs`.

use std::sync::Arc;

use crate::base::panics::guard_panic;
use crate::base::{FileId, Result};
use crate::engine::core::Core;
use crate::engine::inspect::telemetry;
use crate::engine::jobs::compact::TableWork;
use crate::engine::jobs::runs::{RunInputs, RunWork};
use crate::engine::jobs::subtasks::{Done, SubtaskJob, Subtasks, Worker};
use crate::front::index_table::IndexTable;
use crate::front::run::Run;
use crate::io::pending_deletions::Obsolete;
use crate::levels::picker::Choice;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;

/// Something to do.
#[derive(Clone)]
pub(crate) enum Job {
    Seal(Arc<IndexTable>),
    Flush(Vec<Arc<Run>>),
    MergeRuns(Vec<Arc<Run>>),
    PrepareLog,
    DeletePending,
    /// To set space apart for a full disk.
    MakeReserve,
    Compact(Choice),
    /// To empty files of values.
    CollectGarbage(Vec<FileId>),
    /// To move values so that they lie in the order of their keys.
    Reorder(Vec<FileId>),
    /// To have the front flushed, which hides dead values.
    SealFront,
    /// To look which tables have addresses out of date.
    FindStaleAddresses,
    /// A part of a job that another thread has begun.
    Help(Arc<Begun>),
}

impl Job {
    /// It takes from what is set apart for jobs.
    pub fn takes_memory(&self) -> bool {
        !matches!(
            self,
            Job::PrepareLog | Job::DeletePending | Job::MakeReserve | Job::SealFront | Job::FindStaleAddresses
        )
    }

    /// Unlike one that puts values in order, which ends when such a job begins. Those that take no memory take no time either.
    pub fn must_be_done(&self) -> bool {
        self.takes_memory() && !matches!(self, Job::Reorder(_))
    }

    /// A compaction, or a part of one.
    pub fn is_compaction(&self) -> bool {
        match self {
            Job::Compact(_) => true,
            Job::Help(begun) => begun.job.is_compaction(),
            _ => false,
        }
    }
}

/// A job in parts that has begun.
pub(crate) struct Begun {
    pub job: Job,
    pub number: u64,
    pub parts: Box<dyn Subtasks>,
    /// Where a user waits for the result; background threads see to their jobs themselves.
    pub answer: Option<Mutex<Option<Result<()>>>>,
}

/// A job that has ended: which it was if it was one in parts, and how it ended.
pub(crate) type Ended = (Option<Arc<Begun>>, Result<()>);

impl Core {
    /// Runs a job; a panic is a broken invariant of ours, after which no write can be promised. Returns how the job ended,
    /// if it has, and which it was if it was one in parts.
    pub fn run_job_safely(&self, job: &Job, number: u64, worker: Worker) -> Option<Ended> {
        telemetry::in_span(job, || self.run_safely(job, number, worker))
    }

    fn run_safely(&self, job: &Job, number: u64, worker: Worker) -> Option<Ended> {
        let simple = |work: &dyn Fn() -> Result<()>| Some((None, guard_panic("a background job", work)));
        match job {
            Job::Flush(runs) => simple(&|| self.reserve.with(|| self.flush_runs(runs))),
            Job::CollectGarbage(files) => simple(&|| self.reserve.with(|| self.collect_garbage_measured(files))),
            Job::Reorder(files) => simple(&|| self.reorder(files)),
            Job::SealFront => simple(&|| self.seal_front()),
            Job::FindStaleAddresses => simple(&|| {
                self.find_stale_addresses();
                Ok(())
            }),
            Job::PrepareLog => simple(&|| self.prepare_spare_log()),
            Job::DeletePending => simple(&|| {
                self.delete_one_pending();
                Ok(())
            }),
            Job::MakeReserve => simple(&|| self.reserve.make()),
            Job::Help(begun) => match begun.parts.do_one(self, worker) {
                Done::Job(result) => Some((Some(begun.clone()), result)),
                Done::Nothing | Done::Part => None,
            },
            Job::Compact(choice) if !matches!(choice, Choice::Compact(_)) => simple(&|| self.run_choice(choice)),
            Job::Seal(_) | Job::MergeRuns(_) | Job::Compact(_) => match self.begin(job, number, false) {
                Err(error) => Some((None, Err(error))),
                Ok(begun) => self.run_subtasks(&begun, worker).map(|result| (Some(begun), result)),
            },
        }
    }

    /// Plans a job in parts, and lets other threads know if there is something for them.
    fn begin(&self, job: &Job, number: u64, for_user: bool) -> Result<Arc<Begun>> {
        let parts = guard_panic("the plan of a background job", || self.plan(job))?;
        let answer = for_user.then(Mutex::default);
        let begun = Arc::new(Begun { job: job.clone(), number, parts, answer });
        if begun.parts.parts() > 1 {
            self.work.lock().in_subtasks.push(begun.clone());
            self.work.wake();
        }
        Ok(begun)
    }

    fn plan(&self, job: &Job) -> Result<Box<dyn Subtasks>> {
        Ok(match job {
            Job::Seal(table) => Box::new(SubtaskJob::new(RunWork::plan(self, RunInputs::Sealed(table.clone()))?)),
            Job::MergeRuns(runs) => Box::new(SubtaskJob::new(RunWork::plan(self, RunInputs::Runs(runs.clone()))?)),
            Job::Compact(Choice::Compact(compact)) => Box::new(SubtaskJob::new(TableWork::plan(self, compact)?)),
            _ => unreachable!("no other job has parts"),
        })
    }

    /// Does parts until none is left to begin; how the job ended, if the last one to end was among them.
    fn run_subtasks(&self, begun: &Begun, worker: Worker) -> Option<Result<()>> {
        loop {
            match begun.parts.do_one(self, worker) {
                Done::Nothing => return None,
                Done::Part => {}
                Done::Job(result) => return Some(result),
            }
        }
    }

    /// Carries out a choice in the caller's thread, with the help of others, and waits for its end.
    pub fn run_and_wait(&self, choice: &Choice) -> Result<()> {
        if !matches!(choice, Choice::Compact(_)) {
            return guard_panic("a compaction", || self.run_choice(choice));
        }
        let begun = self.begin(&Job::Compact(choice.clone()), 0, true)?;
        let ended = self.run_subtasks(&begun, Worker::Other);
        let mut state = self.work.lock();
        if let Some(result) = ended {
            state.in_subtasks.retain(|other| !Arc::ptr_eq(other, &begun));
            return result;
        }
        let answer = begun.answer.as_ref().expect("a job for a user has a place for the answer");
        loop {
            if let Some(result) = answer.lock().take() {
                return result;
            }
            self.work.wait_for_progress(&mut state);
        }
    }

    /// Removes a file, or gives back a part of one, that the manifest has forgotten and nothing reads any more; false if
    /// there is none.
    pub fn delete_one_pending(&self) -> bool {
        let Some(obsolete) = self.pending_deletions.take(now()) else { return false };
        match obsolete {
            // Nothing depends on it: the next open removes what the manifest does not name.
            Obsolete::File(path) => drop(self.storage.remove(&path)),
            Obsolete::Range(range) => {
                let punched = self.storage.punch(&range.path, range.offset, range.len);
                match &punched {
                    Err(_) if matches!(self.storage.exists(&range.path), Ok(false)) => {
                        self.pending_deletions.record_file_gone(&range)
                    }
                    _ => self.pending_deletions.record_punch(range, &punched, now()),
                }
            }
        }
        true
    }
}
