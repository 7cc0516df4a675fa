//! The read path, top to bottom: one view, then its sources from the newest to the oldest, collecting deltas until a
//! base is met (DESIGN section 2, "Read").

use std::sync::Arc;

use crate::base::operator::full_merge;
use crate::base::{Address, Cursor, Error, FileId, Kind, Result, Seqno, Slice, Stamp, full_key, limits, split_key};
use crate::cache::value_cache::{CachedValue, ValueCache};
use crate::engine::core::Core;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::manifest::file_names::log_name;
use crate::engine::view::View;
use crate::levels::table::Table;
use crate::levels::table_cursor::TableCursor;
use crate::values::files::Located;

impl Core {
    /// The newest value of `key`.
    pub fn get(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<Option<Slice>> {
        let (view, seqno) = self.published.read();
        self.get_in(&view, keyspace, key, seqno)
    }

    /// The value of `key` at a sequence number that a snapshot holds.
    pub fn get_at(&self, keyspace: &KeyspaceState, key: &[u8], seqno: Seqno) -> Result<Option<Slice>> {
        self.get_in(&self.published.view(), keyspace, key, seqno)
    }

    pub(crate) fn get_in(
        &self,
        view: &View,
        keyspace: &KeyspaceState,
        key: &[u8],
        seqno: Seqno,
    ) -> Result<Option<Slice>> {
        self.check_read(keyspace, key)?;
        let full = full_key(keyspace.record.id, key);
        let mut versions = Versions::default();
        let mut tables = OneByOne::with_values(&self.memory.value_cache);
        let found = find_versions(view, &full, seqno, &mut versions, &mut tables);
        versions.known.kept = tables.kept;
        self.unless_closed(found.and_then(|()| versions.resolve(self, view, keyspace, &full, true)))
    }

    /// Refuses what cannot be read. Asked after the view was taken: nothing that is published before a close is missing.
    pub(crate) fn check_read(&self, keyspace: &KeyspaceState, key: &[u8]) -> Result<()> {
        self.check_open()?;
        keyspace.check(self.database)?;
        if !(limits::KEY_BYTES_MIN..=limits::KEY_BYTES_MAX).contains(&key.len()) {
            let (low, high) = (limits::KEY_BYTES_MIN, limits::KEY_BYTES_MAX);
            return Err(Error::input(format!("a key has from {low} to {high} bytes, this one has {}", key.len())));
        }
        Ok(())
    }

    /// The bytes of a version's payload, fetched if it is an address. With `point`, what a point read knows of it, the value
    /// cache keeps them.
    pub(crate) fn payload(
        &self,
        view: &View,
        full: &[u8],
        stamp: Stamp,
        payload: Slice,
        point: Option<&Known>,
    ) -> Result<Slice> {
        if !stamp.kind().is_some_and(Kind::is_address) {
            return Ok(payload);
        }
        let named = || format!("key {:?} at {}", full.escape_ascii().to_string(), stamp.seqno().0);
        let address = Address::decode(&payload).ok_or_else(|| {
            Error::corruption(
                &self.slow,
                0,
                format!("{} has an address that is none; a check says in which file", named()),
            )
        })?;
        let log = view.logs.get(&address.file);
        if let Some(log) = log
            && log.file_at(address)?.is_none()
        {
            // At hand, in the ring.
            return log.read_value(address, full, stamp.seqno(), &self.memory.values);
        }
        if let Some(value) = self.cached_value(full, stamp, point) {
            return Ok(value);
        }
        let lost = |reason: &str| {
            let path = self.fast.join(log_name(address.file));
            Error::corruption(&path, address.offset, format!("{} should lie in this log, {reason}", named()))
        };
        let value = match log {
            Some(log) => log.read_value(address, full, stamp.seqno(), &self.memory.values)?,
            None => match view.values.locate(address)? {
                Located::At(file, now) => file.read_value(now, full, stamp.seqno(), &self.memory.values)?,
                Located::Dead => return Err(lost("and was dead when the log was emptied")),
                Located::Unknown => return Err(lost("which does not exist")),
            },
        };
        if let Some(known) = point {
            self.memory.value_cache.insert(full, stamp, known.table, &value);
        }
        Ok(value)
    }

    /// A value out of the value cache. Only point reads leave a trace.
    pub(crate) fn cached_value(&self, full: &[u8], stamp: Stamp, point: Option<&Known>) -> Option<Slice> {
        let values = &self.memory.value_cache;
        let Some(known) = point else {
            return values.peek(full, stamp);
        };
        let found = match &known.kept {
            None => values.get(full, stamp),
            Some(kept) => {
                let of_this = kept.as_ref().filter(|kept| values.is_version(kept, stamp));
                if let (Some(kept), Some(_)) = (of_this, known.table) {
                    // The table that led here once is no more.
                    values.insert(full, stamp, known.table, &kept.value);
                }
                of_this.map(|kept| kept.value.clone())
            }
        };
        if found.is_none() {
            values.note_miss();
            if self.memory.balance.note_miss() {
                self.balance_caches();
            }
        }
        found
    }
}

/// What a point read knows of the base that it has found.
#[derive(Default)]
pub(crate) struct Known {
    /// What the value cache has of the key, if it was asked.
    kept: Option<Option<CachedValue>>,
    /// A table in which it is the key's newest version.
    table: Option<FileId>,
}

/// How a key is looked up in one table.
pub(crate) trait Find {
    /// Why there is no answer.
    type Error: From<Error>;

