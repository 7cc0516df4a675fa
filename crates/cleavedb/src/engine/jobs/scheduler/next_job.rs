//! Which job is next: for each duty the first that is due and that nobody does. Asked under the work lock, so each choice is
//! marked as running in the same step. What is due is decided by policies: `front/merge_policy.rs`, `levels/picker.rs`,
//! `values/placement/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::FileId;
use crate::engine::core::Core;
use crate::engine::jobs::job::Job;
use crate::engine::jobs::retry::Need;
use crate::engine::jobs::scheduler::{Duty, WorkState};
use crate::engine::view::View;
use crate::engine::write::pacing::unflushed_log_bytes;
use crate::front::merge_policy;
use crate::front::run::Run;
use crate::levels::picker::Choice;
use crate::sched::clock::now;
use crate::values::placement::to_reorder;

impl Core {
    /// The next job, marked as running.
    pub(crate) fn next_job(&self, state: &mut WorkState, duty: Duty) -> Option<Job> {
        if duty == Duty::Logs {
            return self.next_of_logs(state);
        }
        if duty == Duty::Values {
            return self.next_collection(state);
        }
        let (now, full) = (now(), state.shortages.any());
        // Writers keep the front busy all the time; while nothing compacts, HL0 would fill up behind it. On a full disk
        // the front comes first: what it needs is less, and writers stop without it.
        if duty == Duty::All
            && !full
            && state.compacting_threads == 0
            && let Some(job) = self.next_compaction(state, duty)
        {
            return Some(job);
        }
        let view = self.published.view();
        if let Some(begun) = state.to_help(|job| !matches!(job, Job::Compact(_))) {
            return Some(Job::Help(begun));
        }
        if let Some(table) = view.sealed.last().filter(|_| !state.sealing) {
            state.sealing = true;
            return Some(Job::Seal(table.clone()));
        }
        if state.shortages.may_try(Need::Flush, now)
            && let Some(runs) = self.runs_to_flush(state, &view)
        {
            state.flushing = runs.len();
            return Some(Job::Flush(runs));
        }
        if let Some(runs) = self.runs_to_merge(state, &view) {
            state.merging = runs.clone();
            return Some(Job::MergeRuns(runs));
        }
        let compaction = self.next_compaction(state, duty);
        let compaction = compaction.or_else(|| self.flush_for_space(state, duty, &view));
        let compaction = compaction.or_else(|| self.next_look(state, duty, &view));
        // On a full disk what gives space back comes first, and a log is made by a thread that finds nothing else.
        let tries_log = full && state.shortages.may_try(Need::Log, now);
        compaction.or_else(|| (tries_log && self.wants_log(state)).then_some(Job::PrepareLog))
    }

    fn next_of_logs(&self, state: &mut WorkState) -> Option<Job> {
        // Files can wait (each is a job of its own); a writer without a next log cannot.
        if !state.shortages.any() && self.wants_log(state) {
            return Some(Job::PrepareLog);
        }
        let empties = !state.deleting_pending && self.pending_deletions.has_work(now());
        state.deleting_pending |= empties;
        if empties {
            return Some(Job::DeletePending);
        }
        let makes =
            !state.making_reserve && self.reserve.is_wanted() && state.reserve_shortage.may_try(Need::Reserve, now());
        state.making_reserve |= makes;
        makes.then_some(Job::MakeReserve)
    }

    /// Help with a compaction, or a compaction of its own.
    fn next_compaction(&self, state: &mut WorkState, duty: Duty) -> Option<Job> {
        if duty == Duty::Front || state.compacting_threads >= self.settings.tuning.compactions_max {
            return None;
        }
        if let Some(begun) = state.to_help(|job| matches!(job, Job::Compact(_))) {
            return Some(Job::Help(begun));
        }
        if duty == Duty::FrontAndSubtasks || !state.shortages.may_try(Need::Compaction, now()) {
            return None;
        }
        self.choose_compaction(state).filter(|choice| *choice != Choice::Nothing).map(Job::Compact)
    }

    /// Files of values to empty, by one job at a time.
    fn next_collection(&self, state: &mut WorkState) -> Option<Job> {
        let due = self.due_collection(state).map(Job::CollectGarbage);
        let job =
            due.or_else(|| self.is_idle(state).then(|| self.reorder_candidates(state).map(Job::Reorder)).flatten())?;
        state.collecting_garbage = true;
        Some(job)
    }

    /// Files of values that are to be emptied for the sake of order, while nothing else is to be done.
    pub(crate) fn reorder_candidates(&self, state: &WorkState) -> Option<Vec<FileId>> {
        if state.collecting_garbage
            || state.reorder_blocked
            || state.shortages.any()
            || !self.placement.keeps_key_order()
        {
            return None;
        }
        let values = self.published.view().values.clone();
        let mut candidates = values.candidates();
        candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
        to_reorder(&*self.placement, &candidates, values.state.credit)
    }

