//! The one interface of every sorted source of versions: index tables, runs, tables, levels, and merges of them.

use super::error::Result;
use super::kind::Stamp;
use super::slice::Slice;

/// A position in a sorted sequence of versions, ordered by full key ascending, then stamp descending (newest first).
///
/// A new cursor is not positioned ([`valid`](Cursor::valid) is false). `key`, `stamp` and `value` may only be called
/// while it is valid. Moving past either end makes it invalid; only a seek makes it valid again.
pub trait Cursor {
    /// The cursor stands on a version.
    fn valid(&self) -> bool;
    /// The full key of the version.
    fn key(&self) -> &[u8];
    /// Sequence number and kind of the version.
    fn stamp(&self) -> Stamp;
    /// The payload: a value, an operand, an encoded address, or nothing, as the kind says.
    fn value(&self) -> &[u8];
    /// The payload as ref-counted bytes, without a copy where the source allows it.
    fn value_slice(&self) -> Slice {
        Slice::copy_from(self.value())
    }
    /// Moves to the first version at or after (`key`, `stamp`).
    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    /// Moves to the last version strictly before (`key`, `stamp`).
    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()>;
    /// Moves to the first version of all.
    fn seek_first(&mut self) -> Result<()>;
    /// Moves to the last version of all.
    fn seek_last(&mut self) -> Result<()>;
    /// Moves one version on; the cursor must be valid.
    fn next(&mut self) -> Result<()>;
    /// Moves one version back; the cursor must be valid.
    fn prev(&mut self) -> Result<()>;
}

/// The order of versions: key ascending, stamp descending.
#[inline]
pub fn compare(left_key: &[u8], left_stamp: Stamp, right_key: &[u8], right_stamp: Stamp) -> std::cmp::Ordering {
    left_key.cmp(right_key).then_with(|| right_stamp.cmp(&left_stamp))
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
