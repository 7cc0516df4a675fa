//! Snapshots and iterators see a single moment, whatever happens below them.

use std::ops::Bound;

use cleavedb::testing::SimDisk;
use cleavedb::{Iter, KeyspaceOptions};

use crate::support::{open, with_each_log};

fn pairs(iter: Iter) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    iter.map(|item| item.map(|(key, value)| (text(&key), text(&value))).unwrap()).collect()
}

#[test]
fn flush_and_compaction_keep_the_versions_that_a_snapshot_needs() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let default = db.default_keyspace();
        let counters = db.create_keyspace("counters", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
        let mut held = Vec::new();
        for round in 0..12_u64 {
            for key in 0..20 {
                match (key + round) % 5 {
                    0 => db.delete(format!("{key:02}")).unwrap(),
                    _ => db.put(format!("{key:02}"), format!("{round} {}", "v".repeat(key as usize * 15))).unwrap(),
                }
                counters.merge(format!("{key:02}"), 1_u64.to_le_bytes()).unwrap();
            }
            held.push((round, db.snapshot(), pairs(db.iter().unwrap())));
            if round % 3 == 1 {
                db.flush().unwrap();
            }
            if round % 4 == 3 {
                db.compact_range(&default, ..).unwrap();
                db.compact_range(&counters, ..).unwrap();
            }
        }
        // Releases them out of order, with work in between.
        for turn in [5, 0, 9, 3, 3, 0, 4, 1, 1, 0, 1, 0] {
            for (round, snapshot, seen) in &held {
                assert_eq!(pairs(snapshot.iter(&default).unwrap()), *seen, "round {round}");
                let mut reverse = pairs_reversed(snapshot.iter(&default).unwrap());
                reverse.reverse();
                assert_eq!(reverse, *seen, "round {round}");
                let count = snapshot.get(&counters, "07").unwrap().unwrap();
                assert_eq!(count, (round + 1).to_le_bytes());
                for key in 0..20 {
                    let key = format!("{key:02}");
                    let value = seen.iter().find(|(there, _)| *there == key).map(|(_, value)| value.as_bytes());
                    assert_eq!(snapshot.get(&default, &key).unwrap().as_deref(), value);
                }
            }
            held.remove(turn % held.len());
            db.flush().unwrap();
            db.compact_range(&default, ..).unwrap();
            db.compact_range(&counters, ..).unwrap();
        }
        assert_eq!(db.stats().snapshots, 0);
        assert_eq!(counters.get("07").unwrap().unwrap(), 12_u64.to_le_bytes());
    });
}

fn pairs_reversed(iter: Iter) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    iter.rev().map(|item| item.map(|(key, value)| (text(&key), text(&value))).unwrap()).collect()
}

#[test]
fn an_iterator_sees_the_moment_of_its_creation() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        for key in 0..100 {
            db.put(format!("{key:03}"), "old").unwrap();
        }
        let mut iter = db.iter().unwrap();
        let first: Vec<_> = iter.by_ref().take(10).map(|item| item.unwrap()).collect();
        for key in 0..100 {
            db.put(format!("{key:03}"), "new").unwrap();
            db.put(format!("{key:03} more"), "new").unwrap();
        }
        db.flush().unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let rest: Vec<_> = iter.map(|item| item.unwrap()).collect();
        assert_eq!((first.len(), rest.len()), (10, 90));
        assert!(first.iter().chain(&rest).all(|(_, value)| *value == "old"));
    });
}

/// From every source at once: an old table, a newer one, runs and the index table, with deletes in between.
#[test]
fn both_ends_of_an_iterator_meet_without_duplicates() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        for step in [1, 2, 3, 5] {
            for key in (0..60).step_by(step) {
                match (key + step) % 7 {
                    0 => db.delete(format!("{key:02}")).unwrap(),
                    _ => db.put(format!("{key:02}"), format!("{step}").repeat(step * 50)).unwrap(),
                }
            }
            if step < 5 {
                db.flush().unwrap();
            }
        }
        let all = pairs(db.iter().unwrap());
        assert!(all.len() > 30);
        // Every order of pulls that a few bits can describe.
        for pattern in 0..64_u64 {
            let mut iter = db.iter().unwrap();
            let (mut front, mut back) = (Vec::new(), Vec::new());
            for turn in 0.. {
                let at_back = pattern >> (turn % 6) & 1 == 1;
                let item = if at_back { iter.next_back() } else { iter.next() };
                match item {
                    Some(item) if at_back => back.push(item.unwrap().0),
                    Some(item) => front.push(item.unwrap().0),
                    None => break,
                }
            }
            assert!(iter.next().is_none() && iter.next_back().is_none());
            front.extend(back.into_iter().rev());
            let keys: Vec<_> = all.iter().map(|(key, _)| key.as_bytes()).collect();
            assert!(front.iter().map(|key| &**key).eq(keys), "pattern {pattern:06b}: {front:?}");
        }
    });
}

#[test]
fn bounds_and_prefixes_hold_at_both_ends() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let keys = ["a", "ab", "abc", "b", "ba", "c"];
        for key in keys {
            db.put(key, key).unwrap();
        }
        db.put([0xff, 0xff], "top").unwrap();
        let found = |iter: cleavedb::Result<Iter>| {
            let keys: Vec<_> = pairs(iter.unwrap()).into_iter().map(|(_, value)| value).collect();
            keys.join(" ")
        };
        let key = |text: &str| text.as_bytes().to_vec();
        for round in 0..2 {
            assert_eq!(found(db.range(key("ab")..key("ba"))), "ab abc b", "round {round}");
            assert_eq!(found(db.range(key("ab")..=key("ba"))), "ab abc b ba");
            assert_eq!(found(db.range((Bound::Excluded(key("ab")), Bound::Excluded(key("b"))))), "abc");
            assert_eq!(found(db.range(key("z")..key("a"))), "");
            assert_eq!(found(db.range(..key("ab"))), "a");
            assert_eq!(found(db.prefix("ab")), "ab abc");
            assert_eq!(found(db.prefix("")), "a ab abc b ba c top");
            assert_eq!(found(db.prefix([0xff])), "top");
            let last = db.prefix("b").unwrap().next_back().unwrap().unwrap();
            assert_eq!(last.0, "ba");
            db.flush().unwrap();
        }
    });
}
