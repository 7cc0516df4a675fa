//! Shortages: background jobs that storage refused space or a file descriptor. Such a job has changed nothing and is
//! tried again. Each need has its own delay on each tier, which doubles with each failure, so that a compaction too large
//! for the free space does not repeatedly take it from flushes. A shortage on one tier concerns only jobs that write
//! there. Used by `work.rs` and the scheduler.

use std::time::Duration;

use crate::base::{Error, Result, Tier};

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
    /// Collection of logs of hash keyspaces, which writes to the log.
    LogCollection,
}

impl Need {
    /// In order of their numbers.
    const ALL: [Need; 7] =
        [Need::Flush, Need::Log, Need::Compaction, Need::Collection, Need::Reserve, Need::Move, Need::LogCollection];

    /// The longest delay. Flushes and logs are tried often, because writers stop without them.
    fn wait_max(self) -> Duration {
        match self {
            Need::Flush | Need::Log | Need::Move => Duration::from_millis(400),
            Need::Compaction | Need::Collection | Need::Reserve | Need::LogCollection => Duration::from_secs(6),
        }
    }
}

/// Both tiers. What storage refuses for want of a file descriptor is missing on both.
pub(crate) const TIERS: [Tier; 2] = [Tier::Fast, Tier::Slow];

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

/// The needs that storage refused last time, each on each tier.
#[derive(Default)]
pub(crate) struct Shortages {
    of: [[Option<Shortage>; TIERS.len()]; Need::ALL.len()],
}

impl Shortages {
    /// Notes that a tier refused the need of the job with this number.
    pub fn note(&mut self, need: Need, tier: Tier, number: u64, error: Error, now: Duration) {
        let of = &mut self.of[need as usize][index_of(tier)];
        let wait = of.as_ref().map_or(WAIT_FIRST, |before| (before.wait * 2).min(need.wait_max()));
        *of = Some(Shortage { number, error, wait, until: now.saturating_add(wait) });
    }

    /// Notes that a tier met the need.
    pub fn clear(&mut self, need: Need, tier: Tier) {
        self.of[need as usize][index_of(tier)] = None;
    }

    /// True if a job with this need may begin, wherever it writes.
    pub fn may_try(&self, need: Need, now: Duration) -> bool {
        TIERS.into_iter().all(|tier| self.may_try_on(need, tier, now))
    }

    /// True if a job with this need may begin that writes to this tier alone.
    pub fn may_try_on(&self, need: Need, tier: Tier, now: Duration) -> bool {
        self.of[need as usize][index_of(tier)].as_ref().is_none_or(|shortage| shortage.until <= now)
    }

    /// Ends the delays of a need, because a caller waits for it.
    pub fn try_now(&mut self, need: Need) {
        self.of[need as usize].iter_mut().flatten().for_each(|shortage| shortage.until = Duration::ZERO);
    }

    /// True if this need was refused last time.
    pub fn is_unmet(&self, need: Need) -> bool {
        self.of[need as usize].iter().any(Option::is_some)
    }

    /// True if some need is not met.
    pub fn any(&self) -> bool {
        self.all().next().is_some()
    }

    /// True if some need is not met on this tier.
    pub fn any_on(&self, tier: Tier) -> bool {
        self.of.iter().any(|of| of[index_of(tier)].is_some())
    }

    fn all(&self) -> impl Iterator<Item = &Shortage> {
        self.of.iter().flatten().flatten()
    }

    /// The time until the next try, or until a shortage [expires](Shortages::expire).
    pub fn next_try(&self, now: Duration) -> Duration {
        let times = self.all().flat_map(|shortage| [shortage.until, shortage.expires_at()]);
        times.map(|time| time.saturating_sub(now)).filter(|wait| !wait.is_zero()).min().unwrap_or(WAIT_FIRST)
    }

    /// Forgets the shortages whose jobs are no longer due: none has begun for a while after the delay, in any thread,
    /// and `is_running` says that none runs. A job that runs now may fail again, and then waits for twice as long.
    pub fn expire(&mut self, now: Duration, is_running: impl Fn(Need) -> bool) {
        for (of, need) in self.of.iter_mut().zip(Need::ALL) {
            for of in of {
                of.take_if(|shortage| shortage.expires_at() <= now && !is_running(need));
            }
        }
    }

