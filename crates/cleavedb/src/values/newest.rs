//! Judges records that tables reference and a job moves together (HashKV section 3.3): of two bases of a key in the same
//! snapshot stripe, the older one is dead, although no compaction has found that yet. The newest base may be dead as well, if
//! its covering version lies elsewhere; the ledger accounts for that.

use std::num::NonZeroU32;
use std::ops::Range;

use crate::base::{Kind, Seqno};

/// A record that a job has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenRecord {
    /// Sort key; records with the same order are sorted by key.
    pub order: u64,
    /// Its sequence number.
    pub seqno: Seqno,
    /// What it does to the key; never of a kind that has an address.
    pub kind: Kind,
    /// The range of the key, with its keyspace, in [`keys`](SeenRecords::keys).
    pub key: Range<u32>,
    /// Index of its file among those of the job.
    pub file: u32,
    /// Its offset in the file, in bytes.
    pub offset: u64,
    /// Its length, in bytes.
    pub len: u32,
    /// What is known about its liveness.
    pub fate: Fate,
    /// Where its bytes are, if the job has kept them.
    pub staged: Option<NonZeroU32>,
}

/// The liveness of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It may be live.
    Kept,
    /// It may be live, and covers an older base of its key.
    Updated,
    /// It is dead.
    Dead,
}

/// Memory that is reserved for a key.
const KEY_BYTES_USUAL: usize = 28;

/// Records that are judged together.
#[derive(Default)]
pub struct SeenRecords {
    /// Keys, one after the other.
    pub keys: Vec<u8>,
    /// In any order.
    pub seen: Vec<SeenRecord>,
}

impl SeenRecords {
    /// Adds a record.
    pub fn add(&mut self, full_key: &[u8], mut seen: SeenRecord) {
        let start = self.keys.len() as u32;
        self.keys.extend_from_slice(full_key);
        seen.key = start..self.keys.len() as u32;
        self.seen.push(seen);
    }

    /// The key of a record.
    pub fn key(&self, seen: &SeenRecord) -> &[u8] {
        &self.keys[seen.key.start as usize..seen.key.end as usize]
    }

    /// Reserves memory for `records` records with keys of the usual length, at most `bytes_max` bytes.
    pub fn reserve(&mut self, records: u64, bytes_max: usize) {
        let each = size_of::<SeenRecord>() + KEY_BYTES_USUAL;
        let records = (records as usize).min(bytes_max / each);
        self.seen.reserve_exact(records);
        self.keys.reserve_exact(records * KEY_BYTES_USUAL);
    }

    /// Bytes of the records and their keys.
    pub fn bytes(&self) -> usize {
        self.keys.len() + self.seen.len() * size_of::<SeenRecord>()
    }

