//! Background work: which job is next, the threads that run jobs, and the writers that wait for them.
//!
//! All decisions are taken under one lock, which is never held while a job runs. One thread looks after the logs, beside
//! those that the options ask for. The first of these looks after the front (seal, flush, index merge): it leaves the
//! choice of compactions to the others if there are any, helps them with parts when the front has nothing to do, and goes
//! back to the front in the midst of a part.

mod next_job;
mod waits;

use crate::engine::space::Space;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::{Error, FileId, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::jobs::job::{Begun, Job};
use crate::engine::jobs::retry::{Need, Shortages};
use crate::engine::jobs::subtasks::Worker;
use crate::front::run::Run;
use crate::levels::picker::{Choice, RunningCompaction};
use crate::sched::allocator;
use crate::sched::clock::now;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::thread::{JoinHandle, try_spawn};
use crate::values::stale::Stale;

/// After so long without a job, the block cache may use what is set apart for jobs.
const IDLE_AFTER: Duration = Duration::from_secs(1);

/// The state of background work.
#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<WorkState>,
    /// There may be a new job.
    changed: Condvar,
    /// A job has ended.
    progress: Condvar,
    flushed: AtomicU64,
    /// Jobs that take memory ran within the last second.
    active: AtomicBool,
    /// What is known of the space of values apart from their keys.
    pub space: Space,
    threads: Mutex<Vec<JoinHandle>>,
}

/// What is running, and what was asked for.
#[derive(Default)]
pub(crate) struct WorkState {
    sealing: bool,
    /// How many of the oldest runs are being flushed.
    flushing: usize,
    merging: Vec<Arc<Run>>,
    preparing_log: bool,
    collecting_garbage: bool,
    /// The front is being sealed, to be flushed for what it hides.
    sealing_front: bool,
    finding_stale: bool,
    /// How many value_collections there had been when tables were looked through for addresses out of date.
    stale_found_at: Option<u64>,
    /// The tables that are to be written anew for that.
    pub stale: Stale,
    deleting_pending: bool,
    making_reserve: bool,
    /// What compactions write.
    pub compacting: Vec<RunningCompaction>,
    /// Threads that compact, users' included: each has its part of the memory for jobs.
    pub compacting_threads: usize,
    /// Tables that compactions read.
    pub busy_tables: BTreeSet<FileId>,
    /// Everything up to here is to be flushed now.
    flush_target: Seqno,
    /// Jobs in more than one part, from their beginning to their end.
    pub in_subtasks: Vec<Arc<Begun>>,
    /// Jobs started so far.
    started: u64,
    /// Jobs, and parts of jobs, that background threads are in.
    pub running: usize,
    /// How many want background work to stand still.
    pub pauses: usize,
    /// Calls of users that write files in their own threads, without being a job.
    outside_writers: usize,
    /// Nothing runs, and a thread that may do anything has found nothing to do but to put values in order, if that.
    pub quiet: bool,
    /// The same, and values are in order.
    idle: bool,
    /// When a job ended last that had to be done.
    busy_until: Duration,
    /// How many wait until all is done.
    waiting: usize,
    /// There was no room to put values in order, and nothing has happened since.
    pub reorder_blocked: bool,
    /// What jobs did not get of storage.
    pub shortages: Shortages,
    /// That there is no room for the reserve: nobody waits for it, and nothing else is done in another order.
    reserve_shortage: Shortages,
    /// Tables that compactions could not read.
    pub quarantined: BTreeSet<FileId>,
    stop: bool,
}

impl WorkState {
    /// Jobs started so far.
    pub fn started(&self) -> u64 {
        self.started
    }

    /// An error if a job that was started after number `since` did not get what it needs of storage.
    pub fn check_space(&self, since: u64) -> Result<()> {
        self.shortages.check(None, since)
    }

