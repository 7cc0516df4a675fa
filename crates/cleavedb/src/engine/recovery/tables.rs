//! Opens the tables that the manifest references.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, Result};
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::file_names::{FileKind, parse, table_name};
use crate::engine::recovery::ownership::tables_elsewhere;
use crate::io::pending_deletions::{FileGuard, PendingDeletions};
use crate::levels::readers::Readers;
use crate::levels::table::Table;
use crate::levels::version::{LEVELS_MAX, Version};

pub(crate) fn open_tables(
    slow: &Path,
    state: &ManifestState,
    pending_deletions: &Arc<PendingDeletions>,
    readers: &Arc<Readers>,
) -> Result<Version> {
    let mut tables = Vec::new();
    let all = &state.tables;
    if let Some(first) = all.keys().next()
        && !readers.storage.exists(&slow.join(table_name(*first)))?
    {
        let listed = readers.storage.list(slow)?;
        let is_table = |name: &str| matches!(parse(name), Some((FileKind::Table, id)) if all.contains_key(&id));
        if all.len() > 1 && !listed.iter().any(|entry| is_table(&entry.name)) {
            return Err(tables_elsewhere(slow));
        }
    }
    for (level, meta) in all.values() {
        let path = slow.join(table_name(meta.id));
        if *level as usize >= LEVELS_MAX {
            return Err(Error::corruption(&path, 0, format!("the manifest puts this table into level {level}")));
        }
        let guard = FileGuard::new(path, pending_deletions.clone());
        tables.push((*level as usize, Table::new(readers, guard, meta.clone())?));
    }
    Ok(Version::default().apply(&tables, &[]))
}
