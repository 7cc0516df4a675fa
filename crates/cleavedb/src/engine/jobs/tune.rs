//! Tuning: samples the queues and the machine a few times a second, and lets the tuner decide. At the ends of jobs, and in
//! the thread for logs so that a calm is noticed.

use std::sync::atomic::Ordering;

use crate::engine::core::Core;
use crate::engine::scheduling::{Decision, DeviceLoad, Used};
use crate::engine::tuning::tuner::{Policy, Sample, TierLoad, tune};
use crate::engine::view::View;
use crate::engine::write::queues::Queues;
use crate::sched::clock::now;

/// The kinds of jobs whose processor time the tuner asks for.
const MERGES: [&str; 2] = ["seal", "merge runs"];
const COMPACTIONS: [&str; 2] = ["compaction", "rewrite buckets"];

impl Core {
    /// Decides anew if it is time; true if that changed a setting. Must not be called with the scheduler's state locked.
    pub fn tune(&self) -> bool {
        let scheduler = &self.scheduler;
        let at = now();
        if scheduler.policy == Policy::Static && self.background_io.rate().is_none() {
            return false;
        }
        {
            let mut state = scheduler.state.lock();
            if at < state.due {
                return false;
            }
            state.due = at + self.settings.tuning.tune_interval;
        }
        let used = self.used();
        let view = self.published.view();
        let Queues { merge: merge_queue, flush: flush_queue, on_fast, on_slow } = self.queues(&view);
        let (front_fill, hl0_fill) = self.fills(&view);
        let mut state = scheduler.state.lock();
        let setting = scheduler.setting();
        let before = state.before.replace(used.clone()).unwrap_or_else(|| used.clone());
        let devices = used.devices_since(&before);
        self.background_io.review(used.foreground_since(&before), self.pacer.is_limited.load(Ordering::Relaxed));
        let tier = |load: Option<&Option<DeviceLoad>>, jobs| {
            let load = load.copied().flatten();
            TierLoad { jobs, busy: load.map(|load| load.busy), latency: load.and_then(|load| load.latency) }
        };
        let mut sample = Sample {
            merge_queue,
            merges: self.merge_is_due(&view),
            flush_queue,
            processors: used.processors_since(&before),
            jobs: used.jobs_since(&before),
            fast: tier(devices.first(), on_fast),
            slow: tier(devices.last(), on_slow),
            waiting: used.waiting_since(&before),
            front_fill,
            hl0_fill,
            ..Sample::default()
        };
        match sample.is_calm() {
            true => sample.calm = at.saturating_sub(*state.calm_since.get_or_insert(at)),
            false => state.calm_since = None,
        }
        let (bottleneck, next) = tune(scheduler.policy, &scheduler.limits, setting, &sample);
        if next == setting {
            return false;
        }
        // The next step back follows after another calm.
        state.calm_since = None;
        scheduler.set(next);
        state.keep(Decision { at, bottleneck, sample, devices, setting: next });
        true
    }

    fn merge_is_due(&self, view: &View) -> bool {
        let sizes: Vec<u64> = view.runs.iter().rev().map(|run| run.weight()).collect();
        !view.sealed.is_empty() || self.pick_runs(view, &sizes).is_some()
    }

    fn used(&self) -> Used {
        let dirs = [self.dirs.fast(), self.dirs.slow()];
        let mut devices: Vec<_> = dirs.map(|dir| self.storage.device_usage(dir)).into();
        let numbers: Vec<_> = devices.iter().map(|device| device.map(|device| device.number)).collect();
        if dirs[0] == dirs[1] || numbers[0].is_some() && numbers[0] == numbers[1] {
            devices.truncate(1);
        }
        let (stall, paced) = (&self.counters.stall_us, &self.counters.paced_us);
        Used {
            at: now(),
            processors: self.storage.processor_time(),
            merges_cpu: self.counters.jobs.cpu_of(&MERGES),
            compactions_cpu: self.counters.jobs.cpu_of(&COMPACTIONS),
            devices,
            background_bytes: self.background_io.used(),
            waited_us: [stall, paced].map(|us| us.load(Ordering::Relaxed)).iter().sum(),
        }
    }
}
