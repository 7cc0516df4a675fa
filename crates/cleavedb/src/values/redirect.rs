//! Redirect tables map the records of a collected value file to their new locations: pages of pairs (old offset, new
//! location) sorted by old offset; an offset that is missing belonged to a dead record. If values were compressed when
//! they were moved, each entry also has the new length of the record. Files that are collected together have their
//! tables in one file, one after the other. Diagram: `docs/formats/values.md`.
//!
//! Of a table only its last offset is resident, from the first lookup on. A lookup estimates the page by interpolation, since
//! records are spread about evenly, and reads it through the block cache: most often one page.

use std::path::Path;
use std::sync::{Arc, OnceLock};

use super::files::StoredFile;
use crate::base::{Address, Bytes, Error, FileId, Result};
use crate::cache::block_cache::BlockCache;
use crate::format::checksum::{agrees, placed_checksum};
use crate::io::append::WriteBuffer;
use crate::io::{Access, File, Storage, read_exact_at, read_exact_polled};

/// The first bytes of a file of redirect tables.
pub const MAGIC: [u8; 8] = *b"clvMOVED";
/// Bytes of one write.
const WRITE_BYTES: usize = 256 << 10;
pub(super) const PAGE_BYTES: usize = 4096;
const CHECKSUM_BYTES: usize = 8;
/// The header is a page of its own: magic, version, number, count of tables, and for each table the collected file and
/// the number of its pairs.
const HEADER_FIELDS_BYTES: usize = 24;
const TABLE_BYTES: usize = 16;
/// Pages that are read together where a table is read in sequence.
const CHUNK_PAGES: u64 = 64;
/// A new location is packed as the index of the extent within its job, above this many bits of the offset in the
/// segment.
const OFFSET_BITS: u32 = 40;

/// Maximum number of tables in a file.
pub const TABLES_MAX: usize = (PAGE_BYTES - CHECKSUM_BYTES - HEADER_FIELDS_BYTES) / TABLE_BYTES;
/// Maximum number of extents that a table can point to.
pub const TARGETS_MAX: usize = 1 << (u64::BITS - OFFSET_BITS);

/// A new location: the index of the extent among those of the table, and the offset in its segment.
pub type RedirectPlace = (usize, u64);

/// The contents of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Old offsets and new locations; the lengths of records have not changed.
    Pairs,
    /// Also the new lengths of the records.
    Lengths,
}

impl Shape {
    /// The shape for the table of a file, given the bytes that compression saved on the records moved from it.
    pub fn of(saved: Option<u64>) -> Shape {
        if saved.is_some() { Shape::Lengths } else { Shape::Pairs }
    }

    /// The format version. Stored: do not renumber.
    fn version(self) -> u32 {
        match self {
            Shape::Pairs => 2,
            Shape::Lengths => 3,
        }
    }

    fn of_version(version: u32) -> Option<Shape> {
        [Shape::Pairs, Shape::Lengths].into_iter().find(|shape| shape.version() == version)
    }

    const fn entry_bytes(self) -> usize {
        match self {
            Shape::Pairs => 16,
            Shape::Lengths => 20,
        }
    }

    /// Entries of a full page; the last page of a table has fewer.
    const fn page_entries(self) -> usize {
        (PAGE_BYTES - CHECKSUM_BYTES) / self.entry_bytes()
    }

