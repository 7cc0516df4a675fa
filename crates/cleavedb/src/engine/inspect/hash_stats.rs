//! Statistics of hash keyspaces: their indexes, and the logs in which their records lie.

use std::sync::atomic::Ordering;

use minicbor::{Decode, Encode};

use crate::engine::core::Core;
use crate::engine::view::View;

/// All hash keyspaces together. Sizes are in bytes; totals count from the last open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct HashStats {
    /// Keys with a value.
    #[n(0)]
    pub keys: u64,
    /// Deleted keys that are still in memory, because older records of them may be on storage.
    #[n(1)]
    pub tombstones: u64,
    /// Memory of the indexes, with their keys.
    #[n(2)]
    pub index_bytes: usize,
    /// New keys are refused once the indexes take more than this.
    #[n(3)]
    pub index_bytes_max: usize,
    /// Memory of the indexes by key, in hundredths of a byte.
    #[n(4)]
    pub index_bytes_a_key_percent: u64,
    /// Bytes of live records.
    #[n(5)]
    pub live_bytes: u64,
    /// Logs that have left the front and hold records of hash keyspaces.
    #[n(6)]
    pub logs: usize,
    /// Bytes of these.
    #[n(7)]
    pub log_bytes: u64,
    /// Logs that were freed.
    #[n(8)]
    pub logs_freed: u64,
    /// Records that were written again so that their logs could go.
    #[n(9)]
    pub records_moved: u64,
    /// Bytes of these records.
    #[n(10)]
    pub bytes_moved: u64,
    /// How often the indexes were saved.
    #[n(11)]
    pub saves: u64,
    /// Bytes of records since then, which an open would read; or an estimate of it after an open.
    #[n(12)]
    pub unsaved_bytes: u64,
    /// Bytes that were written to save the indexes, also by a save that has not ended, or failed.
    #[n(13)]
    pub saved_bytes: u64,
    /// Deletes among the records that were written again.
    #[n(14)]
    #[cbor(default)]
    pub tombstones_moved: u64,
    /// Keys whose records were not written again, because the keys had changed since their records were read: a user wrote
    /// them, or they were moved with another record of the same log.
    #[n(15)]
    #[cbor(default)]
    pub moves_refused: u64,
    /// How often buckets of the indexes that are there were split.
    #[n(16)]
    #[cbor(default)]
    pub bucket_splits: u64,
    /// How often two of them were joined.
    #[n(17)]
    #[cbor(default)]
    pub bucket_joins: u64,
}

impl Core {
    /// Figures of all hash keyspaces. O(hash keyspaces x files).
    pub fn hash_stats(&self, view: &View) -> HashStats {
        let keyspaces = self.keyspaces.hashed();
        let indexes = || keyspaces.iter().filter_map(|keyspace| keyspace.hash.as_deref());
        let changes = || indexes().map(|index| index.bucket_changes());
        let keys: u64 = indexes().map(|index| index.keys() as u64).sum();
        let tombstones: u64 = indexes().map(|index| index.tombstones() as u64).sum();
        let index_bytes = self.keyspaces.index_bytes();
        HashStats {
            keys,
            tombstones,
            index_bytes,
            index_bytes_max: self.hash_index_bytes_max(view),
            index_bytes_a_key_percent: index_bytes as u64 * 100 / (keys + tombstones).max(1),
            live_bytes: indexes().map(|index| index.live_bytes()).sum(),
            logs: view.values.state.indexed.len(),
            log_bytes: view.values.figures().indexed_bytes,
            logs_freed: self.hash.logs_freed.load(Ordering::Relaxed),
            records_moved: self.hash.records_moved.load(Ordering::Relaxed),
            bytes_moved: self.hash.bytes_moved.load(Ordering::Relaxed),
            saves: self.hash.saves.load(Ordering::Relaxed),
            unsaved_bytes: self.hash.unsaved_bytes.load(Ordering::Relaxed),
            saved_bytes: self.hash.saved_bytes.load(Ordering::Relaxed),
            tombstones_moved: self.hash.tombstones_moved.load(Ordering::Relaxed),
            moves_refused: self.hash.moves_refused.load(Ordering::Relaxed),
            bucket_splits: changes().map(|changes| changes.splits).sum(),
            bucket_joins: changes().map(|changes| changes.joins).sum(),
        }
    }
}
