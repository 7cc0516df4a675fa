//! Statistics: plain numbers, taken at one moment.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;
use crate::engine::inspect::bypass_stats::BypassStats;
use crate::engine::inspect::delta_stats::DeltaStats;
use crate::engine::inspect::hash_stats::HashStats;
use crate::engine::inspect::scheduling_stats::SchedulingStats;
use crate::engine::inspect::tier_stats::TierStats;
use crate::engine::memory::MemoryStats;
use crate::engine::work::RunningJob;
use crate::io::Access;
use crate::values::candidate::Candidate;
use crate::values::placement::groups;

// The field numbers, here and below, are those of the page `STATS`. Do not renumber; a new field gets the next number
// and `#[cbor(default)]`, or older pages cannot be read. Number 52 is taken: earlier pages have a list of paths there.

/// The state of a database at one moment. Sizes are in bytes; totals count from the last open.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct Stats {
    /// The memory budget.
    #[n(0)]
    pub memory_budget: usize,
    /// Memory in use.
    #[n(1)]
    pub memory: MemoryStats,
    /// Block cache hits: look-ups of table blocks that found the block.
    #[n(2)]
    pub block_cache_hits: u64,
    /// Block cache misses.
    #[n(3)]
    pub block_cache_misses: u64,
    /// Value cache hits: point reads of separated values that found the value. Reads served from the buffers of the log
    /// are not counted.
    #[n(4)]
    pub value_cache_hits: u64,
    /// Value cache misses; not counted while the cache has no memory because there are no separated values.
    #[n(5)]
    pub value_cache_misses: u64,
    /// Table files that are open now; see [`Options::open_files_max`](crate::Options::open_files_max).
    #[n(6)]
    pub open_table_files: usize,
    /// Number of times a table file was opened.
    #[n(7)]
    pub table_files_opened: u64,
    /// True if tables are written and read with direct I/O.
    #[n(8)]
    pub direct_io: bool,
    /// The sequence number of the newest write.
    #[n(9)]
    pub seqno: u64,
    /// Writes up to this sequence number survive loss of power.
    #[n(10)]
    pub durable_seqno: u64,
    /// Number of keyspaces.
    #[n(11)]
    pub keyspaces: usize,
    /// Number of snapshots and iterators held.
    #[n(12)]
    pub snapshots: usize,
    /// Logs, oldest first.
    #[n(13)]
    pub logs: Vec<FileStats>,
    /// Versions in the active index table.
    #[n(14)]
    pub index_table_entries: u64,
    /// Bytes of memory of the active index table.
    #[n(15)]
    pub index_table_bytes: u64,
    /// Full index tables waiting to become runs.
    #[n(16)]
    pub sealed: usize,
    /// Runs, newest first.
    #[n(17)]
    pub runs: Vec<RunStats>,
    /// Quarantined tables: compactions could not read them, and skip them until the next open.
    #[n(18)]
    pub tables_quarantined: usize,
    /// Range tombstones in index tables and runs; in runs, overlapping ones are split into fragments.
    #[n(19)]
    pub front_range_tombstones: u64,
    /// Levels of tables, HL0 first.
    #[n(20)]
    pub levels: Vec<LevelStats>,
    /// Number of value files: logs that have left the front, and extents of segments.
    #[n(21)]
    pub value_files: usize,
    /// Number of key groups that these extents belong to.
    #[n(22)]
    pub value_groups: usize,
    /// These groups, in the order of their grouping key.
    #[n(23)]
    pub value_group_list: Vec<GroupStats>,
    /// Bytes of logs and extents.
    #[n(24)]
    pub value_bytes: u64,
    /// Bytes of records in them that tables reference.
    #[n(25)]
    pub value_bytes_live: u64,
    /// Bytes of dead extents whose space has not been freed yet, not included in [`value_bytes`](Stats::value_bytes):
    /// their segment has another hard link, such as a checkpoint's, or the file system refused. Retried at least once a
    /// minute.
    #[n(51)]
    #[cbor(default)]
    pub value_bytes_pending: u64,
    /// Of [`value_bytes_live`](Stats::value_bytes_live), bytes that newer versions hide, by estimate: compactions have not met
    /// both versions yet. Computed once value files may exceed the space limit; 0 before.
    #[n(54)]
    #[cbor(default)]
    pub value_bytes_hidden: u64,
    /// Files of redirect tables, for moved values that some tables still reference by stale addresses.
    #[n(26)]
    pub moved_files: usize,
    /// Bytes of records that users wrote (keys, values and record headers).
    #[n(27)]
    pub user_bytes_written: u64,
    /// Bytes of frames appended to logs.
    #[n(28)]
    pub log_bytes_written: u64,
    /// Bytes of tables written by flush and compaction.
    #[n(29)]
    pub table_bytes_written: u64,
    /// Bytes of edits written to the manifest.
    #[n(30)]
    pub manifest_bytes_written: u64,
    /// Bytes read by flush and compaction.
    #[n(31)]
    pub bytes_read: u64,
    /// Completed flushes.
    #[n(32)]
    pub flushes: u64,
    /// Completed compactions.
    #[n(33)]
    pub compactions: u64,
    /// Completed value GC jobs.
    #[n(34)]
    pub value_gcs: u64,
    /// Of these, those that began while another one, or a reordering of values, was running.
    #[n(62)]
    #[cbor(default)]
    pub value_gcs_beside: u64,
    /// Bytes of segments and redirect tables written by them.
    #[n(35)]
    pub value_gc_bytes_written: u64,
    /// Values that compactions folded from merge operands and a base, and wrote to segments.
    #[n(57)]
    #[cbor(default)]
    pub values_folded: u64,
    /// Bytes of their records.
    #[n(58)]
    #[cbor(default)]
    pub folded_value_bytes_written: u64,
    /// Completed value reorderings, which move values into key order in idle time, with
    /// [`ValuePlacement::Range`](crate::ValuePlacement::Range); not counted in [`value_gcs`](Stats::value_gcs).
    #[n(36)]
    pub value_reorders: u64,
    /// Value reorderings that ended without effect because other work was due.
    #[n(53)]
    #[cbor(default)]
    pub value_reorders_given_up: u64,
    /// Bytes of segments and redirect tables written by them, including interrupted ones.
    #[n(37)]
    pub value_reorder_bytes_written: u64,
    /// Bytes, before compression, of moved values that were compressed
    /// ([`ValueOptions::compression`](crate::ValueOptions::compression)); values that compression did not shrink are
    /// not counted.
    #[n(38)]
    pub values_compressed_from: u64,
    /// Bytes of these values after compression.
    #[n(39)]
    pub values_compressed_to: u64,
    /// Walks through the tables to find out which values live.
    #[n(40)]
    pub value_surveys: u64,
    /// Values that value GC and reordering moved; some of them more than once.
    #[n(41)]
    pub value_records_moved: u64,
    /// Completed merges of runs.
    #[n(42)]
    pub index_merges: u64,
    /// Index tables sorted into runs.
    #[n(43)]
    pub seals: u64,
    /// Subtasks of the completed compactions.
    #[n(44)]
    pub compaction_subtasks: u64,
    /// Subtasks of merges and seals.
    #[n(45)]
    pub run_subtasks: u64,
    /// Stalls: writes that waited for the end of a background job.
    #[n(46)]
    pub stalls: u64,
    /// Total time that they waited.
    #[n(47)]
    pub stall_time: Duration,
    /// Writes that were slowed down to the rate of background work.
    #[n(48)]
    pub paced: u64,
    /// Total time that they waited.
    #[n(49)]
    pub paced_time: Duration,
    /// Files with names of database files that were found in the directories at open and that this database did not
    /// create. It leaves them alone. Empty in the statistics of another process.
    #[cbor(skip)]
    pub unknown_files: Vec<PathBuf>,
    /// The current limit on the write rate, in bytes per second: `None` while writes are not limited, 0 while they are
    /// stopped.
    #[n(50)]
    pub pace_bytes_per_second: Option<u64>,
    /// The directories, and the fast tier.
    #[n(55)]
    #[cbor(default)]
    pub tiers: TierStats,
    /// The queues of background work, and how it is scheduled.
    #[n(56)]
    #[cbor(default)]
    pub scheduling: SchedulingStats,
    /// The buckets of merge operands.
    #[n(59)]
    #[cbor(default)]
    pub deltas: DeltaStats,
    /// Hash keyspaces.
    #[n(60)]
    #[cbor(default)]
    pub hash: HashStats,
    /// What writers do while background work cannot follow them.
    #[n(61)]
    #[cbor(default)]
    pub bypass: BypassStats,
    /// The running jobs, in the order in which they began; [`SchedulingStats::jobs`] has what all jobs have used. Empty in the statistics of another process.
    #[cbor(skip)]
    pub jobs: Vec<JobStats>,
}