    /// Entry `index` of a page.
    fn entry(self, page: &[u8], index: usize) -> RedirectEntry {
        let bytes = &page[index * self.entry_bytes()..];
        let number = |at: usize| bytes[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let len = || bytes[16..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        RedirectEntry { from: number(0), to: unpack(number(8)), len: (self == Shape::Lengths).then(len) }
    }
}

/// A record that moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedirectEntry {
    /// Its old offset.
    pub from: u64,
    /// Its new location.
    pub to: RedirectPlace,
    /// Its new length, in bytes; `None` if unchanged.
    pub len: Option<u32>,
}

fn pack((index, offset): RedirectPlace) -> u64 {
    debug_assert!(index < TARGETS_MAX && offset >> OFFSET_BITS == 0);
    (index as u64) << OFFSET_BITS | offset
}

fn unpack(place: u64) -> RedirectPlace {
    ((place >> OFFSET_BITS) as usize, place & ((1 << OFFSET_BITS) - 1))
}

/// Redirect tables being written, held in memory until then: 24 B for each moved record.
#[derive(Default)]
pub struct RedirectBuilder {
    tables: Vec<FileId>,
    /// The table, the old offset, the new place, the length.
    entries: Vec<(u32, u64, u64, u32)>,
}

impl RedirectBuilder {
    /// Begins the table of a file; returns its index. At most [`TABLES_MAX`].
    pub fn begin(&mut self, file: FileId) -> u32 {
        self.tables.push(file);
        self.tables.len() as u32 - 1
    }

    /// Adds a record: moved from offset `from` to `to`, with `len` bytes now. Any order.
    pub fn add(&mut self, table: u32, from: u64, to: RedirectPlace, len: u32) {
        self.entries.push((table, from, pack(to), len));
    }

    /// Memory in use, in bytes.
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(u32, u64, u64, u32)>()
    }

    /// The most bytes that the file takes.
    pub fn space_max(&self, shape: Shape) -> u64 {
        let pages = 2 + self.tables.len() + self.entries.len() / shape.page_entries();
        (PAGE_BYTES * pages) as u64
    }

    /// Writes and syncs file `id` at `path`, which must not exist, with `access`; returns offset and length of each table.
    /// The caller syncs the directory.
    pub fn write(
        mut self,
        storage: &dyn Storage,
        (path, access): (&Path, Access),
        id: FileId,
        shape: Shape,
    ) -> Result<Vec<(u64, u64)>> {
        self.entries.sort_unstable();
        let entries_of = |table: usize| {
            let from = self.entries.partition_point(|entry| (entry.0 as usize) < table);
            from..self.entries.partition_point(|entry| entry.0 as usize <= table)
        };
        let mut out = Vec::with_capacity(self.space_max(shape) as usize);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&shape.version().to_le_bytes());
        out.extend_from_slice(&id.0.to_le_bytes());
        out.extend_from_slice(&(self.tables.len() as u32).to_le_bytes());
        for (table, file) in self.tables.iter().enumerate() {
            out.extend_from_slice(&file.0.to_le_bytes());
            out.extend_from_slice(&(entries_of(table).len() as u64).to_le_bytes());
        }
        seal_page(&mut out, 0, id);
        let mut places = Vec::new();
        for table in 0..self.tables.len() {
            let begin = out.len();
            for page in self.entries[entries_of(table)].chunks(shape.page_entries()) {
                let start = out.len();
                for (_, from, to, len) in page {
                    out.extend_from_slice(&from.to_le_bytes());
                    out.extend_from_slice(&to.to_le_bytes());
                    if shape == Shape::Lengths {
                        out.extend_from_slice(&len.to_le_bytes());
                    }
                }
                seal_page(&mut out, start, id);
            }
            places.push((begin as u64, (out.len() - begin) as u64));
        }
        let file = storage.create(path, access)?;
        let mut buffer = WriteBuffer::new(file.clone(), access, out.len().min(WRITE_BYTES));
        buffer.write(&out, 0)?;
        buffer.finish()?;
        if access == Access::Direct {
            // The last block was padded.
            file.truncate(out.len() as u64)?;
        }
        file.sync()?;
        Ok(places)
    }
}

