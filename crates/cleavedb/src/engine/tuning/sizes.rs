//! The sizes inside the engine, all derived from `memory_budget`. Tests and simulation make them tiny, so that every
//! path is walked within a few hundred operations; users have no reason to.
//!
//! What is held at once adds up to the budget, in thirty-seconds of it (up to 256 MiB; beyond, ring, index tables and
//! flushes keep their size, and more is left for jobs and cache):
//!
//! | what | part |
//! |---|---|
//! | log buffers: the ring (2, rounded down to a power of two), and half as much in chunk buffers | 3 |
//! | front: index tables and runs (8), and the index table that is filled while writers are stopped | 9 |
//! | merging: the run made of an index table (1), and the one made of other runs (a flush, 4) | 5 |
//! | jobs: values fetched by a flush, bytes read ahead, table builders, blocks under compaction | 6, more for large blocks |
//! | the rest: table readers, keyspaces, and the block cache, which gets what these and the front leave, up to 16 | 9 |

use std::time::Duration;

use crate::base::limits::{
    GARBAGE_BYTES_DEFAULT, GARBAGE_PERCENT_DEFAULT, MEMORY_BUDGET_MIN, SEPARATION_BYTES_DEFAULT,
};
use crate::base::{Error, Result};
use crate::engine::tuning::settings::ValuePlacement;
use crate::format::compression::Compression;
use crate::front::index_table::IndexTable;
use crate::levels::builder::TableOptions;
use crate::values::placement::hash::HashPlacement;
use crate::values::placement::log::LogPlacement;
use crate::values::placement::range::RangePlacement;
use crate::values::placement::{Placement, VictimPolicy};

