//! The sizes inside the engine, all derived from `memory_budget`. Tests and simulation make them tiny, so that every
//! path is walked within a few hundred operations; users have no reason to.

use crate::base::limits::SEPARATION_BYTES_DEFAULT;
use crate::front::index_table::IndexTable;

/// A planted bug that the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// A sync leaves out the logs before the active one, so an acknowledged `Sync` can lose what came before it.
    SyncSkipsEarlierLogs,
}

/// Sizes in bytes unless said otherwise. No promise of stability.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// An index table is sealed at this size (DecouKV: 8 MiB).
    pub index_table_bytes: usize,
    /// Runs are flushed once they hold this much, values in logs included (DFTS, DecouKV: 32 MiB).
    pub flush_bytes: u64,
    /// Runs of similar size are merged from this many on (IMTN, DecouKV: 2).
    pub index_merge_runs: usize,
    /// Writers wait while index tables and runs hold more than this and one index table.
    pub front_bytes_max: usize,
    /// Writers wait while logs that are not flushed hold more than this, which bounds the time that recovery takes.
    pub logs_bytes_max: u64,
    /// Size of a log.
    pub log_bytes: u64,
    /// Size of the mapped ring.
    pub ring_bytes: usize,
    /// Size of one direct write to the log.
    pub chunk_bytes: usize,
    /// Direct writes in flight, each with a thread.
    pub chunk_threads: usize,
    /// Buffers for direct writes.
    pub chunk_buffers: usize,
    /// Values from this size on stay in the log while they are in the front.
    pub separation_bytes: usize,
    /// Size of the block cache.
    pub cache_bytes: usize,
    /// Tables of levels below HL0 are cut at this size.
    pub table_bytes: u64,
    /// Capacity of HL1; each level below holds ten times more.
    pub level_base_bytes: u64,
    /// HL0 is compacted from this many tables on.
    pub hl0_compact_tables: usize,
    /// Writers wait while HL0 has this many tables.
    pub hl0_stop_tables: usize,
    /// Closing flushes the front if its logs hold more than this; otherwise the next open replays them.
    pub close_flush_bytes: u64,
    /// The manifest starts a new file beyond this size.
    pub manifest_bytes: u64,
    /// A planted bug.
    pub canary: Option<Canary>,
}

impl Tuning {
    /// The sizes for a memory budget: about a sixteenth for the ring and half of that for chunk buffers, a quarter for
    /// index tables and runs, half for the cache, the rest for jobs.
    pub fn for_budget(memory_budget: usize) -> Tuning {
        let mib = 1 << 20;
        let ring_bytes = (memory_budget / 16).next_power_of_two().clamp(mib, 16 * mib);
        let flush_bytes = (memory_budget / 8).clamp(2 * mib, 32 * mib) as u64;
        Tuning {
            index_table_bytes: (memory_budget / 32).clamp(mib / 2, 8 * mib),
            flush_bytes,
            index_merge_runs: 2,
            front_bytes_max: memory_budget / 4,
            logs_bytes_max: 256 * mib as u64,
            log_bytes: 64 * mib as u64,
            ring_bytes,
            chunk_bytes: (ring_bytes / 16).clamp(64 << 10, mib),
            chunk_threads: 4,
            chunk_buffers: 8,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            cache_bytes: memory_budget / 2,
            table_bytes: flush_bytes,
            level_base_bytes: flush_bytes * 8,
            hl0_compact_tables: 4,
            hl0_stop_tables: 24,
            close_flush_bytes: 4 * mib as u64,
            manifest_bytes: 4 * mib as u64,
            canary: None,
        }
    }

    /// An index table is full when it, or what it leads to in the log, is large enough for its next station.
    pub(crate) fn is_full(&self, table: &IndexTable) -> bool {
        let bytes = table.bytes();
        bytes >= self.index_table_bytes || bytes as u64 + table.value_bytes() >= self.flush_bytes
    }

    /// Everything small enough that a few hundred operations seal, merge, flush, compact and rotate.
    pub fn tiny() -> Tuning {
        Tuning {
            index_table_bytes: 4 << 10,
            flush_bytes: 16 << 10,
            index_merge_runs: 2,
            front_bytes_max: 256 << 10,
            logs_bytes_max: 1 << 20,
            log_bytes: 64 << 10,
            ring_bytes: 64 << 10,
            chunk_bytes: 8 << 10,
            chunk_threads: 2,
            chunk_buffers: 3,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            cache_bytes: 256 << 10,
            table_bytes: 16 << 10,
            level_base_bytes: 64 << 10,
            hl0_compact_tables: 4,
            hl0_stop_tables: 24,
            close_flush_bytes: 24 << 10,
            manifest_bytes: 16 << 10,
            canary: None,
        }
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning::for_budget(256 << 20)
    }
}
