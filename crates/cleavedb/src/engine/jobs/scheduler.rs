//! The threads of background work: each runs jobs of its duty one after the other, and sleeps when none is due.
//!
//! All decisions are made under the work lock, which is never held while a job runs. In addition to the threads that
//! the options ask for, one thread serves the logs, two the value files, and one moves files if there are several directories. The first thread serves the front (seal,
//! flush, merge of runs): it leaves the choice of compactions to the others if there are any, helps with their subtasks
//! when the front is idle, and serves the front at their yield points.

use std::sync::Arc;
use std::time::Duration;

use crate::base::{Error, FileId, Result};
use crate::bypass::detector::SAMPLE_EVERY;
use crate::engine::activity::{Activity, ActivityChange};
use crate::engine::claims::Sole;
use crate::engine::core::Core;
use crate::engine::jobs::collect_garbage::{collection_due, victims};
use crate::engine::jobs::collect_logs::collection_is_due;
use crate::engine::jobs::empty_logs::logs_to_empty;
use crate::engine::jobs::job::Duty;
use crate::engine::jobs::move_files::moves_due;
use crate::engine::jobs::reorder::reorder_candidates;
use crate::engine::jobs::save_indexes::saving_is_due;
use crate::engine::shortages::Need;
use crate::engine::tuning::settings::Bypass;
use crate::engine::work::{IDLE_AFTER, WorkState, Worker};
use crate::sched::clock::now;
use crate::sched::sync::MutexGuard;
use crate::sched::thread::try_spawn;

impl Core {
    /// Starts the threads.
    pub fn start_background(self: &Arc<Core>) -> Result<()> {
        self.work.lock().begin_rest(now());
        let count = self.settings.background_threads;
        let mut threads = self.work.threads.lock();
        for index in 0..count {
            let core = self.clone();
            let worker = if index == 0 { Worker::First } else { Worker::Other };
            let duty = if index == 0 && count > 1 { Duty::FrontAndSubtasks } else { Duty::All };
            threads.push(try_spawn(&format!("cleave-work-{index}"), move || core.run_background(worker, duty))?);
        }
        let core = self.clone();
        threads.push(try_spawn("cleave-values-0", move || core.run_background(Worker::Beside, Duty::Values))?);
        let core = self.clone();
        threads.push(try_spawn("cleave-values-1", move || core.run_background(Worker::Beside, Duty::MoreValues))?);
        if self.dirs.others().next().is_some() {
            let core = self.clone();
            threads.push(try_spawn("cleave-moves", move || core.run_background(Worker::Beside, Duty::Moves))?);
        }
        let core = self.clone();
        threads.push(try_spawn("cleave-logs", move || core.run_background(Worker::Beside, Duty::Logs))?);
        Ok(())
    }

    /// Stops the threads after their current jobs.
    pub fn stop_background(&self) {
        self.work.lock().note(ActivityChange::Stop);
        self.work.wake_all();
        // Compactions, ingests and checkpoints requested by callers run in the callers' threads.
        let mut state = self.work.lock();
        while state.has_callers() {
            self.work.wait_for_progress(&mut state);
        }
        drop(state);
        let threads = std::mem::take(&mut *self.work.threads.lock());
        // A metrics recorder may close the database from the thread that calls it, which cannot join itself.
        for thread in threads.into_iter().filter(|thread| !thread.is_current()) {
            // Jobs catch their own panics, so the result carries no information.
            let _ = thread.join();
        }
        self.readers.ahead_threads.stop();
    }

    fn run_background(self: &Arc<Core>, worker: Worker, duty: Duty) {
        let has_timed_work = duty == Duty::Logs
            && (self.settings.tuning.stats_interval.is_some() || self.settings.bypass != Bypass::Off);
        let mut state = self.work.lock();
        while !state.is_stopped() {
            let mut next_timed = None;
            if has_timed_work {
                drop(state);
                next_timed = self.do_timed_work();
                state = self.work.lock();
            }
            let may_work = self.check_poison().is_ok() && state.activity().may_begin_jobs();
            if may_work && duty == Duty::Logs {
                state.deletions_are_announced = false;
                self.announce_order(&state);
            }
            let offer = if may_work { self.next_job(&mut state, duty) } else { None };
            state = match offer {
                Some(offer) => {
                    state.quiet_since = None;
                    self.run_offer(state, offer, worker)
                }
                None if state.is_stopped() => break,
                None => self.rest(state, duty, may_work, next_timed),
            };
        }
    }

