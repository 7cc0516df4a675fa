//! Sequence numbers that readers hold, so that jobs keep the versions they still see (rule 6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::base::versions::Horizon;
use crate::base::{KeyspaceId, OperatorSource, Seqno};
use crate::engine::published::Published;
use crate::engine::view::View;
use crate::sched::sync::Mutex;

/// The sequence numbers that are held, with how many hold each.
#[derive(Default)]
pub(crate) struct Snapshots {
    held: Mutex<BTreeMap<Seqno, usize>>,
    /// Background work has something to do once no number below this is held; 0 if it waits for none.
    awaited: AtomicU64,
}

impl Snapshots {
    /// Takes view and sequence number together and holds the number.
    pub fn hold(&self, published: &Published<View>) -> (Arc<View>, Seqno) {
        let mut held = self.held.lock();
        let (view, seqno) = published.read();
        *held.entry(seqno).or_default() += 1;
        (view, seqno)
    }

    /// Holds a number that someone else holds already.
    pub fn hold_again(&self, seqno: Seqno) {
        *self.held.lock().entry(seqno).or_default() += 1;
    }

    /// Lets go of a number; true if background work waits for that.
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

    /// The oldest number that a reader may ask for: a held one, or the published.
    pub fn oldest(&self, published: &Published<View>) -> Seqno {
        let held = self.held.lock();
        held.keys().next().copied().unwrap_or_else(|| published.seqno())
    }

    /// From now on [`release`](Snapshots::release) tells when no number below this one is held any more.
    pub fn notify_from(&self, seqno: Option<Seqno>) {
        self.awaited.store(seqno.unwrap_or_default().0, Ordering::Relaxed);
    }

    /// What a job must respect: the view it works on, and all held numbers ascending with the published one last,
    /// captured in one critical section.
    pub fn capture(&self, published: &Published<View>) -> (Arc<View>, Vec<Seqno>) {
        let held = self.held.lock();
        let (view, seqno) = published.read();
        let mut snapshots: Vec<Seqno> = held.keys().copied().filter(|&held| held < seqno).collect();
        snapshots.push(seqno);
        (view, snapshots)
    }

    /// How many are held.
    pub fn len(&self) -> usize {
        self.held.lock().values().sum()
    }
}

/// What a job captured when it started: shared by its parts, so that they agree on what may die.
pub(crate) struct JobHorizon {
    pub view: Arc<View>,
    pub snapshots: Vec<Seqno>,
    pub dropped: BTreeMap<KeyspaceId, Seqno>,
}

impl JobHorizon {
    /// The rules for one stream of versions.
    pub fn over<'a>(
        &self,
        bottom: &'a dyn Fn(&[u8]) -> bool,
        dropped: &'a dyn Fn(KeyspaceId) -> bool,
        operators: &'a dyn OperatorSource,
    ) -> Horizon<'a> {
        Horizon { snapshots: self.snapshots.clone(), bottom, dropped, operators, fetch: None }
    }
}
