//! Tests of undo entries: what snapshots see, what is dropped with them, and when a tombstone is forgotten.

use super::*;
use crate::sched::random::Random;

const KEY: &[u8] = b"key";

fn store() -> HashStore {
    HashStore::new(7, Spread::Even, 23)
}

/// A place in a file of its own for ten numbers.
fn place_of(seqno: u64) -> Place {
    Place { file: FileId(1 + seqno / 10), offset: seqno * 100, len: 50, kind: PlaceKind::Value }
}

/// A write after which the value before it is kept, as if a snapshot was taken after each write.
fn put(store: &HashStore, key: u64, seqno: u64) {
    let change = Change { key: &key.to_be_bytes(), place: place_of(seqno), seqno: Seqno(seqno) };
    store.apply(change, Some(Seqno(seqno - 1)));
}

fn place(file: u64, kind: PlaceKind) -> Place {
    let len = if kind == PlaceKind::Tombstone { birth_of(FileId(file)) } else { 100 };
    Place { file: FileId(file), offset: 64, len, kind }
}

fn write(store: &HashStore, file: u64, kind: PlaceKind, seqno: u64, newest_held: Option<u64>) {
    store.apply(Change { key: KEY, place: place(file, kind), seqno: Seqno(seqno) }, newest_held.map(Seqno));
}

fn file_at(store: &HashStore, snapshot: Option<u64>) -> Option<u64> {
    store.find(KEY, snapshot.map(Seqno)).map(|records| records.newest.file.0)
}

/// The files that entries pin.
fn pinned(store: &HashStore) -> Vec<u64> {
    store.files().iter().filter(|(_, live)| live.pinned > 0).map(|(file, _)| file.0).collect()
}

/// Drops all that these snapshots do not need.
fn trim(store: &HashStore, held: &[u64]) {
    let held: Vec<Seqno> = held.iter().copied().map(Seqno).collect();
    assert_eq!(store.trim_undo(&held, None, usize::MAX), None);
}

#[test]
fn a_snapshot_sees_the_records_before_the_first_change_after_it() {
    let store = store();
    (1..100).for_each(|seqno| put(&store, seqno % 3, seqno));
    for snapshot in 1..100 {
        for key in 0..3_u64 {
            let newest = (1..=snapshot).rev().find(|seqno| seqno % 3 == key);
            let found = store.find(&key.to_be_bytes(), Some(Seqno(snapshot)));
            assert_eq!(found.map(|records| records.newest), newest.map(place_of), "key {key} at {snapshot}");
        }
    }
}

#[test]
fn entries_are_dropped_of_a_few_keys_at_a_time_and_none_that_a_snapshot_needs() {
    let store = store();
    let before = store.memory_bytes();
    (1..=1000).for_each(|seqno| put(&store, seqno % 100, seqno));
    let count = || store.files().values().map(|file| file.pinned).sum::<u64>();
    assert_eq!(count(), 900, "a new key had nothing before");
    let held = [Seqno(250), Seqno(400)];
    let mut after = None;
    let mut calls = 0;
    loop {
        let left = count();
        after = store.trim_undo(&held, after.as_deref(), 30);
        calls += 1;
        // Each key has ten entries, and two are needed.
        assert!(left - count() <= 30 * 9, "{left} {}", count());
        if after.is_none() {
            break;
        }
    }
    assert_eq!((calls, count()), (4, 200));
    for key in 0..100_u64 {
        for snapshot in [250, 400] {
            let newest = (1..=snapshot).rev().find(|seqno| seqno % 100 == key).map(place_of);
            let found = store.find(&key.to_be_bytes(), Some(Seqno(snapshot)));
            assert_eq!(found.map(|records| records.newest), newest, "key {key} at {snapshot}");
        }
    }
    trim(&store, &[400]);
    assert!(store.has_undo() && count() == 100);
    trim(&store, &[]);
    assert!(!store.has_undo() && count() == 0);
    let grown = store.memory_bytes() - before;
    assert!(grown < 100 * 100, "{grown} B are left of the undo entries");
}

