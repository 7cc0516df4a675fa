//! Keys without values, and iterators that go on with the newest state.

use cleavedb::testing::SimDisk;
use cleavedb::{Error, KeyspaceOptions, Result};

use crate::support::{open, value, with_each_log};

fn text(key: Result<cleavedb::Slice>) -> String {
    String::from_utf8_lossy(&key.unwrap()).into_owned()
}

#[test]
fn keys_are_those_of_the_scan_and_need_no_merge_operator() {
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

        // Not a number, so the merge fails; the key is there all the same.
        broken.put("k", "no number").unwrap();
        broken.merge("k", 1_u64.to_le_bytes()).unwrap();
        assert!(matches!(broken.iter().unwrap().next(), Some(Err(Error::MergeFailed { .. }))));
        assert_eq!(broken.iter().unwrap().keys().map(text).collect::<Vec<_>>(), ["k"]);
    });
}

#[test]
fn a_refreshed_iterator_keeps_its_place_at_both_ends() {
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
fn an_iterator_at_its_end_goes_on_with_what_came_later() {
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
        db.clone().close().unwrap();
        assert!(matches!(left.refresh(), Err(Error::Closed)));
        assert_eq!(left.count(), 3);
    });
}
