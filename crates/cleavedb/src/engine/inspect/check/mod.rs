//! The check of a closed database: verifies every checksum, and that manifest, tables and logs agree. Nothing is
//! changed, and the database cannot be opened for writing meanwhile.
//!
//! Problems are listed, not returned as errors, so that one damaged block does not hide the next. Without a readable
//! manifest, tables and logs are checked individually.

mod values;

use crate::engine::manifest::numbered_files::Numbered;
use crate::engine::manifest::numbered_files::list_numbered;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::limits::MEMORY_BUDGET_MIN;
use crate::base::{DirId, Error, FileId, FileKind, KeyspaceId, Result, Seqno};
use crate::deltas::directory::Directory;
use crate::engine::inspect::check::values::{DeadVersion, Judged, judge};
use crate::engine::manifest::file_names::{CURRENT, CURRENT_NEW, LOCK, OWNER, name};
use crate::engine::manifest::files::{DeclaredDirs, Dirs};
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::recovery::directories::{directories_as_stored, find_directories};
use crate::engine::recovery::indexes::{Indexes, read_indexes};
use crate::engine::recovery::ownership::{FileClaim, claim_of};
use crate::engine::recovery::replay::{read_ring, recover};
use crate::engine::tuning::sizes::Tuning;
use crate::format::buckets::SEGMENT_LEVEL;
use crate::format::keyspace_record::KeyspaceKind;
use crate::format::meta::TableMeta;
use crate::format::references::References;
use crate::front::log_check::{LogPlace, check_log};
use crate::io::pending_deletions::PendingDeletions;
use crate::io::read_only::ReadOnlyStorage;
use crate::io::{Access, Lock, Storage};
use crate::levels::table_check::{CheckContext, check_table};
use crate::levels::table_file::TableFile;
use crate::levels::version::LEVELS_MAX;
use crate::values::files::ValueFiles;

/// Keys of one index that are reported because their saved records are not those of the logs.
const DIFFERENCES_MAX: usize = 10;
/// Maximum number of files that the check holds open.
const OPEN_FILES: usize = 16;

/// The result of a check. See [`check`](crate::check).
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// Damage and contradictions.
    pub problems: Vec<Problem>,
    /// Remarks that are no damage, such as files left by a crash, or a database that was not closed.
    pub notes: Vec<String>,
    /// Tables read.
    pub tables: u64,
    /// Versions in them.
    pub versions: u64,
    /// Logs read.
    pub logs: u64,
    /// Segments and redirect tables read.
    pub value_files: u64,
    /// Records in logs and segments.
    pub records: u64,
    /// Bytes of all files read.
    pub bytes: u64,
}

impl Report {
    /// True if there are no problems.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }
}

/// A problem found by a check.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Problem {
    /// The file.
    pub path: PathBuf,
    /// The offset in it, in bytes, if known.
    pub offset: Option<u64>,
    /// The description.
    pub message: String,
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "{}: offset {offset}: {}", self.path.display(), self.message),
            None => write!(f, "{}: {}", self.path.display(), self.message),
        }
    }
}

/// Checks the database in two directories; `path` is the caller's name of the database.
pub(crate) fn check(storage: Arc<dyn Storage>, path: &Path, declared: &DeclaredDirs) -> Result<Report> {
    let missing = || Error::NotFound { what: format!("database {}", path.display()) };
    if !storage.exists(&declared.fast)? {
        return Err(missing());
    }
    let declared_slow = declared.are_apart().then_some(&*declared.slow);
    let mut locks = lock(&*storage, [&*declared.fast].into_iter().chain(declared_slow))?;
    // What is on a device is known once it is locked.
    let device = declared.device.as_deref().map(|device| storage.lock_shared(&device.join(LOCK)));
    locks.extend(device.transpose()?);
    let read = Manifest::read(storage.clone(), &declared.fast, u64::MAX);
    let (mut report, names) = (Report::default(), References::default());
    let dirs = match &read {
        Ok(Some(manifest)) => {
            let dirs = directories(&*storage, manifest.state(), declared, &mut report)?;
            let is_locked = |path: &Path| Some(path) == declared_slow || declared.device.as_deref() == Some(path);
            let former = dirs.others().map(|(_, path)| path).filter(|path| !is_locked(path));
            locks.extend(lock(&*storage, former)?);
            dirs
        }
        _ => directories_as_stored(&ManifestState::default(), declared),
    };
    let mut check = Checker { storage, dirs, report, values: None, names, dead: Vec::new() };
    let files = check.our_files()?;
    match read {
        Ok(None) if files.iter().all(|file| !file.is_file || file.kind == FileKind::Manifest) => return Err(missing()),
        Ok(None) => {
            let current = check.dirs.fast().join(CURRENT);
            check.problem(&current, Some(0), "the file is missing, but there are files of a database");
            check.each_by_itself(&files);
        }
        Ok(Some(manifest)) => {
            check.all(&manifest, &files)?;
        }
        Err(error) => {
            check.note(&error);
            check.each_by_itself(&files);
        }
    }
    Ok(check.report)
}

