//! The iterator over a hash keyspace, in the order of its index.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::base::{Error, Result, Slice};
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::hashed::{HashScan, Item};

/// All keys and values of a hash keyspace, as they were when the iterator was created, in no particular order: each key once,
/// whatever is written meanwhile. Holds a snapshot, and the logs it reads, until dropped.
///
/// Keys are taken from the index in memory, a bucket at a time; each value is one read, and small ones are read together. If merging a
/// key fails, the item is an error and the iteration continues.
///
/// # Errors
/// Items are [`Error::MergeFailed`], [`Error::Corruption`], [`Error::Io`] or [`Error::Closed`].
///
/// [`Error::Closed`]: crate::Error::Closed
/// [`Error::MergeFailed`]: crate::Error::MergeFailed
/// [`Error::Corruption`]: crate::Error::Corruption
/// [`Error::Io`]: crate::Error::Io
pub struct Unordered {
    scan: HashScan,
    ready: VecDeque<Item>,
    /// Keeps the database open. Dropped after `scan`.
    _db: Arc<DbInner>,
}

impl Unordered {
    pub(crate) fn new(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        snapshot: Option<&HeldSnapshot>,
    ) -> Result<Unordered> {
        db.core.check_open()?;
        keyspace.check(db.core.database)?;
        if keyspace.hash.is_none() {
            let message = format!("keyspace {:?} is ordered: iterate over it with iter()", keyspace.record.name);
            return Err(Error::UnsupportedOperation { message });
        }
        let held = match snapshot {
            Some(held) => held.again().0,
            None => HeldSnapshot::newest(&db.core).0,
        };
        let scan = HashScan::new(held, keyspace.clone());
        Ok(Unordered { scan, ready: VecDeque::new(), _db: db.clone() })
    }
}

impl Iterator for Unordered {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(item);
            }
            match self.scan.next_items() {
                Ok(Some(items)) => self.ready.extend(items),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

impl std::iter::FusedIterator for Unordered {}
