//! The internal sizes of the engine, all derived from `memory_budget`. Tests and simulation make them tiny, so that a
//! few hundred operations cover every path; users have no reason to change them.
//!
//! The parts of memory add up to the budget, here in 1/32 of it (up to 256 MiB; beyond, ring, index tables and flushes
//! keep their size, and jobs and caches get the rest):
//!
//! | what | part |
//! |---|---|
//! | log buffers: the ring (2, rounded down to a power of two), and half as much in chunk buffers | 3 |
//! | front: index tables and runs (8), and the index table that is still filled while writers are stopped | 9 |
//! | merging: the run built from an index table (1), and the one merged from other runs (a flush, 4) | 5 |
//! | jobs: values fetched by a flush, bytes read ahead, builders of tables and delta segments, blocks under compaction | 6, more for large blocks |
//! | the rest: table readers, keyspaces, and the caches, which also get unused memory of the front, up to 16 | 9 |
//!
//! Hash indexes may take up to 16: caches and front give way to them (`front_room.rs`).

use std::time::Duration;

use crate::base::limits::{
    BLOCK_IO_BYTES, BUCKET_SPLIT_PERCENT_DEFAULT, GARBAGE_BYTES_DEFAULT, GARBAGE_PERCENT_DEFAULT, MEMORY_BUDGET_MIN,
    SEPARATION_BYTES_DEFAULT,
};
use crate::base::{Error, Result};
use crate::deltas::policy::BucketSizes;
use crate::engine::tuning::settings::{ValuePlacement, ValueReordering};
use crate::engine::tuning::tuner::{Limits, Setting};
use crate::format::compression::Compression;
use crate::front::index_table::IndexTable;
use crate::hash::index::Spread;
use crate::levels::builder::TableOptions;
use crate::values::placement::VictimPolicy;
use crate::values::present_addresses::KEPT_BYTES;

const MIB: usize = 1 << 20;
/// Data blocks of a delta segment are cut at this size, so that a read of few operands reads little.
pub(crate) const SEGMENT_PAGE_BYTES: usize = 4 << 10;
/// A delta segment is written in pieces of this size, since a flush writes tables beside it.
pub(crate) const SEGMENT_WRITE_BYTES: usize = 64 << 10;
/// Memory of a compaction cursor beside its data block: top index, index partition, and their read buffers.
const CURSOR_BYTES: usize = 28 << 10;
/// With less memory, a flush would read the log in small pieces.
const FETCH_ROOM_MIN: usize = MIB / 2;
/// Writers are stopped while HL0 has this many tables; fewer if a compaction cannot hold the blocks of this many in
/// memory.
const HL0_STOP_TABLES: usize = 24;
/// Writers that go around background work may leave this many times as much more in logs as otherwise.
const REDIRECT_LOGS: u64 = 16;
/// With fewer tables in HL0, compactions cannot keep the level sizes in proportion.
const HL0_STOP_TABLES_MIN: usize = 8;

/// HL0 has at most this part of the tables that stop writers before it is compacted.
const HL0_TRIGGER_PART: usize = 4;

/// A planted bug that the simulation must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Canary {
    /// A sync omits the logs before the active one, so writes acknowledged with `Sync` can be lost.
    SyncSkipsEarlierLogs,
    /// The manifest names a file of saved hash indexes before the records in them are durable.
    IndexSavedBeforeSync,
    /// The edit that moves a file to another directory is committed before the copy is synced.
    MoveCommittedBeforeSync,
}

