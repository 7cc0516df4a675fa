//! Tests that compare the index table with a sorted map, with scans between insertions.

use std::collections::BTreeMap;

use super::*;
use crate::base::{Cursor, Kind, Merging};

type Model = BTreeMap<(Vec<u8>, std::cmp::Reverse<u64>), Vec<u8>>;

fn fill(table: &IndexTable, model: &mut Model, from: u64, count: u64) {
    for seqno in from..from + count {
        let key = format!("key{:03}", seqno * 7919 % 613).into_bytes();
        let value = format!("value{seqno}").into_bytes();
        let stamp = Stamp::new(Seqno(seqno), Kind::Put);
        table.insert().add(&[0, 0, 0, 1], &key, stamp, &value, 0);
        model.insert(([&[0, 0, 0, 1], &key[..]].concat(), std::cmp::Reverse(seqno)), value);
    }
}

fn scan(table: &IndexTable) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    let mut merged = Merging::new(table.cursors());
    merged.seek_first().unwrap();
    let mut found = Vec::new();
    while merged.valid() {
        found.push((merged.key().to_vec(), merged.stamp().seqno().0, merged.value().to_vec()));
        merged.next().unwrap();
    }
    found
}

fn expected(model: &Model) -> Vec<(Vec<u8>, u64, Vec<u8>)> {
    model.iter().map(|((key, seqno), value)| (key.clone(), seqno.0, value.clone())).collect()
}

#[test]
fn scans_between_insertions_return_all_versions_in_order() {
    let (table, mut model) = (IndexTable::new(), Model::new());
    let mut next = 1;
    for count in [0, 1, 300, 511, 513, 5000, 9000, 100] {
        fill(&table, &mut model, next, count);
        next += count;
        assert_eq!(scan(&table), expected(&model));
    }
    assert_eq!(table.seqnos(), Some((Seqno(1), Seqno(next - 1))));
    let mut sealed = table.sealed_cursor(&KeyRange::default());
    sealed.seek_first().unwrap();
    let mut count = 0;
    while sealed.valid() {
        count += 1;
        sealed.next().unwrap();
    }
    assert_eq!(count, table.len());
}

#[test]
fn a_cursor_does_not_see_later_insertions() {
    let (table, mut model) = (IndexTable::new(), Model::new());
    fill(&table, &mut model, 1, 6000);
    let before = table.cursors();
    let frozen_then = expected(&model).len();
    fill(&table, &mut model, 6001, 9000);
    scan(&table);
    let count: usize = before.iter().map(|cursor| cursor.order.len()).sum();
    assert_eq!(count, frozen_then);
}

#[test]
fn a_table_is_slow_to_read_once_reads_have_passed_through_many_operands() {
    let table = IndexTable::new();
    let full = [&[0, 0, 0, 1], &b"popular"[..]].concat();
    for seqno in 1..=100 {
        table.insert().add(&[0, 0, 0, 1], b"popular", Stamp::new(Seqno(seqno), Kind::Delta), b"operand", 0);
    }
    let read = |snapshot| {
        let mut seen = Vec::new();
        table.visit(&full, Seqno(snapshot), &mut |stamp, operand| {
            assert_eq!(operand, b"operand"[..]);
            seen.push(stamp.seqno().0);
            seen.len() < 90
        });
        seen
    };
    assert_eq!(read(1), [1]);
    assert!(!table.is_slow_to_read(), "only older versions count");
    assert_eq!(read(50), (1..=50).rev().collect::<Vec<_>>());
    for _ in 0..8 {
        assert!(!table.is_slow_to_read());
        assert_eq!(read(100), (11..=100).rev().collect::<Vec<_>>());
    }
    assert!(read(100).len() == 90 && table.is_slow_to_read());
}

#[test]
fn point_reads_return_visible_versions_newest_first() {
    let (table, mut model) = (IndexTable::new(), Model::new());
    fill(&table, &mut model, 1, 3000);
    for snapshot in [0, 1, 700, 1500, 3000] {
        for key in 0..620 {
            let full = [&[0, 0, 0, 1], format!("key{key:03}").as_bytes()].concat();
            let mut seen = Vec::new();
            table.visit(&full, Seqno(snapshot), &mut |stamp, value| {
                seen.push((stamp.seqno().0, value.to_vec()));
                true
            });
            let range = (full.clone(), std::cmp::Reverse(u64::MAX))..=(full.clone(), std::cmp::Reverse(0));
            let expected: Vec<_> = model
                .range(range)
                .filter(|((_, seqno), _)| seqno.0 <= snapshot)
                .map(|((_, seqno), value)| (seqno.0, value.clone()))
                .collect();
            assert_eq!(seen, expected);
        }
    }
}
