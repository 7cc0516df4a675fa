//! Reads of hash keyspaces: the index in memory says which records make a value; each is read from its log, or from the
//! value cache. A miss reads nothing.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::base::{Address, Error, Kind, Result, Seqno, Slice, Stamp, full_key};
use crate::engine::core::Core;
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::fetch::COALESCING;
use crate::engine::read::get::{CachedValue, merge};
use crate::engine::view::View;
use crate::format::record::{HEADER_BYTES, value_of};
use crate::hash::place::{Place, PlaceKind};
use crate::hash::store::{HashStore, Records};
use crate::io::File;
use crate::io::coalesced_reads::{ReadRange, ReadRequest, read_coalesced};
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
                    let full = || full_key(keyspace.record.id, key.as_ref());
                    found.extend(index.find(key.as_ref(), at).map(|records| (number, full(), view.clone(), records)));
                }
            }
        }
        drop(view);
        for ((number, ..), value) in found.iter().zip(self.values_together(keyspace, &found, true)) {
            answers[*number] = self.unless_closed(value);
        }
        held.into_iter().for_each(|held| self.release_snapshot(held));
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

    /// The values of many keys, each found in a view: their number, full key and records. Those that are not in memory are
    /// read together: adjacent ones in one read, and all reads in flight at the same time.
    fn values_together<N>(
        &self,
        keyspace: &KeyspaceState,
        found: &[(N, Vec<u8>, Arc<View>, Records)],
        fill_cache: bool,
    ) -> Vec<Result<Option<Slice>>> {
        let mut values: Vec<Option<Slice>> = Vec::new();
        let mut wanted = Vec::new();
        for (index, (_, full, view, Records { newest, .. })) in found.iter().enumerate() {
            let is_value = newest.kind == PlaceKind::Value;
            values.push(self.cached_record(full, *newest, fill_cache).filter(|_| is_value));
            if is_value && values[index].is_none() {
                let address = address_of(full, *newest);
                // What is not in a file is read below, with its error if it has one.
                if let Ok(Some(file)) = self.record_file(view, full, address) {
                    let range = ReadRange {
                        file: address.file,
                        start: address.offset,
                        end: address.offset + u64::from(address.len),
                    };
                    wanted.push(ReadRequest { range, context: (file, index, address) });
                }
            }
        }
        let open = |(file, ..): &(Arc<dyn File>, usize, Address)| Some(file.clone());
        read_coalesced(wanted, COALESCING, open, |(_, index, address), bytes| {
            let (_, full, _, records) = &found[*index];
            if let Ok(value) = value_of(bytes, *address, full, None, &self.memory.values) {
                self.cache_record(full, records.newest, &value, fill_cache);
                values[*index] = Some(value);
            }
        });
        let each = found.iter().zip(values);
        each.map(|((_, full, view, records), value)| match value {
            Some(value) => Ok(Some(value)),
            None => self.value_of_records(view, keyspace, full, records),
        })
        .collect()
    }

    /// The value or operand of one record, which must be of this key.
    pub(crate) fn record_value(&self, view: &View, full: &[u8], place: Place) -> Result<Slice> {
        if let Some(value) = self.cached_record(full, place, true) {
            return Ok(value);
        }
        let address = address_of(full, place);
        let value = match (view.logs.get(&place.file), view.values.files.get(&place.file)) {
            (Some(log), _) => log.read_value(address, full, None, &self.memory.values)?,
            (None, Some(Entry::Here(file))) => file.read_value(address, full, None, &self.memory.values)?,
            _ => return Err(self.missing_record(full, address)),
        };
        self.cache_record(full, place, &value, true);
        Ok(value)
    }

    /// The file that holds a record; `None` while it is in memory only.
    fn record_file(&self, view: &View, full: &[u8], address: Address) -> Result<Option<Arc<dyn File>>> {
        match (view.logs.get(&address.file), view.values.files.get(&address.file)) {
            (Some(log), _) => Ok(log.file_at(address)?.cloned()),
            (None, Some(Entry::Here(file))) => file.file_at(address).map(Some),
            _ => Err(self.missing_record(full, address)),
        }
    }

    /// The value of a record, if it is in the value cache.
    fn cached_record(&self, full: &[u8], place: Place, fill_cache: bool) -> Option<Slice> {
        let point = CachedValue::of_table(None);
        let stamp = cache_stamp(place).filter(|_| place.kind == PlaceKind::Value)?;
        self.cached_value(full, stamp, fill_cache.then_some(&point))
    }

    fn cache_record(&self, full: &[u8], place: Place, value: &Slice, fill_cache: bool) {
        if let Some(stamp) = cache_stamp(place).filter(|_| fill_cache && place.kind == PlaceKind::Value) {
            self.memory.value_cache.insert(full, stamp, None, value);
        }
    }

    #[cold]
    fn missing_record(&self, full: &[u8], address: Address) -> Error {
        let (key, file) = (full.escape_ascii().to_string(), address.file.0);
        let message = format!("the record of key {key:?} should be in file {file}, which is not there");
        Error::corruption(self.dirs.fast(), address.offset, message)
    }
}