    /// The memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.keys.capacity() + self.seen.capacity() * size_of::<SeenRecord>()
    }

    /// Keeps only the records for which `keep` is true, and frees memory.
    pub fn retain(&mut self, keep: impl Fn(&[u8], &SeenRecord) -> bool) {
        let all = std::mem::take(self);
        for seen in &all.seen {
            let key = all.key(seen);
            if keep(key, seen) {
                self.add(key, seen.clone());
            }
        }
    }

    /// Makes the order that of keys: the first eight bytes of each after those that all of them share. To be called before
    /// each judgement, as a new key may share fewer. O(bytes of keys).
    pub fn order_by_key(&mut self) {
        let keys = &self.keys;
        let key = |seen: &SeenRecord| &keys[seen.key.start as usize..seen.key.end as usize];
        let Some(first) = self.seen.first().map(key) else { return };
        let shared = self.seen.iter().fold(first, |shared, seen| match key(seen).starts_with(shared) {
            true => shared,
            false => &shared[..shared.iter().zip(key(seen)).take_while(|(one, other)| one == other).count()],
        });
        let shared = shared.len();
        for seen in &mut self.seen {
            let rest = &keys[seen.key.start as usize + shared..seen.key.end as usize];
            let (mut bytes, len) = ([0; 8], rest.len().min(8));
            bytes[..len].copy_from_slice(&rest[..len]);
            seen.order = u64::from_be_bytes(bytes);
        }
    }

    /// Sorts by key, newest version first, and marks a version dead if a newer base of its key is in the same
    /// snapshot stripe. O(n log n).
    pub fn judge(&mut self, snapshots: &[Seqno]) {
        let keys = &self.keys;
        let key = |seen: &SeenRecord| &keys[seen.key.start as usize..seen.key.end as usize];
        self.seen.sort_unstable_by(|one, other| {
            let by_key = one.order.cmp(&other.order).then_with(|| key(one).cmp(key(other)));
            by_key.then_with(|| other.seqno.cmp(&one.seqno))
        });
        let stripe = |seqno: Seqno| snapshots.partition_point(|snapshot| *snapshot < seqno);
        for versions in self.seen.chunk_by_mut(|one, other| one.order == other.order && key(one) == key(other)) {
            // Only a base kills: an operand needs what is older.
            let mut newer_base = None::<Seqno>;
            for index in 0..versions.len() {
                let seqno = versions[index].seqno;
                // The same record may be in two logs, of which tables reference one (decision 004).
                let dead = newer_base.is_some_and(|newer| seqno < newer && stripe(seqno) == stripe(newer));
                newer_base = if versions[index].kind.is_base() { Some(seqno) } else { newer_base };
                if dead {
                    versions[index].fate = Fate::Dead;
                    if versions[0].fate == Fate::Kept {
                        versions[0].fate = Fate::Updated;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::group::group_hash;

    /// The live ones of these puts, sorted by key, as (key, sequence number).
    fn living(records: &[(&str, u64)], snapshots: &[u64]) -> Vec<(String, u64)> {
        living_of(&records.iter().map(|&(key, seqno)| (key, seqno, Kind::Put)).collect::<Vec<_>>(), snapshots)
    }

    fn living_of(records: &[(&str, u64, Kind)], snapshots: &[u64]) -> Vec<(String, u64)> {
        let mut batch = SeenRecords::default();
        batch.reserve(records.len() as u64, 1 << 20);
        for (key, seqno, kind) in records {
            batch.add(key.as_bytes(), SeenRecord { order: group_hash(key.as_bytes()), ..record(*seqno, *kind) });
        }
        batch.judge(&snapshots.iter().map(|seqno| Seqno(*seqno)).collect::<Vec<_>>());
        let lives = batch.seen.iter().filter(|seen| seen.fate != Fate::Dead);
        let mut living: Vec<_> =
            lives.map(|seen| (String::from_utf8(batch.key(seen).to_vec()).unwrap(), seen.seqno.0)).collect();
        living.sort();
        living
    }

    fn record(seqno: u64, kind: Kind) -> SeenRecord {
        let (seqno, offset) = (Seqno(seqno), seqno);
        SeenRecord { order: 0, seqno, kind, key: 0..0, file: 0, offset, len: 10, fate: Fate::Kept, staged: None }
    }

    fn of(pairs: &[(&str, u64)]) -> Vec<(String, u64)> {
        pairs.iter().map(|(key, seqno)| (key.to_string(), *seqno)).collect()
    }

    #[test]
    fn the_order_of_keys_is_that_of_the_bytes_behind_what_they_share() {
        let orders = |keys: &[&[u8]]| {
            let mut batch = SeenRecords::default();
            keys.iter().for_each(|key| batch.add(key, SeenRecord { order: 7, ..record(3, Kind::Put) }));
            batch.order_by_key();
            batch.seen.iter().map(|seen| seen.order.to_be_bytes()).collect::<Vec<_>>()
        };
        assert_eq!(
            orders(&[b"user-12", b"user-1", b"user-345678901"]),
            [*b"12\0\0\0\0\0\0", *b"1\0\0\0\0\0\0\0", *b"34567890"]
        );
        assert_eq!(orders(&[b"same", b"same"]), [[0; 8]; 2]);
        assert_eq!(orders(&[b"", b"\0", b"b"]), [[0; 8], [0; 8], *b"b\0\0\0\0\0\0\0"]);
        assert!(orders(&[]).is_empty());
        let keys: [&[u8]; 7] = [b"-", b"-a", b"-a\0", b"-a\0\0\0\0\0\0\0", b"-abcdefgh", b"-abcdefghi", b"-b"];
        assert!(orders(&keys).into_iter().zip(keys).is_sorted());
    }

    #[test]
    fn the_newest_base_of_each_key_is_live() {
        let records = [("a", 3), ("b", 5), ("a", 9), ("a", 7)];
        assert_eq!(living(&records, &[10]), of(&[("a", 9), ("b", 5)]));
    }

    #[test]
    fn a_snapshot_between_two_bases_keeps_the_older_one() {
        let records = [("a", 3), ("a", 7), ("a", 9)];
        assert_eq!(living(&records, &[3, 20]), of(&[("a", 3), ("a", 9)]));
        assert_eq!(living(&records, &[6, 20]), of(&[("a", 3), ("a", 9)]));
        assert_eq!(living(&records, &[7, 20]), of(&[("a", 7), ("a", 9)]));
        assert_eq!(living(&records, &[3, 8, 20]), of(&[("a", 3), ("a", 7), ("a", 9)]));
        assert_eq!(living(&records, &[2, 9]), of(&[("a", 9)]));
    }

    #[test]
    fn an_operand_covers_nothing() {
        let records = [("a", 3, Kind::Put), ("a", 5, Kind::Delta), ("a", 6, Kind::Put), ("a", 7, Kind::Delta)];
        assert_eq!(living_of(&records[..2], &[9]), of(&[("a", 3), ("a", 5)]));
        assert_eq!(living_of(&records, &[9]), of(&[("a", 6), ("a", 7)]));
    }

    #[test]
    fn a_record_in_two_logs_does_not_cover_itself() {
        assert_eq!(living(&[("a", 3), ("a", 3)], &[9]), of(&[("a", 3), ("a", 3)]));
    }
}
