//! The settings of the scheduler, and how they came about: what is sampled between two decisions, and the last decisions. The
//! decisions themselves are pure functions ([`tuning::tuner`](crate::engine::tuning::tuner)); `jobs/tune.rs` takes the samples.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::engine::tuning::settings::Scheduling;
use crate::engine::tuning::sizes::Tuning;
use crate::engine::tuning::tuner::{Bottleneck, JobShares, Limits, Policy, Sample, Setting};
use crate::io::{DeviceUsage, ProcessorTime};
use crate::sched::sync::Mutex;

/// Decisions that are kept.
const DECISIONS_MAX: usize = 32;

/// The settings that jobs work with.
pub(crate) struct Scheduler {
    pub policy: Policy,
    pub limits: Limits,
    merge_runs: AtomicUsize,
    flush_bytes: AtomicU64,
    level_base_bytes: AtomicU64,
    hl0_trigger: AtomicUsize,
    compactions: AtomicUsize,
    pub state: Mutex<SchedulerState>,
}

/// What the next decision needs of the past.
#[derive(Default)]
pub(crate) struct SchedulerState {
    /// When the next decision is due.
    pub due: Duration,
    pub before: Option<Used>,
    /// Since when nothing has waited.
    pub calm_since: Option<Duration>,
    /// The last decisions that changed a setting, oldest first.
    pub decisions: VecDeque<Decision>,
}

/// A change of the settings.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    pub at: Duration,
    pub bottleneck: Bottleneck,
    pub sample: Sample,
    /// The load of the devices, as in [`Used::devices`].
    pub devices: Vec<Option<DeviceLoad>>,
    /// The settings from then on.
    pub setting: Setting,
}

/// What was used up to a moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Used {
    pub at: Duration,
    pub processors: Option<ProcessorTime>,
    /// Processor time of merges and of compactions.
    pub merges_cpu: Duration,
    pub compactions_cpu: Duration,
    /// The devices of the directory of logs, and of that of tables if that is on another device.
    pub devices: Vec<Option<DeviceUsage>>,
    pub waited_us: u64,
    /// Bytes that background work read and wrote.
    pub background_bytes: u64,
}

/// The share of the time that a device was busy, and the mean time of a request; `None` without a request.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DeviceLoad {
    pub busy: f64,
    pub latency: Option<Duration>,
}

impl Used {
    fn elapsed(&self, before: &Used) -> f64 {
        self.at.saturating_sub(before.at).as_secs_f64().max(1e-6)
    }

    /// The share of their time in which processors were in use.
    pub fn processors_since(&self, before: &Used) -> Option<f64> {
        let (now, then) = (self.processors?, before.processors?);
        let all = now.all.saturating_sub(then.all);
        (all > 0).then(|| now.busy.saturating_sub(then.busy) as f64 / all as f64)
    }

    /// What jobs used of the processors.
    pub fn jobs_since(&self, before: &Used) -> Option<JobShares> {
        let processors = self.processors?.count.max(1) as f64;
        let share =
            |now: Duration, then: Duration| now.saturating_sub(then).as_secs_f64() / self.elapsed(before) / processors;
        Some(JobShares {
            merges: share(self.merges_cpu, before.merges_cpu),
            compactions: share(self.compactions_cpu, before.compactions_cpu),
        })
    }

    /// The load of each device; `None` where it is unknown.
    pub fn devices_since(&self, before: &Used) -> Vec<Option<DeviceLoad>> {
        let load = |(now, then): (&Option<DeviceUsage>, &Option<DeviceUsage>)| {
            let (now, then) = (now.as_ref()?, then.as_ref()?);
            let requests = now.requests.saturating_sub(then.requests);
            let took = now.request_time.saturating_sub(then.request_time);
            let busy = now.busy_time.saturating_sub(then.busy_time).as_secs_f64() / self.elapsed(before);
            let latency = (requests > 0).then(|| took.div_f64(requests as f64));
            Some(DeviceLoad { busy: busy.min(1.0), latency })
        };
        self.devices.iter().zip(&before.devices).map(load).collect()
    }

    /// Bytes per second of the devices that background work did not use: mostly those of users.
    pub fn foreground_since(&self, before: &Used) -> f64 {
        let bytes = |used: &Used| -> u64 {
            used.devices.iter().flatten().map(|device| device.read_bytes + device.written_bytes).sum()
        };
        let background = self.background_bytes.saturating_sub(before.background_bytes);
        bytes(self).saturating_sub(bytes(before)).saturating_sub(background) as f64 / self.elapsed(before)
    }

