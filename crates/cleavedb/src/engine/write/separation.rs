//! Changes from which size on the values of a keyspace are separated.

use crate::base::Result;
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::format::edit::{Edit, Separation};

impl Core {
    /// Changes the size from which values of a keyspace are separated.
    pub fn set_separation(&self, keyspace: &KeyspaceState, separation: Separation) -> Result<()> {
        self.check_writable()?;
        self.check_poison()?;
        let mut manifest = self.manifest.lock();
        keyspace.check(self.database)?;
        let mut edit = Edit { keyspaces_separated: vec![(keyspace.record.id, separation)], ..Edit::default() };
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)?;
        self.keyspaces.set_separation(keyspace, separation);
        Ok(())
    }
}
