//! The supply of logs: logs are created, and added to the manifest, before they are needed, so that the commit path
//! only switches to them. The first log chooses the log back end. Called by the commit path and by the job for spare
//! logs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{DirId, Error, FileId, FileKey, FileKind, Result, Seqno};
use crate::bypass::birthplace::Birthplace;
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::engine::log_supply::{READ_PART, ReadShare};
use crate::engine::manifest::file_names::{RING, RING_NEW};
use crate::engine::tuning::settings::LogBackend;
use crate::engine::tuning::tiers::FastFill;
use crate::engine::write::pacing::unflushed_log_bytes;
use crate::format::edit::Edit;
use crate::format::frame::{LOG_HEADER_BYTES, encode_log_header};
use crate::front::chunk_writer::ChunkWriter;
use crate::front::log::LogFile;
use crate::front::log_writer::BackEnd;
use crate::io::split_file::SplitFile;
use crate::io::{Access, AlignedBuffer, File, Mapping};
use crate::values::candidate::Candidate;

/// Space for the beginnings of the extents of a segment.
const EXTENTS_BYTES: u64 = 64 * BLOCK_IO_BYTES as u64;
/// Logs are written through the page cache while the system has memory for everything stored and this many logs.
const PAGE_CACHE_LOGS: u64 = 2;

/// Maps the ring; a smaller one if the system limits locked memory.
fn map_new_ring(core: &Core) -> Result<Option<Arc<dyn Mapping>>> {
    let mut bytes = core.settings.tuning.ring_bytes_for(core.next_log_bytes());
    let least = (bytes / 4).max(4 * BLOCK_IO_BYTES);
    while bytes >= least {
        if core.fast.claim(Occupant::Ring, bytes as u64)
            && let Some(ring) = core.storage.map(&core.dirs.fast().join(RING), bytes)?
        {
            return Ok(Some(ring));
        }
        bytes /= 4;
    }
    // Logs cannot be written without it, so that what lies on the fast tier has to make room.
    let ring = core.storage.map(&core.dirs.fast().join(RING), least)?;
    core.fast.note(Occupant::Ring, ring.as_ref().map_or(0, |ring| ring.len() as u64));
    Ok(ring)
}

/// The edit that adds a log, and removes others.
pub(crate) fn log_edit(added: Option<&LogFile>, removed: &[Arc<LogFile>]) -> Edit {
    Edit {
        files_added: added.iter().map(|log| log.key()).collect(),
        logs_added: added.iter().map(|log| log.id()).collect(),
        logs_removed: removed.iter().map(|log| log.id()).collect(),
        ..Edit::default()
    }
}

impl Core {
    /// The back end of a log writer for `log`: the ring that the log was made for, or the page cache.
    pub fn log_back_end(&self, log: &LogFile) -> Result<BackEnd> {
        let tuning = &self.settings.tuning;
        let Some(ring) = log.ring().cloned() else {
            return Ok(BackEnd::Plain);
        };
        let chunk_bytes = tuning.chunk_bytes_for(ring.len());
        let chunks = ChunkWriter::start(tuning.chunk_threads, tuning.chunk_buffers, chunk_bytes)?;
        let chunks = Arc::new(chunks);
        self.logs.inner.lock().chunks = Arc::downgrade(&chunks);
        Ok(BackEnd::Ring { ring, chunks, chunk_bytes })
    }

    /// Gives the ring created by [`Core::grow_ring`] its final name, before the first frame of a log that was made for
    /// it. The old ring must no longer be needed for recovery. The caller holds the commit lock. After an error nothing
    /// has changed, and the next call tries again.
    pub fn rename_ring(&self, log: &LogFile) -> Result<()> {
        if self.logs.inner.lock().waits_for_name(log) {
            self.storage.rename(&self.dirs.fast().join(RING_NEW), &self.dirs.fast().join(RING))?;
            self.logs.inner.lock().ring_is_new = false;
            self.fast.replace_ring();
        }
        Ok(())
    }

