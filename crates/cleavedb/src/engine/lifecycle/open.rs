//! Opening and closing a database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::db::{Db, DbInner};
use crate::api::options::Options;
use crate::base::panics::guard_panic;
use crate::base::{Error, FileId, KeyspaceId, Result};
use crate::cache::block_cache::BlockCache;
use crate::engine::core::{Core, CoreParts};
use crate::engine::events::Events;
use crate::engine::inspect::telemetry;
use crate::engine::keyspaces::{DEFAULT_ID, DEFAULT_NAME, Keyspaces};
use crate::engine::lifecycle::recovery::recover;
use crate::engine::manifest::file_names::{CURRENT, FileKind, LOCK, OWNER, manifest_name, parse, table_name};
use crate::engine::manifest::{Manifest, ManifestState, usable};
use crate::engine::memory::Memory;
use crate::engine::tuning::settings::Settings;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::value_files::{ValueHome, give_back_gaps, open_values};
use crate::engine::view::View;
use crate::engine::write::reserve::Reserve;
use crate::format::compression::Compression;
use crate::format::edit::{Edit, KeyspaceRecord, Separation};
use crate::format::frame::LOG_HEADER_BYTES;
use crate::format::values::ValuePlace;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::io::handles::Handles;
use crate::io::pending_deletions::{FileGuard, PendingDeletions};
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Lock, Storage, read_whole};
use crate::levels::readers::Readers;
use crate::levels::table::Table;
use crate::levels::version::{LEVELS_MAX, Version};

/// Closing flushes if there are more logs than this, so that they do not cluster up over short sessions.
const LOGS_LEFT_MAX: usize = 4;

/// Opens or makes a database.
pub(crate) fn open(storage: Arc<dyn Storage>, path: &Path, options: Options, tuning: Option<Tuning>) -> Result<Db> {
    options.check()?;
    let memory_budget = options.resolve_budget();
    let mut tuning = match tuning {
        Some(tuning) => tuning,
        None => {
            Tuning::for_options(memory_budget, options.block_size, options.filter_bits, options.background_threads)?
        }
    };
    tuning.separation_bytes = options.separation.bytes(tuning.separation_bytes);
    options.values.iter().for_each(|values| values.tune(&mut tuning));
    let open_files_max = options.resolve_open_files(storage.open_files_limit())?.min(tuning.open_files_max);
    let fast = options.fast_dir.clone().unwrap_or_else(|| path.to_owned());
    let slow = options.slow_dir.clone().unwrap_or_else(|| path.to_owned());
    if (!options.create_if_missing || options.read_only) && !storage.exists(&fast.join(CURRENT))? {
        return Err(Error::NotFound { what: format!("database {}", path.display()) });
    }
    let locks = take_locks(&*storage, &fast, &slow, options.read_only)?;
    let mut manifest = match options.read_only {
        true => Manifest::read(storage.clone(), &fast, tuning.manifest_bytes)?
            .ok_or_else(|| Error::NotFound { what: format!("database {}", path.display()) })?,
        false => read_or_make_manifest(&storage, &fast, &slow, &tuning)?,
    };
    check_layout(&*storage, manifest.state(), &fast, &slow)?;
    if slow != fast {
        check_owner(&*storage, &slow, &mut manifest, options.read_only)?;
    }
    let pending_deletions = Arc::new(PendingDeletions::default());
    let access = if options.direct_io { Access::Direct } else { Access::Buffered };
    if options.direct_io {
        // Both are there by now, one or the other in the directory of the tables.
        storage.open_read(&slow.join(if slow == fast { CURRENT } else { OWNER }), access)?;
    }
    let memory = Memory::new(&tuning);
    let readers = Arc::new(Readers {
        handles: Arc::new(Handles::new(storage.clone(), access, open_files_max)),
        storage: storage.clone(),
        cache: Arc::new(BlockCache::new(tuning.cache_bytes)),
        ahead: ReadAhead::new(tuning.read_ahead_bytes, memory.jobs.clone()),
        scan_ahead: ReadAhead::new(tuning.read_ahead_bytes, memory.scans.clone()),
        jobs: memory.jobs.clone(),
        resident: Arc::default(),
    });
    check_keyspace_compression(&fast, &manifest)?;
    let version = open_tables(&slow, manifest.state(), &pending_deletions, &readers)?;
    let recovered = recover(&*storage, &fast, manifest.state(), &tuning, &pending_deletions, options.read_only)?;
    let reserve = Reserve::new(storage.clone(), &fast, &slow, &tuning);
    if !options.read_only {
        remove_never_named(&*storage, &fast, &slow, &manifest)?;
        if let Some(edit) = &recovered.edit {
            reserve.with(|| commit_before_start(&mut manifest, edit))?;
        }
        reserve.with(|| remove_unknown(&*storage, &fast, &slow, &mut manifest, recovered.edit.is_some()))?;
    }

    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let database = DATABASES.fetch_add(1, Ordering::Relaxed);
    let state = manifest.state();
    let records = state.keyspaces.values().cloned();
    let keyspaces =
        Keyspaces::new(records, state.dropped.clone(), options.operators.clone(), database, tuning.separation_bytes);
    let mut tables = recovered.tables.into_iter();
    let around = ValueHome { fast: &fast, slow: &slow, pending_deletions: &pending_deletions, readers: &readers };
    let values = open_values(&around, state)?;
    if !options.read_only {
        give_back_gaps(&values, &pending_deletions);
    }
    let view = View {
        active: tables.next().unwrap_or_else(|| Arc::new(IndexTable::new())),
        sealed: tables.collect(),
        runs: Vec::new(),
        version: Arc::new(version),
        logs: Arc::new(recovered.logs),
        values: Arc::new(values),
    };
    let flushed = state.flushed;
    let settings = Settings {
        memory_budget,
        durability: options.durability,
        compression: options.compression,
        compression_by_level: options.compression_by_level,
        block_size: options.block_size,
        filter_bits: options.filter_bits,
        background_threads: options.background_threads,
        read_only: options.read_only,
        tuning,
    };
    let events = Events::new(options.listeners.into_iter().chain(telemetry::listener(&fast)).collect())?;
    let core = Arc::new(Core::new(CoreParts {
        storage,
        fast,
        slow,
        settings,
        database,
        view,
        seqno: recovered.last_seqno,
        keyspaces,
        log_backend: options.log_backend,
        manifest,
        readers,
        memory,
        pending_deletions,
        reserve,
        events,
        locks,
    }));
    core.work.note_flushed(flushed);
    core.fit_cache();
    if !core.settings.read_only {
        core.update_pace();
        core.review_victims();
        if core.logs.demands_ring() {
            core.map_ring()?;
        }
        if let Err(error) = core.start_background() {
            // The threads that were started end first, so that the close does not wait for a flush that needs the others. The
            // logs keep what is not flushed. The error to report is the first.
            core.stop_background();
            let _ = core.close();
            return Err(error);
        }
    }
    Ok(Db { inner: Arc::new(DbInner { core }) })
}