/// The directories of the database. If a copy of it has used one of them, or one has lost its owner, that is a problem, and
/// what lies there is checked nevertheless.
fn directories(
    storage: &dyn Storage,
    state: &ManifestState,
    declared: &DeclaredDirs,
    report: &mut Report,
) -> Result<Dirs> {
    let error = match find_directories(storage, state, declared, false) {
        Ok(found) => return Ok(found.dirs),
        Err(error) => error,
    };
    let dirs = directories_as_stored(state, declared);
    let is_named = dirs.are_apart() == declared.are_apart();
    let (path, offset, message) = match error {
        Error::InvalidInput { message } if is_named && storage.exists(&dirs.slow().join(OWNER))? => {
            (dirs.slow().join(OWNER), Some(0), message)
        }
        Error::Corruption { path, offset, message } => (path, Some(offset), message),
        Error::Unsupported { path, message } => (path, None, message),
        error => return Err(error),
    };
    report.problems.push(Problem { path, offset, message });
    Ok(dirs)
}

/// Locks out writers. A directory without a lock file has never been opened, or not as a CleaveDB directory.
fn lock<'a>(storage: &dyn Storage, dirs: impl Iterator<Item = &'a Path>) -> Result<Vec<Box<dyn Lock>>> {
    let mut locks = Vec::new();
    for dir in dirs {
        let path = dir.join(LOCK);
        if storage.exists(&path)? {
            locks.push(storage.lock_shared(&path)?);
        }
    }
    Ok(locks)
}

struct Checker {
    storage: Arc<dyn Storage>,
    dirs: Dirs,
    report: Report,
    /// The value files that the manifest references, if all exist.
    values: Option<Arc<ValueFiles>>,
    /// The records that tables reference.
    names: References,
    /// Versions whose values were dead when their files were collected; checked after all tables.
    dead: Vec<DeadVersion>,
}

impl Checker {
    fn problem(&mut self, path: &Path, offset: Option<u64>, message: impl Into<String>) {
        self.report.problems.push(Problem { path: path.to_owned(), offset, message: message.into() });
    }

    /// An error that ends a part of the check is listed as a problem of its file.
    fn note(&mut self, error: &Error) {
        match error {
            Error::Corruption { path, offset, message } => self.problem(path, Some(*offset), message.clone()),
            Error::Unsupported { path, message } => self.problem(path, None, message.clone()),
            Error::Io { path, .. } => self.problem(path, None, error.to_string()),
            other => {
                let path = self.dirs.fast().to_owned();
                self.problem(&path, None, other.to_string());
            }
        }
    }

    /// All files with names of numbered files.
    fn our_files(&self) -> Result<Vec<Numbered>> {
        let mut there = BTreeMap::new();
        for (dir, path) in self.dirs.others() {
            if self.storage.exists(path)? {
                there.insert(dir, path.to_owned());
            }
        }
        list_numbered(&*self.storage, &Dirs::new(self.dirs.fast().to_owned(), DirId::HOME, there))
    }

    /// Checks everything against the manifest.
    fn all(&mut self, manifest: &Manifest, files: &[Numbered]) -> Result<()> {
        let state = manifest.state();
        if manifest.has_tail() {
            self.report.notes.push("the manifest has edits after its last close".to_owned());
        }
        self.numbers(manifest);
        self.values(state);
        for (level, meta) in state.tables.values() {
            let path = self.dirs.path(state.file(meta.id));
            self.table(&path, meta.id, Some((*level, meta)), Some(state));
        }
        self.dead(state);
        self.ledger(manifest);
        self.order_of_tables(state);
        self.buckets(manifest);
        self.logs(state);
        if let Some((file, _)) = state.indexes_saved {
            self.index_file(&self.dirs.path(state.file(file)), file);
        }
        for file in files {
            let path = file.path.display();
            match claim_of(manifest, &self.dirs, file) {
                FileClaim::Referenced => {}
                FileClaim::LeftOver => self.report.notes.push(format!("{path} is left over; the next open removes it")),
                FileClaim::Unknown => {
                    self.report.notes.push(format!("{path} was not made by this database, which leaves it alone"));
                }
            }
        }
        if self.storage.exists(&self.dirs.fast().join(CURRENT_NEW))? {
            self.report.notes.push(format!("{CURRENT_NEW} is left over and unused"));
        }
        Ok(())
    }

