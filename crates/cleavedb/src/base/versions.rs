//! Which versions live on when sources are merged: the one rule book that index merges, flush and compaction share
//! (rules 6, 7, 8 and 11).
//!
//! Snapshots cut history into stripes: (-, s1], (s1, s2], ... Within a stripe a reader can only see the newest base and
//! the deltas above it, so the rest of the stripe dies. Deltas are folded within one stripe only, and a fold keeps the
//! newest sequence number. Only a base kills. A delete leaves when nothing older can exist below. A range tombstone is a
//! base of every key in it; when it leaves itself is not decided here ([`tombstones`](super::tombstones)).

use std::collections::VecDeque;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::{Error, Result};
use super::key::{KeyspaceId, split_key};
use super::kind::{Kind, Seqno, Stamp};
use super::operator::{MergeOperator, OperatorSource, full_merge, partial_merge};
use super::slice::Slice;
use super::tombstones::{Fragment, Sweep};
use super::{limits, verify};

/// A version: full key, stamp, payload.
pub type VersionRef<'a> = (&'a [u8], Stamp, &'a [u8]);

/// A stream of versions in key order, newest first within a key.
///
/// A new stream stands before its first version.
pub trait VersionSource {
    /// Why the stream breaks off: an [`Error`], or a type of its own where that may be no failure.
    type Error: From<Error>;

    /// Moves to the next version; false at the end.
    fn advance(&mut self) -> Result<bool, Self::Error>;

    /// The version that the stream stands on; only after [`advance`](VersionSource::advance) said true.
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

/// What a job knows when it starts, captured together with its input view (rule 6).
pub struct Horizon<'a> {
    /// Sequence numbers that readers may still ask for, ascending; the published one is the last.
    pub snapshots: Vec<Seqno>,
    /// True if nothing older than the input can hold this full key.
    pub bottom: &'a dyn Fn(&[u8]) -> bool,
    /// True if the keyspace was dropped: all its versions die.
    pub dropped: &'a dyn Fn(KeyspaceId) -> bool,
    /// Finds merge operators.
    pub operators: &'a dyn OperatorSource,
    /// Fetches the value of a put that lies elsewhere, so that deltas can be folded onto it; `None` if that can wait.
    pub fetch: Option<&'a Fetch<'a>>,
}

/// From a full key, the stamp of a version and its payload, an address, to the value there.
pub type Fetch<'a> = dyn Fn(&[u8], Stamp, &[u8]) -> Result<Slice> + 'a;

impl Horizon<'_> {
    /// The stripe a version belongs to: the index of the oldest snapshot that sees it.
    fn stripe(&self, seqno: Seqno) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }
}

/// Filters a sorted cursor by the rules above.
///
/// The newest put of a stripe lives whatever lies below it, so it is shown where the cursor has it. A delta or a delete
/// depends on the rest of its key, which is then read ahead.
pub struct Retention<'a, C> {
    cursor: C,
    horizon: Horizon<'a>,
    /// The range tombstones of the sources.
    ranges: Sweep<'a>,
    /// The numbers of those that cover the key, newest first.
    covering: &'a [Seqno],
    /// Keys from here on are not asked for.
    until: Option<Vec<u8>>,
    /// The key whose versions come by, once there is one.
    key: Vec<u8>,
    begun: bool,
    /// The keyspace of the key was dropped.
    all_dead: bool,
    /// The stripe of the key that has its base: what is left of it is dead.
    settled: Option<usize>,
    /// The version shown is the one that the cursor stands on.
    at_cursor: bool,
    stamp: Stamp,
    /// The version shown if it is not the cursor's, and those after it.
    ahead: Option<Slice>,
    kept: VecDeque<(Stamp, Slice)>,
    /// Versions that did not survive.
    pub dropped_entries: u64,
}

