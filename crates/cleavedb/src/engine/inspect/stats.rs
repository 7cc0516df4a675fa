//! What the store tells of itself: plain numbers, taken at one moment.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;
use crate::engine::memory::MemoryStats;
use crate::engine::work::{RunningJob, names_of};
use crate::io::Access;
use crate::values::candidate::Candidate;
use crate::values::placement::groups;

// The numbers of the fields, here and below, are those of the page `STATS`. Do not renumber; a new field gets the next number
// and `#[cbor(default)]`, or older pages cannot be read.

/// The state of a database at one moment. Sizes are in bytes; totals count from the last open.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct Stats {
    /// The budget for everything in memory.
    #[n(0)]
    pub memory_budget: usize,
    /// What is in memory.
    #[n(1)]
    pub memory: MemoryStats,
    /// How often the block cache had a block of a table that was wanted.
    #[n(2)]
    pub block_cache_hits: u64,
    /// How often it had not.
    #[n(3)]
    pub block_cache_misses: u64,
    /// How often the value cache had a value that lies apart and that a point read wanted; what is still in the buffers of the
    /// log does not come here.
    #[n(4)]
    pub value_cache_hits: u64,
    /// How often it had not; none while the cache has no memory, for want of values that lie apart.
    #[n(5)]
    pub value_cache_misses: u64,
    /// Table files that are open now; see [`Options::open_files_max`](crate::Options::open_files_max).
    #[n(6)]
    pub open_table_files: usize,
    /// How often a table file was opened.
    #[n(7)]
    pub table_files_opened: u64,
    /// Tables are written and read past the page cache.
    #[n(8)]
    pub direct_io: bool,
    /// The newest write.
    #[n(9)]
    pub seqno: u64,
    /// Everything up to here survives loss of power.
    #[n(10)]
    pub durable_seqno: u64,
    /// Keyspaces that exist.
    #[n(11)]
    pub keyspaces: usize,
    /// Snapshots and iterators that are held.
    #[n(12)]
    pub snapshots: usize,
    /// Logs, oldest first.
    #[n(13)]
    pub logs: Vec<FileStats>,
    /// Versions in the index table that takes writes.
    #[n(14)]
    pub index_table_entries: u64,
    /// Its memory.
    #[n(15)]
    pub index_table_bytes: u64,
    /// Full index tables that wait to become runs.
    #[n(16)]
    pub sealed: usize,
    /// Runs, newest first.
    #[n(17)]
    pub runs: Vec<RunStats>,
    /// Tables that compactions could not read, and leave alone until the next open.
    #[n(18)]
    pub tables_quarantined: usize,
    /// Range tombstones in index tables and runs; in runs they are cut where they overlap.
    #[n(19)]
    pub front_range_tombstones: u64,
    /// Levels of tables, HL0 first.
    #[n(20)]
    pub levels: Vec<LevelStats>,
    /// What holds values apart from their keys: logs that have left the front, and extents of segments.
    #[n(21)]
    pub value_files: usize,
    /// Groups of keys that these extents are of.
    #[n(22)]
    pub value_groups: usize,
    /// Each of these groups, in the order of what they are grouped by.
    #[n(23)]
    pub value_group_list: Vec<GroupStats>,
    /// Bytes of logs and extents.
    #[n(24)]
    pub value_bytes: u64,
    /// Bytes of records in them that tables lead to.
    #[n(25)]
    pub value_bytes_live: u64,
    /// Bytes of dead extents whose space has not been given back yet, beside [`value_bytes`](Stats::value_bytes): their segment
    /// has another link, a checkpoint's for one, or the file system refused. Tried again at least once a minute.
    #[n(51)]
    pub value_bytes_pending: u64,
    /// Files of redirect tables: of values that have moved, and that addresses in tables have not all followed.
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
    /// Bytes of edits.
    #[n(30)]
    pub manifest_bytes_written: u64,
    /// Bytes that flush and compaction read.
    #[n(31)]
    pub bytes_read: u64,
    /// Flushes done.
    #[n(32)]
    pub flushes: u64,
    /// Compactions done.
    #[n(33)]
    pub compactions: u64,
    /// Value GC jobs done.
    #[n(34)]
    pub value_gcs: u64,
    /// Bytes of segments and redirect tables written by them.
    #[n(35)]
    pub value_gc_bytes_written: u64,
    /// How often values were moved at rest so that they lie in the order of their keys, with
    /// [`ValuePlacement::Range`](crate::ValuePlacement::Range); not counted in [`value_gcs`](Stats::value_gcs).
    #[n(36)]
    pub value_reorders: u64,
    /// Bytes of segments and redirect tables written by them, those given up for something else included.
    #[n(37)]
    pub value_reorder_bytes_written: u64,
    /// Bytes of values before they were compressed as they moved, with
    /// [`ValueOptions::compression`](crate::ValueOptions::compression); those that it did not make smaller are not counted.
    #[n(38)]
    pub values_compressed_from: u64,
    /// Bytes that these values have since then.
    #[n(39)]
    pub values_compressed_to: u64,
    /// Versions that value GC judged from the records that it had read, without a lookup.
    #[n(40)]
    pub records_judged_alone: u64,
    /// Versions that value GC looked up in the tables.
    #[n(41)]
    pub records_looked_up: u64,
    /// Merges of runs done.
    #[n(42)]
    pub index_merges: u64,
    /// Index tables sorted into runs.
    #[n(43)]
    pub seals: u64,
    /// Parts that the compactions done were cut into.
    #[n(44)]
    pub compaction_subtasks: u64,
    /// Parts that merges and seals were cut into.
    #[n(45)]
    pub run_subtasks: u64,
    /// Writes that had to wait until a background job was done.
    #[n(46)]
    pub stalls: u64,
    /// How long they waited together.
    #[n(47)]
    pub stall_time: Duration,
    /// Writes that were slowed down to the pace of background work.
    #[n(48)]
    pub paced: u64,
    /// How long they waited together.
    #[n(49)]
    pub paced_time: Duration,
    /// Files whose names are those of database files, which were in the directories at open and which this database has not
    /// made. It leaves them alone.
    #[n(52)]
    pub unknown_files: Vec<PathBuf>,
    /// The pace of writers now, in bytes per second: `None` while they are free, 0 while they are stopped.
    #[n(50)]
    pub pace_bytes_per_second: Option<u64>,
    /// The jobs that run now, in the order in which they began. None in the figures of another process.
    #[cbor(skip)]
    pub jobs: Vec<JobStats>,
}

