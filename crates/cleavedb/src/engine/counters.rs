//! Counters since the database was opened. Each is incremented where the event happens; `Stats` reports them.

use std::sync::atomic::AtomicU64;

use crate::engine::job_usage::JobTotals;

/// Counters since the database was opened.
#[derive(Default)]
pub(crate) struct Counters {
    pub user_bytes: AtomicU64,
    pub log_bytes: AtomicU64,
    pub table_bytes: AtomicU64,
    pub manifest_bytes: AtomicU64,
    pub bytes_read: AtomicU64,
    pub flushes: AtomicU64,
    pub compactions: AtomicU64,
    pub index_merges: AtomicU64,
    pub seals: AtomicU64,
    pub compaction_subtasks: AtomicU64,
    pub run_subtasks: AtomicU64,
    pub stalls: AtomicU64,
    pub stall_us: AtomicU64,
    pub paced: AtomicU64,
    pub paced_us: AtomicU64,
    /// Bytes of files that were moved to another directory.
    pub moved_bytes: AtomicU64,
    /// Bytes of removed files that had another link.
    pub bytes_left_to_checkpoints: AtomicU64,
    /// Jobs that rewrote buckets, keys that were folded for them, and keys that had changed meanwhile.
    pub bucket_rewrites: AtomicU64,
    pub folds: AtomicU64,
    pub folds_refused: AtomicU64,
    /// Buckets that were split off another one, and that were joined to the one before them.
    pub bucket_splits: AtomicU64,
    pub bucket_joins: AtomicU64,
    pub value_gcs: AtomicU64,
    pub value_gcs_beside: AtomicU64,
    pub value_gc_bytes: AtomicU64,
    /// Values that compactions folded and separated.
    pub folded_values: AtomicU64,
    /// Bytes of their records.
    pub folded_value_bytes: AtomicU64,
    pub value_reorders: AtomicU64,
    pub value_reorders_given_up: AtomicU64,
    pub value_reorder_bytes: AtomicU64,
    /// How often the boundary between the caches was reviewed.
    pub cache_balances: AtomicU64,
    pub compressed_from: AtomicU64,
    pub compressed_to: AtomicU64,
    pub value_surveys: AtomicU64,
    pub value_records_moved: AtomicU64,
    /// Bytes that flushes read: runs, and the values that they reference.
    pub flushed_bytes: AtomicU64,
    /// As `flushed_bytes`, without the values that stayed in their logs.
    pub flushed_weight: AtomicU64,
    /// Bytes of the tables that flushes wrote.
    pub flush_table_bytes: AtomicU64,
    /// What background jobs used, by kind.
    pub jobs: JobTotals,
}
