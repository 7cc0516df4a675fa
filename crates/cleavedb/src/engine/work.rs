//! The state of background work: the running jobs with their claims, requests of callers, shortages of storage, and
//! whether the store is busy, idle, paused or closing ([`Activity`]).
//!
//! One lock protects it, which is never held while a job runs. The scheduler (`jobs/`) uses it to choose the next job,
//! and callers wait here for background work. It knows jobs by their [`Profile`] only, so that
//! [`Core`](crate::engine::core::Core) can own it without a dependency on the kinds of jobs.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::{Error, FileId, Result, Seqno};
use crate::engine::activity::{Activity, ActivityChange};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::shortages::{Need, Shortages};
use crate::engine::space::Space;
use crate::levels::picker::RunningCompaction;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::thread::JoinHandle;
use crate::values::stale::Stale;

/// After this time without mandatory work, idle work begins and the caches borrow memory of jobs.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Whether a job is required.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Required for writes or space.
    Mandatory,
    /// Makes reads faster or the store smaller, and begins only when no mandatory work is due. A full disk does not count as its failure.
    Idle,
}

/// The part of the memory for jobs that a job uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryShare {
    /// None. Such a job also takes little time, and does not create other work.
    Nothing,
    /// A part reserved for this kind of job.
    Own,
    /// The part of a compaction, for each of its threads.
    Compaction,
}

/// The properties of a job that the scheduler uses.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// The kind of job.
    pub name: &'static str,
    /// The inputs and outputs that no other job may use.
    pub claims: Claims,
    /// What it mainly uses, as it was when the profile was made.
    pub binds: Binds,
    pub class: Class,
    pub memory: MemoryShare,
    /// The need that counts as refused if storage refuses the job space or a file descriptor; it sets the delay.
    pub need: Need,
    /// The success of the job shows that storage meets this need again.
    pub meets_need: bool,
}

impl Profile {
    pub fn takes_memory(&self) -> bool {
        self.memory != MemoryShare::Nothing
    }

    /// True if idle work must not run beside the job.
    pub fn is_mandatory(&self) -> bool {
        self.takes_memory() && self.class == Class::Mandatory
    }
}

/// The thread that runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// The thread that serves the front, also at yield points within other jobs.
    First,
    /// Any other of the pool, or a caller.
    Other,
    /// One of those beside the pool, each with duties of its own.
    Beside,
}

/// A running job that other threads may help with.
pub(crate) trait SharedJob: Send + Sync {
    /// True if there is a subtask that no thread has begun.
    fn has_more(&self) -> bool;
    /// Runs one subtask, and ends the job if it was the last one to end.
    fn help(&self, worker: Worker);
}

/// The owner of a running job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A background thread.
    Background,
    /// A caller's thread, for a compaction that the caller requested.
    Caller,
    /// A call that writes files but is not a job: a close waits for it, a pause does not.
    Writer,
}

/// A running job.
pub(crate) struct RunningJob {
    pub number: u64,
    pub profile: Profile,
    pub owner: Owner,
    /// Number of threads that work on it.
    pub threads: usize,
    /// A thread beside the pool runs it.
    pub is_beside: bool,
    /// Set if the job has more than one subtask.
    pub shared: Option<Arc<dyn SharedJob>>,
}

/// The state of background work and its lock.
#[derive(Default)]
pub(crate) struct Work {
    state: Mutex<WorkState>,
    /// Notified when there may be a new job.
    changed: Condvar,
    /// Notified when a job has ended.
    progress: Condvar,
    flushed: AtomicU64,
    /// Jobs that use memory ran within the last second.
    active: AtomicBool,
    compacting: AtomicBool,
    /// Number of callers that work on jobs, or wait for some to end.
    callers: AtomicUsize,
    /// Figures of the garbage in separated values.
    pub space: Space,
    pub threads: Mutex<Vec<JoinHandle>>,
}

