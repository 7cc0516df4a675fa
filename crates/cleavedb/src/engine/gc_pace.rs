//! The pace of value GC: the share of the time that it works while users read and write. Garbage that is not collected
//! yet only takes space, up to the garbage limit; value GC at full speed would take a processor and the device from users
//! for minutes after many updates (decision record 040).
//!
//! The share follows from two rates: the rate of writes, multiplied by a factor that grows as garbage nears its limit; and
//! the rate that removes the excess, the garbage above that at which value GC begins, within some minutes. Value GC works
//! all the time while no user reads or writes, and while a caller waits for it, or a paced writer where nobody reads.
//!
//! A job works at least half of the time, because it keeps memory of the caches until it ends. What a smaller share leaves are
//! rests between jobs (decision record 066).

use std::time::Duration;

use crate::engine::pacer::DRAIN_FIRST;
use crate::values::candidate::BEGIN_PERCENT;

/// At this share of the garbage limit, value GC removes garbage at the rate of writes, and faster beyond.
const EVEN_AT: f64 = 0.88;
/// The excess is removed within about this time.
const REPAID_IN_S: f64 = 300.0;
/// The smallest share.
const SHARE_MIN: f64 = 0.05;
/// Users are idle after this time without reads and writes.
const IDLE_AFTER: Duration = Duration::from_millis(50);
/// The smallest share while writers wait and others read, and of a job that has begun; the share of other work that yields to
/// reads.
const SHARE_BESIDE_READS: f64 = 0.5;
/// Time constant of the moving average of the rate of writes, in seconds. Begun work is slowed down as soon as users turn from
/// writes to reads.
const RATE_MEMORY_S: f64 = 0.25;
/// Writers that have waited for their pace are taken to wait for this long. While they are paced, they wait every few
/// milliseconds.
const PACED_FOR: Duration = Duration::from_millis(250);
/// Users who have read are taken to read on for this long.
const READS_FOR: Duration = Duration::from_secs(1);

/// Totals of reads and writes since the database was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct UserTotals {
    /// Bytes written.
    pub written: u64,
    /// Number of writes that waited for their pace.
    pub waited: u64,
    /// Differs from the total before if a user has read since.
    pub reads_seen: u64,
}

/// The garbage, its limit, and the rate at which value GC removes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct GarbageDebt {
    /// Bytes of garbage.
    pub garbage: u64,
    /// The garbage limit, in bytes.
    pub limit: u64,
    /// Garbage that value GC removes while it works, in bytes per second; 0 if it was never measured.
    pub drain: u64,
}

/// The activity of users, which value GC measures while it works.
#[derive(Debug, Default)]
pub(crate) struct GcPace {
    /// When the totals last changed, and the totals then.
    last: Option<(Duration, UserTotals)>,
    /// When the rate was last measured, and the bytes written by then.
    measured: (Duration, u64),
    /// Bytes that users write per second.
    write_rate: f64,
    /// When writes were last seen to wait.
    waited_at: Option<Duration>,
    /// When somebody was last seen to read.
    read_at: Option<Duration>,
    /// The job that ended last.
    last_job: Option<EndedJob>,
}

/// A job that has ended: how long it worked, and how long it paused or waited for the limit on I/O.
#[derive(Debug, Clone, Copy)]
struct EndedJob {
    ended: Duration,
    worked: Duration,
    paused: Duration,
}

/// The share of a job that has begun, where value GC has `share`.
pub(crate) fn share_of_job(share: f64) -> f64 {
    share.max(SHARE_BESIDE_READS)
}

impl GcPace {
    /// Measures the activity of users; true if nobody reads or writes.
    pub fn is_at_rest(&mut self, now: Duration, totals: UserTotals) -> bool {
        match self.last {
            None => (self.last, self.measured) = (Some((now, totals)), (now, totals.written)),
            Some((_, before)) if before != totals => {
                if before.waited != totals.waited {
                    self.waited_at = Some(now);
                }
                if before.reads_seen != totals.reads_seen {
                    self.read_at = Some(now);
                }
                self.last = Some((now, totals));
            }
            Some((then, _)) => return now.saturating_sub(then) >= IDLE_AFTER,
        }
        false
    }

    /// Measures the activity of users and returns the share of the time that value GC works, above 0 and at most 1.
    pub fn share(&mut self, now: Duration, totals: UserTotals, debt: GarbageDebt) -> f64 {
        if self.is_at_rest(now, totals) {
            return 1.0;
        }
        let least = match (self.writers_wait(now), self.users_read(now)) {
            (true, false) => return 1.0,
            (true, true) => SHARE_BESIDE_READS,
            (false, _) => SHARE_MIN,
        };
        let (then, written) = self.measured;
        let elapsed = now.saturating_sub(then).as_secs_f64();
        if elapsed >= IDLE_AFTER.as_secs_f64() {
            let rate = totals.written.saturating_sub(written) as f64 / elapsed;
            self.write_rate += (1.0 - (-elapsed / RATE_MEMORY_S).exp()) * (rate - self.write_rate);
            self.measured = (now, totals.written);
        }
        share(debt, self.write_rate).max(least)
    }

