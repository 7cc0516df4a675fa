//! Files that are to go once nothing reads them. The manifest has already forgotten such a file when it is doomed; its
//! last holder drops the guard, and a background job removes it (DESIGN rule 4).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sched::sync::Mutex;

/// Paths waiting to be removed.
#[derive(Default)]
pub struct Trash {
    paths: Mutex<Vec<Arc<Path>>>,
}

impl Trash {
    /// Takes one of them.
    pub fn take(&self) -> Option<Arc<Path>> {
        self.paths.lock().pop()
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.paths.lock().is_empty()
    }
}

/// Held by whatever reads a file; when the last holder lets go of a doomed file, its path goes to the trash.
pub struct FileGuard {
    path: Arc<Path>,
    doomed: AtomicBool,
    trash: Arc<Trash>,
}

impl FileGuard {
    /// Guards `path`.
    pub fn new(path: impl Into<Arc<Path>>, trash: Arc<Trash>) -> FileGuard {
        FileGuard { path: path.into(), doomed: AtomicBool::new(false), trash }
    }

    /// The file.
    pub fn path(&self) -> &Arc<Path> {
        &self.path
    }

    /// The manifest no longer names the file: it goes with its last holder.
    pub fn doom(&self) {
        self.doomed.store(true, Ordering::Release);
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            self.trash.paths.lock().push(self.path.clone());
        }
    }
}
