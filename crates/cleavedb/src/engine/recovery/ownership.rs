//! Ownership of directories, and of the files in them.
//!
//! A database takes a directory only if no file in it has a name that databases use. In its directories it removes an
//! unreferenced file only if the manifest had reserved the file's id before the file was created; any other such file
//! stays and is reported. Called by `open.rs`, `check.rs` and `core.rs`.

use std::path::{Path, PathBuf};

use crate::base::{Error, FileId, FileKind, Result};
use crate::engine::manifest::Manifest;
use crate::engine::manifest::file_names::{
    CURRENT, CURRENT_NEW, OWNER, OWNER_NEW, RESERVE, RING, RING_NEW, STATS, name, parse,
};
use crate::engine::manifest::files::{DeclaredDirs, Dirs};
use crate::engine::manifest::numbered_files::{Numbered, list_numbered};
use crate::engine::recovery::owner::another_owner;
use crate::io::{DirEntry, Storage, read_whole};

/// References of files without ids.
const FIXED: [&str; 8] = [CURRENT, CURRENT_NEW, OWNER, OWNER_NEW, RING, RING_NEW, RESERVE, STATS];

/// The status of a numbered file according to a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileClaim {
    Referenced,
    /// This database created it, and nothing references it.
    LeftOver,
    /// This database did not create it.
    Unknown,
}

/// The status of a file according to the manifest.
pub(crate) fn claim_of(manifest: &Manifest, dirs: &Dirs, file: &Numbered) -> FileClaim {
    let state = manifest.state();
    let is_referenced = match file.kind {
        FileKind::Manifest => manifest.named() == Some(file.id) && file.path.parent() == Some(dirs.fast()),
        kind => state.files.get(&file.id).is_some_and(|known| known.kind == kind && dirs.path(*known) == file.path),
    };
    if file.is_file && is_referenced {
        FileClaim::Referenced
    } else if file.is_file && state.reserved_end(file.id).is_some() {
        FileClaim::LeftOver
    } else {
        FileClaim::Unknown
    }
}

/// Fails for a directory that does not belong to this database and holds a file with a name that databases use.
pub(crate) fn check_free(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let entries = storage.list(dir)?;
    // A crash while claiming the directory may have left this file; nothing depends on it.
    let is_ours = |entry: &&DirEntry| is_our_name(&entry.name) && !(entry.name == OWNER_NEW && entry.is_file);
    match entries.iter().find(is_ours) {
        Some(entry) if entry.name == OWNER => Err(another_owner(dir)),
        Some(entry) => Err(taken(dir, &entry.name)),
        None => Ok(()),
    }
}

/// Fails if a new database would be created where there may be files of another one. Removes the files of a database
/// whose creation here was interrupted by a crash.
pub(crate) fn check_new(storage: &dyn Storage, dirs: &DeclaredDirs) -> Result<()> {
    let DeclaredDirs { fast, slow, .. } = dirs;
    let mut entries = storage.list(fast)?;
    entries.retain(|entry| is_our_name(&entry.name));
    let begun = is_begun(storage, fast, &entries)?;
    if !begun {
        check_nothing_lost(fast, &entries)?;
        if let Some(entry) = entries.first() {
            return Err(taken(fast, &entry.name));
        }
    }
    if slow != fast {
        check_free(storage, slow)?;
    }
    entries.iter().try_for_each(|entry| storage.remove(&fast.join(&entry.name)))
}

/// Fails if there is a directory with files of a database although `CURRENT` is missing: it was lost.
pub(crate) fn check_absent(storage: &dyn Storage, fast: &Path) -> Result<()> {
    if storage.exists(fast)? { check_nothing_lost(fast, &storage.list(fast)?) } else { Ok(()) }
}

fn check_nothing_lost(fast: &Path, entries: &[DirEntry]) -> Result<()> {
    if entries.iter().any(|entry| entry.name == OWNER) {
        return Err(another_owner(fast));
    }
    let is_data =
        |entry: &&DirEntry| entry.is_file && parse(&entry.name).is_some_and(|(kind, _)| kind != FileKind::Manifest);
    if let Some(entry) = entries.iter().find(is_data) {
        let message = format!("the file is missing, but there is a database file {}", fast.join(&entry.name).display());
        return Err(Error::corruption(&fast.join(CURRENT), 0, message));
    }
    Ok(())
}

/// True if these can only be the first manifest of a database and its `CURRENT` before the rename.
fn is_begun(storage: &dyn Storage, dir: &Path, entries: &[DirEntry]) -> Result<bool> {
    let first = name(FileKind::Manifest, FileId(1));
    for entry in entries {
        let start: &[u8] = match &*entry.name {
            CURRENT_NEW => b"cleavedb ",
            found if found == first => &crate::engine::manifest::MAGIC,
            _ => return Ok(false),
        };
        if !entry.is_file {
            return Ok(false);
        }
        // A crash may have torn the write.
        let bytes = read_whole(storage, &dir.join(&entry.name))?;
        let len = start.len().min(bytes.len());
        if bytes[..len] != start[..len] && bytes.iter().any(|&byte| byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_our_name(name: &str) -> bool {
    parse(name).is_some() || FIXED.contains(&name)
}

fn taken(dir: &Path, name: &str) -> Error {
    Error::input(format!(
        "{} does not belong to this database, and holds {name}: a directory that a database takes may hold no file with a \
         name that databases use",
        dir.display()
    ))
}

/// Removes tables that no edit has ever referenced: output of unfinished jobs, left by a crash. No edit that was read
/// references them, so they can be removed before the next edit, which may need their space: jobs fill disks. Loss of
/// power must not bring back an earlier manifest, of which the last edits were never durable and which may reference
/// them: what was read is made durable first.
pub(crate) fn remove_never_named(storage: &dyn Storage, dirs: &Dirs, manifest: &Manifest) -> Result<()> {
    let mut files = list_numbered(storage, dirs)?;
    files.retain(|file| file.kind == FileKind::Table && !manifest.ever_named(file.id));
    files.retain(|file| claim_of(manifest, dirs, file) == FileClaim::LeftOver);
    if !files.is_empty() {
        manifest.sync_as_read()?;
        remove_left_over(storage, files.iter().map(|file| &*file.path));
    }
    Ok(())
}

/// Removes files of ours that nothing references. One that cannot be removed only takes up space, and its id is not used
/// again: the next open tries again.
pub(crate) fn remove_left_over<'a>(storage: &dyn Storage, paths: impl Iterator<Item = &'a Path>) {
    paths.for_each(|path| drop(storage.remove(path)));
}

/// The files whose status in the manifest is `claim`.
pub(crate) fn files_with(
    storage: &dyn Storage,
    dirs: &Dirs,
    manifest: &Manifest,
    claim: FileClaim,
) -> Result<Vec<PathBuf>> {
    let files = list_numbered(storage, dirs)?.into_iter();
    Ok(files.filter(|file| claim_of(manifest, dirs, file) == claim).map(|file| file.path).collect())
}
