//! Tests of fragments and spans of range tombstones.

use super::*;
use proptest::prelude::*;

fn tombstone(start: &str, end: &str, seqno: u64) -> RangeTombstone {
    RangeTombstone { start: start.into(), end: end.into(), seqno: Seqno(seqno) }
}

fn seqnos(numbers: &[u64]) -> Vec<Seqno> {
    numbers.iter().copied().map(Seqno).collect()
}

/// Fragments as `start-end@newest,older`.
fn show(fragments: &[Fragment]) -> Vec<String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let numbers = |fragment: &Fragment| {
        let all: Vec<_> = fragment.seqnos.iter().map(|seqno| seqno.0.to_string()).collect();
        all.join(",")
    };
    fragments
        .iter()
        .map(|fragment| format!("{}-{}@{}", text(&fragment.start), text(&fragment.end), numbers(fragment)))
        .collect()
}

#[test]
fn overlapping_tombstones_become_fragments_with_the_newest_number_of_each_stripe() {
    let all = [tombstone("a", "m", 5), tombstone("g", "z", 9), tombstone("p", "q", 2)];
    assert_eq!(show(&fragment(&all, &seqnos(&[9]))), ["a-g@5", "g-z@9"]);
    assert_eq!(show(&fragment(&all, &seqnos(&[5, 9]))), ["a-g@5", "g-m@9,5", "m-p@9", "p-q@9,2", "q-z@9"]);
    assert_eq!(show(&fragment(&all, &seqnos(&[4, 7, 9]))), ["a-g@5", "g-m@9,5", "m-p@9", "p-q@9,2", "q-z@9"]);
    assert_eq!(show(&fragment(&[tombstone("b", "a", 1), tombstone("a", "a", 2)], &seqnos(&[9]))), [""; 0]);
}

#[test]
fn thousands_of_nested_tombstones_are_one_fragment() {
    let all: Vec<_> = (1..5000).map(|number| tombstone("a", &format!("b{number:05}"), number)).collect();
    assert_eq!(show(&fragment(&all, &seqnos(&[5000]))), ["a-b04999@4999"]);
}

#[test]
fn touching_pieces_of_one_tombstone_become_one_fragment() {
    let all = [tombstone("a", "c", 7), tombstone("c", "e", 7), tombstone("e", "f", 8)];
    assert_eq!(show(&fragment(&all, &seqnos(&[9]))), ["a-e@7", "e-f@8"]);
}

#[test]
fn clipped_fragments_stay_within_the_range() {
    let fragments = fragment(&[tombstone("a", "f", 7), tombstone("m", "z", 8)], &seqnos(&[9]));
    let range = |from: &str, to: &str| KeyRange { from: Some(from.into()), to: Some(to.into()) };
    assert_eq!(show(&clip(&fragments, &range("c", "p"))), ["c-f@7", "m-p@8"]);
    assert_eq!(show(&clip(&fragments, &range("f", "m"))), [""; 0]);
    assert_eq!(show(&clip(&fragments, &KeyRange::default())), show(&fragments));
}

#[test]
fn a_tombstone_is_dropped_only_at_the_bottom_and_if_every_reader_sees_it() {
    let all = [tombstone("a", "f", 7), tombstone("f", "k", 12), tombstone("m", "z", 8)];
    let kept = |snapshots: &[u64], bottom: &dyn Fn(&[u8], &[u8]) -> bool| {
        let snapshots = seqnos(snapshots);
        show(&survivors(&fragment(&all, &snapshots), &snapshots, bottom, &|_| false))
    };
    assert_eq!(kept(&[20], &|_, _| true), [""; 0]);
    assert_eq!(kept(&[20], &|_, _| false), ["a-f@7", "f-k@12", "m-z@8"]);
    assert_eq!(
        kept(&[9, 20], &|_, _| true),
        ["f-k@12"],
        "a reader at 9 sees the keys that the tombstone at 12 deletes"
    );
    assert_eq!(kept(&[20], &|start, _| start != b"m"), ["m-z@8"]);
}

