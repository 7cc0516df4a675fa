//! The point where writers hand over to readers: the current view and the newest visible sequence number, read together.
//! Readers take no lock but the one around the pointer, and none half-way through. The order of loads and stores is
//! checked by a model of all interleavings (`tests/published.rs` includes this very file).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::handover::{AtomicU64, RwLock, Seqno};

/// The current view and the newest visible sequence number. The two are read together: everything at or below the
/// number is in the view, and nothing that a reader at the number needs has been dropped from it.
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

    /// The view alone.
    pub fn view(&self) -> Arc<V> {
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
    pub fn update(&self, change: impl FnOnce(&V) -> V) {
        let mut view = self.view.write();
        let next = Arc::new(change(&view));
        let previous = std::mem::replace(&mut *view, next);
        drop(view);
        // The last holder of a view may close files; not while readers wait.
        drop(previous);
    }
}
