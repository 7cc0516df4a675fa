//! Intervals of full keys (keyspace included), for extents whose records are sorted by key. Bounds are at most
//! [`BOUND_BYTES_MAX`] bytes long; longer ones are shortened, so an interval may be a little wider than the keys it was
//! made for.
//!
//! Made by the range placement in `values/`; stored in the manifest as part of a [`Group`](super::group::Group).

use std::cmp::Ordering;

use crate::base::varint::{put, take};

/// Longest bound, in bytes. Keys that share a longer prefix cannot be separated by bounds; the limit keeps an extent below
/// 2 KiB in lists of extents, in memory and in the manifest.
pub const BOUND_BYTES_MAX: usize = 1024;

/// The keys from `from` (inclusive) to `to` (exclusive).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interval {
    from: Box<[u8]>,
    /// `None` if the interval has no upper bound.
    to: Option<Box<[u8]>>,
}

impl Interval {
    /// The keys from `from` to `to`; `None` if there are none or a bound is too long.
    pub fn new(from: &[u8], to: Option<&[u8]>) -> Option<Interval> {
        let is_valid = from.len() <= BOUND_BYTES_MAX && to.is_none_or(|to| to.len() <= BOUND_BYTES_MAX && from < to);
        is_valid.then(|| Interval { from: from.into(), to: to.map(Into::into) })
    }

    /// The lower bound, inclusive.
    pub fn from(&self) -> &[u8] {
        &self.from
    }

    /// The upper bound, exclusive.
    pub fn to(&self) -> Option<&[u8]> {
        self.to.as_deref()
    }

    /// Whether `key` is below the interval, in it (`Equal`), or above it.
    pub fn place_of(&self, key: &[u8]) -> Ordering {
        match self.to() {
            _ if key < self.from() => Ordering::Less,
            Some(to) if key >= to => Ordering::Greater,
            _ => Ordering::Equal,
        }
    }

    /// True if both hold keys that a bound could tell apart from each other. Otherwise what they share lies behind one bound of
    /// the greatest length: to move the two together would not make them overlap less.
    pub fn overlaps_divisibly(&self, other: &Interval) -> bool {
        let from = self.from().max(other.from());
        let to = if end_order(self.to(), other.to()).is_lt() { self.to() } else { other.to() };
        if to.is_some_and(|to| to <= from) {
            return false;
        }
        from.len() < BOUND_BYTES_MAX || end_order(to, bound_behind(from).as_deref()).is_gt()
    }

    /// Appends the encoding: length and bytes of `from`; length plus 1 and bytes of `to`, or 0 if there is none.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put(out, self.from.len() as u64);
        out.extend_from_slice(&self.from);
        put(out, self.to().map_or(0, |to| to.len() as u64 + 1));
        out.extend_from_slice(self.to().unwrap_or_default());
    }

    /// Takes an interval off the front of `bytes`; `None` if it is malformed.
    pub fn take(bytes: &mut &[u8]) -> Option<Interval> {
        let len = take(bytes)?;
        let from = take_bound(bytes, len)?;
        let to = match take(bytes)?.checked_sub(1) {
            None => None,
            Some(len) => Some(take_bound(bytes, len)?),
        };
        Interval::new(from, to)
    }
}

fn take_bound<'a>(bytes: &mut &'a [u8], len: u64) -> Option<&'a [u8]> {
    let len = usize::try_from(len).ok().filter(|len| *len <= BOUND_BYTES_MAX)?;
    let (bound, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(bound)
}

