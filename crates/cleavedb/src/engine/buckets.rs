//! The buckets of a view: the directory of the delta store with the segments that its extents lie in. Readers reach it as the
//! last layer; jobs ask it whether an operand may be left that a tombstone must cover.
//!
//! Operands in buckets are of any age, beside the versions of all other layers. A reader counts an operand only if it is
//! newer than the newest base, and than every covering range tombstone, that it has found elsewhere (rule 7). So it asks the
//! buckets last.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};

use crate::base::key_versions::{KeyVersion, KeyVersions};
use crate::base::ranges::KeyRange;
use crate::base::{Cursor, FileId, Merging, Result, Seqno, Slice, Stamp};
use crate::cache::operand_cache::{OperandCache, OperandList};
use crate::deltas::crowds::Crowds;
use crate::deltas::directory::{Bucket, Directory};
use crate::deltas::policy::CROWD_MAX;
use crate::format::buckets::Extent;
use crate::levels::point_reads::{MissingBlock, OneKey, OneKeyCached, TableLookUp, Unanswered, newest_in};
use crate::levels::table::Table;
use crate::levels::table_cursor::TableCursor;
use crate::levels::version::Version;

/// A tombstone of a range that overlaps more extents than this is kept without a look into them.
const EXTENTS_LOOKED_INTO: usize = 32;

/// A key is folded in its bucket once its conditional puts were refused this often.
const REFUSALS_MAX: u32 = 2;
/// Refusals of at most this many keys are counted.
const REFUSALS_NOTED: usize = 256;

/// All buckets of a view.
pub(crate) struct Buckets {
    pub directory: Arc<Directory>,
    version: Arc<Version>,
}

impl Buckets {
    pub fn new(directory: Arc<Directory>, version: Arc<Version>) -> Buckets {
        Buckets { directory, version }
    }

    /// The segments, whose files the view pins.
    pub fn segments(&self) -> &[Arc<Table>] {
        self.version.segments()
    }

    fn segment(&self, bucket: &Bucket, extent: usize) -> &Arc<Table> {
        let id = bucket.extents[extent].segment;
        self.version.segment(id).expect("the segment of an extent leaves the view with its last extent")
    }

    /// Adds the operands of a key at or below `snapshot` to what all other layers hold of it.
    pub fn look_up<T: TableLookUp>(
        &self,
        key: &[u8],
        snapshot: Seqno,
        tables: &mut T,
        versions: &mut KeyVersions,
    ) -> Result<(), T::Error> {
        let base = versions.base_seqno();
        let Some((bucket, newest)) = self.newer_than(key, base) else { return Ok(()) };
        let segments = bucket.extents.iter().map(|extent| extent.segment);
        if let Some(found) = tables.operands().and_then(|operands| operands.find(key, segments, snapshot, base)) {
            versions.join(found);
            return Ok(());
        }
        let found =
            self.collect(bucket, snapshot, base, |segment, found| tables.look_up(segment, key, snapshot, found))?;
        InSegments { found, newest }.join_to(versions, snapshot, tables);
        Ok(())
    }

