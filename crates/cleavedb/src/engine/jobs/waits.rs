//! Callers that wait for background work, and callers that pause it.
//!
//! Each wait ends when the database is closed, when writes are poisoned, and when the job that it waits for finds no space.
//! During a pause a call is refused. A call that holds something back which the holder of a pause may need, or that the
//! holder may wait for, is also refused if the pause begins while it waits.

use crate::base::{Error, Result};
use crate::engine::claims::Claims;
use crate::engine::core::Core;
use crate::engine::shortages::Need;
use crate::engine::work::{Bound, Class, MemoryShare, Profile, WorkState, Writer, paused};

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
        let since = state.begun();
        state.flush_target = state.flush_target.max(target);
        state.shortages.try_now(Need::Flush);
        self.work.notify_changed();
        let in_front = || {
            let view = self.published.view();
            !view.sealed.is_empty() || view.runs.iter().any(|run| run.seqnos().0 <= target)
        };
        while self.work.flushed() < target && in_front() {
            if state.is_stopped() {
                return Err(Error::Closed);
            }
            self.check_poison()?;
            state.shortages.check(Some(Need::Flush), since)?;
            if ends_at_pause && state.is_paused() {
                return Err(paused());
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    /// Everything that was written is to be flushed; does not wait.
    pub fn seal_front(&self) {
        let target = {
            let mut commit = self.commit.lock();
            self.seal(&mut commit);
            commit.last_seqno
        };
        let mut state = self.work.lock();
        state.flush_target = state.flush_target.max(target);
    }

    /// Waits while HL0 has as many tables as it may. Refused during a pause: only a compaction makes HL0 smaller, and the
    /// caller may be the holder of the pause.
    pub fn wait_for_hl0(&self) -> Result<()> {
        let mut state = self.work.lock();
        let since = state.begun();
        while self.published.view().version.levels()[0].tables().len() >= self.settings.tuning.hl0_stop_tables {
            self.check_open()?;
            self.check_poison()?;
            state.check_space(since)?;
            if state.is_paused() {
                return Err(paused());
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    /// Waits until nothing runs and nothing is due, idle work included.
    pub fn wait_for_background(&self) -> Result<()> {
        self.check_open()?;
        if self.settings.read_only {
            return Ok(());
        }
        let mut state = self.work.lock();
        let since = state.begun();
        state.begin_waiting();
        self.work.notify_changed();
        let result = loop {
            if state.is_done() {
                break Ok(());
            }
            if state.is_stopped() {
                break Err(Error::Closed);
            }
            if let Err(error) = self.check_poison().and_then(|()| state.check_space(since)) {
                break Err(error);
            }
            self.work.wait_for_progress(&mut state);
        };
        state.end_waiting();
        result
    }

    /// Notes a call that writes files in its caller's thread; a close waits for its end, a pause does not.
    pub fn begin_writer(&self, name: &'static str) -> Result<Writer<'_>> {
        self.claim_for_writer(name, |_| ((), Claims::default())).map(|((), writer)| writer)
    }

    /// The same with claims, which are chosen under the work lock.
    pub fn claim_for_writer<T>(
        &self,
        name: &'static str,
        choose: impl FnOnce(&WorkState) -> (T, Claims),
    ) -> Result<(T, Writer<'_>)> {
        let mut state = self.work.lock();
        self.check_open()?;
        let (chosen, claims) = choose(&state);
        let (binds, class) = (&[Bound::WriteSlow], Class::Mandatory);
        let (memory, need) = (MemoryShare::Nothing, Need::Flush);
        let profile = Profile { name, claims, binds, class, memory, need, meets_need: false };
        Ok((chosen, self.work.begin_writer(&mut state, profile)))
    }

    /// Begins no more jobs, and waits for those that run.
    pub fn pause(&self) -> Result<()> {
        let mut state = self.work.lock();
        state.begin_pause();
        // Some end their waiting when a pause begins.
        self.work.notify_progress();
        while state.has_jobs() {
            if state.is_stopped() {
                return Err(Error::Closed);
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    pub fn resume(&self) {
        self.work.lock().end_pause();
        self.work.wake_all();
    }

    /// Refuses to wait for background work that stands still.
    pub fn check_not_paused(&self) -> Result<()> {
        if self.work.lock().has_pauses() { Err(paused()) } else { Ok(()) }
    }
}
