//! Help with jobs that other threads have begun and that have subtasks left.

use crate::engine::jobs::job::{Duty, Kind, Offer};
use crate::engine::work::{MemoryShare, Profile};

/// Help with seals and with merges of runs, before another job of the front begins.
pub(crate) const WITH_RUNS: Kind = Kind {
    duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: |_, state, _| {
        let (number, shared) = state.to_help(|profile| !is_compaction(profile))?;
        Some(Offer::Help(number, shared))
    },
};

/// Help with compactions, as far as memory allows one more thread for them.
pub(crate) const WITH_COMPACTIONS: Kind = Kind {
    duties: &[Duty::FrontAndSubtasks, Duty::All],
    next: |core, state, _| {
        if state.compacting_threads() >= core.settings.tuning.compactions_max {
            return None;
        }
        let (number, shared) = state.to_help(is_compaction)?;
        Some(Offer::Help(number, shared))
    },
};

fn is_compaction(profile: &Profile) -> bool {
    profile.memory == MemoryShare::Compaction
}
