//! Value reordering: moves values into key order while no mandatory work is due. The job ends without effect when other
//! work becomes due, and does not use the reserve.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::base::{FileId, Result};
use crate::engine::activity::Activity;
use crate::engine::claims::{Claim, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::collect_garbage::{BINDS, claims_of, outcome_of};
use crate::engine::jobs::collection::{Collected, collect};
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::values::placement::to_reorder;

/// Due in idle time, while values are not in key order.
pub(crate) const KIND: JobKind = JobKind {
    duties: &[Duty::Values],
    next: |core, state, _| {
        if state.activity() != Activity::Idle {
            return None;
        }
        reorder_candidates(core, state).and_then(|files| JobKind::begin(Reorder(files)))
    },
};

/// Collects value files to reorder their values.
struct Reorder(Vec<FileId>);

/// The files to reorder next, unless a job is collecting files or there is not enough space.
pub(crate) fn reorder_candidates(core: &Core, state: &WorkState) -> Option<Vec<FileId>> {
    let may_run = state.activity() != Activity::Full && !state.has(Sole::ValueCollection) && !state.shortages.any();
    if !may_run || !core.placement.keeps_key_order() {
        return None;
    }
    let values = core.published.view().values.clone();
    let mut candidates = values.figures().candidates.clone();
    candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
    to_reorder(&*core.placement, &candidates, values.state.credit)
}

impl Job for Reorder {
    fn profile(&self) -> Profile {
        Profile {
            name: "reorder",
            claims: claims_of(&self.0).and(Claim::Only(Sole::IdleTime)),
            binds: BINDS,
            class: Class::Idle,
            memory: MemoryShare::Own,
            need: Need::Collection,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            let collected = collect(core, &self.0, true)?;
            if let Collected::Yielded { written } = collected {
                core.counters.value_reorder_bytes.fetch_add(written, Ordering::Relaxed);
            }
            Ok(outcome_of(collected, |core, copied| {
                if let Some(copied) = copied {
                    core.counters.value_reorder_bytes.fetch_add(copied.written, Ordering::Relaxed);
                    core.counters.value_reorders.fetch_add(1, Ordering::Relaxed);
                }
            }))
        })))
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        self.0.clone()
    }
}

impl Core {
    /// True if idle work must end because other work is due.
    pub fn must_yield(&self) -> bool {
        self.work.lock().activity() != Activity::Idle
    }
}
