//! Which files the indexes of hash keyspaces reference, and what snapshots still need of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::base::FileId;
use crate::engine::core::Core;
use crate::engine::hashed::IndexedFiles;
use crate::engine::keyspaces::KeyspaceState;
use crate::hash::store::FileLive;

/// A drop has the indexes saved anew, as if this much had been written.
const DROPPED_BYTES: u64 = 1 << 40;
/// So many undo entries are dropped while all wait.
const TRIMMED_TOGETHER: usize = 512;

impl Core {
    /// The files that the indexes of hash keyspaces reference. O(hash keyspaces x files).
    pub fn indexed_files(&self) -> IndexedFiles {
        let _gate = self.hash.gate.read();
        let until = self.published.seqno();
        let mut files = BTreeMap::<FileId, FileLive>::new();
        for keyspace in self.keyspaces.hashed() {
            for (file, live) in keyspace.hash.iter().flat_map(|index| index.files()) {
                let sum = files.entry(file).or_default();
                sum.records += live.records;
                sum.bytes += live.bytes;
                sum.pinned += live.pinned;
            }
        }
        IndexedFiles { files, until }
    }

    /// Drops what no snapshot needs any more, a few entries at a time: others wait no longer because there are many.
    pub fn trim_undo(&self) {
        while self.trim_some_undo() {}
    }

    /// True if there may be more to drop.
    fn trim_some_undo(&self) -> bool {
        let _gate = self.hash.gate.write();
        // What is held now decides: since the last entries were dropped, others may have taken snapshots.
        let oldest = self.snapshots.held().keys().next().copied();
        let (mut is_left, mut count) = (false, 0);
        for keyspace in self.keyspaces.hashed() {
            for index in keyspace.hash.iter().filter(|index| index.has_undo()) {
                count += index.trim_undo(oldest, TRIMMED_TOGETHER - count);
                is_left |= index.has_undo();
            }
        }
        self.hash.has_undo.store(is_left, Ordering::Release);
        count == TRIMMED_TOGETHER
    }

    /// At an open: holds the file of the saved indexes, and counts the logs behind them.
    pub fn note_saved_indexes(&self) {
        let manifest = self.manifest.lock();
        let state = manifest.state();
        let from_log = state.indexes_saved.map_or(FileId(0), |(_, from_log)| from_log);
        if let Some((file, _)) = state.indexes_saved {
            *self.hash.saved.lock() = Some(self.guard(state.file(file)));
        }
        drop(manifest);
        let files = self.indexed_files().files;
        let unsaved = files.range(from_log..).map(|(_, live)| live.bytes).sum();
        self.hash.unsaved_bytes.store(unsaved, Ordering::Relaxed);
    }

    /// A hash keyspace was dropped: its logs can go, and what is saved of it.
    pub fn note_dropped_index(&self, keyspace: &KeyspaceState) {
        if keyspace.hash.is_some() {
            self.hash.unsaved_bytes.fetch_add(DROPPED_BYTES, Ordering::Relaxed);
            self.note_hashed_change();
        }
    }

    /// Lets the collection of logs look anew.
    pub fn note_hashed_change(&self) {
        self.hash.is_due.store(true, Ordering::Release);
    }
}
