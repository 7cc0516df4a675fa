//! The pace of writers: pure functions from the fill and drain of background work to a limit on the write rate, and the
//! state that they need. Used by `write/pacing.rs`; jobs report their progress here. Decision record 013 has the
//! reasons and figures.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::Result;
use crate::base::versions::{VersionRef, VersionSource};
use crate::engine::shortages::Need;
use crate::sched::sync::Mutex;

/// A stage limits the write rate from this fill on.
pub(crate) const SLOW_FROM: f64 = 0.5;

/// At this fill the write rate equals the drain rate of the stage.
pub(crate) const EVEN_AT: f64 = 0.75;

/// Each increase of the fill by this much halves the write rate.
pub(crate) const HALVING: f64 = 0.09;

/// The room of a stage limits the write rate only if it is less than this multiple of the running job's remaining
/// bytes.
pub(crate) const ROOM_AMPLE: f64 = 4.0;

/// The assumed drain rate of a stage that was not measured yet, in bytes per second.
pub(crate) const DRAIN_FIRST: f64 = 64e6;

/// The slowest pace, in bytes per second: below it, one large record would wait for seconds.
pub(crate) const PACE_MIN: f64 = 1e6;

/// The longest wait of one write for its pace; the rest of its debt is left to later writes.
pub(crate) const PACED_WAIT_MAX: Duration = Duration::from_millis(8);

/// The shortest wait; shorter ones accumulate as debt. Few writes that wait for several milliseconds are better than
/// many that wait for one (at 100,000 writes per second, at most 1 in 500 waits)...
pub(crate) const PACED_WAIT_LONG: Duration = Duration::from_millis(5);

/// ...but if more than 1 in [`WAITS_ONE_IN`] would wait for so long, many that wait for less are better: large values are
/// written at a low rate, and one in a hundred waits is the 99th percentile.
pub(crate) const PACED_WAIT_MIN: Duration = Duration::from_micros(500);

/// See [`PACED_WAIT_MIN`].
const WAITS_ONE_IN: f64 = 200.0;

/// Time constant of the moving average of drain rates, in seconds.
pub(crate) const DRAIN_MEMORY_S: f64 = 1.0;

/// The same of rates that include waits, of what passes a redirect and of garbage: several turns of flushes, of compactions, and of
/// value GC.
pub(crate) const PASSAGE_MEMORY_S: f64 = 20.0;

/// Writers that have waited for their pace are taken to wait for this long.
const WAITS_FOR: Duration = Duration::from_secs(1);

/// Least interval between samples of drain rates.
pub(crate) const SAMPLE_MIN: Duration = Duration::from_millis(20);

/// The pace is computed anew after this many bytes of writes, and by writers that wait for it.
pub(crate) const REVIEW_BYTES: u64 = 512 << 10;

/// A job reports its progress after this many versions.
pub(crate) const STEPS_TOGETHER: u64 = 64;

/// The pace of writers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Pace {
    /// Writers are not limited.
    Free,
    /// All writers together are limited to this many bytes per second.
    Limited(f64),
    /// Writers are stopped until a job ends.
    Stopped,
}

impl Pace {
    pub fn bytes_per_second(self) -> Option<u64> {
        match self {
            Pace::Free => None,
            Pace::Limited(rate) => Some(rate as u64),
            Pace::Stopped => Some(0),
        }
    }
}

/// True if a change of the pace is reported to listeners: a change of its kind, or of its rate by at least 25%.
pub(crate) fn differs(now: Pace, told: Pace) -> bool {
    match (now, told) {
        (Pace::Limited(now), Pace::Limited(told)) => (now / told).max(told / now) >= 1.25,
        (now, told) => now != told,
    }
}

/// One stage of background work, as input to the pace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Stage {
    /// The backlog, less the progress of the running job, divided by its limit; 1 is full.
    pub fill: f64,
    /// The drain rate while a job runs, in bytes per second; 0 if it was never measured.
    pub drain: f64,
    /// Bytes that may still be written before the stage is full.
    pub room: f64,
    /// Bytes that the running job must still process before it makes room; 0 if no job runs.
    pub left: f64,
    /// The stage is full: writers are stopped.
    pub is_full: bool,
}

