//! A disk that reports failures.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cleavedb::testing::{self, Faults, SimDisk, Tuning};
use cleavedb::{
    Action, Compression, Db, Durability, Error, Event, KeyspaceOptions, Listener, LogBackend, Options, Result,
};

use crate::support::{in_world, open, open_with, text, unflushed, value, with_each_log};

/// Writes until a write fails; returns the number of accepted puts, and the error.
fn put_until_it_fails(db: &Db, len: usize) -> (usize, Error) {
    for number in 0..100_000 {
        if let Err(error) = db.put(format!("{number:06}"), value("v", len)) {
            return (number, error);
        }
    }
    panic!("the disk did not fail");
}

fn assert_reads_work(db: &Db, count: usize) {
    for number in [0, count / 2, count - 1] {
        assert!(db.get(format!("{number:06}")).unwrap().is_some(), "{number} of {count}");
    }
    // The put that failed may be visible or not.
    let scanned = db.iter().unwrap().collect::<Result<Vec<_>>>().unwrap().len();
    assert!((count..=count + 1).contains(&scanned), "{scanned} keys, {count} puts");
}

#[test]
fn a_failed_write_poisons_writes_and_reads_continue() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        disk.set_faults(Faults { fail_write_after: Some(20), lasting: true, ..Faults::default() });
        let (count, _) = put_until_it_fails(&db, 700);
        disk.clear_faults();
        // The disk works again, but the database cannot promise durability.
        assert!(matches!(db.put("later", "1"), Err(Error::Poisoned { .. })));
        assert!(matches!(db.sync(), Err(Error::Poisoned { .. })));
        assert_reads_work(&db, count);
        drop(db);
        let db = open(&disk, backend).unwrap();
        assert_reads_work(&db, count);
        db.put("later", "1").unwrap();
        assert_eq!(text(&db, "later"), Some("1".into()));
    });
}

#[test]
fn a_failed_sync_poisons_writes_and_reads_continue() {
    with_each_log(|backend| {
        for after in 0..4 {
            let disk = SimDisk::new();
            let db = open(&disk, backend).unwrap();
            for number in 0..10 {
                db.put(format!("{number:06}"), value("v", 700)).unwrap();
            }
            db.sync().unwrap();
            disk.set_faults(Faults { fail_sync_after: Some(after), ..Faults::default() });
            let synced = |number| db.default_keyspace().put_with(format!("{number:06}"), "v", Durability::Sync);
            let failed_at = (10..20).find(|&number| synced(number).is_err()).expect("one of the syncs fails");
            // One sync failed; the next ones would succeed, but must not be attempted.
            assert!(matches!(db.put("later", "1"), Err(Error::Poisoned { .. })));
            assert!(matches!(synced(50), Err(Error::Poisoned { .. })));
            assert_reads_work(&db, failed_at);
            for seed in 0..6 {
                let db = open(&disk.power_loss(seed), backend).unwrap();
                assert_reads_work(&db, failed_at);
                assert_eq!(text(&db, "later"), None);
            }
        }
    });
}

fn fill_and_make_room(backend: LogBackend, fill: fn(&SimDisk), make_room: fn(&SimDisk)) {
    let disk = SimDisk::new();
    let db = open(&disk, backend).unwrap();
    for number in 0..20 {
        db.put(format!("{number:06}"), value("v", 300)).unwrap();
    }
    fill(&disk);
    let (count, error) = put_until_it_fails(&db, 3000);
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    for _ in 0..3 {
        let refused = db.put("x", value("v", 2_000_000));
        assert!(matches!(refused, Err(Error::NoSpace { .. })), "{refused:?}");
        assert_reads_work(&db, count.max(20));
    }
    // Acknowledged writes are safe, and refused ones are not stored.
    let image = open(&disk.process_crash(), backend);
    if let Ok(db) = image {
        assert_reads_work(&db, count.max(20));
    }
    make_room(&disk);
    // Background work that waits for space retries from time to time.
    testing::sleep(Duration::from_millis(300));
    db.put("later", value("v", 3000)).unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    let db = open(&disk, backend).unwrap();
    assert_eq!(db.iter().unwrap().count(), count.max(20) + 1);
    assert_eq!(db.get("later").unwrap().unwrap().len(), 3000);
}

#[test]
fn a_full_disk_is_reported_and_poisons_nothing() {
    with_each_log(|backend| {
        let fill = |disk: &SimDisk| disk.set_capacity(Some(disk.used() + 200_000));
        fill_and_make_room(backend, fill, |disk| disk.set_capacity(None));
        let fill = |disk: &SimDisk| {
            disk.set_faults(Faults { no_space_after_bytes: Some(200_000), ..Faults::default() });
        };
        fill_and_make_room(backend, fill, SimDisk::clear_faults);
    });
}

