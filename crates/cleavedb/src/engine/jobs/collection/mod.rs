//! A collection: value files are emptied. What is live in them is copied into a new segment, an extent for each group of keys,
//! with redirect tables from the old places to the new; tables go on referencing the old ones until compactions refresh their
//! addresses. Logs and the extents of a group are emptied alike. On the way values are compressed, if that is asked for
//! (`values/record_compressor.rs`). Value GC and value reordering call this, with different choices of files.
//!
//! The stages: a *survey* lists the records that tables reference, for the files of this collection and of many after it
//! (`survey.rs`). The files are *read* in the order of offsets for the keys of the listed records (`read.rs`). Of these, a
//! record is *judged* dead if a newer base of its key is among them and no snapshot separates the two
//! ([`values::newest`](crate::values::newest)); the others are given their *places*, an extent for each group
//! (`place.rs`), and *copied* in file order (`copy.rs`) or, by a placement that sorts, in key order (`sorted.rs`). One
//! edit commits all. Value GC pauses on the way, as its pace requires (`engine/throttle.rs`). A baseline for benchmarks looks each
//! record up in place of the survey (`look_up_each.rs`).

mod state;
mod survey;
mod look_up_each;
mod staged;
mod read;
mod place;
mod outputs;
mod copy;
mod sorted;

use std::time::Duration;

use crate::base::{FileId, FileKey, Result};
use crate::engine::core::Core;
use crate::engine::current_survey::RunningCollection;
use crate::format::edit::Edit;
use crate::format::values::EXTENT_ALIGN;
use crate::values::record_notes::RecordNotes;

pub(crate) use self::state::read_once_bytes;

use self::state::Collection;

/// What files are collected for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To give their garbage back.
    Space {
        /// The job pauses as the pace of value GC requires.
        pauses: bool,
    },
    /// To put their values in order.
    Order {
        /// The job ends without effect as soon as other work is due.
        yields: bool,
    },
}

impl Purpose {
    /// The garbage of the files is wanted, not the order of their values.
    pub fn frees_space(self) -> bool {
        matches!(self, Purpose::Space { .. })
    }
}

/// The result of a collection.
pub(crate) enum Collected {
    /// No file was left to collect.
    Nothing,
    /// The job ended early because other work was due; holds the number of bytes it had written.
    Yielded { written: u64 },
    /// All that lives was copied.
    Copied(Box<Copied>),
}

/// The copies, which the edit commits.
pub(crate) struct Copied {
    pub edit: Edit,
    /// The records at their new places.
    pub copies: RecordNotes,
    /// The files created.
    pub files: Vec<FileKey>,
    /// Bytes of the collected files.
    pub bytes_before: u64,
    /// Bytes written.
    pub written: u64,
    /// Time in which the job paused.
    pub paused: Duration,
    /// The collection, which the survey follows until the copies are noted.
    pub of: RunningCollection,
    /// It began while another one was running.
    pub is_beside: bool,
}

/// Copies the live records of files into one segment. With `walks`, a walk through the tables finds what lives.
pub(crate) fn collect(core: &Core, files: &[FileId], purpose: Purpose, walks: bool) -> Result<Collected> {
    let records_max = core.settings.tuning.noted_records_max();
    // Before the view is captured: what dies afterwards is found out.
    let of = core.current_survey.begin_collection(files.iter().copied(), records_max);
    let collected = copy_live(Collection::plan(core, of, files, purpose), walks);
    if !matches!(collected, Ok(Collected::Copied(_))) {
        core.current_survey.end_collection(of);
    }
    collected
}

fn copy_live(mut collection: Collection<'_>, walks: bool) -> Result<Collected> {
    let (core, purpose, of) = (collection.core, collection.purpose, collection.of);
    let is_beside = collection.is_beside;
    if collection.victims.is_empty() {
        return Ok(Collected::Nothing);
    }
    let bytes_before: u64 = collection.victims.iter().map(|victim| victim.file.end() - victim.file.start()).sum();
    let moved = collection.run(walks);
    let places = moved.inspect_err(|_| remove_unreferenced(core, collection.outputs.made()))?;
    let (written, paused) = (collection.written, collection.throttle.paused());
    if collection.has_yielded {
        remove_unreferenced(core, collection.outputs.made());
        return Ok(Collected::Yielded { written });
    }
    // Includes the header of the redirect tables, so that every job has a cost.
    let reordered = (!purpose.frees_space()).then_some(written + EXTENT_ALIGN);
    let (files, copies) = (collection.outputs.made().to_vec(), collection.copies);
    let edit = Edit { files_added: files.clone(), values_placed: places, reordered, ..Edit::default() };
    Ok(Collected::Copied(Box::new(Copied { edit, copies, files, bytes_before, written, paused, of, is_beside })))
}

/// Removes files that no edit references. If that fails, the next open removes them.
pub(crate) fn remove_unreferenced(core: &Core, files: &[FileKey]) {
    for file in files {
        core.remove_file(&core.dirs.path(*file));
    }
}
