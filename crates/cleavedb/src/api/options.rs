//! Options of a database and of a keyspace. The documentation of each option says when it takes effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::value_options::ValueOptions;
use crate::base::limits::{BACKGROUND_IO_MIN, FAST_BYTES_MIN, MEMORY_BUDGET_MIN};
use crate::base::{Error, MergeOperator, Result};
use crate::device::{KvDevice, WithDevice, device_path};
use crate::engine::events::Listener;
use crate::engine::inspect::check::Report;
use crate::engine::inspect::stats_page::LiveStats;
use crate::engine::lifecycle::request::OpenRequest;
use crate::engine::manifest::files::DeclaredDirs;
use crate::engine::tuning::settings::{
    BucketSplits, Bypass, Durability, LogBackend, Scheduling, Settings, check_compression, check_interval,
};
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceKind, Separation};
use crate::io::{OsStorage, Storage};

/// With fewer open tables, most reads would have to open a file.
const OPEN_FILES_MIN: usize = 16;
/// Default limit of open tables.
const OPEN_FILES_DEFAULT_MAX: usize = 4096;
/// Files other than tables: logs, manifest, locks, output of jobs, and some for the caller.
const OTHER_FILES: usize = 32;

/// Options of a database. The defaults suit most uses.
///
/// ```
/// # fn main() -> cleavedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// let db = cleavedb::Options::new().memory_budget(64 << 20).open(dir.path().join("db"))?;
/// db.put("key", "value")?;
/// # db.close()
/// # }
/// ```
#[derive(Clone)]
pub struct Options {
    pub(crate) memory_budget: Option<usize>,
    pub(crate) durability: Durability,
    pub(crate) compression: Compression,
    /// HL0 first; deeper levels use the last entry. Empty: `compression` on all levels.
    pub(crate) compression_by_level: Vec<Compression>,
    /// `Separation::Default`: the threshold in `Tuning`.
    pub(crate) separation: Separation,
    /// `None`: the values in `Tuning`.
    pub(crate) values: Option<ValueOptions>,
    /// `None`: the percentage in `Tuning`.
    pub(crate) bucket_splits: Option<BucketSplits>,
    /// `None`: the share follows the misses of the caches.
    pub(crate) operand_cache_percent: Option<u32>,
    pub(crate) block_size: usize,
    pub(crate) filter_bits: u32,
    pub(crate) background_threads: usize,
    pub(crate) scheduling: Scheduling,
    pub(crate) background_io_limit: Option<u64>,
    pub(crate) bypass: Bypass,
    pub(crate) kv_device: Option<Arc<dyn KvDevice>>,
    pub(crate) fast_dir: Option<PathBuf>,
    pub(crate) slow_dir: Option<PathBuf>,
    pub(crate) fast_bytes: Option<u64>,
    pub(crate) create_if_missing: bool,
    pub(crate) operators: Vec<Arc<dyn MergeOperator>>,
    pub(crate) log_backend: LogBackend,
    pub(crate) open_files_max: Option<usize>,
    pub(crate) direct_io: Option<bool>,
    pub(crate) busy_poll: bool,
    pub(crate) read_only: bool,
    pub(crate) listeners: Vec<Arc<dyn Listener>>,
}

impl Default for Options {
    fn default() -> Options {
        Options::new()
    }
}

impl Options {
    /// The defaults.
    pub fn new() -> Options {
        Options {
            memory_budget: None,
            durability: Durability::Buffered,
            compression: Compression::Lz4,
            compression_by_level: Vec::new(),
            separation: Separation::Default,
            values: None,
            bucket_splits: None,
            operand_cache_percent: None,
            block_size: 4096,
            filter_bits: 10,
            background_threads: 2,
            scheduling: Scheduling::Auto,
            background_io_limit: None,
            bypass: Bypass::Off,
            kv_device: None,
            fast_dir: None,
            slow_dir: None,
            fast_bytes: None,
            create_if_missing: true,
            operators: crate::base::operators::builtin(),
            log_backend: LogBackend::Auto,
            open_files_max: None,
            direct_io: None,
            busy_poll: true,
            read_only: false,
            listeners: Vec::new(),
        }
    }

