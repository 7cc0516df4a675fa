//! Figures for each second while clients work, sampled by the main thread of a run.

use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde::{Deserialize, Serialize};

use crate::counters::{Counters, Meter, rss_bytes, space_bytes, space_of};
use crate::engine::{Dirs, Engine, Memory};
use crate::failure::Result;
use crate::jobs::{self, JobUse};
use crate::pace::Bursts;
use crate::redirects::BypassSeries;
use crate::tuning::Tuning;
use crate::usage::{DeviceUse, DirectoryUse};
use crate::waiting::WaitSeries;

/// The sampling interval of progress, which is also the precision of the longest stall.
const TICK: Duration = Duration::from_millis(10);
/// The directory of the fast tier is looked at after this many of them.
const FAST_TICKS: u32 = 5;
/// A second below this fraction of the mean is a stall (see [`stalls`]).
const STALL: f64 = 0.1;

/// Figures for each second.
#[derive(Debug, Default)]
pub struct Series {
    /// Operations completed; the last second may be incomplete.
    pub operations: Vec<u64>,
    /// Counters of the process.
    pub counters: Vec<Counters>,
    /// Resident memory of the process at the end of each second, in bytes.
    pub rss: Vec<u64>,
    /// The longest time without a completed operation, without the time that the load was off.
    pub longest_stall: Duration,
    /// When the load was on; none: always.
    pub bursts: Option<Bursts>,
    /// The space in each directory.
    pub directories: Vec<DirectoryUse>,
    /// The most bytes in the directory of the fast tier, looked at every 50 ms; none without tiers.
    pub fast_bytes_max: Option<u64>,
    /// The use of each device; empty if one is unknown.
    pub devices: Vec<DeviceUse>,
    /// The most memory for each purpose at the end of a second; none if the store does not report it.
    pub memory_max: Option<Memory>,
    /// The settings of the store's scheduler; none if it does not report them.
    pub tuning: Option<Tuning>,
    /// What the store's background jobs used, by kind; empty if it does not report it.
    pub jobs: Vec<JobUse>,
    /// How long writers waited; none if the store does not report it.
    pub waits: Option<WaitSeries>,
    /// What went around background work; none if the store does not report it.
    pub bypass: Option<BypassSeries>,
    /// The fraction of all processors that the process used in each second.
    pub cpu_utilisation: Vec<f64>,
}

/// The time of the clients' work.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// When it started.
    pub start: Instant,
    /// When the load is on; none: always.
    pub bursts: Option<Bursts>,
    /// The clients, the background client included.
    pub writers: u64,
}

impl Clock {
    /// For how long the load was on at `now`.
    fn on(self, now: Instant) -> Duration {
        let elapsed = now - self.start;
        self.bursts.map_or(elapsed, |bursts| bursts.on_in(elapsed))
    }
}

/// The spread of a per-second figure over the complete seconds of a run.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lowest second.
    pub min: f64,
    /// The tenth percentile.
    pub p10: f64,
    /// The mean.
    pub mean: f64,
    /// The ninetieth percentile.
    pub p90: f64,
    /// The highest second.
    pub max: f64,
}

impl Spread {
    /// The spread of a per-second figure without its last, incomplete second; none if no second is complete.
    pub fn of(per_second: &[f64]) -> Option<Spread> {
        let mut sorted = per_second.split_last()?.1.to_vec();
        sorted.sort_by(f64::total_cmp);
        let last = sorted.len().checked_sub(1)?;
        let at = |part: f64| sorted[(last as f64 * part).round() as usize];
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Spread { min: sorted[0], p10: at(0.1), mean, p90: at(0.9), max: sorted[last] })
    }
}

impl Series {
    /// Samples `done`, `engine`, the counters of `meter` and the space of `dirs` from the start until `is_finished`.
    ///
    /// # Errors
    /// If the kernel lacks a counter.
    pub fn watch(
        clock: Clock,
        dirs: &Dirs,
        meter: &Meter,
        engine: &dyn Engine,
        bar: &ProgressBar,
        done: impl Fn() -> u64,
        is_finished: impl Fn() -> bool,
    ) -> Result<Series> {
        let mut series = Series {
            directories: dirs.named().map(|(name, _)| DirectoryUse::of(name)).collect(),
            devices: meter.disks().iter().map(DeviceUse::of).collect(),
            bursts: clock.bursts,
            tuning: engine.scheduling().as_ref().map(Tuning::start),
            waits: engine.waits().map(WaitSeries::start),
            bypass: engine.bypassed().map(BypassSeries::start),
            ..Series::default()
        };
        let jobs_before = engine.jobs();
        let (mut counters, mut done_before, mut sampled_at) = (meter.now()?, 0, clock.start);
        let processors = thread::available_parallelism().map_or(1, usize::from) as f64;
        let (mut progress_at, mut progress) = (Duration::ZERO, 0);
        let mut ticks = 0;
        loop {
            if let Some(fast) = dirs.fast.as_deref().filter(|_| ticks % FAST_TICKS == 0) {
                series.fast_bytes_max = series.fast_bytes_max.max(Some(space_of(fast, &|_| true)?));
            }
            ticks += 1;
            let finished = is_finished();
            let (now, done_now) = (Instant::now(), done());
            if done_now > progress || finished {
                series.longest_stall = series.longest_stall.max(clock.on(now).saturating_sub(progress_at));
                (progress_at, progress) = (clock.on(now), done_now);
            }
            let second = Duration::from_secs(series.operations.len() as u64 + 1);
            if finished || now - clock.start >= second {
                let (counters_now, elapsed) = (meter.now()?, now - sampled_at);
                let used = counters_now.since(&counters);
                let by_disk = meter.disks().between(&counters.disks, &counters_now.disks);
                series.devices.iter_mut().zip(&by_disk).for_each(|(device, used)| device.push(used, elapsed));
                if let Some(memory) = engine.memory() {
                    series.memory_max = Some(series.memory_max.map_or(memory, |max| max.max(memory)));
                }
                if let Some((tuning, sample)) = series.tuning.as_mut().zip(engine.scheduling()) {
                    tuning.push(sample);
                }
                if let Some((waits, now)) = series.waits.as_mut().zip(engine.waits()) {
                    waits.push(now, elapsed, clock.writers);
                }
                if let Some((bypass, now)) = series.bypass.as_mut().zip(engine.bypassed()) {
                    bypass.push(now);
                }
                let cpu_s = used.cpu_user_s + used.cpu_sys_s;
                series.cpu_utilisation.push(cpu_s / processors / elapsed.as_secs_f64().max(1e-9));
                series.operations.push(done_now - done_before);
                series.counters.push(used);
                series.rss.push(rss_bytes()?);
                series.directories.iter_mut().zip(space_bytes(dirs)?).for_each(|(one, bytes)| one.push(bytes));
                (counters, done_before, sampled_at) = (counters_now, done_now, now);
                bar.set_position(done_now);
            }
            if finished {
                series.jobs = jobs::since(&jobs_before, &engine.jobs());
                return Ok(series);
            }
            thread::sleep(TICK);
        }
    }

