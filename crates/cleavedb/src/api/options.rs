//! What a user may choose when opening a database or creating a keyspace. Each option says when it takes effect.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::api::value_options::ValueOptions;
use crate::base::limits::MEMORY_BUDGET_MIN;
use crate::base::{Error, MergeOperator, Result};
use crate::engine::events::Listener;
use crate::engine::inspect::check::Report;
use crate::engine::inspect::stats_page::LiveStats;
use crate::engine::lifecycle::request::OpenRequest;
use crate::engine::manifest::files::Dirs;
use crate::engine::tuning::settings::{Durability, LogBackend, Settings, check_compression, check_interval};
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;
use crate::format::edit::Separation;
use crate::io::{OsStorage, Storage};

/// With fewer open tables reads would mostly open files.
const OPEN_FILES_MIN: usize = 16;
/// By default no more tables are open than this.
const OPEN_FILES_DEFAULT_MAX: usize = 4096;
/// Files beside tables: logs, manifest, locks, what jobs write, and some for the caller.
const OTHER_FILES: usize = 32;

/// How to open a database. The defaults need no thought.
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
    /// HL0 first; levels below the last one follow the last one. Empty: `compression` everywhere.
    pub(crate) compression_by_level: Vec<Compression>,
    /// Default: what Tuning says.
    pub(crate) separation: Separation,
    /// What Tuning says, if there is none.
    pub(crate) values: Option<ValueOptions>,
    pub(crate) block_size: usize,
    pub(crate) filter_bits: u32,
    pub(crate) background_threads: usize,
    pub(crate) fast_dir: Option<PathBuf>,
    pub(crate) slow_dir: Option<PathBuf>,
    pub(crate) create_if_missing: bool,
    pub(crate) operators: Vec<Arc<dyn MergeOperator>>,
    pub(crate) log_backend: LogBackend,
    pub(crate) open_files_max: Option<usize>,
    pub(crate) direct_io: bool,
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
            block_size: 4096,
            filter_bits: 10,
            background_threads: 2,
            fast_dir: None,
            slow_dir: None,
            create_if_missing: true,
            operators: crate::base::operators::builtin(),
            log_backend: LogBackend::Auto,
            open_files_max: None,
            direct_io: false,
            busy_poll: true,
            read_only: false,
            listeners: Vec::new(),
        }
    }

    /// Bytes of memory for everything together: index tables, runs, caches, buffers, mapped windows. At least 16 MiB;
    /// default a quarter of RAM, at most 1 GiB. Large blocks and many filter bits need more; opening says how much. What
    /// callers hold (values, open iterators, batches) comes on top. Takes effect at each open.
    pub fn memory_budget(mut self, bytes: usize) -> Options {
        self.memory_budget = Some(bytes);
        self
    }

    /// What writes survive unless they say otherwise. Takes effect at each open.
    pub fn durability(mut self, durability: Durability) -> Options {
        self.durability = durability;
        self
    }

    /// Compression of table blocks, unless a keyspace chose its own. Applies to new tables.
    pub fn compression(mut self, compression: Compression) -> Options {
        self.compression = compression;
        self
    }

    /// Compression of table blocks level by level, HL0 first; levels that are not named follow the last one that is. Most
    /// data lies in the lowest level, so `&[Compression::None, Compression::Lz4, Compression::Zstd]` spends CPU where it
    /// saves space and not where tables live for seconds. Goes before [`compression`](Options::compression); a keyspace
    /// that chose its own keeps it on all levels. Applies to new tables: one that moves down as it is keeps what it has.
    pub fn compression_by_level(mut self, levels: &[Compression]) -> Options {
        self.compression_by_level = levels.to_vec();
        self
    }

    /// Values of at least so many bytes lie apart from their keys, in keyspaces that do not say otherwise
    /// ([`KeyspaceOptions::separation`]). Default: from 192 bytes on
    /// ([`SEPARATION_BYTES_DEFAULT`](crate::limits::SEPARATION_BYTES_DEFAULT)). `None` keeps all values with their keys,
    /// compressed in blocks with their neighbours: for data that is mostly read in order, or that compresses well. Takes
    /// effect at each open and is not remembered: it applies to values written from then on, and the others stay where they
    /// are until their keys are written again.
    pub fn separation(mut self, bytes: Option<u32>) -> Options {
        self.separation = Separation::chosen(bytes);
        self
    }

    /// How values that lie apart are kept. Takes effect at each open.
    pub fn values(mut self, values: ValueOptions) -> Options {
        self.values = Some(values);
        self
    }

    /// Bytes of a table block before compression: 512 B to 1 MiB, default 4 KiB. Applies to new tables.
    pub fn block_size(mut self, bytes: usize) -> Options {
        self.block_size = bytes;
        self
    }

    /// Filter bits per key: 0 (none) to 64, default 10 (about one false positive in a hundred). Applies to new tables.
    pub fn filter_bits(mut self, bits: u32) -> Options {
        self.filter_bits = bits;
        self
    }

    /// Threads for background work: 1 to 64, default 2. Takes effect at each open.
    pub fn background_threads(mut self, threads: usize) -> Options {
        self.background_threads = threads;
        self
    }

    /// Where logs and the manifest lie, instead of the database's own directory. Fixed when the database is made: at another
    /// place a new database would begin, unless a directory holds files of this or another database, which is
    /// [`Error::InvalidInput`]. A [checkpoint](Db::checkpoint) is the way to another layout.
    pub fn fast_dir(mut self, path: impl Into<PathBuf>) -> Options {
        self.fast_dir = Some(path.into());
        self
    }

    /// Where tables lie, instead of the database's own directory. Fixed once there are tables, or once the database was
    /// opened with it: without it, or where the tables are not found, opening is [`Error::InvalidInput`]. So it is where the
    /// directory holds files of another database, and where a copy of this one has used it since.
    pub fn slow_dir(mut self, path: impl Into<PathBuf>) -> Options {
        self.slow_dir = Some(path.into());
        self
    }

    /// Makes a new database where there is none (default). If false, opening a missing one is [`Error::NotFound`]. Takes
    /// effect at each open.
    pub fn create_if_missing(mut self, create: bool) -> Options {
        self.create_if_missing = create;
        self
    }

    /// Registers a merge operator by its name. The ones in [`operators`](crate::operators) are registered already; a
    /// later one replaces an earlier one of the same name. Needed at each open by keyspaces that chose it: without it the
    /// database opens, and reads of keys with operands fail, one by one ([`Error::MergeFailed`]).
    pub fn merge_operator(mut self, operator: Arc<dyn MergeOperator>) -> Options {
        self.operators.retain(|other| other.name() != operator.name());
        self.operators.push(operator);
        self
    }

    /// How the log is written. Takes effect at each open; logs of both kinds are read.
    pub fn log_backend(mut self, backend: LogBackend) -> Options {
        self.log_backend = backend;
        self
    }

    /// How many table files may be open at once: 16 or more. Others are opened when they are read; for each thread that
    /// reads, one more may be open for a moment. Default: half of what the process may open, from 16 to 4096. Logs and the
    /// manifest need about 30 files more. Takes effect at each open.
    pub fn open_files_max(mut self, files: usize) -> Options {
        self.open_files_max = Some(files);
        self
    }

    /// Writes and reads tables past the page cache (default: through it). Then `memory_budget` is all the memory that they
    /// get, and reads that miss the block cache cost an access to the device: for machines that have little memory to
    /// spare, with a budget that is large for the data that is read often. Where the file system knows no direct I/O,
    /// opening is an error. Takes effect at each open.
    pub fn direct_io(mut self, direct: bool) -> Options {
        self.direct_io = direct;
        self
    }

    /// A thread that waits for a short read from a fast device keeps its processor awake (default), for 0.2 ms at most, and
    /// only if no other thread of the process waits for one: the read is a quarter to a third faster then. If false it sleeps:
    /// for machines where processors are short or dear. Slow devices are slept for in any case. Decision record 029. Takes
    /// effect at each open.
    pub fn busy_poll(mut self, awake: bool) -> Options {
        self.busy_poll = awake;
        self
    }

    /// Opens the database for reading only: nothing in its directories is changed, and they need not be writable. Several
    /// may have it open so at once, but none beside a writer: whoever comes second gets [`Error::Locked`]. Logs are
    /// replayed into memory, which after a crash may take more than `memory_budget`; no background work runs; writes and
    /// all else that would change something are [`Error::InvalidInput`]. There must be a database; the option
    /// `create_if_missing` does not count. Takes effect at each open.
    pub fn read_only(mut self, read_only: bool) -> Options {
        self.read_only = read_only;
        self
    }

    /// Tells `listener` of flushes, compactions, stalls, the pace of writers, and failures. It is called from a thread of
    /// its own, outside of all locks, for one event after the other; closing waits until it has heard everything. One that
    /// holds a handle of the database keeps it open. May be given several times. Takes effect at each open.
    pub fn listener(mut self, listener: Arc<dyn Listener>) -> Options {
        self.listeners.push(listener);
        self
    }

    /// Checks a closed database; see [`check`](crate::check). Of the options only the directories matter.
    ///
    /// # Errors
    /// As [`check`](crate::check).
    pub fn check_files(&self, path: impl AsRef<Path>) -> Result<Report> {
        self.check_on(Arc::new(OsStorage::new()), path.as_ref())
    }

    /// The figures of a database that is open elsewhere; see [`live_stats`](crate::live_stats). Of the options only the
    /// directories matter.
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
        crate::engine::inspect::check::check(storage, path, dirs)
    }

    /// The directories of logs and of tables, as absolute paths: the working directory may change while a database is open.
    fn directories(&self, storage: &dyn Storage, path: &Path) -> Result<Dirs> {
        let place = |chosen: &Option<PathBuf>| storage.absolute(chosen.as_deref().unwrap_or(path));
        Ok(Dirs { fast: place(&self.fast_dir)?, slow: place(&self.slow_dir)? })
    }

    /// Checks the choices and derives the sizes, unless `tuning` gives them.
    pub(crate) fn request(self, storage: &dyn Storage, path: &Path, tuning: Option<Tuning>) -> Result<OpenRequest> {
        self.check()?;
        let memory_budget = self.resolve_budget();
        let mut tuning = match tuning {
            Some(tuning) => tuning,
            None => Tuning::for_options(memory_budget, self.block_size, self.filter_bits, self.background_threads)?,
        };
        tuning.separation_bytes = self.separation.bytes(tuning.separation_bytes);
        self.values.iter().for_each(|values| values.tune(&mut tuning));
        let open_files_max = self.resolve_open_files(storage.open_files_limit())?.min(tuning.open_files_max);
        let dirs = self.directories(storage, path)?;
        let settings = Settings {
            memory_budget,
            durability: self.durability,
            compression: self.compression,
            compression_by_level: self.compression_by_level,
            block_size: self.block_size,
            filter_bits: self.filter_bits,
            background_threads: self.background_threads,
            read_only: self.read_only,
            tuning,
        };
        Ok(OpenRequest {
            path: path.to_owned(),
            dirs,
            create_if_missing: self.create_if_missing,
            settings,
            open_files_max,
            direct_io: self.direct_io,
            log_backend: self.log_backend,
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
        self.values.iter().try_for_each(ValueOptions::check)?;
        self.compression_by_level.iter().chain([&self.compression]).try_for_each(|&chosen| check_compression(chosen))
    }

    /// How many table files may be open at once in a process that may open `limit` files.
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

    /// The budget in force, and the sizes that follow from it.
    pub(crate) fn resolve_budget(&self) -> usize {
        self.memory_budget.unwrap_or_else(|| {
            let quarter = crate::io::os::memory_bytes() / 4;
            quarter.clamp(MEMORY_BUDGET_MIN, 1 << 30)
        })
    }
}

/// What a keyspace keeps for itself in the manifest. Fixed when it is created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyspaceOptions {
    pub(crate) operator: Option<String>,
    pub(crate) compression: Option<Compression>,
    pub(crate) separation: Separation,
}

impl KeyspaceOptions {
    /// No merge operator, compression and separation of values as the database.
    pub fn new() -> KeyspaceOptions {
        KeyspaceOptions::default()
    }

    /// The operator that combines deltas, by its registered name. Fixed: an operator under another name is another
    /// operator.
    pub fn merge_operator(mut self, name: impl Into<String>) -> KeyspaceOptions {
        self.operator = Some(name.into());
        self
    }

    /// Compression of this keyspace's blocks, whatever the database's. Fixed.
    pub fn compression(mut self, compression: Compression) -> KeyspaceOptions {
        self.compression = Some(compression);
        self
    }

    /// Values of at least so many bytes lie apart from their keys: they are written once, to the log, and stay there while
    /// keys are sorted and merged (HashKV, section 3.5). `None` keeps all values with their keys. Default: what
    /// [`Options::separation`] says at each open. Can be changed at any time by
    /// [`Keyspace::set_separation`](crate::Keyspace::set_separation).
    pub fn separation(mut self, bytes: Option<u32>) -> KeyspaceOptions {
        self.separation = Separation::chosen(bytes);
        self
    }
}
