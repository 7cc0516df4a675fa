//! Spreads the work of value GC over time: after each few milliseconds of work, a collection pauses as the pace of value
//! GC requires ([`GcPace`](crate::engine::gc_pace::GcPace)).

use std::time::Duration;

use crate::engine::core::Core;
use crate::sched::clock::now;

/// A collection works at least this long between two pauses.
const WORK_MIN: Duration = Duration::from_millis(1);
/// Shorter pauses are left to the next one.
const PAUSE_MIN: Duration = Duration::from_micros(100);
/// A collection pauses no longer than this in all: until it ends it keeps a view, and memory to sort.
const PAUSED_MAX: Duration = Duration::from_secs(20);
/// The share is determined anew after this much of a pause.
const REVIEW_EACH: Duration = Duration::from_millis(10);

/// The pauses of a collection.
pub(crate) struct Throttle<'a> {
    /// `None` if it never pauses.
    core: Option<&'a Core>,
    /// When the last pause ended.
    since: Duration,
    paused: Duration,
}

impl<'a> Throttle<'a> {
    /// Pauses as the pace of value GC requires.
    pub fn of_gc(core: &'a Core) -> Throttle<'a> {
        Throttle { core: Some(core), since: now(), paused: Duration::ZERO }
    }

    /// Never pauses.
    pub fn none() -> Throttle<'a> {
        Throttle { core: None, since: Duration::ZERO, paused: Duration::ZERO }
    }

    /// The time spent in pauses.
    pub fn paused(&self) -> Duration {
        self.paused
    }

    /// The collection has waited for something else, which counts as a pause.
    pub fn note_waited(&mut self, waited: Duration) {
        self.since += waited;
        self.paused += waited;
    }

    /// Pauses, if it is time to.
    pub fn pause(&mut self) {
        let Some(core) = self.core else { return };
        let begun = now();
        let worked = begun.saturating_sub(self.since);
        if worked < WORK_MIN || self.paused >= PAUSED_MAX {
            return;
        }
        let mut ends = begun;
        loop {
            let until = begun + worked.mul_f64(1.0 / core.gc_share() - 1.0);
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

impl Core {
    /// The share of the time that value GC works now.
    pub fn gc_share(&self) -> f64 {
        if self.scan_demand.covers(self.settings.tuning.flush_bytes) && self.scan_demand.goes_on(now()) {
            // Values are to be put in order for scans, when this collection has ended.
            return 1.0;
        }
        let debt = self.garbage_debt(&self.published.view().values);
        self.work.space.gc_pace.lock().share(now(), self.user_totals(), debt)
    }
}

#[cfg(test)]
#[path = "throttle_test.rs"]
mod tests;
