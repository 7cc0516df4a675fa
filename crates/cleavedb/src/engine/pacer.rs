//! The pace of writers: pure functions from the fill and drain of background work to a pace, and the state they need.
//! Decision record 013 has the reasons and figures.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::base::Result;
use crate::base::versions::{VersionRef, VersionSource};
use crate::sched::sync::Mutex;

/// A stage slows writers down from this fill on.
pub(crate) const SLOW_FROM: f64 = 0.5;

/// Writers go as fast as a stage drains at this fill.
pub(crate) const EVEN_AT: f64 = 0.75;

/// Each so much more fill halves the pace.
pub(crate) const HALVING: f64 = 0.09;

/// Room for so many times what the running job has yet to do is no reason to slow down.
pub(crate) const ROOM_AMPLE: f64 = 4.0;

/// A stage that has not been seen to drain yet is taken to drain this fast, in bytes per second.
pub(crate) const DRAIN_FIRST: f64 = 64e6;

/// The slowest pace, in bytes per second: with less, one large record would wait for seconds.
pub(crate) const PACE_MIN: f64 = 1e6;

/// One write waits at most so long for its pace; what it did not wait for, later writes do.
pub(crate) const PACED_WAIT_MAX: Duration = Duration::from_millis(8);

/// Shorter waits are saved up: few writes that wait for some milliseconds are better than many that wait for one (at a
/// hundred thousand writes a second, less than one in a thousand waits at all).
pub(crate) const PACED_WAIT_MIN: Duration = Duration::from_millis(5);

/// Drain rates are averaged over about this long, in seconds.
pub(crate) const DRAIN_MEMORY_S: f64 = 1.0;

/// Drain rates are sampled this often at most.
pub(crate) const SAMPLE_MIN: Duration = Duration::from_millis(20);

/// The pace is looked at again after so many bytes of writes, and by writers that wait for it.
pub(crate) const REVIEW_BYTES: u64 = 512 << 10;

/// DrainProgress is told after so many versions.
pub(crate) const STEPS_TOGETHER: u64 = 64;

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
    pub fn bytes_per_second(self) -> Option<u64> {
        match self {
            Pace::Free => None,
            Pace::Limited(rate) => Some(rate as u64),
            Pace::Stopped => Some(0),
        }
    }
}

/// A change of the pace that listeners are told of: of its kind, or by a quarter.
pub(crate) fn differs(now: Pace, told: Pace) -> bool {
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
    pub total: AtomicU64,
    /// Versions that the job reads.
    pub steps: AtomicU64,
    pub steps_done: AtomicU64,
    /// Drained by jobs that have ended.
    pub before: AtomicU64,
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
    pub fn current(&self) -> u64 {
        let (done, steps) = (self.steps_done.load(Ordering::Relaxed), self.steps.load(Ordering::Relaxed).max(1));
        (self.total.load(Ordering::Relaxed) as u128 * done.min(steps) as u128 / steps as u128) as u64
    }

    /// Bytes that the running job has yet to drain.
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

/// What writers have used of their pace.
#[derive(Default)]
pub(crate) struct Debt {
    pub bytes: f64,
    pub at: Duration,
}

/// The pace in force, and what it is made from.
#[derive(Default)]
pub(crate) struct Pacer {
    /// False while writers are free: all that a write looks at then.
    pub is_limited: AtomicBool,
    /// How many hold writers back altogether.
    pub gates: AtomicUsize,
    pub state: Mutex<PacerState>,
    /// Of the flush that is running, in bytes of runs and of the values they lead to.
    pub flush: DrainProgress,
    /// Of the compaction of HL0 that is running, in bytes of tables of HL0.
    pub hl0: DrainProgress,
}

pub(crate) struct PacerState {
    pub pace: Pace,
    /// What listeners were told last.
    pub told: Pace,
    pub debt: Debt,
    pub flush: DrainMeter,
    pub hl0: DrainMeter,
    pub reviewed: Duration,
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
    pub fn charge(&mut self, bytes: u64, now: Duration, rate: f64) -> Duration {
        let paid = now.saturating_sub(self.debt.at).as_secs_f64() * rate;
        self.debt = Debt { bytes: (self.debt.bytes - paid).max(0.0) + bytes as f64, at: now };
        let wait = Duration::from_secs_f64(self.debt.bytes / rate);
        if wait < PACED_WAIT_MIN { Duration::ZERO } else { wait.min(PACED_WAIT_MAX) }
    }

    /// The write that was charged does not take place.
    pub fn refund(&mut self, bytes: u64) {
        self.debt.bytes = (self.debt.bytes - bytes as f64).max(0.0);
    }
}

impl Pacer {
    /// The pace as users are told: `None` while they are free, 0 while they are stopped.
    pub fn bytes_per_second(&self) -> Option<u64> {
        self.state.lock().pace.bytes_per_second()
    }
}

#[cfg(test)]
#[path = "pacer_test.rs"]
mod tests;