/// The running jobs and the requests of callers.
#[derive(Default)]
pub(crate) struct WorkState {
    activity: Activity,
    /// The running jobs, in the order in which they began.
    running: Vec<RunningJob>,
    /// Those that the first thread works on: each was begun at a yield point of the one before.
    of_first: Vec<u64>,
    /// Number of jobs begun so far.
    begun: u64,
    /// When the last mandatory job ended, or the threads were started.
    worked_at: Duration,
    /// Since when the thread for logs has seen neither a job nor a change; see [`IDLE_AFTER`].
    pub quiet_since: Option<Duration>,
    /// Number of callers that hold a pause.
    pauses: usize,
    /// Number of callers that wait until all work is done.
    waiters: usize,
    /// A thread that may run any job has found that no work is left, and no job has begun since.
    is_done: bool,
    /// A caller requested that all versions up to this sequence number be flushed now.
    pub flush_target: Seqno,
    /// The number of files collected when tables were last searched for stale addresses.
    pub stale_found_at: Option<u64>,
    /// The tables to be rewritten because of stale addresses.
    pub stale: Stale,
    /// The needs of jobs that storage refused.
    pub shortages: Shortages,
    /// The shortage of space for the reserve. It is separate because no caller waits for it and it must not delay other
    /// jobs.
    pub reserve_shortage: Shortages,
    /// The thread for logs was woken up for pending deletions and has not looked for a job since.
    pub deletions_are_announced: bool,
    /// Tables and value files that jobs could not read.
    pub quarantined: BTreeSet<FileId>,
}

impl WorkState {
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Applies a change; true if the state is now another one.
    pub fn note(&mut self, change: ActivityChange) -> bool {
        let before = self.activity;
        self.activity = before.after(change);
        self.activity != before
    }

    /// Lets idle work begin if no mandatory job ended within [`IDLE_AFTER`], or a caller waits for all work.
    pub fn note_rest(&mut self, now: Duration) {
        if self.waiters > 0 || now.saturating_sub(self.worked_at) >= IDLE_AFTER {
            self.note(ActivityChange::Rested);
        }
    }

    /// The time until idle work may begin, unless mandatory work begins before.
    pub fn rested_in(&self, now: Duration) -> Option<Duration> {
        (self.activity == Activity::Quiet).then(|| (self.worked_at + IDLE_AFTER).saturating_sub(now))
    }

    /// Starts the time without mandatory work, when the threads start.
    pub fn begin_rest(&mut self, now: Duration) {
        self.worked_at = now;
    }

    /// Forgets the shortages of jobs that are no longer due; called if no job is.
    pub fn expire_shortages(&mut self, now: Duration) {
        let running = &self.running;
        self.shortages.expire(now, |need| running.iter().any(|job| job.profile.need == need));
    }

    /// The running jobs.
    pub fn running(&self) -> &[RunningJob] {
        &self.running
    }

    /// Number of jobs begun so far, which is the number of the last one.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Adds a job that begins; returns its number.
    pub fn begin(&mut self, profile: Profile, owner: Owner) -> u64 {
        self.begun += 1;
        if profile.is_mandatory() {
            self.note(ActivityChange::MandatoryWorkBegins);
        }
        self.is_done &= owner == Owner::Writer;
        self.running.push(RunningJob {
            number: self.begun,
            profile,
            owner,
            threads: 1,
            is_beside: false,
            shared: None,
        });
        self.begun
    }

