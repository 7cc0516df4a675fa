//! Crashes at each sync, and losses of power of the whole machine, while writers are redirected to a KV device and while its logs are
//! rolled back; and devices that fail or disappear.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, Faults, Phase, SimDisk, Tuning};
use cleavedb::{Bypass, Db, Durability, Error, LogBackend, Options, Rollback, WriteBatch};

use crate::device::{DEVICE, device, device_on, little_room, options, press, slow_disk, without_device};
use crate::support::{BACKENDS, in_world, value};
use crate::tiers::{count_numbers, open_at, write_numbers};

const CAPACITY: u64 = 32 << 20;
const KEYS: u64 = 40;

/// Writes the next numbers, each with the number itself in the same batch; notes what must survive. Each third one deletes a key, each
/// seventh one a range.
fn write(db: &Db, numbers: std::ops::Range<u64>, durable: &AtomicU64) -> Result<(), Error> {
    for number in numbers {
        let mut batch = WriteBatch::new();
        let keyspace = db.default_keyspace();
        match number % 21 {
            7 | 14 => batch.delete_range(&keyspace, range_of(number).0..range_of(number).1),
            rest if rest % 3 == 2 => batch.delete(&keyspace, key_of(number)),
            _ => batch.put(&keyspace, key_of(number), value_of(number)),
        }
        batch.put(&keyspace, "last", number.to_string());
        let is_sync = number.is_multiple_of(5);
        db.write_with(batch, if is_sync { Durability::Sync } else { Durability::Buffered })?;
        if is_sync {
            durable.store(number + 1, Ordering::SeqCst);
        }
        testing::sleep(Duration::from_micros(300));
    }
    Ok(())
}

fn key_of(number: u64) -> String {
    format!("key {:02}", number * 7 % KEYS)
}

fn range_of(number: u64) -> (String, String) {
    (format!("key {:02}", number % KEYS), format!("key {:02}", number % KEYS + 3))
}

fn value_of(number: u64) -> Vec<u8> {
    value(&format!("{number} "), [60, 300, 700][(number % 3) as usize])
}

/// How many numbers there are; the content must be that after the last of them.
fn count(db: &Db) -> u64 {
    let last = db.get("last").unwrap().map(|last| String::from_utf8_lossy(&last).parse::<u64>().unwrap());
    let count = last.map_or(0, |last| last + 1);
    let mut wanted = BTreeMap::new();
    for number in 0..count {
        match number % 21 {
            7 | 14 => {
                let (from, to) = range_of(number);
                wanted.retain(|key: &String, _| *key < from || *key >= to);
            }
            rest if rest % 3 == 2 => drop(wanted.remove(&key_of(number))),
            _ => drop(wanted.insert(key_of(number), value_of(number))),
        }
    }
    let found = db.prefix("key").unwrap().map(|item| item.unwrap());
    let found: Vec<_> =
        found.map(|(key, value)| (String::from_utf8_lossy(&key).into_owned(), value.to_vec())).collect();
    assert_eq!(found, wanted.into_iter().collect::<Vec<_>>(), "after {count}");
    count
}

/// An image of the disk at a sync: before it, after a crash of the process or a loss of the device's power; after it, after a loss of all power.
struct Image {
    disk: SimDisk,
    /// As many numbers must have survived.
    least: u64,
    /// Bytes of logs that had left the device by then.
    rolled_back: u64,
}

/// Values of which most stay in their logs, so that these are copied.
fn apart() -> Tuning {
    let mut tuning = little_room();
    tuning.separation_bytes = 200;
    tuning
}

