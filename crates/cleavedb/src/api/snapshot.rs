//! Snapshots: sequence numbers held by readers, so that jobs keep the versions visible at them (rule 6).

use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::api::iter::Iter;
use crate::api::keyspace::Keyspace;
use crate::api::unordered::Unordered;
use crate::base::{KeyBounds, Result, Seqno, Slice};
use crate::engine::held_snapshot::HeldSnapshot;

/// A consistent view of the whole database at one moment. Cheap to take and to clone: O(1). While it is held, the
/// versions that it sees, and the space they take, are not reclaimed.
#[derive(Clone)]
pub struct Snapshot {
    held: Arc<HeldSnapshot>,
    /// Keeps the database open. Dropped after `held`.
    db: Arc<DbInner>,
}

impl Snapshot {
    pub(crate) fn take(db: &Arc<DbInner>) -> Snapshot {
        let (held, _) = HeldSnapshot::newest(&db.core);
        Snapshot { held: Arc::new(held), db: db.clone() }
    }

    /// The sequence number of the newest write that the snapshot sees.
    pub fn seqno(&self) -> Seqno {
        self.held.seqno
    }

    /// The value of `key` at the snapshot. Costs as much as [`Keyspace::get`]; newer versions are skipped.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`InvalidInput`](crate::Error::InvalidInput) if the keyspace is another database's.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        keyspace.check_database(&self.db)?;
        self.db.core.get(keyspace.state(), key.as_ref(), Some(self.held.seqno))
    }

    /// The values of many keys at the snapshot; costs and errors as [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        if keyspace.check_database(&self.db).is_err() {
            return keys.iter().map(|_| keyspace.check_database(&self.db).map(|()| None)).collect();
        }
        self.db.core.multi_get(keyspace.state(), &keys, Some(self.held.seqno))
    }

    /// True if `key` has a value at the snapshot. Costs and errors as [`get`](Snapshot::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        match &keyspace.state().hash {
            Some(index) => {
                keyspace.check_database(&self.db)?;
                self.db.core.contains_hashed(keyspace.state(), index, key.as_ref(), Some(self.held.seqno))
            }
            None => Ok(self.get(keyspace, key)?.is_some()),
        }
    }

    /// All keys of a hash keyspace at the snapshot, in no particular order. Costs and errors as
    /// [`Keyspace::iter_unordered`].
    ///
    /// # Errors
    /// [`InvalidInput`](crate::Error::InvalidInput) if the keyspace is another database's.
    pub fn iter_unordered(&self, keyspace: &Keyspace) -> Result<Unordered> {
        keyspace.check_database(&self.db)?;
        Unordered::new(&self.db, keyspace.state(), Some(&self.held))
    }

    /// All keys of a keyspace at the snapshot. Costs as [`Keyspace::iter`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; [`InvalidInput`](crate::Error::InvalidInput) if the keyspace is another database's.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.range(keyspace, ..)
    }

    /// The keys of a keyspace within `range` at the snapshot. Costs and errors as [`iter`](Snapshot::iter).
    pub fn range<R: KeyBounds>(&self, keyspace: &Keyspace, range: R) -> Result<Iter> {
        keyspace.check_database(&self.db)?;
        Iter::over_range(&self.db, keyspace.state(), range.key_bounds(), Some(&self.held))
    }

    /// The keys of a keyspace that start with `prefix` at the snapshot. Costs and errors as [`iter`](Snapshot::iter).
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        keyspace.check_database(&self.db)?;
        Iter::over_prefix(&self.db, keyspace.state(), prefix.as_ref(), Some(&self.held))
    }
}