    /// As [`look_up`](Buckets::look_up), from cached blocks of segments alone. Adds the blocks that it would read next from each
    /// extent; with any of them the result is not complete. `None`: no operand is newer than `base`.
    pub fn look_up_cached(
        &self,
        key: &[u8],
        snapshot: Seqno,
        base: Seqno,
        missing: &mut Vec<MissingBlock>,
    ) -> Result<Option<InSegments<'_>>> {
        let Some((bucket, newest)) = self.newer_than(key, base) else { return Ok(None) };
        let mut tables = OneKeyCached(OneKey::default());
        let found = self.collect(bucket, snapshot, base, |segment, found| {
            match tables.look_up(segment, key, snapshot, found) {
                Err(Unanswered::Failed(error)) => Err(error),
                Err(Unanswered::NotCached(block)) => {
                    missing.push(block);
                    Ok(())
                }
                Ok(()) => Ok(()),
            }
        });
        found.map(|found| Some(InSegments { found, newest }))
    }

    /// The bucket of a key with its newest extent, unless all of it is at or below `base`.
    fn newer_than(&self, key: &[u8], base: Seqno) -> Option<(&Bucket, &Extent)> {
        self.directory.seqnos().filter(|seqnos| seqnos.1 > base)?;
        let bucket = self.directory.find(key)?;
        bucket.extents.first().filter(|newest| newest.seqno_max > base).map(|newest| (&**bucket, newest))
    }

    /// What `look_up` finds in the extents of a bucket above `base`, newest first.
    fn collect<E>(
        &self,
        bucket: &Bucket,
        snapshot: Seqno,
        base: Seqno,
        mut look_up: impl FnMut(&Arc<Table>, &mut KeyVersions) -> Result<(), E>,
    ) -> Result<KeyVersions, E> {
        let mut found = KeyVersions::default();
        found.cover(base);
        for (index, extent) in bucket.extents.iter().enumerate() {
            if found.base().is_some() || extent.seqno_max <= base {
                break;
            }
            if extent.seqno_min <= snapshot {
                look_up(self.segment(bucket, index), &mut found)?;
            }
        }
        Ok(found)
    }

    /// A read of the key at `snapshot` may have to read segments.
    pub fn wants_segments(&self, key: &[u8], snapshot: Seqno, operands: &OperandCache) -> bool {
        let Some(bucket) = self.directory.find(key).filter(|bucket| !bucket.extents.is_empty()) else { return false };
        !operands.may_serve(key, bucket.extents.iter().map(|extent| extent.segment), snapshot)
    }

    /// The newest segment of the bucket of a key.
    pub fn newest_segment(directory: &Directory, key: &[u8]) -> Option<FileId> {
        directory.find(key)?.extents.first().map(|extent| extent.segment)
    }

    /// Some bucket may hold a version of the key that is not newer than `newest`. Reads what the filters do not exclude.
    pub fn may_hold(&self, key: &[u8], newest: Seqno) -> bool {
        let Some(bucket) = self.directory.find(key) else { return false };
        let holds = |index| !matches!(newest_in(self.segment(bucket, index), key, newest), Ok(None));
        extents_up_to(bucket, newest).any(holds)
    }

    /// Some bucket may hold a version of a key from `start` up to, not including, `end`, that is not newer than `newest`. Reads a
    /// few blocks.
    pub fn may_hold_range(&self, start: &[u8], end: &[u8], newest: Seqno) -> bool {
        let overlapping = &self.directory.buckets()[self.directory.overlapping(start, Some(end))];
        let extents: usize = overlapping.iter().map(|bucket| extents_up_to(bucket, newest).count()).sum();
        let holds = |bucket: &Arc<Bucket>, index| {
            let mut cursor = self.segment(bucket, index).cursor(true);
            let sought = cursor.seek(start.max(&bucket.lower), Stamp::NEWEST);
            sought.is_err() || cursor.valid() && cursor.key() < end && bucket.ends_after(cursor.key())
        };
        extents > EXTENTS_LOOKED_INTO
            || overlapping.iter().any(|bucket| extents_up_to(bucket, newest).any(|index| holds(bucket, index)))
    }

    /// Versions and bytes of the buckets that overlap a range.
    pub fn size_within(&self, range: &KeyRange) -> (u64, u64) {
        let from = range.from.as_deref().unwrap_or_default();
        let overlapping = &self.directory.buckets()[self.directory.overlapping(from, range.to.as_deref())];
        let sizes = overlapping.iter().map(|bucket| (bucket.entries(), bucket.bytes()));
        sizes.fold((0, 0), |(entries, bytes), (more, more_bytes)| (entries + more, bytes + more_bytes))
    }
}

/// What the segments of a bucket hold of a key.
pub(crate) struct InSegments<'a> {
    found: KeyVersions,
    newest: &'a Extent,
}

