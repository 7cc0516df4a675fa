//! What was chosen at open, as the engine works with it.

use std::time::Duration;

use crate::base::{Error, Result};
use crate::engine::tuning::sizes::Tuning;
use crate::format::compression::Compression;

/// What an acknowledged write survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process. The fastest, and the default.
    #[default]
    Buffered,
    /// Loss of power: the write returns after it, and everything written before it, is on stable storage.
    Sync,
    /// Loss of power, from at most this long after the write returned.
    Interval(Duration),
}

/// How one write is done, where that differs from what the database does. A [`Durability`] alone will do where these are
/// asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WriteOptions {
    pub(crate) durability: Option<Durability>,
    pub(crate) stall_max: Option<Duration>,
}

impl WriteOptions {
    /// As the database does it.
    pub fn new() -> WriteOptions {
        WriteOptions::default()
    }

    /// What the write survives once it has returned.
    pub fn durability(mut self, durability: Durability) -> WriteOptions {
        self.durability = Some(durability);
        self
    }

    /// How long the write may wait for background work; if it would have to wait longer, it is not done, and the answer is
    /// [`Error::WouldStall`]. Zero: it does not wait at all. The sync that a durability asks for comes after and takes as
    /// long as it takes.
    pub fn stall_max(mut self, limit: Duration) -> WriteOptions {
        self.stall_max = Some(limit);
        self
    }
}

impl From<Durability> for WriteOptions {
    fn from(durability: Durability) -> WriteOptions {
        WriteOptions::new().durability(durability)
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogBackend {
    /// The ring where the system allows it, else plain.
    #[default]
    Auto,
    /// A mapped ring and large direct writes; an error at open if the system does not allow it.
    Ring,
    /// Writes through the page cache.
    Plain,
}

/// A compression that is to be used must be there.
pub(crate) fn check_compression(compression: Compression) -> Result<()> {
    match compression.is_available() {
        true => Ok(()),
        false => Err(Error::input(format!("compression {compression:?} needs the cargo feature `zstd` of cleavedb"))),
    }
}

/// An interval must leave time to sync.
pub(crate) fn check_interval(interval: Duration) -> Result<()> {
    match interval >= Duration::from_millis(1) {
        true => Ok(()),
        false => Err(Error::input("a sync interval is at least one millisecond; use Sync for less")),
    }
}

/// Sizes that follow from the options: what the engine works with.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub memory_budget: usize,
    pub durability: Durability,
    pub compression: Compression,
    pub compression_by_level: Vec<Compression>,
    pub block_size: usize,
    pub filter_bits: u32,
    pub background_threads: usize,
    pub read_only: bool,
    pub tuning: Tuning,
}

impl Settings {
    /// Compression of the database's own choice in a level.
    pub fn compression_at(&self, level: usize) -> Compression {
        let levels = &self.compression_by_level;
        levels.get(level).or(levels.last()).copied().unwrap_or(self.compression)
    }
}

/// Which values lie together once they have been moved. One for a database, chosen at each open; what another one left is
/// read as ever, and changes over as it is moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ValuePlacement {
    /// Those of keys with like hashes, in groups that are halved as they grow and joined as they shrink (HashKV). What is dead
    /// in a group is mostly found without asking the tables. Nothing is moved but to give space back.
    Hash,
    /// Those of neighbouring keys, in the order of their keys: a scan reads what lies side by side. Ranges are cut as they grow
    /// and joined as they shrink, wherever the keys are. When there is nothing else to do, values that lie in no order are
    /// moved as well: each once or twice, and counted apart ([`Stats::value_reorder_bytes_written`](crate::Stats)). The default
    /// (decision record 031).
    #[default]
    Range,
    /// All in the order of arrival; space comes back from the oldest end (WiscKey). For comparison.
    Log {
        /// Each record is looked up in the tables by itself, as the paper does, and not many in the order of their keys.
        look_up_each: bool,
    },
}
