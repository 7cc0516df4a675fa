//! Reads the saved indexes of hash keyspaces. If the file is damaged or gone, they are made from all logs instead, which gives
//! the same.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::base::{Error, FileId, KeyspaceId, Result};
use crate::engine::manifest::ManifestState;
use crate::engine::manifest::files::Dirs;
use crate::format::file_header::FILE_HEADER_BYTES;
use crate::format::index_file::{
    BLOCK_HEADER_BYTES, Block, FORMAT, SavedKey, SavedPlace, content_len, decode_block, take_key, take_place,
};
use crate::format::keyspace_record::KeyspaceKind;
use crate::format::record::HEADER_BYTES;
use crate::hash::bulk::Bulk;
use crate::hash::index::Spread;
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::HashStore;
use crate::io::File;
use crate::levels::readers::Readers;
use crate::sched::sync::Mutex;
use crate::sched::thread::{JoinHandle, try_spawn};

/// Fewer keys are not worth a thread.
const THREAD_KEYS_MIN: usize = 1024;
/// Bytes of one read.
const READ_BYTES: usize = 1 << 20;
/// Bytes announced ahead of a read.
const AHEAD_BYTES: u64 = 2 * READ_BYTES as u64;

/// The index of each hash keyspace.
pub(crate) type Indexes = BTreeMap<KeyspaceId, Arc<HashStore>>;

/// Indexes as they were saved, and which logs have newer records.
pub(super) struct FoundIndexes {
    pub indexes: Indexes,
    /// Logs with lower numbers need not be read.
    pub from_log: FileId,
    /// They were saved, so that a deleted key that they do not have may have older records.
    pub were_saved: bool,
}

/// An empty index for each hash keyspace.
fn empty(state: &ManifestState, spread: Spread) -> Indexes {
    let hashed = state.keyspaces.values().filter(|keyspace| keyspace.kind == KeyspaceKind::Hash);
    hashed.map(|keyspace| (keyspace.id, Arc::new(HashStore::new(state.database, spread, HEADER_BYTES)))).collect()
}

/// The saved indexes, or empty ones to be filled from all logs.
pub(super) fn find_indexes(readers: &Readers, dirs: &Dirs, state: &ManifestState, spread: Spread) -> FoundIndexes {
    let indexes = empty(state, spread);
    if let Some((file, from_log)) = state.indexes_saved.filter(|_| !indexes.is_empty()) {
        let logs: HashSet<FileId> = state.values.indexed.iter().chain(state.logs.keys()).copied().collect();
        let mut loader = Loader { indexes: &indexes, filled: None, building: None, is_damaged: Arc::default() };
        let load = |key: SavedKey<'_>| {
            let is_there = |place: &SavedPlace| logs.contains(&place.file);
            // A log that is gone had nothing live: what is saved was replaced later, or deleted.
            if is_there(&key.newest) && key.older.iter().all(is_there) {
                loader.add(key);
            }
        };
        let key = state.file(file);
        let opened = readers.open_in_order(&dirs.path(key), key.dir);
        let read = opened.and_then(|opened| read_indexes(&*opened, file, load));
        if loader.end() && read.is_ok() {
            return FoundIndexes { indexes, from_log, were_saved: true };
        }
    }
    FoundIndexes { indexes: empty(state, spread), from_log: FileId(0), were_saved: false }
}

/// Puts saved keys into their indexes, those of a shard at a time, since they are saved in the order of their hashes. A second
/// thread makes the buckets of one shard while this one reads the next, and makes the buckets of that if it is ready first.
struct Loader<'a> {
    indexes: &'a Indexes,
    /// Keyspace and shard of the last keys, and these.
    filled: Option<(KeyspaceId, usize, Bulk)>,
    building: Option<(JoinHandle, Arc<AtomicBool>)>,
    is_damaged: Arc<AtomicBool>,
}

