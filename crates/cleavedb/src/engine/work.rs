//! The state of background work: which jobs run and what they claim, what was asked for, what storage refused, and whether
//! the store is busy, idle, paused or closing ([`Activity`]).
//!
//! It lies under one lock, which is never held while a job runs. The scheduler (`jobs/`) decides by it what runs next; those
//! who wait for background work wait here. It knows jobs by their [`Profile`] only, so that [`Core`](crate::engine::core::Core)
//! can own it without knowing any kind of job.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::base::{Error, FileId, Result, Seqno};
use crate::engine::activity::{Activity, Change};
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::shortages::{Need, Shortages};
use crate::engine::space::Space;
use crate::levels::picker::RunningCompaction;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};
use crate::sched::thread::JoinHandle;
use crate::values::stale::Stale;

/// After so long without mandatory work, idle work begins, and the caches borrow from the memory of jobs.
pub(crate) const IDLE_AFTER: Duration = Duration::from_secs(1);

/// Whether work has to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// It keeps the store in shape.
    Mandatory,
    /// It makes reads faster, and may run when no mandatory work is due. A full disk is no failure of it.
    Idle,
}

/// The share of the memory for jobs that a job takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryShare {
    /// None. Such a job takes hardly any time either, and does not change what else is due.
    Nothing,
    /// Its own.
    Own,
    /// That of a compaction, for each thread.
    Compaction,
}

/// What a job is bound by: what it keeps busy while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    Cpu,
    ReadFast,
    WriteFast,
    ReadSlow,
    WriteSlow,
}

impl Bound {
    fn name(self) -> &'static str {
        match self {
            Bound::Cpu => "cpu",
            Bound::ReadFast => "fast reads",
            Bound::WriteFast => "fast writes",
            Bound::ReadSlow => "slow reads",
            Bound::WriteSlow => "slow writes",
        }
    }
}

/// The names of what a job is bound by, as statistics and spans show them.
pub(crate) fn names_of(binds: &[Bound]) -> String {
    binds.iter().map(|bound| bound.name()).collect::<Vec<_>>().join(", ")
}

/// What the scheduler has to know of a job.
#[derive(Debug, Clone)]
pub(crate) struct Profile {
    /// Its kind.
    pub name: &'static str,
    /// The inputs that no other job may touch.
    pub claims: Claims,
    pub binds: &'static [Bound],
    pub class: Class,
    pub memory: MemoryShare,
    /// What is not met if storage refuses it space or a file descriptor, and how long it waits then.
    pub need: Need,
    /// Its success shows that storage grants this need again.
    pub meets_need: bool,
}

impl Profile {
    pub fn takes_memory(&self) -> bool {
        self.memory != MemoryShare::Nothing
    }

    /// It has to be done, and takes time: idle work does not run beside it.
    pub fn is_mandatory(&self) -> bool {
        self.takes_memory() && self.class == Class::Mandatory
    }
}

/// Which thread does a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Worker {
    /// The thread that serves the front, also at the yield points of a job.
    First,
    /// Any other.
    Other,
}

/// A running job that other threads may help with.
pub(crate) trait SharedJob: Send + Sync {
    /// A subtask is left that no thread has begun.
    fn has_more(&self) -> bool;
    /// Does one subtask, and ends the job if it was the last one to end.
    fn help(&self, worker: Worker);
}

/// Who runs a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A thread of the store.
    Background,
    /// A caller's thread: a compaction that waits for its end.
    Caller,
    /// A call that writes files without being a job: pauses do not wait for it, a close does.
    Writer,
}

/// A running job.
pub(crate) struct RunningJob {
    pub number: u64,
    pub profile: Profile,
    pub owner: Owner,
    /// Threads that work on it.
    pub threads: usize,
    /// Set if it has more than one subtask.
    pub shared: Option<Arc<dyn SharedJob>>,
}