/// Internal sizes, in bytes unless stated otherwise. Not covered by semantic versioning.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tuning {
    /// The memory budget.
    pub memory_bytes: usize,
    /// Users' scans together read ahead at most this much of tables, and as much of values; outside the budget.
    pub scan_ahead_bytes: usize,
    /// Memory for jobs, part of the budget; the next four fields are within it.
    pub job_bytes: usize,
    /// A flush fetches values from logs up to this much at a time.
    pub fetch_bytes: usize,
    /// All jobs together read ahead at most this much.
    pub read_ahead_bytes: usize,
    /// Tables are written in pieces of this size.
    pub write_bytes: usize,
    /// Threads that compact at once, each on a compaction or a subtask of one. May be less than the number of threads.
    pub compactions_max: usize,
    /// The most table files open at once, even if the options allow more.
    pub open_files_max: usize,
    /// An index table is sealed at this size (DecouKV: 8 MiB).
    pub index_table_bytes: usize,
    /// Runs are flushed once they hold this much (DFTS, DecouKV: 32 MiB). Includes values in logs that a flush will
    /// write into tables.
    pub flush_bytes: u64,
    /// Runs of similar size are merged once there are this many (IMTN, DecouKV: 2).
    pub index_merge_runs: usize,
    /// Writers are stopped while index tables and runs hold more than this plus one index table.
    pub front_bytes_max: usize,
    /// Writers are stopped while unflushed logs hold more than this, without values that stay in their logs.
    pub logs_bytes_max: u64,
    /// Writers are stopped while unflushed logs hold more than this, with values that stay in their logs: recovery
    /// reads all of it.
    pub replay_bytes_max: u64,
    /// Writers that go around background work may leave this much more unflushed.
    pub redirect_bytes_max: u64,
    /// Hash indexes are saved no sooner than after writes of this many bytes...
    pub index_save_bytes: u64,
    /// ...and than writes of this multiple of the size of these indexes.
    pub index_save_part: u64,
    /// Garbage of this number of logs with records of hash keyspaces is always allowed.
    pub hash_slack_logs: u64,
    /// Recovery puts records of hash keyspaces into their indexes once it has found this many bytes of keys and places.
    pub hash_found_bytes: usize,
    /// What the hashes of keys in hash keyspaces share.
    pub hash_spread: Spread,
    /// Logs are flushed once they hold this much that is not flushed, and 1/32 of all that is stored: the garbage
    /// in them is not known before.
    pub unflushed_bytes_min: u64,
    /// Largest size of a log; logs grow with the data.
    pub log_bytes: u64,
    /// Size of the first logs.
    pub log_bytes_min: u64,
    /// Largest size of the mapped ring, which grows with the logs.
    pub ring_bytes: usize,
    /// Size of the first ring; at least 16 KiB.
    pub ring_bytes_min: usize,
    /// Size of one direct write to the log, at most a quarter of the ring.
    pub chunk_bytes: usize,
    /// Direct writes in flight at once, each on its own thread.
    pub chunk_threads: usize,
    /// Buffers for direct writes.
    pub chunk_buffers: usize,
    /// Values of at least this many bytes are separated, in keyspaces without an option of their own.
    pub separation_bytes: usize,
    /// How values are grouped in files when they are moved.
    pub placement: ValuePlacement,
    /// When values are reordered.
    pub reordering: ValueReordering,
    /// Which files value GC collects first.
    pub victims: VictimPolicy,
    /// Values that were not updated since they were last moved go to separate (cold) files.
    pub hot_cold: bool,
    /// A walk lists about this many live records, except those of the files that it is made for.
    pub surveyed_records_max: u64,
    /// Memory for the lists of live records, about two bytes for each.
    pub survey_bytes: usize,
    /// How values are compressed when they are moved.
    pub value_compression: Compression,
    /// Groups of values are split beyond this size.
    pub group_bytes: u64,
    /// The garbage limit of value files: this many bytes...
    pub garbage_bytes: u64,
    /// ...and this percentage of live bytes (decision record 021).
    pub garbage_percent: u64,
    /// While the store is idle, value GC goes on, so that garbage and fixed costs together are within the limit.
    pub collects_when_idle: bool,
    /// What a collection needs at least of the caches if another one has the memory for jobs: to sort, to judge, and for buffers.
    pub beside_bytes: usize,
    /// A second collection may run once the first one works this share of the time, in percent: all of it while writers wait and nobody reads.
    pub second_collection_percent: u64,
    /// Tables are rewritten if more than this percentage of their addresses is resolved through redirect tables.
    pub stale_percent: u64,
    /// While the database is idle, HL0 is compacted and tables with fewer stale addresses are rewritten, for faster
    /// look-ups.
    pub compacts_when_idle: bool,
    /// Size of the caches while the front leaves enough memory.
    pub cache_bytes: usize,
    /// Least size of the caches.
    pub cache_bytes_min: usize,
    /// Tables of levels below HL0 are cut at this size.
    pub table_bytes: u64,
    /// Capacity of HL1; each level below holds ten times more.
    pub level_base_bytes: u64,
    /// HL0 is compacted once it has this many tables.
    pub hl0_compact_tables: usize,
    /// Writers are stopped while HL0 has this many tables.
    pub hl0_stop_tables: usize,
    /// Closing flushes the front if its logs hold more than this; otherwise the next open replays them.
    pub close_flush_bytes: u64,
    /// A bucket of merge operands is rewritten once it has this many bytes (KDSep: 256 KiB)...
    pub bucket_bytes: u64,
    /// ...or this many extents.
    pub bucket_extents_max: usize,
    /// The most buckets. Each takes some 200 B in memory, twice.
    pub buckets_max: usize,
    /// A bucket that is fuller than this after it was rewritten is split, in percent of `bucket_bytes`; `None`: none is.
    pub bucket_split_percent: Option<u32>,
    /// Memory of the operand cache, at most half of that of all caches; `None`: it follows the misses.
    pub operand_cache_bytes: Option<usize>,
    /// Once a point read has had to apply this number of operands, it caches their fold for the next one.
    pub folded_from: usize,
    /// The manifest starts a new file beyond this size.
    pub manifest_bytes: u64,
    /// File numbers are reserved in blocks of this many.
    pub numbers_reserved: u64,
    /// Largest size of the reserve for a full disk, in the directory of tables; 0 disables it.
    pub reserve_bytes: u64,
    /// Interval at which the statistics page is written; `None` disables it.
    pub stats_interval: Option<Duration>,
    /// The settings of the scheduler are tuned at this interval...
    pub tune_interval: Duration,
    /// ...and return to those at rest after this time without a queue, one step at a time.
    pub calm_after: Duration,
    /// A planted bug.
    pub canary: Option<Canary>,
}