/// A running job.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct JobStats {
    /// Its kind: "flush", "compaction" and so on.
    pub kind: &'static str,
    /// Threads that work on it.
    pub threads: usize,
    /// What it is bound by, as in "cpu, slow reads": the CPU, and reads and writes of the fast and the slow directory.
    pub binds: String,
}

/// One file.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct FileStats {
    /// Its number.
    #[n(0)]
    pub id: u64,
    /// Bytes in use.
    #[n(1)]
    pub bytes: u64,
}

/// One group of values that lie apart from their keys.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct GroupStats {
    /// The parts of files that it lies in.
    #[n(0)]
    pub extents: usize,
    /// Their bytes.
    #[n(1)]
    pub bytes: u64,
    /// Bytes of records in them that tables lead to.
    #[n(2)]
    pub bytes_live: u64,
}

/// One run.
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

/// One level.
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct LevelStats {
    /// Tables.
    #[n(0)]
    pub tables: usize,
    /// Their files.
    #[n(1)]
    pub bytes: u64,
    /// Versions.
    #[n(2)]
    pub entries: u64,
    /// Range tombstones, cut where they overlap.
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
            + self.value_reorder_bytes_written;
        if self.user_bytes_written == 0 { 0.0 } else { written as f64 / self.user_bytes_written as f64 }
    }
}

/// What lies in each group, whether its values change often or not.
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
            binds: names_of(job.profile.binds),
        };
        self.work.lock().running().iter().map(of).collect()
    }

    pub fn stats(&self) -> Stats {
        let (view, seqno) = self.published.read();
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let values = &view.values.figures().candidates;
        let groups = groups_of(values);
        let jobs = self.running_jobs();
        Stats {
            value_files: values.len(),
            value_bytes: values.iter().map(|file| file.bytes).sum(),
            value_bytes_live: values.iter().map(|file| file.live.min(file.bytes)).sum(),
            value_bytes_pending: self.pending_deletions.pending_bytes(),
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
            direct_io: self.readers.handles.access() == Access::Direct,
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
            user_bytes_written: count(&counters.user_bytes),
            log_bytes_written: count(&counters.log_bytes),
            table_bytes_written: count(&counters.table_bytes),
            manifest_bytes_written: count(&counters.manifest_bytes),
            bytes_read: count(&counters.bytes_read),
            flushes: count(&counters.flushes),
            compactions: count(&counters.compactions),
            value_gcs: count(&counters.value_gcs),
            value_gc_bytes_written: count(&counters.value_gc_bytes),
            value_reorders: count(&counters.value_reorders),
            value_reorder_bytes_written: count(&counters.value_reorder_bytes),
            values_compressed_from: count(&counters.compressed_from),
            values_compressed_to: count(&counters.compressed_to),
            records_judged_alone: count(&counters.judged_alone),
            records_looked_up: count(&counters.judged_by_look_up),
            index_merges: count(&counters.index_merges),
            seals: count(&counters.seals),
            compaction_subtasks: count(&counters.compaction_subtasks),
            run_subtasks: count(&counters.run_subtasks),
            stalls: count(&counters.stalls),
            stall_time: Duration::from_micros(count(&counters.stall_us)),
            paced: count(&counters.paced),
            paced_time: Duration::from_micros(count(&counters.paced_us)),
            unknown_files: self.unknown_files.clone(),
            pace_bytes_per_second: self.pacer.bytes_per_second(),
            jobs,
        }
    }
}
