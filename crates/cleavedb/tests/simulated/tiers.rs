//! Directories that change between opens, and the budget of the fast tier.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimDisk, Storage, Tuning};
use cleavedb::{Db, Durability, Error, KeyspaceOptions, Options, Result, WriteBatch};

use crate::support::{BACKENDS, crash_before, in_world, lose_power, taken, unflushed, value};

const RECORDS: u32 = 300;

pub fn open_at(disk: &SimDisk, options: Options, tuning: Tuning) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new("/db"), options, tuning)
}

/// One record in two is inline, and one in three is overwritten by the next round.
pub fn write_round(db: &Db, round: u32) {
    for number in 0..RECORDS {
        if round == 0 || number % 3 == round % 3 {
            let len = if number % 2 == 0 { 40 } else { 700 };
            db.put(format!("{number:05}"), value(&format!("{number} in {round} "), len)).unwrap();
        }
    }
}

pub fn check_rounds(db: &Db, rounds: u32) {
    for number in 0..RECORDS {
        let last = (0..rounds).rev().find(|round| *round == 0 || number % 3 == round % 3).unwrap();
        let len = if number % 2 == 0 { 40 } else { 700 };
        let found = db.get(format!("{number:05}")).unwrap().unwrap();
        assert_eq!(&*found, value(&format!("{number} in {last} "), len), "{number} after {rounds}");
    }
    assert_eq!(db.iter().unwrap().count(), RECORDS as usize);
}

/// Names of numbered files in a directory, without manifests.
pub fn numbered(disk: &SimDisk, directory: &str) -> Vec<String> {
    let files = disk.files().into_iter().filter(|(path, _)| path.parent() == Some(Path::new(directory)));
    let names = files.map(|(path, _)| path.file_name().unwrap().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with('0') && !name.ends_with("manifest")).collect()
}

#[test]
fn files_follow_the_directories_that_an_open_declares() {
    for (seed, backend) in BACKENDS.into_iter().cycle().take(6).enumerate() {
        in_world(seed as u64, move || {
            let disk = SimDisk::new();
            // One directory, two, others, and one again.
            let declared = [None, Some("/slow"), Some("/other"), Some("/other"), Some("/db"), Some("/slow")];
            for (round, slow) in declared.into_iter().enumerate() {
                let options = Options::new().log_backend(backend);
                let options = slow.map_or(options.clone(), |slow| options.slow_dir(slow));
                let db = open_at(&disk, options.clone(), Tuning::tiny()).unwrap();
                if round > 0 {
                    check_rounds(&db, round as u32);
                }
                write_round(&db, round as u32);
                db.wait_for_background().unwrap();
                let tiers = db.stats().tiers;
                assert_eq!((tiers.files_to_move, tiers.bytes_to_move), (0, 0), "{slow:?}");
                check_rounds(&db, round as u32 + 1);
                db.close().unwrap();
                for former in ["/slow", "/other"].into_iter().filter(|former| Some(*former) != slow) {
                    assert_eq!(numbered(&disk, former), Vec::<String>::new(), "{former} of {slow:?}");
                }
                let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), &options).unwrap();
                assert_eq!(report.problems, [], "{slow:?}");
            }
        });
    }
}

