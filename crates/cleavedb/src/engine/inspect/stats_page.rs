//! The page of figures that an open database keeps for others to look at, and how it is read. The thread that looks after
//! logs writes it about once a second, if anything has changed; a clean close removes it. It is not part of recovery, and
//! a database that cannot write it goes on without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::base::Result;
use crate::engine::core::Core;
use crate::engine::inspect::stats::{FileStats, GroupStats, LevelStats, RunStats, Stats};
use crate::engine::manifest::file_names::STATS;
use crate::engine::memory::MemoryStats;
use crate::format::stats_page::{MAGIC, PAGE_BYTES, Page};
use crate::io::{Access, File, Storage};
use crate::levels::version::LEVELS_MAX;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;
use crate::sched::thread::sleep;

/// Of more logs or runs the page shows the newest ones.
const LISTED_MAX: usize = 48;
/// Of more groups of values the page shows the first ones.
const GROUPS_LISTED_MAX: usize = 32;
/// A page that is being written is read again so often.
const READ_TRIES: u32 = 20;

/// Where the page goes.
#[derive(Default)]
pub(crate) struct StatsPage {
    state: Mutex<PageState>,
}

#[derive(Default)]
struct PageState {
    /// The file, once it was made or found to be ours.
    file: Option<Arc<dyn File>>,
    /// Nobody is to look for the file (again): it is someone else's, or the database is closed.
    given_up: bool,
    opened: Option<Duration>,
    due: Duration,
    sequence: u64,
    numbers: Vec<u64>,
}

/// The figures of a database that another process, or another handle, has open. See [`live_stats`](crate::live_stats).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LiveStats {
    /// The process that has it open.
    pub process: u32,
    /// One more each time the figures changed.
    pub sequence: u64,
    /// How long the database had been open when they were written.
    pub uptime: Duration,
    /// The figures. Of more than 48 logs, or runs, only the newest are listed; of more than 32 groups of values the first.
    pub stats: Stats,
}

impl Core {
    /// Writes the page if it is time; says when the next time is. Without an interval never.
    pub fn publish_stats(&self) -> Option<Duration> {
        let interval = self.settings.tuning.stats_interval?;
        let now = now();
        let (is_due, due) = {
            let mut state = self.stats_page.state.lock();
            let is_due = now >= state.due;
            if is_due {
                state.due = now + interval;
            }
            (is_due, state.due)
        };
        if is_due {
            let stats = self.stats();
            // Someone else's code, which may close the database: no lock is held.
            crate::engine::inspect::telemetry::publish(&self.fast, &stats);
            self.write_page(&mut self.stats_page.state.lock(), &stats, now);
        }
        Some(due.saturating_sub(now))
    }

    fn write_page(&self, state: &mut PageState, stats: &Stats, now: Duration) {
        let opened = *state.opened.get_or_insert(now);
        if state.file.is_none() && !state.given_up {
            match claim(&*self.storage, &self.fast) {
                Ok(Some(file)) => state.file = Some(file),
                Ok(None) => state.given_up = true,
                // Tried again when the page is next due.
                Err(_) => {}
            }
        }
        let Some(file) = state.file.clone() else { return };
        let numbers = to_numbers(stats);
        if state.sequence > 0 && numbers == state.numbers {
            return;
        }
        state.sequence += 1;
        state.numbers = numbers;
        let page = Page {
            process: std::process::id(),
            sequence: state.sequence,
            uptime_us: now.saturating_sub(opened).as_micros() as u64,
            numbers: state.numbers.clone(),
        };
        if file.write_at(&page.encode(), 0).is_err() {
            // A full disk or worse; others will say so. Tried again when the page is next due.
            state.numbers.clear();
        }
    }

    /// The database is closed: there is nothing more to see.
    pub fn remove_stats_page(&self) {
        let mut state = self.stats_page.state.lock();
        state.given_up = true;
        if state.file.take().is_some() {
            let _ = self.storage.remove(&self.fast.join(STATS));
        }
    }
}

/// The file for the page: a new one, or one that a crash left behind. Anything else of that name is someone else's.
fn claim(storage: &dyn Storage, dir: &Path) -> Result<Option<Arc<dyn File>>> {
    let path = dir.join(STATS);
    let Some(entry) = storage.list(dir)?.into_iter().find(|entry| entry.name == STATS) else {
        return storage.create(&path, Access::Buffered).map(Some);
    };
    if !entry.is_file {
        return Ok(None);
    }
    let file = storage.open(&path)?;
    let mut start = [0; MAGIC.len()];
    let read = file.read_at(&mut start, 0)?;
    let ours = read == 0 || (start == MAGIC && file.len()? <= PAGE_BYTES as u64);
    Ok(ours.then_some(file))
}

