//! Checkpoints of a database on two disks: taken while files move, and read after what they have links to is gone.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Db, Options, Result};

use crate::support::{in_world, value};
use crate::tiers::{numbered, open_at, small_logs};

const RECORDS: u32 = 200;

fn write_all(db: &Db, round: u32) {
    for number in 0..RECORDS {
        let len = if number % 2 == 0 { 40 } else { 700 };
        db.put(format!("{number:05}"), value(&format!("{number} in {round} "), len)).unwrap();
    }
}

fn check_all(db: &Db, round: u32) {
    for number in 0..RECORDS {
        let len = if number % 2 == 0 { 40 } else { 700 };
        let found = db.get(format!("{number:05}")).unwrap().unwrap();
        assert_eq!(&*found, value(&format!("{number} in {round} "), len), "{number} in {round}");
    }
    assert_eq!(db.iter().unwrap().count(), RECORDS as usize);
}

fn open_copy(disk: &SimDisk, path: &str) -> Result<Db> {
    let options = Options::new().create_if_missing(false);
    testing::open(Arc::new(disk.clone()), Path::new(path), options, Tuning::tiny())
}

fn settle(db: &Db) {
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
}

#[test]
fn a_checkpoint_while_files_move_is_complete_and_stays_so() {
    let mut during = 0;
    for seed in 0..6 {
        during += in_world(seed, move || {
            let disk = SimDisk::new();
            disk.set_linking(seed % 3 > 0);
            let (tuning, budget) = small_logs(Tuning::tiny());
            let db = open_at(&disk, Options::new().slow_dir("/slow"), tuning.clone()).unwrap();
            write_all(&db, 0);
            settle(&db);
            db.close().unwrap();
            disk.set_latency(Path::new("/other"), Duration::from_millis(3));
            // Files move to another directory, and logs to the slow tier.
            let options = Options::new().slow_dir("/other").fast_bytes(budget);
            let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
            write_all(&db, 1);
            let mut during = 0;
            for turn in 0..5 {
                let before = db.stats().tiers;
                db.checkpoint(format!("/copy-{turn}")).unwrap();
                let after = db.stats().tiers;
                during += u32::from(before.bytes_moved < after.bytes_moved);
                testing::sleep(Duration::from_micros(700 << turn));
            }
            write_all(&db, 2);
            settle(&db);
            assert_eq!(db.stats().tiers.files_to_move, 0);
            check_all(&db, 2);
            db.close().unwrap();
            for image in [disk.power_loss(seed), disk.clone()] {
                for turn in 0..5 {
                    let path = format!("/copy-{turn}");
                    let copy = open_copy(&image, &path).unwrap();
                    check_all(&copy, 1);
                    copy.close().unwrap();
                    let report = testing::check(Arc::new(image.clone()), Path::new(&path), &Options::new()).unwrap();
                    assert_eq!(report.problems, [], "{path}");
                }
                let db = open_at(&image, options.clone(), tuning.clone()).unwrap();
                check_all(&db, 2);
                db.close().unwrap();
            }
            during
        });
    }
    assert!(during > 0, "{during}");
}

/// The checkpoint lies on the slow disk: files there are linked, and those on the fast one are copied.
#[test]
fn a_checkpoint_on_the_slow_disk_outlives_what_it_has_links_to() {
    for seed in 0..3 {
        in_world(seed, move || {
            let disk = SimDisk::new();
            disk.set_own_device(Path::new("/db"));
            let (tuning, budget) = small_logs(Tuning::tiny());
            let options = Options::new().slow_dir("/slow").fast_bytes(budget);
            let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
            write_all(&db, 0);
            settle(&db);
            // As it was; but its log is on the fast tier, so the checkpoint has a copy of that.
            db.put("00000", value("0 in 0 ", 40)).unwrap();
            db.checkpoint("/copy").unwrap();
            let original = numbered(&disk, "/slow");
            let linked = numbered(&disk, "/copy").into_iter().filter(|name| original.contains(name)).count();
            assert!(linked > 0 && linked < numbered(&disk, "/copy").len(), "{linked} of {:?}", disk.files());
            // Everything that the checkpoint has is collected, in several steps.
            for round in 1..4 {
                write_all(&db, round);
                settle(&db);
                db.wait_for_background().unwrap();
            }
            let tiers = db.stats().tiers;
            assert!(tiers.bytes_left_to_checkpoints > 0, "{tiers:?}");
            assert!(tiers.fast_bytes_max <= budget, "{tiers:?}");
            db.close().unwrap();
            let left = numbered(&disk, "/slow").into_iter().filter(|name| original.contains(name)).count();
            assert!(left < original.len(), "{left} of {original:?}");
            let lost = [true, false].map(|fast| disk.power_loss_of(seed, |path| (path == Path::new("/db")) == fast));
            for image in lost.into_iter().chain([disk.clone()]) {
                let copy = open_copy(&image, "/copy").unwrap();
                check_all(&copy, 0);
                // It goes on as a database of its own, and collects what it shares with the original.
                write_all(&copy, 9);
                settle(&copy);
                check_all(&copy, 9);
                copy.close().unwrap();
                let db = open_at(&image, options.clone(), tuning.clone()).unwrap();
                check_all(&db, 3);
                db.close().unwrap();
                for (path, options) in [("/copy", &Options::new()), ("/db", &options)] {
                    let report = testing::check(Arc::new(image.clone()), Path::new(path), options).unwrap();
                    assert_eq!(report.problems, [], "{path}");
                }
            }
        });
    }
}