/// The state of background work and its lock.
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
    /// What is known of the space of separated values.
    pub space: Space,
    pub threads: Mutex<Vec<JoinHandle>>,
}

/// What is running, and what was asked for.
#[derive(Default)]
pub(crate) struct WorkState {
    activity: Activity,
    /// From their beginning to their end.
    running: Vec<RunningJob>,
    /// Jobs begun so far.
    begun: u64,
    /// When a mandatory job ended last.
    worked_at: Duration,
    /// Callers that hold a pause.
    pauses: usize,
    /// Callers that wait until all work is done.
    waiters: usize,
    /// A thread that may run any job has found that no work is left, and none has begun since.
    is_done: bool,
    /// Everything up to here is to be flushed now.
    pub flush_target: Seqno,
    /// How many files had been emptied when tables were last searched for stale addresses.
    pub stale_found_at: Option<u64>,
    /// The tables that are to be rewritten for these.
    pub stale: Stale,
    /// What jobs did not get of storage.
    pub shortages: Shortages,
    /// That there is no room for the reserve: no caller waits for it, and the order of other work does not change.
    pub reserve_shortage: Shortages,
    /// Tables and value files that jobs could not read.
    pub quarantined: BTreeSet<FileId>,
}

impl WorkState {
    pub fn activity(&self) -> Activity {
        self.activity
    }

    /// Notes a change; true if it led to another state.
    pub fn note(&mut self, change: Change) -> bool {
        let before = self.activity;
        self.activity = before.after(change);
        self.activity != before
    }

    /// Idle work may begin if no mandatory work ended for a while, or a caller waits for all work.
    pub fn note_rest(&mut self, now: Duration) {
        if self.waiters > 0 || now.saturating_sub(self.worked_at) >= IDLE_AFTER {
            self.note(Change::Rested);
        }
    }

    /// When idle work may begin, if no mandatory work comes in between.
    pub fn rested_in(&self, now: Duration) -> Option<Duration> {
        (self.activity == Activity::Quiet).then(|| (self.worked_at + IDLE_AFTER).saturating_sub(now))
    }

    /// The running jobs.
    pub fn running(&self) -> &[RunningJob] {
        &self.running
    }

    /// Jobs begun so far.
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Notes that a job begins; returns its number.
    pub fn begin(&mut self, profile: Profile, owner: Owner) -> u64 {
        self.begun += 1;
        if profile.is_mandatory() {
            self.note(Change::MandatoryWorkBegins);
        }
        self.is_done &= owner == Owner::Writer;
        self.running.push(RunningJob { number: self.begun, profile, owner, threads: 1, shared: None });
        self.begun
    }

