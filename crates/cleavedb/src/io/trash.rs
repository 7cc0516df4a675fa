//! Files, and parts of files, that are to go once nothing reads them. The manifest has already forgotten such a thing when it
//! is doomed; its last holder drops the guard, and a background job gives its space back (DESIGN rule 4).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::sched::sync::Mutex;

/// Something to give back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refuse {
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
pub struct Trash {
    waiting: Mutex<Vec<Refuse>>,
}

impl Trash {
    /// Takes one of them.
    pub fn take(&self) -> Option<Refuse> {
        self.waiting.lock().pop()
    }

    /// One more; nobody reads it.
    pub fn add(&self, refuse: Refuse) {
        self.waiting.lock().push(refuse);
    }

    /// True if nothing waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
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

    /// The manifest no longer names it.
    pub fn is_doomed(&self) -> bool {
        self.doomed.load(Ordering::Acquire)
    }

    /// A part of the file is needed no longer, by nobody. It goes now if the file does not go as a whole.
    pub fn give_back(&self, offset: u64, len: u64) {
        if !self.is_doomed() {
            self.trash.add(Refuse::Part { path: self.path.clone(), offset, len });
        }
    }
}

impl Drop for FileGuard {
    fn drop(&mut self) {
        if self.doomed.load(Ordering::Acquire) {
            self.trash.add(Refuse::File(self.path.clone()));
        }
    }
}
