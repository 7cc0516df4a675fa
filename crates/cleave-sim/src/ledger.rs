//! The ledger of batches: every batch started since the database was last opened, when it was started and answered on
//! one logical clock, and the answer. Clients record their batches here; after a crash the ledger decides which histories
//! are allowed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::model::{Entry, SpaceId};
use crate::operation::Crash;

/// A batch, numbered from 0 in the order in which batches were started.
pub type BatchId = usize;

/// How a batch was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Not answered yet.
    Open,
    /// Acknowledged: the batch is written.
    Acknowledged,
    /// Failed with an error after which the batch may or may not be written.
    InDoubt,
    /// Failed with an error that guarantees that the batch is not written.
    Refused,
}

/// One batch.
#[derive(Debug, Clone)]
pub struct Record {
    /// What it writes.
    pub batch: Arc<[Entry]>,
    /// How it was answered.
    pub answer: Answer,
    /// It must survive a power loss.
    pub durable: bool,
    begun: u64,
    answered: u64,
}

/// A keyspace created or dropped.
#[derive(Debug, Clone)]
pub struct Change {
    /// The slot.
    pub slot: u8,
    /// The keyspace.
    pub space: SpaceId,
    /// Created, else dropped.
    pub created: bool,
    /// How it was answered.
    pub answer: Answer,
}

/// A copy of the ledger at one moment.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The batches, in start order.
    pub records: Vec<Record>,
    /// Keyspaces created and dropped, in order.
    pub changes: Vec<Change>,
    clock: u64,
    failed_at: Option<u64>,
}

/// The ledger that the clients of one database share.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Page>>);

impl Ledger {
    /// An empty ledger.
    pub fn new() -> Ledger {
        Ledger::default()
    }

    /// A copy of the current state.
    pub fn page(&self) -> Page {
        self.lock().clone()
    }

    /// Records that a batch is about to be written.
    pub fn begin(&self, batch: Arc<[Entry]>) -> BatchId {
        let mut page = self.lock();
        let begun = page.tick();
        page.records.push(Record { batch, answer: Answer::Open, durable: false, begun, answered: u64::MAX });
        page.records.len() - 1
    }

    /// Records that a batch was acknowledged; `synced` if its durability was `Sync`.
    pub fn acknowledge(&self, id: BatchId, synced: bool) {
        let mut page = self.lock();
        let answered = page.tick();
        let record = &mut page.records[id];
        (record.answer, record.durable, record.answered) = (Answer::Acknowledged, synced, answered);
    }

    /// Records that a batch failed; `refused` if the error guarantees that nothing was written. After the first failure of
    /// another kind, batches started later must not be written. Returns the answer.
    pub fn fail(&self, id: BatchId, refused: bool) -> Answer {
        let mut page = self.lock();
        let answered = page.tick();
        let late = page.failed_at.is_some_and(|failed_at| failed_at < page.records[id].begun);
        let answer = if refused || late { Answer::Refused } else { Answer::InDoubt };
        if answer == Answer::InDoubt {
            page.failed_at.get_or_insert(answered);
        }
        let record = &mut page.records[id];
        (record.answer, record.answered) = (answer, answered);
        answer
    }

    /// True once a write has failed in a way that must poison later writes.
    pub fn has_failed(&self) -> bool {
        self.lock().failed_at.is_some()
    }

    /// The current time, for [`Ledger::synced_since`].
    pub fn now(&self) -> u64 {
        self.lock().tick()
    }

    /// Records that a sync (or a flush) that started at `began` has succeeded.
    pub fn synced_since(&self, began: u64) {
        let mut page = self.lock();
        for record in page.records.iter_mut().filter(|record| record.answered < began) {
            record.durable |= record.answer == Answer::Acknowledged;
        }
    }

    /// Records that a keyspace is about to be created or dropped.
    pub fn begin_change(&self, slot: u8, space: SpaceId, created: bool) {
        self.lock().changes.push(Change { slot, space, created, answer: Answer::Open });
    }