#[test]
fn only_the_first_change_after_a_snapshot_is_noted_and_moves_never() {
    let store = store();
    write(&store, 1, PlaceKind::Value, 10, None);
    // A snapshot at 10: a move, then changes.
    write(&store, 2, PlaceKind::Value, 11, None);
    assert_eq!((file_at(&store, Some(10)), pinned(&store)), (Some(2), vec![]));
    (3..9).for_each(|file| write(&store, file, PlaceKind::Value, 10 + file, Some(10)));
    assert_eq!((file_at(&store, Some(10)), file_at(&store, None), pinned(&store)), (Some(2), Some(8), vec![2]));
    // One at 18, and changes again.
    (9..12).for_each(|file| write(&store, file, PlaceKind::Value, 10 + file, Some(18)));
    assert_eq!((file_at(&store, Some(10)), file_at(&store, Some(18)), pinned(&store)), (Some(2), Some(8), vec![2, 8]));
    // The one at 18 goes first.
    trim(&store, &[10]);
    assert_eq!((file_at(&store, Some(10)), file_at(&store, None), pinned(&store)), (Some(2), Some(11), vec![2]));
    trim(&store, &[]);
    assert!(!store.has_undo() && pinned(&store).is_empty());
}

#[test]
fn a_snapshot_older_than_a_key_does_not_see_it_after_it_was_moved() {
    let store = store();
    write(&store, 1, PlaceKind::Value, 11, Some(10));
    write(&store, 2, PlaceKind::Value, 12, None);
    assert_eq!((file_at(&store, Some(10)), file_at(&store, Some(11))), (None, Some(2)));
    assert!(pinned(&store).is_empty(), "nothing pins the log that it was moved from");
}

#[test]
fn a_tombstone_is_forgotten_unless_a_snapshot_sees_a_value_of_its_key() {
    let store = store();
    write(&store, 1, PlaceKind::Value, 1, None);
    write(&store, 2, PlaceKind::Tombstone, 2, Some(1));
    assert!(!store.forget(KEY, store.newest(KEY).unwrap()), "an iteration at the snapshot finds the key");
    trim(&store, &[2]);
    write(&store, 3, PlaceKind::Tombstone, 3, Some(2));
    assert!(!store.has_undo() && pinned(&store).is_empty(), "nothing has changed");
    write(&store, 4, PlaceKind::Value, 4, Some(2));
    write(&store, 5, PlaceKind::Tombstone, 5, Some(2));
    assert_eq!(pinned(&store), [] as [u64; 0]);
    assert!(store.forget(KEY, store.newest(KEY).unwrap()));
    assert_eq!(store.find(KEY, Some(Seqno(2))).map(|records| records.newest.kind), Some(PlaceKind::Tombstone));
    assert_eq!(store.find(KEY, None), None);
}

/// Writes of all kinds to a few keys, one after the other through `files` logs.
fn writes(count: u64, files: u64) -> Vec<(Vec<u8>, Place)> {
    let mut random = Random::new(11);
    let mut write = |number: u64| {
        let file = 1 + number * files / count;
        let kind = match random.below(4) {
            0 => PlaceKind::Tombstone,
            1 => PlaceKind::Operand,
            _ => PlaceKind::Value,
        };
        (random.below(40).to_be_bytes().to_vec(), Place { offset: number * 100, ..place(file, kind) })
    };
    (0..count).map(&mut write).collect()
}

/// Puts records into an index as recovery does, a number of each shard together.
fn recover(store: &HashStore, writes: &[(Vec<u8>, Place)], together: usize) {
    for part in writes.chunks(together) {
        let mut shards: BTreeMap<usize, FoundRecords> = BTreeMap::new();
        for (key, place) in part {
            let (shard, hash) = store.shard_of(key);
            let change = Change { key, place: *place, seqno: Seqno(place.offset / 100 + 1) };
            shards.entry(shard).or_default().push(hash, change);
        }
        shards.values().for_each(|found| store.apply_found(found, false));
    }
}

#[test]
fn records_found_in_logs_give_what_their_writes_gave_however_many_are_put_in_together() {
    for spread in [Spread::Even, Spread::OneShard, Spread::Few] {
        let new = || HashStore::new(7, spread, 23);
        let (written, writes) = (new(), writes(2000, 9));
        for (key, place) in &writes {
            written.apply(Change { key, place: *place, seqno: Seqno(place.offset / 100 + 1) }, None);
        }
        for together in [1, 7, 2000] {
            let found = new();
            recover(&found, &writes, together);
            // What was saved, and is found again, changes nothing.
            recover(&found, &writes[1000..], together);
            for (key, _) in &writes {
                assert_eq!(found.find(key, None), written.find(key, None), "{together} together");
            }
            let counts = |store: &HashStore| (store.files(), store.keys(), store.tombstones(), store.live_bytes());
            assert_eq!(counts(&found), counts(&written), "{together} together");
        }
    }
}
