//! Values apart from their keys, as the database sees them: which files hold them, what an edit changes in that, and
//! addresses that are brought up to date as compactions pass them by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, Error, FileId, FileKey, Kind, Result};
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::{Manifest, ManifestState};
use crate::format::edit::{Edit, Separation};
use crate::format::values::{EXTENT_ALIGN, ValuePlace};
use crate::io::Storage;
use crate::io::pending_deletions::{FileGuard, FileRange, Obsolete, PendingDeletions};
use crate::levels::readers::Readers;
use crate::values::candidate::GarbageLimit;
use crate::values::files::{Entry, ValueFiles};
use crate::values::redirect::{Redirect, RedirectTable, Shape};
use crate::values::value_file::{Layout, StoredFile, ValueFile};

/// Where the files of values of a database lie, and what its readers share.
pub(crate) struct ValueHome<'a> {
    pub dirs: &'a Dirs,
    pub pending_deletions: &'a Arc<PendingDeletions>,
    pub readers: &'a Arc<Readers>,
}

impl ValueHome<'_> {
    /// A file on storage in which files of values have their places.
    fn stored(&self, key: FileKey) -> StoredFile {
        let guard = FileGuard::new(key, self.dirs.path(key), self.pending_deletions.clone());
        let handle = self.readers.handles.handle(guard.path().clone());
        StoredFile::new(guard, handle)
    }

    /// Adds a file, which lies in the file `key`, or says that its records are elsewhere now; returns what was known of it
    /// before.
    fn place(&self, values: &mut ValueFiles, id: FileId, place: &ValuePlace, key: FileKey) -> Option<Entry> {
        let stored = values.stored.entry(key.id).or_insert_with(|| Arc::new(self.stored(key))).clone();
        let here = |layout, end| Entry::Here(Arc::new(ValueFile::new(id, layout, end, stored.clone())));
        let entry = match place {
            ValuePlace::Log { end } => here(Layout::Log, *end),
            ValuePlace::Extent { start, end, group, temperature, .. } => {
                here(Layout::Extent { start: *start, group: group.clone(), temperature: *temperature }, *end)
            }
            ValuePlace::Moved { start, len, saved, to, .. } => {
                let to = to.iter().map(|(file, _)| *file).collect();
                let table = RedirectTable { of: id, start: *start, len: *len, shape: Shape::of(*saved) };
                Entry::Moved(Arc::new(Redirect::new(stored, table, to, self.readers.cache.clone())))
            }
        };
        values.files.insert(id, entry)
    }
}

/// The files of values that the manifest names. Each must be there, and as long as it says.
pub(crate) fn open_values(around: &ValueHome<'_>, state: &ManifestState) -> Result<ValueFiles> {
    let mut values = ValueFiles { state: state.values.clone(), ..ValueFiles::default() };
    for (id, place) in &state.values.places {
        let key = state.value_file(*id, place);
        around.place(&mut values, *id, place, key);
        let path = values.stored[&key.id].path();
        let end = match place {
            ValuePlace::Log { end } | ValuePlace::Extent { end, .. } => *end,
            ValuePlace::Moved { start, len, .. } => start.saturating_add(*len),
        };
        match around.readers.storage.file_len(path)? {
            None => return Err(Error::corruption(path, 0, "the manifest names this file, but it is missing")),
            Some(found) if found < end => {
                let message = format!("the file is {found} B long, and the manifest says {end} B");
                return Err(Error::corruption(path, found, message));
            }
            Some(_) => {}
        }
    }
    Ok(values)
}

