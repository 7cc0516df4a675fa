//! Which versions live on when sources are merged: the one rule book that index merges, flush and compaction share
//! (DESIGN rules 6, 7, 8 and 11).
//!
//! Snapshots cut history into stripes: (-, s1], (s1, s2], ... Within a stripe a reader can only see the newest base and
//! the deltas above it, so the rest of the stripe dies. Deltas are folded within one stripe only, and a fold keeps the
//! newest sequence number. Only a base kills. A delete leaves when nothing older can exist below.

use std::collections::VecDeque;
use std::sync::Arc;

use super::cursor::Cursor;
use super::error::Result;
use super::key::{KeyspaceId, split_key};
use super::kind::{Kind, Seqno, Stamp};
use super::operator::{MergeOperator, OperatorSource, full_merge, partial_merge};
use super::slice::Slice;
use super::{limits, verify};

/// A version: full key, stamp, payload.
pub type VersionRef<'a> = (&'a [u8], Stamp, &'a [u8]);

/// A stream of versions in key order, newest first within a key.
pub trait VersionSource {
    /// The next version, or `None` at the end.
    fn next(&mut self) -> Result<Option<VersionRef<'_>>>;
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
}

impl Horizon<'_> {
    /// The stripe a version belongs to: the index of the oldest snapshot that sees it.
    fn stripe(&self, seqno: Seqno) -> usize {
        self.snapshots.partition_point(|&snapshot| snapshot < seqno)
    }
}

/// Filters a sorted cursor by the rules above.
pub struct Retention<'a, C> {
    cursor: C,
    horizon: Horizon<'a>,
    key: Vec<u8>,
    kept: VecDeque<(Stamp, Slice)>,
    current: Option<(Stamp, Slice)>,
    /// Versions that did not survive.
    pub dropped_entries: u64,
}

impl<'a, C: Cursor> Retention<'a, C> {
    /// Filters `cursor`, which must stand on its first version (or be exhausted).
    pub fn new(cursor: C, horizon: Horizon<'a>) -> Self {
        verify!(horizon.snapshots.is_sorted(), "snapshots are ascending");
        Retention { cursor, horizon, key: Vec::new(), kept: VecDeque::new(), current: None, dropped_entries: 0 }
    }

    /// Reads all versions of the next key and keeps what must live on in `self.kept`.
    fn fill(&mut self) -> Result<()> {
        self.key.clear();
        self.key.extend_from_slice(self.cursor.key());
        let keyspace = split_key(&self.key).map(|(keyspace, _)| keyspace);
        let operators = self.horizon.operators;
        // Looked up only when a delta asks for it: most keys have none.
        let operator = &move || keyspace.and_then(|keyspace| operators.operator(keyspace));
        let all_dead = keyspace.is_some_and(|keyspace| (self.horizon.dropped)(keyspace));
        let mut stripe = KeyStripe::default();
        while self.cursor.valid() && self.cursor.key() == self.key {
            let stamp = self.cursor.stamp();
            let index = self.horizon.stripe(stamp.seqno());
            if stripe.index != Some(index) {
                stripe.close(&mut self.kept, &self.key, operator);
                stripe = KeyStripe { index: Some(index), ..KeyStripe::default() };
            }
            if all_dead || stripe.has_base {
                self.dropped_entries += 1;
            } else {
                let value = self.cursor.value_slice();
                stripe.push(stamp, value, &mut self.kept, &self.key, operator);
            }
            self.cursor.next()?;
        }
        if !all_dead && (self.horizon.bottom)(&self.key) {
            stripe.fold_onto_nothing(&mut self.kept, &self.key, operator);
            while self.kept.back().is_some_and(|(stamp, _)| stamp.kind() == Some(Kind::Delete)) {
                self.kept.pop_back();
                self.dropped_entries += 1;
            }
        } else {
            stripe.close(&mut self.kept, &self.key, operator);
        }
        Ok(())
    }
}

impl<C: Cursor> VersionSource for Retention<'_, C> {
    fn next(&mut self) -> Result<Option<VersionRef<'_>>> {
        while self.kept.is_empty() {
            if !self.cursor.valid() {
                return Ok(None);
            }
            self.fill()?;
        }
        self.current = self.kept.pop_front();
        Ok(self.current.as_ref().map(|(stamp, value)| (&self.key[..], *stamp, &value[..])))
    }
}

type FindOperator<'a> = dyn Fn() -> Option<Arc<dyn MergeOperator>> + 'a;

/// One stripe of one key while its versions come by, newest first.
#[derive(Default)]
struct KeyStripe {
    index: Option<usize>,
    /// Deltas above any base, newest first.
    deltas: Vec<(Stamp, Slice)>,
    has_base: bool,
}

impl KeyStripe {
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

    /// The stripe ends and nothing older exists: its deltas apply to no value at all.
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
