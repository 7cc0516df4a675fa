//! Opening and closing a database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{Error, FileId, KeyspaceId, Result};
use crate::cache::block_cache::BlockCache;
use crate::engine::core::{Core, CoreParts};
use crate::engine::events::{Event, Events};
use crate::engine::file_numbers::FileNumbers;
use crate::engine::inspect::telemetry;
use crate::engine::keyspaces::{DEFAULT_ID, DEFAULT_NAME, Keyspaces};
use crate::engine::lifecycle::request::OpenRequest;
use crate::engine::manifest::file_names::{CURRENT, LOCK};
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::numbered_files::{Numbered, list_numbered};
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::memory::Memory;
use crate::engine::recovery::ownership::{
    FileClaim, check_absent, check_layout, check_new, check_owner, files_with, next_openings, remove_left_over,
    remove_never_named, replace_owner,
};
use crate::engine::recovery::replay::recover;
use crate::engine::recovery::tables::open_tables;
use crate::engine::recovery::values::{give_back_gaps, open_values};
use crate::engine::reserve::Reserve;
use crate::engine::tuning::settings::Settings;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::value_home::ValueHome;
use crate::engine::view::{Sources, View};
use crate::format::compression::Compression;
use crate::format::edit::{Edit, KeyspaceKind, KeyspaceRecord, Opening, Separation};
use crate::format::watermarks::Consumer;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::io::handles::Handles;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Lock, Storage};
use crate::levels::readers::Readers;
use crate::levels::version::Version;
use crate::values::files::ValueFiles;

