//! The contract of `Storage`, on a real file system.

use super::*;
use crate::io::AlignedBuffer;

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("the machine has a directory for temporary files")
}

#[test]
fn create_fails_if_the_name_is_taken() {
    let dir = directory();
    let path = dir.path().join("a");
    OsStorage::new().create(&path, Access::Buffered).unwrap();
    let error = OsStorage::new().create(&path, Access::Buffered).err().unwrap();
    assert!(matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::AlreadyExists));
}

#[test]
fn reads_stop_at_the_end_of_the_file() {
    let dir = directory();
    let file = OsStorage::new().create(&dir.path().join("a"), Access::Buffered).unwrap();
    file.write_at(b"hello", 3).unwrap();
    let mut buffer = [9; 10];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 8);
    assert_eq!(&buffer, b"\0\0\0hello\x09\x09");
    assert_eq!(file.read_at(&mut buffer, 8).unwrap(), 0);
    assert_eq!(file.len().unwrap(), 8);
    file.truncate(4).unwrap();
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 4);
    file.sync().unwrap();
}

#[test]
fn buffered_reads_see_direct_writes() {
    let dir = directory();
    let path = dir.path().join("log");
    let file = OsStorage::new().create(&path, Access::Direct).unwrap();
    file.allocate(1 << 20).unwrap();
    let mut buffer = AlignedBuffer::new(8192);
    for round in 1..20_u8 {
        buffer.fill(round);
        let offset = u64::from(round) * 4096;
        file.write_at(&buffer, offset).unwrap();
        // This read caches the page that the next round overwrites directly.
        let mut seen = [0; 100];
        assert_eq!(file.read_at(&mut seen, offset + 8000).unwrap(), 100);
        assert_eq!(seen, [round; 100]);
    }
    file.sync().unwrap();
    let again = OsStorage::new().open_read(&path, Access::Buffered).unwrap();
    let mut seen = [0; 3];
    assert_eq!(again.read_at(&mut seen, 3 * 4096).unwrap(), 3);
    assert_eq!(seen, [3; 3]);
}

#[test]
fn parts_are_written_one_behind_the_other() {
    let dir = directory();
    let file = OsStorage::new().create(&dir.path().join("a"), Access::Buffered).unwrap();
    file.write_parts(&[b"", b"ab", b"", b"cde"], 2).unwrap();
    let mut seen = [9; 8];
    assert_eq!(file.read_at(&mut seen, 0).unwrap(), 7);
    assert_eq!(&seen, b"\0\0abcde\x09");
    // More parts than one call takes.
    let many: Vec<Vec<u8>> = (0..3000_u32).map(|part| part.to_le_bytes().to_vec()).collect();
    file.write_parts(&many.iter().map(Vec::as_slice).collect::<Vec<_>>(), 0).unwrap();
    let mut seen = vec![0; 12_000];
    assert_eq!(file.read_at(&mut seen, 0).unwrap(), 12_000);
    assert_eq!(seen, many.concat());
    let file = OsStorage::new().create(&dir.path().join("log"), Access::Direct).unwrap();
    file.allocate(1 << 16).unwrap();
    let (mut first, mut second) = (AlignedBuffer::new(4096), AlignedBuffer::new(8192));
    first.fill(1);
    second.fill(2);
    file.write_parts(&[&first, &second], 4096).unwrap();
    let mut seen = vec![9; 5 * 4096];
    assert_eq!(file.read_at(&mut seen, 0).unwrap(), 5 * 4096);
    assert!(seen.chunks(4096).zip([0, 1, 2, 2, 0]).all(|(block, byte)| block.iter().all(|seen| *seen == byte)));
}

#[test]
#[should_panic(expected = "unaligned length")]
fn an_unaligned_direct_write_panics() {
    let dir = directory();
    let file = OsStorage::new().create(&dir.path().join("log"), Access::Direct).unwrap();
    let _ = file.write_at(b"short", 0);
}

