//! Values apart from their keys, as the database sees them: which files hold them, what an edit changes in that, and
//! addresses that are brought up to date as compactions pass them by.

use std::path::Path;
use std::sync::Arc;

use super::core::Core;
use super::files::{log_name, redirect_name, segment_name};
use super::keyspace::KeyspaceState;
use super::manifest::{Manifest, ManifestState};
use super::view::View;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, Error, FileId, Kind, Result};
use crate::format::edit::{Edit, Separation};
use crate::format::values::ValuePlace;
use crate::io::trash::{FileGuard, Trash};
use crate::levels::readers::Readers;
use crate::values::files::{Entry, ValueFiles};
use crate::values::redirect::Redirect;
use crate::values::stale::Hops;
use crate::values::value_file::{Layout, ValueFile};
use crate::values::victim::{Allowance, choose};

/// The files of values that the manifest names. Each must be there, and as long as it says.
pub(super) fn open_values(
    fast: &Path,
    slow: &Path,
    state: &ManifestState,
    trash: &Arc<Trash>,
    readers: &Arc<Readers>,
) -> Result<ValueFiles> {
    let mut values = ValueFiles { state: state.values.clone(), ..ValueFiles::default() };
    for (id, place) in &state.values.places {
        let entry = entry(*id, *place, fast, slow, trash, readers);
        let (path, len) = match (&entry, place) {
            (Entry::Moved(redirect), _) => (redirect.path().clone(), redirect.len()),
            (Entry::Here(file), _) => (file.path().clone(), file.end()),
        };
        match readers.storage.file_len(&path)? {
            None => return Err(Error::corruption(&path, 0, "the manifest names this file, but it is missing")),
            Some(found) if found < len => {
                let message = format!("the file is {found} B long, and the manifest says {len} B");
                return Err(Error::corruption(&path, found, message));
            }
            Some(_) => {}
        }
        values.files.insert(*id, entry);
    }
    Ok(values)
}

fn entry(id: FileId, place: ValuePlace, fast: &Path, slow: &Path, trash: &Arc<Trash>, readers: &Arc<Readers>) -> Entry {
    let guard = |path| FileGuard::new(path, trash.clone());
    let file = |layout, end, path| {
        let guard = guard(path);
        let handle = readers.handles.handle(guard.path().clone());
        Entry::Here(Arc::new(ValueFile::new(id, layout, end, guard, handle)))
    };
    match place {
        ValuePlace::Log { end } => file(Layout::Log, end, fast.join(log_name(id))),
        ValuePlace::Segment { end } => file(Layout::Segment, end, slow.join(segment_name(id))),
        ValuePlace::Moved { redirect, len, to } => {
            let guard = guard(slow.join(redirect_name(redirect)));
            let handle = readers.handles.handle(guard.path().clone());
            Entry::Moved(Arc::new(Redirect::new(redirect, to, len, guard, handle, readers.cache.clone())))
        }
    }
}

/// The files of values as an edit leaves them.
pub(super) struct ValuesAfter {
    pub files: Arc<ValueFiles>,
    /// What the edit takes away; to be doomed once it is committed.
    pub gone: Vec<Entry>,
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
        state.places.retain(|file, _| !edit.values_removed.contains(file));
        let mut files = self.published.view().values.files.clone();
        let mut gone = Vec::new();
        for (id, place) in &edit.values_placed {
            let entry = entry(*id, *place, &self.fast, &self.slow, &self.trash, &self.readers);
            gone.extend(files.insert(*id, entry));
        }
        gone.extend(edit.values_removed.iter().filter_map(|file| files.remove(file)));
        let mut after = ValueFiles { files, state, ..ValueFiles::default() };
        self.choose_victims(&mut after);
        Ok(Some(ValuesAfter { files: Arc::new(after), gone }))
    }

    fn choose_victims(&self, values: &mut ValueFiles) {
        let candidates = values.candidates();
        values.file_bytes = candidates.iter().map(|file| file.bytes).sum();
        values.live_bytes = candidates.iter().map(|file| file.live.min(file.bytes)).sum();
        values.victims = choose(&candidates, self.allowance(), self.settings.tuning.log_bytes);
    }

    /// How much garbage may lie in files of values.
    pub fn allowance(&self) -> Allowance {
        let tuning = &self.settings.tuning;
        Allowance { percent: tuning.garbage_percent, bytes: tuning.garbage_bytes }
    }

    /// Chooses anew what is to be emptied: after the open, when no edit has done so yet.
    pub fn review_victims(&self) {
        let _manifest = self.manifest.lock();
        self.published.update(|now| {
            let mut values = (*now.values).clone();
            self.choose_victims(&mut values);
            View { values: Arc::new(values), ..now.clone() }
        });
    }

    /// Looks which tables below HL0 have addresses out of date, and has those written anew for which it is worth it. HL0 is
    /// written anew in any case. A small read for each table, if values have moved at all.
    pub fn look_for_stale(&self) {
        let view = self.published.view();
        let moved = view.values.files.iter().filter_map(|(id, entry)| match entry {
            Entry::Moved(redirect) => Some((*id, redirect.to())),
            Entry::Here(_) => None,
        });
        let hops = Hops::new(moved);
        let mut tables = Vec::new();
        if !hops.is_empty() {
            for table in view.version.levels()[1..].iter().flat_map(|level| level.tables().iter()) {
                // Whoever needs a table that cannot be read will say so.
                let names = table.names().unwrap_or_default();
                tables.push(hops.naming(table.meta().id, table.meta().size, &names));
            }
        }
        let files = view.values.files.len() - hops.len();
        self.work.lock().stale = hops.choose(tables, files, self.settings.tuning.stale_percent);
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
pub(super) struct Healed<'a, S> {
    source: S,
    values: &'a ValueFiles,
    /// The present address of the version that the source stands on, if it is another.
    now: Option<Vec<u8>>,
}

impl<'a, S> Healed<'a, S> {
    pub fn new(source: S, values: &'a ValueFiles) -> Healed<'a, S> {
        Healed { source, values, now: None }
    }
}

impl<S: VersionSource> VersionSource for Healed<'_, S> {
    fn advance(&mut self) -> Result<bool> {
        self.now = None;
        if !self.source.advance()? {
            return Ok(false);
        }
        let (_, stamp, payload) = self.source.current();
        if stamp.kind() == Some(Kind::PutAt)
            && let Some(address) = Address::decode(payload)
            // What cannot be read now is not lost by being named as it was.
            && let Ok(Some(now)) = self.values.healed(address)
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