/// The pace that all stages allow: that of the slowest.
pub(crate) fn pace(stages: &[Stage]) -> Pace {
    if stages.iter().any(|stage| stage.is_full) {
        return Pace::Stopped;
    }
    let rates = stages.iter().filter_map(|stage| {
        let drain = if stage.drain > 0.0 { stage.drain } else { DRAIN_FIRST };
        let by_fill = (stage.fill >= SLOW_FROM).then(|| drain * ((EVEN_AT - stage.fill) / HALVING).exp2());
        // The remaining room must last until the running job ends.
        let by_room = (stage.room < ROOM_AMPLE * stage.left).then(|| drain * stage.room / stage.left);
        by_fill.into_iter().chain(by_room).min_by(f64::total_cmp).map(|rate| rate.max(PACE_MIN))
    });
    rates.min_by(f64::total_cmp).map_or(Pace::Free, Pace::Limited)
}

/// The progress of a running job, which the job reports as it processes versions.
#[derive(Default)]
pub(crate) struct DrainProgress {
    /// Bytes that the job drains; 0 while none is running.
    pub total: AtomicU64,
    /// Versions that the job reads.
    pub steps: AtomicU64,
    pub steps_done: AtomicU64,
    /// Bytes that were drained by jobs that have ended.
    pub before: AtomicU64,
}

impl DrainProgress {
    /// Notes that a job begins, which will drain `total` bytes in at most `steps` steps.
    pub fn begin(&self, total: u64, steps: u64) {
        self.steps_done.store(0, Ordering::Relaxed);
        self.steps.store(steps.max(1), Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// Notes that the job has ended; if it succeeded, all its bytes count as drained.
    pub fn end(&self, succeeded: bool) {
        let total = self.total.swap(0, Ordering::Relaxed);
        if succeeded {
            self.before.fetch_add(total, Ordering::Relaxed);
        }
    }

    /// Bytes that the running job has drained so far; 0 if no job runs.
    pub fn current(&self) -> u64 {
        let (done, steps) = (self.steps_done.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed).max(1));
        (self.total.load(Ordering::Relaxed) as u128 * done.min(steps) as u128 / steps as u128) as u64
    }

    /// Bytes that the running job must still drain.
    pub fn left(&self) -> u64 {
        self.total.load(Ordering::Relaxed).saturating_sub(self.current())
    }

    pub fn is_running(&self) -> bool {
        self.total.load(Ordering::Relaxed) > 0
    }

    pub fn in_all(&self) -> u64 {
        self.before.load(Ordering::Relaxed) + self.current()
    }
}

/// A version source that counts the versions passing through it as steps of a job.
pub(crate) struct Watched<'a, S> {
    source: S,
    progress: Option<&'a DrainProgress>,
    passed: u64,
}

impl<'a, S: VersionSource> Watched<'a, S> {
    /// Counts the versions of `source` in `progress`, if there is one.
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

/// Measures the drain rate of a stage while a job runs.
#[derive(Default)]
pub(crate) struct DrainMeter {
    pub last: Option<(Duration, u64)>,
    pub rate: f64,
}

impl DrainMeter {
    pub fn sample(&mut self, now: Duration, progress: &DrainProgress) {
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

/// A drain rate over all the time, also while no job drains: of bytes that users wrote and that pass the front and HL0, or of garbage
/// that value GC removes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Passage {
    at: Duration,
    /// Bytes that users wrote and flushes had drained by then, or garbage that was removed.
    flushed: u64,
    /// Bytes of tables that HL0 held then; 0 for garbage.
    in_hl0: u64,
    /// In bytes per second.
    pub rate: f64,
}

impl Passage {
    /// At the beginning, with the rate that is assumed until it is known; 0 if nothing is known of it.
    pub fn begin(at: Duration, (flushed, in_hl0): (u64, u64), rate: f64) -> Passage {
        Passage { at, flushed, in_hl0, rate: if rate > 0.0 { rate } else { DRAIN_FIRST } }
    }

