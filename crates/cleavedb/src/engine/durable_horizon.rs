//! The durable horizon: the sequence number up to which all writes survive loss of power (rule 2), and the state of the
//! sync that advances it. `write/durability.rs` syncs; jobs and the manifest read the horizon.

use std::cmp::Ordering;
use std::sync::atomic::{self, AtomicU64};
use std::time::Duration;

use crate::base::error::Error;
use crate::base::{FileId, Seqno};
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::JoinHandle;

/// The durable horizon, the sync in flight, and the interval thread.
pub(crate) struct DurableHorizon {
    pub durable: AtomicU64,
    /// The newest log that was synced, and up to where. Those before it were synced as a whole.
    pub synced_end: Mutex<(FileId, u64)>,
    pub syncing: Mutex<Syncing>,
    pub synced: Condvar,
    pub interval: Mutex<IntervalState>,
    pub interval_changed: Condvar,
}

/// The thread that syncs for `Durability::Interval`, started by the first write that requests it.
#[derive(Default)]
pub(crate) struct IntervalState {
    /// When the next sync is due.
    pub deadline: Option<Duration>,
    pub thread: Option<JoinHandle>,
    pub stop: bool,
}

impl DurableHorizon {
    pub fn new(durable: Seqno) -> DurableHorizon {
        DurableHorizon {
            durable: AtomicU64::new(durable.0),
            synced_end: Mutex::default(),
            syncing: Mutex::default(),
            synced: Condvar::new(),
            interval: Mutex::default(),
            interval_changed: Condvar::new(),
        }
    }

    /// All writes up to this sequence number survive loss of power.
    pub fn durable(&self) -> Seqno {
        Seqno(self.durable.load(atomic::Ordering::Acquire))
    }

    /// Up to where a log is durable, if a sync has covered some of it; `end` is where it ends now.
    pub fn synced_end_of(&self, log: FileId, end: u64) -> Option<u64> {
        let (newest, synced) = *self.synced_end.lock();
        match log.cmp(&newest) {
            Ordering::Less => Some(end),
            Ordering::Equal => Some(synced),
            Ordering::Greater => None,
        }
    }

    /// Notes that all writes up to `seqno` are durable by other means than a log sync, as by a flush.
    pub fn note_durable(&self, seqno: Seqno) {
        self.durable.fetch_max(seqno.0, atomic::Ordering::AcqRel);
    }

    /// Ends the interval thread.
    pub fn stop(&self) {
        let thread = {
            let mut interval = self.interval.lock();
            interval.stop = true;
            interval.thread.take()
        };
        self.interval_changed.notify_all();
        if let Some(thread) = thread {
            // A panic in the thread can be ignored: the close that follows syncs the logs itself.
            let _ = thread.join();
        }
    }
}

/// The sync in flight.
#[derive(Default)]
pub(crate) struct Syncing {
    pub is_running: bool,
    /// The failure after which no further sync is tried. All callers that waited for that sync get this error.
    pub failed: Option<Error>,
}
