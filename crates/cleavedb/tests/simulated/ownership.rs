//! Ownership of the files in a directory, across crashes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cleavedb::testing::{self, Faults, SimDisk, Storage, SyncPoint, Tuning};
use cleavedb::{Db, Error, Options, Result};

use crate::support::{crash_before, in_world, lose_power, open_with, taken};

fn open_with_directories(disk: &SimDisk, main: &str) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new(main), Options::new().slow_dir("/slow"), Tuning::tiny())
}

fn put_and_flush(db: &Db, key: &str) {
    db.put(key, "v").unwrap();
    db.flush().unwrap();
}

#[test]
fn after_a_crash_at_any_moment_of_an_open_the_owner_keeps_its_directory() {
    in_world(5, || {
        // The first open, which creates the database and claims the directory, and a later one.
        for is_first in [true, false] {
            let disk = SimDisk::new();
            if !is_first {
                let db = open_with_directories(&disk, "/db").unwrap();
                put_and_flush(&db, "k");
                db.close().unwrap();
            }
            let mut images = vec![disk];
            // Each image may crash during its own open again.
            for round in 0..2 {
                let crashed = Arc::new(Mutex::new(Vec::new()));
                for image in images {
                    let into = crashed.clone();
                    image.on_sync(move |disk, _| {
                        let mut crashed = into.lock().unwrap();
                        let seed = crashed.len() as u64;
                        crashed.extend([disk.process_crash(), disk.power_loss(seed), disk.power_loss(seed + 1000)]);
                    });
                    let db = open_with_directories(&image, "/db").unwrap();
                    image.clear_on_sync();
                    assert_eq!(db.get("k").unwrap().is_some(), !is_first);
                    db.close().unwrap();
                }
                images = std::mem::take(&mut *crashed.lock().unwrap());
                assert!(images.len() > 10, "round {round}: {} images", images.len());
                images.iter().for_each(|image| image.clear_on_sync());
                // Enough of them.
                let step = images.len().div_ceil(60);
                images = images.into_iter().step_by(step).collect();
            }
            for image in images {
                let db = open_with_directories(&image, "/db").unwrap();
                put_and_flush(&db, "later");
                db.close().unwrap();
                let storage = Arc::new(image);
                let report = testing::check(storage, Path::new("/db"), &Options::new().slow_dir("/slow")).unwrap();
                assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
            }
        }
    });
}

fn files_named(disk: &SimDisk, extension: &str) -> usize {
    disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|found| found == extension)).count()
}

/// A process that died has replaced `CURRENT`, but the directory was not synced, and the manifest before it has a last
/// edit that was not synced either.
#[test]
fn tables_that_an_earlier_manifest_references_survive_until_it_cannot_come_back() {
    let mut opened = 0;
    for seed in 0..3 {
        opened += in_world(seed, || {
            let disk = SimDisk::new();
            let db = open_with_directories(&disk, "/db").unwrap();
            (0..3).for_each(|number| put_and_flush(&db, &format!("{number}")));
            // The edit of the compaction, which removes these tables.
            let images =
                crash_before(&disk, |_, point| point.path.extension().is_some_and(|found| found == "manifest"));
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            let mut opened = 0;
            for image in taken(&disk, &images) {
                let is_replaced = |disk: &SimDisk, point: &SyncPoint<'_>| {
                    let current = disk.read_file(Path::new("/db/CURRENT")).unwrap();
                    let names = |path: &Path| {
                        String::from_utf8_lossy(&current)
                            .contains(path.file_stem().unwrap().to_str().unwrap().trim_start_matches('0'))
                    };
                    let newest = disk
                        .files()
                        .into_iter()
                        .rfind(|(path, _)| path.extension().is_some_and(|found| found == "manifest"));
                    point.is_dir
                        && point.path == Path::new("/db")
                        && newest.is_some_and(|(path, _)| names(&path))
                        && files_named(disk, "manifest") > 1
                };
                let images = crash_before(&image, is_replaced);
                open_with_directories(&image, "/db").unwrap().close().unwrap();
                for image in taken(&image, &images) {
                    let images = lose_power(&image);
                    open_with_directories(&image, "/db").unwrap().close().unwrap();
                    for image in taken(&image, &images) {
                        let db = open_with_directories(&image, "/db").unwrap();
                        let found: Vec<_> =
                            (0..3).map(|number| db.get(format!("{number}")).unwrap().is_some()).collect();
                        assert_eq!(found, [true; 3]);
                        db.close().unwrap();
                        opened += 1;
                    }
                }
            }
            opened
        });
    }
    assert!(opened > 100, "{opened}");
}

