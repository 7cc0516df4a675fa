//! Checkpoints: consistent, complete, and removed if they fail.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimDisk, Tuning, spawn};
use cleavedb::{Compression, Db, Durability, Error, LogBackend, Options, Result};

use crate::support::{in_world, open, open_with, text, unflushed, value, with_each_log};

fn open_copy(disk: &SimDisk, path: &str) -> Result<Db> {
    let options = Options::new().create_if_missing(false);
    testing::open(Arc::new(disk.clone()), Path::new(path), options, Tuning::tiny())
}

fn files_in(disk: &SimDisk, path: &str) -> Vec<String> {
    let below = disk.files().into_iter().filter(|(file, _)| file.starts_with(path));
    below.map(|(file, _)| file.display().to_string()).collect()
}

#[test]
fn a_checkpoint_holds_everything_up_to_the_call_and_is_independent_afterwards() {
    with_each_log(|backend| {
        for linking in [true, false] {
            let disk = SimDisk::new();
            disk.set_linking(linking);
            let options = Options::new().log_backend(backend).fast_dir("/fast").slow_dir("/slow");
            let db = testing::open(Arc::new(disk.clone()), Path::new("/db"), options, Tuning::tiny()).unwrap();
            for number in 0..400 {
                db.put(format!("{number:03}"), value("v", number)).unwrap();
            }
            db.checkpoint("/copy").unwrap();
            // Whatever happens to the original and to the power.
            for number in 0..400 {
                db.delete(format!("{number:03}")).unwrap();
            }
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.close().unwrap();
            let disk = disk.power_loss(3);
            for _ in 0..2 {
                let copy = open_copy(&disk, "/copy").unwrap();
                assert_eq!(copy.iter().unwrap().count(), 400);
                assert_eq!(copy.get("399").unwrap().unwrap(), value("v", 399));
                copy.put("new", "v").unwrap();
                copy.delete("new").unwrap();
                copy.flush().unwrap();
                copy.close().unwrap();
            }
            // The original is not affected.
            let options = Options::new().fast_dir("/fast").slow_dir("/slow");
            let db = testing::open(Arc::new(disk.clone()), Path::new("/db"), options, Tuning::tiny()).unwrap();
            assert_eq!(db.iter().unwrap().count(), 0);
        }
    });
}

#[test]
fn a_checkpoint_shares_no_log_with_the_original() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db =
            testing::open(Arc::new(disk.clone()), Path::new("/db"), Options::new().log_backend(backend), unflushed());
        let db = db.unwrap();
        for number in 0..100 {
            db.put(format!("{number:03}"), value("v", 700)).unwrap();
        }
        db.checkpoint("/copy").unwrap();
        let logs = |place: &str| -> Vec<(String, Vec<u8>)> {
            let logs = files_in(&disk, place).into_iter().filter(|name| name.ends_with(".log"));
            logs.map(|name| (name.clone(), disk.read_file(Path::new(&name)).unwrap())).collect()
        };
        let before = logs("/copy");
        assert!(before.len() > 2);
        for number in 0..100 {
            db.put(format!("{number:03}"), "another").unwrap();
        }
        // Truncates the space reserved after its logs.
        db.close().unwrap();
        assert!(logs("/copy") == before);
        let copy = open_copy(&disk, "/copy").unwrap();
        assert_eq!(copy.get("050").unwrap().unwrap(), value("v", 700));
    });
}

fn checkpoint_while_writing(seed: u64, backend: LogBackend) {
    let disk = SimDisk::new();
    let db = open(&disk, backend).unwrap();
    let acknowledged: Arc<Vec<AtomicU64>> = Arc::new((0..2).map(|_| AtomicU64::new(0)).collect());
    let stop = Arc::new(AtomicU64::new(0));
    let writers: Vec<_> = (0..2_usize)
        .map(|writer| {
            let (db, acknowledged, stop) = (db.clone(), acknowledged.clone(), stop.clone());
            spawn(&format!("writer {writer}"), move || {
                for number in 1.. {
                    if stop.load(Ordering::SeqCst) == 1 {
                        break;
                    }
                    // Each write stores the writer's progress in one key, and adds a key of its own.
                    let mut batch = cleavedb::WriteBatch::new();
                    let keyspace = db.default_keyspace();
                    batch.put(&keyspace, format!("writer {writer}"), number.to_string());
                    batch.put(&keyspace, format!("{writer} {number:08}"), value("v", 250));
                    let durability = if number % 7 == 0 { Durability::Sync } else { Durability::Buffered };
                    db.write_with(batch, durability).unwrap();
                    acknowledged[writer].store(number, Ordering::SeqCst);
                }
            })
        })
        .collect();
    for turn in 0..4 {
        testing::sleep(std::time::Duration::from_millis(3));
        let before: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
        let path = format!("/copy-{turn}");
        db.checkpoint(&path).unwrap();
        let after: Vec<u64> = acknowledged.iter().map(|number| number.load(Ordering::SeqCst)).collect();
        let copy = open_copy(&disk.power_loss(seed), &path).unwrap();
        for writer in 0..2 {
            let last: u64 = text(&copy, &format!("writer {writer}")).map_or(0, |number| number.parse().unwrap());
            let (least, most) = (before[writer], after[writer] + 1);
            assert!((least..=most).contains(&last), "seed {seed}: {last} is not in {least}..={most}");
            assert_eq!(copy.prefix(format!("{writer} ")).unwrap().count() as u64, last, "seed {seed}");
        }
    }
    stop.store(1, Ordering::SeqCst);
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    db.close().unwrap();
}

