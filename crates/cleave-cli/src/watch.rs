//! `cleave stats` of a database that another process has open, from the page that its owner writes. `--watch` repeats it:
//! in place on a terminal, elsewhere one line for each page.

use std::io::{IsTerminal, Write};
use std::thread::sleep;
use std::time::Duration;

use cleavedb::{LiveStats, Stats};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::{args, figures, live, picture};

/// Moves the cursor to the top left corner and clears the screen below it.
const REDRAW: &str = "\x1b[H\x1b[J";

/// `cleave stats` while the database is open elsewhere.
pub fn show(live: &LiveStats, json: bool, out: &mut dyn Write) -> Result<()> {
    if json {
        writeln!(out, "{:#}", as_json(live, None))?;
        return Ok(());
    }
    writeln!(out, "   {}", head(live))?;
    figures::draw(&live.stats, out)
}

/// `cleave stats --watch`.
pub fn watch(args: &args::Stats, out: &mut dyn Write) -> Result<()> {
    let interval = Duration::from_secs_f64(args.interval);
    let in_place = !args.json && std::io::stdout().is_terminal();
    let mut before: Option<LiveStats> = None;
    let mut remaining = args.count.unwrap_or(u64::MAX);
    while remaining > 0 {
        let Some(live) = live::read(&args.database)? else {
            return match before {
                Some(_) => Ok(()),
                None => Err(Failure::new(format!(
                    "{} is not open in any process; use stats without --watch to open it",
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
        remaining -= 1;
        if remaining > 0 {
            sleep(interval);
        }
    }
    Ok(())
}

/// Rates per second since the previous page.
struct Rates {
    writes: f64,
    user_bytes: f64,
    written_bytes: f64,
    stalled: f64,
}

impl Rates {
    /// The rates between two pages; an unchanged page gives rates of zero.
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
        None => "unlimited".to_owned(),
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
    let mut value = figures::as_json(&live.stats);
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
