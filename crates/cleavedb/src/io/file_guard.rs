//! Who holds a file. The last holder of an obsolete one hands it to the pending deletions, so that no reader finds its file
//! removed, and none is forgotten. A model checker tests all interleavings with a view that is replaced
//! (`tests/published.rs` includes this file).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::guarding::{AtomicBool, FileKey, FileRange, Obsolete, PendingDeletions};

/// Held by every reader of a file; when the last holder of an obsolete file drops it, the file becomes a pending deletion.
pub struct FileGuard {
    key: FileKey,
    path: Arc<Path>,
    obsolete: AtomicBool,
    pending_deletions: Arc<PendingDeletions>,
}

impl FileGuard {
    /// Guards a file, which lies at `path`.
    pub fn new(key: FileKey, path: impl Into<Arc<Path>>, pending_deletions: Arc<PendingDeletions>) -> FileGuard {
        FileGuard { key, path: path.into(), obsolete: AtomicBool::new(false), pending_deletions }
    }

    /// The file's kind, number and tier.
    pub fn key(&self) -> FileKey {
        self.key
    }

    /// Where it lies.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The manifest no longer references the file: it is deleted after its last holder.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// True if the manifest no longer references the file.
    pub fn is_obsolete(&self) -> bool {
        self.obsolete.load(Ordering::Acquire)
    }

    /// No reader needs this range of the file any more. It is punched out unless the whole file is obsolete.
    pub fn mark_range_obsolete(&self, offset: u64, len: u64) {
        if !self.is_obsolete() {
            self.pending_deletions.add(Obsolete::Range(FileRange { path: self.path.clone(), offset, len }));
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