/// Gives back the space of extents that are gone, in segments of which others are left: a crash may have come before, or the
/// segment had another link. Whatever takes space between the extents that the manifest names, or behind them, is such a gap.
pub(crate) fn give_back_gaps(
    storage: &dyn Storage,
    values: &ValueFiles,
    pending_deletions: &PendingDeletions,
) -> Result<()> {
    let mut extents = BTreeMap::<FileId, Vec<(u64, u64)>>::new();
    for place in values.state.places.values() {
        if let ValuePlace::Extent { segment, start, end, .. } = place {
            extents.entry(*segment).or_default().push((*start, end.next_multiple_of(EXTENT_ALIGN)));
        }
    }
    for (segment, extents) in extents {
        let path = values.stored[&segment].path();
        let len = storage.file_len(path)?.unwrap_or_default();
        for (mut from, to) in gaps(extents, len) {
            // In doubt all of it takes space.
            while from < to
                && let Some((offset, end)) = storage.first_data(path, from, to).unwrap_or(Some((from, to)))
            {
                // The last block of a file may be cut short.
                from = end.next_multiple_of(EXTENT_ALIGN);
                pending_deletions.add(Obsolete::Range(FileRange { path: path.clone(), offset, len: from - offset }));
            }
        }
    }
    Ok(())
}

/// Where a segment of so many bytes holds no extent: from and to which offset, in order.
fn gaps(mut extents: Vec<(u64, u64)>, len: u64) -> Vec<(u64, u64)> {
    extents.sort_unstable();
    let behind = len.next_multiple_of(EXTENT_ALIGN);
    // The header of the segment is in the first block.
    let mut offset = EXTENT_ALIGN;
    let mut gaps = Vec::new();
    for (start, end) in extents.into_iter().chain([(behind, behind)]) {
        if start > offset {
            gaps.push((offset, start));
        }
        offset = end;
    }
    gaps
}

/// The files of values as an edit leaves them.
pub(crate) struct ValuesAfter {
    pub files: Arc<ValueFiles>,
    /// What the edit takes away; to be obsolete once it is committed.
    pub gone: Gone,
}

/// What the manifest no longer names.
pub(crate) struct Gone {
    files: Vec<Entry>,
    stored: Vec<Arc<StoredFile>>,
}

impl Gone {
    /// It goes with its last holder.
    pub fn mark_obsolete(&self) {
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
    /// The files of values once `edit` is committed, if it concerns them. Files that nothing will lead to then are added to
    /// what it removes. Whoever holds the manifest has the newest view, too.
    pub fn values_after(&self, edit: &mut Edit, manifest: &Manifest) -> Result<Option<ValuesAfter>> {
        if !edit.concerns_values() {
            return Ok(None);
        }
        let broken = |message| Error::Poisoned { cause: format!("an edit contradicts the ledger: {message}") };
        let mut state = manifest.state().values.clone();
        state.apply(edit).map_err(broken)?;
        edit.values_removed = state.unreachable();
        edit.values_removed.iter().for_each(|file| drop(state.places.remove(file)));
        let view = self.published.view();
        let (files, stored) = (view.values.files.clone(), view.values.stored.clone());
        let mut after = ValueFiles { files, stored, state, ..ValueFiles::default() };
        let around = ValueHome { dirs: &self.dirs, pending_deletions: &self.pending_deletions, readers: &self.readers };
        let mut gone = Gone { files: Vec::new(), stored: Vec::new() };
        for (id, place) in &edit.values_placed {
            let own = place.container().unwrap_or(*id);
            let added = edit.files_added.iter().find(|file| file.id == own).copied();
            gone.files.extend(around.place(
                &mut after,
                *id,
                place,
                added.unwrap_or_else(|| manifest.state().file(own)),
            ));
        }
        gone.files.extend(edit.values_removed.iter().filter_map(|file| after.files.remove(file)));
        if !gone.files.is_empty() {
            let needed: BTreeSet<FileId> = after.files.values().map(|entry| entry.stored().id()).collect();
            after.stored.retain(|id, stored| {
                let stays = needed.contains(id);
                gone.stored.extend((!stays).then(|| stored.clone()));
                stays
            });
        }
        self.choose_victims(&mut after);
        Ok(Some(ValuesAfter { files: Arc::new(after), gone }))
    }

    fn choose_victims(&self, values: &mut ValueFiles) {
        let candidates = values.candidates();
        values.file_bytes = candidates.iter().map(|file| file.bytes).sum();
        values.live_bytes = candidates.iter().map(|file| file.live.min(file.bytes)).sum();
        values.reclaimed = values.state.reclaimed_bytes();
        values.victims = self.placement.victims(&candidates, self.garbage_limit());
    }

    /// How much garbage may lie in files of values.
    pub fn garbage_limit(&self) -> GarbageLimit {
        let tuning = &self.settings.tuning;
        GarbageLimit { percent: tuning.garbage_percent, bytes: tuning.garbage_bytes }
    }

    /// Chooses anew what is to be emptied: after the open, when no edit has done so yet.
    pub fn review_victims(&self) {
        let _manifest = self.manifest.lock();
        self.published.update(|now| {
            let mut values = (*now.values).clone();
            self.choose_victims(&mut values);
            now.with(|sources| sources.values = Arc::new(values))
        });
    }

    /// Values of a keyspace lie apart from another size on.
    pub fn set_separation(&self, keyspace: &KeyspaceState, separation: Separation) -> Result<()> {
        self.check_writable()?;
        self.check_poison()?;
        let mut manifest = self.manifest.lock();
        keyspace.check(self.database)?;
        let mut edit = Edit { keyspaces_separated: vec![(keyspace.record.id, separation)], ..Edit::default() };
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)?;
        self.keyspaces.set_separation(keyspace, separation);
        Ok(())
    }
}

