//! Seals the front to reclaim space: newer versions that are still in the front may make more garbage in value files
//! known than the limit allows, so the front is flushed before it is full.

use crate::base::Result;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile};

/// Due when no other job would make the garbage known.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Garbage,
    duties: &[Duty::All],
    next: |core, state, look| {
        let has_nothing_else = state.compacting_threads() == 0 && !state.collects_values();
        // A flush that runs, or was asked for, makes garbage known first. Until then the figures stay as they are.
        let flush_is_pending = state.has(Sole::FrontExit) || core.is_in_front(&look.view, state.flush_target);
        let is_due = has_nothing_else
            && !flush_is_pending
            && !state.has(Sole::FrontSeal)
            && state.shortages.may_try(Need::Flush, look.now)
            && core.front_hides_too_much(&look.view);
        is_due.then(|| JobKind::begin(SealFront)).flatten()
    },
};

/// Seals the active index table and requests a flush of the whole front.
struct SealFront;

impl Job for SealFront {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "seal front",
            claims: Claims::sole(Sole::FrontSeal),
            binds: Binds::CPU,
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.seal_front();
            Ok(Outcome::nothing())
        })))
    }
}
