//! Where tables lie: those of addresses on the fast tier while it has room for all of them, those of values below HL0 on the slow one.

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Compression, Db, Keyspace, KeyspaceOptions, Options};

use crate::support::{in_world, value};
use crate::tiers::{numbered, open_at};

/// Keys so long that a few hundred of them make large tables, and that do not compress.
fn key(number: u32) -> Vec<u8> {
    let mut state = u64::from(number) + 1;
    let noise = (0..500).map(|_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    });
    format!("{number:05}").into_bytes().into_iter().chain(noise).collect()
}

const KEYS: u32 = 300;

fn fill(db: &Db, keyspace: &Keyspace, keys: u32) {
    for number in 0..keys {
        keyspace.put(key(number), value(&number.to_string(), 300)).unwrap();
    }
    db.compact_range(keyspace, ..).unwrap();
    db.wait_for_background().unwrap();
}

fn check_filled(keyspace: &Keyspace, keys: u32) {
    for number in 0..keys {
        let found = keyspace.get(key(number)).unwrap().unwrap();
        assert_eq!(&*found, value(&number.to_string(), 300), "{number}");
    }
}

/// Tables on the fast tier and on the slow one.
fn tables(disk: &SimDisk) -> (usize, usize) {
    let tables = |dir| numbered(disk, dir).iter().filter(|name| name.ends_with("table")).count();
    (tables("/db"), tables("/slow"))
}

fn options(fast_bytes: u64) -> Options {
    Options::new().slow_dir("/slow").fast_bytes(fast_bytes)
}

/// Logs of a size that leaves room for tables.
fn tuning() -> Tuning {
    let mut tuning = Tuning::tiny();
    (tuning.log_bytes, tuning.ring_bytes, tuning.chunk_bytes) = (16 << 10, 8 << 10, 4 << 10);
    tuning
}

#[test]
fn tables_of_addresses_lie_on_the_fast_tier_and_leave_a_smaller_one() {
    for seed in 0..6 {
        in_world(seed, || {
            let disk = SimDisk::new();
            // The tables have some 160 KiB.
            for (budget, on_fast) in [(4 << 20, true), (256 << 10, false), (4 << 20, true)] {
                let db = open_at(&disk, options(budget), tuning()).unwrap();
                if numbered(&disk, "/slow").is_empty() {
                    fill(&db, &db.default_keyspace(), KEYS);
                }
                db.wait_for_background().unwrap();
                let (fast, slow) = tables(&disk);
                assert_eq!((fast > 0, slow == 0), (on_fast, on_fast), "{fast} and {slow} of {budget}");
                let tiers = db.stats().tiers;
                assert!(tiers.files_to_move == 0 && tiers.fast_bytes <= budget, "{tiers:?}");
                check_filled(&db.default_keyspace(), KEYS);
                db.close().unwrap();
                let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options(budget)).unwrap();
                assert_eq!(report.problems, []);
            }
        });
    }
}

/// The deletion of the file that an iterator held would otherwise hit the one that has returned.
#[test]
fn a_table_does_not_return_to_where_readers_still_hold_it() {
    in_world(6, || {
        let disk = SimDisk::new();
        let db = open_at(&disk, options(1 << 20), tuning()).unwrap();
        let kept = db.default_keyspace();
        fill(&db, &kept, KEYS);
        assert!(tables(&disk).0 > 0 && tables(&disk).1 == 0, "{:?}", tables(&disk));
        let mut held = db.iter().unwrap();
        assert!(held.next().unwrap().is_ok());
        // More tables than the fast tier keeps: all of them leave, and for the iterator the first ones are there, too.
        let other = db.create_keyspace("other", KeyspaceOptions::new()).unwrap();
        fill(&db, &other, 3 * KEYS);
        let (on_fast, left) = tables(&disk);
        assert!(left > 0 && on_fast > 0, "{on_fast} held, {left} moved");
        // Now there is room for the rest of them, but not for their names.
        db.drop_keyspace("other").unwrap();
        db.wait_for_background().unwrap();
        check_filled(&kept, KEYS);
        assert_eq!(held.by_ref().filter(|record| record.is_ok()).count() as u32, KEYS - 1);
        drop(held);
        db.wait_for_background().unwrap();
        assert_eq!(tables(&disk).1, 0, "they return once nobody holds them");
        check_filled(&kept, KEYS);
        db.close().unwrap();
        let db = open_at(&disk, options(1 << 20), tuning()).unwrap();
        check_filled(&db.default_keyspace(), KEYS);
        db.close().unwrap();
    });
}

/// A value that is as large as the tier, among many addresses.
#[test]
fn a_large_value_in_a_table_does_not_exceed_the_fast_tier() {
    const BUDGET: u64 = 4 << 20;
    in_world(7, || {
        let disk = SimDisk::new();
        let db = open_at(&disk, options(BUDGET).compression(Compression::None), tuning()).unwrap();
        // More than that fails: it is as large as the file system.
        disk.set_directory_capacity(Path::new("/db"), Some(BUDGET));
        fill(&db, &db.default_keyspace(), KEYS);
        assert!(tables(&disk).0 > 0, "{:?}", tables(&disk));
        let inline = db.create_keyspace("inline", KeyspaceOptions::new().separation(None)).unwrap();
        for number in 0..4 {
            inline.put(key(number), value(&number.to_string(), 3800 << 10)).unwrap();
            db.flush().unwrap();
        }
        db.compact_range(&inline, ..).unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        let tiers = db.stats().tiers;
        assert!(tiers.fast_bytes_max <= BUDGET, "{tiers:?}");
        for number in 0..4 {
            assert_eq!(&*inline.get(key(number)).unwrap().unwrap(), value(&number.to_string(), 3800 << 10));
        }
        check_filled(&db.default_keyspace(), KEYS);
        drop(inline);
        db.close().unwrap();
    });
}
