//! Search for stale addresses: those in tables that lead to moved values through redirect tables. Tables with enough of
//! them are scheduled for compaction.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::Result;
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Look, Offer, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::values::files::Entry;
use crate::values::stale::Hops;

/// Due when values have moved since the last search, and no collection or compaction is running.
pub(crate) const KIND: JobKind = JobKind { priority: Priority::Garbage, duties: &[Duty::All], next };

/// Searches the tables. Holds the number of files collected when the search became due.
struct FindStaleAddresses {
    moved: u64,
}

fn next(core: &Core, state: &WorkState, look: &Look) -> Option<Offer> {
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let moved = count(&core.counters.value_gcs) + count(&core.counters.value_reorders);
    let is_busy = state.collects_values() || state.compacting_threads() > 0;
    if is_busy || state.stale_found_at == Some(moved) || look.view.values.files.is_empty() {
        return None;
    }
    JobKind::begin(FindStaleAddresses { moved })
}

impl Job for FindStaleAddresses {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "find stale addresses",
            claims: Claims::sole(Sole::StaleTables),
            binds: Binds::read(core.dirs.slow_tier()),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Flush,
            meets_need: false,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            self.search(core);
            Ok(Outcome::nothing())
        })))
    }
}

impl FindStaleAddresses {
    /// One small read per table, if any value has moved. HL0 is compacted in any case.
    fn search(&self, core: &Core) {
        let view = core.published.view();
        let moved = view.values.files.iter().filter_map(|(id, entry)| match entry {
            Entry::Moved(redirect) => Some((*id, redirect.stored().id(), redirect.to())),
            Entry::Here(_) => None,
        });
        let hops = Hops::new(moved);
        let mut tables = Vec::new();
        if !hops.is_empty() {
            for table in view.version.levels().iter().flat_map(|level| level.tables().iter()) {
                // A job that needs a table that cannot be read will report it.
                let names = table.references().unwrap_or_default();
                tables.push(hops.stale_references(table.meta().id, table.meta().size, &names));
            }
        }
        let files = view.values.stored.len() - view.values.redirect_files();
        let stale = hops.choose(tables, files, core.settings.tuning.stale_percent);
        let mut state = core.work.lock();
        (state.stale, state.stale_found_at) = (stale, Some(self.moved));
    }
}
