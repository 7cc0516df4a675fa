//! The queues of background work (DecouKV, section 4.3.1), as the scheduler's tuner and the statistics see them.

use std::sync::atomic::Ordering;

use crate::base::DirId;
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::engine::write::pacing::unflushed_log_bytes;

/// What waits.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Queues {
    /// The runs and sealed index tables that wait for a merge (IMQ).
    pub merge: usize,
    /// The jobs' worth of what waits to be written (DFQ): of flushes, of tables of HL0 beyond their trigger, and of logs to demote.
    pub flush: f64,
    /// How many of these jobs bind the fast tier, and how many the slow one.
    pub on_fast: f64,
    pub on_slow: f64,
}

/// The jobs' worth of each kind, and where HL0 lies.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    flushes: f64,
    compactions: f64,
    demotions: f64,
    are_apart: bool,
    /// New tables of HL0 lie on the fast tier.
    flushes_to_fast: bool,
    /// The present ones do.
    compacts_from_fast: bool,
}

impl Waiting {
    /// A flush reads logs, and demotion too; what compactions and demotions write lies on the slow tier.
    fn queues(self, merge: usize) -> Queues {
        let Waiting { flushes, compactions, demotions, .. } = self;
        let flush = flushes + compactions + demotions;
        if !self.are_apart {
            return Queues { merge, flush, on_fast: flush, on_slow: flush };
        }
        let on_fast = flushes + demotions + if self.compacts_from_fast { compactions } else { 0.0 };
        let on_slow = compactions + demotions + if self.flushes_to_fast { 0.0 } else { flushes };
        Queues { merge, flush, on_fast, on_slow }
    }
}

impl Core {
    /// What waits for background work. O(runs + logs + tables of HL0).
    pub fn queues(&self, view: &View) -> Queues {
        let setting = self.scheduler.setting();
        let weight: u64 = view.runs.iter().map(|run| run.weight()).sum();
        let logs = unflushed_log_bytes(view, self.work.flushed()).all;
        let jobs = |bytes: u64, each: u64| bytes as f64 / each.max(1) as f64;
        let levels = view.version.levels();
        let targets = self.level_targets();
        let trigger = targets.hl0_trigger(levels[0].bytes(), levels[1].bytes());
        let hl0 = levels[0].tables().len().saturating_sub(trigger);
        let may_demote = !self.fast.has_nothing_to_demote.load(Ordering::Relaxed) || self.pacer.moves.is_running();
        let (are_apart, fill) = (self.dirs.are_apart(), self.fast_fill());
        let waiting = Waiting {
            flushes: jobs(weight, setting.flush_bytes).max(jobs(logs, self.unflushed_bytes_max())),
            compactions: jobs(hl0 as u64, targets.hl0_trigger as u64),
            demotions: if are_apart && may_demote { fill.jobs_to_demote() } else { 0.0 },
            are_apart,
            flushes_to_fast: are_apart && fill.has_room_for_hl0(setting.flush_bytes),
            compacts_from_fast: levels[0].tables().iter().any(|table| table.key().dir == DirId::HOME),
        };
        waiting.queues(view.runs.len() + view.sealed.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_wait_for_the_tiers_that_they_read_and_write() {
        let waiting = Waiting {
            flushes: 1.0,
            compactions: 2.0,
            demotions: 4.0,
            are_apart: true,
            flushes_to_fast: false,
            compacts_from_fast: false,
        };
        let of = |waiting: Waiting| {
            let Queues { flush, on_fast, on_slow, .. } = waiting.queues(9);
            assert_eq!(flush, 7.0);
            (on_fast, on_slow)
        };
        let cases = [
            (waiting, (5.0, 7.0)),
            (Waiting { flushes_to_fast: true, ..waiting }, (5.0, 6.0)),
            (Waiting { flushes_to_fast: true, compacts_from_fast: true, ..waiting }, (7.0, 6.0)),
            (Waiting { are_apart: false, ..waiting }, (7.0, 7.0)),
        ];
        for (waiting, wanted) in cases {
            assert_eq!(of(waiting), wanted, "{waiting:?}");
        }
    }
}