    /// Checks tables and logs without a manifest, each by itself.
    fn each_by_itself(&mut self, files: &[Numbered]) {
        for Numbered { path, kind, id, .. } in files.iter().filter(|file| file.is_file) {
            match kind {
                FileKind::Table => self.table(path, *id, None, None),
                FileKind::Log => self.log(path, &LogPlace { id: *id, settled_end: None, ring: None }, &|_| true),
                FileKind::Segment => self.whole_segment(path, *id),
                FileKind::Redirect => drop(self.redirects(path, *id, &mut |_, _| {})),
                FileKind::Index => self.index_file(path, *id),
                FileKind::Manifest => {}
            }
        }
    }

    /// The saved indexes of hash keyspaces, as bytes. [`logs`](Checker::logs) compares what they say with the logs.
    fn index_file(&mut self, path: &Path, id: FileId) {
        if let Err(error) =
            self.storage.open_read(path, Access::Buffered).and_then(|file| read_indexes(&*file, id, |_| ()))
        {
            self.note(&error);
        }
    }

    /// The next ids to allocate must be above all allocated ones.
    fn numbers(&mut self, manifest: &Manifest) {
        let state = manifest.state();
        let path = manifest.path();
        let places = &state.values.places;
        let values = places.keys().copied().chain(places.values().filter_map(|place| place.container()));
        let newest = state.logs.keys().chain(state.tables.keys()).copied().chain(values).max().unwrap_or_default();
        if newest >= state.next_file {
            let message = format!("file {} exists, and the next one would get number {}", newest.0, state.next_file.0);
            self.problem(&path, None, message);
        }
        let newest = state.keyspaces.keys().chain(state.dropped.keys()).max().copied().unwrap_or(KeyspaceId(0));
        if newest >= state.next_keyspace {
            let next = state.next_keyspace.0;
            self.problem(
                &path,
                None,
                format!("keyspace {} exists, and the next one would get number {next}", newest.0),
            );
        }
        let mut names: Vec<&str> = state.keyspaces.values().map(|keyspace| &*keyspace.name).collect();
        names.sort_unstable();
        for pair in names.windows(2).filter(|pair| pair[0] == pair[1]) {
            self.problem(&path, None, format!("two keyspaces are named {:?}", pair[0]));
        }
        for (consumer, seqno) in state.watermarks.iter().filter(|(_, seqno)| *seqno > state.last_seqno) {
            let (consumer, last) = (consumer.name(), state.last_seqno.0);
            let message = format!("the watermark of {consumer} is {}, but only {last} were given out", seqno.0);
            self.problem(&path, None, message);
        }
    }

