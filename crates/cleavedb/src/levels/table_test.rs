//! Tests of tables: every walk returns the versions that were added; damage of any byte is detected.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::base::cursor::compare;
use crate::base::cursor::model::{Step, VecCursor, Version, assert_same_walk, sort};
use crate::base::key_versions::KeyVersions;
use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Address, Cursor, DirId, FileId, FileKey, FileKind, KeyspaceId, Kind, Slice, Stamp, full_key};
use crate::format::compression::Compression;
use crate::format::table::{TRAILER_BYTES, check_block};
use crate::io::{Access, Faults, SimDisk, Storage};
use crate::levels::builder::{TableBuilder, TableOptions};
use crate::levels::point_reads::{ManyKeys, MissingBlock, TableLookUp, Unanswered, newest_in, read_missing};
use crate::levels::table_check::{CheckContext, check_table};
use crate::levels::table_cursor::TableCursor;
use crate::levels::table_file::TableFile;

const ID: FileId = FileId(12);

fn path() -> PathBuf {
    PathBuf::from("/000012.table")
}

fn small_blocks(block_size: usize, compression: Compression) -> TableOptions {
    TableOptions { block_size, compression, ..TableOptions::default() }
}

fn write(disk: &SimDisk, versions: &[Version], options: TableOptions) -> TableMeta {
    let mut builder = TableBuilder::create(disk, &path(), ID, options).unwrap();
    for (key, stamp, value) in versions {
        builder.add(key, *stamp, value).unwrap();
    }
    builder.finish().unwrap()
}

fn guard() -> FileGuard {
    FileGuard::new(FileKey { kind: FileKind::Table, id: ID, dir: DirId::HOME }, path(), Arc::default())
}

fn readers(disk: &SimDisk) -> Arc<Readers> {
    Readers::for_test(disk, 1 << 20)
}

fn table_of(versions: &[Version], options: TableOptions) -> (Arc<Table>, Arc<Readers>) {
    let disk = SimDisk::new();
    let meta = write(&disk, versions, options);
    let readers = readers(&disk);
    (Table::open(&readers, guard(), meta).unwrap(), readers)
}

/// The expected result: the newest version at or below the snapshot.
fn model_get(versions: &[Version], key: &[u8], snapshot: Seqno) -> Option<(Stamp, Vec<u8>)> {
    let at = versions.partition_point(|version| compare(&version.0, version.1, key, Stamp::at(snapshot)).is_lt());
    versions.get(at).filter(|version| version.0 == key).map(|version| (version.1, version.2.clone()))
}

fn numbered(count: u64, versions_per_key: u64, value_bytes: usize) -> Vec<Version> {
    let mut versions = Vec::new();
    for number in 0..count {
        let key = full_key(KeyspaceId((number % 3) as u32 + 1), format!("key{:06}", number / 3).as_bytes());
        for age in 0..versions_per_key {
            let seqno = Seqno(1 + number + age * count);
            let kind = [Kind::Put, Kind::Delta, Kind::Delete, Kind::PutAt][(seqno.0 % 4) as usize];
            versions.push((key.clone(), Stamp::new(seqno, kind), vec![number as u8; value_bytes]));
        }
    }
    sort(&mut versions);
    versions
}

fn scan(cursor: &mut TableCursor) -> Vec<Version> {
    let mut versions = Vec::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        versions.push((cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec()));
        cursor.next().unwrap();
    }
    versions
}