#[test]
fn allocate_sets_the_length_keeps_the_content_and_never_shrinks() {
    let dir = directory();
    let file = OsStorage::new().create(&dir.path().join("a"), Access::Buffered).unwrap();
    file.write_at(b"content", 0).unwrap();
    file.allocate(10_000).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    file.allocate(5_000).unwrap();
    file.allocate(0).unwrap();
    assert_eq!(file.len().unwrap(), 10_000);
    let mut buffer = [1; 9];
    file.read_at(&mut buffer, 0).unwrap();
    assert_eq!(&buffer, b"content\0\0");
}

#[test]
fn writes_to_a_file_opened_for_reading_fail() {
    let dir = directory();
    let path = dir.path().join("a");
    OsStorage::new().create(&path, Access::Buffered).unwrap();
    let error = OsStorage::new().open_read(&path, Access::Buffered).unwrap().write_at(b"x", 0).unwrap_err();
    assert!(matches!(error, Error::Io { operation: "write", .. }));
}

#[test]
fn a_write_to_a_full_device_fails_with_no_space() {
    let error = OsStorage::new().open(Path::new("/dev/full")).unwrap().write_at(b"x", 0).unwrap_err();
    assert!(matches!(error, Error::NoSpace { path, .. } if path == Path::new("/dev/full")));
}

#[test]
fn a_missing_file_is_an_error_that_names_it() {
    let dir = directory();
    let error = OsStorage::new().open(&dir.path().join("nothing")).err().unwrap();
    assert!(error.to_string().contains("nothing"), "{error}");
    assert!(!OsStorage::new().exists(&dir.path().join("nothing")).unwrap());
    assert!(OsStorage::new().exists(dir.path()).unwrap());
}

#[test]
fn a_second_lock_fails_until_the_first_is_dropped() {
    let dir = directory();
    let path = dir.path().join("LOCK");
    let first = OsStorage::new().lock(&path).unwrap();
    assert!(matches!(OsStorage::new().lock(&path), Err(Error::Locked { .. })));
    drop(first);
    drop(OsStorage::new().lock(&path).unwrap());
    assert!(OsStorage::new().exists(&path).unwrap());
}

#[test]
fn list_is_sorted_and_distinguishes_files_from_other_entries() {
    let dir = directory();
    OsStorage::new().create(&dir.path().join("b"), Access::Buffered).unwrap();
    OsStorage::new().create(&dir.path().join("a"), Access::Buffered).unwrap();
    OsStorage::new().create_dir_all(&dir.path().join("c/d")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("a"), dir.path().join("e")).unwrap();
    let entries = OsStorage::new().list(dir.path()).unwrap();
    let entries: Vec<(&str, bool)> = entries.iter().map(|entry| (entry.name.as_str(), entry.is_file)).collect();
    assert_eq!(entries, [("a", true), ("b", true), ("c", false), ("e", false)]);
}

#[test]
fn rename_replaces_a_file_and_remove_removes_it() {
    let dir = directory();
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    OsStorage::new().create(&a, Access::Buffered).unwrap().write_at(b"new", 0).unwrap();
    OsStorage::new().create(&b, Access::Buffered).unwrap().write_at(b"older", 0).unwrap();
    OsStorage::new().rename(&a, &b).unwrap();
    OsStorage::new().sync_dir(dir.path()).unwrap();
    assert!(!OsStorage::new().exists(&a).unwrap());
    assert_eq!(OsStorage::new().open(&b).unwrap().len().unwrap(), 3);
    OsStorage::new().remove(&b).unwrap();
    assert!(OsStorage::new().list(dir.path()).unwrap().is_empty());
}

