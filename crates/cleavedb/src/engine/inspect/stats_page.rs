//! The page of statistics that an open database publishes for other processes, and how it is read. The thread for logs
//! writes it about once a second, if anything has changed; a clean close removes it. It is not part of recovery, and a
//! database that cannot write it continues without.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::base::Result;
use crate::base::panics::guard_panic;
use crate::engine::core::Core;
use crate::engine::inspect::stats::Stats;
use crate::engine::manifest::file_names::STATS;
use crate::engine::page_state::PageState;
use crate::format::stats_page::{self, MAGIC, PAGE_BYTES};
use crate::io::{Access, File, Storage};
use crate::sched::clock::now;
use crate::sched::thread::sleep;

/// Length limit of the lists: the page shows the newest logs and runs, and the first groups of values.
const LISTED_MAX: usize = 48;
/// Decisions of the scheduler on the page: each has some hundred bytes.
const DECISIONS_LISTED: usize = 5;
/// Kinds of jobs on the page: those that have used the most processor time.
const JOBS_LISTED: usize = 12;
/// Number of times a page that is being written is read again.
const READ_TRIES: u32 = 20;

/// The statistics of a database that another process, or another handle, has open. See
/// [`live_stats`](crate::live_stats).
#[derive(Debug, Clone, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct LiveStats {
    /// The id of the process that has it open.
    #[n(0)]
    pub process: u32,
    /// Incremented each time the statistics change.
    #[n(1)]
    pub sequence: u64,
    /// Time from the opening of the database until they were written.
    #[n(2)]
    pub uptime: Duration,
    /// The statistics. At most 48 logs and runs (the newest) and 48 groups of values (the first) are listed; fewer if
    /// large numbers leave no room for them.
    #[n(3)]
    pub stats: Stats,
}

impl Core {
    /// Publishes the statistics if they are due; returns the time until they are next due. Never due without an interval.
    /// A panic ends here: the calling thread also deletes files, and nothing depends on statistics.
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
            drop(guard_panic("the statistics", || {
                let stats = self.stats();
                // Foreign code, which may close the database: no lock may be held here.
                crate::engine::inspect::telemetry::publish(self.dirs.fast(), &stats);
                let mut page = self.stats_page.state.lock();
                // A pause that begins from here on waits for this lock before it returns to its caller.
                if !self.work.lock().has_pauses() {
                    self.write_page(&mut page, &stats, now);
                }
                Ok(())
            }));
        }
        Some(due.saturating_sub(now))
    }

    fn write_page(&self, state: &mut PageState, stats: &Stats, now: Duration) {
        let opened = *state.opened.get_or_insert(now);
        if state.file.is_none() && !state.given_up {
            match claim(&*self.storage, self.dirs.fast()) {
                Ok(Some(file)) => state.file = Some(file),
                Ok(None) => state.given_up = true,
                // Retried when the page is next due.
                Err(_) => {}
            }
        }
        let Some(file) = state.file.clone() else { return };
        let stats = with_lists_of(stats, LISTED_MAX);
        let figures = to_cbor(&stats);
        if figures == state.figures {
            return;
        }
        state.sequence += 1;
        state.figures = figures;
        let uptime = now.saturating_sub(opened);
        let page = LiveStats { process: std::process::id(), sequence: state.sequence, uptime, stats };
        let Some(bytes) = encode(&page) else { return };
        if file.write_at(&bytes, 0).is_err() {
            // Storage is full or failing, which other writes will report. Retried when the page is next due.
            state.figures.clear();
        }
    }

    /// Removes the page when the database is closed.
    pub fn remove_stats_page(&self) {
        let mut state = self.stats_page.state.lock();
        state.given_up = true;
        // Also removes a page left by a crash, if this database is closed before its own page was due.
        let is_left = || {
            let there = self.storage.list(self.dirs.fast())?.iter().any(|entry| entry.name == STATS);
            Ok(there && claim(&*self.storage, self.dirs.fast())?.is_some())
        };
        let left: Result<bool> = is_left();
        if state.file.take().is_some() || left.unwrap_or(false) {
            let _ = self.storage.remove(&self.dirs.fast().join(STATS));
        }
    }
}

/// The file for the page: a new one, or one left by a crash. Any other file of that name is not ours.
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

