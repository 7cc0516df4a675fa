//! The tuner: pure functions from samples of the queues of background work and of the machine to the settings of the
//! scheduler (DecouKV, section 4.3; decision record 047). `engine/scheduling.rs` takes the samples and keeps the settings.
//!
//! Two queues show what is behind. The *merge queue* (IMQ) holds the runs that wait for a merge, which needs processors; the
//! *flush queue* (DFQ) what waits to be written: flushes, tables of HL0 and logs to be demoted. A queue that is long while its
//! resource is busy makes that resource the bottleneck, and the settings give it less to do. Of two tiers that one counts whose
//! device is busy and that the waiting jobs bind.

use std::time::Duration;

use crate::base::Tier;

/// The merge queue is long at more than this many times the runs of one merge.
const MERGE_SCORE: f64 = 1.5;
/// The flush queue is long at this many jobs.
const FLUSH_SCORE: f64 = 3.0;
/// The processors, or a device, are busy from this share of the time on.
const PROCESSORS_BUSY: f64 = 0.9;
const DEVICE_BUSY: f64 = 0.8;
/// A tier holds the flush queue up only if at least this many of its jobs bind it.
const TIER_JOBS_MIN: f64 = 1.0;
/// Merges and compactions that use less than this share of the processors leave nothing to be spared.
const JOBS_MIN: f64 = 0.05;
/// Runs of one merge (IMTN).
pub(crate) const MERGE_RUNS_MIN: usize = 2;
pub(crate) const MERGE_RUNS_MAX: usize = 16;
const MERGE_RUNS_STEP: usize = 2;
/// Nothing is changed for a queue while writers wait less than this share of the time.
const WAITING_MIN: f64 = 0.05;
/// The runs of a merge return to those at rest after this part of the time for all else: merges are soon made up for.
const MERGES_CALM_PART: u32 = 30;
/// With [`Policy::Adoc`] a stage overflows from this fill on.
const OVERFLOWS_AT: f64 = 0.5;

/// How the settings follow the samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// As the module says; with `elastic`, the capacities of levels follow the size of flushes.
    Auto { elastic: bool },
    /// Never.
    Static,
    /// Threads and the size of flushes follow the overflow of stages (ADOC, FAST'23).
    Adoc,
}

/// What the scheduler works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Setting {
    /// Runs are merged once there are this many of similar size (IMTN).
    pub merge_runs: usize,
    /// A flush takes about this many bytes of runs (DFTS).
    pub flush_bytes: u64,
    /// Capacity of HL1; each level below holds ten times more.
    pub level_base_bytes: u64,
    /// HL0 is compacted once it has this many tables, or up to twice as many while they are small.
    pub hl0_trigger: usize,
    /// Threads that may compact at the same time.
    pub compactions: usize,
}

/// What the settings may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Where they begin, and what they return to when it is calm.
    pub rest: Setting,
    pub flush_bytes_min: u64,
    pub flush_bytes_max: u64,
    pub hl0_trigger_max: usize,
    /// It has been calm for long after this time without a queue.
    pub calm_after: Duration,
}

impl Limits {
    /// A size of flushes within the limits.
    pub fn clamp(&self, flush_bytes: u64) -> u64 {
        flush_bytes.clamp(self.flush_bytes_min, self.flush_bytes_max)
    }

    /// The capacity of HL1 for flushes of this size: in proportion, but never less than at rest.
    fn level_base_for(&self, flush_bytes: u64) -> u64 {
        let grown = u128::from(self.rest.level_base_bytes) * u128::from(flush_bytes);
        let grown = grown / u128::from(self.rest.flush_bytes.max(1));
        u64::try_from(grown).unwrap_or(u64::MAX).max(self.rest.level_base_bytes)
    }
}

/// The load of a tier.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct TierLoad {
    /// How many of the jobs in the flush queue bind it.
    pub jobs: f64,
    /// The share of the time in which its device was busy, of 1; `None` if the system does not say.
    pub busy: Option<f64>,
    /// The mean time of a request; `None` if there was none.
    pub latency: Option<Duration>,
}

/// The shares of the time of all processors that kinds of jobs used, of 1.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct JobShares {
    /// Seals and merges of runs.
    pub merges: f64,
    /// Compactions, and rewrites of buckets.
    pub compactions: f64,
}

