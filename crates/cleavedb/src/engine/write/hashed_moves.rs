//! Moves records of hash keyspaces to the end of the log, so that the logs they lie in can go. A move is a conditional put at a
//! fresh sequence number (rule 8): it is refused if the key has changed since its record was read.
//!
//! Called by the job that collects logs. Decision 053 says why survivors go through the log again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::{KeyspaceId, Kind, Result, Slice, full_key, limits};
use crate::engine::batch::Batch;
use crate::engine::core::Core;
use crate::engine::job_usage::note_records;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::view::View;
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::{HashStore, KEYS_TOGETHER, Records};

/// Moves of about this many bytes are committed together; a larger one alone.
pub(crate) const TOGETHER_BYTES: usize = 256 << 10;
/// A key with so many operands is folded by the next merge...
const CHAIN_MAX: usize = 32;
/// ...and gets no more if that fails and it has this many.
const CHAIN_LIMIT: usize = 1024;

/// A key whose records are moved.
pub(crate) struct Move {
    pub keyspace: Arc<KeyspaceState>,
    pub key: Vec<u8>,
    /// What the index said of it.
    pub records: Records,
    /// What is written instead: a base, then operands.
    pub writes: Vec<(Kind, Slice)>,
}

impl Move {
    fn index(&self) -> Option<&HashStore> {
        self.keyspace.hash.as_deref()
    }

    /// Bytes of keys and values.
    pub fn bytes(&self) -> usize {
        self.writes.iter().map(|(_, value)| self.key.len() + value.len()).sum()
    }
}

/// A key of a hash keyspace that got many operands.
pub(super) struct Crowded {
    keyspace: KeyspaceId,
    key: Vec<u8>,
}

/// How many moves of these sizes, one at least, are committed together.
fn count_together(sizes: impl Iterator<Item = usize>) -> usize {
    let mut bytes = 0_usize;
    let fit = sizes.take_while(|size| {
        bytes = bytes.saturating_add(*size);
        bytes <= TOGETHER_BYTES
    });
    fit.count().max(1)
}

/// One frame cannot hold a copy of each of these records.
fn is_too_large(records: &Records) -> bool {
    let bytes = records.places().filter(|place| place.kind != PlaceKind::Tombstone).map(|place| u64::from(place.len));
    bytes.sum::<u64>() >= limits::BATCH_BYTES_LIMIT as u64
}

fn empty() -> Slice {
    Slice::copy_from(&[])
}

impl Core {
    /// What has to be written so that no record of the key stays where it lies. Operands are folded into their base, unless
    /// their operator fails, or is missing (rule 11); then all of them are written again, behind a base.
    ///
    /// # Errors
    /// [`Error::MergeFailed`](crate::base::Error::MergeFailed) if there are more of them than one frame may have; errors of storage.
    pub fn move_of(&self, view: &View, keyspace: &Arc<KeyspaceState>, key: &[u8], records: Records) -> Result<Move> {
        let full = full_key(keyspace.record.id, key);
        let writes = match records.newest.kind {
            PlaceKind::Tombstone => vec![(Kind::Delete, empty())],
            PlaceKind::Value => vec![(Kind::Put, self.record_value(view, &full, records.newest)?)],
            PlaceKind::Operand => match self.value_of_records(view, keyspace, &full, &records) {
                Ok(Some(value)) => vec![(Kind::Put, value)],
                Err(error) if is_too_large(&records) => return Err(error),
                _ => self.copies(view, &full, &records)?,
            },
        };
        Ok(Move { keyspace: keyspace.clone(), key: key.to_vec(), records, writes })
    }

    fn copies(&self, view: &View, full: &[u8], records: &Records) -> Result<Vec<(Kind, Slice)>> {
        let mut copies = Vec::new();
        if records.places().next().is_some_and(|first| first.kind == PlaceKind::Operand) {
            // Older copies of the operands must not be found before the new ones when the index is made anew.
            copies.push((Kind::Delete, empty()));
        }
        for place in records.places() {
            copies.push(match place.kind {
                PlaceKind::Tombstone => (Kind::Delete, empty()),
                PlaceKind::Value => (Kind::Put, self.record_value(view, full, place)?),
                PlaceKind::Operand => (Kind::Delta, self.record_value(view, full, place)?),
            });
        }
        Ok(copies)
    }