    /// The error of a job with a number above `since` whose need was refused, on any tier: `need`, or any.
    pub fn check(&self, need: Option<Need>, since: u64) -> Result<()> {
        let asked = |index: usize| need.is_none_or(|need| need as usize == index);
        let mut found = self.of.iter().enumerate().filter(|(index, _)| asked(*index)).flat_map(|(_, of)| of).flatten();
        match found.find(|shortage| shortage.number > since) {
            Some(shortage) => Err(shortage.error.clone()),
            None => Ok(()),
        }
    }
}

fn index_of(tier: Tier) -> usize {
    match tier {
        Tier::Fast => 0,
        Tier::Slow => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Error {
        Error::no_space("/full".as_ref())
    }

    #[test]
    fn the_delay_of_each_need_doubles_independently() {
        let mut shortages = Shortages::default();
        let mut now = Duration::from_secs(1);
        let mut waits = Vec::new();
        for number in 0..10 {
            shortages.note(Need::Compaction, Tier::Slow, number, full(), now);
            assert!(!shortages.may_try(Need::Compaction, now) && shortages.may_try(Need::Flush, now));
            waits.push(shortages.next_try(now));
            now += shortages.next_try(now);
            assert!(shortages.may_try(Need::Compaction, now));
        }
        assert_eq!(waits[..3], [WAIT_FIRST, WAIT_FIRST * 2, WAIT_FIRST * 4]);
        assert_eq!(waits[9], Need::Compaction.wait_max());
        // A successful flush does not clear the delay of compactions.
        shortages.note(Need::Flush, Tier::Slow, 10, full(), now);
        shortages.clear(Need::Flush, Tier::Slow);
        shortages.note(Need::Compaction, Tier::Slow, 11, full(), now);
        assert_eq!(shortages.next_try(now), Need::Compaction.wait_max());
        shortages.clear(Need::Compaction, Tier::Slow);
        assert!(!shortages.any());
    }

    #[test]
    fn only_shortages_of_later_jobs_are_errors() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Compaction, Tier::Slow, 7, full(), Duration::ZERO);
        assert!(shortages.check(None, 7).is_ok());
        assert!(matches!(shortages.check(None, 6), Err(Error::NoSpace { .. })));
        assert!(shortages.check(Some(Need::Flush), 6).is_ok());
    }

    #[test]
    fn a_shortage_is_forgotten_a_while_after_its_delay_unless_a_job_with_the_need_runs() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Collection, Tier::Slow, 7, full(), Duration::ZERO);
        shortages.expire(WAIT_FIRST, |_| false);
        assert!(shortages.any() && shortages.may_try(Need::Collection, WAIT_FIRST));
        assert_eq!(shortages.next_try(WAIT_FIRST), WAIT_FIRST);
        shortages.expire(WAIT_FIRST * 3, |need| need == Need::Collection);
        assert!(shortages.any());
        shortages.note(Need::Collection, Tier::Slow, 8, full(), WAIT_FIRST * 3);
        assert_eq!(shortages.next_try(WAIT_FIRST * 3), WAIT_FIRST * 2);
        shortages.expire(WAIT_FIRST * 6, |need| need == Need::Compaction);
        assert!(!shortages.any());
        for (index, need) in Need::ALL.into_iter().enumerate() {
            assert_eq!(need as usize, index);
        }
    }

    #[test]
    fn a_shortage_concerns_its_tier_alone() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Compaction, Tier::Slow, 7, full(), Duration::ZERO);
        assert!(shortages.any_on(Tier::Slow) && !shortages.any_on(Tier::Fast));
        assert!(shortages.may_try_on(Need::Compaction, Tier::Fast, Duration::ZERO));
        assert!(!shortages.may_try_on(Need::Compaction, Tier::Slow, Duration::ZERO));
        assert!(!shortages.may_try(Need::Compaction, Duration::ZERO) && shortages.is_unmet(Need::Compaction));
        // Each tier has its own delay, and a success on one says nothing about the other.
        shortages.note(Need::Compaction, Tier::Slow, 8, full(), WAIT_FIRST);
        shortages.note(Need::Compaction, Tier::Fast, 9, full(), WAIT_FIRST);
        assert!(shortages.may_try_on(Need::Compaction, Tier::Fast, WAIT_FIRST * 2));
        assert!(!shortages.may_try_on(Need::Compaction, Tier::Slow, WAIT_FIRST * 2));
        shortages.clear(Need::Compaction, Tier::Fast);
        assert!(shortages.any_on(Tier::Slow) && !shortages.any_on(Tier::Fast));
        assert!(shortages.check(Some(Need::Compaction), 7).is_err());
        shortages.try_now(Need::Compaction);
        assert!(shortages.may_try(Need::Compaction, Duration::ZERO));
    }
}
