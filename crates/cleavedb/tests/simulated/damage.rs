//! Damaged bytes: reported where they matter, truncated where they are the torn end of a log, and never returned as an
//! answer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cleave_sim::material::Value;
use cleave_sim::rng::Rng;
use cleavedb::testing::{self, SimDisk, Tuning};
use cleavedb::{Compression, Durability, Error, Event, Listener, LogBackend, Options, Report, Result};

use crate::support::{in_world, open, open_with, unflushed, value, with_each_log};

/// Bytes that do not occur by chance.
fn needle(seed: u32) -> Vec<u8> {
    Value { seed: 2 * seed + 1, len: 100 }.bytes()
}

/// Flips a bit in every copy of `needle`; returns the files.
fn damage(disk: &SimDisk, needle: &[u8]) -> Vec<PathBuf> {
    let mut damaged = Vec::new();
    for (path, _) in disk.files() {
        let bytes = disk.read_file(&path).unwrap();
        for offset in bytes.windows(needle.len()).enumerate().filter(|(_, part)| *part == needle).map(|(at, _)| at) {
            disk.flip_bit(&path, offset as u64 + 50, 3);
            damaged.push(path.clone());
        }
    }
    assert!(!damaged.is_empty(), "the value is on the disk");
    damaged
}

#[test]
fn a_bad_frame_before_a_later_sync_mark_is_reported_as_corruption() {
    with_each_log(|backend| {
        // The mark is in the same log, or in the next one.
        for log_bytes in [64 << 10, 16 << 10] {
            let options = || Options::new().log_backend(backend);
            let mut tuning = unflushed();
            tuning.log_bytes = log_bytes;
            let disk = SimDisk::new();
            let db = open_with(&disk, options(), tuning.clone()).unwrap();
            db.put("first", "1").unwrap();
            db.put("damaged", needle(1)).unwrap();
            for number in 0..3 {
                let key = format!("later {number}");
                db.default_keyspace().put_with(key, value("v", 300), Durability::Sync).unwrap();
            }
            for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2)] {
                let damaged = damage(&image, &needle(1));
                match open_with(&image, options(), tuning.clone()) {
                    Err(Error::Corruption { path, .. }) => {
                        // The error names the place of the mark.
                        assert!(damaged.contains(&path) || log_bytes < 64 << 10, "{path:?}, {damaged:?}");
                    }
                    Err(error) => panic!("another error: {error}"),
                    Ok(_) => panic!("a damaged frame below a sync mark was truncated without an error"),
                }
            }
        }
    });
}

#[test]
fn a_bad_tail_is_truncated_and_writing_continues() {
    with_each_log(|backend| {
        let options = || Options::new().log_backend(backend);
        let disk = SimDisk::new();
        let db = open_with(&disk, options(), unflushed()).unwrap();
        db.put("early", "1").unwrap();
        db.default_keyspace().put_with("synced", "2", Durability::Sync).unwrap();
        db.put("tail", needle(2)).unwrap();
        db.put("after", "4").unwrap();
        let image = disk.process_crash();
        damage(&image, &needle(2));
        for round in 0..3 {
            let db = open_with(&image, options(), unflushed()).unwrap();
            assert_eq!(db.get("early").unwrap().unwrap(), "1");
            assert_eq!(db.get("synced").unwrap().unwrap(), "2");
            assert_eq!(db.get("tail").unwrap(), None);
            assert_eq!(db.get("after").unwrap(), None, "a write must not survive without the earlier ones");
            assert_eq!(db.iter().unwrap().count(), 2 + round);
            db.put(format!("new {round}"), "5").unwrap();
            db.close().unwrap();
        }
    });
}

type Pairs = Vec<(Vec<u8>, Vec<u8>)>;

/// A database with tables, runs' worth of log and a manifest of some length, closed.
fn closed_database(backend: LogBackend) -> (SimDisk, Pairs) {
    let disk = SimDisk::new();
    let db = open(&disk, backend).unwrap();
    for number in 0..150_u32 {
        db.put(format!("{number:03}"), Value { seed: number, len: number * 5 }.bytes()).unwrap();
        if number == 60 || number == 110 {
            db.flush().unwrap();
        }
    }
    let all = db.iter().unwrap().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    db.close().unwrap();
    (disk, all)
}

