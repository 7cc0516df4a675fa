//! The published state: the current view and the newest visible sequence number, read together. Writers and jobs
//! publish, readers read. Readers take only the lock around the pointer, and hold it only while they clone the pointer.
//! A model checker tests the order of loads and stores in all interleavings (`tests/published.rs` includes this file).

use std::sync::atomic::Ordering;

use super::handover::{Arc, AtomicU64, RwLock, Seqno};

/// The current view and the newest visible sequence number, read together: the view has every version that a reader at
/// the number needs.
pub(crate) struct Published<V> {
    view: RwLock<Arc<V>>,
    seqno: AtomicU64,
}

impl<V> Published<V> {
    pub fn new(view: V, seqno: Seqno) -> Published<V> {
        Published { view: RwLock::new(Arc::new(view)), seqno: AtomicU64::new(seqno.0) }
    }

    /// The view and the newest visible sequence number.
    pub fn read(&self) -> (Arc<V>, Seqno) {
        let view = self.view.read();
        (view.clone(), self.seqno())
    }

    /// Only the view.
    pub fn view(&self) -> Arc<V> {
        self.view.read().clone()
    }

    /// Only the newest visible sequence number.
    pub fn seqno(&self) -> Seqno {
        Seqno(self.seqno.load(Ordering::Acquire))
    }

    /// Makes all versions up to `seqno` visible. Only the commit path calls this, after it has inserted them.
    pub fn publish(&self, seqno: Seqno) {
        self.seqno.store(seqno.0, Ordering::Release);
    }

    /// Replaces the view by the result of `change`. Readers wait while `change` runs and the pointer is swapped.
    pub fn update(&self, change: impl FnOnce(&V) -> V) {
        let mut view = self.view.write();
        let next = Arc::new(change(&view));
        let previous = std::mem::replace(&mut *view, next);
        drop(view);
        // Dropping the last reference to a view may close files, so it is dropped without the lock.
        drop(previous);
    }
}
