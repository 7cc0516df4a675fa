//! Draws operations from a seed. Each seed has its own weights (some never flush, others do little else), because a single
//! mix would not reach rare states.

use std::ops::Bound;

use crate::material::{KEYS, Value};
use crate::operation::{Ack, Change, Crash, Effect, FIRST_CHANGING_SLOT, Operation, SLOTS, Scan, Span};
use crate::rng::Rng;

/// An endless stream of operations.
#[derive(Debug, Clone)]
pub struct Workload {
    rng: Rng,
    weights: [u32; KINDS],
    acks: [u32; 4],
    effects: [u32; 4],
    /// One in this many range deletes may be as wide as a scan; the others are narrow.
    wide_clears: u64,
    keys: u16,
    slots: u8,
    batch_changes_max: u64,
}

const KINDS: usize = 21;
/// Weights of write, get, scan, take and release a snapshot, sync, flush, compact, create, drop, check all, reopen, crash,
/// multi-get, scan keys, refresh, ingest, checkpoint, pause, resume and set the separation threshold, in this order.
const WEIGHTS: [u32; KINDS] = [400, 120, 60, 12, 10, 8, 6, 4, 4, 3, 1, 1, 0, 30, 15, 15, 3, 1, 1, 8, 2];

impl Workload {
    /// The operations of `seed`, on all keyspaces.
    pub fn new(seed: u64) -> Workload {
        let mut rng = Rng::of(seed, 0x776f_726b);
        let mut weights = WEIGHTS;
        for weight in weights[1..].iter_mut() {
            *weight *= *rng.pick(&[0, 1, 1, 1, 1, 3, 8]);
        }
        weights[10] = weights[10].min(2);
        weights[11] = weights[11].min(2);
        weights[17] = weights[17].min(2);
        let acks = *rng.pick(&[[1, 6, 1, 1], [0, 20, 1, 0], [8, 1, 0, 1], [0, 1, 4, 0], [1, 1, 1, 1]]);
        let effects =
            *rng.pick(&[[60, 20, 30, 2], [60, 20, 30, 8], [100, 10, 10, 1], [20, 20, 100, 4], [30, 50, 10, 30]]);
        let keys = *rng.pick(&[6, 24, KEYS, KEYS]);
        let slots = *rng.pick(&[1, 3, 6, SLOTS, SLOTS]);
        let batch_changes_max = *rng.pick(&[2, 4, 12, 40]);
        let wide_clears = *rng.pick(&[1, 4, 12]);
        Workload { rng, weights, acks, effects, wide_clears, keys, slots, batch_changes_max }
    }

    /// Excludes the operations that require a single client: create and drop keyspaces, reopen, compare everything.
    pub fn for_one_of_many(mut self) -> Workload {
        for kind in (8..13).chain([15, 16]) {
            self.weights[kind] = 0;
        }
        self.slots = self.slots.min(FIRST_CHANGING_SLOT);
        self
    }

    /// Adds crashes between operations, about one per `operations`.
    pub fn with_crashes(mut self, operations: u32) -> Workload {
        self.weights[12] = (self.weights.iter().sum::<u32>() / operations.max(1)).max(1);
        self
    }

    /// The next operation.
    pub fn next_operation(&mut self) -> Operation {
        match self.rng.weighted(&self.weights) {
            0 => self.write(),
            1 => Operation::Get { slot: self.slot(), key: self.key(), snapshot: self.snapshot() },
            2 => Operation::Scan(self.scan()),
            3 => Operation::TakeSnapshot,
            4 => Operation::ReleaseSnapshot(self.rng.next() as u8),
            5 => Operation::Sync,
            6 => Operation::Flush,
            7 => Operation::Compact(self.slot(), self.span()),
            8 => Operation::Create(self.changing_slot()),
            9 => Operation::Drop(self.changing_slot()),
            10 => Operation::CheckAll,
            11 => Operation::Reopen,
            13 => {
                let (slot, count) = (self.slot(), self.rng.below(60));
                let keys = (0..count).map(|_| self.key()).collect();
                Operation::MultiGet { slot, keys, snapshot: self.snapshot() }
            }
            14 => Operation::Keys(self.scan()),
            15 => {
                let (slot, span, pulls) = (self.slot(), self.span(), self.rng.below(20) as u8);
                Operation::Refresh { slot, span, pulls }
            }
            16 => {
                let (slot, count) = (self.slot(), self.rng.below(40));
                let puts = (0..count).map(|_| (self.key(), Value::draw(&mut self.rng))).collect();
                Operation::Ingest { slot, puts }
            }
            17 => Operation::Checkpoint,
            18 => Operation::Pause,
            19 => Operation::Resume,
            20 => Operation::Separate(self.slot(), *self.rng.pick(&[None, Some(0), Some(64), Some(192), Some(5000)])),
            _ => Operation::Crash(self.crash()),
        }
    }

