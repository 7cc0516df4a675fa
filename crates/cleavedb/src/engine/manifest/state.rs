//! What all edits so far add up to.

use std::collections::{BTreeMap, BTreeSet};

use crate::base::{DirId, FileId, FileKey, FileKind, KeyspaceId, Seqno, verify};
use crate::format::buckets::{Buckets, SEGMENT_LEVEL, buckets_after, keyspace_of};
#[cfg(test)]
use crate::format::edit::Opening;
use crate::format::edit::{Directory, Edit, Openings};
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceRecord};
#[cfg(test)]
use crate::format::keyspace_record::{KeyspaceKind, Separation};
use crate::format::meta::TableMeta;
use crate::format::value_state::ValueState;
use crate::format::values::ValuePlace;
use crate::format::watermarks::Watermarks;

/// The files and numbers of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ManifestState {
    pub keyspaces: BTreeMap<KeyspaceId, KeyspaceRecord>,
    /// Dropped keyspaces of which files may still hold versions, and the last sequence number that may be theirs.
    pub dropped: BTreeMap<KeyspaceId, Seqno>,
    /// The directories of files, but for that of the manifest.
    pub dirs: BTreeMap<DirId, Directory>,
    /// KV devices that were given up without a look at what lies on them: by their paths, the openings that their `OWNER` may have.
    pub devices_left: BTreeMap<String, Openings>,
    /// The directory of the slow tier at the last opening for writing.
    pub slow_dir: DirId,
    /// All files but manifests: logs, tables, and those that values and redirect tables lie in.
    pub files: BTreeMap<FileId, FileKey>,
    /// Logs, and where they end if that is settled.
    pub logs: BTreeMap<FileId, Option<u64>>,
    /// Of logs whose end is not settled: up to where they are durable and needed as a whole, if that is known.
    pub logs_whole: BTreeMap<FileId, u64>,
    /// Tables by level.
    pub tables: BTreeMap<FileId, (u8, TableMeta)>,
    /// The buckets of the delta store.
    pub buckets: Buckets,
    /// Files of values, and what tables name in them and in logs.
    pub values: ValueState,
    /// The file in which the indexes of hash keyspaces are saved, and the first log with newer records.
    pub indexes_saved: Option<(FileId, FileId)>,
    /// How far each consumer of the log's records has got.
    pub watermarks: Watermarks,
    /// Numbers up to here were given out and are durable.
    pub last_seqno: Seqno,
    pub next_file: FileId,
    pub next_keyspace: KeyspaceId,
    /// Tells this database from all others; 0 before the first edit.
    pub database: u64,
    /// Numbers that files of ours may have, as disjoint ranges: first number and end. Each was durable before the first
    /// file with a number from it was made.
    pub reserved: BTreeMap<FileId, FileId>,
    /// The last openings for writing with more than one directory.
    pub openings: Openings,
}

impl Default for ManifestState {
    fn default() -> ManifestState {
        ManifestState {
            keyspaces: BTreeMap::new(),
            dropped: BTreeMap::new(),
            dirs: BTreeMap::new(),
            devices_left: BTreeMap::new(),
            slow_dir: DirId::HOME,
            files: BTreeMap::new(),
            logs: BTreeMap::new(),
            logs_whole: BTreeMap::new(),
            tables: BTreeMap::new(),
            buckets: Buckets::new(),
            values: ValueState::default(),
            indexes_saved: None,
            watermarks: Watermarks::default(),
            last_seqno: Seqno::ZERO,
            next_file: FileId(1),
            next_keyspace: KeyspaceId(1),
            database: 0,
            reserved: BTreeMap::new(),
            openings: Openings::default(),
        }
    }
}

