//! Keyspaces: named maps that share one front and one tree. A keyspace is an id in front of its keys, so thousands of
//! them cost nothing but their names.

use std::cell::RefCell;
use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::api::iter::Iter;
use crate::base::{Error, KeyBounds, Kind, Result, Slice};
use crate::engine::batch::Batch;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::sizes::KeyspaceStats;
use crate::engine::tuning::settings::WriteOptions;
use crate::format::edit::{KeyspaceKind, Separation};

/// A thread keeps memory of this size for its next write.
const BATCH_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// An empty batch whose memory the thread's writes of one record use again.
    static BATCH: RefCell<Batch> = RefCell::default();
}

/// A handle on one keyspace. Cheap to clone, shared freely between threads; keeps the database open.
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

    /// The name of its merge operator.
    pub fn merge_operator(&self) -> Option<&str> {
        self.state.record.operator.as_deref()
    }

    /// From which size on values lie apart from their keys, in bytes; `None` if they never do.
    pub fn separation(&self) -> Option<u32> {
        u32::try_from(self.state.separation_bytes()).ok()
    }

    /// As [`KeyspaceOptions::separation`](crate::KeyspaceOptions::separation), from now on: values that are there change
    /// sides when their keys are written next. Durable when this returns.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after an earlier failure of storage, [`Error::Closed`].
    pub fn set_separation(&self, bytes: Option<u32>) -> Result<()> {
        self.db.core.set_separation(&self.state, Separation::chosen(bytes))
    }

    /// Sets `key` to `value` with the database's durability.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a limit is broken, [`Error::NotFound`] if the keyspace was dropped, [`Error::NoSpace`] if
    /// storage is full, [`Error::Io`] if storage fails, [`Error::Poisoned`] after an earlier failure of storage,
    /// [`Error::Closed`]. Writes that fail together get the same error.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Put, key.as_ref(), value.as_ref(), WriteOptions::new())
    }

    /// Like [`put`](Keyspace::put) with a durability, or other options, of its own.
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

    /// Like [`delete`](Keyspace::delete) with a durability, or other options, of its own.
    pub fn delete_with(&self, key: impl AsRef<[u8]>, options: impl Into<WriteOptions>) -> Result<()> {
        self.write(Kind::Delete, key.as_ref(), &[], options.into())
    }

    /// Removes all keys within `range`, by one write that costs the same whatever is there; their space comes back as
    /// background work comes by. An end without a bound is the keyspace's end. A range that holds no key (empty, or the
    /// wrong way round) is allowed and changes nothing.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put); bounds may be as long as keys.
    pub fn delete_range<R: KeyBounds>(&self, range: R) -> Result<()> {
        self.delete_range_with(range, WriteOptions::new())
    }

    /// Like [`delete_range`](Keyspace::delete_range) with a durability, or other options, of its own.
    pub fn delete_range_with<R: KeyBounds>(&self, range: R, options: impl Into<WriteOptions>) -> Result<()> {
        let mut batch = Batch::default();
        let (start, end) = range.key_bounds();
        batch.delete_range(&self.state, start, end);
        self.db.core.write(&mut batch, options.into())
    }

    /// Hands `operand` to the merge operator: a blind read-modify-write.
    ///
    /// # Errors
    /// As [`put`](Keyspace::put); whether the operator can use the operand shows when the key is read.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.write(Kind::Delta, key.as_ref(), operand.as_ref(), WriteOptions::new())
    }

    /// Like [`merge`](Keyspace::merge) with a durability, or other options, of its own.
    pub fn merge_with(
        &self,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
        options: impl Into<WriteOptions>,
    ) -> Result<()> {
        self.write(Kind::Delta, key.as_ref(), operand.as_ref(), options.into())
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

    /// The value of `key`. Not copied where it lies in a block. O(log keys) in each source that may hold it, up to the first
    /// that settles the value: index tables, runs, tables of HL0, one table of each level; most tables without it are ruled
    /// out by their filter.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if the key is too long or empty, [`Error::NotFound`] if the keyspace was dropped,
    /// [`Error::MergeFailed`] if its operator fails, [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`],
    /// [`Error::Closed`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.db.core.get(&self.state, key.as_ref(), None)
    }

    /// The values of many keys at one moment, in the order asked: for each key its value, or the error that concerns it.
    /// Keys may come in any order and more than once.
    ///
    /// Cheaper than single reads: keys are looked up in order, so that neighbours share blocks, and blocks that the cache
    /// does not have are read for many keys together. O(keys x log keys), and a read for each block.
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

    /// Puts many keys at once, straight into tables: the way to load sorted data. The keys must ascend strictly. Returns how
    /// many there were.
    ///
    /// All of them become visible together, replace what the keys held before, and survive loss of power when this
    /// returns. Snapshots taken before do not see them. Others may read and write meanwhile; a write that is acknowledged
    /// before this returns may come before or after the load as a whole. Memory does not grow with the load. The front is
    /// flushed once; if others write all the time, they wait for the length of a flush. What overlaps existing data
    /// becomes tables of HL0, which hold up writers until compactions have joined them; while HL0 is full, the load waits.
    /// If background work is paused, the load is refused, also if the pause begins while the load waits.
    /// O(keys), and O(log tables) for each table written.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if a limit is broken, if the keys do not ascend, naming the key, or during a
    /// [pause](crate::Db::pause_background); otherwise as [`put`](Keyspace::put) and [`Db::flush`](crate::Db::flush). After an error nothing of the load is there, except that
    /// after [`Error::Poisoned`] or [`Error::Io`] all of it may be, or nothing, when the database is opened again. A crash
    /// leaves all of it or nothing.
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

    /// About how many bytes the keys within `range` take: in table files, by their indexes (exact to a block at each end
    /// of each table, with index blocks and filters where a table lies wholly inside; with the values that lie apart), and in the
    /// front, by samples, the
    /// values in logs included. Old versions and deletes count until they are gone. O(tables in the range); reads two index
    /// blocks at most at each end of a table that reaches over an end of the range.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the keyspace was dropped, [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`],
    /// [`Error::Closed`].
    pub fn approximate_size<R: KeyBounds>(&self, range: R) -> Result<u64> {
        self.db.core.approximate_size(&self.state, range.key_bounds())
    }

    /// About how much the keyspace holds. Costs as much as [`approximate_size`](Keyspace::approximate_size) of everything.
    ///
    /// # Errors
    /// As [`approximate_size`](Keyspace::approximate_size).
    pub fn stats(&self) -> Result<KeyspaceStats> {
        self.db.core.keyspace_stats(&self.state)
    }

    /// True if `key` has a value. Costs as much as [`get`](Keyspace::get), and fails as that does.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        Ok(self.get(key)?.is_some())
    }

    /// All keys, in byte order. O(tables of HL0 + levels) to begin, and what [`Iter`] says for each key.
    ///
    /// # Errors
    /// [`Error::NotFound`] if the keyspace was dropped, [`Error::Closed`]; those of reading come with the items.
    pub fn iter(&self) -> Result<Iter> {
        self.range(..)
    }

    /// The keys within `range`, in byte order. Costs and errors as [`iter`](Keyspace::iter); a range that holds no key is
    /// allowed.
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