#[test]
fn tombstones_of_dropped_keyspaces_are_dropped() {
    let all = [tombstone("\0\0\0\x02a", "\0\0\0\x02f", 7), tombstone("\0\0\0\x03a", "\0\0\0\x03f", 7)];
    let kept = survivors(&fragment(&all, &seqnos(&[9])), &seqnos(&[9]), &|_, _| false, &|id| id == KeyspaceId(2));
    assert_eq!(kept.len(), 1);
    assert!(kept[0].start.starts_with(&KeyspaceId(3).prefix()));
}

#[test]
fn narrowing_a_span_intersects_it_and_keeps_the_newest_tombstone() {
    let span = |from: Option<&str>, to: Option<&str>, seqno| TombstoneSpan {
        from: from.map(Vec::from),
        to: to.map(Vec::from),
        seqno: Seqno(seqno),
    };
    let mut narrowed = span(None, Some("m"), 0);
    narrowed.narrow(span(Some("c"), None, 4));
    assert_eq!(narrowed, span(Some("c"), Some("m"), 4));
    narrowed.narrow(span(Some("a"), Some("f"), 0));
    assert_eq!(narrowed, span(Some("c"), Some("f"), 4));
    assert!(narrowed.holds(b"c") && !narrowed.holds(b"f") && !narrowed.holds(b"b"));
}

fn tombstones() -> impl Strategy<Value = Vec<RangeTombstone>> {
    let key = || proptest::collection::vec(0u8..4, 0..3);
    proptest::collection::vec((key(), key()), 0..30).prop_map(|all| {
        let tombstone = |(number, (start, end))| RangeTombstone { start, end, seqno: Seqno(number as u64 + 1) };
        all.into_iter().enumerate().map(tombstone).collect()
    })
}

proptest! {
    #[test]
    fn fragments_cover_what_the_tombstones_cover_for_every_snapshot(
        all in tombstones(),
        mut snapshots in proptest::collection::vec(0u64..32, 0..5),
        key in proptest::collection::vec(0u8..4, 0..4),
    ) {
        snapshots.push(40);
        snapshots.sort_unstable();
        let snapshots = seqnos(&snapshots);
        let fragments = fragment(&all, &snapshots);
        prop_assert!(fragments.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert!(fragments.iter().all(|fragment| fragment.seqnos.windows(2).all(|pair| pair[0] > pair[1])));
        let covering = Sweep::new(&fragments).covering(&key);
        let of = |all: &[RangeTombstone], snapshot: Seqno| {
            let covers = |tombstone: &&RangeTombstone| {
                tombstone.start <= key && key < tombstone.end && tombstone.seqno <= snapshot
            };
            all.iter().filter(covers).map(|tombstone| tombstone.seqno).max()
        };
        for &snapshot in &snapshots {
            let newest = covering.iter().copied().find(|&seqno| seqno <= snapshot);
            prop_assert_eq!(newest, of(&all, snapshot));
        }
        // Fragmenting the tombstones of the fragments again changes nothing.
        let again: Vec<_> = unfold(&fragments).collect();
        prop_assert_eq!(&fragment(&again, &snapshots), &fragments);
    }

    #[test]
    fn a_sweep_agrees_with_a_search_from_the_start(
        all in tombstones(),
        mut keys in proptest::collection::vec(proptest::collection::vec(0u8..4, 0..4), 0..20),
    ) {
        keys.sort();
        let fragments = fragment(&all, &[Seqno(40)]);
        let mut sweep = Sweep::new(&fragments);
        for key in keys {
            let naive = fragments.iter().find(|fragment| fragment.start <= key && key < fragment.end);
            prop_assert_eq!(sweep.covering(&key), naive.map_or(&[][..], |fragment| &fragment.seqnos));
        }
    }
}
