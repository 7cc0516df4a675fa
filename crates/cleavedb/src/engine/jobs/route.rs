//! Routing of versions that leave the front: written to the table unchanged, or with the value, which is fetched from
//! the log. Values are fetched for a window of versions at a time, in log order, with one read for adjacent records. Keys of a
//! window are all over the logs, so each window reads about all of them; where that goes to the device, the caches give
//! memory for a larger one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::base::key_versions::inline;
use crate::base::memory::Counted;
use crate::base::versions::{VersionRef, VersionSource};
use crate::base::{Address, Bytes, Error, KeyspaceId, Kind, Result, Slice, Stamp, split_key};
use crate::engine::core::Core;
use crate::engine::view::View;
use crate::format::record::check_record;
use crate::front::index_table::SeparationThresholds;
use crate::front::log::LogFile;
use crate::io::coalesced_reads::{CoalescedRead, Coalescing, ReadRange, coalesce};

/// Records within this distance are read in one read: with direct I/O a gap costs less than another read.
const GAP_BYTES: u64 = 32 << 10;
/// One read is at most this part of a window...
const READ_PART: usize = 16;
/// ...within these bounds.
const READ_BYTES_MIN: u64 = 64 << 10;
const READ_BYTES_MAX: u64 = 1 << 20;
/// A buffer for reads may be larger than requested: what a window takes, and what it may be filled with.
const BUFFER_PARTS: (usize, usize) = (4, 3);
/// Memory of a version in a window, excluding its key and value.
const ENTRY_OVERHEAD_BYTES: usize = std::mem::size_of::<RoutedVersion>() + 32;
/// What a record has beside its value: its header, and a key that may be packed in the run.
const RECORD_OVERHEAD_BYTES: usize = 64;

/// The route of a version that leaves the front.
enum Route {
    /// Written unchanged: an inline value, or the address of a value that stays in its log.
    Inline(Slice),
    /// Written inline, after its value is fetched from the log.
    Fetch(Address),
}

/// The routing point: the only place that decides by shape. Returns the address of a value to fetch; every other
/// version is written unchanged.
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
        Error::corruption(core.dirs.fast(), 0, message)
    })?;
    Ok((!stays(separation, key, kind, address)).then_some(address))
}

/// True if the value reaches the separation threshold of its keyspace. Operands are never separated, because they will
/// be folded.
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

/// Memory for the versions of a window.
pub(crate) struct WindowRoom {
    /// A window is full at this size.
    bytes: usize,
    /// What the caches gave for it.
    _lent: Option<Counted>,
}

impl WindowRoom {
    /// For versions that take `needed` bytes together: in one window, or in as few of the same size as the caches have memory for.
    /// Without `borrows`, what is set apart for it in the memory of jobs.
    pub fn new(core: &Core, needed: usize, borrows: bool) -> WindowRoom {
        let own = core.settings.tuning.fetch_bytes;
        let spare = if borrows { core.spare_of_caches() / BUFFER_PARTS.0 * BUFFER_PARTS.1 } else { 0 };
        let bytes = window_bytes(needed, own, spare);
        let lent = (bytes > own).then(|| core.borrow_from_caches((bytes - own) / BUFFER_PARTS.1 * BUFFER_PARTS.0));
        WindowRoom { bytes, _lent: lent }
    }

    /// About what versions take in a window that take `weight` bytes in runs and of values: rather more, since a few that are left
    /// for another window would be read with all that is between them.
    pub fn bytes_of(versions: u64, weight: u64) -> usize {
        let keys_and_values = weight as usize / 16 * 17;
        keys_and_values + versions as usize * (ENTRY_OVERHEAD_BYTES + RECORD_OVERHEAD_BYTES)
    }
}

/// The size of windows for `needed` bytes, with `own` bytes of memory and up to `spare` more.
fn window_bytes(needed: usize, own: usize, spare: usize) -> usize {
    let windows = needed.div_ceil((own + spare).max(1)).max(1);
    needed.div_ceil(windows).max(own)
}

struct RoutedVersion {
    key: Vec<u8>,
    stamp: Stamp,
    route: Route,
}

impl RoutedVersion {
    fn set_value(&mut self, value: Slice) {
        self.stamp = inline(self.stamp);
        self.route = Route::Inline(value);
    }
}

/// A stream of versions with their bytes: inline ones pass straight through; from the first address to fetch on,
/// versions are collected in windows.
pub(crate) struct Routed<'a, S, F> {
    core: &'a Core,
    view: &'a View,
    source: S,
    /// The separation threshold of a keyspace.
    separation: F,
    room: WindowRoom,
    window: VecDeque<RoutedVersion>,
    /// The current version if it comes from a window, not straight from the source.
    fetched: Option<(Vec<u8>, Stamp, Slice)>,
    /// Memory of the window.
    counted: Counted,
}