/// Reads the page of the database in `dir`; `None` if there is no complete page.
pub(crate) fn read_page(storage: &dyn Storage, dir: &Path) -> Result<Option<LiveStats>> {
    let is_there = storage.exists(dir)? && storage.list(dir)?.iter().any(|entry| entry.name == STATS && entry.is_file);
    if !is_there {
        return Ok(None);
    }
    // The file may be removed at any moment.
    let Ok(file) = storage.open_read(&dir.join(STATS), Access::Buffered) else { return Ok(None) };
    Ok(read_whole_page(&*file)?.ok())
}

/// Reads a page, retrying if its owner was writing it meanwhile; if its contents stay the same, returns what is wrong
/// with it.
pub(crate) fn read_whole_page(file: &dyn File) -> Result<std::result::Result<LiveStats, &'static str>> {
    let mut bytes = vec![0; PAGE_BYTES];
    let mut tries = READ_TRIES;
    loop {
        let read = file.read_at(&mut bytes, 0)?;
        let page = decode(&bytes[..read]);
        tries -= 1;
        if page.is_ok() || tries == 0 {
            return Ok(page);
        }
        sleep(Duration::from_millis(1));
    }
}

/// Decodes the bytes of a page.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn decode(bytes: &[u8]) -> std::result::Result<LiveStats, &'static str> {
    minicbor::decode(stats_page::open(bytes)?).map_err(|_| "the figures on the page cannot be decoded")
}

/// Encodes a page. Lists that do not fit are shortened; `None` if it does not fit without them.
pub(crate) fn encode(page: &LiveStats) -> Option<[u8; PAGE_BYTES]> {
    let mut listed = LISTED_MAX;
    loop {
        let stats = with_lists_of(&page.stats, listed);
        let body = to_cbor(&LiveStats { stats, ..page.clone() });
        let bytes = stats_page::seal(&body);
        if bytes.is_some() || listed == 0 {
            return bytes;
        }
        listed /= 2;
    }
}

/// The same statistics with shortened lists: the newest logs, runs and decisions, and the first groups, are kept.
fn with_lists_of(stats: &Stats, len_max: usize) -> Stats {
    let mut stats = stats.clone();
    stats.logs.drain(..stats.logs.len().saturating_sub(len_max));
    stats.runs.truncate(len_max);
    stats.value_group_list.truncate(len_max);
    let decisions = &mut stats.scheduling.decisions;
    decisions.drain(..decisions.len().saturating_sub(len_max.min(DECISIONS_LISTED)));
    let jobs = &mut stats.scheduling.jobs;
    if jobs.len() > len_max.min(JOBS_LISTED) {
        jobs.sort_by_key(|job| std::cmp::Reverse(job.cpu_time));
        jobs.truncate(len_max.min(JOBS_LISTED));
        jobs.sort_by(|one, other| one.kind.cmp(&other.kind));
    }
    stats
}