impl Tuning {
    /// The sizes for a memory budget of at least 16 MiB, with default options.
    pub fn for_budget(memory_budget: usize) -> Tuning {
        let defaults = TableOptions::default();
        let tuning = Tuning::for_options(memory_budget, defaults.block_size, defaults.filter_bits, 2);
        tuning.expect("the smallest budget is enough for the defaults")
    }

    /// The sizes for a memory budget with these options.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the budget is too small; the message states the least sufficient budget.
    pub fn for_options(budget: usize, block_size: usize, filter_bits: u32, threads: usize) -> Result<Tuning> {
        if let Some(tuning) = Tuning::fit(budget, block_size, filter_bits, threads) {
            return Ok(tuning);
        }
        let mut least = MEMORY_BUDGET_MIN;
        while Tuning::fit(least, block_size, filter_bits, threads).is_none() {
            least += MIB;
        }
        Err(Error::input(format!(
            "option memory_budget is {budget}, but with a block_size of {block_size} and filter_bits of {filter_bits} it \
             must be at least {least}"
        )))
    }

    /// The sizes that depend on the budget alone; [`fit`](Tuning::fit) sets those of jobs and caches.
    fn from_budget(budget: usize) -> Tuning {
        let part = budget / 32;
        let ring_bytes = (1 << (2 * part).max(1).ilog2()).clamp(MIB, 16 * MIB);
        let chunk_bytes = if ring_bytes > MIB { (ring_bytes / 8).min(MIB) } else { 64 << 10 };
        let flush_bytes = (4 * part).clamp(2 * MIB, 32 * MIB);
        let logs_bytes_max = budget.min(256 * MIB);
        let replay_bytes_max = budget.saturating_mul(8).min(1 << 30);
        let write_bytes = (budget / 64).clamp(256 << 10, MIB).next_multiple_of(4096);
        let read_ahead_bytes = (budget / 64).clamp(512 << 10, 16 * MIB);
        Tuning {
            memory_bytes: budget,
            scan_ahead_bytes: read_ahead_bytes,
            job_bytes: 0,
            fetch_bytes: 0,
            read_ahead_bytes,
            write_bytes,
            compactions_max: 1,
            open_files_max: usize::MAX,
            index_table_bytes: part.clamp(MIB / 2, 8 * MIB),
            flush_bytes: flush_bytes as u64,
            index_merge_runs: 2,
            front_bytes_max: 8 * part,
            logs_bytes_max: logs_bytes_max as u64,
            replay_bytes_max: replay_bytes_max as u64,
            redirect_bytes_max: logs_bytes_max as u64 * REDIRECT_LOGS,
            index_save_bytes: replay_bytes_max as u64 / 2,
            index_save_part: 3,
            hash_slack_logs: 1,
            hash_found_bytes: (budget / 32).min(16 * MIB),
            hash_spread: Spread::Even,
            unflushed_bytes_min: flush_bytes as u64,
            log_bytes: (logs_bytes_max / 4) as u64,
            log_bytes_min: MIB as u64,
            ring_bytes,
            ring_bytes_min: MIB / 4,
            // Few large ones, because many disks take small writes far slower: half of the ring together.
            chunk_bytes,
            chunk_threads: 4,
            chunk_buffers: ring_bytes / 2 / chunk_bytes,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            placement: ValuePlacement::Range,
            reordering: ValueReordering::WhenScanned,
            victims: VictimPolicy::Greedy,
            hot_cold: true,
            // Each takes five bytes while it is made, and then about two.
            surveyed_records_max: budget as u64 / SURVEYED_BYTES_EACH,
            survey_bytes: budget / SURVEY_PART,
            value_compression: Compression::None,
            group_bytes: (logs_bytes_max / 4) as u64,
            garbage_bytes: GARBAGE_BYTES_DEFAULT,
            garbage_percent: GARBAGE_PERCENT_DEFAULT.into(),
            collects_when_idle: true,
            beside_bytes: 0,
            second_collection_percent: 100,
            stale_percent: 80,
            compacts_when_idle: true,
            cache_bytes: 0,
            cache_bytes_min: part,
            table_bytes: flush_bytes as u64,
            level_base_bytes: flush_bytes as u64 * 8,
            hl0_compact_tables: 4,
            hl0_stop_tables: HL0_STOP_TABLES,
            close_flush_bytes: 4 * MIB as u64,
            bucket_bytes: (budget as u64 / BUCKETS_IN_BUDGET).clamp(BUCKET_BYTES_MIN, BUCKET_BYTES_MAX),
            bucket_extents_max: 8,
            buckets_max: (budget / BUCKET_PART_BYTES).min(BUCKETS_MAX),
            bucket_split_percent: Some(BUCKET_SPLIT_PERCENT_DEFAULT),
            operand_cache_bytes: None,
            folded_from: 8,
            manifest_bytes: 4 * MIB as u64,
            numbers_reserved: 512,
            // A flush adds runs until it has `flush_bytes`, so it is smaller than two runs of the largest size.
            reserve_bytes: 2 * flush_bytes as u64 + 4 * MIB as u64,
            stats_interval: Some(Duration::from_secs(1)),
            tune_interval: Duration::from_millis(250),
            calm_after: Duration::from_secs(60),
            canary: None,
        }
    }

