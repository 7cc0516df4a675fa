//! Tests of writing tables from a stream of versions.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use super::*;
use crate::base::cursor::model::{Version, sort};
use crate::base::{Cursor, DirId, Kind, Seqno, Stamp, full_key};
use crate::io::file_guard::FileGuard;
use crate::io::{Faults, SimDisk};
use crate::levels::level_cursor::LevelCursor;
use crate::levels::readers::Readers;
use crate::levels::table::Table;

/// Returns versions, and then an error if there is one.
struct Source {
    versions: Vec<Version>,
    position: usize,
    failure: Option<Error>,
}

impl VersionSource for Source {
    type Error = Error;

    fn advance(&mut self) -> Result<bool> {
        self.position += 1;
        match (self.position <= self.versions.len(), self.failure.take()) {
            (true, failure) => {
                self.failure = failure;
                Ok(true)
            }
            (false, Some(failure)) => Err(failure),
            (false, None) => Ok(false),
        }
    }

    fn current(&self) -> crate::base::versions::VersionRef<'_> {
        let (key, stamp, value) = &self.versions[self.position - 1];
        (key, *stamp, value)
    }
}

fn path_of(id: FileId) -> PathBuf {
    PathBuf::from(format!("/{:06}.table", id.0))
}

fn write(
    disk: &SimDisk,
    versions: &[Version],
    failure: Option<Error>,
    never_across: &[KeyspaceId],
) -> Result<Vec<TableMeta>> {
    write_with(disk, versions, Vec::new(), failure, never_across)
}

fn write_with(
    disk: &SimDisk,
    versions: &[Version],
    ranges: Vec<Fragment>,
    failure: Option<Error>,
    never_across: &[KeyspaceId],
) -> Result<Vec<TableMeta>> {
    let next = Cell::new(100);
    let sink = TableSink {
        storage: disk,
        next_table: &|_| {
            let id = FileId(next.replace(next.get() + 1));
            Ok(NewTable { id, path: path_of(id), access: Access::Buffered, bytes_max: u64::MAX })
        },
        options: TableOptions { block_size: 512, ..TableOptions::default() },
        compression: &|keyspace| (keyspace == KeyspaceId(2)).then_some(Compression::None),
        target_bytes: 8 << 10,
        never_across,
        limit: &|_| Ok(()),
    };
    write_tables(&mut Source { versions: versions.to_vec(), position: 0, failure }, ranges, &sink)
}

fn versions(keyspaces: &[u32], keys: u64, copies: u64) -> Vec<Version> {
    let mut versions = Vec::new();
    for &keyspace in keyspaces {
        for number in 0..keys {
            let key = full_key(KeyspaceId(keyspace), format!("{number:05}").as_bytes());
            for copy in 0..copies {
                let stamp = Stamp::new(Seqno(1 + number * copies + copy), Kind::Put);
                versions.push((key.clone(), stamp, vec![b'v'; 40]));
            }
        }
    }
    sort(&mut versions);
    versions
}

fn open(disk: &SimDisk, metas: &[TableMeta]) -> Vec<Arc<Table>> {
    let readers = Readers::for_test(disk, 1 << 20);
    let open = |meta: &TableMeta| {
        let guard = FileGuard::new(meta.key(DirId::HOME), path_of(meta.id), Arc::default());
        Table::open(&readers, guard, meta.clone()).unwrap()
    };
    metas.iter().map(open).collect()
}

fn read_back(disk: &SimDisk, metas: &[TableMeta]) -> Vec<Version> {
    let mut cursor = LevelCursor::new(open(disk, metas).into(), false);
    let mut read = Vec::new();
    cursor.seek_first().unwrap();
    while cursor.valid() {
        read.push((cursor.key().to_vec(), cursor.stamp(), cursor.value().to_vec()));
        cursor.next().unwrap();
    }
    read
}

#[test]
fn tables_are_cut_near_the_target_size_and_never_within_a_key() {
    let disk = SimDisk::new();
    let mut all = versions(&[1], 1000, 2);
    // One key whose versions would fill several tables.
    let key = full_key(KeyspaceId(1), b"00500x");
    all.extend((1..1000).map(|seqno| (key.clone(), Stamp::new(Seqno(seqno), Kind::Delta), vec![seqno as u8; 40])));
    sort(&mut all);
    let metas = write(&disk, &all, None, &[]).unwrap();
    assert!(metas.len() > 3, "{} tables", metas.len());
    assert!(metas.windows(2).all(|pair| pair[0].end <= pair[1].smallest));
    assert!(metas.iter().filter(|meta| meta.size > 12 << 10).all(|meta| meta.deltas == 999));
    assert!(read_back(&disk, &metas) == all);
    assert_eq!(metas.iter().map(|meta| meta.size).max().unwrap() as usize, {
        let largest = metas.iter().max_by_key(|meta| meta.size).unwrap();
        disk.read_file(&path_of(largest.id)).unwrap().len()
    });
}

#[test]
fn no_table_spans_a_keyspace_that_is_being_dropped() {
    let disk = SimDisk::new();
    let all = versions(&[1, 2, 4, 6], 3, 1);
    let metas = write(&disk, &all, None, &[KeyspaceId(3), KeyspaceId(7)]).unwrap();
    let ends: Vec<_> = metas.iter().map(|meta| (meta.smallest[3], meta.end[3])).collect();
    assert_eq!(ends, [(1, 2), (4, 6)]);
    assert!(read_back(&disk, &metas) == all);
}