/// Opens or creates a database.
pub(crate) fn open(storage: Arc<dyn Storage>, request: OpenRequest) -> Result<Arc<Core>> {
    let OpenRequest { path, dirs, settings, .. } = request;
    let Settings { read_only, ref tuning, .. } = settings;
    if (!request.create_if_missing || read_only) && !storage.exists(&dirs.fast.join(CURRENT))? {
        check_absent(&*storage, &dirs.fast)?;
        return Err(Error::NotFound { what: format!("database {}", path.display()) });
    }
    let locks = take_locks(&*storage, &dirs, read_only)?;
    let (mut manifest, numbers) = match read_only {
        true => {
            let manifest = Manifest::read(storage.clone(), &dirs.fast, tuning.manifest_bytes)?;
            let missing = || Error::NotFound { what: format!("database {}", path.display()) };
            (manifest.ok_or_else(missing)?, FileNumbers::new(FileId(0), FileId(0), tuning.numbers_reserved))
        }
        false => read_or_make_manifest(&storage, &dirs, tuning)?,
    };
    check_layout(&*storage, manifest.state(), &dirs)?;
    let owner = if dirs.are_apart() { check_owner(&*storage, &dirs.slow, manifest.state())? } else { None };
    let pending_deletions = Arc::new(PendingDeletions::default());
    let access = if request.direct_io { Access::Direct } else { Access::Buffered };
    if request.direct_io {
        // Tests for direct I/O on the lock file, which exists in the directory of the tables by now.
        storage.open_read(&dirs.slow.join(LOCK), access)?;
    }
    let memory = Memory::new(tuning);
    let readers = readers_on(&storage, tuning, access, request.open_files_max, &memory);
    check_keyspace_compression(&manifest)?;
    let version = open_tables(&dirs, manifest.state(), &pending_deletions, &readers)?;
    let recovered = recover(&*storage, &dirs, manifest.state(), tuning, &pending_deletions, read_only)?;
    let reserve = Reserve::new(storage.clone(), &dirs.fast, &dirs.slow, tuning);
    let place = Place { storage: &*storage, dirs: &dirs };
    if !read_only {
        remove_never_named(&*storage, &dirs, &manifest)?;
        place.begin(&mut manifest, &numbers, &reserve, recovered.edit, owner)?;
    }
    let unknown_files = files_with(&*storage, &dirs, &manifest, FileClaim::Unknown)?;

    static DATABASES: AtomicU64 = AtomicU64::new(0);
    let database = DATABASES.fetch_add(1, Ordering::Relaxed);
    let state = manifest.state();
    let records = state.keyspaces.values().cloned();
    let keyspaces =
        Keyspaces::new(records, state.dropped.clone(), request.operators, database, tuning.separation_bytes);
    let around = ValueHome { dirs: &dirs, pending_deletions: &pending_deletions, readers: &readers };
    let values = open_values(&around, state)?;
    if !read_only {
        give_back_gaps(&*storage, &values, &pending_deletions)?;
    }
    let view = view_of(recovered.tables, recovered.logs, version, values);
    let flushed = state.watermarks.of(Consumer::Levels);
    let events = Events::new(request.listeners.into_iter().chain(telemetry::listener(&dirs.fast)).collect())?;
    let core = Arc::new(Core::new(CoreParts {
        storage,
        dirs,
        settings,
        database,
        view,
        seqno: recovered.last_seqno,
        keyspaces,
        log_backend: request.log_backend,
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
    core.work.note_flushed(flushed);
    start(&core)?;
    Ok(core)
}

/// What tables and value files are read through.
fn readers_on(
    storage: &Arc<dyn Storage>,
    tuning: &Tuning,
    access: Access,
    open_files_max: usize,
    memory: &Memory,
) -> Arc<Readers> {
    Arc::new(Readers {
        handles: Arc::new(Handles::new(storage.clone(), access, open_files_max)),
        storage: storage.clone(),
        cache: Arc::new(BlockCache::new(tuning.cache_bytes)),
        ahead: ReadAhead::new(tuning.read_ahead_bytes, memory.jobs.clone()),
        scan_ahead: ReadAhead::new(tuning.read_ahead_bytes, memory.scans.clone()),
        jobs: memory.jobs.clone(),
        resident: Arc::default(),
    })
}

/// The first view: the index tables that recovery filled, newest first, above the tables of the manifest.
fn view_of(
    index_tables: Vec<Arc<IndexTable>>,
    logs: BTreeMap<FileId, Arc<LogFile>>,
    version: Version,
    values: ValueFiles,
) -> View {
    let mut index_tables = index_tables.into_iter();
    View::new(Sources {
        active: index_tables.next().unwrap_or_else(|| Arc::new(IndexTable::new())),
        sealed: index_tables.collect(),
        runs: Vec::new(),
        version: Arc::new(version),
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

/// Locks both directories, creating them if needed; a reader shares the locks with other readers and creates nothing.
fn take_locks(storage: &dyn Storage, dirs: &Dirs, read_only: bool) -> Result<Vec<Box<dyn Lock>>> {
    let Dirs { fast, slow } = dirs;
    if !read_only {
        BTreeSet::from([fast, slow]).iter().try_for_each(|dir| storage.create_dir_all(dir))?;
    }
    // A fixed lock order: all openers of a pair of directories begin with the same one.
    let both = if slow == fast { vec![fast] } else { vec![fast, slow] };
    let paths = both.into_iter().map(|dir| dir.join(LOCK));
    paths.map(|path| if read_only { storage.lock_shared(&path) } else { storage.lock(&path) }).collect()
}

/// The manifest of the existing or a new database, and the allocator of file ids.
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
    dirs: &'a Dirs,
}

impl Place<'_> {
    /// Commits the result of recovery (`recovered`) and the opening, takes ownership of a separate slow directory, and
    /// removes left-over files. These are removed only once the manifest that does not reference them is known to be on
    /// storage, because an earlier manifest might reference them. Everything a reader can see from now on must be
    /// durable as well, so a manifest whose end may not be durable is committed anew even if no file has to be removed.
    fn begin(
        &self,
        manifest: &mut Manifest,
        numbers: &FileNumbers,
        reserve: &Reserve,
        recovered: Option<Edit>,
        owner: Option<Opening>,
    ) -> Result<()> {
        let Place { storage, dirs } = *self;
        let left_over = |manifest: &Manifest| files_with(storage, dirs, manifest, FileClaim::LeftOver);
        let apart = dirs.are_apart();
        if recovered.is_some() || apart || manifest.has_tail() || !left_over(manifest)?.is_empty() {
            let mut edit = recovered.unwrap_or_default();
            if apart {
                if owner.is_some() {
                    // A process that died may not have synced `OWNER`. The manifest will not know the opening that loss
                    // of power could bring back.
                    storage.sync_dir(&dirs.slow)?;
                }
                edit.has_slow_dir = true;
                edit.openings = Some(next_openings(manifest.state(), owner, storage.unique_number()?));
            }
            let files = list_numbered(storage, dirs)?;
            reserve.with(|| commit_before_start(manifest, numbers, &files, edit.clone()))?;
        }
        if apart {
            reserve.with(|| replace_owner(storage, &dirs.slow, manifest.state()))?;
        }
        // The commit may already have removed a left-over manifest.
        remove_left_over(storage, left_over(manifest)?.iter().map(|path| &**path));
        Ok(())
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
