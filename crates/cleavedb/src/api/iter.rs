//! Iteration: a merge of all sources of one view, forward and reverse. The two ends have a merge each, made when first
//! needed, and stop where they meet.
//!
//! Where values lie apart, an end runs ahead of the caller and fetches the values of several keys together (`fetch.rs`): of one
//! at first, then of half as many more each time, so it fetches about as far as the caller has shown to go. A key that was run ahead
//! to counts for nothing until the caller has been told of it; merge operators run only then.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::api::handle::DbInner;
use crate::api::snapshot::Held;
use crate::base::key_bounds::Between;
use crate::base::{Address, Cursor, Error, FileId, Result, Slice, Stamp, split_key};
use crate::engine::keyspaces::KeyspaceState;
use crate::engine::read::bounds::Bounds;
use crate::engine::read::covers::{ScanSources, ScanSourcesBuilder};
use crate::engine::read::get::{OneByOne, Versions, find_versions};
use crate::engine::view::View;
use crate::io::read_ahead::Room;

/// Versions of one key that are stepped over one by one before the cursor seeks past the rest.
const STEPS_BEFORE_SEEK: usize = 8;

/// An end of an iterator runs ahead to at most so many keys whose values lie apart.
const KEYS_AHEAD_MAX: usize = 256;
/// A fetch for few keys takes along what lies right behind, up to so many keys in so many bytes: the device gives that in about
/// the same time.
const KEYS_CLOSE: usize = 16;
const CLOSE_BYTES: u64 = 16 << 10;
/// And asks for so much memory for each key: more than most values need.
const BYTES_AHEAD_TYPICAL: usize = 4 << 10;

/// A key and its value.
type Item = (Slice, Slice);

/// The keys and values of a range, from both ends, as they were when the iterator was made. Holds a snapshot and the
/// files it reads until dropped.
///
/// A key whose merge operator fails is an error in its place, and the scan goes on; after any other error it yields
/// nothing more until it is [refreshed](Iter::refresh). Once the database is closed that error is [`Error::Closed`]; what
/// was handed out before stays valid.
///
/// A key costs O(log sources), and as many versions of it as must be merged; versions that are not needed, and keys under
/// a range tombstone, cost a seek in each source if they are many. The first key costs a seek in each source:
/// O(tables of HL0 + levels), each O(log keys). Values that lie apart from their keys are fetched ahead, for half as
/// many keys more each time: one read for the first, few for many; at most 1.6 times as many values are read as are handed
/// out, or 16 if these lie side by side (decision record 024).
///
/// # Errors
/// Items are [`Error::MergeFailed`], [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`] or [`Error::Closed`].
pub struct Iter {
    /// The front and the back.
    ends: [End; 2],
    view: Arc<View>,
    /// Dropped after the view, so that files that only this iterator kept are seen to be free.
    held: Held,
    keyspace: Arc<KeyspaceState>,
    bounds: Bounds,
    versions: Versions,
    done: bool,
    /// Values are neither fetched nor merged; what is given for them is empty.
    keys_only: bool,
}

/// One of the two ends of an iterator.
#[derive(Default)]
struct End {
    /// Made when first needed.
    sources: Option<ScanSources>,
    /// The key that the sources stood on last, or where they were put at first, if that is known.
    key: Option<Vec<u8>>,
    /// They may stand on it still.
    may_stay: bool,
    /// The last full key that the caller was told of.
    told: Option<Vec<u8>>,
    /// Keys that the sources have passed and the caller was not told of, in this order.
    ahead: VecDeque<Prefetched>,
    /// The one behind them, which the next fetch begins with.
    next: Option<Prefetched>,
    /// So many keys the next fetch is for.
    window: usize,
    /// Memory for the values in `ahead`.
    room: Option<Room>,
    /// Memory of keys that were handed out, for those that come.
    spare_keys: Vec<Vec<u8>>,
}

/// A key that was run ahead to, and what was found of it.
struct Prefetched {
    key: Vec<u8>,
    found: Result<Versions>,
}

/// A row of records that lie side by side, in the order of keys or against it, in no more than [`CLOSE_BYTES`].
#[derive(Default)]
struct Close {
    file: Option<FileId>,
    place: Range<u64>,
}

impl Close {
    /// Adds the next record, if it belongs to the row; else it begins another.
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

/// From which end.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    Forward = 0,
    Backward = 1,
}

impl End {
    /// What the sources stood on and were run ahead to is void.
    fn reset(&mut self) {
        *self = End { told: self.told.take(), ..End::default() };
    }

