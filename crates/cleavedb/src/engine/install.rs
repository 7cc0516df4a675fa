//! Where edits become true: committed to the manifest, and then shown by the view. Called by whatever ends with an edit.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{DirId, Error, FileId, FileKey, FileKind, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::fast_tier::{Occupant, SMALL_FILES_BYTES};
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::tuning::tiers::{manifest_len_max, manifest_space};
use crate::engine::value_home::ValueHome;
use crate::engine::view::Sources;
use crate::format::edit::Edit;
use crate::format::values::ValuePlace;
use crate::values::files::{Entry, StoredFile, ValueFiles};

/// The files of values as an edit leaves them.
struct ValuesAfter {
    files: Arc<ValueFiles>,
    /// What the edit takes away; to be obsolete once it is committed.
    gone: Gone,
}

/// What the manifest no longer names.
struct Gone {
    files: Vec<Entry>,
    stored: Vec<Arc<StoredFile>>,
}

impl Gone {
    /// It goes with its last holder.
    fn mark_obsolete(&self) {
        // These first: an extent gives nothing back by itself where all goes together.
        self.stored.iter().for_each(|stored| stored.mark_obsolete());
        for entry in &self.files {
            if let Entry::Here(file) = entry {
                file.mark_obsolete();
            }
        }
    }
}

