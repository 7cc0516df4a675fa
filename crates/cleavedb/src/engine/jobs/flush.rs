//! Flush: the oldest runs leave the front. Each version is routed by its shape: inline into a table of HL0, or as the
//! address of a value that stays in its log. Values that lie in logs and go inline are read back in log order (DESIGN section 2).

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::tombstones::{Fragment, fragment, survivors, unfold};
use crate::base::versions::{Horizon, Retention, VersionRef, VersionSource};
use crate::base::{
    Address, Buffer, Cursor, Error, FileId, KeyspaceId, Kind, Merging, Result, Seqno, Slice, Stamp, split_key,
};
use crate::engine::core::Core;
use crate::engine::events::Event;
use crate::engine::pacer::Watched;
use crate::engine::view::View;
use crate::format::edit::Edit;
use crate::format::meta::TableMeta;
use crate::format::record::check_record;
use crate::format::references::References;
use crate::format::values::ValuePlace;
use crate::front::index_table::SeparationThresholds;
use crate::front::log::LogFile;
use crate::front::run::Run;
use crate::levels::builder::TableOptions;
use crate::levels::compaction::{TableSink, write_tables};
use crate::levels::table::Table;
use crate::sched::clock::now;

/// Addresses whose records lie closer than this are read together.
const GAP_BYTES: u64 = 4 << 10;
/// One read of a log covers at most this much.
const READ_BYTES: u64 = 1 << 20;
/// What a version in a window takes beside its key and value.
const ENTRY_OVERHEAD_BYTES: usize = std::mem::size_of::<RoutedVersion>() + 32;

impl Core {
    /// Writes the oldest runs (given oldest first, all neighbours in age) to HL0.
    pub fn flush_runs(&self, runs: &[Arc<Run>]) -> Result<()> {
        let (view, snapshots) = self.snapshots.capture(&self.published);
        let flushed = runs.iter().map(|run| run.seqnos().1).max().expect("a flush has at least one run");
        let weight: u64 = runs.iter().map(|run| run.weight()).sum();
        // What leaves the front, in bytes that users wrote.
        let drained = weight + runs.iter().map(|run| run.kept_bytes()).sum::<u64>();
        let (began, before) = (now(), self.counters.flush_table_bytes.load(Ordering::Relaxed));
        self.events.raise(Event::FlushBegun { bytes: weight });
        self.pacer.flush.begin(drained, runs.iter().map(|run| run.entries()).sum());
        let flushing = self.write_and_install(&view, runs, flushed, snapshots);
        self.pacer.flush.end(flushing.is_ok());
        // One flush runs at a time.
        let written = self.counters.flush_table_bytes.load(Ordering::Relaxed) - before;
        self.events.raise(Event::FlushEnded {
            bytes: weight,
            bytes_written: if flushing.is_ok() { written } else { 0 },
            duration: now().saturating_sub(began),
            succeeded: flushing.is_ok(),
        });
        flushing?;
        self.counters.flushed_bytes.fetch_add(drained, Ordering::Relaxed);
        self.counters.flushed_weight.fetch_add(weight, Ordering::Relaxed);
        self.work.note_flushed(flushed);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.forget_dropped_keyspaces()
    }

    fn write_and_install(&self, view: &View, runs: &[Arc<Run>], flushed: Seqno, snapshots: Vec<Seqno>) -> Result<()> {
        let tables = self.write_runs(view, runs, snapshots)?;
        let edit = self.flush_edit(view, flushed, &tables)?;
        self.cut_logs(view, flushed, &edit)?;
        let removed: BTreeSet<FileId> = edit.logs_removed.iter().copied().collect();
        let adopted: BTreeSet<FileId> = edit.values_placed.iter().map(|(id, _)| *id).collect();
        let added: Vec<(usize, Arc<Table>)> = tables.iter().map(|table| (0, table.clone())).collect();
        let count = runs.len();
        self.install(flushed, edit, |now| {
            let mut next = now.clone();
            let kept = now.runs.len() - count;
            assert!(Arc::ptr_eq(&now.runs[kept], &runs[count - 1]), "the oldest runs stay the oldest while they flush");
            next.runs.truncate(kept);
            next.version = Arc::new(now.version.apply(&added, &[]));
            let mut logs = (*now.logs).clone();
            logs.retain(|id, log| {
                if removed.contains(id) {
                    log.mark_obsolete();
                }
                !removed.contains(id) && !adopted.contains(id)
            });
            next.logs = Arc::new(logs);
            next
        })
        .inspect_err(|error| discard_rejected(error, &tables))?;
        let written: u64 = tables.iter().map(|table| table.meta().size).sum();
        self.counters.flush_table_bytes.fetch_add(written, Ordering::Relaxed);
        Ok(())
    }

