//! The write half of a flush or compaction: a stream of versions that survived in, tables out.
//!
//! Output tables are cut near a target size, never between versions of one key, and so that none of them reaches across
//! a dropped keyspace. Everything returned is written and synced; the caller syncs the directory and commits the edit.
//! After an error nothing is left behind that was written here.

use std::path::PathBuf;

use super::builder::{TableBuilder, TableOptions};
use crate::base::limits::KEYSPACE_PREFIX_BYTES;
use crate::base::versions::VersionSource;
use crate::base::{FileId, KeyspaceId, Result, split_key};
use crate::format::compression::Compression;
use crate::format::meta::TableMeta;
use crate::io::Storage;

/// Where tables go and how they are written.
pub struct TableSink<'a> {
    /// Holds the files.
    pub storage: &'a dyn Storage,
    /// The path of the table with a number.
    pub path_of: &'a dyn Fn(FileId) -> PathBuf,
    /// A number that no file has had.
    pub next_file: &'a dyn Fn() -> FileId,
    /// Block size, filters and default compression.
    pub options: TableOptions,
    /// The compression of a keyspace, where it is not the default.
    pub compression: &'a dyn Fn(KeyspaceId) -> Option<Compression>,
    /// Tables are cut when they reach this size, in bytes.
    pub target_bytes: u64,
    /// Keyspaces that no table may reach across: those being dropped, ascending.
    pub never_across: &'a [KeyspaceId],
}

/// Writes all of `source`; nothing at all if it is empty.
pub fn write_tables(source: &mut dyn VersionSource, sink: &TableSink<'_>) -> Result<Vec<TableMeta>> {
    let mut writer = Writer { sink, open: None, finished: Vec::new(), created: Vec::new(), last_key: Vec::new() };
    let written = writer.write_all(source);
    if written.is_err() {
        writer.remove_created();
    }
    written.map(|()| writer.finished)
}

struct Writer<'a> {
    sink: &'a TableSink<'a>,
    open: Option<TableBuilder>,
    finished: Vec<TableMeta>,
    created: Vec<PathBuf>,
    last_key: Vec<u8>,
}

impl Writer<'_> {
    fn write_all(&mut self, source: &mut dyn VersionSource) -> Result<()> {
        while source.advance()? {
            let (key, stamp, value) = source.current();
            if self.open.is_none() || key != self.last_key {
                self.begin_key(key)?;
            }
            let builder = self.open.as_mut().expect("a key was begun, so a table is open");
            builder.add(key, stamp, value)?;
        }
        self.finish_table()
    }

    /// Cuts and opens tables as the new key asks for, and sets the compression of its keyspace.
    fn begin_key(&mut self, key: &[u8]) -> Result<()> {
        let new_keyspace = self.open.is_none() || keyspace_prefix(key) != keyspace_prefix(&self.last_key);
        if let Some(builder) = &self.open {
            let full = builder.estimated_size() >= self.sink.target_bytes;
            if full || new_keyspace && self.across_dropped(key) {
                self.finish_table()?;
            }
        }
        let opened = self.open.is_none();
        if opened {
            let id = (self.sink.next_file)();
            let path = (self.sink.path_of)(id);
            self.open = Some(TableBuilder::create(self.sink.storage, &path, id, self.sink.options)?);
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

    /// A dropped keyspace lies between the last key and this one.
    fn across_dropped(&self, key: &[u8]) -> bool {
        let between = |keyspace: &KeyspaceId| {
            let prefix = keyspace.prefix();
            keyspace_prefix(&self.last_key) < &prefix[..] && &prefix[..] < keyspace_prefix(key)
        };
        self.sink.never_across.iter().any(between)
    }

    fn finish_table(&mut self) -> Result<()> {
        if let Some(builder) = self.open.take() {
            self.finished.push(builder.finish()?);
        }
        Ok(())
    }

    /// The error that led here is the one to report, so failures to remove are left to the clean-up at the next open,
    /// which removes every file that the manifest does not name.
    fn remove_created(&mut self) {
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