#[test]
fn after_a_clean_close_a_flipped_bit_is_an_error_or_harmless() {
    with_each_log(|backend| {
        let (disk, all) = closed_database(backend);
        let files: Vec<_> = disk.files().into_iter().filter(|(_, len)| *len > 0).collect();
        let mut rng = Rng::new(9);
        let mut noticed = 0;
        for round in 0..300 {
            let (path, len) = rng.pick(&files).clone();
            // Most files are long and empty towards their end.
            let within = if rng.one_in(2) { len } else { len.min(2000) };
            let (offset, bit) = (rng.below(within), rng.below(8) as u8);
            let image = disk.process_crash();
            image.flip_bit(&path, offset, bit);
            let place = format!("round {round}: bit {bit} of byte {offset} of {}", path.display());
            let Ok(db) = open(&image, backend) else {
                noticed += 1;
                continue;
            };
            // A damaged format version of a table is an unknown version.
            for (key, value) in &all {
                match db.get(key) {
                    Ok(found) => assert!(found.as_deref() == Some(value), "{place}: a wrong answer for {key:?}"),
                    Err(Error::Corruption { .. } | Error::Unsupported { .. }) => noticed += 1,
                    Err(error) => panic!("{place}: {error}"),
                }
            }
            let scanned: Result<Vec<_>, _> = db.iter().unwrap().collect();
            match scanned {
                Ok(pairs) => assert_eq!(pairs.len(), all.len(), "{place}"),
                Err(Error::Corruption { .. } | Error::Unsupported { .. }) => noticed += 1,
                Err(error) => panic!("{place}: {error}"),
            }
        }
        assert!(noticed > 0, "the test damages nothing that is read");
    });
}

fn check(disk: &SimDisk) -> Result<Report> {
    testing::check(Arc::new(disk.clone()), Path::new("/db"), &Options::new())
}

/// Asserts that every answer is right or an error that reports damage.
fn assert_no_wrong_answer(disk: &SimDisk, all: &Pairs, place: &str) {
    let db = match open(disk, LogBackend::Plain) {
        Ok(db) => db,
        Err(Error::Corruption { .. } | Error::Unsupported { .. }) => return,
        Err(error) => panic!("{place}: opening: {error}"),
    };
    for (key, value) in all {
        match db.get(key) {
            Ok(found) => assert!(found.as_deref() == Some(value), "{place}: a wrong answer for {key:?}"),
            Err(Error::Corruption { .. } | Error::Unsupported { .. }) => {}
            Err(error) => panic!("{place}: {error}"),
        }
    }
    match db.iter().and_then(Iterator::collect::<Result<Vec<_>>>) {
        Ok(pairs) => assert_eq!(pairs.len(), all.len(), "{place}"),
        Err(Error::Corruption { .. } | Error::Unsupported { .. }) => {}
        Err(error) => panic!("{place}: {error}"),
    }
}

/// A closed database of a few hundred bytes, with every kind of file.
fn small_database() -> (SimDisk, Pairs) {
    let disk = SimDisk::new();
    let db = open(&disk, LogBackend::Plain).unwrap();
    db.create_keyspace("other", Default::default()).unwrap().put("x", "y").unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, value(key, 30)).unwrap();
    }
    db.flush().unwrap();
    db.delete("b").unwrap();
    db.default_keyspace().put_with("d", value("d", 20), Durability::Sync).unwrap();
    db.put("e", value("e", 20)).unwrap();
    let all = db.iter().unwrap().map(|item| item.map(|(key, value)| (key.to_vec(), value.to_vec())).unwrap()).collect();
    db.close().unwrap();
    (disk, all)
}

/// The files whose content matters after a clean close.
fn files_with_content(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    let means_nothing = |path: &Path| ["LOCK", "RESERVE", "ring"].iter().any(|name| path.ends_with(name));
    let files: Vec<_> = disk.files().into_iter().filter(|(path, _)| !means_nothing(path)).collect();
    assert!(files.len() >= 4, "CURRENT, manifest, log and table: {files:?}");
    files
}