#[test]
fn direct_reads_of_any_offset_and_length_return_the_same_bytes() {
    let directory = directory();
    let path = directory.path().join("file");
    let bytes: Vec<u8> = (0..2_500_001_u32).map(|number| ((number * 7) >> 3) as u8).collect();
    fs::write(&path, &bytes).unwrap();
    let file = match OsStorage::new().open_read(&path, Access::Direct) {
        Ok(file) => file,
        Err(Error::InvalidInput { .. }) => return,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(file.len().unwrap(), bytes.len() as u64);
    let end = bytes.len();
    let ranges =
        [(0, 1), (0, 4096), (1, 4096), (4095, 2), (5000, 2_000_000), (1 << 20, 1 << 20), (end - 5, 5), (3, end - 3)];
    for (offset, len) in ranges {
        let mut read = vec![0; len];
        assert_eq!(file.read_at(&mut read, offset as u64).unwrap(), len);
        assert!(read == bytes[offset..offset + len], "{len} bytes at {offset}");
    }
    let mut read = vec![0; 10_000];
    assert_eq!(file.read_at(&mut read, end as u64 - 7000).unwrap(), 7000);
    assert_eq!(read[..7000], bytes[end - 7000..]);
    assert_eq!(file.read_at(&mut read, end as u64).unwrap(), 0);
    assert_eq!(file.read_at(&mut read, end as u64 + 100_000).unwrap(), 0);
    assert!(file.write_at(b"x", 0).is_err());
}

#[test]
fn prefetched_reads_return_the_bytes_and_leave_no_descriptor_open() {
    let dir = directory();
    let path = dir.path().join("table");
    let content: Vec<u8> = (0..100_000_u32).map(|number| number as u8).collect();
    fs::write(&path, &content).unwrap();
    for access in [Access::Buffered, Access::Direct] {
        let Ok(file) = OsStorage::new().open_read(&path, access) else { continue };
        let places = [(10, 5000), (99_000, 5000), (40_000, 4096)];
        places.iter().for_each(|&(offset, len)| file.prefetch(offset, len));
        for (offset, len) in places {
            let mut buffer = vec![0; len as usize];
            let read = file.read_prefetched(&mut buffer, offset).unwrap();
            let end = content.len().min((offset + len) as usize);
            assert_eq!(buffer[..read], content[offset as usize..end]);
        }
        // A read without a prefetch.
        let mut buffer = [0; 3];
        assert_eq!((file.read_prefetched(&mut buffer, 7).unwrap(), buffer), (3, [7, 8, 9]));
    }
}

#[test]
fn cached_bytes_are_read_at_once_and_others_after_a_prefetch() {
    let dir = directory();
    let path = dir.path().join("values");
    let content: Vec<u8> = (0..100_000_u32).map(|number| (number / 3) as u8).collect();
    fs::write(&path, &content).unwrap();
    for access in [Access::Buffered, Access::Direct] {
        let Ok(file) = OsStorage::new().open_read(&path, access) else { continue };
        for (offset, len) in [(0, 1000), (4000, 200), (50_000, 20_000), (99_000, 2000), (200_000, 10)] {
            let mut buffer = vec![0; len];
            let read = match file.read_or_prefetch(&mut buffer, offset) {
                true => len,
                false => file.read_prefetched(&mut buffer, offset).unwrap(),
            };
            let begin = content.len().min(offset as usize);
            let end = content.len().min(offset as usize + len);
            assert_eq!(buffer[..read], content[begin..end]);
        }
    }
    // What was read once is cached; a range beyond the end of the file never is.
    let file = OsStorage::new().open_read(&path, Access::Buffered).unwrap();
    let mut buffer = [0; 3000];
    file.read_at(&mut buffer, 98_000).unwrap();
    assert!(file.read_or_prefetch(&mut buffer[..2000], 98_000) || !has_cached_reads(&path));
    assert!(!file.read_or_prefetch(&mut buffer, 98_000));
    // Past the page cache nothing is.
    if let Ok(file) = OsStorage::new().open_read(&path, Access::Direct) {
        assert!(!file.read_or_prefetch(&mut buffer[..2000], 98_000));
    }
}

/// True if the file system can read from the page cache without blocking.
#[cfg(not(feature = "portable"))]
fn has_cached_reads(path: &Path) -> bool {
    let is_cached = |file| crate::io::busy_poll::read_cached(&file, &mut [0; 10], 0) == Ok(10);
    fs::read(path).is_ok() && fs::File::open(path).is_ok_and(is_cached)
}

#[cfg(feature = "portable")]
fn has_cached_reads(_: &Path) -> bool {
    false
}

#[test]
fn polled_reads_are_complete_on_one_thread_and_on_many() {
    let dir = directory();
    let path = dir.path().join("values");
    let content: Vec<u8> = (0..3_000_000_u32).map(|number| (number / 5) as u8).collect();
    let writer = OsStorage::new().create(&path, Access::Direct).unwrap();
    // Direct writes, where the file system supports them, so that the first reads are not cached.
    let mut buffer = AlignedBuffer::new(content.len().next_multiple_of(4096));
    buffer[..content.len()].copy_from_slice(&content);
    writer.write_at(&buffer, 0).unwrap();
    writer.truncate(content.len() as u64).unwrap();
    let file = OsStorage::new().open_read(&path, Access::Buffered).unwrap();
    let read_all = |first: usize| {
        let mut part = vec![0; 1100];
        for start in (first..content.len()).step_by(40_000) {
            let wanted = part.len().min(content.len() - start);
            assert_eq!(file.read_polled(&mut part, start as u64).unwrap(), wanted, "at {start}");
            assert!(part[..wanted] == content[start..start + wanted], "at {start}");
        }
    };
    read_all(0);
    std::thread::scope(|scope| (1..9).for_each(|turn| drop(scope.spawn(move || read_all(turn * 4321)))));
    // Up to the end, beyond it, and a read that is too long to be polled.
    for (offset, len, expected) in [(2_999_000, 5000, 1000), (3_000_000, 10, 0), (5, 100_000, 100_000)] {
        let mut part = vec![0; len];
        assert_eq!(file.read_polled(&mut part, offset).unwrap(), expected);
        assert!(part[..expected] == content[offset as usize..][..expected]);
    }
}

#[test]
fn the_size_of_a_file_system_is_known_and_that_of_a_missing_path_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let space = OsStorage::new().file_system_bytes(dir.path());
    assert!(space > 1 << 20 && space < u64::MAX, "{space}");
    assert_eq!(OsStorage::new().file_system_bytes(&dir.path().join("missing")), u64::MAX);
}

