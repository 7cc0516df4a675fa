//! How far each consumer of the log's records has got. Everything up to a consumer's watermark needs no replay for it, so
//! recovery hands it only what is above, and a log is needed until the least watermark has passed its last record.
//! Kept by the manifest; used by recovery, by flushes, and wherever logs are removed.

use std::collections::BTreeMap;

use crate::base::Seqno;

/// What keeps records of the log in files of its own, or an index of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Consumer {
    /// The tables.
    Levels,
}

impl Consumer {
    /// Every consumer.
    pub const ALL: [Consumer; 1] = [Consumer::Levels];

    /// The stored form: do not renumber.
    pub fn to_stored(self) -> u64 {
        match self {
            Consumer::Levels => 1,
        }
    }

    /// The consumer that is stored as this number.
    pub fn from_stored(stored: u64) -> Option<Consumer> {
        Consumer::ALL.into_iter().find(|consumer| consumer.to_stored() == stored)
    }

    /// What to call it.
    pub fn name(self) -> &'static str {
        match self {
            Consumer::Levels => "levels",
        }
    }
}

/// A sequence number for each consumer; 0 for one that has consumed nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Watermarks(BTreeMap<Consumer, Seqno>);

impl Watermarks {
    /// The watermark of one consumer, nothing being said of others.
    pub fn only(consumer: Consumer, seqno: Seqno) -> Watermarks {
        let mut watermarks = Watermarks::default();
        watermarks.raise(consumer, seqno);
        watermarks
    }

    /// The watermark of a consumer.
    pub fn of(&self, consumer: Consumer) -> Seqno {
        self.0.get(&consumer).copied().unwrap_or(Seqno::ZERO)
    }

    /// No consumer needs what is at or below it.
    pub fn least(&self) -> Seqno {
        Consumer::ALL.into_iter().map(|consumer| self.of(consumer)).min().unwrap_or(Seqno::ZERO)
    }

    /// No consumer has got further.
    pub fn greatest(&self) -> Seqno {
        self.0.values().copied().max().unwrap_or(Seqno::ZERO)
    }

    /// Raises the watermark of a consumer; it never falls.
    pub fn raise(&mut self, consumer: Consumer, seqno: Seqno) {
        let watermark = self.0.entry(consumer).or_insert(Seqno::ZERO);
        *watermark = seqno.max(*watermark);
    }

    /// Raises each watermark that another list has higher.
    pub fn raise_all(&mut self, others: &Watermarks) {
        others.iter().for_each(|(consumer, seqno)| self.raise(consumer, seqno));
    }

    /// What the watermarks are once `others` are raised as well.
    pub fn raised(&self, others: &Watermarks) -> Watermarks {
        let mut raised = self.clone();
        raised.raise_all(others);
        raised
    }

    /// Those that something is said of.
    pub fn iter(&self) -> impl Iterator<Item = (Consumer, Seqno)> {
        self.0.iter().map(|(consumer, seqno)| (*consumer, *seqno))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watermark_never_falls() {
        let mut watermarks = Watermarks::default();
        assert_eq!((watermarks.least(), watermarks.greatest()), (Seqno::ZERO, Seqno::ZERO));
        watermarks.raise(Consumer::Levels, Seqno(7));
        watermarks.raise(Consumer::Levels, Seqno(5));
        assert_eq!(watermarks.of(Consumer::Levels), Seqno(7));
        assert_eq!(watermarks.raised(&Watermarks::only(Consumer::Levels, Seqno(9))).least(), Seqno(9));
        assert_eq!(watermarks.least(), Seqno(7));
    }

    #[test]
    fn a_consumer_is_known_by_its_stored_number() {
        for consumer in Consumer::ALL {
            assert_eq!(Consumer::from_stored(consumer.to_stored()), Some(consumer));
        }
        assert_eq!(Consumer::from_stored(0), None);
    }
}