    /// It is calm, and values are in order: tables may be compacted_when_idle up, which names the places where values are now.
    pub(crate) fn is_in_order(&self, state: &WorkState) -> bool {
        let may_be = !state.collecting_garbage
            && !state.reorder_blocked
            && !state.shortages.any()
            && self.settings.tuning.compacts_when_idle;
        may_be && self.is_idle(state) && self.reorder_candidates(state).is_none()
    }

    /// Files of values that are to be emptied and that nobody empties.
    pub(crate) fn due_collection(&self, state: &WorkState) -> Option<Vec<FileId>> {
        if state.collecting_garbage || !state.shortages.may_try(Need::Collection, now()) {
            return None;
        }
        let values = self.published.view().values.clone();
        let mut victims = values.victims.clone();
        if victims.iter().any(|file| state.quarantined.contains(file)) {
            // What cannot be emptied does not count for what is due, or the others would be emptied again and again for it.
            let mut candidates = values.candidates();
            candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
            victims = self.placement.victims(&candidates, self.garbage_limit());
        }
        self.work.space.note_victims(!victims.is_empty());
        (!victims.is_empty()).then_some(victims)
    }

    /// To flush the front, if values that it hides are all that may be dead, and there are too many.
    fn flush_for_space(&self, state: &mut WorkState, duty: Duty, view: &View) -> Option<Job> {
        let idle =
            duty == Duty::All && state.compacting_threads == 0 && !state.collecting_garbage && !state.sealing_front;
        let is_due = idle && state.shortages.may_try(Need::Flush, now()) && self.front_hides_too_much(view);
        state.sealing_front |= is_due;
        is_due.then_some(Job::SealFront)
    }

    /// To look for addresses out of date: when nothing else is to be done, and values have moved since the last look.
    fn next_look(&self, state: &mut WorkState, duty: Duty, view: &View) -> Option<Job> {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let moved = Some(count(&self.counters.value_collections) + count(&self.counters.value_reorders));
        let busy = state.finding_stale || state.collecting_garbage || state.compacting_threads > 0;
        if duty != Duty::All || busy || state.stale_found_at == moved || view.values.files.is_empty() {
            return None;
        }
        (state.stale_found_at, state.finding_stale) = (moved, true);
        Some(Job::FindStaleAddresses)
    }

    /// The next log is not ready, and nobody makes it: the caller does.
    fn wants_log(&self, state: &mut WorkState) -> bool {
        let wants = !state.preparing_log && self.logs.wants_spare();
        state.preparing_log |= wants;
        wants
    }

    /// The oldest runs, oldest first, if it is time to flush them.
    fn runs_to_flush(&self, state: &WorkState, view: &View) -> Option<Vec<Arc<Run>>> {
        if state.flushing > 0 {
            return None;
        }
        let tuning = &self.settings.tuning;
        // A full index table shrinks a little when it becomes a run, and is still worth a flush.
        let flush_bytes = tuning.flush_bytes / 4 * 3;
        let merging = |run: &&Arc<Run>| state.merging.iter().any(|other| Arc::ptr_eq(other, run));
        let mut total = 0;
        let mut oldest = Vec::new();
        for run in view.runs.iter().rev().take_while(|run| !merging(run)) {
            if total >= flush_bytes {
                break;
            }
            total += run.weight();
            oldest.push(run.clone());
        }
        let asked = oldest.first().is_some_and(|run| run.seqnos().0 <= state.flush_target);
        // However little of them is still live, logs do not cluster up.
        let due = total >= flush_bytes
            || asked
            || view.front_bytes() > tuning.front_bytes_max
            || unflushed_log_bytes(view, self.work.flushed()).is_due(tuning);
        (due && !oldest.is_empty()).then_some(oldest)
    }

    /// Neighbours in age to merge, oldest first.
    fn runs_to_merge(&self, state: &WorkState, view: &View) -> Option<Vec<Arc<Run>>> {
        if !state.merging.is_empty() {
            return None;
        }
        let idle: Vec<&Arc<Run>> = view.runs.iter().rev().skip(state.flushing).collect();
        let sizes: Vec<u64> = idle.iter().map(|run| run.weight()).collect();
        let tuning = &self.settings.tuning;
        let range = merge_policy::pick(&sizes, tuning.index_merge_runs, tuning.flush_bytes)?;
        Some(idle[range].iter().map(|run| Arc::clone(run)).collect())
    }
}