/// The images of a redirect onto the device, and of the rollback.
fn images_of_a_redirect(seed: u64, rollback: Rollback, backend: LogBackend) -> Vec<Image> {
    in_world(seed, move || {
        let disk = slow_disk();
        let db = open_at(&disk, options(&disk, rollback).log_backend(backend), apart()).unwrap();
        let durable = Arc::new(AtomicU64::new(0));
        write(&db, 0..20, &durable).unwrap();
        press(&db);
        let load = db.keyspace("load").unwrap();
        for number in 0.. {
            load.put(format!("more {number:06}"), value("more ", 300)).unwrap();
            testing::sleep(Duration::from_micros(300));
            if device(&db).logs > 2 {
                break;
            }
            assert!(number < 2000, "{:?}", db.stats().bypass);
        }
        let (images, rolled_back) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU64::new(0)));
        let (into, from, moved) = (images.clone(), durable.clone(), rolled_back.clone());
        let syncs = AtomicU64::new(0);
        disk.on_sync(move |disk, point| {
            let (least, rolled_back) = (from.load(Ordering::SeqCst), moved.load(Ordering::SeqCst));
            // Each sync has one image or two.
            let number = syncs.fetch_add(u64::from(point.phase == Phase::Before), Ordering::SeqCst);
            let disk = match (point.phase, number % 3) {
                (Phase::Before, 0) => disk.power_loss_of(number, |path| path == Path::new(DEVICE)),
                (Phase::Before, _) => disk.process_crash(),
                (Phase::After, 0) => disk.power_loss(number),
                (Phase::After, _) => return,
            };
            into.lock().unwrap().push(Image { disk, least, rolled_back });
        });
        write(&db, 20..60, &durable).unwrap();
        for _ in 0..5000 {
            testing::sleep(Duration::from_millis(1));
            rolled_back.store(db.stats().bypass.bytes_rolled_back, Ordering::SeqCst);
            if device(&db).logs <= 1 {
                break;
            }
        }
        db.wait_for_background().unwrap();
        write(&db, 60..70, &durable).unwrap();
        drop(load);
        db.close().unwrap();
        disk.clear_on_sync();
        std::mem::take(&mut *images.lock().unwrap())
    })
}

/// After a crash at each sync the next open, with whatever bypass, finds what was synced, whole batches alone, and goes on.
#[test]
fn a_crash_at_each_step_of_redirect_and_rollback_loses_nothing_that_was_synced() {
    let kinds = [Rollback::Eager, Rollback::Lazy].into_iter().flat_map(|rollback| BACKENDS.map(|of| (rollback, of)));
    for (seed, (rollback, backend)) in kinds.enumerate() {
        let images = images_of_a_redirect(seed as u64, rollback, backend);
        assert!(images.len() > 60, "{} images", images.len());
        // Images with logs on the device; of these, those with a copy of one on a tier, and those where a part of the bytes had left.
        let (mut with_logs, mut while_copied, mut in_between) = (0, 0, 0);
        for (number, Image { disk: image, least, rolled_back }) in images.into_iter().enumerate() {
            let (is_copied, had_logs) = in_world(number as u64, move || {
                image.clear_on_sync();
                let is_copied = logs_there(&image).iter().any(|name| {
                    let copy = Path::new("/slow").join(name);
                    image.read_file(&copy).is_some_and(|bytes| !bytes.is_empty())
                });
                let next = match number % 4 {
                    0 => without_device(Bypass::Off).kv_device(device_on(&image, CAPACITY)),
                    _ => options(&image, if number % 2 == 1 { Rollback::Lazy } else { Rollback::Eager }),
                };
                let db = open_at(&image, next, apart()).unwrap();
                let had_logs = device(&db).logs > 0;
                let found = count(&db);
                assert!((least..=70).contains(&found), "{found} of at least {least}");
                let durable = AtomicU64::new(0);
                write(&db, found..found + 10, &durable).unwrap();
                db.wait_for_background().unwrap();
                assert_eq!(count(&db), found + 10);
                db.close().unwrap();
                if number % 4 > 0 {
                    return (is_copied, had_logs);
                }
                let without = without_device(Bypass::Off);
                let report = testing::check(Arc::new(image.clone()), Path::new("/db"), &without).unwrap();
                assert_eq!(report.problems, []);
                let db = open_at(&image, without, apart()).unwrap();
                assert_eq!(count(&db), found + 10);
                db.close().unwrap();
                (is_copied, had_logs)
            });
            with_logs += u32::from(had_logs);
            while_copied += u32::from(had_logs && is_copied);
            in_between += u32::from(had_logs && rolled_back > 0);
        }
        let seen = [with_logs, while_copied, in_between];
        assert!(seen.iter().all(|count| *count > 2), "{seen:?} images of {rollback:?} with {backend:?}");
    }
}