#[test]
fn the_check_finds_every_flipped_byte_of_a_small_closed_database() {
    // Thousands of opens: outside a simulated world, where they would take minutes.
    let (disk, all) = small_database();
    assert!(check(&disk).unwrap().is_sound(), "{:?}", check(&disk).unwrap());
    for (path, len) in files_with_content(&disk) {
        // Most of a log's first block is zeros, which are all checked in the same way.
        let is_log = path.to_string_lossy().ends_with("log");
        for offset in (0..len).filter(|offset| !is_log || *offset < 64 || *offset >= 4090 || offset % 61 == 0) {
            let image = disk.process_crash();
            image.flip_bit(&path, offset, (offset % 8) as u8);
            let place = format!("byte {offset} of {}", path.display());
            let report = check(&image).unwrap();
            assert!(!report.is_sound(), "the check missed {place}");
            let names_the_file = report.problems.iter().any(|problem| problem.path == path);
            assert!(names_the_file || path.ends_with("CURRENT"), "{place}: {:?}", report.problems);
            assert_no_wrong_answer(&image, &all, &place);
        }
    }
}

#[test]
fn truncated_missing_and_swapped_files_are_found_and_give_no_wrong_answer() {
    let (disk, all) = closed_database(LogBackend::Plain);
    assert!(check(&disk).unwrap().is_sound());
    let files = files_with_content(&disk);
    let judge = |image: &SimDisk, place: &str| {
        assert!(!check(image).unwrap().is_sound(), "the check missed {place}");
        assert_no_wrong_answer(image, &all, place);
    };
    for (path, len) in &files {
        let name = path.display();
        let content = disk.read_file(path).unwrap();
        for cut in [0, 1, len / 3, len / 2, len - 1] {
            let image = disk.process_crash();
            image.write_file(path, &content[..cut as usize]);
            judge(&image, &format!("{name} cut to {cut}"));
        }
        let image = disk.process_crash();
        testing::Storage::remove(&image, path).unwrap();
        judge(&image, &format!("{name} missing"));
        for (other, _) in files.iter().filter(|(other, _)| other != path) {
            let image = disk.process_crash();
            image.write_file(path, &disk.read_file(other).unwrap());
            image.write_file(other, &content);
            judge(&image, &format!("{name} swapped with {}", other.display()));
        }
    }
}

#[test]
fn a_check_changes_nothing_and_does_not_disturb_an_open_database() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open(&disk, backend).unwrap();
        for number in 0..200_u32 {
            db.put(format!("{number:03}"), value("v", 100)).unwrap();
        }
        db.sync().unwrap();
        assert!(matches!(check(&disk), Err(Error::Locked { .. })));
        for image in [disk.process_crash(), disk.power_loss(3)] {
            let content = |disk: &SimDisk| {
                let files = disk.files().into_iter();
                files.map(|(path, _)| (path.clone(), disk.read_file(&path).unwrap())).collect::<Vec<_>>()
            };
            let before = content(&image);
            let report = check(&image).unwrap();
            assert!(report.is_sound(), "{:?}", report.problems);
            assert!(report.notes.iter().any(|note| note.contains("was not closed")), "{:?}", report.notes);
            assert!(content(&image) == before, "the check changed something");
            open(&image, backend).unwrap().close().unwrap();
            assert!(check(&image).unwrap().is_sound());
        }
        assert!(matches!(
            testing::check(Arc::new(disk.clone()), Path::new("/nowhere"), &Options::new()),
            Err(Error::NotFound { .. })
        ));
    });
}

#[test]
fn each_damaged_block_is_reported_as_a_problem() {
    in_world(3, || {
        let disk = SimDisk::new();
        let options = Options::new().log_backend(LogBackend::Plain).compression(Compression::None);
        let db = open_with(&disk, options, unflushed()).unwrap();
        for number in 0..400_u32 {
            db.put(format!("{number:03}"), Value { seed: 2 * number + 1, len: 100 }.bytes()).unwrap();
        }
        db.flush().unwrap();
        db.close().unwrap();
        for number in [10, 200, 390] {
            damage(&disk, &needle(number));
        }
        let report = check(&disk).unwrap();
        assert_eq!(report.problems.len(), 3, "{:?}", report.problems);
        assert!(report.problems.iter().all(|problem| problem.offset.is_some()), "{:?}", report.problems);
    });
}

