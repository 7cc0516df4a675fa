//! Ownership of directories, and of the files in them.
//!
//! A database takes a directory only if no file in it has a name that databases use. In its directories it removes an
//! unreferenced file only if the manifest had reserved the file's id before the file was created; any other such file
//! stays and is reported. A separate slow directory holds the file [`OWNER`] with the id of the database and its last
//! opening for writing, so that a copy of the main directory cannot use the slow directory of the original. Called by
//! `open.rs`, `check.rs` and `core.rs`.

use std::path::{Path, PathBuf};

use crate::base::{Error, FileId, FileKey, FileKind, Result, Tier};
use crate::engine::manifest::file_names::{
    CURRENT, CURRENT_NEW, OWNER, OWNER_NEW, RESERVE, RING, RING_NEW, STATS, name, parse,
};
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::numbered_files::{Numbered, list_numbered};
use crate::engine::manifest::{Manifest, ManifestState};
use crate::format::edit::{Opening, Openings};
use crate::io::{Access, DirEntry, Storage, read_whole};

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
        FileKind::Manifest => manifest.named() == Some(file.id),
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
pub(crate) fn check_new(storage: &dyn Storage, dirs: &Dirs) -> Result<()> {
    let Dirs { fast, slow } = dirs;
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

/// Whether the slow tier has a separate directory is fixed by the first opening that gives it one, or by the first
/// table there.
pub(crate) fn check_layout(storage: &dyn Storage, state: &ManifestState, dirs: &Dirs) -> Result<()> {
    if state.has_slow_dir && !dirs.are_apart() {
        return Err(Error::input(format!(
            "the tables of the database in {} lie in a directory of their own, which the option slow_dir must name",
            dirs.fast.display()
        )));
    }
    let Some(table) = slow_tables(state).next().filter(|_| dirs.are_apart()) else { return Ok(()) };
    let is_there = |path: PathBuf| storage.exists(&path);
    match state.has_slow_dir && (is_there(dirs.slow.join(OWNER))? || is_there(dirs.path(table))?) {
        true => Ok(()),
        false => Err(tables_elsewhere(&dirs.slow)),
    }
}

/// The tables on the slow tier.
pub(crate) fn slow_tables(state: &ManifestState) -> impl Iterator<Item = FileKey> {
    let tables = state.tables.keys().map(|id| state.file(*id));
    tables.filter(|file| file.tier == Tier::Slow)
}

/// The database has tables, and none of them is in the directory that the options give.
pub(crate) fn tables_elsewhere(slow: &Path) -> Error {
    let message = format!(
        "none of the tables of this database is in {}: the option slow_dir must be as it was when they were written",
        slow.display()
    );
    Error::input(message)
}

/// The contents of [`OWNER`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct OwnerFile {
    database: u64,
    opening: Opening,
}

impl OwnerFile {
    fn encode(self) -> String {
        let Opening { epoch, nonce } = self.opening;
        let text = format!("cleavedb owner 2\ndatabase {:016x}\nopened {epoch} {nonce:016x}\n", self.database);
        let crc = crc32c::crc32c(text.as_bytes());
        format!("{text}crc {crc:08x}\n")
    }

    fn decode(path: &Path, bytes: &[u8]) -> Result<OwnerFile> {
        let damaged = || Error::corruption(path, 0, "the file that names the owner of this directory is damaged");
        let text = std::str::from_utf8(bytes).map_err(|_| damaged())?;
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [_, _, version, _, database, _, epoch, nonce, ..] = words[..] else { return Err(damaged()) };
        let hexadecimal = |word| u64::from_str_radix(word, 16).map_err(|_| damaged());
        let opening = Opening { epoch: epoch.parse().map_err(|_| damaged())?, nonce: hexadecimal(nonce)? };
        let owner = OwnerFile { database: hexadecimal(database)?, opening };
        match owner.encode() == text {
            true => Ok(owner),
            false if words[..2] == ["cleavedb", "owner"] && version != "2" => {
                let message = format!("OWNER format {version} is not the known 2");
                Err(Error::Unsupported { path: path.to_owned(), message })
            }
            false => Err(damaged()),
        }
    }
}

