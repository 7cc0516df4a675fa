//! The common interface of all sorted sources of versions: index tables, runs, tables, levels, and merges of them.

use super::error::Result;
use super::kind::Stamp;
use super::slice::Slice;

/// A position in a sorted sequence of versions, ordered by full key ascending, then stamp descending (newest first).
///
/// A new cursor is not positioned ([`valid`](Cursor::valid) is false). `key`, `stamp` and `value` may only be called
/// while it is valid. Moving past either end makes it invalid; only a seek makes it valid again.
pub trait Cursor {
    /// True if the cursor is positioned on a version.
    fn valid(&self) -> bool;
    /// The full key of the version.
    fn key(&self) -> &[u8];
    /// Sequence number and kind of the version.
    fn stamp(&self) -> Stamp;
    /// The payload: a value, an operand, an encoded address, or nothing, depending on the kind.
    fn value(&self) -> &[u8];
    /// The payload as reference-counted bytes; not copied if the source allows that.
    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }
    /// Moves to the first version at or after (`key`, `stamp`).
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    /// Moves to the last version strictly before (`key`, `stamp`).
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    /// Moves to the first version.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last version.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves to the next version; the cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves to the previous version; the cursor must be valid.
    fn prev(&mut self) -> Result<()>;
}

/// The order of versions: key ascending, stamp descending.
#[inline]
pub fn compare(left_key: &[u8], left_stamp: Stamp, right_key: &[u8], right_stamp: Stamp) -> std::cmp::Ordering {
    left_key.cmp(right_key).then_with(|| right_stamp.cmp(&left_stamp))
}

/// The first sixteen bytes of a key as a number with the same order. Equal numbers do not mean equal keys: longer keys
/// may differ later, and shorter ones are padded with zeros.
#[inline]
pub fn leading_bytes(key: &[u8]) -> u128 {
    match key.first_chunk::<16>() {
        Some(bytes) => u128::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 16];
            bytes[..key.len()].copy_from_slice(key);
            u128::from_be_bytes(bytes)
        }
    }
}

impl<C: Cursor + ?Sized> Cursor for Box<C> {
    fn valid(&self) -> bool {
        (**self).valid()
    }
    fn key(&self) -> &[u8] {
        (**self).key()
    }
    fn stamp(&self) -> Stamp {
        (**self).stamp()
    }
    fn value(&self) -> &[u8] {
        (**self).value()
    }
    fn value_slice(&self) -> Slice {
        (**self).value_slice()
    }
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        (**self).seek(key, stamp)
    }
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        (**self).seek_before(key, stamp)
    }
    fn seek_first(&mut self) -> Result<()> {
        (**self).seek_first()
    }
    fn seek_last(&mut self) -> Result<()> {
        (**self).seek_last()
    }
    fn next(&mut self) -> Result<()> {
        (**self).next()
    }
    fn prev(&mut self) -> Result<()> {
        (**self).prev()
    }
}

/// A cursor over a sorted vector, which tests use as the model of other cursors.
#[cfg(test)]
pub(crate) mod model {
    use super::*;

    /// One version.
    pub(crate) type Version = (Vec<u8>, Stamp, Vec<u8>);

    /// Sorts versions into cursor order.
    pub(crate) fn sort(versions: &mut [Version]) {
        versions.sort_by(|left, right| compare(&left.0, left.1, &right.0, right.1));
    }

    /// A cursor over a vector.
    pub(crate) struct VecCursor {
        versions: Vec<Version>,
        position: Option<usize>,
    }

    impl VecCursor {
        /// A cursor over `versions`, which must be sorted.
        pub(crate) fn new(versions: Vec<Version>) -> VecCursor {
            VecCursor { versions, position: None }
        }

        fn first_at_or_after(&self, key: &[u8], stamp: Stamp) -> usize {
            self.versions.partition_point(|version| compare(&version.0, version.1, key, stamp).is_lt())
        }

        fn current(&self) -> &Version {
            &self.versions[self.position.expect("only a valid cursor is read")]
        }
    }

    impl Cursor for VecCursor {
        fn valid(&self) -> bool {
            self.position.is_some()
        }
        fn key(&self) -> &[u8] {
            &self.current().0
        }
        fn stamp(&self) -> Stamp {
            self.current().1
        }
        fn value(&self) -> &[u8] {
            &self.current().2
        }
        fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
            let index = self.first_at_or_after(key, stamp);
            self.position = (index < self.versions.len()).then_some(index);
            Ok(())
        }
        fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
            self.position = self.first_at_or_after(key, stamp).checked_sub(1);
            Ok(())
        }
        fn seek_first(&mut self) -> Result<()> {
            self.position = (!self.versions.is_empty()).then_some(0);
            Ok(())
        }
        fn seek_last(&mut self) -> Result<()> {
            self.position = self.versions.len().checked_sub(1);
            Ok(())
        }
        fn next(&mut self) -> Result<()> {
            let next = self.position.expect("only a valid cursor moves") + 1;
            self.position = (next < self.versions.len()).then_some(next);
            Ok(())
        }
        fn prev(&mut self) -> Result<()> {
            self.position = self.position.expect("only a valid cursor moves").checked_sub(1);
            Ok(())
        }
    }

    /// One move of a cursor.
    #[derive(Debug, Clone)]
    pub(crate) enum Step {
        Seek(Vec<u8>, Stamp),
        SeekBefore(Vec<u8>, Stamp),
        SeekFirst,
        SeekLast,
        Next,
        Prev,
    }

    /// Makes the same moves with a cursor and with the model, and asserts after each that they agree.
    pub(crate) fn assert_same_walk(cursor: &mut dyn Cursor, model: &mut VecCursor, steps: &[Step]) {
        for step in steps {
            for cursor in [&mut *cursor, &mut *model as &mut dyn Cursor] {
                match step {
                    Step::Seek(key, stamp) => cursor.seek(key, *stamp).unwrap(),
                    Step::SeekBefore(key, stamp) => cursor.seek_before(key, *stamp).unwrap(),
                    Step::SeekFirst => cursor.seek_first().unwrap(),
                    Step::SeekLast => cursor.seek_last().unwrap(),
                    Step::Next if cursor.valid() => cursor.next().unwrap(),
                    Step::Prev if cursor.valid() => cursor.prev().unwrap(),
                    Step::Next | Step::Prev => {}
                }
            }
            assert_eq!(cursor.valid(), model.valid(), "{step:?}");
            if model.valid() {
                assert_eq!(
                    (cursor.key(), cursor.stamp(), cursor.value()),
                    (model.key(), model.stamp(), model.value()),
                    "{step:?}"
                );
                assert_eq!(cursor.value_slice(), model.value());
            }
        }
    }
}