/// What was not synced on the device is lost with its power, and with it what was written later to a disk that keeps everything: history
/// has no holes. A sync of what came later covers the device too.
#[test]
fn a_device_that_is_cut_short_cuts_off_later_history_on_the_tiers() {
    let lost_for = |seed: u64, backend: LogBackend, is_synced: bool| {
        in_world(seed, move || {
            let disk = slow_disk();
            let mut tuning = little_room();
            // Nothing but the logs has anything, since nothing is flushed.
            (tuning.logs_bytes_max, tuning.replay_bytes_max) = (512 << 10, 512 << 10);
            (tuning.index_table_bytes, tuning.front_bytes_max, tuning.flush_bytes) = (64 << 10, 1 << 20, 128 << 10);
            // Room for one log.
            let capacity = 2 * ((64 << 10) + tuning.log_bytes * 3 / 2);
            let options = |disk: &SimDisk, bypass| without_device(bypass).kv_device(device_on(disk, capacity));
            let bypass = Bypass::Device(Rollback::Lazy);
            let db = open_at(&disk, options(&disk, bypass).log_backend(backend), tuning.clone()).unwrap();
            let pause = db.pause_background().unwrap();
            // The numbers before which the log on the device, and the first one after it, began.
            let (mut on_device, mut after) = (None, None);
            let acknowledged = AtomicU64::new(0);
            let mut total = 0;
            while after.is_none_or(|after| total < after + 150) {
                let before = device(&db).records;
                write_numbers(&db, total..total + 1, &acknowledged);
                match device(&db).records - before {
                    0 => after = after.or(on_device.map(|_| total)),
                    _ => on_device = on_device.or(Some(total)),
                }
                total += 1;
                testing::sleep(Duration::from_micros(300));
                assert!(total < 1000, "{:?}", db.stats().bypass);
            }
            let (first, after) = (on_device.unwrap(), after.unwrap());
            if is_synced {
                db.sync().unwrap();
            }
            let mut lost = 0;
            for seed in 0..12 {
                let image = disk.power_loss_of(seed, |path| path == Path::new(DEVICE));
                let db = open_at(&image, options(&image, Bypass::Off), tuning.clone()).unwrap();
                let found = count_numbers(&db);
                assert!(found >= first, "{found} numbers, and {first} in logs that were whole");
                assert!(found <= after || found == total, "{found} numbers, of which {after} before the last log");
                lost += u32::from(found < total);
                write_numbers(&db, found..found + 20, &acknowledged);
                db.wait_for_background().unwrap();
                assert_eq!(count_numbers(&db), found + 20);
                db.close().unwrap();
            }
            drop(pause);
            assert_eq!(count_numbers(&db), total);
            db.close().unwrap();
            lost
        })
    };
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        let (unsynced, synced) = (lost_for(seed as u64, backend, false), lost_for(seed as u64, backend, true));
        assert!(unsynced > 0 && synced == 0, "{backend:?}: {unsynced} without a sync, {synced} after it");
    }
}

fn reopened(disk: &SimDisk, least: u64) {
    let db = open_at(disk, options(disk, Rollback::Eager), little_room()).unwrap();
    let found = count(&db);
    assert!(found >= least, "{found} of at least {least}");
    write(&db, found..found + 10, &AtomicU64::new(0)).unwrap();
    assert_eq!(count(&db), found + 10);
    db.close().unwrap();
}

