//! Scans: a merge of the layers of one view, forward and backward. Each of the two ends has a merge of its own, created
//! when first needed; they stop where they meet.
//!
//! If values are separated, an end reads ahead of the caller and fetches the values of several keys together
//! (`fetch.rs`). The read-ahead window begins at the usual length of scans of the keyspace (`scan_lengths.rs`) and grows by
//! half with each fetch, so a scan fetches few values in vain. A prefetched key changes no state until it is returned to
//! the caller; merge operators run only then.
//!
//! Called by the iterators of `api/`.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::base::key_versions::KeyVersions;
use crate::base::{Address, Cursor, Error, FileId, Result, Slice, Stamp, split_key};
use crate::engine::core::Core;
use crate::engine::held_snapshot::HeldSnapshot;
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::layer::collect_versions;
use crate::engine::read::bounds::Bounds;
use crate::engine::read::covers::{ScanSources, ScanSourcesBuilder};
use crate::engine::scan_demand::ScanPlaces;
use crate::engine::view::View;
use crate::io::Access;
use crate::io::read_ahead::Reservation;
use crate::levels::point_reads::OneKey;

/// A cursor steps over this many versions of one key before it seeks past the rest.
const STEPS_BEFORE_SEEK: usize = 8;

/// An end of a scan reads ahead at most this many keys whose values are separated.
const KEYS_AHEAD_MAX: usize = 256;
/// A fetch for few keys also reads the adjoining values, up to this many keys in this many bytes: the device takes
/// about the same time for one larger read.
const KEYS_CLOSE: usize = 16;
const CLOSE_BYTES: u64 = 16 << 10;
/// A fetch reserves this much memory for each key: more than most values need.
const BYTES_AHEAD_TYPICAL: usize = 4 << 10;

/// A key and its value.
type Item = (Slice, Slice);

/// The keys and values of a range, from both ends, at one sequence number. Holds the sequence number, and the files of
/// one view, until dropped.
pub(crate) struct Scan {
    /// The front and the back.
    ends: [End; 2],
    view: Arc<View>,
    /// Dropped after the view: its drop wakes background work, which can then delete files that only this scan held.
    held: HeldSnapshot,
    keyspace: Arc<KeyspaceState>,
    bounds: Bounds,
    versions: KeyVersions,
    /// Where values were fetched so far.
    places: ScanPlaces,
    /// Keys returned to the caller so far.
    returned: usize,
    is_over: bool,
    /// Values are neither fetched nor merged; items have empty values.
    keys_only: bool,
}

/// One of the two ends of a scan.
#[derive(Default)]
struct End {
    /// Created when first needed.
    sources: Option<ScanSources>,
    /// The last key that the sources were positioned on, or the bound that they were first positioned at, if there is
    /// one.
    key: Option<Vec<u8>>,
    /// The sources may still be positioned on that key.
    may_stay: bool,
    /// The last full key that was returned to the caller.
    returned: Option<Vec<u8>>,
    /// Prefetched keys that were not returned yet, in scan order.
    ahead: VecDeque<Prefetched>,
    /// The key after them, with which the next fetch begins.
    next: Option<Prefetched>,
    /// How many keys the next fetch is for; zero before the first.
    window: usize,
    /// Reserved memory for the values in `ahead`.
    room: Option<Reservation>,
    /// Buffers of keys that were returned, reused for later ones.
    spare_keys: Vec<Vec<u8>>,
}

/// A key that was read ahead, with its versions or the error.
struct Prefetched {
    key: Vec<u8>,
    found: Result<KeyVersions>,
}

/// A run of adjoining records of at most [`CLOSE_BYTES`], in key order or its reverse.
#[derive(Default)]
struct AdjoiningRecords {
    file: Option<FileId>,
    place: Range<u64>,
}

impl AdjoiningRecords {
    /// Adds the next record if it adjoins the run; if not, a new run begins with it.
    fn takes(&mut self, next: Option<Address>) -> bool {
        let Some(next) = next else { return false };
        let end = next.offset + u64::from(next.len);
        let adjoins = end == self.place.start || next.offset == self.place.end;
        let place = next.offset.min(self.place.start)..end.max(self.place.end);
        let takes = self.file == Some(next.file) && adjoins && place.end - place.start <= CLOSE_BYTES;
        self.place = if takes { place } else { next.offset..end };
        self.file = Some(next.file);
        takes
    }
}

/// The direction of a scan: from its front or its back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Direction {
    Forward = 0,
    Backward = 1,
}

impl End {
    /// Drops the sources and the prefetched keys.
    fn reset(&mut self) {
        *self = End { returned: self.returned.take(), ..End::default() };
    }

