//! Statistics on the directories of a database and on the fast tier.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use minicbor::{Decode, Encode};

use crate::base::{DirId, FileId, FileKey, FileKind, Tier};
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::format::values::ValuePlace;

/// The directories of a database and what lies in them. Sizes are in bytes. See [`Options::slow_dir`](crate::Options::slow_dir).
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct TierStats {
    /// The directories: that of the manifest first.
    #[n(0)]
    pub directories: Vec<DirectoryStats>,
    /// Space in use on the fast tier: logs, manifest, ring, reserve and all other files. 0 if there is one directory.
    #[n(1)]
    pub fast_bytes: u64,
    /// The most of it since the open.
    #[n(2)]
    pub fast_bytes_max: u64,
    /// Its budget ([`Options::fast_bytes`](crate::Options::fast_bytes)).
    #[n(3)]
    pub fast_bytes_limit: Option<u64>,
    /// Of the space in use, that of files that only open iterators, snapshots and running jobs hold back.
    #[n(4)]
    pub fast_bytes_pinned: u64,
    /// Files that are still to move because an open declared other directories.
    #[n(5)]
    pub files_to_move: usize,
    /// Their bytes.
    #[n(6)]
    pub bytes_to_move: u64,
    /// Bytes of files that were moved between directories since the open.
    #[n(7)]
    pub bytes_moved: u64,
    /// Of the space in use on the fast tier, redirect tables and values that readers were asking for (decision record 048).
    #[n(8)]
    #[cbor(default)]
    pub fast_bytes_kept: u64,
    /// Lengths of files that were removed since the open while links of checkpoints held them, in bytes: their space is that of
    /// the checkpoints.
    #[n(9)]
    #[cbor(default)]
    pub bytes_left_to_checkpoints: u64,
}

/// A directory of a database.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct DirectoryStats {
    /// Where it is.
    #[n(0)]
    pub path: String,
    /// Its tier.
    #[n(1)]
    pub tier: Tier,
    /// It was declared at the open; files move out of other directories.
    #[n(2)]
    pub is_declared: bool,
    /// Logs, tables and other numbered files.
    #[n(3)]
    pub files: usize,
    /// Their bytes, without the unwritten ends of logs.
    #[n(4)]
    pub bytes: u64,
    /// In addition, bytes of dead values that only a checkpoint needs: it links their file, so that their space cannot be
    /// given back.
    #[n(5)]
    #[cbor(default)]
    pub checkpoint_bytes: u64,
}

/// The files that a view holds, and the bytes of each.
fn file_bytes(view: &View) -> BTreeMap<FileKey, u64> {
    let mut files = BTreeMap::new();
    files.extend(view.logs.values().map(|log| (log.key(), log.end())));
    let tables = view.version.all_tables();
    files.extend(tables.map(|table| (table.key(), table.meta().size)));
    for (id, place) in view.values.state.places.iter() {
        let Some(stored) = view.values.stored.get(&place.container().unwrap_or(*id)) else { continue };
        let bytes = match place {
            ValuePlace::Log { end } => *end,
            ValuePlace::Extent { start, end, .. } => end - start,
            ValuePlace::Moved { len, .. } => *len,
        };
        *files.entry(stored.key()).or_default() += bytes;
    }
    files
}

impl Core {
    /// The logs in a directory, with the bytes of each. O(files).
    pub fn log_bytes_in(&self, view: &View, dir: DirId) -> Vec<(FileId, u64)> {
        let logs = file_bytes(view).into_iter().filter(|(file, _)| file.dir == dir && file.kind == FileKind::Log);
        logs.map(|(file, bytes)| (file.id, bytes)).collect()
    }

    /// What lies where. O(files).
    pub fn tier_stats(&self, view: &View) -> TierStats {
        let mut files = file_bytes(view);
        if let Some(indexes) = self.saved_indexes() {
            let bytes = self.storage.file_len(&self.dirs.path(indexes)).ok().flatten();
            files.insert(indexes, bytes.unwrap_or_default());
        }
        let slow = self.dirs.slow_id();
        let sums = |wanted: &dyn Fn(&FileKey) -> bool| {
            let of = files.iter().filter(|(file, _)| wanted(file));
            of.fold((0, 0), |(count, bytes), (_, more)| (count + 1, bytes + more))
        };
        let directory = |(dir, path): (DirId, &std::path::Path)| {
            let (files, bytes) = sums(&|file| file.dir == dir);
            let is_declared = dir == DirId::HOME || dir == slow || Some(dir) == self.dirs.device();
            let checkpoint_bytes = self.pending_deletions.linked_bytes(|file| file.parent() == Some(path));
            let (path, tier) = (path.display().to_string(), self.dirs.tier(dir));
            DirectoryStats { path, tier, is_declared, files, bytes, checkpoint_bytes }
        };
        let directories = self.dirs.all().map(directory).collect();
        let misplaced: BTreeSet<FileKey> = self.misplaced_files(view).into_iter().map(|(file, _)| file).collect();
        let (files_to_move, bytes_to_move) = sums(&|file| misplaced.contains(file));
        let manifest = self.manifest.lock();
        let is_known = |id: FileId| manifest.state().files.get(&id).is_some_and(|file| file.dir == DirId::HOME);
        let supply = self.logs.inner.lock().spare.as_ref().map(|log| log.id());
        let pinned = self.fast.file_bytes(|id| !is_known(id) && Some(id) != supply);
        drop(manifest);
        TierStats {
            directories,
            fast_bytes: self.fast.bytes(),
            fast_bytes_max: self.fast.bytes_max(),
            fast_bytes_limit: Some(self.fast.budget()).filter(|budget| *budget < u64::MAX),
            fast_bytes_pinned: pinned,
            files_to_move,
            bytes_to_move,
            bytes_moved: self.counters.moved_bytes.load(Ordering::Relaxed),
            fast_bytes_kept: self.fast_kept(view).iter().map(|(_, bytes)| bytes).sum(),
            bytes_left_to_checkpoints: self.counters.bytes_left_to_checkpoints.load(Ordering::Relaxed),
        }
    }
}