    /// Total bytes of memory: index tables, runs, caches, buffers, mapped windows. At least 16 MiB; default a quarter
    /// of RAM, at most 1 GiB. Large blocks or many filter bits need more; the error of `open` states the minimum.
    /// Memory held by callers (values, open iterators, batches) is not included. Takes effect at each open.
    pub fn memory_budget(mut self, bytes: usize) -> Options {
        self.memory_budget = Some(bytes);
        self
    }

    /// Durability of writes that do not choose their own. Takes effect at each open.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Compression of table blocks, unless a keyspace has its own. Default: LZ4. Applies to new tables.
    pub fn compression(mut self, compression: Compression) -> Options {
        self.compression = compression;
        self
    }

    /// Compression of table blocks per level, HL0 first; deeper levels use the last entry. Most data is in the lowest
    /// level, so `&[Compression::None, Compression::Lz4, Compression::Zstd]` spends CPU where it saves space and not
    /// where tables live for seconds. Takes precedence over [`compression`](Options::compression); a keyspace with its
    /// own compression uses that on all levels. Applies to new tables: a table moved down without a rewrite keeps its
    /// compression.
    pub fn compression_by_level(mut self, levels: &[Compression]) -> Options {
        self.compression_by_level = levels.to_vec();
        self
    }

    /// Separation threshold: values of at least `bytes` bytes are separated from their keys, in keyspaces without their
    /// own threshold ([`KeyspaceOptions::separation`]). Default: 192 bytes
    /// ([`SEPARATION_BYTES_DEFAULT`](crate::limits::SEPARATION_BYTES_DEFAULT)). `None` keeps all values inline,
    /// compressed in blocks with their neighbours: for data that is mostly scanned in key order, or that compresses
    /// well. Takes effect at each open and is not stored: it applies to later writes, and an existing value is moved
    /// only when its key is written again.
    pub fn separation(mut self, bytes: Option<u32>) -> Options {
        self.separation = Separation::chosen(bytes);
        self
    }

    /// Storage of separated values. Takes effect at each open.
    pub fn values(mut self, values: ValueOptions) -> Options {
        self.values = Some(values);
        self
    }

    /// Bytes of a table block before compression: 512 B to 1 MiB, default 4 KiB. Applies to new tables.
    pub fn block_size(mut self, bytes: usize) -> Options {
        self.block_size = bytes;
        self
    }

    /// Filter bits per key: 0 (none) to 64, default 10 (about 1 % false positives). Applies to new tables.
    pub fn filter_bits(mut self, bits: u32) -> Options {
        self.filter_bits = bits;
        self
    }

    /// When buckets of merge operands are split ([`KeyspaceOptions::deltas`]). Default: above 80 percent of their size
    /// ([`BUCKET_SPLIT_PERCENT_DEFAULT`](crate::limits::BUCKET_SPLIT_PERCENT_DEFAULT)). Takes effect at each open.
    pub fn bucket_splits(mut self, splits: BucketSplits) -> Options {
        self.bucket_splits = Some(splits);
        self
    }

    /// Percentage of the memory budget that caches operands of buckets, 0 (none) to 50, at most half of what all caches have.
    /// Default: the share follows the misses of all caches. Takes effect at each open.
    pub fn operand_cache_percent(mut self, percent: u32) -> Options {
        self.operand_cache_percent = Some(percent);
        self
    }

    /// Threads for background work: 1 to 64, default 2. Takes effect at each open.
    pub fn background_threads(mut self, threads: usize) -> Options {
        self.background_threads = threads;
        self
    }

    /// How background work is scheduled. Takes effect at each open.
    pub fn scheduling(mut self, scheduling: Scheduling) -> Options {
        self.scheduling = scheduling;
        self
    }

    /// The most bytes per second that compactions, value GC, reordering and moves of files read and write together, at least
    /// 1 MiB; `None` (the default): no limit. Flushes count and do not wait. Background work gets the rest of the limit that users
    /// leave of the devices, at least an eighth, and all of it while writers wait for background work, which is then
    /// not limited further, as while a close or [`Db::wait_for_background`](crate::Db::wait_for_background) waits: a limit below what the writes need slows writers down, and breaks no limit of space or memory.
    /// Takes effect at each open.
    pub fn background_io_limit(mut self, bytes_per_second: Option<u64>) -> Options {
        self.background_io_limit = bytes_per_second;
        self
    }

