//! Pacing: how fast writers may go while background work is behind, so that waiting is spread over many writes instead
//! of falling on one.
//!
//! Two stages drain what writers bring: flushes empty the front, compactions empty HL0. (A third, `space.rs`, looks at the
//! garbage that their overwrites leave behind, and never stops them.) Each is measured in bytes that
//! users wrote: how much waits, how much may wait, and how fast it drains. From half full on, writers share a multiple
//! of the drain rate that falls as the stage fills, and is one at three quarters, where a steady load settles; and the
//! room that is left must do until the running job makes more. Only a full stage stops writers. Decision record 013 has
//! the figures.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Error, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::view::View;
use crate::sched::clock::now;
use crate::sched::sync::Mutex;

/// Writers wait while this many index tables are waiting to become runs.
const SEALED_MAX: usize = 8;
/// A stage slows writers down from this fill on.
const SLOW_FROM: f64 = 0.5;
/// Writers go as fast as a stage drains at this fill.
const EVEN_AT: f64 = 0.75;
/// Each so much more fill halves the pace.
const HALVING: f64 = 0.09;
/// Room for so many times what the running job has yet to do is no reason to slow down.
const ROOM_AMPLE: f64 = 4.0;
/// A stage that has not been seen to drain yet is taken to drain this fast, in bytes per second.
const DRAIN_FIRST: f64 = 64e6;
/// The slowest pace, in bytes per second: with less, one large record would wait for seconds.
const PACE_MIN: f64 = 1e6;
/// One write waits at most so long for its pace; what it did not wait for, later writes do.
const PACED_WAIT_MAX: Duration = Duration::from_millis(8);
/// Shorter waits are saved up: few writes that wait for some milliseconds are better than many that wait for one (at a
/// hundred thousand writes a second, less than one in a thousand waits at all).
const PACED_WAIT_MIN: Duration = Duration::from_millis(5);
/// Drain rates are averaged over about this long, in seconds.
const DRAIN_MEMORY_S: f64 = 1.0;
/// Drain rates are sampled this often at most.
const SAMPLE_MIN: Duration = Duration::from_millis(20);
/// The pace is looked at again after so many bytes of writes, and by writers that wait for it.
pub(crate) const REVIEW_BYTES: u64 = 512 << 10;
/// DrainProgress is told after so many versions.
const STEPS_TOGETHER: u64 = 64;

/// The pace of writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// As fast as they can.
    Free,
    /// All together, so many bytes per second.
    Limited(f64),
    /// Not until a job is done.
    Stopped,
}

impl Pace {
    fn bytes_per_second(self) -> Option<u64> {
        match self {
            Pace::Free => None,
            Pace::Limited(rate) => Some(rate as u64),
            Pace::Stopped => Some(0),
        }
    }
}

/// A change of the pace that listeners are told of: of its kind, or by a quarter.
fn differs(now: Pace, told: Pace) -> bool {
    match (now, told) {
        (Pace::Limited(now), Pace::Limited(told)) => (now / told).max(told / now) >= 1.25,
        (now, told) => now != told,
    }
}

/// One stage of background work as the pace sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stage {
    /// How much of what may wait is waiting, less what the running job has done; 1 is full.
    pub fill: f64,
    /// How fast it drains while a job is running, in bytes per second; 0 if that was never seen.
    pub drain: f64,
    /// What may still come in until it is full, in bytes.
    pub room: f64,
    /// What the running job has yet to do until it makes room, in bytes; 0 if none is running.
    pub left: f64,
    /// Nothing more may come in.
    pub is_full: bool,
}

/// The pace that suits all stages.
pub(crate) fn pace(stages: &[Stage]) -> Pace {
    if stages.iter().any(|stage| stage.is_full) {
        return Pace::Stopped;
    }
    let rates = stages.iter().filter_map(|stage| {
        let drain = if stage.drain > 0.0 { stage.drain } else { DRAIN_FIRST };
        let by_fill = (stage.fill >= SLOW_FROM).then(|| drain * ((EVEN_AT - stage.fill) / HALVING).exp2());
        // The room that is left must do until the running job is over.
        let by_room = (stage.room < ROOM_AMPLE * stage.left).then(|| drain * stage.room / stage.left);
        by_fill.into_iter().chain(by_room).min_by(f64::total_cmp).map(|rate| rate.max(PACE_MIN))
    });
    rates.min_by(f64::total_cmp).map_or(Pace::Free, Pace::Limited)
}

