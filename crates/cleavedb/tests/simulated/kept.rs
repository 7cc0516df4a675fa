//! What stays on the fast tier beside logs: redirect tables, and values that readers were asking for when they were moved.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use cleavedb::testing::{self, SimDisk, Storage, Tuning};
use cleavedb::{Db, Options, TierStats, ValuePlacement};

use crate::support::{crash_before, in_world, lose_power, open_with, taken, value};

const RECORDS: u32 = 800;
/// Bytes of a value: separated, and few enough that a tiny cache takes it.
const LEN: usize = 195;

fn options() -> Options {
    Options::new().slow_dir("/slow").fast_bytes(1 << 20)
}

fn key(number: u32) -> String {
    format!("{number:05}")
}

/// Half of the records are overwritten; of the others, the first few are read all the time.
fn write_and_read(db: &Db, round: u32) {
    for number in 0..RECORDS {
        if round == 0 || number % 2 == 1 {
            db.put(key(number), value(&format!("{number} in {round} "), LEN)).unwrap();
        }
        if number % 20 == 0 {
            read_often(db);
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_kept <= tiers.fast_bytes_limit.unwrap_or(u64::MAX) / 4, "{tiers:?}");
        }
    }
}

fn read_often(db: &Db) {
    (0..80).step_by(4).for_each(|number| drop(db.get(key(number)).unwrap()));
}

fn check(db: &Db, rounds: u32) {
    for number in 0..RECORDS {
        let last = if number % 2 == 1 { rounds - 1 } else { 0 };
        let found = db.get(key(number)).unwrap().unwrap();
        assert_eq!(&*found, value(&format!("{number} in {last} "), LEN), "{number}");
    }
    assert_eq!(db.iter().unwrap().count(), RECORDS as usize);
}

/// Lengths of the segments, or of the redirect tables, in the fast directory.
fn lengths_on_fast(disk: &SimDisk, kind: &str) -> Vec<u64> {
    let files = disk.files().into_iter().filter(|(path, _)| path.parent() == Some(Path::new("/db")));
    files.filter(|(path, _)| path.to_string_lossy().ends_with(kind)).map(|(_, len)| len).collect()
}

fn on_fast(disk: &SimDisk, kind: &str) -> usize {
    lengths_on_fast(disk, kind).len()
}

fn after_rounds(disk: &SimDisk, tuning: Tuning, rounds: u32) -> Db {
    let db = open_with(disk, options(), tuning).unwrap();
    for round in 0..rounds {
        write_and_read(&db, round);
    }
    db
}

/// Either placement, and memory to judge all records of a job at once or few of them.
fn tunings() -> impl Iterator<Item = Tuning> {
    let placements = [ValuePlacement::Hash, ValuePlacement::Range];
    placements.into_iter().flat_map(|placement| {
        [false, true].map(|has_little_memory| {
            let mut tuning = Tuning::tiny();
            tuning.placement = placement;
            tuning.job_bytes = if has_little_memory { 16 << 10 } else { tuning.job_bytes };
            tuning
        })
    })
}

#[test]
fn values_that_are_read_and_redirect_tables_are_on_the_fast_tier_and_stay_there() {
    for (seed, tuning) in (0..).zip(tunings()) {
        in_world(seed, move || {
            let disk = SimDisk::new();
            // A redirect table goes when all addresses are new again.
            let names = Arc::new(Mutex::new(BTreeSet::new()));
            let into = names.clone();
            disk.on_sync(move |_, point| {
                into.lock().unwrap().insert(point.path.to_owned());
            });
            let db = after_rounds(&disk, tuning.clone(), 6);
            db.wait_for_background().unwrap();
            disk.clear_on_sync();
            let names = std::mem::take(&mut *names.lock().unwrap());
            let redirects: Vec<_> = names.iter().filter(|path| path.to_string_lossy().ends_with("redirect")).collect();
            assert!(!redirects.is_empty() && redirects.iter().all(|path| path.starts_with("/db")), "{names:?}");
            assert!(on_fast(&disk, "segment") > 0, "{:?}", disk.files());
            let tiers = db.stats().tiers;
            let share = tiers.fast_bytes_limit.unwrap() / 4;
            assert!(tiers.fast_bytes_kept > 0 && tiers.fast_bytes_kept <= share, "{tiers:?}");
            assert_eq!(tiers.files_to_move, 0, "{tiers:?} {:?}", disk.files());
            check(&db, 6);
            db.close().unwrap();
            let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options()).unwrap();
            assert_eq!(report.problems, []);
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            db.wait_for_background().unwrap();
            // Value GC and reordering may collect them, like any other.
            let stats = db.stats();
            let collected = stats.value_gcs + stats.value_reorders;
            assert!(on_fast(&disk, "segment") > 0 || collected > 0, "an open moves none of them");
            check(&db, 6);
            db.close().unwrap();
        });
    }
}

