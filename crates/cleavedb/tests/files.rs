//! Limits on open files: no more files than the options allow are open, however many tables there are, while every
//! table is read.
//!
//! `CLEAVE_TABLES` sets the number of tables (500 by default).

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use cleavedb::testing::{self, OsStorage, Tuning};
use cleavedb::{Db, Error, Options, Result};

fn open(path: &Path, open_files_max: usize) -> Result<Db> {
    // Every table stays as it was flushed.
    let mut tuning = Tuning::for_budget(64 << 20);
    (tuning.hl0_compact_tables, tuning.hl0_stop_tables) = (1 << 20, 1 << 20);
    let options = Options::new().memory_budget(64 << 20).open_files_max(open_files_max);
    testing::open(Arc::new(OsStorage::new()), path, options, tuning)
}

/// The number of descriptors open below a directory.
fn open_files(directory: &Path) -> usize {
    let links = std::fs::read_dir("/proc/self/fd").unwrap();
    links.filter_map(|link| std::fs::read_link(link.ok()?.path()).ok()).filter(|to| to.starts_with(directory)).count()
}

fn key(number: usize) -> String {
    format!("{number:06}")
}

#[test]
fn five_hundred_tables_are_read_through_sixteen_open_files() {
    let tables = std::env::var("CLEAVE_TABLES").map_or(500, |count| count.parse().unwrap());
    let directory = tempfile::tempdir().unwrap();
    let open_files = || open_files(directory.path());
    let db = open(directory.path(), 16).unwrap();
    for number in 0..tables {
        db.put(key(number), format!("value {number}")).unwrap();
        db.flush().unwrap();
        if number % 50 == 0 {
            assert!(open_files() < 16 + 16, "{} files are open", open_files());
        }
    }
    db.close().unwrap();

    let began = Instant::now();
    let db = open(directory.path(), 16).unwrap();
    println!("opened {tables} tables in {:?}", began.elapsed());
    assert_eq!((db.stats().levels[0].tables, db.stats().table_files_opened), (tables, 0));
    let readers: Vec<_> = (0..4)
        .map(|reader| {
            let db = db.clone();
            std::thread::spawn(move || {
                for turn in 0..2 * tables {
                    let number = turn * (7 + 2 * reader) % tables;
                    assert_eq!(db.get(key(number)).unwrap().unwrap(), format!("value {number}"));
                    let open = db.stats().open_table_files;
                    assert!(open <= 16, "{open} tables are open");
                }
            })
        })
        .collect();
    let scanned = db.iter().unwrap().map(Result::unwrap).count();
    assert_eq!(scanned, tables);
    assert!(open_files() < 16 + 16 + 4, "{} files are open", open_files());
    readers.into_iter().for_each(|reader| reader.join().unwrap());
    assert!(db.stats().table_files_opened >= tables as u64);
    drop(db);
    assert_eq!(open_files(), 0, "files are still open after the close");
}

#[test]
fn a_limit_above_the_process_limit_on_open_files_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |files| match open(directory.path(), files) {
        Err(Error::InvalidInput { message }) => message,
        other => panic!("{:?}", other.map(drop)),
    };
    assert!(refused(15).contains("open_files_max is 15"));
    let text = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files")).unwrap();
    if let Ok(limit) = line.split_whitespace().next().unwrap().parse::<usize>()
        && limit < 1 << 20
    {
        assert!(refused(limit).contains(&format!("this process may open only {limit}")));
    }
}

fn direct(path: &Path, direct: bool, separation: Option<u32>) -> Result<Db> {
    let options = Options::new().memory_budget(16 << 20).direct_io(direct).separation(separation);
    options.compression(cleavedb::Compression::None).open(path)
}

#[test]
fn data_written_with_direct_io_is_read_with_and_without_it() {
    let directory = tempfile::tempdir().unwrap();
    for separation in [None, Some(192)] {
        let path = directory.path().join(format!("{separation:?}"));
        let db = match direct(&path, true, separation) {
            Err(Error::InvalidInput { message }) => {
                assert!(message.contains("direct I/O is not to be had"), "{message}");
                return;
            }
            opened => opened.unwrap(),
        };
        let value = |number: usize| vec![number as u8; number * 7 % 5000];
        for number in 0..6000 {
            db.put(key(number * 7 % 6000), value(number * 7 % 6000)).unwrap();
            if number % 2000 == 1999 {
                db.flush().unwrap();
            }
        }
        db.compact_range(&db.default_keyspace(), ..).unwrap();
        assert!(db.stats().direct_io);
        db.close().unwrap();
        for is_direct in [true, false] {
            let db = direct(&path, is_direct, separation).unwrap();
            assert_eq!(db.stats().direct_io, is_direct);
            for (number, item) in db.iter().unwrap().enumerate() {
                let (found, bytes) = item.unwrap();
                assert_eq!((&found[..], &bytes[..]), (key(number).as_bytes(), &value(number)[..]));
            }
            let some = || (0..6000).step_by(11);
            let many = db.multi_get(some().map(key));
            assert!(some().zip(many).all(|(number, found)| found.unwrap().unwrap() == value(number)));
            for number in some() {
                assert_eq!(db.get(key(number)).unwrap().unwrap(), value(number));
            }
        }
    }
}
