//! Restores the reserve for a full disk after it was released.

use crate::base::{Result, Tier};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile};

/// Due while the reserve is incomplete.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::Logs],
    next: |core, state, look| {
        let is_due = core.reserve.is_wanted() && state.reserve_shortage.may_try(Need::Reserve, look.now);
        is_due.then(|| JobKind::begin(MakeReserve)).flatten()
    },
};

/// Reserves disk space.
struct MakeReserve;

impl Job for MakeReserve {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "make reserve",
            claims: Claims::sole(Sole::Reserve),
            binds: Binds::write(Tier::Fast) | Binds::write(core.dirs.slow_tier()),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Reserve,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| core.reserve.make().map(|()| Outcome::nothing()))))
    }
}
