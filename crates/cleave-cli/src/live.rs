//! `cleave stats` of a database that another process has open, from the page that its owner writes; `--watch` shows how
//! it goes on: in place on a terminal, a line each time elsewhere.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use cleavedb::{LiveStats, Stats};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::args::Database;
use crate::failure::{Failure, Result};
use crate::{args, picture, stats};

/// Home, and clear what is below.
const REDRAW: &str = "\x1b[H\x1b[J";

/// An owner that has something to tell writes its page about once a second; one that is idle need not.
const FRESH: Duration = Duration::from_secs(5);

/// The page of a database that a living process has open.
pub fn read(database: &Database) -> Result<Option<LiveStats>> {
    let dir = database.fast_dir.as_ref().unwrap_or(&database.path);
    let page = database.options().live_stats(&database.path)?;
    Ok(page.filter(|page| is_alive(page.process) && (is_fresh(dir) || is_locked(dir))))
}

/// Whoever cannot tell takes the process for alive.
fn is_alive(process: u32) -> bool {
    let Some(pid) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else { return true };
    !matches!(rustix::process::test_kill_process(pid), Err(Errno::SRCH))
}

/// The page was written just now.
fn is_fresh(dir: &Path) -> bool {
    let age = dir.join("STATS").metadata().and_then(|page| page.modified()).ok().and_then(|time| time.elapsed().ok());
    age.is_some_and(|age| age < FRESH)
}

/// A crash leaves the page behind, and later another process may get the number on it; but a lock goes with its owner.
/// Asking takes the lock for a moment, so it is done only where the page gives reason for doubt.
fn is_locked(dir: &Path) -> bool {
    let lock = File::open(dir.join("LOCK"));
    lock.is_ok_and(|lock| flock(&lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK))
}

/// `cleave stats` while the database is open elsewhere.
pub fn show(live: &LiveStats, json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        writeln!(out, "{:#}", as_json(live, None))?;
        return Ok(());
    }
    writeln!(out, "   {}", head(live))?;
    stats::draw(&live.stats, out)
}

/// `cleave stats --watch`.
pub fn watch(args: &args::Stats, out: &mut dyn Write) -> Result<()> {
    let interval = Duration::from_secs_f64(args.interval);
    let in_place = !args.json && std::io::stdout().is_terminal();
    let mut before: Option<LiveStats> = None;
    let mut left = args.count.unwrap_or(u64::MAX);
    while left > 0 {
        let Some(live) = read(&args.database)? else {
            return match before {
                Some(_) => Ok(()),
                None => Err(Failure::new(format!(
                    "{} is not open in any process; without --watch, stats opens it",
                    args.database
                ))),
            };
        };
        let rates = before
            .as_ref()
            .filter(|before| before.process == live.process)
            .map(|before| Rates::between(before, &live, interval));
        match (args.json, in_place) {
            (true, _) => writeln!(out, "{}", as_json(&live, rates.as_ref()))?,
            (_, true) => screen(&live, rates.as_ref(), out)?,
            _ => line(&live, rates.as_ref(), out)?,
        }
        out.flush()?;
        before = Some(live);
        left -= 1;
        if left > 0 {
            sleep(interval);
        }
    }
    Ok(())
}

/// What happened per second since the page before.
struct Rates {
    writes: f64,
    user_bytes: f64,
    written_bytes: f64,
    stalled: f64,
}

impl Rates {
    /// A page that has not changed says that nothing happened.
    fn between(before: &LiveStats, now: &LiveStats, interval: Duration) -> Rates {
        let elapsed = now.uptime.saturating_sub(before.uptime);
        let seconds = if elapsed.is_zero() { interval } else { elapsed }.as_secs_f64().max(1e-3);
        let rate = |count: fn(&Stats) -> u64| count(&now.stats).saturating_sub(count(&before.stats)) as f64 / seconds;
        Rates {
            writes: rate(|stats| stats.seqno),
            user_bytes: rate(|stats| stats.user_bytes_written),
            written_bytes: rate(|s| s.log_bytes_written + s.table_bytes_written + s.manifest_bytes_written),
            stalled: rate(|stats| stats.stall_time.as_micros() as u64) / 1e6,
        }
    }
}

fn head(live: &LiveStats) -> String {
    format!("open in process {} for {}", live.process, HumanDuration(live.uptime))
}

fn pace(stats: &Stats) -> String {
    match stats.pace_bytes_per_second {
        None => "free".to_owned(),
        Some(0) => "stopped".to_owned(),
        Some(pace) => format!("{}/s", BinaryBytes(pace)),
    }
}

fn screen(live: &LiveStats, rates: Option<&Rates>, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{REDRAW}   {}", head(live))?;
    if let Some(rates) = rates {
        writeln!(
            out,
            "   {} writes/s, {}/s of records, {}/s written; writers {}, stalled {:.0} % of the time",
            HumanCount(rates.writes as u64),
            BinaryBytes(rates.user_bytes as u64),
            BinaryBytes(rates.written_bytes as u64),
            pace(&live.stats),
            100.0 * rates.stalled,
        )?;
    }
    writeln!(out)?;
    Ok(picture::draw(&live.stats, out)?)
}

fn line(live: &LiveStats, rates: Option<&Rates>, out: &mut dyn Write) -> Result<()> {
    let stats = &live.stats;
    let (writes, bytes) = rates.map_or((0, 0), |rates| (rates.writes as u64, rates.written_bytes as u64));
    let levels: Vec<String> = stats.levels.iter().map(|level| level.tables.to_string()).collect();
    writeln!(
        out,
        "seqno {} writes/s {writes} written/s {bytes} runs {} sealed {} levels {} memory {} stalls {} pace {}",
        stats.seqno,
        stats.runs.len(),
        stats.sealed,
        levels.join(","),
        stats.memory.total(),
        stats.stalls,
        pace(stats).replace(' ', ""),
    )?;
    Ok(())
}

fn as_json(live: &LiveStats, rates: Option<&Rates>) -> Value {
    let mut value = stats::as_json(&live.stats);
    value["process"] = json!(live.process);
    value["uptime_seconds"] = json!(live.uptime.as_secs_f64());
    if let Some(rates) = rates {
        value["writes_per_second"] = json!(rates.writes);
        value["user_bytes_per_second"] = json!(rates.user_bytes);
        value["written_bytes_per_second"] = json!(rates.written_bytes);
        value["stalled_share"] = json!(rates.stalled);
    }
    value
}