impl PartialOrd for Interval {
    fn partial_cmp(&self, other: &Interval) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// By lower bound, then by upper bound.
impl Ord for Interval {
    fn cmp(&self, other: &Interval) -> Ordering {
        self.from.cmp(&other.from).then_with(|| end_order(self.to(), other.to()))
    }
}

/// Orders two upper bounds; `None` is the highest.
pub fn end_order(one: Option<&[u8]>, other: Option<&[u8]>) -> Ordering {
    match (one, other) {
        (Some(one), Some(other)) => one.cmp(other),
        (one, other) => one.is_none().cmp(&other.is_none()),
    }
}

/// The highest valid lower bound of an interval that contains `first`.
pub fn bound_at(first: &[u8]) -> &[u8] {
    &first[..first.len().min(BOUND_BYTES_MAX)]
}

/// The lowest valid upper bound of an interval that contains `last`; `None` if there is none.
pub fn bound_behind(last: &[u8]) -> Option<Vec<u8>> {
    if last.len() < BOUND_BYTES_MAX {
        return Some([last, &[0]].concat());
    }
    let start = bound_at(last);
    let kept = start.iter().rposition(|byte| *byte != u8::MAX)?;
    let mut bound = start[..=kept].to_vec();
    bound[kept] += 1;
    Some(bound)
}

/// The shortest bound greater than `below` and not greater than `above`; `None` if it would be too long.
pub fn separator<'a>(below: &[u8], above: &'a [u8]) -> Option<&'a [u8]> {
    let shared = below.iter().zip(above).take_while(|(one, other)| one == other).count();
    debug_assert!(below < above);
    (shared < BOUND_BYTES_MAX).then(|| &above[..=shared])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_short_and_lie_between_their_keys() {
        for (below, above, expected) in [
            (&b"abc"[..], &b"abd"[..], Some(&b"abd"[..])),
            (b"abc", b"b", Some(b"b")),
            (b"abc", b"bcd", Some(b"b")),
            (b"ab", b"abcde", Some(b"abc")),
            (b"", b"a", Some(b"a")),
            (b"a", b"a\0", Some(b"a\0")),
            (&[7; 1023], &[7; 1024], Some(&[7; 1024])),
            (&[7; 1024], &[7; 1025], None),
            (&[7; 2000], &[8; 2000], Some(&[8])),
        ] {
            let found = separator(below, above);
            assert_eq!(found, expected, "{below:?} {above:?}");
            assert!(found.is_none_or(|found| below < found && found <= above && found.len() <= BOUND_BYTES_MAX));
        }
    }

    #[test]
    fn bounds_include_their_key_and_as_few_others_as_possible() {
        let long = |byte: u8, len: usize| vec![byte; len];
        for key in [vec![], b"a".to_vec(), long(9, 1023), long(9, 1024), long(9, 1025), long(9, 3000), long(255, 1023)]
        {
            let to = bound_behind(&key).unwrap();
            let interval = Interval::new(bound_at(&key), Some(&to)).unwrap();
            assert_eq!(interval.place_of(&key), Ordering::Equal, "{key:?}");
            if key.len() < BOUND_BYTES_MAX {
                assert_eq!(interval.place_of(&[&key[..], b"\0"].concat()), Ordering::Greater);
            }
        }
        assert_eq!(bound_behind(&long(255, 1024)), None);
        let mut ends_high = long(255, 1100);
        ends_high[3] = 7;
        assert_eq!(bound_behind(&ends_high).unwrap(), [255, 255, 255, 8]);
        // There is no valid bound between the two.
        assert_eq!(bound_behind(&long(9, 1024)).unwrap(), [long(9, 1023), vec![10]].concat());
    }

    #[test]
    fn place_of_says_whether_a_key_is_below_in_or_above() {
        let interval = Interval::new(b"b", Some(b"d")).unwrap();
        for (key, expected) in [("a", Ordering::Less), ("b", Ordering::Equal), ("cz", Ordering::Equal)] {
            assert_eq!(interval.place_of(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(interval.place_of(b"d"), Ordering::Greater);
        let open = Interval::new(b"b", None).unwrap();
        assert_eq!(open.place_of(&[255; 200]), Ordering::Equal);
        assert!(interval < open && Interval::new(b"a", None).unwrap() < interval);
    }

    #[test]
    fn overlaps_behind_one_bound_of_the_greatest_length_are_indivisible() {
        let of = |from: &[u8], to: Option<&[u8]>| Interval::new(from, to).unwrap();
        let (cell, next) = (vec![7; BOUND_BYTES_MAX], bound_behind(&[7; BOUND_BYTES_MAX]).unwrap());
        let (whole, wide) = (of(&cell, Some(&next)), of(b"\x06", Some(b"\x09")));
        assert!(
            !whole.overlaps_divisibly(&whole) && !whole.overlaps_divisibly(&wide) && !wide.overlaps_divisibly(&whole)
        );
        assert!(wide.overlaps_divisibly(&wide) && wide.overlaps_divisibly(&of(b"\x08", None)));
        // One ends within the bound where the other begins.
        assert!(!of(b"\x06", Some(&next)).overlaps_divisibly(&of(&cell, None)));
        assert!(of(b"\x06", Some(&[8])).overlaps_divisibly(&of(&cell, None)));
        // No overlap at all.
        assert!(!of(b"a", Some(b"b")).overlaps_divisibly(&of(b"b", None)));
        // The last cell of all.
        let last = of(&[255; BOUND_BYTES_MAX], None);
        assert!(!last.overlaps_divisibly(&last) && !last.overlaps_divisibly(&of(b"a", None)));
    }

    #[test]
    fn intervals_round_trip_and_malformed_ones_are_rejected() {
        for (from, to) in [(&b""[..], None), (b"", Some(&b"a"[..])), (&[3; 1024], Some(&[4; 1024])), (b"a", None)] {
            let interval = Interval::new(from, to).unwrap();
            let mut bytes = Vec::new();
            interval.encode(&mut bytes);
            let rest = &mut &bytes[..];
            assert_eq!((Interval::take(rest), rest.len()), (Some(interval), 0));
            assert!((0..bytes.len()).all(|cut| Interval::take(&mut &bytes[..cut]).is_none()));
        }
        // 1025 as a varint, and as many bytes.
        let long = [&[129, 8][..], &[3; 1025], &[0]].concat();
        for bad in
            [&[1, b'b', 2, b'b'][..], &[1, b'b', 2, b'a'], &[0, 1], &long, &[0, 130, 8], &[255, 255, 255, 255, 15]]
        {
            assert_eq!(Interval::take(&mut &bad[..]), None, "{bad:?}");
        }
    }
}