/// What was measured since the last decision.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Sample {
    /// Runs and sealed index tables that wait for a merge.
    pub merge_queue: usize,
    /// A merge is due, or an index table waits to become a run.
    pub merges: bool,
    /// Jobs' worth of flushes, of tables of HL0 beyond their trigger, and of logs to demote.
    pub flush_queue: f64,
    /// The share of the time in which processors were busy, of 1; `None` if the system does not say.
    pub processors: Option<f64>,
    /// What merges and compactions used of them; `None` as above.
    pub jobs: Option<JobShares>,
    /// The tiers; of one directory both are the same.
    pub fast: TierLoad,
    pub slow: TierLoad,
    /// The share of the time that writers waited.
    pub waiting: f64,
    /// How full memory of the front and HL0 are, of 1.
    pub front_fill: f64,
    pub hl0_fill: f64,
    /// How long it has been calm, this sample included.
    pub calm: Duration,
}

/// What holds background work up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    None,
    Processors,
    /// The device of this tier.
    Device(Tier),
    /// Both: writers are paced, and stopped at the limits (section 4.3.3; `write/pacing.rs`).
    Both,
    /// It has been calm for a short while.
    Calm,
    /// It has been calm for long.
    LongCalm,
}

/// Unknown shares count as busy.
fn is_busy(share: Option<f64>, from: f64) -> bool {
    share.is_none_or(|share| share >= from)
}

impl Sample {
    /// True if nothing waits: neither a merge, nor a flush, nor a writer.
    pub fn is_calm(&self) -> bool {
        !self.merges && self.flush_queue < 1.0 && self.waiting == 0.0
    }

    /// What holds background work up.
    pub fn bottleneck(&self, setting: &Setting, limits: &Limits) -> Bottleneck {
        let merges_wait = self.merge_queue as f64 / setting.merge_runs as f64 > MERGE_SCORE;
        let matters = self.waiting >= WAITING_MIN;
        let is_worth_it = self.jobs.is_none_or(|jobs| jobs.merges + jobs.compactions >= JOBS_MIN);
        let processors = matters && merges_wait && is_busy(self.processors, PROCESSORS_BUSY) && is_worth_it;
        let device = if matters { self.busy_tier() } else { None };
        match (processors, device) {
            (true, Some(_)) => Bottleneck::Both,
            (true, None) => Bottleneck::Processors,
            (false, Some(tier)) => Bottleneck::Device(tier),
            (false, None) if self.calm >= limits.calm_after => Bottleneck::LongCalm,
            (false, None) if self.calm >= limits.calm_after / MERGES_CALM_PART => Bottleneck::Calm,
            (false, None) => Bottleneck::None,
        }
    }

    /// The tier that holds a long flush queue up: of two the one whose requests take longer.
    fn busy_tier(&self) -> Option<Tier> {
        let holds_up = |load: &TierLoad| load.jobs >= TIER_JOBS_MIN && is_busy(load.busy, DEVICE_BUSY);
        match (holds_up(&self.fast), holds_up(&self.slow)) {
            _ if self.flush_queue < FLUSH_SCORE => None,
            (true, true) if self.fast.latency > self.slow.latency => Some(Tier::Fast),
            (_, true) => Some(Tier::Slow),
            (true, false) => Some(Tier::Fast),
            (false, false) => None,
        }
    }

    /// Compactions use more of the processors than merges.
    fn compacts_more(&self) -> bool {
        self.jobs.is_some_and(|jobs| jobs.compactions > jobs.merges)
    }
}

/// The next settings. O(1).
pub(crate) fn tune(policy: Policy, limits: &Limits, setting: Setting, sample: &Sample) -> (Bottleneck, Setting) {
    let bottleneck = sample.bottleneck(&setting, limits);
    let next = match policy {
        Policy::Static => setting,
        Policy::Adoc => follow_overflow(limits, setting, sample),
        Policy::Auto { elastic } => {
            let next = relieve(bottleneck, sample, limits, setting);
            let level_base_bytes =
                if elastic { limits.level_base_for(next.flush_bytes) } else { limits.rest.level_base_bytes };
            Setting { level_base_bytes, ..next }
        }
    };
    (bottleneck, next)
}

