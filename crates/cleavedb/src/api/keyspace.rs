//! Keyspaces: named maps that share one front and one tree. A keyspace is an id prefixed to its keys, so thousands of
//! keyspaces cost only their names.

use std::cell::RefCell;
use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::api::iter::Iter;
use crate::api::unordered::Unordered;
use crate::base::{Error, KeyBounds, Kind, Result, Slice};
use crate::engine::batch::Batch;
use crate::engine::keyspaces::{KeyspaceState, unsupported};
use crate::engine::read::sizes::KeyspaceStats;
use crate::engine::tuning::settings::WriteOptions;
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceKind, Separation};

/// Each thread keeps a batch buffer of at most this size for its next write.
const BATCH_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// An empty batch whose buffer the thread's single-record writes reuse.
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// A handle on one keyspace. Cheap to clone and shared freely between threads; keeps the database open.
#[derive(Clone)]
pub struct Keyspace {
    db: Arc<DbInner>,
    state: Arc<KeyspaceState>,
}

impl Keyspace {
    pub(crate) fn new(db: Arc<DbInner>, state: Arc<KeyspaceState>) -> Keyspace {
        Keyspace { db, state }
    }

    pub(crate) fn state(&self) -> &Arc<KeyspaceState> {
        &self.state
    }

    pub(crate) fn check_database(&self, db: &Arc<DbInner>) -> Result<()> {
        match Arc::ptr_eq(&self.db, db) {
            true => Ok(()),
            false => Err(Error::input(format!("keyspace {:?} belongs to another database", self.name()))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.state.record.name
    }

    /// How it keeps its keys.
    pub fn kind(&self) -> KeyspaceKind {
        self.state.record.kind
    }

    /// Its number, never reused in this database.
    pub fn id(&self) -> u32 {
        self.state.record.id.0
    }

    /// The name of its merge operator, if it has one.
    pub fn merge_operator(&self) -> Option<&str> {
        self.state.record.operator.as_deref()
    }

    /// The separation threshold in bytes: values of at least this size are separated from their keys. `None` if no
    /// value is.
    pub fn separation(&self) -> Option<u32> {
        u32::try_from(self.state.separation_bytes()).ok()
    }

    /// Changes [`KeyspaceOptions::separation`](crate::KeyspaceOptions::separation) for later writes: an existing value
    /// is moved only when its key is written again. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after an earlier storage failure, [`Error::Closed`].
    pub fn set_separation(&self, bytes: Option<u32>) -> Result<()> {
        self.check_ordered("a separation threshold")?;
        self.db.core.set_separation(&self.state, Separation::chosen(bytes))
    }

    /// Where the merge operands of the keyspace are kept.
    pub fn deltas(&self) -> DeltaPlacement {
        self.state.delta_placement()
    }

    /// Changes [`KeyspaceOptions::deltas`](crate::KeyspaceOptions::deltas) for the operands of later flushes. Operands that
    /// are in buckets stay readable, and new ones of their keys join them until background work has emptied the bucket.
    /// Durable when this returns.
    ///
    /// # Errors
    /// As [`set_separation`](Keyspace::set_separation).
    pub fn set_deltas(&self, deltas: DeltaPlacement) -> Result<()> {
        self.check_ordered("a placement of merge operands")?;
        self.db.core.set_delta_placement(&self.state, deltas)
    }

    /// Sets `key` to `value` with the database's durability.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a limit is exceeded, [`Error::NotFound`] if the keyspace was dropped,
    /// [`Error::IndexFull`] if the keyspace keeps its keys by hash and memory has no room for a new one,
    /// [`Error::NoSpace`] if storage is full, [`Error::Io`] if storage fails, [`Error::Poisoned`] after an earlier
    /// failure of storage, [`Error::Closed`]. Writes committed in one group get the same error.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref(), WriteOptions::new())
    }

    /// As [`put`](Keyspace::put), with its own durability or other options.
    pub fn put_with(
        &self,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref(), options.into())
    }