    /// A job has ended that began at `began`, and has paused for this time.
    pub fn note_ended(&mut self, began: Duration, paused: Duration, now: Duration) {
        let worked = now.saturating_sub(began).saturating_sub(paused);
        self.last_job = Some(EndedJob { ended: now, worked, paused });
    }

    /// How long no other job begins yet, where value GC has `share`.
    pub fn rests_for(&self, now: Duration, share: f64) -> Duration {
        let Some(EndedJob { ended, worked, paused }) = self.last_job else { return Duration::ZERO };
        // While it pauses half of the time, it works as long as it pauses. What it did without pauses needs no rest.
        let rest = worked.min(paused).mul_f64(1.0 / share - 1.0).saturating_sub(paused);
        (ended + rest).saturating_sub(now)
    }

    /// True if value GC rests, or has rested within `lately`, whatever its share.
    pub fn may_rest(&self, now: Duration, lately: Duration) -> bool {
        !self.rests_for(now.saturating_sub(lately), SHARE_MIN).is_zero()
    }

    /// Measures the activity of users and returns the share of the time that work takes which yields to reads. Writers that wait may
    /// do so for such work.
    pub fn share_beside_reads(&mut self, now: Duration, totals: UserTotals) -> f64 {
        match !self.is_at_rest(now, totals) && self.users_read(now) && !self.writers_wait(now) {
            true => SHARE_BESIDE_READS,
            false => 1.0,
        }
    }

    /// True if somebody was lately seen to read.
    pub fn users_read(&self, now: Duration) -> bool {
        is_within(READS_FOR, self.read_at, now)
    }

    fn writers_wait(&self, now: Duration) -> bool {
        is_within(PACED_FOR, self.waited_at, now)
    }
}

fn is_within(time: Duration, at: Option<Duration>, now: Duration) -> bool {
    at.is_some_and(|at| now.saturating_sub(at) < time)
}

