//! Tests of versions and of the cursors over their levels.

use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::base::cursor::model::{Step, VecCursor, Version as OneVersion, assert_same_walk, sort};
use crate::base::{Cursor, DirId, KeyspaceId, Kind, Merging, Seqno, Stamp, full_key};
use crate::io::SimDisk;
use crate::io::file_guard::FileGuard;
use crate::levels::builder::{TableBuilder, TableOptions};
use crate::levels::readers::Readers;

fn key(number: u64) -> Vec<u8> {
    full_key(KeyspaceId(1), format!("{number:03}").as_bytes())
}

fn table_of(id: u64, mut versions: Vec<OneVersion>) -> Arc<Table> {
    sort(&mut versions);
    let storage = SimDisk::new();
    let path = PathBuf::from(format!("/{id}.table"));
    let options = TableOptions { block_size: 64, ..TableOptions::default() };
    let mut builder = TableBuilder::create(&storage, &path, FileId(id), options).unwrap();
    for (key, stamp, value) in &versions {
        builder.add(key, *stamp, value).unwrap();
    }
    let meta = builder.finish().unwrap();
    Table::open(
        &Readers::for_test(&storage, 1 << 16),
        FileGuard::new(meta.key(DirId::HOME), path, Arc::default()),
        meta,
    )
    .unwrap()
}

/// A table with one version of each key; sequence numbers count up from `seqno`.
fn table(id: u64, keys: std::ops::RangeInclusive<u64>, seqno: u64) -> Arc<Table> {
    let first = *keys.start();
    let versions = keys.map(|number| version(number, seqno + number - first)).collect();
    table_of(id, versions)
}

fn version(number: u64, seqno: u64) -> OneVersion {
    (key(number), Stamp::new(Seqno(seqno), Kind::Put), seqno.to_string().into_bytes())
}

fn ids(tables: impl IntoIterator<Item = impl std::borrow::Borrow<Arc<Table>>>) -> Vec<u64> {
    tables.into_iter().map(|table| table.borrow().meta().id.0).collect()
}

fn sample() -> Version {
    let hl0 = [(0, table(1, 10..=20, 500)), (0, table(2, 15..=30, 600)), (0, table(3, 40..=41, 550))];
    let hl1 = [(1, table(4, 20..=29, 100)), (1, table(5, 0..=15, 300))];
    Version::default().apply(&hl0, &[]).apply(&hl1, &[]).apply(&[(3, table(6, 0..=90, 1))], &[])
}

#[test]
fn hl0_is_ordered_by_age_and_lower_levels_by_key() {
    let version = sample();
    assert_eq!(ids(version.levels()[0].tables().iter()), [2, 3, 1]);
    assert_eq!(ids(version.levels()[1].tables().iter()), [5, 4]);
    assert_eq!(version.levels()[3].entries(), 91);
    assert_eq!(version.levels()[3].bytes(), version.find(FileId(6)).unwrap().1.meta().size);
}

#[test]
fn lookups_visit_newer_tables_first() {
    let version = sample();
    assert_eq!(ids(version.tables_for_key(&key(20))), [2, 1, 4, 6]);
    assert_eq!(ids(version.tables_for_key(&key(17))), [2, 1, 6]);
    assert_eq!(ids(version.tables_for_key(&key(40))), [3, 6]);
    assert_eq!(ids(version.tables_for_key(&key(95))), [0; 0]);
    assert_eq!(ids(version.overlapping(0, &key(21), &key(41))), [2, 3]);
    assert_eq!(ids(version.overlapping(1, &key(15), &key(21))), [5, 4]);
    assert_eq!(ids(version.overlapping(1, &key(16), &key(20))), [0; 0]);
    assert!(version.may_hold_below(1, &key(18)) && version.may_hold_below(0, &key(0)));
    assert!(!version.may_hold_below(3, &key(18)) && !version.may_hold_below(0, &key(91)));
}

