//! A cursor over those versions of a row of tables that reference some value files. It passes the other versions
//! without decoding their addresses, and whole blocks by the files that their columns span. Value GC finds what is live
//! with it.

use std::sync::Arc;

use super::level_cursor::LevelCursor;
use super::table::Table;
use crate::base::file_set::FileSet;
use crate::base::{Address, Cursor, Kind, Result, Slice, Stamp};

/// A cursor over the versions whose payload is an address in one of some files.
pub struct ReferenceCursor {
    all: LevelCursor,
    files: Arc<FileSet>,
}

impl ReferenceCursor {
    /// A cursor over `tables`, sorted by key and without overlap; not positioned.
    pub fn new(tables: Arc<[Arc<Table>]>, files: Arc<FileSet>) -> ReferenceCursor {
        ReferenceCursor { all: LevelCursor::new(tables, false), files }
    }

    /// Decodes the address in a payload, if it is one.
    pub fn address_in(stamp: Stamp, payload: &[u8]) -> Option<Address> {
        if stamp.kind().is_some_and(Kind::is_address) { Address::decode(payload) } else { None }
    }

    fn refers(&self) -> bool {
        let address = || ReferenceCursor::address_in(self.all.stamp(), self.all.value());
        !self.all.valid() || address().is_some_and(|address| self.files.contains(address.file))
    }

    fn skip_forward(&mut self) -> Result<()> {
        if self.refers() { Ok(()) } else { self.all.next_in(&self.files) }
    }

    fn skip_backward(&mut self) -> Result<()> {
        while !self.refers() {
            self.all.prev()?;
        }
        Ok(())
    }
}

impl Cursor for ReferenceCursor {
    fn valid(&self) -> bool {
        self.all.valid()
    }

    fn key(&self) -> &[u8] {
        self.all.key()
    }

    fn stamp(&self) -> Stamp {
        self.all.stamp()
    }

    fn value(&self) -> &[u8] {
        self.all.value()
    }

    fn value_slice(&self) -> Slice {
        self.all.value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.all.seek(key, stamp)?;
        self.skip_forward()
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        self.all.seek_before(key, stamp)?;
        self.skip_backward()
    }

    fn seek_first(&mut self) -> Result<()> {
        self.all.seek_first()?;
        self.skip_forward()
    }

    fn seek_last(&mut self) -> Result<()> {
        self.all.seek_last()?;
        self.skip_backward()
    }

    fn next(&mut self) -> Result<()> {
        self.all.next_in(&self.files)
    }

    fn prev(&mut self) -> Result<()> {
        self.all.prev()?;
        self.skip_backward()
    }
}
