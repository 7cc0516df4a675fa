//! Range tombstones: deletes of all keys from a start (inclusive) to an end (exclusive). They are stored separately
//! from the versions of single keys, as *fragments*: ranges that do not overlap, each with its sequence numbers, newest
//! first. For every key in it a fragment is a delete at each of these sequence numbers (rules 1, 6 and 7).
//!
//! Within a snapshot stripe (see [`versions`](super::versions)) the newest tombstone hides all that the older ones
//! hide, so a fragment has at most one sequence number per stripe, however many tombstones overlap. Pure functions,
//! called by flushes, run merges and compactions.

use std::collections::BTreeMap;

use super::error::Result;
use super::key::{KeyspaceId, split_key};
use super::kind::Seqno;
use super::ranges::KeyRange;

/// One delete of a range of full keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeTombstone {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after it.
    pub end: Vec<u8>,
    /// The sequence number of the delete.
    pub seqno: Seqno,
}

/// A range of full keys that are covered by the same tombstones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after it.
    pub end: Vec<u8>,
    /// The sequence numbers of these tombstones, at least one, newest first.
    pub seqnos: Vec<Seqno>,
}

/// A span of keys for which a reader sees the same newest tombstone of a source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TombstoneSpan {
    /// The first key of the span; `None` if the span has no lower bound.
    pub from: Option<Vec<u8>>,
    /// The first key after the span; `None` if the span has no upper bound.
    pub to: Option<Vec<u8>>,
    /// The newest tombstone that covers the span: lower versions are deleted. 0 if there is none.
    pub seqno: Seqno,
}

impl TombstoneSpan {
    /// True if the span contains `key`.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key) && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Intersects the span with `other`, which is around the same key in another source, and keeps the newer tombstone.
    pub fn narrow(&mut self, other: TombstoneSpan) {
        self.from = self.from.take().max(other.from);
        self.to = match (self.to.take(), other.to) {
            (Some(to), Some(other)) => Some(to.min(other)),
            (to, other) => to.or(other),
        };
        self.seqno = self.seqno.max(other.seqno);
    }
}

/// A source of range tombstones: an index table, a run, a table or a level.
pub trait RangeTombstones: Send + Sync {
    /// The newest tombstone that a reader at `snapshot` sees at `key`, and the span of keys for which it is the same.
    fn span_at(&self, key: &[u8], snapshot: Seqno) -> Result<TombstoneSpan>;
}

/// The highest sequence number in each stripe. `active` has the number of tombstones by sequence number.
fn newest_per_stripe(active: &BTreeMap<Seqno, usize>, snapshots: &[Seqno]) -> Vec<Seqno> {
    let mut seqnos = Vec::new();
    let mut newest = active.keys().next_back().copied();
    while let Some(seqno) = newest {
        seqnos.push(seqno);
        let stripe = snapshots.partition_point(|&snapshot| snapshot < seqno);
        newest = stripe.checked_sub(1).and_then(|older| Some(*active.range(..=snapshots[older]).next_back()?.0));
    }
    seqnos
}

/// Cuts tombstones, given in any order, into fragments. `snapshots` are those that readers may still use, ascending: of
/// the sequence numbers between two of them only the highest is kept. O(n log n); a fragment has at most one sequence
/// number per snapshot.
pub fn fragment(tombstones: &[RangeTombstone], snapshots: &[Seqno]) -> Vec<Fragment> {
    let mut borders: Vec<(&[u8], bool, Seqno)> = Vec::with_capacity(2 * tombstones.len());
    for tombstone in tombstones.iter().filter(|tombstone| tombstone.start < tombstone.end) {
        borders.push((&tombstone.start, true, tombstone.seqno));
        borders.push((&tombstone.end, false, tombstone.seqno));
    }
    borders.sort_unstable();
    let mut active: BTreeMap<Seqno, usize> = BTreeMap::new();
    let mut fragments = Vec::new();
    let mut at: &[u8] = &[];
    for (key, starts, seqno) in borders {
        if key != at && !active.is_empty() {
            let seqnos = newest_per_stripe(&active, snapshots);
            append(&mut fragments, Fragment { start: at.to_vec(), end: key.to_vec(), seqnos });
        }
        at = key;
        let count = active.entry(seqno).or_default();
        // Ends sort before starts, so a sequence number that ends and starts at the same key is removed in between.
        *count = if starts { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            active.remove(&seqno);
        }
    }
    fragments
}