/// Pads the page that begins at `start` and appends its checksum.
fn seal_page(out: &mut Vec<u8>, start: usize, id: FileId) {
    out.resize(start + PAGE_BYTES - CHECKSUM_BYTES, 0);
    let checksum = placed_checksum(&out[start..], id, start as u64);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// What a page says of an offset.
enum Looked {
    /// It has the entry, or the record was dead.
    Answer(Option<RedirectEntry>),
    /// The offset is below its first one, which is this.
    Before(u64),
    /// The offset is above its last one, which is this.
    After(u64),
    /// It has no entries.
    Damaged,
}

/// A redirect table, open for lookups.
pub struct Redirect {
    file: Arc<StoredFile>,
    table: RedirectTable,
    to: Vec<FileId>,
    cache: Arc<BlockCache>,
    /// Known from the first lookup on.
    last: OnceLock<LastEntry>,
}

/// Where a table ends.
#[derive(Debug, Clone, Copy)]
struct LastEntry {
    offset: u64,
    /// The pages of the table, the last one as far as it is filled.
    pages: f64,
}

impl Redirect {
    /// A table in `file` that points into the extents `to`.
    pub fn new(file: Arc<StoredFile>, table: RedirectTable, to: Vec<FileId>, cache: Arc<BlockCache>) -> Redirect {
        Redirect { file, table, to, cache, last: OnceLock::new() }
    }

    /// The file that holds the table.
    pub fn stored(&self) -> &Arc<StoredFile> {
        &self.file
    }

    /// The extents that the table points into.
    pub fn to(&self) -> &[FileId] {
        &self.to
    }

    /// The present address of the record that was at `address`; `None` if it was dead. O(log log n) page reads.
    ///
    /// # Errors
    /// [`Error::Corruption`] if a page is damaged.
    pub fn follow(&self, address: Address) -> Result<Option<Address>> {
        self.follow_from(address, &mut None)
    }

    /// As [`follow`](Redirect::follow); looks at `page` first, and leaves there the page that had the answer. So addresses that
    /// are near each other are found without a search.
    ///
    /// # Errors
    /// As [`follow`](Redirect::follow).
    pub fn follow_from(&self, address: Address, page: &mut Option<Bytes>) -> Result<Option<Address>> {
        let found = self.find(address.offset, page)?;
        let Some(RedirectEntry { to: (index, offset), len, .. }) = found else { return Ok(None) };
        let damaged = |reason| Error::corruption(self.file.path(), self.table.start, reason);
        let file = *self.to.get(index).ok_or_else(|| damaged("a record moved to an unknown extent"))?;
        match len.unwrap_or(address.len) {
            len if len <= address.len => Ok(Some(Address { file, offset, len, ..address })),
            _ => Err(damaged("a record grew as it moved")),
        }
    }

    /// Where the records at these offsets are now: passes the extent and the offset there of each that was not dead.
    /// `offsets` ascend. Many are looked up by reading the table in sequence, past the block cache.
    ///
    /// # Errors
    /// As [`follow`](Redirect::follow).
    pub fn follow_all(&self, offsets: &[u64], see: &mut dyn FnMut(FileId, u64)) -> Result<()> {
        let mut arrived = |entry: RedirectEntry| match self.to.get(entry.to.0) {
            Some(file) => {
                see(*file, entry.to.1);
                Ok(())
            }
            None => Err(Error::corruption(self.file.path(), self.table.start, "a record moved to an unknown extent")),
        };
        let shape = self.table.shape;
        let pages = self.table.len / PAGE_BYTES as u64;
        if (offsets.len() as u64) < pages {
            let mut page = None;
            let mut find = |offset: &u64| self.find(*offset, &mut page)?.map_or(Ok(()), &mut arrived);
            return offsets.iter().try_for_each(&mut find);
        }
        let file = self.file.file()?;
        let (mut rest, mut chunk) = (offsets, Vec::new());
        for number in 0..pages {
            let (id, offset) = (self.file.id(), self.table.start + number * PAGE_BYTES as u64);
            let within = (number % CHUNK_PAGES) as usize * PAGE_BYTES;
            if within == 0 {
                chunk.resize((pages - number).min(CHUNK_PAGES) as usize * PAGE_BYTES, 0);
                read_exact_at(&*file, &mut chunk, offset)?;
            }
            let page = &chunk[within..within + PAGE_BYTES];
            check_page(page, id, offset).map_err(|reason| self.damaged(number, reason))?;
            // The last page is padded with zeros, which are not offsets of records.
            let entries = (0..shape.page_entries()).map(|index| shape.entry(page, index));
            for entry in entries.take_while(|entry| entry.from != 0) {
                while let Some((_, others)) = rest.split_first().filter(|(offset, _)| **offset < entry.from) {
                    rest = others;
                }
                if let Some((_, others)) = rest.split_first().filter(|(offset, _)| **offset == entry.from) {
                    rest = others;
                    arrived(entry)?;
                }
            }
            if rest.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Looks for an offset in a page.
    fn look(&self, page: &[u8], offset: u64) -> Looked {
        let shape = self.table.shape;
        let entries = shape.page_entries();
        // The last page is padded with zeros, which are not offsets of records: the search ends there, too.
        let at = |index: usize| shape.entry(page, index);
        let (first, last) = (at(0).from, at(entries - 1).from);
        let index = partition_point(entries, |index| (1..offset).contains(&at(index).from));
        let found = Some(index).filter(|index| *index < entries).map(at).filter(|entry| entry.from != 0);
        match found {
            _ if first == 0 => Looked::Damaged,
            Some(entry) if entry.from == offset => Looked::Answer(Some(entry)),
            Some(_) if index > 0 => Looked::Answer(None),
            Some(entry) => Looked::Before(entry.from),
            None => Looked::After(if last == 0 { at(index - 1).from } else { last }),
        }
    }

    fn find(&self, offset: u64, known: &mut Option<Bytes>) -> Result<Option<RedirectEntry>> {
        if let Some(page) = known
            && let Looked::Answer(answer) = self.look(page, offset)
        {
            return Ok(answer);
        }
        let last = self.last();
        if last.is_some_and(|last| offset > last.offset) {
            return Ok(None);
        }
        // The page is in low..high; known offsets at both ends guide the interpolation.
        let (mut low, mut high) = (0, self.table.len / PAGE_BYTES as u64);
        let (mut below, mut above) = (0, last.map(|last| last.offset));
        let mut pages = last.map_or(high as f64, |last| last.pages);
        let mut guesses = 0;
        while low < high {
            let guess = match above {
                // After a few wrong guesses, bisection bounds the search.
                Some(above) if guesses < 4 && above > below => {
                    let part = (offset.saturating_sub(below)) as f64 / (above - below) as f64;
                    (low + (part * pages) as u64).min(high - 1)
                }
                _ => low + (high - low) / 2,
            };
            guesses += 1;
            let page = self.page(guess)?;
            match self.look(&page, offset) {
                Looked::Damaged => return Err(self.damaged(guess, "a page is empty")),
                Looked::Answer(answer) => {
                    *known = Some(page);
                    return Ok(answer);
                }
                Looked::Before(first) => (high, above) = (guess, Some(first)),
                Looked::After(last) => (low, below) = (guess + 1, last),
            }
            pages = (high - low) as f64;
        }
        Ok(None)
    }

    /// The last entry of the table, from its last page; `None` if it is empty, or that page cannot be read, without which others
    /// are found by bisection.
    fn last(&self) -> Option<LastEntry> {
        let pages = self.table.len / PAGE_BYTES as u64;
        if pages == 0 || self.last.get().is_some() {
            return self.last.get().copied();
        }
        let (page, shape) = (self.page(pages - 1).ok()?, self.table.shape);
        let entries = partition_point(shape.page_entries(), |index| shape.entry(&page, index).from != 0);
        let offset = shape.entry(&page, entries.checked_sub(1)?).from;
        let filled = entries as f64 / shape.page_entries() as f64;
        Some(*self.last.get_or_init(|| LastEntry { offset, pages: (pages - 1) as f64 + filled }))
    }

    /// A page of the table, through the block cache.
    fn page(&self, number: u64) -> Result<Bytes> {
        let (id, offset) = (self.file.id(), self.table.start + number * PAGE_BYTES as u64);
        if let Some(page) = self.cache.get(id, offset) {
            return Ok(page);
        }
        let mut bytes = vec![0; PAGE_BYTES];
        read_exact_polled(&*self.file.file()?, &mut bytes, offset)?;
        check_page(&bytes, id, offset).map_err(|reason| self.damaged(number, reason))?;
        let page = Bytes::counted(bytes, self.cache.gauge().clone());
        self.cache.insert(id, offset, page.clone());
        Ok(page)
    }

    fn damaged(&self, page: u64, reason: &str) -> Error {
        Error::corruption(self.file.path(), self.table.start + page * PAGE_BYTES as u64, reason)
    }
}

/// The first of `count` indices for which `holds` is false; it is true for all indices before.
fn partition_point(count: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, count);
    while low < high {
        let middle = low.midpoint(high);
        match holds(middle) {
            true => low = middle + 1,
            false => high = middle,
        }
    }
    low
}

fn check_page(bytes: &[u8], id: FileId, offset: u64) -> Result<(), &'static str> {
    match bytes.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((checked, checksum)) if agrees(u64::from_le_bytes(*checksum), placed_checksum(checked, id, offset)) => {
            Ok(())
        }
        _ => Err("the checksum of a page does not match"),
    }
}