    /// A cursor on the newest version of a key at or below a sequence number.
    fn find(&mut self, table: &Arc<Table>, full: &[u8], seqno: Seqno) -> Result<Option<&mut TableCursor>, Self::Error>;

    /// The same without the table, if that version is a base with its value at hand.
    fn kept(&mut self, _: &Table, _full: &[u8], _: Seqno) -> Option<(Stamp, Slice)> {
        None
    }
}

/// Looks up as if no other key were wanted.
#[derive(Default)]
pub(crate) struct OneByOne<'a> {
    cursor: Option<TableCursor>,
    values: Option<&'a ValueCache>,
    /// What that has of the key, once it was asked.
    kept: Option<Option<CachedValue>>,
}

impl<'a> OneByOne<'a> {
    /// Looks into the value cache first.
    fn with_values(values: &'a ValueCache) -> OneByOne<'a> {
        OneByOne { values: Some(values), ..OneByOne::default() }
    }
}

impl Find for OneByOne<'_> {
    type Error = Error;

    fn find(&mut self, table: &Arc<Table>, full: &[u8], seqno: Seqno) -> Result<Option<&mut TableCursor>> {
        self.cursor = table.find(full, seqno)?;
        Ok(self.cursor.as_mut())
    }

    fn kept(&mut self, table: &Table, full: &[u8], seqno: Seqno) -> Option<(Stamp, Slice)> {
        let values = self.values.filter(|_| table.meta().addresses > 0 && table.may_hold(full, seqno))?;
        let kept = self.kept.get_or_insert_with(|| values.find(full)).as_ref()?;
        let is_here = kept.table == Some(table.meta().id) && kept.stamp.seqno() <= seqno;
        is_here.then(|| (kept.stamp, kept.value.clone()))
    }
}

/// Visits the sources in order of age until a base is found.
pub(crate) fn find_versions<F: Find>(
    view: &View,
    full: &[u8],
    seqno: Seqno,
    versions: &mut Versions,
    tables: &mut F,
) -> Result<(), F::Error> {
    for table in std::iter::once(&view.active).chain(&view.sealed) {
        if versions.settled() {
            return Ok(());
        }
        versions.cover(table.cover(full, seqno));
        table.visit(full, seqno, &mut |stamp, payload| versions.push_older(stamp, payload));
    }
    for run in &view.runs {
        if versions.settled() {
            return Ok(());
        }
        versions.cover(run.cover(full, seqno)?);
        run.visit(full, seqno, &mut |stamp, payload| versions.push_older(stamp, payload))?;
    }
    for table in view.version.tables_for_key(full) {
        if versions.settled() {
            return Ok(());
        }
        versions.cover(table.cover(full, seqno)?);
        if let Some((stamp, value)) = tables.kept(table, full, seqno) {
            versions.push_older(inline(stamp), value);
            continue;
        }
        let Some(cursor) = tables.find(table, full, seqno)? else {
            continue;
        };
        let newest = cursor.stamp();
        while cursor.valid() && cursor.key() == full && versions.push_older(cursor.stamp(), cursor.value_slice()) {
            cursor.next()?;
        }
        if seqno >= table.meta().seqno_max && versions.base.as_ref().is_some_and(|base| base.0 == newest) {
            versions.known.table = Some(table.meta().id);
        }
    }
    Ok(())
}

/// The versions of one key that a reader needs: deltas, and the base below them.
#[derive(Default)]
pub(crate) struct Versions {
    /// Newest first.
    deltas: Vec<(Stamp, Slice)>,
    base: Option<(Stamp, Slice)>,
    /// The newest range tombstone that covers the key: a base in its place; 0 if there is none.
    cover: Seqno,
    known: Known,
}

impl Versions {
    /// Takes the range tombstone that covers the key in the source that comes next. Older sources hold nothing that it
    /// would not kill (rule 1), so the value is settled behind this source.
    #[inline]
    pub fn cover(&mut self, seqno: Seqno) {
        self.cover = self.cover.max(seqno);
    }

    /// Takes the next older version; false once a base was taken or met, which settles the value.
    pub fn push_older(&mut self, stamp: Stamp, payload: Slice) -> bool {
        if stamp.seqno() < self.cover {
            return false;
        }
        if stamp.kind().is_some_and(Kind::is_base) {
            self.base = Some((stamp, payload));
            return false;
        }
        self.deltas.push((stamp, payload));
        true
    }

    /// Takes the next newer version: a base makes all older ones void. The deltas must be
    /// [turned round](Versions::newest_first) before resolving.
    pub fn push_newer(&mut self, stamp: Stamp, payload: Slice) {
        if stamp.seqno() < self.cover {
            return;
        }
        if stamp.kind().is_some_and(Kind::is_base) {
            self.deltas.clear();
            self.base = Some((stamp, payload));
        } else {
            self.deltas.push((stamp, payload));
        }
    }