#[test]
fn a_table_of_addresses_is_packed_and_returns_the_versions_that_were_added() {
    let mut random = crate::sched::random::Random::new(9);
    let mut versions: Vec<Version> = (1..=5000)
        .map(|number| {
            let mut key = KeyspaceId(1).prefix().to_vec();
            (0..3).for_each(|_| key.extend_from_slice(&random.draw().to_be_bytes()));
            let mut value = Vec::new();
            let (file, offset) = (FileId(random.below(32)), random.below(1 << 24));
            Address { file, offset, len: 1047, value_len: 1000 }.encode(&mut value);
            (key, Stamp::new(Seqno(number), Kind::PutAt), value)
        })
        .collect();
    sort(&mut versions);
    let (table, _) = table_of(&versions, TableOptions::default());
    // 24 B of key and its length, 6 of stamp and address, and less than 4 of filter, index and the rest; unpacked it
    // would be 45.
    assert!(table.meta().size < 5000 * 34, "{} B", table.meta().size);
    assert_eq!(table.pool(), PriorityPool::Keys);
    for fill_cache in [false, true] {
        let steps =
            [vec![Step::SeekFirst], vec![Step::Next; 5000], vec![Step::SeekLast], vec![Step::Prev; 300]].concat();
        assert_same_walk(&mut table.cursor(fill_cache), &mut VecCursor::new(versions.clone()), &steps);
    }
    for (key, stamp, value) in versions.iter().step_by(7) {
        assert_eq!(newest_in(&table, key, Seqno::MAX).unwrap(), Some((*stamp, Slice::copy_from(value))));
    }
}

#[test]
fn a_table_of_many_partitions_is_read_in_both_directions() {
    let versions = numbered(20_000, 2, 20);
    for compression in [Compression::None, Compression::Lz4] {
        let (table, _) = table_of(&versions, small_blocks(512, compression));
        for fill_cache in [false, true] {
            let mut cursor = table.cursor(fill_cache);
            assert!(scan(&mut cursor) == versions);
            cursor.seek_last().unwrap();
            for version in versions.iter().rev() {
                assert_eq!((cursor.key(), cursor.stamp(), cursor.value()), (&version.0[..], version.1, &version.2[..]));
                cursor.prev().unwrap();
            }
            assert!(!cursor.valid());
        }
        let meta = table.meta();
        assert_eq!((meta.entries, meta.seqno_min, meta.seqno_max), (40_000, Seqno(1), Seqno(40_000)));
        assert_eq!((meta.deletes, meta.deltas, meta.addresses), (10_000, 10_000, 10_000));
        let properties = table.properties().unwrap();
        assert_eq!((properties.value_bytes, properties.block_size), (800_000, 512));
        assert_eq!((&meta.smallest, &meta.end), (&versions[0].0, &[&versions[39_999].0[..], &[0]].concat()));
    }
}

#[test]
fn a_snapshot_sees_the_newest_version_at_or_below_it() {
    let versions = numbered(2_000, 5, 30);
    let (table, _) = table_of(&versions, small_blocks(256, Compression::Lz4));
    for number in (0..versions.len()).step_by(7) {
        for snapshot in [0, 1, versions[number].1.seqno().0 - 1, versions[number].1.seqno().0, 5_000, 20_000] {
            let found = newest_in(&table, &versions[number].0, Seqno(snapshot)).unwrap();
            let expected = model_get(&versions, &versions[number].0, Seqno(snapshot));
            assert_eq!(found.map(|(stamp, value)| (stamp, value.to_vec())), expected);
        }
    }
    let mut cursor = table.cursor(true);
    cursor.seek(&versions[0].0, Stamp::NEWEST).unwrap();
    let mut collected = Vec::new();
    while cursor.valid() && cursor.key() == versions[0].0 {
        collected.push(cursor.stamp());
        cursor.next().unwrap();
    }
    assert_eq!(collected, versions[..5].iter().map(|version| version.1).collect::<Vec<_>>());
}

#[test]
fn filters_avoid_data_reads_for_absent_keys() {
    let versions = numbered(3_000, 1, 100);
    let (table, readers) = table_of(&versions, small_blocks(4096, Compression::None));
    let cache = &readers.cache;
    assert!(newest_in(&table, &full_key(KeyspaceId(9), b"k"), Seqno::MAX).unwrap().is_none());
    assert!(newest_in(&table, &versions[0].0, Seqno::ZERO).unwrap().is_none());
    assert_eq!(cache.weight(), 0, "keys outside the key range need no read");
    for number in 0..1_000u64 {
        let absent = full_key(KeyspaceId(2), format!("key{number:06}x").as_bytes());
        assert!(newest_in(&table, &absent, Seqno::MAX).unwrap().is_none());
    }
    // Indices and filters take about 10 KiB, and about 1 key in 100 passes the filter and reads its data block.
    assert!(cache.weight() < 80 << 10, "{} B were read", cache.weight());
    assert!(cache.weight() > 5 << 10 && table.meta().size > 300 << 10);
}