    fn write_runs(&self, view: &View, runs: &[Arc<Run>], snapshots: Vec<Seqno>) -> Result<Vec<Arc<Table>>> {
        let dropped = self.keyspaces.dropped();
        let dropped = |keyspace| dropped.contains_key(&keyspace);
        let ranges = fragments_of_runs(runs, &snapshots)?;
        let bottom = |start: &[u8], end: &[u8]| !view.version.may_hold_range_from(0, start, end);
        let ranges_left = survivors(&ranges, &snapshots, &bottom, &dropped);
        let horizon = Horizon {
            snapshots,
            bottom: &|key| view.version.tables_for_key(key).next().is_none(),
            dropped: &dropped,
            operators: &self.keyspaces,
            fetch: None,
        };
        let mut cursor = Merging::new(runs.iter().rev().map(|run| run.cursor()).collect());
        cursor.seek_first()?;
        let source = Retention::new(cursor, horizon).with_ranges(&ranges);
        let counted = self.memory.jobs.hold(0);
        let separation = self.keyspaces.separations();
        let routed = Routed { core: self, view, source, separation, window: VecDeque::new(), fetched: None, counted };
        self.write_tables(&mut Watched::new(routed, Some(&self.pacer.flush)), ranges_left, 0, u64::MAX)
    }

    /// Writes a stream of versions, and range tombstones, to tables of a level, opened and with their names durable.
    pub fn write_tables<E: From<Error>>(
        &self,
        source: &mut dyn VersionSource<Error = E>,
        ranges: Vec<Fragment>,
        level: usize,
        target_bytes: u64,
    ) -> Result<Vec<Arc<Table>>, E> {
        let settings = &self.settings;
        let dropped: Vec<_> = self.keyspaces.dropped().into_keys().collect();
        let sink = TableSink {
            storage: &*self.storage,
            path_of: &|id| self.table_path(id),
            next_file: &|| self.new_file_id(),
            options: TableOptions {
                block_size: settings.block_size,
                filter_bits: settings.filter_bits,
                compression: settings.compression_at(level),
                write_bytes: settings.tuning.write_bytes,
                access: self.readers.handles.access(),
            },
            compression: &|keyspace| self.keyspaces.compression(keyspace),
            target_bytes,
            never_across: &dropped,
        };
        let TableOptions { block_size, filter_bits, write_bytes, .. } = sink.options;
        let held = self.memory.jobs.hold(TableOptions::builder_bytes(block_size, filter_bits, write_bytes));
        let metas = write_tables(source, ranges, &sink)?;
        drop(held);
        if metas.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = metas.iter().map(|meta| meta.size).sum();
        self.counters.table_bytes.fetch_add(bytes, Ordering::Relaxed);
        let paths: Vec<_> = metas.iter().map(|meta| self.table_path(meta.id)).collect();
        let synced = self.guarded(self.with_descriptors(|| self.storage.sync_dir(&self.slow)));
        let opened: Result<Vec<_>> =
            synced.and_then(|()| metas.into_iter().map(|meta| self.open_table(meta)).collect());
        // Nothing names them; what cannot be removed now is removed by the next open.
        Ok(opened.inspect_err(|_| paths.iter().for_each(|path| drop(self.storage.remove(path))))?)
    }

    /// Opens a table that the manifest names or is about to.
    pub fn open_table(&self, meta: TableMeta) -> Result<Arc<Table>> {
        let guard = self.guard(self.table_path(meta.id));
        Table::open(&self.readers, guard, meta)
    }

