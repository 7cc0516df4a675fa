//! Which runs to merge next: size-tiered merging of runs that are neighbours in age. A pure
//! function, called by the scheduler.

/// Runs whose sizes differ by less than this factor belong to the same tier.
const TIER_FACTOR: u64 = 4;

/// Picks the runs to merge: the oldest sequence of at least `trigger` (IMTN) neighbours of similar size, as a range of
/// indices.
///
/// `sizes` are the bytes of the runs, including the values that a flush reads from logs, oldest first, without runs
/// that are being flushed. The total stays within `limit` (the flush size): merging a run that is ready to be flushed
/// is useless.
pub fn pick(sizes: &[u64], trigger: usize, limit: u64) -> Option<std::ops::Range<usize>> {
    assert!(trigger >= 2, "a merge needs at least two runs");
    let mut start = 0;
    while start < sizes.len() {
        let (mut low, mut high) = (sizes[start].max(1), sizes[start].max(1));
        let mut end = start + 1;
        let mut total = sizes[start];
        while end < sizes.len() {
            let size = sizes[end].max(1);
            total += size;
            if size.max(high) >= size.min(low).saturating_mul(TIER_FACTOR) || total > limit {
                break;
            }
            (low, high) = (low.min(size), high.max(size));
            end += 1;
        }
        if end - start >= trigger {
            return Some(start..end);
        }
        start += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_neighbours_of_similar_size_are_picked() {
        type Case<'a> = (&'a [u64], usize, Option<std::ops::Range<usize>>);
        let cases: &[Case<'_>] = &[
            (&[], 2, None),
            (&[8], 2, None),
            (&[8, 8], 2, Some(0..2)),
            (&[16, 8], 2, Some(0..2)),
            (&[32, 8], 2, None),
            (&[32, 8, 8], 2, Some(1..3)),
            (&[8, 8, 8], 4, None),
            (&[8, 8, 8, 7], 4, Some(0..4)),
            (&[0, 0], 2, Some(0..2)),
            (&[100, 1, 100], 2, None),
            (&[60, 60], 2, None),
            (&[60, 60, 40, 40], 2, Some(1..3)),
        ];
        for (sizes, trigger, expected) in cases {
            assert_eq!(pick(sizes, *trigger, 100), *expected, "{sizes:?} at {trigger}");
        }
    }
}