    /// Notes that a thread works on a running job, too.
    pub fn join(&mut self, number: u64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.threads += 1;
        }
    }

    /// Notes that a thread has nothing left to do of a job that may have ended meanwhile.
    pub fn leave(&mut self, number: u64) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.threads -= 1;
        }
    }

    /// Other threads may help with a job from now on.
    pub fn share(&mut self, number: u64, shared: Arc<dyn SharedJob>) {
        if let Some(job) = self.running.iter_mut().find(|job| job.number == number) {
            job.shared = Some(shared);
        }
    }

    /// Notes that a job has ended like this: its claims are free.
    pub fn end(&mut self, number: u64, result: &Result<()>, now: Duration) -> RunningJob {
        let index = self.running.iter().position(|job| job.number == number);
        let ended = self.running.remove(index.expect("a job is listed until it ends"));
        if ended.profile.is_mandatory() {
            self.worked_at = now;
        }
        if ended.profile.class == Class::Idle && matches!(result, Err(Error::NoSpace { .. })) {
            self.note(Change::NoRoom);
        } else if ended.profile.takes_memory() {
            // What comes of it goes before other idle work.
            self.note(Change::WorkEnds);
        }
        ended
    }

    /// A job is running, in whichever thread.
    pub fn has_jobs(&self) -> bool {
        self.running.iter().any(|job| job.owner != Owner::Writer)
    }

    /// A caller's thread runs a compaction or writes files.
    pub fn has_callers(&self) -> bool {
        self.running.iter().any(|job| job.owner != Owner::Background)
    }

    /// Threads that compact, callers' included: each has its share of the memory for jobs.
    pub fn compacting_threads(&self) -> usize {
        let compactions = self.running.iter().filter(|job| job.profile.memory == MemoryShare::Compaction);
        compactions.map(|job| job.threads).sum()
    }

    fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.running.iter().flat_map(|job| &job.profile.claims.0)
    }

    /// A running job is in the way of one with these claims.
    pub fn is_claimed(&self, claims: &Claims) -> bool {
        self.running.iter().any(|job| job.profile.claims.conflict_with(claims))
    }

    /// A running job has it to itself.
    pub fn has(&self, sole: Sole) -> bool {
        self.claims().any(|claim| *claim == Claim::Only(sole))
    }

    /// The tables that running jobs replace.
    pub fn claimed_tables(&self) -> BTreeSet<FileId> {
        self.claims().filter_map(|claim| if let Claim::Table(table) = claim { Some(*table) } else { None }).collect()
    }

    /// What running jobs write below HL0.
    pub fn claimed_ranges(&self) -> Vec<RunningCompaction> {
        let range = |claim: &Claim| if let Claim::LevelRange(range) = claim { Some(range.clone()) } else { None };
        self.claims().filter_map(range).collect()
    }

    /// A running job that is wanted, and of which a subtask has not been begun.
    pub fn to_help(&self, wanted: impl Fn(&Profile) -> bool) -> Option<(u64, Arc<dyn SharedJob>)> {
        self.running.iter().filter(|job| wanted(&job.profile)).find_map(|job| {
            let shared = job.shared.as_ref().filter(|shared| shared.has_more())?;
            Some((job.number, shared.clone()))
        })
    }

    /// An error if a job that was begun after number `since` did not get what it needs of storage.
    pub fn check_space(&self, since: u64) -> Result<()> {
        self.shortages.check(None, since)
    }

    /// A caller begins to wait until all work is done; that is found out anew.
    pub fn begin_waiting(&mut self) {
        self.waiters += 1;
        self.is_done = false;
    }

    /// All work was done at the last look, and no job has begun since.
    pub fn is_done(&self) -> bool {
        self.is_done
    }

    pub fn end_waiting(&mut self) {
        self.waiters -= 1;
    }

    /// A thread that may run any job has found that no work is left.
    pub fn note_done(&mut self) {
        self.is_done = true;
    }

    pub fn begin_pause(&mut self) {
        self.pauses += 1;
        self.note(Change::PauseBegins);
    }

    pub fn end_pause(&mut self) {
        self.pauses -= 1;
        if self.pauses == 0 {
            self.note(Change::PausesEnd);
        }
    }

    /// A caller holds a pause, whatever a close makes of it.
    pub fn has_pauses(&self) -> bool {
        self.pauses > 0
    }

    /// Jobs stand still.
    pub fn is_paused(&self) -> bool {
        self.activity == Activity::Paused
    }

    /// The threads are to end.
    pub fn is_stopped(&self) -> bool {
        self.activity == Activity::Stopped
    }
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
        self.notify_all();
    }

    /// As [`wake_all`](Work::wake_all), of a caller that holds the lock.
    pub fn notify_all(&self) {
        self.changed.notify_all();
        self.progress.notify_all();
    }

    /// There may be a new job; its caller holds the lock.
    pub fn notify_changed(&self) {
        self.changed.notify_all();
    }

    /// Wakes those who wait for progress; its caller holds the lock.
    pub fn notify_progress(&self) {
        self.progress.notify_all();
    }

    /// Waits until there may be a new job, at most for `limit`; true if that has passed.
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

    /// A close begins: no pause holds any more, and waits for background work end.
    pub fn begin_close(&self) {
        self.lock().note(Change::CloseBegins);
        self.wake_all();
    }

    /// Jobs that take memory run, or did so a moment ago.
    pub fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Notes that jobs take memory, or no longer do; true if that is news.
    pub fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::Relaxed) != active
    }

    /// Everything up to `seqno` is in tables.
    pub fn note_flushed(&self, seqno: Seqno) {
        self.flushed.fetch_max(seqno.0, Ordering::AcqRel);
    }

    /// Everything up to here is in tables.
    pub fn flushed(&self) -> Seqno {
        Seqno(self.flushed.load(Ordering::Acquire))
    }

    /// Notes a call that writes files in its caller's thread, for a close to wait for.
    pub fn begin_writer(&self, state: &mut WorkState, profile: Profile) -> Writer<'_> {
        Writer { work: self, number: state.begin(profile, Owner::Writer) }
    }
}