/// Reads the page of the database in `dir`; `None` if there is none that is whole.
pub(crate) fn read_page(storage: &dyn Storage, dir: &Path) -> Result<Option<LiveStats>> {
    let is_there = storage.exists(dir)? && storage.list(dir)?.iter().any(|entry| entry.name == STATS && entry.is_file);
    if !is_there {
        return Ok(None);
    }
    // It may go at any moment.
    let Ok(file) = storage.open_read(&dir.join(STATS), Access::Buffered) else { return Ok(None) };
    Ok(read_whole_page(&*file)?.ok().map(|page| {
        let uptime = Duration::from_micros(page.uptime_us);
        let stats = from_numbers(&page.numbers);
        LiveStats { process: page.process, sequence: page.sequence, uptime, stats }
    }))
}

/// Reads a page, again if its owner was writing it meanwhile; if it stays as it is, what is wrong with it.
pub(crate) fn read_whole_page(file: &dyn File) -> Result<Result<Page, &'static str>> {
    let mut bytes = vec![0; PAGE_BYTES];
    let mut tries = READ_TRIES;
    loop {
        let read = file.read_at(&mut bytes, 0)?;
        let page = Page::decode(&bytes[..read]);
        tries -= 1;
        if page.is_ok() || tries == 0 {
            return Ok(page);
        }
        sleep(Duration::from_millis(1));
    }
}

/// The figures in the order of the page. Do not reorder: add at the end.
fn to_numbers(stats: &Stats) -> Vec<u64> {
    let memory = &stats.memory;
    let mut numbers = vec![
        stats.memory_budget as u64,
        memory.front_bytes as u64,
        memory.merging_bytes as u64,
        memory.job_bytes as u64,
        memory.cache_bytes as u64,
        memory.cache_bytes_max as u64,
        memory.log_buffer_bytes as u64,
        memory.table_reader_bytes as u64,
        memory.keyspace_bytes as u64,
        memory.pinned_bytes as u64,
        stats.open_table_files as u64,
        stats.table_files_opened,
        u64::from(stats.direct_io),
        stats.seqno,
        stats.durable_seqno,
        stats.keyspaces as u64,
        stats.snapshots as u64,
        stats.index_table_entries,
        stats.index_table_bytes,
        stats.sealed as u64,
        stats.user_bytes_written,
        stats.log_bytes_written,
        stats.table_bytes_written,
        stats.manifest_bytes_written,
        stats.bytes_read,
        stats.flushes,
        stats.compactions,
        stats.index_merges,
        stats.seals,
        stats.compaction_subtasks,
        stats.run_subtasks_total,
        stats.stalls,
        stats.stall_time.as_micros() as u64,
        stats.paced,
        stats.paced_time.as_micros() as u64,
        // One more, so that 0 says that writers are free.
        stats.pace_bytes_per_second.map_or(0, |pace| pace.saturating_add(1)),
    ];
    let levels = (0..LEVELS_MAX).map(|level| stats.levels.get(level));
    numbers.extend(levels.flat_map(|level| level.map_or([0; 3], |l| [l.tables as u64, l.bytes, l.entries])));
    let logs = &stats.logs[stats.logs.len().saturating_sub(LISTED_MAX)..];
    numbers.push(logs.len() as u64);
    numbers.extend(logs.iter().flat_map(|log| [log.id, log.bytes]));
    let runs = &stats.runs[..stats.runs.len().min(LISTED_MAX)];
    numbers.push(runs.len() as u64);
    numbers.extend(runs.iter().flat_map(|run| [run.entries, run.bytes, run.seqno_min, run.seqno_max]));
    numbers.push(stats.front_range_tombstones);
    numbers.extend((0..LEVELS_MAX).map(|level| stats.levels.get(level).map_or(0, |level| level.range_tombstones)));
    numbers.extend([
        stats.value_files as u64,
        stats.value_bytes,
        stats.value_bytes_live,
        stats.moved_files as u64,
        stats.value_collections,
        stats.value_collection_bytes_written,
        memory.value_list_bytes as u64,
        stats.value_groups as u64,
        stats.records_judged_alone,
        stats.records_looked_up,
        stats.value_reorders,
        stats.value_reorder_bytes_written,
    ]);
    let groups = &stats.value_group_list[..stats.value_group_list.len().min(GROUPS_LISTED_MAX)];
    numbers.push(groups.len() as u64);
    numbers.extend(groups.iter().flat_map(|group| [group.extents as u64, group.bytes, group.bytes_live]));
    numbers.extend([
        memory.value_cache_bytes as u64,
        memory.value_cache_bytes_max as u64,
        stats.block_cache_hits,
        stats.block_cache_misses,
        stats.value_cache_hits,
        stats.value_cache_misses,
        stats.values_compressed_from,
        stats.values_compressed_to,
        memory.cache_index_bytes as u64,
    ]);
    numbers
}