#[test]
fn a_scan_that_does_not_fill_the_cache_reads_ahead_and_leaves_the_cache_unchanged() {
    let versions = numbered(20_000, 1, 100);
    let (table, readers) = table_of(&versions, small_blocks(4096, Compression::None));
    let cache = &readers.cache;
    let mut cursor = table.cursor(false);
    assert!(scan(&mut cursor) == versions);
    assert_eq!(cache.weight(), 0);
    // The bytes read ahead are counted as long as the cursor lives.
    assert!(readers.jobs.get() > 8 << 10 && cache.gauge().get() == 0);
    drop(cursor);
    assert_eq!(readers.jobs.get(), 0);
    assert!(scan(&mut table.cursor(true)) == versions);
    assert!(cache.weight() > 900 << 10);
    assert_eq!(cache.pinned_bytes(), 0);
}

#[test]
fn paused_scans_do_not_take_read_ahead_memory_from_jobs() {
    let versions = numbered(2_000, 1, 100);
    let (table, readers) = table_of(&versions, small_blocks(512, Compression::None));
    let room_for_jobs = || readers.ahead.reserve(1 << 20).bytes();
    let alone = room_for_jobs();
    let mut scans: Vec<TableCursor> = (0..8).map(|_| table.cursor(true)).collect();
    for scan in &mut scans {
        scan.seek_first().unwrap();
        (0..50).for_each(|_| scan.next().unwrap());
    }
    assert!(readers.scan_ahead.reserved_bytes() > 0, "they have read ahead");
    assert_eq!((room_for_jobs(), readers.jobs.get()), (alone, 0));
    drop(scans);
    assert_eq!(readers.scan_ahead.reserved_bytes(), 0);
}

#[test]
fn entries_larger_than_blocks_and_the_longest_keys_are_stored() {
    let key = |byte: u8, len| full_key(KeyspaceId(1), &vec![byte; len]);
    let put = |seqno| Stamp::new(Seqno(seqno), Kind::Put);
    let versions: Vec<Version> = vec![
        (key(b'a', 1), put(1), b"small".to_vec()),
        (key(b'b', 65_535), put(2), vec![1; 3 << 20]),
        (key(b'b', 65_535), put(1), vec![2; 10]),
        (key(b'c', 2), put(9), Vec::new()),
        (key(b'd', 2), put(3), vec![3; 5000]),
        (key(b'e', 65_535), put(4), b"end".to_vec()),
    ];
    for compression in [Compression::None, Compression::Lz4] {
        let (table, _) = table_of(&versions, small_blocks(4096, compression));
        assert!(scan(&mut table.cursor(false)) == versions);
        for version in &versions {
            let (stamp, value) = newest_in(&table, &version.0, version.1.seqno()).unwrap().unwrap();
            assert!(stamp == version.1 && value == version.2);
        }
    }
}

#[test]
fn a_block_holds_keys_of_a_single_keyspace() {
    let keys: Vec<Vec<u8>> = (1..4).map(|keyspace| full_key(KeyspaceId(keyspace), b"key")).collect();
    let versions: Vec<Version> =
        keys.iter().map(|key| (key.clone(), Stamp::new(Seqno(1), Kind::Put), vec![7; 1000])).collect();
    let (table, readers) = table_of(&versions, small_blocks(64 << 10, Compression::None));
    let cache = &readers.cache;
    for key in &keys {
        let before = cache.weight();
        newest_in(&table, key, Seqno::MAX).unwrap().unwrap();
        assert!(cache.weight() - before > 1000, "each key is in a block of its own");
    }
}