/// Every step of an open that declares another directory, and of the moves that follow.
#[test]
fn a_crash_at_any_step_of_a_move_loses_nothing_and_the_move_is_finished_later() {
    let mut interrupted = 0;
    for seed in 0..8 {
        interrupted += in_world(seed, move || {
            let disk = SimDisk::new();
            let slow = |of: &str| Options::new().slow_dir(of).durability(Durability::Sync);
            let db = open_at(&disk, slow("/slow"), Tuning::tiny()).unwrap();
            write_round(&db, 0);
            db.flush().unwrap();
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            db.close().unwrap();
            let is_power = seed % 2 == 0;
            let images = if is_power { lose_power(&disk) } else { crash_before(&disk, |_, _| true) };
            let db = open_at(&disk, slow("/other"), Tuning::tiny()).unwrap();
            db.wait_for_background().unwrap();
            db.close().unwrap();
            let mut interrupted = 0;
            let images = taken(&disk, &images);
            let step = if is_power { 7 } else { 2 };
            for (number, image) in images.into_iter().enumerate().filter(|(number, _)| number % step == 0) {
                // The next open may declare yet another directory.
                let next = ["/other", "/slow", "/third", "/db"][number / step % 4];
                interrupted +=
                    u32::from(!numbered(&image, "/slow").is_empty() && !numbered(&image, "/other").is_empty());
                let db = open_at(&image, slow(next), Tuning::tiny()).unwrap();
                check_rounds(&db, 1);
                db.wait_for_background().unwrap();
                assert_eq!(db.stats().tiers.files_to_move, 0);
                check_rounds(&db, 1);
                db.close().unwrap();
                let report = testing::check(Arc::new(image.clone()), Path::new("/db"), &slow(next)).unwrap();
                assert_eq!(report.problems, []);
            }
            interrupted
        });
    }
    assert!(interrupted > 20, "{interrupted}");
}

/// Numbers in order, each with the value of its key and, in the same batch, as the last one.
pub fn write_numbers(db: &Db, numbers: Range<u64>, acknowledged: &AtomicU64) {
    for number in numbers {
        let mut batch = WriteBatch::new();
        batch.put(&db.default_keyspace(), format!("{number:05}"), value(&number.to_string(), 700));
        batch.put(&db.default_keyspace(), "last", number.to_string());
        db.write(batch).unwrap();
        acknowledged.store(number + 1, Ordering::SeqCst);
    }
}

/// How many numbers there are: all up to the last one.
pub fn count_numbers(db: &Db) -> u64 {
    let last: Option<u64> = db.get("last").unwrap().map(|last| String::from_utf8_lossy(&last).parse().unwrap());
    let count = last.map_or(0, |last| last + 1);
    let found: Vec<_> = db.iter().unwrap().map(|item| item.unwrap()).filter(|(key, _)| &key[..] != b"last").collect();
    assert_eq!(found.len() as u64, count, "the last number is {last:?}");
    for (number, (key, of_key)) in found.iter().enumerate() {
        assert_eq!((&key[..], &of_key[..]), (format!("{number:05}").as_bytes(), &value(&number.to_string(), 700)[..]));
    }
    count
}

