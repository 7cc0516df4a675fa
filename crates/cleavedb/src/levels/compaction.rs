//! The output of a flush or compaction: writes a stream of versions and a list of range tombstones, already filtered,
//! into tables.
//!
//! Output tables are cut near a target size, never between versions of one key, and never span a dropped keyspace.
//! Range tombstones are split at the table boundaries. Everything returned is written and synced; the caller syncs the
//! directory and commits the edit. After an error no file written here is left behind.

use std::path::PathBuf;

use super::builder::{TableBuilder, TableOptions};
use crate::base::limits::KEYSPACE_PREFIX_BYTES;
use crate::base::tombstones::Fragment;
use crate::base::versions::VersionSource;
use crate::base::{Error, FileId, KeyspaceId, Result, split_key};
use crate::format::compression::Compression;
use crate::format::meta::TableMeta;
use crate::io::{Access, Storage};

/// Where tables go and how they are written.
pub struct TableSink<'a> {
    /// Holds the files.
    pub storage: &'a dyn Storage,
    /// Allocates a number that no file has had, and decides where its table lies; it is given about the least that the table will
    /// have, in bytes.
    pub next_table: &'a dyn Fn(u64) -> Result<NewTable>,
    /// Block size, filter bits and default compression; the access is that of each table.
    pub options: TableOptions,
    /// The compression of a keyspace, if it differs from the default.
    pub compression: &'a dyn Fn(KeyspaceId) -> Option<Compression>,
    /// Tables are cut when they reach this size, in bytes.
    pub target_bytes: u64,
    /// Keyspaces being dropped, ascending; no table may span one.
    pub never_across: &'a [KeyspaceId],
    /// Asked before more is written, with about the most bytes that all tables then have without their ends (properties,
    /// footer); its error ends the call.
    pub limit: &'a dyn Fn(u64) -> Result<()>,
}

/// A table that is to be written.
pub struct NewTable {
    /// Its number.
    pub id: FileId,
    /// Its path.
    pub path: PathBuf,
    /// How its file is written.
    pub access: Access,
    /// No key is begun in it with which it would be larger, in bytes without its end.
    pub bytes_max: u64,
}

/// Writes all of `source` and of `ranges`, both in order; writes no file if both are empty.
pub fn write_tables<E: From<Error>>(
    source: &mut dyn VersionSource<Error = E>,
    ranges: Vec<Fragment>,
    sink: &TableSink<'_>,
) -> Result<Vec<TableMeta>, E> {
    let mut writer = TableWriter {
        sink,
        open: None,
        bytes_max: u64::MAX,
        finished: Vec::new(),
        finished_bytes: 0,
        created: Vec::new(),
        last_key: Vec::new(),
        ranges: ranges.into_iter(),
        range: None,
    };
    writer.write_all(source)?;
    writer.created.clear();
    Ok(std::mem::take(&mut writer.finished))
}

struct TableWriter<'a> {
    sink: &'a TableSink<'a>,
    open: Option<TableBuilder>,
    /// As [`NewTable::bytes_max`], of the open table.
    bytes_max: u64,
    finished: Vec<TableMeta>,
    finished_bytes: u64,
    /// Files that are removed with the writer unless it completes. (The source may run user code, and panic.)
    created: Vec<PathBuf>,
    /// The last key, of a version or the start of a fragment.
    last_key: Vec<u8>,
    /// Fragments that have not begun yet.
    ranges: std::vec::IntoIter<Fragment>,
    /// The fragment that has begun and not ended; the rest of it goes into the open table.
    range: Option<Fragment>,
}