impl InSegments<'_> {
    /// Adds it to what all other layers hold of the key, and notes the list for the operand cache if that is right for others, too.
    pub fn join_to<T: TableLookUp>(self, versions: &mut KeyVersions, snapshot: Seqno, tables: &mut T) {
        let InSegments { found, newest } = self;
        if newest.seqno_max <= snapshot && tables.operands().is_some() {
            let all: Vec<KeyVersion> = found.deltas().iter().chain(found.base()).cloned().collect();
            if tables.operands().is_some_and(|operands| operands.admits(&all)) {
                tables.note_operands(OperandList::new(newest.segment, found.base_seqno(), &all));
            }
        }
        versions.join(found);
    }
}

/// The extents of a bucket, by their places in it, that have a version not newer than `newest`.
fn extents_up_to(bucket: &Bucket, newest: Seqno) -> impl Iterator<Item = usize> {
    (0..bucket.extents.len()).filter(move |index| bucket.extents[*index].seqno_min <= newest)
}

/// A bucket with this number of operands of one key is rewritten.
#[inline]
pub(crate) fn is_crowd(operands: usize) -> bool {
    operands > CROWD_MAX
}

/// What is known of the upkeep of buckets, so that it is not found out again at every look for a job.
#[derive(Default)]
pub(crate) struct UpkeepMemory {
    /// By lower bound, what was found when a bucket that is to be emptied was last folded. As long as it is the same, nothing
    /// would come of doing it again.
    pub attempts: BTreeMap<Vec<u8>, FoldAttempt>,
    /// By lower bound, the newest tombstones that a bucket was last rewritten under, and the oldest snapshot if it was held and
    /// covered operands are left that only snapshots keep. Under the same tombstones nothing would come of doing it again.
    pub tombstones: BTreeMap<Vec<u8>, UnderTombstones>,
    /// The lower bound of the bucket at which the upkeep goes on that is done in turn.
    pub next: Vec<u8>,
    /// How often the folds of a key were refused since it was last folded. Of at most [`REFUSALS_NOTED`] keys.
    refusals: BTreeMap<Vec<u8>, u32>,
    /// Callers that wait for rewrites. While the front has room, no flush begins, so that flushes which are always due do not
    /// keep them waiting.
    pub callers: usize,
    /// Buckets that got many operands of one key.
    pub crowds: Crowds,
    /// Lower bounds of buckets of which a read has said so. Flushes of earlier opens are not counted, so a read may find what they
    /// left; once for each bucket, or one that a rewrite does not improve would be rewritten without an end.
    pub crowds_read: BTreeSet<Vec<u8>>,
    /// Nothing was due in this directory in these circumstances; the second is about idle time.
    pub nothing_due: [Option<(Weak<Directory>, Circumstances)>; 2],
}

/// The segments of a bucket, and the oldest snapshot if one was held.
pub(crate) type FoldAttempt = (Vec<FileId>, Option<Seqno>);

/// The newest tombstones, and the oldest snapshot if it kept covered operands.
pub(crate) type UnderTombstones = (Seqno, Option<Seqno>);

/// What the upkeep of buckets depends on besides the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Circumstances {
    /// The oldest snapshot, if one was held when a bucket was rewritten and keeps some of it.
    pub oldest: Seqno,
    /// The newest tombstones in tables if buckets are rewritten for them: in idle time.
    pub tombstones: Seqno,
    /// How often keyspaces were dropped, or their operands placed elsewhere.
    pub keyspace_changes: u64,
    pub writers_wait: bool,
    /// Number of files that cannot be read.
    pub quarantined: usize,
}

impl UpkeepMemory {
    /// A snapshot that was held keeps some of a bucket.
    pub fn waits_for_snapshot(&self) -> bool {
        let folded = self.attempts.values().any(|(_, held)| held.is_some());
        folded || self.tombstones.values().any(|(_, held)| held.is_some())
    }

    /// Versions of a bucket may be covered by tombstones as new as `newest`, while `oldest` is the oldest snapshot.
    pub fn is_under_new_tombstones(&self, bucket: &Bucket, newest: Seqno, oldest: Seqno) -> bool {
        let is_done = |&(then, held): &UnderTombstones| then >= newest && held.is_none_or(|held| held == oldest);
        bucket.extents.iter().any(|extent| extent.seqno_min < newest)
            && !self.tombstones.get(&bucket.lower).is_some_and(is_done)
    }