#[test]
fn a_device_that_disappears_stops_writes_with_an_error_that_names_it() {
    for (seed, backend) in BACKENDS.into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = slow_disk();
            let db = open_at(&disk, options(&disk, Rollback::Lazy).log_backend(backend), little_room()).unwrap();
            let durable = AtomicU64::new(0);
            write(&db, 0..20, &durable).unwrap();
            db.flush().unwrap();
            press(&db);
            write(&db, 20..40, &durable).unwrap();
            let name = device(&db).name;
            disk.vanish(Path::new(DEVICE), seed as u64);
            let error = write(&db, 40..2000, &durable).expect_err("the device is gone");
            let refused = db.put("more", "v").expect_err("no later write is promised");
            assert!(error.to_string().contains(&name) && refused.to_string().contains(&name), "{error}; {refused}");
            assert!(matches!(refused, Error::Poisoned { .. }), "{refused}");
            let _ = db.close();
            let least = durable.load(Ordering::SeqCst);
            // Not there; and back again, with all that was synced.
            let image = disk.process_crash();
            let error = open_at(&image, without_device(Bypass::Spill), little_room()).expect_err("logs are missing");
            assert!(error.to_string().contains(&name), "{error}");
            assert!(image.come_back(Path::new(DEVICE)));
            reopened(&image, least);
        });
    }
}

#[test]
fn a_device_that_fails_loses_nothing_that_was_synced() {
    let faults = |number: u64| match number % 3 {
        0 => Faults { fail_write_after: Some(number * 3), ..Faults::default() },
        1 => Faults { fail_sync_after: Some(number / 3), ..Faults::default() },
        _ => Faults { fail_read_one_in: Some(5), ..Faults::default() },
    };
    let mut refused = 0;
    for number in 0..18 {
        let backend = BACKENDS[(number % 2) as usize];
        refused += in_world(number, move || {
            let disk = slow_disk();
            let db = open_at(&disk, options(&disk, Rollback::Eager).log_backend(backend), little_room()).unwrap();
            let durable = AtomicU64::new(0);
            write(&db, 0..20, &durable).unwrap();
            press(&db);
            disk.set_faults(Faults { within: Some(DEVICE.into()), seed: number, ..faults(number) });
            let written = write(&db, 20..80, &durable);
            if let Err(error) = &written {
                assert!(error.to_string().contains("kv-device:"), "{error}");
            }
            let _ = db.wait_for_background();
            disk.clear_faults();
            let _ = db.close();
            for image in [disk.process_crash(), disk.power_loss(number)] {
                reopened(&image, durable.load(Ordering::SeqCst));
            }
            u32::from(written.is_err())
        });
    }
    assert!(refused >= 6, "{refused} of 18 failed");
}

/// The tiers have no room for what lies on the device: it stays there, is read there, and moves once there is room.
#[test]
fn logs_stay_on_the_device_while_the_tiers_are_full() {
    in_world(11, || {
        let disk = slow_disk();
        let db = open_at(&disk, options(&disk, Rollback::Lazy), little_room()).unwrap();
        let durable = AtomicU64::new(0);
        press(&db);
        write(&db, 0..60, &durable).unwrap();
        disk.set_directory_capacity(Path::new("/slow"), Some(disk.used_in(Path::new("/slow")) + 8192));
        disk.set_directory_capacity(Path::new("/db"), Some(disk.used_in(Path::new("/db")) + 8192));
        let _ = db.wait_for_background();
        assert_eq!(count(&db), 60);
        let _ = db.close();
        assert!(open_at(&disk, without_device(Bypass::Off), little_room()).is_err(), "the device is still needed");
        disk.set_directory_capacity(Path::new("/slow"), None);
        disk.set_directory_capacity(Path::new("/db"), None);
        reopened(&disk, 60);
        let db = open_at(&disk, without_device(Bypass::Off), little_room()).unwrap();
        assert_eq!(count(&db), 70);
        db.close().unwrap();
    });
}

/// The options of an open without a KV device do not change what the check finds in its absence.
#[test]
fn an_unused_device_can_be_left_out_and_declared_again() {
    in_world(12, || {
        let disk = SimDisk::new();
        for round in 0..3 {
            let db = open_at(&disk, options(&disk, Rollback::Lazy), little_room()).unwrap();
            db.put("round", round.to_string()).unwrap();
            db.close().unwrap();
            let db = open_at(&disk, Options::new().slow_dir("/slow"), little_room()).unwrap();
            assert_eq!(db.get("round").unwrap().as_deref(), Some(round.to_string().as_bytes()));
            db.close().unwrap();
        }
    });
}

