//! Two disks, one of which becomes slow, fails, or vanishes, while the database is open: writes that need it stop with an error
//! that names it, reads of what is elsewhere go on, and nothing acknowledged as durable is missing afterwards.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{Db, Durability, Error, LogBackend, Options, Result, WriteBatch};

use crate::support::{BACKENDS, in_world, value};
use crate::tiers::{count_numbers, open_at, small_logs, write_numbers};

/// Writes the next numbers until that fails, each with an older one again, which makes garbage; returns how many there are, and
/// the error.
fn write_until_refused(db: &Db, from: u64, most: u64) -> (u64, Option<Error>) {
    for number in from..from + most {
        let mut batch = WriteBatch::new();
        for written in [number / 2, number] {
            batch.put(&db.default_keyspace(), format!("{written:05}"), value(&written.to_string(), 700));
        }
        batch.put(&db.default_keyspace(), "last", number.to_string());
        if let Err(error) = db.write(batch) {
            return (number, Some(error));
        }
    }
    (from + most, None)
}

/// Reads each number below `count`, which must be right or fail; returns how many were read.
fn read_numbers(db: &Db, count: u64) -> u64 {
    let read = |number: &u64| match db.get(format!("{number:05}")) {
        Ok(found) => {
            assert_eq!(found.as_deref(), Some(&value(&number.to_string(), 700)[..]), "{number}");
            true
        }
        Err(error) => {
            assert!(matches!(error, Error::Io { .. }), "{error:?}");
            false
        }
    };
    (0..count).filter(read).count() as u64
}

/// The database after a crash, with all its disks.
fn check_after(disk: &SimDisk, options: &Options, tuning: &Tuning, acknowledged: u64) {
    let db = open_at(disk, options.clone(), tuning.clone()).unwrap();
    let count = count_numbers(&db);
    assert!((acknowledged..=acknowledged + 1).contains(&count), "{count} of {acknowledged}");
    write_numbers(&db, count..count + 30, &AtomicU64::new(0));
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(count_numbers(&db), count + 30);
    db.close().unwrap();
    let report = testing::check(Arc::new(disk.clone()), Path::new("/db"), options).unwrap();
    assert_eq!(report.problems, []);
}

#[test]
fn while_one_disk_is_slow_writers_are_paced_and_the_budget_is_kept() {
    for (seed, slow) in ["/slow", "/db", "/slow"].into_iter().enumerate() {
        in_world(seed as u64, move || {
            let disk = SimDisk::new();
            let (tuning, budget) = small_logs(Tuning::tiny());
            let options = || Options::new().slow_dir("/slow").fast_bytes(budget);
            let db = open_at(&disk, options(), tuning.clone()).unwrap();
            // More than that fails: it is as large as the file system.
            disk.set_directory_capacity(Path::new("/db"), Some(budget));
            let numbers = AtomicU64::new(0);
            let took = [50, 20_000, 50].map(|latency| {
                disk.set_latency(Path::new(slow), Duration::from_micros(latency));
                let (began, from) = (testing::now(), numbers.load(Ordering::SeqCst));
                write_numbers(&db, from..from + 250, &numbers);
                assert!(db.stats().tiers.fast_bytes <= budget);
                let took = testing::now() - began;
                assert_eq!(count_numbers(&db), from + 250);
                took
            });
            // Simulated time: what the writers waited for.
            assert!(took[0] < took[1] && took[2] < took[1], "{took:?}");
            let tiers = db.stats().tiers;
            assert!(tiers.fast_bytes_max <= budget && tiers.bytes_moved > 0, "{tiers:?}");
            let image = disk.process_crash();
            db.close().unwrap();
            for disk in [disk, image] {
                disk.set_directory_capacity(Path::new("/db"), None);
                check_after(&disk, &options(), &tuning, 750);
            }
        });
    }
}

/// Numbers on both tiers: the first are settled on the slow one, the last are in the logs of the fast one.
fn on_both_tiers(disk: &SimDisk, options: &Options, tuning: &Tuning, numbers: &AtomicU64) -> Result<Db> {
    let db = open_at(disk, options.clone(), tuning.clone())?;
    write_numbers(&db, 0..150, numbers);
    db.compact_range(&db.default_keyspace(), ..)?;
    db.wait_for_background()?;
    db.close()?;
    // The caches may not answer.
    let db = open_at(disk, options.clone(), tuning.clone())?;
    write_numbers(&db, 150..165, numbers);
    Ok(db)
}

