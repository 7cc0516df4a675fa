//! Which of the jobs on offer a thread of the pool begins: a pure function of their priorities and of the resources that
//! they and the running jobs bind (decision record 047).
//!
//! An offer that binds a resource that no running job binds goes before others, so that processors and devices are both
//! used; else the priority decides. Two exceptions: what is urgent goes before all, and a flush waits for nothing that is not
//! urgent, since it makes room in memory. Called by `kinds.rs`.

use crate::engine::binds::Binds;

/// How much depends on a job; the more the higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Priority {
    /// Something that writers wait for falls behind and would be starved by what comes next. Compactions of HL0 while none
    /// runs: constant writes keep the front busy, and HL0 would fill up meanwhile. The first thread serves the front at the
    /// yield points of such a job.
    Urgent,
    /// Flushes, and the seals that they need.
    Flush,
    /// Merges of runs.
    Merge,
    /// Makes room for writers or values.
    Room,
    /// Compactions of HL0, and of a level that has fallen behind.
    Hl0,
    /// Other compactions.
    Deep,
    /// Makes garbage known.
    Garbage,
    /// Only makes reads faster.
    Order,
}

/// What the choice needs of an offer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Offered {
    pub priority: Priority,
    pub binds: Binds,
}

/// Compares offers: the least is chosen.
type Rank = (bool, bool, Priority, bool);

impl Offered {
    fn rank(&self, running: Binds) -> Rank {
        let is_urgent = self.priority == Priority::Urgent;
        let is_idle = self.binds.has_beside(running);
        (!is_urgent, !(is_idle || self.priority == Priority::Flush), self.priority, !is_idle)
    }
}

/// The best rank that an offer of this priority or a lower one may have.
fn best_from(priority: Priority) -> Rank {
    (priority != Priority::Urgent, false, priority, false)
}

/// The offers that were made so far; the best of them is kept.
pub(crate) struct Choice<T> {
    /// What the running jobs bind.
    running: Binds,
    best: Option<(Rank, T)>,
}

impl<T> Choice<T> {
    /// No offer yet.
    pub fn new(running: Binds) -> Choice<T> {
        Choice { running, best: None }
    }

    /// Takes an offer; of equal ones the first stays.
    pub fn offer(&mut self, offered: Offered, of: T) {
        let rank = offered.rank(self.running);
        if self.best.as_ref().is_none_or(|(best, _)| rank < *best) {
            self.best = Some((rank, of));
        }
    }

    /// True if no offer of this priority or a lower one can be better: then such offers need not be found.
    pub fn is_settled(&self, from: Priority) -> bool {
        self.best.as_ref().is_some_and(|(best, _)| *best <= best_from(from))
    }

