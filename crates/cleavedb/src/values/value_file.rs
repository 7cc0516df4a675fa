//! What holds values and never changes any more: a log that has left the front, or an extent of a segment. Its records are
//! read by address, and each is checked against the key and sequence number that were asked for.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Address, Error, FileId, Gauge, Result, Seqno, Slice};
use crate::format::group::Group;
use crate::format::record::value_of;
use crate::format::values::{EXTENT_ALIGN, Temperature};
use crate::io::handles::Handle;
use crate::io::pending_deletions::FileGuard;
use crate::io::{File, read_exact_polled};

/// A file on storage that holds values or redirect tables, of one or several files of values.
pub struct StoredFile {
    guard: FileGuard,
    handle: Handle,
}

impl StoredFile {
    /// The file under `guard`.
    pub fn new(guard: FileGuard, handle: Handle) -> StoredFile {
        StoredFile { guard, handle }
    }

    /// Its number.
    pub fn id(&self) -> FileId {
        self.guard.key().id
    }

    /// Its path.
    pub fn path(&self) -> &Arc<Path> {
        self.guard.path()
    }

    /// The open file.
    ///
    /// # Errors
    /// As opening it.
    pub fn file(&self) -> Result<Arc<dyn File>> {
        self.handle.file()
    }

    /// The manifest no longer names the file: it goes with its last holder.
    pub fn mark_obsolete(&self) {
        self.guard.mark_obsolete();
    }

    /// Gives back the space of an extent that begins and ends here, and that nobody reads.
    pub fn give_back(&self, start: u64, end: u64) {
        self.guard.give_back(start, end.next_multiple_of(EXTENT_ALIGN) - start);
    }
}

/// What the bytes of a file of values look like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Frames of records.
    Log,
    /// A header, then records, one behind the other.
    Extent {
        /// Where it begins in its segment, in bytes.
        start: u64,
        /// Which keys its records have.
        group: Group,
        /// How often they change.
        temperature: Temperature,
    },
}

/// A file of values.
pub struct ValueFile {
    id: FileId,
    layout: Layout,
    end: u64,
    stored: Arc<StoredFile>,
    /// The manifest no longer names it.
    obsolete: AtomicBool,
}

impl ValueFile {
    /// File `id`, which lies in `stored` up to `end`.
    pub fn new(id: FileId, layout: Layout, end: u64, stored: Arc<StoredFile>) -> ValueFile {
        ValueFile { id, layout, end, stored, obsolete: AtomicBool::new(false) }
    }

    /// Its number.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// What its bytes look like.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Where it begins, in bytes.
    pub fn start(&self) -> u64 {
        match self.layout {
            Layout::Log => 0,
            Layout::Extent { start, .. } => start,
        }
    }

    /// Where what counts of it ends, in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The file that it lies in.
    pub fn stored(&self) -> &Arc<StoredFile> {
        &self.stored
    }

    /// The manifest no longer names it: an extent gives its space back with its last holder.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The value of the record at `address`, which must be version `seqno` of `full_key`. One read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if another record, or none, lies there.
    pub fn read_value(&self, address: Address, full_key: &[u8], seqno: Seqno, gauge: &Arc<Gauge>) -> Result<Slice> {
        let file = self.file_at(address)?;
        let mut bytes = vec![0; address.len as usize];
        read_exact_polled(&*file, &mut bytes, address.offset)?;
        let value = value_of(bytes, address, full_key, seqno, gauge);
        value.map_err(|why| why.at(self.stored.path(), address.offset))
    }

    /// The open file that has the record at `address`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the address lies outside of what counts of the file; as opening it.
    pub fn file_at(&self, address: Address) -> Result<Arc<dyn File>> {
        let end = address.offset.checked_add(address.len.into()).filter(|end| *end <= self.end);
        if end.is_none() || address.offset < self.start() {
            return Err(self.damaged(address, "an address lies outside the file"));
        }
        self.stored.file()
    }

    #[cold]
    fn damaged(&self, address: Address, reason: &str) -> Error {
        Error::corruption(self.stored.path(), address.offset, reason)
    }
}

impl Drop for ValueFile {
    fn drop(&mut self) {
        if let Layout::Extent { start, .. } = self.layout
            && self.obsolete.load(Ordering::Acquire)
        {
            self.stored.give_back(start, self.end);
        }
    }
}