fn range(start: &[u8], end: &[u8], seqno: u64) -> Fragment {
    Fragment { start: start.to_vec(), end: end.to_vec(), seqnos: vec![Seqno(seqno)] }
}

/// The fragments of the tables, with adjacent equal ones joined; each must lie within its table.
fn ranges_read_back(disk: &SimDisk, metas: &[TableMeta]) -> Vec<Fragment> {
    let mut all = Vec::new();
    for table in open(disk, metas) {
        let (meta, fragments) = (table.meta(), table.fragments().unwrap());
        assert_eq!(meta.range_deletes, fragments.len() as u64);
        assert!(fragments.iter().all(|range| meta.smallest <= range.start && range.end <= meta.end));
        all.extend(fragments);
    }
    let all: Vec<_> = crate::base::tombstones::unfold(&all).collect();
    crate::base::tombstones::fragment(&all, &[Seqno(u64::MAX >> 8)])
}

#[test]
fn range_tombstones_are_split_at_table_boundaries() {
    let disk = SimDisk::new();
    let all = versions(&[1], 1000, 1);
    let key = |number: u64| full_key(KeyspaceId(1), format!("{number:05}").as_bytes());
    let end = KeyspaceId(2).prefix();
    let wide = vec![range(&KeyspaceId(1).prefix(), &key(700), 5000), range(&key(800), &end, 6000)];
    // Also fragments that begin or end at each key, so that some do so at a table boundary.
    let narrow: Vec<_> = (0..999).map(|number| range(&key(number), &key(number + 1), 5000 + number)).collect();
    for ranges in [wide, narrow] {
        let metas = write_with(&disk, &all, ranges.clone(), None, &[]).unwrap();
        assert!(metas.len() > 2, "{} tables", metas.len());
        assert!(metas.windows(2).all(|pair| pair[0].end <= pair[1].smallest));
        assert!(read_back(&disk, &metas) == all);
        assert_eq!(ranges_read_back(&disk, &metas), ranges);
        metas.iter().for_each(|meta| disk.remove(&path_of(meta.id)).unwrap());
    }
}

#[test]
fn range_tombstones_alone_make_tables_that_do_not_span_dropped_keyspaces() {
    let disk = SimDisk::new();
    let of = |keyspace: u32| range(&KeyspaceId(keyspace).prefix(), &KeyspaceId(keyspace + 1).prefix(), 9);
    let metas = write_with(&disk, &[], vec![of(1), of(2), of(4)], None, &[KeyspaceId(3)]).unwrap();
    let ends: Vec<_> = metas.iter().map(|meta| (meta.smallest[3], meta.end[3], meta.entries)).collect();
    assert_eq!(ends, [(1, 3, 0), (4, 5, 0)]);
    assert!(read_back(&disk, &metas).is_empty());
}

#[test]
fn each_keyspace_gets_its_own_compression() {
    let disk = SimDisk::new();
    let metas = write(&disk, &versions(&[1, 2, 3], 20, 1), None, &[]).unwrap();
    let bytes = disk.read_file(&path_of(metas[0].id)).unwrap();
    let in_clear = bytes.windows(40).filter(|window| *window == [b'v'; 40]).count();
    assert_eq!((metas.len(), in_clear), (1, 20));
}

#[test]
fn an_empty_stream_writes_nothing() {
    let disk = SimDisk::new();
    assert!(write(&disk, &[], None, &[]).unwrap().is_empty());
    assert!(disk.files().is_empty());
}

#[test]
fn no_file_is_left_behind_after_any_error() {
    let disk = SimDisk::new();
    let names = |disk: &SimDisk| disk.files().into_iter().map(|(path, _)| path).collect::<Vec<_>>();
    disk.write_file(Path::new("/000001.table"), b"not ours");
    let all = versions(&[1], 2000, 1);
    assert!(matches!(write(&disk, &all, Some(Error::Closed), &[]), Err(Error::Closed)));
    assert_eq!(names(&disk), [Path::new("/000001.table")]);
    for count in 0..3 {
        disk.set_faults(Faults { fail_write_after: Some(count), ..Faults::default() });
        assert!(matches!(write(&disk, &all, None, &[]), Err(Error::Io { .. })));
        disk.set_faults(Faults { fail_sync_after: Some(count), ..Faults::default() });
        assert!(matches!(write(&disk, &all, None, &[]), Err(Error::Io { .. })));
        disk.set_faults(Faults { no_space_after_bytes: Some(5_000 * count), ..Faults::default() });
        assert!(matches!(write(&disk, &all, None, &[]), Err(Error::NoSpace { .. })));
        assert_eq!(names(&disk), [Path::new("/000001.table")]);
    }
    disk.clear_faults();
    // A file that existed before must not be removed.
    disk.write_file(&path_of(FileId(101)), b"not ours");
    assert!(write(&disk, &all, None, &[]).is_err());
    assert_eq!(names(&disk), [Path::new("/000001.table"), &path_of(FileId(101))]);
}

#[test]
fn written_tables_survive_power_loss_once_the_directory_is_synced() {
    let disk = SimDisk::new();
    let all = versions(&[1], 2000, 1);
    let metas = write(&disk, &all, None, &[]).unwrap();
    disk.sync_dir(Path::new("/")).unwrap();
    for seed in 0..20 {
        assert!(read_back(&disk.power_loss(seed), &metas) == all);
    }
}