/// Locks both directories, made first if need be; a reader shares the locks with others and makes nothing.
fn take_locks(storage: &dyn Storage, fast: &Path, slow: &Path, read_only: bool) -> Result<Vec<Box<dyn Lock>>> {
    let dirs: BTreeSet<&Path> = [fast, slow].into();
    if !read_only {
        dirs.iter().try_for_each(|dir| storage.create_dir_all(dir))?;
    }
    // Both openers of a pair of directories begin with the same one.
    let both = if slow == fast { vec![fast] } else { vec![fast, slow] };
    let paths = both.into_iter().map(|dir| dir.join(LOCK));
    paths.map(|path| if read_only { storage.lock_shared(&path) } else { storage.lock(&path) }).collect()
}

/// The manifest of the database that is there, or of a new one.
fn read_or_make_manifest(storage: &Arc<dyn Storage>, fast: &Path, slow: &Path, tuning: &Tuning) -> Result<Manifest> {
    // Files that a crash left behind keep their numbers until they are removed; and whatever else has such a name would be
    // in the way of a file with that number.
    let files = our_files(&**storage, fast, slow)?;
    let newest = our_names(&**storage, fast, slow)?.iter().map(|(_, _, id, _)| *id).max().unwrap_or_default();
    let mut manifest = match Manifest::read(storage.clone(), fast, tuning.manifest_bytes)? {
        Some(manifest) => manifest,
        None => {
            let owner = slow.join(OWNER);
            if slow != fast && storage.exists(&owner)? {
                return Err(another_owner(slow, &owner));
            }
            refuse_lost_database(fast, &files)?;
            Manifest::new(storage.clone(), fast, tuning.manifest_bytes)
        }
    };
    manifest.reserve_files(FileId(newest.0 + 1));
    if manifest.named().is_none() {
        commit_before_start(&mut manifest, &new_database(storage.unique_number()?))?;
    }
    Ok(manifest)
}