    /// A job of which some part has not been begun.
    fn to_help(&self, wanted: impl Fn(&Job) -> bool) -> Option<Arc<Begun>> {
        self.in_subtasks.iter().find(|begun| wanted(&begun.job) && begun.parts.has_more()).cloned()
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

/// Which jobs a thread may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Duty {
    /// To have the next log ready, and to remove files: both mostly wait for the file system, and neither may wait for a
    /// flush, because a writer without a next log makes it itself.
    Logs,
    /// To empty files of values: it mostly waits for storage, and goes on beside compactions, which show what is dead.
    Values,
    /// The front's alone: between two steps of a compaction.
    Front,
    /// The front's, and parts of what others compact.
    FrontAndSubtasks,
    /// All.
    All,
}

impl Work {
    pub fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock()
    }

    /// There may be a new job.
    pub fn wake(&self) {
        // The lock makes sure that a thread that found nothing is already waiting.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Something changed for everyone.
    pub fn wake_all(&self) {
        drop(self.state.lock());
        self.changed.notify_all();
        self.progress.notify_all();
    }

    /// True once the threads are told to end.
    pub fn is_stopping(&self, state: &WorkState) -> bool {
        state.stop
    }

    /// Wakes those who wait for progress; its caller holds the lock.
    pub fn notify_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits until a job has ended.
    pub fn wait_for_progress(&self, state: &mut MutexGuard<'_, WorkState>) {
        self.progress.wait(state);
    }

    /// Waits until a job has ended, at most so long.
    pub fn wait_for_progress_at_most(&self, state: &mut MutexGuard<'_, WorkState>, limit: Duration) {
        self.progress.wait_for(state, limit);
    }

    /// Jobs that take memory run, or did so a moment ago.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Everything up to `seqno` is in tables.
    pub fn note_flushed(&self, seqno: Seqno) {
        self.flushed.fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// Everything up to here is in tables.
    pub fn flushed(&self) -> Seqno {
        Seqno(self.flushed.load(Ordering::Acquire))
    }
}

impl Core {
    /// Starts the threads.
    pub fn start_background(self: &Arc<Core>) -> Result<()> {
        let count = self.settings.background_threads;
        let mut threads = self.work.threads.lock();
        for index in 0..count {
            let core = self.clone();
            let worker = if index == 0 { Worker::First } else { Worker::Other };
            let duty = if index == 0 && count > 1 { Duty::FrontAndSubtasks } else { Duty::All };
            threads.push(try_spawn(&format!("cleave-work-{index}"), move || core.run_background(worker, duty))?);
        }
        let core = self.clone();
        threads.push(try_spawn("cleave-values", move || core.run_background(Worker::Other, Duty::Values))?);
        let core = self.clone();
        threads.push(try_spawn("cleave-logs", move || core.run_background(Worker::Other, Duty::Logs))?);
        Ok(())
    }

    /// Ends the threads after the jobs they are in.
    pub fn stop_background(&self) {
        self.work.lock().stop = true;
        self.work.wake_all();
        // Compactions that users asked for, and loads, run in their threads.
        let mut state = self.work.lock();
        while !state.busy_tables.is_empty() || state.outside_writers > 0 {
            self.work.progress.wait(&mut state);
        }
        drop(state);
        let threads = std::mem::take(&mut *self.work.threads.lock());
        // A recorder of metrics may close the database, in the thread that tells it.
        for thread in threads.into_iter().filter(|thread| !thread.is_current()) {
            // Jobs catch their own panics, so there is nothing to hear.
            let _ = thread.join();
        }
    }

    fn run_background(&self, worker: Worker, duty: Duty) {
        let publishes = duty == Duty::Logs && self.settings.tuning.stats_interval.is_some();
        let mut state = self.work.lock();
        while !state.stop {
            let mut publish_in = None;
            if publishes {
                drop(state);
                publish_in = self.publish_stats();
                state = self.work.lock();
                if state.stop {
                    break;
                }
            }
            let may_work = self.check_poison().is_ok() && !self.is_paused(&state);
            let job = if may_work { self.next_job(&mut state, duty) } else { None };
            let stuck_by = match job {
                None if may_work && duty == Duty::All => self.stuck_by(&state),
                _ => None,
            };
            match (job, stuck_by) {
                (Some(job), _) => state = self.run_job(state, job, worker),
                (None, Some(table)) => {
                    let version = self.published.view().version.clone();
                    let path = version.find(table).map(|(_, table)| table.path().display().to_string());
                    let path = path.unwrap_or_else(|| format!("table {}", table.0));
                    let cause = format!("HL0 is full, and {path}, which cannot be read, is in the way");
                    drop(state);
                    self.poison(&Error::Poisoned { cause });
                    state = self.work.lock();
                }
                (None, None) if state.shortages.any() => {
                    let now = now();
                    if may_work && duty == Duty::All && state.compacting_threads == 0 {
                        state.shortages.expire(now);
                    }
                    let rest = state.shortages.next_try(now);
                    self.work.changed.wait_for(&mut state, rest);
                }
                (None, None) => {
                    let when_idle =
                        state.running + state.compacting_threads == 0 && self.due_collection(&state).is_none();
                    if may_work && duty == Duty::All && when_idle {
                        if !std::mem::replace(&mut state.quiet, true) {
                            self.work.changed.notify_all();
                            // What slowed writers down may be over since the last job looked.
                            self.update_pace();
                            // Now there may be something to do that waits for just this.
                            continue;
                        }
                        if self.reorder_candidates(&state).is_none() {
                            state.idle = true;
                            self.work.progress.notify_all();
                        }
                    }
                    // The views that a job held went when it was over, and files with them. Who is at it already looks again.
                    if duty != Duty::Logs && !state.deleting_pending && self.pending_deletions.has_work(now()) {
                        self.work.changed.notify_all();
                    }
                    // At rest the cache may have what is set apart for jobs.
                    let rest = (duty == Duty::Logs && self.work.is_active()).then_some(IDLE_AFTER);
                    let reserve_in = (duty == Duty::Logs && state.reserve_shortage.any())
                        .then(|| state.reserve_shortage.next_try(now()));
                    let retry_in =
                        (may_work && duty == Duty::Logs).then(|| self.pending_deletions.retry_in(now())).flatten();
                    let waits_for_idle = may_work && matches!(duty, Duty::Values | Duty::All);
                    let order_in = waits_for_idle.then(|| self.idle_in(&state)).flatten();
                    match rest.into_iter().chain(publish_in).chain(reserve_in).chain(retry_in).chain(order_in).min() {
                        Some(due) => {
                            let quiet = self.work.changed.wait_for(&mut state, due);
                            if quiet && rest.is_some() && state.running == 0 {
                                self.work.active.store(false, Ordering::Relaxed);
                                self.fit_cache();
                                drop(state);
                                allocator::give_back();
                                state = self.work.lock();
                            }
                        }
                        None => self.work.changed.wait(&mut state),
                    }
                }
            }
        }
    }

    /// Counts a call that writes files in its caller's thread; a close waits for its end.
    pub fn begin_outside(&self) -> Result<OutsideWriter<'_>> {
        let mut state = self.work.lock();
        self.check_open()?;
        state.outside_writers += 1;
        Ok(OutsideWriter(self))
    }

    /// Writers wait for HL0, and nothing can make it smaller any more, as its caller has just found: the table that was set
    /// aside is why.
    fn stuck_by(&self, state: &WorkState) -> Option<FileId> {
        if state.quarantined.is_empty()
            || state.compacting_threads > 0
            || !state.shortages.may_try(Need::Compaction, now())
        {
            return None;
        }
        let version = self.published.view().version.clone();
        let is_full = version.levels()[0].tables().len() >= self.settings.tuning.hl0_stop_tables;
        state.quarantined.iter().copied().find(|id| is_full && version.find(*id).is_some())
    }

    /// Waits until nothing runs and nothing is due.
    pub fn wait_for_background(&self) -> Result<()> {
        self.check_open()?;
        if self.settings.read_only {
            return Ok(());
        }
        let mut state = self.work.lock();
        let since = state.started;
        state.idle = false;
        state.waiting += 1;
        self.work.changed.notify_all();
        let result = loop {
            if state.idle {
                break Ok(());
            }
            if state.stop {
                break Err(Error::Closed);
            }
            if let Err(error) = self.check_poison().and_then(|()| state.check_space(since)) {
                break Err(error);
            }
            self.work.progress.wait(&mut state);
        };
        state.waiting -= 1;
        result
    }

    /// Someone waits for all that can be done, or nothing had to be done for a while.
    pub fn is_idle(&self, state: &WorkState) -> bool {
        state.quiet && (state.waiting > 0 || now().saturating_sub(state.busy_until) >= IDLE_AFTER)
    }

    /// When values are to be put in order, or tables, if there will be nothing else to do until then.
    fn idle_in(&self, state: &WorkState) -> Option<Duration> {
        let version = &self.published.view().version;
        let wants_idle_compaction = || {
            !version.levels()[0].tables().is_empty()
                || state.stale.when_idle.iter().any(|table| version.find(*table).is_some())
        };
        let is_due = state.quiet
            && !self.is_idle(state)
            && (wants_idle_compaction() || self.reorder_candidates(state).is_some());
        is_due.then(|| (state.busy_until + IDLE_AFTER).saturating_sub(now()))
    }

    /// A job that only puts values in order is to end: something else is to be done, or everything is.
    pub fn must_yield(&self) -> bool {
        let state = self.work.lock();
        state.stop || !state.quiet || state.compacting_threads > 0 || self.is_paused(&state)
    }

    /// Someone wants background work to stand still; a close does not care.
    pub fn is_paused(&self, state: &WorkState) -> bool {
        state.pauses > 0 && self.check_open().is_ok()
    }

    /// Does what waits in the front. The first thread calls this while it compacts.
    pub fn serve_front(&self) {
        let mut state = self.work.lock();
        // On a full disk it is the compaction that makes room.
        while !state.stop && !state.shortages.any() && self.check_poison().is_ok() && !self.is_paused(&state) {
            let Some(job) = self.next_job(&mut state, Duty::Front) else {
                return;
            };
            state = self.run_job(state, job, Worker::First);
        }
    }

    /// Runs a job without the lock; takes it again and notes how the job ended, if this thread has ended it.
    fn run_job<'a>(
        &'a self,
        mut state: MutexGuard<'a, WorkState>,
        job: Job,
        worker: Worker,
    ) -> MutexGuard<'a, WorkState> {
        state.started += 1;
        let number = state.started;
        let compacts = job.is_compaction();
        state.compacting_threads += usize::from(compacts);
        state.running += 1;
        state.idle = false;
        state.quiet &= !job.must_be_done();
        drop(state);
        if job.takes_memory() && !self.work.active.swap(true, Ordering::Relaxed) {
            self.fit_cache();
        }
        let ended = self.run_job_safely(&job, number, worker);
        if job.takes_memory() {
            allocator::give_back();
        }
        // What went wrong is known before anyone can see that the job is over.
        let mut quarantined = Vec::new();
        if let Some((begun, Err(error))) = &ended
            && !error.is_transient()
        {
            quarantined = self.unreadable_input(begun.as_ref().map_or(&job, |begun| &begun.job), error);
            if quarantined.is_empty() {
                // Storage or our own files cannot be trusted; going on could make it worse.
                self.poison(error);
            }
        }
        let mut state = self.work.lock();
        state.quarantined.extend(quarantined);
        state.compacting_threads -= usize::from(compacts);
        state.running -= 1;
        if let Some((begun, result)) = ended {
            match begun {
                None => self.finish_job(&mut state, &job, number, result),
                Some(begun) => {
                    state.in_subtasks.retain(|other| !Arc::ptr_eq(other, &begun));
                    match &begun.answer {
                        Some(answer) => *answer.lock() = Some(result),
                        None => self.finish_job(&mut state, &begun.job, begun.number, result),
                    }
                }
            }
        }
        self.work.changed.notify_all();
        self.work.progress.notify_all();
        state
    }

    fn finish_job(&self, state: &mut MutexGuard<'_, WorkState>, job: &Job, number: u64, result: Result<()>) {
        // What comes of it goes before putting values in order: addresses that are out of date.
        state.quiet &= !job.takes_memory();
        if job.must_be_done() {
            (state.busy_until, state.reorder_blocked) = (now(), false);
        }
        match job {
            Job::Seal(_) => state.sealing = false,
            Job::Flush(_) => state.flushing = 0,
            Job::MergeRuns(_) => state.merging.clear(),
            Job::PrepareLog => state.preparing_log = false,
            Job::CollectGarbage(_) | Job::Reorder(_) => state.collecting_garbage = false,
            Job::SealFront => state.sealing_front = false,
            Job::FindStaleAddresses => state.finding_stale = false,
            Job::DeletePending => state.deleting_pending = false,
            Job::MakeReserve => state.making_reserve = false,
            Job::Compact(choice) => self.release_choice(state, choice),
            Job::Help(_) => unreachable!("what ends is the job, not the help with it"),
        }
        self.fit_cache();
        self.update_pace();
        if matches!(job, Job::Compact(Choice::Compact(compact)) if compact.is_idle_compaction)
            && matches!(result, Err(Error::NoSpace { .. }))
        {
            state.reorder_blocked = true;
            return;
        }
        if matches!(job, Job::MakeReserve) {
            match result {
                Err(error) => state.reserve_shortage.note(Need::Reserve, number, error, now()),
                Ok(()) => state.reserve_shortage.clear(Need::Reserve),
            }
            return;
        }
        let need = match job {
            Job::PrepareLog => Need::Log,
            Job::Compact(_) => Need::Compaction,
            Job::CollectGarbage(_) | Job::Reorder(_) => Need::Collection,
            _ => Need::Flush,
        };
        match result {
            Err(error) if error.is_transient() => {
                match &error {
                    Error::Io { path, .. } => {
                        self.readers.handles.close_idle();
                        self.events.raise(Event::TooManyFiles { path: path.clone() });
                    }
                    Error::NoSpace { path } => self.events.raise(Event::NoSpace { path: path.clone() }),
                    _ => {}
                }
                state.shortages.note(need, number, error, now());
            }
            Ok(())
                if !matches!(
                    job,
                    Job::DeletePending
                        | Job::Seal(_)
                        | Job::SealFront
                        | Job::MergeRuns(_)
                        | Job::FindStaleAddresses
                        | Job::Reorder(_)
                ) =>
            {
                state.shortages.clear(need)
            }
            _ => {}
        }
    }

    /// The table that a compaction could not read, or the files of values that were to be emptied, if that is why the job
    /// failed: nothing was written in vain, nothing is lost that was not before, and writes go on.
    fn unreadable_input(&self, job: &Job, error: &Error) -> Vec<FileId> {
        let Some(path) = unreadable(error) else { return Vec::new() };
        let files = match job {
            Job::Compact(choice) => self.unreadable_table(choice, path).into_iter().collect(),
            // A look-up in a table may have failed as well: either way they are not to be emptied.
            Job::CollectGarbage(victims) | Job::Reorder(victims) => victims.clone(),
            _ => Vec::new(),
        };
        if !files.is_empty() {
            self.events.raise(Event::TableQuarantined { path: path.to_owned(), cause: error.to_string() });
        }
        files
    }
}

/// A call that writes files in its caller's thread.
pub(crate) struct OutsideWriter<'a>(&'a Core);

impl Drop for OutsideWriter<'_> {
    fn drop(&mut self) {
        self.0.work.lock().outside_writers -= 1;
        self.0.work.wake_all();
    }
}
