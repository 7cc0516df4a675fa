//! The value files of a view, by number, with the ledger at that moment.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use super::candidate::Candidate;
use super::redirect::Redirect;
use super::segment::EXTENT_HEADER_BYTES;
use super::value_file::{Layout, StoredFile, ValueFile};
use crate::base::{Address, FileId, Result, SharedMap};
use crate::format::value_state::{ReclaimedBytes, ValueState};

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
    victims: OnceLock<Vec<FileId>>,
}

/// What the choice of victims and the pace of writers follow from.
#[derive(Clone)]
pub struct ValueFigures {
    /// The files as the choice of victims sees them.
    pub candidates: Vec<Candidate>,
    /// Total bytes of all value files.
    pub file_bytes: u64,
    /// Of these, bytes of referenced records.
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

    /// ValueFigures on the files. O(files) for the first who asks, and O(1) for others: nothing of it ever changes.
    pub fn figures(&self) -> &ValueFigures {
        self.figures.get_or_init(|| {
            let candidates = self.candidates();
            ValueFigures {
                file_bytes: candidates.iter().map(|file| file.bytes).sum(),
                live_bytes: candidates.iter().map(|file| file.live.min(file.bytes)).sum(),
                reclaimed: self.state.reclaimed_bytes(),
                candidates,
            }
        })
    }

    /// The files to collect next, as a policy chooses them; the same policy is asked once.
    pub fn victims(&self, choose: impl FnOnce(&[Candidate]) -> Vec<FileId>) -> &[FileId] {
        self.victims.get_or_init(|| choose(&self.figures().candidates))
    }

    fn candidates(&self) -> Vec<Candidate> {
        let reach = self.state.reachable();
        let here = self.files.iter().filter_map(|(id, entry)| match entry {
            Entry::Here(file) => Some((*id, file)),
            Entry::Moved(_) => None,
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

    /// The present address of a record, if its file was collected and the record moved.
    pub fn refreshed_address(&self, address: Address) -> Result<Option<Address>> {
        match self.files.get(&address.file) {
            Some(Entry::Moved(_)) => Ok(match self.locate(address)? {
                Located::At(_, now) => Some(now),
                Located::Dead | Located::Unknown => None,
            }),
            _ => Ok(None),
        }
    }
}
