//! What the readers of all tables of a database share: the files that are open, the block cache, the memory for reading
//! ahead, and where memory is counted.

use std::sync::Arc;

use crate::base::Gauge;
use crate::cache::block_cache::BlockCache;
use crate::io::Storage;
use crate::io::handles::Handles;
use crate::io::read_ahead::ReadAhead;

/// Shared by all tables of a database.
pub struct Readers {
    /// Holds the files.
    pub storage: Arc<dyn Storage>,
    /// The files that are open.
    pub handles: Arc<Handles>,
    /// Blocks that readers may want again.
    pub cache: Arc<BlockCache>,
    /// For jobs, which move through whole tables.
    pub ahead: ReadAhead,
    /// For users' scans, which may stand still for as long as they like.
    pub scan_ahead: ReadAhead,
    /// Memory of jobs: blocks and bytes that they read past the cache.
    pub jobs: Arc<Gauge>,
    /// Memory that open tables keep outside the cache.
    pub resident: Arc<Gauge>,
}

#[cfg(test)]
impl Readers {
    /// For tests: few open files, a cache of this size, and some memory to read ahead.
    pub fn for_test(storage: &crate::io::SimDisk, cache_bytes: usize) -> Arc<Readers> {
        let storage: Arc<dyn Storage> = Arc::new(storage.clone());
        let jobs = Arc::<Gauge>::default();
        Arc::new(Readers {
            handles: Arc::new(Handles::new(storage.clone(), crate::io::Access::Buffered, 4)),
            storage,
            cache: Arc::new(BlockCache::new(cache_bytes)),
            ahead: ReadAhead::new(64 << 10, jobs.clone()),
            scan_ahead: ReadAhead::new(64 << 10, Arc::default()),
            jobs,
            resident: Arc::default(),
        })
    }
}
