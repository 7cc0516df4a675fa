//! Read-only opens: they change nothing, whatever state the files are in.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk};
use cleavedb::{Db, Durability, Error, LogBackend, Options, Result};

use crate::support::{open, open_with, unflushed, value, with_each_log};

fn read_only(disk: &SimDisk) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new("/db"), Options::new().read_only(true), unflushed())
}

fn content(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|(path, _)| (path.clone(), disk.read_file(&path).unwrap())).collect()
}

#[test]
fn a_crashed_database_is_read_without_changing_it() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        let db = open_with(&disk, Options::new().log_backend(backend), unflushed()).unwrap();
        for number in 0..200 {
            let durability = if number == 90 { Durability::Sync } else { Durability::Buffered };
            db.default_keyspace().put_with(format!("{number:03}"), value("v", number * 5), durability).unwrap();
            if number == 50 {
                db.flush().unwrap();
            }
        }
        // Including values that only the ring holds.
        for image in [disk.process_crash(), disk.power_loss(1), disk.power_loss(2), disk.power_loss(4)] {
            let before = content(&image);
            let (one, other) = (read_only(&image).unwrap(), read_only(&image).unwrap());
            let read = |db: &Db| db.iter().unwrap().collect::<Result<Vec<_>>>().unwrap();
            let found = read(&one);
            assert!(found.len() > 90 && found == read(&other));
            for (number, (key, found)) in found.iter().enumerate() {
                assert_eq!((&key[..], &found[..]), (format!("{number:03}").as_bytes(), &value("v", number * 5)[..]));
            }
            assert!(matches!(open(&image, backend), Err(Error::Locked { .. })));
            drop(one);
            assert!(matches!(open(&image, backend), Err(Error::Locked { .. })));
            other.close().unwrap();
            assert!(content(&image) == before);
            // A writer finds the same.
            let db = open_with(&image, Options::new().log_backend(backend), unflushed()).unwrap();
            assert_eq!(read(&db), found);
            assert!(matches!(read_only(&image), Err(Error::Locked { .. })));
        }
    });
}

#[test]
fn every_modification_is_refused() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        assert!(matches!(read_only(&disk), Err(Error::NotFound { .. })));
        assert!(disk.files().is_empty());
        let db = open(&disk, backend).unwrap();
        db.put("key", "value").unwrap();
        db.close().unwrap();
        let before = content(&disk);
        let db = read_only(&disk).unwrap();
        let keyspace = db.default_keyspace();
        let refused = [
            db.put("key", "another"),
            db.default_keyspace().put_with("key", "another", Durability::Sync),
            db.create_keyspace("new", cleavedb::KeyspaceOptions::new()).map(drop),
            db.drop_keyspace("default"),
            db.flush(),
            db.compact_range(&keyspace, ..),
            db.ingest([("key", "another")]).map(drop),
            db.checkpoint("/copy"),
            db.write_with(cleavedb::WriteBatch::new(), Durability::Sync),
        ];
        for answer in refused {
            assert!(
                matches!(&answer, Err(Error::InvalidInput { message }) if message.contains("reading only")),
                "{answer:?}"
            );
        }
        db.sync().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
        assert_eq!(db.snapshot().iter(&keyspace).unwrap().keys().count(), 1);
        assert!(keyspace.stats().unwrap().entries > 0 && db.stats().seqno > 0);
        db.close().unwrap();
        assert!(content(&disk) == before);
    });
}

#[test]
fn a_reader_needs_the_directory_in_which_files_lie() {
    with_each_log(|backend: LogBackend| {
        let disk = SimDisk::new();
        let place = |slow: &str| Options::new().log_backend(backend).slow_dir(slow);
        let db = open_with(&disk, place("/slow"), unflushed()).unwrap();
        for number in 0..3 {
            db.put(number.to_string(), "v").unwrap();
            db.flush().unwrap();
        }
        // Out of HL0, which is on the fast tier.
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        db.wait_for_background().unwrap();
        db.close().unwrap();
        disk.write_file(Path::new("/empty/LOCK"), b"");
        let unnamed = Options::new().log_backend(backend);
        for options in [unnamed.clone(), unnamed.read_only(true), place("/empty").read_only(true)] {
            match open_with(&disk, options, unflushed()) {
                Err(Error::InvalidInput { message }) => assert!(message.contains("slow_dir"), "{message}"),
                other => panic!("{:?}", other.map(drop)),
            }
        }
        // A reader finds the files of whatever is declared, and moves none.
        let reader = open_with(&disk, place("/db").read_only(true), unflushed()).unwrap();
        assert_eq!(reader.iter().unwrap().count(), 3);
        assert!(reader.stats().tiers.files_to_move > 0);
        reader.close().unwrap();
        assert_eq!(open_with(&disk, place("/slow"), unflushed()).unwrap().iter().unwrap().count(), 3);
    });
}

#[test]
fn a_read_only_database_runs_no_background_work_and_never_waits_for_it() {
    with_each_log(|backend| {
        let disk = SimDisk::new();
        open(&disk, backend).unwrap().close().unwrap();
        let db = read_only(&disk).unwrap();
        db.wait_for_background().unwrap();
        let other = db.clone();
        db.close().unwrap();
        assert!(matches!(other.wait_for_background(), Err(Error::Closed)));
    });
}