fn one_directory(disk: &SimDisk, bypass: Bypass) -> Options {
    Options::new().background_threads(1).bypass(bypass).kv_device(device_on(disk, CAPACITY))
}

fn open_in(disk: &SimDisk, path: &str, options: Options) -> Result<Db, Error> {
    testing::open(Arc::new(disk.clone()), Path::new(path), options, little_room())
}

/// The names of the files of the device that are logs, and not the owner. The device may be in use.
fn logs_there(disk: &SimDisk) -> Vec<String> {
    let there = device_on(&disk.process_crash(), CAPACITY);
    let mut keys = Vec::new();
    there
        .list(&mut |key| keys.extend(Some(key.to_vec()).filter(|key| key[..4] == [0; 4] && key[4..8] != [0; 4])))
        .unwrap();
    // Length, generation, name, checksum.
    let name = |key: &Vec<u8>| {
        let value = there.retrieve(key).unwrap()?;
        String::from_utf8(value[16..value.len() - 4].to_vec()).ok()
    };
    keys.iter().filter_map(name).filter(|name| name.ends_with(".log")).collect()
}

fn logs_left(disk: &SimDisk) -> usize {
    logs_there(disk).len()
}

/// A database in one directory of which all logs have left the device, whose last deletions were lost with its power; and the numbers
/// that it has.
fn rolled_back_without_the_last_deletions() -> (SimDisk, u64) {
    let disk = SimDisk::new();
    disk.set_latency(Path::new("/db"), Duration::from_millis(10));
    let db = open_in(&disk, "/db", one_directory(&disk, Bypass::Device(Rollback::Lazy))).unwrap();
    press(&db);
    write(&db, 0..40, &AtomicU64::new(0)).unwrap();
    db.sync().unwrap();
    let image = disk.process_crash();
    db.close().unwrap();
    let db = open_in(&image, "/db", one_directory(&image, Bypass::Off)).unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(device(&db).logs, 0);
    let images = (0..100).map(|seed| image.power_loss_of(seed, |path| path == Path::new(DEVICE)));
    let left = images.into_iter().find(|image| logs_left(image) > 0).expect("a deletion is lost with the power");
    db.close().unwrap();
    (left, 40)
}

/// What was on the device when the database was opened without it is garbage, and no sign of a copy that has used it.
#[test]
fn logs_that_a_rollback_left_on_the_device_are_removed_after_an_open_without_it() {
    in_world(13, || {
        let (disk, numbers) = rolled_back_without_the_last_deletions();
        let db = open_in(&disk, "/db", Options::new()).unwrap();
        assert_eq!(count(&db), numbers);
        write(&db, numbers..numbers + 10, &AtomicU64::new(0)).unwrap();
        db.close().unwrap();
        assert!(logs_left(&disk) > 0);
        // Reading only changes nothing there.
        let read_only = one_directory(&disk, Bypass::Off).read_only(true);
        assert_eq!(count(&open_in(&disk, "/db", read_only).unwrap()), numbers + 10);
        assert!(logs_left(&disk) > 0);
        for _ in 0..2 {
            let db = open_in(&disk, "/db", one_directory(&disk, Bypass::Device(Rollback::Eager))).unwrap();
            assert_eq!((count(&db), logs_left(&disk)), (numbers + 10, 0));
            db.close().unwrap();
        }
        let db = open_in(&disk, "/db", one_directory(&disk, Bypass::Device(Rollback::Lazy))).unwrap();
        press(&db);
        assert_eq!(count(&db), numbers + 10);
        db.close().unwrap();
    });
}