    /// What writers do while background work cannot follow them. [`Stats::bypass`](crate::Stats::bypass) shows what came of it.
    /// Takes effect at each open.
    pub fn bypass(mut self, bypass: Bypass) -> Options {
        self.bypass = bypass;
        self
    }

    /// A device with a key-value interface, on which logs are born during redirects with [`Bypass::Device`], and which only one
    /// database can have. Once there are logs of the database on it, it must be declared at each open, whatever the bypass is, and
    /// also by [`check_files`](Options::check_files): otherwise opening fails with [`Error::InvalidInput`], which names it. After
    /// a clean close nothing of the database is left there, if the tiers had room for it. A device that fails stops writes, as other
    /// storage does. Takes effect at each open.
    ///
    /// ```
    /// # fn main() -> cleavedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// use cleavedb::{Bypass, EmulatedSsd, Options, Rollback, SsdParameters};
    ///
    /// let device = EmulatedSsd::open(dir.path().join("device"), SsdParameters::modern())?;
    /// let options = Options::new().kv_device(device).bypass(Bypass::Device(Rollback::Eager));
    /// let db = options.open(dir.path().join("db"))?;
    /// db.put("key", "value")?;
    /// assert!(db.stats().bypass.device.is_some());
    /// # db.close()
    /// # }
    /// ```
    pub fn kv_device(mut self, device: Arc<dyn KvDevice>) -> Options {
        self.kv_device = Some(device);
        self
    }

    /// Directory of the fast tier: of logs, the manifest, and what else there is room for. Default: the database's own
    /// directory. Another one can be declared at an open for writing: if it holds no database, and the slow directory is one
    /// of a database, that database's manifest moves there. It is opened and closed where it was before that, and its
    /// former fast directory must be there.
    pub fn fast_dir(mut self, path: impl Into<PathBuf>) -> Options {
        self.fast_dir = Some(path.into());
        self
    }

    /// The most bytes of the fast tier, at least 64 MiB: of everything in its directory together, logs, manifest, buffers
    /// in files and the reserve included. Logs are moved to the slow tier before it is full, writers are slowed near it, and
    /// nothing fails at it. Files that only open iterators and snapshots hold back count as well, and statistics report them
    /// separately ([`TierStats::fast_bytes_pinned`](crate::TierStats::fast_bytes_pinned)). A budget below what lies there is reached by
    /// moving files. Needs a slow directory of its own. Default: what the file system has room for. Takes effect at each open.
    pub fn fast_bytes(mut self, bytes: u64) -> Options {
        self.fast_bytes = Some(bytes);
        self
    }

    /// Directory of the slow tier: of values that have left the logs, and of tables with values; tables of addresses are there if the
    /// fast tier has no room for them (decision record 056). Default: the database's own directory.
    ///
    /// Another directory can be declared at each open, also that of the fast tier (which ends the separation), and files
    /// move there in the background ([`TierStats::files_to_move`](crate::TierStats::files_to_move)); until they have, the former
    /// directory must be there. A directory that was renamed or mounted elsewhere is recognized by its file `OWNER`.
    /// Once a database has a slow directory the option must be given at each open. Opening fails with
    /// [`Error::InvalidInput`] if it is missing, if a directory with files of the database is not there, if the declared
    /// directory holds files of another database, or if a copy of this database has used it since. A copy of the main
    /// directory alone that was made while the database was open is recognized only after a clean close or another open
    /// of the original: before that, after a crash, the copy is accepted and removes the files that it does not know. Use
    /// a [checkpoint](crate::Db::checkpoint) to copy an open database. Paths must be UTF-8.
    pub fn slow_dir(mut self, path: impl Into<PathBuf>) -> Options {
        self.slow_dir = Some(path.into());
        self
    }

    /// Creates the database if it does not exist (default). If false, opening a missing one is [`Error::NotFound`];
    /// files of a database without the file `CURRENT` are [`Error::Corruption`] in either case.
    /// Takes effect at each open.
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Registers a merge operator by its name. Those in [`operators`](crate::operators) are registered already; a later
    /// registration replaces an earlier one of the same name. Required at each open for keyspaces that use the
    /// operator: without it the database opens, and each read of a key with operands fails ([`Error::MergeFailed`]).
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Options {
        self.operators.retain(|other| other.name() != operator.name());
        self.operators.push(operator);
        self
    }