    /// Folds the operands of keys that a batch merges into, and that have many, so that chains are bounded. One look-up for each
    /// operand. Returns the keys that get many by this batch alone: they are to be folded after it.
    ///
    /// # Errors
    /// [`Error::MergeFailed`](crate::base::Error::MergeFailed) if the operands of a key could not be folded again and again.
    pub(super) fn fold_chains(&self, batch: &Batch) -> Result<Vec<Crowded>> {
        let mut index_of = batch.indexes();
        let mut counts = BTreeMap::<(KeyspaceId, &[u8]), usize>::new();
        for operation in batch.operations().filter(|operation| operation.kind == Kind::Delta) {
            let Some(index) = index_of(operation.keyspace) else { continue };
            if batch.len() >= CHAIN_MAX {
                *counts.entry((operation.keyspace, operation.key)).or_default() += 1;
            }
            let len = index.operands(operation.key);
            if len < CHAIN_MAX {
                continue;
            }
            let Some(keyspace) = self.keyspaces.with_id(operation.keyspace) else { continue };
            match self.fold_chain(&keyspace, operation.key) {
                Err(error) if len >= CHAIN_LIMIT => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        let crowded = counts.into_iter().filter(|(_, count)| *count >= CHAIN_MAX);
        Ok(crowded.map(|((keyspace, key), _)| Crowded { keyspace, key: key.to_vec() }).collect())
    }

    /// Folds keys after the batch that gave them many operands. If that fails, the operands stay.
    pub(super) fn fold_crowded(&self, keys: &[Crowded]) {
        for Crowded { keyspace, key } in keys {
            if let Some(keyspace) = self.keyspaces.with_id(*keyspace) {
                let _ = self.fold_chain(&keyspace, key);
            }
        }
    }

    fn fold_chain(&self, keyspace: &Arc<KeyspaceState>, key: &[u8]) -> Result<()> {
        let Some(index) = &keyspace.hash else { return Ok(()) };
        let gate = self.hash.gate.read();
        let (view, records) = (self.published.view(), index.find(key, None));
        drop(gate);
        let Some(records) = records.filter(|records| records.newest.kind == PlaceKind::Operand) else { return Ok(()) };
        let full = full_key(keyspace.record.id, key);
        let value = self.value_of_records(&view, keyspace, &full, &records)?;
        let writes = vec![value.map_or_else(|| (Kind::Delete, empty()), |value| (Kind::Put, value))];
        self.commit_moves(&[Move { keyspace: keyspace.clone(), key: key.to_vec(), records, writes }])
    }

    /// Writes the records of keys that have not changed; those of one key in one frame.
    pub fn commit_moves(&self, moves: &[Move]) -> Result<()> {
        let mut rest = moves;
        while !rest.is_empty() {
            let (now, later) = rest.split_at(count_together(rest.iter().map(Move::bytes)));
            self.commit_together(now)?;
            rest = later;
        }
        Ok(())
    }

    fn commit_together(&self, moves: &[Move]) -> Result<()> {
        let mut commit = self.commit.lock();
        self.check_open()?;
        self.check_poison()?;
        let mut batch = Batch::of_moves();
        let mut refused = 0;
        for (number, key) in moves.iter().enumerate() {
            if let (0, Some(index)) = (number % KEYS_TOGETHER, key.index()) {
                // What is looked up next is in the caches of the processor after this, if it is of the same keyspace.
                let next = &moves[number..moves.len().min(number + KEYS_TOGETHER)];
                index.newest_many(&next.iter().map(|key| &key.key[..]).collect::<Vec<_>>());
            }
            // A keyspace that was dropped has nothing to keep.
            if key.keyspace.check(self.database).is_err() {
                continue;
            }
            // Nothing changes while the commit lock is held.
            match key.index().and_then(|index| index.find(&key.key, None)).as_ref() == Some(&key.records) {
                true => {
                    key.writes.iter().for_each(|(kind, value)| batch.push_copy(&key.keyspace, *kind, &key.key, value));
                }
                false => refused += 1,
            }
        }
        self.hash.moves_refused.fetch_add(refused, Ordering::Relaxed);
        if batch.is_empty() {
            return Ok(());
        }
        batch.check(self.database)?;
        let (records, bytes) = (batch.len() as u64, batch.record_bytes());
        self.append_guarded(&mut commit, &[&batch])?;
        // No user wrote them.
        self.counters.user_bytes.fetch_sub(bytes, Ordering::Relaxed);
        note_records(records);
        let deletes = batch.operations().filter(|operation| operation.kind == Kind::Delete).count() as u64;
        self.hash.tombstones_moved.fetch_add(deletes, Ordering::Relaxed);
        self.hash.records_moved.fetch_add(records, Ordering::Relaxed);
        self.hash.bytes_moved.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Forgets deleted keys of which no older record is left anywhere.
    pub fn forget_deleted(&self, keyspace: &KeyspaceState, keys: &[(Vec<u8>, Place)]) {
        let Some(index) = &keyspace.hash else { return };
        let _commit = self.commit.lock();
        let _gate = self.hash.gate.write();
        for (key, tombstone) in keys {
            index.forget(key, *tombstone);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_any_size_is_committed_without_the_moves_before_it() {
        let count = |sizes: &[usize]| count_together(sizes.iter().copied());
        assert_eq!(count(&[1000; 400]), 262);
        assert_eq!(count(&[1000, 2000, limits::VALUE_BYTES_LIMIT, 5]), 2);
        assert_eq!(count(&[limits::VALUE_BYTES_LIMIT, 5]), 1);
        assert_eq!(count(&[usize::MAX, usize::MAX]), 1);
    }

    #[test]
    fn operands_that_one_frame_cannot_hold_stay_where_they_are() {
        let place = |len, kind| Place { file: crate::base::FileId(1), offset: 0, len, kind };
        let of = |count: usize| Records {
            newest: place(1 << 28, PlaceKind::Operand),
            older: std::iter::once(place(u32::MAX, PlaceKind::Tombstone))
                .chain((1..count).map(|_| place(1 << 28, PlaceKind::Operand)))
                .collect(),
        };
        assert!(!is_too_large(&of(3)) && is_too_large(&of(4)));
    }
}
