//! Background work stands still while somebody holds a pause.

use crate::base::{Error, Result};
use crate::engine::core::Core;

impl Core {
    /// Begins no more jobs, and waits for those that run.
    pub fn pause(&self) -> Result<()> {
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

    pub fn resume(&self) {
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
