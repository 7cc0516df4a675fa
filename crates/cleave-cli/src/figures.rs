//! The statistics of a database, as `cleave stats` shows them: drawn as a picture, or as JSON. `stats.rs` shows those of
//! a database that it opens, `watch.rs` those of a database that another process has open.

use std::io::Write;
use std::time::Duration;

use cleavedb::{
    BypassStats, DecisionStats, DeltaStats, DeviceStats, DirectoryStats, GroupStats, HashStats, JobKindStats,
    KvDeviceStats, LevelStats, MemoryStats, RunStats, SchedulingStats, SettingStats, Stats, Tier, TierStats,
};
use indicatif::HumanCount;
use serde_json::{Value, json};

use crate::failure::Result;
use crate::picture;

/// Draws the statistics as a picture.
pub fn draw(stats: &Stats, out: &mut dyn Write) -> Result<()> {
    let (seqno, durable) = (HumanCount(stats.seqno), HumanCount(stats.durable_seqno));
    let (keyspaces, snapshots) = (stats.keyspaces, stats.snapshots);
    writeln!(out, "   seqno {seqno} (durable up to {durable}), keyspaces {keyspaces}, snapshots {snapshots}\n")?;
    Ok(picture::draw(stats, usize::MAX, out)?)
}

/// The statistics as JSON. The names of the fields are a stable public format.
pub fn as_json(stats: &Stats) -> Value {
    let logs: Vec<Value> = stats.logs.iter().map(|log| json!({"id": log.id, "bytes": log.bytes})).collect();
    let run = |run: &RunStats| {
        let seqnos = (run.seqno_min, run.seqno_max);
        json!({"entries": run.entries, "bytes": run.bytes, "seqno_min": seqnos.0, "seqno_max": seqnos.1})
    };
    let level = |level: &LevelStats| {
        let tombstones = level.range_tombstones;
        json!({"tables": level.tables, "bytes": level.bytes, "entries": level.entries, "range_tombstones": tombstones})
    };
    let mut value = json!({
        "seqno": stats.seqno,
        "durable_seqno": stats.durable_seqno,
        "keyspaces": stats.keyspaces,
        "snapshots": stats.snapshots,
        "logs": logs,
        "index_table": {"entries": stats.index_table_entries, "bytes": stats.index_table_bytes},
        "sealed": stats.sealed,
        "front_range_tombstones": stats.front_range_tombstones,
        "runs": stats.runs.iter().map(run).collect::<Vec<Value>>(),
        "levels": stats.levels.iter().map(level).collect::<Vec<Value>>(),
        "values": values_as_json(stats),
        "deltas": deltas_as_json(&stats.deltas),
        "hash": hash_as_json(&stats.hash),
        "tiers": tiers_as_json(&stats.tiers),
        "scheduling": scheduling_as_json(&stats.scheduling),
        "bypass": bypass_as_json(&stats.bypass),
        "memory_budget": stats.memory_budget,
        "memory": memory_as_json(&stats.memory),
    });
    if let (Value::Object(value), Value::Object(work)) = (&mut value, work_as_json(stats)) {
        value.extend(work);
    }
    value
}

fn values_as_json(stats: &Stats) -> Value {
    let group =
        |group: &GroupStats| json!({"extents": group.extents, "bytes": group.bytes, "bytes_live": group.bytes_live});
    json!({
        "files": stats.value_files,
        "bytes": stats.value_bytes,
        "bytes_live": stats.value_bytes_live,
        "bytes_pending": stats.value_bytes_pending,
        "bytes_hidden": stats.value_bytes_hidden,
        "moved_files": stats.moved_files,
        "groups": stats.value_groups,
        "compressed_from": stats.values_compressed_from,
        "compressed_to": stats.values_compressed_to,
        "group_list": stats.value_group_list.iter().map(group).collect::<Vec<Value>>(),
        "surveys": stats.value_surveys,
        "records_moved": stats.value_records_moved,
    })
}

