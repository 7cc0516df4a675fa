//! Value files: logs that have left the front, and extents of segments. They never change. A record is read in two steps:
//! [`ValueFiles::locate`] finds the file that holds it now, and [`ValueFile::read_value`] reads it there by its address and
//! checks it against the expected key and sequence number.
//!
//! A view holds all value files of its moment, with the ledger.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use super::candidate::Candidate;
use super::redirect::Redirect;
use super::segment::EXTENT_HEADER_BYTES;
use crate::base::{Address, Error, FileId, FileKey, Gauge, Result, Seqno, SharedMap, Slice};
use crate::format::group::Group;
use crate::format::record::value_of;
use crate::format::value_state::{ReclaimedBytes, ValueState};
use crate::format::values::{EXTENT_ALIGN, Temperature};
use crate::io::ahead_threads::AheadThreads;
use crate::io::file_guard::FileGuard;
use crate::io::handles::Handle;
use crate::io::ordered_file::OrderedFile;
use crate::io::{File, read_exact_polled};

/// Where the records of a value file are.
#[derive(Clone)]
pub enum Entry {
    /// In the file itself.
    Here(Arc<ValueFile>),
    /// Moved: a redirect table holds the new locations.
    Moved(Arc<Redirect>),
}

impl Entry {
    /// The file on storage that holds the entry.
    pub fn stored(&self) -> &Arc<StoredFile> {
        match self {
            Entry::Here(file) => file.stored(),
            Entry::Moved(redirect) => redirect.stored(),
        }
    }
}

/// All value files at one moment. What an edit leaves as it is, is shared with the files before it.
#[derive(Clone, Default)]
pub struct ValueFiles {
    /// By number.
    pub files: SharedMap<FileId, Entry>,
    /// The files on storage that hold them, by their own numbers.
    pub stored: SharedMap<FileId, Arc<StoredFile>>,
    /// Their state in the manifest.
    pub state: ValueState,
    figures: OnceLock<ValueFigures>,
}

/// What the choice of victims and the pace of writers follow from.
#[derive(Clone)]
pub struct ValueFigures {
    /// The files as the choice of victims sees them, by number.
    pub candidates: Vec<Candidate>,
    /// Total bytes of all value files, but for logs that hash indexes reference.
    pub file_bytes: u64,
    /// Bytes of logs that hash indexes reference.
    pub indexed_bytes: u64,
    /// Of these, bytes of referenced records. More exact than the sum over the files: how the references to a collected file
    /// divide among the files that its records moved into is not known, and of one that seems to have more live bytes than
    /// it has bytes the rest would be lost.
    pub live_bytes: u64,
    /// Bytes of referenced records that were reclaimed.
    pub reclaimed: ReclaimedBytes,
}

/// The location of the record behind an address.
pub enum Located<'a> {
    /// In a value file, at this address.
    At(&'a Arc<ValueFile>, Address),
    /// Nowhere: the record was dead when its file was collected. The tables hold a newer base of its key.
    Dead,
    /// The file is not known.
    Unknown,
}

impl ValueFiles {
    /// These files, in this state.
    pub fn new(
        files: SharedMap<FileId, Entry>,
        stored: SharedMap<FileId, Arc<StoredFile>>,
        state: ValueState,
    ) -> ValueFiles {
        ValueFiles { files, stored, state, ..ValueFiles::default() }
    }

    /// Only the files that were emptied, and their redirect tables.
    pub fn moves(&self) -> ValueFiles {
        let moved = self.files.iter().filter(|(_, entry)| matches!(entry, Entry::Moved(_)));
        let files: SharedMap<FileId, Entry> = moved.map(|(file, entry)| (*file, entry.clone())).collect();
        let stored = files.values().map(|entry| (entry.stored().id(), entry.stored().clone())).collect();
        ValueFiles::new(files, stored, ValueState::default())
    }

