//! Very many operands of one key in the front: a read of the key applies all of them, and nothing else may come that seals or
//! flushes them. So the read asks for that (`engine/read/get.rs`), and a job does it (`engine/jobs/seal_front.rs`).

use std::time::Duration;

use crate::base::Seqno;
use crate::base::key_versions::KeyVersions;
use crate::engine::buckets::is_crowd;
use crate::engine::view::Sources;
use crate::sched::clock::now;

/// Either is done for readers at most once in this time, so that a key that is merged into and read all the time does not keep the
/// front small.
const RELIEVED_EVERY: Duration = Duration::from_secs(1);

/// What leaves fewer operands to reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Relief {
    /// In a run, operands that can be combined are.
    Seal,
    /// The flush, or the upkeep of the bucket after it, folds the others.
    Flush,
}

impl Relief {
    /// What helps readers that find `versions` of a key, whose operands a flush may write to a bucket. In the levels a flush
    /// folds them only if it carries the base, too: otherwise they would lie in a table as they lie in the runs.
    pub fn of(sources: &Sources, versions: &KeyVersions, goes_to_bucket: bool) -> Option<Relief> {
        let deltas = versions.deltas();
        let since = |first: Seqno| deltas.partition_point(|(stamp, _)| stamp.seqno() >= first);
        let first_of_active = sources.active.seqnos().map(|(first, _)| first);
        if first_of_active.is_some_and(|first| is_crowd(since(first))) {
            return Some(Relief::Seal);
        }
        // The seal of the others is under way.
        let first_in_tables = sources.sealed.last().and_then(|table| table.seqnos()).map(|(first, _)| first);
        let in_tables = first_in_tables.or(first_of_active).map_or(0, since);
        let first = sources.runs.last()?.seqnos().0;
        let is_folded =
            || since(first) == deltas.len() && (versions.base_seqno() >= first || versions.base().is_none());
        (is_crowd(since(first) - in_tables) && (goes_to_bucket || is_folded())).then_some(Relief::Flush)
    }
}

/// What readers ask for.
#[derive(Default)]
pub(crate) struct CrowdedFront {
    asked: Option<Relief>,
    sealed_at: Option<Duration>,
    flushed_at: Option<Duration>,
}

impl CrowdedFront {
    /// A reader asks. True if that is news.
    pub fn ask(&mut self, relief: Relief) -> bool {
        self.ask_at(relief, now())
    }

    fn ask_at(&mut self, relief: Relief, now: Duration) -> bool {
        let last = match relief {
            Relief::Seal => &mut self.sealed_at,
            Relief::Flush => &mut self.flushed_at,
        };
        let is_news = last.is_none_or(|last| now.saturating_sub(last) >= RELIEVED_EVERY);
        if is_news {
            *last = Some(now);
            self.asked = Some(relief);
        }
        is_news
    }

    /// What was asked for and is not done yet.
    pub fn asked(&self) -> Option<Relief> {
        self.asked
    }

    /// A job does what was asked for.
    pub fn take(&mut self) -> Option<Relief> {
        self.asked.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_and_flushes_are_done_for_readers_at_most_once_in_a_second() {
        let mut front = CrowdedFront::default();
        let at = Duration::from_millis;
        assert!(front.ask_at(Relief::Seal, at(100)) && !front.ask_at(Relief::Seal, at(101)));
        assert_eq!((front.take(), front.take()), (Some(Relief::Seal), None));
        assert!(!front.ask_at(Relief::Seal, at(1099)) && front.asked().is_none());
        assert!(front.ask_at(Relief::Flush, at(200)) && front.asked() == Some(Relief::Flush));
        assert!(front.ask_at(Relief::Seal, at(1100)) && !front.ask_at(Relief::Flush, at(1199)));
    }
}
