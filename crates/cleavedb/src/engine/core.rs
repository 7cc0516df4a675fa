//! The engine behind the handles: what all paths share. The paths themselves are in the files named after them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::base::{DirId, Error, FileId, FileKey, FileKind, Result, Seqno};
use crate::device::KvDevice;
use crate::engine::background_io::BackgroundIo;
use crate::engine::buckets::UpkeepMemory;
use crate::engine::bypass::BypassState;
use crate::engine::commit_queue::CommitQueue;
use crate::engine::counters::Counters;
use crate::engine::crowded_front::CrowdedFront;
use crate::engine::current_survey::CurrentSurvey;
use crate::engine::durable_horizon::DurableHorizon;
use crate::engine::events::{Event, Events};
use crate::engine::fast_tier::FastTier;
use crate::engine::file_numbers::FileNumbers;
use crate::engine::hashed::HashState;
use crate::engine::keyspaces::Keyspaces;
use crate::engine::log_supply::LogSupply;
use crate::engine::manifest::Manifest;
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::numbered_files::list_numbered;
use crate::engine::memory::Memory;
use crate::engine::pacer::Pacer;
use crate::engine::page_state::StatsPage;
use crate::engine::poison::Poison;
use crate::engine::published::Published;
use crate::engine::reserve::Reserve;
use crate::engine::scan_demand::ScanDemand;
use crate::engine::scheduling::Scheduler;
use crate::engine::snapshots::{JobHorizon, Snapshots};
use crate::engine::tuning::settings::{LogBackend, Settings};
use crate::engine::view::View;
use crate::engine::work::Work;
use crate::format::edit::Edit;
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::PendingDeletions;
use crate::io::{Lock, Storage};
use crate::levels::readers::Readers;
use crate::sched::clock::now;
use crate::sched::sync::{Condvar, Mutex};
use crate::values::placement::Placement;

/// An open database.
pub(crate) struct Core {
    pub storage: Arc<dyn Storage>,
    pub dirs: Dirs,
    pub settings: Settings,
    /// Tells keyspaces of different open databases apart.
    pub database: u64,
    pub published: Published<View>,
    pub snapshots: Snapshots,
    pub keyspaces: Keyspaces,
    pub hash: HashState,
    pub commit: CommitQueue,
    pub horizon: DurableHorizon,
    pub logs: LogSupply,
    pub manifest: Mutex<Manifest>,
    pub work: Work,
    pub pacer: Pacer,
    pub bypass: BypassState,
    /// The declared KV device.
    pub kv_device: Option<Arc<dyn KvDevice>>,
    pub readers: Arc<Readers>,
    pub memory: Memory,
    pub scan_demand: ScanDemand,
    pub scheduler: Scheduler,
    pub background_io: BackgroundIo,
    /// When it was opened.
    pub opened_at: Duration,
    pub current_survey: CurrentSurvey,
    pub pending_deletions: Arc<PendingDeletions>,
    pub reserve: Reserve,
    pub fast: FastTier,
    /// Files may lie where they do not belong.
    pub has_misplaced: AtomicBool,
    /// Where files that have moved still lie for readers that hold them. A file does not return there before that one is
    /// gone, or its deletion would hit the wrong one.
    pub former_places: Mutex<BTreeSet<PathBuf>>,
    pub upkeep: Mutex<UpkeepMemory>,
    pub crowded_front: Mutex<CrowdedFront>,
    pub placement: Box<dyn Placement>,
    pub counters: Counters,
    pub stats_page: StatsPage,
    pub events: Events,
    pub numbers: FileNumbers,
    /// A file was made outside of the directory of the manifest since the open.
    pub has_made_slow_files: AtomicBool,
    /// Files with names of ours that were there at open and that this database has not made.
    pub unknown_files: Vec<PathBuf>,
    pub closed: AtomicBool,
    /// How the close went, once it is over.
    pub close_result: Mutex<Option<Result<()>>>,
    /// It is over.
    pub close_ended: Condvar,
    poison: Poison,
    /// Held as long as the database is open.
    pub locks: Mutex<Vec<Box<dyn Lock>>>,
}

/// Everything a core is made of that is not empty at the start.
pub(crate) struct CoreParts {
    pub storage: Arc<dyn Storage>,
    pub dirs: Dirs,
    pub settings: Settings,
    pub database: u64,
    pub view: View,
    pub seqno: Seqno,
    pub keyspaces: Keyspaces,
    pub log_backend: LogBackend,
    pub kv_device: Option<Arc<dyn KvDevice>>,
    pub manifest: Manifest,
    pub numbers: FileNumbers,
    pub unknown_files: Vec<PathBuf>,
    pub readers: Arc<Readers>,
    pub memory: Memory,
    pub pending_deletions: Arc<PendingDeletions>,
    pub reserve: Reserve,
    pub fast: FastTier,
    pub events: Events,
    pub locks: Vec<Box<dyn Lock>>,
}

