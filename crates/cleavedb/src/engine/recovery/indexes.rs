//! Reads the saved indexes of hash keyspaces. If the file is damaged or gone, they are made from all logs instead, which gives
//! the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::base::{Error, FileId, KeyspaceId, Result};
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::files::Dirs;
use crate::format::edit::KeyspaceKind;
use crate::format::file_header::FILE_HEADER_BYTES;
use crate::format::index_file::{
    BLOCK_HEADER_BYTES, Block, FORMAT, SavedKey, SavedPlace, content_len, decode_block, take_key,
};
use crate::format::record::HEADER_BYTES;
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::{HashStore, Records};
use crate::io::{Access, File, Storage};

/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;

/// The index of each hash keyspace.
pub(super) type Indexes = BTreeMap<KeyspaceId, Arc<HashStore>>;

/// Indexes as they were saved, and which logs have newer records.
pub(super) struct FoundIndexes {
    pub indexes: Indexes,
    /// Logs with lower numbers need not be read.
    pub from_log: FileId,
    /// They were saved, so that a deleted key that they do not have may have older records.
    pub were_saved: bool,
}

/// An empty index for each hash keyspace.
fn empty(state: &ManifestState) -> Indexes {
    let hashed = state.keyspaces.values().filter(|keyspace| keyspace.kind == KeyspaceKind::Hash);
    hashed.map(|keyspace| (keyspace.id, Arc::new(HashStore::new(state.database, HEADER_BYTES)))).collect()
}

/// The saved indexes, or empty ones to be filled from all logs.
pub(super) fn find_indexes(storage: &dyn Storage, dirs: &Dirs, state: &ManifestState) -> FoundIndexes {
    let indexes = empty(state);
    if let Some((file, from_log)) = state.indexes_saved.filter(|_| !indexes.is_empty()) {
        let load = |key: SavedKey<'_>| {
            let is_there =
                |place: SavedPlace| state.values.indexed.contains(&place.file) || state.logs.contains_key(&place.file);
            // A log that is gone had nothing live: what is saved was replaced later, or deleted.
            if let Some(index) = indexes.get(&key.keyspace)
                && key.older.iter().copied().chain([key.newest]).all(is_there)
            {
                let older = key.older.into_iter().map(place_of).collect();
                index.load(key.key, Records { newest: place_of(key.newest), older });
            }
        };
        if read_indexes(storage, &dirs.path(state.file(file)), file, load).is_ok() {
            return FoundIndexes { indexes, from_log, were_saved: true };
        }
    }
    FoundIndexes { indexes: empty(state), from_log: FileId(0), were_saved: false }
}

/// Passes every key of an index file to `see`; returns the number of keys.
///
/// # Errors
/// [`Error::Corruption`] with the offset of the damage; errors of storage.
pub(crate) fn read_indexes(
    storage: &dyn Storage,
    path: &Path,
    id: FileId,
    mut see: impl FnMut(SavedKey<'_>),
) -> Result<u64> {
    let opened = storage.open_read(path, Access::Buffered)?;
    let mut reader = Reader { file: &*opened, window: Vec::new(), at: 0, offset: 0 };
    let damaged = |offset: u64, why: &str| Error::corruption(opened.path(), offset, why);
    FORMAT.check(opened.path(), id, reader.take(FILE_HEADER_BYTES)?)?;
    let mut keys = 0;
    loop {
        let offset = reader.position();
        let header =
            *reader.take(BLOCK_HEADER_BYTES)?.first_chunk().ok_or_else(|| damaged(offset, "a block is cut"))?;
        let len = content_len(header).ok_or_else(|| damaged(offset, "a block has an impossible length"))?;
        match decode_block(header, reader.take(len)?).map_err(|why| damaged(offset, why))? {
            Block::Entries(mut entries) => {
                while !entries.is_empty() {
                    see(take_key(&mut entries).ok_or_else(|| damaged(offset, "an entry is malformed"))?);
                    keys += 1;
                }
            }
            Block::End(count) if count == keys => return Ok(keys),
            Block::End(_) => return Err(damaged(offset, "keys are missing")),
        }
    }
}

/// Reads a file in order.
struct Reader<'a> {
    file: &'a dyn File,
    window: Vec<u8>,
    /// How much of the window was taken, and where in the file it begins.
    at: usize,
    offset: u64,
}

impl Reader<'_> {
    fn position(&self) -> u64 {
        self.offset + self.at as u64
    }

    /// The next bytes.
    fn take(&mut self, len: usize) -> Result<&[u8]> {
        if self.window.len() - self.at < len {
            self.window.drain(..self.at);
            self.offset += self.at as u64;
            self.at = 0;
            let has = self.window.len();
            self.window.resize(has + READ_BYTES.max(len), 0);
            let read = self.file.read_at(&mut self.window[has..], self.offset + has as u64)?;
            self.window.truncate(has + read);
            if self.window.len() < len {
                return Err(Error::corruption(self.file.path(), self.offset, "the file is cut short"));
            }
        }
        self.at += len;
        Ok(&self.window[self.at - len..self.at])
    }
}

fn place_of(saved: SavedPlace) -> Place {
    let kind = match saved.kind {
        0 => PlaceKind::Value,
        1 => PlaceKind::Tombstone,
        _ => PlaceKind::Operand,
    };
    Place { file: saved.file, offset: saved.offset, len: saved.len, kind }
}
