//! Which versions are kept when sources are merged: the rules that run merges, flush and compaction share (rules
//! 6, 7, 8 and 11).
//!
//! Snapshots divide the history into stripes: (-, s1], (s1, s2], ... Within a stripe readers can only see the newest
//! base and the deltas above it, so all other versions of the stripe are dropped. Deltas are merged within one stripe
//! only; the result has the highest sequence number of its operands. Only a base hides older versions. A delete is
//! dropped when nothing older can exist below. A range tombstone is a base of every key in it; when the tombstone
//! itself is dropped is decided in [`tombstones`](super::tombstones).

use std::collections::VecDeque;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{Error, Result};
use super::key::{KeyspaceId, split_key};
use super::kind::{Kind, Seqno, Stamp};
use super::operator::{Joinable, MergeOperator, OperatorSource, full_merge, join_neighbours};
use super::slice::Slice;
use super::tombstones::{Fragment, Sweep};
use super::{limits, verify};

/// A version: full key, stamp, payload.
pub type VersionRef<'a> = (&'a [u8], Stamp, &'a [u8]);

/// A stream of versions in key order, newest first within a key.
///
/// A new stream is positioned before its first version.
pub trait VersionSource {
    /// Why the stream breaks off: an [`Error`], or a type of its own where that may be no failure.
    type Error: From<Error>;

    /// Moves to the next version; false at the end.
    fn advance(&mut self) -> Result<bool, Self::Error>;

    /// The current version; only after [`advance`](VersionSource::advance) returned true.
    fn current(&self) -> VersionRef<'_>;

    /// The next version, or `None` at the end: for tests and measurements.
    #[cfg(any(test, feature = "testing"))]
    fn next(&mut self) -> Result<Option<VersionRef<'_>>, Self::Error> {
        match self.advance()? {
            true => Ok(Some(self.current())),
            false => Ok(None),
        }
    }
}

/// What retention depends on besides the versions, captured when a job starts, together with its input view (rule 6).
pub struct Horizon<'a> {
    /// Sequence numbers that readers may still use, ascending; the last one is the published one.
    pub snapshots: Vec<Seqno>,
    /// True if no source older than the input can contain this full key.
    pub bottom: &'a dyn Fn(&[u8]) -> bool,
    /// True if the keyspace was dropped: all its versions are dropped.
    pub dropped: &'a dyn Fn(KeyspaceId) -> bool,
    /// Looks up merge operators.
    pub operators: &'a dyn OperatorSource,
    /// Reads the separated value of a put, so that deltas can be merged onto it; `None` to leave such deltas as they
    /// are.
    pub fetch: Option<&'a Fetch<'a>>,
}

/// Reads a separated value, given a version whose payload is an address, and the deltas to be merged onto it. `None` to leave
/// them as they are.
pub type Fetch<'a> = dyn Fn(VersionRef<'_>, DeltaFigures) -> Result<Option<Slice>> + 'a;

/// How much the deltas are that could be merged onto a base.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaFigures {
    /// Number of deltas.
    pub count: usize,
    /// Their bytes.
    pub bytes: usize,
}

impl Horizon<'_> {
    /// The stripe of a version: the index of the oldest snapshot that sees it.
    fn stripe(&self, seqno: Seqno) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }
}

/// Filters a sorted cursor by the rules above.
///
/// The newest put of a stripe is kept whatever is below it, so it is returned directly from the cursor. A delta or a
/// delete depends on the remaining versions of its key, which are then read ahead.
pub struct Retention<'a, C> {
    cursor: C,
    horizon: Horizon<'a>,
    /// The range tombstones of the sources.
    ranges: Sweep<'a>,
    /// Sequence numbers of the tombstones that cover the key, newest first.
    covering: &'a [Seqno],
    /// The stream ends before this key.
    until: Option<Vec<u8>>,
    /// The current key, if `has_key`.
    key: Vec<u8>,
    has_key: bool,
    /// The keyspace of the current key was dropped.
    is_keyspace_dropped: bool,
    /// The stripe of the current key whose base was already returned: its other versions are dropped.
    stripe_with_base: Option<usize>,
    /// The current version is that of the cursor.
    at_cursor: bool,
    stamp: Stamp,
    /// The current payload if it is not that of the cursor, and the versions to return after it.
    payload_ahead: Option<Slice>,
    kept: VecDeque<(Stamp, Slice)>,
    /// Number of versions dropped.
    pub dropped_entries: u64,
    /// Is shown each version that nobody can read any more.
    dead: Option<&'a mut Dead<'a>>,
}

