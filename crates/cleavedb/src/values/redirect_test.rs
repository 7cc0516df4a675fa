//! Tests of redirect tables, and of looking up many addresses in them.

use super::super::files::{Entry, ValueFiles};
use super::super::present_addresses::PresentAddresses;
use super::*;
use crate::base::{DirId, FileKey, FileKind, SharedMap};
use crate::format::value_state::ValueState;
use crate::io::SimDisk;
use crate::io::file_guard::FileGuard;
use crate::io::handles::Handles;
use crate::io::pending_deletions::PendingDeletions;
use crate::sched::random::Random;

/// Records were 900 B long; their new length depends on their location.
fn len_of((index, offset): RedirectPlace) -> u32 {
    900 - (offset % 500) as u32 - index as u32
}

fn write(disk: &SimDisk, tables: &[&[(u64, RedirectPlace)]], shape: Shape) -> Vec<RedirectTable> {
    let mut builder = RedirectBuilder::default();
    for (index, pairs) in tables.iter().enumerate() {
        let table = builder.begin(FileId(index as u64));
        // In any order.
        pairs.iter().rev().for_each(|&(from, to)| builder.add(table, from, to, len_of(to)));
    }
    let places = builder.write(disk, (Path::new("r"), Access::Buffered), FileId(9), shape).unwrap();
    let table = |(index, (start, len))| RedirectTable { of: FileId(index), start, len, shape };
    (0..).zip(places).map(table).collect()
}

fn open(disk: &SimDisk, table: RedirectTable) -> Redirect {
    open_with(disk, table, BlockCache::new(1 << 20))
}

fn open_with(disk: &SimDisk, table: RedirectTable, cache: BlockCache) -> Redirect {
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let key = FileKey { kind: FileKind::Redirect, id: FileId(9), dir: DirId::HOME };
    let guard = FileGuard::new(key, Path::new("r"), Arc::new(PendingDeletions::default()));
    let handle = Arc::new(Handles::new(storage, 4)).handle(Path::new("r").into(), Access::Buffered);
    let file = Arc::new(StoredFile::new(guard, handle, None));
    Redirect::new(file, table, vec![FileId(20), FileId(30)], Arc::new(cache))
}

fn follow(redirect: &Redirect, offset: u64) -> Result<Option<(u64, u64)>> {
    let address = Address { file: FileId(1), offset, len: 900, value_len: 800 };
    let to = redirect.follow(address)?;
    Ok(to.map(|to| {
        let place = (usize::from(to.file.0 == 30), to.offset);
        let len = if redirect.table.shape == Shape::Lengths { len_of(place) } else { 900 };
        assert_eq!((to.len, to.value_len), (len, 800));
        (to.file.0, to.offset)
    }))
}

#[test]
fn every_pair_and_no_other_offset_is_found_in_any_distribution() {
    for (count, shape) in [0_u64, 1, 2, 203, 204, 205, 254, 255, 256, 1000, 5000]
        .into_iter()
        .flat_map(|count| [(count, Shape::Pairs), (count, Shape::Lengths)])
    {
        for bend in [1, 2, 3] {
            // Evenly spaced, increasingly far apart, and in two groups.
            let from = |n: u64| match bend {
                1 => n * 1000 + 24,
                2 => n * n * 7 + n * 3 + 24,
                _ => n * 40 + 24 + if n > count / 2 { 1 << 40 } else { 0 },
            };
            let pairs: Vec<(u64, RedirectPlace)> =
                (0..count).map(|n| (from(n), ((n % 2) as usize, n * 5 + 24))).collect();
            let disk = SimDisk::new();
            let places = write(&disk, &[&[(77, (0, 1))], &pairs, &[]], shape);
            let redirect = open(&disk, places[1]);
            for (n, &(from, (_, to))) in pairs.iter().enumerate() {
                let file = if n % 2 == 0 { 20 } else { 30 };
                assert_eq!(follow(&redirect, from).unwrap(), Some((file, to)), "{from} of {count}");
                assert_eq!(follow(&redirect, from + 1).unwrap(), None);
            }
            for offset in [1, 77, u64::MAX] {
                assert_eq!(follow(&redirect, offset).unwrap(), None);
            }
            // All, with offsets between them that are not there; and a few.
            let all: Vec<u64> = pairs.iter().flat_map(|(from, _)| [*from, *from + 1]).collect();
            let few: Vec<u64> = pairs.iter().map(|(from, _)| *from).step_by(700).collect();
            // Whatever page had the answer before.
            let mut page = None;
            for offset in all.iter().chain(all.iter().rev().step_by(97)) {
                let address = Address { file: FileId(1), offset: *offset, len: 900, value_len: 800 };
                let found = redirect.follow_from(address, &mut page).unwrap();
                assert_eq!(found, redirect.follow(address).unwrap(), "{offset} of {count}");
            }
            for offsets in [all, few] {
                let wanted: Vec<(u64, u64)> =
                    offsets.iter().filter_map(|offset| follow(&redirect, *offset).unwrap()).collect();
                let mut found = Vec::new();
                redirect.follow_all(&offsets, &mut |file, offset| found.push((file.0, offset))).unwrap();
                assert_eq!(found, wanted);
            }
            assert_eq!(follow(&open(&disk, places[0]), 77).unwrap(), Some((20, 1)));
            assert_eq!(follow(&open(&disk, places[2]), 77).unwrap(), None);
        }
    }
}