    /// Notes that one more thread works on a running job.
    pub fn join(&mut self, number: u64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.threads += 1;
        }
    }

    /// Notes that a thread has stopped working on a job, which may have ended meanwhile.
    pub fn leave(&mut self, number: u64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.threads -= 1;
        }
    }

    /// Notes which thread works on a job.
    pub fn enter(&mut self, number: u64, worker: Worker) {
        match worker {
            Worker::First => self.of_first.push(number),
            Worker::Beside => {
                self.running.iter_mut().filter(|job| job.number == number).for_each(|job| job.is_beside = true)
            }
            Worker::Other => {}
        }
    }

    /// Notes that the thread has stopped working on the job that it entered last.
    pub fn exit(&mut self, worker: Worker) {
        if worker == Worker::First {
            self.of_first.pop();
        }
    }

    /// The resources that running jobs of the pool and of callers bind. A job binds nothing while its only thread is the first
    /// one and serves the front; with `yields`, the first thread asks at a yield point.
    pub fn bound(&self, yields: bool) -> Binds {
        let served = self.of_first.len().saturating_sub(usize::from(!yields));
        let suspended = &self.of_first[..served];
        let works = |job: &&RunningJob| {
            let away = suspended.iter().filter(|number| **number == job.number).count();
            job.owner != Owner::Writer && !job.is_beside && job.threads > away
        };
        self.running.iter().filter(works).map(|job| job.profile.binds).collect()
    }

    /// Lets other threads help with a job from now on.
    pub fn share(&mut self, number: u64, shared: Arc<dyn SharedJob>) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.shared = Some(shared);
        }
    }

    /// Removes a job that has ended with `result`, and releases its claims.
    pub fn end(&mut self, number: u64, result: &Result<()>, now: Duration) -> RunningJob {
        let index = self.running.iter().position(|job| job.number == number);
        let ended = self.running.remove(index.expect("a job is listed until it ends"));
        if ended.profile.is_mandatory() {
            self.worked_at = now;
        }
        if ended.profile.class == Class::Idle && matches!(result, Err(Error::NoSpace { .. })) {
            self.note(ActivityChange::NoRoom);
        } else if ended.profile.takes_memory() {
            // Work that follows from it runs before other idle work.
            self.note(ActivityChange::WorkEnds);
        }
        ended
    }

    /// True if a job is running, in any thread.
    pub fn has_jobs(&self) -> bool {
        self.running.iter().any(|job| job.owner != Owner::Writer)
    }

    /// True if a caller's thread runs a compaction or writes files.
    pub fn has_callers(&self) -> bool {
        self.running.iter().any(|job| job.owner != Owner::Background)
    }

    /// Number of threads that compact, with those of callers: each uses its part of the memory for jobs.
    pub fn compacting_threads(&self) -> usize {
        let compactions = self.running.iter().filter(|job| job.profile.memory == MemoryShare::Compaction);
        compactions.map(|job| job.threads).sum()
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.running.iter().flat_map(|job| &job.profile.claims.0)
    }

    /// True if these claims conflict with those of a running job.
    pub fn is_claimed(&self, claims: &Claims) -> bool {
        self.running.iter().any(|job| job.profile.claims.conflict_with(claims))
    }

    /// True if a running job claims this resource.
    pub fn has(&self, sole: Sole) -> bool {
        self.claims().any(|claim| *claim == Claim::Only(sole))
    }

    /// The value files that running jobs collect or move.
    pub fn claimed_value_files(&self) -> BTreeSet<FileId> {
        self.claims().filter_map(|claim| if let Claim::ValueFile(file) = claim { Some(*file) } else { None }).collect()
    }

    /// How many running jobs collect value files.
    pub fn collections(&self) -> u64 {
        let kinds = [Sole::ValueCollection, Sole::SecondCollection, Sole::EmptiedLogs];
        kinds.into_iter().filter(|kind| self.has(*kind)).count() as u64
    }

    /// True if a running job collects value files.
    pub fn collects_values(&self) -> bool {
        self.collections() > 0
    }

    /// The tables that running jobs replace.
    pub fn claimed_tables(&self) -> BTreeSet<FileId> {
        self.claims().filter_map(|claim| if let Claim::Table(table) = claim { Some(*table) } else { None }).collect()
    }

    /// The key ranges that running jobs write below HL0.
    pub fn claimed_ranges(&self) -> Vec<RunningCompaction> {
        let range = |claim: &Claim| if let Claim::LevelRange(range) = claim { Some(range.clone()) } else { None };
        self.claims().filter_map(range).collect()
    }

    /// A running job that `wanted` accepts and that has a subtask that no thread has begun.
    pub fn to_help(&self, wanted: impl Fn(&Profile) -> bool) -> Option<(u64, Arc<dyn SharedJob>)> {
        self.running.iter().filter(|job| wanted(&job.profile)).find_map(|job| {
            let shared = job.shared.as_ref().filter(|shared| shared.has_more())?;
            Some((job.number, shared.clone()))
        })
    }

    /// The error of a job with a number above `since` whose need storage refused.
    pub fn check_space(&self, since: u64) -> Result<()> {
        self.shortages.check(None, since)
    }

    /// Notes that a caller begins to wait until all work is done, which is then determined anew.
    pub fn begin_waiting(&mut self) {
        self.waiters += 1;
        self.is_done = false;
    }

    /// True if the last check found no work left, and no job has begun since.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub fn end_waiting(&mut self) {
        self.waiters -= 1;
    }

    /// Notes that a thread that may run any job has found no work left.
    pub fn note_done(&mut self) {
        self.is_done = true;
    }

    pub fn begin_pause(&mut self) {
        self.pauses += 1;
        self.note(ActivityChange::PauseBegins);
    }

    pub fn end_pause(&mut self) {
        self.pauses -= 1;
        if self.pauses == 0 {
            self.note(ActivityChange::PausesEnd);
        }
    }

    /// True if a caller holds a pause, even if a close overrides it.
    pub fn has_pauses(&self) -> bool {
        self.pauses > 0
    }

    /// True if somebody waits for the running jobs: all background work, a pause, a close, or space.
    pub fn hurries(&self) -> bool {
        let ends = matches!(self.activity, Activity::Paused | Activity::Closing | Activity::Stopped);
        ends || self.waiters > 0 || self.pauses > 0 || self.shortages.any()
    }

    /// True if no job may begin because of a pause.
    pub fn is_paused(&self) -> bool {
        self.activity == Activity::Paused
    }

    /// True if the threads must end.
    pub fn is_stopped(&self) -> bool {
        self.activity == Activity::Stopped
    }
}

