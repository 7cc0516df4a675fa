//! Moves the manifest to another directory: an open that declares a fast directory without `CURRENT`, for a database whose
//! manifest lies elsewhere. The other files stay where they are, and move in the background if they belong elsewhere.
//!
//! The database is first opened and closed where it was, so that its logs are settled and nothing has to be recovered. The
//! move is committed by the `CURRENT` of the new directory. Before that, the old one gets an [`OWNER`] that names the new
//! one with an opening that the old manifest does not know, so that no open can take the old manifest for the present one; if
//! the new directory is there without `CURRENT`, that file means nothing.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::{DirId, Error, FileKey, FileKind, Result};
use crate::engine::lifecycle::open::{lock, open};
use crate::engine::lifecycle::request::OpenRequest;
use crate::engine::manifest::file_names::{CURRENT, CURRENT_NEW, LOCK, OWNER, name, parse};
use crate::engine::manifest::files::DeclaredDirs;
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::recovery::owner::{OwnerFile, next_openings};
use crate::format::edit::Directory;
use crate::io::Storage;

/// Moves the manifest to the declared fast directory, if the database has one elsewhere.
///
/// # Errors
/// As opening the database where it is; [`Error::InvalidInput`] if the new directory holds files of another database.
pub(crate) fn move_home(storage: &Arc<dyn Storage>, request: &OpenRequest) -> Result<()> {
    let declared = &request.dirs;
    if request.settings.read_only || !declared.names_fast || storage.exists(&declared.fast.join(CURRENT))? {
        return Ok(());
    }
    let Some((home, owner)) = present_home(&**storage, declared)? else { return Ok(()) };
    let read = || Ok(Manifest::read(storage.clone(), &home, u64::MAX)?.map(|manifest| manifest.state().clone()));
    let Some(state) = read()? else { return Ok(()) };
    if let Some(owner) = &owner
        && !(owner.database == state.database && state.dirs.contains_key(&owner.dir))
    {
        return Err(Error::input(format!(
            "{} belongs to a database whose manifest was in {} last, where that of another database is now",
            declared.slow.display(),
            home.display()
        )));
    }
    let own = match storage.exists(&declared.fast)? {
        true => OwnerFile::read(&**storage, &declared.fast)?,
        false => None,
    };
    let known = own.filter(|owner| owner.database == state.database && state.dirs.contains_key(&owner.dir));
    if known.is_none() && storage.exists(&declared.fast)? {
        check_empty(&**storage, &declared.fast)?;
    }
    // It may have been renamed since.
    let slow = owner.filter(|owner| owner.dir == state.slow_dir).map(|_| declared.slow.clone());
    settle(storage, request, &home, slow, &state)?;
    storage.create_dir_all(&declared.fast)?;
    let _locks = [lock(&**storage, &home, false)?, lock(&**storage, &declared.fast, false)?];
    // A directory with a lock file, but without `CURRENT`, is one that did not get the manifest.
    storage.sync_dir(&declared.fast)?;
    let Some(state) = read()? else { return Ok(()) };
    let nonce = storage.unique_number()?;
    let (state, former) = renumbered(state, &home, known.map(|owner| owner.dir), nonce)?;
    let path = declared.fast.join(name(FileKind::Manifest, state.next_file));
    if storage.exists(&path)? {
        // Of an earlier attempt, before it was committed.
        storage.remove(&path)?;
    }
    OwnerFile::of(&state, former, &declared.fast).replace(&**storage, &home)?;
    Manifest::write_whole(storage.clone(), &declared.fast, state)
}

/// Where the manifest of the declared database lies: in the slow directory, which had everything, or where that belongs to.
fn present_home(storage: &dyn Storage, declared: &DeclaredDirs) -> Result<Option<(PathBuf, Option<OwnerFile>)>> {
    if declared.are_apart() && storage.exists(&declared.slow.join(CURRENT))? {
        return Ok(Some((declared.slow.clone(), None)));
    }
    let owner = match storage.exists(&declared.slow)? {
        true => OwnerFile::read(storage, &declared.slow)?,
        false => None,
    };
    let home = owner.as_ref().map(|owner| PathBuf::from(&owner.home));
    match home {
        Some(home) if storage.exists(&home.join(CURRENT))? => Ok(Some((home, owner))),
        Some(home) => Err(Error::input(format!(
            "{} belongs to a database whose manifest was in {} last, where it is not: mount that directory, or name the one that \
             it has moved to by the option fast_dir",
            declared.slow.display(),
            home.display()
        ))),
        None => Ok(None),
    }
}

