//! Help with running jobs of other threads that have subtasks left to begin.

use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, JobKind, Offer};
use crate::engine::work::{MemoryShare, Profile};

/// Help with seals and merges of runs; takes precedence over beginning another merge.
pub(crate) const WITH_RUNS: JobKind = JobKind {
    priority: Priority::Merge,
    duties: &[Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: |_, state, _| {
        let (number, shared) = state.to_help(|profile| !is_compaction(profile))?;
        Some(Offer::Help(number, shared))
    },
};

/// Help with compactions, so that what they make room for waits less, if memory allows one more compaction thread.
pub(crate) const WITH_COMPACTIONS: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::FrontAndSubtasks, Duty::All],
    next: |core, state, _| {
        if state.compacting_threads() >= core.scheduler.setting().compactions {
            return None;
        }
        let (number, shared) = state.to_help(is_compaction)?;
        Some(Offer::Help(number, shared))
    },
};

fn is_compaction(profile: &Profile) -> bool {
    profile.memory == MemoryShare::Compaction
}
