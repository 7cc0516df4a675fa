//! Memory by use: the gauges that count memory where it is used, and the statistics of all of it. `fit_caches.rs` fills
//! in the statistics.

use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::base::Gauge;
use crate::cache::balance::Balance;
use crate::cache::operand_cache::OperandCache;
use crate::cache::value_cache::ValueCache;
use crate::engine::tuning::sizes::Tuning;
use crate::io::read_ahead::ReadAhead;

/// Memory by use, in bytes.
///
/// The budget covers all fields but `pinned_bytes`: [`total`](MemoryStats::total) does not exceed it, unless single
/// values are larger than blocks, because a job holds one value of each table that it reads, and copies of the one that
/// it writes. The figures leave out the overhead of the allocator, the stacks of threads, and memory that callers
/// allocate.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct MemoryStats {
    /// Index tables and runs.
    #[n(0)]
    pub front_bytes: usize,
    /// Runs that are being built from index tables or other runs; at most as large as their inputs.
    #[n(1)]
    pub merging_bytes: usize,
    /// Flushes and compactions: values fetched, bytes read ahead, blocks, table builders.
    #[n(2)]
    pub job_bytes: usize,
    /// The block cache: data, index and filter blocks of tables.
    #[n(3)]
    pub cache_bytes: usize,
    /// Current capacity of the block cache; it shrinks when other parts of the budget grow.
    #[n(4)]
    pub cache_bytes_max: usize,
    /// The value cache: separated values that point reads have fetched, and folds of keys with many operands.
    #[n(5)]
    pub value_cache_bytes: usize,
    /// The part of the block cache that index and filter blocks and range tombstones use.
    #[n(6)]
    pub cache_index_bytes: usize,
    /// Current capacity of the value cache; 0 while there are neither value files nor folds to cache.
    #[n(7)]
    pub value_cache_bytes_max: usize,
    /// The mapped ring, and the buffers of direct writes.
    #[n(8)]
    pub log_buffer_bytes: usize,
    /// Readers of open tables, outside the block cache.
    #[n(9)]
    pub table_reader_bytes: usize,
    /// Keyspaces: their names and options.
    #[n(10)]
    pub keyspace_bytes: usize,
    /// The list of value files, with the ledger of references to each.
    #[n(11)]
    pub value_list_bytes: usize,
    /// Blocks, values, replaced runs, and bytes read ahead, held by callers or running scans; not part of the budget.
    #[n(12)]
    pub pinned_bytes: usize,
    /// The operand cache: the merge operands in buckets of keys that point reads have asked for.
    #[n(13)]
    #[cbor(default)]
    pub operand_cache_bytes: usize,
    /// Current capacity of the operand cache; 0 while there are no operands in buckets.
    #[n(14)]
    #[cbor(default)]
    pub operand_cache_bytes_max: usize,
    /// The directory of the buckets of merge operands.
    #[n(15)]
    #[cbor(default)]
    pub bucket_bytes: usize,
    /// The indexes of hash keyspaces, with all their keys.
    #[n(16)]
    #[cbor(default)]
    pub hash_index_bytes: usize,
}

impl MemoryStats {
    /// The sum of all that counts against the budget.
    pub fn total(&self) -> usize {
        self.front_bytes
            + self.merging_bytes
            + self.job_bytes
            + self.cache_bytes
            + self.value_cache_bytes
            + self.operand_cache_bytes
            + self.log_buffer_bytes
            + self.table_reader_bytes
            + self.keyspace_bytes
            + self.value_list_bytes
            + self.bucket_bytes
            + self.hash_index_bytes
    }
}

/// Gauges of memory, the value cache and the operand cache, and the balance between the caches.
pub(crate) struct Memory {
    /// Flushes and compactions.
    pub jobs: Arc<Gauge>,
    /// Values that a reordering job is sorting; the caches give way to them.
    pub staging: Arc<Gauge>,
    /// Bytes that users' scans have read ahead.
    pub scans: Arc<Gauge>,
    /// Runs that are being built.
    pub merging: Arc<Gauge>,
    /// Blocks of all runs in memory.
    pub runs: Arc<Gauge>,
    /// Values that were read from logs and value files.
    pub values: Arc<Gauge>,
    /// The value cache; records that did not fit into its cells count as `values`.
    pub value_cache: ValueCache,
    /// The boundary between block cache and value cache.
    pub balance: Balance,
    /// The operand cache.
    pub operands: Arc<OperandCache>,
    /// The boundary between the operand cache and the two others.
    pub operand_balance: Balance,
    /// Limit on the values that users' scans prefetch.
    pub values_ahead: ReadAhead,
}

impl Memory {
    pub fn new(tuning: &Tuning) -> Memory {
        Memory {
            jobs: Arc::default(),
            staging: Arc::default(),
            scans: Arc::default(),
            merging: Arc::default(),
            runs: Arc::default(),
            values: Arc::default(),
            value_cache: ValueCache::new(tuning.cache_bytes),
            balance: Balance::of_values(),
            operands: Arc::new(OperandCache::new(tuning.cache_bytes / 2)),
            operand_balance: Balance::of_operands(),
            // Prefetched values are counted as `values`.
            values_ahead: ReadAhead::new(tuning.scan_ahead_bytes, Arc::default()),
        }
    }
}