#[test]
fn most_look_ups_read_one_page() {
    let mut random = Random::new(7);
    // Records of about 1 KiB, of which two fifths were dead.
    let mut end = 24;
    let mut pairs: Vec<(u64, RedirectPlace)> = Vec::new();
    for _ in 0..6000 {
        if random.below(5) > 1 {
            pairs.push((end, (0, end)));
        }
        end += 900 + random.below(200);
    }
    let disk = SimDisk::new();
    let places = write(&disk, &[&pairs], Shape::Pairs);
    let redirect = open_with(&disk, places[0], BlockCache::new(0));
    let reads_of = |from: u64| {
        let before = disk.reads();
        assert_eq!(follow(&redirect, from).unwrap(), Some((20, from)));
        disk.reads() - before
    };
    let first = reads_of(pairs[100].0);
    let reads: u64 = pairs.iter().map(|(from, _)| reads_of(*from)).sum();
    assert!(first <= 3 && reads < pairs.len() as u64 / 10 * 12, "{first}; {reads} of {}", pairs.len());
}

#[test]
fn addresses_in_any_order_lead_to_where_the_records_are_now_through_several_files() {
    let disk = SimDisk::new();
    // Of file 1 every third record is dead, and the others moved to file 20 or 30. File 20 was emptied into file 30.
    let first: Vec<(u64, RedirectPlace)> =
        (1..3000).filter(|n| n % 3 > 0).map(|n| (n * 100, ((n % 3 - 1) as usize, n * 10))).collect();
    let second: Vec<(u64, RedirectPlace)> = (1..3000).map(|n| (n * 10, (1, n * 7 + 50_000))).collect();
    let places = write(&disk, &[&first, &second], Shape::Pairs);
    let moved = |table: usize| Entry::Moved(Arc::new(open(&disk, places[table])));
    let files = [(FileId(1), moved(0)), (FileId(20), moved(1))].into_iter().collect();
    let values = ValueFiles::new(files, SharedMap::default(), ValueState::default());
    let mut present = PresentAddresses::new(&values);
    let mut random = Random::new(3);
    for n in (1..3000).chain((0..3000).map(|_| random.below(2999) + 1)) {
        let address = Address { file: FileId(1), offset: n * 100, len: 900, value_len: 800 };
        let wanted = match n % 3 {
            0 => None,
            1 => Some(Address { file: FileId(30), offset: n * 7 + 50_000, ..address }),
            _ => Some(Address { file: FileId(30), offset: n * 10, ..address }),
        };
        assert_eq!(present.find(address).unwrap(), wanted, "{n}");
        assert_eq!(present.find(Address { file: FileId(30), ..address }).unwrap(), None, "it has not moved");
    }
}