#[cfg(not(feature = "portable"))]
#[test]
fn a_punched_hole_frees_space_unless_the_file_has_another_link() {
    use std::os::unix::fs::MetadataExt;
    let dir = directory();
    let (path, other) = (dir.path().join("segment"), dir.path().join("checkpoint"));
    fs::write(&path, vec![7; 1 << 20]).unwrap();
    fs::File::open(&path).unwrap().sync_all().unwrap();
    let blocks = || fs::metadata(&path).unwrap().blocks();
    let before = blocks();
    assert!(OsStorage::new().link(&path, &other).unwrap());
    assert_eq!(OsStorage::new().punch(&path, 4096, 512 << 10).unwrap(), Punched::Linked);
    assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
    fs::remove_file(&other).unwrap();
    let first_data = |from, to| OsStorage::new().first_data(&path, from, to).unwrap();
    assert_eq!(first_data(4096, 512 << 10), Some((4096, 512 << 10)));
    if OsStorage::new().punch(&path, 4096, 512 << 10).unwrap() == Punched::Done {
        let end = 4096 + (512 << 10);
        assert_eq!([first_data(4096, end), first_data(2 << 20, 3 << 20)], [None; 2]);
        assert_eq!([first_data(0, end), first_data(8192, 9 << 20)], [Some((0, 4096)), Some((end, 1 << 20))]);
        let content = fs::read(&path).unwrap();
        assert!(blocks() < before);
        assert_eq!((content.len(), content[4095], content[4096], content[4096 + (512 << 10)]), (1 << 20, 7, 0, 7));
    }
    assert!(OsStorage::new().punch(&dir.path().join("missing"), 0, 4096).is_err());
}

#[test]
fn the_real_path_follows_links_and_dots_also_behind_missing_components() {
    let dir = directory();
    let root = dir.path().canonicalize().unwrap();
    let at = |path: &str| root.join(path);
    fs::create_dir_all(at("a/deep")).unwrap();
    fs::create_dir(at("b")).unwrap();
    std::os::unix::fs::symlink(at("b"), at("a/link")).unwrap();
    for (path, real) in [
        ("a/deep/..", "a"),
        ("a/link/../copy", "copy"),
        ("a/new/copy", "a/new/copy"),
        ("a/new/../copy", "a/copy"),
        ("a/new/newer/../../copy", "a/copy"),
        ("a/new/../../copy", "copy"),
        ("a/new/../link/copy", "b/copy"),
        ("new/../a/link/new/..", "b"),
    ] {
        assert_eq!(OsStorage::new().real_path(&at(path)).unwrap(), at(real), "{path}");
    }
}
