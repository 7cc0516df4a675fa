//! Iterators over keys and values, as users hold them. The scan itself is in `engine/read/scan.rs`.

use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::base::key_bounds::Between;
use crate::base::{Result, Slice};
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::bounds::Bounds;
use crate::engine::read::scan::{Direction, Scan};

/// The keys and values of a range, from both ends, as they were when the iterator was made. Holds a snapshot and the
/// files it reads until dropped.
///
/// A key whose merge operator fails is an error in its place, and the scan goes on; after any other error it yields
/// nothing more until it is [refreshed](Iter::refresh). Once the database is closed that error is [`Error::Closed`]; what
/// was returned before stays valid.
///
/// A key costs O(log layers), and as many versions of it as must be merged; versions that are not needed, and keys under
/// a range tombstone, cost a seek in each layer if they are many. The first key costs a seek in each layer:
/// O(tables of HL0 + levels), each O(log keys). Separated values are fetched ahead, for half as many keys more each time:
/// one read for the first, few for many; at most 1.6 times as many values are read as are returned, or 16 if these adjoin
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
    /// Keeps the database open. Dropped after the scan.
    _db: Arc<DbInner>,
}

/// The keys of an [`Iter`], without their values, from both ends.
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
        Ok(Iter { scan: Scan::new(&db.core, keyspace, bounds, snapshot)?, _db: db.clone() })
    }

    /// The keys alone, from where the iterator stands. No value is fetched from a log or merged, so a key whose merge
    /// operator would fail is a key like others.
    pub fn keys(mut self) -> Keys {
        self.scan.leave_out_values();
        Keys(self)
    }

    /// Goes on with the newest state of the database, within the same bounds: after the key that came last from the front,
    /// and before the one that came last from the back. An iterator that has ended goes on if there is more by now, also
    /// after an error; an iterator over a snapshot leaves the snapshot. Cheap: nothing is read before the next key is asked
    /// for.
    ///
    /// # Errors
    /// [`Error::Closed`](crate::Error::Closed), or [`Error::NotFound`](crate::Error::NotFound) if the keyspace was dropped;
    /// the iterator is as it was.
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
