//! Files, and parts of files, that are to go once nothing reads them. The manifest has already forgotten such a thing when it
//! is obsolete; its last holder drops the guard, and a background job gives its space back (DESIGN rule 4).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sched::sync::Mutex;

/// Something to give back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obsolete {
    /// A file.
    File(Arc<Path>),
    /// A part of a file that goes on.
    Part {
        /// The file.
        path: Arc<Path>,
        /// Where the part begins, in bytes.
        offset: u64,
        /// How long it is, in bytes.
        len: u64,
    },
}

/// What waits to be given back.
#[derive(Default)]
pub struct PendingDeletions {
    waiting: Mutex<Vec<Obsolete>>,
}

impl PendingDeletions {
    /// Takes one of them.
    pub fn take(&self) -> Option<Obsolete> {
        self.waiting.lock().pop()
    }

    /// One more; nobody reads it.
    pub fn add(&self, obsolete: Obsolete) {
        self.waiting.lock().push(obsolete);
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }
}

/// Held by whatever reads a file; when the last holder lets go of a obsolete file, its path goes to the pending_deletions.
pub struct FileGuard {
    path: Arc<Path>,
    obsolete: AtomicBool,
    pending_deletions: Arc<PendingDeletions>,
}

impl FileGuard {
    /// Guards `path`.
    pub fn new(path: impl Into<Arc<Path>>, pending_deletions: Arc<PendingDeletions>) -> FileGuard {
        FileGuard { path: path.into(), obsolete: AtomicBool::new(false), pending_deletions }
    }

    /// The file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The manifest no longer names the file: it goes with its last holder.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The manifest no longer names it.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }

    /// A part of the file is needed no longer, by nobody. It goes now if the file does not go as a whole.
    pub fn give_back(&self, offset: u64, len: u64) {
        if !self.is_obsolete() {
            self.pending_deletions.add(Obsolete::Part { path: self.path.clone(), offset, len });
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            self.pending_deletions.add(Obsolete::File(self.path.clone()));
        }
    }
}
