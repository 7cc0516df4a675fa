//! Iteration: a merge of all sources of one view, forward and reverse. The two ends have a merge each, made when first
//! needed, and stop where they meet.

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use super::DbInner;
use super::covers::{Sources, SourcesBuilder};
use super::keyspace::KeyspaceState;
use super::read::Versions;
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
/// nothing more.
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
    versions: Versions,
    done: bool,
}

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

    fn is_empty(&self) -> bool {
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
        // Asked last: a close that comes later leaves this view alone.
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
            versions: Versions::default(),
            done,
        })
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
                sources.cursors.seek(&self.bounds.lower, Stamp::NEWEST)?;
                sources
            }
        };
        let mut key = self.front_key.take().unwrap_or_default();
        let mut found = Ok(None);
        while matches!(found, Ok(None)) && sources.cursors.valid() {
            key.clear();
            key.extend_from_slice(sources.cursors.key());
            if self.bounds.above(&key) || self.back_key.as_ref().is_some_and(|back| key >= *back) {
                break;
            }
            if sources.pass_over_covered(self.held.seqno)? {
                continue;
            }
            self.collect_forward(&mut sources, &key)?;
            found = self.versions.resolve(&self.held.db.core, &self.view, &self.keyspace, &key);
        }
        let item = found.map(|found| found.map(|value| (user_key(&key), value)));
        self.front = Some(sources);
        self.front_key = Some(key);
        item
    }

    /// Takes the versions of `key` that the snapshot sees, and leaves the cursor on the next key.
    fn collect_forward(&mut self, sources: &mut Sources, key: &[u8]) -> Result<()> {
        self.versions.clear();
        self.versions.cover(sources.cover());
        let sources = &mut sources.cursors;
        let mut steps = 0;
        let mut wanted = true;
        while sources.valid() && sources.key() == key {
            if wanted && sources.stamp() <= Stamp::at(self.held.seqno) {
                wanted = self.versions.push_older(sources.stamp(), sources.value_slice());
            }
            steps += 1;
            if !wanted && steps > STEPS_BEFORE_SEEK {
                sources.seek(key, Stamp::OLDEST)?;
                break;
            }
            sources.next()?;
        }
        Ok(())
    }

    /// The next key with a value, from the back.
    fn step_back(&mut self) -> Result<Option<Item>> {
        let mut sources = match self.back.take() {
            Some(sources) => sources,
            None => {
                let mut sources = self.sources();
                match &self.bounds.upper {
                    Some(upper) => sources.cursors.seek_before(upper, Stamp::NEWEST)?,
                    None => sources.cursors.seek_last()?,
                }
                sources
            }
        };
        let mut key = self.back_key.take().unwrap_or_default();
        let mut found = Ok(None);
        while matches!(found, Ok(None)) && sources.cursors.valid() {
            key.clear();
            key.extend_from_slice(sources.cursors.key());
            if key < self.bounds.lower || self.front_key.as_ref().is_some_and(|front| key <= *front) {
                break;
            }
            if sources.pass_over_covered(self.held.seqno)? {
                continue;
            }
            self.versions.clear();
            self.versions.cover(sources.cover());
            let cursors = &mut sources.cursors;
            while cursors.valid() && cursors.key() == key {
                if cursors.stamp() <= Stamp::at(self.held.seqno) {
                    self.versions.push_newer(cursors.stamp(), cursors.value_slice());
                }
                cursors.prev()?;
            }
            self.versions.newest_first();
            found = self.versions.resolve(&self.held.db.core, &self.view, &self.keyspace, &key);
        }
        let item = found.map(|found| found.map(|value| (user_key(&key), value)));
        self.back = Some(sources);
        self.back_key = Some(key);
        item
    }

    fn step(&mut self, step: fn(&mut Iter) -> Result<Option<Item>>) -> Option<Result<Item>> {
        if self.done {
            return None;
        }
        let item = step(self).transpose();
        // A key whose operator fails is reported and passed by; the rest of the range is not its fault.
        self.done = !matches!(item, Some(Ok(_) | Err(Error::MergeFailed { .. })));
        if self.done {
            (self.front, self.back) = (None, None);
        }
        item
    }
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