#[test]
fn a_failed_read_is_an_error_and_not_an_answer() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..300 {
            db.put(format!("{number:06}"), value(&format!("{number} "), 900)).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        let db = open(&disk, backend).unwrap();
        disk.set_faults(Faults { fail_read_one_in: Some(3), ..Faults::default() });
        let (mut failed, mut answered) = (0, 0);
        for number in 0..300 {
            match db.get(format!("{number:06}")) {
                Ok(found) => {
                    assert_eq!(found.expect("the key is there"), value(&format!("{number} "), 900));
                    answered += 1;
                }
                Err(Error::Io { .. }) => failed += 1,
                Err(error) => panic!("another error: {error}"),
            }
        }
        assert!(failed > 0 && answered > 0, "{failed} failed, {answered} answered");
        disk.clear_faults();
        assert_eq!(db.iter().unwrap().collect::<Result<Vec<_>>>().unwrap().len(), 300);
        db.put("later", "1").unwrap();
    });
}

#[test]
fn a_table_that_cannot_be_reopened_fails_only_its_own_reads() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        // Each table evicts the handle of the previous one, nothing stays in the cache, and nothing is compacted
        // meanwhile.
        (tuning.open_files_max, tuning.cache_bytes) = (1, 0);
        (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (100, 200);
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        for number in 0..20 {
            db.put(format!("{number:06}"), value("v", 300)).unwrap();
            db.flush().unwrap();
        }
        let (mut failed, mut found) = (0, 0);
        disk.set_faults(Faults { fail_read_one_in: Some(10), seed: 5, ..Faults::default() });
        for number in (0..20).cycle().take(200) {
            match db.get(format!("{number:06}")) {
                Ok(read) => found += (read.unwrap() == value("v", 300)) as usize,
                Err(Error::Io { operation: "open" | "read", .. }) => failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(failed > 10 && found > 20 && failed + found == 200, "{failed} failed, {found} were found");
        disk.clear_faults();
        assert_reads_work(&db, 20);
        db.put("later", "1").unwrap();
        assert!(db.stats().open_table_files <= 1 && db.stats().table_files_opened > 100);
        db.close().unwrap();
    });
}

/// Files that could not be removed from the manifest for lack of space are removed later.
#[test]
fn unused_logs_are_removed_although_the_disk_was_full() {
    with_each_log(|backend| {
        // Space for a log for the large value, and for between none and a few of the edits about it.
        for free in (17..22_u64).flat_map(|pages| (0..120).step_by(4).map(move |bytes| (pages << 12) + bytes)) {
            let disk = SimDisk::new();
            let db = open(&disk, backend).unwrap();
            // No log is kept for its values.
            db.default_keyspace().set_separation(None).unwrap();
            for number in 0..20 {
                db.put(format!("{number:06}"), value("v", 300)).unwrap();
            }
            db.wait_for_background().unwrap();
            disk.set_faults(Faults { no_space_after_bytes: Some(free), ..Faults::default() });
            for _ in 0..3 {
                // Larger than the spare log.
                let _ = db.put("large", value("v", 70_000));
            }
            disk.clear_faults();
            testing::sleep(Duration::from_millis(300));
            db.put("later", "v").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
            let logs = disk.files().iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "log")).count();
            assert_eq!(logs, 0, "{free} bytes were free");
        }
    });
}

#[test]
fn without_file_descriptors_writes_fail_temporarily_and_nothing_is_poisoned() {
    with_each_log(|backend| {
        for seed in 0..6 {
            let disk = SimDisk::new();
            let db = open(&disk, backend).unwrap();
            disk.set_faults(Faults { no_descriptor_one_in: Some(3), seed, ..Faults::default() });
            let mut refused = 0;
            let mut again = |attempt: &mut dyn FnMut() -> Result<()>| {
                while let Err(error) = attempt() {
                    assert!(matches!(error, Error::Io { .. }) && error.action() == Action::Retry, "{error}");
                    refused += 1;
                    assert!(refused < 5000);
                }
            };
            for number in 0..600 {
                again(&mut || db.put(format!("{:06}", number % 400), value("v", 300)));
                if number % 100 == 0 {
                    again(&mut || db.flush());
                    again(&mut || db.ingest([(format!("load {number:03}"), "v")]).map(drop));
                    again(&mut || db.create_keyspace(&format!("{number}"), KeyspaceOptions::new()).map(drop));
                }
            }
            again(&mut || db.compact_range(&db.default_keyspace(), ..));
            assert!(refused > 0);
            disk.clear_faults();
            testing::sleep(Duration::from_secs(7));
            db.wait_for_background().unwrap();
            db.sync().unwrap();
            for db in [open(&disk.power_loss(seed), backend).unwrap(), db] {
                assert_eq!(db.iter().unwrap().collect::<Result<Vec<_>>>().unwrap().len(), 406);
                assert_eq!(db.keyspaces().len(), 7);
                db.close().unwrap();
            }
            let report = testing::check(Arc::new(disk), Path::new("/db"), &Options::new()).unwrap();
            assert!(report.problems.is_empty(), "{:?}", report.problems);
        }
    });
}

