//! Running a job, and handling its end.

use std::path::Path;
use std::sync::Arc;

use crate::base::panics::guard_panic;
use crate::base::{Error, FileId, Result, Tier};
use crate::engine::binds::Binds;
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::inspect::telemetry;
use crate::engine::job_usage::measure;
use crate::engine::jobs::job::{Job, Offer, Plan, unreadable};
use crate::engine::jobs::subtasks::{Done, Subtasks};
use crate::engine::shortages::{Need, TIERS};
use crate::engine::work::{Class, Owner, Profile, SharedJob, WorkState, Worker};
use crate::sched::clock::now;
use crate::sched::sync::{Mutex, MutexGuard};

/// A running job with subtasks.
struct BegunJob {
    core: Arc<Core>,
    job: Arc<dyn Job>,
    number: u64,
    subtasks: Box<dyn Subtasks>,
    /// Where a caller waits for the result; that caller then records the end of the job.
    answer: Option<Mutex<Option<Result<()>>>>,
}

impl BegunJob {
    /// Runs subtasks until none is left to begin; returns the result of the job if this thread ran the last one to end.
    fn work(&self, worker: Worker) -> Option<Result<()>> {
        loop {
            match self.subtasks.do_one(&self.core, worker) {
                Done::Nothing => return None,
                Done::Subtask => {}
                Done::Job(result) => return Some(result),
            }
        }
    }
}

impl SharedJob for BegunJob {
    fn has_more(&self) -> bool {
        self.subtasks.has_more()
    }

    fn help(&self, worker: Worker) {
        let done = self.core.measured(&self.job.profile(&self.core), || self.subtasks.do_one(&self.core, worker));
        if let Done::Job(result) = done {
            match &self.answer {
                None => self.core.end_job(&*self.job, self.number, result),
                Some(answer) => {
                    *answer.lock() = Some(result);
                    self.core.work.wake_all();
                }
            }
        }
        self.core.release_memory();
    }
}