/// The first process has replaced `OWNER` and died before it was durable, the second one loses power.
#[test]
fn an_owner_that_comes_back_after_two_crashes_is_known() {
    in_world(9, || {
        let disk = SimDisk::new();
        for key in ["a", "b"] {
            let db = open_with_directories(&disk, "/db").unwrap();
            put_and_flush(&db, key);
            db.close().unwrap();
        }
        let images = crash_before(&disk, |_, point| point.is_dir && point.path == Path::new("/slow"));
        open_with_directories(&disk, "/db").unwrap().close().unwrap();
        let mut opened = 0;
        for image in taken(&disk, &images) {
            let images = lose_power(&image);
            open_with_directories(&image, "/db").unwrap().close().unwrap();
            for image in taken(&image, &images) {
                let db = open_with_directories(&image, "/db").unwrap();
                assert!(["a", "b"].iter().all(|key| db.get(key).unwrap().is_some()));
                db.close().unwrap();
                opened += 1;
            }
        }
        assert!(opened > 20, "{opened}");
    });
}

fn copy_main(disk: &SimDisk, to: &str) {
    for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/db") && !path.ends_with("LOCK")) {
        let content = disk.read_file(&path).unwrap();
        disk.write_file(&Path::new(to).join(path.file_name().unwrap()), &content);
    }
}

#[test]
fn a_copy_made_while_the_original_was_open_removes_none_of_its_files() {
    in_world(10, || {
        let disk = SimDisk::new();
        let db = open_with_directories(&disk, "/db").unwrap();
        put_and_flush(&db, "before");
        copy_main(&disk, "/duplicate");
        put_and_flush(&db, "after");
        db.close().unwrap();
        let refused = open_with_directories(&disk, "/duplicate").map(drop);
        assert!(matches!(&refused, Err(Error::InvalidInput { message }) if message.contains("copy")), "{refused:?}");
        let db = open_with_directories(&disk, "/db").unwrap();
        assert!(["before", "after"].iter().all(|key| db.get(key).unwrap().is_some()));
        db.close().unwrap();
    });
}

#[test]
fn a_slow_directory_that_is_not_mounted_is_not_taken_for_a_new_one() {
    in_world(11, || {
        let disk = SimDisk::new();
        let open = |slow: &str| {
            let options = Options::new().slow_dir(slow);
            testing::open(Arc::new(disk.clone()), Path::new("/db"), options, Tuning::tiny())
        };
        let is_refused = |slow: &str| {
            let refused = open(slow).map(drop);
            let is_missing = matches!(
                &refused,
                Err(Error::InvalidInput { message } | Error::Corruption { message, .. })
                    if message.contains("mount") || message.contains("missing")
            );
            assert!(is_missing, "{refused:?}");
        };
        for has_files in [false, true] {
            let db = open("/slow").unwrap();
            if has_files {
                put_and_flush(&db, "k");
                // Out of HL0, which is on the fast tier.
                db.compact_range(&db.default_keyspace(), ..).unwrap();
                db.wait_for_background().unwrap();
            }
            db.close().unwrap();
            // The directory under the mount point is empty.
            let owner = disk.read_file(Path::new("/slow/OWNER")).unwrap();
            disk.remove(Path::new("/slow/OWNER")).unwrap();
            is_refused("/slow");
            if has_files {
                is_refused("/another");
            }
            disk.write_file(Path::new("/slow/OWNER"), &owner);
        }
        assert!(open("/slow").unwrap().get("k").unwrap().is_some());
    });
}

#[test]
fn left_over_files_that_cannot_be_removed_do_not_prevent_an_open() {
    in_world(12, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new(), Tuning::tiny()).unwrap();
        put_and_flush(&db, "k");
        db.close().unwrap();
        let left_over = ["00000012.segment", "00000013.segment"].map(|name| PathBuf::from("/db").join(name));
        left_over.iter().for_each(|path| disk.write_file(path, b"?"));
        // Each directory operation of an open in turn; some of them must not fail.
        let mut opened = 0;
        for after in 0..12 {
            let image = disk.process_crash();
            image.set_faults(Faults { fail_directory_after: Some(after), ..Faults::default() });
            let removed = || left_over.iter().filter(|path| image.read_file(path).is_none()).count();
            if let Ok(db) = open_with(&image, Options::new(), Tuning::tiny())
                && removed() == 1
            {
                opened += 1;
                put_and_flush(&db, "later");
                db.close().unwrap();
            }
            image.clear_faults();
            open_with(&image, Options::new(), Tuning::tiny()).unwrap().close().unwrap();
            assert_eq!(removed(), 2);
        }
        assert_eq!(opened, 2);
    });
}

