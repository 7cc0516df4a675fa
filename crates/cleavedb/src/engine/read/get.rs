//! The read path of one key, top to bottom: take one view, search its layers from the newest to the oldest until a base
//! is found, then merge the operands into the base. Each of them is fetched if it is separated.

use crate::base::key_versions::{KeyVersions, is_delete};
use crate::base::operator::full_merge;
use crate::base::{Address, Error, FileId, Kind, Result, Seqno, Slice, Stamp, full_key, limits, split_key};
use crate::cache::operand_cache::OperandList;
use crate::cache::value_cache::ValueEntry;
use crate::engine::buckets::{Buckets, is_crowd};
use crate::engine::core::Core;
use crate::engine::crowded_front::Relief;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::layer::collect_versions;
use crate::engine::view::View;
use crate::format::keyspace_record::DeltaPlacement;
use crate::levels::point_reads::OneKey;
use crate::values::files::Located;

impl Core {
    /// The value of `key`: the newest, or the one visible at the sequence number of a snapshot.
    pub fn get(&self, keyspace: &KeyspaceState, key: &[u8], snapshot: Option<Seqno>) -> Result<Option<Slice>> {
        if let Some(index) = &keyspace.hash {
            self.check_read(keyspace, key)?;
            return self.get_hashed(keyspace, index, key, snapshot);
        }
        let (view, newest) = self.published.read();
        self.get_in(&view, keyspace, key, snapshot.unwrap_or(newest))
    }

    /// As [`get`](Core::get), in a view that the caller holds.
    pub(crate) fn get_in(
        &self,
        view: &View,
        keyspace: &KeyspaceState,
        key: &[u8],
        seqno: Seqno,
    ) -> Result<Option<Slice>> {
        self.check_read(keyspace, key)?;
        let full = full_key(keyspace.record.id, key);
        let mut versions = self.down_to_fold(keyspace, &full);
        let mut tables = OneKey::with_values(&self.memory.value_cache).with_operands(&self.memory.operands);
        let layers = view.layers_of(keyspace.record.kind);
        let read = match view.buckets().filter(|buckets| buckets.wants_segments(&full, seqno, &self.memory.operands)) {
            Some(buckets) => self.collect_together(view, buckets, &full, seqno, (&mut tables, &mut versions)),
            None => collect_versions(layers, &full, seqno, &mut tables, &mut versions),
        };
        let read = read.and_then(|()| {
            if let Some(list) = tables.take_operands() {
                self.cache_operands(&full, list);
            }
            let cached = CachedValue { found: tables.into_cached(), table: versions.base_table() };
            self.value_of(view, keyspace, &full, &versions, Some(&cached))
        });
        self.unless_closed(read)
    }

    /// No version of a key yet, down to its cached fold if there is one.
    pub(crate) fn down_to_fold(&self, keyspace: &KeyspaceState, full: &[u8]) -> KeyVersions {
        let fold = keyspace.operator.as_ref().and_then(|_| self.memory.value_cache.find_fold(full));
        fold.map_or_else(KeyVersions::default, |(seqno, value)| KeyVersions::down_to(seqno, value))
    }

    /// Caches the operands of a key that were read from segments.
    pub(crate) fn cache_operands(&self, full: &[u8], list: OperandList) {
        let operands = &self.memory.operands;
        operands.note_miss();
        let at = list.at();
        operands
            .insert_read(full, list, || Buckets::newest_segment(&self.published.view().directory, full) == Some(at));
        if self.memory.operand_balance.note_miss() && self.caches_want_balance() {
            self.work.wake();
        }
    }

    /// Rejects reads of a closed database, of a dropped or foreign keyspace, and of keys of invalid length. The caller
    /// takes the view first, so the view has everything that was published before a close.
    pub(crate) fn check_read(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<()> {
        self.work.space.note_read();
        self.check_open()?;
        keyspace.check(self.database)?;
        limits::check_key(key.len())
    }
}

/// What a point read found about a version that the value cache needs. Only point reads fill the value cache.
#[derive(Default)]
pub(crate) struct CachedValue {
    /// The cache's entry for the key, if the cache was queried.
    found: Option<Option<ValueEntry>>,
    /// A table in which the version is the newest of its key.
    table: Option<FileId>,
}

impl CachedValue {
    /// The cache was not queried yet.
    pub fn of_table(table: Option<FileId>) -> CachedValue {
        CachedValue { found: None, table }
    }
}

impl Core {
    /// The value of a key from its versions: the base with the deltas applied. `None` if there is none. A point read
    /// passes `point`, and the values fetched for it are inserted into the value cache.
    pub(crate) fn value_of(
        &self,
        view: &View,
        keyspace: &KeyspaceState,
        full: &[u8],
        versions: &KeyVersions,
        point: Option<&CachedValue>,
    ) -> Result<Option<Slice>> {
        if versions.met_known() {
            self.memory.value_cache.note_fold_used(full);
        }
        let base = match versions.base() {
            Some((stamp, payload)) if !is_delete(*stamp) => {
                Some(self.payload(view, full, *stamp, payload.clone(), point)?)
            }
            _ => None,
        };
        if versions.deltas().is_empty() {
            return Ok(base);
        }
        if is_crowd(versions.deltas().len()) {
            self.note_crowd(view, keyspace, full, versions);
        }
        const UNKNOWN: CachedValue = CachedValue { found: None, table: None };
        let mut operands = Vec::with_capacity(versions.deltas().len());
        for (stamp, payload) in versions.deltas().iter().rev() {
            if stamp.kind().is_none() {
                let message = format!("key {:?} has a version of an unknown kind", full.escape_ascii().to_string());
                return Err(Error::Unsupported { path: self.dirs.fast().to_owned(), message });
            }
            let point = point.map(|_| &UNKNOWN);
            operands.push(self.payload(view, full, *stamp, payload.clone(), point)?);
        }
        let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
        let value = merge(keyspace, full, base.as_deref(), &operands)?;
        if point.is_some() && operands.len() >= self.settings.tuning.folded_from {
            self.memory.value_cache.insert_fold(full, versions.deltas()[0].0.seqno(), &value);
        }
        Ok(Some(value))
    }

