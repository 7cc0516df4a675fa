//! Tests of hidden garbage. A table is written `"id keys bytes_separated flags"`: 100 versions with sequence numbers 10
//! * id to 10 * id + 9, in keyspace 1, with `bytes_separated` bytes of separated values, the largest of them twice the
//!   mean. `"hidden=20"`: of these, bytes that newer versions in the table hide; `"covering=5"`: the number of versions;
//!   `"clears=b-d"`: range tombstones; `"busy"`: a running job uses it.

use std::collections::BTreeSet;

use super::super::picker::{Compact, LevelTargets, choose, wanted_snapshot};
use super::*;
use crate::base::{FileId, KeyspaceId, full_key};
use crate::format::meta::TableMeta;
use crate::format::properties::CoveredRange;

fn full(key: &str) -> Vec<u8> {
    full_key(KeyspaceId(1), key.as_bytes())
}

fn meta(text: &str) -> (TableMeta, bool) {
    let words: Vec<&str> = text.split(' ').collect();
    let flag = |name: &str| words.iter().find_map(|word| word.strip_prefix(name));
    let number = |name: &str, other: u64| flag(name).map_or(other, |number| number.parse().unwrap());
    let (smallest, largest) = words[1].split_once('-').unwrap();
    let (id, bytes_separated): (u64, u64) = (words[0].parse().unwrap(), words[2].parse().unwrap());
    let entries = number("covering=", 100);
    let cleared = flag("clears=").map(|range| range.split_once('-').unwrap());
    let cleared =
        cleared.map(|(start, end)| CoveredRange { start: full(start), end: full(end), seqno: Seqno(id * 10 + 9) });
    let meta = TableMeta {
        id: FileId(id),
        size: number("size=", 10),
        entries,
        deletes: 0,
        deltas: 0,
        addresses: entries,
        bytes_separated,
        bytes_hidden: number("hidden=", 0),
        record_bytes_max: bytes_separated / 50,
        smallest: full(smallest),
        end: full(&format!("{largest}\0")),
        seqno_min: Seqno(id * 10),
        seqno_max: Seqno(id * 10 + 9),
        range_deletes: cleared.iter().len() as u64,
        covered_ranges: cleared.into_iter().collect(),
    };
    (meta, words.contains(&"busy"))
}

fn figures_of_nothing<'a>() -> Figures<'a> {
    static NONE: BTreeSet<FileId> = BTreeSet::new();
    Figures {
        levels: Vec::new(),
        targets: LevelTargets { hl0_trigger: 9, hl0_trigger_if_small: 9, base_bytes: 1 << 30, multiplier: 10 },
        dropped: &[],
        running: &[],
        oldest_snapshot: Seqno::MAX,
        stale: &NONE,
        stale_when_idle: &NONE,
        when_idle: false,
        uncovers: false,
    }
}

/// The choice when the value files take `file_bytes`, the space limit is 30 % above the live bytes, and nothing else is
/// due; and the snapshot that it waits for.
fn choice_at(levels: &[&[&str]], file_bytes: u64, oldest_snapshot: u64) -> (String, Option<u64>) {
    let mut levels: Vec<Vec<_>> = levels.iter().map(|level| level.iter().map(|text| meta(text)).collect()).collect();
    levels.resize_with(4, Vec::new);
    let figures = levels.iter().map(|level| level.iter().map(|(meta, busy)| TableFigures::new(meta, *busy)).collect());
    let mut figures =
        Figures { levels: figures.collect(), oldest_snapshot: Seqno(oldest_snapshot), ..figures_of_nothing() };
    let Hidden { referenced, hidden, .. } = figures.hidden();
    figures.uncovers = file_bytes > (referenced - hidden) * 13 / 10;
    let list = |ids: &[FileId]| ids.iter().map(|id| id.0.to_string()).collect::<Vec<_>>().join(",");
    let choice = match choose(&figures) {
        Choice::Nothing => "nothing".into(),
        Choice::Move { to, table, .. } => format!("{} to {to}", table.0),
        Choice::Compact(Compact { to, inputs, inputs_below, .. }) => {
            format!("{} with {} in {to}", list(&inputs), list(&inputs_below))
        }
        Choice::Drop { .. } => panic!("nothing is dropped"),
    };
    (choice, wanted_snapshot(&figures).map(|seqno| seqno.0))
}

fn choice(levels: &[&[&str]], file_bytes: u64) -> String {
    choice_at(levels, file_bytes, Seqno::MAX.0).0
}

