//! Seals the front before it is full, for one of two reasons. Newer versions that are still in the front may make more garbage in
//! value files known than the limit allows, so it is flushed. And readers may have to apply very many operands of a key
//! (`engine/crowded_front.rs`), so it is sealed, and flushed if they ask for that.

use crate::base::Result;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::crowded_front::Relief;
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
        is_due.then(|| JobKind::begin(SealFront::ForSpace)).flatten()
    },
};
/// Due when readers ask for it.
pub(crate) const KIND_FOR_READERS: JobKind = JobKind {
    priority: Priority::Flush,
    duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: |core, state, look| {
        let may_begin = !state.has(Sole::FrontSeal) && state.shortages.may_try(Need::Flush, look.now);
        let is_due = may_begin && core.crowded_front.lock().asked().is_some();
        is_due.then(|| JobKind::begin(SealFront::ForReaders)).flatten()
    },
};

/// Seals the active index table, and requests a flush of the whole front unless readers need none.
enum SealFront {
    ForSpace,
    ForReaders,
}

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
            let asked = match self {
                SealFront::ForSpace => Some(Relief::Flush),
                SealFront::ForReaders => core.crowded_front.lock().take(),
            };
            match asked {
                Some(Relief::Flush) => core.seal_front(),
                Some(Relief::Seal) => core.seal(&mut core.commit.lock()),
                None => {}
            }
            Ok(Outcome::nothing())
        })))
    }
}
