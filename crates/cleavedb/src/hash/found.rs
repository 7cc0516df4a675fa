//! Records that recovery finds in logs, collected for one shard of an index. They are put into it together and in the order of their
//! hashes: in the order of the log each of them would wait for memory, because it is in another bucket than the one before.

use std::ops::Range;

use super::place::Place;
use super::store::Change;
use crate::base::Seqno;

#[derive(Debug)]
struct FoundRecord {
    hash: u64,
    key: Range<usize>,
    place: Place,
    seqno: Seqno,
}

/// Writes to keys of one shard.
#[derive(Debug, Default)]
pub struct FoundRecords {
    records: Vec<FoundRecord>,
    keys: Vec<u8>,
}

impl FoundRecords {
    /// Adds a write, which is newer than all before; returns the memory that it takes.
    pub fn push(&mut self, hash: u64, change: Change<'_>) -> usize {
        let Change { key, place, seqno } = change;
        let start = self.keys.len();
        self.keys.extend_from_slice(key);
        self.records.push(FoundRecord { hash, key: start..self.keys.len(), place, seqno });
        size_of::<FoundRecord>() + key.len()
    }

    /// There are none.
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// The writes in the order of their hashes; those of one key in the order in which they were added.
    pub fn by_hash(&self) -> impl Iterator<Item = Change<'_>> {
        let mut order: Vec<(u64, usize)> =
            self.records.iter().enumerate().map(|(index, record)| (record.hash, index)).collect();
        order.sort_unstable();
        order.into_iter().map(|(_, index)| {
            let FoundRecord { ref key, place, seqno, .. } = self.records[index];
            Change { key: &self.keys[key.clone()], place, seqno }
        })
    }
}