#[test]
fn nothing_is_uncovered_if_nothing_can_be_hidden_or_space_is_left() {
    assert_eq!(choice(&[], 0), "nothing");
    // All in one level: dead values are known.
    assert_eq!(choice(&[&[], &["1 a-c 1000", "2 d-f 1000"]], 1 << 40), "nothing");
    assert_eq!(choice(&[&["3 m-n 1000"], &["1 a-c 1000", "2 d-f 1000"]], 1 << 40), "nothing");
    // At most 1000 of 2000 B are dead, and the limit is 1300 B.
    let both: &[&[&str]] = &[&["3 a-c 1000"], &["1 a-c 1000"]];
    assert_eq!(choice(both, 1300), "nothing");
    assert_eq!(choice(both, 1301), "3 with 1 in 1");
    // Two versions hide at most two of the largest values, 40 B, whatever the range they span.
    let few: &[&[&str]] = &[&["3 a-z 0 covering=2"], &["1 a-c 1000", "2 d-f 1000"]];
    assert_eq!(choice(few, 1960 * 13 / 10 - 60), "nothing");
    assert_eq!(choice(few, 1960 * 13 / 10), "nothing");
    assert_eq!(choice(few, 1960 * 13 / 10 + 1), "3 with 1,2 in 1");
}

#[test]
fn the_table_that_reveals_most_per_byte_read_goes_first() {
    // Of two tables, the one that hides more per byte; HL0 if it hides most.
    let tables: &[&[&str]] = &[&[], &["5 a-b 100 covering=10", "6 m-n 1000"], &["1 a-b 1000", "2 m-n 1000"]];
    assert_eq!(choice(tables, 1 << 40), "6 with 2 in 2");
    let tables: &[&[&str]] = &[&["9 a-n 3000"], tables[1], tables[2]];
    assert_eq!(choice(tables, 1 << 40), "9 with 5,6 in 1");
    let tables: &[&[&str]] = &[&["9 a-n 3000 size=90"], tables[1], tables[2]];
    assert_eq!(choice(tables, 1 << 40), "6 with 2 in 2");
    // Tables of HL0 hide values in each other.
    assert_eq!(choice(&[&["2 a-n 500", "1 c-d 1000"]], 1 << 40), "2,1 with  in 1");
    // A table passes through a level that has nothing in its range.
    assert_eq!(choice(&[&[], &["5 a-c 100"], &[], &["1 a-c 1000"]], 1 << 40), "5 to 2");
}

#[test]
fn the_estimate_counts_versions_that_cover_older_ones_and_tables_without_one_apart() {
    let metas = [meta("3 a-c 1000").0, meta("1 a-c 2000").0];
    let hidden = |covering: Option<u64>| {
        let upper = TableFigures { covering, ..TableFigures::new(&metas[0], false) };
        let lower = TableFigures { covering: Some(50), ..TableFigures::new(&metas[1], false) };
        let figures = Figures { levels: vec![Vec::new(), vec![upper], vec![lower]], ..figures_of_nothing() };
        let Hidden { hidden, likely, unknown, .. } = figures.hidden();
        (hidden, likely, unknown)
    };
    // 100 versions of 20 B below. Nothing lies below the lower table, whatever its estimate says.
    assert_eq!(hidden(None), (2000, 0, 2000));
    assert_eq!(hidden(Some(30)), (2000, 600, 0));
    assert_eq!(hidden(Some(0)), (2000, 0, 0));
    assert_eq!(hidden(Some(1000)), (2000, 2000, 0));
}

#[test]
fn a_busy_table_is_skipped() {
    let tables: &[&[&str]] = &[&[], &["5 a-b 100", "6 m-n 1000 busy"], &["1 a-b 1000", "2 m-n 1000"]];
    assert_eq!(choice(tables, 1 << 40), "5 with 1 in 2");
}

#[test]
fn range_tombstones_may_hide_everything_they_cover() {
    let tables: &[&[&str]] = &[&[], &["5 a-z 0 covering=1 clears=a-e"], &["1 d-g 1000", "2 m-n 1000"]];
    assert_eq!(choice(tables, 1000 * 13 / 10 - 30), "nothing");
    assert_eq!(choice(tables, 1000 * 13 / 10), "5 with 1,2 in 2");
    // Its own values are under its tombstones, too, until it is in the lowest level and rewritten without them.
    assert_eq!(choice(&[&[], &["5 a-z 1000 clears=a-e"]], 1 << 40), "5 with  in 1");
}

#[test]
fn values_held_by_a_snapshot_count_as_live_until_it_is_released() {
    let tables: &[&[&str]] = &[&["3 a-c 1000"], &["1 a-c 1000"]];
    assert_eq!(choice_at(tables, 1 << 40, 19), ("nothing".into(), Some(30)));
    assert_eq!(choice_at(tables, 1 << 40, 30), ("3 with 1 in 1".into(), None));
    // Values that a snapshot kept when the table was written are dropped when the table is rewritten.
    let kept: &[&[&str]] = &[&[], &[], &["3 a-c 1000 hidden=500"]];
    assert_eq!(choice_at(kept, 1 << 40, 35), ("nothing".into(), Some(39)));
    assert_eq!(choice_at(kept, 1 << 40, 39), ("3 with  in 2".into(), None));
    assert_eq!(choice_at(kept, 650, 39), ("nothing".into(), None));
}
