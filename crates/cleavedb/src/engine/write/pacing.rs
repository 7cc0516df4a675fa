//! Pacing limits the write rate while background work is behind, so that the delay is spread over many writes and does
//! not fall on one.
//!
//! Two stages drain the bytes that users write: flushes empty the front, and compactions empty HL0. (Two more measure the
//! garbage in value files, in `space.rs`, and the fast tier; they never stop writers.) Each stage is measured in bytes that
//! users wrote: the backlog, its limit, and the drain rate. If a stage is more than half full, the write rate is a
//! multiple of its drain rate. The multiple falls as the stage fills and is 1 at three quarters, where a constant load
//! settles. The write rate is also limited so that the remaining room lasts until the running job ends. Only a full
//! stage stops writers. Decision record 013 has the figures.
//!
//! While writers go around background work, front and HL0 are one stage (`redirect.rs`, decision record 055).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::{DirId, Error, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::pacer::{PACED_WAIT_MIN, Pace, SAMPLE_MIN, SLOW_FROM, Stage, differs, pace};
use crate::engine::shortages::Need;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::tuning::tiers::FastFill;
use crate::engine::view::View;
use crate::engine::work::WorkState;
use crate::engine::write::redirect::LogLimits;
use crate::front::log::LogFile;
use crate::sched::clock::now;

/// Writers are stopped while this many sealed index tables wait to become runs.
const SEALED_MAX: usize = 8;

/// Writers are slowed once the fast tier is filled to this part...
const FAST_SLOW_FROM: f64 = 0.78;
/// ...and go at the rate of demotion at a tenth more.
const FAST_STEEPNESS: f64 = 2.5;

/// Writers are slowed once garbage in logs of hash keyspaces has come to this part of what is allowed...
const LOGS_SLOW_FROM: f64 = 1.0;
/// ...and go at the rate of collection at an eighth more.
const LOGS_STEEPNESS: f64 = 2.0;

/// The bytes that users wrote...
pub(super) struct Flushed {
    /// ...for each byte of a table of HL0,
    pub shrunk: f64,
    /// and for each byte that flushes carried, which is all but the values that stay in their logs.
    pub grown: f64,
}

/// Stops new writes until dropped. Writes that have begun continue.
pub(crate) struct Gate<'a>(&'a Core);

impl<'a> Gate<'a> {
    pub fn close(core: &'a Core) -> Gate<'a> {
        core.pacer.gates.fetch_add(1, Ordering::Relaxed);
        core.update_pace();
        Gate(core)
    }
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        self.0.pacer.gates.fetch_sub(1, Ordering::Relaxed);
        self.0.update_pace();
        self.0.work.wake_all();
    }
}

/// Whether a write may begin.
enum Turn {
    /// It may begin now.
    Go,
    /// It waits until this time.
    WaitUntil(Duration),
    /// It waits until a job ends.
    WaitForProgress,
}

impl Core {
    /// Delays a write of `bytes` as the pace requires, at most until `deadline`.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if the delay would exceed `deadline`; the error of a closed or poisoned database, or of a job
    /// that found no space and without which the write cannot begin.
    pub fn wait_for_room(&self, bytes: u64, deadline: Option<Duration>) -> Result<()> {
        if !self.pacer.is_limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.review_pace();
        let started = now();
        let (mut until, mut paced, mut stopped) = (None, false, false);
        let mut state = self.work.lock();
        let since = state.begun();
        let result = loop {
            let turn = self.turn(bytes, &mut until);
            if matches!(turn, Turn::Go) {
                break Ok(());
            }
            // A waiting writer must not wait for progress that can no longer come.
            let alive = self.check_open().and_then(|()| self.check_poison());
            let alive = alive.and_then(|()| match turn {
                Turn::WaitForProgress => self.check_awaited(&state, since),
                // It goes on whatever jobs do.
                Turn::Go | Turn::WaitUntil(_) => Ok(()),
            });
            if let Err(error) = alive {
                break Err(error);
            }
            let now = now();
            match (turn, deadline) {
                (Turn::WaitUntil(until), Some(deadline)) if until > deadline => break Err(Error::WouldStall),
                (Turn::WaitUntil(until), _) => {
                    paced = true;
                    self.work.wait_for_progress_at_most(&mut state, until.saturating_sub(now));
                }
                (_, Some(deadline)) if now >= deadline => break Err(Error::WouldStall),
                (Turn::WaitForProgress, _) if !stopped => {
                    // The event is raised without the lock; the next iteration sees what changed meanwhile.
                    stopped = true;
                    drop(state);
                    self.events.raise(Event::StallBegun);
                    state = self.work.lock();
                }
                (_, Some(deadline)) => {
                    self.work.wait_for_progress_at_most(&mut state, deadline.saturating_sub(now));
                }
                _ => self.work.wait_for_progress(&mut state),
            }
        };
        drop(state);
        if result.is_err() && until.is_some() {
            self.pacer.state.lock().refund(bytes);
        }
        let waited = now().saturating_sub(started);
        // Others have waited for locks at most.
        if paced || stopped {
            self.count_wait(waited, stopped);
        }
        if stopped {
            self.events.raise(Event::StallEnded { duration: waited });
        }
        result
    }