    /// Records the answer to the last change.
    pub fn answer_change(&self, answer: Answer) {
        if let Some(change) = self.lock().changes.last_mut() {
            change.answer = answer;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Page> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Page {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// The batches that must survive a crash now.
    pub fn required(&self, crash: Crash) -> BTreeSet<BatchId> {
        let kept = |record: &Record| match crash {
            Crash::Process => record.answer == Answer::Acknowledged,
            Crash::Power(_) => record.durable,
        };
        (0..self.records.len()).filter(|&id| kept(&self.records[id])).collect()
    }

    /// The batches that are or may be written, in the order in which a single client wrote them.
    pub fn possible(&self) -> Vec<BatchId> {
        (0..self.records.len()).filter(|&id| self.records[id].answer != Answer::Refused).collect()
    }

    /// Checks `order` as a history of these batches: each occurs at most once, none was refused, and each is preceded by
    /// every batch that was acknowledged before it was started.
    pub fn check_order(&self, order: &[BatchId]) -> Result<(), String> {
        let mut seen = BTreeSet::new();
        for &id in order {
            let record = self.records.get(id).ok_or_else(|| format!("batch {id} was never written"))?;
            if record.answer == Answer::Refused {
                return Err(format!("batch {id} was refused but is present"));
            }
            if !seen.insert(id) {
                return Err(format!("batch {id} is present twice"));
            }
        }
        // A batch must not come before one that was acknowledged before it was started.
        let mut place = vec![usize::MAX; self.records.len()];
        order.iter().enumerate().for_each(|(position, &id)| place[id] = position);
        for (earlier, record) in self.records.iter().enumerate() {
            if record.answer != Answer::Acknowledged {
                continue;
            }
            let overtaken = order.iter().take(place[earlier].min(order.len()));
            if let Some(later) = overtaken.into_iter().find(|&&later| self.records[later].begun > record.answered) {
                return Err(format!(
                    "batch {later} was started after batch {earlier} was acknowledged, but comes before it or without it"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger_of(batches: usize) -> Ledger {
        let ledger = Ledger::new();
        for _ in 0..batches {
            let id = ledger.begin(Arc::new([]));
            ledger.acknowledge(id, false);
        }
        ledger
    }

    #[test]
    fn a_history_with_a_hole_or_a_swap_is_refused() {
        let page = ledger_of(3).page();
        for good in [&[][..], &[0], &[0, 1], &[0, 1, 2]] {
            assert_eq!(page.check_order(good), Ok(()));
        }
        for bad in [&[1][..], &[0, 2], &[1, 0], &[0, 0], &[7]] {
            assert!(page.check_order(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn batches_in_flight_together_may_come_in_either_order() {
        let ledger = Ledger::new();
        let (a, b) = (ledger.begin(Arc::new([])), ledger.begin(Arc::new([])));
        ledger.acknowledge(b, true);
        ledger.acknowledge(a, false);
        let page = ledger.page();
        assert_eq!(page.check_order(&[1, 0]), Ok(()));
        assert_eq!(page.check_order(&[0, 1]), Ok(()));
        assert_eq!(page.required(Crash::Power(0)), [1].into());
        assert_eq!(page.required(Crash::Process), [0, 1].into());
    }

    #[test]
    fn a_sync_covers_what_was_acknowledged_before_it_began() {
        let ledger = ledger_of(2);
        let began = ledger.now();
        let late = ledger.begin(Arc::new([]));
        ledger.acknowledge(late, false);
        ledger.synced_since(began);
        assert_eq!(ledger.page().required(Crash::Power(0)), [0, 1].into());
    }

    #[test]
    fn what_is_begun_after_a_failure_must_stay_out() {
        let ledger = ledger_of(1);
        let id = ledger.begin(Arc::new([]));
        assert_eq!(ledger.fail(id, false), Answer::InDoubt);
        let id = ledger.begin(Arc::new([]));
        assert_eq!(ledger.fail(id, false), Answer::Refused);
        assert!(ledger.has_failed());
        assert!(ledger.page().check_order(&[0, 1, 2]).is_err());
        assert_eq!(ledger.page().possible(), [0, 1]);
    }
}