    /// Returns a key to the caller and notes it as the position of the scan; a key that could not be read is not noted.
    fn return_key(&mut self, key: &[u8], found: Result<Option<Slice>>) -> Result<Option<Item>> {
        if matches!(found, Ok(_) | Err(Error::MergeFailed { .. })) {
            copy_into(&mut self.returned, key);
        }
        found.map(|value| value.map(|value| (user_key(key), value)))
    }
}

impl Scan {
    /// A scan of the keys within `bounds`: of the newest state, or at the sequence number of a snapshot.
    pub fn new(
        core: &Arc<Core>,
        keyspace: &Arc<KeyspaceState>,
        bounds: Bounds,
        snapshot: Option<&HeldSnapshot>,
    ) -> Result<Scan> {
        let (held, view) = snapshot.map_or_else(|| HeldSnapshot::newest(core), HeldSnapshot::again);
        // Checked after the view is taken: a view from before a close or a drop of the keyspace has all its keys.
        core.check_open()?;
        keyspace.check(core.database)?;
        let is_over = bounds.is_empty();
        Ok(Scan {
            held,
            keyspace: keyspace.clone(),
            view,
            bounds,
            ends: Default::default(),
            versions: KeyVersions::default(),
            places: ScanPlaces::default(),
            returned: 0,
            is_over,
            keys_only: false,
        })
    }

    /// From now on values are neither fetched nor merged; items have empty values.
    pub fn leave_out_values(&mut self) {
        self.keys_only = true;
        for end in &mut self.ends {
            // There are no further fetches, so the key for the next one is returned with the prefetched keys.
            end.ahead.extend(end.next.take());
        }
    }

    /// Continues with the newest state of the database, within the same bounds, from the last keys that were returned.
    pub fn refresh(&mut self) -> Result<()> {
        let (held, view) = HeldSnapshot::newest(&self.held.core);
        held.core.check_open()?;
        self.keyspace.check(held.core.database)?;
        self.ends.iter_mut().for_each(End::reset);
        self.view = view;
        self.held = held;
        self.is_over = self.bounds.is_empty();
        Ok(())
    }

    /// The next key with its value, from one end. An error ends the scan, unless it concerns one key only.
    pub fn next(&mut self, direction: Direction) -> Option<Result<Item>> {
        if self.is_over {
            return None;
        }
        self.held.core.work.space.note_read();
        // Tables are opened when first read, and after a close another process may own the files.
        let item = match self.held.core.check_open() {
            Ok(()) => {
                let item = self.step(direction);
                self.held.core.unless_closed(item).transpose()
            }
            Err(closed) => Some(Err(closed)),
        };
        self.returned += usize::from(matches!(item, Some(Ok(_))));
        // If a merge operator fails, the scan reports the key and continues after it.
        self.is_over = !matches!(item, Some(Ok(_) | Err(Error::MergeFailed { .. })));
        if self.is_over {
            self.ends.iter_mut().for_each(End::reset);
        }
        item
    }

    /// The payload of the current version; empty if only keys are wanted.
    fn payload_of(&self, sources: &impl Cursor) -> Slice {
        if self.keys_only { Slice::default() } else { sources.value_slice() }
    }

    /// The value of a key; an empty one if only keys are wanted.
    fn resolve(&self, key: &[u8], versions: &KeyVersions) -> Result<Option<Slice>> {
        match self.keys_only {
            true => Ok(Some(Slice::default())),
            false => self.held.core.value_of(&self.view, &self.keyspace, key, versions, None),
        }
    }

    fn sources(&self) -> ScanSources {
        let mut sources = ScanSourcesBuilder::default();
        let layers = self.view.layers_of(self.keyspace.record.kind);
        // Operands in buckets may be newer than a range tombstone of any layer, so no tombstone may skip them.
        let ageless = layers.iter().filter(|layer| layer.is_ageless());
        for layer in ageless.chain(layers.iter().filter(|layer| !layer.is_ageless())) {
            sources.push(layer.scan(&self.bounds.lower, self.bounds.upper.as_deref()));
        }
        sources.finish()
    }

    /// The next key with a value, from one end.
    fn step(&mut self, direction: Direction) -> Result<Option<Item>> {
        let at = direction as usize;
        if self.ends[at].ahead.is_empty() {
            if let Some(next) = self.ends[at].next.take() {
                self.read_ahead(direction, next);
            } else {
                if !self.collect(direction)? {
                    return Ok(None);
                }
                if self.keys_only || !self.versions.is_separated() {
                    let key = self.ends[at].key.take().unwrap_or_default();
                    let found = self.resolve(&key, &self.versions);
                    let item = self.ends[at].return_key(&key, found);
                    self.ends[at].key = Some(key);
                    return item;
                }
                let first = self.take_collected(direction);
                self.read_ahead(direction, first);
            }
        }
        let end = &mut self.ends[at];
        let Some(next) = end.ahead.pop_front() else { return Ok(None) };
        if end.ahead.is_empty() {
            end.room = None;
        }
        if !self.is_left(direction, &next.key) {
            return Ok(None);
        }
        let found = next.found.and_then(|versions| self.resolve(&next.key, &versions));
        let end = &mut self.ends[at];
        let item = end.return_key(&next.key, found);
        end.spare_keys.push(next.key);
        item
    }