#[test]
fn they_leave_when_the_budget_shrinks_or_one_directory_is_declared() {
    in_world(1, || {
        let disk = SimDisk::new();
        after_rounds(&disk, Tuning::tiny(), 6).close().unwrap();
        let before = on_fast(&disk, "segment") + on_fast(&disk, "redirect");
        assert!(before > 0);
        let db = open_with(&disk, options().fast_bytes(1), Tuning::tiny()).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!((on_fast(&disk, "segment"), on_fast(&disk, "redirect")), (0, 0));
        check(&db, 6);
        db.close().unwrap();
        let db = open_with(&disk, Options::new().slow_dir("/db"), Tuning::tiny()).unwrap();
        db.wait_for_background().unwrap();
        check(&db, 6);
        assert_eq!(db.stats().tiers.fast_bytes_kept, 0, "there is one directory");
        db.close().unwrap();
    });
}

#[test]
fn a_crash_while_they_are_made_or_moved_loses_nothing() {
    let mut with_some = 0;
    for seed in 0..4 {
        with_some += in_world(seed, move || {
            let disk = SimDisk::new();
            let db = after_rounds(&disk, Tuning::tiny(), 2);
            db.sync().unwrap();
            let images = if seed % 2 == 0 { lose_power(&disk) } else { crash_before(&disk, |_, _| true) };
            write_and_read(&db, 2);
            db.wait_for_background().unwrap();
            db.close().unwrap();
            let (images, mut with_some) = (taken(&disk, &images), 0);
            let step = (images.len() / 8).max(1);
            for image in images.into_iter().step_by(step) {
                with_some += u32::from(on_fast(&image, "segment") > 0);
                let db = open_with(&image, options(), Tuning::tiny()).unwrap();
                for number in (0..RECORDS).step_by(2) {
                    let found = db.get(key(number)).unwrap().unwrap();
                    assert_eq!(&*found, value(&format!("{number} in 0 "), LEN), "{number}");
                }
                write_and_read(&db, 3);
                db.wait_for_background().unwrap();
                check(&db, 4);
                db.close().unwrap();
                let report = testing::check(Arc::new(image), Path::new("/db"), &options()).unwrap();
                assert_eq!(report.problems, []);
            }
            with_some
        });
    }
    assert!(with_some > 5, "{with_some}");
}

#[test]
fn what_only_a_checkpoint_needs_is_counted_apart() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = after_rounds(&disk, Tuning::tiny(), 3);
        db.wait_for_background().unwrap();
        let held = |tiers: &TierStats| tiers.directories.iter().map(|of| of.checkpoint_bytes).sum::<u64>();
        let before = db.stats().tiers;
        assert_eq!((held(&before), before.bytes_left_to_checkpoints), (0, 0));
        db.checkpoint("/copy").unwrap();
        for number in 0..RECORDS {
            db.put(key(number), value("new ", LEN)).unwrap();
        }
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        let tiers = db.stats().tiers;
        assert!(tiers.bytes_left_to_checkpoints > 100 << 10, "{tiers:?}");
        let pending = db.stats().value_bytes_pending;
        assert_eq!(held(&tiers), pending);
        for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/copy")) {
            disk.remove(&path).unwrap();
        }
        db.close().unwrap();
    });
}

#[test]
fn the_budget_has_back_what_dead_values_took_on_the_fast_tier() {
    in_world(1, || {
        let disk = SimDisk::new();
        // By key range, and in several extents of a segment.
        let db = open_with(&disk, options(), tunings().last().unwrap()).unwrap();
        let read = || (0..160).step_by(2).for_each(|number| drop(db.get(key(number)).unwrap()));
        for round in 0..3 {
            for number in (0..RECORDS).filter(|number| round == 0 || number % 2 == 1) {
                db.put(key(number), value(&format!("{number} in {round} "), LEN)).unwrap();
                if number % 20 == 0 {
                    read();
                }
            }
        }
        db.wait_for_background().unwrap();
        assert!(on_fast(&disk, "segment") > 0, "{:?}", disk.files());
        (0..130).for_each(|number| db.delete(key(number)).unwrap());
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        // Most extents are dead and punched; the lengths are the same.
        let lengths = lengths_on_fast(&disk, "segment");
        let tiers = db.stats().tiers;
        let length: u64 = lengths.iter().sum();
        assert!(tiers.fast_bytes_kept > 0 && tiers.fast_bytes_kept < length, "{lengths:?} {tiers:?}");
        db.close().unwrap();
    });
}
