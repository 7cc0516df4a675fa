//! The queues of background work (DecouKV, section 4.3.1), as the scheduler's tuner and the statistics see them.

use std::sync::atomic::Ordering;

use crate::engine::core::Core;
use crate::engine::view::View;
use crate::engine::write::pacing::unflushed_log_bytes;

impl Core {
    /// The runs and sealed index tables that wait for a merge (IMQ), and the jobs' worth of what waits to be written (DFQ): of
    /// flushes, of tables of HL0 beyond their trigger, and of logs to demote. O(runs + logs).
    pub fn queues(&self, view: &View) -> (usize, f64) {
        let setting = self.scheduler.setting();
        let weight: u64 = view.runs.iter().map(|run| run.weight()).sum();
        let logs = unflushed_log_bytes(view, self.work.flushed()).all;
        let jobs = |bytes: u64, each: u64| bytes as f64 / each.max(1) as f64;
        let flushes = jobs(weight, setting.flush_bytes).max(jobs(logs, self.unflushed_bytes_max()));
        let levels = view.version.levels();
        let targets = self.level_targets();
        let trigger = targets.hl0_trigger(levels[0].bytes(), levels[1].bytes());
        let hl0 = levels[0].tables().len().saturating_sub(trigger);
        let may_demote = !self.fast.has_nothing_to_demote.load(Ordering::Relaxed) || self.pacer.moves.is_running();
        let demotions = if self.dirs.are_apart() && may_demote { self.fast_fill().jobs_to_demote() } else { 0.0 };
        (view.runs.len() + view.sealed.len(), flushes + jobs(hl0 as u64, targets.hl0_trigger as u64) + demotions)
    }
}