impl ManifestState {
    /// What an edit makes of the values, which are not copied but for what it names.
    ///
    /// # Errors
    /// How the edit contradicts what came before.
    pub fn check(&self, edit: &Edit) -> Result<ValueState, String> {
        let mut added = BTreeSet::new();
        for keyspace in &edit.keyspaces_added {
            let id = keyspace.id;
            let is_new = !self.keyspaces.contains_key(&id) && added.insert(id);
            claim(is_new, || format!("keyspace {} was added twice", id.0))?;
        }
        let dropped: BTreeSet<_> = edit.keyspaces_dropped.iter().map(|(id, _)| *id).collect();
        let mut forgotten = BTreeSet::new();
        for keyspace in &edit.keyspaces_forgotten {
            let known = self.dropped.contains_key(keyspace) || dropped.contains(keyspace);
            claim(known && forgotten.insert(*keyspace), || {
                format!("keyspace {} was forgotten before it was dropped", keyspace.0)
            })?;
        }
        let mut added = BTreeSet::new();
        for log in &edit.logs_added {
            let is_new = !self.logs.contains_key(log) && added.insert(*log);
            claim(is_new, || format!("log {} was added twice", log.0))?;
        }
        let known = |log: &FileId| self.logs.contains_key(log) || added.contains(log);
        for (log, _) in edit.logs_ended.iter().chain(&edit.logs_whole) {
            claim(known(log), || format!("log {} ended before it was added", log.0))?;
        }
        let mut removed = BTreeSet::new();
        for log in &edit.logs_removed {
            claim(known(log) && removed.insert(*log), || format!("log {} was removed before it was added", log.0))?;
        }
        let mut removed = BTreeSet::new();
        for table in &edit.tables_removed {
            let known = self.tables.contains_key(table) && removed.insert(*table);
            claim(known, || format!("table {} was removed before it was added", table.0))?;
        }
        let mut added = BTreeSet::new();
        for (_, meta) in &edit.tables_added {
            let is_new = !self.tables.contains_key(&meta.id) || removed.contains(&meta.id);
            claim(is_new && added.insert(meta.id), || format!("table {} was added twice", meta.id.0))?;
        }
        self.check_files(edit)?;
        let is_segment = |id: &FileId| self.tables.get(id).is_some_and(|(level, _)| *level == SEGMENT_LEVEL);
        if edit.concerns_buckets() || edit.tables_removed.iter().any(is_segment) {
            buckets_after(&self.buckets, &self.tables, edit)?;
        }
        let placed = edit.keyspaces_placed.iter().map(|(id, _)| id);
        let separated = edit.keyspaces_separated.iter().map(|(id, _)| id).chain(placed);
        let added = |id: &KeyspaceId| edit.keyspaces_added.iter().any(|keyspace| keyspace.id == *id);
        for keyspace in separated {
            let known = self.keyspaces.contains_key(keyspace) || added(keyspace);
            claim(known, || format!("keyspace {} was changed before it was added", keyspace.0))?;
        }
        let mut reserved = self.reserved.clone();
        for (from, end) in &edit.files_reserved {
            claim(reserve(&mut reserved, *from, *end), || {
                format!("file numbers {} to {} were reserved twice", from.0, end.0 - 1)
            })?;
        }
        let mut values = self.values.clone();
        if edit.concerns_values() || !edit.values_removed.is_empty() {
            values.apply(edit)?;
        }
        Ok(values)
    }

    /// Each file must be added, once and for one purpose, with or before what lies in it.
    fn check_files(&self, edit: &Edit) -> Result<(), String> {
        let has_dir = |dir: DirId| {
            dir == DirId::HOME || self.dirs.contains_key(&dir) || edit.dirs_added.iter().any(|(id, _)| *id == dir)
        };
        let dirs = edit.files_added.iter().chain(&edit.files_moved).map(|file| file.dir).chain(edit.slow_dir);
        for dir in dirs {
            claim(has_dir(dir), || format!("directory {} is used before it was added", dir.0))?;
        }
        for dir in &edit.dirs_removed {
            let slow = edit.slow_dir.unwrap_or(self.slow_dir);
            let is_used = slow == *dir || self.files.values().any(|file| file.dir == *dir);
            claim(self.dirs.contains_key(dir) && !is_used, || format!("directory {} was removed in use", dir.0))?;
        }
        for file in &edit.files_moved {
            let known = self.files.get(&file.id).is_some_and(|known| known.kind == file.kind);
            claim(known, || format!("file {} was moved before it was added", file.id.0))?;
        }
        let mut added = BTreeMap::new();
        for file in &edit.files_added {
            let known = self.files.get(&file.id).or_else(|| added.get(&file.id));
            claim(known.is_none_or(|known| known == file), || format!("file {} was added twice", file.id.0))?;
            added.insert(file.id, *file);
        }
        let tables = edit.tables_added.iter().map(|(_, meta)| (FileKind::Table, meta.id));
        let logs = edit.logs_added.iter().map(|log| (FileKind::Log, *log));
        let values = edit.values_placed.iter().map(|(id, place)| stored_in(*id, place));
        let indexes = edit.indexes_saved.map(|(file, _)| (FileKind::Index, file));
        for (kind, id) in tables.chain(logs).chain(values).chain(indexes) {
            let known = self.files.get(&id).or_else(|| added.get(&id));
            claim(known.is_some_and(|known| known.kind == kind), || {
                format!("file {} is used before it was added as a {kind:?}", id.0)
            })?;
        }
        Ok(())
    }

