use super::*;

/// Joins operands with `+`.
struct Join;

impl MergeOperator for Join {
    fn name(&self) -> &str {
        "join"
    }

    fn full_merge(&self, _key: &[u8], _base: Option<&[u8]>, _operands: &[&[u8]]) -> Result<Vec<u8>, String> {
        Err("not called".into())
    }

    fn partial_merge(&self, _key: &[u8], older: &[u8], newer: &[u8]) -> Option<Vec<u8>> {
        Some([older, newer].join(&b'+'))
    }
}

fn versions(of: &[(u64, Kind)]) -> Vec<KeyVersion> {
    let payload = |seqno: &u64| Slice::copy_from(seqno.to_string().as_bytes());
    of.iter().map(|(seqno, kind)| (Stamp::new(Seqno(*seqno), *kind), payload(seqno))).collect()
}

fn list(at: u64, from: u64, of: &[(u64, Kind)]) -> OperandList {
    OperandList::new(FileId(at), Seqno(from), &versions(of))
}

/// What a reader finds, as text: operands and base, newest first.
fn found(list: &OperandList, segments: &[u64], snapshot: u64, base: u64) -> Option<String> {
    let segments = segments.iter().map(|id| FileId(*id));
    let found = list.versions_in(segments, Seqno(snapshot), Seqno(base))?;
    let all = found.deltas().iter().chain(found.base());
    Some(all.map(|(_, payload)| String::from_utf8_lossy(payload).into_owned()).collect::<Vec<_>>().join(" "))
}

fn may_serve(list: &OperandList, segments: &[u64], snapshot: u64) -> bool {
    list.may_serve(segments.iter().map(|id| FileId(*id)), Seqno(snapshot))
}

use Kind::{Delta, Put};

#[test]
fn a_list_answers_where_its_extent_is_and_within_the_numbers_that_it_covers() {
    let all = list(7, 4, &[(9, Delta), (8, Delta), (6, Delta)]);
    let cases = [
        // Segments of the bucket, snapshot, base, and what is found.
        (&[7, 3][..], 20, 4, Some("9 8 6")),
        (&[7, 3], 20, 8, Some("9")),
        (&[7, 3], 20, 9, Some("")),
        (&[7, 3], 8, 5, Some("8 6")),
        // Operands between the base and `from` are not in the list.
        (&[7, 3], 20, 3, None),
        // A newer extent has nothing of the key, or flushes would have added it.
        (&[8, 7, 3], 20, 4, Some("9 8 6")),
        (&[3], 20, 4, None),
        (&[11], 20, 4, None),
        (&[], 20, 4, None),
    ];
    for (segments, snapshot, base, expected) in cases {
        assert_eq!(found(&all, segments, snapshot, base).as_deref(), expected, "{segments:?} {snapshot} {base}");
    }
    // A base in the bucket covers what is missing.
    let with_base = list(7, 6, &[(9, Delta), (6, Put)]);
    assert_eq!(found(&with_base, &[7], 20, 0).as_deref(), Some("9 6"));
    assert_eq!(found(&with_base, &[7], 5, 0), None);
    // An empty list outlives the segments of its bucket.
    let empty = list(7, 4, &[]);
    let of = |segments: &[u64]| found(&empty, segments, 20, 4);
    assert_eq!((of(&[9]).as_deref(), of(&[3]), found(&empty, &[9], 20, 3)), (Some(""), None, None));
    // A list that no flush follows is right as long as nothing is newer.
    let unfollowed = OperandList { is_followed: false, ..all };
    assert_eq!(found(&unfollowed, &[7, 3], 20, 4).as_deref(), Some("9 8 6"));
    assert_eq!(found(&unfollowed, &[8, 7, 3], 20, 4), None);
    assert!(may_serve(&unfollowed, &[7, 3], 20) && !may_serve(&unfollowed, &[8, 7, 3], 20));
    // Without the base, all that can be said is that a snapshot sees one which covers what is missing.
    assert!(may_serve(&with_base, &[7], 6) && !may_serve(&with_base, &[7], 5));
}

