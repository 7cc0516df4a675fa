//! Ranges of keys as callers write them: any of the standard ranges over anything that is bytes. The engine sees two bounds.
//! Called by the public interface, wherever it takes a range.

use std::ops::{Bound, Range, RangeBounds, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// Two ends of a range, as the engine takes them.
pub(crate) type Between<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

/// A range of keys: `a..b`, `a..=b`, `a..`, `..b`, `..=b`, `..`, or two [`Bound`]s, of `&str`, `String`, `&[u8]`, `Vec<u8>`,
/// `[u8; N]` or whatever else is [`AsRef<[u8]>`](AsRef). Keys are compared as bytes. A range whose end comes before its start
/// is empty.
///
/// ```
/// # fn main() -> cleavedb::Result<()> {
/// use std::ops::Bound;
///
/// let db = cleavedb::Db::in_memory()?;
/// for key in ["a", "b", "c", "d"] {
///     db.put(key, "")?;
/// }
/// assert_eq!(db.range("b".."d")?.count(), 2);
/// assert_eq!(db.range(String::from("b")..=String::from("d"))?.count(), 3);
/// assert_eq!(db.range(b"c".to_vec()..)?.count(), 2);
/// assert_eq!(db.range(..*b"b")?.count(), 1);
/// assert_eq!(db.range(..)?.count(), 4);
/// assert_eq!(db.range((Bound::Excluded("b"), Bound::Unbounded))?.count(), 2);
/// assert_eq!(db.range("d".."b")?.count(), 0);
/// # Ok(())
/// # }
/// ```
pub trait KeyBounds {
    /// Where it starts, and where it ends.
    fn key_bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>);
}

impl KeyBounds for RangeFull {
    fn key_bounds(&self) -> Between<'_> {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<R: KeyBounds + ?Sized> KeyBounds for &R {
    fn key_bounds(&self) -> Between<'_> {
        (**self).key_bounds()
    }
}

macro_rules! standard_ranges {
    ($($range:ident),+) => {$(
        impl<K: AsRef<[u8]>> KeyBounds for $range<K> {
            fn key_bounds(&self) -> Between<'_> {
                (self.start_bound().map(K::as_ref), self.end_bound().map(K::as_ref))
            }
        }
    )+};
}

standard_ranges!(Range, RangeInclusive, RangeFrom, RangeTo, RangeToInclusive);

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn key_bounds(&self) -> Between<'_> {
        (self.0.as_ref().map(K::as_ref), self.1.as_ref().map(K::as_ref))
    }
}

#[cfg(test)]
mod tests {
    use super::Bound::{Excluded, Included, Unbounded};
    use super::*;

    #[track_caller]
    fn check(range: impl KeyBounds, start: Bound<&[u8]>, end: Bound<&[u8]>) {
        assert_eq!(range.key_bounds(), (start, end));
    }

    #[test]
    fn every_standard_range_over_every_kind_of_bytes_has_its_bounds() {
        let (a, b) = (&b"a"[..], &b"b"[..]);
        check("a".."b", Included(a), Excluded(b));
        check("a".to_owned()..="b".to_owned(), Included(a), Included(b));
        check(&"a".to_owned()..&"b".to_owned(), Included(a), Excluded(b));
        check(a..b, Included(a), Excluded(b));
        check(b"a".to_vec().., Included(a), Unbounded);
        check(..b"b".to_vec(), Unbounded, Excluded(b));
        check(&b"a".to_vec()..&b"b".to_vec(), Included(a), Excluded(b));
        check(*b"a"..=*b"b", Included(a), Included(b));
        check(b"a"..b"b", Included(a), Excluded(b));
        check(..="b", Unbounded, Included(b));
        check(crate::Slice::copy_from(a).., Included(a), Unbounded);
        check(.., Unbounded, Unbounded);
        check(&("a".."b"), Included(a), Excluded(b));
        check((Excluded("a"), Included("b")), Excluded(a), Included(b));
        check((Excluded(b"a".to_vec()), Unbounded), Excluded(a), Unbounded);
        check((Unbounded, Excluded("b")), Unbounded, Excluded(b));
        check("b".."a", Included(b), Excluded(a));
    }
}
