//! Opening and closing a database.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, FileId, FileKind, KeyspaceId, Result};
use crate::cache::block_cache::BlockCache;
use crate::deltas::directory::Directory;
use crate::engine::core::{Core, CoreParts};
use crate::engine::events::{Event, Events};
use crate::engine::fast_tier::{FastTier, Occupant, SMALL_FILES_BYTES};
use crate::engine::file_numbers::FileNumbers;
use crate::engine::inspect::telemetry;
use crate::engine::keyspaces::{DEFAULT_ID, DEFAULT_NAME, Keyspaces};
use crate::engine::lifecycle::move_home::{check_not_moved, move_home};
use crate::engine::lifecycle::request::OpenRequest;
use crate::engine::manifest::file_names::{CURRENT, LOCK, RING, RING_NEW};
use crate::engine::manifest::files::{DeclaredDirs, Dirs};
use crate::engine::manifest::numbered_files::{Numbered, list_numbered};
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::memory::Memory;
use crate::engine::recovery::directories::{FoundDirs, find_directories, remove_former_home};
use crate::engine::recovery::owner::{OwnerFile, next_openings};
use crate::engine::recovery::ownership::{
    FileClaim, check_absent, check_new, files_with, remove_left_over, remove_never_named,
};
use crate::engine::recovery::replay::recover;
use crate::engine::recovery::tables::open_tables;
use crate::engine::recovery::values::{give_back_gaps, open_values};
use crate::engine::reserve::Reserve;
use crate::engine::tuning::settings::Settings;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::tuning::tiers::{manifest_len_max, manifest_space};
use crate::engine::value_home::ValueHome;
use crate::engine::view::{Sources, View};
use crate::format::compression::Compression;
use crate::format::edit::{Edit, Opening};
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceKind, KeyspaceRecord, Separation};
use crate::format::stats_page::PAGE_BYTES;
use crate::format::watermarks::Consumer;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::io::ahead_threads::AheadThreads;
use crate::io::handles::Handles;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Lock, Storage};
use crate::levels::readers::Readers;
use crate::levels::version::Version;
use crate::values::files::ValueFiles;

/// Opens or creates a database.
pub(crate) fn open(storage: Arc<dyn Storage>, request: OpenRequest) -> Result<Arc<Core>> {
    move_home(&storage, &request)?;
    let OpenRequest { path, dirs: declared, settings, .. } = request;
    let Settings { read_only, ref tuning, .. } = settings;
    if (!request.create_if_missing || read_only) && !storage.exists(&declared.fast.join(CURRENT))? {
        check_absent(&*storage, &declared.fast)?;
        return Err(Error::NotFound { what: format!("database {}", path.display()) });
    }
    let mut locks = take_locks(&*storage, &declared, read_only)?;
    let mut manifest = match read_only {
        true => {
            let manifest = Manifest::read(storage.clone(), &declared.fast, tuning.manifest_bytes)?;
            let missing = || Error::NotFound { what: format!("database {}", path.display()) };
            manifest.ok_or_else(missing)?
        }
        false => read_or_make_manifest(&storage, &declared, tuning)?,
    };
    check_not_moved(&*storage, &declared.fast, manifest.state())?;
    let found = find_directories(&*storage, manifest.state(), &declared, !read_only)?;
    let dirs = &found.dirs;
    let is_locked = |path: &Path| *path == *declared.slow || declared.device.as_deref() == Some(path);
    for (_, former) in dirs.others().filter(|(_, path)| !is_locked(path)) {
        locks.push(lock(&*storage, former, read_only)?);
    }
    let numbers = match read_only {
        true => FileNumbers::new(FileId(0), FileId(0), tuning.numbers_reserved),
        false => free_numbers(&*storage, dirs, manifest.state(), tuning)?,
    };
    let pending_deletions = Arc::new(PendingDeletions::default());
    let access = accesses(&*storage, dirs, request.direct_io)?;
    let memory = Memory::new(tuning);
    let readers = readers_on(&storage, tuning, access, request.open_files_max, &memory);
    check_keyspace_compression(&manifest)?;
    let version = open_tables(dirs, manifest.state(), &pending_deletions, &readers)?;
    let recovered = recover(&*storage, dirs, manifest.state(), tuning, &pending_deletions, &readers, read_only)?;
    let reserve = Reserve::new(storage.clone(), dirs.fast(), dirs.slow(), tuning);
    let place = Place { storage: &*storage, found: &found };
    if !read_only {
        remove_never_named(&*storage, dirs, &manifest)?;
        place.begin(&mut manifest, &numbers, &reserve, recovered.edit)?;
    }
    let fast = fast_tier(&*storage, dirs, &manifest, request.fast_bytes, tuning)?;
    let unknown_files = files_with(&*storage, dirs, &manifest, FileClaim::Unknown)?;

    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let database = DATABASES.fetch_add(1, Ordering::Relaxed);
    let state = manifest.state();
    let keyspaces = Keyspaces::new(state, recovered.indexes, request.operators, database, tuning);
    let around = ValueHome { dirs, pending_deletions: &pending_deletions, readers: &readers };
    let values = open_values(&around, state)?;
    if !read_only {
        give_back_gaps(&*storage, &values, &pending_deletions)?;
    }
    let directory = Directory::new(state.buckets.clone());
    let view = view_of(recovered.tables, recovered.logs, version, directory, values);
    let flushed = state.watermarks.of(Consumer::Levels);
    let events = Events::new(request.listeners.into_iter().chain(telemetry::listener(dirs.fast())).collect())?;
    let core = Arc::new(Core::new(CoreParts {
        storage,
        dirs: found.dirs,
        settings,
        database,
        view,
        seqno: recovered.last_seqno,
        keyspaces,
        log_backend: request.log_backend,
        kv_device: request.kv_device,
        manifest,
        numbers,
        unknown_files,
        readers,
        memory,
        pending_deletions,
        reserve,
        fast,
        events,
        locks,
    }));
    core.work.note_flushed(flushed);
    core.note_saved_indexes();
    core.note_indexed_logs();
    core.note_hashed_change();
    start(&core)?;
    Ok(core)
}