    /// The sizes, if the budget is enough for everything that must be in memory at once: as many tables in HL0 as a
    /// compaction can hold, then memory for jobs, and the rest for the caches.
    fn fit(budget: usize, block_size: usize, filter_bits: u32, threads: usize) -> Option<Tuning> {
        let mut tuning = Tuning::from_budget(budget);
        let part = budget / 32;
        let read_ahead_bytes = tuning.read_ahead_bytes;
        let builder = TableOptions::builder_bytes(block_size, filter_bits, tuning.write_bytes);
        let builders = 2 * builder + segment_builder_bytes(block_size, filter_bits, tuning.write_bytes);
        let least = |tables| read_ahead_bytes + builders + compaction_bytes(block_size, tables) + FETCH_ROOM_MIN;
        let jobs_max = budget.checked_sub(tuning.beside_jobs() + tuning.cache_bytes_min)?;
        // Inline values larger than blocks take memory too, so a small budget allows fewer tables.
        let tables_max = (budget / MIB * 3 / 4).clamp(HL0_STOP_TABLES_MIN, HL0_STOP_TABLES);
        let tables = (HL0_STOP_TABLES_MIN..=tables_max).rev().find(|&tables| least(tables) <= jobs_max)?;
        tuning.hl0_stop_tables = tables;
        tuning.job_bytes = least(tables).max((6 * part).min(jobs_max));
        let compaction = builder + compaction_bytes(block_size, tables);
        let spare = tuning.job_bytes - least(tables);
        // A compaction of many tables has many readers.
        let more_ahead = read_ahead_bytes.min(spare / 4);
        tuning.read_ahead_bytes += more_ahead;
        let spare = spare - more_ahead;
        tuning.compactions_max = (1 + spare / 2 / compaction).min(threads);
        let more = (tuning.compactions_max - 1) * compaction;
        // A fetch buffer may be up to a third larger than requested.
        tuning.fetch_bytes = (spare - more + FETCH_ROOM_MIN) / 4 * 3;
        tuning.beside_bytes =
            tuning.judged_bytes_max() + tuning.sorted_bytes_by_gc() + tuning.collection_buffer_bytes();
        let rest = budget - (tuning.log_buffer_bytes() + tuning.job_bytes);
        tuning.cache_bytes = rest.min(17 * part);
        Some(tuning)
    }

