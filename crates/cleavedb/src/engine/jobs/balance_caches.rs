//! Cache balance: the boundary between the block cache and the value cache moves a step towards the cache that would save
//! more reads with more memory (`cache/balance.rs`).

use std::sync::atomic::Ordering;

use crate::base::Result;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::job::{Duty, Job, Kind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Bound, Class, MemoryShare, Profile};

/// Due when enough look-ups have missed what the caches evicted lately: it depends on demand, not on time. A reader that
/// notices this wakes the thread, which also looks whenever it wakes for something else.
pub(crate) const KIND: Kind = Kind {
    duties: &[Duty::Logs],
    next: |core, _, _| if core.caches_want_balance() { Kind::begin(BalanceCaches) } else { None },
};

/// Moves the boundary a step.
struct BalanceCaches;

impl Job for BalanceCaches {
    fn profile(&self) -> Profile {
        Profile {
            name: "balance caches",
            claims: Claims::sole(Sole::CacheBoundary),
            binds: &[Bound::Cpu],
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.balance_caches();
            Ok(Outcome::nothing())
        })))
    }
}

impl Core {
    fn balance_caches(&self) {
        let (blocks, values) = (&self.readers.cache, self.memory.value_cache.ghosts());
        let Some(moved) = self.memory.balance.step(blocks.demand(), values.demand()) else { return };
        blocks.start_over();
        values.start_over();
        self.counters.cache_balances.fetch_add(1, Ordering::Relaxed);
        if moved {
            self.fit_cache();
        }
    }
}