    /// Takes the key that was collected, with its versions.
    fn take_collected(&mut self, direction: Direction) -> Prefetched {
        let end = &mut self.ends[direction as usize];
        let mut key = end.spare_keys.pop().unwrap_or_default();
        key.clear();
        key.extend_from_slice(end.key.as_deref().unwrap_or_default());
        Prefetched { key, found: Ok(std::mem::take(&mut self.versions)) }
    }

    /// Collects keys after `first`, as many as the window and the reserved memory allow and those whose values adjoin,
    /// and fetches their values together.
    fn read_ahead(&mut self, direction: Direction, first: Prefetched) {
        let at = direction as usize;
        let core = &self.held.core;
        let usual = self.keyspace.scan_lengths.usual().clamp(1, KEYS_AHEAD_MAX);
        let (window, further) = match self.ends[at].window {
            // Most scans end here.
            0 => (usual, usual.div_ceil(2).max(2)),
            // A round trip to the device costs more than values that are read in vain.
            window if core.readers.slow_access == Access::Direct => (window, window * 2),
            window => (window, window + window.div_ceil(2)),
        };
        let room = core.memory.values_ahead.reserve(window.max(KEYS_CLOSE) * BYTES_AHEAD_TYPICAL);
        let room_bytes = room.bytes();
        let mut adjoining = AdjoiningRecords::default();
        let (mut bytes, mut within) = (0, 0);
        let mut next = first;
        loop {
            let adjoins = next.found.as_ref().is_ok_and(|versions| adjoining.takes(versions.base_address()));
            if within >= window && !(adjoins && within < KEYS_CLOSE) {
                self.ends[at].next = Some(next);
                break;
            }
            bytes += next.found.as_ref().map_or(0, KeyVersions::bytes);
            let failed = next.found.is_err();
            self.ends[at].ahead.push_back(next);
            // A value that exceeds the reserved memory is fetched alone when its key is returned.
            if failed || bytes > room_bytes {
                break;
            }
            within += 1;
            next = match self.collect(direction) {
                Ok(true) => self.take_collected(direction),
                Ok(false) => break,
                Err(error) => Prefetched { key: self.ends[at].key.clone().unwrap_or_default(), found: Err(error) },
            };
        }
        let Scan { ends, held, view, places, .. } = self;
        let end = &mut ends[at];
        let further = if within > window { within } else { further };
        (end.window, end.room) = (further.min(KEYS_AHEAD_MAX), Some(room));
        let separated = end.ahead.iter_mut().take(within).flat_map(|Prefetched { key, found }| {
            let versions = found.iter_mut().flat_map(KeyVersions::separated);
            versions.map(|version| (&key[..], version))
        });
        held.core.fetch_together(view, separated, false, Some(places));
        if let Some(first) = end.ahead.front() {
            held.core.note_scan(view, &first.key, places.take_scattered());
        }
    }

    /// Advances the sources to the next key with a value: [`End::key`], with its versions in `versions`. False at the
    /// end.
    fn collect(&mut self, direction: Direction) -> Result<bool> {
        let mut sources = match self.ends[direction as usize].sources.take() {
            Some(sources) => sources,
            None => self.position(direction)?,
        };
        let collected = self.collect_from(direction, &mut sources);
        if collected.is_ok() {
            self.ends[direction as usize].sources = Some(sources);
        }
        collected
    }

    /// Sources positioned after the last key that was returned.
    fn position(&mut self, direction: Direction) -> Result<ScanSources> {
        let mut sources = self.sources();
        let end = &mut self.ends[direction as usize];
        match (direction, &end.returned) {
            // After all versions of it.
            (Direction::Forward, Some(returned)) => sources.cursors.seek(returned, Stamp::OLDEST)?,
            (Direction::Forward, None) => sources.cursors.seek(&self.bounds.lower, Stamp::NEWEST)?,
            (Direction::Backward, returned) => match returned.as_ref().or(self.bounds.upper.as_ref()) {
                Some(upper) => sources.cursors.seek_before(upper, Stamp::NEWEST)?,
                None => sources.cursors.seek_last()?,
            },
        }
        end.may_stay = direction == Direction::Forward && end.returned.is_none();
        let bound = match direction {
            Direction::Forward => Some(&self.bounds.lower),
            Direction::Backward => self.bounds.upper.as_ref(),
        };
        end.key = end.returned.as_ref().or(bound).cloned();
        Ok(sources)
    }

