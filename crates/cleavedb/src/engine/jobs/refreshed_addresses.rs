//! Addresses that are brought up to date as compactions pass them by.

use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, Kind, Result};
use crate::values::files::ValueFiles;
use crate::values::present_addresses::PresentAddresses;

/// Versions with addresses that name the files where the values are now, and not those where they were.
pub(crate) struct RefreshedAddresses<'a, S> {
    source: S,
    present: PresentAddresses<'a>,
    /// The present address of the version that the source stands on, if it is another.
    now: Option<Vec<u8>>,
}

impl<'a, S> RefreshedAddresses<'a, S> {
    pub fn new(source: S, values: &'a ValueFiles) -> RefreshedAddresses<'a, S> {
        RefreshedAddresses { source, present: PresentAddresses::new(values), now: None }
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
        if stamp.kind() == Some(Kind::PutAt)
            && let Some(address) = Address::decode(payload)
            // What cannot be read now is not lost by being referenced as it was.
            && let Ok(Some(now)) = self.present.find(address)
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
