//! Where new logs come from: made and named in the manifest before they are needed, so that the commit path only
//! switches. Also where the back end is chosen, by the first write.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::limits::BLOCK_IO_BYTES;
use crate::base::{Error, FileKey, FileKind, Result, Seqno};
use crate::engine::core::Core;
use crate::engine::log_supply::{READ_PART, ReadShare};
use crate::engine::manifest::file_names::{RING, RING_NEW};
use crate::engine::tuning::settings::LogBackend;
use crate::format::edit::Edit;
use crate::format::frame::{LOG_HEADER_BYTES, encode_log_header};
use crate::front::chunk_writer::ChunkWriter;
use crate::front::log::LogFile;
use crate::front::log_writer::BackEnd;
use crate::io::{Access, AlignedBuffer, File, Mapping};

/// Maps the ring, a smaller one where the system allows little locked memory.
fn map_new_ring(core: &Core) -> Result<Option<Arc<dyn Mapping>>> {
    let mut bytes = core.settings.tuning.ring_bytes_for(core.next_log_bytes());
    let least = (bytes / 4).max(4 * BLOCK_IO_BYTES);
    while bytes >= least {
        if let Some(ring) = core.storage.map(&core.dirs.fast.join(RING), bytes)? {
            return Ok(Some(ring));
        }
        bytes /= 4;
    }
    Ok(None)
}

impl Core {
    /// The back end for the log writer; maps the ring.
    pub fn log_back_end(&self) -> Result<BackEnd> {
        let tuning = &self.settings.tuning;
        let Some(ring) = self.ring()? else {
            return Ok(BackEnd::Plain);
        };
        let chunk_bytes = tuning.chunk_bytes_for(ring.len());
        let chunks = ChunkWriter::start(tuning.chunk_threads, tuning.chunk_buffers, chunk_bytes)?;
        let chunks = Arc::new(chunks);
        self.logs.inner.lock().chunks = Arc::downgrade(&chunks);
        Ok(BackEnd::Ring { ring, chunks, chunk_bytes })
    }

    /// The ring that [`Core::grow_ring`] has made takes the place of the one before, of which nothing is needed any more.
    pub fn rename_ring(&self) -> Result<()> {
        let mut inner = self.logs.inner.lock();
        if std::mem::take(&mut inner.ring_is_new) {
            self.storage.rename(&self.dirs.fast.join(RING_NEW), &self.dirs.fast.join(RING))?;
        }
        Ok(())
    }

    /// The mapped ring; `None` for the plain back end.
    fn ring(&self) -> Result<Option<Arc<dyn Mapping>>> {
        let mut inner = self.logs.inner.lock();
        if !inner.started {
            let path = self.dirs.fast.join(RING);
            inner.ring = match self.logs.wanted {
                LogBackend::Plain => None,
                LogBackend::Auto => map_new_ring(self)?,
                LogBackend::Ring => Some(map_new_ring(self)?.ok_or_else(|| {
                    let message = format!("log back end Ring: {} cannot be mapped and locked here", path.display());
                    Error::input(message)
                })?),
            };
            inner.started = true;
        }
        Ok(inner.ring.clone())
    }

    /// Maps the ring before the first write.
    pub fn map_ring(&self) -> Result<()> {
        self.ring().map(drop)
    }

    /// A log with room for a frame of `bytes`: the spare, or a new one made while the writer waits. Its caller holds the
    /// commit lock. Logs are written in the order of their numbers, which is the order in which recovery reads them.
    pub fn take_log(&self, bytes: u64) -> Result<Arc<LogFile>> {
        let needed = LOG_HEADER_BYTES as u64 + bytes;
        let spare = self.logs.take_spare();
        let (log, too_small) = match spare {
            Some(spare) if needed <= spare.capacity() => (spare, None),
            too_small => match self.make_log(needed) {
                Ok(log) => (log, too_small),
                Err(error) => {
                    if let Some(log) = too_small {
                        let mut inner = self.logs.inner.lock();
                        // Another may have come in meanwhile.
                        let newer = inner.spare.replace(log);
                        inner.to_retire.extend(newer);
                    }
                    return Err(error);
                }
            },
        };
        let mut inner = self.logs.inner.lock();
        inner.newest_taken = log.id();
        // A spare may have come in meanwhile; it must not be written after this log.
        let too_late = inner.spare.take_if(|spare| spare.id() < log.id());
        drop(inner);
        self.retire_logs(too_small.into_iter().chain(too_late).collect())?;
        Ok(log)
    }

    /// The size that the next log should have.
    fn next_log_bytes(&self) -> u64 {
        self.settings.tuning.log_bytes_for(self.stored_bytes())
    }