/// Gives the bottleneck less to do.
fn relieve(bottleneck: Bottleneck, sample: &Sample, limits: &Limits, setting: Setting) -> Setting {
    let rest = limits.rest;
    let Setting { merge_runs, flush_bytes, hl0_trigger, .. } = setting;
    let next = match bottleneck {
        Bottleneck::None | Bottleneck::Both => setting,
        // Fewer compactions of HL0, each of which rewrites HL1.
        Bottleneck::Processors if sample.compacts_more() && hl0_trigger < limits.hl0_trigger_max => {
            Setting { hl0_trigger: hl0_trigger * 2, ..setting }
        }
        // Merges join more runs at once. The paper's flushes become smaller without an end; here those smaller than at rest
        // cost more processor time in compactions than they spare in merges.
        Bottleneck::Processors => Setting {
            merge_runs: merge_runs + MERGE_RUNS_STEP,
            flush_bytes: (flush_bytes / 2).max(rest.flush_bytes.min(flush_bytes)),
            ..setting
        },
        // More is merged in memory, and larger flushes make fewer and larger tables. Compactions, which may wait for more of
        // them, write to the slow tier.
        Bottleneck::Device(tier) => Setting {
            merge_runs: merge_runs.saturating_sub(MERGE_RUNS_STEP),
            flush_bytes: flush_bytes * 2,
            hl0_trigger: if tier == Tier::Slow { hl0_trigger * 2 } else { hl0_trigger },
            ..setting
        },
        // Reads look into each run and each table of HL0.
        Bottleneck::Calm => Setting {
            merge_runs: merge_runs.saturating_sub(MERGE_RUNS_STEP).max(rest.merge_runs),
            hl0_trigger: rest.hl0_trigger,
            ..setting
        },
        Bottleneck::LongCalm => Setting {
            merge_runs: rest.merge_runs,
            flush_bytes: (flush_bytes / 2).max(rest.flush_bytes),
            hl0_trigger: rest.hl0_trigger,
            ..setting
        },
    };
    Setting {
        merge_runs: next.merge_runs.clamp(MERGE_RUNS_MIN, MERGE_RUNS_MAX),
        flush_bytes: limits.clamp(next.flush_bytes),
        hl0_trigger: next.hl0_trigger.min(limits.hl0_trigger_max),
        ..next
    }
}