    /// The folds of these keys were refused, because they have changed.
    pub fn note_refused(&mut self, keys: &[&[u8]]) {
        for key in keys {
            if self.refusals.len() >= REFUSALS_NOTED && !self.refusals.contains_key(*key) {
                // Keys that were refused once are less likely to be refused again than those that just were.
                self.refusals.retain(|_, count| *count >= REFUSALS_MAX);
            }
            let has_room = self.refusals.len() < REFUSALS_NOTED;
            match self.refusals.get_mut(*key) {
                Some(count) => *count += 1,
                None if has_room => drop(self.refusals.insert(key.to_vec(), 1)),
                None => {}
            }
        }
    }

    /// A key was folded.
    pub fn note_folded(&mut self, key: &[u8]) {
        self.refusals.remove(key);
    }

    /// The keys whose folds were refused so often that they are folded in their bucket.
    pub fn refused(&self) -> BTreeSet<Vec<u8>> {
        let often = self.refusals.iter().filter(|(_, count)| **count >= REFUSALS_MAX);
        often.map(|(key, _)| key.clone()).collect()
    }

    /// Notes the crowds of a flush, whose segment is published.
    pub fn note_crowds(&mut self, counted: Vec<(Vec<u8>, usize)>) {
        if !counted.is_empty() {
            self.crowds.add(counted);
            self.nothing_due = [None, None];
        }
    }

    /// A read met this many operands of one key of a bucket. True if that is news.
    pub fn note_crowd_read(&mut self, lower: &[u8], operands: usize) -> bool {
        let is_news = self.crowds_read.insert(lower.to_vec());
        if is_news {
            self.note_crowds(vec![(lower.to_vec(), operands)]);
        }
        is_news
    }

    pub fn is_nothing_due(&self, directory: &Arc<Directory>, now: Circumstances, is_idle: bool) -> bool {
        let known = self.nothing_due[usize::from(is_idle)].as_ref();
        known.is_some_and(|(of, then)| *then == now && of.as_ptr() == Arc::as_ptr(directory))
    }
}

/// A cursor over the live extents of all buckets, which opens one bucket at a time.
pub(crate) struct BucketCursor {
    buckets: Arc<Buckets>,
    fill_cache: bool,
    /// The number of the last bucket, beyond which the cursor does not go.
    last: usize,
    /// The open bucket, and a merge of its extents.
    at: usize,
    open: Option<Merging<TableCursor>>,
}

impl BucketCursor {
    pub fn new(buckets: Arc<Buckets>, fill_cache: bool) -> BucketCursor {
        BucketCursor { buckets, fill_cache, last: usize::MAX, at: 0, open: None }
    }

    /// Ends with a bucket, so that a job opens no others.
    pub fn until(mut self, last: &Bucket) -> BucketCursor {
        let upto = self.buckets.directory.buckets().partition_point(|bucket| bucket.lower <= last.lower);
        self.last = upto.saturating_sub(1);
        self
    }

    /// Takes all versions of the current key, newest first, and moves to the next key.
    pub fn take_key(&mut self) -> Result<(Vec<u8>, Vec<KeyVersion>)> {
        let key = self.key().to_vec();
        let mut versions = Vec::new();
        while self.valid() && self.key() == key {
            versions.push((self.stamp(), self.value_slice()));
            self.next()?;
        }
        Ok((key, versions))
    }

    fn bucket(&self) -> &Bucket {
        &self.buckets.directory.buckets()[self.at]
    }

    /// Opens the bucket `at`.
    fn open(&mut self, at: usize) -> &mut Merging<TableCursor> {
        if self.at != at || self.open.is_none() {
            self.at = at;
            let bucket = &self.buckets.directory.buckets()[at];
            let cursor = |index| self.buckets.segment(bucket, index).cursor(self.fill_cache);
            self.open = Some(Merging::new((0..bucket.extents.len()).map(cursor).collect()));
        }
        self.open.as_mut().expect("the bucket was opened just now")
    }