#[test]
fn blocks_are_cut_where_compression_changes() {
    let disk = SimDisk::new();
    let mut builder = TableBuilder::create(&disk, &path(), ID, small_blocks(4096, Compression::None)).unwrap();
    for keyspace in 1..=4u32 {
        builder.set_compression(if keyspace % 2 == 0 { Compression::Lz4 } else { Compression::None }).unwrap();
        for number in 0..10u64 {
            let key = full_key(KeyspaceId(keyspace), &number.to_be_bytes());
            builder.add(&key, Stamp::new(Seqno(number + 1), Kind::Put), &[b'v'; 100]).unwrap();
        }
    }
    let meta = builder.finish().unwrap();
    let table = Table::open(&readers(&disk), guard(), meta).unwrap();
    let bytes = disk.read_file(&path()).unwrap();
    let text = vec![b'v'; 100];
    let in_clear = bytes.windows(100).filter(|window| *window == text).count();
    // Two of four keyspaces are uncompressed, with ten values each; the others are compressed.
    assert_eq!(in_clear, 20);
    assert_eq!(scan(&mut table.cursor(true)).len(), 40);
}

#[test]
fn tables_written_with_direct_io_are_identical_byte_for_byte() {
    for (count, value_bytes) in [(1, 1), (300, 20), (500, 4000)] {
        let versions = numbered(count, 1, value_bytes);
        for write_bytes in [BLOCK_IO_BYTES, 3 * BLOCK_IO_BYTES, 1 << 20] {
            let (buffered, direct) = (SimDisk::new(), SimDisk::new());
            let options = TableOptions { write_bytes, ..small_blocks(512, Compression::None) };
            let meta = write(&buffered, &versions, options);
            assert_eq!(write(&direct, &versions, TableOptions { access: Access::Direct, ..options }), meta);
            assert_eq!(direct.read_file(&path()), buffered.read_file(&path()));
            check_all(&direct, &meta, &versions).unwrap();
        }
    }
}

#[test]
fn a_table_is_first_read_when_used_and_damage_is_reported_then() {
    let versions = numbered(60, 1, 15);
    let disk = SimDisk::new();
    let meta = write(&disk, &versions, TableOptions::default());
    disk.flip_bit(&path(), meta.size - 20, 1);
    let readers = readers(&disk);
    let table = Table::new(&readers, guard(), meta.clone()).unwrap();
    assert_eq!((readers.handles.opened(), readers.resident.get() > 0), (0, true));
    for _ in 0..2 {
        assert!(matches!(newest_in(&table, &versions[0].0, Seqno::MAX), Err(Error::Corruption { .. })));
    }
    disk.flip_bit(&path(), meta.size - 20, 1);
    assert!(newest_in(&table, &versions[0].0, Seqno::MAX).unwrap().is_some());
    drop(table);
    assert_eq!((readers.handles.open_count(), readers.resident.get()), (0, 0));
}

#[test]
fn tables_without_filters_give_the_same_answers() {
    let versions = numbered(500, 2, 10);
    let options = TableOptions { filter_bits: 0, ..small_blocks(300, Compression::None) };
    let (table, _) = table_of(&versions, options);
    assert!(
        versions
            .iter()
            .all(|version| newest_in(&table, &version.0, version.1.seqno()).unwrap().unwrap().0 == version.1)
    );
    assert!(newest_in(&table, &full_key(KeyspaceId(2), b"absent"), Seqno::MAX).unwrap().is_none());
}

/// Reads the whole table; `Ok` only if all of it is right.
fn check_all(disk: &SimDisk, meta: &TableMeta, versions: &[Version]) -> Result<()> {
    let table = Table::open(&readers(disk), guard(), meta.clone())?;
    for (key, stamp, value) in versions {
        let found = newest_in(&table, key, stamp.seqno())?.expect("a present version is found or damage reported");
        assert!(found.0 == *stamp && found.1 == value[..], "a wrong answer");
    }
    let mut cursor = table.cursor(false);
    cursor.seek_first()?;
    for (key, stamp, value) in versions {
        assert!(cursor.valid(), "a scan ended early without an error");
        assert_eq!((cursor.key(), cursor.stamp(), cursor.value()), (&key[..], *stamp, &value[..]));
        cursor.next()?;
    }
    assert!(!cursor.valid());
    cursor.seek_last()?;
    while cursor.valid() {
        cursor.prev()?;
    }
    table.properties().map(drop)
}