#[test]
fn an_edit_adds_removes_and_moves_tables_without_changing_the_old_version() {
    let before = sample();
    let moved = before.find(FileId(3)).unwrap().1.clone();
    let after = before.apply(&[(1, moved), (1, table(7, 50..=60, 700))], &[FileId(3), FileId(5)]);
    assert_eq!(ids(after.levels()[0].tables().iter()), [2, 1]);
    assert_eq!(ids(after.levels()[1].tables().iter()), [4, 3, 7]);
    assert_eq!(after.find(FileId(3)).unwrap().0, 1);
    assert!(after.find(FileId(5)).is_none());
    assert_eq!(ids(before.levels()[0].tables().iter()), [2, 3, 1]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "ordered by age")]
fn overlapping_tables_of_a_lower_level_are_rejected() {
    sample().apply(&[(1, table(7, 29..=35, 700))], &[]);
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "ordered by age")]
fn overlapping_tables_of_hl0_with_shared_sequence_numbers_are_rejected() {
    sample().apply(&[(0, table(7, 20..=22, 505))], &[]);
}

#[test]
fn tables_of_one_flush_may_share_an_interval_if_their_keys_are_disjoint() {
    let version = sample().apply(&[(0, table(7, 50..=52, 551))], &[]);
    assert_eq!(version.levels()[0].tables().len(), 4);
}

#[test]
fn figures_mark_the_tables_that_running_jobs_use() {
    let version = sample();
    let figures = version.figures(&|id| id == FileId(5));
    let busy: Vec<bool> = figures[1].iter().map(|table| table.busy).collect();
    assert_eq!((figures.len(), busy), (LEVELS_MAX, vec![true, false]));
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stamp = (0u64..900).prop_map(|seqno| Stamp::at(Seqno(seqno)));
    let step = prop_oneof![
        2 => (0u64..100, stamp.clone()).prop_map(|(number, stamp)| Step::Seek(key(number), stamp)),
        2 => (0u64..100, stamp).prop_map(|(number, stamp)| Step::SeekBefore(key(number), stamp)),
        1 => Just(Step::SeekFirst),
        1 => Just(Step::SeekLast),
        6 => Just(Step::Next),
        6 => Just(Step::Prev),
    ];
    proptest::collection::vec(step, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_walk_over_a_level_equals_the_walk_over_a_vector(
        cuts in proptest::collection::btree_set(1u64..100, 0..12),
        present in proptest::collection::vec(0u64..4, 100),
        fill_cache in any::<bool>(),
        steps in steps(),
    ) {
        let (mut tables, mut all, mut part) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..100u64 {
            if cuts.contains(&number) && !part.is_empty() {
                tables.push(table_of(number, std::mem::take(&mut part)));
            }
            for copy in 0..present[number as usize] {
                part.push(version(number, 1 + number + copy * 200));
                all.push(version(number, 1 + number + copy * 200));
            }
        }
        if !part.is_empty() {
            tables.push(table_of(200, part));
        }
        sort(&mut all);
        let mut cursor = LevelCursor::new(tables.into(), fill_cache);
        assert_same_walk(&mut cursor, &mut VecCursor::new(all), &steps);
    }
}

#[test]
fn the_cursors_of_tables_and_levels_together_show_everything_in_order() {
    let version = sample();
    let [hl0, lower @ ..] = version.levels() else { unreachable!("a version has all levels") };
    let tables = hl0.tables().iter().map(|table| Box::new(table.cursor(true)) as Box<dyn Cursor>);
    let levels = lower.iter().map(|level| Box::new(level.cursor(true)) as Box<dyn Cursor>);
    let mut merging = Merging::new(tables.chain(levels).collect());
    merging.seek(&key(20), Stamp::NEWEST).unwrap();
    let mut newest_first = Vec::new();
    while merging.valid() && merging.key() == key(20) {
        newest_first.push(merging.stamp().seqno().0);
        merging.next().unwrap();
    }
    assert_eq!(newest_first, [605, 510, 100, 21]);
    merging.seek_first().unwrap();
    let mut count = 0;
    while merging.valid() {
        count += 1;
        merging.next().unwrap();
    }
    assert_eq!(count, sample().levels().iter().map(|level| level.entries()).sum::<u64>());
}