/// The space of the fast tier, with what lies there.
fn fast_tier(
    storage: &dyn Storage,
    dirs: &Dirs,
    manifest: &Manifest,
    budget: Option<u64>,
    tuning: &Tuning,
) -> Result<FastTier> {
    let fast = FastTier::new(dirs.are_apart().then(|| budget.unwrap_or(u64::MAX)));
    if !dirs.are_apart() {
        return Ok(fast);
    }
    let files = list_numbered(storage, &Dirs::one(dirs.fast().to_owned()))?;
    for file in files.into_iter().filter(|file| file.kind != FileKind::Manifest) {
        fast.note(Occupant::File(file.id), storage.file_len(&file.path)?.unwrap_or_default());
    }
    for (occupant, name) in [(Occupant::Ring, RING), (Occupant::NewRing, RING_NEW)] {
        if let Some(bytes) = storage.file_len(&dirs.fast().join(name))? {
            fast.note(occupant, bytes);
        }
    }
    let manifest_len = manifest_len_max(fast.budget(), tuning.manifest_bytes, manifest.state_len()).max(manifest.len());
    fast.note(Occupant::Manifest, manifest_space(manifest_len) + SMALL_FILES_BYTES);
    fast.note(Occupant::Reserve, tuning.manifest_bytes.min(tuning.reserve_bytes));
    if tuning.stats_interval.is_some() {
        fast.note(Occupant::Stats, PAGE_BYTES as u64);
    }
    Ok(fast)
}

/// How files are read and written in the directory of the manifest, and in the others. Those are on storage of their own,
/// for which the page cache has no memory to spare, so that direct I/O is used wherever the file system supports it.
fn accesses(storage: &dyn Storage, dirs: &Dirs, wanted: Option<bool>) -> Result<(Access, Access)> {
    // The lock file exists in all directories by now.
    let try_direct = |dir: &Path| storage.open_read(&dir.join(LOCK), Access::Direct);
    let supports = |dir: &Path| try_direct(dir).is_ok();
    // A KV device has no page cache.
    let others = || dirs.others().filter(|(dir, _)| Some(*dir) != dirs.device());
    match wanted {
        Some(true) => {
            dirs.all().try_for_each(|(_, dir)| try_direct(dir).map(drop))?;
            Ok((Access::Direct, Access::Direct))
        }
        Some(false) => Ok((Access::Buffered, Access::Buffered)),
        None if others().next().is_some() && others().all(|(_, dir)| supports(dir)) => {
            Ok((Access::Buffered, Access::Direct))
        }
        None => Ok((Access::Buffered, Access::Buffered)),
    }
}

/// What tables and value files are read through.
fn readers_on(
    storage: &Arc<dyn Storage>,
    tuning: &Tuning,
    (fast_access, slow_access): (Access, Access),
    open_files_max: usize,
    memory: &Memory,
) -> Arc<Readers> {
    let ahead = Arc::new(ReadAhead::new(tuning.read_ahead_bytes, memory.jobs.clone()));
    Arc::new(Readers {
        fast_access,
        slow_access,
        handles: Arc::new(Handles::new(storage.clone(), open_files_max)),
        storage: storage.clone(),
        cache: Arc::new(BlockCache::new(tuning.cache_bytes)),
        ahead_threads: AheadThreads::new(ahead.clone()),
        ahead,
        scan_ahead: ReadAhead::new(tuning.scan_ahead_bytes, memory.scans.clone()),
        jobs: memory.jobs.clone(),
        resident: Arc::default(),
    })
}