#[test]
fn any_flipped_byte_is_an_error_and_never_a_wrong_answer() {
    let versions = numbered(60, 2, 15);
    for compression in [Compression::None, Compression::Lz4] {
        let disk = SimDisk::new();
        let meta = write(&disk, &versions, small_blocks(256, compression));
        check_all(&disk, &meta, &versions).unwrap();
        let bytes = disk.read_file(&path()).unwrap();
        for at in 0..bytes.len() {
            for flip in [0x01, 0x80] {
                let mut flipped = bytes.clone();
                flipped[at] ^= flip;
                disk.write_file(&path(), &flipped);
                match check_all(&disk, &meta, &versions) {
                    Err(Error::Corruption { path: named, offset, .. }) => {
                        assert!(named == path() && offset <= meta.size);
                    }
                    Err(Error::Unsupported { .. }) => assert!(at >= bytes.len() - FOOTER_BYTES),
                    other => panic!("byte {at} of {} went undetected: {other:?}", bytes.len()),
                }
            }
        }
    }
}

#[test]
fn truncated_and_swapped_files_are_corrupt() {
    let versions = numbered(60, 1, 15);
    let disk = SimDisk::new();
    let meta = write(&disk, &versions, TableOptions::default());
    let bytes = disk.read_file(&path()).unwrap();
    for len in [0, 1, FOOTER_BYTES - 1, FOOTER_BYTES, bytes.len() / 2, bytes.len() - 1] {
        disk.write_file(&path(), &bytes[..len]);
        assert!(matches!(check_all(&disk, &meta, &versions), Err(Error::Corruption { .. })));
        let shorter = TableMeta { size: len as u64, ..meta.clone() };
        assert!(matches!(check_all(&disk, &shorter, &versions), Err(Error::Corruption { .. })));
    }
    disk.write_file(&path(), &bytes);
    let other = TableMeta { id: FileId(13), ..meta.clone() };
    assert!(matches!(check_all(&disk, &other, &versions), Err(Error::Corruption { .. })));
    let other = TableMeta { end: b"zz".to_vec(), ..meta };
    assert!(matches!(check_all(&disk, &other, &versions), Err(Error::Corruption { .. })));
}

#[test]
fn failing_reads_return_errors_and_never_a_wrong_answer() {
    let versions = numbered(900, 2, 30);
    let disk = SimDisk::new();
    let meta = write(&disk, &versions, small_blocks(256, Compression::Lz4));
    // A cache of capacity 0: every block is read again.
    let table = Table::open(&Readers::for_test(&disk, 0), guard(), meta).unwrap();
    disk.set_faults(Faults { fail_read_one_in: Some(6), seed: 3, ..Faults::default() });
    let (mut failed, mut found) = (0, 0);
    let mut cursor = table.cursor(true);
    for (index, version) in versions.iter().enumerate() {
        match newest_in(&table, &version.0, version.1.seqno()) {
            Ok(answer) => assert!(answer.is_some_and(|(stamp, value)| stamp == version.1 && value == version.2[..])),
            Err(_) => failed += 1,
        }
        let moved = match cursor.valid() {
            true => cursor.prev(),
            false => cursor.seek_before(&version.0, version.1),
        };
        match (moved, index) {
            (Err(_), _) => assert!(!cursor.valid()),
            (Ok(()), 0) => assert!(!cursor.valid()),
            (Ok(()), _) if !cursor.valid() => {}
            (Ok(()), _) => {
                found += 1;
                let here = (cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec());
                assert!(versions.contains(&here));
            }
        }
    }
    assert!(failed > 300 && found > 300, "{failed} failed, {found} found");
}

#[test]
fn a_failed_write_is_reported() {
    let disk = SimDisk::new();
    disk.set_faults(Faults { fail_write_after: Some(0), ..Faults::default() });
    let mut builder = TableBuilder::create(&disk, &path(), ID, TableOptions::default()).unwrap();
    builder.add(b"0001k", Stamp::new(Seqno(1), Kind::Put), b"v").unwrap();
    assert!(matches!(builder.finish(), Err(Error::Io { .. })));
}