    /// Applies an edit; says what is wrong, and changes nothing, if it contradicts what came before.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), String> {
        let values = self.check(edit)?;
        self.apply_checked(edit, values);
        Ok(())
    }

    /// Applies an edit that was checked just now; `values` came of that.
    pub fn apply_checked(&mut self, edit: &Edit, values: ValueState) {
        self.keyspaces.extend(edit.keyspaces_added.iter().map(|keyspace| (keyspace.id, keyspace.clone())));
        for (keyspace, separation) in &edit.keyspaces_separated {
            self.keyspaces.entry(*keyspace).and_modify(|record| record.separation = *separation);
        }
        for (keyspace, deltas) in &edit.keyspaces_placed {
            self.keyspaces.entry(*keyspace).and_modify(|record| record.deltas = *deltas);
        }
        for (keyspace, seqno) in &edit.keyspaces_dropped {
            // A full state names keyspaces that were dropped before it was written.
            self.keyspaces.remove(keyspace);
            self.dropped.insert(*keyspace, *seqno);
        }
        for keyspace in &edit.keyspaces_forgotten {
            self.dropped.remove(keyspace);
        }
        let maybe_gone = self.maybe_unused(edit);
        self.dirs.extend(edit.dirs_added.iter().cloned());
        self.dirs.retain(|dir, _| !edit.dirs_removed.contains(dir));
        for (_, taken) in &edit.dirs_added {
            self.devices_left.remove(&taken.path);
        }
        self.devices_left.extend(edit.devices_left.iter().cloned());
        self.slow_dir = edit.slow_dir.unwrap_or(self.slow_dir);
        self.files.extend(edit.files_added.iter().chain(&edit.files_moved).map(|file| (file.id, *file)));
        self.logs.extend(edit.logs_added.iter().map(|log| (*log, None)));
        self.logs.extend(edit.logs_ended.iter().map(|(log, end)| (*log, Some(*end))));
        for log in &edit.logs_removed {
            self.logs.remove(log);
        }
        for table in &edit.tables_removed {
            self.tables.remove(table);
        }
        self.values = values;
        for (file, _) in &edit.values_placed {
            // A log that holds values only has left the front.
            self.logs.remove(file);
        }
        for (log, whole) in &edit.logs_whole {
            let known = self.logs_whole.entry(*log).or_default();
            *known = (*known).max(*whole);
        }
        let logs = &self.logs;
        self.logs_whole.retain(|log, _| logs.get(log) == Some(&None));
        self.tables.extend(edit.tables_added.iter().map(|(level, meta)| (meta.id, (*level, meta.clone()))));
        for lower in &edit.buckets_removed {
            self.buckets.remove(lower);
        }
        self.buckets.extend(edit.buckets_set.iter().cloned());
        self.indexes_saved = edit.indexes_saved.or(self.indexes_saved);
        for file in maybe_gone {
            if !self.is_used(file) {
                self.files.remove(&file);
            }
        }
        self.watermarks.raise_all(&edit.watermarks);
        self.last_seqno = edit.last_seqno.map_or(self.last_seqno, |last| last.max(self.last_seqno));
        self.next_file = edit.next_file.map_or(self.next_file, |next| next.max(self.next_file));
        self.database = edit.database.unwrap_or(self.database);
        self.next_keyspace = edit.next_keyspace.map_or(self.next_keyspace, |next| next.max(self.next_keyspace));
        for (from, end) in &edit.files_reserved {
            reserve(&mut self.reserved, *from, *end);
        }
        self.openings = edit.openings.unwrap_or(self.openings);
        verify!(self.files.keys().all(|file| self.is_used(*file)), "the manifest has files in which nothing lies");
    }

    /// The dropped keyspaces that nothing can hold versions of after an edit: all logs that may have some are consumed, and
    /// no table spans their keys, and they have no bucket.
    pub fn keyspaces_gone_after(&self, edit: &Edit) -> Vec<KeyspaceId> {
        let dropped =
            self.dropped.iter().map(|(id, seqno)| (*id, *seqno)).chain(edit.keyspaces_dropped.iter().copied());
        let consumed = self.watermarks.raised(&edit.watermarks).least();
        let has_table = |keyspace: KeyspaceId| {
            let (start, end) = (keyspace.prefix(), keyspace.0.saturating_add(1).to_be_bytes());
            let spans = |meta: &TableMeta| meta.overlaps(&start, &end);
            let in_level = |level: u8, meta: &TableMeta| level != SEGMENT_LEVEL && spans(meta);
            let stays = |id: &FileId| !edit.tables_removed.contains(id);
            self.tables.iter().any(|(id, (level, meta))| in_level(*level, meta) && stays(id))
                || edit.tables_added.iter().any(|(level, meta)| in_level(*level, meta))
                || self
                    .buckets
                    .keys()
                    .any(|lower| keyspace_of(lower) == Some(keyspace) && !edit.buckets_removed.contains(lower))
                || edit.buckets_set.iter().any(|(lower, _)| keyspace_of(lower) == Some(keyspace))
        };
        let gone = dropped.filter(|(keyspace, seqno)| *seqno <= consumed && !has_table(*keyspace));
        gone.map(|(keyspace, _)| keyspace).collect()
    }

    /// The files in which nothing may lie after an edit: those that it empties, and those that it adds, because it may
    /// remove again what it places.
    fn maybe_unused(&self, edit: &Edit) -> BTreeSet<FileId> {
        let placed = edit.values_placed.iter().map(|(file, _)| file);
        let replaced = placed.clone().chain(&edit.values_removed);
        let replaced = replaced.filter_map(|file| Some(stored_in(*file, self.values.places.get(file)?).1));
        let containers = edit.values_placed.iter().map(|(file, place)| stored_in(*file, place).1);
        let added = edit.files_added.iter().map(|file| file.id).chain(containers);
        let replaced =
            replaced.chain(self.indexes_saved.filter(|_| edit.indexes_saved.is_some()).map(|(file, _)| file));
        let emptied = edit.logs_removed.iter().chain(&edit.tables_removed).chain(placed).copied();
        replaced.chain(added).chain(emptied).collect()
    }

    /// The end of the reserved range that the number lies in: only such a file can be ours.
    pub fn reserved_end(&self, id: FileId) -> Option<FileId> {
        let (_, end) = self.reserved.range(..=id).next_back()?;
        Some(*end).filter(|end| id < *end)
    }

    /// The file with this id.
    pub fn file(&self, id: FileId) -> FileKey {
        *self.files.get(&id).expect("whatever the manifest names has been added as a file")
    }

    /// The files in a directory.
    pub fn files_in(&self, dir: DirId) -> impl Iterator<Item = FileKey> {
        self.files.values().copied().filter(move |file| file.dir == dir)
    }

    /// A copy of all this in one directory.
    pub fn in_one_directory(self) -> ManifestState {
        let files = self.files.values().map(|file| (file.id, FileKey { dir: DirId::HOME, ..*file })).collect();
        let (dirs, devices_left) = (BTreeMap::new(), BTreeMap::new());
        ManifestState { files, dirs, devices_left, slow_dir: DirId::HOME, openings: Openings::default(), ..self }
    }

    /// The file on storage in which a file of values has its place.
    pub fn value_file(&self, id: FileId, place: &ValuePlace) -> FileKey {
        self.file(stored_in(id, place).1)
    }

    /// Leaves out files in which nothing lies, after a change that was not made by an edit.
    pub fn forget_unused_files(&mut self) {
        let (logs, tables, values) = (&self.logs, &self.tables, &self.values);
        let indexes = self.indexes_saved.map(|(file, _)| file);
        let is_used = |id: &FileId| logs.contains_key(id) || tables.contains_key(id) || values.is_container(*id);
        self.files.retain(|id, _| is_used(id) || indexes == Some(*id));
    }

    /// Something lies in the file.
    fn is_used(&self, id: FileId) -> bool {
        let is_index = self.indexes_saved.is_some_and(|(file, _)| file == id);
        self.logs.contains_key(&id) || self.tables.contains_key(&id) || self.values.is_container(id) || is_index
    }

    /// One edit that leads from nothing to this state.
    pub fn to_edit(&self) -> Edit {
        let placed = self.keyspaces.values().filter(|record| record.deltas != DeltaPlacement::default());
        let placed = placed.map(|record| (record.id, record.deltas));
        Edit {
            keyspaces_added: self.keyspaces.values().cloned().collect(),
            keyspaces_placed: placed.collect(),
            buckets_set: self.buckets.iter().map(|(lower, extents)| (lower.clone(), extents.clone())).collect(),
            keyspaces_dropped: self.dropped.iter().map(|(id, seqno)| (*id, *seqno)).collect(),
            dirs_added: self.dirs.iter().map(|(dir, directory)| (*dir, directory.clone())).collect(),
            devices_left: self.devices_left.iter().map(|(path, openings)| (path.clone(), *openings)).collect(),
            slow_dir: (self.slow_dir != DirId::HOME).then_some(self.slow_dir),
            files_added: self.files.values().copied().collect(),
            logs_added: self.logs.keys().copied().collect(),
            logs_ended: self.logs.iter().filter_map(|(id, end)| Some((*id, (*end)?))).collect(),
            logs_whole: self.logs_whole.iter().map(|(id, whole)| (*id, *whole)).collect(),
            tables_added: self.tables.values().cloned().collect(),
            indexed: self.values.indexed.iter().copied().collect(),
            indexes_saved: self.indexes_saved,
            // Those with higher numbers first, so that what has moved has somewhere to go.
            values_placed: self.values.places.iter().rev().map(|(file, place)| (*file, place.clone())).collect(),
            referenced: self.values.referenced.clone(),
            reorder_credit: self.values.credit_to_store(),
            watermarks: self.watermarks.clone(),
            last_seqno: Some(self.last_seqno),
            next_file: Some(self.next_file),
            next_keyspace: Some(self.next_keyspace),
            database: (self.database != 0).then_some(self.database),
            files_reserved: self.reserved.iter().map(|(from, end)| (*from, *end)).collect(),
            openings: (self.openings != Openings::default()).then_some(self.openings),
            ..Edit::default()
        }
    }
}