const MIB: usize = 1 << 20;
/// What a cursor of a compaction holds beside its data block: top index, index partition, and what they are read into.
const CURSOR_BYTES: usize = 28 << 10;
/// With less a flush would read the log in small pieces.
const FETCH_ROOM_MIN: usize = MIB / 2;
/// Writers wait while HL0 has this many tables, if the blocks of so many fit into memory at once.
const HL0_STOP_TABLES: usize = 24;
/// With fewer the tree does not keep its shape.
const HL0_STOP_TABLES_MIN: usize = 8;

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
    /// All memory together.
    pub memory_bytes: usize,
    /// The part of it for jobs; the next five are within it.
    pub job_bytes: usize,
    /// A flush fetches values from logs up to this much at a time.
    pub fetch_bytes: usize,
    /// Jobs together read ahead at most this much; so do users' scans, which is beside the budget as all that they hold.
    pub read_ahead_bytes: usize,
    /// Tables are written in pieces of this size.
    pub write_bytes: usize,
    /// Threads that compact at once, each a compaction or a part of one, whatever the number of threads.
    pub compactions_max: usize,
    /// Table files that are open at once, if the options allow more.
    pub open_files_max: usize,
    /// An index table is sealed at this size (DecouKV: 8 MiB).
    pub index_table_bytes: usize,
    /// Runs are flushed once they hold this much (DFTS, DecouKV: 32 MiB). Values in logs count as far as they go into
    /// tables.
    pub flush_bytes: u64,
    /// Runs of similar size are merged from this many on (IMTN, DecouKV: 2).
    pub index_merge_runs: usize,
    /// Writers wait while index tables and runs hold more than this and one index table.
    pub front_bytes_max: usize,
    /// Writers wait while logs that are not flushed hold more than this of what a flush takes along.
    pub logs_bytes_max: u64,
    /// Writers wait while logs that are not flushed hold more than this, values that stay in them included: recovery reads
    /// all of it.
    pub replay_bytes_max: u64,
    /// Size of a log, once there is much data.
    pub log_bytes: u64,
    /// Size of the first logs.
    pub log_bytes_min: u64,
    /// Size of the mapped ring, once there is much data.
    pub ring_bytes: usize,
    /// Size of the first ring; at least 16 KiB.
    pub ring_bytes_min: usize,
    /// Size of one direct write to the log, at most a quarter of the ring.
    pub chunk_bytes: usize,
    /// Direct writes in flight, each with a thread.
    pub chunk_threads: usize,
    /// Buffers for direct writes.
    pub chunk_buffers: usize,
    /// Values of at least so many bytes lie apart from their keys, in keyspaces that do not say otherwise.
    pub separation_bytes: usize,
    /// Where values go when they are moved.
    pub placement: ValuePlacement,
    /// What gives its space back first.
    pub victims: VictimPolicy,
    /// Values that were not updated since they were last moved lie apart.
    pub hot_cold: bool,
    /// What lives of files that are emptied is found in the tables where that is cheaper than to read the files.
    pub finds_in_tables: bool,
    /// How values are compressed when they are moved.
    pub value_compression: Compression,
    /// Groups of values are divided beyond this size.
    pub group_bytes: u64,
    /// So much garbage may lie in files of values beside what is live in them, in bytes...
    pub garbage_bytes: u64,
    /// ...and in hundredths of it (decision record 021).
    pub garbage_percent: u64,
    /// Tables are written anew if more than so many in a hundred of their addresses lead through redirect tables.
    pub stale_percent: u64,
    /// At rest HL0 is merged down and fewer stale addresses will do, for the sake of look-ups.
    pub compacts_when_idle: bool,
    /// Size of the block cache while there is room for it.
    pub cache_bytes: usize,
    /// The block cache never gets smaller than this.
    pub cache_bytes_min: usize,
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
    /// So many file numbers are reserved at once.
    pub numbers_reserved: u64,
    /// At most so much space is set apart where tables lie, for when the disk is full; none if this is zero.
    pub reserve_bytes: u64,
    /// The page of statistics is written this often; never if there is none.
    pub stats_interval: Option<Duration>,
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
    /// [`Error::InvalidInput`] names the least budget that would do.
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

    /// The sizes, if the budget is enough for what must be in memory at once.
    fn fit(budget: usize, block_size: usize, filter_bits: u32, threads: usize) -> Option<Tuning> {
        let part = budget / 32;
        let ring_bytes = (1 << (2 * part).max(1).ilog2()).clamp(MIB, 16 * MIB);
        let flush_bytes = (4 * part).clamp(2 * MIB, 32 * MIB);
        let logs_bytes_max = budget.min(256 * MIB);
        let replay_bytes_max = budget.saturating_mul(8).min(1 << 30);
        let write_bytes = (budget / 64).clamp(256 << 10, MIB).next_multiple_of(4096);
        let read_ahead_bytes = (budget / 64).clamp(512 << 10, 16 * MIB);
        let mut tuning = Tuning {
            memory_bytes: budget,
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
            log_bytes: (logs_bytes_max / 4) as u64,
            log_bytes_min: MIB as u64,
            ring_bytes,
            ring_bytes_min: MIB / 4,
            chunk_bytes: (ring_bytes / 16).clamp(64 << 10, MIB),
            chunk_threads: 4,
            chunk_buffers: 8,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            placement: ValuePlacement::Range,
            victims: VictimPolicy::Greedy,
            hot_cold: true,
            finds_in_tables: true,
            value_compression: Compression::None,
            group_bytes: (logs_bytes_max / 4) as u64,
            garbage_bytes: GARBAGE_BYTES_DEFAULT,
            garbage_percent: GARBAGE_PERCENT_DEFAULT.into(),
            stale_percent: 50,
            compacts_when_idle: true,
            cache_bytes: 0,
            cache_bytes_min: part,
            table_bytes: flush_bytes as u64,
            level_base_bytes: flush_bytes as u64 * 8,
            hl0_compact_tables: 4,
            hl0_stop_tables: HL0_STOP_TABLES,
            close_flush_bytes: 4 * MIB as u64,
            manifest_bytes: 4 * MIB as u64,
            numbers_reserved: 512,
            // A flush takes runs until they are enough, so it is less than two at their largest.
            reserve_bytes: 2 * flush_bytes as u64 + 4 * MIB as u64,
            stats_interval: Some(Duration::from_secs(1)),
            canary: None,
        };
        let builder = TableOptions::builder_bytes(block_size, filter_bits, write_bytes);
        let least = |tables| read_ahead_bytes + 2 * builder + compaction_bytes(block_size, tables) + FETCH_ROOM_MIN;
        let jobs_max = budget.checked_sub(tuning.beside_jobs() + tuning.cache_bytes_min)?;
        // Values larger than blocks count as well: a small budget bears few of them.
        let tables_max = (budget / MIB * 3 / 4).clamp(HL0_STOP_TABLES_MIN, HL0_STOP_TABLES);
        let tables = (HL0_STOP_TABLES_MIN..=tables_max).rev().find(|&tables| least(tables) <= jobs_max)?;
        tuning.hl0_stop_tables = tables;
        tuning.job_bytes = least(tables).max((6 * part).min(jobs_max));
        let compaction = builder + compaction_bytes(block_size, tables);
        let spare = tuning.job_bytes - least(tables);
        tuning.compactions_max = (1 + spare / 2 / compaction).min(threads);
        let more = (tuning.compactions_max - 1) * compaction;
        // Buffers that values are fetched into may be larger by a third than what was wanted.
        tuning.fetch_bytes = (spare - more + FETCH_ROOM_MIN) / 4 * 3;
        let rest = budget - (tuning.log_buffer_bytes() + tuning.merging_bytes() + tuning.job_bytes);
        tuning.cache_bytes = rest.min(16 * part);
        Some(tuning)
    }

    /// What is held of an extent that is being written, so that it goes to storage in large writes.
    pub(crate) fn extent_buffer_bytes(&self) -> usize {
        (self.job_bytes / 128).clamp(4 << 10, 256 << 10)
    }

    /// The size of the next log when so many bytes are stored: about an eighth to a quarter of them, so that what is reserved
    /// for logs and not written yet stays small beside the data.
    pub(crate) fn log_bytes_for(&self, stored: u64) -> u64 {
        (stored / 4).checked_next_power_of_two().unwrap_or(u64::MAX).max(self.log_bytes_min).min(self.log_bytes)
    }

    /// The size of the ring for logs of that size, as far as it is not the largest.
    pub(crate) fn ring_bytes_for(&self, log_bytes: u64) -> usize {
        let quarter = usize::try_from(log_bytes / 4).unwrap_or(usize::MAX / 2).next_power_of_two();
        let bytes = if log_bytes >= self.log_bytes { self.ring_bytes } else { quarter };
        bytes.max(self.ring_bytes_min).min(self.ring_bytes)
    }

    /// The size of one direct write to the log with a ring of that size.
    pub(crate) fn chunk_bytes_for(&self, ring_bytes: usize) -> usize {
        self.chunk_bytes.min(ring_bytes / 4)
    }

    /// The ring and the chunk buffers, at their largest.
    pub(crate) fn log_buffer_bytes(&self) -> usize {
        self.ring_bytes + self.chunk_buffers_bytes(self.ring_bytes)
    }

    /// The chunk buffers that go with a ring of that size.
    pub(crate) fn chunk_buffers_bytes(&self, ring_bytes: usize) -> usize {
        self.chunk_buffers * (self.chunk_bytes_for(ring_bytes) + 4096)
    }

    /// Runs that are being built.
    pub(crate) fn merging_bytes(&self) -> usize {
        self.index_table_bytes + self.flush_bytes as usize
    }

    /// Everything but jobs and cache at its limit.
    fn beside_jobs(&self) -> usize {
        self.log_buffer_bytes() + self.front_bytes_max + self.index_table_bytes + self.merging_bytes()
    }

    /// An index table is full when it, or what it leads to in the log, is large enough for its next station. Values that
    /// stay in the log count as well: their tables are small and stay in the caches of the CPU, and their runs are merged.
    pub(crate) fn is_full(&self, table: &IndexTable) -> bool {
        let bytes = table.bytes();
        bytes >= self.index_table_bytes || bytes as u64 + table.value_bytes() >= self.flush_bytes
    }

    /// Everything small enough that a few hundred operations seal, merge, flush, compact and rotate.
    #[cfg(any(test, feature = "testing"))]
    pub fn tiny() -> Tuning {
        Tuning {
            memory_bytes: 1 << 20,
            job_bytes: 192 << 10,
            fetch_bytes: 32 << 10,
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
            log_bytes: 64 << 10,
            // No growth: so small a log is as large as it gets.
            log_bytes_min: 1 << 20,
            ring_bytes: 64 << 10,
            ring_bytes_min: 1 << 20,
            chunk_bytes: 8 << 10,
            chunk_threads: 2,
            chunk_buffers: 3,
            separation_bytes: SEPARATION_BYTES_DEFAULT,
            placement: ValuePlacement::Hash,
            victims: VictimPolicy::Greedy,
            hot_cold: true,
            finds_in_tables: true,
            value_compression: Compression::None,
            group_bytes: 64 << 10,
            garbage_bytes: 32 << 10,
            garbage_percent: 30,
            stale_percent: 50,
            compacts_when_idle: true,
            cache_bytes: 256 << 10,
            cache_bytes_min: 0,
            table_bytes: 16 << 10,
            level_base_bytes: 64 << 10,
            hl0_compact_tables: 4,
            hl0_stop_tables: 24,
            close_flush_bytes: 24 << 10,
            manifest_bytes: 16 << 10,
            numbers_reserved: 24,
            reserve_bytes: 48 << 10,
            stats_interval: None,
            canary: None,
        }
    }
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning::for_budget(256 << 20)
    }
}

