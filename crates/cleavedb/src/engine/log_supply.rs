//! Where the next log comes from: the spare log, the ring, and logs that wait to be forgotten.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::{Error, FileId, Result};
use crate::engine::tuning::settings::LogBackend;
use crate::engine::tuning::sizes::Tuning;
use crate::front::chunk_writer::ChunkWriter;
use crate::front::log::LogFile;
use crate::io::Mapping;
use crate::sched::sync::Mutex;

/// The next log, if it is ready, and how logs are written.
pub(crate) struct LogSupply {
    pub wanted: LogBackend,
    pub inner: Mutex<SupplyState>,
}

/// Of the values that are written, one in so many is read from files: often, that is.
pub(crate) const READ_PART: u64 = 16;

/// How much was written and read so far.
#[derive(Default, Clone, Copy)]
pub(crate) struct ReadShare {
    pub records: u64,
    /// Values that the value cache did not have.
    pub reads: u64,
    /// What followed from both when they were looked at last.
    pub reads_often: bool,
}

#[derive(Default)]
pub(crate) struct SupplyState {
    /// Logs have been written since the database was opened.
    pub started: bool,
    /// That of logs made from now on.
    pub ring: Option<Arc<dyn Mapping>>,
    /// The ring is called [`RING_NEW`] until the first log that was made for it is written.
    pub ring_is_new: bool,
    /// The system does not give a larger one.
    pub ring_stays: bool,
    /// Those of the log writer, as long as there is one.
    pub chunks: Weak<ChunkWriter>,
    pub spare: Option<Arc<LogFile>>,
    /// FileReferences by the manifest, and never to be written: there was no space yet to say so.
    pub to_retire: Vec<Arc<LogFile>>,
    /// No log made before this one may be written any more.
    pub newest_taken: FileId,
    /// When the last log was made.
    pub pace: ReadShare,
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

    /// Memory of the ring and the chunk buffers.
    pub fn buffer_bytes(&self, tuning: &Tuning) -> usize {
        let inner = self.inner.lock();
        inner.ring.as_ref().map_or(0, |ring| ring.len() + tuning.chunk_buffers_bytes(ring.len()))
    }

    /// Gives up the spare.
    pub fn take_spare(&self) -> Option<Arc<LogFile>> {
        self.inner.lock().spare.take()
    }

    /// Gives up the spare and whatever else will never be written.
    pub fn take_needless(&self) -> Vec<Arc<LogFile>> {
        let mut inner = self.inner.lock();
        let mut logs = std::mem::take(&mut inner.to_retire);
        logs.extend(inner.spare.take());
        logs
    }

    /// True if the caller demanded the ring, so that it must be had or refused at open.
    pub fn demands_ring(&self) -> bool {
        self.wanted == LogBackend::Ring
    }

    /// Waits until the log can take more without waiting for the disk.
    ///
    /// # Errors
    /// [`Error::WouldStall`] if it cannot at `deadline`.
    pub fn wait_for_buffer(&self, deadline: Duration) -> Result<()> {
        let chunks = self.inner.lock().chunks.upgrade();
        match chunks.map_or(Ok(true), |chunks| chunks.wait_for_buffer(deadline))? {
            true => Ok(()),
            false => Err(Error::WouldStall),
        }
    }
}