fn hash_as_json(hash: &HashStats) -> Value {
    json!({
        "keys": hash.keys,
        "tombstones": hash.tombstones,
        "index_bytes": hash.index_bytes,
        "index_bytes_max": hash.index_bytes_max,
        "index_bytes_a_key": hash.index_bytes_a_key_percent as f64 / 100.0,
        "live_bytes": hash.live_bytes,
        "logs": hash.logs,
        "log_bytes": hash.log_bytes,
        "logs_freed": hash.logs_freed,
        "records_moved": hash.records_moved,
        "tombstones_moved": hash.tombstones_moved,
        "moves_refused": hash.moves_refused,
        "bytes_moved": hash.bytes_moved,
        "saves": hash.saves,
        "unsaved_bytes": hash.unsaved_bytes,
        "saved_bytes": hash.saved_bytes,
        "bucket_splits": hash.bucket_splits,
        "bucket_joins": hash.bucket_joins,
    })
}

fn bypass_as_json(bypass: &BypassStats) -> Value {
    let device = |device: &KvDeviceStats| {
        json!({
            "name": device.name,
            "capacity_bytes": device.capacity_bytes,
            "used_bytes": device.used_bytes,
            "logs": device.logs,
            "log_bytes": device.log_bytes,
            "records": device.records,
            "commands": device.commands,
            "host_bytes_sent": device.host_bytes_sent,
            "host_bytes_received": device.host_bytes_received,
            "media_bytes_written": device.media_bytes_written,
            "media_bytes_read": device.media_bytes_read,
        })
    };
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
    json!({
        "redirects": bypass.redirects,
        "seconds_to_slowdown": seconds(bypass.to_slowdown),
        "seconds_to_stop": seconds(bypass.to_stop),
        "redirects_begun": bypass.redirects_begun,
        "bytes_redirected": bypass.bytes_redirected,
        "seconds_of_waiting_prevented": bypass.waiting_prevented.as_secs_f64(),
        "logs_born_slow": bypass.logs_born_slow,
        "logs_born_on_device": bypass.logs_born_on_device,
        "bytes_rolled_back": bypass.bytes_rolled_back,
        "device": bypass.device.as_ref().map(device),
    })
}

fn deltas_as_json(deltas: &DeltaStats) -> Value {
    json!({
        "buckets": deltas.buckets,
        "extents": deltas.extents,
        "operands": deltas.operands,
        "bytes": deltas.bytes,
        "segments": deltas.segments,
        "segment_bytes": deltas.segment_bytes,
        "rewrites": deltas.rewrites,
        "folds": deltas.folds,
        "folds_refused": deltas.folds_refused,
        "splits": deltas.splits,
        "joins": deltas.joins,
    })
}

fn tiers_as_json(tiers: &TierStats) -> Value {
    let directory = |of: &DirectoryStats| {
        let tier = if of.tier == Tier::Fast { "fast" } else { "slow" };
        json!({
            "path": of.path,
            "tier": tier,
            "declared": of.is_declared,
            "files": of.files,
            "bytes": of.bytes,
            "checkpoint_bytes": of.checkpoint_bytes,
        })
    };
    json!({
        "directories": tiers.directories.iter().map(directory).collect::<Vec<Value>>(),
        "fast_bytes": tiers.fast_bytes,
        "fast_bytes_max": tiers.fast_bytes_max,
        "fast_bytes_limit": tiers.fast_bytes_limit,
        "fast_bytes_pinned": tiers.fast_bytes_pinned,
        "files_to_move": tiers.files_to_move,
        "bytes_to_move": tiers.bytes_to_move,
        "bytes_moved": tiers.bytes_moved,
        "fast_bytes_kept": tiers.fast_bytes_kept,
        "bytes_left_to_checkpoints": tiers.bytes_left_to_checkpoints,
    })
}

