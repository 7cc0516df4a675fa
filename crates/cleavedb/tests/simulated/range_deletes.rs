//! Range deletes, one rule at a time. (Random ones are among the operations of `model.rs`.)

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleave_sim::material::Value;
use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Compression, Db, Error, KeyspaceOptions, LogBackend, Options, WriteBatch, limits};

use crate::support::{in_world, open, open_with, unflushed, value, with_each_log};

fn keys(db: &Db) -> Vec<String> {
    let text =
        |item: cleavedb::Result<(cleavedb::Slice, cleavedb::Slice)>| String::from_utf8_lossy(&item.unwrap().0).into();
    let forward: Vec<String> = db.iter().unwrap().map(text).collect();
    let mut backward: Vec<String> = db.iter().unwrap().rev().map(text).collect();
    backward.reverse();
    assert_eq!(forward, backward);
    for key in "abcdefgh".chars().map(String::from) {
        assert_eq!(db.contains(&key).unwrap(), forward.contains(&key), "{key}");
    }
    forward
}

fn letters(db: &Db) {
    "abcdefgh".chars().for_each(|key| db.put(key.to_string(), "v").unwrap());
}

fn bound(key: &str) -> Vec<u8> {
    key.into()
}

/// Reads from the index table, from a run, from tables, and after a reopen.
fn everywhere(backend: LogBackend, write: impl Fn(&Db), check: impl Fn(&Db)) {
    for flush_between in [false, true] {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        letters(&db);
        if flush_between {
            db.flush().unwrap();
        }
        write(&db);
        check(&db);
        check(&open(&disk.process_crash(), backend).unwrap());
        db.flush().unwrap();
        check(&db);
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        check(&db);
        db.close().unwrap();
        assert_sound(&disk);
        check(&open(&disk, backend).unwrap());
    }
}

fn assert_sound(disk: &SimDisk) {
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
    assert!(report.is_sound(), "{:?}", report.problems);
}

#[test]
fn a_table_of_range_tombstones_only_is_sound() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let snapshot = db.snapshot();
        letters(&db);
        db.flush().unwrap();
        db.delete_range(bound("b")..bound("d")).unwrap();
        db.delete_range(bound("c")..bound("g")).unwrap();
        assert_eq!(db.stats().front_range_tombstones, 2);
        db.flush().unwrap();
        assert_eq!(db.stats().levels.iter().map(|level| (level.tables, level.entries)).max(), Some((2, 8)));
        let stats = db.stats();
        assert_eq!((stats.front_range_tombstones, stats.levels[0].range_tombstones), (0, 2));
        drop(snapshot);
        db.close().unwrap();
        assert_sound(&disk);
        let (mut tables, mut tombstones) = (0, 0);
        for (path, _) in disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "table")) {
            testing::dump(&disk, path, &mut |entry| {
                tombstones += u32::from(entry.what == "range tombstone");
                true
            })
            .unwrap();
            tables += 1;
        }
        assert!(tables == 2 && tombstones > 0, "{tables} {tombstones}");
    });
}

#[test]
fn a_range_delete_removes_exactly_the_keys_within_its_bounds() {
    type Range = (Bound<Vec<u8>>, Bound<Vec<u8>>);
    let cases: [(Range, &str); 6] = [
        ((Bound::Included(bound("c")), Bound::Excluded(bound("f"))), "abfgh"),
        ((Bound::Excluded(bound("c")), Bound::Included(bound("f"))), "abcgh"),
        ((Bound::Unbounded, Bound::Excluded(bound("c"))), "cdefgh"),
        ((Bound::Included(bound("c")), Bound::Unbounded), "ab"),
        ((Bound::Excluded(bound("bb")), Bound::Excluded(bound("ca"))), "abdefgh"),
        ((Bound::Unbounded, Bound::Unbounded), ""),
    ];
    for (range, left) in cases {
        in_world(1, move || {
            let left: Vec<String> = left.chars().map(String::from).collect();
            everywhere(
                LogBackend::Ring,
                |db| db.delete_range(range.clone()).unwrap(),
                |db| assert_eq!(keys(db), left, "{range:?}"),
            );
        });
    }
}

