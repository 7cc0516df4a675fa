//! Puts the records of hash keyspaces that recovery finds in logs into their indexes. They are collected by shard; once there are
//! enough, a second thread puts them in while the caller reads on. A caller that has the next ones ready before
//! that helps with the shards that are left. Records of one key are put in in the order in which they were found.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::base::{FileId, KeyspaceId};
use crate::engine::hashed::place_of;
use crate::engine::recovery::indexes::Indexes;
use crate::format::record::Record;
use crate::hash::found::FoundRecords;
use crate::hash::index::SHARDS;
use crate::hash::store::{Change, HashStore};
use crate::sched::sync::Mutex;
use crate::sched::thread::{JoinHandle, try_spawn};

/// Records of one shard, and its index.
type Part = (Arc<HashStore>, FoundRecords);
/// Those of which no thread has begun to put them in.
type Queue = Arc<Mutex<Vec<Part>>>;

/// Records on their way into indexes.
pub(super) struct FoundInLogs {
    indexes: Indexes,
    were_saved: bool,
    /// By shard.
    collected: BTreeMap<KeyspaceId, Vec<FoundRecords>>,
    /// Memory of these, and when it is enough.
    bytes: usize,
    bytes_max: usize,
    /// What the second thread is putting in.
    applying: Option<(JoinHandle, Queue)>,
}

impl FoundInLogs {
    pub fn new(indexes: &Indexes, were_saved: bool, bytes_max: usize) -> FoundInLogs {
        FoundInLogs {
            indexes: indexes.clone(),
            were_saved,
            collected: BTreeMap::new(),
            bytes: 0,
            bytes_max,
            applying: None,
        }
    }

    /// Adds a record, if its keyspace has an index. Logs are read in the order in which they were written.
    pub fn add(&mut self, record: &Record<'_>, log: FileId, offset: u64) {
        let Record { operation, seqno, .. } = *record;
        let Some(index) = self.indexes.get(&operation.keyspace) else { return };
        let Some(place) = place_of(operation.kind, log, offset, operation.record_bytes()) else { return };
        let (shard, hash) = index.shard_of(operation.key);
        let collected = self.collected.entry(operation.keyspace);
        let shards = collected.or_insert_with(|| (0..SHARDS).map(|_| FoundRecords::default()).collect());
        self.bytes += shards[shard].push(hash, Change { key: operation.key, place, seqno });
        if self.bytes >= self.bytes_max {
            self.wait();
            self.begin();
        }
    }

    /// Puts in what is left.
    pub fn end(mut self) {
        self.wait();
        let parts = self.take();
        apply(&parts, self.were_saved);
    }

    fn take(&mut self) -> Queue {
        self.bytes = 0;
        let mut parts = Vec::new();
        for (id, shards) in std::mem::take(&mut self.collected) {
            let Some(index) = self.indexes.get(&id) else { continue };
            parts.extend(shards.into_iter().filter(|found| !found.is_empty()).map(|found| (index.clone(), found)));
        }
        Arc::new(Mutex::new(parts))
    }

    /// Has the second thread put in what is collected.
    fn begin(&mut self) {
        let (parts, were_saved) = (self.take(), self.were_saved);
        let of_thread = parts.clone();
        match try_spawn("cleave-index", move || apply(&of_thread, were_saved)) {
            Ok(thread) => self.applying = Some((thread, parts)),
            // Without a thread, this one does it.
            Err(_) => apply(&parts, were_saved),
        }
    }

    /// Helps the second thread, and waits for it.
    fn wait(&mut self) {
        let Some((_, parts)) = &self.applying else { return };
        // If this panics, the thread is still there to be joined.
        apply(parts, self.were_saved);
        let Some((thread, _)) = self.applying.take() else { return };
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Drop for FoundInLogs {
    /// After an error nobody needs the indexes, but the thread must not outlive the open.
    fn drop(&mut self) {
        if let Some((thread, parts)) = self.applying.take() {
            parts.lock().clear();
            let _ = thread.join();
        }
    }
}

fn apply(parts: &Mutex<Vec<Part>>, were_saved: bool) {
    loop {
        let part = parts.lock().pop();
        let Some((index, found)) = part else { return };
        index.apply_found(&found, were_saved);
    }
}
