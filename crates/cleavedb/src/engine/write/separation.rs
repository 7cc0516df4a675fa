//! Changes options of a keyspace: from which size on its values are separated, and where its merge operands are kept.

use crate::base::Result;
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::format::edit::Edit;
use crate::format::keyspace_record::{DeltaPlacement, Separation};

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

    /// Changes where flushes write the merge operands of a keyspace.
    pub fn set_delta_placement(&self, keyspace: &KeyspaceState, deltas: DeltaPlacement) -> Result<()> {
        self.check_writable()?;
        self.check_poison()?;
        let mut manifest = self.manifest.lock();
        keyspace.check(self.database)?;
        let mut edit = Edit { keyspaces_placed: vec![(keyspace.record.id, deltas)], ..Edit::default() };
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)?;
        self.keyspaces.set_delta_placement(keyspace, deltas);
        drop(manifest);
        // Buckets that are no longer wanted are to be emptied.
        self.work.wake();
        Ok(())
    }
}