/// Two disks of different speed. At any sync one of them loses its power, and with it what it was not asked to sync, while the other
/// keeps all: no address may lead to what is lost, and nothing acknowledged as durable may be missing.
#[test]
fn either_disk_may_lose_power_alone_while_logs_move_to_the_slower_one() {
    const NUMBERS: u64 = 450;
    let mut demoted = 0;
    for seed in 0..3 {
        demoted += in_world(seed, move || {
            let disk = SimDisk::new();
            disk.set_latency(Path::new("/slow"), Duration::from_micros(50));
            // Acknowledged writes and the disk, at some of the syncs.
            let images: Arc<Mutex<Vec<(u64, SimDisk)>>> = Arc::default();
            let acknowledged = Arc::new(AtomicU64::new(0));
            let (into, so_far, syncs) = (images.clone(), acknowledged.clone(), AtomicU64::new(seed));
            disk.on_sync(move |disk, _| {
                let sync = syncs.fetch_add(1, Ordering::SeqCst);
                if sync % 53 == 0 {
                    let loses_fast = sync / 53 % 2 == 0;
                    let image = disk.power_loss_of(sync, |lost| (lost == Path::new("/db")) == loses_fast);
                    into.lock().unwrap().push((so_far.load(Ordering::SeqCst), image));
                }
            });
            let options = Options::new().slow_dir("/slow").fast_bytes(400 << 10).durability(Durability::Sync);
            let db = open_at(&disk, options.clone(), Tuning::tiny()).unwrap();
            write_numbers(&db, 0..NUMBERS, &acknowledged);
            let stats = db.stats();
            let demoted = stats.tiers.bytes_moved;
            let jobs = stats.scheduling.jobs;
            let of = |kind: &str| jobs.iter().find(|job| job.kind == kind).cloned().unwrap_or_default();
            let moves = of("demote logs");
            let copied = moves.bytes + of("move files").bytes;
            assert!(copied >= 2 * demoted, "each byte is read and written: {moves:?}, {demoted}");
            assert!(demoted == 0 || moves.count > 0 && (1..=2 * NUMBERS).contains(&moves.records), "{moves:?}");
            // No two runs of a simulation take the same time.
            assert!(of("flush").count > 0 && jobs.iter().all(|job| job.cpu_time.is_zero()), "{jobs:?}");
            db.close().unwrap();
            disk.clear_on_sync();
            let images = std::mem::take(&mut *images.lock().unwrap());
            assert!(images.len() > 5, "{}", images.len());
            for (durable, image) in images {
                let db = match open_at(&image, options.clone(), Tuning::tiny()) {
                    Ok(db) => db,
                    // Nothing was acknowledged yet, and one of the directories is not there.
                    Err(error) => {
                        assert!(durable == 0, "{durable}: {error}");
                        continue;
                    }
                };
                let count = count_numbers(&db);
                assert!(count >= durable, "{count} of {durable}");
                write_numbers(&db, count..count + 10, &AtomicU64::new(0));
                assert_eq!(count_numbers(&db), count + 10);
                db.close().unwrap();
                let report = testing::check(Arc::new(image), Path::new("/db"), &options).unwrap();
                assert_eq!(report.problems, []);
            }
            demoted
        });
    }
    assert!(demoted > 100_000, "{demoted}");
}

/// A disk that is gone or fails: what lies on the other one is still read, and errors name the one that fails.
#[test]
fn a_disk_that_fails_concerns_only_what_lies_there() {
    in_world(2, || {
        let disk = SimDisk::new();
        let options = Options::new().slow_dir("/slow").fast_bytes(4 << 20);
        let db = open_at(&disk, options.clone(), unflushed()).unwrap();
        let numbers = AtomicU64::new(0);
        write_numbers(&db, 0..40, &numbers);
        db.flush().unwrap();
        db.wait_for_background().unwrap();
        // The caches may not answer.
        db.close().unwrap();
        let db = open_at(&disk, options, unflushed()).unwrap();
        write_numbers(&db, 40..60, &numbers);
        let within = Some("/slow".into());
        disk.set_faults(Faults { fail_read_one_in: Some(1), within, ..Faults::default() });
        let error = db.get("00001").unwrap_err();
        assert!(error.to_string().contains("/slow/") && error.to_string().contains(" on the slow tier"), "{error}");
        assert_eq!(&*db.get("00050").unwrap().unwrap(), &value("50", 700)[..]);
        write_numbers(&db, 60..70, &numbers);
        disk.clear_faults();
        assert_eq!(count_numbers(&db), 70);
        // Where tables cannot be written, writes stop with an error that says so, and what was acknowledged is there.
        let within = Some("/slow".into());
        disk.set_faults(Faults { fail_write_after: Some(0), lasting: true, within, ..Faults::default() });
        let error = db.compact_range(&db.default_keyspace(), ..).unwrap_err();
        assert!(error.to_string().contains("/slow/") && error.to_string().contains(" on the slow tier"), "{error}");
        let refused = db.put("more", "").unwrap_err();
        assert!(matches!(&refused, Error::Poisoned { cause } if cause.contains(" on the slow tier")), "{refused}");
        assert_eq!(count_numbers(&db), 70);
        drop(db);
        disk.clear_faults();
        let options = Options::new().slow_dir("/slow").fast_bytes(4 << 20);
        let db = open_at(&disk, options, unflushed()).unwrap();
        assert_eq!(count_numbers(&db), 70);
        db.close().unwrap();
    });
}

