//! Public iterators over keys and values. The scan itself is in `engine/read/scan.rs`.

use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::base::key_bounds::Between;
use crate::base::{Result, Slice};
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::{KeyspaceState, unsupported};
use crate::engine::read::bounds::Bounds;
use crate::engine::read::scan::{Direction, Scan};

/// A double-ended iterator over the keys and values of a range, as they were when it was created. Holds a snapshot, and
/// the files it reads, until dropped.
///
/// If merging a key fails, the item is an error and the scan continues; after any other error the iterator yields
/// nothing more until it is [refreshed](Iter::refresh). Once the database is closed that error is [`Error::Closed`];
/// items returned before stay valid.
///
/// The first key costs a seek in each layer: O(tables of HL0 + levels) seeks of O(log keys). Each further key costs
/// O(log layers), plus its versions that must be merged; long sequences of obsolete versions, or of keys under a range
/// tombstone, cost a seek in each layer. Separated values are prefetched, in windows that grow by half: one value
/// first, then many per read. At most 1.6 times as many values are read as are returned, or 16 if they are adjacent
/// (decision record 024).
///
/// # Errors
/// Items are [`Error::MergeFailed`], [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`] or [`Error::Closed`].
///
/// [`Error::Closed`]: crate::Error::Closed
/// [`Error::MergeFailed`]: crate::Error::MergeFailed
/// [`Error::Corruption`]: crate::Error::Corruption
/// [`Error::Unsupported`]: crate::Error::Unsupported
/// [`Error::Io`]: crate::Error::Io
pub struct Iter {
    scan: Scan,
    /// Keeps the database open. Dropped after `scan`.
    _db: Arc<DbInner>,
}

/// A double-ended iterator over the keys of an [`Iter`], without their values.
pub struct Keys(Iter);

impl Iter {
    pub(crate) fn over_range(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        range: Between<'_>,
        snapshot: Option<&HeldSnapshot>,
    ) -> Result<Iter> {
        Iter::new(db, keyspace, Bounds::of_range(keyspace.record.id, range), snapshot)
    }

    pub(crate) fn over_prefix(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        prefix: &[u8],
        snapshot: Option<&HeldSnapshot>,
    ) -> Result<Iter> {
        Iter::new(db, keyspace, Bounds::of_prefix(keyspace.record.id, prefix), snapshot)
    }

    fn new(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        bounds: Bounds,
        snapshot: Option<&HeldSnapshot>,
    ) -> Result<Iter> {
        if keyspace.hash.is_some() {
            return Err(unsupported("an ordered scan", keyspace));
        }
        Ok(Iter { scan: Scan::new(&db.core, keyspace, bounds, snapshot)?, _db: db.clone() })
    }

    /// The keys without values, from the iterator's current position. Values are neither fetched nor merged, so a key
    /// whose merge operator would fail is returned like any other.
    pub fn keys(mut self) -> Keys {
        self.scan.leave_out_values();
        Keys(self)
    }

    /// Continues with the newest state of the database, within the same bounds: after the last key returned from the
    /// front, and before the last one returned from the back. An iterator that has ended, or failed, continues if there
    /// are more keys now; an iterator over a snapshot no longer uses the snapshot. Cheap: nothing is read until the
    /// next key is requested.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), or [`Error::NotFound`](crate::Error::NotFound) if the keyspace was
    /// dropped; the iterator is unchanged.
    pub fn refresh(&mut self) -> Result<()> {
        self.scan.refresh()
    }
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.scan.next(Direction::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.scan.next(Direction::Backward)
    }
}

impl std::iter::FusedIterator for Iter {}

impl Keys {
    /// As [`Iter::refresh`].
    pub fn refresh(&mut self) -> Result<()> {
        self.0.refresh()
    }
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|item| item.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|item| item.map(|(key, _)| key))
    }
}

impl std::iter::FusedIterator for Keys {}