    /// Some payload is an address.
    pub fn is_separated(&self) -> bool {
        self.base.iter().chain(&self.deltas).any(is_separated)
    }

    /// The versions whose payloads are addresses, to be [brought in](bring_in) if they are fetched before they are needed.
    pub fn apart(&mut self) -> impl Iterator<Item = &mut (Stamp, Slice)> {
        self.base.iter_mut().chain(&mut self.deltas).filter(|version| is_separated(version))
    }

    /// Bytes of the payloads in memory, wherever they lie.
    pub fn bytes(&self) -> usize {
        let bytes = |version: &(Stamp, Slice)| match Address::decode(&version.1).filter(|_| is_separated(version)) {
            Some(address) => address.bytes_max() as usize,
            None => version.1.len(),
        };
        self.base.iter().chain(&self.deltas).map(bytes).sum()
    }

    /// Where the base lies, if it is apart.
    pub fn address(&self) -> Option<Address> {
        self.base.as_ref().filter(|base| is_separated(base)).and_then(|(_, payload)| Address::decode(payload))
    }

    /// Puts deltas that came oldest first into the order that resolving expects.
    pub fn newest_first(&mut self) {
        self.deltas.reverse();
    }

    pub fn clear(&mut self) {
        self.deltas.clear();
        self.base = None;
        self.cover = Seqno::ZERO;
        self.known = Known::default();
    }

    /// The key has a value, whatever it is: a put, or a delta, which every operator makes a value of.
    pub fn has_value(&self) -> bool {
        !self.deltas.is_empty() || self.base.as_ref().is_some_and(|(stamp, _)| !is_delete(*stamp))
    }

    fn settled(&self) -> bool {
        self.base.is_some() || self.cover > Seqno::ZERO
    }

    /// The value: the base with the deltas applied. `None` if there is none. With `fill_cache` the value cache keeps what
    /// was fetched: for point reads.
    pub fn resolve(
        &self,
        core: &Core,
        view: &View,
        keyspace: &KeyspaceState,
        full: &[u8],
        fill_cache: bool,
    ) -> Result<Option<Slice>> {
        let payload = |(stamp, payload): &(Stamp, Slice), known: &Known| {
            core.payload(view, full, *stamp, payload.clone(), fill_cache.then_some(known))
        };
        let base = match &self.base {
            Some((stamp, _)) if is_delete(*stamp) => None,
            Some(base) => Some(payload(base, &self.known)?),
            None => None,
        };
        if self.deltas.is_empty() {
            return Ok(base);
        }
        let mut operands = Vec::with_capacity(self.deltas.len());
        for delta in self.deltas.iter().rev() {
            if delta.0.kind().is_none() {
                let message = format!("key {:?} has a version of an unknown kind", full.escape_ascii().to_string());
                return Err(Error::Unsupported { path: core.fast.clone(), message });
            }
            operands.push(payload(delta, &Known::default())?);
        }
        let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
        merge(keyspace, full, base.as_deref(), &operands).map(Some)
    }
}

fn is_separated(version: &(Stamp, Slice)) -> bool {
    version.0.kind().is_some_and(Kind::is_address)
}

/// Puts a payload that was fetched in the place of its address.
pub(crate) fn bring_in(version: &mut (Stamp, Slice), payload: Slice) {
    *version = (inline(version.0), payload);
}

/// The stamp of the same version with its payload in place of an address.
fn inline(stamp: Stamp) -> Stamp {
    Stamp::new(stamp.seqno(), stamp.kind().map_or(Kind::Put, Kind::inline))
}

fn is_delete(stamp: Stamp) -> bool {
    matches!(stamp.kind(), Some(Kind::Delete | Kind::DeleteRange))
}

fn merge(keyspace: &KeyspaceState, full: &[u8], base: Option<&[u8]>, operands: &[&[u8]]) -> Result<Slice> {
    let key = split_key(full).map_or(full, |(_, key)| key);
    let failed = |reason: String| {
        let (name, key) = (&keyspace.record.name, key.escape_ascii().to_string());
        Error::MergeFailed { message: format!("keyspace {name:?}, key {key:?}: {reason}") }
    };
    let Some(operator) = &keyspace.operator else {
        let name = keyspace.record.operator.as_deref().unwrap_or("(none)");
        return Err(failed(format!("merge operator {name:?} is not registered")));
    };
    full_merge(&**operator, key, base, operands).map(Slice::owned).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_a_value_unless_its_base_is_a_delete_of_either_kind() {
        let has_value = |kind| {
            let mut versions = Versions::default();
            versions.push_older(Stamp::new(Seqno(3), kind), Slice::default());
            versions.has_value()
        };
        let all = [Kind::Put, Kind::PutAt, Kind::Delta, Kind::DeltaAt, Kind::Delete, Kind::DeleteRange];
        assert_eq!(all.map(has_value), [true, true, true, true, false, false]);
    }
}