/// A running job.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobStats {
    /// Its kind: "flush", "compaction" and so on.
    pub kind: &'static str,
    /// Number of threads working on it.
    pub threads: usize,
    /// The resources that bound it, such as "cpu, slow reads": the CPU, and reads and writes of the fast and the slow
    /// directory.
    pub binds: String,
}

/// A file.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct FileStats {
    /// Its id.
    #[n(0)]
    pub id: u64,
    /// Bytes in use.
    #[n(1)]
    pub bytes: u64,
}

/// A group of separated values.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct GroupStats {
    /// Number of extents that hold it.
    #[n(0)]
    pub extents: usize,
    /// Their bytes.
    #[n(1)]
    pub bytes: u64,
    /// Bytes of records in them that tables reference.
    #[n(2)]
    pub bytes_live: u64,
}

/// A run.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct RunStats {
    /// Versions.
    #[n(0)]
    pub entries: u64,
    /// Memory.
    #[n(1)]
    pub bytes: u64,
    /// The oldest sequence number it covers.
    #[n(2)]
    pub seqno_min: u64,
    /// The newest sequence number it covers.
    #[n(3)]
    pub seqno_max: u64,
}

/// A level.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct LevelStats {
    /// Tables.
    #[n(0)]
    pub tables: usize,
    /// Bytes of their files.
    #[n(1)]
    pub bytes: u64,
    /// Versions.
    #[n(2)]
    pub entries: u64,
    /// Range tombstones; overlapping ones are split into fragments.
    #[n(3)]
    pub range_tombstones: u64,
}

