//! Writing tables, shared by flushes, compactions and ingests, and the cleanup of tables whose edit fails.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::tombstones::Fragment;
use crate::base::versions::VersionSource;
use crate::base::{DirId, Error, FileId, FileKey, FileKind, Result, Tier};
use crate::engine::core::Core;
use crate::engine::fast_tier::Occupant;
use crate::levels::builder::TableOptions;
use crate::levels::compaction::{NewTable, TableSink, write_tables};
use crate::levels::table::Table;

/// A flush claims this part more than it is expected to write, and this many bytes: for filters, indexes and footers.
const HL0_SPARE_PART: u64 = 4;
const HL0_SPARE_BYTES: u64 = 256 << 10;

/// What a flush that writes about `bytes` of tables claims for them.
fn with_spare(bytes: u64) -> u64 {
    bytes.saturating_add(bytes / HL0_SPARE_PART + HL0_SPARE_BYTES)
}

/// A table of a level below claims this part more than the size at which it is cut, and as many bytes as a flush.
const TABLE_SPARE_PART: u64 = 8;

/// Where a flush writes its tables.
pub(crate) struct Hl0Place<'a> {
    core: &'a Core,
    /// Bytes that it has claimed on the fast tier; `None`: it writes to the slow one.
    claimed: Option<Cell<u64>>,
    /// There was no room for more than was claimed.
    overran: Cell<bool>,
}

impl<'a> Hl0Place<'a> {
    fn new(core: &'a Core, claimed: Option<u64>) -> Hl0Place<'a> {
        Hl0Place { core, claimed: claimed.map(Cell::new), overran: Cell::new(false) }
    }

    fn dir(&self) -> DirId {
        match self.claimed {
            Some(_) => DirId::HOME,
            None => self.core.dirs.of_new(FileKind::Table),
        }
    }

    /// Makes sure that tables of `bytes` without their ends have room: what is claimed is extended before they exceed it.
    fn extend(&self, bytes: u64) -> Result<()> {
        let Some(claimed) = &self.claimed else { return Ok(()) };
        let least = bytes.saturating_add(HL0_SPARE_BYTES);
        if least <= claimed.get() {
            return Ok(());
        }
        let extended = [with_spare(bytes), least];
        let granted = extended.into_iter().find(|bytes| self.core.fast.claim(Occupant::FlushedTables, *bytes));
        match granted {
            Some(granted) => {
                claimed.set(granted);
                Ok(())
            }
            None => {
                self.overran.set(true);
                Err(Error::no_space(self.core.dirs.fast()))
            }
        }
    }
}

/// Tables of levels below HL0 that are written to the fast tier. Unless they are complete, an error or a panic removes their files,
/// and their claims go with this.
struct TablesOnFast<'a> {
    core: &'a Core,
    ids: RefCell<BTreeSet<FileId>>,
}

impl Drop for TablesOnFast<'_> {
    fn drop(&mut self) {
        self.ids.borrow().iter().for_each(|id| self.core.fast.release(Occupant::File(*id)));
    }
}

impl Core {
    /// Claims the fast tier's space for a table of a level below HL0 that is cut at `target_bytes`, and has at least `coming`;
    /// returns how many bytes it may have without its end. `None` if it belongs elsewhere. O(tables).
    fn claim_for_table(&self, id: FileId, target_bytes: u64, coming: u64) -> Option<u64> {
        if !self.dirs.are_apart() {
            return None;
        }
        let bytes_max = target_bytes.saturating_add(target_bytes / TABLE_SPARE_PART).max(coming);
        let bytes = bytes_max.saturating_add(HL0_SPARE_BYTES);
        let (tables, are_most) = self.published.view().version.tables_of_addresses();
        let is_granted = are_most
            && self.fast_fill().has_room_for_table(tables, bytes)
            && self.fast.claim(Occupant::File(id), bytes);
        is_granted.then_some(bytes_max)
    }

    /// The tier for tables of HL0 of about `bytes`.
    pub fn tier_of_hl0(&self, bytes: u64) -> Tier {
        let has_room = self.dirs.are_apart() && self.fast_fill().has_room_for_hl0(with_spare(bytes));
        if has_room { Tier::Fast } else { self.dirs.slow_tier() }
    }