    /// With another sample. A byte of a table of HL0 has `shrunk` bytes that users wrote, as is known by now. Bytes may go back for a
    /// moment, when a flush turns out to have written more than it had reported.
    pub fn after(self, at: Duration, (flushed, in_hl0): (u64, u64), shrunk: f64) -> Passage {
        let elapsed = at.saturating_sub(self.at);
        if elapsed < SAMPLE_MIN {
            return self;
        }
        let passed = flushed as f64 - self.flushed as f64 - (in_hl0 as f64 - self.in_hl0 as f64) * shrunk;
        let seconds = elapsed.as_secs_f64();
        let weight = 1.0 - (-seconds / PASSAGE_MEMORY_S).exp();
        let rate = self.rate + weight * (passed / seconds - self.rate);
        Passage { at, flushed, in_hl0, rate: rate.max(PACE_MIN) }
    }
}

/// Two stages as one, of which the first fills the second: what goes from one to the other changes nothing. Of each its fill and its
/// limit, in bytes that users wrote.
pub(crate) fn fill_together(first: (f64, f64), second: (f64, f64)) -> f64 {
    let ((first, first_limit), (second, second_limit)) = (first, second);
    (first * first_limit + second * second_limit) / (first_limit + second_limit)
}

/// Bytes that writers were charged and have not waited for yet.
#[derive(Default)]
pub(crate) struct Debt {
    pub bytes: f64,
    pub at: Duration,
}

/// The current pace, and the figures that it is computed from.
#[derive(Default)]
pub(crate) struct Pacer {
    /// False while writers are not limited; a write then reads nothing else.
    pub is_limited: AtomicBool,
    /// Some bucket outgrew its size or its number of extents several times, so writers that merge into it wait; a write reads nothing else otherwise.
    pub has_overgrown: AtomicBool,
    /// Number of gates that stop all new writes.
    pub gates: AtomicUsize,
    pub state: Mutex<PacerState>,
    /// Progress of the running flush, in bytes of runs and of the values that they reference.
    pub flush: DrainProgress,
    /// Progress of the running compaction of HL0, in bytes of tables of HL0.
    pub hl0: DrainProgress,
    /// Progress of the running job that makes room on the fast tier, in bytes of files.
    pub moves: DrainProgress,
}

pub(crate) struct PacerState {
    pub pace: Pace,
    /// The needs of the jobs that stopped writers wait for.
    pub awaited: Vec<Need>,
    /// The pace that was last reported to listeners.
    pub told: Pace,
    pub debt: Debt,
    pub flush: DrainMeter,
    pub hl0: DrainMeter,
    pub moves: DrainMeter,
    /// While writers go around background work.
    pub passage: Option<Passage>,
    /// While writers wait and garbage slows them down.
    pub removal: Option<Passage>,
    /// How many writes have waited for their pace, and when that last became more.
    waits: (u64, Duration),
    pub reviewed: Duration,
}

impl Default for PacerState {
    fn default() -> PacerState {
        PacerState {
            pace: Pace::Free,
            awaited: Vec::new(),
            told: Pace::Free,
            debt: Debt::default(),
            flush: DrainMeter::default(),
            hl0: DrainMeter::default(),
            moves: DrainMeter::default(),
            passage: None,
            removal: None,
            waits: (0, Duration::ZERO),
            reviewed: Duration::ZERO,
        }
    }
}

impl PacerState {
    /// Charges `bytes` and returns how long their writer waits.
    pub fn charge(&mut self, bytes: u64, now: Duration, rate: f64) -> Duration {
        let paid = now.saturating_sub(self.debt.at).as_secs_f64() * rate;
        self.debt = Debt { bytes: (self.debt.bytes - paid).max(0.0) + bytes as f64, at: now };
        let wait = Duration::from_secs_f64(self.debt.bytes / rate);
        let is_rare = WAITS_ONE_IN * bytes as f64 / rate <= PACED_WAIT_LONG.as_secs_f64();
        let least = if is_rare { PACED_WAIT_LONG } else { PACED_WAIT_MIN };
        if wait < least { Duration::ZERO } else { wait.min(PACED_WAIT_MAX) }
    }

    /// Whether a write has waited for its pace lately, if `waits` have so far.
    pub fn wait_lately(&mut self, now: Duration, waits: u64) -> bool {
        if self.waits.0 != waits {
            self.waits = (waits, now);
        }
        waits > 0 && now.saturating_sub(self.waits.1) < WAITS_FOR
    }

    /// Takes back the charge of a write that does not take place.
    pub fn refund(&mut self, bytes: u64) {
        self.debt.bytes = (self.debt.bytes - bytes as f64).max(0.0);
    }
}

impl Pacer {
    /// The current limit on the write rate: `None` without a limit, 0 while writers are stopped.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.state.lock().pace.bytes_per_second()
    }
}

#[cfg(test)]
#[path = "pacer_test.rs"]
mod tests;