    /// The caller hears of a key, so the iterator now stands on it: not of one that could not be read.
    fn hand_out(&mut self, key: &[u8], found: Result<Option<Slice>>) -> Result<Option<Item>> {
        if matches!(found, Ok(_) | Err(Error::MergeFailed { .. })) {
            copy_into(&mut self.told, key);
        }
        found.map(|value| value.map(|value| (user_key(key), value)))
    }
}

/// The keys of an [`Iter`], without their values, from both ends.
pub struct Keys(Iter);

impl Iter {
    pub(crate) fn over_range(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        range: Between<'_>,
        snapshot: Option<crate::base::Seqno>,
    ) -> Result<Iter> {
        Iter::new(db, keyspace, Bounds::of_range(keyspace.record.id, range), snapshot)
    }

    pub(crate) fn over_prefix(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        prefix: &[u8],
        snapshot: Option<crate::base::Seqno>,
    ) -> Result<Iter> {
        Iter::new(db, keyspace, Bounds::of_prefix(keyspace.record.id, prefix), snapshot)
    }

    fn new(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        bounds: Bounds,
        snapshot: Option<crate::base::Seqno>,
    ) -> Result<Iter> {
        let core = &db.core;
        keyspace.check(core.database)?;
        let (view, seqno) = match snapshot {
            Some(seqno) => {
                core.snapshots.hold_again(seqno);
                (core.published.view(), seqno)
            }
            None => core.snapshots.hold(&core.published),
        };
        let held = Held { db: db.clone(), seqno };
        core.check_open()?;
        let done = bounds.is_empty();
        Ok(Iter {
            held,
            keyspace: keyspace.clone(),
            view,
            bounds,
            ends: Default::default(),
            versions: Versions::default(),
            done,
            keys_only: false,
        })
    }

    /// The keys alone, from where the iterator stands. No value is fetched from a log or merged, so a key whose merge
    /// operator would fail is a key like others.
    pub fn keys(mut self) -> Keys {
        self.keys_only = true;
        for end in &mut self.ends {
            // No fetch begins with it.
            end.ahead.extend(end.next.take());
        }
        Keys(self)
    }

    /// Goes on with the newest state of the database, within the same bounds: after the key that came last from the front,
    /// and before the one that came last from the back. What was used up goes on if there is more by now; an iterator over
    /// a snapshot leaves the snapshot. Cheap: nothing is read before the next key is asked for. An iterator that an error
    /// has ended goes on, too.
    ///
    /// # Errors
    /// [`Error::Closed`], or [`Error::NotFound`] if the keyspace was dropped; the iterator is as it was.
    pub fn refresh(&mut self) -> Result<()> {
        let db = self.held.db.clone();
        self.keyspace.check(db.core.database)?;
        let (view, seqno) = db.core.snapshots.hold(&db.core.published);
        let held = Held { db, seqno };
        held.db.core.check_open()?;
        self.ends.iter_mut().for_each(End::reset);
        self.view = view;
        self.held = held;
        self.done = self.bounds.is_empty();
        Ok(())
    }

    /// The payload of the version that the sources stand on, where it is wanted.
    fn payload_of(&self, sources: &impl Cursor) -> Slice {
        if self.keys_only { Slice::default() } else { sources.value_slice() }
    }

    /// The value of a key; any value will do if only keys are wanted.
    fn resolve(&self, key: &[u8], versions: &Versions) -> Result<Option<Slice>> {
        match self.keys_only {
            true => Ok(Some(Slice::default())),
            false => versions.resolve(&self.held.db.core, &self.view, &self.keyspace, key, false),
        }
    }

    fn sources(&self) -> ScanSources {
        let mut sources = ScanSourcesBuilder::default();
        for table in std::iter::once(&self.view.active).chain(&self.view.sealed) {
            let cursors = table.cursors().into_iter().map(|cursor| Box::new(cursor) as _);
            sources.push(cursors, table.has_ranges().then(|| table.clone() as _));
        }
        for run in &self.view.runs {
            sources.push([Box::new(run.cursor()) as _], run.has_ranges().then(|| run.clone() as _));
        }
        for (cursor, ranges) in self.view.version.cursors(&self.bounds.lower, self.bounds.upper.as_deref(), true) {
            sources.push([cursor], ranges);
        }
        sources.finish()
    }