impl<'a, C: Cursor> Retention<'a, C> {
    /// Filters `cursor`, which must stand on its first version (or be exhausted).
    pub fn new(cursor: C, horizon: Horizon<'a>) -> Self {
        verify!(horizon.snapshots.is_sorted(), "snapshots are ascending");
        Retention {
            cursor,
            horizon,
            ranges: Sweep::new(&[]),
            covering: &[],
            until: None,
            key: Vec::new(),
            begun: false,
            all_dead: false,
            settled: None,
            at_cursor: false,
            stamp: Stamp::OLDEST,
            ahead: None,
            kept: VecDeque::new(),
            dropped_entries: 0,
        }
    }

    /// Lets the range tombstones of the sources kill, too.
    pub fn with_ranges(mut self, ranges: &'a [Fragment]) -> Self {
        self.ranges = Sweep::new(ranges);
        self
    }

    /// Ends before this key; `None` is the end of all.
    pub fn until(mut self, key: Option<&[u8]>) -> Self {
        self.until = key.map(<[u8]>::to_vec);
        self
    }

    /// The cursor stands on the first version of another key; false if that key is not asked for.
    fn begin_key(&mut self) -> bool {
        let key = self.cursor.key();
        if self.until.as_deref().is_some_and(|until| key >= until) {
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.begun = true;
        self.settled = None;
        self.covering = self.ranges.covering(&self.key);
        self.all_dead = split_key(&self.key).is_some_and(|(keyspace, _)| (self.horizon.dropped)(keyspace));
        true
    }

    /// The range tombstone that covers the key in a stripe; of several in it the newest is the one that counts.
    fn range_in(&self, stripe: usize) -> Option<Seqno> {
        self.covering.iter().copied().find(|&seqno| self.horizon.stripe(seqno) == stripe)
    }

    fn show_kept(&mut self) -> bool {
        let Some((stamp, value)) = self.kept.pop_front() else {
            return false;
        };
        self.stamp = stamp;
        self.ahead = Some(value);
        true
    }

    /// Reads the rest of the key and keeps what must live on.
    fn read_ahead(&mut self) -> Result<()> {
        let keyspace = split_key(&self.key).map(|(keyspace, _)| keyspace);
        let operators = self.horizon.operators;
        // Looked up only when a delta asks for it: most keys have none.
        let operator = &move || keyspace.and_then(|keyspace| operators.operator(keyspace));
        let mut stripe = KeyStripe::default();
        while self.cursor.valid() && self.cursor.key() == self.key {
            let stamp = self.cursor.stamp();
            let index = self.horizon.stripe(stamp.seqno());
            if stripe.index != Some(index) {
                stripe.end(&mut self.kept, &self.key, operator);
                let range = self.range_in(index);
                stripe = KeyStripe { index: Some(index), range, ..KeyStripe::default() };
            }
            if stripe.range.is_some_and(|range| stamp.seqno() < range) {
                stripe.meet_range(&mut self.kept, &self.key, operator);
            }
            if stripe.has_base {
                self.dropped_entries += 1;
            } else {
                let (stamp, value) = match (stamp.kind(), self.horizon.fetch) {
                    (Some(Kind::PutAt), Some(fetch)) if stripe.wants_base(operator) => {
                        match fetch(&self.key, stamp, self.cursor.value()) {
                            Ok(value) => (Stamp::new(stamp.seqno(), Kind::Put), value),
                            // Whoever reads the key will hear of it; the job goes on without the fold.
                            Err(_) => (stamp, self.cursor.value_slice()),
                        }
                    }
                    _ => (stamp, self.cursor.value_slice()),
                };
                stripe.push(stamp, value, &mut self.kept, &self.key, operator);
            }
            self.cursor.next()?;
        }
        let bottom = (self.horizon.bottom)(&self.key);
        if !bottom {
            stripe.end(&mut self.kept, &self.key, operator);
        } else {
            stripe.fold_onto_nothing(&mut self.kept, &self.key, operator);
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
        if self.show_kept() {
            return Ok(true);
        }
        if std::mem::take(&mut self.at_cursor) {
            self.cursor.next()?;
        }
        while self.cursor.valid() {
            let same_key = self.begun && self.cursor.key() == self.key;
            if !same_key && !self.begin_key() {
                return Ok(false);
            }
            let stamp = self.cursor.stamp();
            let stripe = self.horizon.stripe(stamp.seqno());
            let covered = || self.range_in(stripe).is_some_and(|range| stamp.seqno() < range);
            if self.all_dead || self.settled == Some(stripe) || covered() {
                self.dropped_entries += 1;
                self.cursor.next()?;
                continue;
            }
            if matches!(stamp.kind(), Some(Kind::Put | Kind::PutAt)) {
                (self.at_cursor, self.stamp, self.settled) = (true, stamp, Some(stripe));
                return Ok(true);
            }
            self.read_ahead()?;
            if self.show_kept() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn current(&self) -> VersionRef<'_> {
        let value = match (&self.ahead, self.at_cursor) {
            (_, true) => self.cursor.value(),
            (Some(value), false) => value,
            (None, false) => unreachable!("a stream is only read where it stands on a version"),
        };
        (&self.key, self.stamp, value)
    }
}

type FindOperator<'a> = dyn Fn() -> Option<Arc<dyn MergeOperator>> + 'a;

/// One stripe of one key while its versions come by, newest first.
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
    /// A put would be the base of deltas that an operator can fold.
    fn wants_base(&self, operator: &FindOperator<'_>) -> bool {
        !self.deltas.is_empty() && operator().is_some()
    }

    fn push(
        &mut self,
        stamp: Stamp,
        value: Slice,
        kept: &mut VecDeque<(Stamp, Slice)>,
        key: &[u8],
        operator: &FindOperator<'_>,
    ) {
        // A kind this version does not know is kept as it is and kills nothing.
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
        match base.and_then(|base| fold(&self.deltas, base, key, operator)) {
            Some(folded) => {
                self.deltas.clear();
                kept.push_back(folded);
            }
            None => {
                self.close(kept, key, operator);
                kept.push_back((stamp, value));
            }
        }
    }

    /// The range tombstone comes here in the order of versions: below those so far, above the rest of the stripe.
    fn meet_range(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        self.fold_onto_nothing(kept, key, operator);
        self.has_base = true;
    }

    /// The stripe ends, and older ones may follow, here or elsewhere.
    fn end(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        match self.range {
            Some(_) => self.meet_range(kept, key, operator),
            None => self.close(kept, key, operator),
        }
    }

    /// The stripe ends without a base: what deltas there are go on, combined where the operator can.
    fn close(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        if self.deltas.len() < 2 {
            kept.extend(self.deltas.drain(..));
            return;
        }
        let operator = operator();
        let mut combined: Vec<(Stamp, Slice)> = Vec::with_capacity(self.deltas.len().min(16));
        for (stamp, value) in self.deltas.drain(..).rev() {
            let joined = operator.as_deref().and_then(|operator| {
                let (older_stamp, older) = combined.last()?;
                let inline = older_stamp.kind() == Some(Kind::Delta) && stamp.kind() == Some(Kind::Delta);
                inline.then(|| partial_merge(operator, user_key(key), older, &value)).flatten()
            });
            match joined.filter(|joined| joined.len() < limits::VALUE_BYTES_LIMIT) {
                Some(joined) => {
                    combined.pop();
                    combined.push((stamp, Slice::owned(joined)));
                }
                None => combined.push((stamp, value)),
            }
        }
        kept.extend(combined.into_iter().rev());
    }

    /// Nothing older counts for the stripe: its deltas apply to no value at all.
    fn fold_onto_nothing(&mut self, kept: &mut VecDeque<(Stamp, Slice)>, key: &[u8], operator: &FindOperator<'_>) {
        if !self.has_base
            && !self.deltas.is_empty()
            && let Some(folded) = fold(&self.deltas, None, key, operator)
        {
            self.deltas.clear();
            kept.push_back(folded);
            return;
        }
        self.close(kept, key, operator);
    }
}

/// Applies deltas (newest first) to a base: a put with the newest sequence number, or `None` if that cannot be done now.
fn fold(
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