    /// I/O method for writing the log. Takes effect at each open; logs written by either method can be read.
    pub fn log_backend(mut self, backend: LogBackend) -> Options {
        self.log_backend = backend;
        self
    }

    /// Maximum number of open table files: 16 or more. Other tables are opened when read, which may briefly exceed the
    /// limit by one file per reading thread. Default: half of the process's limit of open files, clamped to 16..4096.
    /// Logs and the manifest need about 30 files more. Takes effect at each open.
    pub fn open_files_max(mut self, files: usize) -> Options {
        self.open_files_max = Some(files);
        self
    }

    /// Whether tables and values are read and written past the page cache. Default: in a slow directory of its own, if
    /// its file system supports it, and not elsewhere. `memory_budget` is then all the memory that caches them, and each
    /// cache miss costs a device access: for machines with little spare memory, with a budget that is large relative to
    /// the frequently read data. One exception: the missing blocks and values of a
    /// [`multi_get`](crate::Keyspace::multi_get) or of a scan are fetched together through the page cache, so that many reads
    /// are in flight, and leave it as they are read (decision record 054). With `true`, opening fails if a file system does not
    /// support direct I/O. Takes effect at each open.
    pub fn direct_io(mut self, direct: bool) -> Options {
        self.direct_io = Some(direct);
        self
    }

    /// If true (default), a lone short read from a fast device is busy-polled for at most 0.2 ms, which makes it 25 to
    /// 33 % faster. "Lone" means that no other thread of the process is waiting for one. Polling ends while the machine
    /// has more runnable threads than processors, or the process loses its processor. If false, the thread always
    /// sleeps. Reads from slow devices are never polled. Decision record 029. Takes effect at each open.
    pub fn busy_poll(mut self, awake: bool) -> Options {
        self.busy_poll = awake;
        self
    }

