//! The parts of a store as a text picture, each with its size and a bar in proportion, followed by memory and write costs.
//! Used by `cleave stats` and the tour.

use std::cmp::Reverse;
use std::io::{self, Write};

use cleavedb::{
    BypassStats, DecisionStats, DeviceStats, HashStats, JobKindStats, SchedulingStats, SettingStats, Stats, Tier,
    TierStats,
};
use indicatif::{BinaryBytes, HumanCount};

const BAR_CELLS: usize = 32;
/// The kinds of jobs that are shown.
const JOBS_SHOWN: usize = 6;

/// One part of the store.
struct Row {
    name: String,
    what: String,
    bytes: u64,
    note: String,
}

impl Row {
    fn new(name: &str, what: String, bytes: u64) -> Row {
        Row { name: name.to_owned(), what, bytes, note: String::new() }
    }
}

/// Draws the store from the newest records at the top to the oldest at the bottom, then its costs, with up to `decisions`
/// of the scheduler's last decisions.
pub fn draw(stats: &Stats, decisions: usize, out: &mut dyn Write) -> io::Result<()> {
    let rows = rows(stats);
    let largest = rows.iter().map(|row| row.bytes).max().unwrap_or(0);
    for Row { name, what, bytes, note } in &rows {
        let (size, bar) = (BinaryBytes(*bytes).to_string(), bar(*bytes, largest));
        writeln!(out, "   {}", format!("{name:<12} {what:<34} {size:>11}  {bar}{note}").trim_end())?;
    }
    writeln!(out)?;
    costs(stats, decisions, out)
}

fn rows(stats: &Stats) -> Vec<Row> {
    let entries = |count: u64| counted(count, "entry");
    let log_bytes = stats.logs.iter().map(|log| log.bytes).sum();
    let mut index_table = Row::new("index table", entries(stats.index_table_entries), stats.index_table_bytes);
    if stats.sealed > 0 {
        index_table.note = format!("  and {}", counted(stats.sealed, "sealed table"));
    }
    if stats.front_range_tombstones > 0 {
        let ranges = counted(stats.front_range_tombstones, "range tombstone");
        index_table.note.push_str(&format!("  and {ranges} in the front"));
    }
    let mut rows = vec![Row::new("logs", counted(stats.logs.len(), "file"), log_bytes), index_table];
    for run in &stats.runs {
        let mut row = Row::new("run", entries(run.entries), run.bytes);
        row.note = format!("  seqnos {} to {}", HumanCount(run.seqno_min), HumanCount(run.seqno_max));
        rows.push(row);
    }
    for (number, level) in stats.levels.iter().enumerate().filter(|(_, level)| level.tables > 0) {
        let what = format!("{}, {}", counted(level.tables, "table"), entries(level.entries));
        let mut row = Row::new(&format!("HL{number}"), what, level.bytes);
        if level.range_tombstones > 0 {
            row.note = format!("  and {}", counted(level.range_tombstones, "range tombstone"));
        }
        rows.push(row);
    }
    if stats.value_files > 0 {
        let mut row = Row::new("values", counted(stats.value_files, "file"), stats.value_bytes);
        row.note = format!("  {} live", BinaryBytes(stats.value_bytes_live));
        if stats.value_bytes_hidden > 0 {
            row.note.push_str(&format!(", about {} of it replaced", BinaryBytes(stats.value_bytes_hidden)));
        }
        if stats.value_bytes_pending > 0 {
            row.note.push_str(&format!(", {} dead and not released yet", BinaryBytes(stats.value_bytes_pending)));
        }
        rows.push(row);
    }
    for (number, group) in stats.value_group_list.iter().enumerate() {
        let mut row = Row::new(&format!("group {}", number + 1), counted(group.extents, "extent"), group.bytes);
        row.note = format!("  {} live", BinaryBytes(group.bytes_live));
        rows.push(row);
    }
    rows
}

