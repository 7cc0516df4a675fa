//! Disk space used by a database, by the blocks that the file system has allocated.

// Helpers may panic as well: a failed step fails the test.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use cleavedb::{Compression, Db, LogBackend, Options};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// References and allocated bytes of the files in a directory.
fn files(dir: &Path) -> Vec<(String, u64)> {
    let entries = fs::read_dir(dir).unwrap().map(Result::unwrap);
    let sized = entries.filter_map(|entry| {
        let allocated = entry.metadata().ok()?.blocks() * 512;
        Some((entry.file_name().into_string().unwrap(), allocated))
    });
    sized.collect()
}

fn allocated(dir: &Path) -> u64 {
    files(dir).iter().map(|(_, bytes)| bytes).sum()
}

fn open(path: &Path, backend: LogBackend) -> Db {
    Options::new().memory_budget(256 << 20).compression(Compression::None).log_backend(backend).open(path).unwrap()
}

/// After a close no file remains that only an open database needs, and logs end with their records.
fn assert_clean(path: &Path) {
    let left = files(path);
    let needless = |name: &str| ["ring", "ring.new", "RESERVE", "STATS", "CURRENT.new"].contains(&name);
    assert!(!left.iter().any(|(name, _)| needless(name)), "{left:?}");
    for (name, allocated) in left {
        let len = fs::metadata(path.join(&name)).unwrap().len();
        assert!(allocated <= len.next_multiple_of(4096) + 64 * KIB, "{name}: {allocated} B for {len} B");
    }
}

#[test]
fn a_database_of_one_record_is_small() {
    for backend in [LogBackend::Auto, LogBackend::Plain] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        for opening in 0..3 {
            let db = open(&path, backend);
            db.put("key", "value").unwrap();
            db.sync().unwrap();
            db.wait_for_background().unwrap();
            // Long enough for the reserve and the statistics page.
            std::thread::sleep(std::time::Duration::from_millis(300));
            let open = allocated(&path);
            assert!(open < 4 * MIB, "{backend:?}, opening {opening}: {open} B: {:?}", files(&path));
            db.close().unwrap();
            let closed = allocated(&path);
            assert!(closed < 100 * KIB, "{backend:?}, opening {opening}: {closed} B: {:?}", files(&path));
            assert_clean(&path);
        }
        let db = open(&path, backend);
        assert_eq!(db.get("key").unwrap().unwrap(), "value");
    }
}

#[test]
fn disk_use_is_proportional_to_the_data() {
    for (backend, value_len) in [(LogBackend::Auto, 100), (LogBackend::Plain, 100), (LogBackend::Auto, 1000)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let db = open(&path, backend);
        let count: u32 = if value_len == 100 { 100_000 } else { 20_000 };
        let data = u64::from(count) * (4 + value_len as u64);
        for number in 0..count {
            let mut value = vec![7; value_len];
            value[..4].copy_from_slice(&number.to_le_bytes());
            db.put(number.to_be_bytes(), value).unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(300));
        let loaded = allocated(&path);
        let case = format!("{backend:?}, {count} values of {value_len} B, {data} B");
        assert!(loaded < 5 * data + 4 * MIB, "{case}: after the load {loaded} B: {:?}", files(&path));
        db.flush().unwrap();
        db.close().unwrap();
        let closed = allocated(&path);
        assert!(closed < 3 * data / 2 + MIB, "{case}: after the close {closed} B: {:?}", files(&path));
        assert_clean(&path);
        let db = open(&path, backend);
        assert_eq!(db.iter().unwrap().count(), count as usize);
    }
}