    /// Opens the database read-only: no file in its directories is changed, and they need not be writable. Several
    /// processes may open a database read-only at the same time, but not together with a writer: the later one gets
    /// [`Error::Locked`]. Logs are replayed into memory, which after a crash may take more than `memory_budget`; no
    /// background work runs; writes and all other calls that change the database return [`Error::InvalidInput`]. The
    /// database must exist; `create_if_missing` is ignored. Takes effect at each open.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Registers a listener for flushes, compactions, stalls, changes of the write rate, and failures. Events are
    /// delivered one at a time from a dedicated thread that holds no lock; closing waits until all events are
    /// delivered. A listener that holds a handle of the database keeps it open. May be called several times. Takes
    /// effect at each open.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Options {
        self.listeners.push(listener);
        self
    }

    /// Checks a closed database; see [`check`](crate::check). Only the directories of the options are used.
    ///
    /// # Errors
    /// As [`check`](crate::check).
    pub fn check_files(&self, path: impl AsRef<Path>) -> Result<Report> {
        self.check_on(Arc::new(OsStorage::new()), path.as_ref())
    }

    /// The statistics of a database that is open elsewhere; see [`live_stats`](crate::live_stats). Only the directories
    /// of the options are used.
    ///
    /// # Errors
    /// [`Error::Io`] if the directory or the page cannot be read.
    pub fn live_stats(&self, path: impl AsRef<Path>) -> Result<Option<LiveStats>> {
        let dir = self.fast_dir.as_deref().unwrap_or(path.as_ref());
        crate::engine::inspect::stats_page::read_page(&OsStorage::new(), dir)
    }

    /// As [`check_files`](Options::check_files), on any storage.
    pub(crate) fn check_on(&self, storage: Arc<dyn Storage>, path: &Path) -> Result<Report> {
        let dirs = self.directories(&*storage, path)?;
        crate::engine::inspect::check::check(self.with_device(storage)?, path, &dirs)
    }

    /// The directories of logs and of tables, as absolute paths: the working directory may change while a database is
    /// open.
    fn directories(&self, storage: &dyn Storage, path: &Path) -> Result<DeclaredDirs> {
        let place = |chosen: &Option<PathBuf>| storage.absolute(chosen.as_deref().unwrap_or(path));
        let (names_fast, names_slow) = (self.fast_dir.is_some(), self.slow_dir.is_some());
        let device = self.kv_device.as_deref().map(device_path);
        Ok(DeclaredDirs { fast: place(&self.fast_dir)?, slow: place(&self.slow_dir)?, names_fast, names_slow, device })
    }

    /// The storage, with the device beside it.
    pub(crate) fn with_device(&self, storage: Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
        match &self.kv_device {
            Some(device) => Ok(Arc::new(WithDevice::new(storage, device.clone())?)),
            None => Ok(storage),
        }
    }

    /// Validates the options and derives the sizes, unless `tuning` provides them.
    pub(crate) fn request(self, storage: &dyn Storage, path: &Path, tuning: Option<Tuning>) -> Result<OpenRequest> {
        self.check()?;
        let is_derived = tuning.is_none();
        if let Some(bytes) = self.fast_bytes.filter(|bytes| is_derived && *bytes < FAST_BYTES_MIN) {
            return Err(Error::input(format!("option fast_bytes is {bytes}, but must be at least {FAST_BYTES_MIN}")));
        }
        let memory_budget = self.resolve_budget();
        let mut tuning = match tuning {
            Some(tuning) => tuning,
            None => Tuning::for_options(memory_budget, self.block_size, self.filter_bits, self.background_threads)?,
        };
        tuning.separation_bytes = self.separation.bytes(tuning.separation_bytes);
        self.values.iter().for_each(|values| values.tune(&mut tuning));
        self.bucket_splits.iter().for_each(|splits| tuning.bucket_split_percent = splits.percent());
        let operand_cache = |percent: u32| (tuning.memory_bytes as u64 * u64::from(percent) / 100) as usize;
        tuning.operand_cache_bytes = self.operand_cache_percent.map(operand_cache);
        let open_files_max = self.resolve_open_files(storage.open_files_limit())?.min(tuning.open_files_max);
        let dirs = self.directories(storage, path)?;
        if let Some(bytes) = self.fast_bytes {
            if !dirs.are_apart() {
                return Err(Error::input("option fast_bytes needs a slow tier: set slow_dir to another directory"));
            }
            if is_derived {
                tuning.fit_fast_tier(bytes);
            }
        }
        let settings = Settings {
            memory_budget,
            durability: self.durability,
            compression: self.compression,
            compression_by_level: self.compression_by_level,
            block_size: self.block_size,
            filter_bits: self.filter_bits,
            background_threads: self.background_threads,
            scheduling: self.scheduling,
            background_io_limit: self.background_io_limit,
            bypass: self.bypass,
            read_only: self.read_only,
            tuning,
        };
        Ok(OpenRequest {
            path: path.to_owned(),
            dirs,
            fast_bytes: self.fast_bytes,
            create_if_missing: self.create_if_missing,
            settings,
            open_files_max,
            direct_io: self.direct_io,
            log_backend: self.log_backend,
            kv_device: self.kv_device,
            operators: self.operators,
            listeners: self.listeners,
        })
    }

    pub(crate) fn check(&self) -> Result<()> {
        let budget = self.memory_budget.unwrap_or(MEMORY_BUDGET_MIN);
        let ranges = [
            ("memory_budget", budget as u64, MEMORY_BUDGET_MIN as u64, u64::MAX),
            ("block_size", self.block_size as u64, 512, 1 << 20),
            ("filter_bits", self.filter_bits as u64, 0, 64),
            ("background_threads", self.background_threads as u64, 1, 64),
            ("background_io_limit", self.background_io_limit.unwrap_or(u64::MAX), BACKGROUND_IO_MIN, u64::MAX),
            ("operand_cache_percent", self.operand_cache_percent.unwrap_or(0).into(), 0, 50),
            ("open_files_max", self.open_files_max.unwrap_or(OPEN_FILES_MIN) as u64, OPEN_FILES_MIN as u64, 1 << 20),
        ];
        for (name, value, low, high) in ranges {
            if !(low..=high).contains(&value) {
                return Err(Error::input(format!("option {name} is {value}, but must be from {low} to {high}")));
            }
        }
        if let Durability::Interval(interval) = self.durability {
            check_interval(interval)?;
        }
        self.scheduling.check()?;
        if matches!(self.bypass, Bypass::Device(_)) && self.kv_device.is_none() {
            return Err(Error::input("option bypass is Device, which needs the option kv_device"));
        }
        self.values.iter().try_for_each(ValueOptions::check)?;
        self.bucket_splits.map_or(Ok(()), BucketSplits::check)?;
        self.compression_by_level.iter().chain([&self.compression]).try_for_each(|&chosen| check_compression(chosen))
    }

    /// Maximum number of open table files in a process that may open `limit` files.
    pub(crate) fn resolve_open_files(&self, limit: usize) -> Result<usize> {
        let wanted = self.open_files_max.unwrap_or(OPEN_FILES_MIN);
        if wanted + OTHER_FILES > limit {
            return Err(Error::input(format!(
                "open_files_max is {wanted}, and other files need {OTHER_FILES}, but this process may open only {limit}"
            )));
        }
        let half = ((limit - OTHER_FILES) / 2).clamp(OPEN_FILES_MIN, OPEN_FILES_DEFAULT_MAX);
        Ok(self.open_files_max.unwrap_or(half))
    }

    /// The memory budget: the chosen one, or the default.
    pub(crate) fn resolve_budget(&self) -> usize {
        self.memory_budget.unwrap_or_else(|| {
            let quarter = crate::io::os::memory_bytes() / 4;
            quarter.clamp(MEMORY_BUDGET_MIN, 1 << 30)
        })
    }
}