#[test]
fn a_range_delete_stays_within_its_keyspace() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let spaces: Vec<_> = ["one", "two", "three"].map(|name| db.keyspace(name).unwrap()).into();
        for space in &spaces {
            space.put([0], "first").unwrap();
            space.put(vec![0xff; 40], "last").unwrap();
        }
        spaces[1].delete_range(..).unwrap();
        let check = |db: &Db| {
            let count = |name: &str| db.open_keyspace(name).unwrap().iter().unwrap().count();
            assert_eq!(["one", "two", "three"].map(count), [2, 0, 2]);
        };
        check(&db);
        db.flush().unwrap();
        check(&db);
        db.drop_keyspace("three").unwrap();
        spaces[0].delete_range(bound("a")..).unwrap();
        db.flush().unwrap();
        assert_eq!(spaces[0].iter().unwrap().count(), 1);
        db.close().unwrap();
        assert_eq!(open(&disk, backend).unwrap().open_keyspace("one").unwrap().iter().unwrap().count(), 1);
    });
}

#[test]
fn an_empty_range_changes_nothing_and_a_bound_too_long_is_refused() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        letters(&db);
        let seqno = db.stats().seqno;
        #[allow(clippy::reversed_empty_ranges)]
        db.delete_range(bound("f")..bound("c")).unwrap();
        db.delete_range(bound("c")..bound("c")).unwrap();
        db.delete_range(..bound("")).unwrap();
        db.delete_range((Bound::Excluded(vec![0xff; limits::KEY_BYTES_MAX]), Bound::Unbounded)).unwrap();
        assert_eq!((db.stats().seqno, keys(&db).len()), (seqno, 8));
        let long = vec![b'z'; limits::KEY_BYTES_MAX + 1];
        assert!(matches!(db.delete_range(bound("a")..long.clone()), Err(Error::InvalidInput { .. })));
        let mut batch = WriteBatch::new();
        batch.put(&db.default_keyspace(), "i", "v");
        batch.delete_range(&db.default_keyspace(), long..);
        assert!(matches!(db.write(batch), Err(Error::InvalidInput { .. })));
        assert_eq!(keys(&db).len(), 8);
        // The longest possible bounds.
        db.put(vec![b'w'; limits::KEY_BYTES_MAX], "v").unwrap();
        let longest = vec![b'w'; limits::KEY_BYTES_MAX];
        db.delete_range((Bound::Excluded(longest.clone()), Bound::Unbounded)).unwrap();
        assert!(db.contains(&longest).unwrap());
        db.delete_range(longest.clone()..=longest.clone()).unwrap();
        assert!(!db.contains(&longest).unwrap());
        assert_eq!(keys(&db).len(), 8);
        let space = db.keyspace("gone").unwrap();
        db.drop_keyspace("gone").unwrap();
        assert!(matches!(space.delete_range(bound("b")..bound("a")), Err(Error::NotFound { .. })));
    });
}

#[test]
fn a_range_delete_keeps_its_position_within_a_batch() {
    with_each_log(|backend| {
        everywhere(
            backend,
            |db| {
                let mut batch = WriteBatch::new();
                let space = db.default_keyspace();
                batch.put(&space, "b", "before");
                batch.put(&space, "cc", "before");
                batch.delete_range(&space, bound("b")..bound("f"));
                batch.put(&space, "d", "after");
                db.write(batch).unwrap();
            },
            |db| {
                assert_eq!(keys(db), ["a", "d", "f", "g", "h"]);
                assert_eq!(db.get("d").unwrap().unwrap(), "after");
            },
        );
    });
}

#[test]
fn a_synced_range_delete_survives_loss_of_power() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), unflushed()).unwrap();
        letters(&db);
        db.delete_range(bound("b")..bound("g")).unwrap();
        db.put("d", "again").unwrap();
        db.sync().unwrap();
        for seed in 0..10 {
            let image = disk.power_loss(seed);
            let db = open_with(&image, Options::new().log_backend(backend), unflushed()).unwrap();
            assert_eq!(keys(&db), ["a", "d", "g", "h"]);
        }
    });
}

#[test]
fn a_snapshot_sees_keys_deleted_after_it_through_every_job() {
    with_each_log(|backend| {
        let db = open(&SimDisk::new(), backend).unwrap();
        let space = db.default_keyspace();
        let mut held = Vec::new();
        for round in 0..10_u32 {
            (0..60).for_each(|number| db.put(format!("{number:02}"), format!("{round} {number}")).unwrap());
            held.push((db.snapshot(), 60));
            db.delete_range(format!("{:02}", round * 3).into_bytes()..format!("{:02}", 60 - round * 2).into_bytes())
                .unwrap();
            let left = db.iter().unwrap().count();
            assert_eq!(left, (round * 5) as usize);
            held.push((db.snapshot(), left));
            match round % 3 {
                0 => db.flush().unwrap(),
                1 => db.compact_range(&space, ..).unwrap(),
                _ => {}
            }
        }
        while !held.is_empty() {
            for (snapshot, count) in &held {
                assert_eq!(snapshot.iter(&space).unwrap().count(), *count);
                assert_eq!(snapshot.iter(&space).unwrap().rev().count(), *count);
                let found = (0..60).filter(|number| snapshot.contains(&space, format!("{number:02}")).unwrap());
                assert_eq!(found.count(), *count);
            }
            held.remove(held.len() / 2);
            db.compact_range(&space, ..).unwrap();
        }
    });
}

