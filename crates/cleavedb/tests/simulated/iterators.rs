//! Iterators over keys only, and iterators refreshed to the newest state.

use cleave_sim::material::Value;
use cleavedb::testing::{Faults, SimDisk};
use cleavedb::{Compression, Error, KeyspaceOptions, Options, Result};

use crate::support::{open, open_with, unflushed, value, with_each_log};

fn text(key: Result<cleavedb::Slice>) -> String {
    String::from_utf8_lossy(&key.unwrap()).into_owned()
}

#[test]
fn a_key_iterator_returns_the_keys_of_a_scan_without_a_merge_operator() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let broken = db.create_keyspace("broken", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
        for number in 0..60 {
            db.put(format!("{number:02}"), value("v", number * 20)).unwrap();
            if number % 3 == 0 {
                db.delete(format!("{number:02}")).unwrap();
            }
            if number % 20 == 19 {
                db.flush().unwrap();
            }
        }
        let pairs: Vec<String> = db.iter().unwrap().map(|item| text(item.map(|(key, _)| key))).collect();
        let keys: Vec<String> = db.iter().unwrap().keys().map(text).collect();
        let mut backward: Vec<String> = db.iter().unwrap().keys().rev().map(text).collect();
        backward.reverse();
        assert_eq!(pairs.len(), 40);
        assert!(keys == pairs && backward == pairs);

        // Not a number, so the merge fails; the key exists all the same.
        broken.put("k", "no number").unwrap();
        broken.merge("k", 1_u64.to_le_bytes()).unwrap();
        assert!(matches!(broken.iter().unwrap().next(), Some(Err(Error::MergeFailed { .. }))));
        assert_eq!(broken.iter().unwrap().keys().map(text).collect::<Vec<_>>(), ["k"]);
    });
}

#[test]
fn a_refreshed_iterator_keeps_its_position_at_both_ends() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        for number in 0..20 {
            db.put(format!("{number:02}"), "old").unwrap();
        }
        let snapshot = db.snapshot();
        let key = |text: &str| text.as_bytes().to_vec();
        let mut iter = snapshot.range(&db.default_keyspace(), key("02")..key("18")).unwrap();
        assert_eq!(iter.next().unwrap().unwrap().0, "02");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "17");
        for number in 0..20 {
            db.put(format!("{number:02}"), "new").unwrap();
        }
        db.delete("03").unwrap();
        db.put("04 more", "new").unwrap();
        db.put("17 more", "new").unwrap();
        db.flush().unwrap();
        assert_eq!(iter.next().unwrap().unwrap().1, "old");
        iter.refresh().unwrap();
        let (next, value) = iter.next().unwrap().unwrap();
        assert!(next == "04" && value == "new", "{next:?} {value:?}");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "16");
        assert_eq!(iter.next().unwrap().unwrap().0, "04 more");
        assert_eq!(iter.by_ref().count(), 11);
        drop(snapshot);
        assert_eq!(db.stats().snapshots, 1);
    });
}

#[test]
fn a_refreshed_iterator_at_its_end_continues_with_later_keys() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        db.put("b", "1").unwrap();
        db.put("d", "1").unwrap();
        db.delete("d").unwrap();
        let mut keys = db.iter().unwrap().keys();
        assert_eq!(keys.next().map(text).unwrap(), "b");
        assert!(keys.next().is_none() && keys.next_back().is_none());
        db.put("a", "1").unwrap();
        db.put("c", "1").unwrap();
        assert!(keys.next().is_none());
        keys.refresh().unwrap();
        assert_eq!(keys.next().map(text).unwrap(), "c");
        assert!(keys.next().is_none());
        let (mut left, dropped) = (db.iter().unwrap(), db.create_keyspace("dropped", KeyspaceOptions::new()).unwrap());
        let mut gone = dropped.iter().unwrap();
        db.drop_keyspace("dropped").unwrap();
        assert!(matches!(gone.refresh(), Err(Error::NotFound { .. })));
        let (first, handed_out) = left.next().unwrap().unwrap();
        db.clone().close().unwrap();
        assert!(first == "a" && handed_out == "1");
        assert!(matches!(left.refresh(), Err(Error::Closed)));
        assert!(matches!(left.next(), Some(Err(Error::Closed))) && left.next().is_none());
    });
}

#[test]
fn a_key_whose_value_could_not_be_read_is_returned_after_a_refresh() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().log_backend(backend);
        let db = open_with(&disk, options(), unflushed()).unwrap();
        // Values in the log, lost from the ring with the process.
        ["a", "b", "c", "d"].iter().for_each(|key| db.put(key, value(key, 300)).unwrap());
        db.close().unwrap();
        let db = open_with(&disk, options(), unflushed()).unwrap();
        let mut iter = db.iter().unwrap();
        assert_eq!(iter.next().unwrap().unwrap().0, "a");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "d");
        for from_behind in [false, true] {
            disk.set_faults(Faults { fail_read_one_in: Some(1), ..Faults::default() });
            let failed = if from_behind { iter.next_back() } else { iter.next() };
            assert!(matches!(failed, Some(Err(Error::Io { .. }))), "{failed:?}");
            disk.clear_faults();
            iter.refresh().unwrap();
        }
        assert_eq!(iter.next().unwrap().unwrap().0, "b");
        assert_eq!(iter.next_back().unwrap().unwrap().0, "c");
        assert!(iter.next().is_none());
    });
}

#[test]
fn an_iterator_skips_invisible_versions_without_reading_each() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let options = || Options::new().log_backend(backend).compression(Compression::None);
        let db = open_with(&disk, options(), unflushed()).unwrap();
        // Small values stay in the blocks.
        db.default_keyspace().set_separation(None).unwrap();
        let bytes = |number: u32| Value { seed: 2 * number + 1, len: 1000 }.bytes();
        let mut snapshots = Vec::new();
        db.put("a", "before").unwrap();
        for number in 0..300 {
            db.put("k", bytes(number)).unwrap();
            snapshots.push(db.snapshot());
        }
        db.put("z", "behind").unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        // A reader of any of these blocks gets an error.
        for (path, _) in disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "table")) {
            let file = disk.read_file(path).unwrap();
            for needle in (50..250).map(bytes) {
                let at = file.windows(needle.len()).position(|part| part == needle);
                at.iter().for_each(|&at| disk.flip_bit(path, at as u64 + 50, 3));
            }
        }
        let space = db.default_keyspace();
        for (snapshot, number) in [(&snapshots[3], 3), (&snapshots[296], 296)] {
            let forward: Vec<_> = snapshot.iter(&space).unwrap().collect::<Result<_>>().unwrap();
            let mut backward: Vec<_> = snapshot.iter(&space).unwrap().rev().collect::<Result<_>>().unwrap();
            backward.reverse();
            assert!(forward == backward && forward.len() == 2 && forward[1].1 == bytes(number)[..]);
        }
        assert!(snapshots[150].iter(&space).unwrap().any(|item| item.is_err()), "the blocks are damaged");
        assert_eq!(db.iter().unwrap().count(), 3);
        assert_eq!(db.iter().unwrap().rev().filter(|item| item.is_ok()).count(), 3);
    });
}
