//! Resources shared by the readers of all tables of a database: open files, the block cache, read-ahead memory, and the
//! gauges that count memory.

use std::sync::Arc;

use crate::base::{DirId, Gauge};
use crate::cache::block_cache::BlockCache;
use crate::io::file_guard::FileGuard;
use crate::io::handles::{Handle, Handles};
use crate::io::read_ahead::ReadAhead;
use crate::io::{Access, Storage};

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
    pub ahead: ReadAhead,
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

    /// A handle for jobs that read most of a file in order, if others read it past the page cache.
    pub fn streamed_handle(&self, guard: &FileGuard) -> Option<Handle> {
        let is_direct = self.access_in(guard.key().dir) == Access::Direct;
        is_direct.then(|| self.handles.handle(guard.path().clone(), Access::Buffered))
    }
}

#[cfg(test)]
impl Readers {
    /// For tests: few open files, a cache of this size, and some read-ahead memory.
    pub fn for_test(storage: &crate::io::SimDisk, cache_bytes: usize) -> Arc<Readers> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let jobs = Arc::<Gauge>::default();
        Arc::new(Readers {
            fast_access: Access::Buffered,
            slow_access: Access::Buffered,
            handles: Arc::new(Handles::new(storage.clone(), 4)),
            storage,
            cache: Arc::new(BlockCache::new(cache_bytes)),
            ahead: ReadAhead::new(64 << 10, jobs.clone()),
            scan_ahead: ReadAhead::new(64 << 10, Arc::default()),
            jobs,
            resident: Arc::default(),
        })
    }
}
