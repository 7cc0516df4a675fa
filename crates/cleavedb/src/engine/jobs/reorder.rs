//! Value reordering: moves values into key order, where scans find them scattered ([`ScanDemand`]) or while no mandatory
//! work is due ([`ValueReordering`]). In the latter case the job ends without effect when other work becomes due. It does
//! not use the reserve.
//!
//! [`ScanDemand`]: crate::engine::scan_demand::ScanDemand

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::base::{FileId, Result};
use crate::engine::activity::Activity;
use crate::engine::claims::{Claim, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::collect_garbage::{claims_of, outcome_of};
use crate::engine::jobs::collection::{Collected, Purpose, collect};
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::shortages::Need;
use crate::engine::tuning::settings::ValueReordering;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::sched::clock::now;
use crate::values::candidate::Choice;
use crate::values::placement::to_reorder;

/// Due while values are not in key order, and scans ask for it or the store is idle.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Order,
    duties: &[Duty::Values],
    next: |core, state, _| {
        if core.settings.tuning.reordering == ValueReordering::WhenIdle && state.activity() != Activity::Idle {
            return None;
        }
        let (files, live) = reorder_candidates(core, state)?;
        JobKind::begin(Reorder { files, live, when: core.settings.tuning.reordering })
    },
};

/// Collects value files to reorder their values.
struct Reorder {
    files: Vec<FileId>,
    /// Their live bytes.
    live: u64,
    when: ValueReordering,
}

/// The files to reorder next and their live bytes, unless a job is collecting files or there is not enough space.
pub(crate) fn reorder_candidates(core: &Core, state: &WorkState) -> Option<(Vec<FileId>, u64)> {
    let reordering = core.settings.tuning.reordering;
    let is_wanted = match reordering {
        // A job that finds no space has spent the demand.
        ValueReordering::WhenScanned => {
            core.scan_demand.covers(core.settings.tuning.flush_bytes) && core.order_may_begin(state)
        }
        ValueReordering::WhenIdle => state.activity() != Activity::Full,
        ValueReordering::Never => false,
    };
    let may_run = !state.collects_values() && !state.shortages.any_on(core.dirs.slow_tier());
    if !may_run || !is_wanted || !core.placement.keeps_key_order() {
        return None;
    }
    let values = core.published.view().values.clone();
    let mut candidates = values.figures().candidates.clone();
    candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
    let places = core.scan_demand.places();
    let chosen = to_reorder(&*core.placement, &candidates, &places, values.state.credit);
    if reordering == ValueReordering::WhenScanned {
        let arrived = core.counters.log_bytes.load(Ordering::Relaxed);
        match &chosen {
            // Nothing can be done for it.
            None => core.scan_demand.forget(),
            Some((_, live)) if !core.scan_demand.affords(*live, arrived) => {
                core.scan_demand.forget();
                return None;
            }
            Some((_, live)) if !core.scan_demand.covers(*live) => return None,
            Some(_) => {}
        }
    }
    chosen
}

impl Job for Reorder {
    fn profile(&self, core: &Core) -> Profile {
        let claims = match self.when {
            ValueReordering::WhenIdle => claims_of(Sole::ValueCollection, &self.files).and(Claim::Only(Sole::IdleTime)),
            ValueReordering::WhenScanned | ValueReordering::Never => claims_of(Sole::ValueCollection, &self.files),
        };
        Profile {
            name: "reorder",
            claims,
            binds: core.binds_of_collection(&self.files),
            class: Class::Idle,
            memory: MemoryShare::Own,
            need: Need::Collection,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.scan_demand.spend(self.live);
            let yields = self.when == ValueReordering::WhenIdle;
            let collected = collect(core, &self.files, Purpose::Order { yields }, false)?;
            if let Collected::Yielded { written } = collected {
                core.counters.value_reorder_bytes.fetch_add(written, Ordering::Relaxed);
                core.counters.value_reorders_given_up.fetch_add(1, Ordering::Relaxed);
            }
            Ok(outcome_of(collected, |core, copied| {
                if let Some(copied) = copied {
                    let choice = Choice { files: self.files.clone(), ..Choice::default() };
                    core.current_survey.note_collected(&choice, &core.published.view().values);
                    core.scan_demand.note_written(copied.written);
                    core.counters.value_reorder_bytes.fetch_add(copied.written, Ordering::Relaxed);
                    core.counters.value_reorders.fetch_add(1, Ordering::Relaxed);
                }
            }))
        })))
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        self.files.clone()
    }
}

impl Core {
    /// Order that scans have asked for is made while they go on, for a caller who waits for background work, and while nobody
    /// reads or writes. All other users would only pay for it.
    fn order_may_begin(&self, state: &WorkState) -> bool {
        let is_at_rest = || self.work.space.gc_pace.lock().is_at_rest(now(), self.user_totals());
        state.hurries() || self.scan_demand.goes_on(now()) || is_at_rest()
    }

    /// Lets the thread for values begin with order that scans have asked for, once users rest: nothing else tells it.
    pub fn announce_order(&self, state: &WorkState) {
        let was_asked = self.scan_demand.covers(self.settings.tuning.flush_bytes);
        if was_asked && !self.scan_demand.goes_on(now()) && reorder_candidates(self, state).is_some() {
            self.work.notify_changed();
        }
    }

    /// True if idle work must end because other work is due.
    pub fn must_yield(&self) -> bool {
        self.work.lock().activity() != Activity::Idle
    }
}