    /// The new tables, and the logs that leave the front once everything up to `flushed` is in tables: those that tables
    /// name stay for their values, the others go.
    fn flush_edit(&self, view: &View, flushed: Seqno, tables: &[Arc<Table>]) -> Result<Edit> {
        let referenced = references_of(tables)?;
        let now = self.published.view();
        let done = |log: &&Arc<LogFile>| log.last_seqno() != Seqno::ZERO && log.last_seqno() <= flushed;
        let newest = view.logs.keys().next_back().copied();
        // The newest log may be the active one.
        let done = view.logs.values().filter(done).filter(|log| Some(log.id()) != newest);
        // Only flushes bring names of logs, and this is the one that is running.
        let is_referenced = |log: &&Arc<LogFile>| {
            [&referenced, &now.values.state.referenced].into_iter().any(|names| names.of(log.id()).records > 0)
        };
        let (adopted, removed): (Vec<_>, Vec<_>) = done.partition(is_referenced);
        Ok(Edit {
            tables_added: tables.iter().map(|table| (0, table.meta().clone())).collect(),
            logs_removed: removed.into_iter().map(|log| log.id()).collect(),
            values_placed: adopted.into_iter().map(|log| (log.id(), ValuePlace::Log { end: log.end() })).collect(),
            referenced,
            flushed: Some(flushed),
            ..Edit::default()
        })
    }

    /// Gives back the space reserved behind the ends of logs that stay for their values, before anyone may hold them
    /// otherwise than as logs.
    fn cut_logs(&self, view: &View, flushed: Seqno, edit: &Edit) -> Result<()> {
        if edit.values_placed.is_empty() {
            return Ok(());
        }
        self.sync_to(flushed)?;
        for (id, _) in &edit.values_placed {
            if let Some(log) = view.logs.get(id) {
                // If this fails the space stays reserved.
                let _ = log.file().truncate(log.end());
            }
        }
        Ok(())
    }

