//! Callers that wait for background work, and callers that pause it.
//!
//! Each wait ends when the database is closed, when writes are poisoned, and when the awaited job finds no space.
//! During a pause a new call fails. A call that holds a resource the holder of a pause may need, or that the holder may
//! wait for, also fails if the pause begins while it waits.

use crate::base::{Error, Result, Seqno};
use crate::engine::binds::Binds;
use crate::engine::claims::Claims;
use crate::engine::core::Core;
use crate::engine::shortages::Need;
use crate::engine::view::View;
use crate::engine::work::{Class, MemoryShare, Profile, WorkState, Writer, paused};

impl Core {
    /// Flushes the whole front and waits for it. If a pause begins meanwhile, this waits until it ends.
    pub fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.check_not_paused()?;
        self.flush_front(false)
    }

    /// As [`flush`](Core::flush), also while closing. If a pause begins meanwhile, this waits until it ends, or fails
    /// if `ends_at_pause`.
    pub fn flush_front(&self, ends_at_pause: bool) -> Result<()> {
        let target = {
            let mut commit = self.commit.lock();
            self.check_poison()?;
            self.seal(&mut commit);
            commit.last_seqno
        };
        let _call = self.work.begin_call();
        let mut state = self.work.lock();
        let since = state.begun();
        state.flush_target = state.flush_target.max(target);
        state.shortages.try_now(Need::Flush);
        self.work.notify_changed();
        while self.is_in_front(&self.published.view(), target) {
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
        drop(state);
        // What went to hash keyspaces is in no table, and is as durable as what is.
        if self.keyspaces.has_hashed() { self.sync_to(target) } else { Ok(()) }
    }

    /// True if the front holds versions up to `target` in tables or runs that are to be flushed.
    pub fn is_in_front(&self, view: &View, target: Seqno) -> bool {
        let is_there = || !view.sealed.is_empty() || view.runs.iter().any(|run| run.seqnos().0 <= target);
        self.work.flushed() < target && is_there()
    }

    /// Requests a flush of everything written so far; does not wait.
    pub fn seal_front(&self) {
        let target = {
            let mut commit = self.commit.lock();
            self.seal(&mut commit);
            commit.last_seqno
        };
        let mut state = self.work.lock();
        state.flush_target = state.flush_target.max(target);
    }

    /// Waits while HL0 is full. Fails during a pause: only a compaction shrinks HL0, and the caller may be the holder
    /// of the pause.
    pub fn wait_for_hl0(&self) -> Result<()> {
        let _call = self.work.begin_call();
        let mut state = self.work.lock();
        let since = state.begun();
        while self.published.view().version.levels()[0].tables().len() >= self.settings.tuning.hl0_stop_tables {
            self.check_open()?;
            self.check_poison()?;
            state.shortages.check(Some(Need::Compaction), since)?;
            if state.is_paused() {
                return Err(paused());
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    /// Waits until no job is running or due, idle work included.
    pub fn wait_for_background(&self) -> Result<()> {
        self.check_open()?;
        if self.settings.read_only {
            return Ok(());
        }
        // Deletes make something to collect, too, but only full logs have it looked for.
        if self.keyspaces.has_hashed() {
            self.note_hashed_change();
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

    /// Registers a call that writes files in its caller's thread; a close waits for it, a pause does not.
    pub fn begin_writer(&self, name: &'static str) -> Result<Writer<'_>> {
        self.claim_for_writer(name, |_| ((), Claims::default())).map(|((), writer)| writer)
    }

    /// As `begin_writer`, with claims that are chosen under the work lock.
    pub fn claim_for_writer<T>(
        &self,
        name: &'static str,
        choose: impl FnOnce(&WorkState) -> (T, Claims),
    ) -> Result<(T, Writer<'_>)> {
        let mut state = self.work.lock();
        self.check_open()?;
        let (chosen, claims) = choose(&state);
        let (binds, class) = (Binds::write(self.dirs.slow_tier()), Class::Mandatory);
        let (memory, need) = (MemoryShare::Nothing, Need::Flush);
        let profile = Profile { name, claims, binds, class, memory, need, meets_need: false };
        Ok((chosen, self.work.begin_writer(&mut state, profile)))
    }

    /// Stops beginning jobs and writing statistics, and waits for the running jobs.
    pub fn pause(&self) -> Result<()> {
        let mut state = self.work.lock();
        state.begin_pause();
        // Some waiting calls end when a pause begins.
        self.work.notify_progress();
        while state.has_jobs() {
            if state.is_stopped() {
                return Err(Error::Closed);
            }
            self.work.wait_for_progress(&mut state);
        }
        drop(state);
        // The statistics page may be in the middle of a write.
        drop(self.stats_page.state.lock());
        Ok(())
    }

    pub fn resume(&self) {
        self.work.lock().end_pause();
        self.work.wake_all();
    }

    /// Fails if background work is paused.
    pub fn check_not_paused(&self) -> Result<()> {
        if self.work.lock().has_pauses() { Err(paused()) } else { Ok(()) }
    }
}