#[test]
fn operands_after_a_range_delete_have_no_base() {
    with_each_log(|backend| {
        for flush in [false, true] {
            let db = open(&SimDisk::new(), backend).unwrap();
            let space = db.create_keyspace("n", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
            let count =
                |key: &str| space.get(key).unwrap().map(|value| u64::from_le_bytes(value[..].try_into().unwrap()));
            let step = || {
                if flush {
                    db.flush().unwrap()
                }
            };
            ["a", "b", "c"].iter().for_each(|key| space.merge(key, 5_u64.to_le_bytes()).unwrap());
            let before = db.snapshot();
            step();
            space.delete_range(bound("b")..).unwrap();
            step();
            space.merge("b", 7_u64.to_le_bytes()).unwrap();
            for _ in 0..3 {
                assert_eq!([count("a"), count("b"), count("c")], [Some(5), Some(7), None]);
                assert_eq!(before.get(&space, "b").unwrap().unwrap(), 5_u64.to_le_bytes());
                step();
                db.compact_range(&space, ..).unwrap();
            }
            drop(before);
            db.compact_range(&space, ..).unwrap();
            assert_eq!([count("a"), count("b"), count("c")], [Some(5), Some(7), None]);
        }
    });
}

/// Many tables below HL0, none of them compressed.
fn filled(disk: &SimDisk, backend: LogBackend) -> Db {
    let options = Options::new().log_backend(backend).compression(Compression::None);
    let db = open_with(disk, options, Tuning::tiny()).unwrap();
    // Small values stay in the tables.
    db.default_keyspace().set_separation(None).unwrap();
    (0..400_u32)
        .for_each(|number| db.put(format!("{number:03}"), Value { seed: 2 * number + 1, len: 500 }.bytes()).unwrap());
    db.flush().unwrap();
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db
}

fn table_bytes(db: &Db) -> u64 {
    db.stats().levels.iter().map(|level| level.bytes).sum()
}

fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..1000 {
        if is_so() {
            return;
        }
        testing::sleep(Duration::from_millis(10));
    }
    panic!("timed out: {what}");
}

#[test]
fn covered_tables_are_removed_without_reading_them() {
    with_each_log(|backend| {
        let db = filled(&SimDisk::new(), backend);
        assert!(table_bytes(&db) > 200_000);
        let read = db.stats().bytes_read;
        db.delete_range(bound("010")..bound("390")).unwrap();
        db.flush().unwrap();
        wait_until("the tables go", || table_bytes(&db) < 50_000);
        assert!(db.stats().bytes_read - read < 50_000, "{} B read", db.stats().bytes_read - read);
        assert_eq!(db.iter().unwrap().count(), 20);
        // The tombstones are removed with the last keys.
        db.delete_range(..).unwrap();
        db.flush().unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        wait_until("all tables go", || table_bytes(&db) == 0);
    });
}

#[test]
fn a_snapshot_keeps_covered_tables_until_it_is_released() {
    with_each_log(|backend| {
        let db = filled(&SimDisk::new(), backend);
        let space = db.default_keyspace();
        let snapshot = db.snapshot();
        db.delete_range(..).unwrap();
        db.put("200", "new").unwrap();
        db.flush().unwrap();
        testing::sleep(Duration::from_millis(500));
        assert!(table_bytes(&db) > 200_000);
        assert_eq!((snapshot.iter(&space).unwrap().count(), db.iter().unwrap().count()), (400, 1));
        drop(snapshot);
        wait_until("the tables go", || table_bytes(&db) < 50_000);
        assert_eq!(db.get("200").unwrap().unwrap(), "new");
        assert_eq!(db.iter().unwrap().count(), 1);
    });
}

