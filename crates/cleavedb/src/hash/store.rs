//! What the engine knows of one hash keyspace: the index, the records that operands are merged with, what snapshots still
//! see, and how much of each file is live (REXIO; decision 053).
//!
//! Every change is made by the holder of the commit lock while readers are shut out by the engine's gate, so a reader sees
//! all of a batch or nothing of it. A record that an index entry names is live. What a snapshot still sees, although the
//! index no longer names it, pins its file.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::bulk::Bulk;
use super::found::FoundRecords;
use super::index::{HashIndex, SHARDS, Spread, shard_of};
use super::place::{Place, PlaceKind};
use super::shard::BucketChanges;
use crate::base::{FileId, Seqno};
use crate::sched::sync::{Mutex, RwLock};

/// Memory of an entry in a map beside its key and its places.
const MAP_ENTRY_BYTES: usize = 96;

/// The records that make the value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// The newest one.
    pub newest: Place,
    /// If that is an operand: what it is merged with, oldest first. The first one is a base, or the key had none.
    pub older: Vec<Place>,
}

impl Records {
    /// All of them, oldest first.
    pub fn places(&self) -> impl DoubleEndedIterator<Item = Place> {
        self.older.iter().copied().chain([self.newest])
    }

    /// Those that make its value, oldest first. A tombstone in front covers what may not be known any more, so it may be absent.
    fn of_value(&self) -> impl Iterator<Item = Place> {
        self.places().skip_while(|place| place.kind == PlaceKind::Tombstone)
    }
}

/// Live bytes of one file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileLive {
    /// Records that the index names.
    pub records: u64,
    /// Bytes of these.
    pub bytes: u64,
    /// Records that only snapshots see.
    pub pinned: u64,
}

impl FileLive {
    fn is_empty(self) -> bool {
        self.records == 0 && self.pinned == 0
    }
}

/// What a key had before a write, for snapshots older than that.
#[derive(Debug)]
struct Undo {
    /// The write that changed it.
    changed_at: Seqno,
    before: Option<Records>,
}

/// One write to a key.
#[derive(Debug, Clone, Copy)]
pub struct Change<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Where its record lies, and what it does. The length of a tombstone is given by [`birth_of`].
    pub place: Place,
    /// Its sequence number.
    pub seqno: Seqno,
}

/// The length field of a tombstone's place: the file that it was first written to, which no move changes.
pub fn birth_of(file: FileId) -> u32 {
    u32::try_from(file.0).unwrap_or(u32::MAX)
}

/// Keys per call of [`HashStore::newest_many`]: enough reads in flight, and all that is read stays in the caches of a processor.
pub const KEYS_TOGETHER: usize = 32;

/// Counts a record of a key as live, or no longer.
type Counter<'a> = &'a mut dyn FnMut(&[u8], Place, bool);

/// For keys whose newest record is an operand: what it is merged with, oldest first.
type Chains = BTreeMap<Box<[u8]>, Vec<Place>>;

/// One hash keyspace.
#[derive(Debug)]
pub struct HashStore {
    index: HashIndex,
    /// For keys whose newest record is an operand: what it is merged with, oldest first.
    /// A map for each shard of the index, none of which is ever made anew as a whole.
    chains: Vec<RwLock<Chains>>,
    undo: RwLock<BTreeMap<Box<[u8]>, Vec<Undo>>>,
    files: Mutex<BTreeMap<FileId, FileLive>>,
    /// Bytes of a record beside its key and value.
    header_bytes: usize,
    beside_index: AtomicUsize,
    tombstones: AtomicUsize,
}

impl HashStore {
    /// An empty store. `header_bytes` is what a record takes beside its key and value.
    pub fn new(seed: u64, spread: Spread, header_bytes: usize) -> HashStore {
        HashStore {
            index: HashIndex::new(seed, spread),
            chains: (0..SHARDS).map(|_| RwLock::default()).collect(),
            undo: RwLock::default(),
            files: Mutex::default(),
            header_bytes,
            beside_index: AtomicUsize::new(0),
            tombstones: AtomicUsize::new(0),
        }
    }

