//! Pacing of a single bucket: a bucket that its upkeep cannot follow delays those who merge into it, and nobody else.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::{Error, Kind, Result, full_key};
use crate::deltas::policy::wait_units;
use crate::engine::batch::Batch;
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::sched::clock::now;

/// The shortest wait of a write.
const WAIT_MIN: Duration = Duration::from_millis(1);
/// Of a batch, at most this many operands are looked at, evenly spread.
const OPERANDS_LOOKED_AT: usize = 16;

impl Core {
    /// Notes whether there is a bucket that delays writes, which may be one that cannot be rewritten now. O(1).
    pub(super) fn note_overgrown(&self, view: &View) {
        let units = wait_units(view.directory.most(), self.settings.tuning.bucket_sizes());
        self.pacer.has_overgrown.store(units > 0, Ordering::Relaxed);
    }

    /// Delays a write that merges into a bucket which has outgrown its size several times, at most until `deadline`. One load if
    /// there is no such bucket.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if the delay would exceed `deadline`; the error of a closed or poisoned database.
    pub(super) fn wait_for_buckets(&self, batch: &Batch, deadline: Option<Duration>) -> Result<()> {
        if !self.pacer.has_overgrown.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (view, sizes) = (self.published.view(), self.settings.tuning.bucket_sizes());
        let step = batch.len().div_ceil(OPERANDS_LOOKED_AT).max(1);
        let operands = batch.operations().step_by(step).filter(|operation| operation.kind == Kind::Delta);
        let units = operands.filter_map(|operand| {
            let bucket = view.directory.find(&full_key(operand.keyspace, operand.key))?;
            Some(wait_units((bucket.extents.len(), bucket.bytes_newer()), sizes))
        });
        let wait = WAIT_MIN * units.max().unwrap_or_default();
        if wait.is_zero() {
            return Ok(());
        }
        let began = now();
        if deadline.is_some_and(|deadline| began + wait > deadline) {
            return Err(Error::WouldStall);
        }
        let mut state = self.work.lock();
        while let Some(left) = (began + wait).checked_sub(now()).filter(|left| !left.is_zero()) {
            self.check_open()?;
            self.check_poison()?;
            self.work.wait_for_progress_at_most(&mut state, left);
        }
        drop(state);
        self.count_wait(now().saturating_sub(began), false);
        Ok(())
    }
}