impl Work {
    pub fn lock(&self) -> MutexGuard<'_, WorkState> {
        self.state.lock()
    }

    /// Wakes the threads that wait for a new job.
    pub fn wake(&self) {
        // Taking the lock ensures that a thread that found no job is already waiting.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// Wakes all waiting threads and callers.
    pub fn wake_all(&self) {
        drop(self.state.lock());
        self.notify_all();
    }

    /// As [`wake_all`](Work::wake_all), for a caller that holds the lock.
    pub fn notify_all(&self) {
        self.changed.notify_all();
        self.progress.notify_all();
    }

    /// As [`wake`](Work::wake), for a caller that holds the lock.
    pub fn notify_changed(&self) {
        self.changed.notify_all();
    }

    /// Wakes the callers that wait for progress; the caller holds the lock.
    pub fn notify_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits until there may be a new job, at most for `limit`; true if the limit has passed.
    pub fn wait_for_change(&self, state: &mut MutexGuard<'_, WorkState>, limit: Option<Duration>) -> bool {
        match limit {
            Some(limit) => self.changed.wait_for(state, limit),
            None => {
                self.changed.wait(state);
                false
            }
        }
    }

    /// Waits until a job has ended.
    pub fn wait_for_progress(&self, state: &mut MutexGuard<'_, WorkState>) {
        self.progress.wait(state);
    }

    /// Waits until a job has ended, at most for `limit`.
    pub fn wait_for_progress_at_most(&self, state: &mut MutexGuard<'_, WorkState>, limit: Duration) {
        self.progress.wait_for(state, limit);
    }

    /// Begins a close: it overrides pauses and wakes all callers that wait for background work.
    pub fn begin_close(&self) {
        self.lock().note(ActivityChange::CloseBegins);
        self.wake_all();
    }

    /// True if jobs that use memory run, or ran within the last second.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Sets [`is_active`](Work::is_active); true if it has changed.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::Relaxed) != active
    }

    /// True if compactions run, which take most of the memory for jobs.
    pub fn is_compacting(&self) -> bool {
        self.compacting.load(Ordering::Relaxed)
    }

    /// Notes whether they do, after jobs have begun or ended; true if it has changed.
    pub fn note_compacting(&self, state: &WorkState) -> bool {
        let compacting = state.compacting_threads() > 0;
        self.compacting.swap(compacting, Ordering::Relaxed) != compacting
    }

    /// Notes that a caller works on a job of its own, or waits for those of others to end, until this is dropped.
    pub fn begin_call(&self) -> Call<'_> {
        self.callers.fetch_add(1, Ordering::Relaxed);
        Call { work: self }
    }

    /// True if there is such a caller.
    pub fn has_calls(&self) -> bool {
        self.callers.load(Ordering::Relaxed) > 0
    }

    /// Notes that all versions up to `seqno` are in tables.
    pub fn note_flushed(&self, seqno: Seqno) {
        self.flushed.fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// All versions up to this sequence number are in tables.
    pub fn flushed(&self) -> Seqno {
        Seqno(self.flushed.load(Ordering::Acquire))
    }

    /// Adds a call that writes files in its caller's thread, so that a close waits for it.
    pub fn begin_writer(&self, state: &mut WorkState, profile: Profile) -> Writer<'_> {
        Writer { work: self, number: state.begin(profile, Owner::Writer) }
    }
}

/// A call that writes files in its caller's thread; its claims are released on drop.
pub(crate) struct Writer<'a> {
    work: &'a Work,
    number: u64,
}

impl Drop for Writer<'_> {
    fn drop(&mut self) {
        self.work.lock().end(self.number, &Ok(()), Duration::ZERO);
        self.work.wake_all();
    }
}

/// A call that works on jobs in its caller's thread, or waits for some.
pub(crate) struct Call<'a> {
    work: &'a Work,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.work.callers.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The error of a call that needs background work during a pause.
pub(crate) fn paused() -> Error {
    Error::input("background work is paused")
}

#[cfg(test)]
#[path = "work_test.rs"]
mod tests;