/// The directories, if there are several, and the fast tier.
fn tiers(tiers: &TierStats, out: &mut dyn Write) -> io::Result<()> {
    if tiers.directories.len() < 2 {
        return Ok(());
    }
    for directory in &tiers.directories {
        let tier = name_of(directory.tier);
        let former = if directory.is_declared { "" } else { ", files move out of it" };
        let (files, bytes) = (counted(directory.files, "file"), BinaryBytes(directory.bytes));
        let held = match directory.checkpoint_bytes {
            0 => String::new(),
            held => format!(", {} more for checkpoints alone", BinaryBytes(held)),
        };
        writeln!(out, "   {tier} tier: {files}, {bytes} in {}{held}{former}", directory.path)?;
    }
    let (used, most) = (BinaryBytes(tiers.fast_bytes), BinaryBytes(tiers.fast_bytes_max));
    let limit = tiers.fast_bytes_limit.map_or_else(String::new, |limit| format!(" of {}", BinaryBytes(limit)));
    let (pinned, kept) = (BinaryBytes(tiers.fast_bytes_pinned), BinaryBytes(tiers.fast_bytes_kept));
    writeln!(out, "   fast tier in use {used}{limit}, at most {most} so far, {pinned} pinned by readers")?;
    writeln!(out, "   of this, {kept} of redirect tables and values that were being read")?;
    if tiers.files_to_move > 0 {
        let (files, bytes) = (counted(tiers.files_to_move, "file"), BinaryBytes(tiers.bytes_to_move));
        writeln!(out, "   to be moved: {files}, {bytes}")?;
    }
    if tiers.bytes_left_to_checkpoints > 0 {
        let left = BinaryBytes(tiers.bytes_left_to_checkpoints);
        writeln!(out, "   {left} of files that were removed are left to checkpoints, which have links to them")?;
    }
    writeln!(out)
}

/// "fast" or "slow".
pub fn name_of(tier: Tier) -> &'static str {
    if tier == Tier::Fast { "fast" } else { "slow" }
}

/// The merge queue in merges: the scheduler finds it long beyond 1.5 (the flush queue, in jobs, at 3).
pub fn merge_score(merge_queue: usize, setting: &SettingStats) -> f64 {
    merge_queue as f64 / setting.merge_runs.max(1) as f64
}

/// The queues of background work, the scheduler's settings, the limit on background I/O, and the last changes of settings,
/// newest first.
fn scheduling(scheduling: &SchedulingStats, shown: usize, out: &mut dyn Write) -> io::Result<()> {
    let SchedulingStats { merge_queue, flush_queue, setting, decisions, background_bytes_per_second, .. } = scheduling;
    let (runs, score) = (counted(*merge_queue, "run"), merge_score(*merge_queue, setting));
    writeln!(
        out,
        "   waiting: {runs} to merge (score {score:.1}), {flush_queue:.1} jobs' worth to write; {}",
        words_of(setting)
    )?;
    if let Some(rate) = background_bytes_per_second {
        let used = BinaryBytes(scheduling.background_bytes);
        writeln!(out, "   background work may use {}/s now, and has used {used}", BinaryBytes(*rate))?;
    }
    for decision in decisions.iter().rev().take(shown) {
        writeln!(out, "   {}", decided(decision))?;
    }
    writeln!(out)
}

/// What writers do while background work cannot follow them; nothing if they have always been slowed.
fn bypass(bypass: &BypassStats, out: &mut dyn Write) -> io::Result<()> {
    if let Some(device) = &bypass.device {
        let (logs, bytes) = (counted(device.logs as u64, "log"), BinaryBytes(device.log_bytes));
        let (used, capacity) = (BinaryBytes(device.used_bytes), BinaryBytes(device.capacity_bytes));
        let (sent, received) = (BinaryBytes(device.host_bytes_sent), BinaryBytes(device.host_bytes_received));
        let (records, back) = (counted(device.records, "record"), BinaryBytes(bypass.bytes_rolled_back));
        writeln!(
            out,
            "   {}: {logs} of {bytes} with {records}, {used} of {capacity} in use, {back} rolled back",
            device.name
        )?;
        writeln!(out, "   {sent} sent to the device, {received} received")?;
    }
    if bypass.redirects_begun == 0 {
        return if bypass.device.is_some() { writeln!(out) } else { Ok(()) };
    }
    let now = if bypass.redirects { "writers go around background work now; " } else { "" };
    let (times, bytes) = (counted(bypass.redirects_begun, "redirect"), BinaryBytes(bypass.bytes_redirected));
    let prevented = bypass.waiting_prevented.as_secs_f64();
    writeln!(out, "   {now}{times} with {bytes} of records, {prevented:.1} s of waiting prevented")?;
    writeln!(out)
}