    /// The chosen one.
    pub fn chosen(self) -> Option<T> {
        self.best.map(|(_, of)| of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Tier;

    const READ_FAST: Binds = Binds::read(Tier::Fast);
    const WRITE_FAST: Binds = Binds::write(Tier::Fast);
    const READ_SLOW: Binds = Binds::read(Tier::Slow);
    const WRITE_SLOW: Binds = Binds::write(Tier::Slow);
    const SEAL: Offered = Offered { priority: Priority::Flush, binds: Binds::CPU };
    const FLUSH: Offered = Offered { priority: Priority::Flush, binds: READ_FAST.or(WRITE_SLOW) };
    const MERGE: Offered = Offered { priority: Priority::Merge, binds: Binds::CPU };
    const LOG: Offered = Offered { priority: Priority::Room, binds: WRITE_FAST };
    const COMPACTION: Binds = Binds::CPU.or(READ_SLOW).or(WRITE_SLOW);
    const HL0: Offered = Offered { priority: Priority::Hl0, binds: COMPACTION };
    const STARVED: Offered = Offered { priority: Priority::Urgent, ..HL0 };
    const DEEP: Offered = Offered { priority: Priority::Deep, ..HL0 };
    const STALE: Offered = Offered { priority: Priority::Garbage, binds: READ_SLOW };
    const IDLE: Offered = Offered { priority: Priority::Order, ..HL0 };

    /// The place of the chosen one.
    fn choose(running: Binds, offers: &[Offered]) -> Option<usize> {
        let mut choice = Choice::new(running);
        offers.iter().enumerate().for_each(|(place, offer)| choice.offer(*offer, place));
        choice.chosen()
    }

    #[test]
    fn the_idle_resource_goes_first_and_then_the_priority() {
        let nothing = Binds::NONE;
        let cpu = MERGE.binds;
        let all = COMPACTION.or(READ_FAST).or(WRITE_FAST);
        let cases: [(Binds, &[Offered], Option<usize>); 21] = [
            (nothing, &[], None),
            // By priority while nothing runs, and while everything is bound.
            (nothing, &[IDLE, STALE, DEEP, HL0, LOG, MERGE, FLUSH], Some(6)),
            (nothing, &[IDLE, STALE, DEEP, HL0, LOG], Some(4)),
            (nothing, &[IDLE, STALE, DEEP, HL0], Some(3)),
            (nothing, &[IDLE, STALE, DEEP], Some(2)),
            (nothing, &[IDLE, STALE], Some(1)),
            (all, &[IDLE, STALE, DEEP, HL0, LOG, MERGE, FLUSH], Some(6)),
            (all, &[DEEP, HL0], Some(1)),
            (all, &[DEEP, MERGE], Some(1)),
            // Of equal ones the first.
            (nothing, &[SEAL, FLUSH], Some(0)),
            // A merge or a seal runs: the devices are idle.
            (cpu, &[SEAL, FLUSH], Some(1)),
            (cpu, &[MERGE, FLUSH, HL0], Some(1)),
            (cpu, &[MERGE, LOG, HL0], Some(1)),
            (cpu, &[MERGE, DEEP], Some(1)),
            // A flush runs: the processors are idle.
            (FLUSH.binds, &[DEEP, HL0, MERGE, SEAL], Some(3)),
            (FLUSH.binds, &[DEEP, HL0], Some(1)),
            // A compaction runs: a flush binds another device, or it is not behind a deep compaction either.
            (COMPACTION, &[SEAL, FLUSH], Some(1)),
            (READ_FAST.or(WRITE_SLOW), &[DEEP, FLUSH], Some(1)),
            // What would be starved goes before a flush.
            (nothing, &[SEAL, FLUSH, STARVED], Some(2)),
            (COMPACTION, &[FLUSH, STARVED], Some(1)),
            (all, &[FLUSH, STARVED, LOG], Some(1)),
        ];
        for (running, offers, wanted) in cases {
            assert_eq!(choose(running, offers), wanted, "{offers:?} beside {running:?}");
        }
    }

    #[test]
    fn offers_that_are_not_looked_for_would_not_have_been_chosen() {
        let offers = [STARVED, SEAL, FLUSH, MERGE, LOG, HL0, DEEP, STALE, IDLE];
        let sets = [Binds::NONE, SEAL.binds, FLUSH.binds, COMPACTION, LOG.binds, STALE.binds];
        let mut settled = 0;
        // Each subset of the offers, in the order of priorities.
        for (mask, running) in (0..1 << offers.len()).flat_map(|mask: u32| sets.map(|running| (mask, running))) {
            let made: Vec<_> = offers.iter().enumerate().filter(|(at, _)| mask & (1 << at) != 0).collect();
            let all: Vec<Offered> = made.iter().map(|(_, offer)| **offer).collect();
            let wanted = choose(running, &all);
            let mut choice = Choice::new(running);
            for (place, offer) in all.iter().enumerate() {
                if choice.is_settled(offer.priority) {
                    settled += 1;
                    break;
                }
                choice.offer(*offer, place);
            }
            assert_eq!(choice.chosen(), wanted, "{all:?} beside {running:?}");
        }
        assert!(settled > 1000, "{settled}");
    }

    /// One thread and a front that always has something to do. Each flush makes a table of HL0, of which four are compacted at
    /// once into the next level; that is compacted when it is over its target, and falls behind at twice as much.
    #[test]
    fn with_one_thread_neither_the_front_nor_any_level_is_starved() {
        let (mut tables, mut below) = (0, 0);
        let mut begun = [0; 3];
        for turn in 0..3000 {
            let compaction = match (tables >= 4, below) {
                (true, _) => Some((STARVED, 1)),
                (false, 8..) => Some((STARVED, 2)),
                (false, 5..) => Some((DEEP, 2)),
                _ => None,
            };
            let offers: Vec<_> = compaction.into_iter().chain([(SEAL, 0), (FLUSH, 0)]).collect();
            let places: Vec<Offered> = offers.iter().map(|(offer, _)| *offer).collect();
            let (_, what) = offers[choose(Binds::NONE, &places).unwrap()];
            begun[what] += 1;
            match what {
                0 => tables += turn % 2,
                1 => (tables, below) = (0, below + 1),
                _ => below -= 3,
            }
            assert!(tables <= 4 && below <= 8, "{tables} tables, {below} below after {turn}");
        }
        assert!(begun[0] > 2000 && begun[1] > 200 && begun[2] > 60, "{begun:?}");
    }
}
