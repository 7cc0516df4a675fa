//! Closing: makes everything durable, settles the logs, and removes files that only an open database needs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::Result;
use crate::base::panics::guard_panic;
use crate::engine::core::Core;
use crate::engine::inspect::telemetry;
use crate::engine::manifest::ManifestState;
use crate::engine::recovery::owner::{OwnerFile, next_openings};
use crate::engine::view::{Sources, View};
use crate::format::edit::{Edit, Opening, Openings};
use crate::format::frame::LOG_HEADER_BYTES;
use crate::format::values::ValuePlace;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::levels::version::Version;

/// Closing flushes if there are more logs than this, so that they do not accumulate over short sessions.
const LOGS_LEFT_MAX: usize = 4;

impl Core {
    /// Ends all work and leaves the database in a state that the next open need not repair. Only the first call does
    /// this; others wait for its end and return the same result.
    pub fn close(&self) -> Result<()> {
        let is_first = {
            let _commit = self.commit.lock();
            !self.closed.swap(true, Ordering::AcqRel)
        };
        if !is_first {
            let mut result = self.close_result.lock();
            while result.is_none() {
                self.close_ended.wait(&mut result);
            }
            return result.clone().unwrap_or(Ok(()));
        }
        let closed = guard_panic("a close", || self.close_once());
        *self.close_result.lock() = Some(closed.clone());
        self.close_ended.notify_all();
        // Last, because this waits for listeners, and a listener may itself be waiting in `close`.
        self.events.finish();
        closed
    }

    fn close_once(&self) -> Result<()> {
        self.work.begin_close();
        if self.settings.read_only {
            self.stop_background();
            self.release_files();
            self.locks.lock().clear();
            return Ok(());
        }
        let flushed = self.flush_at_close();
        // Logs that cannot move stay on the device, and the next open moves them.
        let _ = self.roll_back_at_close();
        self.horizon.stop();
        self.stop_background();
        // A full disk, or a failure before, leaves more logs to read.
        let _ = self.check_poison().and_then(|()| self.save_indexes_at_close());
        self.remove_stats_page();
        // A full disk fails the flush; the logs are settled nevertheless.
        let settled = self.settle();
        // From here on another process may own the directories.
        self.manifest.lock().close();
        // Ends the threads that write chunks.
        self.commit.lock().writer = None;
        if settled.is_ok() {
            self.remove_rings();
            self.reserve.remove();
        }
        self.locks.lock().clear();
        if self.settings.tuning.stats_interval.is_some() {
            telemetry::publish(self.dirs.fast(), &self.stats());
        }
        settled.and(flushed)
    }

    /// Flushes a large front; a small one is replayed faster than flushed. What a redirect has left is more than a close should
    /// wait for: the next open reads it.
    fn flush_at_close(&self) -> Result<()> {
        if self.bypass.redirects() {
            return Ok(());
        }
        let consumed = self.manifest.lock().state().watermarks.least();
        let view = self.published.view();
        let left: Vec<_> = view.logs.values().filter(|log| log.last_seqno() > consumed).collect();
        let bytes: u64 = left.iter().map(|log| log.end()).sum();
        if bytes > self.settings.tuning.close_flush_bytes || left.len() > LOGS_LEFT_MAX {
            self.flush_front(false)?;
        }
        Ok(())
    }

    /// Makes everything durable and writes into the manifest where each log ends.
    fn settle(&self) -> Result<()> {
        self.check_poison()?;
        self.sync()?;
        let mut manifest = self.manifest.lock();
        let consumed = manifest.state().watermarks.least();
        let mut edit = Edit { last_seqno: Some(self.horizon.durable()), ..Edit::default() };
        let view = self.published.view();
        let needless = self.logs.take_needless();
        let logs: Vec<Arc<LogFile>> = view.logs.values().cloned().chain(needless).collect();
        let mut settled = Vec::new();
        let indexed = self.indexed_files();
        for log in &logs {
            let named = manifest.state().logs.get(&log.id()).copied();
            let needed = log.last_seqno() > consumed;
            match named {
                Some(None) if needed => settled.push(log.clone()),
                Some(_)
                    if !needed
                        && (indexed.refers_to(log.id())
                            || manifest.state().values.referenced.of(log.id()).records > 0) =>
                {
                    edit.indexed.extend(Some(log.id()).filter(|log| indexed.refers_to(*log)));
                    edit.values_placed.push((log.id(), ValuePlace::Log { end: log.end() }));
                    settled.push(log.clone());
                }
                Some(_) if !needed => edit.logs_removed.push(log.id()),
                _ => {}
            }
        }
        let ended = settled.iter().filter(|log| log.last_seqno() > consumed);
        edit.logs_ended = ended.map(|log| (log.id(), log.end().max(LOG_HEADER_BYTES as u64))).collect();
        edit.openings = self.openings_at_close(manifest.state())?;
        if edit.logs_ended.len() + edit.logs_removed.len() + edit.values_placed.len() > 0 || edit.openings.is_some() {
            self.add_counters(&mut edit);
            self.reserve.with(|| self.commit_edit(&mut manifest, &edit))?;
        }
        if edit.openings.is_some() {
            for (dir, path) in self.dirs.others() {
                let replaced = self
                    .reserve
                    .with(|| OwnerFile::of(manifest.state(), dir, self.dirs.fast()).replace(&*self.storage, path));
                match self.guarded(replaced) {
                    Err(error) if !error.is_transient() => return Err(error),
                    // `OWNER` still has the opening before, with which the next open is content.
                    _ => {}
                }
            }
        }
        self.guarded(self.reserve.with(|| manifest.seal()))?;
        for log in &logs {
            if edit.logs_removed.contains(&log.id()) {
                log.mark_obsolete();
            }
        }
        // Frees the space reserved after the end; if that fails it stays reserved. Includes logs that recovery settled,
        // and logs that an earlier close could not truncate.
        for log in logs.iter().filter(|log| !edit.logs_removed.contains(&log.id())) {
            if log.file().len().is_ok_and(|len| len > log.end()) {
                let _ = self.storage.open(log.path()).and_then(|file| file.truncate(log.end()));
            }
        }
        drop(manifest);
        // Obsolete files are removed with their last holder, and this view is a holder.
        drop((settled, logs, view));
        self.release_files();
        while self.delete_one_pending() {}
        Ok(())
    }

    /// A new opening, if the slow directory is to be used with the manifest as it is now alone. A copy of the main
    /// directory that was made while the database was open knows the old one, and not the files that were made since:
    /// it would remove them. After a first close `OWNER` is known to exist, so no other directory is taken for the slow
    /// one.
    fn openings_at_close(&self, state: &ManifestState) -> Result<Option<Openings>> {
        let is_first = state.openings.previous == Opening::default();
        if self.dirs.others().next().is_none() || !(is_first || self.has_made_slow_files.load(Ordering::Acquire)) {
            return Ok(None);
        }
        Ok(Some(next_openings(state, Some(state.openings.present), self.storage.unique_number()?)))
    }

    /// Releases the view, so that obsolete files that no reader holds can be removed.
    fn release_files(&self) {
        let mut commit = self.commit.lock();
        commit.writer = None;
        commit.active = Arc::new(IndexTable::new());
        let empty = Sources {
            active: commit.active.clone(),
            sealed: Vec::new(),
            runs: Vec::new(),
            version: Arc::new(Version::default()),
            directory: Arc::default(),
            logs: Arc::default(),
            values: Arc::default(),
        };
        self.published.update(|_| View::new(empty));
        commit.unsynced.clear();
    }
}
