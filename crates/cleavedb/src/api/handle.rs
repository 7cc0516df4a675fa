//! The state shared by all handles on an open database. Dropping the last handle closes it.

use std::sync::Arc;

use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;

/// Shared by all handles; dropped with the last of them.
pub(crate) struct DbInner {
    pub(crate) core: Arc<Core>,
    /// The keyspace "default", so that calls of `Db` need not find it by its name.
    pub(crate) default: Arc<KeyspaceState>,
}

impl Drop for DbInner {
    fn drop(&mut self) {
        // A drop cannot report an error; `Db::close` does. No acknowledged write depends on this.
        let _ = self.core.close();
    }
}