/// What [`to_numbers`] was given. Numbers that are missing count as 0.
fn from_numbers(numbers: &[u64]) -> Stats {
    let mut numbers = numbers.iter().copied();
    let mut next = || numbers.next().unwrap_or_default();
    let stats = Stats {
        memory_budget: next() as usize,
        memory: MemoryStats {
            front_bytes: next() as usize,
            merging_bytes: next() as usize,
            job_bytes: next() as usize,
            cache_bytes: next() as usize,
            cache_bytes_max: next() as usize,
            log_buffer_bytes: next() as usize,
            table_reader_bytes: next() as usize,
            keyspace_bytes: next() as usize,
            pinned_bytes: next() as usize,
            ..MemoryStats::default()
        },
        open_table_files: next() as usize,
        table_files_opened: next(),
        direct_io: next() != 0,
        seqno: next(),
        durable_seqno: next(),
        keyspaces: next() as usize,
        snapshots: next() as usize,
        index_table_entries: next(),
        index_table_bytes: next(),
        sealed: next() as usize,
        user_bytes_written: next(),
        log_bytes_written: next(),
        table_bytes_written: next(),
        manifest_bytes_written: next(),
        bytes_read: next(),
        flushes: next(),
        compactions: next(),
        index_merges: next(),
        seals: next(),
        compaction_subtasks: next(),
        run_subtasks_total: next(),
        stalls: next(),
        stall_time: Duration::from_micros(next()),
        paced: next(),
        paced_time: Duration::from_micros(next()),
        pace_bytes_per_second: next().checked_sub(1),
        ..Stats::default()
    };
    let level = |next: &mut dyn FnMut() -> u64| LevelStats {
        tables: next() as usize,
        bytes: next(),
        entries: next(),
        range_tombstones: 0,
    };
    let mut levels: Vec<LevelStats> = (0..LEVELS_MAX).map(|_| level(&mut next)).collect();
    let logs = (0..next().min(LISTED_MAX as u64)).map(|_| FileStats { id: next(), bytes: next() }).collect();
    let runs = 0..next().min(LISTED_MAX as u64);
    let run = |_| RunStats { entries: next(), bytes: next(), seqno_min: next(), seqno_max: next() };
    let runs = runs.map(run).collect();
    let front_range_tombstones = next();
    levels.iter_mut().for_each(|level| level.range_tombstones = next());
    let value_files = next() as usize;
    let (value_bytes, value_bytes_live, moved_files) = (next(), next(), next() as usize);
    let (value_collections, value_collection_bytes_written) = (next(), next());
    let memory = MemoryStats { value_list_bytes: next() as usize, ..stats.memory };
    let values = Stats { memory, value_files, value_bytes, value_bytes_live, moved_files, ..stats };
    let (value_groups, records_judged_alone, records_looked_up) = (next() as usize, next(), next());
    let values = Stats { value_groups, records_judged_alone, records_looked_up, ..values };
    let values = Stats { value_reorders: next(), value_reorder_bytes_written: next(), ..values };
    let groups = 0..next().min(GROUPS_LISTED_MAX as u64);
    let group = |_| GroupStats { extents: next() as usize, bytes: next(), bytes_live: next() };
    let values = Stats { value_group_list: groups.map(group).collect(), ..values };
    let memory =
        MemoryStats { value_cache_bytes: next() as usize, value_cache_bytes_max: next() as usize, ..values.memory };
    let values = Stats {
        memory,
        block_cache_hits: next(),
        block_cache_misses: next(),
        value_cache_hits: next(),
        value_cache_misses: next(),
        values_compressed_from: next(),
        values_compressed_to: next(),
        ..values
    };
    let values = Stats { memory: MemoryStats { cache_index_bytes: next() as usize, ..values.memory }, ..values };
    Stats { levels, logs, runs, front_range_tombstones, value_collections, value_collection_bytes_written, ..values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::stats_page::NUMBERS_MAX;

    #[test]
    fn figures_come_back_from_the_page_as_they_were() {
        let lists = [2, 7, 8, 9, 10, 1, 20, 21, 22, 23]
            .into_iter()
            .chain(30..43 + LEVELS_MAX as u64)
            .chain([2, 60, 61, 62, 63, 64, 65])
            .chain(70..79);
        let mut numbers: Vec<u64> = (2..).take(36 + 3 * LEVELS_MAX).chain(lists).collect();
        numbers[12] = 1;
        let stats = from_numbers(&numbers);
        assert_eq!(to_numbers(&stats), numbers);
        assert_eq!((stats.logs.len(), stats.runs.len(), stats.levels.len()), (2, 1, LEVELS_MAX));
        assert_eq!(stats.value_group_list.last().map(|group| group.bytes_live), Some(65));
        assert_eq!(from_numbers(&[]).seqno, 0);
    }

    #[test]
    fn the_fullest_page_fits() {
        const { assert!(36 + 4 * LEVELS_MAX + 24 + LISTED_MAX * (2 + 4) + 1 + GROUPS_LISTED_MAX * 3 <= NUMBERS_MAX) };
    }

    #[test]
    fn a_foreign_file_of_that_name_is_left_alone() {
        let disk = crate::io::SimDisk::new();
        let dir = Path::new("/db");
        for (content, ours) in [(&b"not ours at all"[..], false), (&b""[..], true), (&MAGIC[..], true)] {
            disk.write_file(&dir.join(STATS), content);
            assert_eq!(claim(&disk, dir).unwrap().is_some(), ours);
            assert_eq!(disk.read_file(&dir.join(STATS)).unwrap(), content);
        }
    }
}
