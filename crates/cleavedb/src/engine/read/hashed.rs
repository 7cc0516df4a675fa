//! Reads of hash keyspaces: the index in memory says which records make a value; each is read from its log, or from the
//! value cache. A miss reads nothing.

use std::sync::Arc;

use crate::base::{Address, Error, Kind, Result, Seqno, Slice, Stamp, full_key};
use crate::engine::core::Core;
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::get::{CachedValue, merge};
use crate::engine::view::View;
use crate::format::record::HEADER_BYTES;
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::{HashStore, Records};
use crate::values::files::Entry;

/// Bits of a stamp for the offset of a record, and for the number of its file.
const OFFSET_BITS: u32 = 32;
const FILE_BITS: u32 = 24;

/// What identifies a record in the value cache, which knows versions by their stamps: its place. `None` if the numbers are too
/// large for that.
fn cache_stamp(place: Place) -> Option<Stamp> {
    let fits = place.offset >> OFFSET_BITS == 0 && place.file.0 >> FILE_BITS == 0;
    fits.then(|| Stamp::new(Seqno(place.file.0 << OFFSET_BITS | place.offset), Kind::PutAt))
}

impl Core {
    /// The value of a key of a hash keyspace: the newest, or the one visible at a snapshot.
    pub(super) fn get_hashed(
        &self,
        keyspace: &KeyspaceState,
        index: &HashStore,
        key: &[u8],
        snapshot: Option<Seqno>,
    ) -> Result<Option<Slice>> {
        let gate = self.hash.gate.read();
        // The view pins the files that the index names now.
        let (view, found) = (self.published.view(), index.find(key, snapshot));
        drop(gate);
        let Some(found) = found else { return Ok(None) };
        self.unless_closed(self.value_of_records(&view, keyspace, &full_key(keyspace.record.id, key), &found))
    }

    /// True if a key of a hash keyspace has a value. Reads nothing.
    pub(crate) fn contains_hashed(
        &self,
        keyspace: &KeyspaceState,
        index: &HashStore,
        key: &[u8],
        snapshot: Option<Seqno>,
    ) -> Result<bool> {
        self.check_read(keyspace, key)?;
        let _gate = self.hash.gate.read();
        Ok(index.find(key, snapshot).is_some_and(|found| found.newest.kind != PlaceKind::Tombstone))
    }

    /// The values of many keys at one moment.
    pub(super) fn multi_get_hashed<K: AsRef<[u8]>>(
        &self,
        keyspace: &KeyspaceState,
        index: &HashStore,
        keys: &[K],
        snapshot: Option<Seqno>,
    ) -> Vec<Result<Option<Slice>>> {
        let held = snapshot.is_none().then(|| self.snapshots.hold(&self.published).1);
        let at = snapshot.or(held);
        let mut answers: Vec<Result<Option<Slice>>> = keys.iter().map(|_| Ok(None)).collect();
        let mut found = Vec::new();
        let mut view = self.published.view();
        for (number, key) in keys.iter().enumerate() {
            match self.check_read(keyspace, key.as_ref()) {
                Err(error) => answers[number] = Err(error),
                Ok(()) => {
                    let _gate = self.hash.gate.read();
                    view = self.published.view();
                    found.extend(index.find(key.as_ref(), at).map(|records| (number, view.clone(), records)));
                }
            }
        }
        drop(view);
        // In the order in which they lie in their files.
        found.sort_unstable_by_key(|(_, _, records)| (records.newest.file, records.newest.offset));
        for (number, view, records) in found {
            let full = full_key(keyspace.record.id, keys[number].as_ref());
            answers[number] = self.unless_closed(self.value_of_records(&view, keyspace, &full, &records));
        }
        if let Some(held) = held
            && self.snapshots.release(held)
        {
            self.work.wake();
        }
        answers
    }