    /// The mapped ring; `None` for the plain back end. The first call chooses the back end and maps the ring, without
    /// the lock of the supply, which others take under the work lock. That call comes from `open` or from the holder of
    /// the commit lock: no job makes a log before.
    fn ring(&self) -> Result<Option<Arc<dyn Mapping>>> {
        {
            let inner = self.logs.inner.lock();
            if inner.started {
                return Ok(inner.ring.clone());
            }
        }
        let ring = match self.logs.wanted {
            LogBackend::Plain => None,
            LogBackend::Auto => map_new_ring(self)?,
            LogBackend::Ring => Some(map_new_ring(self)?.ok_or_else(|| {
                let path = self.dirs.fast().join(RING);
                let message = format!("log back end Ring: {} cannot be mapped and locked", path.display());
                Error::input(message)
            })?),
        };
        let mut inner = self.logs.inner.lock();
        (inner.ring, inner.started) = (ring.clone(), true);
        Ok(ring)
    }

    /// Maps the ring before the first write.
    pub fn map_ring(&self) -> Result<()> {
        self.ring().map(drop)
    }

    /// A log with room for a frame of `bytes`: the spare log, or a new one created while the writer waits. The caller
    /// holds the commit lock. Logs are written in the order of their numbers, because recovery reads them in that
    /// order.
    pub fn take_log(&self, bytes: u64) -> Result<Arc<LogFile>> {
        let needed = LOG_HEADER_BYTES as u64 + bytes;
        let spare = self.logs.take_spare();
        let (log, too_small) = match spare {
            Some(spare) if needed <= spare.capacity() => (spare, None),
            too_small => match self.make_log(needed) {
                Ok(log) => (log, too_small),
                Err(error) => {
                    too_small.into_iter().for_each(|log| self.logs.put_back(log));
                    return Err(error);
                }
            },
        };
        let mut inner = self.logs.inner.lock();
        inner.newest_taken = log.id();
        // A spare log with a lower number may have been added meanwhile; it must not be written after this one.
        let too_late = inner.spare.take_if(|spare| spare.id() < log.id());
        drop(inner);
        self.retire_logs(too_small.into_iter().chain(too_late).collect())?;
        Ok(log)
    }

    /// The target size of the next log.
    fn next_log_bytes(&self) -> u64 {
        self.settings.tuning.log_bytes_for(self.stored_bytes())
    }

    /// Maps a larger ring for new, larger logs. It has a temporary name, because the old ring is still being written. A
    /// failure is ignored: logs continue to use the old ring. Only the job for spare logs calls this.
    fn grow_ring(&self) {
        let wanted = self.settings.tuning.ring_bytes_for(self.next_log_bytes());
        {
            let inner = self.logs.inner.lock();
            let len = inner.ring.as_ref().map_or(usize::MAX / 4, |ring| ring.len());
            if inner.ring_is_new
                || inner.ring_stays
                || wanted < 4 * len && (wanted <= len || wanted < self.settings.tuning.ring_bytes)
            {
                return;
            }
        }
        if !self.fast.claim(Occupant::NewRing, wanted as u64) {
            return;
        }
        let path = self.dirs.fast().join(RING_NEW);
        match self.reserve.beside(&path, || self.storage.map(&path, wanted)) {
            Ok(Some(ring)) => {
                let mut inner = self.logs.inner.lock();
                (inner.ring, inner.ring_is_new) = (Some(ring), true);
            }
            refused => {
                self.logs.inner.lock().ring_stays = refused.is_ok();
                // A partly created ring only takes up space.
                let _ = self.storage.remove_mapped(&path);
                self.fast.release(Occupant::NewRing);
            }
        }
    }

    /// Creates the file of the spare log, which becomes a log by an edit (a background job).
    pub fn create_spare_log(&self) -> Result<Arc<LogFile>> {
        self.grow_ring();
        self.create_log(2 * LOG_HEADER_BYTES as u64)
    }

    /// Removes the rings. After a clean close recovery does not need them.
    pub fn remove_rings(&self) {
        for name in [RING, RING_NEW] {
            // If the removal fails, the next clean close tries again.
            let _ = self.storage.remove_mapped(&self.dirs.fast().join(name));
        }
    }