    fn table(&mut self, path: &Path, id: FileId, named: Option<(u8, &TableMeta)>, state: Option<&ManifestState>) {
        if let Some((level, meta)) = named {
            if level as usize >= LEVELS_MAX && level != SEGMENT_LEVEL {
                self.problem(path, None, format!("the manifest puts this table into level {level}"));
            }
            match self.storage.file_len(path) {
                Ok(Some(len)) if len != meta.size => {
                    let message = format!("the table is {len} B long, but {} B according to the manifest", meta.size);
                    return self.problem(path, Some(len.min(meta.size)), message);
                }
                Ok(Some(_)) => {}
                Ok(None) => return self.problem(path, None, "the manifest references this table, but it is missing"),
                Err(error) => return self.note(&error),
            }
        }
        let opened = self.storage.open_read(path, Access::Buffered).and_then(|file| TableFile::open(file, Some(id)));
        let table = match opened {
            Ok(table) => table,
            Err(error) => return self.note(&error),
        };
        let own = table.meta();
        let agrees = |meta: &TableMeta| {
            // An ingested table is written before its sequence number is known.
            let placed = own.seqno_max == Seqno::ZERO && meta.seqno_min == meta.seqno_max;
            *meta == if placed { own.clone().placed_at(meta.seqno_max) } else { own.clone() }
        };
        if let Some((_, meta)) = named.filter(|(_, meta)| !agrees(meta)) {
            let message = format!(
                "the table holds other versions than the manifest says ({}, not {}, and its numbers go from {} to {})",
                table.properties.entries, meta.entries, table.properties.seqno_min.0, table.properties.seqno_max.0
            );
            self.problem(path, Some(table.footer.properties.offset), message);
        }
        if let Some(state) =
            state.filter(|state| table.properties.seqno_max > state.last_seqno.max(state.watermarks.greatest()))
        {
            let (newest, last) = (table.properties.seqno_max.0, state.last_seqno.0);
            self.problem(path, None, format!("the table holds write {newest}, but only {last} were given out"));
        }
        let values = self.values.clone();
        let values = values.as_deref();
        let (problems, found, dead) = (&mut self.report.problems, &mut self.names, &mut self.dead);
        let dead = RefCell::new(dead);
        let versions = check_table(
            &table,
            path,
            &mut CheckContext {
                knows: &|keyspace| state.is_none_or(|state| may_be_in_tables(state, keyspace)),
                judge: &|key, stamp, address| match judge(state?, values?, key, stamp, address) {
                    Judged::Right => None,
                    Judged::Wrong(why) => Some(why),
                    Judged::Dead => {
                        let version = DeadVersion { path: path.to_owned(), key: key.to_vec(), seqno: stamp.seqno() };
                        dead.borrow_mut().push(version);
                        None
                    }
                },
                references: &mut |references| found.add_all(references),
                problem: &mut |offset, message| problems.push(Problem { path: path.to_owned(), offset, message }),
            },
        );
        self.report.tables += 1;
        self.report.versions += versions;
        self.report.bytes += table.blocks_end();
    }

    /// The ledger must match the references of tables, and no unreferenced value file may be kept.
    fn ledger(&mut self, manifest: &Manifest) {
        let state = manifest.state();
        let path = manifest.path();
        if self.names != state.values.referenced {
            let files: BTreeSet<_> = self.names.0.keys().chain(state.values.referenced.0.keys()).copied().collect();
            for file in files {
                let (found, said) = (self.names.of(file), state.values.referenced.of(file));
                if (found.records, found.bytes) != (said.records, said.bytes) || found.end > said.end {
                    let message = format!(
                        "tables reference {} records ({} B) of file {}, but the ledger has {} ({} B)",
                        found.records, found.bytes, file.0, said.records, said.bytes
                    );
                    self.problem(&path, None, message);
                }
            }
        }
        for file in state.values.unreachable() {
            self.report.notes.push(format!("value file {} is unreferenced; the next edit removes it", file.0));
        }
    }

    /// In HL0, overlapping tables must have disjoint ranges of sequence numbers. In lower levels no two tables may
    /// overlap.
    fn order_of_tables(&mut self, state: &ManifestState) {
        let tables = state.tables.values().map(|(level, meta)| (*level, meta));
        // Delta segments overlap; their buckets list which parts of them count.
        let tables: Vec<(u8, &TableMeta)> = tables.filter(|(level, _)| *level != SEGMENT_LEVEL).collect();
        for (index, (level, table)) in tables.iter().enumerate() {
            let others = tables[index + 1..].iter().filter(|(other, _)| other == level).map(|(_, meta)| *meta);
            for other in others.filter(|other| table.overlaps(&other.smallest, &other.end)) {
                let apart = table.seqno_max < other.seqno_min || other.seqno_max < table.seqno_min;
                if *level > 0 || !apart {
                    let path = self.dirs.path(state.file(other.id));
                    let message = format!("overlaps {} in level {level}", name(FileKind::Table, table.id));
                    self.problem(&path, None, message);
                }
            }
        }
    }

    /// The extents of buckets must lie within their segments.
    fn buckets(&mut self, manifest: &Manifest) {
        let state = manifest.state();
        let directory = Directory::new(state.buckets.clone());
        let mut entries: BTreeMap<FileId, u64> = BTreeMap::new();
        for bucket in directory.buckets() {
            for extent in &bucket.extents {
                *entries.entry(extent.segment).or_default() += extent.entries;
                let fits = state.tables.get(&extent.segment).is_some_and(|(_, meta)| {
                    let within = meta.seqno_min <= extent.seqno_min && extent.seqno_max <= meta.seqno_max;
                    within && meta.reaches_into(&bucket.lower, bucket.upper.as_deref())
                });
                if !fits {
                    let (lower, segment) = (bucket.lower.escape_ascii().to_string(), extent.segment.0);
                    let message = format!("the extent of bucket {lower:?} in segment {segment} does not lie in it");
                    self.problem(&manifest.path(), None, message);
                }
            }
        }
        for (segment, entries) in entries {
            let all = state.tables.get(&segment).map_or(0, |(_, meta)| meta.entries);
            if entries > all {
                let message = format!("segment {} holds {all} versions, but its extents {entries}", segment.0);
                self.problem(&manifest.path(), None, message);
            }
        }
    }