    /// The records of a key: those of now, or those that a snapshot sees. `None` if it never had any, as far as is known;
    /// the newest may be a tombstone.
    pub fn find(&self, key: &[u8], snapshot: Option<Seqno>) -> Option<Records> {
        if let Some(seqno) = snapshot {
            let undo = self.undo.read();
            let of_key = undo.get(key).map_or(&[][..], Vec::as_slice);
            if let Some(undo) = of_key.get(of_key.partition_point(|undo| undo.changed_at <= seqno)) {
                return undo.before.clone();
            }
        }
        let newest = self.index.get(key)?;
        let older = match newest.kind {
            PlaceKind::Operand => self.chains_of(key).read().get(key).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        Some(Records { newest, older })
    }

    /// The newest record of a key.
    pub fn newest(&self, key: &[u8]) -> Option<Place> {
        self.index.get(key)
    }

    /// The newest records of up to [`KEYS_TOGETHER`] keys, for less than one look-up after the other.
    pub fn newest_many(&self, keys: &[&[u8]]) -> Vec<Option<Place>> {
        self.index.get_many(keys)
    }

    /// How many records a key has whose newest is an operand; 0 for others.
    pub fn operands(&self, key: &[u8]) -> usize {
        match self.index.get(key) {
            Some(Place { kind: PlaceKind::Operand, .. }) => 1 + self.chains_of(key).read().get(key).map_or(0, Vec::len),
            _ => 0,
        }
    }

    /// The shard of the index and the hash of a key, for [`fill`](HashStore::fill).
    pub fn shard_of(&self, key: &[u8]) -> (usize, u64) {
        let hash = self.index.hash(key);
        (shard_of(hash), hash)
    }

    /// Puts the newest records of keys of one shard into the index, which has none of these keys yet, as they were saved. False
    /// if a key is there twice.
    pub fn fill(&self, mut keys: Bulk) -> bool {
        let mut files: HashMap<FileId, FileLive, FixedState> = HashMap::default();
        let mut tombstones = 0;
        for (_, key, place) in keys.iter() {
            let live = files.entry(place.file).or_default();
            live.records += 1;
            live.bytes += self.record_bytes(key, place);
            tombstones += usize::from(place.kind == PlaceKind::Tombstone);
        }
        let are_different = keys.sort();
        if are_different {
            self.index.fill(&keys);
            self.tombstones.fetch_add(tombstones, Ordering::Relaxed);
            for (file, added) in files {
                self.change_file(file, |live| {
                    (live.records, live.bytes) = (live.records + added.records, live.bytes + added.bytes);
                });
            }
        }
        are_different
    }

    /// Adds what the newest record of a key is merged with, oldest first, as it was saved.
    pub fn fill_chain(&self, key: &[u8], older: impl Iterator<Item = Place>) {
        for place in older {
            self.count(key, place, true);
            self.extend_chain(key, place);
        }
    }

    /// Applies writes of one shard that recovery finds in logs. Records that were saved with the index are passed over: their
    /// places are in the order of their logs. A delete of an unknown key counts if the index was saved, because it may have had
    /// more to cover than is known.
    pub fn apply_found(&self, found: &FoundRecords, was_saved: bool) {
        // Live bytes of files change by this. Shards are filled by two threads, which would wait for the lock of the files.
        let mut changes: HashMap<FileId, (i64, i64), FixedState> = HashMap::default();
        let mut count = |key: &[u8], place: Place, is_added: bool| {
            let (records, bytes) = changes.entry(place.file).or_default();
            let sign = if is_added { 1 } else { -1 };
            (*records, *bytes) = (*records + sign, *bytes + sign * self.record_bytes(key, place) as i64);
        };
        found.by_hash().for_each(|change| self.apply_one_found(change, was_saved, &mut count));
        for (file, (records, bytes)) in changes {
            self.change_file(file, |live| {
                live.records = live.records.wrapping_add_signed(records);
                live.bytes = live.bytes.wrapping_add_signed(bytes);
            });
        }
    }

    fn apply_one_found(&self, change: Change<'_>, was_saved: bool, count: Counter<'_>) {
        let Change { key, place, .. } = change;
        let is_newer = |newest: &Place| (newest.file, newest.offset) >= (place.file, place.offset);
        if place.kind == PlaceKind::Value {
            // Most records are newer than what was saved, so that one look-up suffices.
            let newest = self.index.insert(key, place);
            match newest.filter(is_newer) {
                Some(newest) => _ = self.index.insert(key, newest),
                None => self.note(change, newest, count),
            }
            return;
        }
        match self.index.get(key) {
            Some(newest) if is_newer(&newest) => {}
            None if was_saved && place.kind == PlaceKind::Tombstone => {
                self.index.insert(key, place);
                self.note(change, None, count);
            }
            _ => self.apply_counted(change, None, count),
        }
    }

    /// Applies a write. `newest_held` is the newest snapshot, if any may need what the key had before: a record that was moved has
    /// the value of the one before, so that snapshots need neither.
    pub fn apply(&self, change: Change<'_>, newest_held: Option<Seqno>) {
        self.apply_counted(change, newest_held, &mut |key, place, is_added| self.count(key, place, is_added));
    }

    fn apply_counted(&self, change: Change<'_>, newest_held: Option<Seqno>, count: Counter<'_>) {
        let Change { key, mut place, seqno } = change;
        if place.kind == PlaceKind::Value && newest_held.is_none() {
            let newest = self.index.insert(key, place);
            return self.note(change, newest, count);
        }
        let newest = self.index.get(key);
        if place.kind == PlaceKind::Tombstone {
            match newest {
                // There is nothing older that it would have to cover.
                None => return,
                // What it covers, the first tombstone covered.
                Some(newest) if newest.kind == PlaceKind::Tombstone => place.len = place.len.min(newest.len),
                Some(_) => {}
            }
        }
        let is_tombstone = |place: Place| place.kind == PlaceKind::Tombstone;
        let changes_nothing = is_tombstone(place) && newest.is_some_and(is_tombstone);
        if newest_held.is_some_and(|held| !changes_nothing && !self.has_changed_since(key, held)) {
            self.add_undo(key, Undo { changed_at: seqno, before: self.find(key, None) });
        }
        self.note(Change { place, ..change }, newest, count);
        self.index.insert(key, place);
    }

    /// Counts a new record in place of the newest one, and ends or extends its chain.
    fn note(&self, change: Change<'_>, newest: Option<Place>, count: Counter<'_>) {
        let Change { key, place, .. } = change;
        count(key, place, true);
        match (place.kind, newest) {
            (PlaceKind::Operand, Some(newest)) => self.extend_chain(key, newest),
            (_, Some(newest)) => {
                let older = if newest.kind == PlaceKind::Operand { self.end_chain(key) } else { Vec::new() };
                older.into_iter().chain([newest]).for_each(|place| count(key, place, false));
            }
            (_, None) => {}
        }
        if place.kind == PlaceKind::Tombstone {
            self.tombstones.fetch_add(1, Ordering::Relaxed);
        }
        if newest.is_some_and(|newest| newest.kind == PlaceKind::Tombstone) {
            self.tombstones.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Forgets a key whose newest record is this tombstone; false if it has changed, or a snapshot may see a value of it, which
    /// iterations find by its key.
    pub fn forget(&self, key: &[u8], tombstone: Place) -> bool {
        let has_value =
            |undo: &Undo| undo.before.as_ref().is_some_and(|before| before.newest.kind != PlaceKind::Tombstone);
        let is_seen = || self.undo.read().get(key).is_some_and(|of_key| of_key.iter().any(has_value));
        let is_same = self.index.get(key) == Some(tombstone) && !is_seen();
        if is_same {
            self.index.remove(key);
            self.count(key, tombstone, false);
            self.tombstones.fetch_sub(1, Ordering::Relaxed);
        }
        is_same
    }

    /// Drops what none of these snapshots, in ascending order, needs, of at most `count` keys behind `after`. Returns the last of
    /// these keys, or `None` if there are no more.
    pub fn trim_undo(&self, held: &[Seqno], after: Option<&[u8]>, count: usize) -> Option<Box<[u8]>> {
        let is_held = |from: Seqno, until: Seqno| {
            let first = held.partition_point(|held| *held < from);
            held.get(first).is_some_and(|held| *held < until)
        };
        let mut undo = self.undo.write();
        let (mut dropped, mut bytes) = (Vec::new(), 0);
        let (mut emptied, mut last, mut seen) = (Vec::new(), None, 0);
        let behind = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        for (key, of_key) in undo.range_mut::<[u8], _>(behind).take(count) {
            // What an entry says was so since the change before.
            let mut since = Seqno::ZERO;
            of_key.retain_mut(|undo| {
                let stays = is_held(since, undo.changed_at);
                since = undo.changed_at;
                if !stays {
                    bytes += undo_bytes(key, undo);
                    dropped.extend(undo.before.take());
                }
                stays
            });
            (seen, last) = (seen + 1, Some(key.clone()));
            if of_key.is_empty() {
                emptied.push(key.clone());
            }
        }
        emptied.iter().for_each(|key| drop(undo.remove(key)));
        drop(undo);
        self.beside_index.fetch_sub(bytes, Ordering::Relaxed);
        dropped.iter().for_each(|before| self.pin(before, false));
        last.filter(|_| seen == count)
    }

    /// The key has changed since a snapshot was taken, and an entry says what it was before. What it has now no older snapshot sees.
    fn has_changed_since(&self, key: &[u8], held: Seqno) -> bool {
        self.undo.read().get(key).and_then(|of_key| of_key.last()).is_some_and(|undo| undo.changed_at > held)
    }

    /// There is something that only snapshots see.
    pub fn has_undo(&self) -> bool {
        !self.undo.read().is_empty()
    }

    /// Visits the keys of one bucket of the index, from a hash on; returns where to go on. As [`HashIndex::scan`].
    pub fn scan(&self, from: u64, see: &mut dyn FnMut(&[u8], Place)) -> Option<u64> {
        self.index.scan(from, see)
    }

    /// Keys for which another store has other values, `count` at most. Nobody changes the stores meanwhile.
    pub fn differences(&self, other: &HashStore, count: usize) -> Vec<Vec<u8>> {
        let mut different = self.valued_otherwise(other, count);
        for key in other.valued_otherwise(self, count) {
            if different.len() < count && !different.contains(&key) {
                different.push(key);
            }
        }
        different
    }

    /// The keys of this store that another one does not have with the same value.
    fn valued_otherwise(&self, other: &HashStore, count: usize) -> Vec<Vec<u8>> {
        let mut different = Vec::new();
        let mut from = Some(0);
        while let Some(hash) = from
            && different.len() < count
        {
            let mut keys = Vec::new();
            from = self.scan(hash, &mut |key, _| keys.push(key.to_vec()));
            let of_value = |store: &HashStore, key: &[u8]| -> Vec<Place> {
                store.find(key, None).iter().flat_map(Records::of_value).collect()
            };
            different.extend(keys.into_iter().filter(|key| of_value(self, key) != of_value(other, key)));
        }
        different.truncate(count);
        different
    }

    /// The live bytes of each file that has any, or that snapshots pin.
    pub fn files(&self) -> BTreeMap<FileId, FileLive> {
        self.files.lock().clone()
    }

    /// Bytes of all live records.
    pub fn live_bytes(&self) -> u64 {
        self.files.lock().values().map(|file| file.bytes).sum()
    }

    /// Keys with a value; of keys whose newest record is an operand, all. Both counts change meanwhile, so it may be off by what is
    /// being written.
    pub fn keys(&self) -> usize {
        self.index.len().saturating_sub(self.tombstones())
    }

    /// Deleted keys that are still in memory, because older records of them may be on storage.
    pub fn tombstones(&self) -> usize {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// Memory of the index, and of what is kept beside it.
    pub fn memory_bytes(&self) -> usize {
        self.index.memory_bytes() + self.beside_index.load(Ordering::Relaxed)
    }

    /// How often buckets of the index were split and joined.
    pub fn bucket_changes(&self) -> BucketChanges {
        self.index.changes()
    }

    /// The chains of keys in the same shard.
    fn chains_of(&self, key: &[u8]) -> &RwLock<Chains> {
        &self.chains[shard_of(self.index.hash(key))]
    }

    /// What the newest record of a key is merged with gets one more.
    fn extend_chain(&self, key: &[u8], newest: Place) {
        let mut chains = self.chains_of(key).write();
        let added = match chains.get_mut(key) {
            Some(older) => {
                let before = older.capacity();
                older.push(newest);
                (older.capacity() - before) * size_of::<Place>()
            }
            None => {
                chains.insert(key.into(), vec![newest]);
                MAP_ENTRY_BYTES + key.len() + size_of::<Place>()
            }
        };
        self.beside_index.fetch_add(added, Ordering::Relaxed);
    }

    /// The newest record of a key is merged with nothing any more.
    fn end_chain(&self, key: &[u8]) -> Vec<Place> {
        let Some(older) = self.chains_of(key).write().remove(key) else { return Vec::new() };
        let bytes = MAP_ENTRY_BYTES + key.len() + older.capacity() * size_of::<Place>();
        self.beside_index.fetch_sub(bytes, Ordering::Relaxed);
        older
    }

    fn add_undo(&self, key: &[u8], undo: Undo) {
        undo.before.iter().for_each(|before| self.pin(before, true));
        self.beside_index.fetch_add(undo_bytes(key, &undo), Ordering::Relaxed);
        self.undo.write().entry(key.into()).or_default().push(undo);
    }

    fn count(&self, key: &[u8], place: Place, is_added: bool) {
        let bytes = self.record_bytes(key, place);
        self.change_file(place.file, |file| match is_added {
            true => (file.records, file.bytes) = (file.records + 1, file.bytes + bytes),
            false => (file.records, file.bytes) = (file.records - 1, file.bytes - bytes),
        });
    }

    /// Pins the files of records, or ends that. Nobody reads tombstones.
    fn pin(&self, records: &Records, is_added: bool) {
        for place in records.places().filter(|place| place.kind != PlaceKind::Tombstone) {
            self.change_file(place.file, |file| match is_added {
                true => file.pinned += 1,
                false => file.pinned -= 1,
            });
        }
    }

    fn change_file(&self, file: FileId, change: impl FnOnce(&mut FileLive)) {
        let mut files = self.files.lock();
        let live = files.entry(file).or_default();
        change(live);
        if live.is_empty() {
            files.remove(&file);
        }
    }

    /// Length of a record on storage.
    fn record_bytes(&self, key: &[u8], place: Place) -> u64 {
        match place.kind {
            PlaceKind::Tombstone => (self.header_bytes + key.len()) as u64,
            _ => place.len.into(),
        }
    }
}

fn undo_bytes(key: &[u8], undo: &Undo) -> usize {
    let places = undo.before.as_ref().map_or(0, |before| 1 + before.older.len());
    MAP_ENTRY_BYTES + key.len() + size_of::<Undo>() + places * size_of::<Place>()
}

#[cfg(test)]
#[path = "store_test.rs"]
mod tests;