/// Tables or logs without a manifest are what is left of a database, not room for a new one.
fn refuse_lost_database(fast: &Path, files: &[(PathBuf, FileKind, FileId)]) -> Result<()> {
    match files.iter().find(|(_, kind, _)| *kind != FileKind::Manifest) {
        Some((path, ..)) => {
            let message = format!("the file is missing, but there is a database file {}", path.display());
            Err(Error::corruption(&fast.join(CURRENT), 0, message))
        }
        None => Ok(()),
    }
}

/// A keyspace's own compression must be one that this build knows and has.
fn check_keyspace_compression(fast: &Path, manifest: &Manifest) -> Result<()> {
    let path = || fast.join(manifest.named().map(manifest_name).unwrap_or_default());
    for keyspace in manifest.state().keyspaces.values() {
        let Some(stored) = keyspace.compression else { continue };
        let Some(compression) = Compression::from_u8(stored) else {
            let message = format!("keyspace {:?} is compressed in a way that is not known: {stored}", keyspace.name);
            return Err(Error::Unsupported { path: path(), message });
        };
        compression.check_available(&path())?;
    }
    Ok(())
}

/// Whether tables have a directory of their own is settled by the first opening that gives them one, or by the first
/// table.
pub(crate) fn check_layout(storage: &dyn Storage, state: &ManifestState, fast: &Path, slow: &Path) -> Result<()> {
    let apart = slow != fast;
    if state.has_slow_dir && !apart {
        return Err(Error::input(format!(
            "the tables of the database in {} lie in a directory of their own, which the option slow_dir must name",
            fast.display()
        )));
    }
    let Some(table) = state.tables.keys().next().filter(|_| apart) else { return Ok(()) };
    let is_there = |name: &str| storage.exists(&slow.join(name));
    match state.has_slow_dir && (is_there(OWNER)? || is_there(&table_name(*table))?) {
        true => Ok(()),
        false => Err(tables_elsewhere(slow)),
    }
}

/// A slow directory of its own says whose it is: two databases with one slow directory would remove each other's tables.
fn check_owner(storage: &dyn Storage, slow: &Path, manifest: &mut Manifest, read_only: bool) -> Result<()> {
    let path = slow.join(OWNER);
    let own = format!("{:016x}\n", manifest.state().database);
    let found = if storage.exists(&path)? { read_whole(storage, &path)? } else { Vec::new() };
    if found == own.as_bytes() && manifest.state().has_slow_dir {
        return Ok(());
    }
    if found.len() == own.len() && found != own.as_bytes() {
        return Err(another_owner(slow, &path));
    }
    if !manifest.state().tables.is_empty() {
        return Err(Error::corruption(&path, 0, "the file that names the owner of this directory is missing or cut"));
    }
    if read_only {
        return Ok(());
    }
    // The directory is new, or a crash came while it was claimed. From now on no table may come to lie elsewhere.
    commit_before_start(manifest, &Edit { has_slow_dir: true, ..Edit::default() })?;
    if storage.exists(&path)? {
        storage.remove(&path)?;
    }
    let file = storage.create(&path, Access::Buffered)?;
    file.write_at(own.as_bytes(), 0)?;
    file.sync()?;
    storage.sync_dir(slow)
}

/// The database has tables, and none of them is where the options say.
fn tables_elsewhere(slow: &Path) -> Error {
    let message = format!(
        "none of the tables of this database is in {}: the option slow_dir must be as it was when they were written",
        slow.display()
    );
    Error::input(message)
}

fn another_owner(slow: &Path, owner: &Path) -> Error {
    Error::input(format!("{} belongs to another database, as {} says", slow.display(), owner.display()))
}

/// A new database: one keyspace, no files.
fn new_database(number: u64) -> Edit {
    let keyspace = KeyspaceRecord {
        id: DEFAULT_ID,
        name: DEFAULT_NAME.to_owned(),
        operator: None,
        compression: None,
        separation: Separation::Default,
    };
    Edit {
        keyspaces_added: vec![keyspace],
        next_keyspace: Some(KeyspaceId(DEFAULT_ID.0 + 1)),
        database: Some(number),
        ..Edit::default()
    }
}

/// Commits an edit while nothing else can give out file numbers.
fn commit_before_start(manifest: &mut Manifest, edit: &Edit) -> Result<()> {
    let next = manifest.state().next_file;
    manifest.commit(edit, &|| usable(next)).map(drop)
}