/// Blocks that a compaction of `tables` tables of HL0 holds, with the two levels it reads and the block just read.
fn compaction_bytes(block_size: usize, tables: usize) -> usize {
    (tables + 3) * (block_size + CURSOR_BYTES) + block_size
}

impl Tuning {
    /// What is known of records that are judged together takes no more memory than this.
    pub(crate) fn judged_bytes_max(&self) -> usize {
        (self.job_bytes / 4).min(JUDGED_BYTES_MAX)
    }

    /// Where values go when they are moved.
    pub(crate) fn placement(&self) -> Box<dyn Placement> {
        let segment_bytes = self.log_bytes;
        match self.placement {
            ValuePlacement::Hash => Box::new(HashPlacement {
                segment_bytes,
                group_bytes: self.group_bytes,
                policy: self.victims,
                hot_cold: self.hot_cold,
            }),
            ValuePlacement::Range => Box::new(RangePlacement {
                segment_bytes,
                group_bytes: self.group_bytes,
                policy: self.victims,
                // What is known of a record while it is judged takes a few times its size, if it is small.
                small_bytes: self.judged_bytes_max() as u64 / 8,
            }),
            ValuePlacement::Log { look_up_each } => Box::new(LogPlacement { segment_bytes, look_up_each }),
        }
    }
}