/// A call that writes files in its caller's thread; its claims hold until this is dropped.
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

/// Why a call that needs background work is refused during a pause.
pub(crate) fn paused() -> Error {
    Error::input("background work is paused")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(class: Class, claims: Claims) -> Profile {
        Profile {
            name: "a job of a test",
            claims,
            binds: &[Bound::Cpu],
            class,
            memory: MemoryShare::Compaction,
            need: Need::Compaction,
            meets_need: true,
        }
    }

    fn table(id: u64) -> Claims {
        Claims(vec![Claim::Table(FileId(id))])
    }

    #[test]
    fn a_job_holds_its_claims_until_it_ends() {
        let mut state = WorkState::default();
        let first = state.begin(profile(Class::Mandatory, table(1)), Owner::Background);
        let second = state.begin(profile(Class::Mandatory, table(2)), Owner::Caller);
        assert!(state.is_claimed(&table(1)) && state.is_claimed(&table(2)) && !state.is_claimed(&table(3)));
        assert_eq!(state.claimed_tables(), BTreeSet::from([FileId(1), FileId(2)]));
        state.join(first);
        assert_eq!(state.compacting_threads(), 3);
        state.leave(first);
        state.end(first, &Ok(()), Duration::ZERO);
        assert!(!state.is_claimed(&table(1)) && state.is_claimed(&table(2)) && state.has_callers());
        state.end(second, &Ok(()), Duration::ZERO);
        assert!(!state.has_jobs() && !state.has_callers());
        assert_eq!((state.compacting_threads(), state.begun()), (0, 2));
    }

    #[test]
    fn idle_work_waits_a_second_after_mandatory_work_unless_a_caller_waits_for_it() {
        let mut state = WorkState::default();
        let job = state.begin(profile(Class::Mandatory, table(1)), Owner::Background);
        state.end(job, &Ok(()), Duration::from_secs(7));
        assert!(state.note(Change::NothingDue));
        state.note_rest(Duration::from_millis(7999));
        assert_eq!(state.activity(), Activity::Quiet);
        assert_eq!(state.rested_in(Duration::from_millis(7999)), Some(Duration::from_millis(1)));
        state.begin_waiting();
        state.note_rest(Duration::from_millis(7999));
        assert_eq!(state.activity(), Activity::Idle);
        // A job for idle time ends no idleness, a mandatory one does.
        state.begin(profile(Class::Idle, table(2)), Owner::Background);
        assert_eq!(state.activity(), Activity::Idle);
        state.begin(profile(Class::Mandatory, table(3)), Owner::Background);
        assert_eq!(state.activity(), Activity::Busy);
        state.note_done();
        assert!(state.is_done());
        state.begin(profile(Class::Mandatory, table(4)), Owner::Background);
        assert!(!state.is_done(), "a job has begun");
        state.end_waiting();
        state.note(Change::NothingDue);
        state.note_rest(Duration::from_secs(8));
        assert_eq!(state.activity(), Activity::Idle);
    }
}