/// The description of a redirect table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RedirectTable {
    /// The file that was collected.
    pub of: FileId,
    /// Offset of the table, in bytes.
    pub start: u64,
    /// Length of the table, in bytes.
    pub len: u64,
    /// The contents of its pages.
    pub shape: Shape,
}

/// Reads a whole file of redirect tables and checks all of it; passes the entries of each table to `see` in order.
///
/// # Errors
/// [`Error::Corruption`] for damage, [`Error::Unsupported`] for another version.
pub fn read_all(
    file: &dyn File,
    id: FileId,
    see: &mut dyn FnMut(&RedirectTable, RedirectEntry),
) -> Result<Vec<RedirectTable>> {
    let damaged = |offset, reason: &str| Error::corruption(file.path(), offset, reason);
    let len = file.len()?;
    let mut header = vec![0; PAGE_BYTES];
    read_exact_at(file, &mut header, 0)?;
    if header[..8] != MAGIC {
        return Err(damaged(0, "this is not a redirect table"));
    }
    check_page(&header, id, 0).map_err(|reason| damaged(0, reason))?;
    let number = |at: usize| header[at..].first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let small = |at: usize| number(at) as u32;
    let Some(shape) = Shape::of_version(small(8)) else {
        let newest = Shape::Lengths.version();
        let message = format!("redirect table format {} is not the known {newest}", small(8));
        return Err(Error::Unsupported { path: file.path().to_owned(), message });
    };
    if number(12) != id.0 {
        return Err(damaged(12, "this is another redirect table"));
    }
    let count = small(20) as usize;
    if count > TABLES_MAX {
        return Err(damaged(20, "the header counts more tables than fit"));
    }
    let mut tables = Vec::new();
    let mut start = PAGE_BYTES as u64;
    let mut page = vec![0; PAGE_BYTES];
    for index in 0..count {
        let at = HEADER_FIELDS_BYTES + index * TABLE_BYTES;
        let (of, entries) = (FileId(number(at)), number(at + 8));
        let pages = entries.div_ceil(shape.page_entries() as u64);
        let end = pages.checked_mul(PAGE_BYTES as u64).and_then(|bytes| bytes.checked_add(start));
        let Some(end) = end.filter(|end| *end <= len) else {
            return Err(damaged(at as u64 + 8, "a table is longer than its file"));
        };
        let table = RedirectTable { of, start, len: end - start, shape };
        let (mut last, mut left) = (0, entries);
        for offset in (start..end).step_by(PAGE_BYTES) {
            read_exact_at(file, &mut page, offset)?;
            check_page(&page, id, offset).map_err(|reason| damaged(offset, reason))?;
            let here = left.min(shape.page_entries() as u64) as usize;
            for entry in (0..here).map(|index| shape.entry(&page, index)) {
                if entry.from <= last {
                    return Err(damaged(offset, "offsets do not ascend"));
                }
                last = entry.from;
                see(&table, entry);
            }
            left -= here as u64;
        }
        tables.push(table);
        start = end;
    }
    match start == len {
        true => Ok(tables),
        false => Err(damaged(start, "there are bytes after the last table")),
    }
}

#[cfg(test)]
#[path = "redirect_test.rs"]
mod tests;