    /// Checks each log by itself; then, if all are undamaged, that they form one history.
    fn logs(&mut self, state: &ManifestState) {
        let before = self.report.problems.len();
        let unsettled = state.logs.values().any(|end| end.is_none());
        let ring = if unsettled { read_ring(&*self.storage, self.dirs.fast()) } else { Ok(None) };
        let ring = ring.unwrap_or_else(|error| {
            self.note(&error);
            None
        });
        for (&id, &settled_end) in &state.logs {
            let path = self.dirs.path(state.file(id));
            let ring = ring.as_deref().filter(|ring| settled_end.is_none() && !ring.is_empty());
            self.log(&path, &LogPlace { id, settled_end, ring }, &|keyspace| knows(state, keyspace));
        }
        if self.report.problems.len() > before {
            return;
        }
        if unsettled {
            self.report.notes.push("the database was not closed; the next open recovers it".to_owned());
        }
        let read_only = ReadOnlyStorage::new(&*self.storage);
        let tuning = Tuning::for_budget(MEMORY_BUDGET_MIN);
        let readers = self.readers();
        let nothing_pending = Arc::new(PendingDeletions::default());
        let recover =
            |state: &ManifestState| recover(&read_only, &self.dirs, state, &tuning, &nothing_pending, &readers, true);
        let (saved, made) = match state.indexes_saved {
            None => (recover(state), None),
            // Without what was saved, the indexes are made from all logs. Both are in memory at once, as at an open.
            Some(_) => {
                let made = recover(&ManifestState { indexes_saved: None, ..state.clone() });
                (recover(state), Some(made))
            }
        };
        let compared = saved.and_then(|saved| Ok((saved.indexes, made.transpose()?.map(|made| made.indexes))));
        match compared {
            Ok((saved, Some(made))) => self.compare_indexes(state, &saved, &made),
            Ok((_, None)) => {}
            Err(error) => self.note(&error),
        }
    }

    /// The indexes that an open has by what was saved must say the same as those that all logs make.
    fn compare_indexes(&mut self, state: &ManifestState, saved: &Indexes, made: &Indexes) {
        let Some((file, _)) = state.indexes_saved else { return };
        let path = self.dirs.path(state.file(file));
        for (keyspace, index) in saved {
            let Some(made) = made.get(keyspace) else { continue };
            for key in index.differences(made, DIFFERENCES_MAX) {
                let key = key.escape_ascii();
                let message =
                    format!("key {key} of keyspace {} is saved with records other than those of the logs", keyspace.0);
                self.problem(&path, None, message);
            }
        }
    }

    fn log(&mut self, path: &Path, place: &LogPlace<'_>, knows: &dyn Fn(KeyspaceId) -> bool) {
        let mut found = Vec::new();
        let checked = match self.storage.file_len(path) {
            Ok(Some(_)) => self
                .storage
                .open_read(path, Access::Buffered)
                .and_then(|file| check_log(&*file, place, knows, &mut |offset, message| found.push((offset, message)))),
            Ok(None) => return self.problem(path, None, "the manifest references this log, but it is missing"),
            Err(error) => Err(error),
        };
        for (offset, message) in found {
            self.problem(path, Some(offset), message);
        }
        match checked {
            Ok(counts) => {
                self.report.logs += 1;
                self.report.records += counts.records;
                self.report.bytes += counts.bytes;
            }
            Err(error) => self.note(&error),
        }
    }
}

/// Versions of the keyspace may be in tables.
fn may_be_in_tables(state: &ManifestState, keyspace: KeyspaceId) -> bool {
    let kind = state.keyspaces.get(&keyspace).map_or(KeyspaceKind::Ordered, |record| record.kind);
    match kind {
        KeyspaceKind::Ordered => knows(state, keyspace),
        KeyspaceKind::Hash => false,
    }
}

/// Versions of dropped keyspaces stay in files for a while, and those of forgotten ones in logs.
fn knows(state: &ManifestState, keyspace: KeyspaceId) -> bool {
    keyspace < state.next_keyspace
}
