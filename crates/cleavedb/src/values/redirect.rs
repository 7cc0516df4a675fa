//! Redirect tables: where the records of a file went when it was emptied. Pages of pairs (old offset, new offset) in the
//! order of the old ones; an offset that is not there was dead. Diagram: `docs/formats/values.md`.
//!
//! Nothing of a table is resident. A look-up guesses the page from the offset, since records lie about evenly, and reads
//! it through the block cache; one to three pages, most often one.

use std::path::Path;
use std::sync::Arc;

use crate::base::{Buffer, Error, FileId, Result};
use crate::format::checksum::{agrees, placed_checksum};
use crate::io::cache::BlockCache;
use crate::io::handles::Handle;
use crate::io::trash::FileGuard;
use crate::io::{Access, File, Storage, read_exact_at};

/// The first bytes of a redirect table.
pub const MAGIC: [u8; 8] = *b"clvMOVED";
const VERSION: u32 = 1;
const PAGE_BYTES: usize = 4096;
const CHECKSUM_BYTES: usize = 8;
const PAIR_BYTES: usize = 16;
/// Pairs of a full page; the last one has fewer, and the header is a page of its own.
const PAGE_PAIRS: usize = (PAGE_BYTES - CHECKSUM_BYTES) / PAIR_BYTES;
/// The header counts them.
const HEADER_FIELDS_BYTES: usize = 28;

/// A redirect table being written; in memory until then: 16 B for each record that moved.
#[derive(Default)]
pub struct RedirectBuilder {
    pairs: Vec<u8>,
}

impl RedirectBuilder {
    /// What lay at `from` lies at `to` now. Old offsets ascend.
    pub fn add(&mut self, from: u64, to: u64) {
        self.pairs.extend_from_slice(&from.to_le_bytes());
        self.pairs.extend_from_slice(&to.to_le_bytes());
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.pairs.capacity()
    }

    /// Writes and syncs the file of table `id` at `path`, which must not exist; returns its length. The caller syncs the
    /// directory.
    pub fn write(&self, storage: &dyn Storage, path: &Path, id: FileId) -> Result<u64> {
        let mut out = Vec::with_capacity(PAGE_BYTES * 2 + self.pairs.len() / PAGE_PAIRS / PAIR_BYTES * PAGE_BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&id.0.to_le_bytes());
        out.extend_from_slice(&((self.pairs.len() / PAIR_BYTES) as u64).to_le_bytes());
        seal_page(&mut out, 0, id);
        for page in self.pairs.chunks(PAGE_PAIRS * PAIR_BYTES) {
            let start = out.len();
            out.extend_from_slice(page);
            seal_page(&mut out, start, id);
        }
        let file = storage.create(path, Access::Buffered)?;
        file.write_at(&out, 0)?;
        file.sync()?;
        Ok(out.len() as u64)
    }
}

