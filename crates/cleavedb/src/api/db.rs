//! `Db`: the public handle of an open database. Each call delegates to the engine.

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
use crate::format::edit::Edit;
use crate::format::keyspace_record::{DeltaPlacement, KeyspaceRecord};
use crate::io::{MemoryStorage, OsStorage, Storage};

/// Opens or creates a database on any storage, with the given sizes or those derived from the options.
pub(crate) fn open(storage: Arc<dyn Storage>, path: &Path, options: Options, tuning: Option<Tuning>) -> Result<Db> {
    let storage = options.with_device(storage)?;
    let request = options.request(&*storage, path, tuning)?;
    let core = lifecycle::open::open(storage, request)?;
    let default = core.keyspaces.find(DEFAULT_NAME).expect("the default keyspace is never dropped");
    Ok(Db { inner: Arc::new(DbInner { core, default }) })
}

impl Options {
    /// Opens the database in the directory `path`, or creates it.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is open elsewhere, [`Error::InvalidInput`] for an option outside its range,
    /// [`Error::Corruption`] or [`Error::Unsupported`] if files are damaged or of an unknown format.
    pub fn open(self, path: impl AsRef<Path>) -> Result<Db> {
        open(Arc::new(OsStorage::new().busy_polling(self.busy_poll)), path.as_ref(), self, None)
    }
}

/// An open database. Cheap to clone and shared freely between threads. Dropping the last handle (a `Db`, [`Keyspace`],
/// [`Snapshot`], [`Iter`] or [`BackgroundPause`]) closes it cleanly.
#[derive(Clone)]
pub struct Db {
    pub(crate) inner: Arc<DbInner>,
}