impl Core {
    pub fn new(parts: CoreParts) -> Core {
        let placement = parts.settings.tuning.placement();
        let lists = parts.memory.staging.hold(0);
        let bytes_max = parts.settings.tuning.survey_bytes;
        let current_survey = CurrentSurvey::new(parts.numbers.newest(), bytes_max, lists);
        let background_io = BackgroundIo::new(parts.settings.background_io_limit);
        let scheduler = Scheduler::new(parts.settings.scheduling, &parts.settings.tuning);
        let scan_demand = ScanDemand::new(parts.view.values.figures().file_bytes);
        Core {
            storage: parts.storage,
            dirs: parts.dirs,
            settings: parts.settings,
            database: parts.database,
            commit: CommitQueue::new(parts.seqno, parts.view.active.clone()),
            published: Published::new(parts.view, parts.seqno),
            snapshots: Snapshots::default(),
            keyspaces: parts.keyspaces,
            hash: HashState::default(),
            horizon: DurableHorizon::new(parts.seqno),
            logs: LogSupply::new(parts.log_backend),
            manifest: Mutex::new(parts.manifest),
            work: Work::default(),
            pacer: Pacer::default(),
            bypass: BypassState::default(),
            kv_device: parts.kv_device,
            readers: parts.readers,
            memory: parts.memory,
            scan_demand,
            scheduler,
            background_io,
            opened_at: now(),
            current_survey,
            pending_deletions: parts.pending_deletions,
            reserve: parts.reserve,
            fast: parts.fast,
            has_misplaced: AtomicBool::new(true),
            former_places: Mutex::default(),
            upkeep: Mutex::default(),
            crowded_front: Mutex::default(),
            placement,
            counters: Counters::default(),
            stats_page: StatsPage::default(),
            events: parts.events,
            numbers: parts.numbers,
            has_made_slow_files: AtomicBool::new(false),
            unknown_files: parts.unknown_files,
            closed: AtomicBool::new(false),
            close_result: Mutex::default(),
            close_ended: Condvar::new(),
            poison: Poison::default(),
            locks: Mutex::new(parts.locks),
        }
    }

    /// A number for a new file, reserved durably. Not to be called while the manifest is locked.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if there is none left; [`Error::NoSpace`] if no more could be reserved.
    pub fn new_file_id(&self) -> Result<FileId> {
        loop {
            if let Some(id) = self.numbers.take() {
                return Ok(id);
            }
            self.reserve_numbers()?;
        }
    }

    /// Reserves more numbers, unless another thread has just done so.
    fn reserve_numbers(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        if !self.numbers.is_low() {
            return Ok(());
        }
        let block = self.with_descriptors(|| self.next_numbers())?;
        let Some(block) = block else { return Err(Error::input("this database has no file numbers left")) };
        let mut edit = Edit { files_reserved: vec![block], ..Edit::default() };
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)
    }

    /// The numbers to be reserved next: beyond every file that is there, so that none of another's gets a number of ours.
    pub fn next_numbers(&self) -> Result<Option<(FileId, FileId)>> {
        let files = list_numbered(&*self.storage, &self.dirs)?;
        Ok(self.numbers.next_block(files.iter().map(|file| file.id)))
    }

    /// A new file, with a number that is reserved durably, in a directory. As [`new_file_id`](Core::new_file_id).
    pub fn new_file(&self, kind: FileKind, dir: DirId) -> Result<FileKey> {
        let id = self.new_file_id()?;
        self.note_made_in(dir);
        Ok(FileKey { kind, id, dir })
    }

    /// Notes that a directory gets a new file.
    pub fn note_made_in(&self, dir: DirId) {
        if dir != DirId::HOME {
            self.has_made_slow_files.store(true, Ordering::Release);
        }
    }

    /// Keeps the file until it is obsolete and its last holder has gone.
    pub fn guard(&self, file: FileKey) -> FileGuard {
        FileGuard::new(file, self.dirs.path(file), self.pending_deletions.clone())
    }

    /// Refuses work on a closed database.
    pub fn check_open(&self) -> Result<()> {
        match self.closed.load(Ordering::Acquire) {
            true => Err(Error::Closed),
            false => Ok(()),
        }
    }

    /// What a read has come to. If it failed and the database is closed by now, that is why: the files may be someone else's.
    pub fn unless_closed<T>(&self, read: Result<T>) -> Result<T> {
        read.map_err(|error| self.check_open().err().unwrap_or(error)).map_err(|error| self.on_tier(error))
    }

    /// An error that names the tier that it comes from, if the database has several directories.
    pub fn on_tier(&self, error: Error) -> Error {
        error.on_tier(|path| self.dirs.named_tier_of(path))
    }

    /// Refuses what would change a database that is closed or was opened for reading only.
    pub fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        match self.settings.read_only {
            true => {
                Err(Error::input(format!("the database in {} was opened for reading only", self.dirs.fast().display())))
            }
            false => Ok(()),
        }
    }

    /// Refuses writes after a failure of storage.
    pub fn check_poison(&self) -> Result<()> {
        self.poison.check()
    }

    /// No write can be promised from here on. Wakes everyone who waits for progress.
    pub fn poison(&self, error: &Error) {
        let error = &self.on_tier(error.clone());
        if self.poison.set(error) {
            self.events.raise(Event::Poisoned { cause: error.to_string() });
        }
        self.work.wake_all();
    }

    /// Passes a result through, with the tier that an error comes from; a failure that must stop writes poisons them.
    pub fn guarded<T>(&self, result: Result<T>) -> Result<T> {
        let result = result.map_err(|error| self.on_tier(error));
        if let Err(error) = &result
            && !error.is_transient()
            && !matches!(error, Error::Closed | Error::InvalidInput { .. })
        {
            self.poison(error);
        }
        result.map_err(|error| match error {
            // What was refused because of an earlier failure names that one, with its tier.
            Error::Poisoned { .. } => self.check_poison().err().unwrap_or(error),
            error => error,
        })
    }

    /// Tries once more, with idle tables closed, what found no file descriptor left.
    pub fn with_descriptors<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(error) if error.is_too_many_files() => {
                self.readers.handles.close_idle();
                work()
            }
            result => result,
        }
    }
}

impl Core {
    /// Captures view and snapshots in one step, and which keyspaces are dropped.
    pub fn job_horizon(&self) -> JobHorizon {
        let (view, snapshots) = self.snapshots.capture(&self.published);
        JobHorizon { view, snapshots, dropped: self.keyspaces.dropped() }
    }
}