impl Loader<'_> {
    fn add(&mut self, key: SavedKey<'_>) {
        let Some(index) = self.indexes.get(&key.keyspace) else { return };
        index.fill_chain(key.key, key.older.into_iter().map(place_of));
        let (shard, hash) = index.shard_of(key.key);
        if self.filled.as_ref().is_none_or(|(keyspace, of, _)| (*keyspace, *of) != (key.keyspace, shard)) {
            self.build();
        }
        let (_, _, keys) = self.filled.get_or_insert_with(|| (key.keyspace, shard, Bulk::default()));
        keys.push(hash, key.key, place_of(key.newest));
    }

    /// Puts the keys so far into their shard.
    fn build(&mut self) {
        let Some((keyspace, _, keys)) = self.filled.take() else { return };
        let index = self.indexes[&keyspace].clone();
        let is_busy = self.building.as_ref().is_some_and(|(_, is_done)| !is_done.load(Ordering::Acquire));
        if is_busy || keys.len() < THREAD_KEYS_MIN {
            return note_damage(&self.is_damaged, index.fill(keys));
        }
        self.wait();
        let (is_done, is_damaged) = (Arc::new(AtomicBool::new(false)), self.is_damaged.clone());
        // Without a thread, this one does it.
        let keys = Arc::new(Mutex::new(keys));
        let (done, there, theirs) = (is_done.clone(), keys.clone(), index.clone());
        let thread = try_spawn("cleave-index", move || {
            note_damage(&is_damaged, theirs.fill(std::mem::take(&mut *there.lock())));
            done.store(true, Ordering::Release);
        });
        match thread {
            Ok(thread) => self.building = Some((thread, is_done)),
            Err(_) => note_damage(&self.is_damaged, index.fill(std::mem::take(&mut *keys.lock()))),
        }
    }

    fn wait(&mut self) {
        if self.building.take().is_some_and(|(thread, _)| thread.join().is_err()) {
            note_damage(&self.is_damaged, false);
        }
    }

    /// Ends; false if the file cannot have been written like that.
    fn end(mut self) -> bool {
        self.build();
        self.wait();
        !self.is_damaged.load(Ordering::Relaxed)
    }
}

fn note_damage(is_damaged: &AtomicBool, was_filled: bool) {
    is_damaged.fetch_or(!was_filled, Ordering::Relaxed);
}

/// Passes every key of an index file to `see`; returns the number of keys.
///
/// # Errors
/// [`Error::Corruption`] with the offset of the damage; errors of storage.
pub(crate) fn read_indexes(file: &dyn File, id: FileId, mut see: impl FnMut(SavedKey<'_>)) -> Result<u64> {
    let mut reader = Reader { file, window: Vec::new(), at: 0, offset: 0 };
    let damaged = |offset: u64, why: &str| Error::corruption(file.path(), offset, why);
    FORMAT.check(file.path(), id, reader.take(FILE_HEADER_BYTES)?)?;
    let (mut keys, mut older) = (0, Vec::new());
    loop {
        let offset = reader.position();
        let header =
            *reader.take(BLOCK_HEADER_BYTES)?.first_chunk().ok_or_else(|| damaged(offset, "a block is cut"))?;
        let len = content_len(header).ok_or_else(|| damaged(offset, "a block has an impossible length"))?;
        match decode_block(header, reader.take(len)?).map_err(|why| damaged(offset, why))? {
            Block::Entries(mut entries) => {
                while !entries.is_empty() {
                    let mut key = take_key(&mut entries).ok_or_else(|| damaged(offset, "an entry is malformed"))?;
                    if !older.is_empty() {
                        older.append(&mut key.older);
                        key.older = std::mem::take(&mut older);
                    }
                    see(key);
                    keys += 1;
                }
            }
            Block::Older(mut places) => {
                while !places.is_empty() {
                    older.push(take_place(&mut places).ok_or_else(|| damaged(offset, "a place is malformed"))?);
                }
            }
            Block::End(count) if count == keys && older.is_empty() => return Ok(keys),
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
            self.file.read_ahead(self.offset + self.window.len() as u64, AHEAD_BYTES);
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