#[test]
fn a_scan_does_not_read_blocks_covered_by_a_newer_range_tombstone() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = filled(&disk, backend);
        db.close().unwrap();
        // A reader of any of these blocks gets an error.
        for (path, _) in disk.files() {
            let bytes = disk.read_file(&path).unwrap();
            for number in [100_u32, 150, 200, 250, 300] {
                let needle = Value { seed: 2 * number + 1, len: 500 }.bytes();
                let at = bytes.windows(needle.len()).position(|part| part == needle);
                at.iter().for_each(|&at| disk.flip_bit(&path, at as u64 + 50, 3));
            }
        }
        let options = Options::new().log_backend(backend).compression(Compression::None);
        let db = open_with(&disk, options, unflushed()).unwrap();
        let damaged = |error: &Error| matches!(error, Error::Corruption { .. });
        assert!(db.iter().unwrap().any(|item| item.is_err_and(|error| damaged(&error))));
        db.delete_range(bound("050")..bound("350")).unwrap();
        db.put("222", "new").unwrap();
        let count = |items: &mut dyn Iterator<Item = cleavedb::Result<(cleavedb::Slice, cleavedb::Slice)>>| {
            items.inspect(|item| assert!(item.is_ok())).count()
        };
        assert_eq!(count(&mut db.iter().unwrap()), 101);
        assert_eq!(count(&mut db.iter().unwrap().rev()), 101);
        assert_eq!(db.get("200").unwrap(), None);
        assert_eq!(db.get("222").unwrap().unwrap(), "new");
        // Nor if one of the covered keys has many versions, which the scan leaves by a seek.
        (0..30).for_each(|_| db.put("222", "newer").unwrap());
        assert_eq!(count(&mut db.iter().unwrap()), 101);
        assert_eq!(count(&mut db.iter().unwrap().rev()), 101);
    });
}

#[test]
fn thousands_of_range_deletes_take_little_space_and_stay_correct() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        // A queue: consumed keys are deleted from the front, so the ranges are nested.
        for number in 0..3000_u32 {
            db.put(format!("{number:05}"), "v").unwrap();
            if number >= 10 {
                db.delete_range(..format!("{:05}", number - 9).into_bytes()).unwrap();
            }
            if number % 500 == 250 {
                assert_eq!(db.iter().unwrap().count(), 10);
                assert_eq!(db.iter().unwrap().rev().count(), 10);
            }
        }
        assert_eq!(db.iter().unwrap().count(), 10);
        db.flush().unwrap();
        assert!(table_bytes(&db) < 10_000, "{} B", table_bytes(&db));
        // And disjoint ranges, with one key left between two of them.
        let db = open(&SimDisk::new(), backend).unwrap();
        (0..3000_u32).for_each(|number| db.put(format!("{number:05}"), "v").unwrap());
        db.flush().unwrap();
        for number in (0..3000_u32).step_by(3) {
            db.delete_range(format!("{number:05}").into_bytes()..format!("{:05}", number + 2).into_bytes()).unwrap();
        }
        for _ in 0..2 {
            assert_eq!(db.iter().unwrap().count(), 1000);
            assert_eq!(db.iter().unwrap().rev().count(), 1000);
            assert!((0..3000_u32).all(|number| db.contains(format!("{number:05}")).unwrap() == (number % 3 == 2)));
            db.flush().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
        }
    });
}

#[test]
fn a_flipped_bit_in_a_range_tombstone_block_is_an_error_or_harmless() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        let old = db.snapshot();
        (0..40_u32).for_each(|number| db.put(format!("{number:02}"), value("v", 20)).unwrap());
        db.flush().unwrap();
        let snapshot = db.snapshot();
        (0..40_u32).step_by(8).for_each(|number| {
            db.delete_range(format!("{number:02}").into_bytes()..format!("{:02}", number + 5).into_bytes()).unwrap();
        });
        db.flush().unwrap();
        let expected: Vec<bool> = (0..40_u32).map(|number| number % 8 >= 5).collect();
        let image = disk.process_crash();
        drop((old, snapshot));
        let newest = image.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|kind| kind == "table"));
        let (path, len) = newest.max().unwrap();
        let mut noticed = 0;
        for offset in 0..len {
            let image = image.process_crash();
            image.flip_bit(&path, offset, (offset % 8) as u8);
            let Ok(db) = open(&image, backend) else {
                noticed += 1;
                continue;
            };
            for (number, expected) in expected.iter().enumerate() {
                match db.contains(format!("{number:02}")) {
                    Ok(found) => assert_eq!(found, *expected, "byte {offset}: a wrong answer for {number}"),
                    Err(Error::Corruption { .. } | Error::Unsupported { .. }) => noticed += 1,
                    Err(error) => panic!("byte {offset}: {error}"),
                }
            }
            match db.iter().unwrap().collect::<Result<Vec<_>, _>>() {
                Ok(pairs) => assert_eq!(pairs.len(), 15, "byte {offset}"),
                Err(Error::Corruption { .. } | Error::Unsupported { .. }) => noticed += 1,
                Err(error) => panic!("byte {offset}: {error}"),
            }
        }
        assert!(noticed > len, "{noticed} of {len}");
    });
}
