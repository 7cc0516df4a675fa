//! A collection: value files are emptied. What is live in them is copied into a new segment, an extent for each group of keys,
//! with redirect tables from the old places to the new; tables go on referencing the old ones until compactions refresh their
//! addresses. Logs and the extents of a group are emptied alike. On the way values are compressed, if that is asked for
//! (`values/shrinker.rs`). Value GC and value reordering call this, with different choices of files.
//!
//! What lives is found in the tables that reference the files (`find.rs`), where that is cheaper than to read these.
//! Otherwise files are read twice: once for the bases in them (`read.rs`), and once for what lives. A record is dead then if
//! a newer base of its key is among those that the job reads and no snapshot tells the two apart
//! ([`values::newest`](crate::values::newest)); what is left may still be referenced by no table, and is looked up there, by
//! key and sequence number (`look_up.rs`), if the placement says so or the ledger knows of more garbage than has been found
//! (`judge.rs`). What lives is copied in the order in which it lies in the files (`copy.rs`), or, by a placement that sorts,
//! in that of keys (`sorted.rs`).

mod state;
mod read;
mod find;
mod look_up;
mod judge;
mod copy;
mod sorted;

use crate::base::{FileId, FileKey, Result};
use crate::engine::core::Core;
use crate::format::edit::Edit;
use crate::format::values::EXTENT_ALIGN;

use self::state::Collection;

/// What became of files that were to be emptied.
pub(crate) enum Collected {
    /// There were none any more.
    Nothing,
    /// The job ended early, for something else that is to be done; it had written so many bytes.
    Yielded { written: u64 },
    /// All that lives was copied.
    Copied(Box<Copied>),
}

/// The copies, which the edit makes true.
pub(crate) struct Copied {
    pub edit: Edit,
    /// The files that were made.
    pub files: Vec<FileKey>,
    /// Bytes of the files before.
    pub bytes_before: u64,
    /// Bytes written for them.
    pub written: u64,
}

/// Copies what is live in files into one segment. A job that yields ends without effect as soon as something else is to be
/// done.
pub(crate) fn collect(core: &Core, files: &[FileId], yields: bool) -> Result<Collected> {
    let mut collection = Collection::plan(core, files, yields);
    if collection.victims.is_empty() {
        return Ok(Collected::Nothing);
    }
    let bytes_before: u64 = collection.victims.iter().map(|victim| victim.file.end() - victim.file.start()).sum();
    let moved = collection.run();
    let places = moved.inspect_err(|_| remove_unreferenced(core, &collection.made))?;
    let written = collection.written;
    if collection.has_yielded {
        remove_unreferenced(core, &collection.made);
        return Ok(Collected::Yielded { written });
    }
    // With the header of the redirect tables, so that no job is free of charge.
    let reordered = yields.then_some(written + EXTENT_ALIGN);
    let files = collection.made;
    let edit = Edit { files_added: files.clone(), values_placed: places, reordered, ..Edit::default() };
    Ok(Collected::Copied(Box::new(Copied { edit, files, bytes_before, written })))
}

/// Removes files that no edit names. If that fails, the next open does it.
pub(crate) fn remove_unreferenced(core: &Core, files: &[FileKey]) {
    for file in files {
        let _ = core.storage.remove(&core.dirs.path(*file));
    }
}