#[test]
fn a_copy_that_crashed_during_its_open_takes_nothing_from_the_original() {
    in_world(6, || {
        let disk = SimDisk::new();
        let db = open_with_directories(&disk, "/db").unwrap();
        put_and_flush(&db, "k");
        db.close().unwrap();
        copy_main(&disk, "/duplicate");
        let images = Arc::new(Mutex::new(Vec::new()));
        let into = images.clone();
        disk.on_sync(move |disk, _| into.lock().unwrap().push(disk.process_crash()));
        open_with_directories(&disk, "/duplicate").unwrap().close().unwrap();
        disk.clear_on_sync();
        let images = std::mem::take(&mut *images.lock().unwrap());
        let mut owners = Vec::new();
        for image in images {
            image.clear_on_sync();
            let opens = ["/db", "/duplicate"].map(|main| match open_with_directories(&image.process_crash(), main) {
                Ok(db) => {
                    assert_eq!(db.get("k").unwrap().unwrap(), "v");
                    put_and_flush(&db, "later");
                    db.close().unwrap();
                    true
                }
                Err(error) => {
                    assert!(error.to_string().contains("copy"), "{error}");
                    false
                }
            });
            owners.push(opens);
            // One after the other; only the first one gets the directory.
            if opens == [true, true] {
                open_with_directories(&image, "/db").unwrap().close().unwrap();
                assert!(open_with_directories(&image, "/duplicate").is_err());
            }
        }
        assert_eq!(owners.first(), Some(&[true, true]));
        assert_eq!(owners.last(), Some(&[false, true]));
    });
}

#[test]
fn unreferenced_files_with_reserved_numbers_are_removed() {
    in_world(7, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new(), Tuning::tiny()).unwrap();
        put_and_flush(&db, "k");
        db.close().unwrap();
        let path = |name: &str| PathBuf::from("/db").join(name);
        let left_over = ["00000012.table", "00000013.segment", "00000014.log"].map(path);
        let unknown = ["00000777.table", "00000778.segment", "00000779.log", "00000780.manifest"].map(path);
        left_over.iter().chain(&unknown).for_each(|path| disk.write_file(path, b"?"));
        let check = || testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new()).unwrap();
        let report = check();
        let notes = |of: &str| report.notes.iter().filter(|note| note.contains(of)).count();
        assert!(report.is_sound() && notes("left over") == 3 && notes("leaves it alone") == 4, "{report:?}");
        for round in 0..4 {
            let db = open_with(&disk, Options::new(), Tuning::tiny()).unwrap();
            assert_eq!(db.stats().unknown_files, unknown);
            // The tiny blocks of file numbers run out several times.
            (0..30).for_each(|number| put_and_flush(&db, &format!("{round} {number}")));
            db.close().unwrap();
            assert!(left_over.iter().all(|path| disk.read_file(path).is_none_or(|content| content != b"?")));
            assert!(unknown.iter().all(|path| disk.read_file(path).unwrap() == b"?"));
        }
        let report = check();
        assert!(report.is_sound() && report.notes.len() == 4, "{report:?}");
    });
}

#[test]
fn a_checkpoint_reserves_its_own_numbers() {
    in_world(8, || {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new(), Tuning::tiny()).unwrap();
        for number in 0..40 {
            put_and_flush(&db, &number.to_string());
            if number % 7 == 0 {
                db.checkpoint(format!("/copy {number}")).unwrap();
            }
        }
        db.close().unwrap();
        for number in (0..40).step_by(7) {
            let path = format!("/copy {number}");
            for _ in 0..2 {
                let db =
                    testing::open(Arc::new(disk.clone()), Path::new(&path), Options::new(), Tuning::tiny()).unwrap();
                assert_eq!(db.iter().unwrap().count(), number + 1);
                put_and_flush(&db, "0");
                db.close().unwrap();
            }
            let report = testing::check(Arc::new(disk.clone()), Path::new(&path), &Options::new()).unwrap();
            assert!(report.problems.is_empty() && report.notes.is_empty(), "{report:?}");
        }
    });
}