#[test]
fn flipped_bytes_are_errors_and_never_wrong_answers() {
    for shape in [Shape::Pairs, Shape::Lengths] {
        let disk = SimDisk::new();
        let pairs: Vec<(u64, RedirectPlace)> = (1..600).map(|n| (n * 100, (0, n))).collect();
        let places = write(&disk, &[&pairs, &[(5, (1, 6))]], shape);
        let good = disk.read_file(Path::new("r")).unwrap();
        let mut seen = Vec::new();
        let file = disk.open_read(Path::new("r"), Access::Buffered).unwrap();
        let tables = read_all(&*file, FileId(9), &mut |table, entry| seen.push((table.of.0, entry))).unwrap();
        let entry = |from, to| RedirectEntry { from, to, len: (shape == Shape::Lengths).then(|| len_of(to)) };
        let wanted = pairs.iter().map(|&(from, to)| (0, entry(from, to))).chain([(1, entry(5, (1, 6)))]);
        assert_eq!(seen, wanted.collect::<Vec<_>>());
        assert_eq!(tables, places);
        assert!(read_all(&*file, FileId(8), &mut |_, _| {}).is_err());
        for at in (0..good.len()).step_by(7) {
            let mut bad = good.clone();
            bad[at] ^= 1;
            disk.write_file(Path::new("r"), &bad);
            let redirect = open(&disk, places[0]);
            let offsets: Vec<u64> = pairs.iter().map(|(from, _)| *from).collect();
            let mut found = Vec::new();
            let all = redirect.follow_all(&offsets, &mut |file, offset| found.push((file.0, offset)));
            assert!(found.iter().all(|(file, to)| *file == 20 && (1..600).contains(to)));
            assert!(all.is_err() || found.len() == pairs.len(), "byte {at}");
            let file = disk.open_read(Path::new("r"), Access::Buffered).unwrap();
            assert!(read_all(&*file, FileId(9), &mut |_, _| {}).is_err(), "byte {at}");
            for &(from, (_, to)) in pairs.iter().step_by(50) {
                let found = follow(&redirect, from);
                assert!(found.is_err() || found.unwrap() == Some((20, to)), "byte {at}");
            }
        }
    }
}

/// The last page guides look-ups of all others, which do without it.
#[test]
fn a_damaged_page_concerns_only_the_records_in_it() {
    let disk = SimDisk::new();
    let pairs: Vec<(u64, RedirectPlace)> = (1..1000).map(|n| (n * 100, (0, n))).collect();
    let place = write(&disk, &[&pairs], Shape::Pairs)[0];
    let good = disk.read_file(Path::new("r")).unwrap();
    let pages = place.len as usize / PAGE_BYTES;
    assert_eq!(pages, 4);
    for page in 0..pages {
        let mut bad = good.clone();
        bad[place.start as usize + page * PAGE_BYTES] ^= 1;
        disk.write_file(Path::new("r"), &bad);
        let redirect = open(&disk, place);
        for (index, (from, (_, to))) in pairs.iter().enumerate() {
            let found = follow(&redirect, *from);
            match index / Shape::Pairs.page_entries() == page {
                true => assert!(found.is_err(), "{from} in page {page}"),
                false => assert!(found.is_err() || found.unwrap() == Some((20, *to)), "{from} beside page {page}"),
            }
        }
        let others = pairs.iter().enumerate().filter(|(index, _)| index / Shape::Pairs.page_entries() != page);
        let (count, found) = others.fold((0, 0), |(count, found), (_, (from, _))| {
            (count + 1, found + usize::from(follow(&redirect, *from).is_ok()))
        });
        // Bisection passes pages beside that of a record.
        assert!(page < pages - 1 && found * 10 >= count * 9 || found == count, "{found} of {count} beside page {page}");
    }
}

#[test]
fn a_record_longer_than_before_is_corruption() {
    let disk = SimDisk::new();
    let places = write(&disk, &[&[(77, (0, 1))]], Shape::Lengths);
    let address = |len| Address { file: FileId(1), offset: 77, len, value_len: 5 };
    let follow = |len| open(&disk, places[0]).follow(address(len));
    assert_eq!(follow(899).unwrap(), Some(Address { file: FileId(20), offset: 1, ..address(899) }));
    assert!(matches!(follow(898), Err(Error::Corruption { .. })));
}
