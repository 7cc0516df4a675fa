//! Files in memory, and a database on them.

use super::*;
use crate::{Db, KeyspaceOptions, Options, WriteBatch};

fn storage_with_dir() -> (Arc<MemoryStorage>, &'static Path) {
    let (storage, dir) = (Arc::new(MemoryStorage::new()), Path::new("/a/b"));
    storage.create_dir_all(dir).unwrap();
    (storage, dir)
}

#[test]
fn content_is_the_written_bytes_and_zeros_elsewhere() {
    let (storage, dir) = storage_with_dir();
    let file = storage.create(&dir.join("file"), Access::Buffered).unwrap();
    let mut model = vec![0_u8; 5 * CHUNK_BYTES];
    for (number, (offset, len)) in [
        (0, 10),
        (CHUNK_BYTES - 3, 7),
        (CHUNK_BYTES, CHUNK_BYTES),
        (2 * CHUNK_BYTES + 5, 2 * CHUNK_BYTES),
        (4 * CHUNK_BYTES - 1, 1),
    ]
    .into_iter()
    .enumerate()
    {
        let bytes = vec![number as u8 + 1; len];
        file.write_at(&bytes, offset as u64).unwrap();
        model[offset..offset + len].copy_from_slice(&bytes);
    }
    file.allocate(5 * CHUNK_BYTES as u64).unwrap();
    let mut read = vec![9; 6 * CHUNK_BYTES];
    assert_eq!(file.read_at(&mut read, 0).unwrap(), 5 * CHUNK_BYTES);
    assert!(read[..5 * CHUNK_BYTES] == model[..]);
    assert_eq!(file.read_at(&mut read[..20], 5 * CHUNK_BYTES as u64 - 7).unwrap(), 7);
    assert_eq!(file.read_at(&mut read, u64::MAX).unwrap(), 0);
    file.truncate(CHUNK_BYTES as u64 + 5).unwrap();
    file.allocate(3 * CHUNK_BYTES as u64).unwrap();
    model[CHUNK_BYTES + 5..].fill(0);
    assert_eq!(file.read_at(&mut read, 0).unwrap(), 3 * CHUNK_BYTES);
    assert!(
        read[..3 * CHUNK_BYTES] == model[..3 * CHUNK_BYTES],
        "bytes that were cut off are zeros when the file grows again"
    );
}

#[test]
fn memory_is_allocated_by_writes_and_freed_by_holes_and_removals() {
    let (storage, dir) = storage_with_dir();
    let path = dir.join("file");
    let file = storage.create(&path, Access::Direct).unwrap();
    file.allocate(100 * CHUNK_BYTES as u64).unwrap();
    assert_eq!((file.len().unwrap(), storage.bytes()), (100 * CHUNK_BYTES as u64, 0));
    file.write_at(&vec![7; 10 * CHUNK_BYTES], 0).unwrap();
    assert_eq!(storage.bytes(), 10 * CHUNK_BYTES);
    assert_eq!(storage.punch(&path, 4096, 4 * CHUNK_BYTES as u64).unwrap(), Punched::Done);
    assert_eq!(storage.bytes(), 7 * CHUNK_BYTES, "three whole chunks lie in the hole");
    let mut byte = [1];
    for (offset, content) in
        [(4095, 7), (4096, 0), (4 * CHUNK_BYTES as u64 + 4095, 0), (4 * CHUNK_BYTES as u64 + 4096, 7)]
    {
        file.read_at(&mut byte, offset).unwrap();
        assert_eq!(byte[0], content, "{offset}");
    }
    assert!(storage.link(&path, &dir.join("other")).unwrap());
    assert_eq!(storage.punch(&path, 0, CHUNK_BYTES as u64).unwrap(), Punched::Linked, "the file has two links");
    storage.remove(&path).unwrap();
    assert_eq!((storage.bytes(), storage.file_len(&path).unwrap()), (7 * CHUNK_BYTES, None));
    storage.remove(&dir.join("other")).unwrap();
    assert_eq!(storage.bytes(), 0);
    assert_eq!(file.read_at(&mut byte, 0).unwrap(), 1, "an open file outlives its names");
    let content = Arc::downgrade(&storage.names.lock().create(&dir.join("third")).unwrap());
    storage.remove(&dir.join("third")).unwrap();
    assert!(content.upgrade().is_none());
}

#[test]
fn adjoining_holes_free_the_chunk_that_they_share() {
    let (storage, dir) = storage_with_dir();
    let path = dir.join("file");
    let file = storage.create(&path, Access::Buffered).unwrap();
    file.write_at(&vec![7; 3 * CHUNK_BYTES], 0).unwrap();
    let chunk = CHUNK_BYTES as u64;
    storage.punch(&path, 0, chunk + 4096).unwrap();
    assert_eq!(storage.bytes(), 2 * CHUNK_BYTES);
    storage.punch(&path, chunk + 4096, chunk - 4096).unwrap();
    assert_eq!(storage.bytes(), CHUNK_BYTES, "the second chunk lies in two holes");
    let mut bytes = vec![1; 3 * CHUNK_BYTES];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    assert_eq!(bytes, [vec![0; 2 * CHUNK_BYTES], vec![7; CHUNK_BYTES]].concat());
}