/// Opens and closes the database in its present directories; `slow` is the slow one, if it is not where it was.
fn settle(
    storage: &Arc<dyn Storage>,
    request: &OpenRequest,
    home: &Path,
    slow: Option<PathBuf>,
    state: &ManifestState,
) -> Result<()> {
    let stored = || state.dirs.get(&state.slow_dir).map_or_else(|| home.to_owned(), |of| PathBuf::from(&of.path));
    let slow = slow.unwrap_or_else(stored);
    let device = request.dirs.device.clone();
    let dirs = DeclaredDirs { fast: home.to_owned(), slow, names_fast: true, names_slow: true, device };
    let request = OpenRequest { dirs, fast_bytes: None, listeners: Vec::new(), ..request.clone() };
    open(storage.clone(), request)?.close()
}

/// The state in which the new directory is the one of the manifest, and the number that the old one gets. `known` is the
/// number that the new one had.
fn renumbered(
    mut state: ManifestState,
    home: &Path,
    known: Option<DirId>,
    nonce: u64,
) -> Result<(ManifestState, DirId)> {
    let Some(path) = home.to_str() else {
        return Err(Error::input(format!("{} is not UTF-8, so that it cannot be left", home.display())));
    };
    state.openings = next_openings(&state, Some(state.openings.present), nonce);
    let newest = state.dirs.keys().next_back().copied().unwrap_or(DirId::HOME);
    let former = DirId(newest.0 + 1);
    let number_of = |dir: DirId| match dir {
        DirId::HOME => former,
        dir if Some(dir) == known => DirId::HOME,
        dir => dir,
    };
    for file in state.files.values_mut() {
        *file = FileKey { dir: number_of(file.dir), ..*file };
    }
    state.slow_dir = number_of(state.slow_dir);
    known.iter().for_each(|known| drop(state.dirs.remove(known)));
    let directory = Directory { path: path.to_owned(), since: state.openings.present.epoch };
    state.dirs.insert(former, directory);
    if state.reserved_end(state.next_file).is_none() {
        state.reserved.insert(state.next_file, crate::base::FileId(state.next_file.0 + 1));
    }
    Ok((state, former))
}

/// The new directory may have what an attempt left that was not committed: a manifest without `CURRENT`.
fn check_empty(storage: &dyn Storage, dir: &Path) -> Result<()> {
    let is_left = |name: &str| name == CURRENT_NEW || matches!(parse(name), Some((FileKind::Manifest, _)));
    let entries = storage.list(dir)?;
    let taken =
        entries.iter().find(|entry| !is_left(&entry.name) && (parse(&entry.name).is_some() || entry.name == OWNER));
    match taken {
        Some(entry) => Err(Error::input(format!(
            "{} does not belong to this database, and holds {}: the manifest cannot move there",
            dir.display(),
            entry.name
        ))),
        None => Ok(()),
    }
}

/// Fails if the manifest in a directory has moved to another one since.
pub(crate) fn check_not_moved(storage: &dyn Storage, home: &Path, state: &ManifestState) -> Result<()> {
    let Some(owner) = OwnerFile::read(storage, home)? else { return Ok(()) };
    let is_later = owner.database == state.database && owner.opening.epoch > state.openings.present.epoch;
    let new_home = Path::new(&owner.home);
    // A move that was not committed has left a lock file there, and no `CURRENT`.
    let was_committed = !storage.exists(&new_home.join(LOCK))? || storage.exists(&new_home.join(CURRENT))?;
    match is_later && was_committed {
        true => Err(Error::input(format!(
            "the manifest of the database in {} has moved to {}, which the option fast_dir must name",
            home.display(),
            new_home.display()
        ))),
        false => Ok(()),
    }
}