#[test]
fn what_a_flush_adds_counts_once_its_segment_is_in_the_bucket() {
    let before = list(7, 0, &[(6, Delta)]);
    let flush = |list: &OperandList, segments: &[u64], segment: u64, of: &[(u64, Kind)], base: u64| {
        let (segments, versions): (Vec<FileId>, _) = (segments.iter().map(|id| FileId(*id)).collect(), versions(of));
        let added = Added { user_key: b"key", segment: FileId(segment), versions: &versions, base: Seqno(base) };
        list.after(&segments, &added, Some(&Join))
    };
    let after = flush(&before, &[7, 3], 8, &[(9, Delta), (8, Delta)], 0).unwrap();
    assert_eq!(found(&after, &[7, 3], 20, 0).as_deref(), Some("6"));
    assert_eq!(found(&after, &[8, 7, 3], 20, 0).as_deref(), Some("9 8 6"));
    // The next flush finds the segment of the one before published, or not.
    let published = flush(&after, &[8, 7, 3], 10, &[(11, Delta)], 0).unwrap();
    assert_eq!(found(&published, &[10, 8, 7, 3], 20, 0).as_deref(), Some("11 9 8 6"));
    assert_eq!(found(&published, &[8, 7, 3], 20, 0).as_deref(), Some("9 8 6"));
    let failed = flush(&after, &[7, 3], 10, &[(11, Delta)], 0).unwrap();
    assert_eq!(found(&failed, &[10, 7, 3], 20, 0).as_deref(), Some("11 6"));
    // An anchor: a base of the flush covers what is older.
    let anchored = flush(&after, &[8, 7, 3], 10, &[(12, Delta)], 11).unwrap();
    assert_eq!(found(&anchored, &[10, 8, 7, 3], 20, 11).as_deref(), Some("12"));
    assert_eq!(found(&anchored, &[10, 8, 7, 3], 10, 0), None);
    let empty = flush(&after, &[8, 7, 3], 10, &[], 11).unwrap();
    assert_eq!(found(&empty, &[8, 7, 3], 20, 11).as_deref(), Some(""));
    // A list of another state of the bucket is given up.
    assert!(flush(&before, &[9], 10, &[(11, Delta)], 0).is_none());
    assert!(flush(&before, &[], 10, &[(11, Delta)], 0).is_none());
    let unfollowed = OperandList { is_followed: false, ..before };
    assert!(flush(&unfollowed, &[8, 7], 10, &[(11, Delta)], 0).is_none());
    assert!(flush(&unfollowed, &[7], 10, &[(11, Delta)], 0).unwrap().is_followed);
}

#[test]
fn long_lists_are_merged_for_readers_that_see_all_of_the_operands_or_none() {
    let long = list(7, 0, &[(9, Delta), (8, Delta), (7, Delta), (6, Delta), (5, Delta), (4, Put)]);
    let added = Added { user_key: b"key", segment: FileId(8), versions: &versions(&[(12, Delta)]), base: Seqno(0) };
    let merged = long.after(&[FileId(7)], &added, Some(&Join)).unwrap();
    let unmerged = long.after(&[FileId(7)], &added, None).unwrap();
    for (snapshot, base, expected) in
        [(20, 0, Some("12 5+6+7+8+9 4")), (10, 0, Some("5+6+7+8+9 4")), (4, 0, Some("4")), (20, 9, Some("12"))]
    {
        assert_eq!(found(&merged, &[8, 7], snapshot, base).as_deref(), expected, "{snapshot} {base}");
    }
    for (snapshot, base) in [(8, 0), (20, 7), (20, 5)] {
        assert_eq!(found(&merged, &[8, 7], snapshot, base), None);
        assert!(found(&unmerged, &[8, 7], snapshot, base).is_some());
    }
    assert!([20, 10, 9, 4].iter().all(|snapshot| may_serve(&merged, &[8, 7], *snapshot)));
    assert!((5..9).all(|snapshot| !may_serve(&merged, &[8, 7], snapshot)));
    assert!((5..9).all(|snapshot| may_serve(&unmerged, &[8, 7], snapshot)));
}

