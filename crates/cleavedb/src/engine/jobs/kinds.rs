//! The list of all kinds of jobs, and the choice of the next one.

use crate::engine::core::Core;
use crate::engine::jobs::job::{Duty, JobKind, Look, Offer};
use crate::engine::jobs::{
    balance_caches, collect_garbage, collect_logs, compact, delete_files, find_stale, flush, front_exit, help,
    make_reserve, merge_runs, move_files, prepare_log, reorder, rewrite_buckets, save_indexes, seal, seal_front,
};
use crate::engine::work::WorkState;
use crate::sched::clock::now;

/// In order of priority. A thread begins the first job offered by a kind of its duty.
const KINDS: [&JobKind; 21] = [
    &rewrite_buckets::KIND_IF_URGENT,
    &compact::KIND_WHILE_NONE_RUNS,
    &help::WITH_RUNS,
    &seal::KIND,
    &flush::KIND,
    &front_exit::KIND,
    &merge_runs::KIND,
    &rewrite_buckets::KIND,
    &help::WITH_COMPACTIONS,
    &compact::KIND,
    &seal_front::KIND,
    &find_stale::KIND,
    &prepare_log::KIND,
    &balance_caches::KIND,
    &delete_files::KIND,
    &make_reserve::KIND,
    &collect_logs::KIND,
    &save_indexes::KIND,
    &collect_garbage::KIND,
    &reorder::KIND,
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
        let kinds = KINDS.iter().filter(|kind| kind.duties.contains(&duty));
        kinds.filter_map(|kind| (kind.next)(self, state, &look)).find(|offer| match offer {
            Offer::Begin(job) => !state.is_claimed(&job.profile().claims),
            Offer::Help(..) => true,
        })
    }
}