    /// True if a key is within the bounds and the other end has not returned it.
    fn is_left(&self, direction: Direction, key: &[u8]) -> bool {
        let [front, back] = &self.ends;
        match direction {
            Direction::Forward => !self.bounds.above(key) && back.returned.as_ref().is_none_or(|back| key < &back[..]),
            Direction::Backward => {
                key >= &self.bounds.lower[..] && front.returned.as_ref().is_none_or(|front| key > &front[..])
            }
        }
    }

    fn collect_from(&mut self, direction: Direction, sources: &mut ScanSources) -> Result<bool> {
        while sources.cursors.valid() {
            let next = sources.cursors.key();
            if !self.is_left(direction, next) {
                return Ok(false);
            }
            let end = &mut self.ends[direction as usize];
            let order = end.key.as_ref().map(|last| match direction {
                Direction::Forward => next.cmp(last),
                Direction::Backward => last[..].cmp(next),
            });
            if order.is_some_and(|order| !goes_on(order, end.may_stay)) {
                return Err(self.out_of_order(next));
            }
            copy_into(&mut end.key, next);
            end.may_stay = sources.pass_over_covered(self.held.seqno)?;
            if end.may_stay {
                continue;
            }
            let key = end.key.take().unwrap_or_default();
            let collected = match direction {
                Direction::Forward => self.collect_forward(sources, &key),
                Direction::Backward => self.collect_backward(sources, &key),
            };
            self.ends[direction as usize].key = Some(key);
            collected?;
            if self.versions.has_value() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Collects the versions of `key` that are visible to the snapshot, and leaves the cursor on the next key. If many
    /// versions are invisible or not needed, the cursor seeks past them.
    fn collect_forward(&mut self, sources: &mut ScanSources, key: &[u8]) -> Result<()> {
        self.versions.clear();
        self.versions.cover(sources.cover());
        let newest = Stamp::at(self.held.seqno);
        let sources = &mut sources.cursors;
        let mut steps = 0;
        let mut wanted = true;
        while sources.valid() && sources.key() == key {
            let visible = sources.stamp() <= newest;
            if wanted && visible {
                wanted = self.versions.push_older(sources.stamp(), self.payload_of(sources));
            }
            steps += 1;
            match steps > STEPS_BEFORE_SEEK {
                true if !wanted => return sources.skip(key, Stamp::OLDEST),
                true if !visible => sources.skip(key, newest)?,
                _ => sources.next()?,
            }
        }
        Ok(())
    }

    /// As `collect_forward`, for a backward scan, which meets the oldest version first. If there are many versions, the
    /// newest visible ones are looked up as in a point read.
    fn collect_backward(&mut self, sources: &mut ScanSources, key: &[u8]) -> Result<()> {
        self.versions.clear();
        self.versions.cover(sources.cover());
        let sources = &mut sources.cursors;
        let mut steps = 0;
        while sources.valid() && sources.key() == key {
            if steps == STEPS_BEFORE_SEEK {
                self.versions.clear();
                let mut tables = OneKey::default();
                collect_versions(
                    self.view.layers_of(self.keyspace.record.kind),
                    key,
                    self.held.seqno,
                    &mut tables,
                    &mut self.versions,
                )?;
                return sources.skip(key, Stamp::NEWEST);
            }
            if sources.stamp() <= Stamp::at(self.held.seqno) {
                self.versions.push_newer(sources.stamp(), self.payload_of(sources));
            }
            steps += 1;
            sources.prev()?;
        }
        self.versions.reverse_deltas();
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let key = user_key(key).escape_ascii().to_string();
        let message = format!("some table has key {key:?} out of order; a check of the closed database reports which");
        Error::corruption(self.held.core.dirs.slow(), 0, message)
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        // A scan that fetched no values says nothing about how many to fetch.
        if self.places.values() > 0 {
            self.keyspace.scan_lengths.note(self.returned);
        }
    }
}

/// True if the next key follows the last one in the direction of the scan. Without this check a scan over a damaged
/// table might never end.
fn goes_on(order: Ordering, may_stay: bool) -> bool {
    order.is_gt() || order.is_eq() && may_stay
}

/// Copies `key` into `place` and reuses its buffer.
fn copy_into(place: &mut Option<Vec<u8>>, key: &[u8]) {
    let place = place.get_or_insert_default();
    place.clear();
    place.extend_from_slice(key);
}

fn user_key(full: &[u8]) -> Slice {
    Slice::copy_from(split_key(full).map_or(full, |(_, key)| key))
}
