//! CleaveDB: an embedded, persistent key-value store that splits the index from the data. Keys are sorted, merged and
//! levelled as often as reads need; a record's bytes are written once, where they are born: the log.
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

pub(crate) mod db;
pub(crate) mod front;
pub(crate) mod levels;
pub(crate) mod format;
pub(crate) mod io;
pub(crate) mod sched;
pub(crate) mod base;
pub mod testing;

pub use base::error::{Action, Error, Result};
pub use base::kind::Seqno;
pub use base::operator::MergeOperator;
pub use base::slice::Slice;
pub use base::{limits, operators};
pub use db::{
    BackgroundPause, Db, Durability, FileStats, Iter, Keys, Keyspace, KeyspaceOptions, KeyspaceStats, LevelStats,
    LogBackend, MemoryStats, Options, RunStats, Snapshot, Stats, WriteBatch, WriteOptions,
};
pub use format::compression::Compression;

/// The program in the README is compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
