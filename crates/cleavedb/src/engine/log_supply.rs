//! The state of the log supply: the spare log, the ring, and logs to be removed from the manifest. `write/logs.rs`
//! creates and retires logs.

use std::ptr::addr_eq;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::{Error, FileId, Result};
use crate::engine::tuning::settings::LogBackend;
use crate::engine::tuning::sizes::Tuning;
use crate::front::chunk_writer::ChunkWriter;
use crate::front::log::LogFile;
use crate::io::Mapping;
use crate::sched::sync::Mutex;

/// The spare log, and the log back end. Its lock is never held across I/O, because it is taken under the work lock.
pub(crate) struct LogSupply {
    pub wanted: LogBackend,
    pub inner: Mutex<SupplyState>,
}

/// Values are read often if at least 1 in this many of the records written is read from files.
pub(crate) const READ_PART: u64 = 16;

/// Totals of writes and reads when the last log was created, and the result of comparing them.
#[derive(Default, Clone, Copy)]
pub(crate) struct ReadShare {
    pub records: u64,
    /// Misses of the value cache.
    pub reads: u64,
    /// True if values were read often; see [`READ_PART`].
    pub reads_often: bool,
}

#[derive(Default)]
pub(crate) struct SupplyState {
    /// The back end was chosen, by the first write since the database was opened.
    pub started: bool,
    /// The ring of logs created from now on; `None` for the plain back end.
    pub ring: Option<Arc<dyn Mapping>>,
    /// The ring has the name [`RING_NEW`](crate::engine::manifest::file_names::RING_NEW) until the first log created for
    /// it is written.
    pub ring_is_new: bool,
    /// The system refused a larger ring.
    pub ring_stays: bool,
    /// The chunk writer of the log writer, while there is one.
    pub chunks: Weak<ChunkWriter>,
    pub spare: Option<Arc<LogFile>>,
    /// A job is making the spare log, which may have its space already.
    pub spare_is_coming: bool,
    /// Logs that will never be written, but are still in the manifest: the next edit of a log removes them.
    pub to_retire: Vec<Arc<LogFile>>,
    /// The newest log taken by the log writer. Logs with lower numbers must not be written any more.
    pub newest_taken: FileId,
    /// The read share when the last log was created.
    pub pace: ReadShare,
}

impl SupplyState {
    /// True if `log` was made for the ring, and the ring still has its temporary name.
    pub fn waits_for_name(&self, log: &LogFile) -> bool {
        let is_for = |ring: &Arc<dyn Mapping>| log.ring().is_some_and(|of| addr_eq(Arc::as_ptr(ring), Arc::as_ptr(of)));
        self.ring_is_new && self.ring.as_ref().is_some_and(is_for)
    }
}

impl LogSupply {
    pub fn new(wanted: LogBackend) -> LogSupply {
        LogSupply { wanted, inner: Mutex::default() }
    }

    /// True if logs are being written and the next one is not ready.
    pub fn wants_spare(&self) -> bool {
        let inner = self.inner.lock();
        inner.started && inner.spare.is_none()
    }

    /// Size of the ring; 0 if there is none.
    pub fn ring_bytes(&self) -> u64 {
        self.inner.lock().ring.as_ref().map_or(0, |ring| ring.len() as u64)
    }

    /// Memory of the ring and the chunk buffers.
    pub fn buffer_bytes(&self, tuning: &Tuning) -> usize {
        let inner = self.inner.lock();
        inner.ring.as_ref().map_or(0, |ring| ring.len() + tuning.chunk_buffers_bytes(ring.len()))
    }

    /// The spare log, and whether a job is making one.
    pub fn spare(&self) -> (Option<Arc<LogFile>>, bool) {
        let inner = self.inner.lock();
        (inner.spare.clone(), inner.spare_is_coming)
    }

    /// Notes that a job begins or ends to make the spare log.
    pub fn note_coming(&self, is_coming: bool) {
        self.inner.lock().spare_is_coming = is_coming;
    }

    /// Takes the spare log.
    pub fn take_spare(&self) -> Option<Arc<LogFile>> {
        self.inner.lock().spare.take()
    }

    /// Returns a log that was taken and in which nothing was written: the next write takes it. A background job may have
    /// added another spare log meanwhile, which is newer and will never be written.
    pub fn put_back(&self, log: Arc<LogFile>) {
        let mut inner = self.inner.lock();
        let newer = inner.spare.replace(log);
        inner.to_retire.extend(newer);
    }

    /// Adds a new spare log. If a writer has meanwhile created a newer log, or returned the one that it took, the new log is
    /// never written, and the next edit of a log removes it.
    pub fn add_spare(&self, log: Arc<LogFile>) {
        let mut inner = self.inner.lock();
        if inner.spare.is_none() && log.id() > inner.newest_taken {
            inner.spare = Some(log);
        } else {
            inner.to_retire.push(log);
        }
    }

    /// Takes the logs that will never be written, to remove them from the manifest.
    pub fn take_to_retire(&self) -> Vec<Arc<LogFile>> {
        std::mem::take(&mut self.inner.lock().to_retire)
    }

    /// Returns logs that could not be removed from the manifest.
    pub fn put_back_to_retire(&self, logs: Vec<Arc<LogFile>>) {
        self.inner.lock().to_retire.extend(logs);
    }

    /// Takes the spare log and all other logs that will never be written.
    pub fn take_needless(&self) -> Vec<Arc<LogFile>> {
        let mut inner = self.inner.lock();
        let mut logs = std::mem::take(&mut inner.to_retire);
        logs.extend(inner.spare.take());
        logs
    }

    /// True if the options demand the ring, so that opening fails if it cannot be mapped.
    pub fn demands_ring(&self) -> bool {
        self.wanted == LogBackend::Ring
    }

    /// Waits until the log has a free buffer, so that an append does not wait for the disk.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if no buffer is free at `deadline`.
    pub fn wait_for_buffer(&self, deadline: Duration) -> Result<()> {
        let chunks = self.inner.lock().chunks.upgrade();
        match chunks.map_or(Ok(true), |chunks| chunks.wait_for_buffer(deadline))? {
            true => Ok(()),
            false => Err(Error::WouldStall),
        }
    }
}
