//! Where a version goes when it leaves the front: into the table as it is, or with its value, which is fetched from the log.
//! Values are fetched a window of versions at a time, in log order, neighbours in one read.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::memory::Counted;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, Buffer, Error, KeyspaceId, Kind, Result, Slice, Stamp, split_key};
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::format::record::check_record;
use crate::front::index_table::SeparationThresholds;
use crate::front::log::LogFile;

/// Addresses whose records lie closer than this are read together.
const GAP_BYTES: u64 = 4 << 10;
/// One read of a log covers at most this much.
const READ_BYTES: u64 = 1 << 20;
/// What a version in a window takes beside its key and value.
const ENTRY_OVERHEAD_BYTES: usize = std::mem::size_of::<RoutedVersion>() + 32;

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
pub(crate) struct Routed<'a, S, F> {
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

impl<'a, S: VersionSource, F: FnMut(KeyspaceId) -> usize> Routed<'a, S, F> {
    /// The versions of `source`, whose addresses lead to logs of `view`.
    pub fn new(core: &'a Core, view: &'a View, source: S, separation: F) -> Routed<'a, S, F> {
        let counted = core.memory.jobs.hold(0);
        Routed { core, view, source, separation, window: VecDeque::new(), fetched: None, counted }
    }
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
