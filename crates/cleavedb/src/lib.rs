//! CleaveDB: an embedded, persistent key-value store that separates the index from the data. Keys are sorted, merged and
//! moved to lower levels as often as reads require; the bytes of a record are written once, to the log.
//!
//! ```
//! # fn main() -> cleavedb::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! use cleavedb::{Db, Durability, WriteBatch};
//!
//! let db = Db::open(&path)?;
//! db.put("city/zurich", "447082")?;
//!
//! let users = db.keyspace("users")?;
//! let mut batch = WriteBatch::new();
//! batch.put(&users, "ada", "admin");
//! batch.delete(&users, "bob");
//! db.write_with(batch, Durability::Sync)?; // survives loss of power
//!
//! for item in users.prefix("a")? {
//!     let (key, value) = item?;
//!     assert_eq!((&key[..], &value[..]), (&b"ada"[..], &b"admin"[..]));
//! }
//! # db.close()
//! # }
//! ```

pub(crate) mod api;
pub(crate) mod engine;
pub(crate) mod front;
pub(crate) mod levels;
pub(crate) mod values;
pub(crate) mod deltas;
pub(crate) mod hash;
pub(crate) mod bypass;
pub(crate) mod device;
pub(crate) mod cache;
pub(crate) mod format;
pub(crate) mod io;
pub(crate) mod sched;
pub(crate) mod base;
#[cfg(feature = "testing")]
#[doc(hidden)]
pub mod testing;

pub use api::{
    BackgroundPause, BucketSplits, Bypass, Db, Durability, Iter, Keys, Keyspace, KeyspaceOptions, KvDeviceName,
    LogBackend, Options, Rollback, Scheduling, Snapshot, Unordered, ValueOptions, ValuePlacement, ValueReordering,
    VictimPolicy, WriteBatch, WriteOptions,
};
pub use base::Tier;
pub use base::error::{Action, Error, Result};
pub use base::key_bounds::KeyBounds;
pub use base::kind::Seqno;
pub use base::operator::MergeOperator;
pub use base::slice::Slice;
pub use base::{limits, operators};
pub use device::emulated::{EmulatedSsd, SsdParameters};
pub use device::nvme::{NvmeKv, NvmeParameters};
pub use device::{BlockSide, KvDevice, KvPair, KvTraffic, KvUsage};
pub use engine::events::{Event, Listener};
pub use engine::inspect::bypass_stats::{BypassStats, KvDeviceStats};
pub use engine::inspect::check::{Problem, Report};
pub use engine::inspect::delta_stats::DeltaStats;
pub use engine::inspect::dump::{DumpEntry, DumpVersion, dump};
pub use engine::inspect::hash_stats::HashStats;
pub use engine::inspect::scheduling_stats::{DecisionStats, DeviceStats, JobKindStats, SchedulingStats, SettingStats};
pub use engine::inspect::stats::{FileStats, GroupStats, JobStats, LevelStats, RunStats, Stats};
pub use engine::inspect::stats_page::LiveStats;
pub use engine::inspect::tier_stats::{DirectoryStats, TierStats};
pub use engine::memory::MemoryStats;
pub use engine::read::sizes::KeyspaceStats;
pub use format::compression::Compression;
pub use format::keyspace_record::{DeltaPlacement, KeyspaceKind};

/// Checks a closed database: verifies every checksum, and that manifest, tables and logs agree. Changes nothing, and holds a
/// lock that keeps writers from opening the database meanwhile. Reads every file once.
///
/// ```
/// # fn main() -> cleavedb::Result<()> {
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("db");
/// # cleavedb::Db::open(&path)?.put("key", "value")?;
/// let report = cleavedb::check(&path)?;
/// for problem in &report.problems {
///     eprintln!("{problem}");
/// }
/// assert!(report.is_sound());
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`Error::NotFound`] if there is no database, [`Error::Locked`] if it is open, [`Error::InvalidInput`] if its tables
/// lie in another directory ([`Options::slow_dir`], [`Options::check_files`]), [`Error::Io`] if the directory cannot be
/// read. Corruption is listed in the report and is not an error.
pub fn check(path: impl AsRef<std::path::Path>) -> Result<Report> {
    Options::new().check_files(path)
}

/// Statistics of a database that is open in another process, or by another handle of this process. They are read from the
/// page that the owner writes about once a second. `None` if there is no such page, because the database is closed. After a
/// crash of the owner the page stays until the next open; check whether the process [`LiveStats::process`] is alive.
///
/// # Errors
/// [`Error::Io`] if the directory or the page cannot be read.
pub fn live_stats(path: impl AsRef<std::path::Path>) -> Result<Option<LiveStats>> {
    Options::new().live_stats(path)
}

/// Compiles the program in the README with the documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
