//! Key ranges, and how a sorted job is cut into ranges for its subtasks. A pure function: marks in, ranges out (STYLE
//! 11). A range starts and ends at a key, so all versions of a key lie in one range.
//!
//! Called by index merges and compactions, which get their marks from index tables, runs and tables.

/// A range of full keys; a bound of `None` means that the range is open on that side.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key of the range.
    pub from: Option<Vec<u8>>,
    /// The first key after the range.
    pub to: Option<Vec<u8>>,
}

impl KeyRange {
    /// True if the range contains `key`.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key) && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// True if the range overlaps the keys from `start` (inclusive) to `end` (exclusive).
    pub fn overlaps(&self, start: &[u8], end: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from < end) && self.to.as_deref().is_none_or(|to| start < to)
    }
}

/// A sample of how bytes are distributed over keys: about `bytes` lie between `key` and the next mark of the same
/// source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// A full key.
    pub key: Vec<u8>,
    /// Bytes from there to the next mark.
    pub bytes: u64,
}

impl Mark {
    /// A mark.
    pub fn new(key: impl Into<Vec<u8>>, bytes: u64) -> Mark {
        Mark { key: key.into(), bytes }
    }
}

/// Cuts the key space into at most `ranges_max` ranges of about the same number of bytes, with about `bytes_min` or
/// more each. The marks may come from several sources and be in any order. The ranges are in order, without gaps or
/// overlaps; there is always at least one.
pub fn cut(mut marks: Vec<Mark>, ranges_max: usize, bytes_min: u64) -> Vec<KeyRange> {
    marks.sort_unstable_by(|left, right| left.key.cmp(&right.key));
    let total: u64 = marks.iter().map(|mark| mark.bytes).sum();
    let count = (total / bytes_min.max(1)).min(ranges_max as u64).max(1);
    let mut ranges = vec![KeyRange::default()];
    let mut before = 0;
    for marks in marks.chunk_by(|left, right| left.key == right.key) {
        let share = (total as u128 * ranges.len() as u128 / count as u128) as u64;
        if (ranges.len() as u64) < count && before > 0 && before >= share {
            let key = &marks[0].key;
            ranges.last_mut().expect("there is always one range").to = Some(key.clone());
            ranges.push(KeyRange { from: Some(key.clone()), to: None });
        }
        before += marks.iter().map(|mark| mark.bytes).sum::<u64>();
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Marks are written as key and bytes, ranges as the keys between them.
    fn cuts(marks: &[(&str, u64)], ranges_max: usize, bytes_min: u64) -> Vec<String> {
        let marks = marks.iter().map(|(key, bytes)| Mark::new(*key, *bytes)).collect();
        let ranges = cut(marks, ranges_max, bytes_min);
        assert!(ranges[0].from.is_none() && ranges[ranges.len() - 1].to.is_none());
        assert!(ranges.windows(2).all(|pair| pair[0].to.is_some() && pair[0].to == pair[1].from));
        ranges[1..].iter().map(|range| String::from_utf8(range.from.clone().unwrap()).unwrap()).collect()
    }

    #[test]
    fn ranges_share_the_bytes() {
        let even = [("a", 10), ("b", 10), ("c", 10), ("d", 10)];
        assert_eq!(cuts(&even, 2, 1), ["c"]);
        assert_eq!(cuts(&even, 4, 1), ["b", "c", "d"]);
        assert_eq!(cuts(&even, 9, 1), ["b", "c", "d"]);
        assert_eq!(cuts(&[("a", 70), ("b", 10), ("c", 10), ("d", 10)], 2, 1), ["b"]);
        assert_eq!(
            cuts(&[("a", 10), ("b", 10), ("c", 10), ("d", 70)], 2, 1),
            [""; 0],
            "there is no mark within the large last part"
        );
        assert_eq!(cuts(&[("a", 10), ("b", 60), ("c", 10), ("d", 10)], 3, 1), ["c", "d"]);
    }

    #[test]
    fn marks_of_several_sources_are_added_up_in_any_order() {
        assert_eq!(cuts(&[("m", 10), ("a", 10), ("g", 10), ("a", 10)], 2, 1), ["g"]);
        assert_eq!(cuts(&[("a", 10), ("a", 10), ("a", 10)], 3, 1), [""; 0], "the versions of a key are never divided");
        assert_eq!(cuts(&[("a", 10), ("b", 10), ("b", 10), ("b", 10), ("c", 10)], 5, 1), ["b", "c"]);
    }

    #[test]
    fn small_jobs_are_not_cut() {
        let even = [("a", 10), ("b", 10), ("c", 10), ("d", 10)];
        assert_eq!(cuts(&even, 8, 41), [""; 0]);
        assert_eq!(cuts(&even, 8, 20), ["c"]);
        assert_eq!(cuts(&even, 1, 1), [""; 0]);
        assert_eq!(cuts(&even, 0, 0), [""; 0]);
        assert_eq!(cuts(&[], 8, 1), [""; 0]);
        assert_eq!(cuts(&[("a", 0), ("b", 0)], 8, 0), [""; 0]);
        assert_eq!(cuts(&[("a", u64::MAX / 2), ("b", u64::MAX / 2)], 2, 1), ["b"]);
    }

    #[test]
    fn a_range_contains_its_first_key_but_not_that_of_the_next_range() {
        let ranges = cut(vec![Mark::new("a", 10), Mark::new("k", 10)], 2, 1);
        let holders = |key: &[u8]| ranges.iter().filter(|range| range.holds(key)).count();
        assert!([&b""[..], b"a", b"j", b"k", b"k\0", b"z"].iter().all(|key| holders(key) == 1));
        assert!(ranges[1].holds(b"k") && !ranges[0].holds(b"k"));
        assert!(ranges[0].overlaps(b"j", b"z") && !ranges[0].overlaps(b"k", b"z"));
        assert!(ranges[1].overlaps(b"a", b"k\0") && !ranges[1].overlaps(b"a", b"k"));
    }
}
