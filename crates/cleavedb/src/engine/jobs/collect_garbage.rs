//! Value GC: collects value files with a high share of garbage (`collection/`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::{FileId, Result, Seqno};
use crate::engine::activity::Activity;
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::choice::Priority;
use crate::engine::jobs::collection::{Collected, Copied, Purpose, collect, read_once_bytes, remove_unreferenced};
use crate::engine::jobs::job::{Duty, Job, JobKind, Plan};
use crate::engine::jobs::outcome::Outcome;
use crate::engine::shortages::Need;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState};
use crate::sched::clock::now;
use crate::values::candidate::{Candidate, Choice};
use crate::values::files::ValueFiles;

/// Due when garbage is near its limit, and beyond that while the store is idle.
pub(crate) const KIND: JobKind = JobKind {
    priority: Priority::Garbage,
    duties: &[Duty::Values],
    next: |core, state, _| {
        if core.gc_rests_for(state) > Duration::ZERO {
            return None;
        }
        let (class, choice) = collection_due(core, state)?;
        JobKind::begin(CollectGarbage { choice, class, kind: Sole::ValueCollection })
    },
};

/// Due beside another such job while writers wait for garbage to go, and nobody reads: a collection reads all that it moves before
/// it writes, so that one alone leaves the device idle half of the time (decision record 058).
pub(crate) const KIND_OF_SECOND: JobKind = JobKind {
    priority: Priority::Garbage,
    duties: &[Duty::MoreValues],
    next: |core, state, look| {
        let is_second = state.has(Sole::ValueCollection) && !state.has(Sole::SecondCollection);
        let may_run = is_second && state.shortages.may_try(Need::Collection, look.now);
        let least = core.settings.tuning.second_collection_percent as f64 / 100.0;
        if !may_run
            || !may_run_beside(core, state)
            || !core.garbage_slows_writers(&look.view.values)
            || core.gc_share() < least
        {
            return None;
        }
        // Two walks at once would find the same; and two that share too little memory read their files again and again.
        let is_worth_it = |choice: &Choice| {
            choice.excess.is_some() && live_of(&look.view.values, &choice.files) <= read_once_bytes(core, true)
        };
        let choice = choose_files(core, state, false).filter(is_worth_it)?;
        JobKind::begin(CollectGarbage { choice, class: Class::Mandatory, kind: Sole::SecondCollection })
    },
};

/// Collects value files.
struct CollectGarbage {
    choice: Choice,
    class: Class,
    /// Which of the collections it is.
    kind: Sole,
}

/// What is to be collected once value GC does not rest, and for what.
pub(crate) fn collection_due(core: &Core, state: &WorkState) -> Option<(Class, Choice)> {
    let due = |class, idle| Some((class, victims(core, state, idle)?));
    let is_idle = state.activity() == Activity::Idle;
    due(Class::Mandatory, false).or_else(|| due(Class::Idle, true).filter(|_| is_idle))
}

/// What to collect while the store is busy or idle, unless a job is already collecting something.
pub(crate) fn victims(core: &Core, state: &WorkState, idle: bool) -> Option<Choice> {
    let may_run = !state.has(Sole::ValueCollection) && state.shortages.may_try(Need::Collection, now());
    (may_run && may_run_beside(core, state)).then(|| choose_files(core, state, idle)).flatten()
}

/// The files to collect next, of those that no running job has.
fn choose_files(core: &Core, state: &WorkState, idle: bool) -> Option<Choice> {
    let values = core.published.view().values.clone();
    core.review_garbage_room(&values, core.live_bytes(&values));
    let mut choice = core.victims_of(&values, idle).map(|choice| (*choice).clone()).unwrap_or_default();
    let mut unreadable = 0;
    let has_victims = choice.files.iter().any(|file| !state.quarantined.contains(file));
    let claimed = state.claimed_value_files();
    if !state.quarantined.is_empty() || choice.files.iter().any(|file| claimed.contains(file)) {
        // What cannot be emptied does not count for what is due, or the others would be emptied again and again for it.
        let figures = values.figures();
        let unread = figures.candidates.iter().filter(|file| state.quarantined.contains(&file.file));
        unreadable = unread.map(|file| file.bytes - file.live_bytes()).sum();
        let others: BTreeSet<FileId> = claimed.union(&state.quarantined).copied().collect();
        if figures.candidates.iter().any(|file| others.contains(&file.file)) {
            let kept = core.current_survey.judge_without(&*core.placement, &values, &others);
            choice = if core.is_gc_due(&kept, idle) { (*kept.choice).clone() } else { Choice::default() };
        }
    }
    core.work.space.unreadable.store(unreadable, Ordering::Relaxed);
    if !idle {
        // Those that a job moves now come next.
        core.work.space.note_victims(has_victims || !choice.files.is_empty() || state.collects_values());
    }
    let is_short = state.shortages.is_unmet(Need::Collection);
    // The files that the compaction finds dead records in will give more, and it has the processor for itself.
    let waits = choice.frees_little() && state.compacting_threads() > 0 && core.hides_much(&values);
    if waits && !idle && !is_short && !core.exceeds_limit(&values) {
        return None;
    }
    let room = room_for_copies(core, state);
    let chosen = choice.files.len();
    choice.files = those_with_room(&values, choice.files, room);
    if is_short || choice.files.len() < chosen {
        // Where there is little room, nothing is copied in vain: an old survey lists more than the ledger counts.
        choice.excess = None;
    }
    choice.files = those_with_room(&values, choice.files, read_once_bytes(core, state.collects_values()));
    (!choice.files.is_empty()).then_some(choice)
}