    fn current(&self) -> &Merging<TableCursor> {
        self.open.as_ref().expect("only a valid cursor is read")
    }

    /// Segments also hold the keys of other buckets.
    fn is_within(&self) -> bool {
        let bucket = self.bucket();
        self.open
            .as_ref()
            .is_some_and(|open| open.valid() && open.key() >= &bucket.lower[..] && bucket.ends_after(open.key()))
    }

    /// Goes on to the first version of the buckets after this one, if this one is passed.
    fn settle_forward(&mut self) -> Result<()> {
        while !self.is_within() {
            let next = self.at + 1;
            let Some(bucket) = self.buckets.directory.buckets().get(next).filter(|_| next <= self.last).cloned() else {
                self.open = None;
                return Ok(());
            };
            self.open(next).seek(&bucket.lower, Stamp::NEWEST)?;
        }
        Ok(())
    }

    /// Goes on to the last version of the buckets before this one, if this one is passed.
    fn settle_backward(&mut self) -> Result<()> {
        while !self.is_within() {
            let Some(before) = self.at.checked_sub(1) else {
                self.open = None;
                return Ok(());
            };
            self.last_of(before)?;
        }
        Ok(())
    }

    fn last_of(&mut self, at: usize) -> Result<()> {
        let bucket = self.buckets.directory.buckets()[at].clone();
        let open = self.open(at);
        match &bucket.upper {
            Some(upper) => open.seek_before(upper, Stamp::NEWEST),
            None => open.seek_last(),
        }
    }

    /// Positions the cursor with `position`; after an error it is not positioned.
    fn moved(&mut self, position: impl FnOnce(&mut BucketCursor) -> Result<()>) -> Result<()> {
        let moved = position(self);
        if moved.is_err() {
            self.open = None;
        }
        moved
    }
}

impl Cursor for BucketCursor {
    fn valid(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.valid())
    }

    fn key(&self) -> &[u8] {
        self.current().key()
    }

    fn stamp(&self) -> Stamp {
        self.current().stamp()
    }

    fn value(&self) -> &[u8] {
        self.current().value()
    }

    fn value_slice(&self) -> Slice {
        self.current().value_slice()
    }

    fn seek(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let at = self.buckets.directory.overlapping(key, None).start;
        let Some(bucket) = self.buckets.directory.buckets().get(at).cloned() else {
            self.open = None;
            return Ok(());
        };
        self.moved(|cursor| {
            match key >= &bucket.lower[..] {
                true => cursor.open(at).seek(key, stamp)?,
                false => cursor.open(at).seek(&bucket.lower, Stamp::NEWEST)?,
            }
            cursor.settle_forward()
        })
    }

    fn seek_before(&mut self, key: &[u8], stamp: Stamp) -> Result<()> {
        let buckets = self.buckets.directory.buckets();
        let Some(at) = buckets.partition_point(|bucket| &bucket.lower[..] <= key).checked_sub(1) else {
            self.open = None;
            return Ok(());
        };
        let ends_after = buckets[at].ends_after(key);
        self.moved(|cursor| {
            match ends_after {
                true => cursor.open(at).seek_before(key, stamp)?,
                false => cursor.last_of(at)?,
            }
            cursor.settle_backward()
        })
    }

    fn seek_first(&mut self) -> Result<()> {
        self.seek(&[], Stamp::NEWEST)
    }

    fn seek_last(&mut self) -> Result<()> {
        let Some(last) = self.buckets.directory.buckets().len().checked_sub(1) else {
            self.open = None;
            return Ok(());
        };
        self.moved(|cursor| {
            cursor.last_of(last)?;
            cursor.settle_backward()
        })
    }

    fn next(&mut self) -> Result<()> {
        self.moved(|cursor| {
            cursor.open.as_mut().expect("only a valid cursor moves").next()?;
            cursor.settle_forward()
        })
    }

    fn prev(&mut self) -> Result<()> {
        self.moved(|cursor| {
            cursor.open.as_mut().expect("only a valid cursor moves").prev()?;
            cursor.settle_backward()
        })
    }
}