    /// Removes `key`; no error if it does not exist.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put).
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[], WriteOptions::new())
    }

    /// As [`delete`](Keyspace::delete), with its own durability or other options.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: impl Into<WriteOptions>) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[], options.into())
    }

    /// Removes all keys within `range` with one range tombstone, at a cost independent of the number of keys;
    /// background work reclaims the space later. An unbounded end is the end of the keyspace. An empty or inverted
    /// range is allowed and changes nothing.
    ///
    /// # Errors
    /// [`Error::UnsupportedOperation`] if the keyspace keeps its keys by hash; otherwise as [`put`](Keyspace::put). The length
    /// limit of keys applies to the bounds.
    pub fn delete_range<R: KeyBounds>(&self, range: R) -> Result<()> {
        self.delete_range_with(range, WriteOptions::new())
    }

    /// As [`delete_range`](Keyspace::delete_range), with its own durability or other options.
    pub fn delete_range_with<R: KeyBounds>(&self, range: R, options: impl Into<WriteOptions>) -> Result<()> {
        let mut batch = Batch::default();
        let (start, end) = range.key_bounds();
        batch.delete_range(&self.state, start, end);
        self.db.core.write(&mut batch, options.into())
    }

    /// Adds a merge operand for `key`: a read-modify-write without the read. The keyspace's merge operator combines
    /// operands when the key is read or compacted.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put), including [`Error::IndexFull`]. An operand that the operator rejects is reported only when the key
    /// is read; in a keyspace that keeps its keys by hash, a merge of a key with 1024 operands that cannot be folded fails with
    /// [`Error::MergeFailed`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Delta, key.as_ref(), operand.as_ref(), WriteOptions::new())
    }

    /// As [`merge`](Keyspace::merge), with its own durability or other options.
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.write(Kind::Delta, key.as_ref(), operand.as_ref(), options.into())
    }

    pub(crate) fn check_ordered(&self, operation: &str) -> Result<()> {
        if self.state.hash.is_some() { Err(unsupported(operation, &self.state)) } else { Ok(()) }
    }

    fn write(&self, kind: Kind, key: &[u8], value: &[u8], options: WriteOptions) -> Result<()> {
        let mut batch = BATCH.take();
        batch.push(&self.state, kind, key, value);
        let written = self.db.core.write(&mut batch, options);
        batch.clear();
        if batch.capacity() <= BATCH_BYTES_KEPT {
            BATCH.set(batch);
        }
        written
    }

    /// The value of `key`, without a copy if it is inline in a block. O(log keys) in each source, newest first, until
    /// one determines the value: index tables, runs, tables of HL0, one table of each level. Filters rule out most
    /// tables that do not hold the key.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the key is too long or empty, [`Error::NotFound`] if the keyspace was dropped,
    /// [`Error::MergeFailed`] if its operator fails, [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`],
    /// [`Error::Closed`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.db.core.get(&self.state, key.as_ref(), None)
    }

    /// The values of many keys at one moment, in input order: for each key its value, or its error. Keys may be
    /// unsorted and may repeat.
    ///
    /// Cheaper than single reads: keys are looked up in key order, so that neighbours share blocks, and blocks missing
    /// from the cache are read in batches. O(keys x log keys), and at most one read per block if the cache holds the
    /// blocks of 512 keys.
    ///
    /// # Errors
    /// For each key as [`get`](Keyspace::get).
    ///
    /// ```
    /// # fn main() -> cleavedb::Result<()> {
    /// let db = cleavedb::Db::in_memory()?;
    /// db.put("a", "1")?;
    /// let values: Vec<_> = db.multi_get(["b", "a"]).into_iter().collect::<cleavedb::Result<_>>()?;
    /// assert!(values[0].is_none() && values[1].as_deref() == Some(b"1"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Slice>>> {
        let keys: Vec<K> = keys.into_iter().collect();
        self.db.core.multi_get(&self.state, &keys, None)
    }

    /// Ingests many pairs directly into tables, which is the fast way to load sorted data. Keys must be strictly
    /// ascending. Returns the number of pairs.
    ///
    /// All pairs become visible atomically, replace the previous values of their keys, and survive loss of power when
    /// this returns. Snapshots taken before do not see them. Other threads may read and write meanwhile; a write
    /// acknowledged before this returns is ordered before or after the whole ingest. Memory use does not grow with the
    /// number of pairs. The front is flushed once; under constant writes, writers wait for one flush. Pairs that
    /// overlap existing data become tables of HL0, which slow writers down until compactions merge them; while HL0 is
    /// full, the ingest waits. An ingest fails if background work is paused, even if the pause begins while it waits.
    /// O(keys), and O(log tables) for each table written.
    ///
    /// In a hash keyspace the pairs are written through the log instead, in batches of 1 MiB, each as soon as it is full. A batch
    /// is atomic, the whole ingest is not: other threads, and snapshots that are taken meanwhile, see the batches written so far.
    /// After an error the batches before it stay, and nothing of the later ones is written; after a crash the first batches of
    /// the ingest may be there, in their order, and the others not. So an ingest of at most 1 MiB is all or nothing. All pairs
    /// survive loss of power when this returns, as in ordered keyspaces. Each pair is checked before its batch is written.
    ///
    /// # Errors
    /// For a hash keyspace also [`Error::IndexFull`], and see above for what is left.
    /// [`Error::InvalidInput`] if a limit is exceeded, if the keys do not ascend (the message names the key), or during
    /// a [pause](crate::Db::pause_background); otherwise as [`put`](Keyspace::put) and [`Db::flush`](crate::Db::flush).
    /// In an ordered keyspace, after an error none of the pairs is visible; after [`Error::Poisoned`] or [`Error::Io`], either all or none are
    /// present when the database is next opened. The same holds after a crash.
    ///
    /// ```
    /// # fn main() -> cleavedb::Result<()> {
    /// let db = cleavedb::Db::in_memory()?;
    /// let loaded = db.ingest((0..1000_u32).map(|number| (number.to_be_bytes(), format!("value {number}"))))?;
    /// assert_eq!(loaded, 1000);
    /// # Ok(())
    /// # }
    /// ```
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<u64> {
        self.db.core.ingest(&self.state, pairs.into_iter())
    }

    /// Approximate bytes used by the keys within `range`: in tables, from their indexes (accurate to one block at each
    /// end of each table; includes separated values, and the index blocks and filters of tables entirely inside the
    /// range); in the front, from samples, including values in logs. Old versions and tombstones count until they are
    /// compacted away. O(tables in the range); reads at most two index blocks at each end of a table that extends
    /// beyond the range.
    ///
    /// # Errors
    /// [`Error::UnsupportedOperation`] for a part of a keyspace that keeps its keys by hash, [`Error::NotFound`] if the
    /// keyspace was dropped, [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`], [`Error::Closed`].
    pub fn approximate_size<R: KeyBounds>(&self, range: R) -> Result<u64> {
        self.db.core.approximate_size(&self.state, range.key_bounds())
    }

    /// Approximate size of the keyspace. Costs as much as [`approximate_size`](Keyspace::approximate_size) of all its
    /// keys.
    ///
    /// # Errors
    /// As [`approximate_size`](Keyspace::approximate_size).
    pub fn stats(&self) -> Result<KeyspaceStats> {
        self.db.core.keyspace_stats(&self.state)
    }

    /// True if `key` has a value. Costs and errors as [`get`](Keyspace::get).
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        match &self.state.hash {
            Some(index) => self.db.core.contains_hashed(&self.state, index, key.as_ref(), None),
            None => Ok(self.get(key)?.is_some()),
        }
    }

    /// All keys of a hash keyspace, in no particular order: each once, as they are now. O(1) to begin.
    ///
    /// # Errors
    /// [`Error::UnsupportedOperation`] if the keyspace is ordered, [`Error::NotFound`] if it was dropped, [`Error::Closed`];
    /// read errors are returned as items.
    pub fn iter_unordered(&self) -> Result<Unordered> {
        Unordered::new(&self.db, &self.state, None)
    }

    /// All keys, in byte order. O(tables of HL0 + levels) to begin; see [`Iter`] for the cost of each key.
    ///
    /// # Errors
    /// [`Error::UnsupportedOperation`] if the keyspace keeps its keys by hash (see [`iter_unordered`](Keyspace::iter_unordered)),
    /// [`Error::NotFound`] if it was dropped, [`Error::Closed`]; read errors are returned as items.
    pub fn iter(&self) -> Result<Iter> {
        self.range(..)
    }

    /// The keys within `range`, in byte order. Costs and errors as [`iter`](Keyspace::iter); an empty range is allowed.
    pub fn range<R: KeyBounds>(&self, range: R) -> Result<Iter> {
        Iter::over_range(&self.db, &self.state, range.key_bounds(), None)
    }

    /// The keys that start with `prefix`, in byte order. Costs and errors as [`iter`](Keyspace::iter).
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Iter::over_prefix(&self.db, &self.state, prefix.as_ref(), None)
    }
}

impl std::fmt::Debug for Keyspace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keyspace").field("name", &self.name()).field("id", &self.id()).finish()
    }
}