    fn crash(&mut self) -> Crash {
        match self.rng.one_in(3) {
            true => Crash::Process,
            false => Crash::Power(self.rng.next()),
        }
    }

    fn write(&mut self) -> Operation {
        let changes = if self.rng.one_in(2) { 1 } else { self.rng.between(1, self.batch_changes_max + 1) };
        let changes = (0..changes).map(|_| self.change()).collect();
        let ack = [Ack::Default, Ack::Buffered, Ack::Sync, Ack::Interval][self.rng.weighted(&self.acks)];
        Operation::Write(changes, ack)
    }

    fn change(&mut self) -> Change {
        let value = Value::draw(&mut self.rng);
        let effect = match self.rng.weighted(&self.effects) {
            0 => Effect::Put(value),
            1 => Effect::Delete,
            2 => Effect::Merge(value),
            _ if self.rng.one_in(self.wide_clears) => Effect::Clear(self.span()),
            _ => Effect::Clear(self.narrow_span()),
        };
        Change { slot: self.slot(), key: self.key(), effect }
    }

    fn scan(&mut self) -> Scan {
        let ends = match self.rng.below(4) {
            0 | 1 => 0,
            2 => u64::MAX,
            _ => self.rng.next(),
        };
        let limit = *self.rng.pick(&[1, 5, 30, 1000]);
        Scan { slot: self.slot(), span: self.span(), ends, limit, snapshot: self.snapshot() }
    }

    fn span(&mut self) -> Span {
        match self.rng.below(4) {
            0 => Span::All,
            1 => Span::Prefix(self.key(), self.rng.below(9) as u8),
            _ => Span::Between(self.bound(), self.bound()),
        }
    }

    /// A few keys with consecutive numbers.
    fn narrow_span(&mut self) -> Span {
        let low = self.key();
        let high = low.saturating_add(self.rng.below(6) as u16).min(self.keys - 1);
        match self.rng.one_in(2) {
            true => Span::Between(Bound::Included(low), Bound::Excluded(high)),
            false => Span::Between(Bound::Excluded(low), Bound::Included(high)),
        }
    }

    fn bound(&mut self) -> Bound<u16> {
        match self.rng.below(5) {
            0 => Bound::Unbounded,
            1 | 2 => Bound::Included(self.key()),
            _ => Bound::Excluded(self.key()),
        }
    }

    fn slot(&mut self) -> u8 {
        self.rng.below(u64::from(self.slots)) as u8
    }

    fn changing_slot(&mut self) -> u8 {
        self.rng.between(u64::from(FIRST_CHANGING_SLOT), u64::from(SLOTS)) as u8
    }

    fn key(&mut self) -> u16 {
        let key = self.rng.below(u64::from(self.keys)) as u16;
        // The longest key fills a small log by itself, so it is drawn less often.
        if key == KEYS - 1 && !self.rng.one_in(8) { 0 } else { key }
    }

    fn snapshot(&mut self) -> Option<u8> {
        self.rng.one_in(3).then(|| self.rng.next() as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_operations_every_time() {
        let draw = |seed| {
            let mut workload = Workload::new(seed);
            (0..200).map(|_| workload.next_operation()).collect::<Vec<_>>()
        };
        assert_eq!(draw(5), draw(5));
        assert_ne!(draw(5), draw(6));
    }

    #[test]
    fn concurrent_clients_never_create_or_drop_keyspaces() {
        for seed in 0..20 {
            let mut workload = Workload::new(seed).for_one_of_many();
            for _ in 0..200 {
                let operation = workload.next_operation();
                assert!(!matches!(operation, Operation::Create(_) | Operation::Drop(_) | Operation::Reopen));
            }
        }
    }
}