/// A database that gets a fast directory, another one, and is in one directory again.
#[test]
fn the_manifest_follows_the_declared_fast_directory_whenever_a_crash_comes() {
    let mut moved = 0;
    for seed in 0..4 {
        moved += in_world(seed, move || {
            let durable = || Options::new().durability(Durability::Sync);
            let steps: [Option<&str>; 4] = [None, Some("/fast"), Some("/faster"), Some("/db")];
            let declared = |fast: Option<&str>| fast.map_or(durable(), |fast| durable().fast_dir(fast).slow_dir("/db"));
            let (mut disk, mut moved) = (SimDisk::new(), 0);
            for (round, fast) in steps.into_iter().enumerate() {
                let is_power = seed % 2 == 0;
                let images = if is_power { lose_power(&disk) } else { crash_before(&disk, |_, _| true) };
                let db = open_at(&disk, declared(fast), Tuning::tiny()).unwrap();
                let images = taken(&disk, &images);
                let step = if is_power { 17 } else { 3 };
                for image in images.into_iter().step_by(step).filter(|_| round > 0) {
                    // The open that was interrupted is tried again, or the one before it.
                    let before = open_at(&image, declared(steps[round - 1]), Tuning::tiny());
                    moved += u32::from(before.is_err());
                    let db = before.or_else(|_| open_at(&image, declared(fast), Tuning::tiny())).unwrap();
                    check_rounds(&db, round as u32);
                    db.close().unwrap();
                    let db = open_at(&image, declared(fast), Tuning::tiny()).unwrap();
                    check_rounds(&db, round as u32);
                    db.close().unwrap();
                }
                if round > 0 {
                    check_rounds(&db, round as u32);
                }
                write_round(&db, round as u32);
                db.wait_for_background().unwrap();
                assert_eq!(db.stats().tiers.files_to_move, 0, "{fast:?}");
                // Half of the moves follow a crash.
                if round % 2 == 1 {
                    disk = disk.process_crash();
                }
                db.close().unwrap();
                if let Some(former) = (round > 0).then(|| steps[round - 1]).flatten() {
                    let refused = open_at(&disk, declared(Some(former)), Tuning::tiny()).map(drop);
                    assert!(refused.is_ok(), "the manifest may move back: {refused:?}");
                    open_at(&disk, declared(fast), Tuning::tiny()).unwrap().close().unwrap();
                }
            }
            moved
        });
    }
    assert!(moved > 10, "{moved}");
}

#[test]
fn a_fast_directory_that_is_not_named_is_not_replaced() {
    in_world(4, || {
        let disk = SimDisk::new();
        let db = open_at(&disk, Options::new().fast_dir("/fast"), Tuning::tiny()).unwrap();
        write_round(&db, 0);
        db.close().unwrap();
        let refused = open_at(&disk, Options::new(), Tuning::tiny()).map(drop);
        assert!(matches!(&refused, Err(Error::InvalidInput { .. })), "{refused:?}");
        let db = open_at(&disk, Options::new().fast_dir("/db").slow_dir("/db"), Tuning::tiny()).unwrap();
        check_rounds(&db, 1);
        db.wait_for_background().unwrap();
        assert_eq!(numbered(&disk, "/fast"), Vec::<String>::new());
        db.close().unwrap();
        let db = open_at(&disk, Options::new(), Tuning::tiny()).unwrap();
        check_rounds(&db, 1);
        db.close().unwrap();
    });
}

