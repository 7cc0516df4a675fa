//! Resources shared by the readers of all tables of a database: open files, the block cache, read-ahead memory, and the
//! gauges that count memory.

use std::path::Path;
use std::sync::Arc;

use crate::base::{DirId, Gauge, Result};
use crate::cache::block_cache::BlockCache;
use crate::io::ahead_threads::AheadThreads;
use crate::io::file_guard::FileGuard;
use crate::io::handles::{Handle, Handles};
use crate::io::ordered_file::OrderedFile;
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, File, Storage};

/// Shared by all tables of a database.
pub struct Readers {
    /// How files in the directory of the manifest are read and written.
    pub fast_access: Access,
    /// How those in other directories are.
    pub slow_access: Access,
    /// Where the files are.
    pub storage: Arc<dyn Storage>,
    /// The open files.
    pub handles: Arc<Handles>,
    /// Blocks that may be read again.
    pub cache: Arc<BlockCache>,
    /// Read-ahead memory of jobs, which read whole tables.
    pub ahead: Arc<ReadAhead>,
    /// Fill the second buffers of jobs, out of the same memory.
    pub ahead_threads: Arc<AheadThreads>,
    /// Read-ahead memory of user scans, which may pause for any time.
    pub scan_ahead: ReadAhead,
    /// Memory of jobs: blocks and bytes read without the cache.
    pub jobs: Arc<Gauge>,
    /// Memory that open tables use outside the cache.
    pub resident: Arc<Gauge>,
}

impl Readers {
    /// How tables and value files in a directory are read and written.
    pub fn access_in(&self, dir: DirId) -> Access {
        if dir == DirId::HOME { self.fast_access } else { self.slow_access }
    }

    /// A handle to the file under a guard.
    pub fn handle(&self, guard: &FileGuard) -> Handle {
        self.handles.handle(guard.path().clone(), self.access_in(guard.key().dir))
    }

    /// An open file in a directory, for one reader that reads it in order: what it announces is fetched meanwhile, by the
    /// system or, past the page cache, by threads.
    pub fn in_order(&self, file: Arc<dyn File>, dir: DirId) -> Arc<dyn File> {
        match self.access_in(dir) {
            Access::Buffered => file,
            Access::Direct => Arc::new(OrderedFile::new(file, self.ahead_threads.clone())),
        }
    }

    /// Opens a file in a directory as [`in_order`](Readers::in_order).
    ///
    /// # Errors
    /// As opening it.
    pub fn open_in_order(&self, path: &Path, dir: DirId) -> Result<Arc<dyn File>> {
        Ok(self.in_order(self.storage.open_read(path, self.access_in(dir))?, dir))
    }

    /// The threads by which files in a directory are read ahead, if the system does not do that.
    pub fn ahead_threads_for(&self, dir: DirId) -> Option<Arc<AheadThreads>> {
        (self.access_in(dir) == Access::Direct).then(|| self.ahead_threads.clone())
    }
}

#[cfg(test)]
impl Readers {
    /// For tests: few open files, a cache of this size, and some read-ahead memory.
    pub fn for_test(storage: &crate::io::SimDisk, cache_bytes: usize) -> Arc<Readers> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let jobs = Arc::<Gauge>::default();
        let ahead = Arc::new(ReadAhead::new(64 << 10, jobs.clone()));
        Arc::new(Readers {
            fast_access: Access::Buffered,
            slow_access: Access::Buffered,
            handles: Arc::new(Handles::new(storage.clone(), 4)),
            storage,
            cache: Arc::new(BlockCache::new(cache_bytes)),
            ahead_threads: AheadThreads::new(ahead.clone()),
            ahead,
            scan_ahead: ReadAhead::new(64 << 10, Arc::default()),
            jobs,
            resident: Arc::default(),
        })
    }
}