    /// Derives the sizes of what lies on the fast tier from its budget of `bytes`: a log is a sixteenth of it at most, so
    /// that several are there at once, and all that does not move takes less than a fifth.
    pub(crate) fn fit_fast_tier(&mut self, bytes: u64) {
        let part = |of: u64| (bytes / of).max(1 << 16);
        self.log_bytes = self.log_bytes.min(part(16));
        self.log_bytes_min = self.log_bytes_min.min(self.log_bytes);
        let ring_bytes = usize::try_from(part(32)).unwrap_or(usize::MAX / 2).next_power_of_two() / 2;
        self.ring_bytes = self.ring_bytes.min(ring_bytes);
        self.ring_bytes_min = self.ring_bytes_min.min(self.ring_bytes);
        self.chunk_bytes = self.chunk_bytes.min((self.ring_bytes / 8).max(BLOCK_IO_BYTES));
        self.manifest_bytes = self.manifest_bytes.min(part(64));
        // Recovery reads what was demoted before its flush from the slow tier.
        self.replay_bytes_max = self.replay_bytes_max.min(bytes.saturating_mul(4));
    }

    /// What the scheduler may choose, and where it begins: a flush takes at least a full index table, and at most twice what
    /// it takes at rest, and three quarters of what the front may hold.
    pub(crate) fn limits(&self, rest: Setting) -> Limits {
        let front = (self.front_bytes_max as u64 / 4 * 3).max(self.flush_bytes);
        Limits {
            rest,
            flush_bytes_min: self.flush_bytes.min(self.index_table_bytes as u64),
            flush_bytes_max: self.flush_bytes.saturating_mul(2).min(front),
            hl0_trigger_max: self.hl0_compact_tables.max(self.hl0_stop_tables / HL0_TRIGGER_PART),
            calm_after: self.calm_after,
        }
    }

    /// The number of tables at which HL0 is compacted while they are small, if it is this one otherwise.
    pub(crate) fn hl0_trigger_if_small(&self, hl0_trigger: usize) -> usize {
        (2 * hl0_trigger).min(self.hl0_stop_tables / HL0_TRIGGER_PART)
    }

    /// The settings of the scheduler to begin with.
    pub(crate) fn setting(&self) -> Setting {
        Setting {
            merge_runs: self.index_merge_runs,
            flush_bytes: self.flush_bytes,
            level_base_bytes: self.level_base_bytes,
            hl0_trigger: self.hl0_compact_tables,
            compactions: self.compactions_max,
        }
    }