/// Puts with values of which most are soon dead, while descriptors run out now and then. False if a lack of them has
/// poisoned the database: where the manifest is replaced there is no way back.
fn overwrite_without_descriptors(disk: &SimDisk, db: &Db, seed: u64) -> bool {
    for round in 0..12 {
        for number in (0..100).step_by(1 + round % 3) {
            while let Err(error) = db.put(format!("{number:06}"), value("v", 1000)) {
                if matches!(error, Error::Poisoned { .. }) {
                    return false;
                }
                testing::sleep(Duration::from_millis(10));
            }
        }
        disk.set_faults(Faults { no_descriptor_one_in: Some(8), seed: seed + round as u64, ..Faults::default() });
        testing::sleep(Duration::from_secs(1));
        disk.clear_faults();
    }
    db.put("last", "v").is_ok()
}

#[test]
fn collections_that_find_no_file_descriptors_leave_no_files() {
    let mut collections = 0;
    for seed in 0..30 {
        collections += in_world(seed, move || {
            let disk = SimDisk::new();
            // Many edits need a new manifest, and with it a descriptor.
            let mut tuning = Tuning::tiny();
            tuning.manifest_bytes = 0;
            let db = open_with(&disk, Options::new(), tuning).unwrap();
            if !overwrite_without_descriptors(&disk, &db, seed * 100) {
                return 0;
            }
            testing::sleep(Duration::from_secs(7));
            db.wait_for_background().unwrap();
            let collections = db.stats().value_gcs;
            db.close().unwrap();
            let report = testing::check(Arc::new(disk), Path::new("/db"), &Options::new()).unwrap();
            let is_of_values = |note: &&String| note.contains(".segment") || note.contains(".redirect");
            let left_over: Vec<_> = report.notes.iter().filter(is_of_values).collect();
            assert!(report.is_sound() && left_over.is_empty(), "{report:?}");
            collections
        });
    }
    assert!(collections > 5, "{collections}");
}

/// Collections that found no space.
#[derive(Default)]
struct Refused(AtomicUsize);

impl Listener for Refused {
    fn event(&self, event: &Event) {
        let is_collection = |path: &Path| path.extension().is_some_and(|extension| extension == "segment");
        let refused = matches!(event, Event::NoSpace { path } if is_collection(path));
        self.0.fetch_add(usize::from(refused), Ordering::SeqCst);
    }
}

#[test]
fn a_collection_too_large_for_the_disk_is_retried_ever_less_often() {
    for seed in 0..3 {
        in_world(seed, || {
            let disk = SimDisk::new();
            let mut tuning = Tuning::tiny();
            (tuning.garbage_percent, tuning.reserve_bytes, tuning.compacts_when_idle) = (1000, 0, false);
            let db = open_with(&disk, Options::new(), tuning.clone()).unwrap();
            for step in [1, 2, 3] {
                // Most values of the first round are dead, in each log.
                (0..200).step_by(step).for_each(|number| db.put(format!("{number:06}"), value("v", 1000)).unwrap());
                db.flush().unwrap();
            }
            db.compact_range(&db.default_keyspace(), ..).unwrap();
            db.wait_for_background().unwrap();
            db.close().unwrap();
            tuning.garbage_percent = 30;
            disk.set_capacity(Some(disk.used() + (16 << 10)));
            let refused = Arc::new(Refused::default());
            let db = open_with(&disk, Options::new().listener(refused.clone()), tuning).unwrap();
            testing::sleep(Duration::from_secs(60));
            let tried = refused.0.load(Ordering::SeqCst);
            assert!((3..25).contains(&tried), "tried {tried} times");
            disk.set_capacity(None);
            testing::sleep(Duration::from_secs(7));
            db.wait_for_background().unwrap();
            assert!(db.stats().value_gcs > 0);
            db.close().unwrap();
        });
    }
}