    /// Notes that a read had to apply very many operands: the bucket of the key is rewritten, and the front is sealed or flushed if
    /// that helps.
    #[cold]
    fn note_crowd(&self, view: &View, keyspace: &KeyspaceState, full: &[u8], versions: &KeyVersions) {
        let bucket = view.buckets().and_then(|buckets| buckets.directory.find(full));
        let bucket = bucket.filter(|bucket| !bucket.extents.is_empty());
        let goes_to_bucket = bucket.is_some() || keyspace.delta_placement() == DeltaPlacement::Buckets;
        let note = |lower: &[u8]| self.upkeep.lock().note_crowd_read(lower, versions.deltas().len());
        let is_news = bucket.is_some_and(|bucket| note(&bucket.lower));
        let relief = Relief::of(view, versions, goes_to_bucket);
        let is_asked = relief.is_some_and(|relief| self.crowded_front.lock().ask(relief));
        if is_news || is_asked {
            self.work.wake();
        }
    }

    /// The bytes of a version's payload, fetched if it is an address. If `point` is given, fetched bytes are inserted
    /// into the value cache.
    pub(crate) fn payload(
        &self,
        view: &View,
        full: &[u8],
        stamp: Stamp,
        payload: Slice,
        point: Option<&CachedValue>,
    ) -> Result<Slice> {
        if !stamp.kind().is_some_and(Kind::is_address) {
            return Ok(payload);
        }
        let version = || format!("key {:?} at {}", full.escape_ascii().to_string(), stamp.seqno().0);
        let address = Address::decode(&payload).ok_or_else(|| {
            Error::corruption(
                self.dirs.slow(),
                0,
                format!("{} has a malformed address; a check reports the file", version()),
            )
        })?;
        let log = view.logs.get(&address.file);
        if let Some(log) = log
            && log.file_at(address)?.is_none()
        {
            // The record is still in the ring.
            return log.read_value(address, full, stamp.seqno(), &self.memory.values);
        }
        if let Some(value) = self.cached_value(full, stamp, point) {
            return Ok(value);
        }
        let lost = |reason: &str| {
            let (path, file) = (self.dirs.fast(), address.file.0);
            Error::corruption(path, address.offset, format!("{} is addressed in file {file}, {reason}", version()))
        };
        let read = || match log {
            Some(log) => log.read_value(address, full, stamp.seqno(), &self.memory.values),
            None => match view.values.locate(address)? {
                Located::At(file, now) => file.read_value(now, full, stamp.seqno(), &self.memory.values),
                Located::Dead => Err(lost("but value GC dropped it as dead")),
                Located::Unknown => Err(lost("which does not exist")),
            },
        };
        let value = match point {
            Some(_) => self.memory.value_cache.ghosts().timed(read)?,
            None => read()?,
        };
        if let Some(cached) = point {
            self.memory.value_cache.insert(full, stamp, cached.table, &value);
        }
        Ok(value)
    }

    /// A value from the value cache. Only point reads count as hits or misses.
    pub(crate) fn cached_value(&self, full: &[u8], stamp: Stamp, point: Option<&CachedValue>) -> Option<Slice> {
        let values = &self.memory.value_cache;
        let Some(cached) = point else {
            return values.peek(full, stamp);
        };
        let found = match &cached.found {
            None => values.get(full, stamp),
            Some(kept) => {
                let of_this = kept.as_ref().filter(|kept| values.is_version(kept, stamp));
                if let (Some(kept), Some(_)) = (of_this, cached.table) {
                    // The table that the entry was inserted for no longer exists.
                    values.insert(full, stamp, cached.table, &kept.value);
                }
                of_this.map(|kept| kept.value.clone())
            }
        };
        if found.is_none() {
            values.note_miss();
            if self.memory.balance.note_miss() && self.caches_want_balance() {
                self.work.wake();
            }
        }
        found
    }
}

/// The value of a base and its operands, oldest first.
pub(super) fn merge(keyspace: &KeyspaceState, full: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Slice> {
    let key = split_key(full).map_or(full, |(_, key)| key);
    let failed = |reason: String| {
        let (name, key) = (&keyspace.record.name, key.escape_ascii().to_string());
        Error::MergeFailed { message: format!("keyspace {name:?}, key {key:?}: {reason}") }
    };
    let Some(operator) = &keyspace.operator else {
        let name = keyspace.record.operator.as_deref().unwrap_or("(none)");
        return Err(failed(format!("merge operator {name:?} is not registered")));
    };
    let value = full_merge(&**operator, key, base, operands).and_then(|value| match value.len() {
        len if len < limits::VALUE_BYTES_LIMIT => Ok(Slice::owned(value)),
        len => Err(format!("the merged value has {len} B; the limit is {} B", limits::VALUE_BYTES_LIMIT)),
    });
    value.map_err(failed)
}