#[test]
fn directory_operations_fail_as_on_a_disk() {
    let (storage, dir) = storage_with_dir();
    let kind = |result: Result<()>| match result {
        Err(Error::Io { source, .. }) => Some(source.kind()),
        _ => None,
    };
    let create = |name: &str| storage.create(&dir.join(name), Access::Buffered).map(drop);
    create("one").unwrap();
    assert_eq!(kind(create("one")), Some(io::ErrorKind::AlreadyExists));
    assert_eq!(kind(create("missing/one")), Some(io::ErrorKind::NotFound));
    assert_eq!(kind(storage.open(&dir.join("two")).map(drop)), Some(io::ErrorKind::NotFound));
    assert_eq!(kind(storage.create_dir_all(&dir.join("one/below"))), Some(io::ErrorKind::NotADirectory));
    assert_eq!(kind(storage.list(Path::new("/c")).map(drop)), Some(io::ErrorKind::NotFound));
    create("two").unwrap();
    storage.create_dir_all(&dir.join("dir")).unwrap();
    storage.rename(&dir.join("one"), &dir.join("two")).unwrap();
    let names = storage.list(dir).unwrap();
    assert_eq!(
        names.iter().map(|entry| (&entry.name[..], entry.is_file)).collect::<Vec<_>>(),
        [("dir", false), ("two", true)]
    );
    assert_eq!(kind(storage.remove_dir(dir)), Some(io::ErrorKind::DirectoryNotEmpty));
    storage.remove_dir(&dir.join("dir")).unwrap();
    assert!(!storage.exists(&dir.join("dir")).unwrap() && storage.exists(dir).unwrap());
}

#[test]
fn a_lock_is_exclusive_or_shared_by_readers() {
    let (storage, dir) = storage_with_dir();
    let path = dir.join("LOCK");
    let is_locked = |lock: Result<Box<dyn Lock>>| matches!(lock, Err(Error::Locked { .. }));
    let exclusive = storage.lock(&path).unwrap();
    assert!(is_locked(storage.lock(&path)) && is_locked(storage.lock_shared(&path)));
    drop(exclusive);
    let shared = (storage.lock_shared(&path).unwrap(), storage.lock_shared(&path).unwrap());
    assert!(is_locked(storage.lock(&path)));
    drop(shared.0);
    assert!(is_locked(storage.lock(&path)));
    drop(shared.1);
    assert!(!is_locked(storage.lock(&path)));
}

fn open(storage: &Arc<MemoryStorage>, dir: &str) -> Db {
    crate::api::db::open(storage.clone(), Path::new(dir), Options::new().memory_budget(16 << 20), None).unwrap()
}

/// Calls every operation that works on a disk.
#[test]
fn a_database_in_memory_supports_every_operation_of_one_on_disk() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage, "/db");
    let users = db.create_keyspace("users", KeyspaceOptions::new().merge_operator("u64-add")).unwrap();
    let key = |number: u32| number.to_be_bytes();
    for round in 0..3_u8 {
        let mut batch = WriteBatch::new();
        (0..500).for_each(|number| batch.put(&db.default_keyspace(), key(number), [round; 1000]));
        batch.merge(&users, "count", 5_u64.to_le_bytes());
        db.write(batch).unwrap();
        db.flush().unwrap();
    }
    let snapshot = db.snapshot();
    db.delete_range(key(100)..key(400)).unwrap();
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.wait_for_background().unwrap();
    assert_eq!(db.ingest((1000..1100).map(|number| (key(number), [9; 300]))).unwrap(), 100);
    db.sync().unwrap();
    db.checkpoint("/copy").unwrap();
    db.put("later", "1").unwrap();
    let check = |db: &Db, later: bool| {
        assert_eq!(db.iter().unwrap().count(), 300 + usize::from(later));
        assert!(db.get(key(99)).unwrap().is_some_and(|value| *value == [2; 1000]));
        assert!(db.get(key(100)).unwrap().is_none());
        let count = db.keyspace("users").unwrap().get("count").unwrap().unwrap();
        assert_eq!(count, 15_u64.to_le_bytes());
    };
    check(&db, true);
    assert_eq!(snapshot.iter(&db.default_keyspace()).unwrap().count(), 500);
    drop(snapshot);
    drop(users);
    db.close().unwrap();
    check(&open(&storage, "/db"), true);
    check(&open(&storage, "/copy"), false);
}

#[test]
fn a_database_in_memory_frees_the_memory_of_removed_files() {
    let storage = Arc::new(MemoryStorage::new());
    let db = open(&storage, "/db");
    let keyspace = db.keyspace("large").unwrap();
    for number in 0..200_u32 {
        // Random bytes, so that compression does not shrink them.
        let seed = crate::format::checksum::xxh3_64(&number.to_le_bytes());
        let mut random = crate::sched::random::Random::new(seed);
        let value: Vec<u8> = (0..100_000 / 8).flat_map(|_| random.draw().to_le_bytes()).collect();
        keyspace.put(number.to_be_bytes(), value).unwrap();
    }
    db.flush().unwrap();
    let full = storage.bytes();
    assert!(full > 20_000_000, "{full}");
    drop(keyspace);
    db.drop_keyspace("large").unwrap();
    db.compact_range(&db.default_keyspace(), ..).unwrap();
    db.flush().unwrap();
    db.wait_for_background().unwrap();
    assert!(storage.bytes() < full / 4, "{} of {full} B are still allocated", storage.bytes());
    let contents: Vec<_> = storage.names.lock().files.values().map(Arc::downgrade).collect();
    db.close().unwrap();
    drop(storage);
    assert!(contents.iter().all(|content| content.upgrade().is_none()), "the last handle frees all memory");
}
