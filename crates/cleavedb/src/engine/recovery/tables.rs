//! Opens the tables that the manifest references.

use std::sync::Arc;

use crate::base::{Error, Result};
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::files::Dirs;
use crate::format::buckets::SEGMENT_LEVEL;
use crate::io::file_guard::FileGuard;
use crate::io::pending_deletions::PendingDeletions;
use crate::levels::readers::Readers;
use crate::levels::table::Table;
use crate::levels::version::{LEVELS_MAX, Version};

pub(crate) fn open_tables(
    dirs: &Dirs,
    state: &ManifestState,
    pending_deletions: &Arc<PendingDeletions>,
    readers: &Arc<Readers>,
) -> Result<Version> {
    let mut tables = Vec::new();
    for (level, meta) in state.tables.values() {
        let file = state.file(meta.id);
        let path = dirs.path(file);
        if *level as usize >= LEVELS_MAX && *level != SEGMENT_LEVEL {
            return Err(Error::corruption(&path, 0, format!("the manifest puts this table into level {level}")));
        }
        let guard = FileGuard::new(file, path, pending_deletions.clone());
        tables.push((*level as usize, Table::new(readers, guard, meta.clone())?));
    }
    Ok(Version::default().apply(&tables, &[]))
}
