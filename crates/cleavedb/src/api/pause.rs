//! Pausing background work: for measurements, and for moments at which a caller wants the device for itself.

use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::base::Result;

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

impl std::fmt::Debug for BackgroundPause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BackgroundPause")
    }
}