/// Fills the page that begins at `start` and ends it with its checksum.
fn seal_page(out: &mut Vec<u8>, start: usize, id: FileId) {
    out.resize(start + PAGE_BYTES - CHECKSUM_BYTES, 0);
    let checksum = placed_checksum(&out[start..], id, start as u64);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// A redirect table, open for look-ups.
pub struct Redirect {
    id: FileId,
    to: FileId,
    len: u64,
    guard: FileGuard,
    handle: Handle,
    cache: Arc<BlockCache>,
}

impl Redirect {
    /// Table `id` of `len` bytes under `guard`, which leads into segment `to`.
    pub fn new(id: FileId, to: FileId, len: u64, guard: FileGuard, handle: Handle, cache: Arc<BlockCache>) -> Redirect {
        Redirect { id, to, len, guard, handle, cache }
    }

    /// The segment that it leads into.
    pub fn to(&self) -> FileId {
        self.to
    }

    /// Its path.
    pub fn path(&self) -> &Arc<Path> {
        self.guard.path()
    }

    /// Its length, in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The manifest no longer names the table: it goes with its last holder.
    pub fn doom(&self) {
        self.guard.doom();
    }

    /// Where in the segment the record is that lay at `offset`; `None` if it was dead. O(log log n) page reads.
    pub fn find(&self, offset: u64) -> Result<Option<u64>> {
        let pages = (self.len / PAGE_BYTES as u64).saturating_sub(1);
        // The page is one of low..high; what is known of the offsets around them guides the guess.
        let (mut low, mut high) = (0, pages);
        let (mut below, mut above) = (0, None);
        let mut guesses = 0;
        while low < high {
            let guess = match above {
                // After a few guesses that were off, halving bounds the search.
                Some(above) if guesses < 4 && above > below => {
                    let part = (offset.saturating_sub(below)) as f64 / (above - below) as f64;
                    (low + (part * (high - low) as f64) as u64).min(high - 1)
                }
                _ => low + (high - low) / 2,
            };
            guesses += 1;
            let page = self.page(guess + 1)?;
            // The last page ends with zeros, which are no offsets of records.
            let pairs = page[..PAGE_PAIRS * PAIR_BYTES].chunks_exact(PAIR_BYTES).map(pair);
            let pairs: Vec<(u64, u64)> = pairs.take_while(|pair| pair.0 != 0).collect();
            let (Some(first), Some(last)) = (pairs.first(), pairs.last()) else {
                return Err(self.damaged(guess + 1, "a page holds nothing"));
            };
            if offset < first.0 {
                (high, above) = (guess, Some(first.0));
            } else if offset > last.0 {
                (low, below) = (guess + 1, last.0);
            } else {
                return Ok(pairs.binary_search_by_key(&offset, |pair| pair.0).ok().map(|index| pairs[index].1));
            }
        }
        Ok(None)
    }

    /// A page of pairs (from 1 on), through the block cache.
    fn page(&self, number: u64) -> Result<Arc<Buffer>> {
        let offset = number * PAGE_BYTES as u64;
        if let Some(page) = self.cache.get(self.id, offset) {
            return Ok(page);
        }
        let mut bytes = vec![0; PAGE_BYTES];
        read_exact_at(&*self.handle.file()?, &mut bytes, offset)?;
        check_page(&bytes, self.id, offset).map_err(|reason| self.damaged(number, reason))?;
        let page = Arc::new(Buffer::counted(bytes, self.cache.gauge().clone()));
        self.cache.insert(self.id, offset, page.clone());
        Ok(page)
    }

    fn damaged(&self, page: u64, reason: &str) -> Error {
        Error::corruption(self.path(), page * PAGE_BYTES as u64, reason)
    }
}

fn pair(bytes: &[u8]) -> (u64, u64) {
    let number = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    (number(0), number(8))
}

fn check_page(bytes: &[u8], id: FileId, offset: u64) -> Result<(), &'static str> {
    match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((checked, checksum)) if agrees(u64::from_le_bytes(*checksum), placed_checksum(checked, id, offset)) => {
            Ok(())
        }
        _ => Err("the checksum of a page does not match"),
    }
}