impl Core {
    /// Makes a finished job true: syncs the logs up to `seqno`, commits the edit, and swaps the view (rules 2, 4,
    /// 5). Files that the edit removes go when the last view that holds them goes. What follows from it, such as which file
    /// is emptied next, is for others to choose, without the lock.
    pub fn install(&self, seqno: Seqno, mut edit: Edit, change: impl FnOnce(&mut Sources)) -> Result<()> {
        self.sync_to(seqno)?;
        let mut manifest = self.manifest.lock();
        self.add_counters(&mut edit);
        // What moved may have become obsolete meanwhile, or have left the front.
        edit.files_moved.retain(|file| manifest.state().files.contains_key(&file.id));
        edit.logs_ended.retain(|(log, _)| manifest.state().logs.contains_key(log));
        edit.keyspaces_forgotten = manifest.state().keyspaces_gone_after(&edit);
        let values = self.values_after(&mut edit, &manifest)?;
        // A job that has come so far gives back more than its edit takes.
        self.reserve.with(|| self.commit_edit(&mut manifest, &edit))?;
        self.published.update(|now| {
            now.with(|sources| {
                change(sources);
                if let Some(after) = values {
                    after.gone.mark_obsolete();
                    sources.values = after.files;
                }
            })
        });
        self.keyspaces.forget(&edit.keyspaces_forgotten);
        let apart = self.dirs.are_apart();
        let may_be_misplaced = |file: &FileKey| match (file.kind, file.dir == DirId::HOME) {
            // Redirect tables or values that are read, for which older ones may have to leave.
            (FileKind::Segment | FileKind::Redirect, true) => apart,
            // It may have turned out smaller than the room that was wanted for it on the fast tier.
            (FileKind::Table, false) => apart,
            _ => false,
        };
        // A table below HL0 may have been on the fast tier with the rest of HL0.
        if edit.tables_added.iter().any(|(level, _)| *level > 0) || edit.files_added.iter().any(may_be_misplaced) {
            self.has_misplaced.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Commits an edit that changes no view.
    pub fn commit_to_manifest(&self, mut edit: Edit) -> Result<()> {
        let mut manifest = self.manifest.lock();
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)
    }

    /// As [`commit_to_manifest`](Core::commit_to_manifest), for a caller that holds the manifest. Reserves more file numbers in passing.
    pub fn commit_edit(&self, manifest: &mut Manifest, edit: &Edit) -> Result<()> {
        let mut edit = Cow::Borrowed(edit);
        let whole = self.logs_whole(manifest.state(), &edit);
        if !whole.is_empty() {
            edit.to_mut().logs_whole = whole;
        }
        if edit.files_reserved.is_empty()
            && self.numbers.is_low()
            // What fails here is tried again by the next edit.
            && let Ok(Some(block)) = self.next_numbers()
        {
            edit.to_mut().files_reserved.push(block);
        }
        self.claim_for_manifest(manifest, &edit);
        let commit = || manifest.commit(&edit, &|| self.numbers.take_for_manifest());
        let bytes = self.guarded(self.with_descriptors(commit))?;
        edit.files_reserved.iter().for_each(|block| self.numbers.add(*block));
        self.counters.manifest_bytes.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// The logs of the front with records of hash keyspaces that an edit leaves unsettled, and up to where they are durable, as
    /// far as that is new. Consumers get past these records, but nothing else has them: they must be there at the next open.
    fn logs_whole(&self, state: &ManifestState, edit: &Edit) -> Vec<(FileId, u64)> {
        if !self.keyspaces.has_hashed() {
            return Vec::new();
        }
        let leaves = |id: &FileId| {
            edit.logs_removed.contains(id)
                || edit.logs_ended.iter().any(|(log, _)| log == id)
                || edit.values_placed.iter().any(|(log, _)| log == id)
        };
        let view = self.published.view();
        let unsettled = view.logs.values().filter(|log| state.logs.get(&log.id()) == Some(&None) && !leaves(&log.id()));
        let ends = unsettled.filter_map(|log| Some((log.id(), self.horizon.synced_end_of(log.id(), log.end())?)));
        ends.filter(|(log, end)| state.logs_whole.get(log).is_none_or(|known| known < end)).collect()
    }

    /// Claims the space that the manifest takes on the fast tier with an edit, and lets it be written anew early enough to keep
    /// to that. Only a state that takes most of the budget takes more than there is: it cannot be elsewhere.
    fn claim_for_manifest(&self, manifest: &mut Manifest, edit: &Edit) {
        if !self.dirs.are_apart() {
            return;
        }
        let state = manifest.state_len();
        let most = manifest_len_max(self.fast.budget(), self.settings.tuning.manifest_bytes, state);
        let least = manifest.len().max(manifest.len_min());
        let coming = edit.encode().len() as u64 + SMALL_FILES_BYTES;
        let granted = self.fast.claim_up_to(Occupant::Manifest, manifest_space(most) + coming);
        if granted < manifest_space(least) + coming {
            self.fast.note(Occupant::Manifest, manifest_space(least) + coming);
        }
        manifest.limit_len((granted.saturating_sub(coming) / 2).clamp(least, most.max(least)));
    }

    /// Every edit carries the numbers that must never be given out twice.
    pub fn add_counters(&self, edit: &mut Edit) {
        edit.next_file = Some(self.numbers.next());
        let durable = self.horizon.durable();
        edit.last_seqno = Some(edit.watermarks.greatest().max(durable));
    }

    /// The value files once `edit` is committed, if it concerns them. Files that nothing will lead to then are added to what
    /// it removes. The holder of the manifest has the newest view, too.
    fn values_after(&self, edit: &mut Edit, manifest: &Manifest) -> Result<Option<ValuesAfter>> {
        if !edit.concerns_values() && edit.files_moved.is_empty() {
            return Ok(None);
        }
        let broken = |message| Error::Poisoned { cause: format!("an edit contradicts the ledger: {message}") };
        let mut state = manifest.state().values.clone();
        state.apply(edit).map_err(broken)?;
        edit.values_removed = state.unreachable();
        let removal = Edit { values_removed: edit.values_removed.clone(), ..Edit::default() };
        state.apply(&removal).map_err(broken)?;
        let view = self.published.view();
        let mut after = ValueFiles::new(view.values.files.clone(), view.values.stored.clone(), state);
        let home = ValueHome { dirs: &self.dirs, pending_deletions: &self.pending_deletions, readers: &self.readers };
        let mut gone = Gone { files: Vec::new(), stored: Vec::new() };
        for file in &edit.files_moved {
            let Some(stored) = after.stored.remove(&file.id) else { continue };
            let in_file = |(id, place): &(&FileId, &ValuePlace)| place.container().unwrap_or(**id) == file.id;
            let inside: Vec<_> = after.state.places.iter().filter(in_file).map(|(id, of)| (*id, of.clone())).collect();
            for (id, place) in inside {
                home.place(&mut after, id, &place, *file);
            }
            gone.stored.push(stored);
        }
        for (id, place) in &edit.values_placed {
            let own = place.container().unwrap_or(*id);
            let added = edit.files_added.iter().find(|file| file.id == own).copied();
            let key = added.unwrap_or_else(|| manifest.state().file(own));
            gone.files.extend(home.place(&mut after, *id, place, key));
        }
        gone.files.extend(edit.values_removed.iter().filter_map(|file| after.files.remove(file)));
        for entry in &gone.files {
            let id = entry.stored().id();
            if !after.state.is_container(id) {
                gone.stored.extend(after.stored.remove(&id));
            }
        }
        Ok(Some(ValuesAfter { files: Arc::new(after), gone }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use crate::engine::tuning::sizes::Tuning;
    use crate::io::SimDisk;
    use crate::sched::sim::simulate;
    use crate::{Db, KeyspaceOptions, Options};

    fn dropped(db: &Db) -> (usize, usize) {
        let core = &db.inner.core;
        (core.manifest.lock().state().dropped.len(), core.keyspaces.dropped().len())
    }

    #[test]
    fn a_dropped_keyspace_is_forgotten_by_the_edit_that_leaves_nothing_of_it() {
        let test = || {
            let disk = Arc::new(SimDisk::new());
            let options = Options::new().background_threads(1);
            let db = crate::api::db::open(disk, Path::new("/db"), options, Some(Tuning::tiny())).unwrap();
            db.create_keyspace("empty", KeyspaceOptions::new()).unwrap();
            db.drop_keyspace("empty").unwrap();
            assert_eq!(dropped(&db), (0, 0), "nothing was written yet");

            let used = db.create_keyspace("used", KeyspaceOptions::new()).unwrap();
            (0..50).for_each(|number| used.put(format!("{number:03}"), "value").unwrap());
            db.put("other", "stays").unwrap();
            let pause = db.pause_background().unwrap();
            db.drop_keyspace("used").unwrap();
            assert_eq!(dropped(&db), (1, 1), "the front has its versions");
            drop(pause);
            db.flush().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            assert_eq!(dropped(&db), (0, 0));
            assert_eq!(db.get("other").unwrap().unwrap(), "stays");

            let flushed = db.create_keyspace("flushed", KeyspaceOptions::new()).unwrap();
            flushed.put("key", "value").unwrap();
            db.flush().unwrap();
            let pause = db.pause_background().unwrap();
            db.drop_keyspace("flushed").unwrap();
            assert_eq!(dropped(&db), (1, 1), "a table has its versions");
            drop(pause);
            db.wait_for_background().unwrap();
            assert_eq!(dropped(&db), (0, 0), "a compaction drops the table");
        };
        for seed in 0..10 {
            simulate(seed, test).unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
}