/// The indexes of hash keyspaces, and the logs that these have for themselves; nothing without such keys.
fn hashed(hash: &HashStats, out: &mut dyn Write) -> io::Result<()> {
    if hash.keys + hash.tombstones == 0 {
        return Ok(());
    }
    let keys = counted(hash.keys, "key");
    let deleted = match hash.tombstones {
        0 => String::new(),
        tombstones => format!(" and {}", counted(tombstones, "tombstone")),
    };
    let (index, most) = (BinaryBytes(hash.index_bytes as u64), BinaryBytes(hash.index_bytes_max as u64));
    let each = hash.index_bytes_a_key_percent as f64 / 100.0;
    writeln!(out, "   hash keyspaces: {keys}{deleted} in {index} of {most} of memory, {each:.1} B a key")?;
    let (logs, bytes, live) = (counted(hash.logs, "log"), BinaryBytes(hash.log_bytes), BinaryBytes(hash.live_bytes));
    let (freed, moved) = (counted(hash.logs_freed, "log"), counted(hash.records_moved, "record"));
    write!(out, "   {live} of records live, {logs} of {bytes} behind the front; {freed} freed, {moved} moved")?;
    let refused = hash.moves_refused;
    writeln!(out, "{}", if refused > 0 { format!(" and {refused} refused") } else { String::new() })?;
    let (saves, unsaved) = (counted(hash.saves, "time"), BinaryBytes(hash.unsaved_bytes));
    writeln!(out, "   indexes saved {saves}, {unsaved} of records since then")?;
    writeln!(out)
}

fn words_of(setting: &SettingStats) -> String {
    let (flush, level) = (BinaryBytes(setting.flush_bytes), BinaryBytes(setting.level_base_bytes));
    let SettingStats { merge_runs, compactions, hl0_trigger, .. } = setting;
    let (tables, compactions) = (counted(*hl0_trigger, "table"), counted(*compactions, "compaction"));
    format!("{merge_runs} runs a merge, {flush} a flush, {tables} in HL0, {level} in HL1, {compactions}")
}

/// When and why the settings changed, with the figures that led to it, and what they have been since.
pub fn decided(decision: &DecisionStats) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    let processors = decision.processors_busy.map_or("unknown".to_owned(), percent);
    let jobs = decision.merges_busy.zip(decision.compactions_busy).map_or_else(String::new, |(merges, compactions)| {
        format!(" (merges {}, compactions {})", percent(merges), percent(compactions))
    });
    let name_of = |tier: Tier| if tier == Tier::Fast { "fast" } else { "slow" };
    let bound = decision.tier.map_or_else(String::new, |tier| format!(" ({} tier)", name_of(tier)));
    let device = |device: &DeviceStats| {
        let tier = name_of(device.tier);
        let latency = device.latency.map_or_else(String::new, |time| format!(" at {:.1} ms", 1e3 * time.as_secs_f64()));
        format!(", {tier} device {}{latency}", percent(device.busy))
    };
    let devices: String = decision.devices.iter().map(device).collect();
    format!(
        "at {:.1} s by {}{bound}: {} runs, {:.1} jobs; processors {processors}{jobs}{devices}, writers wait {}: {}",
        decision.at.as_secs_f64(),
        decision.bottleneck,
        decision.merge_queue,
        decision.flush_queue,
        percent(decision.writers_waiting),
        words_of(&decision.setting),
    )
}

fn costs(stats: &Stats, decisions: usize, out: &mut dyn Write) -> io::Result<()> {
    tiers(&stats.tiers, out)?;
    scheduling(&stats.scheduling, decisions, out)?;
    bypass(&stats.bypass, out)?;
    hashed(&stats.hash, out)?;
    let memory = &stats.memory;
    let written = [
        (stats.log_bytes_written, "log"),
        (stats.table_bytes_written, "tables"),
        (stats.value_gc_bytes_written, "value GC"),
        (stats.folded_value_bytes_written, "folded values"),
        (stats.value_reorder_bytes_written, "value reordering"),
        (stats.manifest_bytes_written, "manifest"),
        (stats.tiers.bytes_moved, "moved files"),
    ];
    let held = [
        (memory.front_bytes as u64, "front"),
        (memory.merging_bytes as u64, "merging runs"),
        (memory.job_bytes as u64, "jobs"),
        (memory.log_buffer_bytes as u64, "log buffers"),
        (memory.cache_bytes as u64, "block cache"),
        (memory.value_cache_bytes as u64, "value cache"),
        (memory.operand_cache_bytes as u64, "operand cache"),
        (memory.table_reader_bytes as u64, "table readers"),
        (memory.keyspace_bytes as u64, "keyspaces"),
        (memory.bucket_bytes as u64, "buckets of operands"),
        (memory.hash_index_bytes as u64, "indexes of hash keyspaces"),
        (memory.value_list_bytes as u64, "value file list"),
    ];
    let total = BinaryBytes(memory.total() as u64);
    let budget = BinaryBytes(stats.memory_budget as u64);
    writeln!(out, "   memory {total} of {budget}: {}", listed(&held))?;
    if memory.pinned_bytes > 0 {
        writeln!(out, "   plus {} pinned by readers", BinaryBytes(memory.pinned_bytes as u64))?;
    }
    writeln!(out)?;
    writeln!(out, "   since the database was opened:")?;
    let user = BinaryBytes(stats.user_bytes_written);
    let cost = match stats.user_bytes_written {
        0 => String::new(),
        _ => format!(" (write amplification {:.2})", stats.write_amplification()),
    };
    writeln!(out, "   {user} of records written as {}{cost}", listed(&written))?;
    writeln!(
        out,
        "   background jobs: {}, {}, {}, {}, {}",
        counted(stats.seals, "seal"),
        counted(stats.index_merges, "index merge"),
        counted(stats.flushes, "flush"),
        counted(stats.compactions, "compaction"),
        counted(stats.value_gcs, "value GC"),
    )?;
    job_kinds(&stats.scheduling.jobs, out)?;
    if stats.values_compressed_from > 0 {
        let (from, to) = (BinaryBytes(stats.values_compressed_from), BinaryBytes(stats.values_compressed_to));
        writeln!(out, "   compressed {from} of moved values to {to}")?;
    }
    let waited = stats.stall_time.as_secs_f64() * 1e3;
    let paced = stats.paced_time.as_secs_f64() * 1e3;
    writeln!(
        out,
        "   writers stalled {}, {waited:.1} ms in total; paced {}, {paced:.1} ms in total",
        counted(stats.stalls, "time"),
        counted(stats.paced, "time"),
    )
}