/// Appends the next fragment, or extends the last one if both touch and have the same sequence numbers.
fn append(fragments: &mut Vec<Fragment>, next: Fragment) {
    match fragments.last_mut().filter(|last| last.end == next.start && last.seqnos == next.seqnos) {
        Some(last) => last.end = next.end,
        None => fragments.push(next),
    }
}

/// The tombstones that the fragments represent.
pub fn unfold(fragments: &[Fragment]) -> impl Iterator<Item = RangeTombstone> {
    fragments.iter().flat_map(|fragment| {
        fragment.seqnos.iter().map(|&seqno| RangeTombstone {
            start: fragment.start.clone(),
            end: fragment.end.clone(),
            seqno,
        })
    })
}

/// The fragments within a range of keys, cut at its bounds.
pub fn clip(fragments: &[Fragment], range: &KeyRange) -> Vec<Fragment> {
    let clipped = fragments.iter().map(|fragment| {
        let start = range.from.as_ref().map_or(&fragment.start, |from| from.max(&fragment.start));
        let end = range.to.as_ref().map_or(&fragment.end, |to| to.min(&fragment.end));
        Fragment { start: start.clone(), end: end.clone(), seqnos: fragment.seqnos.clone() }
    });
    clipped.filter(|fragment| fragment.start < fragment.end).collect()
}

/// The fragments that a job still has to write. It omits those of dropped keyspaces, and tombstones that no longer
/// cover anything: every reader sees them, so the job has dropped all versions that they cover, and `bottom` is true
/// for the range, so nothing older can contain a key of it.
pub fn survivors(
    fragments: &[Fragment],
    snapshots: &[Seqno],
    bottom: &dyn Fn(&[u8], &[u8]) -> bool,
    dropped: &dyn Fn(KeyspaceId) -> bool,
) -> Vec<Fragment> {
    let oldest = snapshots.first().copied().unwrap_or_default();
    let mut kept = Vec::new();
    for fragment in fragments {
        if split_key(&fragment.start).is_some_and(|(keyspace, _)| dropped(keyspace)) {
            continue;
        }
        let mut fragment = fragment.clone();
        if fragment.seqnos.last().is_some_and(|&last| last <= oldest) && bottom(&fragment.start, &fragment.end) {
            fragment.seqnos.pop();
        }
        if !fragment.seqnos.is_empty() {
            append(&mut kept, fragment);
        }
    }
    kept
}

/// Looks up ascending keys in fragments, in one pass over both.
pub struct Sweep<'a> {
    fragments: &'a [Fragment],
    next: usize,
}

impl<'a> Sweep<'a> {
    /// Starts before the first fragment.
    pub fn new(fragments: &'a [Fragment]) -> Sweep<'a> {
        Sweep { fragments, next: 0 }
    }

    /// The sequence numbers, newest first, of the tombstones that cover `key`, which must not be below the previous
    /// key.
    #[inline]
    pub fn covering(&mut self, key: &[u8]) -> &'a [Seqno] {
        if self.next == self.fragments.len() {
            return &[];
        }
        if self.fragments[self.next].end.as_slice() <= key {
            let rest = &self.fragments[self.next..];
            self.next += rest.partition_point(|fragment| fragment.end.as_slice() <= key);
        }
        match self.fragments.get(self.next) {
            Some(fragment) if fragment.start.as_slice() <= key => &fragment.seqnos,
            _ => &[],
        }
    }
}

#[cfg(test)]
#[path = "tombstones_test.rs"]
mod tests;
