//! Checkpoints: a consistent copy of the database in another directory.
//!
//! Tables never change, so they are hard-linked if the file system allows it, and copied otherwise. Logs do change (a
//! close truncates the space reserved after their end, recovery writes doubtful frames again), so they are always
//! copied, up to a synced end; the copy's manifest records that they end there, and opening it repairs nothing (rule
//! 4). `CURRENT` is written last: an incomplete copy does not open as a database.
//!
//! All files are written to one directory, even if the original uses two, and the copy has its own database id.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::panics::guard_panic;
use crate::base::{DirId, Error, FileId, FileKey, Result, Seqno, verify};
use crate::engine::core::Core;
use crate::engine::layer::Layer;
use crate::engine::manifest::file_names::LOCK;
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::view::View;
use crate::format::values::ValuePlace;
use crate::front::log::LogFile;
use crate::io::copy::copy_file;
use crate::io::{Access, File, Storage};
use crate::sched::clock::now;

/// The contents of a checkpoint, captured at one moment and held until it is written.
struct Captured {
    state: ManifestState,
    /// The logs of the front, both those with unflushed records and those that only hold values, and the end up to
    /// which each is copied.
    logs: Vec<(Arc<LogFile>, u64)>,
    last_seqno: Seqno,
    /// Lists the tables, and keeps all files alive.
    view: Arc<View>,
}

impl Core {
    /// Writes a copy of the database's current state into `target`.
    pub fn checkpoint(&self, target: &Path) -> Result<()> {
        self.check_writable()?;
        let target = self.check_target(target)?;
        // After a close another process may remove the files to copy.
        let _writing = self.begin_writer("checkpoint")?;
        let captured = self.capture()?;
        self.sync_to(captured.last_seqno)?;
        let piece_bytes = self.settings.tuning.write_bytes.next_multiple_of(BLOCK_IO_BYTES);
        let copied = guard_panic("a checkpoint", || {
            copy_into(&*self.storage, &target, piece_bytes, |copy| self.fill(copy, &captured))
        });
        // The view kept files alive that the database dropped meanwhile; releasing it lets them be removed.
        drop(captured);
        if self.pending_deletions.has_work(now()) {
            self.work.wake();
        }
        copied
    }

    /// The target must not be, contain or be inside a directory of the database.
    fn check_target(&self, target: &Path) -> Result<PathBuf> {
        let real = self.storage.real_path(target)?;
        for (_, own) in self.dirs.all() {
            let own = self.storage.real_path(own)?;
            if real.starts_with(&own) {
                let message = format!(
                    "a checkpoint in {} would be inside the database itself, {}",
                    target.display(),
                    own.display()
                );
                return Err(Error::input(message));
            }
        }
        Ok(real)
    }

    /// While both locks are held nothing is appended, and the view and the manifest agree.
    fn capture(&self) -> Result<Captured> {
        let commit = self.commit.lock();
        self.check_open()?;
        self.check_poison()?;
        let manifest = self.manifest.lock();
        let view = self.published.view();
        let mut state = manifest.state().clone();
        let ids = || view.layers().iter().flat_map(Layer::tables).map(|table| table.meta().id).collect::<BTreeSet<_>>();
        verify!(ids().iter().eq(state.tables.keys()), "the layers hold the tables that the manifest names");
        let consumed = state.watermarks.least();
        let needed = view.logs.values().filter(|log| log.last_seqno() > consumed);
        let logs: Vec<_> = needed.map(|log| (log.clone(), log.end())).collect();
        // A log whose records are all in tables, or in the index of a hash keyspace, may still hold values.
        let indexed = self.indexed_files();
        let values: Vec<_> = view
            .logs
            .values()
            .filter(|log| {
                let is_referenced = state.values.referenced.of(log.id()).records > 0 || indexed.refers_to(log.id());
                log.last_seqno() <= consumed && is_referenced
            })
            .map(|log| (log.clone(), log.end()))
            .collect();
        for (log, end) in &values {
            state.values.adopt(log.id(), *end, indexed.refers_to(log.id()));
        }
        state.logs = logs.iter().map(|(log, end)| (log.id(), Some(*end))).collect();
        state.logs_whole.clear();
        // A copy makes its indexes from its logs.
        state.indexes_saved = None;
        state.forget_unused_files();
        state.last_seqno = commit.last_seqno;
        state.next_file = self.numbers.next();
        let logs = logs.into_iter().chain(values).collect();
        Ok(Captured { state, logs, last_seqno: commit.last_seqno, view })
    }

