//! Compression of tables, by level and by keyspace.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::sync::Arc;

use cleavedb::testing::{self, SimDisk, Storage, Tuning};
use cleavedb::{Compression, Db, Error, KeyspaceOptions, Options, Result, ValueOptions};

/// Options that keep all values in tables.
fn open(disk: &SimDisk, options: Options) -> Result<Db> {
    testing::open(Arc::new(disk.clone()), Path::new("/db"), options.separation(None), Tuning::tiny())
}

fn fill(db: &Db) {
    for number in 0..60_u32 {
        db.put(number.to_be_bytes(), format!("a value that compresses well, number {number}; ").repeat(5)).unwrap();
    }
    db.flush().unwrap();
}

/// Total bytes of all tables.
fn table_bytes(disk: &SimDisk) -> u64 {
    let files = disk.list(Path::new("/db")).unwrap();
    let tables = files.iter().filter(|entry| entry.name.ends_with(".table"));
    tables.map(|entry| disk.file_len(&Path::new("/db").join(&entry.name)).unwrap().unwrap()).sum()
}

#[test]
fn each_level_has_its_own_compression_and_lower_levels_use_the_last() {
    let lower = if cfg!(feature = "zstd") { Compression::Zstd } else { Compression::Lz4 };
    let disk = SimDisk::new();
    let db = open(&disk, Options::new().compression_by_level(&[Compression::None, lower])).unwrap();
    fill(&db);
    let in_hl0 = table_bytes(&disk);
    // A second table, so that there is something to merge.
    db.put(5_u32.to_be_bytes(), "new").unwrap();
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    let all: Vec<_> = db.iter().unwrap().map(Result::unwrap).collect();
    db.close().unwrap();
    let below = table_bytes(&disk);
    assert!(below < in_hl0 / 2, "{in_hl0} B in HL0, {below} B below");
    let db = open(&disk, Options::new()).unwrap();
    assert!(db.iter().unwrap().map(Result::unwrap).eq(all));
    assert!(testing::check(Arc::new(disk.process_crash()), Path::new("/db"), &Options::new()).unwrap().is_sound());
}

#[test]
fn a_keyspace_has_its_own_compression_on_all_levels() {
    let disk = SimDisk::new();
    let db = open(&disk, Options::new().compression_by_level(&[Compression::Lz4])).unwrap();
    let plain = db.create_keyspace("plain", KeyspaceOptions::new().compression(Compression::None)).unwrap();
    plain.put("key", vec![b'x'; 3000]).unwrap();
    db.flush().unwrap();
    assert!(table_bytes(&disk) > 3000);
    db.put("key", vec![b'x'; 3000]).unwrap();
    let before = table_bytes(&disk);
    db.flush().unwrap();
    assert!(table_bytes(&disk) < before + 1000);
}

#[test]
fn zstd_without_its_cargo_feature_is_refused_with_a_clear_error() {
    let disk = SimDisk::new();
    for options in [
        Options::new().compression(Compression::Zstd),
        Options::new().compression_by_level(&[Compression::Zstd]),
        Options::new().values(ValueOptions::new().compression(Compression::Zstd)),
    ] {
        match open(&disk, options) {
            Ok(_) if cfg!(feature = "zstd") => {}
            Ok(_) => panic!("a build without zstd opened it"),
            Err(Error::InvalidInput { message }) => {
                assert!(!cfg!(feature = "zstd") && message.contains("zstd"), "{message}")
            }
            Err(error) => panic!("{error}"),
        }
    }
}