impl Stats {
    /// Bytes written to storage per byte that users wrote; 0 before the first write.
    pub fn write_amplification(&self) -> f64 {
        let written = self.log_bytes_written
            + self.table_bytes_written
            + self.manifest_bytes_written
            + self.value_gc_bytes_written
            + self.folded_value_bytes_written
            + self.value_reorder_bytes_written
            + self.tiers.bytes_moved;
        if self.user_bytes_written == 0 { 0.0 } else { written as f64 / self.user_bytes_written as f64 }
    }
}

/// The contents of each group, hot and cold values together.
fn groups_of(values: &[Candidate]) -> Vec<GroupStats> {
    let sums = |extents: Vec<&Candidate>| GroupStats {
        extents: extents.len(),
        bytes: extents.iter().map(|extent| extent.bytes).sum(),
        bytes_live: extents.iter().map(|extent| extent.live.min(extent.bytes)).sum(),
    };
    groups(values).into_iter().map(sums).collect()
}

impl Core {
    fn running_jobs(&self) -> Vec<JobStats> {
        let of = |job: &RunningJob| JobStats {
            kind: job.profile.name,
            threads: job.threads,
            binds: job.profile.binds.names(),
        };
        self.work.lock().running().iter().map(of).collect()
    }

    /// The state and the totals of the database.
    pub fn stats(&self) -> Stats {
        // Before the view: a job is counted after its edit is installed, so its result is seen with its count.
        let totals = self.totals();
        let (view, seqno) = self.published.read();
        let values = &view.values.figures().candidates;
        let groups = groups_of(values);
        let jobs = self.running_jobs();
        let tiers = self.tier_stats(&view);
        let scheduling = self.scheduling_stats(&view);
        Stats {
            value_files: values.len(),
            value_bytes: values.iter().map(|file| file.bytes).sum(),
            value_bytes_live: view.values.figures().live_bytes,
            value_bytes_pending: self.pending_deletions.pending_bytes(),
            value_bytes_hidden: self.work.space.guessed(),
            value_groups: groups.len(),
            value_group_list: groups,
            moved_files: view.values.redirect_files(),
            memory_budget: self.settings.memory_budget,
            memory: self.memory_stats(&view),
            block_cache_hits: self.readers.cache.hits(),
            block_cache_misses: self.readers.cache.misses(),
            value_cache_hits: self.memory.value_cache.hits(),
            value_cache_misses: self.memory.value_cache.misses(),
            open_table_files: self.readers.handles.open_count(),
            table_files_opened: self.readers.handles.opened(),
            direct_io: self.readers.slow_access == Access::Direct,
            seqno: seqno.0,
            durable_seqno: self.horizon.durable().0,
            keyspaces: self.keyspaces.len(),
            snapshots: self.snapshots.len(),
            logs: view.logs.values().map(|log| FileStats { id: log.id().0, bytes: log.end() }).collect(),
            index_table_entries: view.active.len() as u64,
            index_table_bytes: view.active.bytes() as u64,
            sealed: view.sealed.len(),
            runs: view
                .runs
                .iter()
                .map(|run| RunStats {
                    entries: run.entries(),
                    bytes: run.bytes() as u64,
                    seqno_min: run.seqnos().0.0,
                    seqno_max: run.seqnos().1.0,
                })
                .collect(),
            tables_quarantined: self
                .work
                .lock()
                .quarantined
                .iter()
                .filter(|id| view.version.find(**id).is_some())
                .count(),
            front_range_tombstones: view.front_ranges(),
            levels: view
                .version
                .levels()
                .iter()
                .map(|level| LevelStats {
                    tables: level.tables().len(),
                    bytes: level.bytes(),
                    entries: level.entries(),
                    range_tombstones: level.range_deletes(),
                })
                .collect(),
            unknown_files: self.unknown_files.clone(),
            tiers,
            scheduling,
            deltas: self.delta_stats(&view),
            hash: self.hash_stats(&view),
            bypass: self.bypass_stats(&view),
            pace_bytes_per_second: self.pacer.bytes_per_second(),
            jobs,
            ..totals
        }
    }