    /// Creates an empty log for a writer that waits for it.
    fn make_log(&self, needed: u64) -> Result<Arc<LogFile>> {
        let log = self.create_log(needed)?;
        match self.commit_to_manifest(log_edit(Some(&log), &[])) {
            Ok(()) => Ok(log),
            Err(error) => {
                // After any other error the manifest may reference the log.
                if error.is_transient() {
                    log.mark_obsolete();
                }
                Err(error)
            }
        }
    }

    /// Creates the file of an empty log of the usual size, or of `needed` bytes if that is more. Its space is reserved and
    /// its header is durable; the manifest does not reference it yet. On a small or nearly full disk the log is smaller,
    /// down to `needed`. Where the fast tier has no room for it, it is made on the slow tier, so that no write waits for
    /// room, and none fails for its size.
    fn create_log(&self, needed: u64) -> Result<Arc<LogFile>> {
        let ring = self.ring()?;
        let mut id = self.new_file_id()?;
        let sizes = self.log_sizes(needed);
        let elsewhere = match self.birthplace(&sizes) {
            Birthplace::Fast => None,
            Birthplace::Slow => Some((self.dirs.slow_id(), &self.bypass.logs_born_slow)),
            Birthplace::Device => self.dirs.device().map(|dir| (dir, &self.bypass.logs_born_on_device)),
        };
        if let Some((dir, born)) = elsewhere {
            self.note_made_in(dir);
            match self.create_log_in(dir, id, &sizes, ring.clone()) {
                // Its file goes later, so the next one has another name.
                Err(Error::NoSpace { .. }) => id = self.new_file_id()?,
                made => {
                    born.fetch_add(u64::from(made.is_ok()), Ordering::Relaxed);
                    return made;
                }
            }
        }
        let granted = sizes.iter().position(|size| self.fast.claim(Occupant::File(id), *size));
        let made = granted.map(|first| self.create_log_in(DirId::HOME, id, &sizes[first..], ring.clone()));
        match made {
            Some(Err(Error::NoSpace { .. })) | None if self.dirs.are_apart() => {
                self.note_made_in(self.dirs.slow_id());
                self.create_log_in(self.dirs.slow_id(), id, &sizes, ring)
            }
            Some(made) => made,
            None => unreachable!("a database with one directory has no budget for it"),
        }
    }

    /// The sizes of a new log, the usual one first.
    fn log_sizes(&self, needed: u64) -> [u64; 3] {
        let (usual, needed) = (self.next_log_bytes(), needed.next_multiple_of(BLOCK_IO_BYTES as u64));
        [usual, usual / 4, usual / 16].map(|size| size.next_multiple_of(BLOCK_IO_BYTES as u64).max(needed))
    }

    /// The capacity of the largest logs of the usual size: whole blocks.
    pub(super) fn log_capacity_max(&self) -> u64 {
        self.settings.tuning.log_bytes.next_multiple_of(BLOCK_IO_BYTES as u64)
    }

    /// True if the fast tier has room for a log of the usual size.
    pub fn has_room_for_log(&self) -> bool {
        let FastFill { budget, bytes } = self.fast_fill();
        bytes.saturating_add(self.next_log_bytes()) <= budget.min(self.fast.claimable())
    }

    /// As [`create_log`](Core::create_log), in a directory, of the first of these sizes that has room.
    fn create_log_in(
        &self,
        dir: DirId,
        id: FileId,
        sizes: &[u64],
        ring: Option<Arc<dyn Mapping>>,
    ) -> Result<Arc<LogFile>> {
        let key = FileKey { kind: FileKind::Log, id, dir };
        let path = self.dirs.path(key);
        // On a fast tier of its own, values that were just written may be in the page cache, whatever was asked of the other.
        let may_be_cached =
            dir == DirId::HOME && (self.dirs.are_apart() || self.readers.fast_access == Access::Buffered);
        let access = match ring {
            Some(_) if dir != DirId::HOME => self.readers.slow_access,
            Some(_) if !may_be_cached || !self.caches_logs() => Access::Direct,
            _ => Access::Buffered,
        };
        let created = self.with_descriptors(|| self.storage.create(&path, access));
        let mut file = created.inspect_err(|_| self.fast.release(Occupant::File(id)))?;
        let guard = self.guard(key);
        if !may_be_cached && access == Access::Direct {
            let reads = self.with_descriptors(|| self.storage.open_read(&path, access));
            file = Arc::new(SplitFile::new(reads.inspect_err(|_| guard.mark_obsolete())?, file));
        }
        let capacity = self.start_log(key, &*file, sizes).inspect_err(|_| guard.mark_obsolete())?;
        if dir == DirId::HOME {
            self.fast.note(Occupant::File(id), capacity);
        }
        let header_end = LOG_HEADER_BYTES as u64;
        Ok(Arc::new(LogFile::new(key.id, guard, file, ring, capacity, header_end, Seqno::ZERO)))
    }