impl Db {
    /// Opens the database in the directory `path`, or creates it, with the defaults of [`Options`].
    ///
    /// # Errors
    /// As [`Options::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<Db> {
        Options::new().open(path)
    }

    /// A database in memory, with a memory budget of 64 MiB in addition to the size of its files: for tests, and for
    /// data that need not outlive the process. All calls work as on disk; syncs cost nothing, and a
    /// [checkpoint](Db::checkpoint) is written to the same memory. Dropping the last handle discards everything.
    ///
    /// # Errors
    /// [`Error::Io`] if the system cannot start threads.
    pub fn in_memory() -> Result<Db> {
        let options = Options::new().memory_budget(64 << 20);
        open(Arc::new(MemoryStorage::new()), Path::new("/memory"), options, None)
    }

    /// The keyspace `name`, created with default options if it does not exist. O(log keyspaces); creating one syncs the
    /// manifest.
    ///
    /// # Errors
    /// As [`create_keyspace`](Db::create_keyspace), except that an existing keyspace is no error.
    pub fn keyspace(&self, name: &str) -> Result<Keyspace> {
        match self.open_keyspace(name) {
            Err(Error::NotFound { .. }) => match self.create_keyspace(name, KeyspaceOptions::new()) {
                // Another thread created it first.
                Err(Error::InvalidInput { message }) => match self.open_keyspace(name) {
                    Err(Error::NotFound { .. }) => Err(Error::InvalidInput { message }),
                    found => found,
                },
                made => made,
            },
            found => found,
        }
    }

    /// Creates the keyspace `name`. Syncs the manifest.
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if it exists, its name is empty or longer than 255 bytes, its merge operator is not
    /// registered, or the memory budget allows no more keyspaces; [`Error::NoSpace`], [`Error::Poisoned`],
    /// [`Error::Io`], [`Error::Closed`].
    pub fn create_keyspace(&self, name: &str, options: KeyspaceOptions) -> Result<Keyspace> {
        let core = &self.inner.core;
        core.check_writable()?;
        if name.is_empty() || name.len() > limits::KEYSPACE_NAME_BYTES_MAX {
            let max = limits::KEYSPACE_NAME_BYTES_MAX;
            return Err(Error::input(format!(
                "a keyspace name must have 1 to {max} bytes, but this one has {}",
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
            return Err(Error::input(format!("keyspace {name:?} already exists")));
        }
        let id = manifest.state().next_keyspace;
        let next = id.0.checked_add(1).ok_or_else(|| Error::input("this database has no keyspace ids left"))?;
        let record = KeyspaceRecord {
            id,
            kind: options.kind,
            name: name.to_owned(),
            operator: options.operator,
            compression: options.compression.map(|compression| compression as u8),
            separation: options.separation,
            deltas: options.deltas,
        };
        let mut edit = Edit {
            keyspaces_added: vec![record.clone()],
            keyspaces_placed: vec![(id, options.deltas)],
            next_keyspace: Some(KeyspaceId(next)),
            ..Edit::default()
        };
        edit.keyspaces_placed.retain(|(_, deltas)| *deltas != DeltaPlacement::default());
        core.add_counters(&mut edit);
        core.commit_edit(&mut manifest, &edit)?;
        Ok(Keyspace::new(self.inner.clone(), core.keyspaces.add(record)))
    }

    /// The keyspace `name`.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist.
    pub fn open_keyspace(&self, name: &str) -> Result<Keyspace> {
        self.inner.core.check_open()?;
        let state = self.inner.core.keyspaces.find(name);
        let state = state.ok_or_else(|| Error::NotFound { what: format!("keyspace {name:?}") })?;
        Ok(Keyspace::new(self.inner.clone(), state))
    }

    /// The names of all keyspaces, sorted. The keyspace "default" always exists.
    pub fn keyspaces(&self) -> Vec<String> {
        self.inner.core.keyspaces.names()
    }

    /// Removes a keyspace and all its keys, durably. Background work reclaims the space later; the keyspace's id is
    /// never reused.
    ///
    /// # Errors
    /// [`Error::NotFound`] if it does not exist; [`Error::InvalidInput`] for "default"; [`Error::NoSpace`],
    /// [`Error::Poisoned`], [`Error::Io`], [`Error::Closed`].
    pub fn drop_keyspace(&self, name: &str) -> Result<()> {
        let core = &self.inner.core;
        core.check_writable()?;
        let keyspace = self.open_keyspace(name)?;
        if keyspace.state().record.id == DEFAULT_ID {
            return Err(Error::input("the default keyspace cannot be dropped"));
        }
        // Data that the caller copied out of the keyspace must be durable before the keyspace goes.
        core.sync()?;
        // While the commit lock is held, no write to the keyspace can get a later sequence number.
        let commit = core.commit.lock();
        core.check_poison()?;
        let mut manifest = core.manifest.lock();
        keyspace.state().check(core.database)?;
        let id = keyspace.state().record.id;
        let mut edit = Edit { keyspaces_dropped: vec![(id, commit.last_seqno)], ..Edit::default() };
        // Nothing may have been written to it.
        edit.keyspaces_forgotten = manifest.state().keyspaces_gone_after(&edit);
        core.add_counters(&mut edit);
        core.reserve.with(|| core.commit_edit(&mut manifest, &edit))?;
        core.keyspaces.remove(keyspace.state(), commit.last_seqno);
        core.keyspaces.forget(&edit.keyspaces_forgotten);
        drop(manifest);
        drop(commit);
        core.note_dropped_index(keyspace.state());
        core.work.wake_all();
        Ok(())
    }

    /// The keyspace "default", which every database has.
    pub fn default_keyspace(&self) -> Keyspace {
        Keyspace::new(self.inner.clone(), self.inner.default.clone())
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

    /// [`Keyspace::merge`] in the default keyspace, which has no merge operator.
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

    /// Writes a batch atomically, with the database's durability.
    ///
    /// # Errors
    /// As [`Keyspace::put`]: one new key for which memory has no room ([`Error::IndexFull`]) has the whole batch refused.
    /// [`Error::UnsupportedOperation`] if it deletes a range of a keyspace that keeps its keys by hash. After an error none of
    /// the batch is visible; after [`Error::Poisoned`] or [`Error::Io`], either all or none of it is present when the database
    /// is next opened.
    pub fn write(&self, mut batch: WriteBatch) -> Result<()> {
        self.inner.core.write(&mut batch.0, WriteOptions::new())
    }

    /// Writes a batch atomically, with its own durability or other options.
    ///
    /// # Errors
    /// As [`write`](Db::write), and [`Error::WouldStall`] if the wait would exceed the limit set in the options.
    pub fn write_with(&self, mut batch: WriteBatch, options: impl Into<WriteOptions>) -> Result<()> {
        self.inner.core.write(&mut batch.0, options.into())
    }

    /// Writes a batch if that is possible without waiting for background work, and leaves the batch empty. It still
    /// waits for a sync if the durability requires one.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if writers are being slowed down or stopped; the batch is unchanged and can be retried.
    /// Other errors are those of [`write`](Db::write), and leave the batch empty.
    pub fn try_write(&self, batch: &mut WriteBatch) -> Result<()> {
        self.inner.core.write(&mut batch.0, WriteOptions::new().stall_max(Duration::ZERO))
    }

    /// A consistent view of all keyspaces at this moment. O(1).
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.inner)
    }

    /// Returns once all writes so far survive loss of power. Concurrent callers share one device sync; the cost is that
    /// of syncing the bytes that are not durable yet.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Poisoned`] or [`Error::Io`] if a sync has failed, [`Error::Closed`]. Callers that
    /// share a sync get the same error.
    pub fn sync(&self) -> Result<()> {
        self.inner.core.check_open()?;
        self.inner.core.sync()
    }

    /// Flushes everything in the front (index tables and runs, the equivalent of memtables) to tables and waits for it.
    /// O(bytes in the front). If a [pause](Db::pause_background) begins meanwhile, this waits until it ends.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after a storage failure, [`Error::InvalidInput`]
    /// during a [pause](Db::pause_background) or if the database is read only, [`Error::Closed`].
    pub fn flush(&self) -> Result<()> {
        self.inner.core.flush()
    }

    /// Waits until background work is idle: no job is running or due. Data in the front stays there;
    /// [`flush`](Db::flush) writes it to tables. While other threads write, this may never return. It waits until a
    /// [pause](Db::pause_background) ends, so the holder of a pause must not call it. A database opened read-only has
    /// no background work.
    ///
    /// # Errors
    /// [`Error::NoSpace`] if storage is full, [`Error::Poisoned`] after a failure of storage, [`Error::Closed`].
    pub fn wait_for_background(&self) -> Result<()> {
        self.inner.core.wait_for_background()
    }

    /// Compacts a range of keys down the levels and waits for it. Reads and writes every table that overlaps the range,
    /// and the tables below those, once per level. If a [pause](Db::pause_background) begins meanwhile, this waits
    /// until it ends.
    ///
    /// # Errors
    /// As [`flush`](Db::flush); [`Error::NotFound`] if the keyspace was dropped, [`Error::Corruption`] if a table is
    /// damaged.
    pub fn compact_range<R: KeyBounds>(&self, keyspace: &Keyspace, range: R) -> Result<()> {
        keyspace.check_database(&self.inner)?;
        keyspace.check_ordered("a compaction")?;
        self.inner.core.compact_range(keyspace.state(), range.key_bounds())
    }

    /// Writes a consistent copy of the database into the directory `path`, which must be empty or not exist, and
    /// returns once the copy survives loss of power. Writes continue meanwhile; the copy is a prefix of the write
    /// history that contains every write acknowledged before the call. It opens as an independent database, with all
    /// files in that one directory even if this database uses several.
    ///
    /// Tables and value files are hard-linked if the file system allows it, and copied otherwise. Logs are
    /// copied: about the smaller of the memory budget and 256 MiB at most, and where values are separated, the smaller
    /// of eight times the budget and 1 GiB. O(files + bytes copied).
    ///
    /// # Errors
    /// [`Error::InvalidInput`] if `path` is not empty or is inside a directory of the database; [`Error::Locked`] if
    /// another checkpoint is being written there; [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Io`],
    /// [`Error::Closed`]. After an error no file of the copy remains. A crash may leave files, but they do not open as
    /// a database.
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

    /// Pauses background work (seals, flushes, merges, compactions, file deletion, the statistics page) and waits for
    /// what is running, so that until the returned guard is dropped storage is used only by callers and by the syncs
    /// that writes with [`Durability::Interval`](crate::Durability::Interval) ask for. Pauses nest. Writes continue
    /// until the front or its logs are full; then they wait for the end of the pause, or fail with
    /// [`Error::WouldStall`] if their options say so. [`flush`](Db::flush), [`compact_range`](Db::compact_range) and
    /// [`Keyspace::ingest`] need background work and fail during a pause. If they are running when the pause begins, an
    /// ingest fails once it needs background work; the other two wait for the end of the pause, so the holder must not
    /// wait for them. Closing the database ends the pause.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn pause_background(&self) -> Result<BackgroundPause> {
        BackgroundPause::begin(&self.inner)
    }

    /// Statistics: the current sizes of all parts, and counters since the database was opened.
    pub fn stats(&self) -> Stats {
        self.inner.core.stats()
    }

    /// Closes the database and returns any error. From then on other handles, snapshots and iterators return
    /// [`Error::Closed`], because another process may open the files; values and keys already returned stay valid.
    /// Writes that do not survive loss of power yet are synced. O(bytes of the front) if the front is large enough to
    /// be flushed.
    ///
    /// If called several times, the first call closes the database; the others wait for it and return the same result.
    /// `close` waits for running ingests, checkpoints and compactions. An ingest stops at its next pair, so its input
    /// iterator must not close the database; a checkpoint stops at its next table.
    ///
    /// # Errors
    /// [`Error::NoSpace`], [`Error::Poisoned`], [`Error::Io`]: the database is closed nevertheless, and no write that
    /// was acknowledged with its durability is lost.
    pub fn close(self) -> Result<()> {
        self.inner.core.close()
    }
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Db")
            .field("fast", &self.inner.core.dirs.fast())
            .field("slow", &self.inner.core.dirs.slow())
            .finish()
    }
}
