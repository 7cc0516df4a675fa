//! Memory by use: the shares that are counted where memory is used.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::base::Gauge;
use crate::cache::balance::Balance;
use crate::cache::value_cache::ValueCache;
use crate::engine::tuning::sizes::Tuning;
use crate::io::read_ahead::ReadAhead;

/// Memory by use, in bytes.
///
/// The budget covers everything here but what is pinned: [`total`](MemoryStats::total) stays within it, unless single
/// values are larger than blocks: a job holds one of each table that it reads, and copies of the one that it writes. What
/// the figures leave out is small: the allocator's own losses, the stacks of threads, and what callers make themselves.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Index tables and runs.
    #[n(0)]
    pub front_bytes: usize,
    /// Runs that are being made of them; at most as large as what they are made of.
    #[n(1)]
    pub merging_bytes: usize,
    /// Flushes and compactions: values fetched, bytes read ahead, blocks, table builders.
    #[n(2)]
    pub job_bytes: usize,
    /// The block cache: data, index and filter blocks of tables.
    #[n(3)]
    pub cache_bytes: usize,
    /// What the block cache may take now; it shrinks when others grow.
    #[n(4)]
    pub cache_bytes_max: usize,
    /// The value cache: values that lie apart from their keys, as point reads found them.
    #[n(5)]
    pub value_cache_bytes: usize,
    /// Of the block cache, what leads to other blocks: index and filter blocks, and range tombstones.
    #[n(6)]
    pub cache_index_bytes: usize,
    /// What the value cache may take now: nothing while no value lies apart.
    #[n(7)]
    pub value_cache_bytes_max: usize,
    /// The ring, a mapped window, and the buffers of direct writes.
    #[n(8)]
    pub log_buffer_bytes: usize,
    /// What open tables keep outside the cache.
    #[n(9)]
    pub table_reader_bytes: usize,
    /// Keyspaces: their names and options.
    #[n(10)]
    pub keyspace_bytes: usize,
    /// The list of files of values, with the ledger of what is referenced in each.
    #[n(11)]
    pub value_list_bytes: usize,
    /// Blocks, values, replaced runs, and bytes read ahead that callers or running scans hold; not part of the budget.
    #[n(12)]
    pub pinned_bytes: usize,
}

impl MemoryStats {
    /// Everything that counts against the budget.
    pub fn total(&self) -> usize {
        self.front_bytes
            + self.merging_bytes
            + self.job_bytes
            + self.cache_bytes
            + self.value_cache_bytes
            + self.log_buffer_bytes
            + self.table_reader_bytes
            + self.keyspace_bytes
            + self.value_list_bytes
    }
}

/// Memory that is counted where it is used.
pub(crate) struct Memory {
    /// Flushes and compactions.
    pub jobs: Arc<Gauge>,
    /// What users' scans have read ahead.
    pub scans: Arc<Gauge>,
    /// Runs that are being built.
    pub merging: Arc<Gauge>,
    /// Blocks of all runs that live.
    pub runs: Arc<Gauge>,
    /// Values that were read from logs and files of values.
    pub values: Arc<Gauge>,
    /// Some of these.
    pub value_cache: ValueCache,
    /// How block cache and value cache share their memory.
    pub balance: Balance,
    /// Of the values, those that users' scans have fetched before they were asked for: how many that may be.
    pub values_ahead: ReadAhead,
}

impl Memory {
    pub fn new(tuning: &Tuning) -> Memory {
        Memory {
            jobs: Arc::default(),
            scans: Arc::default(),
            merging: Arc::default(),
            runs: Arc::default(),
            values: Arc::default(),
            value_cache: ValueCache::new(tuning.cache_bytes),
            balance: Balance::default(),
            // They are counted as values.
            values_ahead: ReadAhead::new(tuning.read_ahead_bytes, Arc::default()),
        }
    }
}