    /// Maps a ring that suits larger logs, for the logs made from now on, under a name of its own: the one before is still
    /// being written. Nothing depends on it, so it may fail. Only the job that makes spare logs does this.
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
        let path = self.dirs.fast.join(RING_NEW);
        match self.reserve.beside(&path, || self.storage.map(&path, wanted)) {
            Ok(Some(ring)) => {
                let mut inner = self.logs.inner.lock();
                (inner.ring, inner.ring_is_new) = (Some(ring), true);
            }
            refused => {
                self.logs.inner.lock().ring_stays = refused.is_ok();
                // What was made of it only takes up space.
                let _ = self.storage.remove_mapped(&path);
            }
        }
    }

    /// Makes the next log ahead of time (a background job).
    pub fn prepare_spare_log(&self) -> Result<()> {
        self.grow_ring();
        let log = self.make_log(2 * LOG_HEADER_BYTES as u64)?;
        let mut inner = self.logs.inner.lock();
        if inner.spare.is_none() && log.id() > inner.newest_taken {
            inner.spare = Some(log);
            drop(inner);
            return self.retire_logs(Vec::new());
        }
        drop(inner);
        self.retire_logs(vec![log])
    }

    /// After a clean close nothing needs the rings.
    pub fn remove_rings(&self) {
        for name in [RING, RING_NEW] {
            // If it stays, the next clean close tries again.
            let _ = self.storage.remove_mapped(&self.dirs.fast.join(name));
        }
    }

    /// Makes an empty log of the usual size, or of `needed` bytes if that is more: space reserved, header durable, named
    /// in the manifest. On a small or nearly full disk it is smaller, down to `needed`.
    fn make_log(&self, needed: u64) -> Result<Arc<LogFile>> {
        let ring = self.ring()?;
        let key = self.new_file(FileKind::Log)?;
        let path = self.dirs.path(key);
        let access = match ring {
            Some(_) if !self.reads_values() => Access::Direct,
            _ => Access::Buffered,
        };
        let file = self.with_descriptors(|| self.storage.create(&path, access))?;
        let guard = self.guard(key);
        let capacity = self.start_log(key, &*file, needed).inspect_err(|error| {
            // Only then is it certain that the manifest does not name the log.
            if error.is_transient() {
                guard.mark_obsolete();
            }
        })?;
        let header_end = LOG_HEADER_BYTES as u64;
        Ok(Arc::new(LogFile::new(key.id, guard, file, ring, capacity, header_end, Seqno::ZERO)))
    }

    /// Since this was last asked, values were read that no cache of ours had, and not just a few for those that were written.
    /// What is written next will be read soon then, and the page cache should have it; else it would only be in the way.
    /// Too little was written since to say, if two logs are made in a row: then it is as before.
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

    fn start_log(&self, key: FileKey, file: &dyn File, needed: u64) -> Result<u64> {
        let capacity = self.reserve_log(file, needed)?;
        let mut block = AlignedBuffer::new(LOG_HEADER_BYTES);
        block.copy_from_slice(&encode_log_header(key.id));
        file.write_at(&block, 0)?;
        self.guarded(file.sync())?;
        self.guarded(self.with_descriptors(|| self.storage.sync_dir(self.dirs.of(key.tier))))?;
        self.counters.log_bytes.fetch_add(LOG_HEADER_BYTES as u64, Ordering::Relaxed);
        let mut edit = Edit { files_added: vec![key], logs_added: vec![key.id], ..Edit::default() };
        let mut manifest = self.manifest.lock();
        self.add_counters(&mut edit);
        self.commit_edit(&mut manifest, &edit)?;
        Ok(capacity)
    }

    /// Reserves space for a log, a sixteenth of the usual at worst; returns how much.
    fn reserve_log(&self, file: &dyn File, needed: u64) -> Result<u64> {
        let needed = needed.next_multiple_of(BLOCK_IO_BYTES as u64);
        let usual = self.next_log_bytes();
        // What a full log would have a flush write.
        self.reserve.grow(self.stored_bytes() + usual);
        let sizes = [usual, usual / 4, usual / 16].map(|size| size.next_multiple_of(BLOCK_IO_BYTES as u64).max(needed));
        let mut result = Ok(true);
        for size in sizes {
            result = self.reserve.beside(file.path(), || file.allocate(size));
            match &result {
                Ok(_) => return Ok(size),
                Err(Error::NoSpace { .. }) => {}
                Err(_) => break,
            }
        }
        result.map(|_| needed)
    }

    /// Forgets these logs, and those that are still to be forgotten; their files go with their last holders. Without space
    /// for the edit they wait for the next time.
    fn retire_logs(&self, logs: Vec<Arc<LogFile>>) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let mut all = std::mem::take(&mut self.logs.inner.lock().to_retire);
        all.extend(logs);
        if all.is_empty() {
            return Ok(());
        }
        let mut edit = Edit { logs_removed: all.iter().map(|log| log.id()).collect(), ..Edit::default() };
        self.add_counters(&mut edit);
        match self.commit_edit(&mut manifest, &edit) {
            Ok(()) => all.iter().for_each(|log| log.mark_obsolete()),
            Err(error) if error.is_transient() => self.logs.inner.lock().to_retire = all,
            Err(error) => return Err(error),
        }
        Ok(())
    }
}