/// How much of a running job is done, told by the job itself as it passes versions on.
#[derive(Default)]
pub(crate) struct DrainProgress {
    /// Bytes that the job drains; 0 while none is running.
    total: AtomicU64,
    /// Versions that the job reads.
    steps: AtomicU64,
    steps_done: AtomicU64,
    /// Drained by jobs that have ended.
    before: AtomicU64,
}

impl DrainProgress {
    /// A job begins that will drain `total` bytes in at most so many steps.
    pub fn begin(&self, total: u64, steps: u64) {
        self.steps_done.store(0, Ordering::Relaxed);
        self.steps.store(steps.max(1), Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// The job is over; it counts in full if it did what it should.
    pub fn end(&self, succeeded: bool) {
        let total = self.total.swap(0, Ordering::Relaxed);
        if succeeded {
            self.before.fetch_add(total, Ordering::Relaxed);
        }
    }

    /// Bytes that the running job has drained so far; 0 if none is running.
    fn current(&self) -> u64 {
        let (done, steps) = (self.steps_done.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed).max(1));
        (self.total.load(Ordering::Relaxed) as u128 * done.min(steps) as u128 / steps as u128) as u64
    }

    /// Bytes that the running job has yet to drain.
    fn left(&self) -> u64 {
        self.total.load(Ordering::Relaxed).saturating_sub(self.current())
    }

    fn is_running(&self) -> bool {
        self.total.load(Ordering::Relaxed) > 0
    }

    fn in_all(&self) -> u64 {
        self.before.load(Ordering::Relaxed) + self.current()
    }
}

/// Passes versions on and counts them as steps of a job.
pub(crate) struct Watched<'a, S> {
    source: S,
    progress: Option<&'a DrainProgress>,
    passed: u64,
}

impl<'a, S: VersionSource> Watched<'a, S> {
    /// Counts what `source` passes on in `progress`, if there is one.
    pub fn new(source: S, progress: Option<&'a DrainProgress>) -> Watched<'a, S> {
        Watched { source, progress, passed: 0 }
    }
}

impl<S: VersionSource> VersionSource for Watched<'_, S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        self.passed += 1;
        if let Some(progress) = self.progress
            && self.passed == STEPS_TOGETHER
        {
            progress.steps_done.fetch_add(STEPS_TOGETHER, Ordering::Relaxed);
            self.passed = 0;
        }
        self.source.advance()
    }

    fn current(&self) -> VersionRef<'_> {
        self.source.current()
    }
}

/// Estimates how fast a stage drains while it has work.
#[derive(Default)]
struct DrainMeter {
    last: Option<(Duration, u64)>,
    rate: f64,
}

impl DrainMeter {
    fn sample(&mut self, now: Duration, progress: &DrainProgress) {
        if !progress.is_running() {
            self.last = None;
            return;
        }
        let total = progress.in_all();
        let Some((then, before)) = self.last else {
            self.last = Some((now, total));
            return;
        };
        let elapsed = now.saturating_sub(then);
        if elapsed < SAMPLE_MIN {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        let rate = total.saturating_sub(before) as f64 / seconds;
        let weight = if self.rate == 0.0 { 1.0 } else { 1.0 - (-seconds / DRAIN_MEMORY_S).exp() };
        self.rate += weight * (rate - self.rate);
        self.last = Some((now, total));
    }
}

/// What writers have used of their pace.
#[derive(Default)]
struct Debt {
    bytes: f64,
    at: Duration,
}

/// The pace in force, and what it is made from.
#[derive(Default)]
pub(crate) struct Pacer {
    /// False while writers are free: all that a write looks at then.
    is_limited: AtomicBool,
    /// How many hold writers back altogether.
    gates: AtomicUsize,
    state: Mutex<PacerState>,
    /// Of the flush that is running, in bytes of runs and of the values they lead to.
    pub flush: DrainProgress,
    /// Of the compaction of HL0 that is running, in bytes of tables of HL0.
    pub hl0: DrainProgress,
}

struct PacerState {
    pace: Pace,
    /// What listeners were told last.
    told: Pace,
    debt: Debt,
    flush: DrainMeter,
    hl0: DrainMeter,
    reviewed: Duration,
}

impl Default for PacerState {
    fn default() -> PacerState {
        PacerState {
            pace: Pace::Free,
            told: Pace::Free,
            debt: Debt::default(),
            flush: DrainMeter::default(),
            hl0: DrainMeter::default(),
            reviewed: Duration::ZERO,
        }
    }
}

impl PacerState {
    /// Charges `bytes` and says how long their writer should wait.
    fn charge(&mut self, bytes: u64, now: Duration, rate: f64) -> Duration {
        let paid = now.saturating_sub(self.debt.at).as_secs_f64() * rate;
        self.debt = Debt { bytes: (self.debt.bytes - paid).max(0.0) + bytes as f64, at: now };
        let wait = Duration::from_secs_f64(self.debt.bytes / rate);
        if wait < PACED_WAIT_MIN { Duration::ZERO } else { wait.min(PACED_WAIT_MAX) }
    }

