//! Statistics on the scheduler: its queues, its settings, and the last changes of these.

use std::time::Duration;

use minicbor::{Decode, Encode};

use crate::base::Tier;
use crate::engine::core::Core;
use crate::engine::job_usage::{JobTotal, JobUsage};
use crate::engine::scheduling::{Decision, DeviceLoad};
use crate::engine::tuning::tuner::{Bottleneck, Setting};
use crate::engine::view::View;

/// The scheduler of background work; see [`Scheduling`](crate::Scheduling).
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct SchedulingStats {
    /// Runs and full index tables that wait for a merge (DecouKV's IMQ).
    #[n(0)]
    pub merge_queue: usize,
    /// Jobs' worth of flushes, of tables of HL0 to be compacted, and of logs to be moved to the slow tier (DFQ).
    #[n(1)]
    pub flush_queue: f64,
    /// The settings.
    #[n(2)]
    pub setting: SettingStats,
    /// Their last changes, oldest first; at most 32.
    #[n(3)]
    pub decisions: Vec<DecisionStats>,
    /// Bytes that background work has read and written since the open, as far as it counts for
    /// [`Options::background_io_limit`](crate::Options::background_io_limit).
    #[n(4)]
    pub background_bytes: u64,
    /// Bytes per second that it may read and write now; `None` without a limit.
    #[n(5)]
    pub background_bytes_per_second: Option<u64>,
    /// What the jobs of each kind have used since the open, in the order of names.
    #[n(6)]
    #[cbor(default)]
    pub jobs: Vec<JobKindStats>,
}

/// The jobs of one kind since the open. Those that run are in [`Stats::jobs`](crate::Stats::jobs), and counted here as far as
/// their pieces have ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct JobKindStats {
    /// "flush", "compaction" and so on.
    #[n(0)]
    pub kind: String,
    /// Jobs that have ended.
    #[n(1)]
    pub count: u64,
    /// Processor time of all their threads.
    #[n(2)]
    pub cpu_time: Duration,
    /// Bytes that they read and wrote, as far as they are counted for
    /// [`Options::background_io_limit`](crate::Options::background_io_limit).
    #[n(3)]
    pub bytes: u64,
    /// Records of values that they copied ("value GC", "reorder", "collect logs") or that moved with their log ("demote logs":
    /// those that tables reference, or that are not flushed yet).
    #[n(4)]
    pub records: u64,
}

/// What the scheduler works with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct SettingStats {
    /// Runs of similar size that are merged in memory (IMTN).
    #[n(0)]
    pub merge_runs: usize,
    /// Bytes of runs in a flush (DFTS).
    #[n(1)]
    pub flush_bytes: u64,
    /// Capacity of the first level below HL0, in bytes; each level below holds ten times more.
    #[n(2)]
    pub level_base_bytes: u64,
    /// Threads that may compact at the same time.
    #[n(3)]
    pub compactions: usize,
    /// Tables at which HL0 is compacted; up to twice as many while they are small.
    #[n(4)]
    #[cbor(default)]
    pub hl0_trigger: usize,
}

/// A change of the settings, and the figures that led to it. Shares are of 1, and of the time since the sample before.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct DecisionStats {
    /// When it was, since the open.
    #[n(0)]
    pub at: Duration,
    /// What held background work up: "processors", "devices", "both" or "none"; "calm" after two seconds without a
    /// queue, "long calm" after a minute.
    #[n(1)]
    pub bottleneck: String,
    /// The length of the merge queue.
    #[n(2)]
    pub merge_queue: usize,
    /// The length of the flush queue.
    #[n(3)]
    pub flush_queue: f64,
    /// The share of the time that the processors of the machine were in use; `None` if it is unknown.
    #[n(4)]
    pub processors_busy: Option<f64>,
    /// The same of the devices: that of the fast directory, and that of the slow one if it is another.
    #[n(5)]
    pub devices: Vec<DeviceStats>,
    /// The share of the time that writers waited, added up over all of them.
    #[n(6)]
    pub writers_waiting: f64,
    /// The settings from then on.
    #[n(7)]
    pub setting: SettingStats,
    /// The tier whose device was the bottleneck.
    #[n(8)]
    #[cbor(default)]
    pub tier: Option<Tier>,
    /// What seals and merges of runs used of the time of all processors; `None` if it is unknown.
    #[n(9)]
    #[cbor(default)]
    pub merges_busy: Option<f64>,
    /// The same of compactions.
    #[n(10)]
    #[cbor(default)]
    pub compactions_busy: Option<f64>,
}