/// Of a database that has left a device and its copy, the first one that is opened with the device has it.
#[test]
fn a_device_that_a_copy_has_taken_since_the_database_left_it_is_refused() {
    in_world(14, || {
        let (disk, numbers) = rolled_back_without_the_last_deletions();
        open_in(&disk, "/db", Options::new()).unwrap().close().unwrap();
        for (path, _) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/db") && !path.ends_with("LOCK"))
        {
            let content = disk.read_file(&path).unwrap();
            disk.write_file(&Path::new("/duplicate").join(path.file_name().unwrap()), &content);
        }
        disk.set_latency(Path::new("/duplicate"), Duration::from_millis(10));
        for [first, second] in [["/db", "/duplicate"], ["/duplicate", "/db"]] {
            let disk = disk.process_crash();
            let db = open_in(&disk, first, one_directory(&disk, Bypass::Device(Rollback::Lazy))).unwrap();
            press(&db);
            write(&db, numbers..numbers + 10, &AtomicU64::new(0)).unwrap();
            db.sync().unwrap();
            // A close moves all logs off the device, and either copy may take an empty one.
            let crashed = disk.process_crash();
            db.close().unwrap();
            let before = logs_left(&crashed);
            let refused = open_in(&crashed, second, one_directory(&crashed, Bypass::Off)).map(drop);
            assert!(
                matches!(&refused, Err(Error::InvalidInput { message }) if message.contains("copy")),
                "{second} after {first}: {refused:?}"
            );
            assert!(before > 0 && logs_left(&crashed) == before);
            let db = open_in(&crashed, first, one_directory(&crashed, Bypass::Off)).unwrap();
            assert_eq!(count(&db), numbers + 10);
            db.close().unwrap();
        }
    });
}

/// Frames that only the ring has find no room on a device that is full: their log moves to a tier. With full tiers, the room that the log
/// has claimed is used.
#[test]
fn frames_of_the_ring_need_no_room_on_a_full_device() {
    for (seed, tiers_are_full) in [false, true, false].into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = slow_disk();
            let db = open_at(&disk, options(&disk, Rollback::Lazy).log_backend(BACKENDS[0]), little_room()).unwrap();
            press(&db);
            write(&db, 0..31, &AtomicU64::new(0)).unwrap();
            for number in 0..12 {
                db.put(format!("last {number:02}"), value("ring", 700)).unwrap();
            }
            let there = device(&db);
            let image = disk.process_crash();
            db.close().unwrap();
            // Half of the device is its key-value side. What is left is enough for the owner, or for the frames too.
            let room = if tiers_are_full { 60 << 10 } else { 2 << 10 };
            let small = |image: &SimDisk| device_on(image, 2 * (there.used_bytes + room));
            let limit = |disk: &SimDisk, room: Option<u64>| {
                for dir in ["/slow", "/db"].map(Path::new) {
                    disk.set_directory_capacity(dir, room.map(|room| disk.used_in(dir) + room));
                }
            };
            let is_there = |db: &Db| {
                assert_eq!(count(db), 31);
                assert_eq!(db.prefix("last ").unwrap().filter(|item| item.is_ok()).count(), 12);
            };
            let images = Arc::new(Mutex::new(Vec::new()));
            let into = images.clone();
            image.on_sync(move |disk, _| into.lock().unwrap().push(disk.process_crash()));
            limit(&image, tiers_are_full.then_some(1024));
            let off = without_device(Bypass::Off).kv_device(small(&image));
            let db = open_at(&image, off, little_room()).unwrap();
            image.clear_on_sync();
            is_there(&db);
            limit(&image, None);
            db.wait_for_background().unwrap();
            is_there(&db);
            db.close().unwrap();
            let db = open_at(&image, without_device(Bypass::Off), little_room()).unwrap();
            is_there(&db);
            db.close().unwrap();
            // After a crash at any step of that recovery the next one does it again.
            for image in std::mem::take(&mut *images.lock().unwrap()) {
                image.clear_on_sync();
                limit(&image, None);
                let off = without_device(Bypass::Off).kv_device(small(&image));
                let db = open_at(&image, off, little_room()).unwrap();
                is_there(&db);
                db.close().unwrap();
            }
        });
    }
}