#[test]
fn a_directory_that_was_renamed_is_recognized_and_one_that_is_missing_is_named() {
    in_world(3, || {
        let disk = SimDisk::new();
        let db = open_at(&disk, Options::new().slow_dir("/slow"), Tuning::tiny()).unwrap();
        write_round(&db, 0);
        db.flush().unwrap();
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        db.close().unwrap();
        for (path, content) in disk.files().into_iter().filter(|(path, _)| path.starts_with("/slow")) {
            let bytes = disk.read_file(&path).unwrap();
            assert_eq!(bytes.len() as u64, content);
            disk.write_file(&Path::new("/renamed").join(path.file_name().unwrap()), &bytes);
            disk.remove(&path).unwrap();
        }
        for elsewhere in ["/new", "/db"] {
            let refused = open_at(&disk, Options::new().slow_dir(elsewhere), Tuning::tiny()).map(drop);
            assert!(
                matches!(&refused, Err(Error::InvalidInput { message }) if message.contains("/slow")),
                "{elsewhere}: {refused:?}"
            );
        }
        let db = open_at(&disk, Options::new().slow_dir("/renamed"), Tuning::tiny()).unwrap();
        check_rounds(&db, 1);
        db.close().unwrap();
    });
}

/// Small logs, and a budget of the fast tier that holds about eight of them.
pub fn small_logs(mut tuning: Tuning) -> (Tuning, u64) {
    (tuning.log_bytes, tuning.log_bytes_min, tuning.ring_bytes) = (16 << 10, 16 << 10, 16 << 10);
    tuning.ring_bytes_min = 16 << 10;
    tuning.chunk_bytes = 4 << 10;
    (tuning, 300 << 10)
}

#[test]
fn the_fast_tier_never_exceeds_its_budget_whatever_is_written() {
    for (seed, backend) in BACKENDS.into_iter().cycle().take(12).enumerate() {
        in_world(seed as u64, move || {
            let disk = SimDisk::new();
            // Unflushed logs are demoted too.
            let (tuning, budget) = small_logs(if seed % 3 == 0 { unflushed() } else { Tuning::tiny() });
            let options = || Options::new().log_backend(backend).slow_dir("/slow").fast_bytes(budget);
            let db = open_at(&disk, options(), tuning.clone()).unwrap();
            // More than that fails: it is as large as the file system.
            disk.set_directory_capacity(Path::new("/db"), Some(budget));
            for round in 0..8 {
                write_round(&db, round);
                // Far larger than a log, and than the fast tier.
                db.put("huge", value("huge", 400 << 10)).unwrap();
                assert!(disk.used_in(Path::new("/db")) <= budget);
                db.delete("huge").unwrap();
                check_rounds(&db, round + 1);
            }
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_max <= budget && tiers.bytes_moved > 0, "{tiers:?}");
            assert_eq!(tiers.fast_bytes_limit, Some(budget));
            let image = disk.process_crash();
            db.close().unwrap();
            for disk in [disk, image] {
                let db = open_at(&disk, options(), tuning.clone()).unwrap();
                check_rounds(&db, 8);
                db.close().unwrap();
            }
        });
    }
}

#[test]
fn hl0_is_on_the_fast_tier_and_values_of_levels_below_on_the_slow_one() {
    in_world(5, || {
        let disk = SimDisk::new();
        let db = open_at(&disk, Options::new().slow_dir("/slow"), Tuning::tiny()).unwrap();
        let tables = |dir| numbered(&disk, dir).iter().filter(|name| name.ends_with("table")).count();
        db.put("one table", "leaves HL0 without a rewrite").unwrap();
        db.flush().unwrap();
        assert_eq!((tables("/db"), tables("/slow")), (1, 0));
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        assert_eq!((tables("/db"), tables("/slow")), (0, 1));
        db.close().unwrap();
    });
}

#[test]
fn a_smaller_budget_is_reached_by_moving_logs() {
    in_world(7, || {
        let disk = SimDisk::new();
        let (tuning, budget) = small_logs(unflushed());
        let options = Options::new().slow_dir("/slow");
        let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
        (0..9).for_each(|round| write_round(&db, round));
        let before = db.stats().tiers.fast_bytes;
        assert!(before > budget, "{before}");
        db.close().unwrap();
        let db = open_at(&disk, options.fast_bytes(budget), tuning).unwrap();
        db.wait_for_background().unwrap();
        let tiers = db.stats().tiers;
        assert!(tiers.fast_bytes <= budget / 100 * 70, "{tiers:?}");
        check_rounds(&db, 9);
        db.close().unwrap();
    });
}