    /// The next key with a value, from one end.
    fn step_from(&mut self, way: Way) -> Result<Option<Item>> {
        let at = way as usize;
        if self.ends[at].ahead.is_empty() {
            if let Some(next) = self.ends[at].next.take() {
                self.run_ahead(way, next);
            } else {
                if !self.collect(way)? {
                    return Ok(None);
                }
                if self.keys_only || !self.versions.is_separated() {
                    let key = self.ends[at].key.take().unwrap_or_default();
                    let found = self.resolve(&key, &self.versions);
                    let item = self.ends[at].hand_out(&key, found);
                    self.ends[at].key = Some(key);
                    return item;
                }
                let first = self.take_collected(way);
                self.run_ahead(way, first);
            }
        }
        let end = &mut self.ends[at];
        let Some(next) = end.ahead.pop_front() else { return Ok(None) };
        if end.ahead.is_empty() {
            end.room = None;
        }
        if !self.is_left(way, &next.key) {
            return Ok(None);
        }
        let found = next.found.and_then(|versions| self.resolve(&next.key, &versions));
        let end = &mut self.ends[at];
        let item = end.hand_out(&next.key, found);
        end.spare_keys.push(next.key);
        item
    }

    /// The key that was collected, with its versions.
    fn take_collected(&mut self, way: Way) -> Prefetched {
        let end = &mut self.ends[way as usize];
        let mut key = end.spare_keys.pop().unwrap_or_default();
        key.clear();
        key.extend_from_slice(end.key.as_deref().unwrap_or_default());
        Prefetched { key, found: Ok(std::mem::take(&mut self.versions)) }
    }

    /// Goes on from a key that was collected to as many as the window and memory allow, and those whose values lie close behind, and
    /// fetches their values together.
    fn run_ahead(&mut self, way: Way, first: Prefetched) {
        let at = way as usize;
        let core = &self.held.db.core;
        let window = self.ends[at].window.max(1);
        let room = core.memory.values_ahead.take(window.max(KEYS_CLOSE) * BYTES_AHEAD_TYPICAL);
        let room_bytes = room.bytes();
        let mut close = Close::default();
        let (mut bytes, mut within) = (0, 0);
        let mut next = first;
        loop {
            let lies_close = next.found.as_ref().is_ok_and(|versions| close.takes(versions.address()));
            if within >= window && !(lies_close && within < KEYS_CLOSE) {
                self.ends[at].next = Some(next);
                break;
            }
            bytes += next.found.as_ref().map_or(0, Versions::bytes);
            let failed = next.found.is_err();
            self.ends[at].ahead.push_back(next);
            // What has no room is fetched by itself when its turn comes.
            if failed || bytes > room_bytes {
                break;
            }
            within += 1;
            next = match self.collect(way) {
                Ok(true) => self.take_collected(way),
                Ok(false) => break,
                Err(error) => Prefetched { key: self.ends[at].key.clone().unwrap_or_default(), found: Err(error) },
            };
        }
        let Iter { ends, held, view, .. } = self;
        let end = &mut ends[at];
        let further = if within > window { within } else { window + window.div_ceil(2) };
        (end.window, end.room) = (further.min(KEYS_AHEAD_MAX), Some(room));
        let apart = end.ahead.iter_mut().take(within).flat_map(|Prefetched { key, found }| {
            let versions = found.iter_mut().flat_map(Versions::apart);
            versions.map(|version| (&key[..], version))
        });
        held.db.core.fetch_together(view, apart, false);
    }

    /// Moves the sources on to the next key with a value: it is in [`End::key`] then, and its versions in `versions`. False at
    /// the end.
    fn collect(&mut self, way: Way) -> Result<bool> {
        let mut sources = match self.ends[way as usize].sources.take() {
            Some(sources) => sources,
            None => self.position(way)?,
        };
        let collected = self.collect_from(way, &mut sources);
        if collected.is_ok() {
            self.ends[way as usize].sources = Some(sources);
        }
        collected
    }

    /// ScanSources that stand behind the last key that the caller was told of.
    fn position(&mut self, way: Way) -> Result<ScanSources> {
        let mut sources = self.sources();
        let end = &mut self.ends[way as usize];
        match (way, &end.told) {
            // Behind all versions of it.
            (Way::Forward, Some(told)) => sources.cursors.seek(told, Stamp::OLDEST)?,
            (Way::Forward, None) => sources.cursors.seek(&self.bounds.lower, Stamp::NEWEST)?,
            (Way::Backward, told) => match told.as_ref().or(self.bounds.upper.as_ref()) {
                Some(upper) => sources.cursors.seek_before(upper, Stamp::NEWEST)?,
                None => sources.cursors.seek_last()?,
            },
        }
        end.may_stay = way == Way::Forward && end.told.is_none();
        let bound = match way {
            Way::Forward => Some(&self.bounds.lower),
            Way::Backward => self.bounds.upper.as_ref(),
        };
        end.key = end.told.as_ref().or(bound).cloned();
        Ok(sources)
    }