    /// Whether a write of `bytes` may begin now. The bytes are charged once; `until` keeps the time at which the wait
    /// ends.
    fn turn(&self, bytes: u64, until: &mut Option<Duration>) -> Turn {
        let now = now();
        let mut state = self.pacer.state.lock();
        match state.pace {
            Pace::Free => Turn::Go,
            Pace::Stopped => Turn::WaitForProgress,
            Pace::Limited(rate) => {
                let until = *until.get_or_insert_with(|| now + state.charge(bytes, now, rate));
                if until <= now { Turn::Go } else { Turn::WaitUntil(until) }
            }
        }
    }

    /// The error of a job with a number above `since` that found no space, if writers are stopped until such a job ends.
    fn check_awaited(&self, state: &WorkState, since: u64) -> Result<()> {
        let awaited = self.pacer.state.lock().awaited.clone();
        awaited.into_iter().try_for_each(|need| state.shortages.check(Some(need), since))
    }

    pub(super) fn count_wait(&self, waited: Duration, stopped: bool) {
        let counters = &self.counters;
        let us = waited.as_micros() as u64;
        if stopped {
            counters.stalls.fetch_add(1, Ordering::Relaxed);
            counters.stall_us.fetch_add(us, Ordering::Relaxed);
        } else if waited >= PACED_WAIT_MIN {
            counters.paced.fetch_add(1, Ordering::Relaxed);
            counters.paced_us.fetch_add(us, Ordering::Relaxed);
        }
    }

    /// Computes the pace anew, unless that was done less than [`SAMPLE_MIN`] ago.
    pub fn review_pace(&self) {
        if now() >= self.pacer.state.lock().reviewed + SAMPLE_MIN {
            self.update_pace();
        }
    }

    /// Computes the pace anew from the fill and drain of each stage.
    pub fn update_pace(&self) {
        let view = self.published.view();
        let now = now();
        let new_logs = self.new_logs_on_fast(&view);
        let mut state = self.pacer.state.lock();
        state.reviewed = now;
        state.flush.sample(now, &self.pacer.flush);
        state.hl0.sample(now, &self.pacer.hl0);
        let (flush, hl0) = (state.flush.rate, state.hl0.rate);
        state.moves.sample(now, &self.pacer.moves);
        let waits = state.wait_lately(now, self.counters.paced.load(Ordering::Relaxed));
        let (space, removal) = self.space_stage(now, state.removal, waits, &view.values);
        state.removal = removal;
        let stages = [
            self.front_stage(&view, flush, self.log_limits()),
            self.hl0_stage(&view, hl0),
            self.fast_stage(state.moves.rate, new_logs),
            space,
            self.logs_stage(),
        ];
        let [front, hl0_stage, fast, space, logs] = &stages;
        let redirected = self.watch_pressure(now, &view, front, hl0_stage, fast).then(|| {
            self.count_redirected(now, &stages);
            let (stage, passage) = self.redirected_stage(now, state.passage, &view, (flush, hl0_stage.drain));
            state.passage = Some(passage);
            stage
        });
        if redirected.is_none() {
            state.passage = None;
        }
        let allowed = redirected.map_or_else(|| pace(&stages), |front| pace(&[front, *space, *logs]));
        let has_gate = self.pacer.gates.load(Ordering::Relaxed) > 0;
        state.pace = if has_gate { Pace::Stopped } else { allowed };
        // No other stage stops writers.
        let stops = redirected.map_or([front.is_full, hl0_stage.is_full], |front| [front.is_full; 2]);
        let awaited = [(Need::Flush, has_gate || stops[0]), (Need::Compaction, stops[1])];
        state.awaited = awaited.into_iter().filter(|(_, stops)| *stops).map(|(need, _)| need).collect();
        if differs(state.pace, state.told) {
            state.told = state.pace;
            self.events.raise(Event::PaceChanged { bytes_per_second: state.pace.bytes_per_second() });
        }
        self.pacer.is_limited.store(state.pace != Pace::Free, Ordering::Relaxed);
        self.note_overgrown(&view);
    }

