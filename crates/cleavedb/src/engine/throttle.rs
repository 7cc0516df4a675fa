//! Spreads the work of a job over time: after each few milliseconds of work it pauses, as the pace of value GC requires
//! ([`GcPace`](crate::engine::gc_pace::GcPace)), or so that users who read get a part of the time.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::engine::core::Core;
use crate::engine::gc_pace::share_of_job;
use crate::engine::pacer::SLOW_FROM;
use crate::engine::work::WorkState;
use crate::sched::clock::now;

/// A job works at least this long between two pauses.
const WORK_MIN: Duration = Duration::from_millis(1);
/// Shorter pauses are left to the next one.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// A job pauses no longer than this in all: until it ends it keeps a view, and a collection memory to sort.
const PAUSED_MAX: Duration = Duration::from_secs(20);
/// The share is determined anew after this much of a pause.
const REVIEW_EACH: Duration = Duration::from_millis(10);

/// A compaction pauses no longer than this at a time. At its yield points it may have done other work in between, which counts, and its
/// thread may have to do more of that.
const COMPACTION_PAUSE_MAX: Duration = Duration::from_millis(20);

/// How long value GC rests is determined anew after this time: its share may change at any time.
const REST_REVIEWED_EACH: Duration = Duration::from_millis(50);

/// The share of each thread of a compaction that yields to reads. It computes nearly all of that time, and there may be as many
/// threads as processors.
const COMPACTION_SHARE: f64 = 0.25;
/// Up to this fill of HL0 a compaction yields to reads; beyond it yields less.
const YIELDS_UP_TO: f64 = 0.3;

/// The share of the time that a job works now.
type Share = fn(&Core) -> f64;

/// The pauses of a job.
pub(crate) struct Throttle<'a> {
    /// The share of the time that it works; `None` if it never pauses.
    pace: Option<(&'a Core, Share)>,
    /// When the last pause ended.
    since: Duration,
    paused: Duration,
    /// The longest pause.
    pause_max: Duration,
}

impl<'a> Throttle<'a> {
    fn new(core: &'a Core, share: Share) -> Throttle<'a> {
        Throttle { pace: Some((core, share)), since: now(), paused: Duration::ZERO, pause_max: Duration::MAX }
    }

    /// Pauses as the pace of value GC requires of a job that has begun.
    pub fn of_gc(core: &'a Core) -> Throttle<'a> {
        Throttle::new(core, |core| share_of_job(core.gc_share()))
    }

    /// Yields to users who read.
    pub fn beside_reads(core: &'a Core) -> Throttle<'a> {
        Throttle::new(core, Core::share_beside_reads)
    }

    /// Yields to users who read as long as HL0 has room.
    pub fn of_compaction(core: &'a Core) -> Throttle<'a> {
        Throttle { pause_max: COMPACTION_PAUSE_MAX, ..Throttle::new(core, Core::compaction_share) }
    }

    /// Never pauses.
    pub fn none() -> Throttle<'a> {
        Throttle { pace: None, since: Duration::ZERO, paused: Duration::ZERO, pause_max: Duration::MAX }
    }

    /// The time spent in pauses.
    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// The job has waited for something else, which counts as a pause.
    pub fn note_waited(&mut self, waited: Duration) {
        self.since += waited;
        self.paused += waited;
    }

    /// Pauses, if it is time to.
    pub fn pause(&mut self) {
        let Some((core, share)) = self.pace else { return };
        let begun = now();
        let worked = begun.saturating_sub(self.since);
        if worked < WORK_MIN || self.paused >= PAUSED_MAX {
            return;
        }
        let mut ends = begun;
        loop {
            let until = begun + worked.mul_f64(1.0 / share(core) - 1.0).min(self.pause_max);
            let left = until.saturating_sub(ends);
            if left < PAUSE_MIN {
                break;
            }
            let mut state = core.work.lock();
            // Writers get no space for logs while the reserve is lent.
            if state.hurries() || core.reserve.is_lent() {
                break;
            }
            core.work.wait_for_change(&mut state, Some(left.min(REVIEW_EACH)));
            drop(state);
            ends = now();
        }
        self.paused += ends.saturating_sub(begun);
        self.since = ends;
    }
}

/// The share of a compaction that leaves users who read the rest, while HL0 has this fill: all of the time before writers would be
/// slowed down.
fn yielding(fill: f64) -> f64 {
    let filled = (fill - YIELDS_UP_TO) / (SLOW_FROM - YIELDS_UP_TO);
    COMPACTION_SHARE + (1.0 - COMPACTION_SHARE) * filled.clamp(0.0, 1.0)
}

impl Core {
    /// The share of the time that value GC works now.
    pub fn gc_share(&self) -> f64 {
        if self.scan_demand.covers(self.settings.tuning.flush_bytes) && self.scan_demand.goes_on(now()) {
            // Values are to be put in order for scans, when this collection has ended.
            return 1.0;
        }
        let debt = self.garbage_debt(&self.published.view().values);
        let mut pace = self.work.space.gc_pace.lock();
        let share = pace.share(now(), self.user_totals(), debt);
        self.work.space.reads_go_on.store(pace.users_read(now()), Ordering::Relaxed);
        share
    }

    /// True if somebody had lately read when value GC last asked for its share.
    pub fn users_read(&self) -> bool {
        self.work.space.reads_go_on.load(Ordering::Relaxed)
    }

    /// How long value GC rests yet before its next job.
    pub fn gc_rests_for(&self, state: &WorkState) -> Duration {
        // As a pause ends early.
        if state.hurries() || self.reserve.is_lent() {
            return Duration::ZERO;
        }
        let share = self.gc_share();
        self.work.space.gc_pace.lock().rests_for(now(), share)
    }

    /// When a thread that waits for value GC to have rested is to look again.
    pub fn gc_rest_review_in(&self) -> Option<Duration> {
        let may_rest = self.work.space.gc_pace.lock().may_rest(now(), REST_REVIEWED_EACH);
        may_rest.then_some(REST_REVIEWED_EACH)
    }

    /// The share of the time that a job works which leaves the other half to users who read.
    pub fn share_beside_reads(&self) -> f64 {
        // Writers may soon wait for a demotion that such a job keeps from beginning.
        if self.fast_fill().wants_room() {
            return 1.0;
        }
        self.work.space.gc_pace.lock().share_beside_reads(now(), self.user_totals())
    }

    /// The share of the time that a compaction works: all of it if a caller works on one, or waits for what another one does, and while
    /// writers are stopped.
    pub fn compaction_share(&self) -> f64 {
        if self.share_beside_reads() == 1.0 || self.work.has_calls() || self.stops_writers() {
            return 1.0;
        }
        // What fills the front are flushes that are behind, and a compaction takes processor and device from them.
        let (_, hl0) = self.fills(&self.published.view());
        yielding(hl0)
    }
}

#[cfg(test)]
#[path = "throttle_test.rs"]
mod tests;
