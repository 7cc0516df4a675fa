//! A value file: a log that has left the front, or an extent of a segment. It never changes. Its records are read by
//! address, and each is checked against the expected key and sequence number.

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

/// A file on storage that holds one or several value files, or redirect tables.
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

    /// The manifest no longer references the file: it is removed with its last holder.
    pub fn mark_obsolete(&self) {
        self.guard.mark_obsolete();
    }

    /// Releases the space of an extent that begins and ends here and has no readers.
    pub fn give_back(&self, start: u64, end: u64) {
        self.guard.mark_range_obsolete(start, end.next_multiple_of(EXTENT_ALIGN) - start);
    }
}

/// The layout of a value file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// Frames of records.
    Log,
    /// A header, then records one after the other.
    Extent {
        /// Offset of the extent in its segment, in bytes.
        start: u64,
        /// The group of its keys.
        group: Group,
        /// How often its values change.
        temperature: Temperature,
    },
}

/// A value file.
pub struct ValueFile {
    id: FileId,
    layout: Layout,
    end: u64,
    stored: Arc<StoredFile>,
    /// The manifest no longer references it.
    obsolete: AtomicBool,
}

impl ValueFile {
    /// Value file `id`, which lies in `stored` and ends at `end`.
    pub fn new(id: FileId, layout: Layout, end: u64, stored: Arc<StoredFile>) -> ValueFile {
        ValueFile { id, layout, end, stored, obsolete: AtomicBool::new(false) }
    }

    /// Its number.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Its layout.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Start offset, in bytes.
    pub fn start(&self) -> u64 {
        if let Layout::Extent { start, .. } = self.layout { start } else { 0 }
    }

    /// End offset of its valid content, in bytes.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The file on storage that holds it.
    pub fn stored(&self) -> &Arc<StoredFile> {
        &self.stored
    }

    /// The manifest no longer references it: an extent's space is released with its last holder.
    pub fn mark_obsolete(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    /// The value of the record at `address`, which must be version `seqno` of `full_key`. One read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if another record, or none, is at the address.
    pub fn read_value(&self, address: Address, full_key: &[u8], seqno: Seqno, gauge: &Arc<Gauge>) -> Result<Slice> {
        let file = self.file_at(address)?;
        let mut bytes = vec![0; address.len as usize];
        read_exact_polled(&*file, &mut bytes, address.offset)?;
        let value = value_of(bytes, address, full_key, seqno, gauge);
        value.map_err(|why| why.at(self.stored.path(), address.offset))
    }

    /// The open file that holds the record at `address`.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the address lies outside the value file; any error from opening the file.
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
