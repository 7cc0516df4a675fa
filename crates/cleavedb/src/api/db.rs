//! `Db`: an open database, as its users hold it. Each call ends in the engine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::api::batch::WriteBatch;
use crate::api::handle::DbInner;
use crate::api::iter::Iter;
use crate::api::keyspace::Keyspace;
use crate::api::options::{KeyspaceOptions, Options};
use crate::api::pause::BackgroundPause;
use crate::api::snapshot::Snapshot;
use crate::base::{Error, KeyBounds, KeyspaceId, Result, Slice, limits};
use crate::engine::inspect::stats::Stats;
use crate::engine::keyspaces::{DEFAULT_ID, DEFAULT_NAME};
use crate::engine::lifecycle;
use crate::engine::tuning::settings::{WriteOptions, check_compression};
use crate::engine::tuning::sizes::Tuning;
use crate::format::edit::{Edit, KeyspaceRecord};
use crate::io::{MemoryStorage, OsStorage, Storage};

/// Opens or makes a database on any storage; with the given sizes, or those that follow from the options.
pub(crate) fn open(storage: Arc<dyn Storage>, path: &Path, options: Options, tuning: Option<Tuning>) -> Result<Db> {
    let request = options.request(&*storage, path, tuning)?;
    let core = lifecycle::open::open(storage, request)?;
    Ok(Db { inner: Arc::new(DbInner { core }) })
}

impl Options {
    /// Opens (or makes) the database in the directory `path`.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is open elsewhere, [`Error::InvalidInput`] for an option outside its range,
    /// [`Error::Corruption`] or [`Error::Unsupported`] if the files cannot be trusted.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        open(Arc::new(OsStorage::new().busy_polling(self.busy_poll)), path.as_ref(), self, None)
    }
}

/// An open database. Cheap to clone, shared freely between threads; the last handle to go (this, a [`Keyspace`], a
/// [`Snapshot`] or an [`Iter`]) closes it cleanly.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<DbInner>,
}

impl Db {
    /// Opens the database in the directory `path`, or makes one there, with the defaults of [`Options`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    /// A database in memory, with a memory budget of 64 MiB beside what its files take: for users' own tests, and for data
    /// that need not outlive the process. All calls work as on a disk; syncs cost nothing, and a
    /// [checkpoint](Db::checkpoint) lies in the same memory. Everything is gone with the last handle.
    ///
    /// # Errors
    /// [`Error::Io`] if the system cannot start threads.
    pub fn in_memory() -> Result<Db> {
        let options = Options::new().memory_budget(64 << 20);
        open(Arc::new(MemoryStorage::new()), Path::new("/memory"), options, None)
    }

