//! The writers' queue, and the state that only its leader touches: the commit lock.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::{Result, Seqno};
use crate::engine::batch::Batch;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::log_writer::LogWriter;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};

/// The writers' queue and the state that only the leader touches.
pub(crate) struct CommitQueue {
    pub queue: Mutex<WriterQueue>,
    pub done: Condvar,
    pub state: Mutex<CommitState>,
}

#[derive(Default)]
pub(crate) struct WriterQueue {
    pub waiting: VecDeque<(u64, Batch)>,
    pub results: BTreeMap<u64, Result<Seqno>>,
    pub next_ticket: u64,
    pub has_leader: bool,
}

/// What the holder of the commit lock owns.
pub(crate) struct CommitState {
    /// Made by the first write, so that a database that is only read makes no ring and no log.
    pub writer: Option<LogWriter>,
    /// The newest sequence number given out.
    pub last_seqno: Seqno,
    /// Logs before the active one that no sync has covered yet, oldest first.
    pub unsynced: Vec<Arc<LogFile>>,
    /// The view's active index table; it changes under the commit lock only.
    pub active: Arc<IndexTable>,
    /// Checksums of the group's records, reused.
    pub crcs: Vec<u32>,
    /// Bytes written since the pace was last looked at.
    pub unreviewed: u64,
}

impl CommitQueue {
    pub fn new(seqno: Seqno, active: Arc<IndexTable>) -> CommitQueue {
        let (unsynced, crcs) = (Vec::new(), Vec::new());
        let state = CommitState { writer: None, last_seqno: seqno, unsynced, active, crcs, unreviewed: 0 };
        CommitQueue { queue: Mutex::default(), done: Condvar::new(), state: Mutex::new(state) }
    }

    /// The commit lock: nothing is appended while it is held.
    pub fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }
}