#[test]
fn a_full_slow_tier_is_named_and_what_is_written_before_and_after_is_kept() {
    in_world(9, || {
        let disk = SimDisk::new();
        let (tuning, budget) = small_logs(Tuning::tiny());
        let db = open_at(&disk, Options::new().slow_dir("/slow").fast_bytes(budget), tuning).unwrap();
        write_round(&db, 0);
        db.flush().unwrap();
        disk.set_directory_capacity(Path::new("/slow"), Some(disk.used_in(Path::new("/slow"))));
        let mut written = 0;
        let error = loop {
            match db.put(format!("more {written}"), value("more", 2000)) {
                Ok(()) => written += 1,
                Err(error) => break error,
            }
            assert!(written < 10_000, "the slow tier takes no more");
        };
        assert!(matches!(&error, Error::NoSpace { path, .. } if path.starts_with("/slow")), "{error:?}");
        assert!(error.to_string().ends_with(" on the slow tier"), "{error}");
        check_rounds_of(&db, written);
        disk.set_directory_capacity(Path::new("/slow"), None);
        db.put("after", "room was made").unwrap();
        db.wait_for_background().unwrap();
        check_rounds_of(&db, written);
        db.close().unwrap();
    });
}

/// Jobs that find no room on the slow tier do not concern writers that need the fast one alone, however they are paced.
#[test]
fn writers_use_all_of_the_fast_tier_while_the_slow_one_is_full() {
    const LOG_BYTES: u64 = 64 << 10;
    const BUDGET: u64 = 4 << 20;
    for seed in 0..4 {
        in_world(seed, || {
            let disk = SimDisk::new();
            let mut tuning = unflushed();
            (tuning.log_bytes, tuning.reserve_bytes) = (LOG_BYTES, 0);
            (tuning.logs_bytes_max, tuning.replay_bytes_max) = (1 << 30, 1 << 30);
            let db = open_at(&disk, Options::new().slow_dir("/slow").fast_bytes(BUDGET), tuning).unwrap();
            write_round(&db, 0);
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            disk.set_directory_capacity(Path::new("/slow"), Some(disk.used_in(Path::new("/slow"))));
            let done = Arc::new(AtomicBool::new(false));
            let refused = Arc::new(AtomicU64::new(0));
            let flushes = {
                let (db, done, refused) = (db.clone(), done.clone(), refused.clone());
                testing::spawn("flushes", move || {
                    while !done.load(Ordering::SeqCst) {
                        let is_full = matches!(db.flush(), Err(Error::NoSpace { .. }));
                        refused.fetch_add(u64::from(is_full), Ordering::SeqCst);
                        testing::sleep(Duration::from_millis(1));
                    }
                })
            };
            let mut written = 0;
            let error = loop {
                match db.put(format!("more {written}"), value("more", 2000)) {
                    Ok(()) => written += 1,
                    Err(error) => break error,
                }
            };
            done.store(true, Ordering::SeqCst);
            flushes.join().unwrap();
            let refused = refused.load(Ordering::SeqCst);
            assert!(matches!(&error, Error::NoSpace { path, .. } if path.starts_with("/slow")), "{error:?}");
            let tiers = db.stats().tiers;
            // A small part of the budget is for the manifest alone.
            assert!(tiers.fast_bytes + LOG_BYTES + BUDGET / 64 > BUDGET && refused > 0, "{refused}: {tiers:?}");
            assert!(db.stats().paced > 0, "{:?}", db.stats());
            disk.set_directory_capacity(Path::new("/slow"), None);
            check_rounds_of(&db, written);
            db.close().unwrap();
        });
    }
}