/// Checks that a separate slow directory belongs to this database, and that no copy of it has used the directory since.
/// Returns the opening recorded in [`OWNER`]; `None` if the directory has no owner yet.
pub(crate) fn check_owner(storage: &dyn Storage, slow: &Path, state: &ManifestState) -> Result<Option<Opening>> {
    let path = slow.join(OWNER);
    if !storage.exists(&path)? {
        if state.files.values().any(|file| file.tier == Tier::Slow) {
            return Err(Error::corruption(&path, 0, "the file that names the owner of this directory is missing"));
        }
        // An opening comes before another only once it was durable in `OWNER`.
        if state.openings.previous != Opening::default() {
            return Err(Error::input(format!(
                "{} is missing, and this database has used a slow directory before: the option slow_dir must be as it was, \
                 and the directory mounted",
                path.display()
            )));
        }
        return check_free(storage, slow).map(|()| None);
    }
    let owner = match OwnerFile::decode(&path, &read_whole(storage, &path)?) {
        // This database has never taken a directory, so the damaged file is not its own.
        Err(_) if !state.has_slow_dir => return Err(another_owner(slow)),
        decoded => decoded?,
    };
    if owner.database != state.database {
        return Err(another_owner(slow));
    }
    let Openings { present, previous } = state.openings;
    if !state.has_slow_dir || (owner.opening != present && owner.opening != previous) {
        return Err(Error::input(format!(
            "another copy of this database has used {} since this one was open: {} names opening {}, and this copy knows of \
             {} as the last. Of several copies only one can have a slow directory; a checkpoint makes a copy with all its \
             files",
            slow.display(),
            path.display(),
            owner.opening.epoch,
            present.epoch
        )));
    }
    Ok(Some(owner.opening))
}

/// The openings that the manifest must record before [`OWNER`] records the new one.
pub(crate) fn next_openings(state: &ManifestState, owner: Option<Opening>, nonce: u64) -> Openings {
    let present = Opening { epoch: state.openings.present.epoch + 1, nonce };
    Openings { present, previous: owner.unwrap_or_default() }
}

/// Writes the current opening into [`OWNER`], atomically.
pub(crate) fn replace_owner(storage: &dyn Storage, slow: &Path, state: &ManifestState) -> Result<()> {
    let temporary = slow.join(OWNER_NEW);
    if storage.exists(&temporary)? {
        storage.remove(&temporary)?;
    }
    let owner = OwnerFile { database: state.database, opening: state.openings.present };
    let file = storage.create(&temporary, Access::Buffered)?;
    file.write_at(owner.encode().as_bytes(), 0)?;
    file.sync()?;
    drop(file);
    storage.rename(&temporary, &slow.join(OWNER))?;
    storage.sync_dir(slow)
}

fn another_owner(dir: &Path) -> Error {
    Error::input(format!("{} belongs to another database, as {} says", dir.display(), dir.join(OWNER).display()))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_reads_back_and_damage_to_it_is_found() {
        let path = Path::new("/slow/OWNER");
        let owner = OwnerFile { database: 0xabc, opening: Opening { epoch: 12, nonce: u64::MAX } };
        let text = owner.encode();
        assert_eq!(OwnerFile::decode(path, text.as_bytes()).unwrap(), owner);
        for at in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1;
            let decoded = OwnerFile::decode(path, &bytes);
            assert!(matches!(decoded, Err(Error::Corruption { .. } | Error::Unsupported { .. })), "byte {at}");
            assert!(OwnerFile::decode(path, &text.as_bytes()[..at]).is_err(), "cut to {at}");
        }
    }
}
