//! Addresses that are brought up to date as compactions pass them by.

use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, FileId, Kind, Result};
use crate::values::files::{Entry, ValueFiles};

/// Versions with addresses that name the files where the values are now, and not those where they were.
pub(crate) struct RefreshedAddresses<'a, S> {
    source: S,
    values: &'a ValueFiles,
    /// Files that were emptied, in order.
    moved: Vec<FileId>,
    /// The present address of the version that the source stands on, if it is another.
    now: Option<Vec<u8>>,
}

impl<'a, S> RefreshedAddresses<'a, S> {
    pub fn new(source: S, values: &'a ValueFiles) -> RefreshedAddresses<'a, S> {
        let is_moved = |(id, entry): (&FileId, &Entry)| matches!(entry, Entry::Moved(_)).then_some(*id);
        RefreshedAddresses { source, values, moved: values.files.iter().filter_map(is_moved).collect(), now: None }
    }
}

impl<S: VersionSource> VersionSource for RefreshedAddresses<'_, S> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        self.now = None;
        if !self.source.advance()? {
            return Ok(false);
        }
        let (_, stamp, payload) = self.source.current();
        if !self.moved.is_empty()
            && stamp.kind() == Some(Kind::PutAt)
            && let Some(address) = Address::decode(payload)
            && self.moved.binary_search(&address.file).is_ok()
            // What cannot be read now is not lost by being referenced as it was.
            && let Ok(Some(now)) = self.values.refreshed_address(address)
        {
            let mut payload = Vec::with_capacity(Address::ENCODED_BYTES_MAX);
            now.encode(&mut payload);
            self.now = Some(payload);
        }
        Ok(true)
    }

    fn current(&self) -> VersionRef<'_> {
        let (key, stamp, payload) = self.source.current();
        (key, stamp, self.now.as_deref().unwrap_or(payload))
    }
}
