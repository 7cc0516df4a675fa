//! What the benchmark asks of a store, and what it tells the store when opening it. One implementation a file in
//! `engines/`; the clients and the loader call it through `dyn Engine`, from many threads.
//!
//! Every store gets the same directories, memory, background threads and durability. Merge operands have the form of
//! CleaveDB's `field-patch` operator.

use std::path::{Path, PathBuf};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::engines::CleaveOptions;
use crate::failure::Result;

/// What an acknowledged write must survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// A crash of the process.
    Buffered,
    /// Loss of power.
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

/// Directories of a store, which exist and are its own.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Dirs {
    /// Where it lies if it has no tiers, or none are asked for.
    pub main: PathBuf,
    /// The fast tier, and how much may lie there.
    pub fast: Option<PathBuf>,
    /// The bytes that may lie on the fast tier.
    pub fast_bytes: Option<u64>,
    /// The slow tier.
    pub slow: Option<PathBuf>,
}

impl Dirs {
    /// Every directory.
    pub fn all(&self) -> impl Iterator<Item = &Path> {
        let tiers = [&self.fast, &self.slow];
        std::iter::once(&*self.main).chain(tiers.into_iter().flatten().map(|dir| &**dir))
    }
}

/// How to open a store.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it lies.
    pub dirs: Dirs,
    /// Whether to do direct I/O.
    pub direct: bool,
    /// How to compress data; none: as the engine is set up here.
    pub compression: Option<Compression>,
    /// Options of CleaveDB alone.
    pub cleave: Option<CleaveOptions>,
    /// Bytes of memory for write buffers and caches together.
    pub memory: usize,
    /// Threads for background work.
    pub background_threads: usize,
    /// What an acknowledged write must survive.
    pub durability: Durability,
}

/// A store that is open.
pub trait Engine: Send + Sync {
    /// Shows the value of `key` to `read`; false if it has none.
    fn get(&self, key: &[u8], read: &mut dyn FnMut(&[u8])) -> Result<bool>;

    /// Writes a record.
    fn put(&self, key: &[u8], value: &[u8]) -> Result<()>;

    /// Deletes a record.
    fn delete(&self, key: &[u8]) -> Result<()>;

    /// Applies a `field-patch` operand to the value of `key`.
    fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()>;

    /// Shows up to `count` records from the first key at or after `from` on, in key order, to `read`; how many there
    /// were.
    fn scan(&self, from: &[u8], count: u64, read: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64>;

    /// Makes everything written so far survive loss of power.
    fn sync(&self) -> Result<()>;

    /// Moves what is in write buffers to where it lies at rest.
    fn flush(&self) -> Result<()>;

    /// Waits for the compactions that a load left to do, if the store has a way to.
    fn settle(&self) -> Result<()> {
        Ok(())
    }

    /// How the values that lie apart from their keys fill their space, in a store that keeps them in groups.
    fn value_space(&self) -> Result<Option<ValueSpace>> {
        Ok(None)
    }

    /// Closes the store.
    fn close(self: Box<Self>) -> Result<()>;
}

/// Values that lie apart from their keys, in groups. The names of the fields are a stable public format.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueSpace {
    /// The groups.
    pub groups: Vec<ValueGroup>,
    /// Bytes on storage of the files that hold them.
    pub space_bytes: u64,
}

/// One group of them. The names of the fields are a stable public format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValueGroup {
    /// Bytes that it takes.
    pub bytes: u64,
    /// Of these, bytes of records that are not known to be dead.
    pub bytes_live: u64,
}

/// How a store does merges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Merges {
    /// By keeping the operand.
    Native,
    /// By reading and writing the whole value: the store has no merge.
    GetPut,
}

/// A store that this program was built with.
pub struct Kind {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// How it does merges.
    pub merges: Merges,
    /// What a reader of its figures must know.
    pub notes: &'static [&'static str],
    /// What else, because of what was asked for.
    pub notes_of: fn(&Settings) -> Vec<&'static str>,
    /// Whether buffered writes survive that the process is killed.
    pub buffered_survives_kill: bool,
    /// Opens (or makes) a store.
    pub open: fn(&Settings) -> Result<Box<dyn Engine>>,
}