/// The load of the device of a tier.
#[derive(Debug, Clone, Default, Encode, Decode)]
#[cbor(map)]
#[non_exhaustive]
pub struct DeviceStats {
    /// The tier.
    #[n(0)]
    pub tier: Tier,
    /// The share of the time that requests were under way, those of other processes included.
    #[n(1)]
    pub busy: f64,
    /// The mean time of a request; `None` if there was none.
    #[n(2)]
    pub latency: Option<Duration>,
}

impl From<(&str, JobTotal)> for JobKindStats {
    fn from((kind, JobTotal { ended, used }): (&str, JobTotal)) -> JobKindStats {
        let JobUsage { cpu, bytes, records } = used;
        JobKindStats { kind: kind.to_owned(), count: ended, cpu_time: cpu, bytes, records }
    }
}

impl From<Setting> for SettingStats {
    fn from(setting: Setting) -> SettingStats {
        let Setting { merge_runs, flush_bytes, level_base_bytes, hl0_trigger, compactions } = setting;
        SettingStats { merge_runs, flush_bytes, level_base_bytes, hl0_trigger, compactions }
    }
}

fn name_of(bottleneck: Bottleneck) -> &'static str {
    match bottleneck {
        Bottleneck::None => "none",
        Bottleneck::Processors => "processors",
        Bottleneck::Device(_) => "devices",
        Bottleneck::Both => "both",
        Bottleneck::Calm => "calm",
        Bottleneck::LongCalm => "long calm",
    }
}

impl DecisionStats {
    /// A decision of a database that was opened at this time.
    fn of(decision: &Decision, opened_at: Duration) -> DecisionStats {
        let Decision { at, bottleneck, sample, devices, setting } = decision;
        let devices = [Tier::Fast, Tier::Slow].into_iter().zip(devices);
        let load_of = |(tier, load): (Tier, &Option<DeviceLoad>)| {
            load.map(|DeviceLoad { busy, latency }| DeviceStats { tier, busy, latency })
        };
        DecisionStats {
            at: at.saturating_sub(opened_at),
            bottleneck: name_of(*bottleneck).to_owned(),
            merge_queue: sample.merge_queue,
            flush_queue: sample.flush_queue,
            processors_busy: sample.processors,
            devices: devices.filter_map(load_of).collect(),
            writers_waiting: sample.waiting,
            setting: (*setting).into(),
            tier: if let Bottleneck::Device(tier) = bottleneck { Some(*tier) } else { None },
            merges_busy: sample.jobs.map(|jobs| jobs.merges),
            compactions_busy: sample.jobs.map(|jobs| jobs.compactions),
        }
    }
}

impl Core {
    /// The queues of background work, and how it is scheduled.
    pub fn scheduling_stats(&self, view: &View) -> SchedulingStats {
        let queues = self.queues(view);
        let decisions = self.scheduler.state.lock().decisions.clone();
        SchedulingStats {
            merge_queue: queues.merge,
            flush_queue: queues.flush,
            setting: self.scheduler.setting().into(),
            background_bytes: self.background_io.used(),
            background_bytes_per_second: self.background_io.rate(),
            jobs: self.counters.jobs.all().into_iter().map(JobKindStats::from).collect(),
            decisions: decisions.iter().map(|decision| DecisionStats::of(decision, self.opened_at)).collect(),
        }
    }
}