fn scheduling_as_json(scheduling: &SchedulingStats) -> Value {
    let tier_name = |tier| if tier == Tier::Fast { "fast" } else { "slow" };
    let device = |device: &DeviceStats| {
        let latency = device.latency.map(|latency| latency.as_secs_f64());
        json!({"tier": tier_name(device.tier), "busy": device.busy, "latency_seconds": latency})
    };
    let decision = |decision: &DecisionStats| {
        json!({
            "at_seconds": decision.at.as_secs_f64(),
            "bottleneck": decision.bottleneck,
            "merge_queue": decision.merge_queue,
            "flush_queue": decision.flush_queue,
            "tier": decision.tier.map(tier_name),
            "processors_busy": decision.processors_busy,
            "merges_busy": decision.merges_busy,
            "compactions_busy": decision.compactions_busy,
            "devices": decision.devices.iter().map(device).collect::<Vec<Value>>(),
            "writers_waiting": decision.writers_waiting,
            "setting": setting_as_json(&decision.setting),
        })
    };
    let job = |job: &JobKindStats| {
        json!({
            "kind": job.kind,
            "count": job.count,
            "cpu_seconds": job.cpu_time.as_secs_f64(),
            "bytes": job.bytes,
            "records": job.records,
        })
    };
    json!({
        "merge_queue": scheduling.merge_queue,
        "flush_queue": scheduling.flush_queue,
        "setting": setting_as_json(&scheduling.setting),
        "background_bytes": scheduling.background_bytes,
        "background_bytes_per_second": scheduling.background_bytes_per_second,
        "jobs": scheduling.jobs.iter().map(job).collect::<Vec<Value>>(),
        "decisions": scheduling.decisions.iter().map(decision).collect::<Vec<Value>>(),
    })
}

fn setting_as_json(setting: &SettingStats) -> Value {
    json!({
        "merge_runs": setting.merge_runs,
        "flush_bytes": setting.flush_bytes,
        "level_base_bytes": setting.level_base_bytes,
        "hl0_trigger": setting.hl0_trigger,
        "compactions": setting.compactions,
    })
}

fn memory_as_json(memory: &MemoryStats) -> Value {
    json!({
        "total_bytes": memory.total(),
        "front_bytes": memory.front_bytes,
        "merging_bytes": memory.merging_bytes,
        "job_bytes": memory.job_bytes,
        "cache_bytes": memory.cache_bytes,
        "cache_bytes_max": memory.cache_bytes_max,
        "cache_index_bytes": memory.cache_index_bytes,
        "value_cache_bytes": memory.value_cache_bytes,
        "value_cache_bytes_max": memory.value_cache_bytes_max,
        "operand_cache_bytes": memory.operand_cache_bytes,
        "operand_cache_bytes_max": memory.operand_cache_bytes_max,
        "log_buffer_bytes": memory.log_buffer_bytes,
        "table_reader_bytes": memory.table_reader_bytes,
        "keyspace_bytes": memory.keyspace_bytes,
        "bucket_bytes": memory.bucket_bytes,
        "hash_index_bytes": memory.hash_index_bytes,
        "value_list_bytes": memory.value_list_bytes,
        "pinned_bytes": memory.pinned_bytes,
    })
}

/// Caches, bytes, background jobs and stalls since the database was opened.
fn work_as_json(stats: &Stats) -> Value {
    json!({
        "block_cache_hits": stats.block_cache_hits,
        "block_cache_misses": stats.block_cache_misses,
        "value_cache_hits": stats.value_cache_hits,
        "value_cache_misses": stats.value_cache_misses,
        "open_table_files": stats.open_table_files,
        "table_files_opened": stats.table_files_opened,
        "direct_io": stats.direct_io,
        "user_bytes_written": stats.user_bytes_written,
        "log_bytes_written": stats.log_bytes_written,
        "table_bytes_written": stats.table_bytes_written,
        "manifest_bytes_written": stats.manifest_bytes_written,
        "value_gc_bytes_written": stats.value_gc_bytes_written,
        "folded_value_bytes_written": stats.folded_value_bytes_written,
        "value_reorder_bytes_written": stats.value_reorder_bytes_written,
        "write_amplification": stats.write_amplification(),
        "bytes_read": stats.bytes_read,
        "seals": stats.seals,
        "index_merges": stats.index_merges,
        "flushes": stats.flushes,
        "compactions": stats.compactions,
        "compaction_subtasks": stats.compaction_subtasks,
        "run_subtasks": stats.run_subtasks,
        "value_gcs": stats.value_gcs,
        "value_gcs_beside": stats.value_gcs_beside,
        "values_folded": stats.values_folded,
        "value_reorders": stats.value_reorders,
        "value_reorders_given_up": stats.value_reorders_given_up,
        "stalls": stats.stalls,
        "stall_seconds": stats.stall_time.as_secs_f64(),
        "paced": stats.paced,
        "paced_seconds": stats.paced_time.as_secs_f64(),
        "pace_bytes_per_second": stats.pace_bytes_per_second,
    })
}
