//! The commit queue: waiting writers, and behind the commit lock the state that only their leader changes. Used by the
//! write path, and by jobs that must stop commits for a moment.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::base::{Result, Seqno};
use crate::engine::batch::Batch;
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::log_writer::LogWriter;
use crate::sched::sync::{Condvar, Mutex, MutexGuard};

/// The queue of waiting writers, and the state that only the leader changes.
pub(crate) struct CommitQueue {
    pub queue: Mutex<WriterQueue>,
    pub state: Mutex<CommitState>,
}

#[derive(Default)]
pub(crate) struct WriterQueue {
    pub waiting: VecDeque<WaitingWriter>,
    pub results: BTreeMap<u64, Result<Seqno>>,
    pub next_ticket: u64,
    pub has_leader: bool,
}

/// A writer whose batch a leader will commit.
pub(crate) struct WaitingWriter {
    pub ticket: u64,
    pub batch: Batch,
    /// Wakes this writer alone: its result is there, or it should lead.
    pub wakes: Arc<Condvar>,
}

impl WriterQueue {
    /// Ends a leader's turn; returns what wakes the writer that should lead next. Call it without the lock on the queue. A
    /// writer that comes before that one is awake leads instead.
    #[must_use]
    pub fn end_turn(&mut self) -> Option<Arc<Condvar>> {
        self.has_leader = false;
        self.waiting.front().map(|next| next.wakes.clone())
    }
}

/// The state behind the commit lock.
pub(crate) struct CommitState {
    /// Created by the first write, so that a database that is only read creates no ring and no log.
    pub writer: Option<LogWriter>,
    /// The newest assigned sequence number.
    pub last_seqno: Seqno,
    /// Logs before the active one that no sync has covered yet, oldest first.
    pub unsynced: Vec<Arc<LogFile>>,
    /// The view's active index table; it changes under the commit lock only.
    pub active: Arc<IndexTable>,
    /// Buffer for the checksums of a group's records, reused.
    pub crcs: Vec<u32>,
    /// Bytes written since the pace was last computed.
    pub unreviewed: u64,
}

impl CommitQueue {
    pub fn new(seqno: Seqno, active: Arc<IndexTable>) -> CommitQueue {
        let (unsynced, crcs) = (Vec::new(), Vec::new());
        let state = CommitState { writer: None, last_seqno: seqno, unsynced, active, crcs, unreviewed: 0 };
        CommitQueue { queue: Mutex::default(), state: Mutex::new(state) }
    }

    /// Takes the commit lock: while it is held, no other thread appends to the log.
    pub fn lock(&self) -> MutexGuard<'_, CommitState> {
        self.state.lock()
    }
}
