//! Storage on the operating system's files without syncs, or without disk space for zeros. Users cannot disable these, but
//! measurements must. Only CleaveDB can be opened on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cleavedb::Result;
use cleavedb::testing::{Access, DirEntry, File, FileSpace, Lock, Mapping, OsStorage, Punched, Storage};

/// The unit of holes in files.
const PAGE_BYTES: usize = 4096;

/// Files of the operating system with reduced guarantees.
#[derive(Debug, Clone, Copy)]
pub struct Incomplete {
    /// Whether syncs are executed. If not, no write survives a power loss.
    pub syncs: bool,
    /// Whether pages of zeros and reserved space take no disk space. Such a page is not written at all, so this is correct
    /// only for files that are never overwritten, as CleaveDB's.
    pub sparse: bool,
}

impl Incomplete {
    fn wrap(self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(IncompleteFile { file, storage: self })
    }
}

impl Storage for Incomplete {
    fn create(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        OsStorage::new().create(path, access).map(|file| self.wrap(file))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn File>> {
        OsStorage::new().open(path).map(|file| self.wrap(file))
    }

    fn open_read(&self, path: &Path, access: Access) -> Result<Arc<dyn File>> {
        OsStorage::new().open_read(path, access)
    }

    fn file_len(&self, path: &Path) -> Result<Option<u64>> {
        OsStorage::new().file_len(path)
    }

    fn file_space(&self, path: &Path) -> Result<Option<FileSpace>> {
        OsStorage::new().file_space(path)
    }

    fn punch(&self, path: &Path, offset: u64, len: u64) -> Result<Punched> {
        OsStorage::new().punch(path, offset, len)
    }

    fn first_data(&self, path: &Path, from: u64, to: u64) -> Result<Option<(u64, u64)>> {
        OsStorage::new().first_data(path, from, to)
    }

    fn file_system_bytes(&self, dir: &Path) -> u64 {
        OsStorage::new().file_system_bytes(dir)
    }

    fn free_bytes(&self, dir: &Path) -> u64 {
        OsStorage::new().free_bytes(dir)
    }

    fn available_memory(&self) -> u64 {
        OsStorage::new().available_memory()
    }

    fn open_files_limit(&self) -> usize {
        OsStorage::new().open_files_limit()
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        OsStorage::new().exists(path)
    }

    fn create_dir_all(&self, path: &Path) -> Result<()> {
        OsStorage::new().create_dir_all(path)
    }

    fn list(&self, path: &Path) -> Result<Vec<DirEntry>> {
        OsStorage::new().list(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        OsStorage::new().rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        OsStorage::new().remove(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        OsStorage::new().remove_dir(path)
    }

    fn link(&self, from: &Path, to: &Path) -> Result<bool> {
        OsStorage::new().link(from, to)
    }

    fn links(&self, path: &Path) -> Result<u64> {
        OsStorage::new().links(path)
    }

    fn real_path(&self, path: &Path) -> Result<PathBuf> {
        OsStorage::new().real_path(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if self.syncs { OsStorage::new().sync_dir(path) } else { Ok(()) }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn Lock>> {
        OsStorage::new().lock(path)
    }

    fn lock_shared(&self, path: &Path) -> Result<Box<dyn Lock>> {
        OsStorage::new().lock_shared(path)
    }

    fn unique_number(&self) -> Result<u64> {
        OsStorage::new().unique_number()
    }

    fn map(&self, path: &Path, len: usize) -> Result<Option<Arc<dyn Mapping>>> {
        OsStorage::new().map(path, len)
    }

    fn remove_mapped(&self, path: &Path) -> Result<()> {
        OsStorage::new().remove_mapped(path)
    }
}

struct IncompleteFile {
    file: Arc<dyn File>,
    storage: Incomplete,
}

impl File for IncompleteFile {
    fn path(&self) -> &Path {
        self.file.path()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_at(buffer, offset)
    }

    fn prefetch(&self, offset: u64, len: u64) {
        self.file.prefetch(offset, len);
    }

    fn read_or_prefetch(&self, buffer: &mut [u8], offset: u64) -> bool {
        self.file.read_or_prefetch(buffer, offset)
    }

    fn read_prefetched(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.file.read_prefetched(buffer, offset)
    }

    fn read_ahead(&self, offset: u64, len: u64) {
        self.file.read_ahead(offset, len);
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        if !self.storage.sparse {
            return self.file.write_at(bytes, offset);
        }
        written_ranges(bytes, offset)
            .try_for_each(|(from, to)| self.file.write_at(&bytes[from..to], offset + from as u64))
    }

    fn write_back(&self, offset: u64, len: u64) {
        self.file.write_back(offset, len);
    }

    fn sync(&self) -> Result<()> {
        if self.storage.syncs { self.file.sync() } else { Ok(()) }
    }

    fn len(&self) -> Result<u64> {
        self.file.len()
    }

    fn allocate(&self, len: u64) -> Result<bool> {
        if !self.storage.sparse {
            return self.file.allocate(len);
        }
        if self.file.len()? < len {
            self.file.truncate(len)?;
        }
        // No space is reserved, but the caller must continue as if it were.
        Ok(true)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file.truncate(len)
    }
}

/// The ranges of `bytes`, written at `offset`, that are not pages of zeros. The last page is always included, so that the
/// file gets its full length.
fn written_ranges(bytes: &[u8], offset: u64) -> impl Iterator<Item = (usize, usize)> {
    let page_end = move |from: usize| {
        let into = ((offset + from as u64) % PAGE_BYTES as u64) as usize;
        (from + PAGE_BYTES - into).min(bytes.len())
    };
    let is_hole = move |from: usize, to: usize| {
        to - from == PAGE_BYTES && to < bytes.len() && bytes[from..to].iter().all(|byte| *byte == 0)
    };
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() && is_hole(at, page_end(at)) {
            at = page_end(at);
        }
        let from = at;
        while at < bytes.len() && !is_hole(at, page_end(at)) {
            at = page_end(at);
        }
        (from < at).then_some((from, at))
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn pages_of_zeros_are_not_written_but_read_back() {
        let mut bytes = vec![0; 10 * PAGE_BYTES];
        bytes[PAGE_BYTES + 5] = 1;
        bytes[7 * PAGE_BYTES..8 * PAGE_BYTES].fill(2);
        let page = PAGE_BYTES;
        let expected = [(page, 2 * page), (7 * page, 8 * page), (9 * page, 10 * page)];
        assert!(written_ranges(&bytes, 0).eq(expected));
        // Partial pages are always written.
        let shifted: Vec<_> = written_ranges(&bytes, 100).collect();
        assert_eq!((shifted[0], shifted.last().unwrap().1), ((0, 2 * page - 100), 10 * page), "{shifted:?}");

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let file = Incomplete { syncs: true, sparse: true }.create(&path, Access::Buffered).unwrap();
        assert!(file.allocate(100 << 20).unwrap());
        file.write_at(&bytes, 3 * page as u64).unwrap();
        file.sync().unwrap();
        let mut read = vec![9; bytes.len()];
        assert_eq!(file.read_at(&mut read, 3 * page as u64).unwrap(), bytes.len());
        assert!(read == bytes && file.len().unwrap() == 100 << 20);
        assert!(std::fs::metadata(&path).unwrap().blocks() * 512 <= 4 * page as u64);
    }
}