    /// The value that records make. `None` if the newest is a tombstone.
    pub(crate) fn value_of_records(
        &self,
        view: &View,
        keyspace: &KeyspaceState,
        full: &[u8],
        records: &Records,
    ) -> Result<Option<Slice>> {
        let mut base = None;
        let mut operands = Vec::new();
        for place in records.places() {
            match place.kind {
                PlaceKind::Tombstone => (base, operands) = (None, Vec::new()),
                PlaceKind::Value => (base, operands) = (Some(self.record_value(view, full, place)?), Vec::new()),
                PlaceKind::Operand => operands.push(self.record_value(view, full, place)?),
            }
        }
        if operands.is_empty() {
            return Ok(base);
        }
        let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
        merge(keyspace, full, base.as_deref(), &operands).map(Some)
    }

    /// The value or operand of one record, which must be of this key.
    pub(crate) fn record_value(&self, view: &View, full: &[u8], place: Place) -> Result<Slice> {
        let stamp = cache_stamp(place).filter(|_| place.kind == PlaceKind::Value);
        let point = CachedValue::of_table(None);
        if let Some(stamp) = stamp
            && let Some(value) = self.cached_value(full, stamp, Some(&point))
        {
            return Ok(value);
        }
        let key_bytes = full.len() - size_of::<u32>();
        let value_len = place.len.saturating_sub((HEADER_BYTES + key_bytes) as u32);
        let address = Address { file: place.file, offset: place.offset, len: place.len, value_len };
        let value = match (view.logs.get(&place.file), view.values.files.get(&place.file)) {
            (Some(log), _) => log.read_value(address, full, None, &self.memory.values)?,
            (None, Some(Entry::Here(file))) => file.read_value(address, full, None, &self.memory.values)?,
            _ => {
                let (key, file) = (full.escape_ascii().to_string(), place.file.0);
                let message = format!("the record of key {key:?} should be in file {file}, which is not there");
                return Err(Error::corruption(self.dirs.fast(), place.offset, message));
            }
        };
        if let Some(stamp) = stamp {
            self.memory.value_cache.insert(full, stamp, None, &value);
        }
        Ok(value)
    }
}

/// A key and its value, or why it cannot be read.
pub(crate) type Item = Result<(Slice, Slice)>;

/// A scan of a hash keyspace at one sequence number, which it holds.
pub(crate) struct HashScan {
    held: HeldSnapshot,
    keyspace: Arc<KeyspaceState>,
    /// The hash to go on from.
    next: Option<u64>,
}

impl HashScan {
    /// A scan at a held number.
    pub fn new(held: HeldSnapshot, keyspace: Arc<KeyspaceState>) -> HashScan {
        HashScan { held, keyspace, next: Some(0) }
    }

    /// The keys and values of the next bucket of the index, which may be none; `None` at the end.
    pub fn next_bucket(&mut self) -> Result<Option<Vec<Item>>> {
        let (Some(from), Some(index)) = (self.next, &self.keyspace.hash) else { return Ok(None) };
        let core = &self.held.core;
        let at = Some(self.held.seqno);
        let mut found = Vec::new();
        let gate = core.hash.gate.read();
        let view = core.published.view();
        let mut keys = Vec::new();
        // A deleted key stays in the index while a snapshot sees it.
        let next = index.scan(from, &mut |key, _| keys.push(key.to_vec()));
        for key in keys {
            found.extend(index.find(&key, at).map(|records| (key, records)));
        }
        drop(gate);
        if let Err(error) = core.check_open().and_then(|()| self.keyspace.check(core.database)) {
            self.next = None;
            return Err(error);
        }
        self.next = next;
        let value = |(key, records): (Vec<u8>, Records)| {
            let full = full_key(self.keyspace.record.id, &key);
            let value = core.value_of_records(&view, &self.keyspace, &full, &records);
            core.unless_closed(value).transpose().map(|value| Ok((Slice::owned(key), value?)))
        };
        Ok(Some(found.into_iter().filter_map(value).collect()))
    }
}