fn check_rounds_of(db: &Db, written: u32) {
    for number in 0..RECORDS {
        assert!(db.get(format!("{number:05}")).unwrap().is_some());
    }
    for number in 0..written {
        assert!(db.get(format!("more {number}")).unwrap().is_some(), "{number} of {written}");
    }
}

/// Files in a directory whose bytes went through the page cache of a disk, without manifests.
fn buffered_in(disk: &SimDisk, directory: &str) -> Vec<PathBuf> {
    let names = numbered(disk, directory);
    let is_one = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with('0') && !name.ends_with("manifest")
    };
    assert!(!names.is_empty(), "{directory} has no files");
    disk.buffered().into_iter().filter(|path| path.starts_with(directory) && is_one(path)).collect()
}

#[test]
fn with_direct_io_logs_in_one_directory_bypass_the_page_cache_although_there_is_memory_for_them() {
    for direct in [true, false] {
        in_world(12, move || {
            let disk = SimDisk::new();
            let db = open_at(&disk, Options::new().direct_io(direct), small_logs(Tuning::tiny()).0).unwrap();
            for round in 0..6 {
                write_round(&db, round);
                check_rounds(&db, round + 1);
            }
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            check_rounds(&db, 6);
            assert_eq!(buffered_in(&disk, "/db").is_empty(), direct, "{:?}", buffered_in(&disk, "/db"));
            db.close().unwrap();
        });
    }
}

#[test]
fn nothing_on_the_slow_tier_goes_through_the_page_cache() {
    in_world(11, || {
        let disk = SimDisk::new();
        disk.set_linking(false);
        let (mut tuning, budget) = small_logs(Tuning::tiny());
        tuning.index_save_bytes = 1;
        let options = || Options::new().slow_dir("/slow").fast_bytes(budget);
        let db = open_at(&disk, options(), tuning.clone()).unwrap();
        let hashed = db.create_keyspace("hashed", KeyspaceOptions::hash()).unwrap();
        let mut kinds = BTreeSet::new();
        let hashed_of = |number: u32, round: u32| value(&format!("{number} in {round}"), 300);
        for round in 0..12 {
            write_round(&db, round);
            for number in 0..100 {
                hashed.put(format!("{number:05}"), hashed_of(number, round)).unwrap();
            }
            kinds.extend(numbered(&disk, "/slow").iter().map(|name| name.split('.').nth(1).unwrap().to_owned()));
        }
        let read = |db: &Db, checkpoint: &str| {
            check_rounds(db, 12);
            let keys: Vec<String> = (0..RECORDS).map(|number| format!("{number:05}")).collect();
            assert!(db.multi_get(&keys).into_iter().all(|found| found.unwrap().is_some()));
            let hashed = db.open_keyspace("hashed").unwrap();
            for (number, found) in (0..100).zip(hashed.multi_get(&keys[..100])) {
                assert_eq!(found.unwrap().unwrap(), hashed_of(number, 11), "{number}");
            }
            assert_eq!(hashed.iter_unordered().unwrap().filter(|item| item.is_ok()).count(), 100);
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            db.checkpoint(checkpoint).unwrap();
            check_rounds(db, 12);
        };
        let image = disk.process_crash();
        read(&db, "/one");
        db.close().unwrap();
        for (disk, is_crashed) in [(&disk, false), (&image, true)] {
            let db = open_at(disk, options(), tuning.clone()).unwrap();
            read(&db, "/two");
            kinds.extend(numbered(disk, "/slow").iter().map(|name| name.split('.').nth(1).unwrap().to_owned()));
            db.close().unwrap();
            // After a crash, recovery writes frames of logs again that end between blocks.
            let is_rewritten = |path: &PathBuf| is_crashed && path.extension().is_some_and(|kind| kind == "log");
            let mut buffered = buffered_in(disk, "/slow");
            buffered.retain(|path| !is_rewritten(path));
            assert_eq!(buffered, Vec::<PathBuf>::new());
        }
        let all = ["index", "log", "redirect", "segment", "table"];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), all, "what lay on the slow tier at some time");
    });
}