    /// Dropped keyspaces leave the manifest once no run, log or table can hold their versions.
    pub fn forget_dropped_keyspaces(&self) -> Result<()> {
        let mut manifest = self.manifest.lock();
        let dropped = manifest.state().dropped.clone();
        if dropped.is_empty() {
            return Ok(());
        }
        let version = self.published.view().version.clone();
        let flushed = manifest.state().flushed;
        let gone: Vec<_> = dropped
            .into_iter()
            .filter(|(keyspace, seqno)| {
                let overlaps = |table: &Arc<Table>| {
                    let meta = table.meta();
                    meta.smallest.as_slice() < &keyspace.0.saturating_add(1).to_be_bytes()[..]
                        && &keyspace.prefix()[..] < meta.end.as_slice()
                };
                *seqno <= flushed && !version.levels().iter().any(|level| level.tables().iter().any(overlaps))
            })
            .map(|(keyspace, _)| keyspace)
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut edit = Edit { keyspaces_forgotten: gone.clone(), ..Edit::default() };
        self.add_counters(&mut edit);
        match self.commit_edit(&mut manifest, &edit) {
            Ok(()) => self.keyspaces.forget(&gone),
            // What led here is done; the next job that comes by tries again.
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }
}

/// The range tombstones of runs as one list, as far as `snapshots` can tell them apart.
pub(crate) fn fragments_of_runs(runs: &[Arc<Run>], snapshots: &[Seqno]) -> Result<Vec<Fragment>> {
    let mut tombstones = Vec::new();
    for run in runs.iter().filter(|run| run.has_ranges()) {
        tombstones.extend(unfold(&run.fragments()?));
    }
    Ok(fragment(&tombstones, snapshots))
}

/// Tables of a job whose edit could not be begun go; after any other error the edit may be on storage.
pub(crate) fn discard_rejected(error: &Error, tables: &[Arc<Table>]) {
    if error.is_transient() {
        tables.iter().for_each(|table| table.mark_obsolete());
    }
}

/// What tables name, all together.
pub(crate) fn references_of(tables: &[Arc<Table>]) -> Result<References> {
    let mut names = References::default();
    for table in tables {
        names.add_all(&table.references()?);
    }
    Ok(names)
}

/// Where a version goes when it leaves the front.
enum Route {
    /// Into the table, with the bytes it has: a value, or the address of one that stays where it is.
    Inline(Slice),
    /// Into the table, once its bytes are fetched from the log.
    Fetch(Address),
}

/// The routing point: the one place that decides by shape. The address of what is to be fetched; all else goes into the table
/// as it is.
fn route(
    core: &Core,
    separation: &mut impl FnMut(KeyspaceId) -> usize,
    key: &[u8],
    stamp: Stamp,
    payload: &[u8],
) -> Result<Option<Address>> {
    let Some(kind) = stamp.kind().filter(|kind| kind.is_address()) else { return Ok(None) };
    let address = Address::decode(payload).ok_or_else(|| {
        let message = format!("key {:?} has a damaged address", key.escape_ascii().to_string());
        Error::corruption(&core.fast, 0, message)
    })?;
    Ok((!stays(separation, key, kind, address)).then_some(address))
}

/// The value is large enough for its keyspace to lie apart from its key. Operands never do: they are to be folded.
pub(crate) fn stays(
    separation: &mut impl FnMut(KeyspaceId) -> usize,
    key: &[u8],
    kind: Kind,
    address: Address,
) -> bool {
    let keyspace = split_key(key).map(|(keyspace, _)| keyspace);
    let for_good = |keyspace| SeparationThresholds { in_front: 0, after_flush: separation(keyspace) };
    keyspace.map(for_good).is_some_and(|apart| apart.stays(kind, address.value_len as usize))
}

struct RoutedVersion {
    key: Vec<u8>,
    stamp: Stamp,
    route: Route,
}

/// Passes versions on with their bytes: those at hand as they come, from the first address on a window at a time.
struct Routed<'a, S, F> {
    core: &'a Core,
    view: &'a View,
    source: S,
    /// From which size on values of a keyspace lie apart.
    separation: F,
    window: VecDeque<RoutedVersion>,
    /// The version shown if it came out of a window, not straight from the source.
    fetched: Option<(Vec<u8>, Stamp, Slice)>,
    /// The memory of the window.
    counted: Counted,
}

impl<S: VersionSource, F: FnMut(KeyspaceId) -> usize> VersionSource for Routed<'_, S, F> {
    type Error = S::Error;

    fn advance(&mut self) -> Result<bool, S::Error> {
        self.fetched = None;
        if self.window.is_empty() {
            if !self.source.advance()? {
                return Ok(false);
            }
            let (key, stamp, payload) = self.source.current();
            if !stamp.kind().is_some_and(Kind::is_address) {
                return Ok(true);
            }
            match route(self.core, &mut self.separation, key, stamp, payload)? {
                None => return Ok(true),
                Some(_) => self.fill()?,
            }
        }
        self.fetched = self.window.pop_front().map(|entry| match entry.route {
            Route::Inline(value) => (entry.key, entry.stamp, value),
            Route::Fetch(_) => unreachable!("a window is passed on once everything in it is fetched"),
        });
        Ok(true)
    }

    fn current(&self) -> VersionRef<'_> {
        match &self.fetched {
            Some((key, stamp, value)) => (key, *stamp, value),
            None => self.source.current(),
        }
    }
}

