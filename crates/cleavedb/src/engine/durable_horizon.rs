//! Up to which sequence number everything survives loss of power, and who is moving that (rule 2).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::Seqno;
use crate::base::error::Error;
use crate::sched::sync::{Condvar, Mutex};
use crate::sched::thread::JoinHandle;

/// How far history is durable, and who is moving that.
pub(crate) struct DurableHorizon {
    pub durable: AtomicU64,
    pub syncing: Mutex<Syncing>,
    pub synced: Condvar,
    pub interval: Mutex<IntervalState>,
    pub interval_changed: Condvar,
}

/// The thread that keeps `Interval` promises, started by the first one.
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
            syncing: Mutex::default(),
            synced: Condvar::new(),
            interval: Mutex::default(),
            interval_changed: Condvar::new(),
        }
    }

    /// Everything up to here survives loss of power.
    pub fn durable(&self) -> Seqno {
        Seqno(self.durable.load(Ordering::Acquire))
    }

    /// Everything up to `seqno` is durable by other means than the log.
    pub fn note_durable(&self, seqno: Seqno) {
        self.durable.fetch_max(seqno.0, Ordering::AcqRel);
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
            // A panic there has nobody left to tell; the close that follows syncs by itself.
            let _ = thread.join();
        }
    }
}

/// The sync in flight.
#[derive(Default)]
pub(crate) struct Syncing {
    pub is_running: bool,
    /// The failure after which no sync is tried any more: those that waited for it get it, too.
    pub failed: Option<Error>,
}
