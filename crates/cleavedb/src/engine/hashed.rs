//! The state of hash keyspaces that is not in their indexes: the gate between readers and the publication of a group, and
//! which logs the indexes reference.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::base::{FileId, Kind, Seqno};
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::{FileLive, birth_of};
use crate::io::file_guard::FileGuard;
use crate::sched::sync::{Mutex, RwLock};

/// Shared by all hash keyspaces.
#[derive(Default)]
pub(crate) struct HashState {
    /// Held for reading while an index is asked; for writing while a group is put into the indexes and published.
    pub gate: RwLock<()>,
    /// Logs were written, or a snapshot was released: there may be something to collect.
    pub is_due: AtomicBool,
    /// Bytes of records of hash keyspaces since the indexes were saved.
    pub unsaved_bytes: AtomicU64,
    /// The file in which they are saved.
    pub saved: Mutex<Option<FileGuard>>,
    /// How often they were saved.
    pub saves: AtomicU64,
    /// Bytes that were written for it, also by a save that has not ended, or failed.
    pub saved_bytes: AtomicU64,
    /// Indexes keep what only snapshots see.
    pub has_undo: AtomicBool,
    /// A snapshot was released since what only snapshots see was last looked through.
    pub undo_is_due: AtomicBool,
    /// How full the allowance of garbage is, in thousandths, and how much of it collection removes, in bytes per second.
    pub garbage_fill: AtomicU64,
    pub drain: AtomicU64,
    /// Records that were moved, so that their logs can go, and bytes of these.
    pub records_moved: AtomicU64,
    pub bytes_moved: AtomicU64,
    /// Deletes among these.
    pub tombstones_moved: AtomicU64,
    /// Keys that were not moved because they had changed since they were looked at.
    pub moves_refused: AtomicU64,
    /// Logs that could not be emptied, because some keys have records elsewhere that cannot be read or are too large together.
    /// They are left alone until the next open, or until nothing of them is live.
    pub immovable: Mutex<BTreeSet<FileId>>,
    /// Logs of which nothing was live any more.
    pub logs_freed: AtomicU64,
}

/// What all indexes together reference.
pub(crate) struct IndexedFiles {
    /// By file.
    pub files: BTreeMap<FileId, FileLive>,
    /// All this follows from records up to this one.
    pub until: Seqno,
}

impl IndexedFiles {
    /// An index, or a snapshot of it, references records of the file.
    pub fn refers_to(&self, file: FileId) -> bool {
        self.files.contains_key(&file)
    }

    /// What is live of a file.
    pub fn of(&self, file: FileId) -> FileLive {
        self.files.get(&file).copied().unwrap_or_default()
    }
}

/// The place of a record of this kind, if hash indexes keep such.
pub(crate) fn place_of(kind: Kind, file: FileId, offset: u64, record_bytes: usize) -> Option<Place> {
    let len = record_bytes as u32;
    let (kind, len) = match kind {
        Kind::Put => (PlaceKind::Value, len),
        Kind::Delta => (PlaceKind::Operand, len),
        Kind::Delete => (PlaceKind::Tombstone, birth_of(file)),
        _ => return None,
    };
    Some(Place { file, offset, len, kind })
}