/// One sync fails, after this many others.
fn one_sync(directory: &str, after: u64) -> Faults {
    Faults { within: Some(directory.into()), fail_sync_after: Some(after), ..Faults::default() }
}

/// How a disk fails, and when.
fn failures(directory: &str) -> Vec<(LogBackend, Faults)> {
    let faults = || Faults { within: Some(directory.into()), lasting: true, ..Faults::default() };
    let lasting = [0, 5, 11].into_iter().flat_map(|after| {
        [
            Faults { fail_write_after: Some(after), ..faults() },
            Faults { fail_sync_after: Some(after), ..faults() },
            Faults { fail_directory_after: Some(after), ..faults() },
        ]
    });
    let on_both = lasting.flat_map(|faults| BACKENDS.map(|backend| (backend, faults.clone())));
    // What one sync should have made durable counts as clean from then on, and later syncs succeed.
    let once = (0..20).map(|after| one_sync(directory, after));
    on_both.chain(BACKENDS.into_iter().cycle().zip(once)).collect()
}

/// The tier of a directory, as errors name it.
fn tier_of(directory: &str) -> &'static str {
    if directory == "/db" { " on the fast tier" } else { " on the slow tier" }
}

/// Lets a disk fail while logs are demoted and values are collected; returns the first error, and how many numbers are read without
/// that disk.
fn fail_a_disk(directory: &'static str, backend: LogBackend, faults: Faults, seed: u64) -> (String, u64) {
    let disk = SimDisk::new();
    let (mut tuning, budget) = small_logs(Tuning::tiny());
    (tuning.garbage_bytes, tuning.garbage_percent) = (4 << 10, 10);
    let options = Options::new().slow_dir("/slow").fast_bytes(budget);
    let options = options.durability(Durability::Sync).log_backend(backend);
    let numbers = AtomicU64::new(0);
    let db = on_both_tiers(&disk, &options, &tuning, &numbers).unwrap();
    // The fast tier is so full that logs leave it from now on.
    let (count, error) = write_until_refused(&db, 165, 60);
    assert!(count == 225 && error.is_none(), "{error:?}");
    disk.set_faults(faults.clone());
    let (count, error) = write_until_refused(&db, count, 500);
    // Files on the fast tier can be made elsewhere, or later, but no frame and no edit; what must leave it has only the slow one.
    let error = error.unwrap_or_else(|| panic!("{faults:?}: 500 writes were accepted"));
    let names = |error: &Error| error.to_string().contains(directory) && error.to_string().contains(tier_of(directory));
    assert!(names(&error), "{error}");
    let (after, again) = write_until_refused(&db, count, 1);
    let again = again.expect("writes are poisoned until the next open");
    assert!(after == count && matches!(again, Error::Poisoned { .. }) && names(&again), "{again}");
    assert_eq!(read_numbers(&db, count), count, "reads of both tiers go on");
    // Reads that fail concern what lies there.
    disk.set_faults(Faults { fail_read_one_in: Some(1), within: Some(directory.into()), ..Faults::default() });
    let read = read_numbers(&db, count);
    drop(db);
    disk.clear_faults();
    // The power of the disk that failed is lost, or that of both.
    for lost in [&[directory][..], &["/db", "/slow"]] {
        let image = disk.power_loss_of(seed, |path| lost.iter().any(|lost| path == Path::new(lost)));
        check_after(&image, &options, &tuning, count);
    }
    check_after(&disk, &options, &tuning, count);
    (error.to_string(), read)
}

/// The first errors of all failures of a disk.
fn fail_in_every_way(directory: &'static str) -> Vec<String> {
    let (mut errors, mut read) = (Vec::new(), 0);
    for (backend, faults) in failures(directory) {
        let seed = errors.len() as u64;
        let (error, of_one) = in_world(seed, move || fail_a_disk(directory, backend, faults, seed));
        errors.push(error);
        read += of_one;
    }
    assert!(read > 0, "nothing was read of the other disk");
    errors
}

#[test]
fn a_fast_disk_that_fails_stops_writes_and_everything_is_still_read() {
    fail_in_every_way("/db");
}

