//! What happens second by second while clients work, watched from outside of them.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::counters::{Counters, space_bytes};
use crate::failure::Result;

/// How often progress is looked at: also the precision of the longest stall.
const TICK: Duration = Duration::from_millis(10);
/// Below this part of the mean a second is a stall.
const STALL: f64 = 0.1;

/// Figures for each second.
#[derive(Debug, Default)]
pub struct Series {
    /// Operations completed; the last second may not be a whole one.
    pub operations: Vec<u64>,
    /// What the process used.
    pub counters: Vec<Counters>,
    /// The longest time without a completed operation.
    pub longest_stall: Duration,
    /// Bytes on storage at the end of each second.
    pub space_bytes: Vec<u64>,
}

impl Series {
    /// Watches `done` grow from `start` on until `is_finished`, and the files in `dir`.
    ///
    /// # Errors
    /// If the kernel does not tell its counters.
    pub fn watch(
        start: Instant,
        dir: &Path,
        bar: &ProgressBar,
        done: impl Fn() -> u64,
        is_finished: impl Fn() -> bool,
    ) -> Result<Series> {
        let mut series = Series::default();
        let (mut counters, mut done_before) = (Counters::now()?, 0);
        let (mut progress_at, mut progress) = (start, 0);
        loop {
            let finished = is_finished();
            let (now, done_now) = (Instant::now(), done());
            if done_now > progress || finished {
                series.longest_stall = series.longest_stall.max(now - progress_at);
                (progress_at, progress) = (now, done_now);
            }
            let second = Duration::from_secs(series.operations.len() as u64 + 1);
            if finished || now - start >= second {
                let counters_now = Counters::now()?;
                series.operations.push(done_now - done_before);
                series.counters.push(counters_now.since(&counters));
                series.space_bytes.push(space_bytes(dir)?);
                (counters, done_before) = (counters_now, done_now);
                bar.set_position(done_now);
            }
            if finished {
                return Ok(series);
            }
            thread::sleep(TICK);
        }
    }

    /// Whole seconds with less than a tenth of the mean.
    pub fn stall_seconds(&self, elapsed: Duration) -> u64 {
        let mean = self.operations.iter().sum::<u64>() as f64 / elapsed.as_secs_f64();
        self.whole_seconds().iter().filter(|&&operations| (operations as f64) < mean * STALL).count() as u64
    }

    /// The slowest whole second, or all if there is no whole second.
    pub fn lowest_second(&self) -> u64 {
        let whole = self.whole_seconds().iter().min();
        whole.copied().unwrap_or_else(|| self.operations.iter().sum())
    }

    fn whole_seconds(&self) -> &[u64] {
        self.operations.split_last().map_or(&[], |(_, whole)| whole)
    }
}

/// A bar on the terminal, if stderr is one.
pub fn bar(what: String, operations: u64) -> ProgressBar {
    let template = "{msg:34} {wide_bar} {human_pos} of {human_len}, {per_sec}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("the template in this file is well formed");
    ProgressBar::new(operations).with_style(style).with_message(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_whole_seconds_far_below_the_mean() {
        let series = Series { operations: vec![1000, 0, 80, 1000, 5], ..Series::default() };
        assert_eq!(series.stall_seconds(Duration::from_millis(4100)), 1);
        let series = Series { operations: vec![1000, 0, 20, 1000, 5], ..Series::default() };
        assert_eq!(series.stall_seconds(Duration::from_millis(4100)), 2);
        assert_eq!(series.lowest_second(), 0);
        assert_eq!(Series { operations: vec![7], ..Series::default() }.lowest_second(), 7);
    }
}
