//! A file with one descriptor for reads and another for everything else: so a log on the slow tier is read past the page
//! cache while it is written, or repaired.

use std::path::Path;
use std::sync::Arc;

use super::storage::File;
use crate::base::Result;

/// An open file, opened twice.
pub struct SplitFile {
    reads: Arc<dyn File>,
    writes: Arc<dyn File>,
}

impl SplitFile {
    /// The file that both have open.
    pub fn new(reads: Arc<dyn File>, writes: Arc<dyn File>) -> SplitFile {
        debug_assert_eq!(reads.path(), writes.path(), "both are the same file");
        SplitFile { reads, writes }
    }
}

impl File for SplitFile {
    fn path(&self) -> &Path {
        self.writes.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.read_at(buffer, offset)
    }

    fn read_polled(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.read_polled(buffer, offset)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.reads.prefetch(offset, len);
    }

    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.reads.read_or_prefetch(buffer, offset)
    }

    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.reads.read_prefetched(buffer, offset)
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.reads.read_ahead(offset, len);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.writes.write_at(bytes, offset)
    }

    fn write_parts(&self, parts: &[&[u8]], offset: u64) -> Result<()> {
        self.writes.write_parts(parts, offset)
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.writes.write_back(offset, len);
    }

    fn sync(&self) -> Result<()> {
        self.writes.sync()
    }

    fn len(&self) -> Result<u64> {
        self.writes.len()
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        self.writes.allocate(len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.writes.truncate(len)
    }
}