fn to_cbor(figures: &impl Encode<()>) -> Vec<u8> {
    minicbor::to_vec(figures).expect("numbers can be encoded, and a vector takes them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Tier;
    use crate::engine::inspect::scheduling_stats::{DecisionStats, DeviceStats, JobKindStats};
    use crate::engine::inspect::stats::{FileStats, GroupStats, LevelStats, RunStats};
    use crate::levels::version::LEVELS_MAX;

    /// Statistics in which each number is `size` and each list has the same given length.
    fn page(size: u64, listed: usize) -> LiveStats {
        let (id, bytes, entries) = (size, size, size);
        let level = LevelStats { tables: size as usize, bytes, entries, range_tombstones: size };
        let stats = Stats {
            seqno: size,
            stall_time: Duration::from_micros(size),
            pace_bytes_per_second: Some(size),
            direct_io: true,
            levels: vec![level; LEVELS_MAX],
            logs: (0..listed as u64).map(|number| FileStats { id: id - number, bytes }).collect(),
            runs: vec![RunStats { entries, bytes, seqno_min: size, seqno_max: size }; listed],
            value_group_list: vec![GroupStats { extents: size as usize, bytes, bytes_live: size }; listed],
            ..Stats::default()
        };
        LiveStats { process: 4711, sequence: size, uptime: Duration::from_micros(size), stats }
    }

    #[test]
    fn figures_come_back_from_the_page_as_they_were() {
        for page in [page(1000, 0), page(70_000, 7), page(1 << 40, 10)] {
            let read = decode(&encode(&page).unwrap()).unwrap();
            assert_eq!(format!("{read:?}"), format!("{page:?}"));
        }
    }

    #[test]
    fn of_lists_that_do_not_fit_the_newest_are_shown() {
        let page = page(u64::MAX, 500);
        let read = decode(&encode(&page).unwrap()).unwrap();
        let (logs, runs, groups) = (read.stats.logs, read.stats.runs, read.stats.value_group_list);
        assert!(logs.len() >= 12 && logs.len() == runs.len() && logs.len() == groups.len(), "{}", logs.len());
        assert_eq!(logs.last().map(|log| log.id), page.stats.logs.last().map(|log| log.id));
        assert_eq!(read.stats.levels.len(), LEVELS_MAX);
    }

    #[test]
    fn the_last_decisions_of_the_scheduler_leave_room_for_the_rest() {
        let mut page = page(u64::MAX, 500);
        let (latency, busy) = (Some(Duration::from_micros(u64::MAX)), 0.987_654_321);
        let devices = [Tier::Fast, Tier::Slow].map(|tier| DeviceStats { tier, busy, latency });
        let decision = |number| DecisionStats {
            at: Duration::from_micros(u64::MAX),
            bottleneck: "processors".to_owned(),
            merge_queue: number,
            flush_queue: 1.0 / 3.0,
            processors_busy: Some(busy),
            devices: devices.to_vec(),
            writers_waiting: busy,
            merges_busy: Some(busy),
            compactions_busy: Some(busy),
            tier: Some(Tier::Slow),
            ..DecisionStats::default()
        };
        page.stats.scheduling.decisions = (0..32).map(decision).collect();
        let read = decode(&encode(&page).unwrap()).unwrap();
        let numbers: Vec<usize> = read.stats.scheduling.decisions.iter().map(|decision| decision.merge_queue).collect();
        assert!(numbers.len() > 1 && numbers.ends_with(&[30, 31]), "{numbers:?}");
    }

    #[test]
    fn the_kinds_of_jobs_that_have_used_the_most_are_shown_in_the_order_of_names() {
        let mut page = page(1000, 3);
        let job = |number: u64| JobKindStats {
            kind: format!("kind {:02}", (number * 7) % 30),
            cpu_time: Duration::from_micros(number),
            ..JobKindStats::default()
        };
        page.stats.scheduling.jobs = (0..30).map(job).collect();
        let read = decode(&encode(&page).unwrap()).unwrap().stats.scheduling.jobs;
        assert_eq!(read.len(), JOBS_LISTED);
        assert!(read.iter().all(|job| job.cpu_time >= Duration::from_micros(18)), "{read:?}");
        assert!(read.windows(2).all(|pair| pair[0].kind < pair[1].kind), "{read:?}");
    }

    #[test]
    fn what_takes_too_much_room_without_the_lists_is_no_page() {
        let mut page = page(u64::MAX, 10);
        page.stats.levels = vec![page.stats.levels[0].clone(); 200];
        assert!(encode(&page).is_none());
    }

    #[test]
    fn unknown_files_are_not_on_the_page() {
        let without = page(u64::MAX, 10);
        let mut page = without.clone();
        page.stats.unknown_files = (0..500).map(|number| format!("/db/{number:08}.table").into()).collect();
        #[cfg(unix)]
        {
            let odd: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"/db\xff/00100000.table".to_vec());
            page.stats.unknown_files.push(odd.into());
        }
        assert_eq!(encode(&page), encode(&without));
    }

    #[test]
    fn a_figure_that_a_later_version_has_added_is_passed_over() {
        #[derive(Encode)]
        #[cbor(map)]
        struct Later {
            #[n(0)]
            process: u32,
            #[n(1)]
            sequence: u64,
            #[n(2)]
            uptime: Duration,
            #[n(3)]
            stats: Stats,
            #[n(4)]
            added: Vec<String>,
        }
        let (uptime, added) = (Duration::from_secs(3), vec!["new".to_owned()]);
        let later = Later { process: 1, sequence: 2, uptime, stats: page(5, 1).stats, added };
        let bytes = stats_page::seal(&to_cbor(&later)).unwrap();
        assert_eq!(decode(&bytes).map(|page| (page.sequence, page.stats.seqno)), Ok((2, 5)));
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