#[test]
fn a_checkpoint_during_heavy_writes_is_a_prefix_of_history() {
    for seed in 0..6 {
        let backend = crate::support::BACKENDS[seed as usize % 2];
        in_world(seed, move || checkpoint_while_writing(seed, backend));
    }
}

#[test]
fn unsuitable_targets_are_refused_and_not_changed() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        db.put("key", "value").unwrap();
        disk.write_file(Path::new("/full/theirs"), b"text");
        let refused = |path: &str| matches!(db.checkpoint(path), Err(Error::InvalidInput { .. }));
        assert!(refused("/db/copy") && refused("/db") && refused("/full"));
        assert_eq!(files_in(&disk, "/full"), ["/full/theirs"]);
        assert!(files_in(&disk, "/db/copy").is_empty());
        db.checkpoint("/copy").unwrap();
        assert!(refused("/copy"));
        let copy = open_copy(&disk, "/copy").unwrap();
        assert!(matches!(db.checkpoint("/copy"), Err(Error::Locked { .. })));
        assert_eq!(text(&copy, "key").unwrap(), "value");
        db.clone().close().unwrap();
        assert!(matches!(db.checkpoint("/late"), Err(Error::Closed)));
    });
}

/// Once a database is closed, another process may open it and remove files that a checkpoint still needs.
#[test]
fn a_close_stops_a_running_checkpoint_and_waits_for_it() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        disk.set_linking(false);
        let db = open(&disk, backend).unwrap();
        for number in 0..300 {
            db.put(format!("{number:03}"), value(&format!("{number}"), 500)).unwrap();
        }
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        // The sync of the first file of the copy takes long.
        let began = Arc::new(AtomicBool::new(false));
        let begins = began.clone();
        disk.on_sync(move |_, point| {
            if point.path.starts_with("/copy") && !begins.swap(true, Ordering::SeqCst) {
                testing::sleep(Duration::from_secs(5));
            }
        });
        let other = db.clone();
        let copying = testing::spawn("copying", move || {
            let copied = other.checkpoint("/copy");
            assert!(matches!(copied, Err(Error::Closed)), "{copied:?}");
        });
        while !began.load(Ordering::SeqCst) {
            testing::yield_point();
        }
        db.close().unwrap();
        assert!(files_in(&disk, "/copy").is_empty());
        copying.join().unwrap();
    });
}

#[test]
fn a_failed_checkpoint_leaves_no_files() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        disk.set_linking(false);
        let options = Options::new().log_backend(backend).compression(Compression::None);
        let db = open_with(&disk, options, Tuning::tiny()).unwrap();
        for number in 0..300 {
            db.put(format!("{number:03}"), value("v", 500)).unwrap();
        }
        db.sync().unwrap();
        let pause = db.pause_background().unwrap();
        let before = disk.files().len();
        for room in [0, 20_000, 60_000] {
            disk.set_capacity(Some(disk.used() + room));
            assert!(matches!(db.checkpoint("/copy"), Err(Error::NoSpace { .. })));
            disk.set_capacity(None);
            assert_eq!(files_in(&disk, "/copy").len(), 0);
        }
        for after in 0..6 {
            disk.set_faults(Faults { fail_sync_after: Some(after), ..Faults::default() });
            let failed = db.checkpoint("/copy");
            disk.clear_faults();
            if failed.is_ok() {
                break;
            }
            assert_eq!(disk.files().len(), before);
        }
        drop(pause);
        // Only the copy failed: the database continues.
        db.put("later", "v").unwrap();
        db.sync().unwrap();
        db.checkpoint("/copy 2").unwrap();
        assert_eq!(open_copy(&disk, "/copy 2").unwrap().iter().unwrap().count(), 301);
    });
}

#[test]
fn a_checkpoint_interrupted_by_a_crash_cannot_be_opened() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        disk.set_linking(backend == LogBackend::Ring);
        let db = open(&disk, backend).unwrap();
        for number in 0..300 {
            db.put(format!("{number:03}"), value("v", 500)).unwrap();
        }
        let images = Arc::new(std::sync::Mutex::new(Vec::new()));
        let into = images.clone();
        disk.on_sync(move |disk, point| {
            if point.path.starts_with("/copy") {
                let seed = into.lock().unwrap().len() as u64;
                into.lock().unwrap().push(disk.power_loss(seed));
                into.lock().unwrap().push(disk.process_crash());
            }
        });
        db.checkpoint("/copy").unwrap();
        disk.clear_on_sync();
        let images = std::mem::take(&mut *images.lock().unwrap());
        assert!(images.len() > 8);
        let mut opened = 0;
        for image in images {
            match open_copy(&image, "/copy") {
                Ok(copy) => {
                    assert_eq!(copy.iter().unwrap().count(), 300);
                    opened += 1;
                }
                // Without CURRENT; with some files of a database in it, it may be one that has lost that.
                Err(Error::NotFound { .. } | Error::Corruption { .. }) => {
                    assert!(!files_in(&image, "/copy").iter().any(|name| name.ends_with("CURRENT")));
                    // Nor can a new database be created over its remains.
                    let bare = files_in(&image, "/copy").iter().all(|name| name.ends_with("LOCK"));
                    let new =
                        testing::open(Arc::new(image.clone()), Path::new("/copy"), Options::new(), Tuning::tiny());
                    assert!(bare || new.is_err());
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(opened > 0);
    });
}
