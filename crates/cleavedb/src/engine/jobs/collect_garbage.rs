//! Value GC: collects value files with a high share of garbage (`collection/`).

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::base::{FileId, Result, Seqno};
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::collection::{Collected, Copied, Purpose, collect, remove_unreferenced};
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Bound, Class, MemoryShare, Profile, WorkState};
use crate::sched::clock::now;

/// Due when garbage exceeds the garbage limit. One job at a time.
pub(crate) const KIND: JobKind = JobKind {
    duties: &[Duty::Values],
    next: |core, state, _| {
        let files = victims(core, state)?;
        JobKind::begin(CollectGarbage(files))
    },
};

/// Collects value files.
struct CollectGarbage(Vec<FileId>);

/// The files to collect, unless a job is already collecting some.
pub(crate) fn victims(core: &Core, state: &WorkState) -> Option<Vec<FileId>> {
    if state.has(Sole::ValueCollection) || !state.shortages.may_try(Need::Collection, now()) {
        return None;
    }
    let values = core.published.view().values.clone();
    let mut victims = core.victims_of(&values).to_vec();
    if victims.iter().any(|file| state.quarantined.contains(file)) {
        // What cannot be emptied does not count for what is due, or the others would be emptied again and again for it.
        let mut candidates = values.figures().candidates.clone();
        candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
        victims = core.placement.victims(&candidates, core.garbage_limit());
    }
    core.work.space.note_victims(!victims.is_empty());
    (!victims.is_empty()).then_some(victims)
}

/// The claims of a job that collects files: one such job at a time.
pub(crate) fn claims_of(files: &[FileId]) -> Claims {
    files.iter().fold(Claims::sole(Sole::ValueCollection), |claims, file| claims.and(Claim::ValueFile(*file)))
}

/// The resources that bound a collection.
pub(crate) const BINDS: &[Bound] = &[Bound::ReadFast, Bound::ReadSlow, Bound::WriteSlow];

impl Job for CollectGarbage {
    fn profile(&self) -> Profile {
        Profile {
            name: "value GC",
            claims: claims_of(&self.0),
            binds: BINDS,
            class: Class::Mandatory,
            memory: MemoryShare::Own,
            need: Need::Collection,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        Ok(Plan::WithReserve(Box::new(|core| {
            let began = now();
            let collected = collect(core, &self.0, Purpose::Space)?;
            Ok(outcome_of(collected, move |core, collected| {
                let given_back = collected.map_or(0, |collected| {
                    core.counters.value_gc_bytes.fetch_add(collected.written, Ordering::Relaxed);
                    core.counters.value_gcs.fetch_add(1, Ordering::Relaxed);
                    collected.bytes_before.saturating_sub(collected.written)
                });
                core.work.space.note_drained(given_back, now().saturating_sub(began));
            }))
        })))
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        // A look-up in a table may also have failed: in either case the files are quarantined.
        self.0.clone()
    }
}

/// The outcome of a job that collected files; `count` is called with the copies once the outcome is committed.
pub(crate) fn outcome_of<'a>(collected: Collected, count: impl FnOnce(&Core, Option<&Copied>) + 'a) -> Outcome<'a> {
    let Collected::Copied(mut copied) = collected else {
        return Outcome::nothing().then(move |core, result| {
            count(core, None);
            result
        });
    };
    let edit = std::mem::take(&mut copied.edit);
    // Moved values were durable before, so the edit requires no sync of the logs.
    Outcome::edit(Seqno::ZERO, edit, |_| {}).then(move |core, installed| {
        match &installed {
            Ok(()) => count(core, Some(&*copied)),
            // After any other error the manifest may reference them.
            Err(error) if error.is_transient() => remove_unreferenced(core, &copied.files),
            Err(_) => {}
        }
        installed
    })
}
