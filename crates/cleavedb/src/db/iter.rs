//! Iteration: a merge of all sources of one view, forward and reverse. The two ends have a merge each, made when first
//! needed, and stop where they meet.

use std::cmp::Ordering;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::DbInner;
use super::covers::{Sources, SourcesBuilder};
use super::keyspace::KeyspaceState;
use super::read::{OneByOne, Versions, find_versions};
use super::snapshot::Held;
use super::view::View;
use crate::base::key::prefix_end;
use crate::base::{Cursor, Error, KeyspaceId, Result, Slice, Stamp, full_key, split_key};

/// Versions of one key that are stepped over one by one before the cursor seeks past the rest.
const STEPS_BEFORE_SEEK: usize = 8;

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
/// O(tables of HL0 + levels), each O(log keys).
///
/// # Errors
/// Items are [`Error::MergeFailed`], [`Error::Corruption`], [`Error::Unsupported`], [`Error::Io`] or [`Error::Closed`].
pub struct Iter {
    front: Option<Sources>,
    back: Option<Sources>,
    view: Arc<View>,
    /// Dropped after the view, so that files that only this iterator kept are seen to be free.
    held: Held,
    keyspace: Arc<KeyspaceState>,
    bounds: Bounds,
    /// The last full key from the front, and from the back.
    front_key: Option<Vec<u8>>,
    back_key: Option<Vec<u8>>,
    /// The key that is being looked at.
    scratch: Vec<u8>,
    versions: Versions,
    done: bool,
    /// Values are neither fetched nor merged; what is given for them is empty.
    keys_only: bool,
}

/// The keys of an [`Iter`], without their values, from both ends.
pub struct Keys(Iter);

/// Full keys: from `lower`, up to but not including `upper`.
pub(super) struct Bounds {
    pub lower: Vec<u8>,
    /// `None`: to the end of everything.
    pub upper: Option<Vec<u8>>,
}

impl Bounds {
    /// The part of `keyspace` within `range`.
    pub fn of_range<R: RangeBounds<Vec<u8>>>(keyspace: KeyspaceId, range: &R) -> Bounds {
        let after = |key: &Vec<u8>| {
            let mut full = full_key(keyspace, key);
            full.push(0);
            full
        };
        let lower = match range.start_bound() {
            Bound::Included(key) => full_key(keyspace, key),
            Bound::Excluded(key) => after(key),
            Bound::Unbounded => keyspace.prefix().to_vec(),
        };
        let upper = match range.end_bound() {
            Bound::Included(key) => Some(after(key)),
            Bound::Excluded(key) => Some(full_key(keyspace, key)),
            Bound::Unbounded => prefix_end(&keyspace.prefix()),
        };
        Bounds { lower, upper }
    }

    fn of_prefix(keyspace: KeyspaceId, prefix: &[u8]) -> Bounds {
        let lower = full_key(keyspace, prefix);
        Bounds { upper: prefix_end(&lower), lower }
    }

    pub fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }

    fn above(&self, key: &[u8]) -> bool {
        self.upper.as_ref().is_some_and(|upper| key >= &upper[..])
    }
}

impl Iter {
    pub(super) fn over_range<R: RangeBounds<Vec<u8>>>(
        db: &Arc<DbInner>,
        keyspace: &Arc<KeyspaceState>,
        range: R,
        snapshot: Option<crate::base::Seqno>,
    ) -> Result<Iter> {
        Iter::new(db, keyspace, Bounds::of_range(keyspace.record.id, &range), snapshot)
    }

