//! Pausing background work: for measurements, and for moments at which a caller wants the device for itself.

use std::sync::Arc;

use crate::api::db::DbInner;
use crate::base::{Error, Result};
use crate::engine::core::Core;

/// Background work stands still until this is dropped; see [`Db::pause_background`](crate::Db::pause_background). Keeps
/// the database open.
#[must_use = "background work goes on when this is dropped"]
pub struct BackgroundPause {
    db: Arc<DbInner>,
}

impl BackgroundPause {
    pub(crate) fn begin(db: &Arc<DbInner>) -> Result<BackgroundPause> {
        db.core.check_open()?;
        // Undone by the drop, also if a wait is given up.
        let pause = BackgroundPause { db: db.clone() };
        db.core.pause()?;
        Ok(pause)
    }

    /// Lets background work go on, unless someone else has paused it too.
    pub fn resume(self) {}
}

impl Drop for BackgroundPause {
    fn drop(&mut self) {
        self.db.core.resume();
    }
}

impl Core {
    /// Begins no more jobs, and waits for those that run.
    fn pause(&self) -> Result<()> {
        let mut state = self.work.lock();
        state.pauses += 1;
        // Some end their waiting when a pause begins.
        self.work.notify_progress();
        while state.running > 0 || state.compacting_threads > 0 {
            if self.work.is_stopping(&state) {
                return Err(Error::Closed);
            }
            self.work.wait_for_progress(&mut state);
        }
        Ok(())
    }

    fn resume(&self) {
        self.work.lock().pauses -= 1;
        self.work.wake_all();
    }

    /// Refuses to wait for background work that stands still.
    pub fn check_not_paused(&self) -> Result<()> {
        match self.work.lock().pauses {
            0 => Ok(()),
            _ => Err(paused()),
        }
    }
}

/// Why something that needs background work is refused during a pause.
pub(crate) fn paused() -> Error {
    Error::input("background work is paused")
}

impl std::fmt::Debug for BackgroundPause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundPause")
    }
}