/// What is judged together takes no more memory than this, however large the budget is.
const JUDGED_BYTES_MAX: usize = 256 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_every_budget_add_up_to_it() {
        for budget in [16, 17, 20, 31, 32, 33, 48, 64, 100, 128, 255, 256, 400, 512, 1024, 4096, 1 << 16] {
            for block_size in [512, 4096, 64 << 10, 1 << 20] {
                for (threads, filter_bits) in [(1, 0), (2, 10), (64, 64)] {
                    let Ok(tuning) = Tuning::for_options(budget * MIB, block_size, filter_bits, threads) else {
                        assert!(budget <= 64 && block_size == 1 << 20, "{budget} MiB, blocks of {block_size} B");
                        continue;
                    };
                    let all = tuning.beside_jobs() + tuning.job_bytes + tuning.cache_bytes_min;
                    assert!(all <= budget * MIB, "{budget} MiB: {tuning:?}");
                    // While the front is empty the cache has its full size.
                    let calm = tuning.log_buffer_bytes() + tuning.merging_bytes() + tuning.job_bytes;
                    assert!(calm + tuning.cache_bytes <= budget * MIB);
                    let builder = TableOptions::builder_bytes(block_size, filter_bits, tuning.write_bytes);
                    let compaction = builder + compaction_bytes(block_size, tuning.hl0_stop_tables);
                    let flush = builder + tuning.fetch_bytes / 3 * 4;
                    let jobs = flush + tuning.read_ahead_bytes + tuning.compactions_max * compaction;
                    assert!(jobs <= tuning.job_bytes, "{budget} MiB: jobs need {jobs} B: {tuning:?}");
                    assert!(4 * tuning.chunk_bytes <= tuning.ring_bytes && tuning.compactions_max >= 1);
                }
            }
        }
    }

    #[test]
    fn logs_and_ring_grow_with_the_data_up_to_their_size() {
        for budget in [16, 100, 256, 4096] {
            let tuning = Tuning::for_budget(budget * MIB);
            let mut before = (0, 0);
            for stored in (0..40).map(|shift| (1_u64 << shift) - 1) {
                let log = tuning.log_bytes_for(stored);
                let ring = tuning.ring_bytes_for(log);
                assert!((log, ring) >= before && log <= tuning.log_bytes && ring <= tuning.ring_bytes);
                assert!(log <= (stored / 2).max(MIB as u64) && ring as u64 <= log / 4);
                assert!(4 * tuning.chunk_bytes_for(ring) <= ring && ring.is_power_of_two());
                before = (log, ring);
            }
            assert_eq!(before, (tuning.log_bytes, tuning.ring_bytes));
        }
        assert_eq!(Tuning::tiny().log_bytes_for(0), Tuning::tiny().log_bytes);
        assert_eq!(Tuning::tiny().ring_bytes_for(64 << 10), Tuning::tiny().ring_bytes);
    }

    #[test]
    fn a_budget_too_small_names_the_least_that_would_do() {
        let refused = |budget| match Tuning::for_options(budget, 1 << 20, 10, 2) {
            Err(Error::InvalidInput { message }) => Some(message),
            _ => None,
        };
        let message = refused(16 * MIB).unwrap();
        let least: usize = message.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(refused(least).is_none() && refused(least - MIB).is_some(), "{message}");
        assert!(least <= 64 * MIB, "{message}");
    }
}
