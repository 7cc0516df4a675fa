//! The sequence numbers that readers hold, so that jobs keep the versions that are visible to them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::versions::Horizon;
use crate::base::{KeyspaceId, OperatorSource, Seqno};
use crate::engine::published::Published;
use crate::engine::view::View;
use crate::sched::sync::{Mutex, MutexGuard};

/// The held sequence numbers, each with the number of its holders.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Seqno, usize>>,
    /// Background work is due once no number below this is held; 0 if none is waiting.
    awaited: AtomicU64,
}

impl Snapshots {
    /// Reads view and newest sequence number together and holds the number.
    pub fn hold(&self, published: &Published<View>) -> (Arc<View>, Seqno) {
        let mut held = self.held.lock();
        let (view, seqno) = published.read();
        *held.entry(seqno).or_default() += 1;
        (view, seqno)
    }

    /// Holds a number that another holder still has.
    pub fn hold_again(&self, seqno: Seqno) {
        *self.held.lock().entry(seqno).or_default() += 1;
    }

    /// Releases a number; true if background work was waiting for that.
    pub fn release(&self, seqno: Seqno) -> bool {
        let mut held = self.held.lock();
        let Some(count) = held.get_mut(&seqno) else {
            return false;
        };
        *count -= 1;
        if *count > 0 {
            return false;
        }
        held.remove(&seqno);
        let awaited = Seqno(self.awaited.load(Ordering::Relaxed));
        seqno < awaited && held.keys().next().is_none_or(|oldest| *oldest >= awaited)
    }

    /// The held numbers; no other is held from now on until this is dropped.
    pub fn held(&self) -> MutexGuard<'_, BTreeMap<Seqno, usize>> {
        self.held.lock()
    }

    /// The oldest number at which a reader may read: the oldest held one, or the published one.
    pub fn oldest(&self, published: &Published<View>) -> Seqno {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(|| published.seqno())
    }

    /// From now on [`release`](Snapshots::release) returns true once no number below this one is held.
    pub fn notify_from(&self, seqno: Option<Seqno>) {
        self.awaited.store(seqno.unwrap_or_default().0, Ordering::Relaxed);
    }

    /// The view that a job works on, and the sequence numbers whose visible versions it must keep: all held ones
    /// ascending, and the published one last. Both are read in one critical section.
    pub fn capture(&self, published: &Published<View>) -> (Arc<View>, Vec<Seqno>) {
        let held = self.held.lock();
        let (view, seqno) = published.read();
        let mut snapshots: Vec<Seqno> = held.keys().copied().filter(|&held| held < seqno).collect();
        snapshots.push(seqno);
        (view, snapshots)
    }

    /// The number of holders.
    pub fn len(&self) -> usize {
        self.held.lock().values().sum()
    }
}

/// The state that a job captured when it began. Its subtasks share it, so that they agree on which versions to drop.
pub(crate) struct JobHorizon {
    pub view: Arc<View>,
    pub snapshots: Vec<Seqno>,
    pub dropped: BTreeMap<KeyspaceId, Seqno>,
}

impl JobHorizon {
    /// The same with the part of the view that a merge of tables needs ([`View::of_tables`]).
    pub fn of_tables(self) -> JobHorizon {
        JobHorizon { view: Arc::new(self.view.of_tables()), ..self }
    }

    /// The rules for dropping versions of one stream.
    pub fn over<'a>(
        &self,
        bottom: &'a dyn Fn(&[u8]) -> bool,
        dropped: &'a dyn Fn(KeyspaceId) -> bool,
        operators: &'a dyn OperatorSource,
    ) -> Horizon<'a> {
        Horizon { snapshots: self.snapshots.clone(), bottom, dropped, operators, fetch: None }
    }
}