    /// Size of the write buffer of an extent, so that it is written in large writes.
    pub(crate) fn extent_buffer_bytes(&self) -> usize {
        (self.job_bytes / 128).clamp(4 << 10, 256 << 10)
    }

    /// The size of the next log if `stored` bytes are stored: about 1/128 to 1/64 of them, so that space allocated for
    /// logs and not yet written stays small relative to the data; but more of a small store, so that there are few logs.
    pub(crate) fn log_bytes_for(&self, stored: u64) -> u64 {
        let part = |of: u64| (stored / of).checked_next_power_of_two().unwrap_or(u64::MAX);
        let bytes = part(128).max(part(4).min(SMALL_LOG_BYTES));
        bytes.max(self.log_bytes_min).min(self.log_bytes)
    }

    /// The size of the ring for logs of `log_bytes`.
    pub(crate) fn ring_bytes_for(&self, log_bytes: u64) -> usize {
        let quarter = usize::try_from(log_bytes / 4).unwrap_or(usize::MAX / 2).next_power_of_two();
        let bytes = if log_bytes >= self.log_bytes { self.ring_bytes } else { quarter };
        bytes.max(self.ring_bytes_min).min(self.ring_bytes)
    }

    /// The size of one direct write to the log with a ring of `ring_bytes`.
    pub(crate) fn chunk_bytes_for(&self, ring_bytes: usize) -> usize {
        self.chunk_bytes.min(ring_bytes / 4)
    }

    /// Largest memory of the ring and the chunk buffers.
    pub(crate) fn log_buffer_bytes(&self) -> usize {
        self.ring_bytes + self.chunk_buffers_bytes(self.ring_bytes)
    }

    /// Memory of the chunk buffers for a ring of `ring_bytes`.
    pub(crate) fn chunk_buffers_bytes(&self, ring_bytes: usize) -> usize {
        self.chunk_buffers * (self.chunk_bytes_for(ring_bytes) + 4096)
    }

    /// Largest memory of runs that are being built.
    pub(crate) fn merging_bytes(&self) -> usize {
        self.index_table_bytes + self.flush_bytes as usize
    }

    /// All memory except that of jobs and caches, at its limits.
    fn beside_jobs(&self) -> usize {
        self.log_buffer_bytes() + self.front_bytes_max + self.index_table_bytes + self.merging_bytes()
    }

    /// True if an index table is to be sealed: it has its full size, or with its values in the log it has the size of a
    /// flush. Values that stay in the log count as well: index tables then stay small enough for the CPU caches, and
    /// their runs are merged later. A small one is enough if reads pass through many operands in it: in its run they are merged.
    pub(crate) fn is_full(&self, table: &IndexTable) -> bool {
        let bytes = table.bytes();
        let is_slow = || bytes >= self.index_table_bytes / SLOW_TABLE_PART && table.is_slow_to_read();
        bytes >= self.index_table_bytes || bytes as u64 + table.value_bytes() >= self.flush_bytes || is_slow()
    }