    /// The share of the time that writers waited, added up over all of them.
    pub fn waiting_since(&self, before: &Used) -> f64 {
        self.waited_us.saturating_sub(before.waited_us) as f64 / 1e6 / self.elapsed(before)
    }
}

impl Scheduler {
    pub fn new(scheduling: Scheduling, tuning: &Tuning) -> Scheduler {
        let limits = scheduling.limits(tuning);
        Scheduler {
            policy: scheduling.policy(),
            limits,
            merge_runs: AtomicUsize::new(limits.rest.merge_runs),
            flush_bytes: AtomicU64::new(limits.rest.flush_bytes),
            level_base_bytes: AtomicU64::new(limits.rest.level_base_bytes),
            hl0_trigger: AtomicUsize::new(limits.rest.hl0_trigger),
            compactions: AtomicUsize::new(limits.rest.compactions),
            state: Mutex::default(),
        }
    }

    /// The current settings.
    pub fn setting(&self) -> Setting {
        Setting {
            merge_runs: self.merge_runs.load(Ordering::Relaxed),
            flush_bytes: self.flush_bytes.load(Ordering::Relaxed),
            level_base_bytes: self.level_base_bytes.load(Ordering::Relaxed),
            hl0_trigger: self.hl0_trigger.load(Ordering::Relaxed),
            compactions: self.compactions.load(Ordering::Relaxed),
        }
    }

    /// How much larger flushes are than at rest; 1 if they are not.
    pub fn flush_growth(&self) -> f64 {
        (self.setting().flush_bytes as f64 / self.limits.rest.flush_bytes.max(1) as f64).max(1.0)
    }

    /// Works with other settings from now on.
    pub fn set(&self, setting: Setting) {
        self.merge_runs.store(setting.merge_runs, Ordering::Relaxed);
        self.flush_bytes.store(setting.flush_bytes, Ordering::Relaxed);
        self.level_base_bytes.store(setting.level_base_bytes, Ordering::Relaxed);
        self.hl0_trigger.store(setting.hl0_trigger, Ordering::Relaxed);
        self.compactions.store(setting.compactions, Ordering::Relaxed);
    }
}

impl SchedulerState {
    /// Keeps a decision for the statistics.
    pub fn keep(&mut self, decision: Decision) {
        if self.decisions.len() == DECISIONS_MAX {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(ms: u64, busy: u64, requests: u64) -> Used {
        let device = DeviceUsage {
            number: 7,
            requests,
            request_time: Duration::from_millis(requests * 3),
            busy_time: Duration::from_millis(ms / 4),
            read_bytes: ms * 7,
            written_bytes: ms,
        };
        Used {
            at: Duration::from_millis(ms),
            processors: Some(ProcessorTime { busy, all: ms, count: 4 }),
            merges_cpu: Duration::from_millis(ms / 5),
            compactions_cpu: Duration::from_millis(ms / 10),
            devices: vec![Some(device), None],
            waited_us: ms * 10,
            background_bytes: ms * 3,
        }
    }

    #[test]
    fn loads_are_shares_of_the_time_between_two_samples() {
        let (before, after) = (used(1000, 100, 7), used(3000, 600, 17));
        assert_eq!(after.processors_since(&before), Some(0.25));
        let load = DeviceLoad { busy: 0.25, latency: Some(Duration::from_millis(3)) };
        assert_eq!(after.devices_since(&before), [Some(load), None]);
        assert!((after.waiting_since(&before) - 0.01).abs() < 1e-9);
        assert_eq!(after.foreground_since(&before), 5000.0);
        assert_eq!(after.jobs_since(&before), Some(JobShares { merges: 0.05, compactions: 0.025 }));
        assert_eq!(Used { processors: None, ..after.clone() }.jobs_since(&before), None);
        assert_eq!(after.processors_since(&after), None);
        assert_eq!(after.devices_since(&after)[0], Some(DeviceLoad { busy: 0.0, latency: None }));
        assert_eq!(Used::default().processors_since(&after), None);
    }

    #[test]
    fn the_last_decisions_are_kept() {
        let mut state = SchedulerState::default();
        let setting = Scheduler::new(Scheduling::Auto, &Tuning::tiny()).setting();
        (0..DECISIONS_MAX as u64 + 3).for_each(|second| {
            let at = Duration::from_secs(second);
            let (bottleneck, sample, devices) = (Bottleneck::Both, Sample::default(), Vec::new());
            state.keep(Decision { at, bottleneck, sample, devices, setting });
        });
        assert_eq!((state.decisions.len(), state.decisions[0].at), (DECISIONS_MAX, Duration::from_secs(3)));
    }
}
