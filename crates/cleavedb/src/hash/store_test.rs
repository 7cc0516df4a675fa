//! Tests of undo entries: what snapshots see, and what is dropped with them.

use super::*;

fn store() -> HashStore {
    HashStore::new(7, Spread::Even, 23)
}

fn place(seqno: u64) -> Place {
    Place { file: FileId(1 + seqno / 10), offset: seqno * 100, len: 50, kind: PlaceKind::Value }
}

fn put(store: &HashStore, key: u64, seqno: u64) {
    store.apply(Change { key: &key.to_be_bytes(), place: place(seqno), seqno: Seqno(seqno) }, true);
}

#[test]
fn a_snapshot_sees_the_records_before_the_first_change_after_it() {
    let store = store();
    (1..100).for_each(|seqno| put(&store, seqno % 3, seqno));
    for snapshot in 1..100 {
        for key in 0..3_u64 {
            let newest = (1..=snapshot).rev().find(|seqno| seqno % 3 == key);
            let found = store.find(&key.to_be_bytes(), Some(Seqno(snapshot)));
            assert_eq!(found.map(|records| records.newest), newest.map(place), "key {key} at {snapshot}");
        }
    }
}

#[test]
fn entries_are_dropped_in_the_order_in_which_they_came_and_no_more_than_are_asked_for() {
    let store = store();
    let before = store.memory_bytes();
    (1..=1000).for_each(|seqno| put(&store, seqno % 100, seqno));
    let pinned = |store: &HashStore| store.files().values().map(|file| file.pinned).sum::<u64>();
    assert_eq!(pinned(&store), 900, "a new key had nothing before");
    // What a snapshot needs is not touched, whatever is asked for.
    assert_eq!(store.trim_undo(Some(Seqno(0)), usize::MAX), 0);
    assert_eq!(store.trim_undo(Some(Seqno(400)), 150), 150);
    assert_eq!(pinned(&store), 850);
    assert_eq!(store.trim_undo(Some(Seqno(400)), usize::MAX), 250);
    assert_eq!(pinned(&store), 600);
    for key in 0..100_u64 {
        let newest = (301..=400).find(|seqno| seqno % 100 == key).map(place);
        assert_eq!(store.find(&key.to_be_bytes(), Some(Seqno(400))).map(|records| records.newest), newest);
    }
    assert!(store.has_undo());
    assert_eq!(store.trim_undo(None, 599), 599);
    assert!(store.has_undo());
    assert_eq!(store.trim_undo(None, usize::MAX), 1);
    assert!(!store.has_undo() && pinned(&store) == 0);
    let index =
        (0..100_u64).map(|key| store.newest(&key.to_be_bytes()).unwrap()).filter(|newest| newest.offset > 0).count();
    assert_eq!(index, 100);
    let grown = store.memory_bytes() - before;
    assert!(grown < 100 * 100, "{grown} B are left of the undo entries");
}
