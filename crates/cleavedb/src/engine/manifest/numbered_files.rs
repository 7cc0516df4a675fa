//! The numbered files in the directories of a database, its own and those of others.

use std::path::PathBuf;

use crate::base::{FileId, FileKind, Result};
use crate::engine::manifest::file_names::parse;
use crate::engine::manifest::files::Dirs;
use crate::io::Storage;

/// Something with the name of a numbered file.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub path: PathBuf,
    pub kind: FileKind,
    pub id: FileId,
    /// It is a regular file; anything else is never ours.
    pub is_file: bool,
}

/// Everything in the directories of a database that has the name of a numbered file.
pub(crate) fn list_numbered(storage: &dyn Storage, dirs: &Dirs) -> Result<Vec<Numbered>> {
    let mut found = Vec::new();
    for (_, dir) in dirs.all() {
        for entry in storage.list(dir)? {
            if let Some((kind, id)) = parse(&entry.name) {
                found.push(Numbered { path: dir.join(&entry.name), kind, id, is_file: entry.is_file });
            }
        }
    }
    Ok(found)
}