#[derive(Default)]
struct Quarantined(Mutex<Vec<PathBuf>>);

impl Listener for Quarantined {
    fn event(&self, event: &Event) {
        if let Event::TableQuarantined { path, .. } = event {
            self.0.lock().unwrap().push(path.clone());
        }
    }
}

fn tables(disk: &SimDisk) -> Vec<PathBuf> {
    let files = disk.files().into_iter().map(|(path, _)| path);
    files.filter(|path| path.extension().is_some_and(|it| it == "table")).collect()
}

/// A damaged block in a lower table, in the way of compactions of its range.
#[test]
fn an_unreadable_table_is_quarantined_and_writes_continue() {
    with_each_log(|backend| {
        let (disk, quarantined) = (SimDisk::new(), Arc::new(Quarantined::default()));
        let mut tuning = Tuning::tiny();
        tuning.cache_bytes = 0;
        // Only tables of some size are compacted.
        let options = || Options::new().log_backend(backend).separation(None).listener(quarantined.clone());
        let db = open_with(&disk, options(), tuning.clone()).unwrap();
        for number in 0..50 {
            db.put(format!("z {number:03}"), value("v", 50)).unwrap();
        }
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        let bad = tables(&disk).pop().unwrap();
        disk.flip_bit(&bad, 100, 3);
        for session in 0..2 {
            let db = match session {
                0 => db.clone(),
                _ => open_with(&disk, options(), tuning.clone()).unwrap(),
            };
            // Writes into its range until a compaction needs the table.
            for number in 0..400 {
                db.put(format!("z {:03}", number % 200), value("w", 300)).unwrap();
            }
            db.flush().unwrap();
            db.wait_for_background().unwrap();
            assert_eq!(db.stats().tables_quarantined, 1);
            db.put("other", "v").unwrap();
            assert_eq!(db.get("z 100").unwrap().unwrap(), value("w", 300));
            // A requested compaction returns the error, and nothing else is affected.
            assert!(matches!(db.compact_range(&db.default_keyspace(), ..), Err(Error::Corruption { .. })));
            db.put("other", "v").unwrap();
            db.close().unwrap();
        }
        drop(db);
        let quarantined = quarantined.0.lock().unwrap();
        assert_eq!(*quarantined, [bad.clone(), bad], "once in each session");
    });
}

#[test]
fn writes_into_a_bucket_that_cannot_be_read_are_delayed_once_it_grows() {
    in_world(1, || {
        let disk = SimDisk::new();
        let mut tuning = crate::deltas::calm();
        (tuning.cache_bytes, tuning.bucket_extents_max) = (0, 3);
        let db = open_with(&disk, crate::deltas::options(), tuning).unwrap();
        let lists = crate::deltas::in_buckets(&db, "chain");
        lists.put("key", "base").unwrap();
        db.flush().unwrap();
        let merge = |operand: &str| {
            lists.merge("key", operand).unwrap();
            db.flush().unwrap();
            db.wait_for_background().unwrap();
        };
        merge("1");
        disk.flip_bit(&tables(&disk).pop().unwrap(), 20, 3);
        (2..22).for_each(|number| merge(&number.to_string()));
        let stats = db.stats();
        assert_eq!((stats.tables_quarantined, stats.deltas.extents), (1, 21));
        assert!(
            (1..15).contains(&stats.paced),
            "only from several times the limit of three extents on: {}",
            stats.paced
        );
        lists.merge("key", "22").unwrap();
        db.put("other", "value").unwrap();
        assert_eq!(db.stats().paced, stats.paced + 1);
    });
}

#[test]
fn writers_do_not_wait_for_a_compaction_that_cannot_run() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let mut tuning = Tuning::tiny();
        tuning.cache_bytes = 0;
        let db = open_with(&disk, Options::new().log_backend(backend), tuning).unwrap();
        db.put("000100", "v").unwrap();
        db.flush().unwrap();
        disk.flip_bit(&tables(&disk)[0], 5, 3);
        let failed = (0..100_000).find_map(|number| db.put(format!("{:06}", number % 500), value("v", 300)).err());
        assert!(matches!(failed, Some(Error::Poisoned { .. })), "{failed:?}");
        assert_eq!(db.get("000001").unwrap().unwrap(), value("v", 300));
    });
}