    pub(super) fn over_prefix(
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
            front: None,
            back: None,
            front_key: None,
            back_key: None,
            scratch: Vec::new(),
            versions: Versions::default(),
            done,
            keys_only: false,
        })
    }

    /// The keys alone, from where the iterator stands. No value is fetched from a log or merged, so a key whose merge
    /// operator would fail is a key like others.
    pub fn keys(mut self) -> Keys {
        self.keys_only = true;
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
        (self.front, self.back) = (None, None);
        self.view = view;
        self.held = held;
        self.done = self.bounds.is_empty();
        Ok(())
    }

    /// The payload of the version that the sources stand on, where it is wanted.
    fn payload_of(&self, sources: &impl Cursor) -> Slice {
        if self.keys_only { Slice::default() } else { sources.value_slice() }
    }

    /// The value of the key whose versions were collected; any value will do if only keys are wanted.
    fn resolve(&self, key: &[u8]) -> Result<Option<Slice>> {
        match self.keys_only {
            true => Ok(self.versions.has_value().then(Slice::default)),
            false => self.versions.resolve(&self.held.db.core, &self.view, &self.keyspace, key),
        }
    }

    fn sources(&self) -> Sources {
        let mut sources = SourcesBuilder::default();
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

    /// The next key with a value, from the front.
    fn step_front(&mut self) -> Result<Option<Item>> {
        let mut sources = match self.front.take() {
            Some(sources) => sources,
            None => {
                let mut sources = self.sources();
                match &self.front_key {
                    // Behind all versions of the key that came last.
                    Some(last) => sources.cursors.seek(last, Stamp::OLDEST)?,
                    None => sources.cursors.seek(&self.bounds.lower, Stamp::NEWEST)?,
                }
                sources
            }
        };
        let mut key = std::mem::take(&mut self.scratch);
        let mut found = Ok(None);
        // `key` is the one that the sources stood on before, and whether they may do so still.
        let (mut seen, mut may_stay) = (false, self.front_key.is_none());
        while matches!(found, Ok(None)) && sources.cursors.valid() {
            let next = sources.cursors.key();
            if self.bounds.above(next) || self.back_key.as_ref().is_some_and(|back| next >= &back[..]) {
                break;
            }
            let last = if seen { &key } else { self.front_key.as_ref().unwrap_or(&self.bounds.lower) };
            if !goes_on(next.cmp(last), may_stay) {
                return Err(self.out_of_order(next));
            }
            seen = true;
            key.clear();
            key.extend_from_slice(next);
            may_stay = sources.pass_over_covered(self.held.seqno)?;
            if may_stay {
                continue;
            }
            self.collect_forward(&mut sources, &key)?;
            found = self.resolve(&key);
        }
        let item = found.map(|found| found.map(|value| (user_key(&key), value)));
        self.front = Some(sources);
        self.scratch = if was_told(&item) { self.front_key.replace(key).unwrap_or_default() } else { key };
        item
    }

    /// Takes the versions of `key` that the snapshot sees, and leaves the cursor on the next key. Versions that it does not
    /// see, or does not need, cost a seek if they are many.
    fn collect_forward(&mut self, sources: &mut Sources, key: &[u8]) -> Result<()> {
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
    fn collect_backward(&mut self, sources: &mut Sources, key: &[u8]) -> Result<()> {
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
        Error::corruption(&self.held.db.core.slow, 0, message)
    }

    /// The next key with a value, from the back.
    fn step_back(&mut self) -> Result<Option<Item>> {
        let mut sources = match self.back.take() {
            Some(sources) => sources,
            None => {
                let mut sources = self.sources();
                match self.back_key.as_ref().or(self.bounds.upper.as_ref()) {
                    Some(upper) => sources.cursors.seek_before(upper, Stamp::NEWEST)?,
                    None => sources.cursors.seek_last()?,
                }
                sources
            }
        };
        let mut key = std::mem::take(&mut self.scratch);
        let mut found = Ok(None);
        let (mut seen, mut may_stay) = (false, false);
        while matches!(found, Ok(None)) && sources.cursors.valid() {
            let next = sources.cursors.key();
            if next < &self.bounds.lower[..] || self.front_key.as_ref().is_some_and(|front| next <= &front[..]) {
                break;
            }
            let last = if seen { Some(&key) } else { self.back_key.as_ref().or(self.bounds.upper.as_ref()) };
            if last.is_some_and(|last| !goes_on(last[..].cmp(next), may_stay)) {
                return Err(self.out_of_order(next));
            }
            seen = true;
            key.clear();
            key.extend_from_slice(next);
            may_stay = sources.pass_over_covered(self.held.seqno)?;
            if may_stay {
                continue;
            }
            self.collect_backward(&mut sources, &key)?;
            found = self.resolve(&key);
        }
        let item = found.map(|found| found.map(|value| (user_key(&key), value)));
        self.back = Some(sources);
        self.scratch = if was_told(&item) { self.back_key.replace(key).unwrap_or_default() } else { key };
        item
    }

    fn step(&mut self, step: fn(&mut Iter) -> Result<Option<Item>>) -> Option<Result<Item>> {
        if self.done {
            return None;
        }
        // The files of a closed database may be someone else's, and tables are opened when they are first read.
        let item = match self.held.db.core.check_open() {
            Ok(()) => {
                let item = step(self);
                self.held.db.core.unless_closed(item).transpose()
            }
            Err(closed) => Some(Err(closed)),
        };
        // A key whose operator fails is reported and passed by; the rest of the range is not its fault.
        self.done = !matches!(item, Some(Ok(_) | Err(Error::MergeFailed { .. })));
        if self.done {
            (self.front, self.back) = (None, None);
        }
        item
    }
}

/// The order of the last key and the next is as it must be in the direction of a scan. Sources that lie damaged on storage
/// might go back, and do so for ever.
fn goes_on(order: Ordering, may_stay: bool) -> bool {
    order.is_gt() || order.is_eq() && may_stay
}

/// The caller heard of the key, so the iterator now stands on it: not of one that is passed by in vain, or could not be
/// read.
fn was_told(item: &Result<Option<Item>>) -> bool {
    matches!(item, Ok(Some(_)) | Err(Error::MergeFailed { .. }))
}

fn user_key(full: &[u8]) -> Slice {
    Slice::copy_from(split_key(full).map_or(full, |(_, key)| key))
}

impl Iterator for Iter {
    type Item = Result<(Slice, Slice)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step(Iter::step_front)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.step(Iter::step_back)
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
