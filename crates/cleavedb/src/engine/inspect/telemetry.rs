//! Telemetry, as enabled by cargo features: `metrics` for counters, gauges and histograms through the crate of that
//! name, `tracing` for a span around each background job and an event for each [`Event`](crate::engine::events::Event).
//! Without these features none of this is compiled.
//!
//! Statistics are published about once a second by the thread for logs; all have a label `database`, the directory.

use std::path::Path;
use std::sync::Arc;

#[cfg(any(feature = "metrics", feature = "tracing"))]
use crate::engine::events::Event;
use crate::engine::events::Listener;
use crate::engine::inspect::stats::Stats;
use crate::engine::work::Profile;

/// The event listener of the enabled features.
pub(crate) fn listener(dir: &Path) -> Option<Arc<dyn Listener>> {
    #[cfg(any(feature = "metrics", feature = "tracing"))]
    return Some(Arc::new(Telemetry { database: dir.display().to_string() }));
    #[cfg(not(any(feature = "metrics", feature = "tracing")))]
    {
        let _ = dir;
        None
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
struct Telemetry {
    database: String,
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl Listener for Telemetry {
    fn event(&self, event: &Event) {
        #[cfg(feature = "metrics")]
        self.measure(event);
        #[cfg(feature = "tracing")]
        self.trace(event);
    }
}

#[cfg(feature = "metrics")]
impl Telemetry {
    fn measure(&self, event: &Event) {
        let (name, duration) = match event {
            Event::FlushEnded { duration, .. } => ("cleavedb_flush_seconds", duration),
            Event::CompactionEnded { duration, .. } => ("cleavedb_compaction_seconds", duration),
            Event::StallEnded { duration } => ("cleavedb_stall_seconds", duration),
            Event::Poisoned { .. } => {
                metrics::counter!("cleavedb_poisoned_total", "database" => self.database.clone()).increment(1);
                return;
            }
            _ => return,
        };
        metrics::histogram!(name, "database" => self.database.clone()).record(duration.as_secs_f64());
    }
}

#[cfg(feature = "tracing")]
impl Telemetry {
    fn trace(&self, event: &Event) {
        let database = &*self.database;
        match event {
            Event::Poisoned { cause } => tracing::error!(target: "cleavedb", database, cause, "writes are refused"),
            Event::NoSpace { path } => {
                tracing::warn!(target: "cleavedb", database, path = %path.display(), "storage is full");
            }
            Event::TooManyFiles { path } => {
                tracing::warn!(target: "cleavedb", database, path = %path.display(), "too many files are open");
            }
            Event::TableQuarantined { path, cause } => {
                tracing::error!(target: "cleavedb", database, path = %path.display(), cause, "a table cannot be read");
            }
            Event::UnknownFiles { paths } => {
                tracing::warn!(target: "cleavedb", database, ?paths, "these files are not of this database");
            }
            Event::StallBegun | Event::StallEnded { .. } => {
                tracing::warn!(target: "cleavedb", database, event = ?event);
            }
            other => tracing::info!(target: "cleavedb", database, event = ?other),
        }
    }
}

/// Hands the figures on.
#[cfg(not(feature = "metrics"))]
pub(crate) fn publish(_: &Path, _: &Stats) {}

/// Hands the figures on.
#[cfg(feature = "metrics")]
pub(crate) fn publish(dir: &Path, stats: &Stats) {
    // The recorder is foreign code, which may panic.
    drop(crate::base::panics::guard_panic("a metrics recorder", || {
        record(&dir.display().to_string(), stats);
        Ok(())
    }));
}

#[cfg(feature = "metrics")]
fn record(database: &str, stats: &Stats) {
    let counters = [
        ("cleavedb_user_bytes_written_total", stats.user_bytes_written),
        ("cleavedb_log_bytes_written_total", stats.log_bytes_written),
        ("cleavedb_table_bytes_written_total", stats.table_bytes_written),
        ("cleavedb_manifest_bytes_written_total", stats.manifest_bytes_written),
        ("cleavedb_job_bytes_read_total", stats.bytes_read),
        ("cleavedb_seals_total", stats.seals),
        ("cleavedb_index_merges_total", stats.index_merges),
        ("cleavedb_flushes_total", stats.flushes),
        ("cleavedb_compactions_total", stats.compactions),
        ("cleavedb_stalls_total", stats.stalls),
        ("cleavedb_stall_microseconds_total", stats.stall_time.as_micros() as u64),
        ("cleavedb_paced_total", stats.paced),
        ("cleavedb_paced_microseconds_total", stats.paced_time.as_micros() as u64),
        ("cleavedb_table_files_opened_total", stats.table_files_opened),
        ("cleavedb_block_cache_hits_total", stats.block_cache_hits),
        ("cleavedb_block_cache_misses_total", stats.block_cache_misses),
        ("cleavedb_value_cache_hits_total", stats.value_cache_hits),
        ("cleavedb_value_cache_misses_total", stats.value_cache_misses),
        ("cleavedb_values_compressed_from_bytes_total", stats.values_compressed_from),
        ("cleavedb_values_compressed_to_bytes_total", stats.values_compressed_to),
    ];
    for (name, value) in counters {
        metrics::counter!(name, "database" => database.to_owned()).absolute(value);
    }
    let memory = &stats.memory;
    let gauges = [
        ("cleavedb_memory_budget_bytes", stats.memory_budget as u64),
        ("cleavedb_memory_bytes", memory.total() as u64),
        ("cleavedb_memory_front_bytes", memory.front_bytes as u64),
        ("cleavedb_memory_jobs_bytes", memory.job_bytes as u64),
        ("cleavedb_memory_cache_bytes", memory.cache_bytes as u64),
        ("cleavedb_memory_value_cache_bytes", memory.value_cache_bytes as u64),
        ("cleavedb_memory_operand_cache_bytes", memory.operand_cache_bytes as u64),
        ("cleavedb_memory_pinned_bytes", memory.pinned_bytes as u64),
        ("cleavedb_logs", stats.logs.len() as u64),
        ("cleavedb_log_bytes", stats.logs.iter().map(|log| log.bytes).sum()),
        ("cleavedb_index_tables_sealed", stats.sealed as u64),
        ("cleavedb_runs", stats.runs.len() as u64),
        ("cleavedb_run_bytes", stats.runs.iter().map(|run| run.bytes).sum()),
        ("cleavedb_snapshots", stats.snapshots as u64),
        ("cleavedb_keyspaces", stats.keyspaces as u64),
        ("cleavedb_open_table_files", stats.open_table_files as u64),
    ];
    for (name, value) in gauges {
        metrics::gauge!(name, "database" => database.to_owned()).set(value as f64);
    }
    for (number, level) in stats.levels.iter().enumerate() {
        let labels = [("database", database.to_owned()), ("level", format!("HL{number}"))];
        metrics::gauge!("cleavedb_level_tables", &labels).set(level.tables as f64);
        metrics::gauge!("cleavedb_level_bytes", &labels).set(level.bytes as f64);
    }
}

/// Runs a background job, or a subtask of one, within its span.
pub(crate) fn in_span<T>(profile: &Profile, run: impl FnOnce() -> T) -> T {
    #[cfg(feature = "tracing")]
    let _span = span(profile).entered();
    #[cfg(not(feature = "tracing"))]
    let _ = profile;
    run()
}

/// The span records the kind of the job, its claims, and the resources that bound it.
#[cfg(feature = "tracing")]
fn span(profile: &Profile) -> tracing::Span {
    let (kind, binds) = (profile.name, profile.binds.names());
    if profile.takes_memory() {
        tracing::info_span!(target: "cleavedb", "job", kind, binds, claims = ?profile.claims)
    } else {
        tracing::debug_span!(target: "cleavedb", "job", kind, binds)
    }
}
