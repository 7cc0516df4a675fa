//! The files of values that a view holds, by their numbers, and the ledger of that moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::redirect::Redirect;
use super::segment::HEADER_BYTES;
use super::value_file::{Layout, ValueFile};
use super::victim::Candidate;
use crate::base::{Address, Error, FileId, Result};
use crate::format::values::ValueState;

/// Where the records of one file are.
#[derive(Clone)]
pub enum Entry {
    /// In it.
    Here(Arc<ValueFile>),
    /// Moved: a redirect table leads on.
    Moved(Arc<Redirect>),
}

impl Entry {
    /// The manifest no longer names what is behind this.
    pub fn doom(&self) {
        match self {
            Entry::Here(file) => file.doom(),
            Entry::Moved(redirect) => redirect.doom(),
        }
    }
}

/// All files of values at one moment.
#[derive(Clone, Default)]
pub struct ValueFiles {
    /// By number.
    pub files: BTreeMap<FileId, Entry>,
    /// What the manifest says of them.
    pub state: ValueState,
    /// Those that are to be emptied next.
    pub victims: Vec<FileId>,
    /// Bytes of all of them.
    pub file_bytes: u64,
    /// Of these, bytes of records that something leads to.
    pub live_bytes: u64,
}

impl ValueFiles {
    /// What the choice of victims looks at.
    pub fn candidates(&self) -> Vec<Candidate> {
        let reach = self.state.reach();
        let here = self.files.iter().filter_map(|(id, entry)| match entry {
            // The header of a segment is there whatever is emptied.
            Entry::Here(file) if file.layout() == Layout::Segment => Some((id, file.end() - HEADER_BYTES as u64)),
            Entry::Here(file) => Some((id, file.end())),
            Entry::Moved(_) => None,
        });
        here.map(|(id, bytes)| Candidate { file: *id, bytes, live: reach.of(*id).bytes }).collect()
    }

    /// Where the record is that lies, or lay, at `address`: the file, and the address there. Follows redirect tables.
    ///
    /// `None` if the file is not known.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the record was dead when its file was emptied.
    pub fn locate(&self, address: Address) -> Result<Option<(&Arc<ValueFile>, Address)>> {
        let mut at = address;
        loop {
            match self.files.get(&at.file) {
                Some(Entry::Here(file)) => return Ok(Some((file, at))),
                Some(Entry::Moved(redirect)) => match redirect.find(at.offset)? {
                    Some(offset) => at = Address { file: redirect.to(), offset, ..at },
                    None => {
                        let message = format!("offset {} of file {} is named, and was dead", at.offset, at.file.0);
                        return Err(Error::corruption(redirect.path(), 0, message));
                    }
                },
                None => return Ok(None),
            }
        }
    }

    /// The present address of a record, if its file was emptied and it is known where it went.
    pub fn healed(&self, address: Address) -> Result<Option<Address>> {
        match self.files.get(&address.file) {
            Some(Entry::Moved(_)) => Ok(self.locate(address)?.map(|(_, now)| now)),
            _ => Ok(None),
        }
    }
}