/// Versions with addresses that name the files where the values are now, and not those where they were.
pub(crate) struct RefreshedAddresses<'a, S> {
    source: S,
    values: &'a ValueFiles,
    /// Files that were emptied, in order.
    moved: Vec<FileId>,
    /// The present address of the version that the source stands on, if it is another.
    now: Option<Vec<u8>>,
}

impl<'a, S> RefreshedAddresses<'a, S> {
    pub fn new(source: S, values: &'a ValueFiles) -> RefreshedAddresses<'a, S> {
        let is_moved = |(id, entry): (&FileId, &Entry)| matches!(entry, Entry::Moved(_)).then_some(*id);
        RefreshedAddresses { source, values, moved: values.files.iter().filter_map(is_moved).collect(), now: None }
    }
}

impl<S: VersionSource> VersionSource for RefreshedAddresses<'_, S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        self.now = None;
        if !self.source.advance()? {
            return Ok(false);
        }
        let (_, stamp, payload) = self.source.current();
        if !self.moved.is_empty()
            && stamp.kind() == Some(Kind::PutAt)
            && let Some(address) = Address::decode(payload)
            && self.moved.binary_search(&address.file).is_ok()
            // What cannot be read now is not lost by being referenced as it was.
            && let Ok(Some(now)) = self.values.refreshed_address(address)
        {
            let mut payload = Vec::with_capacity(Address::ENCODED_BYTES_MAX);
            now.encode(&mut payload);
            self.now = Some(payload);
        }
        Ok(true)
    }

    fn current(&self) -> VersionRef<'_> {
        let (key, stamp, payload) = self.source.current();
        (key, stamp, self.now.as_deref().unwrap_or(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_before_between_and_behind_extents() {
        const BLOCK: u64 = EXTENT_ALIGN;
        let of = |extents: &[(u64, u64)], len| {
            gaps(extents.iter().map(|(from, to)| (from * BLOCK, to * BLOCK)).collect(), len)
        };
        assert_eq!(of(&[(1, 3)], 2 * BLOCK + 9), []);
        assert_eq!(of(&[(4, 5), (2, 3)], 5 * BLOCK), [(BLOCK, 2 * BLOCK), (3 * BLOCK, 4 * BLOCK)]);
        assert_eq!(of(&[(1, 3)], 6 * BLOCK + 1), [(3 * BLOCK, 7 * BLOCK)]);
    }
}
