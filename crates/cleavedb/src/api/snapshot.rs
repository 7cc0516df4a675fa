//! Snapshots: sequence numbers that readers hold, so that jobs keep what they can still see (DESIGN rule 6).

use std::collections::BTreeMap;
use std::ops::RangeBounds;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::api::db::DbInner;
use crate::api::iter::Iter;
use crate::api::keyspace::Keyspace;
use crate::base::versions::Horizon;
use crate::base::{KeyspaceId, OperatorSource, Result, Seqno, Slice};
use crate::engine::core::Core;
use crate::engine::published::Published;
use crate::engine::view::View;
use crate::sched::sync::Mutex;

/// The sequence numbers that are held, with how many hold each.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Seqno, usize>>,
    /// Background work has something to do once no number below this is held; 0 if it waits for none.
    awaited: AtomicU64,
}

impl Snapshots {
    /// Takes view and sequence number together and holds the number.
    pub fn hold(&self, published: &Published<View>) -> (Arc<View>, Seqno) {
        let mut held = self.held.lock();
        let (view, seqno) = published.read();
        *held.entry(seqno).or_default() += 1;
        (view, seqno)
    }

    /// Holds a number that someone else holds already.
    pub fn hold_again(&self, seqno: Seqno) {
        *self.held.lock().entry(seqno).or_default() += 1;
    }

    /// Lets go of a number; true if background work waits for that.
    pub fn release(&self, seqno: Seqno) -> bool {
        let mut held = self.held.lock();
        let Some(count) = held.get_mut(&seqno) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        held.remove(&seqno);
        let awaited = Seqno(self.awaited.load(Ordering::Relaxed));
        seqno < awaited && held.keys().next().is_none_or(|oldest| *oldest >= awaited)
    }

    /// The oldest number that a reader may ask for: a held one, or the published.
    pub fn oldest(&self, published: &Published<View>) -> Seqno {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(|| published.seqno())
    }

    /// From now on [`release`](Snapshots::release) tells when no number below this one is held any more.
    pub fn notify_from(&self, seqno: Option<Seqno>) {
        self.awaited.store(seqno.unwrap_or_default().0, Ordering::Relaxed);
    }

    /// What a job must respect: the view it works on, and all held numbers ascending with the published one last,
    /// captured in one critical section.
    pub fn capture(&self, published: &Published<View>) -> (Arc<View>, Vec<Seqno>) {
        let held = self.held.lock();
        let (view, seqno) = published.read();
        let mut snapshots: Vec<Seqno> = held.keys().copied().filter(|&held| held < seqno).collect();
        snapshots.push(seqno);
        (view, snapshots)
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.lock().values().sum()
    }
}

/// What a job captured when it started: shared by its parts, so that they agree on what may die.
pub(crate) struct JobHorizon {
    pub view: Arc<View>,
    pub snapshots: Vec<Seqno>,
    pub dropped: BTreeMap<KeyspaceId, Seqno>,
}

impl JobHorizon {
    /// The rules for one stream of versions.
    pub fn over<'a>(
        &self,
        bottom: &'a dyn Fn(&[u8]) -> bool,
        dropped: &'a dyn Fn(KeyspaceId) -> bool,
        operators: &'a dyn OperatorSource,
    ) -> Horizon<'a> {
        Horizon { snapshots: self.snapshots.clone(), bottom, dropped, operators, fetch: None }
    }
}

impl Core {
    /// Captures view and snapshots in one step, and which keyspaces are dropped.
    pub fn job_horizon(&self) -> JobHorizon {
        let (view, snapshots) = self.snapshots.capture(&self.published);
        JobHorizon { view, snapshots, dropped: self.keyspaces.dropped() }
    }
}

/// A consistent picture of the whole database at one moment, for as long as it is held. Cheap to take and to clone: O(1).
/// While it is held, versions that it sees are kept, and with them their space.
#[derive(Clone)]
pub struct Snapshot {
    held: Arc<Held>,
}

/// Holds a sequence number until dropped.
pub(crate) struct Held {
    pub db: Arc<DbInner>,
    pub seqno: Seqno,
}

impl Drop for Held {
    fn drop(&mut self) {
        let awaited = self.db.core.snapshots.release(self.seqno);
        if awaited || !self.db.core.pending_deletions.is_empty() {
            self.db.core.work.wake();
        }
    }
}

impl Snapshot {
    pub(crate) fn take(db: &Arc<DbInner>) -> Snapshot {
        let (_, seqno) = db.core.snapshots.hold(&db.core.published);
        Snapshot { held: Arc::new(Held { db: db.clone(), seqno }) }
    }

    /// The newest write that the snapshot sees.
    pub fn seqno(&self) -> Seqno {
        self.held.seqno
    }

    /// The value of `key` at the snapshot. Costs as much as [`Keyspace::get`]; versions written since are passed over.
    ///
    /// # Errors
    /// As [`Keyspace::get`]; [`InvalidInput`](crate::Error::InvalidInput) if the keyspace is another database's.
    pub fn get(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        keyspace.check_database(&self.held.db)?;
        self.held.db.core.get_at(keyspace.state(), key.as_ref(), self.held.seqno)
    }

    /// The values of many keys at the snapshot; costs and errors as [`Keyspace::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(
        &self,
        keyspace: &Keyspace,
        keys: impl IntoIterator<Item = K>,
    ) -> Vec<Result<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        if keyspace.check_database(&self.held.db).is_err() {
            return keys.iter().map(|_| keyspace.check_database(&self.held.db).map(|()| None)).collect();
        }
        self.held.db.core.multi_get(keyspace.state(), &keys, Some(self.held.seqno))
    }

    /// True if `key` has a value at the snapshot. Costs and errors as [`get`](Snapshot::get).
    pub fn contains(&self, keyspace: &Keyspace, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(keyspace, key)?.is_some())
    }

    /// All keys of a keyspace at the snapshot. Costs as [`Keyspace::iter`].
    ///
    /// # Errors
    /// As [`Keyspace::iter`]; [`InvalidInput`](crate::Error::InvalidInput) if the keyspace is another database's.
    pub fn iter(&self, keyspace: &Keyspace) -> Result<Iter> {
        self.range::<std::ops::RangeFull>(keyspace, ..)
    }

    /// The keys of a keyspace within `range` at the snapshot. Costs and errors as [`iter`](Snapshot::iter).
    pub fn range<R: RangeBounds<Vec<u8>>>(&self, keyspace: &Keyspace, range: R) -> Result<Iter> {
        keyspace.check_database(&self.held.db)?;
        Iter::over_range(&self.held.db, keyspace.state(), range, Some(self.held.seqno))
    }

    /// The keys of a keyspace that start with `prefix` at the snapshot. Costs and errors as [`iter`](Snapshot::iter).
    pub fn prefix(&self, keyspace: &Keyspace, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        keyspace.check_database(&self.held.db)?;
        Iter::over_prefix(&self.held.db, keyspace.state(), prefix.as_ref(), Some(self.held.seqno))
    }
}