impl<'a, S: VersionSource, F: FnMut(KeyspaceId) -> usize> Routed<'a, S, F> {
    /// The versions of `source`, whose addresses lead to logs of `view`.
    pub fn new(core: &'a Core, view: &'a View, source: S, separation: F, room: WindowRoom) -> Routed<'a, S, F> {
        let counted = core.memory.jobs.hold(0);
        Routed { core, view, source, separation, room, window: VecDeque::new(), fetched: None, counted }
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
    /// Fills the window, starting with the source's current version, which has an address.
    fn fill(&mut self) -> Result<(), S::Error> {
        let (mut inline_bytes, mut fetch_bytes) = (0, 0);
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
            if inline_bytes + fetch_bytes >= self.room.bytes || !self.source.advance()? {
                break;
            }
        }
        self.counted.set(inline_bytes);
        Ok(self.fetch()?)
    }

    /// Fetches the values at the window's addresses: in log order, with one read for adjacent records, and from the
    /// ring for records not in their file yet.
    fn fetch(&mut self) -> Result<()> {
        let (mut in_files, mut in_ring) = (Vec::new(), Vec::new());
        for (index, entry) in self.window.iter().enumerate() {
            let Route::Fetch(address) = entry.route else { continue };
            let log = self.view.logs.get(&address.file).ok_or_else(|| {
                let message = format!("an address references log {}, which does not exist", address.file.0);
                Error::corruption(self.core.dirs.fast(), address.offset, message)
            })?;
            let is_written = log.is_written(address.offset.saturating_add(address.len.into()));
            if is_written { &mut in_files } else { &mut in_ring }.push(WantedRecord { log, address, index });
        }
        in_files.sort_unstable_by_key(WantedRecord::place);
        let part = (self.room.bytes / READ_PART) as u64;
        let read_bytes_max = part.clamp(READ_BYTES_MIN, READ_BYTES_MAX);
        for read in coalesce(&in_files, Coalescing { gap_bytes: GAP_BYTES, read_bytes_max }, WantedRecord::place) {
            self.fetch_coalesced(&read)?;
        }
        for WantedRecord { log, address, index } in in_ring {
            let entry = &mut self.window[index];
            let value = log.read_value(address, &entry.key, entry.stamp.seqno(), &self.core.memory.jobs)?;
            entry.set_value(value);
        }
        Ok(())
    }

    fn fetch_coalesced(&mut self, read: &CoalescedRead<'_, WantedRecord<'_>>) -> Result<()> {
        let gauge = &self.core.memory.jobs;
        let log = read.pieces[0].log;
        let mut bytes = Vec::new();
        read.read(&**log.file(), &mut bytes)?;
        self.core.counters.bytes_read.fetch_add(read.bytes(), Ordering::Relaxed);
        let buffer = Bytes::counted(bytes, gauge.clone());
        // A value keeps its whole buffer alive, so values are copied out of a buffer that is mostly other data.
        let wanted_bytes: u64 = read.pieces.iter().map(|wanted| u64::from(wanted.address.len)).sum();
        let is_mostly_wanted = wanted_bytes >= read.bytes() / 4 * 3;
        for wanted in read.pieces {
            let (address, entry) = (wanted.address, &mut self.window[wanted.index]);
            let place = read.within(wanted.place());
            check_record(&buffer[place.clone()], address, &entry.key, entry.stamp.seqno())
                .map_err(|reason| Error::corruption(log.path(), address.offset, reason))?;
            let (start, len) = (place.end - address.value_len as usize, address.value_len as usize);
            entry.set_value(match is_mostly_wanted {
                true => Slice::shared(buffer.clone(), start, len),
                false => {
                    let value = Bytes::counted(buffer[start..place.end].to_vec(), gauge.clone());
                    Slice::shared(value, 0, len)
                }
            });
        }
        Ok(())
    }
}

/// A record that the window needs.
struct WantedRecord<'a> {
    log: &'a Arc<LogFile>,
    address: Address,
    /// The index of its version in the window.
    index: usize,
}

impl WantedRecord<'_> {
    fn place(&self) -> ReadRange {
        let Address { file, offset, len, .. } = self.address;
        ReadRange { file, start: offset, end: offset.saturating_add(len.into()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_as_few_and_as_equal_as_memory_allows() {
        // All in one, with no more memory than that needs.
        assert_eq!(window_bytes(30, 10, 100), 30);
        assert_eq!([window_bytes(10, 10, 100), window_bytes(3, 10, 100), window_bytes(0, 10, 0)], [10; 3]);
        // Two of 35 rather than one of 60 and one of 10.
        assert_eq!(window_bytes(70, 10, 50), 35);
        assert_eq!(window_bytes(70, 10, 0), 10);
        assert_eq!(window_bytes(25, 10, 0), 10);
    }
}