/// What the kinds of jobs that have used the most processor time have used.
fn job_kinds(jobs: &[JobKindStats], out: &mut dyn Write) -> io::Result<()> {
    let mut jobs: Vec<&JobKindStats> = jobs.iter().filter(|job| job.count > 0 && !job.cpu_time.is_zero()).collect();
    jobs.sort_by_key(|job| Reverse(job.cpu_time));
    for JobKindStats { kind, count, cpu_time, bytes, records, .. } in jobs.into_iter().take(JOBS_SHOWN) {
        let io = if *bytes > 0 { format!(", {} read and written", BinaryBytes(*bytes)) } else { String::new() };
        let moved = if *records > 0 { format!(", {} moved", counted(*records, "record")) } else { String::new() };
        let cpu_s = cpu_time.as_secs_f64();
        writeln!(out, "   {kind}: {}, {cpu_s:.3} s of processors{io}{moved}", counted(*count, "job"))?;
    }
    Ok(())
}

/// "1 file", "2 files", "3 flushes", "4 entries", "5 keys".
fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let noun = match noun.strip_suffix('y') {
        _ if count == 1 => noun.to_owned(),
        Some(stem) if !stem.ends_with('e') => format!("{stem}ies"),
        _ if noun.ends_with("sh") => format!("{noun}es"),
        _ => format!("{noun}s"),
    };
    format!("{} {noun}", HumanCount(count))
}

fn listed(parts: &[(u64, &str)]) -> String {
    let parts: Vec<String> = parts.iter().map(|&(bytes, name)| format!("{name} {}", BinaryBytes(bytes))).collect();
    parts.join(", ")
}