    /// What the thread for logs does from time to time: statistics, tuning, samples for the detector of the bypass. Returns the
    /// time until something of it is due.
    fn do_timed_work(&self) -> Option<Duration> {
        let publish_in = self.publish_stats();
        let is_tuned = publish_in.is_some() && self.tune();
        let did_redirect = self.bypass.redirects();
        let sample_in = (self.settings.bypass != Bypass::Off).then(|| {
            self.review_pace();
            SAMPLE_EVERY
        });
        // The end of a redirect is the beginning of an eager rollback.
        if is_tuned || did_redirect && !self.bypass.redirects() {
            self.work.notify_changed();
        }
        publish_in.into_iter().chain(sample_in).min()
    }

    /// Called by a thread that found no job: records this and waits. A thread that may run any job has then seen
    /// everything that is due.
    fn rest<'a>(
        &'a self,
        mut state: MutexGuard<'a, WorkState>,
        duty: Duty,
        may_work: bool,
        next_timed: Option<Duration>,
    ) -> MutexGuard<'a, WorkState> {
        let has_seen_all = may_work && duty == Duty::All;
        if has_seen_all && let Some(table) = self.stuck_by(&state) {
            drop(state);
            let version = self.published.view().version.clone();
            let path = version.find(table).map(|(_, table)| table.path().display().to_string());
            let path = path.unwrap_or_else(|| format!("table {}", table.0));
            let cause = format!("HL0 is full, and its compaction needs {path}, which cannot be read");
            self.poison(&Error::Poisoned { cause });
            return self.work.lock();
        }
        let retry_in = if may_work { self.pending_deletions.retry_in(now()) } else { None };
        if state.shortages.any() {
            let now = now();
            if has_seen_all {
                state.expire_shortages(now);
            }
            let next_try = Some(state.shortages.next_try(now));
            let due = match duty {
                Duty::Logs => [next_try, next_timed, retry_in].into_iter().flatten().min(),
                _ => {
                    self.announce_deletions(&mut state);
                    next_try
                }
            };
            self.work.wait_for_change(&mut state, due);
            return state;
        }
        if has_seen_all && self.note_nothing_due(&mut state) {
            return state;
        }
        match duty {
            Duty::Logs => self.rest_of_logs(state, [next_timed, retry_in]),
            _ => {
                self.announce_deletions(&mut state);
                let may_come_later = may_work && matches!(duty, Duty::Values | Duty::All);
                let idle_in = may_come_later.then(|| self.idle_in(&state)).flatten();
                let rest_in = may_come_later.then(|| self.gc_rest_review_in()).flatten();
                let review_in = rest_in.filter(|_| collection_due(self, &state).is_some());
                self.work.wait_for_change(&mut state, idle_in.into_iter().chain(review_in).min());
                state
            }
        }
    }

    /// The end of a job releases its views, which may make files obsolete. The thread for logs is woken up once, and looks
    /// for them when it may work and has no other job: each wake-up is one of all threads.
    fn announce_deletions(&self, state: &mut WorkState) {
        let is_new = !state.deletions_are_announced && !state.has(Sole::PendingDeletions);
        if is_new && self.pending_deletions.has_work(now()) {
            state.deletions_are_announced = true;
            self.work.notify_changed();
        }
    }

    /// The thread for logs wakes up in time for timed work, failed deletions and the reserve; and, once no job has run
    /// for a while, to lend the memory of jobs to the caches.
    fn rest_of_logs<'a>(
        &'a self,
        mut state: MutexGuard<'a, WorkState>,
        wake_in: [Option<Duration>; 2],
    ) -> MutexGuard<'a, WorkState> {
        let quiet_since = *state.quiet_since.get_or_insert_with(now);
        let lend_in = self.work.is_active().then(|| (quiet_since + IDLE_AFTER).saturating_sub(now()));
        let shortage = &state.reserve_shortage;
        let reserve_in = shortage.any().then(|| shortage.next_try(now()));
        let due = wake_in.into_iter().chain([lend_in, reserve_in]).flatten().min();
        let has_changed = !self.work.wait_for_change(&mut state, due);
        if has_changed || state.has_jobs() {
            state.quiet_since = None;
        } else if lend_in.is_some_and(|_| now() >= quiet_since + IDLE_AFTER) {
            self.work.set_active(false);
            self.fit_cache();
            drop(state);
            self.release_memory();
            state = self.work.lock();
        }
        state
    }

    /// Records that a thread that may run any job found none. Returns true if it must look again at once, for work that
    /// was waiting for this.
    fn note_nothing_due(&self, state: &mut WorkState) -> bool {
        if state.has_jobs() {
            return false;
        }
        let collects = victims(self, state, false).is_some();
        if collects && self.gc_rests_for(state).is_zero() || logs_to_empty(self, state).is_some() {
            // Their threads may have looked before hidden garbage was estimated anew, or before a log took its space.
            self.work.notify_changed();
            return false;
        }
        let now = now();
        if collection_is_due(self, state, now) || saving_is_due(self, state, now) {
            // Their thread may have looked just before a snapshot was released.
            self.work.notify_changed();
            return false;
        }
        if moves_due(self, state).is_some() {
            // Their thread may have looked just before the last bytes of a log were written.
            self.work.notify_changed();
            return false;
        }
        if collects {
            // Value GC rests. The thread looks again when that has ended; it would wake up others that look here, too.
            return false;
        }
        if state.note(ActivityChange::NothingDue) {
            self.work.notify_changed();
            // The reason to slow writers down may have ended since the last job checked.
            self.update_pace();
            return true;
        }
        let has_idle_work = match state.activity() {
            Activity::Idle => victims(self, state, true).is_some() || reorder_candidates(self, state).is_some(),
            Activity::Full => false,
            _ => return false,
        };
        if self.offer(state, Duty::Logs).is_some() {
            // The thread for logs may not have noticed it yet.
            self.work.notify_changed();
        } else if !has_idle_work {
            state.note_done();
            self.work.notify_progress();
        }
        false
    }

    /// Called when writers wait for HL0 and no job can shrink it, because of a quarantined table.
    fn stuck_by(&self, state: &WorkState) -> Option<FileId> {
        let may_shrink = state.compacting_threads() > 0 || !state.shortages.may_try(Need::Compaction, now());
        if state.quarantined.is_empty() || may_shrink {
            return None;
        }
        let version = self.published.view().version.clone();
        let is_full = version.levels()[0].tables().len() >= self.settings.tuning.hl0_stop_tables;
        state.quarantined.iter().copied().find(|id| is_full && version.find(*id).is_some())
    }

    /// When idle work may begin, if there is any and no mandatory work comes first.
    fn idle_in(&self, state: &WorkState) -> Option<Duration> {
        let rested_in = state.rested_in(now())?;
        let version = &self.published.view().version;
        let wants_idle_compaction = || {
            !version.levels()[0].tables().is_empty()
                || state.stale.when_idle.iter().any(|table| version.find(*table).is_some())
        };
        let wants_upkeep = || self.wants_idle_upkeep(&self.published.view(), &state.quarantined);
        let wants_values = || victims(self, state, true).is_some() || reorder_candidates(self, state).is_some();
        let wants_rollback = || self.device_holds_logs();
        (wants_idle_compaction() || wants_values() || wants_upkeep() || wants_rollback()).then_some(rested_in)
    }

    /// Runs the due jobs of the front. The first thread calls this at the yield points of a compaction.
    pub fn serve_front(self: &Arc<Core>) {
        let mut state = self.work.lock();
        // On a full tier, the compaction frees the space.
        let flush_bytes = self.scheduler.setting().flush_bytes;
        let is_short = |state: &WorkState| state.shortages.any_on(self.tier_of_hl0(flush_bytes));
        while state.activity().may_begin_jobs() && !is_short(&state) && self.check_poison().is_ok() {
            let Some(offer) = self.next_job(&mut state, Duty::Front) else {
                return;
            };
            state = self.run_offer(state, offer, Worker::First);
        }
    }
}
