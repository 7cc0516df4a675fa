//! Pausing background work: for measurements, and for callers that need the device to themselves.

use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::base::Result;

/// Background work is paused until this guard is dropped; see [`Db::pause_background`](crate::Db::pause_background).
/// Keeps the database open.
#[must_use = "background work resumes when this is dropped"]
pub struct BackgroundPause {
    db: Arc<DbInner>,
}

impl BackgroundPause {
    pub(crate) fn begin(db: &Arc<DbInner>) -> Result<BackgroundPause> {
        db.core.check_open()?;
        // Dropping the guard undoes the pause, even if `pause` returns an error.
        let pause = BackgroundPause { db: db.clone() };
        db.core.pause()?;
        Ok(pause)
    }

    /// Resumes background work, unless another guard still pauses it.
    pub fn resume(self) {}
}

impl Drop for BackgroundPause {
    fn drop(&mut self) {
        self.db.core.resume();
    }
}

impl std::fmt::Debug for BackgroundPause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundPause")
    }
}