/// What had left the fast tier before is durable on the slow one, and what had not is still where it was.
#[test]
fn a_slow_disk_that_fails_during_demotion_and_value_gc_loses_nothing_that_was_durable() {
    let mut errors = fail_in_every_way("/slow");
    // Which jobs the failures meet is up to the schedule.
    let missing = |errors: &[String]| {
        [".log", ".segment", ".table"].into_iter().find(|job| !errors.iter().any(|error| error.contains(job)))
    };
    for seed in 100..160 {
        if missing(&errors).is_none() {
            break;
        }
        let backend = BACKENDS[seed as usize % BACKENDS.len()];
        let (error, _) = in_world(seed, move || fail_a_disk("/slow", backend, one_sync("/slow", seed % 20), seed));
        errors.push(error);
    }
    assert_eq!(missing(&errors), None, "{errors:#?}");
}

#[test]
fn a_fast_disk_that_cannot_be_read_fails_reads_of_what_lies_there_alone() {
    in_world(3, || {
        let disk = SimDisk::new();
        // Values lie in tables, on the slow tier: tables of addresses are on the fast one.
        let (mut tuning, budget) = small_logs(Tuning::tiny());
        tuning.separation_bytes = usize::MAX;
        let options = Options::new().slow_dir("/slow").fast_bytes(budget).log_backend(LogBackend::Plain);
        let numbers = AtomicU64::new(0);
        on_both_tiers(&disk, &options, &tuning, &numbers).unwrap().close().unwrap();
        let db = open_at(&disk, options.clone(), tuning.clone()).unwrap();
        disk.set_faults(Faults { fail_read_one_in: Some(1), within: Some("/db".into()), ..Faults::default() });
        let read = read_numbers(&db, 165);
        assert!(read > 0 && read < 165, "{read}");
        let error = (0..165).find_map(|number| db.get(format!("{number:05}")).err()).unwrap();
        assert!(error.to_string().contains("/db/") && error.to_string().contains(tier_of("/db")), "{error}");
        disk.clear_faults();
        assert_eq!(count_numbers(&db), 165);
        db.close().unwrap();
        check_after(&disk, &options, &tuning, 165);
    });
}

/// The disk of `directory` is pulled out while the database writes. Afterwards it is missing at an open, and then it is back.
fn vanish(directory: &'static str, backend: LogBackend, seed: u64) -> (u64, u64) {
    let disk = SimDisk::new();
    let (tuning, budget) = small_logs(Tuning::tiny());
    let options = Options::new().slow_dir("/slow").fast_bytes(budget);
    let options = options.durability(Durability::Sync).log_backend(backend);
    let numbers = AtomicU64::new(0);
    let db = on_both_tiers(&disk, &options, &tuning, &numbers).unwrap();
    let (before, _) = write_until_refused(&db, 165, seed * 7);
    disk.vanish(Path::new(directory), seed);
    let (count, error) = write_until_refused(&db, before, 500);
    let error = error.expect("500 numbers need both tiers");
    assert!(error.to_string().contains(directory), "{error}");
    // What was written last lies on the fast tier.
    let read = read_numbers(&db, count);
    let closed = db.close();
    assert!(directory != "/db" || closed.is_err(), "a clean close needs its directory");
    // The machine is started again without the disk.
    let image = disk.process_crash();
    for read_only in [true, false] {
        let refused = open_at(&image, options.clone().read_only(read_only), tuning.clone()).map(drop).unwrap_err();
        let is_clear = matches!(refused, Error::InvalidInput { .. } | Error::NotFound { .. });
        assert!(is_clear && refused.to_string().contains(directory), "{refused:?}");
    }
    assert!(image.come_back(Path::new(directory)));
    check_after(&image, &options, &tuning, count);
    // Or it is back before.
    assert!(disk.come_back(Path::new(directory)));
    check_after(&disk, &options, &tuning, count);
    (read, count)
}

#[test]
fn a_disk_that_vanishes_is_named_and_nothing_is_missing_when_it_is_back() {
    for directory in ["/slow", "/db"] {
        let (mut read, mut count) = (0, 0);
        for (seed, backend) in (0..6).zip(BACKENDS.into_iter().cycle()) {
            let (of_read, of_count) = in_world(seed, move || vanish(directory, backend, seed));
            (read, count) = (read + of_read, count + of_count);
        }
        assert!(read > 0 && read < count, "{directory}: {read} of {count}");
    }
}