impl Core {
    /// Runs a job, or helps with one, with the lock released meanwhile.
    pub fn run_offer<'a>(
        self: &'a Arc<Core>,
        mut state: MutexGuard<'a, WorkState>,
        offer: Offer,
        worker: Worker,
    ) -> MutexGuard<'a, WorkState> {
        let number = match offer {
            Offer::Begin(job) => {
                let number = state.begin(job.profile(self), Owner::Background);
                state.enter(number, worker);
                let changed = self.work.note_compacting(&state);
                drop(state);
                if changed {
                    self.fit_cache();
                }
                self.run_begun(&job, number, worker);
                number
            }
            Offer::Help(number, shared) => {
                state.join(number);
                state.enter(number, worker);
                drop(state);
                shared.help(worker);
                number
            }
        };
        let mut state = self.work.lock();
        // Other threads may still be working on it.
        state.leave(number);
        state.exit(worker);
        self.work.notify_all();
        state
    }

    fn run_begun(self: &Arc<Core>, job: &Arc<dyn Job>, number: u64, worker: Worker) {
        let profile = job.profile(self);
        if profile.takes_memory() && self.work.set_active(true) {
            self.fit_cache();
        }
        let ended = self.measured(&profile, || self.carry_out(job, number, worker));
        if let Some(result) = ended {
            self.end_job(&**job, number, result);
        }
        // Also after short ones while a long one runs, which may have freed much.
        if profile.takes_memory() || self.work.is_active() {
            self.release_memory();
        }
    }

    /// Runs a piece of a job within its span, and adds what it used to the totals of its kind.
    fn measured<T>(&self, profile: &Profile, run: impl FnOnce() -> T) -> T {
        let (result, usage) = measure(|| telemetry::in_span(profile, run));
        self.counters.jobs.add(profile.name, usage);
        result
    }

    /// Runs a job as planned. A panic is a broken invariant, after which writes are poisoned. Returns the result of the
    /// job, if this thread ended it.
    fn carry_out(self: &Arc<Core>, job: &Arc<dyn Job>, number: u64, worker: Worker) -> Option<Result<()>> {
        const WHAT: &str = "a background job";
        match guard_panic("the plan of a background job", || job.plan(self)) {
            Err(error) => Some(Err(error)),
            Ok(Plan::Whole(work)) => Some(guard_panic(WHAT, || self.conclude(work(self)?))),
            Ok(Plan::WithReserve(work)) => Some(guard_panic(WHAT, || self.reserve.with(|| self.conclude(work(self)?)))),
            Ok(Plan::Subtasks(subtasks)) => self.share(job, number, subtasks, None).work(worker),
        }
    }

    /// Announces a job with subtasks to other threads, if there are subtasks for them.
    fn share(
        self: &Arc<Core>,
        job: &Arc<dyn Job>,
        number: u64,
        subtasks: Box<dyn Subtasks>,
        answer: Option<Mutex<Option<Result<()>>>>,
    ) -> Arc<BegunJob> {
        let begun = Arc::new(BegunJob { core: self.clone(), job: job.clone(), number, subtasks, answer });
        if begun.subtasks.count() > 1 {
            self.work.lock().share(number, begun.clone());
            self.work.wake();
        }
        begun
    }

    /// Runs a job in the caller's thread, with the help of others, and waits for its end, which the caller records.
    pub fn run_for_caller(self: &Arc<Core>, job: Arc<dyn Job>, number: u64) -> Result<()> {
        let profile = job.profile(self);
        let (result, usage) = measure(|| self.carry_out_for_caller(job, number));
        self.counters.jobs.add(profile.name, usage);
        self.counters.jobs.count(profile.name);
        result
    }

    fn carry_out_for_caller(self: &Arc<Core>, job: Arc<dyn Job>, number: u64) -> Result<()> {
        let begun = match guard_panic("the plan of a background job", || job.plan(self))? {
            Plan::Subtasks(subtasks) => self.share(&job, number, subtasks, Some(Mutex::default())),
            Plan::Whole(work) | Plan::WithReserve(work) => {
                return guard_panic("a background job", || self.conclude(work(self)?));
            }
        };
        if let Some(result) = begun.work(Worker::Other) {
            return result;
        }
        let answer = begun.answer.as_ref().expect("a job for a caller has a place for the answer");
        let mut state = self.work.lock();
        state.leave(number);
        loop {
            if let Some(result) = answer.lock().take() {
                return result;
            }
            self.work.wait_for_progress(&mut state);
        }
    }

    /// Records the end of a job and acts on its result.
    fn end_job(&self, job: &dyn Job, number: u64, result: Result<()>) {
        let result = result.map_err(|error| self.on_tier(error));
        // The failure is recorded before the end of the job becomes visible.
        let quarantined = match &result {
            Err(error) if !error.is_transient() => self.quarantine_or_poison(job, error),
            _ => Vec::new(),
        };
        self.counters.jobs.count(job.profile(self).name);
        // Asks the system, which may take long: not under the lock.
        self.tune();
        let mut state = self.work.lock();
        state.quarantined.extend(quarantined);
        let ended = state.end(number, &result, now());
        self.work.note_compacting(&state);
        self.fit_cache();
        self.update_pace();
        self.note_shortage(&mut state, &ended.profile, number, result);
        self.work.notify_all();
    }

    /// The inputs that a job could not read: they are quarantined, nothing further is lost, and writes continue. After
    /// any other failure storage or the database's files cannot be trusted, and continuing could increase the damage.
    fn quarantine_or_poison(&self, job: &dyn Job, error: &Error) -> Vec<FileId> {
        let inputs_at = |path: &Path| (job.unreadable_inputs(self, path), path.to_owned());
        match unreadable(error).map(inputs_at).filter(|(files, _)| !files.is_empty()) {
            Some((files, path)) => {
                self.events.raise(Event::TableQuarantined { path, cause: error.to_string() });
                files
            }
            None => {
                self.poison(error);
                Vec::new()
            }
        }
    }

    /// Records whether storage met the needs of a job.
    fn note_shortage(&self, state: &mut WorkState, profile: &Profile, number: u64, result: Result<()>) {
        let is_reserve = profile.need == Need::Reserve;
        match result {
            Ok(()) if profile.meets_need => self.clear_shortages(state, profile),
            // Optional work: it is not retried until something changes.
            Err(Error::NoSpace { .. }) if profile.class == Class::Idle => {}
            Err(error) if is_reserve => state.reserve_shortage.note(Need::Reserve, Tier::Slow, number, error, now()),
            Err(error) if error.is_transient() => {
                match &error {
                    Error::Io { path, .. } if error.is_too_many_files() => {
                        self.readers.handles.close_idle();
                        self.events.raise(Event::TooManyFiles { path: path.clone() });
                    }
                    Error::NoSpace { path, .. } => self.events.raise(Event::NoSpace { path: path.clone() }),
                    _ => {}
                }
                // Descriptors are missing everywhere.
                let is_at = |tier: &Tier| match &error {
                    Error::NoSpace { path, .. } | Error::Io { path, .. } if !error.is_too_many_files() => {
                        self.dirs.tier_of(path) == *tier
                    }
                    _ => true,
                };
                let is_there = |tier: &Tier| *tier == Tier::Fast || self.dirs.others().next().is_some();
                for tier in TIERS.into_iter().filter(is_at).filter(is_there) {
                    state.shortages.note(profile.need, tier, number, error.clone(), now());
                }
            }
            _ => {}
        }
    }

    /// Notes that storage met the need of a job. A compaction that only drops or moves tables shows nothing of the slow tier.
    pub fn clear_shortages(&self, state: &mut WorkState, profile: &Profile) {
        let shortages = if profile.need == Need::Reserve { &mut state.reserve_shortage } else { &mut state.shortages };
        let is_edit_alone = profile.need == Need::Compaction && !profile.binds.contains(Binds::CPU);
        for tier in TIERS.into_iter().filter(|tier| *tier == Tier::Fast || !is_edit_alone) {
            shortages.clear(profile.need, tier);
        }
    }
}