fn keys() -> impl Strategy<Value = Vec<u8>> {
    let key = proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0xff)], 1..5);
    (1u32..4, key).prop_map(|(keyspace, key)| full_key(KeyspaceId(keyspace), &key))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stamp = (0u64..350).prop_map(|seqno| Stamp::at(Seqno(seqno)));
    let step = prop_oneof![
        2 => (keys(), stamp.clone()).prop_map(|(key, stamp)| Step::Seek(key, stamp)),
        2 => (keys(), stamp).prop_map(|(key, stamp)| Step::SeekBefore(key, stamp)),
        1 => Just(Step::SeekFirst),
        1 => Just(Step::SeekLast),
        6 => Just(Step::Next),
        6 => Just(Step::Prev),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Every key once, with no sequence number in the file.
fn unplaced(count: u64) -> Vec<Version> {
    let stamp = Stamp::new(Seqno::ZERO, Kind::Put);
    (0..count).map(|number| (full_key(KeyspaceId(1), format!("{number:05}").as_bytes()), stamp, vec![7; 40])).collect()
}

#[test]
fn a_table_written_without_sequence_numbers_takes_its_number_from_the_manifest() {
    let versions = unplaced(2000);
    let (table, readers) = table_of(&versions, small_blocks(512, Compression::None));
    let placed = table.place_at(&readers, guard(), Seqno(9)).unwrap();
    let stamp = Stamp::new(Seqno(9), Kind::Put);
    let expected: Vec<Version> = versions.iter().map(|(key, _, value)| (key.clone(), stamp, value.clone())).collect();
    assert_eq!(scan(&mut placed.cursor(false)), expected);
    for (key, ..) in expected.iter().step_by(97) {
        assert!(newest_in(&placed, key, Seqno(8)).unwrap().is_none());
        for snapshot in [Seqno(9), Seqno(10), Seqno::MAX] {
            assert_eq!(newest_in(&placed, key, snapshot).unwrap().unwrap().0, stamp);
        }
    }
    let at = |number: usize, stamp| Step::Seek(expected[number].0.clone(), stamp);
    let before = |number: usize, stamp| Step::SeekBefore(expected[number].0.clone(), stamp);
    let mut steps = Vec::new();
    for number in [0, 1, 13, 999, 1999] {
        for stamp in [Stamp::NEWEST, stamp, Stamp::at(Seqno(9)), Stamp::at(Seqno(8)), Stamp::OLDEST] {
            for step in [at(number, stamp), before(number, stamp)] {
                steps.extend([step.clone(), Step::Next, step, Step::Prev]);
            }
        }
    }
    assert_same_walk(&mut placed.cursor(true), &mut VecCursor::new(expected), &steps);
    // A table whose versions have their own numbers does not accept another.
    let (numbered, readers) = table_of(&numbered(10, 1, 5), TableOptions::default());
    let other = Table::open(&readers, guard(), numbered.meta().clone().placed_at(Seqno(9)));
    assert!(matches!(other, Err(Error::Corruption { .. })));
}

#[test]
fn cache_only_lookups_report_the_missing_block_and_succeed_once_it_is_read() {
    let versions = unplaced(3000);
    let (table, _) = table_of(&versions, small_blocks(512, Compression::Lz4));
    let keys: Vec<&[u8]> = versions.iter().step_by(11).map(|(key, ..)| &key[..]).collect();
    let has_base = |look_ups: &mut ManyKeys, key: &[u8]| {
        let mut found = KeyVersions::default();
        look_ups.look_up(&table, key, Seqno::MAX, &mut found).map(|()| found.base().is_some())
    };
    // Top index, filters, index partitions, data blocks: each kind is read for all keys together.
    for missing_max in [1, 100, 100, 3000] {
        let mut look_ups = ManyKeys::default();
        let mut missing = Vec::new();
        for key in &keys {
            match has_base(&mut look_ups, key) {
                Err(Unanswered::NotCached(block)) => missing.push(block),
                Err(Unanswered::Failed(error)) => panic!("{error}"),
                Ok(_) => panic!("the cache is empty"),
            }
        }
        missing.sort_by_key(MissingBlock::place);
        missing.dedup_by_key(|missing| missing.place());
        assert!(missing.len() <= missing_max);
        read_missing(missing);
    }
    let mut look_ups = ManyKeys::default();
    assert!(keys.iter().all(|key| has_base(&mut look_ups, key).unwrap()));
    assert!(!has_base(&mut look_ups, &full_key(KeyspaceId(1), b"00000x")).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn any_walk_and_any_get_on_a_table_equal_those_on_a_vector(
        keys in proptest::collection::vec((keys(), 0usize..40), 1..300),
        block_size in prop_oneof![Just(32usize), Just(128), Just(4096)],
        compression in prop_oneof![Just(Compression::None), Just(Compression::Lz4)],
        fill_cache in any::<bool>(),
        steps in steps(),
    ) {
        let mut versions: Vec<Version> = Vec::new();
        for (index, (key, len)) in keys.into_iter().enumerate() {
            versions.push((key, Stamp::new(Seqno(index as u64 + 1), Kind::Put), vec![index as u8; len]));
        }
        sort(&mut versions);
        let (table, _) = table_of(&versions, small_blocks(block_size, compression));
        let mut cursor = table.cursor(fill_cache);
        assert_same_walk(&mut cursor, &mut VecCursor::new(versions.clone()), &steps);
        for step in &steps {
            if let Step::Seek(key, stamp) = step {
                let found = newest_in(&table, key, stamp.seqno()).unwrap().map(|(stamp, value)| (stamp, value.to_vec()));
                prop_assert_eq!(found, model_get(&versions, key, stamp.seqno()));
            }
        }
    }
}

#[test]
fn a_block_this_build_cannot_decompress_is_unsupported_and_the_error_names_the_feature() {
    use crate::format::table::seal_block;
    let disk = SimDisk::new();
    let versions = numbered(3, 1, 5);
    let meta = write(&disk, &versions, TableOptions { filter_bits: 0, ..small_blocks(4096, Compression::None) });
    // The first block, marked as compressed with zstd, with a valid checksum.
    let readers = readers(&disk);
    let table = Table::open(&readers, guard(), meta.clone()).unwrap();
    let end = table.cursor(false).marks().unwrap()[0].bytes as usize;
    let bytes = disk.read_file(&path()).unwrap();
    let mut block = 0;
    // Data blocks are cut where the keyspace changes, so the first one is short.
    while check_block(&bytes[..block], ID, 0).is_err() {
        block += 1;
        assert!(block <= end, "the first block ends somewhere");
    }
    let mut sealed = bytes[..block - TRAILER_BYTES].to_vec();
    seal_block(&mut sealed, 0, Compression::Zstd, ID, 0);
    disk.write_file(&path(), &[&sealed, &bytes[block..]].concat());
    let table = Table::open(&readers, guard(), meta).unwrap();
    match newest_in(&table, &versions[0].0, Seqno::MAX) {
        Err(Error::Unsupported { message, .. }) => {
            assert!(!Compression::Zstd.is_available() && message.contains("cargo feature `zstd`"), "{message}");
        }
        Err(Error::Corruption { .. }) => assert!(Compression::Zstd.is_available()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_table_of_range_tombstones_only_is_valid_and_holds_no_key() {
    let disk = SimDisk::new();
    let mut builder = TableBuilder::create(&disk, &path(), ID, TableOptions::default()).unwrap();
    let key = |key: &str| full_key(KeyspaceId(1), key.as_bytes());
    builder.add_range(Fragment { start: key("b"), end: key("d"), seqnos: vec![Seqno(5), Seqno(2)] });
    let meta = builder.finish().unwrap();
    let readers = readers(&disk);
    let table = Table::open(&readers, guard(), meta).unwrap();
    // Not even a block that the cache lacks.
    let mut found = KeyVersions::default();
    ManyKeys::default().look_up(&table, &key("c"), Seqno::MAX, &mut found).unwrap();
    assert!(found.base().is_none());
    assert_eq!(table.cover(&key("c"), Seqno(4)).unwrap(), Seqno(2));
    let file = TableFile::open(disk.open_read(&path(), Access::Buffered).unwrap(), Some(ID)).unwrap();
    let mut problems = Vec::new();
    let problem = &mut |_: Option<u64>, message: String| problems.push(message);
    let references = &mut |_: &_| ();
    let context = &mut CheckContext { knows: &|_| true, judge: &|_, _, _| None, references, problem };
    assert_eq!(check_table(&file, &path(), context), 0);
    assert_eq!(problems, [""; 0]);
}
