//! Callers that wait for background work to make the front or HL0 smaller.
//!
//! Each wait ends when the database is closed, when writes are poisoned, and when the job that it waits for finds no space.
//! During a pause a call is refused. A call that holds something back which the holder of a pause may need, or that the
//! holder may wait for, is also refused if the pause begins while it waits.

use crate::base::{Error, Result};
use crate::engine::core::Core;
use crate::engine::jobs::pause::paused;
use crate::engine::jobs::retry::Need;

impl Core {
    /// Writes everything in the front to tables and waits for it. A pause that begins meanwhile is waited out.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.check_not_paused()?;
        self.flush_front(false)
    }

    /// As [`flush`](Core::flush), also while closing. If a pause begins meanwhile it is waited out, unless
    /// `ends_at_pause`.
    pub fn flush_front(&self, ends_at_pause: bool) -> Result<()> {
        let target = {
            let mut commit = self.commit.lock();
            self.check_poison()?;
            self.seal(&mut commit);
            commit.last_seqno
        };
        let mut state = self.work.lock();
        let since = state.started;
        state.flush_target = state.flush_target.max(target);
        state.shortages.try_now(Need::Flush);
        self.work.changed.notify_all();
        let in_front = || {
            let view = self.published.view();
            !view.sealed.is_empty() || view.runs.iter().any(|run| run.seqnos().0 <= target)
        };
        while self.work.flushed() < target && in_front() {
            if state.stop {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            state.shortages.check(Some(Need::Flush), since)?;
            if ends_at_pause && self.is_paused(&state) {
                return Err(paused());
            }
            self.work.progress.wait(&mut state);
        }
        Ok(())
    }

    /// Everything that was written is to be flushed; does not wait.
    pub fn seal_front(&self) -> Result<()> {
        let target = {
            let mut commit = self.commit.lock();
            self.seal(&mut commit);
            commit.last_seqno
        };
        let mut state = self.work.lock();
        state.flush_target = state.flush_target.max(target);
        Ok(())
    }

    /// Waits while HL0 has as many tables as it may. Refused during a pause: only a compaction makes HL0 smaller, and the
    /// caller may be the holder of the pause.
    pub fn wait_for_hl0(&self) -> Result<()> {
        let mut state = self.work.lock();
        let since = state.started;
        while self.published.view().version.levels()[0].tables().len() >= self.settings.tuning.hl0_stop_tables {
            self.check_open()?;
            self.check_poison()?;
            state.check_space(since)?;
            if self.is_paused(&state) {
                return Err(paused());
            }
            self.work.progress.wait(&mut state);
        }
        Ok(())
    }
}
