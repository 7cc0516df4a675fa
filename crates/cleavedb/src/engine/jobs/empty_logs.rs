//! Empties logs that must leave the fast tier and in which much is garbage: to demote them would copy that. Their live values
//! are collected as those of other value files are, beside the collection that frees space (`collect_garbage.rs`).

use std::collections::BTreeSet;
use std::path::Path;

use crate::base::{FileId, Result};
use crate::engine::claims::Sole;
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::collect_garbage::{
    claims_of, may_run_beside, room_for_copies, run_collection, those_with_room,
};
use crate::engine::jobs::collection::{Purpose, read_once_bytes};
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::shortages::Need;
use crate::engine::tuning::tiers::to_empty;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::sched::clock::now;
use crate::values::candidate::{Candidate, Choice};

/// Due while the fast tier needs room and holds flushed logs that are mostly dead. One job at a time.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::MoreValues],
    next: |core, state, _| JobKind::begin(EmptyLogs { choice: logs_to_empty(core, state)? }),
};

/// Collects logs.
struct EmptyLogs {
    choice: Choice,
}

/// The logs to empty next, unless a job is already emptying some.
pub(crate) fn logs_to_empty(core: &Core, state: &WorkState) -> Option<Choice> {
    let fill = core.fast_fill();
    let may_run = !state.has(Sole::EmptiedLogs) && state.shortages.may_try(Need::Collection, now());
    if !may_run || !core.dirs.are_apart() || !fill.wants_room() || !may_run_beside(core, state) {
        return None;
    }
    let view = core.published.view();
    let mut logs = core.fast_logs(&view);
    let claimed = state.claimed_value_files();
    logs.retain(|log| !claimed.contains(&log.key.id) && !state.quarantined.contains(&log.key.id));
    let chosen: BTreeSet<FileId> = to_empty(fill, &logs).iter().map(|log| log.key.id).collect();
    let is_chosen = |file: &&Candidate| chosen.contains(&file.file);
    let files: Vec<Candidate> = view.values.figures().candidates.iter().filter(is_chosen).cloned().collect();
    let mut choice = (*core.current_survey.judge_some(&*core.placement, &files).choice).clone();
    let room = room_for_copies(core, state).min(read_once_bytes(core, state.collects_values()));
    choice.files = those_with_room(&view.values, choice.files, room);
    (!choice.files.is_empty()).then_some(choice)
}

impl Job for EmptyLogs {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "empty logs",
            claims: claims_of(Sole::EmptiedLogs, &self.choice.files),
            binds: core.binds_of_collection(&self.choice.files),
            class: Class::Mandatory,
            memory: MemoryShare::Own,
            need: Need::Collection,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::WithReserve(Box::new(|core| {
            run_collection(core, &self.choice, Purpose::Space { pauses: false }, Class::Mandatory)
        })))
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        // A look-up in a table may also have failed: in either case the files are quarantined.
        self.choice.files.clone()
    }
}
