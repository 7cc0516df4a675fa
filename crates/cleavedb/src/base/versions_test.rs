//! Tests of the retention rules.

use std::sync::Arc;

use super::*;
use crate::base::key::full_key;
use crate::base::tombstones::{RangeTombstone, fragment};

/// Adds operands, which are decimal numbers; any other operand, such as "x", makes it fail.
struct Add;

impl MergeOperator for Add {
    fn name(&self) -> &str {
        "add"
    }
    fn full_merge(&self, _: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> std::result::Result<Vec<u8>, String> {
        let parse = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse::<u64>().map_err(|e| e.to_string());
        let mut sum = base.map_or(Ok(0), parse)?;
        for operand in operands {
            sum += parse(operand)?;
        }
        Ok(sum.to_string().into_bytes())
    }
    fn partial_merge(&self, key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        self.full_merge(key, Some(older), &[newer]).ok()
    }
}

struct Operators(Option<Arc<dyn MergeOperator>>);

impl OperatorSource for Operators {
    fn operator(&self, _: KeyspaceId) -> Option<Arc<dyn MergeOperator>> {
        self.0.clone()
    }
}

/// A sorted vector as a cursor.
struct VectorCursor {
    entries: Vec<(Vec<u8>, Stamp, Vec<u8>)>,
    at: usize,
}

impl Cursor for VectorCursor {
    fn valid(&self) -> bool {
        self.at < self.entries.len()
    }
    fn key(&self) -> &[u8] {
        &self.entries[self.at].0
    }
    fn stamp(&self) -> Stamp {
        self.entries[self.at].1
    }
    fn value(&self) -> &[u8] {
        &self.entries[self.at].2
    }
    fn seek(&mut self, _: &[u8], _: Stamp) -> Result<()> {
        unreachable!("retention only moves forward")
    }
    fn seek_before(&mut self, _: &[u8], _: Stamp) -> Result<()> {
        unreachable!("retention only moves forward")
    }
    fn seek_first(&mut self) -> Result<()> {
        self.at = 0;
        Ok(())
    }
    fn seek_last(&mut self) -> Result<()> {
        unreachable!("retention only moves forward")
    }
    fn next(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
    fn prev(&mut self) -> Result<()> {
        unreachable!("retention only moves forward")
    }
}

use Kind::{Delete, Delta, DeltaAt, Put, PutAt};

struct Case {
    bottom: bool,
    operator: bool,
    dropped: bool,
}

const PLAIN: Case = Case { bottom: false, operator: true, dropped: false };
const BOTTOM: Case = Case { bottom: true, ..PLAIN };

/// Returns the versions of one key (newest first) that retention keeps under these snapshots.
fn retain(case: Case, snapshots: &[u64], versions: &[(u64, Kind, &str)]) -> Vec<(u64, Kind, String)> {
    retain_within(case, snapshots, &[], versions)
}

/// The same with range tombstones at the sequence numbers `ranges` that cover the key.
fn retain_within(
    case: Case,
    snapshots: &[u64],
    ranges: &[u64],
    versions: &[(u64, Kind, &str)],
) -> Vec<(u64, Kind, String)> {
    let snapshots: Vec<_> = snapshots.iter().map(|&seqno| Seqno(seqno)).collect();
    let (start, end) = (KeyspaceId(1).prefix().to_vec(), KeyspaceId(2).prefix().to_vec());
    let ranges =
        ranges.iter().map(|&seqno| RangeTombstone { start: start.clone(), end: end.clone(), seqno: Seqno(seqno) });
    let ranges = fragment(&ranges.collect::<Vec<_>>(), &snapshots);
    let key = full_key(KeyspaceId(1), b"k");
    let entries = versions
        .iter()
        .map(|(seqno, kind, value)| (key.clone(), Stamp::new(Seqno(*seqno), *kind), value.as_bytes().to_vec()))
        .collect();
    let operators = Operators(case.operator.then(|| Arc::new(Add) as _));
    let (bottom, dropped) = (&|_: &[u8]| case.bottom, &|_| case.dropped);
    let horizon = Horizon { snapshots, bottom, dropped, operators: &operators, fetch: None };
    let mut retention = Retention::new(VectorCursor { entries, at: 0 }, horizon).with_ranges(&ranges);
    let mut kept = Vec::new();
    while let Some((_, stamp, value)) = retention.next().unwrap() {
        kept.push((stamp.seqno().0, stamp.kind().unwrap(), String::from_utf8(value.to_vec()).unwrap()));
    }
    kept
}

/// The same for versions without range tombstones, where the value at an address "@N" is N; deltas of fewer bytes than
/// `bytes_min` are not folded. Returns what is kept, and the addresses shown as dead.
fn fold(bytes_min: usize, versions: &[(u64, Kind, &str)]) -> (Vec<(u64, Kind, String)>, Vec<String>) {
    let key = full_key(KeyspaceId(1), b"k");
    let entries = versions
        .iter()
        .map(|(seqno, kind, value)| (key.clone(), Stamp::new(Seqno(*seqno), *kind), value.as_bytes().to_vec()))
        .collect();
    let operators = Operators(Some(Arc::new(Add)));
    let fetch = |(_, _, address): VersionRef<'_>, deltas: DeltaFigures| {
        Ok((deltas.bytes >= bytes_min).then(|| Slice::copy_from(&address[1..])))
    };
    let (snapshots, bottom, dropped) = (vec![Seqno(20)], &|_: &[u8]| false, &|_| false);
    let horizon = Horizon { snapshots, bottom, dropped, operators: &operators, fetch: Some(&fetch) };
    let mut dead = Vec::new();
    let mut note = |_: Stamp, payload: Option<&[u8]>| {
        dead.push(payload.map_or("?".to_owned(), |payload| String::from_utf8_lossy(payload).into_owned()));
    };
    let mut retention = Retention::new(VectorCursor { entries, at: 0 }, horizon).showing_dead(&mut note);
    let mut kept = Vec::new();
    while let Some((_, stamp, value)) = retention.next().unwrap() {
        kept.push((stamp.seqno().0, stamp.kind().unwrap(), String::from_utf8(value.to_vec()).unwrap()));
    }
    drop(retention);
    (kept, dead)
}

#[test]
fn deltas_are_folded_onto_a_separated_base_that_is_fetched_for_them() {
    let versions = [(9, Delta, "1"), (8, Delta, "2"), (5, PutAt, "@10"), (4, PutAt, "@7")];
    let (kept, dead) = fold(2, &versions);
    expect(kept, &[(9, Put, "13")]);
    assert_eq!(dead, ["@10", "@7"]);
}

#[test]
fn a_separated_base_keeps_its_address_if_nothing_is_folded_onto_it() {
    let kept = [(9, Delta, "3"), (5, PutAt, "@10")];
    let (few, dead) = fold(3, &[(9, Delta, "1"), (8, Delta, "2"), (5, PutAt, "@10")]);
    expect(few, &kept);
    assert_eq!(dead, [""; 0]);
    // The value is no number, so the operator fails.
    let (broken, dead) = fold(0, &[(9, Delta, "1"), (5, PutAt, "@x")]);
    expect(broken, &[(9, Delta, "1"), (5, PutAt, "@x")]);
    assert_eq!(dead, [""; 0]);
}

fn expect(kept: Vec<(u64, Kind, String)>, expected: &[(u64, Kind, &str)]) {
    let expected: Vec<_> = expected.iter().map(|(s, k, v)| (*s, *k, v.to_string())).collect();
    assert_eq!(kept, expected);
}

#[test]
fn only_the_newest_base_of_a_stripe_is_kept() {
    let versions = [(9, Put, "c"), (7, Put, "b"), (5, Put, "a")];
    expect(retain(PLAIN, &[20], &versions), &[(9, Put, "c")]);
    expect(retain(PLAIN, &[7, 20], &versions), &[(9, Put, "c"), (7, Put, "b")]);
    expect(retain(PLAIN, &[6, 8, 20], &versions), &[(9, Put, "c"), (7, Put, "b"), (5, Put, "a")]);
}

#[test]
fn deletes_are_kept_above_the_bottom() {
    let versions = [(9, Delete, ""), (5, Put, "a")];
    expect(retain(PLAIN, &[20], &versions), &[(9, Delete, "")]);
    expect(retain(BOTTOM, &[20], &versions), &[]);
    expect(retain(BOTTOM, &[5, 20], &versions), &[(9, Delete, ""), (5, Put, "a")]);
    expect(retain(BOTTOM, &[5, 20], &[(9, Put, "b"), (5, Delete, "")]), &[(9, Put, "b")]);
    expect(retain(BOTTOM, &[5, 20], &[(9, Delete, ""), (5, Delete, "")]), &[]);
}

#[test]
fn a_delta_hides_nothing_and_is_merged_onto_a_base_in_its_stripe() {
    let versions = [(9, Delta, "2"), (7, Delta, "3"), (5, Put, "10"), (3, Put, "1")];
    expect(retain(PLAIN, &[20], &versions), &[(9, Put, "15")]);
    expect(retain(PLAIN, &[20], &[(9, Delta, "2"), (7, Delete, ""), (5, Put, "10")]), &[(9, Put, "2")]);
    expect(retain(PLAIN, &[8, 20], &versions), &[(9, Delta, "2"), (7, Put, "13")]);
    expect(retain(PLAIN, &[5, 20], &versions), &[(9, Delta, "5"), (5, Put, "10")]);
}

#[test]
fn deltas_without_a_base_are_combined_and_become_a_put_only_at_the_bottom() {
    let versions = [(9, Delta, "2"), (7, Delta, "3"), (5, Delta, "4")];
    expect(retain(PLAIN, &[20], &versions), &[(9, Delta, "9")]);
    expect(retain(PLAIN, &[7, 20], &versions), &[(9, Delta, "2"), (7, Delta, "7")]);
    expect(retain(BOTTOM, &[20], &versions), &[(9, Put, "9")]);
    expect(retain(BOTTOM, &[7, 20], &versions), &[(9, Delta, "2"), (7, Put, "7")]);
}

#[test]
fn versions_that_cannot_be_merged_are_kept_unchanged() {
    let bad = [(9, Delta, "x"), (7, Delta, "3"), (5, Put, "1"), (4, Put, "0")];
    expect(retain(BOTTOM, &[20], &bad), &[(9, Delta, "x"), (7, Delta, "3"), (5, Put, "1")]);
    let missing = Case { operator: false, ..BOTTOM };
    expect(retain(missing, &[20], &[(9, Delta, "1"), (7, Delta, "3")]), &[(9, Delta, "1"), (7, Delta, "3")]);
    let far = [(9, DeltaAt, "addr"), (7, Delta, "3"), (5, PutAt, "addr"), (3, Put, "1")];
    expect(retain(PLAIN, &[20], &far), &far[..3]);
}

#[test]
fn a_range_tombstone_hides_the_older_versions_of_its_stripe() {
    let versions = [(9, Put, "c"), (5, Put, "b"), (3, Put, "a")];
    expect(retain_within(PLAIN, &[20], &[7], &versions), &[(9, Put, "c")]);
    expect(retain_within(PLAIN, &[20], &[12], &versions), &[]);
    // A reader at 6 sees the version that 7 deletes, and a reader at 4 sees an older one.
    expect(retain_within(PLAIN, &[6, 20], &[7], &versions), &[(9, Put, "c"), (5, Put, "b")]);
    expect(retain_within(PLAIN, &[6, 20], &[12], &versions), &[(5, Put, "b")]);
    expect(retain_within(PLAIN, &[4, 6, 20], &[7], &versions), &versions);
    expect(retain_within(PLAIN, &[4, 6, 20], &[7, 6], &versions), &[(9, Put, "c"), (3, Put, "a")]);
    let deletes = [(9, Delete, ""), (5, Delete, "")];
    expect(retain_within(PLAIN, &[20], &[7], &deletes), &deletes[..1]);
    expect(retain_within(PLAIN, &[20], &[12], &deletes), &[]);
}

#[test]
fn deltas_above_a_range_tombstone_are_merged_onto_a_missing_value() {
    let versions = [(9, Delta, "2"), (8, Delta, "3"), (5, Delta, "4"), (3, Put, "10")];
    expect(retain_within(PLAIN, &[20], &[7], &versions), &[(9, Put, "5")]);
    expect(retain_within(PLAIN, &[20], &[7], &versions[..2]), &[(9, Put, "5")]);
    expect(retain_within(PLAIN, &[20], &[2], &versions[..2]), &[(9, Put, "5")]);
    expect(retain_within(BOTTOM, &[20], &[7], &versions), &[(9, Put, "5")]);
    // A tombstone of another stripe is not their base.
    expect(retain_within(PLAIN, &[7, 20], &[6], &versions), &[(9, Delta, "5")]);
    expect(retain_within(PLAIN, &[6, 20], &[7], &versions), &[(9, Put, "5"), (5, Put, "14")]);
    // Deltas that cannot be merged are kept unchanged, and covered versions are dropped all the same.
    let missing = Case { operator: false, ..PLAIN };
    expect(retain_within(missing, &[20], &[7], &versions), &versions[..2]);
    expect(retain_within(PLAIN, &[20], &[7], &[(9, DeltaAt, "addr"), (5, Put, "1")]), &[(9, DeltaAt, "addr")]);
}

#[test]
fn all_versions_of_a_dropped_keyspace_are_dropped() {
    let dropped = Case { dropped: true, ..PLAIN };
    expect(retain(dropped, &[5, 20], &[(9, Put, "a"), (5, Delta, "1")]), &[]);
}
