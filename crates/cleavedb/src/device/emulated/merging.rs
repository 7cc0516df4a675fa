//! Which runs of an emulated device are merged: a pure function of their sizes.

use std::ops::Range;

/// With more runs, each of which is an open file, some neighbours are merged.
const RUNS_MAX: usize = 128;
/// A merge has at most this many runs...
const MERGED_RUNS_MAX: usize = 8;
/// ...and, unless one or two of them are larger, bytes of this many full maps.
const MERGED_MAPS_MAX: u64 = 8;

/// The size of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct RunSize {
    /// Of its file.
    pub bytes: u64,
    /// Of the values that no newer run covers.
    pub live: u64,
}

/// The neighbours to merge now, of runs that come oldest first, if the values of all keys have `used_bytes` and a full map has
/// `map_bytes`.
///
/// If most of all bytes are dead, those with the most dead bytes, perhaps a single run; with very many runs the smallest ones.
pub(super) fn runs_to_merge(runs: &[RunSize], used_bytes: u64, map_bytes: u64) -> Option<Range<usize>> {
    let bytes = |range: &Range<usize>| runs[range.clone()].iter().map(|run| run.bytes).sum::<u64>();
    let dead = |range: &Range<usize>| runs[range.clone()].iter().map(|run| run.bytes - run.live).sum::<u64>();
    let from = |start: usize, least: usize| {
        let ends = (start + least..=runs.len()).take(MERGED_RUNS_MAX + 1 - least);
        let small =
            ends.take_while(|end| *end == start + least || bytes(&(start..*end)) <= MERGED_MAPS_MAX * map_bytes);
        small.last().map(|end| start..end)
    };
    let of_at_least = |least: usize| (0..runs.len()).filter_map(move |start| from(start, least));
    if bytes(&(0..runs.len())) > 2 * used_bytes + 2 * map_bytes {
        return of_at_least(1).max_by_key(dead);
    }
    let smallest = |range: &Range<usize>| (range.len(), std::cmp::Reverse(bytes(range)));
    (runs.len() > RUNS_MAX).then(|| of_at_least(2).max_by_key(smallest)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_merged_where_most_is_dead_or_the_smallest_of_very_many() {
        let runs =
            |sizes: &[(u64, u64)]| sizes.iter().map(|&(bytes, live)| RunSize { bytes, live }).collect::<Vec<_>>();
        let mut many = vec![(100, 100); RUNS_MAX];
        let cases = [
            (runs(&[]), 0, None),
            (runs(&[(100, 100), (100, 100)]), 200, None),
            // 300 of 500 bytes are dead, and two maps are no garbage yet.
            (runs(&[(100, 50), (300, 50), (100, 100)]), 200, None),
            (runs(&[(100, 100), (400, 50), (400, 90), (100, 100)]), 340, Some(1..3)),
            // At most eight maps, but for the first.
            (runs(&[(100, 100), (900, 50), (100, 90), (100, 100)]), 340, Some(1..2)),
            // At most eight runs.
            (runs(&[(100, 0); 20]), 0, Some(12..20)),
            (runs(&many), 100 * RUNS_MAX as u64, None),
        ];
        for (runs, used, wanted) in cases {
            assert_eq!(runs_to_merge(&runs, used, 100), wanted, "{runs:?} {used}");
        }
        many.extend([(40, 40), (40, 40), (100, 100)]);
        let used = many.iter().map(|(bytes, _)| bytes).sum();
        assert_eq!(runs_to_merge(&runs(&many), used, 100), Some(RUNS_MAX - 5..RUNS_MAX + 3));
        let large = vec![(5000, 5000); RUNS_MAX + 1];
        assert_eq!(runs_to_merge(&runs(&large), 5000 * large.len() as u64, 100).map(|range| range.len()), Some(2));
    }
}