/// Is shown the stamp of a version, and its payload unless that may be in use elsewhere.
pub type Dead<'a> = dyn FnMut(Stamp, Option<&[u8]>) + 'a;

impl<'a, C: Cursor> Retention<'a, C> {
    /// Filters `cursor`, which must be positioned on its first version or be exhausted.
    pub fn new(cursor: C, horizon: Horizon<'a>) -> Self {
        verify!(horizon.snapshots.is_sorted(), "snapshots are ascending");
        Retention {
            cursor,
            horizon,
            ranges: Sweep::new(&[]),
            covering: &[],
            until: None,
            key: Vec::new(),
            has_key: false,
            is_keyspace_dropped: false,
            stripe_with_base: None,
            at_cursor: false,
            stamp: Stamp::OLDEST,
            payload_ahead: None,
            kept: VecDeque::new(),
            dropped_entries: 0,
            dead: None,
        }
    }

    /// Shows versions to `dead` that nobody can read any more.
    pub fn showing_dead(mut self, dead: &'a mut Dead<'a>) -> Self {
        self.dead = Some(dead);
        self
    }

    /// Applies the range tombstones of the sources too.
    pub fn with_ranges(mut self, ranges: &'a [Fragment]) -> Self {
        self.ranges = Sweep::new(ranges);
        self
    }

    /// Ends the stream before `key`; `None` means no end.
    pub fn until(mut self, key: Option<&[u8]>) -> Self {
        self.until = key.map(<[u8]>::to_vec);
        self
    }

    /// Starts with the next key, whose first version the cursor is on; false if the stream ends before it.
    fn begin_key(&mut self) -> bool {
        let key = self.cursor.key();
        if self.until.as_deref().is_some_and(|until| key >= until) {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.has_key = true;
        self.stripe_with_base = None;
        self.covering = self.ranges.covering(&self.key);
        self.is_keyspace_dropped = split_key(&self.key).is_some_and(|(keyspace, _)| (self.horizon.dropped)(keyspace));
        true
    }

    /// The newest range tombstone of a stripe that covers the key.
    fn range_in(&self, stripe: usize) -> Option<Seqno> {
        self.covering.iter().copied().find(|&seqno| self.horizon.stripe(seqno) == stripe)
    }

    /// Drops the version of the cursor, which a newer base hides, or a range tombstone, or the drop of its keyspace.
    fn drop_version(&mut self, stamp: Stamp) {
        self.dropped_entries += 1;
        // The same version may have come from two sources; one of the two was kept.
        let kept = self.stripe_with_base.map(|_| self.stamp.seqno());
        self.show_dead(stamp, kept);
    }

    /// Shows the version of the cursor as dead, unless it is the one that was kept.
    fn show_dead(&mut self, stamp: Stamp, kept: Option<Seqno>) {
        if let Some(dead) = &mut self.dead {
            dead(stamp, Some(self.cursor.value()).filter(|_| kept != Some(stamp.seqno())));
        }
    }

    /// True if the current version was read ahead with others of its key: it may be what deltas were merged into.
    pub fn was_read_ahead(&self) -> bool {
        !self.at_cursor
    }

    fn next_kept(&mut self) -> bool {
        let Some((stamp, value)) = self.kept.pop_front() else {
            return false;
        };
        self.stamp = stamp;
        self.payload_ahead = Some(value);
        true
    }

    /// Reads the remaining versions of the key and collects those that are kept.
    fn read_ahead(&mut self) -> Result<()> {
        let keyspace = split_key(&self.key).map(|(keyspace, _)| keyspace);
        let operators = self.horizon.operators;
        // Looked up only when a delta needs it: most keys have no deltas.
        let operator = &move || keyspace.and_then(|keyspace| operators.operator(keyspace));
        let mut stripe = KeyStripe::default();
        let mut above = None;
        while self.cursor.valid() && self.cursor.key() == self.key {
            let stamp = self.cursor.stamp();
            let index = self.horizon.stripe(stamp.seqno());
            if stripe.index != Some(index) {
                stripe.end(&mut self.kept, &self.key, operator);
                let range = self.range_in(index);
                stripe = KeyStripe { index: Some(index), range, ..KeyStripe::default() };
            }
            if stripe.range.is_some_and(|range| stamp.seqno() < range) {
                stripe.add_range(&mut self.kept, &self.key, operator);
            }
            if stripe.has_base {
                self.dropped_entries += 1;
                self.show_dead(stamp, above);
            } else {
                let fetched = match (stamp.kind(), self.horizon.fetch) {
                    (Some(Kind::PutAt), Some(fetch)) if stripe.wants_base(operator) => {
                        // A read of the key will report an error; the job continues without merging.
                        fetch((&self.key, stamp, self.cursor.value()), stripe.figures()).unwrap_or_default()
                    }
                    _ => None,
                };
                let merged = fetched.is_some_and(|base| stripe.fold(&base, &mut self.kept, &self.key, operator));
                if merged {
                    // What was fetched is in use nowhere else.
                    self.show_dead(stamp, above);
                } else {
                    stripe.push(stamp, self.cursor.value_slice(), &mut self.kept, &self.key, operator);
                }
            }
            above = Some(stamp.seqno());
            self.cursor.next()?;
        }
        let bottom = (self.horizon.bottom)(&self.key);
        if !bottom {
            stripe.end(&mut self.kept, &self.key, operator);
        } else {
            stripe.merge_onto_nothing(&mut self.kept, &self.key, operator);
            while self.kept.back().is_some_and(|(stamp, _)| stamp.kind() == Some(Kind::Delete)) {
                self.kept.pop_back();
                self.dropped_entries += 1;
            }
        }
        Ok(())
    }
}

impl<C: Cursor> VersionSource for Retention<'_, C> {
    type Error = Error;

