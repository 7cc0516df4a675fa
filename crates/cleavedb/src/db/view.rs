//! What a read sees: one immutable view of all sources, taken together with the published sequence number.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::{FileId, Seqno};
use crate::front::index_table::IndexTable;
use crate::front::log::LogFile;
use crate::front::run::Run;
use crate::levels::version::Version;
use crate::sched::sync::RwLock;

/// All sources of versions at one moment. Holding it keeps their files.
#[derive(Clone)]
pub(crate) struct View {
    /// Takes new versions.
    pub active: Arc<IndexTable>,
    /// Full, waiting to become runs; newest first.
    pub sealed: Vec<Arc<IndexTable>>,
    /// Newest first.
    pub runs: Vec<Arc<Run>>,
    /// The tables.
    pub version: Arc<Version>,
    /// The logs that addresses may name.
    pub logs: Arc<BTreeMap<FileId, Arc<LogFile>>>,
}

impl View {
    /// Memory of index tables and runs, in bytes.
    pub fn front_bytes(&self) -> usize {
        let sealed: usize = self.sealed.iter().map(|table| table.bytes()).sum();
        let runs: usize = self.runs.iter().map(|run| run.bytes()).sum();
        self.active.bytes() + sealed + runs
    }
}

/// The current view and the newest visible sequence number. The two are read together: everything at or below the
/// number is in the view, and nothing that a reader at the number needs has been dropped from it.
pub(crate) struct Published {
    view: RwLock<Arc<View>>,
    seqno: AtomicU64,
}

impl Published {
    pub fn new(view: View, seqno: Seqno) -> Published {
        Published {
            view: RwLock::new(Arc::new(view)),
            seqno: AtomicU64::new(seqno.0),
        }
    }

    /// The view and the newest visible sequence number.
    pub fn read(&self) -> (Arc<View>, Seqno) {
        let view = self.view.read();
        (view.clone(), self.seqno())
    }

    /// The view alone.
    pub fn view(&self) -> Arc<View> {
        self.view.read().clone()
    }

    /// The newest visible sequence number alone.
    pub fn seqno(&self) -> Seqno {
        Seqno(self.seqno.load(Ordering::Acquire))
    }

    /// Makes everything up to `seqno` visible. Only the commit path calls this, after the insertions.
    pub fn publish(&self, seqno: Seqno) {
        self.seqno.store(seqno.0, Ordering::Release);
    }

    /// Replaces the view by what `change` makes of it. Readers wait only for the swap of the pointer and `change`.
    pub fn update(&self, change: impl FnOnce(&View) -> View) {
        let mut view = self.view.write();
        let next = Arc::new(change(&view));
        let previous = std::mem::replace(&mut *view, next);
        drop(view);
        // The last holder of a view may close files; not while readers wait.
        drop(previous);
    }
}