    /// True if the next log is written through the page cache: if all that is stored fits into memory, so that values
    /// that were just written are read from there, or if such values are read often. Otherwise the log bypasses the page
    /// cache, which saves the work of copying into it and of evicting other pages (decision 039).
    fn caches_logs(&self) -> bool {
        let wanted = self.stored_bytes() + PAGE_CACHE_LOGS * self.next_log_bytes();
        self.reads_values() || self.storage.available_memory() >= wanted
    }

    /// True if, since the last call, value cache misses were at least 1 in [`READ_PART`] of the records written. New
    /// values are then likely to be read soon, so the log is written through the page cache; otherwise the log bypasses
    /// it. If too few records were written since the last call, as when two logs are created in a row, the last result
    /// stands.
    fn reads_values(&self) -> bool {
        let (records, reads) = (self.published.seqno().0, self.memory.value_cache.misses());
        let pace = &mut self.logs.inner.lock().pace;
        let written = records.saturating_sub(pace.records);
        if written >= READ_PART {
            let read = reads.saturating_sub(pace.reads);
            *pace = ReadShare { records, reads, reads_often: read >= written / READ_PART };
        }
        pace.reads_often
    }

    fn start_log(&self, key: FileKey, file: &dyn File, sizes: &[u64]) -> Result<u64> {
        let capacity = self.reserve_log(file, sizes)?;
        let mut block = AlignedBuffer::new(LOG_HEADER_BYTES);
        block.copy_from_slice(&encode_log_header(key.id));
        file.write_at(&block, 0)?;
        self.guarded(file.sync())?;
        self.guarded(self.with_descriptors(|| self.storage.sync_dir(self.dirs.of(key.dir))))?;
        self.counters.log_bytes.fetch_add(LOG_HEADER_BYTES as u64, Ordering::Relaxed);
        Ok(capacity)
    }

    /// Allocates space for a log, of the first of these sizes that the file system has; returns it.
    fn reserve_log(&self, file: &dyn File, sizes: &[u64]) -> Result<u64> {
        self.grow_reserve();
        let mut refused = Error::no_space(file.path());
        for size in sizes {
            match self.reserve.beside(file.path(), || file.allocate(*size)) {
                Ok(_) => return Ok(*size),
                Err(error @ Error::NoSpace { .. }) => refused = error,
                Err(error) => return Err(error),
            }
        }
        Err(refused)
    }

    /// Lets the reserve suffice for a flush of what the front holds and of another full log, and for the copy of the
    /// value file with most live bytes.
    pub fn grow_reserve(&self) {
        let view = self.published.view();
        let carried = unflushed_log_bytes(&view, self.work.flushed()).carried;
        let largest = view.values.figures().candidates.iter().map(Candidate::live_bytes).max().unwrap_or(0);
        let largest = self.next_log_bytes().max(largest);
        // A redirect table has up to an eighth of the records it leads to, and extents begin at blocks.
        self.reserve.grow(carried + largest + largest / 8 + EXTENTS_BYTES);
    }

    /// Removes these logs, and those of earlier failed attempts, from the manifest. Their files are deleted once
    /// nothing holds them. If there is no space for the edit, the next call tries again.
    fn retire_logs(&self, logs: Vec<Arc<LogFile>>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut all = self.logs.take_to_retire();
        all.extend(logs);
        if all.is_empty() {
            return Ok(());
        }
        let mut edit = log_edit(None, &all);
        self.add_counters(&mut edit);
        match self.commit_edit(&mut manifest, &edit) {
            Ok(()) => all.iter().for_each(|log| log.mark_obsolete()),
            Err(error) if error.is_transient() => self.logs.put_back_to_retire(all),
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