/// Reads a whole redirect table and checks everything in it; hands out its pairs in order.
///
/// # Errors
/// [`Error::Corruption`] for damage, [`Error::Unsupported`] for another version.
pub fn read_all(file: &dyn File, id: FileId, see: &mut dyn FnMut(u64, u64)) -> Result<()> {
    let damaged = |offset, reason: &str| Error::corruption(file.path(), offset, reason);
    let len = file.len()?;
    let mut page = vec![0; PAGE_BYTES];
    read_exact_at(file, &mut page, 0)?;
    if page[..8] != MAGIC {
        return Err(damaged(0, "this is no redirect table"));
    }
    check_page(&page, id, 0).map_err(|reason| damaged(0, reason))?;
    let version = u32::from_le_bytes([page[8], page[9], page[10], page[11]]);
    if version != VERSION {
        let message = format!("redirect table format {version} is not the known {VERSION}");
        return Err(Error::Unsupported { path: file.path().to_owned(), message });
    }
    let number = |at: usize| page[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let (own, count) = (number(12), number(20));
    const { assert!(HEADER_FIELDS_BYTES + CHECKSUM_BYTES <= PAGE_BYTES) };
    if own != id.0 {
        return Err(damaged(12, "this is another redirect table"));
    }
    let pages = count.div_ceil(PAGE_PAIRS as u64);
    if pages.checked_add(1).and_then(|pages| pages.checked_mul(PAGE_BYTES as u64)) != Some(len) {
        return Err(damaged(20, "the table is not as long as it says"));
    }
    let (mut last, mut left) = (0, count);
    for number in 1..=pages {
        let offset = number * PAGE_BYTES as u64;
        read_exact_at(file, &mut page, offset)?;
        check_page(&page, id, offset).map_err(|reason| damaged(offset, reason))?;
        for bytes in page[..PAGE_PAIRS * PAIR_BYTES].chunks_exact(PAIR_BYTES).take(left.min(PAGE_PAIRS as u64) as usize)
        {
            let (from, to) = pair(bytes);
            if from <= last {
                return Err(damaged(offset, "offsets do not ascend"));
            }
            last = from;
            see(from, to);
        }
        left = left.saturating_sub(PAGE_PAIRS as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::SimDisk;
    use crate::io::handles::Handles;
    use crate::io::trash::Trash;

    fn table(disk: &SimDisk, pairs: &[(u64, u64)]) -> Redirect {
        let mut builder = RedirectBuilder::default();
        pairs.iter().for_each(|&(from, to)| builder.add(from, to));
        let (id, path) = (FileId(9), Path::new("r"));
        let len = builder.write(disk, path, id).unwrap();
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let guard = FileGuard::new(path, Arc::new(Trash::default()));
        let handle = Arc::new(Handles::new(storage, Access::Buffered, 4)).handle(path.into());
        Redirect::new(id, FileId(12), len, guard, handle, Arc::new(BlockCache::new(1 << 20)))
    }

    #[test]
    fn every_pair_is_found_and_nothing_else_however_they_lie() {
        for count in [0, 1, 2, 254, 255, 256, 1000, 5000] {
            for bend in [1, 2, 3] {
                // Evenly, ever farther apart, and in two heaps.
                let from = |n: u64| match bend {
                    1 => 4096 + n * 1000,
                    2 => 4096 + n * n * 7,
                    _ => 4096 + n * 24 + if n > count / 2 { 1 << 40 } else { 0 },
                };
                let pairs: Vec<(u64, u64)> = (0..count).map(|n| (from(n), n * 5 + 24)).collect();
                let redirect = table(&SimDisk::new(), &pairs);
                for &(from, to) in &pairs {
                    assert_eq!(redirect.find(from).unwrap(), Some(to), "{from} of {count}");
                    assert_eq!(redirect.find(from + 1).unwrap(), None);
                }
                assert_eq!(redirect.find(1).unwrap(), None);
                assert_eq!(redirect.find(u64::MAX).unwrap(), None);
            }
        }
    }

    #[test]
    fn flipped_bytes_are_errors_and_never_answers() {
        let disk = SimDisk::new();
        let pairs: Vec<(u64, u64)> = (1..600).map(|n| (n * 100, n)).collect();
        table(&disk, &pairs);
        let good = disk.read_file(Path::new("r")).unwrap();
        let mut seen = Vec::new();
        let file = disk.open_read(Path::new("r"), Access::Buffered).unwrap();
        read_all(&*file, FileId(9), &mut |from, to| seen.push((from, to))).unwrap();
        assert_eq!(seen, pairs);
        assert!(read_all(&*file, FileId(8), &mut |_, _| {}).is_err());
        for at in (0..good.len()).step_by(7) {
            let fresh = SimDisk::new();
            let redirect = table(&fresh, &pairs);
            let mut bad = good.clone();
            bad[at] ^= 1;
            fresh.write_file(Path::new("r"), &bad);
            let file = fresh.open_read(Path::new("r"), Access::Buffered).unwrap();
            assert!(read_all(&*file, FileId(9), &mut |_, _| {}).is_err(), "byte {at}");
            for &(from, to) in pairs.iter().step_by(50) {
                assert!(redirect.find(from).is_err() || redirect.find(from).unwrap() == Some(to), "byte {at}");
            }
        }
    }
}