/// Removes tables that no edit has ever named: what a crash left of unfinished jobs. Whatever part of the manifest is on
/// storage does not name them, so they can go before the next edit, which may need their space: jobs fill disks.
fn remove_never_named(storage: &dyn Storage, fast: &Path, slow: &Path, manifest: &Manifest) -> Result<()> {
    let files = our_files(storage, fast, slow)?;
    let mut left_over = files.iter().filter(|(_, kind, id)| *kind == FileKind::Table && !manifest.ever_named(*id));
    left_over.try_for_each(|(path, ..)| storage.remove(path))
}

/// Removes files of ours that the manifest does not name: what a crash left of unfinished jobs. Not before the manifest
/// that does not name them is known to be on storage (`is_durable`): an earlier one might. What a reader may see from now
/// on must be durable as well, so a manifest with an end that may not be is committed anew even if no file has to go.
fn remove_unknown(
    storage: &dyn Storage,
    fast: &Path,
    slow: &Path,
    manifest: &mut Manifest,
    is_durable: bool,
) -> Result<()> {
    let unknown = |manifest: &Manifest| -> Result<Vec<PathBuf>> {
        let state = manifest.state();
        let mut files = our_files(storage, fast, slow)?;
        files.retain(|(_, kind, id)| {
            (match kind {
                FileKind::Log => !state.logs.contains_key(id),
                FileKind::Table => !state.tables.contains_key(id),
                FileKind::Manifest => manifest.named() != Some(*id),
                FileKind::Segment | FileKind::Redirect => true,
            }) && !state.holds_values(*kind, *id)
        });
        Ok(files.into_iter().map(|(path, ..)| path).collect())
    };
    if !is_durable && (manifest.has_tail() || !unknown(manifest)?.is_empty()) {
        commit_before_start(manifest, &Edit::default())?;
    }
    // A manifest that was unknown before may have gone with the commit.
    unknown(manifest)?.iter().try_for_each(|path| storage.remove(path))
}

/// The numbered files in both directories. Anything else is someone else's and never touched.
fn our_files(storage: &dyn Storage, fast: &Path, slow: &Path) -> Result<Vec<(PathBuf, FileKind, FileId)>> {
    let mut names = our_names(storage, fast, slow)?;
    names.retain(|(.., is_file)| *is_file);
    Ok(names.into_iter().map(|(path, kind, id, _)| (path, kind, id)).collect())
}

/// Everything in both directories that has the name of a numbered file, and whether it is a regular file.
fn our_names(storage: &dyn Storage, fast: &Path, slow: &Path) -> Result<Vec<(PathBuf, FileKind, FileId, bool)>> {
    let dirs: BTreeSet<&Path> = [fast, slow].into();
    let mut names = Vec::new();
    for dir in dirs {
        for entry in storage.list(dir)? {
            if let Some((kind, id)) = parse(&entry.name) {
                names.push((dir.join(&entry.name), kind, id, entry.is_file));
            }
        }
    }
    Ok(names)
}

pub(crate) fn open_tables(
    slow: &Path,
    state: &ManifestState,
    pending_deletions: &Arc<PendingDeletions>,
    readers: &Arc<Readers>,
) -> Result<Version> {
    let mut tables = Vec::new();
    let all = &state.tables;
    if let Some(first) = all.keys().next()
        && !readers.storage.exists(&slow.join(table_name(*first)))?
    {
        let listed = readers.storage.list(slow)?;
        let is_table = |name: &str| matches!(parse(name), Some((FileKind::Table, id)) if all.contains_key(&id));
        if all.len() > 1 && !listed.iter().any(|entry| is_table(&entry.name)) {
            return Err(tables_elsewhere(slow));
        }
    }
    for (level, meta) in all.values() {
        let path = slow.join(table_name(meta.id));
        if *level as usize >= LEVELS_MAX {
            return Err(Error::corruption(&path, 0, format!("the manifest puts this table into level {level}")));
        }
        let guard = FileGuard::new(path, pending_deletions.clone());
        tables.push((*level as usize, Table::new(readers, guard, meta.clone())?));
    }
    Ok(Version::default().apply(&tables, &[]))
}