/// Kind and number of the file on storage in which a file of values has its place.
fn stored_in(id: FileId, place: &ValuePlace) -> (FileKind, FileId) {
    match place {
        ValuePlace::Log { .. } => (FileKind::Log, id),
        ValuePlace::Extent { segment, .. } => (FileKind::Segment, *segment),
        ValuePlace::Moved { redirect, .. } => (FileKind::Redirect, *redirect),
    }
}

/// Adds a range, joined with its neighbours; false, and nothing done, if some of it is there.
fn reserve(ranges: &mut BTreeMap<FileId, FileId>, mut from: FileId, mut end: FileId) -> bool {
    let before = ranges.range(..end).next_back().map(|(from, end)| (*from, *end));
    if from >= end || before.is_some_and(|(_, end)| end > from) {
        return false;
    }
    if let Some((start, _)) = before.filter(|(_, end)| *end == from) {
        from = start;
    }
    if let Some(end_of_next) = ranges.remove(&end) {
        end = end_of_next;
    }
    ranges.insert(from, end);
    true
}

fn claim(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::group::{Group, HashGroup};
    use crate::format::values::{Moved, Temperature};

    fn log(id: u64) -> FileKey {
        FileKey { kind: FileKind::Log, id: FileId(id), dir: DirId::HOME }
    }

    #[test]
    fn a_state_survives_being_written_as_one_edit() {
        let mut state = ManifestState::default();
        let keyspace = KeyspaceRecord {
            id: KeyspaceId(1),
            kind: KeyspaceKind::Ordered,
            name: "a".into(),
            operator: None,
            compression: None,
            separation: Separation::Never,
            deltas: DeltaPlacement::Levels,
        };
        let edit = Edit {
            keyspaces_added: vec![keyspace],
            keyspaces_placed: vec![(KeyspaceId(1), DeltaPlacement::Buckets)],
            buckets_set: vec![(b"\0\0\0\x01".to_vec(), Vec::new())],
            keyspaces_dropped: vec![(KeyspaceId(9), Seqno(5))],
            files_added: vec![log(3), log(4)],
            logs_added: vec![FileId(3), FileId(4)],
            logs_ended: vec![(FileId(3), 8192)],
            logs_whole: vec![(FileId(4), 4096)],
            last_seqno: Some(Seqno(10)),
            next_file: Some(FileId(5)),
            dirs_added: vec![(DirId(2), Directory { path: "/slow".into(), since: 1 })],
            devices_left: vec![("kv-device:0a".into(), Openings::default())],
            slow_dir: Some(DirId(2)),
            files_reserved: vec![(FileId(1), FileId(5)), (FileId(20), FileId(30)), (FileId(5), FileId(7))],
            openings: Some(Openings { present: Opening { epoch: 2, nonce: 9 }, previous: Opening::default() }),
            ..Edit::default()
        };
        state.apply(&edit).unwrap();
        let mut again = ManifestState::default();
        again.apply(&state.to_edit()).unwrap();
        assert_eq!(again, state);
        // A device that is taken again is no longer one that was left.
        let taken = Directory { path: "kv-device:0a".into(), since: 3 };
        state.apply(&Edit { dirs_added: vec![(DirId(3), taken)], ..Edit::default() }).unwrap();
        assert!(state.devices_left.is_empty() && state.in_one_directory().dirs.is_empty());
    }

    #[test]
    fn a_file_that_one_edit_adds_and_empties_is_forgotten() {
        let file = |kind, id| FileKey { kind, id: FileId(id), dir: DirId::HOME };
        let extent = |segment| ValuePlace::Extent {
            segment: FileId(segment),
            start: 0,
            end: 4096,
            group: Group::Hash(HashGroup::of(u64::MAX, 7)),
            temperature: Temperature::Cold,
        };
        let mut state = ManifestState::default();
        // A collection of which all copies are dead by the time of its edit, beside one that is not.
        let edit = Edit {
            files_added: vec![file(FileKind::Segment, 5), file(FileKind::Segment, 6), log(7)],
            values_placed: vec![(FileId(10), extent(5)), (FileId(11), extent(6)), (FileId(12), extent(5))],
            values_removed: vec![FileId(10), FileId(12)],
            logs_added: vec![FileId(7)],
            logs_removed: vec![FileId(7)],
            ..Edit::default()
        };
        state.apply(&edit).unwrap();
        assert_eq!(state.files.keys().collect::<Vec<_>>(), [&FileId(6)]);
        // A log of the front of which the values have moved.
        let edit = Edit { files_added: vec![log(8)], logs_added: vec![FileId(8)], ..Edit::default() };
        state.apply(&edit).unwrap();
        let moved = ValuePlace::Moved {
            redirect: FileId(9),
            start: 0,
            len: 4096,
            reachable: 1,
            saved: None,
            to: [(FileId(11), Moved { records: 1, bytes: 1 })].into(),
        };
        let edit = Edit {
            files_added: vec![file(FileKind::Redirect, 9)],
            values_placed: vec![(FileId(8), moved)],
            ..Edit::default()
        };
        state.apply(&edit).unwrap();
        assert_eq!(state.files.keys().collect::<Vec<_>>(), [&FileId(6), &FileId(9)]);
    }

    #[test]
    fn reserved_ranges_are_joined_and_tell_which_numbers_are_ours() {
        let mut ranges = BTreeMap::new();
        let mut add = |from, end| reserve(&mut ranges, FileId(from), FileId(end));
        assert!(add(10, 20) && add(40, 50) && add(30, 40));
        for (from, end) in [(19, 21), (10, 11), (5, 11), (0, 100), (35, 36), (49, 60), (30, 50), (7, 7)] {
            assert!(!add(from, end), "{from}..{end}");
        }
        assert!(add(20, 30) && add(1, 10) && add(60, 61));
        assert_eq!(ranges, BTreeMap::from([(FileId(1), FileId(50)), (FileId(60), FileId(61))]));
        let state = ManifestState { reserved: ranges, ..ManifestState::default() };
        let end = |id| state.reserved_end(FileId(id)).map(|end| end.0);
        assert_eq!([0, 1, 49, 50, 59, 60, 61].map(end), [None, Some(50), Some(50), None, None, Some(61), None]);
    }

    #[test]
    fn edits_that_contradict_history_are_refused() {
        let removed = Edit { tables_removed: vec![FileId(1)], ..Edit::default() };
        assert!(ManifestState::default().apply(&removed).is_err());
        let ended = Edit { logs_ended: vec![(FileId(1), 1)], ..Edit::default() };
        assert!(ManifestState::default().apply(&ended).is_err());
        for twice in [
            Edit { files_added: vec![log(1)], logs_added: vec![FileId(1), FileId(1)], ..Edit::default() },
            Edit {
                files_added: vec![log(1)],
                logs_added: vec![FileId(1)],
                logs_removed: vec![FileId(1), FileId(1)],
                ..Edit::default()
            },
            Edit { logs_added: vec![FileId(1)], ..Edit::default() },
            Edit {
                files_added: vec![log(1), FileKey { dir: DirId(2), ..log(1) }],
                logs_added: vec![FileId(1)],
                ..Edit::default()
            },
        ] {
            let mut state = ManifestState::default();
            assert!(state.apply(&twice).is_err());
            assert_eq!(state, ManifestState::default(), "nothing of it was applied");
        }
    }
}
