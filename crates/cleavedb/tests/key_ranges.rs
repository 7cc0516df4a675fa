//! Key ranges in every form that callers may write, in every call that takes one.
#![allow(clippy::unwrap_used)]

use std::ops::Bound;

use cleavedb::{Db, KeyBounds, WriteBatch};

/// Keys "a" to "f", with values of 100 bytes.
fn database_of_letters() -> Db {
    let db = Db::in_memory().unwrap();
    ["a", "b", "c", "d", "e", "f"].iter().for_each(|key| db.put(key, [7; 100]).unwrap());
    db
}

#[track_caller]
fn check(db: &Db, range: impl KeyBounds, expected: &str) {
    let keys = |iter: cleavedb::Iter| {
        iter.map(|item| String::from_utf8(item.unwrap().0.to_vec()).unwrap()).collect::<Vec<_>>().concat()
    };
    let keyspace = db.default_keyspace();
    assert_eq!(keys(db.range(&range).unwrap()), expected);
    assert_eq!(keys(keyspace.range(&range).unwrap()), expected);
    assert_eq!(keys(db.snapshot().range(&keyspace, &range).unwrap()), expected);
    assert_eq!(keyspace.approximate_size(&range).unwrap() > 0, !expected.is_empty());
    let left = |db: &Db| keys(db.iter().unwrap());
    let all_but = "abcdef".replace(|letter| expected.contains(letter), "");
    let (one, other, third) = (database_of_letters(), database_of_letters(), database_of_letters());
    one.delete_range(&range).unwrap();
    other.default_keyspace().delete_range(&range).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&third.default_keyspace(), &range);
    third.write(batch).unwrap();
    for db in [one, other, third] {
        assert_eq!(left(&db), all_but);
        db.compact_range(&db.default_keyspace(), &range).unwrap();
        assert_eq!(left(&db), all_but);
    }
}

#[test]
fn ranges_of_every_byte_type_are_accepted() {
    let db = database_of_letters();
    check(&db, "b".."d", "bc");
    check(&db, String::from("b")..=String::from("d"), "bcd");
    check(&db, &b"b"[..]..&b"d"[..], "bc");
    check(&db, b"e".to_vec().., "ef");
    check(&db, ..*b"b", "a");
    check(&db, ..=b"b", "ab");
    check(&db, (Bound::Excluded("b"), Bound::Included("d")), "cd");
    check(&db, (Bound::Excluded(b"d".to_vec()), Bound::Unbounded), "ef");
}

#[test]
fn a_full_range_needs_no_type_annotation() {
    let db = database_of_letters();
    let keyspace = db.default_keyspace();
    assert_eq!(db.range(..).unwrap().count(), 6);
    assert_eq!(db.snapshot().range(&keyspace, ..).unwrap().count(), 6);
    assert!(keyspace.approximate_size(..).unwrap() > 600);
    db.compact_range(&keyspace, ..).unwrap();
    let mut batch = WriteBatch::new();
    batch.delete_range(&keyspace, ..);
    db.write(batch).unwrap();
    assert_eq!(keyspace.iter().unwrap().count(), 0);
}

#[test]
fn a_range_that_ends_before_it_starts_is_empty() {
    let db = database_of_letters();
    check(&db, "d".."b", "");
    check(&db, "d"..="b", "");
    check(&db, "b".."b", "");
    check(&db, (Bound::Excluded("b"), Bound::Excluded("b")), "");
    check(&db, (Bound::Excluded("d"), Bound::Included("b")), "");
    check(&db, "".."", "");
}
