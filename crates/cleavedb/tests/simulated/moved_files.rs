//! Files that move between directories: kinds that no view lists, and names that are still taken where a file returns.

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Db, KeyspaceOptions, Options, Result};

use crate::support::{in_world, value};

const RECORDS: u32 = 60;

fn open_at(disk: &SimDisk, slow: &str, tuning: Tuning) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new("/db"), Options::new().slow_dir(slow), tuning)
}

fn write(db: &Db, round: u32) {
    for number in 0..RECORDS {
        db.put(format!("{number:03}"), value(&format!("{number} in {round} "), 700)).unwrap();
    }
    db.flush().unwrap();
}

fn check(db: &Db, round: u32) {
    for number in 0..RECORDS {
        let found = db.get(format!("{number:03}")).unwrap().unwrap();
        assert_eq!(&*found, value(&format!("{number} in {round} "), 700), "{number} in {round}");
    }
}

/// Numbered files in a directory, without manifests.
fn numbered(disk: &SimDisk, directory: &str) -> Vec<String> {
    let files = disk.files().into_iter().filter(|(path, _)| path.parent() == Some(Path::new(directory)));
    let names = files.map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('0') && !name.ends_with("manifest")).collect()
}

#[test]
fn saved_indexes_move_with_the_other_files_and_are_counted() {
    in_world(1, || {
        let disk = SimDisk::new();
        let tuning = || {
            let mut tuning = Tuning::tiny();
            // Indexes are saved at each close.
            (tuning.close_flush_bytes, tuning.log_bytes, tuning.log_bytes_min) = (0, 64 << 10, 64 << 10);
            tuning
        };
        let indexes = |dir| numbered(&disk, dir).iter().filter(|name| name.ends_with("index")).count();
        let db = open_at(&disk, "/slow", tuning()).unwrap();
        let keyspace = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
        let of = |number: u32| value(&number.to_string(), 500);
        (0..200_u32).for_each(|number| keyspace.put(number.to_be_bytes(), of(number)).unwrap());
        drop(keyspace);
        db.close().unwrap();
        assert_eq!((indexes("/slow"), indexes("/other")), (1, 0));
        let mut counted = 0;
        for (slow, former) in [("/other", "/slow"), ("/db", "/other"), ("/slow", "/db")] {
            let db = open_at(&disk, slow, tuning()).unwrap();
            let pause = db.pause_background();
            let tiers = db.stats().tiers;
            // Otherwise it has moved already, and only its old name may be left.
            if pause.is_ok() && tiers.files_to_move > 0 {
                counted += indexes(former);
                let directory = tiers.directories.iter().find(|directory| directory.path == former).unwrap();
                assert!(directory.files > 0 && directory.bytes > 0, "{tiers:?}");
            }
            drop(pause);
            db.wait_for_background().unwrap();
            assert_eq!((indexes(slow), indexes(former)), (1, 0), "from {former} to {slow}");
            assert_eq!(db.stats().tiers.files_to_move, 0);
            let keyspace = db.open_keyspace("hashed").unwrap();
            (0..200_u32)
                .for_each(|number| assert_eq!(&*keyspace.get(number.to_be_bytes()).unwrap().unwrap(), &of(number)));
            drop(keyspace);
            db.close().unwrap();
            let report =
                testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new().slow_dir(slow)).unwrap();
            assert_eq!(report.problems, []);
        }
        assert!(counted > 0, "a saved index was counted before it moved");
    });
}

/// One removal, creation or rename in the directory to which files return fails. Old names stay there, which must neither
/// stop writes nor be taken for anything: the move is done later.
#[test]
fn a_file_returns_to_a_directory_that_still_has_its_old_name() {
    let mut returned = 0;
    for after in 0..40 {
        returned += in_world(after, move || {
            let disk = SimDisk::new();
            let db = open_at(&disk, "/slow", Tuning::tiny()).unwrap();
            write(&db, 1);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.close().unwrap();
            let db = open_at(&disk, "/other", Tuning::tiny()).unwrap();
            db.wait_for_background().unwrap();
            // The old names cannot be removed.
            let within = Some("/slow".into());
            disk.set_faults(Faults { fail_directory_after: Some(0), lasting: true, within, ..Faults::default() });
            db.put("more", "").unwrap();
            let _ = db.close();
            disk.clear_faults();
            // Nor by the open that makes the directory the slow tier again; which of them is one of these operations.
            let within = Some("/slow".into());
            disk.set_faults(Faults { fail_directory_after: Some(after), within, ..Faults::default() });
            let opened = open_at(&disk, "/slow", Tuning::tiny());
            let Ok(db) = opened else {
                disk.clear_faults();
                let db = open_at(&disk, "/slow", Tuning::tiny()).unwrap();
                check(&db, 1);
                return 0;
            };
            let waited = db.wait_for_background();
            let message = waited.as_ref().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(!message.contains("exists"), "{after}: {message}");
            check(&db, 1);
            disk.clear_faults();
            if waited.is_err() {
                let _ = db.close();
                let db = open_at(&disk, "/slow", Tuning::tiny()).unwrap();
                db.wait_for_background().unwrap();
                check(&db, 1);
                return 0;
            }
            assert_eq!(numbered(&disk, "/other"), Vec::<String>::new(), "{after}");
            write(&db, 2);
            check(&db, 2);
            db.close().unwrap();
            1
        });
    }
    assert!(returned > 10, "{returned}");
}

/// A copy that found no space and could not be removed either is replaced by the next try.
#[test]
fn a_copy_that_failed_and_stays_is_replaced_by_the_next_one() {
    for after in 0..6 {
        in_world(after, move || {
            let disk = SimDisk::new();
            let db = open_at(&disk, "/slow", Tuning::tiny()).unwrap();
            write(&db, 1);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.close().unwrap();
            // A crash in the middle of the moves leaves copies, which the next open cannot remove.
            let db = open_at(&disk, "/other", Tuning::tiny()).unwrap();
            db.wait_for_background().unwrap();
            let names = numbered(&disk, "/other");
            db.close().unwrap();
            let db = open_at(&disk, "/slow", Tuning::tiny()).unwrap();
            let pause = db.pause_background();
            // They have the numbers of files of ours, and the manifest names these elsewhere.
            for name in &names {
                let path = Path::new("/slow").join(name);
                if disk.read_file(&path).is_none() {
                    disk.write_file(&path, b"a copy that was not finished");
                }
            }
            drop(pause);
            db.wait_for_background().unwrap();
            check(&db, 1);
            assert_eq!(numbered(&disk, "/other"), Vec::<String>::new());
            db.put("more", "").unwrap();
            db.close().unwrap();
        });
    }
}
