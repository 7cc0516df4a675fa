//! Opening and closing a database.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::db::{Db, DbInner};
use crate::api::options::Options;
use crate::base::panics::guard_panic;
use crate::base::{Error, FileId, FileKind, KeyspaceId, Result};
use crate::cache::block_cache::BlockCache;
use crate::engine::core::{Core, CoreParts};
use crate::engine::events::{Event, Events};
use crate::engine::file_numbers::FileNumbers;
use crate::engine::inspect::telemetry;
use crate::engine::keyspaces::{DEFAULT_ID, DEFAULT_NAME, Keyspaces};
use crate::engine::lifecycle::ownership::{
    Claim, Numbered, check_layout, check_new, check_owner, files_with, list_numbered, next_openings,
    remove_never_named, replace_owner, slow_tables, tables_elsewhere,
};
use crate::engine::lifecycle::recovery::recover;
use crate::engine::manifest::file_names::{CURRENT, LOCK, parse};
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::memory::Memory;
use crate::engine::tuning::settings::Settings;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::value_files::{ValueHome, give_back_gaps, open_values};
use crate::engine::view::View;
use crate::engine::write::reserve::Reserve;
use crate::format::compression::Compression;
use crate::format::edit::{Edit, KeyspaceRecord, Opening, Separation};
use crate::format::frame::LOG_HEADER_BYTES;
use crate::format::values::ValuePlace;
use crate::format::watermarks::Consumer;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::io::handles::Handles;
use crate::io::pending_deletions::{FileGuard, PendingDeletions};
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Lock, Storage};
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
    let dirs = directories(&*storage, path, &options)?;
    if (!options.create_if_missing || options.read_only) && !storage.exists(&dirs.fast.join(CURRENT))? {
        return Err(Error::NotFound { what: format!("database {}", path.display()) });
    }
    let locks = take_locks(&*storage, &dirs, options.read_only)?;
    let (mut manifest, numbers) = match options.read_only {
        true => {
            let manifest = Manifest::read(storage.clone(), &dirs.fast, tuning.manifest_bytes)?;
            let missing = || Error::NotFound { what: format!("database {}", path.display()) };
            (manifest.ok_or_else(missing)?, FileNumbers::new(FileId(0), FileId(0), tuning.numbers_reserved))
        }
        false => read_or_make_manifest(&storage, &dirs, &tuning)?,
    };
    check_layout(&*storage, manifest.state(), &dirs)?;
    let owner = if dirs.are_apart() { check_owner(&*storage, &dirs.slow, manifest.state())? } else { None };
    let pending_deletions = Arc::new(PendingDeletions::default());
    let access = if options.direct_io { Access::Direct } else { Access::Buffered };
    if options.direct_io {
        // There by now, in the directory of the tables.
        storage.open_read(&dirs.slow.join(LOCK), access)?;
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
    check_keyspace_compression(&manifest)?;
    let version = open_tables(&dirs, manifest.state(), &pending_deletions, &readers)?;
    let recovered = recover(&*storage, &dirs, manifest.state(), &tuning, &pending_deletions, options.read_only)?;
    let reserve = Reserve::new(storage.clone(), &dirs.fast, &dirs.slow, &tuning);
    let place = Place { storage: &*storage, dirs: &dirs };
    if !options.read_only {
        remove_never_named(&*storage, &dirs, &manifest)?;
        place.begin(&mut manifest, &numbers, &reserve, recovered.edit, owner)?;
    }
    let unknown_files = files_with(&*storage, &dirs, &manifest, Claim::Unknown)?;

    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let database = DATABASES.fetch_add(1, Ordering::Relaxed);
    let state = manifest.state();
    let records = state.keyspaces.values().cloned();
    let keyspaces =
        Keyspaces::new(records, state.dropped.clone(), options.operators.clone(), database, tuning.separation_bytes);
    let mut tables = recovered.tables.into_iter();
    let around = ValueHome { dirs: &dirs, pending_deletions: &pending_deletions, readers: &readers };
    let values = open_values(&around, state)?;
    if !options.read_only {
        give_back_gaps(&*storage, &values, &pending_deletions)?;
    }
    let view = View {
        active: tables.next().unwrap_or_else(|| Arc::new(IndexTable::new())),
        sealed: tables.collect(),
        runs: Vec::new(),
        version: Arc::new(version),
        logs: Arc::new(recovered.logs),
        values: Arc::new(values),
    };
    let flushed = state.watermarks.of(Consumer::Levels);
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
    let events = Events::new(options.listeners.into_iter().chain(telemetry::listener(&dirs.fast)).collect())?;
    let core = Arc::new(Core::new(CoreParts {
        storage,
        dirs,
        settings,
        database,
        view,
        seqno: recovered.last_seqno,
        keyspaces,
        log_backend: options.log_backend,
        manifest,
        numbers,
        unknown_files,
        readers,
        memory,
        pending_deletions,
        reserve,
        events,
        locks,
    }));
    if !core.unknown_files.is_empty() {
        core.events.raise(Event::UnknownFiles { paths: core.unknown_files.clone() });
    }
    core.work.note_flushed(flushed);
    core.reserve.grow(core.stored_bytes());
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

/// The directories of logs and of tables, as absolute paths: the working directory may change while a database is open.
pub(crate) fn directories(storage: &dyn Storage, path: &Path, options: &Options) -> Result<Dirs> {
    let place = |chosen: &Option<PathBuf>| storage.absolute(chosen.as_deref().unwrap_or(path));
    Ok(Dirs { fast: place(&options.fast_dir)?, slow: place(&options.slow_dir)? })
}

/// Locks both directories, made first if need be; a reader shares the locks with others and makes nothing.
fn take_locks(storage: &dyn Storage, dirs: &Dirs, read_only: bool) -> Result<Vec<Box<dyn Lock>>> {
    let Dirs { fast, slow } = dirs;
    if !read_only {
        BTreeSet::from([fast, slow]).iter().try_for_each(|dir| storage.create_dir_all(dir))?;
    }
    // Both openers of a pair of directories begin with the same one.
    let both = if slow == fast { vec![fast] } else { vec![fast, slow] };
    let paths = both.into_iter().map(|dir| dir.join(LOCK));
    paths.map(|path| if read_only { storage.lock_shared(&path) } else { storage.lock(&path) }).collect()
}

/// The manifest of the database that is there, or of a new one, and the numbers that files get.
fn read_or_make_manifest(storage: &Arc<dyn Storage>, dirs: &Dirs, tuning: &Tuning) -> Result<(Manifest, FileNumbers)> {
    if let Some(manifest) = Manifest::read(storage.clone(), &dirs.fast, tuning.manifest_bytes)? {
        let numbers = free_numbers(&**storage, dirs, manifest.state(), tuning)?;
        return Ok((manifest, numbers));
    }
    check_new(&**storage, dirs)?;
    let mut manifest = Manifest::new(storage.clone(), &dirs.fast, tuning.manifest_bytes);
    let numbers = FileNumbers::new(FileId(1), FileId(1), tuning.numbers_reserved);
    commit_before_start(&mut manifest, &numbers, &[], new_database(storage.unique_number()?))?;
    Ok((manifest, numbers))
}

/// The numbers that files get from now on. Files that a crash left behind keep theirs until they are removed, and whatever
/// else has a reserved number in its name would be in the way of a file with that number.
fn free_numbers(storage: &dyn Storage, dirs: &Dirs, state: &ManifestState, tuning: &Tuning) -> Result<FileNumbers> {
    let files = list_numbered(storage, dirs)?;
    let reserved = files.iter().map(|file| file.id).filter(|id| state.reserved_end(*id).is_some());
    let mut next = reserved.max().map_or(state.next_file, |id| state.next_file.max(FileId(id.0 + 1)));
    // Numbers come from the newest range; a crash may have come before the first one of it was given out.
    let end = match state.reserved.last_key_value() {
        Some((from, end)) => {
            next = next.max(*from);
            *end
        }
        None => next,
    };
    let numbers = FileNumbers::new(next, end.max(next), tuning.numbers_reserved);
    if next < end {
        return Ok(numbers);
    }
    // Nothing may be in the way of the manifest that reserves the next block either.
    let free = numbers.next_block(files.iter().map(|file| file.id)).map_or(next, |(from, _)| from);
    Ok(FileNumbers::new(free, free, tuning.numbers_reserved))
}

/// A keyspace's own compression must be one that this build knows and has.
fn check_keyspace_compression(manifest: &Manifest) -> Result<()> {
    let path = || manifest.path();
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

/// The directories that are being opened.
struct Place<'a> {
    storage: &'a dyn Storage,
    dirs: &'a Dirs,
}

impl Place<'_> {
    /// Commits what recovery has found (`recovered`) and that the database was opened, takes possession of a slow directory
    /// of its own, and removes files that are left over. These not before the manifest that does not name them is known to
    /// be on storage: an earlier one might. What a reader may see from now on must be durable as well, so a manifest with an
    /// end that may not be is committed anew even if no file has to go.
    fn begin(
        &self,
        manifest: &mut Manifest,
        numbers: &FileNumbers,
        reserve: &Reserve,
        recovered: Option<Edit>,
        owner: Option<Opening>,
    ) -> Result<()> {
        let Place { storage, dirs } = *self;
        let left_over = |manifest: &Manifest| files_with(storage, dirs, manifest, Claim::LeftOver);
        let apart = dirs.are_apart();
        if recovered.is_some() || apart || manifest.has_tail() || !left_over(manifest)?.is_empty() {
            let mut edit = recovered.unwrap_or_default();
            if apart {
                edit.has_slow_dir = true;
                edit.openings = Some(next_openings(manifest.state(), owner, storage.unique_number()?));
            }
            let files = list_numbered(storage, dirs)?;
            reserve.with(|| commit_before_start(manifest, numbers, &files, edit.clone()))?;
        }
        if apart {
            reserve.with(|| replace_owner(storage, &dirs.slow, manifest.state()))?;
        }
        // A manifest that was left over may have gone with the commit.
        left_over(manifest)?.iter().try_for_each(|path| storage.remove(path))
    }
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

/// Commits an edit while nothing else can give out file numbers, and reserves more of them if few are left. `files` are in
/// the directories.
fn commit_before_start(
    manifest: &mut Manifest,
    numbers: &FileNumbers,
    files: &[Numbered],
    mut edit: Edit,
) -> Result<()> {
    let block = if numbers.is_low() { numbers.next_block(files.iter().map(|file| file.id)) } else { None };
    edit.files_reserved.extend(block);
    manifest.commit(&edit, &|| numbers.take_for_manifest())?;
    block.into_iter().for_each(|block| numbers.add(block));
    Ok(())
}

pub(crate) fn open_tables(
    dirs: &Dirs,
    state: &ManifestState,
    pending_deletions: &Arc<PendingDeletions>,
    readers: &Arc<Readers>,
) -> Result<Version> {
    let slow: BTreeSet<FileId> = slow_tables(state).map(|table| table.id).collect();
    if let Some(first) = slow.first()
        && !readers.storage.exists(&dirs.path(state.file(*first)))?
    {
        let listed = readers.storage.list(&dirs.slow)?;
        let is_table = |name: &str| matches!(parse(name), Some((FileKind::Table, id)) if slow.contains(&id));
        if slow.len() > 1 && !listed.iter().any(|entry| is_table(&entry.name)) {
            return Err(tables_elsewhere(&dirs.slow));
        }
    }
    let mut tables = Vec::new();
    for (level, meta) in state.tables.values() {
        let file = state.file(meta.id);
        let path = dirs.path(file);
        if *level as usize >= LEVELS_MAX {
            return Err(Error::corruption(&path, 0, format!("the manifest puts this table into level {level}")));
        }
        let guard = FileGuard::new(file, path, pending_deletions.clone());
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
        self.work.wake_all();
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
        let settled = self.settle();
        // From here on the directories may be someone else's.
        self.manifest.lock().close();
        // Ends the threads that write chunks.
        self.commit.lock().writer = None;
        if settled.is_ok() {
            self.remove_rings();
            self.reserve.remove();
        }
        self.locks.lock().clear();
        if self.settings.tuning.stats_interval.is_some() {
            telemetry::publish(&self.dirs.fast, &self.stats());
        }
        settled.and(flushed)
    }

    /// A large front goes to tables; a small one is replayed faster than it is flushed.
    fn flush_at_close(&self) -> Result<()> {
        let consumed = self.manifest.lock().state().watermarks.least();
        let view = self.published.view();
        let left: Vec<_> = view.logs.values().filter(|log| log.last_seqno() > consumed).collect();
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
        let mut manifest = self.manifest.lock();
        let consumed = manifest.state().watermarks.least();
        let mut edit = Edit { last_seqno: Some(self.horizon.durable()), ..Edit::default() };
        let view = self.published.view();
        let needless = self.logs.take_needless();
        let logs: Vec<Arc<LogFile>> = view.logs.values().cloned().chain(needless).collect();
        let mut settled = Vec::new();
        for log in &logs {
            let named = manifest.state().logs.get(&log.id()).copied();
            let needed = log.last_seqno() > consumed;
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
        let ended = settled.iter().filter(|log| log.last_seqno() > consumed);
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
        // The space reserved behind the end goes back; if that fails it stays reserved. Also in logs that recovery has
        // settled, or an earlier close that could not do this.
        for log in logs.iter().filter(|log| !edit.logs_removed.contains(&log.id())) {
            if log.file().len().is_ok_and(|len| len > log.end()) {
                let _ = self.storage.open(log.path()).and_then(|file| file.truncate(log.end()));
            }
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
