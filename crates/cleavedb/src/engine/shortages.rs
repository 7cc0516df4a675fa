//! Shortages: background jobs that storage refused space or a file descriptor. Such a job has changed nothing and is
//! tried again. Each need has its own delay, which doubles with each failure, so that a compaction too large for the
//! free space does not repeatedly take it from flushes. Used by `work.rs` and the scheduler.

use std::time::Duration;

use crate::base::{Error, Result};

/// The first wait; each further one is twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(100);

/// The purpose of a job, for which it needs space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// Flushes, which shrink the front.
    Flush,
    /// The next log.
    Log,
    /// Compactions.
    Compaction,
    /// Value GC.
    Collection,
    /// The reserve for a full disk.
    Reserve,
    /// Moves of files to another directory.
    Move,
}

impl Need {
    /// In order of their numbers.
    const ALL: [Need; 6] = [Need::Flush, Need::Log, Need::Compaction, Need::Collection, Need::Reserve, Need::Move];

    /// The longest delay. Flushes and logs are tried often, because writers stop without them.
    fn wait_max(self) -> Duration {
        match self {
            Need::Flush | Need::Log | Need::Move => Duration::from_millis(400),
            Need::Compaction | Need::Collection | Need::Reserve => Duration::from_secs(6),
        }
    }
}

struct Shortage {
    /// The number of the job that failed.
    number: u64,
    error: Error,
    wait: Duration,
    /// When to try again.
    until: Duration,
}

impl Shortage {
    /// When it is forgotten. The threads that try again wake up at the end of the delay, as does the one that forgets it.
    fn expires_at(&self) -> Duration {
        self.until.saturating_add(WAIT_FIRST)
    }
}

/// The needs that storage refused last time.
#[derive(Default)]
pub(crate) struct Shortages {
    of: [Option<Shortage>; 6],
}

impl Shortages {
    /// Notes that storage refused the need of the job with this number.
    pub fn note(&mut self, need: Need, number: u64, error: Error, now: Duration) {
        let of = &mut self.of[need as usize];
        let wait = of.as_ref().map_or(WAIT_FIRST, |before| (before.wait * 2).min(need.wait_max()));
        *of = Some(Shortage { number, error, wait, until: now.saturating_add(wait) });
    }

    /// Notes that the need was met.
    pub fn clear(&mut self, need: Need) {
        self.of[need as usize] = None;
    }

    /// True if a job with this need may begin.
    pub fn may_try(&self, need: Need, now: Duration) -> bool {
        self.of[need as usize].as_ref().is_none_or(|shortage| shortage.until <= now)
    }

    /// Ends the delay of a need, because a caller waits for it.
    pub fn try_now(&mut self, need: Need) {
        if let Some(shortage) = &mut self.of[need as usize] {
            shortage.until = Duration::ZERO;
        }
    }

    /// True if this need was refused last time.
    pub fn is_unmet(&self, need: Need) -> bool {
        self.of[need as usize].is_some()
    }

    /// True if some need is not met.
    pub fn any(&self) -> bool {
        self.of.iter().any(Option::is_some)
    }

    /// The time until the next try, or until a shortage [expires](Shortages::expire).
    pub fn next_try(&self, now: Duration) -> Duration {
        let times = self.of.iter().flatten().flat_map(|shortage| [shortage.until, shortage.expires_at()]);
        times.map(|time| time.saturating_sub(now)).filter(|wait| !wait.is_zero()).min().unwrap_or(WAIT_FIRST)
    }

    /// Forgets the shortages whose jobs are no longer due: none has begun for a while after the delay, in any thread,
    /// and `is_running` says that none runs. A job that runs now may fail again, and then waits for twice as long.
    pub fn expire(&mut self, now: Duration, is_running: impl Fn(Need) -> bool) {
        for (of, need) in self.of.iter_mut().zip(Need::ALL) {
            of.take_if(|shortage| shortage.expires_at() <= now && !is_running(need));
        }
    }

    /// The error of a job with a number above `since` whose need was refused: `need`, or any.
    pub fn check(&self, need: Option<Need>, since: u64) -> Result<()> {
        let asked = |index: usize| need.is_none_or(|need| need as usize == index);
        let mut found = self.of.iter().enumerate().filter(|(index, _)| asked(*index)).filter_map(|(_, of)| of.as_ref());
        match found.find(|shortage| shortage.number > since) {
            Some(shortage) => Err(shortage.error.clone()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::NoSpace { path: "/full".into() }
    }

    #[test]
    fn the_delay_of_each_need_doubles_independently() {
        let mut shortages = Shortages::default();
        let mut now = Duration::from_secs(1);
        let mut waits = Vec::new();
        for number in 0..10 {
            shortages.note(Need::Compaction, number, full(), now);
            assert!(!shortages.may_try(Need::Compaction, now) && shortages.may_try(Need::Flush, now));
            waits.push(shortages.next_try(now));
            now += shortages.next_try(now);
            assert!(shortages.may_try(Need::Compaction, now));
        }
        assert_eq!(waits[..3], [WAIT_FIRST, WAIT_FIRST * 2, WAIT_FIRST * 4]);
        assert_eq!(waits[9], Need::Compaction.wait_max());
        // A successful flush does not clear the delay of compactions.
        shortages.note(Need::Flush, 10, full(), now);
        shortages.clear(Need::Flush);
        shortages.note(Need::Compaction, 11, full(), now);
        assert_eq!(shortages.next_try(now), Need::Compaction.wait_max());
        shortages.clear(Need::Compaction);
        assert!(!shortages.any());
    }

    #[test]
    fn only_shortages_of_later_jobs_are_errors() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Compaction, 7, full(), Duration::ZERO);
        assert!(shortages.check(None, 7).is_ok());
        assert!(matches!(shortages.check(None, 6), Err(Error::NoSpace { .. })));
        assert!(shortages.check(Some(Need::Flush), 6).is_ok());
    }

    #[test]
    fn a_shortage_is_forgotten_a_while_after_its_delay_unless_a_job_with_the_need_runs() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Collection, 7, full(), Duration::ZERO);
        shortages.expire(WAIT_FIRST, |_| false);
        assert!(shortages.any() && shortages.may_try(Need::Collection, WAIT_FIRST));
        assert_eq!(shortages.next_try(WAIT_FIRST), WAIT_FIRST);
        shortages.expire(WAIT_FIRST * 3, |need| need == Need::Collection);
        assert!(shortages.any());
        shortages.note(Need::Collection, 8, full(), WAIT_FIRST * 3);
        assert_eq!(shortages.next_try(WAIT_FIRST * 3), WAIT_FIRST * 2);
        shortages.expire(WAIT_FIRST * 6, |need| need == Need::Compaction);
        assert!(!shortages.any());
        for (index, need) in Need::ALL.into_iter().enumerate() {
            assert_eq!(need as usize, index);
        }
    }
}