/// The first view: the index tables that recovery filled, newest first, above the tables of the manifest.
fn view_of(
    index_tables: Vec<Arc<IndexTable>>,
    logs: BTreeMap<FileId, Arc<LogFile>>,
    version: Version,
    directory: Directory,
    values: ValueFiles,
) -> View {
    let mut index_tables = index_tables.into_iter();
    View::new(Sources {
        active: index_tables.next().unwrap_or_else(|| Arc::new(IndexTable::new())),
        sealed: index_tables.collect(),
        runs: Vec::new(),
        version: Arc::new(version),
        directory: Arc::new(directory),
        logs: Arc::new(logs),
        values: Arc::new(values),
    })
}

/// Shares out memory and starts the background threads. After an error the database is closed.
fn start(core: &Arc<Core>) -> Result<()> {
    if !core.unknown_files.is_empty() {
        core.events.raise(Event::UnknownFiles { paths: core.unknown_files.clone() });
    }
    core.grow_reserve();
    core.fit_cache();
    if core.settings.read_only {
        return Ok(());
    }
    core.update_pace();
    if core.logs.demands_ring() {
        core.map_ring()?;
    }
    core.start_background().inspect_err(|_| {
        // The started threads end first, so that the close does not wait for a flush that needs the missing ones.
        // The logs keep unflushed data. The first error is the one returned.
        core.stop_background();
        let _ = core.close();
    })
}

/// Locks the declared directories, creating them if needed; a reader shares the locks with other readers and creates
/// nothing.
fn take_locks(storage: &dyn Storage, dirs: &DeclaredDirs, read_only: bool) -> Result<Vec<Box<dyn Lock>>> {
    let DeclaredDirs { fast, slow, .. } = dirs;
    if !read_only {
        BTreeSet::from([fast, slow]).iter().try_for_each(|dir| storage.create_dir_all(dir))?;
    }
    // A fixed lock order: all openers of a pair of directories begin with the same one.
    let both = if slow == fast { vec![fast] } else { vec![fast, slow] };
    both.into_iter().chain(&dirs.device).map(|dir| lock(storage, dir, read_only)).collect()
}

pub(super) fn lock(storage: &dyn Storage, dir: &Path, read_only: bool) -> Result<Box<dyn Lock>> {
    let path = dir.join(LOCK);
    match read_only {
        false => storage.lock(&path),
        true if !storage.exists(dir)? => Err(Error::input(format!(
            "the directory {} is not there: mount it, or name it by the option slow_dir or fast_dir if it has moved",
            dir.display()
        ))),
        true => storage.lock_shared(&path),
    }
}

/// The manifest of the existing or a new database.
fn read_or_make_manifest(storage: &Arc<dyn Storage>, dirs: &DeclaredDirs, tuning: &Tuning) -> Result<Manifest> {
    if let Some(manifest) = Manifest::read(storage.clone(), &dirs.fast, tuning.manifest_bytes)? {
        return Ok(manifest);
    }
    check_home_is_there(&**storage, dirs)?;
    check_new(&**storage, dirs)?;
    let mut manifest = Manifest::new(storage.clone(), &dirs.fast, tuning.manifest_bytes);
    let numbers = FileNumbers::new(FileId(1), FileId(1), tuning.numbers_reserved);
    commit_before_start(&mut manifest, &numbers, &[], new_database(storage.unique_number()?))?;
    Ok(manifest)
}

/// Fails if the declared directories are those of a database whose manifest is not there.
fn check_home_is_there(storage: &dyn Storage, dirs: &DeclaredDirs) -> Result<()> {
    if !dirs.are_apart() {
        return Ok(());
    }
    // A file that cannot be read is not of a new database either.
    match OwnerFile::read(storage, &dirs.slow) {
        Ok(Some(owner)) if Path::new(&owner.home) == &*dirs.fast => Err(Error::input(format!(
            "{} belongs to a database whose manifest was in {} last, where it is not: mount that directory, or name the one \
             that it has moved to by the option fast_dir",
            dirs.slow.display(),
            dirs.fast.display()
        ))),
        _ => Ok(()),
    }
}

/// The allocator of file ids. Files left over from a crash keep their ids until they are removed; any other file with a
/// reserved id in its name would conflict with a new file of that id.
fn free_numbers(storage: &dyn Storage, dirs: &Dirs, state: &ManifestState, tuning: &Tuning) -> Result<FileNumbers> {
    let files = list_numbered(storage, dirs)?;
    let reserved = files.iter().map(|file| file.id).filter(|id| state.reserved_end(*id).is_some());
    let mut next = reserved.max().map_or(state.next_file, |id| state.next_file.max(FileId(id.0 + 1)));
    // Ids come from the newest range; a crash may have occurred before its first id was allocated.
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
    // The id of the manifest that reserves the next block must be free, too.
    let free = numbers.next_block(files.iter().map(|file| file.id)).map_or(next, |(from, _)| from);
    Ok(FileNumbers::new(free, free, tuning.numbers_reserved))
}