/// Options of a keyspace, stored in the manifest. Fixed when the keyspace is created, except the separation threshold and
/// the placement of merge operands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) operator: Option<String>,
    pub(crate) compression: Option<Compression>,
    pub(crate) separation: Separation,
    pub(crate) deltas: DeltaPlacement,
    pub(crate) kind: KeyspaceKind,
}

impl KeyspaceOptions {
    /// The defaults: no merge operator; compression and separation threshold as set in [`Options`].
    pub fn new() -> KeyspaceOptions {
        KeyspaceOptions::default()
    }

    /// Options of a hash keyspace, for point access (REXIO): records stay in the log that they were written to, and an index
    /// in memory has the place of each key. A read costs one access to storage, a miss none, and nothing is written twice until
    /// a log must give its space back. The index takes the bytes of all keys and about 16 B for each, within half of
    /// `memory_budget` (a little less below 32 MiB, and where there are very many tables or keyspaces); beyond, new keys are
    /// refused with [`Error::IndexFull`](crate::Error::IndexFull). Merge operands take about 100 B and their key beside that until
    /// they are folded, and versions that only snapshots need about 200 B each. There are no ordered scans and no range deletes.
    /// Separation, compression and the placement of merge operands have no meaning here.
    pub fn hash() -> KeyspaceOptions {
        KeyspaceOptions { kind: KeyspaceKind::Hash, ..KeyspaceOptions::default() }
    }

    /// The merge operator, by its registered name. Fixed: an operator with another name is a different operator.
    pub fn merge_operator(mut self, name: impl Into<String>) -> KeyspaceOptions {
        self.operator = Some(name.into());
        self
    }

    /// Compression of this keyspace's table blocks, overriding that of the database. Fixed.
    pub fn compression(mut self, compression: Compression) -> KeyspaceOptions {
        self.compression = Some(compression);
        self
    }

    /// Separation threshold: values of at least `bytes` bytes are separated from their keys. They are written once, to
    /// the log, and stay there while keys are sorted and merged (HashKV, section 3.5). `None` keeps all values inline.
    /// Default: [`Options::separation`] at each open. Can be changed at any time with
    /// [`Keyspace::set_separation`](crate::Keyspace::set_separation).
    pub fn separation(mut self, bytes: Option<u32>) -> KeyspaceOptions {
        self.separation = Separation::chosen(bytes);
        self
    }

    /// Where merge operands are kept once they leave memory: with all other versions in the levels, or in buckets by key
    /// range (KDSep, ICDE 2024), where a read finds all operands of a key in one place and compactions do not pass over
    /// them. Default: in the levels. Can be changed at any time with
    /// [`Keyspace::set_deltas`](crate::Keyspace::set_deltas).
    pub fn deltas(mut self, deltas: DeltaPlacement) -> KeyspaceOptions {
        self.deltas = deltas;
        self
    }
}