#[derive(Default)]
struct Full(AtomicUsize);

impl Listener for Full {
    fn event(&self, event: &Event) {
        self.0.fetch_add(usize::from(matches!(event, Event::NoSpace { .. })), Ordering::SeqCst);
    }
}

#[test]
fn a_compaction_too_large_for_the_disk_is_retried_ever_less_often_and_flushes_continue() {
    with_each_log(|backend| {
        let (disk, full) = (SimDisk::new(), Arc::new(Full::default()));
        let mut tuning = Tuning::tiny();
        tuning.separation_bytes = usize::MAX;
        // One compaction of everything.
        (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (20, 60);
        (tuning.table_bytes, tuning.level_base_bytes) = (4 << 20, 4 << 20);
        tuning.compacts_when_idle = false;
        let options = Options::new().log_backend(backend).listener(full.clone()).compression(Compression::None);
        let db = open_with(&disk, options, tuning).unwrap();
        let mut keys = 0;
        while db.stats().levels[0].tables < 19 {
            for number in 0..30 {
                db.put(format!("{number:03} {keys}"), value("v", 300)).unwrap();
                keys += 1;
            }
            db.flush().unwrap();
        }
        db.wait_for_background().unwrap();
        disk.set_capacity(Some(disk.used() + (80 << 10)));
        while full.0.load(Ordering::SeqCst) == 0 {
            db.put(format!("000 {keys}"), "v").unwrap();
            keys += 1;
            db.flush().unwrap();
            testing::sleep(Duration::from_millis(1));
            assert!(keys < 700, "{:?}", db.stats());
        }
        testing::sleep(Duration::from_secs(30));
        let tried = full.0.load(Ordering::SeqCst);
        assert!((1..20).contains(&tried), "tried {tried} times");
        for number in 0..3 {
            db.put(format!("later {number}"), "v").unwrap();
            db.flush().unwrap();
        }
        let compactions = db.stats().compactions;
        disk.set_capacity(None);
        testing::sleep(Duration::from_secs(7));
        db.wait_for_background().unwrap();
        assert!(db.stats().compactions > compactions);
        assert_eq!(db.iter().unwrap().count(), keys + 3);
        db.close().unwrap();
    });
}

#[test]
fn dropping_a_keyspace_is_atomic_however_full_the_disk_is() {
    let mut dropped = 0;
    for free in 0..120 {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Plain).unwrap();
        // No table has anything of it, so a second edit can remove it at once.
        db.keyspace("obsolete").unwrap();
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        disk.set_faults(Faults { no_space_after_bytes: Some(free), ..Faults::default() });
        match db.drop_keyspace("obsolete") {
            Ok(()) => {
                dropped += 1;
                assert!(db.open_keyspace("obsolete").is_err());
            }
            Err(Error::NoSpace { .. }) => assert!(db.open_keyspace("obsolete").is_ok(), "{free} bytes were free"),
            Err(error) => panic!("{error}"),
        }
        disk.clear_faults();
        db.close().unwrap();
    }
    assert!((1..120).contains(&dropped), "{dropped}");
}

/// The files of a job that filled the disk and died are removed first, for the edit of the next open.
#[test]
fn after_a_crash_on_a_full_disk_the_database_opens() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..100 {
            db.put(format!("{number:06}"), value("v", 300)).unwrap();
        }
        db.sync().unwrap();
        // The reserve is created.
        db.wait_for_background().unwrap();
        let crashed = disk.process_crash();
        disk.halt();
        drop(db);
        // Its number is a reserved one.
        crashed.write_file(Path::new("/db/00000024.table"), &[7; 60_000]);
        for seed in 0..4 {
            let disk = crashed.power_loss(seed);
            disk.set_capacity(Some(disk.used()));
            let db = open(&disk, backend).unwrap();
            assert_reads_work(&db, 100);
            db.close().unwrap();
        }
    });
}

#[test]
fn threads_that_cannot_be_started_are_an_error() {
    let mut opened = 0;
    for more in 0..12 {
        opened += in_world(more as u64, move || {
            let disk = SimDisk::new();
            testing::limit_threads(Some(more));
            let options = Options::new().background_threads(3).listener(Arc::new(Full::default()));
            let opened = open_with(&disk, options, Tuning::tiny());
            let kept = if let Ok(db) = &opened {
                let keyspace = db.default_keyspace();
                let interval = Durability::Interval(Duration::from_secs(3600));
                let written = keyspace.put_with("k", "v", interval).is_ok();
                // Without a sync thread the write is synced at once.
                assert!(!written || more > 7 || db.stats().durable_seqno == db.stats().seqno);
                Some(written)
            } else {
                None
            };
            drop(opened);
            testing::limit_threads(None);
            let db = open(&disk, LogBackend::Auto).unwrap();
            assert!(kept != Some(true) || db.get("k").unwrap().is_some());
            db.close().unwrap();
            usize::from(kept.is_some())
        });
    }
    assert!((1..12).contains(&opened), "{opened}");
}