/// The front overflows: larger flushes. HL0 overflows: smaller ones, and more threads. Else flushes as at rest, and one thread
/// less.
fn follow_overflow(limits: &Limits, setting: Setting, sample: &Sample) -> Setting {
    let rest = limits.rest;
    let (flush_bytes, compactions) = if sample.hl0_fill >= OVERFLOWS_AT {
        (setting.flush_bytes / 2, setting.compactions + 1)
    } else if sample.front_fill >= OVERFLOWS_AT {
        (setting.flush_bytes * 2, setting.compactions)
    } else {
        (rest.flush_bytes, setting.compactions.saturating_sub(1))
    };
    Setting { flush_bytes: limits.clamp(flush_bytes), compactions: compactions.clamp(1, rest.compactions), ..setting }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REST: Setting =
        Setting { merge_runs: 2, flush_bytes: 32, level_base_bytes: 256, hl0_trigger: 4, compactions: 3 };
    const LIMITS: Limits = Limits {
        rest: REST,
        flush_bytes_min: 8,
        flush_bytes_max: 64,
        hl0_trigger_max: 6,
        calm_after: Duration::from_secs(60),
    };

    fn tier(jobs: f64, busy: f64, latency_ms: u64) -> TierLoad {
        TierLoad { jobs, busy: Some(busy), latency: Some(Duration::from_millis(latency_ms)) }
    }

    /// One directory.
    fn sample(merge_queue: usize, flush_queue: f64) -> Sample {
        let (processors, load) = (Some(1.0), tier(flush_queue, 1.0, 3));
        Sample { merge_queue, flush_queue, processors, fast: load, slow: load, waiting: 0.1, ..Sample::default() }
    }

    /// Two directories.
    fn tiers(flush_queue: f64, fast: TierLoad, slow: TierLoad) -> Sample {
        Sample { fast, slow, ..sample(0, flush_queue) }
    }

    fn with_jobs(merges: f64, compactions: f64) -> Sample {
        Sample { jobs: Some(JobShares { merges, compactions }), ..sample(99, 0.0) }
    }

    fn calm(seconds: u64) -> Sample {
        Sample { calm: Duration::from_secs(seconds), waiting: 0.0, ..sample(0, 0.0) }
    }

    #[test]
    fn a_long_queue_at_a_busy_resource_is_a_bottleneck_if_writers_wait() {
        use Bottleneck::{Both, Calm, Device, LongCalm, None as Free, Processors};
        const SLOW: Bottleneck = Device(Tier::Slow);
        const FAST: Bottleneck = Device(Tier::Fast);
        let unknown = TierLoad { jobs: 3.0, ..TierLoad::default() };
        let cases = [
            (sample(0, 0.0), Free),
            (sample(3, 2.9), Free),
            (sample(4, 2.9), Processors),
            (sample(3, 3.0), SLOW),
            (sample(4, 3.0), Both),
            (Sample { waiting: 0.04, ..sample(4, 3.0) }, Free),
            (Sample { processors: Some(0.89), ..sample(9, 0.0) }, Free),
            (Sample { processors: Some(0.5), ..sample(9, 3.0) }, SLOW),
            (tiers(9.0, tier(9.0, 0.79, 3), tier(9.0, 0.79, 3)), Free),
            (Sample { processors: None, fast: unknown, slow: unknown, ..sample(4, 3.0) }, Both),
            // A busy tier that none of the jobs binds does not hold them up.
            (tiers(3.0, tier(3.0, 0.5, 1), tier(3.0, 0.9, 9)), SLOW),
            (tiers(3.0, tier(3.0, 0.9, 1), tier(3.0, 0.5, 9)), FAST),
            (tiers(3.0, tier(3.0, 0.9, 1), tier(0.9, 0.9, 9)), FAST),
            (tiers(3.0, tier(0.9, 1.0, 1), tier(3.0, 0.5, 9)), Free),
            (tiers(2.9, tier(2.9, 1.0, 1), tier(2.9, 1.0, 9)), Free),
            // Of two, the one whose requests take longer.
            (tiers(3.0, tier(1.0, 0.8, 9), tier(2.0, 0.8, 1)), FAST),
            (tiers(3.0, tier(1.0, 0.8, 1), tier(2.0, 0.8, 9)), SLOW),
            (tiers(3.0, unknown, tier(2.0, 0.5, 9)), FAST),
            // Jobs that hardly use the processors spare nothing.
            (with_jobs(0.02, 0.02), Free),
            (with_jobs(0.05, 0.0), Processors),
            (with_jobs(0.0, 0.05), Processors),
            (calm(1), Free),
            (calm(2), Calm),
            (calm(59), Calm),
            (calm(60), LongCalm),
            // A queue ends the calm.
            (Sample { calm: Duration::from_secs(60), ..sample(4, 0.0) }, Processors),
        ];
        for (sample, wanted) in cases {
            assert_eq!(sample.bottleneck(&REST, &LIMITS), wanted, "{sample:?}");
        }
        let wide = Setting { merge_runs: 4, ..REST };
        assert_eq!([6, 7].map(|runs| sample(runs, 0.0).bottleneck(&wide, &LIMITS)), [Free, Processors]);
        let quiet = |merge_queue, flush_queue| Sample { waiting: 0.0, ..sample(merge_queue, flush_queue) };
        // Runs that are too different to be merged disturb nobody.
        assert!(quiet(9, 0.9).is_calm());
        let merges = Sample { merges: true, ..quiet(2, 0.0) };
        let disturbed = [merges, quiet(0, 1.0), Sample { waiting: 0.01, ..quiet(0, 0.0) }];
        assert!(!disturbed.iter().any(Sample::is_calm));
    }

    /// Runs of a merge, bytes of a flush and of HL1 after each of these samples in turn.
    fn course(policy: Policy, samples: &[Sample]) -> Vec<(usize, u64, u64)> {
        let mut setting = REST;
        let step = |sample: &Sample| {
            setting = tune(policy, &LIMITS, setting, sample).1;
            (setting.merge_runs, setting.flush_bytes, setting.level_base_bytes)
        };
        samples.iter().map(step).collect()
    }

    #[test]
    fn settings_relieve_the_bottleneck_within_their_limits_and_return_when_it_is_calm() {
        let (processors, devices) = (sample(99, 0.0), sample(0, 9.0));
        let auto = Policy::Auto { elastic: true };
        let busy = course(auto, &[processors, processors, calm(2), calm(2), calm(2), calm(60)]);
        assert_eq!(busy, [(4, 32, 256), (6, 32, 256), (4, 32, 256), (2, 32, 256), (2, 32, 256), (2, 32, 256)]);
        assert_eq!(course(auto, &[processors; 9]).last(), Some(&(16, 32, 256)));
        let samples = [processors, devices, devices, calm(2), calm(60), calm(60)];
        let elastic = course(auto, &samples);
        assert_eq!(elastic, [(4, 32, 256), (2, 64, 512), (2, 64, 512), (2, 64, 512), (2, 32, 256), (2, 32, 256)]);
        assert_eq!(course(auto, &[devices, processors]), [(2, 64, 512), (4, 32, 256)]);
        let rigid = course(Policy::Auto { elastic: false }, &samples);
        assert!(rigid.iter().all(|setting| setting.2 == 256) && rigid[1].1 == 64);
        // Neither helps the other.
        assert_eq!(course(auto, &[sample(99, 9.0)]), [(2, 32, 256)]);
        assert_eq!(course(Policy::Static, &samples), [(2, 32, 256); 6]);
    }

    /// Another policy, or an earlier version of the limits, may have left other settings than those that `auto` reaches.
    #[test]
    fn settings_from_elsewhere_are_relieved_and_return_to_those_at_rest() {
        use Bottleneck::{Both, Calm, Device, LongCalm, None as Free, Processors};
        // Runs of a merge and bytes of a flush: before, and after each bottleneck.
        let cases = [
            (Free, (16, 8), (16, 8)),
            (Both, (16, 64), (16, 64)),
            // Never smaller flushes than at rest, unless they are so already.
            (Processors, (15, 64), (16, 32)),
            (Processors, (2, 32), (4, 32)),
            (Processors, (2, 8), (4, 8)),
            (Device(Tier::Fast), (3, 8), (2, 16)),
            (Device(Tier::Slow), (16, 64), (14, 64)),
            (Calm, (3, 64), (2, 64)),
            (Calm, (16, 8), (14, 8)),
            (LongCalm, (16, 64), (2, 32)),
            (LongCalm, (16, 8), (2, 32)),
        ];
        for (bottleneck, (merge_runs, flush_bytes), wanted) in cases {
            let next = relieve(bottleneck, &Sample::default(), &LIMITS, Setting { merge_runs, flush_bytes, ..REST });
            assert_eq!((next.merge_runs, next.flush_bytes), wanted, "{bottleneck:?} {merge_runs} {flush_bytes}");
            assert_eq!((next.level_base_bytes, next.compactions), (256, 3));
        }
        assert_eq!(
            [1, 31, 32, 33, 320, u64::MAX].map(|bytes| LIMITS.level_base_for(bytes)),
            [256, 256, 256, 264, 2560, u64::MAX]
        );
    }

    #[test]
    fn hl0_is_compacted_at_more_tables_while_compactions_hold_the_rest_up() {
        let triggers = |samples: &[Sample]| {
            let mut setting = REST;
            let step = |sample: &Sample| {
                setting = tune(Policy::Auto { elastic: true }, &LIMITS, setting, sample).1;
                (setting.hl0_trigger, setting.merge_runs)
            };
            samples.iter().map(step).collect::<Vec<_>>()
        };
        let slow = tiers(3.0, tier(1.0, 0.5, 1), tier(3.0, 1.0, 9));
        let fast = tiers(3.0, tier(3.0, 1.0, 9), tier(1.0, 0.5, 1));
        assert_eq!(triggers(&[slow, slow, calm(1), calm(2)]), [(6, 2), (6, 2), (6, 2), (4, 2)]);
        assert_eq!(triggers(&[slow, calm(60)]), [(6, 2), (4, 2)]);
        // Its tables lie on the fast tier, and compactions take them away.
        assert_eq!(triggers(&[fast, fast]), [(4, 2), (4, 2)]);
        // On the processors: whichever uses more has less to do.
        assert_eq!(triggers(&[with_jobs(0.3, 0.2), with_jobs(0.2, 0.2)]), [(4, 4), (4, 6)]);
        assert_eq!(triggers(&[with_jobs(0.2, 0.3), with_jobs(0.2, 0.3)]), [(6, 2), (6, 4)]);
    }

    #[test]
    fn by_overflow_the_front_makes_flushes_larger_and_hl0_makes_them_smaller_and_adds_threads() {
        let mut setting = Setting { compactions: 1, ..REST };
        let mut step = |front_fill, hl0_fill| {
            let sample = Sample { front_fill, hl0_fill, ..Sample::default() };
            setting = tune(Policy::Adoc, &LIMITS, setting, &sample).1;
            (setting.flush_bytes, setting.compactions)
        };
        let fills = [(0.5, 0.0), (0.9, 0.1), (0.9, 0.5), (0.0, 1.0), (0.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.4, 0.4)];
        assert_eq!(
            fills.map(|(front, hl0)| step(front, hl0)),
            [(64, 1), (64, 1), (32, 2), (16, 3), (8, 3), (8, 3), (32, 2), (32, 1)]
        );
    }
}