impl Core {
    /// Ends all work and leaves the database so that the next open has nothing to repair. Only the first call does
    /// anything; others wait for its end and get the same answer.
    pub fn close(&self) -> Result<()> {
        let is_first = {
            let _commit = self.commit.lock();
            !self.closed.swap(true, Ordering::AcqRel)
        };
        if !is_first {
            let mut result = self.close_result.lock();
            while result.is_none() {
                self.close_ended.wait(&mut result);
            }
            return result.clone().unwrap_or(Ok(()));
        }
        let closed = guard_panic("a close", || self.close_once());
        *self.close_result.lock() = Some(closed.clone());
        self.close_ended.notify_all();
        // Last, because it waits for listeners, and one of them may be waiting in a close of its own.
        self.events.finish();
        closed
    }

    fn close_once(&self) -> Result<()> {
        self.work.begin_close();
        if self.settings.read_only {
            self.stop_background();
            self.release_files();
            self.locks.lock().clear();
            return Ok(());
        }
        let flushed = self.flush_at_close();
        self.horizon.stop();
        self.stop_background();
        self.remove_stats_page();
        // A full disk stops the flush; what the logs hold is settled all the same.
        let settled = self.settle().and(flushed);
        // From here on the directories may be someone else's.
        self.manifest.lock().close();
        // Ends the threads that write chunks.
        self.commit.lock().writer = None;
        self.locks.lock().clear();
        if self.settings.tuning.stats_interval.is_some() {
            telemetry::publish(&self.fast, &self.stats());
        }
        settled
    }

    /// A large front goes to tables; a small one is replayed faster than it is flushed.
    fn flush_at_close(&self) -> Result<()> {
        let flushed = self.work.flushed();
        let view = self.published.view();
        let left: Vec<_> = view.logs.values().filter(|log| log.last_seqno() > flushed).collect();
        let bytes: u64 = left.iter().map(|log| log.end()).sum();
        if bytes > self.settings.tuning.close_flush_bytes || left.len() > LOGS_LEFT_MAX {
            self.flush_front(false)?;
        }
        Ok(())
    }

    /// Makes everything durable and writes into the manifest where each log ends.
    fn settle(&self) -> Result<()> {
        self.check_poison()?;
        self.sync()?;
        let flushed = self.work.flushed();
        let mut manifest = self.manifest.lock();
        let mut edit = Edit { last_seqno: Some(self.horizon.durable()), ..Edit::default() };
        let view = self.published.view();
        let needless = self.logs.take_needless();
        let logs: Vec<Arc<LogFile>> = view.logs.values().cloned().chain(needless).collect();
        let mut settled = Vec::new();
        for log in &logs {
            let named = manifest.state().logs.get(&log.id()).copied();
            let needed = log.last_seqno() > flushed;
            match named {
                Some(None) if needed => settled.push(log.clone()),
                Some(_) if !needed && manifest.state().values.referenced.of(log.id()).records > 0 => {
                    edit.values_placed.push((log.id(), ValuePlace::Log { end: log.end() }));
                    settled.push(log.clone());
                }
                Some(_) if !needed => edit.logs_removed.push(log.id()),
                _ => {}
            }
        }
        let ended = settled.iter().filter(|log| log.last_seqno() > flushed);
        edit.logs_ended = ended.map(|log| (log.id(), log.end().max(LOG_HEADER_BYTES as u64))).collect();
        if edit.logs_ended.len() + edit.logs_removed.len() + edit.values_placed.len() > 0 {
            self.add_counters(&mut edit);
            self.reserve.with(|| self.commit_edit(&mut manifest, &edit))?;
        }
        self.guarded(self.reserve.with(|| manifest.seal()))?;
        for log in &logs {
            if edit.logs_removed.contains(&log.id()) {
                log.mark_obsolete();
            }
        }
        // The space reserved behind the end goes back; if that fails it stays reserved.
        for log in &settled {
            let _ = log.file().truncate(log.end());
        }
        drop(manifest);
        // What is obsolete goes with its last holder, and here is one.
        drop((settled, logs, view));
        self.release_files();
        while self.delete_one_pending() {}
        Ok(())
    }

    /// Lets go of the view, so that obsolete files that no reader holds can be removed.
    fn release_files(&self) {
        let mut commit = self.commit.lock();
        commit.writer = None;
        commit.active = Arc::new(IndexTable::new());
        self.published.update(|_| View {
            active: commit.active.clone(),
            sealed: Vec::new(),
            runs: Vec::new(),
            version: Arc::new(Version::default()),
            logs: Arc::default(),
            values: Arc::default(),
        });
        commit.unsynced.clear();
    }
}
