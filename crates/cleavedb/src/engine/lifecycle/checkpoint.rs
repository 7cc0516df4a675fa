//! Checkpoints: a consistent copy of the database in another directory, usable at once.
//!
//! Tables never change, so they get one more name where the file system allows it, and are copied where it does not. Logs
//! do change (a close cuts what is reserved behind their end, recovery writes doubtful frames again), so they are always
//! copied, up to an end that is synced; the copy's manifest says that they end there, and opening it repairs nothing
//! (rule 4). `CURRENT` is written last: a copy that was cut short does not open as a database.
//!
//! Everything lands in one directory, whatever directories the original has, under a database number of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::base::panics::guard_panic;
use crate::base::{Error, FileId, FileKey, Result, Seqno, verify};
use crate::engine::core::Core;
use crate::engine::layer::Layer;
use crate::engine::manifest::file_names::LOCK;
use crate::engine::manifest::files::Dirs;
use crate::engine::manifest::{Manifest, ManifestState};
use crate::engine::view::View;
use crate::format::edit::Openings;
use crate::format::values::ValuePlace;
use crate::front::log::LogFile;
use crate::io::{Access, Storage, read_exact_at};
use crate::sched::clock::now;

/// Files are copied in pieces of this size.
const COPY_BYTES: usize = 1 << 20;

/// What a checkpoint is made of, captured at one moment and kept until it is written.
struct Captured {
    state: ManifestState,
    /// The logs of the front: those that hold what is not in tables, and those that only hold values, and how far they are
    /// copied.
    logs: Vec<(Arc<LogFile>, u64)>,
    last_seqno: Seqno,
    /// Lists the tables, and keeps all files.
    view: Arc<View>,
}

impl Core {
    /// Writes a copy of the database as it is now into `target`.
    pub fn checkpoint(&self, target: &Path) -> Result<()> {
        self.check_writable()?;
        let target = self.check_target(target)?;
        // After a close someone else may remove what is to be copied.
        let _writing = self.begin_writer("checkpoint")?;
        let captured = self.capture()?;
        self.sync_to(captured.last_seqno)?;
        let copied =
            guard_panic("a checkpoint", || copy_into(&*self.storage, &target, |copy| self.fill(copy, &captured)));
        // A file that went from the database meanwhile was kept by the view.
        drop(captured);
        if self.pending_deletions.has_work(now()) {
            self.work.wake();
        }
        copied
    }

    /// The target may not be, hold or lie in a directory of the database.
    fn check_target(&self, target: &Path) -> Result<PathBuf> {
        let real = self.storage.real_path(target)?;
        for own in [&self.dirs.fast, &self.dirs.slow] {
            let own = self.storage.real_path(own)?;
            if real.starts_with(&own) {
                let message =
                    format!("a checkpoint in {} would lie in the database itself, {}", target.display(), own.display());
                return Err(Error::input(message));
            }
        }
        Ok(real)
    }

    /// With both locks, nothing is appended, and tables and manifest say the same.
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
        // A log of which everything is in tables may still hold values.
        let values: Vec<_> = view
            .logs
            .values()
            .filter(|log| log.last_seqno() <= consumed && state.values.referenced.of(log.id()).records > 0)
            .map(|log| (log.clone(), log.end()))
            .collect();
        for (log, end) in &values {
            state.values.places.insert(log.id(), ValuePlace::Log { end: *end });
            state.values.credit.grant(*end);
        }
        state.logs = logs.iter().map(|(log, end)| (log.id(), Some(*end))).collect();
        state.forget_unused_files();
        state.last_seqno = commit.last_seqno;
        state.next_file = self.numbers.next();
        let logs = logs.into_iter().chain(values).collect();
        Ok(Captured { state, logs, last_seqno: commit.last_seqno, view })
    }

    fn fill(&self, copy: &mut Copy<'_>, captured: &Captured) -> Result<()> {
        let state = &captured.state;
        // How much of each file is copied where it cannot be linked.
        let tables = captured.view.layers().iter().flat_map(Layer::tables);
        let mut files: BTreeMap<FileId, u64> = tables.map(|table| (table.meta().id, table.meta().size)).collect();
        let copied: BTreeSet<FileId> = captured.logs.iter().map(|(log, _)| log.id()).collect();
        // Several extents, or redirect tables, may lie in one file; as much of it is copied as they need.
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
                copy.copy(&*self.storage.open_read(&from, Access::Buffered)?, end, file)?;
            }
        }
        for (log, end) in &captured.logs {
            self.check_open()?;
            copy.copy(&**log.file(), *end, state.file(log.id()))?;
        }
        // A database of its own: one that shared its number with this one could be opened with this one's tables.
        let database = self.storage.unique_number()?;
        let mut state =
            ManifestState { database, has_slow_dir: false, openings: Openings::default(), ..captured.state.clone() };
        // The number of its manifest must be one of its own as well.
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
    buffer: Vec<u8>,
}

/// Fills an empty or new directory; leaves it as it was if that fails.
fn copy_into(storage: &dyn Storage, dir: &Path, fill: impl FnOnce(&mut Copy<'_>) -> Result<()>) -> Result<()> {
    let is_new = !storage.exists(dir)?;
    if is_new {
        storage.create_dir_all(dir)?;
    }
    let lock_path = dir.join(LOCK);
    let had_lock = storage.exists(&lock_path)?;
    // Whoever opens the copy before it is whole, or makes another one here, is refused.
    let lock = storage.lock(&lock_path)?;
    let mut copy = Copy { storage, dir: dir.to_owned(), buffer: Vec::new() };
    let filled = storage.list(dir).and_then(|entries| match entries.into_iter().find(|entry| entry.name != LOCK) {
        Some(entry) => {
            let message = format!("a checkpoint needs an empty directory, and {} holds {}", dir.display(), entry.name);
            Err(Error::input(message))
        }
        None => fill(&mut copy).inspect_err(|_| copy.remove_all()),
    });
    if filled.is_err() {
        if !had_lock {
            // The first error is the one to report.
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
    /// Where a file of the copy lies, in which both tiers are one directory.
    fn path(&self, file: FileKey) -> PathBuf {
        Dirs { fast: self.dir.clone(), slow: self.dir.clone() }.path(file)
    }

    /// One more name for a file that never changes; false where that cannot be.
    fn link(&mut self, from: &Path, file: FileKey) -> Result<bool> {
        self.storage.link(from, &self.path(file))
    }

    /// The first `len` bytes of a file, durably.
    fn copy(&mut self, from: &dyn crate::io::File, len: u64, file: FileKey) -> Result<()> {
        let to = self.storage.create(&self.path(file), Access::Buffered)?;
        self.buffer.resize(COPY_BYTES, 0);
        let mut offset = 0;
        while offset < len {
            let part = &mut self.buffer[..COPY_BYTES.min(usize::try_from(len - offset).unwrap_or(COPY_BYTES))];
            read_exact_at(from, part, offset)?;
            to.write_at(part, offset)?;
            offset += part.len() as u64;
        }
        to.sync()
    }

    /// The directory was empty but for the lock, and the lock is ours. What names the rest goes first.
    fn remove_all(&self) {
        let entries = self.storage.list(&self.dir).unwrap_or_default();
        let (first, rest): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| entry.name == crate::engine::manifest::file_names::CURRENT);
        for entry in first.into_iter().chain(rest).filter(|entry| entry.is_file && entry.name != LOCK) {
            let _ = self.storage.remove(&self.dir.join(&entry.name));
        }
    }
}