/// The address of a record.
fn address_of(full: &[u8], place: Place) -> Address {
    let key_bytes = full.len() - size_of::<u32>();
    let value_len = place.len.saturating_sub((HEADER_BYTES + key_bytes) as u32);
    Address { file: place.file, offset: place.offset, len: place.len, value_len }
}

/// A key and its value, or why it cannot be read.
pub(crate) type Item = Result<(Slice, Slice)>;

/// A scan of a hash keyspace at one sequence number, which it holds.
pub(crate) struct HashScan {
    held: HeldSnapshot,
    keyspace: Arc<KeyspaceState>,
    /// Keys of the bucket before `next` that were not visited yet.
    keys: VecDeque<Vec<u8>>,
    /// The hash to go on from.
    next: Option<u64>,
}

impl HashScan {
    /// A scan at a held number.
    pub fn new(held: HeldSnapshot, keyspace: Arc<KeyspaceState>) -> HashScan {
        HashScan { held, keyspace, keys: VecDeque::new(), next: Some(0) }
    }

    /// Some more keys of the index with their values, which may be none; `None` at the end. Values are read together up to the
    /// bytes that scans read ahead, and at least one; of the rest of a bucket the keys alone are held.
    pub fn next_items(&mut self) -> Result<Option<Vec<Item>>> {
        let Some(index) = &self.keyspace.hash else { return Ok(None) };
        let core = &self.held.core;
        let at = Some(self.held.seqno);
        let gate = core.hash.gate.read();
        let view = core.published.view();
        if self.keys.is_empty() {
            let Some(from) = self.next else { return Ok(None) };
            // A deleted key stays in the index while a snapshot sees it.
            self.next = index.scan(from, &mut |key, _| self.keys.push_back(key.to_vec()));
        }
        let (mut found, mut bytes) = (Vec::new(), 0);
        while let Some(key) = self.keys.pop_front() {
            let Some(records) = index.find(&key, at) else { continue };
            let len: usize = records.places().map(|place| place.len as usize).sum();
            if bytes > 0 && bytes + len > core.settings.tuning.scan_ahead_bytes {
                self.keys.push_front(key);
                break;
            }
            bytes += len;
            let full = full_key(self.keyspace.record.id, &key);
            found.push((key, full, view.clone(), records));
        }
        drop((gate, view));
        if let Err(error) = core.check_open().and_then(|()| self.keyspace.check(core.database)) {
            (self.next, self.keys) = (None, VecDeque::new());
            return Err(error);
        }
        let values = core.values_together(&self.keyspace, &found, false);
        let item = |((key, ..), value): ((Vec<u8>, _, _, _), _)| {
            core.unless_closed(value).transpose().map(|value| Ok((Slice::owned(key), value?)))
        };
        Ok(Some(found.into_iter().zip(values).filter_map(item).collect()))
    }
}
