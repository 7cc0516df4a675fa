//! Range tombstones: a delete of all keys from one up to, not including, another. They are kept apart from the versions
//! of single keys, as *fragments*: stretches that do not overlap, each with its sequence numbers, newest first. To every
//! key in it a fragment is a delete at each of its numbers (rules 1, 6 and 7).
//!
//! Within a stripe of history (see [`versions`](super::versions)) only the newest tombstone can be told from the others,
//! so a fragment has at most one number a stripe, however many tombstones overlap. Pure functions, called by whatever
//! makes runs and tables.

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
    /// When.
    pub seqno: Seqno,
}

/// A range of full keys that the same tombstones cover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// The first key.
    pub start: Vec<u8>,
    /// The first key after it.
    pub end: Vec<u8>,
    /// At least one, newest first.
    pub seqnos: Vec<Seqno>,
}

/// What a reader sees of a source's tombstones around a key: the same from one key up to another.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stretch {
    /// The first key of the stretch; `None` is the beginning of all.
    pub from: Option<Vec<u8>>,
    /// The first key after it; `None` is the end of all.
    pub to: Option<Vec<u8>>,
    /// The newest tombstone that covers it: versions below are dead. 0 if there is none.
    pub seqno: Seqno,
}

impl Stretch {
    /// The stretch holds this key.
    pub fn holds(&self, key: &[u8]) -> bool {
        self.from.as_deref().is_none_or(|from| from <= key) && self.to.as_deref().is_none_or(|to| key < to)
    }

    /// Takes what `other` says of the same key on top; both stay true.
    pub fn narrow(&mut self, other: Stretch) {
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
    /// What a reader at `snapshot` sees around `key`.
    fn stretch(&self, key: &[u8], snapshot: Seqno) -> Result<Stretch>;
}

/// The newest of `seqnos` in each stripe. `active` counts how many tombstones have a number.
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

/// Cuts tombstones, in any order, into fragments. `snapshots` are those that readers may still ask for, ascending: of the
/// numbers between two of them only the newest is kept. O(n log n), and a fragment has at most one number a snapshot.
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
    for (key, begins, seqno) in borders {
        if key != at && !active.is_empty() {
            let seqnos = newest_per_stripe(&active, snapshots);
            append(&mut fragments, Fragment { start: at.to_vec(), end: key.to_vec(), seqnos });
        }
        at = key;
        let count = active.entry(seqno).or_default();
        // At one key the ends come first, so a number that ends and begins there is gone in between.
        *count = if begins { *count + 1 } else { count.saturating_sub(1) };
        if *count == 0 {
            active.remove(&seqno);
        }
    }
    fragments
}

/// Appends the next fragment, as one with the last if nothing tells them apart.
fn append(fragments: &mut Vec<Fragment>, next: Fragment) {
    match fragments.last_mut().filter(|last| last.end == next.start && last.seqnos == next.seqnos) {
        Some(last) => last.end = next.end,
        None => fragments.push(next),
    }
}

/// The tombstones that fragments stand for.
pub fn unfold(fragments: &[Fragment]) -> impl Iterator<Item = RangeTombstone> {
    fragments.iter().flat_map(|fragment| {
        fragment.seqnos.iter().map(|&seqno| RangeTombstone {
            start: fragment.start.clone(),
            end: fragment.end.clone(),
            seqno,
        })
    })
}

/// What lies within a range of keys.
pub fn clip(fragments: &[Fragment], range: &KeyRange) -> Vec<Fragment> {
    let clipped = fragments.iter().map(|fragment| {
        let start = range.from.as_ref().map_or(&fragment.start, |from| from.max(&fragment.start));
        let end = range.to.as_ref().map_or(&fragment.end, |to| to.min(&fragment.end));
        Fragment { start: start.clone(), end: end.clone(), seqnos: fragment.seqnos.clone() }
    });
    clipped.filter(|fragment| fragment.start < fragment.end).collect()
}

/// What a job writes of its fragments: without those of dropped keyspaces, and without what kills nothing any more. That is
/// a tombstone that every reader sees (so the job has dropped all that it covers) where `bottom` says of the range that
/// nothing older can hold a key of it.
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

/// Walks along fragments while keys come by in order.
pub struct Sweep<'a> {
    fragments: &'a [Fragment],
    next: usize,
}

impl<'a> Sweep<'a> {
    /// Stands before the first fragment.
    pub fn new(fragments: &'a [Fragment]) -> Sweep<'a> {
        Sweep { fragments, next: 0 }
    }

    /// The numbers, newest first, of the tombstones that cover `key`, which is not below the one asked for before.
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
