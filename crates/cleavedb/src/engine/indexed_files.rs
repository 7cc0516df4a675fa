//! Which files the indexes of hash keyspaces reference, and what snapshots still need of them.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use crate::base::FileId;
use crate::engine::core::Core;
use crate::engine::hashed::IndexedFiles;
use crate::hash::store::FileLive;

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

    /// Drops what no snapshot needs any more.
    pub fn trim_undo(&self) {
        let _gate = self.hash.gate.write();
        let oldest = self.snapshots.held().keys().next().copied();
        let mut is_left = false;
        for keyspace in self.keyspaces.hashed() {
            for index in keyspace.hash.iter().filter(|index| index.has_undo()) {
                index.trim_undo(oldest);
                is_left |= index.has_undo();
            }
        }
        self.hash.has_undo.store(is_left, Ordering::Release);
    }

    /// Lets the collection of logs look anew.
    pub fn note_hashed_change(&self) {
        self.hash.is_due.store(true, Ordering::Release);
    }
}