    fn advance(&mut self) -> Result<bool> {
        if self.next_kept() {
            return Ok(true);
        }
        if std::mem::take(&mut self.at_cursor) {
            self.cursor.next()?;
        }
        while self.cursor.valid() {
            let same_key = self.has_key && self.cursor.key() == self.key;
            if !same_key && !self.begin_key() {
                return Ok(false);
            }
            let stamp = self.cursor.stamp();
            let stripe = self.horizon.stripe(stamp.seqno());
            let covered = || self.range_in(stripe).is_some_and(|range| stamp.seqno() < range);
            if self.is_keyspace_dropped || self.stripe_with_base == Some(stripe) || covered() {
                self.drop_version(stamp);
                self.cursor.next()?;
                continue;
            }
            if matches!(stamp.kind(), Some(Kind::Put | Kind::PutAt)) {
                (self.at_cursor, self.stamp, self.stripe_with_base) = (true, stamp, Some(stripe));
                return Ok(true);
            }
            self.read_ahead()?;
            if self.next_kept() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn current(&self) -> VersionRef<'_> {
        let value = match (&self.payload_ahead, self.at_cursor) {
            (_, true) => self.cursor.value(),
            (Some(value), false) => value,
            (None, false) => unreachable!("a stream is only read while it is positioned on a version"),
        };
        (&self.key, self.stamp, value)
    }
}

/// A version whose payload is in memory.
impl Joinable for (Stamp, Slice) {
    fn operand(&self) -> Option<&[u8]> {
        (self.0.kind() == Some(Kind::Delta)).then_some(&self.1)
    }

    fn joined(_: &Self, newer: &Self, operand: Vec<u8>) -> Self {
        (newer.0, Slice::owned(operand))
    }
}

type FindOperator<'a> = dyn Fn() -> Option<Arc<dyn MergeOperator>> + 'a;

/// One stripe of one key, while its versions are read, newest first.
#[derive(Default)]
struct KeyStripe {
    index: Option<usize>,
    /// The range tombstone that covers the key in this stripe.
    range: Option<Seqno>,
    /// Deltas above any base, newest first.
    deltas: Vec<(Stamp, Slice)>,
    has_base: bool,
}

impl KeyStripe {
    /// True if a put would be the base of deltas that an operator can merge.
    fn wants_base(&self, operator: &FindOperator<'_>) -> bool {
        !self.deltas.is_empty() && operator().is_some()
    }