/// A bar in proportion to `part` of `whole`, in eighths of a character. Any part greater than zero is visible.
pub fn bar(part: u64, whole: u64) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    if part == 0 || whole == 0 {
        return String::new();
    }
    let cells = (BAR_CELLS as f64 * 8.0 * (part as f64 / whole as f64)).round() as usize;
    let cells = cells.clamp(1, BAR_CELLS * 8);
    "█".repeat(cells / 8) + EIGHTHS[cells % 8]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use cleavedb::DirectoryStats;

    use super::*;

    #[test]
    fn bars_are_in_proportion_and_never_hide_a_part() {
        assert_eq!(bar(10, 10).chars().count(), BAR_CELLS);
        assert_eq!(bar(5, 10), "█".repeat(BAR_CELLS / 2));
        assert_eq!(bar(1, 1 << 40), "▏");
        assert_eq!(bar(0, 10), "");
        assert_eq!(bar(0, 0), "");
    }

    #[test]
    fn the_scheduler_is_shown_with_its_limit_and_as_many_decisions_as_are_asked_for() {
        let mut stats = SchedulingStats::default();
        stats.decisions = vec![DecisionStats::default(); 12];
        stats.background_bytes_per_second = Some(5 << 20);
        let shown = |most| {
            let mut out = Vec::new();
            scheduling(&stats, most, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(shown(3).contains("background work may use 5.00 MiB/s now"), "{}", shown(3));
        assert_eq!([3, usize::MAX].map(|most| shown(most).matches("writers wait").count()), [3, 12]);
    }

    fn directory(path: &str, tier: Tier, files: usize) -> DirectoryStats {
        let mut directory = DirectoryStats::default();
        (directory.path, directory.tier, directory.is_declared) = (path.to_owned(), tier, true);
        (directory.files, directory.bytes) = (files, (files as u64) << 20);
        directory
    }

    #[test]
    fn tiers_are_shown_with_all_their_figures_and_one_directory_is_not() {
        let shown = |of: &TierStats| {
            let mut out = Vec::new();
            tiers(of, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let mut of = TierStats::default();
        of.directories = vec![directory("/db", Tier::Fast, 3)];
        assert_eq!(shown(&of), "");
        of.directories.push(directory("/slow", Tier::Slow, 1));
        let usual = "   fast tier: 3 files, 3.00 MiB in /db\n   slow tier: 1 file, 1.00 MiB in /slow\n   \
                     fast tier in use 0 B, at most 0 B so far, 0 B pinned by readers\n   \
                     of this, 0 B of redirect tables and values that were being read\n\n";
        assert_eq!(shown(&of), usual);
        let mut former = directory("/former", Tier::Slow, 2);
        (former.is_declared, former.checkpoint_bytes) = (false, 7 << 10);
        of.directories.push(former);
        (of.fast_bytes, of.fast_bytes_max, of.fast_bytes_limit) = (4 << 20, 5 << 20, Some(64 << 20));
        (of.fast_bytes_pinned, of.fast_bytes_kept) = (1 << 10, 2 << 10);
        (of.files_to_move, of.bytes_to_move, of.bytes_left_to_checkpoints) = (2, 2 << 20, 3 << 10);
        let all = "   fast tier: 3 files, 3.00 MiB in /db\n   slow tier: 1 file, 1.00 MiB in /slow\n   \
                   slow tier: 2 files, 2.00 MiB in /former, 7.00 KiB more for checkpoints alone, files move out of it\n   \
                   fast tier in use 4.00 MiB of 64.00 MiB, at most 5.00 MiB so far, 1.00 KiB pinned by readers\n   \
                   of this, 2.00 KiB of redirect tables and values that were being read\n   \
                   to be moved: 2 files, 2.00 MiB\n   \
                   3.00 KiB of files that were removed are left to checkpoints, which have links to them\n\n";
        assert_eq!(shown(&of), all);
    }

    #[test]
    fn a_decision_is_shown_with_every_figure_that_led_to_it() {
        let mut decision = DecisionStats::default();
        (decision.at, decision.bottleneck, decision.tier) =
            (Duration::from_millis(1500), "devices".to_owned(), Some(Tier::Slow));
        (decision.merge_queue, decision.flush_queue, decision.writers_waiting) = (5, 3.25, 0.4);
        (decision.processors_busy, decision.merges_busy, decision.compactions_busy) = (Some(0.5), Some(0.1), Some(0.2));
        for (tier, busy, latency) in [(Tier::Fast, 0.3, None), (Tier::Slow, 0.9, Some(Duration::from_micros(2500)))] {
            let mut device = DeviceStats::default();
            (device.tier, device.busy, device.latency) = (tier, busy, latency);
            decision.devices.push(device);
        }
        let setting = &mut decision.setting;
        (setting.merge_runs, setting.flush_bytes, setting.level_base_bytes) = (4, 32 << 20, 256 << 20);
        (setting.hl0_trigger, setting.compactions) = (6, 1);
        let wanted = "at 1.5 s by devices (slow tier): 5 runs, 3.2 jobs; processors 50 % (merges 10 %, compactions 20 %), \
                      fast device 30 %, slow device 90 % at 2.5 ms, writers wait 40 %: \
                      4 runs a merge, 32.00 MiB a flush, 6 tables in HL0, 256.00 MiB in HL1, 1 compaction";
        assert_eq!(decided(&decision), wanted);
        // The newest come first, beside the queues and the settings of now.
        let mut stats = SchedulingStats::default();
        stats.decisions = vec![DecisionStats::default(), decision];
        let mut out = Vec::new();
        scheduling(&stats, 1, &mut out).unwrap();
        assert!(String::from_utf8(out).unwrap().ends_with(&format!("   {wanted}\n\n")));
    }

    #[test]
    fn counts_have_their_plurals() {
        assert_eq!(counted(1u64, "flush"), "1 flush");
        assert_eq!(counted(2u64, "flush"), "2 flushes");
        assert_eq!(counted(1200usize, "file"), "1,200 files");
        assert_eq!(counted(0u64, "entry"), "0 entries");
    }
}
