//! Which files the indexes of hash keyspaces reference, and what snapshots still need of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::base::{FileId, Seqno};
use crate::engine::core::Core;
use crate::engine::hashed::IndexedFiles;
use crate::engine::keyspaces::KeyspaceState;
use crate::hash::store::FileLive;

/// A drop has the indexes saved anew, as if this much had been written.
const DROPPED_BYTES: u64 = 1 << 40;
/// The keys whose undo entries are looked through while all wait.
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

    /// Drops what no snapshot needs any more, if one was released since the last call: of a few keys at a time, so that others do
    /// not wait longer because there are many.
    pub fn trim_undo(&self) {
        if !self.hash.undo_is_due.swap(false, Ordering::AcqRel) {
            return;
        }
        let keyspaces = self.keyspaces.hashed();
        let indexes = || keyspaces.iter().filter_map(|keyspace| keyspace.hash.as_deref());
        for index in indexes().filter(|index| index.has_undo()) {
            let mut after = None;
            loop {
                let _gate = self.hash.gate.write();
                // What is held now decides: meanwhile, others may have taken snapshots.
                let held: Vec<Seqno> = self.snapshots.held().keys().copied().collect();
                after = index.trim_undo(&held, after.as_deref(), TRIMMED_TOGETHER);
                if after.is_none() {
                    break;
                }
            }
        }
        let _gate = self.hash.gate.write();
        self.hash.has_undo.store(indexes().any(|index| index.has_undo()), Ordering::Release);
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

    /// At an open: counts what the indexes reference in logs that have not left the front.
    pub fn note_indexed_logs(&self) {
        let indexed = self.indexed_files();
        self.published.view().logs.values().for_each(|log| log.note_indexed(indexed.of(log.id()).bytes));
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