    /// Runs a flush that writes about `bytes` of tables, with space for them on the fast tier if that has room. A flush that
    /// finds more to write, such as merged values, than the tier has room for is run once more, for the slow one.
    pub fn with_room_for_hl0<T>(&self, bytes: u64, flush: impl Fn(&Hl0Place<'_>) -> Result<T>) -> Result<T> {
        let wanted = with_spare(bytes);
        let has_room = self.dirs.are_apart() && self.tier_of_hl0(bytes) == Tier::Fast;
        let place =
            Hl0Place::new(self, (has_room && self.fast.claim(Occupant::FlushedTables, wanted)).then_some(wanted));
        let flushed = flush(&place);
        self.fast.release(Occupant::FlushedTables);
        match place.overran.get() {
            true => flush(&Hl0Place::new(self, None)),
            false => flushed,
        }
    }

    /// Writes a stream of versions, and range tombstones, to a table of HL0. It is open and its directory entry durable.
    pub fn write_hl0<E: From<Error>>(
        &self,
        source: &mut dyn VersionSource<Error = E>,
        ranges: Vec<Fragment>,
        place: &Hl0Place<'_>,
    ) -> Result<Vec<Arc<Table>>, E> {
        self.write_tables_in(source, ranges, (0, u64::MAX), place)
    }

    /// As [`write_hl0`](Core::write_hl0), to tables of a level below, cut at `target_bytes`. Each lies on the fast tier if that
    /// keeps tables and has room for it.
    pub fn write_tables<E: From<Error>>(
        &self,
        source: &mut dyn VersionSource<Error = E>,
        ranges: Vec<Fragment>,
        level: usize,
        target_bytes: u64,
    ) -> Result<Vec<Arc<Table>>, E> {
        self.write_tables_in(source, ranges, (level, target_bytes), &Hl0Place::new(self, None))
    }

    fn write_tables_in<E: From<Error>>(
        &self,
        source: &mut dyn VersionSource<Error = E>,
        ranges: Vec<Fragment>,
        (level, target_bytes): (usize, u64),
        place: &Hl0Place<'_>,
    ) -> Result<Vec<Arc<Table>>, E> {
        let settings = &self.settings;
        let on_fast = TablesOnFast { core: self, ids: RefCell::default() };
        let dir_of = |id: FileId| if on_fast.ids.borrow().contains(&id) { DirId::HOME } else { place.dir() };
        let next_table = |coming| {
            let id = self.new_file_id()?;
            let claimed = if level > 0 { self.claim_for_table(id, target_bytes, coming) } else { None };
            on_fast.ids.borrow_mut().extend(claimed.map(|_| id));
            let dir = dir_of(id);
            self.note_made_in(dir);
            let path = self.dirs.path(FileKey { kind: FileKind::Table, id, dir });
            let bytes_max = claimed.unwrap_or(u64::MAX);
            Ok(NewTable { id, path, access: self.readers.access_in(dir), bytes_max })
        };
        let dropped: Vec<_> = self.keyspaces.dropped().into_keys().collect();
        let sink = TableSink {
            storage: &*self.storage,
            next_table: &next_table,
            options: TableOptions {
                block_size: settings.block_size,
                filter_bits: settings.filter_bits,
                compression: settings.compression_at(level),
                write_bytes: settings.tuning.write_bytes,
                access: self.readers.access_in(place.dir()),
            },
            compression: &|keyspace| self.keyspaces.compression(keyspace),
            target_bytes,
            never_across: &dropped,
            limit: &|bytes| place.extend(bytes),
        };
        let TableOptions { block_size, filter_bits, write_bytes, .. } = sink.options;
        let held = self.memory.jobs.hold(TableOptions::builder_bytes(block_size, filter_bits, write_bytes));
        let metas = write_tables(source, ranges, &sink);
        drop(held);
        let metas = metas?;
        if place.claimed.is_some() {
            self.fast.settle(Occupant::FlushedTables, metas.iter().map(|meta| (meta.id, meta.size)));
        }
        for meta in metas.iter().filter(|meta| dir_of(meta.id) != place.dir()) {
            self.fast.note(Occupant::File(meta.id), meta.size);
        }
        if metas.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = metas.iter().map(|meta| meta.size).sum();
        self.counters.table_bytes.fetch_add(bytes, Ordering::Relaxed);
        let keys: Vec<FileKey> = metas.iter().map(|meta| meta.key(dir_of(meta.id))).collect();
        // From here on they are removed as files.
        on_fast.ids.take();
        let paths: Vec<_> = keys.iter().map(|key| self.dirs.path(*key)).collect();
        let dirs: BTreeSet<DirId> = keys.iter().map(|key| key.dir).collect();
        let sync = |dir: DirId| self.guarded(self.with_descriptors(|| self.storage.sync_dir(self.dirs.of(dir))));
        let synced = dirs.into_iter().try_for_each(sync);
        let opened: Result<Vec<_>> = synced.and_then(|()| {
            let tables = metas.into_iter().zip(keys);
            tables.map(|(meta, key)| Table::open(&self.readers, self.guard(key), meta)).collect()
        });
        // Nothing references them; those that cannot be removed now are removed by the next open.
        Ok(opened.inspect_err(|_| paths.iter().for_each(|path| self.remove_file(path)))?)
    }
}

/// Removes a job's tables if its edit was never begun; after any other error the edit may be on storage, so they stay.
pub(crate) fn discard_rejected(error: &Error, tables: &[Arc<Table>]) {
    if error.is_transient() {
        tables.iter().for_each(|table| table.mark_obsolete());
    }
}
