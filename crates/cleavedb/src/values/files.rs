//! The files of values that a view holds, by their numbers, and the ledger of that moment.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::placement::Candidate;
use super::redirect::Redirect;
use super::segment::EXTENT_HEADER_BYTES;
use super::value_file::{Layout, StoredFile, ValueFile};
use crate::base::{Address, FileId, Result};
use crate::format::value_state::{ReclaimedBytes, ValueState};

/// Where the records of one file are.
#[derive(Clone)]
pub enum Entry {
    /// In it.
    Here(Arc<ValueFile>),
    /// Moved: a redirect table leads on.
    Moved(Arc<Redirect>),
}

impl Entry {
    /// The file on storage that it lies in.
    pub fn stored(&self) -> &Arc<StoredFile> {
        match self {
            Entry::Here(file) => file.stored(),
            Entry::Moved(redirect) => redirect.stored(),
        }
    }
}

/// All files of values at one moment.
#[derive(Clone, Default)]
pub struct ValueFiles {
    /// By number.
    pub files: BTreeMap<FileId, Entry>,
    /// The files on storage that these lie in, by their own numbers.
    pub stored: BTreeMap<FileId, Arc<StoredFile>>,
    /// What the manifest says of them.
    pub state: ValueState,
    /// Those that are to be emptied next.
    pub victims: Vec<FileId>,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// Of these, bytes of records that something leads to.
    pub live_bytes: u64,
    /// Of records that tables name, what is not there any more.
    pub away: ReclaimedBytes,
}

/// Where a record is that an address leads to.
pub enum Located<'a> {
    /// In a file, at an address there.
    At(&'a Arc<ValueFile>, Address),
    /// Nowhere: it was dead when its file was emptied. A newer base of its key is in the tables.
    Dead,
    /// The file is not known.
    Unknown,
}

impl ValueFiles {
    /// What the choice of victims looks at.
    pub fn candidates(&self) -> Vec<Candidate> {
        let reach = self.state.reachable();
        let here = self.files.iter().filter_map(|(id, entry)| match entry {
            Entry::Here(file) => Some((*id, file)),
            Entry::Moved(_) => None,
        });
        here.map(|(file, value_file)| {
            let (bytes, part) = match value_file.layout() {
                Layout::Log => (value_file.end(), None),
                // The header is there whatever is emptied.
                Layout::Extent { start, group, temperature } => {
                    (value_file.end() - start - EXTENT_HEADER_BYTES as u64, Some((group.clone(), *temperature)))
                }
            };
            Candidate { file, bytes, live: reach.of(file).bytes, part }
        })
        .collect()
    }

    /// How many files hold redirect tables.
    pub fn redirect_files(&self) -> usize {
        let redirects = self.files.values().filter_map(|entry| match entry {
            Entry::Moved(redirect) => Some(redirect.stored().id()),
            Entry::Here(_) => None,
        });
        redirects.collect::<BTreeSet<_>>().len()
    }

    /// Where the record is that lies, or lay, at `address`. Follows redirect tables.
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

    /// The present address of a record, if its file was emptied and it is known where it went.
    pub fn refreshed(&self, address: Address) -> Result<Option<Address>> {
        match self.files.get(&address.file) {
            Some(Entry::Moved(_)) => Ok(match self.locate(address)? {
                Located::At(_, now) => Some(now),
                Located::Dead | Located::Unknown => None,
            }),
            _ => Ok(None),
        }
    }
}