#[test]
fn what_flushes_and_jobs_write_through_is_neither_an_access_nor_an_eviction() {
    const LISTS: u64 = 150;
    let cache = Arc::new(OperandCache::new(64 << 10));
    cache.set_capacity(64 << 10);
    let key = |number: u64| number.to_be_bytes();
    let all: Vec<FileId> = (1..9).rev().map(FileId).collect();
    let insert = |number| cache.insert_read(&key(number), list(1, 0, &[(6, Delta)]), || true);
    let held = |of: &dyn Fn(u64) -> bool| (0..LISTS).filter(|number| of(*number) && cache.holds(&key(*number))).count();
    (0..LISTS).for_each(insert);
    let before = held(&|_| true);
    // Half of the lists are read; to the others flushes add, and jobs replace them.
    for round in 1..8 {
        for number in 0..LISTS {
            let segments = &all[all.len() - round..];
            if number % 2 == 0 {
                cache.find(&key(number), segments.iter().copied(), Seqno(20), Seqno(0));
                continue;
            }
            let versions = versions(&[(10 + round as u64, Delta)]);
            let segment = FileId(round as u64 + 1);
            let added = Added { user_key: b"key", segment, versions: &versions, base: Seqno(5) };
            cache.add(&key(number), segments, &added, Some(&Join));
            cache.replace(&key(number), list(segment.0, 0, &[(6, Delta)]));
        }
    }
    assert!(before == held(&|_| true) && before > 140, "{before}");
    assert_eq!((cache.demand().hits, cache.demand().bytes), (0, 0));
    cache.replace(b"absent", list(1, 0, &[]));
    assert!(!cache.holds(b"absent"));
    // Others need the room, and are read.
    for number in LISTS..2 * LISTS {
        insert(number);
        cache.find(&key(number), [FileId(1)].into_iter(), Seqno(20), Seqno(0));
    }
    let (read, written) = (held(&|number| number % 2 == 0), held(&|number| number % 2 == 1));
    assert!(read > 2 * written, "{read} lists that were read, {written} that were not");
    assert!(cache.demand().bytes > 0);
}

#[test]
fn lists_inserted_while_a_flush_runs_are_not_followed_and_a_failed_flush_clears_the_cache() {
    let cache = Arc::new(OperandCache::new(1 << 20));
    let is_followed = |key: &[u8]| cache.lists.get().unwrap().peek(key).map(|list| list.is_followed);
    cache.insert_read(b"off", list(7, 0, &[(6, Delta)]), || true);
    assert!(cache.is_empty() && cache.weight() == 0, "a cache without capacity takes no memory");
    cache.set_capacity(1 << 20);
    cache.insert_read(b"a", list(7, 0, &[(6, Delta)]), || true);
    cache.insert_read(b"b", list(7, 0, &[(6, Delta)]), || false);
    let flushing = cache.begin_flush();
    cache.insert_read(b"c", list(7, 0, &[(6, Delta)]), || true);
    assert_eq!([b"a", b"b", b"c"].map(|key| is_followed(key)), [Some(true), Some(false), Some(false)]);
    flushing.end();
    cache.insert_read(b"c", list(7, 0, &[(6, Delta)]), || true);
    assert_eq!(is_followed(b"c"), Some(true));
    drop(cache.begin_flush());
    assert!(cache.is_empty());
    let large = versions(&[(6, Delta)]).into_iter().map(|(stamp, _)| (stamp, Slice::owned(vec![7; 40 << 10])));
    let large = OperandList::new(FileId(7), Seqno::ZERO, &large.collect::<Vec<_>>());
    cache.insert_read(b"large", large, || true);
    assert!(cache.is_empty());
}