    /// The keyspace `name`, made with default options if it does not exist. O(log keyspaces); making one syncs the manifest.
    ///
    /// # Errors
    /// As [`create_keyspace`](Db::create_keyspace), except that it may exist.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.open_keyspace(name) {
            Err(Error::NotFound { .. }) => match self.create_keyspace(name, KeyspaceOptions::new()) {
                // Another thread was faster.
                Err(Error::InvalidInput { message }) => match self.open_keyspace(name) {
                    Err(Error::NotFound { .. }) => Err(Error::InvalidInput { message }),
                    found => found,
                },
                made => made,
            },
            found => found,
        }
    }

    /// Makes the keyspace `name`.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it exists, its name is empty or longer than 255 bytes, its merge operator is not
    /// registered, or memory has no room for more; [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Io`],
    /// [`Error::Closed`].
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let core = &self.inner.core;
        core.check_writable()?;
        if name.is_empty() || name.len() > limits::KEYSPACE_NAME_BYTES_MAX {
            let max = limits::KEYSPACE_NAME_BYTES_MAX;
            return Err(Error::input(format!(
                "a keyspace name has from 1 to {max} bytes, this one has {}",
                name.len()
            )));
        }
        if let Some(operator) = options.operator.as_deref().filter(|name| core.keyspaces.find_operator(name).is_none())
        {
            return Err(Error::input(format!("merge operator {operator:?} is not registered")));
        }
        options.compression.map_or(Ok(()), check_compression)?;
        core.check_keyspace_memory()?;
        core.check_poison()?;
        let mut manifest = core.manifest.lock();
        if core.keyspaces.find(name).is_some() {
            return Err(Error::input(format!("keyspace {name:?} exists already")));
        }
        let id = manifest.state().next_keyspace;
        let next = id.0.checked_add(1).ok_or_else(|| Error::input("this database has no keyspace numbers left"))?;
        let record = KeyspaceRecord {
            id,
            name: name.to_owned(),
            operator: options.operator,
            compression: options.compression.map(|compression| compression as u8),
            separation: options.separation,
        };
        let mut edit =
            Edit { keyspaces_added: vec![record.clone()], next_keyspace: Some(KeyspaceId(next)), ..Edit::default() };
        core.add_counters(&mut edit);
        core.commit_edit(&mut manifest, &edit)?;
        Ok(Keyspace::new(self.inner.clone(), core.keyspaces.add(record)))
    }

    /// The keyspace `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.core.check_open()?;
        let state = self.inner.core.keyspaces.find(name);
        let state = state.ok_or_else(|| Error::NotFound { what: format!("keyspace {name:?}") })?;
        Ok(Keyspace::new(self.inner.clone(), state))
    }

    /// The names of all keyspaces, sorted. The one called "default" always exists.
    pub fn keyspaces(&self) -> Vec<String> {
        self.inner.core.keyspaces.names()
    }

    /// Removes a keyspace with everything in it, durably. Its space comes back as background work comes by; its number
    /// is never used again.
    ///
    /// # Errors
    /// [`Error::NotFound`] if there is none; [`Error::InvalidInput`] for "default"; [`Error::NoSpace`], [`Error::Poisoned`],
    /// [`Error::Io`], [`Error::Closed`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let core = &self.inner.core;
        core.check_writable()?;
        let keyspace = self.open_keyspace(name)?;
        if keyspace.state().record.id == DEFAULT_ID {
            return Err(Error::input("the default keyspace cannot be dropped"));
        }
        // What was copied out of the keyspace before must not be lost without it.
        core.sync()?;
        // With the commit lock, no write to the keyspace can come after its last sequence number.
        let commit = core.commit.lock();
        core.check_poison()?;
        let mut manifest = core.manifest.lock();
        keyspace.state().check(core.database)?;
        let id = keyspace.state().record.id;
        let mut edit = Edit { keyspaces_dropped: vec![(id, commit.last_seqno)], ..Edit::default() };
        core.add_counters(&mut edit);
        core.reserve.with(|| core.commit_edit(&mut manifest, &edit))?;
        core.keyspaces.remove(keyspace.state(), commit.last_seqno);
        drop(manifest);
        drop(commit);
        let forgotten = core.forget_dropped_keyspaces();
        core.work.wake_all();
        forgotten
    }

    /// The keyspace that every database has.
    pub fn default_keyspace(&self) -> Keyspace {
        let state = self.inner.core.keyspaces.find(DEFAULT_NAME).expect("the default keyspace is never dropped");
        Keyspace::new(self.inner.clone(), state)
    }

    /// [`Keyspace::put`] in the default keyspace.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().put(key, value)
    }

    /// [`Keyspace::get`] in the default keyspace.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Slice>> {
        self.default_keyspace().get(key)
    }

    /// [`Keyspace::multi_get`] in the default keyspace.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: impl IntoIterator<Item = K>) -> Vec<Result<Option<Slice>>> {
        self.default_keyspace().multi_get(keys)
    }

    /// [`Keyspace::ingest`] in the default keyspace.
    pub fn ingest<K: AsRef<[u8]>, V: AsRef<[u8]>>(&self, pairs: impl IntoIterator<Item = (K, V)>) -> Result<u64> {
        self.default_keyspace().ingest(pairs)
    }

    /// [`Keyspace::delete`] in the default keyspace.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().delete(key)
    }

    /// [`Keyspace::delete_range`] in the default keyspace.
    pub fn delete_range<R: KeyBounds>(&self, range: R) -> Result<()> {
        self.default_keyspace().delete_range(range)
    }

    /// [`Keyspace::merge`] in the default keyspace, which has no merge operator unless it was given one.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default_keyspace().merge(key, operand)
    }

    /// [`Keyspace::contains`] in the default keyspace.
    pub fn contains(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.default_keyspace().contains(key)
    }

    /// [`Keyspace::iter`] in the default keyspace.
    pub fn iter(&self) -> Result<Iter> {
        self.default_keyspace().iter()
    }

    /// [`Keyspace::range`] in the default keyspace.
    pub fn range<R: KeyBounds>(&self, range: R) -> Result<Iter> {
        self.default_keyspace().range(range)
    }

    /// [`Keyspace::prefix`] in the default keyspace.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.default_keyspace().prefix(prefix)
    }

    /// Writes a batch, all at once, with the database's durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`]; on an error nothing of the batch was written, except that after [`Error::Poisoned`] or
    /// [`Error::Io`] it may or may not be there when the database is opened again.
    pub fn write(&self, mut batch: WriteBatch) -> Result<()> {
        self.inner.core.write(&mut batch.0, WriteOptions::new())
    }

    /// Writes a batch, all at once, with a durability, or other options, of its own.
    ///
    /// # Errors
    /// As [`write`](Db::write), and [`Error::WouldStall`] if the options limit how long it may wait.
    pub fn write_with(&self, mut batch: WriteBatch, options: impl Into<WriteOptions>) -> Result<()> {
        self.inner.core.write(&mut batch.0, options.into())
    }

    /// Writes a batch if that is possible without waiting for background work, and leaves the batch empty. (For the
    /// durability asked for, it waits all the same.)
    ///
    /// # Errors
    /// [`Error::WouldStall`] if writers are being slowed down or stopped: the batch is as it was, for another try. Others,
    /// after which the batch is empty,
    /// as [`write`](Db::write).
    pub fn try_write(&self, batch: &mut WriteBatch) -> Result<()> {
        self.inner.core.write(&mut batch.0, WriteOptions::new().stall_max(Duration::ZERO))
    }

    /// A consistent picture of everything as it is now. O(1).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.inner)
    }

    /// Returns once everything that was written so far survives loss of power. Callers share a sync of the device; costs what
    /// that does for the bytes that are not durable yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Poisoned`] or [`Error::Io`] if a sync has failed, [`Error::Closed`]. Callers that wait for
    /// the same sync get the same error.
    pub fn sync(&self) -> Result<()> {
        self.inner.core.check_open()?;
        self.inner.core.sync()
    }

    /// Moves everything in the front to tables and waits for it. O(bytes in the front), at most the part of the budget that
    /// the front may take and what it leads to in logs. A [pause](Db::pause_background) that begins meanwhile is waited out.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after a failure of storage, [`Error::InvalidInput`] during a
    /// [pause](Db::pause_background) or if the database is read only, [`Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        self.inner.core.flush()
    }

    /// Waits until background work has nothing left to do: no merge or compaction is running or due. (What is in the front
    /// stays there; [`flush`](Db::flush) moves it.) While others write, that may take for ever; a pause is waited out, so who
    /// holds one must not call this. Opened for reading only, a database has no background work.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after a failure of storage, [`Error::Closed`].
    pub fn wait_for_background(&self) -> Result<()> {
        self.inner.core.wait_for_background()
    }

    /// Merges everything in a range of keys down the levels and waits for it. Reads and writes every table that overlaps the
    /// range, and those below them, once for each level. A [pause](Db::pause_background) that begins meanwhile is waited out.
    ///
    /// # Errors
    /// As [`flush`](Db::flush); [`Error::NotFound`] if the keyspace was dropped, [`Error::Corruption`] if a table is damaged.
    pub fn compact_range<R: KeyBounds>(&self, keyspace: &Keyspace, range: R) -> Result<()> {
        keyspace.check_database(&self.inner)?;
        self.inner.core.compact_range(keyspace.state(), range.key_bounds())
    }

    /// Writes a consistent copy of the database as it is now into the directory `path`, which must be empty or not exist,
    /// and returns when the copy survives loss of power. Writes go on meanwhile; the copy is a first part of history that
    /// holds everything that was acknowledged before the call. It opens as an ordinary database of its own, in that one
    /// directory whatever directories this one uses.
    ///
    /// Tables are hard-linked where the file system allows it, and copied where it does not; logs are copied, at most as
    /// many bytes as the memory budget or 256 MiB. O(tables), and the bytes that are copied.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `path` is not empty or lies in a directory of the database; [`Error::Locked`] if someone
    /// else writes a copy there; [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Io`], [`Error::Closed`]. After an error
    /// nothing of the copy is left. A crash may leave files, but none that open as a database.
    ///
    /// ```
    /// # fn main() -> cleavedb::Result<()> {
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    /// let db = cleavedb::Db::open(&path)?;
    /// db.put("key", "value")?;
    /// db.checkpoint(&copy)?;
    /// db.put("key", "another")?;
    /// assert_eq!(cleavedb::Db::open(&copy)?.get("key")?.unwrap(), "value");
    /// # db.close()
    /// # }
    /// ```
    pub fn checkpoint(&self, path: impl AsRef<Path>) -> Result<()> {
        self.inner.core.checkpoint(path.as_ref())
    }

    /// Stops background work (seals, flushes, merges, compactions, removal of files) and waits for the jobs that run, so
    /// that nothing but callers uses storage until the answer is dropped. Pauses nest. Writes go on until the pace stops
    /// them, because the front or its logs are full; then they wait for the end of the pause, or get
    /// [`Error::WouldStall`] as their options say. [`flush`](Db::flush), [`compact_range`](Db::compact_range) and
    /// [`Keyspace::ingest`] need background work and are refused. Of those that a pause finds at work, an ingest is refused when
    /// it waits for background work, and the other two wait for the end of the pause: the holder must not wait for them.
    /// Closing ends the pause by itself.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn pause_background(&self) -> Result<BackgroundPause> {
        BackgroundPause::begin(&self.inner)
    }

    /// What is where, and what was done since the database was opened.
    pub fn stats(&self) -> Stats {
        self.inner.core.stats()
    }

    /// Closes the database and says whether that went well. Other handles, snapshots and iterators get [`Error::Closed`] from
    /// here on, because the files may be someone else's; values and keys that they have handed out stay valid. What does not
    /// survive loss of power yet is synced. O(bytes of the front) if that is large enough to be flushed.
    ///
    /// Of several calls the first closes, and the others wait for it and get the same answer. Loads, checkpoints and
    /// compactions under way are waited for; loads stop at their next pair (so the pairs of one must not close the
    /// database), checkpoints at their next table.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Io`]: the database is closed all the same, and nothing that was
    /// acknowledged with its durability is lost.
    pub fn close(self) -> Result<()> {
        self.inner.core.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db")
            .field("fast", &self.inner.core.dirs.fast)
            .field("slow", &self.inner.core.dirs.slow)
            .finish()
    }
}