impl TableWriter<'_> {
    fn write_all<E: From<Error>>(&mut self, source: &mut dyn VersionSource<Error = E>) -> Result<(), E> {
        while source.advance()? {
            let (key, stamp, value) = source.current();
            // A key may get into the index and the top index too.
            let coming = 3 * key.len() as u64 + value.len() as u64;
            if self.is_new(key) {
                self.begin_ranges(Some(key))?;
            }
            if self.is_new(key) {
                self.begin_key(key, coming)?;
            }
            let builder = self.open.as_mut().expect("a key was begun, so a table is open");
            (self.sink.limit)(self.finished_bytes + builder.estimated_size() + coming)?;
            builder.add(key, stamp, value)?;
        }
        self.begin_ranges(None)?;
        Ok(self.finish_table(None)?)
    }

    fn is_new(&self, key: &[u8]) -> bool {
        self.open.is_none() || key != self.last_key
    }

    /// Begins the fragments that start at or before `key` (`None`: all of them), and adds those that end by then to the
    /// open table.
    fn begin_ranges(&mut self, key: Option<&[u8]>) -> Result<()> {
        loop {
            if let Some(range) = self.range.take_if(|range| key.is_none_or(|key| range.end.as_slice() <= key)) {
                self.add_range(range);
            }
            let next = match self.ranges.as_slice().first() {
                Some(next) if self.range.is_none() && key.is_none_or(|key| next.start.as_slice() <= key) => next,
                _ => return Ok(()),
            };
            let start = next.start.clone();
            self.begin_key(&start, 0)?;
            self.range = self.ranges.next();
        }
    }

    fn add_range(&mut self, range: Fragment) {
        self.open.as_mut().expect("a key was begun, so a table is open").add_range(range);
    }

    /// Splits the open fragment at `border`: the part before it goes into the open table, the rest into the next.
    fn cut_range(&mut self, border: &[u8]) {
        if let Some(mut range) = self.range.take() {
            self.range = Some(Fragment { start: border.to_vec(), ..range.clone() });
            range.end = border.to_vec();
            self.add_range(range);
        }
    }

    /// Cuts and opens tables as the new key requires, of which `coming` bytes come first, and sets the compression of its
    /// keyspace.
    fn begin_key(&mut self, key: &[u8], coming: u64) -> Result<()> {
        let new_keyspace = self.open.is_none() || keyspace_prefix(key) != keyspace_prefix(&self.last_key);
        if let Some(builder) = &self.open {
            let size = builder.estimated_size();
            let full = size >= self.sink.target_bytes || size.saturating_add(coming) > self.bytes_max;
            if full || new_keyspace && self.across_dropped(key) {
                self.finish_table(Some(key))?;
            }
        }
        let opened = self.open.is_none();
        if opened {
            let NewTable { id, path, access, bytes_max } = (self.sink.next_table)(coming)?;
            self.bytes_max = bytes_max;
            let options = TableOptions { access, ..self.sink.options };
            self.open = Some(TableBuilder::create(self.sink.storage, &path, id, options)?);
            self.created.push(path);
        }
        if let (Some(builder), true) = (&mut self.open, new_keyspace || opened) {
            let chosen = split_key(key).and_then(|(keyspace, _)| (self.sink.compression)(keyspace));
            builder.set_compression(chosen.unwrap_or(self.sink.options.compression))?;
        }
        self.last_key.clear();
        self.last_key.extend_from_slice(key);
        Ok(())
    }

    /// Whether a dropped keyspace lies between the last key and this one.
    fn across_dropped(&self, key: &[u8]) -> bool {
        let between = |keyspace: &KeyspaceId| {
            let prefix = keyspace.prefix();
            keyspace_prefix(&self.last_key) < &prefix[..] && &prefix[..] < keyspace_prefix(key)
        };
        self.sink.never_across.iter().any(between)
    }

    /// Finishes the open table, if any; `border` is the first key of the next one.
    fn finish_table(&mut self, border: Option<&[u8]>) -> Result<()> {
        if let Some(border) = border {
            self.cut_range(border);
        }
        if let Some(builder) = self.open.take() {
            (self.sink.limit)(self.finished_bytes + builder.estimated_size())?;
            let meta = builder.finish()?;
            self.finished_bytes += meta.size;
            self.finished.push(meta);
        }
        Ok(())
    }
}

impl Drop for TableWriter<'_> {
    /// The error that led here is the one to report, so failed removals are left to the cleanup at the next open, which
    /// removes every file that the manifest does not reference.
    fn drop(&mut self) {
        self.open = None;
        for path in self.created.drain(..) {
            self.sink.storage.remove(&path).ok();
        }
    }
}

fn keyspace_prefix(key: &[u8]) -> &[u8] {
    &key[..key.len().min(KEYSPACE_PREFIX_BYTES)]
}

#[cfg(test)]
#[path = "compaction_test.rs"]
mod tests;