    /// The write that was charged does not take place.
    fn refund(&mut self, bytes: u64) {
        self.debt.bytes = (self.debt.bytes - bytes as f64).max(0.0);
    }
}

impl Pacer {
    /// The pace as users are told: `None` while they are free, 0 while they are stopped.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.state.lock().pace.bytes_per_second()
    }
}

/// No write begins until this is dropped. Those that have begun go on.
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

/// How long a write has to wait.
enum Turn {
    /// No longer.
    Go,
    /// Until then.
    WaitUntil(Duration),
    /// Until a job is done.
    WaitForProgress,
}

impl Core {
    /// Waits as long as the pace asks of a write of `bytes`, at most until `deadline`.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if that is longer than until `deadline`; what stops writes for good.
    pub fn wait_for_room(&self, bytes: u64, deadline: Option<Duration>) -> Result<()> {
        if !self.pacer.is_limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.review_pace();
        let started = now();
        let (mut until, mut stopped) = (None, false);
        let mut state = self.work.lock();
        let since = state.begun();
        let result = loop {
            let turn = self.turn(bytes, &mut until);
            if matches!(turn, Turn::Go) {
                break Ok(());
            }
            // Whoever waits must hear of what ends waiting for good.
            let alive = self.check_open().and_then(|()| self.check_poison()).and_then(|()| state.check_space(since));
            if let Err(error) = alive {
                break Err(error);
            }
            let now = now();
            match (turn, deadline) {
                (Turn::WaitUntil(until), Some(deadline)) if until > deadline => break Err(Error::WouldStall),
                (Turn::WaitUntil(until), _) => {
                    self.work.wait_for_progress_at_most(&mut state, until.saturating_sub(now));
                }
                (_, Some(deadline)) if now >= deadline => break Err(Error::WouldStall),
                (Turn::WaitForProgress, _) if !stopped => {
                    // The event is told without the lock; what changed meanwhile is seen in the next turn.
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
        self.count_wait(waited, stopped);
        if stopped {
            self.events.raise(Event::StallEnded { duration: waited });
        }
        result
    }

    /// What a write of `bytes` has to do now. It is charged once, and `until` is when its wait ends.
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

    fn count_wait(&self, waited: Duration, stopped: bool) {
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

    /// Looks again at what the pace depends on, unless someone did just now.
    pub fn review_pace(&self) {
        if now() >= self.pacer.state.lock().reviewed + SAMPLE_MIN {
            self.update_pace();
        }
    }

    /// Looks again at what the pace depends on.
    pub fn update_pace(&self) {
        let view = self.published.view();
        let now = now();
        let mut state = self.pacer.state.lock();
        state.reviewed = now;
        state.flush.sample(now, &self.pacer.flush);
        state.hl0.sample(now, &self.pacer.hl0);
        let (flush, hl0) = (state.flush.rate, state.hl0.rate);
        let stages = [self.front_stage(&view, flush), self.hl0_stage(&view, hl0), self.space_stage(&view.values)];
        state.pace = if self.pacer.gates.load(Ordering::Relaxed) > 0 { Pace::Stopped } else { pace(&stages) };
        if differs(state.pace, state.told) {
            state.told = state.pace;
            self.events.raise(Event::PaceChanged { bytes_per_second: state.pace.bytes_per_second() });
        }
        self.pacer.is_limited.store(state.pace != Pace::Free, Ordering::Relaxed);
    }

    /// What flushes drain. Full are memory, logs (which bounds recovery), or the queue of index tables.
    fn front_stage(&self, view: &View, drain: f64) -> Stage {
        let tuning = &self.settings.tuning;
        let LogBytes { all: logs, carried } = unflushed_log_bytes(view, self.work.flushed());
        let front = view.front_bytes() as u64;
        let front_max = (tuning.front_bytes_max + tuning.index_table_bytes) as u64;
        let has_work = !view.sealed.is_empty() || !view.runs.is_empty();
        let flushed = self.pacer.flush.current();
        // The share of the logs that is flushed has left the front in the same measure, though its memory is still held.
        let left = logs.saturating_sub(flushed) as f64 / logs.max(1) as f64;
        let front_left = front as f64 * left;
        let carried_fill = carried as f64 / tuning.logs_bytes_max as f64;
        let full = carried_fill.max(logs as f64 / tuning.replay_bytes_max as f64);
        let log_fill = if has_work { full * left } else { 0.0 };
        // All in bytes that users wrote, of which a flush takes only a part along.
        let share = logs as f64 / carried.max(1) as f64;
        let carried_room = tuning.logs_bytes_max.saturating_sub(carried) as f64 * share;
        let log_room = carried_room.min(tuning.replay_bytes_max.saturating_sub(logs) as f64);
        let front_room = front_max.saturating_sub(front) as f64 * logs as f64 / front.max(1) as f64;
        Stage {
            fill: log_fill.max(front_left / front_max as f64),
            drain,
            room: log_room.min(front_room),
            left: self.pacer.flush.left() as f64,
            is_full: view.sealed.len() >= SEALED_MAX || front > front_max || has_work && full > 1.0,
        }
    }

    /// What compactions of HL0 drain, in bytes that users wrote: a table of HL0 stands for what its flush read.
    fn hl0_stage(&self, view: &View, drain: f64) -> Stage {
        let tables = view.version.levels()[0].tables().len();
        let bytes = view.version.levels()[0].bytes().max(1);
        let done = self.pacer.hl0.current().min(bytes) as f64 / bytes as f64;
        let stop = self.settings.tuning.hl0_stop_tables;
        let flushed = self.counters.flushed_bytes.load(Ordering::Relaxed) as f64;
        let written = self.counters.flush_table_bytes.load(Ordering::Relaxed) as f64;
        let shrunk = if written > 0.0 { flushed / written } else { 1.0 };
        let weight = self.counters.flushed_weight.load(Ordering::Relaxed) as f64;
        let grown = if weight > 0.0 { flushed / weight } else { 1.0 };
        let coming = unflushed_log_bytes(view, self.work.flushed()).carried.max(view.front_bytes() as u64);
        let room = hl0_room(stop.saturating_sub(tables), self.settings.tuning.flush_bytes, coming);
        Stage {
            fill: tables as f64 * (1.0 - done) / stop as f64,
            drain: drain * shrunk,
            room: room * grown,
            left: self.pacer.hl0.left() as f64 * shrunk,
            is_full: tables >= stop,
        }
    }
}

/// What may still be flushed, in bytes, while HL0 has places for so many more tables: what is in the front takes some of
/// them whatever writers do now.
fn hl0_room(places: usize, flush_bytes: u64, front_bytes: u64) -> f64 {
    (places as u64 * flush_bytes).saturating_sub(front_bytes) as f64
}

/// Bytes of the logs that hold anything not yet in tables.
pub(crate) struct LogBytes {
    /// All of them: what recovery would read.
    pub all: u64,
    /// Without records that stay there: what flushes have yet to carry, or found dead.
    pub carried: u64,
}

impl LogBytes {
    /// So much of it that it is time for a flush, however little a flush would find alive.
    pub fn is_due(&self, tuning: &Tuning) -> bool {
        self.carried > tuning.logs_bytes_max / 2 || self.all > tuning.replay_bytes_max / 2
    }
}

pub(crate) fn unflushed_log_bytes(view: &View, flushed: Seqno) -> LogBytes {
    let all = view.logs.values().filter(|log| log.last_seqno() > flushed).map(|log| log.end()).sum::<u64>();
    LogBytes { all, carried: all.saturating_sub(view.kept_bytes()) }
}

#[cfg(test)]
#[path = "pacing_test.rs"]
mod tests;