    /// True if writers are stopped, until background work has gone on.
    pub fn stops_writers(&self) -> bool {
        self.pacer.is_limited.load(Ordering::Relaxed) && self.pacer.state.lock().pace == Pace::Stopped
    }

    /// The front is not so full that writers are slowed down.
    pub fn front_has_room(&self, view: &View) -> bool {
        self.fills(view).0 < SLOW_FROM
    }

    /// How full the front and HL0 are, of 1.
    pub fn fills(&self, view: &View) -> (f64, f64) {
        (self.front_stage(view, 0.0, self.log_limits()).fill, self.hl0_stage(view, 0.0).fill)
    }

    /// The part of the memory of the front that is in use.
    pub(super) fn front_memory_fill(&self, view: &View) -> f64 {
        view.front_bytes() as f64 / self.front_memory_max(view) as f64
    }

    /// The most memory of the front: writers are stopped beyond it.
    fn front_memory_max(&self, view: &View) -> u64 {
        (self.front_room(view).front_bytes_max + self.settings.tuning.index_table_bytes) as u64
    }

    /// The stage that flushes drain. It is full if front memory, unflushed logs (which bound recovery time), or the
    /// queue of sealed index tables is at its limit.
    pub(super) fn front_stage(&self, view: &View, drain: f64, limits: LogLimits) -> Stage {
        let LogBytes { all: logs, carried, .. } = unflushed_log_bytes(view, self.work.flushed());
        let front = view.front_bytes() as u64;
        let front_max = self.front_memory_max(view);
        let has_work = !view.sealed.is_empty() || !view.runs.is_empty();
        let flushed = self.pacer.flush.current();
        // The share of the logs that the running flush has done is counted as drained, although its memory is still
        // held.
        let left = logs.saturating_sub(flushed) as f64 / logs.max(1) as f64;
        let front_left = front as f64 * left;
        let carried_fill = carried as f64 / limits.carried as f64;
        let full = carried_fill.max(logs as f64 / limits.all as f64);
        let log_fill = if has_work { full * left } else { 0.0 };
        // In bytes that users wrote; a flush carries only a part of them.
        let share = logs as f64 / carried.max(1) as f64;
        let carried_room = limits.carried.saturating_sub(carried) as f64 * share;
        let log_room = carried_room.min(limits.all.saturating_sub(logs) as f64);
        let front_room = front_max.saturating_sub(front) as f64 * logs as f64 / front.max(1) as f64;
        Stage {
            fill: log_fill.max(front_left / front_max as f64),
            drain,
            room: log_room.min(front_room),
            left: self.pacer.flush.left() as f64,
            is_full: view.sealed.len() >= SEALED_MAX || front > front_max || has_work && full > 1.0,
        }
    }

    /// The stage that compactions of HL0 drain, in bytes that users wrote: a table of HL0 counts as the bytes that its
    /// flush read.
    fn hl0_stage(&self, view: &View, drain: f64) -> Stage {
        let tables = view.version.levels()[0].tables().len();
        let bytes = view.version.levels()[0].bytes().max(1);
        let running = self.pacer.hl0.is_running().then(|| self.pacer.hl0.left());
        let left = left_in_hl0(running, tables >= self.scheduler.setting().hl0_trigger, bytes);
        let done = self.pacer.hl0.current().min(bytes) as f64 / bytes as f64;
        let stop = self.settings.tuning.hl0_stop_tables;
        let Flushed { shrunk, grown } = self.flushed();
        let coming = unflushed_log_bytes(view, self.work.flushed()).carried.max(view.front_bytes() as u64);
        let room = hl0_room(stop.saturating_sub(tables), self.scheduler.setting().flush_bytes, coming);
        Stage {
            fill: tables as f64 * (1.0 - done) / stop as f64,
            drain: drain * shrunk,
            room: room * grown,
            left: left as f64 * shrunk,
            is_full: tables >= stop,
        }
    }

    /// What flushes have made of what users wrote.
    pub(super) fn flushed(&self) -> Flushed {
        let counted = |counter: &AtomicU64| counter.load(Ordering::Relaxed) as f64;
        let flushed = counted(&self.counters.flushed_bytes);
        let times = |part: f64| if part > 0.0 { flushed / part } else { 1.0 };
        let (written, carried) = (counted(&self.counters.flush_table_bytes), counted(&self.counters.flushed_weight));
        Flushed { shrunk: times(written), grown: times(carried) }
    }

