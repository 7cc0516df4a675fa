//! Looks up where many records are now, in an order in which neighbours often lie near each other: it keeps, for each file that
//! was passed lately, the page of its redirect table that had the last answer.

use super::files::{Entry, ValueFiles};
use super::redirect::{PAGE_BYTES, Redirect};
use crate::base::{Address, Bytes, FileId, Result};

/// Files whose last pages are kept, each in the place that its number gives.
const KEPT: usize = 32;

/// Looks up the present addresses of records.
pub struct PresentAddresses<'a> {
    values: &'a ValueFiles,
    kept: Box<[Option<Passed<'a>>]>,
}

/// A file that was passed.
struct Passed<'a> {
    file: FileId,
    /// Where its records are, if they moved.
    moved: Option<&'a Redirect>,
    page: Option<Bytes>,
}

/// Memory of the pages that are kept.
pub const KEPT_BYTES: usize = KEPT * PAGE_BYTES;

impl<'a> PresentAddresses<'a> {
    /// Looks up addresses in these files, of which only those matter that were emptied ([`ValueFiles::moves`]).
    pub fn new(values: &'a ValueFiles) -> PresentAddresses<'a> {
        PresentAddresses { values, kept: (0..KEPT).map(|_| None).collect() }
    }

    /// The present address of a record, if its file was collected and the record moved.
    ///
    /// # Errors
    /// As [`Redirect::follow`].
    pub fn find(&mut self, address: Address) -> Result<Option<Address>> {
        let mut now = address;
        loop {
            let passed = self.passed(now.file);
            let Some(redirect) = passed.moved else {
                return Ok((now.file != address.file).then_some(now));
            };
            match redirect.follow_from(now, &mut passed.page)? {
                Some(next) => now = next,
                None => return Ok(None),
            }
        }
    }

    fn passed(&mut self, file: FileId) -> &mut Passed<'a> {
        let values = self.values;
        let kept = &mut self.kept[file.0 as usize % KEPT];
        if kept.as_ref().is_none_or(|passed| passed.file != file) {
            let moved = match values.files.get(&file) {
                Some(Entry::Moved(redirect)) => Some(&**redirect),
                Some(Entry::Here(_)) | None => None,
            };
            *kept = Some(Passed { file, moved, page: None });
        }
        kept.as_mut().expect("it was set above")
    }
}