/// The share for users that write `write_rate` bytes per second.
fn share(debt: GarbageDebt, write_rate: f64) -> f64 {
    let begin = BEGIN_PERCENT as f64 / 100.0;
    let fill = debt.garbage as f64 / debt.limit.max(1) as f64;
    let urgency = ((fill - begin) / (EVEN_AT - begin)).max(0.0);
    let excess = (fill - begin).max(0.0) * debt.limit as f64;
    let wanted = urgency * write_rate + excess / REPAID_IN_S;
    let drain = if debt.drain > 0 { debt.drain as f64 } else { DRAIN_FIRST };
    (wanted / drain).clamp(SHARE_MIN, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn debt(garbage: u64) -> GarbageDebt {
        GarbageDebt { garbage, limit: 1_000_000_000, drain: 50_000_000 }
    }

    fn at(ms: u64, written: u64, reads_seen: u64) -> (Duration, UserTotals) {
        (Duration::from_millis(ms), UserTotals { written, reads_seen, waited: 0 })
    }

    #[test]
    fn the_share_grows_with_the_debt_and_with_what_users_write() {
        assert_eq!(share(debt(600_000_000), 0.0), SHARE_MIN);
        // What is above the beginning, over five minutes.
        assert!((share(debt(2_700_000_000), 0.0) - 2e9 / REPAID_IN_S / 50e6).abs() < 1e-6);
        assert_eq!(share(debt(1_000_000_000), 50e6), 1.0);
        let shares = [0.0, 10e6, 20e6, 40e6].map(|rate| share(debt(790_000_000), rate));
        assert!(shares.is_sorted() && shares[1] > shares[0], "{shares:?}");
        let shares = [660, 720, 770, 800, 990].map(|garbage| share(debt(garbage * 1_000_000), 10e6));
        assert!(shares.is_sorted() && shares[4] < 1.0, "{shares:?}");
        // As many bytes as users write are removed before the limit is near, whatever they write.
        assert!(share(debt(880_000_000), 30e6) * 50e6 >= 30e6);
    }

    #[test]
    fn garbage_settles_below_its_limit_for_any_rate_of_writes_that_can_be_kept_up_with() {
        for (rate, begin) in [0.0, 5e6, 20e6, 49e6].into_iter().flat_map(|rate| [(rate, 500e6), (rate, 2e9)]) {
            let mut garbage: f64 = begin;
            for _ in 0..3_600 {
                garbage += rate - share(debt(garbage as u64), rate) * 50e6;
                garbage = garbage.max(0.0);
            }
            assert!(garbage < 1e9, "{rate} from {begin}: {garbage}");
        }
    }

    #[test]
    fn garbage_without_a_limit_and_drains_not_yet_measured_have_a_share() {
        assert_eq!(share(GarbageDebt { garbage: 0, limit: 0, drain: 0 }, 0.0), SHARE_MIN);
        assert_eq!(share(GarbageDebt { garbage: 1, limit: 0, drain: 0 }, 64e6), 1.0);
        let unknown = GarbageDebt { drain: 0, ..debt(790_000_000) };
        let wanted = 0.5 * 20e6 + 90e6 / REPAID_IN_S;
        assert!((share(unknown, 20e6) - wanted / DRAIN_FIRST).abs() < 1e-6);
    }

    #[test]
    fn value_gc_works_all_the_time_once_nobody_reads_or_writes_and_while_writers_wait() {
        let mut pace = GcPace::default();
        let mut share = |(now, totals)| pace.share(now, totals, debt(700_000_000));
        assert!(share(at(0, 0, 0)) < 1.0);
        assert!(share(at(40, 0, 0)) < 1.0);
        assert_eq!(share(at(60, 0, 0)), 1.0);
        assert!(share(at(70, 0, 1)) < 1.0, "somebody reads");
        assert!(share(at(100, 0, 1)) < 1.0);
        assert_eq!(share(at(130, 0, 1)), 1.0);
        assert!(share(at(140, 1, 1)) < 1.0, "somebody writes");
        let (now, totals) = at(1_150, 2, 1);
        assert_eq!(share((now, UserTotals { waited: 1, ..totals })), 1.0, "writers wait");
        let (now, totals) = at(1_390, 3, 1);
        assert_eq!(share((now, UserTotals { waited: 1, ..totals })), 1.0);
        let (now, totals) = at(1_410, 4, 1);
        assert!(
            share((now, UserTotals { waited: 1, ..totals })) < 1.0,
            "they have not waited for a quarter of a second"
        );
    }

    #[test]
    fn value_gc_works_half_of_the_time_for_writers_that_wait_while_others_read() {
        let mut pace = GcPace::default();
        let mut share = |(now, totals), waited| pace.share(now, UserTotals { waited, ..totals }, debt(700_000_000));
        assert!(share(at(0, 0, 0), 0) < SHARE_BESIDE_READS);
        assert_eq!(share(at(10, 1, 1), 1), SHARE_BESIDE_READS);
        assert_eq!(share(at(900, 2, 1), 2), SHARE_BESIDE_READS);
        assert_eq!(share(at(1_020, 3, 1), 3), 1.0, "nobody has read for a second");
    }

    #[test]
    fn what_a_job_has_not_paused_is_a_rest_before_the_next_one() {
        let ms = Duration::from_millis;
        let mut pace = GcPace::default();
        assert_eq!([pace.rests_for(ms(0), SHARE_MIN), pace.rests_for(ms(9), 1.0)], [Duration::ZERO; 2]);
        assert!(!pace.may_rest(ms(9), ms(50)));
        // It worked for 100 ms, and paused for 100.
        pace.note_ended(ms(1_000), ms(100), ms(1_200));
        assert_eq!(pace.rests_for(ms(1_200), 0.1), ms(800));
        assert_eq!(pace.rests_for(ms(1_500), 0.1), ms(500));
        // Writers wait, or nobody reads or writes.
        assert_eq!(
            [pace.rests_for(ms(1_200), SHARE_BESIDE_READS), pace.rests_for(ms(1_200), 1.0)],
            [Duration::ZERO; 2]
        );
        assert_eq!(pace.rests_for(ms(2_000), 0.1), Duration::ZERO);
        // The longest rest has 18 times its pauses.
        assert_eq!([3_000, 3_040, 3_060].map(|now| pace.may_rest(ms(now), ms(50))), [true, true, false]);
        // One that did not have to pause, and one that waited for the limit on I/O.
        pace.note_ended(ms(3_000), Duration::ZERO, ms(9_000));
        assert_eq!(pace.rests_for(ms(9_000), SHARE_MIN), Duration::ZERO);
        pace.note_ended(ms(3_000), ms(5_500), ms(9_000));
        assert_eq!(pace.rests_for(ms(9_000), SHARE_MIN), ms(4_000));
        assert_eq!([share_of_job(SHARE_MIN), share_of_job(0.7), share_of_job(1.0)], [SHARE_BESIDE_READS, 0.7, 1.0]);
    }

    #[test]
    fn the_rate_of_writes_is_that_of_the_last_half_second_or_so() {
        let mut pace = GcPace::default();
        for step in 0..100 {
            // 40 MB/s.
            let (now, totals) = at(step * 50, step * 2_000_000, 0);
            pace.share(now, totals, debt(0));
        }
        assert!((pace.write_rate - 40e6).abs() < 1e6, "{}", pace.write_rate);
        // A second later.
        let (now, totals) = at(5_950, 99 * 2_000_000, 1);
        pace.share(now, totals, debt(0));
        assert!(pace.write_rate < 1e6, "{}", pace.write_rate);
    }
}
