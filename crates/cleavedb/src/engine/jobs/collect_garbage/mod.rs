//! Value GC: value files that are garbage for a good part give their space back. What is live in them is copied into a new
//! segment, an extent for each group of keys, with redirect tables from the old places to the new; tables go on referencing
//! the old ones until compactions refresh their addresses. Logs and the extents of a group are emptied alike. On the way
//! values are compressed, if that is asked for (`values/shrinker.rs`).
//!
//! What lives is found in the tables that reference the files (`find.rs`), where that is cheaper than to read these.
//! Otherwise files are read twice: once for the bases in them (`read.rs`), and once for what lives. A record is dead then if
//! a newer base of its key is among those that the job reads and no snapshot tells the two apart
//! ([`values::newest`](crate::values::newest)); what is left may still be referenced by no table, and is looked up there, by
//! key and sequence number (`look_up.rs`), if the placement says so or the ledger knows of more garbage than has been found
//! (`judge.rs`).
//!
//! What lives is copied in the order in which it lies in the files (`copy.rs`), or, by a placement that sorts, in that of
//! keys (`sorted.rs`). Value reordering (`jobs/reorder.rs`) is the same with another choice of files.

mod collection;
mod read;
mod find;
mod look_up;
mod judge;
mod copy;
mod sorted;

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use crate::base::{Error, FileId, Result, Seqno};
use crate::engine::claims::{Claim, Claims, Sole};
use crate::engine::core::Core;
use crate::engine::jobs::job::{Duty, Job, Kind, Outcome, Plan};
use crate::engine::shortages::Need;
use crate::engine::view::View;
use crate::engine::work::{Bound, Class, MemoryShare, Profile, WorkState};
use crate::format::edit::Edit;
use crate::sched::clock::now;

use self::collection::Collection;

/// Due when there is more garbage than allowed. One job at a time.
pub(crate) const KIND: Kind = Kind {
    duties: &[Duty::Values],
    next: |core, state, _| {
        let files = victims(core, state)?;
        Kind::begin(CollectGarbage(files))
    },
};

/// Empties value files.
struct CollectGarbage(Vec<FileId>);

/// The files that are to be emptied, if no job empties any.
pub(crate) fn victims(core: &Core, state: &WorkState) -> Option<Vec<FileId>> {
    if state.has(Sole::ValueCollection) || !state.shortages.may_try(Need::Collection, now()) {
        return None;
    }
    let values = core.published.view().values.clone();
    let mut victims = values.victims.clone();
    if victims.iter().any(|file| state.quarantined.contains(file)) {
        // What cannot be emptied does not count for what is due, or the others would be emptied again and again for it.
        let mut candidates = values.candidates();
        candidates.retain(|candidate| !state.quarantined.contains(&candidate.file));
        victims = core.placement.victims(&candidates, core.garbage_limit());
    }
    core.work.space.note_victims(!victims.is_empty());
    (!victims.is_empty()).then_some(victims)
}

/// The claims of a job that empties files: one such job at a time.
pub(crate) fn claims_of(files: &[FileId]) -> Claims {
    files.iter().fold(Claims::sole(Sole::ValueCollection), |claims, file| claims.and(Claim::ValueFile(*file)))
}

/// What emptying files binds.
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
            let collected = collect(core, &self.0, false)?;
            Ok(collected.outcome(move |core, collected| {
                let given_back = collected.map_or(0, |collected| {
                    core.counters.value_collection_bytes.fetch_add(collected.written, Ordering::Relaxed);
                    core.counters.value_collections.fetch_add(1, Ordering::Relaxed);
                    collected.bytes_before.saturating_sub(collected.written)
                });
                core.work.space.note_drained(given_back, now().saturating_sub(began));
            }))
        })))
    }

    fn unreadable_inputs(&self, _: &Core, _: &Path) -> Vec<FileId> {
        // A look-up in a table may have failed as well: either way they are not to be emptied.
        self.0.clone()
    }
}

/// What became of files that were to be emptied.
pub(crate) enum Collected {
    /// There were none any more.
    Nothing,
    /// The job ended early, for something else that is to be done; it had written so many bytes.
    Yielded { written: u64 },
    /// All that lives was copied.
    Copied(Copied),
}

/// The copies, which the edit makes true.
pub(crate) struct Copied {
    edit: Edit,
    paths: Vec<PathBuf>,
    /// Bytes of the files before.
    pub bytes_before: u64,
    /// Bytes written for them.
    pub written: u64,
}

/// Copies what is live in files into one segment. A job that yields ends without effect as soon as something else is to be
/// done.
pub(crate) fn collect(core: &Core, files: &[FileId], yields: bool) -> Result<Collected> {
    let mut collection = Collection::plan(core, files, yields);
    if collection.victims.is_empty() {
        return Ok(Collected::Nothing);
    }
    let bytes_before: u64 = collection.victims.iter().map(|victim| victim.file.end() - victim.file.start()).sum();
    let moved = collection.run();
    let places = moved.inspect_err(|_| remove_unreferenced(core, &collection.paths))?;
    let written = collection.written;
    if collection.has_yielded {
        remove_unreferenced(core, &collection.paths);
        return Ok(Collected::Yielded { written });
    }
    let edit = Edit { values_placed: places, ..Edit::default() };
    Ok(Collected::Copied(Copied { edit, paths: collection.paths, bytes_before, written }))
}

impl Collected {
    /// The outcome of the job; `count` is called once it is true, with what was copied.
    pub fn outcome<'a>(self, count: impl FnOnce(&Core, Option<&Copied>) + 'a) -> Outcome<'a> {
        let Collected::Copied(mut copied) = self else {
            return Outcome::nothing().then(move |core, result| {
                count(core, None);
                result
            });
        };
        let edit = std::mem::take(&mut copied.edit);
        // What is moved was durable already, so nothing has to be synced for the edit.
        Outcome::edit(Seqno::ZERO, edit, View::clone).then(move |core, installed| {
            match &installed {
                Ok(()) => count(core, Some(&copied)),
                Err(Error::NoSpace { .. }) => remove_unreferenced(core, &copied.paths),
                Err(_) => {}
            }
            installed
        })
    }
}

/// Removes files that no edit names. If that fails, the next open does it.
fn remove_unreferenced(core: &Core, paths: &[PathBuf]) {
    for path in paths {
        let _ = core.storage.remove(path);
    }
}