    /// A key lies within the bounds, and the other end has not come to it.
    fn is_left(&self, way: Way, key: &[u8]) -> bool {
        let [front, back] = &self.ends;
        match way {
            Way::Forward => !self.bounds.above(key) && back.told.as_ref().is_none_or(|back| key < &back[..]),
            Way::Backward => key >= &self.bounds.lower[..] && front.told.as_ref().is_none_or(|front| key > &front[..]),
        }
    }

    fn collect_from(&mut self, way: Way, sources: &mut ScanSources) -> Result<bool> {
        while sources.cursors.valid() {
            let next = sources.cursors.key();
            if !self.is_left(way, next) {
                return Ok(false);
            }
            let end = &mut self.ends[way as usize];
            let order = end.key.as_ref().map(|last| match way {
                Way::Forward => next.cmp(last),
                Way::Backward => last[..].cmp(next),
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
            let collected = match way {
                Way::Forward => self.collect_forward(sources, &key),
                Way::Backward => self.collect_backward(sources, &key),
            };
            self.ends[way as usize].key = Some(key);
            collected?;
            if self.versions.has_value() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Takes the versions of `key` that the snapshot sees, and leaves the cursor on the next key. Versions that it does not
    /// see, or does not need, cost a seek if they are many.
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

    /// The same from the back, where the versions come oldest first. If they are many, the newest that the snapshot sees
    /// are looked up from the front, as for a single key.
    fn collect_backward(&mut self, sources: &mut ScanSources, key: &[u8]) -> Result<()> {
        self.versions.clear();
        self.versions.cover(sources.cover());
        let sources = &mut sources.cursors;
        let mut steps = 0;
        while sources.valid() && sources.key() == key {
            if steps == STEPS_BEFORE_SEEK {
                self.versions.clear();
                let mut tables = OneByOne::default();
                find_versions(&self.view, key, self.held.seqno, &mut self.versions, &mut tables)?;
                return sources.skip(key, Stamp::NEWEST);
            }
            if sources.stamp() <= Stamp::at(self.held.seqno) {
                self.versions.push_newer(sources.stamp(), self.payload_of(sources));
            }
            steps += 1;
            sources.prev()?;
        }
        self.versions.newest_first();
        Ok(())
    }

    #[cold]
    fn out_of_order(&self, key: &[u8]) -> Error {
        let key = user_key(key).escape_ascii().to_string();
        let message = format!("some table has key {key:?} out of order; a check of the closed database says which");
        Error::corruption(&self.held.db.core.dirs.slow, 0, message)
    }

    fn step(&mut self, way: Way) -> Option<Result<Item>> {
        if self.done {
            return None;
        }
        // The files of a closed database may be someone else's, and tables are opened when they are first read.
        let item = match self.held.db.core.check_open() {
            Ok(()) => {
                let item = self.step_from(way);
                self.held.db.core.unless_closed(item).transpose()
            }
            Err(closed) => Some(Err(closed)),
        };
        // A key whose operator fails is reported and passed by; the rest of the range is not its fault.
        self.done = !matches!(item, Some(Ok(_) | Err(Error::MergeFailed { .. })));
        if self.done {
            self.ends.iter_mut().for_each(End::reset);
        }
        item
    }
}

/// The order of the last key and the next is as it must be in the direction of a scan. ScanSources that lie damaged on storage
/// might go back, and do so for ever.
fn goes_on(order: Ordering, may_stay: bool) -> bool {
    order.is_gt() || order.is_eq() && may_stay
}

/// Puts a copy of `key` there, in the memory of what was there before.
fn copy_into(place: &mut Option<Vec<u8>>, key: &[u8]) {
    let place = place.get_or_insert_default();
    place.clear();
    place.extend_from_slice(key);
}

fn user_key(full: &[u8]) -> Slice {
    Slice::copy_from(split_key(full).map_or(full, |(_, key)| key))
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Way::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Way::Backward)
    }
}

impl std::iter::FusedIterator for Iter {}

impl Keys {
    /// As [`Iter::refresh`].
    pub fn refresh(&mut self) -> Result<()> {
        self.0.refresh()
    }
}

impl Iterator for Keys {
    type Item = Result<Slice>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|item| item.map(|(key, _)| key))
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.next_back().map(|item| item.map(|(key, _)| key))
    }
}

impl std::iter::FusedIterator for Keys {}