    /// The stage that the collection of logs of hash keyspaces drains. As garbage in value files it never stops writers.
    fn logs_stage(&self) -> Stage {
        let fill = self.hash.garbage_fill.load(Ordering::Relaxed) as f64 / 1000.0;
        let fill = SLOW_FROM + (fill - LOGS_SLOW_FROM) * LOGS_STEEPNESS;
        let drain = self.hash.drain.load(Ordering::Relaxed) as f64;
        Stage { fill: fill.clamp(0.0, 1.0), drain, room: f64::INFINITY, left: 0.0, is_full: false }
    }

    /// The bytes of the active log and the spare one that are not written yet, if they are on the fast tier, and what they are
    /// on average.
    fn new_logs_on_fast(&self, view: &View) -> (u64, u64) {
        let is_fast = |log: &Arc<LogFile>| log.key().dir == DirId::HOME;
        let active = self.writable_log(view).and_then(|log| view.logs.get(&log).cloned()).filter(is_fast);
        let of_one = active.as_ref().map_or(0, |log| log.capacity());
        let (spare, is_coming) = self.logs.spare();
        let coming = if spare.is_none() && is_coming { of_one } else { 0 };
        // On a full tier there is no spare one.
        let average = if spare.is_some() || is_coming { of_one / 2 * 3 } else { of_one / 2 };
        let logs = active.into_iter().chain(spare.filter(is_fast));
        (logs.map(|log| log.capacity().saturating_sub(log.end())).sum::<u64>() + coming, average)
    }

    /// The stage that demotion drains: the fast tier. It never stops writers, whose logs are made on the slow tier once it
    /// is full. Logs have their space from the beginning; of the newest ones the average of what is not written counts, or each
    /// new log would slow writers down for a moment.
    fn fast_stage(&self, drain: f64, (unwritten, average): (u64, u64)) -> Stage {
        let FastFill { budget, bytes } = self.fast_fill();
        let bytes = bytes.saturating_sub(unwritten) + average;
        if self.fast.has_nothing_to_demote.load(Ordering::Relaxed) && !self.pacer.moves.is_running() {
            return Stage { fill: 0.0, drain, room: f64::INFINITY, left: 0.0, is_full: false };
        }
        let fill = SLOW_FROM + (bytes as f64 / budget as f64 - FAST_SLOW_FROM) * FAST_STEEPNESS;
        Stage { fill: fill.max(0.0), drain, room: f64::INFINITY, left: 0.0, is_full: false }
    }
}

/// The bytes that a compaction of HL0, which has `bytes`, must drain before writers find room: what is left of the `running` one.
/// One that is due and waits for a thread has all before it. Otherwise writers would fill HL0 while it waits, and have no room at
/// all when it begins (decision record 063).
fn left_in_hl0(running: Option<u64>, is_due: bool, bytes: u64) -> u64 {
    running.unwrap_or(if is_due { bytes } else { 0 })
}

/// The bytes that may still be written before HL0 is full, if it has room for `places` more tables. Unflushed bytes are
/// subtracted, as they will take some of these places.
fn hl0_room(places: usize, flush_bytes: u64, front_bytes: u64) -> f64 {
    (places as u64 * flush_bytes).saturating_sub(front_bytes) as f64
}

/// Bytes of the logs that have records not yet in tables.
pub(crate) struct LogBytes {
    /// All bytes of these logs: recovery would read them.
    pub all: u64,
    /// Without the records that stay in their logs: bytes that flushes have yet to carry, or found dead.
    pub carried: u64,
    /// Bytes of records that are in the indexes of hash keyspaces; no flush carries them.
    pub indexed: u64,
}

impl LogBytes {
    /// True if the logs are large enough for a flush, even if it would find few live records: half of what recovery may
    /// read, or `most` bytes.
    pub fn is_due(&self, tuning: &Tuning, most: u64) -> bool {
        self.carried > tuning.logs_bytes_max / 2 || self.all > (tuning.replay_bytes_max / 2).min(most)
    }

    /// True if the records of hash keyspaces alone make a flush due.
    pub fn keeps_much_indexed(&self, tuning: &Tuning, most: u64) -> bool {
        self.indexed > (tuning.replay_bytes_max / 2).min(most)
    }
}

pub(crate) fn unflushed_log_bytes(view: &View, flushed: Seqno) -> LogBytes {
    let logs = || view.logs.values().filter(|log| log.last_seqno() > flushed);
    let all = logs().map(|log| log.end()).sum::<u64>();
    let indexed = logs().map(|log| log.indexed_bytes()).sum::<u64>();
    LogBytes { all, carried: all.saturating_sub(view.kept_bytes() + indexed), indexed }
}

#[cfg(test)]
#[path = "pacing_test.rs"]
mod tests;