    /// The totals since the database was opened.
    fn totals(&self) -> Stats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
        let counters = &self.counters;
        Stats {
            user_bytes_written: count(&counters.user_bytes),
            log_bytes_written: count(&counters.log_bytes),
            table_bytes_written: count(&counters.table_bytes),
            manifest_bytes_written: count(&counters.manifest_bytes),
            bytes_read: count(&counters.bytes_read),
            flushes: count(&counters.flushes),
            compactions: count(&counters.compactions),
            value_gcs: count(&counters.value_gcs),
            value_gcs_beside: count(&counters.value_gcs_beside),
            value_gc_bytes_written: count(&counters.value_gc_bytes),
            values_folded: count(&counters.folded_values),
            folded_value_bytes_written: count(&counters.folded_value_bytes),
            value_reorders: count(&counters.value_reorders),
            value_reorders_given_up: count(&counters.value_reorders_given_up),
            value_reorder_bytes_written: count(&counters.value_reorder_bytes),
            values_compressed_from: count(&counters.compressed_from),
            values_compressed_to: count(&counters.compressed_to),
            value_surveys: count(&counters.value_surveys),
            value_records_moved: count(&counters.value_records_moved),
            index_merges: count(&counters.index_merges),
            seals: count(&counters.seals),
            compaction_subtasks: count(&counters.compaction_subtasks),
            run_subtasks: count(&counters.run_subtasks),
            stalls: count(&counters.stalls),
            stall_time: Duration::from_micros(count(&counters.stall_us)),
            paced: count(&counters.paced),
            paced_time: Duration::from_micros(count(&counters.paced_us)),
            ..Stats::default()
        }
    }
}