    /// Disk space of all directories at the end of each second, in bytes.
    pub fn space_bytes(&self) -> Vec<u64> {
        let of_second = |second| self.directories.iter().map(|one| one.bytes_per_second[second]).sum();
        (0..self.operations.len()).map(of_second).collect()
    }

    /// The number of [`stalls`] of a run that took `elapsed`.
    pub fn stall_seconds(&self, elapsed: Duration) -> u64 {
        stalls(&self.operations, elapsed, self.bursts).len() as u64
    }

    /// Operations in the slowest complete second in which the load was on, or all operations if there is none.
    pub fn lowest_second(&self) -> u64 {
        let slowest = whole_seconds(&self.operations, self.bursts).map(|(_, operations)| operations).min();
        slowest.unwrap_or_else(|| self.operations.iter().sum())
    }
}

/// The complete seconds in which the load was on, with less than a tenth of the mean throughput of the time that it was on;
/// none if that mean is less than one operation per second.
pub fn stalls(per_second: &[u64], elapsed: Duration, bursts: Option<Bursts>) -> Vec<usize> {
    let on = bursts.map_or(elapsed, |bursts| bursts.on_in(elapsed));
    let mean = per_second.iter().sum::<u64>() as f64 / on.as_secs_f64();
    let stalled = |&(_, operations): &(usize, u64)| mean >= 1.0 && (operations as f64) < mean * STALL;
    whole_seconds(per_second, bursts).filter(stalled).map(|(second, _)| second).collect()
}

/// The complete seconds in which the load was on, with their operations.
fn whole_seconds(per_second: &[u64], bursts: Option<Bursts>) -> impl Iterator<Item = (usize, u64)> {
    let whole = per_second.split_last().map_or(&[][..], |(_, whole)| whole).iter().copied().enumerate();
    whole.filter(move |&(second, _)| bursts.is_none_or(|bursts| bursts.is_on_in(second)))
}

/// A progress bar, drawn if stderr is a terminal.
pub fn bar(what: String, operations: u64) -> ProgressBar {
    let template = "{msg:34} {wide_bar} {human_pos} of {human_len}, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template in this file is well formed");
    ProgressBar::new(operations).with_style(style).with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_complete_seconds_far_below_the_mean() {
        let series = Series { operations: vec![1000, 0, 80, 1000, 5], ..Series::default() };
        assert_eq!(series.stall_seconds(Duration::from_millis(4100)), 1);
        let series = Series { operations: vec![1000, 0, 20, 1000, 5], ..Series::default() };
        assert_eq!(series.stall_seconds(Duration::from_millis(4100)), 2);
        assert_eq!(series.lowest_second(), 0);
        let series = Series { operations: vec![0, 0, 1], ..Series::default() };
        assert_eq!(series.stall_seconds(Duration::from_millis(2100)), 0);
        assert_eq!(Series { operations: vec![7], ..Series::default() }.lowest_second(), 7);
        let bursts = "1,2".parse().ok();
        let series = Series { operations: vec![1000, 20, 0, 900, 0, 0, 40, 9], bursts, ..Series::default() };
        // The mean of the 3 seconds that were on is 656; that of all 8 would make no second a stall.
        assert_eq!((series.stall_seconds(Duration::from_secs(8)), series.lowest_second()), (1, 40));
        assert_eq!(stalls(&series.operations, Duration::from_secs(8), bursts), [6]);
    }

    #[test]
    fn a_spread_leaves_out_the_last_second() {
        let per_second: Vec<f64> = (0..=10).map(f64::from).chain([99.0]).collect();
        assert_eq!(Spread::of(&per_second), Some(Spread { min: 0.0, p10: 1.0, mean: 5.0, p90: 9.0, max: 10.0 }));
        assert_eq!((Spread::of(&[7.0]), Spread::of(&[])), (None, None));
    }
}
