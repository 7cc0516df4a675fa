//! Writes to hash keyspaces: their records are in the log when this is called, and stay there. What is left to do is to put
//! their places into the indexes, at the same moment at which the group becomes visible.

use std::sync::atomic::Ordering;

use crate::base::{Error, Kind, Result, Seqno};
use crate::engine::batch::Batch;
use crate::engine::core::Core;
use crate::engine::hashed::place_of;
use crate::front::index_table::RecordPlace;
use crate::hash::store::{Change, HashStore, KEYS_TOGETHER};

/// Upper bound of what a new key takes in an index beside its own bytes.
const NEW_KEY_BYTES: usize = 64;

/// Changes of indexes that are made together, in their order.
#[derive(Default)]
struct Changes<'a> {
    each: Vec<(&'a HashStore, Change<'a>, Option<Seqno>)>,
}

impl<'a> Changes<'a> {
    fn add(&mut self, index: &'a HashStore, change: Change<'a>, newest_held: Option<Seqno>) {
        self.each.push((index, change, newest_held));
        if self.each.len() == KEYS_TOGETHER {
            self.apply();
        }
    }

    /// Looks up the keys first, so that what is changed then, one key after the other, is in the caches of the processor.
    fn apply(&mut self) {
        for of_one in self.each.chunk_by(|(index, ..), (next, ..)| std::ptr::eq(*index, *next)) {
            if let [(index, ..), _, ..] = of_one {
                let keys: Vec<&[u8]> = of_one.iter().map(|(_, change, _)| change.key).collect();
                index.newest_many(&keys);
            }
        }
        for (index, change, newest_held) in self.each.drain(..) {
            index.apply(change, newest_held);
        }
    }
}

impl Core {
    /// Puts the places of a group's records into the indexes of hash keyspaces, and publishes the group. A reader sees all of
    /// it, or nothing. Returns the bytes of these records.
    pub(super) fn index_and_publish(
        &self,
        group: &[&Batch],
        first: RecordPlace,
        first_seqno: Seqno,
        last: Seqno,
    ) -> u64 {
        let gate = self.hash.gate.write();
        // Whoever takes a snapshot from here on waits for the publication.
        let held = self.snapshots.held();
        let newest_held = held.keys().next_back().copied();
        if newest_held.is_some() && group.iter().any(|batch| !batch.is_move()) {
            self.hash.has_undo.store(true, Ordering::Release);
        }
        let (mut offset, mut seqno, mut bytes) = (first.offset, first_seqno, 0);
        let mut changes = Changes::default();
        for batch in group {
            let mut index_of = batch.indexes();
            let newest_held = newest_held.filter(|_| !batch.is_move());
            for operation in batch.operations() {
                let len = operation.record_bytes();
                if let Some(index) = index_of(operation.keyspace)
                    && let Some(place) = place_of(operation.kind, first.log, offset, len)
                {
                    changes.add(index, Change { key: operation.key, place, seqno }, newest_held);
                    bytes += len as u64;
                }
                offset += len as u64;
                seqno = seqno.next();
            }
        }
        changes.apply();
        self.hash.unsaved_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.published.publish(last);
        drop(held);
        drop(gate);
        bytes
    }

    /// Checks that the indexes have memory for the new keys of a batch beside `others` bytes for those of batches before it;
    /// returns how much they take at most. Only near the limit the keys are looked up. The caller holds the commit lock.
    ///
    /// # Errors
    /// [`Error::IndexFull`] if a key is new and there is no memory for it.
    pub(super) fn check_index_room(&self, batch: &Batch, others: usize) -> Result<usize> {
        if !batch.writes_hashed() {
            return Ok(0);
        }
        let bytes = self.keyspaces.index_bytes();
        let most = batch.capacity() + batch.len() * NEW_KEY_BYTES;
        if bytes + others + most <= self.settings.tuning.hash_index_bytes_free() {
            return Ok(most);
        }
        let limit = self.hash_index_bytes_max(&self.published.view());
        if bytes + others + most <= limit {
            return Ok(most);
        }
        let mut index_of = batch.indexes();
        let mut needed = 0;
        for operation in batch.operations().filter(|operation| operation.kind != Kind::Delete) {
            if let Some(index) = index_of(operation.keyspace)
                && index.newest(operation.key).is_none()
            {
                needed += operation.key.len() + NEW_KEY_BYTES;
            }
        }
        match needed > 0 && bytes + others + needed > limit {
            true => Err(Error::IndexFull { bytes, limit }),
            false => Ok(needed),
        }
    }
}
