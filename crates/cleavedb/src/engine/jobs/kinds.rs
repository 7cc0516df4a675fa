//! The list of all kinds of jobs, and the choice of the next one.

use crate::engine::core::Core;
use crate::engine::jobs::choice::{Choice, Offered};
use crate::engine::jobs::job::{Duty, JobKind, Look, Offer};
use crate::engine::jobs::{
    balance_caches, collect_garbage, collect_logs, compact, delete_files, empty_logs, find_stale, flush, front_exit,
    help, make_reserve, merge_runs, move_files, prepare_log, reorder, rewrite_buckets, save_indexes, seal, seal_front,
};
use crate::engine::work::{Profile, WorkState};
use crate::sched::clock::now;

/// In order of priority, for the kinds of the pool, and for the others of each thread.
const KINDS: [&JobKind; 24] = [
    &rewrite_buckets::KIND_IF_URGENT,
    &compact::KIND_WHILE_NONE_RUNS,
    &seal::KIND,
    &seal_front::KIND_FOR_READERS,
    &flush::KIND,
    &front_exit::KIND,
    &help::WITH_RUNS,
    &merge_runs::KIND,
    &rewrite_buckets::KIND,
    &prepare_log::KIND,
    &balance_caches::KIND,
    &delete_files::KIND,
    &make_reserve::KIND,
    &help::WITH_COMPACTIONS,
    &compact::KIND,
    &seal_front::KIND,
    &find_stale::KIND,
    &collect_logs::KIND,
    &save_indexes::KIND,
    &collect_garbage::KIND,
    &reorder::KIND,
    &empty_logs::KIND,
    &collect_garbage::KIND_OF_SECOND,
    &move_files::KIND,
];

impl Core {
    /// The next job for a thread, if one is due whose claims do not conflict with a running job.
    pub fn next_job(&self, state: &mut WorkState, duty: Duty) -> Option<Offer> {
        state.note_rest(now());
        self.offer(state, duty)
    }

    /// The job due for threads of this duty.
    pub fn offer(&self, state: &WorkState, duty: Duty) -> Option<Offer> {
        let now = now();
        let look = Look { duty, view: self.published.view(), now };
        let bound = state.bound(duty == Duty::Front);
        let mut choice = Choice::new(bound);
        for kind in KINDS.iter().filter(|kind| kind.duties.contains(&duty)) {
            if choice.is_settled(kind.priority) {
                break;
            }
            match (kind.next)(self, state, &look) {
                Some(offer) if !duty.is_of_pool() && self.may_begin(state, &offer) => return Some(offer),
                Some(Offer::Begin(job)) => {
                    let Profile { claims, binds, .. } = job.profile(self);
                    if !state.is_claimed(&claims) {
                        let priority = job.priority().unwrap_or(kind.priority);
                        choice.offer(Offered { priority, binds }, Offer::Begin(job));
                    }
                }
                Some(Offer::Help(number, shared)) => {
                    let binds = state.running().iter().find(|job| job.number == number).map(|job| job.profile.binds);
                    let offered = Offered { priority: kind.priority, binds: binds.unwrap_or_default() };
                    choice.offer(offered, Offer::Help(number, shared));
                }
                None => {}
            }
        }
        choice.chosen()
    }

    fn may_begin(&self, state: &WorkState, offer: &Offer) -> bool {
        match offer {
            Offer::Begin(job) => !state.is_claimed(&job.profile(self).claims),
            Offer::Help(..) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kinds_of_the_pool_are_listed_by_priority() {
        let of_pool = |kind: &&&JobKind| kind.duties.iter().any(|duty| duty.is_of_pool());
        let priorities: Vec<_> = KINDS.iter().filter(of_pool).map(|kind| kind.priority).collect();
        assert!(priorities.is_sorted(), "{priorities:?}");
    }
}
