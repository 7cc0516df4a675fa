//! Prepares the next log, so that a writer that fills the active one only switches.

use crate::base::{Result, Tier};
use crate::engine::binds::Binds;
use crate::engine::claims::{Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile};
use crate::engine::write::logs::log_edit;

/// Due when the spare log is missing. On a full fast tier, jobs that free space come first, and an otherwise idle thread
/// creates the log. One whose budget has no room gets it once files were demoted.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Room,
    duties: &[Duty::Logs, Duty::Front, Duty::FrontAndSubtasks, Duty::All],
    next: |core, state, look| {
        let is_short = state.shortages.any_on(Tier::Fast);
        let is_due = is_short != (look.duty == Duty::Logs)
            && state.shortages.may_try(Need::Log, look.now)
            && !state.has(Sole::SpareLog)
            && core.logs.wants_spare()
            && core.has_room_for_log();
        is_due.then(|| JobKind::begin(PrepareLog)).flatten()
    },
};

/// Creates the spare log.
struct PrepareLog;

impl Job for PrepareLog {
    fn profile(&self, _: &Core) -> Profile {
        Profile {
            name: "prepare log",
            claims: Claims::sole(Sole::SpareLog),
            binds: Binds::write(Tier::Fast),
            class: Class::Mandatory,
            memory: MemoryShare::Nothing,
            need: Need::Log,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::Whole(Box::new(|core| {
            core.logs.note_coming(true);
            let log = core.create_spare_log().inspect_err(|_| core.logs.note_coming(false))?;
            let retired = core.logs.take_to_retire();
            let edit = log_edit(Some(&log), &retired);
            Ok(Outcome::manifest(edit).then(|core, committed| {
                match &committed {
                    Ok(()) => {
                        retired.iter().for_each(|log| log.mark_obsolete());
                        core.logs.add_spare(log);
                    }
                    Err(error) if error.is_transient() => {
                        log.mark_obsolete();
                        core.logs.put_back_to_retire(retired);
                    }
                    // The manifest may reference any of them.
                    Err(_) => {}
                }
                core.logs.note_coming(false);
                committed
            }))
        })))
    }
}