    fn fill(&self, copy: &mut Copy<'_>, captured: &Captured) -> Result<()> {
        let state = &captured.state;
        // The bytes of each file to copy if it cannot be linked.
        let tables = captured.view.layers().iter().flat_map(Layer::tables);
        let mut files: BTreeMap<FileId, u64> = tables.map(|table| (table.meta().id, table.meta().size)).collect();
        let copied: BTreeSet<FileId> = captured.logs.iter().map(|(log, _)| log.id()).collect();
        // Several extents, or redirect tables, may share one file; it is copied as far as they need it.
        for (id, place) in state.values.places.iter().filter(|(id, _)| !copied.contains(id)) {
            let end = match place {
                ValuePlace::Log { end } | ValuePlace::Extent { end, .. } => *end,
                ValuePlace::Moved { start, len, .. } => start + len,
            };
            let needed = files.entry(state.value_file(*id, place).id).or_default();
            *needed = end.max(*needed);
        }
        for (id, end) in files {
            self.check_open()?;
            let file = state.file(id);
            let from = self.dirs.path(file);
            if !copy.link(&from, file)? {
                let access = self.readers.access_in(file.dir);
                copy.copy((self.storage.open_read(&from, access)?, access), end, file)?;
            }
        }
        for (log, end) in &captured.logs {
            self.check_open()?;
            copy.copy((log.file().clone(), self.readers.access_in(log.key().dir)), *end, state.file(log.id()))?;
        }
        // A new database id: with the same id, the copy could be opened with this database's tables.
        let database = self.storage.unique_number()?;
        let mut state = ManifestState { database, ..captured.state.clone().in_one_directory() };
        // The id of its manifest must be in a range that the copy has reserved, too.
        if state.reserved_end(state.next_file).is_none() {
            state.reserved.insert(state.next_file, FileId(state.next_file.0 + 1));
        }
        self.storage.sync_dir(&copy.dir)?;
        Manifest::write_whole(self.storage.clone(), &copy.dir, state)
    }
}

/// The files of a copy, to be removed if it fails.
struct Copy<'a> {
    storage: &'a dyn Storage,
    dir: PathBuf,
    /// Bytes copied at a time.
    piece_bytes: usize,
}

/// Fills an empty or new directory; restores its previous state if that fails.
fn copy_into(
    storage: &dyn Storage,
    dir: &Path,
    piece_bytes: usize,
    fill: impl FnOnce(&mut Copy<'_>) -> Result<()>,
) -> Result<()> {
    let is_new = !storage.exists(dir)?;
    if is_new {
        storage.create_dir_all(dir)?;
    }
    let lock_path = dir.join(LOCK);
    let had_lock = storage.exists(&lock_path)?;
    // The lock prevents opening the incomplete copy, and writing another one here.
    let lock = storage.lock(&lock_path)?;
    let mut copy = Copy { storage, dir: dir.to_owned(), piece_bytes };
    let filled = storage.list(dir).and_then(|entries| match entries.into_iter().find(|entry| entry.name != LOCK) {
        Some(entry) => {
            let message = format!("a checkpoint needs an empty directory, and {} holds {}", dir.display(), entry.name);
            Err(Error::input(message))
        }
        None => fill(&mut copy).inspect_err(|_| copy.remove_all()),
    });
    if filled.is_err() {
        if !had_lock {
            // The first error is the one returned.
            let _ = storage.remove(&lock_path);
        }
        drop(lock);
        if is_new {
            let _ = storage.remove_dir(dir);
        }
    }
    filled
}

impl Copy<'_> {
    /// The path of a file of the copy, which has one directory.
    fn path(&self, file: FileKey) -> PathBuf {
        Dirs::one(self.dir.clone()).path(FileKey { dir: DirId::HOME, ..file })
    }

    /// Hard-links a file that never changes; returns false if that is impossible.
    fn link(&mut self, from: &Path, file: FileKey) -> Result<bool> {
        self.storage.link(from, &self.path(file))
    }

    /// Copies the first `len` bytes of a file, durably, and writes them as they are read: what lies on a slow device has a
    /// copy on one.
    fn copy(&mut self, (from, access): (Arc<dyn File>, Access), len: u64, file: FileKey) -> Result<()> {
        let to = self.storage.create(&self.path(file), access)?;
        let whole = std::iter::once(0..len).collect::<Vec<_>>();
        copy_file(from, (to.clone(), access), &whole, (self.piece_bytes, false), |_| {})?;
        to.sync()
    }

    /// The directory was empty except for the lock, which is ours. Files that reference others are removed first.
    fn remove_all(&self) {
        let entries = self.storage.list(&self.dir).unwrap_or_default();
        let (first, rest): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.name == crate::engine::manifest::file_names::CURRENT);
        for entry in first.into_iter().chain(rest).filter(|entry| entry.is_file && entry.name != LOCK) {
            let _ = self.storage.remove(&self.dir.join(&entry.name));
        }
    }
}