    /// Sizes so small that a few hundred operations cause seals, merges, flushes, compactions and log rotations.
    #[cfg(any(test, feature = "testing"))]
    pub fn tiny() -> Tuning {
        Tuning {
            memory_bytes: 1 << 20,
            job_bytes: 192 << 10,
            fetch_bytes: 32 << 10,
            scan_ahead_bytes: 64 << 10,
            read_ahead_bytes: 64 << 10,
            write_bytes: 16 << 10,
            compactions_max: 4,
            open_files_max: 3,
            index_table_bytes: 4 << 10,
            flush_bytes: 16 << 10,
            index_merge_runs: 2,
            front_bytes_max: 256 << 10,
            logs_bytes_max: 1 << 20,
            replay_bytes_max: 1 << 20,
            redirect_bytes_max: 4 << 20,
            index_save_bytes: 64 << 10,
            index_save_part: 3,
            hash_slack_logs: 3,
            hash_found_bytes: 4 << 10,
            hash_spread: Spread::Even,
            unflushed_bytes_min: 1 << 20,
            log_bytes: 64 << 10,
            // Larger than `log_bytes`, so logs do not grow.
            log_bytes_min: 1 << 20,
            ring_bytes: 64 << 10,
            ring_bytes_min: 1 << 20,
            chunk_bytes: 8 << 10,
            chunk_threads: 2,
            chunk_buffers: 3,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            placement: ValuePlacement::Hash,
            reordering: ValueReordering::WhenIdle,
            victims: VictimPolicy::Greedy,
            hot_cold: true,
            surveyed_records_max: 300,
            survey_bytes: 4 << 10,
            value_compression: Compression::None,
            group_bytes: 64 << 10,
            // Logs and reserve take more than half of it.
            garbage_bytes: 64 << 10,
            garbage_percent: 60,
            collects_when_idle: false,
            beside_bytes: 0,
            second_collection_percent: 0,
            stale_percent: 50,
            compacts_when_idle: true,
            cache_bytes: 256 << 10,
            cache_bytes_min: 0,
            table_bytes: 16 << 10,
            level_base_bytes: 64 << 10,
            hl0_compact_tables: 4,
            hl0_stop_tables: 24,
            close_flush_bytes: 24 << 10,
            bucket_bytes: 2 << 10,
            bucket_extents_max: 3,
            buckets_max: 6,
            bucket_split_percent: Some(BUCKET_SPLIT_PERCENT_DEFAULT),
            operand_cache_bytes: None,
            folded_from: 2,
            manifest_bytes: 16 << 10,
            numbers_reserved: 24,
            reserve_bytes: 48 << 10,
            stats_interval: None,
            tune_interval: Duration::from_millis(1),
            calm_after: Duration::from_millis(20),
            canary: None,
        }
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning::for_budget(256 << 20)
    }
}

/// Memory of the blocks of a compaction of `tables` tables of HL0, with the two levels that it reads and the block just
/// read, and of pages of redirect tables.
fn compaction_bytes(block_size: usize, tables: usize) -> usize {
    (tables + 3) * (block_size + CURSOR_BYTES) + block_size + KEPT_BYTES
}

/// Memory of the builder of a delta segment, which a flush has beside that of its tables.
fn segment_builder_bytes(block_size: usize, filter_bits: u32, write_bytes: usize) -> usize {
    let (page, write) = (block_size.min(SEGMENT_PAGE_BYTES), write_bytes.min(SEGMENT_WRITE_BYTES));
    TableOptions::builder_bytes(page, filter_bits, write)
}

impl Tuning {
    /// The sizes of buckets of merge operands.
    pub(crate) fn bucket_sizes(&self) -> BucketSizes {
        BucketSizes {
            bytes_max: self.bucket_bytes,
            buckets_max: self.buckets_max,
            extents_max: self.bucket_extents_max,
            split_percent: self.bucket_split_percent,
        }
    }
}

/// A bucket is at most this part of the memory budget...
const BUCKETS_IN_BUDGET: u64 = 256;
/// ...within these bounds (KDSep: 256 KiB): in less memory, a job holds less, and a read of a cold bucket evicts less.
const BUCKET_BYTES_MIN: u64 = 64 << 10;
const BUCKET_BYTES_MAX: u64 = 256 << 10;
/// An index table that is slow to read is sealed once it has this part of its full size.
const SLOW_TABLE_PART: usize = 64;
/// There is a bucket for this many bytes of the memory budget: with 256 MiB as many as hold 1 GiB of operands.
const BUCKET_PART_BYTES: usize = 64 << 10;
/// Upper bound of [`Tuning::buckets_max`] for any budget (KDSep: 32,768).
const BUCKETS_MAX: usize = 32_768;
/// Logs grow fast up to this size.
const SMALL_LOG_BYTES: u64 = 4 << 20;
/// A survey may list one live record for this many bytes of the memory budget.
const SURVEYED_BYTES_EACH: u64 = 64;
/// The lists of live records take at most this part of the memory budget: those of 11,000,000 in 256 MiB.
const SURVEY_PART: usize = 12;

#[cfg(test)]
#[path = "sizes_test.rs"]
mod tests;
