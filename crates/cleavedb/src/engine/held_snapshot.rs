//! A held sequence number. While it is held, jobs keep the versions that are visible to a reader at this number.
//! Snapshots and scans hold one.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::Seqno;
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::sched::clock::now;

/// Holds a sequence number until dropped.
pub(crate) struct HeldSnapshot {
    pub core: Arc<Core>,
    pub seqno: Seqno,
}

impl HeldSnapshot {
    /// Holds the newest visible sequence number, and returns the view that goes with it.
    pub fn newest(core: &Arc<Core>) -> (HeldSnapshot, Arc<View>) {
        let (view, seqno) = core.snapshots.hold(&core.published);
        (HeldSnapshot { core: core.clone(), seqno }, view)
    }

    /// Holds the same number once more, and returns the current view, which has all versions visible at that number.
    pub fn again(&self) -> (HeldSnapshot, Arc<View>) {
        self.core.snapshots.hold_again(self.seqno);
        (HeldSnapshot { core: self.core.clone(), seqno: self.seqno }, self.core.published.view())
    }
}

impl Drop for HeldSnapshot {
    fn drop(&mut self) {
        self.core.release_snapshot(self.seqno);
    }
}

impl Core {
    /// Releases a held sequence number, and wakes the jobs that this gives something to do.
    pub fn release_snapshot(&self, seqno: Seqno) {
        let is_awaited = self.snapshots.release(seqno);
        self.hash.undo_is_due.store(true, Ordering::Release);
        let keeps_records = self.hash.has_undo.load(Ordering::Acquire);
        if keeps_records {
            self.note_hashed_change();
        }
        if is_awaited || keeps_records || self.pending_deletions.has_work(now()) {
            self.work.wake();
        }
    }
}
