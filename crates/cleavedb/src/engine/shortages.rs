//! What background jobs could not get of storage: space, or a file descriptor. Nothing of such a job was done, so it is
//! tried again. Each kind of job waits by itself, longer each time, so that a compaction too large for the space that is
//! left does not fill it up for flushes again and again.

use std::time::Duration;

use crate::base::{Error, Result};

/// The first wait; each further one is twice as long.
const WAIT_FIRST: Duration = Duration::from_millis(100);

/// What a job is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// The front gets smaller.
    Flush,
    /// The next log.
    Log,
    /// Levels keep their shape.
    Compaction,
    /// Files of values give their space back.
    Collection,
    /// Space is set apart for a full disk.
    Reserve,
}

impl Need {
    /// The longest wait. Writers stop without flushes and logs, so these are tried often.
    fn wait_max(self) -> Duration {
        match self {
            Need::Flush | Need::Log => Duration::from_millis(400),
            Need::Compaction | Need::Collection | Need::Reserve => Duration::from_secs(6),
        }
    }
}

struct Shortage {
    /// The job that told of it.
    number: u64,
    error: Error,
    wait: Duration,
    /// When to try again.
    until: Duration,
}

/// The needs that are not met now.
#[derive(Default)]
pub(crate) struct Shortages {
    of: [Option<Shortage>; 5],
}

impl Shortages {
    /// The job with this number did not get what it needed.
    pub fn note(&mut self, need: Need, number: u64, error: Error, now: Duration) {
        let of = &mut self.of[need as usize];
        let wait = of.as_ref().map_or(WAIT_FIRST, |before| (before.wait * 2).min(need.wait_max()));
        *of = Some(Shortage { number, error, wait, until: now.saturating_add(wait) });
    }

    /// It was met.
    pub fn clear(&mut self, need: Need) {
        self.of[need as usize] = None;
    }

    /// A job for it may be begun.
    pub fn may_try(&self, need: Need, now: Duration) -> bool {
        self.of[need as usize].as_ref().is_none_or(|shortage| shortage.until <= now)
    }

    /// Someone waits for it: no matter how long the wait was to be.
    pub fn try_now(&mut self, need: Need) {
        if let Some(shortage) = &mut self.of[need as usize] {
            shortage.until = Duration::ZERO;
        }
    }

    /// Some need is not met.
    pub fn any(&self) -> bool {
        self.of.iter().any(Option::is_some)
    }

    /// How long until the next try.
    pub fn next_try(&self, now: Duration) -> Duration {
        let waits = self.of.iter().flatten().map(|shortage| shortage.until.saturating_sub(now));
        waits.filter(|wait| !wait.is_zero()).min().unwrap_or(WAIT_FIRST)
    }

    /// Forgets what could be tried again and is not wanted any more.
    pub fn expire(&mut self, now: Duration) {
        for of in &mut self.of {
            of.take_if(|shortage| shortage.until <= now);
        }
    }

    /// An error if a job that was started after number `since` did not get what it needed (`need`, or anything).
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
    fn waits_grow_for_each_need_by_itself() {
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
        // A flush that works says nothing about compactions.
        shortages.note(Need::Flush, 10, full(), now);
        shortages.clear(Need::Flush);
        shortages.note(Need::Compaction, 11, full(), now);
        assert_eq!(shortages.next_try(now), Need::Compaction.wait_max());
        shortages.clear(Need::Compaction);
        assert!(!shortages.any());
    }

    #[test]
    fn only_what_was_tried_since_is_an_error() {
        let mut shortages = Shortages::default();
        shortages.note(Need::Compaction, 7, full(), Duration::ZERO);
        assert!(shortages.check(None, 7).is_ok());
        assert!(matches!(shortages.check(None, 6), Err(Error::NoSpace { .. })));
        assert!(shortages.check(Some(Need::Flush), 6).is_ok());
        shortages.expire(Duration::from_millis(50));
        assert!(shortages.any());
        shortages.expire(WAIT_FIRST);
        assert!(!shortages.any());
    }
}
