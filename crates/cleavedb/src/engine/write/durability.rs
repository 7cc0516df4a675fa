//! The durable horizon: the sequence number up to which all writes survive loss of power, on every device (rule 2).
//!
//! Syncs are cumulative and shared: one sync is in flight at a time. It covers all writes appended before it starts,
//! and completes every waiting call whose sequence number it covers.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::base::panics::guard_panic;
use crate::base::{Error, Result, Seqno};
use crate::engine::commit_queue::CommitState;
use crate::engine::core::Core;
use crate::engine::tuning::sizes::Canary;
use crate::sched::clock::now;
use crate::sched::thread::try_spawn;

impl Core {
    /// Makes all writes so far durable.
    pub fn sync(&self) -> Result<()> {
        let seqno = self.commit.lock().last_seqno;
        self.sync_to(seqno)
    }

    /// Makes all writes up to `seqno` durable.
    pub fn sync_to(&self, seqno: Seqno) -> Result<()> {
        let mut syncing = self.horizon.syncing.lock();
        loop {
            if self.horizon.durable() >= seqno {
                return Ok(());
            }
            if !syncing.is_running {
                break;
            }
            self.horizon.synced.wait(&mut syncing);
            if let Some(error) = syncing.failed.as_ref().filter(|_| self.horizon.durable() < seqno) {
                return Err(error.clone());
            }
        }
        syncing.is_running = true;
        drop(syncing);
        let result = self.check_poison().and_then(|()| self.guarded(guard_panic("a sync", || self.sync_logs())));
        let mut syncing = self.horizon.syncing.lock();
        syncing.is_running = false;
        if let Err(error) = &result
            && !error.is_transient()
        {
            syncing.failed.get_or_insert_with(|| error.clone());
        }
        drop(syncing);
        self.horizon.synced.notify_all();
        result
    }

    /// Syncs every log that has records that are not yet durable.
    fn sync_logs(&self) -> Result<()> {
        let (target, point, end, earlier) = {
            let mut commit = self.commit.lock();
            let last = commit.last_seqno;
            let durable = self.horizon.durable();
            let end = |commit: &CommitState| Some(commit.writer.as_ref()?.active()?.end());
            let before = end(&commit).unwrap_or_default();
            let point = commit.writer.as_mut().map(|writer| writer.prepare_sync(last, durable)).transpose()?;
            let after = end(&commit).unwrap_or_default();
            let padding = after - before;
            self.counters.log_bytes.fetch_add(padding, Ordering::Relaxed);
            (last, point, after, commit.unsynced.clone())
        };
        match &point {
            Some(point) => point.wait()?,
            // A close has taken the log writer; it has synced the logs, or failed to.
            None if target > self.horizon.durable() => return Err(Error::Closed),
            None => {}
        }
        if self.settings.tuning.canary != Some(Canary::SyncSkipsEarlierLogs) {
            for log in &earlier {
                log.file().sync()?;
            }
        }
        if let Some(log) = point.as_ref().and_then(|point| point.log.as_ref()) {
            log.file().sync()?;
        }
        self.commit.lock().unsynced.retain(|log| !earlier.iter().any(|synced| Arc::ptr_eq(synced, log)));
        if let Some(log) = point.as_ref().and_then(|point| point.log.as_ref()) {
            *self.horizon.synced_end.lock() = (log.id(), end);
        }
        self.horizon.durable.fetch_max(target.0, Ordering::AcqRel);
        Ok(())
    }

    /// Schedules a sync of all writes so far within `interval`.
    pub fn sync_within(self: &Arc<Core>, interval: Duration) -> Result<()> {
        let due = now().saturating_add(interval);
        let mut state = self.horizon.interval.lock();
        if state.thread.is_none() && !state.stop {
            let core = self.clone();
            match try_spawn("cleave-interval", move || core.run_interval_thread()) {
                Ok(thread) => state.thread = Some(thread),
                // The write is in the log already. It is synced at once, and the next write tries to start the thread
                // again.
                Err(_) => {
                    drop(state);
                    return self.sync();
                }
            }
        }
        if state.deadline.is_none_or(|deadline| due < deadline) {
            state.deadline = Some(due);
            drop(state);
            self.horizon.interval_changed.notify_all();
        }
        Ok(())
    }

    fn run_interval_thread(&self) {
        let mut state = self.horizon.interval.lock();
        while !state.stop {
            match state.deadline {
                None => self.horizon.interval_changed.wait(&mut state),
                Some(deadline) if deadline > now() => {
                    self.horizon.interval_changed.wait_for(&mut state, deadline.saturating_sub(now()));
                }
                Some(_) => {
                    state.deadline = None;
                    drop(state);
                    // A failure has poisoned the database, which the next write reports.
                    let _ = self.sync();
                    state = self.horizon.interval.lock();
                }
            }
        }
    }
}
