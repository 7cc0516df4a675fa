//! `cleave stats` of a database that another process has open, from the page that its owner writes. `--watch` repeats it:
//! in place on a terminal, elsewhere one line for each page.

use std::io::{IsTerminal, Write};
use std::thread::sleep;
use std::time::Duration;

use cleavedb::{DirectoryStats, LiveStats, SchedulingStats, Stats, TierStats};
use indicatif::{BinaryBytes, HumanCount, HumanDuration};
use serde_json::{Value, json};

use crate::failure::{Failure, Result};
use crate::{args, figures, live, picture};

/// The last decisions of the scheduler that a screen shows.
const DECISIONS_SHOWN: usize = 8;
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
    Ok(picture::draw(&live.stats, DECISIONS_SHOWN, out)?)
}

fn line(live: &LiveStats, rates: Option<&Rates>, out: &mut dyn Write) -> Result<()> {
    let stats = &live.stats;
    let (writes, bytes) = rates.map_or((0, 0), |rates| (rates.writes as u64, rates.written_bytes as u64));
    let levels: Vec<String> = stats.levels.iter().map(|level| level.tables.to_string()).collect();
    writeln!(
        out,
        "seqno {} writes/s {writes} written/s {bytes} runs {} sealed {} levels {} memory {} stalls {} pace {}{}{}",
        stats.seqno,
        stats.runs.len(),
        stats.sealed,
        levels.join(","),
        stats.memory.total(),
        stats.stalls,
        pace(stats).replace(' ', ""),
        tiers(&stats.tiers),
        scheduling(&stats.scheduling),
    )?;
    Ok(())
}

/// Bytes of each directory, if there are several, and of the fast tier with its budget.
fn tiers(tiers: &TierStats) -> String {
    if tiers.directories.len() < 2 {
        return String::new();
    }
    let directory = |directory: &DirectoryStats| format!(" {} {}", picture::name_of(directory.tier), directory.bytes);
    let directories: String = tiers.directories.iter().map(directory).collect();
    let limit = tiers.fast_bytes_limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let TierStats { fast_bytes, fast_bytes_max, files_to_move, bytes_moved, .. } = tiers;
    format!(
        "{directories} used {fast_bytes} max {fast_bytes_max} budget {limit} to-move {files_to_move} moved {bytes_moved}"
    )
}

/// The queues with their scores, the settings, and the last change of these with its figures.
fn scheduling(scheduling: &SchedulingStats) -> String {
    let SchedulingStats { merge_queue, flush_queue, setting, decisions, background_bytes_per_second, .. } = scheduling;
    let merge_score = picture::merge_score(*merge_queue, setting);
    let limit = background_bytes_per_second.map_or(String::new(), |rate| format!(" background/s {rate}"));
    let decision = decisions.last().map_or(String::new(), |last| format!("; {}", picture::decided(last)));
    format!(
        " merge-queue {merge_queue} score {merge_score:.1} flush-queue {flush_queue:.1} merge-runs {} flush-bytes {} \
         level-base {} compactions {}{limit}{decision}",
        setting.merge_runs, setting.flush_bytes, setting.level_base_bytes, setting.compactions,
    )
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

#[cfg(test)]
mod tests {
    use cleavedb::DecisionStats;

    use super::*;

    #[test]
    fn a_line_has_queues_with_scores_and_the_last_decision_with_its_figures() {
        let mut stats = SchedulingStats::default();
        (stats.merge_queue, stats.flush_queue, stats.setting.merge_runs) = (6, 3.2, 4);
        assert!(scheduling(&stats).starts_with(" merge-queue 6 score 1.5 flush-queue 3.2 merge-runs 4 "));
        assert!(!scheduling(&stats).contains("background/s") && !scheduling(&stats).contains(';'));
        for bottleneck in ["devices", "processors"] {
            let mut decision = DecisionStats::default();
            (decision.bottleneck, decision.processors_busy) = (bottleneck.to_owned(), Some(0.97));
            stats.decisions.push(decision);
        }
        stats.background_bytes_per_second = Some(1000);
        let line = scheduling(&stats);
        assert!(
            line.contains(" background/s 1000; ") && line.contains("by processors") && line.contains("97 %"),
            "{line}"
        );
        assert!(!line.contains("by devices") && !line.contains('\n'), "the last one alone: {line}");
    }
}