/// A keyspace's own compression must be known to this build and enabled in it.
fn check_keyspace_compression(manifest: &Manifest) -> Result<()> {
    let path = || manifest.path();
    for keyspace in manifest.state().keyspaces.values() {
        let Some(stored) = keyspace.compression else { continue };
        let Some(compression) = Compression::from_u8(stored) else {
            let message = format!("keyspace {:?} has an unknown compression: {stored}", keyspace.name);
            return Err(Error::Unsupported { path: path(), message });
        };
        compression.check_available(&path())?;
    }
    Ok(())
}

/// The directories being opened.
struct Place<'a> {
    storage: &'a dyn Storage,
    found: &'a FoundDirs,
}

impl Place<'_> {
    /// Commits the result of recovery (`recovered`) and the opening, takes ownership of the other directories, and
    /// removes left-over files. These are removed only once the manifest that does not reference them is known to be on
    /// storage, because an earlier manifest might reference them. Everything a reader can see from now on must be
    /// durable as well, so a manifest whose end may not be durable is committed anew even if no file has to be removed.
    fn begin(
        &self,
        manifest: &mut Manifest,
        numbers: &FileNumbers,
        reserve: &Reserve,
        recovered: Option<Edit>,
    ) -> Result<()> {
        let Place { storage, found } = *self;
        let dirs = &found.dirs;
        let left_over = |manifest: &Manifest| files_with(storage, dirs, manifest, FileClaim::LeftOver);
        let apart = dirs.others().next().is_some();
        let left = found.left(storage, manifest.state())?;
        let was_apart = !manifest.state().dirs.is_empty();
        let owner = self.settle_owners(manifest)?;
        if recovered.is_some() || apart || was_apart || manifest.has_tail() || !left_over(manifest)?.is_empty() {
            let mut edit = recovered.unwrap_or_default();
            if apart {
                edit.openings = Some(next_openings(manifest.state(), owner, storage.unique_number()?));
            }
            found.add_to(&mut edit, manifest.state())?;
            let files = list_numbered(storage, dirs)?;
            reserve.with(|| commit_before_start(manifest, numbers, &files, edit.clone()))?;
        }
        for (dir, path) in dirs.others() {
            reserve.with(|| OwnerFile::of(manifest.state(), dir, dirs.fast()).replace(storage, path))?;
        }
        left.iter().for_each(|left| left.clear(storage));
        remove_former_home(storage, dirs, manifest.state().database);
        // The commit may already have removed a left-over manifest.
        remove_left_over(storage, left_over(manifest)?.iter().map(|path| &**path));
        Ok(())
    }

    /// Makes all directories name one opening, durably, before the manifest gets the next one: a process that died may have
    /// replaced only some files `OWNER`, or not have synced them. The manifest will not know the opening that loss of power
    /// could bring back. Returns that opening; `None` if no directory has an owner yet.
    fn settle_owners(&self, manifest: &Manifest) -> Result<Option<Opening>> {
        let Place { storage, found } = *self;
        let Some(opening) = found.opening() else { return Ok(None) };
        let agree = found.owners.values().flatten().all(|other| *other == opening);
        if !agree {
            manifest.sync_as_read()?;
        }
        for (dir, path) in found.dirs.others() {
            match found.owners.get(&dir) {
                Some(Some(_)) if agree => storage.sync_dir(path)?,
                Some(Some(_)) => OwnerFile::of(manifest.state(), dir, found.dirs.fast()).replace(storage, path)?,
                _ => {}
            }
        }
        Ok(Some(if agree { opening } else { manifest.state().openings.present }))
    }
}

/// A new database: one keyspace, no files.
fn new_database(number: u64) -> Edit {
    let keyspace = KeyspaceRecord {
        id: DEFAULT_ID,
        kind: KeyspaceKind::Ordered,
        name: DEFAULT_NAME.to_owned(),
        operator: None,
        compression: None,
        separation: Separation::Default,
        deltas: DeltaPlacement::Levels,
    };
    Edit {
        keyspaces_added: vec![keyspace],
        next_keyspace: Some(KeyspaceId(DEFAULT_ID.0 + 1)),
        database: Some(number),
        ..Edit::default()
    }
}

/// Commits an edit while nothing else can allocate file ids, and reserves more of them if few are left. `files` are the
/// files in the directories.
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
