//! The interface between the benchmark and a store: the trait, and the settings to open it with. Each file in `engines/` is
//! one implementation; clients and the loader call it through `dyn Engine` from many threads.
//!
//! Every store gets the same directories, memory, background threads and durability. Merge operands have the format of
//! CleaveDB's `patches` operator.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum;
use cleavedb::KvDevice;
use serde::{Deserialize, Serialize};

use crate::cleave_options::CleaveOptions;
use crate::failure::Result;
use crate::jobs::JobUse;
use crate::redirects::Bypassed;
use crate::tuning::Sample;
use crate::waiting::WriterWaits;

/// CleaveDB's name on the command line: the engine that the others are compared with.
pub const OURS: &str = "cleave";
/// CleaveDB with all values in its tables.
pub const INLINE: &str = "cleave-inline";
/// CleaveDB with merge operands in buckets.
pub const BUCKETS: &str = "cleave-buckets";
/// CleaveDB with a hash keyspace, which has no scans.
pub const HASHED: &str = "cleave-hash";

/// RocksDB that stops writers and never slows them down.
pub const NO_SLOWDOWN: &str = "rocksdb-no-slowdown";
/// RocksDB that keeps to the budget of the fast tier: only its log is there.
pub const HELD: &str = "rocksdb-held";

/// What an acknowledged write must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A process crash.
    Buffered,
    /// A power loss.
    Sync,
}

impl Durability {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Durability::Buffered => "buffered",
            Durability::Sync => "sync",
        }
    }
}

/// How data is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4.
    Lz4,
}

/// The directories of a store; they exist and no other store uses them.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dirs {
    /// The directory of the store, if it has no tiers or none were requested.
    pub main: PathBuf,
    /// The fast tier.
    pub fast: Option<PathBuf>,
    /// The maximum bytes on the fast tier.
    pub fast_bytes: Option<u64>,
    /// The slow tier.
    pub slow: Option<PathBuf>,
}

impl Dirs {
    /// Every directory.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        self.named().map(|(_, dir)| dir)
    }

    /// Every directory with its name in results.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let dirs = [("main", Some(&self.main)), ("fast", self.fast.as_ref()), ("slow", self.slow.as_ref())];
        dirs.into_iter().filter_map(|(name, dir)| Some((name, dir?.as_path())))
    }
}

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Its directories.
    pub dirs: Dirs,
    /// Whether to use direct I/O.
    pub direct: bool,
    /// How to compress data; none: the engine's default in this program.
    pub compression: Option<Compression>,
    /// Options of CleaveDB only.
    pub cleave: Option<CleaveOptions>,
    /// Bytes of memory for write buffers and caches together.
    pub memory: usize,
    /// Threads for background work.
    pub background_threads: usize,
    /// What an acknowledged write must survive.
    pub durability: Durability,
}

/// An open store.
pub trait Engine: Send + Sync {
    /// Passes the value of `key` to `read`; false if the key is missing.
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Writes a record.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Writes records in one commit: all of them or none, and with sync durability one sync.
    fn put_all(&self, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<()>;

    /// Deletes a record.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Applies a `patches` operand to the value of `key`.
    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()>;

    /// Passes up to `count` records in key order, from the first key at or after `from`, to `read`. Returns their number.
    /// An engine without order passes all of them, if `from` is empty.
    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Makes all earlier writes durable.
    fn sync(&self) -> Result<()>;

    /// Flushes write buffers to tables.
    fn flush(&self) -> Result<()>;

    /// Waits for pending compactions, if the store supports that.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// The space of separated values, in a store that keeps them in groups.
    fn value_space(&self) -> Result<Option<ValueSpace>> {
        Ok(None)
    }

    /// Memory by purpose, in a store that reports it.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// Bytes of files in which it has saved its index since it was opened, in a store that keeps all keys in memory.
    fn index_bytes_saved(&self) -> u64 {
        0
    }

    /// The state of the scheduler, in a store that reports it.
    fn scheduling(&self) -> Option<Sample> {
        None
    }

    /// How long writers have waited for background work since it was opened, in a store that reports it.
    fn waits(&self) -> Option<WriterWaits> {
        None
    }

    /// What went around background work since it was opened, in a store that reports it.
    fn bypassed(&self) -> Option<Bypassed> {
        None
    }

    /// Its key-value device, in a store with one.
    fn kv_device(&self) -> Option<Arc<dyn KvDevice>> {
        None
    }

    /// What its background jobs have used since it was opened, by kind, in a store that reports it.
    fn jobs(&self) -> Vec<JobUse> {
        Vec::new()
    }

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Memory of a store by purpose. The names of the fields are a stable public format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Bytes of what is not flushed yet: index tables and runs, or memtables with their values.
    pub unflushed_bytes: u64,
    /// Bytes of caches of blocks and values.
    pub cache_bytes: u64,
}

impl Memory {
    /// The larger value of each field.
    pub fn max(self, other: Memory) -> Memory {
        Memory {
            unflushed_bytes: self.unflushed_bytes.max(other.unflushed_bytes),
            cache_bytes: self.cache_bytes.max(other.cache_bytes),
        }
    }
}

/// What went over the host's link to a key-value device, from the last open of the store to its close, which brings all of it back.
/// The names of the fields are a stable public format.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLink {
    /// Bytes of keys and values that the host sent.
    pub bytes_sent: u64,
    /// Bytes that it received.
    pub bytes_received: u64,
    /// Bytes of keys, values and operands that clients wrote meanwhile, a load right before the phases included.
    pub user_bytes: u64,
}

impl HostLink {
    /// What a device has done so far, while clients wrote `user_bytes`.
    pub fn of(device: &dyn KvDevice, user_bytes: u64) -> HostLink {
        let traffic = device.traffic();
        HostLink { bytes_sent: traffic.host_bytes_sent, bytes_received: traffic.host_bytes_received, user_bytes }
    }

    /// Bytes in both directions for each byte that clients wrote; none if they wrote nothing.
    pub fn per_user_byte(self) -> Option<f64> {
        (self.user_bytes > 0).then(|| (self.bytes_sent + self.bytes_received) as f64 / self.user_bytes as f64)
    }
}

/// The space of separated values in groups. The names of the fields are a stable public format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueSpace {
    /// The groups.
    pub groups: Vec<ValueGroup>,
    /// Bytes on disk of their files.
    pub space_bytes: u64,
}

/// One group of separated values. The names of the fields are a stable public format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueGroup {
    /// Bytes of its records.
    pub bytes: u64,
    /// Upper bound on live bytes among them.
    pub bytes_live: u64,
}

/// How a store implements merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Merges {
    /// It stores the operand.
    Native,
    /// The benchmark reads and writes the whole value, because the store has no merge.
    GetPut,
}

/// An engine of this build.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// How it implements merges.
    pub merges: Merges,
    /// Notes for readers of its results.
    pub notes: &'static [&'static str],
    /// Further notes that depend on the settings.
    pub notes_of: fn(&Settings) -> Vec<&'static str>,
    /// Whether it supports direct I/O.
    pub direct_io: bool,
    /// Whether buffered writes survive a killed process.
    pub buffered_survives_kill: bool,
    /// Opens or creates a store.
    pub open: fn(&Settings) -> Result<Box<dyn Engine>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_the_link_count_for_each_byte_of_the_user() {
        let link = HostLink { bytes_sent: 900, bytes_received: 600, user_bytes: 1000 };
        assert_eq!(link.per_user_byte(), Some(1.5));
        assert_eq!(HostLink { user_bytes: 0, ..link }.per_user_byte(), None);
    }
}
