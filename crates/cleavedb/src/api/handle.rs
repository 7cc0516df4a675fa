//! What all handles on an open database share. The last handle to go closes it.

use std::sync::Arc;

use crate::engine::core::Core;

/// What handles share; dropped with the last of them.
pub(crate) struct DbInner {
    pub(crate) core: Arc<Core>,
}

impl Drop for DbInner {
    fn drop(&mut self) {
        // Nobody is left to tell; call `close` to hear of it. Nothing acknowledged depends on this.
        let _ = self.core.close();
    }
}