/// Bytes that a collection may copy before anything goes: half of what is free, of which the running ones have parts, too.
pub(crate) fn room_for_copies(core: &Core, state: &WorkState) -> u64 {
    match state.shortages.is_unmet(Need::Collection) {
        true => 0,
        false => core.storage.free_bytes(core.dirs.slow()) / (2 * (1 + state.collections())),
    }
}

/// True unless another collection is running, and it is making the first groups (decision record 051), or it has the memory for
/// jobs and the caches cannot give as much.
pub(crate) fn may_run_beside(core: &Core, state: &WorkState) -> bool {
    let has_groups = || core.placement.has_groups(&core.published.view().values.figures().candidates);
    !state.collects_values() || core.spare_of_caches() >= core.settings.tuning.beside_bytes && has_groups()
}

/// Of the files to collect, those with the largest shares of garbage whose live bytes find room, but at least one: the
/// copies are written before the files go.
pub(crate) fn those_with_room(values: &ValueFiles, mut victims: Vec<FileId>, room: u64) -> Vec<FileId> {
    if victims.len() < 2 || live_of(values, &victims) <= room {
        return victims;
    }
    let candidate = |file: &FileId| candidate_of(values, *file);
    let share =
        |file: &FileId| candidate(file).map_or(0, |of| u128::from(of.live) * 1000 / u128::from(of.bytes.max(1)));
    victims.sort_by_key(|file| (share(file), *file));
    let mut moved = 0;
    let fits = victims.iter().take_while(|file| {
        moved += candidate(file).map_or(0, Candidate::live_bytes);
        moved <= room
    });
    let count = fits.count().max(1);
    victims.truncate(count);
    victims
}

fn candidate_of(values: &ValueFiles, file: FileId) -> Option<&Candidate> {
    let candidates = &values.figures().candidates;
    candidates.binary_search_by_key(&file, |candidate| candidate.file).ok().map(|index| &candidates[index])
}

fn live_of(values: &ValueFiles, files: &[FileId]) -> u64 {
    files.iter().filter_map(|file| candidate_of(values, *file)).map(Candidate::live_bytes).sum()
}

/// The claims of a job that collects files: one job of its kind at a time.
pub(crate) fn claims_of(kind: Sole, files: &[FileId]) -> Claims {
    files.iter().fold(Claims::sole(kind), |claims, file| claims.and(Claim::ValueFile(*file)))
}

impl Job for CollectGarbage {
    fn profile(&self, core: &Core) -> Profile {
        Profile {
            name: "value GC",
            claims: claims_of(self.kind, &self.choice.files),
            binds: core.binds_of_collection(&self.choice.files),
            class: self.class,
            memory: MemoryShare::Own,
            need: Need::Collection,
            meets_need: true,
        }
    }

    fn plan(&self, _: &Core) -> Result<Plan<'_>> {
        let work = |core: &Core| run_collection(core, &self.choice, Purpose::Space { pauses: true }, self.class);
        Ok(match self.class {
            Class::Mandatory => Plan::WithReserve(Box::new(work)),
            Class::Idle => Plan::Whole(Box::new(work)),
        })
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        // A look-up in a table may also have failed: in either case the files are quarantined.
        self.choice.files.clone()
    }
}

/// Collects files to free their space.
pub(crate) fn run_collection<'a>(
    core: &Core,
    choice: &'a Choice,
    purpose: Purpose,
    class: Class,
) -> Result<Outcome<'a>> {
    let began = now();
    // Unless there was a walk since the choice was made.
    let walks = choice.excess.is_none() && core.current_survey.walks() == choice.walks;
    let collected = collect(core, &choice.files, purpose, walks)?;
    Ok(outcome_of(collected, move |core, collected| {
        core.current_survey.note_collected(choice, &core.published.view().values);
        let Some(Copied { written, bytes_before, paused, is_beside, .. }) = collected else { return };
        if purpose == (Purpose::Space { pauses: true }) {
            core.work.space.gc_pace.lock().note_ended(began, *paused, now());
        }
        core.counters.value_gc_bytes.fetch_add(*written, Ordering::Relaxed);
        core.counters.value_gcs_beside.fetch_add(u64::from(*is_beside), Ordering::Relaxed);
        core.counters.value_gcs.fetch_add(1, Ordering::Release);
        // At rest, files with less garbage are collected than while writers depend on the rate.
        if class == Class::Mandatory {
            core.work.space.note_drained(bytes_before.saturating_sub(*written), began + *paused, now());
        }
    }))
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
            Ok(()) => {
                count(core, Some(&*copied));
                let values = core.published.view().values.clone();
                core.current_survey.note_written(copied.of, &values, std::mem::take(&mut copied.copies));
                core.grow_reserve();
            }
            Err(error) => {
                core.current_survey.end_collection(copied.of);
                // After any other error the manifest may reference them.
                if error.is_transient() {
                    remove_unreferenced(core, &copied.files);
                }
            }
        }
        installed
    })
}
