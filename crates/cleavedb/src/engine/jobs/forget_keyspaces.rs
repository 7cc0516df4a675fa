//! Removes dropped keyspaces from the manifest once nothing holds their versions.

use std::sync::Arc;

use crate::base::Result;
use crate::engine::core::Core;
use crate::format::edit::Edit;
use crate::levels::table::Table;

impl Core {
    /// Removes dropped keyspaces from the manifest once no run, log or table can hold their versions.
    pub fn forget_dropped_keyspaces(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let dropped = manifest.state().dropped.clone();
        if dropped.is_empty() {
            return Ok(());
        }
        let version = self.published.view().version.clone();
        let consumed = manifest.state().watermarks.least();
        let gone: Vec<_> = dropped
            .into_iter()
            .filter(|(keyspace, seqno)| {
                let overlaps = |table: &Arc<Table>| {
                    let meta = table.meta();
                    meta.smallest.as_slice() < &keyspace.0.saturating_add(1).to_be_bytes()[..]
                        && &keyspace.prefix()[..] < meta.end.as_slice()
                };
                *seqno <= consumed && !version.levels().iter().any(|level| level.tables().iter().any(overlaps))
            })
            .map(|(keyspace, _)| keyspace)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut edit = Edit { keyspaces_forgotten: gone.clone(), ..Edit::default() };
        self.add_counters(&mut edit);
        match self.commit_edit(&mut manifest, &edit) {
            Ok(()) => self.keyspaces.forget(&gone),
            // The calling job has succeeded; the next job retries this.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