    /// ValueFigures on the files. O(files) for the first who asks, and O(1) for others: nothing of it ever changes.
    pub fn figures(&self) -> &ValueFigures {
        self.figures.get_or_init(|| {
            let candidates = self.candidates();
            let file_bytes = candidates.iter().map(|file| file.bytes).sum();
            let reclaimed = self.state.reclaimed_bytes();
            // Other references are to logs of the front.
            let is_value_file = |file: &FileId| self.files.contains_key(file) && !self.state.indexed.contains(file);
            let referenced = self.state.referenced.0.iter().filter(|(file, _)| is_value_file(file));
            let referenced: u64 = referenced.map(|(_, of)| of.bytes).sum();
            let live_bytes = referenced.saturating_sub(reclaimed.dead).saturating_sub(reclaimed.saved).min(file_bytes);
            let indexed = self.state.indexed.iter().filter_map(|file| match self.files.get(file) {
                Some(Entry::Here(log)) => Some(log.end()),
                _ => None,
            });
            let indexed_bytes = indexed.sum();
            ValueFigures { file_bytes, indexed_bytes, live_bytes, reclaimed, candidates }
        })
    }

    fn candidates(&self) -> Vec<Candidate> {
        let reach = self.state.reachable();
        let here = self.files.iter().filter_map(|(id, entry)| match entry {
            Entry::Here(file) if !self.state.indexed.contains(id) => Some((*id, file)),
            Entry::Here(_) | Entry::Moved(_) => None,
        });
        here.map(|(file, value_file)| {
            let (bytes, part) = match value_file.layout() {
                Layout::Log => (value_file.end(), None),
                // Collecting does not save the header.
                Layout::Extent { start, group, temperature } => {
                    (value_file.end() - start - EXTENT_HEADER_BYTES as u64, Some((group.clone(), *temperature)))
                }
            };
            Candidate { file, bytes, live: reach.of(file).bytes, part }
        })
        .collect()
    }

    /// Number of files that hold redirect tables.
    pub fn redirect_files(&self) -> usize {
        let redirects = self.files.values().filter_map(|entry| match entry {
            Entry::Moved(redirect) => Some(redirect.stored().id()),
            Entry::Here(_) => None,
        });
        redirects.collect::<BTreeSet<_>>().len()
    }

    /// The present location of the record that was written at `address`. Follows redirect tables.
    ///
    /// # Errors
    /// As reading a redirect table.
    pub fn locate(&self, address: Address) -> Result<Located<'_>> {
        let mut at = address;
        loop {
            match self.files.get(&at.file) {
                Some(Entry::Here(file)) => return Ok(Located::At(file, at)),
                Some(Entry::Moved(redirect)) => match redirect.follow(at)? {
                    Some(next) => at = next,
                    None => return Ok(Located::Dead),
                },
                None => return Ok(Located::Unknown),
            }
        }
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

    /// The value of the record at `address`, which must be version `seqno` of `full_key`, or any
    /// version of it without `seqno`. One read.
    ///
    /// # Errors
    /// [`Error::Corruption`] if another record, or none, is at the address.
    pub fn read_value(
        &self,
        address: Address,
        full_key: &[u8],
        seqno: impl Into<Option<Seqno>>,
        gauge: &Arc<Gauge>,
    ) -> Result<Slice> {
        let seqno = seqno.into();
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

/// A file on storage that holds one or several value files, or redirect tables.
pub struct StoredFile {
    /// Closed before the guard lets it be removed.
    handle: Handle,
    guard: FileGuard,
    /// Read ahead for jobs, if the system does not.
    ahead: Option<Arc<AheadThreads>>,
}

impl StoredFile {
    /// The file under `guard`. What jobs read in order is read ahead by these threads, if there are some.
    pub fn new(guard: FileGuard, handle: Handle, ahead: Option<Arc<AheadThreads>>) -> StoredFile {
        StoredFile { guard, handle, ahead }
    }

    /// The file.
    pub fn key(&self) -> FileKey {
        self.guard.key()
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

    /// The open file for one job that reads most of it in order, and announces what it will read.
    ///
    /// # Errors
    /// As opening it.
    pub fn file_in_order(&self) -> Result<Arc<dyn File>> {
        let file = self.handle.file()?;
        Ok(match &self.ahead {
            Some(threads) => Arc::new(OrderedFile::new(file, threads.clone())),
            None => file,
        })
    }

    /// What jobs announce stays in the page cache until it is read again.
    pub fn is_cached(&self) -> bool {
        self.ahead.is_none()
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