#[test]
fn an_open_that_cannot_start_its_threads_fails_and_flushes_nothing() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), unflushed()).unwrap();
        for number in 0..30 {
            db.put(format!("{number:06}"), value("v", 300)).unwrap();
        }
        db.close().unwrap();
        // One thread for listeners, three workers, two for values, one for logs.
        for more in 0..8 {
            let disk = disk.process_crash();
            let mut tuning = Tuning::tiny();
            tuning.close_flush_bytes = 0;
            let options = Options::new().log_backend(backend).background_threads(3).listener(Arc::new(Full::default()));
            testing::limit_threads(Some(more));
            let opened = open_with(&disk, options, tuning).map(drop);
            testing::limit_threads(None);
            match opened {
                Ok(()) => assert_eq!(more, 7),
                Err(error) => {
                    assert!(more < 7 && matches!(error, Error::Io { operation: "start thread", .. }), "{error}")
                }
            }
            let db = open(&disk, backend).unwrap();
            // Only a close with all threads running flushes the front.
            assert_eq!(db.stats().levels[0].tables > 0, more == 7);
            assert_reads_work(&db, 30);
            db.close().unwrap();
        }
    });
}

#[test]
fn a_log_whose_threads_cannot_be_started_refuses_a_write_and_accepts_the_next() {
    in_world(1, || {
        let disk = SimDisk::new();
        let db = open(&disk, LogBackend::Ring).unwrap();
        for more in 0..2 {
            testing::limit_threads(Some(more));
            let refused = db.put("k", "refused");
            assert!(matches!(refused, Err(Error::Io { operation: "start thread", .. })), "{refused:?}");
        }
        testing::limit_threads(None);
        assert_eq!(text(&db, "k"), None);
        db.put("k", "taken").unwrap();
        db.close().unwrap();
        assert_eq!(text(&open(&disk, LogBackend::Ring).unwrap(), "k"), Some("taken".into()));
    });
}

/// The figures on the statistics page, as shown by a dump.
fn page(disk: &SimDisk) -> Result<String> {
    let mut figures = String::new();
    testing::dump(disk, Path::new("/db/STATS"), &mut |entry| {
        figures = format!("{}: {}", entry.what, entry.text);
        true
    })?;
    Ok(figures)
}

#[test]
fn a_statistics_page_that_could_not_be_written_is_retried_and_removed_at_close() {
    in_world(5, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.stats_interval = Some(Duration::from_millis(10));
        let db = open_with(&disk, Options::new(), tuning).unwrap();
        let fail_next_write = || disk.set_faults(Faults { fail_write_after: Some(0), ..Faults::default() });
        testing::sleep(Duration::from_millis(50));
        let before = page(&disk).unwrap();
        fail_next_write();
        // Changes the figures, and nothing else on the disk.
        let snapshot = db.snapshot();
        testing::sleep(Duration::from_millis(100));
        let after = page(&disk).unwrap();
        assert!(after.starts_with("figures") && after != before, "{after}");
        fail_next_write();
        drop(snapshot);
        testing::sleep(Duration::from_millis(15));
        disk.clear_faults();
        db.close().unwrap();
        assert!(disk.files().iter().all(|(path, _)| !path.ends_with("STATS")));
    });
}

#[test]
fn a_dump_of_a_statistics_page_waits_until_it_is_written() {
    in_world(5, || {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.stats_interval = Some(Duration::from_millis(10));
        let db = open_with(&disk, Options::new(), tuning).unwrap();
        testing::sleep(Duration::from_millis(50));
        let path = Path::new("/db/STATS");
        let whole = disk.read_file(path).unwrap();
        db.close().unwrap();
        let mut torn = whole.clone();
        torn[1000..].fill(0);
        disk.write_file(path, &torn);
        let other = disk.clone();
        let writer = testing::spawn("writer", move || {
            testing::sleep(Duration::from_millis(5));
            other.write_file(Path::new("/db/STATS"), &whole);
        });
        assert!(page(&disk).unwrap().starts_with("figures"));
        writer.join().unwrap();
        disk.write_file(path, &torn);
        assert!(matches!(page(&disk), Err(Error::Corruption { .. })));
    });
}