impl<S: VersionSource, F: FnMut(KeyspaceId) -> usize> Routed<'_, S, F> {
    /// Fills the window from the version that the source stands on, which has an address.
    fn fill(&mut self) -> Result<(), S::Error> {
        let (mut inline_bytes, mut fetch_bytes) = (0, 0);
        let fetch_bytes_max = self.core.settings.tuning.fetch_bytes;
        loop {
            let (key, stamp, payload) = self.source.current();
            let route = match route(self.core, &mut self.separation, key, stamp, payload)? {
                None => Route::Inline(Slice::copy_from(payload)),
                Some(address) => Route::Fetch(address),
            };
            match &route {
                Route::Inline(value) => inline_bytes += value.len(),
                Route::Fetch(address) => fetch_bytes += address.len as usize,
            }
            inline_bytes += key.len() + ENTRY_OVERHEAD_BYTES;
            self.window.push_back(RoutedVersion { key: key.to_vec(), stamp, route });
            if inline_bytes + fetch_bytes >= fetch_bytes_max || !self.source.advance()? {
                break;
            }
        }
        self.counted.set(inline_bytes);
        Ok(self.fetch()?)
    }

    /// Fetches what the window's addresses name, in log order, neighbours in one read.
    fn fetch(&mut self) -> Result<()> {
        let mut wanted: Vec<(Address, usize)> = Vec::new();
        for (index, entry) in self.window.iter().enumerate() {
            if let Route::Fetch(address) = entry.route {
                wanted.push((address, index));
            }
        }
        wanted.sort_unstable_by_key(|(address, _)| (address.file, address.offset));
        let mut rest = &wanted[..];
        while let Some(&(first, _)) = rest.first() {
            let log = self.view.logs.get(&first.file).ok_or_else(|| {
                let message = format!("an address names log {}, which does not exist", first.file.0);
                Error::corruption(&self.core.fast, first.offset, message)
            })?;
            let (count, end) = stretch(rest, log);
            let (together, later) = rest.split_at(count);
            self.fetch_together(log, first.offset, end, together)?;
            rest = later;
        }
        Ok(())
    }

    fn fetch_together(&mut self, log: &Arc<LogFile>, start: u64, end: u64, wanted: &[(Address, usize)]) -> Result<()> {
        let gauge = &self.core.memory.jobs;
        // Values keep the whole buffer alive, so they are copied out of one that is mostly something else.
        let wanted_bytes: u64 = wanted.iter().map(|(address, _)| address.len as u64).sum();
        let mostly_wanted = wanted_bytes >= (end - start) / 4 * 3;
        let buffer = match log.is_written(end) {
            true => {
                let mut bytes = vec![0; (end - start) as usize];
                let read = log.file().read_at(&mut bytes, start)?;
                bytes.truncate(read);
                self.core.counters.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
                Some(Arc::new(Buffer::counted(bytes, gauge.clone())))
            }
            false => None,
        };
        for &(address, index) in wanted {
            let entry = &mut self.window[index];
            let seqno = entry.stamp.seqno();
            let value = match &buffer {
                Some(buffer) => {
                    let from = (address.offset - start) as usize;
                    let record = buffer.get(from..from + address.len as usize).unwrap_or_default();
                    check_record(record, address, &entry.key, seqno)
                        .map_err(|reason| Error::corruption(log.path(), address.offset, reason))?;
                    let value_start = from + (address.len - address.value_len) as usize;
                    match mostly_wanted {
                        true => Slice::shared(buffer.clone(), value_start, address.value_len as usize),
                        false => {
                            let value = buffer[value_start..value_start + address.value_len as usize].to_vec();
                            Slice::shared(
                                Arc::new(Buffer::counted(value, gauge.clone())),
                                0,
                                address.value_len as usize,
                            )
                        }
                    }
                }
                None => log.read_value(address, &entry.key, seqno, gauge)?,
            };
            let kind = entry.stamp.kind().map_or(Kind::Put, Kind::inline);
            entry.stamp = Stamp::new(seqno, kind);
            entry.route = Route::Inline(value);
        }
        Ok(())
    }
}

/// How many of the sorted addresses one read should fetch, and where it ends.
fn stretch(wanted: &[(Address, usize)], log: &LogFile) -> (usize, u64) {
    let end_of = |address: &Address| address.offset + address.len as u64;
    let first = &wanted[0].0;
    let mut end = end_of(first);
    let mut count = 1;
    for (address, _) in &wanted[1..] {
        let apart = address.file != first.file || address.offset > end + GAP_BYTES;
        if apart || end_of(address) > first.offset + READ_BYTES || !log.is_written(end_of(address)) {
            break;
        }
        end = end.max(end_of(address));
        count += 1;
    }
    (count, end)
}