    fn figures(&self) -> DeltaFigures {
        DeltaFigures { count: self.deltas.len(), bytes: self.deltas.iter().map(|(_, value)| value.len()).sum() }
    }

    /// Merges the deltas onto the value of a put; false if they cannot be merged now.
    fn fold(
        &mut self,
        base: &[u8],
        kept: &mut VecDeque<(Stamp, Slice)>,
        key: &[u8],
        operator: &FindOperator<'_>,
    ) -> bool {
        let Some(merged) = merge_deltas(&self.deltas, Some(base), key, operator) else { return false };
        self.has_base = true;
        self.deltas.clear();
        kept.push_back(merged);
        true
    }

    fn push(
        &mut self,
        stamp: Stamp,
        value: Slice,
        kept: &mut VecDeque<(Stamp, Slice)>,
        key: &[u8],
        operator: &FindOperator<'_>,
    ) {
        // A version of an unknown kind is kept unchanged and hides nothing.
        if !stamp.kind().is_some_and(Kind::is_base) {
            self.deltas.push((stamp, value));
            return;
        }
        self.has_base = true;
        if self.deltas.is_empty() {
            kept.push_back((stamp, value));
            return;
        }
        let base = match stamp.kind() {
            Some(Kind::Put) => Some(Some(&value[..])),
            Some(Kind::Delete) => Some(None),
            _ => None,
        };
        match base.and_then(|base| merge_deltas(&self.deltas, base, key, operator)) {
            Some(merged) => {
                self.deltas.clear();
                kept.push_back(merged);
            }
            None => {
                self.close(kept, key, operator);
                kept.push_back((stamp, value));
            }
        }
    }

    /// Handles the range tombstone of the stripe: it is older than the versions so far and newer than all others.
    fn add_range(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        self.merge_onto_nothing(kept, key, operator);
        self.has_base = true;
    }

    /// Ends the stripe; older stripes may follow, here or in other sources.
    fn end(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        match self.range {
            Some(_) => self.add_range(kept, key, operator),
            None => self.close(kept, key, operator),
        }
    }

    /// Ends the stripe without a base: its deltas are kept, combined as far as the operator can.
    fn close(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        match if self.deltas.len() < 2 { None } else { operator() } {
            Some(operator) => {
                let combined = join_neighbours(&*operator, user_key(key), self.deltas.drain(..).rev());
                kept.extend(combined.into_iter().rev());
            }
            None => kept.extend(self.deltas.drain(..)),
        }
    }

    /// Ends the stripe where nothing older is visible: its deltas are merged onto a missing value.
    fn merge_onto_nothing(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        if !self.has_base
            && !self.deltas.is_empty()
            && let Some(merged) = merge_deltas(&self.deltas, None, key, operator)
        {
            self.deltas.clear();
            kept.push_back(merged);
            return;
        }
        self.close(kept, key, operator);
    }
}

/// Merges deltas (newest first) onto a base: a put with their highest sequence number, or `None` if they cannot be
/// merged now.
fn merge_deltas(
    deltas: &[(Stamp, Slice)],
    base: Option<&[u8]>,
    key: &[u8],
    operator: &FindOperator<'_>,
) -> Option<(Stamp, Slice)> {
    if deltas.iter().any(|(stamp, _)| stamp.kind() != Some(Kind::Delta)) {
        return None;
    }
    let operands: Vec<&[u8]> = deltas.iter().rev().map(|(_, value)| &value[..]).collect();
    let value = full_merge(&*operator()?, user_key(key), base, &operands).ok()?;
    let newest = deltas.first()?.0.seqno();
    (value.len() < limits::VALUE_BYTES_LIMIT).then(|| (Stamp::new(newest, Kind::Put), Slice::owned(value)))
}

fn user_key(full: &[u8]) -> &[u8] {
    split_key(full).map_or(full, |(_, key)| key)
}

#[cfg(test)]
#[path = "versions_test.rs"]
mod tests;
